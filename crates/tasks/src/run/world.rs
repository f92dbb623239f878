//! The observed state that decisions about a run depend on.

use std::{sync::Arc, time::Duration};

use api::{
    tasks::{Agent, File, Resources},
    warning::Warning,
};
use attempts::Cleanup;

use crate::view::{ConfigMapView, JobView, PodView};

/// Observed state of a run.
#[derive(Debug, Clone)]
pub struct RunWorld {
    /// Agent that the run references.
    pub agent: Option<Arc<Agent>>,
    /// All Jobs in the run's namespace with its UID in their label, of any version and attempt.
    pub jobs: Vec<JobView>,
    /// All Pods in the run's namespace with its UID in their label.
    pub pods: Vec<PodView>,
    /// All ConfigMaps in the run's namespace with its UID in their label, of any version.
    pub config_maps: Vec<ConfigMapView>,
    /// Warnings about these Jobs and Pods.
    pub warnings: Vec<Warning>,
    /// Files of the run, if they are not in the run itself.
    pub files: Option<Arc<[File]>>,
    /// Defaults from the operator's configuration.
    pub defaults: Defaults,
}

/// Defaults from the operator's configuration, for fields that are not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    /// Resources of the container.
    pub resources: Resources,
    /// Cleanup of a run's children after its end.
    pub cleanup: Cleanup,
    /// Time after its end at which a run itself is deleted. `None` means never.
    pub delete_finished_runs_after: Option<Duration>,
    /// Whether to accept a Pod that runs other content than its Job specifies.
    pub accept_changed_pods: bool,
}
