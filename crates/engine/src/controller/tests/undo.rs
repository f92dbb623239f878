//! Children of an object in deletion: only those that an undo needs are created.

use super::*;
use crate::{apply::Applier, reconcile::Reconciler};

/// A kind whose object in deletion has one effect.
struct UndoKind;

/// Returns the effect of an action.
fn effect(action: &str) -> Effect {
    let child = Box::new(child(ResourceType::CONFIG_MAP, "volume"));
    match action {
        "ensure" => Effect::Ensure(child),
        "ensure-existing" => Effect::Ensure(Box::new(child.existing())),
        "ensure-undoing" => Effect::Ensure(Box::new(child.undoing())),
        "apply" => Effect::Apply(child),
        "apply-to-uid" => Effect::Apply(Box::new(child.expected_uid("uid"))),
        "apply-undoing" => Effect::Apply(Box::new(child.undoing())),
        "delete" => Effect::Delete(target("volume")),
        other => panic!("no effect for {other}"),
    }
}

impl Kind for UndoKind {
    type Object = Toy;
    type Status = ToyStatus;
    type World = ();
    const RESOURCE: ResourceType = ResourceType::new("test", "v1", "Toy", "toys");
    const FINALIZER: &'static str = "toys.test/finalizer";

    fn status(object: &Toy) -> Option<&ToyStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &Toy) -> &() {
        &()
    }

    async fn observe(&self, _object: &Arc<Toy>, _now: Timestamp) -> Result<(), ReconcileError> {
        Ok(())
    }

    fn decide(input: &Input<'_, Toy, ()>) -> Decision<ToyStatus> {
        let status = input.object.status.clone().unwrap_or_default();
        let verdict = Verdict::working(Reason::Deleting, "restores the volume");
        Decision::status_only(status, ToyPhase::Playing, verdict)
            .with(effect(&input.object.spec.act))
    }
}

#[tokio::test(start_paused = true)]
async fn in_deletion_only_an_undo_creates_children() {
    // Columns: effect, whether the object is in deletion, and whether the engine rejects the decision.
    let table = [
        ("ensure", false, false),
        ("ensure", true, true),
        ("ensure-existing", true, false),
        ("ensure-undoing", true, false),
        ("apply", false, false),
        ("apply", true, true),
        ("apply-to-uid", true, false),
        ("apply-undoing", true, false),
        ("delete", true, false),
    ];
    for (action, is_deleting, is_rejected) in table {
        let case = format!("{action}, in deletion: {is_deleting}");
        let server = Server::default();
        let client = server.client();
        let (metrics, health) = (Metrics::default(), Health::default());
        let watches = WatchManager::new(client.clone(), metrics.clone(), health, Scope::All);
        let (_leading, until) = watch::channel(later(DAY));
        let reconciler = Reconciler {
            kind: Arc::new(UndoKind),
            applier: Applier::new(client, watches.without_watches()),
            clock: Clock::fake("2030-01-01T00:00:00Z".parse().unwrap()),
            metrics,
            leading: Leadership::new(until),
            identity: "test".to_owned(),
        };
        let mut toy = toy("n", action, 1, 1, None);
        toy.metadata.finalizers = Some(vec![UndoKind::FINALIZER.to_owned()]);
        let deleted_at: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let deleted_at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(deleted_at);
        toy.metadata.deletion_timestamp = is_deleting.then_some(deleted_at);
        let toy = Arc::new(toy);
        match reconciler.reconcile(&toy, Instant::now() + DAY).await {
            // The server responds to a GET of the child with an object that is not ours.
            Ok(_)
            | Err((
                ReconcileError {
                    reason: Reason::ChildNameTaken,
                    ..
                },
                _,
            )) => {
                assert!(!is_rejected, "{case}");
                assert!(!server.sent().is_empty(), "{case}");
            }
            Err((fault, _)) => {
                assert!(is_rejected, "{case}: {fault}");
                assert_eq!(fault.class, ErrorClass::Bug, "{case}");
                let message = "the creation of ConfigMap 'volume' was refused: the object is being deleted, and no undo needs it";
                assert_eq!(fault.message, message, "{case}");
                assert!(server.sent().is_empty(), "{case}: {:?}", server.sent());
            }
        }
    }
}
