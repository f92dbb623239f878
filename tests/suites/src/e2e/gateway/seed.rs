//! The two endpoints of the founding request, with every status code.

use anyhow::{Context, Result, ensure};
use api::names;
use futures::future::join_all;
use http::Method;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    faults::{
        point::{Fault, Injection, Point, Route},
        proxy::{KillTarget, Proxy},
    },
    suite::Env,
};

use super::{
    client::{Call, get, post},
    fixture::{Caller, Options, Stage, TASKS, context, context_of, editor, files_of, task},
};

/// Batches of 100 requests, of which one must exceed the limit of the caller.
const BATCHES: usize = 10;

/// A task is submitted: labels, author and files are stored.
pub(super) async fn submitted(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let body = stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let wanted = json!({
        "success": true, "message": "Task submitted successfully",
        "data": { "name": "task-7", "namespace": stage.env.namespace },
    });
    ensure!(body == wanted, "{body}");
    let run = stage.run("task-7").await?;
    for (label, wanted) in [("task-id", "7"), ("service-name", "shop")] {
        let found = run.labels().get(label);
        ensure!(
            found.is_some_and(|found| found == wanted),
            "S3.11: label '{label}' is {found:?}"
        );
    }
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&ann.user), "submitted by {author:?}");
    let spec = &run.spec;
    ensure!(
        (spec.task_id, spec.context_version, files_of(&run)) == (7, 1, vec!["task.md"]),
        "{spec:?}"
    );
    let contents = spec.markdown_files.iter().map(|file| file.content.as_str());
    ensure!(
        spec.service_name == "shop" && spec.agent_name == "writer" && contents.eq(["Do it."]),
        "S3.11: {spec:?}"
    );
    Ok("200; the run has its labels and its author".to_owned())
}

/// Context is added as the next version, and no earlier file is lost.
pub(super) async fn extended(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    for version in 2..=4 {
        let call = post(context_of(7), &context(version));
        let body = stage.send(&ann, call).await?.is(200)?;
        ensure!(
            body["data"]["version"] == version && body["data"]["name"] == "task-7",
            "{body}"
        );
    }
    let run = stage.run("task-7").await?;
    let files = files_of(&run);
    let wanted = ["context-v2.md", "context-v3.md", "context-v4.md", "task.md"];
    ensure!(
        files == wanted && run.spec.context_version == 4,
        "R15: {files:?}"
    );
    Ok("200; versions 2 to 4 and all files".to_owned())
}

/// Creates a caller and the task 7.
async fn with_task(stage: &Stage) -> Result<Caller> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    Ok(ann)
}

/// Bodies that are not valid.
pub(super) async fn invalid(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    let submit = |change: fn(&mut Value)| {
        let mut body = task(8);
        change(&mut body);
        post(TASKS, &body)
    };
    let add = |change: fn(&mut Value)| {
        let mut body = context(2);
        change(&mut body);
        post(context_of(7), &body)
    };
    let cases: Vec<(Call, &str)> = vec![
        (
            submit(|body| body["markdown_files"] = json!([])),
            "no files",
        ),
        (
            submit(|body| body["markdown_files"][0]["filename"] = json!("../x")),
            "cannot be the name of a file",
        ),
        (
            submit(|body| body["markdown_files"][0]["mode"] = json!(511)),
            "unknown field 'markdown_files[0].mode'",
        ),
        (
            submit(|body| body["taskId"] = json!(8)),
            "unknown field 'taskId'",
        ),
        (submit(|body| body["id"] = json!("8")), "invalid type"),
        (submit(|body| body["id"] = Value::Null), "invalid type"),
        (submit(|_| ()).body("{"), "the body"),
        (submit(|_| ()).body(""), "the body"),
        (
            submit(|_| ()).body(r#"{"id":8,"id":9,"service_name":"a","agent_name":"b","markdown_files":[{"filename":"a","content":""}]}"#),
            "duplicate field",
        ),
        (
            Call { target: format!("{TASKS}?dryRun=true"), ..submit(|_| ()) },
            "unknown parameter 'dryRun'",
        ),
        (add(|body| body["version"] = json!("2")), "invalid type"),
        (add(|body| body["content"] = json!("x")), "unknown field 'content'"),
        (add(|_| ()).body("[]"), "must be an object"),
        (post(format!("{TASKS}/x/context"), &context(2)), "{id} is not valid"),
        (post(format!("{TASKS}/0/context"), &context(2)), "{id} is not valid"),
        (add(|_| ()).with("idempotency-key", "k"), "'Idempotency-Key' is for new runs"),
    ];
    let count = cases.len();
    for (call, words) in cases {
        stage.send(&ann, call).await?.refuses(400, words)?;
    }
    stage.has_runs(1).await?;
    unchanged(stage).await?;
    Ok(format!("{count} bodies and parameters: 400"))
}

/// The task 7 is as it was submitted.
async fn unchanged(stage: &Stage) -> Result<()> {
    let run = stage.run("task-7").await?;
    ensure!(
        run.spec.context_version == 1 && files_of(&run) == ["task.md"],
        "{:?}",
        run.spec
    );
    Ok(())
}

/// Callers without a token.
pub(super) async fn unauthenticated(stage: &Stage) -> Result<String> {
    with_task(stage).await?;
    for call in [post(TASKS, &task(8)), post(context_of(7), &context(2))] {
        let answer = stage.send_anonymous(call).await?;
        answer.refuses(401, "Authorization")?;
        let scheme = answer.header("www-authenticate");
        ensure!(scheme == "Bearer", "WWW-Authenticate is '{scheme}'");
    }
    stage.has_runs(1).await?;
    unchanged(stage).await?;
    Ok("401 with WWW-Authenticate".to_owned())
}

/// A caller that may only read.
pub(super) async fn denied(stage: &Stage) -> Result<String> {
    with_task(stage).await?;
    let viewer = stage.viewer("vic").await?;
    for (call, words) in [
        (post(TASKS, &task(8)), "cannot create resource"),
        (post(context_of(7), &context(2)), "cannot patch resource"),
    ] {
        let body = stage.send(&viewer, call).await?.refuses(403, words)?;
        let message = body["message"].as_str().unwrap_or_default();
        ensure!(message.contains(&viewer.user), "{message}");
    }
    stage.has_runs(1).await?;
    unchanged(stage).await?;
    Ok("403 with the name of the caller".to_owned())
}

/// The namespace does not exist, or the task does not.
pub(super) async fn not_found(env: Env) -> Result<String> {
    let options = Options {
        pm_namespace: Some("nowhere".to_owned()),
        ..Options::default()
    };
    let nowhere = Stage::with(env.clone(), options).await?;
    let rita = nowhere.cluster_caller("rita", editor()).await?;
    let answer = nowhere.send(&rita, post(TASKS, &task(7))).await?;
    answer.refuses(404, "does the namespace exist")?;
    let answer = nowhere
        .send(&rita, post(context_of(7), &context(2)))
        .await?;
    answer.is(404)?;
    nowhere.done().await?;

    let stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    let answer = stage.send(&ann, post(context_of(7), &context(2))).await?;
    answer.refuses(404, "TaskRun 'task-7' was not found")?;
    stage.has_runs(0).await?;
    stage.done().await?;
    Ok("404 for a namespace and for a task".to_owned())
}

/// Other methods than POST.
pub(super) async fn methods(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    for path in [TASKS.to_owned(), context_of(7)] {
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = stage.send(&ann, Call::new(method, path.clone())).await?;
            answer.refuses(405, "POST")?;
            let allow = answer.header("allow");
            ensure!(allow == "POST", "Allow is '{allow}'");
        }
    }
    unchanged(stage).await?;
    Ok("405 with Allow for four methods".to_owned())
}

/// The task exists.
pub(super) async fn exists(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    let mut other = task(7);
    other["service_name"] = json!("other");
    for body in [task(7), other] {
        let answer = stage.send(&ann, post(TASKS, &body)).await?;
        answer.refuses(409, "exists already")?;
    }
    let run = stage.run("task-7").await?;
    ensure!(run.spec.service_name == "shop", "it was replaced");
    Ok("409, and the first one stays".to_owned())
}

/// The version is not the next one.
pub(super) async fn wrong_version(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    stage
        .send(&ann, post(context_of(7), &context(2)))
        .await?
        .is(200)?;
    for version in [0, 1, 2, 4, -1, i64::MIN, i64::MAX] {
        let call = post(context_of(7), &context(version));
        let body = stage.send(&ann, call).await?.refuses(409, "version")?;
        ensure!(body["data"] == json!({ "current": 2 }), "{version}: {body}");
    }
    let run = stage.run("task-7").await?;
    ensure!(run.spec.context_version == 2, "{:?}", run.spec);
    Ok("409 with data.current for seven versions".to_owned())
}

/// Bodies above 3 MiB.
pub(super) async fn too_large(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    let large = " ".repeat(3 * 1024 * 1024 + 1);
    for call in [post(TASKS, &task(8)), post(context_of(7), &context(2))] {
        let answer = stage.send(&ann, call.body(large.clone())).await?;
        answer.refuses(413, "3145728 bytes")?;
    }
    stage.has_runs(1).await?;
    unchanged(stage).await?;
    Ok("413".to_owned())
}

/// Other content types than JSON.
pub(super) async fn media_type(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    for call in [post(TASKS, &task(8)), post(context_of(7), &context(2))] {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/jsonp",
            "",
        ] {
            let call = call.clone().without("content-type");
            let call = call.with("content-type", kind);
            let answer = stage.send(&ann, call).await?;
            answer.refuses(415, "application/json")?;
        }
        let answer = stage.send(&ann, call.without("content-type")).await?;
        answer.refuses(415, "application/json")?;
    }
    stage.has_runs(1).await?;
    unchanged(stage).await?;
    Ok("415 for six content types".to_owned())
}

/// Values that the CRD rejects.
pub(super) async fn refused(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    let answer = stage.send(&ann, post(TASKS, &task(2_147_483_648))).await?;
    answer.refuses(422, "spec.taskId")?;
    let mut body = task(8);
    body["agent_name"] = json!("No Agent");
    let answer = stage.send(&ann, post(TASKS, &body)).await?;
    answer.refuses(422, "spec.agentName")?;
    // The last version that the CRD allows.
    let last = 2_147_483_647_i64;
    let patch = Patch::Merge(json!({ "spec": { "contextVersion": last } }));
    let params = PatchParams::default();
    stage.runs().patch("task-7", &params, &patch).await?;
    let call = post(context_of(7), &context(last + 1));
    let answer = stage.send(&ann, call).await?;
    answer.refuses(422, "spec.contextVersion")?;
    stage.has_runs(1).await?;
    Ok("422 with the name of the field".to_owned())
}

/// More requests than a caller may send.
pub(super) async fn limited(stage: &Stage) -> Result<String> {
    let (ann, bob) = (with_task(stage).await?, stage.editor("bob").await?);
    for call in [post(TASKS, &task(7)), post(context_of(7), &context(9))] {
        let (mut limited, mut served) = (0, 0);
        // A slow machine needs longer for a batch, and gets more requests through.
        for _ in 0..BATCHES {
            let batch = (0..100).map(|_| stage.send(&ann, call.clone()));
            for answer in join_all(batch).await {
                let answer = answer?;
                if answer.status != 429 {
                    answer.is(409)?;
                    served += 1;
                    continue;
                }
                limited += 1;
                answer.refuses(429, "20 requests per second")?;
                let after = answer.header("retry-after");
                ensure!(after == "1", "Retry-After is '{after}'");
            }
            if limited > 0 && served > 0 {
                break;
            }
        }
        ensure!(
            limited > 0 && served > 0,
            "{limited} limited, {served} served"
        );
    }
    // Another caller has a limit of their own.
    stage.send(&bob, get("/api/v1/whoami")).await?.is(200)?;
    Ok("429 with Retry-After; another caller is served".to_owned())
}

/// The API server gives no usable response.
pub(super) async fn unanswered(env: Env) -> Result<String> {
    let hit = |verb: &str, fault: Fault, times: u32| Injection::Request {
        point: Point {
            route: Route::new(verb, "taskruns"),
            name: "task-8".to_owned(),
            nth: 1,
        },
        fault,
        times,
    };
    let script = vec![
        hit("create", Fault::Reset, 1),
        hit("patch", Fault::LostByReset, 1),
    ];
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(listener, &env.config, KillTarget::default(), script).await?;
    let options = Options {
        endpoint: Some(proxy.endpoint().clone()),
        ..Options::default()
    };
    let stage = Stage::with(env, options).await?;
    let ann = stage.editor("ann").await?;
    let words = "the outcome is unknown; read the object again";
    let answer = stage.send(&ann, post(TASKS, &task(8))).await?;
    answer.refuses(502, words)?;
    stage.has_runs(0).await?;
    stage.send(&ann, post(TASKS, &task(8))).await?.is(200)?;
    // This one was carried out. The version tells the client so.
    let add = || post(context_of(8), &context(2));
    stage.send(&ann, add()).await?.refuses(502, words)?;
    let body = stage.send(&ann, add()).await?.refuses(409, "version 2")?;
    ensure!(body["data"]["current"] == 2, "{body}");
    let run = stage.run("task-8").await?;
    ensure!(
        files_of(&run) == ["context-v2.md", "task.md"],
        "{:?}",
        files_of(&run)
    );
    let hits = proxy.hits();
    ensure!(hits == [true, true], "not every fault happened: {hits:?}");
    stage.done().await?;
    Ok("502, and a repeated addition adds nothing twice".to_owned())
}

/// Both endpoints without a slash at the end, and with one.
pub(super) async fn slashes(stage: &Stage) -> Result<String> {
    let ann = with_task(stage).await?;
    let with_slash = |path: &str| format!("{path}/");
    let answer = stage.send(&ann, post(with_slash(TASKS), &task(8))).await?;
    answer.is(200)?;
    let path = with_slash(&context_of(7));
    stage.send(&ann, post(path, &context(2))).await?.is(200)?;
    let nothing = post("/api/v1/pm/tasks/7", &context(2));
    stage.send(&ann, nothing).await?.refuses(404, "address")?;
    let wrong = post("/api/v1/pm/tasks//context", &context(2));
    let body = stage.send(&ann, wrong).await?.is(404)?;
    body["message"].as_str().context("no message")?;
    Ok("a slash at the end changes nothing".to_owned())
}
