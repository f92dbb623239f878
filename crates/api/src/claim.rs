//! Locks on objects that several of ours change. An annotation names the holder, and each change of it is a
//! compare-and-swap with the version that a decision was made from.
//!
//! A crash, a lost response and an old cache need no handling of their own: the next decision reads the annotation, and
//! finds its own lock or that of another.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    decide::{LiveRead, Target},
    names,
};

/// Longest text of each field in the annotation. Names and UIDs of Kubernetes are not longer.
const MAX_FIELD_BYTES: usize = 253;

/// The object that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Kind of the holder.
    pub kind: String,
    /// Namespace of the holder, or `None` if it is cluster-scoped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the holder.
    pub name: String,
    /// UID of the holder. Another object of the same name does not have the lock.
    pub uid: String,
}

impl Holder {
    /// Returns whether a live read is about the object with the name of the holder.
    #[must_use]
    pub fn is_read_by(&self, read: &LiveRead) -> bool {
        match read {
            LiveRead::Object {
                resource,
                namespace,
                name,
            } => resource.kind == self.kind && *namespace == self.namespace && *name == self.name,
            LiveRead::Children { .. } => false,
        }
    }

    fn is_valid(&self) -> bool {
        let fields = [&self.kind, &self.name, &self.uid];
        fields
            .into_iter()
            .chain(&self.namespace)
            .all(|text| !text.is_empty() && text.len() <= MAX_FIELD_BYTES)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        match &self.namespace {
            Some(namespace) => write!(formatter, "{kind} '{namespace}/{name}'"),
            None => write!(formatter, "{kind} '{name}'"),
        }
    }
}

/// The lock of an object, from its annotation `orchestrator.io/lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lock {
    /// Nobody holds the lock.
    Free,
    /// This object holds the lock.
    Held(Holder),
    /// The annotation does not name a holder. Someone else wrote it.
    Unreadable,
}

/// The next step of an object that needs a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStep<'a> {
    /// Take the lock with [`Claim::take`].
    Take,
    /// Continue: the lock is ours.
    Proceed,
    /// Wait for the holder, and name it.
    Wait(&'a Holder),
    /// Read the holder from the API server with [`crate::decide::Decision::confirm`]: the caches do not have it.
    Confirm(&'a Holder),
    /// Take the lock with [`Claim::take_over`]: the holder does not exist.
    TakeOver(&'a Holder),
    /// Wait until someone removes the annotation, and name it.
    Unreadable,
}

impl Lock {
    /// Returns the lock of an object with these annotations.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(names::LOCK);
        match text.map(|text| serde_json::from_str::<Holder>(text)) {
            None => Self::Free,
            Some(Ok(holder)) if holder.is_valid() => Self::Held(holder),
            Some(Ok(_) | Err(_)) => Self::Unreadable,
        }
    }

    /// Returns whether the object with this UID holds the lock.
    #[must_use]
    pub fn is_held_by(&self, uid: &str) -> bool {
        match self {
            Self::Held(holder) => holder.uid == uid,
            Self::Free | Self::Unreadable => false,
        }
    }

    /// Returns the next step of the object with the UID `own_uid`, which needs the lock.
    ///
    /// `is_active` returns whether a holder exists and may still release its lock. It must return true for a holder of
    /// a kind that the decision does not observe. `confirmed` is [`crate::decide::Input::confirmed`].
    #[must_use]
    pub fn step(
        &self,
        own_uid: &str,
        is_active: impl FnOnce(&Holder) -> bool,
        confirmed: bool,
    ) -> LockStep<'_> {
        match self {
            Self::Free => LockStep::Take,
            Self::Held(holder) if holder.uid == own_uid => LockStep::Proceed,
            Self::Held(holder) if is_active(holder) => LockStep::Wait(holder),
            Self::Held(holder) if confirmed => LockStep::TakeOver(holder),
            Self::Held(holder) => LockStep::Confirm(holder),
            Self::Unreadable => LockStep::Unreadable,
        }
    }
}

/// A change of a lock. The object that is reconciled takes or releases the lock of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    target: Target,
    action: ClaimAction,
    patch: Value,
    details: Value,
}

/// The kind of a change of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAction {
    /// Takes a free lock.
    Take,
    /// Takes the lock of a holder that does not exist any more. The engine requires a live read of the holder in the same
    /// reconciliation.
    TakeOver(Holder),
    /// Releases our lock.
    Release,
}

impl Claim {
    /// Takes the lock of `target`, which is free in `version`.
    #[must_use]
    pub fn take(target: Target, version: &str) -> Self {
        Self::new(target, version, ClaimAction::Take)
    }

    /// Takes the lock of `target`, which `from` holds in `version`.
    #[must_use]
    pub fn take_over(target: Target, version: &str, from: Holder) -> Self {
        Self::new(target, version, ClaimAction::TakeOver(from))
    }

    /// Releases the lock of `target`, which is ours in `version`.
    #[must_use]
    pub fn release(target: Target, version: &str) -> Self {
        Self::new(target, version, ClaimAction::Release)
    }

    fn new(mut target: Target, version: &str, action: ClaimAction) -> Self {
        target.version = Some(version.to_owned());
        Self {
            target,
            action,
            patch: json!({}),
            details: json!({}),
        }
    }

    /// Changes these fields of the target in the same write. `patch` is a JSON object.
    #[must_use]
    pub fn with_patch(mut self, patch: Value) -> Self {
        self.patch = patch;
        self
    }

    /// Stores these fields in the lock, beside the holder. `details` is a JSON object. With them, another object can undo
    /// the changes of a holder that does not exist any more.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Returns the object with the lock, and its version.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the kind of the change.
    #[must_use]
    pub fn action(&self) -> &ClaimAction {
        &self.action
    }

    /// Returns whether the lock is ours afterwards.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self.action {
            ClaimAction::Take | ClaimAction::TakeOver(_) => true,
            ClaimAction::Release => false,
        }
    }

    /// Returns the merge patch of the target. `claimant` is the object that is reconciled.
    #[must_use]
    pub fn merge_patch(&self, claimant: &Holder) -> Value {
        let mut patch = self.patch.clone();
        patch["metadata"]["annotations"][names::LOCK] = if self.is_taken() {
            let mut lock = json!(claimant);
            if let (Value::Object(lock), Value::Object(details)) = (&mut lock, &self.details) {
                for (name, value) in details {
                    // The holder itself cannot be replaced.
                    lock.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
            json!(lock.to_string())
        } else {
            Value::Null
        };
        patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::ResourceType;

    fn holder(uid: &str) -> Holder {
        Holder {
            kind: "Toy".to_owned(),
            namespace: Some("n".to_owned()),
            name: "rival".to_owned(),
            uid: uid.to_owned(),
        }
    }

    fn target() -> Target {
        Target {
            resource: ResourceType::CONFIG_MAP,
            namespace: Some("n".to_owned()),
            name: "shelf".to_owned(),
            uid: "uid".to_owned(),
            version: None,
            requires_intent: None,
            optional: false,
        }
    }

    #[test]
    fn an_annotation_names_a_holder_or_is_unreadable() {
        let long = "x".repeat(254);
        let table = [
            (None, Lock::Free),
            (
                Some(r#"{"kind":"Toy","namespace":"n","name":"rival","uid":"u"}"#.to_owned()),
                Lock::Held(holder("u")),
            ),
            (
                Some(r#"{"kind":"Tenant","name":"shop","uid":"u"}"#.to_owned()),
                Lock::Held(Holder {
                    kind: "Tenant".to_owned(),
                    namespace: None,
                    name: "shop".to_owned(),
                    uid: "u".to_owned(),
                }),
            ),
            (Some(String::new()), Lock::Unreadable),
            (Some("mine".to_owned()), Lock::Unreadable),
            (
                Some(r#"{"kind":"Toy","name":"rival"}"#.to_owned()),
                Lock::Unreadable,
            ),
            (
                Some(r#"{"kind":"Toy","name":"","uid":"u"}"#.to_owned()),
                Lock::Unreadable,
            ),
            (
                Some(format!(r#"{{"kind":"Toy","name":"{long}","uid":"u"}}"#)),
                Lock::Unreadable,
            ),
        ];
        for (text, expected) in table {
            let annotation = text.clone().map(|text| (names::LOCK.to_owned(), text));
            let annotations: BTreeMap<String, String> = annotation.into_iter().collect();
            assert_eq!(Lock::of(&annotations), expected, "{text:?}");
        }
    }

    #[test]
    fn a_lock_is_taken_over_only_after_its_holder_was_read_live() {
        let (ours, other) = (Lock::Held(holder("me")), Lock::Held(holder("other")));
        let rival = &holder("other");
        // Columns: lock, whether the caches have the holder, whether it was read live, next step.
        let table = [
            (&Lock::Free, false, false, LockStep::Take),
            (&Lock::Free, false, true, LockStep::Take),
            (&ours, false, false, LockStep::Proceed),
            (&ours, true, false, LockStep::Proceed),
            (&other, true, false, LockStep::Wait(rival)),
            (&other, true, true, LockStep::Wait(rival)),
            (&other, false, false, LockStep::Confirm(rival)),
            (&other, false, true, LockStep::TakeOver(rival)),
            (&Lock::Unreadable, false, true, LockStep::Unreadable),
        ];
        for (lock, is_active, confirmed, expected) in table {
            let step = lock.step("me", |_| is_active, confirmed);
            assert_eq!(step, expected, "{lock:?}, {is_active}, {confirmed}");
        }
        assert!(ours.is_held_by("me") && !other.is_held_by("me"));
    }

    #[test]
    fn a_claim_changes_the_lock_and_other_fields_in_one_write() {
        let fields = json!({
            "metadata": { "annotations": { "other": "kept" } }, "spec": { "suspend": true },
        });
        let taken = Claim::take(target(), "7").with_patch(fields);
        assert_eq!(taken.target().version.as_deref(), Some("7"));
        let patch = taken.merge_patch(&holder("me"));
        assert_eq!(patch["spec"], json!({ "suspend": true }));
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations["other"], "kept");
        let text = annotations[names::LOCK].as_str().unwrap().to_owned();
        let annotations = BTreeMap::from([(names::LOCK.to_owned(), text)]);
        assert_eq!(Lock::of(&annotations), Lock::Held(holder("me")));

        let released = Claim::release(target(), "8").merge_patch(&holder("me"));
        let expected = json!({ "metadata": { "annotations": { names::LOCK: null } } });
        assert_eq!(released, expected);
    }

    #[test]
    fn a_lock_has_details_beside_its_holder() {
        let details = json!({ "uid": "other", "replicas": [3] });
        let taken = Claim::take(target(), "7").with_details(details);
        let patch = taken.merge_patch(&holder("me"));
        let text = patch["metadata"]["annotations"][names::LOCK].as_str();
        let text = text.unwrap().to_owned();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["replicas"], json!([3]));
        let annotations = BTreeMap::from([(names::LOCK.to_owned(), text)]);
        assert_eq!(Lock::of(&annotations), Lock::Held(holder("me")));
    }

    #[test]
    fn a_live_read_is_about_a_holder_of_the_same_kind_namespace_and_name() {
        let read = |kind: &'static str, namespace: Option<&str>, name: &str| LiveRead::Object {
            resource: ResourceType::new("test", "v1", kind, "toys"),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let holder = holder("u");
        assert!(holder.is_read_by(&read("Toy", Some("n"), "rival")));
        for other in [
            read("Lamp", Some("n"), "rival"),
            read("Toy", Some("m"), "rival"),
            read("Toy", None, "rival"),
            read("Toy", Some("n"), "other"),
        ] {
            assert!(!holder.is_read_by(&other), "{other:?}");
        }
    }
}
