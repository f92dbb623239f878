//! The reconciliation of one object: observe, decide, act, record.

mod effects;

use std::{sync::Arc, time::Duration};

use api::{
    Phase, Reason, State, Status, Timestamp, Verdict,
    decide::{Class, Decision, Effect, Fault, Hold, Input, LiveRead},
    status::{Retry, condition},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt, core::ObjectMeta};
use mutant::Mutant;
use serde_json::{Value, json};

use crate::{
    act::{Hands, Place},
    clock::Clock,
    events::Transition,
    key::Key,
    kind::Kind,
    leader::Leading,
    metrics::Metrics,
    record::{self, Seen},
};

/// A reconciliation that failed: the fault, and the state that was observed by then.
pub(crate) type Failed<S> = (Fault, Option<Seen<S>>);

/// The reconciler of one kind: observes, decides, carries out effects and writes the status.
pub(crate) struct Eyes<K: Kind> {
    pub(crate) kind: Arc<K>,
    pub(crate) hands: Hands,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) leading: Leading,
    /// Identity of this process in Events.
    pub(crate) identity: String,
}

/// Outcome of a reconciliation that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The status is written, or may be written later. Reconcile again at this time at the latest.
    Completed(Option<Timestamp>),
    /// There was nothing to do: the object is in deletion and does not have our finalizer.
    Skipped,
    /// This process no longer leads, and has written nothing since it lost the Lease.
    Abandoned,
}

/// Reason for an early end of a reconciliation.
enum Stop {
    Fault(Fault),
    /// The API server rejected an object that the rest of the decision does not need.
    Aside(Fault),
    NotLeading,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<K: Kind> Eyes<K> {
    /// Observes, decides, carries out effects and writes the status.
    pub(crate) async fn look(&self, object: &Arc<K::Object>) -> Result<Looked, Failed<K::Status>> {
        let mut seen = None;
        match self.pass(object, &mut seen).await {
            Ok(looked) => Ok(looked),
            Err(Stop::NotLeading) => Ok(Looked::Abandoned),
            Err(Stop::Fault(fault) | Stop::Aside(fault)) => Err((fault, seen)),
        }
    }

    async fn pass(
        &self,
        object: &Arc<K::Object>,
        seen: &mut Option<Seen<K::Status>>,
    ) -> Result<Looked, Stop> {
        let meta = object.meta();
        let is_deleting = meta.deletion_timestamp.is_some();
        let is_held = is_held::<K>(meta);
        if is_deleting && !is_held {
            return Ok(Looked::Skipped);
        }
        let now = self.clock.now();
        let stored = K::status(object).cloned().unwrap_or_default();
        let mut world = self.kind.observe(object, now).await?;
        let mut is_confirmed = mutant::on(Mutant::AbsenceFromCache);

        let mut fault: Option<Fault> = None;
        let mut version = meta.resource_version.clone().unwrap_or_default();
        if mutant::on(Mutant::GenerationAcknowledged) {
            let mut claimed = stored.clone();
            claimed.progress_mut().observed_generation = meta.generation.unwrap_or(0);
            let said = Verdict::working(Reason::Progressing, "acknowledged");
            let record = self.record(object, &version, &stored, &claimed, &said, now);
            version = record.await?.unwrap_or(version);
        }
        let decision = loop {
            let input = Input {
                object: &**object,
                world: &world,
                now,
                fault: fault.as_ref(),
                confirmed: is_confirmed,
            };
            let decision = K::decide(&input);
            if !decision.confirm.is_empty() {
                if is_confirmed {
                    return Err(Fault::bug("a decision asked twice for a live read").into());
                }
                self.confirm(meta, &decision.confirm).await?;
                is_confirmed = true;
                world = self.kind.observe(object, now).await?;
                continue;
            }
            check::<K>(&stored, &decision, is_deleting)?;
            if K::Status::SHAPE == api::Shape::LongLived {
                *seen = Some(Seen {
                    status: decision.status.clone(),
                    facts: decision.conditions.clone(),
                });
            }
            if !is_held && !is_deleting && must_hold::<K>(&decision) {
                version = self.hold(object, &version).await?;
            }
            if mutant::on(Mutant::StatusFirst) && !decision.effects.is_empty() {
                let status = decision.settled(&stored, meta.generation.unwrap_or(0), now);
                let said = &decision.verdict;
                let record = self.record(object, &version, &stored, &status, said, now);
                version = record.await?.unwrap_or(version);
            }
            match self.act(object, &decision.effects).await {
                Ok(()) => break decision,
                Err(Stop::Fault(failed)) if failed.class == Class::Failed && fault.is_none() => {
                    tracing::warn!(kind = K::RESOURCE.kind, object = %Key::of(meta), "{failed}");
                    self.metrics.error(K::RESOURCE.kind, failed.class.name());
                    fault = Some(failed);
                }
                Err(Stop::Aside(refused)) if fault.is_none() => {
                    tracing::warn!(kind = K::RESOURCE.kind, object = %Key::of(meta), "{refused}");
                    self.metrics.error(K::RESOURCE.kind, refused.class.name());
                    fault = Some(refused);
                }
                Err(stop) => return Err(stop),
            }
        };

        // Removing the finalizer of a deleted object must not depend on a final status write.
        if is_deleting && let Hold::Release { annotations } = &decision.hold {
            self.release(object, &version, annotations).await?;
            return Ok(Looked::Completed(None));
        }
        let generation = meta.generation.unwrap_or(0);
        let status = decision.settled(&stored, generation, now);
        let later = decision.record_at.filter(|at| now < *at);
        let later = later.or_else(|| record::may_wait(&stored, &status, now));
        let has_to_let_go = match &decision.hold {
            Hold::Keep => false,
            Hold::Release { annotations } => is_held || !annotations.is_empty(),
        };
        if let Some(at) = later
            && !has_to_let_go
        {
            let wake = decision.wake.map_or(at, |wake| wake.min(at));
            return Ok(Looked::Completed(Some(wake)));
        }
        if let Some(written) = self
            .record(object, &version, &stored, &status, &decision.verdict, now)
            .await?
        {
            version = written;
        }
        if let Hold::Release { annotations } = &decision.hold
            && !mutant::on(Mutant::FinalizerKept)
        {
            let released = self.release(object, &version, annotations).await;
            if !mutant::on(Mutant::ReleaseFaultSwallowed) {
                released?;
            }
        }
        if mutant::on(Mutant::HotLoop) {
            return Ok(Looked::Completed(Some(now + Duration::from_secs(1))));
        }
        Ok(Looked::Completed(decision.wake))
    }

    /// Writes a status if it changed, with the version that it was decided from. Emits the Event first:
    /// after a crash between the two, the Event is sent again under the same name and not lost.
    async fn record(
        &self,
        object: &K::Object,
        version: &str,
        stored: &K::Status,
        status: &K::Status,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<Option<String>, Stop> {
        if !record::differs(stored, status) {
            return Ok(None);
        }
        self.must_lead()?;
        let meta = object.meta();
        if has_turned(stored, status) {
            let (object, phase) = (Key::of(meta), phase_name(status));
            let (kind, reason) = (K::RESOURCE.kind, verdict.reason.name());
            let attempt = status.attempt();
            tracing::info!(kind, %object, phase, reason, attempt, "{}", verdict.message);
            let since = since(stored);
            self.tell(
                &Transition {
                    meta,
                    since,
                    attempt,
                    disruptions: status.disruptions(),
                    phase,
                    verdict,
                },
                now,
            )
            .await;
            // Sending the Event took time, so the Lease may be lost by now.
            self.must_lead()?;
        }
        for (condition, since, verdict) in turned_apart(stored, status, verdict) {
            let (object, kind) = (Key::of(meta), K::RESOURCE.kind);
            let reason = verdict.reason.name();
            tracing::info!(kind, %object, condition, reason, "{}", verdict.message);
            let transition = Transition {
                meta,
                since,
                attempt: status.attempt(),
                disruptions: status.disruptions(),
                phase: condition,
                verdict: &verdict,
            };
            self.tell(&transition, now).await;
            self.must_lead()?;
        }
        let place = Place {
            subresource: Some("status"),
            ..self.place(meta)
        };
        // The effects and the Events took time, so read the clock again.
        let patch = record::difference(stored, status, self.clock.now()).map_err(|error| {
            Fault::bug(format!("the status cannot be written as JSON: {error}"))
        })?;
        let body = json!({ "status": patch });
        let uid = meta.uid.clone().unwrap_or_default();
        let patch = self.hands.patch(place, &uid, Some(version), body);
        let written = self.led(patch).await;
        let written = match written {
            Err(Stop::Fault(fault))
                if fault.class == Class::Conflict && mutant::on(Mutant::ConflictSwallowed) =>
            {
                return Ok(None);
            }
            answer => answer?,
        };
        self.count(stored, status, now);
        let (kind, object) = (K::RESOURCE.kind, Key::of(meta));
        tracing::debug!(kind, %object, phase = phase_name(status), "wrote the status");
        let version = written
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        Ok(Some(version.unwrap_or_default().to_owned()))
    }

    /// Writes a fault to the status of the object, with an Event.
    pub(crate) async fn record_fault(
        &self,
        object: &K::Object,
        fault: &Fault,
        seen: Option<&Seen<K::Status>>,
        retry: Option<Retry>,
    ) -> Result<(), Fault> {
        let now = self.clock.now();
        let stored = K::status(object).cloned().unwrap_or_default();
        let generation = object.meta().generation.unwrap_or(0);
        let verdict = record::verdict_of(fault);
        let Some(status) = record::failed(&stored, fault, seen, retry, generation, now) else {
            // The object is finished, so its status does not change. Only an Event can report the fault.
            if self.leading.is_on() {
                let transition = Transition {
                    meta: object.meta(),
                    since: since(&stored),
                    attempt: stored.attempt(),
                    disruptions: stored.disruptions(),
                    phase: phase_name(&stored),
                    verdict: &verdict,
                };
                self.tell(&transition, now).await;
            }
            return Ok(());
        };
        let version = object.meta().resource_version.clone().unwrap_or_default();
        match self
            .record(object, &version, &stored, &status, &verdict, now)
            .await
        {
            Ok(_) | Err(Stop::NotLeading) => Ok(()),
            Err(Stop::Fault(fault) | Stop::Aside(fault)) => Err(fault),
        }
    }

    /// Reads objects from the API server into the caches, because a decision assumes that
    /// they are absent.
    async fn confirm(&self, meta: &ObjectMeta, reads: &[LiveRead]) -> Result<(), Fault> {
        let (kind, object) = (K::RESOURCE.kind, Key::of(meta));
        for read in reads {
            tracing::debug!(kind, %object, ?read, "reads from the API server");
            self.hands.confirm(read).await?;
        }
        Ok(())
    }

    /// Adds the finalizer. Returns the new version.
    async fn hold(&self, object: &K::Object, version: &str) -> Result<String, Stop> {
        self.must_lead()?;
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(K::FINALIZER.to_owned());
        let version = self
            .metadata(object, version, json!({ "finalizers": finalizers }))
            .await?;
        let (kind, object) = (K::RESOURCE.kind, Key::of(object.meta()));
        tracing::debug!(kind, %object, "added the finalizer");
        Ok(version)
    }

    /// Removes the finalizer and sets annotations, in one write. Writes nothing if both are already done.
    async fn release(
        &self,
        object: &K::Object,
        version: &str,
        annotations: &std::collections::BTreeMap<String, String>,
    ) -> Result<(), Stop> {
        let meta = object.meta();
        let has_all = annotations
            .iter()
            .all(|(name, value)| object.annotations().get(name) == Some(value));
        // `object` may lack the finalizer that this same reconciliation added. Such a reconciliation does
        // not release the object, because it had effects to wait for.
        if !is_held::<K>(meta) && (has_all || meta.deletion_timestamp.is_some()) {
            return Ok(());
        }
        self.must_lead()?;
        let finalizers: Vec<&String> = object
            .finalizers()
            .iter()
            .filter(|name| *name != K::FINALIZER)
            .collect();
        self.metadata(
            object,
            version,
            json!({ "finalizers": finalizers, "annotations": annotations }),
        )
        .await?;
        let (kind, object) = (K::RESOURCE.kind, Key::of(meta));
        tracing::debug!(kind, %object, "removed the finalizer");
        Ok(())
    }

    async fn metadata(
        &self,
        object: &K::Object,
        version: &str,
        metadata: Value,
    ) -> Result<String, Stop> {
        let meta = object.meta();
        let uid = meta.uid.clone().unwrap_or_default();
        let patch = json!({ "metadata": metadata });
        let place = self.place(meta);
        let written = self
            .led(self.hands.patch(place, &uid, Some(version), patch))
            .await?;
        let version = written
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        Ok(version.unwrap_or_default().to_owned())
    }

    fn place<'a>(&self, meta: &'a ObjectMeta) -> Place<'a> {
        Place {
            resource: K::RESOURCE,
            namespace: meta.namespace.as_deref(),
            name: meta.name.as_deref().unwrap_or_default(),
            subresource: None,
        }
    }

    /// Returns an error if the Lease is lost. Then no write may begin; writes in flight are harmless.
    fn must_lead(&self) -> Result<(), Stop> {
        if self.leading.is_on() || mutant::on(Mutant::LeaseLossIgnored) {
            Ok(())
        } else {
            Err(Stop::NotLeading)
        }
    }

    /// Performs a write, but drops it when the Lease ends. So a write that still waits for a connection
    /// never begins then.
    async fn led<T>(&self, write: impl Future<Output = Result<T, Fault>>) -> Result<T, Stop> {
        if mutant::on(Mutant::LeaseLossIgnored) {
            return Ok(write.await?);
        }
        tokio::select! {
            biased;
            () = self.leading.ended() => Err(Stop::NotLeading),
            written = write => Ok(written?),
        }
    }

    /// Counts a recorded transition in the metrics.
    fn count(&self, stored: &K::Status, status: &K::Status, now: Timestamp) {
        let kind = K::RESOURCE.kind;
        if stored.phase() == status.phase() && stored.epoch() == status.epoch() {
            return;
        }
        if let (Some(phase), Some(step)) = (stored.phase(), stored.progress().steps.last())
            && step.phase == phase.name()
            && step.finished_at.is_none()
        {
            let took = now.duration_since(step.started_at.0);
            let took = std::time::Duration::try_from(took).unwrap_or_default();
            self.metrics.phase_ended(kind, phase.name(), took);
        }
        if let Some(phase) = status.phase()
            && phase.is_terminal()
        {
            let reason = status
                .progress()
                .condition(condition::FINISHED)
                .and_then(|known| Reason::from_name(&known.reason))
                .map_or("Unknown", Reason::name);
            self.metrics.run_ended(kind, phase.name(), reason);
        }
    }
}

/// Returns whether the object needs our finalizer: something is about to be created for it, or was.
/// Someone may have removed the finalizer since, for example with `kubectl replace`.
fn must_hold<K: Kind>(decision: &Decision<K::Status, K::External>) -> bool {
    let has_children = decision.status.has_children() && !mutant::on(Mutant::FinalizerNotRestored);
    decision.hold == Hold::Keep && (!decision.effects.is_empty() || has_children)
}

fn is_held<K: Kind>(meta: &ObjectMeta) -> bool {
    meta.finalizers
        .iter()
        .flat_map(|names| names.iter())
        .any(|name| name == K::FINALIZER)
}

/// Returns the time of the last transition of the main condition.
fn since<S: Status>(status: &S) -> Option<Timestamp> {
    main_condition(status).map(|known| known.last_transition_time.0)
}

fn main_condition<S: Status>(status: &S) -> Option<&Condition> {
    [condition::SUCCEEDED, condition::READY]
        .iter()
        .find_map(|kind| status.progress().condition(kind))
}

fn phase_name<S: Status>(status: &S) -> &'static str {
    status.phase().map_or("Unknown", Phase::name)
}

/// Returns whether the change deserves an Event: another phase, another attempt or another reason.
fn has_turned<S: Status>(stored: &S, status: &S) -> bool {
    let main = |status: &S| {
        let reason = main_condition(status).map(|known| known.reason.clone());
        let turn = (status.attempt(), status.disruptions(), status.epoch());
        (status.phase(), turn, reason)
    };
    main(stored) != main(status)
}

/// Returns the secondary conditions that deserve their own Event: a new warning or a recovery. A
/// condition is skipped if the main condition reports the same reason.
fn turned_apart<S: Status>(
    stored: &S,
    status: &S,
    main: &Verdict,
) -> Vec<(&'static str, Option<Timestamp>, Verdict)> {
    let turned = S::APART.iter().filter_map(|kind| {
        let now = status.progress().condition(kind)?;
        let before = stored.progress().condition(kind);
        let reason = Reason::from_name(&now.reason)?;
        let is_as_before =
            before.is_some_and(|one| one.status == now.status && one.reason == now.reason);
        let is_worth_it = now.status == "True" || reason.is_warning();
        if is_as_before || !is_worth_it || reason == main.reason {
            return None;
        }
        let message = format!("{kind} is {}: {}", now.status, now.message);
        let since = before.map(|one| one.last_transition_time.0);
        Some((*kind, since, Verdict::working(reason, message)))
    });
    turned.collect()
}

/// Rejects a decision that breaks a rule of the engine.
fn check<K: Kind>(
    stored: &K::Status,
    decision: &Decision<K::Status, K::External>,
    is_deleting: bool,
) -> Result<(), Fault> {
    let is_another_run = decision.status.epoch() > stored.epoch();
    if let Some(from) = stored.phase()
        && !is_another_run
        && !from.may_become(decision.phase)
    {
        return Err(Fault::bug(format!(
            "a decision to go from {} to {} was refused: no row of the phase table allows it",
            from.name(),
            decision.phase.name()
        )));
    }
    if decision.status.epoch() < stored.epoch() {
        return Err(Fault::bug(
            "a decision to go back to an earlier version was refused",
        ));
    }
    let state = decision.verdict.state;
    let is_end = matches!(state, State::Succeeded | State::Failed);
    if K::Status::SHAPE == api::Shape::Run && decision.is_end() != is_end {
        return Err(Fault::bug(format!(
            "a decision with phase {} and state {state:?} was refused: they contradict each other",
            decision.phase.name()
        )));
    }
    let is_unchecked =
        mutant::on(Mutant::IntentUnstored) || mutant::on(Mutant::NamespaceUnannounced);
    for effect in &decision.effects {
        match (effect, irreversible(effect)) {
            (_, Some(intent)) if !stored.has_intent(intent) && !is_unchecked => {
                return Err(Fault::bug(format!(
                    "an irreversible effect was refused: the stored status does not carry its intent '{intent}'"
                )));
            }
            (Effect::Ensure(manifest), _) if is_deleting && !manifest.existing => {
                return Err(Fault::bug(format!(
                    "the creation of {} '{}' was refused: the object is being deleted",
                    manifest.resource.kind, manifest.name
                )));
            }
            (
                Effect::External { .. }
                | Effect::Ensure(_)
                | Effect::Apply(_)
                | Effect::Delete(_)
                | Effect::Patch { .. },
                _,
            ) => {}
        }
    }
    Ok(())
}

/// Returns the intent of an irreversible effect, or of the object that the effect creates or changes.
fn irreversible<X>(effect: &Effect<X>) -> Option<&str> {
    match effect {
        Effect::External { irreversible, .. } => irreversible.as_deref(),
        Effect::Ensure(manifest) | Effect::Apply(manifest) => manifest.irreversible.as_deref(),
        Effect::Delete(target) | Effect::Patch { target, .. } => target.irreversible.as_deref(),
    }
}
