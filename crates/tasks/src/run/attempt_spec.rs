//! The settings by which an attempt is evaluated, frozen when it starts. If an Agent changes or is deleted
//! while its container runs, the conditions of success and the time limits must not change.

use std::time::Duration;

use api::tasks::{AgentSpec, Resources};
use serde::{Deserialize, Serialize};

use crate::time;

/// Settings of one attempt. They are stored in an annotation of the Job's Pod template, which is
/// immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSpec {
    /// The Agent's `startTimeout`, in milliseconds.
    pub start_timeout_ms: u64,
    /// The Agent's `timeout`, in milliseconds. The run's own timeout is not frozen: its author may
    /// change it.
    pub timeout_ms: u64,
    /// Names of the required results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Memory limit, for the message when it was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// User that the container runs as.
    pub user: i64,
}

impl AttemptSpec {
    /// Returns the settings of an attempt that starts now.
    #[must_use]
    pub fn of(agent: &AgentSpec, resources: &Resources) -> Self {
        Self {
            start_timeout_ms: time::millis(agent.start_timeout.into()),
            timeout_ms: time::millis(agent.timeout.into()),
            required: agent
                .results
                .iter()
                .filter(|result| result.required)
                .map(|result| result.name.clone())
                .collect(),
            memory: resources
                .limits
                .get("memory")
                .map(|amount| amount.0.clone()),
            user: agent.run_as_user,
        }
    }

    /// Parses the settings from an annotation. Returns `None` if the annotation has none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let Ok(spec) = serde_json::from_str(text) else {
            return None;
        };
        Some(spec)
    }

    pub(super) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
