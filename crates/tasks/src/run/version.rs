//! Transition of the status to a newer version of the context.

use api::{
    CommonStatus, Phase, Reason, Verdict,
    decide::Decision,
    status::condition,
    tasks::{AttemptStatus, Evidence, RunPhase, TaskRunStatus, Version},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    RunDecision, START_WAIT,
    attempt::{self, Attempt},
    attempt_result,
    world::{Run, Stage},
};
use crate::view::JobView;

/// Maximum number of versions in the history of a status.
const HISTORY: usize = 10;

/// Returns whether the spec has a newer version than the status.
pub(super) fn is_superseded(run: &Run<'_>) -> bool {
    known(run).is_some_and(|known| known < run.version())
}

/// Returns the version of the status. The first status write may be delayed. Until then, the
/// version of an existing Job counts.
fn known(run: &Run<'_>) -> Option<i64> {
    run.status
        .context_version
        .or_else(|| find_unrecorded_job(run).and_then(|job| job.version))
}

fn find_unrecorded_job<'a>(run: &Run<'a>) -> Option<&'a JobView> {
    if run.has_ended() {
        return None;
    }
    run.jobs()
        .filter(|job| job.version.is_some_and(|version| version < run.version()))
        .max_by_key(|job| job.version)
}

/// Moves the old version's evidence to the history, and resets the status to the new version's
/// start.
///
/// This only writes the status. One write does both, so it happens once, however often it is
/// decided. Later reconciliations delete the old version's Jobs, when their evidence is stored.
pub(super) fn supersede(run: &Run<'_>) -> RunDecision {
    let mut history = run.status.history.clone();
    history.push(past(run));
    let surplus = history.len().saturating_sub(HISTORY);
    history.drain(..surplus);
    let status = TaskRunStatus {
        phase: run.status.phase,
        context_version: Some(run.version()),
        attempt: AttemptStatus::default(),
        history,
        progress: CommonStatus {
            deadline_at: Some(Time(run.after(START_WAIT))),
            ..run.status.progress.clone()
        },
    };
    let message = format!(
        "version {} takes the place of version {}",
        run.version(),
        known(run).unwrap_or_default()
    );
    let verdict = Verdict::working(Reason::Progressing, message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(run.now)
}

/// Returns the history entry for the version of the status.
fn past(run: &Run<'_>) -> Version {
    let status = &run.status;
    let (phase, reason, result) = match (run.has_ended(), run.stage()) {
        (true, _) => {
            let condition = status.progress.condition(condition::SUCCEEDED);
            let reason = condition.map_or(run.phase().name(), |known| known.reason.as_str());
            (run.phase(), reason.to_owned(), status.result.clone())
        }
        (false, Stage::InProgress { job }) => unread(run, job),
        (false, Stage::NotStarted) if status.context_version.is_none() => {
            let job = find_unrecorded_job(run).map_or("", |job| job.name.as_str());
            unread(run, job)
        }
        (false, Stage::NotStarted | Stage::Stopping { .. } | Stage::RetryBackoff { .. }) => (
            run.phase(),
            Reason::Superseded.name().to_owned(),
            status.result.clone(),
        ),
    };
    Version {
        context_version: known(run).unwrap_or_default(),
        phase: phase.name().to_owned(),
        reason,
        attempts: if status.context_version.is_some() {
            status.attempts
        } else {
            1
        },
        disruptions: status.disruptions,
        finished_at: status.finished_at.clone().unwrap_or_else(|| run.stamp()),
        result,
    }
}

/// Reads an attempt that is in progress according to the status. Its end may already be visible.
fn unread(run: &Run<'_>, job: &str) -> (RunPhase, String, Option<Evidence>) {
    let superseded = Reason::Superseded.name().to_owned();
    let Some(job) = run.job(job) else {
        return (run.phase(), superseded, None);
    };
    match attempt::read(run, job) {
        Attempt::Ended(attempt_result) => {
            let phase = if attempt_result.reason == Reason::Succeeded {
                RunPhase::Succeeded
            } else {
                run.phase()
            };
            (
                phase,
                attempt_result.reason.name().to_owned(),
                Some(attempt_result.evidence),
            )
        }
        Attempt::Waiting { .. }
        | Attempt::Running { .. }
        | Attempt::AwaitingJobStatus { .. }
        | Attempt::AwaitingPodStatus { .. } => {
            let evidence = run
                .newest_pod(job)
                .map(|pod| attempt_result::evidence(Some(pod)));
            (run.phase(), superseded, evidence)
        }
    }
}
