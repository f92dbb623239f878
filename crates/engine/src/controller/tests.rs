//! The controller against a server that answers what a test wants, under a fake clock: exact
//! delays and faults that a real API server cannot be made to produce. The same flow runs against
//! the real one in `examples/hello-kind/tests`.

use std::sync::atomic::{AtomicUsize, Ordering};

use api::{
    Reason, Status, Timestamp, Verdict,
    decide::{Decision, Effect, Fault, Input, ResourceType},
    status::Retry,
};
use http::{Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, CustomResource, client::Body};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

mod leading;
mod words;

use super::{
    worker::{Memory, retry_to_store},
    *,
};
use crate::{
    cache::Identity,
    health::Health,
    watch::{Hub, Scope, Watch},
};

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "test",
    version = "v1",
    kind = "Toy",
    namespaced,
    status = "ToyStatus"
)]
struct ToySpec {
    /// What its pass does.
    act: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToyStatus {
    #[serde(default)]
    phase: Option<ToyPhase>,
    #[serde(flatten)]
    progress: api::Progress,
}

api::phases! {
    /// Where a toy stands.
    pub enum ToyPhase {
        Playing: "It is played with.", deadline "none", undo "" => [Broken];
        Broken: "It is over.", deadline "", undo "" => [];
    }
}

impl Status for ToyStatus {
    api::common_status!(ToyPhase, Run);
}

/// Counts its looks, with their times.
#[derive(Default)]
struct ToyKind {
    looks: Mutex<Vec<(String, Instant)>>,
    at_once: AtomicUsize,
    crowd: AtomicUsize,
    most: AtomicUsize,
}

impl Kind for Arc<ToyKind> {
    type Object = Toy;
    type Status = ToyStatus;
    type World = ();
    type External = &'static str;
    const RESOURCE: ResourceType = ResourceType::new("test", "v1", "Toy", "toys");
    const FINALIZER: &'static str = "toys.test/finalizer";

    fn status(object: &Toy) -> Option<&ToyStatus> {
        object.status.as_ref()
    }

    async fn observe(&self, object: &Arc<Toy>, _now: Timestamp) -> Result<(), Fault> {
        self.looks
            .lock()
            .unwrap()
            .push((object.spec.act.clone(), Instant::now()));
        match object.spec.act.as_str() {
            "hang" => std::future::pending().await,
            "crowd" => {
                let count = self.crowd.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(count, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.crowd.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
            "slow" => {
                assert_eq!(
                    self.at_once.fetch_add(1, Ordering::SeqCst),
                    0,
                    "twice at once"
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
            "transient" => Err(Fault::new(Class::Transient, Reason::ApiUnavailable, "away")),
            "denied" => Err(Fault::new(
                Class::Denied,
                Reason::QuotaExceeded,
                "quota 'q' is full",
            )),
            _ => Ok(()),
        }
    }

    fn decide(input: &Input<'_, Toy, ()>) -> Decision<ToyStatus, &'static str> {
        let status = input.object.status.clone().unwrap_or_default();
        let verdict = Verdict::working(Reason::Progressing, "playing");
        match input.object.spec.act.as_str() {
            "panic" => panic!("a toy broke"),
            "irreversible" => {
                Decision::say(status, ToyPhase::Playing, verdict).with(Effect::External {
                    effect: "push",
                    irreversible: Some("intent".to_owned()),
                })
            }
            "unannounced" => {
                let target = api::decide::Target {
                    resource: ResourceType::CONFIG_MAP,
                    namespace: Some("n".to_owned()),
                    name: "data".to_owned(),
                    uid: "uid".to_owned(),
                    version: None,
                    irreversible: None,
                };
                Decision::say(status, ToyPhase::Playing, verdict).with(Effect::Delete(
                    target.irreversible("delete data".to_owned()),
                ))
            }
            "refused" => {
                let labels = api::names::child_labels("Toy", "refused", "uid");
                let body = json!({ "data": {} });
                let (kind, name) = (ResourceType::CONFIG_MAP, "forbidden");
                let map = api::decide::Manifest::new(kind, Some("n"), name, "uid", labels, body);
                Decision::say(status, ToyPhase::Playing, verdict)
                    .with(Effect::Ensure(Box::new(map)))
            }
            "illegal" => Decision::say(
                status,
                ToyPhase::Playing,
                Verdict::working(Reason::Progressing, ""),
            ),
            "contradiction" => Decision::say(status, ToyPhase::Broken, verdict),
            "unhurried" => {
                let mut decision = Decision::say(status, ToyPhase::Playing, verdict);
                decision.record_at = Some("2030-01-01T00:00:10Z".parse().unwrap());
                decision
            }
            _ => Decision::say(status, ToyPhase::Playing, verdict),
        }
    }

    async fn perform(&self, _object: &Toy, _effect: &&'static str) -> Result<(), Fault> {
        panic!("must not be performed")
    }
}

/// A server that keeps what it is sent.
#[derive(Clone, Default)]
struct Server {
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
    refuse: Arc<AtomicBool>,
    /// How long an answer takes.
    delay: Arc<Mutex<Duration>>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let path = parts.uri.path().to_owned();
                server.requests.lock().unwrap().push((
                    parts.method.to_string(),
                    path.clone(),
                    body.clone(),
                ));
                let delay = *server.delay.lock().unwrap();
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let is_forbidden = body["metadata"]["name"] == "forbidden";
                let is_old = path.ends_with("/toys/stale/status")
                    && body["metadata"]["resourceVersion"] == "1";
                let (code, answer) = if is_forbidden {
                    (
                        403,
                        json!({"kind": "Status", "code": 403, "message": "exceeded quota: q"}),
                    )
                } else if is_old {
                    (
                        409,
                        json!({"kind": "Status", "code": 409, "message": "modified"}),
                    )
                } else if server.refuse.load(Ordering::SeqCst) {
                    (
                        503,
                        json!({"kind": "Status", "code": 503, "message": "away"}),
                    )
                } else {
                    let mut answer = body;
                    answer["metadata"]["resourceVersion"] = json!("1000");
                    let toy = path.rsplit('/').next().unwrap_or_default();
                    if ["refused", "stale"].contains(&toy) {
                        answer["metadata"]["name"] = json!(toy);
                        answer["metadata"]["namespace"] = json!("n");
                        answer["metadata"]["generation"] = json!(1);
                        answer["metadata"]["uid"] = json!(format!("uid-{toy}"));
                        answer["spec"] = json!({ "act": toy });
                        answer["apiVersion"] = json!("test/v1");
                        answer["kind"] = json!("Toy");
                    }
                    (200, answer)
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        Client::new(service, "default")
    }

    fn statuses(&self, name: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(_, path, _)| path.ends_with(&format!("/toys/{name}/status")))
            .map(|(_, _, body)| body["status"].clone())
            .collect()
    }
}

struct Room {
    kind: Arc<ToyKind>,
    objects: Cache<Toy>,
    server: Server,
    handle: Handle,
    metrics: Metrics,
    health: Health,
    /// Until when it leads.
    leading: watch::Sender<Option<Instant>>,
    stop: crate::supervise::Trigger,
    task: JoinSet<Result<(), String>>,
    seed: u64,
}

/// A controller with these toys (their names say what they do), running.
fn room(toys: &[&str]) -> Room {
    let server = Server::default();
    let client = server.client();
    let (metrics, health) = (Metrics::default(), Health::default());
    let mut hub = Hub::new(client.clone(), metrics.clone(), health.clone(), Scope::All);
    let watch = Watch::<Toy, Toy> {
        labels: None,
        fields: None,
        thin: |toy| toy,
        index: |_| vec![],
    };
    let objects = hub.namespaced(("test", "toys"), watch);
    let caches = hub.without_watches();
    for name in toys {
        put(&objects, name, 1, 1, None);
    }
    let (leading, until) = watch::channel(later(365 * DAY));
    let (stop, shutdown) = Shutdown::pair();
    let kind = Arc::new(ToyKind::default());
    let context = Context {
        client,
        metrics: metrics.clone(),
        health: health.clone(),
        clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
        leading: Leading::new(until),
        identity: "test".to_owned(),
        concurrency: 4,
        limit: PASS,
        seed: 7,
    };
    let controller = Controller::new(Arc::clone(&kind), objects.clone(), context);
    let handle = controller.handle();
    let mut task = JoinSet::new();
    task.spawn(controller.run(caches, shutdown));
    Room {
        kind,
        objects,
        server,
        handle,
        metrics,
        health,
        leading,
        stop,
        task,
        seed: 7,
    }
}

/// The part of a name before a dot says what the toy does.
fn put(objects: &Cache<Toy>, name: &str, version: u64, generation: i64, status: Option<ToyStatus>) {
    let mut toy = Toy::new(
        name,
        ToySpec {
            act: name.split('.').next().unwrap_or_default().to_owned(),
        },
    );
    toy.metadata.namespace = Some("n".to_owned());
    toy.metadata.uid = Some(format!("uid-{name}"));
    toy.metadata.generation = Some(generation);
    toy.metadata.resource_version = Some(version.to_string());
    toy.status = status;
    objects.seen(Identity::of(&toy.metadata), toy, 1);
}

impl Room {
    fn looks(&self, act: &str) -> Vec<Instant> {
        let looks = self.kind.looks.lock().unwrap();
        looks
            .iter()
            .filter(|(name, _)| name == act)
            .map(|(_, at)| *at)
            .collect()
    }

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    async fn end(mut self) {
        self.stop.pull();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

fn later(time: Duration) -> Option<Instant> {
    Some(Instant::now() + time)
}

#[tokio::test(start_paused = true)]
async fn delays_are_exact_also_under_a_burst_of_events() {
    for burst in [false, true] {
        let room = room(&["denied"]);
        for step in 0..6000_u64 {
            pass(SECOND / 10).await;
            if burst {
                room.handle.touch(&Room::key("denied"));
                // Our own status write comes back as an event of the object.
                put(&room.objects, "denied", 2 + step, 1, None);
            }
        }
        let looks = room.looks("denied");
        let mut due = looks[0];
        for (attempt, look) in (1..).zip(&looks) {
            let late = look.saturating_duration_since(due);
            assert!(
                *look >= due && late < SECOND / 50,
                "attempt {attempt}, late by {late:?}"
            );
            due = *look + backoff::delay(room.seed, &Room::key("denied"), Class::Denied, attempt);
        }
        assert!(
            looks.len() > 5 && looks.len() < 15,
            "{} looks in ten minutes",
            looks.len()
        );
        room.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_is_looked_at_at_once_and_begins_to_count_again() {
    let room = room(&["denied"]);
    pass(300 * SECOND).await;
    let before = room.looks("denied").len();
    put(&room.objects, "denied", 50, 2, None);
    pass(SECOND / 10).await;
    assert_eq!(room.looks("denied").len(), before + 1);
    let last = room.server.statuses("denied").pop().unwrap();
    assert_eq!(last["observedGeneration"], 2);
    pass(5 * SECOND).await;
    assert!(
        room.looks("denied").len() > before + 1,
        "the second attempt comes within 5 s again"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_pass_is_cut_and_reported_while_others_go_on() {
    let room = room(&["hang", "play"]);
    pass(PASS - SECOND).await;
    put(&room.objects, "play", 5, 2, None);
    pass(SECOND / 2).await;
    assert_eq!(room.looks("play").len(), 2, "the other one goes on");
    assert!(room.server.statuses("hang").is_empty());
    pass(SECOND).await;
    let status = room.server.statuses("hang").pop().expect("it is reported");
    assert_eq!(
        status["message"],
        "the pass did not end within 60 s and was cut off"
    );
    assert!(status["conditions"].to_string().contains("InternalError"));
    assert!(
        room.metrics
            .text()
            .contains(r#"reconcile_errors_total{kind="Toy",class="Bug"} 1"#)
    );
    pass(PASS + 20 * SECOND).await;
    assert!(room.looks("hang").len() > 1, "it is tried again");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_decide_hurts_one_object() {
    let room = room(&["panic", "play"]);
    pass(SECOND).await;
    let status = room.server.statuses("panic").pop().expect("it is reported");
    assert_eq!(status["phase"], "Playing", "the status is not empty");
    assert_eq!(
        status["message"],
        "a decision or its execution panicked: a toy broke"
    );
    assert_eq!(room.server.statuses("play").len(), 1);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_no_decision_may_ask_for_is_refused_as_a_bug() {
    let room = room(&["irreversible", "unannounced", "contradiction"]);
    pass(SECOND).await;
    for (toy, words) in [
        (
            "irreversible",
            "the stored status does not carry its intent 'intent'",
        ),
        (
            "unannounced",
            "the stored status does not carry its intent 'delete data'",
        ),
        ("contradiction", "contradict each other"),
    ] {
        let status = room.server.statuses(toy).pop().expect("it is reported");
        assert!(
            status["message"].as_str().unwrap().contains(words),
            "{status}"
        );
    }
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_status_is_not_touched_by_a_decision_that_leaves_it() {
    let room = room(&[]);
    let mut status = ToyStatus {
        phase: Some(ToyPhase::Broken),
        ..ToyStatus::default()
    };
    status.progress.observed_generation = 1;
    pass(SECOND).await;
    put(&room.objects, "illegal", 2, 1, Some(status));
    pass(SECOND).await;
    assert_eq!(room.looks("illegal").len(), 1);
    assert!(room.server.statuses("illegal").is_empty(), "T8");
    assert!(
        room.metrics
            .text()
            .contains(r#"reconcile_errors_total{kind="Toy",class="Bug"} 1"#)
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_transient_fault_is_shown_after_half_a_minute_and_not_before() {
    let room = room(&["transient"]);
    pass(29 * SECOND).await;
    assert!(room.looks("transient").len() > 3);
    assert!(room.server.statuses("transient").is_empty());
    pass(60 * SECOND).await;
    let status = room.server.statuses("transient").remove(0);
    assert!(
        status["conditions"].to_string().contains("ApiUnavailable"),
        "{status}"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn r14_a_record_that_fails_is_counted_and_tried_again() {
    let room = room(&["play"]);
    room.server.refuse.store(true, Ordering::SeqCst);
    pass(20 * SECOND).await;
    let tries = room.server.statuses("play").len();
    assert!(tries > 3, "{tries}");
    assert!(room.metrics.text().contains(r#"class="Transient"}"#));
    room.server.refuse.store(false, Ordering::SeqCst);
    pass(40 * SECOND).await;
    let after = room.server.statuses("play").len();
    pass(300 * SECOND).await;
    assert_eq!(
        room.server.statuses("play").len(),
        after,
        "once it succeeded it is quiet"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn r02_no_result_of_a_look_is_dropped() {
    let room = room(&["play", "panic", "transient", "denied", "hang"]);
    pass(PASS + SECOND).await;
    let text = room.metrics.text();
    let count = |series: &str| -> usize {
        let lines = text
            .lines()
            .filter(|line| line.contains(series) && line.contains("_count"));
        lines
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .unwrap_or_default()
                    .parse::<usize>()
                    .unwrap()
            })
            .sum()
    };
    let looks = room.kind.looks.lock().unwrap().len();
    assert_eq!(
        count("reconcile_duration_seconds"),
        looks,
        "each look has an outcome: {text}"
    );
    assert_eq!(count(r#"outcome="Completed""#), 1, "{text}");
    let errors = text
        .lines()
        .filter(|line| line.starts_with("orchestrator_reconcile_errors_total"));
    let errors: usize = errors
        .map(|line| {
            line.rsplit(' ')
                .next()
                .unwrap_or_default()
                .parse::<usize>()
                .unwrap()
        })
        .sum();
    assert_eq!(errors, looks - 1, "each fault is counted: {text}");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_from_a_cache_that_nobody_feeds() {
    let room = room(&["play"]);
    pass(SECOND).await;
    let before = room.looks("play").len();
    room.health.feeds().interrupted(0, "forbidden");
    pass(3 * SECOND).await;
    put(&room.objects, "play", 5, 2, None);
    pass(60 * SECOND).await;
    assert_eq!(room.looks("play").len(), before, "not looked at");
    let status = room.server.statuses("play").pop().expect("it is said");
    let message = status["message"].as_str().unwrap();
    assert_eq!(message, "the watch of toys: forbidden");
    room.health.feeds().came(0);
    pass(40 * SECOND).await;
    assert!(room.looks("play").len() > before, "and goes on");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_recorded_on_what_the_same_pass_wrote_before() {
    let room = room(&["refused"]);
    pass(SECOND).await;
    let requests = room.server.requests.lock().unwrap().clone();
    let paths: Vec<(&str, &str)> = requests
        .iter()
        .map(|(method, path, _)| (method.as_str(), path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(paths[0], ("PATCH", "refused"), "the finalizer: {paths:?}");
    let (_, _, status) = requests
        .iter()
        .find(|(_, path, _)| path.ends_with("/status"))
        .unwrap();
    assert_eq!(
        status["metadata"]["resourceVersion"], "1000",
        "that of the finalizer's answer"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_stays_is_resolved_by_one_live_read() {
    let room = room(&["stale"]);
    pass(10 * SECOND).await;
    let requests = room.server.requests.lock().unwrap().clone();
    let reads = requests
        .iter()
        .filter(|(method, ..)| method == "GET")
        .count();
    assert_eq!(reads, 1, "at the third conflict, not before and not again");
    assert_eq!(
        room.server.statuses("stale").len(),
        4,
        "three were refused, the fourth is written"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_may_wait_is_written_at_its_time_and_not_before() {
    let room = room(&["unhurried"]);
    pass(9 * SECOND).await;
    room.handle.touch(&Room::key("unhurried"));
    pass(SECOND / 2).await;
    assert!(room.looks("unhurried").len() >= 2);
    assert!(room.server.requests.lock().unwrap().is_empty());
    pass(SECOND).await;
    assert_eq!(room.server.statuses("unhurried").len(), 1);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_keys_are_looked_at_at_once_than_configured() {
    let names: Vec<String> = (0..10).map(|number| format!("crowd.{number}")).collect();
    let room = room(&names.iter().map(String::as_str).collect::<Vec<_>>());
    pass(5 * SECOND).await;
    assert_eq!(room.looks("crowd").len(), 10);
    assert_eq!(room.kind.most.load(Ordering::SeqCst), 4);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_key_is_never_looked_at_twice_at_once() {
    let room = room(&["slow"]);
    for version in 2..50 {
        put(
            &room.objects,
            "slow",
            version,
            i64::try_from(version).unwrap(),
            None,
        );
        room.handle.urgent(&Room::key("slow"));
        pass(SECOND / 10).await;
    }
    assert!(room.looks("slow").len() >= 4);
    room.end().await;
}

#[test]
fn a_fault_that_lasts_is_quiet_once_its_delay_does_not_grow() {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let fault = Fault::new(Class::Denied, Reason::QuotaExceeded, "full");
    let mut status = ToyStatus::default();
    let mut writes = Vec::new();
    for attempt in 1..40 {
        let memory = Memory {
            uid: String::new(),
            class: Class::Denied,
            attempt,
            generation: 1,
            since: now,
        };
        let delay = backoff::ceiling(Class::Denied, attempt);
        let later = now.checked_add(delay).unwrap();
        let retry = retry_to_store(Some(&status), &fault, &memory, delay, later);
        if retry != status.progress.retry {
            writes.push(attempt);
        }
        status.progress.retry = retry;
    }
    assert_eq!(
        writes,
        [2, 3, 4, 5, 6, 7],
        "10 s is stored, 300 s is reached at the seventh"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stored_retry_is_kept_over_a_restart() {
    let room = room(&[]);
    pass(SECOND).await;
    let now: Timestamp = "2030-01-01T00:00:01Z".parse().unwrap();
    let mut status = ToyStatus {
        phase: Some(ToyPhase::Playing),
        ..ToyStatus::default()
    };
    status.progress.observed_generation = 1;
    status.progress.retry = Some(Retry {
        attempt: 5,
        class: "Denied".to_owned(),
        next_at: Time(now.checked_add(60 * SECOND).unwrap()),
    });
    put(&room.objects, "denied", 2, 1, Some(status));
    pass(59 * SECOND).await;
    assert!(room.looks("denied").is_empty(), "not before its time");
    pass(2 * SECOND).await;
    assert_eq!(room.looks("denied").len(), 1);
    let status = room.server.statuses("denied").pop().unwrap();
    assert_eq!(
        status["retry"]["attempt"].as_u64().unwrap_or(6),
        6,
        "it counts on: {status}"
    );
    room.end().await;
}
