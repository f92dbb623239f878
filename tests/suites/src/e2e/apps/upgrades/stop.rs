//! Workloads that do not stop, or do not stay stopped, and a request that is removed by force.

use anyhow::{Context, Result, ensure};
use api::apps::{AppPhase, UpgradeRequest};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::wait::{met, until};

use super::{
    evidence::{commits_of, flux_is_free, flux_is_locked, head, no_snapshots, scales, snapshots},
    fixture::{App, Bench, END, Operation, PHASE, Setup, UNDONE},
    volume::{starts, store_pod},
};
use crate::e2e::{children::until_gone, events};

/// Manager of the fields that a case changes.
const SOMEBODY: &str = "somebody";
/// A finalizer that nobody removes by itself.
const FINALIZER: &str = "example.com/stuck";
/// Name of the StatefulSet of the chart.
const SET: &str = "app-store";

/// Waits until the StatefulSet has no desired replica.
async fn at_zero(bench: &Bench) -> Result<Api<StatefulSet>> {
    let sets: Api<StatefulSet> = bench.env.api();
    until("the StatefulSet to be scaled down", PHASE, async || {
        let spec = sets.get(SET).await?.spec;
        let replicas = spec.and_then(|spec| spec.replicas);
        Ok(met(replicas == Some(0), || format!("{replicas:?}")))
    })
    .await?;
    Ok(sets)
}

pub(super) async fn scaled_up(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "grace": 20 }),
            ..Setup::store("app")
        })
        .await?;
    let (base, counts) = (head(&app)?, scales(env).await?);
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let sets = at_zero(bench).await?;
    // The operator has observed the workload at zero. Before, another scale is that of the plan.
    bench
        .reach::<UpgradeRequest>("up", PHASE, "the workload to be at zero", |state| {
            !state.at_zero.is_empty()
        })
        .await?;
    let params = PatchParams {
        field_manager: Some(SOMEBODY.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    sets.patch_scale(SET, &params, &patch).await?;
    let set = bench.quoted("StatefulSet", SET);
    let state = bench
        .fails::<UpgradeRequest>("up", UNDONE, "WorkloadScaledUp", &[SOMEBODY, &set])
        .await?;
    is_undone(bench, &app, &base).await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    bench.settled(&app).await?;
    Ok(state.progress.message.unwrap_or_default())
}

/// Nothing was pushed and no snapshot is left. Flux is resumed.
async fn is_undone(bench: &Bench, app: &App, base: &str) -> Result<()> {
    ensure!(head(app)? == base, "a commit was pushed");
    no_snapshots(&bench.env).await?;
    flux_is_free(&bench.env, &app.name).await
}

pub(super) async fn stuck_pod(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            // Longer than the case: the program does not end before.
            values: json!({ "grace": 300 }),
            app: json!({ "phaseTimeouts": { "scaleDown": "10s" } }),
            ..Setup::store("app")
        })
        .await?;
    let (base, counts) = (head(&app)?, scales(env).await?);
    let pods: Api<Pod> = env.api();
    let name = store_pod("app");
    let stuck = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    let pod = pods.patch(&name, &PatchParams::default(), &stuck).await?;
    let node = pod.spec.and_then(|spec| spec.node_name);
    let node = node.context("the Pod has no node")?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let state = bench
        .reach::<UpgradeRequest>("up", END, "its failure", |state| {
            UpgradeRequest::failure(state).is_some()
        })
        .await?;
    let (reason, message) = UpgradeRequest::failure(&state).context("no failure")?;
    let id = bench.quoted("Pod", &name);
    let names_all = [id.as_str(), node.as_str(), FINALIZER]
        .iter()
        .all(|part| message.contains(*part));
    ensure!(
        reason == "PodsNotTerminated" && names_all,
        "{reason}: {message}"
    );
    let message = message.to_owned();

    // Someone helps the Pod. The undo does not need that: it restores the replica count, and resumes Flux.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch(&name, &PatchParams::default(), &free).await?;
    pods.delete(&name, &DeleteParams::default().grace_period(0))
        .await?;
    bench
        .fails::<UpgradeRequest>("up", UNDONE, "PodsNotTerminated", &[])
        .await?;
    is_undone(bench, &app, &base).await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    bench.settled(&app).await?;
    let found = starts(env, &name).await?;
    ensure!(found == ["1.0.0"], "started versions: {found:?}");
    Ok(message)
}

/// The request is removed in the phase ScaleDown, before the operator can undo it. Its ManagedApp finds the replica counts in
/// the lock.
pub(super) async fn removed(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "grace": 15, "replicas": 2 }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    bench.upgrade("lost", "app", "2.0.0", json!({})).await?;
    at_zero(bench).await?;
    let uid = bench.uid::<UpgradeRequest>("lost").await?;
    // Otherwise, the operator would begin its undo between the two writes.
    bench.operator.signal(Signal::SIGSTOP)?;
    let deleted = remove(bench, "lost").await;
    bench.operator.signal(Signal::SIGCONT)?;
    let phase = deleted?;
    ensure!(phase == "ScaleDown", "the request was in {phase}");
    // Nothing is undone: Flux is locked by a request that does not exist, and the workload is at zero.
    flux_is_locked(env, "app", &uid).await?;
    let now = scales(env).await?;
    ensure!(now != counts, "{now:?}, although nobody undid the request");

    // No other request exists, so the ManagedApp recovers the lock.
    until("the replica counts of the lock", PHASE, async || {
        let now = scales(env).await?;
        Ok(met(now == counts, || format!("{now:?}")))
    })
    .await?;
    bench.settled(&app).await?;
    flux_is_free(env, "app").await?;
    let of_app = bench.apps().get("app").await?.uid().unwrap_or_default();
    let told = events::ours(env, &of_app).await?;
    let recovered = told
        .iter()
        .any(|event| event.reason.as_deref() == Some("LockRecovered"));
    ensure!(recovered, "no Event of the ManagedApp has LockRecovered");
    bench.upgraded("next", &app, "2.0.0").await?;
    let of_next = bench.uid::<UpgradeRequest>("next").await?;
    let lost = commits_of(&app, &uid)?;
    ensure!(lost.is_empty(), "the removed request has {lost:?}");
    flux_is_free(env, "app").await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    bench.settled(&app).await?;
    for snapshot in snapshots(env).await? {
        let owner = snapshot.labels().get(api::names::UID);
        ensure!(owner == Some(&of_next), "a snapshot of {owner:?} is left");
    }
    Ok(format!(
        "{counts:?} were restored from the lock; then upgraded"
    ))
}

/// Deletes a request, and removes its finalizer. Returns its phase.
async fn remove(bench: &Bench, name: &str) -> Result<String> {
    let state = bench.delete::<UpgradeRequest>(name).await?;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bench
        .upgrades()
        .patch(name, &PatchParams::default(), &free)
        .await?;
    Ok(crate::e2e::reading::phase_of(&state))
}

/// The ManagedApp is deleted during an upgrade, and waits for it. Then it deletes the snapshots.
pub(super) async fn deleted_app(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "grace": 5 }),
            app: json!({ "snapshotsOnDelete": "Delete" }),
            ..Setup::store("app")
        })
        .await?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "ScaleDown", END)
        .await?;
    bench.apps().delete("app", &DeleteParams::default()).await?;
    let waiting = bench
        .until("app", PHASE, "Terminating", |status| {
            let message = status.progress.message.as_deref().unwrap_or_default();
            status.phase == Some(AppPhase::Terminating) && message.contains("'up'")
        })
        .await?;
    bench.succeeds::<UpgradeRequest>("up", END).await?;
    until_gone(&bench.apps(), "app", PHASE).await?;
    no_snapshots(env).await?;
    flux_is_free(env, "app").await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(own.len() == 1, "commits of the upgrade: {own:?}");
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0", "2.0.0"], "started versions: {found:?}");
    Ok(waiting.progress.message.unwrap_or_default())
}
