//! More bodies than the gateway has memory for.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::join_all;
use serde_json::json;
use testkit::wait::until;

use super::{
    attack_table::{Kind, withstood},
    client::{get, post},
    document,
    fixture::{Stage, TASKS, task},
    wire::{BODY, WHO, slow_body},
};

/// Large bodies of callers that the API server does not know.
pub(super) async fn unknown_bodies(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    stage.send(&ann, get(WHO)).await?.is(200)?;
    let before = stage.gateway.operator.memory_mib("VmRSS")?;
    let large = vec![b' '; 1024 * 1024];
    let all = (0..100_u8).map(|number| {
        let call = post(TASKS, &json!({})).body(large.clone());
        // No address has more than 64 at once.
        let from = Ipv4Addr::new(127, 0, 1, 1 + number % 4);
        let call = call.by(&format!("unknown-{number}"));
        stage.gateway.https.send_from(from, call)
    });
    let (mut rejected, mut limited) = (0, 0);
    for answer in join_all(all).await {
        match answer?.status {
            401 => rejected += 1,
            429 => limited += 1,
            other => {
                let accepted = Err(anyhow!("{other} for an unknown token"));
                return withstood(Kind::Flood, "a body of an unknown caller", accepted);
            }
        }
    }
    let growth = stage.gateway.operator.memory_mib("VmHWM")? - before;
    let small = (growth < 40.0).then_some(());
    let small = small.with_context(|| format!("{growth:.0} MiB: it read the bodies"));
    withstood(Kind::Flood, "100 MiB of unknown callers", small)?;
    Ok(format!(
        "{rejected} times 401, {limited} times 429, {growth:.0} MiB more"
    ))
}

/// A caller keeps as much memory as one caller may have, with bodies that do not end. Another caller is served.
pub(super) async fn many_bodies(stage: &Stage) -> Result<String> {
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    stage.send(&ann, get(WHO)).await?.is(200)?;
    stage.send(&bob, get(WHO)).await?.is(200)?;
    let submit = post(TASKS, &json!({})).by(&ann.token);
    let (length, begin) = (format!("content-length: {BODY}"), vec![b' '; BODY - 1]);
    // 15 of 16 MiB.
    let endless = (0..5).map(|_| slow_body(stage, &submit, &length, &begin));
    let served = async {
        let large = post(TASKS, &json!({})).body(vec![b' '; 2 * 1024 * 1024]);
        let limit = Duration::from_secs(8);
        let rejected = until("a body without memory", limit, async || {
            let answer = stage.send(&ann, large.clone()).await?;
            Ok(match answer.status {
                429 => Ok(answer),
                status => Err(format!("{status}")),
            })
        });
        let rejected = rejected.await?;
        rejected.refuses(429, "16 MiB of bodies of one caller")?;
        let after = rejected.header("retry-after");
        ensure!(after == "1", "Retry-After is '{after}'");
        let start = Instant::now();
        stage.send(&bob, post(TASKS, &task(7))).await?.is(200)?;
        let waited = start.elapsed();
        ensure!(waited < Duration::from_secs(5), "{waited:?}");
        anyhow::Ok(waited)
    };
    let (endless, served) = tokio::join!(join_all(endless), served);
    let waited = withstood(Kind::Flood, "15 MiB of bodies that do not end", served)?;
    for answer in endless {
        let answer = answer?;
        answer.refuses(408, "did not arrive")?;
        document::check("POST", &submit.target, &answer)?;
    }
    // Their memory is free again.
    let large = post(TASKS, &json!({})).body(vec![b' '; BODY]);
    stage.send(&ann, large).await?.refuses(400, "the body")?;
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    ensure!(memory < 256.0, "the gateway had {memory:.0} MiB");
    Ok(format!(
        "429 for more; another caller waited {:.1} s; {memory:.0} MiB",
        waited.as_secs_f64()
    ))
}
