//! The input and the output of a decision, as plain values. So `decide` needs no client, no clock
//! and no async runtime, and a test can compare decisions.
//!
//! A kind's `decide` takes an [`Input`] and returns a [`Decision`]. The engine checks the decision,
//! performs its effects in order, and writes its status once.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Phase, Reason, Status, Verdict,
    claim::Claim,
    deadline::{self, PhaseInput},
    names,
};

/// Everything that a decision may depend on.
#[derive(Debug)]
pub struct Input<'a, Object, World> {
    /// The object from the cache. It may be outdated. The API server then rejects the status write,
    /// so the effects must be correct without it.
    pub object: &'a Object,
    /// The observed state of the cluster.
    pub world: &'a World,
    /// The current time.
    pub now: Timestamp,
    /// The error of an effect of the previous decision in the same reconciliation. It is set if its
    /// class is [`ErrorClass::Failed`], if the effect was optional ([`Manifest::optional`],
    /// [`Target::optional`]), or if the effects are past their deadline
    /// ([`Decision::effects_deadline`]). The decision is then repeated, to report the error.
    pub fault: Option<&'a ReconcileError>,
    /// Whether `fault` is the error of an optional effect. Then nothing that the decision needs has failed.
    pub refused: bool,
    /// Whether the objects in [`Decision::confirm`] of an earlier decision in this reconciliation
    /// were read from the API server itself. If true, `world` contains them.
    pub confirmed: bool,
    /// Whether the stored phase is past the deadline that its row in the table declares. The
    /// decision must then leave the phase, unless the deadline leads to the phase itself.
    pub overdue: bool,
}

/// The effects to perform, the status to write, and the time of the next reconciliation.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<S: Status> {
    /// Effects, performed in order. The first failure ends the reconciliation; see
    /// [`Manifest::independent`] for an exception.
    pub effects: Vec<Effect>,
    /// The kind's own fields of the status. The engine sets the phase, its deadline, the conditions
    /// of state, the message and the timeline from the fields below. The status is written only if
    /// all effects succeeded.
    pub status: S,
    /// The phase.
    pub phase: S::Phase,
    /// Start of the phase, if the cluster reports it, such as the time of a deletion. Otherwise the
    /// phase starts with the first decision for it.
    pub phase_since: Option<Timestamp>,
    /// The state, reason and message to report.
    pub verdict: Verdict,
    /// Conditions that only this kind has.
    pub conditions: Vec<ConditionUpdate>,
    /// Whether the object keeps our finalizer.
    pub finalizer: FinalizerAction,
    /// The time of the next reconciliation, if no event triggers an earlier one.
    pub requeue_at: Option<Timestamp>,
    /// Time before which the status is not written, because a better status is expected soon. Set
    /// it only if any later reconciliation can derive the same status from the cluster.
    pub defer_status_until: Option<Timestamp>,
    /// Deadline of the effects, for a run. While an effect fails, the engine stores it as
    /// [`crate::CommonStatus::deadline_at`] and repeats the effect. From this time on, a failed
    /// effect is not repeated: `decide` runs again with the error ([`Input::fault`]), to end the
    /// wait.
    pub effects_deadline: Option<Timestamp>,
    /// Objects to read from the API server before the decision is carried out. List each object
    /// that the decision assumes to be absent or unchanged, if a wrong assumption cannot be undone:
    /// a watch may be silent for minutes.
    ///
    /// If the list is not empty, the engine does nothing of this decision. It reads the objects and
    /// calls `decide` again, with [`Input::confirmed`].
    pub confirm: Vec<LiveRead>,
    /// Locks of other objects to take before the first effect, and to release after the last one.
    ///
    /// If another object has the lock, or the target has changed, the engine carries out nothing more of
    /// this decision. It reads the target, observes again and calls `decide` again, once: the observed
    /// state then has the holder. This is no error of the object.
    pub claims: Vec<Claim>,
}

/// A read from the API server itself, instead of from a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveRead {
    /// One object, by name.
    Object {
        /// Type of the object.
        resource: ResourceType,
        /// Namespace of the object, or `None` if it is cluster-scoped.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
    },
    /// The children of an object, by their labels, in one namespace.
    Children {
        /// Type of the children.
        resource: ResourceType,
        /// Namespace of the children.
        namespace: String,
        /// Kind of the owner.
        owner_kind: &'static str,
        /// UID of the owner.
        owner_uid: String,
    },
}

impl<S: Status> Decision<S> {
    /// Returns a decision without effects, which only reports a status.
    #[must_use]
    pub fn status_only(status: S, phase: S::Phase, verdict: Verdict) -> Self {
        Self {
            effects: Vec::new(),
            status,
            phase,
            phase_since: None,
            verdict,
            conditions: Vec::new(),
            finalizer: FinalizerAction::Keep,
            requeue_at: None,
            defer_status_until: None,
            effects_deadline: None,
            confirm: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Schedules a reconciliation at this time, unless an earlier one is scheduled.
    #[must_use]
    pub fn requeue_at(mut self, requeue_at: Timestamp) -> Self {
        self.requeue_at = Some(
            self.requeue_at
                .map_or(requeue_at, |earlier| earlier.min(requeue_at)),
        );
        self
    }

    /// Adds an effect.
    #[must_use]
    pub fn with(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    /// Adds a change of a lock.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Sets the time from which a failed effect is not repeated.
    #[must_use]
    pub fn effects_until(mut self, deadline: Timestamp) -> Self {
        self.effects_deadline = Some(deadline);
        self
    }

    /// Removes the finalizer after the status write.
    #[must_use]
    pub fn remove_finalizer(mut self) -> Self {
        self.finalizer = FinalizerAction::Remove {
            annotations: BTreeMap::new(),
        };
        self
    }

    /// Returns the same decision about an object with another status.
    #[must_use]
    pub fn map_status<T: Status>(
        self,
        phase: T::Phase,
        convert: impl FnOnce(S) -> T,
    ) -> Decision<T> {
        Decision {
            effects: self.effects,
            status: convert(self.status),
            phase,
            phase_since: self.phase_since,
            verdict: self.verdict,
            conditions: self.conditions,
            finalizer: self.finalizer,
            requeue_at: self.requeue_at,
            defer_status_until: self.defer_status_until,
            effects_deadline: self.effects_deadline,
            confirm: self.confirm,
            claims: self.claims,
        }
    }

    /// Returns the status after a decision whose effects all succeeded.
    ///
    /// # Guarantees
    /// A terminal status does not change, whatever was decided: only `observedGeneration` is
    /// updated (T8). A decision with a higher epoch is another run, so this does not apply to it.
    #[must_use]
    pub fn next_status(
        &self,
        stored: &S,
        input: &PhaseInput<'_, S::Phase>,
        generation: i64,
        now: Timestamp,
    ) -> S {
        if stored.is_over() && stored.epoch() >= self.status.epoch() {
            let mut status = stored.clone();
            status.progress_mut().observed_generation = generation;
            return status;
        }
        let mut status = self.status.clone();
        status.set_phase(self.phase);
        deadline::advance(&mut status, stored, self.phase_since, input, now);
        let attempt = status.attempt().number;
        let progress = status.progress_mut();
        progress.apply_verdict(S::LIFECYCLE, &self.verdict, generation, now);
        for update in &self.conditions {
            progress.apply_condition(update, generation, now);
        }
        progress.advance_phase_history(
            self.phase.name(),
            self.is_end(),
            attempt,
            &self.verdict,
            now,
        );
        progress.retry = None;
        status
    }

    /// Returns whether the phase is terminal.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.phase.is_terminal()
    }
}

/// A condition that only this kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Type of the condition.
    pub kind: &'static str,
    /// Status of the condition: `True`, `False`, or `None` for `Unknown`.
    pub value: Option<bool>,
    /// Reason of the condition.
    pub reason: Reason,
    /// Message of the condition.
    pub message: String,
}

/// The finalizer after a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalizerAction {
    /// Keep the finalizer. The engine adds it before the first effect, but never to an object in
    /// deletion.
    Keep,
    /// Remove the finalizer after the status write, in one write with these annotations.
    Remove {
        /// Annotations to set on the object.
        annotations: BTreeMap<String, String>,
    },
}

/// One change to the cluster. The set is small and shared by all kinds. Work outside the cluster is no effect:
/// see [`crate::external`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Creates an object with a deterministic name. If the object already exists, the effect
    /// succeeds only if the object has our owner's UID and the hash of our intent.
    Ensure(Box<Manifest>),
    /// Applies the fields that we own, by server-side apply. Does not touch an existing unmanaged
    /// object.
    Apply(Box<Manifest>),
    /// Deletes exactly this object (UID precondition). Succeeds if the object is already deleted.
    Delete(Target),
    /// Merge-patches some fields of an object.
    Patch {
        /// The object.
        target: Target,
        /// Subresource (`scale`, `status`), or `None` for the object itself.
        subresource: Option<&'static str>,
        /// Fields to patch.
        patch: Value,
    },
}

impl Effect {
    /// Makes the effect optional: everything else continues if it is rejected.
    #[must_use]
    pub fn optional(self) -> Self {
        match self {
            Self::Ensure(manifest) => Self::Ensure(Box::new(manifest.optional())),
            Self::Apply(manifest) => Self::Apply(Box::new(manifest.optional())),
            Self::Delete(target) => Self::Delete(target.optional()),
            Self::Patch {
                target,
                subresource,
                patch,
            } => Self::Patch {
                target: target.optional(),
                subresource,
                patch,
            },
        }
    }

    /// Returns whether the effect is optional: its rejection stops nothing else.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        match self {
            Self::Ensure(manifest) | Self::Apply(manifest) => manifest.optional,
            Self::Delete(target) | Self::Patch { target, .. } => target.optional,
        }
    }
}

/// A resource type of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name, as in API paths.
    pub plural: &'static str,
}

impl ResourceType {
    /// Creates a type.
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
    /// `v1` Pods.
    pub const POD: Self = Self {
        group: "",
        version: "v1",
        kind: "Pod",
        plural: "pods",
    };
    /// `batch/v1` Jobs.
    pub const JOB: Self = Self {
        group: "batch",
        version: "v1",
        kind: "Job",
        plural: "jobs",
    };

    /// Returns `group/version`, or only the version for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            [self.group, self.version].join("/")
        }
    }
}

/// An existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Type of the object.
    pub resource: ResourceType,
    /// Namespace of the object, or `None` if it is cluster-scoped.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// UID of the object. Another object of the same name is not touched.
    pub uid: String,
    /// Resource version of the object, for optimistic locking. If the object has changed since, the
    /// API server rejects the change.
    pub version: Option<String>,
    /// For a change that cannot be undone: the intent that the *stored* status must already have.
    pub requires_intent: Option<String>,
    /// Whether the change is optional. If the API server rejects an optional change, `decide` runs
    /// again with the error as input, and everything else continues.
    pub optional: bool,
}

impl Target {
    /// Makes the change optional: everything else continues if it is rejected.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Requires that the stored status has this intent before the change is made.
    #[must_use]
    pub fn requires_intent(mut self, intent: String) -> Self {
        self.requires_intent = Some(intent);
        self
    }
}

/// An object that should exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Type of the object.
    pub resource: ResourceType,
    /// Namespace of the object, or `None` if it is cluster-scoped.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// UID of the owner. The label `orchestrator.io/uid` of the object has it, too.
    pub owner_uid: String,
    /// The whole object, with the hash of the intent in its annotations.
    pub body: Value,
    /// For an object that, once created, does something that cannot be undone: the intent that the
    /// *stored* status must already have. Otherwise the engine refuses to create the object.
    pub requires_intent: Option<String>,
    /// UID of the existing object, if it is known to be ours. An object with another UID is not
    /// touched.
    pub expected_uid: Option<String>,
    /// Annotation with which a former owner releases an object, and the name of that owner. An object with
    /// this annotation may be adopted.
    pub adopt_from: Option<(&'static str, String)>,
    /// Whether the object is optional. If the API server rejects an optional object, `decide` runs
    /// again with the error as input, and everything else continues.
    pub optional: bool,
    /// Whether the decision observes any object of this name, including unmanaged ones. If the
    /// create then finds an unmanaged object, the cache was outdated, and the engine decides again.
    pub observed_by_name: bool,
    /// Whether the object restricts others. It is applied even if another independent object was
    /// rejected.
    pub independent: bool,
    /// Whether the object is only compared with the existing one, and never created.
    pub existing: bool,
    /// Whether an undo needs the object. Only such an object may be created while its owner is being
    /// deleted.
    pub undoing: bool,
}

impl Manifest {
    /// Creates a manifest from an object without identity. Adds the type, the name, the namespace,
    /// the labels of a child and the hash of the intent.
    ///
    /// # Guarantees
    /// The hash depends only on the arguments, so the same decision made twice has the same intent.
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
                    serde_json::json!({ names::SPEC_HASH: intent }),
                );
            }
        }
        Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            owner_uid: owner_uid.to_owned(),
            body,
            requires_intent: None,
            expected_uid: None,
            adopt_from: None,
            optional: false,
            observed_by_name: false,
            existing: false,
            independent: false,
            undoing: false,
        }
    }

    /// Requires that the stored status has this intent before the object is created.
    #[must_use]
    pub fn requires_intent(mut self, intent: String) -> Self {
        self.requires_intent = Some(intent);
        self
    }

    /// Applies to the existing object with this UID only.
    #[must_use]
    pub fn expected_uid(mut self, uid: &str) -> Self {
        self.expected_uid = Some(uid.to_owned());
        self
    }

    /// Allows the adoption of an object that the former owner of this name released with this annotation.
    #[must_use]
    pub fn adopt_from(mut self, annotation: &'static str, name: &str) -> Self {
        self.adopt_from = Some((annotation, name.to_owned()));
        self
    }

    /// Makes the object optional: everything else continues if it is rejected.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Applies the object even if another independent object was rejected.
    #[must_use]
    pub fn independent(mut self) -> Self {
        self.independent = true;
        self
    }

    /// Only compares the object with the existing one, and never creates it.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self.requires_intent = None;
        self
    }

    /// Declares that an undo needs the object, so that it may be created while its owner is being
    /// deleted.
    ///
    /// # Caveats
    /// - Later decisions must delete the object, or keep it on purpose, before they remove the finalizer.
    /// - The object must not have an owner reference to its owner. The garbage collector may delete
    ///   dependents of an object in deletion at once.
    #[must_use]
    pub fn undoing(mut self) -> Self {
        self.undoing = true;
        self
    }

    /// Declares that the decision observes any object of this name.
    #[must_use]
    pub fn observed_by_name(mut self) -> Self {
        self.observed_by_name = true;
        self
    }

    /// Returns the hash of the intent.
    #[must_use]
    pub fn intent(&self) -> Option<&str> {
        self.body
            .pointer("/metadata/annotations")?
            .get(names::SPEC_HASH)?
            .as_str()
    }
}

/// How the engine handles an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// May disappear without an action: retried soon, shown on the object after 30 s.
    Transient,
    /// We decided from an outdated version: observed again.
    Conflict,
    /// The user must change something: `Stalled`, retried slowly.
    Invalid,
    /// Permission, quota or admission: retried slowly, with the verb and resource in the message.
    Denied,
    /// The operation itself failed: terminal.
    Failed,
    /// An internal error: a caught panic, a broken rule, or a step that exceeded its time limit.
    Bug,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: &'static [Self] = &[
        Self::Transient,
        Self::Conflict,
        Self::Invalid,
        Self::Denied,
        Self::Failed,
        Self::Bug,
    ];

    /// Returns the name in metrics, logs and `status.retry.class`.
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

/// An error, with everything that is needed to handle it and to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileError {
    /// How the engine handles the error.
    pub class: ErrorClass,
    /// Reason of the condition.
    pub reason: Reason,
    /// The expected state, the observed state and the next step. Never contains a secret.
    pub message: String,
}

impl ReconcileError {
    /// Creates an error. The message is cut to [`crate::status::MAX_MESSAGE_CHARS`] characters.
    #[must_use]
    pub fn new(class: ErrorClass, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            class,
            reason,
            message: crate::status::bounded(&message.into(), crate::status::MAX_MESSAGE_CHARS),
        }
    }

    /// Creates an error of class [`ErrorClass::Bug`].
    #[must_use]
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Bug, Reason::InternalError, message)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for ReconcileError {}
