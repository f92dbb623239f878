//! Phases as a type: which there are, which may follow which, what ends a wait in each.
//!
//! One table per kind. The engine refuses a transition that is not in it, and the docs'
//! state diagram is drawn from it.

use std::fmt::Debug;

/// A kind's phase.
///
/// # Guarantees
/// - [`Phase::TABLE`] has a row for each phase (a test of each kind checks it).
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
