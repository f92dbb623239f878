//! The observed state that decisions about a run depend on.

use std::{sync::Arc, time::Duration};

use api::tasks::{Agent, File, Resources};
use attempts::{Cleanup, World};

use super::holder::Holder;

/// Observed state of a run.
#[derive(Debug, Clone)]
pub struct RunWorld {
    /// Agent that the run references.
    pub agent: Option<Arc<Agent>>,
    /// Children of the run.
    pub children: World,
    /// Files of the run, if they are not in the run itself.
    pub files: Option<Arc<[File]>>,
    /// Another run that holds the task of this run.
    pub holder: Option<Holder>,
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
