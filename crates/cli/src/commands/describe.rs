//! `describe`

use actions::Request;
use api::{
    Timestamp,
    status::CommonStatus,
    tasks::Agent,
    tenants::{ExpectedResult, ObservedResult, Tenant, TenantStatus},
};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use kube::Api;

use crate::{
    Exit,
    arguments::Describe,
    commands::{
        events,
        fields::{self, Field, documentation, duration, pushed, result_fields, task},
        tree,
    },
    failure::Failure,
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
        Kind::Agent => {
            let agents: Api<Agent> = Api::namespaced(server.client.clone(), &server.namespace);
            let request = Request {
                verb: "get",
                kind: kind.name(),
                resource: kind.resource(),
                name: Some(name.clone()),
                namespace: Some(server.namespace.clone()),
            };
            page.agent(&ask(request, agents.get(&name)).await?)
        }
        Kind::Tenant => {
            let tenants: Api<Tenant> = Api::all(server.client.clone());
            let request = Request {
                verb: "get",
                kind: kind.name(),
                resource: kind.resource(),
                name: Some(name.clone()),
                namespace: None,
            };
            let next = session.command(&format!("why tenant/{name}"));
            page.tenant(&ask(request, tenants.get(&name)).await?, &next)
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

    fn agent(self, agent: &Agent) -> String {
        let progress = agent.status.as_ref().map(|status| &status.progress);
        let is_ready = progress.is_some_and(|progress| progress.is_true("Ready"));
        let (tone, words) = if is_ready {
            (Tone::Good, "✓ Ready")
        } else {
            (Tone::Waiting, "○ not ready")
        };
        let mut out = self.title("Agent", &agent.metadata, tone, words);
        let message = progress.and_then(|progress| progress.message.as_deref());
        out.push_str(&self.paragraph(message.unwrap_or("it has no status yet")));
        let spec = &agent.spec;
        let results: Vec<String> = spec
            .results
            .iter()
            .map(|result| {
                let word = if result.required { " (required)" } else { "" };
                format!("{}{word}", result.name)
            })
            .collect();
        let instructions: Vec<&str> = spec
            .instructions
            .iter()
            .map(|file| file.filename.as_str())
            .collect();
        out.push_str(&self.section(
            "Agent",
            &[
                ("Image", spec.image.clone()),
                ("Command", spec.command.join(" ")),
                ("Arguments", spec.args.join(" ")),
                ("Account", spec.service_account_name.clone()),
                ("User", spec.run_as_user.to_string()),
                ("Timeout", duration(spec.timeout)),
                ("To start", duration(spec.start_timeout)),
                ("Attempts", spec.retry.max_attempts.to_string()),
                ("Results", results.join(", ")),
                ("Instructions", instructions.join(", ")),
            ],
        ));
        if let Some(progress) = progress {
            out.push_str(&self.conditions(progress, message));
        }
        out
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::tests::{a_docs_run, a_run, condition};

    const PAGE: Page = Page {
        now: Timestamp::constant(1_767_229_200, 0),
        paint: Paint { is_on: false },
        width: 60,
        room: None,
    };

    #[test]
    fn a_message_of_an_old_version_is_not_above() {
        let failed = json!({ "phase": "Failed", "contextVersion": 1, "message": "as it is",
            "conditions": [condition("Succeeded", "False", "NonZeroExit")] });
        for (version, at_the_top, in_the_table) in [
            (1, "  as it is\n", "(as above)"),
            (2, "  the operator has not seen version 2 yet\n", "as it is"),
        ] {
            let run = a_run(&json!({ "contextVersion": version }), &failed);
            let page = PAGE.run(
                &run,
                Ok(Children::default()),
                Ok(Vec::new()),
                "orc why shop-7",
            );
            assert!(page.contains(at_the_top), "{page}");
            let row = page.lines().find(|line| line.contains("Succeeded   False"));
            assert!(row.is_some_and(|row| row.ends_with(in_the_table)), "{page}");
        }
    }

    #[test]
    fn a_failed_run_on_one_page() {
        let run = a_run(
            &json!({ "suspend": true }),
            &json!({
                "phase": "Failed", "contextVersion": 1, "attempts": 1, "jobName": "shop-7-v1",
                "message": "the agent's program exited with code 3; read its log",
                "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:00:40Z",
                "result": { "exitCode": 3, "reason": "NonZeroExit", "podName": "shop-7-v1-x",
                    "results": { "commit": "0123" } },
                "conditions": [condition("Finished", "True", "NonZeroExit"), condition("Succeeded", "False", "NonZeroExit")],
                "phaseHistory": [{ "phase": "Failed", "attempt": 1, "startedAt": "2026-01-01T00:00:40Z",
                    "finishedAt": "2026-01-01T00:00:40Z", "outcome": "Failed",
                    "reason": "NonZeroExit", "message": "exit code 3" }],
            }),
        );
        let denied = Failure::client("not allowed to list events");
        let page = PAGE.run(&run, Ok(Children::default()), Err(denied), "orc why shop-7");
        assert_eq!(
            page,
            "TaskRun shop-7  ✗ Failed (NonZeroExit)
  in namespace 'team', 60m old
  the agent's program exited with code 3; read its log

Task
  Task:          7
  Service:       shop
  Agent:         writer
  Version:       1
  Files:         1, 6 bytes: task.md
  Suspended:     yes

Status
  Attempts:      1
  Job:           shop-7-v1
  Started:       2026-01-01T00:00:10Z (59m ago)
  Finished:      2026-01-01T00:00:40Z (59m ago)

Result of the last attempt
  Reason:        NonZeroExit
  Exit code:     3
  Results:       commit=0123
  Pod:           shop-7-v1-x

Timeline
  STARTED     PHASE    ATTEMPT   TOOK   OUTCOME   REASON        MESSAGE
  00:00:40Z   Failed   1         0s     Failed    NonZeroExit   exit code 3

Conditions
  TYPE        STATUS   REASON        SINCE   MESSAGE
  Finished    True     NonZeroExit   59m     as it is
  Succeeded   False    NonZeroExit   59m     as it is

Children
  └─ no children: they are removed some time after the end

Events
  cannot be shown: not allowed to list events

to see what it waits for or why it failed: orc why shop-7
"
        );
    }

    #[test]
    fn documentation_that_was_pushed_on_one_page() {
        let run = a_docs_run(
            &json!({ "credentialsSecretRef": { "name": "git" }, "model": "m", "timeout": "5m",
                "instructions": [{ "filename": "style.md", "content": "Short." }] }),
            &json!({
                "phase": "Succeeded", "attempts": 1, "jobName": "guide-docs",
                "message": "branch 'docs/guide' is at c0535e4",
                "baseCommit": "4b825dc", "branch": "docs/guide", "commit": "c0535e4",
                "changedFiles": { "count": 3, "first": ["docs/a.md", "docs/b.md"] },
                "conditions": [condition("Finished", "True", "Succeeded"), condition("Succeeded", "True", "Succeeded")],
            }),
        );
        let page = PAGE.run(
            &run,
            Ok(Children::default()),
            Ok(Vec::new()),
            "orc why docsrun/guide",
        );
        assert_eq!(
            page,
            "DocsRun guide  ✓ Succeeded
  in namespace 'team', 60m old
  branch 'docs/guide' is at c0535e4

Documentation
  Repository:    https://git.example/team/shop
  Reads branch:  main
  Works in:      .
  Agent sees:    that folder only
  Agent:         writer
  Model:         m
  Instructions:  1, 6 bytes: style.md
  Secret:        git
  Pushes to:     docs/guide
  Takes over:    docs/
  Timeout:       5m

Status
  Base commit:   4b825dc
  Branch:        docs/guide
  Before:        there was no such branch
  Commit:        c0535e4
  Changed files: 3: docs/a.md, docs/b.md, …
  Attempts:      1
  Job:           guide-docs

Conditions
  TYPE        STATUS   REASON      SINCE   MESSAGE
  Finished    True     Succeeded   59m     as it is
  Succeeded   True     Succeeded   59m     as it is

Children
  └─ no children: they are removed some time after the end

Events
  none; the server keeps them for about an hour
"
        );
    }

    #[test]
    fn a_tenant_that_is_not_isolated_on_one_page() {
        let status = json!({
            "phase": "Running", "observedGeneration": 1, "namespace": "tenant-acme",
            "message": "namespace 'tenant-acme': redis 1/1, server 2/2 ready",
            "serverStatus": { "phase": "Running", "message": "2 of 2 ready", "readyReplicas": 2, "totalReplicas": 2 },
            "redisStatus": { "phase": "Running", "message": "1 of 1 ready", "readyReplicas": 1, "totalReplicas": 1 },
            "usage": { "cpu": { "request": "150m", "limit": "1500m" }, "pods": { "used": "3" } },
            "isolation": { "result": "PolicyNotEnforced", "lastProvedAt": "2026-01-01T00:50:00Z", "connections": [
                { "from": "a Pod of the Tenant", "to": "its redis", "expected": "Allowed", "observed": "Allowed", "detail": "connected" },
                { "from": "a Pod outside", "to": "its redis", "expected": "Blocked", "observed": "Allowed", "detail": "connected to 10.0.0.7:6379" },
                { "from": "a Pod outside", "to": "its server", "expected": "Blocked", "observed": "Unknown", "detail": "nothing was told" },
            ] },
            "conditions": [condition("Ready", "True", "Ready"), condition("NetworkIsolated", "False", "PolicyNotEnforced")],
        });
        let tenant = crate::tenant::tests::a_tenant(1, &status);
        assert_eq!(
            PAGE.tenant(&tenant, "orc why tenant/acme"),
            "Tenant acme  ! Running, not isolated
  60m old
  namespace 'tenant-acme': redis 1/1, server 2/2 ready

Tenant
  Namespace:     tenant-acme
  Owners:        User 'ann'
  Server:        shop:2, 2 replicas, port 3030
  Redis:         redis:7, 1Gi
  Policies:      on, proven by trying
  On deletion:   Retain, blocked after 15m

Status
  Server:        Running: 2 of 2 ready
  Redis:         Running: 1 of 1 ready
  Used:          cpu 150m requested, 1500m limit; pods 3

Isolation: PolicyNotEnforced, tried 10m ago
  FROM                  TO           EXPECTED   OBSERVED   DETAIL
  a Pod of the Tenant   its redis    Allowed    Allowed    connected
  a Pod outside         its redis    Blocked    Allowed    connected to 10.0.0.7:6379
  a Pod outside         its server   Blocked    Unknown    nothing was told

Conditions
  TYPE              STATUS   REASON              SINCE   MESSAGE
  Ready             True     Ready               59m     as it is
  NetworkIsolated   False    PolicyNotEnforced   59m     as it is

to see what is in the way: orc why tenant/acme
"
        );
    }

    #[test]
    fn a_run_that_nobody_has_looked_at() {
        let status = json!({ "observedGeneration": -1, "phase": "Pending",
            "message": "waiting for the operator to look at it" });
        let run = a_run(&json!({}), &status);
        let page = PAGE.run(
            &run,
            Ok(Children::default()),
            Ok(Vec::new()),
            "orc why shop-7",
        );
        assert!(page.contains("○ Pending\n"), "{page}");
        assert!(
            page.contains("  waiting for the operator to look at it\n"),
            "{page}"
        );
        assert!(page.contains("no children yet"), "{page}");
        assert!(!page.contains("Timeline"), "{page}");
    }
}
