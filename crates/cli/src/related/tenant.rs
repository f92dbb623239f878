//! The children of a Tenant, found by their labels in its namespace. A type that the user may not
//! list is reported as such: an owner may not read all of them.

use std::collections::BTreeSet;

use actions::Object;
use api::{
    names,
    tenants::{TENANT, TenantSpec, namespace_of},
};
use futures::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{
            ConfigMap, Event, LimitRange, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
            Service,
        },
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

use super::{CHILDREN, SUBJECTS, event_order, events_of, list, order, request};
use crate::{
    failure::Failure,
    session::{Server, ask},
    view::{self, Standing},
};

/// The namespace of Events about objects without a namespace.
const CLUSTER_EVENTS: &str = "default";

/// A type of children that are shown by name only: kind, plural, and its resource.
type Plain = (&'static str, &'static str, fn() -> ApiResource);

const PLAIN: &[Plain] = &[
    ("ResourceQuota", "resourcequotas", || {
        ApiResource::erase::<ResourceQuota>(&())
    }),
    ("LimitRange", "limitranges", || {
        ApiResource::erase::<LimitRange>(&())
    }),
    (
        "RoleBinding",
        "rolebindings.rbac.authorization.k8s.io",
        || ApiResource::erase::<RoleBinding>(&()),
    ),
    ("NetworkPolicy", "networkpolicies.networking.k8s.io", || {
        ApiResource::erase::<NetworkPolicy>(&())
    }),
    ("ConfigMap", "configmaps", || {
        ApiResource::erase::<ConfigMap>(&())
    }),
    ("Secret", "secrets", || ApiResource::erase::<Secret>(&())),
    ("Service", "services", || ApiResource::erase::<Service>(&())),
    ("PersistentVolumeClaim", "persistentvolumeclaims", || {
        ApiResource::erase::<PersistentVolumeClaim>(&())
    }),
];

/// A child of a Tenant.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) kind: &'static str,
    pub(crate) meta: ObjectMeta,
    /// The state of a workload.
    pub(crate) standing: Option<Standing>,
}

/// The existing children of a Tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Family {
    pub(crate) children: Vec<Child>,
    pub(crate) pods: Vec<Pod>,
    /// Why a part could not be read.
    pub(crate) unread: Vec<String>,
}

/// Returns whether the object is a Tenant.
pub(crate) fn is_tenant(object: &Object) -> bool {
    *object.name.kind == TENANT
}

/// Returns the namespace of a Tenant.
pub(crate) fn namespace(tenant: &Object) -> String {
    let spec: Option<TenantSpec> = tenant.part("spec");
    let by_spec = spec.map(|spec| namespace_of(&tenant.name.name, &spec));
    // A spec that does not match its type still names its namespace.
    by_spec.unwrap_or_else(|| tenant.text("spec.namespace").to_owned())
}

/// Returns the connection with the namespace of a Tenant.
pub(crate) fn place(server: &Server, tenant: &Object) -> Server {
    Server {
        client: server.client.clone(),
        namespace: namespace(tenant),
    }
}

/// Lists the Pods of a Tenant. `place` has its namespace.
pub(crate) async fn pods(place: &Server, tenant: &Object) -> Result<Vec<Pod>, Failure> {
    let mut pods = list::<Pod>(place, &selected(tenant), "Pod", "pods").await?;
    pods.sort_by_key(|pod| order(&pod.metadata));
    Ok(pods)
}

/// Lists the children of a Tenant. `place` has its namespace.
pub(crate) async fn family(place: &Server, tenant: &Object) -> Family {
    let which = selected(tenant);
    let (servers, stores, pods, plain) = tokio::join!(
        list::<Deployment>(place, &which, "Deployment", "deployments.apps"),
        list::<StatefulSet>(place, &which, "StatefulSet", "statefulsets.apps"),
        pods(place, tenant),
        join_all(PLAIN.iter().map(|row| metadata(place, &which, row))),
    );
    let mut all = Family::default();
    for one in all.keep(servers) {
        let wanted = one.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
        all.children.push(Child {
            kind: "Deployment",
            standing: Some(view::workload(ready, wanted)),
            meta: one.metadata,
        });
    }
    for one in all.keep(stores) {
        let wanted = one.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
        all.children.push(Child {
            kind: "StatefulSet",
            standing: Some(view::workload(ready, wanted)),
            meta: one.metadata,
        });
    }
    all.pods = all.keep(pods);
    for (&(kind, _, _), found) in PLAIN.iter().zip(plain) {
        let mut found = all.keep(found);
        found.sort_by_key(order);
        all.children.extend(found.into_iter().map(|meta| Child {
            kind,
            meta,
            standing: None,
        }));
    }
    all
}

impl Family {
    /// Returns the objects that were read, or keeps the reason why they were not.
    fn keep<T>(&mut self, read: Result<Vec<T>, Failure>) -> Vec<T> {
        read.unwrap_or_else(|failure| {
            self.unread.push(failure.message());
            Vec::new()
        })
    }
}

async fn metadata(
    place: &Server,
    which: &ListParams,
    plain: &Plain,
) -> Result<Vec<ObjectMeta>, Failure> {
    let (kind, resource, row) = *plain;
    let api: Api<DynamicObject> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &row());
    let request = request(kind, resource, place);
    let found = ask(request, api.list_metadata(which)).await?;
    Ok(found.items.into_iter().map(|one| one.metadata).collect())
}

/// Selects the children by the Tenant's name. Children that the Tenant adopted from a former one of
/// its name may carry no UID.
fn selected(tenant: &Object) -> ListParams {
    let name = names::label_value(&tenant.name.name);
    ListParams::default()
        .labels(&format!(
            "{}={},{}={name}",
            names::KIND,
            TENANT.name(),
            names::NAME
        ))
        .limit(CHILDREN)
}

/// Returns the Events of a Tenant and of its children, oldest first, and why a part of them could
/// not be read.
pub(crate) async fn events(server: &Server, tenant: &Object) -> (Vec<Event>, Vec<String>) {
    let place = place(server, tenant);
    let mut family = family(&place, tenant).await;
    let own: BTreeSet<String> = tenant.metadata.uid.iter().cloned().collect();
    let children = family.children.iter().map(|child| &child.meta);
    let pods = family.pods.iter().map(|pod| &pod.metadata);
    let children = children.chain(pods).filter_map(|meta| meta.uid.clone());
    let children: BTreeSet<String> = children.take(SUBJECTS).collect();
    let cluster = Server {
        client: server.client.clone(),
        namespace: CLUSTER_EVENTS.to_owned(),
    };
    let (of_tenant, of_children) =
        tokio::join!(events_of(&cluster, &own), events_of(&place, &children));
    let mut events = family.keep(of_tenant);
    events.extend(family.keep(of_children));
    events.sort_by_key(event_order);
    (events, family.unread)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::a_tenant;

    #[test]
    fn children_are_found_by_the_name_in_the_namespace_of_the_tenant() {
        let tenant = a_tenant(1, &json!({}));
        assert_eq!(namespace(&tenant), "tenant-acme");
        assert_eq!(
            selected(&tenant).label_selector.as_deref(),
            Some("orchestrator.io/kind=Tenant,orchestrator.io/name=acme")
        );
    }

    #[test]
    fn what_could_not_be_read_is_kept() {
        let mut family = Family::default();
        let none: Vec<u8> = family.keep(Err(Failure::client("not allowed to list secrets")));
        assert!(none.is_empty());
        assert_eq!(family.unread, ["not allowed to list secrets"]);
        assert_eq!(family.keep(Ok(vec![1])), [1]);
    }
}
