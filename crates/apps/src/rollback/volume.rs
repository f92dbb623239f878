//! Claims, volumes and binder Pods as a rollback observes them.

use api::{
    apps::PlannedName,
    decide::{LiveRead, ResourceType, Target},
    names,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use crate::upgrade::{SOURCE_PVC, storage::SnapshotView};

/// PersistentVolumeClaims.
pub const CLAIM: ResourceType =
    ResourceType::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");

/// PersistentVolumes.
pub const VOLUME: ResourceType =
    ResourceType::new("", "v1", "PersistentVolume", "persistentvolumes");

/// Annotation of a PersistentVolume: its reclaim policy before the rollback.
pub const ORIGINAL_POLICY: &str = "orchestrator.io/original-reclaim-policy";

/// Annotation of a claim: UID of the RollbackRequest that is about to delete and replace it.
pub const REPLACED_BY: &str = "orchestrator.io/replaced-by";

/// Reclaim policy of a volume that survives its claim.
pub(super) const RETAIN: &str = "Retain";

/// A claim, reduced to the fields that a rollback reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether the claim is being deleted.
    pub is_deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Whether its phase is `Bound`.
    pub is_bound: bool,
    /// Name of its PersistentVolume.
    pub volume: Option<String>,
    /// UID of the request that created it, from a label or an annotation.
    pub owner: Option<String>,
    /// Whether the owner is in an annotation.
    pub is_marked: bool,
    /// UID of the RollbackRequest that is about to replace it.
    pub replaced_by: Option<String>,
    /// Name of the VolumeSnapshot in its `dataSourceRef`.
    pub snapshot: Option<String>,
    /// Labels, annotations and spec as JSON.
    pub source: String,
}

impl LiveClaim {
    /// Reads a claim.
    #[must_use]
    pub fn read(claim: &PersistentVolumeClaim) -> Self {
        let meta = &claim.metadata;
        let spec = claim.spec.clone().unwrap_or_default();
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let labels = meta.labels.as_ref();
        let label = labels.and_then(|all| all.get(names::UID).cloned());
        let marked = annotation(meta, names::UID);
        let source = spec.data_source_ref.as_ref();
        let source = source.filter(|source| source.kind == "VolumeSnapshot");
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            is_deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            is_bound: phase == Some("Bound"),
            volume: spec.volume_name.clone(),
            is_marked: marked.is_some(),
            owner: marked.or(label),
            replaced_by: annotation(meta, REPLACED_BY),
            snapshot: source.map(|source| source.name.clone()),
            source: json!({
                "labels": meta.labels,
                "annotations": meta.annotations,
                "spec": spec,
            })
            .to_string(),
        }
    }

    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(CLAIM.kind, &self.namespace, &self.name)
    }

    pub(super) fn target(&self) -> Target {
        target(CLAIM, Some(&self.namespace), &self.name, &self.uid, None)
    }

    /// Formats a deletion that is not complete.
    pub(super) fn describe_deletion(&self) -> String {
        describe_deletion(&self.id(), &self.finalizers)
    }
}

/// A PersistentVolume, reduced to the fields that a rollback reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveVolume {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Reclaim policy.
    pub policy: String,
    /// Reclaim policy before the rollback, from the annotation.
    pub original: Option<String>,
    /// Labels, annotations and spec of the claim that a rollback creates for the volume.
    pub source: Option<String>,
    /// Namespace and name of its claim.
    pub claim: Option<(String, String)>,
    /// UID of its claim.
    pub claim_uid: Option<String>,
    /// Nodes from which the volume can be reached, as in the spec.
    pub affinity: Option<Value>,
}

impl LiveVolume {
    /// Reads a volume.
    #[must_use]
    pub fn read(volume: &PersistentVolume) -> Self {
        let meta = &volume.metadata;
        let spec = volume.spec.as_ref();
        let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
        let affinity = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            policy: policy.unwrap_or_default(),
            original: annotation(meta, ORIGINAL_POLICY),
            source: annotation(meta, SOURCE_PVC),
            claim: claim.and_then(|claim| Some((claim.namespace.clone()?, claim.name.clone()?))),
            claim_uid: claim.and_then(|claim| claim.uid.clone()),
            affinity: affinity.map(|required| json!(required)),
        }
    }

    /// Returns the volume as the target of a patch. A patch from an old cache must not replace a later one.
    pub(super) fn target(&self) -> Target {
        let version = Some(self.version.as_str());
        target(VOLUME, None, &self.name, &self.uid, version)
    }

    /// Returns the reclaim policy before the rollback.
    pub(super) fn original_policy(&self) -> &str {
        self.original.as_deref().unwrap_or(&self.policy)
    }
}

/// A Pod that binds a restored volume, and compares it with the volume of the application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binder {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether the Pod is being deleted.
    pub is_deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Phase of the Pod.
    pub phase: String,
    /// Exit code of its container.
    pub exit: Option<i32>,
    /// Why its container does not start.
    pub cause: Option<String>,
}

impl Binder {
    /// Reads a Pod. `cause` is why its container does not start.
    #[must_use]
    pub fn read(pod: &Pod, cause: Option<String>) -> Self {
        let meta = &pod.metadata;
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let state = containers.and_then(|all| all.first()?.state.as_ref());
        let exit = state.and_then(|state| Some(state.terminated.as_ref()?.exit_code));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            is_deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            phase: status
                .and_then(|status| status.phase.clone())
                .unwrap_or_default(),
            exit,
            cause,
        }
    }

    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(ResourceType::POD.kind, &self.namespace, &self.name)
    }

    pub(super) fn target(&self) -> Target {
        let namespace = Some(self.namespace.as_str());
        target(ResourceType::POD, namespace, &self.name, &self.uid, None)
    }

    pub(super) fn describe_deletion(&self) -> String {
        describe_deletion(&self.id(), &self.finalizers)
    }
}

/// The objects of one volume of a rollback.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeObjects {
    /// The claim with the name of the plan, whoever created it.
    pub claim: Option<LiveClaim>,
    /// The temporary claim of the request.
    pub temporary: Option<LiveClaim>,
    /// The Pod that binds the temporary claim.
    pub binder: Option<Binder>,
    /// The volume of the application.
    pub old: Option<LiveVolume>,
    /// The restored volume.
    pub new: Option<LiveVolume>,
    /// The snapshot of the upgrade.
    pub snapshot: Option<SnapshotView>,
    /// Labels, annotations and spec of the claim at the time of the snapshot.
    pub snapshot_source: Option<String>,
}

impl VolumeObjects {
    /// Returns the progress of the restore: a text that changes with each step. An error is no progress.
    #[must_use]
    pub fn progress(&self) -> String {
        let temporary = self.temporary.as_ref();
        let temporary = temporary.map(|one| (&one.uid, one.is_bound, &one.volume));
        let binder = self.binder.as_ref();
        let binder = binder.map(|one| (&one.uid, &one.phase));
        format!("{temporary:?}:{binder:?}")
    }
}

fn annotation(meta: &ObjectMeta, name: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(name).cloned()
}

fn target(
    resource: ResourceType,
    namespace: Option<&str>,
    name: &str,
    uid: &str,
    version: Option<&str>,
) -> Target {
    Target {
        resource,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        uid: uid.to_owned(),
        version: version.map(str::to_owned),
        requires_intent: None,
        optional: false,
    }
}

fn describe_deletion(id: &PlannedName, finalizers: &[String]) -> String {
    let by = match finalizers {
        [] => String::new(),
        all => format!("; it has the finalizers '{}'", all.join("', '")),
    };
    format!("waits until {id} is deleted{by}")
}

/// Returns the read of a claim or a volume.
pub(super) fn read(resource: ResourceType, namespace: Option<&str>, name: &str) -> LiveRead {
    LiveRead::Object {
        resource,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}
