//! Remembers who manages a field of an object. The caches have no `managedFields`, so each answer is one live read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::decide::{ReconcileError, ResourceType};
use engine::live::LiveReader;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::upgrade::flux_target::managers;

/// Maximum number of answers. Beyond it, all are forgotten, and read again when they are needed.
const MAX_KNOWN: usize = 1000;

/// The managers of a field, beside the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers {
    /// All of them.
    pub(super) all: Vec<String>,
    /// Those that apply the object again and again.
    pub(super) appliers: Vec<String>,
}

/// A field of an object with a generation of its spec.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: &'static str,
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
}

/// Reads the managers of fields, once for each generation. Clones share the answers.
#[derive(Clone)]
pub(super) struct ManagerReader {
    reader: LiveReader,
    known: Arc<Mutex<BTreeMap<Subject, Managers>>>,
}

/// A field of an object, and the object.
pub(super) struct Asked<'a> {
    pub(super) resource: ResourceType,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    /// Path of the field, with the names of `managedFields`.
    pub(super) path: &'a [&'a str],
}

impl ManagerReader {
    pub(super) fn new(reader: LiveReader) -> Self {
        Self {
            reader,
            known: Arc::default(),
        }
    }

    /// Returns the managers of a field. An object that does not exist any more, or was recreated, has none.
    ///
    /// # Errors
    /// If the API server rejects the read, or does not respond in time.
    pub(super) async fn of(&self, asked: &Asked<'_>) -> Result<Managers, ReconcileError> {
        let subject = Subject {
            kind: asked.resource.kind,
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            uid: asked.uid.to_owned(),
            generation: asked.generation,
        };
        let known = self.lock(|known| known.get(&subject).cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let read = self
            .reader
            .get(asked.resource, Some(asked.namespace), asked.name);
        let Some(meta) = read.await?.as_ref().and_then(metadata) else {
            return Ok(Managers::default());
        };
        if meta.uid.as_deref() != Some(asked.uid) {
            return Ok(Managers::default());
        }
        let found = Managers {
            all: managers(&meta, asked.path, |_| true),
            appliers: managers(&meta, asked.path, |entry| {
                entry.operation.as_deref() == Some("Apply")
            }),
        };
        // The live object may be newer than the cached one, about which the caller asks.
        if meta.generation == Some(asked.generation) {
            self.lock(|known| {
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                known.insert(subject, found.clone());
            });
        }
        Ok(found)
    }

    fn lock<T>(&self, with: impl FnOnce(&mut BTreeMap<Subject, Managers>) -> T) -> T {
        with(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the metadata of an object, or `None` if it has another form. Then nobody is named.
fn metadata(object: &Value) -> Option<ObjectMeta> {
    let Ok(meta) = ObjectMeta::deserialize(object.get("metadata")?) else {
        return None;
    };
    Some(meta)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use api::apps::KUSTOMIZATION;
    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;

    /// Returns a reader of an API server that has this object, and the number of reads.
    fn reader(object: Value) -> (ManagerReader, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let reads = Arc::clone(&count);
        let service = tower::service_fn(move |_request: http::Request<Body>| {
            reads.fetch_add(1, Ordering::SeqCst);
            let body = Body::from(object.to_string().into_bytes());
            async move { http::Response::builder().status(200).body(body) }
        });
        let client = Client::new(service, "default");
        (ManagerReader::new(LiveReader::new(client)), count)
    }

    fn object(uid: &str, generation: i64) -> Value {
        let suspend = json!({ "f:spec": { "f:suspend": {} } });
        json!({ "metadata": {
            "name": "shop", "namespace": "shop", "uid": uid, "generation": generation,
            "managedFields": [
                { "manager": "kustomize-controller", "operation": "Apply", "fieldsV1": suspend },
                { "manager": "flux", "operation": "Update", "fieldsV1": suspend },
            ],
        } })
    }

    async fn ask(reader: &ManagerReader, generation: i64) -> Managers {
        let asked = Asked {
            resource: KUSTOMIZATION,
            namespace: "shop",
            name: "shop",
            uid: "uid",
            generation,
            path: &["f:spec", "f:suspend"],
        };
        reader.of(&asked).await.unwrap()
    }

    #[tokio::test]
    async fn the_managers_of_a_generation_are_read_once() {
        let (reader, count) = reader(object("uid", 4));
        for _ in 0..3 {
            let found = ask(&reader, 4).await;
            assert_eq!(found.all, ["kustomize-controller", "flux"]);
            assert_eq!(found.appliers, ["kustomize-controller"]);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        // The live object is older than the asked generation, so its answer is not kept.
        for _ in 0..2 {
            ask(&reader, 5).await;
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_recreated_object_names_nobody() {
        let (reader, _) = reader(object("another", 4));
        assert_eq!(ask(&reader, 4).await, Managers::default());
    }
}
