//! `TaskRun`: one task, run by an agent on versioned files.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, CustomResourceExt, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Retry;
use crate::{
    CommonStatus, GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::{Deadline, Undo, describe_phases},
    rules,
    status::Attempt,
};

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
    doc = "One task, run by an agent on versioned files, as a Job."
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
    /// Number of the task. Immutable.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"))]
    pub task_id: i64,

    /// Name of the service that the task is about. Immutable.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"),
        validation = rules::one_line()
    )]
    pub service_name: String,

    /// Agent that runs the task, in the same namespace. Immutable.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cannot be changed; submit another TaskRun"))]
    pub agent_name: String,

    /// Version of the files. A higher version starts the task again with the new files. A lower
    /// version is rejected. Default: 1.
    #[serde(default = "default_version")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    #[x_kube(
        validation = Rule::new("self >= oldSelf")
            .message("may only grow")
    )]
    pub context_version: i64,

    /// Files that the agent reads. They may change only together with a higher `contextVersion`,
    /// and no file may disappear. Their total size, together with the Agent's `instructions`, must
    /// not exceed 900 KiB.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["filename".into()]),
        validation = Rule::new("oldSelf.all(old, self.exists(new, new.filename == old.filename))")
            .message(Message::Expression("\"an earlier file may not disappear: '\" + oldSelf.map(old, !self.exists(new, new.filename == old.filename), old.filename)[0] + \"' is missing\"".into()))
    )]
    pub markdown_files: Vec<File>,

    /// Maximum duration of one attempt, from the start of its container, from `1s` to `168h`.
    /// Default: the Agent's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Option<Duration>,

    /// Retries of a failed attempt: the number of attempts, and the delay between them.
    /// Default: the Agent's `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,

    /// Suspends the run: nothing is started, and a running container is stopped. When set back to
    /// false, the attempt restarts from the beginning. Suspended time does not count toward any
    /// timeout. Default: false.
    #[serde(default)]
    pub suspend: bool,

    /// Ends an unfinished run as `Failed` with the reason `Cancelled`, and stops a running
    /// container. If the current attempt ended by itself, or is already being stopped, the run ends
    /// with the result of that attempt instead. No other attempt starts. A cancelled run cannot get
    /// a higher `contextVersion`. This field cannot be set back to false. Default: false.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self || !oldSelf").message("cannot be taken back; submit another TaskRun"))]
    pub cancel: bool,

    /// How long Jobs and ConfigMaps are kept after the run has ended. Overrides the operator's
    /// configuration, even if that disables the cleanup.
    #[serde(rename = "childTTL", default, skip_serializing_if = "Option::is_none")]
    pub child_ttl: Option<ChildTtl>,
}

/// How long Jobs and ConfigMaps are kept after a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.succeeded) || has(self.failed)")
        .message("must name 'succeeded', 'failed' or both")
)]
pub struct ChildTtl {
    /// Time to keep them after a success, from `0s` to `8760h`. Default: the operator's
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("0s", "8760h"))]
    pub succeeded: Option<Duration>,
    /// Time to keep them after any other end, from `0s` to `8760h`. Default: the operator's
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("0s", "8760h"))]
    pub failed: Option<Duration>,
}

fn default_version() -> i64 {
    1
}

/// File of the context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Name of the file: one segment, without a path.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")
    )]
    pub filename: String,
    /// Text of the file.
    #[schemars(length(max = 921_600))]
    pub content: String,
}

impl File {
    /// Returns a placeholder for the files of a run in a cache. The files are kept elsewhere or not
    /// at all. No real file has an empty name.
    #[must_use]
    pub fn left_out() -> Self {
        Self {
            filename: String::new(),
            content: String::new(),
        }
    }

    /// Returns whether this is the placeholder for files that were left out.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.filename.is_empty()
    }
}

/// Observed state of a TaskRun.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunStatus {
    /// Phase of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// Version of the context that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_version: Option<i64>,
    /// Fields that every kind of runs has.
    #[serde(flatten)]
    pub attempt: AttemptStatus,
    /// Earlier versions, at most the last 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Version>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

/// Observed state of the attempts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptStatus {
    /// Name of the Job of the current or last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// UID of that Job, recorded when the operator sees its container running, or earlier. It can
    /// stay absent if the operator sees the container only after its end. Another Job of the same
    /// name does not belong to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// Name of the ConfigMap with the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// UID of that ConfigMap. Another ConfigMap of the same name does not belong to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_uid: Option<String>,
    /// Number of attempts that were started. A TaskRun counts those of this version.
    #[serde(default)]
    pub attempts: u32,
    /// Number of disruptions: how often the Pod was stopped externally. A TaskRun counts those of this
    /// version. A disruption uses no attempt. The sixth one ends the run with `TooManyDisruptions`.
    #[serde(default)]
    pub disruptions: u32,
    /// Pod of this attempt, present once the operator sees its agent running (in a DocsRun also
    /// `publish`), or sees that the Pod is being stopped externally. Removed while the run is
    /// suspended. Also removed when a replacement Pod appears, until the agent runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<RunPod>,
    /// Time at which the next attempt is due, present between two attempts. From then on, `deadlineAt`
    /// is the time until which its Job must be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// Time at which the agent's container of this attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Time at which the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Result of the last attempt that ended or is being stopped. Removed when the next attempt
    /// starts. A higher `contextVersion` of a TaskRun moves it to `history`. If the Job was lost, it
    /// has only a reason, a message and an end time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Evidence>,
}

crate::embed!(TaskRunStatus, attempt: AttemptStatus);

/// Pod of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPod {
    /// Name of the Pod.
    pub name: String,
    /// UID of the Pod.
    pub uid: String,
    /// Node that the Pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Time at which the operator observed that the Pod is being stopped externally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disrupted_at: Option<Time>,
}

/// Evidence that a finished container leaves: its exit, its results and its origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Exit code of the container that ended the attempt; in a DocsRun this can be `clone` or
    /// `publish`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the program, or exit code minus 128 for codes from 129 to 192.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason for the result of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message about the result of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Results that the agent returned, by name. Every user that can read the run can read them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<String, String>,
    /// ID of the agent's image that actually ran.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Node that the Pod ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Name of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// UID of the Pod.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Time at which the container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Time at which the container ended. If no source reports it, the time at which the operator
    /// knew that it had ended. Absent while an aborted attempt is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// Result of an earlier version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Version of the context.
    pub context_version: i64,
    /// Last phase of this version.
    pub phase: String,
    /// Reason of the result, or `Superseded`.
    pub reason: String,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Number of disruptions: how often the agent was stopped externally.
    #[serde(default)]
    pub disruptions: u32,
    /// Time at which the version ended or was superseded.
    pub finished_at: Time,
    /// Result of its last attempt, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Evidence>,
}

crate::phases! {
    /// Phase of a run, for people. Programs should read the conditions.
    pub enum RunPhase for () {
        Pending: "It waits: for its Agent, for a node, for its image, for the next attempt, or until it is resumed.",
            deadline Deadline::decided("`startTimeout` of the Agent for everything before the Job, also while the API server rejects it, and again from the Job's creation; 10 minutes without an Agent, and for earlier Pods; the backoff between attempts; none while suspended", RunPhase::Failed),
            undo Undo::Within("the Job is deleted") => [Running, Succeeded, Failed];
        Running: "The agent's container runs.",
            deadline Deadline::decided("`timeout` of the run or the Agent, from the container's start; a DocsRun: 15 minutes more for `publish`, and 10 for the verification", RunPhase::Failed),
            undo Undo::Within("the Job is deleted") => [Pending, Succeeded, Failed];
        Succeeded: "It ended well, and the evidence for it was read.",
            deadline Deadline::none(""), undo Undo::None => [];
        Failed: "It ended otherwise; `status.result` and the reason give the cause.",
            deadline Deadline::none(""), undo Undo::None => [];
    }
}

impl Status for TaskRunStatus {
    crate::common_status!(RunPhase, RunToCompletion);

    const EPOCH: Option<&'static str> = Some("spec.contextVersion");

    fn epoch(&self) -> i64 {
        self.context_version.unwrap_or(0)
    }
    fn has_children(&self) -> bool {
        // After the version was raised, no attempt of the new version exists yet, but one of the
        // earlier version may still run.
        self.attempts > 0 || !self.history.is_empty()
    }
    fn attempt(&self) -> Attempt {
        Attempt {
            number: self.attempts,
            restarts: self.disruptions,
        }
    }
}

/// The row of TaskRuns in the table of kinds.
pub const TASK_RUN: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1", "TaskRun", "taskruns"),
    crd_name: "taskruns.orchestrator.io",
    singular: "taskrun",
    short_name: "otr",
    listed: "taskruns",
    aliases: &["run", "runs", "tr"],
    is_namespaced: true,
    lifecycle: TaskRunStatus::LIFECYCLE,
    columns: &[
        Column::new("Phase", Content::Text("status.phase")),
        Column::new("Reason", Content::Reason("Succeeded")),
        Column::new("Version", Content::Number("status.contextVersion")),
        Column::new("Attempt", Content::Number("status.attempts")),
        Column::AGE,
        Column::STARTED,
        Column::FINISHED,
        Column::MESSAGE,
    ],
    conditions: condition::MEANINGS,
    epoch: TaskRunStatus::EPOCH,
    phases: describe_phases::<<TaskRunStatus as Status>::Phase>,
    derived_crd: TaskRun::crd,
};

/// The condition types that only runs have.
pub mod condition {
    /// The ConfigMap with the files exists.
    pub const CONTEXT_READY: &str = "ContextReady";
    /// The Job of this attempt exists.
    pub const JOB_CREATED: &str = "JobCreated";

    /// All of them with their meanings, for the docs.
    pub const MEANINGS: &[(&str, &str)] = &[
        (CONTEXT_READY, "The ConfigMap with the files exists."),
        (JOB_CREATED, "The Job of this attempt exists."),
    ];
}

/// Returns the labels that the operator sets on a run. Users select runs by them.
#[must_use]
pub fn run_labels(spec: &TaskRunSpec) -> BTreeMap<&'static str, String> {
    use crate::names::{AGENT, SERVICE_NAME, TASK_ID, label_value};
    [
        (AGENT, label_value(&spec.agent_name)),
        (SERVICE_NAME, label_value(&spec.service_name)),
        (TASK_ID, spec.task_id.to_string()),
    ]
    .into()
}

/// Names of a run's children. Only this module builds them.
pub mod names {
    use super::TaskRunSpec;
    use crate::names::child;

    /// Returns `{service}-{task}-v{version}-files`.
    #[must_use]
    pub fn config_map(spec: &TaskRunSpec) -> String {
        child(&base(spec), &format!("-v{}-files", spec.context_version))
    }

    /// Returns `{service}-{task}-v{version}`, with `-a2` … for later attempts. If the Job of the
    /// attempt had to be replaced, `-d1` … is the number of disruptions before that.
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
