//! Manifests of applications, as they are in Git.

use serde_json::{Value, json};

pub(super) use super::super::fixture::BUSYBOX;

/// An image that no registry has.
pub(super) const UNKNOWN_IMAGE: &str = "testbed.local/unknown:1";

/// A Pod template with a program that waits, and these claims.
fn template(name: &str, image: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }))
        .collect();
    let mounts = mounts(claims);
    json!({
        "metadata": { "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "3600"], "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    })
}

fn mounts(volumes: &[&str]) -> Vec<Value> {
    let mount = |name: &&str| json!({ "name": name, "mountPath": format!("/{name}") });
    volumes.iter().map(mount).collect()
}

/// A Deployment with one replica and these claims.
pub(super) fn deployment(name: &str, image: &str, claims: &[&str]) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": template(name, image, claims),
        },
    })
}

/// A StatefulSet with one replica and a claim from the template `data`.
pub(super) fn stateful_set(name: &str) -> Value {
    let mut template = template(name, BUSYBOX, &[]);
    template["spec"]["containers"][0]["volumeMounts"] = json!(mounts(&["data"]));
    let mut claim = claim("data");
    if let Some(fields) = claim.as_object_mut() {
        fields.retain(|field, _| ["metadata", "spec"].contains(&field.as_str()));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "replicas": 1, "serviceName": name,
            "selector": { "matchLabels": { "app": name } },
            "template": template, "volumeClaimTemplates": [claim],
        },
    })
}

/// A DaemonSet with the volume `node`, a directory of the node.
pub(super) fn daemon_set(name: &str) -> Value {
    let mut template = template(name, BUSYBOX, &[]);
    template["spec"]["volumes"] = json!([{ "name": "node", "hostPath": { "path": "/tmp" } }]);
    template["spec"]["containers"][0]["volumeMounts"] = json!(mounts(&["node"]));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": { "selector": { "matchLabels": { "app": name } }, "template": template },
    })
}

/// A CronJob with these claims that starts each minute, unless it is suspended.
pub(super) fn cron_job(name: &str, is_suspended: bool, claims: &[&str]) -> Value {
    let mut template = template(name, BUSYBOX, claims);
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": name },
        "spec": {
            "schedule": "* * * * *", "suspend": is_suspended, "concurrencyPolicy": "Forbid",
            "jobTemplate": { "spec": { "backoffLimit": 0, "template": template } },
        },
    })
}

pub(super) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "64Mi" } },
        },
    })
}

/// The HelmRelease `shop` of the chart with this version.
pub(super) fn shop(version: &str) -> Value {
    crate::flux::release("shop", "shop", version, &json!({ "storage": "256Mi" }))
}
