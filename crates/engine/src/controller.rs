//! A controller: which object is looked at when, by whom, and what happens after a fault.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{
    Phase, Reason, Status, Timestamp,
    decide::{Class, Fault},
    names,
    status::Retry,
};
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, Resource, ResourceExt};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    act::Hands,
    backoff,
    cache::{Cache, Change},
    clock::Clock,
    health::Health,
    key::Key,
    kind::Kind,
    metrics::Metrics,
    pass::{Eyes, Looked},
    queue::{Next, Queue},
    supervise::Shutdown,
    watch::Started,
};

/// How long a pass may take: every request and every external effect has a shorter deadline of its
/// own.
pub const PASS: Duration = Duration::from_secs(60);

/// A transient fault that lasts longer is shown on the object.
const SHOWN_AFTER: Duration = Duration::from_secs(30);

/// The first looks after a start are spread over at most this.
const SPREAD: Duration = Duration::from_secs(10);

/// How long passes on their way may take after the order to stop. What is cut off is harmless:
/// each write is idempotent.
const DRAIN: Duration = Duration::from_millis(300);

/// What the controllers of a process share.
#[derive(Clone)]
pub struct Context {
    /// For writes.
    pub client: Client,
    /// Where things are counted.
    pub metrics: Metrics,
    /// What `/livez` and `/readyz` say.
    pub health: Health,
    /// The time.
    pub clock: Clock,
    /// Whether this process may write.
    pub leading: watch::Receiver<bool>,
    /// Who we are, in Events.
    pub identity: String,
    /// How many objects of a kind are looked at at once.
    pub concurrency: usize,
    /// A pass that takes longer is dropped, and is a bug; [`PASS`] unless a test is in a hurry.
    pub limit: Duration,
    /// Jitter is derived from it.
    pub seed: u64,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Context({})", self.identity)
    }
}

/// Wakes a controller up.
#[derive(Clone, Default)]
pub struct Handle(Arc<Line>);

#[derive(Default)]
struct Line {
    queue: Mutex<Queue>,
    news: Notify,
    /// Before the first listings are complete nothing is queued: the first looks are spread.
    is_open: AtomicBool,
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Handle")
    }
}

impl Handle {
    /// Something that this object depends on has changed.
    pub fn touch(&self, key: &Key) {
        if self.0.is_open.load(Ordering::SeqCst) {
            self.queue().touch(key, Instant::now());
            self.0.news.notify_one();
        }
    }

    /// The object itself was changed by someone: a pending retry is not waited for.
    pub fn urgent(&self, key: &Key) {
        if self.0.is_open.load(Ordering::SeqCst) {
            self.queue().urgent(key, Instant::now());
            self.0.news.notify_one();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered of a key that failed.
#[derive(Debug, Clone, Copy)]
struct Memory {
    class: Class,
    attempt: u32,
    generation: i64,
    since: Timestamp,
}

/// Runs one kind.
///
/// # Guarantees
/// - One key is never looked at twice at once, and at most `concurrency` keys are.
/// - A panic, a hang or an error hurts the object it happened on, and no other: it becomes a
///   metric, a log line and, depending on its class, a condition with an Event.
/// - Every fault has a next look; a burst of events does not change when it is.
pub struct Controller<K: Kind> {
    objects: Cache<K::Object>,
    handle: Handle,
    context: Context,
    kind: Arc<K>,
}

impl<K: Kind> fmt::Debug for Controller<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Controller({})", K::RESOURCE.kind)
    }
}

impl<K: Kind> Controller<K> {
    /// A controller of the objects in a cache. What else a kind depends on is connected by its
    /// caches' `on_change` and [`Controller::handle`].
    pub fn new(kind: K, objects: Cache<K::Object>, context: Context) -> Self {
        let handle = Handle::default();
        let line = handle.clone();
        objects.on_change(move |change| {
            if is_urgent(change) {
                line.urgent(change.key);
            } else {
                line.touch(change.key);
            }
        });
        Self {
            objects,
            handle,
            context,
            kind: Arc::new(kind),
        }
    }

    /// To wake this controller up.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    /// None that is expected; the type fits the supervisor.
    pub async fn run(self, caches: Started, shutdown: Shutdown) -> Result<(), String> {
        let Self {
            objects,
            handle,
            context,
            kind,
        } = self;
        let name = K::RESOURCE.kind;
        context.health.set_synced(name, false);
        while !caches.is_synced() {
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        let worker = Arc::new(Worker {
            eyes: Eyes {
                kind,
                hands: Hands::new(context.client.clone(), caches),
                clock: context.clock.clone(),
                metrics: context.metrics.clone(),
                leading: context.leading.clone(),
                identity: context.identity.clone(),
            },
            objects,
            memory: Mutex::default(),
            seed: context.seed,
            limit: context.limit,
        });
        open(&handle, &worker.objects, context.seed);
        context.health.set_synced(name, true);
        tracing::info!(
            kind = name,
            objects = worker.objects.len(),
            "controller started"
        );
        dispatch(&worker, &handle, &context, &shutdown).await;
        Ok(())
    }
}

/// Queues the first looks, spread so that a restart is no stampede. A few objects need no spreading.
fn open<T: Send + Sync + 'static>(handle: &Handle, objects: &Cache<T>, seed: u64) {
    handle.0.is_open.store(true, Ordering::SeqCst);
    let keys = objects.keys();
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let window = Duration::from_millis(5).saturating_mul(count).min(SPREAD);
    let now = Instant::now();
    let mut queue = handle.queue();
    for key in keys {
        queue.schedule_at(&key, now + backoff::spread(seed, &key, window));
    }
}

async fn dispatch<K: Kind>(
    worker: &Arc<Worker<K>>,
    handle: &Handle,
    context: &Context,
    shutdown: &Shutdown,
) {
    let mut leading = context.leading.clone();
    let mut turns: JoinSet<(Key, Next)> = JoinSet::new();
    let mut keys: HashMap<tokio::task::Id, Key> = HashMap::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let is_leading = *leading.borrow_and_update();
        while is_leading && turns.len() < context.concurrency {
            let Some(key) = handle.queue().start(Instant::now()) else {
                break;
            };
            let (turn, of) = (Arc::clone(worker), key.clone());
            let task = turns.spawn(async move {
                let next = turn.turn(&of).await;
                (of, next)
            });
            keys.insert(task.id(), key);
        }
        let due = if is_leading && turns.len() < context.concurrency {
            handle.queue().next_due()
        } else {
            None
        };
        tokio::select! {
            () = shutdown.wait() => break,
            Some(ended) = turns.join_next_with_id() => {
                let (key, next) = match ended {
                    Ok((id, (key, next))) => {
                        keys.remove(&id);
                        (key, next)
                    }
                    // Panics are caught inside; what arrives here is a fault of the engine itself.
                    Err(error) => {
                        context.metrics.error(K::RESOURCE.kind, Class::Bug.name());
                        tracing::error!(kind = K::RESOURCE.kind, "a turn broke: {error}");
                        let Some(key) = keys.remove(&error.id()) else { continue };
                        let delay = backoff::ceiling(Class::Bug, 1);
                        (key, Next::Backoff(Instant::now() + delay))
                    }
                };
                handle.queue().finish(&key, next, Instant::now());
                context.health.finished_key();
            }
            () = handle.0.news.notified() => {}
            changed = leading.changed() => {
                // The sender lives in the leader's task; without it we never lead again.
                if changed.is_err() { shutdown.wait().await; break }
            }
            () = sleep_until(due) => {}
            _ = tick.tick() => worker.gauge(handle, is_leading, context),
        }
    }
    let drain = async { while turns.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drain).await.is_err() {
        tracing::info!(
            kind = K::RESOURCE.kind,
            "stopped with {} passes on their way",
            keys.len()
        );
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Whether someone changed the object itself: its spec, its deletion, or by the annotation that
/// asks for a look.
fn is_urgent<T: Resource>(change: &Change<'_, T>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return true;
    };
    let wish = |object: &T| object.annotations().get(names::RECONCILE_AT).cloned();
    old.meta().generation != new.meta().generation
        || old.meta().uid != new.meta().uid
        || old.meta().deletion_timestamp.is_some() != new.meta().deletion_timestamp.is_some()
        || wish(old) != wish(new)
}

struct Worker<K: Kind> {
    eyes: Eyes<K>,
    objects: Cache<K::Object>,
    memory: Mutex<HashMap<Key, Memory>>,
    seed: u64,
    limit: Duration,
}

impl<K: Kind> Worker<K> {
    /// Looks at one key, whatever happens.
    async fn turn(&self, key: &Key) -> Next {
        let begin = Instant::now();
        let (outcome, next) = self.look(key).await;
        self.eyes
            .metrics
            .reconciled(K::RESOURCE.kind, outcome, begin.elapsed());
        next
    }

    async fn look(&self, key: &Key) -> (&'static str, Next) {
        let Some(object) = self.objects.get(key) else {
            return self.absent(key).await;
        };
        if let Some(at) = self.stored_retry(key, &object) {
            return ("Waiting", Next::Backoff(at));
        }
        let looking = AssertUnwindSafe(self.eyes.look(&object)).catch_unwind();
        let fault = match tokio::time::timeout(self.limit, looking).await {
            Ok(Ok(Ok(looked))) => return self.looked(key, looked),
            Ok(Ok(Err(fault))) => fault,
            Ok(Err(panic)) => Fault::bug(panic_words(&*panic)),
            Err(_elapsed) => Fault::bug(format!(
                "the pass did not end within {} s and was cut off",
                self.limit.as_secs()
            )),
        };
        ("Failed", self.failed(key, &object, &fault).await)
    }

    fn looked(&self, key: &Key, looked: Looked) -> (&'static str, Next) {
        match looked {
            Looked::Completed(wake) => {
                self.memory().remove(key);
                match wake {
                    Some(at) => ("Waiting", Next::At(self.instant(at))),
                    None => ("Completed", Next::Idle),
                }
            }
            Looked::Skipped => {
                self.memory().remove(key);
                ("Skipped", Next::Idle)
            }
            // Whoever leads next looks at everything; if it is us, this key is still due.
            Looked::Abandoned => ("Abandoned", Next::At(Instant::now())),
        }
    }

    /// The key has no readable object: it is gone, or it is poison.
    async fn absent(&self, key: &Key) -> (&'static str, Next) {
        let Some(poison) = self.objects.poison(key) else {
            self.memory().remove(key);
            return ("Skipped", Next::Idle);
        };
        match self.eyes.report_poison(key, &poison).await {
            Ok(()) => {
                tracing::error!(kind = K::RESOURCE.kind, object = %key, "undecodable: {}", poison.error);
                ("Failed", Next::Idle)
            }
            Err(fault) => {
                let (memory, delay) = self.remember(key, poison.generation, fault.class);
                self.log(key, &fault, memory.attempt, delay);
                ("Failed", Next::Backoff(Instant::now() + delay))
            }
        }
    }

    /// After a fault: count it, say it where it belongs, and wait.
    async fn failed(&self, key: &Key, object: &K::Object, fault: &Fault) -> Next {
        let generation = object.meta().generation.unwrap_or(0);
        let (memory, delay) = self.remember(key, generation, fault.class);
        self.log(key, fault, memory.attempt, delay);
        let until = Instant::now() + delay;
        let now = self.eyes.clock.now();
        let lasts = Duration::try_from(now.duration_since(memory.since)).unwrap_or_default();
        let is_shown = match fault.class {
            Class::Transient | Class::Conflict => {
                lasts > SHOWN_AFTER && fault.reason != Reason::NamespaceTerminating
            }
            Class::Invalid | Class::Denied | Class::Failed | Class::Bug => true,
        };
        if is_shown {
            let retry = (delay >= backoff::STORED).then(|| Retry {
                attempt: memory.attempt,
                class: fault.class.name().to_owned(),
                next_at: Time(now.checked_add(delay).unwrap_or(now)),
            });
            let recording = self.eyes.record_fault(object, fault, retry);
            let recorded = tokio::time::timeout(self.limit / 2, recording).await;
            let failed = match recorded {
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some(fault.to_string()),
                Err(_elapsed) => Some("it took too long".to_owned()),
            };
            // The next look records again (R14).
            if let Some(why) = failed {
                self.eyes
                    .metrics
                    .error(K::RESOURCE.kind, Class::Transient.name());
                tracing::warn!(kind = K::RESOURCE.kind, object = %key, "the fault could not be recorded: {why}");
            }
        }
        Next::Backoff(until)
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
        if class == Class::Conflict.name() {
            tracing::debug!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else if class == Class::Bug.name() {
            tracing::error!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        } else {
            tracing::warn!(kind, object = %key, class, reason, attempt, retry_ms, "{message}");
        }
    }

    /// Counts a fault of a key: the memory of it, and the delay until the next look.
    fn remember(&self, key: &Key, generation: i64, class: Class) -> (Memory, Duration) {
        let now = self.eyes.clock.now();
        let mut memory = self.memory();
        let known = memory
            .get(key)
            .filter(|known| known.generation == generation)
            .copied();
        let entry = Memory {
            class,
            attempt: known
                .filter(|known| known.class == class)
                .map_or(1, |known| known.attempt.saturating_add(1)),
            generation,
            since: known.map_or(now, |known| known.since),
        };
        memory.insert(key.clone(), entry);
        (entry, backoff::delay(self.seed, key, class, entry.attempt))
    }

    /// A retry that an earlier process stored, and that has not come yet: when it does.
    fn stored_retry(&self, key: &Key, object: &K::Object) -> Option<Instant> {
        let progress = K::status(object)?.progress();
        let retry = progress.retry.as_ref()?;
        let generation = object.meta().generation.unwrap_or(0);
        let mut memory = self.memory();
        if memory.contains_key(key)
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
            class: *class,
            attempt: retry.attempt,
            generation,
            since: now,
        };
        memory.insert(key.clone(), entry);
        (retry.next_at.0 > now).then(|| self.instant(retry.next_at.0))
    }

    /// A time of day as an instant of the timers.
    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.eyes.clock.now());
        Instant::now() + Duration::try_from(wait).unwrap_or_default()
    }

    fn gauge(&self, handle: &Handle, is_leading: bool, context: &Context) {
        let kind = K::RESOURCE.kind;
        let (depth, oldest) = if is_leading {
            handle.queue().depth(Instant::now())
        } else {
            (0, Duration::ZERO)
        };
        context.metrics.queue(kind, depth, oldest);
        context.health.queue_depth(kind, depth);
        context.metrics.undecodable(kind, self.objects.poisoned());
        if <K::Status as Status>::SHAPE == api::Shape::LongLived {
            return;
        }
        let table = <<K::Status as Status>::Phase as Phase>::TABLE;
        let first = table.first().map(|row| row.phase.name());
        let counts = self
            .objects
            .fold(HashMap::<&str, usize>::new(), |mut counts, object| {
                let phase = K::status(object).and_then(Status::phase).map(Phase::name);
                if let Some(phase) = phase.or(first) {
                    *counts.entry(phase).or_default() += 1;
                }
                counts
            });
        for row in table.iter().filter(|row| !row.next.is_empty()) {
            let phase = row.phase.name();
            context
                .metrics
                .set_active(kind, phase, counts.get(phase).copied().unwrap_or(0));
        }
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a panic says. Only a literal is repeated: formatted text may carry a user's data.
fn panic_words(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<&'static str>() {
        Some(words) => format!("a decision or its execution panicked: {words}"),
        None => "a decision or its execution panicked; the operator's log has the place".to_owned(),
    }
}

#[cfg(test)]
mod tests;
