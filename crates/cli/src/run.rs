//! A run of either kind, and the common parts of both kinds.

use std::borrow::Cow;

use actions::{Outcome, Run, RunKind};
use api::{
    CommonStatus, Phase, Reason,
    status::condition::{STALLED, SUCCEEDED},
    tasks::{DocsRun, DocsRunStatus, Evidence, RunPhase, RunPod, TaskRun, TaskRunStatus, Version},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::{
    text::{Tone, clean},
    view::Standing,
};

/// A run of either kind.
#[derive(Debug, Clone)]
pub(crate) enum AnyRun {
    Task(Box<TaskRun>),
    Docs(Box<DocsRun>),
}

impl From<TaskRun> for AnyRun {
    fn from(run: TaskRun) -> Self {
        Self::Task(Box::new(run))
    }
}

impl From<DocsRun> for AnyRun {
    fn from(run: DocsRun) -> Self {
        Self::Docs(Box::new(run))
    }
}

/// The part of a status that both kinds have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status<'a> {
    pub(crate) phase: Option<RunPhase>,
    pub(crate) attempts: u32,
    pub(crate) disruptions: u32,
    pub(crate) job_name: Option<&'a str>,
    pub(crate) config_map_name: Option<&'a str>,
    pub(crate) pod: Option<&'a RunPod>,
    pub(crate) started_at: Option<&'a Time>,
    pub(crate) finished_at: Option<&'a Time>,
    pub(crate) deadline_at: Option<&'a Time>,
    pub(crate) result: Option<&'a Evidence>,
    pub(crate) progress: &'a CommonStatus,
    /// The context version of this status, if the kind has versions.
    pub(crate) version: Option<i64>,
}

macro_rules! status {
    ($status:expr, $version:expr) => {
        Status {
            phase: $status.phase,
            attempts: $status.attempts,
            disruptions: $status.disruptions,
            job_name: $status.job_name.as_deref(),
            config_map_name: $status.config_map_name.as_deref(),
            pod: $status.pod.as_ref(),
            started_at: $status.started_at.as_ref(),
            finished_at: $status.finished_at.as_ref(),
            deadline_at: $status.progress.deadline_at.as_ref(),
            result: $status.result.as_ref(),
            progress: &$status.progress,
            version: $version,
        }
    };
}

impl<'a> From<&'a TaskRunStatus> for Status<'a> {
    fn from(status: &'a TaskRunStatus) -> Self {
        status!(status, status.context_version)
    }
}

impl<'a> From<&'a DocsRunStatus> for Status<'a> {
    fn from(status: &'a DocsRunStatus) -> Self {
        status!(status, None)
    }
}

impl AnyRun {
    pub(crate) fn kind(&self) -> RunKind {
        match self {
            Self::Task(_) => RunKind::Task,
            Self::Docs(_) => RunKind::Docs,
        }
    }

    pub(crate) fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Task(run) => &run.metadata,
            Self::Docs(run) => &run.metadata,
        }
    }

    /// Returns the name without control characters, for printing.
    pub(crate) fn name(&self) -> String {
        clean(self.meta().name.as_deref().unwrap_or_default())
    }

    /// Returns the run as an argument of the command line.
    pub(crate) fn argument(&self) -> String {
        self.kind().argument(&self.name())
    }

    pub(crate) fn status(&self) -> Option<Status<'_>> {
        match self {
            Self::Task(run) => run.status.as_ref().map(Status::from),
            Self::Docs(run) => run.status.as_ref().map(Status::from),
        }
    }

    /// Returns the message of the status, or why there is none for the context version in the spec.
    pub(crate) fn message(&self) -> Cow<'_, str> {
        let Some(status) = self.status() else {
            return "it has no status yet".into();
        };
        let is_current = self.current_status().is_some();
        match (status.progress.message.as_deref(), self.version()) {
            (Some(message), _) if is_current => message.into(),
            (_, Some(version)) if !is_current => {
                format!("the operator has not seen version {version} yet").into()
            }
            (_, _) => "its status has no message yet".into(),
        }
    }

    /// Returns the run's earlier versions.
    pub(crate) fn history(&self) -> &[Version] {
        match self {
            Self::Task(run) => run
                .status
                .as_ref()
                .map_or(&[], |status| status.history.as_slice()),
            Self::Docs(_) => &[],
        }
    }

    /// Returns the context version, if the kind has versions.
    pub(crate) fn version(&self) -> Option<i64> {
        match self {
            Self::Task(run) => run.context_version(),
            Self::Docs(run) => run.context_version(),
        }
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Task(run) => actions::outcome(run.as_ref()),
            Self::Docs(run) => actions::outcome(run.as_ref()),
        }
    }

    /// Returns the status, unless it describes an earlier context version than that of the spec.
    pub(crate) fn current_status(&self) -> Option<Status<'_>> {
        self.status()
            .filter(|status| status.version.is_none() || status.version == self.version())
    }

    /// Returns the phase of the context version in the spec.
    pub(crate) fn phase(&self) -> RunPhase {
        self.current_status()
            .and_then(|status| status.phase)
            .unwrap_or(RunPhase::Pending)
    }

    /// Returns the reason of the run's main condition.
    pub(crate) fn reason(&self) -> Option<&str> {
        let condition = self.current_status()?.progress.condition(SUCCEEDED)?;
        Some(condition.reason.as_str())
    }

    /// Returns the state of the run for printing.
    pub(crate) fn standing(&self) -> Standing {
        let reason = self.reason().unwrap_or_default();
        let phase = self.phase();
        let name = phase.name();
        if self.meta().deletion_timestamp.is_some() {
            return Standing::new("!", format!("{name} (being deleted)"), Tone::Waiting);
        }
        let words = if reason.is_empty() || reason == name || reason == Reason::Progressing.name() {
            name.to_owned()
        } else {
            format!("{name} ({reason})")
        };
        let is_stalled = self
            .current_status()
            .is_some_and(|status| status.progress.is_true(STALLED));
        match phase {
            RunPhase::Succeeded => Standing::new("✓", words, Tone::Good),
            RunPhase::Failed => Standing::new("✗", words, Tone::Bad),
            RunPhase::Pending | RunPhase::Running if is_stalled => {
                Standing::new("!", format!("{words}, stalled"), Tone::Bad)
            }
            RunPhase::Pending | RunPhase::Running if reason == Reason::Suspended.name() => {
                Standing::new("‖", words, Tone::Waiting)
            }
            RunPhase::Running => Standing::new("●", words, Tone::Busy),
            RunPhase::Pending => Standing::new("○", words, Tone::Waiting),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn laid_over(mut all: Value, more: &Value) -> Value {
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    }

    /// Builds a TaskRun with a status like the operator's.
    pub(crate) fn a_run(spec: &Value, status: &Value) -> AnyRun {
        let all = json!({
            "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
            "markdownFiles": [{ "filename": "task.md", "content": "Do it." }],
        });
        let run: TaskRun = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7", "namespace": "team", "uid": "u-1",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": laid_over(all, spec), "status": status,
        }))
        .unwrap();
        run.into()
    }

    /// Builds a DocsRun with a status like the operator's.
    pub(crate) fn a_docs_run(spec: &Value, status: &Value) -> AnyRun {
        let all = json!({ "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer" });
        let run: DocsRun = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
            "metadata": { "name": "guide", "namespace": "team", "uid": "u-2",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": laid_over(all, spec), "status": status,
        }))
        .unwrap();
        run.into()
    }

    pub(crate) fn condition(kind: &str, value: &str, reason: &str) -> Value {
        json!({ "type": kind, "status": value, "reason": reason, "message": "as it is",
            "lastTransitionTime": "2026-01-01T00:01:00Z" })
    }

    #[test]
    fn a_status_of_an_earlier_version_is_not_this_ones_phase() {
        let status = json!({ "phase": "Succeeded", "contextVersion": 1 });
        let again = a_run(&json!({ "contextVersion": 2 }), &status);
        assert_eq!(again.phase(), RunPhase::Pending);
        let docs = a_docs_run(&json!({}), &json!({ "phase": "Succeeded" }));
        assert_eq!(docs.phase(), RunPhase::Succeeded);
    }

    #[test]
    fn runs_stand_as_their_status_says() {
        let main = |value, reason| condition("Succeeded", value, reason);
        let stalled = condition("Stalled", "True", "ChildNameTaken");
        let cases = [
            (
                json!({ "phase": "Pending", "observedGeneration": -1 }),
                "○ Pending",
            ),
            (
                json!({ "phase": "Running", "contextVersion": 1, "conditions": [main("Unknown", "Progressing")] }),
                "● Running",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ImagePullFailed")] }),
                "○ Pending (ImagePullFailed)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "Suspended")] }),
                "‖ Pending (Suspended)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ChildNameTaken"), stalled] }),
                "! Pending (ChildNameTaken), stalled",
            ),
            (
                json!({ "phase": "Succeeded", "contextVersion": 1, "conditions": [main("True", "Succeeded")] }),
                "✓ Succeeded",
            ),
            (
                json!({ "phase": "Failed", "contextVersion": 1, "conditions": [main("False", "NonZeroExit")] }),
                "✗ Failed (NonZeroExit)",
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(a_run(&json!({}), &status).standing().text(), wanted);
        }
    }
}
