//! Defects of earlier systems that a decision alone can have, by their number.

use api::{Reason, State, tasks::RunPhase};
use proptest::{prelude::*, test_runner::RngSeed};
use testkit::seed::seed;

use super::*;

/// Returns ordinary and less ordinary moments of a run.
fn moments() -> Vec<(&'static str, Scene)> {
    let mut list: Vec<(&'static str, Scene)> = vec![
        ("new", Scene::plain()),
        ("no agent", Scene::new(run(json!({})), None)),
        ("started", Scene::started()),
        ("running", Scene::running()),
    ];
    let mut add = |name: &'static str, change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 2}}), json!({}));
        scene.at(60);
        change(&mut scene);
        list.push((name, scene));
    };
    add("complete", &|scene| {
        scene.pod(ended(0, 50, ""));
        scene.complete();
    });
    add("settling", &|scene| {
        scene.pod(ended(0, 20, ""));
    });
    add("failed once", &|scene| {
        scene.pod(ended(1, 50, ""));
        scene.fail();
    });
    add("between", &|scene| {
        scene.pod(ended(1, 50, ""));
        scene.fail();
        scene.pass();
    });
    add("evidence late", &|scene| {
        scene.world.children.pods.clear();
        scene.complete();
    });
    add("lost", &|scene| {
        scene.world.children.jobs.clear();
        scene.pass();
    });
    add("too late", &|scene| {
        scene.at(3700);
    });
    add("stopping", &|scene| {
        scene.at(3700).pass();
    });
    add("stopped", &|scene| {
        scene.at(3700).pass();
        scene.pass();
    });
    add("superseded", &|scene| scene.supersede());
    add("superseding", &|scene| {
        scene.supersede();
        scene.pass();
    });
    add("disrupted", &|scene| {
        stop(scene.pod(running(10)), 40);
    });
    add("to be started again", &|scene| {
        stop(scene.pod(ended(143, 50, "")), 40);
        scene.fail();
        scene.pass();
    });
    add("held", &|scene| scene.run.spec.suspend = true);
    add("resumed", &|scene| {
        scene.run.spec.suspend = true;
        scene.pass();
        scene.run.spec.suspend = false;
    });
    add("cancelled", &|scene| scene.run.spec.cancel = true);
    add("to be cleaned up", &|scene| {
        scene.pod(ended(0, 50, ""));
        scene.complete();
        scene.pass();
        scene.at(900_000);
    });
    add("being deleted", &|scene| {
        scene.run.metadata.deletion_timestamp = Some(Time(at(30)));
    });
    list
}

#[test]
fn r07_a_decision_never_touches_the_run_itself() {
    for (name, mut scene) in moments() {
        let spec = scene.run.spec.clone();
        for _ in 0..5 {
            let decision = scene.decide();
            for effect in &decision.effects {
                let kind = match effect {
                    Effect::Ensure(manifest) => manifest.resource.kind,
                    Effect::Delete(target) | Effect::Patch { target, .. } => target.resource.kind,
                    Effect::Apply(_) => {
                        panic!("{name}: {effect:?}")
                    }
                };
                assert!(
                    matches!(kind, "Job" | "Pod" | "ConfigMap"),
                    "{name}: {effect:?}"
                );
            }
            scene.pass();
            assert_eq!(scene.run.spec, spec);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
    #[test]
    fn r08_the_jobs_name_is_made_in_one_place(
        service in prop_oneof![".{1,253}", "[a-z]{63}", "[a-z]{253}", "[A-Z_./$-]{1,80}"],
        task in 1_i64..=2_147_483_647,
        version in 1_i64..=2_147_483_647,
        attempts in 1_u32..10,
    ) {
        let spec = json!({
            "serviceName": service, "taskId": task, "contextVersion": version,
            "retry": {"maxAttempts": 10, "backoff": {"initial": "1s", "max": "1s"}},
        });
        let mut scene = Scene::new(run(spec), Some(agent(json!({}))));
        for attempt in 1..=attempts {
            let decision = scene.pass();
            let wanted = api::tasks::names::job(&scene.run.spec, attempt, None);
            prop_assert!(wanted.len() <= 63);
            let created = creates(&decision);
            prop_assert_eq!(created.last(), Some(&("Job", wanted.clone())));
            prop_assert_eq!(scene.status().job_name.as_ref(), Some(&wanted));
            prop_assert_eq!(&scene.job().name, &wanted);
            prop_assert_eq!(scene.job().version, Some(version));
            // The Job is found under that name.
            scene.pod(ended(1, 0, ""));
            scene.fail();
            let decision = scene.pass();
            prop_assert_eq!(decision.verdict.reason, Reason::NonZeroExit);
            scene.now = scene.now.checked_add(Duration::from_secs(1)).unwrap();
        }
    }
}

/// The names as they are in the cluster, by hand. A hash is the SHA-256 of `{service}-{task}`.
#[test]
fn r08_the_names_of_jobs_are_these() {
    let long = "a".repeat(80);
    let cut = ["a".repeat(49), "-2450c30a53".to_owned()].concat();
    let of_long = [cut.clone(), "-v1".to_owned()].concat();
    let of_long_again = ["a".repeat(46), "-2450c30a53-v1-a2".to_owned()].concat();
    let cases = [
        ("shop", ["shop-7-v1", "shop-7-v1-a2"]),
        (
            "Shop_Web",
            ["shop-web-7-774dbdb2f4-v1", "shop-web-7-774dbdb2f4-v1-a2"],
        ),
        (
            "shop.web/日本",
            [
                "shop-web----7-b3d1832054-v1",
                "shop-web----7-b3d1832054-v1-a2",
            ],
        ),
        (&*long, [&*of_long, &*of_long_again]),
    ];
    for (service, wanted) in cases {
        let spec = json!({"serviceName": service, "retry": {"maxAttempts": 2}});
        let mut scene = Scene::new(run(spec), Some(agent(json!({}))));
        for name in wanted {
            let decision = scene.pass();
            assert_eq!(creates(&decision).last().unwrap().1, name);
            assert_eq!(scene.status().job_name.as_deref(), Some(name));
            scene.pod(ended(1, 0, ""));
            scene.fail();
            scene.pass();
            scene.now = scene.now.checked_add(Duration::from_secs(60)).unwrap();
        }
    }
}

fn is_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    name.len() <= 63
        && name.chars().all(|letter| plain(letter) || letter == '-')
        && name.starts_with(plain)
        && name.ends_with(plain)
}

fn is_label(value: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric();
    value.is_empty()
        || value.len() <= 63
            && value
                .chars()
                .all(|letter| plain(letter) || "-_.".contains(letter))
            && value.starts_with(plain)
            && value.ends_with(plain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
    /// The functions have their own tests in their crate. This test checks that children use
    /// nothing else.
    #[test]
    fn r04_children_have_valid_names_and_labels_for_hostile_strings(
        service in prop_oneof![".{1,253}", "[-._A-Z/]{1,80}", "\\PC{1,100}", "[a-z]{253}"],
        name in prop_oneof![".{1,253}", "[a-z.-]{253}"],
        task in 1_i64..=2_147_483_647,
        version in 1_i64..=2_147_483_647,
        disruptions in 1_u32..=5,
    ) {
        let spec = json!({"serviceName": service, "taskId": task, "contextVersion": version});
        let mut scene = Scene::new(run(spec), Some(agent(json!({}))));
        scene.run.metadata.name = Some(name);
        let first = scene.decide();
        scene.pass();
        stop(scene.pod(ended(143, 5, "")), 1);
        scene.fail();
        scene.run.status.as_mut().unwrap().disruptions = disruptions - 1;
        scene.pass();
        let again = scene.decide();
        prop_assert_eq!(creates(&again).len(), 1);
        for effect in first.effects.iter().chain(&again.effects) {
            let Effect::Ensure(manifest) = effect else {
                panic!("{effect:?}")
            };
            prop_assert!(is_name(&manifest.name), "{}", manifest.name);
            let places = ["/metadata/labels", "/spec/template/metadata/labels"];
            for labels in places.iter().filter_map(|place| manifest.body.pointer(place)) {
                let labels = labels.as_object().unwrap();
                prop_assert!(labels.len() >= 7);
                for value in labels.values() {
                    prop_assert!(is_label(value.as_str().unwrap()), "{value}");
                }
                prop_assert_eq!(&labels["orchestrator.io/uid"], "run-uid");
            }
        }
    }
}

/// The finalizer of a run must not stay because its children are not found by the service's name.
/// It must also not be removed while they exist.
#[test]
fn r04_children_of_a_deleted_run_are_found_whatever_the_service_is_called() {
    for (service, job) in [
        ("shop", "shop-7-v1"),
        ("Shop_Web", "shop-web-7-774dbdb2f4-v1"),
        ("shop.web/日本", "shop-web----7-b3d1832054-v1"),
    ] {
        let spec = json!({"serviceName": service});
        let mut scene = Scene::running_with(spec.clone(), json!({}));
        scene.run.metadata.deletion_timestamp = Some(Time(at(100)));
        let decision = scene.at(100).pass();
        assert_eq!(deletes(&decision), [job], "{service}");
        assert_eq!(
            decision.finalizer,
            FinalizerAction::Keep,
            "{service}: released too early"
        );
        scene.world.children.jobs.clear();
        scene.world.children.pods.clear();
        assert!(released(&scene.decide()).is_some(), "{service}: hangs");

        // The cleanup after the end finds both.
        let mut scene = Scene::running_with(spec, json!({}));
        scene.at(60).pod(ended(0, 50, ""));
        scene.complete();
        scene.pass();
        let files = format!("{job}-files");
        assert_eq!(deletes(&scene.at(360).decide()), [job, &files], "{service}");
    }
}

#[test]
fn r09_a_job_that_vanishes_after_the_end_starts_nothing() {
    for (code, phase) in [(0, RunPhase::Succeeded), (1, RunPhase::Failed)] {
        let mut scene = Scene::running();
        scene.at(60).pod(ended(code, 50, ""));
        if code == 0 {
            scene.complete();
        } else {
            scene.fail();
        }
        let ended = scene.pass();
        assert_eq!(ended.phase, phase);
        let status = scene.status().clone();
        scene.world.children.jobs.clear();
        scene.world.children.pods.clear();
        scene.world.children.config_maps.clear();
        scene.world.agent = None;
        for second in [61, 4000, 400_000] {
            let decision = scene.at(second).pass();
            assert!(decision.effects.is_empty());
            assert_eq!(decision.verdict, ended.verdict);
            assert_eq!(decision.requeue_at, None);
            assert_eq!(decision.status, status);
            assert_eq!(scene.status(), &status);
        }
        // Another change of the spec only moves the generation.
        scene.run.spec.timeout = Some(Duration::from_secs(5).into());
        scene.run.metadata.generation = Some(2);
        assert!(scene.pass().effects.is_empty());
        assert_eq!(scene.status().phase, Some(phase));
        assert_eq!(scene.status().progress.observed_generation, 2);
    }
}

#[test]
fn r12_every_wait_ends_at_a_stored_time() {
    for (name, mut scene) in moments() {
        for _ in 0..6 {
            let decision = scene.pass();
            let is_deleting = scene.run.metadata.deletion_timestamp.is_some();
            match decision.verdict.state {
                // Until the user resumes the run.
                State::Working if decision.verdict.reason == Reason::Suspended => {}
                State::Working if decision.finalizer == FinalizerAction::Keep => {
                    let requeue_at = decision
                        .requeue_at
                        .unwrap_or_else(|| panic!("{name}: no requeue time"));
                    let is_record = decision.effects.is_empty() && requeue_at == scene.now;
                    assert!(requeue_at > scene.now || is_record, "{name}: {requeue_at}");
                    assert!(
                        is_deleting || decision.status.progress.deadline_at.is_some(),
                        "{name}: the deadline is not stored"
                    );
                }
                State::Working | State::Stalled | State::Succeeded | State::Failed => {}
                State::Ready => panic!("{name}: a run is never Ready"),
            }
            scene.now = scene.now.checked_add(Duration::from_secs(1)).unwrap();
        }
    }
}

#[test]
fn r18_the_waits_between_attempts_double_up_to_their_limit() {
    let spec = json!({"retry": {"maxAttempts": 10}});
    let mut scene = Scene::new(run(spec), Some(agent(json!({}))));
    let mut waits = Vec::new();
    for _ in 0..9 {
        scene.pass();
        scene.pod(ended(1, 0, ""));
        scene.fail();
        let before = scene.now.as_second();
        scene.pass();
        let due = scene.status().progress.deadline_at.clone().unwrap().0;
        waits.push(due.as_second() - before);
        scene.now = due;
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300, 300]);
    scene.pass();
    scene.pod(ended(1, 0, ""));
    scene.fail();
    let decision = scene.pass();
    assert_eq!(decision.phase, RunPhase::Failed);
    assert!(decision.verdict.message.contains("(after 10 attempts)"));
}

#[test]
fn r18_a_wait_can_be_set_and_never_overflows() {
    use attempts::backoff;
    let backoffs = |initial: u64, max: u64| api::tasks::Backoff {
        initial: Duration::from_secs(initial).into(),
        max: Duration::from_secs(max).into(),
    };
    let waits: Vec<u64> = (1..5)
        .map(|attempts| backoff(&backoffs(1, 5), attempts).as_secs())
        .collect();
    assert_eq!(waits, [1, 2, 4, 5]);
    let most = backoffs(u64::MAX, u64::MAX);
    assert_eq!(backoff(&most, u32::MAX).as_secs(), u64::MAX);
    assert_eq!(backoff(&backoffs(1, 300), 0).as_secs(), 1);
}

#[test]
fn r19_counters_do_not_decide() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    let job = |status: Value| -> JobView {
        let job: Job = serde_json::from_value(json!({
            "metadata": {
                "name": "shop-7-v1", "uid": "uid-2", "creationTimestamp": Time(start()),
                "labels": {"context-version": "1", names::KIND: "TaskRun"},
                "ownerReferences": [{
                    "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "run-7",
                    "uid": "run-uid", "controller": true,
                }],
            },
            "status": status,
        }))
        .unwrap();
        JobView {
            proven: true,
            ..job_view(&job)
        }
    };
    let condition = |kind: &str, value: &str| json!({"type": kind, "status": value, "lastTransitionTime": Time(at(60))});
    let cases = [
        (json!({"succeeded": 1}), RunPhase::Running),
        (json!({"failed": 1}), RunPhase::Running),
        (
            json!({"succeeded": 1, "conditions": [condition("SuccessCriteriaMet", "True")]}),
            RunPhase::Running,
        ),
        (
            json!({"succeeded": 1, "conditions": [condition("Complete", "False")]}),
            RunPhase::Running,
        ),
        (
            json!({"conditions": [condition("Complete", "True")]}),
            RunPhase::Succeeded,
        ),
        (
            json!({"succeeded": 1, "conditions": [condition("Complete", "True"), condition("Failed", "True")]}),
            RunPhase::Failed,
        ),
    ];
    for (status, expected) in cases {
        scene.world.children.jobs = vec![job(status.clone())];
        assert_eq!(scene.decide().phase, expected, "{status}");
    }
}

#[test]
fn r22_a_missing_secret_is_named_at_once_and_ends_the_wait() {
    let mut scene = Scene::started();
    scene.at(3).pod(waiting(
        "CreateContainerConfigError",
        "secret \"token\" not found",
    ));
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::SecretNotFound)
    );
    assert!(
        decision
            .verdict
            .message
            .contains("secret \"token\" not found")
    );
    assert_eq!(decision.requeue_at, Some(at(600)));
    scene.at(600).pass();
    scene.pass();
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::StartTimeout)
    );
    assert!(
        decision
            .verdict
            .message
            .contains("SecretNotFound: Pod 'shop-7-v1-x'")
    );
}

#[test]
fn r23_an_object_in_deletion_is_only_cleared_away() {
    for (name, mut scene) in moments() {
        let since = scene.now;
        scene.run.metadata.deletion_timestamp = Some(Time(since));
        for second in [0, 1, 700, 100_000] {
            scene.now = since.checked_add(Duration::from_secs(second)).unwrap();
            let decision = scene.pass();
            assert!(creates(&decision).is_empty(), "{name}");
            assert_eq!(
                deletes(&decision).len(),
                decision.effects.len(),
                "{name}: only deletes"
            );
            if decision.finalizer != FinalizerAction::Keep {
                assert!(decision.effects.is_empty(), "{name}");
            }
        }
        scene.world.children.jobs.clear();
        scene.world.children.pods.clear();
        assert!(released(&scene.decide()).is_some(), "{name}: hangs");
    }
}
