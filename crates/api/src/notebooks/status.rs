//! The observed state of a NotebookValidationJob.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    /// The full result is stored.
    pub const RESULTS_STORED: &str = "ResultsStored";

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
        (
            RESULTS_STORED,
            "The full result is stored in a ConfigMap, or was until `results.ttl`. Absent with `results.store: None`.",
        ),
    ];
}

/// Maximum number of cells in the status.
pub const MAX_CELLS: usize = 200;
/// Maximum number of differences in the status.
pub const MAX_DIFFS: usize = 10;
/// Maximum length of an excerpt of an output or an error, in characters.
pub const MAX_EXCERPT: usize = 160;

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
    /// Results of code cells, at most 200: cells that failed, were skipped or have a difference come first into the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub results: Vec<CellResult>,
    /// Number of code cells that `results` does not list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results_omitted: Option<u32>,
    /// Result of the comparison with the golden notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison_result: Option<ComparisonResult>,
    /// Numbers of expected outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectations: Option<Expectations>,
    /// Full result, as the runner reported it, and the place where it is stored.
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
    /// Cell that is running, that failed or that was running at the end, among all cells of the notebook, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u32>,
    /// Time at which that cell started; absent after the end. While the job runs, the operator reads it every 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_since: Option<Time>,
}

/// Result of a code cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellResult {
    /// Cell, among all cells of the notebook, from 0.
    pub cell: u32,
    /// `Succeeded`, `Failed`, `Skipped` or `NotRun`.
    pub status: CellStatus,
    /// Duration of the execution, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Result of the comparison; absent without a golden notebook, and for a cell that was not compared.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<CellMatch>,
    /// Error of the cell, at most 160 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 160))]
    pub error: Option<String>,
}

/// End of a code cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CellStatus {
    /// It ended without an error, or with the error that its tag requires.
    Succeeded,
    /// It failed.
    Failed,
    /// A tag skips it.
    Skipped,
    /// A cell before it failed.
    NotRun,
}

/// Comparison of the outputs of a code cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CellMatch {
    /// All outputs match.
    Matched,
    /// An output differs.
    Mismatched,
    /// No output was compared.
    Ignored,
}

/// Difference from the golden notebook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Cell, among all cells of the notebook, from 0. For a `MissingCell`, among those of the golden notebook.
    pub cell: u32,
    /// Type of the difference, such as `OutputMismatch` or `MissingCell`.
    #[schemars(length(max = 64))]
    pub diff_type: String,
    /// `Noise`, `VersionDrift`, `Regression` or `Unknown`. It never changes the verdict.
    #[schemars(length(max = 64))]
    pub class: String,
    /// Explanation of the difference or of its class.
    #[serde(default)]
    #[schemars(length(max = 160))]
    pub rule: String,
    /// Excerpt of the expected output.
    #[serde(default)]
    #[schemars(length(max = 160))]
    pub expected: String,
    /// Excerpt of the actual output.
    #[serde(default)]
    #[schemars(length(max = 160))]
    pub actual: String,
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
    /// First differences, at most 10. The stored result has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub diffs: Vec<Difference>,
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

/// Full result, as the runner reported it, and the place where it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportStatus {
    /// SHA-256 of the compressed result.
    #[schemars(length(max = 64))]
    pub sha256: String,
    /// Size of the compressed result, in bytes.
    pub bytes: u32,
    /// Name of the ConfigMap with the compressed result; absent if it is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub config_map_name: Option<String>,
    /// Parts that the runner dropped because the result was too large: `notebook`, `equal cells`, `texts`, `details`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 64)))]
    pub truncated: Vec<String>,
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
