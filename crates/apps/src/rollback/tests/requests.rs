//! Decisions about whole requests.

use api::{
    Phase, State,
    apps::{
        PlannedFluxObject, PlannedRestore, PushOutcome, PushedCommit, RestoredVolume,
        RollbackPhase, RollbackPlan, RollbackRequest, RollbackRequestSpec, RollbackRequestStatus,
        UpgradePlan,
    },
    decide::{Effect, FinalizerAction, Input, Manifest},
    names,
    pod::NamedRef,
};
use attempts::step::StepSettings;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::storage::OWNER;
use crate::{
    rollback::{
        self, RollbackDecision, decide,
        shared::{phase_after, phase_before},
        volume::{Binder, LiveClaim, LiveVolume, VolumeObjects},
        world::RollbackWorld,
    },
    upgrade::{
        storage::{SnapshotView, Snapshots},
        tests::fixtures::{at, world},
    },
};

fn planned() -> PlannedRestore {
    PlannedRestore {
        namespace: "shop".to_owned(),
        pvc: "data".to_owned(),
        pvc_uid: Some("data-uid".to_owned()),
        pv: Some("pv-data".to_owned()),
        snapshot: "shop-data".to_owned(),
        snapshot_uid: "snapshot".to_owned(),
        size: "1Gi".to_owned(),
        ..PlannedRestore::default()
    }
}

fn request(phase: RollbackPhase, plan: RollbackPlan) -> RollbackRequest {
    let spec = RollbackRequestSpec {
        upgrade_request_ref: NamedRef {
            name: "up".to_owned(),
        },
        dry_run: false,
    };
    let mut request = RollbackRequest::new(OWNER.name, spec);
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some(OWNER.uid.to_owned());
    request.status = Some(RollbackRequestStatus {
        phase: Some(phase),
        plan: Some(plan),
        ..RollbackRequestStatus::default()
    });
    request
}

fn one_volume() -> RollbackPlan {
    RollbackPlan {
        app: "shop".to_owned(),
        restores: vec![planned()],
        ..RollbackPlan::default()
    }
}

fn snapshot() -> Option<SnapshotView> {
    Some(SnapshotView {
        uid: "snapshot".to_owned(),
        is_ready: true,
        ..SnapshotView::default()
    })
}

/// The temporary claim is bound, and its Pod has ended.
fn restored() -> VolumeObjects {
    VolumeObjects {
        temporary: Some(LiveClaim {
            is_bound: true,
            volume: Some("pv-new".to_owned()),
            owner: Some(OWNER.uid.to_owned()),
            snapshot: Some("shop-data".to_owned()),
            ..LiveClaim::default()
        }),
        binder: Some(Binder {
            phase: "Succeeded".to_owned(),
            ..Binder::default()
        }),
        ..VolumeObjects::default()
    }
}

fn decided(
    request: &RollbackRequest,
    volume: VolumeObjects,
    overdue: bool,
    confirmed: bool,
) -> RollbackDecision {
    let mut operation = world();
    operation.snapshots = Snapshots::NotInstalled;
    decide(&Input {
        object: request,
        world: &RollbackWorld {
            upgrade: None,
            snapshots: Vec::new(),
            operation,
            volumes: vec![volume],
            settings: StepSettings::default(),
        },
        now: at(0),
        fault: None,
        refused: false,
        confirmed,
        overdue,
    })
}

/// Each change of the phase that a shared decision can make is one of the table of rollbacks.
#[test]
fn the_shared_phases_lead_to_the_phases_of_a_rollback() {
    for row in RollbackPhase::TABLE {
        let now = row.phase;
        let own = [RollbackPhase::VolumeRestore, RollbackPhase::VolumeSwap];
        if own.contains(&now) {
            continue;
        }
        assert_eq!(phase_after(now, phase_before(now)), now);
        let before = phase_before(now);
        for next in before.row().unwrap().next {
            let next = phase_after(now, *next);
            assert!(now.may_become(next), "{now:?} to {next:?}");
        }
    }
}

/// R36: a dry run ends with its plan, and never has a finalizer.
#[test]
fn r36_a_dry_run_of_a_rollback_changes_nothing() {
    for (dry_run, expected) in [
        (true, RollbackPhase::Succeeded),
        (false, RollbackPhase::Suspend),
    ] {
        let mut request = request(RollbackPhase::Plan, one_volume());
        request.spec.dry_run = dry_run;
        let decision = decided(&request, VolumeObjects::default(), false, false);
        assert_eq!(decision.phase, expected);
        assert!(decision.effects.is_empty() && decision.claims.is_empty());
        let is_released = matches!(decision.finalizer, FinalizerAction::Remove { .. });
        assert_eq!(is_released, dry_run);
    }
}

/// The restored volumes are stored together with the intent to push, so the commit comes before any deletion.
#[test]
fn restored_volumes_are_stored_before_the_commit() {
    let request = request(RollbackPhase::VolumeRestore, one_volume());
    let decision = decided(&request, restored(), false, false);
    assert_eq!(decision.phase, RollbackPhase::GitRevert);
    let expected = RestoredVolume {
        namespace: "shop".to_owned(),
        pvc: "data".to_owned(),
        pv: "pv-new".to_owned(),
    };
    assert_eq!(decision.status.restored, [expected]);
    assert!(decision.status.intent.is_some());
    assert_eq!(decision.verdict.reason.name(), "Reverting");
    assert!(decision.effects.is_empty());
}

/// S1.11: without progress, the restore ends at its deadline, with the blocker in the message.
#[test]
fn a_restore_without_progress_is_undone() {
    let request = request(RollbackPhase::VolumeRestore, one_volume());
    let seen = VolumeObjects {
        snapshot: snapshot(),
        ..VolumeObjects::default()
    };
    let decision = decided(&request, seen.clone(), false, false);
    assert_eq!(decision.phase, RollbackPhase::VolumeRestore);
    assert_eq!(decision.effects.len(), 1);
    let decision = decided(&request, seen, true, false);
    assert_eq!(decision.phase, RollbackPhase::Undo);
    let failure = decision.status.failure.unwrap();
    assert_eq!(failure.phase, RollbackPhase::VolumeRestore);
    assert_eq!(failure.reason, "RestoreNoProgress");
}

/// S1.11: each step of the storage system extends the time of a restore.
#[test]
fn s1_11_a_step_of_a_restore_is_progress() {
    let progress = |volume: VolumeObjects| {
        let mut operation = world();
        operation.snapshots = Snapshots::NotInstalled;
        rollback::progress(&RollbackWorld {
            upgrade: None,
            snapshots: Vec::new(),
            operation,
            volumes: vec![volume],
            settings: StepSettings::default(),
        })
    };
    let mut pending = restored();
    if let Some(claim) = &mut pending.temporary {
        claim.is_bound = false;
        claim.volume = None;
    }
    let mut running = pending.clone();
    if let Some(binder) = &mut running.binder {
        binder.phase = "Running".to_owned();
    }
    let all = [
        VolumeObjects::default(),
        pending.clone(),
        running,
        restored(),
    ];
    let all: Vec<Option<String>> = all.map(progress).into();
    for (index, one) in all.iter().enumerate() {
        assert!(one.is_some());
        assert!(!all[..index].contains(one), "{one:?}");
    }
    // An error is no progress.
    let mut failing = pending.clone();
    if let Some(binder) = &mut failing.binder {
        binder.cause = Some("ImagePullBackOff".to_owned());
    }
    assert_eq!(progress(failing), progress(pending));
}

/// A Flux object without the lock ends the restore, after a read from the API server.
#[test]
fn a_restore_needs_the_locks() {
    let before = world();
    let live = &before.flux[0];
    let plan = RollbackPlan {
        change: UpgradePlan {
            flux_objects: vec![PlannedFluxObject {
                kind: live.kind,
                namespace: live.namespace.clone(),
                name: live.name.clone(),
                uid: live.uid.clone(),
                generation: live.generation,
                suspend: live.suspend,
            }],
            ..UpgradePlan::default()
        },
        ..one_volume()
    };
    let request = request(RollbackPhase::VolumeRestore, plan);
    let asked = decided(&request, restored(), false, false);
    assert_eq!(asked.confirm.len(), 1);
    let decision = decided(&request, restored(), false, true);
    assert_eq!(decision.phase, RollbackPhase::Undo);
    assert_eq!(decision.status.failure.unwrap().reason, "SuspendReverted");
}

/// R35: before the commit a deletion undoes the restore; afterwards it completes the swap, and creates a claim.
#[test]
fn r35_a_deletion_undoes_a_restore_and_completes_a_swap() {
    let mut before = request(RollbackPhase::VolumeRestore, one_volume());
    before.metadata.deletion_timestamp = Some(Time(at(0)));
    let decision = decided(&before, restored(), false, false);
    assert_eq!(decision.phase, RollbackPhase::Undo);
    assert_eq!(decision.finalizer, FinalizerAction::Keep);

    let mut after = swapping();
    after.metadata.deletion_timestamp = Some(Time(at(0)));
    let decision = decided(&after, reserved(), false, true);
    assert_eq!(decision.phase, RollbackPhase::VolumeSwap);
    assert_eq!(decision.finalizer, FinalizerAction::Keep);
    let created: Vec<&Manifest> = decision
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Ensure(manifest) => Some(manifest.as_ref()),
            Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
        })
        .collect();
    assert_eq!(created.len(), 1);
    assert!(created[0].undoing, "it may be created during the deletion");
}

/// A forced deletion says what is left, and then releases the request.
#[test]
fn r35_a_forced_deletion_of_a_swap_says_what_is_left() {
    let mut request = swapping();
    request.metadata.deletion_timestamp = Some(Time(at(0)));
    let annotations = [(names::FORCE_DELETE.to_owned(), "true".to_owned())];
    request.metadata.annotations = Some(annotations.into());
    let decision = decided(&request, reserved(), false, false);
    assert_eq!(decision.verdict.reason.name(), "ForceDeleted");
    assert_eq!(decision.finalizer, FinalizerAction::Keep);
    assert!(decision.effects.is_empty());
    request.status = Some(decision.status);
    let decision = decided(&request, reserved(), false, false);
    assert!(matches!(decision.finalizer, FinalizerAction::Remove { .. }));
}

/// A swap that takes too long is reported and continues; it never becomes an undo.
#[test]
fn a_swap_that_is_blocked_stays_in_its_phase() {
    let mut seen = reserved();
    seen.claim = Some(LiveClaim {
        namespace: "shop".to_owned(),
        name: "data".to_owned(),
        uid: "other".to_owned(),
        ..LiveClaim::default()
    });
    for overdue in [false, true] {
        let decision = decided(&swapping(), seen.clone(), overdue, true);
        assert_eq!(decision.phase, RollbackPhase::VolumeSwap);
        assert_eq!(decision.verdict.state, State::Stalled);
        assert_eq!(decision.verdict.reason.name(), "PVCNameTaken");
    }
    let decision = decided(&swapping(), VolumeObjects::default(), true, true);
    assert_eq!(decision.phase, RollbackPhase::VolumeSwap);
    assert_eq!(decision.verdict.reason.name(), "VolumeSwapBlocked");
}

fn swapping() -> RollbackRequest {
    let mut request = request(RollbackPhase::VolumeSwap, one_volume());
    if let Some(status) = &mut request.status {
        status.restored = vec![RestoredVolume {
            namespace: "shop".to_owned(),
            pvc: "data".to_owned(),
            pv: "pv-new".to_owned(),
        }];
        status.commit = Some(PushedCommit {
            id: "ab".repeat(20),
            outcome: PushOutcome::Pushed,
            at: Time(at(0)),
        });
    }
    request
}

/// The old claim is deleted, and the restored volume is reserved.
fn reserved() -> VolumeObjects {
    VolumeObjects {
        new: Some(LiveVolume {
            name: "pv-new".to_owned(),
            policy: "Retain".to_owned(),
            original: Some("Delete".to_owned()),
            source: Some("{}".to_owned()),
            claim: Some(("shop".to_owned(), "data".to_owned())),
            ..LiveVolume::default()
        }),
        ..VolumeObjects::default()
    }
}
