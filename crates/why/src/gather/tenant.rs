//! Reads the objects around a Tenant.

use api::names;
use futures::future::join_all;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota},
    discovery::v1::EndpointSlice,
    networking::v1::NetworkPolicy,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};

use super::{EACH, Read, Reader, keep, keep_list, known, leases_in, leases_of, read::Kind};
use crate::{
    namespace_conditions,
    world::{
        ClaimView, Meta, NamespaceView, ObjectRef, OtherView, PodView, Unreadable, WorkloadView,
        World,
    },
};

/// Maximum number of resource types that are read from a namespace that is being deleted.
const TYPES: usize = 6;

/// Reads all children of a Tenant concurrently.
pub(super) async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let ours = || ListParams::default().labels(&[names::KIND, "=Tenant"].concat());
    let all = ListParams::default;
    let namespaces: Api<Namespace> = Api::all(reader.client.clone());
    let (deployments, sets) = (reader.here::<Deployment>(), reader.here::<StatefulSet>());
    let (pods_api, claims_api) = (reader.here::<Pod>(), reader.here::<PersistentVolumeClaim>());
    let (slices_api, policies_api) = (
        reader.here::<EndpointSlice>(),
        reader.here::<NetworkPolicy>(),
    );
    let (quotas_api, ranges_api) = (reader.here::<ResourceQuota>(), reader.here::<LimitRange>());
    let leases_api = leases_in(reader, operator);
    let (namespace, server, redis, pods, claims, slices, policies, quotas, ranges, leases) = tokio::join!(
        reader.get(&namespaces, &reader.namespace),
        reader.get(&deployments, "server"),
        reader.get(&sets, "redis"),
        reader.list(&pods_api, ours()),
        reader.list(&claims_api, ours()),
        reader.list(&slices_api, ours()),
        reader.list(&policies_api, all()),
        reader.list(&quotas_api, all()),
        reader.list(&ranges_api, all()),
        reader.list(&leases_api, leases_of(world.operator())),
    );
    if let Some(found) = keep(world, namespace) {
        match &found {
            Some(found) => world.namespace = Some(found.into()),
            None => {
                let object = ObjectRef::cluster("Namespace", &reader.namespace);
                world.known.push(known(object, false));
            }
        }
    }
    workload(reader, world, "server", server);
    workload(reader, world, "redis", redis);
    let found = keep_list(world, "Pods", pods, |pod| PodView::from(pod));
    add_pods(world, found.unwrap_or_default());
    let found = keep_list(world, "PersistentVolumeClaims", claims, |claim| {
        ClaimView::from(claim)
    });
    world.claims = found.unwrap_or_default();
    let found = keep_list(world, "EndpointSlices", slices, |slice| slice.into());
    world.endpoints = found.unwrap_or_default();
    world.policies = keep_list(world, "NetworkPolicies", policies, |policy| {
        Meta::from(&policy.metadata)
    });
    let found = keep_list(world, "ResourceQuotas", quotas, |quota| quota.into());
    world.quotas = found.unwrap_or_default();
    let found = keep_list(world, "LimitRanges", ranges, |range| range.into());
    world.limit_ranges = found.unwrap_or_default();
    world.leases = keep_list(world, "Leases", leases, |lease| lease.into());
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

fn workload<K: Kind>(reader: &Reader, world: &mut World, name: &str, read: Read<Option<K>>)
where
    for<'a> WorkloadView: From<&'a K>,
{
    match keep(world, read) {
        Some(Some(found)) => world.workloads.push((&found).into()),
        Some(None) => {
            let object = ObjectRef::namespaced(&K::kind(&()), &reader.namespace, name);
            world.known.push(known(object, false));
        }
        None => {}
    }
}

/// Reads the probe Pods in the operator's namespace.
async fn outside(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let leases = world.leases.iter().flat_map(|all| all.iter());
    let home = leases.map(|lease| lease.namespace.clone()).next();
    let Some(home) = operator.map(str::to_owned).or(home) else {
        return;
    };
    let Some(uid) = world.tenant.as_ref().map(|tenant| &tenant.meta.uid) else {
        return;
    };
    let labels = format!(
        "{}={},orchestrator.io/component=probe",
        names::UID,
        names::label_value(uid)
    );
    let api: Api<Pod> = Api::namespaced(reader.client.clone(), &home);
    let read = reader
        .list(&api, ListParams::default().labels(&labels))
        .await;
    let found = match read {
        // A user without permission for the operator's Pods misses little.
        Err(Unreadable {
            forbidden: true, ..
        }) => return,
        read => keep_list(world, "Pods", read, |pod| PodView::from(pod)),
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
    let mut types: Vec<(String, String)> = namespace
        .conditions
        .iter()
        .filter(|known| known.status == "True")
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
        let found = keep(world, read).unwrap_or_default();
        world.left.extend(found);
    }
    world
        .left
        .sort_by_key(|one| (one.meta.finalizers.is_empty(), one.meta.deleting.clone()));
    world.left.truncate(EACH);
}

/// Reads only the metadata of the objects of one type.
async fn remaining(reader: &Reader, plural: &str, group: &str) -> Read<Vec<OtherView>> {
    let Some(resource) = resource(reader, plural, group).await? else {
        return Ok(Vec::new());
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(reader.client.clone(), &reader.namespace, &resource);
    let limit = u32::try_from(EACH).unwrap_or(u32::MAX);
    let params = ListParams::default().limit(limit);
    let list = reader.timed(plural, api.list_metadata(&params)).await?;
    let named = match group {
        "" => String::new(),
        group => format!("{plural}.{group}"),
    };
    Ok(list
        .items
        .iter()
        .map(|object| OtherView {
            kind: resource.kind.clone(),
            resource: named.clone(),
            meta: Meta::from(&object.metadata),
        })
        .collect())
}

/// Resolves a type by discovery. Returns `None` if the server does not know it (anymore).
async fn resource(reader: &Reader, plural: &str, group: &str) -> Read<Option<ApiResource>> {
    let client = &reader.client;
    let (version, list) = if group.is_empty() {
        let list = client.list_core_api_resources("v1");
        ("v1".to_owned(), reader.timed(plural, list).await?)
    } else {
        let groups = reader.timed(plural, client.list_api_groups()).await?;
        let found = groups.groups.iter().find(|known| known.name == group);
        let Some(version) = found.and_then(|known| {
            let preferred = known.preferred_version.as_ref();
            preferred.or_else(|| known.versions.first())
        }) else {
            return Ok(None);
        };
        let list = client.list_api_group_resources(&version.group_version);
        (version.version.clone(), reader.timed(plural, list).await?)
    };
    let known = list.resources.iter().find(|known| known.name == plural);
    Ok(known.map(|known| ApiResource {
        group: group.to_owned(),
        api_version: list.group_version.clone(),
        version,
        kind: known.kind.clone(),
        plural: plural.to_owned(),
    }))
}
