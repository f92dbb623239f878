//! Children of objects: joined by kind, namespace and UID, never by a UID alone.
//!
//! The author of an object chooses its labels, its owner references and, for an Event, the object
//! that it is about. A user with permission to create objects in some namespace can write the UID of
//! an object in another namespace there. So an object in another namespace is never a child,
//! regardless of its content.

use std::sync::Arc;

use api::names;
use kube::{Resource, ResourceExt};

use crate::Cache;

/// A watched object that may belong to an object of ours.
#[derive(Debug)]
pub struct Child<V> {
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// The kind of the object that it belongs to, from its label `orchestrator.io/kind`.
    pub owner_kind: String,
    /// The UID of the object that it belongs to, from its label `orchestrator.io/uid`.
    pub owner_uid: String,
    /// The cached fields of the object.
    pub view: V,
}

impl<V> Child<V> {
    /// Returns the child for an object, with `view` as its cached fields.
    pub fn new(object: &impl Resource, view: V) -> Self {
        let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
        Self {
            namespace: object.namespace().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            owner_kind: label(names::KIND),
            owner_uid: label(names::UID),
            view,
        }
    }

    /// Returns the index keys of the child.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        vec![
            self.owner(),
            with_uid(&self.namespace, &self.uid),
            in_namespace(&self.namespace),
        ]
    }

    /// Returns whether its labels name this object as its owner.
    #[must_use]
    pub fn belongs_to(&self, kind: &str, uid: &str) -> bool {
        self.owner_kind == kind && self.owner_uid == uid
    }

    /// Returns the index key by which its owner is found: see [`owned_by`].
    #[must_use]
    pub fn owner(&self) -> String {
        owned_by(&self.owner_kind, &self.namespace, &self.owner_uid)
    }
}

/// Returns the index key of an object of ours, and of its children in this namespace.
#[must_use]
pub fn owned_by(kind: &str, namespace: &str, uid: &str) -> String {
    ["owner", kind, namespace, uid].join("/")
}

/// Returns the index key of the object with this UID in this namespace, and of objects about it.
#[must_use]
pub fn with_uid(namespace: &str, uid: &str) -> String {
    ["uid", namespace, uid].join("/")
}

/// Returns the index key of everything in this namespace.
#[must_use]
pub fn in_namespace(namespace: &str) -> String {
    ["namespace", namespace].join("/")
}

impl<V: Send + Sync + 'static> Cache<Child<V>> {
    /// Returns the children of the object of this kind and UID, in this namespace.
    #[must_use]
    pub fn children(&self, kind: &str, namespace: &str, uid: &str) -> Vec<Arc<Child<V>>> {
        if uid.is_empty() {
            return Vec::new();
        }
        self.by_index(&owned_by(kind, namespace, uid))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::cache::Identity;

    #[test]
    fn what_is_in_another_namespace_is_no_child() {
        let cache: Cache<Child<()>> = Cache::new("configmaps", Child::words);
        for (namespace, name, owner) in [
            ("shop", "ours", Some("uid-1")),
            ("shop", "others", Some("uid-2")),
            ("shop", "nobodys", None),
            ("shop", "of-another-kind", Some("uid-1")),
            ("aaa", "copy", Some("uid-1")),
            ("zzz", "copy", Some("uid-1")),
        ] {
            let kind = if name == "of-another-kind" {
                "DocsRun"
            } else {
                "TaskRun"
            };
            let labels = owner.map(|uid| json!({ names::UID: uid, names::KIND: kind }));
            let map: ConfigMap = serde_json::from_value(json!({ "metadata": {
                "namespace": namespace, "name": name, "labels": labels,
                "uid": format!("{namespace}{name}"), "resourceVersion": "1",
            } }))
            .unwrap();
            cache.on_own_write(Identity::of(&map.metadata), Child::new(&map, ()));
        }
        let names = |namespace: &str, owner: &str| -> Vec<String> {
            let found = cache.children("TaskRun", namespace, owner);
            found.iter().map(|one| one.uid.clone()).collect()
        };
        assert_eq!(names("shop", "uid-1"), ["shopours"]);
        assert_eq!(names("aaa", "uid-1"), ["aaacopy"]);
        assert_eq!(names("bbb", "uid-1"), [""; 0]);
        assert_eq!(
            names("shop", ""),
            [""; 0],
            "an object without a UID has none"
        );
        // Each object in the namespace is either a child of the owner or does not belong to it.
        for one in cache.by_index(&in_namespace("shop")) {
            let is_child = names("shop", "uid-1").contains(&one.uid);
            assert_eq!(one.belongs_to("TaskRun", "uid-1"), is_child, "{}", one.uid);
        }
        assert_eq!(cache.by_index(&with_uid("shop", "aaacopy")).len(), 0);
        assert_eq!(cache.by_index(&with_uid("aaa", "aaacopy")).len(), 1);
        assert_eq!(cache.by_index(&in_namespace("shop")).len(), 4);
    }
}
