use std::{sync::Arc, time::Instant};

use super::*;

fn seen(version: u64, resource: &str, name: &str, uid: &str, mut object: Value) -> Seen {
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    Seen {
        at: Instant::now(),
        resource: resource.to_owned(),
        change: Change::Added,
        name: name.to_owned(),
        uid: uid.to_owned(),
        version,
        object: Arc::new(object),
    }
}

fn home(salt: u64) -> String {
    format!("play-{salt}x{salt}")
}

/// One play; all that is random or a time depends on `salt`.
fn play(salt: u64) -> Vec<Seen> {
    let namespace = home(salt);
    let (run, job) = (format!("run-{salt}"), format!("job-{salt}"));
    let stamp = format!("2026-11-15T15:05:{:02}Z", salt % 60);
    let version = salt * 1000;
    let pod = format!("shop-7-v1-z{salt}k");
    let unseen = format!("00000000-0000-0000-0000-{salt:012}");
    vec![
        seen(
            version + 1,
            "taskruns",
            "a",
            &run,
            json!({
                "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
                "metadata": {
                    "namespace": namespace, "generation": salt, "creationTimestamp": stamp,
                    "annotations": { "orchestrator.io/outcome": format!("{{\"uid\":\"{run}\"}}") },
                },
                "spec": { "taskId": 7, "timeout": "30s" },
                "status": {
                    "phase": "Succeeded", "observedGeneration": salt, "attempts": 1,
                    "disruptions": 0, "jobName": "shop-7-v1", "startedAt": stamp,
                    "lastUpdated": stamp, "retry": { "attempt": salt },
                    "message": format!("ended; Pod '{pod}' in '{namespace}' after {salt}s"),
                    "conditions": [
                        { "type": "Succeeded", "status": "True", "reason": "Succeeded",
                          "message": "m", "lastTransitionTime": stamp, "observedGeneration": salt },
                        { "type": "Finished", "status": "True", "reason": "Succeeded",
                          "message": "m", "lastTransitionTime": stamp },
                    ],
                    "result": { "exitCode": 0, "podName": pod, "finishedAt": stamp,
                                "results": { "answer": "42" } },
                    "history": [{ "contextVersion": 1, "phase": "Running", "finishedAt": stamp,
                                  "result": { "exitCode": 1, "podUID": unseen } }],
                },
            }),
        ),
        seen(
            version + 2,
            "jobs",
            "shop-7-v1",
            &job,
            json!({
                "apiVersion": "batch/v1",
                "metadata": {
                    "namespace": namespace,
                    "annotations": { "orchestrator.io/spec-hash": format!("{salt:x}") },
                    "labels": { "orchestrator.io/uid": run },
                    "ownerReferences": [{ "name": "a", "uid": run }],
                },
                "spec": { "suspend": false, "activeDeadlineSeconds": 100 + salt, "parallelism": salt % 2 + salt / 40,
                          "selector": { "controller-uid": job } },
                "status": { "startTime": stamp, "succeeded": 1, "ready": 0,
                            "conditions": [{ "type": "Complete", "lastProbeTime": stamp }] },
            }),
        ),
        seen(
            version + 3,
            "pods",
            &pod,
            &format!("pod-{salt}"),
            json!({
                "apiVersion": "v1",
                "metadata": { "namespace": namespace, "ownerReferences": [{ "name": "shop-7-v1", "uid": job }] },
                "spec": { "volumes": [{ "name": format!("kube-api-access-{salt}") }] },
                "status": { "phase": "Succeeded", "podIP": format!("10.0.0.{salt}"),
                            "containerStatuses": [{ "name": "agent", "containerID": format!("c://{salt}"),
                                "state": { "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": stamp } } }] },
            }),
        ),
        seen(
            version + 4,
            "configmaps",
            AUTHORITY,
            &format!("ca-{salt}"),
            json!({ "data": { "ca.crt": salt } }),
        ),
        seen(
            version + 5,
            "leases",
            "l",
            &format!("lease-{salt}"),
            json!({ "spec": salt }),
        ),
        seen(
            version + 6,
            "events",
            "e",
            &format!("event-{salt}"),
            json!({ "note": salt }),
        ),
        seen(
            version + 7,
            "secrets",
            "s",
            &format!("secret-{salt}"),
            json!({
                "apiVersion": "v1", "data": { "owner": unseen },
            }),
        ),
    ]
}

#[test]
fn two_plays_of_the_same_are_the_same() {
    let (one, other) = (
        Canonical::of(&play(3), &home(3)),
        Canonical::of(&play(47), &home(47)),
    );
    assert_eq!(difference(&one, &other), [""; 0]);
    assert_eq!(one, other);
    let keys: Vec<&str> = one.objects.keys().map(String::as_str).collect();
    let wanted = [
        "jobs/shop-7-v1",
        "pods/shop-7-v1#1",
        "secrets/s",
        "taskruns/a",
    ];
    assert_eq!(keys, wanted);
    let run = &one.objects["taskruns/a"];
    assert_eq!(
        run["status"]["message"],
        "ended; Pod 'shop-7-v1#1' in 'namespace' after #"
    );
    assert_eq!(
        run["metadata"]["annotations"]["orchestrator.io/outcome"],
        "{\"uid\":\"uid(taskruns/a)\"}"
    );
    assert_eq!(run["spec"]["timeout"], "30s");
    assert_eq!(run["status"]["isObserved"], true);
}

/// Changes one field of one object.
fn changed(index: usize, pointer: &str, value: Value) -> Vec<Seen> {
    let mut play = play(5);
    let mut object = (*play[index].object).clone();
    *object.pointer_mut(pointer).expect(pointer) = value;
    play[index].object = Arc::new(object);
    play
}

#[test]
fn what_matters_is_a_difference() {
    let wanted = Canonical::of(&play(3), &home(3));
    for (index, pointer, value, words) in [
        (
            0,
            "/status/phase",
            json!("Failed"),
            "taskruns/a status phase: \"Failed\", wanted \"Succeeded\"",
        ),
        (
            0,
            "/status/conditions/0/reason",
            json!("Odd"),
            "taskruns/a status conditions 1 reason",
        ),
        (
            0,
            "/status/conditions/0/status",
            json!("False"),
            "taskruns/a status conditions 1 status",
        ),
        (
            0,
            "/status/conditions/1/message",
            json!("n"),
            "taskruns/a status conditions 0 message",
        ),
        (
            0,
            "/status/attempts",
            json!(2),
            "taskruns/a status attempts: 2, wanted 1",
        ),
        (
            0,
            "/status/disruptions",
            json!(1),
            "taskruns/a status disruptions",
        ),
        (
            0,
            "/status/observedGeneration",
            json!(1),
            "taskruns/a status isObserved: false",
        ),
        (
            0,
            "/status/jobName",
            json!("x"),
            "taskruns/a status jobName",
        ),
        (
            0,
            "/status/result/results/answer",
            json!("43"),
            "taskruns/a status result results answer",
        ),
        (
            0,
            "/status/history/0/phase",
            json!("Failed"),
            "taskruns/a status history 0 phase",
        ),
        (0, "/spec/timeout", json!("31s"), "taskruns/a spec timeout"),
        (
            1,
            "/spec/suspend",
            json!(true),
            "jobs/shop-7-v1 spec suspend",
        ),
        (
            1,
            "/metadata/labels/orchestrator.io~1uid",
            json!("other"),
            "jobs/shop-7-v1 metadata labels",
        ),
        (
            1,
            "/status/succeeded",
            json!(2),
            "jobs/shop-7-v1 status succeeded",
        ),
        (
            2,
            "/status/containerStatuses/0/state/terminated/exitCode",
            json!(1),
            "pods/shop-7-v1#1 status containers agent exitCode",
        ),
    ] {
        let found = difference(
            &wanted,
            &Canonical::of(&changed(index, pointer, value), &home(5)),
        );
        assert_eq!(found.len(), 1, "{pointer}: {found:?}");
        assert!(found[0].starts_with(words), "{pointer}: {found:?}");
    }
}

#[test]
fn objects_too_many_and_too_few_are_named() {
    let wanted = Canonical::of(&play(3), &home(3));
    let mut less = play(4);
    less[1].change = Change::Deleted;
    let found = Canonical::of(&less, &home(4));
    assert_eq!(difference(&wanted, &found), ["jobs/shop-7-v1 is missing"]);
    assert!(found.gone.contains("jobs/shop-7-v1") && wanted.gone.is_empty());
    let more = ["jobs/shop-7-v1 is there, and should not be"];
    assert_eq!(difference(&found, &wanted), more);
}
