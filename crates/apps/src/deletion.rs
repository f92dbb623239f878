//! Deletes a ManagedApp: waits for an active request, recovers lost locks, and deletes its snapshots if the spec says so.
//!
//! # Guarantees
//! - No request and no snapshot keeps a ManagedApp with the annotation `orchestrator.io/force-delete`. A request continues
//!   with its frozen plan.
//! - A snapshot with the annotation `orchestrator.io/preserve` is never deleted.

use api::{
    Reason, Verdict,
    apps::{AppPhase, ManagedApp, ManagedAppStatus, SnapshotDeletion},
    decide::{Decision, Effect, Input},
    names, time,
};

use crate::{
    operations::{self, Operations},
    upgrade::storage::SnapshotView,
    world::AppWorld,
};

/// Maximum age of a status. Events trigger earlier reconciliations; this limit holds if one is lost.
const MAX_AGE: std::time::Duration = std::time::Duration::from_secs(30);

/// Decides about a ManagedApp in deletion.
pub(crate) fn decide(input: &Input<'_, ManagedApp, AppWorld>) -> Decision<ManagedAppStatus> {
    let nothing = Operations::default();
    let operations = input.world.operations.as_ref().unwrap_or(&nothing);
    let mut status = input.object.status.clone().unwrap_or_default();
    status.active_operation = operations::active(operations);
    let mut decision = step(input, operations, status);
    // The deadline counts from the deletion and not from the first reconciliation after it.
    let since = input.object.metadata.deletion_timestamp.as_ref();
    decision.phase_since = since.map(|time| time.0);
    decision.requeue_at(time::after(input.now, MAX_AGE))
}

fn step(
    input: &Input<'_, ManagedApp, AppWorld>,
    operations: &Operations,
    status: ManagedAppStatus,
) -> Decision<ManagedAppStatus> {
    if is_forced(input.object) {
        let message = format!(
            "annotation '{}': nothing is waited for",
            names::FORCE_DELETE
        );
        let verdict = Verdict::working(Reason::Deleting, message);
        return Decision::status_only(status, AppPhase::Terminating, verdict).remove_finalizer();
    }
    if let Some(active) = &status.active_operation {
        let message = format!(
            "waits until {} '{}' has ended, which is in phase {}",
            active.kind, active.name, active.phase
        );
        return blocked(input, status, &message);
    }
    let released = Decision::status_only(
        status.clone(),
        AppPhase::Terminating,
        Verdict::working(Reason::Deleting, "nothing is left to delete"),
    );
    if let Some(recovered) = operations::recovered(input, operations, &released) {
        return recovered;
    }
    if input.object.spec.snapshots_on_delete == SnapshotDeletion::Retain {
        return released.remove_finalizer();
    }
    if let Some(why) = &operations.unknown_snapshots {
        return blocked(
            input,
            status,
            &format!("the snapshots are not known: {why}"),
        );
    }
    match remaining(operations) {
        Remaining::Nothing => released.remove_finalizer(),
        Remaining::Waits(message) => blocked(input, status, &message),
        Remaining::Deletes(effects) => {
            let message = match input.fault {
                Some(fault) => format!("a snapshot cannot be deleted: {}", fault.message),
                None => format!("deletes {} snapshots", effects.len()),
            };
            let decision = blocked(input, status, &message);
            if input.fault.is_some() {
                return decision;
            }
            effects.into_iter().fold(decision, Decision::with)
        }
    }
}

fn is_forced(app: &ManagedApp) -> bool {
    let annotations = app.metadata.annotations.as_ref();
    let value = annotations.and_then(|all| all.get(names::FORCE_DELETE));
    value.is_some_and(|value| value == "true")
}

/// Reports what the deletion waits for. After the deadline, it is the blocker, and the operator continues.
fn blocked(
    input: &Input<'_, ManagedApp, AppWorld>,
    status: ManagedAppStatus,
    message: &str,
) -> Decision<ManagedAppStatus> {
    let is_late = input.overdue && status.phase == Some(AppPhase::Terminating);
    let verdict = if is_late {
        Verdict::stalled(
            Reason::DeletionBlocked,
            format!(
                "the deletion takes too long: {message}. To release the ManagedApp without waiting, set its annotation '{}: \"true\"'",
                names::FORCE_DELETE
            ),
        )
    } else {
        Verdict::working(Reason::Deleting, message)
    };
    Decision::status_only(status, AppPhase::Terminating, verdict)
}

/// The snapshots that a deletion still has to delete.
enum Remaining {
    Nothing,
    Deletes(Vec<Effect>),
    Waits(String),
}

fn remaining(operations: &Operations) -> Remaining {
    let sets = operations.sets.iter().filter(|set| !set.is_preserved);
    let all: Vec<&SnapshotView> = sets.flat_map(|set| set.snapshots.iter()).collect();
    let is_restoring = |one: &SnapshotView| {
        let name = (one.namespace.clone(), one.name.clone());
        operations.restoring.contains(&name)
    };
    let deletions: Vec<Effect> = all
        .iter()
        .filter(|one| !one.is_deleting && !is_restoring(one))
        .map(|one| Effect::Delete(one.target()).optional())
        .collect();
    if !deletions.is_empty() {
        return Remaining::Deletes(deletions);
    }
    let Some(first) = all.first() else {
        return Remaining::Nothing;
    };
    let why = if is_restoring(first) {
        "is restored to a claim that is not bound yet".to_owned()
    } else if first.finalizers.is_empty() {
        "is being deleted".to_owned()
    } else {
        format!(
            "is being deleted and has the finalizers '{}'",
            first.finalizers.join("', '")
        )
    };
    Remaining::Waits(format!("waits until {} is deleted: it {why}", first.id()))
}

#[cfg(test)]
mod tests;
