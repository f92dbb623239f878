//! Pods as the kubelet and the scheduler report them.

use serde_json::{Value, json};

use super::*;

fn pod(status: Value) -> AppPod {
    let pod = json!({
        "metadata": { "namespace": "shop", "name": "web-x", "uid": "p", "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n" },
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r",
                "controller": true },
        ] },
        "spec": { "containers": [{ "name": "web", "image": "web:2" }], "volumes": [
            { "name": "d", "persistentVolumeClaim": { "claimName": "files" } }] },
        "status": status,
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    AppPod::from(&pod)
}

fn container(state: Value, more: Value) -> Value {
    let mut status = json!({ "name": "web", "image": "web:2", "imageID": "", "ready": false,
        "restartCount": 0, "state": state });
    for (name, value) in more.as_object().unwrap() {
        status[name] = value.clone();
    }
    json!({ "phase": "Running", "containerStatuses": [status] })
}

#[test]
fn a_pod_is_read() {
    let ready =
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    let found = pod(ready.clone());
    assert!(found.is_ready && !found.is_over);
    let owner = found.owner.unwrap();
    assert!(owner.is("apps", "ReplicaSet") && !owner.is("", "ReplicaSet"));
    assert_eq!(owner.uid, "r");
    assert_eq!(found.claims, ["files".to_owned()].into());
    assert_eq!(found.images, ["web:2".to_owned()].into());
    let mut ended = ready;
    ended["phase"] = json!("Succeeded");
    let ended = pod(ended);
    assert!(ended.is_over && !ended.is_ready);
}

/// The table of causes: status of the Pod, reason, and a part of the message.
#[test]
fn a_pod_that_is_not_ready_has_its_cause() {
    let waiting = |reason: &str, message: &str| json!({ "waiting": { "reason": reason, "message": message } });
    let ended = json!({ "terminated": { "exitCode": 3, "reason": "Error" } });
    let running = json!({ "running": { "startedAt": "2027-01-01T00:00:00Z" } });
    let rows = [
        (
            json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu." }] }),
            Some((Reason::Unschedulable, "has no node: 0/1 nodes")),
        ),
        (
            container(
                waiting(
                    "ImagePullBackOff",
                    "Back-off pulling image \"web:2\": ErrImagePull: no such image",
                ),
                json!({}),
            ),
            Some((
                Reason::ImagePullFailed,
                "container 'web': the image cannot be pulled: no such image",
            )),
        ),
        (
            container(
                waiting("CrashLoopBackOff", "back-off 5m0s"),
                json!({ "lastState": ended, "restartCount": 7 }),
            ),
            Some((
                Reason::CrashLoop,
                "ends again and again: it exited with code 3 (Error)",
            )),
        ),
        (
            container(
                running.clone(),
                json!({ "lastState": ended, "restartCount": 7 }),
            ),
            Some((Reason::CrashLoop, "ends again and again")),
        ),
        (container(running.clone(), json!({})), None),
        (container(waiting("ContainerCreating", ""), json!({})), None),
        // A container that recovered is ready.
        (
            container(running, json!({ "restartCount": 7, "ready": true })),
            None,
        ),
    ];
    for (status, expected) in rows {
        let found = pod(status.clone()).cause;
        match (&found, expected) {
            (Some(found), Some((reason, part))) => {
                assert_eq!(found.reason, reason, "{status}");
                assert!(found.message.contains(part), "{}", found.message);
                assert!(found.message.contains("'web-x'"), "{}", found.message);
            }
            (found, expected) => assert!(found.is_none() && expected.is_none(), "{found:?}"),
        }
    }
}

#[test]
fn an_init_container_is_the_cause_first() {
    let mut status = container(
        json!({ "waiting": { "reason": "PodInitializing" } }),
        json!({}),
    );
    status["initContainerStatuses"] = json!([{ "name": "migrate", "image": "m", "imageID": "",
        "ready": false, "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
    let found = pod(status).cause.unwrap();
    assert!(
        found.message.contains("container 'migrate'"),
        "{}",
        found.message
    );
}

#[test]
fn a_warning_is_the_cause_if_the_pod_has_none() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let starting = pod(json!({ "phase": "Pending" }));
    let warning = |namespace: &str, reason: &str, message: &str, age: i64| Warning {
        namespace: namespace.to_owned(),
        object_uid: "p".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        created: Some(Timestamp::from_second(1_800_000_000 - age).unwrap()),
        times: 3,
        ..Warning::default()
    };
    let warnings = [
        warning("shop", "FailedMount", "an older one", 60),
        warning("shop", "Unhealthy", "Readiness probe failed: 503", 5),
        // An Event in another namespace can be written by anyone there.
        warning("other", "FailedMount", "forged", 1),
    ];
    let found = cause_of(&starting, &warnings, now).unwrap();
    assert_eq!(found.reason, Reason::ProbeFailed);
    assert_eq!(found.message, "Pod 'web-x': Readiness probe failed: 503");
    assert_eq!(cause_of(&starting, &[], now), None);
    let ready = AppPod {
        is_ready: true,
        ..starting
    };
    assert_eq!(cause_of(&ready, &warnings, now), None);
}
