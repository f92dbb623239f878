//! Reads the objects around a ManagedApp: those of Flux, and the first workload that is not ready.

use api::{
    apps::{GIT_REPOSITORY, HELM_RELEASE, KUSTOMIZATION, NamespacedName, Workload},
    decide::ResourceType,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};

use super::{Reader, UNKNOWN_KIND, leases};
use crate::world::{FluxView, ObjectRef, PodView, WorkloadView, World};

/// Reads the objects of Flux and the first workload that is not ready. Sets the namespace of the reader to that of the
/// workload, because its Pods and Events are there.
pub(super) async fn around(reader: &mut Reader, world: &mut World, operator: Option<&str>) {
    let leases = leases(reader, operator, world.operator_row()).await;
    world.leases = world.keep_list("Leases", leases);
    let Some(app) = world.app.clone() else {
        return;
    };
    let kustomization = NamespacedName::new(&app.kustomization_namespace, &app.kustomization);
    flux(reader, world, KUSTOMIZATION, &kustomization).await;
    if let Some(release) = &app.status.helm_release {
        flux(reader, world, HELM_RELEASE, release).await;
    }
    let unready = world.flux.iter().find(|flux| !flux.is_ready());
    if let Some(flux) = unready.cloned() {
        sources(reader, world, flux).await;
    }
    let message = app.status.progress.message.as_deref().unwrap_or_default();
    if let Some((kind, name)) = broken(message, &app.status.workloads) {
        reader.namespace.clone_from(&name.namespace);
        of_workload(reader, world, &kind, &name).await;
    }
}

/// Returns kind and name of the workload that the message is about, or of the first one that is not ready. The status
/// may not list the one of the message.
fn broken(message: &str, workloads: &[Workload]) -> Option<(String, NamespacedName)> {
    let mut kinds = WORKLOADS.iter();
    let named = kinds.find_map(|kind| {
        let rest = message.strip_prefix(kind)?.strip_prefix(" '")?;
        let (namespace, name) = rest.split_once('\'')?.0.split_once('/')?;
        Some(((*kind).to_owned(), NamespacedName::new(namespace, name)))
    });
    named.or_else(|| {
        let mut workloads = workloads.iter();
        let found = workloads.find(|workload| workload.in_inventory && !is_ready(workload))?;
        let name = NamespacedName::new(&found.namespace, &found.name);
        Some((found.kind.clone(), name))
    })
}

/// Kinds of workloads with replicas.
const WORKLOADS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// API group of the sources of Flux.
const SOURCES: &str = "source.toolkit.fluxcd.io";

/// Kinds of sources and their plurals.
const SOURCE_KINDS: [(&str, &str); 6] = [
    ("GitRepository", "gitrepositories"),
    ("OCIRepository", "ocirepositories"),
    ("Bucket", "buckets"),
    ("HelmRepository", "helmrepositories"),
    ("HelmChart", "helmcharts"),
    ("ExternalArtifact", "externalartifacts"),
];

/// Reads the source of an object of Flux, and the source of a HelmChart.
async fn sources(reader: &Reader, world: &mut World, flux: FluxView) {
    let mut next = flux.source;
    // A HelmChart has one source, which has none.
    for _ in 0..2 {
        let Some(object) = next.take() else { return };
        let mut kinds = SOURCE_KINDS.iter();
        let Some((kind, plural)) = kinds.find(|(kind, _)| *kind == object.kind) else {
            return;
        };
        let resource = ResourceType::new(SOURCES, "v1", kind, plural);
        let namespace = object.namespace.clone().unwrap_or_default();
        let name = NamespacedName::new(&namespace, &object.name);
        if let Some(found) = read(reader, world, resource, &name).await {
            next.clone_from(&found.source);
            world.sources.push(found);
        }
    }
}

fn is_ready(workload: &Workload) -> bool {
    let has_replicas = WORKLOADS.contains(&&*workload.kind);
    let is_complete = workload.desired > Some(0) && workload.ready >= workload.desired;
    !has_replicas || is_complete
}

pub(super) async fn flux(
    reader: &Reader,
    world: &mut World,
    resource: ResourceType,
    name: &NamespacedName,
) {
    let found = read(reader, world, resource, name).await;
    world.flux.extend(found);
}

/// Reads a GitRepository.
pub(super) async fn source(reader: &Reader, world: &mut World, object: &ObjectRef) {
    let name = NamespacedName::new(&reader.namespace, &object.name);
    let found = read(reader, world, GIT_REPOSITORY, &name).await;
    world.sources.extend(found);
}

/// Reads an object of Flux. A type that is not installed is recorded as a missing CRD.
async fn read(
    reader: &Reader,
    world: &mut World,
    resource: ResourceType,
    name: &NamespacedName,
) -> Option<FluxView> {
    let NamespacedName { namespace, name } = name;
    let kind = resource.kind;
    let api_resource = ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: kind.to_owned(),
        plural: resource.plural.to_owned(),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(reader.client.clone(), namespace, &api_resource);
    let object = ObjectRef::namespaced(kind, namespace, name);
    match reader
        .timed(&format!("{kind} '{name}'"), api.get(name))
        .await
    {
        Ok(found) => {
            world.know(object, true);
            return Some(FluxView::read(kind, &found.metadata, &found.data));
        }
        Err(error) if UNKNOWN_KIND.iter().any(|words| error.why.contains(words)) => {
            let crd = format!("{}.{}", resource.plural, resource.group);
            world.know(ObjectRef::cluster("CustomResourceDefinition", &crd), false);
        }
        Err(error) if error.why.contains("not found") => world.know(object, false),
        Err(error) => world.unreadable.push(error),
    }
    None
}

/// Reads a workload and its Pods, by its selector.
async fn of_workload(reader: &Reader, world: &mut World, kind: &str, name: &NamespacedName) {
    let NamespacedName { namespace, name } = name;
    let object = ObjectRef::namespaced(kind, namespace, name);
    let found: Option<(WorkloadView, Option<LabelSelector>)> = match kind {
        "Deployment" => {
            let read = reader.get(reader.here::<Deployment>(), name).await;
            let found = world.keep_one(object, read);
            found.map(|one| (WorkloadView::from(&one), one.spec.map(|spec| spec.selector)))
        }
        "StatefulSet" => {
            let read = reader.get(reader.here::<StatefulSet>(), name).await;
            let found = world.keep_one(object, read);
            found.map(|one| (WorkloadView::from(&one), one.spec.map(|spec| spec.selector)))
        }
        "DaemonSet" => {
            let read = reader.get(reader.here::<DaemonSet>(), name).await;
            let found = world.keep_one(object, read);
            found.map(|one| (WorkloadView::from(&one), one.spec.map(|spec| spec.selector)))
        }
        _ => None,
    };
    let Some((view, selector)) = found else {
        return;
    };
    world.workloads.push(view);
    let labels = selector.and_then(|selector| selector.match_labels);
    let labels = labels.unwrap_or_default();
    let labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    // Without labels, the list would be all Pods of the namespace.
    if labels.is_empty() {
        return;
    }
    let which = ListParams::default().labels(&labels.join(","));
    let pods = reader.list(reader.here::<Pod>(), which).await;
    let pods: Option<Vec<PodView>> = world.keep_list("Pods", pods);
    world.pods = pods.unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, desired: i32, ready: i32) -> Workload {
        Workload {
            kind: "Deployment".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            in_inventory: true,
            desired: Some(desired),
            ready: Some(ready),
            images: Vec::new(),
        }
    }

    /// The table of messages and workloads, and the workload that is read.
    #[test]
    fn the_workload_of_the_message_is_read() {
        let listed = [workload("api", 2, 2), workload("web", 2, 1)];
        for (message, expected) in [
            ("Flux fails", Some(("Deployment", "web"))),
            (
                "Deployment 'shop/web' has 1 of 2 replicas ready",
                Some(("Deployment", "web")),
            ),
            // All of its replicas are ready, but they are old.
            (
                "Deployment 'shop/api' rolls out: 1 of 2 replicas updated, 2 ready",
                Some(("Deployment", "api")),
            ),
            // The status lists 32 workloads only.
            (
                "StatefulSet 'shop/db' has 0 of 1 replicas ready",
                Some(("StatefulSet", "db")),
            ),
            (
                "CronJob 'shop/backup' is missing",
                Some(("Deployment", "web")),
            ),
            ("Deployment 'shop", Some(("Deployment", "web"))),
        ] {
            let found = broken(message, &listed);
            let found = found
                .as_ref()
                .map(|(kind, name)| (kind.as_str(), name.name.as_str()));
            assert_eq!(found, expected, "{message}");
        }
        assert_eq!(broken("", &listed[..1]), None);
    }
}
