//! A run from its start to its end: agents, attempts, deadlines.

use api::{
    Reason, State,
    decide::ErrorClass,
    status::condition,
    tasks::{RunPhase, condition as own, names},
};

use super::*;

#[test]
fn the_first_pass_starts_the_first_attempt() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    assert_eq!(
        creates(&decision),
        [
            ("ConfigMap", "shop-7-v1-files".to_owned()),
            ("Job", "shop-7-v1".to_owned())
        ]
    );
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::Progressing)
    );
    assert_eq!(
        decision.verdict.message,
        "Job 'shop-7-v1' was created; waiting for its Pod"
    );
    let status = &decision.status;
    assert_eq!((status.attempts, status.context_version), (1, Some(1)));
    assert_eq!(status.job_name.as_deref(), Some("shop-7-v1"));
    assert_eq!(status.config_map_name.as_deref(), Some("shop-7-v1-files"));
    assert_eq!(status.progress.deadline_at, Some(Time(at(600))));
    assert_eq!(decision.requeue_at, Some(at(600)));
    assert_eq!(decision.finalizer, FinalizerAction::Keep);
    scene.pass();
    assert!(scene.status().progress.is_true(own::CONTEXT_READY));
    assert!(scene.status().progress.is_true(own::JOB_CREATED));
    assert!(scene.decide().effects.is_empty());
}

#[test]
fn a_run_that_was_just_made_does_not_warn_of_its_agent() {
    let mut scene = Scene::new(run(json!({})), None);
    scene.run.metadata.creation_timestamp = Some(Time(at(0)));
    let decision = scene.at(2).decide();
    assert_eq!(
        (decision.verdict.reason, decision.requeue_at),
        (Reason::Progressing, Some(at(3)))
    );
    let decision = scene.at(3).decide();
    assert_eq!(decision.verdict.reason, Reason::AgentNotFound);
}

/// A deadline further ahead than any wait would keep the run waiting indefinitely.
#[test]
fn a_stored_deadline_of_another_clock_is_not_believed() {
    let mut scene = Scene::new(run(json!({})), None);
    scene.at(0).pass();
    for (stored, believed) in [(691_210, 691_210), (691_211, 610)] {
        let status = scene.run.status.as_mut().unwrap();
        status.progress.deadline_at = Some(Time(at(stored)));
        scene.at(10).pass();
        let deadline = scene.status().progress.deadline_at.clone();
        assert_eq!(deadline, Some(Time(at(believed))));
    }
}

#[test]
fn the_ordinary_way_is_three_records() {
    let mut scene = Scene::started();
    scene.at(2).pod(ContainerState::Unknown).node = None;
    assert_eq!(scene.settle().phase, RunPhase::Pending);
    let started = scene.status().clone();
    scene.at(5).pod(waiting("ContainerCreating", ""));
    scene.pass();
    assert_eq!(scene.status(), &started, "nothing new is worth a write");

    scene.at(11).pod(running(10));
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Working, Reason::Progressing)
    );
    assert_eq!(
        decision.verdict.message,
        "Pod 'shop-7-v1-x' on node 'node-1' runs; it has until 2030-01-01T01:00:10Z"
    );
    assert_eq!(decision.requeue_at, Some(at(3610)));
    assert_eq!(scene.status().started_at, Some(Time(at(10))));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(3610))));
    let running = scene.status().clone();

    scene.at(51).pod(ended(0, 50, ""));
    let decision = scene.pass();
    assert_eq!(scene.status(), &running, "the Job says so in a second");
    assert_eq!(decision.requeue_at, Some(at(80)));
    scene.at(52).complete();
    assert_eq!(scene.pass().phase, RunPhase::Succeeded);
    assert!(scene.status().progress.is_true(condition::FINISHED));
    assert!(scene.status().progress.is_true(own::JOB_CREATED));
    scene.settle();
}

#[test]
fn a_container_that_was_never_seen_running_is_judged_all_the_same() {
    let mut scene = Scene::started();
    scene.at(12).pod(ended(0, 11, ""));
    let before = scene.status().clone();
    scene.pass();
    assert_eq!(scene.status(), &before);
    scene.complete();
    let decision = scene.pass();
    assert_eq!(decision.phase, RunPhase::Succeeded);
    assert_eq!(scene.status().started_at, Some(Time(at(10))));
}

#[test]
fn a_run_waits_for_its_agent_until_a_stored_time() {
    let mut scene = Scene::new(run(json!({})), None);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::AgentNotFound)
    );
    assert_eq!(
        decision.verdict.message,
        "Agent 'writer' does not exist in namespace 'team'; waiting until 2030-01-01T00:10:00Z"
    );
    assert_eq!(decision.requeue_at, Some(at(600)));
    assert!(decision.effects.is_empty());
    assert!(!scene.status().progress.is_true(own::JOB_CREATED));
    let first = scene.status().clone();
    scene.at(300).pass();
    assert_eq!(scene.status(), &first, "the deadline does not move");

    let mut found = scene.clone();
    found.world.agent = Some(Arc::new(agent(json!({"startTimeout": "1m"}))));
    let decision = found.pass();
    assert_eq!(creates(&decision).len(), 2);
    assert_eq!(found.status().progress.deadline_at, Some(Time(at(360))));

    scene.at(600);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::AgentNotFound)
    );
    assert!(released(&decision).is_some());
    found.now = at(700);
    assert_eq!(found.decide().verdict.reason, Reason::StartTimeout);
}

#[test]
fn an_agent_that_is_not_ready_repeats_its_own_words() {
    let mut unready = agent(json!({}));
    let verdict =
        api::Verdict::working(Reason::DependencyNotReady, "missing: ServiceAccount 'bot'");
    let progress = &mut unready.status.as_mut().unwrap().progress;
    progress.apply_verdict(api::Lifecycle::LongLived, &verdict, 1, start());
    let mut scene = Scene::new(run(json!({})), Some(unready));
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::AgentNotReady);
    assert!(
        decision
            .verdict
            .message
            .contains("missing: ServiceAccount 'bot'")
    );
    scene.at(600);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::AgentNotReady)
    );

    // A condition about an older spec is not valid for this one.
    let mut stale = agent(json!({}));
    stale.metadata.generation = Some(2);
    let scene = Scene::new(run(json!({})), Some(stale));
    assert!(scene.decide().effects.is_empty());
    assert_eq!(scene.decide().verdict.reason, Reason::Progressing);
    let mut unseen = agent(json!({}));
    unseen.status = None;
    let scene = Scene::new(run(json!({})), Some(unseen));
    assert!(scene.decide().effects.is_empty());
    assert_eq!(scene.decide().verdict.reason, Reason::Progressing);
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_sizes() {
    let file = |size: usize| json!([{"filename": "a.md", "content": "ä".repeat(size / 2)}]);
    let limit = api::tasks::CONTEXT_LIMIT;
    let fits = Scene::new(
        run(json!({"markdownFiles": file(limit - 10)})),
        Some(agent(
            json!({"instructions": [{"filename": "b.md", "content": "0123456789"}]}),
        )),
    );
    assert_eq!(creates(&fits.decide()).len(), 2);

    // A file of the run replaces the instruction of the same name.
    let replaced = Scene::new(
        run(json!({"markdownFiles": file(limit)})),
        Some(agent(
            json!({"instructions": [{"filename": "a.md", "content": "0123456789"}]}),
        )),
    );
    assert_eq!(creates(&replaced.decide()).len(), 2);

    let mut large = fits;
    large.run = run(json!({"markdownFiles": file(limit)}));
    let decision = large.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::ContextTooLarge)
    );
    let message = &decision.verdict.message;
    assert!(
        message.contains("921600 bytes") && message.contains("instructions 10"),
        "{message}"
    );
    assert!(decision.effects.is_empty());
    // Only other files help, and they are another version.
    large.world.agent = Some(Arc::new(agent(json!({}))));
    assert!(large.pass().effects.is_empty());
    large.run.spec = run(json!({"contextVersion": 2})).spec;
    large.pass();
    assert_eq!(creates(&large.pass()).len(), 2);
}

#[test]
fn a_run_that_takes_too_long_is_stopped_after_its_evidence_is_stored() {
    let mut scene = Scene::running();
    scene.at(3609);
    assert_eq!(scene.decide().verdict.reason, Reason::Progressing);
    scene.at(3610);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Working, Reason::DeadlineExceeded)
    );
    assert!(decision.effects.is_empty());
    assert!(
        decision
            .verdict
            .message
            .ends_with("did not end within 1h; stopping Job 'shop-7-v1'")
    );
    let result = scene.status().result.clone().unwrap();
    assert_eq!(result.pod_name.as_deref(), Some("shop-7-v1-x"));
    assert_eq!(result.node.as_deref(), Some("node-1"));
    assert_eq!((result.finished_at, result.exit_code), (None, None));

    let decision = scene.pass();
    assert_eq!(stops(&decision), ["Pod shop-7-v1-x"]);
    assert_eq!(decision.effects.len(), 1, "nothing is deleted");
    let decision = scene.at(3615).pass();
    assert!(decision.effects.is_empty(), "it is on its way");
    assert_eq!(decision.requeue_at, Some(at(4210)));
    scene.at(3640).stopped();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::DeadlineExceeded)
    );
    assert!(decision.verdict.message.ends_with("did not end within 1h"));
    assert!(decision.effects.is_empty(), "its log stays");
    assert!(scene.at(7239).pass().effects.is_empty());
    let retention_ends = scene.at(7240).decide();
    assert_eq!(deletes(&retention_ends), ["shop-7-v1", "shop-7-v1-files"]);
    scene.annotate(api::names::PRESERVE, "true");
    assert!(scene.decide().effects.is_empty());
    let result = scene.status().result.clone().unwrap();
    assert_eq!(result.finished_at, Some(Time(at(3640))));
    assert_eq!(result.reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn a_stop_that_does_not_end_is_given_up_and_named_and_nothing_follows() {
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 3}}), json!({}));
    scene.at(3610).pass();
    scene.pass();
    scene.at(4209);
    assert_eq!(scene.pass().phase, RunPhase::Running);
    scene.at(4210);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::DeadlineExceeded)
    );
    let message = &decision.verdict.message;
    for part in [
        "could not be stopped within 10m",
        "Job 'shop-7-v1'",
        "node 'node-1'",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // Without the limit of the Job, another Pod would start when the Node is deleted.
    assert_eq!(stops(&decision), ["Job shop-7-v1"]);
    assert!(scene.pass().effects.is_empty(), "it is asked once");
    // A Job that is preserved is left as it is.
    let mut preserved = Scene::running();
    preserved.annotate(api::names::PRESERVE, "true");
    preserved.at(3610).pass();
    preserved.pass();
    let decision = preserved.at(4210).pass();
    assert!(decision.is_end() && decision.effects.is_empty());
}

#[test]
fn a_job_that_ends_by_itself_while_it_is_given_up_is_not_deleted() {
    let mut scene = Scene::running();
    scene.at(3610).pass();
    scene.pod(ended(0, 3611, ""));
    scene.complete();
    let decision = scene.pass();
    assert!(decision.effects.is_empty());
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::DeadlineExceeded)
    );
}

#[test]
fn the_runs_own_timeout_wins_even_over_a_frozen_one() {
    let mut scene = Scene::running_with(json!({"timeout": "2m"}), json!({"timeout": "5h"}));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(130))));
    scene.run.spec.timeout = Some(Duration::from_secs(300).into());
    scene.pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(310))));
    scene.run.spec.timeout = None;
    scene.world.agent = None;
    scene.pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(18010))));
}

#[test]
fn a_failed_attempt_is_repeated_at_a_stored_time() {
    let retry = json!({"retry": {"maxAttempts": 2}});
    let mut scene = Scene::running_with(json!({}), retry);
    scene.at(60).pod(ended(3, 50, "sorry"));
    scene.fail();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::NonZeroExit)
    );
    assert_eq!(
        decision.verdict.message,
        "attempt 1 of 2 failed: Pod 'shop-7-v1-x' on node 'node-1': the agent exited with code 3: \"sorry\"; the next one starts at 2030-01-01T00:01:10Z"
    );
    assert_eq!(decision.requeue_at, Some(at(70)));
    let waiting = scene.status().clone();
    scene.at(65).pass();
    assert_eq!(scene.status(), &waiting, "the same words at each pass");

    scene.at(70);
    let decision = scene.pass();
    assert_eq!(creates(&decision), [("Job", "shop-7-v1-a2".to_owned())]);
    let status = scene.status();
    assert_eq!(status.attempts, 2);
    assert_eq!(status.job_name.as_deref(), Some("shop-7-v1-a2"));
    assert_eq!((&status.result, &status.started_at), (&None, &None));
    assert_eq!(scene.world.children.jobs.len(), 2, "its logs are evidence");

    scene.at(90).pod(ended(4, 85, ""));
    scene.fail();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::NonZeroExit)
    );
    assert!(
        decision
            .verdict
            .message
            .ends_with("exited with code 4 (after 2 attempts)")
    );
}

#[test]
fn a_run_that_may_not_be_repeated_any_more_fails_with_what_it_had() {
    let mut scene = Scene::running_with(json!({}), json!({"retry": {"maxAttempts": 3}}));
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    scene.pass();
    scene.world.agent = Some(Arc::new(agent(json!({}))));
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::NonZeroExit)
    );
}

#[test]
fn an_agent_that_vanishes_between_attempts_is_waited_for() {
    let mut scene = Scene::running_with(json!({}), json!({"retry": {"maxAttempts": 3}}));
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    scene.pass();
    let agent = scene.world.agent.take();
    scene.at(70);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::AgentNotFound)
    );
    assert_eq!(decision.requeue_at, Some(at(670)));
    let mut late = scene.clone();
    late.at(670);
    assert_eq!(late.decide().verdict.reason, Reason::AgentNotFound);
    assert_eq!(late.decide().phase, RunPhase::Failed);
    scene.world.agent = agent;
    assert_eq!(creates(&scene.pass()).len(), 1);
}

/// A live read confirmed that the Job does not exist: see `confirming`.
#[test]
fn a_job_that_vanished_is_lost() {
    let mut scene = Scene::running();
    scene.world.children.jobs.clear();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::JobLost)
    );
    assert!(creates(&decision).is_empty(), "its Pod may still run");
}

#[test]
fn files_that_vanish_before_the_start_are_made_again() {
    let mut scene = Scene::started();
    scene.world.children.config_maps.clear();
    let again = [("ConfigMap", "shop-7-v1-files".to_owned())];
    assert_eq!(creates(&scene.decide()), again);
    scene.at(5).pod(waiting("ContainerCreating", ""));
    assert_eq!(creates(&scene.decide()), again);
    scene.at(11).pod(running(10));
    assert!(scene.decide().effects.is_empty());
}

#[test]
fn a_pod_that_replaces_another_has_its_own_time() {
    let mut scene = Scene::running();
    scene.at(100);
    let pod = scene.pod(ended(143, 99, ""));
    pod.disruption = Some(Reported {
        reason: "PreemptionByScheduler".to_owned(),
        message: String::new(),
    });
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::Disrupted)
    );
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(700))));
    scene.at(110).pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(700))));
    let mut next = scene.world.children.pods[0].clone();
    next.uid = "second".to_owned();
    next.created = Some(at(111));
    next.disruption = None;
    next.container = running(120);
    next.phase = PodPhase::Running;
    scene.world.children.pods.push(next);
    scene.at(121);
    assert_eq!(scene.pass().phase, RunPhase::Running);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(3720))));
}

#[test]
fn a_lost_node_is_named_and_no_other_pod_is_started() {
    let mut scene = Scene::running();
    let pod = scene.pod(running(10));
    pod.stop_asked = Some(at(90));
    scene.at(100);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Working, Reason::Disrupted)
    );
    assert!(decision.verdict.message.contains("node 'node-1'"));
    assert!(decision.effects.is_empty());
}

#[test]
fn a_job_controller_that_is_silent_is_not_waited_for_without_end() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.pass();
    let decision = scene.at(80).pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Working, Reason::Progressing)
    );
    assert!(
        decision
            .verdict
            .message
            .contains("is the Job controller running")
    );
    assert_eq!(decision.requeue_at, Some(at(650)));
    scene.at(650);
    assert_eq!(scene.pass().verdict.reason, Reason::JobFailed);
}

#[test]
fn what_fails_for_good_ends_the_run() {
    let fault = ReconcileError::new(ErrorClass::Failed, Reason::InvalidChild, "no");
    let scene = Scene::plain();
    let decision = scene.decide_with(Some(&fault));
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::InvalidChild)
    );
    assert!(decision.effects.is_empty());

    // If a Job is at work, it is stopped first.
    let mut scene = Scene::started();
    scene.world.children.config_maps.clear();
    let decision = scene.decide_with(Some(&fault));
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::InvalidChild)
    );
    scene.record(&decision);
    assert_eq!(stops(&scene.decide()), ["Job shop-7-v1"]);
    let decision = scene.decide_with(Some(&fault));
    assert_eq!(decision.phase, RunPhase::Failed);
    assert!(decision.effects.is_empty());
}

#[test]
fn a_child_of_that_name_that_is_going_is_waited_for() {
    let mut scene = Scene::started();
    scene.run.status = None;
    scene.job().deleting = Some(at(0));
    let decision = scene.pass();
    assert!(decision.effects.is_empty());
    assert!(
        decision
            .verdict
            .message
            .starts_with("Job 'shop-7-v1' of the same name is still being deleted")
    );
    scene.world.children.jobs.clear();
    scene.files().deleting = true;
    let decision = scene.pass();
    assert!(decision.effects.is_empty());
    assert!(decision.verdict.message.starts_with("ConfigMap"));
    assert_eq!(decision.requeue_at, Some(at(600)));
}

#[test]
fn what_belongs_to_others_is_not_ours() {
    let mut scene = Scene::started();
    scene.run.status = None;
    scene.job().owner_uid = Some("someone-else".to_owned());
    scene.files().owner_uid = None;
    let decision = scene.decide();
    assert_eq!(
        creates(&decision).len(),
        2,
        "the engine finds the names taken, and says so"
    );
    assert!(deletes(&decision).is_empty());
    assert_eq!(names::job(&scene.run.spec, 1, None), "shop-7-v1");
}
