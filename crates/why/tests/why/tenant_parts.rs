//! Tenants with a Redis or server that is not ready.

use serde_json::{Value, json};
use why::explanation::State::*;

use crate::{
    Case,
    build::{at, merge},
    tenant_build::{PLACE, SERVER, Site, UNKNOWN, case, degraded, running, status},
};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = containers();
    all.extend(refusals());
    all.extend(volumes());
    all.extend(placed());
    all.extend(rest());
    all
}

/// Adds the server's condition and status.
pub(crate) fn of_server(mut status: Value, reason: &str) -> Value {
    let message = status["message"].as_str().unwrap_or_default();
    let message = message.trim_start_matches("server: ").to_owned();
    let ready = json!({ "type": "ServerReady", "status": "False", "reason": reason,
        "message": message, "observedGeneration": 1, "lastTransitionTime": at("10:00:20") });
    if let Some(all) = status["conditions"].as_array_mut() {
        all.push(ready);
    }
    merge(
        &mut status,
        json!({ "serverStatus": { "phase": "Degraded", "message": message, "readyReplicas": 0,
            "totalReplicas": 2 } }),
    );
    status
}

impl Site {
    /// Makes the server's program crash repeatedly.
    pub(crate) fn server_crashes(self) -> Self {
        self.crashes("Error", 1, "could not read /etc/shop.toml")
    }

    fn crashes(mut self, reason: &str, code: i32, words: &str) -> Self {
        self.0.workloads.retain(|known| known.meta.name != "server");
        let state = json!({ "waiting": { "reason": "CrashLoopBackOff", "message":
            format!("back-off 40s restarting failed container=server pod={SERVER}_{PLACE}") } });
        let last = json!({ "terminated": { "exitCode": code, "reason": reason, "message": words,
            "startedAt": at("10:04:40"), "finishedAt": at("10:04:41") } });
        self.server_with(2, 0).container(
            "server",
            SERVER,
            "Running",
            state,
            json!({ "restartCount": 4, "lastState": last }),
        )
    }

    /// Rejects the server's Pods with this message.
    fn refused(self, message: &str) -> Self {
        self.server(json!({ "status": {
            "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": message, "lastTransitionTime": at("10:00:06") }],
        } }))
    }
}

const NOT_FOUND: &str = "Back-off pulling image \"registry.example/shop:2.1\": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image \"registry.example/shop:2.1\": not found";

fn containers() -> Vec<Case> {
    let image = degraded(
        "ImagePullFailed",
        "server: Pod 'server-7d9f-x2k9p': the image cannot be pulled: rpc error: code = NotFound desc = failed to pull and unpack image \"registry.example/shop:2.1\": not found",
    );
    let crash = degraded(
        "CrashLoop",
        "server: Pod 'server-7d9f-x2k9p': its program ends again and again: it exited with code 1 (Error)",
    );
    let oom = degraded(
        "CrashLoop",
        "server: Pod 'server-7d9f-x2k9p': its program ends again and again: it exited with code 137 (OOMKilled)",
    );
    let probe = degraded(
        "ProbeFailed",
        "server: Pod 'server-7d9f-x2k9p' runs, but is not ready: Readiness probe failed: HTTP probe failed with statuscode: 404",
    );
    let secret = degraded(
        "SecretNotFound",
        "server: Pod 'server-7d9f-x2k9p': secret \"api-key\" not found",
    );
    let root = degraded(
        "ImageNeedsRoot",
        "server: Pod 'server-7d9f-x2k9p': container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
    );
    let no_program = degraded(
        "ContainerNotStartable",
        "redis: Pod 'redis-0': the container cannot be started: exec: \"redis-server\": executable file not found in $PATH",
    );
    let liveness =
        "Liveness probe failed: Get \"http://10.0.0.8:3030/alive\": context deadline exceeded";
    let readiness = "Readiness probe failed: HTTP probe failed with statuscode: 404";
    let runs = json!({ "running": { "startedAt": at("10:00:09") } });
    let ready = |status: Value| Site::bare(status).redis(json!({}));
    vec![
        case(
            "tenant-image",
            ready(image)
                .server_with(2, 0)
                .waits("ImagePullBackOff", NOT_FOUND)
                .of_server("Failed", "Failed to pull image"),
            Blocked,
            Some(("Pod", SERVER, "ImagePullFailed")),
        ),
        case(
            "tenant-crash-loop",
            ready(crash.clone()).server_crashes(),
            Blocked,
            Some(("Pod", SERVER, "CrashLoop")),
        ),
        case(
            "tenant-crash-loop-for-memory",
            ready(oom).crashes("OOMKilled", 137, ""),
            Blocked,
            Some(("Pod", SERVER, "CrashLoop")),
        ),
        case(
            "tenant-crash-loop-by-its-probe",
            ready(crash)
                .crashes("Error", 137, "")
                .of_server("Unhealthy", liveness),
            Blocked,
            Some(("Pod", SERVER, "CrashLoop")),
        ),
        case(
            "tenant-crashes-but-status-says-ready",
            Site::ready(running(("True", "Isolated", "4 refused, 3 passed"))).server_crashes(),
            Blocked,
            Some(("Pod", SERVER, "CrashLoop")),
        ),
        case(
            "tenant-probe-failed",
            ready(probe.clone())
                .server_with(2, 0)
                .container("server", SERVER, "Running", runs.clone(), json!({}))
                .of_server("Unhealthy", readiness),
            Blocked,
            Some(("Pod", SERVER, "ProbeFailed")),
        ),
        case(
            // The explanation must follow as soon as the operator reports the problem.
            "tenant-probe-failed-for-five-seconds",
            ready(probe)
                .server_with(2, 0)
                .container(
                    "server",
                    SERVER,
                    "Running",
                    json!({ "running": { "startedAt": at("10:05:06") } }),
                    json!({}),
                )
                .of_server("Unhealthy", readiness),
            Blocked,
            Some(("Pod", SERVER, "ProbeFailed")),
        ),
        case(
            "tenant-redis-does-not-answer",
            Site::bare(degraded(
                "ProbeFailed",
                "redis: Pod 'redis-0' runs, but is not ready: Readiness probe failed: ",
            ))
            .redis_with(1, 0)
            .server(json!({}))
            .claim("Bound", json!({}))
            .container("redis", "redis-0", "Running", runs, json!({}))
            .event(
                ("Pod", "redis-0", "redis-0-uid"),
                "Unhealthy",
                "Readiness probe failed: ",
            ),
            Blocked,
            Some(("Pod", "redis-0", "ProbeFailed")),
        ),
        case(
            "tenant-secret-missing",
            ready(secret.clone())
                .server_with(2, 0)
                .waits("CreateContainerConfigError", "secret \"api-key\" not found")
                .known("Secret", "api-key", false),
            Blocked,
            Some(("Secret", "api-key", "SecretNotFound")),
        ),
        case(
            "tenant-secret-created-since",
            ready(secret)
                .server_with(2, 0)
                .waits("CreateContainerConfigError", "secret \"api-key\" not found")
                .known("Secret", "api-key", true),
            Waiting,
            None,
        ),
        case(
            "tenant-image-needs-root",
            ready(root).server_with(2, 0).waits(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
            Blocked,
            Some(("Pod", SERVER, "ImageNeedsRoot")),
        ),
        case(
            "tenant-no-program",
            Site::bare(no_program)
                .redis_with(1, 0)
                .server(json!({}))
                .claim("Bound", json!({}))
                .container(
                    "redis",
                    "redis-0",
                    "Pending",
                    json!({ "waiting": { "reason": "CreateContainerError", "message":
                        "failed to create containerd task: exec: \"redis-server\": executable file not found in $PATH" } }),
                    json!({}),
                ),
            Blocked,
            Some(("Pod", "redis-0", "ContainerNotStartable")),
        ),
    ]
}

fn refusals() -> Vec<Case> {
    let forbidden = |why: &str| format!("pods \"server-7d9f-\" is forbidden: {why}");
    let quota = "exceeded quota: tenant, requested: pods=1, used: pods=2, limited: pods=2";
    let said =
        |reason: &str, why: &str| degraded(reason, &format!("server: no Pod can be made: {why}"));
    let pods = |used: &str, hard: &str| {
        (
            json!({ "pods": hard, "limits.cpu": "4" }),
            json!({ "pods": used, "limits.cpu": "1500m" }),
        )
    };
    let (hard, used) = pods("2", "2");
    let (more, _) = pods("2", "3");
    let storage = "exceeded quota: tenant-objects, requested: requests.storage=1Gi, used: requests.storage=0, limited: requests.storage=512Mi";
    let claim = format!(
        "create Pod redis-0 in StatefulSet redis failed error: failed to create PVC data-redis-0: persistentvolumeclaims \"data-redis-0\" is forbidden: {storage}"
    );
    let largest = "maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi";
    let too_large = format!(
        "create Pod redis-0 in StatefulSet redis failed error: failed to create PVC data-redis-0: persistentvolumeclaims \"data-redis-0\" is forbidden: {largest}"
    );
    let policy = "ValidatingAdmissionPolicy 'signed-images' with binding 'all' denied request: image is not signed";
    let security = "violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"mesh\" must set securityContext.allowPrivilegeEscalation=false)";
    let hook =
        "admission webhook \"images.example.com\" denied the request: the registry is not allowed";
    let of_set = |reason: &str, message: &str| {
        Site::bare(degraded(
            reason,
            &format!("redis: no Pod can be made: {message}"),
        ))
        .server(json!({}))
        .redis_with(0, 0)
    };
    vec![
        case(
            "tenant-quota",
            Site::bare(said("QuotaExceeded", quota))
                .redis(json!({}))
                .refused(&forbidden(quota))
                .quota("tenant", hard, used.clone()),
            Blocked,
            Some(("ResourceQuota", "tenant", "QuotaExceeded")),
        ),
        case(
            "tenant-quota-has-room-again",
            Site::bare(said("QuotaExceeded", quota))
                .redis(json!({}))
                .refused(&forbidden(quota))
                .quota("tenant", more, used),
            Waiting,
            None,
        ),
        case(
            "tenant-quota-of-others",
            Site::bare(said(
                "QuotaExceeded",
                "exceeded quota: hands-off, requested: pods=1, used: pods=2, limited: pods=2",
            ))
            .redis(json!({}))
            .refused(&forbidden(
                "exceeded quota: hands-off, requested: pods=1, used: pods=2, limited: pods=2",
            )),
            Blocked,
            Some(("ResourceQuota", "hands-off", "QuotaExceeded")),
        ),
        case(
            "tenant-quota-for-storage",
            of_set("QuotaExceeded", storage)
                .event(
                    ("StatefulSet", "redis", "redis-uid"),
                    "FailedCreate",
                    &claim,
                )
                .quota(
                    "tenant-objects",
                    json!({ "requests.storage": "512Mi" }),
                    json!({ "requests.storage": "0" }),
                ),
            Blocked,
            Some(("ResourceQuota", "tenant-objects", "QuotaExceeded")),
        ),
        case(
            "tenant-limit-range",
            of_set("QuotaExceeded", largest)
                .event(
                    ("StatefulSet", "redis", "redis-uid"),
                    "FailedCreate",
                    &too_large,
                )
                .limit_range(
                    "tenant",
                    json!([{ "type": "PersistentVolumeClaim", "max": { "storage": "512Mi" } }]),
                ),
            Blocked,
            Some(("LimitRange", "tenant", "LimitRangeExceeded")),
        ),
        case(
            "tenant-admission-denied",
            Site::bare(said("AdmissionDenied", policy))
                .redis(json!({}))
                .refused(&forbidden(policy)),
            Blocked,
            Some((
                "ValidatingAdmissionPolicy",
                "signed-images",
                "AdmissionDenied",
            )),
        ),
        case(
            "tenant-webhook",
            Site::bare(said("AdmissionDenied", hook))
                .redis(json!({}))
                .refused(hook),
            Blocked,
            Some(("AdmissionWebhook", "images.example.com", "AdmissionDenied")),
        ),
        case(
            "tenant-pod-security",
            Site::bare(said("AdmissionDenied", security))
                .redis(json!({}))
                .refused(&forbidden(security)),
            Blocked,
            Some(("Namespace", PLACE, "AdmissionDenied")),
        ),
    ]
}

const UNBOUND: &str =
    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";

fn volumes() -> Vec<Case> {
    let said = |why: &str| {
        degraded(
            "VolumeNotReady",
            &format!(
                "redis: PersistentVolumeClaim 'data-redis-0' has no volume yet{why}; check 'redis.storage'"
            ),
        )
    };
    let about = ("PersistentVolumeClaim", "data-redis-0", "claim-uid");
    let missing = "storageclass.storage.k8s.io \"fast\" not found";
    let full = "failed to provision volume with StorageClass \"fast\": rpc error: code = ResourceExhausted desc = no space left";
    let pending = |status: Value| {
        Site::bare(status)
            .server(json!({}))
            .redis_with(1, 0)
            .unscheduled("redis", "redis-0", UNBOUND)
            .node(json!({}))
    };
    let small = "PersistentVolumeClaim 'data-redis-0' was there before and has 512Mi, 'redis.storage.size' asks for 1Gi: ask for what is there, or enlarge or delete the claim";
    vec![
        case(
            "tenant-volume-class-missing",
            pending(said(&format!(": {missing}")))
                .claim("Pending", json!({}))
                .event(about, "ProvisioningFailed", missing)
                .known("StorageClass", "fast", false),
            Blocked,
            Some(("StorageClass", "fast", "DependencyNotReady")),
        ),
        case(
            "tenant-volume-no-default-class",
            pending(said(
                ": no persistent volumes available for this claim and no storage class is set",
            ))
            .claim("Pending", json!({ "spec": { "storageClassName": null } }))
            .event(
                about,
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set",
            ),
            Blocked,
            Some(("StorageClass", "(default)", "DependencyNotReady")),
        ),
        case(
            "tenant-volume-provisioner-fails",
            pending(said(&format!(": {full}")))
                .claim("Pending", json!({}))
                .event(about, "ProvisioningFailed", full)
                .known("StorageClass", "fast", true)
                .known("CSIDriver", "csi.example.io", true),
            Blocked,
            Some(("PersistentVolumeClaim", "data-redis-0", "VolumeNotReady")),
        ),
        case(
            "tenant-volume-too-small",
            Site::ready(degraded("VolumeNotReady", &format!("redis: {small}"))).claim(
                "Bound",
                json!({ "spec": { "resources": { "requests": { "storage": "512Mi" } } } }),
            ),
            Blocked,
            Some(("PersistentVolumeClaim", "data-redis-0", "VolumeNotReady")),
        ),
        case(
            "tenant-volume-cannot-be-attached",
            Site::bare(degraded(
                "VolumeNotReady",
                "redis: Pod 'redis-0': Multi-Attach error for volume \"pvc-1\"",
            ))
            .server(json!({}))
            .redis_with(1, 0)
            .claim("Bound", json!({}))
            .container(
                "redis",
                "redis-0",
                "Pending",
                json!({ "waiting": { "reason": "ContainerCreating" } }),
                json!({}),
            )
            .event(
                ("Pod", "redis-0", "redis-0-uid"),
                "FailedAttachVolume",
                "Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) redis-0",
            ),
            Blocked,
            Some(("Pod", "redis-0", "VolumeNotReady")),
        ),
    ]
}

fn placed() -> Vec<Case> {
    let full = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let cordoned = "0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let said = |why: &str| {
        degraded(
            "Unschedulable",
            &format!("server: Pod '{SERVER}' has no node: {why}"),
        )
    };
    let site = |why: &str| {
        Site::bare(said(why))
            .redis(json!({}))
            .server_with(2, 0)
            .unscheduled("server", SERVER, why)
    };
    let runs = json!({ "running": { "startedAt": at("10:00:09") } });
    vec![
        case(
            "tenant-unschedulable",
            site(full).node(json!({})),
            Blocked,
            Some(("Pod", SERVER, "Unschedulable")),
        ),
        case(
            "tenant-unschedulable-cordoned",
            site(cordoned).node(json!({ "spec": { "unschedulable": true } })),
            Blocked,
            Some(("Node", "node-1", "Cordoned")),
        ),
        case(
            "tenant-node-lost",
            Site::bare(degraded(
                "NotReady",
                "server: 0 of 2 ready, 2 updated, 2 in total",
            ))
            .redis(json!({}))
            .server_with(2, 0)
            .container("server", SERVER, "Running", runs, json!({}))
            .lost_node("10:03:30"),
            Blocked,
            Some(("Node", "node-1", "NodeLost")),
        ),
    ]
}

fn rest() -> Vec<Case> {
    let on_its_way = |message: &str| status("Provisioning", "Progressing", message, UNKNOWN);
    let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
    let runs = json!({ "running": { "startedAt": at("10:05:00") } });
    let refused = "Readiness probe failed: dial tcp 10.0.0.8:3030: connect: connection refused";
    let image = degraded(
        "ImagePullFailed",
        "server: Pod 'server-7d9f-x2k9p': the image cannot be pulled: not found",
    );
    let disabled = json!({ "spec": { "networkPolicy": { "enabled": false } } });
    let open = (
        "False",
        "PoliciesDisabled",
        "there are no policies: 'networkPolicy.enabled' is false",
    );
    vec![
        case(
            "tenant-starting",
            Site::bare(on_its_way(
                "redis: 0 of 1 ready, 1 updated, 1 in total",
            ))
            .redis_with(1, 0)
            .server_with(2, 0)
            .claim("Bound", json!({}))
            .container("redis", "redis-0", "Pending", creating, json!({})),
            Waiting,
            None,
        ),
        case(
            "tenant-server-waits-for-redis",
            Site::bare(on_its_way("redis: 0 of 1 ready, 1 updated, 1 in total; server: 0 of 2 ready, 2 updated, 2 in total"))
                .redis_with(1, 0)
                .server_with(2, 0)
                .claim("Bound", json!({}))
                .container("redis", "redis-0", "Running", runs.clone(), json!({}))
                .container("server", SERVER, "Running", runs.clone(), json!({}))
                .of_server("Unhealthy", refused),
            Waiting,
            None,
        ),
        case(
            "tenant-both-are-blocked",
            Site::bare(degraded("Unschedulable", "redis: Pod 'redis-0' has no node: 0/1 nodes are available: 1 Insufficient memory."))
                .redis_with(1, 0)
                .claim("Bound", json!({}))
                .unscheduled("redis", "redis-0", "0/1 nodes are available: 1 Insufficient memory.")
                .server_with(2, 0)
                .waits("ImagePullBackOff", NOT_FOUND),
            Blocked,
            Some(("Pod", "redis-0", "Unschedulable")),
        ),
        case(
            "tenant-without-endpoints",
            Site::ready(on_its_way(
                "server: 2 of 2 ready, but its Service leads to none of them yet",
            ))
            .endpoints("server", 0),
            Waiting,
            None,
        ),
        case(
            "tenant-deployment-not-made",
            Site::bare(on_its_way("server: is being made"))
                .redis(json!({}))
                .known("Deployment", "server", false),
            Waiting,
            None,
        ),
        case(
            "tenant-starting-without-operator",
            Site::bare(on_its_way("server: is being made"))
                .redis(json!({}))
                .known("Deployment", "server", false)
                .lease(Some("orchestrator-tenants-5c7b-fghij"), "10:02:30"),
            Blocked,
            Some(("Lease", "orchestrator-tenants", "OperatorDown")),
        ),
        case(
            "tenant-mended-but-not-said",
            Site::ready(image.clone()),
            Waiting,
            None,
        ),
        case(
            "tenant-blocked-and-open",
            Site::bare(json!({}))
                .with(
                    status(
                        "Degraded",
                        "ImagePullFailed",
                        "server: Pod 'server-7d9f-x2k9p': the image cannot be pulled: not found",
                        open,
                    ),
                    disabled,
                )
                .redis(json!({}))
                .server_with(2, 0)
                .waits("ImagePullBackOff", NOT_FOUND),
            Blocked,
            Some(("Pod", SERVER, "ImagePullFailed")),
        ),
    ]
}
