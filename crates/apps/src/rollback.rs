//! Decides about RollbackRequests: restores snapshots to new volumes, and gives the claims of an application these volumes.
//!
//! # Guarantees
//! - New volumes exist, and are not empty, before anything is deleted.
//! - Nothing is deleted before Git has the version from before: [`swap`] requires the stored commit.
//! - The replaced volumes are retained.

pub mod automatic;
pub mod available;
mod phases;
mod plan;
pub mod restore;
pub(crate) mod shared;
pub mod swap;
#[cfg(test)]
mod tests;
pub mod volume;
pub mod world;

use api::{
    apps::{RollbackPhase, RollbackPlan, RollbackRequest, RollbackRequestStatus},
    decide::{Decision, Input},
};

use self::{phases::Volumes, volume::VolumeObjects, world::RollbackWorld};

/// Finalizer of RollbackRequests.
pub const FINALIZER: &str = "rollbackrequests.orchestrator.io/finalizer";

/// A decision about a RollbackRequest.
pub type RollbackDecision = Decision<RollbackRequestStatus>;

/// Decides the effects for a request, and its status.
#[must_use]
pub fn decide(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    let stored = input.object.status.clone().unwrap_or_default();
    let is_deleting = input.object.metadata.deletion_timestamp.is_some();
    let phase = stored.phase.unwrap_or(RollbackPhase::Pending);
    let frozen = stored.plan.clone();
    let volumes = |plan: Option<RollbackPlan>| Volumes {
        input,
        stored: stored.clone(),
        plan: plan.unwrap_or_default(),
    };
    match phase {
        RollbackPhase::Pending if !is_deleting && plan::is_without_upgrade(input) => {
            plan::begin(&stored).requeue_at(input.now)
        }
        RollbackPhase::Plan if !is_deleting => plan::decide(input, &stored),
        RollbackPhase::VolumeRestore if !is_deleting => volumes(frozen).restore(),
        RollbackPhase::VolumeSwap => volumes(frozen).swap(),
        RollbackPhase::Undo => volumes(frozen).undo(),
        RollbackPhase::Pending
        | RollbackPhase::Plan
        | RollbackPhase::Suspend
        | RollbackPhase::ScaleDown
        | RollbackPhase::VolumeRestore
        | RollbackPhase::GitRevert
        | RollbackPhase::Reconcile
        | RollbackPhase::HealthCheck
        | RollbackPhase::Succeeded
        | RollbackPhase::Failed => shared::decide(input),
    }
}

/// Returns the progress of the restores: a text that changes with each step. Neither an error nor an Event is a step.
#[must_use]
pub fn progress(world: &RollbackWorld) -> Option<String> {
    let steps: Vec<String> = world.volumes.iter().map(VolumeObjects::progress).collect();
    (!steps.is_empty()).then(|| steps.join("\n"))
}

/// The RollbackRequest that owns an object.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}
