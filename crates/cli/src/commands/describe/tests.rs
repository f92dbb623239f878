//! Pages of `describe`.

use api::{
    decide::ResourceType,
    kinds::KindRow,
    tasks::{AGENT, TASK_RUN},
};
use serde_json::json;

use super::*;
use crate::state::tests::{a_docs_run, a_run, a_tenant, condition};

const PAGE: Page = Page {
    now: Timestamp::constant(1_767_229_200, 0),
    paint: Paint { is_on: false },
    width: 60,
    room: None,
};

/// Renders a run without children.
fn of_run(run: &Object, events: Result<Vec<Event>, Failure>, why: &str) -> String {
    let children = Ok(Children::default());
    let related = Related { children, events };
    PAGE.object(run, Some(related), why).unwrap()
}

#[test]
fn a_message_of_an_old_version_is_not_above() {
    let failed = json!({ "phase": "Failed", "contextVersion": 1, "message": "as it is",
        "conditions": [condition("Succeeded", "False", "NonZeroExit")] });
    for (version, at_the_top, in_the_table) in [
        (1, "  as it is\n", "(as above)"),
        (2, "  the operator has not seen version 2 yet\n", "as it is"),
    ] {
        let run = a_run(&json!({ "contextVersion": version }), &failed);
        let page = of_run(&run, Ok(Vec::new()), "orc why shop-7");
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
    let page = of_run(&run, Err(denied), "orc why shop-7");
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
    let page = of_run(&run, Ok(Vec::new()), "orc why docsrun/guide");
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
    let tenant = a_tenant(1, &status);
    assert_eq!(
        PAGE.object(&tenant, None, "orc why tenant/acme").unwrap(),
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
    let page = of_run(&run, Ok(Vec::new()), "orc why shop-7");
    assert!(page.contains("○ Pending\n"), "{page}");
    assert!(
        page.contains("  waiting for the operator to look at it\n"),
        "{page}"
    );
    assert!(page.contains("no children yet"), "{page}");
    assert!(!page.contains("Timeline"), "{page}");
}

fn dynamic(kind: &'static KindRow, spec: serde_json::Value, status: serde_json::Value) -> Object {
    let object = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": kind.name(),
        "metadata": { "name": "one", "namespace": "team",
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
        "status": status,
    });
    Object::new(kind, serde_json::from_value(object).unwrap())
}

fn ready() -> serde_json::Value {
    json!({ "phase": "Ready", "message": "all is there",
        "conditions": [condition("Ready", "True", "Ready")] })
}

#[test]
fn an_agent_has_its_fields_on_one_page() {
    let spec = json!({ "image": "agent:1", "args": ["a", "b"] });
    let page = PAGE
        .object(&dynamic(&AGENT, spec, ready()), None, "")
        .unwrap();
    assert!(page.starts_with("Agent one  ✓ Ready\n  in namespace 'team', 60m old\n"));
    for part in [
        "\nAgent\n  Image:         agent:1\n  Arguments:     a b\n",
        "\nConditions\n",
    ] {
        assert!(page.contains(part), "{page}");
    }
}

#[test]
fn an_object_that_does_not_match_its_schema_is_shown() {
    let spec = json!({ "taskId": "seven", "agentName": "writer" });
    let status = json!({ "phase": 7, "conditions": "none" });
    let run = dynamic(&TASK_RUN, spec, status);
    let page = of_run(&run, Ok(Vec::new()), "orc why one");
    assert!(page.starts_with("TaskRun one  ○ Pending\n"), "{page}");
    for part in [
        "  its status cannot be decoded, so parts of it are missing\n  here\n",
        "  Task:          seven\n",
        "orc why one\n",
    ] {
        assert!(page.contains(part), "{page}");
    }
}

const WIDGET: KindRow = KindRow {
    resource: ResourceType::new("test", "v1", "Widget", "widgets"),
    ..AGENT
};

#[test]
fn a_kind_without_a_page_shows_its_spec() {
    let widget = dynamic(&WIDGET, json!({ "size": 3 }), ready());
    let page = PAGE.object(&widget, None, "").unwrap();
    assert!(page.contains("Widget one  ✓ Ready\n"), "{page}");
    assert!(page.contains("\nSpec\n  size: 3\n\nConditions\n"), "{page}");
    let new = dynamic(&WIDGET, json!({}), json!(null));
    let page = PAGE.object(&new, None, "").unwrap();
    assert!(page.contains("Widget one  ○ not ready\n"), "{page}");
    assert!(page.contains("  it has no status yet\n"), "{page}");
}
