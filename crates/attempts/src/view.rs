//! Reduced views of the Jobs, Pods and ConfigMaps of runs, with only the fields that decisions read.
//!
//! Thousands of views are cached, so they hold no other fields.

use std::collections::BTreeMap;

use api::{decide::ResourceType, names};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
pub use pods::{ContainerState, Exit, JobEnd, PodPhase, Reported};
use pods::{ContainerView, controller_uid};
use serde::Serialize;

use crate::{AttemptSpec, Containers, stop::AT_ONCE};

/// Reduced view of a run's Job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Fields of any Job.
    pub job: pods::JobView,
    /// UID of the run that controls the Job.
    pub owner_uid: Option<String>,
    /// Version that the Job belongs to, from its label.
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

api::embed!(JobView, job: pods::JobView);

impl JobView {
    /// Reads a Job. Only runs of these kinds can own it.
    ///
    /// # Caveats
    /// A kind whose Jobs have no label of a version sets `version` itself. A Job without a version is not adopted after
    /// the record of its attempt was lost.
    pub fn new(job: &Job, kinds: &[ResourceType]) -> Self {
        let template = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.metadata.as_ref());
        Self {
            job: pods::JobView::from(job),
            owner_uid: owner_uid(&job.metadata, kinds),
            version: label(&job.metadata, names::CONTEXT_VERSION).and_then(number),
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

impl JobView {
    /// Returns whether we set the Job's own limit so that it ends at once. Such an end is no result of a Pod.
    pub fn was_stopped(&self) -> bool {
        self.limit_seconds == Some(AT_ONCE)
    }
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
    /// State of that container. The time before the main container counts as waiting for it.
    pub container: ContainerState,
    /// Exit of the main container, if another container came after it.
    pub main_exit: Option<Exit>,
    /// First container before that one with exit code 0 and a contradiction to it, see [`Exit::contradiction`].
    pub doubt: Option<(Step, Exit)>,
    /// Reason and message why the container after the main one does not start, if something prevents it.
    pub stuck: Option<Reported>,
    /// State of a container that runs beside the main one, of kinds that have one. The kind sets it.
    pub beside: Option<ContainerState>,
    /// ID of the main container's image that really runs.
    pub image_id: Option<String>,
    /// Hash of the content that the Pod runs.
    pub content: Option<u128>,
    /// Whether the Pod runs other content than its Job specifies, and nothing else shows that the Job controller
    /// created it.
    pub foreign: bool,
}

api::embed!(PodView, pod: pods::PodView);

/// Containers of a Pod that count, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Prepares the work.
    Before,
    /// Does the work. Every Pod has this container.
    Main,
    /// Completes the work.
    After,
}

impl PodView {
    /// Reads a Pod with these containers. Other components may inject more.
    pub fn new(pod: &Pod, containers: &Containers) -> Self {
        let init = |name: &str| ContainerView::find_init(pod, name).unwrap_or_default();
        let ordinary = |name: &str| ContainerView::find(pod, name).unwrap_or_default();
        let before = containers.before.as_ref().map(|one| init(one.name).state);
        let after = containers
            .after
            .as_ref()
            .map(|one| ordinary(one.name).state);
        let main = if after.is_some() {
            init(containers.main)
        } else {
            ordinary(containers.main)
        };
        let of_main = || contradicted(Step::Main, &main.state).filter(|_| after.is_some());
        let doubt = before
            .as_ref()
            .and_then(|state| contradicted(Step::Before, state))
            .or_else(of_main);
        let waits = after.as_ref().and_then(ContainerState::waiting).cloned();
        let (step, container, main_exit) = current_container(before, main.state, after);
        // Every container waits with these reasons until the one before it ended, and a moment longer.
        let is_calm = |reason: &str| matches!(reason, "" | INITIALIZING | "ContainerCreating");
        Self {
            pod: pods::PodView::from(pod),
            job_uid: controller_uid(&pod.metadata, &ResourceType::JOB.api_version(), "Job"),
            step,
            container,
            main_exit,
            doubt,
            stuck: waits.filter(|reported| step == Step::After && !is_calm(&reported.reason)),
            beside: None,
            image_id: Some(main.image_id).filter(|id| !id.is_empty()),
            content: content("Pod", pod),
            foreign: false,
        }
    }
}

/// Returns whether a Pod runs other content than its Job specifies.
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

/// Reason of a main container that waits because the container before it runs, or has just ended.
pub const PREPARING: &str = "Preparing";
/// Reason that the kubelet reports for a container while nothing else is known about it.
const INITIALIZING: &str = "PodInitializing";

/// Returns the exit of a container with exit code 0 and a contradiction to it. The kubelet starts the next container
/// nevertheless.
fn contradicted(step: Step, container: &ContainerState) -> Option<(Step, Exit)> {
    let exit = container.exit()?;
    (exit.code == 0 && exit.contradiction().is_some()).then(|| (step, exit.clone()))
}

/// Returns the container that counts now, of containers that run one after the other.
fn current_container(
    before: Option<ContainerState>,
    main: ContainerState,
    after: Option<ContainerState>,
) -> (Step, ContainerState, Option<Exit>) {
    let is_prepared = before.is_some();
    match before {
        Some(ContainerState::Ended(exit)) if exit.code == 0 => {}
        Some(ContainerState::Running { .. }) => return (Step::Before, preparing(), None),
        Some(before) => return (Step::Before, before, None),
        None => {}
    }
    let (main, after) = match (main, after) {
        (ContainerState::Ended(exit), Some(after)) if exit.code == 0 => (exit, after),
        // The main container starts at once, or the kubelet soon reports another reason. Both waits get the same
        // reason.
        (ContainerState::Waiting(reported), _)
            if is_prepared && reported.reason == INITIALIZING =>
        {
            return (Step::Main, preparing(), None);
        }
        (main, _) => return (Step::Main, main, None),
    };
    let since = main.started;
    let after = match after {
        // The Pod's time counts as one period, which began with the main container.
        ContainerState::Ended(exit) => ContainerState::Ended(Exit {
            started: since,
            ..exit
        }),
        ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. } => {
            ContainerState::Running { since }
        }
    };
    (Step::After, after, Some(main))
}

fn preparing() -> ContainerState {
    ContainerState::Waiting(Reported {
        reason: PREPARING.to_owned(),
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

impl ConfigMapView {
    /// Reads the metadata of a ConfigMap. Only runs of these kinds can own it.
    pub fn new(metadata: &ObjectMeta, kinds: &[ResourceType]) -> Self {
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            owner_uid: owner_uid(metadata, kinds),
            deleting: metadata.deletion_timestamp.is_some(),
            proven: false,
        }
    }
}

/// Returns the UID of the run that controls an object, if the object's label has the same kind.
fn owner_uid(metadata: &ObjectMeta, kinds: &[ResourceType]) -> Option<String> {
    let named = label(metadata, names::KIND)?;
    let resource = kinds.iter().find(|one| one.kind == named)?;
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
