//! View of a Pod with three containers, from the object of the API server.

use api::names;
use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::view::{PodPhase, Reported, pod_view};

fn view(kind: &str, init: Value, ordinary: Value) -> PodView {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "uid": "u", "labels": {names::KIND: kind},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true,
            }],
        },
        "spec": {"containers": [], "nodeName": "n"},
        "status": {
            "phase": "Running", "initContainerStatuses": init, "containerStatuses": ordinary,
        },
    }))
    .unwrap();
    pod_view(&pod)
}

fn docs(init: Value, ordinary: Value) -> (Step, ContainerState, Option<Exit>) {
    let view = view("DocsRun", init, ordinary);
    assert_eq!(
        (view.job_uid.as_deref(), view.phase),
        (Some("job"), PodPhase::Running)
    );
    (view.step, view.container, view.main_exit)
}

fn status(name: &str, state: Value) -> Value {
    json!({
        "name": name, "image": "i", "imageID": format!("id-of-{name}"), "ready": false,
        "restartCount": 0, "state": state,
    })
}

fn waits(reason: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": "m"}})
}

fn runs(second: i64) -> Value {
    json!({"running": {"startedAt": Time(at(second))}})
}

fn ends(code: i32, from: i64, to: i64, message: &str) -> Value {
    json!({"terminated": {
        "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
        "message": message, "startedAt": Time(at(from)), "finishedAt": Time(at(to)),
    }})
}

fn exit(code: i32, from: i64, to: i64, message: &str) -> Exit {
    Exit {
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: message.to_owned(),
        started: Some(at(from)),
        finished: Some(at(to)),
        restarts: 0,
    }
}

fn waited(reason: &str, message: &str) -> ContainerState {
    ContainerState::Waiting(Reported {
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

#[test]
fn the_container_that_is_at_work_counts() {
    let not_yet = || waits("PodInitializing");
    let done = |name: &str, to: i64| status(name, ends(0, to - 4, to, "of it"));
    let all = |clone: Value, agent: Value, publish: Value| {
        docs(
            json!([status("clone", clone), status("agent", agent)]),
            json!([status("publish", publish)]),
        )
    };
    assert_eq!(
        docs(json!(null), json!(null)),
        (Step::Before, ContainerState::Unknown, None)
    );
    assert_eq!(
        docs(json!([]), json!([])),
        (Step::Before, ContainerState::Unknown, None)
    );
    assert_eq!(
        all(waits("ImagePullBackOff"), not_yet(), not_yet()),
        (Step::Before, waited("ImagePullBackOff", "m"), None)
    );
    // For a run, everything before its agent is a wait.
    assert_eq!(
        all(runs(5), not_yet(), not_yet()),
        (Step::Before, waited(PREPARING, ""), None)
    );
    assert_eq!(
        all(ends(1, 5, 9, "why"), not_yet(), not_yet()),
        (
            Step::Before,
            ContainerState::Ended(exit(1, 5, 9, "why")),
            None
        )
    );
    assert_eq!(
        docs(json!([done("clone", 9)]), json!([])),
        (Step::Main, ContainerState::Unknown, None)
    );
    // Between the two containers there is nothing new to report.
    assert_eq!(
        all(ends(0, 5, 9, ""), not_yet(), not_yet()),
        (Step::Main, waited(PREPARING, ""), None)
    );
    assert_eq!(
        all(ends(0, 5, 9, ""), waits("ErrImagePull"), not_yet()),
        (Step::Main, waited("ErrImagePull", "m"), None)
    );
    assert_eq!(
        all(ends(0, 5, 9, ""), runs(10), not_yet()),
        (Step::Main, running(10), None)
    );
    assert_eq!(
        all(ends(0, 5, 9, ""), ends(7, 10, 50, "no"), not_yet()),
        (
            Step::Main,
            ContainerState::Ended(exit(7, 10, 50, "no")),
            None
        )
    );
    let agent = exit(0, 10, 50, "its results");
    let after_agent =
        |publish: Value| all(ends(0, 5, 9, ""), ends(0, 10, 50, "its results"), publish);
    // After the agent's end the push may have begun, for any state that the kubelet shows.
    for state in [not_yet(), waits("ImagePullBackOff"), json!({}), runs(51)] {
        assert_eq!(
            after_agent(state),
            (Step::After, running(10), Some(agent.clone()))
        );
    }
    assert_eq!(
        docs(
            json!([
                done("clone", 9),
                status("agent", ends(0, 10, 50, "its results"))
            ]),
            json!([])
        ),
        (Step::After, running(10), Some(agent.clone()))
    );
    for code in [0, 1, 137] {
        assert_eq!(
            after_agent(ends(code, 51, 60, "report")),
            (
                Step::After,
                ContainerState::Ended(exit(code, 10, 60, "report")),
                Some(agent.clone())
            )
        );
    }
}

/// The kubelet starts the next container after any exit code 0.
#[test]
fn a_container_that_contradicts_its_exit_code_is_kept() {
    let oom = json!({"terminated": {"exitCode": 0, "reason": "OOMKilled"}});
    let mut again = status("clone", ends(0, 5, 9, ""));
    again["restartCount"] = json!(2);
    let doubt = |clone: Value, agent: Value| {
        let publish = json!([status("publish", ends(0, 51, 60, ""))]);
        let (step, exit) = view("DocsRun", json!([clone, agent]), publish).doubt?;
        Some((step, exit.reason, exit.restarts))
    };
    let well = |name: &str| status(name, ends(0, 5, 9, ""));
    assert_eq!(doubt(well("clone"), well("agent")), None);
    assert_eq!(
        doubt(status("clone", oom.clone()), status("agent", oom.clone())),
        Some((Step::Before, "OOMKilled".to_owned(), 0))
    );
    assert_eq!(
        doubt(well("clone"), status("agent", oom)),
        Some((Step::Main, "OOMKilled".to_owned(), 0))
    );
    assert_eq!(
        doubt(again, well("agent")),
        Some((Step::Before, "Completed".to_owned(), 2))
    );
}

/// The image that ran is the agent's, not ours.
#[test]
fn the_image_is_the_agents() {
    let init = json!([
        status("clone", ends(0, 5, 9, "")),
        status("agent", runs(10))
    ]);
    let view_of = |kind: &str| view(kind, init.clone(), json!([status("publish", json!({}))]));
    assert_eq!(view_of("DocsRun").image_id.as_deref(), Some("id-of-agent"));
    assert_eq!(view_of("TaskRun").image_id, None);
}

#[test]
fn containers_that_someone_puts_in_do_not_count() {
    let sidecar = || status("istio-proxy", runs(1));
    let (step, container, _) = docs(
        json!([
            sidecar(),
            status("clone", ends(0, 5, 9, "")),
            status("agent", runs(10))
        ]),
        json!([sidecar(), status("publish", waits("PodInitializing"))]),
    );
    assert_eq!((step, container), (Step::Main, running(10)));
    // Containers with our names in the other list are not ours.
    let (step, container, _) = docs(
        json!([
            status("publish", ends(0, 1, 2, &pushed().write())),
            status("clone", runs(5))
        ]),
        json!([
            status("agent", ends(0, 1, 2, "")),
            status("clone", ends(0, 1, 2, "")),
            status("publish", waits("PodInitializing")),
        ]),
    );
    assert_eq!((step, container), (Step::Before, waited(PREPARING, "")));
}

#[test]
fn a_task_runs_pod_has_one_container_whatever_it_is_called() {
    let report = pushed().write();
    let view = view(
        "TaskRun",
        json!([
            status("clone", ends(1, 5, 9, "")),
            status("agent", ends(3, 5, 9, ""))
        ]),
        json!([
            status("agent", ends(0, 10, 50, &report)),
            status("publish", runs(5))
        ]),
    );
    assert_eq!((view.step, view.main_exit), (Step::Main, None));
    assert_eq!(
        view.container,
        ContainerState::Ended(exit(0, 10, 50, &report))
    );
    assert_eq!(view.image_id.as_deref(), Some("id-of-agent"));
}

/// From the objects of the API server to the decision.
#[test]
fn a_forged_pod_of_a_docs_run_is_no_success() {
    let mut scene = Scene::publishing();
    scene.at(61).around.complete();
    let job = scene.around.world.children.jobs[0].uid.clone();
    let mut forged = view(
        "DocsRun",
        json!([
            status("clone", ends(0, 5, 9, "")),
            status("agent", ends(0, 10, 50, &pushed().write())),
        ]),
        json!([
            status("publish", ends(0, 51, 60, "")),
            status("agent", ends(0, 51, 60, &pushed().write()))
        ]),
    );
    forged.job_uid = Some(job);
    forged.phase = PodPhase::Succeeded;
    scene.around.world.children.pods = vec![forged];
    assert_said(&scene.pass(), failed(Reason::PublishFailed));
}

#[test]
fn the_only_version_of_a_docs_run_is_the_first() {
    let scene = Scene::started(json!({}), json!({}));
    assert_eq!(scene.around.world.children.jobs[0].version, Some(1));
}
