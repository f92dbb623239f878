//! Reads the objects around a ManagedApp: those of Flux, and the first workload that is not ready.

use api::{
    apps::{HELM_RELEASE, KUSTOMIZATION, NamespacedName, Workload},
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
    let mut workloads = app.status.workloads.iter();
    let broken = workloads.find(|workload| workload.in_inventory && !is_ready(workload));
    if let Some(workload) = broken {
        reader.namespace.clone_from(&workload.namespace);
        of_workload(reader, world, workload).await;
    }
}

fn is_ready(workload: &Workload) -> bool {
    let has_replicas = ["Deployment", "StatefulSet", "DaemonSet"].contains(&&*workload.kind);
    let is_complete = workload.desired > Some(0) && workload.ready >= workload.desired;
    !has_replicas || is_complete
}

/// Reads an object of Flux. A type that is not installed is recorded as a missing CRD.
async fn flux(reader: &Reader, world: &mut World, resource: ResourceType, name: &NamespacedName) {
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
            let view = FluxView::read(kind, &found.metadata, &found.data);
            world.flux.push(view);
        }
        Err(error) if UNKNOWN_KIND.iter().any(|words| error.why.contains(words)) => {
            let crd = format!("{}.{}", resource.plural, resource.group);
            world.know(ObjectRef::cluster("CustomResourceDefinition", &crd), false);
        }
        Err(error) if error.why.contains("not found") => world.know(object, false),
        Err(error) => world.unreadable.push(error),
    }
}

/// Reads a workload and its Pods, by its selector.
async fn of_workload(reader: &Reader, world: &mut World, workload: &Workload) {
    let Workload {
        kind,
        namespace,
        name,
        ..
    } = workload;
    let object = ObjectRef::namespaced(kind, namespace, name);
    let found: Option<(WorkloadView, Option<LabelSelector>)> = match kind.as_str() {
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
