//! A run: an agent at work, as a Job. [`order`] says for which kind: a TaskRun's on versioned files,
//! or a DocsRun's on a repository, whose own steps are in [`docs`].
//!
//! [`decide()`] is an ordered chain; each step is a module: `delete`, `outcome` (what has ended
//! stays as it is), `version` (a newer context), `start`, `going` (an attempt, read by `attempt`,
//! `cause` and `judge`; `suspend` holds it, `disruption` counts who stops it), `conclude` (its
//! end, the stop before it, the next one), `cleanup`.

mod attempt;
mod cause;
mod children;
mod cleanup;
mod conclude;
pub mod contract;
mod decide;
mod delete;
mod disruption;
pub mod docs;
mod going;
mod judge;
pub mod order;
mod outcome;
mod start;
mod suspend;
pub mod terms;
mod version;
mod world;

use std::time::Duration;

use api::{
    decide::{Decision, NoExternal, ResourceType},
    tasks::TaskRunStatus,
};

pub use decide::decide;
pub use world::{Cleanup, Defaults, RunWorld};

/// What a run is to the API server.
pub const RESOURCE: ResourceType = ResourceType::new(api::GROUP, "v1", "TaskRun", "taskruns");

/// What is decided about a run.
pub type RunDecision = Decision<TaskRunStatus, NoExternal>;

/// How long an attempt waits for what it needs before it can start: its Agent, the end of what
/// ran before it. As long as the default `startTimeout`.
const START_WAIT: Duration = Duration::from_secs(600);
/// How long a container may run where nothing says so: the default `timeout`.
const RUN_TIME: Duration = Duration::from_secs(3600);
/// How long to wait until a stopped Job and its Pods are gone. A Pod has 30 seconds of grace;
/// what takes longer than this has lost its node.
const STOP_WAIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
