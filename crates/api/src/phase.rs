//! Phases as a type: the phases of a kind, the transitions between them, and the end of each wait.
//!
//! Each kind has one table. The engine rejects a transition that is not in the table, stores the
//! deadline of each phase ([`crate::deadline`]), and reports to `decide` that it has passed. The state
//! diagram of the docs is drawn from the same table.

mod describe;

use std::{fmt::Debug, time::Duration};

pub use describe::{PhaseText, describe_phases};

/// A phase of a kind.
///
/// # Guarantees
/// - [`Phase::TABLE`] has a row for each phase: [`phases!`](crate::phases) declares both.
/// - If no row allows a transition, the engine reports a `Bug` instead of writing the phase.
pub trait Phase: Copy + Eq + Debug + Send + Sync + 'static {
    /// The spec from which the limits of the table are computed; `()` if no limit needs it.
    type Spec: Sync + 'static;

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
pub struct PhaseRow<P: Phase> {
    /// The phase.
    pub phase: P,
    /// Meaning of the phase, for the docs.
    pub meaning: &'static str,
    /// The deadline of the phase.
    pub deadline: Deadline<P>,
    /// The undo of the phase, for an object that leaves it other than forward.
    pub undo: Undo<P>,
    /// Phases that may follow. If the list is empty, the phase is terminal.
    pub next: &'static [P],
}

/// The deadline of a phase.
pub enum Deadline<P: Phase> {
    /// None. Only for terminal and steady phases, and while a user must act.
    None {
        /// The event that ends the phase, for the docs; empty if nothing has to.
        until: &'static str,
    },
    /// A limit, counted from the start of the phase.
    After {
        /// The limit.
        limit: Limit<P::Spec>,
        /// The phase that follows. If it is the phase itself, the object stays and reports the
        /// blocker.
        next: P,
    },
    /// A limit that begins again with each progress, and a limit that no progress moves.
    Progress {
        /// The longest time without progress.
        idle: Limit<P::Spec>,
        /// The longest time in the phase.
        cap: Limit<P::Spec>,
        /// The phase that follows.
        next: P,
    },
    /// Several waits in one phase. Each begins with an event in the cluster, such as the start of a
    /// container, so the decisions set the deadline themselves
    /// ([`crate::CommonStatus::deadline_at`]). The engine only stores it and requeues the object.
    Decided {
        /// The waits and their limits, for the docs.
        waits: &'static str,
        /// The phase that follows if no other attempt is left.
        next: P,
    },
}

/// A limit that depends on the spec.
pub struct Limit<Spec> {
    /// The source of the limit, for the docs: a field or a duration.
    pub text: &'static str,
    /// Computes the limit.
    pub of: fn(&Spec) -> Duration,
}

impl<P: Phase> Deadline<P> {
    /// Creates no deadline: the phase ends with this event, or needs no end.
    #[must_use]
    pub const fn none(until: &'static str) -> Self {
        Self::None { until }
    }

    /// Creates a deadline after a limit.
    #[must_use]
    pub const fn after(text: &'static str, of: fn(&P::Spec) -> Duration, next: P) -> Self {
        let limit = Limit { text, of };
        Self::After { limit, next }
    }

    /// Creates a deadline that depends on progress.
    #[must_use]
    pub const fn progress(idle: Limit<P::Spec>, cap: Limit<P::Spec>, next: P) -> Self {
        Self::Progress { idle, cap, next }
    }

    /// Creates a deadline that decisions set.
    #[must_use]
    pub const fn decided(waits: &'static str, next: P) -> Self {
        Self::Decided { waits, next }
    }

    /// Returns the phase that follows when the deadline passes.
    #[must_use]
    pub fn next(&self) -> Option<P> {
        match self {
            Self::None { .. } => None,
            Self::After { next, .. } | Self::Progress { next, .. } | Self::Decided { next, .. } => {
                Some(*next)
            }
        }
    }
}

/// The undo of a phase.
pub enum Undo<P> {
    /// Nothing has to be undone.
    None,
    /// The decisions of the phase itself undo it, before the object leaves it; for the docs.
    Within(&'static str),
    /// This phase undoes it. An object in deletion is not released before.
    Phase(P),
}

/// Declares the phases of a kind. One declaration creates the enum and its table, so no phase can
/// lack a row.
///
/// ```
/// use api::phase::{Deadline, Phase, Undo};
/// use std::time::Duration;
///
/// /// Spec of a door.
/// pub struct DoorSpec {
///     /// Longest time that it stays closed.
///     pub patience: Duration,
/// }
///
/// api::phases! {
///     /// State of a door.
///     pub enum DoorPhase for DoorSpec {
///         Closed: "Nobody passes.",
///             deadline Deadline::after("`patience`", |door: &DoorSpec| door.patience, DoorPhase::Open),
///             undo Undo::None => [Open];
///         Open: "Everybody passes.", deadline Deadline::none(""), undo Undo::None => [];
///     }
/// }
/// assert!(DoorPhase::Closed.may_become(DoorPhase::Open));
/// assert!(DoorPhase::Open.is_terminal());
/// ```
#[macro_export]
macro_rules! phases {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident for $spec:ty {
            $($phase:ident: $meaning:literal, deadline $deadline:expr, undo $undo:expr
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
            type Spec = $spec;

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
