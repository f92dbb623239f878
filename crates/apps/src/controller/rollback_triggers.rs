//! The changes that reconcile RollbackRequests.

use api::{Status, apps::RollbackRequest};
use engine::{Cache, Handle};
use kube::ResourceExt;

use super::{
    observer::Observer,
    upgrade_caches::{UpgradeCaches, of_app, of_upgrade},
    upgrade_triggers::{Subjects, connect_subjects, ended_app},
};

/// Reconciles RollbackRequests when an object changes that they have observed.
pub(super) fn connect(
    own: &UpgradeCaches,
    observer: &Observer,
    subjects: &Subjects,
    handle: &Handle,
) {
    connect_subjects(own, observer, subjects, handle);
    {
        let (rollbacks, handle) = (own.rollbacks.clone(), handle.clone());
        own.jobs.on_change(move |change| {
            if let Some(job) = change.new.or(change.old) {
                enqueue_owner(&rollbacks, &handle, &job.owner_uid);
            }
        });
    }
    {
        let (rollbacks, handle) = (own.rollbacks.clone(), handle.clone());
        own.pods.on_change(move |change| {
            if let Some(pod) = change.new.or(change.old) {
                enqueue_owner(&rollbacks, &handle, &pod.owner_uid);
            }
        });
    }
    {
        // A rollback may wait for the end of its upgrade, or of another upgrade of its application.
        let (rollbacks, handle) = (own.rollbacks.clone(), handle.clone());
        own.requests.on_change(move |change| {
            let Some(request) = change.new.or(change.old) else {
                return;
            };
            if change.new.is_some() && !request.status.as_ref().is_some_and(Status::is_over) {
                return;
            }
            let namespace = request.namespace().unwrap_or_default();
            let of_upgrade = of_upgrade(&namespace, &change.key.name);
            let of_app = of_app(&namespace, &request.spec.managed_app_ref.name);
            for index_key in [of_upgrade, of_app] {
                for key in rollbacks.keys_of(&index_key) {
                    handle.enqueue(&key);
                }
            }
        });
    }
    let (own, subjects, handle) = (own.clone(), subjects.clone(), handle.clone());
    own.rollbacks.clone().on_change(move |change| {
        if change.new.is_none() {
            subjects.forget(change.key);
        }
        // The end of a request lets the next one of its application begin.
        let Some(app) = ended_app(&own, change.old, change.new) else {
            return;
        };
        let namespace = change.key.namespace.as_deref().unwrap_or_default();
        let waiting = own.rollbacks.keys_of(&of_app(namespace, &app));
        for key in waiting.iter().filter(|key| *key != change.key) {
            handle.enqueue(key);
        }
    });
}

/// Reconciles the rollback with this UID. Its Pods may be in another namespace, so all rollbacks are searched.
fn enqueue_owner(rollbacks: &Cache<RollbackRequest>, handle: &Handle, uid: &str) {
    for key in rollbacks.keys() {
        let request = rollbacks.get(&key);
        if request.is_some_and(|request| request.metadata.uid.as_deref() == Some(uid)) {
            handle.enqueue(&key);
        }
    }
}
