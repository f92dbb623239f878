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
    let pod = late.around.world.children.pods[0].name.clone();
    assert_eq!(stops(&late.pass()), [format!("Pod {pod}")]);

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
    assert_eq!(stops(&scene.pass()), [format!("Pod {pod}")]);
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
        let decision = scene.pass();
        assert_eq!((stops(&decision).len(), decision.effects.len()), (1, 1));
        scene.around.world.children.jobs.clear();
        scene.around.world.children.pods.clear();
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::Cancelled));
        decision.verdict.message.contains(DOUBT)
    };
    assert!(!cancelled(Scene::started(json!({}), json!({}))));
    // Also if the Job, which was stopped before it had a Pod, stays.
    let mut stopped = Scene::started(json!({}), json!({}));
    stopped.edit(|spec| spec.cancel = true);
    stopped.pass();
    assert_eq!(stops(&stopped.pass()), [format!("Job {JOB}")]);
    stopped.job_ends(1);
    let decision = stopped.pass();
    assert_said(&decision, failed(Reason::Cancelled));
    assert!(!decision.verdict.message.contains(DOUBT));
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

/// `preserve` prevents every deletion, also that of a Job that the status does not announce. Such a Job is stopped, and
/// the run waits until the user deletes the Job or removes the annotation.
#[test]
fn a_job_that_no_record_announces_is_stopped_and_kept_if_it_is_preserved() {
    const KEPT: &str = "the annotation 'orchestrator.io/preserve' keeps Job 'shop-docs', which this run did not record; delete the Job or remove the annotation";
    type Row = (&'static str, fn(&mut Scene), &'static [&'static str]);
    let rows: [Row; 5] = [
        (
            "its Pod runs",
            |scene| {
                scene.agent_container(running(2));
            },
            &["Pod shop-docs-x"],
        ),
        (
            "its Pod is being deleted",
            |scene| stop(scene.agent_container(running(2)), 2),
            &["Job shop-docs"],
        ),
        ("it has no Pod", |_| (), &["Job shop-docs"]),
        (
            "it is suspended",
            |scene| scene.around.job().suspended = true,
            &["Job shop-docs"],
        ),
        ("it is complete", |scene| scene.around.complete(), &[]),
    ];
    for (name, change, stopped) in rows {
        let mut scene = Scene::started(json!({}), json!({}));
        change(&mut scene);
        scene.annotate(api::names::PRESERVE, "true");
        scene.run.status = None;
        scene.restart();
        let decision = scene.at(20).pass();
        assert_eq!(stops(&decision), stopped, "{name}");
        assert_eq!(decision.effects.len(), stopped.len(), "{name}");
        assert_eq!(decision.verdict.message, KEPT, "{name}");
        let job = scene.around.at(30).job();
        if job.end.is_none() && !job.suspended {
            scene.around.stopped();
        }
        let decision = scene.pass();
        assert!(decision.effects.is_empty(), "{name}: it is stopped");
        assert_eq!(decision.verdict.message, KEPT, "{name}");
        assert_eq!(decision.requeue_at, Some(at(620)), "{name}");
        assert_settled(&scene);

        let mut removed = scene.clone();
        removed.run.metadata.annotations = None;
        assert_eq!(deletes(&removed.pass()), [JOB], "{name}");
        let mut cancelled = scene.clone();
        cancelled.edit(|spec| spec.cancel = true);
        assert_said(&cancelled.pass(), failed(Reason::Cancelled));
        let mut suspended = scene.clone();
        suspended.edit(|spec| spec.suspend = true);
        assert_eq!(suspended.pass().verdict.reason, Reason::Suspended, "{name}");

        let decision = scene.at(620).pass();
        assert_said(&decision, failed(Reason::StartTimeout));
        assert_eq!(
            decision.verdict.message,
            format!("not started: {KEPT}. Submit another DocsRun to run it again"),
            "{name}"
        );
        assert!(decision.effects.is_empty(), "{name}");
    }
}
