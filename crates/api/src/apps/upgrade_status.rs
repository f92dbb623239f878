//! The observed state of an UpgradeRequest, with the plan that it froze.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    status::{DeployedRelease, UnprotectedVolume},
    upgrade_git::{
        PlannedCommit, PushAttempt, PushedCommit, ReconciledVersion, UpgradeEvidence,
        VersionsBefore,
    },
    upgrade_phase::UpgradePhase,
};
use crate::{CommonStatus, Duration, Status, decide::ResourceType, pod::NamedRef};

/// Maximum number of workloads in a plan. A plan with more is rejected: a part of it could not be undone.
pub const MAX_PLANNED_WORKLOADS: usize = 64;

/// Maximum number of volumes in a plan.
pub const MAX_PLANNED_VOLUMES: usize = 32;

/// The condition types that only UpgradeRequests have.
pub mod upgrade_condition {
    /// Flux is suspended and locked.
    pub const SUSPENDED: &str = "Suspended";
    /// The workloads are stopped, and their volumes are free.
    pub const WORKLOAD_STOPPED: &str = "WorkloadStopped";
    /// All snapshots are ready.
    pub const SNAPSHOT_READY: &str = "SnapshotReady";
    /// The commit with the new version is on the branch.
    pub const GIT_COMMITTED: &str = "GitCommitted";
    /// Flux has applied the new version.
    pub const RECONCILED: &str = "Reconciled";
    /// The application is healthy with the new version.
    pub const HEALTHY: &str = "Healthy";
}

/// The intents that a decision stores before the first change of a step.
pub mod upgrade_intent {
    /// The plan is stored, with everything that an undo needs.
    pub const CHANGE: &str = "change";
    /// The time at which the workloads were stopped is stored. No snapshot may be created before.
    pub const SNAPSHOT: &str = "snapshot";

    /// Returns the intent to push a commit on this base, with the UID of the request in its trailer.
    #[must_use]
    pub fn push(base: &str, uid: &str) -> String {
        ["push", base, uid].join(" ")
    }
}

/// Observed state of an UpgradeRequest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRequestStatus {
    /// Phase of the UpgradeRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<UpgradePhase>,
    /// State to which the operator returns after a failure. It is stored before the first change and never
    /// changes afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<UpgradePlan>,
    /// Longest time to make the plan, from the ManagedApp. Default: 2 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_timeout: Option<Duration>,
    /// Time at which the plan was made. A plan that is approved after more than 10 minutes is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Time>,
    /// Approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedPlan>,
    /// Workloads that were observed at zero since the request scaled them down. If such a workload is scaled up
    /// again, someone else did it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub at_zero: Vec<PlannedName>,
    /// Time at which no Pod mounted a volume of the application and no volume was attached. Snapshots are
    /// created afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads_stopped_at: Option<Time>,
    /// Time in which workloads of the application were stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime: Option<Downtime>,
    /// Snapshots of the volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub snapshots: Vec<TakenSnapshot>,
    /// Time at which the replica counts were restored for the old version, after the snapshots. Absent if the
    /// workloads stay stopped until Flux applies the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_at: Option<Time>,
    /// Intent of the step that cannot be undone: `push`, the base commit and the UID of the request. It is stored
    /// before the push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Versions before the commit. They are stored together with the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_commit: Option<VersionsBefore>,
    /// Current attempt to push the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushAttempt>,
    /// Commit of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<PushedCommit>,
    /// Time at which no workload was left at zero after Flux had applied the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_restored_at: Option<Time>,
    /// Versions that Flux applied after the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<ReconciledVersion>,
    /// Time since which the application is healthy with the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Evidence of the success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<UpgradeEvidence>,
    /// First failure. The request ends with its reason after the undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<UpgradeFailure>,
    /// Objects that the undo returned to the state of the plan, as they were read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub undone: Vec<UndoneStep>,
    /// RollbackRequest that the operator creates after the end of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<NamedRef>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

/// Plan that a user has approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPlan {
    /// Name of the user.
    pub by: String,
    /// Time at which the operator observed the decision.
    pub at: Time,
    /// Hash of the changed lines and of the number of commits that Flux applies together with the upgrade.
    pub hash: String,
}

/// State of an application before an upgrade, and the changes that the upgrade makes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlan {
    /// UID of the ManagedApp.
    pub app_uid: String,
    /// Flux objects in the order in which they are suspended. They are resumed in the reverse order.
    #[schemars(length(max = 3))]
    pub flux_objects: Vec<PlannedFluxObject>,
    /// Revision that the Kustomization had applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Release of Helm that was deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<DeployedRelease>,
    /// Version of the chart before and after the upgrade. Both are the same if only images change. Absent if the
    /// HelmRelease requests no version.
    #[serde(default, skip_serializing_if = "VersionChange::is_empty")]
    pub chart: VersionChange,
    /// Changes of images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub images: Vec<ImageChange>,
    /// Change in Git.
    pub commit: PlannedCommit,
    /// How long the workloads stay stopped.
    pub scale_down_policy: ScaleDownPolicy,
    /// Whether no snapshot is taken or restored. Then Flux is locked and not suspended, and no workload is stopped.
    #[serde(default)]
    pub is_without_snapshots: bool,
    /// Workloads that are stopped, with their replica counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub workloads: Vec<PlannedWorkload>,
    /// Volumes of which snapshots are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub volumes: Vec<PlannedVolume>,
    /// Volumes that no snapshot contains. At most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub unprotected_volumes: Vec<UnprotectedVolume>,
    /// Facts that do not prevent the upgrade, and that its author should know. At most 16 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub warnings: Vec<String>,
    /// Whether the plan needs the decision of a user.
    #[serde(default)]
    pub needs_approval: bool,
    /// Whether the operator creates a RollbackRequest if the upgrade fails after its commit.
    #[serde(default)]
    pub auto_rollback: bool,
    /// Timeouts of the phases.
    pub timeouts: PhaseTimeouts,
}

/// How long the workloads of an application stay stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScaleDownPolicy {
    /// Until Flux has applied the new version.
    #[default]
    UntilUpgraded,
    /// Until the snapshots are ready. The old version runs again while Git and Flux are changed, for hooks of the
    /// chart that need it.
    UntilSnapshotReady,
}

/// Kind of a Flux object that an upgrade suspends.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum FluxKind {
    /// A Kustomization.
    Kustomization,
    /// A HelmRelease.
    HelmRelease,
}

impl FluxKind {
    /// Returns the resource type.
    #[must_use]
    pub const fn resource(self) -> ResourceType {
        match self {
            Self::Kustomization => super::KUSTOMIZATION,
            Self::HelmRelease => super::HELM_RELEASE,
        }
    }
}

/// Kind of a workload that an upgrade can stop.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ScalableKind {
    /// A Deployment, stopped by its replica count.
    Deployment,
    /// A StatefulSet, stopped by its replica count.
    StatefulSet,
    /// A CronJob, stopped by `spec.suspend`.
    CronJob,
}

impl ScalableKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::CronJob];

    /// Returns the resource type.
    #[must_use]
    pub const fn resource(self) -> ResourceType {
        match self {
            Self::Deployment => ResourceType::new("apps", "v1", "Deployment", "deployments"),
            Self::StatefulSet => ResourceType::new("apps", "v1", "StatefulSet", "statefulsets"),
            Self::CronJob => ResourceType::new("batch", "v1", "CronJob", "cronjobs"),
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.resource().kind == name)
    }
}

/// Kind, namespace and name of an object in a plan.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct PlannedName {
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl PlannedName {
    /// Creates a name.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for PlannedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        write!(out, "{kind} '{namespace}/{name}'")
    }
}

/// Flux object before an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedFluxObject {
    /// Kind of the object.
    pub kind: FluxKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Value of `spec.suspend`: false, or absent if the field was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

impl PlannedFluxObject {
    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(self.kind.resource().kind, &self.namespace, &self.name)
    }
}

/// Workload before an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWorkload {
    /// Kind of the workload.
    pub kind: ScalableKind,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// UID of the workload.
    pub uid: String,
    /// Number of desired replicas; absent for a CronJob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Value of `spec.suspend` of a CronJob; absent if the field was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Hash of the Pod spec in the template; absent for a CronJob. A workload with another hash has the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether Flux applies the workload. Another one is stopped because it mounts a volume of the application.
    pub in_inventory: bool,
}

impl PlannedWorkload {
    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(self.kind.resource().kind, &self.namespace, &self.name)
    }
}

/// Volume before an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedVolume {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub pvc: String,
    /// UID of the PersistentVolumeClaim.
    pub pvc_uid: String,
    /// Name of the PersistentVolume.
    pub pv: String,
    /// CSI driver of the PersistentVolume.
    pub driver: String,
    /// Whether the driver attaches volumes to nodes. Otherwise nothing shows that a node has detached the volume.
    pub is_attachable: bool,
    /// VolumeSnapshotClass of the snapshot.
    pub snapshot_class: String,
    /// StorageClass of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Requested size of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Access modes of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub access_modes: Vec<String>,
    /// Volume mode of the claim: `Filesystem` or `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

/// Change of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionChange {
    /// Version before the upgrade, as the live object requests it.
    pub from: String,
    /// Version to upgrade to.
    pub to: String,
}

impl VersionChange {
    fn is_empty(&self) -> bool {
        self.from.is_empty() && self.to.is_empty()
    }
}

/// Change of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageChange {
    /// Image without a tag.
    pub name: String,
    /// Image with its tag before the upgrade, as the live Pod templates have it.
    pub from: String,
    /// Image with its tag after the upgrade.
    pub to: String,
}

impl UpgradePlan {
    /// Returns whether the version of the chart changes.
    #[must_use]
    pub fn changes_chart(&self) -> bool {
        self.chart.from != self.chart.to
    }

    /// Returns whether the application has a HelmRelease.
    #[must_use]
    pub fn has_release(&self) -> bool {
        let mut all = self.flux_objects.iter();
        all.any(|one| one.kind == FluxKind::HelmRelease)
    }

    /// Returns the versions for a text: those of the chart if it changes, otherwise those of the images.
    #[must_use]
    pub fn versions(&self) -> VersionChange {
        if self.changes_chart() {
            return self.chart.clone();
        }
        let joined = |version: fn(&ImageChange) -> &str| {
            let all: Vec<&str> = self.images.iter().map(version).collect();
            all.join(", ")
        };
        VersionChange {
            from: joined(|image| &image.from),
            to: joined(|image| &image.to),
        }
    }

    /// Returns the new version for a text.
    #[must_use]
    pub fn target(&self) -> String {
        let kind = if self.changes_chart() {
            "chart version"
        } else {
            "image"
        };
        format!("{kind} {}", self.versions().to)
    }

    /// Returns the change for a text.
    #[must_use]
    pub fn summary(&self) -> String {
        let kind = if self.changes_chart() {
            "chart"
        } else {
            "images"
        };
        let VersionChange { from, to } = self.versions();
        format!("{kind} {from} to {to}")
    }
}

/// Timeouts of the phases of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTimeouts {
    /// Longest time until Flux confirms that it is suspended.
    pub suspend: Duration,
    /// Longest time until all workloads are stopped and all volumes are free.
    pub scale_down: Duration,
    /// Longest time without progress of a snapshot.
    pub snapshot: Duration,
    /// Longest time for all snapshots, with progress or without.
    pub volume_cap: Duration,
    /// Longest time of one attempt to push the commit.
    pub git_commit: Duration,
    /// Longest time until Flux has applied the new version.
    pub reconcile: Duration,
    /// Longest time until the application is healthy.
    pub health_check: Duration,
    /// Time for which the application must be healthy without interruption.
    pub stable_for: Duration,
    /// Time after which the message names what blocks the undo. The undo continues.
    pub undo: Duration,
}

impl Default for PhaseTimeouts {
    fn default() -> Self {
        let minutes = |minutes: u64| std::time::Duration::from_secs(minutes * 60).into();
        Self {
            suspend: minutes(2),
            scale_down: minutes(5),
            snapshot: minutes(30),
            volume_cap: minutes(6 * 60),
            git_commit: minutes(2),
            reconcile: minutes(10),
            health_check: minutes(5),
            stable_for: std::time::Duration::from_secs(30).into(),
            undo: minutes(10),
        }
    }
}

/// Time in which workloads of an application were stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Downtime {
    /// Time of the first change of a replica count.
    pub from: Option<Time>,
    /// Time at which the replica counts were restored; absent while workloads are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
}

/// Snapshot of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakenSnapshot {
    /// Namespace of the PersistentVolumeClaim and of the snapshot.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub pvc: String,
    /// Name of the VolumeSnapshot.
    pub name: String,
    /// UID of the VolumeSnapshot.
    pub uid: String,
    /// Name of the VolumeSnapshotContent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Time at which the storage system took the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Time>,
    /// Time at which the snapshot was observed to be ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// Size that a restored volume must have at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<String>,
}

/// First failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeFailure {
    /// Phase in which the request failed.
    pub phase: UpgradePhase,
    /// Reason of the failure.
    pub reason: String,
    /// Expected state, observed state and next step.
    pub message: String,
}

/// Object that the undo returned to the state of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoneStep {
    /// Kind, namespace and name of the object.
    pub object: PlannedName,
    /// State that was read back, such as `3 replicas` or `resumed`.
    pub state: String,
    /// Time at which the state was read back.
    pub at: Time,
}

impl Status for UpgradeRequestStatus {
    crate::common_status!(UpgradePhase, RunToCompletion);

    fn has_intent(&self, intent: &str) -> bool {
        match intent {
            upgrade_intent::CHANGE => self.plan.is_some(),
            upgrade_intent::SNAPSHOT => self.workloads_stopped_at.is_some(),
            other => self.intent.as_deref() == Some(other),
        }
    }

    /// Returns whether the cluster may have changes of this request.
    fn has_children(&self) -> bool {
        match self.phase {
            Some(
                UpgradePhase::Suspend
                | UpgradePhase::ScaleDown
                | UpgradePhase::Snapshot
                | UpgradePhase::GitCommit
                | UpgradePhase::Reconcile
                | UpgradePhase::HealthCheck
                | UpgradePhase::Undo,
            ) => true,
            None
            | Some(
                UpgradePhase::Pending
                | UpgradePhase::Plan
                | UpgradePhase::Approval
                | UpgradePhase::Succeeded
                | UpgradePhase::Failed,
            ) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine refuses a change whose intent is not stored.
    #[test]
    fn an_intent_is_the_evidence_that_it_needs() {
        let mut status = UpgradeRequestStatus::default();
        for intent in [upgrade_intent::CHANGE, upgrade_intent::SNAPSHOT, "other"] {
            assert!(!status.has_intent(intent), "{intent}");
        }
        status.plan = Some(UpgradePlan::default());
        assert!(status.has_intent(upgrade_intent::CHANGE));
        assert!(!status.has_intent(upgrade_intent::SNAPSHOT));
        status.workloads_stopped_at = Some(Time(crate::Timestamp::UNIX_EPOCH));
        assert!(status.has_intent(upgrade_intent::SNAPSHOT));
        let push = upgrade_intent::push("0123", "uid");
        assert!(!status.has_intent(&push));
        status.intent = Some(push.clone());
        assert!(status.has_intent(&push));
        // The intent for another base or another request is another one.
        assert!(!status.has_intent(&upgrade_intent::push("4567", "uid")));
        assert!(!status.has_intent(&upgrade_intent::push("0123", "other")));
    }

    /// R42: the enum holds the kinds that have a way to be stopped, and a HelmRelease has none.
    #[test]
    fn r42_only_kinds_that_can_be_stopped_are_scalable() {
        for kind in ScalableKind::ALL {
            assert_eq!(ScalableKind::named(kind.resource().kind), Some(kind));
        }
        for other in ["HelmRelease", "DaemonSet", "Pod", "Job", "ReplicaSet"] {
            assert_eq!(ScalableKind::named(other), None, "{other}");
        }
    }

    /// S1.10: the table of defaults.
    #[test]
    fn s1_10_the_phases_have_the_default_timeouts() {
        let PhaseTimeouts {
            suspend,
            scale_down,
            snapshot,
            volume_cap,
            git_commit,
            reconcile,
            health_check,
            stable_for,
            undo,
        } = PhaseTimeouts::default();
        let seconds = [
            suspend,
            scale_down,
            snapshot,
            volume_cap,
            git_commit,
            reconcile,
            health_check,
            stable_for,
            undo,
        ];
        let seconds = seconds.map(|one| std::time::Duration::from(one).as_secs());
        assert_eq!(seconds, [120, 300, 1800, 21600, 120, 600, 300, 30, 600]);
    }

    #[test]
    fn a_plan_survives_storage() {
        let plan = UpgradePlan {
            flux_objects: vec![PlannedFluxObject {
                kind: FluxKind::HelmRelease,
                namespace: "shop".to_owned(),
                name: "shop".to_owned(),
                uid: "uid".to_owned(),
                generation: 3,
                suspend: Some(false),
            }],
            workloads: vec![PlannedWorkload {
                kind: ScalableKind::CronJob,
                namespace: "shop".to_owned(),
                name: "backup".to_owned(),
                uid: "uid".to_owned(),
                replicas: None,
                suspend: None,
                template: None,
                in_inventory: true,
            }],
            ..UpgradePlan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        let read: UpgradePlan = serde_json::from_str(&text).unwrap();
        assert_eq!(read, plan);
    }
}
