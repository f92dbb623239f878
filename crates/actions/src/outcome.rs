//! The outcome of a run, read from its conditions.

use api::{
    CommonStatus, Reason,
    status::condition::{FINISHED, SUCCEEDED},
};

/// The outcome of a finished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The run succeeded.
    Succeeded,
    /// Someone cancelled the run.
    Cancelled,
    /// The run failed, with this reason.
    Failed(String),
}

impl Outcome {
    /// Returns the outcome in a status, or `None` if the run has not finished.
    #[must_use]
    pub fn of(progress: &CommonStatus) -> Option<Self> {
        if !progress.is_true(FINISHED) {
            return None;
        }
        let succeeded = progress.condition(SUCCEEDED);
        let reason = succeeded.map_or("", |condition| condition.reason.as_str());
        Some(match succeeded.map(|condition| condition.status.as_str()) {
            Some("True") => Self::Succeeded,
            Some(_) | None if reason == Reason::Cancelled.name() => Self::Cancelled,
            Some(_) | None => Self::Failed(reason.to_owned()),
        })
    }

    /// Returns the phase of a run with this outcome.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Cancelled | Self::Failed(_) => "Failed",
        }
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Succeeded => Reason::Succeeded.name(),
            Self::Cancelled => Reason::Cancelled.name(),
            Self::Failed(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::TASK_RUN;

    use super::*;
    use crate::Object;

    fn run(version: i64, status: &serde_json::Value) -> Object {
        let run = serde_json::json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7" },
            "spec": { "taskId": 7, "serviceName": "shop", "agentName": "writer",
                "contextVersion": version, "markdownFiles": [] },
            "status": status,
        });
        Object::new(&TASK_RUN, serde_json::from_value(run).unwrap())
    }

    fn status(version: i64, finished: &str, succeeded: &str, reason: &str) -> serde_json::Value {
        let condition = |kind: &str, value: &str| {
            serde_json::json!({ "type": kind, "status": value, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        serde_json::json!({ "contextVersion": version, "conditions":
            [condition("Finished", finished), condition("Succeeded", succeeded)] })
    }

    #[test]
    fn only_a_finished_wanted_version_has_an_outcome() {
        let failed = |reason: &str| Some(Outcome::Failed(reason.to_owned()));
        let cases = [
            (
                serde_json::json!({ "observedGeneration": -1, "phase": "Pending" }),
                None,
            ),
            (
                status(2, "True", "True", "Succeeded"),
                Some(Outcome::Succeeded),
            ),
            (status(1, "True", "True", "Succeeded"), None),
            (status(2, "False", "True", "Succeeded"), None),
            (
                status(2, "True", "False", "NonZeroExit"),
                failed("NonZeroExit"),
            ),
            (
                status(2, "True", "Unknown", "Progressing"),
                failed("Progressing"),
            ),
            (
                status(2, "True", "False", "Cancelled"),
                Some(Outcome::Cancelled),
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(run(2, &status).outcome(), wanted, "{status}");
        }
    }
}
