//! Browsers that sign in, authenticating proxies, and other names of the server.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::suite::Env;

use super::{
    attack_table::{Kind, listed, withstood},
    client::{Answer, Call, delete, get, post},
    fixture::{Caller, Options, Stage, TASKS, task},
    issuer::{Claims, Key},
};

const WHO: &str = "/api/v1/whoami";
const SESSION: &str = "/auth/session";

/// The header that no form can send.
const REQUEST: &str = "orc-request";

/// Beginning of the names of the cookies.
const COOKIE: &str = "__Host-orc-session-";

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

async fn with_key(env: Env, key: &'static str) -> Result<Stage> {
    let options = Options {
        session_key: Some(key),
        ..Options::default()
    };
    Stage::with(env, options).await
}

fn sign_in_call(token: &str) -> Call {
    post(SESSION, &json!({ "token": token })).with(REQUEST, "1")
}

/// Signs in. Returns the header with which a browser sends the cookies.
async fn sign_in(stage: &Stage, caller: &Caller) -> Result<String> {
    let answer = stage.send_anonymous(sign_in_call(&caller.token)).await?;
    let body = answer.is(200)?;
    ensure!(body["username"] == caller.user, "{body}");
    let cookies = cookies(&answer)?;
    ensure!(!cookies.is_empty(), "no cookie");
    ensure!(!cookies.contains(&caller.token), "a cookie has the token");
    Ok(cookies)
}

/// Returns the cookies that a browser stores. They must be protected from scripts and other sites.
fn cookies(answer: &Answer) -> Result<String> {
    let mut kept = Vec::new();
    for header in answer.headers.get_all("set-cookie") {
        let header = header.to_str()?;
        for wanted in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
            ensure!(header.contains(wanted), "'{header}' has no '{wanted}'");
        }
        ensure!(header.starts_with(COOKIE), "'{header}'");
        let pair = header.split(';').next().context("no cookie")?;
        if !header.contains("Max-Age=0") {
            kept.push(pair.to_owned());
        }
    }
    Ok(kept.join("; "))
}

/// A browser signs in, reads, writes and signs out.
pub(super) async fn signed_in(env: Env) -> Result<String> {
    let stage = with_key(env, KEY).await?;
    let ann = stage.editor("ann").await?;
    let cookies = sign_in(&stage, &ann).await?;
    let who = get(WHO).with("cookie", &cookies);
    let body = stage.send_anonymous(who.clone()).await?.is(200)?;
    ensure!(body["username"] == ann.user, "{body}");
    let submit = post(TASKS, &task(7)).with("cookie", &cookies);
    let answer = stage.send_anonymous(submit.clone()).await?;
    withstood(
        Kind::Browser,
        "a form with a session",
        answer.refuses(403, "Orc-Request"),
    )?;
    stage.has_runs(0).await?;
    let answer = stage.send_anonymous(submit.with(REQUEST, "1")).await?;
    answer.is(200)?;
    // Another replica has the same key, and no state.
    let other = stage.replica().await?;
    other.https.send(who.clone()).await?.is(200)?;
    other.operator.stop().await?;
    let out = delete(SESSION).with("cookie", &cookies).with(REQUEST, "1");
    let answer = stage.send_anonymous(out).await?;
    answer.is(200)?;
    let removed = answer.headers.get_all("set-cookie").iter().count();
    ensure!(
        removed > 0 && self::cookies(&answer)?.is_empty(),
        "the cookies stay"
    );
    stage.done().await?;
    Ok("signed in, at two replicas; writes need a header; signed out".to_owned())
}

/// Cookies and sign-ins that are not valid.
pub(super) async fn attacks(env: Env) -> Result<String> {
    let other = with_key(env.clone(), OTHER_KEY).await?;
    let eve = other.editor("eve").await?;
    let foreign = sign_in(&other, &eve).await?;
    other.done().await?;
    let stage = with_key(env, KEY).await?;
    let ann = stage.editor("ann").await?;
    let cookies = sign_in(&stage, &ann).await?;
    let (name, value) = cookies.split_once('=').context("no cookie")?;
    let changed: String = value.chars().rev().collect();
    let forged = Key::generate("forged")?.sign(&Claims::of_token(&ann.token)?)?;
    stage.keep_secret(&forged);
    let read = |cookies: String| get(WHO).with("cookie", cookies);
    let (no, cross) = ((401, "Unauthenticated"), (403, "CrossOrigin"));
    let body = json!({ "token": ann.token });
    let attacks = [
        ("a changed cookie", read(format!("{name}={changed}")), no),
        (
            "half of a cookie",
            read(format!("{name}={}", &value[..value.len() / 2])),
            no,
        ),
        ("a cookie of another key", read(foreign), no),
        (
            "the token as a cookie",
            read(format!("{name}={}", ann.token)),
            no,
        ),
        ("a cookie twice", read(format!("{cookies}; {cookies}")), no),
        (
            "a cookie of another name",
            read(format!("orc-session-0={value}")),
            no,
        ),
        ("a forged token", sign_in_call(&forged), no),
        ("no token", sign_in_call(""), no),
        (
            "a sign-in of another site",
            sign_in_call(&ann.token).with("origin", "https://evil.example"),
            cross,
        ),
        ("a sign-in without the header", post(SESSION, &body), cross),
        ("a sign-out without the header", delete(SESSION), cross),
        (
            "a sign-in as a form",
            sign_in_call(&ann.token)
                .without("content-type")
                .with("content-type", "text/plain"),
            (415, "UnsupportedMediaType"),
        ),
        (
            "a large sign-in",
            sign_in_call("").body(" ".repeat(1024 * 1024)),
            (413, "TooLarge"),
        ),
        (
            "another field",
            post(SESSION, &json!({ "token": ann.token, "user": "admin" })).with(REQUEST, "1"),
            (400, "InvalidRequest"),
        ),
    ];
    for (attack, call, (status, reason)) in &attacks {
        let answer = stage.send_anonymous(call.clone()).await?;
        withstood(Kind::Browser, attack, answer.fails(*status, reason))?;
        let is_signed_in = answer.headers.contains_key("set-cookie");
        ensure!(!is_signed_in, "'{attack}' got a cookie");
    }
    stage.done().await?;
    Ok(listed(attacks.iter().map(|(attack, ..)| *attack)))
}

/// Without a key, browsers cannot sign in.
pub(super) async fn disabled(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let answer = stage.send_anonymous(sign_in_call(&ann.token)).await?;
    answer.fails(404, "NotInstalled")?;
    Ok("404".to_owned())
}

/// Names that are not those of the server: DNS rebinding.
pub(super) async fn hosts(env: Env) -> Result<String> {
    let options = Options {
        lines: "  hosts: [localhost]\n",
        ..Options::default()
    };
    let stage = Stage::with(env, options).await?;
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let with_port = get(WHO).with("host", "LOCALHOST:8443");
    stage.send(&ann, with_port).await?.is(200)?;
    let names = [
        "evil.example",
        "localhost.evil.example",
        "evil.example:443",
        "localhost@evil.example",
        "127.0.0.1",
        "[::1]",
        "",
    ];
    for name in names {
        for call in [get(WHO), get("/api/v1/openapi.json"), post(TASKS, &task(7))] {
            let is_seed = call.target == TASKS;
            let answer = stage.send(&ann, call.with("host", name)).await?;
            let rejected = match is_seed {
                true => answer.refuses(421, "Host"),
                false => answer.fails(421, "OtherHost"),
            };
            withstood(Kind::Browser, &format!("the host '{name}'"), rejected)?;
        }
    }
    stage.has_runs(0).await?;
    stage.done().await?;
    Ok(listed(names))
}

/// The token of an authenticating proxy.
pub(super) async fn proxy(env: Env) -> Result<String> {
    let options = Options {
        lines: "  proxyHeader: X-Auth-Token\n",
        ..Options::default()
    };
    let stage = Stage::with(env, options).await?;
    let (ann, vic) = (stage.editor("ann").await?, stage.viewer("vic").await?);
    let header = "x-auth-token";
    let who = get(WHO).with(header, &ann.token);
    let body = stage.send_anonymous(who).await?.is(200)?;
    ensure!(body["username"] == ann.user, "{body}");
    let submit = || post(TASKS, &task(7)).with(header, &ann.token);
    let answer = stage.send_anonymous(submit()).await?;
    withstood(
        Kind::Browser,
        "a form through the proxy",
        answer.refuses(403, "Orc-Request"),
    )?;
    // The client's own token counts, so the header adds no permission.
    let both = submit().with(REQUEST, "1").by(&vic.token);
    let answer = stage.send_anonymous(both).await?;
    withstood(
        Kind::Identity,
        "a second token",
        answer.refuses(403, &vic.user),
    )?;
    let twice = submit().with(REQUEST, "1").with(header, &vic.token);
    let answer = stage.send_anonymous(twice).await?;
    withstood(
        Kind::Identity,
        "the header of a proxy twice",
        answer.refuses(401, "twice"),
    )?;
    stage.has_runs(0).await?;
    stage
        .send_anonymous(submit().with(REQUEST, "1"))
        .await?
        .is(200)?;
    stage.done().await?;
    Ok("the token of the proxy counts, if the client has none".to_owned())
}
