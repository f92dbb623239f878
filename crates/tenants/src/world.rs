//! The observed state that a decision about a Tenant depends on.

use api::{
    Timestamp,
    decide::{Manifest, ResourceType},
    tenants::TenantSpec,
    warning::Warning,
};

use crate::{
    build::{REDIS, REDIS_PORT, SERVER, Settings},
    view::{
        ChildView, ClaimView, EndpointsView, NamespaceView, PodView, QuotaView, SecretView,
        WorkloadView,
    },
};

/// Observed state of a Tenant.
#[derive(Debug, Clone)]
pub struct TenantWorld {
    /// The namespace with the name that the Tenant requests, regardless of its owner.
    pub namespace: Option<NamespaceView>,
    /// Objects that carry the Tenant's UID, by type.
    pub children: Vec<(ResourceType, ChildView)>,
    /// The Secret with the name of the Redis Secret, regardless of its owner.
    pub secret: Option<SecretView>,
    /// A new random password.
    pub fresh_password: String,
    /// Rollout state of the server's Deployment.
    pub server: Option<WorkloadView>,
    /// Rollout state of the Redis StatefulSet.
    pub redis: Option<WorkloadView>,
    /// Pods of server and Redis.
    pub pods: Vec<PodView>,
    /// PersistentVolumeClaims of the Redis.
    pub claims: Vec<ClaimView>,
    /// Ready endpoints of their Services.
    pub endpoints: Vec<EndpointsView>,
    /// The ResourceQuotas of the Tenant.
    pub quotas: Vec<QuotaView>,
    /// Warning Events about these objects.
    pub warnings: Vec<Warning>,
    /// Names of policies in the namespace that the Tenant does not manage.
    pub foreign_policies: Vec<String>,
    /// Policies in the namespace that were retained from a Tenant of the same name.
    pub retained_policies: Vec<ChildView>,
    /// Policies that restrict the probe Pods in the operator's namespace. With such a policy, a blocked
    /// connection verifies nothing.
    pub outside_policies: Vec<String>,
    /// The probe Pods of this Tenant, each with its namespace.
    pub probes: Vec<(String, PodView)>,
    /// Number of other Tenants with a running isolation check.
    pub probing: usize,
    /// Another Tenant to probe. Set only if an isolation check is due.
    pub neighbour: Option<Neighbour>,
    /// Whether the CRD of Tenants is being deleted, and all Tenants with it. Read only for a Tenant that is
    /// being deleted.
    pub is_definition_going: bool,
    /// Settings that do not come from the spec.
    pub settings: Settings,
}

/// Another Tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: TenantSpec,
    /// The addresses of its ready components.
    pub addresses: Vec<Address>,
}

/// The address and port of a component of a Tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The component's name.
    pub component: &'static str,
    /// The address of its Pod.
    pub address: String,
    /// Its port.
    pub port: u16,
}

impl Address {
    /// Returns the addresses of a Tenant's ready components.
    pub fn all<'a>(
        spec: &TenantSpec,
        pods: impl Iterator<Item = &'a PodView> + Clone,
    ) -> Vec<Self> {
        let ports = [
            (REDIS, spec.redis.as_ref().map(|_| REDIS_PORT)),
            (SERVER, spec.server.as_ref().map(|server| server.port)),
        ];
        let one = |(component, port): (&'static str, Option<u16>)| {
            let port = port?;
            let is_ready =
                |pod: &&PodView| pod.component == component && pod.is_ready && !pod.is_deleting();
            // Always choose the same Pod.
            let pods = pods.clone().filter(is_ready);
            let pod = pods.min_by(|one, other| one.name.cmp(&other.name))?;
            Some(Self {
                component,
                address: pod.address.clone()?,
                port,
            })
        };
        ports.into_iter().filter_map(one).collect()
    }

    /// Returns the connection as a line of a probe plan.
    #[must_use]
    pub fn how(&self) -> String {
        let Self { address, port, .. } = self;
        if address.contains(':') {
            format!("tcp [{address}]:{port}")
        } else {
            format!("tcp {address}:{port}")
        }
    }
}

impl TenantWorld {
    /// Returns the observed child of a manifest.
    #[must_use]
    pub fn child(&self, manifest: &Manifest) -> Option<&ChildView> {
        self.children
            .iter()
            .find(|(resource, child)| *resource == manifest.resource && child.name == manifest.name)
            .map(|(_, child)| child)
    }

    /// Returns the newest warning about one of these objects.
    #[must_use]
    pub fn newest_warning(&self, uids: &[&str], now: Timestamp) -> Option<&Warning> {
        self.warnings
            .iter()
            .filter(|warning| uids.contains(&warning.object_uid.as_str()))
            .max_by_key(|warning| warning.seen(now))
    }
}
