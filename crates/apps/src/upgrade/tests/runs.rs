//! Whole runs, also with a fault at each write.

use api::{apps::UpgradePhase, decide::FinalizerAction, status::condition};

use super::{
    cluster::{Cluster, Fault},
    delivery::revision,
    fixtures::at,
};
const CHANGING: [UpgradePhase; 4] = [
    UpgradePhase::Suspend,
    UpgradePhase::ScaleDown,
    UpgradePhase::Snapshot,
    UpgradePhase::Undo,
];

/// Returns the number of writes of a run without a fault.
pub(super) fn writes() -> usize {
    let mut cluster = Cluster::new();
    cluster.run();
    cluster.writes.len()
}

/// A request with a rejected push ends as before.
#[test]
fn a_run_stops_the_application_takes_snapshots_and_undoes_everything() {
    let mut cluster = Cluster::new();
    cluster.run();
    cluster.assert_restored("run");
    assert_eq!(
        cluster.phases,
        [
            UpgradePhase::Plan,
            UpgradePhase::Suspend,
            UpgradePhase::ScaleDown,
            UpgradePhase::Snapshot,
            UpgradePhase::GitCommit,
            UpgradePhase::Undo,
            UpgradePhase::Failed,
        ]
    );
    assert_eq!(cluster.reason(), "PushRejected");
    let status = cluster.status();
    let plan = status.plan.as_ref().unwrap();
    let replicas: Vec<_> = plan
        .workloads
        .iter()
        .map(|one| (&*one.name, one.replicas))
        .collect();
    assert_eq!(
        replicas,
        [("backup", None), ("files", Some(1)), ("db", Some(3))]
    );
    assert_eq!(plan.revision, Some(revision(1)));
    assert_eq!((&*plan.chart.from, &*plan.chart.to), ("1.0.0", "2.0.0"));
    assert_eq!(status.snapshots.len(), 2);
    assert!(status.snapshots.iter().all(|one| one.ready_at.is_some()));
    let downtime = status.downtime.as_ref().unwrap();
    let (from, to) = (
        downtime.from.as_ref().unwrap(),
        downtime.to.as_ref().unwrap(),
    );
    assert!(from.0 < to.0, "{downtime:?}");
    // Evidence of each step, in the order of the undo.
    let undone: Vec<String> = status
        .undone
        .iter()
        .map(|one| format!("{} {}: {}", one.object.kind, one.object.name, one.state))
        .collect();
    assert_eq!(
        undone,
        [
            "CronJob backup: not suspended",
            "Deployment files: 1 replica",
            "StatefulSet db: 3 replicas",
            "HelmRelease shop: not suspended",
            "Kustomization shop: not suspended",
        ]
    );
    for kind in ["Suspended", "WorkloadStopped"] {
        assert_eq!(
            status.progress.condition(kind).unwrap().status,
            "False",
            "{kind}"
        );
    }
    assert!(status.progress.condition(condition::FINISHED).is_some());
}

/// The Kustomization is locked before the HelmRelease, and resumed after it.
#[test]
fn flux_is_resumed_in_the_reverse_order_after_the_replica_counts() {
    let mut cluster = Cluster::new();
    cluster.run();
    let changes: Vec<&str> = cluster
        .writes
        .iter()
        .map(String::as_str)
        .filter(|write| write.contains("patch") || write.contains("scale"))
        .collect();
    assert_eq!(
        changes,
        [
            r#"Suspend patch Kustomization {"suspend":true}"#,
            r#"Suspend patch HelmRelease {"suspend":true}"#,
            r#"ScaleDown scale backup {"suspend":true}"#,
            r#"ScaleDown scale files {"replicas":0}"#,
            r#"ScaleDown scale db {"replicas":0}"#,
            r#"Undo scale backup {"suspend":null}"#,
            r#"Undo scale files {"replicas":1}"#,
            r#"Undo scale db {"replicas":3}"#,
            r#"Undo patch HelmRelease {"suspend":false}"#,
            r#"Undo patch Kustomization {"suspend":null}"#,
        ]
    );
}

/// T6: a crash, a lost response and old caches at any write change neither the result nor the cluster.
#[test]
fn r35_a_fault_at_any_write_leaves_nothing_locked_and_nothing_at_zero() {
    for number in 0..writes() {
        for fault in [
            Fault::CrashBefore(number),
            Fault::CrashAfter(number),
            Fault::LostResponse(number),
            Fault::Stale(number),
        ] {
            let mut cluster = Cluster::faulty(fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.writes);
            cluster.assert_restored(&context);
            assert_eq!(cluster.reason(), "PushRejected", "{context}");
            let creates = cluster
                .writes
                .iter()
                .filter(|one| one.contains("create shop-"));
            assert_eq!(creates.count(), 2, "{context}");
        }
    }
}

/// R32, R41, S1.10: a restart begins no wait again, and each phase has its own deadline.
#[test]
fn r32_the_deadline_of_each_phase_is_stored_when_it_begins() {
    let mut cluster = Cluster::new();
    let mut seen = Vec::new();
    for phase in CHANGING {
        cluster.run_until(|cluster| cluster.phase() == phase);
        let begun = cluster.status().progress;
        let (start, end) = (begun.phase_started_at.unwrap(), begun.deadline_at.unwrap());
        seen.push((phase, end.0.as_second() - start.0.as_second()));
        assert!(start.0 >= at(0) && start.0 < cluster.now, "{phase:?}");
        if phase == UpgradePhase::Undo {
            break;
        }
        // A reconciliation in the same phase, by another process.
        cluster.sync();
        cluster.step();
        if cluster.phase() == phase {
            let after = cluster.status().progress;
            assert_eq!(after.phase_started_at.unwrap(), start, "{phase:?}");
        }
    }
    assert_eq!(
        seen,
        [
            (UpgradePhase::Suspend, 120),
            (UpgradePhase::ScaleDown, 300),
            (UpgradePhase::Snapshot, 1800),
            (UpgradePhase::Undo, 600),
        ]
    );
}

/// R36, R41, S1.9: a dry run changes nothing but its own status and its own Job, and never has a finalizer.
#[test]
fn r36_a_dry_run_touches_nothing() {
    for (version, phase, reason) in [
        ("1.0.0", UpgradePhase::Succeeded, "Succeeded"),
        ("1.5.0", UpgradePhase::Failed, "GitAheadOfCluster"),
        ("2.0.0", UpgradePhase::Failed, "NothingToChange"),
    ] {
        let mut cluster = Cluster::new();
        cluster.request.spec.dry_run = true;
        cluster.delivery.version = version.to_owned();
        cluster.run_until(|cluster| {
            assert!(!cluster.has_finalizer);
            false
        });
        assert_eq!((cluster.phase(), &*cluster.reason()), (phase, reason));
        let has_plan = cluster.status().plan.is_some();
        assert_eq!(has_plan, phase == UpgradePhase::Succeeded);
        let others = cluster.writes.iter();
        let others: Vec<&String> = others.filter(|write| !write.ends_with("status")).collect();
        assert_eq!(others, ["Plan create up-plan", "Plan delete up-plan"]);
        cluster.assert_restored("dry run");
    }
}

/// T8: a finished request releases its object, and never changes again.
#[test]
fn a_finished_request_stays_as_it_is() {
    let mut cluster = Cluster::new();
    cluster.run();
    let before = cluster.status();
    let count = cluster.writes.len();
    cluster.real.app = None;
    cluster.sync();
    for _ in 0..5 {
        cluster.step();
    }
    assert_eq!(cluster.status(), before);
    assert_eq!(cluster.writes.len(), count);
    let decision = cluster.decision();
    assert!(matches!(decision.finalizer, FinalizerAction::Remove { .. }));
}
