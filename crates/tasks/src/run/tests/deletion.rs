//! A run that is being deleted.

use api::{Reason, State, names, tasks::RunPhase};

use super::*;

fn deleted(mut scene: Scene, second: i64) -> Scene {
    scene.run.metadata.deletion_timestamp = Some(Time(at(second)));
    scene.at(second);
    scene
}

#[test]
fn what_runs_is_stopped_and_named_and_then_the_run_goes() {
    let mut scene = deleted(Scene::running(), 100);
    let before = scene.status().clone();
    let decision = scene.pass();
    assert_eq!(deletes(&decision), ["shop-7-v1"]);
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Working, Reason::Deleting)
    );
    assert_eq!(
        decision.verdict.message,
        "waiting for Job 'shop-7-v1', Pod 'shop-7-v1-x' on node 'node-1' to stop"
    );
    assert_eq!(
        (decision.finalizer.clone(), decision.requeue_at),
        (FinalizerAction::Keep, Some(at(700)))
    );
    assert_eq!(scene.status().started_at, before.started_at);

    let decision = scene.at(699).pass();
    assert!(decision.effects.is_empty(), "it is on its way");
    let decision = scene.at(700).pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Running, State::Stalled, Reason::DeletionBlocked)
    );
    for part in ["Job 'shop-7-v1'", "node 'node-1'", names::FORCE_DELETE] {
        assert!(decision.verdict.message.contains(part));
    }
    assert_eq!(decision.finalizer, FinalizerAction::Keep);

    scene.world.children.jobs.clear();
    assert_eq!(
        scene.decide().finalizer,
        FinalizerAction::Keep,
        "its Pod may still run"
    );
    scene.world.children.pods.clear();
    let decision = scene.decide();
    assert_eq!(released(&decision), Some(None));
    assert_eq!(decision.verdict.state, State::Working);
}

#[test]
fn all_jobs_of_the_run_are_stopped_and_no_others() {
    let mut scene = deleted(Scene::running(), 100);
    let mut second = scene.world.children.jobs[0].clone();
    second.name = "shop-7-v1-a2".to_owned();
    second.uid = "second".to_owned();
    let mut foreign = second.clone();
    foreign.owner_uid = Some("someone-else".to_owned());
    foreign.name = "theirs".to_owned();
    scene.world.children.jobs.extend([second, foreign]);
    assert_eq!(deletes(&scene.decide()), ["shop-7-v1", "shop-7-v1-a2"]);
}

#[test]
fn a_run_that_never_started_or_has_ended_goes_at_once() {
    let scene = deleted(Scene::plain(), 0);
    let decision = scene.decide();
    assert_eq!(released(&decision), Some(None));
    assert!(decision.effects.is_empty());

    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.complete();
    scene.pass();
    let scene = deleted(scene, 100);
    let decision = scene.decide();
    assert!(released(&decision).is_some());
    assert!(decision.effects.is_empty());
    assert_eq!(
        said(&decision),
        (RunPhase::Succeeded, State::Succeeded, Reason::Succeeded)
    );
}

#[test]
fn force_delete_lets_go_whatever_is_there() {
    let force = |value: &str| {
        let mut scene = deleted(Scene::running(), 100);
        let annotations = [(names::FORCE_DELETE.to_owned(), value.to_owned())];
        scene.run.metadata.annotations = Some(annotations.into());
        scene.decide()
    };
    assert_eq!(released(&force("true")), Some(None));
    assert!(force("true").effects.is_empty());
    assert_eq!(force("yes").finalizer, FinalizerAction::Keep);

    // Without a deletion, the annotation has no effect.
    let mut scene = Scene::running();
    let annotations = [(names::FORCE_DELETE.to_owned(), "true".to_owned())];
    scene.run.metadata.annotations = Some(annotations.into());
    assert_eq!(scene.decide().finalizer, FinalizerAction::Keep);
}
