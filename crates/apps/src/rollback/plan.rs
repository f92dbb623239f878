//! Checks a request, and freezes the way back. Changes nothing but its own Job.

use std::collections::BTreeSet;

use api::{
    Reason, Status, Verdict,
    apps::{
        NamespacedName, PlannedRestore, RollbackPhase, RollbackPlan, RollbackRequest,
        RollbackRequestStatus, TakenSnapshot, UPGRADE_REQUEST, UpgradePlan, UpgradeRequest,
    },
    decide::{Decision, Effect, Input, LiveRead},
    quantity, time,
};

use super::{RollbackDecision, available, shared, volume, world::RollbackWorld};
use crate::{
    discover::Problem,
    upgrade::{
        return_plan::{self, ReturnStep},
        storage::VOLUME_SNAPSHOT,
        world::UpgradeWorld,
    },
    world::Discovery,
};

/// How often a plan that is not complete is continued.
const CHECK_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Maximum number of volumes in the list of those that keep their data.
const MAX_UNRESTORED: usize = 32;

/// Returns whether the upgrade cannot be rolled back yet, or does not exist. Then the request does not wait for other
/// requests: one of them may be the upgrade itself.
pub(super) fn is_without_upgrade(input: &Input<'_, RollbackRequest, RollbackWorld>) -> bool {
    let upgrade = input.world.upgrade.as_deref();
    let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
    !status.is_some_and(Status::is_over)
}

/// Begins the phase.
pub(super) fn begin(stored: &RollbackRequestStatus) -> RollbackDecision {
    let verdict = Verdict::working(Reason::Planning, "checks the request");
    Decision::status_only(stored.clone(), RollbackPhase::Plan, verdict)
}

/// Decides about a request in `Plan`. The plan is stored before the next phase begins.
pub(super) fn decide(
    input: &Input<'_, RollbackRequest, RollbackWorld>,
    stored: &RollbackRequestStatus,
) -> RollbackDecision {
    let object = shared::as_upgrade(input.object, input.world.upgrade.as_deref());
    let step = Planning {
        input,
        stored,
        deletion: return_plan::job_deletion(&shared::input_of(input, &object)),
    };
    match &stored.plan {
        Some(_) if input.object.spec.dry_run => step.dry_run(stored.clone()),
        Some(_) => {
            let verdict = Verdict::working(Reason::Suspending, "suspends Flux");
            let phase = RollbackPhase::Suspend;
            let decision = Decision::status_only(stored.clone(), phase, verdict);
            step.without_job(decision.requeue_at(input.now))
        }
        // There is nothing to undo, so the request needs no finalizer, whatever the Job does.
        None => step.next(&object).remove_finalizer(),
    }
}

/// A request without a plan.
struct Planning<'a> {
    input: &'a Input<'a, RollbackRequest, RollbackWorld>,
    stored: &'a RollbackRequestStatus,
    /// The deletion of the Job of the plan, if it exists.
    deletion: Option<Effect>,
}

impl Planning<'_> {
    fn without_job(&self, decision: RollbackDecision) -> RollbackDecision {
        let deletion = self.deletion.clone();
        deletion.into_iter().fold(decision, Decision::with)
    }

    fn reject(&self, problem: &Problem) -> RollbackDecision {
        let message = problem
            .message
            .strip_suffix('.')
            .unwrap_or(&problem.message);
        let message = format!("{message}. Nothing was changed");
        let verdict = Verdict::failed(problem.reason, message);
        let phase = RollbackPhase::Failed;
        self.without_job(Decision::status_only(self.stored.clone(), phase, verdict))
    }

    fn wait(&self, message: impl Into<String>) -> RollbackDecision {
        let verdict = Verdict::working(Reason::Planning, message);
        // A reply with a log expires soon, and only a reconciliation reads it.
        Decision::status_only(self.stored.clone(), RollbackPhase::Plan, verdict)
            .requeue_at(time::after(self.input.now, CHECK_EVERY))
    }

    fn dry_run(&self, status: RollbackRequestStatus) -> RollbackDecision {
        let plan = status.plan.clone().unwrap_or_default();
        let verdict = Verdict::succeeded(format!("{}. Nothing was changed", summary(&plan)));
        let decision = Decision::status_only(status, RollbackPhase::Succeeded, verdict);
        self.without_job(decision).remove_finalizer()
    }

    fn next(&self, object: &UpgradeRequest) -> RollbackDecision {
        let (input, world) = (self.input, self.input.world);
        let name = &input.object.spec.upgrade_request_ref.name;
        let upgrade = world.upgrade.as_deref();
        if let Some(problem) = available::objection(name, upgrade, &world.snapshots) {
            // The caches may lack the end of the upgrade, or a snapshot.
            return if input.confirmed {
                self.reject(&problem)
            } else {
                let mut decision = self.wait("reads the upgrade and its snapshots");
                decision.confirm = self.reads();
                decision
            };
        }
        let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
        let before = status.and_then(|status| Some((status, status.plan.as_ref()?)));
        let (Some(upgrade), Some((status, before))) = (upgrade, before) else {
            let message = format!("UpgradeRequest '{name}' has no plan in its status");
            return self.reject(&Problem::new(Reason::RollbackNotAvailable, message));
        };
        let taken = &status.snapshots;
        match return_plan::next(&shared::input_of(input, object), before, taken) {
            ReturnStep::Reject(problem) => self.reject(&problem),
            ReturnStep::Wait(problem) if input.overdue => self.reject(&problem),
            ReturnStep::Wait(problem) => self.wait(problem.message),
            ReturnStep::Create(_) | ReturnStep::Planned(_) if input.overdue => {
                let message = "the plan was made too late. Submit another RollbackRequest";
                self.reject(&Problem::new(Reason::PlanTimeout, message))
            }
            ReturnStep::Create(job) => {
                let message = format!("starts Job '{}', which reads the branch", job.name);
                self.wait(message)
                    .with(shared::relabel(Effect::Ensure(job)))
            }
            ReturnStep::Planned(change) => self.store(upgrade, before, taken, *change),
        }
    }

    /// Returns the reads of the upgrade and of its snapshots.
    fn reads(&self) -> Vec<LiveRead> {
        let namespace = self.input.object.metadata.namespace.as_deref();
        let name = &self.input.object.spec.upgrade_request_ref.name;
        let mut reads = vec![volume::read(UPGRADE_REQUEST.resource, namespace, name)];
        let upgrade = self.input.world.upgrade.as_deref();
        let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
        let taken = status
            .into_iter()
            .flat_map(|status| status.snapshots.iter());
        reads.extend(
            taken.map(|one| volume::read(VOLUME_SNAPSHOT, Some(&one.namespace), &one.name)),
        );
        reads
    }

    fn store(
        &self,
        upgrade: &UpgradeRequest,
        before: &UpgradePlan,
        taken: &[TakenSnapshot],
        change: UpgradePlan,
    ) -> RollbackDecision {
        let operation = &self.input.world.operation;
        let app = operation.app.as_ref().map(|state| &state.app.spec);
        let timeouts = app.map(|spec| spec.phase_timeouts.of_volumes());
        let restores = taken.iter().map(|one| restore(operation, before, one));
        let plan = RollbackPlan {
            app: upgrade.spec.managed_app_ref.name.clone(),
            upgrade: upgrade.metadata.name.clone().unwrap_or_default(),
            upgrade_uid: upgrade.metadata.uid.clone().unwrap_or_default(),
            restores: restores.collect(),
            unrestored: unrestored(operation, taken),
            is_in_git: change.commit.edits.is_empty(),
            timeouts: timeouts.unwrap_or_default(),
            change,
        };
        let summary = summary(&plan);
        let mut status = self.stored.clone();
        status.plan = Some(plan);
        if self.input.object.spec.dry_run {
            return self.dry_run(status);
        }
        let verdict = Verdict::working(Reason::Planning, summary);
        Decision::status_only(status, RollbackPhase::Plan, verdict).requeue_at(self.input.now)
    }
}

/// Formats a plan. An upgrade without snapshots is rolled back in Git only.
fn summary(plan: &RollbackPlan) -> String {
    let kept = match plan.unrestored.len() {
        0 => String::new(),
        count => format!("; {count} volumes keep their data"),
    };
    format!(
        "{}: stops {} workloads, restores {} volumes{kept}",
        plan.change.summary(),
        plan.change.workloads.len(),
        plan.restores.len()
    )
}

/// Returns the restore of a volume. Class and modes are those of the claim that is replaced, because the new claim repeats
/// them. Without that claim, they are those of the plan of the upgrade.
fn restore(world: &UpgradeWorld, before: &UpgradePlan, taken: &TakenSnapshot) -> PlannedRestore {
    let live = return_plan::find(world, taken);
    let mut planned = before.volumes.iter();
    let planned = planned.find(|one| one.namespace == taken.namespace && one.pvc == taken.pvc);
    let (size, storage_class, access_modes, volume_mode) = match (live, planned) {
        (Some(live), _) => (
            live.size.clone(),
            live.storage_class.clone(),
            live.access_modes.clone(),
            live.volume_mode.clone(),
        ),
        (None, Some(planned)) => (
            planned.size.clone(),
            planned.storage_class.clone(),
            planned.access_modes.clone(),
            planned.volume_mode.clone(),
        ),
        (None, None) => (None, None, Vec::new(), None),
    };
    PlannedRestore {
        namespace: taken.namespace.clone(),
        pvc: taken.pvc.clone(),
        pvc_uid: live.map(|live| live.uid.clone()),
        pv: live.and_then(|live| live.volume.clone()),
        snapshot: taken.name.clone(),
        snapshot_uid: taken.uid.clone(),
        size: larger(size, taken.restore_size.as_deref()),
        storage_class,
        access_modes,
        volume_mode,
    }
}

/// Returns the larger of two sizes. The storage system rejects a volume that is smaller than its snapshot.
fn larger(size: Option<String>, restore_size: Option<&str>) -> String {
    match (size, restore_size) {
        (Some(size), Some(other)) if quantity::parse(&size) < quantity::parse(other) => {
            other.to_owned()
        }
        (Some(size), _) => size,
        (None, other) => other.unwrap_or_default().to_owned(),
    }
}

/// Returns the claims of the application that have no snapshot.
fn unrestored(world: &UpgradeWorld, taken: &[TakenSnapshot]) -> Vec<NamespacedName> {
    let restored: BTreeSet<NamespacedName> = taken
        .iter()
        .map(|one| NamespacedName::new(&one.namespace, &one.pvc))
        .collect();
    let discovery = world.app.as_ref().map(|state| &state.world.discovery);
    let Some(Discovery::Found(objects)) = discovery else {
        return Vec::new();
    };
    let claims = objects.claims.iter().map(|claim| &claim.name);
    claims
        .filter(|name| !restored.contains(*name))
        .take(MAX_UNRESTORED)
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_volume_is_at_least_as_large_as_its_snapshot() {
        // Columns: size of the claim, size of the snapshot, size of the restored volume.
        for (size, restore_size, expected) in [
            (Some("1Gi"), Some("1Gi"), "1Gi"),
            (Some("1Gi"), Some("2147483648"), "2147483648"),
            (Some("2Gi"), Some("1Gi"), "2Gi"),
            (Some("2Gi"), None, "2Gi"),
            (None, Some("3Gi"), "3Gi"),
        ] {
            let found = larger(size.map(str::to_owned), restore_size);
            assert_eq!(found, expected, "{size:?}, {restore_size:?}");
        }
    }
}
