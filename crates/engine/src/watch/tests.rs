//! Tests of the order of lists, and of watches that are reopened.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Secret};
use kube::client::Body;
use serde_json::json;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Paths of the list requests, in their order.
type Lists = Arc<Mutex<Vec<String>>>;

/// The started watches.
struct Started {
    lists: Lists,
    secrets: Cache<Secret>,
    running: RunningWatches,
    _supervisor: Supervisor,
}

/// Starts a watch of ConfigMaps and, a moment later, one of Secrets. A list of ConfigMaps takes `takes`.
fn start(takes: Duration, is_broken: bool) -> Started {
    let lists = Lists::default();
    let seen = Arc::clone(&lists);
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let uri = request.uri();
            if uri
                .query()
                .is_some_and(|query| query.contains("watch=true"))
            {
                std::future::pending::<()>().await;
            }
            let plural = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            let is_slow = plural == "configmaps";
            seen.lock().unwrap().push(plural);
            if is_slow {
                tokio::time::sleep(takes).await;
            }
            let code = if is_slow && is_broken { 500 } else { 200 };
            let body = json!({ "metadata": { "resourceVersion": "9" }, "items": [] });
            let response = Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
        }
    });
    let client = Client::new(service, "default");
    let mut watches = WatchManager::new(client, Metrics::default(), Health::default(), Scope::All);
    watches.namespaced::<ConfigMap, _>(("", "configmaps"), all());
    let secrets = watches.namespaced::<Secret, _>(("", "secrets"), all());
    let mut supervisor = Supervisor::new(Health::default(), SECOND);
    let running = watches.start(&mut supervisor);
    Started {
        lists,
        secrets,
        running,
        _supervisor: supervisor,
    }
}

fn all<K>() -> Watch<K, K> {
    Watch {
        labels: None,
        fields: None,
        transform: Arc::new(|object, _| object),
        index: |_| vec![],
    }
}

#[tokio::test(start_paused = true)]
async fn lists_follow_each_other_and_one_that_hangs_or_fails_stops_none() {
    // Columns: duration of the first list, whether it fails, and when the second list is sent, in milliseconds.
    let table = [
        (2 * SECOND, false, 2_000),
        (2 * SECOND, true, 2_000),
        (100 * SECOND, false, 5_000),
    ];
    for (takes, is_broken, expected) in table {
        let started = start(takes, is_broken);
        let sent = || started.lists.lock().unwrap().clone();
        tokio::time::sleep(Duration::from_millis(expected - 100)).await;
        assert_eq!(sent(), ["configmaps"], "{takes:?}, fails: {is_broken}");
        tokio::time::sleep(SECOND / 5).await;
        assert_eq!(
            sent(),
            ["configmaps", "secrets"],
            "{takes:?}, fails: {is_broken}"
        );
    }
}

/// A list contains all that was written before it is sent, however long it waits for its turn. So an object
/// that it lacks was deleted.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_created_and_deleted_during_the_wait_does_not_stay() {
    let started = start(2 * SECOND, false);
    tokio::time::sleep(SECOND).await;
    let metadata = json!({
        "name": "a", "namespace": "n", "uid": "uid-a", "resourceVersion": "8",
    });
    let secret = json!({ "metadata": metadata });
    started.running.written("", "secrets", secret);
    assert_eq!(started.secrets.len(), 1);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(started.secrets.len(), 0);
}

/// Events about Jobs and Events about Pods are two watches of one path. The first is rejected once, the second always.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_reopened_ends_only_its_own_interruption() {
    let rejected = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let rejected = Arc::clone(&rejected);
        async move {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.contains("watch=true");
            let is_first = query.contains("Job");
            let is_rejected =
                is_watch && !(is_first && rejected.fetch_add(1, Ordering::SeqCst) > 0);
            if is_watch && !is_rejected {
                // It is accepted, and ends without an event.
                tokio::time::sleep(5 * SECOND).await;
                return Ok(Response::new(Body::empty()));
            }
            let (code, body) = if is_rejected {
                let message = format!("rejected for {}", if is_first { "Jobs" } else { "Pods" });
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "InternalError", "code": 500, "message": message,
                });
                (500, status)
            } else {
                let list = json!({ "metadata": { "resourceVersion": "9" }, "items": [] });
                (200, list)
            };
            let response = Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
        }
    });
    let client = Client::new(service, "default");
    let health = Health::default();
    let mut watches = WatchManager::new(client, Metrics::default(), health.clone(), Scope::All);
    for kind in ["Job", "Pod"] {
        let watch = Watch {
            fields: Some(format!("involvedObject.kind={kind}")),
            ..all::<CoreEvent>()
        };
        watches.namespaced(("", "events"), watch);
    }
    let mut supervisor = Supervisor::new(Health::default(), SECOND);
    let running = watches.start(&mut supervisor);
    tokio::time::sleep(80 * SECOND).await;
    let blocked = running.blocked(&BTreeSet::new());
    let message = &blocked[&None::<String>]["watch of events"];
    assert!(message.contains("rejected for Pods"), "{message}");
    let problems = health.watch_health().problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
}
