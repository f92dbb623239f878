//! The observed state that a decision about a RollbackRequest depends on.

use std::sync::Arc;

use api::apps::UpgradeRequest;
use attempts::step::StepSettings;

use super::volume::VolumeObjects;
use crate::upgrade::{storage::SnapshotView, world::UpgradeWorld};

/// Observed state of a RollbackRequest.
#[derive(Debug, Clone)]
pub struct RollbackWorld {
    /// The UpgradeRequest, or `None` if it does not exist.
    pub upgrade: Option<Arc<UpgradeRequest>>,
    /// The snapshots of the UpgradeRequest.
    pub snapshots: Vec<SnapshotView>,
    /// The application, as an upgrade observes it. A rollback takes no snapshots, so there are none in it.
    pub operation: UpgradeWorld,
    /// The objects of each volume of the plan, in its order.
    pub volumes: Vec<VolumeObjects>,
    /// The configuration of the Pods that bind volumes.
    pub settings: StepSettings,
}
