//! The tasks family: an Agent says what runs, a TaskRun runs it on versioned files, as a Job.
//!
//! Everything here is a pure function of what was observed: no client, no clock, no async
//! runtime. [`agent::decide`] and [`run::decide`] read as the state diagrams of their kinds.

pub mod agent;
#[cfg(feature = "controller")]
pub mod controller;
pub mod run;
mod time;
pub mod view;
