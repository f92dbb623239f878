//! Requests that wait for others, and locks of requests that were deleted by force.

use api::{
    apps::UpgradePhase,
    claim::{Holder, Lock},
};

use super::{
    cluster::{Cluster, Fault},
    fixtures::{UID, at, world},
};
use crate::upgrade::{
    flux_target::LockNote,
    scale_target::Scale,
    world::{OtherRequest, UpgradeWorld},
};

fn holder(uid: &str) -> Holder {
    Holder {
        kind: "UpgradeRequest".to_owned(),
        namespace: Some("shop".to_owned()),
        name: uid.to_owned(),
        uid: uid.to_owned(),
    }
}

fn other(app: &str, seconds: i64, is_active: bool) -> OtherRequest {
    OtherRequest {
        holder: holder("other"),
        app: app.to_owned(),
        age: (at(seconds).as_second(), "other".to_owned()),
        is_active,
    }
}

/// The cluster that a request left, which was deleted by force in `ScaleDown`.
fn abandoned(uid: &str) -> UpgradeWorld {
    let before = world();
    let mut left = world();
    for one in &mut left.flux {
        one.note = Some(LockNote {
            suspend: one.suspend,
            workloads: before
                .workloads
                .iter()
                .map(|one| one.planned(true))
                .collect(),
        });
        one.suspend = Some(true);
        one.lock = Lock::Held(holder(uid));
    }
    for one in &mut left.workloads {
        one.scale = match one.scale {
            Scale::Replicas { .. } => Scale::Replicas {
                desired: 0,
                current: 0,
                observed: 2,
            },
            Scale::Schedule { .. } => Scale::Schedule {
                suspend: Some(true),
            },
        };
    }
    left.pods.clear();
    left.attachments.clear();
    left
}

/// Only an older active request of the same application is waited for.
#[test]
fn requests_of_an_application_run_one_after_another() {
    for (others, waits) in [
        (vec![], false),
        (vec![other("shop", -20, true)], true),
        (vec![other("shop", -20, false)], false),
        // This request is the older one.
        (vec![other("shop", -5, true)], false),
        (vec![other("web", -20, true)], false),
    ] {
        let context = format!("{others:?}");
        let mut cluster = Cluster::new();
        cluster.real.others = others;
        cluster.sync();
        cluster.step();
        cluster.step();
        let is_waiting = cluster.phase() == UpgradePhase::Pending;
        assert_eq!(is_waiting, waits, "{context}");
        if waits {
            assert_eq!(cluster.reason(), "OperationActive");
            assert!(cluster.message().contains("UpgradeRequest 'shop/other'"));
            assert!(!cluster.has_finalizer);
            cluster.real.others[0].is_active = false;
            cluster.sync();
        }
        cluster.run();
        assert_eq!(cluster.reason(), "PushRejected", "{context}");
    }
}

/// A dry run locks nothing, so it waits for nobody.
#[test]
fn r36_a_dry_run_waits_for_no_other_request() {
    let mut cluster = Cluster::with(abandoned("dead"));
    cluster.request.spec.dry_run = true;
    cluster.real.others = vec![other("shop", -20, true)];
    cluster.sync();
    cluster.step();
    assert_eq!(cluster.phase(), UpgradePhase::Plan);
    cluster.run();
    assert_eq!(cluster.reason(), "AlreadySuspended");
    assert!(cluster.writes.iter().all(|write| write.ends_with("status")));
}

#[test]
fn a_lock_of_an_active_request_is_waited_for() {
    let mut cluster = Cluster::with(abandoned("other"));
    cluster.real.others = vec![other("web", -20, true)];
    cluster.sync();
    for _ in 0..5 {
        cluster.step();
    }
    assert_eq!(cluster.phase(), UpgradePhase::Pending);
    assert!(
        cluster
            .message()
            .contains("is locked by UpgradeRequest 'shop/other'")
    );
    assert!(cluster.writes.iter().all(|write| write.ends_with("status")));
}

/// The next request returns to the state in the lock, with a crash at any write, too.
#[test]
fn a_lock_of_a_deleted_request_is_recovered() {
    // The second one has the UID of the request itself: its status was lost.
    for uid in ["dead", UID] {
        let count = {
            let mut cluster = Cluster::with(abandoned(uid));
            cluster.run();
            let recovered: Vec<&str> = cluster
                .writes
                .iter()
                .map(String::as_str)
                .filter(|write| write.starts_with("Pending") && !write.ends_with("status"))
                .collect();
            assert_eq!(
                recovered,
                [
                    r#"Pending scale db {"replicas":3}"#,
                    r#"Pending scale files {"replicas":1}"#,
                    r#"Pending scale backup {"suspend":null}"#,
                    r#"Pending patch HelmRelease {"suspend":false}"#,
                    r#"Pending patch Kustomization {"suspend":null}"#,
                ],
                "{uid}"
            );
            assert_eq!(cluster.reason(), "PushRejected");
            cluster.assert_restored("recovered");
            cluster.writes.len()
        };
        for number in 0..count {
            for fault in [
                Fault::CrashBefore(number),
                Fault::CrashAfter(number),
                Fault::LostResponse(number),
                Fault::Stale(number),
            ] {
                let mut cluster = Cluster::with(abandoned(uid));
                cluster.fault = Some(fault);
                cluster.run();
                let context = format!("{uid}, {fault:?}: {:?}", cluster.writes);
                cluster.assert_restored(&context);
            }
        }
    }
}

/// Someone scaled up a workload since. Its scale is not replaced.
#[test]
fn a_recovery_changes_only_workloads_at_zero() {
    let mut left = abandoned("dead");
    left.workloads[0].scale = Scale::Replicas {
        desired: 2,
        current: 2,
        observed: 2,
    };
    let mut cluster = Cluster::with(left);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Plan);
    assert_eq!(cluster.real.workloads[0].describe(), "2 replicas");
    assert_eq!(cluster.real.workloads[1].describe(), "1 replica");
    assert!(cluster.real.flux.iter().all(|one| one.lock == Lock::Free));
}

/// An annotation that names no holder is never overwritten.
#[test]
fn an_unreadable_lock_is_waited_for() {
    let mut left = world();
    left.flux[0].lock = Lock::Unreadable;
    let mut cluster = Cluster::with(left);
    cluster.step();
    cluster.step();
    assert_eq!(
        (cluster.phase(), &*cluster.reason()),
        (UpgradePhase::Pending, "OperationActive")
    );
    assert!(
        cluster.message().contains("orchestrator.io/lock"),
        "{}",
        cluster.message()
    );
    cluster.delete();
    assert!(cluster.is_gone);
}
