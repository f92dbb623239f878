//! The kinds of the tasks operator. An [`Agent`] defines a program and its environment. A [`TaskRun`] runs it on
//! versioned files. A [`DocsRun`] runs it on a repository and pushes the documentation that it
//! wrote.

#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod agent;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod docs;
mod permissions;
mod reasons;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod run;

use crate::{kinds::OperatorRow, policy};

pub use crate::pod::{Amount, EnvSource, EnvVar, KeyRef, NamedRef, Resources};
pub use agent::{
    AGENT, Agent, AgentPhase, AgentSpec, AgentStatus, Backoff, EnvFrom, ResultSpec, Retry, Volume,
    Workspace,
};
pub use docs::{
    ChangedFiles, DOCS_RUN, DocsRun, DocsRunSpec, DocsRunStatus, Output, docs_labels,
    names as docs_names, push_intent,
};
pub use run::{
    AttemptStatus, ChildTtl, Evidence, File, RunPhase, RunPod, TASK_RUN, TaskRun, TaskRunSpec,
    TaskRunStatus, Version, condition, names, run_labels,
};

/// Maximum total size of all files of a run, in bytes. A ConfigMap holds 1 MiB, and its keys and
/// metadata need some of it.
pub const CONTEXT_LIMIT: usize = 900 * 1024;

const LEASE: &str = "orchestrator-tasks";

/// The row of the tasks operator in the table of kinds.
pub const OPERATOR: OperatorRow = OperatorRow {
    name: "tasks",
    summary: "Agents and the runs of their tasks",
    lease: LEASE,
    needs_all_namespaces: None,
    kinds: &[AGENT, TASK_RUN, DOCS_RUN],
    permissions: permissions::PERMISSIONS,
    policies: policy::of_tasks,
    reasons: reasons::REASONS,
};
