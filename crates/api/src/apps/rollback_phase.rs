//! The phases of a RollbackRequest, with the deadline and the undo of each.

use std::time::Duration;

use super::{rollback_request::RollbackRequest, upgrade_phase::PUSH_TIME};
use crate::phase::{Deadline, Limit, Undo};

crate::phases! {
    /// Phase of a RollbackRequest, for people. Programs should read the conditions.
    pub enum RollbackPhase for RollbackRequest {
        Pending: "The request waits until no older request of the application is active, and no other request has locked a Flux object.",
            deadline Deadline::none("another request ends; the message names it"),
            undo Undo::None => [Plan, Failed];
        Plan: "The operator checks the upgrade and its snapshots, and freezes the state to which it returns after a failure. It changes nothing.",
            deadline Deadline::after("`status.planTimeout`, or 2 minutes", |request: &RollbackRequest| request.plan_time(), RollbackPhase::Failed),
            undo Undo::None => [Suspend, Succeeded, Failed];
        Suspend: "The operator suspends and locks the Flux objects of the application, and waits until Flux confirms it. Without snapshots, it only locks them.",
            deadline Deadline::after("`status.plan.change.timeouts.suspend`", |request: &RollbackRequest| Duration::from(request.timeouts().suspend), RollbackPhase::Undo),
            undo Undo::Phase(RollbackPhase::Undo) => [ScaleDown, GitRevert, Undo];
        ScaleDown: "The operator scales all workloads of the application to zero, and waits until the volumes are free.",
            deadline Deadline::after("`status.plan.change.timeouts.scaleDown`", |request: &RollbackRequest| Duration::from(request.timeouts().scale_down), RollbackPhase::Undo),
            undo Undo::Phase(RollbackPhase::Undo) => [VolumeRestore, Undo];
        VolumeRestore: "The operator provisions new volumes from the snapshots, and checks that they are not empty. Nothing is deleted.",
            deadline Deadline::progress(
                Limit { text: "`status.plan.timeouts.volumeRestore`", of: |request: &RollbackRequest| Duration::from(request.restore_timeouts().volume_restore) },
                Limit { text: "`status.plan.change.timeouts.volumeCap`", of: |request: &RollbackRequest| Duration::from(request.timeouts().volume_cap) },
                RollbackPhase::Undo
            ),
            undo Undo::Phase(RollbackPhase::Undo) => [GitRevert, VolumeSwap, Undo];
        GitRevert: "A Job pushes one commit with the version before the upgrade. After it, the rollback is not undone any more.",
            deadline Deadline::after("10 minutes", |_: &RollbackRequest| PUSH_TIME, RollbackPhase::Undo),
            undo Undo::Phase(RollbackPhase::Undo) => [VolumeSwap, Undo];
        VolumeSwap: "The operator gives the claims the restored volumes, and retains the replaced ones. It never gives up: the old program must not run on the new data.",
            deadline Deadline::after("`status.plan.timeouts.volumeSwap`; the message then names the blocker", |request: &RollbackRequest| Duration::from(request.restore_timeouts().volume_swap), RollbackPhase::VolumeSwap),
            undo Undo::Within("the decisions of the phase complete the rollback before the object is released") => [Reconcile];
        Reconcile: "The operator resumes Flux, waits until Flux has applied the version before the upgrade, and restores the replica counts.",
            deadline Deadline::after("`status.plan.change.timeouts.reconcile`", |request: &RollbackRequest| Duration::from(request.timeouts().reconcile), RollbackPhase::Undo),
            undo Undo::Phase(RollbackPhase::Undo) => [HealthCheck, Undo];
        HealthCheck: "The operator waits until the application is healthy with the version before the upgrade, without interruption.",
            deadline Deadline::after("`status.plan.change.timeouts.healthCheck`", |request: &RollbackRequest| Duration::from(request.timeouts().health_check), RollbackPhase::Undo),
            undo Undo::Phase(RollbackPhase::Undo) => [Succeeded, Undo];
        Undo: "The operator deletes the restored volumes that no claim uses, restores the replica counts, then resumes Flux, and reads all of it back. It never gives up.",
            deadline Deadline::after("`status.plan.change.timeouts.undo`; the message then names the blocker", |request: &RollbackRequest| Duration::from(request.timeouts().undo), RollbackPhase::Undo),
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
    use crate::Phase;

    /// R32: a phase that waits for the cluster has an end of its own, or names its blocker.
    #[test]
    fn r32_each_phase_of_a_rollback_has_a_deadline() {
        for row in RollbackPhase::TABLE {
            let expected = match row.phase {
                RollbackPhase::Pending | RollbackPhase::Succeeded | RollbackPhase::Failed => None,
                RollbackPhase::Plan => Some(RollbackPhase::Failed),
                RollbackPhase::VolumeSwap => Some(RollbackPhase::VolumeSwap),
                RollbackPhase::Suspend
                | RollbackPhase::ScaleDown
                | RollbackPhase::VolumeRestore
                | RollbackPhase::GitRevert
                | RollbackPhase::Reconcile
                | RollbackPhase::HealthCheck
                | RollbackPhase::Undo => Some(RollbackPhase::Undo),
            };
            assert_eq!(row.deadline.next(), expected, "{:?}", row.phase);
        }
    }

    /// After the first deletion of a claim, an undo would start the new program without its data.
    #[test]
    fn r35_a_swap_is_completed_and_never_undone() {
        let row = RollbackPhase::VolumeSwap.row().unwrap();
        assert_eq!(row.next, [RollbackPhase::Reconcile]);
        for row in RollbackPhase::TABLE {
            let begins_swap = row.next.contains(&RollbackPhase::VolumeSwap);
            // Git may have the version from before already.
            let may_begin = [RollbackPhase::GitRevert, RollbackPhase::VolumeRestore];
            assert_eq!(begins_swap, may_begin.contains(&row.phase));
        }
    }
}
