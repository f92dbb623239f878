//! Why a container does not start: one case for each report of kubelet, scheduler, Job controller
//! and Events.

use api::{Reason, State, tasks::RunPhase};

use super::*;

#[test]
fn a_waiting_container_names_its_cause() {
    let cases = [
        (
            "ErrImagePull",
            "rpc error: not found",
            Reason::ImagePullFailed,
            "cannot be pulled: rpc error: not found",
        ),
        (
            "ImagePullBackOff",
            "",
            Reason::ImagePullFailed,
            "cannot be pulled",
        ),
        (
            "InvalidImageName",
            "couldn't parse",
            Reason::ImagePullFailed,
            "couldn't parse",
        ),
        (
            "ErrImageNeverPull",
            "not present",
            Reason::ImagePullFailed,
            "not present",
        ),
        (
            "CreateContainerConfigError",
            "secret \"token\" not found",
            Reason::SecretNotFound,
            "secret \"token\" not found",
        ),
        (
            "CreateContainerConfigError",
            "couldn't find key k in Secret team/token",
            Reason::SecretNotFound,
            "couldn't find key k",
        ),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
            Reason::ImageNeedsRoot,
            "run as root",
        ),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image has non-numeric user (app)",
            Reason::ImageNeedsRoot,
            "non-numeric user (app)",
        ),
        (
            "CreateContainerConfigError",
            "something else",
            Reason::ContainerNotStartable,
            "something else",
        ),
        (
            "CreateContainerError",
            "no command specified",
            Reason::ContainerNotStartable,
            "no command specified",
        ),
        (
            "RunContainerError",
            "exec: \"/run\": permission denied",
            Reason::ContainerNotStartable,
            "cannot be executed by user 65532: exec: \"/run\": permission denied",
        ),
        (
            "RunContainerError",
            "exec: \"x\": not found",
            Reason::ContainerNotStartable,
            "exec: \"x\": not found",
        ),
        (
            "ContainerCreating",
            "",
            Reason::Progressing,
            "Job 'shop-7-v1' was created; waiting for its Pod",
        ),
        (
            "PodInitializing",
            "",
            Reason::Progressing,
            "Job 'shop-7-v1' was created; waiting for its Pod",
        ),
    ];
    for (reason, message, expected, part) in cases {
        let mut scene = Scene::started();
        scene.at(5).pod(waiting(reason, message));
        let decision = scene.decide();
        assert_eq!(
            said(&decision),
            (RunPhase::Pending, State::Working, expected),
            "{reason}: {message}"
        );
        assert!(
            decision.verdict.message.contains(part),
            "{}",
            decision.verdict.message
        );
        if expected != Reason::Progressing {
            assert!(
                decision
                    .verdict
                    .message
                    .contains("Pod 'shop-7-v1-x' on node 'node-1'")
            );
        }
        assert_eq!(
            decision.requeue_at,
            Some(at(600)),
            "the wait ends with startTimeout"
        );
    }
}

#[test]
fn a_pod_without_a_node_repeats_the_scheduler() {
    let cases = [
        (
            "0/3 nodes are available: 3 Insufficient cpu.",
            Reason::Unschedulable,
        ),
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            Reason::VolumeNotReady,
        ),
        (
            "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
            Reason::VolumeNotReady,
        ),
    ];
    for (message, expected) in cases {
        let mut scene = Scene::started();
        scene.at(5);
        let pod = scene.pod(ContainerState::Unknown);
        pod.node = None;
        pod.unschedulable = Some(message.to_owned());
        let decision = scene.decide();
        assert_eq!(
            said(&decision),
            (RunPhase::Pending, State::Working, expected)
        );
        let said = decision.verdict.message;
        assert_eq!(said, format!("Pod 'shop-7-v1-x' has no node: {message}"));
    }
}

#[test]
fn a_refused_pod_is_known_by_the_jobs_event() {
    let cases = [
        (
            "Error creating: pods \"shop-7-v1-abcde\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5",
            Reason::QuotaExceeded,
        ),
        (
            "Error creating: pods \"a\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
            Reason::QuotaExceeded,
        ),
        (
            "Error creating: pods \"a\" is forbidden: minimum memory usage per Container is 1Gi",
            Reason::QuotaExceeded,
        ),
        (
            "Error creating: pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: agent",
            Reason::QuotaExceeded,
        ),
        ("Error creating: LimitRange broken", Reason::QuotaExceeded),
        (
            "Error creating: pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
            Reason::AdmissionDenied,
        ),
        (
            "Error creating: admission webhook \"w\" denied the request: no",
            Reason::AdmissionDenied,
        ),
        (
            "Error creating: pods \"a\" is forbidden: no reason",
            Reason::AdmissionDenied,
        ),
        (
            "Error creating: pods \"a\" is forbidden: error looking up service account team/bot: serviceaccount \"bot\" not found",
            Reason::DependencyNotReady,
        ),
        (
            "Error creating: pods \"a\" is forbidden: no PriorityClass with name high was found",
            Reason::DependencyNotReady,
        ),
        (
            "Error creating: Pod \"a\" is invalid: spec.containers[0].image: Required value",
            Reason::InvalidChild,
        ),
        (
            "Error creating: etcdserver: request timed out",
            Reason::Progressing,
        ),
    ];
    for (message, expected) in cases {
        let mut scene = Scene::started();
        scene.at(5);
        let uid = scene.job().uid.clone();
        scene.warn(&uid, "FailedCreate", message);
        let decision = scene.decide();
        assert_eq!(
            said(&decision),
            (RunPhase::Pending, State::Working, expected),
            "{message}"
        );
        assert!(
            decision
                .verdict
                .message
                .starts_with("the Pod cannot be created: ")
        );
    }
}

/// `kubectl get` shows the start of the message, and a webhook that is down is no rule that rejects the Pod.
#[test]
fn a_webhook_that_cannot_be_called_is_named_first() {
    let call = "failed to call webhook: Post \"https://hook.policy.svc:443/pods?timeout=10s\"";
    for (cause, problem) in [
        (
            "dial tcp 10.0.3.4:443: connect: connection refused",
            "cannot be called",
        ),
        (
            "no endpoints available for service \"hook\"",
            "cannot be called",
        ),
        ("context deadline exceeded", "did not answer in time"),
    ] {
        let mut scene = Scene::started();
        scene.at(5);
        let uid = scene.job().uid.clone();
        let message = format!(
            "Error creating: Internal error occurred: failed calling webhook \"w\": {call}: {cause}"
        );
        scene.warn(&uid, "FailedCreate", &message);
        let verdict = scene.decide().verdict;
        assert_eq!(verdict.reason, Reason::AdmissionDenied, "{cause}");
        let start = format!(
            "the admission webhook 'w' (Service 'hook' in namespace 'policy') {problem}, so the Pod cannot be created: "
        );
        assert!(verdict.message.starts_with(&start), "{}", verdict.message);
        assert!(verdict.message.ends_with(cause), "{}", verdict.message);
    }
}

#[test]
fn a_volume_is_known_by_the_pods_event() {
    let cases = [
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"a\" : secret \"s\" not found",
            Reason::SecretNotFound,
        ),
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"a\" : configmap \"c\" not found",
            Reason::SecretNotFound,
        ),
        (
            "FailedMount",
            "MountVolume.MountDevice failed: timeout",
            Reason::VolumeNotReady,
        ),
        (
            "FailedAttachVolume",
            "Multi-Attach error for volume",
            Reason::VolumeNotReady,
        ),
        (
            "FailedScheduling",
            "0/1 nodes are available",
            Reason::Progressing,
        ),
        ("BackOff", "whatever", Reason::Progressing),
    ];
    for (reason, message, expected) in cases {
        let mut scene = Scene::started();
        scene.at(5).pod(waiting("ContainerCreating", ""));
        let uid = scene.world.children.pods[0].uid.clone();
        scene.warn(&uid, reason, message);
        assert_eq!(
            scene.decide().verdict.reason,
            expected,
            "{reason}: {message}"
        );
    }
}

#[test]
fn a_kubelet_that_is_late_is_said_when_it_stays_late() {
    let late = "MountVolume.SetUp failed for volume \"context\" : \
                failed to sync configmap cache: timed out waiting for the condition";
    let unknown = "MountVolume.SetUp failed for volume \"context\" : \
                   object \"shop\"/\"shop-7-v1-files\" not registered";
    // The ConfigMap of this run exists, and the other one does not.
    let unseen =
        "MountVolume.SetUp failed for volume \"context\" : configmap \"shop-7-v1-files\" not found";
    let absent = "MountVolume.SetUp failed for volume \"a\" : configmap \"other\" not found";
    let broken = "MountVolume.MountDevice failed: timeout";
    let key = "failed to sync secret cache: timed out waiting for the condition";
    let (mount, made) = ("FailedMount", "ContainerCreating");
    let (failed, refused) = ("Failed", "CreateContainerConfigError");
    let cases = [
        (made, mount, late, 1, Reason::Progressing),
        (made, mount, late, 2, Reason::Progressing),
        (made, mount, late, 3, Reason::VolumeNotReady),
        (made, mount, unknown, 1, Reason::Progressing),
        (made, mount, unknown, 3, Reason::VolumeNotReady),
        (made, mount, unseen, 1, Reason::Progressing),
        (made, mount, unseen, 3, Reason::SecretNotFound),
        (made, mount, absent, 1, Reason::SecretNotFound),
        (made, mount, broken, 1, Reason::VolumeNotReady),
        (refused, failed, key, 1, Reason::Progressing),
        (refused, failed, key, 3, Reason::ContainerNotStartable),
    ];
    for (state, reason, message, times, expected) in cases {
        let mut scene = Scene::started();
        let words = if state == refused { message } else { "" };
        scene.at(5).pod(waiting(state, words));
        let uid = scene.world.children.pods[0].uid.clone();
        scene.warn(&uid, reason, message);
        scene.world.children.warnings[0].times = times;
        assert_eq!(
            scene.decide().verdict.reason,
            expected,
            "{state}, {message}, {times} times"
        );
    }
}

#[test]
fn a_warning_counts_only_while_it_can_be_true() {
    let message = "Error creating: pods \"a\" is forbidden: exceeded quota: q";
    let mut scene = Scene::started();
    let uid = scene.job().uid.clone();

    scene.at(-1).warn(&uid, "FailedCreate", message);
    scene.at(5);
    assert_eq!(
        scene.decide().verdict.reason,
        Reason::Progressing,
        "older than the Job"
    );

    scene.warn("another-uid", "FailedCreate", message);
    assert_eq!(
        scene.decide().verdict.reason,
        Reason::Progressing,
        "about another object"
    );

    scene.warn(&uid, "FailedCreate", message);
    assert_eq!(scene.decide().verdict.reason, Reason::QuotaExceeded);

    scene.at(6).warn(
        &uid,
        "FailedCreate",
        "Error creating: pods \"b\" is forbidden: denied",
    );
    assert_eq!(
        scene.decide().verdict.reason,
        Reason::AdmissionDenied,
        "the newest counts"
    );

    scene.pod(waiting("ContainerCreating", ""));
    assert_eq!(
        scene.decide().verdict.reason,
        Reason::Progressing,
        "the Pod exists by now"
    );
}

#[test]
fn words_that_change_at_each_try_are_not_repeated() {
    let mut scene = Scene::started();
    scene.at(5);
    let uid = scene.job().uid.clone();
    let refused = |name: &str| {
        format!(
            "Error creating: pods \"{name}\" is forbidden: exceeded quota: q, requested: pods=1"
        )
    };
    scene.warn(&uid, "FailedCreate", &refused("shop-7-v1-abcde"));
    let first = scene.decide().verdict;
    scene
        .at(6)
        .warn(&uid, "FailedCreate", &refused("shop-7-v1-fghij"));
    assert_eq!(scene.decide().verdict, first);
    assert_eq!(
        first.message,
        "the Pod cannot be created: it is forbidden: exceeded quota: q, requested: pods=1"
    );

    let mut scene = Scene::started();
    let error = "failed to pull and unpack image \"a:1\": not found";
    scene.at(5).pod(waiting("ErrImagePull", error));
    let first = scene.decide().verdict;
    scene.pod(waiting(
        "ImagePullBackOff",
        &format!("Back-off pulling image \"a:1\": ErrImagePull: {error}"),
    ));
    assert_eq!(scene.decide().verdict, first);
}

#[test]
fn a_pod_that_is_stopped_before_it_starts_is_no_mystery() {
    let mut scene = Scene::started();
    scene.at(5);
    let pod = scene.pod(waiting("ContainerCreating", ""));
    pod.stop_asked = Some(at(4));
    assert_eq!(
        said(&scene.decide()),
        (RunPhase::Pending, State::Working, Reason::Disrupted)
    );

    scene.world.children.pods[0].disruption = Some(Reported {
        reason: "PreemptionByScheduler".to_owned(),
        message: String::new(),
    });
    let decision = scene.decide();
    assert!(decision.verdict.message.contains("PreemptionByScheduler"));
}

#[test]
fn at_the_deadline_the_cause_goes_into_the_message() {
    let mut scene = Scene::started();
    scene.at(5).pod(waiting("ErrImagePull", "not found"));
    scene.pass();
    scene.at(599);
    assert_eq!(scene.decide().verdict.reason, Reason::ImagePullFailed);
    scene.at(600);
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Pending, State::Working, Reason::StartTimeout)
    );
    assert!(decision.effects.is_empty(), "the evidence is stored first");
    scene.pass();
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    let decision = scene.pass();
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::StartTimeout)
    );
    let message = decision.verdict.message;
    assert_eq!(
        message,
        "the container did not start within 10m: ImagePullFailed: Pod 'shop-7-v1-x' on node 'node-1': the image cannot be pulled: not found"
    );
}
