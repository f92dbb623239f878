//! Reads objects that depend on the objects found before: Events, claims, nodes, and referenced
//! objects.

use api::{Reason, messages, status::condition};
use futures::future::join_all;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::{
        ConfigMap, Event, LimitRange, Node, PersistentVolumeClaim, ResourceQuota, Secret, Service,
        ServiceAccount,
    },
    networking::v1::NetworkPolicy,
    node::v1::RuntimeClass,
    rbac::v1::RoleBinding,
    scheduling::v1::PriorityClass,
    storage::v1::{CSIDriver, StorageClass},
};
use kube::{Api, api::ListParams};

use super::{EACH, Reader, keep, keep_list, known};
use crate::{
    explain::missing_thing,
    world::{ClaimView, Known, Meta, NodeView, ObjectRef, OtherView, PodView, World},
};

/// Reads objects that depend on the objects found before: Events, claims, nodes, and referenced
/// objects.
pub(super) async fn details(reader: &Reader, world: &mut World) {
    let is_read = |name: &String| world.claims.iter().any(|claim| claim.meta.name == *name);
    let claims: Vec<String> = world
        .pods
        .iter()
        .filter(|pod| pod.meta.namespace == reader.namespace)
        .flat_map(|pod| pod.claims.clone())
        .filter(|name| !is_read(name))
        .take(EACH)
        .collect();
    let claims_api = reader.here::<PersistentVolumeClaim>();
    let found = join_all(claims.iter().map(|name| reader.get(&claims_api, name))).await;
    for (name, read) in claims.iter().zip(found) {
        match keep(world, read) {
            Some(Some(claim)) => world.claims.push(ClaimView::from(&claim)),
            Some(None) => {
                let object =
                    ObjectRef::namespaced("PersistentVolumeClaim", &reader.namespace, name);
                world.known.push(known(object, false));
            }
            None => {}
        }
    }
    events(reader, world).await;
    nodes(reader, world).await;
    needs(reader, world).await;
    classes(reader, world).await;
    others(reader, world).await;
}

/// Reads the Events of each object by its UID: of the run, the workloads, and the newest Jobs, Pods
/// and claims.
async fn events(reader: &Reader, world: &mut World) {
    let run = world.run.iter().map(|run| &run.meta);
    let newest = |mut all: Vec<Meta>| {
        all.sort_by_key(|meta| std::cmp::Reverse(meta.created.clone()));
        all.into_iter().take(EACH / 3).map(|meta| meta.uid)
    };
    let mut uids: Vec<String> = run.map(|meta| meta.uid.clone()).collect();
    uids.extend(newest(
        world.jobs.iter().map(|job| job.meta.clone()).collect(),
    ));
    uids.extend(world.workloads.iter().map(|known| known.meta.uid.clone()));
    uids.extend(newest(
        world.pods.iter().map(|pod| pod.meta.clone()).collect(),
    ));
    uids.extend(newest(
        world
            .claims
            .iter()
            .map(|claim| claim.meta.clone())
            .collect(),
    ));
    uids.retain(|uid| !uid.is_empty());
    let api = reader.here::<Event>();
    let reads = uids.iter().map(|uid| {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        reader.list(&api, params)
    });
    for read in join_all(reads).await {
        let found = keep_list(world, "Events", read, |event| event.into());
        world.events.extend(found.unwrap_or_default());
    }
}

/// Reads the nodes of the Pods. If a Pod is unschedulable, it reads all nodes up to a limit.
async fn nodes(reader: &Reader, world: &mut World) {
    let api: Api<Node> = Api::all(reader.client.clone());
    let keys: Vec<String> = world
        .pods
        .iter()
        .flat_map(|pod| pod.node_selector.keys().cloned())
        .collect();
    let unplaced = |pod: &PodView| {
        pod.node.is_none()
            && pod
                .conditions
                .iter()
                .any(|known| known.kind == "PodScheduled" && known.status == "False")
    };
    if world.pods.iter().any(unplaced) {
        let read = reader.list(&api, ListParams::default()).await;
        let found = keep_list(world, "Nodes", read, |node| NodeView::read(node, &keys));
        world.nodes = found.unwrap_or_default();
        return;
    }
    let mut names: Vec<String> = world
        .pods
        .iter()
        .filter_map(|pod| pod.node.clone())
        .collect();
    names.sort();
    names.dedup();
    names.truncate(EACH);
    let reads = join_all(names.iter().map(|name| reader.get(&api, name))).await;
    for (name, read) in names.iter().zip(reads) {
        match keep(world, read) {
            Some(Some(node)) => world.nodes.push(NodeView::read(&node, &keys)),
            Some(None) => world
                .known
                .push(known(ObjectRef::cluster("Node", name), false)),
            None => {}
        }
    }
}

/// Checks whether the objects exist that the Agent and the Pods reference, and the run's own files.
async fn needs(reader: &Reader, world: &mut World) {
    let agents = world.agent.iter().flat_map(|agent| &agent.needs);
    let pods = world.pods.iter().flat_map(|pod| &pod.needs);
    let mut things: Vec<(String, String)> = agents
        .chain(pods)
        .map(|need| (need.kind.clone(), need.name.clone()))
        .collect();
    if world.tenant.is_some() {
        things.extend(world.pods.iter().flat_map(named_by_kubelet));
    }
    let files = world
        .run
        .as_ref()
        .and_then(|run| run.status.config_map_name.clone());
    things.extend(files.map(|name| ("ConfigMap".to_owned(), name)));
    let docs = world.run.as_ref().and_then(|run| run.docs.as_ref());
    let secret = docs.and_then(|docs| docs.secret.clone());
    things.extend(secret.map(|name| ("Secret".to_owned(), name)));
    things.sort();
    things.dedup();
    things.retain(|(kind, _)| kind != "StorageClass");
    things.truncate(2 * EACH);
    let reads = things.iter().map(|(kind, name)| async move {
        let client = || reader.client.clone();
        match kind.as_str() {
            "Secret" => reader.exists(&reader.here::<Secret>(), name).await,
            "ConfigMap" => reader.exists(&reader.here::<ConfigMap>(), name).await,
            "ServiceAccount" => reader.exists(&reader.here::<ServiceAccount>(), name).await,
            "RuntimeClass" => {
                reader
                    .exists(&Api::<RuntimeClass>::all(client()), name)
                    .await
            }
            _ => {
                reader
                    .exists(&Api::<PriorityClass>::all(client()), name)
                    .await
            }
        }
    });
    for ((kind, name), read) in things.iter().zip(join_all(reads).await) {
        let object = match kind.as_str() {
            "RuntimeClass" | "PriorityClass" => ObjectRef::cluster(kind, name),
            _ => ObjectRef::namespaced(kind, &reader.namespace, name),
        };
        if let Some(exists) = keep(world, read) {
            world.known.push(known(object, exists));
        }
    }
}

/// Returns the missing objects in the kubelet's messages about waiting containers.
fn named_by_kubelet(pod: &PodView) -> Vec<(String, String)> {
    let waiting = pod.containers.iter();
    let waiting = waiting.filter_map(|one| missing_thing(&one.state.waiting()?.message));
    waiting
        .map(|(kind, name, _)| (kind.to_owned(), name))
        .collect()
}

/// Reads the storage classes of the claims and of the Agent, and checks whether their drivers
/// exist.
async fn classes(reader: &Reader, world: &mut World) {
    let of_claims = world.claims.iter().filter_map(|claim| claim.class.clone());
    let needs = world.agent.iter().flat_map(|agent| &agent.needs);
    let of_agent = needs
        .filter(|need| need.kind == "StorageClass")
        .map(|need| need.name.clone());
    let mut names: Vec<String> = of_claims.chain(of_agent).collect();
    names.sort();
    names.dedup();
    names.truncate(EACH);
    let api: Api<StorageClass> = Api::all(reader.client.clone());
    let drivers: Api<CSIDriver> = Api::all(reader.client.clone());
    for name in names {
        let read = reader.get(&api, &name).await;
        let Some(found) = keep(world, read) else {
            continue;
        };
        let provisioner = found.map(|class| class.provisioner);
        world.known.push(Known {
            object: ObjectRef::cluster("StorageClass", &name),
            exists: provisioner.is_some(),
            provisioner: provisioner.clone(),
        });
        // In-tree provisioners have no CSIDriver object.
        let outside = provisioner.filter(|driver| !driver.starts_with("kubernetes.io/"));
        if let Some(driver) = outside {
            let read = reader.exists(&drivers, &driver).await;
            if let Some(exists) = keep(world, read) {
                world
                    .known
                    .push(known(ObjectRef::cluster("CSIDriver", &driver), exists));
            }
        }
    }
}

/// Reads the unmanaged object that has the name of a child, if the status reports one.
async fn others(reader: &Reader, world: &mut World) {
    let run = world.run.as_ref().map(|run| &run.status.progress);
    let tenant = world.tenant.as_ref().map(|one| &one.status.progress);
    let Some(progress) = run.or(tenant).cloned() else {
        return;
    };
    let main = progress.condition(condition::SUCCEEDED);
    let main = main.or_else(|| progress.condition(condition::READY));
    if main.is_none_or(|said| said.reason != Reason::ChildNameTaken.name()) {
        return;
    }
    let message = progress.message.unwrap_or_default();
    let Some((kind, name)) = messages::object_with_name(&message) else {
        return;
    };
    let what = format!("{kind} '{name}'");
    macro_rules! metadata {
        ($type:ty) => {{
            let api = reader.here::<$type>();
            let read = reader.timed(&what, api.get_metadata_opt(name)).await;
            keep(world, read).map(|found| found.map(|found| found.metadata))
        }};
    }
    let meta = match kind {
        "Job" => metadata!(Job),
        "ConfigMap" => metadata!(ConfigMap),
        "Secret" => metadata!(Secret),
        "Service" => metadata!(Service),
        "Deployment" => metadata!(Deployment),
        "StatefulSet" => metadata!(StatefulSet),
        "ResourceQuota" => metadata!(ResourceQuota),
        "LimitRange" => metadata!(LimitRange),
        "RoleBinding" => metadata!(RoleBinding),
        "NetworkPolicy" => metadata!(NetworkPolicy),
        _ => None,
    };
    match meta {
        Some(Some(meta)) => world.others.push(OtherView {
            kind: kind.to_owned(),
            resource: String::new(),
            meta: Meta::from(&meta),
        }),
        Some(None) => {
            let object = ObjectRef::namespaced(kind, &reader.namespace, name);
            world.known.push(known(object, false));
        }
        None => {}
    }
}
