//! Runs that are in progress, blocked, or being deleted, and targets that are not runs.

use serde_json::json;
use why::{explain, explanation::State::*};

use crate::{
    Case,
    build::{POD, Scene, at, before, created, going, merge, status, written},
    case,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = going_on();
    all.extend(faults());
    all.extend(deletion());
    all.extend(others());
    all
}

fn going_on() -> Vec<Case> {
    let running = || {
        let mut status = going(
            "Running",
            "Progressing",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z",
        );
        merge(
            &mut status,
            json!({ "startedAt": at("10:00:09"), "deadlineAt": at("11:00:09") }),
        );
        status
    };
    let started = json!({ "running": { "startedAt": at("10:00:09") } });
    let evicted = json!({
        "metadata": { "deletionTimestamp": at("10:05:31"), "deletionGracePeriodSeconds": 30 },
        "status": {
            "phase": "Running",
            "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": at("10:05:01"),
            }],
            "containerStatuses": [{ "name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": started }],
        },
    });
    let preempted = json!({
        "status": {
            "phase": "Failed",
            "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
                "lastTransitionTime": at("10:04:40"),
            }],
            "containerStatuses": [{ "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": { "terminated": { "exitCode": 143, "reason": "Error", "finishedAt": at("10:05:02") } } }],
        },
    });
    let lost = json!({
        "metadata": { "deletionTimestamp": at("10:02:00"), "deletionGracePeriodSeconds": 30 },
        "status": {
            "phase": "Running",
            "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": at("10:01:30"),
            }],
            "containerStatuses": [{ "name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": started }],
        },
    });
    let between = written(
        status(
            "Pending",
            "NonZeroExit",
            "attempt 1 of 3 failed: Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 4; the next one starts at 2026-03-02T10:05:53Z",
            json!({
                "jobName": "shop-7-v1", "deadlineAt": at("10:05:53"),
                "result": {
                    "reason": "NonZeroExit", "message": "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 4",
                    "exitCode": 4, "podName": POD, "podUID": "pod-uid", "node": "node-1",
                    "startedAt": at("10:04:00"), "finishedAt": at("10:05:03"),
                },
            }),
        ),
        "10:05:04",
    );
    // The Job ended with its Pod, and another one replaces it.
    let again = |reason: &str, message: &str, pod: serde_json::Value| {
        let mut result =
            json!({ "reason": reason, "message": message, "finishedAt": at("10:05:06") });
        merge(&mut result, pod);
        let words = format!(
            "{message}; it is started again without using an attempt (disruption 1 of at most 5)"
        );
        let status = status(
            "Pending",
            reason,
            &words,
            json!({
                "jobName": "shop-7-v1", "deadlineAt": at("10:05:07"), "disruptions": 1, "result": result,
                "pod": { "name": POD, "uid": "pod-uid", "node": "node-1", "disruptedAt": at("10:04:36") },
            }),
        );
        written(status, "10:05:07")
    };
    let drained = again(
        "Disrupted",
        "Pod 'shop-7-v1-x2k9p' on node 'node-1' was terminated by another actor (EvictionByEvictionAPI: Eviction API: evicting); its result is ignored",
        json!({ "podName": POD, "podUID": "pod-uid", "node": "node-1", "startedAt": at("10:00:09"), "exitCode": 143, "signal": 15 }),
    );
    let gone = again(
        "JobLost",
        "Job 'shop-7-v1' was deleted by another actor before its result was read",
        json!({}),
    );
    let disrupted_at = |status: serde_json::Value, clock: &str| {
        let mut status = written(status, clock);
        merge(
            &mut status,
            json!({
                "disruptions": 1, "startedAt": at("10:00:09"),
                "pod": { "name": POD, "uid": "pod-uid", "node": "node-1", "disruptedAt": at(clock) },
            }),
        );
        status
    };
    let replaced = {
        let mut status = going(
            "Running",
            "Progressing",
            "Pod 'shop-7-v1-d1-m4t2c' on node 'node-1' runs; it has until 2026-03-02T11:03:09Z",
        );
        merge(
            &mut status,
            json!({
                "jobName": "shop-7-v1-d1", "disruptions": 1, "startedAt": at("10:03:09"), "deadlineAt": at("11:03:09"),
                "pod": { "name": "shop-7-v1-d1-m4t2c", "uid": "pod-uid-2", "node": "node-1" },
            }),
        );
        written(status, "10:03:10")
    };
    let mut superseded = running();
    merge(
        &mut superseded,
        json!({ "contextVersion": 2, "jobName": "shop-7-v2", "history": [{
                "contextVersion": 1, "phase": "Running", "reason": "Superseded", "attempts": 1,
                "finishedAt": at("10:00:00"),
            }],
            "message": "Pod 'shop-7-v2-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z",
        }),
    );
    let ran = |name: &str, uid: &str, job: (&str, &str), since: &str| {
        json!({
            "metadata": {
                "name": name, "uid": uid, "creationTimestamp": at(since),
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": job.0, "uid": job.1, "controller": true }],
            },
            "status": { "phase": "Running", "containerStatuses": [{
                "name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "state": { "running": { "startedAt": at(since) } },
            }]},
        })
    };
    vec![
        case("running", Scene::new(running()).job(json!({})).container("Running", started.clone()).node(json!({})), Running, None),
        case(
            "running-while-operator-is-down",
            Scene::new(running()).job(json!({})).container("Running", started.clone()).node(json!({})).lease(Some("orchestrator-tasks-6d5f-abcde"), "10:02:20"),
            Running,
            None,
        ),
        case(
            "running-but-status-says-image",
            Scene::new(going("Pending", "ImagePullFailed", "Pod 'shop-7-v1-x2k9p' on node 'node-1': the image cannot be pulled: i/o timeout"))
                .job(json!({}))
                .container("Running", json!({ "running": { "startedAt": at("10:04:30") } }))
                .node(json!({})),
            Running,
            None,
        ),
        case("running-new-version", Scene::new(json!({})).with_run(superseded, json!({ "spec": { "contextVersion": 2 } })).job(json!({ "metadata": { "name": "shop-7-v2", "labels": { "context-version": "2" } } })).pod(ran("shop-7-v2-x2k9p", "pod-uid", ("shop-7-v2", "job-uid"), "10:00:09")).node(json!({})), Running, None),
        case(
            "running-after-a-disruption",
            Scene::new(replaced)
                .job(json!({ "metadata": { "name": "shop-7-v1-d1", "uid": "job-uid-2", "creationTimestamp": at("10:03:01") } }))
                .pod(ran("shop-7-v1-d1-m4t2c", "pod-uid-2", ("shop-7-v1-d1", "job-uid-2"), "10:03:09"))
                .node(json!({})),
            Running,
            None,
        ),
        case("disrupted-starts-again", Scene::new(drained.clone()), Waiting, None),
        case(
            "disrupted-next-job-is-there",
            Scene::new(drained)
                .job(json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "", "lastTransitionTime": at("10:05:06") }] } }))
                .job(json!({ "metadata": { "name": "shop-7-v1-d1", "uid": "job-uid-2", "creationTimestamp": at("10:05:08") } }))
                .node(json!({})),
            Waiting,
            None,
        ),
        case(
            "ended-but-its-job-is-silent",
            Scene::new({
                let mut status = running();
                let message = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the container exited with code 137, but Job 'shop-7-v1' does not say so; is the Job controller running?";
                merge(&mut status, json!({ "message": message, "deadlineAt": at("10:14:00") }));
                written(status, "10:04:30")
            })
            .job(json!({}))
            .container("Failed", json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled", "startedAt": at("10:00:09"), "finishedAt": at("10:04:00") } }))
            .node(json!({})),
            Waiting,
            Some(("Pod", POD, "Ended")),
        ),
        case("job-lost-starts-again", Scene::new(gone.clone()), Waiting, None),
        case(
            "job-lost-and-its-pod-stops",
            Scene::new({
                let mut status = gone;
                let message = "waiting for Pod 'shop-7-v1-x2k9p' to stop";
                merge(&mut status, json!({ "reason": "Progressing", "message": message, "deadlineAt": at("10:15:07") }));
                status
            }),
            Waiting,
            None,
        ),
        case("evicted", Scene::new(disrupted_at(going("Running", "Disrupted", "Pod 'shop-7-v1-x2k9p' on node 'node-1' is being terminated by another actor (EvictionByEvictionAPI: Eviction API: evicting); waiting until it has ended"), "10:05:02")).job(json!({})).pod(evicted).node(json!({})), Waiting, None),
        case(
            "preempted-and-ended",
            Scene::new(written(disrupted_at(going("Pending", "Disrupted", "Pod 'shop-7-v1-x2k9p' on node 'node-1' was terminated by another actor (PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod); waiting for its replacement"), "10:04:41"), "10:05:03"))
                .job(json!({}))
                .pod(preempted)
                .node(json!({})),
            Waiting,
            None,
        ),
        case("evicted-and-waiting-for-its-next-pod", evicted_between("10:04:32", "10:05:01", 1), Waiting, None),
        case(
            "evicted-and-not-replaced",
            evicted_between("10:03:00", "10:03:30", 1),
            Blocked,
            Some(("Job", "shop-7-v1", "NoPod")),
        ),
        case(
            "node-lost",
            Scene::new(written(disrupted_at(going("Running", "Disrupted", "Pod 'shop-7-v1-x2k9p' on node 'node-1' was told to stop (DeletionByTaintManager: Taint manager: deleting due to NoExecute taint) and has not: node 'node-1' does not answer. Another Pod starts when the node is back and has stopped it, when Node 'node-1' is deleted, or when it has the taint 'node.kubernetes.io/out-of-service'"), "10:01:31"), "10:02:31"))
                .job(json!({}))
                .pod(lost)
                .lost_node("10:01:20"),
            Blocked,
            Some(("Node", "node-1", "NodeLost")),
        ),
        case(
            "between-attempts",
            Scene::new(between)
                .agent(json!({ "spec": { "retry": { "maxAttempts": 3 } } }))
                .job(json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit", "lastTransitionTime": at("10:05:04") }] } }))
                .container("Failed", json!({ "terminated": { "exitCode": 4, "reason": "Error", "startedAt": at("10:04:00"), "finishedAt": at("10:05:03") } })),
            Waiting,
            None,
        ),
        case("job-lost", Scene::new(written(going("Running", "JobLost", "Job 'shop-7-v1' is not there; looking again before it is given up as lost"), "10:05:08")), Waiting, None),
        case(
            "ended-but-not-recorded",
            Scene::new(running())
                .job(json!({}))
                .container("Failed", json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled", "startedAt": at("10:00:09"), "finishedAt": at("10:04:00") } }))
                .node(json!({})),
            Waiting,
            Some(("Pod", POD, "Ended")),
        ),
        case(
            "ended-beside-a-container-that-runs-on",
            Scene::new(running())
                .job(json!({}))
                .pod(json!({
                    "spec": { "containers": [{ "name": "agent", "image": "registry.example/writer:1.4" }, { "name": "proxy", "image": "registry.example/proxy:2" }] },
                    "status": { "phase": "Running", "containerStatuses": [
                        { "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": { "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": at("10:00:09"), "finishedAt": at("10:04:00") } } },
                        { "name": "proxy", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": { "running": { "startedAt": at("10:00:09") } } },
                    ] },
                }))
                .node(json!({})),
            Waiting,
            Some(("Pod", POD, "Ended")),
        ),
        case(
            "cancelling",
            Scene::new(json!({}))
                .with_run(
                    {
                        let mut status = going("Running", "Cancelled", "cancelled by 'spec.cancel' during attempt 1; stopping Job 'shop-7-v1'");
                        merge(&mut status, json!({ "observedGeneration": 2, "result": {
                            "reason": "Cancelled", "message": "cancelled by 'spec.cancel' during attempt 1",
                            "podName": POD, "podUID": "pod-uid", "node": "node-1", "startedAt": at("10:00:09"),
                        }}));
                        written(status, "10:05:05")
                    },
                    json!({
                        "metadata": { "generation": 2, "managedFields": [{ "manager": "kubectl", "operation": "Apply", "time": at("10:05:04") }] },
                        "spec": { "cancel": true },
                    }),
                )
                .job(json!({ "metadata": { "deletionTimestamp": at("10:05:05"), "finalizers": ["foregroundDeletion"] } }))
                .pod(json!({ "metadata": { "deletionTimestamp": at("10:05:35"), "deletionGracePeriodSeconds": 30 }, "status": { "phase": "Running" } }))
                .node(json!({})),
            Waiting,
            None,
        ),
    ]
}

/// Returns a run of which the Pod was evicted. The Job is five minutes old and has no Pod.
fn evicted_between(stopped: &str, seen: &str, disruptions: u32) -> Scene {
    let mut status = created();
    merge(
        &mut status,
        json!({
            "disruptions": disruptions,
            "pod": { "name": POD, "uid": "pod-uid", "node": "node-1", "disruptedAt": at(stopped) },
        }),
    );
    Scene::new(written(status, seen)).job(json!({}))
}

/// The age of the Job does not count after the end of a Pod, and each disruption doubles the delay of the next Pod.
#[test]
fn a_stopped_pod_is_awaited_from_its_end() {
    for (disruptions, seen, state) in [
        (1, "10:05:11", Waiting),
        (1, "10:04:31", Waiting),
        (1, "10:04:30", Blocked),
        (2, "10:04:21", Waiting),
        (2, "10:04:20", Blocked),
        (5, "10:02:01", Waiting),
        (5, "10:02:00", Blocked),
    ] {
        let scene = evicted_between("10:00:30", seen, disruptions);
        let found = explain(&scene.0);
        assert_eq!(found.state, state, "{disruptions} {seen}: {found:#?}");
    }
    // The status does not show the end yet: the request to stop the Pod counts, or its last Event.
    let unseen = || evicted_between("10:04:36", "10:00:10", 1);
    assert_eq!(explain(&unseen().0).state, Waiting);
    let stopped_long_ago = || evicted_between("10:03:00", "10:03:00", 1);
    assert_eq!(explain(&stopped_long_ago().0).state, Blocked);
    let killing = stopped_long_ago().event(
        ("Pod", POD, "pod-uid"),
        "Killing",
        "Stopping container agent",
        "10:05:00",
    );
    assert_eq!(explain(&killing.0).state, Waiting);
    // The Pod belongs to an earlier Job, so its end does not count for this one.
    let mut earlier = evicted_between("10:05:00", "10:05:01", 1);
    earlier.0.jobs[0].meta.name = "shop-7-v1-d1".to_owned();
    let run = earlier.0.run.as_mut().unwrap();
    run.status.job_name = None;
    assert_eq!(explain(&earlier.0).state, Blocked);
}

fn faults() -> Vec<Case> {
    let retry = |class: &str| json!({ "attempts": 0, "retry": { "attempt": 4, "class": class, "nextAt": at("10:05:53") } });
    let said =
        |reason: &str, class: &str, message: &str| status("Pending", reason, message, retry(class));
    let taken = "Job 'shop-7-v1' exists already and belongs to someone else; it was not touched. Delete it, if nobody needs it";
    vec![
        case(
            "job-quota",
            Scene::new(said("QuotaExceeded", "Denied", "'create jobs' of 'shop-7-v1' is refused: jobs.batch \"shop-7-v1\" is forbidden: exceeded quota: no-jobs, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0"))
                .quota("no-jobs", json!({ "count/jobs.batch": "0" }), json!({ "count/jobs.batch": "0" })),
            Blocked,
            Some(("ResourceQuota", "no-jobs", "QuotaExceeded")),
        ),
        case(
            "job-policy",
            Scene::new(said("AdmissionDenied", "Denied", "'create jobs' of 'shop-7-v1' is refused: jobs.batch \"shop-7-v1\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'owners-all' denied request: each Job needs a label 'owner'")),
            Blocked,
            Some(("ValidatingAdmissionPolicy", "owners", "AdmissionDenied")),
        ),
        case(
            "job-webhook-down",
            Scene::new(said("AdmissionDenied", "Transient", "the admission webhook 'jobs.policy.example' (Service 'policy' in namespace 'checks') cannot be called, so 'create jobs' of 'shop-7-v1' is refused: Internal error occurred: failed calling webhook \"jobs.policy.example\": failed to call webhook: Post \"https://policy.checks.svc:443/jobs?timeout=10s\": dial tcp 10.0.3.4:443: connect: connection refused")),
            Blocked,
            Some(("AdmissionWebhook", "jobs.policy.example", "WebhookDown")),
        ),
        case(
            "job-write-hangs",
            Scene::new(said("ApiUnavailable", "Transient", &api::messages::hangs("'create jobs' of 'shop-7-v1'", 8))),
            Waiting,
            Some(("APIServer", "kubernetes", "ApiUnavailable")),
        ),
        case(
            "operator-denied",
            Scene::new(said("Denied", "Denied", "the operator lacks the permission for 'create jobs' of 'shop-7-v1': jobs.batch is forbidden: User \"system:serviceaccount:orchestrator:orchestrator-tasks\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"team\"")),
            Blocked,
            Some(("ServiceAccount", "orchestrator-tasks", "Denied")),
        ),
        case(
            "child-invalid",
            Scene::new(said("InvalidChild", "Invalid", "the API server does not accept 'create jobs' of 'shop-7-v1': Job.batch \"shop-7-v1\" is invalid: spec.template.spec.containers[0].resources.requests: Invalid value: \"1Gi\": must be less than or equal to memory limit of 512Mi")),
            Blocked,
            Some(("Agent", "writer", "InvalidChild")),
        ),
        case(
            "api-unavailable",
            Scene::new(said("ApiUnavailable", "Transient", "the API server answered 503 to 'create jobs' of 'shop-7-v1': etcdserver: leader changed")),
            Waiting,
            Some(("APIServer", "kubernetes", "ApiUnavailable")),
        ),
        case(
            "internal-error",
            Scene::new(said("InternalError", "Bug", "a decision or its execution panicked: index out of bounds")),
            Blocked,
            Some(("Operator", "orchestrator", "InternalError")),
        ),
        case(
            "name-taken",
            Scene::new(said("ChildNameTaken", "Denied", taken)).other("Job", "shop-7-v1", Some(("CronJob", "shop-7"))),
            Blocked,
            Some(("Job", "shop-7-v1", "ChildNameTaken")),
        ),
        case(
            "undecodable",
            Scene::new(json!({})).with_run(
                status("Pending", "Undecodable", "this object does not fit the operator's schema, so it is left alone: invalid type: string \"seven\", expected i64", json!({})),
                json!({ "spec": { "taskId": "seven" } }),
            ),
            Blocked,
            Some(("TaskRun", "shop-7", "Undecodable")),
        ),
    ]
}

fn deletion() -> Vec<Case> {
    let deleting =
        |since: &str, said: &str, reason: &str, message: &str, finalizers: serde_json::Value| {
            Scene::new(json!({})).with_run(
                written(going("Running", reason, message), said),
                json!({ "metadata": { "deletionTimestamp": at(since), "finalizers": finalizers } }),
            )
        };
    let ours = json!(["taskruns.orchestrator.io/finalizer"]);
    let stopped = json!({ "metadata": { "deletionTimestamp": at("10:05:05"), "finalizers": ["foregroundDeletion"] } });
    let old = json!({ "metadata": { "creationTimestamp": at("09:30:01"), "deletionTimestamp": at("09:45:01"), "finalizers": ["foregroundDeletion"] } });
    let running = |started: &str, since: &str| {
        json!({
            "metadata": { "creationTimestamp": at(started), "deletionTimestamp": at(since), "deletionGracePeriodSeconds": 30 },
            "status": { "phase": "Running", "containerStatuses": [{ "name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": { "running": { "startedAt": at(started) } } }] },
        })
    };
    vec![
        case(
            "deleting",
            deleting("10:05:04", "10:05:05", "Deleting", "waiting for Job 'shop-7-v1', Pod 'shop-7-v1-x2k9p' on node 'node-1' to stop", ours.clone())
                .job(stopped)
                .pod(running("10:00:09", "10:05:35"))
                .node(json!({})),
            Deleting,
            None,
        ),
        case(
            "deletion-blocked-by-node",
            deleting("09:45:00", "09:55:01", "DeletionBlocked", "Job 'shop-7-v1', Pod 'shop-7-v1-x2k9p' on node 'node-1' did not stop within 10m; still waiting. To let the run go without it, set the annotation orchestrator.io/force-delete: \"true\"", ours.clone())
                .created("09:30:00")
                .job(old.clone())
                .pod(running("09:30:09", "09:45:31"))
                .lost_node("09:44:10"),
            Deleting,
            Some(("Node", "node-1", "NodeLost")),
        ),
        case(
            "deletion-blocked-by-finalizer",
            deleting("10:01:00", "10:01:32", "Deleting", "nothing is left of the run", json!(["backup.example/hold"])),
            Deleting,
            Some(("TaskRun", "shop-7", "Finalizer")),
        ),
        case(
            "deletion-without-operator",
            deleting("10:03:00", "10:00:10", "Progressing", "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z", ours)
                .job(json!({}))
                .lease(Some("orchestrator-tasks-6d5f-abcde"), "10:02:20"),
            Deleting,
            Some(("Lease", "orchestrator-tasks", "OperatorDown")),
        ),
        case(
            "namespace-terminating",
            Scene::new(written(before("NamespaceTerminating", "the namespace is being deleted, so 'create jobs' of 'shop-7-v1' is refused"), "10:03:01"))
                .namespace(json!({
                    "metadata": { "deletionTimestamp": at("10:03:00") },
                    "status": { "phase": "Terminating", "conditions": [{
                        "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
                        "message": "Some resources are remaining: pods. has 1 resource instances",
                        "lastTransitionTime": at("10:03:10"),
                    }]},
                })),
            Deleting,
            Some(("Namespace", "team", "NamespaceTerminating")),
        ),
    ]
}

fn others() -> Vec<Case> {
    let target = |scene: Scene, kind: &str, name: &str| scene.target(kind, name);
    let mut foreign = Scene::new(json!({})).target("Pod", "web-0");
    foreign.0.run = None;
    foreign.0.agent = None;
    let foreign = foreign
        .pod(json!({ "metadata": {
            "name": "web-0", "uid": "web-uid", "labels": null,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true }],
        }}))
        .event(("Pod", "web-0", "web-uid"), "BackOff", "Back-off restarting failed container", "10:04:00");
    let waits = || Scene::new(created()).waits("ErrImagePull", "not found");
    vec![
        case(
            "pod-of-a-run",
            target(waits(), "Pod", POD),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case(
            "job-of-a-run",
            target(waits(), "Job", "shop-7-v1"),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case("pod-of-someone-else", foreign, Unmanaged, None),
    ]
}
