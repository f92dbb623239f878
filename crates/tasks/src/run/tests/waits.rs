//! Each wait of a run ends at a stored time, for each reason that a run can wait for.

use api::{Verdict, decide::ErrorClass};

use super::*;
use crate::run::holder::Holder;

/// How a run can come to show a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// By the error of an effect or of a read, before the attempt has a Job.
    ByError,
    /// By a decision before the attempt has a Job.
    BeforeJob,
    /// By a Pod that does not start.
    ByPod,
    /// By a step of a DocsRun, whose waits `docs::tests` check: `resolving` and `verifying`.
    ByDocs,
    /// While the run is suspended or deleted. A user ends that.
    ByUser,
    /// Only by a run that ended, or that is about to end or to start again. Retry backoff has a stored end.
    AtEnd,
    /// By no run.
    Elsewhere,
}

/// Returns all ways in which a run can come to show a reason. The test fails for a reason that is not listed, so a new
/// one must say how its wait ends.
fn ways(reason: Reason) -> Vec<Shown> {
    use Shown::{AtEnd, BeforeJob, ByDocs, ByError, ByPod, ByUser, Elsewhere};
    let rows: &[(&[Reason], &[Shown])] = &[
        (&[Reason::Progressing], &[ByError, BeforeJob, ByPod, ByDocs]),
        (
            &[
                Reason::AgentNotFound,
                Reason::AgentNotReady,
                Reason::TaskTaken,
            ],
            &[BeforeJob],
        ),
        (
            &[
                Reason::ChildNameTaken,
                Reason::InvalidChild,
                Reason::NamespaceTerminating,
            ],
            &[ByError],
        ),
        (
            &[
                Reason::Denied,
                Reason::ApiUnavailable,
                Reason::InternalError,
            ],
            &[ByError, ByDocs],
        ),
        (
            &[
                Reason::QuotaExceeded,
                Reason::AdmissionDenied,
                Reason::DependencyNotReady,
            ],
            &[ByError, ByPod],
        ),
        (
            &[
                Reason::ImagePullFailed,
                Reason::ImageNeedsRoot,
                Reason::ContainerNotStartable,
                Reason::Unschedulable,
                Reason::VolumeNotReady,
                Reason::Disrupted,
            ],
            &[ByPod],
        ),
        (&[Reason::SecretNotFound], &[ByPod, ByDocs]),
        (
            &[
                Reason::Cloning,
                Reason::Publishing,
                Reason::Verifying,
                Reason::RepositoryUnreachable,
                Reason::RepositoryNotFound,
                Reason::AuthenticationFailed,
                Reason::CredentialsInvalid,
                Reason::CertificateNotTrusted,
                Reason::HostKeyUnknown,
                Reason::AddressNotAllowed,
            ],
            &[ByDocs],
        ),
        (
            &[Reason::Suspended, Reason::Deleting, Reason::DeletionBlocked],
            &[ByUser],
        ),
        (
            &[
                Reason::Succeeded,
                Reason::Superseded,
                Reason::ContextTooLarge,
                Reason::StartTimeout,
                Reason::BranchNotFound,
                Reason::RepositoryTooLarge,
                Reason::PathNotFound,
                Reason::CloneFailed,
                Reason::NoChanges,
                Reason::OutputTooLarge,
                Reason::PushRejected,
                Reason::BranchMoved,
                Reason::PublishFailed,
                Reason::NotVerified,
                Reason::NonZeroExit,
                Reason::OOMKilled,
                Reason::ExitContradicted,
                Reason::DeadlineExceeded,
                Reason::ResultMissing,
                Reason::ResultInvalid,
                Reason::ResultTooLarge,
                Reason::EvidenceLost,
                Reason::JobLost,
                Reason::TooManyDisruptions,
                Reason::Cancelled,
                Reason::JobFailed,
            ],
            &[AtEnd],
        ),
        (
            &[
                Reason::Ready,
                Reason::Created,
                // The object cannot be decoded, so it has no decision.
                Reason::Undecodable,
            ],
            &[Elsewhere],
        ),
    ];
    let ways = rows.iter().filter(|(reasons, _)| reasons.contains(&reason));
    ways.flat_map(|(_, ways)| ways.iter().copied()).collect()
}

fn error(class: ErrorClass, reason: Reason) -> ReconcileError {
    ReconcileError::new(class, reason, "the words of the API server")
}

/// Stores an error of the decision's effects, as the engine does.
fn fail_effects(scene: &mut Scene, decision: &RunDecision, reason: Reason) {
    let mut status = scene.run.status.clone().unwrap_or_default();
    status.phase = Some(status.phase.unwrap_or(RunPhase::Pending));
    let deadline = decision.effects_deadline.map(Time);
    status.progress.deadline_at = deadline.or(status.progress.deadline_at);
    let verdict = Verdict::working(reason, "the words of the API server");
    let lifecycle = api::Lifecycle::RunToCompletion;
    status
        .progress
        .apply_verdict(lifecycle, &verdict, 1, scene.now);
    scene.run.status = Some(status);
}

/// Returns runs that are about to create or delete something before an attempt, with the time that they have for it.
fn effects_before_an_attempt() -> Vec<(&'static str, Scene, Timestamp)> {
    let spec = json!({"startTimeout": "5m"});
    let new = || Scene::new(run(json!({})), Some(agent(spec.clone())));
    let mut retries = Scene::started_with(json!({"retry": {"maxAttempts": 3}}), spec.clone());
    retries.at(20).pod(ended(1, 19, ""));
    retries.fail();
    retries.pass();
    let due = retries.status().progress.deadline_at.clone().unwrap().0;
    retries.now = due;
    let due_at = due.as_second() - start().as_second();
    let mut superseded = Scene::running_with(json!({}), spec.clone());
    superseded.at(50).supersede();
    superseded.pass();
    vec![
        ("new", new(), at(300)),
        ("between two attempts", retries, at(due_at + 300)),
        ("superseded", superseded, at(350)),
    ]
}

/// Checks that the error of an effect is repeated until the deadline, and then ends the run.
fn check_error(reason: Reason) {
    for class in ErrorClass::ALL.iter().copied() {
        if class == ErrorClass::Failed || class == ErrorClass::Bug {
            continue;
        }
        for (name, mut scene, deadline) in effects_before_an_attempt() {
            let name = format!("{name}: {class:?} {reason}");
            // The deadline does not move with the tries.
            for seconds in [0, 40, 100] {
                scene.now = scene.now.checked_add(Duration::from_secs(seconds)).unwrap();
                let decision = scene.decide();
                assert!(!decision.effects.is_empty(), "{name}");
                assert_eq!(decision.effects_deadline, Some(deadline), "{name}");
                fail_effects(&mut scene, &decision, reason);
                assert_eq!(
                    scene.status().progress.deadline_at,
                    Some(Time(deadline)),
                    "{name}: the status has it"
                );
            }
            // The last try succeeds, however late it is.
            scene.now = at(9000);
            let decision = scene.decide();
            assert!(!decision.is_end(), "{name}: {}", decision.verdict.message);
            assert_eq!(decision.effects_deadline, Some(deadline), "{name}");
            // Or it fails.
            let decision = scene.decide_with(Some(&error(class, reason)));
            let expected = if reason == Reason::Progressing {
                Reason::StartTimeout
            } else {
                reason
            };
            assert_eq!(
                said(&decision),
                (RunPhase::Failed, State::Failed, expected),
                "{name}"
            );
            let message = &decision.verdict.message;
            for part in ["not started: the words", "Raise 'contextVersion'"] {
                assert!(message.contains(part), "{name}: {message}");
            }
        }
    }
}

/// Checks the waits for the prerequisites of a Job.
fn check_before_job(reason: Reason) {
    let mut scene = match reason {
        Reason::AgentNotFound => Scene::new(run(json!({})), None),
        Reason::AgentNotReady | Reason::Progressing => {
            let mut agent = agent(json!({"startTimeout": "5m"}));
            let progress = &mut agent.status.as_mut().unwrap().progress;
            if reason == Reason::AgentNotReady {
                let verdict = Verdict::working(Reason::DependencyNotReady, "no account");
                progress.apply_verdict(api::Lifecycle::LongLived, &verdict, 1, start());
            } else {
                progress.observed_generation = 0;
            }
            Scene::new(run(json!({})), Some(agent))
        }
        Reason::TaskTaken => {
            let agent = agent(json!({"startTimeout": "5m"}));
            let mut scene = Scene::new(run(json!({})), Some(agent));
            scene.world.holder = Some(Holder {
                name: "first".to_owned(),
                is_over: false,
            });
            scene
        }
        other => panic!("{other} is not checked before the Job"),
    };
    let limit = if reason == Reason::AgentNotFound {
        600
    } else {
        300
    };
    let decision = scene.pass();
    assert_eq!(said(&decision), (RunPhase::Pending, State::Working, reason));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(limit))));
    scene.at(limit - 1).pass();
    assert_eq!(scene.status().phase, Some(RunPhase::Pending));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(limit))));
    let decision = scene.at(limit).pass();
    assert_eq!(decision.phase, RunPhase::Failed, "{reason}");
    let message = &decision.verdict.message;
    assert!(message.contains("Raise 'contextVersion'"), "{message}");
}

/// Checks the waits for the start of a Pod.
fn check_pod(reason: Reason) {
    let mut scene = Scene::started_with(json!({}), json!({"startTimeout": "5m"}));
    scene.at(5);
    let uid = scene.job().uid.clone();
    let wait = |scene: &mut Scene, reason, message| {
        scene.pod(waiting(reason, message));
    };
    match reason {
        Reason::Progressing => wait(&mut scene, "ContainerCreating", ""),
        Reason::ImagePullFailed => wait(&mut scene, "ErrImagePull", "no such image"),
        Reason::ImageNeedsRoot => wait(
            &mut scene,
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
        ),
        Reason::ContainerNotStartable => {
            wait(&mut scene, "CreateContainerError", "no command specified");
        }
        Reason::SecretNotFound => wait(
            &mut scene,
            "CreateContainerConfigError",
            "secret \"token\" not found",
        ),
        Reason::Unschedulable => {
            let pod = scene.pod(ContainerState::Unknown);
            pod.unschedulable = Some("0/1 nodes are available".to_owned());
        }
        Reason::VolumeNotReady => {
            let pod = scene.pod(waiting("ContainerCreating", "")).uid.clone();
            scene.warn(&pod, "FailedMount", "MountVolume.SetUp failed: timed out");
        }
        Reason::QuotaExceeded => scene.warn(
            &uid,
            "FailedCreate",
            "Error creating: pods \"x\" is forbidden: exceeded quota: q",
        ),
        Reason::AdmissionDenied => scene.warn(
            &uid,
            "FailedCreate",
            "Error creating: Internal error occurred: failed calling webhook \"w\": EOF",
        ),
        Reason::DependencyNotReady => scene.warn(
            &uid,
            "FailedCreate",
            "Error creating: pods \"x\" is forbidden: error looking up service account team/robot: serviceaccount \"robot\" not found",
        ),
        Reason::Disrupted => {
            let pod = scene.pod(ContainerState::Unknown);
            stop(pod, 5);
        }
        other => panic!("{other} is not checked for a Pod"),
    }
    let decision = scene.pass();
    assert_eq!(decision.phase, RunPhase::Pending, "{reason}");
    assert_eq!(decision.verdict.reason, reason, "{reason}");
    let deadline = scene.status().progress.deadline_at.clone();
    let deadline = deadline
        .unwrap_or_else(|| panic!("{reason}: no deadline"))
        .0;
    assert!(deadline > scene.now, "{reason}: {deadline}");
    scene.at(290).pass();
    assert_eq!(
        scene.status().progress.deadline_at,
        Some(Time(deadline)),
        "{reason}: it does not move"
    );
    scene.now = deadline;
    scene.pass();
    let result = scene.status().result.clone();
    assert!(result.is_some(), "{reason}: it is not given up");
}

#[test]
fn each_wait_of_each_reason_has_a_stored_end() {
    for reason in Reason::all() {
        let is_of_another = api::kinds::OPERATORS
            .iter()
            .any(|operator| operator.name != "tasks" && operator.reasons.contains(&reason));
        let ways = if is_of_another {
            vec![Shown::Elsewhere]
        } else {
            ways(reason)
        };
        assert!(!ways.is_empty(), "{reason}: nobody says how its wait ends");
        for way in ways {
            match way {
                Shown::ByError => check_error(reason),
                Shown::BeforeJob => check_before_job(reason),
                Shown::ByPod => check_pod(reason),
                Shown::ByDocs | Shown::ByUser | Shown::AtEnd | Shown::Elsewhere => {}
            }
        }
    }
}

/// The response to a creation was lost, and the deadline passed: the run has started.
#[test]
fn a_job_that_exists_after_the_last_error_is_adopted() {
    let mut scene = Scene::plain();
    let decision = scene.decide();
    fail_effects(&mut scene, &decision, Reason::ApiUnavailable);
    for effect in &decision.effects {
        scene.perform(effect);
    }
    scene.at(600);
    scene.job().created = Some(at(600));
    let decision = scene.decide_with(Some(&error(ErrorClass::Transient, Reason::ApiUnavailable)));
    assert_eq!(decision.phase, RunPhase::Pending);
    assert_eq!(decision.status.job_name.as_deref(), Some("shop-7-v1"));
    assert!(decision.status.result.is_none());
}

/// A Job that cannot be stopped does not keep its run forever.
#[test]
fn a_stop_that_is_denied_ends_at_its_stored_deadline() {
    let mut scene = Scene::running();
    scene.run.spec.cancel = true;
    scene.at(100).pass();
    let denied = error(ErrorClass::Denied, Reason::Denied);
    assert_eq!(stops(&scene.decide()), ["Pod shop-7-v1-x"]);
    let decision = scene.at(200).decide_refused(&denied);
    assert_eq!(stops(&decision), ["Job shop-7-v1"]);
    assert_eq!(decision.effects_deadline, Some(at(700)));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(700))));
    scene.at(700);
    let decision = scene.decide_with(Some(&denied));
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::Cancelled)
    );
    let message = &decision.verdict.message;
    assert!(message.contains("the words of the API server"), "{message}");
}

/// Nobody but the API server can say that a Job is the run's, and it did not.
#[test]
fn a_success_that_cannot_be_verified_is_no_success_at_its_deadline() {
    let mut scene = Scene::started();
    scene.job().proven = false;
    scene.at(5).pod(ended(0, 4, r#"{"answer": "42"}"#));
    scene.at(6).complete();
    let decision = scene.at(7).pass_without_effects();
    assert_eq!(decision.phase, RunPhase::Pending);
    assert_eq!(decision.effects_deadline, Some(at(606)));
    assert_eq!(scene.status().progress.deadline_at, Some(Time(at(606))));
    let taken = error(ErrorClass::Invalid, Reason::ChildNameTaken);
    let decision = scene.at(606).decide_with(Some(&taken));
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::ChildNameTaken)
    );
    assert!(
        decision.effects.is_empty(),
        "there is nothing to be stopped"
    );
    // The same without the Agent, so that nothing can be compared.
    let mut orphan = scene.clone();
    orphan.world.agent = None;
    let decision = orphan.at(605).decide();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Stalled, Reason::AgentNotFound)
    );
    let decision = orphan.at(606).decide();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::AgentNotFound)
    );
    let result = decision.status.result.clone().unwrap();
    assert_eq!(result.exit_code, Some(0), "the evidence stays");
    assert_eq!(result.reason.as_deref(), Some("AgentNotFound"));
}
