//! Comparison and checks of a NotebookValidationJob.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::rules::one_line;

/// How outputs are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strategy {
    /// Numbers and images within tolerances, without values that differ in each run.
    #[default]
    #[serde(rename = "normalized")]
    Normalized,
    /// Byte by byte.
    #[serde(rename = "exact")]
    Exact,
}

/// Values that a normalized comparison replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Normalizer {
    /// Times with a time of day.
    Timestamps,
    /// Durations.
    Durations,
    /// Addresses in memory.
    Addresses,
    /// UUIDs.
    Uuids,
    /// Absolute paths.
    Paths,
    /// Order of lines.
    Order,
}

/// Comparison of the outputs with those of the golden notebook.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exact_without_settings())]
pub struct Comparison {
    /// How outputs are compared: `normalized` or `exact`. Default: `normalized`.
    #[serde(default)]
    pub strategy: Strategy,
    /// Maximum difference of two numbers that are no integers, relative to the golden number if that is above 1.
    /// Default: `0.0001`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), regex(pattern = r"^(0(\.[0-9]+)?|1)$"))]
    pub float_tolerance: Option<String>,
    /// Maximum difference of the worst tile of two images, relative to full scale. Default: `0.02`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), regex(pattern = r"^(0(\.[0-9]+)?|1)$"))]
    pub image_tolerance: Option<String>,
    /// Values that are not compared. Default: `timestamps` and `addresses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6))]
    pub ignore: Option<Vec<Normalizer>>,
    /// Types of outputs that are not compared: types of messages or MIME types. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(
            length(max = 200),
            regex(
                pattern = r"^(stream|stdout|stderr|display_data|execute_result|error|[^/]+/[^/]+)$"
            )
        )
    )]
    pub ignore_output_types: Vec<String>,
    /// Patterns whose matches are replaced before the comparison. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub custom_patterns: Vec<CustomPattern>,
}

/// Pattern whose matches are replaced before the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomPattern {
    /// Regular expression. All patterns of a cell together may need one second.
    #[schemars(length(min = 1, max = 500))]
    pub pattern: String,
    /// Literal text that replaces each match.
    #[schemars(length(max = 100))]
    pub replace_with: String,
}

/// Strictness of the checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Output on stderr, warnings and skipped cells are allowed.
    #[default]
    Development,
    /// Warnings fail the job.
    Staging,
    /// Output on stderr, warnings and skipped cells fail the job, and a golden notebook is required.
    Production,
}

/// Checks of the run, besides the comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Strictness of the checks that are not set: `development`, `staging` or `production`. Default: `development`.
    #[serde(default)]
    pub level: Level,
    /// Whether output on stderr fails the job. Default: true at the level `production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_stderr: Option<bool>,
    /// Whether a warning on stderr fails the job. Default: true at the levels `staging` and `production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_warnings: Option<bool>,
    /// Whether cells may be skipped by their tags. Default: false at the level `production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_skipped: Option<bool>,
    /// Whether a golden notebook is required. Default: true at the level `production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_golden: Option<bool>,
    /// Expected results of cells. Only Python kernels support them. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cell".into()]))]
    pub expected_outputs: Vec<ExpectedOutput>,
}

/// Expected result of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::has_check(), validation = rules::min_within_max())]
pub struct ExpectedOutput {
    /// Index of the cell among all cells of the notebook, from 0.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cell: u32,
    /// Name of the type of the result, such as `DataFrame`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = one_line())]
    pub type_name: Option<String>,
    /// Shape of the result, such as `-1,10`; -1 is any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 200),
        regex(pattern = r"^(-1|[0-9]{1,15})(,(-1|[0-9]{1,15}))*$")
    )]
    pub shape: Option<String>,
    /// Minimum of the result, or of all its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), regex(pattern = r"^-?[0-9]{1,15}(\.[0-9]{1,12})?$"))]
    pub min_value: Option<String>,
    /// Maximum of the result, or of all its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), regex(pattern = r"^-?[0-9]{1,15}(\.[0-9]{1,12})?$"))]
    pub max_value: Option<String>,
    /// Requires that the result is not empty. It can only be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self").message("must be true; remove the field otherwise"))]
    pub not_empty: Option<bool>,
}

/// The effective checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// Whether output on stderr fails the job.
    pub fail_on_stderr: bool,
    /// Whether a warning on stderr fails the job.
    pub fail_on_warnings: bool,
    /// Whether cells may be skipped.
    pub allow_skipped: bool,
}

impl Validation {
    /// Returns the effective checks. A field that is set overrides the level.
    #[must_use]
    pub fn checks(&self) -> Checks {
        let (stderr, warnings, skipped) = match self.level {
            Level::Development => (false, false, true),
            Level::Staging => (false, true, true),
            Level::Production => (true, true, false),
        };
        Checks {
            fail_on_stderr: self.fail_on_stderr.unwrap_or(stderr),
            fail_on_warnings: self.fail_on_warnings.unwrap_or(warnings),
            allow_skipped: self.allow_skipped.unwrap_or(skipped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_overrides_the_level() {
        for (level, stderr, expected) in [
            (Level::Development, None, (false, false, true)),
            (Level::Staging, None, (false, true, true)),
            (Level::Production, None, (true, true, false)),
            (Level::Production, Some(false), (false, true, false)),
            (Level::Development, Some(true), (true, false, true)),
        ] {
            let validation = Validation {
                level,
                fail_on_stderr: stderr,
                ..Validation::default()
            };
            let checks = validation.checks();
            assert_eq!(
                (
                    checks.fail_on_stderr,
                    checks.fail_on_warnings,
                    checks.allow_skipped
                ),
                expected,
                "{level:?} {stderr:?}"
            );
        }
    }
}
