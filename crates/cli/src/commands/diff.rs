//! `diff`

use std::io::Read;

use actions::{Object, Request};
use api::notebooks::{Difference, NotebookValidationJobStatus};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::Value;

use crate::{
    Exit,
    arguments::{DataFormat, Diff},
    failure::Failure,
    output,
    session::{Server, Session, ask},
    text::clean,
};

/// Key of the result in its ConfigMap.
const KEY: &str = "result.json.gz";
/// Maximum size of a decompressed result, in bytes. The runner writes less.
const MAX_PLAIN: u64 = 16 * 1024 * 1024;

pub(crate) async fn run(verb: Diff, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let job = server.get(&verb.job).await?;
    let status = status(&job)?;
    let (all, is_whole) = match full_result(&server, &job, &status).await {
        Ok(result) => (differences(&result), true),
        Err(failure) => {
            session.remark(&clean(&format!(
                "{}; at most the first ten differences follow, from the status",
                failure.message()
            )))?;
            let compared = status.comparison_result.as_ref();
            let diffs = compared.map_or_else(Vec::new, |compared| compared.diffs.clone());
            (diffs, false)
        }
    };
    match verb.output {
        Some(DataFormat::Json) => session.print(&output::json(&all)?)?,
        Some(DataFormat::Yaml) => session.print(&output::yaml(&all)?)?,
        None => session.print(&text(&status, &all, is_whole))?,
    }
    Ok(Exit::Ok)
}

/// Returns the status of a job that was compared.
fn status(job: &Object) -> Result<NotebookValidationJobStatus, Failure> {
    let read = serde_json::from_value::<NotebookValidationJobStatus>(job.at("status").clone());
    let status = read.map_err(|error| Failure::client(format!("{}: {error}", job.name)))?;
    if status.comparison_result.is_some() || status.report.is_some() {
        return Ok(status);
    }
    let message = match job.outcome() {
        None => format!("{} has not been compared yet", job.name),
        Some(_) => format!("{} ended before a comparison", job.name),
    };
    let next = vec![("to see why", format!("why {}", job.name.argument()))];
    Err(Failure::Gone { message, next })
}

/// Reads the stored result of a job.
pub(super) async fn full_result(
    server: &Server,
    job: &Object,
    status: &NotebookValidationJobStatus,
) -> Result<Value, Failure> {
    let report = status.report.as_ref();
    let Some(name) = report.and_then(|report| report.config_map_name.as_ref()) else {
        let condition = status
            .progress
            .condition(api::notebooks::condition::RESULTS_STORED);
        let why = condition.map_or("'results.store' is None, or it has not ended", |one| {
            one.message.as_str()
        });
        let message = format!("{} has no stored result: {why}", job.name);
        return Err(Failure::Gone {
            message,
            next: Vec::new(),
        });
    };
    let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), &server.namespace);
    let request = Request {
        verb: "get",
        kind: "ConfigMap",
        resource: "configmaps",
        name: Some(name.clone()),
        namespace: Some(server.namespace.clone()),
    };
    let found = ask(request, maps.get_opt(name)).await?;
    let Some(map) = found else {
        let message = format!("the result of {} was deleted after 'results.ttl'", job.name);
        return Err(Failure::Gone {
            message,
            next: Vec::new(),
        });
    };
    let data = map.binary_data.unwrap_or_default();
    let packed = data.get(KEY).map_or(&[][..], |data| data.0.as_slice());
    unpacked(packed).map_err(|why| Failure::client(format!("ConfigMap '{name}': {why}")))
}

/// Reads a compressed result.
fn unpacked(packed: &[u8]) -> Result<Value, String> {
    let mut plain = Vec::new();
    // One byte more shows that the limit is exceeded.
    let mut reader = GzDecoder::new(packed).take(MAX_PLAIN + 1);
    let read = reader.read_to_end(&mut plain);
    read.map_err(|error| format!("the result cannot be decompressed: {error}"))?;
    if u64::try_from(plain.len()).unwrap_or(u64::MAX) > MAX_PLAIN {
        return Err("the decompressed result has more than 16 MiB".to_owned());
    }
    serde_json::from_slice(&plain).map_err(|error| format!("the result is not JSON: {error}"))
}

/// Returns the differences of a result. One of another form is as if it was missing.
fn differences(result: &Value) -> Vec<Difference> {
    let all = result["diffs"].as_array().into_iter();
    let all = all.flat_map(|all| all.iter());
    let read = |one: &Value| match serde_json::from_value::<Difference>(one.clone()) {
        Ok(difference) => vec![difference],
        Err(_) => Vec::new(),
    };
    all.flat_map(read).collect()
}

/// Renders the differences, with the numbers of cells.
fn text(status: &NotebookValidationJobStatus, all: &[Difference], is_whole: bool) -> String {
    let mut text = String::new();
    for one in all {
        text.push_str(&format!(
            "cell {}: {}, class {}: {}\n",
            one.cell,
            clean(&one.diff_type),
            clean(&one.class),
            clean(&one.rule)
        ));
        for (sign, side) in [('-', &one.expected), ('+', &one.actual)] {
            for line in side.lines().filter(|line| !line.is_empty()) {
                text.push_str(&format!("  {sign} {}\n", clean(line)));
            }
        }
    }
    let Some(compared) = &status.comparison_result else {
        text.push_str("there is no golden notebook, so nothing was compared\n");
        return text;
    };
    let more = if is_whole { "" } else { " or more" };
    text.push_str(&format!(
        "{} differences{more}; {} cells match, {} do not, {} were not compared\n",
        all.len(),
        compared.matched_cells,
        compared.mismatched_cells,
        compared.ignored_cells
    ));
    text
}

/// Returns the executed notebook of a result.
pub(super) fn executed(result: &Value) -> Option<&Value> {
    result
        .get("notebook")
        .filter(|notebook| notebook.is_object())
}

/// Returns the parts that the runner dropped from a result.
pub(super) fn truncated(result: &Value) -> String {
    let parts = result["truncated"].as_array().cloned().unwrap_or_default();
    let parts: Vec<String> = parts.iter().map(Value::to_string).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_decompressed_within_bounds() {
        let pack = |plain: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(unpacked(&pack(b"{\"v\": 1}")), Ok(json!({ "v": 1 })));
        for (packed, part) in [
            (Vec::new(), "decompressed"),
            (pack(b"text"), "not JSON"),
            (pack(&vec![b' '; 17 * 1024 * 1024]), "16 MiB"),
        ] {
            let error = unpacked(&packed).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn each_difference_has_both_sides() {
        let diffs = json!([
            { "cell": 4, "diffType": "OutputMismatch", "class": "Noise", "rule": "text/plain", "expected": "a\n\u{1b}[2Jb", "actual": "c" },
            { "cell": "none" },
        ]);
        let result = json!({ "v": 1, "diffs": diffs, "truncated": ["notebook"] });
        let all = differences(&result);
        assert_eq!(all.len(), 1);
        let status: NotebookValidationJobStatus = serde_json::from_value(json!({
            "comparisonResult": { "strategy": "normalized", "result": "mismatched", "totalCells": 3,
                "matchedCells": 1, "mismatchedCells": 1, "ignoredCells": 1 },
        }))
        .unwrap();
        let text = text(&status, &all, true);
        assert!(
            text.starts_with("cell 4: OutputMismatch, class Noise: text/plain\n  - a\n"),
            "{text}"
        );
        assert!(
            text.contains("  + c\n") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(
            text.ends_with("1 differences; 1 cells match, 1 do not, 1 were not compared\n"),
            "{text}"
        );
        assert_eq!(
            (executed(&result), truncated(&result).as_str()),
            (None, "\"notebook\"")
        );
    }
}
