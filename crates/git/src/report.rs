//! The result that a step reports to the operator: the JSON in its container's termination message.

use serde::{Deserialize, Serialize};

use crate::{Commit, Reason};

/// Maximum length in bytes. The kubelet cuts a termination message, and JSON that is cut cannot be read.
/// All containers of a Pod share 12 KiB, and other components may inject some. A step does not know their
/// number, so reports fit into a Pod with twelve containers.
pub const LIMIT: usize = 1023;

/// Maximum number of names in [`Files::first`].
pub const NAMES: usize = 20;

/// Maximum length of a name and of a message, in characters. Longer text is cut and ends with `…`.
const NAME_LIMIT: usize = 200;
pub(crate) const MESSAGE_LIMIT: usize = 1000;

/// The result of a step.
///
/// Guarantees: [`Report::write`] returns at most [`LIMIT`] bytes for any content. Lists lose names (never
/// their count), then the message is cut. Reading ignores unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum Report {
    /// The checkout is complete.
    Cloned {
        /// The commit that was checked out.
        commit: Commit,
    },
    /// The server accepted the push. Somebody may have moved the branch since then.
    Pushed {
        /// The commit to which the push moved the branch.
        commit: Commit,
        /// The files that differ from the base commit.
        changed: Files,
        /// The files of the output that were skipped.
        #[serde(default)]
        skipped: Files,
    },
    /// The branch already contains this run's commit: an earlier attempt pushed it, and the response was
    /// lost.
    Found {
        /// The commit of the branch.
        commit: Commit,
        /// The files that differ from the base commit.
        changed: Files,
        /// The files of the output that were skipped.
        #[serde(default)]
        skipped: Files,
    },
    /// The output equals the content of the base commit. Nothing was pushed.
    NoChanges {
        /// The files of the output that were skipped.
        #[serde(default)]
        skipped: Files,
    },
    /// The step failed.
    Failed {
        /// The reason for the failure.
        reason: Reason,
        /// The message: the expectation, the finding, the next step.
        message: String,
    },
}

/// A number of files, with the names of the first ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The number of files.
    pub count: u64,
    /// Names of the first files, at most [`NAMES`]. Fewer if they do not fit.
    pub first: Vec<String>,
}

impl Files {
    /// Counts the names and keeps the first ones. Control characters become `?`, and long names are cut.
    pub fn new<Name: AsRef<str>>(names: impl IntoIterator<Item = Name>) -> Self {
        let mut files = Self::default();
        for name in names {
            files.count += 1;
            if files.first.len() < NAMES {
                files.first.push(cleaned(name.as_ref(), NAME_LIMIT));
            }
        }
        files
    }
}

impl Report {
    /// Creates the report of a failure. Control characters become `?`, and a long message is cut.
    #[must_use]
    pub fn failed(reason: Reason, message: &str) -> Self {
        Self::Failed {
            reason,
            message: cleaned(message, MESSAGE_LIMIT),
        }
    }

    /// Parses a termination message. Returns `None` if it is not a report.
    ///
    /// Names and messages are bounded and clean afterwards, whatever program wrote them.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match serde_json::from_str::<Self>(text) {
            Ok(report) => Some(report.bounded()),
            Err(_not_a_report) => None,
        }
    }

    /// Returns the JSON, with at most [`LIMIT`] bytes.
    #[must_use]
    pub fn write(&self) -> String {
        let mut report = self.clone().bounded();
        loop {
            let text = serde_json::json!(report).to_string();
            if text.len() <= LIMIT || !report.shrink() {
                return text;
            }
        }
    }

    fn bounded(mut self) -> Self {
        for files in self.lists() {
            files.first.truncate(NAMES);
            for name in &mut files.first {
                *name = cleaned(name, NAME_LIMIT);
            }
        }
        if let Self::Failed { message, .. } = &mut self {
            *message = cleaned(message, MESSAGE_LIMIT);
        }
        self
    }

    /// Removes the last name of the longer list. Without names, cuts an eighth of the message. Returns whether
    /// there was something to remove.
    fn shrink(&mut self) -> bool {
        if let Some(files) = self
            .lists()
            .into_iter()
            .max_by_key(|files| files.first.len())
        {
            return files.first.pop().is_some();
        }
        match self {
            Self::Failed { message, .. } if !message.is_empty() => {
                *message = cleaned(message, message.chars().count() * 7 / 8);
                true
            }
            Self::Cloned { .. }
            | Self::Pushed { .. }
            | Self::Found { .. }
            | Self::NoChanges { .. }
            | Self::Failed { .. } => false,
        }
    }

    fn lists(&mut self) -> Vec<&mut Files> {
        match self {
            Self::Pushed {
                changed, skipped, ..
            }
            | Self::Found {
                changed, skipped, ..
            } => {
                vec![changed, skipped]
            }
            Self::NoChanges { skipped } => vec![skipped],
            Self::Cloned { .. } | Self::Failed { .. } => Vec::new(),
        }
    }
}

/// Replaces control characters, and cuts the text to `limit` characters.
pub(crate) fn cleaned(text: &str, limit: usize) -> String {
    let clean = |character: char| {
        if character.is_control() {
            '?'
        } else {
            character
        }
    };
    if text.chars().count() <= limit {
        return text.chars().map(clean).collect();
    }
    text.chars()
        .take(limit.saturating_sub(1))
        .map(clean)
        .chain(['…'])
        .collect()
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
    fn what_is_written_is_read() {
        let changed = Files::new(["docs/a.md", "docs/ü.md"]);
        for report in [
            Report::Cloned { commit: commit() },
            Report::Pushed {
                commit: commit(),
                changed: changed.clone(),
                skipped: Files::default(),
            },
            Report::Found {
                commit: commit(),
                changed: changed.clone(),
                skipped: changed.clone(),
            },
            Report::NoChanges { skipped: changed },
            Report::failed(Reason::PushRejected, "the server said \"no\""),
        ] {
            assert_eq!(Report::read(&report.write()), Some(report));
        }
    }

    #[test]
    fn the_written_form_is_kept() {
        let pushed = Report::Pushed {
            commit: commit(),
            changed: Files::new(["a"]),
            skipped: Files::default(),
        };
        let value: serde_json::Value = serde_json::from_str(&pushed.write()).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"outcome": "Pushed", "commit": "ab".repeat(20),
                "changed": {"count": 1, "first": ["a"]}, "skipped": {"count": 0, "first": []}})
        );
    }

    #[test]
    fn reading_ignores_new_fields_and_refuses_the_rest() {
        let id = "ab".repeat(20);
        for (text, is_report) in [
            (
                format!(r#"{{"outcome":"Cloned","commit":"{id}","later":[1]}}"#),
                true,
            ),
            (
                format!(
                    r#"{{"outcome":"Pushed","commit":"{id}","changed":{{"count":1,"first":[]}}}}"#
                ),
                true,
            ),
            (format!(r#"{{"outcome":"Pushed","commit":"{id}"}}"#), false),
            (format!(r#"{{"outcome":"Cloned","commit":"{id}""#), false),
            (
                r#"{"outcome":"Cloned","commit":"--upload-pack=x"}"#.to_owned(),
                false,
            ),
            (r#"{"outcome":"Cloned"}"#.to_owned(), false),
            (r#"{"outcome":"Wonderful"}"#.to_owned(), false),
            (
                r#"{"outcome":"Failed","reason":"Whatever","message":"x"}"#.to_owned(),
                false,
            ),
            ("Error from the container runtime".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(Report::read(&text).is_some(), is_report, "{text}");
        }
    }

    #[test]
    fn counts_stay_right_when_names_are_left_out() {
        let names: Vec<String> = (0..1000)
            .map(|number| format!("{number}{}", "é".repeat(500)))
            .collect();
        let files = Files::new(&names);
        assert_eq!((files.count, files.first.len()), (1000, NAMES));
        let report = Report::Pushed {
            commit: commit(),
            changed: files.clone(),
            skipped: files,
        };
        let text = report.write();
        assert!(text.len() <= LIMIT, "{}", text.len());
        let Some(Report::Pushed {
            changed, skipped, ..
        }) = Report::read(&text)
        else {
            panic!("{text}")
        };
        assert_eq!((changed.count, skipped.count), (1000, 1000));
        assert!(!changed.first.is_empty() && !skipped.first.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn it_always_fits(
            names in prop::collection::vec("\\PC{0,300}|[\u{0}-\u{1f}\"\\\\]{0,300}", 0..60),
            count: u64,
            message in "\\PC{0,5000}|[\u{0}-\u{1f}\"\\\\😀]{0,5000}",
        ) {
            let files = Files { count, first: names };
            for report in [
                Report::Found { commit: commit(), changed: files.clone(), skipped: files.clone() },
                Report::NoChanges { skipped: files.clone() },
                Report::Failed { reason: Reason::PublishFailed, message: message.clone() },
            ] {
                let text = report.write();
                prop_assert!(text.len() <= LIMIT, "{}", text.len());
                prop_assert!(Report::read(&text).is_some());
            }
        }
    }
}
