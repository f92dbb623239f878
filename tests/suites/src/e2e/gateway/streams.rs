//! Streams of runs, of one run and of logs, cut and resumed.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{Api, api::DeleteParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    faults::point::{Injection, WatchFault},
    suite::Env,
    wait::until,
};

use super::{
    attack_table::{Kind, withstood},
    client::{Call, Https, delete, get, post},
    fixture::{Caller, Stage, new_run},
    races::behind_proxy,
    scene::{QUICK, Scene},
    sse::{Event, EventStream, Known},
};

/// For a run to start or to end.
const LIMIT: Duration = Duration::from_secs(90);

impl Stage {
    /// Returns the request for the stream of the TaskRuns of the case.
    fn stream_call(&self, caller: &Caller) -> Call {
        let namespace = &self.env.namespace;
        let path = format!("/api/v1/runs/stream?namespace={namespace}&kind=taskruns");
        get(path).by(&caller.token)
    }

    async fn stream(&self, caller: &Caller, last_id: &str) -> Result<EventStream> {
        self.stream_at(&self.gateway.https, caller, last_id).await
    }

    async fn stream_at(&self, at: &Https, caller: &Caller, last_id: &str) -> Result<EventStream> {
        let call = self.stream_call(caller);
        let call = match last_id {
            "" => call,
            _ => call.with("last-event-id", last_id),
        };
        EventStream::open(at, &call).await
    }

    async fn add(&self, caller: &Caller, name: &str) -> Result<()> {
        let call = post(self.taskruns(), &new_run(name, "writer"));
        self.send(caller, call).await?.is(201)?;
        Ok(())
    }

    async fn remove(&self, caller: &Caller, name: &str) -> Result<()> {
        self.send(caller, delete(self.at(name, "")))
            .await?
            .is(202)?;
        Ok(())
    }
}

fn is_live(event: &Event) -> bool {
    event.name == "live"
}

/// Returns whether an event is about the run of this name.
fn is_about(name: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.data["name"] == name
}

/// Runs that exist, are created, change and are deleted.
pub(super) async fn runs(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.add(&ann, "first").await?;
    let mut stream = stage.stream(&ann, "").await?;
    let mut known = Known::default();
    known.apply_all(&stream.until(is_live).await?)?;
    ensure!(known.names() == ["first"], "{:?}", known.names());
    stage.add(&ann, "second").await?;
    known.apply_all(&stream.until(is_about("second")).await?)?;
    let added = json!({ "files": [{ "content": "x" }] });
    let call = post(stage.at("first", "context"), &added);
    stage.send(&ann, call).await?.is(201)?;
    let changed = stream.until(is_about("first")).await?;
    known.apply_all(&changed)?;
    let row = &known.runs["first"];
    ensure!(row["version"] == 2 && row["kind"] == "TaskRun", "{row}");
    ensure!(!row.to_string().contains("Do it."), "it has files: {row}");
    stage.remove(&ann, "second").await?;
    known.apply_all(&stream.until(is_about("second")).await?)?;
    ensure!(known.names() == ["first"], "{:?}", known.names());
    let counts = (known.changes["first"], known.changes["second"]);
    ensure!(counts == (1, 2), "{counts:?} changes instead of 1 and 2");
    Ok("snapshot, live, put, delete; each change once".to_owned())
}

/// Cuts a stream, changes runs, and resumes at this gateway. Returns the events until the last change.
async fn resumed(stage: &Stage, at: &Https, ann: &Caller, cut: EventStream) -> Result<Vec<Event>> {
    let last_id = cut.last_id.clone();
    ensure!(!last_id.is_empty(), "no position to resume from");
    drop(cut);
    stage.add(ann, "third").await?;
    stage.remove(ann, "first").await?;
    let mut stream = stage.stream_at(at, ann, &last_id).await?;
    let mut events = stream.until(is_about("first")).await?;
    stage.add(ann, "fourth").await?;
    events.extend(stream.until(is_about("fourth")).await?);
    Ok(events)
}

/// A stream with two runs that is live.
async fn two_runs(stage: &Stage, ann: &Caller) -> Result<(EventStream, Known)> {
    stage.add(ann, "first").await?;
    stage.add(ann, "second").await?;
    let mut stream = stage.stream(ann, "").await?;
    let mut known = Known::default();
    known.apply_all(&stream.until(is_live).await?)?;
    ensure!(known.names() == ["first", "second"], "{:?}", known.names());
    Ok((stream, known))
}

/// The client knows the runs of the cluster, and got no change twice.
fn has_all(known: &Known) -> Result<()> {
    let names = known.names();
    ensure!(names == ["fourth", "second", "third"], "{names:?}");
    has_no_change_twice(known)
}

/// The client got no change twice.
fn has_no_change_twice(known: &Known) -> Result<()> {
    let twice = known.changes.iter().find(|(_, count)| **count > 1);
    ensure!(twice.is_none(), "{twice:?} came twice");
    Ok(())
}

/// A cut connection: the stream goes on after the last event.
pub(super) async fn cut(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let (stream, mut known) = two_runs(stage, &ann).await?;
    let events = resumed(stage, &stage.gateway.https, &ann, stream).await?;
    known.apply_all(&events)?;
    has_all(&known)?;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    ensure!(names == ["put", "delete", "put"], "{names:?}");
    Ok("resumed without a snapshot; each change once".to_owned())
}

/// A gateway that was restarted, and another replica: the position is valid there.
pub(super) async fn restarted(env: Env) -> Result<String> {
    let mut stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    let (stream, mut known) = two_runs(&stage, &ann).await?;
    let last_id = stream.last_id.clone();
    drop(stream);
    stage.restart().await?;
    // The client was connected meanwhile, and has this position.
    let mut stream = stage.stream(&ann, &last_id).await?;
    stage.add(&ann, "between").await?;
    known.apply_all(&stream.until(is_about("between")).await?)?;
    stage.remove(&ann, "between").await?;
    known.apply_all(&stream.until(is_about("between")).await?)?;
    known.changes.clear();
    let other = stage.replica().await?;
    let events = resumed(&stage, &other.https, &ann, stream).await?;
    known.apply_all(&events)?;
    has_all(&known)?;
    other.operator.stop().await?;
    stage.done().await?;
    Ok("no change missed and none twice after a restart and at another replica".to_owned())
}

/// The watch at the API server ends, and the next one is answered with 410.
pub(super) async fn gone(env: Env) -> Result<String> {
    let mut seen = Vec::new();
    for fault in [WatchFault::Gone(1), WatchFault::Cut(1)] {
        let script = vec![Injection::Watch {
            resource: "taskruns".to_owned(),
            fault,
        }];
        let (stage, proxy) = behind_proxy(env.clone(), script).await?;
        let name = format!("ann-{fault}");
        let ann = stage.editor(&name).await?;
        let mut stream = stage.stream(&ann, "").await?;
        let mut known = Known::default();
        known.apply_all(&stream.until(is_live).await?)?;
        for name in ["first", "second", "third"] {
            stage.add(&ann, name).await?;
        }
        // After a `resync`, they come in a snapshot.
        while known.names() != ["first", "second", "third"] {
            let event = stream.next().await?.context("the stream ended")?;
            known.apply(&event)?;
        }
        ensure!(proxy.hits() == [true], "{fault} did not happen");
        has_no_change_twice(&known)?;
        known.changes.clear();
        for name in ["first", "second", "third"] {
            stage.remove(&ann, name).await?;
        }
        while !known.names().is_empty() {
            let event = stream.next().await?.context("the stream ended")?;
            known.apply(&event)?;
        }
        has_no_change_twice(&known)?;
        drop(stream);
        stage.done().await?;
        seen.push(fault.to_string());
    }
    Ok(format!(
        "no run missed and none twice after {}",
        seen.join(" and ")
    ))
}

/// Positions that are not valid: the client has to load everything again.
pub(super) async fn wrong_positions(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.add(&ann, "first").await?;
    let positions = ["x", "-1", "1-2-3", "99999999999999999999", "../../x"];
    for position in positions {
        let mut stream = stage.stream(&ann, position).await?;
        let events = stream.until(is_live).await?;
        let mut known = Known::default();
        known.apply_all(&events)?;
        withstood(
            Kind::Input,
            position,
            (known.names() == ["first"])
                .then_some(())
                .context("no snapshot"),
        )?;
        ensure!(events[0].name == "resync", "'{position}': {events:?}");
    }
    Ok(format!(
        "resync and a snapshot for {} positions",
        positions.len()
    ))
}

/// One run, from its submission to its end.
pub(super) async fn one_run(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let call = post(stage.taskruns(), &new_run("quick", "quick"));
    scene.send(call).await?.is(201)?;
    let call = get(stage.at("quick", "stream")).by(&scene.ann.token);
    let mut stream = EventStream::open(&stage.gateway.https, &call).await?;
    let is_part = |event: &Event, part: &str| event.name == "put" && event.data["part"] == part;
    let has_ended = |event: &Event| {
        is_part(event, "run")
            && event.data["value"]
                .to_string()
                .contains(r#""phase":"Succeeded""#)
    };
    let (mut parts, mut count, mut is_over) = (BTreeSet::new(), 0, false);
    while !is_over || parts.len() < 4 {
        let event = stream.next().await?.context("the stream ended")?;
        is_over |= has_ended(&event);
        parts.extend(event.data["part"].as_str().map(str::to_owned));
        count += 1;
    }
    let wanted = ["events", "pods", "run", "why"].map(str::to_owned);
    ensure!(parts == BTreeSet::from(wanted), "{parts:?}");
    Ok(format!("{count} events until its end"))
}

/// A log that is followed, as text and as events, and resumed.
pub(super) async fn log(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    let script =
        "trap 'exit 143' TERM; for i in 1 2 3; do echo line $i; sleep 1; done; sleep 300 & wait";
    scene.bench.agent("busy", script, json!({})).await?;
    let call = post(stage.taskruns(), &new_run("busy", "busy"));
    scene.send(call).await?.is(201)?;
    scene.bench.running("busy").await?;
    let https = &stage.gateway.https;
    let path = format!("{}?follow=true", stage.at("busy", "logs"));
    let follow = get(path).by(&scene.ann.token);
    let mut plain = EventStream::open(https, &follow).await?;
    let state = plain.head.header("orc-log-state");
    ensure!(state == "open", "the log is '{state}'");
    let as_events = follow.clone().with("accept", "text/event-stream");
    let mut first = EventStream::open(https, &as_events).await?;
    let text = |wanted: &'static str| move |event: &Event| event.data["text"] == wanted;
    first.until(text("line 1")).await?;
    let resume = as_events.with("last-event-id", first.last_id.clone());
    drop(first);
    let mut second = EventStream::open(https, &resume).await?;
    let lines = second.until(text("line 3")).await?;
    let lines: Vec<&Value> = lines.iter().map(|event| &event.data["text"]).collect();
    ensure!(lines == ["line 2", "line 3"], "{lines:?}");
    scene.changes("busy", "cancel").await?;
    while plain.more().await? {}
    let log = plain.plain();
    ensure!(log == "line 1\nline 2\nline 3\n", "'{log}'");
    let end = second.until(|event| event.name == "end").await?;
    ensure!(end.len() == 1, "{end:?}");
    scene.bench.finished("busy", LIMIT).await?;
    Ok("followed to its end; resumed without a line twice".to_owned())
}

/// More streams than a caller may have, and streams that share a watch.
pub(super) async fn limits(env: Env) -> Result<String> {
    let audit = env.testbed("the audit log")?.audit();
    let stage = Stage::new(env.clone()).await?;
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    let mark = audit.mark(&env.client).await?;
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = stage.stream(&ann, "").await?;
        stream.until(is_live).await?;
        open.push(stream);
    }
    let ninth = stage.gateway.https.send(stage.stream_call(&ann)).await?;
    withstood(
        Kind::Flood,
        "a ninth stream",
        ninth.fails(429, "TooManyRequests"),
    )?;
    drop(stage.stream(&bob, "").await?);
    let entries = audit.entries(&env.client, mark).await?;
    let watches = entries.iter().filter(|entry| {
        let request = &entry.request;
        request.user == ann.user && request.verb == "watch"
    });
    let watches = watches.count();
    ensure!(
        watches == 1,
        "{watches} watches for 8 streams of one caller"
    );
    open.pop();
    until("a place for another stream", LIMIT, async || {
        Ok(match stage.stream(&ann, "").await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:#}")),
        })
    })
    .await?;
    drop(open);
    stage.done().await?;
    Ok("8 streams, one watch; 429 for the ninth".to_owned())
}

/// A permission that is removed, and a server that stops, end a stream with a reason.
pub(super) async fn ended(env: Env) -> Result<String> {
    let mut stage = Stage::new(env).await?;
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    let mut stream = stage.stream(&ann, "").await?;
    stream.until(is_live).await?;
    let bindings: Api<RoleBinding> = stage.env.api();
    bindings.delete("ann", &DeleteParams::default()).await?;
    let end = stream.until(|event| event.name == "end").await?;
    let end = end.last().context("no event")?;
    let is_denied = (end.data["reason"] == "Denied").then_some(());
    withstood(
        Kind::Permission,
        "a stream after its permission was removed",
        is_denied.context(end.data.clone()),
    )?;

    let mut stream = stage.stream(&bob, "").await?;
    stream.until(is_live).await?;
    stage.gateway.operator.signal(Signal::SIGTERM)?;
    let end = stream.until(|event| event.name == "end").await?;
    let end = end.last().context("no event")?;
    ensure!(end.data["reason"] == "Closing", "{}", end.data);
    drop(stream);
    let next = stage.replica().await?;
    stage.gateway = next;
    stage.done().await?;
    Ok("'Denied' after the permission was removed, 'Closing' after SIGTERM".to_owned())
}

/// The list of runs with its filters, and differences of files.
pub(super) async fn list(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("quick", QUICK, json!({})).await?;
    for (name, task) in [("alpha", 1), ("beta", 2)] {
        let mut body = new_run(name, "quick");
        body["taskId"] = json!(task);
        scene.send(post(stage.taskruns(), &body)).await?.is(201)?;
    }
    for name in ["alpha", "beta"] {
        scene.bench.finished(name, LIMIT).await?;
    }
    let path = format!("/api/v1/runs?namespace={}", stage.env.namespace);
    let filters: Vec<(&str, &[&str])> = vec![
        ("", &["beta", "alpha"]),
        ("&service=alpha", &["alpha"]),
        ("&taskId=2", &["beta"]),
        ("&name=alpha", &["alpha"]),
        ("&phase=Succeeded&agent=quick", &["beta", "alpha"]),
        ("&phase=Failed", &[]),
        ("&reason=Succeeded", &["beta", "alpha"]),
        ("&from=2100-01-01T00:00:00Z", &[]),
        ("&to=2100-01-01T00:00:00Z", &["beta", "alpha"]),
        ("&minDuration=1h", &[]),
        ("&kind=docsruns", &[]),
    ];
    for (query, wanted) in filters {
        let (mut found, _) = list_of(scene, &format!("{path}{query}")).await?;
        let mut wanted = wanted.to_vec();
        // Runs of one second have no order.
        found.sort_unstable();
        wanted.sort_unstable();
        ensure!(found == wanted, "'{query}': {found:?}");
    }
    let (first, cursor) = list_of(scene, &format!("{path}&limit=1")).await?;
    let next = format!("{path}&limit=1&cursor={}", cursor.context("no cursor")?);
    let (second, _) = list_of(scene, &next).await?;
    ensure!(
        first.len() == 1 && second.len() == 1 && first != second,
        "{first:?} {second:?}"
    );
    for query in [
        "&phase=",
        "&taskId=x",
        "&from=now",
        "&minDuration=-1",
        "&kind=pods",
        "&limit=1001",
        "&cursor=x",
        "&labelSelector=a",
        "&name=..",
        "&source=archive",
    ] {
        let answer = scene.send(get(format!("{path}{query}"))).await?;
        let is_rejected = [400, 404].contains(&answer.status).then_some(());
        withstood(
            Kind::Input,
            query,
            is_rejected.with_context(|| answer.text()),
        )?;
    }
    let added = json!({ "files": [{ "filename": "more.md", "content": "one\ntwo\n" }] });
    let call = post(stage.at("alpha", "context"), &added);
    scene.send(call).await?.is(201)?;
    let same = scene.read("alpha", "diff?from=2&to=2").await?.is(200)?;
    ensure!(same["files"] == json!([]), "{same}");
    // The ConfigMap of version 1 may be deleted already.
    let diff = scene.read("alpha", "diff?from=1&to=2").await?;
    if diff.status == 404 {
        diff.fails(404, "NotInstalled")?;
    } else {
        let body = diff.is(200)?;
        let files = body["files"].as_array().context("no files")?;
        let is_added = files.len() == 1 && files[0]["filename"] == "more.md";
        ensure!(is_added, "{body}");
    }
    let answer = scene.read("alpha", "diff?from=1&to=9").await?;
    answer.fails(404, "NotFound")?;
    let answer = scene.read("alpha", "diff?from=1").await?;
    answer.fails(400, "InvalidRequest")?;
    scene.act("alpha", "cancel").await?;
    Ok("11 filters, pages, and differences".to_owned())
}

/// Returns the names of a page, and its cursor.
async fn list_of(scene: &Scene, path: &str) -> Result<(Vec<String>, Option<String>)> {
    let body = scene.send(get(path)).await?.is(200)?;
    let items = body["items"].as_array().context("no list")?;
    let names = items
        .iter()
        .map(|item| item["name"].as_str().unwrap_or_default().to_owned());
    let cursor = body["cursor"].as_str().map(str::to_owned);
    Ok((names.collect(), cursor))
}
