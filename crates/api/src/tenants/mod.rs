//! The kind of the tenants operator: a [`Tenant`] is an isolated namespace for one customer.

mod permissions;
mod reasons;
mod status;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod tenant;

use crate::{kinds::OperatorRow, policy};

pub use status::{
    CheckedConnection, Component, ComponentPhase, Counted, ExpectedResult, Isolated,
    ObservedResult, TenantPhase, TenantStatus, Usage, Used, condition,
};
pub use tenant::{
    Deletion, DeletionPolicy, EgressRule, IngressRule, Isolation, Limit, NetworkPolicy, Owner,
    OwnerKind, Peer, Port, Probe, Probes, Protocol, Redis, RedisStorage, RequestAndLimit, Server,
    TENANT, Tenant, TenantResources, TenantSpec, Volumes, namespace_of,
};

/// ClusterRole that owners get in their namespace. It has the same name in every installation: the
/// operator may bind this role and no other.
pub const OWNER_ROLE: &str = "orchestrator-tenant-owner";

/// PriorityClass of the probe Pods, which check the isolation. It has the same name in every
/// installation: quotas select probe Pods by this class.
pub const PROBE_CLASS: &str = "orchestrator-tenant-probe";

/// Secret with the password of a Tenant's Redis. It has the same name in every namespace, so that
/// the operator needs permission to read only Secrets of this name.
pub const REDIS_SECRET: &str = "tenant-redis";

const LEASE: &str = "orchestrator-tenants";

/// The row of the tenants operator in the table of kinds.
pub const OPERATOR: OperatorRow = OperatorRow {
    name: "tenants",
    summary: "Places for customers",
    lease: LEASE,
    needs_all_namespaces: Some(
        "Tenants belong to the whole cluster, and make namespaces of their own",
    ),
    kinds: &[TENANT],
    permissions: permissions::PERMISSIONS,
    policies: policy::of_tenants,
    reasons: reasons::REASONS,
};
