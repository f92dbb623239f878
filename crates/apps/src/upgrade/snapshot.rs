//! Takes a snapshot of each volume, and waits until all are ready.

use api::{
    Reason, Timestamp, Verdict,
    apps::{
        PlannedVolume, ScaleDownPolicy, TakenSnapshot, UPGRADE_REQUEST, UpgradePhase, UpgradePlan,
        UpgradeRequestStatus, upgrade_condition, upgrade_intent,
    },
    decide::{ConditionUpdate, Decision, Effect, LiveRead, Manifest, ResourceType},
    names,
    status::bounded,
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    MAX_AGE, Request, UpgradeDecision, git_commit, guard, health_check, read, scale_down,
    storage::{SnapshotView, VOLUME_SNAPSHOT, VolumeState},
    undo,
    world::UpgradeWorld,
};
use crate::discover::Problem;

/// Label of a snapshot: the name of the ManagedApp, sanitized.
pub const APP: &str = "orchestrator.io/app";

/// Annotation of a snapshot: labels, annotations and spec of its claim, for a restore without the claim.
pub const SOURCE_PVC: &str = "orchestrator.io/source-pvc";

/// Maximum size of the annotation with the claim.
pub(super) const MAX_SOURCE_BYTES: usize = 16 * 1024;

/// PersistentVolumeClaims.
const CLAIM: ResourceType =
    ResourceType::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");

/// Number of characters of the request's UID in the name of a snapshot.
const UID_CHARS: usize = 8;

/// Longest error of a driver in a message.
const QUOTED: usize = 100;

/// Returns the progress of the snapshots: a text that changes with each step. Neither an error nor an Event is a step.
#[must_use]
pub fn progress(world: &UpgradeWorld) -> Option<String> {
    let mut steps: Vec<String> = world
        .snapshots
        .all()
        .iter()
        .map(SnapshotView::progress)
        .collect();
    steps.sort();
    (!steps.is_empty()).then(|| steps.join("\n"))
}

/// Decides about a request in `Snapshot`.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let Some(plan) = request.plan() else {
        return undo::without_plan(request);
    };
    if let Some(fault) = request.fault {
        return request.fail(&Problem::new(fault.reason, fault.message.clone()));
    }
    let problem = guard::broken(request)
        .or_else(|| restarted(request, plan))
        .or_else(|| replaced(request, plan));
    if let Some(problem) = problem {
        // The cache may be older than the change that it seems to lack.
        return if request.confirmed {
            request.fail(&problem)
        } else {
            let mut reads = request.reads_of_plan();
            reads.extend(reads_of_claims(plan));
            request.confirm(reads)
        };
    }
    let (mut effects, mut taken, mut waiting) = (Vec::new(), Vec::new(), None);
    for volume in &plan.volumes {
        match find(request, volume) {
            None => {
                effects.push(create(request, volume));
                let claim = &volume.pvc;
                waiting.get_or_insert(format!("creates the snapshot of '{claim}'"));
            }
            Some(found) => {
                let missing = found.missing(volume);
                if let Some(missing) = missing {
                    waiting.get_or_insert(describe(found, missing));
                }
                taken.push(record(request, volume, found, missing.is_none()));
            }
        }
    }
    let mut status = request.stored.clone();
    status.snapshots = taken;
    let Some(waiting) = waiting else {
        return ready(request, plan, status);
    };
    if request.overdue {
        return request.fail(&too_late(request, plan, &waiting));
    }
    let verdict = Verdict::working(Reason::Snapshotting, waiting);
    let decision = Decision::status_only(status, UpgradePhase::Snapshot, verdict)
        .requeue_at(time::after(request.now, MAX_AGE));
    effects.into_iter().fold(decision, Decision::with)
}

/// Returns the snapshot of a volume, by its name.
pub(super) fn find<'a>(request: &Request<'a>, volume: &PlannedVolume) -> Option<&'a SnapshotView> {
    let name = name(request, volume);
    let mut all = request.world.snapshots.all().iter();
    all.find(|one| one.namespace == volume.namespace && one.name == name)
}

/// Returns the name of the snapshot of a volume. It depends only on the request and the claim, so a second create finds
/// the first one.
pub(super) fn name(request: &Request<'_>, volume: &PlannedVolume) -> String {
    let raw = format!("{}-{}", request.app_name(), volume.pvc);
    let uid = names::cut(request.uid(), UID_CHARS);
    names::child(&raw, &format!("-{uid}"))
}

/// Returns the reads of the snapshots of a plan.
pub(super) fn reads_of_snapshots(request: &Request<'_>, plan: &UpgradePlan) -> Vec<LiveRead> {
    let volumes = plan.volumes.iter();
    volumes
        .map(|volume| read(VOLUME_SNAPSHOT, &volume.namespace, &name(request, volume)))
        .collect()
}

fn reads_of_claims(plan: &UpgradePlan) -> Vec<LiveRead> {
    let volumes = plan.volumes.iter();
    volumes
        .map(|volume| read(CLAIM, &volume.namespace, &volume.pvc))
        .collect()
}

/// Returns why the workloads did not stay stopped until each snapshot was taken.
fn restarted(request: &Request<'_>, plan: &UpgradePlan) -> Option<Problem> {
    let is_taken = |volume: &PlannedVolume| {
        let found = find(request, volume);
        found.is_some_and(|found| found.taken.is_some())
    };
    if plan.volumes.iter().all(is_taken) {
        return None;
    }
    scale_down::scaled_up(request, plan)
}

/// Returns why a claim is not the one of the plan any more. Its snapshot would be about other data.
fn replaced(request: &Request<'_>, plan: &UpgradePlan) -> Option<Problem> {
    plan.volumes.iter().find_map(|volume| {
        let is_same = |live: &VolumeState| {
            live.namespace == volume.namespace && live.claim == volume.pvc && live.is_same(volume)
        };
        let is_there = request.world.volumes.iter().any(is_same);
        (!is_there).then(|| {
            Problem::new(
                Reason::VolumeReplaced,
                format!(
                    "PersistentVolumeClaim '{}/{}' or its volume '{}' was replaced during the request",
                    volume.namespace, volume.pvc, volume.pv
                ),
            )
        })
    })
}

/// Returns the effect that creates a snapshot. It has no owner reference: the deletion of a request must not delete the
/// data to which a rollback returns.
fn create(request: &Request<'_>, volume: &PlannedVolume) -> Effect {
    let kind = UPGRADE_REQUEST.name();
    let mut labels = names::child_labels(kind, request.name(), request.uid());
    labels.insert(APP.to_owned(), names::label_value(request.app_name()));
    let body = json!({
        "spec": {
            "volumeSnapshotClassName": volume.snapshot_class,
            "source": { "persistentVolumeClaimName": volume.pvc },
        },
    });
    let mut manifest = Manifest::new(
        VOLUME_SNAPSHOT,
        Some(&volume.namespace),
        &name(request, volume),
        request.uid(),
        labels,
        body,
    );
    let mut live = request.world.volumes.iter();
    if let Some(live) = live.find(|live| live.uid == volume.pvc_uid) {
        // It is not a part of the intent: labels of the claim may change before a lost create is repeated.
        manifest.body["metadata"]["annotations"][SOURCE_PVC] = json!(live.source);
    }
    let manifest = manifest.requires_intent(upgrade_intent::SNAPSHOT.to_owned());
    Effect::Ensure(Box::new(manifest.optional()))
}

fn record(
    request: &Request<'_>,
    volume: &PlannedVolume,
    found: &SnapshotView,
    is_ready: bool,
) -> TakenSnapshot {
    let mut stored = request.stored.snapshots.iter();
    let stored = stored.find(|one| one.uid == found.uid);
    let ready_at = stored.and_then(|one| one.ready_at.clone());
    TakenSnapshot {
        namespace: volume.namespace.clone(),
        pvc: volume.pvc.clone(),
        name: found.name.clone(),
        uid: found.uid.clone(),
        content: found.content_name.clone(),
        taken_at: found.taken.map(Time),
        ready_at: is_ready.then(|| ready_at.unwrap_or_else(|| Time(time::whole(request.now)))),
        restore_size: found.restore_size.clone(),
    }
}

/// Formats the state of a snapshot. An error of the driver appears only here: it can disappear again.
fn describe(found: &SnapshotView, missing: &str) -> String {
    let error = found.error.iter();
    let error = error.map(|error| format!("; its last error is: {}", bounded(error, QUOTED)));
    let error: String = error.collect();
    format!("{} {missing}{error}", found.id())
}

/// Returns why the phase is over: nothing progressed, or the time of all snapshots together is over.
fn too_late(request: &Request<'_>, plan: &UpgradePlan, waiting: &str) -> Problem {
    let started = request.stored.progress.phase_started_at.as_ref();
    let cap: std::time::Duration = plan.timeouts.volume_cap.into();
    let is_capped = |started: Timestamp| time::after(started, cap) <= request.now;
    let reason = if started.is_some_and(|started| is_capped(started.0)) {
        Reason::SnapshotCapExceeded
    } else {
        Reason::SnapshotNoProgress
    };
    Problem::new(reason, waiting)
}

/// All snapshots are ready. The next step changes the version in Git, after the old version runs again if the plan says so.
fn ready(
    request: &Request<'_>,
    plan: &UpgradePlan,
    status: UpgradeRequestStatus,
) -> UpgradeDecision {
    let count = status.snapshots.len();
    let mut decision = match plan.scale_down_policy {
        ScaleDownPolicy::UntilUpgraded => git_commit::begin(request, status),
        ScaleDownPolicy::UntilSnapshotReady => restart(request, plan, status),
    };
    decision.conditions.push(ConditionUpdate {
        kind: upgrade_condition::SNAPSHOT_READY,
        value: Some(true),
        reason: Reason::SnapshotsTaken,
        message: format!("{count} snapshots are ready"),
    });
    decision
}

/// Starts the old version again, and waits until it is healthy. Flux stays suspended.
fn restart(
    request: &Request<'_>,
    plan: &UpgradePlan,
    mut status: UpgradeRequestStatus,
) -> UpgradeDecision {
    let now = Time(time::whole(request.now));
    let started = status.restarted_at.get_or_insert(now.clone()).0;
    let end = time::after(started, plan.timeouts.health_check.into());
    let workloads = plan.workloads.iter();
    let restores: Vec<Effect> = workloads
        .filter_map(|planned| {
            let live = request.world.workload(planned)?;
            live.needs_restore(planned).then(|| live.restore(planned))
        })
        .collect();
    let health = health_check::of_workloads(request, plan);
    let message = match health {
        Ok(()) if restores.is_empty() => {
            if let Some(downtime) = &mut status.downtime {
                downtime.to.get_or_insert(now);
            }
            return git_commit::begin(request, status);
        }
        Ok(()) => "starts the old version again".to_owned(),
        Err(problem) => format!("waits for the old version: {}", problem.message),
    };
    if request.overdue || end <= request.now {
        return request.fail(&Problem::new(Reason::Unhealthy, message));
    }
    let verdict = Verdict::working(Reason::Snapshotting, message);
    let decision = Decision::status_only(status, UpgradePhase::Snapshot, verdict)
        .requeue_at(time::after(request.now, MAX_AGE))
        .requeue_at(end);
    restores.into_iter().fold(decision, Decision::with)
}
