//! Failed upgrades whose application wants an automatic rollback (R34), also with a fault at each write.

use std::sync::Arc;

use api::apps::UpgradePhase;

use super::{
    cluster::{Cluster, Fault},
    delivery::{Apply, Push},
};

fn cluster(push: Push, apply: Apply, auto_rollback: bool) -> Cluster {
    let mut cluster = Cluster::pushing(push);
    cluster.delivery.apply = apply;
    let state = cluster.real.app.as_mut().unwrap();
    Arc::make_mut(&mut state.app).spec.auto_rollback = auto_rollback;
    cluster.sync();
    cluster
}

fn rollbacks(cluster: &Cluster) -> Vec<String> {
    let all = cluster.real.rollbacks.iter();
    all.filter_map(|one| one.metadata.name.clone()).collect()
}

/// R34: only an upgrade that failed after its commit is rolled back, and only if its application wants it.
#[test]
fn r34_a_failure_after_the_commit_creates_one_rollback() {
    // Columns: behavior of the Git server, of Flux, whether the application wants it, whether a rollback is created.
    for (push, apply, is_wanted, expected) in [
        (Push::Accepted, Apply::Stalled, true, true),
        (Push::Accepted, Apply::RolledBack, true, true),
        (Push::Accepted, Apply::NoEffect, true, true),
        (Push::Accepted, Apply::Stalled, false, false),
        (Push::Accepted, Apply::Deployed, true, false),
        (Push::Rejected, Apply::Deployed, true, false),
    ] {
        let mut cluster = cluster(push, apply, is_wanted);
        cluster.run();
        let context = format!("{push:?}, {apply:?}, {is_wanted}: {}", cluster.message());
        let names = rollbacks(&cluster);
        if expected {
            assert_eq!(names, ["up-rollback"], "{context}");
            assert_eq!(cluster.phase(), UpgradePhase::Failed, "{context}");
            let named = cluster.status().rollback.unwrap();
            assert_eq!(named.name, "up-rollback", "{context}");
            assert!(cluster.message().contains("'up-rollback'"), "{context}");
        } else {
            assert_eq!(names, [""; 0], "{context}");
            assert_eq!(cluster.status().rollback, None, "{context}");
        }
        assert!(!cluster.has_finalizer, "{context}");
    }
}

/// R34, T6: a crash, a lost response and old caches at any write create one rollback, after the terminal status.
#[test]
fn r34_a_fault_at_any_write_leaves_one_rollback() {
    let count = {
        let mut cluster = cluster(Push::Accepted, Apply::Stalled, true);
        cluster.run();
        cluster.writes.len()
    };
    for number in 0..count {
        for fault in [
            Fault::CrashBefore(number),
            Fault::CrashAfter(number),
            Fault::LostResponse(number),
            Fault::Stale(number),
        ] {
            let mut cluster = cluster(Push::Accepted, Apply::Stalled, true);
            cluster.fault = Some(fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.writes);
            assert_eq!(cluster.reason(), "HelmUpgradeFailed", "{context}");
            assert_eq!(rollbacks(&cluster), ["up-rollback"], "{context}");
            let creates = cluster.writes.iter();
            let creates = creates.filter(|write| write.contains("create up-rollback"));
            assert_eq!(creates.count(), 1, "{context}");
        }
    }
}

/// A user deleted the rollback. A later reconciliation of the ended upgrade, for example after a restart, creates none.
#[test]
fn r34_a_deleted_rollback_is_not_created_again() {
    let mut cluster = cluster(Push::Accepted, Apply::Stalled, true);
    cluster.run();
    cluster.real.rollbacks.clear();
    cluster.sync();
    cluster.step();
    assert_eq!(rollbacks(&cluster), [""; 0]);
}

/// A deletion between the terminal status and the creation releases the upgrade without a rollback.
#[test]
fn an_upgrade_that_is_deleted_at_its_end_gets_no_rollback() {
    let mut cluster = cluster(Push::Accepted, Apply::Stalled, true);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Failed);
    assert!(cluster.has_finalizer);
    cluster.delete();
    cluster.step();
    assert!(cluster.is_gone);
    assert_eq!(rollbacks(&cluster), [""; 0]);
}
