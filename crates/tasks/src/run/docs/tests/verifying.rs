//! Verification of a reported push: the server's response to a query after the report.

use super::super::{VERIFY_LAG, VERIFY_WAIT};
use super::*;

const VERIFYING: (RunPhase, State, Reason) = (RunPhase::Running, State::Working, Reason::Verifying);

/// Returns a run with its report recorded in the 61st second, and the server queried.
fn asked() -> Scene {
    let mut scene = Scene::verifying();
    assert_said(&scene.pass(), VERIFYING);
    scene
}

fn answered(scene: &mut Scene, second: i64, head: Option<&str>) -> DocsDecision {
    scene.server.refusal = None;
    match head {
        Some(head) => scene
            .server
            .heads
            .insert(BRANCH.to_owned(), head.to_owned()),
        None => scene.server.heads.remove(BRANCH),
    };
    scene.at(second).reply();
    scene.pass()
}

#[test]
fn the_server_at_the_commit_is_the_success() {
    let mut scene = asked();
    let decision = answered(&mut scene, 62, Some(PUSHED));
    assert_said(&decision, SUCCEEDED);
    assert_settled(&scene);
}

#[test]
fn a_server_that_is_elsewhere_has_a_moment_to_catch_up() {
    assert_eq!((VERIFY_LAG.as_secs(), VERIFY_WAIT.as_secs()), (30, 600));
    let other = "d".repeat(40);
    for (head, found) in [
        (Some(HEAD), format!("is at {HEAD}")),
        (Some(other.as_str()), format!("is at {other}")),
        (None, "is not there".to_owned()),
    ] {
        let mut scene = asked();
        let decision = answered(&mut scene, 62, head);
        assert_said(&decision, VERIFYING);
        assert_has(&decision, &[PUSHED, "was reported as pushed", &found]);
        assert_eq!(decision.requeue_at, Some(at(67)), "when it is asked again");
        assert_settled(&scene);
        let mut late = scene.clone();
        assert_said(&answered(&mut late, 91, head), VERIFYING);
        assert_said(&answered(&mut late, 91, Some(PUSHED)), SUCCEEDED);
        // The last response has expired, so the run waits for another one.
        assert_said(&scene.at(100).pass(), VERIFYING);

        let decision = answered(&mut scene, 101, head);
        assert_said(&decision, failed(Reason::NotVerified));
        assert_has(&decision, &[PUSHED, &found]);
        assert_eq!(
            scene.status().commit.as_deref(),
            Some(PUSHED),
            "it was reported"
        );
        assert_eq!(released(&decision).flatten().unwrap()["outcome"], "Failed");
        assert_settled(&scene);
    }
}

#[test]
fn a_server_that_does_not_answer_has_until_the_stored_time() {
    for reason in [
        Reason::RepositoryUnreachable,
        Reason::AuthenticationFailed,
        Reason::RepositoryNotFound,
        Reason::SecretNotFound,
    ] {
        let mut scene = asked();
        scene.refuse(reason, "the words");
        scene.at(100).reply();
        let decision = scene.pass();
        assert_said(&decision, VERIFYING);
        assert_has(&decision, &["the words", reason.name(), PUSHED]);
        assert_settled(&scene);
        scene.at(660).reply();
        assert_said(&scene.pass(), VERIFYING);
        let mut mended = scene.clone();
        let decision = scene.at(661).pass();
        assert_said(&decision, failed(Reason::NotVerified));
        assert_has(&decision, &["the words"]);
        assert_said(&answered(&mut mended, 660, Some(PUSHED)), SUCCEEDED);
    }
}

/// A response from before the push proves nothing about the push.
#[test]
fn an_answer_from_before_the_push_is_not_used() {
    let mut scene = Scene::plain();
    scene.pass();
    let resolve = question(&scene.run).unwrap();
    scene.reply();
    let mut old = scene.worker.clone().unwrap().1;
    scene.pass();
    scene.pass();
    scene.publish_ends(0, &pushed().write());
    // Also if it still exists in the reconciliation that reads the report, and contains this
    // commit.
    if let Some(LsRemoteResponse {
        response: Ok(heads),
        ..
    }) = &mut old
    {
        heads.insert(BRANCH.to_owned(), Some(PUSHED.to_owned()));
    }
    let early = decide(&Input {
        object: &scene.run,
        world: &DocsWorld {
            answer: old.clone(),
            ..scene.world()
        },
        now: scene.now(),
        fault: None,
        refused: false,
        confirmed: true,
        overdue: false,
    });
    assert_said(&early, VERIFYING);
    assert_said(&scene.pass(), VERIFYING);
    let verify = question(&scene.run).unwrap();
    assert_ne!(resolve, verify);
    assert_eq!(verify.purpose, Purpose::Verify(PUSHED.to_owned()));
    // The same branches do not make it the same query.
    let same = LsRemoteRequest {
        branches: verify.branches.clone(),
        purpose: Purpose::Resolve,
    };
    assert_ne!(same, verify);
    scene.worker = Some((same, old));
    assert_eq!(scene.world().answer, None);
    assert_said(&scene.pass(), VERIFYING);
    assert_eq!(
        scene.worker.clone().unwrap(),
        (verify, None),
        "it is asked anew"
    );
    scene
        .server
        .heads
        .insert(BRANCH.to_owned(), PUSHED.to_owned());
    scene.reply();
    assert_said(&scene.pass(), SUCCEEDED);
}

#[test]
fn a_cancel_ends_it_and_says_what_was_reported() {
    let mut scene = asked();
    scene.edit(|spec| spec.cancel = true);
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::Cancelled));
    assert_has(&decision, &[PUSHED, BRANCH, "it was reported as pushed"]);
    assert!(decision.effects.is_empty());
    assert_eq!(scene.status().commit.as_deref(), Some(PUSHED));
}

#[test]
fn a_suspend_does_not_stop_it() {
    let mut scene = asked();
    scene.edit(|spec| spec.suspend = true);
    assert!(question(&scene.run).is_some());
    let decision = scene.pass();
    assert_said(&decision, VERIFYING);
    assert!(decision.effects.is_empty());
    assert_said(&answered(&mut scene, 62, Some(PUSHED)), SUCCEEDED);
}

#[test]
fn a_deletion_asks_nothing_more() {
    let mut scene = asked();
    scene.at(70).delete_run();
    assert_eq!(question(&scene.run), None);
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Deleting);
    assert_eq!(deletes(&decision), [JOB]);
    assert_eq!(decision.status.commit.as_deref(), Some(PUSHED));
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    assert_eq!(released(&scene.pass()), Some(None));
}

#[test]
fn another_operator_goes_on_where_the_record_stands() {
    // Killed before the report was recorded: the report is read again.
    let mut scene = Scene::reported(&pushed());
    let killed = scene.decide();
    scene.restart();
    scene.at(70);
    let again = scene.pass();
    assert_eq!(again.status.commit, killed.status.commit);
    // Killed after it: the server is queried, for any state of the Job.
    scene.restart();
    scene.around.world.children.jobs.clear();
    scene.around.world.children.pods.clear();
    scene.around.world.agent = None;
    assert_said(&scene.at(200).pass(), VERIFYING);
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(at(670))),
        "it does not move"
    );
    let decision = answered(&mut scene, 201, Some(PUSHED));
    assert_said(&decision, SUCCEEDED);
    // Nothing is created again, not even during the query.
    assert!(creates(&decision).is_empty());
}

/// A deadline that passed while no operator queried the server proves nothing about the server.
#[test]
fn a_server_that_was_never_asked_is_asked_however_late_it_is() {
    let mut scene = Scene::verifying();
    scene.restart();
    scene.at(100_000);
    let decision = scene.pass();
    assert_said(&decision, VERIFYING);
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(100_600))));
    assert_settled(&scene);
    let mut lagging = scene.clone();
    assert_said(&answered(&mut scene, 100_001, Some(PUSHED)), SUCCEEDED);
    assert_said(&answered(&mut lagging, 100_001, Some(HEAD)), VERIFYING);
    assert_said(&answered(&mut lagging, 100_030, Some(HEAD)), VERIFYING);
    assert_said(
        &answered(&mut lagging, 100_031, Some(HEAD)),
        failed(Reason::NotVerified),
    );
}

#[test]
fn a_query_that_never_gets_its_turn_ends_the_wait_after_one_extension() {
    let mut scene = asked();
    let until = scene.status().progress.deadline_at.clone();
    assert_eq!(until, Some(Time(at(661))));
    assert_said(&scene.at(661).pass(), VERIFYING);
    let status = scene.status();
    assert_eq!(
        (&status.progress.deadline_at, status.deadline_extensions),
        (&Some(Time(at(1261))), 1)
    );
    assert_settled(&scene);
    assert_said(&scene.at(1260).pass(), VERIFYING);
    let mut queried = scene.clone();
    let decision = scene.at(1261).pass();
    assert_said(&decision, failed(Reason::NotVerified));
    assert_has(&decision, &[PUSHED, "was not asked for", "32 queries"]);
    queried.server.is_queried = true;
    let decision = queried.at(1261).pass();
    assert_said(&decision, failed(Reason::NotVerified));
    assert_has(
        &decision,
        &[PUSHED, "has not responded in time", "is in flight"],
    );
}

/// A commit that existed before the push would confirm itself.
#[test]
fn a_commit_that_was_there_before_proves_nothing() {
    for old in [HEAD, BASE] {
        let mut scene = Scene::reported(&Report::Found {
            commit: commit(old),
            changed: Files::default(),
            skipped: Files::default(),
        });
        let decision = scene.pass();
        assert_said(&decision, failed(Reason::PublishFailed));
        assert_has(&decision, &[old, "was there before"]);
        assert_eq!(scene.status().commit, None);
    }
}

#[test]
fn what_was_left_out_stays_in_the_words_until_the_end() {
    let mut scene = Scene::reported(&Report::Pushed {
        commit: commit(PUSHED),
        changed: Files::new(["docs/a.md"]),
        skipped: Files::new(["docs/link", "docs/.gitmodules"]),
    });
    scene.pass();
    let left_out = scene.status().left_out.clone().unwrap();
    assert_eq!(left_out.count, 2);
    assert_eq!(left_out.first, ["docs/link", "docs/.gitmodules"]);
    scene.at(63).pass();
    assert_eq!(scene.records, 5);
    let decision = answered(&mut scene, 64, Some(PUSHED));
    assert_has(
        &decision,
        &["1 file changed (docs/a.md)", "2 left out", "docs/link"],
    );
    assert_eq!(scene.status().left_out, Some(left_out));
}

#[test]
fn the_retry_of_an_agent_does_not_repeat_what_was_pushed() {
    let mut scene = Scene::running_with(json!({}), json!({"retry": {"maxAttempts": 5}}));
    scene.publish_ends(0, &pushed().write());
    scene.pass();
    scene.pass();
    answered(&mut scene, 62, Some(HEAD));
    let decision = answered(&mut scene, 95, Some(HEAD));
    assert_said(&decision, failed(Reason::NotVerified));
    let result = scene.status().result.clone().unwrap();
    assert_eq!(result.reason.as_deref(), Some("NotVerified"));
    assert!(creates(&scene.at(5000).settle()).is_empty());
}
