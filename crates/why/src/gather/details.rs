//! Reads objects that depend on the objects found before: Events, claims, nodes, and referenced
//! objects.

use api::{Reason, messages, status::condition};
use futures::future::join_all;
use k8s_openapi::api::{
    core::v1::{Event, Node, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::api::ListParams;
use pods::missing_object;

use super::{EACH, Reader};
use crate::world::{
    ClaimView, EventView, Known, Meta, NodeView, ObjectRef, OtherView, PodView, World,
};

/// Reads objects that depend on the objects found before: Events, claims, nodes, and referenced
/// objects.
pub(super) async fn details(reader: &Reader, world: &mut World) {
    claims(reader, world).await;
    events(reader, world).await;
    nodes(reader, world).await;
    needs(reader, world).await;
    classes(reader, world).await;
    others(reader, world).await;
}

/// Reads the claims of the Pods, without those that were read before.
async fn claims(reader: &Reader, world: &mut World) {
    let here = world
        .pods
        .iter()
        .filter(|pod| pod.meta.namespace == reader.namespace);
    let mut names: Vec<String> = here.flat_map(|pod| pod.claims.clone()).collect();
    names.retain(|name| !world.claims.iter().any(|claim| claim.meta.name == *name));
    names.truncate(EACH);
    let api = || reader.here::<PersistentVolumeClaim>();
    let found = join_all(names.iter().map(|name| reader.get(api(), name))).await;
    for (name, read) in names.iter().zip(found) {
        let object = ObjectRef::namespaced("PersistentVolumeClaim", &reader.namespace, name);
        let claim = world.keep_one(object, read);
        world
            .claims
            .extend(claim.map(|claim| ClaimView::from(&claim)));
    }
}

/// Reads the Events of each object by its UID: of the run, the workloads, and the newest Jobs, Pods
/// and claims.
async fn events(reader: &Reader, world: &mut World) {
    let mut all: Vec<&Meta> = world.run.iter().map(|run| &run.meta).collect();
    all.extend(world.notebook.iter().map(|job| &job.meta));
    all.extend(newest(world.jobs.iter().map(|job| &job.meta).collect()));
    all.extend(world.workloads.iter().map(|known| &known.meta));
    all.extend(newest(world.pods.iter().map(|pod| &pod.meta).collect()));
    all.extend(newest(
        world.claims.iter().map(|claim| &claim.meta).collect(),
    ));
    let uids = all
        .iter()
        .map(|meta| &meta.uid)
        .filter(|uid| !uid.is_empty());
    let reads = uids.map(|uid| {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        reader.list(reader.here::<Event>(), params)
    });
    for read in join_all(reads).await {
        let found: Option<Vec<EventView>> = world.keep_list("Events", read);
        world.events.extend(found.unwrap_or_default());
    }
}

fn newest(mut all: Vec<&Meta>) -> Vec<&Meta> {
    all.sort_by_key(|meta| std::cmp::Reverse(meta.created.clone()));
    all.truncate(EACH / 3);
    all
}

/// Reads the nodes of the Pods. If a Pod is unschedulable, it reads all nodes up to a limit.
async fn nodes(reader: &Reader, world: &mut World) {
    let pods = world.pods.iter();
    let keys: Vec<String> = pods
        .flat_map(|pod| pod.node_selector.keys().cloned())
        .collect();
    let unplaced = |pod: &PodView| {
        let mut known = pod.conditions.iter();
        let is_said = known.any(|known| known.kind == "PodScheduled" && known.status == "False");
        pod.node.is_none() && is_said
    };
    if world.pods.iter().any(unplaced) {
        let read = reader
            .list(reader.all::<Node>(), ListParams::default())
            .await;
        let (nodes, more) = world.keep(read).unwrap_or_default();
        world.nodes = nodes
            .iter()
            .map(|node| NodeView::read(node, &keys))
            .collect();
        world.cut.extend(more.then(|| "Nodes".to_owned()));
        return;
    }
    let names = distinct(
        world
            .pods
            .iter()
            .filter_map(|pod| pod.node.clone())
            .collect(),
    );
    let reads = names
        .iter()
        .map(|name| reader.get(reader.all::<Node>(), name));
    for (name, read) in names.iter().zip(join_all(reads).await) {
        let node = world.keep_one(ObjectRef::cluster("Node", name), read);
        world
            .nodes
            .extend(node.map(|node| NodeView::read(&node, &keys)));
    }
}

/// Returns the first names, without repetitions.
fn distinct(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names.truncate(EACH);
    names
}

/// Checks whether the objects exist that the Agent and the Pods reference, and the run's own files.
async fn needs(reader: &Reader, world: &mut World) {
    let agents = world.agent.iter().flat_map(|agent| &agent.needs);
    let pods = world.pods.iter().flat_map(|pod| &pod.needs);
    let mut things: Vec<(String, String)> = agents
        .chain(pods)
        .map(|need| (need.kind.clone(), need.name.clone()))
        .collect();
    if world.tenant.is_some() || world.notebook.is_some() {
        things.extend(world.pods.iter().flat_map(named_by_kubelet));
    }
    if let Some(run) = &world.run {
        let files = run.status.config_map_name.clone();
        things.extend(files.map(|name| ("ConfigMap".to_owned(), name)));
        let secret = run.docs.as_ref().and_then(|docs| docs.secret.clone());
        things.extend(secret.map(|name| ("Secret".to_owned(), name)));
    }
    let sources = world.notebook.iter();
    let sources = sources.flat_map(|job| [Some(&job.source), job.golden_source.as_ref()]);
    let secrets = sources.filter_map(|source| source?.secret.clone());
    things.extend(secrets.map(|name| ("Secret".to_owned(), name)));
    things.sort();
    things.dedup();
    things.retain(|(kind, _)| kind != "StorageClass");
    things.truncate(2 * EACH);
    let reads = things
        .iter()
        .map(|(kind, name)| reader.metadata(kind, name));
    for ((kind, name), read) in things.iter().zip(join_all(reads).await) {
        let found = world.keep(read);
        if let (Some(found), Some((_, object))) = (found, reader.kind(kind, name)) {
            world.know(object, found.is_some());
        }
    }
}

/// Returns the missing objects in the kubelet's messages about waiting containers.
fn named_by_kubelet(pod: &PodView) -> Vec<(String, String)> {
    let waiting = pod.containers.iter();
    let waiting = waiting.filter_map(|one| missing_object(&one.state.waiting()?.message));
    waiting
        .map(|(kind, name, _)| (kind.to_owned(), name))
        .collect()
}

/// Reads the storage classes of the claims and of the Agent, and checks whether their drivers
/// exist.
async fn classes(reader: &Reader, world: &mut World) {
    let of_claims = world.claims.iter().filter_map(|claim| claim.class.clone());
    let needs = world.agent.iter().flat_map(|agent| &agent.needs);
    let of_agent = needs.filter(|need| need.kind == "StorageClass");
    let names = of_claims.chain(of_agent.map(|need| need.name.clone()));
    for name in distinct(names.collect()) {
        let read = reader.get(reader.all::<StorageClass>(), &name).await;
        let Some(found) = world.keep(read) else {
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
            let read = reader.metadata("CSIDriver", &driver).await;
            if let Some(found) = world.keep(read) {
                world.know(ObjectRef::cluster("CSIDriver", &driver), found.is_some());
            }
        }
    }
}

/// Reads the unmanaged object that has the name of a child, if the status reports one.
async fn others(reader: &Reader, world: &mut World) {
    let run = world.run.as_ref().map(|run| &run.status.progress);
    let tenant = world.tenant.as_ref().map(|one| &one.status.progress);
    let Some(progress) = run.or(tenant) else {
        return;
    };
    let main = progress.condition(condition::SUCCEEDED);
    let main = main.or_else(|| progress.condition(condition::READY));
    let is_said = main.is_some_and(|said| said.reason == Reason::ChildNameTaken.name());
    let message = progress.message.clone().unwrap_or_default();
    let named = messages::object_with_name(&message).filter(|_| is_said);
    let Some((kind, name)) = named else {
        return;
    };
    let Some((_, object)) = reader.kind(kind, name) else {
        return;
    };
    let read = reader.metadata(kind, name).await;
    if let Some(meta) = world.keep_one(object, read) {
        world.others.push(OtherView {
            kind: kind.to_owned(),
            resource: String::new(),
            meta: Meta::from(&meta),
        });
    }
}
