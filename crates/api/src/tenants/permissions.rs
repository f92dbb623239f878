//! The permissions of the tenants operator.

use super::{LEASE, OWNER_ROLE, REDIS_SECRET};
use crate::{
    GROUP,
    rbac::{Permission, permissions},
};

pub(super) const PERMISSIONS: &[Permission] = permissions! {
    lease LEASE;

    Cluster GROUP, "tenants": get list patch watch,
        "reads the Tenants; patches their finalizer, never their spec";
    Cluster GROUP, "tenants/status": patch,
        "says how a Tenant stands";
    Cluster "apiextensions.k8s.io", "customresourcedefinitions" ["tenants.orchestrator.io"]: get,
        "whether the definition of Tenants is being deleted: then no namespace is; whether it has all fields of this operator, for `/readyz`";
    Cluster "", "namespaces": create delete get list patch watch,
        "a Tenant's namespace; all are watched, because one of the wanted name may be someone else's";
    Watched "", "resourcequotas": create delete get list patch watch,
        "what a Tenant may use";
    Watched "", "limitranges": create delete get list patch watch,
        "what a container of a Tenant gets that asks for nothing";
    Watched "rbac.authorization.k8s.io", "rolebindings": create delete get list patch watch,
        "gives a Tenant's owners their role in its namespace";
    Cluster "rbac.authorization.k8s.io", "clusterroles" [OWNER_ROLE]: bind,
        "the one role that owners get; no other can be given";
    Watched "networking.k8s.io", "networkpolicies": create delete get list patch watch,
        "keeps Tenants apart; all are watched, because one of someone else can open a Tenant";
    Watched "", "configmaps": create delete get list patch watch,
        "a Redis' configuration";
    Watched "", "services": create delete get list patch watch,
        "leads to a Redis or a server";
    Watched "apps", "deployments": create delete get list patch watch,
        "a Tenant's server";
    Watched "apps", "statefulsets": create delete get list patch watch,
        "a Tenant's Redis";
    Watched "", "secrets": create,
        "a Redis' password is made once";
    Watched "", "secrets" [REDIS_SECRET]: delete get list patch watch,
        "whether a Redis' password exists; no other Secret can be read";
    Watched "", "pods": create delete get list watch,
        "why a server or a Redis is not ready; made and deleted to try whether a Tenant is isolated";
    Watched "", "persistentvolumeclaims": list watch,
        "whether a Redis has its volume";
    Watched "discovery.k8s.io", "endpointslices": list watch,
        "whether a Service leads to something that is ready";
    Watched "", "events": list watch,
        "quota, admission, volumes and probes tell only there what is in the way";
    Watched "events.k8s.io", "events": create,
        "tells users of each transition";
};
