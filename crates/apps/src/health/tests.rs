//! The table of healthy, changing and unhealthy applications.

use pods::{Cause, Rollout};
use proptest::prelude::*;

use super::*;
use crate::{object::ObjectKind, volumes::Mounts};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(ObjectKind::Deployment, "shop", name)
}

fn flux(state: FluxState) -> FluxMember {
    FluxMember {
        id: ObjectId::new(ObjectKind::Kustomization, "flux", "shop"),
        state,
    }
}

fn ready(count: i32) -> Rollout {
    Rollout {
        observed: 2,
        wanted: count,
        replicas: count,
        updated: count,
        ready: count,
    }
}

fn view(name: &str, rollout: Rollout) -> WorkloadView {
    WorkloadView {
        id: id(name),
        uid: name.to_owned(),
        generation: 2,
        appliers: BTreeSet::new(),
        rollout: Some(rollout),
        is_deleting: false,
        is_rolling: false,
        hold: None,
        failure: None,
        images: ["web:2".to_owned()].into(),
        mounts: Mounts::default(),
    }
}

fn member(name: &str, live: Option<WorkloadView>) -> Member {
    Member {
        id: id(name),
        live: live.map(Arc::new),
        pods: Vec::new(),
    }
}

fn pod(name: &str, is_ready: bool, image: &str) -> Arc<AppPod> {
    Arc::new(AppPod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        is_ready,
        images: [image.to_owned()].into(),
        ..AppPod::default()
    })
}

fn crashing(name: &str) -> Arc<AppPod> {
    let cause = Cause::new(Reason::CrashLoop, format!("Pod '{name}' crashes"));
    Arc::new(AppPod {
        cause: Some(cause),
        ..pod(name, false, "web:2").as_ref().clone()
    })
}

fn judged(state: FluxState, workloads: &[Member]) -> Health {
    check(
        &[flux(state)],
        workloads,
        &Expectation::default(),
        &[],
        now(),
    )
}

/// One word for the result, and its message.
fn word(health: &Health) -> (&'static str, &str) {
    match health {
        Health::Healthy(_) => ("healthy", ""),
        Health::Changing(problem) => (problem.reason.name(), &problem.message),
        Health::Unhealthy(problem) => (problem.reason.name(), &problem.message),
    }
}

#[test]
fn s1_7_healthy_is_flux_ready_and_every_workload_ready() {
    let healthy = [member("web", Some(view("web", ready(2))))];
    assert_eq!(judged(FluxState::Settled, &healthy), Health::Healthy(1));
    let failed = || FluxState::Failed("HealthCheckFailed: timeout".to_owned());
    let changing = || FluxState::Reconciling("Progressing: waits".to_owned());
    for (state, expected, part) in [
        (
            FluxState::Deleting,
            "Unhealthy",
            "Kustomization 'flux/shop' is being deleted",
        ),
        (
            FluxState::Suspended,
            "AlreadySuspended",
            "Kustomization 'flux/shop' is suspended",
        ),
        (
            failed(),
            "Unhealthy",
            "Kustomization 'flux/shop': HealthCheckFailed: timeout",
        ),
        (
            changing(),
            "Comparing",
            "Kustomization 'flux/shop': Progressing: waits",
        ),
    ] {
        let found = judged(state, &healthy);
        let (reason, message) = word(&found);
        assert_eq!(reason, expected);
        assert!(message.contains(part), "{message}");
    }
}

/// The table of rollouts: wanted, existing, updated and ready replicas, observed generation, rolling, and the result.
#[test]
fn a_workload_has_exactly_its_desired_replicas() {
    for (wanted, replicas, updated, ready, observed, is_rolling, expected) in [
        (2, 2, 2, 2, 2, false, "healthy"),
        // R33: 0 of 0 is no success.
        (0, 0, 0, 0, 2, false, "Unhealthy"),
        (2, 2, 2, 1, 2, false, "Unhealthy"),
        (2, 2, 2, 0, 2, false, "Unhealthy"),
        (2, 1, 1, 1, 2, false, "Unhealthy"),
        // An old Pod is left and serves.
        (2, 3, 2, 2, 2, false, "Unhealthy"),
        (2, 3, 2, 2, 2, true, "Progressing"),
        (2, 2, 1, 2, 2, true, "Progressing"),
        // Its controller has not seen the latest spec.
        (2, 2, 2, 2, 1, false, "Progressing"),
    ] {
        let rollout = Rollout {
            observed,
            wanted,
            replicas,
            updated,
            ready,
        };
        let live = WorkloadView {
            is_rolling,
            ..view("web", rollout)
        };
        let found = judged(FluxState::Settled, &[member("web", Some(live))]);
        assert_eq!(word(&found).0, expected, "{rollout:?}: {found:?}");
    }
}

#[test]
fn a_missing_workload_and_an_empty_inventory_are_no_success() {
    let found = judged(FluxState::Settled, &[member("web", None)]);
    let (reason, message) = word(&found);
    assert_eq!(reason, "Unhealthy");
    assert!(message.starts_with("Deployment 'shop/web' is in the inventory, but does not exist"));
    assert_eq!(word(&judged(FluxState::Settled, &[])).0, "NoWorkloadsFound");
    // A CronJob has no replicas that could be ready.
    let cron = Member {
        id: ObjectId::new(ObjectKind::CronJob, "shop", "backup"),
        ..member("backup", None)
    };
    assert_eq!(
        word(&judged(FluxState::Settled, &[cron])).0,
        "NoWorkloadsFound"
    );
}

/// Its controller still reports all replicas of a workload that a finalizer keeps.
#[test]
fn a_workload_that_is_being_deleted_is_not_healthy() {
    let live = WorkloadView {
        is_deleting: true,
        ..view("web", ready(2))
    };
    let found = judged(FluxState::Settled, &[member("web", Some(live))]);
    let (reason, message) = word(&found);
    assert_eq!(reason, "Unhealthy");
    assert!(message.contains("is being deleted"), "{message}");
}

/// A CronJob has no replicas, but Flux applied it, so it must exist.
#[test]
fn a_missing_cron_job_is_not_healthy() {
    let web = member("web", Some(view("web", ready(1))));
    let cron = |live: Option<WorkloadView>| Member {
        id: ObjectId::new(ObjectKind::CronJob, "shop", "backup"),
        ..member("backup", live)
    };
    let idle = WorkloadView {
        rollout: None,
        ..view("backup", ready(0))
    };
    let deleted = WorkloadView {
        is_deleting: true,
        ..idle.clone()
    };
    for (live, expected) in [
        (Some(idle), "healthy"),
        (Some(deleted), "Unhealthy"),
        (None, "Unhealthy"),
    ] {
        let found = judged(FluxState::Settled, &[web.clone(), cron(live)]);
        assert_eq!(word(&found).0, expected, "{found:?}");
    }
}

/// The table of texts: the rollout, whether it rolls, the field that holds it, and the reason and text.
#[test]
fn the_message_says_what_is_missing() {
    let partition = "'spec.updateStrategy.rollingUpdate.partition' is 1";
    for (rollout, is_rolling, hold, expected) in [
        (
            Rollout {
                ready: 1,
                ..ready(2)
            },
            false,
            None,
            (
                "Unhealthy",
                "Deployment 'shop/web' has 1 of 2 replicas ready",
            ),
        ),
        (
            Rollout {
                updated: 1,
                ..ready(2)
            },
            true,
            None,
            (
                "Progressing",
                "Deployment 'shop/web' rolls out: 1 of 2 replicas updated, 2 ready",
            ),
        ),
        (
            Rollout {
                replicas: 3,
                ..ready(2)
            },
            false,
            None,
            (
                "Unhealthy",
                "Deployment 'shop/web' has 3 replicas, 2 of them with the latest template, instead of 2",
            ),
        ),
        // A controller that a field holds never ends the rollout.
        (
            Rollout {
                updated: 1,
                ..ready(2)
            },
            true,
            Some(partition),
            (
                "Unhealthy",
                "Deployment 'shop/web' has 1 of 2 replicas of the latest template, because 'spec.updateStrategy.rollingUpdate.partition' is 1",
            ),
        ),
        (
            ready(2),
            false,
            Some("'spec.paused' is true"),
            ("healthy", ""),
        ),
    ] {
        let live = WorkloadView {
            is_rolling,
            hold: hold.map(str::to_owned),
            ..view("web", rollout)
        };
        let found = judged(FluxState::Settled, &[member("web", Some(live))]);
        assert_eq!(word(&found), expected, "{rollout:?}");
    }
    let set = Member {
        id: ObjectId::new(ObjectKind::DaemonSet, "shop", "agent"),
        ..member("agent", Some(view("agent", ready(0))))
    };
    let found = judged(FluxState::Settled, &[set]);
    assert!(word(&found).1.contains("matches no node"), "{found:?}");
}

/// Flux fails because it waits for the workload, so the workload is the cause.
#[test]
fn the_cause_of_a_workload_counts_before_the_failure_of_flux() {
    let mut broken = member(
        "web",
        Some(view(
            "web",
            Rollout {
                ready: 1,
                ..ready(2)
            },
        )),
    );
    let mut old = crashing("old").as_ref().clone();
    old.created = Some(Timestamp::from_second(1).unwrap());
    let mut new = crashing("new").as_ref().clone();
    new.created = Some(Timestamp::from_second(2).unwrap());
    broken.pods = vec![Arc::new(old), Arc::new(new), pod("well", true, "web:2")];
    let other = member(
        "api",
        Some(view(
            "api",
            Rollout {
                ready: 0,
                ..ready(1)
            },
        )),
    );
    let workloads = [other, broken];
    for state in [
        FluxState::Failed("HealthCheckFailed: timeout".to_owned()),
        FluxState::Reconciling("Progressing: waits".to_owned()),
        FluxState::Settled,
    ] {
        let found = judged(state, &workloads);
        assert_eq!(
            word(&found),
            (
                "Unhealthy",
                "Deployment 'shop/web' has 1 of 2 replicas ready: Pod 'new' crashes; 1 other workload is not ready"
            )
        );
    }
}

#[test]
fn a_pod_that_cannot_be_created_is_a_cause_during_a_rollout() {
    let live = WorkloadView {
        is_rolling: true,
        failure: Some("exceeded quota: q".to_owned()),
        ..view(
            "web",
            Rollout {
                updated: 0,
                ..ready(2)
            },
        )
    };
    let found = judged(FluxState::Settled, &[member("web", Some(live))]);
    let (reason, message) = word(&found);
    assert_eq!(reason, "Unhealthy");
    assert!(message.ends_with("exceeded quota: q"), "{message}");
}

/// The words of the API server begin with an internal error, and name the webhook at their end.
#[test]
fn a_webhook_that_cannot_be_called_is_the_start_of_the_cause() {
    let failure = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \"https://hook.policy.svc:443/pods?timeout=10s\": EOF";
    let live = WorkloadView {
        failure: Some(failure.to_owned()),
        ..view(
            "web",
            Rollout {
                ready: 0,
                replicas: 0,
                ..ready(1)
            },
        )
    };
    let found = judged(FluxState::Settled, &[member("web", Some(live))]);
    let expected = format!(
        "Deployment 'shop/web' has 0 of 1 replicas ready: the admission webhook 'w' (Service 'hook' in namespace 'policy') cannot be called, so no Pod can be created: {failure}"
    );
    assert_eq!(word(&found).1, expected);
}

/// Only an Event reports why the controller of a StatefulSet cannot create a Pod.
#[test]
fn a_rejected_pod_of_a_set_is_a_cause_while_a_replica_is_missing() {
    let warning = Warning {
        namespace: "shop".to_owned(),
        object_uid: "db".to_owned(),
        reason: "FailedCreate".to_owned(),
        message: "exceeded quota: q".to_owned(),
        ..Warning::default()
    };
    for (replicas, expected) in [
        (
            0,
            "Deployment 'shop/db' has 0 of 1 replicas ready: exceeded quota: q",
        ),
        (1, "Deployment 'shop/db' has 0 of 1 replicas ready"),
    ] {
        let rollout = Rollout {
            ready: 0,
            replicas,
            ..ready(1)
        };
        let workloads = [member("db", Some(view("db", rollout)))];
        let flux = [flux(FluxState::Settled)];
        let warnings = [warning.clone()];
        let found = check(&flux, &workloads, &Expectation::default(), &warnings, now());
        assert_eq!(word(&found).1, expected);
    }
}

/// The old Pod of a workload that is complete is no cause.
#[test]
fn pods_of_a_complete_workload_are_not_judged() {
    let mut complete = member("web", Some(view("web", ready(1))));
    complete.pods = vec![crashing("evicted")];
    assert_eq!(judged(FluxState::Settled, &[complete]), Health::Healthy(1));
}

/// The table of expectations of an operation.
#[test]
fn an_operation_expects_its_images_and_its_zeros() {
    let mut web = member("web", Some(view("web", ready(1))));
    let zero = member("idle", Some(view("idle", ready(0))));
    let images = |image: &str| Expectation {
        images: [image.to_owned()].into(),
        at_zero: [id("idle")].into(),
    };
    for (pods, image, expected) in [
        (vec![pod("a", true, "web:2")], "web:2", ""),
        (
            vec![pod("a", true, "web:2")],
            "web:3",
            "no Pod template has the image 'web:3'",
        ),
        // Without a ready Pod, nothing shows that the image runs.
        (
            vec![],
            "web:2",
            "not all ready Pods of Deployment 'shop/web' have the image 'web:2'",
        ),
        (
            vec![pod("a", true, "web:2"), pod("b", true, "web:1")],
            "web:2",
            "not all ready Pods of Deployment 'shop/web' have the image 'web:2'",
        ),
        (
            vec![pod("a", true, "web:2"), pod("b", false, "web:1")],
            "web:2",
            "",
        ),
    ] {
        web.pods = pods;
        let workloads = [web.clone(), zero.clone()];
        let flux = [flux(FluxState::Settled)];
        let found = check(&flux, &workloads, &images(image), &[], now());
        assert_eq!(word(&found).1, expected, "{found:?}");
    }
    let found = judged(FluxState::Settled, &[zero]);
    assert!(
        word(&found).1.contains("has 0 desired replicas"),
        "{found:?}"
    );
}

proptest! {
    /// A healthy application never has a workload that differs from its desired state.
    #[test]
    fn nothing_is_called_healthy_that_is_not(
        counts in proptest::collection::vec((0_i32..3, 0_i32..3, 0_i32..3, 0_i32..3, 1_i64..3, any::<bool>()), 0..4),
        settled in any::<bool>(),
    ) {
        let rollouts: Vec<Rollout> = counts.iter().map(|(wanted, replicas, updated, ready, observed, _)| Rollout {
            observed: *observed, wanted: *wanted, replicas: *replicas, updated: *updated, ready: *ready,
        }).collect();
        let members: Vec<Member> = counts.iter().zip(&rollouts).enumerate().map(|(index, (count, rollout))| {
            let name = index.to_string();
            let live = WorkloadView { is_rolling: count.5, ..view(&name, *rollout) };
            member(&name, Some(live))
        }).collect();
        let state = if settled { FluxState::Settled } else { FluxState::Reconciling(String::new()) };
        let is_well = settled && !rollouts.is_empty() && rollouts.iter().all(|one| {
            one.wanted >= 1 && one.observed >= 2
                && [one.replicas, one.updated, one.ready].iter().all(|count| *count == one.wanted)
        });
        let found = judged(state, &members);
        prop_assert_eq!(matches!(found, Health::Healthy(_)), is_well, "{:?}", found);
    }
}
