//! Logs, files, explanations, Events and lists.

use std::{fs, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use api::tenants::Tenant;
use k8s_openapi::{
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use testkit::{
    faults::{
        point::{Fault, Injection, Point, Route},
        proxy::{KillTarget, Proxy},
    },
    layout, operator,
    suite::{Env, create},
    wait::{met, until},
};

use super::{
    attack_table::{Kind, withstood},
    client::{Answer, get, post},
    document::{self, document, is_stream, operation},
    fixture::{Options, Stage, new_run},
    scene::{BUSY, QUICK, Scene},
    schema,
};

const LIMIT: Duration = Duration::from_secs(90);

/// Lines as an attacker writes them: escape sequences of terminals, HTML, and bytes that are no UTF-8.
const HOSTILE: &str = r#"printf '\033[2J\033]0;owned\007<script>alert(1)</script>\r\n'
printf 'HTTP/1.1 200 OK\r\nset-cookie: a=b\r\n\r\n\377\376\000end\n'; sleep 1"#;

/// The log of a run in each state of its container.
pub(super) async fn logs(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("busy", BUSY, json!({})).await?;
    let mut body = new_run("busy", "busy");
    body["suspend"] = json!(true);
    scene.send(post(stage.taskruns(), &body)).await?.is(201)?;
    let log = scene.read("busy", "logs").await?;
    is_log(&log, "none", "")?;
    scene.changes("busy", "resume").await?;
    scene.bench.running("busy").await?;
    // The container runs a moment before its first line.
    until("the first line", LIMIT, async || {
        let log = scene.read("busy", "logs").await?;
        Ok(met(!log.body.is_empty(), || "nothing".to_owned()))
    })
    .await?;
    let log = scene.read("busy", "logs").await?;
    is_log(&log, "open", "started\n")?;
    let runs_only = json!([
        { "apiGroups": ["orchestrator.io"], "resources": ["taskruns"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
    ]);
    let rita = stage.caller("rita", runs_only).await?;
    let answer = stage.send(&rita, get(stage.at("busy", "logs"))).await?;
    let denied = answer.fails(403, "Denied")?;
    let detail = denied["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("pods/log"), "{detail}");
    scene.changes("busy", "cancel").await?;
    scene.bench.finished("busy", LIMIT).await?;
    until("the end of the container", LIMIT, async || {
        let log = scene.read("busy", "logs").await?;
        let state = log.header("orc-log-state").to_owned();
        Ok(met(state == "complete", || state.clone()))
    })
    .await?;
    let log = scene.read("busy", "logs").await?;
    is_log(&log, "complete", "started\n")?;
    let pods: Api<Pod> = stage.env.api();
    let (gone, all) = (DeleteParams::default(), ListParams::default());
    pods.delete_collection(&gone, &all).await?;
    until("the log to be lost", LIMIT, async || {
        let log = scene.read("busy", "logs").await?;
        let state = log.header("orc-log-state").to_owned();
        Ok(met(state == "lost", || state.clone()))
    })
    .await?;
    Ok("none, open, complete, lost; 403 without pods/log".to_owned())
}

fn is_log(log: &Answer, state: &str, text: &str) -> Result<()> {
    log.is(200)?;
    let (source, found) = (log.header("orc-log-source"), log.header("orc-log-state"));
    ensure!(
        source == "live" && found == state && log.text() == text,
        "{source}, {found}: '{}'",
        log.text()
    );
    Ok(())
}

/// Parameters of a log.
pub(super) async fn log_parameters(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let call = post(stage.taskruns(), &new_run("quick", "quick"));
    scene.send(call).await?.is(201)?;
    scene.bench.finished("quick", LIMIT).await?;
    let read = |query: &str| scene.send(get(format!("{}?{query}", stage.at("quick", "logs"))));
    is_log(&read("tail=1").await?, "complete", "second\n")?;
    is_log(
        &read("attempt=1&container=agent").await?,
        "complete",
        "first\nsecond\n",
    )?;
    is_log(&read("attempt=2").await?, "none", "")?;
    is_log(&read("from=2100-01-01T00:00:00Z").await?, "complete", "")?;
    let timed = read("timestamps=true&tail=1").await?;
    timed.is(200)?;
    let text = timed.text();
    let (time, line) = text.split_once(' ').context("no time")?;
    ensure!(
        line == "second\n" && time.parse::<api::Timestamp>().is_ok(),
        "'{text}'"
    );
    let wrong = [
        "tail=-1",
        "tail=99999999999999999999",
        "attempt=4294967296",
        "from=yesterday",
        "container=clone",
        "container=agent%0Aagent",
        "follow=yes",
        "timestamps=1",
        "previous=true",
    ];
    for query in wrong {
        let answer = read(query).await?;
        answer
            .fails(400, "InvalidRequest")
            .with_context(|| query.to_owned())?;
    }
    Ok(format!(
        "tail, from, attempt, timestamps; {} rejected",
        wrong.len()
    ))
}

/// More than a response may have, and lines that attack who reads them.
pub(super) async fn large_log(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    let script = "i=0; while [ $i -lt 9 ]; do head -c 1048575 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done; sleep 2";
    scene.bench.agent("large", script, json!({})).await?;
    scene.bench.agent("hostile", HOSTILE, json!({})).await?;
    for name in ["large", "hostile"] {
        let mut body = new_run(name, name);
        body["taskId"] = json!(name.len());
        scene.send(post(stage.taskruns(), &body)).await?.is(201)?;
    }
    scene.bench.finished("hostile", LIMIT).await?;
    let log = scene.read("hostile", "logs").await?;
    log.is(200)?;
    let (kind, bytes) = (log.header("content-type"), &log.body);
    let is_text = (kind == "text/plain; charset=utf-8").then_some(());
    let is_text = is_text.with_context(|| format!("it is '{kind}'"));
    withstood(Kind::Input, "a page in a line of a log", is_text)?;
    // The bytes themselves: a reader shows them as it needs.
    ensure!(
        bytes.starts_with(b"\x1b[2J") && bytes.ends_with(b"\xff\xfe\0end\n"),
        "{bytes:?}"
    );
    let is_line = log.headers.get("set-cookie").is_none().then_some(());
    let is_line = is_line.context("a line is a header");
    withstood(Kind::Input, "a response in a line of a log", is_line)?;
    scene.bench.finished("large", LIMIT).await?;
    let log = scene.read("large", "logs").await?;
    log.is(200)?;
    let (state, size) = (log.header("orc-log-state"), log.body.len());
    ensure!(
        state == "gap" && size == 8 * 1024 * 1024,
        "{state}, {size} bytes"
    );
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    ensure!(memory < 256.0, "the gateway had {memory:.0} MiB");
    Ok(format!(
        "8 of 9 MiB with the state 'gap'; {memory:.0} MiB of memory"
    ))
}

/// Files of a run.
pub(super) async fn files(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let mut body = new_run("shop", "writer");
    let page = "<script>alert(1)</script>\u{202e}";
    body["files"] = json!([
        { "filename": "page.html", "content": page },
        { "filename": "empty.md", "content": "" },
    ]);
    stage
        .send(&ann, post(stage.taskruns(), &body))
        .await?
        .is(201)?;
    let listed = stage
        .send(&ann, get(stage.at("shop", "files")))
        .await?
        .is(200)?;
    let wanted = json!({ "version": 1, "files": [
        { "filename": "page.html", "bytes": page.len() },
        { "filename": "empty.md", "bytes": 0 },
    ] });
    ensure!(listed == wanted, "{listed}");
    let read = |name: &str| stage.send(&ann, get(stage.at("shop", &format!("files/{name}"))));
    let file = read("page.html").await?;
    file.is(200)?;
    let kind = file.header("content-type");
    ensure!(
        file.body == page.as_bytes() && kind == "text/plain; charset=utf-8",
        "{kind}: {}",
        file.text()
    );
    read("empty.md").await?.is(200)?;
    read("missing.md").await?.fails(404, "NotFound")?;
    let name = "a".repeat(254);
    for wrong in [
        "..",
        ".hidden",
        "%2e%2e",
        "a%2fb",
        "a%00",
        "-x",
        name.as_str(),
    ] {
        let rejected = read(wrong).await?.fails(400, "InvalidRequest");
        withstood(
            Kind::Input,
            &format!("a read of the file '{wrong:.20}'"),
            rejected,
        )?;
    }
    Ok("as text, also HTML".to_owned())
}

/// Explanations of a run.
pub(super) async fn why(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    let path = layout::repository().join("docs/reference/why.schema.json");
    let known: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let call = post(stage.taskruns(), &new_run("orphan", "missing"));
    scene.send(call).await?.is(201)?;
    scene.bench.says("orphan", "AgentNotFound").await?;
    let body = explained(scene, &known, "orphan").await?;
    let blocker = &body["blocker"]["object"];
    ensure!(
        blocker["kind"] == "Agent" && blocker["name"] == "missing",
        "{body}"
    );
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let mut quick = new_run("quick", "quick");
    quick["taskId"] = json!(8);
    scene.send(post(stage.taskruns(), &quick)).await?.is(201)?;
    scene.bench.finished("quick", LIMIT).await?;
    let body = explained(scene, &known, "quick").await?;
    ensure!(body["blocker"].is_null(), "{body}");
    let answer = scene.read("nothing", "why").await?;
    answer.fails(404, "NotFound")?;
    // A caller that may read nothing else gets an explanation that says so.
    let runs_only = json!([
        { "apiGroups": ["orchestrator.io"], "resources": ["taskruns"], "verbs": ["get"] },
    ]);
    let rita = stage.caller("rita", runs_only).await?;
    let answer = stage.send(&rita, get(stage.at("quick", "why"))).await?;
    let body = answer.is(200)?;
    ensure!(!body["notes"].is_null(), "nothing is said: {body}");
    Ok("with the schema of 'orc why'; the missing Agent is named".to_owned())
}

/// Reads an explanation, which must have the schema of `orc why`.
async fn explained(scene: &Scene, known: &Value, name: &str) -> Result<Value> {
    let body = scene.read(name, "why").await?.is(200)?;
    let found = schema::check(known, known, &body);
    found.map_err(|mismatch| anyhow!("{name}: {}", mismatch.text()))?;
    ensure!(body["subject"]["name"] == name, "{body}");
    Ok(body)
}

/// Events of a run and of its Pods.
pub(super) async fn events(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let call = post(stage.taskruns(), &new_run("quick", "quick"));
    scene.send(call).await?.is(201)?;
    scene.bench.finished("quick", LIMIT).await?;
    let kinds = ["TaskRun", "Pod"];
    let body = until("Events of the run and of its Pod", LIMIT, async || {
        let body = scene.read("quick", "events").await?.is(200)?;
        let text = body.to_string();
        let has_all = kinds
            .iter()
            .all(|kind| text.contains(&format!(r#""kind":"{kind}""#)));
        Ok(if has_all { Ok(body) } else { Err(text) })
    })
    .await?;
    let events = body["events"].as_array().context("no list")?;
    let times: Vec<&str> = events
        .iter()
        .map(|event| event["time"].as_str().unwrap_or_default())
        .collect();
    ensure!(times.is_sorted(), "not sorted: {times:?}");
    let of_run = events
        .iter()
        .filter(|event| event["object"]["kind"] == "TaskRun");
    let reasons: Vec<&Value> = of_run.map(|event| &event["reason"]).collect();
    ensure!(
        reasons.iter().any(|reason| **reason == "Succeeded"),
        "{reasons:?}"
    );
    scene
        .read("nothing", "events")
        .await?
        .fails(404, "NotFound")?;
    Ok(format!("{} Events, sorted by time", events.len()))
}

/// Pages of a list, and positions that are not valid.
pub(super) async fn pages(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    for number in 0..7 {
        let agent = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
            "metadata": { "name": format!("agent-{number}") }, "spec": { "image": "busybox" },
        });
        stage.env.create::<api::tasks::Agent>(agent).await?;
    }
    let path = format!("/api/v1/agents?namespace={}", stage.env.namespace);
    let mut names = Vec::new();
    let mut next = format!("{path}&limit=3");
    let first = loop {
        let body = stage.send(&ann, get(next.clone())).await?.is(200)?;
        let items = body["items"].as_array().context("no list")?;
        ensure!(items.len() <= 3, "{} items", items.len());
        for item in items {
            let name = item["metadata"]["name"].as_str();
            names.push(name.context("no name")?.to_owned());
        }
        match body["cursor"].as_str() {
            Some(cursor) => next = format!("{path}&limit=3&cursor={cursor}"),
            None => break names.len(),
        }
    };
    let wanted: Vec<String> = (0..7).map(|number| format!("agent-{number}")).collect();
    ensure!(first == 7 && names == wanted, "{names:?}");
    let long = "x".repeat(4000);
    let wrong = [
        "limit=0".to_owned(),
        "limit=101".to_owned(),
        "limit=-1".to_owned(),
        "cursor=".to_owned(),
        "cursor=x".to_owned(),
        "cursor=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi8ifQ".to_owned(),
        format!("cursor={long}"),
        "cursor=a&cursor=b".to_owned(),
        "labelSelector=a".to_owned(),
        "fieldSelector=metadata.name%3Dx".to_owned(),
        "watch=true".to_owned(),
        "resourceVersion=0".to_owned(),
        "namespace=..".to_owned(),
        "namespace=a%2Fb".to_owned(),
        "namespace=A".to_owned(),
    ];
    for query in &wrong {
        // A namespace in the query replaces that of the path.
        let path = match query.starts_with("namespace") {
            true => format!("/api/v1/agents?{query}"),
            false => format!("{path}&{query}"),
        };
        let answer = stage.send(&ann, get(path)).await?;
        // A name of 4,000 letters does not fit the table.
        let name: String = query.chars().take(40).collect();
        withstood(Kind::Input, &name, answer.fails(400, "InvalidRequest"))?;
    }
    Ok(format!("7 items on pages of 3; rejected: {}", wrong.len()))
}

/// A position that the API server keeps no longer.
pub(super) async fn expired_cursor(env: Env) -> Result<String> {
    let expired = Injection::Request {
        point: Point {
            route: Route::new("list", "agents"),
            name: String::new(),
            nth: 2,
        },
        fault: Fault::Refused(410),
        times: 1,
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let target = KillTarget::default();
    let proxy = Proxy::start(listener, &env.config, target, vec![expired]).await?;
    let options = Options {
        endpoint: Some(proxy.endpoint().clone()),
        ..Options::default()
    };
    let stage = Stage::with(env, options).await?;
    let ann = stage.editor("ann").await?;
    let path = format!("/api/v1/agents?namespace={}", stage.env.namespace);
    stage.send(&ann, get(path.clone())).await?.is(200)?;
    let answer = stage.send(&ann, get(format!("{path}&cursor=abc"))).await?;
    let body = answer.fails(400, "InvalidRequest")?;
    let detail = body["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("has expired; start again"), "{detail}");
    stage.send(&ann, get(path)).await?.is(200)?;
    ensure!(proxy.hits() == [true], "the position did not expire");
    stage.done().await?;
    Ok("400: start again".to_owned())
}

/// Objects of the cluster: namespaces, and Tenants before and after their CRD exists.
pub(super) async fn cluster_objects(env: Env) -> Result<String> {
    let stage = Stage::new(env).await?;
    let rules = json!([
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "get"] },
        { "apiGroups": ["orchestrator.io"], "resources": ["tenants"], "verbs": ["list", "get"] },
    ]);
    let rita = stage.cluster_caller("rita", rules).await?;
    let page = stage
        .send(&rita, get("/api/v1/namespaces?limit=1"))
        .await?
        .is(200)?;
    ensure!(
        page["items"][0]["kind"] == "Namespace" && page["cursor"].is_string(),
        "{page}"
    );
    let tenants = "/api/v1/tenants";
    let crds: Api<CustomResourceDefinition> = Api::all(stage.env.client.clone());
    let is_new = crds.get_opt("tenants.orchestrator.io").await?.is_none();
    if is_new {
        let answer = stage.send(&rita, get(tenants)).await?;
        answer.fails(404, "Unknown")?;
    }
    operator::install(&stage.env.client, api::tenants::OPERATOR.crds()).await?;
    stage.send(&rita, get(tenants)).await?.is(200)?;
    let name = format!("acme-{}", stage.env.namespace);
    let tenant = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
        "metadata": { "name": name }, "spec": { "deletion": { "policy": "Delete" } },
    });
    let all: Api<Tenant> = Api::all(stage.env.client.clone());
    for part in ["", "/why"] {
        let path = format!("{tenants}/{name}{part}");
        let answer = stage.send(&rita, get(path)).await?;
        answer.fails(404, "NotFound")?;
    }
    create(&all, tenant).await?;
    let found = stage.send(&rita, get(format!("{tenants}/{name}")));
    let found = found.await?.is(200)?;
    ensure!(found["kind"] == "Tenant", "{found}");
    let why = stage.send(&rita, get(format!("{tenants}/{name}/why")));
    let why = why.await?.is(200)?;
    ensure!(why["target"]["name"] == name, "{why}");
    // No operator has seen it, so it has no finalizer.
    all.delete(&name, &DeleteParams::default()).await?;
    let denied = stage.viewer("vic").await?;
    stage
        .send(&denied, get(tenants))
        .await?
        .fails(403, "Denied")?;
    stage.done().await?;
    Ok("404 without the CRD, 200 with it, 403 without permission".to_owned())
}

/// Parts that are not installed, and the document itself.
pub(super) async fn documented(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let record = stage.at("shop", "record");
    for path in ["/api/v1/archive".to_owned(), record] {
        let answer = stage.send(&ann, get(path)).await?;
        let body = answer.fails(404, "NotInstalled")?;
        let detail = body["detail"].as_str().unwrap_or_default();
        ensure!(detail.contains("the archive is not installed"), "{detail}");
    }
    let answer = stage.send_anonymous(get("/api/v1/openapi.json")).await?;
    let served = answer.is(200)?;
    let mut known = document()?.clone();
    known
        .as_object_mut()
        .context("no object")?
        .remove("x-generated");
    ensure!(
        served == known,
        "the file is another one: run 'cargo xtask generate'"
    );
    let paths = known["paths"].as_object().context("no paths")?;
    let mut count = 0;
    for path in paths.keys() {
        let place = path
            .replace("{namespace}", &stage.env.namespace)
            .replace("{kind}", "taskruns")
            .replace("{filename}", "a.md")
            .replace("{id}", "7")
            .replace("{name}", "missing");
        for (method, call) in [
            ("GET", get(place.clone())),
            ("POST", post(place.clone(), &json!({}))),
        ] {
            // Streams have cases of their own.
            if operation(&known, method, &place).is_none_or(is_stream) {
                continue;
            }
            count += 1;
            let answer = stage.send(&ann, call).await?;
            let text = answer.text();
            ensure!(
                answer.status != 405 && !text.contains("this address does not exist"),
                "{method} {place}: {text}"
            );
        }
    }
    Ok(format!("{count} documented operations are served"))
}

/// After all other cases: they had each documented reason, and each operation succeeded once.
pub(super) async fn all_responses(_env: Env) -> Result<String> {
    let (document, seen) = (document()?, document::seen());
    let reasons = &document["components"]["schemas"]["Problem"]["properties"]["reason"]["enum"];
    let reasons = reasons.as_array().context("no reasons")?;
    let mut missing: Vec<String> = Vec::new();
    for reason in reasons {
        let reason = reason.as_str().unwrap_or_default();
        if !seen.contains(reason) {
            missing.push(reason.to_owned());
        }
    }
    let paths = document["paths"].as_object().context("no paths")?;
    // The archive does not exist yet.
    let served = paths
        .iter()
        .filter(|(path, _)| !path.ends_with("/archive") && !path.ends_with("/record"));
    let operations = served.flat_map(|(_, item)| ["get", "post", "delete"].map(|verb| &item[verb]));
    let mut count = 0;
    for operation in operations.filter(|operation| !operation.is_null()) {
        count += 1;
        let id = operation["operationId"].as_str().unwrap_or_default();
        let responses = operation["responses"].as_object().context("no responses")?;
        let mut successes = responses.keys().filter(|status| status.starts_with('2'));
        if !successes.any(|status| seen.contains(&format!("{id} {status}"))) {
            missing.push(format!("a success of {id}"));
        }
    }
    ensure!(
        missing.is_empty(),
        "no response had: {}",
        missing.join(", ")
    );
    Ok(format!(
        "{} reasons, {count} operations, {} kinds of responses",
        reasons.len(),
        seen.len()
    ))
}
