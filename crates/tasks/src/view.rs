//! Reduced views of Jobs, Pods and ConfigMaps, with only the fields that decisions read.
//!
//! Thousands of views are cached, so they hold no other fields.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
};

use api::{decide::ResourceType, names};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
pub use pods::{ContainerState, Exit, JobEnd, PodPhase, Reported};
use pods::{ContainerView, controller_uid};
use serde::Serialize;

use crate::{
    build::{self, contract},
    run::{self, attempt_spec::AttemptSpec, docs},
};

/// Reduced view of a run's Job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Fields of any Job.
    pub job: pods::JobView,
    /// UID of the run that controls the Job.
    pub owner_uid: Option<String>,
    /// Context version that the Job belongs to, from its label.
    pub version: Option<i64>,
    /// Whether we suspended the Job.
    pub suspended_by_us: bool,
    /// UIDs of the Pods that the Job had when we last suspended it.
    pub stopped_pods: Vec<String>,
    /// Settings by which the attempt is evaluated.
    pub terms: Option<AttemptSpec>,
    /// Hash of the content that the Job's Pods run.
    pub content: Option<u128>,
    /// Whether this process created the Job, or compared it with the Job that it would create.
    pub proven: bool,
}

impl Deref for JobView {
    type Target = pods::JobView;

    fn deref(&self) -> &pods::JobView {
        &self.job
    }
}

impl DerefMut for JobView {
    fn deref_mut(&mut self) -> &mut pods::JobView {
        &mut self.job
    }
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let template = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.metadata.as_ref());
        Self {
            job: pods::JobView::from(job),
            owner_uid: run_uid(&job.metadata),
            version: label(&job.metadata, names::CONTEXT_VERSION)
                .and_then(number)
                .or_else(|| only_version(&job.metadata)),
            suspended_by_us: annotations(&job.metadata).contains_key(names::SUSPENDED),
            stopped_pods: annotations(&job.metadata)
                .get(names::STOPPED_PODS)
                .map(|uids| uids.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            terms: template
                .and_then(|metadata| metadata.annotations.as_ref())
                .and_then(|annotations| annotations.get(names::ATTEMPT_SPEC))
                .and_then(|text| AttemptSpec::read(text)),
            content: content("Job", job),
            proven: false,
        }
    }
}

/// Returns version 1 for the Job of a DocsRun, which has no versions.
fn only_version(metadata: &ObjectMeta) -> Option<i64> {
    (label(metadata, names::KIND) == Some(docs::RESOURCE.kind)).then_some(1)
}

/// Reduced view of a run's Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    /// Fields of any Pod.
    pub pod: pods::PodView,
    /// UID of the Job that the Pod belongs to.
    pub job_uid: Option<String>,
    /// Container that is at work, or that ended the Pod.
    pub step: Step,
    /// State of that container. The time before the agent's container counts as waiting for the agent.
    pub container: ContainerState,
    /// Exit of the agent's container, if another container came after it.
    pub agent: Option<Exit>,
    /// First container before that one with exit code 0 and a contradiction to it, see [`Exit::contradiction`].
    pub doubt: Option<(Step, Exit)>,
    /// Reason and message why the container after the agent's does not start, if something prevents it.
    pub stuck: Option<Reported>,
    /// ID of the image that really runs.
    pub image_id: Option<String>,
    /// Hash of the content that the Pod runs.
    pub content: Option<u128>,
    /// Whether the Pod runs other content than its Job specifies, and nothing else shows that the Job controller
    /// created it.
    pub foreign: bool,
}

impl Deref for PodView {
    type Target = pods::PodView;

    fn deref(&self) -> &pods::PodView {
        &self.pod
    }
}

impl DerefMut for PodView {
    fn deref_mut(&mut self) -> &mut pods::PodView {
        &mut self.pod
    }
}

/// Containers that count, in the order in which they run. A TaskRun has only the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Clones the repository.
    Clone,
    /// Runs the agent.
    Agent,
    /// Commits and pushes.
    Publish,
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        // Other components may inject containers into a Pod. So the kind of the run decides, not the containers' names.
        let is_docs = label(&pod.metadata, names::KIND) == Some(docs::RESOURCE.kind);
        let agent = if is_docs {
            ContainerView::find_init(pod, contract::CONTAINER)
        } else {
            ContainerView::find(pod, contract::CONTAINER)
        };
        let ContainerView {
            state, image_id, ..
        } = agent.unwrap_or_default();
        let view = Self {
            pod: pods::PodView::from(pod),
            job_uid: controller_uid(&pod.metadata, &ResourceType::JOB.api_version(), "Job"),
            step: Step::Agent,
            container: state,
            agent: None,
            doubt: None,
            stuck: None,
            image_id: Some(image_id).filter(|id| !id.is_empty()),
            content: content("Pod", pod),
            foreign: false,
        };
        if is_docs { in_steps(pod, view) } else { view }
    }
}

/// Returns the view of a DocsRun's Pod, of which `view` has the agent's container.
fn in_steps(pod: &Pod, view: PodView) -> PodView {
    let clone = ContainerView::find_init(pod, build::CLONE).unwrap_or_default();
    let publish = ContainerView::find(pod, build::PUBLISH).unwrap_or_default();
    let waits = publish.state.waiting().cloned();
    let doubt = doubt(&[(Step::Clone, &clone.state), (Step::Agent, &view.container)]);
    let (step, container, agent) = current_container(clone.state, view.container, publish.state);
    // Every container waits with these reasons until the one before it ended, and a moment longer.
    let is_calm = |reason: &str| matches!(reason, "" | INITIALIZING | "ContainerCreating");
    PodView {
        step,
        container,
        agent,
        doubt,
        stuck: waits.filter(|said| step == Step::Publish && !is_calm(&said.reason)),
        ..view
    }
}

/// Returns whether a Pod runs other content than its Job specifies.
#[must_use]
pub fn is_foreign(pod: &PodView, jobs: &[JobView]) -> bool {
    let job = jobs
        .iter()
        .find(|job| pod.job_uid.as_ref() == Some(&job.uid));
    job.is_some_and(|job| job.content != pod.content)
}

/// Returns the hash of the content that an object runs. An object that cannot be written as JSON has no known content.
fn content(kind: &str, object: &impl Serialize) -> Option<u128> {
    match serde_json::to_value(object) {
        Ok(object) => api::content::hash(kind, &object),
        Err(_never) => None,
    }
}

/// Reason of a container that waits because the repository is being cloned, or was just cloned.
pub const CLONING: &str = "Cloning";
/// Reason that the kubelet reports for a container while nothing else is known about it.
const INITIALIZING: &str = "PodInitializing";

/// Returns the first of these containers with exit code 0 and a contradiction to it. The kubelet starts the next
/// container nevertheless.
fn doubt(before: &[(Step, &ContainerState)]) -> Option<(Step, Exit)> {
    before.iter().find_map(|(step, container)| match container {
        ContainerState::Ended(exit) if exit.code == 0 && exit.contradiction().is_some() => {
            Some((*step, exit.clone()))
        }
        ContainerState::Ended(_)
        | ContainerState::Unknown
        | ContainerState::Waiting(_)
        | ContainerState::Running { .. } => None,
    })
}

/// Returns the container that counts now, of three containers that run one after the other.
fn current_container(
    clone: ContainerState,
    agent: ContainerState,
    publish: ContainerState,
) -> (Step, ContainerState, Option<Exit>) {
    match clone {
        ContainerState::Ended(exit) if exit.code == 0 => {}
        ContainerState::Running { .. } => return (Step::Clone, cloning(), None),
        ContainerState::Ended(_) | ContainerState::Unknown | ContainerState::Waiting(_) => {
            return (Step::Clone, clone, None);
        }
    }
    let agent = match agent {
        ContainerState::Ended(exit) if exit.code == 0 => exit,
        // The agent starts at once, or the kubelet soon reports another reason. Both waits get the same reason.
        ContainerState::Waiting(said) if said.reason == INITIALIZING => {
            return (Step::Agent, cloning(), None);
        }
        ContainerState::Ended(_)
        | ContainerState::Unknown
        | ContainerState::Waiting(_)
        | ContainerState::Running { .. } => return (Step::Agent, agent, None),
    };
    let since = agent.started;
    let publish = match publish {
        // The Pod's time counts as one period, which began with the agent.
        ContainerState::Ended(exit) => ContainerState::Ended(Exit {
            started: since,
            ..exit
        }),
        ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. } => {
            ContainerState::Running { since }
        }
    };
    (Step::Publish, publish, Some(agent))
}

fn cloning() -> ContainerState {
    ContainerState::Waiting(Reported {
        reason: CLONING.to_owned(),
        message: String::new(),
    })
}

/// Reduced view of a ConfigMap, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapView {
    /// Name of the ConfigMap.
    pub name: String,
    /// UID of the ConfigMap.
    pub uid: String,
    /// UID of the run that controls the ConfigMap.
    pub owner_uid: Option<String>,
    /// Whether the ConfigMap is being deleted.
    pub deleting: bool,
    /// Whether this process created the ConfigMap, or compared it with the one that it would create.
    pub proven: bool,
}

impl From<&ObjectMeta> for ConfigMapView {
    fn from(metadata: &ObjectMeta) -> Self {
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            owner_uid: run_uid(metadata),
            deleting: metadata.deletion_timestamp.is_some(),
            proven: false,
        }
    }
}

/// Returns the UID of the run that controls an object, if the object's label has the same kind.
fn run_uid(metadata: &ObjectMeta) -> Option<String> {
    let kinds = [run::RESOURCE, docs::RESOURCE];
    let named = label(metadata, names::KIND)?;
    let resource = kinds.into_iter().find(|one| one.kind == named)?;
    controller_uid(metadata, &resource.api_version(), resource.kind)
}

fn annotations(metadata: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    metadata.annotations.as_ref().unwrap_or(&NONE)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn number(text: &str) -> Option<i64> {
    let Ok(number) = text.parse() else {
        return None;
    };
    Some(number)
}
