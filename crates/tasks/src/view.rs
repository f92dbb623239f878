//! Views of the children of TaskRuns and DocsRuns.

use api::{decide::ResourceType, names};
pub use attempts::view::{
    ConfigMapView, ContainerState, Exit, JobEnd, JobView, PREPARING, PodPhase, PodView, Reported,
    Step, is_foreign,
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::run::{
    self, docs,
    run_spec::{DOCS_CONTAINERS, ONLY_VERSION, TASK_CONTAINERS},
};

/// Kinds of runs that these views are for.
pub const KINDS: &[ResourceType] = &[run::RESOURCE, docs::RESOURCE];

/// Reads a Job. A DocsRun has no versions.
pub fn job_view(job: &Job) -> JobView {
    let mut view = JobView::new(job, KINDS);
    if is_of_docs(&job.metadata) {
        view.version.get_or_insert(ONLY_VERSION);
    }
    view
}

/// Reads a Pod.
pub fn pod_view(pod: &Pod) -> PodView {
    // Other components may inject containers into a Pod. So the kind of the run decides, not the containers' names.
    let containers = if is_of_docs(&pod.metadata) {
        &DOCS_CONTAINERS
    } else {
        &TASK_CONTAINERS
    };
    PodView::new(pod, containers)
}

fn is_of_docs(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let kind = labels.and_then(|labels| labels.get(names::KIND));
    kind.is_some_and(|kind| kind == docs::RESOURCE.kind)
}
