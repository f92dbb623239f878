//! A newer version of the context, and an object that was restored without its status.

use api::{
    Reason, State,
    decide::ErrorClass,
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
    assert_eq!(stops(&decision), ["Pod shop-7-v1-x"]);
    assert_eq!(decision.effects.len(), 1);
    assert!(decision.verdict.message.starts_with(
        "waiting for Job 'shop-7-v1' of version 1, Pod 'shop-7-v1-x' on node 'node-1' to stop"
    ));
    assert!(scene.at(101).pass().effects.is_empty());
    assert_eq!(scene.status().history.len(), 1);

    // The Pod may outlive its Job, if another actor deletes the Job.
    let mut lost = scene.clone();
    lost.world.children.jobs.clear();
    assert!(lost.pass().effects.is_empty());
    lost.at(105).world.children.pods.clear();
    assert_eq!(creates(&lost.pass()).len(), 2);
    // Otherwise Job, Pod and log stay.
    scene.at(105).stopped();
    let decision = scene.pass();
    assert_eq!(decision.effects.len(), 2);
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

/// Every version has a retention of its own, which begins with its end.
#[test]
fn what_an_earlier_version_left_is_kept_as_long_as_that_of_a_run() {
    // Exit code of version 1, which ended at 60, and the second in which its retention ends.
    for (code, due) in [(0, 360), (3, 3660)] {
        let mut scene = Scene::running();
        scene.at(60).pod(ended(code, 50, ""));
        if code == 0 {
            scene.complete();
        } else {
            scene.fail();
        }
        scene.pass();
        scene.at(100).supersede();
        assert!(scene.pass().effects.is_empty(), "only the record");
        assert_eq!(creates(&scene.pass()).len(), 2, "nothing to wait for");
        let decision = scene.at(111).pass();
        assert!(deletes(&decision).is_empty());
        scene.pod(running(110));
        let decision = scene.pass();
        assert!(decision.effects.is_empty());
        assert!(decision.requeue_at.is_some_and(|at_| at_ <= at(due)));
        assert!(scene.at(due - 1).pass().effects.is_empty(), "{code}");

        // A preserved run keeps everything.
        let mut preserved = scene.clone();
        preserved.annotate(names::PRESERVE, "true");
        assert!(preserved.at(due + 9).pass().effects.is_empty());

        let decision = scene.at(due).decide();
        assert_eq!(deletes(&decision), ["shop-7-v1"], "{code}");
        assert!(decision.effects.iter().all(Effect::is_optional));
        // The API server rejects the deletion. The agent of version 2 goes on, and the status says so.
        let refused = ReconcileError::new(
            ErrorClass::Denied,
            Reason::AdmissionDenied,
            "delete jobs 'shop-7-v1' is refused: no",
        );
        let decision = scene.decide_refused(&refused);
        assert!(decision.effects.is_empty());
        assert_eq!(
            said(&decision),
            (RunPhase::Running, State::Working, Reason::Progressing)
        );
        assert!(decision.verdict.message.ends_with("is refused: no"));
        // After the end of version 2, each version still counts from its own end.
        let mut early = scene.clone();
        early.at(due - 1).pod(ended(0, due - 2, ""));
        early.complete();
        assert_eq!(early.pass().phase, RunPhase::Succeeded);
        assert!(early.decide().effects.is_empty(), "{code}");
        assert_eq!(deletes(&early.at(due).decide()), ["shop-7-v1"], "{code}");
    }
}

/// A version that the status no longer lists counts from the end of its Job.
#[test]
fn a_version_that_no_history_has_is_kept_as_one_that_failed() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.complete();
    scene.pass();
    scene.at(100).supersede();
    scene.pass();
    scene.pass();
    scene.at(111).pod(running(110));
    scene.pass();
    scene.run.status.as_mut().unwrap().history.clear();
    assert!(scene.at(3659).decide().effects.is_empty());
    assert_eq!(deletes(&scene.at(3660).decide()), ["shop-7-v1"]);
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
    assert_eq!(stops(&decision), ["Job shop-7-v1"]);
    assert!(scene.pass().effects.is_empty(), "it is asked once");
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
