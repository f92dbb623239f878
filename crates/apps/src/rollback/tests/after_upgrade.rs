//! The state of the cluster after an upgrade from 1.0.0 to 2.0.0 that failed after its commit.

use std::sync::Arc;

use api::{
    apps::{
        PlannedCommit, PlannedEdit, PushOutcome, PushedCommit, RollbackRequest,
        RollbackRequestSpec, TakenSnapshot, UpgradePhase, UpgradePlan, UpgradeRequest,
        UpgradeRequestStatus, VersionChange,
    },
    pod::NamedRef,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::storage::OWNER;
use crate::{
    flux::{FluxObject, HelmReleaseView, KustomizationView},
    upgrade::{flux_target::FluxTarget, storage::Snapshots, tests::fixtures, world::UpgradeWorld},
    world::{AppWorld, Seen},
};

/// File with the version.
pub(super) const FILE: &str = "apps/shop/release.yaml";

pub(super) fn id(number: usize) -> String {
    format!("{number:040x}")
}

pub(super) fn revision(number: usize) -> String {
    format!("main@sha1:{}", id(number))
}

/// The revision of the commit of the upgrade.
pub(super) const UPGRADED: usize = 2;

fn taken() -> TakenSnapshot {
    TakenSnapshot {
        namespace: "shop".to_owned(),
        pvc: "data".to_owned(),
        name: "shop-data".to_owned(),
        uid: "snapshot".to_owned(),
        restore_size: Some("2Gi".to_owned()),
        ..TakenSnapshot::default()
    }
}

pub(super) fn upgrade() -> UpgradeRequest {
    let mut upgrade = fixtures::request();
    upgrade.status = Some(UpgradeRequestStatus {
        phase: Some(UpgradePhase::Failed),
        commit: Some(PushedCommit {
            id: id(UPGRADED),
            outcome: PushOutcome::Pushed,
            at: Time(fixtures::at(-60)),
        }),
        snapshots: vec![taken()],
        plan: Some(UpgradePlan {
            chart: VersionChange {
                from: "1.0.0".to_owned(),
                to: "2.0.0".to_owned(),
            },
            commit: PlannedCommit {
                edits: vec![PlannedEdit {
                    file: FILE.to_owned(),
                    field_path: "spec.chart.spec.version".to_owned(),
                    from: "1.0.0".to_owned(),
                    to: "2.0.0".to_owned(),
                    ..PlannedEdit::default()
                }],
                ..PlannedCommit::default()
            },
            ..UpgradePlan::default()
        }),
        ..UpgradeRequestStatus::default()
    });
    upgrade
}

pub(super) fn request() -> RollbackRequest {
    let spec = RollbackRequestSpec {
        upgrade_request_ref: NamedRef {
            name: "up".to_owned(),
        },
        dry_run: false,
    };
    let mut request = RollbackRequest::new(OWNER.name, spec);
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some(OWNER.uid.to_owned());
    request.metadata.generation = Some(1);
    request.metadata.creation_timestamp = Some(Time(fixtures::at(-5)));
    request
}

/// The observed state after the upgrade.
pub(super) fn upgraded() -> UpgradeWorld {
    let mut world = fixtures::world();
    let mut web = world.workloads[1].clone();
    web.name = "web".to_owned();
    web.uid = "web".to_owned();
    world.workloads.push(web);
    world.volumes.retain(|one| one.claim == "data");
    for volume in &mut world.volumes {
        volume.volume = Some("pv-old".to_owned());
    }
    for attached in &mut world.attachments {
        attached.volume = "pv-old".to_owned();
    }
    if let Seen::Present(source) = &mut world.source {
        Arc::make_mut(source).revision = Some(revision(UPGRADED));
    }
    world.snapshots = Snapshots::Found(Vec::new());
    world
}

pub(super) fn kustomization(world: &mut AppWorld) -> &mut KustomizationView {
    let Seen::Present(view) = &mut world.kustomization else {
        panic!("no Kustomization");
    };
    Arc::make_mut(view)
}

pub(super) fn helm(world: &mut AppWorld) -> &mut HelmReleaseView {
    let Ok(Some((_, Seen::Present(view)))) = &mut world.helm_release else {
        panic!("no HelmRelease");
    };
    Arc::make_mut(view)
}

/// Shows the state of a live object in its view. The controllers observe also the generation of a suspended object.
pub(super) fn show(flux: &mut FluxObject, target: &FluxTarget) {
    flux.generation = target.generation;
    flux.observed_generation = target.generation;
    flux.is_suspended = target.is_suspended();
}
