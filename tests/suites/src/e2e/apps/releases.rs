//! R38: the release Secret, as the real helm-controller writes it.

use std::{collections::BTreeSet, sync::LazyLock};

use anyhow::{Context, Result, ensure};
use api::{apps::OPERATOR, rbac::Permission};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::{Entry, Mark},
    suite::Env,
    wait::until,
};

use super::{
    super::policies::client_of,
    cluster::equals,
    fixture::{Bench, RARELY, RELEASED},
    manifests::shop,
};
use crate::flux::{HELM, charts, dynamic, ready, release_secret, stored_release};

/// The chart grants no permission on Secrets with this configuration.
const WITHOUT_SECRETS: &str = "apps: { helm: { readReleaseSecrets: false } }\n";

static PERMISSIONS: LazyLock<Vec<Permission>> = LazyLock::new(|| {
    let all = OPERATOR.permissions.iter().copied();
    all.filter(|one| one.resource != "secrets").collect()
});

const WORKLOADS: &[(&str, &str)] = &[("Deployment", "shop-app"), ("StatefulSet", "shop-database")];

/// An older helm-controller writes no inventory. Without it, only the Secret has the objects of the release.
pub(super) async fn real(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let env = bench.env.clone();
    let _charts = charts(&env).await?;
    let source = bench.apply(("app", RARELY), &[shop("1.0.0")]).await?;
    let releases = dynamic(&env, HELM, "HelmRelease");
    let helm = until_released(&releases).await?;
    let inventory = helm.data["status"]["inventory"].clone();
    ensure!(
        inventory["entries"]
            .as_array()
            .is_some_and(|all| !all.is_empty()),
        "helm-controller wrote no inventory: {inventory}"
    );
    let stored = stored_release(&env, "shop", 1).await?;
    let manifest = stored["manifest"].as_str().unwrap_or_default();
    for (kind, name) in WORKLOADS {
        let has = |words: &str| manifest.lines().any(|line| line.trim() == words);
        ensure!(
            has(&format!("kind: {kind}")) && has(&format!("name: {name}")),
            "the release has no {kind} '{name}': {manifest}"
        );
    }

    let audit = env.testbed("the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    set_inventory(&releases, &Value::Null).await?;
    bench.manage("app", "app").await?;
    bench.ready("app", &source.revision()?, RELEASED).await?;
    equals(&bench, "app", WORKLOADS).await?;
    has_inventory(&releases, false).await?;
    let reads = of_secrets(&bench, mark).await?;
    is_read_once(&reads)?;

    // Without the permission and the configuration, the operator reports it and sends no request.
    let mark = audit.mark(&env.client).await?;
    let bench = bench.restarted(WITHOUT_SECRETS, &PERMISSIONS).await?;
    let parts = ["apps.helm.readReleaseSecrets"];
    let (message, _) = bench.reports("app", "ReleaseUnreadable", &parts).await?;
    set_inventory(&releases, &inventory).await?;
    bench.ready("app", &source.revision()?, RELEASED).await?;
    equals(&bench, "app", WORKLOADS).await?;
    has_inventory(&releases, true).await?;
    let tried = of_secrets(&bench, mark).await?;
    ensure!(tried.is_empty(), "requests for Secrets: {tried:?}");
    is_forbidden(&bench).await?;
    bench.done().await?;
    Ok(format!(
        "{} requests with the permission, 0 without it: {message}",
        reads.len()
    ))
}

async fn until_released(releases: &Api<DynamicObject>) -> Result<DynamicObject> {
    // Flux creates the HelmRelease a moment after the Kustomization.
    until("the HelmRelease 'shop'", RELEASED, async || {
        let found = releases.get_opt("shop").await?;
        Ok(found.map(drop).ok_or_else(|| "does not exist".to_owned()))
    })
    .await?;
    ready(releases, "shop", RELEASED).await
}

async fn set_inventory(releases: &Api<DynamicObject>, inventory: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": { "inventory": inventory } }));
    releases
        .patch_status("shop", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Nobody has changed the inventory since.
async fn has_inventory(releases: &Api<DynamicObject>, wanted: bool) -> Result<()> {
    let helm = releases.get("shop").await?;
    let inventory = &helm.data["status"]["inventory"];
    ensure!(inventory.is_object() == wanted, "inventory {inventory}");
    Ok(())
}

/// Returns the operator's requests for Secrets since a mark.
async fn of_secrets(bench: &Bench, mark: Mark) -> Result<Vec<Entry>> {
    let audit = bench.env.testbed("the audit log")?.audit();
    let mut entries = audit.entries(&bench.env.client, mark).await?;
    entries.retain(|entry| {
        let request = &entry.request;
        request.user == bench.operator.user && request.resource.starts_with("secrets")
    });
    Ok(entries)
}

/// The Secret of the newest release was read, that of a newer one does not exist, and no other request was sent.
fn is_read_once(reads: &[Entry]) -> Result<()> {
    let found: BTreeSet<(&str, &str, u16)> = reads
        .iter()
        .map(|entry| {
            let verb = entry.request.verb.as_str();
            (verb, entry.name.as_str(), entry.code)
        })
        .collect();
    let (newest, newer) = (release_secret("shop", 1), release_secret("shop", 2));
    let wanted = BTreeSet::from([("get", newest.as_str(), 200), ("get", newer.as_str(), 404)]);
    ensure!(
        found == wanted && reads.len() == wanted.len(),
        "requests for Secrets: {reads:?}"
    );
    Ok(())
}

/// The API server rejects a read of the Secret with the operator's account.
async fn is_forbidden(bench: &Bench) -> Result<()> {
    let client = client_of(&bench.env, &bench.operator.user)?;
    let secrets: Api<Secret> = Api::namespaced(client, &bench.env.namespace);
    let read = secrets.get(&release_secret("shop", 1)).await;
    let error = read.err().context("the operator may read the Secret")?;
    ensure!(
        matches!(&error, kube::Error::Api(status) if status.code == 403),
        "{error}"
    );
    Ok(())
}
