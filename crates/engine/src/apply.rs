//! Effects on the API server. Each has a deadline and is safe to repeat.

mod found;
mod refresh;

use std::{collections::HashSet, time::Duration};

use api::{
    MANAGER, Reason,
    decide::{ErrorClass, LiveRead, Manifest, ReconcileError, ResourceType, Target},
    names,
};
use http::Method;
use kube::{Client, Error};
use serde_json::{Value, json};

use self::found::{may_apply, ours};
use crate::{
    children::owned_by,
    fault::{Request, from_kube},
    key::Key,
    watch::{RunningWatches, Written},
};

/// Timeout of a request that reads.
const READ_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a request that writes. The API server waits up to 30 s for an admission webhook, and 34 s for all
/// webhooks of a write. A shorter timeout would hide the response that names the webhook. It would also leave a write
/// that may still succeed.
pub(crate) const WRITE_REQUEST_TIMEOUT: Duration = Duration::from_secs(36);

/// Maximum number of children of one object in a live list. More would be copies by someone else.
const MAX_LISTED_CHILDREN: usize = 500;

/// Timeout of an Event. It is only a hint, so the change that it reports must not wait for it.
const EVENT_TIMEOUT: Duration = Duration::from_secs(3);

/// A client that sends writes and puts their responses into the caches.
#[derive(Clone)]
pub(crate) struct Applier {
    client: Client,
    caches: RunningWatches,
}

/// The outcome of an effect for its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffectOutcome {
    Created,
    AlreadyExists,
    Applied,
    Patched,
    Deleted,
    AlreadyDeleted,
    Locked,
    Unlocked,
}

impl EffectOutcome {
    /// Returns the name for logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::AlreadyExists => "found existing",
            Self::Applied => "applied",
            Self::Patched => "patched",
            Self::Deleted => "deleted",
            Self::AlreadyDeleted => "found deleted",
            Self::Locked => "locked",
            Self::Unlocked => "unlocked",
        }
    }
}

/// Path of a request: resource type, namespace, name and subresource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourcePath<'a> {
    pub(crate) resource: ResourceType,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) subresource: Option<&'static str>,
}

impl ResourcePath<'_> {
    fn collection(&self) -> String {
        let ResourceType {
            group,
            version,
            plural,
            ..
        } = self.resource;
        let root = if group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{group}/{version}")
        };
        match self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    pub(crate) fn object(&self) -> String {
        let object = format!("{}/{}", self.collection(), self.name);
        match self.subresource {
            Some(subresource) => format!("{object}/{subresource}"),
            None => object,
        }
    }

    pub(crate) fn resource_path(&self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource.plural),
            None => self.resource.plural.to_owned(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.map(str::to_owned),
            name: self.name.to_owned(),
        }
    }
}

impl<'a> From<&'a Target> for ResourcePath<'a> {
    fn from(target: &'a Target) -> Self {
        Self {
            resource: target.resource,
            namespace: target.namespace.as_deref(),
            name: &target.name,
            subresource: None,
        }
    }
}

impl<'a> From<&'a Manifest> for ResourcePath<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        Self {
            resource: manifest.resource,
            namespace: manifest.namespace.as_deref(),
            name: &manifest.name,
            subresource: None,
        }
    }
}

impl Applier {
    pub(crate) fn new(client: Client, caches: RunningWatches) -> Self {
        Self { client, caches }
    }

    /// Creates an object. An existing object is a success only if it is ours and as we
    /// wanted it (R20).
    pub(crate) async fn ensure(
        &self,
        manifest: &Manifest,
    ) -> Result<EffectOutcome, ReconcileError> {
        let path = ResourcePath::from(manifest);
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            path.collection()
        );
        if manifest.existing {
            // Read the cache before the request: an object that is created after it has another UID.
            let cached = self.cached_uid(path);
            return match self.send(Method::GET, path.object(), None).await {
                Ok(found) => self.compare(manifest, found),
                Err(Failed::Api(error)) if is(&error, 404) => {
                    if let Some(uid) = cached {
                        self.forget(path, &uid);
                    }
                    Ok(EffectOutcome::AlreadyDeleted)
                }
                Err(failed) => Err(failed.fault("get", path)),
            };
        }
        let created = self.send(Method::POST, uri, Some(&manifest.body)).await;
        match created {
            Ok(object) => {
                self.prove(&object);
                self.keep(path, object);
                Ok(EffectOutcome::Created)
            }
            Err(Failed::Api(error)) if is(&error, 409) => {
                let found = self.get(path).await?;
                self.compare(manifest, found)
            }
            Err(failed) => Err(failed.fault("create", path)),
        }
    }

    /// Compares an existing object with the manifest.
    fn compare(&self, manifest: &Manifest, found: Value) -> Result<EffectOutcome, ReconcileError> {
        let verdict = ours(manifest, &found);
        if verdict.is_ok() {
            self.prove(&found);
        }
        if verdict.is_ok() || manifest.observed_by_name {
            self.keep(ResourcePath::from(manifest), found);
        }
        match verdict {
            Ok(()) => Ok(EffectOutcome::AlreadyExists),
            // The next decision sees the object, and knows whether it may be adopted.
            Err(fault) if manifest.observed_by_name => Err(ReconcileError {
                class: ErrorClass::Conflict,
                ..fault
            }),
            Err(fault) => Err(fault),
        }
    }

    /// Applies the fields that we own, to an object that is ours or does not exist.
    ///
    /// # Caveats
    /// Server-side apply cannot be limited to creation. If no existing object is known, a GET
    /// checks for one first. An object that someone creates between the GET and the apply is
    /// detected only afterwards, by its unknown UID. Names that matter to others (a Namespace) are
    /// created by [`Applier::ensure`].
    pub(crate) async fn apply(&self, manifest: &Manifest) -> Result<(), ReconcileError> {
        let path = ResourcePath::from(manifest);
        let mut body = manifest.body.clone();
        let over = match &manifest.expected_uid {
            Some(uid) => Some(uid.clone()),
            None => self.found(manifest).await?,
        };
        if let Some(uid) = over {
            body["metadata"]["uid"] = json!(uid);
        }
        let uri = format!(
            "{}?fieldManager={MANAGER}&force=true&fieldValidation=Strict",
            path.object()
        );
        let request = request(Method::PATCH, &uri, "application/apply-patch+yaml", &body);
        match self.answer(request).await {
            Ok(object) => {
                self.keep(path, object);
                Ok(())
            }
            Err(failed) => {
                let fault = failed.fault("patch", path);
                match &manifest.expected_uid {
                    Some(uid) => Err(self.after_conflict(path, uid, fault).await),
                    None => Err(fault),
                }
            }
        }
    }

    /// Returns the UID of the object that exists under a manifest's name, if we may apply to it.
    async fn found(&self, manifest: &Manifest) -> Result<Option<String>, ReconcileError> {
        let path = ResourcePath::from(manifest);
        let found = match self.send(Method::GET, path.object(), None).await {
            Ok(found) => found,
            Err(Failed::Api(error)) if is(&error, 404) => return Ok(None),
            Err(failed) => return Err(failed.fault("get", path)),
        };
        may_apply(manifest, &found)?;
        let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(uid.map(str::to_owned))
    }

    /// Deletes exactly this object, after its dependents. An already deleted object is a success.
    pub(crate) async fn delete(&self, target: &Target) -> Result<EffectOutcome, ReconcileError> {
        let path = ResourcePath::from(target);
        let mut preconditions = json!({ "uid": target.uid });
        if let Some(version) = &target.version {
            preconditions["resourceVersion"] = json!(version);
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": preconditions,
        });
        match self.send(Method::DELETE, path.object(), Some(&body)).await {
            Ok(answer) => {
                if answer.pointer("/metadata/uid").is_some() {
                    self.keep(path, answer);
                } else {
                    self.forget(path, &target.uid);
                }
                Ok(EffectOutcome::Deleted)
            }
            Err(Failed::Api(error)) if is(&error, 404) => {
                self.forget(path, &target.uid);
                Ok(EffectOutcome::AlreadyDeleted)
            }
            // Another object has the name by now, or two writes collided. The response
            // does not show which.
            Err(Failed::Api(error)) if is(&error, 409) && target.version.is_none() => {
                let found = match self.send(Method::GET, path.object(), None).await {
                    Err(Failed::Api(error)) if is(&error, 404) => None,
                    answer => Some(answer.map_err(|failed| failed.fault("get", path))?),
                };
                let uid = found
                    .as_ref()
                    .and_then(|found| found.pointer("/metadata/uid"));
                if uid.and_then(Value::as_str) == Some(&target.uid) {
                    return Err(Failed::Api(error).fault("delete", path));
                }
                self.forget(path, &target.uid);
                Ok(EffectOutcome::AlreadyDeleted)
            }
            Err(failed) => {
                let fault = failed.fault("delete", path);
                Err(self.after_conflict(path, &target.uid, fault).await)
            }
        }
    }

    /// Merge-patches fields. The object must still have this `uid` and, if given, this `version`.
    pub(crate) async fn patch(
        &self,
        path: ResourcePath<'_>,
        uid: &str,
        version: Option<&str>,
        mut patch: Value,
    ) -> Result<Value, ReconcileError> {
        patch["metadata"]["uid"] = json!(uid);
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            path.object()
        );
        let request = request(Method::PATCH, &uri, "application/merge-patch+json", &patch);
        match self.answer(request).await {
            Ok(object) => {
                if path.subresource.is_none_or(|name| name == "status") {
                    self.keep(path, object.clone());
                }
                Ok(object)
            }
            Err(failed) => Err(failed.fault("patch", path)),
        }
    }

    /// Reads the current state of an object that no cache can have.
    pub(crate) async fn get(&self, path: ResourcePath<'_>) -> Result<Value, ReconcileError> {
        self.send(Method::GET, path.object(), None)
            .await
            .map_err(|failed| failed.fault("get", path))
    }

    /// Creates an object with a name that identifies it, so that an existing object
    /// is the same one.
    pub(crate) async fn create_once(
        &self,
        path: ResourcePath<'_>,
        body: &Value,
    ) -> Result<(), ReconcileError> {
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            path.collection()
        );
        let created = self.send(Method::POST, uri, Some(body));
        match tokio::time::timeout(EVENT_TIMEOUT, created).await {
            Ok(Ok(_created)) => Ok(()),
            Ok(Err(Failed::Api(error))) if is(&error, 409) => Ok(()),
            Ok(Err(failed)) => Err(failed.fault("create", path)),
            Err(_elapsed) => Err(Failed::Silence.fault("create", path)),
        }
    }

    /// Puts existing objects into the cache, and removes deleted ones.
    ///
    /// Both use a list. The version of a list shows how new it is, also if it is empty.
    pub(crate) async fn confirm(&self, read: &LiveRead) -> Result<(), ReconcileError> {
        match read {
            LiveRead::Object {
                resource,
                namespace,
                name,
            } => {
                let path = ResourcePath {
                    resource: *resource,
                    namespace: namespace.as_deref(),
                    name,
                    subresource: None,
                };
                let known = |cache: &dyn Written| cache.uid(&path.key()).into_iter().collect();
                let selector = ["fieldSelector=metadata.name%3D", name].concat();
                self.list(path, &selector, known).await
            }
            LiveRead::Children {
                resource,
                namespace,
                owner_kind,
                owner_uid,
            } => {
                let path = ResourcePath {
                    resource: *resource,
                    namespace: Some(namespace),
                    name: "",
                    subresource: None,
                };
                let known =
                    |cache: &dyn Written| cache.uids(&owned_by(owner_kind, namespace, owner_uid));
                let selector = ["labelSelector=", &labels(owner_kind, owner_uid)].concat();
                self.list(path, &selector, known).await
            }
        }
    }

    /// Lists the objects that a selector selects. `known` returns those of them that the cache has.
    async fn list(
        &self,
        path: ResourcePath<'_>,
        selector: &str,
        known: impl Fn(&dyn Written) -> Vec<(Key, String)>,
    ) -> Result<(), ReconcileError> {
        let ResourceType { group, plural, .. } = path.resource;
        let Some(cache) = self.caches.writer(group, plural) else {
            return Err(ReconcileError::bug(format!("{plural} are not watched")));
        };
        // Read the cache before the list: an object that is created after it has another UID.
        let before = known(cache.as_ref());
        let uri = format!(
            "{}?{selector}&limit={MAX_LISTED_CHILDREN}",
            path.collection()
        );
        let incomplete = |why: &str| {
            let what = format!("the list of {plural} cannot be used: {why}");
            ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, what)
        };
        let list = self.send(Method::GET, uri, None).await;
        let is_missing = matches!(&list, Err(Failed::Api(error)) if is(error, 404));
        if let Some(installation) = cache.installation()
            && (is_missing || list.is_ok())
        {
            let is_installed = installation.compare(path.namespace, !is_missing);
            if !is_installed.map_err(|why| incomplete(&why))? {
                return Ok(());
            }
        }
        let mut list = list.map_err(|failed| failed.fault("list", path))?;
        let text = |pointer: &str| list.pointer(pointer).and_then(Value::as_str);
        if text("/metadata/continue").is_some_and(|more| !more.is_empty()) {
            return Err(incomplete("there are more than one object can have"));
        }
        let as_of = match text("/metadata/resourceVersion").map(str::parse) {
            Some(Ok(version)) => version,
            Some(Err(_)) | None => return Err(incomplete("it has no version")),
        };
        let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) else {
            return Err(incomplete("it has no items"));
        };
        let mut listed = HashSet::new();
        for item in items.drain(..) {
            let uid = item.pointer("/metadata/uid").and_then(Value::as_str);
            listed.extend(uid.map(str::to_owned));
            let kept = cache.listed_live(item, as_of);
            kept.map_err(|error| incomplete(&error))?;
        }
        for (key, uid) in before {
            if !listed.contains(&uid) {
                cache.removed(&key, &uid);
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        uri: String,
        body: Option<&Value>,
    ) -> Result<Value, Failed> {
        self.answer(request(
            method,
            &uri,
            "application/json",
            body.unwrap_or(&Value::Null),
        ))
        .await
    }

    async fn answer(
        &self,
        request: Result<http::Request<Vec<u8>>, http::Error>,
    ) -> Result<Value, Failed> {
        let request = request.map_err(|error| Failed::Build(error.to_string()))?;
        let limit = if request.method() == Method::GET {
            READ_REQUEST_TIMEOUT
        } else {
            WRITE_REQUEST_TIMEOUT
        };
        match tokio::time::timeout(limit, self.client.request::<Value>(request)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failed::Api(error)),
            Err(_elapsed) => Err(Failed::Silence),
        }
    }

    /// Remembers that an object is ours.
    fn prove(&self, object: &Value) {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        self.caches.remember(uid.unwrap_or_default());
    }

    fn keep(&self, path: ResourcePath<'_>, object: Value) {
        self.caches
            .written(path.resource.group, path.resource.plural, object);
    }

    fn forget(&self, path: ResourcePath<'_>, uid: &str) {
        self.caches
            .removed(path.resource.group, path.resource.plural, &path.key(), uid);
    }
}

/// Failure of a request.
enum Failed {
    Api(Error),
    Silence,
    Build(String),
}

impl Failed {
    fn fault(&self, verb: &str, path: ResourcePath<'_>) -> ReconcileError {
        let resource = path.resource_path();
        let request = Request {
            verb,
            resource: &resource,
            name: path.name,
        };
        match self {
            Self::Api(error) => from_kube(request, error),
            Self::Silence => ReconcileError::new(
                ErrorClass::Transient,
                Reason::ApiUnavailable,
                format!("no answer in time to {request}"),
            ),
            Self::Build(error) => ReconcileError::bug(format!("cannot build {request}: {error}")),
        }
    }
}

/// Returns the label selector of the children of an object, encoded for a URI.
fn labels(owner_kind: &str, owner_uid: &str) -> String {
    let is_equal = |(name, value): (&str, &str)| {
        [&name.replace('/', "%2F"), "%3D", &names::label_value(value)].concat()
    };
    [(names::KIND, owner_kind), (names::UID, owner_uid)]
        .map(is_equal)
        .join("%2C")
}

fn is(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

fn request(
    method: Method,
    uri: &str,
    content: &str,
    body: &Value,
) -> Result<http::Request<Vec<u8>>, http::Error> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    http::Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, content)
        .header(http::header::ACCEPT, "application/json")
        .body(body)
}

#[cfg(test)]
mod tests;
