//! Conversion of a DocsRun's status to a TaskRun's and back: the steps of a run are decided on a
//! TaskRun's status.

use api::{
    decide::Decision,
    tasks::{DocsRunStatus, TaskRunStatus},
};

use super::DocsDecision;
use crate::run::RunDecision;

/// Returns the part of a DocsRun's status that all runs have.
pub(super) fn attempt_status(status: &DocsRunStatus) -> TaskRunStatus {
    TaskRunStatus {
        phase: status.phase,
        // A DocsRun has no versions. It counts as version 1 once the commit to work on is known.
        context_version: status.base_commit.as_ref().map(|_| 1),
        attempt: status.attempt.clone(),
        history: Vec::new(),
        progress: status.progress.clone(),
    }
}

/// Converts a decision to one about a DocsRun. `kept` has the fields that only a DocsRun's status
/// has.
pub(super) fn of_docs(decision: RunDecision, kept: &DocsRunStatus) -> DocsDecision {
    let Decision {
        effects,
        status,
        phase,
        phase_since,
        verdict,
        conditions,
        finalizer,
        requeue_at,
        defer_status_until,
        confirm,
        claims,
    } = decision;
    let status = DocsRunStatus {
        phase: status.phase,
        attempt: status.attempt,
        progress: status.progress,
        ..kept.clone()
    };
    Decision {
        effects,
        status,
        phase,
        phase_since,
        verdict,
        conditions,
        finalizer,
        requeue_at,
        defer_status_until,
        confirm,
        claims,
    }
}
