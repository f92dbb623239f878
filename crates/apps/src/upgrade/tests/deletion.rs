//! A request that is deleted in any phase, also with a fault (R35).

use api::{apps::UpgradePhase, names};

use super::{
    cluster::{Cluster, Fault},
    runs::writes,
};

/// Deletes the request after each reconciliation of a run.
#[test]
fn r35_a_deletion_at_any_time_leaves_nothing_locked_and_nothing_at_zero() {
    let mut seen = Vec::new();
    for steps in 0..80 {
        let mut cluster = Cluster::new();
        for _ in 0..steps {
            cluster.step();
        }
        let phase = cluster.phase();
        if !seen.contains(&phase) {
            seen.push(phase);
        }
        cluster.delete();
        cluster.run();
        let context = format!("after {steps} steps, in {phase:?}: {:?}", cluster.writes);
        assert!(cluster.is_gone, "{context}");
        cluster.assert_restored(&context);
    }
    for phase in [
        UpgradePhase::Pending,
        UpgradePhase::Plan,
        UpgradePhase::Suspend,
        UpgradePhase::ScaleDown,
        UpgradePhase::Snapshot,
        UpgradePhase::Undo,
        UpgradePhase::Failed,
    ] {
        assert!(seen.contains(&phase), "{phase:?} was not tested: {seen:?}");
    }
}

/// Deletes the request in each phase, with a fault at each later write.
#[test]
fn r35_a_fault_during_a_deletion_changes_nothing() {
    for phase in [
        UpgradePhase::Suspend,
        UpgradePhase::ScaleDown,
        UpgradePhase::Snapshot,
        UpgradePhase::Undo,
    ] {
        for number in 0..writes() {
            for fault in [
                Fault::CrashBefore(number),
                Fault::CrashAfter(number),
                Fault::LostResponse(number),
                Fault::Stale(number),
            ] {
                let mut cluster = Cluster::faulty(fault);
                cluster.run_until(|cluster| cluster.phase() == phase);
                cluster.step();
                cluster.delete();
                cluster.run();
                let context = format!("{phase:?}, {fault:?}: {:?}", cluster.writes);
                assert!(cluster.is_gone, "{context}");
                cluster.assert_restored(&context);
            }
        }
    }
}

/// A user can let a request go without an undo. A status names the objects that are left.
#[test]
fn a_forced_deletion_names_the_objects_that_are_left() {
    for (phase, parts) in [
        (
            UpgradePhase::ScaleDown,
            &["HelmRelease 'shop/shop' is suspended"][..],
        ),
        (
            UpgradePhase::Snapshot,
            &[
                "Kustomization 'shop/shop' is suspended",
                "StatefulSet 'shop/db' is stopped",
            ][..],
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.run_until(|cluster| cluster.phase() == phase);
        cluster.step();
        let annotations = [(names::FORCE_DELETE.to_owned(), "true".to_owned())];
        cluster.request.metadata.annotations = Some(annotations.into());
        cluster.delete();
        cluster.step();
        assert_eq!(cluster.reason(), "ForceDeleted", "{phase:?}");
        for part in parts {
            assert!(cluster.message().contains(part), "{}", cluster.message());
        }
        cluster.step();
        assert!(cluster.is_gone, "{phase:?}");
        assert!(cluster.real.flux.iter().all(|one| one.is_suspended()));
    }
}

/// An undo that cannot continue reports its blocker, and continues when the blocker is gone.
#[test]
fn an_undo_that_takes_too_long_is_reported_and_continues() {
    for is_deleted in [false, true] {
        let mut cluster = Cluster::new();
        cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Snapshot);
        cluster.step();
        cluster.step();
        cluster.keep_snapshots = true;
        if is_deleted {
            cluster.delete();
        }
        let late = if is_deleted {
            "DeletionBlocked"
        } else {
            "UndoBlocked"
        };
        cluster.run_until(|cluster| cluster.reason() == late);
        assert!(
            cluster.message().contains("VolumeSnapshot"),
            "{}",
            cluster.message()
        );
        // Flux and the workloads do not wait for the snapshots.
        assert!(cluster.real.flux.iter().all(|one| !one.is_suspended()));
        assert!(cluster.real.workloads.iter().all(|one| !one.is_at_zero()));
        cluster.keep_snapshots = false;
        cluster.run();
        cluster.assert_restored("blocked");
    }
}
