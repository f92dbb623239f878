//! Builds the manifests of a Tenant from its spec alone, so that the same spec gives the same bytes.

mod namespace;
mod network;
pub mod probe;
mod quota;
mod redis;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    names,
    tenants::{Tenant, TenantSpec, namespace_of},
};
use serde_json::{Value, json};

pub use namespace::{NOTES, description_annotations, namespace, namespace_labels};
pub(crate) use network::DENY;
pub use network::{fingerprint, may_enter, may_leave};
pub use probe::{Connection, Side};
pub use quota::{MOST_OBJECTS, OBJECT_LIMITS};
pub use redis::{PORT as REDIS_PORT, SECRET};

/// The name of all objects of the Redis.
pub const REDIS: &str = "redis";
/// The name of all objects of the server.
pub const SERVER: &str = "server";
/// Label with the component of a Tenant that an object belongs to. Selectors use it, so it never changes.
pub const COMPONENT: &str = "orchestrator.io/component";
/// The user ID that containers run as.
pub(crate) const USER: i64 = 65532;

/// Resource types of a Tenant's objects.
pub mod types {
    use api::decide::ResourceType;

    /// `v1` Namespaces.
    pub const NAMESPACE: ResourceType = ResourceType::new("", "v1", "Namespace", "namespaces");
    /// `v1` ResourceQuotas.
    pub const QUOTA: ResourceType = ResourceType::new("", "v1", "ResourceQuota", "resourcequotas");
    /// `v1` LimitRanges.
    pub const LIMITS: ResourceType = ResourceType::new("", "v1", "LimitRange", "limitranges");
    /// `v1` Services.
    pub const SERVICE: ResourceType = ResourceType::new("", "v1", "Service", "services");
    /// `v1` Secrets.
    pub const SECRET: ResourceType = ResourceType::new("", "v1", "Secret", "secrets");
    /// `apps/v1` Deployments.
    pub const DEPLOYMENT: ResourceType =
        ResourceType::new("apps", "v1", "Deployment", "deployments");
    /// `apps/v1` StatefulSets.
    pub const STATEFUL_SET: ResourceType =
        ResourceType::new("apps", "v1", "StatefulSet", "statefulsets");
    /// `networking.k8s.io/v1` NetworkPolicies.
    pub const NETWORK_POLICY: ResourceType = ResourceType::new(
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
    );
    /// `rbac.authorization.k8s.io/v1` RoleBindings.
    pub const ROLE_BINDING: ResourceType = ResourceType::new(
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    );
}

/// Settings that do not come from the spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Requests and limits of a server or a Redis without `resources` in the spec.
    pub default_resources: Value,
    /// Maximum numbers of objects of a Tenant that override [`OBJECT_LIMITS`].
    pub object_limits: BTreeMap<String, u32>,
    /// Networks of the cluster that do not count as internet, in addition to private networks.
    pub cluster_networks: Vec<String>,
    /// The namespace of the cluster's DNS.
    pub dns_namespace: String,
    /// The ClusterRole that owners get in their namespace.
    pub owner_role: String,
    /// The PriorityClass of the probe Pods, which have their own quota.
    pub probe_priority_class: String,
    /// The image that contains `step`.
    pub probe_image: String,
    /// The namespace of the probe Pods that connect from outside: the operator's own namespace.
    pub probe_namespace: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_resources: json!({
                "requests": { "cpu": "50m", "memory": "64Mi" },
                "limits": { "cpu": "500m", "memory": "256Mi" },
            }),
            object_limits: BTreeMap::new(),
            cluster_networks: Vec::new(),
            dns_namespace: "kube-system".to_owned(),
            owner_role: "orchestrator-tenant-owner".to_owned(),
            probe_priority_class: "orchestrator-tenant-probe".to_owned(),
            probe_image: "localhost/orchestrator-toolbox:0.1.0".to_owned(),
            probe_namespace: "orchestrator".to_owned(),
        }
    }
}

/// The Tenant that a manifest is built for.
#[derive(Debug, Clone, Copy)]
pub struct BuildContext<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its spec.
    pub spec: &'a TenantSpec,
    /// Settings that do not come from the spec.
    pub settings: &'a Settings,
}

impl<'a> BuildContext<'a> {
    /// Creates the context for this Tenant.
    #[must_use]
    pub fn new(tenant: &'a Tenant, settings: &'a Settings) -> Self {
        Self {
            name: tenant.metadata.name.as_deref().unwrap_or_default(),
            uid: tenant.metadata.uid.as_deref().unwrap_or_default(),
            spec: &tenant.spec,
            settings,
        }
    }

    /// Returns its namespace.
    #[must_use]
    pub fn namespace(&self) -> String {
        namespace_of(self.name, self.spec)
    }

    /// Creates a manifest in its namespace.
    fn manifest(
        &self,
        resource: ResourceType,
        name: &str,
        component: &str,
        body: Value,
    ) -> Manifest {
        let mut labels = names::child_labels("Tenant", self.name, self.uid);
        if !component.is_empty() {
            labels.insert(COMPONENT.to_owned(), component.to_owned());
        }
        let namespace = self.namespace();
        let mut manifest = Manifest::new(resource, Some(&namespace), name, self.uid, labels, body);
        // Identifies the owner even if someone removes the labels.
        manifest.body["metadata"]["annotations"][names::UID] = json!(self.uid);
        manifest
    }
}

/// Returns the labels of the Tenant's Pods. They do not include its UID: a Tenant that adopts a retained
/// namespace has another UID, and the workloads must keep running.
fn pod_labels(context: BuildContext<'_>, component: &str) -> BTreeMap<String, String> {
    let mut labels = names::child_labels("Tenant", context.name, context.uid);
    labels.remove(names::UID);
    labels.insert(COMPONENT.to_owned(), component.to_owned());
    labels
}

/// Returns the number of replicas: 0 if the Tenant is suspended.
fn scaled(spec: &TenantSpec, replicas: u32) -> u32 {
    if spec.suspend { 0 } else { replicas }
}

/// Returns the security context of our Pods. They have no privileges.
fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Returns all objects of the spec in the namespace, in the order of their creation. Restrictions come
/// first.
///
/// `secret_uid` is the UID of the Redis Secret. The workloads that use the Secret restart when the UID
/// changes.
#[must_use]
pub fn children(context: BuildContext<'_>, secret_uid: Option<&str>) -> Vec<Manifest> {
    let mut all = quota::all(context);
    all.extend(namespace::role_binding(context));
    all.extend(network::all(context));
    all.extend(redis::all(context, secret_uid));
    all.extend(server::all(context, secret_uid));
    all
}

/// Returns the Secret of the Redis, if the spec has a Redis. It is created once and never changed.
#[must_use]
pub fn secret(context: BuildContext<'_>, password: &str) -> Option<Manifest> {
    context
        .spec
        .redis
        .as_ref()
        .map(|_| redis::secret(context, password))
}
