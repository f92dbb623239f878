//! The OpenAPI document, generated from the table of routes.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::{
    problem::Reason,
    request::{IDEMPOTENCY_KEY, Surface},
    results,
    routes::{Content, KINDS, Operation, ROUTES, Route, Verb},
};

/// The document as text. Anybody may read it without a token, so a read must be cheap.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// Returns the document as text.
pub(crate) fn text() -> &'static str {
    &TEXT
}

/// Returns the document.
#[must_use]
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths
            .entry(route.path)
            .or_insert_with(|| json!({ "parameters": path_parameters(route.path) }));
        path[route.verb.name().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Orchestrator",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Submit, extend, control and follow runs. The API server authorizes every request with the caller's own token.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token that the API server accepts." },
            },
            "schemas": { "Problem": results::problem(), "Envelope": results::envelope() },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if !needs_token(route) {
        operation["security"] = json!([]);
    }
    let schemas: Vec<&Value> = route.bodies.iter().map(|schema| schema()).collect();
    let schema = match schemas.as_slice() {
        [] => return operation,
        [one] => (*one).clone(),
        several => json!({ "anyOf": several }),
    };
    operation["requestBody"] = json!({
        // An action without parameters needs no body.
        "required": schema["title"] != "Nothing",
        "content": { "application/json": { "schema": schema } },
    });
    operation
}

/// Returns a name such as `postNamespacesKindCancel`.
fn operation_id(route: &Route) -> String {
    let mut id = route.verb.name().to_ascii_lowercase();
    let words = route.path.split(['/', '.', '{', '}']);
    for word in words.filter(|word| !matches!(*word, "" | "api" | "v1")) {
        let (first, rest) = word.split_at(1);
        id.push_str(&first.to_ascii_uppercase());
        id.push_str(rest);
    }
    id
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let schema = match name {
                "kind" => {
                    let plurals = KINDS.map(|kind| kind.resource.plural);
                    json!({ "type": "string", "enum": plurals })
                }
                "id" => json!({ "type": "integer", "minimum": 1 }),
                _ => json!({ "type": "string" }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect()
}

fn parameters(route: &Route) -> Vec<Value> {
    let query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "schema": { "type": parameter.kind.name() },
        })
    });
    let mut all: Vec<Value> = query.collect();
    if matches!(route.content, Content::Events | Content::TextOrEvents) {
        all.push(json!({
            "name": "last-event-id",
            "in": "header",
            "description": "Id of the last event. The stream goes on after it.",
            "schema": { "type": "string" },
        }));
    }
    if matches!(route.operation, Operation::Submit | Operation::PmSubmit) {
        all.push(json!({
            "name": IDEMPOTENCY_KEY,
            "in": "header",
            "description": "Key of the caller. A request with the same key and content returns the run of the first one.",
            "schema": { "type": "string", "maxLength": 255 },
        }));
    }
    all
}

fn responses(route: &Route) -> Value {
    let text = json!({ "type": "string" });
    let content = match route.content {
        Content::Json(schema) => json!({ "application/json": { "schema": schema() } }),
        Content::Text => json!({ "text/plain": { "schema": text } }),
        Content::Events => json!({ "text/event-stream": { "schema": text } }),
        Content::TextOrEvents => json!({
            "text/plain": { "schema": text },
            "text/event-stream": { "schema": text },
        }),
    };
    let mut responses = Map::new();
    let success = json!({ "description": "Success.", "content": content });
    responses.insert(route.status.to_string(), success);
    let (media, schema) = match Surface::of(route.path) {
        Surface::Pm => ("application/json", "Envelope"),
        Surface::Native => ("application/problem+json", "Problem"),
    };
    for reason in Reason::ALL
        .iter()
        .filter(|reason| can_have(route, **reason))
    {
        // Several reasons have one code.
        responses
            .entry(reason.status().to_string())
            .or_insert_with(|| {
                json!({
                    "description": reason.title(),
                    "content": { media: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } },
                })
            });
    }
    Value::Object(responses)
}

/// Returns whether the route needs a token.
fn needs_token(route: &Route) -> bool {
    !matches!(
        route.operation,
        Operation::OpenApi | Operation::SignIn | Operation::SignOut
    )
}

/// Returns whether the route can have an error with this reason.
fn can_have(route: &Route, reason: Reason) -> bool {
    let is_write = route.verb != Verb::Get;
    let has_body = !route.bodies.is_empty();
    match reason {
        Reason::InvalidRequest
        | Reason::CrossOrigin
        | Reason::MethodNotAllowed
        | Reason::OtherHost
        | Reason::UnsupportedMediaType
        | Reason::TooManyRequests => true,
        Reason::Unauthenticated
        | Reason::Denied
        | Reason::NotFound
        | Reason::Unknown
        | Reason::NotInstalled
        | Reason::Unanswered => route.operation != Operation::OpenApi,
        Reason::InvalidFiles | Reason::SlowRequest | Reason::TooLarge => has_body,
        Reason::Exists
        | Reason::Conflict
        | Reason::FileExists
        | Reason::Finished
        | Reason::NotFinished
        | Reason::Cancelled
        | Reason::Deleting
        | Reason::Busy
        | Reason::KeyReused => is_write,
        // The API server also rejects positions of lists.
        Reason::Refused => route.operation != Operation::OpenApi,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_route_is_documented_with_a_name_of_its_own() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let method = route.verb.name().to_ascii_lowercase();
            let found = &document["paths"][route.path][&method];
            assert_eq!(found["summary"], route.summary);
            assert!(route.summary.ends_with('.'), "{}", route.summary);
            let responses = found["responses"].as_object().unwrap();
            assert!(responses.contains_key(&route.status.to_string()));
            assert!(ids.insert(operation_id(route)), "{route:?}");
        }
        let of_cancel = "/api/v1/namespaces/{namespace}/{kind}/{name}/cancel";
        let cancel = &document["paths"][of_cancel]["post"];
        assert_eq!(
            cancel["operationId"],
            "postNamespacesNamespaceKindNameCancel"
        );
        assert_eq!(cancel["requestBody"]["required"], false);
        assert_eq!(
            document["paths"][of_cancel]["parameters"][1]["name"],
            "kind"
        );
    }

    #[test]
    fn the_founding_endpoints_have_their_envelope_and_others_a_problem() {
        let document = document();
        let schema = |path: &str, media: &str| {
            let conflict = &document["paths"][path]["post"]["responses"]["409"];
            conflict["content"][media]["schema"]["$ref"].clone()
        };
        assert_eq!(
            schema("/api/v1/pm/tasks", "application/json"),
            "#/components/schemas/Envelope"
        );
        assert_eq!(
            schema(
                "/api/v1/namespaces/{namespace}/{kind}",
                "application/problem+json"
            ),
            "#/components/schemas/Problem"
        );
    }

    /// References to definitions that the document does not have would break its readers.
    #[test]
    fn each_reference_has_a_target() {
        let text = document().to_string();
        for (start, _) in text.match_indices("\"$ref\":\"") {
            let rest = &text[start + "\"$ref\":\"".len()..];
            let (path, _) = rest.split_once('"').unwrap();
            let pointer = path.strip_prefix('#').unwrap();
            assert!(document().pointer(pointer).is_some(), "{path}");
        }
    }
}
