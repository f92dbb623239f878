//! A controller: which object is looked at when, by whom, and what happens after a fault.

mod worker;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{decide::Class, names};
use kube::{Client, Resource, ResourceExt};
use mutant::Mutant;
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use self::worker::Worker;
use crate::{
    act::Hands,
    backoff,
    cache::{Cache, Change},
    clock::Clock,
    health::Health,
    key::Key,
    kind::Kind,
    leader::Leading,
    metrics::Metrics,
    pass::Eyes,
    queue::{Next, Queue},
    supervise::Shutdown,
    watch::Started,
};

/// How long a pass may take: every request and every external effect has a shorter deadline of its
/// own.
pub const PASS: Duration = Duration::from_secs(60);

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
    pub leading: Leading,
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
        while !caches.is_settled() {
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        let worker = Arc::new(Worker {
            eyes: Eyes {
                kind,
                hands: Hands::new(context.client.clone(), caches.clone()),
                clock: context.clock.clone(),
                metrics: context.metrics.clone(),
                leading: context.leading.clone(),
                identity: context.identity.clone(),
            },
            objects,
            caches,
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
    if mutant::on(Mutant::StartUnseen) {
        return;
    }
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
        let is_leading = leading.is_on();
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
    let wish = |object: &T| {
        [names::RECONCILE_AT, names::FORCE_DELETE, names::PRESERVE]
            .map(|name| object.annotations().get(name).cloned())
    };
    old.meta().generation != new.meta().generation
        || old.meta().uid != new.meta().uid
        || old.meta().deletion_timestamp.is_some() != new.meta().deletion_timestamp.is_some()
        || wish(old) != wish(new)
}

#[cfg(test)]
mod tests;
