//! The phases of an UpgradeRequest, with the deadline and the undo of each.

use std::time::Duration;

use super::upgrade_request::UpgradeRequest;
use crate::phase::{Deadline, Limit, Undo};

/// Longest time to make a plan, unless the application has another one.
pub const PLAN_TIME: Duration = Duration::from_secs(2 * 60);

/// Longest time until the outcome of the push is known. Afterwards, the request ends with an unknown outcome.
pub const PUSH_TIME: Duration = Duration::from_secs(10 * 60);

crate::phases! {
    /// Phase of an UpgradeRequest, for people. Programs should read the conditions.
    pub enum UpgradePhase for UpgradeRequest {
        Pending: "The request waits until no older request of the application is active, and no other request has locked a Flux object.",
            deadline Deadline::none("another request ends; the message names it"),
            undo Undo::None => [Plan, Failed];
        Plan: "The operator checks the request and freezes the state to which it returns after a failure. It changes nothing.",
            deadline Deadline::after("`status.planTimeout`, or 2 minutes", |request: &UpgradeRequest| request.plan_time(), UpgradePhase::Failed),
            undo Undo::None => [Approval, Suspend, Succeeded, Failed];
        Approval: "The request waits for the decision of a user about its plan. It changes nothing.",
            deadline Deadline::none("a user approves or denies the plan; the message names the request"),
            undo Undo::None => [Plan, Suspend, Failed];
        Suspend: "The operator suspends and locks the Flux objects of the application, and waits until Flux confirms it. Without snapshots, it only locks them.",
            deadline Deadline::after("`status.plan.timeouts.suspend`", |request: &UpgradeRequest| Duration::from(request.timeouts().suspend), UpgradePhase::Undo),
            undo Undo::Phase(UpgradePhase::Undo) => [ScaleDown, GitCommit, Undo];
        ScaleDown: "The operator scales all workloads that mount a volume of the application to zero, and waits until the volumes are free.",
            deadline Deadline::after("`status.plan.timeouts.scaleDown`", |request: &UpgradeRequest| Duration::from(request.timeouts().scale_down), UpgradePhase::Undo),
            undo Undo::Phase(UpgradePhase::Undo) => [Snapshot, Undo];
        Snapshot: "The operator takes a snapshot of each volume, and waits until all are ready.",
            deadline Deadline::progress(
                Limit { text: "`status.plan.timeouts.snapshot`", of: |request: &UpgradeRequest| Duration::from(request.timeouts().snapshot) },
                Limit { text: "`status.plan.timeouts.volumeCap`", of: |request: &UpgradeRequest| Duration::from(request.timeouts().volume_cap) },
                UpgradePhase::Undo
            ),
            undo Undo::Phase(UpgradePhase::Undo) => [GitCommit, Undo];
        GitCommit: "A Job pushes one commit with the new version. After it, the upgrade is not undone any more.",
            deadline Deadline::after("10 minutes", |_: &UpgradeRequest| PUSH_TIME, UpgradePhase::Undo),
            undo Undo::Phase(UpgradePhase::Undo) => [Reconcile, Undo];
        Reconcile: "The operator resumes Flux, waits until Flux has applied the new version, and restores the replica counts.",
            deadline Deadline::after("`status.plan.timeouts.reconcile`", |request: &UpgradeRequest| Duration::from(request.timeouts().reconcile), UpgradePhase::Undo),
            undo Undo::Phase(UpgradePhase::Undo) => [HealthCheck, Undo];
        HealthCheck: "The operator waits until the application is healthy with the new version, without interruption.",
            deadline Deadline::after("`status.plan.timeouts.healthCheck`", |request: &UpgradeRequest| Duration::from(request.timeouts().health_check), UpgradePhase::Undo),
            undo Undo::Phase(UpgradePhase::Undo) => [Succeeded, Undo];
        Undo: "The operator restores the replica counts, then resumes Flux, and reads both back. After the commit, it keeps the snapshots. It never gives up.",
            deadline Deadline::after("`status.plan.timeouts.undo`; the message then names the blocker", |request: &UpgradeRequest| Duration::from(request.timeouts().undo), UpgradePhase::Undo),
            undo Undo::None => [Failed];
        Succeeded: "The request is complete.",
            deadline Deadline::none(""), undo Undo::None => [];
        Failed: "The request failed. Flux is resumed, and no workload is at zero because of it. Before the commit, everything is as before.",
            deadline Deadline::none(""), undo Undo::None => [];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Phase, phase::Undo as Undone};

    /// R32, R41: a phase that waits for the cluster has an end of its own.
    #[test]
    fn r32_each_phase_that_waits_for_the_cluster_has_a_deadline() {
        for row in UpgradePhase::TABLE {
            let next = row.deadline.next();
            let expected = match row.phase {
                UpgradePhase::Pending
                | UpgradePhase::Approval
                | UpgradePhase::Succeeded
                | UpgradePhase::Failed => None,
                UpgradePhase::Plan => Some(UpgradePhase::Failed),
                UpgradePhase::Suspend
                | UpgradePhase::ScaleDown
                | UpgradePhase::Snapshot
                | UpgradePhase::GitCommit
                | UpgradePhase::Reconcile
                | UpgradePhase::HealthCheck
                | UpgradePhase::Undo => Some(UpgradePhase::Undo),
            };
            assert_eq!(next, expected, "{:?}", row.phase);
        }
    }

    /// R35: a phase that changes the cluster is undone before the request is released.
    #[test]
    fn r35_each_phase_with_changes_is_undone() {
        for row in UpgradePhase::TABLE {
            let is_undone = matches!(row.undo, Undone::Phase(UpgradePhase::Undo));
            let changes = matches!(
                row.phase,
                UpgradePhase::Suspend
                    | UpgradePhase::ScaleDown
                    | UpgradePhase::Snapshot
                    | UpgradePhase::GitCommit
                    | UpgradePhase::Reconcile
                    | UpgradePhase::HealthCheck
            );
            assert_eq!(is_undone, changes, "{:?}", row.phase);
            assert_eq!(
                changes,
                row.next.contains(&UpgradePhase::Undo),
                "{:?}",
                row.phase
            );
        }
        assert_eq!(
            UpgradePhase::Undo.row().map(|row| row.next),
            Some(&[UpgradePhase::Failed][..])
        );
    }
}
