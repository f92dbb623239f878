//! Plans that are rejected or only reported: nothing is changed, by the audit log.

use anyhow::{Context, Result, ensure};
use api::apps::UpgradeRequest;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::{
    cluster::{Addition, Cluster, Tier},
    git::Server,
    suite::Env,
};

use super::{
    super::{
        late_flux::{blocking, place},
        manifests::{BUSYBOX, deployment},
    },
    evidence::{claim, fingerprint, head, mark, writes, wrote_reports_only},
    fixture::{App, Bench, PLANNED, Setup},
    volume::{starts, store_claim, store_pod},
};

/// Submits an upgrade that must be rejected. Nothing is changed.
async fn is_rejected(bench: &Bench, app: &App, reason: &str, parts: &[&str]) -> Result<String> {
    let env = &bench.env;
    let (before, base) = (fingerprint(env, &app.name).await?, head(app)?);
    let since = mark(env).await?;
    bench.upgrade("up", &app.name, "2.0.0", json!({})).await?;
    let state = bench
        .fails::<UpgradeRequest>("up", PLANNED, reason, parts)
        .await?;
    let count = wrote_reports_only(bench, since).await?;
    let after = fingerprint(env, &app.name).await?;
    ensure!(before == after, "{before} is now {after}");
    ensure!(head(app)? == base, "a commit was pushed");
    let message = state.progress.message.unwrap_or_default();
    Ok(format!("{message} ({count} writes, all of them reports)"))
}

pub(super) async fn no_volumes(bench: &Bench) -> Result<String> {
    let app = bench
        .launch(Setup {
            chart: "sleeper",
            values: json!({ "text": "first" }),
            objects: vec![deployment("web", BUSYBOX, &[])],
            ..Setup::store("app")
        })
        .await?;
    is_rejected(bench, &app, "NoVolumesFound", &[]).await
}

/// kustomize-controller would set the field again at each interval.
pub(super) async fn suspended_by_parent(bench: &Bench) -> Result<String> {
    let app = bench
        .launch(Setup {
            release: json!({ "suspend": false }),
            ..Setup::store("app")
        })
        .await?;
    let helm = bench.quoted("HelmRelease", "app");
    let parts = ["kustomize-controller", helm.as_str()];
    is_rejected(bench, &app, "SuspendOwnedByParent", &parts).await
}

/// A StatefulSet that would delete its claims when it is scaled down.
pub(super) async fn deleted_when_scaled(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "whenScaled": "Delete" }),
            ..Setup::store("app")
        })
        .await?;
    let before = claim(env, &store_claim("app")).await?;
    let set = bench.quoted("StatefulSet", "app-store");
    let message = is_rejected(bench, &app, "PVCsDeletedOnScaleDown", &[&set]).await?;
    let after = claim(env, &store_claim("app")).await?;
    let found = starts(env, &store_pod("app")).await?;
    ensure!(
        before.metadata.uid == after.metadata.uid && found == ["1.0.0"],
        "the data: {found:?}, in claim {:?} instead of {:?}",
        after.metadata.uid,
        before.metadata.uid
    );
    Ok(message)
}

pub(super) async fn dry_run(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    let (before, base) = (fingerprint(env, "app").await?, head(&app)?);
    let pushes = app.source.repository().activity()?.pushes;
    let since = mark(env).await?;
    let dry = json!({ "dryRun": true });
    bench.upgrade("dry", "app", "2.0.0", dry.clone()).await?;
    let state = bench.succeeds::<UpgradeRequest>("dry", PLANNED).await?;
    let plan = state.plan.as_ref().context("no plan")?;
    let (volumes, workloads) = (&plan.volumes, &plan.workloads);
    ensure!(
        volumes.len() == 1 && volumes[0].pvc == store_claim("app") && workloads.len() == 1,
        "the plan has {volumes:?} and {workloads:?}"
    );
    ensure!(
        plan.commit.base == base && plan.commit.diff.contains("2.0.0"),
        "the plan has {:?}",
        plan.commit
    );
    // A dry run that is rejected changes nothing either.
    bench.upgrade("same", "app", "1.0.0", dry).await?;
    bench
        .fails::<UpgradeRequest>("same", PLANNED, "NothingToChange", &[])
        .await?;
    wrote_reports_only(bench, since).await?;
    let all = writes(bench, since).await?;
    let jobs = all
        .iter()
        .filter(|entry| entry.request.resource == "jobs.batch" && entry.request.verb == "create");
    let jobs = jobs.count();
    ensure!(jobs == 1, "the operator created {jobs} Jobs");
    // S1.9: a finalizer would be a patch of the request itself.
    let held = all
        .iter()
        .find(|entry| entry.request.resource == "upgraderequests.orchestrator.io");
    ensure!(held.is_none(), "the request itself was changed: {held:?}");
    let after = fingerprint(env, "app").await?;
    ensure!(before == after, "{before} is now {after}");
    let pushed = app.source.repository().activity()?.pushes;
    ensure!(
        head(&app)? == base && pushed == pushes,
        "{pushed} pushes, and {pushes} before"
    );
    Ok(format!(
        "{} writes: 1 Job and reports; no finalizer, no push",
        all.len()
    ))
}

/// A cluster of its own, because all other cases need snapshots.
pub(super) async fn no_snapshot_crds(env: Env) -> Result<String> {
    env.testbed("a cluster without snapshots")?;
    let name = format!("e2e-apps-{}-flux", std::process::id());
    let cluster = blocking(async move || {
        let mut cluster = Cluster::start(&name, Tier::Node).await?;
        cluster.add(&[Addition::Flux]).await?;
        anyhow::Ok(cluster)
    })
    .await??;
    let git = Server::in_cluster(&cluster)?;
    let bench = Bench::on(place(env, &cluster).await?, git, &cluster).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(bench.env.client.clone());
    let crd = "volumesnapshots.snapshot.storage.k8s.io";
    ensure!(crds.get_opt(crd).await?.is_none(), "'{crd}' exists");
    let app = bench.launch(Setup::store("app")).await?;
    let claims: Api<PersistentVolumeClaim> = bench.env.api();
    let claim = claims.get(&store_claim("app")).await?;
    // The audit log of this cluster is not the one of the case.
    let before = fingerprint(&bench.env, "app").await?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let state = bench
        .fails::<UpgradeRequest>("up", PLANNED, "SnapshotsNotInstalled", &[])
        .await?;
    let after = fingerprint(&bench.env, "app").await?;
    ensure!(before == after, "{before} is now {after}");
    let message = state.progress.message.unwrap_or_default();
    let base = head(&app)?;
    bench.done().await?;
    blocking(async move || cluster.stop().await).await??;
    Ok(format!(
        "{message}; claim '{}' and branch at '{base}' as before",
        claim.name_any()
    ))
}
