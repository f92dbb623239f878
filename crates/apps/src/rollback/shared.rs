//! The phases that a rollback shares with an upgrade. The decisions are those of [`crate::upgrade`], about the plan of the
//! rollback: its `from` and `to` are exchanged.

use api::{
    Reason, Verdict,
    apps::{
        ROLLBACK_REQUEST, RollbackFailure, RollbackPhase, RollbackRequest, RollbackRequestStatus,
        TargetVersion, UpgradeFailure, UpgradePhase, UpgradePlan, UpgradeRequest,
        UpgradeRequestSpec, UpgradeRequestStatus, upgrade_condition,
    },
    decide::{Effect, Input, LiveRead},
    names,
    pod::NamedRef,
};
use serde_json::json;

use super::{RollbackDecision, world::RollbackWorld};
use crate::{
    discover::Problem,
    flux::{DEPLOYED, HelmReleaseView},
    upgrade::{self, UpgradeDecision, images, return_plan::is_uninstalled, world::UpgradeWorld},
    versions::exact,
};

/// Decides about a request in a phase that upgrades have, too.
pub(super) fn decide(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    with_upgrade(input, upgrade::decide)
}

/// Stores the intent to push the version from before.
pub(super) fn begin_commit(input: &Input<'_, RollbackRequest, RollbackWorld>) -> RollbackDecision {
    with_upgrade(input, upgrade::begin_commit)
}

/// Adapts the versions before the commit to the actions of Helm after the failed upgrade, so that the evidence of the
/// rollback can be found.
fn with_remediation(status: &mut RollbackRequestStatus, world: &UpgradeWorld) {
    let plan = status.plan.as_ref().map(|plan| &plan.change);
    let (Some(plan), Some(before)) = (plan, &mut status.before_commit) else {
        return;
    };
    let helm = world.live.as_ref().and_then(|live| live.release());
    let Some(helm) = helm else { return };
    if is_uninstalled(helm) {
        // The versions of the next release begin again.
        before.release_version = None;
    } else if is_deployed(helm) && has_target(world, helm, plan) {
        // Helm has rolled the release back already, so no newer release follows. The current one counts as new.
        before.release_version = before.release_version.map(|version| version - 1);
    }
}

fn is_deployed(helm: &HelmReleaseView) -> bool {
    let newest = helm.newest.as_ref();
    newest.is_some_and(|newest| newest.status == DEPLOYED)
}

/// Returns whether the newest release has the version from before the upgrade: its chart, or its images in the Pod templates.
fn has_target(world: &UpgradeWorld, helm: &HelmReleaseView, plan: &UpgradePlan) -> bool {
    if plan.changes_chart() {
        let newest = helm.newest.as_ref();
        newest.is_some_and(|newest| exact(&newest.chart_version) == exact(&plan.chart.to))
    } else {
        let live = world.live.as_ref();
        live.is_some_and(|live| images::missing(plan, &live.discovery).is_none())
    }
}

/// Returns the version of the newest release if it has another version than the one before the upgrade. A release with the
/// version from before counts as new. After an uninstalled release, the versions begin again.
pub(super) fn other_release(input: &Input<'_, RollbackRequest, RollbackWorld>) -> Option<i64> {
    let plan = input.object.status.as_ref()?.plan.as_ref()?;
    let world = &input.world.operation;
    let helm = world.live.as_ref()?.release()?;
    let newest = helm.newest.as_ref().filter(|_| !is_uninstalled(helm))?;
    let is_target = has_target(world, helm, &plan.change);
    (!is_target).then_some(newest.version)
}

/// Returns why the application is not stopped any more.
pub(super) fn restarted(input: &Input<'_, RollbackRequest, RollbackWorld>) -> Option<Problem> {
    let object = as_upgrade(input.object, input.world.upgrade.as_deref());
    upgrade::restarted(&input_of(input, &object))
}

/// Returns the reads of all objects that the plan suspends and stops.
pub(super) fn reads(input: &Input<'_, RollbackRequest, RollbackWorld>) -> Vec<LiveRead> {
    let object = as_upgrade(input.object, input.world.upgrade.as_deref());
    upgrade::reads(&input_of(input, &object))
}

fn with_upgrade(
    input: &Input<'_, RollbackRequest, RollbackWorld>,
    decide: impl Fn(&Input<'_, UpgradeRequest, UpgradeWorld>) -> UpgradeDecision,
) -> RollbackDecision {
    let object = as_upgrade(input.object, input.world.upgrade.as_deref());
    let decision = decide(&input_of(input, &object));
    let stored = input.object.status.clone().unwrap_or_default();
    let now = stored.phase.unwrap_or(RollbackPhase::Pending);
    let phase = phase_after(now, decision.phase);
    let mut decision = decision.map_status(phase, |status| as_rollback(stored, status));
    decision.effects = decision.effects.into_iter().map(relabel).collect();
    if let Some((reason, message)) = entered(phase).filter(|_| now != phase) {
        decision.verdict = Verdict::working(reason, message);
    }
    if phase == RollbackPhase::GitRevert && now != phase {
        with_remediation(&mut decision.status, &input.world.operation);
    }
    let plan = decision.status.plan.as_ref();
    if now == RollbackPhase::HealthCheck
        && phase == RollbackPhase::Succeeded
        && let Some(plan) = plan
    {
        let data = if plan.restores.is_empty() {
            "; no volume was restored".to_owned()
        } else {
            format!(", with the data from before upgrade '{}'", plan.upgrade)
        };
        let message = format!("returned from {}{data}", plan.change.summary());
        decision.verdict = Verdict::succeeded(message.clone());
        let healthy = upgrade_condition::HEALTHY;
        let mut conditions = decision.conditions.iter_mut();
        if let Some(condition) = conditions.find(|one| one.kind == healthy) {
            condition.message = message;
        }
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

/// Returns the input of a shared decision.
pub(super) fn input_of<'a>(
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

/// Returns the request as the shared phases see it: an upgrade to the version from before. `upgrade` is the UpgradeRequest
/// that is rolled back, if it exists.
pub(crate) fn as_upgrade(
    request: &RollbackRequest,
    upgrade: Option<&UpgradeRequest>,
) -> UpgradeRequest {
    let stored = request.status.clone().unwrap_or_default();
    let plan = stored.plan;
    let app = plan.as_ref().map(|plan| plan.app.clone());
    let app = app.or_else(|| Some(upgrade?.spec.managed_app_ref.name.clone()));
    let spec = UpgradeRequestSpec {
        managed_app_ref: NamedRef {
            name: app.unwrap_or_default(),
        },
        // The plan has the version.
        target_version: TargetVersion::default(),
        // The plan decides which volumes are restored.
        skip_snapshot: false,
        allow_unhealthy: true,
        dry_run: request.spec.dry_run,
        approval: None,
    };
    let status = UpgradeRequestStatus {
        phase: stored.phase.map(phase_before),
        plan: plan.map(|plan| plan.change),
        plan_timeout: stored.plan_timeout,
        planned_at: None,
        approved: None,
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
        rollback: None,
        progress: stored.progress,
    };
    let mut object = UpgradeRequest::new("", spec);
    object.metadata = request.metadata.clone();
    object.status = Some(status);
    object
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
        plan_timeout: status.plan_timeout,
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
        // The plan of a rollback never needs an approval.
        UpgradePhase::Plan | UpgradePhase::Approval => RollbackPhase::Plan,
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

/// Labels a Job as a child of the rollback, which owns it if it has an owner.
pub(super) fn relabel(effect: Effect) -> Effect {
    match effect {
        Effect::Ensure(mut manifest) => {
            let kind = json!(names::label_value(ROLLBACK_REQUEST.name()));
            for path in ["/metadata/labels", "/spec/template/metadata/labels"] {
                if let Some(labels) = manifest.body.pointer_mut(path) {
                    labels[names::KIND] = kind.clone();
                }
            }
            if let Some(owner) = manifest
                .body
                .pointer_mut("/metadata/ownerReferences/0/kind")
            {
                *owner = json!(ROLLBACK_REQUEST.name());
            }
            Effect::Ensure(manifest)
        }
        other @ (Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. }) => other,
    }
}
