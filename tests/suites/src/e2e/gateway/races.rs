//! Requests at the same time, and requests that are repeated.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::{names, tasks::DocsRun};
use futures::future::join_all;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use testkit::{
    faults::{
        point::{Fault, Injection, Point, Route},
        proxy::{KillTarget, Proxy},
    },
    suite::Env,
};

use super::{
    client::{Answer, Call, delete, get, post},
    fixture::{Caller, Options, Stage, TASKS, context, context_of, files_of, new_run, task},
};

/// Submissions whose responses are lost.
const LOST: i64 = 200;

/// Callers that share them. Each may send 60 requests at once.
const CALLERS: i64 = 5;

const KEY: &str = "idempotency-key";

/// Sends the same request so often at the same time, and counts the status codes.
async fn at_once(stage: &Stage, caller: &Caller, call: &Call, count: usize) -> Result<Vec<Answer>> {
    let all = (0..count).map(|_| stage.send(caller, call.clone()));
    join_all(all).await.into_iter().collect()
}

fn count(answers: &[Answer], status: u16) -> usize {
    let of_status = |answer: &&Answer| answer.status == status;
    answers.iter().filter(of_status).count()
}

/// 50 submissions of one task at the same time.
pub(super) async fn submits(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let answers = at_once(stage, &ann, &post(TASKS, &task(7)), 50).await?;
    let (won, lost) = (count(&answers, 200), count(&answers, 409));
    ensure!(
        (won, lost) == (1, 49),
        "R21: {won} times 200, {lost} times 409"
    );
    stage.has_runs(1).await?;
    Ok("one 200, 49 times 409, one run".to_owned())
}

/// 20 additions of one version at the same time.
pub(super) async fn contexts(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    stage
        .send(&ann, post(context_of(7), &context(2)))
        .await?
        .is(200)?;
    let third = post(context_of(7), &context(3));
    let answers = at_once(stage, &ann, &third, 20).await?;
    let (won, lost) = (count(&answers, 200), count(&answers, 409));
    ensure!(
        (won, lost) == (1, 19),
        "R15: {won} times 200, {lost} times 409"
    );
    for answer in answers.iter().filter(|answer| answer.status == 409) {
        let body = answer.refuses(409, "version 3")?;
        ensure!(body["data"] == json!({ "current": 3 }), "{body}");
    }
    let run = stage.run("task-7").await?;
    let files = files_of(&run);
    ensure!(
        files == ["context-v2.md", "context-v3.md", "task.md"] && run.spec.context_version == 3,
        "R15: {files:?}"
    );
    Ok("one 200, 19 times 409, no file lost".to_owned())
}

/// 20 additions without an expected version, each with a file of its own: some may be told to repeat, none is lost.
pub(super) async fn free_contexts(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let path = stage.at("task-7", "context");
    let all = (0..20).map(|number| {
        let file = json!({ "filename": format!("note-{number}.md"), "content": "x" });
        stage.send(&ann, post(path.clone(), &json!({ "files": [file] })))
    });
    let mut added = vec!["task.md".to_owned()];
    for (number, answer) in join_all(all).await.into_iter().enumerate() {
        let answer = answer?;
        match answer.status {
            201 => added.push(format!("note-{number}.md")),
            // Another writer made the version, or the run changed during each try.
            _ => {
                let body = answer.is(409)?;
                let reason = body["reason"].as_str().unwrap_or_default();
                ensure!(["Conflict", "Busy"].contains(&reason), "{body}");
            }
        }
    }
    added.sort_unstable();
    let run = stage.run("task-7").await?;
    ensure!(
        added.len() > 1 && files_of(&run) == added,
        "201 for {added:?}, stored {:?}",
        files_of(&run)
    );
    let version = usize::try_from(run.spec.context_version)?;
    ensure!(version == added.len(), "version {version}");
    Ok(format!(
        "{} of 20 added, each in a version",
        added.len() - 1
    ))
}

/// 200 submissions with a key whose responses are lost, each of them repeated.
pub(super) async fn lost_submits(env: Env) -> Result<String> {
    // By name: the repetition of a submission must get its response.
    let lost = (1..=LOST).map(|id| Injection::Request {
        point: Point {
            route: Route::new("create", "taskruns"),
            name: format!("task-{id}"),
            nth: 1,
        },
        fault: Fault::LostByReset,
        times: 1,
    });
    let (stage, proxy) = behind_proxy(env, lost.collect()).await?;
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        callers.push(stage.editor(&format!("caller-{number}")).await?);
    }
    let all = callers.iter().zip(0..).map(|(caller, offset)| {
        let ids = (0..LOST / CALLERS).map(move |number| 1 + offset + number * CALLERS);
        submit_each(&stage, caller, ids)
    });
    let outcome: Result<Vec<()>> = join_all(all).await.into_iter().collect();
    outcome?;
    let found = stage.runs().list(&ListParams::default()).await?.items;
    let ids: BTreeSet<i64> = found.iter().map(|run| run.spec.task_id).collect();
    let wanted = usize::try_from(LOST)?;
    ensure!(
        found.len() == wanted && ids.len() == wanted,
        "{} runs of {} tasks",
        found.len(),
        ids.len()
    );
    let is_lost = |one: &testkit::faults::proxy::Traced| one.fault == Some(Fault::LostByReset);
    let hits = proxy.trace().iter().filter(|one| is_lost(one)).count();
    ensure!(hits == wanted, "{hits} responses were lost");
    stage.done().await?;
    Ok(format!("{LOST} lost responses, {LOST} runs"))
}

/// Starts a gateway that reaches the API server through a proxy with this script.
pub(super) async fn behind_proxy(env: Env, script: Vec<Injection>) -> Result<(Stage, Proxy)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(listener, &env.config, KillTarget::default(), script).await?;
    let options = Options {
        endpoint: Some(proxy.endpoint().clone()),
        ..Options::default()
    };
    Ok((Stage::with(env, options).await?, proxy))
}

/// Submits tasks one after another: the response of each first request is lost.
async fn submit_each(stage: &Stage, caller: &Caller, ids: impl Iterator<Item = i64>) -> Result<()> {
    for id in ids {
        let call = post(TASKS, &task(id)).with(KEY, format!("key-{id}"));
        let first = patiently(stage, caller, &call).await?;
        first.refuses(502, "the outcome is unknown")?;
        let again = patiently(stage, caller, &call).await?;
        let body = again.is(200)?;
        ensure!(body["data"]["name"] == format!("task-{id}"), "{body}");
    }
    Ok(())
}

/// Sends a request again while the caller has sent too many.
async fn patiently(stage: &Stage, caller: &Caller, call: &Call) -> Result<Answer> {
    loop {
        let answer = stage.send(caller, call.clone()).await?;
        if answer.status != 429 {
            return Ok(answer);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The same key at both surfaces, with the same content and with other content.
pub(super) async fn key_content(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let submit = |body: &Value| post(TASKS, body).with(KEY, "k1");
    let first = stage.send(&ann, submit(&task(7))).await?.is(200)?;
    let again = stage.send(&ann, submit(&task(7))).await?.is(200)?;
    ensure!(first == again, "{first} is not {again}");
    let mut other = task(7);
    other["markdown_files"][0]["content"] = json!("Do another thing.");
    let answer = stage.send(&ann, submit(&other)).await?;
    answer.refuses(409, "with other content")?;
    let unkeyed = stage.send(&ann, post(TASKS, &task(7))).await?;
    unkeyed.refuses(409, "exists already")?;
    let another = post(TASKS, &task(7)).with(KEY, "k2");
    stage.send(&ann, another).await?.refuses(409, "exists")?;

    let native = |body: &Value| post(stage.taskruns(), body).with(KEY, "k3");
    let first = stage.send(&ann, native(&new_run("shop", "writer"))).await?;
    let again = stage.send(&ann, native(&new_run("shop", "writer"))).await?;
    let uid = |body: &Value| body["run"]["metadata"]["uid"].clone();
    ensure!(uid(&first.is(201)?) == uid(&again.is(201)?), "two runs");
    let other = new_run("shop", "reader");
    let answer = stage.send(&ann, native(&other)).await?;
    answer.fails(409, "KeyReused")?;
    stage.has_runs(2).await?;
    let run = stage.run("task-7").await?;
    let stored = run.annotations().get(names::IDEMPOTENCY);
    ensure!(
        stored.is_some_and(|hash| !hash.contains("k1") && hash.len() == 129),
        "the key is stored as {stored:?}"
    );
    Ok("the same content: the first run; other content: 409".to_owned())
}

/// The key of another user.
pub(super) async fn key_of_another(stage: &Stage) -> Result<String> {
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    let submit = || post(TASKS, &task(7)).with(KEY, "shared");
    stage.send(&ann, submit()).await?.is(200)?;
    let answer = stage.send(&bob, submit()).await?;
    answer.refuses(409, "exists already")?;
    let run = stage.run("task-7").await?;
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&ann.user), "submitted by {author:?}");
    stage.has_runs(1).await?;
    Ok("409, and nothing of the other user's run is returned".to_owned())
}

/// A key is used again after a restart of the gateway.
pub(super) async fn key_after_restart(env: Env) -> Result<String> {
    let mut stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    let submit = || post(TASKS, &task(7)).with(KEY, "k");
    let first = stage.send(&ann, submit()).await?.is(200)?;
    stage.restart().await?;
    let again = stage.send(&ann, submit()).await?.is(200)?;
    ensure!(first == again, "{first} is not {again}");
    stage.has_runs(1).await?;
    stage.done().await?;
    Ok("the same run".to_owned())
}

/// 20 requests with one key at two replicas at the same time.
pub(super) async fn key_at_replicas(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let other = stage.replica().await?;
    let submit = || post(TASKS, &task(7)).with(KEY, "k").by(&ann.token);
    let all = (0..20).map(|number| {
        let gateway = match number % 2 {
            0 => &stage.gateway,
            _ => &other,
        };
        gateway.https.send(submit())
    });
    let answers: Result<Vec<Answer>> = join_all(all).await.into_iter().collect();
    let answers = answers?;
    ensure!(count(&answers, 200) == 20, "not 20 times 200");
    stage.has_runs(1).await?;
    other.operator.stop().await?;
    Ok("20 times 200, one run".to_owned())
}

/// A key of a DocsRun, and a key after the run was deleted.
pub(super) async fn key_of_docs(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let path = format!("/api/v1/namespaces/{}/docsruns", stage.env.namespace);
    let body = json!({
        "name": "guide", "repositoryUrl": "https://git.example/team/shop",
        "sourceBranch": "main", "agentName": "writer", "suspend": true,
    });
    let submit = |body: &Value| post(path.clone(), body).with(KEY, "k");
    let first = stage.send(&ann, submit(&body)).await?.is(201)?;
    let again = stage.send(&ann, submit(&body)).await?.is(201)?;
    ensure!(
        first["run"]["metadata"]["uid"] == again["run"]["metadata"]["uid"],
        "two runs"
    );
    let mut other = body.clone();
    other["sourceBranch"] = json!("next");
    let answer = stage.send(&ann, submit(&other)).await?;
    answer.fails(409, "KeyReused")?;
    let one = format!("{path}/guide");
    stage.send(&ann, delete(one.clone())).await?.is(202)?;
    stage.send(&ann, get(one)).await?.fails(404, "NotFound")?;
    stage.send(&ann, submit(&other)).await?.is(201)?;
    let runs: Api<DocsRun> = stage.env.api();
    let branch = runs.get("guide").await?.spec.source_branch;
    ensure!(branch == "next", "the branch is '{branch}'");
    Ok("the key holds as long as the run exists".to_owned())
}

/// Responses of the API server that are no success: each has its own code here.
pub(super) async fn faults(env: Env) -> Result<String> {
    let hit = |verb: &str, name: &str, fault: Fault, times: u32| Injection::Request {
        point: Point {
            route: Route::new(verb, "taskruns"),
            name: name.to_owned(),
            nth: 1,
        },
        fault,
        times,
    };
    let creates = [
        ("limited", Fault::Refused(429), 429, "TooManyRequests"),
        ("broken", Fault::Refused(500), 502, "Unanswered"),
        ("away", Fault::Refused(503), 502, "Unanswered"),
        ("late", Fault::LostByTimeout, 502, "Unanswered"),
        ("half", Fault::Truncated, 502, "Unanswered"),
        ("denied", Fault::Refused(403), 403, "Denied"),
    ];
    let mut script: Vec<Injection> = creates
        .iter()
        .map(|(name, fault, ..)| hit("create", name, *fault, 1))
        .collect();
    // As often as the gateway tries.
    script.push(hit("patch", "shop", Fault::Refused(409), 5));
    let (stage, proxy) = behind_proxy(env, script).await?;
    let ann = stage.editor("ann").await?;
    for (name, _, status, reason) in creates {
        let call = post(stage.taskruns(), &new_run(name, "writer"));
        let answer = stage.send(&ann, call).await?;
        let body = answer.fails(status, reason)?;
        let after = answer.header("retry-after");
        let is_unknown = body.to_string().contains("the outcome is unknown");
        ensure!(
            (after == "1") == (status == 429) && is_unknown == (status == 502),
            "{name}: Retry-After '{after}', {body}"
        );
    }
    // The responses of these two were lost.
    stage.has_runs(2).await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    stage.send(&ann, call).await?.is(201)?;
    let added =
        json!({ "files": [{ "filename": "more.md", "content": "x" }], "expectedVersion": 1 });
    let add = || post(stage.at("shop", "context"), &added);
    let answer = stage.send(&ann, add()).await?;
    answer.fails(409, "Busy")?;
    ensure!(answer.header("retry-after") == "1", "no Retry-After");
    ensure!(
        stage.send(&ann, add()).await?.is(201)?["version"] == 2,
        "no version 2"
    );
    let hits = proxy.hits();
    ensure!(hits.iter().all(|is_hit| *is_hit), "{hits:?}");
    stage.done().await?;
    Ok("429, 502, 403, and 409 Busy".to_owned())
}
