//! Checks of the simulated cluster.

use api::{apps::PlannedWorkload, claim::Lock};

use super::{
    cluster::Cluster,
    fixtures::{UID, world},
};
use crate::upgrade::scale_target::ScaleTarget;

impl Cluster {
    /// No workload may be stopped before Flux has confirmed its suspension: it would scale the workload up again.
    pub(super) fn check_confirmed(&self) {
        for one in &self.real.flux {
            assert!(
                one.lock.is_held_by(UID) && one.has_confirmed(UID),
                "{one:?}"
            );
        }
    }

    /// No snapshot may be taken while something writes to a volume.
    pub(super) fn check_stopped(&self) {
        assert!(self.real.pods.is_empty() && self.real.attachments.is_empty());
        assert!(self.real.workloads.iter().all(ScaleTarget::is_stopped));
    }

    /// Checks that the cluster is as before the request: nothing locked, nothing at zero, and no snapshot.
    pub(super) fn assert_restored(&self, context: &str) {
        self.assert_released(context);
        assert!(
            self.real.snapshots.all().iter().all(|one| one.is_deleting),
            "{context}"
        );
        assert_eq!(self.delivery.commits.len(), 0, "{context}");
    }

    /// Checks that the request has pushed one commit and kept the snapshots: nothing locked, and nothing at zero.
    pub(super) fn assert_committed(&self, context: &str) {
        self.assert_released(context);
        let snapshots = self.real.snapshots.all();
        assert_eq!(snapshots.len(), 2, "{context}");
        assert!(snapshots.iter().all(|one| !one.is_deleting), "{context}");
        assert_eq!(self.delivery.commits.len(), 1, "{context}");
    }

    pub(super) fn assert_released(&self, context: &str) {
        let before = world();
        for (was, is) in before.flux.iter().zip(&self.real.flux) {
            assert_eq!(is.lock, Lock::Free, "{context}: {:?}", is.kind);
            assert_eq!(is.suspend, was.suspend, "{context}: {:?}", is.kind);
        }
        for (was, is) in before.workloads.iter().zip(&self.real.workloads) {
            // A new version may have another template.
            let scale = |one: &ScaleTarget| PlannedWorkload {
                template: None,
                ..one.planned(true)
            };
            assert_eq!(scale(is), scale(was), "{context}");
        }
        assert!(!self.has_finalizer, "{context}");
    }
}
