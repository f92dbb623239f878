//! `describe`

use actions::Object;
use api::{CommonStatus, Timestamp, tasks::Version};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::Value;

use crate::{
    Exit,
    arguments::Describe,
    commands::{events, fields, tree},
    failure::Failure,
    output,
    related::{self, Children},
    session::{Server, Session},
    state,
    target::{self, Target},
    text::{Paint, Table, Tone, age, between, cell, clean, moment, span, stamp, toned, wrap},
};

/// Width of the labels before the values, in columns.
const LABEL_WIDTH: usize = 14;

/// Maximum number of Events shown, the newest ones. `events` shows all of them.
const MAX_SHOWN_EVENTS: usize = 20;

pub(crate) async fn run(verb: Describe, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let target = target::any_kind(&target::one_word(&verb.target)).map_err(Failure::Client)?;
    let server = session.server().await?;
    let page = Page {
        now: session.now(),
        paint: session.paint,
        width: session.width(),
        room: session.room(),
    };
    let object = match target {
        Target::Run(name) => server.find(&name).await?,
        Target::Object(name) => server.get(&name).await?,
    };
    let name = object.name.clone();
    let related = match name.is_run() {
        true => Some(Related::of(&server, &object).await),
        false => None,
    };
    let why = session.command(&format!("why {}", name.argument()));
    session.print(&page.object(&object, related, &why)?)?;
    Ok(Exit::Ok)
}

/// The children of a run, and the Events of all of them. A page without them is better than none.
struct Related {
    children: Result<Children, Failure>,
    events: Result<Vec<Event>, Failure>,
}

impl Related {
    async fn of(server: &Server, run: &Object) -> Self {
        let children = related::children(server, run).await;
        let events = match &children {
            Ok(children) => related::events(server, run, children).await,
            Err(_told_below) => related::events(server, run, &Children::default()).await,
        };
        Self { children, events }
    }
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
    /// Renders an object of any kind. A part without content is left out.
    fn object(
        self,
        object: &Object,
        related: Option<Related>,
        why: &str,
    ) -> Result<String, Failure> {
        let kind = object.name.kind;
        let progress = object.progress.as_ref();
        let mut out = self.title(object);
        let above = object.message();
        out.push_str(&self.paragraph(&above));
        match fields::sections(kind) {
            Some(sections) => {
                for section in sections {
                    out.push_str(&self.section(section, object));
                }
            }
            None => {
                let spec = output::yaml(object.at("spec"))?;
                out.push_str(&format!("{}{}", self.head("Spec"), indented(&spec)));
            }
        }
        if object.at("status.isolation").is_object() {
            out.push_str(&self.isolation(object));
        }
        if let Some(progress) = progress {
            if state::is_awaited(kind) {
                out.push_str(&self.timeline(progress, &above));
            }
            let history: Vec<Version> = object.part("status.history").unwrap_or_default();
            out.push_str(&self.history(&history));
            out.push_str(&self.conditions(progress, &above));
        }
        if let Some(Related { children, events }) = related {
            out.push_str(&self.head("Children"));
            out.push_str(&match children {
                Ok(children) => indented(&tree::render(object, &children, self.paint)),
                Err(failure) => self.unread(&failure),
            });
            out.push_str(&self.head("Events"));
            out.push_str(&match events {
                Ok(events) => self.events(&events),
                Err(failure) => self.unread(&failure),
            });
        }
        if state::is_awaited(kind) && !state::is_well(object) {
            let purpose = match object.name.is_run() {
                true => "to see what it waits for or why it failed",
                false => "to see what is in the way",
            };
            out.push_str(&format!("\n{purpose}: {why}\n"));
        }
        Ok(out)
    }

    /// Renders the checked connections with their expected and observed results.
    fn isolation(self, object: &Object) -> String {
        let mut table = Table::new(vec!["FROM", "TO", "EXPECTED", "OBSERVED", "DETAIL"]);
        let connections = object.at("status.isolation.connections").as_array();
        for one in connections.into_iter().flat_map(|all| all.iter()) {
            let [from, to, expected, observed, detail] =
                ["from", "to", "expected", "observed", "detail"].map(|name| text(one, name));
            let tone = match observed {
                _ if observed == expected => Tone::Good,
                "Unknown" => Tone::Waiting,
                _ => Tone::Bad,
            };
            let observed = toned(observed, tone);
            table.push(vec![
                cell(from),
                cell(to),
                cell(expected),
                observed,
                cell(detail),
            ]);
        }
        let proved: Option<Time> = object.part("status.isolation.lastProvedAt");
        let when = proved.map_or_else(String::new, |at| {
            format!(", tried {} ago", span(between(at.0, self.now)))
        });
        let result = clean(object.text("status.isolation.result"));
        let mut out = self.head(&format!("Isolation: {result}{when}"));
        out.push_str(&self.paragraph(object.text("status.isolation.message")));
        if !table.is_empty() {
            out.push_str(&self.rows(&table));
        }
        out
    }

    fn title(self, object: &Object) -> String {
        let (meta, standing) = (&object.metadata, state::standing(object));
        let name = format!("{} {}", object.name.kind.name(), clean(&object.name.name));
        let place = match meta.namespace.as_deref() {
            Some(namespace) => format!("in namespace '{}', ", clean(namespace)),
            None => String::new(),
        };
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        format!(
            "{}  {}\n  {place}{} old\n",
            self.paint.apply(Tone::Head, &name),
            self.paint.apply(standing.tone, &standing.text()),
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

    fn section(self, (title, groups): &fields::Section, object: &Object) -> String {
        let mut out = String::new();
        for (label, shown) in groups.iter().flat_map(|group| group.iter()) {
            let value = shown.text(object, self.now);
            let mut label = format!("{label}:");
            for line in wrap(&value, self.width.saturating_sub(LABEL_WIDTH + 3).max(20)) {
                out.push_str(&format!("  {label:<LABEL_WIDTH$} {line}\n"));
                label.clear();
            }
        }
        match out.is_empty() {
            true => out,
            false => format!("{}{out}", self.head(title)),
        }
    }

    /// `above` is the message at the top of the page.
    fn timeline(self, progress: &CommonStatus, above: &str) -> String {
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

    fn history(self, history: &[Version]) -> String {
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
        self.table("Earlier versions", &table)
    }

    /// `above` is the message at the top of the page.
    fn conditions(self, progress: &CommonStatus, above: &str) -> String {
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
        self.rows(&table)
    }

    fn table(self, title: &str, table: &Table) -> String {
        match table.is_empty() {
            true => String::new(),
            false => format!("{}{}", self.head(title), self.rows(table)),
        }
    }

    fn rows(self, table: &Table) -> String {
        let room = self.room.map(|room| room.saturating_sub(2));
        indented(&table.render(self.paint, room))
    }

    fn unread(self, failure: &Failure) -> String {
        self.paragraph(&format!("cannot be shown: {}", failure.message()))
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Returns a reference instead of the message at the top of the page. Another version of a run may be there.
fn repeated<'a>(message: &'a str, above: &str) -> &'a str {
    if above == message {
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
