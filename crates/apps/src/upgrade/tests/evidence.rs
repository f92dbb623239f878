//! The evidence of Flux that an upgrade needs, row by row (R33).

use std::sync::Arc;

use api::{
    Reason,
    apps::{NamespacedName, UpgradePhase},
    decide::{ErrorClass, ReconcileError},
};

use super::{
    cluster::Cluster,
    delivery::{Push, revision},
};
use crate::{
    flux::{Attempt, FluxCondition, HelmReleaseView, KustomizationView, SourceView},
    world::Seen,
};

/// The objects of Flux after the upgrade.
struct Views {
    source: SourceView,
    kustomization: KustomizationView,
    helm: HelmReleaseView,
}

type Change = fn(&mut Views);

/// Returns a cluster in `HealthCheck`, in which Flux shows other objects.
fn changed(change: Change) -> Cluster {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::HealthCheck);
    let live = cluster.real.live.as_mut().unwrap();
    let mut views = Views {
        source: cluster.real.source.present().unwrap().clone(),
        kustomization: live.kustomization.present().unwrap().clone(),
        helm: live.release().unwrap().clone(),
    };
    change(&mut views);
    live.kustomization = Seen::Present(Arc::new(views.kustomization));
    let name = NamespacedName::new("shop", "shop");
    live.helm_release = Ok(Some((name, Seen::Present(Arc::new(views.helm)))));
    cluster.real.source = Seen::Present(Arc::new(views.source));
    cluster.sync();
    cluster
}

fn condition(value: Option<bool>, generation: Option<i64>) -> Option<FluxCondition> {
    Some(FluxCondition {
        value,
        generation,
        ..FluxCondition::default()
    })
}

/// False success "Reconcile": an earlier `Ready=True`, the revision with an unchanged object, and a suspended HelmRelease.
#[test]
fn r33_each_row_of_the_evidence_is_needed() {
    let table: [(Change, &str); 18] = [
        (|_| {}, "the application is healthy"),
        (
            |all| all.source.revision = Some(revision(1)),
            "the source has the artifact from before",
        ),
        (
            |all| all.source.uid = "another".to_owned(),
            "the source has the artifact from before",
        ),
        (
            |all| all.kustomization.flux.is_suspended = true,
            "the Kustomization is suspended",
        ),
        (
            |all| all.kustomization.flux.observed_generation -= 1,
            "the Kustomization has not reconciled its latest spec",
        ),
        (
            |all| all.kustomization.flux.ready = condition(None, None),
            "the Kustomization is not ready",
        ),
        // The condition is about an earlier spec.
        (
            |all| all.kustomization.flux.ready = condition(Some(true), Some(1)),
            "the Kustomization is not ready",
        ),
        (
            |all| all.kustomization.revision = Some(revision(1)),
            "the Kustomization has applied the revision before the upgrade",
        ),
        (
            |all| all.helm.flux.is_suspended = true,
            "the HelmRelease is suspended",
        ),
        (
            |all| all.helm.flux.observed_generation -= 1,
            "the HelmRelease has not reconciled its latest spec",
        ),
        (
            |all| all.helm.flux.ready = condition(Some(false), None),
            "the HelmRelease is not ready",
        ),
        (
            |all| all.helm.flux.attempt = Attempt::Open("open".to_owned()),
            "the HelmRelease has not deployed its latest spec",
        ),
        (
            |all| all.helm.outcome.released = None,
            "the HelmRelease is not released",
        ),
        (
            |all| all.helm.outcome.released = condition(Some(true), Some(1)),
            "the HelmRelease is not released",
        ),
        (
            |all| all.helm.outcome.has_tests = true,
            "the tests of the chart have not succeeded",
        ),
        (
            |all| all.helm.newest.as_mut().unwrap().status = "failed".to_owned(),
            "the new chart version is not deployed",
        ),
        // The release is the one before the upgrade.
        (
            |all| all.helm.newest.as_mut().unwrap().version = 3,
            "the new chart version is not deployed",
        ),
        (
            |all| all.helm.newest.as_mut().unwrap().chart_version = "3.0.0".to_owned(),
            "the new chart version is not deployed",
        ),
    ];
    for (change, expected) in table {
        let decision = changed(change).decision();
        let message = &decision.verdict.message;
        assert!(message.starts_with(expected), "{message}: {expected}");
        let is_healthy = decision.status.healthy_since.is_some();
        assert_eq!(
            is_healthy,
            expected == "the application is healthy",
            "{expected}"
        );
        assert_eq!(decision.phase, UpgradePhase::HealthCheck);
    }
}

/// A chart from an OCI registry has a digest in its version, and tests of a chart may be enabled.
#[test]
fn other_forms_of_a_success_are_accepted() {
    let table: [Change; 3] = [
        |all| all.helm.newest.as_mut().unwrap().chart_version = "2.0.0+a1b2c3".to_owned(),
        |all| {
            all.helm.outcome.has_tests = true;
            all.helm.outcome.tested = condition(Some(true), None);
        },
        // Others pushed on top of the commit.
        |all| all.kustomization.revision = Some(revision(9)),
    ];
    for change in table {
        let decision = changed(change).decision();
        assert!(
            decision.status.healthy_since.is_some(),
            "{:?}",
            decision.verdict
        );
    }
}

/// Pitfall 11: a rollback of Helm ends as deployed, with the old chart. Each end is confirmed by a live read.
#[test]
fn an_end_without_the_new_version_is_read_live() {
    let table: [(Change, &str); 4] = [
        (
            |all| all.helm.outcome.remediated = condition(Some(true), None),
            "HelmRemediated",
        ),
        (
            |all| {
                let newest = all.helm.newest.as_mut().unwrap();
                newest.version = 5;
                newest.chart_version = "1.0.0".to_owned();
            },
            "HelmRemediated",
        ),
        (
            |all| all.helm.flux.stalled = condition(Some(true), None),
            "HelmUpgradeFailed",
        ),
        (
            |all| all.helm.requested = Some("1.0.0".to_owned()),
            "CommitHadNoEffect",
        ),
    ];
    for (change, reason) in table {
        let cluster = changed(change);
        assert!(!cluster.decision().confirm.is_empty(), "{reason}");
        let decision = cluster.decided(true, None);
        assert_eq!(decision.phase, UpgradePhase::Undo, "{reason}");
        assert_eq!(decision.status.failure.unwrap().reason, reason);
    }
    // Conditions of an earlier spec say nothing about this one.
    let earlier: [Change; 2] = [
        |all| all.helm.outcome.remediated = condition(Some(true), Some(1)),
        |all| all.helm.flux.stalled = condition(Some(true), Some(1)),
    ];
    for change in earlier {
        assert!(changed(change).decision().confirm.is_empty());
    }
}

/// A create that is rejected after one whose response was lost: the Job exists, and its outcome counts.
#[test]
fn a_rejected_create_is_no_evidence_before_a_live_read() {
    let mut cluster = Cluster::pushing(Push::Accepted);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::GitCommit);
    let fault = ReconcileError::new(ErrorClass::Denied, Reason::Denied, "no quota");
    let decision = cluster.decided(false, Some(&fault));
    assert_eq!(decision.confirm.len(), 1);
    let decision = cluster.decided(true, Some(&fault));
    assert_eq!(decision.phase, UpgradePhase::Undo);
    assert_eq!(decision.status.failure.unwrap().reason, "Denied");
    // The live read finds the Job of the earlier create.
    cluster.step();
    cluster.sync();
    let decision = cluster.decided(true, Some(&fault));
    assert_eq!(decision.phase, UpgradePhase::GitCommit);
}

/// A Job that someone deleted may have pushed. The next attempt finds out.
#[test]
fn r39_a_job_that_someone_deleted_may_have_pushed() {
    for has_pushed in [false, true] {
        let mut cluster = Cluster::pushing(Push::Accepted);
        cluster.run_until(|cluster| {
            let push = cluster.status().push;
            push.is_some_and(|push| push.job_uid.is_some())
        });
        if !has_pushed {
            cluster.delivery.commits.clear();
            cluster.delivery.version = "1.0.0".to_owned();
        }
        cluster.real.commit.jobs.clear();
        cluster.sync();
        cluster.run();
        assert_eq!(
            cluster.phase(),
            UpgradePhase::Succeeded,
            "{}",
            cluster.message()
        );
        cluster.assert_committed("deleted Job");
        assert!(
            cluster
                .writes
                .iter()
                .any(|write| write.contains("create up-commit-a2"))
        );
    }
}
