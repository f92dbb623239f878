//! Explains any object by its deepest blocker, with evidence and the next command: `orc why`.
//!
//! [`explain()`] is a pure function over a [`World`] that was read before. [`render()`] turns its
//! [`Explanation`] into text. The feature `gather` adds functions that read from a cluster.

#[macro_use]
mod explain;
pub mod explanation;
#[cfg(feature = "gather")]
pub mod gather;
pub mod leader;
mod namespace_conditions;
mod render;
mod times;
mod view;
pub mod world;

pub use explain::explain;
pub use explanation::Explanation;
#[cfg(feature = "gather")]
pub use gather::gather;
pub use render::render;
pub use world::{ObjectRef, World};
