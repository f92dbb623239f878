//! The observed state that decisions about a run depend on, and queries on it.

use std::{sync::Arc, time::Duration};

use api::{
    Phase, Reason, Timestamp,
    decide::{Effect, Input, ReconcileError, ResourceType, Target},
    status::condition,
    tasks::{Agent, Evidence, File, Resources, Retry, RunPhase, TaskRun, TaskRunStatus},
    warning::Warning,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{attempt_spec::AttemptSpec, disruption, run_spec::RunSpec};
use crate::{
    time,
    view::{ConfigMapView, ContainerState, JobView, PodPhase, PodView},
};

/// Longest wait of a run: the longest `timeout`, with `publish` and a reserve. A stored deadline that is further
/// ahead was written by another clock.
const MAX_WAIT: Duration = Duration::from_secs(8 * 24 * 3600);

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

/// Cleanup of a run's children after its end, for runs that do not set their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// Whether anything is deleted.
    pub enabled: bool,
    /// How long Jobs are kept after a success.
    pub after_success: Duration,
    /// How long Jobs are kept after any other end.
    pub after_failure: Duration,
    /// Whether ConfigMaps are deleted with the Jobs.
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

/// A run with its observed state, the input of each step of the decision.
#[derive(Debug, Clone)]
pub(super) struct Run<'a> {
    pub(super) run_spec: RunSpec<'a>,
    pub(super) world: &'a RunWorld,
    pub(super) now: Timestamp,
    pub(super) fault: Option<&'a ReconcileError>,
    /// Whether this reconciliation read the world from the API server.
    pub(super) confirmed: bool,
    /// Stored status, or an empty one before the first write.
    pub(super) status: TaskRunStatus,
    /// UID of the run. Without a UID, no object can belong to the run.
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
}

/// Stage of a run within its version, according to the stored status.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage<'a> {
    /// No attempt was started.
    NotStarted,
    /// The attempt with this Job is in progress.
    InProgress { job: &'a str },
    /// An attempt was given up, and its Job is being stopped.
    Stopping { result: &'a Evidence },
    /// An attempt failed, and the next one waits for its start time.
    RetryBackoff { result: &'a Evidence },
}

impl<'a> Run<'a> {
    pub(super) fn of_task(input: &Input<'a, TaskRun, RunWorld>) -> Self {
        let run_spec = RunSpec::of_task(input.object, input.world.files.as_deref());
        let status = input.object.status.clone().unwrap_or_default();
        Self {
            fault: input.fault,
            confirmed: input.confirmed,
            ..Self::new(run_spec, status, input.world, input.now)
        }
    }

    pub(super) fn new(
        run_spec: RunSpec<'a>,
        status: TaskRunStatus,
        world: &'a RunWorld,
        now: Timestamp,
    ) -> Self {
        Self {
            run_spec,
            world,
            now,
            fault: None,
            confirmed: false,
            status,
            uid: run_spec.metadata.uid.as_deref().unwrap_or_default(),
            namespace: run_spec.metadata.namespace.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the base of the next status: the stored one, with the current version filled in.
    pub(super) fn next(&self) -> TaskRunStatus {
        let mut status = self.status.clone();
        status.context_version.get_or_insert(self.version());
        status
    }

    /// Returns the stored phase. A run starts as Pending.
    pub(super) fn phase(&self) -> RunPhase {
        self.status.phase.unwrap_or(RunPhase::Pending)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase().is_terminal()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.run_spec.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    pub(super) fn version(&self) -> i64 {
        self.run_spec.version
    }

    pub(super) fn stage(&self) -> Stage<'_> {
        match (&self.status.result, &self.status.job_name) {
            (Some(result), _) if result.finished_at.is_none() => Stage::Stopping { result },
            (Some(result), _) => Stage::RetryBackoff { result },
            (None, Some(job)) => Stage::InProgress { job },
            (None, None) => Stage::NotStarted,
        }
    }

    /// Returns the Jobs that belong to this run. A label can be copied; the owner's UID cannot.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &'a JobView> {
        let uid = self.uid;
        self.world
            .jobs
            .iter()
            .filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))
    }

    /// Returns the Job of this name, unless the status records another UID for it.
    pub(super) fn job(&self, name: &str) -> Option<&'a JobView> {
        let recorded = self.recorded_uid(name);
        self.jobs()
            .find(|job| job.name == name && recorded.is_none_or(|uid| job.uid == uid))
    }

    /// Returns whether a Job is verified to belong to this run: its own metadata is not enough.
    pub(super) fn is_proven(&self, job: &JobView) -> bool {
        job.proven || self.recorded_uid(&job.name) == Some(&job.uid)
    }

    fn recorded_uid(&self, job: &str) -> Option<&str> {
        let is_named = self.status.job_name.as_deref() == Some(job);
        self.status.job_uid.as_deref().filter(|_| is_named)
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.world.pods.iter()
    }

    pub(super) fn pods_of(&self, job: &JobView) -> impl Iterator<Item = &'a PodView> {
        self.pods()
            .filter(|pod| pod.job_uid.as_ref() == Some(&job.uid))
    }

    /// Returns the newest Pod of the Job, which determines the attempt's state. Pods that we stopped by suspending the
    /// Job are ignored.
    pub(super) fn newest_pod(&self, job: &JobView) -> Option<&'a PodView> {
        self.pods_of(job)
            .filter(|pod| !predates_suspension(job, pod))
            .max_by(|one, other| (one.created, &one.uid).cmp(&(other.created, &other.uid)))
    }

    /// Returns Pods that may still run although their Job no longer exists.
    pub(super) fn orphaned_pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.pods().filter(|pod| {
            may_run(pod)
                && !self
                    .jobs()
                    .any(|job| pod.job_uid.as_ref() == Some(&job.uid))
        })
    }

    /// Returns the ConfigMaps that belong to this run.
    pub(super) fn config_maps(&self) -> impl Iterator<Item = &'a ConfigMapView> {
        let uid = self.uid;
        self.world
            .config_maps
            .iter()
            .filter(move |map| !uid.is_empty() && map.owner_uid.as_deref() == Some(uid))
    }

    /// Returns the ConfigMap with this version's files, if it is verified to be ours.
    pub(super) fn files(&self) -> Option<&'a ConfigMapView> {
        let name = self.run_spec.config_map_name();
        let recorded = self.status.config_map_uid.as_ref();
        self.config_maps().find(|map| {
            let is_ours = map.proven || recorded == Some(&map.uid);
            map.name == name && is_ours
        })
    }

    /// Returns the number of the next attempt and the name of its Job. A disrupted attempt is started again under
    /// another name.
    pub(super) fn next_attempt(&self) -> (u32, String) {
        let begun = self.status.attempts;
        if let Stage::RetryBackoff { result } = self.stage()
            && disruption::was_disrupted(result)
        {
            // Attempts that ended as disrupted before disruptions were counted have a count of 0.
            let name = self
                .run_spec
                .job_name(begun, Some(self.status.disruptions.max(1)));
            return (begun, name);
        }
        let next = begun.saturating_add(1);
        (next, self.run_spec.job_name(next, None))
    }

    /// Returns the settings by which the attempt with this Job is evaluated. Returns `None` if neither the Job nor an
    /// Agent has them.
    pub(super) fn attempt_spec(&self, job: &JobView) -> Option<AttemptSpec> {
        let live = || {
            let agent = self.world.agent.as_ref()?;
            Some(AttemptSpec::of(&agent.spec, self.resources(agent)))
        };
        job.terms.clone().or_else(live)
    }

    /// Returns how long the container of this Job may take to start.
    pub(super) fn start_timeout(&self, job: &JobView) -> Duration {
        self.attempt_spec(job)
            .map_or(super::START_WAIT, |spec| spec.start_timeout())
    }

    /// Returns how long the container of this Job may run: the run's timeout, or else the Agent's.
    pub(super) fn timeout(&self, job: &JobView) -> Duration {
        let agents = || self.attempt_spec(job).map(|spec| spec.timeout());
        let own = self.run_spec.timeout;
        own.or_else(agents).unwrap_or(super::RUN_TIME)
    }

    /// Returns how long the Pod of this Job may run, counted from the start of its agent.
    pub(super) fn pod_time(&self, job: &JobView) -> Duration {
        self.timeout(job)
            .saturating_add(self.run_spec.after_agent())
    }

    pub(super) fn resources<'s>(&'s self, agent: &'s Agent) -> &'s Resources {
        agent
            .spec
            .resources
            .as_ref()
            .unwrap_or(&self.world.defaults.resources)
    }

    /// Returns the retry policy of failed attempts: the run's, or else the Agent's. Returns `None` if the Agent does
    /// not exist.
    pub(super) fn retry(&self) -> Option<&'a Retry> {
        let agent = || self.world.agent.as_ref().map(|agent| &agent.spec.retry);
        self.run_spec.retry.or_else(agent)
    }

    /// Returns the stored deadline of the current wait, unless it is absurd.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.status.progress.deadline(MAX_WAIT, self.now)
    }

    pub(super) fn after(&self, wait: Duration) -> Timestamp {
        time::after(self.now, wait)
    }

    pub(super) fn stamp(&self) -> Time {
        Time(time::whole(self.now))
    }

    /// Returns reason and message of the stored status.
    pub(super) fn stored_message(&self) -> Option<(Reason, String)> {
        let condition = self.status.progress.condition(condition::SUCCEEDED)?;
        Some((
            Reason::from_name(&condition.reason)?,
            condition.message.clone(),
        ))
    }

    pub(super) fn delete(&self, job: &JobView) -> Effect {
        Effect::Delete(self.target(ResourceType::JOB, &job.name, &job.uid))
    }

    /// Returns the target of an effect on an object in the run's namespace.
    pub(super) fn target(&self, resource: ResourceType, name: &str, uid: &str) -> Target {
        Target {
            resource,
            namespace: Some(self.namespace.to_owned()),
            name: name.to_owned(),
            uid: uid.to_owned(),
            version: None,
            requires_intent: None,
        }
    }
}

/// Returns whether a Pod was stopped because its Job was suspended.
///
/// The Job lists the Pods that we knew when we suspended it. Our view of them may be old: a listed Pod that seems to
/// run does not. For other Pods, the creation time alone proves nothing: the Job controller creates a Pod *before* the
/// Job reports that it was resumed.
pub(super) fn predates_suspension(job: &JobView, pod: &PodView) -> bool {
    let made_before = |at: Timestamp| pod.created.is_some_and(|made| made < at);
    let is_stopped = !job.suspended && job.stopped_pods.contains(&pod.uid) && may_run(pod);
    is_stopped || (pod.stop_asked.is_some() && job.resumed.is_some_and(made_before))
}

/// Returns whether a program of this Pod may still run, as far as is known.
pub(super) fn may_run(pod: &PodView) -> bool {
    match (&pod.container, pod.phase) {
        (ContainerState::Ended(_), _) | (_, PodPhase::Succeeded | PodPhase::Failed) => false,
        (
            ContainerState::Unknown | ContainerState::Waiting(_) | ContainerState::Running { .. },
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown,
        ) => true,
    }
}

/// Describes a Pod in messages.
pub(super) fn describe_pod(pod: &PodView) -> String {
    match &pod.node {
        Some(node) => format!("Pod '{}' on node '{node}'", pod.name),
        None => format!("Pod '{}'", pod.name),
    }
}

/// Lists at most three of `things` for a message.
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
