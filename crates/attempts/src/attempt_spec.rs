//! The settings by which an attempt is evaluated, frozen when it starts. If the object that they come from, such as an
//! Agent, changes while the container runs, the conditions of success and the time limits must not change.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of one attempt. They are stored in an annotation of the Job's Pod template, which is
/// immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSpec {
    /// How long the container may take to start, in milliseconds.
    pub start_timeout_ms: u64,
    /// How long the container may run, in milliseconds. The run's own timeout is not frozen: its
    /// author may change it.
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
    /// Parses the settings from an annotation. Returns `None` if the annotation has none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let Ok(spec) = serde_json::from_str(text) else {
            return None;
        };
        Some(spec)
    }

    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
