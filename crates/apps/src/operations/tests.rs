//! Tables of restore points, retained volumes and rejected versions.

use std::sync::Arc;

use api::{
    Status,
    apps::{FluxKind, FluxRef, ManagedAppSpec, NamespacedName, RetainedVolumePolicy, ScalableKind},
    claim::{Holder, Lock},
    decide::FinalizerAction,
};

use super::*;
use crate::{
    flux::HelmReleaseView,
    object::{ObjectId, ObjectKind},
    overlap::Overlap,
    upgrade::{
        flux_target::LockNote,
        scale_target::Scale,
        tests::fixtures::{at, flux_target, scale_target, world},
    },
    world::Seen,
};

const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

fn request(name: &str, created: i64, phase: &str, is_active: bool) -> RequestView {
    RequestView {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created,
        phase: phase.to_owned(),
        is_active,
        is_dry_run: false,
    }
}

/// An upgrade from 1.0.0 to 2.0.0 that has ended with one snapshot.
fn upgrade(name: &str, created: i64) -> UpgradeView {
    UpgradeView {
        request: request(name, created, "Succeeded", false),
        from: Some("1.0.0".to_owned()),
        to: "2.0.0".to_owned(),
        images: None,
        is_committed: true,
        snapshots: 1,
        taken_at: Some(at(created)),
        objection: None,
    }
}

fn set(request: &str, created: i64) -> SnapshotSet {
    SnapshotSet {
        request: request.to_owned(),
        created: at(created),
        is_in_use: false,
        is_preserved: false,
        snapshots: vec![SnapshotView {
            namespace: "shop".to_owned(),
            name: format!("snapshot-{request}"),
            uid: request.to_owned(),
            ..SnapshotView::default()
        }],
    }
}

fn rollback(phase: &str, rejected: Option<&str>) -> RollbackView {
    RollbackView {
        request: request("back", 100, phase, false),
        upgrade: "up".to_owned(),
        rejected: rejected.map(str::to_owned),
        replaced: vec![("pv-old".to_owned(), "shop".to_owned(), "data".to_owned())],
    }
}

fn replaced() -> ReplacedVolume {
    ReplacedVolume {
        name: "pv-old".to_owned(),
        uid: "pv-uid".to_owned(),
        version: "7".to_owned(),
        policy: "Retain".to_owned(),
        original: Some("Delete".to_owned()),
        is_bound: false,
    }
}

/// An application whose live version is 2.0.0, with its ManagedApp.
fn observed(operations: Operations, status: ManagedAppStatus) -> (ManagedApp, AppWorld) {
    let spec = ManagedAppSpec::new(FluxRef {
        name: "shop".to_owned(),
        namespace: None,
    });
    let mut app = ManagedApp::new("shop", spec);
    app.status = Some(status);
    let mut world = world().app.unwrap().world;
    let Ok(Some((_, Seen::Present(helm)))) = &mut world.helm_release else {
        panic!("no HelmRelease");
    };
    let helm: &mut HelmReleaseView = Arc::make_mut(helm);
    helm.requested = Some("2.0.0".to_owned());
    world.operations = Some(operations);
    (app, world)
}

fn decided_about(
    app: &ManagedApp,
    world: &AppWorld,
    confirmed: bool,
) -> Decision<ManagedAppStatus> {
    crate::decide::decide(&Input {
        object: app,
        world,
        now: at(0),
        fault: None,
        refused: false,
        confirmed,
        overdue: false,
    })
}

/// The report about the application.
fn decided(
    operations: Operations,
    status: ManagedAppStatus,
    ttl: Option<std::time::Duration>,
) -> Decision<ManagedAppStatus> {
    let (mut app, world) = observed(operations, status);
    app.spec.retained_volumes = RetainedVolumePolicy {
        ttl: ttl.map(Into::into),
    };
    decided_about(&app, &world, false)
}

fn report_of(operations: Operations) -> Decision<ManagedAppStatus> {
    decided(operations, ManagedAppStatus::default(), None)
}

fn points(upgrades: Vec<UpgradeView>) -> Vec<RestorePoint> {
    let operations = Operations {
        upgrades,
        ..Operations::default()
    };
    report_of(operations).status.restore_points
}

#[test]
fn a_restore_point_needs_its_snapshots_and_the_live_version() {
    type Change = fn(&mut UpgradeView);
    // Columns: change, whether the rollback is available, reason.
    let table: [(Change, bool, Option<&str>); 4] = [
        (|_| {}, true, None),
        (
            |one| one.objection = Some(Reason::RollbackNotAvailable),
            false,
            Some("RollbackNotAvailable"),
        ),
        (
            |one| one.to = "3.0.0".to_owned(),
            false,
            Some("VersionChangedInGit"),
        ),
        (
            |one| {
                one.snapshots = 0;
                one.taken_at = None;
            },
            true,
            Some("GitOnly"),
        ),
    ];
    for (change, available, reason) in table {
        let mut one = upgrade("up", 0);
        change(&mut one);
        let found = points(vec![one]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].available, found[0].reason.as_deref()),
            (available, reason)
        );
    }
    let mut uncommitted = upgrade("up", 0);
    uncommitted.is_committed = false;
    assert!(points(vec![uncommitted]).is_empty());
}

#[test]
fn the_newest_five_restore_points_are_listed() {
    let all = (0..7).map(|number| upgrade(&format!("up-{number}"), number));
    let found = points(all.collect());
    let names: Vec<&str> = found.iter().map(|one| &*one.upgrade).collect();
    assert_eq!(names, ["up-6", "up-5", "up-4", "up-3", "up-2"]);
}

/// The UpgradeRequest was deleted. Its restore point stays as long as its snapshots, so that the retention finds them.
#[test]
fn a_restore_point_outlives_its_request_with_its_snapshots() {
    let stored = ManagedAppStatus {
        restore_points: points(vec![upgrade("up", 0)]),
        ..ManagedAppStatus::default()
    };
    for (sets, expected) in [(vec![set("uid-up", 0)], 1), (Vec::new(), 0)] {
        let operations = Operations {
            sets,
            ..Operations::default()
        };
        let found = decided(operations, stored.clone(), None);
        let found = found.status.restore_points;
        assert_eq!(found.len(), expected);
        for point in found {
            assert!(!point.available);
            assert_eq!(point.reason.as_deref(), Some("UpgradeNotFound"));
        }
    }
}

#[test]
fn the_oldest_active_request_is_the_operation() {
    let mut first = upgrade("up", 10);
    first.request = request("up", 10, "HealthCheck", true);
    let mut waiting = rollback("Pending", None);
    waiting.request.is_active = true;
    let mut dry_run = upgrade("dry", 1);
    dry_run.request = request("dry", 1, "Plan", true);
    dry_run.request.is_dry_run = true;
    let decision = report_of(Operations {
        upgrades: vec![first, dry_run, upgrade("before", 5)],
        rollbacks: vec![waiting],
        ..Operations::default()
    });
    let active = decision.status.active_operation.unwrap();
    assert_eq!(
        (&*active.kind, &*active.name, &*active.phase),
        ("UpgradeRequest", "up", "HealthCheck")
    );
    let last = decision.status.last_upgrade.unwrap();
    assert_eq!(
        (&*last.name, last.from.as_deref()),
        ("before", Some("1.0.0"))
    );
}

/// A request that has changed nothing hides no problem of the application.
#[test]
fn a_request_that_changes_the_application_is_its_phase() {
    for (phase, is_dry_run, expected) in [
        ("Pending", false, false),
        ("Plan", false, false),
        ("Approval", false, false),
        ("Suspend", false, true),
        ("VolumeSwap", false, true),
        ("Undo", false, true),
        ("Plan", true, false),
    ] {
        let mut one = upgrade("up", 0);
        one.request = request("up", 0, phase, true);
        one.request.is_dry_run = is_dry_run;
        let operations = Operations {
            upgrades: vec![one],
            ..Operations::default()
        };
        let decision = report_of(operations.clone());
        let is_operating = decision.phase == AppPhase::Operating;
        assert_eq!(is_operating, expected, "{phase}");
        // Flux is suspended, which is a problem only without the request.
        let (app, mut world) = observed(operations, ManagedAppStatus::default());
        let Seen::Present(kustomization) = &mut world.kustomization else {
            panic!("no Kustomization");
        };
        Arc::make_mut(kustomization).flux.is_suspended = true;
        let decision = decided_about(&app, &world, false);
        let is_named = decision.verdict.reason == Reason::OperationActive;
        assert_eq!(is_named, expected, "{phase}: {:?}", decision.verdict);
        let message = format!("UpgradeRequest 'up' is in phase {phase}: ");
        assert_eq!(decision.verdict.message.starts_with(&message), expected);
    }
}

/// A finalizer without a duty would keep a ManagedApp whose operator was removed.
#[test]
fn a_managed_app_has_a_finalizer_only_while_its_deletion_would_wait() {
    let active = |phase: &str| {
        let mut one = upgrade("up", 0);
        one.request = request("up", 0, phase, true);
        vec![one]
    };
    let sets = || vec![set("uid-up", 0)];
    // Columns: upgrades, sets of snapshots, deletion of snapshots, whether the finalizer is kept.
    for (upgrades, sets, policy, expected) in [
        (Vec::new(), Vec::new(), SnapshotDeletion::Retain, false),
        (
            active("Approval"),
            Vec::new(),
            SnapshotDeletion::Retain,
            false,
        ),
        (
            active("Suspend"),
            Vec::new(),
            SnapshotDeletion::Retain,
            true,
        ),
        (Vec::new(), sets(), SnapshotDeletion::Retain, false),
        (Vec::new(), sets(), SnapshotDeletion::Delete, true),
        (Vec::new(), Vec::new(), SnapshotDeletion::Delete, false),
    ] {
        let operations = Operations {
            upgrades,
            sets,
            ..Operations::default()
        };
        let context = format!("{operations:?}, {policy:?}");
        let (mut app, world) = observed(operations, ManagedAppStatus::default());
        app.spec.snapshots_on_delete = policy;
        let decision = decided_about(&app, &world, false);
        let is_kept = decision.finalizer == FinalizerAction::Keep;
        assert_eq!(is_kept, expected, "{context}");
    }
}

/// A lock of a request that does not exist. The database is at zero.
fn lost_lock() -> Locks {
    let scale = |count: i32| Scale::Replicas {
        desired: count,
        current: count,
        observed: 2,
    };
    let planned = scale_target(ScalableKind::StatefulSet, "db", scale(3)).planned(true);
    let mut target = flux_target(FluxKind::Kustomization, "kustomization", Some(true));
    target.lock = Lock::Held(Holder {
        kind: "UpgradeRequest".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "dead".to_owned(),
        uid: "dead".to_owned(),
    });
    target.note = Some(LockNote {
        suspend: None,
        workloads: vec![planned],
    });
    Locks {
        flux: vec![target],
        workloads: vec![scale_target(ScalableKind::StatefulSet, "db", scale(0))],
        active: [].into(),
    }
}

/// `finalizer-removed`: without another request, the ManagedApp returns to the state in the lock, after live reads.
#[test]
fn a_lost_lock_is_recovered_without_another_request() {
    let operations = Operations {
        locks: lost_lock(),
        ..Operations::default()
    };
    let (app, world) = observed(operations.clone(), ManagedAppStatus::default());
    let first = decided_about(&app, &world, false);
    assert_eq!(first.confirm.len(), 3, "{:?}", first.confirm);
    let second = decided_about(&app, &world, true);
    assert_eq!(second.verdict.reason, Reason::LockRecovered);
    let [Effect::Patch { patch, .. }] = second.effects.as_slice() else {
        panic!("{:?}", second.effects);
    };
    assert_eq!(*patch, json!({ "spec": { "replicas": 3 } }));
    assert_ne!(second.phase, AppPhase::Ready);

    // The next request of the application recovers the lock, and so does an older ManagedApp.
    let mut waiting = upgrade("next", 10);
    waiting.request = request("next", 10, "Pending", true);
    let with_request = Operations {
        upgrades: vec![waiting],
        ..operations.clone()
    };
    let (app, world) = observed(with_request, ManagedAppStatus::default());
    let decision = decided_about(&app, &world, false);
    assert!(decision.confirm.is_empty() && decision.effects.is_empty());
    let (app, mut world) = observed(operations, ManagedAppStatus::default());
    world.overlap = Some(Overlap {
        object: ObjectId::new(ObjectKind::Kustomization, "shop", "shop"),
        older: NamespacedName::new("shop", "older"),
    });
    let decision = decided_about(&app, &world, false);
    assert!(decision.confirm.is_empty() && decision.effects.is_empty());
}

/// The effects of the retention need no finalizer, and delay no report.
#[test]
fn old_snapshots_are_deleted_without_a_finalizer() {
    let sets = (0..5).map(|number| set(&format!("uid-{number}"), number));
    let decision = report_of(Operations {
        sets: sets.collect(),
        ..Operations::default()
    });
    let deleted: Vec<&str> = decision
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::Delete(target) => target.name.as_str(),
            Effect::Ensure(_) | Effect::Apply(_) | Effect::Patch { .. } => {
                panic!("{effect:?}")
            }
        })
        .collect();
    assert_eq!(deleted, ["snapshot-uid-1", "snapshot-uid-0"]);
    assert!(decision.effects.iter().all(Effect::is_optional));
    assert!(matches!(decision.finalizer, FinalizerAction::Remove { .. }));
}

/// A replaced volume is listed as long as the operator retains it.
#[test]
fn replaced_volumes_are_listed_until_they_are_reclaimed() {
    type Change = fn(&mut ReplacedVolume);
    let table: [(Change, usize); 3] = [
        (|_| {}, 1),
        // Someone has changed the reclaim policy or removed the annotation.
        (|one| one.policy = "Delete".to_owned(), 0),
        (|one| one.original = None, 0),
    ];
    for (change, expected) in table {
        let mut volume = replaced();
        change(&mut volume);
        let decision = report_of(Operations {
            rollbacks: vec![rollback("Succeeded", None)],
            replaced: vec![volume],
            ..Operations::default()
        });
        assert_eq!(decision.status.retained_volumes.len(), expected);
        assert!(
            decision.effects.is_empty(),
            "nothing is reclaimed by default"
        );
    }
    let decision = report_of(Operations {
        rollbacks: vec![rollback("Succeeded", None)],
        ..Operations::default()
    });
    assert!(
        decision.status.retained_volumes.is_empty(),
        "it does not exist"
    );
}

/// A volume is reclaimed after the time in the spec. The stored status lists it before, and no claim uses it.
#[test]
fn a_replaced_volume_is_reclaimed_after_its_time() {
    let listed = |seconds: i64| RetainedVolume {
        volume: "pv-old".to_owned(),
        namespace: "shop".to_owned(),
        pvc: "data".to_owned(),
        rollback: "back".to_owned(),
        since: Time(at(seconds)),
    };
    let long_ago = -24 * 60 * 60;
    // Columns: stored entry, time in the spec, whether a claim uses the volume, whether it is reclaimed.
    for (stored, ttl, is_bound, expected) in [
        (Some(listed(long_ago)), Some(DAY), false, true),
        (Some(listed(long_ago + 1)), Some(DAY), false, false),
        (Some(listed(long_ago)), None, false, false),
        (Some(listed(long_ago)), Some(DAY), true, false),
        (None, Some(DAY), false, false),
    ] {
        let status = ManagedAppStatus {
            retained_volumes: stored.clone().into_iter().collect(),
            ..ManagedAppStatus::default()
        };
        let mut volume = replaced();
        volume.is_bound = is_bound;
        let operations = Operations {
            rollbacks: vec![rollback("Succeeded", None)],
            replaced: vec![volume],
            ..Operations::default()
        };
        let decision = decided(operations, status.clone(), ttl);
        let context = format!("{stored:?}, {ttl:?}, {is_bound}");
        assert_eq!(decision.effects.len(), usize::from(expected), "{context}");
        for effect in &decision.effects {
            let Effect::Patch { target, patch, .. } = effect else {
                panic!("{effect:?}");
            };
            assert_eq!(patch["spec"]["persistentVolumeReclaimPolicy"], "Delete");
            assert_eq!(
                (&*target.uid, target.version.as_deref()),
                ("pv-uid", Some("7"))
            );
            let intent = target.requires_intent.as_deref().unwrap();
            assert!(status.has_intent(intent), "{intent}");
            assert!(!ManagedAppStatus::default().has_intent(intent));
        }
    }
}

/// The versions stay after the RollbackRequests were deleted, and their number is bounded.
#[test]
fn versions_that_were_rolled_back_are_kept() {
    let stored: Vec<String> = (0..MAX_REJECTED_VERSIONS)
        .map(|number| format!("0.{number}.0"))
        .collect();
    let status = ManagedAppStatus {
        rejected_versions: stored.clone(),
        ..ManagedAppStatus::default()
    };
    let operations = |rejected: Option<&str>| Operations {
        rollbacks: vec![rollback("Succeeded", rejected)],
        ..Operations::default()
    };
    let found = decided(operations(None), status.clone(), None);
    assert_eq!(found.status.rejected_versions, stored);
    let found = decided(operations(Some("2.0.0")), status, None);
    let found = found.status.rejected_versions;
    assert_eq!(found.len(), MAX_REJECTED_VERSIONS);
    assert_eq!(found.last().map(String::as_str), Some("2.0.0"));
    assert_eq!(found.first().map(String::as_str), Some("0.1.0"));
}
