//! The kinds of Orchestrator: types, validation rules, conditions, reasons, names and labels.
//!
//! Nothing here talks to a server or reads a clock, so that every decision can be tested with
//! plain values. CRDs, RBAC, the field reference, the reason reference and the state diagrams
//! are generated from this crate by `cargo xtask generate`.

pub mod crd;
pub mod decide;
pub mod kubelet;
pub mod names;
pub mod phase;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
pub mod pod;
pub mod policy;
pub mod quantity;
pub mod rbac;
pub mod reason;
mod rules;
pub mod status;
pub mod tasks;
pub mod tenants;

pub use phase::{Phase, PhaseRow};
pub use reason::Reason;
pub use status::{Progress, Shape, State, Status, Verdict};

/// The API group of every kind.
pub const GROUP: &str = "orchestrator.io";

/// The field manager of our writes.
pub const MANAGER: &str = "orchestrator";

/// Re-exported, so that every crate uses the same clock type.
pub use jiff::Timestamp;

/// Re-exported: durations are written in one way, in specs and in the configuration.
pub use kube::core::Duration;
