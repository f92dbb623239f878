//! Tables of deletions: from the requests and the snapshots to the next step.

use api::{
    apps::{FluxRef, ManagedAppSpec},
    decide::FinalizerAction,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    operations::{RequestView, UpgradeView},
    upgrade::{
        retention::SnapshotSet,
        tests::fixtures::{at, world},
    },
};

fn active() -> UpgradeView {
    UpgradeView {
        request: RequestView {
            name: "up".to_owned(),
            uid: "uid".to_owned(),
            phase: "Snapshot".to_owned(),
            is_active: true,
            ..RequestView::default()
        },
        ..UpgradeView::default()
    }
}

fn set(change: impl Fn(&mut SnapshotSet)) -> SnapshotSet {
    let mut set = SnapshotSet {
        request: "uid".to_owned(),
        created: at(0),
        is_in_use: false,
        is_preserved: false,
        snapshots: vec![SnapshotView {
            namespace: "shop".to_owned(),
            name: "shop-data".to_owned(),
            uid: "snapshot".to_owned(),
            ..SnapshotView::default()
        }],
    };
    change(&mut set);
    set
}

fn decided(
    operations: Operations,
    policy: SnapshotDeletion,
    overdue: bool,
) -> Decision<ManagedAppStatus> {
    let mut spec = ManagedAppSpec::new(FluxRef {
        name: "shop".to_owned(),
        namespace: None,
    });
    spec.snapshots_on_delete = policy;
    let mut app = ManagedApp::new("shop", spec);
    app.metadata.deletion_timestamp = Some(Time(at(-5)));
    app.status = Some(ManagedAppStatus {
        phase: Some(AppPhase::Terminating),
        ..ManagedAppStatus::default()
    });
    about(&app, operations, overdue)
}

fn about(app: &ManagedApp, operations: Operations, overdue: bool) -> Decision<ManagedAppStatus> {
    let mut world = world().app.unwrap().world;
    world.operations = Some(operations);
    let decision = crate::decide::decide(&Input {
        object: app,
        world: &world,
        now: at(0),
        fault: None,
        refused: false,
        confirmed: false,
        overdue,
    });
    assert_eq!(decision.phase, AppPhase::Terminating);
    assert_eq!(decision.phase_since, Some(at(-5)));
    decision
}

fn is_released(decision: &Decision<ManagedAppStatus>) -> bool {
    decision.finalizer != FinalizerAction::Keep
}

#[test]
fn a_deletion_waits_for_the_active_request_and_names_it() {
    let operations = Operations {
        upgrades: vec![active()],
        ..Operations::default()
    };
    for (overdue, reason) in [(false, Reason::Deleting), (true, Reason::DeletionBlocked)] {
        let found = decided(operations.clone(), SnapshotDeletion::Retain, overdue);
        assert!(!is_released(&found));
        assert_eq!(found.verdict.reason, reason);
        let message = &found.verdict.message;
        assert!(message.contains("UpgradeRequest 'up'"), "{message}");
        assert!(message.contains("phase Snapshot"), "{message}");
    }
}

#[test]
fn the_annotation_releases_a_managed_app_at_once() {
    let mut app = ManagedApp::new(
        "shop",
        ManagedAppSpec::new(FluxRef {
            name: "shop".to_owned(),
            namespace: None,
        }),
    );
    app.metadata.deletion_timestamp = Some(Time(at(-5)));
    for (value, expected) in [("true", true), ("false", false)] {
        let annotation = (names::FORCE_DELETE.to_owned(), value.to_owned());
        app.metadata.annotations = Some([annotation].into());
        let operations = Operations {
            upgrades: vec![active()],
            ..Operations::default()
        };
        assert_eq!(is_released(&about(&app, operations, false)), expected);
    }
}

#[test]
fn the_spec_decides_about_the_snapshots() {
    use SnapshotDeletion::{Delete, Retain};
    type Change = fn(&mut SnapshotSet);
    // Columns: policy, change of the set, number of deletions, whether the ManagedApp is released.
    let table: [(SnapshotDeletion, Change, usize, bool); 4] = [
        (Retain, |_| {}, 0, true),
        (Delete, |_| {}, 1, false),
        (Delete, |set| set.is_preserved = true, 0, true),
        (Delete, |set| set.snapshots[0].is_deleting = true, 0, false),
    ];
    for (policy, change, deletions, expected) in table {
        let operations = Operations {
            sets: vec![set(change)],
            ..Operations::default()
        };
        let found = decided(operations, policy, false);
        assert_eq!(found.effects.len(), deletions, "{:?}", found.verdict);
        assert!(found.effects.iter().all(Effect::is_optional));
        assert_eq!(is_released(&found), expected, "{:?}", found.verdict);
    }
    assert!(is_released(&decided(Operations::default(), Delete, false)));
}

/// A snapshot that a claim is restored from would keep its finalizers. An unknown one must not be left.
#[test]
fn a_snapshot_in_use_or_unknown_keeps_the_managed_app() {
    let restoring = Operations {
        sets: vec![set(|_| {})],
        restoring: [("shop".to_owned(), "shop-data".to_owned())].into(),
        ..Operations::default()
    };
    let unknown = Operations {
        unknown_snapshots: Some("the watch does not work".to_owned()),
        ..Operations::default()
    };
    for operations in [restoring, unknown] {
        let found = decided(operations, SnapshotDeletion::Delete, true);
        assert!(!is_released(&found) && found.effects.is_empty());
        assert_eq!(found.verdict.reason, Reason::DeletionBlocked);
    }
}
