//! The tasks operator: an Agent describes a container. A TaskRun runs it on versioned files, a DocsRun on a repository.
//! Each run executes as a Job.
//!
//! Decisions are pure functions of the observed state: they use no client, no clock and no async runtime.
//! [`agent::decide`], [`run::decide()`] and [`run::docs::decide()`] read as the state diagrams of their kinds.
//! [`build`] creates the manifests of their children.

pub mod agent;
pub mod build;
#[cfg(feature = "controller")]
mod contents;
#[cfg(feature = "controller")]
pub mod controller;
#[cfg(feature = "controller")]
mod lookup;
pub mod run;
pub mod view;

use attempts::time;
