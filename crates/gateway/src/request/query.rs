//! The parameters of a query.

use actions::DryRun;
use api::{
    Duration,
    kinds::KindRow,
    names,
    tasks::{DOCS_RUN, TASK_RUN},
};

use super::{LogQuery, Page, RunsQuery, no_archive};
use crate::{
    problem::Problem,
    routes::{Matched, ParameterKind, is_dns_label, is_dns_name},
    table::{Filter, Position},
};

/// Number of items on a page.
const PAGE: u32 = 50;

/// Maximum number of items on a page. An Agent can have 900 KiB of instructions.
const PAGE_LIMIT: u32 = 100;

/// Maximum number of runs on a page. A run in a list has about 600 bytes.
const RUNS_LIMIT: u32 = 1000;

/// Maximum number of namespaces in one request.
pub(crate) const NAMESPACES: usize = 200;

/// The parameters of a query. Each occurs once, and the route knows it.
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    pub(super) fn parse(query: &str, matched: &Matched<'_>) -> Result<Self, Problem> {
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

    pub(super) fn text(&self, name: &str) -> Option<String> {
        let mut all = self.0.iter();
        let found = all.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.parsed(name, "is too large")
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        match self.text(name).map(|text| text.parse()) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(Problem::invalid(format!("parameter '{name}' {what}"))),
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("true")
    }

    pub(super) fn dry_run(&self) -> DryRun {
        match self.flag("dryRun") {
            true => DryRun::On,
            false => DryRun::Off,
        }
    }

    pub(super) fn namespace(&self) -> Result<Option<String>, Problem> {
        match self.text("namespace") {
            Some(name) if !is_dns_label(&name) => Err(Problem::invalid(format!(
                "parameter 'namespace': '{name}' is not the name of a namespace"
            ))),
            found => Ok(found),
        }
    }

    pub(super) fn page(&self) -> Result<Page, Problem> {
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

    pub(super) fn log(&self) -> Result<LogQuery, Problem> {
        Ok(LogQuery {
            version: self.number("version")?,
            attempt: self.number("attempt")?,
            container: self.text("container"),
            tail: self.number("tail")?,
            from: self.parsed("from", "must be a time, such as 2026-01-01T00:00:00Z")?,
            timestamps: self.flag("timestamps"),
        })
    }

    /// Returns the question for a list of runs, or for a stream of it.
    pub(super) fn runs(&self) -> Result<RunsQuery, Problem> {
        let invalid =
            |name: &str, what: &str| Problem::invalid(format!("parameter '{name}' {what}"));
        match self.text("source").as_deref() {
            None | Some("cluster") => {}
            Some("archive") => return Err(no_archive()),
            Some(_) => return Err(invalid("source", "must be 'cluster' or 'archive'")),
        }
        let kinds: &'static [&'static KindRow] = match self.text("kind").as_deref() {
            None => &[&TASK_RUN, &DOCS_RUN],
            Some("taskruns") => &[&TASK_RUN],
            Some("docsruns") => &[&DOCS_RUN],
            Some(_) => return Err(invalid("kind", "must be 'taskruns' or 'docsruns'")),
        };
        let namespaces = self.text("namespace").unwrap_or_default();
        let mut namespaces: Vec<String> = namespaces
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        namespaces.sort();
        namespaces.dedup();
        if namespaces.len() > NAMESPACES {
            return Err(invalid("namespace", "has more than 200 names"));
        }
        if let Some(name) = namespaces.iter().find(|name| !is_dns_label(name)) {
            let what = format!("has '{name}', which is not the name of a namespace");
            return Err(invalid("namespace", &what));
        }
        let name = self.text("name");
        if name.as_deref().is_some_and(|name| !is_dns_name(name)) {
            return Err(invalid("name", "is not the name of a run"));
        }
        let label = |name: &str| self.text(name).map(|value| names::label_value(&value));
        let time = "must be a time, such as 2026-01-01T00:00:00Z";
        let task_id: Option<u32> = self.number("taskId")?;
        let lasted: Option<Duration> =
            self.parsed("minDuration", "must be a duration, such as 90s")?;
        if lasted.as_ref().is_some_and(Duration::is_negative) {
            return Err(invalid("minDuration", "must not be negative"));
        }
        let limit = self.number("limit")?.unwrap_or(PAGE);
        if !(1..=RUNS_LIMIT).contains(&limit) {
            return Err(invalid("limit", "must be from 1 to 1000"));
        }
        let after = match self.text("cursor") {
            None => None,
            Some(text) => match Position::parse(&text) {
                None => return Err(invalid("cursor", "is not valid; start again")),
                found => found,
            },
        };
        Ok(RunsQuery {
            kinds,
            namespaces,
            filter: Filter {
                name,
                phase: self.text("phase"),
                reason: self.text("reason"),
                service: label("service"),
                task_id: task_id.map(|number| number.to_string()),
                agent: label("agent"),
                from: self.parsed("from", time)?,
                to: self.parsed("to", time)?,
                min_duration: lasted.map(Into::into),
            },
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            after,
        })
    }
}
