//! An attempt in progress. Orphaned Jobs of the run, which may still run a Pod, are stopped beside it.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::{Decision, Effect, ResourceType},
    messages,
    tasks::RunPhase,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::Cause;
use serde_json::json;

use crate::{
    BACKSTOP, Run, RunDecision, STOP_WAIT,
    attempt::{self, Attempt, recent},
    cause, disruption, finish,
    run::describe_pod,
    start,
    stop::{self, Stop},
    suspend, time,
    view::{ContainerState, Exit, JobView, PodView, Step},
};

/// For this long after a container's end, we report nothing about it. The Job controller takes about a second to see
/// the end, and a message would be one more write for each run.
const QUIET: Duration = Duration::from_secs(30);

/// Decides about the attempt with this Job, which is in progress according to the status.
pub(crate) fn decide(run: &Run<'_>, job_name: &str) -> RunDecision {
    let Some(job) = run.job(job_name) else {
        return finish::job_missing(run, job_name);
    };
    match attempt::read(run, job) {
        Attempt::Waiting { cause, replaced } => {
            unfinished(run, job, |run| waiting(run, job, cause, replaced))
        }
        Attempt::Running { pod, since } => {
            unfinished(run, job, |run| running(run, job, pod, since))
        }
        Attempt::AwaitingJobStatus { pod, exit } => settling(run, job, pod, exit),
        // A Pod that is being stopped may be deleted before it reports how it ended.
        Attempt::AwaitingPodStatus { until } => {
            unchanged(&disruption::with_new_disruptions(run, job), job).requeue_at(until)
        }
        Attempt::Ended(attempt_result) => finish::finish_attempt(run, *attempt_result),
    }
}

/// Decides about a container that did not end. A user may want it to end, or something may have stopped it. Otherwise,
/// `go_on` decides. Orphaned Jobs of the run are stopped beside it: they were considered lost, but were not.
fn unfinished(
    run: &Run<'_>,
    job: &JobView,
    go_on: impl FnOnce(&Run<'_>) -> RunDecision,
) -> RunDecision {
    let mut decision = if run.spec.cancel {
        let attempt = run.status.attempts;
        let message = format!("cancelled by 'spec.cancel' during attempt {attempt}");
        finish::abort_attempt(run, job, Reason::Cancelled, &message)
    } else if run.spec.suspend {
        suspend::during(run, job)
    } else if job.suspended && job.suspended_by_us {
        suspend::resume(run, job)
    } else {
        let run = disruption::with_new_disruptions(run, job);
        if run.status.disruptions >= disruption::MAX_DISRUPTIONS {
            let message = disruption::too_many(&run, "");
            finish::abort_attempt(&run, job, Reason::TooManyDisruptions, &message)
        } else {
            go_on(&run)
        }
    };
    // A reconciliation that gives up the attempt only stores that.
    if decision.status.result.is_none() {
        let is_orphan = |other: &&JobView| {
            other.name != job.name && other.end.is_none() && other.deleting.is_none()
        };
        let orphans = run.jobs().filter(is_orphan);
        decision
            .effects
            .extend(orphans.flat_map(|other| stop_orphan(run, other)));
    }
    decision
}

/// Returns the effects that stop an orphaned Job. They are optional: the attempt in progress is healthy. Two agents must
/// not run at once, so nothing waits for a permission to limit its Pod: the Job is limited, unless a user forbids that.
fn stop_orphan(run: &Run<'_>, job: &JobView) -> Vec<Effect> {
    let mut step = stop::of(run, job);
    if matches!(step, Stop::Pods(_)) && !run.is_preserved() {
        step = Stop::Job;
    }
    let effects = stop::effects(run, job, &step).into_iter();
    effects.map(Effect::optional).collect()
}

/// Decides about a container that has not started.
pub(crate) fn waiting(
    run: &Run<'_>,
    job: &JobView,
    cause: Option<Cause>,
    replaced: Option<Timestamp>,
) -> RunDecision {
    let mut status = run.next();
    // If the status has a start time, the Pod that started then no longer exists. The wait for another Pod begins.
    let has_started = status.started_at.take().is_some();
    let wait = run.start_timeout(job);
    let deadline = replaced
        .map(|since| time::after(since, wait))
        .or(run.deadline().filter(|_| !has_started))
        .unwrap_or_else(|| run.after(wait));
    if run.now >= deadline && is_unread(run, job) {
        let name = &job.name;
        let message =
            format!("a Pod of Job '{name}' ended, but it was deleted before its result was read");
        return finish::abort_attempt(run, job, Reason::EvidenceLost, &message);
    }
    if run.now >= deadline {
        let message = start_timeout_message(run, job, cause.as_ref());
        return finish::abort_attempt(run, job, Reason::StartTimeout, &message);
    }
    status.progress.deadline_at = Some(Time(deadline));
    let verdict = cause.map_or_else(
        || created(&job.name),
        |cause| Verdict::working(cause.reason, cause.message),
    );
    let overdue = run
        .newest_pod(job)
        .and_then(disruption::given_up_at)
        .filter(|at| run.now < *at);
    let requeue_at = overdue.map_or(deadline, |at| at.min(deadline));
    let mut decision =
        Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(requeue_at);
    decision
        .effects
        .extend(raised(run, job, time::after(deadline, run.pod_time(job))));
    match start::recreate_config_map(run) {
        Ok(None) => {}
        Ok(Some(files)) => decision = decision.with(Effect::Ensure(Box::new(files))),
        Err(verdict) => decision.verdict = verdict,
    }
    decision
}

/// Returns the verdict from the Job's creation until a problem appears or the container runs. Each step on the way has
/// the same message. Otherwise each step would be a write.
pub(crate) fn created(job: &str) -> Verdict {
    Verdict::working(Reason::Progressing, messages::job_created(job))
}

/// Returns whether a Pod of the Job ended and no longer exists, while the Job does not report its own end yet. The
/// effect of the container is unknown. So this is no late start, and the attempt must not be repeated.
fn is_unread(run: &Run<'_>, job: &JobView) -> bool {
    // The effect of a deletion of the Job, or of a stop of a Pod, is known.
    let is_explained = job.deleting.is_some() || disruption::is_recent(run);
    job.counted && run.newest_pod(job).is_none() && !is_explained
}

fn start_timeout_message(run: &Run<'_>, job: &JobView, cause: Option<&Cause>) -> String {
    let wait = time::format_duration(run.start_timeout(job));
    let why = match (cause, run.newest_pod(job)) {
        (Some(cause), _) => format!("{}: {}", cause.reason, cause.message),
        (None, Some(pod)) => format!("{} does not say why", describe_pod(pod)),
        (None, None) => format!("Job '{}' has no Pod, and nothing says why", job.name),
    };
    messages::start_timeout(&wait, &why)
}

/// Decides about a container that runs.
fn running(run: &Run<'_>, job: &JobView, pod: &PodView, since: Option<Timestamp>) -> RunDecision {
    let mut status = run.next();
    let known = status.started_at.as_ref().map(|time| time.0);
    let since = time::whole(since.or(known).unwrap_or(run.now));
    let main_ended = pod.main_exit.as_ref().and_then(|exit| exit.finished);
    let after_main = run.spec.after_main;
    let (begun, timeout) = match pod.step {
        Step::After => (main_ended.unwrap_or(since), after_main),
        Step::Before | Step::Main => (since, run.timeout(job)),
    };
    let deadline = time::after(begun, timeout);
    let last = match pod.step {
        Step::After => deadline,
        Step::Before | Step::Main => time::after(deadline, after_main),
    };
    if run.now >= deadline {
        let container = run.spec.containers.describe(pod.step);
        let timeout = time::format_duration(timeout);
        let message = messages::not_ended(&describe_pod(pod), &container, &timeout);
        return finish::abort_attempt(run, job, Reason::DeadlineExceeded, &message);
    }
    status.started_at = Some(Time(since));
    status.progress.deadline_at = Some(Time(deadline));
    status.job_uid = Some(job.uid.clone());
    if let Some(files) = run.files() {
        status.config_map_uid = Some(files.uid.clone());
    }
    if status.pod.as_ref().is_none_or(|known| known.uid != pod.uid) {
        status.pod = Some(disruption::to_status(pod, None));
    }
    let mut requeue_at = deadline;
    let verdict = match attempt::being_deleted(job) {
        Some(cause) => Verdict::working(cause.reason, cause.message),
        None if disruption::is_stopped(pod) => {
            let overdue = disruption::given_up_at(pod).filter(|at| run.now < *at);
            requeue_at = overdue.map_or(requeue_at, |at| at.min(requeue_at));
            Verdict::working(Reason::Disrupted, disruption::describe(run, pod))
        }
        None => going_on(run, job, pod, deadline),
    };
    let mut decision =
        Decision::status_only(status, RunPhase::Running, verdict).requeue_at(requeue_at);
    decision.effects.extend(raised(run, job, last));
    decision
}

fn going_on(run: &Run<'_>, job: &JobView, pod: &PodView, deadline: Timestamp) -> Verdict {
    if let Some(cause) = stuck(run, job, pod) {
        return Verdict::working(cause.reason, cause.message);
    }
    let name = describe_pod(pod);
    match &run.spec.containers.after {
        Some(after) if pod.step == Step::After => {
            let message = format!("{name} {}; it has until {deadline}", after.activity);
            Verdict::working(after.reason, message)
        }
        Some(_) | None => {
            Verdict::working(Reason::Progressing, messages::runs_until(&name, deadline))
        }
    }
}

/// Returns the cause that keeps the container after the main one from starting.
fn stuck(run: &Run<'_>, job: &JobView, pod: &PodView) -> Option<Cause> {
    let waiting = PodView {
        container: ContainerState::Waiting(pod.stuck.clone()?),
        ..pod.clone()
    };
    cause::find(run, job, Some(&waiting), None)
}

/// Returns the Job's own limit, in seconds, for a Pod that may run until `end`.
pub(crate) fn limit(job: &JobView, end: Timestamp) -> Option<i64> {
    let last = time::after(end, BACKSTOP).as_second();
    Some(last.saturating_sub(job.started?.as_second()).max(1))
}

/// Raises the Job's own limit if it would come before ours. That happens if another Pod replaced a disrupted one, or if
/// the run's author extended the timeout.
fn raised(run: &Run<'_>, job: &JobView, end: Timestamp) -> Option<Effect> {
    let own = time::after(job.started?, seconds(job.limit_seconds?));
    let is_early = own < time::after(end, BACKSTOP / 2);
    let wanted = limit(job, end)?;
    is_early.then(|| Effect::Patch {
        target: run.target(ResourceType::JOB, &job.name, &job.uid),
        subresource: None,
        patch: json!({ "spec": { "activeDeadlineSeconds": wanted } }),
    })
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// Handles a container that ended, while the Job does not report it yet.
fn settling(run: &Run<'_>, job: &JobView, pod: &PodView, exit: Option<&Exit>) -> RunDecision {
    let finished = exit.and_then(|exit| exit.finished);
    if let Some(until) = finished.and_then(|finished| recent(run.now, finished, QUIET)) {
        return unchanged(run, job).requeue_at(until);
    }
    // A container that another component injected may keep the Pod running after ours ended.
    let outlived = exit.filter(|_| stop::is_active(pod));
    if outlived.is_some() && run.spec.cancel {
        let attempt = run.status.attempts;
        let message = format!(
            "cancelled by 'spec.cancel' during attempt {attempt}: {}",
            outlived_message(run, pod)
        );
        return finish::abort_attempt(run, job, Reason::Cancelled, &message);
    }
    let limit = outlived.and_then(|exit| {
        let started = exit
            .started
            .map(|started| time::after(started, run.pod_time(job)))?;
        Some(started.max(time::after(finished?, QUIET)))
    });
    let deadline = finished
        .filter(|finished| *finished <= run.now)
        .map(|finished| time::after(finished, STOP_WAIT))
        .or(run.deadline())
        .unwrap_or_else(|| run.after(STOP_WAIT));
    let deadline = limit.map_or(deadline, |limit| limit.min(deadline));
    let (reason, message) = if outlived.is_some() {
        (Reason::DeadlineExceeded, outlived_message(run, pod))
    } else {
        let ended = exit.map_or_else(
            || " ended".to_owned(),
            |exit| format!(": the container exited with code {}", exit.code),
        );
        let (pod, name) = (describe_pod(pod), &job.name);
        let message = format!(
            "{pod}{ended}, but Job '{name}' does not say so; is the Job controller running?"
        );
        (Reason::JobFailed, message)
    };
    if run.now >= deadline {
        return finish::abort_attempt(run, job, reason, &message);
    }
    let mut status = run.next();
    status.progress.deadline_at = Some(Time(deadline));
    let verdict = Verdict::working(Reason::Progressing, message);
    Decision::status_only(status, run.phase(), verdict).requeue_at(deadline)
}

/// Returns the message about a Pod that runs on although our containers have ended.
fn outlived_message(run: &Run<'_>, pod: &PodView) -> String {
    let container = run.spec.containers.describe(pod.step);
    format!(
        "{} runs on although {container} has ended: another container, which something injected, does not end",
        describe_pod(pod)
    )
}

/// Keeps the stored message for a moment.
fn unchanged(run: &Run<'_>, job: &JobView) -> RunDecision {
    let (reason, message) = run
        .stored_message()
        .filter(|(reason, _)| run.spec.containers.is_progress(*reason))
        .unwrap_or_else(|| {
            let name = &job.name;
            let message =
                format!("Job '{name}' has ended or is about to; waiting for its evidence");
            (Reason::Progressing, message)
        });
    let verdict = Verdict::working(reason, message);
    Decision::status_only(run.next(), run.phase(), verdict)
}
