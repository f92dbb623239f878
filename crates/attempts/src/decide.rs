//! The decision about the attempts of a run.

use api::decide::ReconcileError;

use crate::{Run, RunDecision, Stage, confirm, delete, finish, in_progress, outcome, proof, start};

/// Decides about a run that is being deleted, that has ended, or that ended before it was restored without its status.
pub fn conclude(run: &Run<'_>) -> Option<RunDecision> {
    if let Some(since) = &run.spec.metadata.deletion_timestamp {
        return Some(confirm::first(run, delete::decide(run, since.0)));
    }
    outcome::ended(run).or_else(|| outcome::restored(run))
}

/// Decides about any other run.
pub fn advance(run: &Run<'_>) -> RunDecision {
    let decision = match run.fault {
        Some(fault) => faulted(run, fault),
        None => match run.stage() {
            Stage::NotStarted => start::start(run),
            Stage::InProgress(job) => in_progress::decide(run, job),
            Stage::Stopping(result) => finish::stop_job(run, result),
            Stage::RetryBackoff(result) => finish::retry_or_wait(run, result),
        },
    };
    checked(run, decision)
}

/// Returns the decision with the kind's conditions, the comparisons and the live reads that must precede it.
pub fn checked(run: &Run<'_>, decision: RunDecision) -> RunDecision {
    confirm::first(run, with_conditions(run, proof::first(run, decision)))
}

/// Returns the decision with the conditions that only the kind has.
pub fn with_conditions(run: &Run<'_>, decision: RunDecision) -> RunDecision {
    let conditions = run.work.conditions(&decision);
    RunDecision {
        conditions,
        ..decision
    }
}

/// Decides after an effect of this reconciliation failed permanently.
fn faulted(run: &Run<'_>, fault: &ReconcileError) -> RunDecision {
    match run.stage() {
        Stage::NotStarted | Stage::RetryBackoff(_) => match start::find_unrecorded_job(run) {
            Some((begun, job)) => finish::abort_attempt(&begun, job, fault.reason, &fault.message),
            None => finish::fail_run(run, fault.reason, &fault.message),
        },
        Stage::InProgress(job) => match run.job(job) {
            Some(job) => finish::abort_attempt(run, job, fault.reason, &fault.message),
            None => finish::fail_run(run, fault.reason, &fault.message),
        },
        Stage::Stopping(result) => finish::stop_timed_out(run, result, &fault.message),
    }
}
