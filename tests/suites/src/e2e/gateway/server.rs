//! The server itself: HTTP/2, certificates, the end of the process, and many connections.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::join_all;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Bytes,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::Signal,
};
use serde_json::json;
use testkit::{
    suite::{CannotRun, Env},
    wait::{met, until},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    attack_table::{Kind, withstood},
    client::{Answer, Call, HOST, Https, get, post, rest},
    document,
    fixture::{Stage, TASKS, new_run, task},
};
use crate::e2e::shell::Shell;

const WHO: &str = "/api/v1/whoami";

/// For a response on a machine with much to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Connections that say nothing.
pub(super) const SILENT: usize = 2000;

/// Descriptors that this process and the gateway need for them.
const DESCRIPTORS: u64 = 8192;

/// A connection with HTTP/2.
struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    driving: JoinSet<hyper::Result<()>>,
}

impl Http2 {
    async fn connect(https: &Https) -> Result<Self> {
        let io = TokioIo::new(https.open_http_2().await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let mut driving = JoinSet::new();
        driving.spawn(connection);
        Ok(Self { sender, driving })
    }

    async fn send(&self, call: &Call) -> Result<Answer> {
        let uri = format!("https://{HOST}{}", call.target);
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        for (name, value) in &call.headers {
            request = request.header(*name, HeaderValue::from_str(value)?);
        }
        let request = request.body(Full::new(Bytes::from(call.body.clone())))?;
        let mut sender = self.sender.clone();
        let exchange = async {
            let response = sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            anyhow::Ok(Answer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body,
            })
        };
        let answer = timeout(LIMIT, exchange).await.context("no response")??;
        document::check(call.method.as_str(), &call.target, &answer)?;
        Ok(answer)
    }
}

/// The API over HTTP/2: requests of one connection at the same time.
pub(super) async fn http_2(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let opened = Http2::connect(&stage.gateway.https).await?;
    let connection = &opened;
    let send = |call: Call| {
        let call = call.by(&ann.token);
        async move { connection.send(&call).await }
    };
    let who = send(get(WHO)).await?.is(200)?;
    ensure!(who["username"] == ann.user, "{who}");
    send(post(TASKS, &task(7))).await?.is(200)?;
    send(post(TASKS, &task(7))).await?.is(409)?;
    let run = send(post(stage.taskruns(), &new_run("shop", "writer"))).await?;
    run.is(201)?;
    send(get(stage.at("shop", "why"))).await?.is(200)?;
    let answers = join_all((0..30).map(|_| send(get(stage.at("shop", ""))))).await;
    for answer in answers {
        answer?.is(200)?;
    }
    let other = get(WHO).with("origin", "https://evil.example");
    send(other).await?.fails(403, "CrossOrigin")?;
    let own = get(WHO).with("origin", "https://localhost");
    send(own).await?.is(200)?;
    let anonymous = connection.send(&get(WHO)).await?;
    anonymous.fails(401, "Unauthenticated")?;
    Ok("38 requests on one connection, 30 of them at once".to_owned())
}

/// Floods of a connection with HTTP/2.
pub(super) async fn http_2_floods(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let https = &stage.gateway.https;
    // A header that is too large ends its stream, or its connection.
    let connection = Http2::connect(https).await?;
    let large = get(WHO).with("x-large", "a".repeat(64 * 1024));
    let is_rejected = match connection.send(&large.by(&ann.token)).await {
        Ok(answer) => answer.status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16(),
        // hyper responds without a body, which is no JSON.
        Err(_reset) => true,
    };
    let rejected = is_rejected.then_some(()).context("they were accepted");
    withstood(Kind::Request, "64 KiB of headers over HTTP/2", rejected)?;
    // Requests that are cancelled at once: each costs the server more than the client.
    let mut connection = Http2::connect(https).await?;
    for _ in 0..2000 {
        let call = get(WHO).by(&ann.token);
        let cancelled = timeout(Duration::from_micros(10), connection.send(&call));
        match cancelled.await {
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
        if connection.driving.try_join_next().is_some() {
            break;
        }
    }
    // Frames that are none.
    let mut garbage = https.open_http_2().await?;
    garbage
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await?;
    let _closed = garbage.write_all(&[0xff; 4096]).await.is_err();
    let closed = timeout(LIMIT, rest(&mut garbage)).await;
    withstood(
        Kind::Request,
        "frames that are none",
        closed.context("not closed"),
    )?;
    // Settings without an end.
    let mut settings = https.open_http_2().await?;
    settings
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await?;
    let frame = [0_u8, 0, 0, 4, 0, 0, 0, 0, 0];
    let flood = frame.repeat(20_000);
    // The server may stop to read them, or close the connection.
    let sent = timeout(Duration::from_secs(10), settings.write_all(&flood));
    let _is_stopped = sent.await.is_err();
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    let small = (memory < 256.0).then_some(());
    let small = small.with_context(|| format!("{memory:.0} MiB"));
    withstood(Kind::Flood, "resets and settings over HTTP/2", small)?;
    until("the caller to be served", LIMIT, async || {
        let status = stage.send(&ann, get(WHO)).await?.status;
        Ok(met(status == 200, || format!("{status}")))
    })
    .await?;
    Ok(format!(
        "large headers, 2,000 resets, garbage, settings: {memory:.0} MiB"
    ))
}

/// A new certificate is used for new connections, and a broken one is not.
pub(super) async fn rotation(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let https = &stage.gateway.https;
    let old = Http2::connect(https).await?;
    stage.break_key()?;
    // The gateway reads the files once a minute.
    let limit = Duration::from_secs(150);
    until("the log about a broken key", limit, async || {
        let log = stage.gateway.operator.log_text()?;
        let is_told = log.contains("the certificate stays as it was");
        Ok(met(is_told, || "no line".to_owned()))
    })
    .await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let next = https.trusting(&stage.rotate_certificate()?)?;
    until("the new certificate", limit, async || {
        Ok(match next.open().await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:#}")),
        })
    })
    .await?;
    let call = get(WHO).by(&ann.token);
    next.send(call.clone()).await?.is(200)?;
    ensure!(https.open().await.is_err(), "the old certificate is used");
    // A connection that is open stays.
    old.send(&call).await?.is(200)?;
    Ok("a broken key is reported, a new certificate is used".to_owned())
}

/// SIGTERM while a request is in flight: it is completed, and no new connection is accepted.
pub(super) async fn sigterm(env: Env) -> Result<String> {
    let mut stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let https = stage.gateway.https.clone();
    let call = post(TASKS, &task(7)).by(&ann.token);
    let mut stream = https.open().await?;
    let length = format!("content-length: {}", call.body.len());
    stream.write_all(call.head(&[&length]).as_bytes()).await?;
    let (first, second) = call.body.split_at(10);
    stream.write_all(first).await?;
    stream.flush().await?;
    sleep(Duration::from_millis(500)).await;
    let idle = https.open().await?;
    let begin = Instant::now();
    stage.gateway.operator.signal(Signal::SIGTERM)?;
    until(
        "the listener to be closed",
        Duration::from_secs(10),
        async || {
            let refused = TcpStream::connect(https.address).await.is_err();
            Ok(met(refused, || "it accepts".to_owned()))
        },
    )
    .await?;
    ensure!(
        stage.gateway.operator.has_ended()?.is_none(),
        "it ended at once"
    );
    stream.write_all(second).await?;
    stream.flush().await?;
    let read = timeout(LIMIT, rest(&mut stream))
        .await
        .context("no response")?;
    Answer::parse(&read)?.is(200)?;
    let took = begin.elapsed();
    drop(idle);
    let operator = &mut stage.gateway.operator;
    let end = Instant::now() + Duration::from_secs(25);
    let status = loop {
        if let Some(status) = operator.has_ended()? {
            break status;
        }
        ensure!(Instant::now() < end, "it does not end");
        sleep(Duration::from_millis(100)).await;
    };
    let log = operator.log_text()?;
    ensure!(status.success(), "it ended with {status}: {log}");
    stage.has_runs(1).await?;
    // Another replica takes over; then the stage ends as always.
    let next = stage.replica().await?;
    stage.gateway = next;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(409)?;
    stage.done().await?;
    Ok(format!(
        "completed {:.1} s after SIGTERM, code 0",
        took.as_secs_f64()
    ))
}

/// 2,000 connections that say nothing, half of them after the handshake.
pub(super) async fn silent(env: Env) -> Result<String> {
    raise_descriptors()?;
    let stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    let usual = slowest(&stage, &ann.token, 10).await?;
    let before = stage.gateway.operator.memory_mib("VmRSS")?;
    let mut held = hold_silent(&stage, SILENT).await?;
    let during = slowest(&stage, &ann.token, 40).await?;
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    let served = match during < Duration::from_secs(5) && memory < 512.0 {
        true => Ok(()),
        false => Err(anyhow!("{during:?} for a request, {memory:.0} MiB")),
    };
    withstood(Kind::Flood, "2,000 silent connections", served)?;
    held.shutdown().await;
    stage.done().await?;
    Ok(format!(
        "slowest request {:.2} s, without them {:.2} s; {:.0} MiB more",
        during.as_secs_f64(),
        usual.as_secs_f64(),
        memory - before
    ))
}

/// Allows this process, and the gateways that it starts, as many descriptors as the host permits. A container runtime does
/// the same.
///
/// # Errors
/// [`CannotRun`] if that is not enough.
pub(super) fn raise_descriptors() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if most < DESCRIPTORS {
        let why = format!("{most} descriptors are allowed, {DESCRIPTORS} are needed");
        return Err(CannotRun(why).into());
    }
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Opens so many connections that say nothing, half of them after the handshake. Returns when the gateway has most of them.
pub(super) async fn hold_silent(stage: &Stage, count: usize) -> Result<JoinSet<()>> {
    let mut held = JoinSet::new();
    for number in 0..count {
        let https = stage.gateway.https.clone();
        held.spawn(hold(https, number % 2 == 0));
    }
    let descriptors = format!("/proc/{}/fd", stage.gateway.operator.pid()?);
    until("the silent connections", LIMIT, async || {
        let open = std::fs::read_dir(&descriptors)?.count();
        Ok(met(open > count * 3 / 4, || format!("{open}")))
    })
    .await?;
    Ok(held)
}

/// Sends so many requests one after another. Returns the longest time.
async fn slowest(stage: &Stage, token: &str, count: usize) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for _ in 0..count {
        let start = Instant::now();
        let call = get(WHO).by(token);
        stage.gateway.https.send(call).await?.is(200)?;
        slowest = slowest.max(start.elapsed());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(slowest)
}

/// Holds a connection, and opens it again when it is closed.
async fn hold(https: Https, has_tls: bool) {
    loop {
        let is_open = match has_tls {
            true => match https.open().await {
                Ok(mut stream) => {
                    rest(&mut stream).await;
                    true
                }
                Err(_closed) => false,
            },
            false => hold_plain(&https).await.is_ok(),
        };
        if !is_open {
            sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn hold_plain(https: &Https) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let stream = socket.connect(https.address).await?;
    stream.readable().await
}

/// The chart with the gateway enabled and disabled, as the API server sees it.
pub(super) async fn chart(env: Env) -> Result<String> {
    let shell = Shell::of_case(&env)?;
    let namespace = &env.namespace;
    let render = format!(
        "helm template orchestrator charts/orchestrator --namespace {namespace} --set crds.install=false"
    );
    let show = "--show-only templates/gateway.yaml";
    let disabled = shell.check(&render).await?;
    ensure!(
        !disabled.contains("orchestrator-gateway"),
        "it is on by default"
    );
    let values = "--set gateway.enabled=true --set gateway.tlsSecret=gateway-tls";
    let apply = format!("{render} {values} {show} | kubectl apply --namespace {namespace}");
    shell
        .check(&format!("{apply} --dry-run=server -f -"))
        .await?;
    // Without an image, the Pods do not start: the objects and the permissions are what counts.
    shell.check(&format!("{apply} -f -")).await?;
    let account = format!("system:serviceaccount:{namespace}:orchestrator-gateway");
    let nobody = format!("system:serviceaccount:{namespace}:nobody");
    let list =
        |user: &str| format!("kubectl auth can-i --list --no-headers -n {namespace} --as {user}");
    let own = shell.check(&list(&account)).await?;
    ensure!(
        own == shell.check(&list(&nobody)).await?,
        "it has permissions: {own}"
    );
    let deployment = shell
        .get(&format!("deployment orchestrator-gateway -n {namespace}"))
        .await?;
    let pod = &deployment["spec"]["template"]["spec"];
    let arguments = &pod["containers"][0]["args"];
    let wanted = json!([
        "--operator=gateway",
        "--config=/config/config.yaml",
        "--tls-directory=/tls"
    ]);
    ensure!(*arguments == wanted, "{arguments}");
    ensure!(
        pod["automountServiceAccountToken"] == false,
        "its Pods have a token"
    );
    ensure!(
        !pod.to_string().contains("\"serviceAccountToken\""),
        "a volume has a token"
    );
    let delete = format!("{render} {values} {show} | kubectl delete --namespace {namespace} -f -");
    shell.check(&delete).await?;
    let kinds = "deployments,services,networkpolicies,poddisruptionbudgets,serviceaccounts";
    let component = "app.kubernetes.io/component=gateway";
    let left = shell
        .get(&format!("{kinds} -n {namespace} -l {component}"))
        .await?;
    ensure!(left["items"] == json!([]), "something is left: {left}");
    Ok("enabled without permissions and without a token; disabled again".to_owned())
}
