//! R35: requests are deleted in each of their phases. Nothing stays locked and nothing stays at zero, or the request is
//! completed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::{
    Status,
    apps::{RollbackRequest, UpgradeRequest},
    names,
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{git::Hook, suite::Env};

use super::{
    evidence::{
        claim_names, commits_of, deployed, flux_is_free, head, release_file, scales, snapshots,
    },
    fixture::{App, Bench, END, Operation, Setup},
    volume::{SlowClass, starts, store_claim, store_pod},
};
use crate::{
    e2e::reading::{brief, phase_of},
    flux::{HELM, dynamic},
};

/// Time between two reads of the status. A phase may be over within half a second.
const READ: Duration = Duration::from_millis(20);
/// Requests until one is deleted in the phase that is wanted.
const TRIES: usize = 5;
/// A finalizer that keeps a claim in the phase VolumeSwap.
const HOLD: &str = "example.com/hold";

/// An application, and the phases in which its requests are deleted. Only the last of them may change the application.
type Scene = (&'static str, &'static [&'static str]);

const UPGRADES: [Scene; 8] = [
    ("early", &["Pending", "Plan", "Suspend"]),
    ("approval", &["Approval"]),
    ("scale", &["ScaleDown"]),
    ("snapshot", &["Snapshot"]),
    ("commit", &["GitCommit"]),
    ("reconcile", &["Reconcile"]),
    ("health", &["HealthCheck"]),
    ("undo", &["Undo"]),
];

const ROLLBACKS: [Scene; 8] = [
    ("early", &["Pending", "Plan", "Suspend"]),
    ("scale", &["ScaleDown"]),
    ("restore", &["VolumeRestore"]),
    ("revert", &["GitRevert"]),
    ("swap", &["VolumeSwap"]),
    ("reconcile", &["Reconcile"]),
    ("health", &["HealthCheck"]),
    ("undo", &["Undo"]),
];

/// Waits until a request is in a phase, or has left it.
async fn catch<R: Operation>(bench: &Bench, name: &str, phase: &str) -> Result<()> {
    let begin = Instant::now();
    let mut entered: Vec<String> = Vec::new();
    loop {
        let state = bench.state::<R>(name).await?;
        let now = phase_of(&state);
        // The history shows a phase that was too short to be read.
        let records = state.progress().phase_history.iter();
        entered.extend(records.map(|record| record.phase.clone()));
        if now == phase || entered.iter().any(|one| one == phase) {
            return Ok(());
        }
        ensure!(
            !state.is_over() && begin.elapsed() < END,
            "'{name}' does not reach {phase}: {}",
            brief(&state)
        );
        tokio::time::sleep(READ).await;
    }
}

/// Sets or removes a lock that names no request. Requests wait for it in `Pending`.
async fn lock(env: &Env, app: &str, value: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { names::LOCK: value } } }));
    dynamic(env, HELM, "HelmRelease")
        .patch(app, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn hold(env: &Env, claim: &str, finalizers: Value) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = env.api();
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    claims.patch(claim, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Holds a request in a phase that would be too short.
async fn prepare(env: &Env, app: &App, phase: &str) -> Result<()> {
    match phase {
        "Pending" => lock(env, &app.name, json!("held by a test")).await,
        "VolumeSwap" => {
            let all = json!(["kubernetes.io/pvc-protection", HOLD]);
            hold(env, &store_claim(&app.name), all).await
        }
        "Undo" => {
            let refuse = Hook::Refuse("protected branch".to_owned());
            app.source.repository().set_hook(&refuse)
        }
        _ => Ok(()),
    }
}

/// Ends what [`prepare`] began.
async fn clean_up(env: &Env, app: &App, phase: &str) -> Result<()> {
    match phase {
        "Pending" => lock(env, &app.name, Value::Null).await,
        "VolumeSwap" => hold(env, &store_claim(&app.name), Value::Null).await,
        "Undo" => app.source.repository().set_hook(&Hook::Accept),
        _ => Ok(()),
    }
}

/// Deletes a request in a phase, and waits until it does not exist. Returns the phase in which it was deleted.
async fn cut<R: Operation>(bench: &Bench, app: &App, name: &str, phase: &str) -> Result<String> {
    catch::<R>(bench, name, phase).await?;
    let uid = bench.uid::<R>(name).await?;
    let deleted = phase_of(&bench.delete::<R>(name).await?);
    clean_up(&bench.env, app, phase).await?;
    bench.gone::<R>(name).await?;
    is_whole(bench, app, &uid).await?;
    Ok(deleted)
}

/// Nothing is locked and nothing is at zero. The branch, the release and the data have the same version.
async fn is_whole(bench: &Bench, app: &App, uid: &str) -> Result<()> {
    let (env, name) = (&bench.env, app.name.as_str());
    flux_is_free(env, name).await?;
    let set = format!("StatefulSet {name}-store");
    let scale = scales(env).await?.remove(&set);
    ensure!(scale.as_deref() == Some("Some(1)"), "'{set}' is {scale:?}");
    bench.settled(app).await?;
    let (_, chart) = deployed(env, name).await?;
    let file = release_file(app, &head(app)?)?;
    ensure!(
        file.contains(&format!("version: {chart} ")),
        "chart {chart} is deployed, but the branch has '{file}'"
    );
    let started = starts(env, &store_pod(name)).await?;
    ensure!(
        started.last() == Some(&chart),
        "chart {chart} runs on a volume with {started:?}"
    );
    let own = commits_of(app, uid)?;
    ensure!(own.len() <= 1, "commits of the request: {own:?}");
    // Without a commit, its snapshots are of no use. With it, they are the way back.
    let taken = snapshots(env).await?;
    let taken = taken
        .iter()
        .filter(|one| one.labels().get(names::UID).map(String::as_str) == Some(uid));
    let (taken, pushed) = (taken.count(), own.len());
    ensure!(
        taken == 0 || pushed == 1,
        "{taken} snapshots and {pushed} commits of the request"
    );
    is_clean(env, name).await
}

/// No temporary claim and no Pod of a rollback is left.
async fn is_clean(env: &Env, app: &str) -> Result<()> {
    let claim = store_claim(app);
    let claims = claim_names(env).await?;
    let left = claims
        .iter()
        .find(|name| name.starts_with(&claim) && **name != claim);
    ensure!(left.is_none(), "the claim {left:?} is left");
    let pods = env.api::<Pod>().list(&ListParams::default()).await?.items;
    let bind = format!("{claim}-bind");
    let left = pods.iter().find(|pod| pod.name_any().starts_with(&bind));
    ensure!(
        left.is_none(),
        "the Pod {:?} is left",
        left.map(ResourceExt::name_any)
    );
    Ok(())
}

async fn launched(bench: &Bench, class: &str, name: &str) -> Result<App> {
    let approval = if name == "approval" {
        "Required"
    } else {
        "NotRequired"
    };
    bench
        .launch(Setup {
            values: json!({ "grace": 4 }),
            app: json!({
                "approval": approval,
                "healthCheck": { "stableFor": "8s" },
                "volumeSnapshots": { "volumeSnapshotClassName": class },
            }),
            ..Setup::store(name)
        })
        .await
}

/// Deletes upgrades of one application.
async fn upgrades(bench: &Bench, class: &str, (name, phases): Scene) -> Result<usize> {
    let app = launched(bench, class, name).await?;
    for phase in phases {
        let mut deleted = String::new();
        for number in 0..TRIES {
            prepare(&bench.env, &app, phase).await?;
            let request = format!("{name}-{}-{number}", phase.to_lowercase());
            bench.upgrade(&request, name, "2.0.0", json!({})).await?;
            deleted = cut::<UpgradeRequest>(bench, &app, &request, phase).await?;
            // After the commit, the application has the target version, so there is no other upgrade.
            let is_undone = deployed(&bench.env, name).await?.1 == "1.0.0";
            if deleted == *phase || !is_undone {
                break;
            }
        }
        ensure!(deleted == *phase, "deleted in {deleted} instead of {phase}");
    }
    Ok(phases.len())
}

/// Deletes rollbacks of one application.
async fn rollbacks(bench: &Bench, class: &str, (name, phases): Scene) -> Result<usize> {
    let app = launched(bench, class, name).await?;
    bench.upgraded(name, &app, "2.0.0").await?;
    for phase in phases {
        let mut deleted = String::new();
        for number in 0..TRIES {
            prepare(&bench.env, &app, phase).await?;
            let request = format!("{name}-{}-{number}", phase.to_lowercase());
            bench.roll_back(&request, name).await?;
            deleted = cut::<RollbackRequest>(bench, &app, &request, phase).await?;
            let is_undone = deployed(&bench.env, name).await?.1 == "2.0.0";
            if deleted == *phase || !is_undone {
                break;
            }
        }
        ensure!(deleted == *phase, "deleted in {deleted} instead of {phase}");
        // The data is that of before the upgrade, or that of the upgrade, and never another one.
        let started = starts(&bench.env, &store_pod(name)).await?;
        let is_restored = started == ["1.0.0"];
        ensure!(
            is_restored || started == ["1.0.0", "2.0.0"],
            "started versions: {started:?}"
        );
    }
    Ok(phases.len())
}

pub(super) async fn each_upgrade(bench: &Bench) -> Result<String> {
    let class = SlowClass::new(&bench.env, 6).await?;
    let mut scenes = Vec::new();
    for scene in UPGRADES {
        scenes.push(upgrades(bench, &class.name, scene));
    }
    let counts = try_join_all(scenes).await?;
    class.release().await?;
    let count: usize = counts.iter().sum();
    Ok(format!("upgrades deleted in {count} phases"))
}

pub(super) async fn each_rollback(bench: &Bench) -> Result<String> {
    let class = SlowClass::new(&bench.env, 1).await?;
    let mut scenes = Vec::new();
    for scene in ROLLBACKS {
        scenes.push(rollbacks(bench, &class.name, scene));
    }
    let counts = try_join_all(scenes).await?;
    class.release().await?;
    let count: usize = counts.iter().sum();
    Ok(format!("rollbacks deleted in {count} phases"))
}
