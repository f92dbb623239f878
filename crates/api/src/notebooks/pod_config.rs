//! The container of the kernel.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::{
    pod::{Amount, EnvVar, NamedRef, Resources},
    rules as shared,
    tasks::EnvFrom,
};

/// The container of the kernel, and its Pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::free_variables(),
    validation = rules::free_prefixes(),
    validation = rules::mounts_of_volumes(),
    validation = rules::mounts_apart()
)]
pub struct PodConfig {
    /// Image with a Jupyter kernel.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = shared::one_line())]
    pub container_image: String,
    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. Default: `Always` if the image has the
    /// tag `latest`, or neither a tag nor a digest. Otherwise `IfNotPresent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("self in ['Always', 'IfNotPresent', 'Never']")
            .message("must be one of 'Always', 'IfNotPresent', 'Never'")
    )]
    #[schemars(length(max = 16))]
    pub image_pull_policy: Option<String>,
    /// Secrets with the credentials of the image registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<NamedRef>,
    /// Resource requests and limits of the container. A GPU is an extended resource in `limits`.
    #[serde(default)]
    pub resources: Resources,
    /// Numeric user that the container runs as; never 0 (root). Default: 65532.
    #[serde(default = "default_user")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub run_as_user: i64,
    /// ServiceAccount of the Pod, in the same namespace. Default: `default`.
    #[serde(default = "default_service_account")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub service_account_name: String,
    /// Whether the token of the ServiceAccount is mounted into the container of the kernel. Default: false.
    #[serde(default)]
    pub automount_token: bool,
    /// Environment variables of the container. `HOME`, `IPYTHONDIR` and names that begin with `ORCHESTRATOR_`, `JPY_`
    /// or `JUPYTER_` are reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Environment variables from all keys of a Secret or ConfigMap. Reserved names have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub env_from: Vec<EnvFrom>,
    /// Size of `/dev/shm`. Default: the default of the container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = shared::more_than_zero())]
    pub shm_size: Option<Amount>,
    /// Labels that a node must have to run the Pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shared::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shared::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// RuntimeClass of the Pod. Default: the default of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub runtime_class_name: Option<String>,
    /// PriorityClass of the Pod. Default: the default of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub priority_class_name: Option<String>,
    /// Volumes for the container of the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<VolumeSource>,
    /// Mounts of these volumes. Only the container of the kernel has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub volume_mounts: Vec<VolumeMount>,
}

fn default_user() -> i64 {
    65532
}
fn default_service_account() -> String {
    "default".to_owned()
}
fn yes() -> bool {
    true
}

/// Volume with exactly one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::one_volume_source())]
pub struct VolumeSource {
    /// Name of the volume, unique in the job.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Empty directory that lives as long as the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirSource>,
    /// ConfigMap in the same namespace. Each key is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// Secret in the same namespace. Each key is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSource>,
    /// PersistentVolumeClaim in the same namespace. Its data stays when the job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimSource>,
}

/// Empty directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirSource {
    /// Maximum size of the directory. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = shared::more_than_zero())]
    pub size_limit: Option<Amount>,
    /// `Memory` for a directory in memory. Default: the disk of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self == 'Memory'").message("must be 'Memory'"))]
    pub medium: Option<String>,
}

/// ConfigMap as a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapSource {
    /// Name of the ConfigMap.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// Secret as a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// Name of the Secret.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub secret_name: String,
}

/// PersistentVolumeClaim as a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimSource {
    /// Name of the PersistentVolumeClaim.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub claim_name: String,
    /// Whether the kernel cannot write to the volume. Default: true.
    #[serde(default = "yes")]
    pub read_only: bool,
}

/// Mount of a volume in the container of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// Name of the volume.
    #[schemars(length(min = 1, max = 50))]
    pub name: String,
    /// Directory at which the volume is mounted.
    #[schemars(length(max = 255))]
    #[x_kube(validation = shared::absolute_path(), validation = rules::free_mount_path())]
    pub mount_path: String,
    /// Whether the kernel cannot write to the mount. Default: false.
    #[serde(default)]
    pub read_only: bool,
}
