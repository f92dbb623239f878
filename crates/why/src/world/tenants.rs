//! What is read of a Tenant and of what it is made of.

use api::tenants::TenantStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{ConditionView, Meta};

/// A `Tenant` without the values of its environment and of its Redis' configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantView {
    /// What every object has.
    pub meta: Meta,
    /// When someone other than the operator last changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// Why its spec or its status cannot be read; what could not be is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// The namespace that it asks for.
    #[serde(default)]
    pub namespace: String,
    /// The server that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerView>,
    /// The Redis that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisView>,
    /// Whether both are stopped.
    #[serde(default)]
    pub suspend: bool,
    /// Whether it has network policies.
    #[serde(default)]
    pub has_policies: bool,
    /// Whether its isolation is to be proven.
    #[serde(default)]
    pub is_probed: bool,
    /// What becomes of its namespace: `Retain` or `Delete`.
    #[serde(default)]
    pub deletion: String,
    /// After how many seconds its deletion counts as blocked.
    #[serde(default)]
    pub deadline_seconds: u64,
    /// Whether someone asked to let it go without waiting.
    #[serde(default)]
    pub force_delete: bool,
    /// How it stands, as it says itself.
    #[serde(default)]
    pub status: TenantStatus,
}

/// The server that a Tenant asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// Its image.
    pub image: String,
    /// How many of it.
    pub replicas: i32,
    /// Its port.
    pub port: u16,
    /// The path that must answer; without it, its port must accept connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<String>,
}

/// The Redis that a Tenant asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisView {
    /// Its image.
    pub image: String,
    /// The size of its volume.
    pub size: String,
    /// The class of its volume; without it, the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// A Deployment or a StatefulSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadView {
    /// `Deployment` or `StatefulSet`.
    pub kind: String,
    /// What every object has.
    pub meta: Meta,
    /// The generation that its controller has seen; -1 before its first look.
    #[serde(default)]
    pub observed: i64,
    /// How many Pods are wanted.
    #[serde(default)]
    pub wanted: i32,
    /// How many there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are of the newest template.
    #[serde(default)]
    pub updated: i32,
    /// How many are ready.
    #[serde(default)]
    pub ready: i32,
    /// Why its controller cannot make a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ConditionView>,
}

/// What a Service leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointsView {
    /// The Service.
    pub service: String,
    /// How many endpoints are ready.
    pub ready: usize,
    /// How many are not.
    pub not_ready: usize,
}
