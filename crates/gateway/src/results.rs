//! The results of actions, and the responses that they become. Pure.

use api::kinds::KindRow;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
        RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::{
    diff::FileDiff,
    json::schema_of,
    perform::Opened,
    problem::{Problem, Reason},
    request::Surface,
    streams::{Body, body},
    table::Row,
};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
const TEXT: &str = "text/plain; charset=utf-8";
const EVENTS: &str = "text/event-stream";

/// Tells proxies to forward each piece of a stream at once.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Headers of every response. Nothing may be cached, framed or executed: names, messages and logs
/// come from strangers.
const HEADERS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; sandbox",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // For browsers without `frame-ancestors`.
    (X_FRAME_OPTIONS, "DENY"),
];

pub(crate) const LOG_SOURCE: HeaderName = HeaderName::from_static("orc-log-source");
pub(crate) const LOG_STATE: HeaderName = HeaderName::from_static("orc-log-state");

/// How complete a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogState {
    /// The container still runs.
    Open,
    /// The container ended, and the log has all of its lines.
    Complete,
    /// A part of the log was left out.
    Gap,
    /// The container has not started, so there is no log.
    None,
    /// The Pod does not exist any more, and nothing stored its log.
    Lost,
}

impl LogState {
    /// Returns the name in the header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Gap => "gap",
            Self::None => "none",
            Self::Lost => "lost",
        }
    }
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    /// A complete JSON body.
    Document(Value),
    Submitted {
        namespace: String,
        kind: &'static KindRow,
        name: String,
        run: Value,
    },
    Found(Value),
    Added {
        name: String,
        namespace: String,
        version: i64,
        files: Vec<String>,
    },
    Changed {
        is_new: bool,
        run: Value,
    },
    Deleted {
        is_gone: bool,
    },
    Text(Vec<u8>),
    Log(Vec<u8>, LogState),
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    pub(crate) headers: Vec<(HeaderName, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            media: JSON,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    }

    /// Returns a success with this JSON.
    pub(crate) fn prepared(body: &'static str) -> Self {
        Self {
            status: 200,
            media: JSON,
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        }
    }

    fn text(body: Vec<u8>) -> Self {
        Self {
            status: 200,
            media: TEXT,
            headers: Vec::new(),
            body,
        }
    }

    /// Returns the response to a success. `status` is that of its route.
    pub(crate) fn success(done: Done, status: u16, surface: Surface) -> Self {
        match done {
            Done::Document(body) => Self::json(status, &body),
            Done::Submitted {
                namespace,
                kind,
                name,
                run,
            } => match surface {
                Surface::Pm => {
                    let data = json!({ "name": name, "namespace": namespace });
                    Self::json(status, &envelope_of("Task submitted successfully", data))
                }
                Surface::Native => {
                    let plural = kind.resource.plural;
                    let location = format!("/api/v1/namespaces/{namespace}/{plural}/{name}");
                    let body = json!({ "source": "cluster", "run": run });
                    Self {
                        headers: vec![(LOCATION, location)],
                        ..Self::json(status, &body)
                    }
                }
            },
            Done::Found(run) => Self::json(status, &json!({ "source": "cluster", "run": run })),
            Done::Added {
                name,
                namespace,
                version,
                files,
            } => match surface {
                Surface::Pm => {
                    let data = json!({ "name": name, "namespace": namespace, "version": version });
                    Self::json(status, &envelope_of("Context added successfully", data))
                }
                Surface::Native => {
                    Self::json(status, &json!({ "version": version, "files": files }))
                }
            },
            Done::Changed { is_new, run } => {
                Self::json(status, &json!({ "changed": is_new, "run": run }))
            }
            Done::Deleted { is_gone } => Self::json(status, &json!({ "gone": is_gone })),
            Done::Text(text) => Self::text(text),
            Done::Log(text, state) => Self {
                headers: vec![
                    (LOG_SOURCE, "live".to_owned()),
                    (LOG_STATE, state.name().to_owned()),
                ],
                ..Self::text(text)
            },
        }
    }

    /// Returns the response to an error.
    pub(crate) fn problem(problem: &Problem, surface: Surface) -> Self {
        let status = problem.reason.status();
        let mut reply = match surface {
            Surface::Native => Self {
                media: PROBLEM,
                ..Self::json(status, &problem.body())
            },
            Surface::Pm => {
                let mut body = json!({ "success": false, "message": problem.detail });
                if let Some(current) = problem.current {
                    body["data"] = json!({ "current": current });
                }
                Self::json(status, &body)
            }
        };
        if problem.reason == Reason::Unauthenticated {
            reply.headers.push((WWW_AUTHENTICATE, "Bearer".to_owned()));
        }
        if let Some(seconds) = problem.retry_after() {
            reply.headers.push((RETRY_AFTER, seconds.to_string()));
        }
        if let Some(allow) = &problem.allow {
            reply.headers.push((ALLOW, allow.clone()));
        }
        reply
    }

    /// Returns the response to a browser that signed in or out.
    pub(crate) fn session(body: &Value, cookies: Vec<String>) -> Self {
        let cookies = cookies.into_iter().map(|cookie| (SET_COOKIE, cookie));
        Self {
            headers: cookies.collect(),
            ..Self::json(200, body)
        }
    }

    /// Returns the response for the HTTP server.
    pub(crate) fn into_response(self) -> Response<Body> {
        let body = Full::new(Bytes::from(self.body)).boxed_unsync();
        response(self.status, self.media, self.headers, body)
    }
}

/// Returns the response with a stream.
pub(crate) fn stream_response(opened: Opened) -> Response<Body> {
    let Opened {
        texts,
        is_events,
        mut headers,
    } = opened;
    headers.push((BUFFERING, "no".to_owned()));
    let media = if is_events { EVENTS } else { TEXT };
    response(200, media, headers, body(texts))
}

fn response(
    status: u16,
    media: &'static str,
    more: Vec<(HeaderName, String)>,
    body: Body,
) -> Response<Body> {
    let mut headers = HeaderMap::new();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    for (name, value) in more {
        match HeaderValue::try_from(value) {
            Ok(value) => {
                headers.append(name, value);
            }
            // Names of objects have no such characters, so this does not happen.
            Err(error) => tracing::warn!("the header '{name}' is left out: {error}"),
        }
    }
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

fn envelope_of(message: &str, data: Value) -> Value {
    json!({ "success": true, "message": message, "data": data })
}

/// Returns the schema of any JSON.
pub(crate) fn any() -> Value {
    json!({ "type": "object" })
}

/// Returns the schema of the caller's name.
pub(crate) fn who_am_i() -> Value {
    json!({
        "type": "object",
        "required": ["username", "groups"],
        "properties": {
            "username": { "type": "string", "description": "Name, as the API server authenticates the caller." },
            "groups": { "type": "array", "items": { "type": "string" } },
        },
    })
}

/// Returns the schema of an object of Kubernetes.
pub(crate) fn object() -> Value {
    json!({
        "type": "object",
        "description": "An object, as the API server stores it, without `metadata.managedFields`.",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": { "type": "object" },
            "status": { "type": "object" },
        },
    })
}

/// Returns the schema of a page of objects.
pub(crate) fn items() -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": { "type": "array", "items": object() },
            "cursor": { "type": "string", "description": "Position of the next page. Absent on the last one." },
        },
    })
}

/// Returns the schema of a list of runs.
pub(crate) fn runs() -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": { "type": "array", "items": schema_of::<Row>() },
            "cursor": { "type": "string", "description": "Position of the next page. Absent on the last one." },
        },
    })
}

/// Returns the schema of a session.
pub(crate) fn session() -> Value {
    json!({
        "type": "object",
        "required": ["username", "expires"],
        "properties": {
            "username": { "type": "string" },
            "expires": { "type": "string", "description": "Time at which the session ends." },
        },
    })
}

/// Returns the schema of the differences between two versions.
pub(crate) fn diff() -> Value {
    json!({
        "type": "object",
        "required": ["from", "to", "files"],
        "properties": {
            "from": { "type": "integer" },
            "to": { "type": "integer" },
            "files": { "type": "array", "items": schema_of::<FileDiff>() },
        },
    })
}

/// Returns the schema of a run.
pub(crate) fn run() -> Value {
    json!({
        "type": "object",
        "required": ["source", "run"],
        "properties": {
            "source": { "enum": ["cluster"], "description": "Where the run was read." },
            "run": object(),
        },
    })
}

/// Returns the schema of added context.
pub(crate) fn added() -> Value {
    json!({
        "type": "object",
        "required": ["version", "files"],
        "properties": {
            "version": { "type": "integer", "description": "Version that has the new files." },
            "files": { "type": "array", "items": { "type": "string" }, "description": "Names of the new files." },
        },
    })
}

/// Returns the schema of a change.
pub(crate) fn changed() -> Value {
    json!({
        "type": "object",
        "required": ["changed", "run"],
        "properties": {
            "changed": { "type": "boolean", "description": "Whether the request changed the run. Otherwise it was in this state before." },
            "run": object(),
        },
    })
}

/// Returns the schema of a deletion.
pub(crate) fn deleted() -> Value {
    json!({
        "type": "object",
        "required": ["gone"],
        "properties": {
            "gone": { "type": "boolean", "description": "Whether the object no longer exists. Otherwise its operator stops its work first." },
        },
    })
}

/// Returns the schema of a list of files.
pub(crate) fn files() -> Value {
    json!({
        "type": "object",
        "required": ["version", "files"],
        "properties": {
            "version": { "type": "integer" },
            "files": { "type": "array", "items": {
                "type": "object",
                "required": ["filename", "bytes"],
                "properties": {
                    "filename": { "type": "string" },
                    "bytes": { "type": "integer", "description": "Size of the file." },
                },
            } },
        },
    })
}

/// Returns the schema of a list of Events.
pub(crate) fn events() -> Value {
    json!({
        "type": "object",
        "required": ["events"],
        "properties": {
            "events": { "type": "array", "items": {
                "type": "object",
                "required": ["time", "type", "reason", "message", "count", "object"],
                "properties": {
                    "time": { "type": "string", "description": "Last time of the Event." },
                    "type": { "type": "string" },
                    "reason": { "type": "string" },
                    "message": { "type": "string" },
                    "count": { "type": "integer" },
                    "object": {
                        "type": "object",
                        "required": ["kind", "name"],
                        "properties": { "kind": { "type": "string" }, "name": { "type": "string" } },
                    },
                },
            } },
        },
    })
}

/// Returns the schema of an explanation.
pub(crate) fn explanation() -> Value {
    schema_of::<why::Explanation>()
}

/// Returns the schema of the envelope of the founding request, also for errors.
pub(crate) fn envelope() -> Value {
    json!({
        "type": "object",
        "required": ["success", "message"],
        "properties": {
            "success": { "type": "boolean" },
            "message": { "type": "string" },
            "data": { "type": "object", "properties": {
                "name": { "type": "string" },
                "namespace": { "type": "string" },
                "version": { "type": "integer" },
                "current": { "type": "integer", "description": "Current version of the run, after a conflict." },
            } },
        },
    })
}

/// Returns the schema of a problem.
pub(crate) fn problem() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "reason", "causes", "nextSteps"],
        "properties": {
            "type": text,
            "title": text,
            "status": { "type": "integer" },
            "detail": text,
            "reason": { "enum": reasons },
            "causes": texts,
            "nextSteps": texts,
            "current": { "type": "integer" },
        },
    })
}

#[cfg(test)]
mod tests;
