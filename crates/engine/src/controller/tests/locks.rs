//! Locks between objects: each change is a compare-and-swap, and a refusal is input of the next decision.

use api::{
    claim::{Claim, Holder, Lock, LockStep},
    decide::LiveRead,
};
use k8s_openapi::{
    api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time as DeletionTime,
};

use super::*;
use crate::{
    apply::Applier,
    reconcile::{Outcome, ReconcileFailure, Reconciler},
};

const TOY: ResourceType = ResourceType::new("test", "v1", "Toy", "toys");

/// An API server with one object that toys lock: the ConfigMap `shelf`.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<ShelfState>>);

#[derive(Default)]
struct ShelfState {
    lock: Option<String>,
    version: u64,
    /// The existing toys.
    toys: Vec<Toy>,
    /// Verbs and paths of all requests.
    sent: Vec<String>,
    /// Messages of all status writes.
    messages: Vec<Value>,
    /// Whether the response of the next change of the lock is lost.
    loses_response: bool,
    /// Whether someone changes the shelf before each change of the lock.
    is_busy: bool,
}

impl ShelfState {
    fn config_map(&self) -> ConfigMap {
        let annotations = self.lock.as_ref().map(|lock| json!({ names::LOCK: lock }));
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "shelf", "namespace": "n", "uid": "uid-shelf",
            "resourceVersion": self.version.to_string(), "annotations": annotations,
        } });
        serde_json::from_value(map).unwrap()
    }

    /// Returns code and body of the response to a request, or `None` if the response is lost.
    fn respond(&mut self, method: &str, path: &str, mut body: Value) -> Option<(u16, Value)> {
        self.sent.push(format!("{method} {path}"));
        let is_shelf = path.ends_with("/configmaps/shelf");
        match (method, path) {
            ("GET", _) if is_shelf => Some((200, json!(self.config_map()))),
            ("GET", path) if path.ends_with("/toys") => {
                let list = json!({ "metadata": { "resourceVersion": "90" }, "items": self.toys });
                Some((200, list))
            }
            ("PATCH", _) if is_shelf => {
                self.version += u64::from(self.is_busy);
                let version = self.version.to_string();
                if body["metadata"]["resourceVersion"] != version {
                    let status = json!({ "kind": "Status", "code": 409, "message": "modified" });
                    return Some((409, status));
                }
                let lock = &body["metadata"]["annotations"][names::LOCK];
                self.lock = lock.as_str().map(str::to_owned);
                self.version += 1;
                let is_lost = std::mem::take(&mut self.loses_response);
                (!is_lost).then(|| (200, json!(self.config_map())))
            }
            _ => {
                if path.ends_with("/status") {
                    self.messages.push(body["status"]["message"].clone());
                }
                body["metadata"]["resourceVersion"] = json!("95");
                Some((200, body))
            }
        }
    }
}

impl Shelf {
    fn client(&self) -> Client {
        let shelf = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let shelf = shelf.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let (method, path) = (parts.method.as_str(), parts.uri.path());
                let response = shelf.0.lock().unwrap().respond(method, path, body);
                let (code, body) = response.ok_or("the connection was closed")?;
                let response = Response::builder().status(code);
                let response = response.body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        Client::new(service, "default")
    }

    /// Returns the name of the toy that has the lock.
    fn holder(&self) -> Option<String> {
        let annotations = self.0.lock().unwrap().config_map().metadata.annotations;
        match Lock::of(&annotations.unwrap_or_default()) {
            Lock::Free => None,
            Lock::Held(holder) => Some(holder.name),
            Lock::Unreadable => panic!("the lock cannot be read"),
        }
    }

    fn count(&self, start: &str, end: &str) -> usize {
        let state = self.0.lock().unwrap();
        let is_it = |one: &&String| one.starts_with(start) && one.ends_with(end);
        state.sent.iter().filter(is_it).count()
    }
}

/// Returns the annotation of a toy that has the lock.
fn lock_of(name: &str) -> String {
    json!(holder(name)).to_string()
}

fn holder(name: &str) -> Holder {
    Holder {
        kind: "Toy".to_owned(),
        namespace: Some("n".to_owned()),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

/// A kind whose objects need the lock of the shelf.
struct LockKind {
    shelves: Cache<ConfigMap>,
    toys: Cache<Toy>,
}

/// The shelf and the UIDs of all toys.
struct ShelfWorld {
    version: String,
    lock: Lock,
    toys: Vec<String>,
}

impl Kind for LockKind {
    type Object = Toy;
    type Status = ToyStatus;
    type World = ShelfWorld;
    const RESOURCE: ResourceType = TOY;
    const FINALIZER: &'static str = "toys.test/finalizer";

    fn status(object: &Toy) -> Option<&ToyStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &Toy) -> &() {
        &()
    }

    async fn observe(&self, _: &Arc<Toy>, _: Timestamp) -> Result<ShelfWorld, ReconcileError> {
        let shelf = self.shelves.get(&Key::new("n", "shelf")).unwrap();
        let toys = self.toys.keys().into_iter();
        Ok(ShelfWorld {
            version: shelf.resource_version().unwrap_or_default(),
            lock: Lock::of(shelf.annotations()),
            toys: toys.filter_map(|key| self.toys.get(&key)?.uid()).collect(),
        })
    }

    fn decide(input: &Input<'_, Toy, ShelfWorld>) -> Decision<ToyStatus> {
        let ShelfWorld {
            version,
            lock,
            toys,
        } = input.world;
        let status = input.object.status.clone().unwrap_or_default();
        let uid = input.object.uid().unwrap_or_default();
        let decision = |message: &str| {
            let verdict = Verdict::working(Reason::Progressing, message);
            Decision::status_only(status, ToyPhase::Playing, verdict)
        };
        let shelf = || Target {
            uid: "uid-shelf".to_owned(),
            ..target("shelf")
        };
        match input.object.spec.act.as_str() {
            "release" if lock.is_held_by(&uid) => {
                let release = Claim::release(shelf(), version);
                return decision("releases").claim(release);
            }
            "release" => return decision("released"),
            "careless" => {
                let take_over = Claim::take_over(shelf(), version, holder("rival"));
                return decision("takes over").claim(take_over);
            }
            "final" => {
                let take = Claim::take(shelf(), version);
                return decision("takes").claim(take).remove_finalizer();
            }
            _ => {}
        }
        let is_active = |holder: &Holder| toys.contains(&holder.uid);
        match lock.step(&uid, is_active, input.confirmed) {
            LockStep::Take => {
                let work = child(ResourceType::CONFIG_MAP, "work");
                decision("takes")
                    .claim(Claim::take(shelf(), version))
                    .with(Effect::Ensure(Box::new(work)))
            }
            LockStep::Proceed => decision("continues"),
            LockStep::Wait(holder) => decision(&format!("waits for {holder}")),
            LockStep::Confirm(holder) => {
                let mut decision = decision("reads");
                decision.confirm.push(LiveRead::Object {
                    resource: TOY,
                    namespace: holder.namespace.clone(),
                    name: holder.name.clone(),
                });
                decision
            }
            LockStep::TakeOver(holder) => {
                decision("takes over").claim(Claim::take_over(shelf(), version, holder.clone()))
            }
            LockStep::Unreadable => decision("cannot read the lock"),
        }
    }
}

/// A reconciler of toys, and the server with the shelf.
struct LockRoom {
    reconciler: Reconciler<LockKind>,
    shelf: Shelf,
    _leading: watch::Sender<Option<HeldLease>>,
}

fn all<K>() -> Watch<K, K> {
    Watch {
        labels: None,
        fields: None,
        transform: Arc::new(|object, _| object),
        index: |_| Vec::new(),
    }
}

/// Starts with caches that have the shelf and the toys of now. The test then changes the server.
fn lock_room(lock: Option<&str>, toys: &[&str]) -> LockRoom {
    let shelf = Shelf::default();
    let existing: Vec<Toy> = toys.iter().map(|name| toy("n", name, 1, 1, None)).collect();
    let cached = {
        let mut state = shelf.0.lock().unwrap();
        state.lock = lock.map(lock_of);
        state.version = 5;
        state.toys.clone_from(&existing);
        state.config_map()
    };
    let client = shelf.client();
    let (metrics, health) = (Metrics::default(), Health::default());
    let mut watches = WatchManager::new(client.clone(), metrics.clone(), health, Scope::All);
    let shelves = watches.namespaced(("", "configmaps"), all::<ConfigMap>());
    let toys = watches.namespaced(("test", "toys"), all::<Toy>());
    shelves.on_applied(Identity::of(&cached.metadata), cached, 1);
    for toy in existing {
        toys.on_applied(Identity::of(&toy.metadata), toy, 1);
    }
    let (leading, until) = watch::channel(later(DAY));
    let reconciler = Reconciler {
        kind: Arc::new(LockKind { shelves, toys }),
        applier: Applier::new(client, watches.without_watches()),
        clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
        metrics,
        leading: Leadership::new(until),
        identity: "test".to_owned(),
    };
    LockRoom {
        reconciler,
        shelf,
        _leading: leading,
    }
}

impl LockRoom {
    /// Changes the lock and the toys on the server. The caches do not have the change.
    fn change(&self, lock: Option<&str>, toys: Vec<Toy>) {
        let mut state = self.shelf.0.lock().unwrap();
        state.lock = lock.map(lock_of);
        state.version += 1;
        state.toys = toys;
    }

    async fn reconcile(&self, toy: Toy) -> Result<Outcome, ReconcileFailure<ToyStatus>> {
        let yield_at = Instant::now() + DAY;
        self.reconciler.reconcile(&Arc::new(toy), yield_at).await
    }
}

fn named(name: &str) -> Toy {
    toy("n", name, 1, 1, None)
}

/// Returns a toy that was created under the name of a deleted one.
fn recreated(name: &str) -> Toy {
    let mut toy = named(name);
    toy.metadata.uid = Some("uid-recreated".to_owned());
    toy
}

/// State of the server that the caches do not have: the holder of the lock, and the toys.
type Unseen = Option<(Option<&'static str>, Vec<Toy>)>;

#[tokio::test(start_paused = true)]
async fn a_lock_has_one_holder_and_a_refusal_names_it() {
    let rival = || vec![named("rival")];
    // Columns: case, claimant, holder in the cache, toys in the cache, state that the caches do not have, message of the
    // claimant, holder afterwards.
    type Row = (
        &'static str,
        &'static str,
        Option<&'static str>,
        &'static [&'static str],
        Unseen,
        &'static str,
        Option<&'static str>,
    );
    let table: [Row; 11] = [
        ("free", "take", None, &[], None, "takes", Some("take")),
        (
            "held",
            "take",
            Some("rival"),
            &["rival"],
            None,
            "waits for Toy 'n/rival'",
            Some("rival"),
        ),
        (
            "taken meanwhile",
            "take",
            None,
            &["rival"],
            Some((Some("rival"), rival())),
            "waits for Toy 'n/rival'",
            Some("rival"),
        ),
        (
            "taken by ourselves, without a response",
            "take",
            None,
            &[],
            Some((Some("take"), Vec::new())),
            "continues",
            Some("take"),
        ),
        (
            "the holder was deleted",
            "take",
            Some("rival"),
            &[],
            None,
            "takes over",
            Some("take"),
        ),
        (
            "only the cache does not have the holder",
            "take",
            Some("rival"),
            &[],
            Some((Some("rival"), rival())),
            "waits for Toy 'n/rival'",
            Some("rival"),
        ),
        (
            "the holder was recreated",
            "take",
            Some("rival"),
            &[],
            Some((Some("rival"), vec![recreated("rival")])),
            "takes over",
            Some("take"),
        ),
        (
            "another one was faster",
            "take",
            Some("rival"),
            &[],
            Some((Some("third"), vec![named("third")])),
            "waits for Toy 'n/third'",
            Some("third"),
        ),
        (
            "released",
            "release",
            Some("release"),
            &[],
            None,
            "releases",
            None,
        ),
        (
            "released, without a response",
            "release",
            Some("release"),
            &[],
            Some((None, Vec::new())),
            "released",
            None,
        ),
        (
            "taken over from us",
            "release",
            Some("release"),
            &["rival"],
            Some((Some("rival"), rival())),
            "released",
            Some("rival"),
        ),
    ];
    for (case, claimant, lock, toys, unseen, message, holder) in table {
        let room = lock_room(lock, toys);
        if let Some((lock, toys)) = unseen {
            room.change(lock, toys);
        }
        let outcome = room.reconcile(named(claimant)).await;
        let outcome = outcome.unwrap_or_else(|(fault, _)| panic!("{case}: {fault}"));
        assert_eq!(outcome, Outcome::Completed(None), "{case}");
        assert_eq!(room.shelf.holder().as_deref(), holder, "{case}");
        let messages = room.shelf.0.lock().unwrap().messages.clone();
        assert_eq!(messages, [json!(message)], "{case}");
        let created = room.shelf.count("POST", "/configmaps");
        assert_eq!(created, usize::from(message == "takes"), "{case}");
        let finalizers = room.shelf.count("PATCH", &format!("/toys/{claimant}"));
        assert!(finalizers <= 1, "{case}: {finalizers} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_taken_after_the_finalizer_and_before_the_first_effect() {
    let room = lock_room(None, &[]);
    assert!(room.reconcile(named("take")).await.is_ok());
    let sent = room.shelf.0.lock().unwrap().sent.clone();
    let position = |end: &str| sent.iter().position(|one| one.ends_with(end)).unwrap();
    let order = [
        "/toys/take",
        "/configmaps/shelf",
        "/configmaps",
        "/toys/take/status",
    ];
    let positions = order.map(position);
    assert!(positions.is_sorted(), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_response_was_lost_is_recognised_as_ours() {
    let room = lock_room(None, &[]);
    room.shelf.0.lock().unwrap().loses_response = true;
    let Err((fault, _)) = room.reconcile(named("take")).await else {
        panic!("nobody knows whether the lock is ours");
    };
    assert_eq!(fault.class, ErrorClass::Transient, "{fault}");
    assert_eq!(room.shelf.holder().as_deref(), Some("take"));
    // The watch is late, so the lock is free in the cache.
    assert!(room.reconcile(named("take")).await.is_ok());
    let messages = room.shelf.0.lock().unwrap().messages.clone();
    assert_eq!(messages, [json!("continues")]);
    assert_eq!(room.shelf.count("PATCH", "/configmaps/shelf"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_target_is_tried_twice_and_then_after_a_backoff() {
    let room = lock_room(None, &[]);
    room.shelf.0.lock().unwrap().is_busy = true;
    let Err((fault, _)) = room.reconcile(named("take")).await else {
        panic!("each attempt was too late");
    };
    assert_eq!(fault.class, ErrorClass::Conflict, "{fault}");
    assert_eq!(room.shelf.count("PATCH", "/configmaps/shelf"), 2);
    assert_eq!(room.shelf.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_would_release_or_that_may_have_a_holder_is_not_taken() {
    // Columns: claimant, holder, whether the claimant is in deletion, and the reason of the rejection.
    let table = [
        (
            "take",
            None,
            true,
            Some("the object that needs it is being deleted"),
        ),
        ("final", None, false, Some("nobody would release it")),
        (
            "careless",
            Some("rival"),
            false,
            Some("its holder was not read"),
        ),
        ("release", Some("release"), true, None),
    ];
    for (claimant, lock, is_deleting, reason) in table {
        let room = lock_room(lock, &[]);
        let mut toy = named(claimant);
        toy.metadata.finalizers = Some(vec![LockKind::FINALIZER.to_owned()]);
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        toy.metadata.deletion_timestamp = is_deleting.then_some(DeletionTime(now));
        let reconciled = room.reconcile(toy).await;
        let writes = room.shelf.count("PATCH", "/configmaps/shelf");
        match (reconciled, reason) {
            (Ok(_), None) => assert_eq!(writes, 1, "{claimant}"),
            (Err((fault, _)), Some(reason)) => {
                assert_eq!(fault.class, ErrorClass::Bug, "{claimant}: {fault}");
                let start = "a change of the lock of ConfigMap 'shelf' was refused: ";
                assert!(fault.message.starts_with(start), "{claimant}: {fault}");
                assert!(fault.message.contains(reason), "{claimant}: {fault}");
                assert_eq!(writes, 0, "{claimant}");
            }
            (Ok(_), Some(_)) => panic!("{claimant} is not rejected"),
            (Err((fault, _)), None) => panic!("{claimant}: {fault}"),
        }
    }
}
