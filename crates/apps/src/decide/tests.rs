//! Tables of decisions: from the observed state to phase, reason and message.

mod worlds;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use self::worlds::{
    app, at, condition, failed, healthy, member, name, with_helm, with_helm_seen,
    with_kustomization, with_objects, without,
};
use super::*;
use crate::{
    flux::Attempt,
    overlap::Overlap,
    workload::ClaimView,
    world::{ClaimMember, Mounter},
};

fn decided_about(
    app: &ManagedApp,
    world: &AppWorld,
    now: Timestamp,
    overdue: bool,
) -> Decision<ManagedAppStatus> {
    decide(&Input {
        object: app,
        world,
        now,
        fault: None,
        refused: false,
        confirmed: false,
        overdue,
    })
}

fn decided(world: &AppWorld) -> Decision<ManagedAppStatus> {
    decided_about(&app(), world, at(0), false)
}

/// Stores a decision as the engine does.
fn stored(app: &mut ManagedApp, decision: &Decision<ManagedAppStatus>, now: Timestamp) {
    let before = app.status.clone().unwrap_or_default();
    let spec = app.spec.clone();
    let input = api::deadline::PhaseInput {
        spec: &spec,
        created: Some(at(-3600)),
        progress: None,
    };
    app.status = Some(decision.next_status(&before, &input, 1, now));
}

#[test]
fn a_healthy_application_is_ready() {
    let found = decided(&healthy());
    assert_eq!(found.phase, AppPhase::Ready);
    assert_eq!(found.verdict.reason, Reason::Ready);
    assert_eq!(
        found.verdict.message,
        "1 workload is ready at revision 'main@sha1:0123', chart version 2.0.0"
    );
    let status = &found.status;
    assert_eq!(status.git.as_ref().unwrap().versions["chart"], "2.0.0");
    assert_eq!(
        status.release.as_ref().unwrap().app_version.as_deref(),
        Some("15")
    );
    assert_eq!(status.versions_match, Some(true));
    assert_eq!(status.helm_release, Some(name("shop")));
    let [workload] = &status.workloads[..] else {
        panic!("{:?}", status.workloads);
    };
    assert_eq!((workload.desired, workload.ready), (Some(2), Some(2)));
    assert_eq!(workload.images, ["web:2"]);
    assert!(workload.in_inventory);
    assert_eq!(status.unprotected_volumes[0].kind, "hostPath");
}

/// The operator changes nothing: a decision has no effect, no lock and no live read.
#[test]
fn no_decision_has_an_effect() {
    for (_, world, _, _) in problems() {
        let found = decided(&world);
        assert!(found.effects.is_empty() && found.claims.is_empty() && found.confirm.is_empty());
        assert!(matches!(
            found.finalizer,
            api::decide::FinalizerAction::Remove { .. }
        ));
    }
}

/// S1.8: a status is never older than 30 seconds, also if an event is lost.
#[test]
fn s1_8_the_next_reconciliation_is_in_thirty_seconds() {
    for (_, world, _, _) in problems() {
        assert_eq!(decided(&world).requeue_at, Some(at(30)));
    }
    assert_eq!(decided(&healthy()).requeue_at, Some(at(30)));
}

/// The table of problems: the reason, the observed state, whether a user must act, and a part of the message.
fn problems() -> Vec<(Reason, AppWorld, bool, &'static str)> {
    let overlap = Overlap {
        object: ObjectId::new(ObjectKind::Claim, "shop", "data"),
        older: name("old"),
    };
    vec![
        (
            Reason::FluxNotInstalled,
            without(Seen::NotInstalled),
            false,
            "Kustomization 'shop/shop'. Install Flux",
        ),
        (
            Reason::FluxNotInstalled,
            with_helm_seen(Seen::NotInstalled),
            false,
            "HelmRelease 'shop/shop'. Install Flux",
        ),
        (
            Reason::NamespaceNotWatched,
            without(Seen::NotWatched),
            true,
            "in namespace 'shop', which the operator does not watch",
        ),
        (
            Reason::NamespaceNotWatched,
            with_objects(|all| all.unwatched = ["data".to_owned()].into()),
            true,
            "in namespace 'data'",
        ),
        (
            Reason::FluxObjectUnreadable,
            without(Seen::Unreadable("spec: odd".to_owned())),
            false,
            "cannot be read: spec: odd",
        ),
        (
            Reason::FluxObjectNotFound,
            without(Seen::Absent),
            false,
            "Kustomization 'shop/shop' does not exist",
        ),
        (
            Reason::FluxObjectNotFound,
            with_helm_seen(Seen::Absent),
            false,
            "HelmRelease 'shop/shop' does not exist",
        ),
        (
            Reason::AppOverlaps,
            AppWorld {
                overlap: Some(overlap),
                ..healthy()
            },
            true,
            "PersistentVolumeClaim 'shop/data' also belongs to the older ManagedApp 'shop/old'",
        ),
        (
            Reason::RemoteCluster,
            with_kustomization(|one| one.flux.is_remote = true),
            true,
            "Kustomization 'shop/shop' applies to another cluster",
        ),
        (
            Reason::RemoteCluster,
            with_helm(|one| one.flux.is_remote = true),
            true,
            "HelmRelease 'shop/shop' applies to another cluster",
        ),
        (
            Reason::AlreadySuspended,
            with_kustomization(|one| one.flux.is_suspended = true),
            false,
            "Kustomization 'shop/shop' is suspended",
        ),
        (
            Reason::AlreadySuspended,
            with_helm(|one| one.flux.is_suspended = true),
            false,
            "HelmRelease 'shop/shop' is suspended",
        ),
        (
            Reason::NotInInventory,
            AppWorld {
                helm_release: Err(Problem::new(Reason::NotInInventory, "not there")),
                ..healthy()
            },
            true,
            "not there",
        ),
        (
            Reason::HelmReleaseAmbiguous,
            AppWorld {
                helm_release: Err(Problem::new(Reason::HelmReleaseAmbiguous, "two")),
                ..healthy()
            },
            true,
            "two",
        ),
        (
            Reason::ReleaseUnreadable,
            failed(Reason::ReleaseUnreadable),
            true,
            "a problem",
        ),
        (
            Reason::ReleaseChangedOutsideFlux,
            failed(Reason::ReleaseChangedOutsideFlux),
            true,
            "a problem",
        ),
        (
            Reason::DiscoveryMismatch,
            failed(Reason::DiscoveryMismatch),
            true,
            "a problem",
        ),
        (
            Reason::DiscoveryMismatch,
            with_objects(|all| {
                all.foreign = vec![ObjectId::new(ObjectKind::Deployment, "theirs", "web")];
            }),
            true,
            "an object of the release belongs to Kustomization 'shop/shop' by its inventory",
        ),
        (
            Reason::NoWorkloadsFound,
            with_objects(|all| all.members.clear()),
            false,
            "not its parent",
        ),
        (
            Reason::Unhealthy,
            with_kustomization(|one| one.flux.ready = condition(Some(false), -5)),
            false,
            "Kustomization 'shop/shop': FluxReason: a message of Flux",
        ),
        (
            Reason::Unhealthy,
            with_helm(|one| one.flux.ready = condition(Some(false), -5)),
            false,
            "HelmRelease 'shop/shop': FluxReason",
        ),
        (
            Reason::Unhealthy,
            with_kustomization(|one| one.flux.is_deleting = true),
            false,
            "Kustomization 'shop/shop' is being deleted",
        ),
        (
            Reason::Unhealthy,
            with_objects(|all| all.members.push(member("api", 1))),
            false,
            "Deployment 'shop/api' has 1 of 2 replicas ready",
        ),
    ]
}

#[test]
fn each_problem_names_the_blocker() {
    for (reason, world, is_stalled, part) in problems() {
        let found = decided(&world);
        assert_eq!(found.verdict.reason, reason, "{}", found.verdict.message);
        assert_eq!(found.phase, AppPhase::Degraded, "{reason}");
        assert_eq!(
            found.verdict.state == api::State::Stalled,
            is_stalled,
            "{reason}"
        );
        assert!(
            found.verdict.message.contains(part),
            "{}",
            found.verdict.message
        );
        assert!(
            found.verdict.message.chars().count() < 260,
            "{}",
            found.verdict.message
        );
    }
}

/// Each reason of ManagedApps has a row in a table of this module. The reasons of requests follow them in the list.
#[test]
fn each_reason_is_decided() {
    let mut decided: Vec<Reason> = problems().into_iter().map(|(reason, ..)| reason).collect();
    // See `a_change_is_pending_for_a_time`.
    decided.push(Reason::Comparing);
    let all = api::apps::OPERATOR.reasons.iter();
    let own: Vec<&Reason> = all
        .take_while(|reason| **reason != Reason::OperationActive)
        .collect();
    assert_eq!(own.last(), Some(&&Reason::Unhealthy));
    for reason in own {
        assert!(decided.contains(reason), "{reason}");
    }
}

fn changing() -> AppWorld {
    with_kustomization(|one| one.flux.observed_generation = 0)
}

/// A problem of the discovery may end with the change that Flux applies.
#[test]
fn a_change_of_flux_counts_before_a_problem_of_the_discovery() {
    let mut world = failed(Reason::DiscoveryMismatch);
    world.helm_release = with_helm(|one| one.flux.observed_generation = 0).helm_release;
    let found = decided(&world);
    assert_eq!(
        (found.verdict.reason, found.phase),
        (Reason::Comparing, AppPhase::Pending)
    );
    let mut world = changing();
    world.helm_release = Err(Problem::new(Reason::NotInInventory, "not there yet"));
    assert_eq!(decided(&world).verdict.reason, Reason::Comparing);
    let mut world = failed(Reason::ReleaseUnreadable);
    world.kustomization = with_kustomization(|one| one.flux.is_suspended = true).kustomization;
    assert_eq!(decided(&world).verdict.reason, Reason::AlreadySuspended);
}

#[test]
fn a_change_is_pending_for_a_time() {
    let world = changing();
    let mut app = app();
    let first = decided_about(&app, &world, at(0), false);
    assert_eq!(
        (first.verdict.reason, first.phase),
        (Reason::Comparing, AppPhase::Pending)
    );
    stored(&mut app, &first, at(0));
    let status = app.status.as_ref().unwrap();
    assert_eq!(status.progress.deadline_at, Some(Time(at(15 * 60))));
    let late = decided_about(&app, &world, at(15 * 60), true);
    assert_eq!(
        (late.verdict.reason, late.phase),
        (Reason::Comparing, AppPhase::Degraded)
    );
    stored(&mut app, &late, at(15 * 60));
    // The time of a change that takes too long does not begin again.
    let later = decided_about(&app, &world, at(16 * 60), false);
    assert_eq!(later.phase, AppPhase::Degraded);
    // The end of the change is the end of it.
    assert_eq!(
        decided_about(&app, &healthy(), at(17 * 60), false).phase,
        AppPhase::Ready
    );
}

/// The controllers of Flux set `Ready` to `Unknown` at each interval. A healthy application must not flip.
#[test]
fn an_interval_of_flux_changes_nothing() {
    let (new, mut app) = (app(), app());
    stored(&mut app, &decided(&healthy()), at(0));
    let ready = app.status.clone();
    for (since, now, expected) in [
        (30, 31, AppPhase::Ready),
        (30, 629, AppPhase::Ready),
        (30, 630, AppPhase::Pending),
    ] {
        let world = with_kustomization(|one| one.flux.ready = condition(None, since));
        let found = decided_about(&app, &world, at(now), false);
        assert_eq!(found.phase, expected, "at {now}");
        if expected == AppPhase::Ready {
            let mut same = app.clone();
            stored(&mut same, &found, at(now));
            assert_eq!(same.status, ready, "nothing is written");
        }
    }
    // Unknown is no success for an application that never was ready.
    let world = with_kustomization(|one| one.flux.ready = condition(None, 30));
    assert_eq!(
        decided_about(&new, &world, at(31), false).phase,
        AppPhase::Pending
    );
}

/// While Flux applies another revision or release, a status that was Ready is no evidence for it.
#[test]
fn a_new_version_is_no_interval() {
    let mut app = app();
    stored(&mut app, &decided(&healthy()), at(0));
    let open = || Attempt::Open("it applies revision 'main@sha1:4567'".to_owned());
    let other_revision = with_kustomization(|one| {
        one.flux.ready = condition(None, 30);
        one.revision = Some("main@sha1:4567".to_owned());
    });
    let other_release = with_helm(|one| {
        one.flux.ready = condition(None, 30);
        if let Some(newest) = &mut one.newest {
            newest.version = 4;
        }
    });
    for (name, world) in [
        (
            "an open attempt",
            with_kustomization(|one| one.flux.attempt = open()),
        ),
        (
            "an open upgrade",
            with_helm(|one| one.flux.attempt = open()),
        ),
        ("another revision", other_revision),
        ("another release", other_release),
    ] {
        let found = decided_about(&app, &world, at(31), false);
        assert_eq!(
            (found.verdict.reason, found.phase),
            (Reason::Comparing, AppPhase::Pending),
            "{name}"
        );
    }
    let failed = with_helm(|one| {
        one.flux.attempt = Attempt::Failed("version 4 of release 'shop' is 'failed'".to_owned());
    });
    let found = decided_about(&app, &failed, at(31), false);
    assert_eq!(
        (found.verdict.reason, found.phase),
        (Reason::Unhealthy, AppPhase::Degraded)
    );
}

/// The objects that Flux applied may arrive after its success.
#[test]
fn a_new_success_of_flux_counts_after_a_moment() {
    let new = |since: i64| {
        with_kustomization(|one| {
            one.flux.ready = condition(Some(true), since);
            one.revision = Some("main@sha1:4567".to_owned());
        })
    };
    let mut app = app();
    stored(&mut app, &decided(&healthy()), at(0));
    let first = decided_about(&app, &new(30), at(31), false);
    assert_eq!(
        (first.verdict.reason, first.phase),
        (Reason::Comparing, AppPhase::Pending)
    );
    assert_eq!(first.requeue_at, Some(at(35)));
    stored(&mut app, &first, at(31));
    let second = decided_about(&app, &new(30), at(35), false);
    assert_eq!(second.phase, AppPhase::Ready);
    stored(&mut app, &second, at(35));
    // The next interval is of the same revision.
    assert_eq!(
        decided_about(&app, &new(60), at(61), false).phase,
        AppPhase::Ready
    );
}

/// A workload that breaks is reported although Flux reconciles.
#[test]
fn a_broken_workload_is_reported_during_an_interval() {
    let mut app = app();
    stored(&mut app, &decided(&healthy()), at(0));
    let mut world = with_objects(|all| all.members[0] = member("web", 1));
    world.kustomization =
        with_kustomization(|one| one.flux.ready = condition(None, 30)).kustomization;
    let found = decided_about(&app, &world, at(31), false);
    assert_eq!(
        (found.verdict.reason, found.phase),
        (Reason::Unhealthy, AppPhase::Degraded)
    );
}

#[test]
fn long_lists_are_cut_and_counted() {
    let world = with_objects(|all| {
        all.members = (0..40).map(|index| member(&index.to_string(), 2)).collect();
        all.mounters = vec![Mounter {
            kind: "Pod".to_owned(),
            name: name("shell"),
            live: None,
        }];
        all.claims = (0..33)
            .map(|index| ClaimMember {
                name: name(&index.to_string()),
                live: (index > 0).then(|| {
                    Arc::new(ClaimView {
                        phase: "Bound".to_owned(),
                        ..ClaimView::default()
                    })
                }),
            })
            .collect();
    });
    let found = decided(&world);
    assert_eq!(found.phase, AppPhase::Ready);
    let status = found.status;
    assert_eq!((status.workload_count, status.workloads.len()), (41, 32));
    assert_eq!((status.volume_count, status.volumes.len()), (33, 32));
    assert_eq!(status.unprotected_volumes.len(), 32);
    assert_eq!(
        (
            status.volumes[0].phase.as_str(),
            status.volumes[1].phase.as_str()
        ),
        ("Missing", "Bound")
    );
}

#[test]
fn an_application_without_helm_has_no_release() {
    let world = AppWorld {
        helm_release: Ok(None),
        ..healthy()
    };
    let found = decided(&world);
    assert_eq!(found.phase, AppPhase::Ready);
    assert_eq!(
        found.verdict.message,
        "1 workload is ready at revision 'main@sha1:0123'"
    );
    let status = found.status;
    assert_eq!(
        (status.release, status.versions_match, status.helm_release),
        (None, None, None)
    );
}

proptest! {
    /// A ManagedApp is Ready only if Flux applied it, it was discovered, and each workload is complete.
    #[test]
    fn ready_needs_evidence(
        value in proptest::option::of(any::<bool>()),
        since in -900_i64..10,
        is_observed in any::<bool>(),
        is_suspended in any::<bool>(),
        ready in proptest::collection::vec(0_i32..3, 0..3),
        is_found in any::<bool>(),
        was_ready in any::<bool>(),
    ) {
        let mut app = app();
        if was_ready {
            stored(&mut app, &decided(&healthy()), at(-1000));
        }
        let mut world = with_kustomization(|one| {
            one.flux.ready = condition(value, since);
            one.flux.is_suspended = is_suspended;
            one.flux.observed_generation = i64::from(is_observed);
        });
        world.discovery = if is_found {
            let members = ready.iter().enumerate();
            let members = members.map(|(index, ready)| member(&index.to_string(), *ready)).collect();
            Discovery::Found(Objects { members, ..Objects::default() })
        } else {
            Discovery::Failed(Problem::new(Reason::ReleaseUnreadable, "x"))
        };
        let found = decided_about(&app, &world, at(0), false);
        let is_new = since > -5 && since < 5;
        let is_applied = match value {
            Some(is_true) => is_true && (was_ready || !is_new),
            None => was_ready && since > -600,
        };
        let is_complete = !ready.is_empty() && ready.iter().all(|count| *count == 2);
        let expected = is_applied && is_observed && !is_suspended && is_found && is_complete;
        prop_assert_eq!(found.verdict.state == api::State::Ready, expected, "{:?}", found.verdict);
        prop_assert_eq!(found.phase == AppPhase::Ready, expected);
    }
}
