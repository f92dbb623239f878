//! Decides about RollbackRequests: restores snapshots to new volumes, and gives the claims of an application these volumes.
//!
//! # Guarantees
//! - New volumes exist, and are not empty, before anything is deleted.
//! - Nothing is deleted before Git has the version from before: [`swap`] requires the stored commit.
//! - The replaced volumes are retained.
//!
//! # Caveats
//! The kind is not installed by the chart, and it has no controller. Nothing makes its plan yet: a request without one
//! fails at the deadline of `Plan`.

pub mod automatic;
pub mod available;
mod phases;
pub mod restore;
mod shared;
pub mod swap;
#[cfg(test)]
mod tests;
pub mod volume;
pub mod world;

use api::{
    Reason, Verdict,
    apps::{RollbackPhase, RollbackPlan, RollbackRequest, RollbackRequestStatus},
    decide::{Decision, Input},
};

use self::{phases::Volumes, volume::VolumeObjects, world::RollbackWorld};

/// A decision about a RollbackRequest.
pub type RollbackDecision = Decision<RollbackRequestStatus>;

/// Decides the effects for a request, and its status.
#[must_use]
pub fn decide(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    let stored = input.object.status.clone().unwrap_or_default();
    let is_deleting = input.object.metadata.deletion_timestamp.is_some();
    let phase = stored.phase.unwrap_or(RollbackPhase::Pending);
    let plan = stored.plan.clone();
    let volumes = |plan: Option<RollbackPlan>| Volumes {
        input,
        stored: stored.clone(),
        plan: plan.unwrap_or_default(),
    };
    match phase {
        RollbackPhase::Plan if !is_deleting => without_plan(input, &stored),
        RollbackPhase::VolumeRestore if !is_deleting => volumes(plan).restore(),
        RollbackPhase::VolumeSwap => volumes(plan).swap(),
        RollbackPhase::Undo => volumes(plan).undo(),
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

/// Waits for a plan, or begins with the stored one.
fn without_plan(
    input: &Input<'_, RollbackRequest, RollbackWorld>,
    stored: &RollbackRequestStatus,
) -> RollbackDecision {
    if stored.plan.is_some() && input.object.spec.dry_run {
        let verdict = Verdict::succeeded("the plan is made. Nothing was changed");
        return Decision::status_only(stored.clone(), RollbackPhase::Succeeded, verdict)
            .remove_finalizer();
    }
    if stored.plan.is_some() {
        let verdict = Verdict::working(Reason::Suspending, "suspends Flux");
        return Decision::status_only(stored.clone(), RollbackPhase::Suspend, verdict)
            .requeue_at(input.now);
    }
    let name = &input.object.spec.upgrade_request_ref.name;
    let upgrade = input.world.upgrade.as_deref();
    if let Some(problem) = available::objection(name, upgrade, &input.world.snapshots) {
        let message = format!("{}. Nothing was changed", problem.message);
        let verdict = Verdict::failed(problem.reason, message);
        return Decision::status_only(stored.clone(), RollbackPhase::Failed, verdict)
            .remove_finalizer();
    }
    let message = "no plan was made";
    let (phase, verdict) = if input.overdue {
        let verdict = Verdict::failed(Reason::PlanTimeout, message);
        (RollbackPhase::Failed, verdict)
    } else {
        let verdict = Verdict::working(Reason::Planning, message);
        (RollbackPhase::Plan, verdict)
    };
    Decision::status_only(stored.clone(), phase, verdict).remove_finalizer()
}

/// The RollbackRequest that owns an object.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}
