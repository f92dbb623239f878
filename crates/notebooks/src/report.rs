//! The report of the runner: the termination message of its container.
//!
//! # Guarantees
//! A report that is missing, cut, contradictory or of another run is never a verdict.

use std::collections::BTreeMap;

use api::{Reason, notebooks::ReportStatus, status::bounded};
use pods::message_limit;
use serde::Deserialize;

/// Size from which a report may be cut, in bytes. The runner writes less.
const LIMIT: usize = 2000;

/// Version of the report.
const VERSION: u32 = 1;

/// The run that a report must be about.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// UID of the job.
    pub uid: &'a str,
    /// Number of the attempt.
    pub attempt: u32,
    /// Commit of the notebook.
    pub commit: &'a str,
    /// Image of the kernel.
    pub image: &'a str,
}

/// Report of the runner.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Report {
    v: u32,
    uid: String,
    attempt: u32,
    commit: String,
    image: String,
    /// Result of the runner.
    pub outcome: Outcome,
    /// Reason of a failure.
    #[serde(default)]
    pub reason: Option<String>,
    /// Cell that failed, or that was running at the end.
    #[serde(default)]
    pub cell: Option<u32>,
    /// Numbers of cells, outputs and expectations.
    #[serde(default)]
    pub counts: Option<Counts>,
    /// Number of differences of each class. It never changes the verdict.
    #[serde(default)]
    pub classes: BTreeMap<String, u32>,
    /// SHA-256 of the compressed result.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Size of the compressed result, in bytes.
    #[serde(default)]
    pub bytes: Option<u32>,
    /// Message for users.
    #[serde(default)]
    pub message: String,
}

/// Result of the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Outcome {
    /// All checks were passed.
    Succeeded,
    /// The notebook failed, for the reason in the report.
    Failed,
    /// The runner was stopped or failed itself. It is never a verdict.
    Incomplete,
}

/// Numbers in a report. All but the last three count code cells with source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All cells.
    pub total: u32,
    /// Cells that ended without an error.
    pub succeeded: u32,
    /// Cells that failed.
    pub failed: u32,
    /// Cells that their tags skip.
    pub skipped: u32,
    /// Cells after the one that failed.
    pub not_run: u32,
    /// Cells with matching outputs.
    pub matched: u32,
    /// Cells with a difference.
    pub mismatched: u32,
    /// Cells without an output that was compared.
    pub ignored: u32,
    /// Outputs that were compared.
    pub compared: u32,
    /// Expected outputs.
    pub expectations: u32,
    /// Expected outputs that the run does not have.
    pub expectations_failed: u32,
}

impl Report {
    /// Reads the report in a termination message. `containers` is the number of containers of the Pod, with those that
    /// other components injected.
    ///
    /// # Errors
    /// Returns the reason and the message if the report proves nothing.
    pub fn read(
        message: &str,
        containers: usize,
        expected: &Identity<'_>,
    ) -> Result<Self, (Reason, String)> {
        let limit = message_limit(containers).min(LIMIT);
        if message.len() >= limit {
            let message = format!(
                "the report of the runner has {limit} bytes or more, so it may be cut and proves nothing"
            );
            return Err((Reason::ResultTooLarge, message));
        }
        if message.trim().is_empty() {
            let message = "the runner ended without a report".to_owned();
            return Err((Reason::ResultMissing, message));
        }
        // The message does not repeat the error, because the error quotes the report.
        let Ok(report) = serde_json::from_str::<Self>(message) else {
            return Err(invalid("is not the JSON of a report"));
        };
        report.check(expected).map_err(|found| invalid(&found))?;
        Ok(report)
    }

    fn check(&self, expected: &Identity<'_>) -> Result<(), String> {
        if self.v != VERSION {
            return Err(format!("has version {} instead of {VERSION}", self.v));
        }
        let Identity {
            uid,
            attempt,
            commit,
            image,
        } = *expected;
        for (name, is_same) in [
            ("UID", self.uid == uid),
            ("attempt", self.attempt == attempt),
            ("commit", self.commit == commit),
            ("image", self.image == image),
        ] {
            if !is_same {
                return Err(format!("names another {name} than this run has"));
            }
        }
        if self.outcome == Outcome::Failed && self.reason.as_deref().is_none_or(str::is_empty) {
            return Err("reports a failure without a reason".to_owned());
        }
        Ok(())
    }

    /// Returns the full result that the report names, or `None` if the runner wrote none.
    #[must_use]
    pub fn result(&self) -> Option<ReportStatus> {
        Some(ReportStatus {
            sha256: bounded(self.sha256.as_ref()?, 64),
            bytes: self.bytes?,
            config_map_name: None,
            truncated: Vec::new(),
        })
    }

    /// Checks whether the numbers of a success agree with each other.
    ///
    /// # Errors
    /// Describes the first contradiction.
    pub fn check_success(&self, has_golden: bool) -> Result<Counts, String> {
        if self.reason.is_some() || self.cell.is_some() {
            return Err("reports a success with the reason of a failure".to_owned());
        }
        let Some(counts) = self.counts else {
            return Err("reports a success without counts".to_owned());
        };
        let sum = |one: u32, other: u32| one.checked_add(other);
        let failures = [
            counts.failed,
            counts.not_run,
            counts.mismatched,
            counts.expectations_failed,
        ];
        if failures.iter().any(|count| *count > 0) {
            return Err("reports a success and counts failures".to_owned());
        }
        if counts.succeeded == 0 {
            return Err("reports a success without a cell that ran".to_owned());
        }
        if sum(counts.succeeded, counts.skipped) != Some(counts.total) {
            return Err("reports a success with a number of cells that does not add up".to_owned());
        }
        if has_golden && counts.compared == 0 {
            return Err("reports a success without an output that was compared".to_owned());
        }
        if has_golden && sum(counts.matched, counts.ignored) != Some(counts.total) {
            return Err("reports a success with cells that were not compared".to_owned());
        }
        Ok(counts)
    }
}

/// Returns the reason and the message for a report that proves nothing.
pub(crate) fn invalid(found: &str) -> (Reason, String) {
    let message = format!("the report of the runner {found}");
    (Reason::ResultInvalid, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const IDENTITY: Identity<'static> = Identity {
        uid: "u",
        attempt: 1,
        commit: "c",
        image: "i",
    };

    fn success() -> Value {
        json!({
            "v": 1, "uid": "u", "attempt": 1, "commit": "c", "image": "i", "outcome": "Succeeded",
            "reason": null, "cell": null, "classes": {}, "message": "ok",
            "counts": {
                "total": 3, "succeeded": 2, "failed": 0, "skipped": 1, "notRun": 0, "matched": 2,
                "mismatched": 0, "ignored": 1, "compared": 2, "expectations": 0, "expectationsFailed": 0,
            },
        })
    }

    fn with(path: &str, value: Value) -> Value {
        let mut report = success();
        *report.pointer_mut(path).unwrap() = value;
        report
    }

    fn read(report: &Value) -> Result<Report, (Reason, String)> {
        Report::read(&report.to_string(), 3, &IDENTITY)
    }

    #[test]
    fn a_success_of_this_run_is_read() {
        let report = read(&success()).unwrap();
        assert_eq!(report.outcome, Outcome::Succeeded);
        let counts = report.check_success(true).unwrap();
        assert_eq!((counts.total, counts.compared), (3, 2));
    }

    /// F15: the report of another run, attempt, commit or image is no evidence.
    #[test]
    fn f15_a_report_of_another_run_is_invalid() {
        for (path, value) in [
            ("/uid", json!("other")),
            ("/attempt", json!(2)),
            ("/commit", json!("d")),
            ("/image", json!("j")),
            ("/v", json!(2)),
        ] {
            let (reason, message) = read(&with(path, value)).unwrap_err();
            assert_eq!(reason, Reason::ResultInvalid, "{path}: {message}");
        }
    }

    /// R64, F16: a report that is missing, cut or not JSON is never a success.
    #[test]
    fn r64_a_report_that_cannot_be_read_proves_nothing() {
        let text = success().to_string();
        let half = text.get(..text.len() / 2).unwrap();
        let padded = format!("{text}{}", " ".repeat(LIMIT));
        for (message, containers, reason) in [
            ("", 3, Reason::ResultMissing),
            (" \n", 3, Reason::ResultMissing),
            (half, 3, Reason::ResultInvalid),
            ("Succeeded", 3, Reason::ResultInvalid),
            ("{}", 3, Reason::ResultInvalid),
            (&padded, 3, Reason::ResultTooLarge),
            // The containers of a Pod share 12 KiB, so each of 60 has 204 bytes.
            (&text, 60, Reason::ResultTooLarge),
        ] {
            let found = Report::read(message, containers, &IDENTITY).unwrap_err();
            assert_eq!(found.0, reason, "{message}");
        }
        let silent = with("/outcome", json!("Failed"));
        assert_eq!(read(&silent).unwrap_err().0, Reason::ResultInvalid);
    }

    /// F12, F17, F20: a success needs cells that ran, and with a golden notebook outputs that were compared.
    #[test]
    fn f12_counts_that_contradict_a_success_are_rejected() {
        for (path, value) in [
            ("/reason", json!("Mismatch")),
            ("/cell", json!(1)),
            ("/counts", json!(null)),
            ("/counts/failed", json!(1)),
            ("/counts/notRun", json!(1)),
            ("/counts/mismatched", json!(1)),
            ("/counts/expectationsFailed", json!(1)),
            ("/counts/total", json!(4)),
            ("/counts/succeeded", json!(u32::MAX)),
            ("/counts/compared", json!(0)),
            ("/counts/ignored", json!(0)),
        ] {
            let report = read(&with(path, value)).unwrap();
            assert!(report.check_success(true).is_err(), "{path}");
        }
        let mut none = success();
        none["counts"]["succeeded"] = json!(0);
        none["counts"]["skipped"] = json!(3);
        assert!(read(&none).unwrap().check_success(false).is_err());
        // Without a golden notebook, nothing is compared.
        let plain = read(&with("/counts/compared", json!(0))).unwrap();
        assert!(plain.check_success(false).is_ok());
    }
}
