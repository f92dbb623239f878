//! The addresses of the REST API, in one table: the router and the OpenAPI document read it.

use actions::{Change, ObjectName};
use api::{
    kinds::KindRow,
    tasks::{DOCS_RUN, TASK_RUN},
};
use serde_json::Value;

use crate::{
    bodies,
    problem::{Problem, Reason},
    results,
};

/// A method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    /// Returns the name in a request.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// The operation of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    OpenApi,
    WhoAmI,
    Namespaces,
    Agents,
    Tenants,
    Tenant,
    TenantWhy,
    Runs,
    RunsStream,
    RunStream,
    Diff,
    SignIn,
    SignOut,
    Archive,
    PmSubmit,
    PmContext,
    Submit,
    Get,
    Context,
    Change(Change),
    Retry,
    Delete,
    Logs,
    Files,
    File,
    Why,
    Events,
    Record,
}

/// The content of a successful response.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// JSON with this schema.
    Json(fn() -> Value),
    /// Text.
    Text,
    /// Server-sent events.
    Events,
    /// Text, or server-sent events if the client asks for them.
    TextOrEvents,
}

/// A parameter of a query.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) description: &'static str,
}

/// The type of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    Text,
    Number,
    Flag,
}

impl ParameterKind {
    /// Returns the name in a schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "integer",
            Self::Flag => "boolean",
        }
    }
}

/// A route.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// The path. `{…}` is one segment of any content.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    /// The schemas of the body. A route for several kinds has one for each.
    pub(crate) bodies: &'static [fn() -> &'static Value],
    /// Status code of a success.
    pub(crate) status: u16,
    pub(crate) content: Content,
}

const fn parameter(
    name: &'static str,
    kind: ParameterKind,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        description,
    }
}

const VERSION: Parameter = parameter(
    "version",
    ParameterKind::Number,
    "Version of the run. Default: the current one.",
);
const UID: Parameter = parameter("uid", ParameterKind::Text, "UID that the run must have.");
const LIMIT: Parameter = parameter(
    "limit",
    ParameterKind::Number,
    "Maximum number of items, from 1 to 100. Default: 50.",
);
const CURSOR: Parameter = parameter(
    "cursor",
    ParameterKind::Text,
    "Position after the last item of the previous page, from its field `cursor`.",
);
const NAMESPACE: Parameter = parameter(
    "namespace",
    ParameterKind::Text,
    "Namespace to list. Default: all namespaces.",
);

const DRY_RUN: &[Parameter] = &[parameter(
    "dryRun",
    ParameterKind::Flag,
    "Whether the run is only validated, and not stored.",
)];
const OF_VERSION: &[Parameter] = &[VERSION];
const OF_RUN: &[Parameter] = &[VERSION, UID];
const PAGE: &[Parameter] = &[LIMIT, CURSOR];
const PAGE_OF_NAMESPACE: &[Parameter] = &[NAMESPACE, LIMIT, CURSOR];
const LOGS: &[Parameter] = &[
    VERSION,
    parameter(
        "attempt",
        ParameterKind::Number,
        "Number of the attempt. Default: the last one.",
    ),
    parameter(
        "container",
        ParameterKind::Text,
        "`agent`; for a DocsRun also `clone` and `publish`. Default: `agent`.",
    ),
    parameter(
        "tail",
        ParameterKind::Number,
        "Number of lines from the end. Default: all lines.",
    ),
    parameter(
        "from",
        ParameterKind::Text,
        "Time of the first line, as in RFC 3339.",
    ),
    parameter(
        "timestamps",
        ParameterKind::Flag,
        "Whether each line begins with its time.",
    ),
    parameter(
        "follow",
        ParameterKind::Flag,
        "Whether new lines are sent until the container ends.",
    ),
];
const DIFF: &[Parameter] = &[
    parameter("from", ParameterKind::Number, "Version with the old files."),
    parameter("to", ParameterKind::Number, "Version with the new files."),
];
const NAMESPACES: Parameter = parameter(
    "namespace",
    ParameterKind::Text,
    "Namespaces to list, separated by commas. Default: all that the caller may list.",
);
const RUNS_STREAM: &[Parameter] = &[
    NAMESPACE,
    NAME,
    KIND,
    PHASE,
    REASON,
    SERVICE,
    TASK_ID,
    AGENT,
    FROM,
    TO,
    MIN_DURATION,
];
const RUNS: &[Parameter] = &[
    NAMESPACES,
    NAME,
    KIND,
    PHASE,
    REASON,
    SERVICE,
    TASK_ID,
    AGENT,
    FROM,
    TO,
    MIN_DURATION,
    parameter(
        "source",
        ParameterKind::Text,
        "`cluster`. The archive is not installed.",
    ),
    parameter(
        "limit",
        ParameterKind::Number,
        "Maximum number of runs, from 1 to 1000. Default: 50.",
    ),
    CURSOR,
];
const NAME: Parameter = parameter("name", ParameterKind::Text, "Name of the run.");
const KIND: Parameter = parameter(
    "kind",
    ParameterKind::Text,
    "`taskruns` or `docsruns`. Default: both.",
);
const PHASE: Parameter = parameter("phase", ParameterKind::Text, "Phase of the run.");
const REASON: Parameter = parameter(
    "reason",
    ParameterKind::Text,
    "Reason of the condition `Succeeded`.",
);
const SERVICE: Parameter = parameter("service", ParameterKind::Text, "Name of the service.");
const TASK_ID: Parameter = parameter("taskId", ParameterKind::Number, "Number of the task.");
const AGENT: Parameter = parameter("agent", ParameterKind::Text, "Name of the Agent.");
const FROM: Parameter = parameter(
    "from",
    ParameterKind::Text,
    "Time as in RFC 3339. Runs that finished before it are left out.",
);
const TO: Parameter = parameter(
    "to",
    ParameterKind::Text,
    "Time as in RFC 3339. Only runs that finished before it are listed.",
);
const MIN_DURATION: Parameter = parameter(
    "minDuration",
    ParameterKind::Text,
    "Minimum time between the start of the last attempt and the end, or now. Example: `90s`.",
);

macro_rules! routes {
    ($($verb:ident $path:literal $operation:expr, $query:expr, [$($body:ident),*], $status:literal $content:expr, $summary:literal;)*) => {
        /// All routes.
        pub(crate) const ROUTES: &[Route] = &[$(Route {
            verb: Verb::$verb,
            path: $path,
            operation: $operation,
            summary: $summary,
            query: $query,
            bodies: &[$(|| &*bodies::$body),*],
            status: $status,
            content: $content,
        },)*];
    };
}

use Content::{Events, Json, Text, TextOrEvents};

routes! {
    Get "/api/v1/openapi.json" Operation::OpenApi, &[], [], 200 Json(results::any), "This document. It needs no token.";
    Get "/api/v1/whoami" Operation::WhoAmI, &[], [], 200 Json(results::who_am_i), "The caller, as the API server authenticates it.";
    Get "/api/v1/namespaces" Operation::Namespaces, PAGE, [], 200 Json(results::items), "Namespaces.";
    Get "/api/v1/agents" Operation::Agents, PAGE_OF_NAMESPACE, [], 200 Json(results::items), "Agents.";
    Get "/api/v1/tenants" Operation::Tenants, PAGE, [], 200 Json(results::items), "Tenants.";
    Get "/api/v1/tenants/{name}" Operation::Tenant, &[], [], 200 Json(results::object), "A Tenant.";
    Get "/api/v1/tenants/{name}/why" Operation::TenantWhy, &[], [], 200 Json(results::explanation), "Why a Tenant is as it is.";
    Get "/api/v1/runs" Operation::Runs, RUNS, [], 200 Json(results::runs), "Runs, newest first.";
    Get "/api/v1/runs/stream" Operation::RunsStream, RUNS_STREAM, [], 200 Events, "Runs and their changes.";
    Post "/auth/session" Operation::SignIn, &[], [SIGN_IN], 200 Json(results::session), "Signs a browser in: stores the token, encrypted, in cookies.";
    Delete "/auth/session" Operation::SignOut, &[], [], 200 Json(results::any), "Signs a browser out.";
    Get "/api/v1/archive" Operation::Archive, &[], [], 200 Json(results::object), "State of the archive. 404 until the archive is installed.";
    Post "/api/v1/pm/tasks" Operation::PmSubmit, &[], [PM_TASK], 200 Json(results::envelope), "Submits a task in the configured namespace.";
    Post "/api/v1/pm/tasks/{id}/context" Operation::PmContext, &[], [PM_CONTEXT], 200 Json(results::envelope), "Adds context to a task in the configured namespace.";
    Post "/api/v1/namespaces/{namespace}/{kind}" Operation::Submit, DRY_RUN, [NEW_TASK_RUN, NEW_DOCS_RUN], 201 Json(results::run), "Submits a run.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}" Operation::Get, OF_RUN, [], 200 Json(results::run), "A run.";
    Delete "/api/v1/namespaces/{namespace}/{kind}/{name}" Operation::Delete, &[], [], 202 Json(results::deleted), "Deletes a run.";
    Post "/api/v1/namespaces/{namespace}/{kind}/{name}/context" Operation::Context, DRY_RUN, [NEW_CONTEXT], 201 Json(results::added), "Adds files to a TaskRun as its next version.";
    Post "/api/v1/namespaces/{namespace}/{kind}/{name}/cancel" Operation::Change(Change::Cancel), &[], [NOTHING], 200 Json(results::changed), "Cancels a run.";
    Post "/api/v1/namespaces/{namespace}/{kind}/{name}/suspend" Operation::Change(Change::Suspend), &[], [NOTHING], 200 Json(results::changed), "Suspends a run.";
    Post "/api/v1/namespaces/{namespace}/{kind}/{name}/resume" Operation::Change(Change::Resume), &[], [NOTHING], 200 Json(results::changed), "Resumes a run.";
    Post "/api/v1/namespaces/{namespace}/{kind}/{name}/retry" Operation::Retry, &[], [NOTHING], 200 Json(results::changed), "Runs a finished run again.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/logs" Operation::Logs, LOGS, [], 200 TextOrEvents, "Log of an attempt.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/files" Operation::Files, OF_VERSION, [], 200 Json(results::files), "Names and sizes of the files that the agent reads.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/files/{filename}" Operation::File, OF_VERSION, [], 200 Text, "A file that the agent reads.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/diff" Operation::Diff, DIFF, [], 200 Json(results::diff), "Differences between the files of two versions.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/stream" Operation::RunStream, &[], [], 200 Events, "A run, its Pods, its Events and its explanation, and their changes.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/why" Operation::Why, &[], [], 200 Json(results::explanation), "Why a run is as it is.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/events" Operation::Events, &[], [], 200 Json(results::events), "Events of a run and its Pods.";
    Get "/api/v1/namespaces/{namespace}/{kind}/{name}/record" Operation::Record, &[], [], 200 Json(results::object), "The archived record of a run. 404 until the archive is installed.";
}

/// The kinds of runs in paths.
pub(crate) const KINDS: [&KindRow; 2] = [&TASK_RUN, &DOCS_RUN];

/// A route with the values of its path. All values were checked.
#[derive(Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) route: &'static Route,
    values: Vec<(&'static str, &'a str)>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.verb.name(), self.path)
    }
}

impl<'a> Matched<'a> {
    /// Returns the value of this name, or an empty text if the path has none.
    pub(crate) fn value(&self, name: &str) -> &'a str {
        let mut values = self.values.iter();
        let found = values.find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the kind of the run. Paths without a kind are about TaskRuns.
    pub(crate) fn kind(&self) -> &'static KindRow {
        kind(self.value("kind")).unwrap_or(&TASK_RUN)
    }

    /// Returns the run.
    pub(crate) fn run(&self) -> ObjectName {
        ObjectName::new(self.kind(), self.value("name"))
    }
}

fn kind(plural: &str) -> Option<&'static KindRow> {
    KINDS
        .into_iter()
        .find(|kind| kind.resource.plural == plural)
}

/// Finds the route of a request.
///
/// # Errors
/// No route has this path, or none of them has this method. A value in the path cannot be a name.
/// Such a value never becomes part of a request to the API server.
pub(crate) fn find<'a>(method: &str, path: &'a str) -> Result<Matched<'a>, Problem> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut methods = Vec::new();
    for route in ROUTES {
        let Some(values) = values(route.path, path) else {
            continue;
        };
        if route.verb.name() == method {
            check_values(&values)?;
            return Ok(Matched { route, values });
        }
        methods.push(route.verb.name());
    }
    if methods.is_empty() {
        let detail = "this address does not exist; /api/v1/openapi.json lists all addresses";
        return Err(Problem::new(Reason::NotFound, detail));
    }
    let allow = methods.join(", ");
    Err(Problem {
        allow: Some(allow.clone()),
        ..Problem::new(
            Reason::MethodNotAllowed,
            format!("this address accepts {allow}"),
        )
    })
}

/// Returns the values of a path, or `None` if the path does not fit.
fn values<'a>(template: &'static str, path: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(values),
            (Some(wanted), Some(found)) => {
                let name = wanted
                    .strip_prefix('{')
                    .and_then(|name| name.strip_suffix('}'));
                match name {
                    Some("kind") if kind(found).is_none() => return None,
                    Some(_) if found.is_empty() => return None,
                    Some(name) => values.push((name, found)),
                    None if wanted == found => {}
                    None => return None,
                }
            }
            (Some(_), None) | (None, Some(_)) => return None,
        }
    }
}

fn check_values(values: &[(&'static str, &str)]) -> Result<(), Problem> {
    for (name, value) in values {
        let is_valid = match *name {
            "namespace" => is_dns_label(value),
            "name" => is_dns_name(value),
            "id" => matches!(value.parse::<i64>(), Ok(1..)) && !value.starts_with('+'),
            "filename" => is_filename(value),
            _ => true,
        };
        if !is_valid {
            let detail = format!("the path: {{{name}}} is not valid");
            return Err(Problem::invalid(detail));
        }
    }
    Ok(())
}

/// Returns whether this can be the name of a namespace.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_dns_name(text)
}

/// Returns whether this can be the name of an object.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(is_inner)
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}

fn is_filename(text: &str) -> bool {
    text.len() <= 253
        && text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests;
