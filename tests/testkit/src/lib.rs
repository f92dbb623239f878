//! The harness that all suites share, on a cluster of `testbed`.
//!
//! - [`suite`] gives a test a client and a fresh namespace on a cluster that the run shares;
//! - [`junit`] writes the results of a suite for other tools;
//! - [`operator`] starts the operator under test;
//! - [`faults`] puts faults between the operator and the API server, and judges the outcome;
//! - [`git`] serves repositories over https and ssh;
//! - [`charts`] serves Helm charts over http.
//!
//! For tests only: no release contains it.

pub mod charts;
pub mod faults;
pub mod git;
pub mod junit;
pub mod operator;
pub mod report_age;
pub mod seed;
pub mod suite;
pub mod times;

// Tests need one crate for the cluster and for the harness.
pub use testbed::{
    audit, cluster, image_cache, images, layout, load, lock, machine, parts, process, wait,
};
