//! Controllers: the order and concurrency of reconciliations, and the retries after an error.

mod gate;
mod worker;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{decide::ErrorClass, names};
use kube::{Client, Resource, ResourceExt};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use self::{gate::Gate, worker::Worker};
use crate::{
    apply::Applier,
    backoff,
    cache::{Cache, Change},
    clock::Clock,
    health::Health,
    key::Key,
    kind::Kind,
    leader::Leadership,
    metrics::Metrics,
    queue::{Backoff, Queue, Requeue},
    reconcile::Reconciler,
    supervise::Shutdown,
    watch::{OptionalCache, RunningWatches},
};

/// Timeout of a reconciliation. Every request has a shorter one of its own: a write that begins before the
/// reconciliation yields, at two fifths of this time, ends in time.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest time over which the first reconciliations after a start are spread.
const STARTUP_JITTER: Duration = Duration::from_secs(10);

/// Time for running reconciliations to end after the shutdown began. An aborted reconciliation is
/// harmless, because each write is idempotent.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(300);

/// Number of objects of a kind that report a watch in trouble in one second. Thousands may wait for it.
const REPORTS_PER_SECOND: usize = 10;

/// Number of such reports at the same time. They are no reconciliations: objects that do not wait for the watch have
/// all workers for themselves, also while the API server does not respond.
const MAX_REPORTS_IN_FLIGHT: usize = 4;

/// Number of due keys in blocked scopes that are examined in one second. Most of them may be finished runs, which
/// have nothing to report.
const EXAMINED_PER_SECOND: usize = 1000;

/// The parts of a process that its controllers share.
#[derive(Clone)]
pub struct Context {
    /// Client for writes.
    pub client: Client,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Health of the process, for `/livez` and `/readyz`.
    pub health: Health,
    /// The clock.
    pub clock: Clock,
    /// Leadership: whether this process may write.
    pub leading: Leadership,
    /// Identity of this process in Events.
    pub identity: String,
    /// Maximum number of objects of a kind that are reconciled at the same time.
    pub concurrency: usize,
    /// Timeout of a reconciliation. A longer reconciliation is dropped and reported as a bug. The value
    /// is [`RECONCILE_TIMEOUT`], except in tests.
    pub limit: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Context({})", self.identity)
    }
}

/// A handle that queues keys of a controller.
#[derive(Clone, Default)]
pub struct Handle(Arc<SharedQueue>);

#[derive(Default)]
struct SharedQueue {
    queue: Mutex<Queue>,
    wakeup: Notify,
    /// Whether the first lists are complete. Until then no key is queued, because the first
    /// reconciliations are spread.
    is_started: AtomicBool,
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Handle")
    }
}

impl Handle {
    /// Queues an object after a change of one of its dependencies.
    pub fn enqueue(&self, key: &Key) {
        if self.0.is_started.load(Ordering::SeqCst) {
            self.queue().enqueue(key, Instant::now());
            self.0.wakeup.notify_one();
        }
    }

    /// Queues an object after a change of fields that only the operator writes.
    fn enqueue_own(&self, key: &Key) {
        if self.0.is_started.load(Ordering::SeqCst) {
            self.queue().enqueue_own(key, Instant::now());
            self.0.wakeup.notify_one();
        }
    }

    /// Queues an object now, after another actor changed it. A pending retry does not delay it.
    pub fn enqueue_now(&self, key: &Key) {
        if self.0.is_started.load(Ordering::SeqCst) {
            self.queue().enqueue_now(key, Instant::now());
            self.0.wakeup.notify_one();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Handle {
    /// Returns a handle whose controller has started.
    pub(crate) fn started() -> Self {
        let handle = Self::default();
        handle.0.is_started.store(true, Ordering::SeqCst);
        handle
    }

    /// Removes and returns the keys that are due, as if each was reconciled at once.
    pub(crate) fn take_due(&self, clock: &Clock) -> Vec<Key> {
        let mut queue = self.queue();
        let mut due = Vec::new();
        while let Some(key) = queue.pop(clock.moment()) {
            queue.done(&key, Requeue::AwaitChange, clock.moment());
            due.push(key);
        }
        due
    }
}

/// The controller of one kind.
///
/// # Guarantees
/// - A key is never reconciled concurrently, and at most `concurrency` keys are reconciled at once.
/// - A panic, a hang or an error affects only its own object. It becomes a metric, a log line and,
///   depending on its class, a condition with an Event.
/// - Every error has a next reconciliation. A burst of events does not change its time.
pub struct Controller<K: Kind> {
    objects: Cache<K::Object>,
    handle: Handle,
    context: Context,
    kind: Arc<K>,
    /// Numbers of the watches of optional types that decisions read.
    optional: BTreeSet<usize>,
}

impl<K: Kind> fmt::Debug for Controller<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Controller({})", K::RESOURCE.kind)
    }
}

impl<K: Kind> Controller<K> {
    /// Returns a controller of the objects in a cache. Connect the other dependencies of a kind with
    /// `on_change` of their caches and [`Controller::handle`].
    pub fn new(kind: K, objects: Cache<K::Object>, context: Context) -> Self {
        let handle = Handle::default();
        let queue = handle.clone();
        objects.on_change(move |change| {
            if is_urgent(change, K::FINALIZER, K::ANNOTATIONS) {
                queue.enqueue_now(change.key);
            } else {
                queue.enqueue_own(change.key);
            }
        });
        Self {
            objects,
            handle,
            context,
            kind: Arc::new(kind),
            optional: BTreeSet::new(),
        }
    }

    /// Declares that decisions of this kind read a type that may not be installed. If the type is installed and its watch
    /// does not work, the objects of this kind wait for it. When the type is installed or removed, all of them are
    /// reconciled, except packed ones.
    #[must_use]
    pub fn depends_on<T: Send + Sync + 'static>(mut self, optional: &OptionalCache<T>) -> Self {
        self.optional.extend(optional.numbers());
        let (objects, handle) = (self.objects.clone(), self.handle.clone());
        optional.on_installation_change(move || {
            let keys = objects.fold_active(Vec::new(), |mut keys, object| {
                keys.push(Key::of(object.meta()));
                keys
            });
            for key in &keys {
                handle.enqueue(key);
            }
        });
        self
    }

    /// Returns a handle that queues keys of this controller.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Reconciles objects until shutdown.
    ///
    /// # Errors
    /// No error is expected. The type fits the supervisor.
    pub async fn run(self, caches: RunningWatches, shutdown: Shutdown) -> Result<(), String> {
        let Self {
            objects,
            handle,
            context,
            kind,
            optional,
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
            reconciler: Reconciler {
                kind,
                applier: Applier::new(context.client.clone(), caches.clone()),
                clock: context.clock.clone(),
                metrics: context.metrics.clone(),
                leading: context.leading.clone(),
                identity: context.identity.clone(),
            },
            objects,
            caches,
            optional,
            retries: Mutex::default(),
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

/// Queues the first reconciliations, spread so that a restart does not overload the API server. A few
/// objects need no spreading.
fn open<T: Send + Sync + 'static>(handle: &Handle, objects: &Cache<T>, seed: u64) {
    handle.0.is_started.store(true, Ordering::SeqCst);
    let keys = objects.keys();
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let window = Duration::from_millis(5)
        .saturating_mul(count)
        .min(STARTUP_JITTER);
    let now = Instant::now();
    let mut queue = handle.queue();
    for key in keys {
        queue.schedule_at(&key, now + backoff::spread(seed, &key, window));
    }
}

/// The running tasks of a dispatcher, each with its key.
#[derive(Default)]
struct Running {
    tasks: JoinSet<(Key, Requeue)>,
    keys: HashMap<tokio::task::Id, Key>,
    /// The tasks that report a watch in trouble. The others reconcile.
    reports: HashSet<tokio::task::Id>,
}

impl Running {
    fn start(
        &mut self,
        key: Key,
        work: impl Future<Output = Requeue> + Send + 'static,
    ) -> tokio::task::Id {
        let of = key.clone();
        let task = self.tasks.spawn(async move { (of, work.await) });
        self.keys.insert(task.id(), key);
        task.id()
    }

    /// Returns the number of reconciliations.
    fn reconciliations(&self) -> usize {
        self.tasks.len().saturating_sub(self.reports.len())
    }

    /// Forgets a task that has ended. Returns its key.
    fn ended(&mut self, task: tokio::task::Id) -> Option<Key> {
        self.reports.remove(&task);
        self.keys.remove(&task)
    }
}

/// Numbers of reports and of examined keys that are left in this second.
#[derive(Default)]
struct ReportBudget {
    reports: usize,
    examined: usize,
}

impl ReportBudget {
    const FULL: Self = Self {
        reports: REPORTS_PER_SECOND,
        examined: EXAMINED_PER_SECOND,
    };
}

/// Starts reports of objects that have waited for a watch for long enough.
fn start_reports<K: Kind>(
    worker: &Arc<Worker<K>>,
    handle: &Handle,
    context: &Context,
    gate: &Gate,
    running: &mut Running,
    budget: &mut ReportBudget,
) {
    // Without this check, each wake-up would visit all blocked namespaces.
    if !gate.has_overdue() {
        return;
    }
    while budget.reports > 0 && budget.examined > 0 && running.reports.len() < MAX_REPORTS_IN_FLIGHT
    {
        let is_overdue = |namespace: Option<&str>| gate.overdue(namespace).is_some();
        let Some(key) = handle.queue().pop_blocked(is_overdue) else {
            budget.examined = 0;
            return;
        };
        budget.examined -= 1;
        if let Some(next) = worker.without_report(&key) {
            handle.queue().done(&key, next, context.clock.moment());
            continue;
        }
        budget.reports -= 1;
        let reason = gate.overdue(key.namespace.as_deref()).unwrap_or_default();
        let (worker, of) = (Arc::clone(worker), key.clone());
        let task = running.start(key, async move { worker.report_blocked(&of, reason).await });
        running.reports.insert(task);
    }
}

async fn dispatch<K: Kind>(
    worker: &Arc<Worker<K>>,
    handle: &Handle,
    context: &Context,
    shutdown: &Shutdown,
) {
    let mut leading = context.leading.clone();
    let mut running = Running::default();
    let mut gate = Gate::new(K::RESOURCE.kind);
    let mut recoveries = worker.caches.recoveries();
    let mut budget = ReportBudget::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut term = None;
    loop {
        let current_term = leading.term();
        if current_term != term {
            worker.forget_failures(handle);
            term = current_term;
        }
        let is_leading = term.is_some();
        if gate.update(&worker.caches.blocked(&worker.optional)) {
            handle.queue().block(gate.closed());
        }
        while is_leading && running.reconciliations() < context.concurrency {
            let Some(key) = handle.queue().pop(context.clock.moment()) else {
                break;
            };
            let (worker, of, health) = (Arc::clone(worker), key.clone(), context.health.clone());
            running.start(key, async move {
                let next = worker.process_key(&of).await;
                health.finished_key(K::RESOURCE.kind);
                next
            });
        }
        if is_leading {
            start_reports(worker, handle, context, &gate, &mut running, &mut budget);
        }
        let due = if is_leading && running.reconciliations() < context.concurrency {
            handle.queue().next_due()
        } else {
            None
        };
        tokio::select! {
            () = shutdown.wait() => break,
            Some(ended) = running.tasks.join_next_with_id() => {
                let (key, next) = match ended {
                    Ok((id, (key, next))) => {
                        running.ended(id);
                        (key, next)
                    }
                    // Panics are caught inside the task, so this is a bug of the engine itself.
                    Err(error) => {
                        context.metrics.error(K::RESOURCE.kind, ErrorClass::Bug.name());
                        tracing::error!(kind = K::RESOURCE.kind, "a reconcile task failed: {error}");
                        let Some(key) = running.ended(error.id()) else { continue };
                        let delay = backoff::ceiling(ErrorClass::Bug, 1);
                        (key, Requeue::Backoff(Backoff::deaf(Instant::now() + delay)))
                    }
                };
                handle.queue().done(&key, next, context.clock.moment());
            }
            () = handle.0.wakeup.notified() => {}
            // The watches live as long as the worker, so the channel does not close.
            Ok(()) = recoveries.changed() => {}
            changed = leading.changed() => {
                // The sender lives in the leader's task. Without the sender, this process
                // never leads again.
                if changed.is_err() { shutdown.wait().await; break }
            }
            () = sleep_until(due) => {}
            _ = tick.tick() => {
                worker.gauge(handle, is_leading, context);
                budget = ReportBudget::FULL;
            }
        }
    }
    let drain = async { while running.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, drain).await.is_err() {
        tracing::info!(
            kind = K::RESOURCE.kind,
            "stopped with {} reconciles in progress",
            running.keys.len()
        );
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Returns whether someone changed the object itself: its spec, its deletion, its finalizer, or an
/// annotation that requests a reconciliation.
fn is_urgent<T: Resource>(change: &Change<'_, T>, finalizer: &str, annotations: &[&str]) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return true;
    };
    let is_requested = || {
        let mut requests = [names::RECONCILE_AT, names::FORCE_DELETE]
            .iter()
            .chain(annotations);
        requests.any(|name| old.annotations().get(*name) != new.annotations().get(*name))
    };
    let has_finalizer = |object: &T| object.finalizers().iter().any(|name| name == finalizer);
    old.meta().generation != new.meta().generation
        || old.meta().uid != new.meta().uid
        || old.meta().deletion_timestamp.is_some() != new.meta().deletion_timestamp.is_some()
        || is_requested()
        || has_finalizer(old) && !has_finalizer(new)
}

#[cfg(test)]
mod tests;
