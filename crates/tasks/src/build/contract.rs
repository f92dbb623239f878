//! The agent contract: the environment of an agent's container, and its obligations. One table for
//! each. The Job is built from these tables, and so is the page of the docs.

use api::tasks::{AgentSpec, TaskRun};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::docs_containers::source_dir;
use crate::run::run_spec::{Docs, Workload};

/// Inputs for the value of a variable.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Name and identity of the run.
    pub metadata: &'a ObjectMeta,
    /// The work of the run: a TaskRun or a DocsRun.
    pub work: Workload<'a>,
    /// Spec of the Agent that the run uses.
    pub agent: &'a AgentSpec,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// Name of the agent's container. Its exit counts.
pub const CONTAINER: &str = "agent";
/// Directory that the agent starts in.
pub const WORKSPACE: &str = "/workspace";
/// Writable home directory.
pub const HOME: &str = "/home/agent";
/// Writable directory for temporary files.
pub const TMP: &str = "/tmp";
/// File that results are written to.
pub const RESULT_FILE: &str = "/dev/termination-log";
/// Length at which the kubelet truncates a termination message, in bytes, in a Pod with at most three
/// containers. A message of this length or more may lack its end and proves nothing. In a Pod with
/// more containers, [`pods::message_limit`] is shorter.
pub const RESULT_LIMIT: usize = 4096;
/// Time between SIGTERM and SIGKILL, in seconds.
pub const GRACE_SECONDS: i64 = 30;
/// Prefix of variable names that are reserved for us.
pub const RESERVED: &str = "ORCHESTRATOR_";

/// An environment variable of every agent.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Description for the docs.
    pub meaning: &'static str,
    /// Value of the variable, or `None` if runs of this kind do not have it.
    pub value: fn(&Facts<'_>) -> Option<String>,
}

fn task<'a>(facts: &Facts<'a>) -> Option<&'a TaskRun> {
    match facts.work {
        Workload::Task(run) => Some(run),
        Workload::Docs(_) => None,
    }
}

fn docs<'a>(facts: &Facts<'a>) -> Option<Docs<'a>> {
    match facts.work {
        Workload::Docs(docs) => Some(docs),
        Workload::Task(_) => None,
    }
}

/// The environment, in this order. It comes before the Agent's own variables, so that those may
/// refer to it. Variables from `envFrom` cannot replace it.
pub const ENVIRONMENT: &[Variable] = &[
    Variable {
        name: "ORCHESTRATOR_RUN",
        meaning: "The name of the run.",
        value: |facts| Some(facts.metadata.name.clone().unwrap_or_default()),
    },
    Variable {
        name: "ORCHESTRATOR_NAMESPACE",
        meaning: "The namespace of the run.",
        value: |facts| Some(facts.metadata.namespace.clone().unwrap_or_default()),
    },
    Variable {
        name: "ORCHESTRATOR_UID",
        meaning: "The UID of the run: different for two runs of the same name.",
        value: |facts| Some(facts.metadata.uid.clone().unwrap_or_default()),
    },
    Variable {
        name: "ORCHESTRATOR_TASK_ID",
        meaning: "`taskId` of a TaskRun.",
        value: |facts| task(facts).map(|run| run.spec.task_id.to_string()),
    },
    Variable {
        name: "ORCHESTRATOR_SERVICE",
        meaning: "`serviceName` of a TaskRun.",
        value: |facts| task(facts).map(|run| run.spec.service_name.clone()),
    },
    Variable {
        name: "ORCHESTRATOR_CONTEXT_VERSION",
        meaning: "`contextVersion` of a TaskRun: the version of the files.",
        value: |facts| task(facts).map(|run| run.spec.context_version.to_string()),
    },
    Variable {
        name: "ORCHESTRATOR_ATTEMPT",
        meaning: "The number of this attempt within the version, from 1. A Pod that was terminated by another actor may be replaced within one attempt.",
        value: |facts| Some(facts.attempt.to_string()),
    },
    Variable {
        name: "ORCHESTRATOR_CONTEXT_DIR",
        meaning: "The folder with the files, read-only.",
        value: |facts| Some(facts.agent.context_path.clone()),
    },
    Variable {
        name: "ORCHESTRATOR_WORKSPACE",
        meaning: "The writable folder that the agent starts in.",
        value: |_| Some(WORKSPACE.to_owned()),
    },
    Variable {
        name: "ORCHESTRATOR_RESULT_FILE",
        meaning: "The file that results are written to.",
        value: |_| Some(RESULT_FILE.to_owned()),
    },
    Variable {
        name: "ORCHESTRATOR_REPOSITORY",
        meaning: "`repositoryUrl` of a DocsRun.",
        value: |facts| docs(facts).map(|docs| docs.run.spec.repository_url.clone()),
    },
    Variable {
        name: "ORCHESTRATOR_BASE_COMMIT",
        meaning: "The commit that a DocsRun works on.",
        value: |facts| docs(facts).map(|docs| docs.status.base_commit.clone().unwrap_or_default()),
    },
    Variable {
        name: "ORCHESTRATOR_SOURCE_DIR",
        meaning: "`workingDirectory` of a DocsRun, in the checkout. It may be written; only what is in the next folder counts.",
        value: |facts| docs(facts).map(|docs| source_dir(&docs.run.spec.working_directory)),
    },
    Variable {
        name: "ORCHESTRATOR_OUTPUT_DIR",
        meaning: "`output.path` of a DocsRun, in the checkout: the folder whose regular files are committed and pushed.",
        value: |facts| docs(facts).map(|docs| source_dir(&docs.run.spec.output.path)),
    },
    Variable {
        name: "ORCHESTRATOR_MODEL",
        meaning: "`model` of a DocsRun, if it names one.",
        value: |facts| docs(facts).and_then(|docs| docs.run.spec.model.clone()),
    },
    Variable {
        name: "HOME",
        meaning: "A writable home.",
        value: |_| Some(HOME.to_owned()),
    },
];

/// A directory that every agent has.
#[derive(Debug, Clone, Copy)]
pub struct Mount {
    /// Name of the volume.
    pub volume: &'static str,
    /// Description for the docs.
    pub meaning: &'static str,
    /// Whether the directory is read-only.
    pub read_only: bool,
    /// Path of the mount.
    pub path: fn(&AgentSpec) -> &str,
}

/// Name of the volume with the files.
pub const CONTEXT_VOLUME: &str = "context";
/// Name of the volume that the agent starts in.
pub const WORKSPACE_VOLUME: &str = "workspace";
/// Name of the volume with the home directory.
pub const HOME_VOLUME: &str = "home";
/// Name of the volume for temporary files.
pub const TMP_VOLUME: &str = "tmp";

/// Prefix of the names of an Agent's own volumes. An admission policy admits their sources by it.
pub const VOLUME_PREFIX: &str = "volume-";

/// The mounts. The workspace comes before the context, because the context may be inside it.
pub const MOUNTS: &[Mount] = &[
    Mount {
        volume: WORKSPACE_VOLUME,
        meaning: "The working directory, empty at the start of each attempt; `workspace.size` of the Agent is the most that it holds.",
        read_only: false,
        path: |_| WORKSPACE,
    },
    Mount {
        volume: CONTEXT_VOLUME,
        meaning: "The Agent's instructions and the run's files, one file each; a run's file of the same name wins.",
        read_only: true,
        path: |agent| &agent.context_path,
    },
    Mount {
        volume: HOME_VOLUME,
        meaning: "The home, empty at the start of each attempt.",
        read_only: false,
        path: |_| HOME,
    },
    Mount {
        volume: TMP_VOLUME,
        meaning: "For what need not be kept, empty at the start of each attempt.",
        read_only: false,
        path: |_| TMP,
    },
];

/// A rule of the contract, for the docs.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Behavior of the agent.
    pub when: &'static str,
    /// Conclusion of the operator.
    pub then: &'static str,
}

/// Meaning of exit codes.
pub const EXIT_CODES: &[Rule] = &[
    Rule {
        when: "0",
        then: "The attempt succeeded, if its results are as the Agent promises and the Pod was not asked to stop before the program ended.",
    },
    Rule {
        when: "1 to 128, 193 to 255",
        then: "The attempt failed: `NonZeroExit`. `status.result.exitCode` has the code; the first lines of a plain-text termination message are repeated in the message.",
    },
    Rule {
        when: "129 to 192",
        then: "As above; `status.result.signal` is the code less 128.",
    },
    Rule {
        when: "any, after the container used more memory than its limit",
        then: "The attempt failed: `OOMKilled`.",
    },
];

/// Rules for returning results.
pub const RESULTS: &[Rule] = &[
    Rule {
        when: "nothing is written to the result file",
        then: "There are no results; `ResultMissing` if the Agent requires one.",
    },
    Rule {
        when: "one JSON object of less than 4096 bytes is written",
        then: "Each key is a result in `status.result.results`, readable by everyone who can read the run. A value that is no string is kept as its JSON text; `null` is no value.",
    },
    Rule {
        when: "4096 bytes or more are written",
        then: "`ResultTooLarge`: the kubelet cuts there, so what was read proves nothing. In a Pod with more than three containers, with injected ones, it cuts at 12 KiB divided by their number.",
    },
    Rule {
        when: "anything else is written and the exit code is 0",
        then: "`ResultInvalid`.",
    },
];

/// Rules for stopping an agent.
pub const STOPPING: &[Rule] = &[
    Rule {
        when: "the time is over, the run is suspended, cancelled or deleted, a newer version of the context takes its place, or the cluster takes the Pod away",
        then: "The program gets SIGTERM, and SIGKILL 30 seconds later.",
    },
    Rule {
        when: "the program is asked to stop and then ends with 0",
        then: "That is no success: it did not end by itself.",
    },
    Rule {
        when: "the run is resumed, or the cluster took the Pod away",
        then: "The program is started again from its start, in a new and empty workspace. It must be able to start over.",
    },
];

/// Returns the values of [`ENVIRONMENT`] for an attempt.
pub(super) fn environment(facts: &Facts<'_>) -> Vec<(&'static str, String)> {
    ENVIRONMENT
        .iter()
        // Kubernetes expands `$(NAME)` in a Pod's variable. Without escaping, the name of a service
        // could change.
        .filter_map(|variable| {
            let value = (variable.value)(facts)?;
            Some((variable.name, value.replace('$', "$$")))
        })
        .collect()
}
