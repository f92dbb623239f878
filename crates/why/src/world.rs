//! What an explanation is made from: plain data, read once, with the time at which it was read.
//!
//! # Guarantees
//! - Nothing secret: no data of Secrets or ConfigMaps, no content of files, no value of an
//!   environment variable, no arguments of a program.
//! - Bounded: at most [`LIST`] entries in a list, at most [`TEXT`] characters in a text.
//!
//! As JSON it is a test's fixture: see `tests/worlds/README.md`.

mod tenants;

use std::collections::BTreeMap;

use api::tasks::{AgentStatus, TaskRunStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use tenants::{EndpointsView, RedisView, ServerView, TenantView, WorkloadView};

/// The most entries of one list: more would not be read by anyone at 3 a.m.
pub const LIST: usize = 100;
/// The most characters of one text that others wrote.
pub const TEXT: usize = 1024;

/// An object by its kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its kind, such as `Pod`.
    pub kind: String,
    /// Its namespace; absent for one of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// One in a namespace.
    #[must_use]
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// One of the cluster.
    #[must_use]
    pub fn cluster(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }
}

/// Everything that was read about one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct World {
    /// When it was read.
    pub now: Time,
    /// What was asked about.
    pub target: ObjectRef,
    /// The run that the target is or belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// The Agent that the target is, or that the run names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// The Tenant that the target is or belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantView>,
    /// The Tenant's Deployment and StatefulSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadView>,
    /// What the Tenant's Services lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointsView>,
    /// All NetworkPolicies of the Tenant's namespace, whosever they are; `None` if they could not be
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<Meta>>,
    /// What is left in a Tenant's namespace that is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<OtherView>,
    /// The run's Jobs, or the one that was asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobView>,
    /// Their Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodView>,
    /// Core Events about the run, the Jobs, the Pods and their claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventView>,
    /// The claims of the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimView>,
    /// The namespace's quotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaView>,
    /// The namespace's limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_ranges: Vec<LimitRangeView>,
    /// The nodes that Pods are bound to; all (up to [`LIST`]) if a Pod finds no place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeView>,
    /// Whether things that are only named exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// Objects that stand where a child of the run should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherView>,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceView>,
    /// The operator's Leases; `None` if they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<Vec<LeaseView>>,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Lists of which only the first part was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

impl World {
    /// A world in which nothing was read yet.
    #[must_use]
    pub fn new(now: Time, target: ObjectRef) -> Self {
        Self {
            now,
            target,
            run: None,
            agent: None,
            tenant: None,
            workloads: Vec::new(),
            endpoints: Vec::new(),
            policies: None,
            left: Vec::new(),
            jobs: Vec::new(),
            pods: Vec::new(),
            events: Vec::new(),
            claims: Vec::new(),
            quotas: Vec::new(),
            limit_ranges: Vec::new(),
            nodes: Vec::new(),
            known: Vec::new(),
            others: Vec::new(),
            namespace: None,
            leases: None,
            unreadable: Vec::new(),
            cut: Vec::new(),
        }
    }
}

/// What every object has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace, empty for one of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The generation of its spec.
    #[serde(default)]
    pub generation: i64,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// When its deletion was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Time>,
    /// When the grace period of its deletion ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_by: Option<Time>,
    /// What holds its deletion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The UID of the run or Tenant in its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_uid: Option<String>,
    /// The name of the run or Tenant in its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_name: Option<String>,
    /// The kind of it in its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_kind: Option<String>,
    /// The part of a Tenant in its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The Tenant that left it behind, by its annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_from: Option<String>,
}

/// The controller of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when it has this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A run without the content of its files: a `TaskRun`, or a `DocsRun` if `docs` is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// What every object has.
    pub meta: Meta,
    /// When someone other than the operator last changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// Why its spec or its status cannot be read; what could not be is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// The Agent that it names.
    #[serde(default)]
    pub agent_name: String,
    /// The version of its files.
    #[serde(default)]
    pub version: i64,
    /// Whether it is held.
    #[serde(default)]
    pub suspend: bool,
    /// Whether it was cancelled.
    #[serde(default)]
    pub cancel: bool,
    /// Its own number of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Its own `timeout`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Bytes of its files, by name; the largest ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, usize>,
    /// Whether someone asked to let it go without waiting.
    #[serde(default)]
    pub force_delete: bool,
    /// How it stands, as it says itself. Of a `DocsRun` what both kinds have.
    #[serde(default)]
    pub status: TaskRunStatus,
    /// What only a `DocsRun` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<DocsView>,
}

/// What only a `DocsRun` has, of its spec and its status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DocsView {
    /// The repository's address.
    #[serde(default)]
    pub repository: String,
    /// The branch that the agent reads.
    #[serde(default)]
    pub source_branch: String,
    /// The folder that the agent works in.
    #[serde(default)]
    pub working_directory: String,
    /// The name of the Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The branch that is pushed.
    #[serde(default)]
    pub output_branch: String,
    /// The folder that is taken over from the agent.
    #[serde(default)]
    pub output_path: String,
    /// The commit that the run works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The head of the output branch before the push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_head: Option<String>,
    /// The commit that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How many files it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<u64>,
}

/// An `Agent` without its instructions and the values of its environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// What every object has.
    pub meta: Meta,
    /// When someone other than the operator last changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// Why its spec or its status cannot be read; what could not be is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// Its image.
    #[serde(default)]
    pub image: String,
    /// The user that it runs as.
    #[serde(default)]
    pub user: i64,
    /// What it names and needs: ServiceAccount, classes, Secrets, ConfigMaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// How many attempts a run has.
    #[serde(default)]
    pub max_attempts: u32,
    /// How long a container may take to start, in seconds.
    #[serde(default)]
    pub start_timeout_seconds: u64,
    /// How long an attempt may take, in seconds.
    #[serde(default)]
    pub timeout_seconds: u64,
    /// Bytes of its instructions.
    #[serde(default)]
    pub instruction_bytes: usize,
    /// The results that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_results: Vec<String>,
    /// How it stands, as it says itself.
    #[serde(default)]
    pub status: AgentStatus,
}

/// Something that an Agent or a Pod names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The key in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is for, such as `imagePullSecrets`.
    pub role: String,
}

/// A Job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// What every object has.
    pub meta: Meta,
    /// The version of the run that it belongs to, as its label says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it is suspended.
    #[serde(default)]
    pub suspended: bool,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
}

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// What every object has.
    pub meta: Meta,
    /// Its phase.
    #[serde(default)]
    pub phase: String,
    /// Why the whole Pod failed, such as `Evicted`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
    /// Its containers, the one that counts first: the agent's; where containers run one after the
    /// other, the first that has not ended well, else the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerView>,
    /// Names of its claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Secrets and ConfigMaps that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Labels that its node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// A container of a Pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// Its image, as the Pod names it.
    #[serde(default)]
    pub image: String,
    /// The image that really runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// How it stands.
    #[serde(default)]
    pub state: ContainerState,
    /// How often it was started again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// How it ended the last time, if it was started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContainerState>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// How a container stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerState {
    /// The kubelet has said nothing yet.
    #[default]
    Unknown,
    /// It was not started.
    Waiting {
        /// The kubelet's word.
        reason: String,
        /// Its sentence.
        message: String,
    },
    /// It runs.
    Running {
        /// Since when.
        since: Option<Time>,
    },
    /// It ended.
    Ended {
        /// Its exit code.
        code: i32,
        /// The kubelet's word, such as `OOMKilled`.
        reason: String,
        /// What it left as its last words.
        message: String,
        /// When it started.
        started: Option<Time>,
        /// When it ended.
        finished: Option<Time>,
    },
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// What it is about.
    pub object: ObjectRef,
    /// The UID of what it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Whether it is a warning.
    #[serde(default)]
    pub warning: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// How often it was seen.
    #[serde(default)]
    pub count: i32,
    /// When it was seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Time>,
    /// When it was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
}

/// A `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// What every object has.
    pub meta: Meta,
    /// Its phase.
    #[serde(default)]
    pub phase: String,
    /// Its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How much it asks for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
}

/// A `ResourceQuota`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaView {
    /// Its name.
    pub name: String,
    /// What may be used.
    #[serde(default)]
    pub hard: BTreeMap<String, String>,
    /// What is used.
    #[serde(default)]
    pub used: BTreeMap<String, String>,
}

/// A `LimitRange`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitRangeView {
    /// Its name.
    pub name: String,
    /// Its limits in words, such as `Container memory: at most 1Gi`.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its condition `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ConditionView>,
    /// Whether it is cordoned.
    #[serde(default)]
    pub cordoned: bool,
    /// Its taints, as `key=value:Effect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Its labels, of those that a Pod's `nodeSelector` names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What Pods may have of it in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, String>,
}

/// Whether something that is only named exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// What it is.
    pub object: ObjectRef,
    /// Whether it exists.
    pub exists: bool,
    /// A StorageClass's provisioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
}

/// An object of which only the metadata was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherView {
    /// Its kind.
    pub kind: String,
    /// What kubectl calls it, where its kind is not enough: `certificates.cert-manager.io`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// What every object has.
    pub meta: Meta,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceView {
    /// Its name.
    pub name: String,
    /// When its deletion was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Time>,
    /// The Pod Security level that it enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<String>,
    /// What its deletion waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
    /// Whose it is, and since when it is there.
    #[serde(default)]
    pub meta: Meta,
    /// The Tenant that it is offered to, by its annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<String>,
    /// Who made it, as the server noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
}

/// A Lease of the operator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// Its name.
    pub name: String,
    /// Its namespace, which is the operator's.
    pub namespace: String,
    /// Who leads; `None` if it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// When it was renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Time>,
    /// How long it holds, in seconds.
    #[serde(default)]
    pub duration_seconds: i64,
}

/// Something that could not be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    /// What, such as `nodes` or `Secret 'token'`.
    pub what: String,
    /// Whether permission is missing; otherwise the server did not answer.
    pub forbidden: bool,
    /// The server's words.
    pub why: String,
}
