//! The Redis: one replica with a volume, its own password, and a Service.

use std::fmt::Write as _;

use api::{
    decide::{Manifest, ResourceType},
    names,
    tenants::Redis,
};
use serde_json::{Value, json};

use super::{
    BuildContext, COMPONENT, REDIS, container_security, pod_labels, pod_security, scaled, types,
};

/// Maximum number of seconds that Redis may take to read its data file.
const STARTS_FOR: i32 = 86_400;

/// Port of the Redis.
pub const PORT: u16 = 6379;
pub use api::tenants::REDIS_SECRET as SECRET;

/// Returns the environment variable with the password.
pub(super) fn password() -> Value {
    json!({
        "name": "REDIS_PASSWORD",
        "valueFrom": { "secretKeyRef": { "name": SECRET, "key": "password" } },
    })
}

/// Returns the annotation of the Pod template that restarts the Pods when the password changes.
pub(super) fn template_annotations(secret_uid: Option<&str>) -> Value {
    match secret_uid {
        Some(uid) => json!({ "orchestrator.io/redis-secret": uid }),
        None => json!({}),
    }
}

pub(super) fn secret(context: BuildContext<'_>, password: &str) -> Manifest {
    let mut manifest = context.manifest(
        types::SECRET,
        SECRET,
        REDIS,
        json!({ "type": "Opaque", "immutable": true }),
    );
    // The hash of the intent does not include the password. Two decisions generate two passwords, but must
    // have the same intent.
    manifest.body["stringData"] = json!({
        "password": password,
        "auth.conf": format!("requirepass {password}\n"),
    });
    manifest
}

pub(super) fn all(context: BuildContext<'_>, secret_uid: Option<&str>) -> Vec<Manifest> {
    let Some(redis) = &context.spec.redis else {
        return Vec::new();
    };
    let text = configuration(redis);
    let map = json!({ "data": { "redis.conf": text } });
    let service = json!({
        "spec": {
            "clusterIP": "None",
            "selector": { COMPONENT: REDIS },
            "ports": [{ "name": "redis", "port": PORT, "targetPort": PORT, "protocol": "TCP" }],
        },
    });
    vec![
        context.manifest(ResourceType::CONFIG_MAP, REDIS, REDIS, map),
        context.manifest(types::SERVICE, REDIS, REDIS, service),
        context.manifest(
            types::STATEFUL_SET,
            REDIS,
            REDIS,
            stateful_set(context, redis, &text, secret_uid),
        ),
    ]
}

/// Returns the configuration, sorted by directive. An order that changes would restart Redis with each
/// reconciliation.
fn configuration(redis: &Redis) -> String {
    let mut text = format!(
        "bind * -::*\nport {PORT}\nprotected-mode yes\ndir /data\ninclude /run/redis-auth/auth.conf\n"
    );
    let defaults = [("appendonly", "yes")];
    for (name, value) in defaults {
        if !redis.config.contains_key(name) {
            line(&mut text, name, value);
        }
    }
    for (name, value) in &redis.config {
        line(&mut text, name, value);
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    if writeln!(text, "{name} {value}").is_err() {
        text.clear();
    }
}

fn stateful_set(
    context: BuildContext<'_>,
    redis: &Redis,
    text: &str,
    secret_uid: Option<&str>,
) -> Value {
    let labels = pod_labels(context, REDIS);
    let resources = redis.resources.as_ref().map_or_else(
        || context.settings.default_resources.clone(),
        |own| json!(own),
    );
    let mut annotations = template_annotations(secret_uid);
    annotations["orchestrator.io/config"] = json!(names::hash(text));
    let claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": redis.storage.size } },
        "storageClassName": redis.storage.storage_class_name,
    });
    // `redis-cli` exits with 0 even if Redis rejects the command, so the probe compares the response.
    let ping = json!(["sh", "-c", "test \"$(redis-cli ping)\" = PONG"]);
    let container = json!({
        "name": REDIS,
        "image": redis.image,
        "command": ["redis-server", "/etc/redis/redis.conf"],
        "env": [{
            "name": "REDISCLI_AUTH",
            "valueFrom": { "secretKeyRef": { "name": SECRET, "key": "password" } },
        }],
        "ports": [{ "name": "redis", "containerPort": PORT, "protocol": "TCP" }],
        "resources": resources,
        "securityContext": container_security(),
        // Each probe starts a process in the container, so the short period ends with the first response.
        // The high threshold keeps a Redis alive that reads a large file for hours.
        "startupProbe": {
            "exec": { "command": ping },
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": STARTS_FOR,
        },
        "readinessProbe": {
            "exec": { "command": ping },
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "volumeMounts": [
            { "name": "data", "mountPath": "/data" },
            { "name": "config", "mountPath": "/etc/redis", "readOnly": true },
            { "name": "auth", "mountPath": "/run/redis-auth", "readOnly": true },
        ],
    });
    json!({
        "spec": {
            "replicas": scaled(context.spec, 1),
            "serviceName": REDIS,
            // Otherwise a Pod that never becomes ready is not replaced by a fixed one.
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { COMPONENT: REDIS } },
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Retain" },
            "volumeClaimTemplates": [{
                // The template is immutable, so it does not contain the UID of the Tenant. A Tenant that
                // adopts a retained namespace has another UID.
                "metadata": {
                    "name": "data",
                    "labels": { COMPONENT: REDIS, names::KIND: "Tenant" },
                },
                "spec": claim,
            }],
            "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "securityContext": pod_security(),
                    "terminationGracePeriodSeconds": 30,
                    "containers": [container],
                    "volumes": [
                        { "name": "config", "configMap": { "name": REDIS } },
                        { "name": "auth", "secret": {
                            "secretName": SECRET,
                            "items": [{ "key": "auth.conf", "path": "auth.conf" }],
                        } },
                    ],
                },
            },
        },
    })
}
