//! The judgment of an attempt with three containers: which reports count, and which do not.

use super::*;

/// An end of the Pod, and the expected message.
struct Case {
    name: &'static str,
    end: fn(&mut Scene),
    reason: Reason,
    parts: &'static [&'static str],
    is_in_doubt: bool,
}

fn kubelets(code: i32, reason: &str, message: &str) -> ContainerState {
    let ContainerState::Ended(exit) = ended(code, 60, message) else {
        panic!("it ended")
    };
    ContainerState::Ended(Exit {
        reason: reason.to_owned(),
        ..exit
    })
}

/// Ends all three containers with exit code 0. The kubelet reports this reason for one of the first
/// two.
fn contradicted(scene: &mut Scene, step: Step, reason: &str) {
    let ContainerState::Ended(exit) = kubelets(0, reason, "") else {
        panic!("it ended")
    };
    let pod = scene.publish_container(ended(0, 60, &pushed().write()), "{}");
    pod.doubt = Some((step, exit));
    scene.job_ends(0);
}

fn said_no(reason: git::Reason) -> String {
    Report::failed(reason, "what Git said").write()
}

const CASES: &[Case] = &[
    Case {
        name: "clone says why",
        end: |scene| {
            scene.clone_container(ended(1, 9, &said_no(git::Reason::RepositoryTooLarge)));
            scene.around.fail();
        },
        reason: Reason::RepositoryTooLarge,
        parts: &["what Git said"],
        is_in_doubt: false,
    },
    Case {
        name: "clone says nothing",
        end: |scene| {
            scene.clone_container(ended(2, 9, "Killed\nby someone"));
            scene.around.fail();
        },
        reason: Reason::CloneFailed,
        parts: &[
            "'clone'",
            "exited with code 2",
            "without a report",
            "Killed by someone",
        ],
        is_in_doubt: false,
    },
    Case {
        name: "clone claims a push and fails",
        end: |scene| {
            scene.clone_container(ended(1, 9, &pushed().write()));
            scene.around.fail();
        },
        reason: Reason::CloneFailed,
        parts: &["'clone'", "without a report"],
        is_in_doubt: false,
    },
    Case {
        name: "clone runs out of memory",
        end: |scene| {
            scene.clone_container(kubelets(137, "OOMKilled", ""));
            scene.around.fail();
        },
        reason: Reason::OOMKilled,
        parts: &["'clone'", "memory"],
        is_in_doubt: false,
    },
    Case {
        name: "clone cannot be started",
        end: |scene| {
            scene.clone_container(kubelets(128, "StartError", "exec: no such file"));
            scene.around.fail();
        },
        reason: Reason::CloneFailed,
        parts: &["'clone'", "no such file"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent fails",
        end: |scene| {
            scene.agent_container(ended(3, 50, "sorry"));
            scene.around.fail();
        },
        reason: Reason::NonZeroExit,
        parts: &["the agent exited with code 3", "sorry"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent fails and claims a push",
        end: |scene| {
            scene.agent_container(ended(3, 50, &pushed().write()));
            scene.around.fail();
        },
        reason: Reason::NonZeroExit,
        parts: &["the agent exited with code 3"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent fails and claims a reason",
        end: |scene| {
            scene.agent_container(ended(3, 50, &said_no(git::Reason::PushRejected)));
            scene.around.fail();
        },
        reason: Reason::NonZeroExit,
        parts: &["exited with code 3"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent runs out of memory",
        end: |scene| {
            scene.agent_container(kubelets(137, "OOMKilled", ""));
            scene.around.fail();
        },
        reason: Reason::OOMKilled,
        parts: &["256Mi"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent cannot be started",
        end: |scene| {
            scene.agent_container(kubelets(128, "StartError", "exec: \"/run\": no such file"));
            scene.around.fail();
        },
        reason: Reason::ContainerNotStartable,
        parts: &["/run"],
        is_in_doubt: false,
    },
    Case {
        name: "the agent may not be executed",
        end: |scene| {
            scene.agent_container(kubelets(128, "StartError", "permission denied"));
            scene.around.fail();
        },
        reason: Reason::ContainerNotStartable,
        parts: &["permission denied"],
        is_in_doubt: false,
    },
    Case {
        name: "publish says why",
        end: |scene| scene.publish_ends(1, &said_no(git::Reason::PushRejected)),
        reason: Reason::PushRejected,
        parts: &["what Git said"],
        is_in_doubt: false,
    },
    Case {
        name: "publish says nothing",
        end: |scene| scene.publish_ends(1, ""),
        reason: Reason::PublishFailed,
        parts: &["'publish'", "exited with code 1", "without a report"],
        is_in_doubt: true,
    },
    Case {
        name: "publish claims a push and fails",
        end: |scene| scene.publish_ends(1, &pushed().write()),
        reason: Reason::PublishFailed,
        parts: &["exited with code 1"],
        is_in_doubt: true,
    },
    Case {
        name: "publish runs out of memory",
        end: |scene| {
            scene
                .at(61)
                .publish_container(kubelets(137, "OOMKilled", ""), "");
            scene.around.fail();
        },
        reason: Reason::OOMKilled,
        parts: &["'publish'"],
        is_in_doubt: true,
    },
    Case {
        name: "publish succeeds without a report",
        end: |scene| scene.publish_ends(0, ""),
        reason: Reason::PublishFailed,
        parts: &["exited with code 0 without a report"],
        is_in_doubt: true,
    },
    Case {
        name: "publish succeeds with nonsense",
        end: |scene| scene.publish_ends(0, "{\"outcome\": \"Pushed\"}"),
        reason: Reason::PublishFailed,
        parts: &["exited with code 0 without a report"],
        is_in_doubt: true,
    },
    Case {
        name: "publish succeeds with another's report",
        end: |scene| {
            let report = Report::Cloned {
                commit: commit(BASE),
            };
            scene.publish_ends(0, &report.write());
        },
        reason: Reason::PublishFailed,
        parts: &["exited with code 0 without a report"],
        is_in_doubt: true,
    },
    Case {
        name: "publish succeeds with the report of a failure",
        end: |scene| scene.publish_ends(0, &said_no(git::Reason::PushRejected)),
        reason: Reason::PublishFailed,
        parts: &["exited with code 0 without a report"],
        is_in_doubt: true,
    },
    Case {
        name: "nothing changed",
        end: |scene| scene.publish_ends(0, &unchanged().write()),
        reason: Reason::NoChanges,
        parts: &["nothing changed below 'docs/'", "1 left out (docs/link)"],
        is_in_doubt: false,
    },
    Case {
        name: "the Pod is gone",
        end: |scene| {
            scene.around.world.children.pods.clear();
            scene.around.complete();
            scene.at(75);
        },
        reason: Reason::EvidenceLost,
        parts: &["its Pod no longer exists"],
        is_in_doubt: true,
    },
    Case {
        name: "the Pod does not say how the agent ended",
        end: |scene| {
            scene.agent_container(running(10));
            scene.around.fail();
            scene.at(75);
        },
        reason: Reason::EvidenceLost,
        parts: &["does not say how"],
        is_in_doubt: false,
    },
    Case {
        name: "the Job's own limit, while publish ran",
        end: |scene| {
            scene.at(61).publish_container(ended(143, 60, ""), "");
            scene
                .around
                .fail_for("DeadlineExceeded", "was active too long");
        },
        reason: Reason::DeadlineExceeded,
        parts: &["the Job's own limit"],
        is_in_doubt: true,
    },
    Case {
        name: "the Job's own limit, while the agent ran",
        end: |scene| {
            scene.agent_container(ended(143, 60, ""));
            scene
                .around
                .fail_for("DeadlineExceeded", "was active too long");
        },
        reason: Reason::DeadlineExceeded,
        parts: &["the Job's own limit"],
        is_in_doubt: false,
    },
    Case {
        name: "the Job's own limit, and the Pod is gone",
        end: |scene| {
            scene.around.world.children.pods.clear();
            scene
                .around
                .fail_for("DeadlineExceeded", "was active too long");
        },
        reason: Reason::DeadlineExceeded,
        parts: &["the Job's own limit"],
        is_in_doubt: true,
    },
];

/// All containers exited with code 0, and `publish` reports a push.
const CONTRADICTED: &[Case] = &[
    Case {
        name: "a process of the agent was killed for memory, and the agent returned 0",
        end: |scene| contradicted(scene, Step::Main, "OOMKilled"),
        reason: Reason::OOMKilled,
        parts: &[
            "the agent exited with code 0, but a process of it used more memory than its limit of",
        ],
        is_in_doubt: false,
    },
    Case {
        name: "a process of clone was killed for memory, and clone returned 0",
        end: |scene| contradicted(scene, Step::Before, "OOMKilled"),
        reason: Reason::OOMKilled,
        parts: &[
            "the container 'clone' exited with code 0",
            "more memory than its limit",
        ],
        is_in_doubt: false,
    },
    Case {
        name: "the kubelet contradicts the agent's code",
        end: |scene| contradicted(scene, Step::Main, "Error"),
        reason: Reason::ExitContradicted,
        parts: &["the agent exited with code 0, but the kubelet reports the reason 'Error'"],
        is_in_doubt: false,
    },
    Case {
        name: "the kubelet contradicts the code of publish",
        end: |scene| {
            scene.publish_container(kubelets(0, "OOMKilled", &pushed().write()), "{}");
            scene.job_ends(0);
        },
        reason: Reason::OOMKilled,
        parts: &[
            "the container 'publish' exited with code 0",
            "more memory than its limit",
        ],
        is_in_doubt: false,
    },
];

/// A pushed commit stays pushed and is named, but it is no success.
#[test]
fn a_container_that_contradicts_its_exit_code_is_no_success() {
    for Case {
        name,
        end,
        reason,
        parts,
        ..
    } in CONTRADICTED
    {
        let mut scene = Scene::running();
        scene.at(61);
        end(&mut scene);
        let decision = scene.pass();
        assert_eq!(said(&decision), failed(*reason), "{name}: {decision:?}");
        assert_has(&decision, parts);
        let said = "was pushed to 'docs/shop' all the same, as 'publish' reports";
        assert_has(&decision, &[said]);
        assert!(scene.settle().effects.is_empty(), "{name}: nothing follows");
    }
}

/// The report of another actor's Pod is not recorded as a commit of the run.
#[test]
fn a_pod_of_someone_else_pushed_nothing_that_is_known() {
    let mut scene = Scene::running();
    scene.at(61);
    scene.publish_container(kubelets(0, "Completed", &pushed().write()), "{}");
    scene.job_ends(0);
    for pod in &mut scene.around.world.children.pods {
        pod.foreign = true;
    }
    let decision = scene.pass();
    assert_eq!(said(&decision), failed(Reason::ExitContradicted));
    assert_has(&decision, &["whether it pushed is not known"]);
    assert_eq!(decision.status.commit, None);
}

#[test]
fn every_end_of_a_pod_has_its_reason_and_its_doubt() {
    for Case {
        name,
        end,
        reason,
        parts,
        is_in_doubt,
    } in CASES
    {
        let mut scene = Scene::running();
        scene.at(61);
        end(&mut scene);
        let decision = scene.pass();
        assert_eq!(said(&decision), failed(*reason), "{name}: {decision:?}");
        assert_has(&decision, parts);
        let message = &decision.verdict.message;
        assert_eq!(message.contains(DOUBT), *is_in_doubt, "{name}: {message}");
        assert_eq!(
            message.contains("pushed"),
            *is_in_doubt,
            "{name}: {message}"
        );
        let status = scene.status();
        assert_eq!((&status.commit, status.attempts), (&None, 1), "{name}");
        let result = status.result.clone().unwrap();
        assert_eq!(result.reason.as_deref(), Some(reason.name()), "{name}");
        let of_attempt = result.message.unwrap();
        assert!(message.starts_with(&of_attempt), "{name}: {of_attempt}");
        assert!(result.finished_at.is_some(), "{name}");
        assert!(decision.effects.is_empty(), "{name}");
        assert_settled(&scene);
    }
}

/// The agent can write anything to its own termination message. No part of it is a report.
#[test]
fn an_agent_cannot_claim_a_push() {
    let forged = pushed().write();
    // The forged report in the agent's container alone, and no report of the last container.
    let mut scene = Scene::publishing_with(json!({}), json!({}), &forged);
    scene.publish_ends(0, "");
    assert_said(&scene.pass(), failed(Reason::PublishFailed));
    assert_eq!(scene.status().commit, None);
    // If the last container has another report, that one counts.
    let mut scene = Scene::publishing_with(json!({}), json!({}), &forged);
    scene.publish_ends(0, &unchanged().write());
    assert_said(&scene.pass(), failed(Reason::NoChanges));
    assert_eq!(scene.status().commit, None);
    // The forged report is a result like any other.
    let results = scene.status().result.clone().unwrap().results;
    assert_eq!(results.get("outcome").map(String::as_str), Some("Pushed"));
    // A Pod that is complete according to its agent alone is no success.
    let mut scene = Scene::running();
    scene.at(61).agent_container(ended(0, 60, &forged));
    scene.around.complete();
    assert_said(&scene.pass(), failed(Reason::PublishFailed));
    assert_eq!(scene.status().commit, None);
}

#[test]
fn what_the_agent_must_return_is_looked_for_in_its_own_message() {
    let required = json!({"results": [{"name": "answer", "required": true}]});
    let publish = json!({"answer": "of publish"}).to_string();
    for (message, report, reason) in [
        ("", publish.as_str(), Reason::ResultMissing),
        ("nonsense", "", Reason::ResultInvalid),
        ("{\"answer\": null}", "", Reason::ResultMissing),
    ] {
        let mut scene = Scene::publishing_with(json!({}), required.clone(), message);
        scene.publish_ends(0, report);
        let decision = scene.pass();
        assert_said(&decision, failed(reason));
        assert_has(&decision, &[DOUBT]);
    }
    // A commit that was pushed nevertheless is reported, and is not the run's success.
    let mut scene = Scene::publishing_with(json!({}), required.clone(), "");
    scene.publish_ends(0, &pushed().write());
    let decision = scene.pass();
    assert_said(&decision, failed(Reason::ResultMissing));
    assert_has(&decision, &["answer", PUSHED, "was pushed", BRANCH]);
    assert_eq!(scene.status().commit.as_deref(), Some(PUSHED));
    assert_eq!(question(&scene.run), None, "it is over");

    let mut scene = Scene::publishing_with(json!({}), required, "{\"answer\": \"42\"}");
    scene.publish_ends(0, &pushed().write());
    assert_eq!(scene.pass().verdict.reason, Reason::Verifying);
    let results = scene.status().result.clone().unwrap().results;
    assert_eq!(results.get("answer").map(String::as_str), Some("42"));
}

#[test]
fn nothing_changed_is_what_the_run_says_it_is() {
    let mut scene = Scene::running_with(json!({"output": {"requireChanges": false}}), json!({}));
    scene.publish_ends(0, &unchanged().write());
    let decision = scene.pass();
    assert_said(&decision, SUCCEEDED);
    assert_has(&decision, &["nothing was pushed", "docs/link"]);
    let status = scene.status();
    assert_eq!((&status.commit, &status.changed_files), (&None, &None));
    assert_eq!(
        released(&decision).flatten().unwrap()["outcome"],
        "Succeeded"
    );
    assert_eq!(question(&scene.run), None, "there is nothing to ask for");
    assert_settled(&scene);
}

#[test]
fn a_commit_that_was_found_counts_as_one_that_was_pushed() {
    let mut scene = Scene::reported(&found());
    let decision = scene.pass();
    assert_eq!(decision.verdict.reason, Reason::Verifying);
    assert_has(&decision, &["was pushed before"]);
    assert_eq!(scene.status().commit.as_deref(), Some(PUSHED));
    scene
        .server
        .heads
        .insert(BRANCH.to_owned(), PUSHED.to_owned());
    scene.pass();
    scene.reply();
    assert_said(&scene.pass(), SUCCEEDED);
}

/// Every reason of a step has a matching reason of ours.
#[test]
fn every_reason_of_a_step_is_known_and_told() {
    for reason in git::Reason::ALL {
        let known = Reason::from_name(reason.as_str());
        let mut scene = Scene::publishing();
        scene.publish_ends(1, &said_no(reason));
        let decision = scene.pass();
        assert_eq!(Some(decision.verdict.reason), known, "{reason}");
        let message = &decision.verdict.message;
        assert!(message.starts_with("what Git said"), "{message}");
        // A push may have arrived although its response was lost.
        let is_lost = matches!(
            reason,
            git::Reason::RepositoryUnreachable | git::Reason::PublishFailed
        );
        assert_eq!(message.contains(DOUBT), is_lost, "{reason}: {message}");
    }
}

#[test]
fn only_what_another_attempt_may_change_is_repeated() {
    let retry = || json!({"retry": {"maxAttempts": 3}});
    let repeated = |end: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::running_with(json!({}), retry());
        scene.at(61);
        end(&mut scene);
        let decision = scene.pass();
        if decision.is_end() {
            return None;
        }
        assert_eq!(decision.requeue_at, Some(at(71)), "the Agent's backoff");
        assert_settled(&scene);
        scene.at(71);
        let decision = scene.pass();
        assert_eq!(creates(&decision), [("Job", "shop-docs-a2".to_owned())]);
        let Effect::Ensure(manifest) = &decision.effects[0] else {
            panic!("{decision:?}")
        };
        let wanted = api::tasks::push_intent(scene.status());
        assert_eq!(manifest.requires_intent, wanted, "each Job is announced");
        Some(scene.status().attempts)
    };
    assert_eq!(
        repeated(&|scene| {
            scene.agent_container(ended(3, 50, ""));
            scene.around.fail();
        }),
        Some(2)
    );
    for (reason, is_repeated) in [
        (git::Reason::RepositoryUnreachable, true),
        (git::Reason::AuthenticationFailed, true),
        (git::Reason::CloneFailed, true),
        (git::Reason::PublishFailed, true),
        (git::Reason::OutputTooLarge, false),
        (git::Reason::PathNotFound, false),
        (git::Reason::RepositoryTooLarge, false),
        (git::Reason::AddressNotAllowed, false),
        (git::Reason::PushRejected, false),
        (git::Reason::BranchMoved, false),
    ] {
        let again = repeated(&|scene| scene.publish_ends(1, &said_no(reason)));
        assert_eq!(again.is_some(), is_repeated, "{reason}");
    }
    for report in [unchanged().write(), String::new()] {
        assert_eq!(repeated(&|scene| scene.publish_ends(0, &report)), None);
    }
    // A pushed commit is not written a second time by another agent.
    let mut scene = Scene::running_with(
        json!({}),
        json!({"retry": {"maxAttempts": 3}, "results": [{"name": "answer", "required": true}]}),
    );
    scene.publish_ends(0, &pushed().write());
    assert_said(&scene.pass(), failed(Reason::ResultMissing));
}

#[test]
fn nothing_is_written_while_the_job_says_nothing() {
    for mut scene in [Scene::cloning(), Scene::publishing()] {
        let records = scene.records;
        let reason = scene.decide().verdict.reason;
        if reason == Reason::Cloning {
            scene.clone_container(ended(1, 60, ""));
        } else {
            scene.publish_container(ended(0, 60, ""), "");
        }
        let decision = scene.at(61).pass();
        assert_eq!(decision.verdict.reason, reason);
        assert_eq!(scene.records, records, "{reason}");
    }
}
