//! Runs in which something outside of the operator goes wrong.

use api::{
    apps::UpgradePhase,
    claim::{Holder, Lock},
};

use super::{cluster::Cluster, fixtures::replicas};
use crate::upgrade::world::OtherRequest;

/// Runs until the phase has made one step.
fn in_phase(phase: UpgradePhase) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.run_until(|cluster| cluster.phase() == phase);
    cluster.step();
    cluster
}

/// Runs to the end, and returns the reason and the message.
fn ended(cluster: &mut Cluster) -> (String, String) {
    cluster.sync();
    cluster.run();
    assert_eq!(cluster.phase(), UpgradePhase::Failed);
    (cluster.reason(), cluster.message())
}

/// A phase that waits too long ends at its deadline, with the blocker in the message.
#[test]
fn each_phase_ends_at_its_deadline() {
    type Break = fn(&mut Cluster);
    let table: [(UpgradePhase, Break, u64, &str, &str); 4] = [
        (
            UpgradePhase::Suspend,
            |cluster| cluster.flux_works = false,
            10,
            "SuspendNotObserved",
            "Helm upgrade in progress",
        ),
        (
            UpgradePhase::ScaleDown,
            |cluster| cluster.pods_end = false,
            20,
            "PodsNotTerminated",
            "Pod 'shop/db-0' on node 'node-1' is running",
        ),
        (
            UpgradePhase::Snapshot,
            |cluster| cluster.snapshots_work = false,
            60,
            "SnapshotNoProgress",
            "has no content yet",
        ),
        (
            UpgradePhase::Snapshot,
            |cluster| {
                cluster.snapshots_work = false;
                cluster.snapshots_grow = true;
            },
            300,
            "SnapshotCapExceeded",
            "has no content yet",
        ),
    ];
    for (phase, change, pace, reason, part) in table {
        let mut cluster = Cluster::new();
        cluster.run_until(|cluster| cluster.phase() == phase);
        change(&mut cluster);
        cluster.pace = pace;
        let (found, message) = ended(&mut cluster);
        assert_eq!(found, reason, "{message}");
        assert!(message.contains(part), "{message}");
        cluster.assert_restored(reason);
    }
}

/// S1.11: a snapshot that makes progress does not end at the time without progress.
#[test]
fn s1_11_progress_extends_the_time_of_a_snapshot() {
    let mut cluster = in_phase(UpgradePhase::Snapshot);
    cluster.snapshots_work = false;
    cluster.snapshots_grow = true;
    cluster.pace = 300;
    for _ in 0..18 {
        cluster.step();
    }
    assert_eq!(
        cluster.phase(),
        UpgradePhase::Snapshot,
        "90 minutes with progress"
    );
    cluster.snapshots_work = true;
    cluster.pace = 2;
    assert_eq!(ended(&mut cluster).0, "PushRejected");
}

/// An error of a snapshot can disappear again, so it ends nothing.
#[test]
fn an_error_of_a_snapshot_appears_only_in_the_message() {
    let mut cluster = in_phase(UpgradePhase::Snapshot);
    cluster.snapshots_work = false;
    if let crate::upgrade::storage::Snapshots::Found(all) = &mut cluster.real.snapshots {
        for one in all {
            one.error = Some("the storage system is busy".to_owned());
        }
    }
    cluster.sync();
    cluster.step();
    assert!(
        cluster.message().contains("the storage system is busy"),
        "{}",
        cluster.message()
    );
    cluster.snapshots_work = true;
    assert_eq!(ended(&mut cluster).0, "PushRejected");
    cluster.assert_restored("error");
}

/// KEDA scales from 0 to 1. The volume would be written to during the snapshot.
#[test]
fn a_workload_that_someone_scales_up_ends_the_request() {
    for phase in [UpgradePhase::ScaleDown, UpgradePhase::Snapshot] {
        let mut cluster = in_phase(phase);
        cluster.pods_end = false;
        cluster.snapshots_work = false;
        cluster.step();
        let live = &mut cluster.real.workloads[0];
        live.scale = replicas(1);
        live.version = "99".to_owned();
        live.scale_managers = vec!["keda".to_owned()];
        let (reason, message) = ended(&mut cluster);
        assert_eq!(reason, "WorkloadScaledUp", "{phase:?}: {message}");
        assert!(
            message.contains("'keda' scaled up StatefulSet 'shop/db'"),
            "{message}"
        );
        // The other workloads are as before, and the scale of someone else is not replaced.
        assert!(cluster.real.workloads.iter().all(|one| !one.is_at_zero()));
        assert_eq!(cluster.real.workloads[0].describe(), "1 replica");
        assert!(cluster.real.flux.iter().all(|one| one.lock == Lock::Free));
    }
}

#[test]
fn a_resumed_or_unlocked_flux_object_ends_the_request() {
    for phase in [UpgradePhase::ScaleDown, UpgradePhase::Snapshot] {
        for is_unlocked in [false, true] {
            let mut cluster = in_phase(phase);
            let live = &mut cluster.real.flux[1];
            live.version = "99".to_owned();
            if is_unlocked {
                // Without the lock, the object is still suspended, and must be resumed.
                live.lock = Lock::Free;
                live.note = None;
            } else {
                live.suspend = Some(false);
                live.suspend_managers = vec!["flux".to_owned()];
            }
            let (reason, message) = ended(&mut cluster);
            assert_eq!(reason, "SuspendReverted", "{phase:?}: {message}");
            assert!(message.contains("HelmRelease 'shop/shop'"), "{message}");
            assert!(is_unlocked || message.contains("by 'flux'"), "{message}");
            cluster.assert_restored("reverted");
        }
    }
}

/// A lock of another request is never taken, and never released.
#[test]
fn a_lock_of_another_request_ends_the_request_at_the_deadline() {
    let mut cluster = Cluster::new();
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Suspend);
    let holder = Holder {
        kind: "UpgradeRequest".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "other".to_owned(),
        uid: "other".to_owned(),
    };
    cluster.real.flux[1].lock = Lock::Held(holder.clone());
    cluster.real.others = vec![OtherRequest {
        holder: holder.clone(),
        app: "other".to_owned(),
        age: (0, "other".to_owned()),
        is_active: true,
    }];
    cluster.pace = 10;
    let (reason, message) = ended(&mut cluster);
    assert_eq!(reason, "LockedByOther", "{message}");
    assert!(message.contains("UpgradeRequest 'shop/other'"), "{message}");
    assert_eq!(cluster.real.flux[0].lock, Lock::Free);
    assert_eq!(cluster.real.flux[1].lock, Lock::Held(holder));
    assert!(!cluster.writes.iter().any(|write| write.contains("scale")));
}

/// Pitfall 22: the UIDs of the plan count, not the names.
#[test]
fn a_recreated_object_ends_the_request() {
    for phase in [UpgradePhase::Suspend, UpgradePhase::ScaleDown] {
        let mut cluster = in_phase(phase);
        cluster.real.flux[1].uid = "another".to_owned();
        cluster.real.flux[1].lock = Lock::Free;
        cluster.real.flux[1].suspend = Some(false);
        let (reason, message) = ended(&mut cluster);
        assert_eq!(reason, "PlanOutdated", "{message}");
        cluster.assert_restored("recreated");
    }
}

/// A snapshot of another claim of the same name would be about other data.
#[test]
fn a_replaced_claim_ends_the_request() {
    let mut cluster = in_phase(UpgradePhase::Snapshot);
    cluster.real.volumes[1].uid = "another".to_owned();
    assert_eq!(ended(&mut cluster).0, "VolumeReplaced");
    cluster.assert_restored("replaced");
}

/// Someone replaced the token, so the controller of Flux handles another one.
#[test]
fn a_replaced_token_is_set_again() {
    let mut cluster = Cluster::new();
    cluster.flux_works = false;
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Suspend);
    cluster.step();
    let live = &mut cluster.real.flux[0];
    live.requested = Some("2030-01-01".to_owned());
    live.version = "99".to_owned();
    cluster.sync();
    cluster.flux_works = true;
    assert_eq!(ended(&mut cluster).0, "PushRejected");
    let count = cluster
        .writes
        .iter()
        .filter(|write| write.contains("Suspend patch"));
    assert_eq!(count.count(), 3, "{:?}", cluster.writes);
    cluster.assert_restored("token");
}

/// R30: after the plan, neither the ManagedApp nor its inventory decides anything.
#[test]
fn r30_the_plan_is_frozen_before_the_first_change() {
    for phase in [
        UpgradePhase::Suspend,
        UpgradePhase::ScaleDown,
        UpgradePhase::Snapshot,
    ] {
        let mut cluster = in_phase(phase);
        let plan = cluster.status().plan;
        cluster.real.app = None;
        assert_eq!(ended(&mut cluster).0, "PushRejected", "{phase:?}");
        assert_eq!(cluster.status().plan, plan);
        assert_eq!(cluster.status().snapshots.len(), 2);
        cluster.assert_restored("frozen");
    }
}
