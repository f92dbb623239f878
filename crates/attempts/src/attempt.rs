//! The state of an attempt, read from its Job and the Job's newest Pod.
//!
//! Only the Job's conditions report that the attempt ended, and only its own Pod reports the result. Counters run ahead
//! of the Job's conditions. A Pod of an earlier attempt is no evidence for this one.

use std::time::Duration;

use api::{Reason, Timestamp, tasks::Evidence};
use pods::Cause;

use crate::{
    AttemptResult, Run, STOP_WAIT,
    attempt_result::{self, evidence},
    cause, disruption,
    run::may_run,
    suspend, time,
    view::{ContainerState, Exit, JobEnd, JobView, PodView},
};

/// For this long after the Job's end, a Pod without an end of its own counts as late, not as lost. Job and Pod arrive
/// through different watches.
const LATE: Duration = Duration::from_secs(10);
/// A time further ahead than this comes from a wrong clock of another machine. We do not wait for it.
const SKEW: Duration = Duration::from_secs(60);

/// State of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Attempt<'a> {
    /// The container has not started, for this cause if one is visible.
    Waiting {
        cause: Option<Cause>,
        /// Time since which another Pod replaces one that was stopped from outside.
        replaced: Option<Timestamp>,
    },
    /// The container runs.
    Running {
        pod: &'a PodView,
        since: Option<Timestamp>,
    },
    /// The container ended, but the Job does not report it yet.
    AwaitingJobStatus {
        pod: &'a PodView,
        exit: Option<&'a Exit>,
    },
    /// The Job ended, but its Pod does not report the result yet.
    AwaitingPodStatus { until: Timestamp },
    /// The attempt ended.
    Ended(Box<AttemptResult>),
}

/// Reads the state of the attempt with this Job.
pub(crate) fn read<'a>(run: &Run<'a>, job: &'a JobView) -> Attempt<'a> {
    let pod = run.newest_pod(job);
    match &job.end {
        Some(end) => ended(run, job, end, pod),
        None => unsettled(run, job, pod),
    }
}

/// Returns the reason of an attempt that ended, although its status is not recorded, and the evidence that its Pod
/// shows so far.
pub fn unrecorded_result(run: &Run<'_>, job: &str) -> (Option<Reason>, Option<Evidence>) {
    let Some(job) = run.job(job) else {
        return (None, None);
    };
    if let Attempt::Ended(result) = read(run, job) {
        return (Some(result.reason), Some(result.evidence));
    }
    let pod = run.newest_pod(job);
    (None, pod.map(|pod| evidence(Some(pod))))
}

fn ended<'a>(
    run: &Run<'a>,
    job: &'a JobView,
    end: &JobEnd,
    pod: Option<&'a PodView>,
) -> Attempt<'a> {
    if let Some(attempt_result) = attempt_result::evaluate(run, job, end, pod)
        .or_else(|| disruption::remembered(run, end, pod))
    {
        return Attempt::Ended(Box::new(attempt_result));
    }
    // Deleting a Job also deletes its Pods. So the Job is lost, not only its evidence.
    let deleting = job.deleting;
    if let Some(until) = deleting.and_then(|since| recent(run.now, since, STOP_WAIT)) {
        return Attempt::AwaitingPodStatus { until };
    }
    match end.at().and_then(|at| recent(run.now, at, LATE)) {
        Some(until) => Attempt::AwaitingPodStatus { until },
        None => Attempt::Ended(Box::new(attempt_result::result_missing(job, end, pod))),
    }
}

fn unsettled<'a>(run: &Run<'a>, job: &'a JobView, pod: Option<&'a PodView>) -> Attempt<'a> {
    let waiting = |pod: Option<&PodView>| {
        let user = run.attempt_spec(job).map(|spec| spec.user);
        Attempt::Waiting {
            cause: being_deleted(job)
                .or_else(|| suspend::by_others(job))
                .or_else(|| suspend::still_stopping(run, job).filter(|_| pod.is_none()))
                .or_else(|| cause::find(run, job, pod, user)),
            replaced: pod.and_then(|pod| replaced(run, job, pod)),
        }
    };
    let Some(pod) = pod else {
        return waiting(None);
    };
    match &pod.container {
        // The Job controller replaces this Pod, or fails the Job.
        ContainerState::Ended(exit) if attempt_result::was_asked_to_stop(pod, exit) => {
            waiting(Some(pod))
        }
        ContainerState::Ended(exit) => Attempt::AwaitingJobStatus {
            pod,
            exit: Some(exit),
        },
        ContainerState::Running { since } if may_run(pod) => {
            Attempt::Running { pod, since: *since }
        }
        ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. } => {
            if may_run(pod) || disruption::is_stopped(pod) {
                waiting(Some(pod))
            } else {
                Attempt::AwaitingJobStatus { pod, exit: None }
            }
        }
    }
}

/// Returns when this Pod, which does not run, replaced another one. Returns `None` for a Pod that ended: only our own
/// clock shows since when we wait for its replacement.
fn replaced(run: &Run<'_>, job: &JobView, pod: &PodView) -> Option<Timestamp> {
    let has_ended = pod.container.exit().is_some();
    let is_second = run.pods_of(job).any(|other| other.uid != pod.uid);
    pod.created.filter(|_| is_second && !has_ended)
}

/// Returns a cause if another actor deletes the Job of an attempt in progress.
pub(crate) fn being_deleted(job: &JobView) -> Option<Cause> {
    let name = &job.name;
    let message = format!(
        "Job '{name}' is being deleted by another actor; waiting until its deletion is complete"
    );
    job.deleting.map(|_| Cause::new(Reason::JobLost, message))
}

/// Returns the end of `wait` after `start`, if it is still to come.
pub fn recent(now: Timestamp, start: Timestamp, wait: Duration) -> Option<Timestamp> {
    let until = time::after(start, wait);
    (now < until && start <= time::after(now, SKEW)).then_some(until)
}
