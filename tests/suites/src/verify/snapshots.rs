//! Volumes are snapshotted, restored, and bound by name.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::CSI_DRIVER,
    suite::Env,
    wait::{met, until},
};

use super::fixture::{LIMIT, create, delete, output, phase, pod_with, typed};
use crate::flux::{create_any, dynamic, resource};

const SNAPSHOT: &str = "snapshot.storage.k8s.io/v1";
/// Delay of the slow VolumeSnapshotClass.
const DELAY: Duration = Duration::from_secs(8);
/// A PVC that would be bound without a Pod is bound within a second.
const UNBOUND: Duration = Duration::from_secs(5);

/// A claim of the StorageClass `btrfs`, with more in its spec.
fn claim(name: &str, more: Value) -> Result<PersistentVolumeClaim> {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "btrfs",
        "resources": {"requests": {"storage": "64Mi"}},
    });
    if let (Some(into), Value::Object(more)) = (spec.as_object_mut(), more) {
        into.extend(more);
    }
    typed(json!({"metadata": {"name": name}, "spec": spec}))
}

/// Runs a script in a Pod with the volume of a claim, waits for its success, and returns its output.
async fn run(env: &Env, name: &str, claim: &str, script: &str) -> Result<String> {
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let mut pod = pod_with(name, script, mounts)?;
    if let Some(spec) = &mut pod.spec {
        spec.volumes = Some(typed(
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]),
        )?);
    }
    create(env, pod).await?;
    phase(env, name, "Succeeded").await?;
    output(env, name).await
}

async fn write(env: &Env, name: &str, claim: &str, text: &str) -> Result<()> {
    run(
        env,
        name,
        claim,
        &format!("echo {text} > /data/file && sync"),
    )
    .await?;
    Ok(())
}

pub(super) async fn restore(env: Env) -> Result<String> {
    env.testbed("snapshots of the testbed's volume driver")?;
    create(&env, claim("data", json!({}))?).await?;
    write(&env, "old-writer", "data", "old").await?;
    let fast = Instant::now();
    create_any(&env, snapshot("fast", "btrfs")).await?;
    let ready = until_ready(&env, "fast").await?;
    let fast = fast.elapsed();
    check_binding(&env, &ready).await?;
    let slow = delayed(&env).await?;
    write(&env, "new-writer", "data", "new").await?;

    for name in ["fast", "slow"] {
        let source = json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}});
        let restored = format!("restored-{name}");
        create(&env, claim(&restored, source)?).await?;
        if name == "fast" {
            stays_pending(&env, &restored).await?;
        }
        let read = run(&env, &format!("reader-{name}"), &restored, "cat /data/file").await?;
        ensure!(
            read == "old\n",
            "the volume restored from '{name}' has '{read}'"
        );
    }
    let read = run(&env, "reader", "data", "cat /data/file").await?;
    ensure!(read == "new\n", "the source volume has '{read}'");
    Ok(format!(
        "ready after {:.1} s, with a delay of {} s after {:.1} s; two volumes with the old content",
        fast.as_secs_f64(),
        DELAY.as_secs(),
        slow.as_secs_f64()
    ))
}

fn snapshot(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": SNAPSHOT, "kind": "VolumeSnapshot", "metadata": {"name": name},
        "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": "data"}},
    })
}

async fn until_ready(env: &Env, name: &str) -> Result<DynamicObject> {
    let snapshots = dynamic(env, SNAPSHOT, "VolumeSnapshot");
    let what = format!("the VolumeSnapshot '{name}' to be ready");
    until(&what, LIMIT, async || {
        let found = snapshots.get(name).await?;
        let status = &found.data["status"];
        Ok(if status["readyToUse"] == true {
            Ok(found)
        } else {
            Err(status.to_string())
        })
    })
    .await
}

/// Snapshot and content must reference each other, by the UID of the snapshot.
async fn check_binding(env: &Env, snapshot: &DynamicObject) -> Result<()> {
    let contents: Api<DynamicObject> = Api::all_with(
        env.client.clone(),
        &resource(SNAPSHOT, "VolumeSnapshotContent"),
    );
    let content = snapshot.data["status"]["boundVolumeSnapshotContentName"]
        .as_str()
        .context("no bound content")?;
    let content = contents.get(content).await?;
    let spec = &content.data["spec"];
    let uid = snapshot.metadata.uid.as_deref().context("no UID")?;
    ensure!(
        spec["volumeSnapshotRef"]["uid"] == *uid && spec["driver"] == CSI_DRIVER,
        "the content of snapshot {uid} has {spec}"
    );
    Ok(())
}

/// Takes a snapshot with a delay. It must be cut at once and become ready only then. Returns the time that it took.
async fn delayed(env: &Env) -> Result<Duration> {
    let classes: Api<DynamicObject> = Api::all_with(
        env.client.clone(),
        &resource(SNAPSHOT, "VolumeSnapshotClass"),
    );
    let class = format!("{}-slow", env.namespace);
    let object = serde_json::from_value(json!({
        "apiVersion": SNAPSHOT, "kind": "VolumeSnapshotClass", "metadata": {"name": class},
        "driver": CSI_DRIVER, "deletionPolicy": "Delete",
        "parameters": {"readyAfterSeconds": DELAY.as_secs().to_string()},
    }))?;
    classes.create(&PostParams::default(), &object).await?;
    let begin = Instant::now();
    create_any(env, snapshot("slow", &class)).await?;
    let snapshots = dynamic(env, SNAPSHOT, "VolumeSnapshot");
    let cut = until("the snapshot to be cut", LIMIT, async || {
        let status = snapshots.get("slow").await?.data["status"].clone();
        Ok(if status["creationTime"].is_string() {
            Ok(status)
        } else {
            Err(status.to_string())
        })
    })
    .await?;
    ensure!(
        cut["readyToUse"] == false && begin.elapsed() < DELAY,
        "{:.1} s after its creation, the delayed snapshot has {cut}",
        begin.elapsed().as_secs_f64()
    );
    let ready = until_ready(env, "slow").await?;
    let took = begin.elapsed();
    ensure!(
        took >= DELAY,
        "the snapshot with a delay of {} s was ready after {:.1} s",
        DELAY.as_secs(),
        took.as_secs_f64()
    );
    let ready = &ready.data["status"];
    ensure!(
        ready["creationTime"] == cut["creationTime"],
        "the creationTime changed from {cut} to {ready}"
    );
    classes.delete(&class, &DeleteParams::default()).await?;
    Ok(took)
}

async fn stays_pending(env: &Env, name: &str) -> Result<()> {
    tokio::time::sleep(UNBOUND).await;
    let claim = env.api::<PersistentVolumeClaim>().get(name).await?;
    let phase = claim.status.and_then(|status| status.phase);
    ensure!(
        phase.as_deref() == Some("Pending"),
        "the PVC '{name}' is {phase:?} without a Pod, so the class does not wait for one"
    );
    Ok(())
}

/// A volume changes its claim without a copy, as after a restore.
pub(super) async fn bind_by_name(env: Env) -> Result<String> {
    env.testbed("changing a PersistentVolume")?;
    create(&env, claim("first", json!({}))?).await?;
    write(&env, "writer", "first", "kept").await?;
    delete(&env, "writer").await?;
    let claims = env.api::<PersistentVolumeClaim>();
    let volume = bound_volume(&claims, "first").await?;
    let volumes: Api<PersistentVolume> = Api::all(env.client.clone());
    let policy = |policy: &str| json!({"persistentVolumeReclaimPolicy": policy});
    set(&volumes, &volume, policy("Retain")).await?;
    claims.delete("first", &DeleteParams::default()).await?;
    until("the volume to be released", LIMIT, async || {
        let phase = volumes
            .get(&volume)
            .await?
            .status
            .and_then(|status| status.phase);
        let is_gone = claims.get_opt("first").await?.is_none();
        Ok(met(is_gone && phase.as_deref() == Some("Released"), || {
            format!("{phase:?}")
        }))
    })
    .await?;

    // A merge patch with null removes the fields of the old claim.
    let reference = json!({"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": env.namespace, "name": "second",
        "uid": null, "resourceVersion": null,
    }});
    let changed = set(&volumes, &volume, reference).await?;
    let changed = changed.spec.and_then(|spec| spec.claim_ref);
    ensure!(
        changed
            .as_ref()
            .is_some_and(|reference| reference.uid.is_none()),
        "the volume still has the claimRef {changed:?}"
    );
    // Another claim that names the volume must not get it.
    let by_name = json!({"volumeName": volume});
    create(&env, claim("thief", by_name.clone())?).await?;
    create(&env, claim("second", by_name)?).await?;
    let begin = Instant::now();
    // Without a Pod: a claim with a volume's name does not wait for one.
    let bound = bound_volume(&claims, "second").await?;
    let took = begin.elapsed();
    ensure!(bound == volume, "bound to '{bound}' instead of '{volume}'");
    let uid = claims.get("second").await?.metadata.uid;
    let reference = volumes
        .get(&volume)
        .await?
        .spec
        .and_then(|spec| spec.claim_ref);
    let found = reference.and_then(|reference| reference.uid);
    ensure!(
        found == uid,
        "the volume has the UID {found:?} instead of {uid:?}"
    );
    let read = run(&env, "reader", "second", "cat /data/file").await?;
    ensure!(read == "kept\n", "the volume has '{read}'");
    stays_pending(&env, "thief").await?;

    set(&volumes, &volume, policy("Delete")).await?;
    env.api::<Pod>()
        .delete("reader", &DeleteParams::default())
        .await?;
    Ok(format!(
        "bound {:.1} s after the claim, without a Pod, with its content; another claim was not",
        took.as_secs_f64()
    ))
}

/// Changes the spec of a volume.
async fn set(volumes: &Api<PersistentVolume>, name: &str, spec: Value) -> Result<PersistentVolume> {
    let patch = Patch::Merge(json!({"spec": spec}));
    Ok(volumes.patch(name, &PatchParams::default(), &patch).await?)
}

async fn bound_volume(claims: &Api<PersistentVolumeClaim>, name: &str) -> Result<String> {
    until(
        &format!("the PVC '{name}' to be bound"),
        LIMIT,
        async || {
            let claim = claims.get(name).await?;
            let phase = claim.status.and_then(|status| status.phase);
            let volume = claim.spec.and_then(|spec| spec.volume_name);
            Ok(match (phase.as_deref(), volume) {
                (Some("Bound"), Some(volume)) => Ok(volume),
                (phase, volume) => Err(format!("{phase:?}, volume {volume:?}")),
            })
        },
    )
    .await
}
