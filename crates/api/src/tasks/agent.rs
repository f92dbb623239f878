//! `Agent`: the image and the settings with which tasks run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use kube::{CustomResource, CustomResourceExt, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::File;
use crate::{
    CommonStatus, GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::{Deadline, Undo, describe_phases},
    pod::{Amount, EnvVar, NamedRef, Resources},
    rules,
};

/// Image, environment and limits with which tasks run.
///
/// The container always runs without root, without privileges and with a read-only context. The
/// agent contract describes its environment and its obligations.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "Agent",
    plural = "agents",
    singular = "agent",
    shortname = "oag",
    category = "orchestrator",
    namespaced,
    status = "AgentStatus",
    derive = "PartialEq",
    doc = "Image, environment and limits with which tasks run."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::volumes_apart(), validation = rules::context_apart())]
pub struct AgentSpec {
    /// Container image, with a tag or a digest.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,

    /// Program of the container. Default: the program of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,

    /// Arguments of the program. Default: those of the image, if `command` is not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 4096)))]
    pub args: Vec<String>,

    /// Environment variables of the container. Names that begin with `ORCHESTRATOR_` are reserved.
    /// `HOME` is reserved, too, and set to a writable directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Environment variables from all keys of a Secret or ConfigMap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env_from: Vec<EnvFrom>,

    /// Resource requests and limits of the container. Default: `tasks.defaultResources` of the
    /// operator's configuration, which sets a memory limit of `512Mi` unless an administrator
    /// changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. Default: `Always` if
    /// the image has the tag `latest`, or neither a tag nor a digest. Otherwise `IfNotPresent`.
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

    /// Numeric user that the container runs as; never 0 (root). Files and volumes belong to the
    /// group with the same number. Default: 65532.
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

    /// Whether the token of the ServiceAccount is mounted. Default: false.
    #[serde(default)]
    pub automount_token: bool,

    /// Directory at which the files of the run are mounted, read-only.
    /// Default: `/workspace/context`.
    #[serde(default = "default_context_path")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = rules::absolute_path(), validation = rules::own_folder())]
    pub context_path: String,

    /// Writable directory in which the agent starts.
    #[serde(default)]
    pub workspace: Workspace,

    /// Secrets, ConfigMaps and PersistentVolumeClaims that are mounted into the agent's container. In a
    /// DocsRun, the steps `clone` and `publish` do not mount them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<Volume>,

    /// Files for every run of this agent. If a file of the run has the same name, the run's file is
    /// used instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["filename".into()]))]
    pub instructions: Vec<File>,

    /// Maximum run time of the agent's container in one attempt, such as `90s` or `1h30m`. From
    /// `1s` to `168h`. In a DocsRun, the step `publish` has 15 more minutes. Default: `1h`.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Duration,

    /// Maximum time until the agent's container starts: scheduling, volumes, image pull, and in a
    /// DocsRun the clone. In a DocsRun, it also limits the wait for the Git server before that.
    /// From `1s` to `24h`. Default: `10m`.
    #[serde(default = "default_start_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "24h"))]
    pub start_timeout: Duration,

    /// Retries of a failed attempt: the number of attempts, and the delay between them.
    #[serde(default)]
    pub retry: Retry,

    /// Results that the agent promises to return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub results: Vec<ResultSpec>,

    /// RuntimeClass of the Pod. Default: the default of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub runtime_class_name: Option<String>,

    /// Labels that a node must have to run the Pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::node_selector")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of nodes that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "rules::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// Affinity of the Pod to nodes, and to other Pods in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::affinity")]
    pub affinity: Option<Affinity>,

    /// Labels of the Pod, in addition to those of Orchestrator. Keys of Orchestrator and of the Job
    /// controller are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations of the Pod, in addition to those of Orchestrator. Keys of Orchestrator, of the Job
    /// controller and of security profiles are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::pod_annotations")]
    pub pod_annotations: BTreeMap<String, String>,

    /// PriorityClass of the Pod. Default: the default of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub priority_class_name: Option<String>,
}

fn default_user() -> i64 {
    65532
}
fn default_service_account() -> String {
    "default".to_owned()
}
fn default_context_path() -> String {
    "/workspace/context".to_owned()
}
fn default_timeout() -> Duration {
    std::time::Duration::from_secs(3600).into()
}
fn default_start_timeout() -> Duration {
    std::time::Duration::from_secs(600).into()
}

/// Environment variables from all keys of one object: exactly one of `secretRef` and
/// `configMapRef`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.secretRef) != has(self.configMapRef)")
        .message("takes exactly one of 'secretRef' and 'configMapRef'"),
    validation = Rule::new("!has(self.prefix) || !self.prefix.startsWith('ORCHESTRATOR_')")
        .message("'prefix' must not begin with 'ORCHESTRATOR_'; choose another")
)]
pub struct EnvFrom {
    /// Prefix that is added to each key. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_.-]*$"))]
    pub prefix: Option<String>,
    /// Secret in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NamedRef>,
    /// ConfigMap in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<NamedRef>,
}

/// Volume of the agent's container: exactly one of `secretRef`, `configMapRef` and
/// `persistentVolumeClaimRef`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.secretRef), has(self.configMapRef), has(self.persistentVolumeClaimRef)].filter(one, one).size() == 1")
        .message("takes exactly one of 'secretRef', 'configMapRef' and 'persistentVolumeClaimRef'"),
    validation = Rule::new("self.readOnly || has(self.persistentVolumeClaimRef)")
        .message("'readOnly' can be false only with 'persistentVolumeClaimRef': a Secret and a ConfigMap are always read-only")
)]
pub struct Volume {
    /// Name of the volume, unique in the Agent.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Directory at which the volume is mounted. It must not overlap with another directory of the
    /// agent.
    #[schemars(length(max = 255))]
    #[x_kube(validation = rules::absolute_path(), validation = rules::free_folder())]
    pub mount_path: String,
    /// Secret in the same namespace. Each key is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NamedRef>,
    /// ConfigMap in the same namespace. Each key is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<NamedRef>,
    /// PersistentVolumeClaim in the same namespace. Its data stays when the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_ref: Option<NamedRef>,
    /// Whether the agent cannot write to the volume. Only a PersistentVolumeClaim can be writable.
    /// Default: true.
    #[serde(default = "default_read_only")]
    pub read_only: bool,
}

fn default_read_only() -> bool {
    true
}

/// Writable directory in which an agent starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Maximum size of the directory. Default: `1Gi`.
    #[serde(default = "default_size")]
    #[x_kube(validation = rules::more_than_zero())]
    pub size: Amount,
    /// StorageClass of the volume for the directory. The volume lives as long as the Pod. If this
    /// field is not set, the directory is on the disk of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub storage_class_name: Option<String>,
}

fn default_size() -> Amount {
    Amount("1Gi".to_owned())
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            size: default_size(),
            storage_class_name: None,
        }
    }
}

/// Retries of a failed attempt: the number of attempts, and the delay between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Maximum number of attempts, including the first one, from 1 to 10. Default: 1.
    #[serde(default = "default_attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// Delay between attempts. It doubles from `initial` up to `max`.
    #[serde(default)]
    pub backoff: Backoff,
}

fn default_attempts() -> u32 {
    1
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: default_attempts(),
            backoff: Backoff::default(),
        }
    }
}

/// Delay between attempts. It doubles from `initial` up to `max`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::initial_within_max())]
pub struct Backoff {
    /// Delay before the second attempt, from `1s` to `1h`. Default: `10s`.
    #[serde(default = "default_initial")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "1h"))]
    pub initial: Duration,
    /// Maximum delay, from `1s` to `24h`. Default: `5m`.
    #[serde(default = "default_max")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "24h"))]
    pub max: Duration,
}

fn default_initial() -> Duration {
    std::time::Duration::from_secs(10).into()
}
fn default_max() -> Duration {
    std::time::Duration::from_secs(300).into()
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: default_initial(),
            max: default_max(),
        }
    }
}

/// Result that the agent promises to return.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResultSpec {
    /// Key in the JSON object that the agent writes.
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^[A-Za-z][A-Za-z0-9_.-]*$")
    )]
    pub name: String,
    /// Whether an attempt that ends without this result fails (`ResultMissing`). Default: false.
    #[serde(default)]
    pub required: bool,
}

/// Observed state of an Agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Phase of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<AgentPhase>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

crate::phases! {
    /// Phase of an Agent, for people. Programs should read the conditions.
    pub enum AgentPhase for () {
        Pending: "Something that it names is missing: a ServiceAccount, a class.",
            deadline Deadline::none("it waits for the missing object, which the message names"),
            undo Undo::None => [Ready];
        Ready: "Everything that it names exists.",
            deadline Deadline::none(""), undo Undo::None => [Pending];
    }
}

impl Status for AgentStatus {
    crate::common_status!(AgentPhase, LongLived);
}

// ANCHOR: row
/// The row of Agents in the table of kinds.
pub const AGENT: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "Agent", "agents"),
    crd_name: "agents.orchestrator.io",
    singular: "agent",
    short_name: "oag",
    listed: "agents",
    aliases: &[],
    is_namespaced: true,
    lifecycle: AgentStatus::LIFECYCLE,
    columns: &[
        Column::new("Ready", Content::Condition("Ready")),
        Column::new("Status", Content::Reason("Ready")),
        Column::AGE,
        Column::new("Image", Content::Text("spec.image")).wide(),
        Column::MESSAGE,
    ],
    conditions: &[],
    epoch: AgentStatus::EPOCH,
    phases: describe_phases::<<AgentStatus as Status>::Phase>,
    derived_crd: Agent::crd,
};
// ANCHOR_END: row
