//! A finished run stays unchanged. An annotation stores its outcome, so that a restore without status does not run it
//! again.

use api::{
    Phase, Reason, Verdict,
    decide::{Decision, FinalizerAction},
    messages, names,
    tasks::RunPhase,
};
use serde::{Deserialize, Serialize};

use crate::{Run, RunDecision, RunStatus, cleanup};

/// Content of the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Outcome {
    version: i64,
    outcome: String,
    reason: String,
    uid: String,
}

/// Decides about a run that ended and has no newer version. Nothing changes any more, even if its children changed.
pub(crate) fn ended(run: &Run<'_>) -> Option<RunDecision> {
    let is_superseded = run
        .status
        .version
        .is_some_and(|known| known < run.spec.version);
    if !run.has_ended() || is_superseded {
        return None;
    }
    let mut decision = as_it_is(run);
    cleanup::add(run, &mut decision);
    Some(decision)
}

/// Returns the decision that changes nothing about a run that ended.
pub(crate) fn as_it_is(run: &Run<'_>) -> RunDecision {
    let phase = run.phase();
    let (reason, message) = run.stored_message().unwrap_or((
        Reason::InternalError,
        run.status.progress.message.clone().unwrap_or_default(),
    ));
    let verdict = match phase {
        RunPhase::Succeeded => Verdict::succeeded(message),
        RunPhase::Failed | RunPhase::Pending | RunPhase::Running => {
            Verdict::failed(reason, message)
        }
    };
    release(run, run.next(), phase, verdict)
}

/// Returns the decision that ends a run. It removes the finalizer in the same write that stores the outcome.
pub(crate) fn release(
    run: &Run<'_>,
    status: RunStatus,
    phase: RunPhase,
    verdict: Verdict,
) -> RunDecision {
    let outcome = Outcome {
        version: status.version.unwrap_or(run.spec.version),
        outcome: phase.name().to_owned(),
        reason: verdict.reason.name().to_owned(),
        uid: run.uid.to_owned(),
    };
    let annotations = match serde_json::to_string(&outcome) {
        Ok(text) => [(names::OUTCOME.to_owned(), text)].into(),
        Err(_) => std::collections::BTreeMap::new(),
    };
    let mut decision = Decision::status_only(status, phase, verdict);
    decision.finalizer = FinalizerAction::Remove { annotations };
    decision
}

/// Decides about an object without status, if its annotation reports that this version has already ended.
pub(crate) fn restored(run: &Run<'_>) -> Option<RunDecision> {
    // Without a version, the status can hold at most an error of an earlier reconciliation.
    if run.status.version.is_some() {
        return None;
    }
    let text = run.annotation(names::OUTCOME)?;
    // An annotation that cannot be parsed is ignored: the run starts as if the annotation did not exist.
    let Ok(outcome) = serde_json::from_str::<Outcome>(text) else {
        return None;
    };
    if outcome.version < run.spec.version {
        return None;
    }
    let phase = match outcome.outcome.as_str() {
        "Succeeded" => RunPhase::Succeeded,
        "Failed" => RunPhase::Failed,
        _ => return None,
    };
    let message = messages::restored(&format!(
        "version {} ended as {} ({}) before, as the annotation '{}' says; nothing was started. {}",
        outcome.version,
        outcome.outcome,
        outcome.reason,
        names::OUTCOME,
        run.spec.run_again
    ));
    let verdict = match (phase, Reason::from_name(&outcome.reason)) {
        (RunPhase::Succeeded, _) => Verdict::succeeded(message),
        (_, Some(reason)) if reason != Reason::Succeeded => Verdict::failed(reason, message),
        (_, Some(_) | None) => Verdict::failed(Reason::EvidenceLost, message),
    };
    let mut status = run.status.clone();
    status.version = status.version.max(Some(outcome.version));
    Some(release(run, status, phase, verdict))
}
