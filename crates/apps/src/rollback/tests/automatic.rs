//! The rollback that the operator creates for a failed upgrade (R34).

use std::sync::Arc;

use api::{
    Timestamp,
    apps::{
        PushOutcome, PushedCommit, RollbackRequest, RollbackRequestSpec, TargetVersion,
        UpgradePhase, UpgradeRequest, UpgradeRequestSpec, UpgradeRequestStatus,
    },
    decide::Effect,
    pod::NamedRef,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::rollback::automatic::rollback_of;

fn named(name: &str) -> NamedRef {
    NamedRef {
        name: name.to_owned(),
    }
}

fn upgrade(phase: UpgradePhase, has_commit: bool) -> UpgradeRequest {
    let commit = PushedCommit {
        id: "ab".repeat(20),
        outcome: PushOutcome::Pushed,
        at: Time(Timestamp::UNIX_EPOCH),
    };
    let spec = UpgradeRequestSpec {
        managed_app_ref: named("shop"),
        target_version: TargetVersion::of_chart("2.0.0"),
        skip_snapshot: false,
        allow_unhealthy: false,
        dry_run: false,
        approval: None,
    };
    let mut request = UpgradeRequest::new("up", spec);
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some("uid".to_owned());
    request.status = Some(UpgradeRequestStatus {
        phase: Some(phase),
        commit: has_commit.then_some(commit),
        ..UpgradeRequestStatus::default()
    });
    request
}

fn rollback(upgrade: &str, dry_run: bool) -> RollbackRequest {
    let spec = RollbackRequestSpec {
        upgrade_request_ref: named(upgrade),
        dry_run,
    };
    RollbackRequest::new("by-hand", spec)
}

/// R34: a rollback waits for its upgrade. One that was created before the end would wait for itself.
#[test]
fn r34_a_rollback_is_created_only_after_the_upgrade_has_failed() {
    for phase in [
        UpgradePhase::Pending,
        UpgradePhase::Plan,
        UpgradePhase::Suspend,
        UpgradePhase::ScaleDown,
        UpgradePhase::Snapshot,
        UpgradePhase::GitCommit,
        UpgradePhase::Reconcile,
        UpgradePhase::HealthCheck,
        UpgradePhase::Undo,
        UpgradePhase::Succeeded,
        UpgradePhase::Failed,
    ] {
        for has_commit in [false, true] {
            let expected = phase == UpgradePhase::Failed && has_commit;
            let found = rollback_of(&upgrade(phase, has_commit), &[]);
            assert_eq!(found.is_some(), expected, "{phase:?}, {has_commit}");
        }
    }
}

#[test]
fn r34_an_upgrade_has_one_automatic_rollback() {
    let failed = upgrade(UpgradePhase::Failed, true);
    // Columns: existing rollback, whether one is created.
    for (existing, expected) in [
        (vec![], true),
        (vec![rollback("up", false)], false),
        (vec![rollback("other", false)], true),
        // A dry run restores nothing.
        (vec![rollback("up", true)], true),
    ] {
        let existing: Vec<_> = existing.into_iter().map(Arc::new).collect();
        let found = rollback_of(&failed, &existing);
        assert_eq!(found.is_some(), expected, "{existing:?}");
    }
    let Some(Effect::Ensure(manifest)) = rollback_of(&failed, &[]) else {
        panic!("nothing is created");
    };
    assert_eq!(manifest.name, "up-rollback");
    assert_eq!(manifest.namespace.as_deref(), Some("shop"));
    assert_eq!(manifest.body["spec"]["upgradeRequestRef"]["name"], "up");
    // The deletion of the upgrade must not delete its rollback.
    assert!(manifest.body["metadata"]["ownerReferences"].is_null());
}

#[test]
fn an_upgrade_in_deletion_gets_no_rollback() {
    let mut failed = upgrade(UpgradePhase::Failed, true);
    failed.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(rollback_of(&failed, &[]), None);
}
