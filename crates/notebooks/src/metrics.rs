//! The numbers of a finished job, for metrics. Labels are bounded: none comes from a notebook.

use api::notebooks::NotebookValidationJobStatus;

/// Classes of differences. The runner knows no others.
const CLASSES: [&str; 4] = ["Noise", "VersionDrift", "Regression", "Unknown"];

/// Returns the numbers of code cells, by outcome.
#[must_use]
pub fn cell_counts(status: &NotebookValidationJobStatus) -> [(&'static str, u32); 3] {
    let cells = status.cells.clone().unwrap_or_default();
    [
        ("Succeeded", cells.done),
        ("Failed", cells.failed),
        ("Skipped", cells.skipped),
    ]
}

/// Returns the numbers of differences, by class. A class of another name counts as `Unknown`.
#[must_use]
pub fn class_counts(status: &NotebookValidationJobStatus) -> [(&'static str, u32); 4] {
    let compared = status.comparison_result.as_ref();
    let classes = compared.map_or_else(Default::default, |compared| compared.classes.clone());
    let of = |class: &str| classes.get(class).copied().unwrap_or_default();
    let all = classes
        .values()
        .fold(0_u32, |sum, count| sum.saturating_add(*count));
    let known = CLASSES[..3]
        .iter()
        .fold(0_u32, |sum, class| sum.saturating_add(of(class)));
    CLASSES.map(|class| match class {
        "Unknown" => (class, all.saturating_sub(known)),
        _ => (class, of(class)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_counted_once() {
        let status: NotebookValidationJobStatus = serde_json::from_value(json!({
            "cells": { "total": 9, "done": 5, "failed": 1, "skipped": 2 },
            "comparisonResult": {
                "strategy": "normalized", "result": "mismatched", "totalCells": 9, "matchedCells": 4,
                "mismatchedCells": 3, "ignoredCells": 2,
                "classes": { "Noise": 2, "Unknown": 1, "Other": 4 },
            },
        }))
        .unwrap();
        let expected = [("Succeeded", 5), ("Failed", 1), ("Skipped", 2)];
        assert_eq!(cell_counts(&status), expected);
        let expected = [
            ("Noise", 2),
            ("VersionDrift", 0),
            ("Regression", 0),
            ("Unknown", 5),
        ];
        assert_eq!(class_counts(&status), expected);
        let none = NotebookValidationJobStatus::default();
        assert!(class_counts(&none).iter().all(|(_, count)| *count == 0));
    }
}
