//! Tests of types that a test installs and removes, with a server that responds as the test wants.
//! `crates/engine/tests/optional.rs` does the same on a real API server.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU16, AtomicUsize, Ordering},
    time::Duration,
};

use api::decide::{ErrorClass, LiveRead};
use http::{Request, Response};
use kube::{Client, client::Body, core::Status};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    Scope, apply::Applier, health::Health, metrics::Metrics, supervise::Supervisor,
    watch::RunningWatches,
};

const SECOND: Duration = Duration::from_secs(1);

const CHART: ResourceType = ResourceType::new("test", "v1", "Chart", "charts");

/// An API server with one type.
#[derive(Clone, Default)]
struct FakeApi {
    /// Code of all responses. With 200, the type is installed.
    code: Arc<AtomicU16>,
    objects: Arc<Mutex<Vec<Value>>>,
    /// Events of the watch, which are sent with the next change.
    events: Arc<Mutex<String>>,
    changes: watch::Sender<()>,
    /// Number of lists.
    lists: Arc<AtomicUsize>,
}

impl FakeApi {
    /// Sets the code of all responses. An open watch does not end.
    fn respond(&self, code: u16) {
        self.code.store(code, Ordering::SeqCst);
    }

    fn install(&self, objects: Vec<Value>) {
        *self.objects.lock().unwrap() = objects;
        self.respond(200);
    }

    /// Removes the type. The open watch ends.
    fn remove(&self) {
        self.respond(404);
        self.changes.send_replace(());
    }

    fn send_event(&self, kind: &str, object: &Value) {
        let event = json!({ "type": kind, "object": object });
        *self.events.lock().unwrap() = format!("{event}\n");
        self.changes.send_replace(());
    }

    /// Returns code and body of the response to a list or a watch.
    async fn response(&self, is_watch: bool) -> (u16, String) {
        let code = self.code.load(Ordering::SeqCst);
        if is_watch && code == 200 {
            let mut changes = self.changes.subscribe();
            changes.changed().await.unwrap();
            let events = std::mem::take(&mut *self.events.lock().unwrap());
            return (200, events);
        }
        if !is_watch {
            self.lists.fetch_add(1, Ordering::SeqCst);
        }
        let objects = self.objects.lock().unwrap().clone();
        let body = match code {
            200 => json!({ "metadata": { "resourceVersion": "100" }, "items": objects }),
            404 => return (404, "404 page not found\n".to_owned()),
            _ => json!({ "kind": "Status", "code": code, "message": "charts is forbidden" }),
        };
        (code, body.to_string())
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                let is_watch = query.contains("watch=true");
                let (code, body) = api.response(is_watch).await;
                let response = Response::builder().status(code);
                let response = response.body(Body::from(body.into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        Client::new(service, "default")
    }
}

/// The started watch of charts.
struct Started {
    charts: OptionalCache<i64>,
    running: RunningWatches,
    health: Health,
    metrics: Metrics,
    applier: Applier,
    /// Names of the objects whose changes were reported.
    changed: Arc<Mutex<Vec<String>>>,
    /// Number of reported installations and removals.
    installations: Arc<AtomicUsize>,
    _supervisor: Supervisor,
}

fn start(api: &FakeApi, scope: Scope) -> Started {
    let (client, metrics, health) = (api.client(), Metrics::default(), Health::default());
    let mut watches = WatchManager::new(client.clone(), metrics.clone(), health.clone(), scope);
    let charts = watches.optional(OptionalType {
        resource: CHART,
        is_namespaced: true,
        decode: size,
        index: |_| Vec::new(),
    });
    let changed = Arc::<Mutex<Vec<String>>>::default();
    let names = Arc::clone(&changed);
    charts.objects().on_change(move |change| {
        names.lock().unwrap().push(change.key.name.clone());
    });
    let installations = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&installations);
    charts.on_installation_change(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut supervisor = Supervisor::new(Health::default(), SECOND);
    let running = watches.start(&mut supervisor);
    Started {
        charts,
        applier: Applier::new(client, running.clone()),
        running,
        health,
        metrics,
        changed,
        installations,
        _supervisor: supervisor,
    }
}

impl Started {
    fn get(&self, name: &str) -> Presence<i64> {
        self.charts.get(&Key::new("n", name))
    }

    fn is_blocked(&self, optional: BTreeSet<usize>) -> bool {
        !self.running.blocked(&optional).is_empty()
    }

    /// Returns whether the objects of a kind that depends on charts wait.
    fn blocks_dependents(&self) -> bool {
        self.is_blocked(self.charts.numbers().collect())
    }
}

/// Decodes a chart to its size.
fn size(chart: &DynamicObject) -> Result<i64, String> {
    let size = chart.data.pointer("/spec/size").and_then(Value::as_i64);
    let size = size.ok_or_else(|| "spec.size is not a number".to_owned())?;
    assert_ne!(size, 13, "a bug in a decoder");
    Ok(size)
}

fn chart(name: &str, version: u64, size: impl Into<Value>) -> Value {
    let size: Value = size.into();
    json!({
        "apiVersion": "test/v1", "kind": "Chart",
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(),
        },
        "spec": { "size": size },
    })
}

fn unreadable(why: &str) -> Presence<i64> {
    Presence::Unreadable {
        why: why.to_owned(),
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_type_is_found_when_it_is_installed_and_forgotten_when_it_is_removed() {
    for scope in [Scope::All, Scope::Namespaces(vec!["n".to_owned()])] {
        let api = FakeApi::default();
        api.respond(404);
        let started = start(&api, scope);
        assert!(started.running.is_settled(), "it delays no start");
        pass(SECOND).await;
        assert_eq!(started.get("a"), Presence::NotInstalled);
        assert!(!started.blocks_dependents(), "it is a value");
        assert!(started.health.watch_health().problems().is_empty());

        pass(600 * SECOND).await;
        let lists = api.lists.load(Ordering::SeqCst);
        assert!((20..=22).contains(&lists), "{lists} lists in 10 minutes");
        assert!(!started.metrics.text().contains("watch_errors_total{"));
        assert_eq!(started.installations.load(Ordering::SeqCst), 1, "once");

        api.install(vec![chart("a", 6, 3)]);
        pass(31 * SECOND).await;
        assert_eq!(started.get("a"), Presence::Present(Arc::new(3)));
        assert_eq!(started.get("b"), Presence::Absent);
        assert_eq!(started.installations.load(Ordering::SeqCst), 2);

        api.remove();
        pass(5 * SECOND).await;
        assert_eq!(started.get("a"), Presence::NotInstalled);
        assert!(started.charts.objects().is_empty());
        assert_eq!(*started.changed.lock().unwrap(), ["a", "a"]);
        assert!(!started.blocks_dependents());
        assert!(started.health.watch_health().problems().is_empty());
        assert_eq!(started.installations.load(Ordering::SeqCst), 3);

        api.install(vec![chart("a", 106, 4)]);
        pass(31 * SECOND).await;
        assert_eq!(started.get("a"), Presence::Present(Arc::new(4)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_differs_from_an_absent_one() {
    let api = FakeApi::default();
    api.install(vec![
        chart("odd", 6, "many"),
        chart("cursed", 7, 13),
        chart("fine", 8, 3),
    ]);
    let started = start(&api, Scope::All);
    pass(SECOND).await;
    assert_eq!(started.get("odd"), unreadable("spec.size is not a number"));
    assert_eq!(started.get("cursed"), unreadable("its decoder panicked"));
    assert_eq!(started.get("fine"), Presence::Present(Arc::new(3)));
    assert_eq!(started.get("none"), Presence::Absent);
    assert!(
        !started.blocks_dependents(),
        "one object is no problem of all"
    );

    started.changed.lock().unwrap().clear();
    api.send_event("DELETED", &chart("odd", 101, "many"));
    pass(SECOND).await;
    assert_eq!(started.get("odd"), Presence::Absent);
    api.send_event("MODIFIED", &chart("cursed", 102, 5));
    pass(SECOND).await;
    assert_eq!(started.get("cursed"), Presence::Present(Arc::new(5)));
    let changed = started.changed.lock().unwrap().clone();
    assert_eq!(changed, ["odd", "cursed"], "each wakes its owners");
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_of_an_installed_type_blocks_only_its_dependents() {
    let api = FakeApi::default();
    api.respond(403);
    let started = start(&api, Scope::All);
    pass(5 * SECOND).await;
    let Presence::Unreadable { why } = started.get("a") else {
        panic!("{:?}", started.get("a"));
    };
    assert!(why.contains("charts is forbidden"), "{why}");
    assert!(started.blocks_dependents());
    assert!(!started.is_blocked(BTreeSet::new()), "no other kind");
    assert!(started.running.is_settled(), "no start waits for it");
    let problems = started.health.watch_health().problems();
    assert_eq!(problems.len(), 1, "{problems:?}");

    api.install(Vec::new());
    pass(15 * SECOND).await;
    assert_eq!(started.get("a"), Presence::Absent);
    assert!(!started.blocks_dependents());
}

/// A decision confirms that an object does not exist. The type may have been installed or removed since the last list of
/// the watch.
#[tokio::test(start_paused = true)]
async fn a_live_read_confirms_that_a_type_is_not_installed() {
    let api = FakeApi::default();
    api.respond(404);
    let started = start(&api, Scope::All);
    pass(SECOND).await;
    let read = LiveRead::Object {
        resource: CHART,
        namespace: Some("n".to_owned()),
        name: "a".to_owned(),
    };
    assert_eq!(started.applier.confirm(&read).await, Ok(()));
    assert_eq!(started.get("a"), Presence::NotInstalled);

    api.install(vec![chart("a", 6, 3), chart("odd", 7, "many")]);
    let fault = started.applier.confirm(&read).await.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Transient, "{fault}");
    pass(3 * SECOND).await;
    assert_eq!(started.get("a"), Presence::Present(Arc::new(3)), "at once");
    assert_eq!(started.applier.confirm(&read).await, Ok(()), "one is odd");
    assert_eq!(started.get("odd"), unreadable("spec.size is not a number"));

    // The watch is open, and does not show that the type was removed.
    api.respond(404);
    let fault = started.applier.confirm(&read).await.unwrap_err();
    assert_eq!(fault.class, ErrorClass::Transient, "{fault}");
    pass(3 * SECOND).await;
    assert_eq!(started.applier.confirm(&read).await, Ok(()));
    assert_eq!(started.get("a"), Presence::NotInstalled);
}

/// Many live reads contradict the watch, because one of two API servers does not know the new CRD.
#[tokio::test(start_paused = true)]
async fn live_reads_cause_at_most_one_list_in_a_second() {
    let api = FakeApi::default();
    api.respond(404);
    let started = start(&api, Scope::All);
    pass(SECOND).await;
    let before = api.lists.load(Ordering::SeqCst);
    for _ in 0..100 {
        started.charts.installation.request_relist();
        pass(SECOND / 10).await;
    }
    let lists = api.lists.load(Ordering::SeqCst) - before;
    assert!((5..=12).contains(&lists), "{lists} lists in 10 s");
}

#[test]
fn only_a_list_that_is_not_found_shows_that_a_type_is_missing() {
    let status = |code: u16| {
        let status = Status {
            code,
            ..Status::default()
        };
        Box::new(status)
    };
    let api = |code: u16| Error::Api(status(code));
    let table = [
        (
            watcher::Error::InitialListFailed(api(404)),
            Some(MissingApi::Listed),
        ),
        (
            watcher::Error::WatchStartFailed(api(404)),
            Some(MissingApi::Watched),
        ),
        (watcher::Error::InitialListFailed(api(403)), None),
        (watcher::Error::InitialListFailed(api(503)), None),
        (watcher::Error::WatchStartFailed(api(410)), None),
        (watcher::Error::WatchFailed(api(404)), None),
        (watcher::Error::WatchError(status(404)), None),
        (watcher::Error::NoResourceVersion, None),
    ];
    for (error, expected) in table {
        assert_eq!(missing_api(&error), expected, "{error}");
    }
}

/// The message becomes the status of the objects that wait, so it has no dump of the response.
#[test]
fn an_interrupted_watch_names_the_crd_or_the_cause() {
    let api = |code: u16, message: &str| {
        let status = Status::failure(message, "Failed to parse error data").with_code(code);
        Error::Api(Box::new(status))
    };
    let missing = || api(404, "404 page not found");
    let crd = "CRD 'docsruns.orchestrator.io' is not installed, so the API server does not serve its objects";
    for (plural, error, expected) in [
        (
            "docsruns",
            watcher::Error::InitialListFailed(missing()),
            crd,
        ),
        ("docsruns", watcher::Error::WatchStartFailed(missing()), crd),
        (
            "pods",
            watcher::Error::InitialListFailed(missing()),
            "the API server does not serve pods",
        ),
        (
            "pods",
            watcher::Error::InitialListFailed(api(503, "away")),
            "failed to perform initial object list: ApiError: away: Failed to parse error data",
        ),
        (
            "pods",
            watcher::Error::WatchStartFailed(api(403, "pods is forbidden")),
            "failed to start watching object: ApiError: pods is forbidden: Failed to parse error data",
        ),
    ] {
        assert_eq!(interruption(plural, &error), expected);
    }
}
