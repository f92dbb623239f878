//! S1.3, S1.5, S1.13, R36: several workloads on several volumes stop together, and return with their replica counts.

use anyhow::{Context, Result, ensure};
use api::apps::UpgradeRequest;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};
use testkit::wait::{met, until};

use super::{
    super::manifests::{BUSYBOX, claim, cron_job, deployment, stateful_set},
    evidence::{Scales, flux_is_free, flux_is_locked, no_pod_mounts, scales, snapshots},
    fixture::{Bench, END, PHASE, Setup},
    volume::SlowClass,
};

/// A claim that all Pods of the node may mount.
fn shared_claim() -> Value {
    let mut claim = claim("shared");
    claim["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    claim
}

/// Three replicas, each with a claim from the template.
fn cache() -> Value {
    let mut set = stateful_set("cache");
    set["spec"]["replicas"] = json!(3);
    set
}

/// A Deployment without a replica count in Git.
fn scaled() -> Result<Value> {
    let mut web = deployment("web", BUSYBOX, &["shared"]);
    let spec = web["spec"].as_object_mut().context("no spec")?;
    spec.remove("replicas");
    Ok(web)
}

/// Without metrics, the autoscaler keeps the least number of replicas.
fn autoscaler() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 2, "maxReplicas": 3,
            "metrics": [{ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 },
            } }],
        },
    })
}

/// A CronJob that starts once a year.
fn backup() -> Value {
    let mut job = cron_job("backup", false, &["shared"]);
    job["spec"]["schedule"] = json!("0 0 1 1 *");
    job
}

/// The scales of the workloads.
fn expected(of: [&str; 4], is_suspended: bool) -> Scales {
    let [cache, reader, web, exporter] = of;
    let rows = [
        ("StatefulSet cache", format!("Some({cache})")),
        ("Deployment reader", format!("Some({reader})")),
        ("Deployment web", format!("Some({web})")),
        ("Deployment exporter", format!("Some({exporter})")),
        ("CronJob backup", format!("suspended: {is_suspended}")),
    ];
    rows.into_iter()
        .map(|(name, scale)| (name.to_owned(), scale))
        .collect()
}

pub(super) async fn several(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let class = SlowClass::new(env, 8).await?;
    let app = bench
        .launch(Setup {
            chart: "sleeper",
            values: json!({ "text": "first" }),
            app: json!({ "volumeSnapshots": { "volumeSnapshotClassName": class.name } }),
            objects: vec![
                shared_claim(),
                cache(),
                // On the claim of the first replica of the StatefulSet.
                deployment("reader", BUSYBOX, &["data-cache-0"]),
                scaled()?,
                autoscaler(),
                backup(),
            ],
            ..Setup::store("app")
        })
        .await?;
    // A workload that Flux does not apply.
    let exporter = deployment("exporter", BUSYBOX, &["shared"]);
    env.create::<Deployment>(exporter).await?;
    let before = expected(["3", "1", "2", "1"], false);
    until("the autoscaler to scale", PHASE, async || {
        let now = scales(env).await?;
        Ok(met(now == before, || format!("{now:?}")))
    })
    .await?;
    let deployments: Api<Deployment> = env.api();
    until("all Pods to be ready", PHASE, async || {
        let mut waiting = Vec::new();
        for (name, wanted) in [("web", 2), ("exporter", 1)] {
            let status = deployments.get(name).await?.status.unwrap_or_default();
            if status.ready_replicas != Some(wanted) {
                waiting.push((name, status.ready_replicas));
            }
        }
        Ok(met(waiting.is_empty(), || format!("{waiting:?}")))
    })
    .await?;
    bench.settled(&app).await?;

    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "Snapshot", END)
        .await?;
    // All are stopped, also the one that Flux does not apply. The autoscaler does not scale a workload at zero.
    let stopped = scales(env).await?;
    ensure!(
        stopped == expected(["0", "0", "0", "0"], true),
        "during the snapshot: {stopped:?}"
    );
    no_pod_mounts(env).await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    flux_is_locked(env, "app", &uid).await?;
    let state = bench.succeeds::<UpgradeRequest>("up", END).await?;
    let after = scales(env).await?;
    ensure!(after == before, "{after:?} instead of {before:?}");
    flux_is_free(env, "app").await?;
    bench.settled(&app).await?;
    let taken = snapshots(env).await?;
    ensure!(taken.len() == 4, "{} snapshots of 4 claims", taken.len());
    let plan = state.plan.as_ref().context("no plan")?;
    let foreign: Vec<&str> = plan
        .workloads
        .iter()
        .filter(|one| !one.in_inventory)
        .map(|one| one.name.as_str())
        .collect();
    ensure!(foreign == ["exporter"], "not in the inventory: {foreign:?}");
    class.release().await?;
    Ok(format!("{} workloads and 4 claims: {after:?}", after.len()))
}
