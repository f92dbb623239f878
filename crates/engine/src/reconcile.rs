//! The reconciliation of one object: observe, decide, act, record.

mod claims;
mod effects;
mod phases;
pub(crate) mod slow_effect;
mod transitions;

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Phase, Reason, State, Status, Timestamp, Verdict, deadline,
    decide::{Decision, Effect, ErrorClass, FinalizerAction, Input, LiveRead, ReconcileError},
    status::{Retry, condition},
};
use kube::{Resource, ResourceExt, core::ObjectMeta};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    claims::check_claims,
    effects::creation,
    phases::{check_phase, phase_input},
    transitions::{changed_conditions, has_transitioned, phase_name, since},
};
use crate::{
    apply::{Applier, ResourcePath},
    cache::parse_version,
    clock::Clock,
    events::Transition,
    key::Key,
    kind::Kind,
    leader::Leadership,
    metrics::Metrics,
    status_update::{self, Observed},
};

/// A reconciliation that failed: the error, and the state that was observed by then.
pub(crate) type ReconcileFailure<S> = (ReconcileError, Option<Observed<S>>);

/// The reconciler of one kind: observes, decides, carries out effects and writes the status.
pub(crate) struct Reconciler<K: Kind> {
    pub(crate) kind: Arc<K>,
    pub(crate) applier: Applier,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) leading: Leadership,
    /// Identity of this process in Events.
    pub(crate) identity: String,
}

/// Outcome of a reconciliation that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The status is written, or may be written later. Reconcile again at this time at the latest.
    Completed(Option<Timestamp>),
    /// More effects are left than fit into the time. Reconcile again at once.
    Continued,
    /// There was nothing to do: the object is in deletion and does not have our finalizer.
    Skipped,
    /// This process no longer leads, and has written nothing since it lost the Lease.
    Abandoned,
}

/// Reason for an early end of a reconciliation.
enum Abort {
    Error(ReconcileError),
    /// An effect failed after it was reported while it hung. The report changed the object, so this reconciliation cannot
    /// write its status any more.
    Reported(ReconcileError),
    /// The API server rejected an effect that the rest of the decision does not need.
    NonFatal(ReconcileError),
    LeadershipLost,
    /// The time of the reconciliation is half over, and effects are left.
    OutOfTime,
    /// Another object has the lock that the decision needs, or the object with the lock has changed.
    Refused(ReconcileError),
}

impl From<ReconcileError> for Abort {
    fn from(fault: ReconcileError) -> Self {
        Self::Error(fault)
    }
}

impl<K: Kind> Reconciler<K> {
    /// Observes, decides, carries out effects and writes the status. Begins no further effect after `yield_at`.
    pub(crate) async fn reconcile(
        &self,
        object: &Arc<K::Object>,
        yield_at: Instant,
    ) -> Result<Outcome, ReconcileFailure<K::Status>> {
        let mut observed = None;
        match self.reconcile_inner(object, yield_at, &mut observed).await {
            Ok(outcome) => Ok(outcome),
            Err(Abort::LeadershipLost) => Ok(Outcome::Abandoned),
            Err(Abort::OutOfTime) => Ok(Outcome::Continued),
            Err(
                Abort::Error(fault)
                | Abort::Reported(fault)
                | Abort::NonFatal(fault)
                | Abort::Refused(fault),
            ) => Err((fault, observed)),
        }
    }

    async fn reconcile_inner(
        &self,
        object: &Arc<K::Object>,
        yield_at: Instant,
        observed: &mut Option<Observed<K::Status>>,
    ) -> Result<Outcome, Abort> {
        let meta = object.meta();
        let is_deleting = meta.deletion_timestamp.is_some();
        let had_finalizer = has_finalizer::<K>(meta);
        let mut has_finalizer = had_finalizer;
        if is_deleting && !has_finalizer {
            return Ok(Outcome::Skipped);
        }
        let now = self.clock.now();
        let stored = K::status(object).cloned().unwrap_or_default();
        let mut confirmed = Vec::new();
        let mut is_refused = false;
        let mut world = self.kind.observe(object, now).await?;
        let mut is_confirmed = false;
        let mut fault: Option<ReconcileError> = None;
        let mut refused_optional = false;
        let mut version = meta.resource_version.clone().unwrap_or_default();
        let (decision, phase_input, overdue) = loop {
            let phase_input = phase_input::<K>(object, &world);
            let overdue = deadline::is_overdue(&stored, &phase_input, now);
            let input = Input {
                object: &**object,
                world: &world,
                now,
                fault: fault.as_ref(),
                refused: refused_optional,
                confirmed: is_confirmed,
                overdue,
            };
            let decision = K::decide(&input);
            if !decision.confirm.is_empty() {
                if is_confirmed {
                    return Err(
                        ReconcileError::bug("a decision asked twice for a live read").into(),
                    );
                }
                self.confirm(meta, &decision.confirm).await?;
                is_confirmed = true;
                confirmed = decision.confirm;
                world = self.kind.observe(object, now).await?;
                continue;
            }
            check_claims(&stored, &decision, is_deleting, &confirmed)?;
            check::<K>(&stored, &decision, is_deleting)?;
            check_phase::<K>(meta, &stored, &decision, overdue)?;
            *observed = Some(Observed::of(&decision));
            let applied = async {
                if !has_finalizer && !is_deleting && needs_finalizer::<K>(&decision) {
                    version = self.add_finalizer(object, &version).await?;
                    has_finalizer = true;
                }
                self.carry_out(object, &version, &decision, yield_at).await
            };
            match applied.await {
                Ok(()) => break (decision, phase_input, overdue),
                Err(Abort::Refused(refused)) if !is_refused => {
                    tracing::debug!(kind = K::RESOURCE.kind, object = %Key::of(meta), "{refused}");
                    is_refused = true;
                    // The holder may be another one now, and only the former one was read.
                    is_confirmed = false;
                    confirmed.clear();
                    world = self.kind.observe(object, now).await?;
                }
                // Also after the error of an optional effect: the decision without it may need another effect.
                Err(Abort::Error(failed))
                    if (fault.is_none() || refused_optional)
                        && (failed.class == ErrorClass::Failed
                            || is_too_late(&decision, self.clock.now())) =>
                {
                    tracing::warn!(kind = K::RESOURCE.kind, object = %Key::of(meta), "{failed}");
                    self.metrics.error(K::RESOURCE.kind, failed.class.name());
                    fault = Some(failed);
                    refused_optional = false;
                }
                Err(Abort::NonFatal(refused)) if fault.is_none() => {
                    tracing::warn!(kind = K::RESOURCE.kind, object = %Key::of(meta), "{refused}");
                    self.metrics.error(K::RESOURCE.kind, refused.class.name());
                    fault = Some(refused);
                    refused_optional = true;
                }
                Err(stop) => return Err(stop),
            }
        };

        // Removing the finalizer of a deleted object must not depend on a final status write.
        if is_deleting && let FinalizerAction::Remove { annotations } = &decision.finalizer {
            self.remove_finalizer(object, &version, annotations).await?;
            return Ok(Outcome::Completed(None));
        }
        let generation = meta.generation.unwrap_or(0);
        let status = decision.next_status(&stored, &phase_input, generation, now);
        let is_told = overdue && stored.phase() == status.phase();
        let deadline = deadline::requeue_at(&status, is_told, &phase_input, now);
        let requeue_at = decision.requeue_at.into_iter().chain(deadline).min();
        let later = decision.defer_status_until.filter(|at| now < *at);
        let later = later.or_else(|| status_update::throttled_until(&stored, &status, now));
        let must_remove = match &decision.finalizer {
            FinalizerAction::Keep => false,
            FinalizerAction::Remove { annotations } => has_finalizer || !annotations.is_empty(),
        };
        if let Some(at) = later
            && !must_remove
        {
            let requeue_at = requeue_at.map_or(at, |requeue_at| requeue_at.min(at));
            return Ok(Outcome::Completed(Some(requeue_at)));
        }
        // A run that makes progress gets its labels with the finalizer, in one write.
        let is_labeled = must_remove
            || has_finalizer != had_finalizer
            || decision.verdict.reason == Reason::Progressing
            || missing_labels::<K>(object).is_empty();
        if !is_labeled && status_update::has_changed(&stored, &status) {
            self.ensure_leading()?;
            version = self.metadata(object, &version, json!({})).await?;
        }
        if let Some(written) = self
            .update_status(object, &version, &stored, &status, &decision.verdict, now)
            .await?
        {
            version = written;
        }
        if let FinalizerAction::Remove { annotations } = &decision.finalizer {
            self.remove_finalizer(object, &version, annotations).await?;
        }
        Ok(Outcome::Completed(requeue_at))
    }

    /// Writes a status if it changed, with the version that it was decided from. Emits the Event first:
    /// after a crash between the two, the Event is sent again under the same name and not lost.
    async fn update_status(
        &self,
        object: &K::Object,
        version: &str,
        stored: &K::Status,
        status: &K::Status,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<Option<String>, Abort> {
        if !status_update::has_changed(stored, status) {
            return Ok(None);
        }
        self.ensure_leading()?;
        let meta = object.meta();
        let changed_conditions = changed_conditions(stored, status, verdict);
        let has_transitioned = has_transitioned(stored, status);
        if has_transitioned || !changed_conditions.is_empty() {
            self.ensure_current(meta, version).await?;
        }
        if has_transitioned {
            let (object, phase) = (Key::of(meta), phase_name(status));
            let (kind, reason) = (K::RESOURCE.kind, verdict.reason.name());
            let attempt = status.attempt();
            let number = attempt.number;
            tracing::info!(kind, %object, phase, reason, attempt = number, "{}", verdict.message);
            let since = since(stored);
            self.publish(
                &Transition {
                    meta,
                    since,
                    attempt,
                    phase,
                    verdict,
                },
                now,
            )
            .await;
            // Sending the Event took time, so the Lease may be lost by now.
            self.ensure_leading()?;
        }
        for (condition, since, verdict) in changed_conditions {
            let (object, kind) = (Key::of(meta), K::RESOURCE.kind);
            let reason = verdict.reason.name();
            tracing::info!(kind, %object, condition, reason, "{}", verdict.message);
            let transition = Transition {
                meta,
                since,
                attempt: status.attempt(),
                phase: condition,
                verdict: &verdict,
            };
            self.publish(&transition, now).await;
            self.ensure_leading()?;
        }
        let path = ResourcePath {
            subresource: Some("status"),
            ..self.path(meta)
        };
        // The effects and the Events took time, so read the clock again.
        let patch =
            status_update::status_patch(stored, status, self.clock.now()).map_err(|error| {
                ReconcileError::bug(format!("the status cannot be written as JSON: {error}"))
            })?;
        let body = json!({ "status": patch });
        let uid = meta.uid.clone().unwrap_or_default();
        let patch = self.applier.patch(path, &uid, Some(version), body);
        let written = self.while_leading(patch).await?;
        self.count(stored, status, now);
        let (kind, object) = (K::RESOURCE.kind, Key::of(meta));
        tracing::debug!(kind, %object, phase = phase_name(status), "wrote the status");
        let version = written
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        Ok(Some(version.unwrap_or_default().to_owned()))
    }

    /// Returns a conflict if the object changed after a version that is older than our Lease. An Event
    /// about a decision from an old version would report a transition that never happens, or happened
    /// before: the API server rejects only the status.
    async fn ensure_current(&self, meta: &ObjectMeta, version: &str) -> Result<(), Abort> {
        if !self.leading.may_be_outdated(parse_version(Some(version))) {
            return Ok(());
        }
        let uid = meta.uid.as_deref().unwrap_or_default();
        let current = self.applier.refresh(self.path(meta), uid).await?;
        self.ensure_leading()?;
        if current.as_deref() == Some(version) {
            return Ok(());
        }
        let message = "the cache has an old version of the object, from before this process led";
        Err(ReconcileError::new(ErrorClass::Conflict, Reason::Progressing, message).into())
    }

    /// Writes an error to the status of the object, with an Event.
    pub(crate) async fn record_fault(
        &self,
        object: &K::Object,
        fault: &ReconcileError,
        observed: Option<&Observed<K::Status>>,
        retry: Option<Retry>,
    ) -> Result<(), ReconcileError> {
        match self
            .record_fault_inner(object, fault, observed, retry)
            .await
        {
            Ok(()) | Err(Abort::LeadershipLost | Abort::OutOfTime) => Ok(()),
            Err(
                Abort::Error(fault)
                | Abort::Reported(fault)
                | Abort::NonFatal(fault)
                | Abort::Refused(fault),
            ) => Err(fault),
        }
    }

    async fn record_fault_inner(
        &self,
        object: &K::Object,
        fault: &ReconcileError,
        observed: Option<&Observed<K::Status>>,
        retry: Option<Retry>,
    ) -> Result<(), Abort> {
        let now = self.clock.now();
        let stored = K::status(object).cloned().unwrap_or_default();
        let meta = object.meta();
        let generation = meta.generation.unwrap_or(0);
        let version = meta.resource_version.clone().unwrap_or_default();
        let verdict = status_update::verdict_of(fault);
        let Some(status) =
            status_update::status_after_error(&stored, fault, observed, retry, generation, now)
        else {
            // The object is finished, so its status does not change. Only an Event can report the
            // error.
            self.ensure_leading()?;
            self.ensure_current(meta, &version).await?;
            let transition = Transition {
                meta,
                since: since(&stored),
                attempt: stored.attempt(),
                phase: phase_name(&stored),
                verdict: &verdict,
            };
            self.publish(&transition, now).await;
            return Ok(());
        };
        self.update_status(object, &version, &stored, &status, &verdict, now)
            .await?;
        Ok(())
    }

    /// Reads objects from the API server into the caches, because a decision assumes that
    /// they are absent.
    async fn confirm(&self, meta: &ObjectMeta, reads: &[LiveRead]) -> Result<(), ReconcileError> {
        let (kind, object) = (K::RESOURCE.kind, Key::of(meta));
        for read in reads {
            tracing::debug!(kind, %object, ?read, "reads from the API server");
            self.applier.confirm(read).await?;
        }
        Ok(())
    }

    /// Adds the finalizer. Returns the new version.
    async fn add_finalizer(&self, object: &K::Object, version: &str) -> Result<String, Abort> {
        self.ensure_leading()?;
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
    async fn remove_finalizer(
        &self,
        object: &K::Object,
        version: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Abort> {
        let meta = object.meta();
        let has_all = annotations
            .iter()
            .all(|(name, value)| object.annotations().get(name) == Some(value));
        // `object` may lack the finalizer that this same reconciliation added. Such a reconciliation does
        // not release the object, because it had effects to wait for.
        if !has_finalizer::<K>(meta) && (has_all || meta.deletion_timestamp.is_some()) {
            return Ok(());
        }
        self.ensure_leading()?;
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

    /// Changes fields of the metadata, and sets the labels of the object if one is missing. Returns the
    /// new version.
    async fn metadata(
        &self,
        object: &K::Object,
        version: &str,
        mut metadata: Value,
    ) -> Result<String, Abort> {
        let meta = object.meta();
        let labels = missing_labels::<K>(object);
        if !labels.is_empty() {
            metadata["labels"] = json!(labels);
        }
        let uid = meta.uid.clone().unwrap_or_default();
        let patch = json!({ "metadata": metadata });
        let path = self.path(meta);
        let written = self
            .while_leading(self.applier.patch(path, &uid, Some(version), patch))
            .await?;
        let version = written
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        Ok(version.unwrap_or_default().to_owned())
    }

    fn path<'a>(&self, meta: &'a ObjectMeta) -> ResourcePath<'a> {
        ResourcePath {
            resource: K::RESOURCE,
            namespace: meta.namespace.as_deref(),
            name: meta.name.as_deref().unwrap_or_default(),
            subresource: None,
        }
    }

    /// Returns an error if the Lease is lost. Then no write may begin; writes in flight are harmless.
    fn ensure_leading(&self) -> Result<(), Abort> {
        if self.leading.is_leader() {
            Ok(())
        } else {
            Err(Abort::LeadershipLost)
        }
    }

    /// Performs a write, but drops it when the Lease ends. So a write that still waits for a connection
    /// never begins then.
    async fn while_leading<T>(
        &self,
        write: impl Future<Output = Result<T, ReconcileError>>,
    ) -> Result<T, Abort> {
        tokio::select! {
            biased;
            () = self.leading.lost() => Err(Abort::LeadershipLost),
            written = write => Ok(written?),
        }
    }

    /// Counts a recorded transition in the metrics.
    fn count(&self, stored: &K::Status, status: &K::Status, now: Timestamp) {
        let kind = K::RESOURCE.kind;
        if stored.phase() == status.phase() && stored.epoch() == status.epoch() {
            return;
        }
        if let (Some(phase), Some(record)) =
            (stored.phase(), stored.progress().phase_history.last())
            && record.phase == phase.name()
            && record.finished_at.is_none()
        {
            let took = now.duration_since(record.started_at.0);
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
            K::count_end(&self.metrics, status);
        }
    }
}

/// Returns whether the object needs our finalizer: something is about to be created for it, or was.
/// Someone may have removed the finalizer since, for example with `kubectl replace`.
fn needs_finalizer<K: Kind>(decision: &Decision<K::Status>) -> bool {
    decision.finalizer == FinalizerAction::Keep
        && (!decision.effects.is_empty()
            || !decision.claims.is_empty()
            || decision.status.has_children())
}

/// Returns the labels of an object that are missing, or have another value.
fn missing_labels<K: Kind>(object: &K::Object) -> BTreeMap<&'static str, String> {
    let mut labels = K::labels(object);
    labels.retain(|name, value| object.labels().get(*name) != Some(value));
    labels
}

fn has_finalizer<K: Kind>(meta: &ObjectMeta) -> bool {
    meta.finalizers
        .iter()
        .flat_map(|names| names.iter())
        .any(|name| name == K::FINALIZER)
}

/// Returns whether a failed effect of the decision is not repeated, because its deadline has passed.
fn is_too_late<S: Status>(decision: &Decision<S>, now: Timestamp) -> bool {
    decision
        .effects_deadline
        .is_some_and(|deadline| deadline <= now)
}

/// Rejects a decision that breaks a rule of the engine.
fn check<K: Kind>(
    stored: &K::Status,
    decision: &Decision<K::Status>,
    is_deleting: bool,
) -> Result<(), ReconcileError> {
    let is_another_run = decision.status.epoch() > stored.epoch();
    if let Some(from) = stored.phase()
        && !is_another_run
        && !from.may_become(decision.phase)
    {
        return Err(ReconcileError::bug(format!(
            "a decision to go from {} to {} was refused: no row of the phase table allows it",
            from.name(),
            decision.phase.name()
        )));
    }
    if decision.status.epoch() < stored.epoch() {
        return Err(ReconcileError::bug(
            "a decision to go back to an earlier version was refused",
        ));
    }
    let state = decision.verdict.state;
    let is_end = matches!(state, State::Succeeded | State::Failed);
    if K::Status::LIFECYCLE == api::Lifecycle::RunToCompletion && decision.is_end() != is_end {
        return Err(ReconcileError::bug(format!(
            "a decision with phase {} and state {state:?} was refused: they contradict each other",
            decision.phase.name()
        )));
    }
    for effect in &decision.effects {
        if let Some(intent) = required_intent(effect)
            && !stored.has_intent(intent)
        {
            return Err(ReconcileError::bug(format!(
                "an irreversible effect was refused: the stored status does not carry its intent '{intent}'"
            )));
        }
        if is_deleting && let Some(manifest) = creation(effect).filter(|one| !one.undoing) {
            return Err(ReconcileError::bug(format!(
                "the creation of {} '{}' was refused: the object is being deleted, and no undo needs it",
                manifest.resource.kind, manifest.name
            )));
        }
    }
    Ok(())
}

/// Returns the intent of an irreversible effect, or of the object that the effect creates or changes.
fn required_intent(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::Ensure(manifest) | Effect::Apply(manifest) => manifest.requires_intent.as_deref(),
        Effect::Delete(target) | Effect::Patch { target, .. } => target.requires_intent.as_deref(),
    }
}
