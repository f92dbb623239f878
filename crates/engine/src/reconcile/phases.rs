//! The deadline and the undo that the phase table of a kind declares.

use api::{
    Phase, Status,
    deadline::PhaseInput,
    decide::{Decision, FinalizerAction, ReconcileError},
    names,
    phase::{Deadline, Undo},
};
use kube::{Resource, core::ObjectMeta};

use crate::kind::Kind;

/// The phases of a kind.
type PhaseOf<K> = <<K as Kind>::Status as Status>::Phase;

/// Returns the facts that the deadline of an object's phase depends on.
pub(super) fn phase_input<'a, K: Kind>(
    object: &'a K::Object,
    world: &K::World,
) -> PhaseInput<'a, PhaseOf<K>> {
    let created = object.meta().creation_timestamp.as_ref();
    PhaseInput {
        spec: K::phase_spec(object),
        created: created.map(|time| time.0),
        progress: K::phase_progress(world),
    }
}

/// Rejects a decision that ignores the deadline or the undo of the stored phase.
pub(super) fn check_phase<K: Kind>(
    meta: &ObjectMeta,
    stored: &K::Status,
    decision: &Decision<K::Status>,
    overdue: bool,
) -> Result<(), ReconcileError> {
    let Some((phase, row)) = stored.phase().and_then(|phase| Some((phase, phase.row()?))) else {
        return Ok(());
    };
    let is_deleting = meta.deletion_timestamp.is_some();
    let is_another_run = decision.status.epoch() > stored.epoch();
    let is_staying = phase == decision.phase && !is_another_run && !is_deleting;
    // A phase with several waits begins the next wait.
    let is_one_wait = !matches!(row.deadline, Deadline::Decided { .. });
    if let Some(next) = row.deadline.next()
        && overdue
        && is_one_wait
        && is_staying
        && next != phase
    {
        return Err(ReconcileError::bug(format!(
            "a decision to stay in {} after its deadline was refused: the phase table leads to {}",
            phase.name(),
            next.name()
        )));
    }
    let is_forced = || {
        let annotations = meta.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(names::FORCE_DELETE));
        value.is_some_and(|value| value == "true")
    };
    if let Undo::Phase(undo) = row.undo
        && is_deleting
        && matches!(decision.finalizer, FinalizerAction::Remove { .. })
        && !is_forced()
    {
        return Err(ReconcileError::bug(format!(
            "a decision to release the object in {} was refused: {} has to undo it first",
            phase.name(),
            undo.name()
        )));
    }
    Ok(())
}
