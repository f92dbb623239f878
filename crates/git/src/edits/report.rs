//! The result of `step commit`: the JSON in the termination message of its container.

use serde::{Deserialize, Serialize};

use super::CommitReason;
use crate::{
    Commit,
    report::{LIMIT, MESSAGE_LIMIT, cleaned},
};

/// The result of `step commit`.
///
/// Guarantees: [`CommitReport::write`] returns at most [`LIMIT`] bytes for any content. Reading ignores
/// unknown fields.
///
/// # Caveats
/// A result describes this attempt. The push of an earlier attempt may still be in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum CommitReport {
    /// The plan is complete. Nothing was pushed.
    Planned {
        /// The commit of the branch.
        base: Commit,
        /// Number of edits.
        edits: u32,
        /// SHA-256 of the [`Plan`](super::Plan) in the log.
        digest: String,
    },
    /// The server accepted the push. Somebody may have moved the branch since then.
    Pushed {
        /// Our commit.
        commit: Commit,
    },
    /// The branch already contains the commit of this request: an earlier attempt pushed it.
    Found {
        /// Our commit.
        commit: Commit,
    },
    /// The step failed. It is certain that it pushed nothing.
    Failed {
        /// The reason for the failure.
        reason: CommitReason,
        /// The message: the expectation, the finding, the next step.
        message: String,
    },
    /// The step does not know whether the server accepted the push.
    Uncertain {
        /// The commit that may have been pushed.
        commit: Commit,
        /// The message.
        message: String,
    },
}

impl CommitReport {
    /// Creates the report of a failure. Control characters become `?`, and a long message is cut.
    #[must_use]
    pub fn failed(reason: CommitReason, message: &str) -> Self {
        Self::Failed {
            reason,
            message: cleaned(message, MESSAGE_LIMIT),
        }
    }

    /// Parses a termination message. Returns `None` if it is not a report. The message in the report is
    /// bounded and clean, whatever program wrote it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match serde_json::from_str::<Self>(text) {
            Ok(mut report) => {
                report.cut(MESSAGE_LIMIT);
                report.has_digest().then_some(report)
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
            Self::Failed { message, .. } | Self::Uncertain { message, .. } => {
                *message = cleaned(message, limit);
            }
            Self::Planned { .. } | Self::Pushed { .. } | Self::Found { .. } => {}
        }
    }

    fn has_digest(&self) -> bool {
        match self {
            Self::Planned { digest, .. } => {
                digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            Self::Pushed { .. }
            | Self::Found { .. }
            | Self::Failed { .. }
            | Self::Uncertain { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use testkit::seed::seed;

    use super::*;
    use crate::{
        Reason,
        edits::{EditReason, sha256},
    };

    fn commit() -> Commit {
        Commit::parse(&"ab".repeat(32)).unwrap()
    }

    #[test]
    fn a_written_report_is_read() {
        for report in [
            CommitReport::Planned {
                base: commit(),
                edits: 3,
                digest: sha256(b"plan"),
            },
            CommitReport::Pushed { commit: commit() },
            CommitReport::Found { commit: commit() },
            CommitReport::failed(
                CommitReason::Edit(EditReason::VersionChangedInGit),
                "the value is '1.2.1', not '1.2.0'",
            ),
            CommitReport::failed(CommitReason::Git(Reason::PushRejected), "protected"),
            CommitReport::Uncertain {
                commit: commit(),
                message: "the connection was lost".to_owned(),
            },
        ] {
            assert_eq!(CommitReport::read(&report.write()), Some(report));
        }
    }

    #[test]
    fn the_written_form_is_kept() {
        let report = CommitReport::failed(CommitReason::Git(Reason::PushRejected), "no");
        let value: serde_json::Value = serde_json::from_str(&report.write()).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"outcome": "Failed", "reason": "PushRejected", "message": "no"})
        );
    }

    #[test]
    fn reading_ignores_new_fields_and_rejects_the_rest() {
        let id = "ab".repeat(20);
        for (text, is_report) in [
            (
                format!(r#"{{"outcome":"Pushed","commit":"{id}","later":1}}"#),
                true,
            ),
            (r#"{"outcome":"Pushed"}"#.to_owned(), false),
            (r#"{"outcome":"Pushed","commit":"-x"}"#.to_owned(), false),
            (format!(r#"{{"outcome":"Cloned","commit":"{id}"}}"#), false),
            (
                format!(r#"{{"outcome":"Planned","base":"{id}","edits":1,"digest":"x"}}"#),
                false,
            ),
            (
                r#"{"outcome":"Failed","reason":"Whatever","message":""}"#.to_owned(),
                false,
            ),
            (String::new(), false),
        ] {
            assert_eq!(CommitReport::read(&text).is_some(), is_report, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn it_always_fits(message in "\\PC{0,5000}|[\u{0}-\u{1f}\"\\\\😀]{0,5000}") {
            for report in [
                CommitReport::Failed {
                    reason: CommitReason::Edit(EditReason::CommitFailed),
                    message: message.clone(),
                },
                CommitReport::Uncertain { commit: commit(), message: message.clone() },
            ] {
                let text = report.write();
                prop_assert!(text.len() <= LIMIT, "{}", text.len());
                prop_assert!(CommitReport::read(&text).is_some());
            }
        }
    }
}
