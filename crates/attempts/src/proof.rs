//! Verification that a Job belongs to its run.
//!
//! Any user with permission to create Jobs can give one the labels, the owner and the name of a run's Job. This can
//! happen before the operator creates it. A process knows the Jobs that it created itself. A status records the UID of
//! a Job after its container ran. Any other Job is compared with the Job that the run asks for, before its success
//! counts.

use std::time::Duration;

use api::{
    Reason, Verdict,
    decide::{Decision, Effect, FinalizerAction},
    tasks::RunPhase,
};

use crate::{Run, RunDecision, start};

/// Delay between a comparison and the next decision. It is not zero: an object that a silent watch still shows may no
/// longer exist.
const WAIT: Duration = Duration::from_secs(1);

/// Returns the decision, with the comparison of a Job that is not verified to be the run's. A success waits for it.
pub(crate) fn first(run: &Run<'_>, decision: RunDecision) -> RunDecision {
    let Some(name) = unproven(run, &decision) else {
        return decision;
    };
    let is_success = decision.phase == RunPhase::Succeeded;
    // A decision that only writes the status is repeated at once.
    let is_record = decision
        .requeue_at
        .is_some_and(|requeue_at| requeue_at <= run.now);
    if !is_success
        && (decision.is_end() || decision.finalizer != FinalizerAction::Keep || is_record)
    {
        return decision;
    }
    match (comparison(run, &decision, &name), is_success) {
        (Ok(mut effects), false) => {
            effects.retain(|effect| created(effect).is_none_or(|name| !creates(&decision, name)));
            effects.extend(decision.effects);
            Decision {
                effects,
                ..decision
            }
        }
        (Ok(effects), true) => {
            let message = format!("comparing Job '{name}' with what this run asks for");
            let verdict = Verdict::working(Reason::Progressing, message);
            let mut decision =
                Decision::status_only(run.next(), run.phase(), verdict).requeue_at(run.after(WAIT));
            decision.effects = effects;
            decision
        }
        (Err(_), false) => decision,
        (Err(verdict), true) => Decision::status_only(run.next(), run.phase(), verdict),
    }
}

fn creates(decision: &RunDecision, name: &str) -> bool {
    let mut effects = decision.effects.iter();
    effects.any(|effect| created(effect) == Some(name))
}

fn created(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::Ensure(manifest) => Some(&manifest.name),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    }
}

/// Returns the name of the Job that a decision depends on, if only the Job itself claims to be the run's.
fn unproven(run: &Run<'_>, decision: &RunDecision) -> Option<String> {
    let name = decision.status.job_name.as_ref()?;
    let job = run.job(name).filter(|job| !run.is_proven(job))?;
    Some(job.name.clone())
}

/// Returns the effects that read the attempt's children and compare them with the expected ones.
fn comparison(run: &Run<'_>, decision: &RunDecision, name: &str) -> Result<Vec<Effect>, Verdict> {
    let effects = start::missing(run, decision.status.attempts, name)?;
    Ok(effects.into_iter().map(compared).collect())
}

fn compared(effect: Effect) -> Effect {
    match effect {
        Effect::Ensure(manifest) => Effect::Ensure(Box::new(manifest.existing())),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => effect,
    }
}
