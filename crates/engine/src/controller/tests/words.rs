//! Message-only changes of a long-lived object, through a whole reconciliation.

use super::*;
use crate::{
    apply::Applier,
    reconcile::{Outcome, Reconciler},
};

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "test",
    version = "v1",
    kind = "Lamp",
    namespaced,
    status = "LampStatus"
)]
struct LampSpec {
    /// Whether it needs no finalizer.
    is_free: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LampStatus {
    #[serde(default)]
    phase: Option<LampPhase>,
    #[serde(flatten)]
    progress: api::CommonStatus,
}

api::phases! {
    /// Phases of a lamp.
    pub enum LampPhase for () {
        Dark: "It does not shine.", deadline Deadline::none(""), undo Undo::None => [Lit];
        Lit: "It shines.", deadline Deadline::none(""), undo Undo::None => [Dark];
    }
}

impl Status for LampStatus {
    api::common_status!(LampPhase, LongLived);
}

/// A kind with a message that the test sets.
#[derive(Default)]
struct LampKind(Mutex<&'static str>);

impl Kind for LampKind {
    type Object = Lamp;
    type Status = LampStatus;
    type World = &'static str;
    const RESOURCE: ResourceType = ResourceType::new("test", "v1", "Lamp", "lamps");
    const FINALIZER: &'static str = "lamps.test/finalizer";

    fn status(object: &Lamp) -> Option<&LampStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &Lamp) -> &() {
        &()
    }

    async fn observe(
        &self,
        _object: &Arc<Lamp>,
        _now: Timestamp,
    ) -> Result<&'static str, ReconcileError> {
        Ok(*self.0.lock().unwrap())
    }

    fn decide(input: &Input<'_, Lamp, &'static str>) -> Decision<LampStatus> {
        let status = input.object.status.clone().unwrap_or_default();
        let verdict = Verdict::working(Reason::Progressing, *input.world);
        let decision = Decision::status_only(status, LampPhase::Dark, verdict);
        match input.object.spec.is_free {
            true => decision.remove_finalizer(),
            false => decision,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_words_are_written_at_their_time_and_the_last_of_them() {
    for is_free in [false, true] {
        let server = Server::default();
        let client = server.client();
        let (metrics, health) = (Metrics::default(), Health::default());
        let watches = WatchManager::new(client.clone(), metrics.clone(), health, Scope::All);
        let (_leading, until) = watch::channel(later(DAY));
        let reconciler = Reconciler {
            kind: Arc::new(LampKind::default()),
            applier: Applier::new(client, watches.without_watches()),
            clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
            metrics,
            leading: Leadership::new(until),
            identity: "test".to_owned(),
        };
        let say = |words| *reconciler.kind.0.lock().unwrap() = words;
        let written = || {
            let requests = server.requests.lock().unwrap();
            let all = requests.iter();
            all.filter(|(_, path, _)| path.ends_with("/status"))
                .map(|(_, _, body)| body["status"].clone())
                .collect::<Vec<_>>()
        };
        let reconcile = async |lamp: &Lamp| {
            let (lamp, yield_at) = (Arc::new(lamp.clone()), Instant::now() + DAY);
            match reconciler.reconcile(&lamp, yield_at).await {
                Ok(outcome) => outcome,
                Err((fault, _)) => panic!("{fault}"),
            }
        };
        let mut lamp = Lamp::new("lamp", LampSpec { is_free });
        lamp.metadata.namespace = Some("n".to_owned());
        lamp.metadata.generation = Some(1);

        // Sending the Event takes two seconds. The interval counts from the status write.
        *server.delay.lock().unwrap() = 2 * SECOND;
        say("waits for a");
        assert_eq!(reconcile(&lamp).await, Outcome::Completed(None));
        *server.delay.lock().unwrap() = Duration::ZERO;
        let first = written().pop().unwrap();
        assert_eq!(first["lastUpdated"], "2030-01-01T00:00:02Z");
        lamp.status = Some(serde_json::from_value(first).unwrap());

        let at: Timestamp = "2030-01-01T00:00:05Z".parse().unwrap();
        say("waits for b");
        assert_eq!(reconcile(&lamp).await, Outcome::Completed(Some(at)));
        say("waits for c");
        assert_eq!(reconcile(&lamp).await, Outcome::Completed(Some(at)));
        assert_eq!(written().len(), 1);
        pass(SECOND).await; // the answer took two
        assert_eq!(reconcile(&lamp).await, Outcome::Completed(None));
        let all = written();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1]["message"], "waits for c");
    }
}
