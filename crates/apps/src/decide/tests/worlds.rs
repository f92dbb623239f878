//! Observed states of an application, healthy and not.

use std::sync::Arc;

use api::{
    Reason, Timestamp,
    apps::{FluxRef, ManagedApp, ManagedAppSpec, NamespacedName},
};
use pods::Rollout;

use crate::{
    discover::Problem,
    flux::{Attempt, FluxCondition, FluxObject, HelmReleaseView, KustomizationView, ReleaseEntry},
    health::Member,
    object::{ObjectId, ObjectKind},
    volumes::Mounts,
    workload::WorkloadView,
    world::{AppWorld, Discovery, Objects, Seen},
};

const NOW: i64 = 1_800_000_000;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

pub(super) fn name(name: &str) -> NamespacedName {
    NamespacedName::new("shop", name)
}

pub(super) fn condition(value: Option<bool>, since: i64) -> Option<FluxCondition> {
    Some(FluxCondition {
        value,
        reason: "FluxReason".to_owned(),
        message: "a message of Flux".to_owned(),
        since: Some(at(since)),
        generation: None,
    })
}

pub(super) fn flux() -> FluxObject {
    FluxObject {
        name: name("shop"),
        generation: 1,
        observed_generation: 1,
        ready: condition(Some(true), -600),
        attempt: Attempt::Applied,
        ..FluxObject::default()
    }
}

pub(super) fn kustomization() -> KustomizationView {
    KustomizationView {
        flux: flux(),
        revision: Some("main@sha1:0123".to_owned()),
        inventory: Some([].into()),
        ..KustomizationView::default()
    }
}

pub(super) fn helm() -> HelmReleaseView {
    HelmReleaseView {
        flux: flux(),
        requested: Some("2.0.0".to_owned()),
        newest: Some(ReleaseEntry {
            name: "shop".to_owned(),
            version: 3,
            status: "deployed".to_owned(),
            chart_version: "2.0.0".to_owned(),
            app_version: Some("15".to_owned()),
            ..ReleaseEntry::default()
        }),
        ..HelmReleaseView::default()
    }
}

pub(super) fn member(name: &str, ready: i32) -> Member {
    let id = ObjectId::new(ObjectKind::Deployment, "shop", name);
    Member {
        id: id.clone(),
        live: Some(Arc::new(WorkloadView {
            id,
            uid: name.to_owned(),
            generation: 1,
            appliers: [].into(),
            rollout: Some(Rollout {
                observed: 1,
                wanted: 2,
                replicas: 2,
                updated: 2,
                ready,
            }),
            is_deleting: false,
            is_rolling: false,
            hold: None,
            failure: None,
            images: ["web:2".to_owned()].into(),
            mounts: Mounts {
                claims: ["data".to_owned()].into(),
                unprotected: [("node".to_owned(), "hostPath".to_owned())].into(),
            },
        })),
        pods: Vec::new(),
    }
}

pub(super) fn objects() -> Objects {
    Objects {
        members: vec![member("web", 2)],
        ..Objects::default()
    }
}

/// A healthy application with a HelmRelease.
pub(super) fn healthy() -> AppWorld {
    AppWorld {
        kustomization_name: name("shop"),
        kustomization: Seen::Present(Arc::new(kustomization())),
        helm_release: Ok(Some((name("shop"), Seen::Present(Arc::new(helm()))))),
        discovery: Discovery::Found(objects()),
        overlap: None,
        warnings: Vec::new(),
        operations: None,
    }
}

pub(super) fn app() -> ManagedApp {
    let reference = FluxRef {
        name: "shop".to_owned(),
        namespace: None,
    };
    ManagedApp::new("shop", ManagedAppSpec::new(reference))
}

pub(super) fn with_kustomization(change: impl FnOnce(&mut KustomizationView)) -> AppWorld {
    let mut view = kustomization();
    change(&mut view);
    AppWorld {
        kustomization: Seen::Present(Arc::new(view)),
        ..healthy()
    }
}

pub(super) fn with_helm(change: impl FnOnce(&mut HelmReleaseView)) -> AppWorld {
    let mut view = helm();
    change(&mut view);
    AppWorld {
        helm_release: Ok(Some((name("shop"), Seen::Present(Arc::new(view))))),
        ..healthy()
    }
}

pub(super) fn with_helm_seen(seen: Seen<HelmReleaseView>) -> AppWorld {
    AppWorld {
        helm_release: Ok(Some((name("shop"), seen))),
        ..healthy()
    }
}

pub(super) fn with_objects(change: impl FnOnce(&mut Objects)) -> AppWorld {
    let mut found = objects();
    change(&mut found);
    AppWorld {
        discovery: Discovery::Found(found),
        ..healthy()
    }
}

pub(super) fn failed(reason: Reason) -> AppWorld {
    AppWorld {
        discovery: Discovery::Failed(Problem::new(reason, "a problem")),
        ..healthy()
    }
}

pub(super) fn without(seen: Seen<KustomizationView>) -> AppWorld {
    AppWorld {
        kustomization: seen,
        helm_release: Ok(None),
        discovery: Discovery::Found(Objects::default()),
        ..healthy()
    }
}
