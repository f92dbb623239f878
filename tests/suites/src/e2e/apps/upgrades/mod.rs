//! UpgradeRequests and RollbackRequests on the real node, with the real controllers of Flux and of snapshots, a Git server
//! and charts.
//!
//! The evidence is the data in the volumes, the Git server's own log, the objects of Flux and the audit log. A status of the
//! operator is compared with them, and is no evidence by itself.

mod approval;
mod branch;
mod control;
mod database;
mod delete;
mod evidence;
mod fixture;
mod helm;
mod images;
mod operations;
mod plans;
mod reconcile;
mod restart;
mod retention;
mod stop;
mod storage;
mod volume;
mod workloads;

use testkit::{cluster::Addition, suite::Case};

use crate::cases::{alone, case, on_bench};

/// A case with the chart `store`, which needs no image but busybox.
fn store(case: Case) -> Case {
    Case {
        additions: &[Addition::Snapshots, Addition::Flux],
        ..case
    }
}

/// A case with the chart `shop`.
fn shop(case: Case) -> Case {
    Case {
        additions: &Addition::ALL,
        ..case
    }
}

/// The slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = slow();
    cases.extend(about_data());
    cases.extend(about_git_and_flux());
    cases.extend(about_plans());
    cases
}

fn slow() -> Vec<Case> {
    vec![
        store(case!(
            "restart-each-phase",
            "R32, R41: the operator is killed in each phase; deadlines stay, and each commit exists once",
            restart::each_phase
        )),
        store(on_bench!(
            "delete-rollback",
            "R35: a rollback is deleted in each phase; it is undone or completed",
            delete::each_rollback
        )),
        store(on_bench!(
            "delete-each-phase",
            "R35: an upgrade is deleted in each phase; it is undone or completed",
            delete::each_upgrade
        )),
        store(on_bench!(
            "slow-snapshot",
            "S1.11: snapshots with progress pass three times the limit; one without progress does not",
            storage::slow
        )),
        shop(on_bench!(
            "helm",
            "1,000,000 rows are equal before the upgrade and in the snapshot; 1 commit with 1 changed line",
            helm::upgrade
        )),
    ]
}

fn about_data() -> Vec<Case> {
    vec![
        shop(on_bench!(
            "rollback",
            "R37: version, file, rows and claim are those of before; the replaced volume is retained",
            helm::rollback
        )),
        shop(on_bench!(
            "control",
            "Git and Flux alone leave version 1 on migrated data; a rollback repairs it",
            control::control
        )),
        shop(on_bench!(
            "auto-rollback",
            "R34: a version that crash-loops is rolled back once, with its data",
            control::automatic
        )),
        store(on_bench!(
            "missing-pvc",
            "Helm uninstalled claim and volume; the rollback needs only the snapshot",
            storage::missing_claim
        )),
        store(on_bench!(
            "unmanaged-pvc",
            "R20: a claim of someone else is neither adopted nor deleted",
            storage::taken_name
        )),
        store(on_bench!(
            "tight-quota",
            "a rollback without room for both volumes is undone; the application runs",
            storage::tight_quota
        )),
        store(on_bench!(
            "multi-workload",
            "S1.3, S1.5, S1.13, R36: all workloads of 4 claims stop, and return with their replica counts",
            workloads::several
        )),
        store(on_bench!(
            "images",
            "S1.2, R40: the image of a Kustomization is upgraded, and rolled back with its data",
            images::upgrade
        )),
        store(on_bench!(
            "retained-volume",
            "a replaced volume is retained, and reclaimed after its time",
            retention::replaced
        )),
        store(on_bench!(
            "retention",
            "the snapshots of one upgrade are kept; an older one cannot be rolled back",
            retention::newest
        )),
        store(on_bench!(
            "excluded-pvc",
            "S1.4: a claim is excluded; a claim of another application is rejected",
            retention::excluded
        )),
    ]
}

fn about_git_and_flux() -> Vec<Case> {
    vec![
        shop(on_bench!(
            "hook",
            "a hook before the upgrade has its database with 'Auto', and not with 'UntilUpgraded'",
            reconcile::hook
        )),
        store(on_bench!(
            "no-replicas",
            "Helm waits for Pods of a chart without replica counts; they start before its action ends",
            reconcile::no_replicas
        )),
        store(on_bench!(
            "remediated",
            "Helm's own rollback is reported within 10 s",
            reconcile::remediated
        )),
        store(on_bench!(
            "no-effect",
            "a commit that changes nothing in the cluster is reported at once",
            reconcile::no_effect
        )),
        store(on_bench!(
            "wait-true",
            "a Kustomization that waits for its suspended HelmRelease does not block the upgrade",
            reconcile::waiting
        )),
        store(on_bench!(
            "depends-on",
            "a Kustomization that depends on its locked parent does not block the upgrade",
            reconcile::depending
        )),
        store(case!(
            "lost-response",
            "R39: a push without response is found by the next attempt",
            branch::lost_response
        )),
        store(on_bench!(
            "busy-branch",
            "20 commits of others during the push: all are kept, and that of the request exists once",
            branch::busy
        )),
        store(on_bench!(
            "version-changed",
            "a version that others changed after the plan is kept; the upgrade is undone",
            branch::version_changed
        )),
        store(on_bench!(
            "protected-branch",
            "a rejected push is undone",
            branch::protected
        )),
        store(on_bench!(
            "finalizer-removed",
            "the ManagedApp restores the replica counts from the lock of a removed request",
            stop::removed
        )),
        store(on_bench!(
            "deleted-app",
            "a deleted ManagedApp waits for its request, and then deletes its snapshots",
            stop::deleted_app
        )),
        store(on_bench!(
            "stuck-pod",
            "a Pod that does not end is named, and the upgrade is undone",
            stop::stuck_pod
        )),
        store(on_bench!(
            "scaled-up",
            "a workload that someone scales up is named with the writer, and the upgrade is undone",
            stop::scaled_up
        )),
        store(on_bench!(
            "without-snapshots",
            "nothing is stopped and nothing is suspended; a rollback returns only Git",
            operations::without_snapshots
        )),
        store(on_bench!(
            "wrong-status",
            "S1.8: a wrong status of the ManagedApp changes no decision",
            operations::wrong_status
        )),
        store(on_bench!(
            "two-requests",
            "the second request waits for the first one",
            operations::two
        )),
    ]
}

fn about_plans() -> Vec<Case> {
    vec![
        store(on_bench!(
            "approval",
            "the approver is recorded; a denial changes nothing; an old plan is made again",
            approval::approval
        )),
        store(on_bench!(
            "dry-run",
            "S1.9, R36: a dry run has a plan and no finalizer, and writes only its Job and its report",
            plans::dry_run
        )),
        store(on_bench!(
            "no-volumes",
            "R30: an application without volumes is rejected",
            plans::no_volumes
        )),
        store(on_bench!(
            "suspended-by-parent",
            "an applier that would resume Flux is named",
            plans::suspended_by_parent
        )),
        store(on_bench!(
            "when-scaled-delete",
            "a StatefulSet that deletes its claims at zero is rejected; the data exists",
            plans::deleted_when_scaled
        )),
        // It starts a cluster of its own.
        alone!(
            "no-snapshot-crds",
            "a cluster without VolumeSnapshots is named",
            plans::no_snapshot_crds
        ),
    ]
}
