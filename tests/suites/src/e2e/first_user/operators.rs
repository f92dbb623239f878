//! An operator that does not run. Each case has the cluster for itself: `orc why` reads the newest Lease of all.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::suite::Env;

use super::{
    super::{fixture::submit, tasks::Tasks},
    fixture::{Bench, LIMIT, Seen, Why, explained, printed},
};

/// For a run that is deleted when the operator is back.
const BACK: Duration = Duration::from_secs(120);

/// The Deployment of an operator, as the chart labels it, with 0 replicas.
fn deployment() -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "orchestrator", "app.kubernetes.io/instance": "orchestrator",
        "app.kubernetes.io/component": "tasks",
    });
    json!({
        "metadata": { "name": "orchestrator-tasks", "labels": labels },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "orchestrator", "image": "orchestrator:1" }] },
            },
        },
    })
}

/// Nothing can be in the status, so only `orc why` can name the cause.
pub(super) async fn scaled_to_zero(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    bench.leads(LIMIT).await?;
    let down = bench.stopped().await?;
    down.env.create::<Deployment>(deployment()).await?;
    submit::<Tasks>(&down.env, &down.git, "early", json!({})).await?;
    let why = Why::command(
        &[
            "OperatorDown",
            "Deployment",
            "orchestrator-tasks",
            "0 replicas",
        ],
        "kubectl scale deployment orchestrator-tasks",
    );
    let why = explained(&down.env, "early", &why).await?;
    let line = printed(&down.env, "early").await?;
    Ok(Seen {
        reason: format!("{} {}", line.reason, line.message),
        seconds: None,
        why,
    })
}

/// A run that is held by its finalizer while no operator can stop its agent.
pub(super) async fn deleted_meanwhile(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    bench.start("held", "exec sleep 600").await?;
    bench.running("held").await?;
    let down = bench.stopped().await?;
    let runs = down.runs();
    runs.delete("held", &DeleteParams::default()).await?;
    let run = runs.get("held").await?;
    let why = Why::command(
        &["OperatorDown", "no operator leads", "metadata.finalizers"],
        "kubectl get deployments,pods",
    );
    let why = explained(&down.env, "held", &why).await?;
    let line = printed(&down.env, "held").await?;
    let bench = down.up().await?;
    bench.is_gone(&run, BACK).await?;
    bench.done().await?;
    Ok(Seen {
        reason: line.reason,
        seconds: None,
        why,
    })
}
