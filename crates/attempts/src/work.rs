//! The differences between kinds of runs: the data of a run, and its behavior.

use std::{fmt::Debug, time::Duration};

use api::{
    Reason, Verdict,
    decide::{ConditionUpdate, LiveRead, Manifest, ResourceType},
    tasks::{ChildTtl, Retry, Version},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    AttemptResult, RunDecision,
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

    /// Returns the reason why no attempt can start now. `is_stored`: the ConfigMap exists. If the verdict is
    /// [`Stalled`](api::State::Stalled), no attempt of this version can ever start, and the run fails. Otherwise the
    /// run waits up to its start limit, and then fails.
    fn blocker(&self, is_stored: bool) -> Option<Verdict>;

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

    /// Evaluates the exit of the container that ended the Pod. `failure` is the message of a Job that failed. Without
    /// it, the Job is complete, and nothing contradicts exit code 0. Only this function creates a success.
    fn evaluate(
        &self,
        pod: &PodView,
        exit: &Exit,
        failure: Option<&str>,
        settings: Option<&AttemptSpec>,
    ) -> AttemptResult;

    /// Returns whether a failed attempt is worth another one.
    fn may_repeat(&self, result: &AttemptResult) -> bool;
}

/// Settings by which an attempt is evaluated, frozen when it starts. If the object that they come from, such as an
/// Agent, changes while the container runs, the conditions of success and the time limits must not change. So they are
/// stored in an annotation of the Job's Pod template, which is immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSpec {
    /// How long the container may take to start, in milliseconds.
    pub start_timeout_ms: u64,
    /// How long the container may run, in milliseconds. The run's own timeout is not frozen: its author may change it.
    pub timeout_ms: u64,
    /// Names of the required results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Memory limit, for the message when it was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// User that the container runs as.
    pub user: i64,
}

impl AttemptSpec {
    /// Parses the settings from an annotation. Returns `None` if the annotation has none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let Ok(spec) = serde_json::from_str(text) else {
            return None;
        };
        Some(spec)
    }

    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
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
    /// Earlier versions of the work that ended, or that were superseded. A kind without versions has none.
    pub history: &'a [Version],
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
