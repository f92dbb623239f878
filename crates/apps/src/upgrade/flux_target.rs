//! Flux objects as an upgrade locks them: lock, suspension and the token of the last handled request.

use api::{
    MANAGER,
    apps::{FluxKind, PlannedName, PlannedWorkload},
    claim::Lock,
    decide::Target,
    names,
    status::bounded,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Annotation with the token of a requested reconciliation.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Annotations of an object in an inventory that keep kustomize-controller from applying a change, with their values.
const DISABLING: [(&str, &[&str]); 2] = [
    ("kustomize.toolkit.fluxcd.io/reconcile", &["disabled"]),
    (
        "kustomize.toolkit.fluxcd.io/ssa",
        &["Ignore", "IfNotPresent"],
    ),
];

/// Path of `spec.suspend` in `managedFields`.
const SUSPEND: [&str; 2] = ["f:spec", "f:suspend"];

/// Longest text of Flux in a message.
const QUOTED: usize = 100;

/// A Flux object, reduced to the fields that an upgrade reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxTarget {
    /// Kind.
    pub kind: FluxKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Value of `spec.suspend`, if it is set.
    pub suspend: Option<bool>,
    /// The lock.
    pub lock: Lock,
    /// The state to which the holder of the lock has to return, if it stored one.
    pub note: Option<LockNote>,
    /// Token of the requested reconciliation.
    pub requested: Option<String>,
    /// Token of the last reconciliation that its controller handled.
    pub handled: Option<String>,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// Annotation that keeps Flux from applying a change to the object.
    pub disabled: Option<String>,
    /// Message of the condition `Ready`, for messages only.
    pub activity: Option<String>,
    /// Managers of `spec.suspend` beside the operator, from a live read, for messages.
    pub suspend_managers: Vec<String>,
    /// Those of the managers that apply the object again and again, from a live read. They would resume it.
    pub suspend_appliers: Vec<String>,
}

/// The state before an operation, as its lock has it. With it, another request can undo the changes of a holder that
/// was deleted by force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockNote {
    /// Value of `spec.suspend` of the object with the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Workloads with their replica counts.
    #[serde(default)]
    pub workloads: Vec<PlannedWorkload>,
}

/// Key of the note in a lock.
const NOTE: &str = "restore";

impl LockNote {
    /// Returns the note as details of a lock.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ NOTE: self })
    }

    /// Reads the note of a lock. A lock of another program has none.
    fn of(lock: &str) -> Option<Self> {
        let Ok(mut value) = serde_json::from_str::<Value>(lock) else {
            return None;
        };
        let Ok(note) = serde_json::from_value(value.get_mut(NOTE)?.take()) else {
            return None;
        };
        Some(note)
    }
}

impl FluxTarget {
    /// Reads a Kustomization or a HelmRelease.
    ///
    /// # Errors
    /// If `spec.suspend` or the token in the status has another form.
    pub fn read(kind: FluxKind, meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let suspend = match object.pointer("/spec/suspend") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(suspend)) => Some(*suspend),
            Some(other) => return Err(format!("spec.suspend: {other} is no boolean")),
        };
        let handled = match object.pointer("/status/lastHandledReconcileAt") {
            None | Some(Value::Null) => None,
            Some(Value::String(token)) => Some(token.clone()),
            Some(other) => {
                return Err(format!(
                    "status.lastHandledReconcileAt: {other} is no string"
                ));
            }
        };
        let annotations = meta.annotations.clone().unwrap_or_default();
        let disabled = DISABLING.iter().find_map(|(name, values)| {
            let value = annotations.get(*name)?;
            values
                .contains(&value.as_str())
                .then(|| format!("{name}: {value}"))
        });
        let conditions = object
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flat_map(|all| all.iter());
        let ready = conditions.find(|one| one.get("type").and_then(Value::as_str) == Some("Ready"));
        let activity = ready.and_then(|one| one.get("message")?.as_str());
        Ok(Self {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            suspend,
            lock: Lock::of(&annotations),
            note: annotations
                .get(names::LOCK)
                .and_then(|lock| LockNote::of(lock)),
            requested: annotations.get(REQUESTED_AT).cloned(),
            handled,
            is_deleting: meta.deletion_timestamp.is_some(),
            disabled,
            activity: activity.map(|text| bounded(text, QUOTED)),
            suspend_managers: managers(meta, &SUSPEND, |_| true),
            suspend_appliers: managers(meta, &SUSPEND, |entry| {
                entry.operation.as_deref() == Some("Apply")
            }),
        })
    }

    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(self.kind.resource().kind, &self.namespace, &self.name)
    }

    /// Returns the object as the target of a change.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            resource: self.kind.resource(),
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
            uid: self.uid.clone(),
            version: Some(self.version.clone()),
            requires_intent: None,
            optional: false,
        }
    }

    /// Returns whether `spec.suspend` is true.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }

    /// Returns whether the request with this UID has suspended the object at any time. The lock may be gone.
    #[must_use]
    pub fn was_requested_by(&self, uid: &str) -> bool {
        let requested = self.requested.as_deref();
        requested.is_some_and(|token| token.starts_with(&prefix(uid)))
    }

    /// Returns whether the controller of Flux has handled a reconciliation of the current spec since the request with
    /// this UID suspended the object. Only then no earlier reconciliation is still running: `spec.suspend` alone stops
    /// nothing.
    #[must_use]
    pub fn has_confirmed(&self, uid: &str) -> bool {
        let token = token(uid, self.generation);
        self.is_suspended()
            && self.requested.as_ref() == Some(&token)
            && self.handled.as_ref() == Some(&token)
    }
}

/// Returns the token of a request for an object with this generation. A token of another generation is no evidence:
/// the object was changed since.
#[must_use]
pub fn token(uid: &str, generation: i64) -> String {
    format!("{}{generation}", prefix(uid))
}

/// Returns the token with which a request resumes an object. It shows that a later suspension is not of this request.
#[must_use]
pub fn resume_token(uid: &str) -> String {
    format!("orchestrator-resumed/{uid}")
}

fn prefix(uid: &str) -> String {
    format!("orchestrator/{uid}/")
}

/// Returns the managers of a field, except the operator. `path` has the names of `managedFields`, such as `f:spec`.
#[must_use]
pub fn managers(
    meta: &ObjectMeta,
    path: &[&str],
    is_counted: impl Fn(&ManagedFieldsEntry) -> bool,
) -> Vec<String> {
    let owns = |entry: &ManagedFieldsEntry| {
        let mut at = entry.fields_v1.as_ref().map(|fields| &fields.0);
        for name in path {
            at = at.and_then(|at| at.get(*name));
        }
        at.is_some()
    };
    let entries = meta.managed_fields.iter().flat_map(|all| all.iter());
    entries
        .filter(|entry| owns(entry) && is_counted(entry))
        .filter_map(|entry| entry.manager.clone())
        .filter(|manager| manager != MANAGER)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::apps::ScalableKind;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;

    use super::*;

    fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
        let annotations = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("shop".to_owned()),
            uid: Some("flux-uid".to_owned()),
            resource_version: Some("7".to_owned()),
            generation: Some(4),
            annotations: Some(annotations.collect::<BTreeMap<_, _>>()),
            ..ObjectMeta::default()
        }
    }

    fn read(annotations: &[(&str, &str)], object: &Value) -> FluxTarget {
        FluxTarget::read(FluxKind::HelmRelease, &meta(annotations), object).unwrap()
    }

    /// False success "Suspend": `spec.suspend` is true, and an earlier reconciliation still applies.
    #[test]
    fn a_suspension_counts_when_the_token_of_its_generation_is_handled() {
        let ours = "orchestrator/uid/4";
        let suspended = |suspend: Value, handled: Option<&str>| json!({ "spec": { "suspend": suspend }, "status": { "lastHandledReconcileAt": handled } });
        // Columns: requested token, object, whether it is confirmed.
        let table = [
            (Some(ours), suspended(json!(true), Some(ours)), true),
            (Some(ours), suspended(json!(true), None), false),
            (
                Some(ours),
                suspended(json!(true), Some("2030-01-01")),
                false,
            ),
            (Some(ours), suspended(json!(false), Some(ours)), false),
            (Some(ours), suspended(Value::Null, Some(ours)), false),
            // Someone changed the spec since: the token is of another generation.
            (
                Some("orchestrator/uid/3"),
                suspended(json!(true), Some("orchestrator/uid/3")),
                false,
            ),
            // Someone set back the annotation to a token that was handled before.
            (Some("old"), suspended(json!(true), Some("old")), false),
            (None, suspended(json!(true), Some(ours)), false),
            (
                Some("orchestrator/other/4"),
                suspended(json!(true), Some("orchestrator/other/4")),
                false,
            ),
        ];
        for (requested, object, expected) in table {
            let annotations: Vec<(&str, &str)> = requested
                .iter()
                .map(|token| (REQUESTED_AT, *token))
                .collect();
            let found = read(&annotations, &object);
            assert_eq!(
                found.has_confirmed("uid"),
                expected,
                "{requested:?}, {object}"
            );
        }
    }

    #[test]
    fn a_field_of_another_form_is_an_error() {
        for object in [
            json!({ "spec": { "suspend": "true" } }),
            json!({ "status": { "lastHandledReconcileAt": 5 } }),
        ] {
            FluxTarget::read(FluxKind::Kustomization, &meta(&[]), &object).unwrap_err();
        }
        assert_eq!(read(&[], &json!({})).suspend, None);
        assert_eq!(
            read(&[], &json!({ "spec": { "suspend": false } })).suspend,
            Some(false)
        );
    }

    #[test]
    fn a_lock_keeps_the_state_before_the_operation() {
        let note = LockNote {
            suspend: Some(false),
            workloads: vec![PlannedWorkload {
                kind: ScalableKind::StatefulSet,
                namespace: "shop".to_owned(),
                name: "db".to_owned(),
                uid: "db-uid".to_owned(),
                replicas: Some(3),
                suspend: None,
                template: Some("0123456789".to_owned()),
                in_inventory: true,
            }],
        };
        let mut lock = json!({ "kind": "UpgradeRequest", "name": "a", "uid": "u" });
        lock[NOTE] = note.details()[NOTE].clone();
        let found = read(&[(names::LOCK, &lock.to_string())], &json!({}));
        assert!(found.lock.is_held_by("u"));
        assert_eq!(found.note, Some(note));
        for other in ["", "mine", r#"{"kind":"A","name":"b","uid":"c"}"#] {
            assert_eq!(
                read(&[(names::LOCK, other)], &json!({})).note,
                None,
                "{other}"
            );
        }
    }

    #[test]
    fn an_annotation_disables_the_reconciliation() {
        for (name, value, expected) in [
            ("kustomize.toolkit.fluxcd.io/reconcile", "disabled", true),
            ("kustomize.toolkit.fluxcd.io/reconcile", "enabled", false),
            ("kustomize.toolkit.fluxcd.io/ssa", "Ignore", true),
            ("kustomize.toolkit.fluxcd.io/ssa", "IfNotPresent", true),
            ("kustomize.toolkit.fluxcd.io/ssa", "Override", false),
        ] {
            let found = read(&[(name, value)], &json!({}));
            assert_eq!(found.disabled.is_some(), expected, "{name}: {value}");
        }
    }

    #[test]
    fn the_managers_of_a_field_are_named_without_the_operator() {
        let entry = |manager: &str, fields: Value| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(if manager == "flux" { "Update" } else { "Apply" }.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        };
        let suspend = json!({ "f:spec": { "f:suspend": {} } });
        let entries = [
            entry("kustomize-controller", suspend.clone()),
            entry(MANAGER, suspend.clone()),
            entry("flux", suspend),
            entry("kubectl", json!({ "f:spec": { "f:interval": {} } })),
            entry("helm", json!({ "f:metadata": {} })),
        ];
        let meta = ObjectMeta {
            managed_fields: Some(entries.into()),
            ..meta(&[])
        };
        let found = FluxTarget::read(FluxKind::Kustomization, &meta, &json!({})).unwrap();
        assert_eq!(found.suspend_managers, ["kustomize-controller", "flux"]);
        // `flux resume` sets the field once. An applier sets it at each interval.
        assert_eq!(found.suspend_appliers, ["kustomize-controller"]);
    }
}
