//! The tenants family: a [`Tenant`] is an isolated place for one customer.

mod status;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod tenant;

pub use status::{
    Attempted, Component, ComponentPhase, Counted, Isolated, TenantPhase, TenantStatus, Usage,
    Used, condition,
};
pub use tenant::{
    Deletion, DeletionPolicy, EgressRule, IngressRule, Isolation, Limit, NetworkPolicy, Owner,
    OwnerKind, Peer, Port, Probe, Probes, Protocol, Redis, RedisStorage, RequestAndLimit, Server,
    Tenant, TenantResources, TenantSpec, Volumes, namespace_of,
};

/// The ClusterRole that owners get in their namespace. It has this name in every installation: the
/// operator may give this role and no other.
pub const OWNER_ROLE: &str = "orchestrator-tenant-owner";

/// The PriorityClass of the Pods that prove the isolation. It has this name in every installation:
/// quotas tell by it whose a Pod is.
pub const PROBE_CLASS: &str = "orchestrator-tenant-probe";
