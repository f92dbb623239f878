//! Builds worlds from objects as the API server returns them, through the same views as real ones.

use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, LimitRange, Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use why::{
    ObjectRef, World,
    world::{AgentView, Known, Meta, NodeView, OtherView, RunView},
};

pub(crate) const NOW: &str = "10:05:11";
pub(crate) const POD: &str = "shop-7-v1-x2k9p";

/// Returns this time on the day of all scenarios.
pub(crate) fn at(clock: &str) -> String {
    format!("2026-03-02T{clock}Z")
}

fn time(clock: &str) -> Time {
    Time(at(clock).parse().unwrap())
}

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Merges `more` into `base`, recursively for JSON objects.
pub(crate) fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

/// Returns a status like the operator's, written at 10:02:11.
pub(crate) fn status(phase: &str, reason: &str, message: &str, more: Value) -> Value {
    let succeeded = match phase {
        "Succeeded" => "True",
        "Failed" => "False",
        _ => "Unknown",
    };
    let mut status = json!({
        "observedGeneration": 1, "phase": phase, "message": message, "contextVersion": 1,
        "lastUpdated": at("10:02:11"), "attempts": 1,
        "conditions": [{
            "type": "Succeeded", "status": succeeded, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": at("10:00:00"),
        }],
        "phaseHistory": [{
            "phase": phase, "attempt": 1, "startedAt": at("10:00:01"), "outcome": "Working",
            "reason": reason, "message": message,
        }],
    });
    merge(&mut status, more);
    status
}

/// Returns the status with another time of writing.
pub(crate) fn written(mut status: Value, clock: &str) -> Value {
    merge(&mut status, json!({ "lastUpdated": at(clock) }));
    status
}

/// Returns the status of a run that has a Job.
pub(crate) fn going(phase: &str, reason: &str, message: &str) -> Value {
    let more = json!({
        "jobName": "shop-7-v1", "configMapName": "shop-7-v1-files",
        "deadlineAt": at("10:10:01"),
    });
    status(phase, reason, message, more)
}

/// Returns the status of a run that ended with this result.
pub(crate) fn over(phase: &str, reason: &str, message: &str, result: Value) -> Value {
    let mut all = json!({
        "reason": reason, "message": message, "podName": POD, "podUID": "pod-uid", "node": "node-1",
        "startedAt": at("10:00:09"), "finishedAt": at("10:02:10"),
    });
    merge(&mut all, result);
    let more = json!({
        "jobName": "shop-7-v1", "configMapName": "shop-7-v1-files", "finishedAt": at("10:02:11"),
        "startedAt": at("10:00:09"), "result": all,
    });
    status(phase, reason, message, more)
}

const CREATED: &str = "Job 'shop-7-v1' was created; waiting for its Pod";

/// Returns the status of a run after its Job was created.
pub(crate) fn created() -> Value {
    going("Pending", "Progressing", CREATED)
}

/// Returns the status of a run before its first attempt.
pub(crate) fn before(reason: &str, message: &str) -> Value {
    status(
        "Pending",
        reason,
        message,
        json!({ "attempts": 0, "deadlineAt": at("10:10:00") }),
    )
}

/// A world about TaskRun `team/shop-7`.
pub(crate) struct Scene(pub(crate) World);

impl Scene {
    /// Creates a world with this status of the run, a ready Agent, and a leading operator.
    pub(crate) fn new(status: Value) -> Self {
        let target = ObjectRef::namespaced("TaskRun", "team", "shop-7");
        Self(World::new(time(NOW), target))
            .run(json!({ "status": status }))
            .agent(json!({}))
            .lease(Some("orchestrator-tasks-6d5f-abcde"), "10:05:08")
            .namespace(json!({}))
    }

    pub(crate) fn run(mut self, more: Value) -> Self {
        let mut run = json!({
            "metadata": {
                "name": "shop-7", "namespace": "team", "uid": "run-uid", "generation": 1,
                "creationTimestamp": at("10:00:00"),
                "finalizers": ["taskruns.orchestrator.io/finalizer"],
                "managedFields": [
                    { "manager": "kubectl", "operation": "Apply", "time": at("10:00:00") },
                    { "manager": "orchestrator", "operation": "Apply", "time": at("10:02:11") },
                ],
            },
            "spec": {
                "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
                "markdownFiles": [{ "filename": "task.md", "content": "the task" }],
            },
        });
        merge(&mut run, more);
        self.0.run = Some(RunView::read(&run));
        self
    }

    /// Sets the creation time of the run.
    pub(crate) fn created(mut self, clock: &str) -> Self {
        if let Some(run) = &mut self.0.run {
            run.meta.created = Some(time(clock));
            run.changed = Some(time(clock));
            for record in &mut run.status.progress.phase_history {
                record.started_at = time(clock);
            }
        }
        self
    }

    /// Sets the status and other fields of the run.
    pub(crate) fn with_run(self, status: Value, more: Value) -> Self {
        let mut all = json!({ "status": status });
        merge(&mut all, more);
        self.run(all)
    }

    pub(crate) fn agent(mut self, more: Value) -> Self {
        let mut agent = json!({
            "metadata": {
                "name": "writer", "namespace": "team", "uid": "agent-uid", "generation": 1,
                "creationTimestamp": at("09:00:00"),
            },
            "spec": {
                "image": "registry.example/writer:1.4",
                "resources": {
                    "requests": { "cpu": "500m", "memory": "256Mi" }, "limits": { "memory": "512Mi" },
                },
            },
            "status": {
                "phase": "Ready", "observedGeneration": 1, "lastUpdated": at("09:00:01"),
                "message": "everything that the Agent names exists",
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready",
                    "message": "everything that the Agent names exists",
                    "observedGeneration": 1, "lastTransitionTime": at("09:00:01"),
                }],
            },
        });
        merge(&mut agent, more);
        self.0.agent = Some(AgentView::read(&agent));
        self
    }

    pub(crate) fn job(mut self, more: Value) -> Self {
        let mut job = json!({
            "metadata": {
                "name": "shop-7-v1", "namespace": "team", "uid": "job-uid",
                "creationTimestamp": at("10:00:01"),
                "labels": {
                    "orchestrator.io/uid": "run-uid", "orchestrator.io/name": "shop-7",
                    "context-version": "1",
                },
                "ownerReferences": [{
                    "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "shop-7",
                    "uid": "run-uid", "controller": true,
                }],
            },
            "spec": { "template": { "spec": { "containers": [] } } },
            "status": { "active": 1 },
        });
        merge(&mut job, more);
        self.0.jobs.push((&from::<Job>(job)).into());
        self
    }

    /// Adds a Pod of the Job on node-1.
    pub(crate) fn pod(mut self, more: Value) -> Self {
        let mut pod = json!({
            "metadata": {
                "name": POD, "namespace": "team", "uid": "pod-uid",
                "creationTimestamp": at("10:00:02"),
                "labels": { "orchestrator.io/uid": "run-uid", "orchestrator.io/name": "shop-7" },
                "finalizers": ["batch.kubernetes.io/job-tracking"],
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "shop-7-v1",
                    "uid": "job-uid", "controller": true,
                }],
            },
            "spec": {
                "nodeName": "node-1",
                "containers": [{
                    "name": "agent", "image": "registry.example/writer:1.4",
                    "resources": { "requests": { "cpu": "500m", "memory": "256Mi" }, "limits": { "memory": "512Mi" } },
                }],
            },
            "status": { "phase": "Pending" },
        });
        merge(&mut pod, more);
        self.0.pods.push((&from::<Pod>(pod)).into());
        self
    }

    /// Adds a Pod with its container in this state.
    pub(crate) fn container(self, phase: &str, state: Value) -> Self {
        let status = json!({
            "name": "agent", "ready": false, "restartCount": 0, "image": "registry.example/writer:1.4",
            "imageID": "registry.example/writer@sha256:5f3c", "state": state,
        });
        self.pod(json!({ "status": { "phase": phase, "containerStatuses": [status] } }))
    }

    /// Adds a Pod with a waiting container, with this reason and message.
    pub(crate) fn waits(self, reason: &str, message: &str) -> Self {
        self.job(json!({}))
            .container(
                "Pending",
                json!({ "waiting": { "reason": reason, "message": message } }),
            )
            .node(json!({}))
    }

    /// Adds a Pod without a node, with this message of the scheduler.
    pub(crate) fn unscheduled(self, message: &str, more: Value) -> Self {
        let mut pod = json!({
            "spec": { "nodeName": null },
            "status": { "phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message, "lastTransitionTime": at("10:00:02"),
            }]},
        });
        merge(&mut pod, more);
        self.job(json!({})).pod(pod)
    }

    pub(crate) fn event(
        mut self,
        about: (&str, &str, &str),
        reason: &str,
        message: &str,
        last: &str,
    ) -> Self {
        let (kind, name, uid) = about;
        let event = json!({
            "metadata": { "name": "e", "namespace": "team" },
            "involvedObject": { "kind": kind, "namespace": "team", "name": name, "uid": uid },
            "type": if reason == "ExternalProvisioning" { "Normal" } else { "Warning" },
            "reason": reason, "message": message, "count": 7,
            "firstTimestamp": at("10:00:03"), "lastTimestamp": at(last),
        });
        self.0.events.push((&from::<Event>(event)).into());
        self
    }

    /// Adds an Event about a rejected request of the Job controller.
    pub(crate) fn refused(self, message: &str) -> Self {
        self.job(json!({ "status": { "active": 0 } })).event(
            ("Job", "shop-7-v1", "job-uid"),
            "FailedCreate",
            message,
            "10:04:41",
        )
    }

    pub(crate) fn quota(mut self, name: &str, hard: Value, used: Value) -> Self {
        let quota =
            json!({ "metadata": { "name": name }, "status": { "hard": hard, "used": used } });
        self.0.quotas.push((&from::<ResourceQuota>(quota)).into());
        self
    }

    pub(crate) fn limit_range(mut self, name: &str, limits: Value) -> Self {
        let range = json!({ "metadata": { "name": name }, "spec": { "limits": limits } });
        self.0
            .limit_ranges
            .push((&from::<LimitRange>(range)).into());
        self
    }

    /// Adds a claim of the Pod.
    pub(crate) fn claim(mut self, phase: &str) -> Self {
        let claim = json!({
            "metadata": {
                "name": format!("{POD}-workspace"), "namespace": "team", "uid": "pvc-uid",
                "creationTimestamp": at("10:00:02"),
            },
            "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "phase": phase },
        });
        self.0
            .claims
            .push((&from::<PersistentVolumeClaim>(claim)).into());
        self
    }

    pub(crate) fn node(mut self, more: Value) -> Self {
        let mut node = json!({
            "metadata": { "name": "node-1", "labels": { "disk": "ssd" } },
            "status": {
                "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status", "lastTransitionTime": at("08:00:00"),
                }],
            },
        });
        merge(&mut node, more);
        let keys = ["disk".to_owned()];
        self.0
            .nodes
            .push(NodeView::read(&from::<Node>(node), &keys));
        self
    }

    /// Adds a node that is not ready, because its kubelet does not respond.
    pub(crate) fn lost_node(self, since: &str) -> Self {
        self.node(json!({
            "spec": { "taints": [{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }] },
            "status": { "conditions": [{
                "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.", "lastTransitionTime": at(since),
            }]},
        }))
    }

    pub(crate) fn known(mut self, kind: &str, name: &str, exists: bool) -> Self {
        let namespace = match kind {
            "StorageClass" | "PriorityClass" | "RuntimeClass" | "CSIDriver" | "Node" => None,
            _ => Some("team".to_owned()),
        };
        self.0.known.push(Known {
            object: ObjectRef {
                kind: kind.to_owned(),
                namespace,
                name: name.to_owned(),
            },
            exists,
            provisioner: (kind == "StorageClass" && exists).then(|| "csi.example.io".to_owned()),
        });
        self
    }

    pub(crate) fn other(mut self, kind: &str, name: &str, owner: Option<(&str, &str)>) -> Self {
        let owners: Vec<Value> = owner
            .iter()
            .map(|(kind, name)| {
                json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": "other-uid", "controller": true })
            })
            .collect();
        let meta = json!({
            "name": name, "namespace": "team", "uid": "foreign", "creationTimestamp": at("07:30:00"),
            "ownerReferences": owners,
        });
        let meta = Meta::from(&from(meta));
        self.0.others.push(OtherView {
            kind: kind.to_owned(),
            resource: String::new(),
            meta,
        });
        self
    }

    pub(crate) fn namespace(mut self, more: Value) -> Self {
        let mut namespace = json!({ "metadata": { "name": "team" } });
        merge(&mut namespace, more);
        self.0.namespace = Some((&from::<Namespace>(namespace)).into());
        self
    }

    pub(crate) fn lease(mut self, holder: Option<&str>, renewed: &str) -> Self {
        let lease = json!({
            "metadata": { "name": "orchestrator-tasks", "namespace": "orchestrator" },
            "spec": {
                "holderIdentity": holder.unwrap_or_default(), "leaseDurationSeconds": 15,
                "renewTime": format!("2026-03-02T{renewed}.000000Z"),
            },
        });
        self.0.leases = Some(vec![(&from::<Lease>(lease)).into()]);
        self
    }

    pub(crate) fn target(mut self, kind: &str, name: &str) -> Self {
        self.0.target = ObjectRef::namespaced(kind, "team", name);
        self
    }
}
