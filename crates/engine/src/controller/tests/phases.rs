//! The deadline, the progress and the undo of a phase, through whole reconciliations.

use api::{Phase, PhaseRow, phase::Limit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    apply::Applier,
    reconcile::{Outcome, Reconciler},
};

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "test",
    version = "v1",
    kind = "Tank",
    namespaced,
    status = "TankStatus"
)]
struct TankSpec {
    /// Longest time without progress, in seconds.
    idle: u64,
    /// Longest time to fill it, in seconds.
    cap: u64,
    /// Whether its decisions ignore the deadline and the undo.
    is_stubborn: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TankStatus {
    #[serde(default)]
    phase: Option<TankPhase>,
    #[serde(flatten)]
    progress: api::CommonStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum TankPhase {
    Filling,
    Draining,
    Failed,
}

// Not by the macro: it declares a public enum, and the spec is private.
impl Phase for TankPhase {
    type Spec = TankSpec;

    const TABLE: &'static [PhaseRow<Self>] = &[
        PhaseRow {
            phase: Self::Filling,
            meaning: "",
            deadline: Deadline::progress(
                Limit {
                    text: "`idle`",
                    of: |spec: &TankSpec| Duration::from_secs(spec.idle),
                },
                Limit {
                    text: "`cap`",
                    of: |spec: &TankSpec| Duration::from_secs(spec.cap),
                },
                TankPhase::Failed,
            ),
            undo: Undo::Phase(TankPhase::Draining),
            next: &[Self::Draining, Self::Failed],
        },
        PhaseRow {
            phase: Self::Draining,
            meaning: "",
            deadline: Deadline::none(""),
            undo: Undo::None,
            next: &[Self::Failed],
        },
        PhaseRow {
            phase: Self::Failed,
            meaning: "",
            deadline: Deadline::none(""),
            undo: Undo::None,
            next: &[],
        },
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Filling => "Filling",
            Self::Draining => "Draining",
            Self::Failed => "Failed",
        }
    }
}

impl Status for TankStatus {
    api::common_status!(TankPhase, RunToCompletion);
}

/// A kind with a level that the test sets.
#[derive(Default)]
struct TankKind(Mutex<&'static str>);

impl Kind for TankKind {
    type Object = Tank;
    type Status = TankStatus;
    type World = &'static str;
    const RESOURCE: ResourceType = ResourceType::new("test", "v1", "Tank", "tanks");
    const FINALIZER: &'static str = "tanks.test/finalizer";

    fn status(object: &Tank) -> Option<&TankStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &Tank) -> &TankSpec {
        &object.spec
    }

    fn phase_progress(level: &&'static str) -> Option<String> {
        Some((*level).to_owned())
    }

    async fn observe(
        &self,
        _object: &Arc<Tank>,
        _now: Timestamp,
    ) -> Result<&'static str, ReconcileError> {
        Ok(*self.0.lock().unwrap())
    }

    fn decide(input: &Input<'_, Tank, &'static str>) -> Decision<TankStatus> {
        use TankPhase::{Draining, Failed, Filling};
        let status = input.object.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or(Filling);
        let is_deleting = input.object.metadata.deletion_timestamp.is_some();
        let is_stubborn = input.object.spec.is_stubborn;
        let working = |status: TankStatus, phase: TankPhase| {
            let verdict = Verdict::working(Reason::Progressing, "it is busy");
            Decision::status_only(status, phase, verdict)
        };
        match phase {
            Filling if is_deleting && is_stubborn => working(status, Filling).remove_finalizer(),
            Filling if is_deleting => working(status, Draining),
            Filling if input.overdue && !is_stubborn => {
                let verdict = Verdict::failed(Reason::DeadlineExceeded, "it was not filled");
                Decision::status_only(status, Failed, verdict)
            }
            Filling => working(status, Filling),
            Draining => working(status, Draining).remove_finalizer(),
            Failed => {
                let verdict = Verdict::failed(Reason::DeadlineExceeded, "");
                Decision::status_only(status, Failed, verdict)
            }
        }
    }
}

/// A tank that is reconciled when the test wants it.
struct Bench {
    reconciler: Reconciler<TankKind>,
    server: Server,
    tank: Tank,
    _leading: watch::Sender<Option<HeldLease>>,
}

fn bench(is_stubborn: bool) -> Bench {
    let server = Server::default();
    let client = server.client();
    let (metrics, health) = (Metrics::default(), Health::default());
    let watches = WatchManager::new(client.clone(), metrics.clone(), health, Scope::All);
    let (leading, until) = watch::channel(later(DAY));
    let spec = TankSpec {
        idle: 80,
        cap: 200,
        is_stubborn,
    };
    let mut tank = Tank::new("tank", spec);
    tank.metadata.namespace = Some("n".to_owned());
    tank.metadata.generation = Some(1);
    Bench {
        reconciler: Reconciler {
            kind: Arc::new(TankKind::default()),
            applier: Applier::new(client, watches.without_watches()),
            clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
            metrics,
            leading: Leadership::new(until),
            identity: "test".to_owned(),
        },
        server,
        tank,
        _leading: leading,
    }
}

impl Bench {
    fn fill(&self, level: &'static str) {
        *self.reconciler.kind.0.lock().unwrap() = level;
    }

    /// Returns the patches of the status.
    fn patches(&self) -> Vec<Value> {
        let requests = self.server.requests.lock().unwrap();
        let of_status = requests
            .iter()
            .filter(|(_, path, _)| path.ends_with("/status"));
        of_status
            .map(|(_, _, body)| body["status"].clone())
            .collect()
    }

    /// Reconciles once, and stores the status that was written.
    async fn reconcile(&mut self) -> Result<Outcome, String> {
        let before = self.patches().len();
        let (tank, yield_at) = (Arc::new(self.tank.clone()), Instant::now() + DAY);
        let outcome = self.reconciler.reconcile(&tank, yield_at).await;
        for patch in &self.patches()[before..] {
            let mut status = json!(self.tank.status.clone().unwrap_or_default());
            merge(&mut status, patch);
            self.tank.status = Some(serde_json::from_value(status).unwrap());
        }
        outcome.map_err(|(fault, _)| fault.to_string())
    }

    fn delete(&mut self) {
        let now = self.reconciler.clock.now();
        self.tank.metadata.deletion_timestamp = Some(Time(now));
        self.tank.metadata.finalizers = Some(vec![TankKind::FINALIZER.to_owned()]);
    }

    fn phase(&self) -> Option<TankPhase> {
        self.tank.status.as_ref().and_then(|status| status.phase)
    }
}

/// Applies a merge patch, as the API server does.
fn merge(target: &mut Value, patch: &Value) {
    for (name, value) in patch.as_object().unwrap() {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else if value.is_object() && target[name].is_object() {
            merge(&mut target[name], value);
        } else {
            target[name] = value.clone();
        }
    }
}

fn in_seconds(count: u64) -> Outcome {
    let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    Outcome::Completed(Some(start + Duration::from_secs(count)))
}

#[tokio::test(start_paused = true)]
async fn a_phase_ends_without_progress_and_its_deadline_needs_no_write_of_its_own() {
    let mut bench = bench(false);
    bench.fill("10%");
    assert_eq!(bench.reconcile().await, Ok(in_seconds(80)));
    let patches = bench.patches();
    assert_eq!(patches.len(), 1, "the write that enters the phase");
    assert_eq!(patches[0]["phaseStartedAt"], "2030-01-01T00:00:00Z");
    assert_eq!(patches[0]["deadlineAt"], "2030-01-01T00:01:20Z");
    assert_eq!(bench.reconcile().await, Ok(in_seconds(80)));
    assert_eq!(bench.patches().len(), 1, "nothing is new");

    // Progress at the last moment moves the deadline.
    pass(79 * SECOND).await;
    bench.fill("20%");
    assert_eq!(bench.reconcile().await, Ok(in_seconds(159)));
    assert_eq!(bench.patches().len(), 2);
    // A fast step is recorded at its time, and not at once.
    pass(SECOND).await;
    bench.fill("30%");
    assert_eq!(bench.reconcile().await, Ok(in_seconds(89)));
    assert_eq!(bench.patches().len(), 2);
    pass(70 * SECOND).await;
    bench.fill("40%");
    assert_eq!(bench.reconcile().await, Ok(in_seconds(200)), "the cap");
    assert_eq!(bench.phase(), Some(TankPhase::Filling));
    pass(50 * SECOND).await;
    bench.fill("50%");
    assert_eq!(bench.reconcile().await, Ok(Outcome::Completed(None)));
    assert_eq!(bench.phase(), Some(TankPhase::Failed));
    let status = bench.tank.status.clone().unwrap();
    assert_eq!(status.progress.deadline_at, None);
    assert_eq!(status.progress.phase_progress, None);
    assert!(status.progress.is_true("Finished"));
}

#[tokio::test(start_paused = true)]
async fn an_overdue_phase_that_is_not_left_is_a_bug() {
    let mut bench = bench(true);
    bench.reconcile().await.unwrap();
    pass(79 * SECOND).await;
    bench.reconcile().await.unwrap();
    pass(SECOND).await;
    let error = bench.reconcile().await.unwrap_err();
    assert!(
        error.contains("to stay in Filling after its deadline"),
        "{error}"
    );
    assert!(error.contains("leads to Failed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_phase_is_undone_before_a_deleted_object_is_released() {
    let mut careless = bench(true);
    careless.reconcile().await.unwrap();
    careless.delete();
    let error = careless.reconcile().await.unwrap_err();
    assert!(error.contains("Draining has to undo it first"), "{error}");
    assert!(
        careless
            .server
            .sent()
            .iter()
            .all(|sent| sent != "PATCH tank")
    );
    // The user can release it without the undo.
    let forced = (api::names::FORCE_DELETE.to_owned(), "true".to_owned());
    careless.tank.metadata.annotations = Some([forced].into());
    assert_eq!(careless.reconcile().await, Ok(Outcome::Completed(None)));
    assert!(careless.server.sent().contains(&"PATCH tank".to_owned()));

    let mut bench = bench(false);
    bench.reconcile().await.unwrap();
    bench.delete();
    bench.reconcile().await.unwrap();
    assert_eq!(bench.phase(), Some(TankPhase::Draining));
    assert!(bench.server.sent().iter().all(|sent| sent != "PATCH tank"));
    bench.reconcile().await.unwrap();
    assert!(bench.server.sent().contains(&"PATCH tank".to_owned()));
}
