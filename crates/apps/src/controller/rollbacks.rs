//! The controller of RollbackRequests: observes the upgrade with its snapshots, the application as an upgrade does, and the
//! claims and volumes that are restored.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    Status, Timestamp,
    apps::{
        ManagedApp, NamespacedName, PlannedName, PlannedRestore, ROLLBACK_REQUEST, RestoredVolume,
        RollbackRequest, RollbackRequestStatus, UpgradeRequest,
    },
    decide::{Decision, Input, ReconcileError, ResourceType},
};
use attempts::step::StepSettings;
use engine::{
    Cache, Context, Controller, Key, Kind,
    external::{self, LogRequest, PodLogs, RequestWorker},
};
use kube::ResourceExt;

use super::{
    Shared,
    observer::Observer,
    rollback_triggers::connect,
    upgrade_caches::UpgradeCaches,
    upgrade_storage::cluster_key,
    upgrade_triggers::{CLAIM, VOLUME},
    upgrades::UpgradeKind,
};
use crate::{
    rollback::{
        self, FINALIZER, Owner, restore,
        shared::as_upgrade,
        volume::{LiveClaim, LiveVolume, VolumeObjects},
        world::RollbackWorld,
    },
    upgrade::storage::SnapshotView,
};

/// Implementation of [`Kind`] for RollbackRequests.
pub(super) struct RollbackKind {
    settings: StepSettings,
    /// Observes the application, as for an upgrade.
    observed: UpgradeKind,
}

impl RollbackKind {
    /// Creates the controller, and the worker that reads the logs of Jobs.
    pub(super) fn controller(
        settings: StepSettings,
        own: UpgradeCaches,
        apps: Cache<ManagedApp>,
        observer: Observer,
        shared: &Shared,
        context: &Context,
    ) -> (Controller<Self>, RequestWorker<LogRequest, PodLogs>) {
        let logs = PodLogs::new(context.client.clone());
        let (logs, worker) = external::new(ROLLBACK_REQUEST.name(), logs, &own.rollbacks, context);
        let observed = UpgradeKind::new(
            &ROLLBACK_REQUEST,
            settings.clone(),
            own.clone(),
            apps,
            observer.clone(),
            shared,
            (logs, context),
        );
        let subjects = observed.subjects.clone();
        let kind = Self { settings, observed };
        let controller = Controller::new(kind, own.rollbacks.clone(), context.clone())
            .depends_on(&observer.caches.kustomizations)
            .depends_on(&observer.caches.helm_releases)
            .depends_on(&own.sources)
            .depends_on(&own.snapshots)
            .depends_on(&own.contents);
        connect(&own, &observer, &subjects, &controller.handle());
        (controller, worker)
    }

    fn own(&self) -> &UpgradeCaches {
        &self.observed.own
    }

    /// Returns the snapshots of the upgrade. After the plan, its UID counts: the UpgradeRequest may be deleted.
    ///
    /// # Errors
    /// If a watch does not work: a snapshot would seem to be lost.
    fn snapshots(
        &self,
        request: &RollbackRequest,
        upgrade: Option<&UpgradeRequest>,
    ) -> Result<Vec<SnapshotView>, ReconcileError> {
        let plan = request
            .status
            .as_ref()
            .and_then(|status| status.plan.as_ref());
        let uid = match plan {
            Some(plan) => Some(plan.upgrade_uid.clone()),
            None => upgrade.and_then(ResourceExt::uid),
        };
        let Some(uid) = uid else {
            return Ok(Vec::new());
        };
        let namespace = request.namespace();
        let found = self.observed.snapshots_of(namespace.as_deref(), &uid)?;
        Ok(found.all().to_vec())
    }

    /// Returns the objects of a volume.
    fn volume(
        &self,
        owner: &Owner<'_>,
        planned: &PlannedRestore,
        restored: &[RestoredVolume],
        snapshots: &[SnapshotView],
    ) -> VolumeObjects {
        let own = self.own();
        let namespace = &planned.namespace;
        let volume = |name: &str| {
            let found = own.volumes.get(&cluster_key(name));
            found.map(|found| LiveVolume::read(&found))
        };
        let pods = own
            .pods
            .children(ROLLBACK_REQUEST.name(), namespace, owner.uid);
        let binder_name = restore::binder_name(owner, planned);
        let binder = pods
            .iter()
            .map(|pod| &pod.view.binder)
            .find(|pod| pod.name == binder_name);
        let mut restored = restored.iter();
        let restored = restored.find(|one| one.namespace == *namespace && one.pvc == planned.pvc);
        let mut snapshots = snapshots.iter();
        let snapshot =
            snapshots.find(|one| one.namespace == *namespace && one.name == planned.snapshot);
        VolumeObjects {
            claim: self.claim(namespace, &planned.pvc),
            temporary: self.claim(namespace, &restore::claim_name(owner, planned)),
            binder: binder.cloned(),
            old: planned.pv.as_deref().and_then(volume),
            new: restored.and_then(|one| volume(&one.pv)),
            snapshot: snapshot.cloned(),
            snapshot_source: self.source(planned),
        }
    }

    /// Returns a claim, whoever created it.
    fn claim(&self, namespace: &str, name: &str) -> Option<LiveClaim> {
        let name = NamespacedName::new(namespace, name);
        let entry = self.observed.observer.caches.claim_object(&name)?;
        Some(LiveClaim::read(&entry.claim))
    }

    /// Returns the description of a claim at the time of its snapshot.
    fn source(&self, planned: &PlannedRestore) -> Option<String> {
        let key = Key::new(&planned.namespace, &planned.snapshot);
        let found = self.own().snapshots.objects().get(&key)?;
        let is_same = found.view.uid == planned.snapshot_uid;
        found.source.clone().filter(|_| is_same)
    }
}

/// Returns the claims whose snapshots an upgrade has.
fn claims_of(upgrade: Option<&UpgradeRequest>) -> BTreeSet<NamespacedName> {
    let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
    let taken = status
        .into_iter()
        .flat_map(|status| status.snapshots.iter());
    taken
        .map(|one| NamespacedName::new(&one.namespace, &one.pvc))
        .collect()
}

/// Returns the objects of the restores of a request.
fn subjects_of(owner: &Owner<'_>, status: &RollbackRequestStatus) -> BTreeSet<PlannedName> {
    let plan = status.plan.iter();
    let restores = plan.flat_map(|plan| plan.restores.iter());
    let claims = restores.flat_map(|planned| {
        [planned.pvc.clone(), restore::claim_name(owner, planned)]
            .map(|name| PlannedName::new(CLAIM, &planned.namespace, &name))
    });
    let volumes = status.restored.iter();
    let volumes = volumes.map(|one| PlannedName::new(VOLUME, "", &one.pv));
    claims.chain(volumes).collect()
}

impl Kind for RollbackKind {
    type Object = RollbackRequest;
    type Status = RollbackRequestStatus;
    type World = RollbackWorld;
    const RESOURCE: ResourceType = ROLLBACK_REQUEST.resource;
    const FINALIZER: &'static str = FINALIZER;

    fn status(object: &RollbackRequest) -> Option<&RollbackRequestStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &RollbackRequest) -> &RollbackRequest {
        object
    }

    fn phase_progress(world: &RollbackWorld) -> Option<String> {
        rollback::progress(world)
    }

    async fn observe(
        &self,
        request: &Arc<RollbackRequest>,
        now: Timestamp,
    ) -> Result<RollbackWorld, ReconcileError> {
        let upgrade = self.own().upgrade_of(request);
        let object = as_upgrade(request, upgrade.as_deref());
        let status = request.status.clone().unwrap_or_default();
        // Afterwards, the plan names the claims.
        let claims = match &status.plan {
            Some(_) => BTreeSet::new(),
            None => claims_of(upgrade.as_deref()),
        };
        let (operation, mut subjects) = self.observed.operation(&object, claims, now).await?;
        let snapshots = self.snapshots(request, upgrade.as_deref())?;
        let (name, uid) = (request.name_any(), request.uid().unwrap_or_default());
        let owner = Owner {
            name: &name,
            uid: &uid,
        };
        let restores = status.plan.iter().flat_map(|plan| plan.restores.iter());
        let volumes = restores
            .map(|planned| self.volume(&owner, planned, &status.restored, &snapshots))
            .collect();
        subjects.extend(subjects_of(&owner, &status));
        let key = Key::of(&request.metadata);
        self.observed
            .subjects
            .remember(key, status.is_over(), subjects);
        Ok(RollbackWorld {
            upgrade,
            snapshots,
            operation,
            volumes,
            settings: self.settings.clone(),
        })
    }

    fn decide(
        input: &Input<'_, RollbackRequest, RollbackWorld>,
    ) -> Decision<RollbackRequestStatus> {
        rollback::decide(input)
    }
}
