//! The observed state that decisions about a NotebookValidationJob depend on.

use std::collections::BTreeMap;

use attempts::{
    Cleanup, Container, Containers, World,
    step::StepSettings,
    view::{ContainerState, PodView},
};
use k8s_openapi::api::core::v1::Pod;
use pods::ContainerView;

use crate::sources::Responses;

/// Name of the container that fetches the notebooks.
pub const FETCH: &str = "fetch";
/// Name of the container with the user's image.
pub const KERNEL: &str = "kernel";
/// Name of the container that drives the kernel and reports.
pub const RUNNER: &str = "runner";

/// Containers of a validation Pod. The runner runs beside the kernel, so it is not one of these: see [`observe`].
pub static CONTAINERS: Containers = Containers {
    before: Some(Container {
        name: FETCH,
        reason: api::Reason::Fetching,
        activity: "fetches the notebooks",
    }),
    main: KERNEL,
    after: None,
};

/// The operator's configuration.
#[derive(Debug, Clone)]
pub struct NotebookSettings {
    /// Configuration of the container `fetch`.
    pub step: StepSettings,
    /// Image of the runner.
    pub runner_image: String,
    /// Maximum size of the compressed result, in bytes.
    pub max_result_bytes: u32,
    /// Cleanup of Jobs after the end.
    pub cleanup: Cleanup,
}

impl Default for NotebookSettings {
    fn default() -> Self {
        Self {
            step: StepSettings::default(),
            runner_image: concat!(
                "localhost/orchestrator-notebook-runner:",
                env!("CARGO_PKG_VERSION")
            )
            .to_owned(),
            max_result_bytes: 64 * 1024,
            cleanup: Cleanup::default(),
        }
    }
}

/// Observed state of a NotebookValidationJob.
#[derive(Debug, Clone, Default)]
pub struct NotebookWorld {
    /// Jobs and Pods of the job.
    pub children: World,
    /// States of the containers `runner`, by the UID of their Pod.
    pub runners: BTreeMap<String, ContainerState>,
    /// Responses of the Git servers.
    pub responses: Responses,
    /// The operator's configuration.
    pub settings: NotebookSettings,
}

/// Reads a validation Pod: its view, and the state of its runner.
///
/// # Guarantees
/// The kernel counts as running until the runner has ended, too. Otherwise a kernel that ends first would be a result
/// without a report.
#[must_use]
pub fn observe(pod: &Pod) -> (PodView, ContainerState) {
    let mut view = PodView::new(pod, &CONTAINERS);
    let runner = ContainerView::find(pod, RUNNER).unwrap_or_default().state;
    if let ContainerState::Ended(exit) = &view.container
        && view.step == attempts::view::Step::Main
        && runner.exit().is_none()
        && !view.phase.is_over()
    {
        view.container = ContainerState::Running {
            since: exit.started,
        };
    }
    (view, runner)
}
