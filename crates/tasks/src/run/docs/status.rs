//! Conversion between the status of a DocsRun and the status that decisions about attempts use.

use api::tasks::DocsRunStatus;
use attempts::{RunDecision, RunStatus};

use super::DocsDecision;
use crate::run::run_spec::ONLY_VERSION;

/// Returns the part of a DocsRun's status that all runs have.
pub(super) fn run_status(status: &DocsRunStatus) -> RunStatus {
    RunStatus {
        phase: status.phase,
        // A DocsRun has no versions. It has its only one once the commit to work on is known.
        version: status.base_commit.as_ref().map(|_| ONLY_VERSION),
        attempt: status.attempt.clone(),
        progress: status.progress.clone(),
    }
}

/// Converts a decision to one about a DocsRun. `kept` has the fields that only a DocsRun's status has.
pub(super) fn of_docs(decision: RunDecision, kept: &DocsRunStatus) -> DocsDecision {
    let phase = decision.phase;
    decision.map_status(phase, |status| DocsRunStatus {
        phase: status.phase,
        attempt: status.attempt,
        progress: status.progress,
        ..kept.clone()
    })
}
