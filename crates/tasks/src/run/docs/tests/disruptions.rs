//! A Pod that is stopped from outside, or suspended, in each of its containers.

use super::*;
use crate::view::Reported;

/// Returns the run with its Pod in each of the containers.
fn each() -> [(&'static str, Scene); 3] {
    [
        ("clone", Scene::cloning()),
        ("agent", Scene::running()),
        ("publish", Scene::publishing()),
    ]
}

fn evicted() -> Option<Reported> {
    Some(Reported {
        reason: "EvictionByEvictionAPI".to_owned(),
        message: "the words".to_owned(),
    })
}

/// Ends the existing Pod after it was asked to stop.
fn end_pod(scene: &mut Scene, code: i32) {
    let second = scene.now().as_second() - start().as_second();
    let pod = scene.around.world.children.pods.last_mut().unwrap();
    pod.container = ended(code, second, "");
    pod.phase = crate::view::PodPhase::Failed;
}

/// Lets the Job replace its Pod. The new Pod clones again.
fn replace(scene: &mut Scene, uid: &str) {
    scene.around.world.children.pods.clear();
    let pod = scene.clone_container(waiting(PREPARING, ""));
    (pod.uid, pod.name) = (uid.to_owned(), uid.to_owned());
}

#[test]
fn a_pod_that_is_evicted_is_replaced_without_using_an_attempt() {
    for (name, mut scene) in each() {
        scene.at(100).around.world.children.pods[0].disruption = evicted();
        let decision = scene.pass();
        assert_eq!(decision.verdict.reason, Reason::Disrupted, "{name}");
        assert_eq!(
            (scene.status().disruptions, scene.status().attempts),
            (1, 1),
            "{name}"
        );
        assert_settled(&scene);
        end_pod(&mut scene, 143);
        scene.at(105).pass();
        scene.at(110);
        replace(&mut scene, "second");
        let decision = scene.pass();
        assert_said(
            &decision,
            (RunPhase::Pending, State::Working, Reason::Cloning),
        );
        let status = scene.status();
        assert_eq!((status.disruptions, status.attempts), (1, 1), "{name}");
        assert_eq!(
            (&status.commit, &status.started_at),
            (&None, &None),
            "{name}"
        );
        assert_eq!(status.job_name.as_deref(), Some(JOB), "{name}");

        // The second Pod finds the commit that the first may have pushed.
        let report = found().write();
        let pod = scene.at(161).publish_container(ended(0, 160, &report), "");
        pod.uid = "second".to_owned();
        scene
            .around
            .world
            .children
            .pods
            .retain(|pod| pod.uid == "second");
        scene.around.complete();
        assert_eq!(scene.pass().verdict.reason, Reason::Verifying, "{name}");
        scene.pass();
        scene
            .server
            .heads
            .insert(BRANCH.to_owned(), PUSHED.to_owned());
        scene.reply();
        assert_said(&scene.pass(), SUCCEEDED);
        assert_eq!(
            (scene.status().disruptions, scene.status().attempts),
            (1, 1),
            "{name}"
        );
    }
}

#[test]
fn a_job_that_ended_with_a_deleted_pod_is_made_again_with_the_same_intent() {
    for (name, mut scene) in each() {
        let intent = api::tasks::push_intent(scene.status());
        stop(&mut scene.at(100).around.world.children.pods[0], 99);
        scene.pass();
        end_pod(&mut scene, 143);
        scene.at(105).around.fail();
        let decision = scene.pass();
        assert_said(
            &decision,
            (RunPhase::Pending, State::Working, Reason::Disrupted),
        );
        let decision = scene.pass();
        assert_eq!(
            creates(&decision),
            [("Job", "shop-docs-d1".to_owned())],
            "{name}"
        );
        let Effect::Ensure(manifest) = &decision.effects[0] else {
            panic!("{decision:?}")
        };
        assert_eq!(manifest.requires_intent, intent, "{name}");
        assert_eq!(
            (scene.status().disruptions, scene.status().attempts),
            (1, 1),
            "{name}"
        );
        assert_settled(&scene);
    }
}

#[test]
fn the_sixth_ends_the_run_and_says_whether_it_may_have_pushed() {
    for (name, mut scene) in each() {
        scene.run.status.as_mut().unwrap().disruptions = 5;
        stop(&mut scene.at(100).around.world.children.pods[0], 99);
        let mut ended_unseen = scene.clone();
        let decision = scene.pass();
        assert_eq!(
            decision.verdict.reason,
            Reason::TooManyDisruptions,
            "{name}"
        );
        assert_eq!(stops(&scene.pass()), [format!("Job {JOB}")], "{name}");
        scene.around.world.children.jobs.clear();
        scene.around.world.children.pods.clear();
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::TooManyDisruptions));
        // Five Pods were stopped before this one, at unknown steps.
        assert_has(&decision, &[DOUBT]);
        assert_eq!(scene.status().disruptions, 6);
        assert!(scene.settle().effects.is_empty(), "nothing follows");

        // The same, if the Job reports the end first.
        end_pod(&mut ended_unseen, 143);
        ended_unseen.around.fail();
        let decision = ended_unseen.pass();
        assert_said(&decision, failed(Reason::TooManyDisruptions));
        assert_has(&decision, &[DOUBT]);
    }
}

#[test]
fn a_job_that_was_deleted_is_made_again() {
    for (name, mut scene) in each() {
        scene.around.world.children.jobs.clear();
        scene.around.world.children.pods.clear();
        assert_eq!(
            scene.at(100).pass().verdict.reason,
            Reason::JobLost,
            "{name}"
        );
        let decision = scene.pass();
        assert_eq!(
            creates(&decision),
            [("Job", "shop-docs-d1".to_owned())],
            "{name}"
        );
        assert_eq!(
            (scene.status().disruptions, scene.status().attempts),
            (1, 1),
            "{name}"
        );
    }
    // The files are also created again, if they were deleted too.
    let mut scene = Scene::running();
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    scene.around.world.children.config_maps.clear();
    scene.at(100).pass();
    assert_eq!(creates(&scene.pass()).len(), 2);
}

#[test]
fn a_job_that_was_lost_for_the_sixth_time_may_have_pushed() {
    let mut scene = Scene::publishing();
    scene.run.status.as_mut().unwrap().disruptions = 5;
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    let decision = scene.at(100).pass();
    assert_said(&decision, failed(Reason::TooManyDisruptions));
    assert_has(&decision, &[DOUBT]);
}

#[test]
fn a_suspend_stops_the_pod_in_each_container_and_the_attempt_runs_again() {
    for (name, mut scene) in each() {
        let intent = api::tasks::push_intent(scene.status());
        scene.at(100).edit(|spec| spec.suspend = true);
        let decision = scene.pass();
        assert_said(
            &decision,
            (RunPhase::Pending, State::Working, Reason::Suspended),
        );
        assert_eq!(suspends(&decision), [(JOB.to_owned(), true)], "{name}");
        assert_eq!(
            scene.status().progress.deadline_at,
            None,
            "{name}: no time counts"
        );
        assert_eq!(question(&scene.run), None, "{name}");
        assert_settled(&scene);
        stop(&mut scene.around.world.children.pods[0], 101);
        scene.around.job().resumed = Some(Timestamp::MAX);
        scene.at(102).pass();
        scene.around.world.children.pods.clear();
        scene.at(130).pass();
        assert_eq!(scene.status().disruptions, 0, "{name}: that was us");

        scene.at(5000).edit(|spec| spec.suspend = false);
        let decision = scene.pass();
        assert_eq!(suspends(&decision), [(JOB.to_owned(), false)], "{name}");
        assert_eq!(
            scene.status().progress.deadline_at,
            Some(Time(at(5600))),
            "{name}"
        );
        assert_eq!(api::tasks::push_intent(scene.status()), intent, "{name}");
        assert_eq!(scene.status().attempts, 1, "{name}");
        // The run may have pushed before. Then the push is found.
        let report = found().write();
        scene.around.job().resumed = Some(at(5001));
        let pod = scene
            .at(5061)
            .publish_container(ended(0, 5060, &report), "");
        pod.main_exit.as_mut().unwrap().started = Some(at(5010));
        pod.created = Some(at(5002));
        scene.around.complete();
        assert_eq!(scene.pass().verdict.reason, Reason::Verifying, "{name}");
        assert_eq!(scene.status().disruptions, 0, "{name}");
    }
}

#[test]
fn what_ended_while_it_was_held_is_judged() {
    let mut scene = Scene::reported(&pushed());
    scene.edit(|spec| spec.suspend = true);
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Verifying);
    assert!(decision.effects.is_empty());
}

#[test]
fn a_lost_node_is_named_and_nothing_else_is_started() {
    for (name, mut scene) in each() {
        stop(&mut scene.at(100).around.world.children.pods[0], 100);
        scene.pass();
        let decision = scene.at(160).pass();
        assert_has(
            &decision,
            &["node 'node-1' does not respond", "out-of-service"],
        );
        assert!(decision.effects.is_empty(), "{name}");
        assert_eq!(scene.status().disruptions, 1, "{name}");
        assert_settled(&scene);
    }
}
