//! `Greeting`: waits until a door is open, then writes one line into a guest book. A line cannot be
//! removed, so it must be written exactly once, despite any failure in between.

// ANCHOR: types
use std::sync::Arc;

use api::decide::{Decision, Input, ReconcileError, ResourceType};
use api::phase::{Deadline, Limit, Undo};
use api::{CommonStatus, Reason, Status, Timestamp, Verdict, external::Reply};
use engine::external::{LogRequest, Request, Requests};
use engine::{Cache, Key, Kind};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{CustomResource, ResourceExt, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A line for the guest book, and the condition for writing it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "hello.orchestrator.io", version = "v1", namespaced)]
#[kube(kind = "Greeting", shortname = "hi", status = "GreetingStatus")]
#[kube(derive = "PartialEq")]
pub struct GreetingSpec {
    /// Text of the line.
    pub line: String,
    /// Name of the ConfigMap that must exist before the line is written. While it has the key
    /// `opening`, the door is not open yet. Each other value of this key is progress.
    pub door: String,
    /// Name of the Pod that signs the line: with the last log line of its container `guest`.
    pub guest: Option<String>,
    /// Longest wait without progress of the door, such as `60s`. Progress extends it to ten times.
    pub patience: Duration,
}

/// Observed state of a Greeting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// Current phase.
    pub phase: Option<GreetingPhase>,
    /// Line to write, stored before it is sent. From then on there is no way back.
    pub intent: Option<Line>,
    /// Page of the book that has the line.
    pub page: Option<u32>,
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
            deadline Deadline::progress(IDLE, CAP, GreetingPhase::Failed), undo Undo::None => [Writing, Failed];
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
        self.intent.as_ref().is_some_and(|line| line.key == intent)
    }
    // From the intent on, a deletion waits until the line is written.
    fn has_children(&self) -> bool {
        self.intent.is_some()
    }
}
// ANCHOR_END: phases

// ANCHOR: external
/// A request to the guest book, a server outside the cluster. The response is the page of the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Idempotency key: the UID of the Greeting. The book has one line for each key.
    pub key: String,
    /// Text of the line.
    pub text: String,
}

impl Request for Line {
    type Response = u32;
    const REMOTE: &'static str = "guest book";
    const UNREACHABLE: Reason = Reason::DependencyNotReady;
    fn host(&self) -> String {
        "book.example.com".to_owned()
    }
    fn required_intent(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// Returns the requests that a Greeting needs now: the log while it waits, the line while it writes.
pub fn requests(greeting: &Greeting, guest: Option<&Pod>) -> (Option<LogRequest>, Option<Line>) {
    let status = greeting.status.clone().unwrap_or_default();
    let log = guest.and_then(|pod| LogRequest::for_pod(pod, "guest", 1));
    match status.phase.unwrap_or(GreetingPhase::Waiting) {
        GreetingPhase::Waiting => (log, None),
        GreetingPhase::Writing => (None, status.intent),
        GreetingPhase::Succeeded | GreetingPhase::Failed => (None, None),
    }
}
// ANCHOR_END: external

// ANCHOR: decide
/// The observed state: whether the door is open, and the replies from outside.
#[derive(Debug, Clone)]
pub struct World {
    /// Whether the ConfigMap exists, without the key `opening`.
    pub is_open: bool,
    /// Value of the key `opening`.
    pub opening: Option<String>,
    /// Reply with the last line of the guest's log.
    pub log: Option<Reply<String>>,
    /// Reply of the guest book.
    pub page: Option<Reply<u32>>,
}

/// Waits, records the intent, and succeeds only once the book has confirmed the line.
pub fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus> {
    use GreetingPhase::{Failed, Succeeded, Waiting, Writing};
    let (Greeting { metadata, spec, .. }, world, now) = (input.object, input.world, input.now);
    let mut status = input.object.status.clone().unwrap_or_default();
    let (log, page) = (world.log.as_ref(), world.page.as_ref());
    let signed = log.and_then(Reply::success).map(|log| log.trim());
    let signature = signed.or(spec.guest.is_none().then_some(""));
    let failed = |message: &str| Verdict::failed(Reason::DeadlineExceeded, message);
    let release = |status: GreetingStatus, phase, verdict| {
        // The engine keeps a terminal status unchanged.
        Decision::status_only(status, phase, verdict).remove_finalizer()
    };
    match status.phase.unwrap_or(Waiting) {
        Succeeded => release(status, Succeeded, Verdict::succeeded("")),
        Failed => release(status, Failed, failed("")),
        Waiting if metadata.deletion_timestamp.is_some() => {
            let verdict = Verdict::working(Reason::Deleting, "Nothing was written.");
            release(status, Waiting, verdict)
        }
        Waiting if world.is_open && signature.is_some() => {
            let text = [spec.line.as_str(), signature.unwrap_or_default()].join(" ");
            status.intent = Some(Line {
                key: metadata.uid.clone().unwrap_or_default(),
                text: text.trim_end().to_owned(),
            });
            let verdict = Verdict::working(Reason::Progressing, "The door is open.");
            Decision::status_only(status, Writing, verdict)
        }
        Waiting if input.overdue => {
            let message = format!("Gave up. {}", blocker(spec, world));
            release(status, Failed, failed(&message))
        }
        Waiting => {
            let verdict = Verdict::working(Reason::DependencyNotReady, blocker(spec, world));
            let mut decision = Decision::status_only(status, Waiting, verdict);
            decision.requeue_at = world.is_open.then(|| Reply::requeue_at(log, now));
            decision
        }
        Writing => match page.and_then(Reply::success) {
            Some(page) => {
                status.page = Some(*page);
                let message = format!("The line is on page {page}.");
                release(status, Succeeded, Verdict::succeeded(message))
            }
            None => {
                let failure = page.and_then(Reply::failure);
                let cause = failure.map_or("no reply yet", |error| error.message.as_str());
                let message = format!("Waiting for the guest book to confirm: {cause}.");
                let verdict = Verdict::working(Reason::Progressing, message);
                Decision::status_only(status, Writing, verdict)
                    .requeue_at(Reply::requeue_at(page, now))
            }
        },
    }
}

fn blocker(GreetingSpec { door, guest, .. }: &GreetingSpec, world: &World) -> String {
    if !world.is_open {
        return format!("Waiting for ConfigMap '{door}'; create it.");
    }
    let failure = world.log.as_ref().and_then(Reply::failure);
    let cause = failure.map_or("no reply yet", |error| error.message.as_str());
    let guest = guest.as_deref().unwrap_or_default();
    format!("Waiting for the log of Pod '{guest}', which must run: {cause}.")
}
// ANCHOR_END: decide

// ANCHOR: kind
/// The kind, with its sources of observation: caches of the cluster, and requests outside of it.
#[derive(Clone)]
#[expect(missing_docs, reason = "see the struct")]
pub struct Hello {
    pub doors: Cache<ConfigMap>,
    pub guests: Cache<Pod>,
    pub logs: Requests<LogRequest>,
    pub book: Requests<Line>,
}

impl Kind for Hello {
    type Object = Greeting;
    type Status = GreetingStatus;
    type World = World;
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
    async fn observe(&self, hi: &Arc<Greeting>, now: Timestamp) -> Result<World, ReconcileError> {
        let key = |name: &str| Key::new(&hi.namespace().unwrap_or_default(), name);
        let door = self.doors.get(&key(&hi.spec.door));
        let data = door.as_ref().and_then(|door| door.data.as_ref());
        let opening = data.and_then(|data| data.get("opening")).cloned();
        let is_open = door.is_some() && opening.is_none();
        let guest = hi.spec.guest.as_ref().filter(|_| is_open);
        let guest = guest.and_then(|name| self.guests.get(&key(name)));
        let (log, line) = requests(hi, guest.as_deref());
        let (meta, status) = (&hi.metadata, hi.status.as_ref());
        Ok(World {
            is_open,
            opening,
            log: self.logs.ask(meta, status, log, now)?,
            page: self.book.ask(meta, status, line, now)?,
        })
    }
    fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus> {
        decide(input)
    }
}
// ANCHOR_END: kind
