//! The result: a chain from the object to its deepest blocker. Its JSON form has a schema,
//! `docs/reference/why.schema.json`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::world::ObjectRef;

/// Why an object is as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// When the cluster was read.
    pub at: Time,
    /// What was asked about.
    pub target: ObjectRef,
    /// What is explained: the target, or the run or Tenant that it belongs to.
    pub subject: ObjectRef,
    /// How it stands.
    pub state: State,
    /// The reason in its status; that of the deepest object where the status is outdated;
    /// `OperatorDown` while an unfinished object has no operator; `CRDNotFound` or `CRDOutdated` while a
    /// CRD of the operator is missing or lacks fields.
    pub reason: String,
    /// Since when the trouble lasts, or since when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The object's own `status.message`; of a Tenant that is ready, but not isolated or not proven to
    /// be, that of its condition `NetworkIsolated`; where it is outdated, the message of the deepest
    /// object.
    pub summary: String,
    /// What the status still says, where the cluster shows something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<Outdated>,
    /// From the subject down to the deepest blocker. The last one is the deepest.
    pub chain: Vec<Link>,
    /// The deepest blocker; absent if nothing blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<Blocker>,
    /// What else a reader must know: status and cluster disagree, something could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// What to do, in words; empty if nothing is to be done.
    pub advice: String,
    /// What to type next, one to three commands.
    pub next_steps: Vec<Command>,
}

/// A status that the cluster contradicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outdated {
    /// Its message.
    pub message: String,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// How an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// It ended well.
    Succeeded,
    /// It ended otherwise.
    Failed,
    /// The agent's container runs, or what it wrote is being pushed.
    Running,
    /// It goes on by itself.
    Waiting,
    /// It does not go on until someone does something.
    Blocked,
    /// It is suspended by its spec.
    Suspended,
    /// It is being deleted.
    Deleting,
    /// An Agent that can be used; a Tenant that can be used and is proven to be isolated.
    Ready,
    /// A Tenant that can be used, and is not isolated.
    NotIsolated,
    /// A Tenant that can be used; whether it is isolated is not known.
    NotProven,
    /// An object that belongs to no run and no Tenant.
    Unmanaged,
}

/// One object of the chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The object.
    pub object: ObjectRef,
    /// Whether it is well.
    pub health: Health,
    /// One word for how it stands: a reason of ours, or Kubernetes' own.
    pub reason: String,
    /// What is wrong with it, or how it stands, in one sentence.
    pub message: String,
    /// Since when, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What that was read from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Whether this is the object that was asked about.
    #[serde(default)]
    pub is_target: bool,
}

/// Whether an object of the chain is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// Nothing is wrong with it.
    Ok,
    /// It waits for what follows in the chain.
    Waiting,
    /// Something is wrong with it.
    Error,
}

/// What a message was read from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Which condition, Event or field.
    pub source: String,
    /// Its text.
    pub text: String,
    /// Its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// The deepest blocker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// The object to look at.
    pub object: ObjectRef,
    /// One word for what is wrong with it.
    pub reason: String,
    /// The same in one sentence.
    pub message: String,
}

/// Something else that a reader must know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The sentence.
    pub text: String,
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NoteKind {
    /// The stored status and the cluster say different things. The cluster counts.
    Disagreement,
    /// Something could not be read, so the explanation may lack a link.
    Unreadable,
    /// Worth knowing.
    Hint,
}

/// A command with real names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// What to type.
    pub command: String,
    /// What it does or shows.
    pub description: String,
}

impl Health {
    /// Returns `Error` for a problem, otherwise `Waiting`.
    pub(crate) fn error_if(is_wrong: bool) -> Self {
        if is_wrong { Self::Error } else { Self::Waiting }
    }
}

impl Link {
    pub(crate) fn new(
        object: ObjectRef,
        health: Health,
        reason: impl ToString,
        message: impl Into<String>,
    ) -> Self {
        Self {
            object,
            health,
            reason: reason.to_string(),
            message: message.into(),
            since: None,
            evidence: Vec::new(),
            is_target: false,
        }
    }
}

impl Command {
    pub(crate) fn new(command: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            description: description.into(),
        }
    }
}
