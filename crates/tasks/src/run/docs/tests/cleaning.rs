//! Deletion at each step, and cleanup of the children after the end.

use api::{names, tasks::ChildTtl};

use super::*;

/// Returns a run at each step: before anything, with a record, with a Job, in each container, after
/// the Job.
fn each() -> Vec<(&'static str, Scene)> {
    let mut between = Scene::running_with(json!({}), json!({"retry": {"maxAttempts": 2}}));
    between.at(60).agent_container(ended(1, 50, ""));
    between.around.fail();
    between.pass();
    let mut stopping = Scene::running();
    stopping.at(3700).pass();
    vec![
        ("new", Scene::plain()),
        ("resolved", Scene::resolved(json!({}), json!({}))),
        ("started", Scene::started(json!({}), json!({}))),
        ("cloning", Scene::cloning()),
        ("running", Scene::running()),
        ("publishing", Scene::publishing()),
        ("between", between),
        ("stopping", stopping),
        ("verifying", Scene::verifying()),
    ]
}

#[test]
fn a_deletion_at_each_step_stops_what_runs_and_then_lets_go() {
    for (name, mut scene) in each() {
        let had_job = !scene.around.world.children.jobs.is_empty();
        let before = scene.run.status.clone();
        scene.at(4000).delete_run();
        assert_eq!(question(&scene.run), None, "{name}");
        let decision = scene.pass();
        assert!(creates(&decision).is_empty(), "{name}");
        if had_job {
            assert_eq!(deletes(&decision), [JOB], "{name}");
            assert_eq!(decision.finalizer, FinalizerAction::Keep, "{name}");
            assert_eq!(decision.requeue_at, Some(at(4600)), "{name}");
            let decision = scene.at(4001).pass();
            assert!(decision.effects.is_empty(), "{name}: once");
            // The deletion cannot hang silently.
            let mut stuck = scene.clone();
            let decision = stuck.at(4600).pass();
            assert_eq!(decision.verdict.state, State::Stalled, "{name}");
            assert_eq!(decision.verdict.reason, Reason::DeletionBlocked, "{name}");
            assert_has(&decision, &[JOB, names::FORCE_DELETE]);
            stuck.annotate(names::FORCE_DELETE, "true");
            assert_eq!(released(&stuck.pass()), Some(None), "{name}");
            scene.around.world.children.jobs.clear();
            scene.around.world.children.pods.clear();
        }
        let decision = scene.pass();
        assert_eq!(released(&decision), Some(None), "{name}: no outcome");
        assert!(decision.effects.is_empty(), "{name}");
        let kept = |status: &DocsRunStatus| (status.base_commit.clone(), status.commit.clone());
        assert_eq!(
            kept(&decision.status),
            kept(&before.unwrap_or_default()),
            "{name}"
        );
    }
    // With force, the run is released at once.
    for (name, mut scene) in each() {
        scene.at(4000).delete_run();
        scene.annotate(names::FORCE_DELETE, "true");
        assert_eq!(released(&scene.pass()), Some(None), "{name}");
    }
}

/// Returns a run that ended in the 61st second, with or without success.
fn over(is_success: bool) -> Scene {
    if !is_success {
        let mut scene = Scene::reported(&unchanged());
        scene.pass();
        return scene;
    }
    let mut scene = Scene::verifying();
    scene.pass();
    scene
        .server
        .heads
        .insert(BRANCH.to_owned(), PUSHED.to_owned());
    scene.reply();
    assert_said(&scene.pass(), SUCCEEDED);
    scene
}

const BOTH: [&str; 2] = [JOB, FILES];

type Case = (
    &'static str,
    bool,
    fn(&mut Scene),
    Option<(i64, &'static [&'static str])>,
);

fn keep(scene: &mut Scene, succeeded: u64, failed: u64) {
    scene.run.spec.child_ttl = Some(ChildTtl {
        succeeded: Some(Duration::from_secs(succeeded).into()),
        failed: Some(Duration::from_secs(failed).into()),
    });
}

#[test]
fn children_go_when_the_run_or_the_configuration_says() {
    let cases: &[Case] = &[
        ("configured", true, |_| {}, Some((361, &BOTH))),
        ("configured", false, |_| {}, Some((3661, &BOTH))),
        (
            "disabled",
            true,
            |scene| scene.around.world.defaults.cleanup.enabled = false,
            None,
        ),
        (
            "without files",
            true,
            |scene| scene.around.world.defaults.cleanup.delete_config_map = false,
            Some((361, &[JOB])),
        ),
        (
            "its own word",
            true,
            |scene| keep(scene, 7, 9),
            Some((68, &BOTH)),
        ),
        (
            "its own word",
            false,
            |scene| keep(scene, 7, 9),
            Some((70, &BOTH)),
        ),
        (
            "its own word over a disabled cleanup",
            true,
            |scene| {
                scene.around.world.defaults.cleanup.enabled = false;
                keep(scene, 7, 9);
            },
            Some((68, &BOTH)),
        ),
        (
            "preserved",
            true,
            |scene| {
                scene.annotate(names::PRESERVE, "true");
                keep(scene, 0, 0);
            },
            None,
        ),
    ];
    for (name, is_success, change, expected) in cases {
        let mut scene = over(*is_success);
        change(&mut scene);
        let status = scene.status().clone();
        let Some((second, names)) = expected else {
            let decision = scene.at(900_000).pass();
            assert!(
                decision.effects.is_empty() && decision.requeue_at.is_none(),
                "{name}"
            );
            continue;
        };
        let decision = scene.at(second - 1).pass();
        assert!(decision.effects.is_empty(), "{name}");
        assert_eq!(decision.requeue_at, Some(at(*second)), "{name}");
        let decision = scene.at(*second).pass();
        assert_eq!(deletes(&decision), *names, "{name}");
        scene.around.world.children.jobs.clear();
        let decision = scene.at(second + 60).pass();
        assert!(creates(&decision).is_empty(), "{name}: what ended is over");
        assert_eq!(scene.status(), &status, "{name}");
    }
}

/// S0.9: for every setting of the cleanup, and every change in between, the Job is created and
/// ends.
#[test]
fn a_cleanup_that_changes_in_between_never_interferes() {
    for enabled in [[true, true], [true, false], [false, true], [false, false]] {
        let mut scene = Scene::plain();
        scene.around.world.defaults.cleanup.enabled = enabled[0];
        scene.around.world.defaults.cleanup.after_success = Duration::ZERO;
        scene.pass();
        scene.reply();
        scene.pass();
        assert_eq!(creates(&scene.pass()).len(), 2, "{enabled:?}");
        scene.around.world.defaults.cleanup.enabled = enabled[1];
        scene.at(11).agent_container(running(10));
        assert!(scene.settle().effects.is_empty());
        scene.publish_ends(0, &pushed().write());
        scene.pass();
        assert!(
            scene.settle().effects.is_empty(),
            "not before it is verified"
        );
        scene
            .server
            .heads
            .insert(BRANCH.to_owned(), PUSHED.to_owned());
        scene.reply();
        let decision = scene.pass();
        assert_said(&decision, SUCCEEDED);
        assert!(decision.effects.is_empty(), "not before its end is stored");
        let expected: &[&str] = if enabled[1] { &BOTH } else { &[] };
        assert_eq!(deletes(&scene.pass()), expected, "{enabled:?}");
    }
}

#[test]
fn a_finished_run_goes_itself_when_the_configuration_says() {
    let mut scene = over(true);
    scene.around.world.defaults.delete_finished_runs_after = Some(Duration::from_secs(3600));
    scene.around.world.defaults.cleanup.enabled = false;
    assert_eq!(scene.at(3660).pass().requeue_at, Some(at(3661)));
    let decision = scene.at(3661).pass();
    assert_eq!(deletes(&decision), ["shop"]);
    assert!(scene.is_gone);
}

#[test]
fn deleting_a_finished_run_is_free() {
    let mut scene = over(true);
    scene.at(70).delete_run();
    let decision = scene.pass();
    assert!(decision.effects.is_empty());
    assert!(released(&decision).is_some());
}
