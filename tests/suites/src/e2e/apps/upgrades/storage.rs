//! Claims, quotas and snapshots that delay a request or stop it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::{
    Status,
    apps::{RollbackRequest, UpgradeRequest},
};
use futures::future::try_join;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    evidence::{
        SNAPSHOT, claim, claim_names, comparable, durations, flux_is_free, flux_is_locked, head,
        scales, snapshots, volume_of, volumes,
    },
    fixture::{Bench, END, PHASE, Setup, UNDONE},
    volume::{STARTS, SlowClass, exec, starts, store_claim, store_pod, versions},
};
use crate::{
    e2e::{children::until_gone, policies::Bound},
    flux::dynamic,
};

/// A finalizer that delays the deletion of a claim.
const HOLD: &str = "example.com/hold";
/// The finalizer that each claim has.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// A claim of someone else stays unchanged for so long.
const UNTOUCHED: Duration = Duration::from_secs(5);

async fn set_finalizers(
    claims: &Api<PersistentVolumeClaim>,
    name: &str,
    finalizers: &[&str],
) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    claims.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Creates a claim as soon as its name is free.
async fn take(claims: &Api<PersistentVolumeClaim>, name: &str) -> Result<PersistentVolumeClaim> {
    let wanted = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "64Mi" } },
        },
    }))?;
    let begin = Instant::now();
    loop {
        match claims.create(&PostParams::default(), &wanted).await {
            Ok(claim) => return Ok(claim),
            Err(kube::Error::Api(status)) if status.code == 409 && begin.elapsed() < PHASE => {}
            Err(error) => bail!("cannot take the name '{name}': {error}"),
        }
    }
}

/// Someone creates a claim with the name of the replaced one.
pub(super) async fn taken_name(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    let counts = scales(env).await?;
    bench.upgraded("up", &app, "2.0.0").await?;
    let (claims, name) = (env.api::<PersistentVolumeClaim>(), store_claim("app"));
    set_finalizers(&claims, &name, &[PROTECTION, HOLD]).await?;
    bench.roll_back("back", "up").await?;
    bench
        .in_phase::<RollbackRequest>("back", "VolumeSwap", END)
        .await?;
    until("only the case to hold the claim", PHASE, async || {
        let found = claims.get(&name).await?;
        let is_held = found.metadata.deletion_timestamp.is_some() && found.finalizers() == [HOLD];
        Ok(met(is_held, || format!("{:?}", found.finalizers())))
    })
    .await?;
    set_finalizers(&claims, &name, &[]).await?;
    let other = take(&claims, &name).await?;

    let id = bench.quoted("PersistentVolumeClaim", &name);
    let state = bench
        .waits::<RollbackRequest>("back", PHASE, "PVCNameTaken", &[&id])
        .await?;
    tokio::time::sleep(UNTOUCHED).await;
    let found = claims.get(&name).await?;
    ensure!(
        found.metadata.uid == other.metadata.uid
            && found.metadata.deletion_timestamp.is_none()
            && found.labels() == other.labels()
            && !found.annotations().contains_key(api::names::UID),
        "the claim of someone else was changed: {:?}",
        found.metadata
    );
    let uid = bench.uid::<RollbackRequest>("back").await?;
    flux_is_locked(env, "app", &uid).await?;
    let stopped = scales(env).await?;
    ensure!(
        stopped.values().all(|replicas| replicas == "Some(0)"),
        "a workload could start on the claim of someone else: {stopped:?}"
    );
    // The user checks the data of the claim, and deletes it. The operator continues.
    claims.delete(&name, &DeleteParams::default()).await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    bench.settled(&app).await?;
    let started = starts(env, &store_pod("app")).await?;
    ensure!(started == ["1.0.0"], "started versions: {started:?}");
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    flux_is_free(env, "app").await?;
    Ok(state.progress.message.unwrap_or_default())
}

/// The quota has no room for both volumes.
pub(super) async fn tight_quota(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    bench.upgraded("up", &app, "2.0.0").await?;
    let (base, counts) = (head(&app)?, scales(env).await?);
    let before = claim(env, &store_claim("app")).await?;
    let quota = json!({
        "metadata": { "name": "tight" }, "spec": { "hard": { "requests.storage": "64Mi" } },
    });
    env.create::<ResourceQuota>(quota).await?;
    let quotas: Api<ResourceQuota> = env.api();
    until("the quota to be in use", PHASE, async || {
        let status = quotas.get("tight").await?.status.unwrap_or_default();
        let used = status.used.unwrap_or_default();
        let used = used.get("requests.storage").map(|used| used.0.clone());
        Ok(met(used.as_deref() == Some("64Mi"), || format!("{used:?}")))
    })
    .await?;
    bench.roll_back("back", "up").await?;
    let state = bench
        .fails::<RollbackRequest>("back", UNDONE, "QuotaExceeded", &["tight"])
        .await?;
    let after = claim(env, &store_claim("app")).await?;
    ensure!(
        before.metadata.uid == after.metadata.uid && volume_of(&before)? == volume_of(&after)?,
        "the claim was replaced"
    );
    let names = claim_names(env).await?;
    ensure!(names == [store_claim("app")], "claims {names:?}");
    ensure!(head(&app)? == base, "a commit was pushed");
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    flux_is_free(env, "app").await?;
    bench.settled(&app).await?;
    let started = starts(env, &store_pod("app")).await?;
    ensure!(
        started == ["1.0.0", "2.0.0"],
        "started versions: {started:?}"
    );
    let taken = snapshots(env).await?.len();
    ensure!(taken == 1, "{taken} snapshots of the upgrade");
    Ok(state.progress.message.unwrap_or_default())
}

/// Helm has uninstalled the release, with its claim. Only the snapshot is left.
pub(super) async fn missing_claim(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "workload": "Deployment" }),
            release: json!({
                "timeout": "15s",
                "upgrade": { "remediation": {
                    "retries": 0, "remediateLastFailure": true, "strategy": "uninstall",
                } },
            }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    let before = claim(env, "app-data").await?;
    let volume = volume_of(&before)?;
    bench.upgrade("up", "app", "3.0.0", json!({})).await?;
    let within = END + UNDONE;
    bench
        .fails::<UpgradeRequest>("up", within, "HelmRemediated", &[])
        .await?;
    until_gone(&env.api::<PersistentVolumeClaim>(), "app-data", PHASE).await?;
    until_gone(&volumes(env), &volume, PHASE).await?;

    bench.roll_back("back", "up").await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    bench.settled(&app).await?;
    let after = claim(env, "app-data").await?;
    let (same, other) = (comparable(&before)?, comparable(&after)?);
    ensure!(same == other, "the claim was {same}, and is {other}");
    let labels = ListParams::default().labels("app=app-store");
    let pods = env.api::<Pod>().list(&labels).await?.items;
    let pod = pods.first().context("no Pod")?.name_any();
    let started = versions(&exec(env, &pod, STARTS).await?);
    ensure!(started == ["1.0.0"], "started versions: {started:?}");
    let now = scales(env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    flux_is_free(env, "app").await?;
    Ok(format!(
        "claim and volume '{volume}' did not exist any more; restored with {started:?}"
    ))
}

/// Volumes of the case with a slow storage system. All but the first wait for a gate.
const VOLUMES: u32 = 6;
/// Time without progress after which the phase ends.
const IDLE: Duration = Duration::from_secs(20);
/// Time between two gates.
const STEP: Duration = Duration::from_secs(12);

/// A policy that keeps snapshot-controller from creating the content of one snapshot.
async fn gate(env: &Env, ordinal: u32) -> Result<Bound> {
    let namespace = &env.namespace;
    let policy = serde_json::from_value(json!({
        "metadata": { "name": format!("gate-{ordinal}") },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["snapshot.storage.k8s.io"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["volumesnapshotcontents"],
            }] },
            "matchConditions": [{ "name": "gated", "expression": format!(
                "object.spec.volumeSnapshotRef.namespace == '{namespace}' && object.spec.volumeSnapshotRef.name.contains('-store-{ordinal}-')"
            ) }],
            "validations": [{ "expression": "false", "message": "the gate is closed" }],
        },
    }))?;
    Bound::new(env, vec![policy], None).await
}

/// Waits until a snapshot has a content. A change of the snapshot lets its controller try again at once.
async fn pass(env: &Env, ordinal: u32) -> Result<()> {
    let all = dynamic(env, SNAPSHOT, "VolumeSnapshot");
    let part = format!("-store-{ordinal}-");
    until(&format!("the content of '{part}'"), IDLE, async || {
        let list = all.list(&ListParams::default()).await?.items;
        let found = list.iter().find(|one| one.name_any().contains(&part));
        let Some(found) = found else {
            return Ok(Err("no snapshot".to_owned()));
        };
        if found.data["status"]["boundVolumeSnapshotContentName"].is_string() {
            return Ok(Ok(()));
        }
        let now = found.resource_version().unwrap_or_default();
        let poke = json!({ "metadata": { "annotations": { "example.com/poke": now } } });
        all.patch(
            &found.name_any(),
            &PatchParams::default(),
            &Patch::Merge(poke),
        )
        .await?;
        Ok(Err(found.data["status"].to_string()))
    })
    .await
}

/// One snapshot after another becomes ready, for longer than three times the limit.
async fn with_progress(bench: &Bench, gates: Vec<Bound>) -> Result<String> {
    let app = bench
        .launch(Setup {
            values: json!({ "replicas": VOLUMES }),
            app: json!({ "phaseTimeouts": { "snapshot": format!("{}s", IDLE.as_secs()) } }),
            ..Setup::store("steady")
        })
        .await?;
    bench
        .upgrade("steady", "steady", "2.0.0", json!({}))
        .await?;
    bench
        .in_phase::<UpgradeRequest>("steady", "Snapshot", END)
        .await?;
    let begin = Instant::now();
    for (ordinal, gate) in (1..VOLUMES).zip(gates) {
        tokio::time::sleep(STEP).await;
        gate.release().await?;
        pass(&bench.env, ordinal).await?;
    }
    let took = begin.elapsed();
    ensure!(took > IDLE * 3, "the snapshots took {took:?} only");
    let state = bench.succeeds::<UpgradeRequest>("steady", END).await?;
    ensure!(
        state.snapshots.len() == usize::try_from(VOLUMES)?,
        "{} snapshots",
        state.snapshots.len()
    );
    bench.settled(&app).await?;
    Ok(format!(
        "{} s with progress and a limit of {} s ({})",
        took.as_secs(),
        IDLE.as_secs(),
        durations(state.progress())
    ))
}

/// The snapshot is taken at once, and is not ready for two minutes.
async fn without_progress(bench: &Bench, class: &SlowClass) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            app: json!({
                "phaseTimeouts": { "snapshot": "10s" },
                "volumeSnapshots": { "volumeSnapshotClassName": class.name },
            }),
            ..Setup::store("idle")
        })
        .await?;
    let base = head(&app)?;
    bench.upgrade("idle", "idle", "2.0.0", json!({})).await?;
    let state = bench
        .fails::<UpgradeRequest>("idle", UNDONE, "SnapshotNoProgress", &["VolumeSnapshot"])
        .await?;
    ensure!(head(&app)? == base, "a commit was pushed");
    let uid = bench.uid::<UpgradeRequest>("idle").await?;
    let left = snapshots(env).await?;
    let left = left
        .iter()
        .find(|one| one.labels().get(api::names::UID) == Some(&uid));
    ensure!(left.is_none(), "the slow snapshot is left: {left:?}");
    flux_is_free(env, "idle").await?;
    bench.settled(&app).await?;
    let started = starts(env, &store_pod("idle")).await?;
    ensure!(started == ["1.0.0"], "started versions: {started:?}");
    Ok(state.progress.message.unwrap_or_default())
}

/// S1.11: only a snapshot without progress times out.
pub(super) async fn slow(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let class = SlowClass::new(env, 120).await?;
    // Before the applications exist, so that the API server acts by the policies in time.
    let mut gates = Vec::new();
    for ordinal in 1..VOLUMES {
        gates.push(gate(env, ordinal).await?);
    }
    let (steady, idle) =
        try_join(with_progress(bench, gates), without_progress(bench, &class)).await?;
    class.release().await?;
    Ok(format!("{steady}; without progress: {idle}"))
}
