//! The result of an attempt, such as `OOMKilled` or an exit code. Only this module creates a success.

use std::collections::BTreeMap;

use api::{
    Reason, Timestamp,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::Evidence,
};
use git::Report;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::{StartFailure, after_colon, message_limit};
use serde_json::Value;

use super::{attempt_spec::AttemptSpec, disruption, world::describe_pod};
use crate::{
    time,
    view::{ContainerState, Exit, JobEnd, JobView, PodPhase, PodView, Step},
};

/// Maximum number of characters that we quote from the message of a failed program.
const QUOTE: usize = 200;

/// Result of an attempt, with the evidence for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttemptResult {
    /// [`Reason::Succeeded`], or the reason of the failure.
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) evidence: Evidence,
}

impl AttemptResult {
    pub(super) fn new(reason: Reason, message: impl Into<String>, evidence: Evidence) -> Self {
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

/// Evaluates the attempt of a Job with this end. Returns `None` as long as its Pod does not
/// report the result.
///
/// `was_seen_stopping` means that we saw the stop ourselves before the container ended. The
/// kubelet's clock cannot contradict this, even if the Pod seems to have ended before it was asked.
pub(super) fn evaluate(
    end: &JobEnd,
    pod: Option<&PodView>,
    was_seen_stopping: bool,
    attempt_spec: Option<&AttemptSpec>,
) -> Option<AttemptResult> {
    if let JobEnd::Failed {
        reason, message, ..
    } = end
        && reason == "DeadlineExceeded"
    {
        // Check this before the container's exit: the Job controller killed the container for this
        // reason.
        return Some(AttemptResult::new(
            Reason::DeadlineExceeded,
            format!("the Job's own limit was reached{}", after_colon(message)),
            evidence(pod),
        ));
    }
    let pod = pod?;
    let is_complete = matches!(end, JobEnd::Complete { .. });
    match &pod.container {
        // Only a Pod with exit code 0 completes a Job. A Pod with another code is no evidence for
        // it.
        ContainerState::Ended(exit) if is_complete && exit.code != 0 => None,
        ContainerState::Ended(exit) if was_seen_stopping || was_asked_to_stop(pod, exit) => {
            Some(disrupted(pod))
        }
        // Job and Pod arrive through different watches. The Pod's own phase is still to come.
        ContainerState::Ended(_) if is_complete && !pod.phase.is_over() => None,
        ContainerState::Ended(exit) => Some(match end {
            JobEnd::Complete { .. } => match contradicted(pod, exit, attempt_spec) {
                Some(attempt_result) => attempt_result,
                None => succeeded(pod, exit, attempt_spec),
            },
            JobEnd::Failed { message, .. } => failed(pod, exit, message, attempt_spec),
        }),
        ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. } => {
            let is_refused = pod.phase == PodPhase::Failed && !is_complete;
            is_refused.then(|| refused(pod, end))
        }
    }
}

/// Returns the result for a Job that ended, if its Pod no longer exists or reported no result.
pub(super) fn result_missing(job: &JobView, end: &JobEnd, pod: Option<&PodView>) -> AttemptResult {
    let what = pod.map_or_else(
        || "its Pod no longer exists".to_owned(),
        |pod| format!("{} does not say how its container ended", describe_pod(pod)),
    );
    match end {
        JobEnd::Failed {
            reason, message, ..
        } if !matches!(reason.as_str(), "" | "BackoffLimitExceeded") => AttemptResult::new(
            Reason::JobFailed,
            format!(
                "Job '{}' failed ({reason}){}; {what}",
                job.name,
                after_colon(message)
            ),
            evidence(pod),
        ),
        JobEnd::Failed { .. } => AttemptResult::new(
            Reason::EvidenceLost,
            format!("Job '{}' failed, but {what}", job.name),
            evidence(pod),
        ),
        JobEnd::Complete { .. } => AttemptResult::new(
            Reason::EvidenceLost,
            format!("Job '{}' is complete, but {what}", job.name),
            evidence(pod),
        ),
    }
}

/// Returns whether something asked the Pod to stop before its container ended. The exit of a
/// program after that is not its result, regardless of the exit code.
pub(super) fn was_asked_to_stop(pod: &PodView, exit: &Exit) -> bool {
    let deleted_before = match (pod.stop_asked, exit.finished) {
        (None, _) => false,
        // The kubelet deletes a stopped Pod once more, without grace. That hides the time of the
        // first request.
        (Some(asked), _) if pod.stop_by == Some(asked) => true,
        // Both times are whole seconds, so equal times do not show which came first.
        (Some(asked), Some(finished)) => asked <= finished,
        (Some(_), None) => true,
    };
    pod.disruption.is_some() || deleted_before
}

/// Returns a failure if something contradicts exit code 0 of the Pod's last container.
fn contradicted(
    pod: &PodView,
    exit: &Exit,
    attempt_spec: Option<&AttemptSpec>,
) -> Option<AttemptResult> {
    let name = describe_pod(pod);
    if pod.foreign {
        let message = format!(
            "{name} does not run what its Job says: its image, command, variables, mounts or rights are others. Someone else created it, or an admission webhook changed it; if webhooks change Pods here on purpose, set 'tasks.acceptChangedPods' in the operator's configuration"
        );
        return Some(AttemptResult::new(
            Reason::ExitContradicted,
            message,
            evidence(Some(pod)),
        ));
    }
    let doubted = pod.doubt.as_ref().map(|(step, exit)| (*step, exit));
    let (step, exit) = doubted.unwrap_or((pod.step, exit));
    let container = match step {
        Step::Clone => "the container 'clone'",
        Step::Agent => "the agent",
        Step::Publish => "the container 'publish'",
    };
    let (reason, message) = match exit.contradiction() {
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
            let why = pod.failure.as_ref().map_or_else(String::new, |failure| {
                format!(" ({}){}", failure.reason, after_colon(&failure.message))
            });
            let message =
                format!("{name}: {container} exited with code 0, but the Pod failed{why}");
            (Reason::ExitContradicted, message)
        }
        None => return None,
    };
    Some(AttemptResult::new(reason, message, evidence(Some(pod))))
}

/// Describes how much memory the container of a step was allowed.
fn memory_limit(step: Step, attempt_spec: Option<&AttemptSpec>) -> String {
    let limit = attempt_spec.and_then(|spec| spec.memory.as_deref());
    match (step, limit) {
        (Step::Agent, Some(limit)) => format!("than its limit of {limit}"),
        (Step::Agent, None) => "than there was on its node".to_owned(),
        (Step::Clone | Step::Publish, _) => "than its limit".to_owned(),
    }
}

fn succeeded(pod: &PodView, exit: &Exit, attempt_spec: Option<&AttemptSpec>) -> AttemptResult {
    let evidence = evidence(Some(pod));
    let Some(attempt_spec) = attempt_spec else {
        return AttemptResult::new(
            Reason::AgentNotFound,
            "the agent exited with code 0, but its Agent no longer exists, so the required results are unknown",
            evidence,
        );
    };
    // The last container of a DocsRun is ours. The agent's results are in the agent's own
    // container.
    let agent = pod.agent.as_ref().unwrap_or(exit);
    let results = match results(&agent.message, pod.containers) {
        Ok(results) => results,
        Err((reason, message)) => return AttemptResult::new(reason, message, evidence),
    };
    let missing: Vec<&str> = attempt_spec
        .required
        .iter()
        .filter(|name| !results.contains_key(*name))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        let message = format!(
            "the agent exited with code 0 without the required results: {}",
            missing.join(", ")
        );
        return AttemptResult::new(
            Reason::ResultMissing,
            message,
            Evidence {
                results,
                ..evidence
            },
        );
    }
    let message = format!("the agent exited with code 0; {}", describe_pod(pod));
    AttemptResult::new(
        Reason::Succeeded,
        message,
        Evidence {
            results,
            ..evidence
        },
    )
}

/// Returns the results in a termination message, or the reason why they cannot be trusted.
///
/// `containers` is the number of containers of the Pod, with those that other components injected.
fn results(message: &str, containers: usize) -> Result<BTreeMap<String, String>, (Reason, String)> {
    let limit = message_limit(containers);
    if message.len() >= limit {
        let shared = if limit < message_limit(1) {
            format!(" (the {containers} containers of the Pod share 12 KiB)")
        } else {
            String::new()
        };
        return Err((
            Reason::ResultTooLarge,
            format!(
                "the termination message has {limit} bytes or more{shared}, so it was cut and proves nothing"
            ),
        ));
    }
    let message = message.trim();
    if message.is_empty() {
        return Ok(BTreeMap::new());
    }
    match serde_json::from_str::<Value>(message) {
        Ok(Value::Object(object)) => Ok(object
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::Null => None,
                Value::String(text) => Some((name, text)),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Some((name, value.to_string()))
                }
            })
            .collect()),
        // The message does not repeat the error, because the error quotes the agent's output.
        Ok(_) | Err(_) => Err((
            Reason::ResultInvalid,
            "the agent exited with code 0, but its termination message is not one JSON object"
                .to_owned(),
        )),
    }
}

fn disrupted(pod: &PodView) -> AttemptResult {
    AttemptResult::new(
        Reason::Disrupted,
        format!(
            "{} was terminated by another actor{}; its result is ignored",
            describe_pod(pod),
            disruption::source(pod)
        ),
        evidence(Some(pod)),
    )
}

/// Returns the result for a Pod that the kubelet rejected or gave up without starting its
/// container.
fn refused(pod: &PodView, end: &JobEnd) -> AttemptResult {
    if disruption::is_stopped(pod) {
        return disrupted(pod);
    }
    let detail = match (&pod.failure, end) {
        (Some(failure), _) => format!(" ({}){}", failure.reason, after_colon(&failure.message)),
        (None, JobEnd::Failed { message, .. }) => after_colon(message),
        (None, JobEnd::Complete { .. }) => String::new(),
    };
    AttemptResult::new(
        Reason::JobFailed,
        format!(
            "{} failed before its container started{detail}",
            describe_pod(pod)
        ),
        evidence(Some(pod)),
    )
}

fn failed(
    pod: &PodView,
    exit: &Exit,
    job_message: &str,
    attempt_spec: Option<&AttemptSpec>,
) -> AttemptResult {
    let name = describe_pod(pod);
    let ours = match pod.step {
        Step::Agent => None,
        Step::Clone => Some(("clone", Reason::CloneFailed)),
        Step::Publish => Some(("publish", Reason::PublishFailed)),
    };
    if let Some((container, otherwise)) = ours.filter(|_| exit.code != 0) {
        let (reason, message) = step_failed(&name, container, otherwise, exit);
        return AttemptResult::new(reason, message, evidence(Some(pod)));
    }
    let (reason, message) = if exit.is_out_of_memory() {
        let limit = memory_limit(Step::Agent, attempt_spec);
        let message = format!("{name}: the container used more memory {limit} and was killed");
        (Reason::OOMKilled, message)
    } else if let Some(failure) = StartFailure::of(&exit.reason, &exit.message, 0) {
        let user = attempt_spec.map(|spec| spec.user);
        let cause = failure.cause(&name, &exit.message, user);
        (cause.reason, cause.message)
    } else if exit.code != 0 {
        (Reason::NonZeroExit, exit_message(&name, exit))
    } else {
        let detail = after_colon(job_message);
        let message =
            format!("{name}: the container exited with code 0, but its Job failed{detail}");
        (Reason::JobFailed, message)
    };
    let agent = pod.agent.as_ref().unwrap_or(exit);
    let results = results(&agent.message, pod.containers).unwrap_or_default();
    AttemptResult::new(
        reason,
        message,
        Evidence {
            results,
            ..evidence(Some(pod))
        },
    )
}

/// Returns why one of our own containers failed. Its report has the reason, unless something ended
/// the container.
fn step_failed(pod: &str, container: &str, otherwise: Reason, exit: &Exit) -> (Reason, String) {
    if exit.is_out_of_memory() {
        let message = format!(
            "{pod}: the container '{container}' used more memory than its limit and was killed"
        );
        return (Reason::OOMKilled, message);
    }
    match Report::read(&exit.message) {
        Some(Report::Failed { reason, message }) => {
            let reason = Reason::from_name(reason.as_str()).unwrap_or(otherwise);
            (reason, message)
        }
        Some(
            Report::Cloned { .. }
            | Report::Pushed { .. }
            | Report::Found { .. }
            | Report::NoChanges { .. },
        )
        | None => {
            let detail =
                plain(&exit.message).map_or_else(String::new, |text| format!(": \"{text}\""));
            let message = format!(
                "{pod}: the container '{container}' exited with code {} and without a report{detail}",
                exit.code
            );
            (otherwise, message)
        }
    }
}

fn exit_message(pod: &str, exit: &Exit) -> String {
    let signal = exit
        .signal()
        .map_or_else(String::new, |signal| format!(" (signal {signal})"));
    let quote = plain(&exit.message).map_or_else(String::new, |text| format!(": \"{text}\""));
    format!(
        "{pod}: the agent exited with code {}{signal}{quote}",
        exit.code
    )
}

/// Returns the first lines of a message, if a person can read it.
fn plain(message: &str) -> Option<String> {
    let message = message.trim();
    let readable = !message.is_empty()
        && !message.starts_with(['{', '['])
        && !message
            .chars()
            .any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'));
    readable.then(|| bounded(message, QUOTE))
}

/// Returns the evidence that a Pod shows about itself and its container.
pub(super) fn evidence(pod: Option<&PodView>) -> Evidence {
    let Some(pod) = pod else {
        return Evidence::default();
    };
    let (exit, started) = match &pod.container {
        ContainerState::Ended(exit) => (Some(exit), exit.started),
        ContainerState::Running { since } => (None, *since),
        ContainerState::Unknown | ContainerState::Waiting(_) => (None, None),
    };
    // The start of a container before the agent is not the agent's start.
    let started = started.filter(|_| pod.step != Step::Clone);
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
