//! The differences between kinds of runs: the data of a run, and its behavior.

use std::{fmt::Debug, time::Duration};

use api::{
    Reason, Verdict,
    decide::{ConditionUpdate, LiveRead, Manifest, ResourceType},
    tasks::{ChildTtl, Retry},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    AttemptResult, AttemptSpec, RunDecision,
    view::{Exit, PodView, Step},
};

/// The work of a run. A kind implements it, and gets start, stop, retries, disruptions, suspension and cleanup of its
/// attempts.
pub trait Work: Debug {
    /// Returns the name of the Job of an attempt. `replaced_after` is the number of disruptions before that, if the
    /// attempt's first Job was disrupted. Names must differ for different arguments.
    fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String;

    /// Returns the name of the ConfigMap that the Pods mount, or `None` if they mount none of the run's own.
    fn config_map_name(&self) -> Option<String>;

    /// Returns the settings of an attempt that starts now, if they are known.
    fn settings(&self) -> Option<AttemptSpec>;

    /// Returns the reason why no attempt can start now. `is_stored`: the ConfigMap exists.
    fn blocker(&self, is_stored: bool) -> Option<Blocker>;

    /// Builds the ConfigMap. Returns `None` if there is none, or if it cannot be built now.
    ///
    /// # Errors
    /// Returns the verdict to report if the ConfigMap cannot be written.
    fn config_map(&self) -> Result<Option<Manifest>, Verdict>;

    /// Builds the Job of an attempt, with [`job_spec`](crate::job_spec) as its spec.
    ///
    /// # Errors
    /// Returns the verdict to report if the Job cannot be built.
    fn job(&self, attempt: u32, name: &str) -> Result<Manifest, Verdict>;

    /// Returns the live reads of other objects that decisions depend on.
    fn reads(&self) -> Vec<LiveRead>;

    /// Returns the conditions that only this kind has.
    fn conditions(&self, decision: &RunDecision) -> Vec<ConditionUpdate>;

    /// Evaluates an attempt whose last container exited with code 0, without a contradiction. Only this function
    /// creates a success.
    fn succeeded(
        &self,
        pod: &PodView,
        exit: &Exit,
        settings: Option<&AttemptSpec>,
    ) -> AttemptResult;

    /// Evaluates an attempt whose Job failed. `message` is the message of the Job.
    fn failed(
        &self,
        pod: &PodView,
        exit: &Exit,
        message: &str,
        settings: Option<&AttemptSpec>,
    ) -> AttemptResult;

    /// Returns whether a failed attempt is worth another one.
    fn may_repeat(&self, result: &AttemptResult) -> bool;
}

/// Reason why no attempt can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// A prerequisite is missing. The run waits for it, and then fails.
    Missing(Reason, String),
    /// A user must change something. No time counts.
    Stalled(Verdict),
}

/// Data of a run, from its object and from the operator's configuration.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// Type of the object.
    pub resource: ResourceType,
    /// Metadata of the object.
    pub metadata: &'a ObjectMeta,
    /// Version of the work. A kind without versions always has the same.
    pub version: i64,
    /// Whether the stored status announces the work. A Job that exists before that was not created by us for it.
    pub is_announced: bool,
    /// Whether the content of the ConfigMap is not in the cache.
    pub lacks_files: bool,
    /// Containers of the Pods.
    pub containers: &'static Containers,
    /// How long the main container may run, if the run sets this itself.
    pub timeout: Option<Duration>,
    /// How much longer than the main container its Pod may run.
    pub after_main: Duration,
    /// Retries of failed attempts, or `None` if they are not known.
    pub retry: Option<&'a Retry>,
    /// Whether the run is to be suspended.
    pub suspend: bool,
    /// Whether the run is to be canceled.
    pub cancel: bool,
    /// How long the run itself keeps its children.
    pub child_ttl: Option<ChildTtl>,
    /// How long children are kept otherwise.
    pub cleanup: Cleanup,
    /// Time after its end at which a run itself is deleted. `None` means never.
    pub delete_finished_runs_after: Option<Duration>,
    /// Advice for repeating a run that ended.
    pub run_again: &'static str,
    /// Field of the configuration that accepts Pods with changed content.
    pub accept_changed_pods: &'static str,
}

/// Containers of a kind's Pods that count. They run one after the other, so all but the last are init containers.
#[derive(Debug)]
pub struct Containers {
    /// Container before the main one.
    pub before: Option<Container>,
    /// Name of the container that does the work. Its start is the start of the attempt.
    pub main: &'static str,
    /// Container after the main one. Its exit is the exit of the Pod.
    pub after: Option<Container>,
}

/// A container of ours beside the main one.
#[derive(Debug)]
pub struct Container {
    /// Name of the container.
    pub name: &'static str,
    /// Reason while the container runs.
    pub reason: Reason,
    /// Activity of the container, for messages: "clones the repository".
    pub activity: &'static str,
}

impl Containers {
    /// Describes the container of a step: "the agent", "the container 'clone'".
    #[must_use]
    pub fn describe(&self, step: Step) -> String {
        let container = match step {
            Step::Before => self.before.as_ref(),
            Step::Main => None,
            Step::After => self.after.as_ref(),
        };
        container.map_or_else(
            || format!("the {}", self.main),
            |container| format!("the container '{}'", container.name),
        )
    }

    /// Returns whether a container that runs has this reason.
    pub(crate) fn is_progress(&self, reason: Reason) -> bool {
        let is_its = |container: &Container| container.reason == reason;
        reason == Reason::Progressing
            || self.before.as_ref().is_some_and(is_its)
            || self.after.as_ref().is_some_and(is_its)
    }
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
