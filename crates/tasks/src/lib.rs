//! The tasks family: an Agent says what runs, a TaskRun runs it on versioned files, a DocsRun on a
//! repository, as a Job.
//!
//! Everything here is a pure function of what was observed: no client, no clock, no async
//! runtime. [`agent::decide`], [`run::decide()`] and [`run::docs::decide()`] read as the state diagrams of their kinds.

pub mod agent;
#[cfg(feature = "controller")]
pub mod controller;
#[cfg(feature = "controller")]
mod lookup;
pub mod run;
mod time;
pub mod view;
