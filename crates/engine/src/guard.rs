//! Decodes objects one by one: an undecodable object must not affect the others in its list.

use std::borrow::Cow;

use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// Annotation that `kubectl apply` writes.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object, or the reason why it cannot be decoded.
///
/// kube's `DeserializeGuard` decodes all metadata of an undecodable object. A time in its managed fields may be
/// one that the API server accepts and our types cannot hold (`9999-12-31T23:59:59Z`). Then the whole list fails,
/// at each attempt.
#[derive(Debug, Clone)]
pub(crate) struct Guard<K>(pub(crate) Result<K, Box<Unreadable>>);

/// An object that cannot be decoded.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    pub(crate) error: String,
    /// Identity of the object: name, namespace, UID, resource version and generation.
    pub(crate) metadata: ObjectMeta,
}

/// Decodes an object, without the parts of its metadata that no decision reads.
///
/// # Errors
/// If the object cannot be decoded.
pub(crate) fn read<K: DeserializeOwned>(object: Value) -> Result<K, Box<Unreadable>> {
    let object = slim(object);
    K::deserialize(&object).map_err(|error| {
        Box::new(Unreadable {
            error: error.to_string(),
            metadata: identity(&object),
        })
    })
}

/// Removes the managed fields, which are half of an object's size. Also removes the annotation of `kubectl apply`,
/// which is a second copy of the spec.
fn slim(mut object: Value) -> Value {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
    }
    object
}

fn identity(object: &Value) -> ObjectMeta {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: metadata["generation"].as_i64(),
        ..ObjectMeta::default()
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(read(Value::deserialize(deserializer)?)))
    }
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::core::PartialObjectMeta;
    use serde_json::json;

    use super::*;

    fn config_map(metadata: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
    }

    #[test]
    fn a_time_beyond_the_last_of_our_types_in_managed_fields_is_not_read() {
        let object = config_map(json!({
            "name": "a",
            "annotations": { LAST_APPLIED: "{}", "other": "kept" },
            "managedFields": [{ "manager": "x", "time": "9999-12-31T23:59:59Z" }],
        }));
        serde_json::from_value::<ConfigMap>(object.clone()).unwrap_err();
        let read: Guard<ConfigMap> = serde_json::from_value(object).unwrap();
        let metadata = read.0.unwrap().metadata;
        assert_eq!(metadata.managed_fields, None);
        let annotations = metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["other"]);
    }

    #[test]
    fn an_unreadable_object_has_a_name() {
        let object = json!({
            "metadata": {
                "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "generation": 2,
                "deletionTimestamp": "9999-12-31T23:59:59Z",
            },
            "spec": { "containers": "none" },
        });
        let read: Guard<Pod> = serde_json::from_value(object).unwrap();
        let meta = read.meta();
        let strings = [
            &meta.name,
            &meta.namespace,
            &meta.uid,
            &meta.resource_version,
        ];
        assert_eq!(
            strings.map(Option::as_deref),
            ["a", "b", "c", "7"].map(Some)
        );
        assert_eq!(meta.generation, Some(2));
        assert!(!read.0.unwrap_err().error.is_empty());
    }

    #[test]
    fn what_is_no_object_does_not_end_the_list() {
        for odd in [json!(null), json!("text"), json!({ "metadata": 3 })] {
            let read: Guard<Pod> = serde_json::from_value(odd).unwrap();
            assert!(read.0.is_err());
        }
    }

    #[test]
    fn only_metadata_is_asked_for_where_only_metadata_is_wanted() {
        assert!(Guard::<PartialObjectMeta<ConfigMap>>::metadata_api());
        assert!(!Guard::<ConfigMap>::metadata_api());
    }
}
