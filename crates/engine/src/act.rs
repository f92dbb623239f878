//! Effects on the API server: each with a deadline, and safe to repeat.

use std::time::Duration;

use api::{
    MANAGER, Reason,
    decide::{Class, Fault, Manifest, ResourceType, Target},
    names,
};
use http::Method;
use kube::{Client, Error};
use mutant::Mutant;
use serde_json::{Value, json};

use crate::{
    fault::{Request, from_kube},
    key::Key,
    watch::Started,
};

/// No single request may take longer. A pass has 60 s for all of its requests.
const LIMIT: Duration = Duration::from_secs(10);

/// An Event is a hint: what it hints at must not wait for it.
const HINT: Duration = Duration::from_secs(3);

/// Sends writes, and puts their answers into the caches.
#[derive(Clone)]
pub(crate) struct Hands {
    client: Client,
    caches: Started,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) resource: ResourceType,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) subresource: Option<&'static str>,
}

impl Place<'_> {
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

    fn object(&self) -> String {
        let object = format!("{}/{}", self.collection(), self.name);
        match self.subresource {
            Some(subresource) => format!("{object}/{subresource}"),
            None => object,
        }
    }

    fn resource_path(&self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource.plural),
            None => self.resource.plural.to_owned(),
        }
    }

    fn key(&self) -> Key {
        Key {
            namespace: self.namespace.map(str::to_owned),
            name: self.name.to_owned(),
        }
    }
}

impl<'a> From<&'a Target> for Place<'a> {
    fn from(target: &'a Target) -> Self {
        Self {
            resource: target.resource,
            namespace: target.namespace.as_deref(),
            name: &target.name,
            subresource: None,
        }
    }
}

impl<'a> From<&'a Manifest> for Place<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        Self {
            resource: manifest.resource,
            namespace: manifest.namespace.as_deref(),
            name: &manifest.name,
            subresource: None,
        }
    }
}

impl Hands {
    pub(crate) fn new(client: Client, caches: Started) -> Self {
        Self { client, caches }
    }

    /// Creates an object; that it exists is success if it is ours and what we wanted (R20).
    pub(crate) async fn ensure(&self, manifest: &Manifest) -> Result<(), Fault> {
        let place = Place::from(manifest);
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            place.collection()
        );
        if mutant::on(Mutant::BodyLogged) {
            tracing::info!("create {}", manifest.body);
        }
        let created = self.send(Method::POST, uri, Some(&manifest.body)).await;
        match created {
            Ok(object) => {
                self.keep(place, object);
                Ok(())
            }
            Err(Failed::Api(error)) if is(&error, 409) && mutant::on(Mutant::TakenNameSuffixed) => {
                self.create_another(manifest).await
            }
            Err(Failed::Api(error)) if is(&error, 409) => {
                let found = self.get(place).await?;
                ours(manifest, &found)?;
                self.keep(place, found);
                Ok(())
            }
            Err(failed) => {
                let fault = failed.fault("create", place);
                if mutant::on(Mutant::LostAnswerRepeated) && fault.class == Class::Transient {
                    return self.create_another(manifest).await;
                }
                Err(fault)
            }
        }
    }

    /// For mutants: the same object under a name of its own.
    async fn create_another(&self, manifest: &Manifest) -> Result<(), Fault> {
        let place = Place::from(manifest);
        let mut body = manifest.body.clone();
        body["metadata"]["generateName"] = json!([place.name, "-"].concat());
        body["metadata"]["name"] = Value::Null;
        let created = self.send(Method::POST, place.collection(), Some(&body));
        let another = created.await;
        another.map_or_else(|failed| Err(failed.fault("create", place)), |_| Ok(()))
    }

    /// Applies the fields that we own, to an object that is ours or does not exist.
    ///
    /// # Caveats
    /// An apply cannot be told to create only. Where nothing is known to be there, it is looked for
    /// first; what someone else makes between the two is found by its UID being unknown to us only
    /// afterwards. Names that matter to others (a Namespace) are made by [`Hands::ensure`].
    pub(crate) async fn apply(&self, manifest: &Manifest) -> Result<(), Fault> {
        let place = Place::from(manifest);
        let mut body = manifest.body.clone();
        let over = match &manifest.over {
            Some(uid) => Some(uid.clone()),
            None => self.found(manifest).await?,
        };
        if let Some(uid) = over {
            body["metadata"]["uid"] = json!(uid);
        }
        let uri = format!(
            "{}?fieldManager={MANAGER}&force=true&fieldValidation=Strict",
            place.object()
        );
        let request = request(Method::PATCH, &uri, "application/apply-patch+yaml", &body);
        match self.answer(request).await {
            Ok(object) => {
                self.keep(place, object);
                Ok(())
            }
            Err(failed) => Err(failed.fault("patch", place)),
        }
    }

    /// The UID of what is there under a manifest's name, if that may be applied to.
    async fn found(&self, manifest: &Manifest) -> Result<Option<String>, Fault> {
        let place = Place::from(manifest);
        let found = match self.send(Method::GET, place.object(), None).await {
            Ok(found) => found,
            Err(Failed::Api(error)) if is(&error, 404) => return Ok(None),
            Err(failed) => return Err(failed.fault("get", place)),
        };
        may_apply(manifest, &found)?;
        let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(uid.map(str::to_owned))
    }

    /// Deletes this very object; what depends on it goes first. That it is gone is success.
    pub(crate) async fn delete(&self, target: &Target) -> Result<(), Fault> {
        let place = Place::from(target);
        let mut preconditions = json!({ "uid": target.uid });
        if let Some(version) = &target.version {
            preconditions["resourceVersion"] = json!(version);
        }
        let policy = if mutant::on(Mutant::PodsOrphaned) {
            "Orphan"
        } else {
            "Foreground"
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": preconditions,
        });
        match self.send(Method::DELETE, place.object(), Some(&body)).await {
            Ok(answer) => {
                if answer.pointer("/metadata/uid").is_some() {
                    self.keep(place, answer);
                } else {
                    self.forget(place, &target.uid);
                }
                Ok(())
            }
            Err(Failed::Api(error)) if is(&error, 404) => {
                self.forget(place, &target.uid);
                Ok(())
            }
            // The UID is another's by now, or two writes met: the answer does not say which.
            Err(Failed::Api(error)) if is(&error, 409) && target.version.is_none() => {
                let found = match self.send(Method::GET, place.object(), None).await {
                    Err(Failed::Api(error)) if is(&error, 404) => None,
                    answer => Some(answer.map_err(|failed| failed.fault("get", place))?),
                };
                let uid = found
                    .as_ref()
                    .and_then(|found| found.pointer("/metadata/uid"));
                if uid.and_then(Value::as_str) == Some(&target.uid) {
                    return Err(Failed::Api(error).fault("delete", place));
                }
                self.forget(place, &target.uid);
                Ok(())
            }
            Err(failed) => Err(failed.fault("delete", place)),
        }
    }

    /// Merge-patches fields; `uid` and `version`, where given, must still be the object's.
    pub(crate) async fn patch(
        &self,
        place: Place<'_>,
        uid: &str,
        version: Option<&str>,
        mut patch: Value,
    ) -> Result<Value, Fault> {
        patch["metadata"]["uid"] = json!(uid);
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            place.object()
        );
        let request = request(Method::PATCH, &uri, "application/merge-patch+json", &patch);
        match self.answer(request).await {
            Ok(object) => {
                if place.subresource.is_none_or(|name| name == "status") {
                    self.keep(place, object.clone());
                }
                Ok(object)
            }
            Err(failed) => Err(failed.fault("patch", place)),
        }
    }

    /// Reads an object as it is now, where no cache can have it.
    pub(crate) async fn get(&self, place: Place<'_>) -> Result<Value, Fault> {
        self.send(Method::GET, place.object(), None)
            .await
            .map_err(|failed| failed.fault("get", place))
    }

    /// Creates an object whose name says what it is, so that one that exists is the same.
    pub(crate) async fn create_once(&self, place: Place<'_>, body: &Value) -> Result<(), Fault> {
        let uri = format!(
            "{}?fieldManager={MANAGER}&fieldValidation=Strict",
            place.collection()
        );
        let created = self.send(Method::POST, uri, Some(body));
        match tokio::time::timeout(HINT, created).await {
            Ok(Ok(_created)) => Ok(()),
            Ok(Err(Failed::Api(error))) if is(&error, 409) => Ok(()),
            Ok(Err(failed)) => Err(failed.fault("create", place)),
            Err(_elapsed) => Err(Failed::Silence.fault("create", place)),
        }
    }

    /// Puts what an object is now into the cache: the watch is behind.
    pub(crate) async fn refresh(&self, place: Place<'_>, uid: &str) -> Result<(), Fault> {
        match self.send(Method::GET, place.object(), None).await {
            Ok(object) => {
                self.keep(place, object);
                Ok(())
            }
            Err(Failed::Api(error)) if is(&error, 404) => {
                self.forget(place, uid);
                Ok(())
            }
            Err(failed) => Err(failed.fault("get", place)),
        }
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
        match tokio::time::timeout(LIMIT, self.client.request::<Value>(request)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failed::Api(error)),
            Err(_elapsed) => Err(Failed::Silence),
        }
    }

    fn keep(&self, place: Place<'_>, object: Value) {
        self.caches
            .written(place.resource.group, place.resource.plural, object);
    }

    fn forget(&self, place: Place<'_>, uid: &str) {
        self.caches.removed(
            place.resource.group,
            place.resource.plural,
            &place.key(),
            uid,
        );
    }
}

/// How a request failed.
enum Failed {
    Api(Error),
    Silence,
    Build(String),
}

impl Failed {
    fn fault(&self, verb: &str, place: Place<'_>) -> Fault {
        let resource = place.resource_path();
        match self {
            Self::Api(error) => from_kube(
                Request {
                    verb,
                    resource: &resource,
                    name: place.name,
                },
                error,
            ),
            Self::Silence => Fault::new(
                Class::Transient,
                Reason::ApiUnavailable,
                format!(
                    "no answer in time to '{verb} {resource}' of '{}'",
                    place.name
                ),
            ),
            Self::Build(error) => Fault::bug(format!(
                "cannot build '{verb} {resource}' of '{}': {error}",
                place.name
            )),
        }
    }
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

/// Whether an object that was found is the one that we wanted to create.
fn ours(wanted: &Manifest, found: &Value) -> Result<(), Fault> {
    let what = format!("{} '{}'", wanted.resource.kind, wanted.name);
    if found.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(Fault::new(
            Class::Transient,
            Reason::Progressing,
            format!("an earlier {what} is still being deleted; waiting until it is gone"),
        ));
    }
    if mutant::on(Mutant::ForeignChildAdopted) {
        return Ok(());
    }
    let label = |object: &Value, name: &str| {
        let value = object.pointer("/metadata/labels")?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    if label(found, names::UID) != Some(names::label_value(&wanted.owner_uid)) {
        let of_whom = |object: &Value| {
            let (kind, name) = (label(object, names::KIND)?, label(object, names::NAME)?);
            Some((kind, name))
        };
        // An owner of the same kind and name, but another UID, is gone: two cannot be there at once.
        // What it still refers to is removed with it; what does not, stays.
        let is_collected = found
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array)
            .is_some_and(|owners| !owners.is_empty());
        let is_earlier =
            of_whom(found).filter(|owner| of_whom(&wanted.body).as_ref() == Some(owner));
        return Err(match is_earlier {
            Some((kind, name)) if is_collected => Fault::new(
                Class::Transient,
                Reason::ChildNameTaken,
                format!(
                    "{what} belongs to an earlier {kind} '{name}' that was deleted; waiting until it is removed, too"
                ),
            ),
            Some((kind, name)) => Fault::new(
                Class::Invalid,
                Reason::ChildNameTaken,
                format!(
                    "{what} belongs to an earlier {kind} '{name}' that was deleted, and nothing removes it; it was not touched. Delete it"
                ),
            ),
            None => Fault::new(
                Class::Invalid,
                Reason::ChildNameTaken,
                format!(
                    "{what} exists already and belongs to someone else; it was not touched. Delete it, if nobody needs it"
                ),
            ),
        });
    }
    let intent = found
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(names::INTENT))
        .and_then(Value::as_str);
    if intent != wanted.intent() {
        return Err(Fault::new(
            Class::Invalid,
            Reason::ChildNameTaken,
            format!(
                "{what} is ours, but was made for another intent; it was not touched. Delete it"
            ),
        ));
    }
    Ok(())
}

/// Whether an object that was found may be applied to: it carries our UID, as a label or, where
/// someone took that away, as an annotation; or it was left by whom we are, or made by one of our name
/// that is no more (restored from a backup, an owner has another UID).
fn may_apply(wanted: &Manifest, found: &Value) -> Result<(), Fault> {
    let what = format!("{} '{}'", wanted.resource.kind, wanted.name);
    if found.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(Fault::new(
            Class::Transient,
            Reason::Progressing,
            format!("an earlier {what} is still being deleted; waiting until it is gone"),
        ));
    }
    let text = |kind: &str, name: &str| {
        let all = found.pointer(&["/metadata/", kind].concat())?;
        all.get(name)?.as_str()
    };
    let uid = names::label_value(&wanted.owner_uid);
    let is_ours = text("labels", names::UID) == Some(&uid)
        || text("annotations", names::UID) == Some(&wanted.owner_uid);
    let label = |name: &str| wanted.body.pointer("/metadata/labels")?.get(name)?.as_str();
    let is_same =
        |name: &str| text("labels", name).is_some() && text("labels", name) == label(name);
    let is_left = wanted.taking_back.is_some()
        && (text("annotations", names::RETAINED_FROM) == wanted.taking_back.as_deref()
            || is_same(names::KIND) && is_same(names::NAME));
    if is_ours || is_left {
        return Ok(());
    }
    Err(Fault::new(
        Class::Invalid,
        Reason::ChildNameTaken,
        format!(
            "{what} exists already and belongs to someone else; it was not touched. Delete it, if nobody needs it"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_or_was_left_by_us_is_applied_to() {
        let wanted = wanted().taking_back("shop");
        let with = |labels: Value, annotations: Value| {
            let found = json!({ "metadata": { "labels": labels, "annotations": annotations } });
            may_apply(&wanted, &found)
        };
        assert_eq!(with(json!({ names::UID: "uid-1" }), json!({})), Ok(()));
        assert_eq!(with(json!({}), json!({ names::UID: "uid-1" })), Ok(()));
        assert_eq!(
            with(json!({}), json!({ names::RETAINED_FROM: "shop" })),
            Ok(())
        );
        let before = names::child_labels("TaskRun", "run", "uid-0");
        assert_eq!(with(json!(before), json!({})), Ok(()), "restored");
        for (labels, annotations) in [
            (json!({}), json!({})),
            (
                json!({ names::UID: "uid-2" }),
                json!({ names::UID: "uid-2" }),
            ),
            (json!({}), json!({ names::RETAINED_FROM: "other" })),
            (
                json!({ names::KIND: "TaskRun", names::NAME: "other" }),
                json!({}),
            ),
        ] {
            let fault = with(labels, annotations).unwrap_err();
            assert_eq!(fault.reason, Reason::ChildNameTaken);
        }
        let dying = json!({ "metadata": {
            "labels": { names::UID: "uid-1" }, "deletionTimestamp": "2030-01-01T00:00:00Z",
        } });
        assert_eq!(
            may_apply(&wanted, &dying).unwrap_err().class,
            Class::Transient
        );
    }

    fn wanted() -> Manifest {
        let labels = names::child_labels("TaskRun", "run", "uid-1");
        Manifest::new(
            ResourceType::JOB,
            Some("n"),
            "shop-7-v1",
            "uid-1",
            labels,
            json!({"spec": 1}),
        )
    }

    #[test]
    fn r20_a_409_is_success_only_for_our_own_object_with_our_intent() {
        let wanted = wanted();
        assert_eq!(ours(&wanted, &wanted.body), Ok(()));

        let reason = |found: &Value| ours(&wanted, found).unwrap_err().reason;
        let mut foreign = wanted.body.clone();
        foreign["metadata"]["labels"][names::UID] = json!("uid-2");
        assert_eq!(reason(&foreign), Reason::ChildNameTaken);
        let fault = ours(&wanted, &foreign).unwrap_err();
        assert_eq!(fault.class, Class::Invalid, "nobody removes it");
        foreign["metadata"]["ownerReferences"] = json!([{ "uid": "uid-2" }]);
        let fault = ours(&wanted, &foreign).unwrap_err();
        assert_eq!(
            fault.class,
            Class::Transient,
            "its earlier owner of the same name is gone"
        );
        foreign["metadata"]["labels"][names::NAME] = json!("another");
        assert_eq!(ours(&wanted, &foreign).unwrap_err().class, Class::Invalid);
        foreign["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("labels");
        assert_eq!(reason(&foreign), Reason::ChildNameTaken);

        let mut other = wanted.body.clone();
        other["metadata"]["annotations"][names::INTENT] = json!("else");
        assert_eq!(reason(&other), Reason::ChildNameTaken);

        let mut dying = wanted.body.clone();
        dying["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        assert_eq!(ours(&wanted, &dying).unwrap_err().class, Class::Transient);
    }

    /// Found by the plans `success/delete-jobs:#1=409x2` and `success/delete-configmaps:#1=409x2`: what
    /// was refused counted as deleted, and stayed.
    #[tokio::test]
    async fn a_delete_that_is_refused_with_409_is_done_only_if_the_object_is_another_or_gone() {
        use crate::{Hub, Scope, health::Health, metrics::Metrics, supervise::Supervisor};
        use kube::client::Body;
        let hands = |found: Option<&'static str>| {
            let answer = move |request: http::Request<Body>| async move {
                let (code, body) = match (request.method().as_str(), found) {
                    ("DELETE", _) => (
                        409,
                        json!({ "kind": "Status", "code": 409, "message": "met" }),
                    ),
                    (_, Some(uid)) => (200, json!({ "metadata": { "uid": uid } })),
                    (_, None) => (
                        404,
                        json!({ "kind": "Status", "code": 404, "message": "gone" }),
                    ),
                };
                let body = Body::from(body.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            };
            let client = Client::new(tower::service_fn(answer), "default");
            let (metrics, health) = (Metrics::default(), Health::default());
            let hub = Hub::new(client.clone(), metrics, health.clone(), Scope::All);
            let caches = hub.start(&mut Supervisor::new(health, Duration::from_secs(1)));
            Hands::new(client, caches)
        };
        let target = Target {
            resource: ResourceType::JOB,
            namespace: Some("n".to_owned()),
            name: "shop-7-v1".to_owned(),
            uid: "uid-1".to_owned(),
            version: None,
            irreversible: None,
        };
        let fault = hands(Some("uid-1")).delete(&target).await.unwrap_err();
        assert_eq!(fault.class, Class::Conflict);
        assert_eq!(hands(Some("uid-2")).delete(&target).await, Ok(()));
        assert_eq!(hands(None).delete(&target).await, Ok(()));
    }

    #[test]
    fn the_intent_depends_on_what_is_wanted() {
        let labels = || names::child_labels("TaskRun", "run", "uid-1");
        let make = |body| Manifest::new(ResourceType::JOB, Some("n"), "a", "uid-1", labels(), body);
        assert_eq!(
            make(json!({"a": 1, "b": 2})).intent(),
            make(json!({"b": 2, "a": 1})).intent()
        );
        assert_ne!(
            make(json!({"a": 1})).intent(),
            make(json!({"a": 2})).intent()
        );
    }
}
