//! S1.1, S1.2, S1.3: the objects of an application equal those of the cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::apps::{ManagedAppStatus, UnprotectedVolume};
use k8s_openapi::api::batch::v1::CronJob;
use serde_json::{Value, json};

use super::{
    cluster::{equals, volumes},
    fixture::{Bench, LIMIT, RARELY, RELEASED, brief, put, remove},
    manifests::{BUSYBOX, claim, cron_job, daemon_set, deployment, shop, stateful_set},
};
use crate::flux::{HELM, applied, charts, dynamic, ready, stored_release};

/// The controller starts a CronJob each minute, and its Pod needs a moment.
const MINUTE: Duration = Duration::from_secs(120);

/// The revision in the status is the one that Flux applied, and that of the newest commit.
async fn is_at(bench: &Bench, status: &ManagedAppStatus, revision: &str) -> Result<()> {
    let seen = applied(&bench.env, "app", revision, LIMIT).await?;
    let git = status.git.as_ref().context("no revision in the status")?;
    ensure!(
        seen.data["status"]["lastAppliedRevision"] == *git.revision,
        "'{}', and Flux applied {}",
        git.revision,
        seen.data["status"]["lastAppliedRevision"]
    );
    Ok(())
}

pub(super) async fn kustomize(bench: &Bench) -> Result<String> {
    let agent = daemon_set("agent");
    let objects = [
        claim("files"),
        deployment("web", BUSYBOX, &["files"]),
        stateful_set("database"),
        agent.clone(),
        cron_job("backup", true, &["files"]),
    ];
    let source = bench.launch("app", &objects).await?;
    let mut wanted = vec![
        ("CronJob", "backup"),
        ("DaemonSet", "agent"),
        ("Deployment", "web"),
        ("StatefulSet", "database"),
    ];
    let status = equals(bench, "app", &wanted).await?;
    is_at(bench, &status, &source.revision()?).await?;
    let names: Vec<&str> = status.volumes.iter().map(|one| one.name.as_str()).collect();
    ensure!(names == ["data-database-0", "files"], "volumes {names:?}");
    let of_node = UnprotectedVolume {
        workload: format!("DaemonSet {}/agent", bench.env.namespace),
        volume: "node".to_owned(),
        kind: "hostPath".to_owned(),
    };
    ensure!(
        status.unprotected_volumes == [of_node],
        "unprotected volumes {:?}",
        status.unprotected_volumes
    );
    let versions = status.git.as_ref().map(|git| git.versions.len());
    ensure!(
        status.helm_release.is_none() && status.release.is_none() && versions == Some(0),
        "versions of a release without a HelmRelease: {status:?}"
    );

    // Flux deletes an object that leaves the branch. The list follows.
    let revision = remove(&source, "Remove the agent", &agent).await?;
    bench.ready("app", &revision, LIMIT).await?;
    wanted.retain(|(kind, _)| *kind != "DaemonSet");
    let status = equals(bench, "app", &wanted).await?;
    is_at(bench, &status, &revision).await?;
    ensure!(
        status.unprotected_volumes.is_empty(),
        "a volume of a deleted workload: {:?}",
        status.unprotected_volumes
    );
    Ok("4 workloads and 2 volumes, then 3 workloads".to_owned())
}

pub(super) async fn helm(bench: &Bench) -> Result<String> {
    let _charts = charts(&bench.env).await?;
    let source = bench.apply(("app", RARELY), &[shop("1.0.0")]).await?;
    bench.manage("app", "app").await?;
    let first = source.revision()?;
    applied(&bench.env, "app", &first, LIMIT).await?;
    let releases = dynamic(&bench.env, HELM, "HelmRelease");
    ready(&releases, "shop", RELEASED).await?;
    is_release(bench, &first, "1.0.0", 1).await?;
    let revision = put(&source, "Upgrade the shop", &[shop("2.0.0")]).await?;
    applied(&bench.env, "app", &revision, LIMIT).await?;
    bench
        .until("app", RELEASED, "version 2.0.0", |status| {
            let release = status.release.as_ref();
            release.is_some_and(|release| release.chart_version == "2.0.0")
        })
        .await?;
    ready(&releases, "shop", RELEASED).await?;
    let status = is_release(bench, &revision, "2.0.0", 2).await?;
    Ok(brief(&status))
}

/// The status, the HelmRelease, the Secret of Helm and the workloads show the same release.
async fn is_release(
    bench: &Bench,
    revision: &str,
    chart: &str,
    version: i64,
) -> Result<ManagedAppStatus> {
    bench.ready("app", revision, RELEASED).await?;
    let wanted = [("Deployment", "shop-app"), ("StatefulSet", "shop-database")];
    let status = equals(bench, "app", &wanted).await?;
    is_at(bench, &status, revision).await?;
    let helm = dynamic(&bench.env, HELM, "HelmRelease").get("shop").await?;
    let newest = &helm.data["status"]["history"][0];
    let reported = status.release.as_ref().context("no release")?;
    let keys = [
        "name",
        "version",
        "status",
        "chartVersion",
        "appVersion",
        "configDigest",
    ];
    let listed: Value = keys
        .into_iter()
        .map(|key| (key.to_owned(), newest[key].clone()))
        .collect();
    ensure!(
        json!(reported) == listed,
        "the status has {reported:?}, the HelmRelease {listed}"
    );
    let stored = stored_release(&bench.env, "shop", version).await?;
    let found = &stored["chart"]["metadata"]["version"];
    ensure!(
        reported.version == version && reported.chart_version == chart && *found == *chart,
        "{reported:?}, and Helm stored the chart {found}, wanted {chart}"
    );
    let git = status.git.as_ref().context("no revision")?;
    let requested = git.versions.get("chart").map(String::as_str);
    ensure!(
        requested == Some(chart) && status.versions_match == Some(true),
        "requested {requested:?}, match {:?}",
        status.versions_match
    );
    let name = status.helm_release.as_ref().map(ToString::to_string);
    ensure!(
        name == Some(format!("{}/shop", bench.env.namespace)),
        "the HelmRelease {name:?}"
    );
    Ok(status)
}

pub(super) async fn shared_volume(bench: &Bench) -> Result<String> {
    let objects = [
        claim("files"),
        deployment("web", BUSYBOX, &["files"]),
        cron_job("backup", true, &["files"]),
    ];
    bench.launch("app", &objects).await?;
    let wanted = [("CronJob", "backup"), ("Deployment", "web")];
    equals(bench, "app", &wanted).await?;
    // Flux does not apply this one. Its Pod mounts the volume, too.
    bench
        .env
        .create::<CronJob>(cron_job("copy", false, &["files"]))
        .await?;
    let status = bench
        .until("app", MINUTE, "the CronJob 'copy'", |status| {
            status.workloads.iter().any(|one| one.name == "copy")
        })
        .await?;
    let others = status.workloads.iter().filter(|one| !one.in_inventory);
    let others: Vec<(&str, &str)> = others
        .map(|one| (one.kind.as_str(), one.name.as_str()))
        .collect();
    ensure!(
        others == [("CronJob", "copy")] && status.workload_count == 3,
        "workloads {:?}",
        status.workloads
    );
    let claims = volumes(&bench.env).await?;
    ensure!(
        claims.len() == 1 && status.volumes == claims && status.volume_count == 1,
        "volumes {:?}, and the cluster has {claims:?}",
        status.volumes
    );
    Ok(format!(
        "{} and 3 workloads: {}",
        claims[0].name,
        brief(&status)
    ))
}
