//! The customer's server: a Deployment and a Service.

use api::{
    decide::Manifest,
    pod::EnvVar,
    tenants::{Probe, Server},
};
use serde_json::{Value, json};

use super::{
    BuildContext, COMPONENT, REDIS, REDIS_PORT, SERVER, container_security, pod_labels,
    pod_security, redis, scaled, types,
};

pub(super) fn all(context: BuildContext<'_>, secret_uid: Option<&str>) -> Vec<Manifest> {
    let Some(server) = &context.spec.server else {
        return Vec::new();
    };
    let service = json!({
        "spec": {
            "type": "ClusterIP",
            "selector": { COMPONENT: SERVER },
            "ports": [{
                "name": "http", "port": server.port, "targetPort": server.port, "protocol": "TCP",
            }],
        },
    });
    vec![
        context.manifest(types::SERVICE, SERVER, SERVER, service),
        context.manifest(
            types::DEPLOYMENT,
            SERVER,
            SERVER,
            deployment(context, server, secret_uid),
        ),
    ]
}

fn deployment(context: BuildContext<'_>, server: &Server, secret_uid: Option<&str>) -> Value {
    let labels = pod_labels(context, SERVER);
    let resources = server.resources.as_ref().map_or_else(
        || context.settings.default_resources.clone(),
        |own| json!(own),
    );
    let has_redis = context.spec.redis.is_some();
    let annotations = redis::template_annotations(secret_uid.filter(|_| has_redis));
    let mut container = json!({
        "name": SERVER,
        "image": server.image,
        "env": variables(server, has_redis),
        "ports": [{ "name": "http", "containerPort": server.port, "protocol": "TCP" }],
        "resources": resources,
        "securityContext": container_security(),
        "readinessProbe": readiness(server),
        "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
    });
    if let Some(liveness) = server.probes.as_ref().and_then(|all| all.liveness.as_ref()) {
        container["livenessProbe"] = asked(liveness, server.port);
    }
    json!({
        "spec": {
            "replicas": scaled(context.spec, server.replicas),
            "selector": { "matchLabels": { COMPONENT: SERVER } },
            "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "securityContext": pod_security(),
                    "containers": [container],
                    "volumes": [{ "name": "tmp", "emptyDir": { "sizeLimit": "256Mi" } }],
                },
            },
        },
    })
}

/// Returns the environment variables, ours first: Kubernetes expands `$(REDIS_PASSWORD)` only if the
/// variable is defined before.
fn variables(server: &Server, has_redis: bool) -> Vec<Value> {
    let mut all = vec![
        json!({ "name": "PORT", "value": server.port.to_string() }),
        json!({ "name": "HOME", "value": "/tmp" }),
    ];
    if has_redis {
        // Some clients treat an empty user as a user name, so the URL contains the default user.
        let url = format!("redis://default:$(REDIS_PASSWORD)@{REDIS}:{REDIS_PORT}/0");
        all.push(redis::password());
        all.push(json!({ "name": "REDIS_URL", "value": url }));
    }
    all.extend(server.env.iter().map(|own: &EnvVar| json!(own)));
    all
}

fn readiness(server: &Server) -> Value {
    match &server.probes {
        Some(probes) => asked(&probes.readiness, server.port),
        None => json!({
            "tcpSocket": { "port": server.port },
            "periodSeconds": 2,
            "failureThreshold": 3,
        }),
    }
}

fn asked(probe: &Probe, port: u16) -> Value {
    let Probe {
        path,
        period_seconds,
        failure_threshold,
    } = probe;
    json!({
        "httpGet": { "path": path, "port": port },
        "periodSeconds": period_seconds,
        "failureThreshold": failure_threshold,
    })
}
