//! The phases that a rollback shares with an upgrade. The decisions are those of [`crate::upgrade`], about the plan of the
//! rollback: its `from` and `to` are exchanged.

use api::{
    Reason, Verdict,
    apps::{
        ROLLBACK_REQUEST, RollbackFailure, RollbackPhase, RollbackRequest, RollbackRequestStatus,
        TargetVersion, UpgradeFailure, UpgradePhase, UpgradeRequest, UpgradeRequestSpec,
        UpgradeRequestStatus,
    },
    decide::{Effect, Input, LiveRead},
    names,
    pod::NamedRef,
};
use serde_json::json;

use super::{RollbackDecision, world::RollbackWorld};
use crate::{
    discover::Problem,
    upgrade::{self, UpgradeDecision, world::UpgradeWorld},
};

/// Decides about a request in a phase that upgrades have, too.
pub(super) fn decide(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    with_upgrade(input, upgrade::decide)
}

/// Stores the intent to push the version from before.
pub(super) fn begin_commit(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    with_upgrade(input, upgrade::begin_commit)
}

/// Returns why the application is not stopped any more.
pub(super) fn restarted(input: &Input<'_, RollbackRequest, RollbackWorld>) -> Option<Problem> {
    let object = as_upgrade(input.object, input.world);
    upgrade::restarted(&input_of(input, &object))
}

/// Returns the reads of all objects that the plan suspends and stops.
pub(super) fn reads(input: &Input<'_, RollbackRequest, RollbackWorld>) -> Vec<LiveRead> {
    let object = as_upgrade(input.object, input.world);
    upgrade::reads(&input_of(input, &object))
}

fn with_upgrade(
    input: &Input<'_, RollbackRequest, RollbackWorld>,
    decide: impl Fn(&Input<'_, UpgradeRequest, UpgradeWorld>) -> UpgradeDecision,
) -> RollbackDecision {
    let object = as_upgrade(input.object, input.world);
    let decision = decide(&input_of(input, &object));
    let stored = input.object.status.clone().unwrap_or_default();
    let now = stored.phase.unwrap_or(RollbackPhase::Pending);
    let phase = phase_after(now, decision.phase);
    let mut decision = decision.map_status(phase, |status| as_rollback(stored, status));
    decision.effects = decision.effects.into_iter().map(relabel).collect();
    if let Some((reason, message)) = entered(phase).filter(|_| now != phase) {
        decision.verdict = Verdict::working(reason, message);
    }
    let plan = decision.status.plan.as_ref();
    if now == RollbackPhase::HealthCheck
        && phase == RollbackPhase::Succeeded
        && let Some(plan) = plan
    {
        let change = &plan.change.chart;
        decision.verdict = Verdict::succeeded(format!(
            "returned from chart {} to {}, with the data from before upgrade '{}'",
            change.from, change.to, plan.upgrade
        ));
    }
    decision
}

/// Returns reason and message for the entry of a phase that an upgrade calls differently.
fn entered(phase: RollbackPhase) -> Option<(Reason, &'static str)> {
    match phase {
        RollbackPhase::VolumeRestore => Some((Reason::Restoring, "restores the snapshots")),
        RollbackPhase::GitRevert => Some((
            Reason::Reverting,
            "pushes the commit with the version from before",
        )),
        RollbackPhase::VolumeSwap => Some((Reason::Swapping, "swaps the volumes")),
        RollbackPhase::Pending
        | RollbackPhase::Plan
        | RollbackPhase::Suspend
        | RollbackPhase::ScaleDown
        | RollbackPhase::Reconcile
        | RollbackPhase::HealthCheck
        | RollbackPhase::Undo
        | RollbackPhase::Succeeded
        | RollbackPhase::Failed => None,
    }
}

fn input_of<'a>(
    input: &Input<'a, RollbackRequest, RollbackWorld>,
    object: &'a UpgradeRequest,
) -> Input<'a, UpgradeRequest, UpgradeWorld> {
    Input {
        object,
        world: &input.world.operation,
        now: input.now,
        fault: input.fault,
        refused: input.refused,
        confirmed: input.confirmed,
        overdue: input.overdue,
    }
}

/// Returns the request as the shared phases see it: an upgrade to the version from before.
fn as_upgrade(request: &RollbackRequest, world: &RollbackWorld) -> UpgradeRequest {
    let stored = request.status.clone().unwrap_or_default();
    let plan = stored.plan;
    let app = plan.as_ref().map(|plan| plan.app.clone());
    let app = app.or_else(|| Some(world.upgrade.as_ref()?.spec.managed_app_ref.name.clone()));
    let chart = plan.as_ref().map(|plan| plan.change.chart.to.clone());
    let spec = UpgradeRequestSpec {
        managed_app_ref: NamedRef {
            name: app.unwrap_or_default(),
        },
        target_version: TargetVersion {
            chart: chart.unwrap_or_default(),
        },
        allow_unhealthy: true,
        dry_run: request.spec.dry_run,
    };
    let status = UpgradeRequestStatus {
        phase: stored.phase.map(phase_before),
        plan: plan.map(|plan| plan.change),
        at_zero: stored.at_zero,
        workloads_stopped_at: stored.workloads_stopped_at,
        downtime: stored.downtime,
        snapshots: Vec::new(),
        restarted_at: None,
        intent: stored.intent,
        before_commit: stored.before_commit,
        push: stored.push,
        commit: stored.commit,
        replicas_restored_at: stored.replicas_restored_at,
        reconciled: stored.reconciled,
        healthy_since: stored.healthy_since,
        evidence: stored.evidence,
        failure: stored.failure.map(|failure| UpgradeFailure {
            phase: phase_before(failure.phase),
            reason: failure.reason,
            message: failure.message,
        }),
        undone: stored.undone,
        progress: stored.progress,
    };
    let mut upgrade = UpgradeRequest::new("", spec);
    upgrade.metadata = request.metadata.clone();
    upgrade.status = Some(status);
    upgrade
}

/// Returns the status after a shared phase. The plan and the restored volumes are those of the rollback.
fn as_rollback(
    stored: RollbackRequestStatus,
    status: UpgradeRequestStatus,
) -> RollbackRequestStatus {
    let now = stored.phase.unwrap_or(RollbackPhase::Pending);
    let before = stored.failure;
    let failure = status.failure.map(|failure| {
        // A stored failure keeps its phase, which an upgrade may not have.
        let stored_phase = before.as_ref().map(|before| before.phase);
        RollbackFailure {
            phase: stored_phase.unwrap_or(now),
            reason: failure.reason,
            message: failure.message,
        }
    });
    RollbackRequestStatus {
        phase: stored.phase,
        plan: stored.plan,
        at_zero: status.at_zero,
        workloads_stopped_at: status.workloads_stopped_at,
        downtime: status.downtime,
        restored: stored.restored,
        intent: status.intent,
        before_commit: status.before_commit,
        push: status.push,
        commit: status.commit,
        replicas_restored_at: status.replicas_restored_at,
        reconciled: status.reconciled,
        healthy_since: status.healthy_since,
        evidence: status.evidence,
        failure,
        undone: status.undone,
        progress: status.progress,
    }
}

/// Returns the phase of an upgrade with the same duties.
pub(super) fn phase_before(phase: RollbackPhase) -> UpgradePhase {
    match phase {
        RollbackPhase::Pending => UpgradePhase::Pending,
        RollbackPhase::Plan => UpgradePhase::Plan,
        RollbackPhase::Suspend => UpgradePhase::Suspend,
        RollbackPhase::ScaleDown => UpgradePhase::ScaleDown,
        RollbackPhase::VolumeRestore => UpgradePhase::Snapshot,
        RollbackPhase::GitRevert | RollbackPhase::VolumeSwap => UpgradePhase::GitCommit,
        RollbackPhase::Reconcile => UpgradePhase::Reconcile,
        RollbackPhase::HealthCheck => UpgradePhase::HealthCheck,
        RollbackPhase::Undo => UpgradePhase::Undo,
        RollbackPhase::Succeeded => UpgradePhase::Succeeded,
        RollbackPhase::Failed => UpgradePhase::Failed,
    }
}

/// Returns the phase of a rollback in `now` after a decision for this phase of an upgrade. The volumes are swapped between
/// the commit and its effect.
pub(super) fn phase_after(now: RollbackPhase, phase: UpgradePhase) -> RollbackPhase {
    match phase {
        UpgradePhase::Pending => RollbackPhase::Pending,
        UpgradePhase::Plan => RollbackPhase::Plan,
        UpgradePhase::Suspend => RollbackPhase::Suspend,
        UpgradePhase::ScaleDown => RollbackPhase::ScaleDown,
        UpgradePhase::Snapshot => RollbackPhase::VolumeRestore,
        UpgradePhase::GitCommit => RollbackPhase::GitRevert,
        UpgradePhase::Reconcile if now == RollbackPhase::GitRevert => RollbackPhase::VolumeSwap,
        UpgradePhase::Reconcile => RollbackPhase::Reconcile,
        UpgradePhase::HealthCheck => RollbackPhase::HealthCheck,
        UpgradePhase::Undo => RollbackPhase::Undo,
        UpgradePhase::Succeeded => RollbackPhase::Succeeded,
        UpgradePhase::Failed => RollbackPhase::Failed,
    }
}

/// Labels a Job as a child of the rollback.
fn relabel(effect: Effect) -> Effect {
    match effect {
        Effect::Ensure(mut manifest) => {
            let kind = json!(names::label_value(ROLLBACK_REQUEST.name()));
            for path in ["/metadata/labels", "/spec/template/metadata/labels"] {
                if let Some(labels) = manifest.body.pointer_mut(path) {
                    labels[names::KIND] = kind.clone();
                }
            }
            Effect::Ensure(manifest)
        }
        other @ (Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. }) => other,
    }
}
