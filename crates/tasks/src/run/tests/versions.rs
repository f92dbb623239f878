//! A newer version of the context, and an object that was restored without its status.

use api::{
    Reason, State,
    status::condition,
    tasks::{RunPhase, condition as own},
};

use super::*;

#[test]
fn a_newer_version_takes_the_place_of_a_running_one_step_by_step() {
    let mut scene = Scene::running();
    scene.at(100).supersede();
    let decision = scene.pass();
    assert!(decision.effects.is_empty(), "first only the record");
    assert_eq!(decision.requeue_at, Some(at(100)));
    let status = scene.status();
    assert_eq!(status.context_version, Some(2));
    assert_eq!((status.attempts, &status.job_name), (0, &None));
    let old = &status.history[0];
    assert_eq!(
        (
            old.context_version,
            old.phase.as_str(),
            old.reason.as_str(),
            old.attempts
        ),
        (1, "Running", "Superseded", 1)
    );
    assert_eq!(
        old.result.as_ref().unwrap().pod_name.as_deref(),
        Some("shop-7-v1-x")
    );
    assert!(!status.progress.is_true(own::JOB_CREATED));

    let decision = scene.pass();
    assert_eq!(deletes(&decision), ["shop-7-v1"]);
    assert!(creates(&decision).is_empty());
    assert!(decision.verdict.message.starts_with(
        "waiting for Job 'shop-7-v1' of version 1, Pod 'shop-7-v1-x' on node 'node-1' to stop"
    ));
    assert!(scene.at(101).pass().effects.is_empty());
    assert_eq!(scene.status().history.len(), 1);

    // The Pod may outlive its Job.
    scene.world.children.jobs.clear();
    assert!(scene.pass().effects.is_empty());
    scene.at(105).world.children.pods.clear();
    let decision = scene.pass();
    assert_eq!(
        creates(&decision),
        [
            ("ConfigMap", "shop-7-v2-files".to_owned()),
            ("Job", "shop-7-v2".to_owned())
        ]
    );
    assert_eq!(scene.status().attempts, 1);
    assert_eq!(scene.status().history.len(), 1);
}

#[test]
fn a_newer_version_follows_one_that_ended() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, r#"{"answer": "42"}"#));
    scene.complete();
    scene.pass();
    scene.at(200).supersede();
    scene.pass();
    let old = scene.status().history[0].clone();
    assert_eq!(
        (old.phase.as_str(), old.reason.as_str()),
        ("Succeeded", "Succeeded")
    );
    assert_eq!(old.finished_at, Time(at(60)));
    assert_eq!(old.result.unwrap().results["answer"], "42");
    assert_eq!(scene.status().phase, Some(RunPhase::Pending));
    assert_eq!(
        (&scene.status().result, &scene.status().finished_at),
        (&None, &None)
    );
    assert!(!scene.status().progress.is_true(condition::FINISHED));
}

#[test]
fn an_end_that_was_not_recorded_yet_goes_into_the_history() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, r#"{"answer": "42"}"#));
    scene.complete();
    scene.supersede();
    scene.pass();
    let old = &scene.status().history[0];
    assert_eq!(
        (old.phase.as_str(), old.reason.as_str()),
        ("Succeeded", "Succeeded")
    );
    assert_eq!(old.result.as_ref().unwrap().results["answer"], "42");
}

#[test]
fn the_history_keeps_the_last_ten() {
    let mut scene = Scene::plain();
    for _ in 0..13 {
        scene.world.children.jobs.clear();
        scene.pass();
        scene.supersede();
        scene.pass();
    }
    let versions: Vec<i64> = scene
        .status()
        .history
        .iter()
        .map(|old| old.context_version)
        .collect();
    assert_eq!(versions, (4..=13).collect::<Vec<_>>());
}

#[test]
fn an_old_version_that_does_not_stop_ends_the_wait_of_the_new_one() {
    let mut scene = Scene::running();
    scene.at(100).supersede();
    scene.pass();
    scene.pass();
    let decision = scene.at(699).pass();
    assert_eq!(decision.requeue_at, Some(at(700)));
    let decision = scene.at(700).pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::StartTimeout)
    );
    assert!(decision.verdict.message.contains("node 'node-1'"));
    assert!(decision.effects.is_empty());
}

#[test]
fn a_restore_without_status_starts_nothing() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    scene.pass();
    let mut restored = Scene::plain();
    restored.run.metadata.annotations = scene.run.metadata.annotations.clone();
    restored.run.metadata.uid = Some("another-uid".to_owned());
    let decision = restored.pass();
    assert!(decision.effects.is_empty());
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::NonZeroExit)
    );
    assert!(decision.verdict.message.starts_with("restored: version 1"));
    let again = restored.settle();
    assert_eq!(said(&again), said(&decision));

    // An error that was recorded before does not make it another object.
    let mut troubled = restored.clone();
    troubled.run.status = Some(TaskRunStatus {
        phase: Some(RunPhase::Pending),
        ..TaskRunStatus::default()
    });
    assert_eq!(troubled.decide().phase, RunPhase::Failed);

    restored.supersede();
    restored.pass();
    assert_eq!(creates(&restored.pass()).len(), 2);

    for text in [
        "",
        "{}",
        "[1]",
        r#"{"version":0,"outcome":"Failed","reason":"","uid":""}"#,
        r#"{"version":1,"outcome":"Running","reason":"","uid":""}"#,
    ] {
        let mut scene = Scene::plain();
        let annotations = [(api::names::OUTCOME.to_owned(), text.to_owned())];
        scene.run.metadata.annotations = Some(annotations.into());
        assert_eq!(creates(&scene.decide()).len(), 2, "{text}");
    }
}
