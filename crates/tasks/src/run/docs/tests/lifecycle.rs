//! The life of a run without disturbances: exactly which status writes it needs.

use api::{
    status::condition,
    tasks::{condition as own, push_intent},
};

use super::*;

#[test]
fn the_first_look_asks_and_records_nothing_for_a_while() {
    let mut scene = Scene::plain();
    let decision = scene.pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::Progressing),
    );
    assert_has(&decision, &["asking", URL]);
    assert!(decision.effects.is_empty());
    assert_eq!(decision.defer_status_until, Some(at(10)));
    assert_eq!(decision.requeue_at, Some(at(10)));
    assert_eq!((scene.run.status.clone(), scene.records), (None, 0));
    assert_eq!(
        scene.worker.clone().unwrap().0,
        LsRemoteRequest {
            branches: vec!["main".to_owned(), BRANCH.to_owned()],
            purpose: Purpose::Resolve,
        }
    );
    // The response takes long. The message then names the wait, once.
    let decision = scene.at(10).pass();
    assert_eq!(scene.records, 1);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(610))));
    assert!(decision.requeue_at > Some(at(10)) && decision.requeue_at <= Some(at(40)));
    assert_eq!(scene.status().base_commit, None);
    assert!(!scene.status().progress.is_true(own::JOB_CREATED));
    assert_settled(&scene);
    scene.at(300);
    assert_settled(&scene);
}

#[test]
fn what_is_pushed_is_recorded_before_anything_is_made() {
    let mut scene = Scene::plain();
    scene.pass();
    scene.at(2).reply();
    let decision = scene.pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::Progressing),
    );
    assert_has(&decision, &["'main'", BASE]);
    assert!(decision.effects.is_empty(), "only a record");
    assert_eq!(
        (decision.requeue_at, decision.defer_status_until),
        (Some(at(2)), None)
    );
    let status = scene.status().clone();
    assert_eq!(status.base_commit.as_deref(), Some(BASE));
    assert_eq!(status.branch.as_deref(), Some(BRANCH));
    assert_eq!(status.branch_head.as_deref(), Some(HEAD));
    assert_eq!((status.attempts, &status.progress.deadline_at), (0, &None));
    assert_eq!(scene.records, 1);

    let decision = scene.pass();
    assert_eq!(
        creates(&decision),
        [("ConfigMap", FILES.to_owned()), ("Job", JOB.to_owned())]
    );
    let intents: Vec<Option<String>> = decision
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::Ensure(manifest) => manifest.requires_intent.clone(),
            Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => panic!("{effect:?}"),
        })
        .collect();
    assert_eq!(intents, [None, push_intent(&status)]);
    assert_eq!(
        intents[1].as_deref(),
        Some(format!("push {BASE} to '{BRANCH}' at {HEAD}").as_str())
    );
    assert_eq!(decision.defer_status_until, None);
    assert_eq!(scene.status().attempts, 1);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(602))));
    assert_eq!(question(&scene.run), None, "nothing more is asked");
    assert_settled(&scene);

    // A branch that does not exist is recorded as none.
    let mut scene = Scene::plain();
    scene.server.heads.remove(BRANCH);
    scene.pass();
    scene.reply();
    scene.pass();
    let status = scene.status();
    assert_eq!(
        (status.branch.as_deref(), &status.branch_head),
        (Some(BRANCH), &None)
    );
    scene.pass();
    assert_eq!(scene.around.world.children.jobs.len(), 1);
}

#[test]
fn the_ordinary_way_is_seven_records_and_two_creations() {
    let mut scene = Scene::plain();
    let mut made = 0;
    let step = |scene: &mut Scene, records: u32| {
        let decision = scene.settle();
        assert_eq!(scene.records, records, "{decision:?}");
        assert_settled(scene);
        decision
    };
    step(&mut scene, 0);
    scene.at(2).reply();
    for _ in 0..2 {
        made += scene.pass().effects.len();
    }
    assert_eq!(made, 2, "the files and the Job");
    step(&mut scene, 2);

    // A Pod that is about to start causes no message.
    scene.at(3).clone_container(ContainerState::Unknown).node = None;
    step(&mut scene, 2);
    scene.at(4).clone_container(waiting("PodInitializing", ""));
    step(&mut scene, 2);
    scene.at(5).clone_container(waiting(PREPARING, ""));
    let decision = step(&mut scene, 3);
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::Cloning),
    );
    assert_eq!(
        decision.verdict.message,
        "Pod 'shop-docs-x' on node 'node-1' clones the repository; its agent starts after that"
    );
    scene.at(9).agent_container(waiting(PREPARING, ""));
    step(&mut scene, 3);
    scene.at(11).agent_container(running(10));
    let decision = step(&mut scene, 4);
    assert_said(
        &decision,
        (RunPhase::Running, State::Working, Reason::Progressing),
    );
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(3610))));
    scene.at(51).publish_container(running(10), "");
    let decision = step(&mut scene, 5);
    assert_said(
        &decision,
        (RunPhase::Running, State::Working, Reason::Publishing),
    );
    assert_eq!(scene.status().started_at, Some(Time(at(10))));
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(at(50 + 900)))
    );
    // The Job reports within a second that its last container ended.
    let report = pushed().write();
    scene.at(60).publish_container(ended(0, 60, &report), "");
    step(&mut scene, 5);
    scene.at(61).around.complete();
    let decision = scene.pass();
    assert_said(
        &decision,
        (RunPhase::Running, State::Working, Reason::Verifying),
    );
    assert!(decision.effects.is_empty());
    assert_eq!(decision.requeue_at, Some(at(61)));
    let status = scene.status().clone();
    assert_eq!(status.commit.as_deref(), Some(PUSHED));
    let files = status.changed_files.clone().unwrap();
    assert_eq!((files.count, files.first.len()), (2, 2));
    assert_eq!(
        (&status.finished_at, &status.progress.deadline_at),
        (&None, &Some(Time(at(661))))
    );
    assert_eq!(status.result.as_ref().unwrap().exit_code, Some(0));
    assert!(!status.progress.is_true(condition::SUCCEEDED));
    step(&mut scene, 6);
    assert_eq!(
        question(&scene.run),
        Some(LsRemoteRequest {
            branches: vec![BRANCH.to_owned()],
            purpose: Purpose::Verify(PUSHED.to_owned()),
        })
    );

    scene
        .server
        .heads
        .insert(BRANCH.to_owned(), PUSHED.to_owned());
    scene.at(62).reply();
    let decision = scene.pass();
    assert_said(&decision, SUCCEEDED);
    assert_eq!(
        decision.verdict.message,
        format!(
            "commit {PUSHED} is on branch '{BRANCH}' of {URL}: 2 files changed (docs/a.md, docs/b.md)"
        )
    );
    assert_eq!(scene.records, 7);
    assert_eq!(
        released(&decision),
        Some(Some(json!({
            "version": 1, "outcome": "Succeeded", "reason": "Succeeded", "uid": "docs-uid",
        })))
    );
    let status = scene.status();
    assert!(status.progress.is_true(condition::FINISHED));
    assert!(status.progress.is_true(own::JOB_CREATED));
    assert_eq!(
        (&status.finished_at, &status.progress.deadline_at),
        (&Some(Time(at(62))), &None)
    );
    assert_eq!(status.base_commit.as_deref(), Some(BASE), "all of it stays");
    assert_eq!(question(&scene.run), None);
    assert_settled(&scene);
}

#[test]
fn a_pod_that_was_never_seen_is_judged_all_the_same() {
    let mut scene = Scene::started(json!({}), json!({}));
    scene.publish_ends(0, &pushed().write());
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Verifying);
    assert_eq!(scene.status().started_at, Some(Time(at(10))));
    assert_eq!(scene.status().attempts, 1);
}

#[test]
fn a_job_whose_record_was_lost_is_found_again() {
    let mut scene = Scene::resolved(json!({}), json!({}));
    for effect in &scene.decide().effects {
        scene.perform(effect);
    }
    scene.restart();
    let decision = scene.at(30).pass();
    assert!(decision.effects.is_empty());
    assert_eq!(scene.status().job_name.as_deref(), Some(JOB));
    assert_eq!(scene.status().attempts, 1);
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(at(602))),
        "the Job's own start"
    );
}

#[test]
fn only_half_of_the_children_were_made() {
    let mut scene = Scene::resolved(json!({}), json!({}));
    scene.perform(&scene.decide().effects[0]);
    let decision = scene.pass();
    assert_eq!(creates(&decision), [("Job", JOB.to_owned())]);
}

#[test]
fn what_fails_for_good_ends_the_run() {
    let fault = ReconcileError::new(api::decide::ErrorClass::Failed, Reason::InvalidChild, "no");
    for scene in [Scene::plain(), Scene::resolved(json!({}), json!({}))] {
        let decision = scene.decide_with(Some(&fault));
        assert_said(&decision, failed(Reason::InvalidChild));
        assert!(decision.effects.is_empty());
    }
}

#[test]
fn a_restored_run_is_not_run_again() {
    for (outcome, phase) in [
        ("Succeeded", RunPhase::Succeeded),
        ("Failed", RunPhase::Failed),
    ] {
        let mut scene = Scene::plain();
        scene.annotate(
            api::names::OUTCOME,
            &json!({"version": 1, "outcome": outcome, "reason": "NoChanges", "uid": "old"})
                .to_string(),
        );
        let decision = scene.pass();
        assert_eq!(decision.phase, phase);
        assert!(decision.effects.is_empty());
        assert_has(&decision, &["restored", "Submit another DocsRun"]);
        assert_settled(&scene);
    }
}
