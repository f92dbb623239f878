//! The sections of NotebookValidationJobs.

use serde_json::Value;

use super::{
    Field,
    Shown::{At, Each, Parts, Since, Span},
};

pub(super) const SPEC: &[Field] = &[
    ("Notebook", At("spec.notebook.path")),
    ("Repository", At("spec.notebook.git.url")),
    ("Reference", At("spec.notebook.git.ref")),
    ("Golden notebook", At("spec.goldenNotebook.path")),
    ("Image", At("spec.podConfig.containerImage")),
    ("Level", At("spec.validation.level")),
    ("Timeout", Span("spec.timeout")),
];

pub(super) const STATUS: &[Field] = &[
    ("Commit", At("status.commit")),
    ("Golden commit", At("status.goldenCommit")),
    (
        "Cells",
        Parts(&[
            ("", "status.cells.done", " of "),
            ("", "status.cells.total", " succeeded"),
            (", ", "status.cells.failed", " failed"),
            (", ", "status.cells.skipped", " skipped"),
        ]),
    ),
    ("Current cell", At("status.cells.current")),
    ("Cell started", Since("status.cells.currentSince")),
    ("Comparison", At("status.comparisonResult.result")),
    (
        "Differences",
        Each("status.comparisonResult.diffs", difference),
    ),
    ("Full result", At("status.report.configMapName")),
];

/// Formats a difference: `cell 4: OutputMismatch (Noise)`.
fn difference(found: &Value) -> String {
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    let cell = found["cell"].as_u64().unwrap_or_default();
    format!("cell {cell}: {} ({})", text("diffType"), text("class"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_has_its_cell_and_its_class() {
        let found = json!({ "cell": 4, "diffType": "OutputMismatch", "class": "Noise" });
        assert_eq!(difference(&found), "cell 4: OutputMismatch (Noise)");
    }
}
