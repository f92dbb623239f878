//! Translates a request into an action. Pure: nothing here reads from the cluster.

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
    routes::{Matched, Operation, ParameterKind, Verb, is_dns_label},
};

/// Maximum length of an idempotency key.
const KEY_LIMIT: usize = 255;

/// Number of items on a page.
const PAGE: u32 = 50;

/// Maximum number of items on a page. An Agent can have 900 KiB of instructions.
const PAGE_LIMIT: u32 = 100;

/// The name of the header with the idempotency key.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

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

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: u32,
    pub(crate) cursor: Option<String>,
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
) -> Result<Action, Problem> {
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
    Ok(match matched.route.operation {
        Operation::OpenApi => Action::OpenApi,
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
        Operation::Logs => Action::Logs(target(), query.log()?),
        Operation::Files => Action::Files(target(), query.number("version")?),
        Operation::File => Action::File {
            target: target(),
            version: query.number("version")?,
            filename: matched.value("filename").to_owned(),
        },
        Operation::Why => Action::Why(target()),
        Operation::Events => Action::Events(target()),
    })
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

/// The parameters of a query. Each occurs once, and the route knows it.
struct Query(Vec<(&'static str, String)>);

impl Query {
    fn parse(query: &str, matched: &Matched<'_>) -> Result<Self, Problem> {
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let mut known = matched.route.query.iter();
            let Some(parameter) = known.find(|parameter| parameter.name == name) else {
                return Err(Problem::invalid(format!("unknown parameter '{name}'")));
            };
            if found.iter().any(|(known, _)| *known == name) {
                return Err(Problem::invalid(format!("parameter '{name}' occurs twice")));
            }
            let is_valid = match parameter.kind {
                ParameterKind::Text => !value.is_empty(),
                ParameterKind::Flag => matches!(&*value, "true" | "false"),
                ParameterKind::Number => {
                    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
                }
            };
            if !is_valid {
                let kind = parameter.kind.name();
                return Err(Problem::invalid(format!(
                    "parameter '{name}': '{value}' is no {kind}"
                )));
            }
            found.push((parameter.name, value.into_owned()));
        }
        Ok(Self(found))
    }

    fn text(&self, name: &str) -> Option<String> {
        let mut all = self.0.iter();
        let found = all.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.parsed(name, "is too large")
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        match self.text(name).map(|text| text.parse()) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(Problem::invalid(format!("parameter '{name}' {what}"))),
        }
    }

    fn flag(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("true")
    }

    fn dry_run(&self) -> DryRun {
        match self.flag("dryRun") {
            true => DryRun::On,
            false => DryRun::Off,
        }
    }

    fn namespace(&self) -> Result<Option<String>, Problem> {
        match self.text("namespace") {
            Some(name) if !is_dns_label(&name) => Err(Problem::invalid(format!(
                "parameter 'namespace': '{name}' is not the name of a namespace"
            ))),
            found => Ok(found),
        }
    }

    fn page(&self) -> Result<Page, Problem> {
        let limit = self.number("limit")?.unwrap_or(PAGE);
        if !(1..=PAGE_LIMIT).contains(&limit) {
            return Err(Problem::invalid(format!(
                "parameter 'limit' must be from 1 to {PAGE_LIMIT}"
            )));
        }
        Ok(Page {
            limit,
            cursor: self.text("cursor"),
        })
    }

    fn log(&self) -> Result<LogQuery, Problem> {
        Ok(LogQuery {
            version: self.number("version")?,
            attempt: self.number("attempt")?,
            container: self.text("container"),
            tail: self.number("tail")?,
            from: self.parsed("from", "must be a time, such as 2026-01-01T00:00:00Z")?,
            timestamps: self.flag("timestamps"),
        })
    }
}

#[cfg(test)]
mod tests;
