//! Several requests of one application, requests without snapshots, and a report that is wrong.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{
    apps::{RollbackRequest, UpgradeRequest},
    names,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    evidence::{
        claim, commits_of, flux_is_free, head, helm, mark, no_snapshots, release_file, volume_of,
        writes,
    },
    fixture::{App, Bench, END, PHASE, PLANNED, Setup},
    volume::{STARTS, exec, starts, store_claim, store_pod},
};

/// Creation times have seconds.
const SECOND: Duration = Duration::from_millis(1100);
/// Time between two wrong reports.
const OFTEN: Duration = Duration::from_millis(100);

/// Without snapshots, nothing is stopped before Flux applies the version, and a rollback returns only Git.
pub(super) async fn without_snapshots(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    let pod = env.api::<Pod>().get(&store_pod("app")).await?;
    let volume = volume_of(&claim(env, &store_claim("app")).await?)?;
    let file = release_file(&app, &head(&app)?)?;
    let since = mark(env).await?;
    let skip = json!({ "skipSnapshot": true });
    bench.upgrade("up", "app", "1.1.0", skip).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "GitCommit", END)
        .await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let helm = helm(env, "app").await?;
    let lock = helm.annotations().get(names::LOCK);
    ensure!(
        lock.is_some_and(|lock| lock.contains(&uid)) && helm.data["spec"]["suspend"].is_null(),
        "during the commit, the lock is {lock:?} and suspend {}",
        helm.data["spec"]["suspend"]
    );
    let now = env.api::<Pod>().get(&store_pod("app")).await?;
    ensure!(
        now.uid() == pod.uid() && now.metadata.deletion_timestamp.is_none(),
        "the Pod was stopped before the commit"
    );
    bench.succeeds::<UpgradeRequest>("up", END).await?;
    bench.settled(&app).await?;
    no_snapshots(env).await?;

    bench.roll_back("back", "up").await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    bench.settled(&app).await?;
    ensure!(
        release_file(&app, &head(&app)?)? == file,
        "the file is not that of before"
    );
    let found = starts(env, &store_pod("app")).await?;
    let kept = volume_of(&claim(env, &store_claim("app")).await?)?;
    ensure!(
        found == ["1.0.0", "1.1.0", "1.0.0"] && kept == volume,
        "volume '{kept}' has {found:?}; it was '{volume}'"
    );
    flux_is_free(env, "app").await?;
    let all = writes(bench, since).await?;
    let scaled = all
        .iter()
        .find(|entry| entry.request.resource.ends_with("/scale"));
    ensure!(scaled.is_none(), "a workload was scaled: {scaled:?}");
    Ok(format!("the volume was used by {found:?}, without a stop"))
}

/// The second request waits for the first one, and then has nothing to change.
pub(super) async fn two(bench: &Bench) -> Result<String> {
    let app = bench.launch(Setup::store("app")).await?;
    bench.upgrade("first", "app", "2.0.0", json!({})).await?;
    tokio::time::sleep(SECOND).await;
    bench.upgrade("second", "app", "2.0.0", json!({})).await?;
    let waiting = bench
        .waits::<UpgradeRequest>(
            "second",
            PHASE,
            "OperationActive",
            &["UpgradeRequest '", "first'"],
        )
        .await?;
    bench.succeeds::<UpgradeRequest>("first", END).await?;
    bench
        .fails::<UpgradeRequest>("second", PLANNED, "NothingToChange", &[])
        .await?;
    has_one_commit(bench, &app, "first").await?;
    let uid = bench.uid::<UpgradeRequest>("second").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(own.is_empty(), "commits of the second request: {own:?}");
    bench.settled(&app).await?;
    flux_is_free(&bench.env, "app").await?;
    Ok(waiting.progress.message.unwrap_or_default())
}

async fn has_one_commit(bench: &Bench, app: &App, request: &str) -> Result<()> {
    let uid = bench.uid::<UpgradeRequest>(request).await?;
    let own = commits_of(app, &uid)?;
    ensure!(
        own.len() == 1 && own[0].id == head(app)?,
        "commits of '{request}': {own:?}"
    );
    Ok(())
}

/// S1.8: someone writes a wrong status of the ManagedApp, again and again, until the plan is made.
pub(super) async fn wrong_status(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    let wrong = Patch::Merge(json!({ "status": {
        "git": { "revision": "main@sha1:0", "versions": { "chart": "9.9.9" } },
        "workloads": [], "workloadCount": 0, "volumes": [], "volumeCount": 0,
    } }));
    let (apps, params) = (bench.apps(), PatchParams::default());
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let mut count = 0;
    let state = loop {
        apps.patch_status("app", &params, &wrong).await?;
        count += 1;
        let state = bench.state::<UpgradeRequest>("up").await?;
        if state.plan.is_some() {
            break state;
        }
        ensure!(
            OFTEN * count < PLANNED,
            "no plan: {:?}",
            state.progress.message
        );
        tokio::time::sleep(OFTEN).await;
    };
    let plan = state.plan.as_ref().context("no plan")?;
    ensure!(
        plan.chart.from == "1.0.0" && plan.volumes.len() == 1 && plan.workloads.len() == 1,
        "the plan has chart {:?}, {} volumes and {} workloads",
        plan.chart,
        plan.volumes.len(),
        plan.workloads.len()
    );
    bench.succeeds::<UpgradeRequest>("up", END).await?;
    has_one_commit(bench, &app, "up").await?;
    bench.settled(&app).await?;
    let found = exec(env, &store_pod("app"), STARTS).await?;
    ensure!(
        found.lines().eq(["1.0.0", "2.0.0"]),
        "started versions: {found}"
    );
    Ok(format!(
        "{count} wrong reports; the plan is about 1 volume and chart 1.0.0"
    ))
}
