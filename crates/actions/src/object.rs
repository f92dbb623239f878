//! Objects of all kinds in the table of kinds, read without their Rust types.

use std::{borrow::Cow, fmt};

use api::{CommonStatus, Lifecycle, kinds::KindRow, tasks::TASK_RUN};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Outcome, Request};

/// The kind and the name of an object. `Display` formats both for messages: `TaskRun 'shop-7'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The row of the object's kind.
    pub kind: &'static KindRow,
    /// The object's name.
    pub name: String,
}

impl ObjectName {
    /// Creates the name of an object.
    #[must_use]
    pub fn new(kind: &'static KindRow, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
        }
    }

    /// Returns whether the object is a run.
    #[must_use]
    pub fn is_run(&self) -> bool {
        self.kind.is_run()
    }

    /// Returns whether the object runs to completion, as runs and requests do.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.kind.lifecycle == Lifecycle::RunToCompletion
    }

    /// Returns the object as an argument of the command line. A name without a kind is a TaskRun's.
    #[must_use]
    pub fn argument(&self) -> String {
        if *self.kind == TASK_RUN {
            self.name.clone()
        } else {
            format!("{}/{}", self.kind.singular, self.name)
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} '{}'", self.kind.name(), self.name)
    }
}

/// Returns the API for objects of a kind: in this namespace, or in the whole cluster without one.
///
/// The objects are dynamic. With typed ones, a single object that does not match the schema would
/// hide all others.
#[must_use]
pub fn objects(client: &Client, kind: &KindRow, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: kind.resource.group.to_owned(),
        version: kind.resource.version.to_owned(),
        api_version: kind.resource.api_version(),
        kind: kind.name().to_owned(),
        plural: kind.resource.plural.to_owned(),
    };
    match namespace.filter(|_| kind.is_namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// An object of a kind in the table of kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The kind and the name.
    pub name: ObjectName,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The spec and the status.
    pub data: Value,
    /// The common part of the status. `None` without a status, and for one that cannot be decoded.
    pub progress: Option<CommonStatus>,
}

impl Object {
    /// Creates the object from a response of the API server.
    #[must_use]
    pub fn new(kind: &'static KindRow, object: DynamicObject) -> Self {
        let DynamicObject { metadata, data, .. } = object;
        Self {
            name: ObjectName::new(kind, metadata.name.as_deref().unwrap_or_default()),
            progress: decoded(&data["status"]),
            metadata,
            data,
        }
    }

    /// Returns the value at a path such as `status.phase`, or `Null`.
    #[must_use]
    pub fn at(&self, path: &str) -> &Value {
        let parts = path.split('.');
        parts.fold(&self.data, |value, name| &value[name])
    }

    /// Returns whether the value at a path is true.
    #[must_use]
    pub fn is_set(&self, path: &str) -> bool {
        self.at(path).as_bool() == Some(true)
    }

    /// Returns the text at a path, or an empty one.
    #[must_use]
    pub fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    /// Decodes the value at a path. Returns `None` if there is no such value, or not of this type.
    #[must_use]
    pub fn part<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        decoded(self.at(path))
    }

    /// Returns the version in the spec that starts a finished run again, if the kind has versions.
    #[must_use]
    pub fn version(&self) -> Option<i64> {
        self.at(self.name.kind.epoch?).as_i64()
    }

    /// Returns the version that the status describes, if the kind has versions.
    #[must_use]
    pub fn recorded_version(&self) -> Option<i64> {
        let field = self.name.kind.epoch?.strip_prefix("spec.")?;
        self.data["status"][field].as_i64()
    }

    /// Returns the common part of the status, unless it describes an earlier version than that of
    /// the spec.
    #[must_use]
    pub fn current(&self) -> Option<&CommonStatus> {
        let recorded = self.recorded_version();
        let progress = self.progress.as_ref();
        progress.filter(|_| recorded.is_none() || recorded == self.version())
    }

    /// Returns the message of the status, or why there is none for the version in the spec.
    #[must_use]
    pub fn message(&self) -> Cow<'_, str> {
        match (self.current(), self.progress.as_ref(), self.version()) {
            (Some(current), _, _) => match current.message.as_deref() {
                Some(message) => message.into(),
                None => "its status has no message yet".into(),
            },
            (None, Some(_), Some(version)) => {
                format!("the operator has not seen version {version} yet").into()
            }
            (None, _, _) if self.data["status"].is_object() => {
                "its status cannot be decoded, so parts of it are missing here".into()
            }
            (None, _, _) => "it has no status yet".into(),
        }
    }

    /// Returns the phase of the version in the spec.
    #[must_use]
    pub fn phase(&self) -> &str {
        match self.current() {
            Some(_) if !self.text("status.phase").is_empty() => self.text("status.phase"),
            Some(_) | None => "Pending",
        }
    }

    /// Returns the outcome of a run, or `None` while the version in the spec has not finished.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let progress = self.progress.as_ref();
        let progress = progress.filter(|_| self.recorded_version() == self.version());
        Outcome::of(progress?)
    }

    /// Checks that the object is not being deleted.
    pub(crate) fn check_not_deleting(&self) -> Result<(), Error> {
        match self.metadata.deletion_timestamp {
            Some(_) => Err(Error::Deleting(self.name.clone())),
            None => Ok(()),
        }
    }
}

/// Decodes a value. `Null` is no value.
fn decoded<T: DeserializeOwned>(value: &Value) -> Option<T> {
    // The error is dropped: readers show such a value like none, and `orc why` shows the error.
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// Reads an object.
///
/// # Errors
/// An error of the server.
pub async fn get(client: &Client, namespace: &str, name: &ObjectName) -> Result<Object, Error> {
    let api = objects(client, name.kind, Some(namespace));
    match api.get(&name.name).await {
        Ok(object) => Ok(Object::new(name.kind, object)),
        Err(error) => Err(Request::about("get", name, namespace).failed(error)),
    }
}
