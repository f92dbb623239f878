//! Reads the objects around an UpgradeRequest or a RollbackRequest: its ManagedApp, and the objects that its message names.

use api::{
    Reason,
    apps::{HELM_RELEASE, KUSTOMIZATION, MANAGED_APP, NamespacedName, UPGRADE_REQUEST},
    names,
    status::condition,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::api::ListParams;

use super::{GatherError, Reader, app, leases, ours};
use crate::{
    explain::{About, objects, rule_of},
    world::{AppView, ObjectRef, PodView, RequestView, World},
};

/// Reads the ManagedApp of the request. Then, by its reason, the live application, the step, or the objects of the message.
pub(super) async fn around(reader: &mut Reader, world: &mut World, operator: Option<&str>) {
    let Some(mut request) = world.request.clone() else {
        return;
    };
    if request.app.is_empty() {
        request.app = app_of(reader, world, &request.upgrade).await;
        world.request = Some(request.clone());
    }
    read_app(reader, world, &request.app).await;
    let named = objects(
        request.status.message.as_deref().unwrap_or_default(),
        &request.meta.namespace,
    );
    match about(&request) {
        Some(About::Live) => app::around(reader, world, operator).await,
        Some(About::Step) => {
            keep_leases(reader, world, operator).await;
            step(reader, world, &request.meta.uid).await;
        }
        Some(
            About::App
            | About::Upgrade
            | About::Kustomization
            | About::HelmRelease
            | About::Source
            | About::Claim
            | About::Snapshot
            | About::Workload,
        )
        | None => {
            keep_leases(reader, world, operator).await;
            for object in &named {
                one(reader, world, object).await;
            }
        }
    }
}

fn about(request: &RequestView) -> Option<About> {
    let main = request.status.condition(condition::SUCCEEDED)?;
    let rule = rule_of(Reason::from_name(&main.reason)?)?;
    Some(rule.about)
}

async fn keep_leases(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let leases = leases(reader, operator, world.operator_row()).await;
    world.leases = world.keep_list("Leases", leases);
}

/// Returns the name of the ManagedApp of an UpgradeRequest, or an empty text.
async fn app_of(reader: &Reader, world: &mut World, upgrade: &str) -> String {
    let kind = UPGRADE_REQUEST.name();
    let object = ObjectRef::namespaced(kind, &reader.namespace, upgrade);
    match ours(reader, kind, upgrade).await {
        Ok(Some(found)) => {
            world.know(object, true);
            RequestView::read(kind, &found).app
        }
        Ok(None) => {
            world.know(object, false);
            String::new()
        }
        Err(GatherError::Unreadable(what)) => {
            world.unreadable.push(what);
            String::new()
        }
        Err(GatherError::NotFound(_) | GatherError::NotInstalled(_)) => String::new(),
    }
}

async fn read_app(reader: &Reader, world: &mut World, name: &str) {
    if name.is_empty() {
        return;
    }
    let kind = MANAGED_APP.name();
    let object = ObjectRef::namespaced(kind, &reader.namespace, name);
    match ours(reader, kind, name).await {
        Ok(Some(found)) => world.app = Some(AppView::read(&found)),
        Ok(None) => world.know(object, false),
        Err(GatherError::Unreadable(what)) => world.unreadable.push(what),
        Err(GatherError::NotFound(_) | GatherError::NotInstalled(_)) => {}
    }
}

/// Reads the Jobs of the request, and their Pods.
async fn step(reader: &Reader, world: &mut World, uid: &str) {
    let of_request = ListParams::default().labels(&format!("{}={uid}", names::UID));
    let jobs = reader.list(reader.here::<Job>(), of_request.clone()).await;
    if let Some(jobs) = world.keep_list("Jobs", jobs) {
        world.jobs = jobs;
    }
    let pods = reader.list(reader.here::<Pod>(), of_request).await;
    let pods: Option<Vec<PodView>> = world.keep_list("Pods", pods);
    world.pods = pods.unwrap_or_default();
}

/// Reads one object of the message: the state of an object of Flux and of a Pod, and the existence of another one.
async fn one(reader: &Reader, world: &mut World, object: &ObjectRef) {
    let mut there = reader.clone();
    if let Some(namespace) = &object.namespace {
        there.namespace.clone_from(namespace);
    }
    let name = NamespacedName::new(&there.namespace, &object.name);
    match object.kind.as_str() {
        "Kustomization" => app::flux(&there, world, KUSTOMIZATION, &name).await,
        "HelmRelease" => app::flux(&there, world, HELM_RELEASE, &name).await,
        "GitRepository" => app::source(&there, world, object).await,
        "Pod" => {
            let found = there.get(there.here::<Pod>(), &object.name).await;
            let found = world.keep_one(object.clone(), found);
            world.pods.extend(found.map(|pod| PodView::from(&pod)));
        }
        kind => {
            let Some((_, known)) = there.kind(kind, &object.name) else {
                return;
            };
            let found = there.metadata(kind, &object.name).await;
            let found = world.keep_one(known.clone(), found);
            if found.is_some() {
                world.know(known, true);
            }
        }
    }
}
