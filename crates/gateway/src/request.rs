//! Translates a request into an action. Pure: nothing here reads from the cluster.

mod query;

use actions::{Change, DryRun, ObjectName};
use api::{
    Timestamp,
    kinds::KindRow,
    tasks::{AGENT, DOCS_RUN, DocsRun, File, TASK_RUN, TaskRun},
    tenants::TENANT,
};
use http::{HeaderMap, header};

use crate::{
    bodies,
    problem::{Problem, Reason},
    routes::{Matched, Operation, Verb},
    table::{Filter, Position},
};

pub(crate) use query::NAMESPACES;
use query::Query;

/// Maximum length of an idempotency key.
const KEY_LIMIT: usize = 255;

/// The name of the header with the idempotency key.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The header that a write of a browser must have. No form can send it, and a script of another site
/// only with permission of this server.
pub(crate) const REQUEST_HEADER: &str = "orc-request";

/// The surface of a request: the format of its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// The two endpoints of the founding request, with an envelope.
    Pm,
    /// All others.
    Native,
}

impl Surface {
    /// Returns the surface of a path, also of one that does not exist.
    pub(crate) fn of(path: &str) -> Self {
        match path.starts_with("/api/v1/pm/") {
            true => Self::Pm,
            false => Self::Native,
        }
    }
}

/// A run in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: ObjectName,
}

/// A run to be created.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NewRun {
    Task(Box<TaskRun>),
    Docs(Box<DocsRun>),
}

/// Which log to read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LogQuery {
    pub(crate) version: Option<i64>,
    pub(crate) attempt: Option<u32>,
    pub(crate) container: Option<String>,
    pub(crate) tail: Option<i64>,
    pub(crate) from: Option<Timestamp>,
    pub(crate) timestamps: bool,
}

/// A question for a list of runs, or for a stream of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunsQuery {
    pub(crate) kinds: &'static [&'static KindRow],
    /// The namespaces. Empty: all that the caller may list.
    pub(crate) namespaces: Vec<String>,
    pub(crate) filter: Filter,
    /// Maximum number of runs on the page.
    pub(crate) limit: usize,
    /// The position after which the page begins.
    pub(crate) after: Option<Position>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: u32,
    pub(crate) cursor: Option<String>,
}

/// The operation of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// One response.
    Once(Action),
    /// A stream.
    Stream(StreamQuery),
}

/// A stream that a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StreamQuery {
    /// A list of runs.
    Runs(RunsQuery),
    /// One run.
    Run(Target),
    /// A log. As events, or as text.
    Log {
        target: Target,
        query: LogQuery,
        is_events: bool,
    },
}

/// The action of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    OpenApi,
    WhoAmI,
    Namespaces(Page),
    List {
        kind: &'static KindRow,
        namespace: Option<String>,
        page: Page,
    },
    Object(Target),
    Runs(RunsQuery),
    Diff {
        target: Target,
        from: i64,
        to: i64,
    },
    Submit {
        namespace: String,
        run: NewRun,
        dry_run: DryRun,
        key: Option<String>,
    },
    AddContext {
        target: Target,
        files: Vec<File>,
        expected: Option<i64>,
        dry_run: DryRun,
    },
    Get {
        target: Target,
        version: Option<i64>,
        uid: Option<String>,
    },
    Change(Target, Change),
    Retry(Target),
    Delete(Target),
    Logs(Target, LogQuery),
    Files(Target, Option<i64>),
    File {
        target: Target,
        version: Option<i64>,
        filename: String,
    },
    Why(Target),
    Events(Target),
}

/// Translates a request. `pm_namespace` is the namespace of the endpoints of the founding request.
///
/// # Errors
/// A parameter or the body is not valid, or the part of Orchestrator is not installed.
pub(crate) fn action(
    matched: &Matched<'_>,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
    pm_namespace: &str,
) -> Result<Command, Problem> {
    let query = Query::parse(query.unwrap_or_default(), matched)?;
    let key = idempotency_key(headers)?;
    let target = || Target {
        namespace: matched.value("namespace").to_owned(),
        name: matched.run(),
    };
    let of_tenant = || Target {
        namespace: String::new(),
        name: ObjectName::new(&TENANT, matched.value("name")),
    };
    Ok(Command::Once(match matched.route.operation {
        Operation::OpenApi | Operation::SignIn | Operation::SignOut => Action::OpenApi,
        Operation::Runs => Action::Runs(query.runs()?),
        Operation::RunsStream => {
            let runs = query.runs()?;
            if runs.namespaces.len() > 1 {
                return Err(Problem::invalid(
                    "parameter 'namespace' has more than one name",
                ));
            }
            return Ok(Command::Stream(StreamQuery::Runs(runs)));
        }
        Operation::RunStream => return Ok(Command::Stream(StreamQuery::Run(target()))),
        Operation::Diff => {
            let version = |name: &str| -> Result<i64, Problem> {
                let missing = || Problem::invalid(format!("parameter '{name}' is missing"));
                query.number(name)?.ok_or_else(missing)
            };
            Action::Diff {
                target: target(),
                from: version("from")?,
                to: version("to")?,
            }
        }
        Operation::WhoAmI => Action::WhoAmI,
        Operation::Namespaces => Action::Namespaces(query.page()?),
        Operation::Agents => Action::List {
            kind: &AGENT,
            namespace: query.namespace()?,
            page: query.page()?,
        },
        Operation::Tenants => Action::List {
            kind: &TENANT,
            namespace: None,
            page: query.page()?,
        },
        Operation::Tenant => Action::Object(of_tenant()),
        Operation::TenantWhy => Action::Why(of_tenant()),
        Operation::Archive | Operation::Record => return Err(no_archive()),
        Operation::PmSubmit => Action::Submit {
            namespace: pm_namespace.to_owned(),
            run: NewRun::Task(Box::new(bodies::pm_task(body)?)),
            dry_run: DryRun::Off,
            key,
        },
        Operation::PmContext => {
            refuse_key(key.as_deref())?;
            let context = bodies::pm_context(body)?;
            let id = matched.value("id").parse().unwrap_or_default();
            Action::AddContext {
                target: Target {
                    namespace: pm_namespace.to_owned(),
                    name: ObjectName::new(&TASK_RUN, &bodies::pm_name(id)),
                },
                // A file without a name gets that of its version.
                files: vec![File {
                    filename: String::new(),
                    content: context.additional_context,
                }],
                expected: Some(context.version.saturating_sub(1)),
                dry_run: DryRun::Off,
            }
        }
        Operation::Submit => Action::Submit {
            namespace: matched.value("namespace").to_owned(),
            run: match *matched.kind() == DOCS_RUN {
                true => NewRun::Docs(Box::new(bodies::docs_run(body)?)),
                false => NewRun::Task(Box::new(bodies::task_run(body)?)),
            },
            dry_run: query.dry_run(),
            key,
        },
        Operation::Get => Action::Get {
            target: target(),
            version: query.number("version")?,
            uid: query.text("uid"),
        },
        Operation::Context => {
            refuse_key(key.as_deref())?;
            let target = target();
            if *target.name.kind != TASK_RUN {
                return Err(Problem::invalid(format!(
                    "{} has no versions: submit another one",
                    target.name
                )));
            }
            let (files, expected) = bodies::context(body)?;
            Action::AddContext {
                target,
                files,
                expected,
                dry_run: query.dry_run(),
            }
        }
        Operation::Change(change) => {
            bodies::nothing(body)?;
            Action::Change(target(), change)
        }
        Operation::Retry => {
            bodies::nothing(body)?;
            Action::Retry(target())
        }
        Operation::Delete => Action::Delete(target()),
        Operation::Logs => {
            let (target, is_events) = (target(), accepts_events(headers));
            let log = query.log()?;
            if query.flag("follow") || is_events {
                let query = log;
                return Ok(Command::Stream(StreamQuery::Log {
                    target,
                    query,
                    is_events,
                }));
            }
            Action::Logs(target, log)
        }
        Operation::Files => Action::Files(target(), query.number("version")?),
        Operation::File => Action::File {
            target: target(),
            version: query.number("version")?,
            filename: matched.value("filename").to_owned(),
        },
        Operation::Why => Action::Why(target()),
        Operation::Events => Action::Events(target()),
    }))
}

/// Returns whether the client asks for server-sent events.
fn accepts_events(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::ACCEPT).iter();
    all.any(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// Checks that a browser sent a write on behalf of a page of this server.
///
/// # Errors
/// The header is missing.
pub(crate) fn check_browser(verb: Verb, headers: &HeaderMap) -> Result<(), Problem> {
    match verb {
        Verb::Get => Ok(()),
        Verb::Post | Verb::Delete if headers.contains_key(REQUEST_HEADER) => Ok(()),
        Verb::Post | Verb::Delete => Err(Problem::new(
            Reason::CrossOrigin,
            "the header 'Orc-Request' is missing: with a session, each write needs it",
        )),
    }
}

/// Checks that the request is for one of these names of the server. Without names, all are accepted.
///
/// # Errors
/// The name is another one: a page of another site could have made a browser send the request.
pub(crate) fn check_host(host: Option<&str>, names: &[String]) -> Result<(), Problem> {
    if names.is_empty() {
        return Ok(());
    }
    let host = host.unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(Problem::new(
        Reason::OtherHost,
        "the header 'Host' has another name than this server",
    ))
}

/// Returns the problem of a request that needs the archive.
pub(crate) fn no_archive() -> Problem {
    Problem::new(
        Reason::NotInstalled,
        "the archive is not installed: only objects in the cluster can be read",
    )
}

/// Checks everything about the header of a request that does not need its route.
///
/// # Errors
/// The body is compressed, or is no JSON. A browser sent the request for another site.
pub(crate) fn check_header(
    verb: Verb,
    host: Option<&str>,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let sites = ["same-origin", "none"];
    if let Some(site) = headers.get("sec-fetch-site")
        && !sites.iter().any(|known| site == known)
    {
        let detail = "the header 'Sec-Fetch-Site' must be 'same-origin' or 'none'";
        return Err(Problem::new(Reason::CrossOrigin, detail));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let own = host.map(|host| format!("https://{host}"));
        if own.is_none_or(|own| origin != own.as_str()) {
            let detail = "the header 'Origin' must be this server";
            return Err(Problem::new(Reason::CrossOrigin, detail));
        }
    }
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        let detail = "compressed bodies are not accepted";
        return Err(Problem::new(Reason::UnsupportedMediaType, detail));
    }
    match verb {
        Verb::Post if !is_json(headers) => Err(Problem::new(
            Reason::UnsupportedMediaType,
            "the header 'Content-Type' must be 'application/json'",
        )),
        Verb::Get | Verb::Delete if has_body(headers) => {
            Err(Problem::invalid("this request takes no body"))
        }
        Verb::Get | Verb::Delete | Verb::Post => Ok(()),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (all.next(), all.next()) else {
        return false;
    };
    // Header values are compared as ASCII; a content type has no other characters.
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

/// Returns the idempotency key of a request.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next() else {
        return Ok(None);
    };
    let is_valid = (1..=KEY_LIMIT).contains(&key.len())
        && key.as_bytes().iter().all(u8::is_ascii_graphic)
        && all.next().is_none();
    if !is_valid {
        return Err(Problem::invalid(format!(
            "the header 'Idempotency-Key' must have 1 to {KEY_LIMIT} visible ASCII characters, once"
        )));
    }
    Ok(Some(String::from_utf8_lossy(key.as_bytes()).into_owned()))
}

/// Rejects a key that would have no effect. The client would rely on it when it repeats the request.
fn refuse_key(key: Option<&str>) -> Result<(), Problem> {
    match key {
        Some(_) => Err(Problem::invalid(
            "the header 'Idempotency-Key' is for new runs; the version of the context makes this request repeatable",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
