//! A real Kubernetes cluster for tests.
//!
//! - [`parts`] and [`images`] are built once into a cache, by `cargo xtask testbed build`;
//! - [`cluster`] starts them: a [`cluster::Tier`] in namespaces of its own, with the
//!   [`addition::Addition`]s that a test needs;
//! - [`audit`] reads the requests that the API server logged;
//! - [`machine`] compares the machine before and after a cluster;
//! - [`operator_image`] and [`runner_image`] build the images of the product for its nodes.
//!
//! For tests only: no release contains it. `testkit` builds on it.

pub mod addition;
pub mod audit;
pub mod build;
mod cache;
pub mod cluster;
pub mod commands;
pub mod image_cache;
pub mod images;
pub mod layout;
pub mod load;
pub mod lock;
pub mod machine;
pub mod operator_image;
pub mod parts;
pub mod process;
pub mod runner_image;
pub mod tools;
pub mod wait;
