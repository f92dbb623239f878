//! Jobs, ConfigMaps and Pods that others created with the labels of a run's objects.

use api::{State, decide::ErrorClass};
use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::view::{is_foreign, pod_view};

/// Returns the manifests that are only compared.
fn compares(decision: &RunDecision) -> Vec<String> {
    let existing = |effect: &Effect| match effect {
        Effect::Ensure(manifest) => manifest.existing.then(|| manifest.name.clone()),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    };
    decision.effects.iter().filter_map(existing).collect()
}

/// Returns an attempt that this process did not create. Its container exited with code 0.
fn complete() -> Scene {
    let mut scene = Scene::started();
    scene.job().proven = false;
    scene.at(5).pod(ended(0, 4, r#"{"answer": "42"}"#));
    scene.at(6).complete();
    scene
}

#[test]
fn a_job_succeeds_only_after_it_was_compared() {
    let mut scene = complete();
    let decision = scene.decide();
    assert_eq!(decision.phase, RunPhase::Pending);
    assert_eq!(compares(&decision), ["shop-7-v1"]);
    assert!(decision.verdict.message.contains("comparing Job"));
    assert!(
        decision
            .requeue_at
            .is_some_and(|requeue_at| requeue_at > scene.now)
    );
    // The engine found the Job to be the one that the run asks for.
    scene.perform(&decision.effects[0]);
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);

    // A fault reports that it is not.
    let scene = complete();
    let fault = ReconcileError::new(
        ErrorClass::Invalid,
        Reason::ChildNameTaken,
        "someone else's",
    );
    assert_ne!(scene.decide_with(Some(&fault)).phase, RunPhase::Succeeded);

    // Without its Agent, the expected Job is unknown.
    let mut scene = complete();
    scene.world.agent = None;
    let decision = scene.decide();
    assert_eq!(decision.verdict.reason, Reason::AgentNotFound);
    assert!(compares(&decision).is_empty());
}

#[test]
fn a_job_whose_uid_is_recorded_needs_no_comparison() {
    let mut scene = Scene::running();
    let uid = scene.job().uid.clone();
    assert_eq!(scene.status().job_uid.as_ref(), Some(&uid));
    scene.job().proven = false;
    scene.at(5).pod(ended(0, 4, r#"{"answer": "42"}"#));
    scene.at(6).complete();
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);

    // Another Job that replaced it under the same name is not the run's.
    scene.job().uid = "planted".to_owned();
    let pod = scene.world.children.pods.last_mut().unwrap();
    pod.job_uid = Some("planted".to_owned());
    let decision = scene.decide();
    assert_ne!(decision.phase, RunPhase::Succeeded);
    assert_ne!(decision.verdict.reason, Reason::Succeeded);
}

#[test]
fn a_job_that_goes_on_is_compared_beside_it() {
    let mut scene = Scene::started();
    scene.job().proven = false;
    scene.at(3).pod(running(2));
    let decision = scene.decide();
    assert_eq!(decision.phase, RunPhase::Running);
    assert_eq!(compares(&decision), ["shop-7-v1"]);
}

#[test]
fn files_that_nobody_proved_are_created_and_so_compared() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    scene.perform(&decision.effects[0]);
    scene.files().proven = false;
    let files = ("ConfigMap", "shop-7-v1-files".to_owned());
    let job = ("Job", "shop-7-v1".to_owned());
    assert_eq!(creates(&scene.decide()), [files, job.clone()]);
    scene.files().proven = true;
    assert_eq!(creates(&scene.decide()), [job]);
}

#[test]
fn a_pod_that_runs_something_else_than_its_job_proves_nothing() {
    let mut scene = Scene::running();
    scene.at(5).pod(ended(0, 4, r#"{"answer": "42"}"#)).foreign = true;
    scene.at(6).complete();
    let decision = scene.decide();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::ExitContradicted)
    );
    let message = &decision.verdict.message;
    assert!(
        message.contains("does not run what its Job says"),
        "{message}"
    );
    assert!(message.contains("tasks.acceptChangedPods"), "{message}");
}

#[test]
fn a_pod_is_compared_with_its_jobs_template() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    let Effect::Ensure(manifest) = &decision.effects[1] else {
        panic!("a Job");
    };
    let template = &manifest.body["spec"]["template"]["spec"];
    for effect in &decision.effects {
        scene.perform(effect);
    }
    let job = scene.job().clone();
    let pod = |change: fn(&mut Value)| {
        let mut spec = template.clone();
        // Fields that the API server and the scheduler fill in.
        spec["nodeName"] = json!("node-0");
        spec["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        change(&mut spec);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "shop-7-v1", "uid": job.uid, "controller": true,
            }] },
            "spec": spec,
        }))
        .unwrap();
        pod_view(&pod)
    };
    let jobs = [job.clone()];
    assert!(!is_foreign(&pod(|_| {}), &jobs));
    let changed = pod(|spec| spec["containers"][0]["image"] = json!("evil.example/agent:1"));
    assert!(is_foreign(&changed, &jobs));
    let argued = pod(|spec| spec["containers"][0]["args"] = json!(["--forge"]));
    assert!(is_foreign(&argued, &jobs));
    assert!(
        !is_foreign(&argued, &[]),
        "a Pod without a Job is no evidence anyway"
    );
}
