//! The kinds of the tasks operator. An [`Agent`] defines a program and its environment. A [`TaskRun`] runs it on
//! versioned files. A [`DocsRun`] runs it on a repository and pushes the documentation that it
//! wrote.

#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive repeats each struct inside a function; columns share a type"
)]
mod agent;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod docs;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the schema derive repeats each struct inside a function; columns share a type"
)]
mod run;

pub use crate::pod::{Amount, EnvSource, EnvVar, KeyRef, NamedRef, Resources};
pub use agent::{
    Agent, AgentPhase, AgentSpec, AgentStatus, Backoff, EnvFrom, ResultSpec, Retry, Workspace,
};
pub use docs::{
    ChangedFiles, DocsRun, DocsRunSpec, DocsRunStatus, Output, names as docs_names, push_intent,
};
pub use run::{
    AttemptStatus, ChildTtl, Evidence, File, RunPhase, RunPod, TaskRun, TaskRunSpec, TaskRunStatus,
    Version, condition, names,
};

/// Maximum total size of all files of a run, in bytes. A ConfigMap holds 1 MiB, and its keys and
/// metadata need some of it.
pub const CONTEXT_LIMIT: usize = 900 * 1024;
