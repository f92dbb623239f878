//! The result of an attempt: the conditions of success, and the reason of each failure.

use api::{
    Reason, State,
    tasks::{Evidence, RunPhase},
};

use super::*;

/// Returns a running attempt with a complete Job and this container.
fn completed(agent_spec: Value, container: ContainerState) -> Scene {
    let mut scene = Scene::running_with(json!({}), agent_spec);
    scene.at(60).pod(container);
    scene.complete();
    scene
}

/// Returns a running attempt with a failed Job and this container.
fn failed(container: ContainerState) -> Scene {
    let mut scene = Scene::running();
    scene.at(60).pod(container);
    scene.fail();
    scene
}

fn exit_for(code: i32, reason: &str, message: &str) -> ContainerState {
    let ContainerState::Ended(exit) = ended(code, 50, message) else {
        panic!("it ended")
    };
    ContainerState::Ended(Exit {
        reason: reason.to_owned(),
        ..exit
    })
}

fn verdict(scene: &Scene) -> (RunPhase, Reason, String) {
    let decision = scene.decide();
    (
        decision.phase,
        decision.verdict.reason,
        decision.verdict.message,
    )
}

#[test]
fn a_success_keeps_all_of_its_evidence() {
    let message = r#" {"answer": "42", "count": 3, "list": [1, "a"], "none": null} "#;
    let scene = completed(
        json!({"results": [{"name": "answer", "required": true}]}),
        ended(0, 50, message),
    );
    let decision = scene.decide();
    assert_eq!(
        said(&decision),
        (RunPhase::Succeeded, State::Succeeded, Reason::Succeeded)
    );
    assert!(decision.effects.is_empty());
    assert_eq!(decision.status.finished_at, Some(Time(at(60))));
    assert_eq!(decision.status.progress.deadline_at, None);
    let expected = Evidence {
        exit_code: Some(0),
        signal: None,
        reason: Some("Succeeded".to_owned()),
        message: Some(decision.verdict.message.clone()),
        results: [("answer", "42"), ("count", "3"), ("list", r#"[1,"a"]"#)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        image_id: Some("agents/writer@sha256:abc".to_owned()),
        node: Some("node-1".to_owned()),
        pod_name: Some("shop-7-v1-x".to_owned()),
        pod_uid: Some("pod-of-uid-2".to_owned()),
        started_at: Some(Time(at(10))),
        finished_at: Some(Time(at(50))),
    };
    assert_eq!(decision.status.result, Some(expected));
    assert_eq!(
        released(&decision),
        Some(Some(
            json!({"version": 1, "outcome": "Succeeded", "reason": "Succeeded", "uid": "run-uid"})
        ))
    );
}

#[test]
fn an_empty_message_is_enough_where_nothing_is_required() {
    for message in ["", "  \n"] {
        let scene = completed(json!({}), ended(0, 50, message));
        assert_eq!(scene.decide().phase, RunPhase::Succeeded);
    }
}

/// The kubelet divides 12 KiB by all containers of a Pod. A shorter limit cuts the JSON, and the run would fail as if the
/// agent had written something else.
#[test]
fn results_beside_injected_containers_have_a_shorter_limit() {
    let result = |length: usize| format!("{{\"answer\": \"{}\"}}", "x".repeat(length - 14));
    for (containers, length, expected) in [
        (3, 4095, Reason::Succeeded),
        (3, 4096, Reason::ResultTooLarge),
        (5, 2456, Reason::Succeeded),
        (5, 2457, Reason::ResultTooLarge),
    ] {
        let mut scene = Scene::running();
        scene.at(60).pod(ended(0, 50, &result(length))).containers = containers;
        scene.complete();
        let (_, reason, message) = verdict(&scene);
        assert_eq!(reason, expected, "{containers}, {length}: {message}");
        let is_named =
            message.contains("2457 bytes or more (the 5 containers of the Pod share 12 KiB)");
        let is_cut = expected == Reason::ResultTooLarge;
        assert_eq!(is_named, is_cut && containers == 5, "{message}");
    }
    assert_eq!(pods::message_limit(3), crate::build::contract::RESULT_LIMIT);
}

/// Steps do not know how many containers their Pod has.
#[test]
fn reports_of_steps_fit_beside_nine_injected_containers() {
    assert!(git::report::LIMIT < pods::message_limit(12));
}

#[test]
fn results_that_prove_nothing_are_a_failure() {
    let wanted = json!({"results": [
        {"name": "answer", "required": true}, {"name": "link", "required": true},
        {"name": "note", "required": false},
    ]});
    let fits = format!("{{\"answer\": \"{}\"}}", "x".repeat(4095 - 14));
    assert_eq!(fits.len(), 4095);
    let cut = format!("{{\"answer\": \"{}\"}}", "x".repeat(4096 - 14));
    let cases = [
        ("".to_owned(), Reason::ResultMissing, "answer, link"),
        ("{}".to_owned(), Reason::ResultMissing, "answer, link"),
        (fits, Reason::ResultMissing, "results: link"),
        (
            r#"{"answer": null, "link": 1}"#.to_owned(),
            Reason::ResultMissing,
            "results: answer",
        ),
        (cut, Reason::ResultTooLarge, "4096 bytes or more"),
        ("x".repeat(5000), Reason::ResultTooLarge, "4096"),
        ("done".to_owned(), Reason::ResultInvalid, "JSON object"),
        (
            r#"["answer"]"#.to_owned(),
            Reason::ResultInvalid,
            "JSON object",
        ),
        (r#"{"answer": "#.to_owned(), Reason::ResultInvalid, "JSON"),
        (r#"{} {}"#.to_owned(), Reason::ResultInvalid, "JSON"),
        ("[".repeat(4000), Reason::ResultInvalid, "JSON"),
    ];
    for (message, expected, part) in cases {
        let scene = completed(wanted.clone(), ended(0, 50, &message));
        let (phase, reason, words) = verdict(&scene);
        assert_eq!(
            (phase, reason),
            (RunPhase::Failed, expected),
            "{message:.40}"
        );
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn a_program_that_was_told_to_stop_did_not_succeed() {
    // Time of the request to stop, time of the end, and the expected phase.
    let cases = [
        (None, 50, RunPhase::Succeeded),
        (Some(51), 50, RunPhase::Succeeded),
        (Some(50), 50, RunPhase::Pending),
        (Some(20), 50, RunPhase::Pending),
    ];
    for (asked, finished, expected) in cases {
        let mut scene = completed(json!({}), ended(0, finished, ""));
        scene.world.children.pods[0].stop_asked = asked.map(at);
        let decision = scene.decide();
        assert_eq!(
            decision.phase, expected,
            "asked at {asked:?}, ended at {finished}"
        );
        if expected == RunPhase::Pending {
            assert_eq!(decision.verdict.reason, Reason::Disrupted);
        }
    }
    // The kubelet's own last deletion, without grace, hides the time of the first request.
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods[0].stop_asked = Some(at(51));
    scene.world.children.pods[0].stop_by = Some(at(51));
    assert_eq!(verdict(&scene).1, Reason::Disrupted);
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods[0].disruption = Some(Reported {
        reason: "EvictionByEvictionAPI".to_owned(),
        message: "drain".to_owned(),
    });
    let (phase, reason, words) = verdict(&scene);
    assert_eq!((phase, reason), (RunPhase::Pending, Reason::Disrupted));
    assert!(words.contains("(EvictionByEvictionAPI: drain)"), "{words}");
}

#[test]
fn an_attempt_that_nobody_can_judge_is_not_repeated() {
    let retry = json!({"retry": {"maxAttempts": 3}});
    let mut scene = completed(retry, ended(0, 50, ""));
    scene.world.children.pods.clear();
    scene.at(80);
    let (phase, reason, _) = verdict(&scene);
    assert_eq!((phase, reason), (RunPhase::Failed, Reason::EvidenceLost));
}

#[test]
fn a_job_that_ended_without_its_pod_proves_nothing() {
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods.clear();
    scene.at(69);
    let decision = scene.decide();
    assert_eq!(
        decision.phase,
        RunPhase::Running,
        "the Pod may only be late"
    );
    assert_eq!(decision.requeue_at, Some(at(70)));
    scene.at(70);
    let (phase, reason, words) = verdict(&scene);
    assert_eq!((phase, reason), (RunPhase::Failed, Reason::EvidenceLost));
    assert_eq!(
        words,
        "Job 'shop-7-v1' is complete, but its Pod no longer exists; its log is lost"
    );

    let mut scene = completed(json!({}), running(10));
    assert_eq!(scene.decide().phase, RunPhase::Running, "an old Pod");
    scene.at(70);
    assert_eq!(scene.decide().verdict.reason, Reason::EvidenceLost);

    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods[0].job_uid = Some("the-job-of-another-attempt".to_owned());
    scene.at(70);
    assert_eq!(scene.decide().verdict.reason, Reason::EvidenceLost);
}

/// Stops a waiting Pod at this second, after it was seen, and then removes it.
fn stopped_at(scene: &mut Scene, second: i64) {
    stop(
        scene.at(second).pod(waiting("ContainerCreating", "")),
        second,
    );
    scene.pass();
    assert_eq!(scene.status().disruptions, 1);
    scene.world.children.pods.clear();
    scene.job().counted = true;
}

type Change = fn(&mut Scene);

/// States at the limit of the start, and the resulting reason.
const AT_THE_LIMIT: &[(&str, Change, Reason)] = &[
    ("there never was a Pod", |_| (), Reason::StartTimeout),
    (
        "a Pod waits",
        |scene| {
            scene.pod(waiting("ContainerCreating", ""));
            scene.job().counted = true;
        },
        Reason::StartTimeout,
    ),
    (
        "a Pod ran and ended while no operator recorded it, and is gone",
        |scene| scene.job().counted = true,
        Reason::EvidenceLost,
    ),
    (
        "the same, and someone deletes the Job",
        |scene| {
            scene.job().counted = true;
            scene.job().deleting = Some(at(599));
        },
        Reason::StartTimeout,
    ),
    (
        "the Pod was seen being stopped just before",
        |scene| stopped_at(scene, 590),
        Reason::StartTimeout,
    ),
    (
        "a Pod was seen being stopped long before: it was another one",
        |scene| stopped_at(scene, 500),
        Reason::EvidenceLost,
    ),
];

/// The Job controller counts a Pod, removes its finalizer, and only then reports that the Job ended. The limit of the
/// start may be in between.
#[test]
fn a_pod_that_is_gone_unread_is_not_one_that_did_not_start() {
    for (name, change, reason) in AT_THE_LIMIT {
        let mut scene = Scene::started_with(json!({}), json!({"retry": {"maxAttempts": 3}}));
        change(&mut scene);
        scene.at(600).pass();
        assert_eq!(scene.decide().verdict.reason, *reason, "{name}");
        // In the meantime the Job ends. The stored result stays.
        scene.at(601).complete();
        let phase = scene.pass().phase;
        let is_repeated = *reason == Reason::StartTimeout;
        assert_eq!(phase == RunPhase::Pending, is_repeated, "{name}");
        assert_eq!(phase == RunPhase::Failed, !is_repeated, "{name}");
        assert_eq!(scene.decide().verdict.reason, *reason, "{name}");
    }
}

#[test]
fn a_clock_that_is_far_ahead_is_not_waited_for() {
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods.clear();
    scene.job().end = Some(JobEnd::Complete { at: Some(at(9000)) });
    assert_eq!(scene.decide().verdict.reason, Reason::EvidenceLost);
    scene.job().end = Some(JobEnd::Complete { at: None });
    assert_eq!(scene.decide().verdict.reason, Reason::EvidenceLost);
}

#[test]
fn each_failure_has_its_name() {
    let cases = [
        (
            exit_for(137, "OOMKilled", ""),
            Reason::OOMKilled,
            "more memory than its limit of 256Mi",
        ),
        (
            exit_for(3, "Error", "no such branch\nsecond line"),
            Reason::NonZeroExit,
            "exited with code 3: \"no such branch second line\"",
        ),
        (
            exit_for(3, "Error", r#"{"answer": "x"}"#),
            Reason::NonZeroExit,
            "exited with code 3",
        ),
        (
            exit_for(143, "Error", "\u{1b}[31mred"),
            Reason::NonZeroExit,
            "exited with code 143 (signal 15)",
        ),
        (
            exit_for(128, "StartError", "exec: \"/a\": permission denied"),
            Reason::ContainerNotStartable,
            "cannot be executed by user 65532",
        ),
        (
            exit_for(128, "ContainerCannotRun", "permission denied"),
            Reason::ContainerNotStartable,
            "cannot be executed by user 65532",
        ),
        (
            exit_for(128, "StartError", "exec: \"/a\": no such file"),
            Reason::ContainerNotStartable,
            "no such file",
        ),
        (
            ended(0, 50, ""),
            Reason::JobFailed,
            "exited with code 0, but its Job failed: Job has reached",
        ),
    ];
    for (container, expected, part) in cases {
        let scene = failed(container.clone());
        let (phase, reason, words) = verdict(&scene);
        assert_eq!((phase, reason), (RunPhase::Failed, expected), "{words}");
        assert!(words.contains(part), "{words}");
        let result = scene.decide().status.attempt.result.unwrap();
        let ContainerState::Ended(exit) = container else {
            panic!("ended")
        };
        assert_eq!(result.exit_code, Some(exit.code));
        assert_eq!(result.signal, (exit.code > 128).then(|| exit.code - 128));
    }
}

/// A shell can return 0 although the kernel killed a process that it started. The kubelet reports both.
#[test]
fn a_termination_that_contradicts_exit_code_0_is_no_success() {
    let exit = |change: fn(&mut Exit)| {
        let ContainerState::Ended(mut exit) = ended(0, 50, r#"{"answer": "42"}"#) else {
            panic!("it ended")
        };
        change(&mut exit);
        ContainerState::Ended(exit)
    };
    let cases: [(ContainerState, Option<Reason>, &str); 9] = [
        (exit(|_| ()), None, "exited with code 0"),
        (exit(|exit| exit.reason.clear()), None, "exited with code 0"),
        (
            exit(|exit| exit.signal = Some(0)),
            None,
            "exited with code 0",
        ),
        (
            exit(|exit| exit.reason = "OOMKilled".to_owned()),
            Some(Reason::OOMKilled),
            "exited with code 0, but a process of it used more memory than its limit of 256Mi",
        ),
        (
            exit(|exit| exit.signal = Some(9)),
            Some(Reason::ExitContradicted),
            "ended by signal 9",
        ),
        (
            exit(|exit| exit.reason = "Error".to_owned()),
            Some(Reason::ExitContradicted),
            "reason 'Error'",
        ),
        (
            exit(|exit| exit.reason = "ContainerStatusUnknown".to_owned()),
            Some(Reason::ExitContradicted),
            "reason 'ContainerStatusUnknown'",
        ),
        (
            exit(|exit| exit.reason = "DeadlineExceeded".to_owned()),
            Some(Reason::ExitContradicted),
            "reason 'DeadlineExceeded'",
        ),
        (
            exit(|exit| exit.restarts = 1),
            Some(Reason::ExitContradicted),
            "started it 1 more time",
        ),
    ];
    for (container, failure, part) in cases {
        let scene = completed(json!({}), container);
        let (phase, reason, words) = verdict(&scene);
        let expected = match failure {
            None => (RunPhase::Succeeded, Reason::Succeeded),
            Some(failure) => (RunPhase::Failed, failure),
        };
        assert_eq!((phase, reason), expected, "{words}");
        assert!(words.contains(part), "{words}");
        assert_eq!(
            scene.decide().status.attempt.result.unwrap().exit_code,
            Some(0)
        );
    }
}

/// Job and Pod arrive through different watches.
#[test]
fn a_pod_that_contradicts_its_container_is_no_success() {
    for phase in [PodPhase::Pending, PodPhase::Running, PodPhase::Unknown] {
        let mut scene = completed(json!({}), ended(0, 50, ""));
        scene.world.children.pods[0].phase = phase;
        assert_eq!(scene.decide().phase, RunPhase::Running, "{phase:?}: late");
        scene.at(70);
        assert_eq!(verdict(&scene).1, Reason::EvidenceLost, "{phase:?}");
    }
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.children.pods[0].phase = PodPhase::Failed;
    scene.world.children.pods[0].failure = Some(Reported {
        reason: "Evicted".to_owned(),
        message: "the node was low on memory".to_owned(),
    });
    let (phase, reason, words) = verdict(&scene);
    assert_eq!(
        (phase, reason),
        (RunPhase::Failed, Reason::ExitContradicted)
    );
    let part = "exited with code 0, but the Pod failed (Evicted): the node was low on memory";
    assert!(words.contains(part), "{words}");
}

#[test]
fn a_programs_own_words_are_short_and_readable() {
    let scene = failed(ended(1, 50, &"wörter ".repeat(100)));
    let words = scene.decide().verdict.message;
    assert!(
        words.contains('…') && words.chars().count() < 300,
        "{words}"
    );
    let scene = failed(ended(1, 50, "bell \u{7} rings"));
    assert!(!scene.decide().verdict.message.contains("bell"));
    let scene = failed(ended(1, 50, r#"{"answer": "why"}"#));
    let result = scene.decide().status.attempt.result.unwrap();
    assert_eq!(result.results["answer"], "why");
}

#[test]
fn the_jobs_own_failure_counts_where_no_container_says_better() {
    let cases = [
        (
            "BackoffLimitExceeded",
            Reason::EvidenceLost,
            "failed, but its Pod no longer exists",
        ),
        (
            "",
            Reason::EvidenceLost,
            "failed, but its Pod no longer exists",
        ),
        (
            "PodFailurePolicy",
            Reason::JobFailed,
            "(PodFailurePolicy): the words",
        ),
        (
            "DeadlineExceeded",
            Reason::DeadlineExceeded,
            "the Job's own limit was reached: the words",
        ),
    ];
    for (job_reason, expected, part) in cases {
        let mut scene = Scene::running();
        scene.at(60).world.children.pods.clear();
        scene.fail_for(job_reason, "the words");
        scene.at(70);
        let (phase, reason, words) = verdict(&scene);
        assert_eq!((phase, reason), (RunPhase::Failed, expected), "{words}");
        assert!(words.contains(part), "{words}");
    }
    // The Job's own limit kills the container. Its exit is not the cause.
    let mut scene = failed(ended(143, 50, ""));
    scene.fail_for("DeadlineExceeded", "");
    assert_eq!(scene.decide().verdict.reason, Reason::DeadlineExceeded);

    // The kubelet rejected the Pod.
    let mut scene = Scene::started();
    scene.at(5);
    let pod = scene.pod(ContainerState::Unknown);
    pod.phase = PodPhase::Failed;
    pod.failure = Some(Reported {
        reason: "OutOfcpu".to_owned(),
        message: "no room".to_owned(),
    });
    scene.fail();
    let (_, reason, words) = verdict(&scene);
    assert_eq!(reason, Reason::JobFailed);
    assert!(words.contains("(OutOfcpu): no room"), "{words}");
    scene.world.children.pods[0].stop_asked = Some(at(4));
    assert_eq!(scene.decide().verdict.reason, Reason::Disrupted);
}

#[test]
fn the_newest_pod_of_the_job_speaks_for_it() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.complete();
    let mut older = scene.world.children.pods[0].clone();
    older.uid = "older".to_owned();
    older.created = Some(at(1));
    older.container = ended(1, 20, "");
    scene.world.children.pods.push(older);
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);
    // A failed Pod did not complete its Job, and the Pod that did is not visible.
    scene.world.children.pods[1].created = Some(at(61));
    assert_eq!(scene.decide().phase, RunPhase::Running);
    let decision = scene.at(75).decide();
    assert_eq!(
        (decision.phase, decision.verdict.reason),
        (RunPhase::Failed, Reason::EvidenceLost)
    );
}

#[test]
fn an_attempt_is_judged_by_what_its_agent_said_at_its_start() {
    let mut scene = completed(json!({}), ended(0, 50, ""));
    scene.world.agent = Some(Arc::new(agent(
        json!({"results": [{"name": "later", "required": true}]}),
    )));
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);
    scene.world.agent = None;
    assert_eq!(scene.decide().phase, RunPhase::Succeeded);

    // Neither the Job nor an Agent defines the required results: an unknown result is no success.
    scene.job().terms = None;
    let (phase, reason, _) = verdict(&scene);
    assert_eq!((phase, reason), (RunPhase::Failed, Reason::AgentNotFound));
}
