//! The observed state of a RollbackRequest, with the plan that it froze.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    rollback_phase::RollbackPhase,
    status::NamespacedName,
    upgrade_git::{PushAttempt, PushedCommit, ReconciledVersion, UpgradeEvidence, VersionsBefore},
    upgrade_status::{Downtime, PlannedName, UndoneStep, UpgradePlan},
};
use crate::{CommonStatus, Duration, Status};

/// The condition types that only RollbackRequests have.
pub mod rollback_condition {
    /// All restored volumes are ready.
    pub const VOLUMES_RESTORED: &str = "VolumesRestored";
    /// All claims have their restored volumes.
    pub const VOLUMES_SWAPPED: &str = "VolumesSwapped";
}

/// The intents of a RollbackRequest, beside those of an UpgradeRequest.
pub mod rollback_intent {
    /// The plan is stored, with everything that an undo needs.
    pub const CHANGE: &str = super::super::upgrade_intent::CHANGE;

    /// The restored volume of this claim is stored. Nothing of the claim may be deleted before.
    #[must_use]
    pub fn swap(claim: &str) -> String {
        ["swap", claim].join(" ")
    }
}

/// Observed state of a RollbackRequest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackRequestStatus {
    /// Phase of the RollbackRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RollbackPhase>,
    /// State to which the operator returns after a failure. It is stored before the first change and never
    /// changes afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RollbackPlan>,
    /// Longest time to make the plan, from the ManagedApp. Default: 2 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_timeout: Option<Duration>,
    /// Workloads that were observed at zero since the request scaled them down. If such a workload is scaled up
    /// again, someone else did it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub at_zero: Vec<PlannedName>,
    /// Time at which no Pod mounted a volume of the application and no volume was attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads_stopped_at: Option<Time>,
    /// Time in which workloads of the application were stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime: Option<Downtime>,
    /// Restored volumes. They are stored before the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub restored: Vec<RestoredVolume>,
    /// Intent of the commit: `push`, the base commit and the UID of the request. It is stored before the push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Versions before the commit. They are stored together with the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_commit: Option<VersionsBefore>,
    /// Current attempt to push the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushAttempt>,
    /// Commit of the request. No claim is deleted before it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<PushedCommit>,
    /// Time at which no workload was left at zero after Flux had applied the version before the upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_restored_at: Option<Time>,
    /// Versions that Flux applied after the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<ReconciledVersion>,
    /// Time since which the application is healthy with the version before the upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Evidence of the success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<UpgradeEvidence>,
    /// First failure. The request ends with its reason after the undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RollbackFailure>,
    /// Objects that the undo returned to the state of the plan, as they were read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub undone: Vec<UndoneStep>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

/// State of an application before a rollback, and the changes that the rollback makes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackPlan {
    /// Name of the ManagedApp.
    pub app: String,
    /// Name of the UpgradeRequest.
    pub upgrade: String,
    /// UID of the UpgradeRequest.
    pub upgrade_uid: String,
    /// Flux objects, workloads, volumes, the version and the edits in Git, with `from` and `to` of the upgrade exchanged.
    pub change: UpgradePlan,
    /// Volumes that are restored. None are for an upgrade without snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub restores: Vec<PlannedRestore>,
    /// Volumes that keep their data, because the upgrade has no snapshot of them. At most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub unrestored: Vec<NamespacedName>,
    /// Whether Git has the version from before already, because an earlier rollback failed after its commit. Then
    /// nothing is pushed.
    #[serde(default)]
    pub is_in_git: bool,
    /// Timeouts of the phases about volumes.
    pub timeouts: RestoreTimeouts,
}

/// Volume that a rollback restores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRestore {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub pvc: String,
    /// UID of the PersistentVolumeClaim; absent if it does not exist any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_uid: Option<String>,
    /// PersistentVolume of the claim; absent if it does not exist any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pv: Option<String>,
    /// VolumeSnapshot to restore.
    pub snapshot: String,
    /// UID of the VolumeSnapshot.
    pub snapshot_uid: String,
    /// Size of the restored volume: that of the claim, and at least that of the snapshot.
    pub size: String,
    /// StorageClass of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Access modes of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub access_modes: Vec<String>,
    /// Volume mode of the claim: `Filesystem` or `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

impl PlannedRestore {
    /// Returns kind, namespace and name of the claim.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new("PersistentVolumeClaim", &self.namespace, &self.pvc)
    }
}

/// Restored volume that no claim of the application uses yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredVolume {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub pvc: String,
    /// Name of the new PersistentVolume.
    pub pv: String,
}

/// Timeouts of the phases about volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreTimeouts {
    /// Longest time without progress of a restore.
    pub volume_restore: Duration,
    /// Time after which the message names what blocks the swap. The swap continues.
    pub volume_swap: Duration,
}

impl Default for RestoreTimeouts {
    fn default() -> Self {
        let minutes = |minutes: u64| std::time::Duration::from_secs(minutes * 60).into();
        Self {
            volume_restore: minutes(30),
            volume_swap: minutes(5),
        }
    }
}

/// First failure of a RollbackRequest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackFailure {
    /// Phase in which the request failed.
    pub phase: RollbackPhase,
    /// Reason of the failure.
    pub reason: String,
    /// Expected state, observed state and next step.
    pub message: String,
}

impl Status for RollbackRequestStatus {
    crate::common_status!(RollbackPhase, RunToCompletion);

    fn has_intent(&self, intent: &str) -> bool {
        if intent == rollback_intent::CHANGE {
            return self.plan.is_some();
        }
        // Nothing is lost before the server has accepted the commit, and before the restored volume is known.
        let is_swap = |one: &RestoredVolume| rollback_intent::swap(&one.pvc) == intent;
        self.intent.as_deref() == Some(intent)
            || (self.commit.is_some() && self.restored.iter().any(is_swap))
    }

    /// Returns whether the cluster may have changes of this request.
    fn has_children(&self) -> bool {
        match self.phase {
            Some(
                RollbackPhase::Suspend
                | RollbackPhase::ScaleDown
                | RollbackPhase::VolumeRestore
                | RollbackPhase::GitRevert
                | RollbackPhase::VolumeSwap
                | RollbackPhase::Reconcile
                | RollbackPhase::HealthCheck
                | RollbackPhase::Undo,
            ) => true,
            None
            | Some(
                RollbackPhase::Pending
                | RollbackPhase::Plan
                | RollbackPhase::Succeeded
                | RollbackPhase::Failed,
            ) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::PushOutcome;

    /// A claim may be deleted only if its restored volume and the commit are stored.
    #[test]
    fn the_intent_to_swap_needs_the_restored_volume_and_the_commit() {
        let intent = rollback_intent::swap("data");
        let mut status = RollbackRequestStatus::default();
        assert!(!status.has_intent(rollback_intent::CHANGE));
        status.plan = Some(RollbackPlan::default());
        assert!(status.has_intent(rollback_intent::CHANGE));
        assert!(!status.has_intent(&intent));
        status.restored = vec![RestoredVolume {
            namespace: "shop".to_owned(),
            pvc: "data".to_owned(),
            pv: "pv-new".to_owned(),
        }];
        assert!(!status.has_intent(&intent));
        status.commit = Some(PushedCommit {
            id: "ab".repeat(20),
            outcome: PushOutcome::Pushed,
            at: Time(crate::Timestamp::UNIX_EPOCH),
        });
        assert!(status.has_intent(&intent));
        assert!(!status.has_intent(&rollback_intent::swap("media")));
    }

    /// S1.10: the table of defaults.
    #[test]
    fn s1_10_the_phases_about_volumes_have_the_default_timeouts() {
        let RestoreTimeouts {
            volume_restore,
            volume_swap,
        } = RestoreTimeouts::default();
        let seconds = [volume_restore, volume_swap];
        let seconds = seconds.map(|one| std::time::Duration::from(one).as_secs());
        assert_eq!(seconds, [1800, 300]);
    }
}
