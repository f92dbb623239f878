//! Thin views of what a decision reads of Jobs, Pods, ConfigMaps and Events.
//!
//! Thousands of them are cached, so they hold nothing that no decision reads.

use std::{collections::BTreeMap, time::Duration};

use api::{
    Timestamp, names,
    status::{MESSAGE, bounded},
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{self as core, ConfigMap, Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use crate::run::{contract, docs, terms::Terms};

/// A Job, as a run sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The UID of its controller. A label can be copied; this is what makes it ours.
    pub owner_uid: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// The version of the context that it belongs to, from its label.
    pub version: Option<i64>,
    /// Whether it is told to run no Pod.
    pub suspended: bool,
    /// Whether that was us.
    pub suspended_by_us: bool,
    /// UIDs of the Pods that it had when we last did.
    pub stopped_pods: Vec<String>,
    /// When its controller began with it; its own limit counts from there.
    pub started: Option<Timestamp>,
    /// Its own limit, in seconds.
    pub limit_seconds: Option<i64>,
    /// When its controller went on after it was suspended.
    pub resumed: Option<Timestamp>,
    /// How it ended, from its conditions.
    pub end: Option<JobEnd>,
    /// What its attempt is judged by.
    pub terms: Option<Terms>,
}

/// How a Job ended. Its counters never decide: they count before the Job is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// `Complete=True`.
    Complete {
        /// Since when.
        at: Option<Timestamp>,
    },
    /// `Failed=True`.
    Failed {
        /// Since when.
        at: Option<Timestamp>,
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

impl JobEnd {
    /// Since when the Job says so.
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
            owner_uid: controller(&job.metadata).map(|(_, uid)| uid),
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
            end: job_end(job),
            terms: template
                .and_then(|metadata| metadata.annotations.as_ref())
                .and_then(|annotations| annotations.get(names::TERMS))
                .and_then(|text| Terms::read(text)),
        }
    }
}

/// The Job of a run that has no versions.
fn only_version(metadata: &ObjectMeta) -> Option<i64> {
    (label(metadata, names::KIND) == Some(docs::RESOURCE.kind)).then_some(1)
}

/// While the controller still calls a resumed Job suspended, all its Pods are from before.
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

fn job_end(job: &Job) -> Option<JobEnd> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found = |kind: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == "True")
    };
    // A Job that says both is not a success.
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

/// A Pod, as a run sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The UID of the Job that it belongs to.
    pub job_uid: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// When it was asked to stop by a deletion.
    pub stop_asked: Option<Timestamp>,
    /// Until when it has time to.
    pub stop_by: Option<Timestamp>,
    /// Who stops it, if something of the cluster does: `DisruptionTarget`.
    pub disruption: Option<Said>,
    /// Why it has no node, in the scheduler's words.
    pub unschedulable: Option<String>,
    /// Its phase.
    pub phase: PodPhase,
    /// What the Pod itself says of its failure (the kubelet refused it).
    pub failure: Option<Said>,
    /// Which container is at work, or ended the Pod.
    pub step: Step,
    /// That container. What comes before the agent's counts as waiting for it.
    pub container: Container,
    /// How the agent's ended, if another came after it.
    pub agent: Option<Exit>,
    /// Why the container after the agent's is not started, if something keeps it from it.
    pub stuck: Option<Said>,
    /// The image that really runs.
    pub image_id: Option<String>,
}

/// A reason and its message, as another part of the cluster gave them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The phase of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers were started.
    Pending,
    /// Some container runs.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// A container ended otherwise, or the Pod was refused.
    Failed,
    /// The node does not answer, or nothing was said yet.
    Unknown,
}

/// The containers that count, in the order in which they run. A TaskRun has the agent's only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Brings the repository.
    Clone,
    /// The agent.
    Agent,
    /// Commits and pushes.
    Publish,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq)]
pub enum Container {
    /// The kubelet said nothing yet.
    Unknown,
    /// It was not started.
    Waiting(Said),
    /// It runs.
    Running {
        /// Since when.
        since: Option<Timestamp>,
    },
    /// It ended.
    Ended(Exit),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The kubelet's reason: `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// The termination message, whole: the results are in it.
    pub message: String,
    /// When it was started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
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
            job_uid: controller(&pod.metadata)
                .and_then(|(kind, uid)| (kind == "Job").then_some(uid)),
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
            stuck: containers.stuck,
            image_id: containers.image_id,
        }
    }
}

/// When the Pod was asked to stop. The API server's `deletionTimestamp` is when its grace *ends*:
/// a program that obeys the signal ends before it, and would look as if it had ended by itself.
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

/// The reason of a container that waits because the repository is being cloned before it, or was
/// just now.
pub const CLONING: &str = "Cloning";
/// The kubelet's reason for a container of which there is nothing to say yet.
const INITIALIZING: &str = "PodInitializing";

/// What a Pod's containers say together.
struct Containers {
    step: Step,
    container: Container,
    agent: Option<Exit>,
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
        // Something may put containers of its own into a Pod: the kind decides, not their names.
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
                stuck: None,
                image_id,
            };
        }
        let clone = read(find(init, docs::pod::CLONE).as_ref());
        let publish = read(find(ordinary, docs::pod::PUBLISH).as_ref());
        let waits = match &publish {
            Container::Waiting(said) => Some(said.clone()),
            Container::Unknown | Container::Running { .. } | Container::Ended(_) => None,
        };
        let (step, container, agent) = in_turn(clone, agent, publish);
        // Every container waits so before its turn, and for a moment after it.
        let is_turn = |said: &Said| {
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
            stuck: waits.filter(is_turn),
            image_id,
        }
    }
}

/// Which of three containers that run one after the other counts now.
fn in_turn(
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
        // It starts at once, or something else is said soon: one word for both waits.
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
        // The Pod's time as one: it began with the agent.
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

/// A ConfigMap, as a run sees it: never its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The UID of its controller.
    pub owner_uid: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl From<&ConfigMap> for ConfigMapView {
    fn from(map: &ConfigMap) -> Self {
        Self {
            name: map.metadata.name.clone().unwrap_or_default(),
            uid: map.metadata.uid.clone().unwrap_or_default(),
            owner_uid: controller(&map.metadata).map(|(_, uid)| uid),
            deleting: map.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// An Event of type Warning on a Job or Pod: quota, admission and volumes tell only there why a
/// Pod does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The UID of the object that it is about.
    pub object_uid: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When it was seen last.
    pub last_seen: Option<Timestamp>,
    /// How many times it was said.
    pub times: i32,
}

impl From<&Event> for Warning {
    fn from(event: &Event) -> Self {
        let seen = [
            event
                .series
                .as_ref()
                .and_then(|series| series.last_observed_time.as_ref())
                .map(|time| time.0),
            event.last_timestamp.as_ref().map(instant),
            event.event_time.as_ref().map(|time| time.0),
            event.first_timestamp.as_ref().map(instant),
        ];
        Self {
            object_uid: event.involved_object.uid.clone().unwrap_or_default(),
            reason: short(event.reason.as_ref()),
            message: short(event.message.as_ref()),
            last_seen: seen.iter().filter_map(|time| *time).max(),
            times: api::kubelet::times(event),
        }
    }
}

/// Kind and UID of the controlling owner.
fn controller(metadata: &ObjectMeta) -> Option<(String, String)> {
    metadata
        .owner_references
        .iter()
        .flat_map(|owners| owners.iter())
        .find(|owner| owner.controller == Some(true))
        .map(|owner| (owner.kind.clone(), owner.uid.clone()))
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

/// What others wrote is bounded before it is cached.
fn short(text: Option<&String>) -> String {
    text.map(|text| bounded(text, MESSAGE)).unwrap_or_default()
}
