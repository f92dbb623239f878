//! The input of an explanation: plain data, read once, with the time of the read.
//!
//! # Guarantees
//! - Nothing secret: no data of Secrets or ConfigMaps, no content of files, no value of an
//!   environment variable, no arguments of a program.
//! - Bounded: at most [`LIST`] entries in a list, at most [`TEXT`] characters in a text.
//!
//! The JSON form is used as a test fixture: see `tests/worlds/README.md`.

#![expect(
    missing_docs,
    reason = "a field without a comment has the meaning of the field of its name in Kubernetes or in our CRDs"
)]

use std::collections::BTreeMap;

use api::{
    CommonStatus, Timestamp,
    apps::ManagedAppStatus,
    kinds::{self, OperatorRow},
    notebooks::{NOTEBOOK_VALIDATION_JOB, NotebookValidationJobStatus},
    tasks::{self, AgentStatus, TaskRunStatus},
    tenants::{TENANT, TenantStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use pods::{ContainerState, ContainerView, EndpointsView, Rollout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of entries in one list. Nobody would read more during an incident.
pub const LIST: usize = 100;
/// Maximum number of characters in one text from the cluster.
pub const TEXT: usize = 1024;

/// An object by its kind and name.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
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
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct World {
    pub now: Time,
    pub target: ObjectRef,
    /// The run that is the target or owns it.
    pub run: Option<RunView>,
    /// The Agent that is the target or that the run references.
    pub agent: Option<AgentView>,
    /// The Tenant that is the target or owns it.
    pub tenant: Option<TenantView>,
    /// The ManagedApp that is the target.
    pub app: Option<AppView>,
    /// The Kustomization and the HelmRelease of the ManagedApp.
    pub flux: Vec<FluxView>,
    /// The sources of the object of Flux that is not ready, from its own one to the deepest.
    pub sources: Vec<FluxView>,
    /// The NotebookValidationJob that is the target or owns it.
    pub notebook: Option<NotebookView>,
    /// The UpgradeRequest or the RollbackRequest that is the target. `app` is then its ManagedApp.
    pub request: Option<RequestView>,
    /// The target, if its kind has no rules of its own.
    pub object: Option<ObjectView>,
    /// The Tenant's Deployment and StatefulSet, or the first workload of the ManagedApp that is not ready.
    pub workloads: Vec<WorkloadView>,
    /// The endpoints of the Tenant's Services.
    pub endpoints: Vec<EndpointsView>,
    /// All NetworkPolicies of the Tenant's namespace, managed or not, or `None` if they could not
    /// be read.
    pub policies: Option<Vec<Meta>>,
    /// The objects that remain in a Tenant's namespace that is being deleted.
    pub left: Vec<OtherView>,
    /// The Jobs of the run or of the NotebookValidationJob, or the requested Job.
    pub jobs: Vec<JobView>,
    /// The Pods of the Jobs, of the Tenant, or of the workload of the ManagedApp.
    pub pods: Vec<PodView>,
    /// Core Events about the run, the Jobs, the workloads, the Pods and their claims.
    pub events: Vec<EventView>,
    pub claims: Vec<ClaimView>,
    pub quotas: Vec<QuotaView>,
    pub limit_ranges: Vec<LimitRangeView>,
    /// The nodes to which Pods are bound, or all nodes (up to [`LIST`]) if a Pod is unschedulable.
    pub nodes: Vec<NodeView>,
    /// Whether referenced objects exist that were not read in full.
    pub known: Vec<Known>,
    /// Unmanaged objects that have the name of a child.
    pub others: Vec<OtherView>,
    pub namespace: Option<NamespaceView>,
    /// The operator's Leases; `None` if they could not be read.
    pub leases: Option<Vec<LeaseView>>,
    /// The Deployments and Pods of the operator; `None` if they could not be read.
    pub operator: Option<OperatorView>,
    /// The CRDs of the operator's kinds, that of the target's kind first.
    pub crds: Vec<CrdView>,
    /// The objects that could not be read.
    pub unreadable: Vec<Unreadable>,
    /// The lists that are incomplete because only their first part was read.
    pub cut: Vec<String>,
}

impl Default for World {
    fn default() -> Self {
        Self::new(Time(Timestamp::UNIX_EPOCH), ObjectRef::cluster("", ""))
    }
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
            app: None,
            flux: Vec::new(),
            sources: Vec::new(),
            notebook: None,
            request: None,
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
            operator: None,
            crds: Vec::new(),
            unreadable: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// Returns the operator of the target: that of its kind, or of its owner.
    pub(crate) fn operator_row(&self) -> &'static OperatorRow {
        let kind = match (&self.tenant, &self.notebook) {
            (Some(_), _) => TENANT.name(),
            (None, Some(_)) => NOTEBOOK_VALIDATION_JOB.name(),
            (None, None) => self.target.kind.as_str(),
        };
        kinds::operator_of(kind).unwrap_or(&tasks::OPERATOR)
    }
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

/// Declares views. A field that is missing in a recorded world has its default.
macro_rules! views {
    ($($(#[$doc:meta])* pub struct $name:ident { $($(#[$of:meta])* pub $field:ident: $type:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $($(#[$of])* pub $field: $type,)+
        }
    )+};
}

views! {
    /// The metadata that every object has.
    pub struct Meta {
        pub name: String,
        /// Its namespace, empty for a cluster-scoped object.
        pub namespace: String,
        pub uid: String,
        /// The generation of its spec.
        pub generation: i64,
        pub created: Option<Time>,
        /// The time when its deletion was requested.
        pub deleting: Option<Time>,
        /// The end of the grace period of its deletion.
        pub stop_by: Option<Time>,
        /// The finalizers that block its deletion.
        pub finalizers: Vec<String>,
        /// Its controller, from the owner references.
        pub owner: Option<Owner>,
        /// The UID of the run or Tenant, from its label.
        pub run_uid: Option<String>,
        /// The name of the run or Tenant, from its label.
        pub run_name: Option<String>,
        /// The kind of the run or Tenant, from its label.
        pub run_kind: Option<String>,
        /// The component of a Tenant, from its label.
        pub component: Option<String>,
        /// The former Tenant that retained the object, from its annotation.
        pub retained_from: Option<String>,
    }

    /// The controller of an object.
    pub struct Owner {
        pub kind: String,
        pub name: String,
        pub uid: String,
    }

    /// A condition.
    pub struct ConditionView {
        #[serde(rename = "type")]
        pub kind: String,
        pub status: String,
        pub reason: String,
        pub message: String,
        pub since: Option<Time>,
    }

    /// A run without the content of its files: a `TaskRun`, or a `DocsRun` if `docs` is set.
    pub struct RunView {
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        pub agent_name: String,
        pub version: i64,
        pub suspend: bool,
        pub cancel: bool,
        /// Its own maximum number of attempts.
        pub max_attempts: Option<u32>,
        /// Its own `timeout`, in seconds.
        pub timeout_seconds: Option<u64>,
        /// The sizes of its files in bytes, by name. Only the first [`LIST`] files are included.
        pub files: BTreeMap<String, usize>,
        /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
        pub force_delete: bool,
        /// Its status. For a `DocsRun`, the fields that both kinds have.
        pub status: TaskRunStatus,
        /// The fields that only a `DocsRun` has.
        pub docs: Option<DocsView>,
    }

    /// The fields that only a `DocsRun` has, from its spec and its status.
    pub struct DocsView {
        pub repository: String,
        /// The branch that the agent reads.
        pub source_branch: String,
        /// The directory in which the agent works.
        pub working_directory: String,
        /// The name of the Secret with the credentials.
        pub secret: Option<String>,
        pub output_branch: String,
        /// The directory that is copied from the agent's work into the commit.
        pub output_path: String,
        /// The commit that the run works on.
        pub base_commit: Option<String>,
        /// The head of the output branch before the push.
        pub branch_head: Option<String>,
        pub commit: Option<String>,
        /// The number of files that the commit changes.
        pub changed_files: Option<u64>,
    }

    /// An `Agent` without its instructions and the values of its environment variables.
    pub struct AgentView {
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        pub image: String,
        pub user: i64,
        /// The objects that it references and needs: ServiceAccount, classes, Secrets, ConfigMaps.
        pub needs: Vec<Need>,
        pub limits: BTreeMap<String, String>,
        pub max_attempts: u32,
        /// The timeout of an attempt, in seconds.
        pub timeout_seconds: u64,
        /// The size of its instructions, in bytes.
        pub instruction_bytes: usize,
        pub required_results: Vec<String>,
        pub status: AgentStatus,
    }

    /// An object of a kind without rules of its own, with the part of its status that all kinds have.
    pub struct ObjectView {
        pub kind: String,
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its status cannot be decoded. The status is then empty.
        pub undecodable: Option<String>,
        pub phase: Option<String>,
        pub status: CommonStatus,
    }

    /// An object that an Agent or a Pod references.
    pub struct Need {
        pub kind: String,
        pub name: String,
        /// The referenced key of the object.
        pub key: Option<String>,
        /// The field that references it, such as `imagePullSecrets`.
        pub role: String,
    }

    /// A Job.
    pub struct JobView {
        pub meta: Meta,
        /// The context version of the run that it belongs to, from its label.
        pub version: Option<String>,
        pub suspended: bool,
        pub conditions: Vec<ConditionView>,
    }

    /// A Pod.
    pub struct PodView {
        pub meta: Meta,
        pub phase: String,
        /// The reason why the whole Pod failed, such as `Evicted`.
        pub reason: String,
        pub message: String,
        pub node: Option<String>,
        pub conditions: Vec<ConditionView>,
        /// Its containers, the current one first. The current one is the agent's container. If
        /// containers run one after the other, it is the first one that has not succeeded, otherwise
        /// the last one.
        pub containers: Vec<ContainerView>,
        pub claims: Vec<String>,
        /// The Secrets that it references as `imagePullSecrets`.
        pub needs: Vec<Need>,
        /// Labels that its node must have.
        pub node_selector: BTreeMap<String, String>,
    }

    /// An Event.
    pub struct EventView {
        /// The UID of that object.
        pub uid: String,
        pub warning: bool,
        pub reason: String,
        pub message: String,
        pub count: i32,
        pub first: Option<Time>,
        pub last: Option<Time>,
    }

    /// A `PersistentVolumeClaim`.
    pub struct ClaimView {
        pub meta: Meta,
        pub phase: String,
        pub class: Option<String>,
        pub size: String,
    }

    /// A `ResourceQuota`.
    pub struct QuotaView {
        pub name: String,
        pub hard: BTreeMap<String, String>,
        pub used: BTreeMap<String, String>,
    }

    /// A `LimitRange`.
    pub struct LimitRangeView {
        pub name: String,
        /// Its limits as text, such as `Container memory: at most 1Gi`.
        pub limits: Vec<String>,
    }

    /// A Node.
    pub struct NodeView {
        pub name: String,
        /// Its condition `Ready`.
        pub ready: Option<ConditionView>,
        pub cordoned: bool,
        /// Its taints, as `key=value:Effect`.
        pub taints: Vec<String>,
        /// Its labels with keys from a Pod's `nodeSelector`.
        pub labels: BTreeMap<String, String>,
        /// The total resources for Pods.
        pub allocatable: BTreeMap<String, String>,
    }

    /// Whether a referenced object exists.
    pub struct Known {
        pub object: ObjectRef,
        pub exists: bool,
        /// A StorageClass's provisioner.
        pub provisioner: Option<String>,
    }

    /// An object for which only the metadata was read.
    pub struct OtherView {
        pub kind: String,
        /// Its resource name for kubectl, if the kind is not sufficient:
        /// `certificates.cert-manager.io`.
        pub resource: String,
        pub meta: Meta,
    }

    /// A namespace.
    pub struct NamespaceView {
        pub name: String,
        /// The time when its deletion was requested.
        pub deleting: Option<Time>,
        /// The Pod Security level that it enforces.
        pub pod_security: Option<String>,
        /// Its conditions, which show the reason if a deletion is blocked.
        pub conditions: Vec<ConditionView>,
        /// The metadata, which shows its owner and its age.
        pub meta: Meta,
        /// The Tenant that may adopt it, from its annotation.
        pub adopt: Option<String>,
        /// The field manager that created it, from the managed fields.
        pub made_by: Option<String>,
    }

    /// A Lease of the operator.
    pub struct LeaseView {
        pub name: String,
        /// Its namespace, which is the operator's.
        pub namespace: String,
        /// The identity of the leader, or `None` if the Lease was released.
        pub holder: Option<String>,
        pub renewed: Option<Time>,
        /// The duration of the Lease, in seconds.
        pub duration_seconds: i64,
        /// The version of the operator that holds it, from its annotation.
        pub version: Option<String>,
    }

    /// The Deployments and Pods of an operator.
    pub struct OperatorView {
        pub deployments: Vec<WorkloadView>,
        /// The Pods, or `None` if they could not be read.
        pub pods: Option<Vec<PodView>>,
    }

    /// A CRD of ours, compared with the schema of this release.
    pub struct CrdView {
        pub name: String,
        /// Whether the user may not read CRDs. Then nothing else is known.
        pub forbidden: bool,
        pub exists: bool,
        /// The time when its deletion was requested.
        pub deleting: Option<Time>,
        /// The fields and values of this release that its schema does not have. The API server drops
        /// such a field and rejects such a value.
        pub lacks: Vec<String>,
    }

    /// A `Tenant` without the values of its environment variables and of its Redis configuration.
    pub struct TenantView {
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        /// The namespace that it requests.
        pub namespace: String,
        /// The server that it requests.
        pub server: Option<ServerView>,
        /// The Redis that it requests.
        pub redis: Option<RedisView>,
        /// Whether it is suspended, which stops server and Redis.
        pub suspend: bool,
        /// Whether NetworkPolicies are enabled.
        pub has_policies: bool,
        /// The deletion policy for its namespace: `Retain` or `Delete`.
        pub deletion: String,
        /// The time in seconds after which its deletion is reported as blocked.
        pub deadline_seconds: u64,
        /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
        pub force_delete: bool,
        pub status: TenantStatus,
    }

    /// The server that a Tenant requests.
    pub struct ServerView {
        pub replicas: i32,
        pub port: u16,
        /// The path of the readiness probe. Without it, the port must accept connections.
        pub readiness: Option<String>,
    }

    /// The Redis that a Tenant requests.
    pub struct RedisView {
        pub size: String,
    }

    /// A `ManagedApp`.
    pub struct AppView {
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        /// The namespace of the Kustomization that it references.
        pub kustomization_namespace: String,
        /// The name of the Kustomization that it references.
        pub kustomization: String,
        pub status: ManagedAppStatus,
    }

    /// A `NotebookValidationJob`, without its cells.
    pub struct NotebookView {
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        /// The path of the notebook in its repository.
        pub path: String,
        pub source: SourceView,
        /// The path of the golden notebook.
        pub golden_path: Option<String>,
        /// The golden notebook's own repository.
        pub golden_source: Option<SourceView>,
        /// The image of the kernel.
        pub image: String,
        /// The memory limit of the kernel's container.
        pub memory: Option<String>,
        pub suspend: bool,
        pub cancel: bool,
        /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
        pub force_delete: bool,
        /// Its status, with at most one difference and no cells.
        pub status: NotebookValidationJobStatus,
    }

    /// A Git repository of a NotebookValidationJob.
    pub struct SourceView {
        pub url: String,
        /// The commit, the branch or the tag.
        pub reference: String,
        /// The name of the Secret with the credentials.
        pub secret: Option<String>,
    }

    /// An `UpgradeRequest` or a `RollbackRequest`.
    pub struct RequestView {
        pub kind: String,
        pub meta: Meta,
        /// The time of the last change by a manager other than the operator.
        pub changed: Option<Time>,
        /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
        pub undecodable: Option<String>,
        /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
        pub force_delete: bool,
        pub phase: Option<String>,
        /// The part of the status that all kinds have.
        pub status: CommonStatus,
        /// The name of the ManagedApp; empty if it is not known.
        pub app: String,
        /// The name of the UpgradeRequest that a RollbackRequest references.
        pub upgrade: String,
        /// The version after the request, as far as it is known.
        pub to: String,
        /// The objects of Flux in the plan.
        pub flux: Vec<ObjectRef>,
        /// The GitRepository of the plan.
        pub source: Option<ObjectRef>,
        /// The workloads of the plan.
        pub workloads: Vec<ObjectRef>,
        /// The claims of the plan.
        pub claims: Vec<ObjectRef>,
        /// The snapshots of an UpgradeRequest.
        pub snapshots: Vec<ObjectRef>,
        /// The repository of the plan.
        pub url: String,
        /// The branch of the plan.
        pub branch: String,
    }

    /// A Kustomization or a HelmRelease of Flux, or a source of one.
    pub struct FluxView {
        pub kind: String,
        pub meta: Meta,
        /// The time of the last change of its spec or its metadata.
        pub changed: Option<Time>,
        pub suspend: bool,
        /// The observed generation.
        pub observed: i64,
        /// Its condition `Ready`.
        pub ready: Option<ConditionView>,
        /// The generation that the condition `Ready` is about.
        pub ready_generation: Option<i64>,
        /// Its condition `Stalled`, if it is True and about the current generation.
        pub stalled: Option<ConditionView>,
        /// The version of the last attempt: a revision, or the version of a chart.
        pub attempted: Option<String>,
        /// The version that is applied: a revision, or the version of the chart of the newest release.
        pub applied: Option<String>,
        /// The status of the newest release in Helm.
        pub release_status: Option<String>,
        /// The object that its content comes from.
        pub source: Option<ObjectRef>,
    }

    /// A Deployment, a StatefulSet or a DaemonSet.
    pub struct WorkloadView {
        /// `Deployment`, `StatefulSet` or `DaemonSet`.
        pub kind: String,
        pub meta: Meta,
        #[serde(flatten)]
        pub rollout: Rollout,
        /// The condition that reports why its controller cannot create a Pod.
        pub failure: Option<ConditionView>,
    }
}
