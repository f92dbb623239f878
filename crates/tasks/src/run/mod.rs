//! A run executes an agent as a Job. [`run_spec`] describes the run for both kinds: a TaskRun works on versioned files, a
//! DocsRun on a repository. [`docs`] has the additional steps of a DocsRun.
//!
//! [`decide()`] is an ordered chain. Each step is a module:
//!
//! - `delete`: stops a run that is being deleted.
//! - `outcome`: keeps a finished run unchanged.
//! - `version`: moves the status to a newer version of the context.
//! - `start`: starts an attempt.
//! - `in_progress`: handles an attempt in progress, which `attempt`, `cause` and `attempt_result` read. `suspend` suspends it, and
//!   `disruption` counts its disruptions.
//! - `finish`: handles the end of an attempt, the stop before it, and the next attempt.
//! - `cleanup`: deletes children after the end.
//!
//! Before a final conclusion, the engine reads the objects that `confirm` lists from the API server.

mod attempt;
mod attempt_result;
pub mod attempt_spec;
mod cause;
mod cleanup;
mod confirm;
mod decide;
mod delete;
mod disruption;
pub mod docs;
mod finish;
mod in_progress;
mod outcome;
mod proof;
pub mod run_spec;
mod start;
mod suspend;
mod version;
mod world;

use std::time::Duration;

use api::{
    decide::{Decision, ResourceType},
    tasks::TaskRunStatus,
};

pub use decide::decide;
pub use world::{Cleanup, Defaults, RunWorld};

/// API resource type of a TaskRun.
pub const RESOURCE: ResourceType = api::tasks::TASK_RUN.resource;

/// Decision about a run.
pub type RunDecision = Decision<TaskRunStatus>;

/// How long an attempt waits for its prerequisites: its Agent, and the end of earlier Jobs and Pods. Equal to the
/// default `startTimeout`.
const START_WAIT: Duration = Duration::from_secs(600);
/// How long a container may run if no other limit is known: the default `timeout`.
const RUN_TIME: Duration = Duration::from_secs(3600);
/// How long to wait until a stopped Job and its Pods are deleted. A Pod has 30 seconds of grace. If the deletion takes
/// longer than this wait, the node is lost.
const STOP_WAIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
