//! Views of the cluster's objects.

use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::view::pod_view;

fn pod(metadata: Value, status: Value) -> PodView {
    let mut full = json!({"name": "p", "uid": "u"});
    merge(&mut full, &metadata);
    let pod: Pod = serde_json::from_value(
        json!({"metadata": full, "spec": {"containers": [], "nodeName": "n"}, "status": status}),
    )
    .unwrap();
    pod_view(&pod)
}

#[test]
fn only_the_agents_container_counts() {
    let view = pod(
        json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "thing"},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true},
        ]}),
        json!({"phase": "Running", "containerStatuses": [
            {"name": "sidecar", "image": "", "imageID": "x", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": Time(at(1))}}},
            {"name": "agent", "image": "", "imageID": "id", "ready": false, "restartCount": 0,
             "state": {"terminated": {
                "exitCode": 7, "reason": "Error", "message": "m",
                "startedAt": Time(at(2)), "finishedAt": Time(at(3)),
             }}},
        ]}),
    );
    assert_eq!(view.job_uid.as_deref(), Some("job"));
    assert_eq!(view.image_id.as_deref(), Some("id"));
    assert_eq!(view.node.as_deref(), Some("n"));
    assert_eq!(
        view.container,
        ContainerState::Ended(Exit {
            code: 7,
            signal: None,
            reason: "Error".to_owned(),
            message: "m".to_owned(),
            started: Some(at(2)),
            finished: Some(at(3)),
            restarts: 0,
        })
    );
    let view = pod(json!({}), json!({}));
    assert_eq!(
        (view.phase, view.container),
        (PodPhase::Unknown, ContainerState::Unknown)
    );
    assert_eq!((view.job_uid, view.image_id), (None, None));
}

/// `deletionTimestamp` is the end of the grace period. A program that obeys SIGTERM ends before it.
#[test]
fn a_pod_was_asked_to_stop_when_its_grace_began() {
    let asked = |metadata: Value| pod(metadata, json!({})).stop_asked;
    assert_eq!(asked(json!({})), None);
    assert_eq!(
        asked(json!({"deletionTimestamp": Time(at(100)), "deletionGracePeriodSeconds": 30})),
        Some(at(70))
    );
    assert_eq!(
        asked(json!({"deletionTimestamp": Time(at(100)), "deletionGracePeriodSeconds": -5})),
        Some(at(100))
    );
    assert_eq!(
        asked(json!({"deletionTimestamp": Time(at(100)), "deletionGracePeriodSeconds": i64::MAX})),
        Some(Timestamp::MIN)
    );
}

#[test]
fn a_pod_has_time_to_stop_until_its_grace_ends() {
    let view = pod(
        json!({"deletionTimestamp": Time(at(100)), "deletionGracePeriodSeconds": 30}),
        json!({}),
    );
    assert_eq!(view.stop_by, Some(at(100)));
    assert_eq!(pod(json!({}), json!({})).stop_by, None);
}

#[test]
fn a_job_was_resumed_when_its_controller_says_so() {
    let job = |suspend: Value, conditions: Value| -> JobView {
        let job: Job = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"suspend": suspend, "template": {}},
            "status": {"conditions": conditions},
        }))
        .unwrap();
        job_view(&job)
    };
    let condition = |value: &str| json!([{"type": "Suspended", "status": value, "lastTransitionTime": Time(at(7))}]);
    // Whether the Job is suspended, the controller's condition, and the time from which its Pods
    // count.
    let cases = [
        (json!(true), json!([]), true, None),
        (json!(true), condition("True"), true, Some(Timestamp::MAX)),
        (json!(false), condition("True"), false, Some(Timestamp::MAX)),
        (json!(false), condition("False"), false, Some(at(7))),
        (json!(true), condition("False"), true, Some(at(7))),
        (Value::Null, json!([]), false, None),
    ];
    for (suspend, conditions, suspended, resumed) in cases {
        let view = job(suspend.clone(), conditions.clone());
        assert_eq!(
            (view.suspended, view.resumed),
            (suspended, resumed),
            "{suspend} {conditions}"
        );
    }
}

#[test]
fn a_job_has_counted_a_pod_before_and_after_the_pod_may_go() {
    let cases = [
        (Value::Null, false),
        (json!({}), false),
        (json!({"active": 1, "ready": 1, "terminating": 1}), false),
        (json!({"succeeded": 0, "failed": 0}), false),
        (
            json!({"uncountedTerminatedPods": {"succeeded": [], "failed": []}}),
            false,
        ),
        (
            json!({"uncountedTerminatedPods": {"succeeded": ["uid"]}}),
            true,
        ),
        (
            json!({"uncountedTerminatedPods": {"failed": ["uid"]}}),
            true,
        ),
        (json!({"succeeded": 1}), true),
        (json!({"failed": 1, "uncountedTerminatedPods": {}}), true),
    ];
    for (status, counted) in cases {
        let job: Job = serde_json::from_value(json!({
            "metadata": {}, "spec": {"template": {}}, "status": status,
        }))
        .unwrap();
        assert_eq!(job_view(&job).counted, counted, "{status}");
    }
}

#[test]
fn conditions_of_a_pod_are_read_with_their_reason() {
    let view = pod(
        json!({}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "none"},
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"},
        ]}),
    );
    assert_eq!(view.unschedulable.as_deref(), Some("none"));
    assert_eq!(
        view.disruption.as_ref().unwrap().reason,
        "TerminationByKubelet"
    );
    assert_eq!(view.failure.as_ref().unwrap().message, "low on memory");
    assert_eq!(view.phase, PodPhase::Failed);
    let view = pod(
        json!({}),
        json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
            {"type": "DisruptionTarget", "status": "False"},
        ]}),
    );
    assert_eq!((&view.unschedulable, &view.disruption), (&None, &None));
}

#[test]
fn what_others_wrote_is_bounded() {
    let view = pod(
        json!({}),
        json!({"containerStatuses": [
            {"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": "r", "message": "x".repeat(100_000)}}},
        ]}),
    );
    let ContainerState::Waiting(said) = view.container else {
        panic!("waits")
    };
    assert_eq!(said.message.chars().count(), api::status::MAX_MESSAGE_CHARS);
}

/// The creator of an object writes its owner references.
#[test]
fn only_a_controller_of_our_kind_makes_a_child_ours() {
    let map = |label: Value, owner: Value| -> Option<String> {
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": {
            "name": "m", "labels": { "orchestrator.io/kind": label }, "ownerReferences": [owner],
        } }))
        .unwrap();
        ConfigMapView::new(&map.metadata, KINDS).owner_uid
    };
    let owner = |api_version: &str, kind: &str, controller: Value| {
        json!({
            "apiVersion": api_version, "kind": kind, "name": "n", "uid": "o", "controller": controller,
        })
    };
    let (task, docs) = (json!("TaskRun"), json!("DocsRun"));
    let ours = Some("o".to_owned());
    let of_task = owner("orchestrator.io/v1", "TaskRun", json!(true));
    let of_docs = owner("orchestrator.io/v1alpha1", "DocsRun", json!(true));
    assert_eq!(map(task.clone(), of_task.clone()), ours);
    assert_eq!(map(docs.clone(), of_docs.clone()), ours);
    for (case, label, owner) in [
        (
            "not the controller",
            &task,
            owner("orchestrator.io/v1", "TaskRun", json!(false)),
        ),
        (
            "controller unsaid",
            &task,
            owner("orchestrator.io/v1", "TaskRun", Value::Null),
        ),
        (
            "another version",
            &task,
            owner("orchestrator.io/v9", "TaskRun", json!(true)),
        ),
        (
            "another group",
            &task,
            owner("nope.example.com/v1", "TaskRun", json!(true)),
        ),
        (
            "another kind",
            &task,
            owner("orchestrator.io/v1", "Nope", json!(true)),
        ),
        ("labelled as another kind", &docs, of_task),
        ("owned by another kind", &task, of_docs),
        (
            "labelled as nothing of ours",
            &json!("Nope"),
            owner("v1", "Nope", json!(true)),
        ),
    ] {
        assert_eq!(map(label.clone(), owner), None, "{case}");
    }
}
