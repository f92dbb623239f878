//! `Greeting`: waits until a door is open, then writes one line into a guest book. A line cannot be
//! removed, so it must be written exactly once, despite any failure in between.

// ANCHOR: types
use std::sync::Arc;

use api::decide::{Decision, Effect, Input, ReconcileError, ResourceType};
use api::phase::{Deadline, Limit, Undo};
use api::{CommonStatus, Reason, Status, Timestamp, Verdict};
use engine::{Cache, Key, Kind};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, ResourceExt, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A line for the guest book, and the condition for writing it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hello.orchestrator.io",
    version = "v1",
    kind = "Greeting",
    namespaced
)]
#[kube(status = "GreetingStatus", derive = "PartialEq", shortname = "hi")]
pub struct GreetingSpec {
    /// Text of the line.
    pub line: String,
    /// Name of the ConfigMap that must exist before the line is written. While it has the key
    /// `opening`, the door is not open yet. Each other value of this key is progress.
    pub door: String,
    /// Longest wait for the door without progress, as a duration such as `60s`. With progress, the
    /// wait takes ten times as long at most.
    pub patience: Duration,
}

/// Observed state of a Greeting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// Current phase.
    pub phase: Option<GreetingPhase>,
    /// Intent to write the line, stored before the write. From then on there is no way back.
    pub intent: Option<String>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}
// ANCHOR_END: types

// ANCHOR: phases
api::phases! {
    /// Phases of a Greeting.
    pub enum GreetingPhase for GreetingSpec {
        Waiting: "The door is closed.",
            deadline Deadline::progress(IDLE, CAP, GreetingPhase::Failed),
            undo Undo::None => [Writing, Failed];
        Writing: "The line is being written.",
            deadline Deadline::none("it is repeated"), undo Undo::None => [Succeeded];
        Succeeded: "The line is in the book.", deadline Deadline::none(""), undo Undo::None => [];
        Failed: "The door stayed closed.", deadline Deadline::none(""), undo Undo::None => [];
    }
}

/// Longest wait without progress. The engine stores the deadline, so a restart does not begin it again.
const IDLE: Limit<GreetingSpec> = Limit {
    text: "`patience`",
    of: |spec| spec.patience.into(),
};
/// Longest wait, also with progress.
const CAP: Limit<GreetingSpec> = Limit {
    text: "ten times `patience`",
    of: |spec| std::time::Duration::from(spec.patience).saturating_mul(10),
};

impl Status for GreetingStatus {
    api::common_status!(GreetingPhase, RunToCompletion);
    fn has_intent(&self, intent: &str) -> bool {
        self.intent.as_deref() == Some(intent)
    }
}
// ANCHOR_END: phases

// ANCHOR: decide
/// The observed state: whether the door is open and, read after the write, the book has the line.
#[derive(Debug, Clone)]
pub struct World {
    /// Whether the ConfigMap exists, without the key `opening`.
    pub is_open: bool,
    /// Value of the key `opening`.
    pub opening: Option<String>,
    /// Whether the book has our line.
    pub is_written: bool,
}

/// A line: the UID of its Greeting, and the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Line(pub String, pub String);

/// Waits, records the intent, writes the line, and succeeds only once the book has it.
pub fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus, Line> {
    use GreetingPhase::{Failed, Succeeded, Waiting, Writing};
    let Input {
        object,
        world,
        now,
        overdue,
        ..
    } = *input;
    let GreetingSpec {
        line,
        door,
        patience,
    } = object.spec.clone();
    let uid = object.uid().unwrap_or_default();
    let mut status = object.status.clone().unwrap_or_default();
    match status.phase.unwrap_or(Waiting) {
        // The engine keeps a terminal status unchanged.
        Succeeded => {
            Decision::status_only(status, Succeeded, Verdict::succeeded("")).remove_finalizer()
        }
        Failed => {
            let verdict = Verdict::failed(Reason::DeadlineExceeded, "");
            Decision::status_only(status, Failed, verdict).remove_finalizer()
        }
        Waiting if object.metadata.deletion_timestamp.is_some() => {
            let verdict = Verdict::working(Reason::Deleting, "Nothing was written.");
            Decision::status_only(status, Waiting, verdict).remove_finalizer()
        }
        Waiting if world.is_open => {
            status.intent = Some(uid);
            let verdict = Verdict::working(Reason::Progressing, "The door is open.");
            Decision::status_only(status, Writing, verdict)
        }
        Waiting if overdue => {
            let message = format!("ConfigMap '{door}' made no progress within {patience:?}.");
            let verdict = Verdict::failed(Reason::DeadlineExceeded, message);
            Decision::status_only(status, Failed, verdict).remove_finalizer()
        }
        Waiting => {
            let message = format!("Waiting for ConfigMap '{door}'; create it.");
            let verdict = Verdict::working(Reason::DependencyNotReady, message);
            Decision::status_only(status, Waiting, verdict)
        }
        Writing if world.is_written => {
            let verdict = Verdict::succeeded("The line is in the book.");
            Decision::status_only(status, Succeeded, verdict).remove_finalizer()
        }
        Writing => {
            let effect = Effect::External {
                effect: Line(uid.clone(), line),
                requires_intent: Some(uid),
            };
            let verdict = Verdict::working(Reason::Progressing, "The door is open.");
            Decision::status_only(status, Writing, verdict)
                .with(effect)
                .requeue_at(now)
        }
    }
}
// ANCHOR_END: decide

// ANCHOR: kind
/// A guest book outside Kubernetes. It returns whether it has the line of a UID, and writes a line.
/// Writing again under the same UID must leave one line.
pub trait Book: Send + Sync + 'static {
    #[expect(missing_docs, reason = "see the trait")]
    fn has(&self, uid: &str) -> bool;
    #[expect(missing_docs, reason = "see the trait")]
    fn write(&self, line: &Line) -> Result<(), ReconcileError>;
}

/// The kind, with its sources of observation: the cluster's ConfigMaps and the book.
#[derive(Clone)]
pub struct Hello(pub Cache<ConfigMap>, pub Arc<dyn Book>);

impl Kind for Hello {
    type Object = Greeting;
    type Status = GreetingStatus;
    type World = World;
    type External = Line;
    const RESOURCE: ResourceType =
        ResourceType::new("hello.orchestrator.io", "v1", "Greeting", "greetings");
    const FINALIZER: &'static str = "greetings.hello.orchestrator.io/finalizer";

    fn status(object: &Greeting) -> Option<&GreetingStatus> {
        object.status.as_ref()
    }
    fn phase_spec(object: &Greeting) -> &GreetingSpec {
        &object.spec
    }
    fn phase_progress(world: &World) -> Option<String> {
        world.opening.clone()
    }
    async fn observe(&self, object: &Arc<Greeting>, _: Timestamp) -> Result<World, ReconcileError> {
        let door = Key {
            namespace: object.namespace(),
            name: object.spec.door.clone(),
        };
        let door = self.0.get(&door);
        let data = door.as_ref().and_then(|door| door.data.as_ref());
        let opening = data.and_then(|data| data.get("opening")).cloned();
        Ok(World {
            is_open: door.is_some() && opening.is_none(),
            opening,
            is_written: self.1.has(&object.uid().unwrap_or_default()),
        })
    }
    fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus, Line> {
        decide(input)
    }
    async fn perform(&self, _object: &Greeting, effect: &Line) -> Result<(), ReconcileError> {
        self.1.write(effect)
    }
}
// ANCHOR_END: kind
