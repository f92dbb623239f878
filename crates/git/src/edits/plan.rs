//! The plan: the edits that a commit would make.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    DocumentRef, MAX_EDITS,
    request::{Change, Edit},
};
use crate::Commit;

/// Maximum length of [`Plan::diff`], in bytes.
pub const DIFF_LIMIT: usize = 4096;

/// Maximum length of a written plan, in bytes.
const PLAN_LIMIT: usize = 128 << 10;

/// Maximum length of a text in a plan, in bytes.
const TEXT_LIMIT: usize = 512;

/// Beginning of the line before the plan in the log. The digest follows.
const BEGIN: &str = "orchestrator-plan-begin sha256:";
/// The line after the plan.
const END: &str = "orchestrator-plan-end";

/// The edits that a commit would make, on the commit that the branch had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The commit of the branch.
    pub base: Commit,
    /// The edits that change a value.
    pub edits: Vec<PlannedEdit>,
    /// The files before the edits.
    pub files: Vec<FileDigest>,
    /// The changed lines, without the lines around them. At most [`DIFF_LIMIT`] bytes.
    pub diff: String,
    /// Number of commits by which the branch is ahead of the applied commit. `None` if it is not among the
    /// newest 100, or was not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unapplied_commits: Option<u32>,
}

/// One edit with all that the commit needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedEdit {
    /// The file.
    pub file: String,
    /// The document in the file.
    pub document: DocumentRef,
    /// Path of the field.
    pub field_path: String,
    /// The value before.
    pub from: String,
    /// The value afterwards.
    pub to: String,
    /// Number of the line, from 1.
    pub line: u32,
    /// Whether the line has a marker of Flux's image automation, which may overwrite the value.
    #[serde(default)]
    pub has_automation_marker: bool,
}

/// SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileDigest {
    /// Path in the repository.
    pub path: String,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
}

/// Returns the SHA-256 of some content, in hexadecimal digits.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

impl Plan {
    /// Returns the lines for the log, and the digest for the report.
    #[must_use]
    pub fn frame(&self) -> (String, String) {
        // JSON escapes line breaks, so this is one line.
        let text = serde_json::json!(self).to_string();
        let digest = sha256(text.as_bytes());
        (format!("{BEGIN}{digest}\n{text}\n{END}\n"), digest)
    }

    /// Returns the plan with this digest from a log.
    ///
    /// # Errors
    /// When the log does not contain it, or it exceeds its limits.
    pub fn find(log: &str, digest: &str) -> Result<Self, String> {
        let begin = format!("{BEGIN}{digest}");
        let mut lines = log.lines().skip_while(|line| *line != begin).skip(1);
        let text = lines
            .next()
            .ok_or("the log of the step does not contain the plan of its report")?;
        if text.len() > PLAN_LIMIT || sha256(text.as_bytes()) != digest {
            return Err(
                "the plan in the log of the step has another digest than its report".to_owned(),
            );
        }
        let plan: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        plan.check()?;
        Ok(plan)
    }

    /// Returns the edits for a request in mode Commit.
    #[must_use]
    pub fn edits_to_commit(&self) -> Vec<Edit> {
        let edit = |planned: &PlannedEdit| Edit {
            file: Some(planned.file.clone()),
            document: planned.document.clone(),
            field_path: planned.field_path.clone(),
            change: Change::Exact {
                from: planned.from.clone(),
                to: planned.to.clone(),
            },
        };
        self.edits.iter().map(edit).collect()
    }

    fn check(&self) -> Result<(), String> {
        let has_size = (1..=MAX_EDITS).contains(&self.edits.len())
            && self.files.len() <= self.edits.len()
            && self.diff.len() <= DIFF_LIMIT;
        let is_short = |text: &str| text.len() <= TEXT_LIMIT;
        let are_short = self.edits.iter().all(|edit| {
            [&edit.file, &edit.field_path, &edit.from, &edit.to]
                .into_iter()
                .all(|text| is_short(text))
        });
        let are_digests = self
            .files
            .iter()
            .all(|file| is_short(&file.path) && file.sha256.len() == 64);
        if has_size && are_short && are_digests {
            Ok(())
        } else {
            Err("the plan of the step exceeds its limits".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::{Mode, request::tests::request};

    fn plan() -> Plan {
        let edit = request().edits.remove(0);
        Plan {
            base: Commit::parse(&"ab".repeat(20)).unwrap(),
            edits: vec![PlannedEdit {
                file: "apps/shop/release.yaml".to_owned(),
                document: edit.document,
                field_path: edit.field_path,
                from: "1.2.0".to_owned(),
                to: "1.3.0".to_owned(),
                line: 7,
                has_automation_marker: false,
            }],
            files: vec![FileDigest {
                path: "apps/shop/release.yaml".to_owned(),
                sha256: sha256(b"content"),
            }],
            diff: "--- a/x\n+++ b/x\n".to_owned(),
            unapplied_commits: Some(2),
        }
    }

    #[test]
    fn a_plan_is_found_in_a_log() {
        let (frame, digest) = plan().frame();
        assert_eq!(frame.lines().count(), 3);
        let log = format!("team/run: fetching\n{frame}team/run: done\n");
        assert_eq!(Plan::find(&log, &digest), Ok(plan()));
    }

    #[test]
    fn its_edits_are_a_request() {
        let mut commit = request();
        commit.mode = Mode::Commit;
        let expected = commit.edits.clone();
        commit.edits = plan().edits_to_commit();
        assert_eq!(commit.edits, expected);
        assert_eq!(commit.check(), Ok(()));
    }

    #[test]
    fn other_plans_are_rejected() {
        let (frame, digest) = plan().frame();
        let other = frame.replace("1.3.0", "6.6.6");
        for (log, words) in [
            (String::new(), "does not contain"),
            (frame.replace(&digest, "0"), "does not contain"),
            (frame.lines().take(1).collect(), "does not contain"),
            (other, "another digest"),
            (frame.replacen('\n', "\nx\n", 1), "another digest"),
        ] {
            let error = Plan::find(&log, &digest).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn plans_beyond_the_limits_are_rejected() {
        type Spoil = fn(&mut Plan);
        let cases: [Spoil; 5] = [
            |plan| plan.edits.clear(),
            |plan| plan.edits = vec![plan.edits[0].clone(); MAX_EDITS + 1],
            |plan| plan.diff = "x".repeat(DIFF_LIMIT + 1),
            |plan| plan.edits[0].to = "x".repeat(TEXT_LIMIT + 1),
            |plan| plan.files[0].sha256 = String::new(),
        ];
        for spoil in cases {
            let mut plan = plan();
            spoil(&mut plan);
            let (frame, digest) = plan.frame();
            let error = Plan::find(&frame, &digest).unwrap_err();
            assert!(error.contains("exceeds its limits"), "{error}");
        }
    }
}
