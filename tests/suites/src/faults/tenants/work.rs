//! Scenarios of Tenants with a Redis and a server.

use anyhow::{Context, Result};
use k8s_openapi::api::{core::v1::Secret, networking::v1::NetworkPolicy};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{faults::scenario_run::Stage, suite, wait::met};

use super::{
    LIMIT, PROVEN, create, inside,
    oracles::{LATE, is_probe},
    patch, standing, stands,
};

const REDIS: &str = "testbed.local/redis:7";
const NOTES: &str = "testbed.local/notes:1";

fn small() -> Value {
    json!({
        "requests": { "cpu": "10m", "memory": "16Mi" },
        "limits": { "cpu": "500m", "memory": "64Mi" },
    })
}

/// As small as it can be.
pub(super) fn redis() -> Value {
    json!({ "image": REDIS, "storage": { "size": "64Mi" }, "resources": small() })
}

fn server() -> Value {
    json!({
        "image": NOTES,
        "replicas": 1,
        "resources": small(),
        // Patiently: on a machine with much to do, an answer may come late.
        "probes": {
            "readiness": { "path": "/cgi-bin/health", "periodSeconds": 1, "failureThreshold": 10 },
        },
    })
}

/// The password is nobody's to read.
async fn hidden(stage: &Stage) -> Result<()> {
    let secrets: Api<Secret> = inside(stage);
    let secret = secrets.get("tenant-redis").await?;
    let data = secret.data.unwrap_or_default();
    let password = data.get("password").context("no password")?;
    stage.canary(&String::from_utf8(password.0.clone())?);
    Ok(())
}

/// A Redis and a server.
pub(super) async fn full(stage: &Stage) -> Result<()> {
    create(stage, json!({ "redis": redis(), "server": server() })).await?;
    stands(stage, "Running", "").await?;
    hidden(stage).await
}

/// Another configuration of the Redis, and more memory: it is started again with both.
pub(super) async fn rollout(stage: &Stage) -> Result<()> {
    create(stage, json!({ "redis": redis() })).await?;
    stands(stage, "Running", "").await?;
    hidden(stage).await?;
    let config = json!({ "maxmemory-policy": "allkeys-lru" });
    let more = json!({ "limits": { "memory": "80Mi" } });
    patch(
        stage,
        json!({ "redis": { "config": config, "resources": more } }),
    )
    .await?;
    stands(stage, "Running", "").await
}

/// Stopped, and started again.
pub(super) async fn pause(stage: &Stage) -> Result<()> {
    create(stage, json!({ "redis": redis() })).await?;
    stands(stage, "Running", "").await?;
    patch(stage, json!({ "suspend": true })).await?;
    stage
        .until("suspended, without a Pod", LIMIT, |seen| {
            let (phase, reason) = standing(seen);
            let pods = seen.iter().filter(|one| one.resource == "pods").count();
            met(phase == "Suspended" && pods == 0, || {
                format!("{phase} {reason}, {pods} Pods")
            })
        })
        .await?;
    patch(stage, json!({ "suspend": false })).await?;
    stands(stage, "Running", "").await
}

/// A Redis that nobody outside reaches, which is proven by Pods that try.
pub(super) async fn isolated(stage: &Stage) -> Result<()> {
    let spec = json!({ "redis": redis(), "isolation": { "probe": true } });
    create(stage, spec).await?;
    said(stage, "True").await?;
    stands(stage, "Running", "").await
}

/// The same; then somebody's policy opens it for a while. Closed again, it must be proven again.
pub(super) async fn reopened(stage: &Stage) -> Result<()> {
    isolated(stage).await?;
    let policies: Api<NetworkPolicy> = inside(stage);
    let open = json!({
        "metadata": { "name": "by-hand" }, "spec": { "podSelector": {}, "ingress": [{}] },
    });
    suite::create(&policies, open).await?;
    said(stage, "False").await?;
    // Longer ago than a late watch explains.
    tokio::time::sleep(2 * LATE).await;
    policies.delete("by-hand", &DeleteParams::default()).await?;
    said(stage, "True").await?;
    stands(stage, "Running", "").await
}

/// Waits until `NetworkIsolated` is so, and no Pod tries any more.
async fn said(stage: &Stage, wanted: &str) -> Result<()> {
    let what = format!("NetworkIsolated={wanted}, without a Pod that tries");
    stage
        .until(&what, PROVEN, |seen| {
            let tenant = seen.iter().find(|one| one.resource == "tenants");
            let fact = tenant.and_then(|one| one.condition("NetworkIsolated"));
            let is_said = fact.is_some_and(|fact| fact["status"] == wanted);
            let probes = seen.iter().filter(|one| is_probe(one)).count();
            met(is_said && probes == 0, || {
                format!("{fact:?}, {probes} Pods that try")
            })
        })
        .await
}
