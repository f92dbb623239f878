//! The observed state of a ManagedApp.

use std::{collections::BTreeMap, fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    managed_app::ManagedAppSpec,
    operations::{ActiveOperation, LastUpgrade, RestorePoint, RetainedVolume, reclaim_intent},
};
use crate::{
    CommonStatus, Status,
    decide::ErrorClass,
    phase::{Deadline, Undo},
};

/// Observed state of a ManagedApp.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedAppStatus {
    /// Phase of the ManagedApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<AppPhase>,
    /// Revision and versions that Flux applied, as the live objects show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<AppliedRevision>,
    /// HelmRelease of the application. Absent for an application without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_release: Option<NamespacedName>,
    /// Newest release in the history of the HelmRelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<DeployedRelease>,
    /// Whether the HelmRelease requests the chart version that is deployed. Absent if it requests a range,
    /// or if there is no HelmRelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_match: Option<bool>,
    /// Number of discovered workloads.
    #[serde(default)]
    pub workload_count: u32,
    /// Discovered workloads: those of the inventory, then others that mount a volume of the application. At
    /// most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub workloads: Vec<Workload>,
    /// Number of discovered PersistentVolumeClaims.
    #[serde(default)]
    pub volume_count: u32,
    /// Discovered PersistentVolumeClaims. At most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub volumes: Vec<Volume>,
    /// Volumes that are no PersistentVolumeClaims and that a snapshot could not contain: `hostPath`, inline
    /// and ephemeral volumes. At most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub unprotected_volumes: Vec<UnprotectedVolume>,
    /// Request that changes the application now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_operation: Option<ActiveOperation>,
    /// Most recent upgrade that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_upgrade: Option<LastUpgrade>,
    /// Upgrades to whose start a rollback can return, the newest first. At most 5 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restore_points: Vec<RestorePoint>,
    /// PersistentVolumes that rollbacks replaced. At most 64 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained_volumes: Vec<RetainedVolume>,
    /// Versions that were rolled back, the newest last. At most 16 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_versions: Vec<String>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

/// Revision and versions that Flux applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRevision {
    /// Revision of the source that the Kustomization applied last, such as `main@sha1:…`.
    pub revision: String,
    /// Versions that the applied objects request. The key `chart` has the version or the range of the
    /// HelmRelease.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
}

/// Namespace and name of an object.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl NamespacedName {
    /// Creates a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Release of Helm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedRelease {
    /// Name of the release.
    pub name: String,
    /// Version of the release, which grows with each change.
    pub version: i64,
    /// Status of the release in Helm, such as `deployed`, `failed` or `pending-upgrade`. Only a release that is
    /// `deployed` is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Version of the chart.
    pub chart_version: String,
    /// Version of the program in the chart, if the chart has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// Digest of the values of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
}

/// Workload of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Kind of the workload, such as `Deployment`.
    pub kind: String,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// Whether Flux applies the workload. A workload that is not in the inventory is listed because it mounts
    /// a volume of the application. It does not count for the health.
    pub in_inventory: bool,
    /// Number of desired replicas. Absent for a CronJob, a missing workload and one of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Number of replicas that are ready and available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// Images in the Pod template, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub images: Vec<String>,
}

/// PersistentVolumeClaim of an application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Phase of the claim: `Pending`, `Bound` or `Lost`; `Missing` if it does not exist.
    pub phase: String,
    /// Size of the bound volume, or the requested size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// StorageClass of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// Volume that a snapshot could not contain.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct UnprotectedVolume {
    /// Kind, namespace and name of the workload, such as `Deployment shop/web`.
    pub workload: String,
    /// Name of the volume in the Pod template.
    pub volume: String,
    /// Type of the volume, such as `hostPath`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Time in which a change of an application is normal. Afterwards the application is `Degraded`.
const CHANGE_TIME: Duration = Duration::from_secs(15 * 60);

/// Time after which the message of a ManagedApp in deletion names the blocker. The deletion continues.
const DELETION_TIME: Duration = Duration::from_secs(15 * 60);

crate::phases! {
    /// Phase of a ManagedApp, for people. Programs should read the conditions.
    pub enum AppPhase for ManagedAppSpec {
        Pending: "There is no result yet: Flux or Kubernetes applies a change, or the operator has not reconciled the object.",
            deadline Deadline::after("15 minutes", |_: &ManagedAppSpec| CHANGE_TIME, AppPhase::Degraded),
            undo Undo::None => [Ready, Degraded, Operating, Terminating];
        Ready: "Flux applied the application, and all of its workloads are ready.",
            deadline Deadline::none(""), undo Undo::None => [Pending, Degraded, Operating, Terminating];
        Degraded: "The application is not healthy, or its state cannot be determined; the message names the blocker.",
            deadline Deadline::none("the message names the blocker"), undo Undo::None => [Pending, Ready, Operating, Terminating];
        Operating: "A request changes the application: Flux may be suspended, and workloads may be stopped. The message names the request.",
            deadline Deadline::none("the phases of the request have deadlines"), undo Undo::None => [Pending, Ready, Degraded, Terminating];
        Terminating: "The ManagedApp is being deleted. The operator waits for an active request, and deletes the snapshots if `snapshotsOnDelete` is `Delete`.",
            deadline Deadline::after("15 minutes, from the deletion; the message then names the blocker", |_: &ManagedAppSpec| DELETION_TIME, AppPhase::Terminating),
            undo Undo::None => [Terminating];
    }
}

impl Status for ManagedAppStatus {
    crate::common_status!(AppPhase, LongLived);

    fn has_intent(&self, intent: &str) -> bool {
        let mut retained = self.retained_volumes.iter();
        retained.any(|one| reclaim_intent(&one.volume) == intent)
    }

    /// Returns true: a decision keeps the finalizer only while the deletion would have to wait.
    fn has_children(&self) -> bool {
        true
    }

    fn observed(&mut self, seen: Option<&Self>) {
        let nothing = Self::default();
        let is_unknown = seen.is_none();
        let seen = seen.unwrap_or(&nothing);
        self.git.clone_from(&seen.git);
        self.helm_release.clone_from(&seen.helm_release);
        self.release.clone_from(&seen.release);
        self.versions_match = seen.versions_match;
        self.workload_count = seen.workload_count;
        self.workloads.clone_from(&seen.workloads);
        self.volume_count = seen.volume_count;
        self.volumes.clone_from(&seen.volumes);
        self.unprotected_volumes
            .clone_from(&seen.unprotected_volumes);
        self.active_operation.clone_from(&seen.active_operation);
        self.last_upgrade.clone_from(&seen.last_upgrade);
        // Nobody knows whether the snapshots exist. Decisions read the rest of these lists, so it stays.
        for point in self.restore_points.iter_mut().filter(|_| is_unknown) {
            point.available = false;
        }
    }

    /// Returns `Degraded`, unless the ManagedApp is `Terminating`: nobody knows whether the application is healthy.
    fn phase_in_fault(&self, _class: ErrorClass) -> Option<AppPhase> {
        let deleted = self.phase.filter(|phase| *phase == AppPhase::Terminating);
        Some(deleted.unwrap_or(AppPhase::Degraded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an error, an old list of ready workloads would be a success without evidence.
    #[test]
    fn an_error_clears_the_observations() {
        let mut status = ManagedAppStatus {
            phase: Some(AppPhase::Ready),
            git: Some(AppliedRevision::default()),
            versions_match: Some(true),
            workload_count: 3,
            volume_count: 1,
            volumes: vec![Volume::default()],
            ..ManagedAppStatus::default()
        };
        assert_eq!(
            status.phase_in_fault(ErrorClass::Transient),
            Some(AppPhase::Degraded)
        );
        status.observed(None);
        let cleared = ManagedAppStatus {
            phase: Some(AppPhase::Ready),
            ..ManagedAppStatus::default()
        };
        assert_eq!(status, cleared);
    }
}
