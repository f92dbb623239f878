//! What happens to runs and their children when something is deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    super::children::{Doomed, until_gone, until_left},
    fixture::{Bench, COLLECTED, Expect, LIMIT, SHORT_LEASE, brief, reason_of, says_all},
};

pub(super) async fn pending(bench: &Bench) -> Result<String> {
    bench
        .agent(
            "stuck",
            "true",
            json!({ "nodeSelector": { "disk": "golden" } }),
        )
        .await?;
    bench.submit("stuck", json!({})).await?;
    bench.waits_for("stuck", "Unschedulable", &[]).await?;
    let run = bench.runs().get("stuck").await?;
    ensure!(
        run.finalizers() == ["taskruns.orchestrator.io/finalizer"],
        "held while it works"
    );
    bench.deletes(&run).await?;
    Ok("gone with its Job, Pod and ConfigMap".to_owned())
}

pub(super) async fn running(bench: &Bench) -> Result<String> {
    // It takes its time to stop, so that the deletion can be seen waiting for it.
    bench
        .agent(
            "busy",
            "trap 'sleep 4; exit 0' TERM; while true; do sleep 0.2; done",
            json!({}),
        )
        .await?;
    bench.submit("busy", json!({})).await?;
    let run = bench.running("busy").await?;
    bench.delete("busy").await?;
    let seen = bench
        .until("busy", Duration::from_secs(10), "deleting", |status| {
            reason_of(status) == "Deleting" && says_all(status, &["busy-7-v1"]).is_ok()
        })
        .await?;
    let said = brief(&seen.status.unwrap_or_default());
    bench.is_gone(&run, COLLECTED).await?;
    Ok(format!("waited for its Pod ({said}), then it was gone"))
}

pub(super) async fn finished(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.start("over", "sleep 3").await?;
    let run = bench.ended("over", &Expect::default()).await?;
    // A finished run has no finalizer: the garbage collector needs no operator.
    let down = bench.stopped().await?;
    let runs = down.runs();
    runs.delete("over", &DeleteParams::default()).await?;
    until_gone(&runs, "over", COLLECTED).await?;
    until_left(&down.env, &run, (0, 0, 0), COLLECTED).await?;
    let bench = down.up().await?;
    bench.done().await?;
    Ok("gone with its children, by the garbage collector alone".to_owned())
}

pub(super) async fn operator_down(env: Env) -> Result<String> {
    let bench = Bench::configured(env, SHORT_LEASE).await?;
    bench.start("alone", "exec sleep 600").await?;
    let run = bench.running("alone").await?;
    let down = bench.killed().await?;
    let runs = down.runs();
    runs.delete("alone", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(
        runs.get_opt("alone").await?.is_some(),
        "it is held until its Job has been stopped"
    );
    let bench = down.up().await?;
    // The Lease of the one that was killed must expire first.
    bench.is_gone(&run, COLLECTED).await?;
    bench.done().await?;
    Ok("held while it was down, gone when it was back".to_owned())
}

pub(super) async fn with_namespace(mut env: Env) -> Result<String> {
    let doomed = Doomed::new(&env).await?;
    let home = std::mem::replace(&mut env.namespace, doomed.name.clone());
    let watched = vec![doomed.name.clone()];
    let bench = Bench::planned(env, home, watched, "").await?;
    bench.agent("doomed", "exec sleep 600", json!({})).await?;
    let nowhere = json!({ "nodeSelector": { "disk": "golden" } });
    bench.agent("queued", "true", nowhere).await?;
    for name in ["doomed", "queued", "agentless"] {
        bench.submit(name, json!({})).await?;
    }
    let jobs: Api<Job> = bench.env.api();
    until("two Jobs", LIMIT, async || {
        let count = jobs.list(&Default::default()).await?.items.len();
        Ok(met(count == 2, || format!("{count} Jobs")))
    })
    .await?;
    doomed.delete().await?;
    bench.done().await?;
    Ok("three runs and their namespace are gone".to_owned())
}
