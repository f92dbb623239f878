//! Observes the claims, volumes, attachments and snapshots of a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    Reason,
    apps::{NamespacedName, UpgradeRequest},
    decide::{ErrorClass, ReconcileError},
};
use engine::{Availability, Key};
use kube::ResourceExt;

use super::{
    upgrade_caches::{OwnedSnapshot, UpgradeCaches, of_request},
    upgrades::UpgradeKind,
};
use crate::upgrade::{
    scale_target::MountingPod,
    storage::{
        AttachedVolume, ClassView, SnapshotClass, SnapshotView, Snapshots, VolumeState,
        snapshot_class,
    },
};

impl UpgradeKind {
    /// Returns claims that exist, with their volumes and their snapshot classes.
    /// With `class`, only the VolumeSnapshotClass of this name counts.
    pub(super) fn volumes(
        &self,
        claims: &BTreeSet<NamespacedName>,
        class: Option<&str>,
    ) -> Vec<VolumeState> {
        let is_counted = |one: &ClassView| class.is_none_or(|class| one.name == class);
        let classes: Vec<ClassView> =
            self.own
                .classes
                .objects()
                .fold_active(Vec::new(), |mut all, class| {
                    all.extend(is_counted(class).then(|| class.clone()));
                    all
                });
        claims
            .iter()
            .filter_map(|name| {
                let entry = self.observer.caches.claim_object(name)?;
                let claim = &*entry.claim;
                let volume = claim
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.volume_name.as_ref());
                let volume = volume.and_then(|name| self.own.volumes.get(&cluster_key(name)));
                let driver = volume.as_ref().and_then(|volume| {
                    let csi = volume.spec.as_ref()?.csi.as_ref()?;
                    Some(csi.driver.clone())
                });
                let class = driver.as_ref().map_or(SnapshotClass::Missing, |driver| {
                    snapshot_class(&classes, driver)
                });
                let known = driver.and_then(|driver| self.own.drivers.get(&cluster_key(&driver)));
                // Kubernetes attaches the volumes of a driver without a CSIDriver.
                let is_attachable = known.is_none_or(|is_attachable| *is_attachable);
                Some(VolumeState::read(
                    claim,
                    volume.as_deref(),
                    is_attachable,
                    class,
                ))
            })
            .collect()
    }

    pub(super) fn mounting(&self, claims: &BTreeSet<NamespacedName>) -> Vec<MountingPod> {
        let mut all: BTreeMap<String, MountingPod> = BTreeMap::new();
        for claim in claims {
            let pods = &self.observer.caches;
            for pod in pods.pods_with_claim(&claim.namespace, &claim.name) {
                if let Some(mounting) = &pod.mounting {
                    all.insert(pod.uid.clone(), mounting.as_ref().clone());
                }
            }
        }
        all.into_values().collect()
    }

    pub(super) fn attachments(&self, volumes: &[VolumeState]) -> Vec<AttachedVolume> {
        let names = volumes.iter().filter_map(|volume| volume.volume.as_ref());
        let found = names.flat_map(|name| self.own.attachments.by_index(name));
        found.filter_map(|one| one.0.clone()).collect()
    }

    /// Returns the snapshots of a request with their contents.
    ///
    /// # Errors
    /// If a watch does not work: a missing snapshot would be taken again.
    pub(super) fn snapshots(&self, request: &UpgradeRequest) -> Result<Snapshots, ReconcileError> {
        let namespace = request.namespace();
        self.snapshots_of(namespace.as_deref(), &request.uid().unwrap_or_default())
    }

    /// Returns the snapshots of the request with this UID.
    ///
    /// # Errors
    /// If a watch does not work.
    pub(super) fn snapshots_of(
        &self,
        namespace: Option<&str>,
        uid: &str,
    ) -> Result<Snapshots, ReconcileError> {
        let unreadable =
            |why: String| ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, why);
        for availability in [
            self.own.snapshots.availability(namespace),
            self.own.contents.availability(None),
        ] {
            match availability {
                Availability::Installed => {}
                Availability::NotInstalled => return Ok(Snapshots::NotInstalled),
                Availability::Unreadable { why } => return Err(unreadable(why)),
            }
        }
        let own = self.own.snapshots.objects().by_index(&of_request(uid));
        Ok(Snapshots::Found(self.own.with_contents(&own)))
    }
}

impl UpgradeCaches {
    /// Returns snapshots with their contents.
    pub(super) fn with_contents(&self, snapshots: &[Arc<OwnedSnapshot>]) -> Vec<SnapshotView> {
        let views = snapshots.iter().map(|one| {
            let name = one.view.content_name.as_ref();
            let content = name.and_then(|name| self.contents.objects().get(&cluster_key(name)));
            let content = content.map(|content| content.as_ref().clone());
            one.view.clone().with_content(content)
        });
        views.collect()
    }
}

/// Returns the key of an object without a namespace.
pub(super) fn cluster_key(name: &str) -> Key {
    Key {
        namespace: None,
        name: name.to_owned(),
    }
}
