//! Several TaskRuns with the same `serviceName` and `taskId`.

use super::*;
use crate::run::holder::Holder;

fn held_by(name: &str, is_over: bool) -> Scene {
    let mut scene = Scene::plain();
    scene.world.holder = Some(Holder {
        name: name.to_owned(),
        is_over,
    });
    scene
}

#[test]
fn a_run_waits_for_the_run_that_holds_its_task() {
    for (is_over, says) in [(false, "already"), (true, "are kept")] {
        let mut scene = held_by("first", is_over);
        let decision = scene.decide();
        assert_eq!(decision.phase, RunPhase::Pending);
        assert_eq!(decision.verdict.reason, Reason::TaskTaken);
        let message = &decision.verdict.message;
        assert_eq!(api::messages::task_holder(message), Some("first"));
        assert!(message.contains(says), "{message}");
        assert!(decision.effects.is_empty());
        let until = decision.status.progress.deadline_at.clone().unwrap().0;
        assert!(decision.requeue_at.is_some_and(|at| at <= until));

        // It starts as soon as nothing holds the task.
        let mut free = scene.clone();
        free.pass();
        free.world.holder = None;
        assert!(!free.decide().effects.is_empty());

        scene.pass();
        scene.now = until;
        let decision = scene.decide();
        assert_eq!(decision.phase, RunPhase::Failed);
        assert_eq!(decision.verdict.reason, Reason::TaskTaken);
        assert!(decision.effects.is_empty());
    }
}

/// The names of the children of another run must not end an attempt.
#[test]
fn a_run_that_has_started_waits_for_nobody() {
    let mut scene = Scene::running();
    scene.world.holder = Some(Holder {
        name: "other".to_owned(),
        is_over: false,
    });
    assert_eq!(scene.decide().phase, RunPhase::Running);
}

#[test]
fn a_run_that_waits_can_be_cancelled_and_suspended() {
    let mut scene = held_by("first", false);
    scene.run.spec.suspend = true;
    assert_eq!(scene.decide().verdict.reason, Reason::Suspended);
    scene.run.spec.cancel = true;
    assert_eq!(scene.decide().verdict.reason, Reason::Cancelled);
}
