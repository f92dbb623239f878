//! Phases as a type: which there are, which may follow which, what ends a wait in each.
//!
//! One table per kind. The engine refuses a transition that is not in it, and the docs'
//! state diagram is drawn from it.

use std::fmt::Debug;

/// A kind's phase.
///
/// # Guarantees
/// - [`Phase::TABLE`] has a row for each phase: both come from [`phases!`](crate::phases).
/// - The engine turns a transition that no row allows into a `Bug` instead of writing it.
pub trait Phase: Copy + Eq + Debug + Send + Sync + 'static {
    /// All phases, the first one is where an object starts.
    const TABLE: &'static [PhaseRow<Self>];

    /// The name in `status.phase`.
    fn name(self) -> &'static str;

    /// Its row, if the table has one.
    fn row(self) -> Option<&'static PhaseRow<Self>> {
        Self::TABLE.iter().find(|row| row.phase == self)
    }

    /// Whether nothing follows.
    fn is_terminal(self) -> bool {
        self.row().is_some_and(|row| row.next.is_empty())
    }

    /// Whether `next` may follow; staying is always allowed.
    fn may_become(self, next: Self) -> bool {
        self == next || self.row().is_some_and(|row| row.next.contains(&next))
    }
}

/// One row of a kind's table.
#[derive(Debug, Clone, Copy)]
pub struct PhaseRow<P: 'static> {
    /// The phase.
    pub phase: P,
    /// What it means, for the docs.
    pub meaning: &'static str,
    /// What ends the wait in it; empty for a terminal phase.
    pub deadline: &'static str,
    /// What is undone when an object leaves it other than forward; empty if nothing.
    pub undo: &'static str,
    /// Which phases may follow. None: the phase is terminal.
    pub next: &'static [P],
}

/// Declares a kind's phases: the enum and its table are one thing, so a phase cannot lack a row.
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

/// Inside an `impl Status`: the methods that are the same for every status with the fields
/// `phase: Option<…>` and `progress: Progress`.
#[macro_export]
macro_rules! common_status {
    ($phase:ident, $shape:ident) => {
        type Phase = $phase;
        const SHAPE: $crate::Shape = $crate::Shape::$shape;

        fn phase(&self) -> Option<$phase> {
            self.phase
        }
        fn set_phase(&mut self, phase: $phase) {
            self.phase = Some(phase);
        }
        fn progress(&self) -> &$crate::Progress {
            &self.progress
        }
        fn progress_mut(&mut self) -> &mut $crate::Progress {
            &mut self.progress
        }
    };
}
