//! The OpenAPI document of the repository, which every response of the suite is checked against.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use testkit::layout;

use super::{client::Answer, schema};

/// The generated document.
const PATH: &str = "docs/reference/openapi.json";

static DOCUMENT: OnceLock<Result<Value, String>> = OnceLock::new();

/// What all responses of this process had: operation and status, or the reason of a problem.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns what all responses had so far.
pub(super) fn seen() -> BTreeSet<String> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.clone()
}

fn remember(what: String) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.insert(what);
}

/// Reads the document, once.
pub(super) fn document() -> Result<&'static Value> {
    let read = || {
        let path = layout::repository().join(PATH);
        let text = fs::read_to_string(path).context("run 'cargo xtask generate'")?;
        anyhow::Ok(serde_json::from_str(&text)?)
    };
    let document = DOCUMENT.get_or_init(|| read().map_err(|error| format!("{error:#}")));
    document
        .as_ref()
        .map_err(|error| anyhow!("'{PATH}' is not readable: {error}"))
}

/// Checks that the document has this response to this request.
pub(super) fn check(method: &str, target: &str, answer: &Answer) -> Result<()> {
    let document = document()?;
    let schema = schema_of(document, method, target, answer)?;
    let (media, status) = (answer.header("content-type"), answer.status);
    if let Some(operation) = operation(document, method, target) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        remember(format!("{id} {status}"));
    }
    if media.starts_with("text/") {
        return Ok(());
    }
    let value: Value = serde_json::from_slice(&answer.body).context("the body is no JSON")?;
    if let Some(reason) = value["reason"].as_str() {
        remember(reason.to_owned());
    }
    let found = schema::check(document, schema, &value);
    found.map_err(|mismatch| {
        let text = mismatch.text();
        anyhow!("the response {status} is not as documented: {text}")
    })
}

fn schema_of<'a>(
    document: &'a Value,
    method: &str,
    target: &str,
    answer: &Answer,
) -> Result<&'a Value> {
    let media = answer.header("content-type").split(';').next();
    let media = media.unwrap_or_default();
    let operation = operation(document, method, target);
    let Some(operation) = operation else {
        // An address or a method that does not exist.
        ensure!(
            matches!(answer.status, 404 | 405),
            "{method} {target} is not documented, and the response is {}",
            answer.status
        );
        let (wanted, schema) = match target.starts_with("/api/v1/pm/") {
            true => ("application/json", "/components/schemas/Envelope"),
            false => ("application/problem+json", "/components/schemas/Problem"),
        };
        ensure!(media == wanted, "'{media}' instead of '{wanted}'");
        return document.pointer(schema).context("no schema of errors");
    };
    let response = &operation["responses"][answer.status.to_string()];
    if response.is_null() {
        bail!("the status {} is not documented", answer.status);
    }
    response["content"]
        .get(media)
        .and_then(|content| content.get("schema"))
        .with_context(|| format!("the content type '{media}' is not documented"))
}

/// Returns the operation of a request, if the document has one.
pub(super) fn operation<'a>(document: &'a Value, method: &str, target: &str) -> Option<&'a Value> {
    let path = target.split('?').next().unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    let paths = document["paths"].as_object()?;
    let of_path = paths.iter().filter(|(template, _)| is_at(template, path));
    let mut found = of_path.filter_map(|(_, item)| item.get(method.to_ascii_lowercase()));
    found.next()
}

/// Returns whether an operation responds with events only, so its response has no end.
pub(super) fn is_stream(operation: &Value) -> bool {
    let content = operation["responses"]["200"]["content"].as_object();
    content.is_some_and(|kinds| kinds.len() == 1 && kinds.contains_key("text/event-stream"))
}

fn is_at(template: &str, path: &str) -> bool {
    let (wanted, found) = (template.split('/'), path.split('/'));
    wanted.clone().count() == found.clone().count()
        && wanted.zip(found).all(|(wanted, found)| match wanted {
            "{kind}" => matches!(found, "taskruns" | "docsruns"),
            _ if wanted.starts_with('{') => !found.is_empty(),
            _ => wanted == found,
        })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use serde_json::json;

    use super::*;

    fn answer(status: u16, media: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(media));
        Answer {
            status,
            headers,
            body: Vec::new(),
        }
    }

    #[test]
    fn a_response_has_the_schema_of_its_operation_status_and_type() {
        let run = "/api/v1/namespaces/{namespace}/{kind}/{name}";
        let content = json!({ "application/json": { "schema": { "title": "run" } } });
        let document = json!({
            "paths": { run: { "get": { "responses": { "200": { "content": content } } } } },
            "components": { "schemas": { "Problem": { "title": "problem" }, "Envelope": { "title": "envelope" } } },
        });
        let title = |method: &str, target: &str, status: u16, media: &'static str| match schema_of(
            &document,
            method,
            target,
            &answer(status, media),
        ) {
            Ok(schema) => Some(schema["title"].clone()),
            Err(_undocumented) => None,
        };
        let there = "/api/v1/namespaces/a/taskruns/b?uid=1";
        let json = "application/json";
        assert_eq!(title("GET", there, 200, json), Some(json!("run")));
        assert_eq!(title("GET", there, 418, json), None, "status");
        assert_eq!(title("GET", there, 200, "text/html"), None, "type");
        let problem = "application/problem+json";
        assert_eq!(title("PUT", there, 405, problem), Some(json!("problem")));
        assert_eq!(title("PUT", there, 200, problem), None);
        let pods = "/api/v1/namespaces/a/pods/b";
        assert_eq!(title("GET", pods, 404, problem), Some(json!("problem")));
        let seed = "/api/v1/pm/nothing";
        assert_eq!(title("GET", seed, 404, json), Some(json!("envelope")));
        assert_eq!(title("GET", seed, 404, problem), None);
    }
}
