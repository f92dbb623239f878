//! `Tenant`: a place of its own for one customer, and proof that it is isolated.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::TenantStatus;
use crate::{
    pod::{Amount, EnvVar, Resources},
    rules,
};

/// A place of its own for one customer: a namespace with its quota, roles and network policies, and,
/// where they are asked for, a Redis and a server.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    singular = "tenant",
    shortname = "oten",
    category = "orchestrator",
    status = "TenantStatus",
    derive = "PartialEq",
    validation = rules::name_for_a_namespace(),
    doc = "A place of its own for one customer: a namespace with its quota, roles and network policies, and, where they are asked for, a Redis and a server.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Isolated",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"NetworkIsolated\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Namespace",
        type_ = "string",
        json_path = ".status.namespace",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
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
#[x_kube(
    validation = rules::unchanging_option("namespace", "Tenant"),
    validation = rules::redis_variables_are_ours(),
    validation = rules::let_in_to_something(),
    validation = rules::storage_unchanging()
)]
pub struct TenantSpec {
    /// The customer's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::one_line())]
    pub display_name: Option<String>,

    /// What the place is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,

    /// Who may use the namespace, by the role `orchestrator-tenant-owner`: everything that a customer
    /// needs there, nothing that opens it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub owners: Vec<Owner>,

    /// The namespace; without it, `tenant-` and the Tenant's name. One that exists is never taken,
    /// unless it says itself that it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[x_kube(validation = rules::free_namespace())]
    pub namespace: Option<String>,

    /// What everything in the namespace may use together.
    #[serde(default)]
    pub resources: TenantResources,

    /// The customer's server. Without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,

    /// A Redis for the customer alone. Without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,

    /// Who may reach the namespace, and what it may reach.
    #[serde(default)]
    pub network_policy: NetworkPolicy,

    /// Whether the isolation is proven.
    #[serde(default)]
    pub isolation: Isolation,

    /// What becomes of the namespace and its data when the Tenant is deleted. There is no default: you
    /// say it.
    pub deletion: Deletion,

    /// Whether server and Redis are stopped. Their data stays.
    #[serde(default)]
    pub suspend: bool,
}

/// The namespace of a Tenant.
#[must_use]
pub fn namespace_of(name: &str, spec: &TenantSpec) -> String {
    match &spec.namespace {
        Some(namespace) => namespace.clone(),
        None => ["tenant-", name].concat(),
    }
}

/// Who may use the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.kind == 'ServiceAccount') == has(self.__namespace__)")
        .message("'namespace' must be given for a ServiceAccount, and only there"),
    validation = rules::account_name(),
    validation = Rule::new("!(self.name in ['system:authenticated', 'system:unauthenticated', 'system:anonymous', 'system:serviceaccounts', 'system:masters'])")
        .message("must be someone: this name stands for everybody, or for those who may do anything anyway")
        .field_path(".name")
)]
pub struct Owner {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: OwnerKind,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::one_line())]
    pub name: String,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
}

/// What an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerKind {
    /// Someone, as the API server knows him.
    User,
    /// Several, as the API server knows them.
    Group,
    /// A program in a cluster.
    ServiceAccount,
}

/// What everything in a namespace may use together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantResources {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<RequestAndLimit>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RequestAndLimit>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Volumes>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Limit>,
}

/// What may be asked for, and what may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestAndLimit {
    /// What may be set aside for all containers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub request: Option<Amount>,
    /// What all containers together may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub limit: Option<Amount>,
}

/// What volumes may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volumes {
    /// What all volumes together may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub request: Option<Amount>,
    /// What the largest single volume may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub limit: Option<Amount>,
}

/// How many there may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The most.
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: u32,
}

/// The customer's server: a Deployment and a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// The image, with a tag or a digest. It runs without root and without privileges.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,
    /// How many of it there are.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 100))]
    pub replicas: u32,
    /// The port that it listens on, and that its Service has.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// What one of it asks for and may use; without it, the operator's configured default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Environment variables. `PORT` is the port; with a Redis, `REDIS_PASSWORD` is its password, and
    /// `REDIS_URL` its address with the password in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("!self.exists(one, one.name == 'PORT')")
            .message("'PORT' is set by Orchestrator, from 'port'")
    )]
    pub env: Vec<EnvVar>,
    /// How it is asked whether it works; without them, whether its port accepts connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

fn default_replicas() -> u32 {
    1
}
fn default_port() -> u16 {
    3030
}

/// How a server is asked whether it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// Whether it can be sent requests.
    pub readiness: Probe,
    /// Whether it must be started again; without it, it is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Probe>,
}

/// One question to a server, by http on its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// The path that must answer with a 2xx or 3xx.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^/[A-Za-z0-9._~/?=&%-]*$")
    )]
    pub path: String,
    /// How many seconds lie between two questions.
    #[serde(default = "default_period")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: u32,
    /// How many wrong answers in a row count as none.
    #[serde(default = "default_threshold")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u32,
}

fn default_period() -> u32 {
    10
}
fn default_threshold() -> u32 {
    3
}

/// A Redis of one: a StatefulSet with a volume, a password of its own, and a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redis {
    /// The image, with a tag or a digest; it has `redis-server` and `redis-cli`.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,
    /// The volume that it stores on.
    pub storage: RedisStorage,
    /// What it asks for and may use; without it, the operator's configured default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Lines of its configuration: a directive and its arguments. What would open it, run programs or
    /// move its data cannot be set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::redis_config")]
    pub config: BTreeMap<String, String>,
}

/// The volume of a Redis. It cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisStorage {
    /// Its size.
    #[x_kube(validation = rules::more_than_zero())]
    pub size: Amount,
    /// Its class; without it, the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub storage_class_name: Option<String>,
}

/// Who may reach a namespace, and what it may reach. Inside it everybody reaches everybody, and DNS
/// works; everything else is refused unless a rule allows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether there are policies at all. Without them the Tenant says that it is not isolated.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Namespaces whose Pods may reach the server. None means nobody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(
            length(min = 1, max = 63),
            regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
        )
    )]
    pub allowed_namespaces: Vec<String>,
    /// Who else may reach what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ingress_rules: Vec<IngressRule>,
    /// What may be reached outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub egress_rules: Vec<EgressRule>,
}

fn yes() -> bool {
    true
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_namespaces: Vec::new(),
            ingress_rules: Vec::new(),
            egress_rules: Vec::new(),
        }
    }
}

/// Who may reach the namespace. Both lists must name someone and something: an empty one would mean
/// everybody and everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressRule {
    /// Who.
    #[schemars(length(min = 1, max = 16))]
    pub from: Vec<Peer>,
    /// On which ports.
    #[schemars(length(min = 1, max = 16))]
    pub ports: Vec<Port>,
}

/// What may be reached from the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRule {
    /// What.
    #[schemars(length(min = 1, max = 16))]
    pub to: Vec<Peer>,
    /// On which ports.
    #[schemars(length(min = 1, max = 16))]
    pub ports: Vec<Port>,
}

/// A namespace or a network: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.__namespace__) != has(self.network)")
        .message("takes exactly one of 'namespace' and 'network'")
)]
pub struct Peer {
    /// All Pods of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
    /// All addresses of this network, such as `192.0.2.0/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = rules::network())]
    pub network: Option<String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// `TCP` or `UDP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// How a port is spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// By connections.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// By packets.
    #[serde(rename = "UDP")]
    Udp,
}

/// Whether the isolation is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolation {
    /// Whether short-lived Pods try, after each change of the policies and once a day, what must be
    /// refused and what must pass.
    #[serde(default = "yes")]
    pub probe: bool,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { probe: true }
    }
}

/// What becomes of the namespace and its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// `Retain` leaves the namespace with everything that runs and is stored in it, and marks it, so
    /// that a Tenant of the same name takes it back. `Delete` deletes it, data and all.
    pub policy: DeletionPolicy,
    /// After how long a deletion that does not come to its end is said to be blocked. It goes on.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub deadline: Duration,
}

fn default_deadline() -> Duration {
    std::time::Duration::from_secs(900).into()
}

/// What becomes of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays, and what runs in it goes on.
    Retain,
    /// It goes, with everything in it.
    Delete,
}
