//! An application with a HelmRelease, a StatefulSet, a Deployment and a CronJob on two volumes.

use std::sync::Arc;

use api::{
    Timestamp,
    apps::{
        AppGit, ChartField, FluxKind, FluxRef, ManagedApp, ManagedAppSpec, NamespacedName,
        ScalableKind, TargetVersion, UpgradeRequest, UpgradeRequestSpec,
    },
    claim::Lock,
    pod::NamedRef,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::Rollout;

use super::delivery::{revision, source_before};
use crate::{
    flux::{
        Attempt, FluxCondition, FluxObject, HelmReleaseView, KustomizationView, ReleaseEntry,
        SourceRef, SourceView,
    },
    health::Member,
    object::{ObjectId, ObjectKind},
    upgrade::{
        commit_step::CommitStep,
        flux_target::FluxTarget,
        scale_target::{MountingPod, Scale, ScaleTarget},
        storage::{AttachedVolume, SnapshotClass, Snapshots, VolumeState},
        world::{AppState, UpgradeWorld},
    },
    volumes::Mounts,
    workload::{ClaimView, WorkloadView},
    world::{AppWorld, ClaimMember, Discovery, Mounter, Objects, Seen},
};

pub(super) const UID: &str = "0123456789-request";

const NOW: i64 = 1_800_000_000;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn shop(name: &str) -> NamespacedName {
    NamespacedName::new("shop", name)
}

pub(crate) fn request() -> UpgradeRequest {
    let mut request = UpgradeRequest::new(
        "up",
        UpgradeRequestSpec {
            managed_app_ref: NamedRef {
                name: "shop".to_owned(),
            },
            target_version: TargetVersion::of_chart("2.0.0"),
            skip_snapshot: false,
            allow_unhealthy: false,
            dry_run: false,
            approval: None,
        },
    );
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some(UID.to_owned());
    request.metadata.generation = Some(1);
    request.metadata.creation_timestamp = Some(Time(at(-10)));
    request
}

fn flux() -> FluxObject {
    FluxObject {
        name: shop("shop"),
        generation: 4,
        observed_generation: 4,
        ready: Some(FluxCondition {
            value: Some(true),
            since: Some(at(-600)),
            ..FluxCondition::default()
        }),
        attempt: Attempt::Applied,
        ..FluxObject::default()
    }
}

pub(super) fn helm() -> HelmReleaseView {
    HelmReleaseView {
        flux: flux(),
        requested: Some("1.0.0".to_owned()),
        newest: Some(ReleaseEntry {
            name: "shop".to_owned(),
            version: 3,
            status: "deployed".to_owned(),
            chart_version: "1.0.0".to_owned(),
            ..ReleaseEntry::default()
        }),
        ..HelmReleaseView::default()
    }
}

pub(crate) fn workload(kind: ObjectKind, name: &str, replicas: i32) -> WorkloadView {
    let rollout = Rollout {
        observed: 2,
        wanted: replicas,
        replicas,
        updated: replicas,
        ready: replicas,
    };
    WorkloadView {
        id: ObjectId::new(kind, "shop", name),
        uid: name.to_owned(),
        generation: 2,
        appliers: [].into(),
        rollout: kind.has_replicas().then_some(rollout),
        is_deleting: false,
        is_rolling: false,
        hold: None,
        failure: None,
        images: [].into(),
        mounts: Mounts {
            claims: ["data".to_owned(), "media".to_owned()].into(),
            unprotected: [].into(),
        },
    }
}

pub(crate) fn member(live: WorkloadView) -> Member {
    Member {
        id: live.id.clone(),
        live: Some(Arc::new(live)),
        pods: Vec::new(),
    }
}

fn claim(name: &str) -> ClaimMember {
    ClaimMember {
        name: shop(name),
        live: Some(Arc::new(ClaimView {
            phase: "Bound".to_owned(),
            ..ClaimView::default()
        })),
    }
}

pub(super) fn app_world() -> AppWorld {
    let mut web = workload(ObjectKind::Deployment, "web", 2);
    web.mounts.claims.clear();
    AppWorld {
        kustomization_name: shop("shop"),
        kustomization: Seen::Present(Arc::new(KustomizationView {
            flux: flux(),
            revision: Some(revision(1)),
            inventory: Some([].into()),
            source: Some(SourceRef {
                kind: "GitRepository".to_owned(),
                namespace: "shop".to_owned(),
                name: "shop".to_owned(),
            }),
            path: Some("./apps/shop".to_owned()),
            is_forced: false,
        })),
        helm_release: Ok(Some((shop("shop"), Seen::Present(Arc::new(helm()))))),
        discovery: Discovery::Found(Objects {
            members: vec![
                member(workload(ObjectKind::StatefulSet, "db", 3)),
                member(workload(ObjectKind::CronJob, "backup", 0)),
                // A workload without a volume is not stopped.
                member(web),
            ],
            mounters: vec![Mounter {
                kind: "Deployment".to_owned(),
                name: shop("files"),
                live: Some(Arc::new(workload(ObjectKind::Deployment, "files", 1))),
            }],
            claims: vec![claim("data"), claim("media")],
            foreign: Vec::new(),
            unwatched: [].into(),
        }),
        overlap: None,
        warnings: Vec::new(),
        operations: None,
    }
}

pub(crate) fn flux_target(kind: FluxKind, uid: &str, suspend: Option<bool>) -> FluxTarget {
    FluxTarget {
        kind,
        namespace: "shop".to_owned(),
        name: "shop".to_owned(),
        uid: uid.to_owned(),
        version: "1".to_owned(),
        generation: 4,
        suspend,
        lock: Lock::Free,
        note: None,
        requested: Some("2030-01-01".to_owned()),
        handled: Some("2030-01-01".to_owned()),
        is_deleting: false,
        disabled: None,
        activity: Some("Helm upgrade in progress".to_owned()),
        suspend_managers: Vec::new(),
        suspend_appliers: Vec::new(),
    }
}

pub(crate) fn scale_target(kind: ScalableKind, name: &str, scale: Scale) -> ScaleTarget {
    ScaleTarget {
        kind,
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        version: "1".to_owned(),
        generation: 2,
        scale,
        template: (kind != ScalableKind::CronJob).then(|| "1.0.0".to_owned()),
        deletes_claims: false,
        is_deleting: false,
        scale_managers: Vec::new(),
    }
}

pub(super) fn replicas(count: i32) -> Scale {
    Scale::Replicas {
        desired: count,
        current: count,
        observed: 2,
    }
}

pub(super) fn volume(name: &str) -> VolumeState {
    VolumeState {
        namespace: "shop".to_owned(),
        claim: name.to_owned(),
        uid: format!("{name}-uid"),
        is_bound: true,
        volume: Some(format!("pv-{name}")),
        driver: Some("csi.example.com".to_owned()),
        is_attachable: true,
        class: SnapshotClass::One("fast".to_owned()),
        source: "{}".to_owned(),
        ..VolumeState::default()
    }
}

pub(super) fn pod(owner: &str) -> MountingPod {
    MountingPod {
        namespace: "shop".to_owned(),
        name: format!("{owner}-0"),
        node: Some("node-1".to_owned()),
        claims: ["data".to_owned()].into(),
        ..MountingPod::default()
    }
}

pub(super) fn attachment() -> AttachedVolume {
    AttachedVolume {
        volume: "pv-data".to_owned(),
        node: "node-1".to_owned(),
    }
}

pub(super) fn source() -> SourceView {
    SourceView {
        name: shop("shop"),
        uid: "source".to_owned(),
        version: "1".to_owned(),
        url: "https://git.example.org/shop".to_owned(),
        branch: "main".to_owned(),
        revision: Some(revision(1)),
        ..SourceView::default()
    }
}

/// The observed state of a healthy application, before the request begins.
pub(crate) fn world() -> UpgradeWorld {
    let kustomization = FluxRef {
        name: "shop".to_owned(),
        namespace: None,
    };
    let spec = ManagedAppSpec {
        git: Some(AppGit {
            url: None,
            branch: None,
            credentials_secret_ref: NamedRef {
                name: "git".to_owned(),
            },
            author: None,
            chart: ChartField::default(),
            images: Vec::new(),
        }),
        ..ManagedAppSpec::new(kustomization)
    };
    UpgradeWorld {
        app: Some(AppState {
            app: Arc::new(ManagedApp::new("shop", spec)),
            world: app_world(),
            parent: None,
            has_upgrade_hooks: Some(false),
        }),
        others: Vec::new(),
        flux: vec![
            flux_target(FluxKind::Kustomization, "kustomization", None),
            flux_target(FluxKind::HelmRelease, "helm-release", Some(false)),
        ],
        workloads: vec![
            scale_target(ScalableKind::StatefulSet, "db", replicas(3)),
            scale_target(ScalableKind::Deployment, "files", replicas(1)),
            scale_target(
                ScalableKind::CronJob,
                "backup",
                Scale::Schedule { suspend: None },
            ),
        ],
        pods: vec![pod("db"), pod("files")],
        volumes: vec![volume("data"), volume("media")],
        attachments: vec![attachment()],
        snapshots: Snapshots::Found(Vec::new()),
        live: None,
        source: source_before(),
        commit: CommitStep::default(),
        rollbacks: Vec::new(),
    }
}
