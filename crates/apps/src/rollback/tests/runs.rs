//! Whole rollbacks on a simulated cluster, also with a fault at each write.

use api::apps::{PushOutcome, RollbackPhase};

use super::{
    cluster::{Push, RollbackCluster},
    storage::{Fault, Storage},
};

fn ended(push: Push) -> RollbackCluster {
    let mut cluster = RollbackCluster::new(push);
    cluster.run();
    cluster
}

/// Git, Helm and the volume are those of before the upgrade, and the replaced volume is retained.
fn assert_returned(cluster: &RollbackCluster, context: &str) {
    cluster.assert_released(context);
    assert_eq!(cluster.commits, 1, "{context}");
    assert_eq!(cluster.version, "1.0.0", "{context}");
    let claim = cluster.storage.claim("data").unwrap();
    assert_eq!(claim["spec"]["volumeName"], "pv-new", "{context}");
    assert_eq!(claim["status"]["phase"], "Bound", "{context}");
    let old = cluster.storage.volume("pv-old").unwrap();
    let policy = &old["spec"]["persistentVolumeReclaimPolicy"];
    assert_eq!(policy, "Retain", "{context}");
}

/// Nothing has changed: neither Git, nor Flux, nor a volume.
fn assert_undone(cluster: &RollbackCluster, context: &str) {
    cluster.assert_released(context);
    assert_eq!(cluster.commits, 0, "{context}");
    assert_eq!(cluster.version, "2.0.0", "{context}");
    assert_eq!(cluster.storage.real, Storage::new().real, "{context}");
}

#[test]
fn a_rollback_returns_git_helm_and_the_volume_together() {
    let cluster = ended(Push::Accepted);
    assert_eq!(
        cluster.phases,
        [
            RollbackPhase::Plan,
            RollbackPhase::Suspend,
            RollbackPhase::ScaleDown,
            RollbackPhase::VolumeRestore,
            RollbackPhase::GitRevert,
            RollbackPhase::VolumeSwap,
            RollbackPhase::Reconcile,
            RollbackPhase::HealthCheck,
            RollbackPhase::Succeeded,
        ],
        "{}",
        cluster.message()
    );
    assert_returned(&cluster, "run");
    let status = cluster.status();
    let evidence = status.evidence.unwrap();
    let release = evidence.release.unwrap();
    assert_eq!((&*release.chart_version, release.version), ("1.0.0", 5));
    assert_eq!(status.commit.unwrap().id, evidence.commit);
    for kind in [
        "VolumesRestored",
        "VolumesSwapped",
        "GitCommitted",
        "Healthy",
    ] {
        let found = status.progress.condition(kind).unwrap();
        assert_eq!(found.status, "True", "{kind}");
    }
}

/// All workloads of the inventory are stopped before a volume is restored, and no claim is deleted before the commit.
#[test]
fn the_writes_come_in_the_order_of_the_phases() {
    let cluster = ended(Push::Accepted);
    let position = |text: &str| {
        let mut writes = cluster.storage.writes.iter();
        let found = writes.position(|write| write.ends_with(text));
        found.unwrap_or_else(|| panic!("{text}: {:?}", cluster.storage.writes))
    };
    let order = [
        "create back-plan",
        r#"patch Kustomization {"suspend":true}"#,
        r#"scale web {"replicas":0}"#,
        "create PersistentVolumeClaim data-restore-01234567",
        "create back-commit",
        "delete PersistentVolumeClaim data-restore-01234567",
        "delete PersistentVolumeClaim data",
        "patch GitRepository",
        r#"patch Kustomization {"suspend":null}"#,
        r#"patch HelmRelease {"suspend":false}"#,
        r#"scale web {"replicas":1}"#,
    ];
    let positions: Vec<usize> = order.map(position).into();
    assert!(
        positions.windows(2).all(|pair| pair[0] <= pair[1]),
        "{positions:?}: {:?}",
        cluster.storage.writes
    );
}

/// T6: a crash, a lost response and old caches at any write lead to the same end, with one commit.
#[test]
fn r37_a_fault_at_any_write_of_a_rollback_changes_nothing() {
    let count = ended(Push::Accepted).storage.writes.len();
    for number in 0..count {
        for fault in Fault::all(number) {
            let mut cluster = RollbackCluster::faulty(Push::Accepted, fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.storage.writes);
            assert_eq!(cluster.phase(), RollbackPhase::Succeeded, "{context}");
            assert_returned(&cluster, &context);
        }
    }
}

/// R39: the next attempt finds the commit of a push without a response.
#[test]
fn r39_an_unknown_outcome_of_a_rollback_is_found() {
    let cluster = ended(Push::AcceptedSilently);
    assert_returned(&cluster, "found");
    let commit = cluster.status().commit.unwrap();
    assert_eq!(commit.outcome, PushOutcome::Found);
}

/// A rejected push ends the request before anything is lost, also with a fault at each write.
#[test]
fn a_rejected_push_leaves_everything_as_before() {
    let cluster = ended(Push::Rejected);
    assert_eq!(cluster.reason(), "PushRejected", "{}", cluster.message());
    assert_undone(&cluster, "rejected");
    let count = cluster.storage.writes.len();
    for number in 0..count {
        for fault in Fault::all(number) {
            let mut cluster = RollbackCluster::faulty(Push::Rejected, fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.storage.writes);
            assert_eq!(cluster.phase(), RollbackPhase::Failed, "{context}");
            assert_undone(&cluster, &context);
        }
    }
}

/// R35: a deletion before the commit undoes the rollback, and a later one completes it.
#[test]
fn r35_a_deletion_at_any_time_undoes_or_completes_the_rollback() {
    let mut seen = Vec::new();
    for steps in 0..90 {
        let mut cluster = RollbackCluster::new(Push::Accepted);
        for _ in 0..steps {
            cluster.step();
        }
        let phase = cluster.phase();
        if !seen.contains(&phase) {
            seen.push(phase);
        }
        cluster.delete();
        cluster.run();
        let writes = &cluster.storage.writes;
        let context = format!("after {steps} steps, in {phase:?}: {writes:?}");
        assert!(cluster.is_gone, "{context}");
        if cluster.commits == 0 {
            assert_undone(&cluster, &context);
        } else {
            assert_returned(&cluster, &context);
        }
    }
    for phase in [
        RollbackPhase::Suspend,
        RollbackPhase::ScaleDown,
        RollbackPhase::VolumeRestore,
        RollbackPhase::GitRevert,
        RollbackPhase::VolumeSwap,
        RollbackPhase::Reconcile,
        RollbackPhase::HealthCheck,
    ] {
        assert!(seen.contains(&phase), "{phase:?} was not tested: {seen:?}");
    }
}
