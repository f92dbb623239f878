//! The phases of a NotebookValidationJob without a build.

use super::job::NotebookValidationJob;
use crate::phase::{Deadline, Undo};

crate::phases! {
    /// Phase of a NotebookValidationJob, for people. Programs should read the conditions.
    pub enum NotebookPhase for NotebookValidationJob {
        Initializing: "The operator asks the Git servers for the commits of the notebook and of the golden notebook.",
            deadline Deadline::decided("`startTimeout`, from the creation or the resume; none while suspended", NotebookPhase::Failed),
            undo Undo::None => [ValidationRunning, Succeeded, Failed];
        ValidationRunning: "A Job runs the notebook, or waits for its Pod or for its next attempt. At the end, the operator stores the full result.",
            deadline Deadline::decided("`startTimeout` until the kernel's container starts; `timeout` from its start; two minutes to store the result; the backoff between attempts; none while suspended", NotebookPhase::Failed),
            undo Undo::Within("the Job is deleted") => [Succeeded, Failed];
        Succeeded: "The notebook ran, and every check of the spec was passed.",
            deadline Deadline::none(""), undo Undo::None => [];
        Failed: "The job ended otherwise; the reason and `status.result` give the cause.",
            deadline Deadline::none(""), undo Undo::None => [];
        Pending: "Legacy: an earlier operator stored this phase. Nothing in that status is evidence.",
            deadline Deadline::none("the operator resets the job to Initializing"),
            undo Undo::None => [Initializing];
        Running: "Legacy: an earlier operator stored this phase. Nothing in that status is evidence.",
            deadline Deadline::none("the operator resets the job to Initializing"),
            undo Undo::None => [Initializing];
    }
}

impl NotebookPhase {
    /// Returns whether only an earlier operator stored this phase.
    #[must_use]
    pub fn is_legacy(self) -> bool {
        match self {
            Self::Pending | Self::Running => true,
            Self::Initializing | Self::ValidationRunning | Self::Succeeded | Self::Failed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    /// R60: no phase skips the one before it, and no phase is entered twice. R69: each transition is in the table.
    #[test]
    fn r60_phases_follow_in_one_direction() {
        use NotebookPhase::{Failed, Initializing, Pending, Running, Succeeded, ValidationRunning};
        for (phase, next) in [
            (Initializing, &[ValidationRunning, Succeeded, Failed][..]),
            (ValidationRunning, &[Succeeded, Failed][..]),
            (Succeeded, &[][..]),
            (Failed, &[][..]),
            (Pending, &[Initializing][..]),
            (Running, &[Initializing][..]),
        ] {
            assert_eq!(phase.row().map(|row| row.next), Some(next), "{phase:?}");
        }
        assert_eq!(
            NotebookPhase::TABLE.first().map(|row| row.phase),
            Some(Initializing)
        );
    }

    /// R63: a phase that waits for the cluster has an end of its own.
    #[test]
    fn r63_each_phase_that_waits_for_the_cluster_has_a_deadline() {
        for row in NotebookPhase::TABLE {
            let waits = matches!(
                row.phase,
                NotebookPhase::Initializing | NotebookPhase::ValidationRunning
            );
            let expected = waits.then_some(NotebookPhase::Failed);
            assert_eq!(row.deadline.next(), expected, "{:?}", row.phase);
        }
    }
}
