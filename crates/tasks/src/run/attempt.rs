//! How an attempt stands, read from its Job and the Job's newest Pod.
//!
//! Only the Job's conditions say that it ended, and only its own Pod says how: counters run ahead
//! of the Job, and a Pod of an earlier attempt is no evidence for this one.

use std::time::Duration;

use api::{Reason, Timestamp};

use super::{
    STOP_WAIT,
    cause::{self, Cause},
    disruption,
    judge::{self, Judgement},
    suspend,
    world::{Run, may_run},
};
use crate::{
    time,
    view::{Container, Exit, JobEnd, JobView, PodView},
};

/// Job and Pod come by different watches: for this long after the Job's end, a Pod that does not
/// show its own is taken for late, not for lost.
const LATE: Duration = Duration::from_secs(10);
/// A time further ahead than this is another machine's wrong clock, and nothing to wait for.
const SKEW: Duration = Duration::from_secs(60);

/// How an attempt stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Attempt<'a> {
    /// The container was not started, for this cause if one is visible.
    Waiting {
        cause: Option<Cause>,
        /// Since when another Pod takes the place of one that was stopped from outside.
        replaced: Option<Timestamp>,
    },
    /// The container runs.
    Running {
        pod: &'a PodView,
        since: Option<Timestamp>,
    },
    /// The container ended, and the Job does not say so yet.
    Settling {
        pod: &'a PodView,
        exit: Option<&'a Exit>,
    },
    /// The Job ended, and its Pod does not say how yet.
    Late { until: Timestamp },
    /// It ended.
    Ended(Box<Judgement>),
}

/// Reads how the attempt with this Job stands.
pub(super) fn read<'a>(run: &Run<'a>, job: &'a JobView) -> Attempt<'a> {
    let pod = run.newest_pod(job);
    match &job.end {
        Some(end) => ended(run, job, end, pod),
        None => unsettled(run, job, pod),
    }
}

fn ended<'a>(
    run: &Run<'a>,
    job: &'a JobView,
    end: &JobEnd,
    pod: Option<&'a PodView>,
) -> Attempt<'a> {
    let terms = run.terms(job);
    let is_known = pod.is_some_and(|pod| disruption::is_known(run, pod));
    if let Some(judgement) = judge::judge(end, pod, is_known, terms.as_ref()) {
        return Attempt::Ended(Box::new(judgement));
    }
    if let Some(judgement) = disruption::remembered(run, end, pod) {
        return Attempt::Ended(Box::new(judgement));
    }
    // Who deletes a Job takes its Pods away, too: it is lost, and not only its evidence.
    let deleting = job.deleting;
    if let Some(until) = deleting.and_then(|since| recent(run.now, since, STOP_WAIT)) {
        return Attempt::Late { until };
    }
    match end.at().and_then(|at| recent(run.now, at, LATE)) {
        Some(until) => Attempt::Late { until },
        None => Attempt::Ended(Box::new(judge::unread(job, end, pod))),
    }
}

fn unsettled<'a>(run: &Run<'a>, job: &'a JobView, pod: Option<&'a PodView>) -> Attempt<'a> {
    let waiting = |pod: Option<&PodView>| {
        let user = run.terms(job).map(|terms| terms.user);
        Attempt::Waiting {
            cause: being_deleted(job)
                .or_else(|| suspend::by_others(job))
                .or_else(|| suspend::still_stopping(run, job).filter(|_| pod.is_none()))
                .or_else(|| cause::find(job, pod, &run.world.warnings, user, run.now)),
            replaced: pod.and_then(|pod| replaced(run, job, pod)),
        }
    };
    let Some(pod) = pod else {
        return waiting(None);
    };
    match &pod.container {
        // The Job controller replaces it, or fails the Job.
        Container::Ended(exit) if judge::was_asked_to_stop(pod, exit) => waiting(Some(pod)),
        Container::Ended(exit) => Attempt::Settling {
            pod,
            exit: Some(exit),
        },
        Container::Running { since } if may_run(pod) => Attempt::Running { pod, since: *since },
        Container::Unknown | Container::Waiting(_) | Container::Running { .. } => {
            if may_run(pod) || disruption::is_stopped(pod) {
                waiting(Some(pod))
            } else {
                Attempt::Settling { pod, exit: None }
            }
        }
    }
}

/// When this Pod, which does not run, took the place of another. For one that ended nobody's clock
/// but ours says since when another is waited for.
fn replaced(run: &Run<'_>, job: &JobView, pod: &PodView) -> Option<Timestamp> {
    match &pod.container {
        Container::Ended(_) => None,
        Container::Unknown | Container::Waiting(_) | Container::Running { .. } => {
            let is_second = run.pods_of(job).any(|other| other.uid != pod.uid);
            pod.created.filter(|_| is_second)
        }
    }
}

/// Someone else deletes the Job of an attempt that goes on.
pub(super) fn being_deleted(job: &JobView) -> Option<Cause> {
    job.deleting.map(|_| Cause {
        reason: Reason::JobLost,
        message: format!(
            "Job '{}' is being deleted from outside; waiting until it is gone",
            job.name
        ),
    })
}

/// The end of `wait` after `start`, if it is still to come.
pub(super) fn recent(now: Timestamp, start: Timestamp, wait: Duration) -> Option<Timestamp> {
    let until = time::after(start, wait);
    (now < until && start <= time::after(now, SKEW)).then_some(until)
}
