//! A run executes an agent as a Job. [`run_spec`] describes the run for both kinds: a TaskRun works on versioned files, a
//! DocsRun on a repository. [`docs`] has the additional steps of a DocsRun.
//!
//! The crate [`attempts`] decides about the Jobs of a run. Here is the rest of [`decide()`]:
//!
//! - `run_spec`: the Agent, the names and the children of an attempt.
//! - [`holder`]: the run that may start, of several runs of one task.
//! - `agent_result`: the result of an attempt, from the exit of its containers.
//! - `version`: moves the status to a newer version of the context.

mod agent_result;
mod decide;
pub mod docs;
pub mod holder;
pub mod run_spec;
mod version;
mod world;

use api::{
    decide::{Decision, ResourceType},
    tasks::TaskRunStatus,
};

pub use attempts::Cleanup;
pub use decide::decide;
pub use world::{Defaults, RunWorld};

/// API resource type of a TaskRun.
pub const RESOURCE: ResourceType = api::tasks::TASK_RUN.resource;

/// Decision about a TaskRun.
pub type RunDecision = Decision<TaskRunStatus>;

#[cfg(test)]
mod tests;
