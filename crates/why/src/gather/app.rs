//! Reads the objects around a ManagedApp: those of Flux, and the workload that is not ready.

use api::{
    apps::{HELM_RELEASE, KUSTOMIZATION, ManagedAppStatus, NamespacedName, Workload},
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

/// Reads the objects of Flux and the workload that is not ready. Sets the namespace of the reader to that of the
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
    if let Some(workload) = broken(&app.status) {
        reader.namespace.clone_from(&workload.namespace);
        of_workload(reader, world, workload).await;
    }
}

/// Returns the workload that the message names, or the first one that is not ready. During a rollout that does not
/// succeed, the Pods of the old template are as many and as ready as desired.
fn broken(status: &ManagedAppStatus) -> Option<&Workload> {
    let message = status.progress.message.as_deref().unwrap_or_default();
    let is_named = |workload: &&Workload| {
        let Workload {
            kind,
            namespace,
            name,
            ..
        } = workload;
        message.starts_with(&format!("{kind} '{namespace}/{name}' "))
    };
    let of_inventory = || status.workloads.iter().filter(|one| one.in_inventory);
    let named = of_inventory().find(is_named);
    named.or_else(|| of_inventory().find(|workload| !is_ready(workload)))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(message: &str, ready: [i32; 3]) -> Option<String> {
        let workload = |kind: &str, name: &str, is_in: bool, ready: i32| {
            json!({ "kind": kind, "namespace": "shop", "name": name, "inInventory": is_in,
                "desired": 1, "ready": ready })
        };
        let status: ManagedAppStatus = serde_json::from_value(json!({
            "message": message,
            "workloads": [
                workload("Deployment", "web", true, ready[0]),
                workload("StatefulSet", "web", true, ready[1]),
                workload("Deployment", "other", false, ready[2]),
            ],
        }))
        .unwrap();
        broken(&status).map(|one| format!("{} {}", one.kind, one.name))
    }

    /// The old Pod of a Deployment serves while the new one cannot start. Without the message, nothing would be read.
    #[test]
    fn the_workload_of_the_message_is_read_although_its_old_pods_are_ready() {
        let rolls = "StatefulSet 'shop/web' rolls out: 1 of 1 replicas updated, 1 ready: Pod 'x'";
        let nothing = "1 workload is ready at revision 'main@sha1:0123'";
        let longer = "Deployment 'shop/web-2' has 0 of 1 replicas ready";
        for (message, ready, expected) in [
            (rolls, [1, 1, 1], Some("StatefulSet web")),
            (rolls, [0, 1, 1], Some("StatefulSet web")),
            (nothing, [1, 1, 1], None),
            // The cluster is ahead of the message.
            (nothing, [1, 0, 1], Some("StatefulSet web")),
            (longer, [0, 1, 1], Some("Deployment web")),
            (longer, [1, 1, 1], None),
            // A workload that Flux does not apply does not count for the health.
            (nothing, [1, 1, 0], None),
            ("Deployment 'shop/other' is not ready", [1, 1, 0], None),
        ] {
            assert_eq!(
                found(message, ready).as_deref(),
                expected,
                "{message}, {ready:?}"
            );
        }
    }
}
