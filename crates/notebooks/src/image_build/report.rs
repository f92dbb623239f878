//! The report of a container of a build: its termination message.

use api::Reason;
use pods::message_limit;
use serde::{Deserialize, Serialize};

use super::Digest;

/// Version of the report.
const VERSION: u32 = 1;
/// Size from which a report may be cut, in bytes.
const LIMIT: usize = 2000;

/// The build that a report must be about.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// UID of the job.
    pub uid: &'a str,
    /// Number of the attempt.
    pub attempt: u32,
    /// Repository that the build pushes to.
    pub repository: &'a str,
}

/// Report of a container of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Version of the report.
    pub v: u32,
    /// UID of the job.
    pub uid: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Name of the container.
    pub container: String,
    /// The result.
    #[serde(flatten)]
    pub result: BuildResult,
}

/// Result of a container of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum BuildResult {
    /// The image is complete, and not pushed.
    Built,
    /// The image was pushed.
    Pushed {
        /// Repository that it was pushed to.
        repository: String,
        /// Digest that the registry confirmed.
        digest: String,
    },
    /// The container failed.
    Failed {
        /// Reason of the failure.
        reason: String,
        /// Step that failed.
        #[serde(default)]
        step: Option<String>,
        /// Message.
        message: String,
    },
}

impl BuildReport {
    /// Reads the report of this container.
    ///
    /// # Errors
    /// Returns the reason and the message if the report proves nothing.
    pub fn read(
        message: &str,
        containers: usize,
        container: &str,
        expected: &Identity<'_>,
    ) -> Result<BuildResult, (Reason, String)> {
        let limit = message_limit(containers).min(LIMIT);
        let invalid = |found: &str| {
            let message = format!("the report of the container '{container}' {found}");
            (Reason::ResultInvalid, message)
        };
        if message.len() >= limit {
            let message = format!(
                "the report of the container '{container}' has {limit} bytes or more, so it may be cut and proves nothing"
            );
            return Err((Reason::ResultTooLarge, message));
        }
        if message.trim().is_empty() {
            let message = format!("the container '{container}' ended without a report");
            return Err((Reason::ResultMissing, message));
        }
        // The message does not repeat the error, because the error quotes the report.
        let Ok(report) = serde_json::from_str::<Self>(message) else {
            return Err(invalid("is not the JSON of a report"));
        };
        for (name, is_same) in [
            ("version", report.v == VERSION),
            ("UID", report.uid == expected.uid),
            ("attempt", report.attempt == expected.attempt),
            // F6: the container that builds can write anything into its own report.
            ("container", report.container == container),
        ] {
            if !is_same {
                return Err(invalid(&format!(
                    "names another {name} than this build has"
                )));
            }
        }
        if let BuildResult::Pushed { repository, digest } = &report.result {
            if repository != expected.repository {
                return Err(invalid("names another repository than this build has"));
            }
            if Digest::parse(digest).is_none() {
                return Err(invalid("has no digest of an image"));
            }
        }
        Ok(report.result)
    }
}
