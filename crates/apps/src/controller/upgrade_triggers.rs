//! The objects that active requests have observed: a change of one reconciles its requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    Status,
    apps::{
        GIT_REPOSITORY, ManagedApp, NamespacedName, PlannedName, RollbackRequest, UpgradeRequest,
    },
};
use engine::{Cache, Handle, Key};
use kube::ResourceExt;

use super::{
    observer::Observer,
    upgrade_caches::{UpgradeCaches, of_app},
    upgrades::Application,
};
use crate::upgrade::storage::VolumeState;

/// Kind of claims.
pub(super) const CLAIM: &str = "PersistentVolumeClaim";
/// Kind of volumes.
pub(super) const VOLUME: &str = "PersistentVolume";

fn named(kind: &str, name: &NamespacedName) -> PlannedName {
    PlannedName::new(kind, &name.namespace, &name.name)
}

/// The objects that active requests have observed, so that a change of one reconciles its requests. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Subjects(Arc<Mutex<BTreeMap<Key, BTreeSet<PlannedName>>>>);

impl Subjects {
    /// Remembers the objects of a request. One that has ended has none.
    pub(super) fn remember(&self, key: Key, is_over: bool, subjects: BTreeSet<PlannedName>) {
        if is_over {
            return self.forget(&key);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, subjects);
    }

    pub(super) fn forget(&self, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }

    fn requests_of(&self, subject: &PlannedName) -> Vec<Key> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().filter(|(_, known)| known.contains(subject));
        found.map(|(key, _)| key.clone()).collect()
    }
}

/// Returns the objects of an application that a request observes.
pub(super) fn subjects_of(found: &Application, volumes: &[VolumeState]) -> BTreeSet<PlannedName> {
    let flux = found.flux.iter();
    let flux = flux.map(|(kind, name)| named(kind.resource().kind, name));
    let source = found.source.iter();
    let source = source.map(|name| named(GIT_REPOSITORY.kind, name));
    let claims = found.claims.iter().map(|name| named(CLAIM, name));
    let volumes = volumes.iter().filter_map(|one| one.volume.as_ref());
    let volumes = volumes.map(|name| PlannedName::new(VOLUME, "", name));
    let workloads = found.workloads.iter();
    let workloads = workloads.map(|id| PlannedName::new(id.kind.name(), &id.namespace, &id.name));
    let all = flux.chain(source).chain(claims).chain(volumes);
    all.chain(workloads).collect()
}

/// Reconciles UpgradeRequests when an object changes that they have observed.
pub(super) fn connect(
    own: &UpgradeCaches,
    observer: &Observer,
    apps: &Cache<ManagedApp>,
    subjects: &Subjects,
    handle: &Handle,
) {
    connect_subjects(own, observer, subjects, handle);
    {
        let (requests, handle) = (own.requests.clone(), handle.clone());
        apps.on_change(move |change| {
            let namespace = change.key.namespace.as_deref().unwrap_or_default();
            for key in requests.keys_of(&of_app(namespace, &change.key.name)) {
                handle.enqueue(&key);
            }
        });
    }
    {
        // The end of a rollback lets the next request of its application begin.
        let (own, handle) = (own.clone(), handle.clone());
        own.rollbacks.clone().on_change(move |change| {
            let Some(app) = ended_app(&own, change.old, change.new) else {
                return;
            };
            let namespace = change.key.namespace.as_deref().unwrap_or_default();
            for key in own.requests.keys_of(&of_app(namespace, &app)) {
                handle.enqueue(&key);
            }
        });
    }
    connect_children(own, subjects, handle);
}

/// Returns the application of a rollback that ended with a change.
pub(super) fn ended_app(
    own: &UpgradeCaches,
    old: Option<&Arc<RollbackRequest>>,
    new: Option<&Arc<RollbackRequest>>,
) -> Option<String> {
    let is_over = |one: &RollbackRequest| one.status.as_ref().is_some_and(Status::is_over);
    let old = old.filter(|old| !is_over(old))?;
    if new.is_none_or(|new| is_over(new)) {
        own.app_of(new.unwrap_or(old))
    } else {
        None
    }
}

/// Reconciles requests when an object changes that they have observed.
pub(super) fn connect_subjects(
    own: &UpgradeCaches,
    observer: &Observer,
    subjects: &Subjects,
    handle: &Handle,
) {
    let changed = {
        let (subjects, handle) = (subjects.clone(), handle.clone());
        move |subject: &PlannedName| {
            for key in subjects.requests_of(subject) {
                handle.enqueue(&key);
            }
        }
    };
    observer.caches.on_change(changed.clone());
    {
        let changed = changed.clone();
        own.sources.objects().on_change(move |change| {
            let kind = GIT_REPOSITORY.kind;
            let namespace = change.key.namespace.as_deref().unwrap_or_default();
            changed(&PlannedName::new(kind, namespace, &change.key.name));
        });
    }
    {
        let changed = changed.clone();
        own.volumes.on_change(move |change| {
            changed(&PlannedName::new(VOLUME, "", &change.key.name));
        });
    }
    own.attachments.on_change(move |change| {
        for one in change.old.into_iter().chain(change.new) {
            if let Some(attached) = &one.0 {
                changed(&PlannedName::new(VOLUME, "", &attached.volume));
            }
        }
    });
}

fn connect_children(own: &UpgradeCaches, subjects: &Subjects, handle: &Handle) {
    {
        let (requests, handle) = (own.requests.clone(), handle.clone());
        own.jobs.on_change(move |change| {
            if let Some(job) = change.new.or(change.old) {
                enqueue_all(&requests, &handle, &job.owner());
            }
        });
    }
    {
        let (requests, handle) = (own.requests.clone(), handle.clone());
        own.pods.on_change(move |change| {
            if let Some(pod) = change.new.or(change.old) {
                enqueue_all(&requests, &handle, &pod.owner());
            }
        });
    }
    {
        let (requests, handle) = (own.requests.clone(), handle.clone());
        own.snapshots.objects().on_change(move |change| {
            let Some(snapshot) = change.new.or(change.old) else {
                return;
            };
            // A snapshot may be in another namespace than its request, so all requests with the UID are searched.
            let uid = snapshot.owner_uid.as_str();
            for key in requests.keys() {
                let request = requests.get(&key);
                if request.is_some_and(|request| request.metadata.uid.as_deref() == Some(uid)) {
                    handle.enqueue(&key);
                }
            }
        });
    }
    {
        let (snapshots, requests, handle) =
            (own.snapshots.clone(), own.requests.clone(), handle.clone());
        own.contents.objects().on_change(move |change| {
            let Some(uid) = change.new.and_then(|content| content.snapshot_uid.clone()) else {
                return;
            };
            let all = snapshots.objects();
            for key in all.keys() {
                let owner = all.get(&key).filter(|one| one.view.uid == uid);
                let Some(owner) = owner else { continue };
                for key in requests.keys() {
                    let request = requests.get(&key);
                    if request.is_some_and(|one| {
                        one.metadata.uid.as_deref() == Some(owner.owner_uid.as_str())
                    }) {
                        handle.enqueue(&key);
                    }
                }
            }
        });
    }
    let (requests, subjects, handle) = (own.requests.clone(), subjects.clone(), handle.clone());
    let all = requests.clone();
    requests.on_change(move |change| {
        if change.new.is_none() {
            subjects.forget(change.key);
        }
        // The end of a request lets the next one of its application begin.
        let Some(old) = change.old.filter(|old| !is_over(old)) else {
            return;
        };
        if change.new.is_none_or(|new| is_over(new)) {
            let namespace = old.namespace().unwrap_or_default();
            let app = of_app(&namespace, &old.spec.managed_app_ref.name);
            for key in all.keys_of(&app).iter().filter(|key| *key != change.key) {
                handle.enqueue(key);
            }
        }
    });
}

/// Returns whether a request has ended.
fn is_over(request: &UpgradeRequest) -> bool {
    request.status.as_ref().is_some_and(Status::is_over)
}

fn enqueue_all(requests: &Cache<UpgradeRequest>, handle: &Handle, owner: &str) {
    for key in requests.keys_of(owner) {
        handle.enqueue(&key);
    }
}
