//! Phase tables without their types, for the docs.

use super::{Deadline, Phase, Undo};

const NONE: &str = "–";

/// A phase as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseText {
    /// Name in `status.phase`.
    pub name: &'static str,
    /// Meaning of the phase.
    pub meaning: &'static str,
    /// Description of the deadline.
    pub deadline: String,
    /// The phase that follows when the deadline passes.
    pub after_deadline: Option<&'static str>,
    /// Description of the undo.
    pub undo: String,
    /// The phase that undoes this one.
    pub undo_phase: Option<&'static str>,
    /// Phases that may follow. If the list is empty, the phase is terminal.
    pub next: Vec<&'static str>,
}

impl PhaseText {
    /// Describes the transition when the deadline passes.
    #[must_use]
    pub fn expiry(&self) -> String {
        match self.after_deadline {
            None => NONE.to_owned(),
            Some(next) if next == self.name => {
                "stays, and the message names the blocker".to_owned()
            }
            Some(next) => format!("`{next}`"),
        }
    }

    /// Returns whether an object stays in this phase until it is deleted.
    #[must_use]
    pub fn leads_to_itself(&self) -> bool {
        self.next == [self.name]
    }

    /// Returns the label of the transition to `next`, if the deadline or the undo leads there.
    #[must_use]
    pub fn transition_label(&self, next: &str) -> Option<&'static str> {
        match (
            self.after_deadline == Some(next),
            self.undo_phase == Some(next),
        ) {
            (false, false) => None,
            (true, false) => Some("deadline"),
            (false, true) => Some("undo"),
            (true, true) => Some("deadline, undo"),
        }
    }
}

/// Returns the phases of a table as text.
#[must_use]
pub fn describe_phases<P: Phase>() -> Vec<PhaseText> {
    let rows = P::TABLE.iter();
    rows.map(|row| {
        let (undo, undo_phase) = match &row.undo {
            Undo::None => (NONE.to_owned(), None),
            Undo::Within(text) => ((*text).to_owned(), None),
            Undo::Phase(phase) => (format!("`{}`", phase.name()), Some(phase.name())),
        };
        PhaseText {
            name: row.phase.name(),
            meaning: row.meaning,
            deadline: describe_deadline(&row.deadline, row.next.is_empty()),
            after_deadline: row.deadline.next().map(Phase::name),
            undo,
            undo_phase,
            next: row.next.iter().map(|next| next.name()).collect(),
        }
    })
    .collect()
}

fn describe_deadline<P: Phase>(deadline: &Deadline<P>, is_terminal: bool) -> String {
    match deadline {
        Deadline::None { .. } if is_terminal => NONE.to_owned(),
        Deadline::None { until: "" } => "none".to_owned(),
        Deadline::None { until } => format!("none: {until}"),
        Deadline::After { limit, .. } => limit.text.to_owned(),
        Deadline::Progress { idle, cap, .. } => {
            format!("{} without progress, {} in total", idle.text, cap.text)
        }
        Deadline::Decided { waits, .. } => (*waits).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        kinds,
        phase::{Limit, PhaseRow},
        tenants::TenantPhase,
    };

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum PumpPhase {
        Running,
        Stopped,
    }

    impl Phase for PumpPhase {
        type Spec = ();

        const TABLE: &'static [PhaseRow<Self>] = &[
            PhaseRow {
                phase: Self::Running,
                meaning: "",
                deadline: Deadline::progress(
                    Limit {
                        text: "`idle`",
                        of: |_: &()| Duration::from_secs(1),
                    },
                    Limit {
                        text: "`cap`",
                        of: |_: &()| Duration::from_secs(2),
                    },
                    PumpPhase::Stopped,
                ),
                undo: Undo::Phase(PumpPhase::Stopped),
                next: &[Self::Stopped],
            },
            PhaseRow {
                phase: Self::Stopped,
                meaning: "",
                deadline: Deadline::none(""),
                undo: Undo::None,
                next: &[],
            },
        ];

        fn name(self) -> &'static str {
            match self {
                Self::Running => "Running",
                Self::Stopped => "Stopped",
            }
        }
    }

    #[test]
    fn a_progress_aware_deadline_and_an_undo_are_described() {
        let phases = describe_phases::<PumpPhase>();
        let [running, stopped] = &phases[..] else {
            panic!("not two rows");
        };
        assert_eq!(running.deadline, "`idle` without progress, `cap` in total");
        assert_eq!(running.undo, "`Stopped`");
        assert_eq!(running.transition_label("Stopped"), Some("deadline, undo"));
        assert_eq!(running.transition_label("Running"), None);
        assert_eq!((&*stopped.deadline, &*stopped.undo), ("–", "–"));
    }

    #[test]
    fn a_limit_and_the_phase_that_follows_are_described() {
        let phases = describe_phases::<TenantPhase>();
        let row = |name: &str| phases.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row("Provisioning").deadline, "2 minutes");
        assert_eq!(row("Provisioning").expiry(), "`Degraded`");
        assert_eq!(
            row("Terminating").expiry(),
            "stays, and the message names the blocker"
        );
    }

    /// The engine rejects a transition that the list of a row lacks, so a deadline or an undo that
    /// leads there would never take effect.
    #[test]
    fn a_deadline_and_an_undo_lead_to_a_phase_that_may_follow() {
        for kind in kinds::all() {
            for row in (kind.phases)() {
                let targets = row.after_deadline.into_iter().chain(row.undo_phase);
                for target in targets {
                    let may_follow = target == row.name || row.next.contains(&target);
                    assert!(may_follow, "{kind:?} {}: {target}", row.name);
                    assert!(!row.next.is_empty(), "{kind:?} {} is terminal", row.name);
                }
            }
        }
    }
}
