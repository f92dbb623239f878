//! The decision about the attempts of a run.

use api::{
    decide::{ErrorClass, ReconcileError},
    status::{MAX_MESSAGE_CHARS, bounded},
};

use crate::{
    Run, RunDecision, Stage, cleanup, confirm, delete, finish, in_progress, outcome, proof, start,
    stop,
};

/// Decides about a run that is being deleted, that has ended, or that ended before it was restored without its status.
pub fn conclude(run: &Run<'_>) -> Option<RunDecision> {
    if let Some(since) = &run.spec.metadata.deletion_timestamp {
        return Some(confirm::first(run, delete::decide(run, since.0)));
    }
    outcome::ended(run).or_else(|| outcome::restored(run))
}

/// Decides about any other run.
pub fn advance(run: &Run<'_>) -> RunDecision {
    let refusal = run.fault.filter(|_| run.refused);
    let decision = match run.fault.filter(|_| !run.refused) {
        Some(fault) => faulted(run, fault),
        None => match run.stage() {
            Stage::NotStarted => start::start(run),
            Stage::InProgress(job) => in_progress::decide(run, job),
            Stage::Stopping(result) => finish::stop_job(run, result),
            Stage::RetryBackoff(result) => finish::retry_or_wait(run, result),
        },
    };
    let mut decision = checked(run, decision);
    match refusal {
        Some(refusal) => without_optional(run, decision, refusal),
        None => {
            cleanup::add_past(run, &mut decision);
            decision
        }
    }
}

/// Leaves out the optional effects, one of which failed, reports that, and tries them again later. The attempt goes on:
/// no stop or deletion of something older may harm it.
fn without_optional(
    run: &Run<'_>,
    mut decision: RunDecision,
    refusal: &ReconcileError,
) -> RunDecision {
    decision.effects.retain(|effect| !effect.is_optional());
    if decision.is_end() {
        return decision;
    }
    let message = bounded(&decision.verdict.message, MAX_MESSAGE_CHARS / 2);
    let message = format!("{message}; {}", refusal.message);
    decision.verdict.message = bounded(&message, MAX_MESSAGE_CHARS);
    decision.requeue_at(run.after(stop::RETRY))
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

/// Decides after an effect of this reconciliation failed permanently, or after its deadline.
fn faulted(run: &Run<'_>, fault: &ReconcileError) -> RunDecision {
    match run.stage() {
        Stage::NotStarted | Stage::RetryBackoff(_) => match start::find_unrecorded_job(run) {
            Some((begun, job)) if fault.class == ErrorClass::Failed => {
                finish::abort_attempt(&begun, job, fault.reason, &fault.message)
            }
            // The response to the creation was lost, so the attempt has started.
            Some(_) => start::start(run),
            None => finish::not_started(run, fault.reason, &fault.message),
        },
        Stage::InProgress(job) => match run.job(job) {
            // Nothing is left to be stopped, and another attempt could do the work twice.
            Some(job) if job.end.is_some() && fault.class != ErrorClass::Failed => {
                finish::fail_run(run, fault.reason, &fault.message)
            }
            Some(job) => finish::abort_attempt(run, job, fault.reason, &fault.message),
            None => finish::fail_run(run, fault.reason, &fault.message),
        },
        Stage::Stopping(result) => finish::stop_timed_out(run, result, &fault.message),
    }
}
