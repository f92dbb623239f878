//! What a step tells the operator: the JSON in its container's termination message.

use serde::{Deserialize, Serialize};

use crate::{Commit, Reason};

/// The kubelet cuts a termination message at 4096 bytes, and JSON that is cut cannot be read.
const LIMIT: usize = 4095;

/// The most names in [`Files::first`].
pub const NAMES: usize = 20;

/// The longest name in characters, the longest message, too: beyond it comes `…`.
const NAME_LIMIT: usize = 200;
const MESSAGE_LIMIT: usize = 1000;

/// What a step did.
///
/// Guarantees: [`Report::write`] gives less than 4096 bytes whatever is inside; lists lose names
/// (never their count), then the message is cut. Reading ignores fields that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum Report {
    /// The checkout is there.
    Cloned {
        /// The commit that was checked out.
        commit: Commit,
    },
    /// The server accepted the push. Somebody may have moved the branch on since.
    Pushed {
        /// Where the push put the branch.
        commit: Commit,
        /// The files that differ from the base commit.
        changed: Files,
        /// The files of the output that were left out.
        #[serde(default)]
        skipped: Files,
    },
    /// The branch holds this run's commit already: an earlier try pushed it, and its answer was lost.
    Found {
        /// Where the branch is.
        commit: Commit,
        /// The files that differ from the base commit.
        changed: Files,
        /// The files of the output that were left out.
        #[serde(default)]
        skipped: Files,
    },
    /// The output is what the base commit holds; nothing was pushed.
    NoChanges {
        /// The files of the output that were left out.
        #[serde(default)]
        skipped: Files,
    },
    /// It did not work.
    Failed {
        /// Why.
        reason: Reason,
        /// The sentence: what was wanted, what was found, what to do.
        message: String,
    },
}

/// Files: how many, and the names of the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// How many there are.
    pub count: u64,
    /// Names of the first, at most [`NAMES`]; fewer if they do not fit.
    pub first: Vec<String>,
}

impl Files {
    /// Counts the names and keeps the first. Control characters become `?`, long names are cut.
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
    /// A failure. Control characters become `?`, a long message is cut.
    #[must_use]
    pub fn failed(reason: Reason, message: &str) -> Self {
        Self::Failed {
            reason,
            message: cleaned(message, MESSAGE_LIMIT),
        }
    }

    /// Reads a termination message; `None` if it is not a report.
    ///
    /// Whoever wrote it, names and messages are bounded and clean afterwards.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match serde_json::from_str::<Self>(text) {
            Ok(report) => Some(report.bounded()),
            Err(_not_a_report) => None,
        }
    }

    /// The JSON, below 4096 bytes.
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

    /// Takes the last name of the longer list; without names, halves the message.
    /// Returns whether there was something to take.
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
                *message = cleaned(message, message.chars().count() / 2);
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

/// The text without control characters, at most `limit` characters.
fn cleaned(text: &str, limit: usize) -> String {
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
    use proptest::prelude::*;

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
            Report::failed(Reason::PushRefused, "the server said \"no\""),
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
        assert!(text.len() < 4096, "{}", text.len());
        let Some(Report::Pushed {
            changed, skipped, ..
        }) = Report::read(&text)
        else {
            panic!("{text}")
        };
        assert_eq!((changed.count, skipped.count), (1000, 1000));
        assert!(changed.first.len() >= 4 && skipped.first.len() >= 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
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
                prop_assert!(text.len() < 4096, "{}", text.len());
                prop_assert!(Report::read(&text).is_some());
            }
        }
    }
}
