//! The upgrades and rollbacks of an application: reports them in the status of its ManagedApp, deletes old snapshots, lets
//! the cluster reclaim replaced volumes, and recovers the locks of requests that were removed by force.
//!
//! # Guarantees
//! - No request reads this report.
//! - A ManagedApp has a finalizer only while its deletion would have to wait.
//! - A volume is reclaimed only if the stored status lists it for longer than the time in the spec, and no claim uses it.

use std::collections::BTreeSet;

use api::{
    Phase, Reason, Timestamp, Verdict,
    apps::{
        ActiveOperation, AppPhase, LastUpgrade, MAX_REJECTED_VERSIONS, MAX_RESTORE_POINTS,
        MAX_RETAINED_VOLUMES, ManagedApp, ManagedAppStatus, ROLLBACK_REQUEST, RestorePoint,
        RetainedVolume, RollbackPhase, RollbackRequest, SnapshotDeletion, UPGRADE_REQUEST,
        UpgradePhase, UpgradePlan, UpgradeRequest, reclaim_intent, rollback_condition,
    },
    decide::{ConditionUpdate, Decision, Effect, Input, Target},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use crate::{
    rollback::{
        available,
        volume::{ORIGINAL_POLICY, VOLUME},
    },
    upgrade::{
        SOURCE_PVC, images,
        recovery::{self, Locks},
        retention::{self, SnapshotSet},
        storage::SnapshotView,
    },
    versions::exact,
    world::AppWorld,
};

/// Finalizer of ManagedApps.
pub const FINALIZER: &str = "managedapps.orchestrator.io/finalizer";

/// Condition of a ManagedApp: its newest upgrade can be rolled back.
pub const ROLLBACK_AVAILABLE: &str = "RollbackAvailable";

/// Reason of a restore point without snapshots.
const GIT_ONLY: &str = "GitOnly";

/// Phases of a request that has changed nothing. Those of a rollback have the same names.
const PREPARING: [UpgradePhase; 3] = [
    UpgradePhase::Pending,
    UpgradePhase::Plan,
    UpgradePhase::Approval,
];

/// Reclaim policy of a volume that survives its claim.
const RETAIN: &str = "Retain";

/// The requests of an application, with their snapshots and volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operations {
    /// The UpgradeRequests.
    pub upgrades: Vec<UpgradeView>,
    /// The RollbackRequests.
    pub rollbacks: Vec<RollbackView>,
    /// The snapshots of each upgrade, also of deleted UpgradeRequests in the stored status.
    pub sets: Vec<SnapshotSet>,
    /// Why the snapshots are not known, if a watch does not work.
    pub unknown_snapshots: Option<String>,
    /// The locks of the Flux objects of the application.
    pub locks: Locks,
    /// Snapshots from which a claim is restored that is not bound yet.
    pub restoring: BTreeSet<(String, String)>,
    /// Volumes that rollbacks replaced, if they exist.
    pub replaced: Vec<ReplacedVolume>,
}

/// A request, as a report names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Creation time, in seconds since the epoch.
    pub created: i64,
    /// Phase.
    pub phase: String,
    /// Whether the request has not ended.
    pub is_active: bool,
    /// Whether the request changes nothing.
    pub is_dry_run: bool,
}

impl RequestView {
    fn new<P: Phase>(meta: &ObjectMeta, phase: Option<P>, is_dry_run: bool) -> Self {
        let created = meta.creation_timestamp.as_ref();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: created.map_or(0, |created| created.0.as_second()),
            phase: phase.map_or("Pending", Phase::name).to_owned(),
            is_active: !phase.is_some_and(Phase::is_terminal),
            is_dry_run,
        }
    }

    fn active(&self, kind: &str) -> ActiveOperation {
        ActiveOperation {
            kind: kind.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            phase: self.phase.clone(),
        }
    }
}

/// An UpgradeRequest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpgradeView {
    /// The fields of any request.
    pub request: RequestView,
    /// Version before the upgrade, from its plan.
    pub from: Option<String>,
    /// Version to which the request upgrades.
    pub to: String,
    /// Images that the Pod templates have as long as the version is that of the upgrade. `None` if the version of the chart
    /// shows it.
    pub images: Option<Vec<String>>,
    /// Whether the commit is on the branch.
    pub is_committed: bool,
    /// Number of snapshots in its status.
    pub snapshots: usize,
    /// Time of its first snapshot.
    pub taken_at: Option<Timestamp>,
    /// Reason why the upgrade cannot be rolled back.
    pub objection: Option<Reason>,
}

impl UpgradeView {
    /// Reads an UpgradeRequest. `snapshots` are its snapshots as they exist now.
    #[must_use]
    pub fn read(upgrade: &UpgradeRequest, snapshots: &[SnapshotView]) -> Self {
        let status = upgrade.status.clone().unwrap_or_default();
        let request = RequestView::new(&upgrade.metadata, status.phase, upgrade.spec.dry_run);
        let objection = available::objection(&request.name, Some(upgrade), snapshots);
        let plan = status.plan.as_ref();
        let taken = status.snapshots.iter();
        let taken = taken.filter_map(|one| Some(one.taken_at.as_ref()?.0));
        Self {
            from: plan.map(|plan| plan.versions().from),
            to: upgrade.spec.target_version.to_string(),
            images: plan.and_then(new_images),
            is_committed: status.commit.is_some(),
            snapshots: status.snapshots.len(),
            taken_at: taken.min(),
            objection: objection.map(|problem| problem.reason),
            request,
        }
    }
}

/// Returns the new images, if the chart stays the same. Helm may return the Pod templates after a failure while the version
/// in Git stays, so they show nothing about an application with a HelmRelease.
fn new_images(plan: &UpgradePlan) -> Option<Vec<String>> {
    let images = plan.images.iter().filter(|_| !plan.has_release());
    let images = images.map(|image| image.to.clone()).collect();
    (!plan.changes_chart()).then_some(images)
}

/// A RollbackRequest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RollbackView {
    /// The fields of any request.
    pub request: RequestView,
    /// Name of the UpgradeRequest.
    pub upgrade: String,
    /// Version that was rolled back, if the rollback succeeded.
    pub rejected: Option<String>,
    /// Volume, namespace and name of each claim whose volume was replaced.
    pub replaced: Vec<(String, String, String)>,
}

impl RollbackView {
    /// Reads a RollbackRequest.
    #[must_use]
    pub fn read(rollback: &RollbackRequest) -> Self {
        let status = rollback.status.clone().unwrap_or_default();
        let plan = status.plan.as_ref();
        let is_swapped = status.progress.is_true(rollback_condition::VOLUMES_SWAPPED);
        let restores = plan.into_iter().flat_map(|plan| plan.restores.iter());
        let replaced = restores.filter(|_| is_swapped).filter_map(|one| {
            let volume = one.pv.clone()?;
            Some((volume, one.namespace.clone(), one.pvc.clone()))
        });
        let has_succeeded = status.phase == Some(RollbackPhase::Succeeded);
        let has_changed = has_succeeded && !rollback.spec.dry_run;
        let version = plan.map(|plan| plan.change.versions().from);
        Self {
            request: RequestView::new(&rollback.metadata, status.phase, rollback.spec.dry_run),
            upgrade: rollback.spec.upgrade_request_ref.name.clone(),
            rejected: version.filter(|_| has_changed),
            replaced: replaced.collect(),
        }
    }
}

/// A PersistentVolume that a rollback replaced, as it exists now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacedVolume {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Reclaim policy.
    pub policy: String,
    /// Reclaim policy before the rollback, from its annotation.
    pub original: Option<String>,
    /// Whether a claim uses it.
    pub is_bound: bool,
}

impl ReplacedVolume {
    /// Returns whether the operator retains the volume. Someone may have changed or reclaimed it.
    fn is_retained(&self) -> bool {
        self.policy == RETAIN && self.original.is_some()
    }

    /// Returns the effect that restores the reclaim policy from before the rollback. The stored status must list the
    /// volume.
    fn reclaim(&self) -> Effect {
        let target = Target {
            resource: VOLUME,
            namespace: None,
            name: self.name.clone(),
            uid: self.uid.clone(),
            version: Some(self.version.clone()),
            requires_intent: Some(reclaim_intent(&self.name)),
            optional: true,
        };
        Effect::Patch {
            target,
            subresource: None,
            patch: json!({
                "metadata": { "annotations": { ORIGINAL_POLICY: null, SOURCE_PVC: null } },
                "spec": { "persistentVolumeReclaimPolicy": self.original },
            }),
        }
    }
}

/// Adds the report, and the effects of the retention, to a decision about a ManagedApp.
pub(crate) fn report(
    input: &Input<'_, ManagedApp, AppWorld>,
    operations: &Operations,
    mut decision: Decision<ManagedAppStatus>,
) -> Decision<ManagedAppStatus> {
    let spec = &input.object.spec;
    let helm = input.world.release();
    let live = Live {
        chart: helm.and_then(|helm| helm.requested.as_deref()),
        images: images::live(&input.world.discovery),
    };
    let status = &mut decision.status;
    status.active_operation = active(operations);
    status.last_upgrade = last_upgrade(operations);
    status.restore_points = restore_points(&status.restore_points, operations, &live);
    status.retained_volumes = retained(&status.retained_volumes, operations, input.now);
    status.rejected_versions = rejected(&status.rejected_versions, operations);
    decision.conditions.push(condition(&decision.status));
    if let Some(active) = decision.status.active_operation.clone() {
        decision = operating(decision, &active);
    }
    let decision = held(input, operations, decision);
    if let Some(recovered) = recovered(input, operations, &decision) {
        return recovered;
    }
    // An effect was rejected. It is repeated in the next reconciliation, and delays no report.
    if input.fault.is_some() {
        return decision;
    }
    let stored = input.object.status.clone().unwrap_or_default();
    let max_count = usize::try_from(spec.volume_snapshots.retention.max_count);
    let max_count = max_count.unwrap_or(usize::MAX);
    let deletions = retention::expired(&operations.sets, max_count, &operations.restoring);
    let ttl = spec.retained_volumes.ttl.map(std::time::Duration::from);
    let reclaims = ttl.map(|ttl| reclaims(&stored, operations, ttl, input.now));
    let effects = deletions.into_iter().map(Effect::optional);
    effects
        .chain(reclaims.unwrap_or_default())
        .fold(decision, Decision::with)
}

/// Reports a request that changes the application now. Until it has begun, only the health counts.
fn operating(
    mut decision: Decision<ManagedAppStatus>,
    active: &ActiveOperation,
) -> Decision<ManagedAppStatus> {
    if PREPARING.iter().any(|phase| phase.name() == active.phase) {
        return decision;
    }
    decision.phase = AppPhase::Operating;
    if decision.verdict.reason != Reason::Ready {
        let ActiveOperation {
            kind, name, phase, ..
        } = active;
        let message = format!(
            "{kind} '{name}' is in phase {phase}: {}",
            decision.verdict.message
        );
        decision.verdict = Verdict::working(Reason::OperationActive, message);
    }
    decision
}

/// Keeps the finalizer while the deletion would have to wait: for a request that changes the application, or for snapshots.
fn held(
    input: &Input<'_, ManagedApp, AppWorld>,
    operations: &Operations,
    decision: Decision<ManagedAppStatus>,
) -> Decision<ManagedAppStatus> {
    let deletes = input.object.spec.snapshots_on_delete == SnapshotDeletion::Delete;
    // After a start, the snapshots are not known for a moment. It is no reason for a finalizer, but one to keep it.
    let is_unknown = operations.unknown_snapshots.is_some() && has_finalizer(input.object);
    let has_snapshots = !operations.sets.is_empty() || is_unknown;
    // A request that has changed nothing needs no application.
    if decision.phase == AppPhase::Operating || (deletes && has_snapshots) {
        decision
    } else {
        decision.remove_finalizer()
    }
}

fn has_finalizer(app: &ManagedApp) -> bool {
    let mut all = app.metadata.finalizers.iter().flat_map(|all| all.iter());
    all.any(|one| one == FINALIZER)
}

/// Returns the decision that recovers locks of requests that were removed by force, or `None` if there are none. An active
/// request of the application does it itself.
pub(crate) fn recovered(
    input: &Input<'_, ManagedApp, AppWorld>,
    operations: &Operations,
    decision: &Decision<ManagedAppStatus>,
) -> Option<Decision<ManagedAppStatus>> {
    let lost = operations.locks.lost();
    // The older ManagedApp of two with the same objects recovers their locks.
    let is_theirs = input.world.overlap.is_some() || decision.status.active_operation.is_some();
    if lost.is_empty() || is_theirs {
        return None;
    }
    let mut decision = decision.clone();
    let meta = &input.object.metadata;
    if !input.confirmed {
        // A watch may lack a request that has just taken the lock, or the release of a lock.
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        decision.confirm = recovery::reads(lost, namespace);
        return Some(decision);
    }
    let uid = meta.uid.as_deref().unwrap_or_default();
    let (effects, message) = recovery::next(&lost, &operations.locks.workloads, uid);
    decision.verdict = Verdict::working(Reason::LockRecovered, message);
    if decision.phase == AppPhase::Ready {
        decision.phase = AppPhase::Degraded;
    }
    let decision = effects.into_iter().fold(decision, Decision::with);
    Some(decision.requeue_at(input.now))
}

/// Returns the oldest request that has not ended. A dry run changes nothing.
pub(crate) fn active(operations: &Operations) -> Option<ActiveOperation> {
    let upgrades = operations.upgrades.iter();
    let upgrades = upgrades.map(|one| (UPGRADE_REQUEST.name(), &one.request));
    let rollbacks = operations.rollbacks.iter();
    let rollbacks = rollbacks.map(|one| (ROLLBACK_REQUEST.name(), &one.request));
    upgrades
        .chain(rollbacks)
        .filter(|(_, one)| one.is_active && !one.is_dry_run)
        .min_by_key(|(_, one)| (one.created, one.uid.clone()))
        .map(|(kind, one)| one.active(kind))
}

fn last_upgrade(operations: &Operations) -> Option<LastUpgrade> {
    let ended = operations.upgrades.iter();
    let ended = ended.filter(|one| !one.request.is_active && !one.request.is_dry_run);
    let last = ended.max_by_key(|one| (one.request.created, one.request.uid.clone()))?;
    Some(LastUpgrade {
        name: last.request.name.clone(),
        phase: last.request.phase.clone(),
        from: last.from.clone(),
        to: last.to.clone(),
    })
}

/// Returns the newest restore points. Those of deleted UpgradeRequests stay as long as their snapshots exist.
fn restore_points(
    stored: &[RestorePoint],
    operations: &Operations,
    live: &Live<'_>,
) -> Vec<RestorePoint> {
    let upgrades = operations.upgrades.iter();
    let committed = upgrades.filter(|one| one.is_committed && !one.request.is_active);
    let mut points: Vec<(i64, RestorePoint)> = committed
        .map(|one| (one.request.created, restore_point(one, live)))
        .collect();
    let is_known = |point: &RestorePoint| {
        let mut upgrades = operations.upgrades.iter();
        upgrades.any(|one| one.request.uid == point.uid)
    };
    let has_snapshots = |point: &RestorePoint| {
        let mut sets = operations.sets.iter();
        sets.any(|set| set.request == point.uid && !set.snapshots.is_empty())
    };
    let deleted = stored.iter();
    let deleted = deleted.filter(|point| !is_known(point) && has_snapshots(point));
    points.extend(deleted.map(|point| {
        let taken = point.taken_at.as_ref();
        let point = RestorePoint {
            available: false,
            reason: Some(Reason::UpgradeNotFound.name().to_owned()),
            ..point.clone()
        };
        (taken.map_or(0, |taken| taken.0.as_second()), point)
    }));
    points.sort_by_key(|(created, point)| (std::cmp::Reverse(*created), point.uid.clone()));
    let newest = points.into_iter().map(|(_, point)| point);
    newest.take(MAX_RESTORE_POINTS).collect()
}

/// The live version of an application.
struct Live<'a> {
    /// Version of the chart that the HelmRelease requests.
    chart: Option<&'a str>,
    /// Images in the Pod templates.
    images: BTreeSet<&'a str>,
}

/// Returns the restore point of an upgrade. Another live version than that of the upgrade may have changed the data.
fn restore_point(upgrade: &UpgradeView, live: &Live<'_>) -> RestorePoint {
    let is_live = match (&upgrade.images, live.chart) {
        (Some(images), _) => images.iter().all(|image| live.images.contains(&**image)),
        (None, Some(chart)) => chart == upgrade.to || exact(chart) == exact(&upgrade.to),
        (None, None) => false,
    };
    let objection = upgrade.objection.map(Reason::name);
    let changed = Reason::VersionChangedInGit.name();
    let objection = objection.or((!is_live).then_some(changed));
    let reason = objection.or((upgrade.snapshots == 0).then_some(GIT_ONLY));
    RestorePoint {
        upgrade: upgrade.request.name.clone(),
        uid: upgrade.request.uid.clone(),
        taken_at: upgrade.taken_at.map(Time),
        available: objection.is_none(),
        reason: reason.map(str::to_owned),
        from: upgrade.from.clone().unwrap_or_default(),
        to: upgrade.to.clone(),
    }
}

/// Returns the volumes that the operator retains, with the time since which the status lists them.
fn retained(
    stored: &[RetainedVolume],
    operations: &Operations,
    now: Timestamp,
) -> Vec<RetainedVolume> {
    let is_retained = |name: &str| {
        let mut live = operations.replaced.iter();
        live.any(|one| one.name == name && one.is_retained())
    };
    let kept = stored.iter().filter(|one| is_retained(&one.volume));
    let mut volumes: Vec<RetainedVolume> = kept.cloned().collect();
    for rollback in &operations.rollbacks {
        for (volume, namespace, pvc) in &rollback.replaced {
            let is_listed = volumes.iter().any(|one| one.volume == *volume);
            if is_listed || !is_retained(volume) {
                continue;
            }
            volumes.push(RetainedVolume {
                volume: volume.clone(),
                namespace: namespace.clone(),
                pvc: pvc.clone(),
                rollback: rollback.request.name.clone(),
                since: Time(time::whole(now)),
            });
        }
    }
    // A volume that is not listed is not reclaimed, so it stays.
    volumes.truncate(MAX_RETAINED_VOLUMES);
    volumes
}

/// Returns the effects that let the cluster reclaim volumes. The stored status decides, so a volume is listed before.
fn reclaims(
    stored: &ManagedAppStatus,
    operations: &Operations,
    ttl: std::time::Duration,
    now: Timestamp,
) -> Vec<Effect> {
    let is_expired = |name: &str| {
        let mut listed = stored.retained_volumes.iter();
        listed.any(|one| one.volume == name && time::after(one.since.0, ttl) <= now)
    };
    let volumes = operations.replaced.iter();
    volumes
        .filter(|one| one.is_retained() && !one.is_bound && is_expired(&one.name))
        .map(ReplacedVolume::reclaim)
        .collect()
}

/// Returns the versions that were rolled back. The status keeps them after the RollbackRequests were deleted.
fn rejected(stored: &[String], operations: &Operations) -> Vec<String> {
    let mut versions = stored.to_vec();
    let mut rollbacks: Vec<&RollbackView> = operations.rollbacks.iter().collect();
    rollbacks.sort_by_key(|one| one.request.created);
    for version in rollbacks.iter().filter_map(|one| one.rejected.as_ref()) {
        if !versions.contains(version) {
            versions.push(version.clone());
        }
    }
    let excess = versions.len().saturating_sub(MAX_REJECTED_VERSIONS);
    versions.split_off(excess)
}

fn condition(status: &ManagedAppStatus) -> ConditionUpdate {
    let available = status.restore_points.iter().find(|point| point.available);
    let newest = status.restore_points.first();
    let (value, reason, message) = match (available, newest) {
        (Some(point), _) => (
            true,
            Reason::SnapshotsTaken,
            format!(
                "upgrade '{}' can be rolled back from {} to {}",
                point.upgrade, point.to, point.from
            ),
        ),
        (None, Some(point)) => (
            false,
            Reason::RollbackNotAvailable,
            format!(
                "upgrade '{}' cannot be rolled back: {}",
                point.upgrade,
                point.reason.as_deref().unwrap_or("its state is not known")
            ),
        ),
        (None, None) => (
            false,
            Reason::RollbackNotAvailable,
            "no upgrade has pushed a commit".to_owned(),
        ),
    };
    ConditionUpdate {
        kind: ROLLBACK_AVAILABLE,
        value: Some(value),
        reason,
        message,
    }
}

#[cfg(test)]
mod tests;
