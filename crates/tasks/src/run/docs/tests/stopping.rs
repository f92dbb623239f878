//! Attempts that are stopped: by a time limit, a cancel or the deletion of their Pod.

use super::*;

#[test]
fn the_agent_and_publish_have_a_time_each() {
    let mut scene = Scene::running_with(json!({"timeout": "2m"}), json!({}));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(130))));
    assert_eq!(scene.at(129).pass().verdict.reason, Reason::Progressing);
    let mut late = scene.clone();
    let decision = late.at(130).pass();
    assert_eq!(decision.verdict.reason, Reason::DeadlineExceeded);
    assert_has(&decision, &["the agent did not end within 2m"]);
    assert!(
        !decision.verdict.message.contains("pushed"),
        "it cannot have"
    );
    assert_eq!(deletes(&late.pass()), [JOB]);

    // `publish` continues after the agent's time.
    scene.at(129).publish_container(running(10), "");
    scene.around.world.children.pods[0]
        .main_exit
        .as_mut()
        .unwrap()
        .finished = Some(at(128));
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Publishing);
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(at(128 + 900)))
    );
    assert_eq!(scene.at(500).pass().verdict.reason, Reason::Publishing);
    assert_eq!(scene.at(1027).pass().verdict.reason, Reason::Publishing);
    let decision = scene.at(1028).pass();
    assert_eq!(decision.verdict.reason, Reason::DeadlineExceeded);
    assert_has(
        &decision,
        &["the container 'publish' did not end within 15m"],
    );
    assert!(decision.effects.is_empty(), "its evidence is stored first");
    assert_eq!(deletes(&scene.pass()), [JOB]);
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    let decision = scene.at(1060).pass();
    assert_said(&decision, failed(Reason::DeadlineExceeded));
    assert_has(&decision, &[DOUBT]);
}

/// The Job's own limit applies while no operator runs. It must leave `publish` its time.
#[test]
fn the_jobs_own_limit_leaves_publish_its_time() {
    let mut scene = Scene::running();
    let whole = 600 + 3600 + 900 + 60;
    assert_eq!(
        scene.around.world.children.jobs[0].limit_seconds,
        Some(whole)
    );
    scene.around.job().started = Some(at(2));
    assert!(scene.at(12).pass().effects.is_empty());
    // Another Pod replaces one that was evicted late.
    let pod = scene.at(3000).agent_container(ended(143, 2999, ""));
    pod.disruption = Some(crate::view::Reported::default());
    scene.pass();
    let limit = scene.around.job().limit_seconds;
    assert_eq!(limit, Some(3000 - 2 + whole));
    // A run with an extended timeout gets the full time.
    let mut scene = Scene::running();
    scene.around.job().started = Some(at(2));
    scene.edit(|spec| spec.timeout = Some(Duration::from_secs(10_000).into()));
    scene.at(12).pass();
    assert_eq!(
        scene.around.job().limit_seconds,
        Some(10 - 2 + 10_000 + 900 + 60)
    );
    // A run that was suspended also gets the full time.
    let mut scene = Scene::running();
    scene.around.job().started = Some(at(2));
    scene.at(100).edit(|spec| spec.suspend = true);
    scene.pass();
    scene.around.world.children.pods.clear();
    scene.at(200).edit(|spec| spec.suspend = false);
    scene.pass();
    assert_eq!(scene.around.job().limit_seconds, Some(200 - 2 + whole));
}

#[test]
fn a_cancel_says_whether_it_may_have_pushed() {
    let cancelled = |mut scene: Scene| {
        scene.edit(|spec| spec.cancel = true);
        let decision = scene.pass();
        assert_eq!(decision.verdict.reason, Reason::Cancelled);
        assert_eq!(deletes(&scene.pass()), [JOB]);
        scene.around.world.children.jobs.clear();
        scene.around.world.children.pods.clear();
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::Cancelled));
        decision.verdict.message.contains(DOUBT)
    };
    assert!(!cancelled(Scene::started(json!({}), json!({}))));
    assert!(!cancelled(Scene::cloning()));
    assert!(!cancelled(Scene::running()));
    assert!(cancelled(Scene::publishing()));
    // A Pod that was at work and is not visible may have pushed.
    let mut gone = Scene::publishing();
    gone.around.world.children.pods.clear();
    assert!(cancelled(gone));
    // So may a Pod that was evicted before this one.
    let mut again = Scene::publishing();
    let pod = again.at(55).publish_container(running(10), "");
    pod.disruption = Some(crate::view::Reported::default());
    again.pass();
    again.at(56).clone_container(waiting(PREPARING, "")).uid = "second".to_owned();
    again
        .around
        .world
        .children
        .pods
        .retain(|pod| pod.uid == "second");
    again.pass();
    assert!(cancelled(again));
}

/// A `publish` that was asked to stop may push nevertheless. Then the commit is reported and
/// stored.
#[test]
fn a_push_that_came_through_while_it_was_stopped_is_named() {
    let mut scene = Scene::publishing();
    scene.edit(|spec| spec.cancel = true);
    scene.pass();
    scene.publish_ends(0, &pushed().write());
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::Cancelled));
    assert_has(
        &decision,
        &[PUSHED, "all the same, as 'publish' reports", BRANCH],
    );
    assert_eq!(scene.status().commit.as_deref(), Some(PUSHED));
    assert_settled(&scene);
}

#[test]
fn what_a_pod_that_was_told_to_stop_reports_is_no_result() {
    let mut scene = Scene::publishing();
    let report = pushed().write();
    stop(
        scene.at(61).publish_container(ended(0, 60, &report), ""),
        55,
    );
    scene.around.complete();
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Disrupted);
    assert_eq!(scene.status().commit, None);
    assert_eq!(creates(&scene.pass()), [("Job", "shop-docs-d1".to_owned())]);
}
