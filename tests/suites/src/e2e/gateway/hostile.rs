//! Hostile names, keys, addresses and values.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    attack_table::{Kind, listed, withstood},
    client::{get, post},
    fixture::{Stage, TASKS, new_run, task},
};

/// Names of files that leave their directory, or that a shell or a page could misread.
pub(super) async fn filenames(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    stage.send(&ann, call).await?.is(201)?;
    let long = "a".repeat(254);
    let names = [
        ("a parent directory", "../evil.md"),
        ("the parent directory", ".."),
        ("a directory", "a/b.md"),
        ("a directory of Windows", "a\\b.md"),
        ("an absolute path", "/etc/passwd"),
        ("a hidden file", ".profile"),
        ("an option", "-rf"),
        ("a NUL", "a\0.md"),
        ("a line break", "a\nb.md"),
        ("an escape sequence", "a\u{1b}[2J.md"),
        ("a right-to-left override", "a\u{202e}dm.md"),
        ("another alphabet", "\u{430}.md"),
        ("a command", "$(id).md"),
        ("a page", "<script>.md"),
        ("a blank", "a b.md"),
        ("a percent sign", "%2e%2e"),
        ("254 letters", long.as_str()),
    ];
    let context = stage.at("shop", "context");
    for (name, file) in names {
        let files = json!([{ "filename": file, "content": "x" }]);
        let mut body = new_run("evil", "writer");
        body["files"] = files.clone();
        let answer = stage.send(&ann, post(stage.taskruns(), &body)).await?;
        withstood(Kind::Input, name, answer.fails(400, "InvalidFiles"))?;
        let answer = stage
            .send(&ann, post(context.clone(), &json!({ "files": files })))
            .await?;
        withstood(Kind::Input, name, answer.fails(400, "InvalidFiles"))?;
        let mut body = task(666);
        body["markdown_files"] = files;
        let answer = stage.send(&ann, post(TASKS, &body)).await?;
        withstood(
            Kind::Input,
            name,
            answer.refuses(400, "cannot be the name of a file"),
        )?;
    }
    let many: Vec<Value> = (0..129)
        .map(|number| json!({ "filename": number.to_string(), "content": "" }))
        .collect();
    let large = json!([{ "filename": "a.md", "content": "x".repeat(921_601) }]);
    let twice =
        json!([{ "filename": "a.md", "content": "" }, { "filename": "a.md", "content": "" }]);
    let sets = [
        ("129 files", json!(many)),
        ("900 KiB and one byte", large),
        ("one name twice", twice),
    ];
    for (name, files) in &sets {
        let mut body = new_run("evil", "writer");
        body["files"] = files.clone();
        let answer = stage.send(&ann, post(stage.taskruns(), &body)).await?;
        withstood(Kind::Input, name, answer.fails(400, "InvalidFiles"))?;
    }
    stage.has_runs(1).await?;
    let run = stage.run("shop").await?;
    ensure!(run.spec.context_version == 1, "{:?}", run.spec);
    let all = names.iter().map(|(name, _)| *name);
    Ok(listed(all.chain(sets.iter().map(|(name, _)| *name))))
}

/// Keys that are too long, empty, or no text.
pub(super) async fn keys(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let submit = || post(stage.taskruns(), &new_run("evil", "writer"));
    let key = "idempotency-key";
    let attacks = [
        ("an empty key", submit().with(key, "")),
        ("blanks", submit().with(key, "   ")),
        ("a blank in the key", submit().with(key, "a b")),
        ("a tab in the key", submit().with(key, "a\tb")),
        ("another alphabet", submit().with(key, "\u{430}")),
        ("256 characters", submit().with(key, "k".repeat(256))),
        ("16 KiB", submit().with(key, "k".repeat(16 * 1024))),
        ("two keys", submit().with(key, "a").with(key, "b")),
        ("the same key twice", submit().with(key, "a").with(key, "a")),
    ];
    for (name, call) in &attacks {
        let answer = stage.send(&ann, call.clone()).await?;
        withstood(Kind::Input, name, answer.fails(400, "InvalidRequest"))?;
    }
    stage.has_runs(0).await?;
    // A key is hashed: it cannot look like a part of an annotation, or like the key of another user.
    let odd = "ann:1:k.\"'${}<>,;=";
    stage.send(&ann, submit().with(key, odd)).await?.is(201)?;
    let run = stage.run("evil").await?;
    let annotations = json!(run.metadata.annotations).to_string();
    ensure!(!annotations.contains("${}"), "{annotations}");
    let longest = post(stage.taskruns(), &new_run("longest", "writer"));
    let longest = longest.with(key, "k".repeat(255));
    stage.send(&ann, longest).await?.is(201)?;
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Addresses that leave the namespace, the API, or the server.
pub(super) async fn paths(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let call = post(stage.taskruns(), &new_run("shop", "writer"));
    stage.send(&ann, call).await?.is(201)?;
    let (runs, home) = (stage.taskruns(), &stage.env.namespace);
    let (invalid, none) = ((400, "InvalidRequest"), (404, "NotFound"));
    let attacks = [
        (
            "a parent in the path",
            format!("{runs}/../taskruns/shop"),
            none,
        ),
        ("an encoded parent", format!("{runs}/%2e%2e"), invalid),
        (
            "an encoded slash",
            format!("{runs}/a%2f..%2f..%2fsecrets"),
            invalid,
        ),
        (
            "an encoded slash in the namespace",
            format!("/api/v1/namespaces/{home}%2fpods/taskruns/shop"),
            invalid,
        ),
        (
            "an encoded question mark",
            format!("{runs}/shop%3fwatch=true"),
            invalid,
        ),
        ("an encoded hash", format!("{runs}/shop%23"), invalid),
        ("an encoded NUL", format!("{runs}/shop%00"), invalid),
        (
            "an encoded line break",
            format!("{runs}/shop%0d%0ax-a:%20b"),
            invalid,
        ),
        (
            "a parameter of the path",
            format!("{runs}/shop;a=b"),
            invalid,
        ),
        ("two slashes", format!("{runs}//shop"), none),
        ("capital letters", format!("{runs}/SHOP"), invalid),
        ("a status", format!("{runs}/shop/status"), none),
        ("a scale", format!("{runs}/shop/scale"), none),
        (
            "Secrets",
            format!("/api/v1/namespaces/{home}/secrets/x"),
            none,
        ),
        ("Pods", format!("/api/v1/namespaces/{home}/pods"), none),
        (
            "a proxy of Pods",
            format!("/api/v1/namespaces/{home}/pods/x/proxy"),
            none,
        ),
        (
            "the API server's own API",
            format!("/apis/orchestrator.io/v1/namespaces/{home}/taskruns/shop"),
            none,
        ),
        ("its metrics", "/metrics".to_owned(), none),
        ("its probes", "/livez".to_owned(), none),
        ("its profiles", "/debug/pprof/heap".to_owned(), none),
        ("a file", "/etc/passwd".to_owned(), none),
        (
            "no namespace",
            "/api/v1/namespaces//taskruns/shop".to_owned(),
            none,
        ),
        (
            "a namespace of dots",
            "/api/v1/namespaces/../taskruns/shop".to_owned(),
            invalid,
        ),
        (
            "a namespace above 63 letters",
            format!("/api/v1/namespaces/{}/taskruns/x", "a".repeat(64)),
            invalid,
        ),
        (
            "a name above 253 letters",
            format!("{runs}/{}", "a".repeat(254)),
            invalid,
        ),
        (
            "another version",
            format!("/api/v2/namespaces/{home}/taskruns/shop"),
            none,
        ),
    ];
    for (name, path, (status, reason)) in &attacks {
        let answer = stage.send(&ann, get(path.clone())).await?;
        withstood(Kind::Input, name, answer.fails(*status, reason))?;
    }
    Ok(listed(attacks.iter().map(|(name, ..)| *name)))
}

/// Values that the API server must check, because the gateway passes them on.
pub(super) async fn values(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let run = |field: &str, value: Value| {
        let mut body = new_run("evil", "writer");
        body[field] = value;
        post(stage.taskruns(), &body)
    };
    let docs_path = format!("/api/v1/namespaces/{}/docsruns", stage.env.namespace);
    let docs = |field: &str, value: &str| {
        let mut body = json!({
            "name": "evil", "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer", "suspend": true,
        });
        body[field] = json!(value);
        post(docs_path.clone(), &body)
    };
    let refused = (422, "Refused");
    let attacks = [
        (
            "a name with a slash",
            run("name", json!("kube-system/evil")),
            refused,
        ),
        ("a name of dots", run("name", json!("..")), refused),
        ("an empty name", run("name", json!("")), refused),
        (
            "a name in capital letters",
            run("name", json!("Evil")),
            refused,
        ),
        (
            "a name above 253 letters",
            run("name", json!("a".repeat(254))),
            refused,
        ),
        ("task 0", run("taskId", json!(0)), refused),
        ("a negative task", run("taskId", json!(-1)), refused),
        (
            "a service of two lines",
            run("serviceName", json!("a\nb")),
            refused,
        ),
        ("no service", run("serviceName", json!("")), refused),
        (
            "an Agent in another namespace",
            run("agentName", json!("kube-system/admin")),
            refused,
        ),
        (
            "a timeout of a year",
            run("timeout", json!("8760h")),
            refused,
        ),
        ("a child of no time", run("childTTL", json!({})), refused),
        (
            "a cancelled run",
            run("cancel", json!(true)),
            (400, "InvalidRequest"),
        ),
        (
            "version 9",
            run("contextVersion", json!(9)),
            (400, "InvalidRequest"),
        ),
        (
            "a status",
            run("status", json!({ "phase": "Succeeded" })),
            (400, "InvalidRequest"),
        ),
        (
            "labels",
            run("labels", json!({ "a": "b" })),
            (400, "InvalidRequest"),
        ),
        (
            "a file as a repository",
            docs("repositoryUrl", "file:///etc"),
            refused,
        ),
        (
            "a command as a repository",
            docs("repositoryUrl", "ext::sh -c id"),
            refused,
        ),
        (
            "a password in the address",
            docs("repositoryUrl", "https://a:b@git.example/x"),
            refused,
        ),
        (
            "an option as a branch",
            docs("sourceBranch", "--upload-pack=id"),
            refused,
        ),
        (
            "a directory above the repository",
            docs("workingDirectory", "../.."),
            refused,
        ),
    ];
    for (name, call, (status, reason)) in &attacks {
        let answer = stage.send(&ann, call.clone()).await?;
        let body = withstood(Kind::Input, name, answer.fails(*status, reason))?;
        let detail = body["detail"].as_str().unwrap_or_default();
        ensure!(!detail.is_empty(), "'{name}' has no detail");
    }
    stage.has_runs(0).await?;
    Ok(listed(attacks.iter().map(|(name, ..)| *name)))
}
