//! The result of an attempt. The kind evaluates the exit of a container; this module excludes exits that are no result.

use std::collections::BTreeMap;

use api::{
    Reason, Timestamp,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::Evidence,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::after_colon;

use crate::{
    AttemptSpec, Run, disruption, lost_log,
    run::describe_pod,
    time,
    view::{ContainerState, Exit, JobEnd, JobView, PodPhase, PodView, Reported, Step},
};

/// Result of an attempt, with the evidence for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptResult {
    /// [`Reason::Succeeded`], or the reason of the failure.
    pub reason: Reason,
    /// Message about the result.
    pub message: String,
    /// Evidence for the result, with the same reason and message.
    pub evidence: Evidence,
}

impl AttemptResult {
    /// Returns the result. The message is cut to the length of a status message.
    pub fn new(reason: Reason, message: impl Into<String>, evidence: Evidence) -> Self {
        let message = bounded(&message.into(), MAX_MESSAGE_CHARS);
        let evidence = Evidence {
            reason: Some(reason.name().to_owned()),
            message: Some(message.clone()),
            ..evidence
        };
        Self {
            reason,
            message,
            evidence,
        }
    }
}

/// Evaluates the attempt of a Job with this end. Returns `None` as long as its Pod does not report the result.
pub(crate) fn evaluate(
    run: &Run<'_>,
    job: &JobView,
    end: &JobEnd,
    pod: Option<&PodView>,
) -> Option<AttemptResult> {
    if let JobEnd::Failed {
        reason, message, ..
    } = end
        && reason == "DeadlineExceeded"
    {
        // Check this before the container's exit: the Job controller killed the container for this reason.
        let message = format!("the Job's own limit was reached{}", after_colon(message));
        let reason = Reason::DeadlineExceeded;
        return Some(AttemptResult::new(reason, message, evidence(pod)));
    }
    let pod = pod?;
    let attempt_spec = run.attempt_spec(job);
    let attempt_spec = attempt_spec.as_ref();
    let is_complete = matches!(end, JobEnd::Complete { .. });
    // If we saw the stop ourselves before the container ended, the kubelet's clock cannot contradict this, even if the
    // Pod seems to have ended before it was asked.
    let was_seen_stopping = disruption::is_known(run, pod);
    match &pod.container {
        // Only a Pod with exit code 0 completes a Job. A Pod with another code is no evidence for it.
        ContainerState::Ended(exit) if is_complete && exit.code != 0 => None,
        ContainerState::Ended(exit) if was_seen_stopping || was_asked_to_stop(pod, exit) => {
            Some(disrupted(pod))
        }
        // Job and Pod arrive through different watches. The Pod's own phase is still to come.
        ContainerState::Ended(_) if is_complete && !pod.phase.is_over() => None,
        ContainerState::Ended(exit) => Some(match end {
            JobEnd::Complete { .. } => contradicted(run, pod, exit, attempt_spec)
                .unwrap_or_else(|| run.work.evaluate(pod, exit, None, attempt_spec)),
            JobEnd::Failed { message, .. } => {
                run.work.evaluate(pod, exit, Some(message), attempt_spec)
            }
        }),
        ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. } => {
            let is_refused = pod.phase == PodPhase::Failed && !is_complete;
            is_refused.then(|| refused(run, pod, end))
        }
    }
}

/// Returns the result for a Job that ended, if its Pod no longer exists or reported no result.
pub(crate) fn result_missing(job: &JobView, end: &JobEnd, pod: Option<&PodView>) -> AttemptResult {
    let what = pod.map_or_else(
        || "its Pod no longer exists".to_owned(),
        |pod| format!("{} does not say how its container ended", describe_pod(pod)),
    );
    let name = &job.name;
    let (reason, message) = match end {
        JobEnd::Failed {
            reason, message, ..
        } if !matches!(reason.as_str(), "" | "BackoffLimitExceeded") => {
            let detail = after_colon(message);
            let message = format!("Job '{name}' failed ({reason}){detail}; {what}");
            (Reason::JobFailed, message)
        }
        JobEnd::Failed { .. } => {
            let message = format!("Job '{name}' failed, but {what}");
            (Reason::EvidenceLost, message)
        }
        JobEnd::Complete { .. } => {
            let message = format!("Job '{name}' is complete, but {what}");
            (Reason::EvidenceLost, message)
        }
    };
    AttemptResult::new(reason, message, evidence(pod))
}

/// Returns whether something asked the Pod to stop before its container ended. The exit of a program after that is not
/// its result, regardless of the exit code.
pub(crate) fn was_asked_to_stop(pod: &PodView, exit: &Exit) -> bool {
    let deleted_before = match (pod.stop_asked, exit.finished) {
        (None, _) => false,
        // The kubelet deletes a stopped Pod once more, without grace. That hides the time of the first request.
        (Some(asked), _) if pod.stop_by == Some(asked) => true,
        // Both times are whole seconds, so equal times do not show which came first.
        (Some(asked), Some(finished)) => asked <= finished,
        (Some(_), None) => true,
    };
    pod.disruption.is_some() || deleted_before
}

/// Returns a failure if something contradicts exit code 0 of the Pod's last container.
fn contradicted(
    run: &Run<'_>,
    pod: &PodView,
    exit: &Exit,
    attempt_spec: Option<&AttemptSpec>,
) -> Option<AttemptResult> {
    let name = describe_pod(pod);
    let doubted = pod.doubt.as_ref().map(|(step, exit)| (*step, exit));
    let (step, exit) = doubted.unwrap_or((pod.step, exit));
    let container = run.spec.containers.describe(step);
    let (reason, message) = match exit.contradiction() {
        Some(_) | None if pod.foreign => {
            let setting = run.spec.accept_changed_pods;
            let message = format!(
                "{name} does not run what its Job says: its image, command, variables, mounts or rights are others. Someone else created it, or an admission webhook changed it; if webhooks change Pods here on purpose, set '{setting}' in the operator's configuration"
            );
            (Reason::ExitContradicted, message)
        }
        Some(_) if exit.is_out_of_memory() => {
            let limit = memory_limit(step, attempt_spec);
            let message = format!(
                "{name}: {container} exited with code 0, but a process of it used more memory {limit} and was killed"
            );
            (Reason::OOMKilled, message)
        }
        Some(what) => (
            Reason::ExitContradicted,
            format!("{name}: {container} exited with code 0, but {what}"),
        ),
        None if pod.phase == PodPhase::Failed => {
            let why = pod
                .failure
                .as_ref()
                .map_or_else(String::new, describe_failure);
            let message =
                format!("{name}: {container} exited with code 0, but the Pod failed{why}");
            (Reason::ExitContradicted, message)
        }
        None => return None,
    };
    Some(AttemptResult::new(reason, message, evidence(Some(pod))))
}

/// Describes how much memory the container of a step was allowed.
pub fn memory_limit(step: Step, attempt_spec: Option<&AttemptSpec>) -> String {
    let limit = attempt_spec.and_then(|spec| spec.memory.as_deref());
    match (step, limit) {
        (Step::Main, Some(limit)) => format!("than its limit of {limit}"),
        (Step::Main, None) => "than there was on its node".to_owned(),
        (Step::Before | Step::After, _) => "than its limit".to_owned(),
    }
}

fn describe_failure(failure: &Reported) -> String {
    format!(" ({}){}", failure.reason, after_colon(&failure.message))
}

fn disrupted(pod: &PodView) -> AttemptResult {
    let (name, by) = (describe_pod(pod), disruption::source(pod));
    let message = format!("{name} was terminated by another actor{by}; its result is ignored");
    AttemptResult::new(Reason::Disrupted, message, evidence(Some(pod)))
}

/// Returns the result for a Pod that the kubelet rejected, or gave up without an end of its container.
fn refused(run: &Run<'_>, pod: &PodView, end: &JobEnd) -> AttemptResult {
    if disruption::is_stopped(pod) {
        return disrupted(pod);
    }
    let detail = match (&pod.failure, end) {
        (Some(failure), _) => describe_failure(failure),
        (None, JobEnd::Failed { message, .. }) => after_colon(message),
        (None, JobEnd::Complete { .. }) => String::new(),
    };
    let name = describe_pod(pod);
    let evidence = evidence(Some(pod));
    // The kubelet does not report the end of each container of a Pod that it evicts.
    let has_started = evidence.started_at.is_some() || lost_log::had_started(run, &pod.uid);
    let when = if has_started {
        ""
    } else {
        " before its container started"
    };
    let message = format!("{name} failed{when}{detail}");
    AttemptResult::new(Reason::JobFailed, message, evidence)
}

/// Returns the evidence that a Pod shows about itself and its container.
pub fn evidence(pod: Option<&PodView>) -> Evidence {
    let Some(pod) = pod else {
        return Evidence::default();
    };
    let exit = pod.container.exit();
    let started = exit.map_or_else(|| pod.container.running_since(), |exit| exit.started);
    // The start of a container before the main one is not the start of the attempt.
    let started = started.filter(|_| pod.step != Step::Before);
    let stored = |time: Option<Timestamp>| time.map(|time| Time(time::whole(time)));
    Evidence {
        exit_code: exit.map(|exit| exit.code),
        signal: exit.and_then(Exit::signal),
        reason: None,
        message: None,
        results: BTreeMap::new(),
        image_id: pod.image_id.clone(),
        node: pod.node.clone(),
        pod_name: Some(pod.name.clone()),
        pod_uid: Some(pod.uid.clone()),
        started_at: stored(started),
        finished_at: stored(exit.and_then(|exit| exit.finished)),
    }
}
