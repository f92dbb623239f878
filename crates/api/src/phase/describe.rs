//! Rows of a phase table as text, for the docs.

use super::{Deadline, Phase, PhaseRow, Undo};

const NONE: &str = "–";

impl<P: Phase> PhaseRow<P> {
    /// Describes the deadline of the phase.
    #[must_use]
    pub fn describe_deadline(&self) -> String {
        match &self.deadline {
            Deadline::None { .. } if self.next.is_empty() => NONE.to_owned(),
            Deadline::None { until: "" } => "none".to_owned(),
            Deadline::None { until } => format!("none: {until}"),
            Deadline::After { limit, .. } => limit.text.to_owned(),
            Deadline::Progress { idle, cap, .. } => {
                format!("{} without progress, {} in total", idle.text, cap.text)
            }
            Deadline::Decided { waits, .. } => (*waits).to_owned(),
        }
    }

    /// Describes the transition when the deadline passes.
    #[must_use]
    pub fn describe_expiry(&self) -> String {
        match self.deadline.next() {
            None => NONE.to_owned(),
            Some(next) if next == self.phase => {
                "stays, and the message names the blocker".to_owned()
            }
            Some(next) => format!("`{}`", next.name()),
        }
    }

    /// Describes the undo of the phase.
    #[must_use]
    pub fn describe_undo(&self) -> String {
        match &self.undo {
            Undo::None => NONE.to_owned(),
            Undo::Within(text) => (*text).to_owned(),
            Undo::Phase(phase) => format!("`{}`", phase.name()),
        }
    }

    /// Returns whether an object stays in this phase until it is deleted.
    #[must_use]
    pub fn leads_to_itself(&self) -> bool {
        self.next == [self.phase]
    }

    /// Returns the label of the transition to `next`, if the deadline or the undo leads there.
    #[must_use]
    pub fn transition_label(&self, next: P) -> Option<&'static str> {
        let is_late = self.deadline.next() == Some(next);
        let is_undo = matches!(self.undo, Undo::Phase(undo) if undo == next);
        match (is_late, is_undo) {
            (false, false) => None,
            (true, false) => Some("deadline"),
            (false, true) => Some("undo"),
            (true, true) => Some("deadline, undo"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{phase::Limit, tenants::TenantPhase};

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
        let [running, stopped] = PumpPhase::TABLE else {
            panic!("not two rows");
        };
        assert_eq!(
            running.describe_deadline(),
            "`idle` without progress, `cap` in total"
        );
        assert_eq!(running.describe_undo(), "`Stopped`");
        assert_eq!(
            running.transition_label(PumpPhase::Stopped),
            Some("deadline, undo")
        );
        assert_eq!(running.transition_label(PumpPhase::Running), None);
        assert_eq!(stopped.describe_deadline(), "–");
        assert_eq!(stopped.describe_undo(), "–");
    }

    #[test]
    fn a_limit_and_the_phase_that_follows_are_described() {
        let row = |phase: TenantPhase| phase.row().unwrap();
        let provisioning = row(TenantPhase::Provisioning);
        assert_eq!(provisioning.describe_deadline(), "2 minutes");
        assert_eq!(provisioning.describe_expiry(), "`Degraded`");
        assert_eq!(
            row(TenantPhase::Terminating).describe_expiry(),
            "stays, and the message names the blocker"
        );
    }
}
