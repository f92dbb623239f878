//! `DocsRun`: documentation for a repository, written by an agent, pushed and verified.

use std::collections::BTreeMap;

use kube::{CustomResource, CustomResourceExt, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{AttemptStatus, ChildTtl, File, RunPhase, condition};
use crate::{
    CommonStatus, GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    pod::NamedRef,
    rules,
    status::Attempt,
};

/// Documentation for a repository, written by an agent without credentials, then pushed and
/// verified.
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
    doc = "Documentation for a repository, written by an agent without credentials, then pushed and verified."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::unchanging_option("model", "DocsRun"),
    validation = rules::unchanging_option("instructions", "DocsRun"),
    validation = rules::unchanging_option("credentialsSecretRef", "DocsRun")
)]
pub struct DocsRunSpec {
    /// URL of the repository: `https://host/path` or `ssh://user@host/path`. Immutable.
    ///
    /// It contains no user or password for https; those are in the Secret. The operator rejects
    /// addresses that Pods and Services of a cluster may have, and plain `http://`, unless its
    /// configuration allows them.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::repository_url())]
    pub repository_url: String,

    /// Branch that the agent reads. The run works on the head that the branch has when the run
    /// starts, even if the branch changes later. Immutable.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::branch())]
    pub source_branch: String,

    /// Directory of the repository that the agent works in. Immutable. Default: `.`, the root.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::unchanging("DocsRun"), validation = rules::repository_path())]
    pub working_directory: String,

    /// Agent that writes the documentation, in the same namespace. Immutable.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub agent_name: String,

    /// Model that the agent should use, passed to it as `ORCHESTRATOR_MODEL`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::one_line())]
    pub model: Option<String>,

    /// Files for the agent, in addition to those of the Agent itself. They describe the
    /// documentation and its audience. Their total size, together with the Agent's `instructions`,
    /// must not exceed 900 KiB. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["filename".into()]))]
    pub instructions: Vec<File>,

    /// Whether the agent sees the whole checkout, with its `.git` of one commit. If false, the
    /// agent sees only `workingDirectory`, without `.git`. Immutable. Default: false.
    #[serde(default)]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub include_codebase: bool,

    /// Secret with the credentials of the Git server: `username` and `password` for https,
    /// `identity` and `known_hosts` for ssh, `ca.crt` for a private certificate authority. The
    /// agent never sees the Secret. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<NamedRef>,

    /// Branch, directory and commit message of the documentation. Immutable.
    #[serde(default)]
    #[x_kube(validation = rules::unchanging("DocsRun"))]
    pub output: Output,

    /// Maximum duration of the agent's work, from `1s` to `168h`. Default: the Agent's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("1s", "168h"))]
    pub timeout: Option<Duration>,

    /// Suspends the run: nothing is started, and running containers are stopped. When set back to
    /// false, the attempt restarts from the beginning. Default: false.
    #[serde(default)]
    pub suspend: bool,

    /// Ends an unfinished run as `Failed` with the reason `Cancelled`, and stops a running
    /// container. If the current attempt failed by itself, or is already being stopped, the run
    /// keeps the reason of that attempt. No other attempt starts. A commit that is already pushed
    /// stays. This field cannot be set back to false. Default: false.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self || !oldSelf").message("cannot be taken back; submit another DocsRun"))]
    pub cancel: bool,

    /// How long the Job and the ConfigMap are kept after the run has ended. Overrides the
    /// operator's configuration, even if that disables the cleanup.
    #[serde(rename = "childTTL", default, skip_serializing_if = "Option::is_none")]
    pub child_ttl: Option<ChildTtl>,
}

fn root() -> String {
    ".".to_owned()
}

/// Branch, directory and commit message of the documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Branch that the run pushes. If the branch already exists, the run adds one commit to it.
    /// Default: `docs/` followed by the name of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::branch())]
    pub branch: Option<String>,

    /// Directory of the repository that is committed from the agent's checkout. Changes outside it
    /// are ignored. Default: `docs/`.
    #[serde(default = "docs")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::repository_path())]
    pub path: String,

    /// Whether a run that changes nothing fails (`NoChanges`). Default: true.
    #[serde(default = "yes")]
    pub require_changes: bool,

    /// Message of the commit. Lines that identify the run are appended.
    /// Default: `Documentation by NAMESPACE/NAME`.
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

/// Observed state of a DocsRun.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocsRunStatus {
    /// Phase of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// Commit that the run works on: the head of `sourceBranch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Branch that the run pushes. This field and `branchHead` are recorded before anything can be
    /// pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Head of that branch before the push; absent if the branch did not exist. If the branch has
    /// another head at the time of the push, it is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_head: Option<String>,
    /// Commit that the container `publish` reported as pushed. The run succeeds only after the Git
    /// server confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Files that the commit changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<ChangedFiles>,
    /// Files below `output.path` that were not committed: links, special files, names that Git
    /// could treat as its own (such as `.git*`) or that cannot be displayed, and files that would
    /// replace a link, a submodule or a directory, or turn a file into a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<ChangedFiles>,
    /// UID of the first Pod that reached its container `publish`. From then on, the branch may
    /// contain a commit of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// Number of times that `deadlineAt` was extended because there was no current response of the
    /// Git server. At most once in each wait for the repository or for the confirmation of the push.
    #[serde(default)]
    pub deadline_extensions: u32,
    /// Fields that every kind of runs has.
    #[serde(flatten)]
    pub attempt: AttemptStatus,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

crate::embed!(DocsRunStatus, attempt: AttemptStatus);

/// Number of files, with some of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFiles {
    /// Number of files.
    pub count: u64,
    /// Names of the first files, at most 20; fewer if they do not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
}

impl Status for DocsRunStatus {
    crate::common_status!(RunPhase, RunToCompletion);

    fn attempt(&self) -> Attempt {
        Attempt {
            number: self.attempts,
            restarts: self.disruptions,
        }
    }
    /// The push is recorded before the Job that could push is created.
    fn has_intent(&self, intent: &str) -> bool {
        push_intent(self).is_some_and(|stored| stored == intent)
    }
}

/// The row of DocsRuns in the table of kinds.
pub const DOCS_RUN: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "DocsRun", "docsruns"),
    crd_name: "docsruns.orchestrator.io",
    singular: "docsrun",
    short_name: "odr",
    listed: "docs",
    aliases: &[],
    is_namespaced: true,
    lifecycle: DocsRunStatus::LIFECYCLE,
    columns: &[
        Column::new("Phase", Content::Text("status.phase")),
        Column::new("Reason", Content::Reason("Succeeded")),
        Column::new("Branch", Content::Text("status.branch")),
        Column::new("Attempt", Content::Number("status.attempts")),
        Column::AGE,
        Column::STARTED,
        Column::FINISHED,
        Column::new("Commit", Content::Text("status.commit")).wide(),
        Column::MESSAGE,
    ],
    conditions: condition::MEANINGS,
    epoch: DocsRunStatus::EPOCH,
    phases: describe_phases::<<DocsRunStatus as Status>::Phase>,
    derived_crd: DocsRun::crd,
};

/// Returns the push that a status announces: its base, its branch and the head of that branch.
/// Returns `None` before these are recorded.
#[must_use]
pub fn push_intent(status: &DocsRunStatus) -> Option<String> {
    let (base, branch) = (status.base_commit.as_ref()?, status.branch.as_ref()?);
    let head = status.branch_head.as_deref().unwrap_or("nothing");
    Some(format!("push {base} to '{branch}' at {head}"))
}

impl DocsRun {
    /// Returns the branch that this run pushes.
    #[must_use]
    pub fn output_branch(&self) -> String {
        self.spec.output.branch.clone().unwrap_or_else(|| {
            let name = self.metadata.name.as_deref().unwrap_or_default();
            ["docs/", name].concat()
        })
    }
}

/// Returns the labels that the operator sets on a run. Users select runs by them.
#[must_use]
pub fn docs_labels(spec: &DocsRunSpec) -> BTreeMap<&'static str, String> {
    use crate::names::{AGENT, label_value};
    [(AGENT, label_value(&spec.agent_name))].into()
}

/// Names of a run's children. Only this module builds them. Each name contains the name of the run,
/// so two runs share no child.
pub mod names {
    use crate::names::child;

    /// Returns `{name}-docs-files`.
    #[must_use]
    pub fn config_map(run: &str) -> String {
        child(run, "-docs-files")
    }

    /// Returns `{name}-docs`, with `-a2` … for later attempts. If the Job of the attempt had to be
    /// replaced, `-d1` … is the number of disruptions before that.
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
