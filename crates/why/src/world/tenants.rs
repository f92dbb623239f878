//! The data that is read about a Tenant and its children.

use api::tenants::TenantStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{ConditionView, Meta};

/// A `Tenant` without the values of its environment variables and of its Redis configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantView {
    /// The metadata.
    pub meta: Meta,
    /// The time of the last change by a manager other than the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// The error if its spec or its status cannot be decoded. The undecodable part is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// The namespace that it requests.
    #[serde(default)]
    pub namespace: String,
    /// The server that it requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerView>,
    /// The Redis that it requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisView>,
    /// Whether it is suspended, which stops server and Redis.
    #[serde(default)]
    pub suspend: bool,
    /// Whether NetworkPolicies are enabled.
    #[serde(default)]
    pub has_policies: bool,
    /// Whether its isolation is checked with probes.
    #[serde(default)]
    pub is_probed: bool,
    /// The deletion policy for its namespace: `Retain` or `Delete`.
    #[serde(default)]
    pub deletion: String,
    /// The time in seconds after which its deletion is reported as blocked.
    #[serde(default)]
    pub deadline_seconds: u64,
    /// Whether it has the force-delete annotation, which removes the finalizer without waiting.
    #[serde(default)]
    pub force_delete: bool,
    /// Its status.
    #[serde(default)]
    pub status: TenantStatus,
}

/// The server that a Tenant requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// Its image.
    pub image: String,
    /// The number of replicas.
    pub replicas: i32,
    /// Its port.
    pub port: u16,
    /// The path of the readiness probe. Without it, the port must accept connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<String>,
}

/// The Redis that a Tenant requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisView {
    /// Its image.
    pub image: String,
    /// The size of its volume.
    pub size: String,
    /// The storage class of its volume. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// A Deployment or a StatefulSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadView {
    /// `Deployment` or `StatefulSet`.
    pub kind: String,
    /// The metadata.
    pub meta: Meta,
    /// The generation that its controller has observed, or -1 before the first observation.
    #[serde(default)]
    pub observed: i64,
    /// The number of requested Pods.
    #[serde(default)]
    pub wanted: i32,
    /// The number of existing Pods.
    #[serde(default)]
    pub replicas: i32,
    /// The number of Pods with the latest template.
    #[serde(default)]
    pub updated: i32,
    /// The number of ready Pods.
    #[serde(default)]
    pub ready: i32,
    /// The condition that reports why its controller cannot create a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ConditionView>,
}

/// The endpoints of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointsView {
    /// The name of the Service.
    pub service: String,
    /// The number of ready endpoints.
    pub ready: usize,
    /// The number of endpoints that are not ready.
    pub not_ready: usize,
}
