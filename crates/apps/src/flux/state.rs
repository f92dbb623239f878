//! The state of an object of Flux, from the generations of its conditions and from its last attempt.
//!
//! The condition `Ready` alone shows neither the spec nor the version that it is about. kustomize-controller and
//! helm-controller store `status.observedGeneration` only after a success, so the generation of a failure is in the
//! condition. `Ready=True` of an earlier version stays until the controller begins to apply the next one.

use std::{collections::BTreeSet, time::Duration};

use api::{Timestamp, apps::NamespacedName, time};

use crate::object::ObjectId;

/// Time for which a healthy application keeps its state while Flux reconciles the version that is already applied.
/// kustomize-controller sets `Ready` to `Unknown` at each interval, also if nothing changes. Its own timeout ends an
/// attempt.
pub const RECONCILE_GRACE: Duration = Duration::from_secs(10 * 60);

/// Time after which a new success of Flux counts. The watches are independent of each other, so the objects that Flux
/// applied may arrive after the success. Longer than the interruption of a watch that the engine tolerates.
pub const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Reasons of `Ready=False` with which Flux only waits for another object, and which are normal during a change.
const WAITING_REASONS: [&str; 3] = [
    "DependencyNotReady",
    "HealthCheckCanceled",
    "SourceNotReady",
];

/// Fields that Kustomizations and HelmReleases share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FluxObject {
    /// Namespace and name.
    pub name: NamespacedName,
    /// Objects of Flux that its labels name.
    pub appliers: BTreeSet<ObjectId>,
    /// Generation of the spec.
    pub generation: i64,
    /// Generation that the controller of Flux reconciled with success, or -1 before the first success.
    pub observed_generation: i64,
    /// Whether `spec.suspend` is true.
    pub is_suspended: bool,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// Whether the object applies to another cluster (`spec.kubeConfig`).
    pub is_remote: bool,
    /// Whether a reconciliation was requested that the controller of Flux has not handled.
    pub has_open_request: bool,
    /// The condition `Ready`.
    pub ready: Option<FluxCondition>,
    /// The condition `Stalled`.
    pub stalled: Option<FluxCondition>,
    /// The last attempt of the controller of Flux.
    pub attempt: Attempt,
}

/// A condition of an object of Flux.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FluxCondition {
    /// Whether the condition is True or False, or `None` for Unknown.
    pub value: Option<bool>,
    /// Reason of Flux.
    pub reason: String,
    /// Message of Flux.
    pub message: String,
    /// Time of the last transition.
    pub since: Option<Timestamp>,
    /// Generation of the spec that the condition is about, if the condition has one.
    pub generation: Option<i64>,
}

/// The last attempt of a controller of Flux, compared with the version that it applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Attempt {
    /// The status shows no attempt.
    #[default]
    Unknown,
    /// The last attempt was about the applied version, and succeeded.
    Applied,
    /// The last attempt is about another version than the applied one. The text is for a message.
    Open(String),
    /// The last attempt failed. The text is for a message.
    Failed(String),
}

/// State of an object of Flux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FluxState {
    /// The current spec is applied.
    Settled,
    /// The object is suspended. Its condition `Ready` shows an earlier state.
    Suspended,
    /// The object is being deleted. Its condition `Ready` shows an earlier state.
    Deleting,
    /// The controller of Flux applies a change. The text is for a message.
    Reconciling(String),
    /// The controller of Flux reports a failure. The text is for a message.
    Failed(String),
}

impl FluxObject {
    /// Returns the state. `was_ready` is whether the application was ready until now, at the version that is applied.
    #[must_use]
    pub fn state(&self, was_ready: bool, now: Timestamp) -> FluxState {
        if self.is_deleting {
            return FluxState::Deleting;
        }
        if self.is_suspended {
            return FluxState::Suspended;
        }
        let changing = |text: &str| FluxState::Reconciling(text.to_owned());
        let unseen = || changing("its latest spec is not reconciled yet");
        let is_observed = self.observed_generation == self.generation;
        let Some(ready) = &self.ready else {
            return if is_observed {
                changing("it has no condition 'Ready' yet")
            } else {
                unseen()
            };
        };
        let stalled = self.stalled.as_ref().filter(|known| self.is_current(known));
        if let Some(stalled) = stalled.filter(|known| known.value == Some(true)) {
            return FluxState::Failed(format!("it is stalled: {}", stalled.text()));
        }
        // For a success, the generation of the status counts: see below.
        if ready.value != Some(true) && !self.is_current(ready) {
            return unseen();
        }
        match (ready.value, &self.attempt) {
            (Some(false), _) if WAITING_REASONS.contains(&ready.reason.as_str()) => {
                FluxState::Reconciling(ready.text())
            }
            (Some(false), _) => FluxState::Failed(ready.text()),
            // A conflict of the writes of Flux can advance the generation of an old `Ready=True`. The generation of the
            // status is only stored after a success.
            (Some(true), _) if !is_observed => unseen(),
            (None, _) if !is_observed => FluxState::Reconciling(ready.text()),
            (_, Attempt::Failed(text)) => FluxState::Failed(text.clone()),
            (_, Attempt::Open(text)) => FluxState::Reconciling(text.clone()),
            (_, Attempt::Unknown) => changing("its status shows no attempt yet"),
            (Some(true), Attempt::Applied) if was_ready => FluxState::Settled,
            (Some(true), Attempt::Applied) if self.has_open_request => {
                changing("a requested reconciliation is not handled yet")
            }
            (Some(true), Attempt::Applied) if ready.began_within(SETTLE_TIME, now) => {
                changing("it was applied a moment ago")
            }
            (Some(true), Attempt::Applied) => FluxState::Settled,
            (None, Attempt::Applied) if was_ready && ready.began_within(RECONCILE_GRACE, now) => {
                FluxState::Settled
            }
            (None, Attempt::Applied) => FluxState::Reconciling(ready.text()),
        }
    }

    /// Returns when a new success of Flux counts, if it does not count yet.
    #[must_use]
    pub fn settles_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ready = self.ready.as_ref()?;
        let is_new = ready.value == Some(true) && ready.began_within(SETTLE_TIME, now);
        let since = ready.since.filter(|_| is_new)?;
        Some(time::after(since, SETTLE_TIME))
    }

    /// Returns whether a condition is about the current spec.
    fn is_current(&self, condition: &FluxCondition) -> bool {
        condition.generation.unwrap_or(self.observed_generation) == self.generation
    }
}

impl FluxCondition {
    fn text(&self) -> String {
        format!("{}: {}", self.reason, self.message)
    }

    /// Returns whether the last transition is at most this old. A time in the future is another clock's, and does not
    /// count for longer than the limit.
    fn began_within(&self, limit: Duration, now: Timestamp) -> bool {
        self.since
            .is_some_and(|since| now < time::after(since, limit) && since < time::after(now, limit))
    }
}
