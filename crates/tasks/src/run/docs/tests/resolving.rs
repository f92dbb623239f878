//! Facts that must be known before the Job is created, and how long a run waits for them.

use std::sync::Arc;

use super::*;

/// Reasons that waiting may change.
const WAITED_FOR: &[Reason] = &[
    Reason::RepositoryUnreachable,
    Reason::AuthenticationFailed,
    Reason::CredentialsInvalid,
    Reason::CertificateNotTrusted,
    Reason::HostKeyUnknown,
    Reason::SecretNotFound,
    Reason::ApiUnavailable,
    Reason::Denied,
    Reason::InternalError,
];

#[test]
fn a_failure_is_named_and_waited_for_until_a_stored_time_and_is_then_the_end() {
    for reason in WAITED_FOR.iter().copied() {
        let mut scene = Scene::with(json!({}), json!({"startTimeout": "5m"}));
        scene.pass();
        scene.refuse(reason, "the words");
        scene.at(2).reply();
        let decision = scene.pass();
        assert_said(&decision, (RunPhase::Pending, State::Working, reason));
        assert_has(
            &decision,
            &["the words", "waiting until 2030-01-01T00:05:02Z"],
        );
        assert!(decision.effects.is_empty());
        assert_eq!(
            decision.defer_status_until, None,
            "what is wrong is said at once"
        );
        assert_eq!(decision.requeue_at, Some(at(7)), "when it is asked again");
        assert_eq!(scene.status().progress.deadline_at, Some(Time(at(302))));
        assert_settled(&scene);

        // Another operator continues with the same deadline.
        scene.at(200).restart();
        scene.pass();
        assert_eq!(scene.status().progress.deadline_at, Some(Time(at(302))));
        scene.at(300).reply();
        scene.pass();
        assert_eq!(scene.at(301).pass().phase, RunPhase::Pending);
        let mut better = scene.clone();
        let decision = scene.at(302).pass();
        assert_said(&decision, failed(reason));
        assert_eq!(
            decision.verdict.message,
            "not started: the words. Submit another DocsRun to run it again"
        );
        assert!(released(&decision).is_some());
        assert_eq!(scene.status().attempts, 0);
        assert_settled(&scene);

        // Or the failure is fixed.
        better.server.refusal = None;
        better.reply();
        better.pass();
        assert_eq!(better.status().base_commit.as_deref(), Some(BASE));
        assert_eq!(creates(&better.pass()).len(), 2);
    }
}

/// A deadline that passed while no operator queried the server proves nothing about the server.
#[test]
fn a_server_that_was_never_asked_is_asked_however_late_it_is() {
    let mut scene = Scene::plain();
    scene.at(20).pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(620))));
    scene.restart();
    let decision = scene.at(9000).pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::Progressing),
    );
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(9600))));
    assert_settled(&scene);
    scene.refuse(Reason::RepositoryUnreachable, "silence");
    scene.reply();
    assert_eq!(scene.pass().verdict.reason, Reason::RepositoryUnreachable);
    // The response from before the deadline has expired by now, so the query is repeated.
    let decision = scene.at(9600).pass();
    assert_eq!(said(&decision).0, RunPhase::Pending);
    assert!(decision.requeue_at > Some(at(9600)), "no hot loop");
    scene.reply();
    assert_said(&scene.pass(), failed(Reason::RepositoryUnreachable));
}

/// Before, the deadline of a query without a response was extended indefinitely.
#[test]
fn a_query_that_never_gets_its_turn_ends_the_wait_after_one_extension() {
    let mut scene = Scene::plain();
    scene.at(20).pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(620))));
    let decision = scene.at(620).pass();
    assert_eq!(said(&decision).0, RunPhase::Pending);
    let status = scene.status();
    assert_eq!(
        (&status.progress.deadline_at, status.deadline_extensions),
        (&Some(Time(at(1220))), 1)
    );
    assert_settled(&scene);
    assert_eq!(said(&scene.at(1219).pass()).0, RunPhase::Pending);
    let mut late = scene.clone();
    let decision = scene.at(1220).pass();
    assert_said(&decision, failed(Reason::StartTimeout));
    assert_has(
        &decision,
        &[
            "not started",
            URL,
            "was not asked",
            "32 queries",
            "8 of them for namespace 'team', where 5 wait",
        ],
    );
    assert!(released(&decision).is_some());
    assert_settled(&scene);
    // A response in time ends the wait as usual, and the next wait has its own extension.
    late.reply();
    late.pass();
    let status = late.status();
    assert_eq!(status.base_commit.as_deref(), Some(BASE));
    assert_eq!(status.deadline_extensions, 0);
}

/// A query takes up to 30 s, however short the timeout of the Agent is.
#[test]
fn a_short_timeout_leaves_time_for_one_query() {
    let mut scene = Scene::with(json!({}), json!({"startTimeout": "1s"}));
    scene.server.is_queried = true;
    scene.at(20).pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(21))));
    assert_eq!(said(&scene.at(21).pass()).0, RunPhase::Pending);
    let status = scene.status();
    assert_eq!(
        (&status.progress.deadline_at, status.deadline_extensions),
        (&Some(Time(at(51))), 1)
    );
    assert_settled(&scene);
    assert_eq!(said(&scene.at(50).pass()).0, RunPhase::Pending);
    let mut late = scene.clone();
    scene.reply();
    scene.pass();
    assert_eq!(scene.status().base_commit.as_deref(), Some(BASE));
    // The server has accepted the query, and does not respond.
    let decision = late.at(51).pass();
    assert_said(&decision, failed(Reason::RepositoryUnreachable));
    let message = "has not responded in time; the query is in flight";
    assert_has(&decision, &["not started", URL, message]);
}

/// The last response was a failure, and the repeated query never gets its turn.
#[test]
fn a_repeated_query_that_never_gets_its_turn_ends_the_wait_after_one_extension() {
    let mut scene = Scene::plain();
    scene.at(20).pass();
    scene.refuse(Reason::RepositoryUnreachable, "silence");
    scene.reply();
    scene.pass();
    let decision = scene.at(679).pass();
    assert_eq!(said(&decision).0, RunPhase::Pending);
    assert!(decision.requeue_at > Some(at(679)), "no hot loop");
    // The response may be from long ago: another operator led since. So nothing is concluded from it yet.
    assert_eq!(said(&scene.at(680).pass()).0, RunPhase::Pending);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(1280))));
    assert_eq!(said(&scene.at(1339).pass()).0, RunPhase::Pending);
    let decision = scene.at(1340).pass();
    assert_said(&decision, failed(Reason::RepositoryUnreachable));
    assert_has(&decision, &["not started: silence"]);
}

/// A response from long ago proves nothing about the current state of the server.
#[test]
fn an_old_answer_decides_nothing() {
    for refusal in [
        None,
        Some(Reason::BranchNotFound),
        Some(Reason::AddressNotAllowed),
    ] {
        let mut scene = Scene::plain();
        let agent = scene.around.world.agent.take();
        scene.pass();
        if let Some(reason) = refusal {
            scene.refuse(reason, "at that time");
        }
        scene.reply();
        assert_eq!(scene.pass().verdict.reason, Reason::Progressing);
        scene.around.world.agent = agent;
        scene.server.refusal = None;
        scene.server.heads.insert("main".to_owned(), "d".repeat(40));
        let decision = scene.at(500).pass();
        assert_eq!(said(&decision).0, RunPhase::Pending, "{refusal:?}");
        assert_eq!(scene.status().base_commit, None, "{refusal:?}");
        scene.reply();
        scene.pass();
        assert_eq!(scene.status().base_commit, Some("d".repeat(40)));
    }
}

#[test]
fn some_answers_no_wait_can_change() {
    for reason in [Reason::AddressNotAllowed, Reason::BranchNotFound] {
        let mut scene = Scene::plain();
        scene.pass();
        scene.refuse(reason, "the words");
        scene.reply();
        let decision = scene.pass();
        assert_said(&decision, failed(reason));
        assert_eq!(decision.verdict.message, "the words");
        assert_eq!(scene.records, 1);
        assert_settled(&scene);
    }
    // A server that is starting may not know the repository for a moment.
    let mut scene = Scene::plain();
    scene.pass();
    scene.refuse(Reason::RepositoryNotFound, "the words");
    scene.reply();
    assert_eq!(said(&scene.pass()).0, RunPhase::Pending);
    assert_eq!(said(&scene.at(9).pass()).0, RunPhase::Pending);
    scene.reply();
    assert_said(&scene.pass(), failed(Reason::RepositoryNotFound));

    let mut scene = Scene::plain();
    scene.server.heads.remove("main");
    scene.pass();
    scene.reply();
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::BranchNotFound));
    assert_has(&decision, &["'main'", URL]);
    assert_eq!(scene.status().base_commit, None);
}

#[test]
fn an_address_that_must_not_be_asked_is_refused_without_asking() {
    let refused = [
        "http://git.example.com/team/shop.git",
        "https://localhost/shop.git",
        "https://git.localhost/shop.git",
        "https://127.0.0.1/shop.git",
        "https://[::1]/shop.git",
        "https://10.0.0.7/shop.git",
        "https://169.254.169.254/latest",
        "https://git.team.svc/shop.git",
        "https://git.team.svc.cluster.local/shop.git",
        "ssh://git@10.96.0.1/shop.git",
        "file:///etc/passwd",
        "--upload-pack=x",
        "nonsense",
        "https://user:password@git.example.com/shop.git",
    ];
    for url in refused {
        let mut scene = Scene::with(json!({"repositoryUrl": url}), json!({}));
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::AddressNotAllowed));
        assert!(!decision.verdict.message.contains("password@"), "{url}");
        assert_eq!(question(&scene.run), None, "{url}");
    }
    // The configuration may allow more.
    for (url, networks, plain_http) in [
        ("http://git.example.com/team/shop.git", vec![], true),
        (
            "https://10.0.0.7/shop.git",
            vec!["10.0.0.0/8".to_owned()],
            false,
        ),
        (
            "ssh://git@10.96.0.1/shop.git",
            vec!["10.96.0.0/12".to_owned()],
            false,
        ),
    ] {
        let mut scene = Scene::with(json!({"repositoryUrl": url}), json!({}));
        scene.settings.allowed_networks = networks;
        scene.settings.plain_http = plain_http;
        assert_eq!(scene.pass().verdict.reason, Reason::Progressing, "{url}");
    }
    // A configuration that cannot be parsed allows nothing.
    let mut scene = Scene::plain();
    scene.settings.allowed_networks = vec!["everything".to_owned()];
    assert_said(&scene.pass(), failed(Reason::InternalError));
}

#[test]
fn a_run_that_is_held_asks_nothing_and_no_time_counts() {
    let mut scene = Scene::with(json!({"suspend": true}), json!({}));
    let decision = scene.pass();
    let held = (RunPhase::Pending, State::Working, Reason::Suspended);
    assert_said(&decision, held);
    assert_eq!(
        (decision.requeue_at, decision.defer_status_until),
        (None, None)
    );
    assert_eq!(question(&scene.run), None);
    assert_settled(&scene);
    scene.at(900_000).edit(|spec| spec.suspend = false);
    assert!(question(&scene.run).is_some());
    scene.pass();
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(900_600))));

    // If the run is suspended while it waits, the wait begins again.
    scene.at(900_100).edit(|spec| spec.suspend = true);
    assert_said(&scene.pass(), held);
    assert_eq!(scene.status().progress.deadline_at, None);
    // The same between the record and the Job.
    let mut scene = Scene::resolved(json!({}), json!({}));
    scene.edit(|spec| spec.suspend = true);
    let decision = scene.pass();
    assert_said(&decision, held);
    assert!(decision.effects.is_empty());
    scene.at(5000).edit(|spec| spec.suspend = false);
    assert_eq!(creates(&scene.pass()).len(), 2);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(5600))));
}

#[test]
fn a_run_that_is_cancelled_asks_nothing() {
    let mut asked = Scene::plain();
    asked.pass();
    for mut scene in [Scene::plain(), asked, Scene::resolved(json!({}), json!({}))] {
        scene.edit(|spec| spec.cancel = true);
        assert_eq!(question(&scene.run), None);
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::Cancelled));
        assert_eq!(
            decision.verdict.message,
            "cancelled by 'spec.cancel' before it was started"
        );
        assert!(decision.effects.is_empty());
    }
}

#[test]
fn the_agent_is_waited_for_first() {
    let mut scene = Scene::new(docs_run(json!({})), None);
    let decision = scene.at(5).pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::AgentNotFound),
    );
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(605))));
    assert_settled(&scene);
    let mut late = scene.clone();
    assert_said(&late.at(605).pass(), failed(Reason::AgentNotFound));

    // By then, the response exists.
    scene.at(590).reply();
    scene.around.world.agent = Some(Arc::new(agent(json!({}))));
    let decision = scene.pass();
    assert_eq!(
        scene.status().base_commit.as_deref(),
        Some(BASE),
        "{decision:?}"
    );
    assert_eq!(creates(&scene.pass()).len(), 2);

    let mut unready = agent(json!({}));
    let verdict = api::Verdict::working(Reason::DependencyNotReady, "missing: it");
    let progress = &mut unready.status.as_mut().unwrap().progress;
    progress.apply_verdict(api::Lifecycle::LongLived, &verdict, 1, start());
    let mut scene = Scene::new(docs_run(json!({})), Some(unready));
    let decision = scene.at(5).pass();
    assert_eq!(decision.verdict.reason, Reason::AgentNotReady);
    assert_has(&decision, &["missing: it"]);
}

/// A wait counts from its own start, with the Agent's timeout.
#[test]
fn the_wait_for_the_repository_begins_when_the_agent_is_there() {
    let mut scene = Scene::new(docs_run(json!({})), None);
    scene.at(5).pass();
    scene.around.world.agent = Some(Arc::new(agent(json!({"startTimeout": "30m"}))));
    scene.refuse(Reason::RepositoryUnreachable, "silence");
    scene.at(595).reply();
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::RepositoryUnreachable);
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(at(595 + 1800)))
    );
    assert_settled(&scene);
    scene.at(700);
    assert_settled(&scene);
}

#[test]
fn an_agent_that_vanishes_after_the_record_is_waited_for() {
    let mut scene = Scene::resolved(json!({}), json!({}));
    let agent = scene.around.world.agent.take();
    let decision = scene.at(10).pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::AgentNotFound),
    );
    assert_eq!(scene.status().base_commit.as_deref(), Some(BASE));
    scene.around.world.agent = agent;
    assert_eq!(creates(&scene.pass()).len(), 2);
}

/// If a Job exists before anything was recorded, nobody knows its commit. So it does not count as
/// an attempt.
#[test]
fn a_job_that_no_record_announces_is_no_attempt() {
    let mut scene = Scene::started(json!({}), json!({}));
    scene.agent_container(running(10));
    scene.run.status = None;
    scene.restart();
    let decision = scene.at(20).pass();
    assert_eq!(deletes(&decision), [JOB]);
    assert!(creates(&decision).is_empty());
    assert_eq!(
        scene
            .run
            .status
            .as_ref()
            .and_then(|status| status.job_name.clone()),
        None
    );
    assert_has(&decision, &[JOB, "to stop"]);
    // Also if the Job reports a push.
    let mut scene = Scene::reported(&pushed());
    scene.run.status = None;
    scene.restart();
    scene.pass();
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    scene.at(70).pass();
    scene.reply();
    scene.pass();
    let status = scene.status();
    assert_eq!(
        (status.base_commit.as_deref(), &status.commit),
        (Some(BASE), &None)
    );
    assert_eq!(
        creates(&scene.pass()),
        [("Job", JOB.to_owned())],
        "it finds its commit"
    );
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let files = json!([{"filename": "a.md", "content": "x".repeat(api::tasks::CONTEXT_LIMIT + 1)}]);
    let mut scene = Scene::with(json!({"instructions": files}), json!({}));
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::ContextTooLarge));
    assert_has(&decision, &["submit another DocsRun"]);
}

#[test]
fn a_secret_that_vanishes_later_shows_on_the_pod() {
    let mut scene = Scene::started(json!({}), json!({}));
    let uid = scene
        .at(20)
        .clone_container(waiting("PodInitializing", ""))
        .uid
        .clone();
    scene.around.warn(
        &uid,
        "FailedMount",
        "MountVolume.SetUp failed for volume \"credentials\" : secret \"git-key\" not found",
    );
    let decision = scene.pass();
    assert_said(
        &decision,
        (RunPhase::Pending, State::Working, Reason::SecretNotFound),
    );
    let decision = scene.at(602).pass();
    assert_has(&decision, &["SecretNotFound", "git-key"]);
    assert_eq!(decision.verdict.reason, Reason::StartTimeout);
    assert!(!decision.verdict.message.contains("pushed"));
}

#[test]
fn one_branch_is_asked_for_once() {
    let scene = Scene::with(json!({"output": {"branch": "main"}}), json!({}));
    assert_eq!(question(&scene.run).unwrap().branches, ["main"]);
}
