//! Upgrades with a pushed commit, also with a fault at each write.

use std::sync::Arc;

use api::{
    apps::{PushOutcome, UpgradePhase},
    status::condition,
};

use super::{
    cluster::{Cluster, Fault},
    delivery::{Apply, Push, revision},
    fixtures::replicas,
};
use crate::world::Seen;

fn faults(number: usize) -> [Fault; 4] {
    [
        Fault::CrashBefore(number),
        Fault::CrashAfter(number),
        Fault::LostResponse(number),
        Fault::Stale(number),
    ]
}

/// Runs to the end.
fn ended(mut cluster: Cluster) -> Cluster {
    cluster.run();
    cluster
}

fn applying(apply: Apply) -> Cluster {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.delivery.apply = apply;
    cluster
}

#[test]
fn an_upgrade_succeeds_with_its_evidence() {
    let cluster = ended(Cluster::pushing(Push::Accepted));
    cluster.assert_committed("run");
    assert_eq!(
        cluster.phases,
        [
            UpgradePhase::Plan,
            UpgradePhase::Suspend,
            UpgradePhase::ScaleDown,
            UpgradePhase::Snapshot,
            UpgradePhase::GitCommit,
            UpgradePhase::Reconcile,
            UpgradePhase::HealthCheck,
            UpgradePhase::Succeeded,
        ]
    );
    let status = cluster.status();
    let evidence = status.evidence.as_ref().unwrap();
    let commit = status.commit.as_ref().unwrap();
    assert_eq!(evidence.revision, revision(2));
    assert_eq!(evidence.revision, format!("main@sha1:{}", evidence.commit));
    assert_eq!(evidence.commit, commit.id);
    assert_eq!(commit.outcome, PushOutcome::Pushed);
    let release = evidence.release.as_ref().unwrap();
    assert_eq!((&*release.chart_version, release.version), ("2.0.0", 4));
    assert_eq!(evidence.images, ["postgres:2.0.0"]);
    let downtime = status.downtime.as_ref().unwrap();
    let (from, to) = (downtime.from.as_ref(), downtime.to.as_ref());
    assert!(from.unwrap().0 < to.unwrap().0, "{downtime:?}");
    for (kind, value) in [
        ("GitCommitted", "True"),
        ("Reconciled", "True"),
        ("Healthy", "True"),
        ("Suspended", "False"),
        ("WorkloadStopped", "False"),
        (condition::SUCCEEDED, "True"),
    ] {
        let found = status.progress.condition(kind).unwrap();
        assert_eq!(found.status, value, "{kind}");
    }
    assert_eq!(cluster.real.commit.jobs.len(), 0, "the Jobs are deleted");
}

/// Pitfalls 3 and 4: the HelmRelease is resumed when its live spec has the new version, and the counts come last.
#[test]
fn flux_is_resumed_in_the_order_of_its_appliers_and_before_the_replica_counts() {
    let cluster = ended(Cluster::pushing(Push::Accepted));
    let changes: Vec<&str> = cluster
        .writes
        .iter()
        .filter_map(|write| write.strip_prefix("Reconcile "))
        .filter(|write| write.contains("patch") || write.contains("scale"))
        .collect();
    assert_eq!(
        changes,
        [
            "patch GitRepository",
            r#"patch Kustomization {"suspend":null}"#,
            r#"patch HelmRelease {"suspend":false}"#,
            r#"scale backup {"suspend":null}"#,
            r#"scale files {"replicas":1}"#,
            r#"scale db {"replicas":3}"#,
        ]
    );
}

/// Helm may wait for a workload that the operator has stopped. It starts as soon as its template has the new version.
#[test]
fn a_workload_with_the_new_template_starts_before_the_release_is_deployed() {
    let cluster = ended(applying(Apply::Waiting));
    cluster.assert_committed("waiting");
    let scaled: Vec<&str> = cluster
        .writes
        .iter()
        .filter_map(|write| write.strip_prefix("Reconcile scale "))
        .collect();
    assert_eq!(
        scaled,
        [
            r#"db {"replicas":3}"#,
            r#"backup {"suspend":null}"#,
            r#"files {"replicas":1}"#,
        ]
    );
    for number in 0..cluster.writes.len() {
        for fault in faults(number) {
            let mut cluster = applying(Apply::Waiting);
            cluster.fault = Some(fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.writes);
            cluster.assert_committed(&context);
            assert_eq!(cluster.phase(), UpgradePhase::Succeeded, "{context}");
        }
    }
}

/// R39, T6: a crash, a lost response and old caches at any write leave one commit, and the upgrade succeeds.
#[test]
fn r39_a_fault_at_any_write_leaves_one_commit() {
    let count = ended(Cluster::pushing(Push::Accepted)).writes.len();
    for number in 0..count {
        for fault in faults(number) {
            let mut cluster = Cluster::pushing(Push::Accepted);
            cluster.fault = Some(fault);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.writes);
            cluster.assert_committed(&context);
            assert_eq!(cluster.phase(), UpgradePhase::Succeeded, "{context}");
        }
    }
}

/// The intent is stored in the status before the Job is created.
#[test]
fn the_intent_is_stored_before_the_push() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::GitCommit);
    let status = cluster.status();
    let base = &status.plan.as_ref().unwrap().commit.base;
    let uid = super::fixtures::UID;
    assert_eq!(status.intent, Some(format!("push {base} {uid}")));
    assert_eq!(cluster.real.commit.job("up-commit"), None);
    cluster.step();
    assert!(cluster.real.commit.job("up-commit").is_some());
}

/// A push without a response, and a Pod on a lost node: the next attempt finds the commit.
#[test]
fn r39_an_unknown_outcome_is_found_by_the_next_attempt() {
    for push in [Push::AcceptedSilently, Push::NodeLost] {
        let cluster = ended(Cluster::pushing(push));
        cluster.assert_committed("found");
        let status = cluster.status();
        assert_eq!(
            status.commit.unwrap().outcome,
            PushOutcome::Found,
            "{push:?}"
        );
        let creates = cluster.writes.iter();
        let creates = creates.filter(|write| write.contains("create up-commit"));
        assert_eq!(creates.count(), 2, "{push:?}: {:?}", cluster.writes);
    }
}

/// Failures before the commit are undone, with their reason.
#[test]
fn a_push_that_certainly_failed_is_undone() {
    for (push, reason) in [
        (Push::Rejected, "PushRejected"),
        (Push::Changed, "VersionChangedInGit"),
        (Push::Moved, "BranchMoved"),
        (Push::Blocked, "CommitFailed"),
    ] {
        let cluster = ended(Cluster::pushing(push));
        assert_eq!(cluster.reason(), reason, "{}", cluster.message());
        cluster.assert_restored(reason);
        assert!(cluster.message().ends_with("Everything is as before"));
    }
}

/// `busy-branch`: others are faster for some time.
#[test]
fn a_branch_that_moves_for_some_time_gets_the_commit_once() {
    let mut cluster = Cluster::pushing(Push::Moved);
    cluster.run_until(|cluster| {
        let push = cluster.status().push;
        push.is_some_and(|push| push.number == 3)
    });
    cluster.delivery.push = Push::Accepted;
    cluster.run();
    cluster.assert_committed("busy branch");
    assert_eq!(cluster.phase(), UpgradePhase::Succeeded);
}

/// After ten minutes, the outcome stays unknown: the snapshots are kept, and Flux is resumed.
#[test]
fn an_outcome_that_stays_unknown_keeps_the_snapshots() {
    let mut cluster = Cluster::pushing(Push::Lost);
    cluster.pace = 5;
    cluster.run();
    assert_eq!(
        cluster.reason(),
        "PushOutcomeUnknown",
        "{}",
        cluster.message()
    );
    assert!(
        cluster.message().contains("git log"),
        "{}",
        cluster.message()
    );
    cluster.assert_released("unknown");
    assert!(
        cluster
            .real
            .snapshots
            .all()
            .iter()
            .all(|one| !one.is_deleting)
    );
    assert_eq!(cluster.real.snapshots.all().len(), 2);
    let creates = cluster.writes.iter();
    let creates = creates.filter(|write| write.contains("create up-commit"));
    assert!((2..=40).contains(&creates.count()));
}

/// Failures after the commit: Flux is resumed, the counts are restored, and the snapshots are kept.
#[test]
fn a_version_that_is_not_applied_ends_the_request() {
    for (apply, reason, is_immediate) in [
        (Apply::NotFetched, "SourceNotUpdated", false),
        (Apply::NoEffect, "CommitHadNoEffect", true),
        (Apply::RolledBack, "HelmRemediated", true),
        (Apply::Stalled, "HelmUpgradeFailed", true),
        (Apply::Failing, "HelmUpgradeFailed", false),
    ] {
        let mut cluster = applying(apply);
        cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Reconcile);
        let start = cluster.now;
        cluster.pace = 5;
        cluster.run();
        assert_eq!(cluster.reason(), reason, "{apply:?}: {}", cluster.message());
        assert!(
            cluster.message().contains("stays on the branch"),
            "{}",
            cluster.message()
        );
        // The number of attempts is not the cause.
        let is_named = cluster
            .message()
            .contains("UpgradeFailed: the new version crashes");
        assert_eq!(
            is_named,
            reason == "HelmUpgradeFailed",
            "{apply:?}: {}",
            cluster.message()
        );
        cluster.assert_committed(reason);
        let failure = cluster.status().failure.unwrap();
        assert_eq!(failure.phase, UpgradePhase::Reconcile, "{apply:?}");
        let seconds = cluster.now.as_second() - start.as_second();
        assert_eq!(seconds < 200, is_immediate, "{apply:?}: {seconds} s");
    }
}

/// False success "HealthCheck": 0 of 0 ready, not ready, and ready for a moment.
#[test]
fn r33_an_application_must_be_healthy_for_some_time() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::HealthCheck);
    let deadline = cluster.status().progress.deadline_at;
    // An interruption begins the time again, and moves no deadline.
    cluster.run_until(|cluster| cluster.status().healthy_since.is_some());
    let first = cluster.status().healthy_since;
    cluster.delivery.is_unhealthy = true;
    cluster.run_until(|cluster| cluster.status().healthy_since.is_none());
    assert!(cluster.message().contains("db"), "{}", cluster.message());
    cluster.delivery.is_unhealthy = false;
    cluster.run();
    let status = cluster.status();
    assert_eq!(cluster.phase(), UpgradePhase::Succeeded);
    assert!(status.healthy_since > first);
    let since = status.evidence.unwrap().healthy_since;
    let seconds = cluster.now.as_second() - since.0.as_second();
    assert!((30..40).contains(&seconds), "{seconds}");
    assert!(deadline.is_some());
    cluster.assert_committed("interrupted");
}

/// R32: an application that never gets healthy ends the request at the stored deadline.
#[test]
fn r32_an_application_that_stays_unhealthy_ends_the_request() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::HealthCheck);
    cluster.delivery.is_unhealthy = true;
    cluster.pace = 10;
    let start = cluster.now;
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Undo);
    let seconds = cluster.now.as_second() - start.as_second();
    assert!((290..=340).contains(&seconds), "{seconds}");
    cluster.run();
    assert_eq!(cluster.reason(), "Unhealthy", "{}", cluster.message());
    assert!(cluster.message().contains("db"), "{}", cluster.message());
    cluster.assert_committed("unhealthy");
}

/// Someone scales the workload to zero after the upgrade. 0 of 0 is not healthy, and the scale is theirs.
#[test]
fn r33_zero_of_zero_is_not_healthy() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::HealthCheck);
    let live = &mut cluster.real.workloads[0];
    live.scale = replicas(0);
    live.version = "99".to_owned();
    cluster.pace = 10;
    cluster.run();
    assert_eq!(cluster.reason(), "Unhealthy", "{}", cluster.message());
    assert!(cluster.real.workloads[0].is_at_zero());
}

/// With hooks that need the old version, it runs again before the commit.
#[test]
fn the_old_version_runs_for_the_hooks_of_the_chart() {
    let run = |fault: Option<Fault>| {
        let mut cluster = Cluster::pushing(Push::Accepted);
        cluster.real.app.as_mut().unwrap().has_upgrade_hooks = Some(true);
        cluster.sync();
        cluster.fault = fault;
        ended(cluster)
    };
    let cluster = run(None);
    cluster.assert_committed("hooks");
    let scaled: Vec<&str> = cluster
        .writes
        .iter()
        .filter_map(|write| write.strip_prefix("Snapshot scale "))
        .collect();
    assert_eq!(
        scaled,
        [
            r#"backup {"suspend":null}"#,
            r#"files {"replicas":1}"#,
            r#"db {"replicas":3}"#,
        ]
    );
    assert!(
        !cluster
            .writes
            .iter()
            .any(|write| write.contains("Reconcile scale"))
    );
    for number in 0..cluster.writes.len() {
        for fault in faults(number) {
            let cluster = run(Some(fault));
            let context = format!("{fault:?}: {:?}", cluster.writes);
            cluster.assert_committed(&context);
            assert_eq!(cluster.phase(), UpgradePhase::Succeeded, "{context}");
        }
    }
}

/// Others push before and after the commit. Flux must have fetched the branch after the push.
#[test]
fn commits_of_others_are_not_taken_for_the_commit() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Reconcile);
    cluster.flux_works = false;
    // A commit of others from before the push, which Flux has fetched at its interval.
    let Seen::Present(source) = &mut cluster.real.source else {
        panic!("no source");
    };
    Arc::make_mut(source).revision = Some(revision(7));
    cluster.sync();
    for _ in 0..3 {
        cluster.step();
    }
    assert!(cluster.real.flux.iter().all(|one| one.is_suspended()));
    // Others push on top, so no revision names the commit of the request.
    cluster.delivery.others = 4;
    cluster.flux_works = true;
    cluster.run();
    assert_eq!(
        cluster.phase(),
        UpgradePhase::Succeeded,
        "{}",
        cluster.message()
    );
    assert_eq!(cluster.status().evidence.unwrap().revision, revision(6));
    cluster.assert_committed("others");
}

/// A change of values may have caused a release after the plan, with the old chart. It is no rollback of the upgrade.
#[test]
fn a_release_between_the_plan_and_the_suspension_is_no_rollback() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Suspend);
    cluster.delivery.release.version = 9;
    cluster.run();
    assert_eq!(
        cluster.phase(),
        UpgradePhase::Succeeded,
        "{}",
        cluster.message()
    );
    let evidence = cluster.status().evidence.unwrap();
    assert_eq!(evidence.release.unwrap().version, 10);
    cluster.assert_committed("another release");
}

/// The old version does not get healthy after the snapshots, so nothing is pushed.
#[test]
fn an_old_version_that_does_not_start_again_ends_the_request() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.real.app.as_mut().unwrap().has_upgrade_hooks = Some(true);
    cluster.sync();
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Snapshot);
    cluster.delivery.is_unhealthy = true;
    cluster.pace = 10;
    cluster.run();
    assert_eq!(cluster.reason(), "Unhealthy", "{}", cluster.message());
    cluster.assert_restored("old version");
}

/// R35: a request that is deleted before the commit is undone, and one that is deleted after it is completed.
#[test]
fn r35_a_deletion_at_any_time_undoes_or_completes_the_upgrade() {
    let mut seen = Vec::new();
    for push in [Push::Accepted, Push::AcceptedSilently] {
        for steps in 0..90 {
            let mut cluster = Cluster::pushing(push);
            for _ in 0..steps {
                cluster.step();
            }
            let phase = cluster.phase();
            if !seen.contains(&phase) {
                seen.push(phase);
            }
            cluster.delete();
            cluster.run();
            let context = format!(
                "{push:?} after {steps} steps, in {phase:?}: {:?}",
                cluster.writes
            );
            assert!(cluster.is_gone, "{context}");
            if cluster.delivery.commits.is_empty() {
                cluster.assert_restored(&context);
            } else {
                cluster.assert_committed(&context);
            }
        }
    }
    for phase in [
        UpgradePhase::GitCommit,
        UpgradePhase::Reconcile,
        UpgradePhase::HealthCheck,
        UpgradePhase::Succeeded,
    ] {
        assert!(seen.contains(&phase), "{phase:?} was not tested: {seen:?}");
    }
}

/// R35: a fault at each write of a request that is deleted after its push.
#[test]
fn r35_a_fault_during_a_late_deletion_changes_nothing() {
    let count = ended(Cluster::pushing(Push::Accepted)).writes.len();
    for phase in [
        UpgradePhase::GitCommit,
        UpgradePhase::Reconcile,
        UpgradePhase::HealthCheck,
    ] {
        for number in 0..count {
            for fault in faults(number) {
                let mut cluster = Cluster::pushing(Push::Accepted);
                cluster.fault = Some(fault);
                cluster.run_until(|cluster| cluster.phase() == phase);
                cluster.step();
                cluster.delete();
                cluster.run();
                let context = format!("{phase:?}, {fault:?}: {:?}", cluster.writes);
                assert!(cluster.is_gone, "{context}");
                if cluster.delivery.commits.is_empty() {
                    cluster.assert_restored(&context);
                } else {
                    cluster.assert_committed(&context);
                }
            }
        }
    }
}
