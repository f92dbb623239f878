//! The tasks family: an [`Agent`] says what runs, a [`TaskRun`] runs it on versioned files, a
//! [`DocsRun`] runs it on a repository and pushes what it wrote.

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
    Evidence, File, KeepChildren, RunPhase, RunPod, TaskRun, TaskRunSpec, TaskRunStatus, Version,
    condition, names,
};

/// The most bytes that all files of a run may have together: a ConfigMap holds 1 MiB, and its
/// keys and metadata need some.
pub const CONTEXT_LIMIT: usize = 900 * 1024;
