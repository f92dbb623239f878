//! What a Tenant is made of: from its spec alone, so that the same spec gives the same bytes.

mod bounds;
mod network;
mod place;
pub mod probe;
mod redis;
mod server;

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    names,
    tenants::{Tenant, TenantSpec, namespace_of},
};
use mutant::Mutant;
use serde_json::{Value, json};

pub(crate) use network::DENY;
pub use network::{fingerprint, may_enter, may_leave};
pub use place::{NOTES, namespace, namespace_labels, notes};
pub use probe::{Connection, Side};
pub use redis::{PORT as REDIS_PORT, SECRET};

/// The name of everything that belongs to the Redis.
pub const REDIS: &str = "redis";
/// The name of everything that belongs to the server.
pub const SERVER: &str = "server";
/// Label: which part of a Tenant something belongs to. Selectors use it, so it never changes.
pub const COMPONENT: &str = "orchestrator.io/component";
/// The user that containers run as.
const USER: i64 = 65532;

/// Types that a Tenant is made of.
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

/// What does not come from the spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What a server or a Redis asks for and may use, where its spec says nothing.
    pub default_resources: Value,
    /// Where the cluster's DNS is.
    pub dns_namespace: String,
    /// The ClusterRole that owners get in their namespace.
    pub owner_role: String,
    /// The PriorityClass of the Pods that prove the isolation: they have a quota of their own.
    pub probe_priority_class: String,
    /// The image with `step`.
    pub probe_image: String,
    /// Where the Pods are that try from outside: the operator's own namespace.
    pub probe_namespace: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_resources: json!({
                "requests": { "cpu": "50m", "memory": "64Mi" },
                "limits": { "cpu": "500m", "memory": "256Mi" },
            }),
            dns_namespace: "kube-system".to_owned(),
            owner_role: "orchestrator-tenant-owner".to_owned(),
            probe_priority_class: "orchestrator-tenant-probe".to_owned(),
            probe_image: "localhost/orchestrator-toolbox:0.1.0".to_owned(),
            probe_namespace: "orchestrator".to_owned(),
        }
    }
}

/// The Tenant that something is built for.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its spec.
    pub spec: &'a TenantSpec,
    /// What does not come from the spec.
    pub settings: &'a Settings,
}

impl<'a> For<'a> {
    /// This Tenant.
    #[must_use]
    pub fn new(tenant: &'a Tenant, settings: &'a Settings) -> Self {
        Self {
            name: tenant.metadata.name.as_deref().unwrap_or_default(),
            uid: tenant.metadata.uid.as_deref().unwrap_or_default(),
            spec: &tenant.spec,
            settings,
        }
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> String {
        namespace_of(self.name, self.spec)
    }

    /// A manifest in its namespace.
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
        // Whose it is, also when someone takes the labels away.
        manifest.body["metadata"]["annotations"][names::UID] = json!(self.uid);
        manifest
    }
}

/// The labels of a Pod of the Tenant's. Without its UID: who takes a namespace back has another, and
/// what runs there goes on.
fn pod_labels(of: For<'_>, component: &str) -> BTreeMap<String, String> {
    let mut labels = names::child_labels("Tenant", of.name, of.uid);
    labels.remove(names::UID);
    labels.insert(COMPONENT.to_owned(), component.to_owned());
    labels
}

/// How many of everything run.
fn scaled(spec: &TenantSpec, replicas: u32) -> u32 {
    if spec.suspend && !mutant::on(Mutant::PauseUnenforced) {
        0
    } else {
        replicas
    }
}

/// What a Pod of ours may do: nothing beyond its own files.
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

/// Everything of the spec in the namespace, in the order in which it is made: what restricts first.
///
/// `secret_uid` is that of the Redis' Secret: whoever uses it is started again when it is another.
#[must_use]
pub fn children(of: For<'_>, secret_uid: Option<&str>) -> Vec<Manifest> {
    let mut all = bounds::all(of);
    all.extend(place::role_binding(of));
    all.extend(network::all(of));
    all.extend(redis::all(of, secret_uid));
    all.extend(server::all(of, secret_uid));
    all
}

/// The Secret of the Redis, if there is one to be: made once, never changed.
#[must_use]
pub fn secret(of: For<'_>, password: &str) -> Option<Manifest> {
    of.spec.redis.as_ref().map(|_| redis::secret(of, password))
}
