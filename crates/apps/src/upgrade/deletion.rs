//! Decides about a request in deletion: nothing stays locked and nothing stays at zero (R35).

use api::{
    Reason, Verdict,
    apps::{UpgradeFailure, UpgradePhase},
    decide::Decision,
    names,
};

use super::{Request, UpgradeDecision, git_commit, reconcile, undo};
use crate::discover::Problem;

/// Decides about a request in deletion.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    match request.phase {
        // The cluster has no change of this request.
        UpgradePhase::Pending | UpgradePhase::Plan | UpgradePhase::Approval => release(request),
        UpgradePhase::Succeeded | UpgradePhase::Failed => request.ended(),
        UpgradePhase::Suspend
        | UpgradePhase::ScaleDown
        | UpgradePhase::Snapshot
        | UpgradePhase::GitCommit
        | UpgradePhase::Reconcile
        | UpgradePhase::HealthCheck
        | UpgradePhase::Undo
            if request.is_forced() =>
        {
            forced(request)
        }
        // Whether the commit exists decides between an undo and the completion of the upgrade.
        UpgradePhase::GitCommit => git_commit::decide(request),
        // The new version is applied in the right order. Nobody waits for its health.
        UpgradePhase::Reconcile => reconcile::decide(request),
        UpgradePhase::Suspend
        | UpgradePhase::ScaleDown
        | UpgradePhase::Snapshot
        | UpgradePhase::HealthCheck => request.fail(&deleting()),
        UpgradePhase::Undo => undo::decide(request),
    }
}

/// Returns the failure of a request that is deleted before its end.
pub(super) fn deleting() -> Problem {
    Problem::new(Reason::Deleting, "the request is being deleted")
}

fn release(request: &Request<'_>) -> UpgradeDecision {
    let verdict = Verdict::working(Reason::Deleting, "the request is being deleted");
    Decision::status_only(request.stored.clone(), request.phase, verdict).remove_finalizer()
}

/// Removes the finalizer without an undo. A status with the objects that are left comes first, so that an Event names
/// them.
fn forced(request: &Request<'_>) -> UpgradeDecision {
    let reason = Reason::ForceDeleted.name();
    let failure = request.stored.failure.as_ref();
    if failure.is_some_and(|failure| failure.reason == reason) {
        return release(request);
    }
    let left = undo::left(request);
    let left = if left.is_empty() {
        "nothing is left locked or at zero".to_owned()
    } else {
        format!("left as it is: {}", left.join("; "))
    };
    let message = format!("annotation '{}': {left}", names::FORCE_DELETE);
    let mut status = request.stored.clone();
    status.failure = Some(UpgradeFailure {
        phase: failure.map_or(request.phase, |failure| failure.phase),
        reason: reason.to_owned(),
        message: message.clone(),
    });
    let verdict = Verdict::stalled(Reason::ForceDeleted, message);
    Decision::status_only(status, UpgradePhase::Undo, verdict).requeue_at(request.now)
}
