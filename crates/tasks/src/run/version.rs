//! Transition of the status to a newer version of the context.

use std::time::Duration;

use api::{
    CommonStatus, Phase, Reason, Verdict,
    decide::Decision,
    status::condition,
    tasks::{AttemptStatus, RunPhase, Version},
};
use attempts::{Run, RunDecision, RunStatus, STOP_TIME, Stage, unrecorded_result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::view::JobView;

/// Maximum number of versions in the history of a status.
const HISTORY: usize = 10;

/// Returns whether the spec has a newer version than the status.
pub(super) fn is_superseded(run: &Run<'_>) -> bool {
    known(run).is_some_and(|known| known < run.spec.version)
}

/// Returns the version of the status. The first status write may be delayed. Until then, the version of an existing Job
/// counts.
fn known(run: &Run<'_>) -> Option<i64> {
    run.status
        .version
        .or_else(|| find_unrecorded_job(run).and_then(|job| job.version))
}

fn find_unrecorded_job<'a>(run: &Run<'a>) -> Option<&'a JobView> {
    if run.has_ended() {
        return None;
    }
    run.jobs()
        .filter(|job| {
            job.version
                .is_some_and(|version| version < run.spec.version)
        })
        .max_by_key(|job| job.version)
}

/// Adds the version of the status to the history, with its evidence.
pub(super) fn add_past(run: &Run<'_>, history: &mut Vec<Version>) {
    history.push(past(run));
    let surplus = history.len().saturating_sub(HISTORY);
    history.drain(..surplus);
}

/// Resets the status to the new version's start.
///
/// This only writes the status, with the longer history. One write does both, so it happens once, however often it is
/// decided. Later reconciliations delete the old version's Jobs, when their evidence is stored.
pub(super) fn supersede(run: &Run<'_>) -> RunDecision {
    let status = RunStatus {
        phase: run.status.phase,
        version: Some(run.spec.version),
        attempt: AttemptStatus::default(),
        progress: CommonStatus {
            deadline_at: Some(Time(run.after(limit(run)))),
            ..run.status.progress.clone()
        },
    };
    let message = format!(
        "version {} takes the place of version {}",
        run.spec.version,
        known(run).unwrap_or_default()
    );
    let verdict = Verdict::working(Reason::Progressing, message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(run.now)
}

/// Returns the limit of the wait for the first Job of a version. It leaves earlier Jobs time to stop. The deadline is stored
/// before the stop, because a Pod does not show when its limit was set, and the operator may be killed after that.
fn limit(run: &Run<'_>) -> Duration {
    let is_stop = run.jobs().any(|job| job.end.is_none());
    run.start_limit()
        .max(if is_stop { STOP_TIME } else { Duration::ZERO })
}

/// Returns the history entry for the version of the status.
fn past(run: &Run<'_>) -> Version {
    let status = &run.status;
    // An attempt that is in progress according to the status may already have ended.
    let unread = |job: &str| {
        let (reason, evidence) = unrecorded_result(run, job);
        let phase = if reason == Some(Reason::Succeeded) {
            RunPhase::Succeeded
        } else {
            run.phase()
        };
        let reason = reason.unwrap_or(Reason::Superseded);
        (phase, reason.name().to_owned(), evidence)
    };
    let (phase, reason, result) = match (run.has_ended(), run.stage()) {
        (true, _) => {
            let condition = status.progress.condition(condition::SUCCEEDED);
            let reason = condition.map_or(run.phase().name(), |known| known.reason.as_str());
            (run.phase(), reason.to_owned(), status.result.clone())
        }
        (false, Stage::InProgress(job)) => unread(job),
        (false, Stage::NotStarted) if status.version.is_none() => {
            unread(find_unrecorded_job(run).map_or("", |job| job.name.as_str()))
        }
        (false, Stage::NotStarted | Stage::Stopping(_) | Stage::RetryBackoff(_)) => (
            run.phase(),
            Reason::Superseded.name().to_owned(),
            status.result.clone(),
        ),
    };
    Version {
        context_version: known(run).unwrap_or_default(),
        phase: phase.name().to_owned(),
        reason,
        attempts: if status.version.is_some() {
            status.attempts
        } else {
            1
        },
        disruptions: status.disruptions,
        finished_at: status.finished_at.clone().unwrap_or_else(|| run.stamp()),
        result,
    }
}
