use std::sync::{Arc, Mutex};

use k8s_openapi::api::batch::v1::Job;
use kube::client::Body;

use super::*;
use crate::{Scope, Watch, WatchManager, children::Child, health::Health, metrics::Metrics};

#[test]
fn only_what_is_ours_or_was_left_by_us_is_applied_to() {
    let wanted = wanted().adopt_from("test/left-by", "shop");
    let with = |labels: Value, annotations: Value| {
        let found = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        may_apply(&wanted, &found)
    };
    assert_eq!(with(json!({ names::UID: "uid-1" }), json!({})), Ok(()));
    assert_eq!(with(json!({}), json!({ names::UID: "uid-1" })), Ok(()));
    assert_eq!(with(json!({}), json!({ "test/left-by": "shop" })), Ok(()));
    let before = names::child_labels("TaskRun", "run", "uid-0");
    assert_eq!(with(json!(before), json!({})), Ok(()), "restored");
    for (labels, annotations) in [
        (json!({}), json!({})),
        (
            json!({ names::UID: "uid-2" }),
            json!({ names::UID: "uid-2" }),
        ),
        (json!({}), json!({ "test/left-by": "other" })),
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
        ErrorClass::Transient
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

/// A claim that a rollback creates has exactly the labels of the claim that it replaces.
#[test]
fn r20_an_object_without_our_labels_is_ours_by_its_annotation() {
    let mut wanted = wanted();
    wanted.body["metadata"]["labels"] = json!({ "app": "shop" });
    assert_eq!(
        ours(&wanted, &wanted.body).unwrap_err().reason,
        Reason::ChildNameTaken
    );
    wanted.body["metadata"]["annotations"][names::UID] = json!("uid-1");
    assert_eq!(ours(&wanted, &wanted.body), Ok(()));
    let mut foreign = wanted.body.clone();
    foreign["metadata"]["annotations"][names::UID] = json!("uid-2");
    assert_eq!(
        ours(&wanted, &foreign).unwrap_err().reason,
        Reason::ChildNameTaken
    );
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
    assert_eq!(fault.class, ErrorClass::Invalid, "nobody removes it");
    foreign["metadata"]["ownerReferences"] = json!([{ "uid": "uid-2" }]);
    let fault = ours(&wanted, &foreign).unwrap_err();
    assert_eq!(
        fault.class,
        ErrorClass::Transient,
        "its earlier owner of the same name is gone"
    );
    foreign["metadata"]["labels"][names::NAME] = json!("another");
    let fault = ours(&wanted, &foreign).unwrap_err();
    assert_eq!(fault.class, ErrorClass::Invalid);
    let says = "Job 'shop-7-v1' exists already and belongs to TaskRun 'another'";
    assert!(fault.message.starts_with(says), "{}", fault.message);
    foreign["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("labels");
    assert_eq!(reason(&foreign), Reason::ChildNameTaken);

    let mut other = wanted.body.clone();
    other["metadata"]["annotations"][names::SPEC_HASH] = json!("else");
    assert_eq!(reason(&other), Reason::ChildNameTaken);

    let mut dying = wanted.body.clone();
    dying["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    assert_eq!(
        ours(&wanted, &dying).unwrap_err().class,
        ErrorClass::Transient
    );
}

/// Returns a client that writes to [`always_conflict`], without caches.
fn conflicting(found: Option<Value>) -> Applier {
    let client = always_conflict(found);
    let (metrics, health) = (Metrics::default(), Health::default());
    let watches = WatchManager::new(client.clone(), metrics, health, Scope::All);
    Applier::new(client, watches.without_watches())
}

/// Returns an API server that rejects each create and delete with 409. Every name has `found`.
fn always_conflict(found: Option<Value>) -> Client {
    let respond = move |request: http::Request<Body>| {
        let found = found.clone();
        async move {
            let (code, body) = match (request.method().as_str(), found) {
                ("POST" | "DELETE", _) => (
                    409,
                    json!({ "kind": "Status", "code": 409, "message": "met" }),
                ),
                (_, Some(found)) => (200, found),
                (_, None) => (
                    404,
                    json!({ "kind": "Status", "code": 404, "message": "gone" }),
                ),
            };
            let body = Body::from(body.to_string().into_bytes());
            http::Response::builder().status(code).body(body)
        }
    };
    Client::new(tower::service_fn(respond), "default")
}

/// A namespace that allowed its adoption was reported as owned by someone else for four seconds.
/// The watch had not delivered it when the Tenant was decided.
#[tokio::test]
async fn a_foreign_object_that_the_cache_did_not_have_is_decided_again() {
    let found = json!({ "metadata": {
        "name": "shop-7-v1", "namespace": "n", "uid": "theirs", "resourceVersion": "7",
    } });
    let client = always_conflict(Some(found));
    let (metrics, health) = (Metrics::default(), Health::default());
    let mut watches = WatchManager::new(client.clone(), metrics, health, Scope::All);
    let watch = Watch {
        labels: None,
        fields: None,
        transform: Arc::new(|job: Job, _| job),
        index: |_: &Job| Vec::new(),
    };
    let jobs = watches.namespaced(("batch", "jobs"), watch);
    let applier = Applier::new(client, watches.without_watches());

    let fault = applier.ensure(&wanted()).await.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Invalid, "nobody observes the name");
    assert!(jobs.is_empty(), "and it is not ours to watch");

    let fault = applier.ensure(&wanted().observed_by_name()).await;
    let fault = fault.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Conflict, "{fault}");
    assert_eq!(fault.reason, Reason::ChildNameTaken, "if it stays");
    assert_eq!(jobs.len(), 1, "the next decision has it");
}

#[tokio::test]
async fn r20_a_create_rejected_with_409_succeeds_only_for_our_own_object() {
    let wanted = wanted();
    let own = conflicting(Some(wanted.body.clone())).ensure(&wanted).await;
    assert_eq!(own, Ok(EffectOutcome::AlreadyExists));

    let with = |pointer: &str, value: &str| {
        let mut found = wanted.body.clone();
        *found.pointer_mut(pointer).unwrap() = json!(value);
        found
    };
    let rejected = [
        (
            "another owner",
            with("/metadata/labels/orchestrator.io~1uid", "uid-2"),
        ),
        (
            "another intent",
            with("/metadata/annotations/orchestrator.io~1spec-hash", "else"),
        ),
        (
            "nobody's",
            json!({ "metadata": { "name": "shop-7-v1", "namespace": "n" } }),
        ),
    ];
    for (case, found) in rejected {
        let fault = conflicting(Some(found)).ensure(&wanted).await.unwrap_err();
        assert_eq!(fault.reason, Reason::ChildNameTaken, "{case}");
    }
    let fault = conflicting(None).ensure(&wanted).await.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Conflict, "deleted meanwhile");
}

/// A user with permission to create Jobs can give one our labels and annotations.
#[tokio::test]
async fn an_object_with_our_labels_and_another_content_is_not_ours() {
    let spec = |image: &str| json!({ "template": { "spec": { "containers": [{ "name": "agent", "image": image }] } } });
    let mut wanted = wanted();
    wanted.body["spec"] = spec("agents/writer:1");
    let mut planted = wanted.body.clone();
    planted["spec"] = spec("evil.example/agent:1");
    planted["metadata"]["uid"] = json!("planted");
    let fault = conflicting(Some(planted.clone())).ensure(&wanted).await;
    let fault = fault.unwrap_err();
    assert_eq!(fault.reason, Reason::ChildNameTaken);
    assert!(fault.message.contains("its content is not"), "{fault}");

    // The same without a create, for an object that another process created.
    let existing = wanted.clone().existing();
    let fault = conflicting(Some(planted)).ensure(&existing).await;
    assert_eq!(fault.unwrap_err().reason, Reason::ChildNameTaken);
    let applier = conflicting(Some(wanted.body.clone()));
    assert_eq!(
        applier.ensure(&existing).await,
        Ok(EffectOutcome::AlreadyExists)
    );
    let gone = conflicting(None).ensure(&existing).await;
    assert_eq!(
        gone,
        Ok(EffectOutcome::AlreadyDeleted),
        "it is never created"
    );
}

/// Found by the plans `success/delete-jobs:#1=409x2` and `success/delete-configmaps:#1=409x2`: a
/// rejected delete counted as done, and the object stayed.
#[tokio::test]
async fn a_delete_that_is_refused_with_409_is_done_only_if_the_object_is_another_or_gone() {
    let applier = |uid: &str| conflicting(Some(json!({ "metadata": { "uid": uid } })));
    let target = Target {
        resource: ResourceType::JOB,
        namespace: Some("n".to_owned()),
        name: "shop-7-v1".to_owned(),
        uid: "uid-1".to_owned(),
        version: None,
        requires_intent: None,
        optional: false,
    };
    let fault = applier("uid-1").delete(&target).await.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Conflict);
    let gone = Ok(EffectOutcome::AlreadyDeleted);
    assert_eq!(applier("uid-2").delete(&target).await, gone);
    assert_eq!(conflicting(None).delete(&target).await, gone);
}

/// Returns an API server that rejects each write with `code`. Every name has `found`.
fn rejecting(code: u16, found: Option<Value>) -> Client {
    let respond = move |request: http::Request<Body>| {
        let found = found.clone();
        async move {
            let status = |code: u16| {
                let message = "metadata.uid: Invalid value: field is immutable";
                let body = json!({ "kind": "Status", "code": code, "message": message });
                (code, body)
            };
            let (code, body) = match (request.method().as_str(), found) {
                ("GET", Some(found)) => (200, found),
                ("GET", None) => status(404),
                _ => status(code),
            };
            let body = Body::from(body.to_string().into_bytes());
            http::Response::builder().status(code).body(body)
        }
    };
    Client::new(tower::service_fn(respond), "default")
}

/// The watch missed that the target was deleted, recreated or changed. After each conflict, the next decision had the
/// same target, and met the same conflict.
#[tokio::test]
async fn after_a_conflict_the_cache_has_the_target_as_it_is() {
    let job = |uid: &str, version: &str| {
        json!({ "metadata": {
            "name": "shop-7-v1", "namespace": "n", "uid": uid, "resourceVersion": version,
        } })
    };
    let target = Target {
        resource: ResourceType::JOB,
        namespace: Some("n".to_owned()),
        name: "shop-7-v1".to_owned(),
        uid: "uid-1".to_owned(),
        version: Some("7".to_owned()),
        requires_intent: None,
        optional: false,
    };
    let cached = |code: u16, found: &Option<Value>| {
        let client = rejecting(code, found.clone());
        let (metrics, health) = (Metrics::default(), Health::default());
        let mut watches = WatchManager::new(client.clone(), metrics, health, Scope::All);
        let watch = Watch {
            labels: None,
            fields: None,
            transform: Arc::new(|job: Job, _| job),
            index: |_: &Job| Vec::new(),
        };
        let jobs = watches.namespaced(("batch", "jobs"), watch);
        let known: Job = serde_json::from_value(job("uid-1", "7")).unwrap();
        jobs.on_applied(crate::cache::Identity::of(&known.metadata), known, 1);
        (jobs, Applier::new(client, watches.without_watches()))
    };
    let version = |jobs: &crate::Cache<Job>| {
        let job = jobs.get(&Key::new("n", "shop-7-v1"))?;
        job.metadata.resource_version.clone()
    };
    // Columns: code of the response to the write, the object that exists, and the version in the cache afterwards.
    let table = [
        (404, None, None),
        (409, None, None),
        (409, Some(job("uid-2", "9")), None),
        (422, Some(job("uid-2", "9")), None),
        (409, Some(job("uid-1", "9")), Some("9")),
        (503, Some(job("uid-1", "9")), Some("7")),
    ];
    for (code, found, expected) in table {
        let case = format!("{code}, {found:?}");
        let (jobs, applier) = cached(code, &found);
        let patched = applier.patch_target(&target, None, json!({})).await;
        assert!(patched.is_err(), "{case}");
        assert_eq!(version(&jobs).as_deref(), expected, "patch: {case}");

        let (jobs, applier) = cached(code, &found);
        let applied = applier.apply(&wanted().expected_uid("uid-1")).await;
        assert!(applied.is_err(), "{case}");
        assert_eq!(version(&jobs).as_deref(), expected, "apply: {case}");

        let (jobs, applier) = cached(code, &found);
        let deleted = applier.delete(&target).await;
        assert_eq!(deleted.is_ok(), code == 404, "{case}");
        assert_eq!(version(&jobs).as_deref(), expected, "delete: {case}");
    }
    let (jobs, applier) = cached(404, &None);
    let read = applier.ensure(&wanted().existing()).await;
    assert_eq!(read, Ok(EffectOutcome::AlreadyDeleted));
    assert_eq!(version(&jobs), None, "the deletion event may never come");
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

/// Returns an API server that responds to each list with `list`, and the URIs of its requests.
fn listing(list: &Value) -> (Client, Arc<Mutex<Vec<String>>>) {
    let (asked, list) = (Arc::<Mutex<Vec<String>>>::default(), list.to_string());
    let uris = Arc::clone(&asked);
    let respond = move |request: http::Request<Body>| {
        uris.lock().unwrap().push(request.uri().to_string());
        let body = Body::from(list.clone().into_bytes());
        async move { http::Response::builder().status(200).body(body) }
    };
    (Client::new(tower::service_fn(respond), "default"), asked)
}

/// A silent watch delivered neither a creation nor a deletion.
#[tokio::test]
async fn a_live_read_brings_what_is_there_and_forgets_what_is_gone() {
    let labels = names::child_labels("TaskRun", "run", "uid-1");
    let job = |name: &str, uid: &str| {
        json!({ "metadata": {
            "name": name, "namespace": "n", "uid": uid, "resourceVersion": "7", "labels": labels,
        } })
    };
    let watched = |list: &Value| {
        let (client, asked) = listing(list);
        let (metrics, health) = (Metrics::default(), Health::default());
        let mut watches = WatchManager::new(client.clone(), metrics, health, Scope::All);
        let watch = Watch {
            labels: None,
            fields: None,
            transform: Arc::new(|job: Job, _| Child::new(&job, ())),
            index: Child::words,
        };
        let jobs = watches.namespaced(("batch", "jobs"), watch);
        let known: Job = serde_json::from_value(job("gone", "0")).unwrap();
        let identity = crate::cache::Identity::of(&known.metadata);
        jobs.on_applied(identity, Child::new(&known, ()), 1);
        (jobs, Applier::new(client, watches.without_watches()), asked)
    };
    let children = LiveRead::Children {
        resource: ResourceType::JOB,
        namespace: "n".to_owned(),
        owner_kind: "TaskRun",
        owner_uid: "uid-1".to_owned(),
    };
    let named = |name: &str| LiveRead::Object {
        resource: ResourceType::JOB,
        namespace: Some("n".to_owned()),
        name: name.to_owned(),
    };
    let list = |version: &str, items: Value| json!({ "metadata": { "resourceVersion": version }, "items": items });
    let names = |jobs: &crate::Cache<Child<()>>| -> Vec<String> {
        let found = jobs.children("TaskRun", "n", "uid-1");
        found.iter().map(|one| one.uid.clone()).collect()
    };

    let (jobs, applier, asked) = watched(&list("9", json!([job("one", "1"), job("two", "2")])));
    applier.confirm(&children).await.unwrap();
    assert_eq!(names(&jobs), ["1", "2"]);
    let wanted = "/apis/batch/v1/namespaces/n/jobs?labelSelector=orchestrator.io%2Fkind%3DTaskRun%2Corchestrator.io%2Fuid%3Duid-1&limit=500";
    assert_eq!(*asked.lock().unwrap(), [wanted]);

    let (jobs, applier, asked) = watched(&list("9", json!([])));
    applier.confirm(&named("another")).await.unwrap();
    assert_eq!(names(&jobs), ["0"], "it was not asked for");
    applier.confirm(&named("gone")).await.unwrap();
    assert_eq!(names(&jobs), [""; 0], "it is gone");
    let wanted = "/apis/batch/v1/namespaces/n/jobs?fieldSelector=metadata.name%3Dgone&limit=500";
    assert_eq!(asked.lock().unwrap()[1], wanted);

    // The watch is in the middle of a relist: it has delivered newer objects, but not this one.
    let (jobs, applier, _) = watched(&list("7", json!([job("one", "1")])));
    applier.confirm(&children).await.unwrap();
    assert_eq!(names(&jobs), ["1"]);

    let full = json!({ "metadata": { "resourceVersion": "9", "continue": "x" }, "items": [] });
    let odd = list("9", json!([{ "metadata": { "name": 1 } }]));
    for (case, list) in [
        ("not all", full),
        ("unreadable", odd),
        ("no list", json!({})),
    ] {
        let (jobs, applier, _) = watched(&list);
        let fault = applier.confirm(&children).await.unwrap_err();
        assert_eq!(fault.class, ErrorClass::Transient, "{case}: {fault}");
        assert_eq!(names(&jobs), ["0"], "{case}");
    }
}
