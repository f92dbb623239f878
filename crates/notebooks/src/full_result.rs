//! The content of the full result: the cells and the differences that the status shows.
//!
//! # Caveats
//! The runner masks Secrets in all texts. The texts come from the kernel, so nothing here decides about the verdict.

use std::io::Read;

use api::{
    notebooks::{CellMatch, CellResult, CellStatus, Difference, MAX_CELLS, MAX_DIFFS, MAX_EXCERPT},
    status::bounded,
};
use flate2::read::GzDecoder;
use serde::Deserialize;

/// Version of the result.
const VERSION: u32 = 1;
/// Maximum size of the decompressed result, in bytes. The runner writes less.
const MAX_PLAIN: u64 = 16 * 1024 * 1024;
/// Maximum number of notes about dropped parts.
const MAX_TRUNCATED: usize = 8;

/// Full result of a run, with the parts that the status shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullResult {
    /// Compressed result, as the runner wrote it.
    pub content: Vec<u8>,
    /// Cells, at most [`MAX_CELLS`].
    pub cells: Vec<CellResult>,
    /// First differences, at most [`MAX_DIFFS`].
    pub diffs: Vec<Difference>,
    /// Parts that the runner dropped.
    pub truncated: Vec<String>,
}

/// The part of the result that the operator reads.
#[derive(Deserialize)]
struct Document {
    v: u32,
    results: Vec<CellResult>,
    diffs: Vec<Difference>,
    truncated: Vec<String>,
}

impl FullResult {
    /// Reads a compressed result.
    ///
    /// # Errors
    /// Describes the first problem, without a part of the content.
    pub fn read(content: Vec<u8>) -> Result<Self, String> {
        let mut plain = Vec::new();
        // One byte more shows that the limit is exceeded.
        let mut reader = GzDecoder::new(content.as_slice()).take(MAX_PLAIN + 1);
        if reader.read_to_end(&mut plain).is_err() {
            return Err("the result cannot be decompressed".to_owned());
        }
        if u64::try_from(plain.len()).unwrap_or(u64::MAX) > MAX_PLAIN {
            return Err("the decompressed result has more than 16 MiB".to_owned());
        }
        // The error quotes a part of the result, so the message does not contain it.
        let Ok(document) = serde_json::from_slice::<Document>(&plain) else {
            return Err("the result is not the JSON of a result".to_owned());
        };
        if document.v != VERSION {
            let found = document.v;
            return Err(format!(
                "the result has version {found} instead of {VERSION}"
            ));
        }
        let excerpts = |texts: Vec<String>| texts.iter().map(|text| excerpt(text)).collect();
        let truncated: Vec<String> = excerpts(document.truncated);
        Ok(Self {
            content,
            cells: listed(document.results),
            diffs: document
                .diffs
                .into_iter()
                .take(MAX_DIFFS)
                .map(shortened)
                .collect(),
            truncated: truncated.into_iter().take(MAX_TRUNCATED).collect(),
        })
    }
}

/// Returns the cells for the status, in the order of the notebook. Remarkable cells displace all others.
fn listed(cells: Vec<CellResult>) -> Vec<CellResult> {
    let (mut listed, others): (Vec<_>, Vec<_>) = cells.into_iter().partition(is_remarkable);
    listed.truncate(MAX_CELLS);
    let room = MAX_CELLS.saturating_sub(listed.len());
    listed.extend(others.into_iter().take(room));
    listed.sort_by_key(|cell| cell.cell);
    let shortened = listed.into_iter().map(|cell| CellResult {
        error: cell
            .error
            .filter(|error| !error.is_empty())
            .map(|error| excerpt(&error)),
        ..cell
    });
    shortened.collect()
}

fn is_remarkable(cell: &CellResult) -> bool {
    matches!(cell.status, CellStatus::Failed | CellStatus::Skipped)
        || cell.comparison == Some(CellMatch::Mismatched)
}

fn shortened(found: Difference) -> Difference {
    Difference {
        cell: found.cell,
        diff_type: bounded(&found.diff_type, 64),
        class: bounded(&found.class, 64),
        rule: excerpt(&found.rule),
        expected: excerpt(&found.expected),
        actual: excerpt(&found.actual),
    }
}

fn excerpt(text: &str) -> String {
    bounded(text, MAX_EXCERPT)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn packed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn cell(index: u32, status: &str, comparison: Option<&str>, error: &str) -> Value {
        json!({
            "cell": index, "status": status, "durationMs": 12, "match": comparison, "error": error,
        })
    }

    fn document(results: &[Value]) -> Value {
        let long = "x".repeat(1000);
        let diff = json!({
            "cell": 1, "diffType": "OutputMismatch", "class": "Noise", "rule": "text/plain",
            "expected": long, "actual": "b\nc",
        });
        json!({
            "v": 1, "uid": "u", "results": results, "diffs": vec![diff; 12], "truncated": ["notebook"],
            "notebook": { "cells": [] },
        })
    }

    fn read(document: &Value) -> Result<FullResult, String> {
        FullResult::read(packed(document.to_string().as_bytes()))
    }

    #[test]
    fn a_result_has_bounded_lists_and_texts() {
        let plain = cell(0, "Succeeded", Some("Matched"), "");
        let mut cells = vec![plain; 300];
        cells.push(cell(301, "Failed", None, &"y".repeat(500)));
        cells.push(cell(302, "NotRun", None, ""));
        cells.push(cell(303, "Succeeded", Some("Mismatched"), ""));
        let found = read(&document(&cells)).unwrap();
        assert_eq!(found.cells.len(), MAX_CELLS);
        let last: Vec<u32> = found
            .cells
            .iter()
            .rev()
            .take(3)
            .map(|one| one.cell)
            .collect();
        assert_eq!(last, [303, 301, 0], "cells that did not run come last");
        let failed = found.cells.iter().find(|one| one.cell == 301).unwrap();
        assert_eq!(failed.error.as_ref().unwrap().chars().count(), MAX_EXCERPT);
        assert_eq!(found.cells[0].error, None);
        assert_eq!(found.diffs.len(), MAX_DIFFS);
        assert_eq!(found.diffs[0].expected.chars().count(), MAX_EXCERPT);
        assert_eq!(found.diffs[0].actual, "b c");
        assert_eq!(found.truncated, ["notebook"]);
    }

    #[test]
    fn a_result_that_cannot_be_read_is_rejected() {
        let mut newer = document(&[]);
        newer["v"] = json!(2);
        let unknown = document(&[cell(0, "Other", None, "")]);
        for (content, part) in [
            (b"plain".to_vec(), "decompressed"),
            (packed(b"{}"), "not the JSON"),
            (packed(unknown.to_string().as_bytes()), "not the JSON"),
            (packed(newer.to_string().as_bytes()), "version 2"),
            (packed(&vec![b' '; 17 * 1024 * 1024]), "16 MiB"),
        ] {
            let error = FullResult::read(content).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
