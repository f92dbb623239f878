//! The course of a run is decided on a TaskRun's status: a DocsRun's is carried over and back.

use api::{
    decide::Decision,
    tasks::{DocsRunStatus, TaskRunStatus},
};

use super::DocsDecision;
use crate::run::RunDecision;

/// What the course of a run reads of a DocsRun's status.
pub(super) fn course(status: &DocsRunStatus) -> TaskRunStatus {
    let DocsRunStatus {
        phase,
        base_commit,
        branch: _,
        branch_head: _,
        commit: _,
        changed_files: _,
        left_out: _,
        publisher: _,
        job_name,
        config_map_name,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        deadline_at,
        result,
        progress,
    } = status.clone();
    TaskRunStatus {
        phase,
        // A run without versions has one, from when it is known what it works on.
        context_version: base_commit.map(|_| 1),
        job_name,
        config_map_name,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        deadline_at,
        result,
        history: Vec::new(),
        progress,
    }
}

/// What is decided about the course of a DocsRun that has this status beside it.
pub(super) fn of_docs(decision: RunDecision, kept: &DocsRunStatus) -> DocsDecision {
    let Decision {
        effects,
        status,
        phase,
        verdict,
        conditions,
        hold,
        wake,
        record_at,
    } = decision;
    let TaskRunStatus {
        phase: stored_phase,
        context_version: _,
        job_name,
        config_map_name,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        deadline_at,
        result,
        history: _,
        progress,
    } = status;
    let status = DocsRunStatus {
        phase: stored_phase,
        job_name,
        config_map_name,
        attempts,
        disruptions,
        pod,
        started_at,
        finished_at,
        deadline_at,
        result,
        progress,
        ..kept.clone()
    };
    Decision {
        effects,
        status,
        phase,
        verdict,
        conditions,
        hold,
        wake,
        record_at,
    }
}
