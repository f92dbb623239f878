//! `result`, and the results at the end of `wait`.

use std::collections::BTreeMap;

use actions::{Error, Object};

use crate::{
    Exit,
    arguments::{DataFormat, RunResult},
    failure::Failure,
    output,
    session::Session,
};

pub(crate) async fn run(verb: RunResult, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let run = server.get(&verb.run).await?;
    let text = text(&run, verb.key.as_deref(), verb.output)?;
    if text.is_empty() {
        session.remark(&format!("{} has no results", run.name))?;
    }
    session.print(&text)?;
    Ok(Exit::Ok)
}

/// Returns the results of the version in the spec, or `None` while it has not finished.
fn results(run: &Object) -> Option<BTreeMap<String, String>> {
    run.outcome()?;
    Some(run.part("status.result.results").unwrap_or_default())
}

/// Renders all results, or the value of one of them. A single value is printed exactly as the agent
/// wrote it, for scripts.
fn text(run: &Object, key: Option<&str>, format: Option<DataFormat>) -> Result<String, Failure> {
    let results = results(run).ok_or_else(|| Error::NotFinished {
        run: run.name.clone(),
        version: run.version(),
        phase: run.phase().to_owned(),
    })?;
    let Some(key) = key else {
        return match format {
            Some(DataFormat::Json) => output::json(&results),
            Some(DataFormat::Yaml) => output::yaml(&results),
            None => Ok(lines(&results, "")),
        };
    };
    let Some(value) = results.get(key) else {
        return Err(missing(run, key, &results));
    };
    match format {
        Some(DataFormat::Json) => output::json(value),
        Some(DataFormat::Yaml) => output::yaml(value),
        None => Ok(format!("{value}\n")),
    }
}

fn missing(run: &Object, key: &str, results: &BTreeMap<String, String>) -> Failure {
    let known: Vec<String> = results.keys().map(|key| format!("'{key}'")).collect();
    let known = match known.as_slice() {
        [] => "it has none".to_owned(),
        some => format!("it has {}", some.join(", ")),
    };
    Failure::Gone {
        message: format!("{} has no result '{key}'; {known}", run.name),
        next: vec![(
            "to see how it ended",
            format!("describe {}", run.name.argument()),
        )],
    }
}

/// Renders the results below the outcome of a run that was waited for. Empty without results.
pub(crate) fn block(run: &Object) -> String {
    match results(run) {
        Some(results) if !results.is_empty() => {
            let head = format!("results of {}:\n", run.name.argument());
            head + &lines(&results, "  ")
        }
        Some(_) | None => String::new(),
    }
}

/// Renders one line per result. The further lines of a value are indented below its first one.
fn lines(results: &BTreeMap<String, String>, before: &str) -> String {
    let mut out = String::new();
    for (key, value) in results {
        let mut parts = value.lines().map(printable);
        let first = parts.next().unwrap_or_default();
        out.push_str(&format!("{before}{key}: {first}\n"));
        for part in parts {
            out.push_str(&format!("{before}  {part}\n"));
        }
    }
    out
}

/// Replaces control characters. An agent must not move the cursor of the terminal.
fn printable(line: &str) -> String {
    let visible = |one: char| if one.is_control() { ' ' } else { one };
    line.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::state::tests::{a_run, condition};

    fn ended(results: &Value) -> Object {
        let status = json!({ "phase": "Succeeded", "contextVersion": 1, "result": { "results": results },
            "conditions": [condition("Finished", "True", "Succeeded"), condition("Succeeded", "True", "Succeeded")] });
        a_run(&json!({}), &status)
    }

    #[test]
    fn results_are_printed_whole_or_one_by_one() {
        let run = ended(&json!({ "summary": "two\nlines\u{1b}[2J", "count": "3" }));
        let cases = [
            (None, None, "count: 3\nsummary: two\n  lines [2J\n"),
            (Some("count"), None, "3\n"),
            (Some("summary"), None, "two\nlines\u{1b}[2J\n"),
            (Some("count"), Some(DataFormat::Json), "\"3\"\n"),
            (
                None,
                Some(DataFormat::Json),
                "{\n  \"count\": \"3\",\n  \"summary\": \"two\\nlines\\u001b[2J\"\n}\n",
            ),
        ];
        for (key, format, wanted) in cases {
            assert_eq!(text(&run, key, format).unwrap(), wanted, "{key:?}");
        }
        assert_eq!(
            block(&run),
            "results of shop-7:\n  count: 3\n  summary: two\n    lines [2J\n"
        );
        let none = ended(&json!({}));
        assert_eq!(text(&none, None, None).unwrap(), "");
        assert_eq!(text(&none, None, Some(DataFormat::Json)).unwrap(), "{}\n");
        assert_eq!(block(&none), "");
    }

    #[test]
    fn what_has_no_result_says_so() {
        let missing = text(&ended(&json!({ "count": "3" })), Some("sum"), None).unwrap_err();
        assert_eq!(missing.exit().code(), 5);
        assert_eq!(
            missing.message(),
            "TaskRun 'shop-7' has no result 'sum'; it has 'count'"
        );
        // The result of an earlier version or attempt is not the result of the run.
        let old = json!({ "phase": "Running", "contextVersion": 1, "result": { "results": { "count": "3" } } });
        let going = a_run(&json!({}), &old);
        let failure = text(&going, Some("count"), None).unwrap_err();
        assert_eq!(failure.exit().code(), 2);
        assert!(
            failure.message().contains("has not finished"),
            "{failure:?}"
        );
        assert_eq!(block(&going), "");
    }
}
