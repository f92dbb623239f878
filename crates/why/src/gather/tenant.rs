//! Reads the objects around a Tenant.

use api::names;
use futures::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota},
        discovery::v1::EndpointSlice,
        networking::v1::NetworkPolicy,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    core::ApiResource,
    discovery,
};

use super::{EACH, List, Read, Reader, leases};
use crate::{
    namespace_conditions,
    world::{Meta, NamespaceView, ObjectRef, OtherView, PodView, Unreadable, WorkloadView, World},
};

/// Maximum number of resource types that are read from a namespace that is being deleted.
const TYPES: usize = 6;

/// Reads all children of a Tenant concurrently.
pub(super) async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let here = &reader.namespace;
    let ours = || ListParams::default().labels(&[names::KIND, "=Tenant"].concat());
    let all = ListParams::default;
    let (namespace, server, redis, pods, claims, slices, policies, quotas, ranges, leases) = tokio::join!(
        reader.get(reader.all::<Namespace>(), here),
        reader.get(reader.here::<Deployment>(), "server"),
        reader.get(reader.here::<StatefulSet>(), "redis"),
        reader.list(reader.here::<Pod>(), ours()),
        reader.list(reader.here::<PersistentVolumeClaim>(), ours()),
        reader.list(reader.here::<EndpointSlice>(), ours()),
        reader.list(reader.here::<NetworkPolicy>(), all()),
        reader.list(reader.here::<ResourceQuota>(), all()),
        reader.list(reader.here::<LimitRange>(), all()),
        leases(reader, operator, world.operator_row()),
    );
    let namespace = world.keep_one(ObjectRef::cluster("Namespace", here), namespace);
    world.namespace = namespace.map(|found| (&found).into());
    let object = |kind: &str, name: &str| ObjectRef::namespaced(kind, here, name);
    let server = world.keep_one(object("Deployment", "server"), server);
    let redis = world.keep_one(object("StatefulSet", "redis"), redis);
    world
        .workloads
        .extend(server.map(|found| WorkloadView::from(&found)));
    world
        .workloads
        .extend(redis.map(|found| WorkloadView::from(&found)));
    let found = world.keep_list("Pods", pods);
    add_pods(world, found.unwrap_or_default());
    world.claims = world
        .keep_list("PersistentVolumeClaims", claims)
        .unwrap_or_default();
    world.endpoints = world
        .keep_list("EndpointSlices", slices)
        .unwrap_or_default();
    let policies: List<ObjectMeta> = policies.map(|(all, more)| {
        let all = all.into_iter().map(|policy| policy.metadata);
        (all.collect(), more)
    });
    world.policies = world.keep_list("NetworkPolicies", policies);
    world.keep_limits(quotas, ranges);
    world.leases = world.keep_list("Leases", leases);
    outside(reader, world, operator).await;
    left(reader, world).await;
}

/// Adds Pods to the world. The target Pod is already in it.
fn add_pods(world: &mut World, found: Vec<PodView>) {
    for pod in found {
        if !world
            .pods
            .iter()
            .any(|known| known.meta.uid == pod.meta.uid)
        {
            world.pods.push(pod);
        }
    }
}

/// Reads the probe Pods in the operator's namespace.
async fn outside(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let mut leases = world.leases.iter().flat_map(|all| all.iter());
    let home = operator
        .map(str::to_owned)
        .or_else(|| Some(leases.next()?.namespace.clone()));
    let (Some(home), Some(tenant)) = (home, &world.tenant) else {
        return;
    };
    let uid = names::label_value(&tenant.meta.uid);
    let labels = format!("{}={uid},orchestrator.io/component=probe", names::UID);
    let api: Api<Pod> = Api::namespaced(reader.client.clone(), &home);
    let found = match reader
        .list(api, ListParams::default().labels(&labels))
        .await
    {
        // A user without permission for the operator's Pods misses little.
        Err(Unreadable {
            forbidden: true, ..
        }) => return,
        read => world.keep_list("Pods", read),
    };
    add_pods(world, found.unwrap_or_default());
}

/// Reads the remaining objects in a namespace that is being deleted, of the types that the
/// namespace controller reports.
async fn left(reader: &Reader, world: &mut World) {
    let dying = |namespace: &&NamespaceView| namespace.deleting.is_some();
    let Some(namespace) = world.namespace.as_ref().filter(dying) else {
        return;
    };
    let held = namespace
        .conditions
        .iter()
        .filter(|known| known.status == "True");
    let mut types: Vec<(String, String)> = held
        .flat_map(|known| namespace_conditions::remaining(&known.message))
        .map(|(plural, group)| (plural.to_owned(), group.to_owned()))
        .collect();
    types.sort();
    types.dedup();
    types.truncate(TYPES);
    let reads = types
        .iter()
        .map(|(plural, group)| remaining(reader, plural, group));
    for read in join_all(reads).await {
        let found = world.keep(read).unwrap_or_default();
        world.left.extend(found);
    }
    let order = |one: &OtherView| (one.meta.finalizers.is_empty(), one.meta.deleting.clone());
    world.left.sort_by_key(order);
    world.left.truncate(EACH);
}

/// Reads only the metadata of the objects of one type.
async fn remaining(reader: &Reader, plural: &str, group: &str) -> Read<Vec<OtherView>> {
    let Some(resource) = resource(reader, plural, group).await? else {
        return Ok(Vec::new());
    };
    let client = reader.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &reader.namespace, &resource);
    let params = ListParams::default().limit(u32::try_from(EACH).unwrap_or(u32::MAX));
    let list = reader.timed(plural, api.list_metadata(&params)).await?;
    let named = match group {
        "" => String::new(),
        group => format!("{plural}.{group}"),
    };
    let items = list.items.iter().map(|object| OtherView {
        kind: resource.kind.clone(),
        resource: named.clone(),
        meta: Meta::from(&object.metadata),
    });
    Ok(items.collect())
}

/// Resolves a type by discovery. Returns `None` if its group does not have it (anymore).
async fn resource(reader: &Reader, plural: &str, group: &str) -> Read<Option<ApiResource>> {
    let found = discovery::group(&reader.client, group);
    let found = reader.timed(plural, found).await?;
    let mut all = found.recommended_resources().into_iter();
    let known = all.find(|(resource, _)| resource.plural == plural);
    Ok(known.map(|(resource, _)| resource))
}
