//! The contract of `step fetch`, which fetches a notebook and its golden notebook for a validation.
//!
//! [`FetchReport`] is the content of the termination message, for the operator. [`Source`] is a file beside the
//! notebooks, for the runner.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Commit, Reason,
    report::{LIMIT, MESSAGE_LIMIT, cleaned},
};

/// Maximum size of a notebook, in bytes. The runner has the same limit.
pub const MAX_NOTEBOOK: u64 = 50 << 20;

/// Name of the file with the notebook.
pub const NOTEBOOK_FILE: &str = "notebook.ipynb";
/// Name of the file with the golden notebook.
pub const GOLDEN_FILE: &str = "golden.ipynb";
/// Name of the file with the [`Source`].
pub const SOURCE_FILE: &str = "source.json";

/// Reason for a failure that is about a notebook. Users see its name in `status.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NotebookReason {
    /// The commit has no regular file at the path of the notebook.
    NotebookNotFound,
    /// The commit has no regular file at the path of the golden notebook.
    GoldenNotFound,
    /// One of the files is larger than [`MAX_NOTEBOOK`].
    NotebookInvalid,
}

impl NotebookReason {
    /// All reasons, for tables and docs.
    pub const ALL: [Self; 3] = [
        Self::NotebookNotFound,
        Self::GoldenNotFound,
        Self::NotebookInvalid,
    ];

    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotebookNotFound => "NotebookNotFound",
            Self::GoldenNotFound => "GoldenNotFound",
            Self::NotebookInvalid => "NotebookInvalid",
        }
    }
}

/// Reason for a failure of `step fetch`: about a notebook, or about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FetchReason {
    /// About a notebook.
    Notebook(NotebookReason),
    /// About the server. `CloneFailed` is any other failure.
    Git(Reason),
}

impl FetchReason {
    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notebook(reason) => reason.as_str(),
            Self::Git(reason) => reason.as_str(),
        }
    }
}

impl fmt::Display for FetchReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The result of `step fetch`.
///
/// # Guarantees
/// [`FetchReport::write`] returns at most [`LIMIT`] bytes for any content. Reading ignores unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum FetchReport {
    /// The checkout and the copies are complete.
    Fetched {
        /// The commit of the notebook.
        commit: Commit,
    },
    /// The step failed.
    Failed {
        /// The reason for the failure.
        reason: FetchReason,
        /// The message: the expectation, the finding, the next step.
        message: String,
    },
}

impl FetchReport {
    /// Creates the report of a failure. Control characters become `?`, and a long message is cut.
    #[must_use]
    pub fn failed(reason: FetchReason, message: &str) -> Self {
        Self::Failed {
            reason,
            message: cleaned(message, MESSAGE_LIMIT),
        }
    }

    /// Parses a termination message. Returns `None` if it is not a report. The message in the report is bounded and
    /// clean, whatever program wrote it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match serde_json::from_str::<Self>(text) {
            Ok(mut report) => {
                report.cut(MESSAGE_LIMIT);
                Some(report)
            }
            Err(_not_a_report) => None,
        }
    }

    /// Returns the JSON, with at most [`LIMIT`] bytes.
    #[must_use]
    pub fn write(&self) -> String {
        let mut report = self.clone();
        let mut limit = MESSAGE_LIMIT;
        loop {
            report.cut(limit);
            let text = serde_json::json!(report).to_string();
            if text.len() <= LIMIT || limit == 0 {
                return text;
            }
            limit = limit * 7 / 8;
        }
    }

    fn cut(&mut self, limit: usize) {
        match self {
            Self::Failed { message, .. } => *message = cleaned(message, limit),
            Self::Fetched { .. } => {}
        }
    }
}

/// The commits and checksums of the files, which the runner compares with the files and with its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The commit of the notebook.
    pub commit: Commit,
    /// SHA-256 of the notebook.
    pub notebook_sha256: String,
    /// The commit of the golden notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden_commit: Option<Commit>,
    /// SHA-256 of the golden notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden_sha256: Option<String>,
}

impl Source {
    /// Returns the JSON.
    #[must_use]
    pub fn write(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use testkit::seed::seed;

    use super::*;

    fn commit() -> Commit {
        Commit::parse(&"ab".repeat(20)).unwrap()
    }

    #[test]
    fn a_written_report_is_read() {
        for report in [
            FetchReport::Fetched { commit: commit() },
            FetchReport::failed(
                FetchReason::Notebook(NotebookReason::NotebookNotFound),
                "the commit has no file 'a.ipynb'",
            ),
            FetchReport::failed(FetchReason::Git(Reason::RepositoryUnreachable), "refused"),
        ] {
            assert_eq!(FetchReport::read(&report.write()), Some(report));
        }
        for text in [
            r#"{"outcome":"Fetched"}"#,
            r#"{"outcome":"Fetched","commit":"-x"}"#,
            r#"{"outcome":"Failed","reason":"Whatever","message":""}"#,
            "an error of the container runtime",
            "",
        ] {
            assert_eq!(FetchReport::read(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_the_stored_ones_and_unique() {
        for reason in NotebookReason::ALL {
            let stored = serde_json::to_string(&FetchReason::Notebook(reason)).unwrap();
            assert_eq!(stored, format!("\"{}\"", reason.as_str()));
            let read: FetchReason = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, FetchReason::Notebook(reason));
            assert!(
                Reason::ALL
                    .iter()
                    .all(|other| other.as_str() != reason.as_str())
            );
        }
        let read: FetchReason = serde_json::from_str("\"CloneFailed\"").unwrap();
        assert_eq!(read, FetchReason::Git(Reason::CloneFailed));
    }

    /// `runner/README.md` describes these keys.
    #[test]
    fn the_source_has_the_keys_that_the_runner_reads() {
        let with_golden = Source {
            commit: commit(),
            notebook_sha256: "1".to_owned(),
            golden_commit: Some(commit()),
            golden_sha256: Some("2".to_owned()),
        };
        let id = "ab".repeat(20);
        let found: serde_json::Value = serde_json::from_str(&with_golden.write()).unwrap();
        assert_eq!(
            found,
            serde_json::json!({
                "commit": id, "notebookSha256": "1", "goldenCommit": id, "goldenSha256": "2",
            })
        );
        let alone = Source {
            golden_commit: None,
            golden_sha256: None,
            ..with_golden
        };
        let found: serde_json::Value = serde_json::from_str(&alone.write()).unwrap();
        assert_eq!(
            found,
            serde_json::json!({ "commit": id, "notebookSha256": "1" })
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn it_always_fits(message in "\\PC{0,5000}|[\u{0}-\u{1f}\"\\\\😀]{0,5000}") {
            let report = FetchReport::Failed {
                reason: FetchReason::Notebook(NotebookReason::NotebookInvalid),
                message,
            };
            let text = report.write();
            prop_assert!(text.len() <= LIMIT, "{}", text.len());
            prop_assert!(FetchReport::read(&text).is_some());
        }
    }
}
