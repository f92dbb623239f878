//! The flow that every kind runs on: watch → queue → observe → decide → act → record.
//!
//! A family implements [`Kind`]: it gathers a world from caches and decides, purely, what to do
//! and what to say. The engine does everything else, the same way for every kind.
//!
//! ```text
//!  watch ──▶ queue ──▶ observe ──▶ decide ──▶ act ──▶ record
//! ```
//!
//! - [`watch`] and [`cache`]: what is known of the cluster, thin and indexed.
//! - [`controller`] and [`queue`]: who is looked at when; [`backoff`]: how long after a fault.
//! - [`kind`]: what a family implements.
//! - [`leader`], [`supervise`], [`health`], [`metrics`], [`client`], [`clock`]: the process around it.

mod act;
mod events;
mod pass;
mod poison;
mod record;

pub mod backoff;
pub mod cache;
pub mod client;
pub mod clock;
pub mod controller;
pub mod fault;
pub mod feeds;
pub mod health;
pub mod key;
pub mod kind;
pub mod leader;
pub mod metrics;
pub mod queue;
pub mod supervise;
pub mod watch;

pub use cache::Cache;
pub use controller::{Context, Controller, Handle};
pub use key::Key;
pub use kind::Kind;
pub use watch::{Hub, Scope, Watch};
