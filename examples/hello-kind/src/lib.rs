//! `Greeting`: waits until a door is open, then writes one line into a guest book. A line cannot
//! be taken back, so it must be written once, whatever happens in between.

// ANCHOR: types
use std::sync::Arc;

use api::decide::{Decision, Effect, Fault, Input, ResourceType};
use api::{Progress, Reason, Status, Timestamp, Verdict};
use engine::{Cache, Key, Kind};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time};
use kube::{CustomResource, ResourceExt, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the author wants.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hello.orchestrator.io",
    version = "v1",
    kind = "Greeting",
    namespaced
)]
#[kube(status = "GreetingStatus", derive = "PartialEq", shortname = "hi")]
pub struct GreetingSpec {
    /// What is written.
    pub line: String,
    /// The ConfigMap that must exist before.
    pub door: String,
    /// How long to wait for it.
    pub patience: Duration,
}

/// What is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// Where it stands.
    pub phase: Option<GreetingPhase>,
    /// When waiting for the door ends: stored, so that a restart does not begin to wait again.
    pub deadline_at: Option<Time>,
    /// Set before the line is written: from here on there is no way back.
    pub intent: Option<String>,
    /// What every kind has.
    #[serde(flatten)]
    pub progress: Progress,
}
// ANCHOR_END: types

// ANCHOR: phases
api::phases! {
    /// Where a Greeting stands.
    pub enum GreetingPhase {
        Waiting: "The door is closed.", deadline "`patience`", undo "" => [Writing, Failed];
        Writing: "The line is being written.", deadline "none: it is repeated", undo "" => [Succeeded];
        Succeeded: "The line is in the book.", deadline "", undo "" => [];
        Failed: "The door stayed closed.", deadline "", undo "" => [];
    }
}

impl Status for GreetingStatus {
    api::common_status!(GreetingPhase, Run);
    fn has_intent(&self, intent: &str) -> bool {
        self.intent.as_deref() == Some(intent)
    }
}
// ANCHOR_END: phases

// ANCHOR: decide
/// What a decision depends on: is the door open, and, read after the act, is the line in the book?
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The ConfigMap exists.
    pub is_open: bool,
    /// The book has our line.
    pub is_written: bool,
}

/// A line, under the UID of its Greeting.
#[derive(Debug, Clone, PartialEq)]
pub struct Line(pub String, pub String);

/// Waits; records the intent; writes; believes only what the book says.
pub fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus, Line> {
    use GreetingPhase::{Failed, Succeeded, Waiting, Writing};
    let Input {
        object, world, now, ..
    } = *input;
    let GreetingSpec {
        line,
        door,
        patience,
    } = object.spec.clone();
    let uid = object.uid().unwrap_or_default();
    let mut status = object.status.clone().unwrap_or_default();
    let end = now
        .checked_add(std::time::Duration::from(patience))
        .unwrap_or(now);
    let deadline = status.deadline_at.get_or_insert(Time(end)).0;
    match status.phase.unwrap_or(Waiting) {
        // The engine keeps what a terminal status says.
        Succeeded => Decision::say(status, Succeeded, Verdict::succeeded("")).release(),
        Failed => Decision::say(
            status,
            Failed,
            Verdict::failed(Reason::DeadlineExceeded, ""),
        )
        .release(),
        Waiting if object.metadata.deletion_timestamp.is_some() => {
            let verdict = Verdict::working(Reason::Deleting, "Nothing was written.");
            Decision::say(status, Waiting, verdict).release()
        }
        Waiting if world.is_open => {
            status.intent = Some(uid);
            let verdict = Verdict::working(Reason::Progressing, "The door is open.");
            Decision::say(status, Writing, verdict)
        }
        Waiting if now >= deadline => {
            let message = format!("ConfigMap '{door}' did not appear within {patience:?}.");
            let verdict = Verdict::failed(Reason::DeadlineExceeded, message);
            Decision::say(status, Failed, verdict).release()
        }
        Waiting => {
            let message = format!("Waiting for ConfigMap '{door}'; create it.");
            let verdict = Verdict::working(Reason::DependencyNotReady, message);
            Decision::say(status, Waiting, verdict).wake_at(deadline)
        }
        Writing if world.is_written => {
            let verdict = Verdict::succeeded("The line is in the book.");
            Decision::say(status, Succeeded, verdict).release()
        }
        Writing => {
            let effect = Effect::External {
                effect: Line(uid.clone(), line),
                irreversible: Some(uid),
            };
            let verdict = Verdict::working(Reason::Progressing, "The door is open.");
            Decision::say(status, Writing, verdict)
                .with(effect)
                .wake_at(now)
        }
    }
}
// ANCHOR_END: decide

// ANCHOR: kind
/// Somewhere outside of Kubernetes: whether a UID's line is there, and writing it. Writing a line
/// again under the same UID must leave one line.
pub trait Book: Send + Sync + 'static {
    #[expect(missing_docs, reason = "see the trait")]
    fn has(&self, uid: &str) -> bool;
    #[expect(missing_docs, reason = "see the trait")]
    fn write(&self, line: &Line) -> Result<(), Fault>;
}

/// The kind, and what it observes by: the cluster's ConfigMaps and the book.
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
    async fn observe(&self, object: &Arc<Greeting>, _now: Timestamp) -> Result<World, Fault> {
        let door = Key {
            namespace: object.namespace(),
            name: object.spec.door.clone(),
        };
        let is_written = self.1.has(&object.uid().unwrap_or_default());
        Ok(World {
            is_open: self.0.get(&door).is_some(),
            is_written,
        })
    }
    fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus, Line> {
        decide(input)
    }
    async fn perform(&self, _object: &Greeting, effect: &Line) -> Result<(), Fault> {
        self.1.write(effect)
    }
}
// ANCHOR_END: kind
