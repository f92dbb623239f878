//! The observed state that decisions about a NotebookValidationJob depend on.

use api::{external::Reply, notebooks::NOTEBOOK_VALIDATION_JOB};
use attempts::{
    Cleanup, Container, Containers, World,
    step::StepSettings,
    view::{ConfigMapView, ContainerState, JobView, PodView, Step},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use pods::ContainerView;

use crate::{results, runner_log::LogContent, sources::Responses, work::ONLY_VERSION};

/// Name of the container that fetches the notebooks.
pub const FETCH: &str = "fetch";
/// Name of the container with the user's image.
pub const KERNEL: &str = "kernel";
/// Name of the container that drives the kernel and reports.
pub const RUNNER: &str = "runner";

/// Containers of a validation Pod. The runner runs beside the kernel, so it is not one of these: see [`pod_view`].
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
    /// Whether to accept a Pod that runs other content than its Job specifies.
    pub accept_changed_pods: bool,
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
            accept_changed_pods: false,
            cleanup: Cleanup::default(),
        }
    }
}

/// Observed state of a NotebookValidationJob.
#[derive(Debug, Clone, Default)]
pub struct NotebookWorld {
    /// Jobs and Pods of the job.
    pub children: World,
    /// Responses of the Git servers.
    pub responses: Responses,
    /// Part of the runner's log that the job needs, once it was read.
    pub log: Option<Reply<LogContent>>,
    /// ConfigMaps of the job with a full result. The cleanup of other children does not delete them.
    pub stored_results: Vec<ConfigMapView>,
    /// The operator's configuration.
    pub settings: NotebookSettings,
}

impl NotebookWorld {
    /// Separates the ConfigMaps with a full result from the other children of the job of this name and UID.
    #[must_use]
    pub fn with_children(mut self, mut children: World, job: &str, uid: &str) -> Self {
        let name = results::config_map_name(job);
        let is_result =
            |map: &ConfigMapView| map.name == name && map.owner_uid.as_deref() == Some(uid);
        let (stored, others) = children.config_maps.into_iter().partition(is_result);
        self.stored_results = stored;
        children.config_maps = others;
        self.children = children;
        self
    }
}

/// Reads a validation Pod, with the state of its runner.
///
/// # Guarantees
/// The kernel counts as running until the runner has ended, too. Otherwise a kernel that ends first would be a result
/// without a report. Both states come from one version of the Pod.
#[must_use]
pub fn pod_view(pod: &Pod) -> PodView {
    let mut view = PodView::new(pod, &CONTAINERS);
    let runner = ContainerView::find(pod, RUNNER).unwrap_or_default().state;
    if let ContainerState::Ended(exit) = &view.container
        && view.step == Step::Main
        && runner.exit().is_none()
        && !view.phase.is_over()
    {
        view.container = ContainerState::Running {
            since: exit.started,
        };
    }
    view.beside = Some(runner);
    view
}

/// Reads a Job of a validation. A validation has no versions.
#[must_use]
pub fn job_view(job: &Job) -> JobView {
    let mut view = JobView::new(job, &[NOTEBOOK_VALIDATION_JOB.resource]);
    view.version.get_or_insert(ONLY_VERSION);
    view
}
