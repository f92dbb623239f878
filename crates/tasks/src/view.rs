//! Reduced views of Jobs, Pods and ConfigMaps, with only the fields that decisions read.
//!
//! Thousands of views are cached, so they hold no other fields.

use std::{collections::BTreeMap, time::Duration};

use api::{
    Timestamp,
    decide::ResourceType,
    names,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{self as core, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use serde::Serialize;

use crate::{
    build::{self, contract},
    run::{self, attempt_spec::AttemptSpec, docs},
};

/// Reduced view of a Job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// UID of the run that controls the Job.
    pub owner_uid: Option<String>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Time since which the Job is being deleted.
    pub deleting: Option<Timestamp>,
    /// Context version that the Job belongs to, from its label.
    pub version: Option<i64>,
    /// Whether the Job is suspended, so that it runs no Pod.
    pub suspended: bool,
    /// Whether we suspended the Job.
    pub suspended_by_us: bool,
    /// UIDs of the Pods that the Job had when we last suspended it.
    pub stopped_pods: Vec<String>,
    /// Time at which the Job controller started the Job. The Job's own limit counts from there.
    pub started: Option<Timestamp>,
    /// The Job's own limit (`activeDeadlineSeconds`), in seconds.
    pub limit_seconds: Option<i64>,
    /// Time at which the Job controller resumed the Job after a suspension.
    pub resumed: Option<Timestamp>,
    /// Whether the Job controller has counted a Pod that ended.
    pub counted: bool,
    /// End of the Job, from its conditions.
    pub end: Option<JobEnd>,
    /// Settings by which the attempt is evaluated.
    pub terms: Option<AttemptSpec>,
    /// Hash of the content that the Job's Pods run.
    pub content: Option<u128>,
    /// Whether this process created the Job, or compared it with the Job that it would create.
    pub proven: bool,
}

/// End of a Job, from its conditions. Counters do not show the end: they change before the Job is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// `Complete=True`.
    Complete {
        /// Transition time of the condition.
        at: Option<Timestamp>,
    },
    /// `Failed=True`.
    Failed {
        /// Transition time of the condition.
        at: Option<Timestamp>,
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

impl JobEnd {
    /// Returns the transition time of the condition that reports the end.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Complete { at } | Self::Failed { at, .. } => *at,
        }
    }
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let template = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.metadata.as_ref());
        Self {
            name: job.metadata.name.clone().unwrap_or_default(),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            owner_uid: run_uid(&job.metadata),
            created: job.metadata.creation_timestamp.as_ref().map(instant),
            deleting: job.metadata.deletion_timestamp.as_ref().map(instant),
            version: label(&job.metadata, names::CONTEXT_VERSION)
                .and_then(number)
                .or_else(|| only_version(&job.metadata)),
            suspended: job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true),
            suspended_by_us: annotations(&job.metadata).contains_key(names::SUSPENDED),
            stopped_pods: annotations(&job.metadata)
                .get(names::STOPPED_PODS)
                .map(|uids| uids.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            started: job
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref())
                .map(instant),
            limit_seconds: job
                .spec
                .as_ref()
                .and_then(|spec| spec.active_deadline_seconds),
            resumed: resumed(job),
            counted: has_counted(job),
            end: job_end(job),
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

/// Returns when the Job was resumed. Returns `Timestamp::MAX` while the controller still reports the Job as suspended:
/// until then, all its Pods are from before the resumption.
fn resumed(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let suspended = conditions
        .iter()
        .find(|condition| condition.type_ == "Suspended")?;
    if suspended.status == "True" {
        return Some(Timestamp::MAX);
    }
    suspended.last_transition_time.as_ref().map(instant)
}

/// Returns whether a Pod of the Job ended. The Job controller records this before it removes its finalizer from the
/// Pod, so before the Pod can disappear. It does not count Pods that it stopped for a suspension, or Pods that
/// `podFailurePolicy` ignores.
fn has_counted(job: &Job) -> bool {
    let Some(status) = &job.status else {
        return false;
    };
    let is_listed = |uids: &Option<Vec<String>>| uids.as_ref().is_some_and(|uids| !uids.is_empty());
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.is_some_and(|pods| is_listed(&pods.succeeded) || is_listed(&pods.failed))
        || status.succeeded.is_some_and(|count| count > 0)
        || status.failed.is_some_and(|count| count > 0)
}

fn job_end(job: &Job) -> Option<JobEnd> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found = |kind: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == "True")
    };
    // A Job with both conditions is not a success.
    if let Some(failed) = found("Failed") {
        return Some(JobEnd::Failed {
            at: failed.last_transition_time.as_ref().map(instant),
            reason: short(failed.reason.as_ref()),
            message: short(failed.message.as_ref()),
        });
    }
    found("Complete").map(|complete| JobEnd::Complete {
        at: complete.last_transition_time.as_ref().map(instant),
    })
}

/// Reduced view of a Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    /// Name of the Pod.
    pub name: String,
    /// UID of the Pod.
    pub uid: String,
    /// UID of the Job that the Pod belongs to.
    pub job_uid: Option<String>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Node that the Pod is bound to.
    pub node: Option<String>,
    /// Time at which a deletion asked the Pod to stop.
    pub stop_asked: Option<Timestamp>,
    /// End of the grace period of that deletion.
    pub stop_by: Option<Timestamp>,
    /// Reason and message of the condition `DisruptionTarget`, if the cluster stops the Pod.
    pub disruption: Option<Said>,
    /// Message of the scheduler, if it finds no node for the Pod.
    pub unschedulable: Option<String>,
    /// Phase of the Pod.
    pub phase: PodPhase,
    /// Reason and message of the Pod's own failure, if the kubelet rejected the Pod.
    pub failure: Option<Said>,
    /// Container that is at work, or that ended the Pod.
    pub step: Step,
    /// State of that container. The time before the agent's container counts as waiting for the agent.
    pub container: Container,
    /// Exit of the agent's container, if another container came after it.
    pub agent: Option<Exit>,
    /// First container before that one with exit code 0 and a contradiction to it, see [`Exit::contradiction`].
    pub doubt: Option<(Step, Exit)>,
    /// Reason and message why the container after the agent's does not start, if something prevents it.
    pub stuck: Option<Said>,
    /// ID of the image that really runs.
    pub image_id: Option<String>,
    /// Hash of the content that the Pod runs.
    pub content: Option<u128>,
    /// Whether the Pod runs other content than its Job specifies, and nothing else shows that the Job controller
    /// created it.
    pub foreign: bool,
}

/// Reason and message that another component of the cluster reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// Phase of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers exited with code 0.
    Succeeded,
    /// A container ended with another exit code, or the Pod was rejected.
    Failed,
    /// The node does not respond, or no phase was reported yet.
    Unknown,
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

/// State of a container.
#[derive(Debug, Clone, PartialEq)]
pub enum Container {
    /// The kubelet has not reported a state yet.
    Unknown,
    /// The container has not started.
    Waiting(Said),
    /// The container runs.
    Running {
        /// Start time.
        since: Option<Timestamp>,
    },
    /// The container ended.
    Ended(Exit),
}

/// End of a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// Signal that ended the container.
    pub signal: Option<i32>,
    /// Reason that the kubelet reports: `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// Termination message, not truncated, because it contains the results.
    pub message: String,
    /// Start time.
    pub started: Option<Timestamp>,
    /// End time.
    pub finished: Option<Timestamp>,
    /// Number of times that the kubelet restarted the container before this end.
    pub restarts: i32,
}

impl Exit {
    /// Returns a fact that contradicts exit code 0, if there is one. A shell can return 0 although the kernel killed a
    /// process that it started. A container that was started twice did its work twice.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        match (self.signal, self.reason.as_str(), self.restarts) {
            (_, "OOMKilled", _) => Some("the kernel killed a process of it for memory".to_owned()),
            (Some(signal), _, _) if signal != 0 => Some(format!("it was ended by signal {signal}")),
            (_, reason, _) if !matches!(reason, "" | "Completed") => {
                Some(format!("the kubelet reports the reason '{reason}'"))
            }
            (_, _, restarts) if restarts > 0 => {
                Some(format!("the kubelet started it {restarts} more time(s)"))
            }
            _ => None,
        }
    }
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let condition = |kind: &str, value: &str| {
            status
                .and_then(|status| status.conditions.as_ref())
                .and_then(|conditions| {
                    conditions
                        .iter()
                        .find(|known| known.type_ == kind && known.status == value)
                })
        };
        let containers = Containers::of(pod);
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            job_uid: controller(&pod.metadata, &ResourceType::JOB.api_version(), "Job"),
            created: pod.metadata.creation_timestamp.as_ref().map(instant),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            stop_asked: stop_asked(&pod.metadata),
            stop_by: pod.metadata.deletion_timestamp.as_ref().map(instant),
            disruption: condition("DisruptionTarget", "True").map(|target| Said {
                reason: short(target.reason.as_ref()),
                message: short(target.message.as_ref()),
            }),
            unschedulable: condition("PodScheduled", "False")
                .filter(|scheduled| scheduled.reason.as_deref() == Some("Unschedulable"))
                .map(|scheduled| short(scheduled.message.as_ref())),
            phase: pod_phase(status.and_then(|status| status.phase.as_deref())),
            failure: status
                .filter(|status| status.reason.is_some())
                .map(|status| Said {
                    reason: short(status.reason.as_ref()),
                    message: short(status.message.as_ref()),
                }),
            step: containers.step,
            container: containers.container,
            agent: containers.agent,
            doubt: containers.doubt,
            stuck: containers.stuck,
            image_id: containers.image_id,
            content: content("Pod", pod),
            foreign: false,
        }
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

/// Returns when the Pod was asked to stop. `deletionTimestamp` is the *end* of the grace period. A program that obeys
/// the signal ends before it, and would seem to have ended by itself.
fn stop_asked(metadata: &ObjectMeta) -> Option<Timestamp> {
    let end = instant(metadata.deletion_timestamp.as_ref()?);
    let grace = u64::try_from(metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
    Some(match end.checked_sub(Duration::from_secs(grace)) {
        Ok(asked) => asked,
        Err(_) => Timestamp::MIN,
    })
}

fn pod_phase(phase: Option<&str>) -> PodPhase {
    match phase {
        Some("Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) | None => PodPhase::Unknown,
    }
}

/// Reason of a container that waits because the repository is being cloned, or was just cloned.
pub const CLONING: &str = "Cloning";
/// Reason that the kubelet reports for a container while nothing else is known about it.
const INITIALIZING: &str = "PodInitializing";

/// Combined state of a Pod's containers.
struct Containers {
    step: Step,
    container: Container,
    agent: Option<Exit>,
    doubt: Option<(Step, Exit)>,
    stuck: Option<Said>,
    image_id: Option<String>,
}

impl Containers {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let ordinary = status.and_then(|status| status.container_statuses.as_ref());
        let init = status.and_then(|status| status.init_container_statuses.as_ref());
        let find = |list: Option<&Vec<core::ContainerStatus>>, name: &str| {
            list.and_then(|list| list.iter().find(|one| one.name == name).cloned())
        };
        let read =
            |found: Option<&core::ContainerStatus>| found.map_or(Container::Unknown, container);
        // Other components may inject containers into a Pod. So the kind of the run decides, not the containers' names.
        let is_docs = label(&pod.metadata, names::KIND) == Some(docs::RESOURCE.kind);
        let of_agent = find(if is_docs { init } else { ordinary }, contract::CONTAINER);
        let image_id = of_agent
            .as_ref()
            .map(|agent| agent.image_id.clone())
            .filter(|id| !id.is_empty());
        let agent = read(of_agent.as_ref());
        if !is_docs {
            return Self {
                step: Step::Agent,
                container: agent,
                agent: None,
                doubt: None,
                stuck: None,
                image_id,
            };
        }
        let clone = read(find(init, build::CLONE).as_ref());
        let publish = read(find(ordinary, build::PUBLISH).as_ref());
        let waits = match &publish {
            Container::Waiting(said) => Some(said.clone()),
            Container::Unknown | Container::Running { .. } | Container::Ended(_) => None,
        };
        let doubt = doubt(&[(Step::Clone, &clone), (Step::Agent, &agent)]);
        let (step, container, agent) = current_container(clone, agent, publish);
        // Every container waits with these reasons until the one before it ended, and a moment longer.
        let is_stuck = |said: &Said| {
            let is_calm = matches!(
                said.reason.as_str(),
                "" | "PodInitializing" | "ContainerCreating"
            );
            step == Step::Publish && !is_calm
        };
        Self {
            step,
            container,
            agent,
            doubt,
            stuck: waits.filter(is_stuck),
            image_id,
        }
    }
}

/// Returns the first of these containers with exit code 0 and a contradiction to it. The kubelet starts the next
/// container nevertheless.
fn doubt(before: &[(Step, &Container)]) -> Option<(Step, Exit)> {
    before.iter().find_map(|(step, container)| match container {
        Container::Ended(exit) if exit.code == 0 && exit.contradiction().is_some() => {
            Some((*step, exit.clone()))
        }
        Container::Ended(_)
        | Container::Unknown
        | Container::Waiting(_)
        | Container::Running { .. } => None,
    })
}

/// Returns the container that counts now, of three containers that run one after the other.
fn current_container(
    clone: Container,
    agent: Container,
    publish: Container,
) -> (Step, Container, Option<Exit>) {
    match clone {
        Container::Ended(exit) if exit.code == 0 => {}
        Container::Running { .. } => return (Step::Clone, cloning(), None),
        Container::Ended(_) | Container::Unknown | Container::Waiting(_) => {
            return (Step::Clone, clone, None);
        }
    }
    let agent = match agent {
        Container::Ended(exit) if exit.code == 0 => exit,
        // The agent starts at once, or the kubelet soon reports another reason. Both waits get the same reason.
        Container::Waiting(said) if said.reason == INITIALIZING => {
            return (Step::Agent, cloning(), None);
        }
        Container::Ended(_)
        | Container::Unknown
        | Container::Waiting(_)
        | Container::Running { .. } => return (Step::Agent, agent, None),
    };
    let since = agent.started;
    let publish = match publish {
        // The Pod's time counts as one period, which began with the agent.
        Container::Ended(exit) => Container::Ended(Exit {
            started: since,
            ..exit
        }),
        Container::Unknown | Container::Waiting(_) | Container::Running { .. } => {
            Container::Running { since }
        }
    };
    (Step::Publish, publish, Some(agent))
}

fn cloning() -> Container {
    Container::Waiting(Said {
        reason: CLONING.to_owned(),
        message: String::new(),
    })
}

fn container(status: &core::ContainerStatus) -> Container {
    let Some(state) = status.state.as_ref() else {
        return Container::Unknown;
    };
    if let Some(ended) = &state.terminated {
        return Container::Ended(Exit {
            code: ended.exit_code,
            signal: ended.signal,
            reason: short(ended.reason.as_ref()),
            message: ended.message.clone().unwrap_or_default(),
            started: ended.started_at.as_ref().map(instant),
            finished: ended.finished_at.as_ref().map(instant),
            restarts: status.restart_count,
        });
    }
    if let Some(running) = &state.running {
        return Container::Running {
            since: running.started_at.as_ref().map(instant),
        };
    }
    state
        .waiting
        .as_ref()
        .map_or(Container::Unknown, |waiting| {
            Container::Waiting(Said {
                reason: short(waiting.reason.as_ref()),
                message: short(waiting.message.as_ref()),
            })
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

/// Returns the UID of the controller, if it has this API version and kind. The creator of an object can write any owner
/// reference. A UID with another kind is a forgery that the garbage collector does not follow.
fn controller(metadata: &ObjectMeta, api_version: &str, kind: &str) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flat_map(|all| all.iter());
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    let is_it = controller.api_version == api_version && controller.kind == kind;
    is_it.then(|| controller.uid.clone())
}

/// Returns the UID of the run that controls an object, if the object's label has the same kind.
fn run_uid(metadata: &ObjectMeta) -> Option<String> {
    let kinds = [run::RESOURCE, docs::RESOURCE];
    let named = label(metadata, names::KIND)?;
    let resource = kinds.into_iter().find(|one| one.kind == named)?;
    controller(metadata, &resource.api_version(), resource.kind)
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

fn instant(time: &Time) -> Timestamp {
    time.0
}

/// Truncates texts of other components before they are cached.
fn short(text: Option<&String>) -> String {
    text.map(|text| bounded(text, MAX_MESSAGE_CHARS))
        .unwrap_or_default()
}
