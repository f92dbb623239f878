//! The input of an explanation: plain data, read once, with the time of the read.
//!
//! # Guarantees
//! - Nothing secret: no data of Secrets or ConfigMaps, no content of files, no value of an
//!   environment variable, no arguments of a program.
//! - Bounded: at most [`LIST`] entries in a list, at most [`TEXT`] characters in a text.
//!
//! The JSON form is used as a test fixture: see `tests/worlds/README.md`.

mod object;
mod tenants;

use std::collections::BTreeMap;

use api::{
    kinds::{self, OperatorRow},
    tasks::{self, AgentStatus, TaskRunStatus},
    tenants::TENANT,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use pods::{ContainerState, ContainerView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use object::ObjectView;
pub use tenants::{EndpointsView, RedisView, ServerView, TenantView, WorkloadView};

/// Maximum number of entries in one list. Nobody would read more during an incident.
pub const LIST: usize = 100;
/// Maximum number of characters in one text from the cluster.
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
    /// Creates a reference to a namespaced object.
    #[must_use]
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// Creates a reference to a cluster-scoped object.
    #[must_use]
    pub fn cluster(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }
}

/// All data that was read about one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct World {
    /// The time of the read.
    pub now: Time,
    /// The requested object.
    pub target: ObjectRef,
    /// The run that is the target or owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// The Agent that is the target or that the run references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// The Tenant that is the target or owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantView>,
    /// The target, if its kind has no rules of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectView>,
    /// The Tenant's Deployment and StatefulSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadView>,
    /// The endpoints of the Tenant's Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointsView>,
    /// All NetworkPolicies of the Tenant's namespace, managed or not, or `None` if they could not
    /// be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<Meta>>,
    /// The objects that remain in a Tenant's namespace that is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<OtherView>,
    /// The run's Jobs, or the requested Job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobView>,
    /// The Pods of the Jobs or of the Tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodView>,
    /// Core Events about the run, the Jobs, the workloads, the Pods and their claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventView>,
    /// The claims of the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimView>,
    /// The namespace's quotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaView>,
    /// The namespace's LimitRanges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_ranges: Vec<LimitRangeView>,
    /// The nodes to which Pods are bound, or all nodes (up to [`LIST`]) if a Pod is unschedulable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeView>,
    /// Whether referenced objects exist that were not read in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// Unmanaged objects that have the name of a child.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherView>,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceView>,
    /// The operator's Leases; `None` if they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<Vec<LeaseView>>,
    /// The objects that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The lists that are incomplete because only their first part was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

impl World {
    /// Creates a world without any data.
    #[must_use]
    pub fn new(now: Time, target: ObjectRef) -> Self {
        Self {
            now,
            target,
            run: None,
            agent: None,
            tenant: None,
            object: None,
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

    /// Returns the operator of the target: that of its kind, or of its owner.
    pub(crate) fn operator(&self) -> &'static OperatorRow {
        let kind = match &self.tenant {
            Some(_) => TENANT.name(),
            None => self.target.kind.as_str(),
        };
        kinds::operator_of(kind).unwrap_or(&tasks::OPERATOR)
    }
}

/// The metadata that every object has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace, empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The generation of its spec.
    #[serde(default)]
    pub generation: i64,
    /// The time of its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// The time when its deletion was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Time>,
    /// The end of the grace period of its deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_by: Option<Time>,
    /// The finalizers that block its deletion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Its controller, from the owner references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The UID of the run or Tenant, from its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_uid: Option<String>,
    /// The name of the run or Tenant, from its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_name: Option<String>,
    /// The kind of the run or Tenant, from its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_kind: Option<String>,
    /// The component of a Tenant, from its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The former Tenant that retained the object, from its annotation.
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
    /// The time of the last transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A run without the content of its files: a `TaskRun`, or a `DocsRun` if `docs` is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The metadata.
    pub meta: Meta,
    /// The time of the last change by a manager other than the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// The Agent that it references.
    #[serde(default)]
    pub agent_name: String,
    /// The context version in its spec.
    #[serde(default)]
    pub version: i64,
    /// Whether it is suspended.
    #[serde(default)]
    pub suspend: bool,
    /// Whether it was cancelled.
    #[serde(default)]
    pub cancel: bool,
    /// Its own maximum number of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Its own `timeout`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The sizes of its files in bytes, by name. Only the first [`LIST`] files are included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, usize>,
    /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
    #[serde(default)]
    pub force_delete: bool,
    /// Its status. For a `DocsRun`, the fields that both kinds have.
    #[serde(default)]
    pub status: TaskRunStatus,
    /// The fields that only a `DocsRun` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<DocsView>,
}

/// The fields that only a `DocsRun` has, from its spec and its status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DocsView {
    /// The URL of the repository.
    #[serde(default)]
    pub repository: String,
    /// The branch that the agent reads.
    #[serde(default)]
    pub source_branch: String,
    /// The directory in which the agent works.
    #[serde(default)]
    pub working_directory: String,
    /// The name of the Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The branch to push to.
    #[serde(default)]
    pub output_branch: String,
    /// The directory that is copied from the agent's work into the commit.
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
    /// The number of files that the commit changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<u64>,
}

/// An `Agent` without its instructions and the values of its environment variables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// The metadata.
    pub meta: Meta,
    /// The time of the last change by a manager other than the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// Its image.
    #[serde(default)]
    pub image: String,
    /// The user ID that it runs as.
    #[serde(default)]
    pub user: i64,
    /// The objects that it references and needs: ServiceAccount, classes, Secrets, ConfigMaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// The resource requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// The resource limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The maximum number of attempts of a run.
    #[serde(default)]
    pub max_attempts: u32,
    /// The timeout for the start of a container, in seconds.
    #[serde(default)]
    pub start_timeout_seconds: u64,
    /// The timeout of an attempt, in seconds.
    #[serde(default)]
    pub timeout_seconds: u64,
    /// The size of its instructions, in bytes.
    #[serde(default)]
    pub instruction_bytes: usize,
    /// The required results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_results: Vec<String>,
    /// Its status.
    #[serde(default)]
    pub status: AgentStatus,
}

/// An object that an Agent or a Pod references.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The referenced key of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The field that references it, such as `imagePullSecrets`.
    pub role: String,
}

/// A Job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// The metadata.
    pub meta: Meta,
    /// The context version of the run that it belongs to, from its label.
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
    /// The metadata.
    pub meta: Meta,
    /// Its phase.
    #[serde(default)]
    pub phase: String,
    /// The reason why the whole Pod failed, such as `Evicted`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message for the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
    /// Its containers, the current one first. The current one is the agent's container. If
    /// containers run one after the other, it is the first one that has not succeeded, otherwise
    /// the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerView>,
    /// The names of its claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// The Secrets that it references as `imagePullSecrets`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Labels that its node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// The object of the Event.
    pub object: ObjectRef,
    /// The UID of that object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Whether it is a warning.
    #[serde(default)]
    pub warning: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// The number of occurrences.
    #[serde(default)]
    pub count: i32,
    /// The time of the first occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Time>,
    /// The time of the last occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
}

/// A `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// The metadata.
    pub meta: Meta,
    /// Its phase.
    #[serde(default)]
    pub phase: String,
    /// Its storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The requested size.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
}

/// A `ResourceQuota`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaView {
    /// Its name.
    pub name: String,
    /// The limits of the quota.
    #[serde(default)]
    pub hard: BTreeMap<String, String>,
    /// The used amounts.
    #[serde(default)]
    pub used: BTreeMap<String, String>,
}

/// A `LimitRange`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitRangeView {
    /// Its name.
    pub name: String,
    /// Its limits as text, such as `Container memory: at most 1Gi`.
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
    /// Its labels with keys from a Pod's `nodeSelector`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The total resources for Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, String>,
}

/// Whether a referenced object exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// The object.
    pub object: ObjectRef,
    /// Whether it exists.
    pub exists: bool,
    /// A StorageClass's provisioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
}

/// An object for which only the metadata was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherView {
    /// Its kind.
    pub kind: String,
    /// Its resource name for kubectl, if the kind is not sufficient:
    /// `certificates.cert-manager.io`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The metadata.
    pub meta: Meta,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceView {
    /// Its name.
    pub name: String,
    /// The time when its deletion was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Time>,
    /// The Pod Security level that it enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<String>,
    /// Its conditions, which show the reason if a deletion is blocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
    /// The metadata, which shows its owner and its age.
    #[serde(default)]
    pub meta: Meta,
    /// The Tenant that may adopt it, from its annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<String>,
    /// The field manager that created it, from the managed fields.
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
    /// The identity of the leader, or `None` if the Lease was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The time of the last renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Time>,
    /// The duration of the Lease, in seconds.
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
