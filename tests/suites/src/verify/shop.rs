//! The chart `shop`, whose versions later tests upgrade and roll back.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, LogParams, Patch, PatchParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::fixture::{LIMIT, exec, gone, image};
use crate::flux::{HELM, charts, condition, create_any, dynamic, ready, release};

const DATABASE: &str = "shop-database-0";
/// A hook waits 15 s for the database; helm then reports its failure.
const HOOK_LIMIT: Duration = Duration::from_secs(90);

pub(super) async fn versions(env: Env) -> Result<String> {
    let _charts = charts(&env).await?;
    let mut object = release("shop", "shop", "1.0.0", &json!({"storage": "256Mi"}));
    // Versions that fail must not occupy helm-controller until its timeout.
    object["spec"]["upgrade"] = json!({"disableWait": true});
    create_any(&env, object).await?;
    let releases = dynamic(&env, HELM, "HelmRelease");
    ready(&releases, "shop", LIMIT).await?;
    let insert = "insert into items (note) select 'note ' || n from generate_series(1, 1000) n";
    query(&env, insert).await?;
    ensure!(
        columns(&env).await? == "id,note",
        "1.0.0 made other columns"
    );

    upgrade(&releases, "2.0.0").await?;
    ready(&releases, "shop", LIMIT).await?;
    available(&env, "2").await?;
    let seen = columns(&env).await?;
    ensure!(seen == "id", "2.0.0 left the columns {seen}");
    let rows = query(&env, "select count(*) from items").await?;
    ensure!(rows == "1000", "2.0.0 left {rows} rows");

    upgrade(&releases, "1.0.0").await?;
    let text = "version 1 cannot use the data of a newer version";
    crashes(&env, "1", text).await?;
    query(&env, "alter table items add column note text").await?;
    upgrade(&releases, "3.0.0").await?;
    crashes(&env, "3", "version 3 fails after its migration").await?;
    let seen = columns(&env).await?;
    ensure!(seen == "id", "3.0.0 left the columns {seen}");

    let scale = Patch::Merge(json!({"spec": {"replicas": 0}}));
    env.api::<StatefulSet>()
        .patch("shop-database", &PatchParams::default(), &scale)
        .await?;
    gone(&env, DATABASE).await?;
    upgrade(&releases, "4.0.0").await?;
    let why = hook_failure(&releases).await?;
    Ok(format!(
        "2.0.0 drops the column, 1.0.0 then fails, so does 3.0.0; 4.0.0 without the database: {why}"
    ))
}

async fn upgrade(releases: &Api<DynamicObject>, version: &str) -> Result<()> {
    let change = json!({"spec": {"chart": {"spec": {"version": version}}}});
    let patch = Patch::Merge(change);
    releases
        .patch("shop", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The output of a statement, without the end of its line.
async fn query(env: &Env, statement: &str) -> Result<String> {
    let script =
        format!("psql --no-psqlrc --quiet --tuples-only --no-align --command \"{statement}\"");
    let (success, output) = exec(env, DATABASE, &script).await?;
    ensure!(success, "'{statement}' failed: {output}");
    Ok(output.trim().to_owned())
}

async fn columns(env: &Env) -> Result<String> {
    let statement = "select string_agg(column_name, ',' order by ordinal_position) \
         from information_schema.columns where table_name = 'items'";
    query(env, statement).await
}

/// Waits until the app has this version and its Pod is available.
async fn available(env: &Env, version: &str) -> Result<()> {
    let deployments: Api<Deployment> = env.api();
    let wanted = app_image(version);
    until(
        &format!("version {version} to be available"),
        LIMIT,
        async || {
            let deployment = deployments.get("shop-app").await?;
            let image = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.template.spec.as_ref())
                .and_then(|pod| pod.containers.first()?.image.clone());
            let generation = deployment.metadata.generation;
            let status = deployment.status.unwrap_or_default();
            let is_new =
                image.as_ref() == Some(&wanted) && status.observed_generation == generation;
            let is_available =
                status.updated_replicas == Some(1) && status.available_replicas == Some(1);
            Ok(met(is_new && is_available, || {
                format!("{image:?}, {status:?}")
            }))
        },
    )
    .await
}

fn app_image(version: &str) -> String {
    image("app").replace(":1", &format!(":{version}"))
}

/// Waits until a Pod of this version has failed and started again, and its log has the text.
pub(crate) async fn crashes(env: &Env, version: &str, text: &str) -> Result<()> {
    let pods: Api<Pod> = env.api();
    let (labels, wanted) = (
        ListParams::default().labels("app=shop-app"),
        app_image(version),
    );
    until(&format!("version {version} to fail"), LIMIT, async || {
        let list = pods.list(&labels).await?.items;
        let pod = list.iter().find(|pod| {
            let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
            containers.is_some_and(|all| all.iter().any(|one| one.image.as_ref() == Some(&wanted)))
        });
        let Some(pod) = pod else {
            return Ok(Err(format!(
                "no Pod of {} has the image '{wanted}'",
                list.len()
            )));
        };
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        let restarts = statuses
            .and_then(|all| all.first())
            .map_or(0, |one| one.restart_count);
        if restarts == 0 {
            return Ok(Err(format!(
                "Pod '{}' has not started again",
                pod.name_any()
            )));
        }
        let parameters = LogParams {
            previous: true,
            ..LogParams::default()
        };
        let log = match pods.logs(&pod.name_any(), &parameters).await {
            Ok(log) => log,
            // The kubelet removes the log of a container when the next one ends.
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(met(log.contains(text), || log))
    })
    .await
}

/// Waits until helm-controller reports that the hook of 4.0.0 failed.
async fn hook_failure(releases: &Api<DynamicObject>) -> Result<String> {
    until("the hook to fail", HOOK_LIMIT, async || {
        let release = releases.get("shop").await?;
        let [status, reason, message] = condition(&release, "Released");
        let newest = &release.data["status"]["history"][0];
        if newest["chartVersion"] == "4.0.0" && newest["status"] == "deployed" {
            bail!("4.0.0 was installed without the database: {message}");
        }
        Ok(
            if status == "False" && message.contains("pre-upgrade hooks failed") {
                Ok(reason)
            } else {
                Err(format!("Released is '{status}', {reason}: {message}"))
            },
        )
    })
    .await
}
