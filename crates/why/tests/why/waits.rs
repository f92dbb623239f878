//! Runs with a container that has not started, and Agents.

use serde_json::json;
use why::explanation::State::*;

use crate::{
    Case,
    build::{POD, Scene, at, before, created, going, merge, status, written},
    case,
};

const AGENT_GONE: &str =
    "Agent 'writer' does not exist in namespace 'team'; waiting until 2026-03-02T10:10:00Z";
pub(crate) fn cases() -> Vec<Case> {
    let mut all = needs();
    all.extend(operator());
    all.extend(refused());
    all.extend(place());
    all.extend(container());
    all
}

fn needs() -> Vec<Case> {
    let mut no_agent =
        Scene::new(before("AgentNotFound", AGENT_GONE)).known("Agent", "writer", false);
    no_agent.0.agent = None;
    let not_ready = json!({
        "spec": { "serviceAccountName": "robot", "priorityClassName": "low" },
        "status": {
            "phase": "Pending", "message": "missing: ServiceAccount 'robot', PriorityClass 'low' (namespace 'team')",
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "DependencyNotReady",
                "message": "missing: ServiceAccount 'robot', PriorityClass 'low' (namespace 'team')",
                "lastTransitionTime": at("09:58:00"), "observedGeneration": 1,
            }],
        },
    });
    let said = "Agent 'writer' is not ready: missing: ServiceAccount 'robot', PriorityClass 'low' (namespace 'team'); waiting until 2026-03-02T10:10:00Z";
    let unready = || {
        Scene::new(before("AgentNotReady", said))
            .agent(not_ready.clone())
            .known("ServiceAccount", "robot", false)
            .known("PriorityClass", "low", false)
    };
    let suspended = |message: &str| {
        let mut status = written(going("Pending", "Suspended", message), "10:05:02");
        merge(
            &mut status,
            json!({ "observedGeneration": 2, "deadlineAt": null }),
        );
        status
    };
    let held_at = |clock: &str| {
        json!({
            "metadata": { "generation": 2, "managedFields": [{ "manager": "kubectl", "operation": "Apply", "time": at(clock) }] },
            "spec": { "suspend": true },
        })
    };
    vec![
        case("agent-missing", no_agent, Blocked, Some(("Agent", "writer", "AgentNotFound"))),
        case("agent-not-ready", unready(), Blocked, Some(("ServiceAccount", "robot", "DependencyNotReady"))),
        case(
            "agent-itself-not-ready",
            unready().known("Secret", "registry", false).target("Agent", "writer"),
            Blocked,
            Some(("ServiceAccount", "robot", "DependencyNotReady")),
        ),
        case(
            "agent-itself-ready",
            Scene::new(created())
                .agent(json!({ "spec": { "envFrom": [{ "secretRef": { "name": "token" } }] } }))
                .known("ServiceAccount", "default", true)
                .known("Secret", "token", false)
                .target("Agent", "writer"),
            Ready,
            None,
        ),
        case(
            "agent-appeared-since",
            Scene::new(before("AgentNotFound", AGENT_GONE)).known("Agent", "writer", true),
            Waiting,
            None,
        ),
        case(
            "suspended",
            Scene::new(json!({})).with_run(
                written(status("Pending", "Suspended", "suspended before it was started", json!({ "attempts": 0 })), "10:00:01"),
                json!({ "spec": { "suspend": true } }),
            ),
            Suspended,
            Some(("TaskRun", "shop-7", "Suspended")),
        ),
        case(
            "suspended-and-stopping",
            Scene::new(json!({}))
                .with_run(
                    suspended("suspended: waiting for Pod 'shop-7-v1-x2k9p' on node 'node-1' to stop"),
                    held_at("10:05:01"),
                )
                .job(json!({ "spec": { "suspend": true } }))
                .pod(json!({ "metadata": { "deletionTimestamp": at("10:05:32"), "deletionGracePeriodSeconds": 30 }, "status": { "phase": "Running" } }))
                .node(json!({})),
            Suspended,
            Some(("TaskRun", "shop-7", "Suspended")),
        ),
        case(
            "suspended-between-attempts",
            Scene::new(json!({})).with_run(
                {
                    let said = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 4";
                    let mut status = suspended(&format!("suspended after attempt 1: {said}"));
                    merge(&mut status, json!({ "result": {
                        "reason": "NonZeroExit", "message": said, "exitCode": 4, "podName": POD, "podUID": "pod-uid",
                        "node": "node-1", "startedAt": at("10:00:09"), "finishedAt": at("10:04:50"),
                    }}));
                    status
                },
                held_at("10:05:01"),
            ),
            Suspended,
            Some(("TaskRun", "shop-7", "Suspended")),
        ),
        case(
            "suspended-while-it-ran",
            Scene::new(json!({}))
                .with_run(suspended("suspended: Job 'shop-7-v1' runs nothing"), held_at("10:04:01"))
                .job(json!({ "spec": { "suspend": true }, "status": { "active": 0 } })),
            Suspended,
            Some(("TaskRun", "shop-7", "Suspended")),
        ),
        case(
            "task-taken",
            Scene::new(before("TaskTaken", "TaskRun 'shop-again' has task 7 of service 'shop' already; two runs of a task cannot run side by side. Wait for its end, delete one of the two, or submit another 'taskId'; waiting until 2026-03-02T10:10:00Z")),
            Blocked,
            Some(("TaskRun", "shop-again", "TaskTaken")),
        ),
    ]
}

fn operator() -> Vec<Case> {
    let unseen = json!({ "observedGeneration": -1, "phase": "Pending", "message": "waiting for the operator to look at it" });
    let mut never = Scene::new(unseen.clone());
    never.0.leases = Some(Vec::new());
    let mut secret = Scene::new(unseen.clone());
    secret.0.leases = None;
    secret.0.unreadable.push(why::world::Unreadable {
        what: "leases".to_owned(),
        forbidden: true,
        why: "leases.coordination.k8s.io is forbidden".to_owned(),
    });
    let young = Scene::new(json!({})).with_run(
        unseen.clone(),
        json!({ "metadata": { "creationTimestamp": at("10:05:07") } }),
    );
    let newer = Scene::new(json!({})).with_run(
        going(
            "Running",
            "Progressing",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z",
        ),
        json!({
            "metadata": { "generation": 2, "managedFields": [
                { "manager": "kubectl", "operation": "Apply", "time": at("10:03:00") },
            ]},
            "spec": { "contextVersion": 2 },
        }),
    );
    vec![
        case(
            "operator-down",
            Scene::new(unseen.clone()).lease(Some("orchestrator-tasks-6d5f-abcde"), "09:41:00"),
            Blocked,
            Some(("Lease", "orchestrator-tasks", "OperatorDown")),
        ),
        case(
            "operator-never-installed",
            never,
            Blocked,
            Some(("Lease", "orchestrator-tasks", "OperatorDown")),
        ),
        case(
            "operator-unknown",
            secret,
            Blocked,
            Some(("TaskRun", "shop-7", "NotSeen")),
        ),
        case(
            "operator-does-not-watch",
            Scene::new(unseen),
            Blocked,
            Some(("Operator", "orchestrator", "NotWatched")),
        ),
        case("just-created", young, Waiting, None),
        case(
            "new-version-not-seen",
            newer.lease(None, "10:02:30"),
            Blocked,
            Some(("Lease", "orchestrator-tasks", "OperatorDown")),
        ),
    ]
}

fn refused() -> Vec<Case> {
    let quota = "Error creating: pods \"shop-7-v1-abcde\" is forbidden: exceeded quota: compute, requested: limits.memory=512Mi,pods=1, used: limits.memory=2Gi,pods=5, limited: limits.memory=2Gi,pods=5";
    let said = "the Pod cannot be created: it is forbidden: exceeded quota: compute, requested: limits.memory=512Mi,pods=1, used: limits.memory=2Gi,pods=5, limited: limits.memory=2Gi,pods=5";
    let scene = || Scene::new(going("Pending", "QuotaExceeded", said)).refused(quota);
    let denied = |message: &str| {
        let said = message
            .trim_start_matches("Error creating: ")
            .replace("pods \"shop-7-v1-abcde\" is", "it is");
        let said = format!("the Pod cannot be created: {said}");
        Scene::new(going("Pending", "AdmissionDenied", &said)).refused(message)
    };
    let hard = json!({ "limits.memory": "2Gi", "pods": "5" });
    vec![
        case(
            "quota",
            scene().quota("compute", hard.clone(), hard.clone()),
            Blocked,
            Some(("ResourceQuota", "compute", "QuotaExceeded")),
        ),
        case(
            "quota-has-room-again",
            scene().quota("compute", hard, json!({ "limits.memory": "1Gi", "pods": "3" })),
            Waiting,
            None,
        ),
        case(
            "quota-wants-limits",
            Scene::new(going("Pending", "QuotaExceeded", "the Pod cannot be created: it is forbidden: failed quota: compute: must specify limits.cpu for: agent"))
                .refused("Error creating: pods \"shop-7-v1-abcde\" is forbidden: failed quota: compute: must specify limits.cpu for: agent"),
            Blocked,
            Some(("ResourceQuota", "compute", "LimitMissing")),
        ),
        case(
            "limit-range",
            Scene::new(going("Pending", "QuotaExceeded", "the Pod cannot be created: it is forbidden: maximum memory usage per Container is 256Mi, but limit is 512Mi"))
                .refused("Error creating: pods \"shop-7-v1-abcde\" is forbidden: maximum memory usage per Container is 256Mi, but limit is 512Mi")
                .limit_range("small", json!([{ "type": "Container", "max": { "memory": "256Mi" } }])),
            Blocked,
            Some(("LimitRange", "small", "LimitRangeExceeded")),
        ),
        case(
            "pod-security",
            denied("Error creating: pods \"shop-7-v1-abcde\" is forbidden: violates PodSecurity \"restricted:latest\": unrestricted capabilities (container \"mesh\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"mesh\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)")
                .namespace(json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } })),
            Blocked,
            Some(("Namespace", "team", "AdmissionDenied")),
        ),
        case(
            "webhook",
            denied("Error creating: admission webhook \"images.policy.example\" denied the request: image registry.example/writer:1.4 is not signed"),
            Blocked,
            Some(("AdmissionWebhook", "images.policy.example", "AdmissionDenied")),
        ),
        case(
            "webhook-down",
            denied("Error creating: Internal error occurred: failed calling webhook \"images.policy.example\": failed to call webhook: Post \"https://policy.policy.svc:443/pods?timeout=10s\": dial tcp 10.0.3.4:443: connect: connection refused"),
            Blocked,
            Some(("AdmissionWebhook", "images.policy.example", "WebhookDown")),
        ),
        case(
            "policy",
            denied("Error creating: pods \"shop-7-v1-abcde\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'owners-all' denied request: each Pod needs a label 'owner'"),
            Blocked,
            Some(("ValidatingAdmissionPolicy", "owners", "AdmissionDenied")),
        ),
        case(
            "service-account-deleted",
            Scene::new(going("Pending", "DependencyNotReady", "the Pod cannot be created: it is forbidden: error looking up service account team/bot: serviceaccount \"bot\" not found"))
                .refused("Error creating: pods \"shop-7-v1-abcde\" is forbidden: error looking up service account team/bot: serviceaccount \"bot\" not found"),
            Blocked,
            Some(("ServiceAccount", "bot", "DependencyNotReady")),
        ),
        case("no-pod-and-no-event", Scene::new(created()).job(json!({})), Blocked, Some(("Job", "shop-7-v1", "NoPod"))),
    ]
}

fn place() -> Vec<Case> {
    let scene = |reason: &str, message: &str, more| {
        let said = format!("Pod '{POD}' has no node: {message}");
        Scene::new(going("Pending", reason, &said)).unscheduled(message, more)
    };
    let volume =
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    let claims = json!({ "spec": { "volumes": [{ "name": "workspace", "ephemeral": {} }] } });
    vec![
        case(
            "unschedulable-selector",
            scene(
                "Unschedulable",
                "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {dedicated: gpu}. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
                json!({ "spec": { "nodeSelector": { "disk": "golden" } } }),
            )
            .node(json!({}))
            .node(json!({ "metadata": { "name": "node-2" }, "spec": { "taints": [{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }] } })),
            Blocked,
            Some(("Pod", POD, "Unschedulable")),
        ),
        case(
            "unschedulable-cpu",
            scene(
                "Unschedulable",
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
                json!({ "spec": { "containers": [{ "name": "agent", "image": "registry.example/writer:1.4", "resources": { "requests": { "cpu": "16" } } }] } }),
            )
            .node(json!({})),
            Blocked,
            Some(("Pod", POD, "Unschedulable")),
        ),
        case(
            "unschedulable-cordoned",
            scene("Unschedulable", "0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.", json!({}))
                .node(json!({ "spec": { "unschedulable": true } })),
            Blocked,
            Some(("Node", "node-1", "Cordoned")),
        ),
        case(
            "unschedulable-node-not-ready",
            scene("Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.", json!({}))
                .lost_node("09:58:00"),
            Blocked,
            Some(("Node", "node-1", "NodeNotReady")),
        ),
        case(
            "volume-class-missing",
            scene("VolumeNotReady", volume, claims.clone())
                .claim("Pending")
                .known("StorageClass", "fast", false)
                .event(("PersistentVolumeClaim", "shop-7-v1-x2k9p-workspace", "pvc-uid"), "ProvisioningFailed", "storageclass.storage.k8s.io \"fast\" not found", "10:05:02"),
            Blocked,
            Some(("StorageClass", "fast", "DependencyNotReady")),
        ),
        case(
            "volume-no-driver",
            scene("VolumeNotReady", volume, claims.clone())
                .claim("Pending")
                .known("StorageClass", "fast", true)
                .known("CSIDriver", "csi.example.io", false)
                .event(("PersistentVolumeClaim", "shop-7-v1-x2k9p-workspace", "pvc-uid"), "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner 'csi.example.io' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", "10:05:02"),
            Blocked,
            Some(("CSIDriver", "csi.example.io", "NoProvisioner")),
        ),
        case(
            "volume-provisioner-fails",
            scene("VolumeNotReady", volume, claims)
                .claim("Pending")
                .known("StorageClass", "fast", true)
                .known("CSIDriver", "csi.example.io", true)
                .event(("PersistentVolumeClaim", "shop-7-v1-x2k9p-workspace", "pvc-uid"), "ProvisioningFailed", "failed to provision volume with StorageClass \"fast\": rpc error: code = ResourceExhausted desc = no space left in pool", "10:05:02"),
            Blocked,
            Some(("PersistentVolumeClaim", "shop-7-v1-x2k9p-workspace", "VolumeNotReady")),
        ),
        case(
            "volume-cannot-be-attached",
            Scene::new(going("Pending", "VolumeNotReady", "Pod 'shop-7-v1-x2k9p' on node 'node-1': Multi-Attach error for volume \"pvc-1\" Volume is already exclusively attached to one node and can't be attached to another"))
                .waits("ContainerCreating", "")
                .event(("Pod", POD, "pod-uid"), "FailedAttachVolume", "Multi-Attach error for volume \"pvc-1\" Volume is already exclusively attached to one node and can't be attached to another", "10:04:50"),
            Blocked,
            Some(("Pod", POD, "VolumeNotReady")),
        ),
    ]
}

fn container() -> Vec<Case> {
    let pull = "Back-off pulling image \"registry.example/writer:1.4\": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image \"registry.example/writer:1.4\": failed to resolve reference \"registry.example/writer:1.4\": registry.example/writer:1.4: not found";
    let secret = "secret \"the-key\" not found";
    let scene = |reason: &str, message: &str| {
        let said = format!("Pod '{POD}' on node 'node-1': {message}");
        Scene::new(going("Pending", reason, &said))
    };
    let key = json!({ "spec": { "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "the-key", "key": "k" } } }] } });
    let mut unread = scene("SecretNotFound", secret)
        .agent(key.clone())
        .waits("CreateContainerConfigError", secret);
    unread.0.unreadable.push(why::world::Unreadable {
        what: "Secret 'the-key'".to_owned(),
        forbidden: true,
        why: "secrets \"the-key\" is forbidden".to_owned(),
    });
    let denied = "failed to pull and unpack image \"registry.example/writer:1.4\": failed to resolve reference \"registry.example/writer:1.4\": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials";
    vec![
        case(
            "image-not-found",
            scene("ImagePullFailed", "the image cannot be pulled: rpc error: code = NotFound desc = failed to pull and unpack image \"registry.example/writer:1.4\": not found")
                .waits("ImagePullBackOff", pull)
                .event(("Pod", POD, "pod-uid"), "Failed", "Error: ImagePullBackOff", "10:04:58"),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case(
            "image-pull-secret-missing",
            scene("ImagePullFailed", &format!("the image cannot be pulled: {denied}"))
                .job(json!({}))
                .pod(json!({
                    "spec": { "imagePullSecrets": [{ "name": "registry" }] },
                    "status": { "phase": "Pending", "containerStatuses": [{
                        "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                        "state": { "waiting": { "reason": "ErrImagePull", "message": denied } },
                    }]},
                }))
                .node(json!({}))
                .known("Secret", "registry", false),
            Blocked,
            Some(("Secret", "registry", "SecretNotFound")),
        ),
        case(
            "image-needs-root",
            scene("ImageNeedsRoot", "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root")
                .waits("CreateContainerConfigError", "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root (pod: \"shop-7-v1-x2k9p_team(pod-uid)\", container: agent)"),
            Blocked,
            Some(("Pod", POD, "ImageNeedsRoot")),
        ),
        case(
            "secret-missing",
            scene("SecretNotFound", secret).agent(key.clone()).waits("CreateContainerConfigError", secret).known("Secret", "the-key", false),
            Blocked,
            Some(("Secret", "the-key", "SecretNotFound")),
        ),
        case("secret-not-readable", unread, Blocked, Some(("Secret", "the-key", "SecretNotFound"))),
        case(
            "secret-key-missing",
            scene("SecretNotFound", "couldn't find key k in Secret team/the-key")
                .agent(key.clone())
                .waits("CreateContainerConfigError", "couldn't find key k in Secret team/the-key")
                .known("Secret", "the-key", true),
            Blocked,
            Some(("Secret", "the-key", "KeyNotFound")),
        ),
        case(
            "secret-created-since",
            scene("SecretNotFound", secret).agent(key).waits("CreateContainerConfigError", secret).known("Secret", "the-key", true),
            Waiting,
            None,
        ),
        case(
            "files-missing",
            scene("SecretNotFound", "MountVolume.SetUp failed for volume \"context\" : configmap \"shop-7-v1-files\" not found")
                .waits("ContainerCreating", "")
                .event(("Pod", POD, "pod-uid"), "FailedMount", "MountVolume.SetUp failed for volume \"context\" : configmap \"shop-7-v1-files\" not found", "10:05:00")
                .known("ConfigMap", "shop-7-v1-files", false),
            Blocked,
            Some(("ConfigMap", "shop-7-v1-files", "ConfigMapNotFound")),
        ),
        case(
            "command-not-found",
            scene("ContainerNotStartable", "the container cannot be started: exec: \"/agent\": stat /agent: no such file or directory")
                .waits("RunContainerError", "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: \"/agent\": stat /agent: no such file or directory"),
            Blocked,
            Some(("Pod", POD, "ContainerNotStartable")),
        ),
        case(
            "sandbox-fails",
            Scene::new(created()).waits("ContainerCreating", "").event(
                ("Pod", POD, "pod-uid"),
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"4f1\": plugin type=\"bridge\" failed (add): no IP addresses available in range set: 10.1.0.1-10.1.0.254",
                "10:05:05",
            ),
            Blocked,
            Some(("Pod", POD, "ContainerNotStartable")),
        ),
        case("starting", Scene::new(created()).waits("ContainerCreating", ""), Waiting, None),
    ]
}
