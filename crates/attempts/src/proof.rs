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

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{Run, RunDecision, START_WAIT, finish::finish_run, start, time};

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
            let mut waiting = unverified(run, &name, verdict).requeue_at(run.after(WAIT));
            waiting.effects = effects;
            waiting
        }
        (Err(_), false) => decision,
        (Err(verdict), true) => {
            let waiting = unverified(run, &name, verdict);
            match waiting.effects_deadline {
                Some(deadline) if deadline <= run.now => refuted(run, decision, waiting.verdict),
                Some(_) | None => waiting,
            }
        }
    }
}

/// Waits for the verification of a success, up to a time that is counted from the end of the Job.
fn unverified(run: &Run<'_>, job: &str, verdict: Verdict) -> RunDecision {
    let ended = run.job(job).and_then(|job| job.end.as_ref()?.at());
    let ended = ended.filter(|ended| *ended <= run.now);
    let deadline = ended
        .map(|ended| time::after(ended, START_WAIT))
        .or(run.deadline())
        .unwrap_or_else(|| run.after(START_WAIT));
    let mut status = run.next();
    status.progress.deadline_at = Some(Time(deadline));
    let waiting = Decision::status_only(status, run.phase(), verdict).effects_until(deadline);
    if run.now < deadline {
        waiting.requeue_at(deadline)
    } else {
        waiting
    }
}

/// Fails a run whose success could not be verified in time. The evidence stays.
fn refuted(run: &Run<'_>, success: RunDecision, verdict: Verdict) -> RunDecision {
    let mut status = success.status;
    if let Some(result) = &mut status.result {
        result.reason = Some(verdict.reason.name().to_owned());
        result.message = Some(verdict.message.clone());
    }
    let verdict = Verdict::failed(verdict.reason, verdict.message);
    finish_run(run, status, RunPhase::Failed, verdict)
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
