//! The decision about a run.

use api::{
    Reason,
    decide::{ConditionUpdate, Input, ReconcileError},
    tasks::{TaskRun, condition},
};

use super::{
    RunDecision, RunWorld, confirm, delete, finish, in_progress, outcome, proof, start, version,
    world::{Run, Stage},
};

/// Decides the effects for a run, and its status.
///
/// # Guarantees
/// - Effects change children only, never the run's own spec.
/// - A run becomes `Succeeded` only if the world contains the evidence. For an object that was
///   restored without its status, its own annotation is the evidence.
/// - Nothing is created for a run that is being deleted or has ended, or while a Job or Pod of it
///   may still run.
/// - The stored status contains the evidence before an effect deletes the object that carries it.
/// - Only a success is concluded from a cache alone. Any other end, and the release of a run that
///   did not end, needs a live read.
/// - The same input gives the same decision. Every wait has a time at which it ends.
#[must_use]
pub fn decide(input: &Input<'_, TaskRun, RunWorld>) -> RunDecision {
    let run = Run::of_task(input);
    if let Some(since) = &input.object.metadata.deletion_timestamp {
        return confirm::first(&run, delete::decide(&run, since.0));
    }
    if let Some(ended) = outcome::ended(&run).or_else(|| outcome::restored(&run)) {
        return ended;
    }
    advance(&run)
}

/// Decides about a run that is neither being deleted nor over.
pub(super) fn advance(run: &Run<'_>) -> RunDecision {
    let decision = if version::is_superseded(run) {
        version::supersede(run)
    } else if let Some(fault) = run.fault {
        faulted(run, fault)
    } else {
        match run.stage() {
            Stage::NotStarted => start::start(run),
            Stage::InProgress { job } => in_progress::decide(run, job),
            Stage::Stopping { result } => finish::stop_job(run, result),
            Stage::RetryBackoff { result } => finish::retry_or_wait(run, result),
        }
    };
    confirm::first(run, with_conditions(proof::first(run, decision)))
}

/// Decides after an effect of this reconciliation failed permanently.
fn faulted(run: &Run<'_>, fault: &ReconcileError) -> RunDecision {
    match run.stage() {
        Stage::NotStarted | Stage::RetryBackoff { .. } => match start::find_unrecorded_job(run) {
            Some((begun, job)) => finish::abort_attempt(&begun, job, fault.reason, &fault.message),
            None => finish::fail_run(run, fault.reason, &fault.message),
        },
        Stage::InProgress { job } => match run.job(job) {
            Some(job) => finish::abort_attempt(run, job, fault.reason, &fault.message),
            None => finish::fail_run(run, fault.reason, &fault.message),
        },
        Stage::Stopping { result } => finish::stop_timed_out(run, result, &fault.message),
    }
}

/// Adds the run's own conditions, derived from the object names in its status.
pub(super) fn with_conditions(mut decision: RunDecision) -> RunDecision {
    let status = &decision.status;
    let update = |kind: &'static str, what: &str, name: &Option<String>| match name {
        Some(name) => ConditionUpdate {
            kind,
            value: Some(true),
            reason: Reason::Created,
            message: format!("{what} '{name}' was created"),
        },
        None => ConditionUpdate {
            kind,
            value: Some(false),
            reason: decision.verdict.reason,
            message: format!("the {what} of this version was not created"),
        },
    };
    decision.conditions = vec![
        update(
            condition::CONTEXT_READY,
            "ConfigMap",
            &status.config_map_name,
        ),
        update(condition::JOB_CREATED, "Job", &status.job_name),
    ];
    decision
}
