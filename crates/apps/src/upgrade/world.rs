//! The observed state that a decision about an UpgradeRequest depends on.

use std::sync::Arc;

use api::{
    apps::{
        ManagedApp, NamespacedName, PlannedFluxObject, PlannedWorkload, ROLLBACK_REQUEST,
        RollbackRequest, UPGRADE_REQUEST,
    },
    claim::Holder,
};

use super::{
    commit_step::CommitStep,
    flux_target::FluxTarget,
    scale_target::{MountingPod, ScaleTarget},
    storage::{AttachedVolume, Snapshots, VolumeState},
};
use crate::{
    flux::SourceView,
    world::{AppWorld, Seen},
};

/// Observed state of an UpgradeRequest.
#[derive(Debug, Clone)]
pub struct UpgradeWorld {
    /// The ManagedApp, or `None` if it does not exist. Only the plan reads it.
    pub app: Option<AppState>,
    /// Other requests of the same ManagedApp, of both kinds, and the holders of its locks.
    pub others: Vec<OtherRequest>,
    /// The Flux objects of the plan. Without a plan, those that the ManagedApp references.
    pub flux: Vec<FluxTarget>,
    /// The workloads of the plan and of the locks. Without a plan, those of the application.
    pub workloads: Vec<ScaleTarget>,
    /// Pods that mount a claim of the plan.
    pub pods: Vec<MountingPod>,
    /// The claims of the plan, with their volumes. Without a plan, those of the application.
    pub volumes: Vec<VolumeState>,
    /// Attachments of the volumes to nodes.
    pub attachments: Vec<AttachedVolume>,
    /// Snapshots of this request.
    pub snapshots: Snapshots,
    /// The observed state of the application of the plan, from its Flux objects. `None` without a plan.
    pub live: Option<AppWorld>,
    /// The GitRepository of the plan. Without a plan, that of the Kustomization of the application.
    pub source: Seen<SourceView>,
    /// The Jobs that change the version in Git.
    pub commit: CommitStep,
    /// The RollbackRequests of this request, once it has ended.
    pub rollbacks: Vec<Arc<RollbackRequest>>,
}

/// A ManagedApp with the observed state of its application.
#[derive(Debug, Clone)]
pub struct AppState {
    /// The ManagedApp. Its status decides nothing.
    pub app: Arc<ManagedApp>,
    /// The observed state of the application.
    pub world: AppWorld,
    /// The Kustomization that applies the Kustomization of the application, if the ManagedApp references one.
    pub parent: Option<NamespacedName>,
    /// Whether the chart of the deployed release has hooks before an upgrade, or `None` if they are not known.
    pub has_upgrade_hooks: Option<bool>,
}

/// Another request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRequest {
    /// Kind, namespace, name and UID.
    pub holder: Holder,
    /// Name of the ManagedApp.
    pub app: String,
    /// Creation time, in seconds since the epoch, then the UID: the order of the requests.
    pub age: (i64, String),
    /// Whether the request has not ended.
    pub is_active: bool,
}

impl UpgradeWorld {
    /// Returns the live object of the plan, if it exists with the same UID.
    #[must_use]
    pub fn flux(&self, planned: &PlannedFluxObject) -> Option<&FluxTarget> {
        self.flux
            .iter()
            .find(|live| live.kind == planned.kind && live.uid == planned.uid)
    }

    /// Returns the live workload of the plan, if it exists with the same UID.
    #[must_use]
    pub fn workload(&self, planned: &PlannedWorkload) -> Option<&ScaleTarget> {
        self.workloads
            .iter()
            .find(|live| live.kind == planned.kind && live.uid == planned.uid)
    }

    /// Returns whether a holder of a lock exists and has not ended. A holder of a kind that is not observed counts as
    /// active: it may still release its lock.
    #[must_use]
    pub fn is_active(&self, holder: &Holder) -> bool {
        if ![UPGRADE_REQUEST.name(), ROLLBACK_REQUEST.name()].contains(&holder.kind.as_str()) {
            return true;
        }
        let mut others = self.others.iter();
        others.any(|other| other.holder.uid == holder.uid && other.is_active)
    }
}
