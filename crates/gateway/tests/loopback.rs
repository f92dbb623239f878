//! The server on loopback, in front of a tiny API server that records requests. What the real API
//! server does with a request is shown on the test cluster.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use gateway::{NoObserver, Sessions, Settings, Tls};
use kube::{Client, Config};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, crypto::ring},
};

/// The heads of the requests that the API server got.
type Heads = Arc<Mutex<Vec<String>>>;

/// A gateway, its certificate authority and its API server.
struct Stage {
    address: SocketAddr,
    connector: TlsConnector,
    heads: Heads,
    _stop: oneshot::Sender<()>,
    _tasks: JoinSet<()>,
}

impl Stage {
    async fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        fs::write(directory.path().join("tls.crt"), made.cert.pem())?;
        let key = made.signing_key.serialize_pem();
        fs::write(directory.path().join("tls.key"), key)?;
        let tls = Tls::from_directory(directory.path())?;
        fs::write(directory.path().join("current"), [7; 32])?;

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes())?)?;
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();

        let (heads, mut tasks) = (Heads::default(), JoinSet::new());
        let api_server = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", api_server.local_addr()?);
        tasks.spawn(serve_api(api_server, Arc::clone(&heads)));
        let api_client = Client::try_from(Config::new(url.parse()?))?;

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let settings = Settings {
            pm_namespace: "orchestrator".to_owned(),
            streams_per_caller: 8,
            hosts: vec!["localhost".to_owned()],
            proxy_header: None,
            sessions: Some(Sessions::from_directory(directory.path())?),
            observer: Arc::new(NoObserver),
            now: Arc::new(|| api::Timestamp::UNIX_EPOCH),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        tasks.spawn(async move {
            let shutdown = async {
                match stopped.await {
                    Ok(()) => {}
                    Err(_stage_is_gone) => {}
                }
            };
            gateway::serve(listener, tls, settings, api_client, shutdown).await;
        });
        Ok(Self {
            address,
            connector: TlsConnector::from(Arc::new(client)),
            heads,
            _stop: stop,
            _tasks: tasks,
        })
    }

    /// Sends a request with these lines of its head, and returns the status code and the body.
    async fn send(&self, head: &[&str], body: &str) -> Result<(u16, Value)> {
        let (status, _, body) = self.exchange(head, body).await?;
        Ok((status, body))
    }

    /// Sends a request with these lines of its head, and returns the status code, the head and the
    /// body of the response.
    async fn exchange(&self, head: &[&str], body: &str) -> Result<(u16, String, Value)> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost")?;
        let mut stream = self.connector.connect(name, stream).await?;
        let head = head.join("\r\n");
        let length = body.len();
        let text = format!(
            "{head}\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        // A server that refuses a large body closes the connection before it has read all of it.
        let _refused = stream.write_all(text.as_bytes()).await.is_err();
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        // The end of the connection may come without the end of TLS.
        let _cut = timeout(Duration::from_secs(20), read).await?.is_err();
        let response = String::from_utf8(response)?;
        let (head, body) = response.split_once("\r\n\r\n").context("no response")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, head.to_owned(), serde_json::from_str(body)?))
    }

    /// Opens a request whose body does not end, and sends so many bytes of it.
    async fn begin_body(&self, token: &str, size: usize) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost")?;
        let mut stream = self.connector.connect(name, stream).await?;
        let length = size + 1;
        let head = format!(
            "{POST_TASK}\r\n{JSON}\r\n{token}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b' '; size]).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// Sends a body of 2 MiB until its response has this status.
    async fn is_answered(&self, token: &str, wanted: u16) -> Result<String> {
        let large = " ".repeat(2 * 1024 * 1024);
        let mut last = 0;
        // A caller may send 60 requests at once.
        for _ in 0..50 {
            let head = [POST_TASK, JSON, token];
            let (status, head, _) = self.exchange(&head, &large).await?;
            if status == wanted {
                return Ok(head);
            }
            last = status;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("{last} instead of {wanted}")
    }

    /// Opens a stream, and reads until this text.
    async fn read_until(&self, head: &[&str], text: &str) -> Result<String> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost")?;
        let mut stream = self.connector.connect(name, stream).await?;
        let head = head.join("\r\n");
        let request = format!("{head}\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&response).contains(text) {
                let size = stream.read_buf(&mut response).await?;
                anyhow::ensure!(size > 0, "the stream ended");
            }
            anyhow::Ok(())
        };
        let is_found = timeout(Duration::from_secs(20), read).await;
        let response = String::from_utf8_lossy(&response).into_owned();
        is_found
            .with_context(|| format!("no {text} in {response}"))?
            .with_context(|| response.clone())?;
        Ok(response)
    }

    fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.heads))
    }
}

fn lock(heads: &Heads) -> MutexGuard<'_, Vec<String>> {
    heads.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves canned responses.
async fn serve_api(listener: TcpListener, heads: Heads) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(api_connection(stream, Arc::clone(&heads)));
    }
}

async fn api_connection(mut stream: TcpStream, heads: Heads) -> Result<()> {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(Ok(0), str::parse)?;
        while read.len() < end + length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        let body = read[end..end + length].to_vec();
        read.drain(..end + length);
        if head.contains("watch=true") {
            lock(&heads).push(head);
            return watch(&mut stream).await;
        }
        let (status, answer) = answer(&head, &body);
        lock(&heads).push(head);
        let answer = answer.to_string();
        let length = answer.len();
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
        );
        stream.write_all(text.as_bytes()).await?;
    }
}

/// Serves a watch: one change, and then nothing.
async fn watch(stream: &mut TcpStream) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let event = json!({ "type": "MODIFIED", "object": table(11, "Running") });
    let event = format!("{event}\n");
    let size = event.len();
    let text = format!(
        "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{event}\r\n"
    );
    stream.write_all(text.as_bytes()).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(())
}

/// Returns the list of one run.
fn table(version: u32, phase: &str) -> Value {
    let columns = ["Name", "Phase"].map(|name| json!({ "name": name, "type": "string" }));
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns,
        "metadata": { "resourceVersion": version.to_string() },
        "rows": [{ "cells": ["shop-7", phase], "object": { "kind": "PartialObjectMetadata",
            "metadata": { "name": "shop-7", "namespace": "team", "uid": "u7",
                "resourceVersion": version.to_string(),
                "creationTimestamp": "2026-01-01T00:00:00Z" } } }] })
}

/// Responds to a request, as a cluster would in which each task is submitted for the first time.
fn answer(head: &str, body: &[u8]) -> (u16, Value) {
    if !head.contains("authorization: bearer good") {
        return (401, failure(401, "Unauthorized"));
    }
    if head.contains("/selfsubjectreviews") {
        return (
            201,
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                "metadata": {}, "status": { "userInfo": { "username": "ann" } } }),
        );
    }
    if head.contains("as=table") && head.contains("/namespaces/team/") {
        return (200, table(10, "Pending"));
    }
    match head.starts_with("post ") {
        true => (201, serde_json::from_slice(body).unwrap_or_default()),
        false => (403, failure(403, "Forbidden")),
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code })
}

const POST_TASK: &str = "POST /api/v1/pm/tasks HTTP/1.1";
const JSON: &str = "Content-Type: application/json";
const GOOD: &str = "Authorization: Bearer good";
const TASK: &str = r#"{"id":7,"service_name":"shop","agent_name":"writer","markdown_files":[{"filename":"a.md","content":"A"}]}"#;

#[tokio::test]
async fn s3_11_a_task_is_submitted_with_the_callers_token_only() -> Result<()> {
    let stage = Stage::new().await?;
    let forged = [
        "Impersonate-User: admin",
        "Impersonate-Group: system:masters",
        "X-Remote-User: admin",
        "X-Forwarded-For: 10.0.0.1",
        "Cookie: a=canary",
    ];
    let head = [&[POST_TASK, JSON, GOOD][..], &forged[..]].concat();
    let (status, body) = stage.send(&head, TASK).await?;
    assert_eq!((status, &body["success"]), (200, &json!(true)), "{body}");
    assert_eq!(
        body["data"],
        json!({ "name": "task-7", "namespace": "orchestrator" })
    );
    let heads = stage.take_heads();
    assert_eq!(heads.len(), 2, "a review and a creation: {heads:?}");
    for head in heads {
        assert_eq!(head.matches("authorization: bearer good").count(), 1);
        for word in ["impersonate", "x-remote", "x-forwarded", "cookie", "canary"] {
            assert!(!head.contains(word), "{head}");
        }
    }
    // The name of the caller is known now.
    stage.send(&[POST_TASK, JSON, GOOD], TASK).await?;
    assert_eq!(stage.take_heads().len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_is_refused_early_does_not_reach_the_api_server() -> Result<()> {
    let stage = Stage::new().await?;
    let large = "x".repeat(3 * 1024 * 1024 + 1);
    let cases: [(&[&str], &str, u16); 7] = [
        (&[POST_TASK, JSON], TASK, 401),
        (&[POST_TASK, JSON, "Authorization: Basic YTpi"], TASK, 401),
        (&[POST_TASK, GOOD], TASK, 415),
        (
            &[POST_TASK, JSON, GOOD, "Content-Encoding: gzip"],
            TASK,
            415,
        ),
        (
            &[POST_TASK, JSON, GOOD, "Origin: https://evil.example"],
            TASK,
            403,
        ),
        (&["GET /api/v1/nowhere HTTP/1.1", GOOD], "", 404),
        (&["PUT /api/v1/pm/tasks HTTP/1.1", GOOD], "", 405),
    ];
    for (head, body, wanted) in cases {
        let (status, body) = stage.send(head, body).await?;
        assert_eq!(status, wanted, "{head:?}: {body}");
        assert!(stage.take_heads().is_empty(), "{head:?}");
    }
    // These callers were asked for their names, and nothing else.
    for (token, body, wanted) in [
        (GOOD, large.as_str(), 413),
        (GOOD, "{", 400),
        ("Authorization: Bearer forged", TASK, 401),
    ] {
        let (status, body) = stage.send(&[POST_TASK, JSON, token], body).await?;
        assert_eq!(status, wanted, "{body}");
        let heads = stage.take_heads();
        let is_review = |head: &String| head.contains("/selfsubjectreviews");
        assert!(heads.iter().all(is_review), "{heads:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_rejection_of_the_api_server_is_a_problem() -> Result<()> {
    let stage = Stage::new().await?;
    let get = "GET /api/v1/namespaces/team/taskruns/shop-7 HTTP/1.1";
    let (status, body) = stage.send(&[get, GOOD], "").await?;
    assert_eq!((status, &body["reason"]), (403, &json!("Denied")), "{body}");
    let (status, body) = stage.send(&[get, "Authorization: Bearer bad"], "").await?;
    assert_eq!(
        (status, &body["reason"]),
        (401, &json!("Unauthenticated")),
        "{body}"
    );
    let open = "GET /api/v1/openapi.json HTTP/1.1";
    let (status, body) = stage.send(&[open], "").await?;
    assert_eq!((status, &body["openapi"]), (200, &json!("3.1.0")));
    Ok(())
}

#[tokio::test]
async fn ten_wrong_tokens_block_others_from_this_address() -> Result<()> {
    let stage = Stage::new().await?;
    let get = "GET /api/v1/whoami HTTP/1.1";
    let post = "POST /api/v1/pm/tasks HTTP/1.1";
    let (status, _) = stage.send(&[post, JSON, GOOD], TASK).await?;
    assert_eq!(status, 200);
    for number in 0..12 {
        let token = format!("Authorization: Bearer wrong-{number}");
        let (status, _) = stage.send(&[get, &token], "").await?;
        assert_eq!(status, if number < 10 { 401 } else { 429 }, "{number}");
    }
    let (status, _) = stage.send(&[post, JSON, GOOD], TASK).await?;
    assert_eq!(status, 200, "a caller that was accepted before");
    Ok(())
}

#[tokio::test]
async fn a_browser_signs_in_and_its_writes_need_a_header() -> Result<()> {
    let stage = Stage::new().await?;
    let sign_in = "POST /auth/session HTTP/1.1";
    let by_page = "Orc-Request: 1";
    let cases: [(&[&str], &str, u16); 5] = [
        (&[sign_in, JSON, by_page], r#"{"token":"bad"}"#, 401),
        (&[sign_in, JSON, by_page], r#"{"token":"a b"}"#, 401),
        (&[sign_in, JSON, by_page], "{}", 400),
        (&[sign_in, JSON], r#"{"token":"good"}"#, 403),
        (&[sign_in, by_page], r#"{"token":"good"}"#, 415),
    ];
    for (head, body, wanted) in cases {
        let (status, body) = stage.send(head, body).await?;
        assert_eq!(status, wanted, "{head:?}: {body}");
    }
    let head = [sign_in, JSON, by_page];
    let (status, head, body) = stage.exchange(&head, r#"{"token":"good"}"#).await?;
    assert_eq!((status, &body["username"]), (200, &json!("ann")), "{body}");
    assert!(!body.to_string().contains("good"));
    let cookies = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_set = name.eq_ignore_ascii_case("set-cookie") && !value.ends_with("Max-Age=0");
        is_set.then(|| value.split(';').next()).flatten()
    });
    let cookies: Vec<&str> = cookies.collect();
    let cookie = format!("Cookie: {}", cookies.join("; "));
    assert!(!cookies.is_empty() && !cookie.contains("good"), "{head}");
    stage.take_heads();
    let (status, _) = stage.send(&[POST_TASK, JSON, &cookie], TASK).await?;
    assert_eq!(status, 403, "a form can send cookies");
    let evil = "Sec-Fetch-Site: cross-site";
    let (status, _) = stage
        .send(&[POST_TASK, JSON, &cookie, by_page, evil], TASK)
        .await?;
    assert_eq!(status, 403);
    assert!(stage.take_heads().is_empty());
    let (status, _) = stage
        .send(&[POST_TASK, JSON, &cookie, by_page], TASK)
        .await?;
    assert_eq!(status, 200);
    for head in stage.take_heads() {
        assert!(head.contains("authorization: bearer good"), "{head}");
        assert!(!head.contains("cookie"), "{head}");
    }
    let sign_out = "DELETE /auth/session HTTP/1.1";
    let (status, head, _) = stage.exchange(&[sign_out, by_page], "").await?;
    assert_eq!(status, 200);
    assert!(head.contains("Max-Age=0"), "{head}");
    Ok(())
}

#[tokio::test]
async fn bodies_that_do_not_end_leave_memory_for_another_caller() -> Result<()> {
    let stage = Stage::new().await?;
    let mut open = Vec::new();
    // 15 of the 16 MiB of a caller.
    for _ in 0..5 {
        open.push(stage.begin_body(GOOD, 3 * 1024 * 1024 - 1).await?);
    }
    let head = stage.is_answered(GOOD, 429).await?;
    let head = head.to_ascii_lowercase();
    assert!(head.contains("retry-after: 1"), "{head}");
    let bob = "Authorization: Bearer good-bob";
    let (status, body) = stage.send(&[POST_TASK, JSON, bob], TASK).await?;
    assert_eq!(status, 200, "{body}");
    drop(open);
    // Spaces are no JSON.
    stage.is_answered(GOOD, 400).await?;
    Ok(())
}

#[tokio::test]
async fn a_name_of_another_site_is_refused() -> Result<()> {
    let stage = Stage::new().await?;
    let rebound = "GET https://evil.example/api/v1/whoami HTTP/1.1";
    let (status, body) = stage.send(&[rebound, GOOD], "").await?;
    assert_eq!((status, &body["reason"]), (421, &json!("OtherHost")));
    assert!(stage.take_heads().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_not_permitted_has_a_code_and_no_event() -> Result<()> {
    let stage = Stage::new().await?;
    for path in [
        "runs/stream?kind=taskruns",
        "runs?namespace=other&kind=taskruns",
    ] {
        let get = format!("GET /api/v1/{path} HTTP/1.1");
        let (status, body) = stage.send(&[&get, GOOD], "").await?;
        assert_eq!((status, &body["reason"]), (403, &json!("Denied")), "{body}");
        let heads = stage.take_heads();
        assert!(heads[0].contains("as=table"), "{heads:?}");
        assert!(heads[0].contains("includeobject=metadata"), "{heads:?}");
    }
    Ok(())
}

#[tokio::test]
async fn streams_of_one_caller_share_a_watch_and_resume() -> Result<()> {
    let stage = Stage::new().await?;
    let get = "GET /api/v1/runs/stream?kind=taskruns&namespace=team HTTP/1.1";
    let new = [get, GOOD];
    // The data of an event follows its id.
    let change = "id: 11\ndata: {";
    let (one, other) = tokio::join!(
        stage.read_until(&new, change),
        stage.read_until(&new, change)
    );
    for text in [one?, other?] {
        assert!(text.contains("content-type: text/event-stream"), "{text}");
        let at = |event: &str| text.find(&format!("event: {event}\n"));
        let order = [at("snapshot"), at("live"), at("put")];
        assert!(
            order.iter().all(Option::is_some) && order.is_sorted(),
            "{text}"
        );
        assert_eq!(text.matches(r#""phase":"Running""#).count(), 1, "{text}");
    }
    let heads = stage.take_heads();
    let watches = heads.iter().filter(|head| head.contains("watch=true"));
    assert_eq!(
        (heads.len(), watches.count()),
        (2, 1),
        "a list and a watch: {heads:?}"
    );
    // A client that knows the version of the list gets the change, and no snapshot.
    let known = [get, GOOD, "Last-Event-ID: 10"];
    let text = stage.read_until(&known, change).await?;
    assert!(
        !text.contains("snapshot") && !text.contains("resync"),
        "{text}"
    );
    // What an older client lacks is not kept.
    for id in ["9", "10-10", "x"] {
        let old = format!("Last-Event-ID: {id}");
        let text = stage.read_until(&[get, GOOD, &old], "event: live").await?;
        let (before, after) = text.split_once("event: resync").context(text.clone())?;
        assert!(!before.contains("event: ") && after.contains("event: snapshot"));
    }
    assert!(stage.take_heads().is_empty(), "the watch is still open");
    Ok(())
}

#[tokio::test]
async fn a_new_process_begins_its_watch_at_the_version_of_its_client() -> Result<()> {
    let stage = Stage::new().await?;
    let get = "GET /api/v1/runs/stream?kind=taskruns&namespace=team HTTP/1.1";
    let known = [get, GOOD, "Last-Event-ID: 9"];
    let text = stage.read_until(&known, "id: 11\ndata: {").await?;
    assert!(
        !text.contains("snapshot") && !text.contains("resync"),
        "{text}"
    );
    let heads = stage.take_heads();
    let watch = heads.iter().find(|head| head.contains("watch=true"));
    // Others that come back may know less than this one.
    let watch = watch.context("no watch")?;
    assert!(watch.contains("resourceversion=1&"), "{watch}");
    Ok(())
}
