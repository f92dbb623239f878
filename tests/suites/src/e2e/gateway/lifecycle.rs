//! Actions on runs, with an operator that carries them out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{names, tasks::TaskRun};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::wait::{met, until};

use super::{
    client::{delete, get, post},
    fixture::{Stage, files_of, new_run},
    scene::{BUSY, QUICK, Scene},
};

/// For a run to start or to end.
const LIMIT: Duration = Duration::from_secs(90);

/// A finalizer that keeps a deleted run.
const HOLD: &str = "example.com/hold";

/// A run from its submission to its end.
pub(super) async fn submitted(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let mut body = new_run("quick", "quick");
    body["timeout"] = json!("300s");
    body["retry"] = json!({ "maxAttempts": 2 });
    body["childTTL"] = json!({ "failed": "3600s" });
    let answer = scene.send(post(stage.taskruns(), &body)).await?;
    let created = answer.is(201)?;
    let location = answer.header("location");
    ensure!(
        location == stage.at("quick", ""),
        "Location is '{location}'"
    );
    ensure!(created["source"] == "cluster", "{created}");
    let metadata = &created["run"]["metadata"];
    ensure!(metadata["managedFields"].is_null(), "{metadata}");
    let author = &metadata["annotations"][names::SUBMITTED_BY];
    ensure!(*author == scene.ann.user, "submitted by {author}");
    let spec = &created["run"]["spec"];
    for field in ["timeout", "childTTL", "taskId", "serviceName", "agentName"] {
        ensure!(spec[field] == body[field], "{field}: {spec}");
    }
    ensure!(
        spec["retry"]["maxAttempts"] == 2 && spec["markdownFiles"] == body["files"],
        "{spec}"
    );
    scene.bench.finished("quick", LIMIT).await?;
    let run = scene.run("quick").await?;
    ensure!(run["status"]["phase"] == "Succeeded", "{}", run["status"]);
    ensure!(metadata["uid"] == run["metadata"]["uid"], "another run");
    Ok("201 with Location; the run succeeded".to_owned())
}

/// A name from service and task, and a run that waits until it is resumed.
pub(super) async fn suspended(scene: &Scene) -> Result<String> {
    scene.bench.agent("busy", BUSY, json!({})).await?;
    let mut body = new_run("busy", "busy");
    body["suspend"] = json!(true);
    body.as_object_mut().context("no object")?.remove("name");
    let call = post(scene.stage.taskruns(), &body);
    let created = scene.send(call).await?.is(201)?;
    let name = &created["run"]["metadata"]["name"];
    ensure!(*name == "busy-7", "the name is {name}");
    scene.bench.says("busy-7", "Suspended").await?;
    ensure!(!scene.changes("busy-7", "suspend").await?, "it changed");
    ensure!(scene.changes("busy-7", "resume").await?, "no change");
    scene.bench.running("busy-7").await?;
    ensure!(!scene.changes("busy-7", "resume").await?, "it changed");
    ensure!(scene.changes("busy-7", "suspend").await?, "no change");
    scene.bench.says("busy-7", "Suspended").await?;
    Ok("suspended, resumed, suspended; a repetition changes nothing".to_owned())
}

/// A running run is cancelled.
pub(super) async fn cancelled(scene: &Scene) -> Result<String> {
    scene.bench.agent("busy", BUSY, json!({})).await?;
    let call = post(scene.stage.taskruns(), &new_run("busy", "busy"));
    scene.send(call).await?.is(201)?;
    scene.bench.running("busy").await?;
    ensure!(scene.changes("busy", "cancel").await?, "no change");
    ensure!(!scene.changes("busy", "cancel").await?, "it changed");
    scene.bench.finished("busy", LIMIT).await?;
    ensure!(!scene.changes("busy", "cancel").await?, "it changed");
    for action in ["suspend", "resume", "retry"] {
        scene.act("busy", action).await?.fails(409, "Cancelled")?;
    }
    let files = json!({ "files": [{ "content": "x" }] });
    let call = post(scene.stage.at("busy", "context"), &files);
    scene.send(call).await?.fails(409, "Cancelled")?;
    let run = scene.run("busy").await?;
    ensure!(run["status"]["reason"] == "Cancelled", "{}", run["status"]);
    Ok("cancelled; other actions: 409 Cancelled".to_owned())
}

/// A finished run is run again, and a running one is not.
pub(super) async fn retried(scene: &Scene) -> Result<String> {
    scene.bench.agent("quick", QUICK, json!({})).await?;
    let call = post(scene.stage.taskruns(), &new_run("quick", "quick"));
    scene.send(call).await?.is(201)?;
    let body = scene.act("quick", "retry").await?;
    let body = body.fails(409, "NotFinished")?;
    let steps = body["nextSteps"].to_string();
    ensure!(steps.contains("orc wait quick"), "{steps}");
    scene.bench.finished("quick", LIMIT).await?;
    for action in ["cancel", "suspend", "resume"] {
        scene.act("quick", action).await?.fails(409, "Finished")?;
    }
    ensure!(scene.changes("quick", "retry").await?, "no change");
    scene
        .bench
        .until("quick", LIMIT, "version 2 to succeed", |status| {
            status.context_version == Some(2)
                && api::Status::progress(status).is_true(api::status::condition::FINISHED)
        })
        .await?;
    let run = scene.run("quick").await?;
    ensure!(run["spec"]["contextVersion"] == 2, "{}", run["spec"]);
    Ok("409 while it runs, then version 2".to_owned())
}

/// A running run is deleted, and a finalizer of somebody else keeps it.
pub(super) async fn deleted(scene: &Scene) -> Result<String> {
    let stage = &scene.stage;
    scene.bench.agent("busy", BUSY, json!({})).await?;
    let submit = || post(stage.taskruns(), &new_run("busy", "busy"));
    scene.send(submit()).await?.is(201)?;
    let run = scene.bench.running("busy").await?;
    let mut finalizers = run.finalizers().to_vec();
    finalizers.push(HOLD.to_owned());
    keep(&stage.runs(), &finalizers).await?;
    let body = scene.send(delete(stage.at("busy", ""))).await?.is(202)?;
    ensure!(body["gone"] == false, "{body}");
    for action in ["cancel", "suspend", "resume", "retry"] {
        scene.act("busy", action).await?.fails(409, "Deleting")?;
    }
    let files = json!({ "files": [{ "content": "x" }] });
    let call = post(stage.at("busy", "context"), &files);
    scene.send(call).await?.fails(409, "Deleting")?;
    let answer = scene.send(submit()).await?;
    let body = answer.fails(409, "Exists")?;
    let detail = body["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("is being deleted"), "{detail}");
    keep(&stage.runs(), &[]).await?;
    scene.bench.is_gone(&run, Duration::from_secs(120)).await?;
    scene.read("busy", "").await?.fails(404, "NotFound")?;
    let answer = scene.send(delete(stage.at("busy", ""))).await?;
    answer.fails(404, "NotFound")?;
    scene.act("busy", "cancel").await?.fails(404, "NotFound")?;
    Ok("202; meanwhile 409 Deleting; then 404".to_owned())
}

/// Replaces the finalizers of the run. Waits for the operator to have removed its own first.
async fn keep(runs: &Api<TaskRun>, finalizers: &[String]) -> Result<()> {
    if finalizers.is_empty() {
        let limit = Duration::from_secs(60);
        until(
            "the operator's finalizer to be removed",
            limit,
            async || {
                let left = runs.get("busy").await?.finalizers().to_vec();
                Ok(met(left == [HOLD], || format!("{left:?}")))
            },
        )
        .await?;
    }
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    runs.patch("busy", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Requests that only validate.
pub(super) async fn dry_run(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let path = format!("{}?dryRun=true", stage.taskruns());
    let mut body = new_run("shop", "writer");
    let created = stage.send(&ann, post(path.clone(), &body)).await?.is(201)?;
    ensure!(created["run"]["metadata"]["name"] == "shop", "{created}");
    body["timeout"] = json!("1000h");
    let answer = stage.send(&ann, post(path, &body)).await?;
    let problem = answer.fails(422, "Refused")?;
    let causes = problem["causes"].to_string();
    ensure!(causes.contains("spec.timeout"), "{causes}");
    stage.has_runs(0).await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    stage.send(&ann, call).await?.is(201)?;
    let added =
        json!({ "files": [{ "filename": "more.md", "content": "x" }], "expectedVersion": 1 });
    let path = format!("{}?dryRun=true", stage.at("shop", "context"));
    let answer = stage.send(&ann, post(path, &added)).await?.is(201)?;
    ensure!(answer["version"] == 2, "{answer}");
    let run = stage.run("shop").await?;
    ensure!(
        run.spec.context_version == 1 && files_of(&run) == ["task.md"],
        "{:?}",
        run.spec
    );
    for value in ["", "1", "yes", "TRUE"] {
        let path = format!("{}?dryRun={value}", stage.taskruns());
        let call = post(path, &new_run("other", "writer"));
        stage.send(&ann, call).await?.fails(400, "InvalidRequest")?;
    }
    stage.has_runs(1).await?;
    Ok("201 or 422, and nothing is stored".to_owned())
}

/// Reads with a UID and a version that the run does not have.
pub(super) async fn identity(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    let created = stage.send(&ann, call).await?.is(201)?;
    let uid = created["run"]["metadata"]["uid"].as_str();
    let uid = uid.context("no UID")?;
    let read = |query: String| get(format!("{}?{query}", stage.at("shop", "")));
    let right = read(format!("uid={uid}&version=1"));
    stage.send(&ann, right).await?.is(200)?;
    let other = read("uid=6a4e7a14-0000-4000-8000-000000000000".to_owned());
    stage.send(&ann, other).await?.fails(404, "NotFound")?;
    // Files of earlier versions are in their ConfigMaps; there is no later version.
    for (part, reason) in [
        ("", "NotInstalled"),
        ("logs", "NotInstalled"),
        ("files", "NotFound"),
        ("files/task.md", "NotFound"),
    ] {
        let path = format!("{}?version=2", stage.at("shop", part));
        let answer = stage.send(&ann, get(path)).await?;
        let body = answer.fails(404, reason)?;
        let detail = body["detail"].as_str().unwrap_or_default();
        ensure!(detail.contains("is at version 1"), "{detail}");
    }
    for wrong in ["version=-1", "version=x", "version=", "version=1&version=1"] {
        let call = read(wrong.to_owned());
        stage.send(&ann, call).await?.fails(400, "InvalidRequest")?;
    }
    Ok("404 for another UID or version".to_owned())
}

/// Context at the native endpoint.
pub(super) async fn context_added(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    stage.send(&ann, call).await?.is(201)?;
    let add = |body: Value| stage.send(&ann, post(stage.at("shop", "context"), &body));
    let file = |name: &str| json!({ "filename": name, "content": "x" });
    let body = add(json!({ "files": [file("a.md"), { "content": "y" }], "expectedVersion": 1 }));
    let body = body.await?.is(201)?;
    let wanted = json!({ "version": 2, "files": ["a.md", "context-v2.md"] });
    ensure!(body == wanted, "{body}");
    let late = add(json!({ "files": [file("b.md")], "expectedVersion": 1 }));
    let body = late.await?.fails(409, "Conflict")?;
    ensure!(body["current"] == 2, "{body}");
    let taken = add(json!({ "files": [file("a.md")] }));
    taken.await?.fails(409, "FileExists")?;
    let none = add(json!({ "files": [] }));
    none.await?.fails(400, "InvalidFiles")?;
    let twice = add(json!({ "files": [file("c.md"), file("c.md")] }));
    twice.await?.fails(400, "InvalidFiles")?;
    let keyed = post(
        stage.at("shop", "context"),
        &json!({ "files": [file("d.md")] }),
    );
    let keyed = keyed.with("idempotency-key", "k");
    stage
        .send(&ann, keyed)
        .await?
        .fails(400, "InvalidRequest")?;
    let free = add(json!({ "files": [file("e.md")] }));
    ensure!(free.await?.is(201)?["version"] == 3, "no version 3");
    let run = stage.run("shop").await?;
    ensure!(
        files_of(&run) == ["a.md", "context-v2.md", "e.md", "task.md"],
        "R15: {:?}",
        files_of(&run)
    );
    let missing = post(
        stage.at("missing", "context"),
        &json!({ "files": [file("a.md")] }),
    );
    stage.send(&ann, missing).await?.fails(404, "NotFound")?;
    Ok("versions 2 and 3; 409 for another version and for a file that exists".to_owned())
}

/// A DocsRun: submitted, read, changed and deleted.
pub(super) async fn docs_run(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let path = format!("/api/v1/namespaces/{}/docsruns", stage.env.namespace);
    let at = |part: &str| format!("{path}/guide{part}");
    let body = json!({
        "name": "guide", "repositoryUrl": "https://git.example/team/shop",
        "sourceBranch": "main", "agentName": "writer", "suspend": true,
        "instructions": [{ "filename": "style.md", "content": "Short." }],
        "output": { "path": "docs" },
    });
    let answer = stage.send(&ann, post(path.clone(), &body)).await?;
    let created = answer.is(201)?;
    ensure!(answer.header("location") == at(""), "no Location");
    ensure!(created["run"]["kind"] == "DocsRun", "{created}");
    let labels = &created["run"]["metadata"]["labels"];
    ensure!(labels["orchestrator.io/agent"] == "writer", "{labels}");
    stage
        .send(&ann, post(path.clone(), &body))
        .await?
        .fails(409, "Exists")?;
    let files = stage.send(&ann, get(at("/files"))).await?.is(200)?;
    let wanted = json!({ "version": 1, "files": [{ "filename": "style.md", "bytes": 6 }] });
    ensure!(files == wanted, "{files}");
    let file = stage.send(&ann, get(at("/files/style.md"))).await?;
    ensure!(file.text() == "Short.", "{}", file.text());
    let added = json!({ "files": [{ "content": "x" }] });
    let call = post(at("/context"), &added);
    stage.send(&ann, call).await?.fails(400, "InvalidRequest")?;
    let why = stage.send(&ann, get(at("/why"))).await?.is(200)?;
    ensure!(why["target"]["kind"] == "DocsRun", "{why}");
    for action in ["resume", "suspend", "cancel"] {
        let call = super::client::action(at(&format!("/{action}")));
        let body = stage.send(&ann, call).await?.is(200)?;
        ensure!(body["changed"] == true, "{action}: {body}");
    }
    let mut wrong = body.clone();
    wrong["name"] = json!("other");
    wrong["output"] = json!({ "push": true });
    let answer = stage.send(&ann, post(path.clone(), &wrong)).await?;
    answer.fails(400, "InvalidRequest")?;
    wrong["output"] = json!({ "path": "../.." });
    let answer = stage.send(&ann, post(path.clone(), &wrong)).await?;
    answer.fails(422, "Refused")?;
    stage.send(&ann, delete(at(""))).await?.is(202)?;
    stage
        .send(&ann, get(at("")))
        .await?
        .fails(404, "NotFound")?;
    Ok("submitted, read, changed and deleted".to_owned())
}
