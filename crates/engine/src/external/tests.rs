// Any status with an intent.
use api::tenants::TenantStatus;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::*;
use crate::{cache::Identity, leader::HeldLease, supervise::Trigger};

const SECOND: Duration = Duration::from_secs(1);

/// A request. The server handles it as `text` orders.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    host: &'static str,
    text: &'static str,
    intent: Option<&'static str>,
}

impl Request for Question {
    type Response = String;
    const REMOTE: &'static str = "test server";
    const UNREACHABLE: Reason = Reason::DependencyNotReady;

    fn host(&self) -> String {
        self.host.to_owned()
    }

    fn required_intent(&self) -> Option<&str> {
        self.intent
    }
}

fn to(host: &'static str, text: &'static str) -> Question {
    Question {
        host,
        text,
        intent: None,
    }
}

/// A server that responds after a second.
#[derive(Default)]
struct TestServer {
    /// Requests that arrived, with their times.
    received: Mutex<Vec<(Question, Instant)>>,
    /// Requests that were answered.
    answered: Mutex<usize>,
}

struct Connection(Arc<TestServer>);

impl Remote<Question> for Connection {
    async fn send(&self, request: &Question) -> Result<String, ReconcileError> {
        let count = {
            let mut received = self.0.received.lock().unwrap();
            received.push((request.clone(), Instant::now()));
            received.len()
        };
        sleep(SECOND).await;
        match request.text {
            "hang" => std::future::pending().await,
            "panic" => panic!("a secret of {}", "a user"),
            "fail" => return Err(away()),
            "recover" if count < 3 => return Err(away()),
            _ => {}
        }
        *self.0.answered.lock().unwrap() += 1;
        Ok(format!("{} #{count}", request.text))
    }
}

fn away() -> ReconcileError {
    ReconcileError::new(ErrorClass::Transient, Reason::DependencyNotReady, "away")
}

/// A running worker.
struct Room {
    requests: Requests<Question>,
    server: Arc<TestServer>,
    objects: Cache<ConfigMap>,
    handle: Handle,
    clock: Clock,
    metrics: Metrics,
    leading: watch::Sender<Option<HeldLease>>,
    stop: Trigger,
    task: JoinSet<Result<(), Infallible>>,
}

fn lease(version: u64, time: Duration) -> Option<HeldLease> {
    Some(HeldLease {
        until: Instant::now() + time,
        acquired_version: version,
    })
}

fn room() -> Room {
    room_with(LIMITS)
}

fn room_with(limits: Limits) -> Room {
    let server = Arc::new(TestServer::default());
    let (leading, held) = watch::channel(lease(7, 1000 * SECOND));
    let (clock, metrics) = (
        Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
        Metrics::default(),
    );
    let objects = Cache::new("configmaps", |_: &ConfigMap| Vec::new());
    let requests = Requests::new(limits, Leadership::new(held));
    requests.forget_deleted(&objects);
    let worker = RequestWorker {
        requests: requests.clone(),
        remote: Arc::new(Connection(Arc::clone(&server))),
        kind: "ConfigMap",
        clock: clock.clone(),
        metrics: metrics.clone(),
    };
    let (stop, shutdown) = Shutdown::pair();
    let handle = Handle::started();
    let mut task = JoinSet::new();
    task.spawn(worker.run(handle.clone(), shutdown));
    Room {
        requests,
        server,
        objects,
        handle,
        clock,
        metrics,
        leading,
        stop,
        task,
    }
}

/// Returns an object of namespace `n`, or of the namespace before a slash. Its UID ends with its name.
fn object(name: &str) -> ConfigMap {
    let (namespace, name) = name.split_once('/').unwrap_or(("n", name));
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    object.metadata.resource_version = Some("1".to_owned());
    object
}

impl Room {
    /// Asks as a reconciliation of this object does.
    fn ask(&self, name: &str, question: Question) -> Option<Reply<String>> {
        let none = None::<&TenantStatus>;
        let meta = object(name).metadata;
        let reply = self
            .requests
            .ask(&meta, none, Some(question), self.clock.now());
        reply.unwrap()
    }

    /// Asks for nothing, as an object that needs no reply any more.
    fn ask_nothing(&self, name: &str) {
        let none = None::<&TenantStatus>;
        let meta = object(name).metadata;
        let reply = self.requests.ask(&meta, none, None, self.clock.now());
        assert_eq!(reply.unwrap(), None);
    }

    fn load(&self, name: &str) -> Load {
        self.requests.load(&object(name).metadata)
    }

    /// Returns the texts of the requests that arrived at the server.
    fn received(&self) -> Vec<&'static str> {
        let received = self.server.received.lock().unwrap();
        received.iter().map(|(question, _)| question.text).collect()
    }

    /// Returns the names of the objects that are due.
    fn due(&self) -> Vec<String> {
        let due = self.handle.take_due(&self.clock);
        due.into_iter().map(|key| key.name).collect()
    }

    async fn end(mut self) {
        self.stop.pull();
        while let Some(ended) = self.task.join_next().await {
            let Ok(()) = ended.unwrap();
        }
    }
}

fn response(reply: Option<Reply<String>>) -> Result<String, ReconcileError> {
    reply.expect("there is no reply").response
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_once_and_its_reply_wakes_the_object_and_is_found() {
    let room = room();
    for _ in 0..3 {
        assert_eq!(room.ask("a", to("x", "one")), None);
    }
    sleep(SECOND / 2).await;
    assert_eq!(room.received(), ["one"]);
    assert!(room.due().is_empty(), "nothing is known yet");
    sleep(SECOND).await;
    assert_eq!(room.due(), ["a"], "the reply wakes its object");
    let reply = room.ask("a", to("x", "one")).unwrap();
    assert_eq!(reply.success().map(String::as_str), Some("one #1"));
    assert_eq!(room.received(), ["one"], "not sent again at once");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_expires_and_is_kept_until_there_is_another() {
    let room = room();
    room.ask("a", to("x", "one"));
    sleep(2 * SECOND).await;
    let first = room.ask("a", to("x", "one")).unwrap();
    assert!(first.is_fresh);
    sleep(Question::FRESH_FOR).await;
    assert_eq!(
        room.received().len(),
        1,
        "only an object that asks needs it"
    );
    let old = room.ask("a", to("x", "one")).unwrap();
    assert!(!old.is_fresh && old.success().is_none(), "it has expired");
    assert_eq!(old.response, first.response);
    assert!(old.next_at > room.clock.now(), "no reconciliation spins");
    sleep(2 * SECOND).await;
    let next = room.ask("a", to("x", "one")).unwrap();
    assert_eq!(next.success().map(String::as_str), Some("one #2"));
    assert_eq!(next.since, first.since);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_has_a_deadline_and_its_place_is_free_after_it() {
    let limits = Limits {
        in_flight: 1,
        ..LIMITS
    };
    let room = room_with(limits);
    room.ask("a", to("x", "hang"));
    sleep(SECOND).await;
    room.ask("b", to("x", "one"));
    sleep(Question::TIMEOUT - 2 * SECOND).await;
    assert_eq!(room.received(), ["hang"]);
    assert!(room.due().is_empty());
    sleep(SECOND * 3 / 2).await;
    assert_eq!(room.due(), ["a"]);
    let late = response(room.ask("a", to("x", "hang"))).unwrap_err();
    assert_eq!(late.reason, Reason::DependencyNotReady);
    assert_eq!(late.message, "the test server did not respond within 20 s");
    assert_eq!(room.received(), ["hang", "one"]);
    let text = room.metrics.text();
    let errors = r#"reconcile_errors_total{kind="ConfigMap",class="Transient"} 1"#;
    assert!(text.contains(errors), "{text}");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_is_in_flight_from_its_start_to_its_reply() {
    let limits = Limits {
        in_flight: 1,
        ..LIMITS
    };
    let room = room_with(limits);
    let in_flight = || ["a", "b"].map(|name| room.load(name).is_own_in_flight);
    assert_eq!(in_flight(), [false, false], "nothing was asked");
    room.ask("a", to("x", "one"));
    assert_eq!(in_flight(), [false, false], "it is in the queue");
    sleep(SECOND / 2).await;
    room.ask("b", to("x", "two"));
    assert_eq!(in_flight(), [true, false], "b waits");
    sleep(SECOND).await;
    assert_eq!(in_flight(), [false, true], "a has its reply");
    // Another request of the same object is not the one in flight.
    room.ask("b", to("x", "three"));
    assert_eq!(in_flight(), [false, false]);
    room.end().await;
}

#[test]
fn failures_are_repeated_later_and_later() {
    let delays = (1..=7).map(|failures| retry_delay(failures).as_secs());
    assert_eq!(delays.collect::<Vec<_>>(), [5, 10, 20, 40, 60, 60, 60]);
    assert_eq!(retry_delay(u32::MAX), RETRY_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_repeated_before_its_time() {
    let room = room();
    room.ask("a", to("x", "fail"));
    // The failures arrive at seconds 1 and 8, and count for 5 s and 10 s.
    for (second, is_fresh, sent) in [(5, true, 1), (7, false, 2), (17, true, 2), (19, false, 3)] {
        let begin: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let elapsed = room.clock.now().duration_since(begin);
        let elapsed = Duration::try_from(elapsed).unwrap();
        sleep(Duration::from_secs(second) - elapsed).await;
        let reply = room.ask("a", to("x", "fail")).unwrap();
        assert_eq!(reply.response, Err(away()));
        assert_eq!(reply.is_fresh, is_fresh, "second {second}");
        sleep(SECOND / 2).await;
        assert_eq!(room.received().len(), sent, "second {second}");
    }
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_makes_the_next_failure_a_first_one() {
    let room = room();
    let mut failures = Vec::new();
    for _ in 0..3 {
        room.ask("a", to("x", "recover"));
        sleep(30 * SECOND).await;
        let state = room.requests.state();
        failures.push(state.entries.values().next().unwrap().failures);
    }
    assert_eq!(failures, [1, 2, 0]);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_bug_of_one_request_and_is_not_quoted() {
    let room = room();
    room.ask("a", to("x", "panic"));
    room.ask("b", to("x", "one"));
    sleep(2 * SECOND).await;
    let panicked = response(room.ask("a", to("x", "panic"))).unwrap_err();
    assert_eq!(panicked.class, ErrorClass::Bug);
    assert!(!panicked.message.contains("secret"), "{panicked}");
    assert!(response(room.ask("b", to("x", "one"))).is_ok());
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_belongs_to_its_request() {
    let room = room();
    room.ask("a", to("x", "one"));
    sleep(SECOND / 2).await;
    // The object needs something else, and then the first request again.
    assert_eq!(room.ask("a", to("x", "two")), None);
    assert_eq!(room.ask("a", to("x", "one")), None);
    sleep(SECOND * 3 / 4).await;
    assert_eq!(*room.server.answered.lock().unwrap(), 1);
    assert!(room.due().is_empty(), "nobody waits for the first reply");
    assert_eq!(room.ask("a", to("x", "one")), None, "it is too old");
    sleep(SECOND).await;
    assert_eq!(room.received(), ["one", "one"], "the second was not sent");
    let last = response(room.ask("a", to("x", "one")));
    assert_eq!(last.unwrap(), "one #2");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_lease() {
    let room = room();
    room.leading.send_replace(None);
    assert_eq!(room.ask("a", to("x", "one")), None);
    sleep(60 * SECOND).await;
    assert!(room.received().is_empty());
    room.leading.send_replace(lease(8, 1000 * SECOND));
    sleep(SECOND).await;
    assert!(room.received().is_empty(), "no reconciliation asked since");
    room.ask("a", to("x", "one"));
    sleep(2 * SECOND).await;
    assert!(response(room.ask("a", to("x", "one"))).is_ok());
    room.end().await;
}

/// As after a freeze: the Lease has expired, and the election has not noticed it yet.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_lease_though_nobody_announced_its_end() {
    let limits = Limits {
        in_flight: 1,
        ..LIMITS
    };
    let room = room_with(limits);
    room.leading.send_replace(lease(7, 5 * SECOND));
    room.ask("a", to("x", "hang"));
    room.ask("b", to("x", "one"));
    sleep(60 * SECOND).await;
    assert_eq!(room.received(), ["hang"]);
    assert_eq!(room.ask("b", to("x", "one")), None);
    assert_eq!(room.due(), ["a", "b"], "they ask again when we lead");
    assert_eq!(room.load("n/x"), Load::default());
    room.end().await;
}

/// Another process may have led meanwhile, so the reply may be older than its writes.
#[tokio::test(start_paused = true)]
async fn a_reply_is_dropped_if_the_lease_was_lost_meanwhile() {
    for is_noticed in [true, false] {
        let room = room();
        room.ask("a", to("x", "one"));
        sleep(SECOND / 2).await;
        assert_eq!(room.received(), ["one"]);
        room.leading.send_replace(None);
        if is_noticed {
            sleep(SECOND / 4).await;
        }
        room.leading.send_replace(lease(8, 1000 * SECOND));
        sleep(SECOND).await;
        assert_eq!(room.due(), ["a"], "it is reconciled, to ask again");
        assert_eq!(room.ask("a", to("x", "one")), None, "{is_noticed}");
        sleep(2 * SECOND).await;
        let reply = response(room.ask("a", to("x", "one")));
        assert_eq!(reply.unwrap(), "one #2", "{is_noticed}");
        room.end().await;
    }
}

/// A reply from before the loss is not kept either.
#[tokio::test(start_paused = true)]
async fn a_new_term_begins_without_replies() {
    let room = room();
    room.ask("a", to("x", "one"));
    sleep(2 * SECOND).await;
    assert!(room.ask("a", to("x", "one")).is_some());
    room.leading.send_replace(lease(8, 1000 * SECOND));
    assert_eq!(room.ask("a", to("x", "one")), None);
    room.end().await;
}

/// The Lease was not renewed in time, and no other process acquired it.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_sends_the_request_again() {
    let room = room();
    room.leading.send_replace(lease(7, SECOND / 2));
    room.ask("a", to("x", "one"));
    sleep(SECOND).await;
    room.leading.send_replace(lease(7, 1000 * SECOND));
    sleep(SECOND).await;
    assert_eq!(room.due(), ["a"]);
    assert_eq!(room.ask("a", to("x", "one")), None);
    sleep(2 * SECOND).await;
    assert!(response(room.ask("a", to("x", "one"))).is_ok());
    assert_eq!(*room.server.answered.lock().unwrap(), 1);
    room.end().await;
}

/// The Lease was renewed before anything read that it had ended.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_can_be_sent_again_in_the_same_term() {
    let (_leading, held) = watch::channel(lease(7, 1000 * SECOND));
    let requests = Requests::new(LIMITS, Leadership::new(held));
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let ask = || {
        let (meta, none) = (object("a").metadata, None::<&TenantStatus>);
        requests.ask(&meta, none, Some(to("x", "one")), now)
    };
    assert_eq!(ask().unwrap(), None);
    let (place, queued) = requests.start_next().unwrap();
    assert!(requests.finish(&place, &queued, None, now), "it is woken");
    assert!(requests.start_next().is_none());
    assert_eq!(ask().unwrap(), None);
    assert!(requests.start_next().is_some());
}

#[tokio::test(start_paused = true)]
async fn requests_are_bounded_and_a_namespace_does_not_delay_another() {
    let room = room();
    // Eight hosts hang for one namespace, four requests each, and four for another namespace.
    let hosts = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (number, host) in hosts.into_iter().cycle().take(32).enumerate() {
        room.ask(&format!("n/{number}"), to(host, "hang"));
    }
    for number in 0..6 {
        room.ask(&format!("other/{number}"), to("slow", "hang"));
    }
    sleep(SECOND).await;
    let load = Load {
        in_flight: LIMITS.per_namespace + LIMITS.per_host,
        in_flight_here: LIMITS.per_namespace,
        waiting_here: 32 - LIMITS.per_namespace,
        is_own_in_flight: false,
    };
    assert_eq!(room.load("n/x"), load);
    assert_eq!(room.load("other/x").in_flight_here, LIMITS.per_host);
    room.ask("third/a", to("quick", "one"));
    sleep(2 * SECOND).await;
    assert!(response(room.ask("third/a", to("quick", "one"))).is_ok());
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_fit_is_asked_again() {
    let limits = Limits {
        in_flight: 1,
        waiting: 1,
        ..LIMITS
    };
    let room = room_with(limits);
    room.ask("a", to("x", "one"));
    sleep(SECOND / 2).await;
    room.ask("b", to("x", "two"));
    assert_eq!(room.ask("c", to("x", "three")), None);
    assert_eq!(room.ask("other/d", to("x", "four")), None);
    assert_eq!(room.load("n/x").waiting_here, 1);
    assert_eq!(room.load("other/x").waiting_here, 1);
    sleep(10 * SECOND).await;
    assert_eq!(room.received().len(), 3, "c did not fit");
    room.ask("c", to("x", "three"));
    sleep(2 * SECOND).await;
    assert!(response(room.ask("c", to("x", "three"))).is_ok());
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_deleted_object() {
    let limits = Limits {
        in_flight: 1,
        ..LIMITS
    };
    let room = room_with(limits);
    let put = |object: ConfigMap| {
        let identity = Identity::of(&object.metadata);
        room.objects.on_applied(identity, object, 1);
    };
    for name in ["a", "b", "c"] {
        put(object(name));
        room.ask(name, to("x", name));
    }
    sleep(SECOND / 2).await;
    // `a` is in flight, `b` and `c` wait. `b` is replaced by another object of its name.
    let mut deleted = object("a");
    deleted.metadata.resource_version = Some("2".to_owned());
    room.objects.on_deleted(&Identity::of(&deleted.metadata));
    let mut other = object("b");
    other.metadata.uid = Some("uid-other".to_owned());
    other.metadata.resource_version = Some("3".to_owned());
    put(other);
    assert_eq!(room.load("n/x").waiting_here, 1, "only c waits");
    sleep(3 * SECOND).await;
    assert_eq!(room.received(), ["a", "c"], "b is gone");
    assert_eq!(room.due(), ["c"], "the reply for a wakes nothing");
    room.ask_nothing("c");
    assert!(room.requests.state().entries.is_empty());
    assert_eq!(room.load("n/x"), Load::default());
    room.end().await;
}

/// A change of the object does not drop its request.
#[tokio::test(start_paused = true)]
async fn a_changed_object_keeps_its_request() {
    let room = room();
    for version in ["1", "2"] {
        let mut object = object("a");
        object.metadata.resource_version = Some(version.to_owned());
        let identity = Identity::of(&object.metadata);
        room.objects.on_applied(identity, object, 1);
        room.ask("a", to("x", "one"));
    }
    sleep(2 * SECOND).await;
    assert_eq!(room.received(), ["one"]);
    assert_eq!(room.due(), ["a"]);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_irreversible_request_is_refused_without_its_stored_intent() {
    let room = room();
    let status = |intent: Option<&str>| TenantStatus {
        intent: intent.map(str::to_owned),
        ..TenantStatus::default()
    };
    let question = Question {
        intent: Some("key-1"),
        ..to("x", "one")
    };
    let meta = object("a").metadata;
    for stored in [None, Some(status(None)), Some(status(Some("key-2")))] {
        let refused = room.requests.ask(
            &meta,
            stored.as_ref(),
            Some(question.clone()),
            room.clock.now(),
        );
        let refused = refused.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Bug);
        let expected = "does not carry its intent 'key-1'";
        assert!(refused.message.contains(expected), "{refused}");
    }
    sleep(2 * SECOND).await;
    assert!(room.received().is_empty());
    let stored = status(Some("key-1"));
    let asked = room
        .requests
        .ask(&meta, Some(&stored), Some(question), room.clock.now());
    assert_eq!(asked.unwrap(), None);
    sleep(2 * SECOND).await;
    assert_eq!(room.received(), ["one"]);
    room.end().await;
}
