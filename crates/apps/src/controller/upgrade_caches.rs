//! The watches of types that only upgrades read.

use std::sync::Arc;

use api::{
    GROUP,
    apps::{GIT_REPOSITORY, UPGRADE_REQUEST, UpgradeRequest},
    decide::ResourceType,
    names,
    warning::Warning,
};
use engine::{
    Cache, OptionalCache, OptionalType, Watch, WatchManager,
    children::{Child, owned_by},
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, Pod},
        storage::v1::{CSIDriver, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt, core::DynamicObject};
use pods::JobView;

use super::caches::all;
use crate::{
    flux::SourceView,
    upgrade::{
        commit_step::StepPod,
        storage::{
            AttachedVolume, ClassView, ContentView, SnapshotView, VOLUME_SNAPSHOT, is_attachable,
        },
    },
};

/// Contents of VolumeSnapshots.
const VOLUME_SNAPSHOT_CONTENT: ResourceType = ResourceType::new(
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshotContent",
    "volumesnapshotcontents",
);

/// Classes of VolumeSnapshots.
const VOLUME_SNAPSHOT_CLASS: ResourceType = ResourceType::new(
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshotClass",
    "volumesnapshotclasses",
);

/// Caches of types that only upgrades read.
#[derive(Debug, Clone)]
pub(super) struct UpgradeCaches {
    pub(super) requests: Cache<UpgradeRequest>,
    pub(super) sources: OptionalCache<SourceView>,
    pub(super) snapshots: OptionalCache<OwnedSnapshot>,
    pub(super) contents: OptionalCache<ContentView>,
    pub(super) classes: OptionalCache<ClassView>,
    pub(super) volumes: Cache<PersistentVolume>,
    pub(super) attachments: Cache<Attachment>,
    /// Whether a CSI driver attaches volumes to nodes.
    pub(super) drivers: Cache<bool>,
    pub(super) jobs: Cache<Child<JobView>>,
    pub(super) pods: Cache<Child<StepPod>>,
    pub(super) job_warnings: Cache<Warning>,
}

/// A snapshot with the UID of its request, from its label.
#[derive(Debug)]
pub(super) struct OwnedSnapshot {
    pub(super) owner_uid: String,
    pub(super) view: SnapshotView,
}

/// An attachment, or `None` if it is not about a PersistentVolume.
#[derive(Debug)]
pub(super) struct Attachment(pub(super) Option<AttachedVolume>);

/// Returns the index key of the requests of an application.
pub(super) fn of_app(namespace: &str, app: &str) -> String {
    ["app", namespace, app].join("/")
}

/// Returns the index key of the snapshots of a request.
pub(super) fn of_request(uid: &str) -> String {
    ["request", uid].join("/")
}

fn request_index(request: &UpgradeRequest) -> Vec<String> {
    let namespace = request.namespace().unwrap_or_default();
    let uid = request.uid().unwrap_or_default();
    vec![
        owned_by(UPGRADE_REQUEST.name(), &namespace, &uid),
        of_app(&namespace, &request.spec.managed_app_ref.name),
    ]
}

/// Keeps the fields of a volume that an upgrade reads.
fn trimmed(volume: PersistentVolume) -> PersistentVolume {
    let spec = volume.spec.map(|spec| PersistentVolumeSpec {
        claim_ref: spec.claim_ref,
        csi: spec.csi.map(|csi| CSIPersistentVolumeSource {
            driver: csi.driver,
            ..CSIPersistentVolumeSource::default()
        }),
        ..PersistentVolumeSpec::default()
    });
    PersistentVolume {
        metadata: ObjectMeta {
            name: volume.metadata.name,
            uid: volume.metadata.uid,
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn job_view(job: &Job) -> JobView {
    JobView::from(job)
}

fn step_pod(pod: &Pod) -> StepPod {
    StepPod::from(pod)
}

/// Returns the watch of a type of children of requests.
fn children<K: Resource + 'static, V: 'static>(view: fn(&K) -> V) -> Watch<K, Child<V>> {
    Watch {
        labels: Some([names::KIND, "=", UPGRADE_REQUEST.name()].concat()),
        fields: None,
        transform: Arc::new(move |object: K, _| Child::new(&object, view(&object))),
        index: Child::words,
    }
}

impl UpgradeCaches {
    pub(super) fn watch(watches: &mut WatchManager) -> Self {
        Self {
            requests: watches.namespaced(
                (GROUP, UPGRADE_REQUEST.resource.plural),
                all(|request: UpgradeRequest| request, request_index),
            ),
            sources: watches.optional(OptionalType {
                resource: GIT_REPOSITORY,
                is_namespaced: true,
                decode: |one: &DynamicObject| SourceView::read(&one.metadata, &one.data),
                index: |_| Vec::new(),
            }),
            snapshots: watches.optional(OptionalType {
                resource: VOLUME_SNAPSHOT,
                is_namespaced: true,
                decode: |one: &DynamicObject| {
                    let owner = one.labels().get(names::UID);
                    Ok(OwnedSnapshot {
                        owner_uid: owner.cloned().unwrap_or_default(),
                        view: SnapshotView::read(&one.metadata, &one.data)?,
                    })
                },
                index: |one| vec![of_request(&one.owner_uid)],
            }),
            contents: watches.optional(OptionalType {
                resource: VOLUME_SNAPSHOT_CONTENT,
                is_namespaced: false,
                decode: |one: &DynamicObject| ContentView::read(&one.data),
                index: |content| content.snapshot_uid.iter().cloned().collect(),
            }),
            classes: watches.optional(OptionalType {
                resource: VOLUME_SNAPSHOT_CLASS,
                is_namespaced: false,
                decode: |one: &DynamicObject| ClassView::read(&one.metadata, &one.data),
                index: |_| Vec::new(),
            }),
            volumes: watches.cluster(("", "persistentvolumes"), all(trimmed, |_| Vec::new())),
            attachments: watches.cluster(
                ("storage.k8s.io", "volumeattachments"),
                all(
                    |one: VolumeAttachment| Attachment(AttachedVolume::read(&one)),
                    |one| one.0.iter().map(|one| one.volume.clone()).collect(),
                ),
            ),
            drivers: watches.cluster(
                ("storage.k8s.io", "csidrivers"),
                all(|one: CSIDriver| is_attachable(Some(&one)), |_| Vec::new()),
            ),
            jobs: watches.namespaced(("batch", "jobs"), children(job_view)),
            pods: watches.namespaced(("", "pods"), children(step_pod)),
            job_warnings: watches.warnings("Job"),
        }
    }
}
