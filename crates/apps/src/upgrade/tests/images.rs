//! Upgrades of images: in the values of a HelmRelease, and in manifests without a HelmRelease.

use std::sync::Arc;

use api::apps::{DocumentName, ImageField, ImageTag, ScaleDownPolicy, TargetVersion, UpgradePhase};

use super::{
    cluster::{Cluster, Fault},
    delivery::{Apply, Push, Subject},
    fixtures::{member, workload},
};
use crate::{object::ObjectKind, world::Discovery};

const SUBJECTS: [Subject; 2] = [Subject::Values, Subject::Manifests];

fn cluster(subject: Subject) -> Cluster {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.delivery.subject = subject;
    cluster.request.spec.target_version = TargetVersion {
        chart: None,
        images: vec![ImageTag {
            name: "postgres".to_owned(),
            tag: "2.0.0".to_owned(),
        }],
    };
    let state = cluster.real.app.as_mut().unwrap();
    let git = Arc::make_mut(&mut state.app).spec.git.as_mut().unwrap();
    git.images = vec![ImageField {
        image: "postgres".to_owned(),
        file: None,
        document: DocumentName {
            kind: "Kustomization".to_owned(),
            name: None,
        },
        field_path: "images[0].newTag".to_owned(),
    }];
    let Discovery::Found(objects) = &mut state.world.discovery else {
        panic!("no objects");
    };
    let mut db = workload(ObjectKind::StatefulSet, "db", 3);
    db.images = ["postgres:1.0.0".to_owned()].into();
    objects.members[0] = member(db);
    if subject == Subject::Manifests {
        state.world.helm_release = Ok(None);
        cluster.real.flux.truncate(1);
    }
    cluster.sync();
    cluster
}

/// S1.2: an application without a HelmRelease is upgraded by its images.
#[test]
fn s1_2_an_image_is_upgraded_with_its_evidence() {
    for subject in SUBJECTS {
        let mut cluster = cluster(subject);
        cluster.run();
        let message = cluster.message();
        assert_eq!(
            cluster.phase(),
            UpgradePhase::Succeeded,
            "{subject:?}: {message}"
        );
        let expected = "upgraded images postgres:1.0.0 to postgres:2.0.0";
        assert!(message.starts_with(expected), "{subject:?}: {message}");
        cluster.assert_committed("images");
        let status = cluster.status();
        let plan = status.plan.unwrap();
        assert_eq!(plan.chart.from, plan.chart.to, "{subject:?}");
        let image = &plan.images[0];
        assert_eq!(
            (&*image.from, &*image.to),
            ("postgres:1.0.0", "postgres:2.0.0")
        );
        assert_eq!(plan.commit.summary, "Upgrade shop to postgres:2.0.0");
        let evidence = status.evidence.unwrap();
        assert_eq!(evidence.images, ["postgres:2.0.0"], "{subject:?}");
        assert_eq!(evidence.release.is_some(), subject == Subject::Values);
    }
}

/// Data that is written after the snapshots is lost in a rollback. Without Helm, no hook needs the old version.
#[test]
fn without_a_release_the_workloads_stay_stopped_until_the_upgrade() {
    for (subject, expected) in [
        (Subject::Values, ScaleDownPolicy::UntilSnapshotReady),
        (Subject::Manifests, ScaleDownPolicy::UntilUpgraded),
    ] {
        let mut cluster = cluster(subject);
        cluster.real.app.as_mut().unwrap().has_upgrade_hooks = None;
        cluster.sync();
        cluster.run_until(|cluster| cluster.status().plan.is_some());
        let plan = cluster.status().plan.unwrap();
        assert_eq!(plan.scale_down_policy, expected, "{subject:?}");
    }
}

/// T6: a crash, a lost response and old caches at any write leave one commit.
#[test]
fn a_fault_at_any_write_leaves_one_commit() {
    for subject in SUBJECTS {
        let count = {
            let mut cluster = cluster(subject);
            cluster.run();
            cluster.writes.len()
        };
        for number in 0..count {
            for fault in [
                Fault::CrashBefore(number),
                Fault::CrashAfter(number),
                Fault::LostResponse(number),
                Fault::Stale(number),
            ] {
                let mut cluster = cluster(subject);
                cluster.fault = Some(fault);
                cluster.run();
                let context = format!("{subject:?}, {fault:?}: {}", cluster.message());
                assert_eq!(cluster.phase(), UpgradePhase::Succeeded, "{context}");
                cluster.assert_committed(&context);
            }
        }
    }
}

/// The HelmRelease has the same values, or no Pod template has the new image.
#[test]
fn a_commit_without_an_effect_ends_the_request() {
    for subject in SUBJECTS {
        let mut cluster = cluster(subject);
        cluster.delivery.apply = Apply::NoEffect;
        cluster.pace = 5;
        cluster.run();
        let message = cluster.message();
        assert_eq!(
            cluster.reason(),
            "CommitHadNoEffect",
            "{subject:?}: {message}"
        );
        cluster.assert_committed("no effect");
    }
}

/// Flux fails as for a chart.
#[test]
fn a_failure_of_flux_ends_the_request() {
    for (apply, expected) in [
        (Apply::NotFetched, "SourceNotUpdated"),
        (Apply::RolledBack, "HelmRemediated"),
        (Apply::Stalled, "HelmUpgradeFailed"),
        (Apply::Failing, "HelmUpgradeFailed"),
    ] {
        let mut cluster = cluster(Subject::Values);
        cluster.delivery.apply = apply;
        cluster.pace = 5;
        cluster.run();
        assert_eq!(
            cluster.reason(),
            expected,
            "{apply:?}: {}",
            cluster.message()
        );
        cluster.assert_committed(expected);
    }
}

/// R40: an image without a field, and an image in Git that does not run.
#[test]
fn r40_an_image_without_a_field_or_with_another_tag_is_rejected() {
    type Change = fn(&mut Cluster);
    let table: [(Change, &str); 3] = [
        (
            |cluster| cluster.request.spec.target_version.images[0].name = "web".to_owned(),
            "NoVersionPath",
        ),
        (
            |cluster| cluster.delivery.version = "1.5.0".to_owned(),
            "GitAheadOfCluster",
        ),
        (
            |cluster| cluster.delivery.version = "2.0.0".to_owned(),
            "NothingToChange",
        ),
    ];
    for (change, expected) in table {
        for subject in SUBJECTS {
            let mut cluster = cluster(subject);
            change(&mut cluster);
            cluster.run();
            assert_eq!(cluster.reason(), expected, "{}", cluster.message());
            cluster.assert_restored(expected);
        }
    }
}
