//! A real Kubernetes cluster for tests, and what tests ask of it.
//!
//! - [`parts`] and [`images`] are built once into a cache, by `cargo xtask testbed build`;
//! - [`cluster`] starts them: a [`cluster::Tier`] in namespaces of its own;
//! - [`suite`] gives a test a client and a fresh namespace on a cluster that the run shares;
//! - [`git`] serves repositories over https and ssh;
//! - [`audit`] says who asked the API server for what, how often.
//!
//! For tests only: nothing of it is in a release.

pub mod audit;
mod cache;
pub mod cluster;
pub mod faults;
pub mod git;
pub mod image_cache;
pub mod images;
pub mod layout;
pub mod load;
pub mod lock;
pub mod machine;
pub mod operator;
pub mod parts;
pub mod process;
pub mod seed;
pub mod suite;
pub mod times;
pub mod wait;
