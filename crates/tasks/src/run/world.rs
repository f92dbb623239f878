//! What a decision about a run depends on, and the questions it asks of it.

use std::{sync::Arc, time::Duration};

use api::{
    Phase, Reason, Timestamp,
    decide::{Effect, Fault, Input, NoExternal, ResourceType, Target},
    status::condition,
    tasks::{Agent, Evidence, Resources, Retry, RunPhase, TaskRun, TaskRunStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{disruption, order::Order, terms::Terms};
use crate::{
    time,
    view::{ConfigMapView, Container, JobView, PodPhase, PodView, Warning},
};

/// Everything that was observed for a run.
#[derive(Debug, Clone)]
pub struct RunWorld {
    /// The Agent that the run names.
    pub agent: Option<Arc<Agent>>,
    /// All Jobs with this run's UID in their label, of whichever version and attempt.
    pub jobs: Vec<JobView>,
    /// All Pods with this run's UID in their label.
    pub pods: Vec<PodView>,
    /// All ConfigMaps with this run's UID in their label, of whichever version.
    pub config_maps: Vec<ConfigMapView>,
    /// Warnings about these Jobs and Pods.
    pub warnings: Vec<Warning>,
    /// What the operator's configuration gives to Agents that say nothing.
    pub defaults: Defaults,
}

/// What the operator's configuration gives to Agents that say nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    /// The resources of the container.
    pub resources: Resources,
    /// What becomes of a run's children after its end.
    pub cleanup: Cleanup,
    /// How long after its end a run is deleted itself; `None`: never.
    pub delete_finished_runs_after: Option<Duration>,
}

/// What becomes of a run's children after its end, where the run itself does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// Whether anything is deleted.
    pub enabled: bool,
    /// How long Jobs stay after a success.
    pub after_success: Duration,
    /// How long Jobs stay after any other end.
    pub after_failure: Duration,
    /// Whether ConfigMaps go with them.
    pub delete_config_map: bool,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            enabled: true,
            after_success: Duration::from_secs(5 * 60),
            after_failure: Duration::from_secs(60 * 60),
            delete_config_map: true,
        }
    }
}

/// A run with what was observed for it: what each step of the decision reads.
#[derive(Debug, Clone)]
pub(super) struct Run<'a> {
    pub(super) order: Order<'a>,
    pub(super) world: &'a RunWorld,
    pub(super) now: Timestamp,
    pub(super) fault: Option<&'a Fault>,
    /// As stored, or empty before the first record.
    pub(super) status: TaskRunStatus,
    /// Without it nothing can be ours.
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
}

/// Where the stored status says that a run stands within its version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage<'a> {
    /// No attempt was begun.
    Before,
    /// The attempt with this Job goes on.
    Going { job: &'a str },
    /// An attempt was given up, and its Job is being stopped.
    Stopping { result: &'a Evidence },
    /// An attempt failed, and the next one waits for its time.
    Between { result: &'a Evidence },
}

impl<'a> Run<'a> {
    pub(super) fn of_task(input: &Input<'a, TaskRun, RunWorld>) -> Self {
        let order = Order::of_task(input.object);
        let status = input.object.status.clone().unwrap_or_default();
        Self::new(order, status, input.world, input.now, input.fault)
    }

    pub(super) fn new(
        order: Order<'a>,
        status: TaskRunStatus,
        world: &'a RunWorld,
        now: Timestamp,
        fault: Option<&'a Fault>,
    ) -> Self {
        Self {
            order,
            world,
            now,
            fault,
            status,
            uid: order.metadata.uid.as_deref().unwrap_or_default(),
            namespace: order.metadata.namespace.as_deref().unwrap_or_default(),
        }
    }

    /// The status to go on from: as stored, and of the version that is worked on.
    pub(super) fn next(&self) -> TaskRunStatus {
        let mut status = self.status.clone();
        status.context_version.get_or_insert(self.version());
        status
    }

    /// The stored phase; a run starts as Pending.
    pub(super) fn phase(&self) -> RunPhase {
        self.status.phase.unwrap_or(RunPhase::Pending)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase().is_terminal()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.order.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    pub(super) fn version(&self) -> i64 {
        self.order.version
    }

    pub(super) fn stage(&self) -> Stage<'_> {
        match (&self.status.result, &self.status.job_name) {
            (Some(result), _) if result.finished_at.is_none() => Stage::Stopping { result },
            (Some(result), _) => Stage::Between { result },
            (None, Some(job)) => Stage::Going { job },
            (None, None) => Stage::Before,
        }
    }

    /// The Jobs that belong to this run. A label can be copied; the owner's UID cannot.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &'a JobView> {
        let uid = self.uid;
        self.world
            .jobs
            .iter()
            .filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))
    }

    pub(super) fn job(&self, name: &str) -> Option<&'a JobView> {
        self.jobs().find(|job| job.name == name)
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.world.pods.iter()
    }

    pub(super) fn pods_of(&self, job: &JobView) -> impl Iterator<Item = &'a PodView> {
        self.pods()
            .filter(|pod| pod.job_uid.as_ref() == Some(&job.uid))
    }

    /// The Pod that counts: a Job that replaced one speaks through the last. Those that were told to
    /// stop when it was suspended were stopped by ourselves.
    pub(super) fn newest_pod(&self, job: &JobView) -> Option<&'a PodView> {
        self.pods_of(job)
            .filter(|pod| !is_of_before(job, pod))
            .max_by(|one, other| (one.created, &one.uid).cmp(&(other.created, &other.uid)))
    }

    /// Pods whose Job is gone, and that may still run.
    pub(super) fn stray_pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.pods().filter(|pod| {
            may_run(pod)
                && !self
                    .jobs()
                    .any(|job| pod.job_uid.as_ref() == Some(&job.uid))
        })
    }

    /// The ConfigMaps that belong to this run.
    pub(super) fn config_maps(&self) -> impl Iterator<Item = &'a ConfigMapView> {
        let uid = self.uid;
        self.world
            .config_maps
            .iter()
            .filter(move |map| !uid.is_empty() && map.owner_uid.as_deref() == Some(uid))
    }

    /// The ConfigMap with this version's files, if it is ours.
    pub(super) fn files(&self) -> Option<&'a ConfigMapView> {
        let name = self.order.config_map_name();
        self.config_maps().find(|map| map.name == name)
    }

    /// The attempt that is to be started next, and its Job's name. One that was disrupted is
    /// started again under another name.
    pub(super) fn next_attempt(&self) -> (u32, String) {
        let begun = self.status.attempts;
        if let Stage::Between { result } = self.stage()
            && disruption::was_disrupted(result)
        {
            // Some that ended as disrupted before these were counted have none.
            let name = self
                .order
                .job_name(begun, Some(self.status.disruptions.max(1)));
            return (begun, name);
        }
        let next = begun.saturating_add(1);
        (next, self.order.job_name(next, None))
    }

    /// What the attempt with this Job is judged by; `None` if neither the Job nor an Agent says.
    pub(super) fn terms(&self, job: &JobView) -> Option<Terms> {
        let live = || {
            let agent = self.world.agent.as_ref()?;
            Some(Terms::of(&agent.spec, self.resources(agent)))
        };
        job.terms.clone().or_else(live)
    }

    /// How long the container of this Job may take to start.
    pub(super) fn start_timeout(&self, job: &JobView) -> Duration {
        self.terms(job)
            .map_or(super::START_WAIT, |terms| terms.start_timeout())
    }

    /// How long the container of this Job may run: the run's word, else the Agent's.
    pub(super) fn timeout(&self, job: &JobView) -> Duration {
        let agents = || self.terms(job).map(|terms| terms.timeout());
        let own = self.order.timeout;
        own.or_else(agents).unwrap_or(super::RUN_TIME)
    }

    /// How long the Pod of this Job may run, from its agent's start.
    pub(super) fn pod_time(&self, job: &JobView) -> Duration {
        self.timeout(job).saturating_add(self.order.after_agent())
    }

    pub(super) fn resources<'s>(&'s self, agent: &'s Agent) -> &'s Resources {
        agent
            .spec
            .resources
            .as_ref()
            .unwrap_or(&self.world.defaults.resources)
    }

    /// How often and when a failed attempt is repeated: the run's word, else the Agent's; `None`
    /// if the Agent is gone.
    pub(super) fn retry(&self) -> Option<&'a Retry> {
        let agent = || self.world.agent.as_ref().map(|agent| &agent.spec.retry);
        self.order.retry.or_else(agent)
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.status.deadline_at.as_ref().map(|time| time.0)
    }

    pub(super) fn after(&self, wait: Duration) -> Timestamp {
        time::after(self.now, wait)
    }

    pub(super) fn stamp(&self) -> Time {
        Time(time::whole(self.now))
    }

    /// What the stored status says, in its own words.
    pub(super) fn said(&self) -> Option<(Reason, String)> {
        let condition = self.status.progress.condition(condition::SUCCEEDED)?;
        Some((
            Reason::from_name(&condition.reason)?,
            condition.message.clone(),
        ))
    }

    pub(super) fn delete(&self, job: &JobView) -> Effect<NoExternal> {
        Effect::Delete(self.target(ResourceType::JOB, &job.name, &job.uid))
    }

    /// An object in the run's namespace.
    pub(super) fn target(&self, resource: ResourceType, name: &str, uid: &str) -> Target {
        Target {
            resource,
            namespace: Some(self.namespace.to_owned()),
            name: name.to_owned(),
            uid: uid.to_owned(),
            version: None,
            irreversible: None,
        }
    }
}

/// Whether a Pod was stopped because its Job was suspended.
///
/// Those that we knew when we suspended it are named on the Job, because the view of them may be old: one
/// that seems to run does not. Of others their time alone says nothing: a Job's Pod is made *before* the
/// Job says that it was resumed.
pub(super) fn is_of_before(job: &JobView, pod: &PodView) -> bool {
    let made_before = |at: Timestamp| pod.created.is_some_and(|made| made < at);
    let is_stopped = !job.suspended && job.stopped_pods.contains(&pod.uid) && may_run(pod);
    is_stopped || (pod.stop_asked.is_some() && job.resumed.is_some_and(made_before))
}

/// Whether a program of this Pod may still run, as far as anyone knows.
pub(super) fn may_run(pod: &PodView) -> bool {
    match (&pod.container, pod.phase) {
        (Container::Ended(_), _) | (_, PodPhase::Succeeded | PodPhase::Failed) => false,
        (
            Container::Unknown | Container::Waiting(_) | Container::Running { .. },
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown,
        ) => true,
    }
}

/// How a Pod is named in messages.
pub(super) fn pod_words(pod: &PodView) -> String {
    match &pod.node {
        Some(node) => format!("Pod '{}' on node '{node}'", pod.name),
        None => format!("Pod '{}'", pod.name),
    }
}

/// Words for at most three of `things`.
pub(super) fn some_of(things: &[String]) -> String {
    let shown: Vec<&str> = things.iter().take(3).map(String::as_str).collect();
    let rest = things.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if rest > 0 {
        format!("{list} and {rest} more")
    } else {
        list
    }
}
