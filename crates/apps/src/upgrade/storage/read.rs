//! Reads volumes, attachments and snapshots from their objects.

use api::status::{MAX_MESSAGE_CHARS, bounded};
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::{CSIDriver, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AttachedVolume, ContentView, SnapshotClass, SnapshotView, VolumeState};

/// Annotation of a VolumeSnapshotClass that is the default of its driver.
const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// A VolumeSnapshotClass, reduced to the fields that an upgrade reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassView {
    /// Name.
    pub name: String,
    /// CSI driver.
    pub driver: String,
    /// Whether it is the default of its driver.
    pub is_default: bool,
}

impl ClassView {
    /// Reads a VolumeSnapshotClass.
    ///
    /// # Errors
    /// If it has no driver.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let Some(driver) = object.get("driver").and_then(Value::as_str) else {
            return Err("driver: it is missing".to_owned());
        };
        let annotations = meta.annotations.as_ref();
        let default = annotations.and_then(|all| all.get(DEFAULT_CLASS));
        Ok(Self {
            name: meta.name.clone().unwrap_or_default(),
            driver: driver.to_owned(),
            is_default: default.is_some_and(|value| value == "true"),
        })
    }
}

/// Returns the snapshot class for a CSI driver: its default, or its only one.
#[must_use]
pub fn snapshot_class(classes: &[ClassView], driver: &str) -> SnapshotClass {
    let of_driver: Vec<&ClassView> = classes.iter().filter(|one| one.driver == driver).collect();
    let defaults: Vec<&ClassView> = of_driver
        .iter()
        .copied()
        .filter(|one| one.is_default)
        .collect();
    let candidates = if defaults.is_empty() {
        of_driver
    } else {
        defaults
    };
    match candidates.as_slice() {
        [] => SnapshotClass::Missing,
        [only] => SnapshotClass::One(only.name.clone()),
        several => {
            let mut names: Vec<String> = several.iter().map(|one| one.name.clone()).collect();
            names.sort();
            SnapshotClass::Ambiguous(names)
        }
    }
}

/// Returns whether a CSI driver attaches volumes to nodes. Kubernetes assumes it of a driver without a CSIDriver.
#[must_use]
pub fn is_attachable(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

impl VolumeState {
    /// Reads a claim with its volume. Both must reference each other: a claim can name a volume of another claim.
    #[must_use]
    pub fn read(
        claim: &PersistentVolumeClaim,
        volume: Option<&PersistentVolume>,
        is_attachable: bool,
        class: SnapshotClass,
    ) -> Self {
        let meta = &claim.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        let spec = claim.spec.clone().unwrap_or_default();
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let of_volume = volume.and_then(|volume| volume.spec.as_ref());
        let owner = of_volume.and_then(|volume| volume.claim_ref.as_ref()?.uid.as_ref());
        let requests = spec
            .resources
            .as_ref()
            .and_then(|one| one.requests.as_ref());
        let size = requests.and_then(|requests| Some(requests.get("storage")?.0.clone()));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            claim: meta.name.clone().unwrap_or_default(),
            is_bound: phase == Some("Bound") && owner == Some(&uid),
            uid,
            volume: spec.volume_name.clone(),
            driver: of_volume.and_then(|volume| Some(volume.csi.as_ref()?.driver.clone())),
            is_attachable,
            class,
            storage_class: spec.storage_class_name.clone(),
            size,
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            volume_mode: spec.volume_mode.clone(),
            source: json!({
                "labels": meta.labels,
                "annotations": meta.annotations,
                "spec": spec,
            })
            .to_string(),
        }
    }
}

impl AttachedVolume {
    /// Reads an attachment, or returns `None` if it is not about a PersistentVolume. An attachment that is being deleted
    /// counts: the node may still write.
    #[must_use]
    pub fn read(attachment: &VolumeAttachment) -> Option<Self> {
        let volume = attachment.spec.source.persistent_volume_name.clone()?;
        Some(Self {
            volume,
            node: attachment.spec.node_name.clone(),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSnapshot {
    spec: RawSpec,
    status: Option<RawStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSpec {
    source: RawSource,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSource {
    persistent_volume_claim_name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    bound_volume_snapshot_content_name: Option<String>,
    creation_time: Option<Time>,
    ready_to_use: Option<bool>,
    restore_size: Option<Value>,
    error: Option<RawError>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawError {
    message: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawContent {
    spec: RawContentSpec,
    status: Option<RawContentStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContentSpec {
    driver: String,
    volume_snapshot_ref: RawReference,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawReference {
    uid: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContentStatus {
    snapshot_handle: Option<String>,
    ready_to_use: Option<bool>,
}

impl SnapshotView {
    /// Reads a VolumeSnapshot, without its content.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let raw = RawSnapshot::deserialize(object).map_err(|error| error.to_string())?;
        let status = raw.status.unwrap_or_default();
        let error = status.error.and_then(|error| error.message);
        Ok(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            claim: raw
                .spec
                .source
                .persistent_volume_claim_name
                .unwrap_or_default(),
            content_name: status
                .bound_volume_snapshot_content_name
                .filter(|name| !name.is_empty()),
            content: None,
            taken: status.creation_time.map(|time| time.0),
            is_ready: status.ready_to_use == Some(true),
            restore_size: status.restore_size.map(|size| match size {
                Value::String(size) => size,
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_)) => other.to_string(),
            }),
            error: error.map(|text| bounded(&text, MAX_MESSAGE_CHARS)),
            is_deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        })
    }

    /// Adds the content with the name that the snapshot has.
    #[must_use]
    pub fn with_content(mut self, content: Option<ContentView>) -> Self {
        self.content = content;
        self
    }
}

impl ContentView {
    /// Reads a VolumeSnapshotContent.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(object: &Value) -> Result<Self, String> {
        let raw = RawContent::deserialize(object).map_err(|error| error.to_string())?;
        let status = raw.status.unwrap_or_default();
        Ok(Self {
            snapshot_uid: raw.spec.volume_snapshot_ref.uid,
            driver: raw.spec.driver,
            handle: status.snapshot_handle,
            is_ready: status.ready_to_use == Some(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use api::apps::PlannedVolume;

    use super::*;

    fn meta() -> ObjectMeta {
        ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("shop-data".to_owned()),
            uid: Some("snapshot-uid".to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn snapshot(status: &Value) -> SnapshotView {
        let object = json!({
            "spec": { "source": { "persistentVolumeClaimName": "data" } }, "status": status,
        });
        SnapshotView::read(&meta(), &object).unwrap()
    }

    fn content(uid: &str, driver: &str, handle: Option<&str>, is_ready: bool) -> ContentView {
        let object = json!({
            "spec": { "driver": driver, "volumeSnapshotRef": { "uid": uid } },
            "status": { "snapshotHandle": handle, "readyToUse": is_ready },
        });
        ContentView::read(&object).unwrap()
    }

    fn planned() -> PlannedVolume {
        PlannedVolume {
            pvc: "data".to_owned(),
            driver: "csi".to_owned(),
            ..PlannedVolume::default()
        }
    }

    /// Pitfall 9: both directions of the binding, the driver and the handle are checked.
    #[test]
    fn a_snapshot_counts_only_with_all_of_its_evidence() {
        let ready = json!({
            "boundVolumeSnapshotContentName": "content",
            "creationTime": "2030-01-01T00:00:00Z",
            "readyToUse": true,
            "restoreSize": "1Gi",
        });
        let without = |field: &str| {
            let mut status = ready.clone();
            status.as_object_mut().unwrap().remove(field);
            status
        };
        let good = || Some(content("snapshot-uid", "csi", Some("handle"), true));
        // Columns: status, content, why it cannot be used.
        let table = [
            (ready.clone(), good(), None),
            (Value::Null, good(), Some("has no content yet")),
            (
                without("boundVolumeSnapshotContentName"),
                good(),
                Some("has no content yet"),
            ),
            (
                ready.clone(),
                None,
                Some("has a content that does not exist"),
            ),
            (
                ready.clone(),
                Some(content("other", "csi", Some("handle"), true)),
                Some("has a content of another snapshot"),
            ),
            (
                ready.clone(),
                Some(content("snapshot-uid", "other", Some("handle"), true)),
                Some("has a content of another CSI driver"),
            ),
            (without("creationTime"), good(), Some("is not taken yet")),
            (
                ready.clone(),
                Some(content("snapshot-uid", "csi", None, true)),
                Some("has a content without a handle"),
            ),
            (
                ready.clone(),
                Some(content("snapshot-uid", "csi", Some(""), true)),
                Some("has a content without a handle"),
            ),
            (without("readyToUse"), good(), Some("is not ready yet")),
            (
                ready.clone(),
                Some(content("snapshot-uid", "csi", Some("handle"), false)),
                Some("is not ready yet"),
            ),
        ];
        for (status, content, expected) in table {
            let found = snapshot(&status).with_content(content);
            assert_eq!(found.missing(&planned()), expected, "{found:?}");
        }
        let mut found = snapshot(&ready).with_content(good());
        found.claim = "other".to_owned();
        assert_eq!(found.missing(&planned()), Some("is of another claim"));
        found.is_deleting = true;
        assert_eq!(found.missing(&planned()), Some("is being deleted"));
    }

    /// S1.11: an error that repeats is no progress; each step of the driver is.
    #[test]
    fn s1_11_only_steps_of_the_driver_are_progress() {
        let before = snapshot(&json!({})).progress();
        let error = json!({ "error": { "message": "busy", "time": "2030-01-01T00:00:00Z" } });
        let failing = snapshot(&error);
        assert_eq!(failing.error.as_deref(), Some("busy"));
        assert_eq!(failing.progress(), before);
        for step in [
            json!({ "boundVolumeSnapshotContentName": "content" }),
            json!({ "creationTime": "2030-01-01T00:00:00Z" }),
            json!({ "readyToUse": true }),
            json!({ "restoreSize": 1024 }),
        ] {
            assert_ne!(snapshot(&step).progress(), before, "{step}");
        }
        let with_handle =
            snapshot(&json!({})).with_content(Some(content("u", "csi", Some("h"), false)));
        assert_ne!(with_handle.progress(), before);
    }

    #[test]
    fn the_class_is_the_only_default_or_the_only_one_of_the_driver() {
        let class = |name: &str, driver: &str, is_default| ClassView {
            name: name.to_owned(),
            driver: driver.to_owned(),
            is_default,
        };
        let one = |name: &str| SnapshotClass::One(name.to_owned());
        let ambiguous = || SnapshotClass::Ambiguous(vec!["a".to_owned(), "b".to_owned()]);
        for (classes, expected) in [
            (vec![], SnapshotClass::Missing),
            (vec![class("a", "other", true)], SnapshotClass::Missing),
            (vec![class("a", "csi", false)], one("a")),
            (
                vec![class("a", "csi", false), class("b", "csi", true)],
                one("b"),
            ),
            (
                vec![class("a", "other", true), class("b", "csi", true)],
                one("b"),
            ),
            (
                vec![class("b", "csi", true), class("a", "csi", true)],
                ambiguous(),
            ),
            (
                vec![class("b", "csi", false), class("a", "csi", false)],
                ambiguous(),
            ),
        ] {
            assert_eq!(snapshot_class(&classes, "csi"), expected, "{classes:?}");
        }
        let annotated = ObjectMeta {
            annotations: Some([(DEFAULT_CLASS.to_owned(), "true".to_owned())].into()),
            ..meta()
        };
        let read = ClassView::read(&annotated, &json!({ "driver": "csi" })).unwrap();
        assert!(read.is_default);
        ClassView::read(&annotated, &json!({})).unwrap_err();
    }

    #[test]
    fn a_claim_is_bound_if_its_volume_references_it() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "data", "uid": "claim-uid", "labels": { "a": "b" } },
            "spec": {
                "volumeName": "pv", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": "Bound" },
        }))
        .unwrap();
        let volume = |uid: &str| -> PersistentVolume {
            serde_json::from_value(json!({
                "metadata": { "name": "pv" },
                "spec": {
                    "claimRef": { "uid": uid },
                    "csi": { "driver": "csi", "volumeHandle": "handle" },
                },
            }))
            .unwrap()
        };
        let read = |volume: Option<&PersistentVolume>| {
            VolumeState::read(&claim, volume, true, SnapshotClass::Missing)
        };
        let found = read(Some(&volume("claim-uid")));
        assert!(found.is_bound);
        assert_eq!(found.driver.as_deref(), Some("csi"));
        assert_eq!(
            (found.volume.as_deref(), found.size.as_deref()),
            (Some("pv"), Some("1Gi"))
        );
        assert!(found.source.contains(r#""a":"b""#), "{}", found.source);
        assert!(!read(Some(&volume("another-uid"))).is_bound);
        assert!(!read(None).is_bound);
    }

    #[test]
    fn a_driver_attaches_volumes_unless_it_denies_it() {
        let driver = |required: Option<bool>| -> CSIDriver {
            serde_json::from_value(json!({ "spec": { "attachRequired": required } })).unwrap()
        };
        assert!(is_attachable(None));
        assert!(is_attachable(Some(&driver(None))));
        assert!(is_attachable(Some(&driver(Some(true)))));
        assert!(!is_attachable(Some(&driver(Some(false)))));
    }
}
