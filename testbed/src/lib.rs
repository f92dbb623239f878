//! A real Kubernetes cluster for tests.
//!
//! - [`parts`] and [`images`] are built once into a cache, by `cargo xtask testbed build`;
//! - [`cluster`] starts them: a [`cluster::Tier`] in namespaces of its own;
//! - [`audit`] reads the requests that the API server logged;
//! - [`machine`] compares the machine before and after a cluster.
//!
//! For tests only: no release contains it. `testkit` builds on it.

pub mod audit;
mod cache;
pub mod cluster;
pub mod image_cache;
pub mod images;
pub mod layout;
pub mod load;
pub mod lock;
pub mod machine;
pub mod parts;
pub mod process;
pub mod wait;
