//! Tests of the controller with a fake clock and a server that responds as the test wants. They
//! check exact delays, and faults that a real API server cannot be made to produce. The tests in
//! `examples/hello-kind/tests` run the same loop on a real API server.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use api::{
    Reason, Status, Timestamp, Verdict,
    decide::{Decision, Effect, Input, Manifest, ReconcileError, ResourceType, Target},
    phase::{Deadline, Undo},
};
use http::{Request, Response};
use kube::{Client, CustomResource, client::Body};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

mod cleanup;
mod confirming;
mod delays;
mod fairness;
mod gate;
mod health;
mod leading;
mod locks;
mod logs;
mod optional;
mod phases;
mod records;
mod server;
mod undo;
mod urgent;
mod waits;
mod watching;
mod words;

use self::server::Server;
use super::*;
use crate::{
    cache::{Identity, InvalidObject},
    health::Health,
    leader::HeldLease,
    watch::{Scope, Watch, WatchManager},
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
    /// The action of its reconciliation.
    act: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToyStatus {
    #[serde(default)]
    phase: Option<ToyPhase>,
    #[serde(flatten)]
    progress: api::CommonStatus,
}

api::phases! {
    /// Phases of a toy.
    pub enum ToyPhase for () {
        Playing: "It is played with.", deadline Deadline::none(""), undo Undo::None => [Broken];
        Broken: "It is over.", deadline Deadline::none(""), undo Undo::None => [];
    }
}

impl Status for ToyStatus {
    api::common_status!(ToyPhase, RunToCompletion);
}

/// A kind that records its reconciliations, with their times.
#[derive(Default)]
struct ToyKind {
    looks: Mutex<Vec<(String, Instant)>>,
    crowd: AtomicUsize,
    /// Highest number of toys that were reconciled at the same time.
    most: AtomicUsize,
    server: Server,
}

impl Kind for Arc<ToyKind> {
    type Object = Toy;
    type Status = ToyStatus;
    /// Number of ConfigMaps that were created.
    type World = usize;
    const RESOURCE: ResourceType = ResourceType::new("test", "v1", "Toy", "toys");
    const FINALIZER: &'static str = "toys.test/finalizer";

    fn labels(toy: &Toy) -> BTreeMap<&'static str, String> {
        records::labels(toy)
    }

    fn status(object: &Toy) -> Option<&ToyStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &Toy) -> &() {
        &()
    }

    async fn observe(&self, object: &Arc<Toy>, _now: Timestamp) -> Result<usize, ReconcileError> {
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
                Ok(0)
            }
            "transient" => Err(ReconcileError::new(
                ErrorClass::Transient,
                Reason::ApiUnavailable,
                "away",
            )),
            "conflict" => Err(ReconcileError::new(
                ErrorClass::Conflict,
                Reason::Progressing,
                "met",
            )),
            "invalid" => Err(ReconcileError::new(
                ErrorClass::Invalid,
                Reason::InvalidChild,
                "wrong",
            )),
            "failed" => Err(ReconcileError::new(
                ErrorClass::Failed,
                Reason::NotReady,
                "broke",
            )),
            "denied" => Err(ReconcileError::new(
                ErrorClass::Denied,
                Reason::QuotaExceeded,
                "quota 'q' is full",
            )),
            _ => {
                let sent = self.server.sent();
                Ok(sent
                    .iter()
                    .filter(|sent| *sent == "POST configmaps")
                    .count())
            }
        }
    }

    fn decide(input: &Input<'_, Toy, usize>) -> Decision<ToyStatus> {
        let status = input.object.status.clone().unwrap_or_default();
        let verdict = Verdict::working(Reason::Progressing, "playing");
        match input.object.spec.act.as_str() {
            "panic" => panic!("a toy broke"),
            "irreversible" => {
                let manifest = child(ResourceType::CONFIG_MAP, "push");
                let manifest = manifest.requires_intent("intent".to_owned());
                Decision::status_only(status, ToyPhase::Playing, verdict)
                    .with(Effect::Ensure(Box::new(manifest)))
            }
            "unannounced" => Decision::status_only(status, ToyPhase::Playing, verdict).with(
                Effect::Delete(target("data").requires_intent("delete data".to_owned())),
            ),
            "labeled-busy" => Decision::status_only(status, ToyPhase::Playing, verdict).with(
                Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, "toy"))),
            ),
            "labeled-blocked" => Decision::status_only(
                status,
                ToyPhase::Playing,
                Verdict::stalled(Reason::NotReady, "waits"),
            ),
            "labeled-ended" => Decision::status_only(
                status,
                ToyPhase::Broken,
                Verdict::failed(Reason::NonZeroExit, "broken"),
            )
            .remove_finalizer(),
            "refused" => Decision::status_only(status, ToyPhase::Playing, verdict).with(
                Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, "forbidden"))),
            ),
            "effects" => {
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.effects = logs::effects();
                decision
            }
            "patient" | "hanging" | "webhook" => waits::decide(input, status),
            "stubborn" | "blocked" => waits::decide_stop(input, status),
            "many" => {
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.effects = records::missing_children(*input.world);
                decision
            }
            "scales" => {
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.effects = records::scales_first();
                decision
            }
            "bounds" => {
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.effects = records::bounds();
                decision
            }
            "over" => Decision::status_only(
                status,
                ToyPhase::Broken,
                Verdict::failed(Reason::NonZeroExit, "broken"),
            )
            .remove_finalizer()
            .with(Effect::Delete(target("forbidden"))),
            "leftover" => match input.fault {
                None => Decision::status_only(status, ToyPhase::Playing, verdict)
                    .with(Effect::Delete(target("forbidden").optional()))
                    .with(Effect::Delete(target("after"))),
                Some(fault) => {
                    let verdict = Verdict::working(Reason::Progressing, fault.message.clone());
                    Decision::status_only(status, ToyPhase::Playing, verdict)
                }
            },
            "illegal" => Decision::status_only(
                status,
                ToyPhase::Playing,
                Verdict::working(Reason::Progressing, ""),
            ),
            "absent" | "endless" => {
                let is_asking = !input.confirmed || input.object.spec.act == "endless";
                let verdict = Verdict::working(Reason::Progressing, "it is really absent");
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.confirm = confirming::reads().filter(|_| is_asking).collect();
                decision
            }
            "contradiction" => Decision::status_only(status, ToyPhase::Broken, verdict),
            "deadline" => {
                let decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                let deadline: Timestamp = "2030-01-01T01:00:00Z".parse().unwrap();
                if input.now < deadline {
                    decision.requeue_at(deadline)
                } else {
                    decision
                }
            }
            "unhurried" => {
                let mut decision = Decision::status_only(status, ToyPhase::Playing, verdict);
                decision.defer_status_until = Some("2030-01-01T00:00:10Z".parse().unwrap());
                decision
            }
            _ => Decision::status_only(status, ToyPhase::Playing, verdict),
        }
    }
}

/// Returns a child of a toy.
fn child(resource: ResourceType, name: &str) -> Manifest {
    let labels = api::names::child_labels("Toy", "toy", "uid");
    let body = json!({ "data": { "key": "body-of-a-child" } });
    Manifest::new(resource, Some("n"), name, "uid", labels, body)
}

/// Returns a target: a ConfigMap that exists.
fn target(name: &str) -> Target {
    Target {
        resource: ResourceType::CONFIG_MAP,
        namespace: Some("n".to_owned()),
        name: name.to_owned(),
        uid: "uid".to_owned(),
        version: None,
        requires_intent: None,
        optional: false,
    }
}

struct Room {
    kind: Arc<ToyKind>,
    objects: Cache<Toy>,
    gadgets: OptionalCache<()>,
    server: Server,
    handle: Handle,
    metrics: Metrics,
    health: Health,
    clock: Clock,
    /// Its leadership.
    leading: watch::Sender<Option<HeldLease>>,
    stop: crate::supervise::Trigger,
    task: JoinSet<Result<(), String>>,
}

/// Starts a controller with these toys. The name of a toy is its action.
fn room(toys: &[&str]) -> Room {
    room_with(toys, |_| {})
}

fn room_with(toys: &[&str], change: impl FnOnce(&mut Context)) -> Room {
    room_in(Scope::All, toys, change)
}

fn room_in(scope: Scope, toys: &[&str], change: impl FnOnce(&mut Context)) -> Room {
    room_on(scope, toys, change, false)
}

/// Starts a controller. If `depends_on_gadgets`, its decisions read a type that may not be installed.
fn room_on(
    scope: Scope,
    toys: &[&str],
    change: impl FnOnce(&mut Context),
    depends_on_gadgets: bool,
) -> Room {
    let server = Server::default();
    let client = server.client();
    let (metrics, health) = (Metrics::default(), Health::default());
    let mut watches = WatchManager::new(client.clone(), metrics.clone(), health.clone(), scope);
    let watch = Watch::<Toy, Toy> {
        labels: None,
        fields: None,
        transform: Arc::new(|toy, _| toy),
        index: |_| vec![],
    };
    let objects = watches.namespaced(("test", "toys"), watch);
    confirming::watch(&mut watches);
    let gadgets = optional::watch(&mut watches);
    let caches = watches.without_watches();
    for name in toys {
        put(&objects, name, 1, 1, None);
    }
    let (leading, until) = watch::channel(later(365 * DAY));
    let (stop, shutdown) = Shutdown::pair();
    let kind = Arc::new(ToyKind {
        server: server.clone(),
        ..ToyKind::default()
    });
    let mut context = Context {
        client,
        metrics: metrics.clone(),
        health: health.clone(),
        clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
        leading: Leadership::new(until),
        identity: "test".to_owned(),
        concurrency: 4,
        limit: RECONCILE_TIMEOUT,
        seed: 7,
    };
    change(&mut context);
    let clock = context.clock.clone();
    let mut controller = Controller::new(Arc::clone(&kind), objects.clone(), context);
    if depends_on_gadgets {
        controller = controller.depends_on(&gadgets);
    }
    let handle = controller.handle();
    let mut task = JoinSet::new();
    let beats = health.clone().tick(shutdown.clone());
    task.spawn(async { beats.await.map_err(|never| match never {}) });
    task.spawn(controller.run(caches, shutdown));
    Room {
        kind,
        objects,
        gadgets,
        server,
        handle,
        metrics,
        health,
        clock,
        leading,
        stop,
        task,
    }
}

/// Puts a toy into the cache. The part of its name before a dot is its action.
fn put(objects: &Cache<Toy>, name: &str, version: u64, generation: i64, status: Option<ToyStatus>) {
    let toy = toy("n", name, version, generation, status);
    objects.on_applied(Identity::of(&toy.metadata), toy, 1);
}

fn toy(
    namespace: &str,
    name: &str,
    version: u64,
    generation: i64,
    status: Option<ToyStatus>,
) -> Toy {
    let mut toy = Toy::new(
        name,
        ToySpec {
            act: name.split('.').next().unwrap_or_default().to_owned(),
        },
    );
    toy.metadata.namespace = Some(namespace.to_owned());
    toy.metadata.uid = Some(format!("uid-{name}"));
    toy.metadata.generation = Some(generation);
    toy.metadata.resource_version = Some(version.to_string());
    toy.status = status;
    toy
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

fn later(time: Duration) -> Option<HeldLease> {
    Some(HeldLease {
        until: Instant::now() + time,
        acquired_version: 0,
    })
}

#[tokio::test(start_paused = true)]
async fn a_hanging_pass_is_cut_and_reported_while_others_go_on() {
    let room = room(&["hang", "play"]);
    pass(RECONCILE_TIMEOUT - SECOND).await;
    put(&room.objects, "play", 5, 2, None);
    pass(SECOND / 2).await;
    assert_eq!(room.looks("play").len(), 2, "the other one goes on");
    assert!(room.server.statuses("hang").is_empty());
    pass(SECOND).await;
    let status = room.server.statuses("hang").pop().expect("it is reported");
    assert_eq!(
        status["message"],
        "the pass did not end within 75 s and was cut off"
    );
    assert!(status["conditions"].to_string().contains("InternalError"));
    assert!(
        room.metrics
            .text()
            .contains(r#"reconcile_errors_total{kind="Toy",class="Bug"} 1"#)
    );
    pass(RECONCILE_TIMEOUT + 20 * SECOND).await;
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
async fn a_transient_fault_is_shown_after_two_seconds_and_not_before() {
    let room = room(&["transient"]);
    pass(19 * SECOND / 10).await;
    assert!(room.looks("transient").len() > 1);
    assert!(room.server.statuses("transient").is_empty());
    pass(SECOND / 5).await;
    let status = room.server.statuses("transient").remove(0);
    assert!(
        status["conditions"].to_string().contains("ApiUnavailable"),
        "{status}"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn r02_no_result_of_a_look_is_dropped() {
    let room = room(&["play", "panic", "transient", "denied", "hang"]);
    pass(RECONCILE_TIMEOUT + SECOND).await;
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
    let room = room(&["crowd"]);
    for version in 2..50 {
        put(
            &room.objects,
            "crowd",
            version,
            i64::try_from(version).unwrap(),
            None,
        );
        room.handle.enqueue_now(&Room::key("crowd"));
        pass(SECOND / 10).await;
    }
    assert!(room.looks("crowd").len() >= 4);
    assert_eq!(room.kind.most.load(Ordering::SeqCst), 1);
    assert!(!room.metrics.text().contains(r#"class="Bug""#));
    room.end().await;
}
