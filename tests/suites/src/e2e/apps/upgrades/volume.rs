//! The data in volumes, read through Pods.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
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
use tokio::time::timeout;

use super::evidence::{SNAPSHOT, volumes};
use crate::{
    flux::resource,
    verify::fixture::{self, gone},
};

/// One command in a container.
const COMMAND: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a script in the container of a Pod, and returns its output. The script must succeed.
pub(super) async fn exec(env: &Env, pod: &str, script: &str) -> Result<String> {
    let ended = timeout(COMMAND, fixture::exec(env, pod, script)).await;
    let (success, output) = ended.with_context(|| format!("'{script}' takes too long"))??;
    ensure!(success, "'{script}' failed: {output}");
    Ok(output.trim().to_owned())
}

/// Name of the first Pod of the chart `store`.
pub(super) fn store_pod(app: &str) -> String {
    format!("{app}-store-0")
}

/// Name of the claim of that Pod.
pub(super) fn store_claim(app: &str) -> String {
    format!("data-{app}-store-0")
}

/// The versions of the chart `store` that were started on a volume, oldest first.
pub(super) const STARTS: &str = "cat /data/starts";

/// Returns the versions that were started on the volume of a running Pod, each of several starts once.
pub(super) async fn starts(env: &Env, pod: &str) -> Result<Vec<String>> {
    Ok(versions(&exec(env, pod, STARTS).await?))
}

/// Returns the versions in a list of starts, each of several starts once.
pub(super) fn versions(text: &str) -> Vec<String> {
    let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
    all.dedup();
    all
}

/// A Pod with the volume of a claim at `/data`, and this container.
pub(super) fn pod_with(name: &str, claim: &str, container: Value) -> Result<Pod> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [container],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        },
    });
    let container = &mut pod["spec"]["containers"][0];
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
    });
    Ok(serde_json::from_value(pod)?)
}

pub(super) async fn delete_pod(env: &Env, name: &str) -> Result<()> {
    env.api::<Pod>()
        .delete(name, &DeleteParams::default())
        .await?;
    gone(env, name).await
}

/// Creates a claim that is restored from a snapshot.
pub(super) async fn restored(env: &Env, name: &str, snapshot: &str, size: &str) -> Result<()> {
    let source = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot,
    });
    create_claim(env, name, size, json!({ "dataSourceRef": source })).await
}

/// Creates a claim of the default class; `more` is added to its spec.
pub(super) async fn create_claim(env: &Env, name: &str, size: &str, more: Value) -> Result<()> {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } },
    });
    crate::e2e::merge(&mut spec, more);
    let claim = json!({ "metadata": { "name": name }, "spec": spec });
    env.create::<PersistentVolumeClaim>(claim).await?;
    Ok(())
}

/// Gives a volume that a rollback has released to a new claim. Restores its reclaim policy, so that the volume is deleted
/// with the namespace of the case.
pub(super) async fn adopt(env: &Env, volume: &str, claim: &str, size: &str) -> Result<()> {
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": env.namespace, "name": claim,
        "uid": null, "resourceVersion": null,
    });
    let patch = json!({ "spec": {
        "claimRef": reference, "persistentVolumeReclaimPolicy": "Delete",
    } });
    let params = PatchParams::default();
    volumes(env)
        .patch(volume, &params, &Patch::Merge(patch))
        .await?;
    create_claim(env, claim, size, json!({ "volumeName": volume })).await?;
    let claims: Api<PersistentVolumeClaim> = env.api();
    until("the released volume to be bound again", LIMIT, async || {
        let status = claims.get(claim).await?.status;
        let phase = status.and_then(|status| status.phase);
        Ok(met(phase.as_deref() == Some("Bound"), || {
            format!("{phase:?}")
        }))
    })
    .await
}

fn classes(env: &Env) -> Api<DynamicObject> {
    let class = resource(SNAPSHOT, "VolumeSnapshotClass");
    Api::all_with(env.client.clone(), &class)
}

/// A VolumeSnapshotClass of a case. Its snapshots are cut at once, and are ready after a delay.
pub(super) struct SlowClass {
    env: Env,
    pub(super) name: String,
}

impl SlowClass {
    pub(super) async fn new(env: &Env, seconds: u32) -> Result<Self> {
        let name = format!("{}-{seconds}", env.namespace);
        let class = serde_json::from_value(json!({
            "apiVersion": SNAPSHOT, "kind": "VolumeSnapshotClass", "metadata": { "name": name },
            "driver": CSI_DRIVER, "deletionPolicy": "Delete",
            "parameters": { "readyAfterSeconds": seconds.to_string() },
        }))?;
        classes(env).create(&PostParams::default(), &class).await?;
        Ok(Self {
            env: env.clone(),
            name,
        })
    }

    /// Deletes the class: it is in no namespace.
    pub(super) async fn release(self) -> Result<()> {
        classes(&self.env)
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }
}
