//! Tokens that the API server accepts, and tokens that it does not.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Result, anyhow, bail, ensure};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
    config::AuthInfo,
};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    attack_table::{Kind, listed, withstood},
    client::{Call, get, post},
    fixture::{Caller, Stage, TASKS, context, context_of, editor, task, token_of},
    issuer::{AUDIENCE, Claims, Issuer, Key},
};

const WHO: &str = "/api/v1/whoami";

/// A token of a ServiceAccount.
pub(super) async fn service_account(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let body = stage.send(&ann, get(WHO)).await?.is(200)?;
    let groups = body["groups"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(
        body["username"] == ann.user && groups.contains(&json!("system:serviceaccounts")),
        "{body}"
    );
    // The name of the scheme has no case, as in RFC 9110.
    let lower = get(WHO).with("authorization", format!("bearer {}", ann.token));
    stage.send_anonymous(lower).await?.is(200)?;
    Ok(format!("authenticated as {}", ann.user))
}

/// Ways to send no token, or something else than one token.
pub(super) async fn missing(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let (token, bearer) = (&ann.token, format!("Bearer {}", ann.token));
    let header = |value: &str| get(WHO).with("authorization", value);
    let attacks: Vec<(&str, Call)> = vec![
        ("no token", get(WHO)),
        ("an empty header", header("")),
        ("a scheme without a token", header("Bearer ")),
        ("basic authentication", header("Basic YWRtaW46YWRtaW4=")),
        ("a token without a scheme", header(token)),
        (
            "two tokens in a header",
            header(&format!("{bearer}, {bearer}")),
        ),
        (
            "two headers",
            header(&bearer).with("authorization", bearer.clone()),
        ),
        ("a token with more words", header(&format!("{bearer} x"))),
        (
            "a token above 16 KiB",
            header(&format!("Bearer {}", "x".repeat(16_385))),
        ),
        (
            "a token in a cookie",
            get(WHO).with("cookie", format!("__Host-session={token}; token={token}")),
        ),
        // In the address, a token would be in logs of proxies.
        (
            "a token in the query",
            get(format!("{WHO}?access_token={token}")),
        ),
        (
            "a token of an authenticating proxy",
            get(WHO).with("x-forwarded-access-token", token.clone()),
        ),
    ];
    // Each from an address of its own: ten failures would block the address.
    for ((name, call), last) in attacks.iter().zip(10..) {
        let from = Ipv4Addr::new(127, 0, 0, last);
        let answer = stage.gateway.https.send_from(from, call.clone()).await?;
        let rejected = answer.fails(401, "Unauthenticated");
        withstood(Kind::Token, name, rejected)?;
    }
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Tokens with a wrong signature, made from one that is accepted.
pub(super) async fn forged(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let parts: Vec<&str> = ann.token.split('.').collect();
    let [head, claims, signature] = parts.as_slice() else {
        bail!("the token has {} parts", parts.len());
    };
    let mut claimed = Claims::of_token(&ann.token)?;
    claimed.set("sub", json!("system:serviceaccount:kube-system:admin"));
    let key = Key::generate("forged")?;
    let none = Claims::encode(&json!({ "alg": "none" }));
    let attacks = [
        (
            "a changed signature",
            [*head, *claims, reversed(signature).as_str()].join("."),
        ),
        ("no signature", [*head, *claims, ""].join(".")),
        (
            "the algorithm 'none'",
            [none.as_str(), *claims, ""].join("."),
        ),
        (
            "other claims with the old signature",
            [*head, claimed.text().as_str(), *signature].join("."),
        ),
        (
            "the same claims with another key",
            key.sign(&Claims::of_token(&ann.token)?)?,
        ),
        ("other claims with another key", key.sign(&claimed)?),
        ("a word", "letmein".to_owned()),
    ];
    for (name, token) in &attacks {
        stage.keep_secret(token);
        for call in [get(WHO), post(TASKS, &task(7))] {
            // Two failures of each address.
            let last = 20 + u8::try_from(name.len())?;
            let from = Ipv4Addr::new(127, 0, 0, last);
            let answer = stage.gateway.https.send_from(from, call.by(token)).await?;
            let rejected = answer.is(401).map(drop);
            withstood(Kind::Token, name, rejected)?;
        }
    }
    stage.has_runs(0).await?;
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// Tokens with a signature of the API server's own key.
pub(super) async fn expired(env: Env) -> Result<String> {
    let folders = &env.testbed("the key of the API server")?.folders;
    let pem = std::fs::read_to_string(folders.run.join("pki/service-account.key"))?;
    let key = Key::of_pem(&pem, "")?;
    let stage = Stage::new(env).await?;
    let ann = stage.editor("ann").await?;
    let valid = Claims::of_token(&ann.token)?;
    let is_accepted = stage
        .send_anonymous(get(WHO).by(&key.sign(&valid)?))
        .await?;
    // Otherwise the rejections would show nothing.
    is_accepted.is(200)?;
    let now = valid.number("iat");
    let mut other = valid.get("kubernetes.io");
    other["serviceaccount"]["uid"] = json!("6a4e7a14-0000-4000-8000-000000000000");
    // The API server allows clocks that differ by a minute.
    let changes = [
        ("an expired token", "exp", json!(now - 600)),
        ("a token of the future", "nbf", json!(now + 3600)),
        ("another issuer", "iss", json!("https://evil.example")),
        ("another audience", "aud", json!(["vault"])),
        ("an account that was created again", "kubernetes.io", other),
    ];
    for (name, claim, value) in &changes {
        let mut claims = Claims::of_token(&ann.token)?;
        claims.set(claim, value.clone());
        let call = get(WHO).by(&key.sign(&claims)?);
        let answer = stage.send_anonymous(call).await?;
        let rejected = answer.fails(401, "Unauthenticated");
        withstood(Kind::Token, name, rejected)?;
    }
    stage.done().await?;
    Ok(listed(changes.iter().map(|(name, ..)| *name)))
}

/// A token for another service.
pub(super) async fn wrong_audience(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let audiences = ["vault", "gateway", "https://orchestrator-gateway"];
    for audience in audiences {
        let (client, place) = (&stage.env.client, &ann.namespace);
        let token = token_of(client, place, &ann.account, &[audience]).await?;
        let call = post(TASKS, &task(7)).by(&token);
        let answer = stage.send_anonymous(call).await?;
        let name = format!("a token for '{audience}'");
        withstood(Kind::Token, &name, answer.is(401))?;
    }
    stage.has_runs(0).await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    Ok(listed(audiences))
}

/// A token that was accepted, until its ServiceAccount was deleted.
pub(super) async fn revoked(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let accounts: Api<ServiceAccount> = stage.env.api();
    accounts.delete("ann", &DeleteParams::default()).await?;
    // The API server itself caches an accepted token for ten seconds.
    let limit = Duration::from_secs(40);
    until("the token to be rejected", limit, async || {
        let status = stage.send(&ann, get(WHO)).await?.status;
        Ok(met(status == 401, || format!("{status}")))
    })
    .await?;
    for call in [post(TASKS, &task(8)), post(context_of(7), &context(2))] {
        let answer = stage.send(&ann, call).await?;
        withstood(Kind::Token, "a write with a revoked token", answer.is(401))?;
    }
    let answer = stage.send(&ann, get(stage.at("task-7", ""))).await?;
    let rejected = answer.fails(401, "Unauthenticated");
    withstood(Kind::Token, "a read with a revoked token", rejected)?;
    stage.has_runs(1).await?;
    Ok("401 for reads and writes, also with a cached author".to_owned())
}

/// Ten wrong tokens block other unknown tokens of the address, and nobody else.
pub(super) async fn blocked(stage: &Stage) -> Result<String> {
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    stage.send(&ann, get(WHO)).await?.is(200)?;
    for number in 0..12 {
        let call = get(WHO).by(&format!("guess-{number}"));
        let status = stage.send_anonymous(call).await?.status;
        let wanted = if number < 10 { 401 } else { 429 };
        let rejected = match status == wanted {
            true => Ok(()),
            false => Err(anyhow!("guess {number}: {status}, not {wanted}")),
        };
        withstood(Kind::Flood, "guesses of tokens", rejected)?;
    }
    let unknown = stage.send(&bob, get(WHO)).await?;
    unknown.fails(429, "TooManyRequests")?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let elsewhere = Ipv4Addr::new(127, 0, 0, 9);
    let call = get(WHO).by(&bob.token);
    let answer = stage.gateway.https.send_from(elsewhere, call).await?;
    answer.is(200)?;
    // Now the token is known, so the block of the address does not concern it.
    stage.send(&bob, get(WHO)).await?.is(200)?;
    Ok("429 after ten guesses, for unknown tokens of this address only".to_owned())
}

/// ID tokens of an issuer that the API server trusts.
pub(super) async fn id_token(env: Env) -> Result<String> {
    let issuer = Issuer::start(&env).await?;
    let stage = Stage::new(env).await?;
    let ann = id_caller(&stage, &issuer, "ann")?;
    grant(&stage, &ann).await?;
    trusted(&stage, &ann).await?;
    let body = stage.send(&ann, get(WHO)).await?.is(200)?;
    ensure!(body["username"] == "id:ann", "{body}");
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let run = stage.run("task-7").await?;
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&ann.user), "submitted by {author:?}");

    let valid = || issuer.claims("ann");
    let stranger = Key::generate("k1")?;
    let changed = |claim: &str, value: Value| {
        let mut claims = valid();
        claims.set(claim, value);
        issuer.key.sign(&claims)
    };
    let now = valid().number("iat");
    let attacks = [
        ("an expired ID token", changed("exp", json!(now - 600))?),
        (
            "an ID token for another client",
            changed("aud", json!("another"))?,
        ),
        (
            "an ID token of another issuer",
            changed("iss", json!("https://evil.example"))?,
        ),
        (
            "an ID token with another key of the same name",
            stranger.sign(&valid())?,
        ),
    ];
    for (name, token) in &attacks {
        stage.keep_secret(token);
        let answer = stage
            .send_anonymous(post(TASKS, &task(8)).by(token))
            .await?;
        withstood(Kind::Token, name, answer.is(401))?;
    }
    let bob = id_caller(&stage, &issuer, "bob")?;
    let answer = stage.send(&bob, post(TASKS, &task(8))).await?;
    answer.refuses(403, "id:bob")?;
    stage.has_runs(1).await?;
    issuer.stop(&stage.env)?;
    stage.done().await?;
    let names = attacks.iter().map(|(name, _)| *name);
    Ok(format!("submitted by id:ann; {}", listed(names)))
}

fn id_caller(stage: &Stage, issuer: &Issuer, name: &str) -> Result<Caller> {
    let token = issuer.key.sign(&issuer.claims(name))?;
    stage.keep_secret(&token);
    Ok(Caller {
        user: format!("id:{name}"),
        token,
        namespace: stage.env.namespace.clone(),
        account: name.to_owned(),
    })
}

/// Gives a user of the issuer the permissions of an editor.
async fn grant(stage: &Stage, caller: &Caller) -> Result<()> {
    let name = caller.account.as_str();
    let role = json!({ "metadata": { "name": name }, "rules": editor() });
    stage.env.create::<Role>(role).await?;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": caller.user }],
    });
    stage.env.create::<RoleBinding>(binding).await?;
    Ok(())
}

/// Waits until the API server has read the issuer from its file, which may take a minute.
async fn trusted(stage: &Stage, caller: &Caller) -> Result<()> {
    let mut config = stage.env.config.clone();
    config.auth_info = AuthInfo {
        token: Some(caller.token.clone().into()),
        ..AuthInfo::default()
    };
    let runs: Api<TaskRun> = Api::namespaced(Client::try_from(config)?, &caller.namespace);
    let limit = Duration::from_secs(100);
    until("the API server to trust the issuer", limit, async || {
        // Directly: the gateway would block the address after ten responses with 401.
        Ok(match runs.list(&ListParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error} for an ID token for '{AUDIENCE}'")),
        })
    })
    .await
}
