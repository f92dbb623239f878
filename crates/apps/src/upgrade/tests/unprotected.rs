//! Upgrades without snapshots: Flux is locked and not suspended, and the application keeps running.

use api::{
    apps::{TimeoutSettings, UpgradePhase},
    claim::Lock,
};

use super::{
    cluster::{Cluster, Fault},
    delivery::{Apply, Push},
};
use crate::upgrade::storage::Snapshots;

fn cluster(push: Push) -> Cluster {
    let mut cluster = Cluster::pushing(push);
    cluster.request.spec.skip_snapshot = true;
    // No snapshot is taken, so the API server need not serve them.
    cluster.real.snapshots = Snapshots::NotInstalled;
    cluster.sync();
    cluster
}

/// Nothing is stopped, suspended or copied.
fn assert_never_stopped(cluster: &Cluster, context: &str) {
    for write in &cluster.writes {
        let is_stop = write.contains("scale") || write.contains(r#""suspend":true"#);
        let is_snapshot = write.contains("create shop-");
        assert!(!is_stop && !is_snapshot, "{write}: {context}");
    }
    cluster.assert_released(context);
    assert_eq!(cluster.status().downtime, None, "{context}");
}

#[test]
fn an_upgrade_without_snapshots_has_no_downtime() {
    let mut cluster = cluster(Push::Accepted);
    cluster.run();
    assert_eq!(
        cluster.phases,
        [
            UpgradePhase::Plan,
            UpgradePhase::Suspend,
            UpgradePhase::GitCommit,
            UpgradePhase::Reconcile,
            UpgradePhase::HealthCheck,
            UpgradePhase::Succeeded,
        ],
        "{}",
        cluster.message()
    );
    assert_never_stopped(&cluster, "run");
    let plan = cluster.status().plan.unwrap();
    assert!(plan.workloads.is_empty() && plan.volumes.is_empty());
    let warned = plan.warnings.iter().any(|one| one.contains("only Git"));
    assert!(warned, "{:?}", plan.warnings);
    assert_eq!(cluster.delivery.commits.len(), 1);
}

/// The locks are taken before the push, so no other request begins.
#[test]
fn flux_is_locked_before_the_push() {
    let mut cluster = cluster(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::GitCommit);
    for one in &cluster.real.flux {
        assert!(matches!(one.lock, Lock::Held(_)), "{one:?}");
        assert!(!one.is_suspended());
    }
}

/// T6: a crash, a lost response and old caches at any write leave one commit, or none if the server rejects it.
#[test]
fn a_fault_at_any_write_leaves_one_commit_or_none() {
    for (push, expected) in [(Push::Accepted, 1), (Push::Rejected, 0)] {
        let count = {
            let mut cluster = cluster(push);
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
                let mut cluster = cluster(push);
                cluster.fault = Some(fault);
                cluster.run();
                let context = format!("{push:?}, {fault:?}: {:?}", cluster.writes);
                assert_never_stopped(&cluster, &context);
                assert_eq!(cluster.delivery.commits.len(), expected, "{context}");
            }
        }
    }
}

/// R35: a deletion at any time releases the locks.
#[test]
fn r35_a_deletion_at_any_time_releases_the_locks() {
    for steps in 0..60 {
        let mut cluster = cluster(Push::Accepted);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.delete();
        cluster.run();
        assert_never_stopped(&cluster, &format!("{steps} steps"));
    }
}

/// A failure after the commit keeps it, as for any upgrade.
#[test]
fn a_failure_after_the_commit_releases_the_locks() {
    let mut cluster = cluster(Push::Accepted);
    cluster.delivery.apply = Apply::Stalled;
    cluster.run();
    assert_eq!(cluster.reason(), "HelmUpgradeFailed");
    assert_never_stopped(&cluster, "stalled");
    assert_eq!(cluster.delivery.commits.len(), 1);
}

/// S1.12: the plan freezes the timeouts of the ManagedApp, so a later change moves no deadline of the request.
#[test]
fn s1_12_the_plan_freezes_the_timeouts_of_the_application() {
    let mut cluster = Cluster::new();
    let state = cluster.real.app.as_mut().unwrap();
    let spec = &mut std::sync::Arc::make_mut(&mut state.app).spec;
    let seconds = std::time::Duration::from_secs(77);
    spec.phase_timeouts = TimeoutSettings {
        scale_down: Some(seconds.into()),
        ..TimeoutSettings::default()
    };
    cluster.sync();
    cluster.run_until(|cluster| cluster.status().plan.is_some());
    let timeouts = cluster.status().plan.unwrap().timeouts;
    assert_eq!(std::time::Duration::from(timeouts.scale_down), seconds);
    assert_eq!(cluster.request.timeouts().scale_down, timeouts.scale_down);
}

/// S1.12, R32: the time for the plan is stored before the phase begins, so its deadline never moves.
#[test]
fn s1_12_the_time_for_a_plan_is_that_of_the_application() {
    // Columns: the setting, the time for the plan, the phases with a status before the phase Plan.
    for (setting, expected, before) in [(None, 120, 0), (Some(77), 77, 1)] {
        let mut cluster = Cluster::new();
        let state = cluster.real.app.as_mut().unwrap();
        let spec = &mut std::sync::Arc::make_mut(&mut state.app).spec;
        let setting = setting.map(std::time::Duration::from_secs);
        spec.phase_timeouts.plan = setting.map(Into::into);
        cluster.sync();
        cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Plan);
        let writes = cluster.writes.iter();
        let writes = writes.filter(|write| write.starts_with("Pending")).count();
        assert_eq!(writes, before + 1, "{setting:?}");
        let progress = cluster.status().progress;
        let (start, end) = (progress.phase_started_at, progress.deadline_at);
        let seconds = end.unwrap().0.as_second() - start.unwrap().0.as_second();
        assert_eq!(seconds, expected, "{setting:?}");
        cluster.run();
        assert_eq!(cluster.reason(), "PushRejected", "{setting:?}");
    }
}
