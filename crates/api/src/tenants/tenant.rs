//! `Tenant`: an isolated namespace for one customer, and the check of its isolation.

use std::collections::BTreeMap;

use kube::{CustomResource, CustomResourceExt, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{TenantStatus, condition};
use crate::{
    GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    pod::{Amount, EnvVar, Resources},
    rules,
};

/// Isolated namespace for one customer, with quota, roles and network policies. It can have a Redis
/// and a server.
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
    doc = "Isolated namespace for one customer, with quota, roles and network policies, and optionally a Redis and a server."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::unchanging_option("namespace", "Tenant"),
    validation = rules::redis_variables_are_ours(),
    validation = rules::let_in_to_something(),
    validation = rules::storage_unchanging()
)]
pub struct TenantSpec {
    /// Name of the customer, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::one_line())]
    pub display_name: Option<String>,

    /// Purpose of the Tenant, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,

    /// Users, groups and ServiceAccounts that may use the namespace, by the ClusterRole
    /// `orchestrator-tenant-owner`. The role permits managing workloads, Services, ConfigMaps,
    /// Secrets and volume claims. Quotas, limits, network policies, Ingresses and role bindings can
    /// only be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub owners: Vec<Owner>,

    /// Name of the namespace. Immutable. Default: `tenant-` followed by the Tenant's name. An
    /// existing namespace is adopted only if its annotation `orchestrator.io/adopt` or
    /// `orchestrator.io/retained-from` is the Tenant's name, and no Tenant of another name owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[x_kube(validation = rules::free_namespace())]
    pub namespace: Option<String>,

    /// Limits for the total resource usage of the namespace.
    #[serde(default)]
    pub resources: TenantResources,

    /// Server of the customer. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,

    /// Redis for this customer only. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,

    /// Connections that are allowed into the namespace and out of it. Connections inside the
    /// namespace and to port 53 of the DNS namespace (`tenants.dnsNamespace`) are always allowed.
    /// All others are blocked unless a rule allows them.
    #[serde(default)]
    pub network_policy: NetworkPolicy,

    /// Settings of the isolation check.
    #[serde(default)]
    pub isolation: Isolation,

    /// Handling of the namespace and its data when the Tenant is deleted. Required; there is no
    /// default.
    pub deletion: Deletion,

    /// Whether server and Redis are stopped. Their data is kept. Default: false.
    #[serde(default)]
    pub suspend: bool,
}

/// The row of Tenants in the table of kinds.
pub const TENANT: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "Tenant", "tenants"),
    crd_name: "tenants.orchestrator.io",
    singular: "tenant",
    short_name: "oten",
    listed: "tenants",
    aliases: &[],
    is_namespaced: false,
    lifecycle: TenantStatus::LIFECYCLE,
    columns: &[
        Column::new("Ready", Content::Condition("Ready")),
        Column::new("Status", Content::Text("status.phase")),
        Column::new("Isolated", Content::Condition(condition::NETWORK_ISOLATED)),
        Column::AGE,
        Column::new("Namespace", Content::Text("status.namespace")).wide(),
        Column::new("Reason", Content::Reason("Ready")).wide(),
        Column::MESSAGE,
    ],
    conditions: condition::MEANINGS,
    epoch: TenantStatus::EPOCH,
    phases: describe_phases::<<TenantStatus as Status>::Phase>,
    derived_crd: Tenant::crd,
};

/// Returns the namespace of a Tenant.
#[must_use]
pub fn namespace_of(name: &str, spec: &TenantSpec) -> String {
    match &spec.namespace {
        Some(namespace) => namespace.clone(),
        None => ["tenant-", name].concat(),
    }
}

/// User, group or ServiceAccount that may use the namespace.
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
    /// Kind of the owner: `User`, `Group` or `ServiceAccount`.
    pub kind: OwnerKind,
    /// Name of the owner.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::one_line())]
    pub name: String,
    /// Namespace of a ServiceAccount. Required for a ServiceAccount, and not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
}

/// Kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerKind {
    /// A user, by the name that the API server authenticates.
    User,
    /// A group of users, by the name that the API server authenticates.
    Group,
    /// A ServiceAccount of the cluster.
    ServiceAccount,
}

/// Limits for the total resource usage of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantResources {
    /// Total CPU that all containers in the namespace may request and use, in cores.
    /// Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<RequestAndLimit>,
    /// Total memory that all containers in the namespace may request and use, in bytes.
    /// Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RequestAndLimit>,
    /// Size of all volumes together and of each volume in the namespace, in bytes. Default:
    /// unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Volumes>,
    /// Maximum number of unfinished Pods in the namespace, without the probe Pods. Default: `pods`
    /// in `tenants.objectLimits` of the operator's configuration, or 250.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Limit>,
}

/// Limits for the requests and for the usage of all containers together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestAndLimit {
    /// Maximum amount that all containers together may request. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub request: Option<Amount>,
    /// Maximum amount that all containers together may use. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub limit: Option<Amount>,
}

/// Limits for the size of volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volumes {
    /// Maximum size that all volumes together may request. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub total: Option<Amount>,
    /// Maximum size that each volume may request. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::more_than_zero())]
    pub per_volume: Option<Amount>,
}

/// Limit for a number of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Maximum number, from 1 to 100000.
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: u32,
}

/// Server of the customer: a Deployment and a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Container image, with a tag or a digest. It runs without root and without privileges.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,
    /// Number of replicas, from 1 to 100. Default: 1.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 100))]
    pub replicas: u32,
    /// Port that the server listens on, and port of its Service, from 1024 to 65535. Default: 3030.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// Resource requests and limits of one replica. Default: `tenants.defaultResources` of the
    /// operator's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Environment variables of the server. The operator sets `PORT` and `HOME`, and with a Redis
    /// also `REDIS_PASSWORD` and `REDIS_URL` (its address, including the password). The names that
    /// the operator sets are reserved, and so are names that begin with `ORCHESTRATOR_`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("!self.exists(one, one.name == 'PORT')")
            .message("'PORT' is set by Orchestrator, from 'port'")
    )]
    pub env: Vec<EnvVar>,
    /// HTTP probes of the server. Default: the server is ready if its port accepts connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

fn default_replicas() -> u32 {
    1
}
fn default_port() -> u16 {
    3030
}

/// HTTP probes of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// Probe that checks whether the server can receive requests.
    pub readiness: Probe,
    /// Probe that checks whether the server must be restarted. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Probe>,
}

/// HTTP request to the server, on its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Path of the request. The server must respond with a 2xx or 3xx status.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^/[A-Za-z0-9._~/?=&%-]*$")
    )]
    pub path: String,
    /// Seconds between two requests, from 1 to 3600. Default: 10.
    #[serde(default = "default_period")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: u32,
    /// Number of consecutive failures after which the probe fails, from 1 to 100. Default: 3.
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

/// Redis with one replica: a StatefulSet with a volume, its own password, and a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redis {
    /// Container image, with a tag or a digest. It must contain `redis-server` and `redis-cli`.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
    )]
    pub image: String,
    /// Volume for the data of the Redis. It cannot be changed. To get another one, remove `redis`,
    /// delete the volume and add `redis` again.
    pub storage: RedisStorage,
    /// Resource requests and limits of the Redis. Default: `tenants.defaultResources` of the
    /// operator's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Lines of the Redis configuration: directives with their arguments. Directives that would
    /// open the Redis to others, run programs or move its data cannot be set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "rules::redis_config")]
    pub config: BTreeMap<String, String>,
}

/// Volume of a Redis. Immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisStorage {
    /// Size of the volume, such as `1Gi`.
    #[x_kube(validation = rules::more_than_zero())]
    pub size: Amount,
    /// StorageClass of the volume. Default: the default class of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub storage_class_name: Option<String>,
}

/// Connections that are allowed into the namespace and out of it. Connections inside the namespace
/// and to port 53 of the DNS namespace (`tenants.dnsNamespace`) are always allowed. All others are
/// blocked unless a rule allows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether network policies are created. Without them, the Tenant reports that it is not
    /// isolated. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Namespaces from which Pods may connect to the server's port. Default: none; then other
    /// namespaces can connect only if `ingressRules` allow it. Requires `server`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(
            length(min = 1, max = 63),
            regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
        )
    )]
    pub allowed_namespaces: Vec<String>,
    /// Other connections that are allowed into the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ingress_rules: Vec<IngressRule>,
    /// Connections that are allowed out of the namespace.
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

/// Connections that are allowed into the namespace. Both lists must have at least one entry: an
/// empty list would allow all sources, or all ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!self.from.exists(one, has(one.internet))")
        .message("'internet' is for 'egressRules': nobody reaches a Tenant from the internet without a Pod of the cluster in between")
        .field_path(".from")
)]
pub struct IngressRule {
    /// Allowed sources.
    #[schemars(length(min = 1, max = 16))]
    pub from: Vec<Peer>,
    /// Ports of the namespace's Pods that the sources may reach.
    #[schemars(length(min = 1, max = 16))]
    pub ports: Vec<Port>,
}

/// Connections that are allowed out of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRule {
    /// Allowed destinations.
    #[schemars(length(min = 1, max = 16))]
    pub to: Vec<Peer>,
    /// Ports of the destinations that may be reached.
    #[schemars(length(min = 1, max = 16))]
    pub ports: Vec<Port>,
}

/// Namespace, network or the internet: exactly one of the three.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.__namespace__), has(self.network), has(self.internet)].exists_one(one, one)")
        .message("takes exactly one of 'namespace', 'network' and 'internet'"),
    validation = Rule::new("!has(self.internet) || self.internet")
        .message("must be true: without it the internet is not reached")
        .field_path(".internet")
)]
pub struct Peer {
    /// All Pods of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
    /// All addresses of this network, such as `192.0.2.0/24`, without exceptions: `0.0.0.0/0`
    /// includes Pods, nodes and the metadata service of a cloud. For public addresses, use
    /// `internet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = rules::network())]
    pub network: Option<String>,
    /// All public addresses. Only in `egressRules`, and only as `true`.
    ///
    /// Private and link-local networks are excluded, so neither Pods, Services and nodes nor a
    /// cloud's metadata service can be reached. Networks of the cluster that are public are
    /// excluded if the operator's configuration lists them in `tenants.clusterNetworks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internet: Option<bool>,
}

/// Port with its protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Protocol of the port: `TCP` or `UDP`. Default: `TCP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Number of the port, from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// User Datagram Protocol.
    #[serde(rename = "UDP")]
    Udp,
}

/// Settings of the isolation check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolation {
    /// Whether short-lived Pods check the isolation: after each change of the policies, the
    /// server's port or the existence of a Redis, and about once a day. They try connections that
    /// must be blocked and connections that must succeed. A check that could not be completed is
    /// repeated after 1 minute, one with another bad result after 10 minutes. Default: true.
    #[serde(default = "yes")]
    pub probe: bool,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { probe: true }
    }
}

/// Handling of the namespace and its data when the Tenant is deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Whether the namespace is kept (`Retain`) or deleted (`Delete`). Required; there is no
    /// default.
    ///
    /// `Retain` keeps the namespace with all its workloads, its data, its quotas and its network
    /// policies. The operator marks the namespace, so that a Tenant of the same name adopts it
    /// again. Owners lose their permissions. `Delete` deletes the namespace with all its data.
    pub policy: DeletionPolicy,
    /// Time after the deletion request at which an unfinished deletion of the namespace is reported
    /// as blocked, from `10s` to `24h`. The deletion continues. This field has no effect with
    /// `Retain`. Default: `15m`.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub deadline: Duration,
}

fn default_deadline() -> Duration {
    std::time::Duration::from_secs(900).into()
}

/// Handling of the namespace when the Tenant is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Keeps the namespace. Its workloads continue to run.
    Retain,
    /// Deletes the namespace with everything in it.
    Delete,
}
