//! Flux applies, prunes, installs and upgrades as in any cluster.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;
use testkit::{
    git::{Entry, Server},
    suite::Env,
};

use super::fixture::{LIMIT, image};
use crate::flux::{
    HELM, Source, applied, charts, create_any, dynamic, ready, release, stored_release,
};

pub(super) async fn kustomization(env: Env) -> Result<String> {
    let git = Server::in_cluster(env.testbed("a Git server in the cluster's network")?)?;
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "web", "image": image("busybox"), "command": ["sleep", "3600"]}],
                },
            },
        },
    });
    let files = [
        ("apps/settings.yaml", settings("first")),
        ("apps/web.yaml", web.to_string()),
        // Outside of the path that is applied.
        ("other/settings.yaml", settings("other")),
    ];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let begin = Instant::now();
    let source = Source::new(&env, &git, ("deploy", "10m"), &files).await?;
    let mut object = crate::flux::kustomization(&env, "deploy", "deploy", "./apps");
    object["spec"]["wait"] = json!(true);
    create_any(&env, object).await?;
    let revision = source.revision()?;
    let seen = applied(&env, "deploy", &revision, LIMIT).await?;
    let first = begin.elapsed();
    check_applied(
        &seen,
        &revision,
        &inventory(&env, &["settings__ConfigMap", "web_apps_Deployment"]),
    )?;
    check_text(&env, "settings", "first").await?;

    let next = settings("second");
    let changes = [
        ("apps/settings.yaml", Entry::File(next.as_bytes())),
        ("apps/web.yaml", Entry::Removed),
    ];
    let begin = Instant::now();
    let revision = source.push("Remove web", &changes).await?;
    let seen = applied(&env, "deploy", &revision, LIMIT).await?;
    let second = begin.elapsed();
    check_applied(&seen, &revision, &inventory(&env, &["settings__ConfigMap"]))?;
    check_text(&env, "settings", "second").await?;
    let left = env.api::<Deployment>().get_opt("web").await?;
    let is_pruned = left.is_none_or(|web| web.metadata.deletion_timestamp.is_some());
    ensure!(
        is_pruned,
        "the Deployment that left the branch was not pruned"
    );
    Ok(format!(
        "2 objects in the inventory after {:.1} s, 1 pruned {:.1} s after the commit",
        first.as_secs_f64(),
        second.as_secs_f64()
    ))
}

fn settings(text: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"text": text},
    })
    .to_string()
}

/// Ids of an inventory, from names, groups and kinds.
fn inventory(env: &Env, objects: &[&str]) -> BTreeSet<String> {
    let ids = objects.iter();
    ids.map(|object| format!("{}_{object}", env.namespace))
        .collect()
}

fn check_applied(seen: &DynamicObject, revision: &str, wanted: &BTreeSet<String>) -> Result<()> {
    let status = &seen.data["status"];
    ensure!(
        status["lastAppliedRevision"] == *revision,
        "applied {} instead of {revision}",
        status["lastAppliedRevision"]
    );
    let entries = status["inventory"]["entries"].as_array();
    let ids: BTreeSet<String> = entries
        .context("no inventory")?
        .iter()
        .map(|entry| entry["id"].as_str().unwrap_or_default().to_owned())
        .collect();
    ensure!(ids == *wanted, "inventory {ids:?} instead of {wanted:?}");
    Ok(())
}

pub(super) async fn check_text(env: &Env, name: &str, wanted: &str) -> Result<()> {
    let data = env.api::<ConfigMap>().get(name).await?.data;
    let text = data.unwrap_or_default().remove("text");
    ensure!(
        text.as_deref() == Some(wanted),
        "the ConfigMap '{name}' has {text:?} instead of '{wanted}'"
    );
    Ok(())
}

pub(super) async fn helm_release(env: Env) -> Result<String> {
    let _charts = charts(&env).await?;
    let begin = Instant::now();
    create_any(
        &env,
        release("demo", "sleeper", "1.0.0", &json!({"text": "first"})),
    )
    .await?;
    let releases = dynamic(&env, HELM, "HelmRelease");
    let installed = ready(&releases, "demo", LIMIT).await?;
    let took = begin.elapsed();
    check_release(&env, &installed, 1, "first").await?;

    let patch = Patch::Merge(json!({"spec": {"values": {"text": "second"}}}));
    releases
        .patch("demo", &PatchParams::default(), &patch)
        .await?;
    let upgraded = ready(&releases, "demo", LIMIT).await?;
    check_release(&env, &upgraded, 2, "second").await?;
    let old = stored_release(&env, "demo", 1).await?;
    ensure!(
        old["info"]["status"] == "superseded",
        "the first release is '{}' after the upgrade",
        old["info"]["status"]
    );
    ensure!(
        stored_release(&env, "demo", 3).await.is_err(),
        "there is a third release"
    );
    let inventory = &upgraded.data["status"]["inventory"]["entries"];
    Ok(format!(
        "installed in {:.1} s, release Secrets v1 and v2 decoded, inventory of {} objects",
        took.as_secs_f64(),
        inventory.as_array().map_or(0, Vec::len)
    ))
}

/// The newest history entry, its release Secret and the ConfigMap of the chart must agree.
async fn check_release(env: &Env, release: &DynamicObject, version: i64, text: &str) -> Result<()> {
    let newest = &release.data["status"]["history"][0];
    let wanted = json!({
        "chartName": "sleeper", "chartVersion": "1.0.0", "name": "demo",
        "namespace": env.namespace, "status": "deployed", "version": version,
    });
    for (key, wanted) in wanted.as_object().context("an object")? {
        ensure!(
            newest[key] == *wanted,
            "history has {key} {} instead of {wanted}: {newest}",
            newest[key]
        );
    }
    let stored = stored_release(env, "demo", version).await?;
    for (pointer, wanted) in [
        ("/name", json!("demo")),
        ("/version", json!(version)),
        ("/info/status", json!("deployed")),
        ("/chart/metadata/version", json!("1.0.0")),
        ("/config/text", json!(text)),
    ] {
        let found = stored.pointer(pointer);
        ensure!(
            found == Some(&wanted),
            "the release Secret has {found:?} at {pointer} instead of {wanted}"
        );
    }
    let manifest = stored["manifest"].as_str().unwrap_or_default();
    ensure!(
        manifest.contains("kind: ConfigMap") && manifest.contains(text),
        "the release Secret has the manifest '{manifest}'"
    );
    check_text(env, "demo", text).await
}
