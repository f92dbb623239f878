//! The full result of a run: the frame in the log of the runner, and the ConfigMap that stores it.
//!
//! # Guarantees
//! - A frame counts only if it agrees with the report: same size, same checksum, nothing before its end is missing (R64).
//! - The verdict never depends on the frame.

use api::{
    decide::{Manifest, ResourceType},
    names,
    notebooks::{NOTEBOOK_VALIDATION_JOB, NotebookValidationJob, ReportStatus},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use git::edits::sha256;
use k8s_openapi::{
    ByteString,
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::Error;

/// Beginning of the first line of a frame.
const START: &str = "ORCHESTRATOR-RESULT ";
/// Last line of a frame.
const END: &str = "END";
/// Version and encoding of a frame.
const FORMAT: [&str; 2] = ["1", "gzip"];
/// Maximum length of a line of a frame, in bytes.
const LINE: usize = 4096;
/// Maximum size of a frame, in bytes.
const MAX_FRAME: usize = 700 * 1024;
/// Key of the result in the ConfigMap.
pub const KEY: &str = "result.json.gz";

/// Returns the number of lines of a frame with a result of this size, in bytes.
#[must_use]
pub fn frame_lines(bytes: u32) -> u32 {
    let line = u32::try_from(LINE).unwrap_or(u32::MAX);
    base64_size(bytes).div_ceil(line).saturating_add(2)
}

/// Returns the maximum size of a frame with a result of this size, in bytes.
#[must_use]
pub fn frame_size(bytes: u32) -> u32 {
    let header = 256;
    base64_size(bytes)
        .saturating_add(frame_lines(bytes))
        .saturating_add(header)
}

fn base64_size(bytes: u32) -> u32 {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Returns the compressed result in the log of a runner.
///
/// # Errors
/// Describes why the log has no frame that agrees with the report.
pub fn read_frame(log: &str, report: &ReportStatus) -> Result<Vec<u8>, String> {
    let lines: Vec<&str> = log.lines().collect();
    // The runner writes one frame. With several, only the last one can be complete.
    let start = lines
        .iter()
        .rposition(|line| line.starts_with(START))
        .ok_or("the log has no frame with a result")?;
    let (header, rest) = (lines.get(start), lines.get(start.saturating_add(1)..));
    let header = header.and_then(|line| line.strip_prefix(START));
    check_header(header.unwrap_or_default(), report)?;
    let rest = rest.unwrap_or_default();
    let end = rest
        .iter()
        .position(|line| *line == END)
        .ok_or("the frame of the result has no end")?;
    let body = rest.get(..end).unwrap_or_default();
    if body.iter().any(|line| line.len() > LINE) {
        return Err("the frame of the result has a line that is too long".to_owned());
    }
    let text = body.concat();
    if text.len() > MAX_FRAME {
        return Err("the frame of the result is too large".to_owned());
    }
    // The error quotes a part of the result, so the message does not contain it.
    let Ok(content) = STANDARD.decode(&text) else {
        return Err("the frame of the result is not base64".to_owned());
    };
    if u32::try_from(content.len()) != Ok(report.bytes) || sha256(&content) != report.sha256 {
        return Err("the frame of the result has other content than the report names".to_owned());
    }
    Ok(content)
}

fn check_header(header: &str, report: &ReportStatus) -> Result<(), String> {
    let expected = [
        FORMAT[0].to_owned(),
        FORMAT[1].to_owned(),
        report.bytes.to_string(),
        report.sha256.clone(),
    ];
    if header.split(' ').eq(expected.iter().map(String::as_str)) {
        Ok(())
    } else {
        Err("the frame of the result has another size or checksum than the report names".to_owned())
    }
}

/// Returns the name of the ConfigMap with the result of a job.
#[must_use]
pub fn config_map_name(job: &str) -> String {
    names::child(job, "-nb-results")
}

/// Builds the ConfigMap with the compressed result. It never changes.
///
/// # Errors
/// If a part cannot be written as JSON.
pub fn config_map(job: &NotebookValidationJob, content: Vec<u8>) -> Result<Manifest, Error> {
    let meta = &job.metadata;
    let (name, uid) = (
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default(),
    );
    let kind = NOTEBOOK_VALIDATION_JOB.name();
    let body = ConfigMap {
        metadata: ObjectMeta {
            owner_references: Some(vec![OwnerReference {
                api_version: NOTEBOOK_VALIDATION_JOB.resource.api_version(),
                kind: kind.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        binary_data: Some([(KEY.to_owned(), ByteString(content))].into()),
        ..ConfigMap::default()
    };
    Ok(Manifest::new(
        ResourceType::CONFIG_MAP,
        meta.namespace.as_deref(),
        &config_map_name(name),
        uid,
        names::child_labels(kind, name, uid),
        serde_json::to_value(&body)?,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONTENT: &[u8] = b"a compressed result";

    fn report() -> ReportStatus {
        ReportStatus {
            sha256: sha256(CONTENT),
            bytes: 19,
            config_map_name: None,
            truncated: Vec::new(),
        }
    }

    #[test]
    fn the_size_of_a_frame_follows_from_that_of_its_result() {
        for (bytes, lines, size) in [
            (0, 2, 258),
            (19, 3, 287),
            (3072, 3, 4355),
            (3073, 4, 4360),
            (u32::MAX, 1_048_578, u32::MAX),
        ] {
            assert_eq!((frame_lines(bytes), frame_size(bytes)), (lines, size));
        }
    }

    fn header() -> String {
        format!("{START}1 gzip 19 {}", sha256(CONTENT))
    }

    /// R64: a result is read from its frame, never up to the last brace of a log.
    #[test]
    fn r64_a_result_is_read_from_its_frame() {
        let body = STANDARD.encode(CONTENT);
        let (first, second) = body.split_at(8);
        let progress = "ORCHESTRATOR-PROGRESS {\"total\": 1}";
        let good = format!("{progress}\n{}\n{first}\n{second}\nEND\n", header());
        assert_eq!(read_frame(&good, &report()), Ok(CONTENT.to_vec()));
        // An earlier frame is not complete.
        let twice = format!("{}\nAAAA\n{good}", header());
        assert_eq!(read_frame(&twice, &report()), Ok(CONTENT.to_vec()));
        let other = header().replace("19", "20");
        for (log, part) in [
            (String::new(), "no frame"),
            ("{\"outcome\": \"Succeeded\"}".to_owned(), "no frame"),
            (format!("{}\n{body}\n", header()), "no end"),
            (format!("{}\n{first}\nEND\n", header()), ""),
            (format!("{}\n{body}\nEND\n", other), "another size"),
            (format!("{START}2 gzip 19 x\n{body}\nEND\n"), "another size"),
            (format!("{START}\n{body}\nEND\n"), "another size"),
            (format!("{}\n{{}}\nEND\n", header()), "not base64"),
            (format!("{}\nQUJD\nEND\n", header()), "other content"),
            (
                format!("{}\n{}\nEND\n", header(), "A".repeat(LINE + 4)),
                "too long",
            ),
            (
                format!("{}\n{}END\n", header(), "AAAA\n".repeat(MAX_FRAME / 4 + 1)),
                "too large",
            ),
        ] {
            let error = read_frame(&log, &report()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_result_is_stored_once_in_an_object_of_its_job() {
        let job: NotebookValidationJob = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
            "metadata": { "name": "nb", "namespace": "team", "uid": "u" },
            "spec": {
                "notebook": { "git": { "url": "https://a.example/a", "ref": "main" }, "path": "a.ipynb" },
                "podConfig": { "containerImage": "i" },
            },
        }))
        .unwrap();
        let manifest = config_map(&job, CONTENT.to_vec()).unwrap();
        assert_eq!(manifest.name, "nb-nb-results");
        assert_eq!(manifest.body["immutable"], true);
        assert_eq!(manifest.body["binaryData"][KEY], STANDARD.encode(CONTENT));
        assert_eq!(manifest.body["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}
