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
    let DocsRunStatus {
        phase,
        base_commit,
        branch: _,
        branch_head: _,
        commit: _,
        changed_files: _,
        left_out: _,
        publisher: _,
        deadline_extensions: _,
        job_name,
        job_uid,
        config_map_name,
        config_map_uid,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        result,
        progress,
    } = status.clone();
    TaskRunStatus {
        phase,
        // A DocsRun has no versions. It counts as version 1 once the commit to work on is known.
        context_version: base_commit.map(|_| 1),
        job_name,
        job_uid,
        config_map_name,
        config_map_uid,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        result,
        history: Vec::new(),
        progress,
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
    let TaskRunStatus {
        phase: stored_phase,
        context_version: _,
        job_name,
        job_uid,
        config_map_name,
        config_map_uid,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        result,
        history: _,
        progress,
    } = status;
    let status = DocsRunStatus {
        phase: stored_phase,
        job_name,
        job_uid,
        config_map_name,
        config_map_uid,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        result,
        progress,
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
