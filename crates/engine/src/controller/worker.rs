//! Reconciles one key, handles every failure, and returns when to reconcile the key again.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Phase, Reason, Status, Timestamp,
    decide::{ErrorClass, ReconcileError},
    names,
    status::{Retry, condition},
};
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use tokio::time::Instant;

use super::{Context, Handle};
use crate::{
    apply::ResourcePath,
    backoff,
    cache::Cache,
    key::Key,
    kind::Kind,
    queue::{Backoff, Depth, Requeue},
    reconcile::{Outcome, Reconciler},
    status_update::Observed,
    watch::RunningWatches,
};

/// Duration after which a transient error is shown on the object. A shorter one is not worth two status writes. With
/// [`REPORT_WRITE_AFTER`](crate::reconcile::slow_effect::REPORT_WRITE_AFTER), the sum is the promised 10 s.
const REPORT_TRANSIENT_AFTER: Duration = Duration::from_secs(2);

/// Delay before an error is written again after its status write was rejected, because the object had changed.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Number of repeated conflicts that a lagging watch does not explain.
const CONFLICTS_BEFORE_REFRESH: u32 = 3;

/// Time after an error in which ordinary events do not advance the next reconciliation of a
/// long-lived object.
const IGNORE_EVENTS_FOR: Duration = Duration::from_secs(2);

/// Timeout of a report about a watch in trouble. The control plane may be in trouble as well.
const BLOCKED_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay of a key in a blocked scope that has nothing to report. Without it, the dispatcher would examine the key
/// again at once.
const NO_REPORT_DELAY: Duration = Duration::from_secs(1);

/// Retry state of a key that failed.
#[derive(Debug, Clone)]
pub(super) struct RetryState {
    pub(super) uid: String,
    pub(super) class: ErrorClass,
    pub(super) attempt: u32,
    pub(super) generation: i64,
    pub(super) since: Timestamp,
    /// Time of the retry. A reconciliation before that time is not another attempt.
    pub(super) until: Instant,
}

/// A worker that reconciles the keys of a kind.
pub(super) struct Worker<K: Kind> {
    pub(super) reconciler: Reconciler<K>,
    pub(super) objects: Cache<K::Object>,
    pub(super) caches: RunningWatches,
    /// Numbers of the watches of optional types that decisions read.
    pub(super) optional: BTreeSet<usize>,
    pub(super) retries: Mutex<HashMap<Key, RetryState>>,
    pub(super) seed: u64,
    pub(super) limit: Duration,
}

impl<K: Kind> Worker<K> {
    /// Reconciles one key. After any failure it still returns when to reconcile the key again.
    pub(super) async fn process_key(&self, key: &Key) -> Requeue {
        let begin = Instant::now();
        let (outcome, next) = self.reconcile_key(key).await;
        self.reconciler
            .metrics
            .reconciled(K::RESOURCE.kind, outcome, begin.elapsed());
        tracing::debug!(kind = K::RESOURCE.kind, object = %key, outcome, requeue = %next, "reconciled");
        next
    }

    async fn reconcile_key(&self, key: &Key) -> (&'static str, Requeue) {
        let Some(object) = self.objects.get(key) else {
            return self.reconcile_missing(key).await;
        };
        if let Some((class, at)) = self.stored_retry(key, &object) {
            return ("Waiting", backoff_until::<K>(class, at));
        }
        let yield_at = Instant::now() + self.limit * 2 / 5;
        let reconciling = self.reconciler.reconcile(&object, yield_at);
        let reconciling = AssertUnwindSafe(reconciling).catch_unwind();
        let (fault, observed) = match tokio::time::timeout(self.limit, reconciling).await {
            Ok(Ok(Ok(outcome))) => return self.finished(key, outcome),
            Ok(Ok(Err(failed))) => failed,
            Ok(Err(panic)) => (ReconcileError::bug(panic_message(&*panic)), None),
            Err(_elapsed) => {
                let seconds = self.limit.as_secs();
                let message = format!("the pass did not end within {seconds} s and was cut off");
                (ReconcileError::bug(message), None)
            }
        };
        let observed = observed.as_ref();
        ("Failed", self.failed(key, &object, &fault, observed).await)
    }

    fn finished(&self, key: &Key, outcome: Outcome) -> (&'static str, Requeue) {
        match outcome {
            Outcome::Completed(requeue_at) => {
                self.retries().remove(key);
                match requeue_at {
                    Some(at) => ("Waiting", Requeue::AtTimeOfDay(at)),
                    None => ("Completed", Requeue::AwaitChange),
                }
            }
            Outcome::Skipped => {
                self.retries().remove(key);
                ("Skipped", Requeue::AwaitChange)
            }
            Outcome::Continued => ("Continued", Requeue::At(Instant::now())),
            // The next leader reconciles everything. If this process leads next, the key is still due.
            Outcome::Abandoned => ("Abandoned", Requeue::At(Instant::now())),
        }
    }

    /// Handles a key without a readable object: the object was deleted, or it is undecodable.
    async fn reconcile_missing(&self, key: &Key) -> (&'static str, Requeue) {
        let Some(invalid) = self.objects.invalid(key) else {
            self.retries().remove(key);
            return ("Skipped", Requeue::AwaitChange);
        };
        match self.reconciler.report_invalid_object(key, &invalid).await {
            Ok(Outcome::Abandoned) => ("Abandoned", Requeue::At(Instant::now())),
            Ok(Outcome::Completed(_) | Outcome::Continued | Outcome::Skipped) => {
                tracing::error!(kind = K::RESOURCE.kind, object = %key, "undecodable: {}", invalid.error);
                ("Failed", Requeue::AwaitChange)
            }
            Err(fault) => {
                let (retry, delay) =
                    self.record_failure(key, &invalid.uid, invalid.generation, fault.class);
                self.log(key, &fault, retry.attempt, delay);
                (
                    "Failed",
                    backoff_until::<K>(fault.class, Instant::now() + delay),
                )
            }
        }
    }

    /// Handles an error: counts it, reports it if its class requires that, and returns the backoff.
    async fn failed(
        &self,
        key: &Key,
        object: &K::Object,
        fault: &ReconcileError,
        observed: Option<&Observed<K::Status>>,
    ) -> Requeue {
        let meta = object.meta();
        let generation = meta.generation.unwrap_or(0);
        let uid = meta.uid.clone().unwrap_or_default();
        let (retry, delay) = self.record_failure(key, &uid, generation, fault.class);
        if fault.class == ErrorClass::Conflict && retry.attempt >= CONFLICTS_BEFORE_REFRESH {
            self.refresh(key, &uid).await;
        }
        // The failed reconciliation may have written before. A status for the old version is rejected.
        let newer = self.objects.get(key).filter(|newer| {
            newer.meta().uid == meta.uid && newer.meta().generation == meta.generation
        });
        let object = newer.as_deref().unwrap_or(object);
        let fault = with_force_delete_hint::<K>(object, fault);
        let now = self.reconciler.clock.now();
        let lasts = Duration::try_from(now.duration_since(retry.since)).unwrap_or_default();
        let stored = K::status(object).map(Status::progress);
        let planned = stored.and_then(|stored| stored.retry.as_ref()?.next_at.clone());
        // The planned retry was this one.
        let is_outdated = planned.is_some_and(|planned| planned.0 <= now);
        let is_reported = is_outdated || should_report(&fault, lasts);
        let deadlines = [
            observed.and_then(|observed| observed.effects_deadline),
            stored.and_then(|stored| Some(stored.deadline_at.as_ref()?.0)),
        ];
        // A delay can be longer than the rest of the wait.
        let mut delay = before_deadlines(delay, deadlines, now);
        if !is_reported && is_reportable(&fault) {
            delay = delay.min(REPORT_TRANSIENT_AFTER.saturating_sub(lasts));
        }
        self.log(key, &fault, retry.attempt, delay);
        let mut until = Instant::now() + delay;
        if is_reported {
            let retry = retry_to_store(K::status(object), &fault, &retry, delay, now);
            let reported = self.report(key, object, &fault, observed, retry).await;
            let is_over = K::status(object).is_some_and(Status::is_over);
            if reported == Err(ErrorClass::Conflict) && !is_over {
                self.refresh(key, &uid).await;
                until = until.min(Instant::now() + REPORT_AGAIN_AFTER);
            }
        }
        backoff_until::<K>(fault.class, until)
    }

    /// Returns when a key in a blocked scope is due again if its object has no watch to report, or `None` if it has.
    pub(super) fn without_report(&self, key: &Key) -> Option<Requeue> {
        let later = || Requeue::At(Instant::now() + NO_REPORT_DELAY);
        // Only finished objects are packed.
        if self.objects.is_packed(key) {
            return Some(later());
        }
        match self.objects.get(key) {
            // A finished object waits for its cleanup only, and its status does not change any more.
            Some(object) => K::status(&object).is_some_and(Status::is_over).then(later),
            None if self.objects.invalid(key).is_some() => Some(later()),
            None => {
                self.retries().remove(key);
                Some(Requeue::AwaitChange)
            }
        }
    }

    /// Writes to the status of an object that it waits for a watch. The object stays due, and has no backoff.
    pub(super) async fn report_blocked(&self, key: &Key, reason: String) -> Requeue {
        if let Some(object) = self.objects.get(key) {
            let fault = ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, reason);
            // The retry of an earlier error is still to come.
            let now = self.reconciler.clock.now();
            let retry = K::status(&object).and_then(|status| status.progress().retry.clone());
            let retry = retry.filter(|retry| is_to_come(retry, now));
            let reporting = self.try_report(&object, &fault, None, retry, BLOCKED_REPORT_TIMEOUT);
            if let Err(why) = reporting.await {
                let kind = K::RESOURCE.kind;
                self.reconciler.metrics.error(kind, why.class.name());
                // The dispatcher has already logged the watch as a warning.
                tracing::debug!(kind, object = %key, "the status update failed: {why}");
                if why.class == ErrorClass::Conflict {
                    // The watch does not work, so the cache would have the old version indefinitely.
                    let uid = object.meta().uid.as_deref().unwrap_or_default();
                    self.refresh(key, uid).await;
                }
            }
        }
        Requeue::At(Instant::now())
    }

    /// Writes an error to the status of the object. If that fails, the next reconciliation writes
    /// it again (R14).
    ///
    /// # Errors
    /// The class of the error that the write met.
    async fn report(
        &self,
        key: &Key,
        object: &K::Object,
        fault: &ReconcileError,
        observed: Option<&Observed<K::Status>>,
        retry: Option<Retry>,
    ) -> Result<(), ErrorClass> {
        let reporting = self.try_report(object, fault, observed, retry, self.limit / 2);
        reporting.await.map_err(|why| {
            self.reconciler
                .metrics
                .error(K::RESOURCE.kind, ErrorClass::Transient.name());
            tracing::warn!(kind = K::RESOURCE.kind, object = %key, "the status update failed: {why}");
            why.class
        })
    }

    async fn try_report(
        &self,
        object: &K::Object,
        fault: &ReconcileError,
        observed: Option<&Observed<K::Status>>,
        retry: Option<Retry>,
        limit: Duration,
    ) -> Result<(), ReconcileError> {
        let recording = self.reconciler.record_fault(object, fault, observed, retry);
        match tokio::time::timeout(limit, recording).await {
            Ok(recorded) => recorded,
            Err(_elapsed) => {
                let message = format!("no response within {} s", limit.as_secs());
                let (class, reason) = (ErrorClass::Transient, Reason::ApiUnavailable);
                Err(ReconcileError::new(class, reason, message))
            }
        }
    }

    /// Reads the object from the API server once, because the cache does not catch up.
    async fn refresh(&self, key: &Key, uid: &str) {
        let path = ResourcePath {
            resource: K::RESOURCE,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            subresource: None,
        };
        if let Err(fault) = self.reconciler.applier.refresh(path, uid).await {
            self.reconciler
                .metrics
                .error(K::RESOURCE.kind, fault.class.name());
            tracing::warn!(kind = K::RESOURCE.kind, object = %key, "{fault}");
        }
    }

    fn log(&self, key: &Key, fault: &ReconcileError, attempt: u32, delay: Duration) {
        let ReconcileError {
            class,
            reason,
            message,
        } = fault;
        self.reconciler
            .metrics
            .error(K::RESOURCE.kind, class.name());
        let (kind, class, reason) = (K::RESOURCE.kind, class.name(), reason.name());
        let retry_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        if class == ErrorClass::Conflict.name() && attempt < CONFLICTS_BEFORE_REFRESH {
            tracing::debug!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else if class == ErrorClass::Bug.name() {
            tracing::error!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else {
            tracing::warn!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        }
    }

    /// Counts an error of a key. Returns its retry state and the delay until the next
    /// reconciliation.
    fn record_failure(
        &self,
        key: &Key,
        uid: &str,
        generation: i64,
        class: ErrorClass,
    ) -> (RetryState, Duration) {
        let (now, instant) = (self.reconciler.clock.now(), Instant::now());
        let mut retries = self.retries();
        let known = retries
            .get(key)
            .filter(|known| known.generation == generation && known.uid == uid);
        if let Some(known) = known
            && known.class == class
            && instant < known.until
        {
            return (known.clone(), known.until - instant);
        }
        let mut entry = RetryState {
            uid: uid.to_owned(),
            class,
            attempt: known
                .filter(|known| known.class == class)
                .map_or(1, |known| known.attempt.saturating_add(1)),
            generation,
            since: known.map_or(now, |known| known.since),
            until: instant,
        };
        let delay = backoff::delay(self.seed, key, class, entry.attempt);
        entry.until = instant + delay;
        retries.insert(key.clone(), entry.clone());
        (entry, delay)
    }

    /// Returns class and time of a retry that an earlier process stored, if it is in the future.
    fn stored_retry(&self, key: &Key, object: &K::Object) -> Option<(ErrorClass, Instant)> {
        let progress = K::status(object)?.progress();
        let retry = progress.retry.as_ref()?;
        let generation = object.meta().generation.unwrap_or(0);
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut retries = self.retries();
        if retries.get(key).is_some_and(|known| known.uid == uid)
            || progress.observed_generation != generation
            || object.meta().deletion_timestamp.is_some()
        {
            return None;
        }
        let class = ErrorClass::ALL
            .iter()
            .find(|class| class.name() == retry.class)?;
        let now = self.reconciler.clock.now();
        let entry = RetryState {
            uid,
            class: *class,
            attempt: retry.attempt,
            generation,
            since: now,
            until: Instant::now(),
        };
        retries.insert(key.clone(), entry);
        // The process that stored the time may have had another clock.
        let longest = backoff::ceiling(*class, retry.attempt);
        let next = retry.next_at.as_ref()?.0;
        let at = next.min(now.checked_add(longest).unwrap_or(now));
        let at = (at > now).then(|| self.instant(at))?;
        if let Some(entry) = retries.get_mut(key) {
            entry.until = at;
        }
        Some((*class, at))
    }

    /// Converts a time of day to an instant of the timers.
    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.reconciler.clock.now());
        Instant::now() + Duration::try_from(wait).unwrap_or_default()
    }

    /// Ends all backoffs and forgets their attempts. Another process may have led since the failures: it may
    /// have fixed their causes, and it stored its own retries.
    pub(super) fn forget_failures(&self, handle: &Handle) {
        self.retries().clear();
        handle.queue().end_backoffs(Instant::now());
    }

    pub(super) fn gauge(&self, handle: &Handle, is_leading: bool, context: &Context) {
        let kind = K::RESOURCE.kind;
        let depth = if is_leading {
            handle.queue().depth(context.clock.moment())
        } else {
            // Without the Lease nothing is reconciled, so keys of deleted objects would stay queued.
            sweep(handle, || self.objects.keys());
            Depth::default()
        };
        context.metrics.queue(kind, depth.due, depth.age);
        // A restart would not help keys that wait for a watch. `/readyz` reports the watch.
        context.health.queue_depth(kind, depth.open);
        context
            .metrics
            .undecodable(kind, self.objects.invalid_count());
        if <K::Status as Status>::LIFECYCLE == api::Lifecycle::LongLived {
            self.export_status_gauges(context);
            return;
        }
        let table = <<K::Status as Status>::Phase as Phase>::TABLE;
        let counts = self.phases();
        for row in table.iter().filter(|row| !row.next.is_empty()) {
            let phase = row.phase.name();
            context
                .metrics
                .set_active(kind, phase, counts.get(phase).copied().unwrap_or(0));
        }
    }

    /// Returns the number of objects in each phase. An object without a phase is in the first one. An
    /// object in a terminal phase may be packed, and is not counted then.
    fn phases(&self) -> HashMap<&'static str, usize> {
        let table = <<K::Status as Status>::Phase as Phase>::TABLE;
        let first = table.first().map(|row| row.phase.name());
        self.objects
            .fold_active(HashMap::new(), |mut counts, object| {
                let phase = K::status(object).and_then(Status::phase).map(Phase::name);
                if let Some(phase) = phase.or(first) {
                    *counts.entry(phase).or_default() += 1;
                }
                counts
            })
    }

    /// Sets the gauges of long-lived objects. They never finish, so alerts need the number of objects per
    /// phase and per condition status.
    fn export_status_gauges(&self, context: &Context) {
        let kind = K::RESOURCE.kind;
        let table = <<K::Status as Status>::Phase as Phase>::TABLE;
        let phases = self.phases();
        let types = || {
            [condition::READY]
                .iter()
                .chain(K::Status::INDEPENDENT_CONDITIONS)
        };
        let mut counts = HashMap::<(&str, &str), usize>::new();
        self.objects.fold_active((), |(), object| {
            let status = K::status(object);
            for one in types() {
                let known = status.and_then(|status| status.progress().condition(one));
                let value = match known.map(|known| known.status.as_str()) {
                    Some("True") => "True",
                    Some("False") => "False",
                    Some(_) | None => "Unknown",
                };
                *counts.entry((*one, value)).or_default() += 1;
            }
        });
        for row in table {
            let phase = row.phase.name();
            let count = phases.get(phase).copied().unwrap_or(0);
            context.metrics.set_objects(kind, phase, count);
        }
        for one in types() {
            for value in ["True", "False", "Unknown"] {
                let count = counts.get(&(*one, value)).copied().unwrap_or(0);
                context.metrics.set_condition(kind, one, value, count);
            }
        }
    }

    fn retries(&self) -> MutexGuard<'_, HashMap<Key, RetryState>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an error is shown on its object, `lasts` after its first occurrence.
fn should_report(fault: &ReconcileError, lasts: Duration) -> bool {
    match fault.class {
        // The response of the API server names the webhook, so waiting would not make it clearer.
        ErrorClass::Transient if fault.reason == Reason::AdmissionDenied => true,
        ErrorClass::Transient | ErrorClass::Conflict => {
            lasts >= REPORT_TRANSIENT_AFTER && is_reportable(fault)
        }
        ErrorClass::Invalid | ErrorClass::Denied | ErrorClass::Failed | ErrorClass::Bug => true,
    }
}

/// Returns whether an error is shown at all. The deletion of a namespace ends with the deletion of the object.
fn is_reportable(fault: &ReconcileError) -> bool {
    fault.reason != Reason::NamespaceTerminating
}

/// Returns the delay, ended by the first deadline that is still to come.
pub(super) fn before_deadlines(
    delay: Duration,
    deadlines: [Option<Timestamp>; 2],
    now: Timestamp,
) -> Duration {
    let coming = deadlines
        .into_iter()
        .filter_map(|deadline| deadline.filter(|end| now < *end));
    let left = coming.map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default());
    left.fold(delay, Duration::min)
}

/// Returns whether the time of a stored retry has not passed.
fn is_to_come(retry: &Retry, now: Timestamp) -> bool {
    retry.next_at.as_ref().is_none_or(|at| now < at.0)
}

/// Returns the backoff after an error. A long-lived object is repaired when others change it, and only a
/// part of it may have been rejected. So ordinary events count again after a moment.
fn backoff_until<K: Kind>(class: ErrorClass, until: Instant) -> Requeue {
    // More frequent reconciliations help neither a control plane in trouble nor a bug of ours.
    let is_refusal = matches!(class, ErrorClass::Denied | ErrorClass::Invalid);
    let is_long_lived = <K::Status as Status>::LIFECYCLE == api::Lifecycle::LongLived;
    let is_listening = is_long_lived && is_refusal;
    if !is_listening {
        return Requeue::Backoff(Backoff::deaf(until));
    }
    let deaf_until = until.min(Instant::now() + IGNORE_EVENTS_FOR);
    Requeue::Backoff(Backoff { until, deaf_until })
}

/// Drops the keys of deleted objects.
///
/// The queue is locked before the existing keys are read. Otherwise an object that appears in between would
/// lose its only reconciliation.
pub(super) fn sweep(handle: &Handle, known: impl FnOnce() -> Vec<Key>) {
    let mut queue = handle.queue();
    let known: HashSet<Key> = known().into_iter().collect();
    queue.retain(|key| known.contains(key));
}

/// Adds the force-delete annotation to the message of an error that blocks the deletion of an
/// object.
fn with_force_delete_hint<K: Kind>(object: &K::Object, fault: &ReconcileError) -> ReconcileError {
    let is_short = matches!(fault.class, ErrorClass::Transient | ErrorClass::Conflict);
    if object.meta().deletion_timestamp.is_none() || is_short {
        return fault.clone();
    }
    let hint = "to release the object without waiting, set its annotation";
    let message = format!(
        "{}; {hint} '{}: \"true\"'",
        fault.message,
        names::FORCE_DELETE
    );
    ReconcileError::new(fault.class, fault.reason, message)
}

/// Returns the retry to store in the status, if its delay is long enough. Once the delay no longer grows,
/// only its length is stored. A time would need a write at each retry, or would soon be in the past.
pub(super) fn retry_to_store<S: Status>(
    stored: Option<&S>,
    fault: &ReconcileError,
    state: &RetryState,
    delay: Duration,
    now: Timestamp,
) -> Option<Retry> {
    let RetryState { class, attempt, .. } = *state;
    let longest = backoff::ceiling(class, attempt);
    if longest < backoff::PERSIST_RETRY_FROM {
        return None;
    }
    let class_name = class.name().to_owned();
    let known = stored.and_then(|status| status.progress().retry.clone());
    let is_same = |known: &Retry| {
        known.class == class_name && known.attempt == attempt && is_to_come(known, now)
    };
    if known.as_ref().is_some_and(is_same) {
        // This reconciliation came before the time of the retry.
        return known;
    }
    if longest < backoff::ceiling(class, attempt.saturating_add(1)) {
        let next_at = Time(now.checked_add(delay).unwrap_or(now));
        return (delay >= backoff::PERSIST_RETRY_FROM).then_some(Retry {
            attempt,
            class: class_name,
            next_at: Some(next_at),
            every: None,
        });
    }
    let is_known = |known: &Retry| known.class == fault.class.name() && known.every.is_some();
    Some(known.filter(is_known).unwrap_or(Retry {
        attempt,
        class: class_name,
        next_at: None,
        every: Some(longest.into()),
    }))
}

/// Returns the message for a panic. It quotes only a literal: formatted text may contain a user's data.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<&'static str>() {
        Some(text) => format!("a decision or its execution panicked: {text}"),
        None => "a decision or its execution panicked; the operator's log has the place".to_owned(),
    }
}
