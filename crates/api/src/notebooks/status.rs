//! The observed state of a NotebookValidationJob.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{checks::Strategy, phase::NotebookPhase};
use crate::{CommonStatus, Status, status::Attempt, tasks::AttemptStatus};

/// The condition types that only NotebookValidationJobs have.
pub mod condition {
    /// The commits are known.
    pub const SOURCE_RESOLVED: &str = "SourceResolved";
    /// The outputs match those of the golden notebook.
    pub const COMPARED: &str = "Compared";

    /// All of them with their meanings, for the docs.
    pub const MEANINGS: &[(&str, &str)] = &[
        (
            SOURCE_RESOLVED,
            "The commits of the notebook and of the golden notebook are known.",
        ),
        (
            COMPARED,
            "The outputs match those of the golden notebook; False with the reason `NoGolden` if there is none.",
        ),
    ];
}

/// Observed state of a NotebookValidationJob.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotebookValidationJobStatus {
    /// Phase of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<NotebookPhase>,
    /// Commit of the notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub commit: Option<String>,
    /// Commit of the golden notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub golden_commit: Option<String>,
    /// Image of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub image: Option<String>,
    /// Numbers of code cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// Result of the comparison with the golden notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison_result: Option<ComparisonResult>,
    /// Numbers of expected outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectations: Option<Expectations>,
    /// Full result, as the runner reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportStatus>,
    /// Fields that every kind of runs has.
    #[serde(flatten)]
    pub attempt: AttemptStatus,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

crate::embed!(NotebookValidationJobStatus, attempt: AttemptStatus);

/// Numbers of code cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cells {
    /// Number of code cells with source.
    pub total: u32,
    /// Number of cells that ended without an error.
    pub done: u32,
    /// Number of cells that failed.
    pub failed: u32,
    /// Number of cells that their tags skip.
    pub skipped: u32,
    /// Cell that failed or was running at the end, among all cells of the notebook, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u32>,
}

/// Result of the comparison with the golden notebook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonResult {
    /// How outputs were compared.
    pub strategy: Strategy,
    /// `matched` or `mismatched`.
    #[schemars(length(max = 16))]
    pub result: String,
    /// Number of code cells with source.
    pub total_cells: u32,
    /// Number of cells whose outputs match.
    pub matched_cells: u32,
    /// Number of cells with a difference.
    pub mismatched_cells: u32,
    /// Number of cells without an output that was compared.
    pub ignored_cells: u32,
    /// Number of differences of each class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, u32>,
}

/// Numbers of expected outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expectations {
    /// Number of expected outputs.
    pub total: u32,
    /// Number of expected outputs that the run does not have.
    pub failed: u32,
}

/// Full result, as the runner reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportStatus {
    /// SHA-256 of the compressed result.
    #[schemars(length(max = 64))]
    pub sha256: String,
    /// Size of the compressed result, in bytes.
    pub bytes: u32,
}

impl Status for NotebookValidationJobStatus {
    crate::common_status!(NotebookPhase, RunToCompletion);

    fn attempt(&self) -> Attempt {
        Attempt {
            number: self.attempts,
            restarts: self.disruptions,
        }
    }
    /// The sources are recorded before the Job that runs them is created (R60).
    fn has_intent(&self, intent: &str) -> bool {
        validation_intent(self).is_some_and(|stored| stored == intent)
    }
}

/// Returns the validation that a status announces: the commits and the image. Returns `None` before these are recorded,
/// and for a status of an earlier operator.
#[must_use]
pub fn validation_intent(status: &NotebookValidationJobStatus) -> Option<String> {
    if status.phase.is_some_and(NotebookPhase::is_legacy) {
        return None;
    }
    let (commit, image) = (status.commit.as_ref()?, status.image.as_ref()?);
    let golden = status.golden_commit.as_deref().unwrap_or("nothing");
    Some(format!("validate {commit} on '{image}' against {golden}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R60: no Job exists before the stored status announces its commit and its image.
    #[test]
    fn r60_a_validation_is_announced_by_its_commit_and_its_image() {
        let status = |phase, commit: Option<&str>, image: Option<&str>| {
            let status = NotebookValidationJobStatus {
                phase: Some(phase),
                commit: commit.map(str::to_owned),
                image: image.map(str::to_owned),
                ..NotebookValidationJobStatus::default()
            };
            validation_intent(&status)
        };
        let running = NotebookPhase::ValidationRunning;
        let full = status(running, Some("a1"), Some("x:1"));
        assert_eq!(
            full.as_deref(),
            Some("validate a1 on 'x:1' against nothing")
        );
        assert_eq!(status(running, None, Some("x:1")), None);
        assert_eq!(status(running, Some("a1"), None), None);
        for legacy in [NotebookPhase::Pending, NotebookPhase::Running] {
            assert_eq!(status(legacy, Some("a1"), Some("x:1")), None);
        }
    }
}
