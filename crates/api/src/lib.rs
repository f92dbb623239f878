//! The kinds of Orchestrator: types, validation rules, conditions, reasons, names and labels.
//!
//! This crate makes no requests and reads no clock, so a test can check every decision with plain
//! values. [`kinds`] is the table of all kinds. `cargo xtask generate` generates the CRDs, the RBAC rules,
//! the field reference, the reason reference and the state diagrams from it.

pub mod apps;
pub mod claim;
pub mod content;
pub mod crd;
pub mod deadline;
pub mod decide;
pub mod error;
pub mod external;
pub mod kinds;
pub mod messages;
pub mod names;
pub mod notebooks;
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
pub mod time;
pub mod warning;
pub mod webhook;

pub use phase::{Phase, PhaseRow};
pub use reason::Reason;
pub use status::{CommonStatus, Lifecycle, State, Status, Verdict};

/// Gives a struct the fields of the struct in one of its fields, by `Deref` and `DerefMut`.
#[macro_export]
macro_rules! embed {
    ($outer:ty, $field:ident: $inner:ty) => {
        impl std::ops::Deref for $outer {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.$field
            }
        }

        impl std::ops::DerefMut for $outer {
            fn deref_mut(&mut self) -> &mut $inner {
                &mut self.$field
            }
        }
    };
}

/// The API group of every kind.
pub const GROUP: &str = "orchestrator.io";

/// The field manager of our writes.
pub const MANAGER: &str = "orchestrator";

/// Re-exported, so that every crate uses the same timestamp type.
pub use jiff::Timestamp;

/// Re-exported, so that specs and the configuration have the same duration syntax.
pub use kube::core::Duration;
