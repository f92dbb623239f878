//! The notebooks operator: a [`NotebookValidationJob`](api::notebooks::NotebookValidationJob) runs a notebook in a user's
//! image and compares its outputs with a golden notebook.
//!
//! Decisions are pure functions of the observed state. [`decide()`] reads as the table of phases. Before the attempts,
//! [`sources`] resolves the references to commits. [`build`] creates the Job of an attempt. [`report`] reads the report of
//! the runner, and only [`evaluate`] creates a success. [`runner_log`] reads the progress and the full result from the
//! runner's log. [`image_build`] decides about builds, which no job can ask for yet.

pub mod build;
#[cfg(feature = "controller")]
pub mod controller;
mod decide;
pub mod evaluate;
pub mod full_result;
pub mod image_build;
pub mod metrics;
pub mod report;
pub mod results;
pub mod runner_log;
pub mod sources;
mod work;
pub mod world;

pub use decide::{NotebookDecision, decide};
