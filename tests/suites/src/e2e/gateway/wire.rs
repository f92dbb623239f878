//! Requests that browsers, proxies and HTTP parsers could misread.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use flate2::{Compression, write::GzEncoder};
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    attack_table::{Kind, listed, withstood},
    client::{Answer, Call, get, post, rest},
    document,
    fixture::{Stage, TASKS, new_run, task},
};

pub(super) const WHO: &str = "/api/v1/whoami";

/// The gateway closes slow connections after 10 s. A machine without time to spare needs longer.
const SLOW: Duration = Duration::from_secs(30);

/// Maximum size of a body.
pub(super) const BODY: usize = 3 * 1024 * 1024;

/// Requests that a page of another site can make a browser send.
pub(super) async fn browsers(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let submit = || post(stage.taskruns(), &new_run("forged", "writer"));
    let typed = |kind: &str| submit().without("content-type").with("content-type", kind);
    let (media, origin) = ((415, "UnsupportedMediaType"), (403, "CrossOrigin"));
    let attacks = [
        ("a form as text", typed("text/plain"), media),
        ("a form", typed("application/x-www-form-urlencoded"), media),
        (
            "a form with files",
            typed("multipart/form-data; boundary=x"),
            media,
        ),
        (
            "a beacon without a type",
            submit().without("content-type"),
            media,
        ),
        (
            "two types",
            submit().with("content-type", "text/plain"),
            media,
        ),
        (
            "another site",
            submit().with("sec-fetch-site", "cross-site"),
            origin,
        ),
        (
            "another host of the site",
            submit().with("sec-fetch-site", "same-site"),
            origin,
        ),
        (
            "an unknown site",
            submit().with("sec-fetch-site", "x"),
            origin,
        ),
        (
            "another origin",
            submit().with("origin", "https://evil.example"),
            origin,
        ),
        ("an opaque origin", submit().with("origin", "null"), origin),
        (
            "the origin without TLS",
            submit().with("origin", "http://localhost"),
            origin,
        ),
        (
            "the origin with another port",
            submit().with("origin", "https://localhost:1"),
            origin,
        ),
        (
            "an origin that begins the same",
            submit().with("origin", "https://localhost.evil.example"),
            origin,
        ),
        (
            "a read of another site",
            get(WHO).with("sec-fetch-site", "cross-site"),
            origin,
        ),
    ];
    for (name, call, (status, reason)) in &attacks {
        let answer = stage.send(&ann, call.clone()).await?;
        withstood(Kind::Browser, name, answer.fails(*status, reason))?;
        let allowed = answer.headers.get("access-control-allow-origin");
        ensure!(allowed.is_none(), "CORS is {allowed:?}");
    }
    stage.has_runs(0).await?;
    let preflight = Call::new(Method::OPTIONS, stage.taskruns())
        .with("origin", "https://evil.example")
        .with("access-control-request-method", "POST");
    let answer = stage.send_anonymous(preflight).await?;
    withstood(
        Kind::Browser,
        "a preflight request",
        answer.fails(405, "MethodNotAllowed"),
    )?;
    let own = submit()
        .with("origin", "https://localhost")
        .with("sec-fetch-site", "same-origin");
    stage.send(&ann, own).await?.is(201)?;
    // A name that points to the gateway: the certificate is for another one.
    let rebound = stage.gateway.https.open_as("evil.example").await;
    let refused = match rebound {
        Ok(_) => Err(anyhow!("the certificate is for every name")),
        Err(_wrong_name) => Ok(()),
    };
    withstood(Kind::Browser, "DNS rebinding", refused)?;
    // The suite checks these headers in each response.
    let framed = stage.send(&ann, get(WHO)).await?;
    withstood(Kind::Browser, "framing", framed.has_headers())?;
    let names = attacks.iter().map(|(name, ..)| *name);
    Ok(listed(names.chain([
        "a preflight request",
        "DNS rebinding",
        "framing",
    ])))
}

/// Bodies that are deep, huge, compressed, or no JSON.
pub(super) async fn bodies(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let submit = |body: Vec<u8>| post(stage.taskruns(), &json!({})).body(body);
    let valid = new_run("shop", "writer").to_string().into_bytes();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&valid)?;
    let gzip = gzip.finish()?;
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 64 * 1024 * 1024])?;
    let bomb = bomb.finish()?;
    let nested = |depth: usize| {
        let field = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"name":{field}}}"#).into_bytes()
    };
    let padded = |size: usize| {
        let mut body = valid.clone();
        body.resize(size, b' ');
        body
    };
    let encoded = |call: Call, how: &str| call.with("content-encoding", how);
    let (invalid, media) = ((400, "InvalidRequest"), (415, "UnsupportedMediaType"));
    let text = |text: &str| submit(text.as_bytes().to_vec());
    let attacks = [
        ("33 levels", submit(nested(33)), invalid),
        ("a million levels", submit(nested(1_000_000)), invalid),
        (
            "a million open brackets",
            text(&"[".repeat(1_000_000)),
            invalid,
        ),
        (
            "one byte too many",
            submit(padded(BODY + 1)),
            (413, "TooLarge"),
        ),
        ("12 MiB", submit(padded(4 * BODY)), (413, "TooLarge")),
        ("gzip", encoded(submit(gzip.clone()), "gzip"), media),
        ("a gzip bomb", encoded(submit(bomb), "gzip"), media),
        ("brotli", encoded(submit(gzip.clone()), "br"), media),
        (
            "gzip twice",
            encoded(submit(gzip.clone()), "gzip, gzip"),
            media,
        ),
        ("gzip without its header", submit(gzip), invalid),
        (
            "no UTF-8",
            submit(b"{\"name\":\"\xff\xfe\"}".to_vec()),
            invalid,
        ),
        ("UTF-16", submit(b"\xff\xfe{\0}\0".to_vec()), invalid),
        ("a byte order mark", text("\u{feff}{}"), invalid),
        (
            "half of a surrogate pair",
            text(r#"{"name":"\ud800"}"#),
            invalid,
        ),
        ("a NUL after the end", text("{}\0"), invalid),
        ("two documents", text("{}{}"), invalid),
        (
            "a duplicate field",
            text(r#"{"name":"a","name":"b"}"#),
            invalid,
        ),
        (
            "a number without an end",
            text(&format!("{{\"taskId\":{}}}", "9".repeat(100_000))),
            invalid,
        ),
        ("an exponent", text(r#"{"taskId":1e999999999}"#), invalid),
        ("NaN", text(r#"{"taskId":NaN}"#), invalid),
        (
            "a prototype",
            text(r#"{"__proto__":{"name":"a"}}"#),
            invalid,
        ),
        (
            "an array of the fields",
            text(r#"["shop",7,"shop","writer",[]]"#),
            invalid,
        ),
        ("a read with a body", get(WHO).body("{}"), invalid),
    ];
    for (name, call, (status, reason)) in &attacks {
        let answer = stage.send(&ann, call.clone()).await?;
        withstood(Kind::Request, name, answer.fails(*status, reason))?;
    }
    stage.has_runs(0).await?;
    // The largest body that is allowed.
    stage.send(&ann, submit(padded(BODY))).await?.is(201)?;
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    ensure!(memory < 256.0, "the gateway had {memory:.0} MiB");
    Ok(listed(attacks.iter().map(|(name, ..)| *name)))
}

/// Heads whose body ends at another place for another parser. The smuggled request has no token.
pub(super) async fn smuggling(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let body = task(7).to_string();
    let smuggled = post(TASKS, &task(666)).with("connection", "close");
    let hidden = format!(
        "{}{}",
        smuggled.head(&[&format!("content-length: {}", smuggled.body.len())]),
        String::from_utf8(smuggled.body.clone())?
    );
    let first = post(TASKS, &task(7)).by(&ann.token);
    let with = |lines: &[&str], rest: &str| format!("{}{rest}", first.head(lines));
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let long = format!("content-length: {}", chunk.len() + hidden.len());
    let short = format!("content-length: {}", body.len());
    let both = format!("{body}{hidden}");
    let chunked = "transfer-encoding: chunked";
    let attacks = [
        (
            "a length and chunks",
            with(&[&long, chunked], &format!("{chunk}{hidden}")),
        ),
        (
            "chunks and a length",
            with(&[chunked, "content-length: 4"], &format!("{chunk}{hidden}")),
        ),
        ("two lengths", with(&[&short, "content-length: 0"], &both)),
        (
            "two lengths in a header",
            with(&["content-length: 0, 5"], &both),
        ),
        ("a length with a sign", with(&["content-length: +5"], &both)),
        ("a negative length", with(&["content-length: -1"], &both)),
        (
            "a hexadecimal length",
            with(&["content-length: 0x5"], &both),
        ),
        (
            "a length above 64 bits",
            with(&["content-length: 99999999999999999999"], &both),
        ),
        (
            "a blank before the colon",
            with(&["content-length : 5"], &both),
        ),
        (
            "chunks that are not last",
            with(
                &["transfer-encoding: chunked, identity"],
                &format!("{chunk}{hidden}"),
            ),
        ),
        (
            "an unknown encoding",
            with(
                &["transfer-encoding: xchunked"],
                &format!("{chunk}{hidden}"),
            ),
        ),
        (
            "a chunk above 64 bits",
            with(
                &[chunked],
                &format!("fffffffffffffffff\r\n{body}\r\n0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "a chunk with a sign",
            with(&[chunked], &format!("+5\r\n{body}\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "a folded header",
            with(&["x-a: b\r\n content-length: 0", &short], &both),
        ),
        (
            "a line in a header",
            with(&["x-a: b\rcontent-length: 0", &short], &both),
        ),
        ("a NUL in a header", with(&["x-a: b\0", &short], &both)),
        ("a pipelined request", with(&[&short], &both)),
    ];
    for (name, bytes) in &attacks {
        let read = stage.gateway.https.raw(bytes.as_bytes());
        let read = timeout(SLOW, read)
            .await
            .with_context(|| format!("'{name}'"))??;
        let text = String::from_utf8_lossy(&read).into_owned();
        // The hidden request is either not read, or is a request of its own, without a token.
        let codes: Vec<&str> = text
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|response| response.get(..3).unwrap_or_default())
            .collect();
        let is_safe = match codes.as_slice() {
            [] | ["400"] => true,
            [first, second] => ["200", "409"].contains(first) && *second == "401",
            [one] => ["200", "409"].contains(one) && text.contains("connection: close"),
            _ => false,
        };
        let safe = is_safe
            .then_some(())
            .with_context(|| format!("{codes:?}: {text}"));
        withstood(Kind::Request, name, safe)?;
        let run = stage.runs().get_opt("task-666").await?;
        withstood(
            Kind::Request,
            name,
            run.is_none()
                .then_some(())
                .context("the hidden request was carried out"),
        )?;
    }
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Heads that are too large, not HTTP/1.1, or not encrypted.
pub(super) async fn heads(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let valid = |more: &[&str]| get(WHO).by(&ann.token).head(more);
    let many: Vec<String> = (0..100).map(|number| format!("x-{number}: a")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let large = format!("x-large: {}", "a".repeat(64 * 1024));
    let target = get(format!("{WHO}?{}", "a".repeat(64 * 1024))).head(&[]);
    let attacks: Vec<(&str, String, &[&str])> = vec![
        ("a header of 64 KiB", valid(&[&large]), &["431"]),
        ("100 headers", valid(&many), &["431"]),
        ("an address of 64 KiB", target, &["414", "431"]),
        ("HTTP/0.9", format!("GET {WHO}\r\n\r\n"), &["400"]),
        (
            "HTTP/3.0",
            format!("GET {WHO} HTTP/3.0\r\n\r\n"),
            &["400", "505"],
        ),
        (
            "a blank in the address",
            format!("GET {WHO} x HTTP/1.1\r\nhost: a\r\n\r\n"),
            &["400"],
        ),
        (
            "no request",
            "\u{1}\u{2}\u{3}\u{4}\r\n\r\n".to_owned(),
            &["400"],
        ),
        (
            "HTTP/2 without its agreement",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            &["400", "505"],
        ),
    ];
    for (name, text, wanted) in &attacks {
        let read = stage.gateway.https.raw(text.as_bytes());
        let read = timeout(SLOW, read)
            .await
            .with_context(|| format!("'{name}'"))??;
        let text = String::from_utf8_lossy(&read).into_owned();
        let code = text
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        // The server may also close the connection without a response.
        let is_rejected = text.is_empty() || code.is_some_and(|code| wanted.contains(&code));
        withstood(
            Kind::Request,
            name,
            is_rejected.then_some(()).context(text.clone()),
        )?;
    }
    let mut plain = TcpStream::connect(stage.gateway.https.address).await?;
    plain.write_all(valid(&[]).as_bytes()).await?;
    let mut read = Vec::new();
    let _closed = timeout(SLOW, plain.read_to_end(&mut read)).await?.is_err();
    let text = String::from_utf8_lossy(&read).into_owned();
    let is_rejected = !text.contains("HTTP/");
    withstood(
        Kind::Request,
        "HTTP without TLS",
        is_rejected.then_some(()).context(text),
    )?;
    for method in ["TRACE", "OPTIONS", "PURGE", "PROPFIND"] {
        let call = Call::new(Method::from_bytes(method.as_bytes())?, WHO);
        let answer = stage.send(&ann, call).await?;
        withstood(Kind::Request, method, answer.fails(405, "MethodNotAllowed"))?;
    }
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let names = attacks.iter().map(|(name, ..)| *name);
    Ok(listed(names.chain([
        "HTTP without TLS",
        "TRACE",
        "OPTIONS",
        "PURGE",
        "PROPFIND",
    ])))
}

/// Heads that never end: the connection is closed, and others are served meanwhile.
pub(super) async fn slow_heads(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let begin = Instant::now();
    let silent = async {
        let mut stream = TcpStream::connect(stage.gateway.https.address).await?;
        let mut read = [0; 16];
        // No TLS at all.
        closed(stream.read(&mut read)).await
    };
    let half = async {
        let mut stream = stage.gateway.https.open().await?;
        stream
            .write_all(b"GET /api/v1/whoami HTTP/1.1\r\nhost: a\r\n")
            .await?;
        closed(async { Ok(rest(&mut stream).await.len()) }).await
    };
    let dribble = async {
        let mut stream = stage.gateway.https.open().await?;
        stream
            .write_all(b"GET /api/v1/whoami HTTP/1.1\r\nhost: a\r\n")
            .await?;
        for _ in 0..SLOW.as_secs() {
            sleep(Duration::from_secs(1)).await;
            let is_closed = stream.write_all(b"x-a: b\r\n").await.is_err();
            if is_closed || stream.flush().await.is_err() {
                return Ok(());
            }
        }
        Err(anyhow!("not closed within {SLOW:?}"))
    };
    let served = async {
        for _ in 0..8 {
            let start = Instant::now();
            stage.send(&ann, get(WHO)).await?.is(200)?;
            ensure!(start.elapsed() < Duration::from_secs(5), "a request waited");
            sleep(Duration::from_secs(1)).await;
        }
        anyhow::Ok(())
    };
    let (silent, half, dribble, served) = tokio::join!(silent, half, dribble, served);
    withstood(Kind::Request, "no handshake", silent)?;
    withstood(Kind::Request, "half of a head", half)?;
    withstood(Kind::Request, "a head without an end", dribble)?;
    served?;
    Ok(format!(
        "closed after {:.0} s; others were served",
        begin.elapsed().as_secs_f64()
    ))
}

/// Waits for the end of a connection.
async fn closed(end: impl Future<Output = std::io::Result<usize>>) -> Result<()> {
    match timeout(SLOW, end).await {
        Ok(Ok(_) | Err(_)) => Ok(()),
        Err(_elapsed) => Err(anyhow!("not closed within {SLOW:?}")),
    }
}

/// Bodies that do not arrive.
pub(super) async fn slow_bodies(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let begin = Instant::now();
    let submit = post(stage.taskruns(), &new_run("shop", "writer")).by(&ann.token);
    let stopped = slow_body(stage, &submit, "content-length: 1000", b"{\"name\":");
    let chunks = slow_body(
        stage,
        &submit,
        "transfer-encoding: chunked",
        b"3\r\n{  \r\n",
    );
    let (stopped, chunks) = tokio::join!(stopped, chunks);
    for (name, answer) in [("a body that stops", stopped), ("chunks that stop", chunks)] {
        let answer = answer.with_context(|| name.to_owned())?;
        withstood(Kind::Request, name, answer.fails(408, "SlowRequest"))?;
        document::check("POST", &submit.target, &answer)?;
    }
    let took = begin.elapsed();
    ensure!(took > Duration::from_secs(8), "closed after {took:?}");
    stage.has_runs(0).await?;
    Ok(format!("408 after {:.0} s", took.as_secs_f64()))
}

/// Sends the beginning of a body, and returns the response.
pub(super) async fn slow_body(
    stage: &Stage,
    call: &Call,
    length: &str,
    begin: &[u8],
) -> Result<Answer> {
    let mut stream = stage.gateway.https.open().await?;
    let head = call.head(&[length, "connection: close"]);
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(begin).await?;
    stream.flush().await?;
    let read = timeout(SLOW, rest(&mut stream)).await;
    Answer::parse(&read.context("no response")?)
}
