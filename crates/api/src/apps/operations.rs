//! The upgrades and rollbacks of a ManagedApp, as its status has them.
//!
//! They are stored in the ManagedApp: the status of a finished request never changes, and a request may be deleted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, rules};

/// Maximum number of restore points in the status.
pub const MAX_RESTORE_POINTS: usize = 5;

/// Maximum number of versions in the list of those that were rolled back.
pub const MAX_REJECTED_VERSIONS: usize = 16;

/// Maximum number of retained volumes in the status.
pub const MAX_RETAINED_VOLUMES: usize = 64;

/// Number of snapshot sets that are kept by default.
const DEFAULT_MAX_COUNT: u32 = 3;

/// Maximum number of claims in a list of the spec.
pub const MAX_NAMED_CLAIMS: usize = 32;

/// Snapshots of the volumes of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::not_both("pvcs", "excludePVCs"))]
pub struct VolumeSnapshotPolicy {
    /// Whether upgrades take snapshots. Without them, an upgrade stops nothing, and a rollback returns only Git.
    /// Default: true.
    #[serde(default = "default_enabled")]
    pub enabled: bool,
    /// VolumeSnapshotClass of the snapshots. Default: the default class of the CSI driver of each volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_snapshot_class_name: Option<String>,
    /// PersistentVolumeClaims of which snapshots are taken. Each must belong to the application. Default: all of its
    /// claims. At most 32.
    #[serde(default, rename = "pvcs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub included: Vec<ClaimRef>,
    /// PersistentVolumeClaims of which no snapshot is taken. It cannot be set together with `pvcs`. At most 32.
    #[serde(default, rename = "excludePVCs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub excluded: Vec<ClaimRef>,
    /// Access modes of the claims of which snapshots are taken. A claim needs one of them. Default: all modes. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 32)))]
    pub access_modes: Vec<String>,
    /// Snapshots that the operator keeps.
    #[serde(default)]
    pub retention: SnapshotRetention,
}

fn default_enabled() -> bool {
    true
}

impl Default for VolumeSnapshotPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            volume_snapshot_class_name: None,
            included: Vec::new(),
            excluded: Vec::new(),
            access_modes: Vec::new(),
            retention: SnapshotRetention::default(),
        }
    }
}

/// Reference to a PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRef {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the claim. Default: the namespace of the ManagedApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Retention of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRetention {
    /// Number of upgrades whose snapshots are kept. 0 keeps all. Default: 3.
    #[serde(default = "default_max_count")]
    #[schemars(range(max = 1000))]
    pub max_count: u32,
}

fn default_max_count() -> u32 {
    DEFAULT_MAX_COUNT
}

impl Default for SnapshotRetention {
    fn default() -> Self {
        Self {
            max_count: DEFAULT_MAX_COUNT,
        }
    }
}

/// PersistentVolumes that a rollback replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetainedVolumePolicy {
    /// Time after which the operator restores the reclaim policy of such a volume, so that the cluster reclaims it.
    /// Default: the volumes are retained indefinitely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "8784h"))]
    pub ttl: Option<Duration>,
}

/// Request that changes an application now. It is derived from the requests, and is no lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveOperation {
    /// Kind of the request.
    pub kind: String,
    /// Name of the request.
    pub name: String,
    /// UID of the request.
    pub uid: String,
    /// Phase of the request.
    pub phase: String,
}

/// Most recent upgrade of an application that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastUpgrade {
    /// Name of the UpgradeRequest.
    pub name: String,
    /// Phase in which it ended.
    pub phase: String,
    /// Version before the upgrade; absent if the request was rejected before it had a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Version to which the request upgraded.
    pub to: String,
}

/// Upgrade to whose start a rollback can return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestorePoint {
    /// Name of the UpgradeRequest.
    pub upgrade: String,
    /// UID of the UpgradeRequest, which its snapshots have in a label.
    pub uid: String,
    /// Time at which the first snapshot was taken. A rollback loses the data that was written after it. Absent for an
    /// upgrade without snapshots, which is rolled back in Git only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Time>,
    /// Whether a rollback is possible now.
    pub available: bool,
    /// Reason why a rollback is not possible, or `GitOnly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version before the upgrade.
    pub from: String,
    /// Version after the upgrade.
    pub to: String,
}

/// PersistentVolume that a rollback replaced. Its data is that of the version that was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetainedVolume {
    /// Name of the PersistentVolume.
    pub volume: String,
    /// Namespace of the PersistentVolumeClaim that had the volume.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim that had the volume.
    pub pvc: String,
    /// Name of the RollbackRequest.
    pub rollback: String,
    /// Time since which the operator retains the volume.
    pub since: Time,
}

/// Returns the intent to let the cluster reclaim a retained volume. The stored status must list the volume before.
#[must_use]
pub fn reclaim_intent(volume: &str) -> String {
    ["reclaim", volume].join(" ")
}
