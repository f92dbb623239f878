//! Everything that a decision about a Tenant depends on.

use api::{
    decide::{Manifest, ResourceType},
    tenants::TenantSpec,
};

use crate::{
    build::{REDIS, REDIS_PORT, SERVER, Settings},
    view::{
        ChildView, ClaimView, EndpointsView, NamespaceView, PodView, QuotaView, SecretView,
        Warning, WorkloadView,
    },
};

/// What was observed.
#[derive(Debug, Clone)]
pub struct TenantWorld {
    /// The namespace of the name that the Tenant wants, whosever it is.
    pub namespace: Option<NamespaceView>,
    /// What carries the Tenant's UID, by type.
    pub children: Vec<(ResourceType, ChildView)>,
    /// The Secret of the name that the Redis' has, whosever it is.
    pub secret: Option<SecretView>,
    /// A password that nobody has yet.
    pub fresh_password: String,
    /// How far the server's Deployment is.
    pub server: Option<WorkloadView>,
    /// How far the Redis' StatefulSet is.
    pub redis: Option<WorkloadView>,
    /// Pods of both.
    pub pods: Vec<PodView>,
    /// Claims of the Redis.
    pub claims: Vec<ClaimView>,
    /// What leads to them.
    pub endpoints: Vec<EndpointsView>,
    /// The quotas.
    pub quotas: Vec<QuotaView>,
    /// What the cluster warns of.
    pub warnings: Vec<Warning>,
    /// Policies in the namespace that are not the Tenant's.
    pub foreign_policies: Vec<String>,
    /// Policies that a Tenant of the same name left there.
    pub left_policies: Vec<ChildView>,
    /// Policies that bound what can be tried from outside: with them, a refusal there proves nothing.
    pub outside_policies: Vec<String>,
    /// The Pods that try connections for this Tenant, with the namespaces that they are in.
    pub probes: Vec<(String, PodView)>,
    /// For how many other Tenants connections are being tried.
    pub probing: usize,
    /// Another Tenant, to be tried; looked for only where a proof is due.
    pub neighbour: Option<Neighbour>,
    /// Whether the definition of Tenants is being deleted, and all of them with it; asked only about a
    /// Tenant that is being deleted.
    pub is_definition_going: bool,
    /// What does not come from the spec.
    pub settings: Settings,
}

/// Another Tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub spec: TenantSpec,
    /// The addresses of its parts that are ready.
    pub addresses: Vec<Address>,
}

/// Where a part of a Tenant is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Which part.
    pub component: &'static str,
    /// The address of its Pod.
    pub address: String,
    /// Its port.
    pub port: u16,
}

impl Address {
    /// Those of the parts of a Tenant that are ready.
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
                |pod: &&PodView| pod.component == component && pod.is_ready && !pod.is_deleting;
            // The same one whenever it is asked for.
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

    /// As it is tried.
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
    /// The child that a manifest is about, as it is.
    #[must_use]
    pub fn child(&self, manifest: &Manifest) -> Option<&ChildView> {
        self.children
            .iter()
            .find(|(resource, child)| *resource == manifest.resource && child.name == manifest.name)
            .map(|(_, child)| child)
    }

    /// What was said last of one of these objects.
    #[must_use]
    pub fn newest_warning(&self, uids: &[&str]) -> Option<&Warning> {
        self.warnings
            .iter()
            .filter(|warning| uids.contains(&warning.object_uid.as_str()))
            .max_by_key(|warning| warning.at)
    }
}
