//! Messages about a push, if a run does not end with it.

use super::*;

fn unreachable() -> String {
    Report::failed(git::Reason::RepositoryUnreachable, "the answer was lost").write()
}

/// Returns a run after a first attempt that may have pushed, and that is repeated.
fn after_a_lost_answer() -> Scene {
    let retry = json!({"retry": {"maxAttempts": 2, "backoff": {"initial": "10s", "max": "10s"}}});
    let mut scene = Scene::running_with(json!({}), retry);
    scene.publish_ends(1, &unreachable());
    assert_eq!(scene.pass().phase, RunPhase::Pending);
    scene
}

#[test]
fn a_push_of_an_earlier_attempt_is_not_forgotten() {
    let mut scene = after_a_lost_answer();
    scene.around.world.children.pods.clear();
    scene.around.world.children.jobs.clear();
    scene.at(100).edit(|spec| spec.cancel = true);
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::Cancelled));
    assert_has(&decision, &[DOUBT]);
}

#[test]
fn a_pod_that_was_held_while_it_pushed_is_not_forgotten() {
    let mut scene = Scene::publishing();
    scene.pass();
    scene.edit(|spec| spec.suspend = true);
    scene.pass();
    scene.around.world.children.pods.clear();
    scene.at(90).edit(|spec| spec.cancel = true);
    scene.pass();
    scene.around.world.children.jobs.clear();
    let decision = scene.at(91).settle();
    assert_said(&decision, failed(Reason::Cancelled));
    assert_has(&decision, &[DOUBT]);
}

/// The certain result of the last Pod proves nothing about the Pod before it.
#[test]
fn a_refusal_after_an_eviction_is_in_doubt() {
    let moved = Report::failed(git::Reason::BranchMoved, "it moved").write();
    let mut scene = Scene::publishing();
    scene.pass();
    scene.around.world.children.pods[0].disruption = Some(crate::view::Reported::default());
    scene.pass();
    scene.around.world.children.pods[0].uid = "second".to_owned();
    scene.around.world.children.pods[0].disruption = None;
    scene.pass();
    scene.publish_ends(1, &moved);
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::BranchMoved));
    assert_has(&decision, &["it moved", DOUBT]);

    let mut alone = Scene::publishing();
    alone.pass();
    alone.publish_ends(1, &moved);
    let decision = alone.pass();
    assert_said(&decision, failed(Reason::BranchMoved));
    assert!(!decision.verdict.message.contains(DOUBT));
}

/// For example, the image of `publish` no longer exists. One reconciliation reports this, and
/// nothing can have been pushed.
#[test]
fn a_publish_that_cannot_start_is_named() {
    let mut scene = Scene::running();
    let pod = scene.at(50).publish_container(running(10), "");
    pod.stuck = Some(crate::view::Reported {
        reason: "ErrImagePull".to_owned(),
        message: "not found".to_owned(),
    });
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::ImagePullFailed);
    assert_has(&decision, &["not found"]);
    assert_eq!(scene.status().publisher, None);
    assert_settled(&scene);
    scene.edit(|spec| spec.cancel = true);
    scene.pass();
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    let decision = scene.settle();
    assert_said(&decision, failed(Reason::Cancelled));
    assert!(!decision.verdict.message.contains(DOUBT), "it never began");
}

#[test]
fn the_first_pod_that_may_have_pushed_is_stored_once() {
    let mut scene = Scene::publishing();
    scene.pass();
    let first = scene.status().publisher.clone();
    assert_eq!(first, Some(scene.around.world.children.pods[0].uid.clone()));
    scene.around.world.children.pods[0].uid = "second".to_owned();
    scene.pass();
    assert_eq!(scene.status().publisher, first);
}
