//! An operator with a fresh Lease whose holder cannot lead, and the headline while no operator runs.

use serde_json::{Value, json};
use why::{
    Explanation, explain,
    explanation::State,
    world::{OperatorView, PodView, WorkloadView},
};

use crate::build::{Scene, at, before, going, merge};

const POD: &str = "orchestrator-tasks-6d5f-abcde";

fn deployment(wanted: i32, ready: i32) -> WorkloadView {
    let deployment: k8s_openapi::api::apps::v1::Deployment = serde_json::from_value(json!({
        "metadata": { "name": "orchestrator-tasks", "namespace": "orchestrator", "uid": "d", "generation": 3 },
        "spec": { "replicas": wanted, "selector": {}, "template": {} },
        "status": { "observedGeneration": 3, "replicas": wanted, "readyReplicas": ready, "availableReplicas": ready },
    }))
    .unwrap();
    WorkloadView::from(&deployment)
}

fn pod(state: Value) -> PodView {
    let mut pod = json!({
        "metadata": {
            "name": POD, "namespace": "orchestrator", "uid": "p", "creationTimestamp": at("09:40:00"),
        },
        "spec": { "containers": [{ "name": "orchestrator", "image": "registry.example/orchestrator:1" }] },
        "status": { "phase": "Running", "containerStatuses": [{
            "name": "orchestrator", "ready": false, "restartCount": 1, "image": "", "imageID": "",
        }]},
    });
    merge(&mut pod["status"]["containerStatuses"][0], state);
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
    PodView::from(&pod)
}

fn unseen() -> Value {
    json!({ "observedGeneration": -1, "phase": "Pending", "message": "waiting for the operator to look at it" })
}

/// Explains an unseen run while the Lease was renewed 3 s ago.
fn fresh(deployments: Vec<WorkloadView>, pods: Vec<PodView>) -> Explanation {
    let mut scene = Scene::new(unseen());
    scene.0.operator = Some(OperatorView {
        deployments,
        pods: Some(pods),
    });
    explain(&scene.0)
}

#[test]
fn a_fresh_lease_is_judged_by_the_deployment() {
    let killed = || {
        pod(json!({
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } },
            "lastState": { "terminated": { "exitCode": 137, "reason": "Error", "finishedAt": at("10:05:09") } },
        }))
    };
    let runs = || pod(json!({ "state": { "running": { "startedAt": at("09:40:01") } } }));
    let all = [
        (
            fresh(vec![deployment(0, 0)], Vec::new()),
            ("Deployment", "OperatorDown"),
            "has 0 replicas",
        ),
        (
            fresh(vec![deployment(2, 0)], vec![killed()]),
            ("Pod", "OperatorDown"),
            "exited with code 137",
        ),
        // Another Pod is ready, and takes the Lease when it expires.
        (
            fresh(vec![deployment(2, 1)], vec![killed()]),
            ("Lease", "OperatorDown"),
            "but its Pod does not run",
        ),
        (
            fresh(vec![deployment(2, 2)], Vec::new()),
            ("Lease", "OperatorDown"),
            "but its Pod does not exist any more",
        ),
        (
            fresh(Vec::new(), Vec::new()),
            ("Lease", "OperatorDown"),
            "but its Deployment does not exist",
        ),
        (
            fresh(vec![deployment(2, 2)], vec![runs()]),
            ("Operator", "NotWatched"),
            "runs, but does not look at this TaskRun",
        ),
    ];
    for (found, wanted, words) in all {
        let blocker = found.blocker.as_ref().unwrap();
        let seen = (blocker.object.kind.as_str(), blocker.reason.as_str());
        assert_eq!(seen, wanted, "{found:#?}");
        assert!(blocker.message.contains(words), "{}", blocker.message);
    }
    let found = fresh(vec![deployment(2, 1)], vec![killed()]);
    assert!(found.advice.starts_with("Wait 15 s"), "{}", found.advice);
    // A leader that is not ready, because a CRD is outdated, still leads.
    let found = fresh(vec![deployment(2, 0)], vec![runs()]);
    let deepest = found.chain.last().unwrap();
    assert_eq!(deepest.reason, "NotWatched");
    let mut evidence = deepest.evidence.iter();
    assert!(
        evidence.any(|one| one.text == "0 of 2 ready"),
        "{deepest:#?}"
    );
}

/// The object's own state is older than the missing operator.
#[test]
fn a_missing_operator_is_the_headline() {
    let missing =
        "Agent 'writer' does not exist in namespace 'team'; waiting until 2026-03-02T10:10:00Z";
    let mut blocked = Scene::new(before("AgentNotFound", missing)).known("Agent", "writer", false);
    blocked.0.agent = None;
    let held = "suspended: Job 'shop-7-v1' runs nothing";
    let suspended = Scene::new(json!({})).with_run(
        going("Pending", "Suspended", held),
        json!({ "spec": { "suspend": true } }),
    );
    let scenes = [
        (blocked, State::Blocked, missing),
        (suspended, State::Suspended, held),
        (
            Scene::new(json!({})).target("Agent", "writer"),
            State::Ready,
            "everything that the Agent names exists",
        ),
    ];
    for (scene, state, said) in scenes {
        let led = explain(&scene.0);
        assert_ne!(led.reason, "OperatorDown", "{led:#?}");
        let down = explain(&scene.lease(None, "10:03:00").0);
        assert_eq!((down.state, down.reason.as_str()), (state, "OperatorDown"));
        assert!(down.summary.contains("no operator leads"), "{down:#?}");
        assert_eq!(down.outdated.as_ref().unwrap().message, said);
        assert!(
            down.advice.contains("Start the operator again"),
            "{down:#?}"
        );
        let first = down.next_steps.first().unwrap();
        assert!(first.command.contains("get deployments,pods"), "{down:#?}");
        // The cause of the object's own state stays.
        assert_eq!(down.blocker, led.blocker, "{down:#?}");
        assert!(
            down.advice.contains(&led.advice) || state == State::Ready,
            "{down:#?}"
        );
    }
    // A finished run needs no operator.
    let words = "the agent exited with code 0";
    let done = Scene::new(crate::build::over(
        "Succeeded",
        "Succeeded",
        words,
        json!({ "exitCode": 0 }),
    ));
    let found = explain(&done.lease(None, "10:03:00").0);
    assert_eq!(
        (found.state, found.reason.as_str()),
        (State::Succeeded, "Succeeded")
    );
}
