//! Logs that are lost with an eviction, a disruption, a suspension or a deletion by another actor. The status reports
//! the loss in the same words, and only if it is known.

use super::*;

fn reported(reason: &str) -> Option<Reported> {
    Some(Reported {
        reason: reason.to_owned(),
        message: "the words".to_owned(),
    })
}

/// Returns a run after the kubelet failed its Pod for this reason. The Job failed.
fn failed_for(reason: &str, mut scene: Scene, container: ContainerState) -> Scene {
    let pod = scene.at(60).pod(container);
    (pod.phase, pod.failure) = (PodPhase::Failed, reported(reason));
    scene.fail();
    scene
}

/// Returns a run with a disrupted Pod.
fn disrupted_by(actor: &str, mut scene: Scene, container: ContainerState) -> Scene {
    scene.at(60).pod(container).disruption = reported(actor);
    scene
}

/// Returns a container without times of its end. The kubelet reports it so if the container no longer exists.
fn forgotten() -> ContainerState {
    ContainerState::Ended(Exit {
        code: 137,
        reason: "ContainerStatusUnknown".to_owned(),
        ..Exit::default()
    })
}

/// Returns a run after its Pod was deleted in the 40th second, and then its Job failed. Without the times of the Pod, only
/// the status shows that the container had started.
fn pod_deleted(mut scene: Scene, containers: [ContainerState; 2]) -> Scene {
    for (second, container) in [40, 51].into_iter().zip(containers) {
        stop(scene.at(second).pod(container), 39);
        scene.pass();
    }
    scene.world.children.pods.clear();
    scene.at(60).fail();
    scene
}

/// Returns a run without its Job and Pods, which no longer exist.
fn without_job(mut scene: Scene) -> Scene {
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    scene
}

/// Returns a run after its Pod was deleted and its Job failed for this reason.
fn without_pod(reason: &str) -> Scene {
    let mut scene = Scene::running();
    scene.at(60).world.children.pods.clear();
    scene.fail_for(reason, "the words");
    scene.at(70);
    scene
}

/// Returns a run that was suspended in the 60th second.
fn suspended(mut scene: Scene) -> Scene {
    scene.at(60).edit(|spec| spec.suspend = true);
    scene
}

/// Returns the same after its Pod was deleted.
fn suspended_and_stopped(scene: Scene) -> Scene {
    let mut scene = suspended(scene);
    scene.pass();
    scene.world.children.pods.clear();
    scene.at(95);
    scene
}

fn starting() -> Scene {
    let mut scene = Scene::started();
    scene.at(5).pod(waiting("ContainerCreating", ""));
    scene.pass();
    scene
}

type Situation = fn() -> Scene;

/// Situations, and the message of the next reconciliation.
const CASES: &[(&str, Situation, &str)] = &[
    (
        "evicted by the kubelet",
        || failed_for("Evicted", Scene::running(), ended(137, 50, "")),
        "Pod 'shop-7-v1-x' on node 'node-1': the agent exited with code 137 (signal 9); its log is lost",
    ),
    (
        "evicted by the kubelet, without an end of the container",
        || failed_for("Evicted", Scene::running(), running(10)),
        "Pod 'shop-7-v1-x' on node 'node-1' failed (Evicted): the words; its log is lost",
    ),
    (
        "evicted by the kubelet, without a state of the container",
        || failed_for("Evicted", Scene::running(), ContainerState::Unknown),
        "Pod 'shop-7-v1-x' on node 'node-1' failed (Evicted): the words; its log is lost",
    ),
    (
        "preempted by the kubelet",
        || failed_for("Preempting", Scene::running(), ContainerState::Unknown),
        "Pod 'shop-7-v1-x' on node 'node-1' failed (Preempting): the words; its log is lost",
    ),
    (
        "evicted by the kubelet before the start",
        || failed_for("Evicted", starting(), ContainerState::Unknown),
        "Pod 'shop-7-v1-x' on node 'node-1' failed before its container started (Evicted): the words",
    ),
    (
        "evicted by the kubelet, without the times of the container",
        || {
            let mut scene = disrupted_by("TerminationByKubelet", Scene::running(), forgotten());
            scene.world.children.pods[0].failure = reported("Evicted");
            scene
        },
        "Pod 'shop-7-v1-x' on node 'node-1' was terminated by another actor (TerminationByKubelet: the words); its log is lost; waiting for its replacement",
    ),
    (
        "stopped by the kubelet, because the node shuts down",
        || {
            let container = ended(143, 59, "");
            let mut scene = disrupted_by("TerminationByKubelet", Scene::running(), container);
            scene.world.children.pods[0].failure = reported("Terminated");
            scene
        },
        "Pod 'shop-7-v1-x' on node 'node-1' was terminated by another actor (TerminationByKubelet: the words); waiting for its replacement",
    ),
    (
        "evicted through the API",
        || disrupted_by("EvictionByEvictionAPI", Scene::running(), running(10)),
        "Pod 'shop-7-v1-x' on node 'node-1' is being terminated by another actor (EvictionByEvictionAPI: the words); its log is lost with it; waiting until it has ended",
    ),
    (
        "preempted before the start",
        || {
            let container = waiting("ContainerCreating", "");
            disrupted_by("PreemptionByScheduler", starting(), container)
        },
        "Pod 'shop-7-v1-x' on node 'node-1' is being terminated by another actor (PreemptionByScheduler: the words); waiting until it has ended",
    ),
    (
        "on a lost node",
        || {
            let mut scene = Scene::running();
            stop(scene.at(100).pod(running(10)), 100);
            scene.at(160);
            scene
        },
        "Pod 'shop-7-v1-x' on node 'node-1' was asked to stop and has not stopped: node 'node-1' does not respond; its log is lost with it. Another Pod starts when the node is back and has stopped it, when Node 'node-1' is deleted, or when it has the taint 'node.kubernetes.io/out-of-service'",
    ),
    (
        "the Pod was deleted",
        || pod_deleted(Scene::running(), [running(10), ended(143, 50, "")]),
        "Pod 'shop-7-v1-x' on node 'node-1' was terminated by another actor; its result is ignored; its log is lost; it is started again without using an attempt (disruption 1 of at most 5)",
    ),
    (
        "the Pod was deleted before the start",
        || {
            let container = || waiting("ContainerCreating", "");
            pod_deleted(starting(), [container(), container()])
        },
        "Pod 'shop-7-v1-x' on node 'node-1' was terminated by another actor; its result is ignored; it is started again without using an attempt (disruption 1 of at most 5)",
    ),
    (
        "the Pod no longer exists",
        || without_pod("BackoffLimitExceeded"),
        "Job 'shop-7-v1' failed, but its Pod no longer exists; its log is lost",
    ),
    (
        "the Job's own limit was reached",
        || without_pod("DeadlineExceeded"),
        "the Job's own limit was reached: the words; its log is lost",
    ),
    (
        "the Job was deleted",
        || without_job(Scene::running()),
        "Job 'shop-7-v1' was deleted by another actor before its result was read; its log is lost; it is started again without using an attempt (disruption 1 of at most 5)",
    ),
    (
        "the Job was deleted, and its Pod is not yet",
        || {
            let mut scene = Scene::running();
            scene.world.children.jobs.clear();
            scene
        },
        "Job 'shop-7-v1' was deleted by another actor before its result was read; its log is lost; it is started again without using an attempt (disruption 1 of at most 5)",
    ),
    (
        "the Job was deleted before the start",
        || without_job(starting()),
        "Job 'shop-7-v1' was deleted by another actor before its result was read; it is started again without using an attempt (disruption 1 of at most 5)",
    ),
    (
        "the sixth Job was deleted",
        || {
            let mut scene = without_job(Scene::running());
            scene.run.status.as_mut().unwrap().disruptions = 5;
            scene
        },
        "the agent was terminated by another actor 6 times: Job 'shop-7-v1' was deleted by another actor before its result was read; its log is lost",
    ),
    (
        "the sixth Pod is being deleted",
        || {
            let mut scene = Scene::running();
            stop(scene.at(100).pod(running(10)), 100);
            scene.run.status.as_mut().unwrap().disruptions = 5;
            scene
        },
        "the agent was terminated by another actor 6 times: the last time it was Pod 'shop-7-v1-x'; its log is lost; stopping Job 'shop-7-v1'",
    ),
    (
        "suspended",
        || suspended(Scene::running()),
        "suspended: waiting for Pod 'shop-7-v1-x' on node 'node-1' to stop; its log is lost with it",
    ),
    (
        "suspended, and the Pod was deleted",
        || suspended_and_stopped(Scene::running()),
        "suspended: Job 'shop-7-v1' runs nothing; its log is lost",
    ),
    (
        "suspended before the start",
        || suspended(starting()),
        "suspended: waiting for Pod 'shop-7-v1-x' on node 'node-1' to stop",
    ),
    (
        "suspended before the start, and the Pod was deleted",
        || suspended_and_stopped(starting()),
        "suspended: Job 'shop-7-v1' runs nothing",
    ),
    (
        "cancelled while it was suspended",
        || {
            let mut scene = suspended_and_stopped(Scene::running());
            scene.pass();
            scene.edit(|spec| spec.cancel = true);
            scene
        },
        "cancelled by 'spec.cancel' during attempt 1; its log is lost; stopping Job 'shop-7-v1'",
    ),
    (
        "stopped at its deadline",
        || {
            let mut scene = Scene::running();
            scene.at(3610).pass();
            scene.pass();
            scene.at(3620).stopped();
            scene
        },
        "Pod 'shop-7-v1-x' on node 'node-1': the agent did not end within 1h",
    ),
    (
        "stopped at its deadline, and its Job was deleted",
        || {
            let mut scene = Scene::running();
            scene.at(3610).pass();
            scene.pass();
            without_job(scene)
        },
        "Pod 'shop-7-v1-x' on node 'node-1': the agent did not end within 1h; its log is lost",
    ),
];

#[test]
fn a_lost_log_is_reported_in_the_same_words_and_only_if_it_is_known() {
    for (name, situation, wanted) in CASES {
        let mut scene = situation();
        assert_eq!(scene.pass().verdict.message, *wanted, "{name}");
        // During the attempt, the next reconciliation has the same message. Another one would be a write.
        if scene.status().result.is_none() {
            assert_eq!(scene.pass().verdict.message, *wanted, "{name}: again");
        }
    }
}
