//! An agent that is stopped from outside: evicted, preempted, drained, its Pod or Job deleted, its
//! node lost. A disruption uses no attempt, is counted once, and ends the run only at the sixth.

use api::{Reason, State, tasks::RunPhase};

use super::*;

const AGAIN: (RunPhase, State, Reason) = (RunPhase::Pending, State::Working, Reason::Disrupted);
const TOO_MANY: (RunPhase, State, Reason) =
    (RunPhase::Failed, State::Failed, Reason::TooManyDisruptions);

fn evicted_by(reason: &str) -> Option<Reported> {
    Some(Reported {
        reason: reason.to_owned(),
        message: "the words".to_owned(),
    })
}

/// Replaces the Pod of the newest Job.
fn replace(scene: &mut Scene, uid: &str, container: ContainerState) {
    let created = scene.now;
    let mut next = scene.pod(container).clone();
    next.uid = uid.to_owned();
    next.name = uid.to_owned();
    next.created = Some(created);
    scene.world.children.pods = vec![next];
}

/// Removes the newest Job with its Pods, until it counts as lost.
fn lose_job(scene: &mut Scene) -> RunDecision {
    let now = scene.now.as_second() - start().as_second();
    let name = scene.status().job_name.clone().unwrap();
    scene.world.children.jobs.retain(|job| job.name != name);
    scene.world.children.pods.clear();
    scene.pass();
    scene.at(now + 5).pass()
}

#[test]
fn who_stops_a_pod_is_named_and_counted_at_once() {
    let lost = "; its log is lost with it";
    for (who, log) in [
        ("EvictionByEvictionAPI", lost),
        ("PreemptionByScheduler", lost),
        ("DeletionByTaintManager", lost),
        // The kubelet does not delete the Pod.
        ("TerminationByKubelet", ""),
        ("DeletionByPodGC", lost),
    ] {
        let mut scene = Scene::running();
        scene.at(100).pod(running(10)).disruption = evicted_by(who);
        let decision = scene.pass();
        assert_eq!(
            said(&decision),
            (RunPhase::Running, State::Working, Reason::Disrupted)
        );
        let wanted = format!(
            "Pod 'shop-7-v1-x' on node 'node-1' is being terminated by another actor ({who}: the words){log}; waiting until it has ended"
        );
        assert_eq!(decision.verdict.message, wanted);
        let status = scene.status().clone();
        assert_eq!((status.disruptions, status.attempts), (1, 1));
        let pod = status.pod.clone().unwrap();
        assert_eq!(pod.disrupted_at, Some(Time(at(100))));
        // The next reconciliation changes nothing.
        scene.at(105).pass();
        assert_eq!(scene.status(), &status);
    }
}

#[test]
fn a_pod_that_its_job_replaces_is_one_disruption() {
    let mut scene = Scene::running();
    scene.at(100).pod(running(10)).disruption = evicted_by("EvictionByEvictionAPI");
    scene.pass();
    scene.pod(ended(143, 105, "")).disruption = evicted_by("EvictionByEvictionAPI");
    let decision = scene.at(106).pass();
    assert_eq!(said(&decision), AGAIN);
    assert!(
        decision
            .verdict
            .message
            .contains("waiting for its replacement")
    );
    assert_eq!(scene.status().started_at, None);
    scene.at(110);
    replace(&mut scene, "second", ContainerState::Unknown);
    scene.pass();
    scene.at(121);
    replace(&mut scene, "second", running(120));
    assert_eq!(scene.pass().phase, RunPhase::Running);
    let status = scene.status();
    assert_eq!((status.disruptions, status.attempts), (1, 1));
    assert_eq!(status.pod.as_ref().unwrap().uid, "second");
    assert_eq!(status.pod.as_ref().unwrap().disrupted_at, None);
    assert_eq!(status.job_name.as_deref(), Some("shop-7-v1"));

    // The same, if no operator saw it happen.
    let mut scene = Scene::running();
    scene.at(121);
    replace(&mut scene, "second", running(120));
    scene.pass();
    assert_eq!(scene.status().disruptions, 1);
    // A Pod that is only not seen is no disruption.
    let mut scene = Scene::running();
    scene.at(100).world.children.pods.clear();
    scene.pass();
    assert_eq!(scene.status().disruptions, 0);
    scene.at(101).pod(running(10));
    scene.pass();
    assert_eq!(scene.status().disruptions, 0);
}

#[test]
fn a_job_that_ended_with_a_stopped_pod_is_started_again() {
    // Exit code, whether the stop was seen before, and whether the Pod exists at the end.
    for code in [0, 143] {
        for was_seen in [true, false] {
            for is_there in [true, false] {
                let mut scene = Scene::running();
                if was_seen {
                    stop(scene.at(40).pod(running(10)), 39);
                    scene.pass();
                    assert_eq!(scene.status().disruptions, 1);
                }
                stop(scene.at(60).pod(ended(code, 50, "")), 39);
                if code == 0 {
                    scene.complete();
                } else {
                    scene.fail();
                }
                if !is_there {
                    scene.world.children.pods.clear();
                    scene.at(70);
                }
                let decision = scene.pass();
                let case = format!("code {code}, seen {was_seen}, there {is_there}");
                if !was_seen && !is_there {
                    let (phase, _, reason) = said(&decision);
                    assert_eq!((phase, reason), (RunPhase::Failed, Reason::EvidenceLost));
                    assert_eq!(scene.status().disruptions, 0, "{case}");
                    continue;
                }
                assert_eq!(said(&decision), AGAIN, "{case}");
                let message = &decision.verdict.message;
                assert!(
                    message.starts_with("Pod 'shop-7-v1-x' on node 'node-1' was terminated by another actor; its result is ignored")
                        && message.ends_with("started again without using an attempt (disruption 1 of at most 5)"),
                    "{case}: {message}"
                );
                let result = scene.status().result.clone().unwrap();
                assert_eq!(result.pod_name.as_deref(), Some("shop-7-v1-x"), "{case}");
                assert_eq!(result.started_at, Some(Time(at(10))), "{case}");

                let decision = scene.pass();
                let again = [("Job", "shop-7-v1-d1".to_owned())];
                assert_eq!(creates(&decision), again, "{case}");
                let status = scene.status();
                assert_eq!((status.attempts, status.disruptions), (1, 1), "{case}");
                assert_eq!((&status.result, &status.pod), (&None, &None), "{case}");
                assert_eq!(scene.world.children.jobs.len(), 2, "its logs are evidence");
            }
        }
    }
}

#[test]
fn a_pod_that_never_ran_can_be_disrupted_too() {
    let mut scene = Scene::started();
    stop(scene.at(5).pod(waiting("ContainerCreating", "")), 4);
    assert_eq!(said(&scene.pass()), AGAIN);
    assert_eq!(scene.status().disruptions, 1);
    scene.world.children.pods.clear();
    scene.at(8).fail();
    assert_eq!(said(&scene.pass()), AGAIN);
    assert_eq!(creates(&scene.pass()), [("Job", "shop-7-v1-d1".to_owned())]);
    assert_eq!(scene.status().disruptions, 1);
}

#[test]
fn a_job_that_was_deleted_is_made_again_when_its_pod_has_stopped() {
    let mut scene = Scene::running();
    // Foreground deletion: the Job exists until its Pod is deleted. It counts once.
    scene.at(100).job().deleting = Some(at(99));
    stop(scene.pod(running(10)), 99);
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::JobLost);
    assert!(
        decision
            .verdict
            .message
            .contains("is being deleted by another actor")
    );
    assert_eq!(scene.status().disruptions, 0);
    // Background deletion: the Pod outlives its Job.
    scene.world.children.jobs.clear();
    let decision = scene.at(101).pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::JobLost)
    );
    assert!(
        decision
            .verdict
            .message
            .contains("(disruption 1 of at most 5)")
    );
    let decision = scene.at(107).pass();
    assert!(decision.effects.is_empty(), "its Pod may still run");
    assert!(decision.verdict.message.contains("Pod 'shop-7-v1-x'"));
    scene.world.children.pods[0].container = ended(143, 110, "");
    let decision = scene.at(111).pass();
    assert_eq!(creates(&decision), [("Job", "shop-7-v1-d1".to_owned())]);
    assert_eq!(
        (scene.status().attempts, scene.status().disruptions),
        (1, 1)
    );

    // The record was lost: the next reconciliation finds the Job again.
    let mut scene = Scene::running();
    lose_job(&mut scene);
    for effect in &scene.decide().effects {
        scene.perform(effect);
    }
    let decision = scene.pass();
    assert!(decision.effects.is_empty());
    assert_eq!(decision.status.job_name.as_deref(), Some("shop-7-v1-d1"));
    assert_eq!(
        (scene.status().attempts, scene.status().disruptions),
        (1, 1)
    );
}

#[test]
fn attempts_and_disruptions_have_names_of_their_own() {
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 2}}), json!({}));
    lose_job(&mut scene);
    scene.pass();
    assert_eq!(scene.job().name, "shop-7-v1-d1");
    scene.at(100).pod(ended(1, 90, ""));
    scene.fail();
    scene.pass();
    scene.at(110).pass();
    assert_eq!(scene.job().name, "shop-7-v1-a2");
    assert_eq!(
        (scene.status().attempts, scene.status().disruptions),
        (2, 1)
    );
    // The last attempt is treated like any other.
    scene.at(120);
    lose_job(&mut scene);
    scene.pass();
    assert_eq!(scene.job().name, "shop-7-v1-a2-d2");
    assert_eq!(
        (scene.status().attempts, scene.status().disruptions),
        (2, 2)
    );
    // Another version begins without disruptions, and the history keeps the old number.
    scene.supersede();
    scene.pass();
    assert_eq!(scene.status().disruptions, 0);
    assert_eq!(scene.status().history[0].disruptions, 2);
}

#[test]
fn the_sixth_disruption_of_whichever_kind_ends_the_run() {
    // The last one is a lost Job, a Pod that ended its Job, or a Pod that its Job would replace.
    for last in 0..3 {
        let mut scene = Scene::running();
        let mut second = 100;
        for count in 1..=5_u32 {
            scene.at(second);
            match count {
                1 | 4 => {
                    lose_job(&mut scene);
                    scene.pass();
                }
                2 | 5 => {
                    stop(scene.pod(ended(0, second, "")), second - 1);
                    scene.complete();
                    scene.pass();
                    scene.pass();
                }
                _ => {
                    scene.pod(running(second)).disruption = evicted_by("EvictionByEvictionAPI");
                    scene.pass();
                    replace(&mut scene, "other", ContainerState::Unknown);
                    scene.pass();
                }
            }
            let status = scene.status();
            assert_eq!((status.disruptions, status.attempts), (count, 1));
            assert_eq!(status.phase, Some(RunPhase::Pending));
            second += 100;
        }
        scene.at(second);
        let decision = match last {
            0 => lose_job(&mut scene),
            1 => {
                stop(scene.pod(ended(0, second, "")), second - 1);
                scene.complete();
                scene.pass()
            }
            _ => {
                let pod = scene.pod(running(second));
                pod.disruption = evicted_by("EvictionByEvictionAPI");
                let decision = scene.pass();
                assert_eq!(decision.verdict.state, State::Working);
                assert_eq!(decision.verdict.reason, Reason::TooManyDisruptions);
                // The Job would replace the evicted Pod.
                assert_eq!(stops(&scene.pass()), ["Job shop-7-v1-d5"]);
                scene.world.children.jobs.clear();
                scene.world.children.pods.clear();
                scene.pass()
            }
        };
        assert_eq!(said(&decision), TOO_MANY, "{last}");
        let message = &decision.verdict.message;
        assert!(
            message.starts_with("the agent was terminated by another actor 6 times: "),
            "{message}"
        );
        assert_eq!(scene.status().disruptions, 6);
        assert!(scene.pass().effects.is_empty(), "nothing follows");
    }
}

#[test]
fn there_are_never_more_than_six() {
    let mut scene = Scene::running();
    scene.run.status.as_mut().unwrap().disruptions = 5;
    // The Pod that ran was replaced unseen, and the new one is already being stopped.
    scene.at(100);
    replace(&mut scene, "second", running(90));
    stop(&mut scene.world.children.pods[0], 99);
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::TooManyDisruptions);
    assert_eq!(scene.status().disruptions, 6);
    assert!(decision.verdict.message.contains("6 times"));
}

#[test]
fn a_lost_node_is_named_with_the_ways_out_when_the_grace_is_long_over() {
    for (container, phase) in [
        (running(10), RunPhase::Running),
        (waiting("ContainerCreating", ""), RunPhase::Pending),
    ] {
        let mut scene = Scene::running();
        stop(scene.at(100).pod(container), 100);
        let decision = scene.pass();
        assert_eq!(said(&decision), (phase, State::Working, Reason::Disrupted));
        assert!(!decision.verdict.message.contains("does not respond"));
        assert_eq!(
            decision.requeue_at,
            Some(at(160)),
            "grace and 30 seconds more"
        );
        assert!(
            !scene
                .at(159)
                .decide()
                .verdict
                .message
                .contains("does not respond")
        );
        let decision = scene.at(160).pass();
        let message = &decision.verdict.message;
        for part in [
            "node 'node-1' does not respond",
            "Node 'node-1' is deleted",
            "taint 'node.kubernetes.io/out-of-service'",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(decision.effects.is_empty(), "no second Pod");
        assert!(decision.requeue_at > Some(at(160)));
        let status = scene.status().clone();
        assert_eq!(status.disruptions, 1);
        scene.at(400).pass();
        assert_eq!(scene.status(), &status, "said once");
    }
    // Without a node, the message cannot name one.
    let mut scene = Scene::started();
    let pod = scene.at(100).pod(waiting("", ""));
    stop(pod, 10);
    pod.node = None;
    let message = scene.decide().verdict.message;
    assert!(
        message.contains("is being terminated by another actor, or with its namespace"),
        "{message}"
    );
}

#[test]
fn a_program_that_ended_before_it_was_told_to_stop_is_judged_by_its_end() {
    let mut scene = Scene::running();
    stop(scene.at(60).pod(ended(0, 50, "")), 51);
    scene.pass();
    scene.complete();
    assert_eq!(scene.pass().phase, RunPhase::Succeeded);
    assert_eq!(scene.status().disruptions, 0);
}

#[test]
fn a_deleted_job_whose_pod_was_seen_stopping_is_one_disruption() {
    let mut scene = Scene::running();
    scene.at(20).pod(running(10)).stop_asked = Some(at(20));
    scene.pass();
    assert_eq!(scene.status().disruptions, 1);
    scene.world.children.pods.clear();
    let decision = lose_job(&mut scene);
    assert_eq!(scene.status().disruptions, 1, "{decision:?}");
    assert_eq!(scene.status().attempts, 1);
}

#[test]
fn what_we_saw_stopping_did_not_succeed_whatever_the_kubelets_clock_says() {
    let mut scene = Scene::running();
    stop(scene.at(100).pod(running(10)), 100);
    scene.pass();
    stop(scene.pod(ended(0, 96, "")), 100);
    scene.at(101).complete();
    assert_eq!(scene.decide().verdict.reason, Reason::Disrupted);
}

#[test]
fn a_job_that_another_pod_completed_unseen_is_not_repeated() {
    // The evicted Pod still exists; the Pod that completed the Job does not.
    let mut scene = Scene::running();
    scene.at(50).pod(ended(143, 49, "")).disruption = evicted_by("EvictionByEvictionAPI");
    scene.pass();
    assert_eq!(scene.status().disruptions, 1);
    scene.at(200).complete();
    let mut alone = scene.clone();
    alone.world.children.pods.clear();
    for scene in [&mut scene, &mut alone] {
        scene.pass();
        let decision = scene.at(300).pass();
        assert_eq!(
            said(&decision),
            (RunPhase::Failed, State::Failed, Reason::EvidenceLost)
        );
    }
}

#[test]
fn a_view_of_pods_that_is_behind_counts_nothing() {
    let mut scene = Scene::running();
    scene.at(50).pod(ended(143, 49, "")).disruption = evicted_by("EvictionByEvictionAPI");
    scene.pass();
    let before = scene.world.children.pods.clone();
    scene.at(60);
    replace(&mut scene, "second", running(60));
    scene.at(61).pass();
    assert_eq!(scene.status().disruptions, 1);
    let mut behind = scene.clone();
    behind.world.children.pods = before;
    behind.at(62).pass();
    assert_eq!(behind.status().disruptions, 1);
}

#[test]
fn the_jobs_own_limit_leaves_its_replaced_pod_the_whole_time() {
    let mut scene = Scene::running();
    scene.job().started = Some(at(0));
    let decision = scene.pass();
    assert!(decision.effects.is_empty(), "it is enough in the calm case");
    scene.at(3000).pod(ended(143, 2999, "")).disruption = evicted_by("EvictionByEvictionAPI");
    scene.pass();
    assert_eq!(scene.job().limit_seconds, Some(3000 + 600 + 3600 + 60));
    scene.at(3010);
    replace(&mut scene, "second", running(3010));
    assert!(scene.at(3011).pass().effects.is_empty());

    // The same applies to a run with an extended timeout.
    scene.run.spec.timeout = Some(Duration::from_secs(10_000).into());
    scene.at(3012).pass();
    assert_eq!(scene.job().limit_seconds, Some(3010 + 10_000 + 60));
}

#[test]
fn a_job_that_was_taken_for_lost_and_comes_back_is_stopped() {
    let mut scene = Scene::running();
    let (jobs, pods) = (
        scene.world.children.jobs.clone(),
        scene.world.children.pods.clone(),
    );
    lose_job(&mut scene);
    scene.pass();
    assert_eq!(scene.job().name, "shop-7-v1-d1");
    scene.world.children.jobs.extend(jobs);
    scene.world.children.pods.extend(pods);
    let decision = scene.decide();
    // Two agents must not run at once, so its Job is limited. The attempt in progress needs no permission for that.
    let [effect @ Effect::Patch { target, patch, .. }] = decision.effects.as_slice() else {
        panic!("{:?}", decision.effects)
    };
    assert!(effect.is_optional());
    assert_eq!((target.resource.kind, &*target.name), ("Job", "shop-7-v1"));
    assert_eq!(patch["spec"]["activeDeadlineSeconds"], 1);

    // The limit of a Job deletes its active Pods, which this annotation forbids.
    scene.annotate(names::PRESERVE, "true");
    assert_eq!(stops(&scene.decide()), ["Pod shop-7-v1-x"]);
}
