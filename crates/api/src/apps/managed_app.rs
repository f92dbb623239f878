//! `ManagedApp`: an application that Flux applies, with its versions, workloads, volumes and health.

use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    operations::{RetainedVolumePolicy, VolumeSnapshotPolicy},
    status::ManagedAppStatus,
    timeouts::{HealthCheckSettings, TimeoutSettings},
    upgrade_git::AppGit,
};
use crate::{
    GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    rules,
};

/// Application that Flux applies. The operator reports its versions, workloads, volumes and health. Only requests
/// change it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "ManagedApp",
    plural = "managedapps",
    singular = "managedapp",
    shortname = "oapp",
    category = "orchestrator",
    namespaced,
    status = "ManagedAppStatus",
    derive = "PartialEq",
    doc = "Application that Flux applies. The operator reports its versions, workloads, volumes and health. Only requests change it."
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedAppSpec {
    /// Kustomization of Flux that applies the application. Immutable. The author of a ManagedApp needs
    /// permission to patch it.
    #[x_kube(validation = rules::unchanging("ManagedApp"))]
    pub kustomization_ref: FluxRef,

    /// HelmRelease of Flux that installs the application. It must be in the inventory of the
    /// Kustomization. The author needs permission to patch it. Default: the only HelmRelease in the
    /// inventory. Without any HelmRelease there, the application is what the Kustomization applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_release_ref: Option<FluxRef>,

    /// Git repository in which upgrades change the version of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<AppGit>,

    /// Whether the operator creates a RollbackRequest for an upgrade that failed after its commit. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_rollback: bool,

    /// Snapshots of the volumes of the application.
    #[serde(default, skip_serializing_if = "is_default")]
    pub volume_snapshots: VolumeSnapshotPolicy,

    /// Whether the deletion of the ManagedApp deletes the snapshots of its upgrades. Default: `Retain`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub snapshots_on_delete: SnapshotDeletion,

    /// PersistentVolumes that a rollback replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retained_volumes: RetainedVolumePolicy,

    /// Kustomization of Flux that applies `kustomizationRef`. An upgrade suspends both: the suspension of a parent does
    /// not stop its children. The author needs permission to patch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_ref: Option<FluxRef>,

    /// Timeouts of the phases of upgrades and rollbacks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub phase_timeouts: TimeoutSettings,

    /// Health of the application after an upgrade or a rollback.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health_check: HealthCheckSettings,

    /// Whether an upgrade waits for the decision of a user after its plan. Default: `NotRequired`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approval: ApprovalPolicy,

    /// How long the workloads stay stopped during an upgrade. Default: `Auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale_down_policy: ScaleDownSetting,
}

/// How long the workloads of an application stay stopped during an upgrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScaleDownSetting {
    /// `UntilSnapshotReady` if the deployed chart has hooks before an upgrade, or if they are not known. Otherwise
    /// `UntilUpgraded`.
    #[default]
    Auto,
    /// Until Flux has applied the new version.
    UntilUpgraded,
    /// Until the snapshots are ready. The data that the old version writes afterwards is in no snapshot.
    UntilSnapshotReady,
}

/// The snapshots of the upgrades of a deleted ManagedApp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotDeletion {
    /// The snapshots stay. Nobody deletes them afterwards.
    #[default]
    Retain,
    /// The operator deletes the snapshots, except those with the annotation `orchestrator.io/preserve`.
    Delete,
}

/// Whether upgrades need the decision of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPolicy {
    /// Upgrades continue after their plan.
    #[default]
    NotRequired,
    /// Upgrades wait after their plan until a user with permission to `approve` the ManagedApp has decided.
    Required,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ManagedAppSpec {
    /// Creates the spec of an application with the default value of each other field.
    #[must_use]
    pub fn new(kustomization_ref: FluxRef) -> Self {
        Self {
            kustomization_ref,
            helm_release_ref: None,
            git: None,
            auto_rollback: false,
            volume_snapshots: VolumeSnapshotPolicy::default(),
            snapshots_on_delete: SnapshotDeletion::default(),
            retained_volumes: RetainedVolumePolicy::default(),
            suspend_ref: None,
            phase_timeouts: TimeoutSettings::default(),
            health_check: HealthCheckSettings::default(),
            approval: ApprovalPolicy::default(),
            scale_down_policy: ScaleDownSetting::default(),
        }
    }
}

/// Reference to an object of Flux.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxRef {
    /// Name of the object.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Namespace of the object. Default: the namespace of the ManagedApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
}

/// The row of ManagedApps in the table of kinds.
pub const MANAGED_APP: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "ManagedApp", "managedapps"),
    crd_name: "managedapps.orchestrator.io",
    singular: "managedapp",
    short_name: "oapp",
    listed: "apps",
    aliases: &["app"],
    is_namespaced: true,
    lifecycle: ManagedAppStatus::LIFECYCLE,
    columns: &[
        Column::new("Ready", Content::Condition("Ready")),
        Column::new("Status", Content::Text("status.phase")),
        Column::new("Version", Content::Text("status.release.chartVersion")),
        Column::AGE,
        Column::new("Revision", Content::Text("status.git.revision")).wide(),
        Column::new("Reason", Content::Reason("Ready")).wide(),
        Column::MESSAGE,
    ],
    conditions: &[],
    epoch: ManagedAppStatus::EPOCH,
    phases: describe_phases::<<ManagedAppStatus as Status>::Phase>,
    derived_crd: ManagedApp::crd,
};
