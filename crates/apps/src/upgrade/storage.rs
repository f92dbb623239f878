//! Volumes, attachments and snapshots as an upgrade observes them.

mod read;

use api::{
    Timestamp,
    apps::{PlannedName, PlannedVolume},
    decide::{ResourceType, Target},
};

pub use self::read::{ClassView, is_attachable, snapshot_class};

/// VolumeSnapshots.
pub const VOLUME_SNAPSHOT: ResourceType = ResourceType::new(
    "snapshot.storage.k8s.io",
    "v1",
    "VolumeSnapshot",
    "volumesnapshots",
);

/// A claim with its volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// UID of the claim.
    pub uid: String,
    /// Whether the claim is bound.
    pub is_bound: bool,
    /// Name of the PersistentVolume.
    pub volume: Option<String>,
    /// CSI driver of the PersistentVolume, or `None` if it has another source.
    pub driver: Option<String>,
    /// Whether the driver attaches volumes to nodes.
    pub is_attachable: bool,
    /// The snapshot class for the driver.
    pub class: SnapshotClass,
    /// StorageClass of the claim.
    pub storage_class: Option<String>,
    /// Requested size.
    pub size: Option<String>,
    /// Access modes.
    pub access_modes: Vec<String>,
    /// Volume mode.
    pub volume_mode: Option<String>,
    /// Labels, annotations and spec of the claim as JSON. A snapshot keeps them for a restore.
    pub source: String,
}

impl VolumeState {
    /// Returns kind, namespace and name of the claim.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new("PersistentVolumeClaim", &self.namespace, &self.claim)
    }

    /// Returns whether the claim and its volume are those of the plan.
    #[must_use]
    pub fn is_same(&self, planned: &PlannedVolume) -> bool {
        self.uid == planned.pvc_uid && self.volume.as_ref() == Some(&planned.pv)
    }
}

/// The snapshot class for a CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SnapshotClass {
    /// There is none.
    #[default]
    Missing,
    /// This is the only one, or the only default.
    One(String),
    /// Several could be meant.
    Ambiguous(Vec<String>),
}

/// An attachment of a volume to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachedVolume {
    /// Name of the PersistentVolume.
    pub volume: String,
    /// Name of the node.
    pub node: String,
}

/// The snapshots of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapshots {
    /// The API server does not serve VolumeSnapshots.
    NotInstalled,
    /// The snapshots and their contents.
    Found(Vec<SnapshotView>),
}

impl Snapshots {
    /// Returns the snapshots; none if the type is not installed.
    #[must_use]
    pub fn all(&self) -> &[SnapshotView] {
        match self {
            Self::NotInstalled => &[],
            Self::Found(all) => all,
        }
    }
}

/// A VolumeSnapshot with its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Name of the claim in its source.
    pub claim: String,
    /// Name of the bound content.
    pub content_name: Option<String>,
    /// The bound content, if it exists.
    pub content: Option<ContentView>,
    /// Time at which the storage system took the snapshot.
    pub taken: Option<Timestamp>,
    /// Whether the snapshot is ready.
    pub is_ready: bool,
    /// Size that a restored volume must have at least.
    pub restore_size: Option<String>,
    /// Last error. It can disappear again, so it decides nothing.
    pub error: Option<String>,
    /// Whether the snapshot is being deleted.
    pub is_deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
}

/// A VolumeSnapshotContent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentView {
    /// UID of the snapshot that it belongs to.
    pub snapshot_uid: Option<String>,
    /// CSI driver.
    pub driver: String,
    /// Handle of the snapshot in the storage system.
    pub handle: Option<String>,
    /// Whether the content is ready.
    pub is_ready: bool,
}

impl SnapshotView {
    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(VOLUME_SNAPSHOT.kind, &self.namespace, &self.name)
    }

    /// Returns the snapshot as the target of a deletion.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            resource: VOLUME_SNAPSHOT,
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
            uid: self.uid.clone(),
            version: None,
            requires_intent: None,
            optional: false,
        }
    }

    /// Returns why the snapshot cannot be used yet, or `None` if it can. `boundVolumeSnapshotContentName` alone is no
    /// binding: the content must reference this snapshot, and have a handle of the driver of the volume.
    #[must_use]
    pub fn missing(&self, planned: &PlannedVolume) -> Option<&'static str> {
        if self.is_deleting {
            return Some("is being deleted");
        }
        if self.claim != planned.pvc {
            return Some("is of another claim");
        }
        if self.content_name.is_none() {
            return Some("has no content yet");
        }
        let Some(content) = &self.content else {
            return Some("has a content that does not exist");
        };
        if content.snapshot_uid.as_ref() != Some(&self.uid) {
            return Some("has a content of another snapshot");
        }
        if content.driver != planned.driver {
            return Some("has a content of another CSI driver");
        }
        if self.taken.is_none() {
            return Some("is not taken yet");
        }
        if content.handle.as_deref().is_none_or(str::is_empty) {
            return Some("has a content without a handle");
        }
        if !self.is_ready || !content.is_ready {
            return Some("is not ready yet");
        }
        None
    }

    /// Returns the progress: a text that changes with each step of the storage system. An error is no progress.
    #[must_use]
    pub fn progress(&self) -> String {
        let content = self.content.as_ref();
        let handle = content.and_then(|content| content.handle.as_deref());
        let taken = self.taken.map(|taken| taken.as_second());
        format!(
            "{}:{:?}:{:?}:{}:{:?}:{:?}",
            self.uid, self.content_name, taken, self.is_ready, self.restore_size, handle
        )
    }
}
