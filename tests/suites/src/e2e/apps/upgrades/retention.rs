//! Which volumes have snapshots, and how long snapshots and replaced volumes are kept.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::{
    apps::{RollbackRequest, UpgradeRequest},
    names,
};
use kube::ResourceExt;
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    super::fixture::LIMIT,
    evidence::{claim, fingerprint, policy_and_phase, snapshots, volume_of, volumes},
    fixture::{Bench, END, PLANNED, Setup},
    volume::{starts, store_claim, store_pod},
};
use crate::e2e::children::until_gone;

/// S1.4: a claim of the application has no snapshot, and a claim of others cannot be selected.
pub(super) async fn excluded(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "replicas": 2 }),
            app: json!({ "volumeSnapshots": { "excludePVCs": [{ "name": "data-app-store-1" }] } }),
            ..Setup::store("app")
        })
        .await?;
    let other = bench
        .launch(Setup {
            app: json!({ "volumeSnapshots": { "pvcs": [{ "name": store_claim("app") }] } }),
            ..Setup::store("other")
        })
        .await?;
    let before = fingerprint(env, &other.name).await?;
    bench.upgrade("other", "other", "2.0.0", json!({})).await?;
    let claim = store_claim("app");
    bench
        .fails::<UpgradeRequest>("other", PLANNED, "NoVolumesFound", &[&claim])
        .await?;
    let after = fingerprint(env, &other.name).await?;
    ensure!(before == after, "{before} is now {after}");

    bench.upgraded("up", &app, "2.0.0").await?;
    bench.settled(&app).await?;
    let taken = snapshots(env).await?;
    let sources: Vec<&str> = taken
        .iter()
        .filter_map(|one| one.data["spec"]["source"]["persistentVolumeClaimName"].as_str())
        .collect();
    ensure!(sources == [claim.as_str()], "snapshots of {sources:?}");
    Ok(format!("1 snapshot of 2 claims, of {sources:?}"))
}

/// UIDs of the upgrades that have snapshots.
async fn owners(env: &Env) -> Result<BTreeSet<String>> {
    let all = snapshots(env).await?;
    let owners = all.iter().filter_map(|one| one.labels().get(names::UID));
    Ok(owners.cloned().collect())
}

/// The snapshots of one upgrade are kept. An older upgrade cannot be rolled back any more.
pub(super) async fn newest(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            app: json!({ "volumeSnapshots": { "retention": { "maxCount": 1 } } }),
            ..Setup::store("app")
        })
        .await?;
    bench.upgraded("older", &app, "1.1.0").await?;
    bench.settled(&app).await?;
    let older = bench.uid::<UpgradeRequest>("older").await?;
    let found = owners(env).await?;
    ensure!(
        found == BTreeSet::from([older]),
        "snapshots of {found:?} after the first upgrade"
    );
    bench.upgraded("newer", &app, "2.0.0").await?;
    let newer = BTreeSet::from([bench.uid::<UpgradeRequest>("newer").await?]);
    until("the older snapshot to be deleted", LIMIT, async || {
        let found = owners(env).await?;
        Ok(met(found == newer, || format!("snapshots of {found:?}")))
    })
    .await?;
    bench.roll_back("back", "older").await?;
    let state = bench
        .fails::<RollbackRequest>("back", PLANNED, "RollbackNotAvailable", &[])
        .await?;
    bench.settled(&app).await?;
    let started = starts(env, &store_pod("app")).await?;
    ensure!(
        started == ["1.0.0", "1.1.0", "2.0.0"],
        "started versions: {started:?}"
    );
    Ok(state.progress.message.unwrap_or_default())
}

/// A replaced volume is retained, and reclaimed after its time.
pub(super) async fn replaced(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            app: json!({ "retainedVolumes": { "ttl": "20s" } }),
            ..Setup::store("app")
        })
        .await?;
    let old = volume_of(&claim(env, &store_claim("app")).await?)?;
    bench.upgraded("up", &app, "2.0.0").await?;
    bench.roll_back("back", "up").await?;
    // Before its end: the time of the volume begins with the swap, or later.
    bench
        .in_phase::<RollbackRequest>("back", "Reconcile", END)
        .await?;
    let kept = policy_and_phase(env, &old).await?;
    ensure!(
        kept == ("Retain".to_owned(), "Released".to_owned()),
        "the replaced volume is {kept:?}"
    );
    bench.succeeds::<RollbackRequest>("back", END).await?;
    until_gone(&volumes(env), &old, LIMIT).await?;
    bench.settled(&app).await?;
    let started = starts(env, &store_pod("app")).await?;
    ensure!(started == ["1.0.0"], "started versions: {started:?}");
    let new = volume_of(&claim(env, &store_claim("app")).await?)?;
    let (policy, phase) = policy_and_phase(env, &new).await?;
    ensure!(
        policy == "Delete" && phase == "Bound",
        "the restored volume is {phase} with the policy {policy}"
    );
    Ok(format!("'{old}' was retained, and reclaimed after 20 s"))
}
