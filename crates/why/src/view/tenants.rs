//! The views of a Tenant and of its children.

use api::{
    names,
    tenants::{DeletionPolicy, TenantSpec, TenantStatus, namespace_of},
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use pods::{Rollout, replica_failure};
use serde_json::Value;

use super::{
    annotation,
    ours::{changed, parts, seconds},
    text,
};
use crate::world::{Meta, RedisView, ServerView, TenantView, WorkloadView};

impl TenantView {
    /// Reads a `Tenant`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let (meta, status, spec, undecodable) = parts::<TenantStatus, TenantSpec>(object);
        let name = meta.name.clone().unwrap_or_default();
        let view = Self {
            meta: Meta::from(&meta),
            changed: changed(&meta),
            force_delete: annotation(&meta, names::FORCE_DELETE) == Some("true"),
            // A spec that cannot be decoded may still contain the namespace.
            namespace: status.namespace.clone().unwrap_or_else(|| {
                let named = object["spec"]["namespace"].as_str();
                named.map_or_else(|| ["tenant-", &name].concat(), text)
            }),
            undecodable,
            status,
            ..Self::default()
        };
        let Some(spec) = spec else { return view };
        let deletion = match spec.deletion.policy {
            DeletionPolicy::Retain => "Retain",
            DeletionPolicy::Delete => "Delete",
        };
        Self {
            namespace: namespace_of(&name, &spec),
            suspend: spec.suspend,
            has_policies: spec.network_policy.enabled,
            deletion: deletion.to_owned(),
            deadline_seconds: seconds(spec.deletion.deadline),
            server: spec.server.map(|server| ServerView {
                replicas: i32::try_from(server.replicas).unwrap_or(i32::MAX),
                port: server.port,
                readiness: server.probes.map(|probes| text(&probes.readiness.path)),
            }),
            redis: spec.redis.map(|redis| RedisView {
                size: text(&redis.storage.size.0),
            }),
            ..view
        }
    }
}

impl From<&Deployment> for WorkloadView {
    fn from(deployment: &Deployment) -> Self {
        Self {
            kind: "Deployment".to_owned(),
            meta: Meta::from(&deployment.metadata),
            rollout: Rollout::from(deployment),
            failure: replica_failure(deployment).map(|known| condition!(known)),
        }
    }
}

impl From<&StatefulSet> for WorkloadView {
    fn from(set: &StatefulSet) -> Self {
        Self {
            kind: "StatefulSet".to_owned(),
            meta: Meta::from(&set.metadata),
            rollout: Rollout::from(set),
            failure: None,
        }
    }
}

#[cfg(test)]
mod tests;
