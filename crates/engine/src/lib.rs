//! The reconcile loop of every kind: watch → queue → observe → decide → act → record.
//!
//! An operator (tasks, tenants) implements [`Kind`] for each of its kinds. It collects the observed
//! state from caches, and a pure function decides on effects and status. The engine does everything
//! else, in the same way for every kind.
//!
//! ```text
//!  watch ──▶ queue ──▶ observe ──▶ decide ──▶ act ──▶ record
//! ```
//!
//! - [`watch`] and [`cache`]: the known state of the cluster, reduced to the needed
//!   fields and indexed.
//! - [`children`]: the children of an object; [`proven`]: objects that this process
//!   created or verified.
//! - [`controller`] and [`queue`]: order and concurrency of reconciliations; [`backoff`]: the
//!   delay after an error.
//! - [`kind`]: the trait that an operator implements.
//! - [`external`]: requests to servers outside the caches, beside the reconciliations; [`live`]: reads
//!   of single objects with the writers of their fields.
//! - [`schemas`]: whether the installed CRDs have all fields of this program.
//! - [`leader`], [`supervise`], [`health`], [`metrics`], [`client`], [`clock`]: the process
//!   around the loop.

mod apply;
mod events;
mod guard;
mod invalid_object;
mod reconcile;
mod status_update;

pub mod backoff;
pub mod cache;
pub mod children;
pub mod client;
pub mod clock;
pub mod controller;
pub mod external;
pub mod fault;
pub mod health;
pub mod key;
pub mod kind;
pub mod leader;
pub mod live;
pub mod metrics;
pub mod proven;
pub mod queue;
pub mod schemas;
pub mod supervise;
pub mod warnings;
pub mod watch;
pub mod watch_health;

pub use cache::{Bounds, Cache, Packing};
pub use controller::{Context, Controller, Handle};
pub use key::Key;
pub use kind::{Kind, PhaseSpec};
pub use watch::{OptionalCache, OptionalType, Presence, Scope, Watch, WatchManager};
pub use watch_health::Availability;
