//! What is read of the cluster's objects.

use k8s_openapi::api::core::v1::{Event, Pod};

use super::*;

fn pod(metadata: Value, status: Value) -> PodView {
    let mut full = json!({"name": "p", "uid": "u"});
    merge(&mut full, &metadata);
    let pod: Pod = serde_json::from_value(
        json!({"metadata": full, "spec": {"containers": [], "nodeName": "n"}, "status": status}),
    )
    .unwrap();
    PodView::from(&pod)
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
        Container::Ended(Exit {
            code: 7,
            signal: None,
            reason: "Error".to_owned(),
            message: "m".to_owned(),
            started: Some(at(2)),
            finished: Some(at(3)),
        })
    );
    let view = pod(json!({}), json!({}));
    assert_eq!(
        (view.container, view.phase),
        (Container::Unknown, PodPhase::Unknown)
    );
    assert_eq!((view.job_uid, view.image_id), (None, None));
}

/// The API server's `deletionTimestamp` is when the grace ends; a program that obeys SIGTERM ends
/// before it.
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
        JobView::from(&job)
    };
    let condition = |value: &str| json!([{"type": "Suspended", "status": value, "lastTransitionTime": Time(at(7))}]);
    // Told to run nothing or not, what its controller says, and from when its Pods count.
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
fn conditions_of_a_pod_are_read_with_their_reason() {
    let view = pod(
        json!({}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "none"},
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"},
        ]}),
    );
    assert_eq!(view.unschedulable.as_deref(), Some("none"));
    assert_eq!(view.disruption.unwrap().reason, "TerminationByKubelet");
    assert_eq!(view.failure.unwrap().message, "low on memory");
    assert_eq!(view.phase, PodPhase::Failed);
    let view = pod(
        json!({}),
        json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
            {"type": "DisruptionTarget", "status": "False"},
        ]}),
    );
    assert_eq!((view.unschedulable, view.disruption), (None, None));
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
    let Container::Waiting(said) = view.container else {
        panic!("waits")
    };
    assert_eq!(said.message.chars().count(), api::status::MESSAGE);
}

fn event(fields: Value) -> Warning {
    let mut full = json!({
        "metadata": {}, "involvedObject": {"uid": "u"}, "reason": "r", "message": "m",
    });
    merge(&mut full, &fields);
    let event: Event = serde_json::from_value(full).unwrap();
    Warning::from(&event)
}

#[test]
fn a_warning_was_seen_last_by_whichever_field_says_so() {
    assert_eq!(event(json!({})).last_seen, None);
    assert_eq!(
        event(json!({"firstTimestamp": Time(at(1)), "lastTimestamp": Time(at(5))})).last_seen,
        Some(at(5))
    );
    assert_eq!(
        event(json!({"eventTime": "2030-01-01T00:00:03.000000Z"})).last_seen,
        Some(at(3))
    );
    assert_eq!(
        event(json!({
            "eventTime": "2030-01-01T00:00:03.000000Z",
            "series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:09.000000Z"},
        }))
        .last_seen,
        Some(at(9))
    );
}

#[test]
fn a_warning_was_said_as_often_as_either_field_says() {
    let times = |fields: Value| event(fields).times;
    assert_eq!(times(json!({})), 1);
    assert_eq!(times(json!({"count": 4})), 4);
    assert_eq!(
        times(json!({"series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:09.000000Z"}})),
        2
    );
}

#[test]
fn only_the_controlling_owner_makes_a_child_ours() {
    let map = |owners: Value| -> ConfigMapView {
        let map: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "m", "ownerReferences": owners}}))
                .unwrap();
        ConfigMapView::from(&map)
    };
    let owner = |controller: Value| json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": controller}]);
    assert_eq!(map(owner(json!(true))).owner_uid.as_deref(), Some("o"));
    assert_eq!(map(owner(json!(false))).owner_uid, None);
    assert_eq!(map(owner(Value::Null)).owner_uid, None);
    assert_eq!(map(json!([])).owner_uid, None);
}
