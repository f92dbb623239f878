//! The watches of types that only upgrades read.

use std::sync::Arc;

use api::{
    GROUP, Timestamp,
    apps::{GIT_REPOSITORY, ROLLBACK_REQUEST, RollbackRequest, UPGRADE_REQUEST, UpgradeRequest},
    decide::ResourceType,
    names,
    warning::Warning,
};
use engine::{
    Cache, Key, OptionalCache, OptionalType, Watch, WatchManager,
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
    rollback::volume::{Binder, ORIGINAL_POLICY},
    upgrade::{
        SOURCE_PVC,
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
    pub(super) rollbacks: Cache<RollbackRequest>,
    pub(super) sources: OptionalCache<SourceView>,
    pub(super) snapshots: OptionalCache<OwnedSnapshot>,
    pub(super) contents: OptionalCache<ContentView>,
    pub(super) classes: OptionalCache<ClassView>,
    pub(super) volumes: Cache<PersistentVolume>,
    pub(super) attachments: Cache<Attachment>,
    /// Whether a CSI driver attaches volumes to nodes.
    pub(super) drivers: Cache<bool>,
    pub(super) jobs: Cache<Child<JobView>>,
    pub(super) pods: Cache<Child<RequestPod>>,
    pub(super) job_warnings: Cache<Warning>,
}

/// A snapshot with the UID of its request, from its label.
#[derive(Debug)]
pub(super) struct OwnedSnapshot {
    pub(super) owner_uid: String,
    pub(super) view: SnapshotView,
    /// Labels, annotations and spec of its claim, from its annotation.
    pub(super) source: Option<String>,
    pub(super) created: Timestamp,
    /// Whether it has the annotation that excludes it from the retention.
    pub(super) is_preserved: bool,
}

impl OwnedSnapshot {
    fn read(one: &DynamicObject) -> Result<Self, String> {
        let owner = one.labels().get(names::UID);
        let annotations = one.annotations();
        let created = one.metadata.creation_timestamp.as_ref();
        Ok(Self {
            owner_uid: owner.cloned().unwrap_or_default(),
            view: SnapshotView::read(&one.metadata, &one.data)?,
            source: annotations.get(SOURCE_PVC).cloned(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |created| created.0),
            is_preserved: annotations.contains_key(names::PRESERVE),
        })
    }
}

/// A Pod of a request: of a Job that runs the step, or one that binds a restored volume.
#[derive(Debug)]
pub(super) struct RequestPod {
    pub(super) step: StepPod,
    pub(super) binder: Binder,
}

impl From<&Pod> for RequestPod {
    fn from(pod: &Pod) -> Self {
        let step = StepPod::from(pod);
        Self {
            binder: Binder::read(pod, step.cause.clone()),
            step,
        }
    }
}

/// An attachment, or `None` if it is not about a PersistentVolume.
#[derive(Debug)]
pub(super) struct Attachment(pub(super) Option<AttachedVolume>);

/// Returns the index key of the requests of an application.
pub(super) fn of_app(namespace: &str, app: &str) -> String {
    ["app", namespace, app].join("/")
}

/// Returns the index key of the rollbacks of an upgrade.
pub(super) fn of_upgrade(namespace: &str, upgrade: &str) -> String {
    ["upgrade", namespace, upgrade].join("/")
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

fn rollback_index(request: &RollbackRequest) -> Vec<String> {
    let namespace = request.namespace().unwrap_or_default();
    let uid = request.uid().unwrap_or_default();
    let mut keys = vec![
        owned_by(ROLLBACK_REQUEST.name(), &namespace, &uid),
        of_upgrade(&namespace, &request.spec.upgrade_request_ref.name),
    ];
    let plan = request
        .status
        .as_ref()
        .and_then(|status| status.plan.as_ref());
    keys.extend(plan.map(|plan| of_app(&namespace, &plan.app)));
    keys
}

/// Annotations of a volume that a rollback reads.
const VOLUME_ANNOTATIONS: [&str; 2] = [ORIGINAL_POLICY, SOURCE_PVC];

/// Keeps the fields of a volume that an upgrade or a rollback reads.
fn trimmed(volume: PersistentVolume) -> PersistentVolume {
    let spec = volume.spec.map(|spec| PersistentVolumeSpec {
        claim_ref: spec.claim_ref,
        node_affinity: spec.node_affinity,
        persistent_volume_reclaim_policy: spec.persistent_volume_reclaim_policy,
        csi: spec.csi.map(|csi| CSIPersistentVolumeSource {
            driver: csi.driver,
            ..CSIPersistentVolumeSource::default()
        }),
        ..PersistentVolumeSpec::default()
    });
    let annotations = volume.metadata.annotations.map(|mut all| {
        all.retain(|name, _| VOLUME_ANNOTATIONS.contains(&name.as_str()));
        all
    });
    PersistentVolume {
        metadata: ObjectMeta {
            name: volume.metadata.name,
            uid: volume.metadata.uid,
            resource_version: volume.metadata.resource_version,
            annotations,
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

fn job_view(job: &Job) -> JobView {
    JobView::from(job)
}

fn request_pod(pod: &Pod) -> RequestPod {
    RequestPod::from(pod)
}

/// Returns the watch of a type of children of requests. Both kinds share it, because the responses of writes are put into
/// one cache of each type.
fn children<K: Resource + 'static, V: 'static>(view: fn(&K) -> V) -> Watch<K, Child<V>> {
    Watch {
        labels: Some(format!(
            "{} in ({},{})",
            names::KIND,
            UPGRADE_REQUEST.name(),
            ROLLBACK_REQUEST.name()
        )),
        fields: None,
        transform: Arc::new(move |object: K, _| Child::new(&object, view(&object))),
        index: Child::words,
    }
}

impl UpgradeCaches {
    /// Returns the name of the application of a rollback: from its plan, or from its upgrade.
    pub(super) fn app_of(&self, rollback: &RollbackRequest) -> Option<String> {
        let plan = rollback
            .status
            .as_ref()
            .and_then(|status| status.plan.as_ref());
        if let Some(plan) = plan {
            return Some(plan.app.clone());
        }
        let upgrade = self.upgrade_of(rollback)?;
        Some(upgrade.spec.managed_app_ref.name.clone())
    }

    /// Returns the upgrade that a rollback references, if it exists.
    pub(super) fn upgrade_of(&self, rollback: &RollbackRequest) -> Option<Arc<UpgradeRequest>> {
        let namespace = rollback.namespace().unwrap_or_default();
        let name = &rollback.spec.upgrade_request_ref.name;
        self.requests.get(&Key::new(&namespace, name))
    }

    pub(super) fn watch(watches: &mut WatchManager) -> Self {
        Self {
            requests: watches.namespaced(
                (GROUP, UPGRADE_REQUEST.resource.plural),
                all(|request: UpgradeRequest| request, request_index),
            ),
            rollbacks: watches.namespaced(
                (GROUP, ROLLBACK_REQUEST.resource.plural),
                all(|request: RollbackRequest| request, rollback_index),
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
                decode: OwnedSnapshot::read,
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
            pods: watches.namespaced(("", "pods"), children(request_pod)),
            job_warnings: watches.warnings("Job"),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{
        apps::{RollbackPlan, RollbackRequestSpec, RollbackRequestStatus},
        pod::NamedRef,
    };
    use serde_json::{Value, json};

    use super::*;

    fn rollback(app: Option<&str>) -> RollbackRequest {
        let spec = RollbackRequestSpec {
            upgrade_request_ref: NamedRef {
                name: "up".to_owned(),
            },
            dry_run: false,
        };
        let mut request = RollbackRequest::new("back", spec);
        request.metadata.namespace = Some("shop".to_owned());
        request.metadata.uid = Some("uid".to_owned());
        request.status = Some(RollbackRequestStatus {
            plan: app.map(|app| RollbackPlan {
                app: app.to_owned(),
                ..RollbackPlan::default()
            }),
            ..RollbackRequestStatus::default()
        });
        request
    }

    /// Before its plan, a rollback is found by its upgrade only.
    #[test]
    fn a_rollback_is_found_by_its_upgrade_and_its_application() {
        let owner = owned_by("RollbackRequest", "shop", "uid");
        let upgrade = of_upgrade("shop", "up");
        assert_eq!(
            rollback_index(&rollback(None)),
            [owner.clone(), upgrade.clone()]
        );
        assert_eq!(
            rollback_index(&rollback(Some("shop"))),
            [owner, upgrade, of_app("shop", "shop")]
        );
        assert_ne!(of_app("shop", "up"), of_upgrade("shop", "up"));
    }

    #[test]
    fn a_volume_keeps_the_fields_that_a_rollback_reads() {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {
                "name": "pv", "uid": "pv-uid", "resourceVersion": "7", "labels": { "a": "b" },
                "annotations": {
                    ORIGINAL_POLICY: "Delete", SOURCE_PVC: "{}", "pv.kubernetes.io/provisioned-by": "csi",
                },
            },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": "shop", "name": "data", "uid": "claim" },
                "csi": { "driver": "csi", "volumeHandle": "handle" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [] } },
            },
        }))
        .unwrap();
        let kept: Value = serde_json::to_value(trimmed(volume)).unwrap();
        assert_eq!(kept["metadata"]["resourceVersion"], "7");
        assert_eq!(
            kept["metadata"]["annotations"],
            json!({ ORIGINAL_POLICY: "Delete", SOURCE_PVC: "{}" })
        );
        assert!(kept["metadata"]["labels"].is_null());
        let spec = &kept["spec"];
        assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(spec["claimRef"]["uid"], "claim");
        assert!(spec["nodeAffinity"]["required"].is_object());
        assert_eq!(spec["csi"]["driver"], "csi");
        assert!(spec["capacity"].is_null());
    }

    #[test]
    fn a_snapshot_has_its_upgrade_and_the_description_of_its_claim() {
        let snapshot = |annotations: Value| -> OwnedSnapshot {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {
                    "namespace": "shop", "name": "shop-data", "uid": "snapshot",
                    "creationTimestamp": "2030-01-01T00:00:00Z",
                    "labels": { names::UID: "upgrade" }, "annotations": annotations,
                },
                "spec": { "source": { "persistentVolumeClaimName": "data" } },
            }))
            .unwrap();
            OwnedSnapshot::read(&object).unwrap()
        };
        let found = snapshot(json!({ SOURCE_PVC: "{}" }));
        assert_eq!(found.owner_uid, "upgrade");
        assert_eq!(found.source.as_deref(), Some("{}"));
        assert!(!found.is_preserved);
        assert_eq!(found.created.to_string(), "2030-01-01T00:00:00Z");
        assert!(snapshot(json!({ names::PRESERVE: "true" })).is_preserved);
    }
}
