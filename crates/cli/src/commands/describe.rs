//! `describe`

use api::{
    Lifecycle, Timestamp,
    kinds::KindRow,
    status::{CommonStatus, condition},
    tasks::{AGENT, Agent},
    tenants::{ExpectedResult, ObservedResult, Tenant, TenantStatus},
};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, core::DynamicObject};

use crate::{
    Exit,
    arguments::Describe,
    commands::{
        events,
        fields::{self, Field, documentation, pushed, result_fields, task},
        tree,
    },
    failure::Failure,
    output,
    related::{self, Children},
    run::AnyRun,
    session::{Session, ask},
    target::{self, Kind, RunName, Selection},
    tenant,
    text::{
        Paint, Table, Tone, age, between, cell, clean, count, moment, span, stamp, toned, wrap,
    },
};

/// Width of the labels before the values, in columns.
const LABEL_WIDTH: usize = 14;

/// Maximum number of Events shown, the newest ones. `events` shows all of them.
const MAX_SHOWN_EVENTS: usize = 20;

pub(crate) async fn run(verb: Describe, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let Selection { kind, name } = target::one_word(&verb.target)
        .parse()
        .map_err(Failure::Client)?;
    let server = session.server().await?;
    let page = Page {
        now: session.now(),
        paint: session.paint,
        width: session.width(),
        room: session.room(),
    };
    let text = match kind {
        Kind::Run(kind) => {
            let run = related::run(&server, &RunName { kind, name }).await?;
            let children = related::children(&server, &run).await;
            let events = match &children {
                Ok(children) => related::events(&server, &run, children).await,
                Err(_told_below) => related::events(&server, &run, &Children::default()).await,
            };
            let next = session.command(&format!("why {}", run.argument()));
            page.run(&run, children, events, &next)
        }
        Kind::Tenant => {
            let tenants: Api<Tenant> = Api::all(server.client.clone());
            let request = server.request("get", kind.row(), &name);
            let next = session.command(&format!("why {}", kind.argument(&name)));
            page.tenant(&ask(request, tenants.get(&name)).await?, &next)
        }
        Kind::Other(row) => {
            let objects = server.objects(row, false);
            let request = server.request("get", row, &name);
            page.object(row, &ask(request, objects.get(&name)).await?)?
        }
    };
    session.print(&text)?;
    Ok(Exit::Ok)
}

/// The format of a page.
#[derive(Debug, Clone, Copy)]
struct Page {
    now: Timestamp,
    paint: Paint,
    width: usize,
    room: Option<usize>,
}

impl Page {
    fn run(
        self,
        run: &AnyRun,
        children: Result<Children, Failure>,
        events: Result<Vec<Event>, Failure>,
        why: &str,
    ) -> String {
        let standing = run.standing();
        let mut out = self.title(
            run.kind().name(),
            run.meta(),
            standing.tone,
            &standing.text(),
        );
        out.push_str(&self.paragraph(&run.message()));
        out.push_str(&match run {
            AnyRun::Task(run) => self.section("Task", &task(run)),
            AnyRun::Docs(run) => self.section("Documentation", &documentation(run)),
        });
        if let Some(status) = run.status() {
            out.push_str(&self.section("Status", &self.status(run)));
            if let Some(result) = status.result {
                out.push_str(&self.section("Result of the last attempt", &result_fields(result)));
            }
            out.push_str(&self.timeline(status.progress, Some(&run.message())));
            out.push_str(&self.history(run));
            out.push_str(&self.conditions(status.progress, Some(&run.message())));
        }
        out.push_str(&self.head("Children"));
        match children {
            Ok(children) => {
                for line in tree::render(run, &children, self.paint).lines() {
                    out.push_str(&format!("  {line}\n"));
                }
            }
            Err(failure) => out.push_str(&self.unread(&failure)),
        }
        out.push_str(&self.head("Events"));
        match events {
            Ok(events) => out.push_str(&self.events(&events)),
            Err(failure) => out.push_str(&self.unread(&failure)),
        }
        let is_well = run.outcome() == Some(actions::Outcome::Succeeded);
        if !is_well {
            out.push_str(&format!(
                "\nto see what it waits for or why it failed: {why}\n"
            ));
        }
        out
    }

    /// Renders an object of a kind without a page of its own.
    fn object(self, row: &KindRow, object: &DynamicObject) -> Result<String, Failure> {
        let status = object.data["status"].clone();
        // A status that cannot be decoded is shown like none. `why` shows the error.
        let progress: Option<CommonStatus> = serde_json::from_value(status).unwrap_or_default();
        let progress = progress.as_ref();
        let main = match row.lifecycle {
            Lifecycle::RunToCompletion => condition::SUCCEEDED,
            Lifecycle::LongLived => condition::READY,
        };
        let (tone, words) = if progress.is_some_and(|progress| progress.is_true(main)) {
            (Tone::Good, format!("✓ {main}"))
        } else {
            (Tone::Waiting, format!("○ not {}", main.to_lowercase()))
        };
        let mut out = self.title(row.name(), &object.metadata, tone, &words);
        let message = progress.and_then(|progress| progress.message.as_deref());
        out.push_str(&self.paragraph(message.unwrap_or("it has no status yet")));
        if *row == AGENT {
            let agent = serde_json::to_value(object).and_then(serde_json::from_value);
            let agent: Agent = agent.map_err(|error| {
                Failure::client(format!("the Agent does not fit its schema: {error}"))
            })?;
            out.push_str(&self.section(row.name(), &fields::agent(&agent)));
        } else {
            out.push_str(&self.head("Spec"));
            for line in output::yaml(&object.data["spec"])?.lines() {
                out.push_str(&format!("  {line}\n"));
            }
        }
        if let Some(progress) = progress {
            out.push_str(&self.conditions(progress, message));
        }
        Ok(out)
    }

    fn tenant(self, tenant: &Tenant, why: &str) -> String {
        let standing = tenant::standing(tenant);
        let mut out = self.title("Tenant", &tenant.metadata, standing.tone, &standing.text());
        let progress = tenant.status.as_ref().map(|status| &status.progress);
        let message = progress.and_then(|progress| progress.message.as_deref());
        out.push_str(&self.paragraph(message.unwrap_or("it has no status yet")));
        out.push_str(&self.section("Tenant", &fields::tenant(tenant)));
        if let Some(status) = &tenant.status {
            let fields = fields::standing(status);
            if fields.iter().any(|(_, value)| !value.is_empty()) {
                out.push_str(&self.section("Status", &fields));
            }
            out.push_str(&self.connections(status));
            out.push_str(&self.timeline(&status.progress, message));
            out.push_str(&self.conditions(&status.progress, message));
        }
        if standing.tone != Tone::Good {
            out.push_str(&format!("\nto see what is in the way: {why}\n"));
        }
        out
    }

    /// Renders the checked connections with their expected and observed results.
    fn connections(self, status: &TenantStatus) -> String {
        let Some(isolation) = &status.isolation else {
            return String::new();
        };
        let mut table = Table::new(vec!["FROM", "TO", "EXPECTED", "OBSERVED", "DETAIL"]);
        for one in &isolation.connections {
            let expected = match one.expected {
                ExpectedResult::Allowed => "Allowed",
                ExpectedResult::Blocked => "Blocked",
            };
            let observed = match one.observed {
                ObservedResult::Allowed => "Allowed",
                ObservedResult::Blocked => "Blocked",
                ObservedResult::Unknown => "Unknown",
            };
            let tone = if one.is_as_expected() {
                Tone::Good
            } else if one.is_unexpected() {
                Tone::Bad
            } else {
                Tone::Waiting
            };
            table.push(vec![
                cell(&one.from),
                cell(&one.to),
                cell(expected),
                toned(observed, tone),
                cell(&one.detail),
            ]);
        }
        let when = isolation
            .last_proved_at
            .as_ref()
            .map_or_else(String::new, |at| {
                format!(", tried {} ago", span(between(at.0, self.now)))
            });
        let mut out = self.head(&format!("Isolation: {}{when}", clean(&isolation.result)));
        if let Some(message) = &isolation.message {
            out.push_str(&self.paragraph(message));
        }
        if !table.is_empty() {
            out.push_str(&self.indented(&table));
        }
        out
    }

    fn title(
        self,
        kind: &str,
        meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        tone: Tone,
        standing: &str,
    ) -> String {
        let name = format!("{kind} {}", clean(meta.name.as_deref().unwrap_or_default()));
        let place = match meta.namespace.as_deref() {
            Some(namespace) => format!("in namespace '{}', ", clean(namespace)),
            None => String::new(),
        };
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        format!(
            "{}  {}\n  {place}{} old\n",
            self.paint.apply(Tone::Head, &name),
            self.paint.apply(tone, standing),
            age(created, self.now)
        )
    }

    fn head(self, title: &str) -> String {
        format!("\n{}\n", self.paint.apply(Tone::Head, title))
    }

    fn paragraph(self, text: &str) -> String {
        let lines = wrap(text, self.width.saturating_sub(2));
        lines.iter().map(|line| format!("  {line}\n")).collect()
    }

    fn section(self, title: &str, fields: &[Field]) -> String {
        let mut out = self.head(title);
        for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            let lines = wrap(value, self.width.saturating_sub(LABEL_WIDTH + 3).max(20));
            for (index, line) in lines.iter().enumerate() {
                let label = if index == 0 {
                    format!("{label}:")
                } else {
                    String::new()
                };
                out.push_str(&format!("  {label:<LABEL_WIDTH$} {line}\n"));
            }
        }
        out
    }

    fn status(self, run: &AnyRun) -> Vec<Field> {
        let Some(status) = run.status() else {
            return Vec::new();
        };
        let time = |time: Option<&Time>| {
            time.map_or_else(String::new, |time| {
                let ago = between(time.0, self.now);
                let when = if ago >= 0 {
                    format!("{} ago", span(ago))
                } else {
                    format!("in {}", span(-ago))
                };
                format!("{} ({when})", moment(time.0))
            })
        };
        let version = match (status.version, run.version()) {
            (Some(version), Some(wanted)) if version != wanted => {
                format!("{version}; version {wanted} is not looked at yet")
            }
            (Some(_) | None, _) => String::new(),
        };
        let pod = status.pod.map_or_else(String::new, |pod| match &pod.node {
            Some(node) => format!("{} on node '{node}'", pod.name),
            None => pod.name.clone(),
        });
        let retry = status
            .progress
            .retry
            .as_ref()
            .map_or_else(String::new, |retry| {
                let next = match (&retry.next_at, &retry.every) {
                    (Some(at), _) => moment(at.0),
                    (None, Some(every)) => format!("every {every} at the latest"),
                    (None, None) => String::new(),
                };
                format!(
                    "{next} ({} without success so far, {})",
                    count(usize::try_from(retry.attempt).unwrap_or(usize::MAX), "try"),
                    retry.class
                )
                .replace("trys", "tries")
            });
        let mut fields = match run {
            AnyRun::Task(_) => vec![("Version", version)],
            AnyRun::Docs(run) => pushed(run),
        };
        fields.extend([
            ("Attempts", status.attempts.to_string()),
            (
                "Disruptions",
                match status.disruptions {
                    0 => String::new(),
                    count => count.to_string(),
                },
            ),
            ("Job", status.job_name.unwrap_or_default().to_owned()),
            (
                "ConfigMap",
                status.config_map_name.unwrap_or_default().to_owned(),
            ),
            ("Pod", pod),
            ("Started", time(status.started_at)),
            ("Finished", time(status.finished_at)),
            ("Deadline", time(status.deadline_at)),
            ("Next try", retry),
        ]);
        fields
    }

    /// `above` is the message at the top of the page.
    fn timeline(self, progress: &CommonStatus, above: Option<&str>) -> String {
        if progress.phase_history.is_empty() {
            return String::new();
        }
        let mut table = Table::new(vec![
            "STARTED", "PHASE", "ATTEMPT", "TOOK", "OUTCOME", "REASON", "MESSAGE",
        ]);
        for record in &progress.phase_history {
            let end = record.finished_at.as_ref().map_or(self.now, |time| time.0);
            table.push(vec![
                cell(stamp(record.started_at.0, self.now)),
                cell(&record.phase),
                cell(
                    record
                        .attempt
                        .map_or_else(String::new, |number| number.to_string()),
                ),
                cell(span(between(record.started_at.0, end))),
                toned(&record.outcome, outcome_tone(&record.outcome)),
                cell(&record.reason),
                cell(repeated(&record.message, above)),
            ]);
        }
        self.table("Timeline", &table)
    }

    fn history(self, run: &AnyRun) -> String {
        let history = run.history();
        let mut table = Table::new(vec!["VERSION", "PHASE", "REASON", "ATTEMPTS", "ENDED"]);
        for version in history {
            table.push(vec![
                cell(version.context_version.to_string()),
                toned(&version.phase, outcome_tone(&version.phase)),
                cell(&version.reason),
                cell(version.attempts.to_string()),
                cell(moment(version.finished_at.0)),
            ]);
        }
        if table.is_empty() {
            return String::new();
        }
        self.table("Earlier versions", &table)
    }

    /// `above` is the message at the top of the page.
    fn conditions(self, progress: &CommonStatus, above: Option<&str>) -> String {
        let mut table = Table::new(vec!["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]);
        for condition in &progress.conditions {
            let since = Some(condition.last_transition_time.0);
            table.push(vec![
                cell(&condition.type_),
                cell(&condition.status),
                cell(&condition.reason),
                cell(age(since, self.now)),
                cell(repeated(&condition.message, above)),
            ]);
        }
        if table.is_empty() {
            return String::new();
        }
        self.table("Conditions", &table)
    }

    fn events(self, events: &[Event]) -> String {
        let mut table = events::table();
        for event in events
            .iter()
            .skip(events.len().saturating_sub(MAX_SHOWN_EVENTS))
        {
            table.push(events::row(event, self.now));
        }
        if table.is_empty() {
            return "  none; the server keeps them for about an hour\n".to_owned();
        }
        self.indented(&table)
    }

    fn table(self, title: &str, table: &Table) -> String {
        format!("{}{}", self.head(title), self.indented(table))
    }

    fn indented(self, table: &Table) -> String {
        let room = self.room.map(|room| room.saturating_sub(2));
        let text = table.render(self.paint, room);
        text.lines().map(|line| format!("  {line}\n")).collect()
    }

    fn unread(self, failure: &Failure) -> String {
        self.paragraph(&format!("cannot be shown: {}", failure.message()))
    }
}

/// Returns a reference instead of the message at the top of the page. Another version of a run may be there.
fn repeated<'a>(message: &'a str, above: Option<&str>) -> &'a str {
    if above == Some(message) {
        "(as above)"
    } else {
        message
    }
}

fn outcome_tone(word: &str) -> Tone {
    match word {
        "Succeeded" | "Ready" => Tone::Good,
        "Failed" | "Stalled" => Tone::Bad,
        "Completed" => Tone::Dim,
        _ => Tone::Plain,
    }
}

#[cfg(test)]
mod tests;
