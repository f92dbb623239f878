//! What a decision is made of: plain values, so that deciding needs no client, no clock and no
//! async runtime, and a test can compare what was decided.
//!
//! A kind's `decide` takes an [`Input`] and returns a [`Decision`]. The engine checks it, performs
//! its effects in order, and writes its status once.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde_json::Value;

use crate::{Phase, Reason, Status, Verdict, names};

/// Everything that a decision may depend on.
#[derive(Debug)]
pub struct Input<'a, Object, World> {
    /// The object, as the cache has it. It may be old: a decision must be right for old input,
    /// too, because its record will then be refused.
    pub object: &'a Object,
    /// What was observed.
    pub world: &'a World,
    /// The time.
    pub now: Timestamp,
    /// The fault that an effect of this very pass ended with, if it is of class [`Class::Failed`] or that
    /// of something [`aside`](Manifest::aside): the decision is then asked again, to say so.
    pub fault: Option<&'a Fault>,
}

/// What to do, what to say, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<S: Status, X> {
    /// Performed in order; the first failure ends the pass.
    pub effects: Vec<Effect<X>>,
    /// The kind's own fields of the status. Phase, conditions of state, message and timeline are
    /// set by the engine, from the fields below. It holds only if all effects succeeded.
    pub status: S,
    /// The phase.
    pub phase: S::Phase,
    /// What is to be said.
    pub verdict: Verdict,
    /// Conditions of the kind's own.
    pub conditions: Vec<Fact>,
    /// Whether the object must not vanish before we let it.
    pub hold: Hold,
    /// When to look again, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Not recorded before this time, because something better to record is expected at once.
    /// Only for a status that follows, at any later pass, from what is in the cluster anyway.
    pub record_at: Option<Timestamp>,
}

impl<S: Status, X> Decision<S, X> {
    /// A decision that does nothing but say something.
    #[must_use]
    pub fn say(status: S, phase: S::Phase, verdict: Verdict) -> Self {
        Self {
            effects: Vec::new(),
            status,
            phase,
            verdict,
            conditions: Vec::new(),
            hold: Hold::Keep,
            wake: None,
            record_at: None,
        }
    }

    /// Looks again at this time.
    #[must_use]
    pub fn wake_at(mut self, wake: Timestamp) -> Self {
        self.wake = Some(self.wake.map_or(wake, |earlier| earlier.min(wake)));
        self
    }

    /// With an effect more.
    #[must_use]
    pub fn with(mut self, effect: Effect<X>) -> Self {
        self.effects.push(effect);
        self
    }

    /// Lets the object go once this is recorded.
    #[must_use]
    pub fn release(mut self) -> Self {
        self.hold = Hold::Release {
            annotations: BTreeMap::new(),
        };
        self
    }

    /// The status after a decision whose effects all succeeded.
    ///
    /// # Guarantees
    /// A status that was terminal stays what it was, whatever the decision says: only
    /// `observedGeneration` moves (T8). A higher epoch is another run, so it is not that status.
    #[must_use]
    pub fn settled(&self, stored: &S, generation: i64, now: Timestamp) -> S {
        if stored.is_over() && stored.epoch() >= self.status.epoch() {
            let mut status = stored.clone();
            status.progress_mut().observed_generation = generation;
            return status;
        }
        let mut status = self.status.clone();
        status.set_phase(self.phase);
        let attempt = status.attempt();
        let progress = status.progress_mut();
        progress.stand(S::SHAPE, &self.verdict, generation, now);
        for fact in &self.conditions {
            progress.learn(fact, generation, now);
        }
        progress.step(
            self.phase.name(),
            self.is_end(),
            attempt,
            &self.verdict,
            now,
        );
        progress.retry = None;
        status
    }

    /// Whether the phase ends the object's work.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.phase.is_terminal()
    }
}

/// A condition of the kind's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The condition's type.
    pub kind: &'static str,
    /// True, False, or Unknown.
    pub value: Option<bool>,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
}

/// What becomes of the finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// It is there before the first effect (never put on an object in deletion).
    Keep,
    /// It goes, in one write with these annotations, after the status was recorded.
    Release {
        /// What to leave on the object.
        annotations: BTreeMap<String, String>,
    },
}

/// One change to the world. The set is small and shared by all kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<X> {
    /// Create an object of a deterministic name. That it exists already is success only if it is
    /// ours (owner's UID) and what we wanted (hash of the intent).
    Ensure(Box<Manifest>),
    /// Server-side apply of the fields that we own. What is there and is not ours is not touched.
    Apply(Box<Manifest>),
    /// Delete this very object (UID precondition). That it is gone is success.
    Delete(Target),
    /// Merge-patch some fields of an object.
    Patch {
        /// Which object.
        target: Target,
        /// Of which subresource (`scale`, `status`), if not of the object itself.
        subresource: Option<&'static str>,
        /// The fields.
        patch: Value,
    },
    /// Something beyond Kubernetes, performed by the kind.
    External {
        /// What.
        effect: X,
        /// For what cannot be undone: the intent that the *stored* status must carry already.
        /// The engine refuses the effect as a bug otherwise.
        irreversible: Option<String>,
    },
}

/// A type of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceType {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural name in paths.
    pub plural: &'static str,
}

impl ResourceType {
    /// A type.
    #[must_use]
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }

    /// `v1` ConfigMaps.
    pub const CONFIG_MAP: Self = Self {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
    };
    /// `batch/v1` Jobs.
    pub const JOB: Self = Self {
        group: "batch",
        version: "v1",
        kind: "Job",
        plural: "jobs",
    };

    /// `group/version`, or only the version for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            [self.group, self.version].join("/")
        }
    }
}

/// An object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its type.
    pub resource: ResourceType,
    /// Its namespace, unless it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID: another object of the same name is not touched.
    pub uid: String,
    /// Its version, where the change must be refused if it changed meanwhile (a lock).
    pub version: Option<String>,
    /// For what cannot be undone: the intent that the *stored* status must carry already.
    pub irreversible: Option<String>,
}

impl Target {
    /// The same, for a change that is made only once the stored status announces it.
    #[must_use]
    pub fn irreversible(mut self, intent: String) -> Self {
        self.irreversible = Some(intent);
        self
    }
}

/// An object that should exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Its type.
    pub resource: ResourceType,
    /// Its namespace, unless it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The UID of the object that it belongs to; also in its label `orchestrator.io/uid`.
    pub owner_uid: String,
    /// The whole object, with the intent's hash in its annotations.
    pub body: Value,
    /// For what does something that cannot be undone once it exists: the intent that the *stored*
    /// status must carry already. The engine refuses to create it otherwise.
    pub irreversible: Option<String>,
    /// The UID of the object that is there, where it is known to be ours: another is not touched.
    pub over: Option<String>,
    /// Whose objects may be taken, where they say that they were left by him.
    pub taking_back: Option<String>,
    /// Whether everything else goes on without it: that it is refused is told to the decision, which is
    /// asked again.
    pub aside: bool,
}

impl Manifest {
    /// A manifest from an object without identity: adds type, name, namespace, the labels of a
    /// child and the hash of the intent.
    ///
    /// # Guarantees
    /// The hash depends on nothing but the arguments, so the same decision made twice has the
    /// same intent.
    #[must_use]
    pub fn new(
        resource: ResourceType,
        namespace: Option<&str>,
        name: &str,
        owner_uid: &str,
        labels: BTreeMap<String, String>,
        mut body: Value,
    ) -> Self {
        let intent = names::hash(&body.to_string());
        if let Value::Object(fields) = &mut body {
            fields.insert("apiVersion".to_owned(), resource.api_version().into());
            fields.insert("kind".to_owned(), resource.kind.into());
            let metadata = fields
                .entry("metadata")
                .or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("name".to_owned(), name.into());
                if let Some(namespace) = namespace {
                    metadata.insert("namespace".to_owned(), namespace.into());
                }
                metadata.insert("labels".to_owned(), serde_json::json!(labels));
                metadata.insert(
                    "annotations".to_owned(),
                    serde_json::json!({ names::INTENT: intent }),
                );
            }
        }
        Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            owner_uid: owner_uid.to_owned(),
            body,
            irreversible: None,
            over: None,
            taking_back: None,
            aside: false,
        }
    }

    /// The same, to be created only once the stored status announces it.
    #[must_use]
    pub fn irreversible(mut self, intent: String) -> Self {
        self.irreversible = Some(intent);
        self
    }

    /// The same, to be applied to this very object.
    #[must_use]
    pub fn over(mut self, uid: &str) -> Self {
        self.over = Some(uid.to_owned());
        self
    }

    /// The same; an object that was left by the owner of this name may be taken.
    #[must_use]
    pub fn taking_back(mut self, name: &str) -> Self {
        self.taking_back = Some(name.to_owned());
        self
    }

    /// The same; everything else goes on if it is refused.
    #[must_use]
    pub fn aside(mut self) -> Self {
        self.aside = true;
        self
    }

    /// The hash of what is wanted.
    #[must_use]
    pub fn intent(&self) -> Option<&str> {
        self.body
            .pointer("/metadata/annotations")?
            .get(names::INTENT)?
            .as_str()
    }
}

/// How an error is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It may go away by itself: retried soon; shown when it lasts more than 30 s.
    Transient,
    /// We decided from an old version: observed again.
    Conflict,
    /// The user must change something: `Stalled`, retried slowly.
    Invalid,
    /// Permission, quota, admission: retried slowly, naming verb and resource.
    Denied,
    /// The operation itself failed: terminal.
    Failed,
    /// A fault of ours: a caught panic, a broken rule, a step that did not end in time.
    Bug,
}

impl Class {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Transient,
        Self::Conflict,
        Self::Invalid,
        Self::Denied,
        Self::Failed,
        Self::Bug,
    ];

    /// The name in metrics, logs and `status.retry.class`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Transient => "Transient",
            Self::Conflict => "Conflict",
            Self::Invalid => "Invalid",
            Self::Denied => "Denied",
            Self::Failed => "Failed",
            Self::Bug => "Bug",
        }
    }
}

/// An error with everything that is needed to treat and to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// How it is treated.
    pub class: Class,
    /// The reason of the condition.
    pub reason: Reason,
    /// What was wanted, what was found, what can be done. Never a secret.
    pub message: String,
}

impl Fault {
    /// A fault; the message is bounded.
    #[must_use]
    pub fn new(class: Class, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            class,
            reason,
            message: crate::status::bounded(&message.into(), crate::status::MESSAGE),
        }
    }

    /// A fault of ours.
    #[must_use]
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(Class::Bug, Reason::InternalError, message)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Fault {}

/// The type of external effects of a kind that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoExternal {}
