//! The decision about a run.

use api::{
    Reason,
    decide::{Fact, Fault, Input},
    tasks::{TaskRun, TaskRunStatus, condition},
};

use super::{
    RunDecision, RunWorld, conclude, delete, going, outcome, start, version,
    world::{Run, Stage},
};

/// What to do about a run, and what to say of it.
///
/// # Guarantees
/// - Effects touch children only, never the run's own spec.
/// - `Succeeded` only with the evidence for it in the world (or, for an object that was restored
///   without its status, in its own annotation).
/// - Nothing is created while the run is being deleted, has ended, or has a Job or Pod left that
///   may still run.
/// - Evidence is in the stored status before an effect deletes what carries it.
/// - The same input gives the same decision, and every wait has a time at which it ends.
#[must_use]
pub fn decide(input: &Input<'_, TaskRun, RunWorld>) -> RunDecision {
    let run = Run::of_task(input);
    if let Some(since) = &input.object.metadata.deletion_timestamp {
        return delete::decide(&run, since.0);
    }
    if let Some(ended) = outcome::ended(&run).or_else(|| outcome::restored(&run)) {
        return ended;
    }
    course(&run)
}

/// The course of a run that is neither being deleted nor over.
pub(super) fn course(run: &Run<'_>) -> RunDecision {
    let decision = if version::is_superseded(run) {
        version::supersede(run)
    } else if let Some(fault) = run.fault {
        faulted(run, fault)
    } else {
        match run.stage() {
            Stage::Before => start::start(run),
            Stage::Going { job } => going::decide(run, job),
            Stage::Stopping { result } => conclude::stop(run, result),
            Stage::Between { result } => conclude::between(run, result),
        }
    };
    with_facts(decision)
}

/// An effect of this pass failed for good.
fn faulted(run: &Run<'_>, fault: &Fault) -> RunDecision {
    match run.stage() {
        Stage::Before | Stage::Between { .. } => match start::unrecorded(run) {
            Some((begun, job)) => conclude::give_up(&begun, job, fault.reason, &fault.message),
            None => conclude::fail(run, fault.reason, &fault.message),
        },
        Stage::Going { job } => match run.job(job) {
            Some(job) => conclude::give_up(run, job, fault.reason, &fault.message),
            None => conclude::fail(run, fault.reason, &fault.message),
        },
        Stage::Stopping { result } => conclude::unstopped(run, result, &fault.message),
    }
}

/// The conditions of a run's own, from what its status names.
pub(super) fn with_facts(mut decision: RunDecision) -> RunDecision {
    let TaskRunStatus {
        config_map_name,
        job_name,
        ..
    } = &decision.status;
    let fact = |kind: &'static str, what: &str, name: &Option<String>| match name {
        Some(name) => Fact {
            kind,
            value: Some(true),
            reason: Reason::Created,
            message: format!("{what} '{name}' was created"),
        },
        None => Fact {
            kind,
            value: Some(false),
            reason: decision.verdict.reason,
            message: format!("the {what} of this version was not created"),
        },
    };
    decision.conditions = vec![
        fact(condition::CONTEXT_READY, "ConfigMap", config_map_name),
        fact(condition::JOB_CREATED, "Job", job_name),
    ];
    decision
}
