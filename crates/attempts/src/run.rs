//! A run, its observed state, and queries on it.

use std::time::Duration;

use api::{
    CommonStatus, Phase, Reason, Status, Timestamp,
    decide::{Decision, Effect, ReconcileError, ResourceType, Target},
    names,
    status::condition,
    tasks::{AttemptStatus, Evidence, RunPhase},
    warning::Warning,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::{
    AttemptSpec, RUN_TIME, START_WAIT, Spec, Work, disruption, time,
    view::{ConfigMapView, JobView, PodView},
};

/// Longest wait of a run: the longest `timeout`, with the time after the main container and a reserve. A stored
/// deadline that is further ahead was written by another clock.
const MAX_WAIT: Duration = Duration::from_secs(8 * 24 * 3600);

/// Decision about the attempts of a run.
pub type RunDecision = Decision<RunStatus>;

/// Status of a run, as far as decisions about its attempts read and write it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Phase of the run.
    pub phase: Option<RunPhase>,
    /// Version of the work that this status describes, or `None` before its first record.
    pub version: Option<i64>,
    /// Fields about attempts.
    pub attempt: AttemptStatus,
    /// Fields that every kind has.
    pub progress: CommonStatus,
}

api::embed!(RunStatus, attempt: AttemptStatus);

impl Status for RunStatus {
    api::common_status!(RunPhase, RunToCompletion);

    fn epoch(&self) -> i64 {
        self.version.unwrap_or(0)
    }
}

/// Observed children of a run.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// All Jobs in the run's namespace with its UID in their label, of any version and attempt.
    pub jobs: Vec<JobView>,
    /// All Pods in the run's namespace with its UID in their label.
    pub pods: Vec<PodView>,
    /// All ConfigMaps in the run's namespace with its UID in their label, of any version.
    pub config_maps: Vec<ConfigMapView>,
    /// Warnings about these Jobs and Pods.
    pub warnings: Vec<Warning>,
}

/// A run with its observed state, the input of each step of the decision.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The work of the run.
    pub work: &'a dyn Work,
    /// Data of the run.
    pub spec: Spec<'a>,
    /// Observed children.
    pub world: &'a World,
    /// The current time.
    pub now: Timestamp,
    /// Failure of an effect of this reconciliation: a permanent one, or one after the deadline of the effects.
    pub fault: Option<&'a ReconcileError>,
    /// Whether the failure is that of an optional effect.
    pub refused: bool,
    /// Whether this reconciliation read the world from the API server.
    pub confirmed: bool,
    /// Stored status, or an empty one before the first write.
    pub status: RunStatus,
    /// UID of the run. Without a UID, no object can belong to the run.
    pub uid: &'a str,
    /// Namespace of the run.
    pub namespace: &'a str,
}

/// Stage of a run within its version, according to the stored status.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage<'a> {
    /// No attempt was started.
    NotStarted,
    /// The attempt with this Job is in progress.
    InProgress(&'a str),
    /// An attempt was given up with this result, and its Job is being stopped.
    Stopping(&'a Evidence),
    /// An attempt failed with this result, and the next one waits for its start time.
    RetryBackoff(&'a Evidence),
}

impl<'a> Run<'a> {
    /// Returns the run with this stored status.
    pub fn new(
        work: &'a dyn Work,
        spec: Spec<'a>,
        world: &'a World,
        status: RunStatus,
        now: Timestamp,
    ) -> Self {
        Self {
            work,
            spec,
            world,
            now,
            fault: None,
            refused: false,
            confirmed: false,
            status,
            uid: spec.metadata.uid.as_deref().unwrap_or_default(),
            namespace: spec.metadata.namespace.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the base of the next status: the stored one, with the current version filled in.
    pub fn next(&self) -> RunStatus {
        let mut status = self.status.clone();
        status.version.get_or_insert(self.spec.version);
        status
    }

    /// Returns the stored phase. A run starts as Pending.
    pub fn phase(&self) -> RunPhase {
        self.status.phase.unwrap_or(RunPhase::Pending)
    }

    /// Returns whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.phase().is_terminal()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.spec.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// Returns whether a user forbids the deletion of everything that this run leaves.
    pub fn is_preserved(&self) -> bool {
        self.annotation(names::PRESERVE) == Some("true")
    }

    /// Returns the stage of the run.
    pub fn stage(&self) -> Stage<'_> {
        match (&self.status.result, &self.status.job_name) {
            (Some(result), _) if result.finished_at.is_none() => Stage::Stopping(result),
            (Some(result), _) => Stage::RetryBackoff(result),
            (None, Some(job)) => Stage::InProgress(job),
            (None, None) => Stage::NotStarted,
        }
    }

    /// Returns the Jobs that belong to this run. A label can be copied; the owner's UID cannot.
    pub fn jobs(&self) -> impl Iterator<Item = &'a JobView> {
        let uid = self.uid;
        self.world
            .jobs
            .iter()
            .filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))
    }

    /// Returns the Job of this name, unless the status records another UID for it.
    pub fn job(&self, name: &str) -> Option<&'a JobView> {
        let recorded = self.recorded_uid(name);
        self.jobs()
            .find(|job| job.name == name && recorded.is_none_or(|uid| job.uid == uid))
    }

    /// Returns whether a Job is verified to belong to this run: its own metadata is not enough.
    pub(crate) fn is_proven(&self, job: &JobView) -> bool {
        job.proven || self.recorded_uid(&job.name) == Some(&job.uid)
    }

    fn recorded_uid(&self, job: &str) -> Option<&str> {
        let is_named = self.status.job_name.as_deref() == Some(job);
        self.status.job_uid.as_deref().filter(|_| is_named)
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.world.pods.iter()
    }

    /// Returns the Pods of a Job.
    pub fn pods_of(&self, job: &JobView) -> impl Iterator<Item = &'a PodView> {
        self.pods()
            .filter(|pod| pod.job_uid.as_ref() == Some(&job.uid))
    }

    /// Returns the newest Pod of the Job, which determines the attempt's state. Pods that we stopped by suspending the
    /// Job are ignored.
    pub fn newest_pod(&self, job: &JobView) -> Option<&'a PodView> {
        self.pods_of(job)
            .filter(|pod| !predates_suspension(job, pod))
            .max_by(|one, other| (one.created, &one.uid).cmp(&(other.created, &other.uid)))
    }

    /// Returns Pods that may still run although their Job no longer exists.
    pub(crate) fn orphaned_pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.pods().filter(|pod| {
            may_run(pod)
                && !self
                    .jobs()
                    .any(|job| pod.job_uid.as_ref() == Some(&job.uid))
        })
    }

    /// Returns the ConfigMaps that belong to this run.
    pub(crate) fn config_maps(&self) -> impl Iterator<Item = &'a ConfigMapView> {
        let uid = self.uid;
        self.world
            .config_maps
            .iter()
            .filter(move |map| !uid.is_empty() && map.owner_uid.as_deref() == Some(uid))
    }

    /// Returns the ConfigMap with this version's files, if it is verified to be ours.
    pub(crate) fn files(&self) -> Option<&'a ConfigMapView> {
        let name = self.work.config_map_name()?;
        let recorded = self.status.config_map_uid.as_ref();
        self.config_maps().find(|map| {
            let is_ours = map.proven || recorded == Some(&map.uid);
            map.name == name && is_ours
        })
    }

    /// Returns the number of the next attempt and the name of its Job. A disrupted attempt is started again under
    /// another name.
    pub fn next_attempt(&self) -> (u32, String) {
        let begun = self.status.attempts;
        if let Stage::RetryBackoff(result) = self.stage()
            && disruption::was_disrupted(result)
        {
            // Attempts that ended as disrupted before disruptions were counted have a count of 0.
            let replaced_after = Some(self.status.disruptions.max(1));
            return (begun, self.work.job_name(begun, replaced_after));
        }
        let next = begun.saturating_add(1);
        (next, self.work.job_name(next, None))
    }

    /// Returns the settings by which the attempt with this Job is evaluated, if they are known.
    pub(crate) fn attempt_spec(&self, job: &JobView) -> Option<AttemptSpec> {
        job.terms.clone().or_else(|| self.work.settings())
    }

    /// Returns how long the container of an attempt that starts now may take to start.
    pub fn start_limit(&self) -> Duration {
        let settings = self.work.settings();
        settings.map_or(START_WAIT, |settings| settings.start_timeout())
    }

    /// Returns how long the container of this Job may take to start.
    pub(crate) fn start_timeout(&self, job: &JobView) -> Duration {
        self.attempt_spec(job)
            .map_or(START_WAIT, |spec| spec.start_timeout())
    }

    /// Returns how long the container of this Job may run: the run's timeout, or else the frozen one.
    pub(crate) fn timeout(&self, job: &JobView) -> Duration {
        let frozen = || self.attempt_spec(job).map(|spec| spec.timeout());
        self.spec.timeout.or_else(frozen).unwrap_or(RUN_TIME)
    }

    /// Returns how long the Pod of this Job may run, counted from the start of its main container.
    pub(crate) fn pod_time(&self, job: &JobView) -> Duration {
        self.timeout(job).saturating_add(self.spec.after_main)
    }

    /// Returns the stored deadline of the current wait, unless it is absurd.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.status.progress.deadline(MAX_WAIT, self.now)
    }

    /// Returns the stored start time of the next attempt, unless it is absurd. An earlier release stored it as the
    /// deadline.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let due = self.status.next_attempt_at.as_ref().map(|time| time.0);
        let is_sane = |due: &Timestamp| *due <= time::after(self.now, MAX_WAIT);
        due.filter(is_sane).or_else(|| self.deadline())
    }

    /// Returns the deadline of everything that an attempt needs before its Job exists: the stored one, or a new one.
    pub(crate) fn start_deadline(&self) -> Timestamp {
        let stored = match self.stage() {
            // Until the attempt is due, the stored deadline is that time.
            Stage::RetryBackoff(_) => self.deadline().filter(|at| self.due() < Some(*at)),
            Stage::NotStarted | Stage::InProgress(_) | Stage::Stopping(_) => self.deadline(),
        };
        stored.unwrap_or_else(|| self.after(self.start_limit()))
    }

    /// Returns the instant `wait` from now.
    pub fn after(&self, wait: Duration) -> Timestamp {
        time::after(self.now, wait)
    }

    /// Returns the current time as an object stores it.
    pub fn stamp(&self) -> Time {
        Time(time::whole(self.now))
    }

    /// Returns reason and message of the stored status.
    pub fn stored_message(&self) -> Option<(Reason, String)> {
        let condition = self.status.progress.condition(condition::SUCCEEDED)?;
        Some((
            Reason::from_name(&condition.reason)?,
            condition.message.clone(),
        ))
    }

    pub(crate) fn delete(&self, job: &JobView) -> Effect {
        Effect::Delete(self.target(ResourceType::JOB, &job.name, &job.uid))
    }

    /// Returns the target of an effect on an object in the run's namespace.
    pub fn target(&self, resource: ResourceType, name: &str, uid: &str) -> Target {
        Target {
            resource,
            namespace: Some(self.namespace.to_owned()),
            name: name.to_owned(),
            uid: uid.to_owned(),
            version: None,
            requires_intent: None,
            optional: false,
        }
    }
}

/// Returns whether a Pod was stopped because its Job was suspended.
///
/// The Job lists the Pods that we knew when we suspended it. Our view of them may be old: a listed Pod that seems to
/// run does not. For other Pods, the creation time alone proves nothing: the Job controller creates a Pod *before* the
/// Job reports that it was resumed.
pub(crate) fn predates_suspension(job: &JobView, pod: &PodView) -> bool {
    let made_before = |at: Timestamp| pod.created.is_some_and(|made| made < at);
    let is_stopped = !job.suspended && job.stopped_pods.contains(&pod.uid) && may_run(pod);
    is_stopped || (pod.stop_asked.is_some() && job.resumed.is_some_and(made_before))
}

/// Returns whether a program of this Pod may still run, as far as is known.
pub(crate) fn may_run(pod: &PodView) -> bool {
    pod.container.exit().is_none() && !pod.phase.is_over()
}

/// Describes a Pod in messages.
pub fn describe_pod(pod: &PodView) -> String {
    match &pod.node {
        Some(node) => format!("Pod '{}' on node '{node}'", pod.name),
        None => format!("Pod '{}'", pod.name),
    }
}

/// Lists at most three of `things` for a message.
pub fn some_of(things: &[String]) -> String {
    let shown: Vec<&str> = things.iter().take(3).map(String::as_str).collect();
    let rest = things.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if rest > 0 {
        format!("{list} and {rest} more")
    } else {
        list
    }
}
