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

/// An object whose field is asked about.
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
