//! A Job with a record that waits, or was lost.

use api::{Reason, State, decide::ErrorClass, tasks::RunPhase};

use super::*;

#[test]
fn a_record_that_was_lost_starts_nothing_twice() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    scene.perform(&decision.effects[0]);
    assert_eq!(creates(&scene.decide()), [("Job", "shop-7-v1".to_owned())]);
    scene.perform(&decision.effects[1]);
    // The Agent has changed since. The existing Job is adopted as it is.
    scene.world.agent = Some(Arc::new(agent(json!({"image": "agents/writer:2"}))));
    let again = scene.decide();
    assert!(again.effects.is_empty());
    let mut with_children = decision.status;
    with_children.job_uid = Some("uid-2".to_owned());
    with_children.config_map_uid = Some("uid-1".to_owned());
    assert_eq!(again.status, with_children);
}

#[test]
fn the_first_record_waits_for_something_worth_it() {
    // The container starts at once: its start is the first record.
    let mut scene = Scene::plain();
    let decision = scene.decide();
    assert_eq!(decision.defer_status_until, Some(at(10)));
    for effect in &decision.effects {
        scene.perform(effect);
    }
    let again = scene.at(1).decide();
    assert_eq!(again.defer_status_until, Some(at(10)));
    let mut with_children = decision.status;
    with_children.job_uid = Some("uid-2".to_owned());
    with_children.config_map_uid = Some("uid-1".to_owned());
    assert_eq!(again.status, with_children, "nothing is forgotten");
    scene.at(3).pod(running(2));
    let decision = scene.decide();
    assert_eq!(
        (decision.phase, decision.defer_status_until),
        (RunPhase::Running, None)
    );
    assert_eq!(decision.status.attempts, 1);

    // A container that has ended by then waits for its Job, and is recorded with its end.
    scene.pod(ended(0, 4, ""));
    assert_eq!(scene.at(5).decide().defer_status_until, Some(at(10)));
    scene.at(6).complete();
    let decision = scene.decide();
    assert_eq!(
        (decision.phase, decision.defer_status_until),
        (RunPhase::Succeeded, None)
    );

    // A cause is recorded as soon as it is seen, and nothing waits longer than 10 seconds.
    let mut scene = Scene::plain();
    for effect in &scene.decide().effects {
        scene.perform(effect);
    }
    let mut slow = scene.clone();
    slow.at(9);
    assert_eq!(slow.decide().defer_status_until, Some(at(10)));
    slow.at(10);
    assert_eq!(slow.decide().defer_status_until, None);
    scene.at(2).pod(waiting("ErrImagePull", "no"));
    assert_eq!(scene.decide().defer_status_until, None);
    assert_eq!(scene.decide().verdict.reason, Reason::ImagePullFailed);

    // An earlier record must not become outdated.
    let mut scene = Scene::new(run(json!({})), None);
    scene.pass();
    scene.world.agent = Some(Arc::new(agent(json!({}))));
    assert_eq!(creates(&scene.decide()).len(), 2);
    assert_eq!(scene.decide().defer_status_until, None);

    // The CRD's default status is not a record of ours.
    let mut scene = Scene::plain();
    let progress = json!({
        "observedGeneration": -1, "phase": "Pending",
        "message": "waiting for the operator to look at it",
    });
    scene.run.status = serde_json::from_value(progress).unwrap();
    assert_eq!(scene.decide().defer_status_until, Some(at(10)));
}

#[test]
fn a_fault_is_not_left_unsaid_because_the_first_record_waits() {
    let mut scene = Scene::plain();
    for effect in &scene.decide().effects {
        scene.perform(effect);
    }
    let fault = ReconcileError::new(ErrorClass::Failed, Reason::InvalidChild, "no");
    let decision = scene.at(1).decide_with(Some(&fault));
    assert_eq!(decision.defer_status_until, None);
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::InvalidChild)
    );
    assert_eq!(decision.status.job_name.as_deref(), Some("shop-7-v1"));
    scene.record(&decision);
    assert_eq!(stops(&scene.decide()), ["Job shop-7-v1"]);
}

#[test]
fn a_version_that_was_never_recorded_goes_into_the_history_before_its_job_goes() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    for effect in &decision.effects {
        scene.perform(effect);
    }
    scene.at(3).pod(ended(0, 2, ""));
    scene.complete();
    scene.supersede();
    let decision = scene.at(4).pass();
    assert!(decision.effects.is_empty(), "first only a record");
    let [past] = scene.status().history.as_slice() else {
        panic!("{:?}", scene.status().history)
    };
    assert_eq!(
        (past.context_version, past.attempts, past.reason.as_str()),
        (1, 1, "Succeeded")
    );
    assert_eq!(past.result.as_ref().unwrap().exit_code, Some(0));
    assert_eq!(creates(&scene.pass()).len(), 2, "its Job and log stay");
    assert_eq!(scene.status().history.len(), 1);
}

#[test]
fn a_job_that_only_names_us_as_its_owner_is_not_taken_for_ours() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    for effect in &decision.effects {
        scene.perform(effect);
    }
    scene.at(3).pod(ended(0, 2, ""));
    scene.complete();
    for change in [
        (|job: &mut JobView| job.terms = None) as fn(&mut JobView),
        |job| job.version = None,
    ] {
        let mut forged = scene.clone();
        change(forged.job());
        let decision = forged.decide();
        assert!(!decision.is_end());
        assert_eq!(
            creates(&decision),
            [("Job", "shop-7-v1".to_owned())],
            "the engine finds the name taken, and says so"
        );
    }
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);
}
