//! Runs that users suspend, resume or cancel.

use api::{Reason, State, tasks::RunPhase};

use super::*;

/// Suspends the run from this second on.
fn suspend(scene: &mut Scene, second: i64) {
    scene.at(second).edit(|spec| spec.suspend = true);
}

fn resume(scene: &mut Scene, second: i64) {
    scene.at(second).edit(|spec| spec.suspend = false);
}

fn cancel(scene: &mut Scene, second: i64) {
    scene.at(second).edit(|spec| spec.cancel = true);
}

const HELD: (RunPhase, State, Reason) = (RunPhase::Pending, State::Working, Reason::Suspended);
const CANCELLED: (RunPhase, State, Reason) = (RunPhase::Failed, State::Failed, Reason::Cancelled);

#[test]
fn a_run_that_is_held_before_its_start_starts_nothing_and_no_time_counts() {
    let mut scene = Scene::plain();
    scene.run.spec.suspend = true;
    let decision = scene.pass();
    assert_eq!(said(&decision), HELD);
    assert_eq!(decision.verdict.message, "suspended before it was started");
    assert!(decision.effects.is_empty());
    assert_eq!(
        (decision.requeue_at, decision.defer_status_until),
        (None, None)
    );
    let held = scene.status().clone();
    assert_eq!((&held.progress.deadline_at, held.attempts), (&None, 0));
    // For any length of time, and also without an Agent, which no message mentions.
    scene.world.agent = None;
    assert!(scene.at(900_000).pass().effects.is_empty());
    assert_eq!(scene.status(), &held);

    resume(&mut scene, 900_001);
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::AgentNotFound);
    assert_eq!(
        decision.requeue_at,
        Some(at(900_601)),
        "its wait begins now"
    );
    scene.world.agent = Some(Arc::new(agent(json!({}))));
    assert_eq!(creates(&scene.pass()).len(), 2);
}

#[test]
fn a_job_that_goes_on_is_suspended_once_and_resumed_once() {
    let mut scene = Scene::running();
    suspend(&mut scene, 100);
    let decision = scene.pass();
    assert_eq!(said(&decision), HELD);
    assert_eq!(suspends(&decision), [("shop-7-v1".to_owned(), true)]);
    assert_eq!(decision.effects.len(), 1);
    assert_eq!(
        decision.verdict.message,
        "suspended: waiting for Pod 'shop-7-v1-x' on node 'node-1' to stop; its log is lost with it"
    );
    let status = scene.status();
    assert_eq!(
        (&status.started_at, &status.progress.deadline_at),
        (&None, &None)
    );
    assert_eq!((&status.pod, status.attempts), (&None, 1));
    assert!(scene.pass().effects.is_empty());

    // The controller stops its Pod, which is no disruption.
    stop(scene.pod(running(10)), 101);
    scene.at(102).pass();
    scene.job().resumed = Some(Timestamp::MAX);
    scene.at(103).pass();
    scene.world.children.pods.clear();
    let decision = scene.at(130).pass();
    assert_eq!(
        decision.verdict.message,
        "suspended: Job 'shop-7-v1' runs nothing; its log is lost"
    );
    assert_eq!((decision.requeue_at, scene.status().disruptions), (None, 0));
    assert!(scene.at(400_000).pass().effects.is_empty());

    resume(&mut scene, 400_100);
    let decision = scene.pass();
    assert_eq!(suspends(&decision), [("shop-7-v1".to_owned(), false)]);
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::Progressing)
    );
    assert_eq!(
        decision.requeue_at,
        Some(at(400_700)),
        "a start as any other"
    );
    assert!(scene.pass().effects.is_empty());

    scene.job().resumed = Some(at(400_101));
    scene.at(400_110).pod(running(400_109));
    let decision = scene.pass();
    assert_eq!(decision.phase, RunPhase::Running);
    let status = scene.status();
    assert_eq!(
        status.progress.deadline_at,
        Some(Time(at(403_709))),
        "the whole time"
    );
    assert_eq!((status.attempts, status.disruptions), (1, 0));
}

#[test]
fn pods_from_before_the_resume_are_neither_evidence_nor_a_disruption() {
    let mut scene = Scene::running();
    suspend(&mut scene, 100);
    scene.pass();
    resume(&mut scene, 110);
    scene.pass();
    // The old Pod obeyed and exited with code 0. The controller reports when it resumed.
    stop(scene.pod(ended(0, 105, r#"{"answer": "half"}"#)), 101);
    scene.world.children.pods[0].created = Some(at(1));
    for resumed in [Timestamp::MAX, at(112)] {
        scene.job().resumed = Some(resumed);
        let decision = scene.at(113).pass();
        assert_eq!(
            said(&decision),
            (RunPhase::Pending, State::Working, Reason::Progressing)
        );
        assert_eq!(scene.status().disruptions, 0);
    }
    let mut next = scene.world.children.pods[0].clone();
    (next.stop_asked, next.stop_by) = (None, None);
    next.uid = "second".to_owned();
    next.created = Some(at(112));
    next.container = ended(0, 150, r#"{"answer": "whole"}"#);
    scene.world.children.pods.push(next);
    scene.at(152).complete();
    let decision = scene.pass();
    assert_eq!(decision.phase, RunPhase::Succeeded);
    let result = scene.status().result.clone().unwrap();
    assert_eq!(result.results["answer"], "whole");
    assert_eq!(scene.status().disruptions, 0);

    // With the old Pod alone, a complete Job proves nothing.
    scene.run.status.as_mut().unwrap().phase = Some(RunPhase::Pending);
    scene.run.status.as_mut().unwrap().result = None;
    scene.world.children.pods.pop();
    assert_eq!(scene.at(170).decide().verdict.reason, Reason::EvidenceLost);
}

#[test]
fn a_container_that_ended_by_itself_is_not_held_back() {
    for (code, phase) in [(0, RunPhase::Succeeded), (3, RunPhase::Failed)] {
        let mut scene = Scene::running();
        scene.at(51).pod(ended(code, 50, ""));
        suspend(&mut scene, 52);
        assert!(scene.pass().effects.is_empty(), "its end is on its way");
        if code == 0 {
            scene.complete();
        } else {
            scene.fail();
        }
        assert_eq!(scene.pass().phase, phase);
    }
    // If the Job was suspended a moment before, it still counts a container that had ended.
    let mut scene = Scene::running();
    suspend(&mut scene, 50);
    scene.pass();
    scene.at(51).pod(ended(0, 50, ""));
    scene.pass();
    scene.at(52).complete();
    assert_eq!(scene.pass().phase, RunPhase::Succeeded);
    // A program that ended because it was asked to is not counted, regardless of its exit code.
    let mut scene = Scene::running();
    suspend(&mut scene, 50);
    scene.pass();
    stop(scene.at(56).pod(ended(0, 55, "")), 51);
    assert_eq!(said(&scene.pass()), HELD);
    assert_eq!(scene.status().disruptions, 0);
}

#[test]
fn a_run_that_is_held_between_attempts_waits_without_a_job() {
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 2}}), json!({}));
    scene.at(60).pod(ended(3, 50, "sorry"));
    scene.fail();
    scene.pass();
    suspend(&mut scene, 61);
    let decision = scene.pass();
    assert_eq!(said(&decision), HELD);
    assert!(decision.effects.is_empty());
    let message = &decision.verdict.message;
    assert!(
        message.starts_with("suspended after attempt 1: "),
        "{message}"
    );
    assert!(message.contains("exited with code 3"), "{message}");
    assert!(scene.at(5000).pass().effects.is_empty());
    resume(&mut scene, 5001);
    let decision = scene.pass();
    assert_eq!(creates(&decision), [("Job", "shop-7-v1-a2".to_owned())]);

    // After a disruption, the same attempt continues.
    let mut scene = Scene::running();
    stop(scene.at(60).pod(ended(143, 50, "")), 40);
    scene.fail();
    scene.pass();
    suspend(&mut scene, 61);
    assert_eq!(said(&scene.pass()), HELD);
    resume(&mut scene, 70);
    let decision = scene.pass();
    assert_eq!(creates(&decision), [("Job", "shop-7-v1-d1".to_owned())]);
    assert_eq!(scene.status().attempts, 1);
}

#[test]
fn a_job_whose_record_waits_or_was_lost_is_held_all_the_same() {
    let mut scene = Scene::plain();
    for effect in &scene.decide().effects {
        scene.perform(effect);
    }
    suspend(&mut scene, 2);
    let decision = scene.pass();
    assert_eq!(said(&decision), HELD);
    assert_eq!(decision.defer_status_until, None);
    assert_eq!(suspends(&decision), [("shop-7-v1".to_owned(), true)]);
    assert_eq!(scene.status().job_name.as_deref(), Some("shop-7-v1"));
    assert_eq!(scene.status().attempts, 1);
}

#[test]
fn what_is_being_stopped_or_replaced_is_not_held_up() {
    // The attempt was already given up: it is stopped as usual.
    let mut scene = Scene::running();
    scene.at(3610).pass();
    suspend(&mut scene, 3611);
    assert_eq!(stops(&scene.pass()), ["Pod shop-7-v1-x"]);

    // Another actor deletes the Job while the run is suspended: it does not exist on resume.
    let mut scene = Scene::running();
    suspend(&mut scene, 100);
    scene.pass();
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    assert_eq!(scene.at(101).pass().verdict.reason, Reason::JobLost);
    scene.at(106).pass();
    assert_eq!(said(&scene.pass()), HELD);
    resume(&mut scene, 200);
    assert_eq!(creates(&scene.pass()), [("Job", "shop-7-v1-d1".to_owned())]);

    // Another version while the run is suspended: the old Job is deleted, the new one waits.
    let mut scene = Scene::running();
    suspend(&mut scene, 100);
    scene.pass();
    scene.supersede();
    scene.pass();
    assert_eq!(deletes(&scene.pass()), ["shop-7-v1"]);
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    assert_eq!(said(&scene.pass()), HELD);
    assert_eq!(
        scene.decide().verdict.message,
        "suspended before it was started"
    );
}

#[test]
fn a_cancel_before_the_start_ends_the_run_without_a_job() {
    let mut scene = Scene::plain();
    scene.run.spec.cancel = true;
    let decision = scene.pass();
    assert_eq!(said(&decision), CANCELLED);
    assert_eq!(
        decision.verdict.message,
        "cancelled by 'spec.cancel' before it was started"
    );
    assert!(decision.effects.is_empty());
    assert!(released(&decision).is_some());

    // Also while the run waits for its Agent, or is suspended.
    let mut waits = Scene::new(run(json!({})), None);
    waits.pass();
    cancel(&mut waits, 5);
    assert_eq!(said(&waits.pass()), CANCELLED);
    let mut held = Scene::plain();
    held.run.spec.suspend = true;
    held.pass();
    cancel(&mut held, 5);
    assert_eq!(said(&held.pass()), CANCELLED);
}

#[test]
fn a_cancel_during_an_attempt_stops_it_after_its_evidence_is_stored() {
    let unrecorded = || {
        let mut scene = Scene::plain();
        for effect in &scene.decide().effects {
            scene.perform(effect);
        }
        scene
    };
    let held = || {
        let mut scene = Scene::running();
        suspend(&mut scene, 50);
        scene.pass();
        scene
    };
    let moments = [
        ("unrecorded", unrecorded()),
        ("started", Scene::started()),
        (
            "running",
            Scene::running_with(json!({"retry": {"maxAttempts": 3}}), json!({})),
        ),
        ("held", held()),
    ];
    for (name, mut scene) in moments {
        cancel(&mut scene, 60);
        let decision = scene.pass();
        assert_eq!(decision.verdict.reason, Reason::Cancelled, "{name}");
        assert_eq!(decision.verdict.state, State::Working, "{name}");
        assert!(decision.effects.is_empty(), "{name}");
        assert_eq!(decision.defer_status_until, None, "{name}");
        let result = scene.status().result.clone().unwrap();
        assert_eq!(result.reason.as_deref(), Some("Cancelled"), "{name}");
        // A Job without a Pod has no log. A suspended one has no Pod, and someone might resume it.
        let decision = scene.pass();
        let (stopped, deleted): (&[&str], &[&str]) = match name {
            "running" => (&["Pod shop-7-v1-x"], &[]),
            "held" => (&[], &["shop-7-v1"]),
            _ => (&["Job shop-7-v1"], &[]),
        };
        assert_eq!(stops(&decision), stopped, "{name}");
        assert_eq!(deletes(&decision), deleted, "{name}");
        let lost = match name {
            "running" => {
                scene.at(90).stopped();
                ""
            }
            "held" => {
                scene.world.children.jobs.clear();
                scene.world.children.pods.clear();
                "; its log is lost"
            }
            _ => {
                scene.at(90).fail();
                ""
            }
        };
        let decision = scene.at(90).pass();
        assert_eq!(said(&decision), CANCELLED, "{name}");
        assert_eq!(
            decision.verdict.message,
            format!("cancelled by 'spec.cancel' during attempt 1{lost}"),
            "{name}"
        );
        assert!(decision.effects.is_empty(), "{name}: its log stays");
    }
}

#[test]
fn a_cancel_between_attempts_keeps_what_the_last_one_left() {
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 3}}), json!({}));
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    scene.pass();
    let mut missed = scene.clone();
    cancel(&mut scene, 61);
    let decision = scene.pass();
    assert_eq!(said(&decision), CANCELLED);
    assert_eq!(
        decision.verdict.message,
        "cancelled by 'spec.cancel' after attempt 1"
    );
    assert_eq!(scene.status().result.as_ref().unwrap().exit_code, Some(3));

    // The Job of the next attempt exists, and was not recorded: it is stopped.
    missed.at(70);
    for effect in &missed.decide().effects {
        missed.perform(effect);
    }
    cancel(&mut missed, 71);
    let decision = missed.pass();
    assert_eq!(decision.verdict.reason, Reason::Cancelled);
    assert_eq!(decision.status.attempts, 2);
    assert_eq!(stops(&missed.pass()), ["Job shop-7-v1-a2"]);

    // A failure that is not repeated keeps its reason.
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 3}}), json!({}));
    cancel(&mut scene, 59);
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    assert_eq!(
        said(&scene.pass()),
        (RunPhase::Failed, State::Failed, Reason::NonZeroExit)
    );
    // A disruption is no failure, and nothing follows it.
    let mut scene = Scene::running();
    stop(scene.at(60).pod(ended(143, 50, "")), 40);
    scene.fail();
    scene.pass();
    cancel(&mut scene, 61);
    assert_eq!(said(&scene.pass()), CANCELLED);
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.complete();
    scene.pass();
    cancel(&mut scene, 61);
    scene.run.spec.suspend = true;
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Succeeded, State::Succeeded, Reason::Succeeded)
    );
    assert!(decision.effects.is_empty());
    assert_eq!(scene.status().phase, Some(RunPhase::Succeeded));
    assert_eq!(scene.status().progress.observed_generation, 2);
}

#[test]
fn a_pod_that_was_made_just_before_its_job_says_it_was_resumed_counts() {
    let mut scene = Scene::running();
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    assert!(scene.job().suspended && scene.job().suspended_by_us);
    scene.world.children.pods.clear();
    scene.job().resumed = Some(Timestamp::MAX);
    scene.run.spec.suspend = false;
    scene.at(30).pass();
    scene.at(31).pod(running(31));
    scene.job().resumed = Some(at(32));
    assert_eq!(scene.at(33).pass().phase, RunPhase::Running);
    scene.pod(ended(0, 40, ""));
    scene.at(41).complete();
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);
}

/// Found by the plans `suspend/watch-pods=stale-2500` and `suspend/watch-pods=collapsed-2500`. The status reported the
/// run as running on the stopped Pod, and counted the stop as a disruption.
#[test]
fn a_pod_that_was_suspended_is_not_taken_for_a_running_one_by_an_old_view() {
    let mut scene = Scene::running();
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    let old = scene.world.children.pods[0].clone();
    assert_eq!(scene.job().stopped_pods, std::slice::from_ref(&old.uid));
    scene.job().resumed = Some(Timestamp::MAX);
    scene.run.spec.suspend = false;
    scene.at(30).pass();
    scene.job().resumed = Some(at(31));
    // The view of Pods is old: the Pod still seems to run.
    let decision = scene.at(32).pass();
    assert_eq!(decision.phase, RunPhase::Pending);
    assert!(decision.verdict.message.contains("which was suspended"));
    // Then the request to stop becomes visible, and then another Pod.
    stop(&mut scene.world.children.pods[0], 21);
    scene.at(33).pass();
    scene.pod(running(34));
    scene.at(35).pass();
    scene.world.children.pods.retain(|pod| pod.uid != old.uid);
    assert_eq!(scene.at(36).pass().phase, RunPhase::Running);
    assert_eq!(scene.status().disruptions, 0);
    scene.pod(ended(0, 40, ""));
    scene.at(41).complete();
    assert_eq!(scene.pass().phase, RunPhase::Succeeded);
}

/// Found by case 119 of `killing_the_operator_changes_nothing_in_the_end` with the seed 3641698924.
#[test]
fn a_suspension_whose_records_were_lost_is_no_disruption() {
    let mut scene = Scene::running();
    scene.at(15).pass();
    let old = scene.world.children.pods[0].uid.clone();
    assert_eq!(scene.status().pod.as_ref().unwrap().uid, old);
    for (second, suspend) in [(20, true), (30, false)] {
        scene.run.spec.suspend = suspend;
        scene.at(second);
        // The operator is killed after the effect.
        for effect in scene.decide().effects {
            scene.perform(&effect);
        }
        scene.job().resumed = Some(Timestamp::MAX);
    }
    assert!(!scene.job().suspended);
    scene.job().resumed = Some(at(31));
    stop(&mut scene.world.children.pods[0], 21);
    scene.at(32).pass();
    scene.world.children.pods.clear();
    scene.pod(running(34)).uid = "another".to_owned();
    assert_eq!(scene.at(36).pass().phase, RunPhase::Running);
    assert_eq!(scene.status().disruptions, 0);
}

#[test]
fn a_job_is_resumed_once_its_controller_has_stopped_it_and_the_wait_ends() {
    let mut scene = Scene::running();
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    scene.run.spec.suspend = false;
    let decision = scene.at(21).pass();
    assert!(suspends(&decision).is_empty(), "its Pod would go on");
    assert!(decision.verdict.message.contains("'shop-7-v1'"));
    assert_eq!(decision.requeue_at, Some(at(621)));
    scene.job().resumed = Some(Timestamp::MAX);
    let decision = scene.at(22).pass();
    assert_eq!(suspends(&decision), [("shop-7-v1".to_owned(), false)]);

    let mut scene = Scene::running();
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    scene.run.spec.suspend = false;
    scene.at(21).pass();
    let decision = scene.at(621).pass();
    assert_eq!(decision.verdict.reason, Reason::StartTimeout);
}

#[test]
fn the_jobs_own_limit_does_not_count_the_time_that_it_was_suspended() {
    let mut scene = Scene::running();
    scene.job().started = Some(at(0));
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    scene.world.children.pods.clear();
    scene.job().resumed = Some(Timestamp::MAX);
    scene.run.spec.suspend = false;
    scene.at(100_000).pass();
    // 10 minutes to start, an hour to run, and one more minute.
    assert_eq!(scene.job().limit_seconds, Some(100_000 + 600 + 3600 + 60));
}

#[test]
fn a_job_that_others_suspend_is_theirs_to_resume_and_the_wait_ends() {
    let mut scene = Scene::started();
    scene.job().suspended = true;
    let decision = scene.at(5).pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::Suspended)
    );
    assert!(decision.effects.is_empty());
    assert!(decision.verdict.message.contains("'shop-7-v1'"));
    let decision = scene.at(600).pass();
    assert_eq!(decision.verdict.reason, Reason::StartTimeout);
}

#[test]
fn a_held_pod_that_does_not_stop_is_named_after_the_resume() {
    let mut scene = Scene::running();
    scene.run.spec.suspend = true;
    scene.at(20).pass();
    stop(scene.pod(running(10)), 20);
    scene.job().resumed = Some(Timestamp::MAX);
    scene.run.spec.suspend = false;
    scene.at(30).pass();
    scene.job().resumed = Some(at(31));
    let message = scene.at(32).pass().verdict.message;
    assert!(message.contains("'node-1'"), "{message}");
    assert_eq!(scene.status().disruptions, 0);
}
