//! Flux after the commit: its failures, and objects of Flux that wait for others.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{
    apps::{ScaleDownPolicy, UpgradeRequest},
    names,
};
use futures::future::try_join;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::json;
use testkit::wait::{met, until};

use super::{
    super::fixture::{LIMIT, RARELY, RELEASED},
    database::count,
    evidence::{
        commits_of, deployed, flux_is_free, flux_is_locked, head, helm, scales, snapshots,
        until_deployed,
    },
    fixture::{App, Bench, END, Operation, RELEASE_FILE, Setup, UNDONE},
    volume::{starts, store_pod},
};
use crate::flux::{
    KUSTOMIZE, condition, create_any, dynamic, kustomization, revision, stored_release,
};

/// A failure that Flux reports is the reason of the request within this time.
const REPORTED: Duration = Duration::from_secs(10);

/// Waits for the first failure of an upgrade, from now on.
async fn first_failure(bench: &Bench) -> Result<(String, Duration)> {
    let begin = Instant::now();
    let state = bench
        .reach::<UpgradeRequest>("up", LIMIT, "its first failure", |state| {
            UpgradeRequest::failure(state).is_some()
        })
        .await?;
    let (reason, _) = UpgradeRequest::failure(&state).context("no failure")?;
    Ok((reason.to_owned(), begin.elapsed()))
}

/// After the commit, the commit and the snapshot stay, and Flux and the workloads are as before.
async fn is_resumed(bench: &Bench, app: &App) -> Result<()> {
    let env = &bench.env;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(app, &uid)?;
    ensure!(
        own.len() == 1 && head(app)? == own[0].id,
        "commits of the request: {own:?}"
    );
    let taken = snapshots(env).await?;
    ensure!(taken.len() == 1, "{} snapshots", taken.len());
    flux_is_free(env, &app.name).await
}

/// Version 3 crash-loops. Helm returns to version 1 by itself, on migrated data.
pub(super) async fn remediated(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            release: json!({
                "timeout": "15s",
                "upgrade": { "remediation": { "retries": 0, "remediateLastFailure": true } },
                "rollback": { "disableWait": true },
            }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    bench.upgrade("up", "app", "3.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "Reconcile", END)
        .await?;
    until("Helm's own rollback", RELEASED, async || {
        let helm = helm(env, "app").await?;
        let [status, reason, message] = condition(&helm, "Remediated");
        Ok(met(status == "True", || {
            format!("Remediated is '{status}': {reason}: {message}")
        }))
    })
    .await?;
    let (reason, took) = first_failure(bench).await?;
    ensure!(
        reason == "HelmRemediated" && took <= REPORTED,
        "{reason} {took:?} after Helm's rollback"
    );
    let stored = stored_release(env, "app", 3).await?;
    let chart = &stored["chart"]["metadata"]["version"];
    ensure!(*chart == "1.0.0", "Helm's third release has chart {chart}");
    let name = bench.quoted("HelmRelease", "app");
    let state = bench
        .fails::<UpgradeRequest>("up", UNDONE, "HelmRemediated", &[&name])
        .await?;
    is_resumed(bench, &app).await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    Ok(format!(
        "{:.1} s after Helm's rollback: {}",
        took.as_secs_f64(),
        state.progress.message.unwrap_or_default()
    ))
}

/// A patch of the Kustomization replaces the version of the file.
pub(super) async fn no_effect(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let patch = "- op: replace\n  path: /spec/chart/spec/version\n  value: 1.0.0\n";
    let app = bench
        .launch(Setup {
            kustomization: json!({
                "patches": [{ "patch": patch, "target": { "kind": "HelmRelease" } }],
            }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "Reconcile", END)
        .await?;
    let wanted = revision(&head(&app)?);
    let kustomizations = dynamic(env, KUSTOMIZE, "Kustomization");
    until("Flux to apply the commit", LIMIT, async || {
        let seen = kustomizations.get("app").await?;
        let applied = &seen.data["status"]["lastAppliedRevision"];
        Ok(met(*applied == *wanted, || applied.to_string()))
    })
    .await?;
    let (reason, took) = first_failure(bench).await?;
    ensure!(
        reason == "CommitHadNoEffect" && took <= REPORTED,
        "{reason} {took:?} after Flux had applied the commit"
    );
    let requested = helm(env, "app").await?.data["spec"]["chart"]["spec"]["version"].clone();
    ensure!(requested == "1.0.0", "the HelmRelease requests {requested}");
    let state = bench
        .fails::<UpgradeRequest>("up", UNDONE, "CommitHadNoEffect", &[])
        .await?;
    is_resumed(bench, &app).await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    bench.settled(&app).await?;
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0"], "started versions: {found:?}");
    Ok(format!(
        "{:.1} s after Flux had applied it: {}",
        took.as_secs_f64(),
        state.progress.message.unwrap_or_default()
    ))
}

/// The Kustomization waits for its HelmRelease, which is suspended.
pub(super) async fn waiting(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            kustomization: json!({ "wait": true }),
            ..Setup::store("app")
        })
        .await?;
    bench.upgraded("up", &app, "2.0.0").await?;
    bench.settled(&app).await?;
    let seen = dynamic(env, KUSTOMIZE, "Kustomization").get("app").await?;
    ensure!(seen.data["spec"]["wait"] == true, "it does not wait");
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0", "2.0.0"], "started versions: {found:?}");
    flux_is_free(env, "app").await?;
    Ok("the HelmRelease was resumed while the Kustomization waited for it".to_owned())
}

/// The parent applies the Kustomization of the application, which depends on it.
pub(super) async fn depending(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let setup = Setup {
        // The phase ScaleDown takes as long.
        values: json!({ "grace": 5 }),
        app: json!({ "suspendRef": { "name": "parent" } }),
        ..Setup::store("app")
    };
    let mut child = kustomization(env, "app", "app", "./app");
    child["spec"]["interval"] = json!(RARELY);
    child["spec"]["dependsOn"] = json!([{ "name": "parent" }]);
    let files = [
        (RELEASE_FILE.to_owned(), setup.file()),
        ("parent/app.yaml".to_owned(), child.to_string()),
    ];
    let source = bench.commit_files(&setup, &files).await?;
    create_any(env, kustomization(env, "parent", "app", "./parent")).await?;
    let app = bench.adopt(&setup, source).await?;

    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "ScaleDown", END)
        .await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    flux_is_locked(env, "app", &uid).await?;
    let kustomizations = dynamic(env, KUSTOMIZE, "Kustomization");
    let parent = kustomizations.get("parent").await?;
    let lock = parent.annotations().get(names::LOCK);
    ensure!(
        parent.data["spec"]["suspend"] == true && lock.is_some_and(|lock| lock.contains(&uid)),
        "the parent has suspend {} and the lock {lock:?}",
        parent.data["spec"]["suspend"]
    );
    bench.succeeds::<UpgradeRequest>("up", END).await?;
    bench.settled(&app).await?;
    flux_is_free(env, "app").await?;
    let parent = kustomizations.get("parent").await?;
    let applied = &parent.data["status"]["lastAppliedRevision"];
    ensure!(
        parent.data["spec"]["suspend"].is_null()
            && !parent.annotations().contains_key(names::LOCK)
            && *applied == *revision(&head(&app)?),
        "the parent has suspend {} and applied {applied}",
        parent.data["spec"]["suspend"]
    );
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0", "2.0.0"], "started versions: {found:?}");
    Ok("parent and child were locked; both have applied the commit".to_owned())
}

/// A chart without replica counts, with a hook after the upgrade that waits for the new version. Helm ends only if the
/// operator restores the count before.
pub(super) async fn no_replicas(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "autoscaled": true, "check": true }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    bench.upgraded("up", &app, "2.0.0").await?;
    bench.settled(&app).await?;
    flux_is_free(env, "app").await?;
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0", "2.0.0"], "started versions: {found:?}");
    Ok(format!(
        "{counts:?} were restored before the end of Helm's action"
    ))
}

/// Two databases with a chart that migrates in a hook before each upgrade.
pub(super) async fn hook(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let with = |name: &'static str, policy: &str| Setup {
        version: "4.0.0",
        app: json!({ "scaleDownPolicy": policy }),
        ..Setup::shop(name)
    };
    let (auto, late) = try_join(
        bench.launch(with("auto", "Auto")),
        bench.launch(with("late", "UntilUpgraded")),
    )
    .await?;
    let counts = scales(env).await?;
    bench
        .upgrade("auto", &auto.name, "4.1.0", json!({}))
        .await?;
    bench
        .upgrade("late", &late.name, "4.1.0", json!({}))
        .await?;
    let (state, failed) = try_join(
        bench.succeeds::<UpgradeRequest>("auto", END),
        bench.fails::<UpgradeRequest>("late", UNDONE, "HelmUpgradeFailed", &["pre-upgrade"]),
    )
    .await?;

    let policy = state.plan.as_ref().map(|plan| plan.scale_down_policy);
    ensure!(
        policy == Some(ScaleDownPolicy::UntilSnapshotReady),
        "'Auto' is {policy:?}"
    );
    until_deployed(env, "auto", "4.1.0", 1).await?;
    let job = env.api::<Job>().get("auto-migration").await?;
    let succeeded = job.status.and_then(|status| status.succeeded);
    ensure!(succeeded == Some(1), "the hook has {succeeded:?} successes");
    bench.settled(&auto).await?;
    for app in ["auto", "late"] {
        flux_is_free(env, app).await?;
        let database = format!("{app}-database-0");
        crate::verify::fixture::phase(env, &database, "Running").await?;
    }
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    let rows = count(env, "auto-database-0").await?;
    // Helm has stored the failed release. The one before it is not superseded.
    let helm = helm(env, "late").await?;
    let newest = &helm.data["status"]["history"][0];
    ensure!(
        newest["status"] == "failed" && newest["chartVersion"] == "4.1.0",
        "the newest release of 'late' is {newest}"
    );
    let (version, chart) = deployed(env, "auto").await?;
    Ok(format!(
        "'Auto': release {version} with chart {chart} and {rows} rows; 'UntilUpgraded': {}",
        failed.progress.message.unwrap_or_default()
    ))
}
