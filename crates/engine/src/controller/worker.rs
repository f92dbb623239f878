//! Reconciles one key, handles every failure, and returns when to reconcile the key again.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Phase, Reason, Status, Timestamp,
    decide::{Class, Fault},
    names,
    status::{Retry, condition},
};
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use mutant::Mutant;
use tokio::time::Instant;

use super::{Context, Handle};
use crate::{
    act::Place,
    backoff,
    cache::Cache,
    feeds::Blocker,
    key::Key,
    kind::Kind,
    pass::{Eyes, Looked},
    queue::{Backoff, Next},
    record::Seen,
    watch::Started,
};

/// Duration after which a transient fault is shown on the object.
const SHOWN_AFTER: Duration = Duration::from_secs(30);

/// Number of repeated conflicts that a lagging watch does not explain.
const STUCK: u32 = 3;

/// Time after a fault in which ordinary events do not advance the next reconciliation of a
/// long-lived object.
const DEAF: Duration = Duration::from_secs(2);

/// Shortest delay of a reconciliation that a decision requests. Without it, a decision that always requests
/// one more would spin.
const SOON: Duration = Duration::from_millis(50);

/// Retry state of a key that failed.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) uid: String,
    pub(super) class: Class,
    pub(super) attempt: u32,
    pub(super) generation: i64,
    pub(super) since: Timestamp,
    /// Time of the retry. A reconciliation before that time is not another attempt.
    pub(super) until: Instant,
}

/// A worker that reconciles the keys of a kind.
pub(super) struct Worker<K: Kind> {
    pub(super) eyes: Eyes<K>,
    pub(super) objects: Cache<K::Object>,
    pub(super) caches: Started,
    pub(super) memory: Mutex<HashMap<Key, Memory>>,
    pub(super) seed: u64,
    pub(super) limit: Duration,
}

impl<K: Kind> Worker<K> {
    /// Reconciles one key. After any failure it still returns when to reconcile the key again.
    pub(super) async fn turn(&self, key: &Key) -> Next {
        let begin = Instant::now();
        let (outcome, next) = self.look(key).await;
        self.eyes
            .metrics
            .reconciled(K::RESOURCE.kind, outcome, begin.elapsed());
        tracing::debug!(kind = K::RESOURCE.kind, object = %key, outcome, requeue = %next, "reconciled");
        next
    }

    async fn look(&self, key: &Key) -> (&'static str, Next) {
        let Some(object) = self.objects.get(key) else {
            return self.absent(key).await;
        };
        if let Some((class, at)) = self.stored_retry(key, &object) {
            return ("Waiting", backoff_until::<K>(class, at));
        }
        match self.caches.blocker(key.namespace.as_deref()) {
            None => {}
            // `/readyz` names the watch. A decision from an incomplete cache would be a guess.
            Some(Blocker::Unsynced(_)) => {
                return ("Waiting", Next::At(Instant::now() + Duration::from_secs(1)));
            }
            Some(Blocker::Interrupted(why)) => {
                let fault = Fault::new(Class::Transient, Reason::ApiUnavailable, why);
                return ("Failed", self.failed(key, &object, &fault, None).await);
            }
        }
        let looking = AssertUnwindSafe(self.eyes.look(&object)).catch_unwind();
        let (fault, seen) = match tokio::time::timeout(self.limit, looking).await {
            Ok(Ok(Ok(looked))) => return self.looked(key, looked),
            Ok(Ok(Err(failed))) => failed,
            Ok(Err(panic)) => (Fault::bug(panic_words(&*panic)), None),
            Err(_elapsed) => {
                let seconds = self.limit.as_secs();
                let words = format!("the pass did not end within {seconds} s and was cut off");
                (Fault::bug(words), None)
            }
        };
        let seen = seen.as_ref();
        ("Failed", self.failed(key, &object, &fault, seen).await)
    }

    fn looked(&self, key: &Key, looked: Looked) -> (&'static str, Next) {
        match looked {
            Looked::Completed(wake) => {
                self.memory().remove(key);
                match wake {
                    Some(_) if mutant::on(Mutant::WakeForgotten) => ("Waiting", Next::Idle),
                    Some(at) => ("Waiting", Next::At(self.instant(at))),
                    None => ("Completed", Next::Idle),
                }
            }
            Looked::Skipped => {
                self.memory().remove(key);
                ("Skipped", Next::Idle)
            }
            // The next leader reconciles everything. If this process leads next, the key is still due.
            Looked::Abandoned => ("Abandoned", Next::At(Instant::now())),
        }
    }

    /// Handles a key without a readable object: the object was deleted, or it is undecodable.
    async fn absent(&self, key: &Key) -> (&'static str, Next) {
        let Some(poison) = self.objects.poison(key) else {
            self.memory().remove(key);
            return ("Skipped", Next::Idle);
        };
        match self.eyes.report_poison(key, &poison).await {
            Ok(Looked::Abandoned) => ("Abandoned", Next::At(Instant::now())),
            Ok(Looked::Completed(_) | Looked::Skipped) => {
                tracing::error!(kind = K::RESOURCE.kind, object = %key, "undecodable: {}", poison.error);
                ("Failed", Next::Idle)
            }
            Err(fault) => {
                let (memory, delay) =
                    self.remember(key, &poison.uid, poison.generation, fault.class);
                self.log(key, &fault, memory.attempt, delay);
                (
                    "Failed",
                    backoff_until::<K>(fault.class, Instant::now() + delay),
                )
            }
        }
    }

    /// Handles a fault: counts it, reports it if its class requires that, and returns the backoff.
    async fn failed(
        &self,
        key: &Key,
        object: &K::Object,
        fault: &Fault,
        seen: Option<&Seen<K::Status>>,
    ) -> Next {
        let meta = object.meta();
        let generation = meta.generation.unwrap_or(0);
        let uid = meta.uid.clone().unwrap_or_default();
        let (memory, delay) = self.remember(key, &uid, generation, fault.class);
        if fault.class == Class::Conflict && memory.attempt >= STUCK {
            self.refresh(key, &uid).await;
        }
        // The failed reconciliation may have written before. A status for the old version is rejected.
        let newer = self.objects.get(key).filter(|newer| {
            newer.meta().uid == meta.uid && newer.meta().generation == meta.generation
        });
        let object = newer.as_deref().unwrap_or(object);
        let way_out = with_way_out::<K>(object, fault);
        let fault = &way_out;
        self.log(key, fault, memory.attempt, delay);
        let until = Instant::now() + delay;
        let now = self.eyes.clock.now();
        let lasts = Duration::try_from(now.duration_since(memory.since)).unwrap_or_default();
        let is_shown = match fault.class {
            Class::Transient | Class::Conflict => {
                lasts > SHOWN_AFTER && fault.reason != Reason::NamespaceTerminating
            }
            Class::Denied if mutant::on(Mutant::DenialUnshown) => false,
            Class::Invalid | Class::Denied | Class::Failed | Class::Bug => true,
        };
        if is_shown {
            let retry = retry_to_store(K::status(object), fault, &memory, delay, now);
            let recording = self.eyes.record_fault(object, fault, seen, retry);
            let recorded = tokio::time::timeout(self.limit / 2, recording).await;
            let failed = match recorded {
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some(fault.to_string()),
                Err(_elapsed) => Some("it took too long".to_owned()),
            };
            // The next reconciliation writes the status again (R14).
            if let Some(why) = failed {
                self.eyes
                    .metrics
                    .error(K::RESOURCE.kind, Class::Transient.name());
                tracing::warn!(kind = K::RESOURCE.kind, object = %key, "the fault could not be recorded: {why}");
            }
        }
        backoff_until::<K>(fault.class, until)
    }

    /// Reads the object from the API server once, because the cache does not catch up.
    async fn refresh(&self, key: &Key, uid: &str) {
        let place = Place {
            resource: K::RESOURCE,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            subresource: None,
        };
        if let Err(fault) = self.eyes.hands.refresh(place, uid).await {
            self.eyes
                .metrics
                .error(K::RESOURCE.kind, fault.class.name());
            tracing::warn!(kind = K::RESOURCE.kind, object = %key, "{fault}");
        }
    }

    fn log(&self, key: &Key, fault: &Fault, attempt: u32, delay: Duration) {
        let Fault {
            class,
            reason,
            message,
        } = fault;
        self.eyes.metrics.error(K::RESOURCE.kind, class.name());
        let (kind, class, reason) = (K::RESOURCE.kind, class.name(), reason.name());
        let retry_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        if class == Class::Conflict.name() && attempt < STUCK {
            tracing::debug!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else if class == Class::Bug.name() {
            tracing::error!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else {
            tracing::warn!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        }
    }

    /// Counts a fault of a key. Returns its retry state and the delay until the next reconciliation.
    fn remember(&self, key: &Key, uid: &str, generation: i64, class: Class) -> (Memory, Duration) {
        let (now, instant) = (self.eyes.clock.now(), Instant::now());
        let mut memory = self.memory();
        let known = memory
            .get(key)
            .filter(|known| known.generation == generation && known.uid == uid);
        if let Some(known) = known
            && known.class == class
            && instant < known.until
        {
            return (known.clone(), known.until - instant);
        }
        let mut entry = Memory {
            uid: uid.to_owned(),
            class,
            attempt: known
                .filter(|known| known.class == class)
                .map_or(1, |known| known.attempt.saturating_add(1)),
            generation,
            since: known.map_or(now, |known| known.since),
            until: instant,
        };
        let mut delay = backoff::delay(self.seed, key, class, entry.attempt);
        if mutant::on(Mutant::RetryAtOnce) {
            delay = Duration::ZERO;
        }
        entry.until = instant + delay;
        memory.insert(key.clone(), entry.clone());
        (entry, delay)
    }

    /// Returns class and time of a retry that an earlier process stored, if it is in the future.
    fn stored_retry(&self, key: &Key, object: &K::Object) -> Option<(Class, Instant)> {
        let progress = K::status(object)?.progress();
        let retry = progress.retry.as_ref()?;
        let generation = object.meta().generation.unwrap_or(0);
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut memory = self.memory();
        if memory.get(key).is_some_and(|known| known.uid == uid)
            || progress.observed_generation != generation
            || object.meta().deletion_timestamp.is_some()
        {
            return None;
        }
        let class = Class::ALL
            .iter()
            .find(|class| class.name() == retry.class)?;
        let now = self.eyes.clock.now();
        let entry = Memory {
            uid,
            class: *class,
            attempt: retry.attempt,
            generation,
            since: now,
            until: Instant::now(),
        };
        memory.insert(key.clone(), entry);
        // The process that stored the time may have had another clock.
        let mut longest = backoff::ceiling(*class, retry.attempt);
        if mutant::on(Mutant::ForeignClockBelieved) {
            longest = Duration::from_secs(24 * 60 * 60);
        }
        let next = retry.next_at.as_ref()?.0;
        let at = next.min(now.checked_add(longest).unwrap_or(now));
        let at = (at > now).then(|| self.instant(at))?;
        if let Some(entry) = memory.get_mut(key) {
            entry.until = at;
        }
        Some((*class, at))
    }

    /// Converts a time of day to an instant of the timers.
    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.eyes.clock.now());
        Instant::now() + Duration::try_from(wait).unwrap_or_default().max(SOON)
    }

    pub(super) fn gauge(&self, handle: &Handle, is_leading: bool, context: &Context) {
        let kind = K::RESOURCE.kind;
        let (depth, oldest) = if is_leading {
            handle.queue().depth(Instant::now())
        } else {
            // Without the Lease nothing is reconciled, so keys of deleted objects would stay queued.
            sweep(handle, || self.objects.keys());
            // Another process leads now, and has newer counts of the failures.
            self.memory().clear();
            (0, Duration::ZERO)
        };
        context.metrics.queue(kind, depth, oldest);
        context.health.queue_depth(kind, depth);
        context.metrics.undecodable(kind, self.objects.poisoned());
        if <K::Status as Status>::SHAPE == api::Shape::LongLived {
            self.gauge_standing(context);
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
    fn gauge_standing(&self, context: &Context) {
        let kind = K::RESOURCE.kind;
        let table = <<K::Status as Status>::Phase as Phase>::TABLE;
        let phases = self.phases();
        let types = || [condition::READY].iter().chain(K::Status::APART);
        let mut said = HashMap::<(&str, &str), usize>::new();
        self.objects.fold_active((), |(), object| {
            let status = K::status(object);
            for one in types() {
                let known = status.and_then(|status| status.progress().condition(one));
                let value = match known.map(|known| known.status.as_str()) {
                    Some("True") => "True",
                    Some("False") => "False",
                    Some(_) | None => "Unknown",
                };
                *said.entry((*one, value)).or_default() += 1;
            }
        });
        for row in table {
            let phase = row.phase.name();
            let count = phases.get(phase).copied().unwrap_or(0);
            context.metrics.set_objects(kind, phase, count);
        }
        for one in types() {
            for value in ["True", "False", "Unknown"] {
                let count = said.get(&(*one, value)).copied().unwrap_or(0);
                context.metrics.set_condition(kind, one, value, count);
            }
        }
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the backoff after an error. A long-lived object is repaired when others change it, and only a
/// part of it may have been rejected. So ordinary events count again after a moment.
fn backoff_until<K: Kind>(class: Class, until: Instant) -> Next {
    // More frequent reconciliations help neither a control plane in trouble nor a bug of ours.
    let is_refusal = matches!(class, Class::Denied | Class::Invalid);
    let is_stay = <K::Status as Status>::SHAPE == api::Shape::LongLived;
    let is_listening = is_stay && is_refusal && !mutant::on(Mutant::BackoffDeaf);
    if !is_listening {
        return Next::Backoff(Backoff::deaf(until));
    }
    let deaf_until = until.min(Instant::now() + DEAF);
    Next::Backoff(Backoff { until, deaf_until })
}

/// Drops the keys of deleted objects.
///
/// The queue is locked before the existing keys are read. Otherwise an object that appears in between would
/// lose its only reconciliation.
pub(super) fn sweep(handle: &Handle, known: impl FnOnce() -> Vec<Key>) {
    let mut queue = handle.queue();
    let known: HashSet<Key> = known().into_iter().collect();
    let forgets = mutant::on(Mutant::StandbyForgets);
    queue.retain(|key| known.contains(key) && !forgets);
}

/// Adds the force-delete annotation to the message of a fault that blocks the deletion of an object.
fn with_way_out<K: Kind>(object: &K::Object, fault: &Fault) -> Fault {
    let is_short = matches!(fault.class, Class::Transient | Class::Conflict);
    if object.meta().deletion_timestamp.is_none() || is_short {
        return fault.clone();
    }
    let words = "to let the object go without waiting, set its annotation";
    let message = format!(
        "{}; {words} '{}: \"true\"'",
        fault.message,
        names::FORCE_DELETE
    );
    Fault::new(fault.class, fault.reason, message)
}

/// Returns the retry to store in the status, if its delay is long enough. Once the delay no longer grows,
/// only its length is stored. A time would need a write at each retry, or would soon be in the past.
pub(super) fn retry_to_store<S: Status>(
    stored: Option<&S>,
    fault: &Fault,
    memory: &Memory,
    delay: Duration,
    now: Timestamp,
) -> Option<Retry> {
    let Memory { class, attempt, .. } = *memory;
    let longest = backoff::ceiling(class, attempt);
    if longest < backoff::STORED || mutant::on(Mutant::BackoffUnstored) {
        return None;
    }
    let class_name = class.name().to_owned();
    let known = stored.and_then(|status| status.progress().retry.clone());
    let is_same = |known: &Retry| known.class == class_name && known.attempt == attempt;
    if known.as_ref().is_some_and(is_same) {
        // This reconciliation came before the time of the retry.
        return known;
    }
    if longest < backoff::ceiling(class, attempt.saturating_add(1)) {
        let next_at = Time(now.checked_add(delay).unwrap_or(now));
        return (delay >= backoff::STORED).then_some(Retry {
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
fn panic_words(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<&'static str>() {
        Some(words) => format!("a decision or its execution panicked: {words}"),
        None => "a decision or its execution panicked; the operator's log has the place".to_owned(),
    }
}
