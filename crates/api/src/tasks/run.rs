//! `TaskRun`: one task, run by an agent on versioned files.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Retry;
use crate::{Progress, Status, rules};

/// One task, run by an agent on versioned files, as a Job.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1",
    kind = "TaskRun",
    plural = "taskruns",
    singular = "taskrun",
    shortname = "otr",
    category = "orchestrator",
    namespaced,
    status = "TaskRunStatus",
    derive = "PartialEq",
    doc = "One task, run by an agent on versioned files, as a Job.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason"
    ),
    printcolumn(
        name = "Version",
        type_ = "integer",
        json_path = ".status.contextVersion"
    ),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".status.attempts"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.contextVersion > oldSelf.contextVersion || self.markdownFiles == oldSelf.markdownFiles")
        .message("'markdownFiles' may change only together with a higher 'contextVersion'")
        .field_path(".markdownFiles"),
    validation = Rule::new("!oldSelf.cancel || self.contextVersion == oldSelf.contextVersion")
        .message("a cancelled run cannot be started again; submit another TaskRun")
        .field_path(".contextVersion")
)]
pub struct TaskRunSpec {
    /// The task's number.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"))]
    pub task_id: i64,

    /// The service that the task is about.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"),
        validation = rules::one_line()
    )]
    pub service_name: String,

    /// The Agent that runs it, in the same namespace.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"))]
    pub agent_name: String,

    /// The version of the files. A higher one starts the task again with the new files.
    #[serde(default = "default_version")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[x_kube(
        validation = Rule::new("self >= oldSelf")
            .message("may only grow")
    )]
    pub context_version: i64,

    /// The files that the agent reads. They may change only together with a higher
    /// `contextVersion`, and none may disappear. Together with the Agent's instructions they
    /// may have 900 KiB.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["filename".into()]),
        validation = Rule::new("oldSelf.all(old, self.exists(new, new.filename == old.filename))")
            .message(Message::Expression("\"an earlier file may not disappear: '\" + oldSelf.map(old, !self.exists(new, new.filename == old.filename), old.filename)[0] + \"' is missing\"".into()))
    )]
    pub markdown_files: Vec<File>,

    /// Overrides the Agent's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Option<Duration>,

    /// Overrides the Agent's `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,

    /// Holds the run: nothing is started, and a container that runs is stopped. When it is taken
    /// back, the attempt runs again from its start; the time between counts for no limit.
    #[serde(default)]
    pub suspend: bool,

    /// Ends the run as `Failed` with the reason `Cancelled`, whatever it was doing. It cannot be
    /// taken back.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self || !oldSelf").message("cannot be taken back; submit another TaskRun"))]
    pub cancel: bool,

    /// How long Jobs and ConfigMaps stay after the end. Overrides the operator's configuration,
    /// also where that cleans up nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_children: Option<KeepChildren>,
}

/// How long Jobs and ConfigMaps stay after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.succeeded) || has(self.failed)")
        .message("must name 'succeeded', 'failed' or both")
)]
pub struct KeepChildren {
    /// After a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("0s", "8760h"))]
    pub succeeded: Option<Duration>,
    /// After any other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("0s", "8760h"))]
    pub failed: Option<Duration>,
}

fn default_version() -> i64 {
    1
}

/// A file of the context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Its name: one segment, no path.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")
    )]
    pub filename: String,
    /// Its text.
    #[schemars(length(max = 921_600))]
    pub content: String,
}

/// What is known about a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`. For people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The version of the context that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_version: Option<i64>,
    /// The Job of the attempt that goes on or was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The ConfigMap with the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// How many attempts were begun.
    #[serde(default)]
    pub attempts: u32,
    /// How often the agent was stopped from outside. That uses no attempt.
    #[serde(default)]
    pub disruptions: u32,
    /// The Pod of this attempt, from its container's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<RunPod>,
    /// When the agent's container of this attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When the wait that goes on ends: for the container's start, for its end, or for the next
    /// attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// How the last attempt ended: what was read from its container before anything was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Evidence>,
    /// The versions before this one, at most the last 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Version>,
    /// What every kind has.
    #[serde(flatten)]
    pub progress: Progress,
}

/// The Pod of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The node that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When we saw that something outside stops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disrupted_at: Option<Time>,
}

/// What a container left behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The program's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the attempt ended as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the agent returned. Readable by everyone who can read the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, String>,
    /// The image that really ran.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// The node that it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The Pod's UID.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// When the container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the container ended, or, where nothing says so, when we knew that it had. Absent while
    /// an attempt that was given up is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// How an earlier version ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The version.
    pub context_version: i64,
    /// The phase that it had reached.
    pub phase: String,
    /// Why.
    pub reason: String,
    /// How many attempts were begun.
    pub attempts: u32,
    /// How often the agent was stopped from outside.
    #[serde(default)]
    pub disruptions: u32,
    /// When it ended or was superseded.
    pub finished_at: Time,
    /// What its last container left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Evidence>,
}

crate::phases! {
    /// Where a run stands.
    pub enum RunPhase {
        Pending: "It waits: for its Agent, for a place, for its image, for the next attempt, or until it is resumed.",
            deadline "`startTimeout` of the Agent, from the Job's creation; the retry's backoff between attempts",
            undo "the Job is deleted" => [Running, Succeeded, Failed];
        Running: "The agent's container runs.",
            deadline "`timeout` of the run or the Agent, from the container's start",
            undo "the Job is deleted" => [Pending, Succeeded, Failed];
        Succeeded: "It ended well, and the evidence for it was read.",
            deadline "", undo "" => [];
        Failed: "It ended otherwise; `status.result` and the reason say how.",
            deadline "", undo "" => [];
    }
}

impl Status for TaskRunStatus {
    crate::common_status!(RunPhase, Run);

    const EPOCH: Option<&'static str> = Some("spec.contextVersion");

    fn epoch(&self) -> i64 {
        self.context_version.unwrap_or(0)
    }
    fn attempt(&self) -> u32 {
        self.attempts
    }
    fn disruptions(&self) -> u32 {
        self.disruptions
    }
}

/// The condition types of a run beyond the common ones.
pub mod condition {
    /// The ConfigMap with the files exists.
    pub const CONTEXT_READY: &str = "ContextReady";
    /// The Job of this attempt exists.
    pub const JOB_CREATED: &str = "JobCreated";

    /// All of them with what they mean, for the docs.
    pub const MEANINGS: &[(&str, &str)] = &[
        (CONTEXT_READY, "The ConfigMap with the files exists."),
        (JOB_CREATED, "The Job of this attempt exists."),
    ];
}

/// Names of a run's children: the one place where they are made.
pub mod names {
    use super::TaskRunSpec;
    use crate::names::child;

    /// `{service}-{task}-v{version}-files`.
    #[must_use]
    pub fn config_map(spec: &TaskRunSpec) -> String {
        child(&base(spec), &format!("-v{}-files", spec.context_version))
    }

    /// `{service}-{task}-v{version}`, with `-a2` … for later attempts, and `-d1` … where the
    /// attempt's Job had to be replaced, after this many disruptions.
    #[must_use]
    pub fn job(spec: &TaskRunSpec, attempt: u32, replaced_after: Option<u32>) -> String {
        let later = if attempt > 1 {
            format!("-a{attempt}")
        } else {
            String::new()
        };
        let again = replaced_after.map_or_else(String::new, |count| format!("-d{count}"));
        child(
            &base(spec),
            &format!("-v{}{later}{again}", spec.context_version),
        )
    }

    fn base(spec: &TaskRunSpec) -> String {
        format!("{}-{}", spec.service_name, spec.task_id)
    }
}
