//! `Agent`: what a task runs on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::File;
use crate::{
    Progress, Status,
    pod::{Amount, EnvVar, NamedRef, Resources},
    rules,
};

/// What a task runs on: an image, its surroundings, and its limits.
///
/// The container always runs without root, without privileges and with a read-only context; see
/// the agent contract for what it finds and what it must do.
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
    doc = "What a task runs on: an image, its surroundings and its limits.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.image",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// The image of the container, with a tag or a digest.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,

    /// The program, if not the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,

    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 4096)))]
    pub args: Vec<String>,

    /// Environment variables. Names that begin with `ORCHESTRATOR_` are ours; `HOME` is set to a
    /// writable folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Environment variables from all keys of a Secret or ConfigMap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env_from: Vec<EnvFrom>,

    /// What the container asks for and may use; without it, the operator's configured default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// When the image is pulled: `Always`, `IfNotPresent`, `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("self in ['Always', 'IfNotPresent', 'Never']")
            .message("must be one of 'Always', 'IfNotPresent', 'Never'")
    )]
    #[schemars(length(max = 16))]
    pub image_pull_policy: Option<String>,

    /// Secrets with the registry's credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<NamedRef>,

    /// The user that the container runs as; never root. Files and volumes belong to the same group.
    #[serde(default = "default_user")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub run_as_user: i64,

    /// The ServiceAccount of the Pod, in the same namespace.
    #[serde(default = "default_service_account")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub service_account_name: String,

    /// Whether the ServiceAccount's token is mounted.
    #[serde(default)]
    pub automount_token: bool,

    /// Where the files of the run are mounted, read-only.
    #[serde(default = "default_context_path")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = rules::absolute_path(), validation = rules::own_folder())]
    pub context_path: String,

    /// The writable folder that the agent starts in.
    #[serde(default)]
    pub workspace: Workspace,

    /// Files for every run of this agent, put before the run's own. A run's file of the same name wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["filename".into()]))]
    pub instructions: Vec<File>,

    /// How long one attempt may take, from the container's start.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Duration,

    /// How long it may take until the container starts: scheduling, volumes, the image.
    #[serde(default = "default_start_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "24h"))]
    pub start_timeout: Duration,

    /// How often and when a failed attempt is repeated.
    #[serde(default)]
    pub retry: Retry,

    /// What the agent promises to return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub results: Vec<ResultSpec>,

    /// The Pod's RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub runtime_class_name: Option<String>,

    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::node_selector")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of nodes that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "rules::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// The Pod's PriorityClass.
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

/// Environment variables from all keys of one object: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.secretRef) != has(self.configMapRef)")
        .message("takes exactly one of 'secretRef' and 'configMapRef'"),
    validation = Rule::new("!has(self.prefix) || !self.prefix.startsWith('ORCHESTRATOR_')")
        .message("'prefix' must not begin with 'ORCHESTRATOR_'; choose another")
)]
pub struct EnvFrom {
    /// Put before each key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_.-]*$"))]
    pub prefix: Option<String>,
    /// A Secret in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NamedRef>,
    /// A ConfigMap in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<NamedRef>,
}

/// The writable folder that an agent starts in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// The most that it may hold.
    #[serde(default = "default_size")]
    #[x_kube(validation = rules::more_than_zero())]
    pub size: Amount,
    /// With it, the folder is a volume of this class that lives as long as the Pod; without it,
    /// it is a part of the node's disk.
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

/// How often and when a failed attempt is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many attempts there are in all.
    #[serde(default = "default_attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// How long to wait between attempts.
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

/// How long to wait between attempts: doubling from `initial` up to `max`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::initial_within_max())]
pub struct Backoff {
    /// Before the second attempt.
    #[serde(default = "default_initial")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "1h"))]
    pub initial: Duration,
    /// The longest wait.
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

/// A result that the agent promises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResultSpec {
    /// The key in the JSON object that the agent writes.
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^[A-Za-z][A-Za-z0-9_.-]*$")
    )]
    pub name: String,
    /// Whether a run without it has failed.
    #[serde(default)]
    pub required: bool,
}

/// What is known about an Agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// `Pending` or `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<AgentPhase>,
    /// What every kind has.
    #[serde(flatten)]
    pub progress: Progress,
}

crate::phases! {
    /// Where an Agent stands.
    pub enum AgentPhase {
        Pending: "Something that it names is missing: a ServiceAccount, a class.",
            deadline "none: it waits for what is missing, and says what", undo "" => [Ready];
        Ready: "Everything that it names exists.",
            deadline "none", undo "" => [Pending];
    }
}

impl Status for AgentStatus {
    crate::common_status!(AgentPhase, LongLived);
}
