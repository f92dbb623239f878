//! Reads the requests of an application, with their snapshots, their locks and the volumes that rollbacks replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    Status,
    apps::{
        ManagedApp, NamespacedName, ROLLBACK_REQUEST, RollbackRequest, UPGRADE_REQUEST,
        UpgradeRequest,
    },
    claim::{Holder, Lock},
    names,
};
use engine::{Availability, Key};
use kube::ResourceExt;

use super::{
    Shared,
    observer::{FluxObjects, Observer},
    upgrade_caches::{UpgradeCaches, of_app, of_request, of_upgrade},
    upgrade_storage::cluster_key,
    upgrades::{object_kind, target},
};
use crate::{
    discover,
    object::ObjectId,
    operations::{Operations, ReplacedVolume, RollbackView, UpgradeView},
    rollback::volume::LiveVolume,
    upgrade::{
        flux_target::FluxTarget,
        recovery::{Locks, noted},
        retention::SnapshotSet,
        storage::SnapshotView,
    },
    world::Discovery,
};

/// Reads the requests of applications from the caches.
#[derive(Clone)]
pub(super) struct OperationsReader {
    pub(super) own: UpgradeCaches,
    pub(super) observer: Observer,
}

impl OperationsReader {
    /// Returns the requests of an application with these objects.
    pub(super) fn read(
        &self,
        app: &ManagedApp,
        flux: &FluxObjects,
        discovery: &Discovery,
    ) -> Operations {
        let namespace = app.namespace().unwrap_or_default();
        let upgrades = self
            .own
            .requests
            .by_index(&of_app(&namespace, &app.name_any()));
        let rollbacks = self.rollbacks(&namespace, &app.name_any(), &upgrades);
        let stored = app.status.clone().unwrap_or_default();
        // The snapshots of a deleted UpgradeRequest are found by its UID in the status.
        let points = stored.restore_points.iter().map(|point| (&point.uid, None));
        let known = upgrades
            .iter()
            .filter_map(|one| Some((one.metadata.uid.as_ref()?, Some(one))));
        let mut sets: BTreeMap<&String, Option<&Arc<UpgradeRequest>>> = points.collect();
        sets.extend(known);
        let sets: Vec<SnapshotSet> = sets
            .into_iter()
            .filter_map(|(uid, upgrade)| self.set(uid, upgrade, &rollbacks))
            .collect();
        let of_set = |uid: Option<&String>| {
            let set = sets.iter().find(|set| Some(&set.request) == uid);
            set.map_or(&[][..], |set| set.snapshots.as_slice())
        };
        let upgrades: Vec<UpgradeView> = upgrades
            .iter()
            .map(|one| UpgradeView::read(one, of_set(one.metadata.uid.as_ref())))
            .collect();
        let rollbacks: Vec<RollbackView> = rollbacks
            .iter()
            .map(|one| RollbackView::read(one))
            .collect();
        let listed = stored.retained_volumes.iter().map(|one| &one.volume);
        let replaced = rollbacks.iter().flat_map(|one| one.replaced.iter());
        let replaced = replaced.map(|(volume, _, _)| volume);
        let volumes: BTreeSet<&String> = listed.chain(replaced).collect();
        let replaced = volumes.into_iter().filter_map(|name| self.volume(name));
        let replaced = replaced.collect();
        Operations {
            upgrades,
            rollbacks,
            restoring: self.observer.caches.restoring(),
            sets,
            unknown_snapshots: self.unknown_snapshots(&namespace),
            locks: self.locks(app, flux, discovery),
            replaced,
        }
    }

    /// Returns why the snapshots of a namespace are not known. An API server without snapshots has none.
    fn unknown_snapshots(&self, namespace: &str) -> Option<String> {
        match self.own.snapshots.availability(Some(namespace)) {
            Availability::Installed | Availability::NotInstalled => None,
            Availability::Unreadable { why } => Some(why),
        }
    }

    /// Returns the locks of the Flux objects of an application.
    fn locks(&self, app: &ManagedApp, flux: &FluxObjects, discovery: &Discovery) -> Locks {
        let namespace = app.namespace().unwrap_or_default();
        let parent = app.spec.suspend_ref.as_ref();
        let parent = parent.map(|reference| discover::resolve(reference, &namespace));
        let parent = parent.filter(|parent| *parent != flux.kustomization_name);
        let caches = &self.observer.caches;
        let kustomizations = parent.iter().chain([&flux.kustomization_name]);
        let kustomizations = kustomizations.filter_map(|name| target(&caches.kustomizations, name));
        let release = match &flux.helm_release {
            Ok(Some((name, _))) => target(&caches.helm_releases, name),
            Ok(None) | Err(_) => None,
        };
        let flux: Vec<FluxTarget> = kustomizations.chain(release).collect();
        let holders = flux.iter().filter_map(|one| match &one.lock {
            Lock::Held(holder) => Some(holder),
            Lock::Free | Lock::Unreadable => None,
        });
        let active = holders.filter(|holder| self.is_active(holder));
        let active = active.map(|holder| holder.uid.clone()).collect();
        let mut namespaces: BTreeSet<String> =
            flux.iter().map(|one| one.namespace.clone()).collect();
        if let Discovery::Found(objects) = discovery {
            let ids = objects.ids();
            namespaces.extend(ids.into_iter().map(|id| id.namespace));
        }
        let ids = noted(&flux, &namespaces)
            .into_iter()
            .map(|one| ObjectId::new(object_kind(one.kind), &one.namespace, &one.name));
        let ids: BTreeSet<ObjectId> = ids.collect();
        let workloads = ids.iter().filter_map(|id| caches.scale(id)).collect();
        Locks {
            flux,
            workloads,
            active,
        }
    }

    /// Returns whether a holder may still release its lock. One that the operator cannot observe counts as active.
    fn is_active(&self, holder: &Holder) -> bool {
        let namespace = holder.namespace.as_deref();
        if !namespace.is_some_and(|namespace| self.observer.is_watched(namespace)) {
            return true;
        }
        let key = Key {
            namespace: holder.namespace.clone(),
            name: holder.name.clone(),
        };
        let is_it = |uid: Option<&String>| uid == Some(&holder.uid);
        if holder.kind == UPGRADE_REQUEST.name() {
            self.own.requests.get(&key).is_some_and(|one| {
                is_it(one.metadata.uid.as_ref())
                    && !one.status.as_ref().is_some_and(Status::is_over)
            })
        } else if holder.kind == ROLLBACK_REQUEST.name() {
            self.own.rollbacks.get(&key).is_some_and(|one| {
                is_it(one.metadata.uid.as_ref())
                    && !one.status.as_ref().is_some_and(Status::is_over)
            })
        } else {
            true
        }
    }

    fn rollbacks(
        &self,
        namespace: &str,
        app: &str,
        upgrades: &[Arc<UpgradeRequest>],
    ) -> Vec<Arc<RollbackRequest>> {
        let planned = self.own.rollbacks.by_index(&of_app(namespace, app));
        let of_upgrades = upgrades.iter().flat_map(|one| {
            let key = of_upgrade(namespace, &one.name_any());
            self.own.rollbacks.by_index(&key)
        });
        let mut seen = BTreeSet::new();
        planned
            .into_iter()
            .chain(of_upgrades)
            .filter(|one| seen.insert(one.metadata.uid.clone()))
            .collect()
    }

    /// Returns the snapshots of an upgrade, or `None` if there are none.
    fn set(
        &self,
        uid: &str,
        upgrade: Option<&Arc<UpgradeRequest>>,
        rollbacks: &[Arc<RollbackRequest>],
    ) -> Option<SnapshotSet> {
        let found = self.own.snapshots.objects().by_index(&of_request(uid));
        let created = found.iter().map(|one| one.created).max()?;
        let snapshots: Vec<SnapshotView> = self.own.with_contents(&found);
        let is_active =
            upgrade.is_some_and(|one| !one.status.as_ref().is_some_and(Status::is_over));
        let is_restored = rollbacks.iter().any(|one| {
            let status = one.status.as_ref();
            let plan = status.and_then(|status| status.plan.as_ref());
            let is_planned = plan.is_some_and(|plan| plan.upgrade_uid == uid);
            let name = &one.spec.upgrade_request_ref.name;
            let is_named = upgrade.is_some_and(|upgrade| upgrade.name_any() == *name);
            (is_planned || is_named) && !status.is_some_and(Status::is_over)
        });
        let is_preserved = upgrade.is_some_and(|one| {
            let annotations = one.annotations();
            annotations.contains_key(names::PRESERVE)
        });
        Some(SnapshotSet {
            request: uid.to_owned(),
            created,
            is_in_use: is_active || is_restored,
            is_preserved: is_preserved || found.iter().any(|one| one.is_preserved),
            snapshots,
        })
    }

    fn volume(&self, name: &str) -> Option<ReplacedVolume> {
        let found = self.own.volumes.get(&cluster_key(name))?;
        let volume = LiveVolume::read(&found);
        let claim = volume.claim.as_ref().and_then(|(namespace, name)| {
            let name = NamespacedName::new(namespace, name);
            let entry = self.observer.caches.claim_object(&name)?;
            entry.claim.metadata.uid.clone()
        });
        Some(ReplacedVolume {
            is_bound: claim.is_some() && claim == volume.claim_uid,
            name: volume.name,
            uid: volume.uid,
            version: volume.version,
            policy: volume.policy,
            original: volume.original,
        })
    }
}

impl UpgradeCaches {
    /// Reconciles a ManagedApp when one of its requests changes.
    pub(super) fn connect_apps(&self, shared: &Shared) {
        {
            let shared = shared.clone();
            self.requests.on_change(move |change| {
                if let Some(request) = change.new.or(change.old) {
                    let namespace = request.namespace().unwrap_or_default();
                    let app = &request.spec.managed_app_ref.name;
                    shared.enqueue_all([NamespacedName::new(&namespace, app)]);
                }
            });
        }
        {
            let (own, shared) = (self.clone(), shared.clone());
            self.rollbacks.on_change(move |change| {
                let app = change.new.or(change.old).and_then(|one| own.app_of(one));
                if let Some(app) = app {
                    let namespace = change.key.namespace.as_deref().unwrap_or_default();
                    shared.enqueue_all([NamespacedName::new(namespace, &app)]);
                }
            });
        }
        let (own, shared) = (self.clone(), shared.clone());
        self.snapshots.objects().on_change(move |change| {
            let Some(snapshot) = change.new.or(change.old) else {
                return;
            };
            for key in own.requests.keys() {
                let request = own.requests.get(&key);
                let request = request
                    .filter(|one| one.metadata.uid.as_deref() == Some(snapshot.owner_uid.as_str()));
                if let Some(request) = request {
                    let Key { namespace, .. } = &key;
                    let namespace = namespace.as_deref().unwrap_or_default();
                    let app = &request.spec.managed_app_ref.name;
                    shared.enqueue_all([NamespacedName::new(namespace, app)]);
                }
            }
        });
    }
}
