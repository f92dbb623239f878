//! Flux applies, prunes, installs and upgrades as in any cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    charts::ChartServer,
    git::{Credentials, Entry, Server},
    suite::Env,
    wait::{met, until},
};

use super::fixture::{LIMIT, create, create_any, dynamic, image, ready};

pub(super) const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
pub(super) const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
pub(super) const HELM: &str = "helm.toolkit.fluxcd.io/v2";
/// The annotation that asks Flux to reconcile an object now.
pub(super) const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// What helm-controller stores is a few kilobytes. More is not read.
const RELEASE_LIMIT: u64 = 32 << 20;

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
    let repository = git.create("deploy", "main", &files)?;
    secret(&env, "git", git.credentials_https()).await?;
    let begin = Instant::now();
    create_any(
        &env,
        json!({
            "apiVersion": SOURCE, "kind": "GitRepository", "metadata": {"name": "deploy"},
            "spec": {
                "interval": "10m", "url": git.https_url("deploy"), "ref": {"branch": "main"},
                "secretRef": {"name": "git"},
            },
        }),
    )
    .await?;
    create_any(
        &env,
        json!({
            "apiVersion": KUSTOMIZE, "kind": "Kustomization", "metadata": {"name": "deploy"},
            "spec": {
                "interval": "10m", "path": "./apps", "prune": true, "wait": true, "timeout": "1m",
                "targetNamespace": env.namespace,
                "sourceRef": {"kind": "GitRepository", "name": "deploy"},
            },
        }),
    )
    .await?;
    let kustomizations = dynamic(&env, KUSTOMIZE, "Kustomization");
    let applied = ready(&kustomizations, "deploy", LIMIT).await?;
    let first = begin.elapsed();
    let head = repository.head("main")?.context("no commit on main")?;
    check_applied(
        &applied,
        &head,
        &inventory(&env, &["settings__ConfigMap", "web_apps_Deployment"]),
    )?;
    check_text(&env, "settings", "first").await?;

    let next = settings("second");
    let changes = [
        ("apps/settings.yaml", Entry::File(next.as_bytes())),
        ("apps/web.yaml", Entry::Removed),
    ];
    let head = repository.commit("main", "Remove web", &changes)?;
    let begin = Instant::now();
    request(&dynamic(&env, SOURCE, "GitRepository"), "deploy", "second").await?;
    let revision = format!("main@sha1:{head}");
    until("the second commit to be applied", LIMIT, async || {
        let seen = kustomizations.get("deploy").await?;
        let seen = &seen.data["status"]["lastAppliedRevision"];
        Ok(met(*seen == *revision, || seen.to_string()))
    })
    .await?;
    let applied = ready(&kustomizations, "deploy", LIMIT).await?;
    let second = begin.elapsed();
    check_applied(&applied, &head, &inventory(&env, &["settings__ConfigMap"]))?;
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

fn check_applied(applied: &DynamicObject, head: &str, wanted: &BTreeSet<String>) -> Result<()> {
    let status = &applied.data["status"];
    let revision = format!("main@sha1:{head}");
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

/// Creates a Secret from the credentials of a server.
async fn secret(env: &Env, name: &str, data: Credentials) -> Result<()> {
    let data: BTreeMap<String, ByteString> = data
        .into_iter()
        .map(|(key, value)| (key, ByteString(value)))
        .collect();
    let mut secret = Secret {
        data: Some(data),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    create(env, secret).await?;
    Ok(())
}

/// Asks Flux to reconcile an object now.
async fn request(objects: &Api<DynamicObject>, name: &str, token: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {REQUESTED_AT: token}}});
    objects
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// A chart server, and a HelmRepository `charts` for it.
pub(super) async fn charts(env: &Env) -> Result<ChartServer> {
    let server = ChartServer::in_cluster(env.testbed("charts in the cluster's network")?)?;
    create_any(
        env,
        json!({
            "apiVersion": SOURCE, "kind": "HelmRepository", "metadata": {"name": "charts"},
            "spec": {"interval": "10m", "url": server.url},
        }),
    )
    .await?;
    Ok(server)
}

/// A HelmRelease of a chart of the server.
pub(super) fn release(name: &str, chart: &str, version: &str, values: &Value) -> Value {
    json!({
        "apiVersion": HELM, "kind": "HelmRelease", "metadata": {"name": name},
        "spec": {
            "interval": "10m", "timeout": "3m", "values": values,
            "chart": {"spec": {
                "chart": chart, "version": version, "interval": "10m",
                "sourceRef": {"kind": "HelmRepository", "name": "charts"},
            }},
        },
    })
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

/// Reads a release as helm stores it: base64 inside of the Secret's own, gzip, JSON.
async fn stored_release(env: &Env, name: &str, version: i64) -> Result<Value> {
    let name = format!("sh.helm.release.v1.{name}.v{version}");
    let secret = env.api::<Secret>().get(&name).await?;
    ensure!(
        secret.type_.as_deref() == Some("helm.sh/release.v1"),
        "Secret '{name}' has the type {:?}",
        secret.type_
    );
    let data = secret.data.unwrap_or_default();
    let ByteString(encoded) = data.get("release").context("no key 'release'")?;
    let compressed = BASE64_STANDARD.decode(encoded).context("base64")?;
    ensure!(compressed.starts_with(&[0x1f, 0x8b, 0x08]), "not gzip");
    let mut text = String::new();
    GzDecoder::new(compressed.as_slice())
        .take(RELEASE_LIMIT)
        .read_to_string(&mut text)
        .context("gzip")?;
    serde_json::from_str(&text).context("JSON")
}
