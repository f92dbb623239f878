//! Builds worlds about ManagedApp `team/shop` from objects as the API server returns them.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use why::{
    ObjectRef, World,
    world::{AppView, FluxView, Known},
};

use crate::build::{NOW, at, merge};

fn time(clock: &str) -> Time {
    Time(at(clock).parse().unwrap())
}

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A world about ManagedApp `team/shop`, whose workloads are in the namespace `shop`.
pub(crate) struct Site(pub(crate) World);

/// Returns a status like the operator's, written at 10:02:11.
pub(crate) fn status(phase: &str, reason: &str, is_stalled: bool, message: &str) -> Value {
    let condition = |kind: &str, value: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": at("10:01:00") })
    };
    let ready = if phase == "Ready" { "True" } else { "False" };
    let mut conditions = vec![condition("Ready", ready)];
    match (phase, is_stalled) {
        ("Ready", _) => {}
        (_, true) => conditions.push(condition("Stalled", "True")),
        (_, false) => conditions.push(condition("Reconciling", "True")),
    }
    json!({
        "observedGeneration": 1, "phase": phase, "reason": reason, "message": message,
        "lastUpdated": at("10:02:11"), "conditions": conditions,
        "helmRelease": { "namespace": "shop", "name": "shop" },
        "release": { "name": "shop", "version": 3, "chartVersion": "2.0.0" },
        "workloadCount": 1,
        "workloads": [{ "kind": "Deployment", "namespace": "shop", "name": "web",
            "inInventory": true, "desired": 2, "ready": 1 }],
    })
}

impl Site {
    /// Creates a world with this status and without objects. An operator leads.
    pub(crate) fn bare(status: Value) -> Self {
        let target = ObjectRef::namespaced("ManagedApp", "team", "shop");
        let mut world = World::new(time(NOW), target);
        let app = json!({
            "metadata": { "name": "shop", "namespace": "team", "uid": "app-uid", "generation": 1,
                "creationTimestamp": at("10:00:00"),
                "managedFields": [{ "manager": "kubectl", "operation": "Apply",
                    "time": at("10:00:00") }] },
            "spec": { "kustomizationRef": { "name": "shop", "namespace": "flux-system" } },
            "status": status,
        });
        world.app = Some(AppView::read(&app));
        let lease = json!({
            "metadata": { "name": "orchestrator-apps", "namespace": "orchestrator-system" },
            "spec": { "holderIdentity": "orchestrator-apps-5c7b-fghij", "leaseDurationSeconds": 15,
                "renewTime": "2026-03-02T10:05:08.000000Z" },
        });
        world.leases = Some(vec![(&from::<Lease>(lease)).into()]);
        Self(world)
    }

    /// Creates a world in which Flux is well.
    pub(crate) fn new(status: Value) -> Self {
        Self::bare(status).kustomization(json!({})).helm(json!({}))
    }

    fn flux(mut self, kind: &str, namespace: &str, more: Value) -> Self {
        let mut object = json!({
            "metadata": { "name": "shop", "namespace": namespace, "uid": format!("{kind}-uid"),
                "generation": 4, "creationTimestamp": at("09:00:00"),
                "managedFields": [{ "manager": "kubectl-patch", "operation": "Update",
                    "time": at("10:01:00") }] },
            "spec": { "suspend": false },
            "status": { "observedGeneration": 4, "conditions": [{ "type": "Ready", "status": "True",
                "reason": "ReconciliationSucceeded", "message": "Applied revision: main@sha1:0123",
                "lastTransitionTime": at("09:30:00") }] },
        });
        merge(&mut object, more);
        let meta = from(object["metadata"].clone());
        self.0.flux.retain(|known| known.kind != kind);
        self.0.flux.push(FluxView::read(kind, &meta, &object));
        self.known(kind, namespace, "shop", true)
    }

    pub(crate) fn kustomization(self, more: Value) -> Self {
        self.flux("Kustomization", "flux-system", more)
    }

    pub(crate) fn helm(self, more: Value) -> Self {
        self.flux("HelmRelease", "shop", more)
    }

    /// Adds the GitRepository of the Kustomization with this condition `Ready`.
    pub(crate) fn git(mut self, ready: &Value) -> Self {
        let object = json!({
            "metadata": { "name": "shop", "namespace": "flux-system", "uid": "git-uid",
                "generation": 2 },
            "status": { "observedGeneration": 1, "conditions": [ready] },
        });
        let meta = from(object["metadata"].clone());
        let view = FluxView::read("GitRepository", &meta, &object);
        self.0.sources.push(view);
        self.known("GitRepository", "flux-system", "shop", true)
    }

    pub(crate) fn known(mut self, kind: &str, namespace: &str, name: &str, exists: bool) -> Self {
        let object = match namespace {
            "" => ObjectRef::cluster(kind, name),
            namespace => ObjectRef::namespaced(kind, namespace, name),
        };
        self.0.known.retain(|known| known.object != object);
        self.0.known.push(Known {
            object,
            exists,
            provisioner: None,
        });
        self
    }

    /// Adds the Deployment `web` with these numbers of desired and ready replicas.
    pub(crate) fn web(mut self, desired: i32, ready: i32, more: Value) -> Self {
        let mut deployment = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "web-uid", "generation": 2,
                "creationTimestamp": at("09:00:00") },
            "spec": { "replicas": desired, "selector": {}, "template": {} },
            "status": { "observedGeneration": 2, "replicas": desired, "updatedReplicas": desired,
                "readyReplicas": ready, "availableReplicas": ready },
        });
        merge(&mut deployment, more);
        self.0.workloads = vec![(&from::<Deployment>(deployment)).into()];
        self
    }

    /// Adds a Pod of the Deployment.
    pub(crate) fn pod(mut self, status: Value) -> Self {
        let pod = json!({
            "metadata": { "name": "web-x2k9p", "namespace": "shop", "uid": "pod-uid",
                "creationTimestamp": at("10:01:00") },
            "spec": { "nodeName": "node-1",
                "containers": [{ "name": "web", "image": "registry.example/web:2" }] },
            "status": status,
        });
        self.0.pods.push((&from::<Pod>(pod)).into());
        self
    }

    pub(crate) fn container(self, state: Value, more: Value) -> Self {
        let mut status = json!({ "name": "web", "image": "registry.example/web:2", "imageID": "",
            "ready": false, "restartCount": 0, "state": state });
        merge(&mut status, more);
        self.pod(json!({ "phase": "Running", "containerStatuses": [status] }))
    }

    pub(crate) fn event(mut self, uid: &str, reason: &str, message: &str) -> Self {
        let event = json!({
            "metadata": { "name": "e", "namespace": "shop" }, "involvedObject": { "uid": uid },
            "type": "Warning", "reason": reason, "message": message, "count": 4,
            "firstTimestamp": at("10:01:10"), "lastTimestamp": at("10:05:00"),
        });
        self.0.events.push((&from::<Event>(event)).into());
        self
    }
}
