//! Phases as a type: the phases of a kind, the transitions between them, and the end of each wait.
//!
//! Each kind has one table. The engine rejects a transition that is not in the table, and the state
//! diagram of the docs is drawn from it.

use std::fmt::Debug;

/// A phase of a kind.
///
/// # Guarantees
/// - [`Phase::TABLE`] has a row for each phase: [`phases!`](crate::phases) declares both.
/// - If no row allows a transition, the engine reports a `Bug` instead of writing the phase.
pub trait Phase: Copy + Eq + Debug + Send + Sync + 'static {
    /// All phases. A new object is in the first one.
    const TABLE: &'static [PhaseRow<Self>];

    /// Returns the name in `status.phase`.
    fn name(self) -> &'static str;

    /// Returns the row of the phase, if the table has one.
    fn row(self) -> Option<&'static PhaseRow<Self>> {
        Self::TABLE.iter().find(|row| row.phase == self)
    }

    /// Returns whether no phase can follow.
    fn is_terminal(self) -> bool {
        self.row().is_some_and(|row| row.next.is_empty())
    }

    /// Returns whether `next` may follow. A phase may always stay the same.
    fn may_become(self, next: Self) -> bool {
        self == next || self.row().is_some_and(|row| row.next.contains(&next))
    }
}

/// A row of a kind's table.
#[derive(Debug, Clone, Copy)]
pub struct PhaseRow<P: 'static> {
    /// The phase.
    pub phase: P,
    /// Meaning of the phase, for the docs.
    pub meaning: &'static str,
    /// The end of the wait in this phase; empty for a terminal phase.
    pub deadline: &'static str,
    /// The undo action when an object leaves the phase other than forward; empty if none.
    pub undo: &'static str,
    /// Phases that may follow. If the list is empty, the phase is terminal.
    pub next: &'static [P],
}

/// Declares the phases of a kind. One declaration creates the enum and its table, so no phase can
/// lack a row.
///
/// ```
/// api::phases! {
///     /// Where a door stands.
///     pub enum DoorPhase {
///         Closed: "Nobody passes.", deadline "none", undo "" => [Open];
///         Open: "Everybody passes.", deadline "", undo "" => [];
///     }
/// }
/// use api::Phase;
/// assert!(DoorPhase::Closed.may_become(DoorPhase::Open));
/// assert!(DoorPhase::Open.is_terminal());
/// ```
#[macro_export]
macro_rules! phases {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($phase:ident: $meaning:literal, deadline $deadline:literal, undo $undo:literal
                => [$($next:ident),*];)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq,
            ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema,
        )]
        pub enum $name {
            $(#[doc = $meaning] $phase,)+
        }

        impl $crate::Phase for $name {
            const TABLE: &'static [$crate::PhaseRow<Self>] = &[
                $($crate::PhaseRow {
                    phase: Self::$phase,
                    meaning: $meaning,
                    deadline: $deadline,
                    undo: $undo,
                    next: &[$(Self::$next),*],
                },)+
            ];

            fn name(self) -> &'static str {
                match self { $(Self::$phase => stringify!($phase),)+ }
            }
        }
    };
}

/// Implements the methods of `Status` that are the same for every kind. Use it inside an
/// `impl Status`, for a status with the fields `phase: Option<…>` and `progress: CommonStatus`.
#[macro_export]
macro_rules! common_status {
    ($phase:ident, $lifecycle:ident) => {
        type Phase = $phase;
        const LIFECYCLE: $crate::Lifecycle = $crate::Lifecycle::$lifecycle;

        fn phase(&self) -> Option<$phase> {
            self.phase
        }
        fn set_phase(&mut self, phase: $phase) {
            self.phase = Some(phase);
        }
        fn progress(&self) -> &$crate::CommonStatus {
            &self.progress
        }
        fn progress_mut(&mut self) -> &mut $crate::CommonStatus {
            &mut self.progress
        }
    };
}
