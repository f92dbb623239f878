use api::{Reason, Timestamp, tenants::TenantPhase, warning::Warning};
use pods::{ContainerState, ContainerView, Exit, PodPhase, Reported};
use serde_json::json;

use super::cluster::Cluster;
use crate::view::{ClaimView, PodView};

pub(super) fn pod(component: &str, now: Timestamp) -> PodView {
    PodView {
        pod: pods::PodView {
            name: format!("{component}-0"),
            uid: format!("uid-of-{component}"),
            created: Some(now),
            phase: PodPhase::Pending,
            ..pods::PodView::default()
        },
        component: component.to_owned(),
        container: ContainerView::default(),
        plan: None,
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState::Waiting(Reported {
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

fn warning(uid: &str, reason: &str, message: &str) -> Warning {
    Warning {
        object_uid: uid.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        times: 1,
        ..Warning::default()
    }
}

#[test]
fn a_blocker_is_named() {
    type Change = fn(&mut Cluster);
    let cases: [(&str, Change, Reason, &str); 8] = [
        (
            "image",
            |cluster| {
                let mut pod = pod("server", cluster.now);
                pod.container.state = waiting(
                    "ImagePullBackOff",
                    "Back-off pulling image \"x\": not found",
                );
                cluster.world.pods.push(pod);
            },
            Reason::ImagePullFailed,
            "not found",
        ),
        (
            "crash",
            |cluster| {
                let mut pod = pod("server", cluster.now);
                pod.container.state = waiting("CrashLoopBackOff", "back-off 10s");
                pod.container.before = ContainerState::Ended(Exit {
                    code: 3,
                    reason: "Error".to_owned(),
                    ..Exit::default()
                });
                cluster.world.pods.push(pod);
            },
            Reason::CrashLoop,
            "exited with code 3",
        ),
        (
            "volume",
            |cluster| {
                let mut pod = pod("redis", cluster.now);
                pod.unschedulable = Some("unbound claims".to_owned());
                cluster.world.pods.push(pod);
                cluster.world.claims.push(ClaimView {
                    name: "data-redis-0".to_owned(),
                    uid: "uid-of-claim".to_owned(),
                    is_bound: false,
                    size: None,
                });
                let said = warning("uid-of-claim", "ProvisioningFailed", "no class 'fast'");
                cluster.world.warnings.push(said);
            },
            Reason::VolumeNotReady,
            "no class 'fast'",
        ),
        (
            "no node",
            |cluster| {
                let mut pod = pod("server", cluster.now);
                pod.unschedulable = Some("0/1 nodes: Insufficient cpu".to_owned());
                cluster.world.pods.push(pod);
            },
            Reason::Unschedulable,
            "Insufficient cpu",
        ),
        (
            "probe",
            |cluster| {
                cluster.ready("redis", 1);
                let mut pod = pod("server", cluster.now);
                pod.container.state = ContainerState::Running {
                    since: Some(cluster.now),
                };
                cluster.world.warnings.push(warning(
                    &pod.uid,
                    "Unhealthy",
                    "Readiness probe failed: 404",
                ));
                cluster.world.pods.push(pod);
                cluster.settle();
                cluster.pass(30);
            },
            Reason::ProbeFailed,
            "404",
        ),
        (
            "quota of a Deployment",
            |cluster| {
                let server = cluster.world.server.as_mut().unwrap();
                server.failure =
                    Some("pods \"server-x\" is forbidden: exceeded quota: tenant".to_owned());
            },
            Reason::QuotaExceeded,
            "exceeded quota: tenant",
        ),
        (
            "webhook that cannot be called",
            |cluster| {
                let server = cluster.world.server.as_mut().unwrap();
                server.failure = Some(
                    "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \"https://hook.policy.svc:443/pods?timeout=10s\": EOF"
                        .to_owned(),
                );
            },
            Reason::AdmissionDenied,
            "the admission webhook 'w' (Service 'hook' in namespace 'policy') cannot be called, so no Pod can be created: ",
        ),
        (
            "quota of a StatefulSet",
            |cluster| {
                let sets = cluster.world.children.iter();
                let uid = sets
                    .filter(|(_, child)| child.name == "redis")
                    .find(|(known, _)| known.kind == "StatefulSet")
                    .map(|(_, child)| child.uid.clone())
                    .unwrap();
                let text = "create Pod redis-0 failed: pods \"redis-0\" is forbidden: exceeded quota: tenant";
                cluster
                    .world
                    .warnings
                    .push(warning(&uid, "FailedCreate", text));
            },
            Reason::QuotaExceeded,
            "no Pod can be made: exceeded quota: tenant",
        ),
    ];
    for (name, change, reason, words) in cases {
        let mut cluster = Cluster::full();
        cluster.settle();
        change(&mut cluster);
        cluster.pass(6);
        let decision = cluster.settle();
        assert_eq!(decision.phase, TenantPhase::Degraded, "{name}");
        assert_eq!(decision.verdict.reason, reason, "{name}");
        assert!(
            decision.verdict.message.contains(words),
            "{name}: {:?}",
            decision.verdict
        );
        // After the fix, the Tenant continues.
        cluster.world.pods.clear();
        cluster.world.warnings.clear();
        if let Some(server) = &mut cluster.world.server {
            server.failure = None;
        }
        cluster.ready("redis", 1);
        cluster.ready("server", 2);
        assert_eq!(cluster.settle().phase, TenantPhase::Running, "{name}");
    }
}

#[test]
fn a_kubelet_that_is_late_blocks_when_it_stays_late() {
    let map = "MountVolume.SetUp failed for volume \"config\" : \
               failed to sync configmap cache: timed out waiting for the condition";
    let key = "failed to sync secret cache: timed out waiting for the condition";
    let broken = "MountVolume.MountDevice failed: timeout";
    let cases = [
        ("FailedMount", map, 1, None),
        ("FailedMount", map, 2, None),
        ("FailedMount", map, 3, Some(Reason::VolumeNotReady)),
        ("FailedMount", broken, 1, Some(Reason::VolumeNotReady)),
        ("Failed", key, 1, None),
        ("Failed", key, 3, Some(Reason::ContainerNotStartable)),
    ];
    for (reason, message, times, blocked) in cases {
        let mut cluster = Cluster::full();
        cluster.settle();
        let mut pod = pod("redis", cluster.now);
        if reason == "Failed" {
            pod.container.state = waiting("CreateContainerConfigError", message);
        }
        let mut said = warning(&pod.uid, reason, message);
        said.times = times;
        cluster.world.warnings.push(said);
        cluster.world.pods.push(pod);
        let decision = cluster.settle();
        let seen = (decision.phase == TenantPhase::Degraded).then_some(decision.verdict.reason);
        assert_eq!(seen, blocked, "{reason}: {message}, {times} times");
    }
}

#[test]
fn what_starts_is_not_blocked() {
    let mut cluster = Cluster::full();
    cluster.settle();
    let mut starting = pod("server", cluster.now);
    starting.container.state = ContainerState::Running {
        since: Some(cluster.now),
    };
    cluster
        .world
        .warnings
        .push(warning(&starting.uid, "Unhealthy", "refused"));
    cluster.world.pods.push(starting);
    cluster.pass(4);
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Provisioning);
    let soon = cluster.now + std::time::Duration::from_secs(1);
    assert_eq!(decision.requeue_at, Some(soon), "nobody else wakes us");
    cluster.pass(2);
    // The server waits for its Redis, which is starting.
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    // The StatefulSet reports a ready Redis. The event of its Pod may arrive later, and the DNS resolves the
    // name of the Redis some seconds later.
    cluster.ready("redis", 1);
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Provisioning);
    let reached = cluster.now + std::time::Duration::from_secs(30);
    assert_eq!(decision.requeue_at, Some(reached), "nobody else wakes us");
    cluster.pass(29);
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    cluster.pass(1);
    assert_eq!(cluster.settle().phase, TenantPhase::Degraded);
}

#[test]
fn nobody_says_why_but_it_takes_too_long() {
    let mut cluster = Cluster::full();
    let decision = cluster.settle();
    assert!(decision.requeue_at.is_some());
    cluster.pass(119);
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    cluster.pass(2);
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Degraded);
    assert_eq!(decision.verdict.reason, Reason::NotReady);
    // The time to get ready does not begin again by itself.
    cluster.pass(300);
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Degraded);
    assert_eq!(cluster.status().progress.deadline_at, None);
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
    cluster.ready("server", 1);
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    let deadline = cluster.status().progress.deadline_at.clone();
    let wanted = cluster.now + std::time::Duration::from_secs(120);
    assert_eq!(deadline.map(|time| time.0), Some(wanted));
}

#[test]
fn nothing_less_than_all_is_running() {
    type Change = fn(&mut Cluster);
    let cases: [(&str, Change); 6] = [
        ("an old generation", |cluster| {
            cluster.world.server.as_mut().unwrap().observed -= 1
        }),
        ("one is missing", |cluster| {
            cluster.world.server.as_mut().unwrap().ready = 1
        }),
        ("one is of the old kind", |cluster| {
            cluster.world.server.as_mut().unwrap().updated = 1
        }),
        ("an old one is left", |cluster| {
            cluster.world.server.as_mut().unwrap().replicas = 3
        }),
        ("no endpoint", |cluster| cluster.world.endpoints.clear()),
        ("a quota that nobody counts", |cluster| {
            cluster.world.quotas.clear()
        }),
    ];
    for (name, change) in cases {
        let mut cluster = Cluster::full();
        cluster.settle();
        cluster.ready("redis", 1);
        cluster.ready("server", 2);
        assert_eq!(cluster.settle().phase, TenantPhase::Running);
        change(&mut cluster);
        assert_ne!(cluster.settle().phase, TenantPhase::Running, "{name}");
    }
}

/// Readiness from before a change of the spec does not count for the new spec.
#[test]
fn r50_what_is_ready_of_another_spec_is_not_ready() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
    let mut spec = Cluster::full_spec();
    spec["server"]["image"] = serde_json::json!("notes:2");
    cluster.change(spec);
    let decision = cluster.decide();
    cluster.record(&decision);
    let said = |kind: &str| {
        cluster
            .status()
            .progress
            .condition(kind)
            .unwrap()
            .status
            .clone()
    };
    assert_eq!(
        (said("Ready"), said("ServerReady")),
        ("False".to_owned(), "False".to_owned())
    );
    assert_eq!(said("RedisReady"), "True", "that was not changed");
}

#[test]
fn the_status_of_a_redis_says_how_it_stands() {
    let redis = |cluster: &Cluster| json!(cluster.status().redis_status);
    let mut cluster = Cluster::full();
    cluster.settle();
    let unseen = "its controller has not seen the change yet";
    assert_eq!(
        redis(&cluster),
        json!({ "phase": "Provisioning", "message": unseen, "readyReplicas": 0, "totalReplicas": 1 })
    );
    cluster.ready("server", 2);
    cluster.ready("redis", 1);
    cluster.settle();
    assert_eq!(
        redis(&cluster),
        json!({ "phase": "Running", "message": "1 of 1 ready", "readyReplicas": 1, "totalReplicas": 1 })
    );
    assert_eq!(
        json!(cluster.status().server_status),
        json!({ "phase": "Running", "message": "2 of 2 ready", "readyReplicas": 2, "totalReplicas": 2 })
    );

    cluster.world.redis.as_mut().unwrap().ready = 0;
    let mut broken = pod("redis", cluster.now);
    broken.container.state = waiting(
        "ImagePullBackOff",
        "Back-off pulling image \"x\": not found",
    );
    cluster.world.pods.push(broken);
    cluster.settle();
    let found = redis(&cluster);
    assert_eq!(
        (
            &found["phase"],
            &found["readyReplicas"],
            &found["totalReplicas"]
        ),
        (&json!("Degraded"), &json!(0), &json!(1))
    );
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("not found"), "{message}");

    cluster.world.pods.clear();
    let mut spec = Cluster::full_spec();
    spec["suspend"] = json!(true);
    cluster.change(spec);
    cluster.settle();
    cluster.ready("redis", 0);
    cluster.settle();
    assert_eq!(
        redis(&cluster),
        json!({ "phase": "Suspended", "message": "is stopped", "readyReplicas": 0, "totalReplicas": 0 })
    );
}

#[test]
fn a_condition_has_the_time_of_its_last_transition() {
    let mut cluster = Cluster::full();
    let begin = cluster.now;
    let since = |cluster: &Cluster, kind: &str| {
        let known = cluster.status().progress.condition(kind).unwrap();
        let since = known.last_transition_time.0.as_second() - begin.as_second();
        (known.status.clone(), known.message.clone(), since)
    };
    cluster.settle();
    let (_, message, _) = since(&cluster, "ServerReady");
    cluster.pass(60);
    cluster.ready("redis", 1);
    cluster.ready("server", 1);
    cluster.settle();
    assert_eq!(since(&cluster, "RedisReady").0, "True");
    assert_eq!(since(&cluster, "RedisReady").2, 60);
    // One of two ready replicas changes the message, but is no transition.
    let (status, other, moved) = since(&cluster, "ServerReady");
    assert_ne!(message, other);
    assert_eq!((status.as_str(), moved), ("False", 0));
    assert_eq!(since(&cluster, "Ready").2, 0);
    cluster.pass(60);
    cluster.ready("server", 2);
    cluster.settle();
    for (kind, moved) in [("Ready", 120), ("ServerReady", 120), ("RedisReady", 60)] {
        let (status, _, since) = since(&cluster, kind);
        assert_eq!((status.as_str(), since), ("True", moved), "{kind}");
    }
}
