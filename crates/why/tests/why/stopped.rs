//! Agents that we stopped, and that ended with exit code 0.

use serde_json::{Value, json};
use why::{explain, explanation::State, render};

use crate::build::{Scene, at, going, merge, over};

const STOPPED: &str = "ended with exit code 0 after it was stopped";

/// Returns a Pod whose agent ended with exit code 0.
fn ended(scene: Scene, pod: Value) -> Scene {
    let mut all = json!({ "status": { "phase": "Failed", "containerStatuses": [{
        "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": { "terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": at("10:00:09"), "finishedAt": at("10:05:05"),
        }},
    }]}});
    merge(&mut all, pod);
    scene.job(json!({})).pod(all)
}

fn runs() -> Scene {
    Scene::new(going(
        "Running",
        "Progressing",
        "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z",
    ))
}

#[test]
fn exit_code_0_after_a_stop_is_no_success() {
    let late = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent did not end within 1h";
    let result = json!({ "exitCode": 0 });
    let worlds = [
        Scene::new(over("Failed", "DeadlineExceeded", late, result.clone())),
        Scene::new(json!({})).with_run(
            over(
                "Failed",
                "Cancelled",
                "cancelled by 'spec.cancel' during attempt 1",
                result,
            ),
            json!({ "spec": { "cancel": true } }),
        ),
        // The status does not report the end yet.
        ended(
            runs(),
            json!({ "status": { "reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline" } }),
        ),
    ];
    for scene in worlds {
        let found = explain(&scene.0);
        let text = render(&found, 2000, false);
        assert_ne!(found.state, State::Succeeded, "{text}");
        assert!(text.contains(STOPPED), "{text}");
        assert!(!text.contains("exited with code 0"), "{text}");
    }
    // An agent that ended by itself was not stopped.
    let found = explain(&ended(runs(), json!({ "status": { "phase": "Succeeded" } })).0);
    let text = render(&found, 2000, false);
    assert!(text.contains("exited with code 0"), "{text}");
    assert!(!text.contains(STOPPED), "{text}");
}
