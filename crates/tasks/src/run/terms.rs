//! What an attempt is judged by, frozen when it starts: an Agent that changes or vanishes while
//! its container runs must not change what counts as success, nor when it is too late.

use std::time::Duration;

use api::tasks::{AgentSpec, Resources};
use serde::{Deserialize, Serialize};

use crate::time;

/// The terms of one attempt; kept in an annotation of the Job's Pod template, which cannot be
/// changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The Agent's `startTimeout`, in milliseconds.
    pub start_timeout_ms: u64,
    /// The Agent's `timeout`, in milliseconds. The run's own is not frozen: its author may change it.
    pub timeout_ms: u64,
    /// The results that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// The memory limit, to be named when it was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The user that the container runs as.
    pub user: i64,
}

impl Terms {
    /// The terms of an attempt that starts now.
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

    /// Terms from an annotation; `None` if it holds none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let Ok(terms) = serde_json::from_str(text) else {
            return None;
        };
        Some(terms)
    }

    pub(super) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
