//! `DocsRun`: documentation for a repository, written by an agent, pushed and verified.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{Evidence, File, KeepChildren, RunPhase, RunPod};
use crate::{Progress, Status, pod::NamedRef, rules};

/// Documentation for a repository, written by an agent that holds no key, pushed and verified.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "DocsRun",
    plural = "docsruns",
    singular = "docsrun",
    shortname = "odr",
    category = "orchestrator",
    namespaced,
    status = "DocsRunStatus",
    derive = "PartialEq",
    validation = rules::name_for_a_branch(),
    doc = "Documentation for a repository, written by an agent that holds no key, pushed and verified.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason"
    ),
    printcolumn(name = "Branch", type_ = "string", json_path = ".status.branch"),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".status.attempts"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Commit",
        type_ = "string",
        json_path = ".status.commit",
        priority = 1
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
    validation = rules::unchanging_option("model", "DocsRun"),
    validation = rules::unchanging_option("instructions", "DocsRun"),
    validation = rules::unchanging_option("credentialsSecretRef", "DocsRun")
)]
pub struct DocsRunSpec {
    /// The repository: `https://host/path` or `ssh://user@host/path`. No user or password in it:
    /// those are in the Secret. Addresses that a cluster's own Pods and Services may have are
    /// refused unless the operator's configuration allows them, and so is plain `http://`.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::repository_url())]
    pub repository_url: String,

    /// The branch that the agent reads. Its head when the run starts is what the run works on,
    /// whatever happens to the branch meanwhile.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::branch())]
    pub source_branch: String,

    /// The folder of the repository that the agent works in; `.` is its root.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::repository_path())]
    pub working_directory: String,

    /// The Agent that writes, in the same namespace.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub agent_name: String,

    /// The model that the agent should ask: passed on as `ORCHESTRATOR_MODEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::one_line())]
    pub model: Option<String>,

    /// Files for the agent, beside those of the Agent itself: what to write, and for whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["filename".into()]))]
    pub instructions: Vec<File>,

    /// Whether the agent sees the whole checkout, with its `.git` of one commit, or only
    /// `workingDirectory`.
    #[serde(default)]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub include_codebase: bool,

    /// The Secret with what the Git server asks for: `username` and `password` for https,
    /// `identity` and `known_hosts` for ssh, `ca.crt` for a private certificate authority. The
    /// agent never sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<NamedRef>,

    /// Where the documentation goes.
    #[serde(default)]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub output: Output,

    /// Overrides the Agent's `timeout`: how long the agent may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Option<Duration>,

    /// Holds the run: nothing is started, and what runs is stopped. When it is taken back, the
    /// attempt runs again from its start.
    #[serde(default)]
    pub suspend: bool,

    /// Ends the run as `Failed` with the reason `Cancelled`, whatever it was doing. What was pushed
    /// by then stays pushed. It cannot be taken back.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self || !oldSelf").message("cannot be taken back; submit another DocsRun"))]
    pub cancel: bool,

    /// How long the Job and the ConfigMap stay after the end. Overrides the operator's
    /// configuration, also where that cleans up nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_children: Option<KeepChildren>,
}

fn root() -> String {
    ".".to_owned()
}

/// Where the documentation goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// The branch that is pushed; `docs/` and the run's name if it is missing. A branch that is
    /// there already gets one commit more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::branch())]
    pub branch: Option<String>,

    /// The folder of the repository that is taken over from the agent: nothing beside it is.
    #[serde(default = "docs")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::repository_path())]
    pub path: String,

    /// Whether a run that changes nothing fails (`NoChanges`).
    #[serde(default = "yes")]
    pub require_changes: bool,

    /// The commit's message. A line that names the run is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2000))]
    #[x_kube(validation = rules::commit_message())]
    pub commit_message: Option<String>,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            branch: None,
            path: docs(),
            require_changes: true,
            commit_message: None,
        }
    }
}

fn docs() -> String {
    "docs/".to_owned()
}

fn yes() -> bool {
    true
}

/// What is known about a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocsRunStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`. For people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The head of `sourceBranch` that the run works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The branch that is pushed. Recorded, with what follows, before anything can be pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The head of that branch before the push; absent if there was no such branch. A branch that
    /// is elsewhere when the push comes is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_head: Option<String>,
    /// The commit that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The files that the commit changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<ChangedFiles>,
    /// What is below `output.path` and was not taken over: links, special files, names that begin
    /// with `.git`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<ChangedFiles>,
    /// The UID of the first Pod that came to its container `publish`: from then on the branch may
    /// hold a commit of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The Job of the attempt that goes on or was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The ConfigMap with the instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// How many attempts were begun.
    #[serde(default)]
    pub attempts: u32,
    /// How often the Pod was stopped from outside. That uses no attempt.
    #[serde(default)]
    pub disruptions: u32,
    /// The Pod of this attempt, from its agent's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<RunPod>,
    /// When the agent's container of this attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When the wait that goes on ends: for the repository, for the container's start, for its
    /// end, or for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// How the last attempt ended: what was read from its containers before anything was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Evidence>,
    /// What every kind has.
    #[serde(flatten)]
    pub progress: Progress,
}

/// Files: how many, and some names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFiles {
    /// How many.
    pub count: u64,
    /// The first of them, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
}

impl Status for DocsRunStatus {
    crate::common_status!(RunPhase, Run);

    fn attempt(&self) -> u32 {
        self.attempts
    }
    fn disruptions(&self) -> u32 {
        self.disruptions
    }
    /// What can be pushed is recorded before a Job exists that could push it.
    fn has_intent(&self, intent: &str) -> bool {
        push_intent(self).is_some_and(|stored| stored == intent)
    }
}

/// The push that a status announces: on which base, to which branch, from which head. `None` before
/// that is recorded.
#[must_use]
pub fn push_intent(status: &DocsRunStatus) -> Option<String> {
    let (base, branch) = (status.base_commit.as_ref()?, status.branch.as_ref()?);
    let head = status.branch_head.as_deref().unwrap_or("nothing");
    Some(format!("push {base} to '{branch}' at {head}"))
}

impl DocsRun {
    /// The branch that this run pushes.
    #[must_use]
    pub fn output_branch(&self) -> String {
        self.spec.output.branch.clone().unwrap_or_else(|| {
            let name = self.metadata.name.as_deref().unwrap_or_default();
            ["docs/", name].concat()
        })
    }
}

/// Names of a run's children: the one place where they are made. Each has the run's own name in it:
/// two runs share nothing.
pub mod names {
    use crate::names::child;

    /// `{name}-docs-files`.
    #[must_use]
    pub fn config_map(run: &str) -> String {
        child(run, "-docs-files")
    }

    /// `{name}-docs`, with `-a2` … for later attempts, and `-d1` … where the attempt's Job had to
    /// be replaced, after this many disruptions.
    #[must_use]
    pub fn job(run: &str, attempt: u32, replaced_after: Option<u32>) -> String {
        let later = if attempt > 1 {
            format!("-a{attempt}")
        } else {
            String::new()
        };
        let again = replaced_after.map_or_else(String::new, |count| format!("-d{count}"));
        child(run, &format!("-docs{later}{again}"))
    }
}
