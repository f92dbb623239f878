//! Attempts of a run: a run executes its work as a Job, and repeats it after failures and disruptions.
//!
//! A kind implements [`Work`], describes its run by a [`Spec`], and passes both with its observed children as a [`Run`].
//! All decisions are pure functions of that value: they use no client, no clock and no async runtime. The stored status
//! is [`RunStatus`], of which [`AttemptStatus`](api::tasks::AttemptStatus) is a part of the kind's own status.
//!
//! [`conclude`] decides about runs that end, [`advance`] about all others. Each step is a module:
//!
//! - `delete`: stops a run that is being deleted.
//! - `outcome`: keeps a finished run unchanged.
//! - `start`: starts an attempt.
//! - `in_progress`: handles an attempt in progress, which `attempt`, `cause` and `attempt_result` read. `suspend`
//!   suspends it, and `disruption` counts its disruptions.
//! - `finish`: handles the end of an attempt, the stop before it, and the next attempt. `stop` chooses the step of a
//!   stop that keeps the most evidence. `lost_log` finds out whether the log of an attempt is lost.
//! - `cleanup`: deletes children after the end.
//! - [`restricted`]: builds the parts of a Pod that Pod Security requires.
//! - [`step`]: builds the containers of the toolbox's steps, also for Jobs that are no attempts.
//!
//! Before a final conclusion, the engine reads the objects that `confirm` lists from the API server. Before a success,
//! it compares a Job that only claims to be the run's (`proof`).
//!
//! # Guarantees
//! - Effects change children only, never the run's own spec.
//! - Nothing is created for a run that is being deleted or has ended, or while a Job or Pod of it may still run.
//! - The stored status contains the evidence before an effect deletes the object that carries it.
//! - Only a success is concluded from a cache alone. Any other end, and the release of a run that did not end, needs a
//!   live read.
//! - The same input gives the same decision. Every wait has a stored time at which it ends, unless the run is suspended.
//!   While the API server rejects an effect, the engine stores the time of [`Decision::effects_deadline`].
//!
//! [`Decision::effects_deadline`]: api::decide::Decision::effects_deadline

mod attempt;
mod attempt_result;
mod cause;
#[cfg(feature = "controller")]
pub mod children;
mod cleanup;
mod confirm;
mod decide;
mod delete;
mod disruption;
mod finish;
mod in_progress;
mod job;
mod lost_log;
mod outcome;
mod proof;
pub mod restricted;
mod run;
mod start;
pub mod step;
mod stop;
mod suspend;
pub mod time;
pub mod view;
mod work;

use std::time::Duration;

pub use attempt::{recent, unrecorded_result};
pub use attempt_result::{AttemptResult, evidence, memory_limit};
pub use decide::{advance, checked, conclude, with_conditions};
pub use finish::{backoff, fail_run, finish_run, finish_stored, not_started};
pub use job::job_spec;
pub use run::{Run, RunDecision, RunStatus, Stage, World, describe_pod, some_of};
pub use start::{FIRST_RECORD_DELAY, before_start, is_unrecorded};
pub use work::{AttemptSpec, Cleanup, Container, Containers, Spec, Work};

/// How long an attempt waits for its prerequisites without an Agent that sets the time. Equal to the default
/// `startTimeout`.
pub const START_WAIT: Duration = Duration::from_secs(600);
/// How long a container may run if no other limit is known: the default `timeout`.
const RUN_TIME: Duration = Duration::from_secs(3600);
/// How long to wait until a stopped Job and its Pods are deleted. A Pod has 30 seconds of grace. If the deletion takes
/// longer than this wait, the node is lost.
const STOP_WAIT: Duration = Duration::from_secs(600);
/// Minimum time that a deadline leaves a Pod that is stopped.
pub const STOP_TIME: Duration = Duration::from_secs(300);
/// Margin of the Job's own limit beyond ours. The operator ends an attempt itself. The Job's limit applies only while
/// no operator runs.
const BACKSTOP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
