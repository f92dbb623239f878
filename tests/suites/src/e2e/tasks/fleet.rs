//! The operator itself: handed over, and discreet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::Agent;
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{Api, ResourceExt, api::ListParams};
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{suite::Env, wait::until};
use tokio::time::Instant;

use super::fixture::{Bench, Expect, LIMIT, phase_of};

pub(super) async fn hand_over(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    bench.start("long", "sleep 25").await?;
    bench.running("long").await?;
    let second = bench.another().await?;
    ensure!(
        bench.operator.is_leading().await? && !second.is_leading().await?,
        "one leads"
    );
    let leases: Api<Lease> = bench.env.api();
    let holder = async || {
        let lease = leases.get("orchestrator-tasks").await?;
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .context("no holder")
    };
    let first_holder = holder().await?;

    let begin = Instant::now();
    bench.operator.signal(Signal::SIGTERM)?;
    let took = until("the hand-over", Duration::from_secs(1), async || {
        let now = holder().await.unwrap_or_default();
        let is_new = !now.is_empty() && now != first_holder;
        Ok(if is_new {
            Ok(begin.elapsed())
        } else {
            Err(now)
        })
    })
    .await?;
    bench.operator = second;
    bench.leads(Duration::from_secs(2)).await?;

    let third = bench.another().await?;
    std::mem::replace(&mut bench.operator, third).kill().await?;
    let begin = Instant::now();
    bench.leads(Duration::from_secs(30)).await?;
    let after_kill = begin.elapsed();
    let said = bench.ends("long", Expect::default()).await?;
    bench.done().await?;
    Ok(format!(
        "SIGTERM {:.2} s, SIGKILL {:.1} s; {said}",
        took.as_secs_f64(),
        after_kill.as_secs_f64()
    ))
}

pub(super) async fn canary(bench: &Bench) -> Result<String> {
    const CANARY: &str = "canary-7f3a9c51";
    let env = json!({ "env": [{ "name": "API_KEY", "value": CANARY }] });
    bench.agent("sings", "sleep 3", env.clone()).await?;
    bench.agent("fails", "sleep 3; exit 5", env.clone()).await?;
    let mut waits = env;
    waits["nodeSelector"] = json!({ "disk": "golden" });
    bench.agent("waits", "true", waits).await?;
    for name in ["sings", "fails", "waits"] {
        bench.submit(name, json!({})).await?;
    }
    bench.ended("sings", &Expect::default()).await?;
    bench
        .until("fails", LIMIT, "failed", |status| {
            phase_of(status) == "Failed"
        })
        .await?;
    bench.waits_for("waits", "Unschedulable", &[]).await?;
    let mut places = vec![
        ("the log", bench.operator.log_text()?),
        ("the metrics", bench.operator.metrics().await?),
    ];
    let all = ListParams::default();
    let events: Api<Event> = bench.env.api();
    let events = serde_json::to_string(&events.list(&all).await?.items)?;
    places.push(("Events", events));
    for run in bench.runs().list(&all).await? {
        places.push(("a run", serde_json::to_string(&run)?));
    }
    for agent in bench.env.api::<Agent>().list(&all).await? {
        places.push(("an Agent's status", serde_json::to_string(&agent.status)?));
        ensure!(
            serde_json::to_string(&agent.spec)?.contains(CANARY),
            "{} has no canary",
            agent.name_any()
        );
    }
    for (place, text) in &places {
        ensure!(!text.contains(CANARY), "the canary is in {place}");
    }
    Ok(format!("not in {} places", places.len()))
}
