//! Rollbacks of images: the plan, and whole runs with a HelmRelease.

use api::apps::{ImageChange, RollbackPhase, RollbackRequestStatus, UpgradePlan, VersionChange};

use super::{
    cluster::{Push, RollbackCluster},
    plans::{decided, objects, observed, reason, reported_change, request, with_upgrade},
    storage::Fault,
};
use crate::{
    object::ObjectKind,
    rollback::world::RollbackWorld,
    upgrade::tests::fixtures::{flux_target, member, workload},
};

fn change(from: &str, to: &str) -> ImageChange {
    ImageChange {
        name: "postgres".to_owned(),
        from: format!("postgres:{from}"),
        to: format!("postgres:{to}"),
    }
}

/// Makes the plan of the upgrade one of an image.
fn of_image(plan: &mut UpgradePlan, has_release: bool) {
    plan.chart = VersionChange {
        from: "1.0.0".to_owned(),
        to: "1.0.0".to_owned(),
    };
    plan.images = vec![change("1.0.0", "2.0.0")];
    if has_release {
        let helm = flux_target(api::apps::FluxKind::HelmRelease, "helm-release", None);
        plan.flux_objects = vec![api::apps::PlannedFluxObject {
            kind: helm.kind,
            namespace: helm.namespace,
            name: helm.name,
            uid: helm.uid,
            generation: helm.generation,
            suspend: helm.suspend,
        }];
    }
}

/// The observed state after the upgrade of an image, with this tag in the Pod templates.
fn upgraded(has_release: bool, live: &str) -> RollbackWorld {
    let mut world = observed();
    with_upgrade(&mut world, |status| {
        of_image(status.plan.as_mut().unwrap(), has_release);
    });
    let mut db = workload(ObjectKind::StatefulSet, "db", 3);
    db.images = [format!("postgres:{live}")].into();
    objects(&mut world.operation).members[0] = member(db);
    if !has_release {
        let state = world.operation.app.as_mut().unwrap();
        state.world.helm_release = Ok(None);
        world.operation.flux.truncate(1);
    }
    world
}

/// The values are those of the commit. Helm may have returned the Pod templates, so they decide only without a HelmRelease.
#[test]
fn a_rollback_exchanges_the_images() {
    // Columns: whether there is a HelmRelease, tag in the Pod templates, values of the step, whether Git is as before.
    for (has_release, live, (from, to), is_in_git) in [
        (true, "2.0.0", ("2.0.0", "1.0.0"), false),
        (true, "1.0.0", ("2.0.0", "1.0.0"), false),
        (false, "2.0.0", ("2.0.0", "1.0.0"), false),
        (false, "1.0.0", ("1.0.0", "2.0.0"), true),
    ] {
        let mut world = upgraded(has_release, live);
        reported_change(&mut world, from, to);
        let decision = decided(&request(), &world, false, false);
        let context = format!("{has_release}, {live}: {}", decision.verdict.message);
        let plan = decision.status.plan.expect(&context);
        assert_eq!(plan.change.images, [change("2.0.0", "1.0.0")], "{context}");
        assert_eq!(plan.is_in_git, is_in_git, "{context}");
        assert!(!plan.change.changes_chart(), "{context}");
    }
}

/// Without snapshots and with the images from before in Git, nothing is left to do.
#[test]
fn images_that_are_returned_need_no_second_rollback_without_snapshots() {
    let mut world = upgraded(false, "1.0.0");
    with_upgrade(&mut world, |status| status.snapshots.clear());
    world.snapshots.clear();
    let decision = decided(&request(), &world, false, false);
    assert_eq!(reason(&decision), "NothingToChange");
}

fn cluster(fault: Option<Fault>) -> RollbackCluster {
    let mut cluster = RollbackCluster::of_images(Push::Accepted, |plan| of_image(plan, true));
    cluster.storage.fault = fault;
    cluster
}

fn assert_returned(cluster: &RollbackCluster, context: &str) {
    let RollbackRequestStatus { evidence, .. } = cluster.status();
    assert_eq!(cluster.phase(), RollbackPhase::Succeeded, "{context}");
    cluster.assert_released(context);
    assert_eq!(
        (cluster.commits, &*cluster.version),
        (1, "1.0.0"),
        "{context}"
    );
    assert_eq!(evidence.unwrap().images, ["postgres:1.0.0"], "{context}");
}

/// T6: a crash, a lost response and old caches at any write lead to the same end, with one commit.
#[test]
fn a_fault_at_any_write_of_a_rollback_of_images_changes_nothing() {
    let count = {
        let mut cluster = cluster(None);
        cluster.run();
        let context = cluster.message();
        assert_returned(&cluster, &context);
        cluster.storage.writes.len()
    };
    for number in 0..count {
        for fault in Fault::all(number) {
            let mut cluster = cluster(Some(fault));
            cluster.run();
            let context = format!("{fault:?}: {}", cluster.message());
            assert_returned(&cluster, &context);
        }
    }
}

/// Helm has returned the release already. No newer release follows, and the current one is the evidence.
#[test]
fn a_release_that_helm_has_returned_is_evidence() {
    let mut cluster = cluster(None);
    cluster.remediate();
    cluster.run();
    let context = cluster.message();
    assert_returned(&cluster, &context);
}
