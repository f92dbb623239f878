//! Stops that meet a difficulty: a rejection, an outage of the operator, a container that something injected.

use api::{Reason, State, decide::ErrorClass, tasks::RunPhase};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;

const CANCELLED: (RunPhase, State, Reason) = (RunPhase::Failed, State::Failed, Reason::Cancelled);

/// Cancels the run in this second.
fn cancel(scene: &mut Scene, second: i64) {
    scene.at(second).edit(|spec| spec.cancel = true);
}

/// An installation whose role or policy does not allow the limit of a Pod still stops the agent. Its log is lost, and
/// the status says so.
#[test]
fn a_pod_whose_limit_is_refused_is_stopped_through_its_job() {
    let refused = ReconcileError::new(
        ErrorClass::Denied,
        Reason::Denied,
        "the operator lacks the permission for patch pods 'shop-7-v1-x'",
    );
    for is_preserved in [false, true] {
        let mut scene = Scene::running();
        if is_preserved {
            scene.annotate(names::PRESERVE, "true");
        }
        cancel(&mut scene, 60);
        scene.pass();
        assert_eq!(stops(&scene.decide()), ["Pod shop-7-v1-x"]);
        // It may be a rejection that passes: the limit is tried again for a minute.
        let decision = scene.at(119).decide_refused(&refused);
        assert!(decision.effects.is_empty());
        assert_eq!(decision.requeue_at, Some(at(129)));
        let decision = scene.at(120).decide_refused(&refused);
        let stopped: &[&str] = if is_preserved {
            &[]
        } else {
            &["Job shop-7-v1"]
        };
        assert_eq!(stops(&decision), stopped);
        assert_eq!(decision.effects.len(), stopped.len());
        let message = &decision.verdict.message;
        assert!(
            message.ends_with("for patch pods 'shop-7-v1-x'"),
            "{message}"
        );
        // Nothing is deleted that is preserved. The wait for its end is bounded, and the message names the Pod.
        if is_preserved {
            let decision = scene.at(660).decide_refused(&refused);
            assert_eq!(said(&decision), CANCELLED);
            let message = &decision.verdict.message;
            assert!(
                message.contains("could not be stopped within 10m"),
                "{message}"
            );
            assert!(
                message.contains("Pod 'shop-7-v1-x' on node 'node-1'"),
                "{message}"
            );
            assert!(decision.effects.is_empty());
            continue;
        }
        // The Job controller deletes the Pod.
        scene.world.children.pods.clear();
        scene.fail_for("DeadlineExceeded", "the words");
        let decision = scene.pass();
        assert_eq!(
            decision.verdict.message,
            "cancelled by 'spec.cancel' during attempt 1; its log is lost"
        );
    }
}

/// The operator was down for hours between the record and the stop. The Pod gets its time nevertheless.
#[test]
fn a_stop_that_begins_late_has_its_whole_time() {
    let mut scene = Scene::running();
    cancel(&mut scene, 60);
    scene.pass();
    // The new deadline is stored before the stop: the operator may be killed after it.
    assert!(scene.at(9000).pass().effects.is_empty());
    let decision = scene.decide();
    assert_eq!(stops(&decision), ["Pod shop-7-v1-x"]);
    decision
        .effects
        .iter()
        .for_each(|effect| scene.perform(effect));
    let decision = scene.at(9001).pass();
    assert!(!decision.is_end() && decision.effects.is_empty());
    assert_eq!(decision.requeue_at, Some(at(9600)));
    assert_eq!(said(&scene.at(9600).pass()), CANCELLED);
}

/// A rejection may pass, however long a start may take.
#[test]
fn an_earlier_version_whose_limit_is_refused_is_stopped_after_a_minute() {
    let refused = ReconcileError::new(ErrorClass::Denied, Reason::Denied, "the words");
    for start_timeout in ["5m", "1h"] {
        let mut scene = Scene::running_with(json!({}), json!({ "startTimeout": start_timeout }));
        scene.at(100).supersede();
        scene.pass();
        assert_eq!(stops(&scene.decide()), ["Pod shop-7-v1-x"]);
        let decision = scene.at(159).decide_refused(&refused);
        assert!(decision.effects.is_empty(), "{start_timeout}");
        assert_eq!(decision.requeue_at, Some(at(169)), "{start_timeout}");
        let decision = scene.at(160).decide_refused(&refused);
        assert_eq!(stops(&decision), ["Job shop-7-v1"], "{start_timeout}");
    }
}

/// The operator was killed after it stopped the Pod of an earlier version. The Pod gets its time nevertheless.
#[test]
fn a_kill_after_the_stop_of_an_earlier_version_takes_no_time_from_it() {
    let mut scene = Scene::running_with(json!({}), json!({ "startTimeout": "30s" }));
    scene.at(100).supersede();
    scene.pass();
    // The deadline is stored before the stop.
    let deadline = scene.status().progress.deadline_at.clone();
    assert_eq!(deadline, Some(Time(at(400))));
    let decision = scene.decide();
    assert_eq!(stops(&decision), ["Pod shop-7-v1-x"]);
    decision
        .effects
        .iter()
        .for_each(|effect| scene.perform(effect));
    let decision = scene.at(399).pass();
    assert!(!decision.is_end() && decision.effects.is_empty());
    let expected = (RunPhase::Failed, State::Failed, Reason::StartTimeout);
    assert_eq!(said(&scene.at(400).pass()), expected);
}

/// Another component may inject a container that outlives the agent.
#[test]
fn a_pod_that_only_a_sidecar_keeps_running_is_stopped() {
    let outlived = |second: i64| {
        let mut scene = Scene::running();
        scene.at(second).pod(ended(0, 50, "")).phase = PodPhase::Running;
        scene
    };
    // The kubelet reports the end of the Pod a moment after that of the agent.
    let mut scene = outlived(51);
    cancel(&mut scene, 52);
    assert!(scene.pass().effects.is_empty());
    assert_eq!(scene.status().result, None);
    let decision = scene.at(81).pass();
    assert_eq!(decision.verdict.reason, Reason::Cancelled);
    let message = &decision.verdict.message;
    assert!(
        message.contains("runs on although the agent has ended"),
        "{message}"
    );
    assert_eq!(stops(&scene.pass()), ["Pod shop-7-v1-x"]);
    scene.at(90).stopped();
    assert_eq!(said(&scene.pass()), CANCELLED);

    // Without a cancel, the status names the cause, and the wait ends.
    let mut scene = outlived(100);
    let decision = scene.pass();
    assert_eq!(decision.requeue_at, Some(at(650)));
    let message = &decision.verdict.message;
    assert!(
        message.contains("another container, which something injected"),
        "{message}"
    );
    let decision = scene.at(650).pass();
    assert_eq!(decision.verdict.reason, Reason::DeadlineExceeded);
    assert_eq!(stops(&scene.pass()), ["Pod shop-7-v1-x"]);
}
