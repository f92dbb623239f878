//! What happens to runs and their children when something is deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use testkit::{suite::Env, wait::until};

use super::{
    super::children::left,
    fixture::{Bench, COLLECTED, Expect, LIMIT, SHORT_LEASE, phase_of},
};

pub(super) async fn pending(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
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
    bench.done().await?;
    Ok("gone with its Job, Pod and ConfigMap".to_owned())
}

pub(super) async fn running(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    // It takes its time to stop, so that the deletion can be seen waiting for it.
    bench
        .agent(
            "busy",
            "trap 'sleep 4; exit 0' TERM; while true; do sleep 0.2; done",
            json!({}),
        )
        .await?;
    bench.submit("busy", json!({})).await?;
    let run = bench
        .until("busy", LIMIT, "running", |status| {
            phase_of(status) == "Running"
        })
        .await?;
    bench
        .runs()
        .delete("busy", &DeleteParams::default())
        .await?;
    let seen = bench
        .until("busy", Duration::from_secs(10), "deleting", |status| {
            status
                .progress
                .message
                .as_deref()
                .is_some_and(|text| text.contains("busy-7-v1"))
                && super::fixture::reason_of(status) == "Deleting"
        })
        .await?;
    let message = seen
        .status
        .unwrap_or_default()
        .progress
        .message
        .unwrap_or_default();
    bench.is_gone(&run, COLLECTED).await?;
    bench.done().await?;
    Ok(format!("waited for its Pod ({message}), then it was gone"))
}

pub(super) async fn finished(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("over", "sleep 3", json!({})).await?;
    bench.submit("over", json!({})).await?;
    let run = bench.ended("over", &Expect::default()).await?;
    // A finished run has no finalizer: the garbage collector needs no operator.
    let down = bench.stopped().await?;
    let runs = down.runs();
    runs.delete("over", &DeleteParams::default()).await?;
    until("the run to be deleted", COLLECTED, async || {
        let seen = runs.get_opt("over").await?;
        let left = left(&down.env, &run).await?;
        Ok(match seen {
            None if left == (0, 0, 0) => Ok(()),
            seen => Err(format!(
                "{:?}; {left:?} Jobs, Pods, ConfigMaps",
                seen.map(|seen| seen.metadata.finalizers)
            )),
        })
    })
    .await?;
    let bench = down.up().await?;
    bench.done().await?;
    Ok("gone with its children, by the garbage collector alone".to_owned())
}

pub(super) async fn operator_down(env: Env) -> Result<String> {
    let bench = Bench::configured(env, SHORT_LEASE).await?;
    bench.agent("alone", "exec sleep 600", json!({})).await?;
    bench.submit("alone", json!({})).await?;
    let run = bench
        .until("alone", LIMIT, "running", |status| {
            phase_of(status) == "Running"
        })
        .await?;
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

pub(super) async fn with_namespace(env: Env) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let other: Namespace =
        serde_json::from_value(json!({ "metadata": { "generateName": "t-doomed-" } }))?;
    let other = namespaces
        .create(&PostParams::default(), &other)
        .await?
        .name_any();
    let bench = Bench::watching(env, vec![other.clone()]).await?;
    bench
        .agent_in(&other, "doomed", "exec sleep 600", json!({}))
        .await?;
    bench
        .agent_in(
            &other,
            "queued",
            "true",
            json!({ "nodeSelector": { "disk": "golden" } }),
        )
        .await?;
    bench.submit_in(&other, "doomed", json!({})).await?;
    bench.submit_in(&other, "queued", json!({})).await?;
    bench.submit_in(&other, "agentless", json!({})).await?;
    let jobs: Api<Job> = Api::namespaced(bench.env.client.clone(), &other);
    until("two Jobs", LIMIT, async || {
        let count = jobs.list(&Default::default()).await?.items.len();
        Ok(if count == 2 {
            Ok(())
        } else {
            Err(format!("{count} Jobs"))
        })
    })
    .await?;
    namespaces.delete(&other, &DeleteParams::default()).await?;
    until(
        "the namespace to be gone",
        Duration::from_secs(90),
        async || {
            let seen = namespaces.get_opt(&other).await?;
            Ok(match seen {
                None => Ok(()),
                Some(seen) => Err(format!(
                    "{:?}",
                    seen.status.and_then(|status| status.conditions)
                )),
            })
        },
    )
    .await?;
    bench.done().await?;
    Ok("three runs and their namespace are gone".to_owned())
}
