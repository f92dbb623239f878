//! Requests to servers outside the caches, such as Git servers and Pod logs: a reconciliation never waits for one.
//!
//! `observe` calls [`Requests::ask`] with the request that the object needs now. The reply triggers a later
//! reconciliation, which finds it. A slow server, or one that a thousand objects need, delays only its own objects:
//! each host gets only a few of the concurrent requests, and namespaces take turns.
//!
//! A request with an irreversible effect names its intent ([`Request::required_intent`]) and carries an idempotency
//! key. The status has the intent before the request is sent. If the process ends before it has recorded the reply, the
//! next process sends the same request with the same key.

mod pod_logs;
mod queue;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Reason, Status, Timestamp,
    decide::{ErrorClass, ReconcileError},
    external::{Load, RECHECK, Reply},
};
use kube::{Resource, core::ObjectMeta};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
    time::timeout,
};

pub use self::pod_logs::{LogOf, LogRequest, PodLogs, read_log};
use self::queue::{FairQueue, Limits, Place};
use crate::{
    cache::Cache,
    clock::Clock,
    controller::{Context, Handle},
    key::Key,
    leader::Leadership,
    metrics::Metrics,
    supervise::Shutdown,
};

/// Maximum numbers of requests. A later reconciliation repeats a request that did not fit.
const LIMITS: Limits = Limits {
    in_flight: 32,
    per_host: 4,
    per_namespace: 8,
    waiting: 1000,
};

/// Delay before a failed request is repeated. It doubles with each failure, up to `RETRY_MAX`.
const RETRY_INITIAL: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A request to a server outside the caches.
///
/// # Caveats
/// The log contains `Debug` of a request, so a request must not contain a secret. The [`Remote`] reads secrets itself.
pub trait Request: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The response of the server. Its size must be bounded: one is kept for each object that asks. It is never logged.
    type Response: Clone + Send + Sync + 'static;

    /// Name of the server in logs and messages, such as `Git server`.
    const REMOTE: &'static str;

    /// Reason of the failure if the server does not respond in time.
    const UNREACHABLE: Reason;

    /// Timeout of the whole request.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// How long a response counts. Failures are repeated later and later, from 5 s to 60 s.
    const FRESH_FOR: Duration = Duration::from_secs(5);

    /// Maximum number of requests in flight. Lower it if the responses are large.
    const IN_FLIGHT: usize = LIMITS.in_flight;

    /// Maximum number of requests in flight of one namespace.
    const PER_NAMESPACE: usize = LIMITS.per_namespace;

    /// Returns the host that the request goes to. At most four requests go to one host at the same time.
    fn host(&self) -> String;

    /// Returns the intent that the *stored* status must have before the request is sent. A request with an
    /// irreversible effect has one.
    fn required_intent(&self) -> Option<&str> {
        None
    }
}

/// The client of a server outside the caches.
pub trait Remote<Q: Request>: Send + Sync + 'static {
    /// Sends a request, and returns the response or the failure. The message of a failure must not contain a secret.
    ///
    /// # Caveats
    /// The same request may be sent several times: after a failure, after the expiry of its reply, and by the next
    /// leader while the first request is still on the wire. So a request with an effect needs an idempotency key.
    fn send(&self, request: &Q)
    -> impl Future<Output = Result<Q::Response, ReconcileError>> + Send;
}

/// Creates the handle for the requests of a kind, and the worker that sends them. Deleted objects of the cache are
/// forgotten.
pub fn new<Q, R, O>(
    kind: &'static str,
    remote: R,
    objects: &Cache<O>,
    context: &Context,
) -> (Requests<Q>, RequestWorker<Q, R>)
where
    Q: Request,
    R: Remote<Q>,
    O: Resource + Send + Sync + 'static,
{
    let limits = Limits {
        in_flight: Q::IN_FLIGHT,
        per_namespace: Q::PER_NAMESPACE,
        ..LIMITS
    };
    let requests = Requests::new(limits, context.leading.clone());
    requests.forget_deleted(objects);
    let worker = RequestWorker {
        requests: requests.clone(),
        remote: Arc::new(remote),
        kind,
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
    };
    (requests, worker)
}

/// The requests of a kind to one remote: at most one for each object. Clones share them.
///
/// # Guarantees
/// - A request is sent only while this process leads. If the Lease is lost meanwhile, the request and its reply are
///   dropped, and the object is reconciled when this process leads again.
/// - A reply belongs to its request: it is dropped if the object has asked for something else since.
/// - The numbers of requests are bounded: in total, for each host, for each namespace, and those that wait.
/// - Nothing is kept of an object that asks for nothing or is deleted.
///
/// # Caveats
/// None of this is stored. A decision must record everything that it concludes from a reply. It must also request a
/// reconciliation at [`Reply::requeue_at`]: only a reconciliation repeats a request.
pub struct Requests<Q: Request> {
    shared: Arc<Shared<Q>>,
}

struct Shared<Q: Request> {
    state: Mutex<State<Q>>,
    /// Wakes the worker when a request was queued.
    queued: Notify,
    leading: Leadership,
}

struct State<Q: Request> {
    /// The term of leadership that all entries belong to, or `None` while another process leads.
    term: Option<u64>,
    /// By the UID of the object.
    entries: HashMap<String, Entry<Q>>,
    queue: FairQueue<Queued<Q>>,
    /// The last ticket.
    tickets: u64,
    /// Objects that lost their request with the Lease.
    interrupted: BTreeSet<Key>,
}

struct Entry<Q: Request> {
    key: Key,
    request: Q,
    /// Ticket of the request while it waits or is in flight. A reply with another ticket is dropped.
    ticket: Option<u64>,
    /// Whether the request is no longer in the queue, and has no reply yet.
    is_in_flight: bool,
    failures: u32,
    reply: Option<Reply<Q::Response>>,
}

/// A request that waits or is in flight.
#[derive(Debug, Clone)]
struct Queued<Q> {
    uid: String,
    key: Key,
    ticket: u64,
    request: Q,
}

/// The outcome of a request, or `None` if the Lease was lost meanwhile.
type Outcome<Q> = Option<Result<<Q as Request>::Response, ReconcileError>>;

impl<Q: Request> Clone for Requests<Q> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<Q: Request> fmt::Debug for Requests<Q> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Requests({})", Q::REMOTE)
    }
}

impl<Q: Request> Requests<Q> {
    fn new(limits: Limits, leading: Leadership) -> Self {
        let state = State {
            term: None,
            entries: HashMap::new(),
            queue: FairQueue::new(limits),
            tickets: 0,
            interrupted: BTreeSet::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                queued: Notify::new(),
                leading,
            }),
        }
    }

    /// Returns the reply to the request that an object needs now, if there is one. Queues the request if there is no
    /// reply yet, or if the reply has expired. With `None`, the object needs no reply any more.
    ///
    /// Call it in `observe`, with the status of the cached object.
    ///
    /// # Errors
    /// If the stored status does not have the intent that the request requires.
    pub fn ask<S: Status>(
        &self,
        object: &ObjectMeta,
        stored: Option<&S>,
        request: Option<Q>,
        now: Timestamp,
    ) -> Result<Option<Reply<Q::Response>>, ReconcileError> {
        let uid = object.uid.clone().unwrap_or_default();
        let Some(request) = request else {
            self.state().forget(&uid);
            return Ok(None);
        };
        if let Some(intent) = request.required_intent()
            && !stored.is_some_and(|status| status.has_intent(intent))
        {
            return Err(ReconcileError::bug(format!(
                "an irreversible request to the {} was refused: the stored status does not carry its intent '{intent}'",
                Q::REMOTE
            )));
        }
        let mut state = self.current_state();
        if state.term.is_none() {
            return Ok(None);
        }
        let (reply, is_queued) = state.ask(uid, Key::of(object), request, now);
        drop(state);
        if is_queued {
            self.shared.queued.notify_one();
        }
        Ok(reply)
    }

    /// Returns the numbers of requests, for a message about this object.
    #[must_use]
    pub fn load(&self, object: &ObjectMeta) -> Load {
        let state = self.state();
        let own = object.uid.as_ref().and_then(|uid| state.entries.get(uid));
        Load {
            is_own_in_flight: own.is_some_and(|entry| entry.is_in_flight),
            ..state.queue.load(namespace(&Key::of(object)))
        }
    }

    /// Forgets the objects that are deleted from now on. An object that replaced another one of its name asks for
    /// itself.
    fn forget_deleted<O: Resource + Send + Sync + 'static>(&self, objects: &Cache<O>) {
        let requests = self.clone();
        objects.on_change(move |change| {
            let uid = |object: &Arc<O>| object.meta().uid.clone();
            let old = change.old.and_then(uid);
            if let Some(gone) = old.filter(|old| change.new.and_then(uid).as_ref() != Some(old)) {
                requests.state().forget(&gone);
            }
        });
    }

    /// Removes the next request from the queue, if this process leads.
    fn start_next(&self) -> Option<(Place, Queued<Q>)> {
        let mut state = self.current_state();
        state.term?;
        let (place, queued) = state.queue.start_next()?;
        let entry = state.entries.get_mut(&queued.uid);
        if let Some(entry) = entry.filter(|entry| entry.ticket == Some(queued.ticket)) {
            entry.is_in_flight = true;
        }
        Some((place, queued))
    }

    /// Stores the outcome of a request. Returns whether its object waits for that.
    fn finish(
        &self,
        place: &Place,
        queued: &Queued<Q>,
        outcome: Outcome<Q>,
        now: Timestamp,
    ) -> bool {
        // The Lease may have been lost and acquired again. Then the entry is no longer there.
        let mut state = self.current_state();
        state.queue.finish(place);
        let entry = state.entries.get_mut(&queued.uid);
        let Some(entry) = entry.filter(|entry| entry.ticket == Some(queued.ticket)) else {
            return false;
        };
        entry.ticket = None;
        entry.is_in_flight = false;
        if let Some(response) = outcome {
            entry.store(response, now);
        }
        true
    }

    /// Returns the objects that lost their request with the Lease, once.
    fn take_interrupted(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.state().interrupted)
    }

    /// Locks the state, without anything from another term of leadership.
    fn current_state(&self) -> MutexGuard<'_, State<Q>> {
        let mut state = self.state();
        // Read the term with the lock. Otherwise, an older term could replace a newer one.
        state.enter_term(self.shared.leading.term());
        state
    }

    /// Locks the state. After a panic the lock is still usable: all entries are complete.
    fn state(&self) -> MutexGuard<'_, State<Q>> {
        let state = &self.shared.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Request> State<Q> {
    /// Drops everything from another term of leadership. Another process may have led since, so an old reply proves
    /// nothing.
    fn enter_term(&mut self, term: Option<u64>) {
        if self.term == term {
            return;
        }
        self.term = term;
        self.queue.clear_waiting();
        for (_, entry) in self.entries.drain() {
            if entry.ticket.is_some() {
                self.interrupted.insert(entry.key);
            }
        }
    }

    /// Returns the reply, and whether a request was queued.
    fn ask(
        &mut self,
        uid: String,
        key: Key,
        request: Q,
        now: Timestamp,
    ) -> (Option<Reply<Q::Response>>, bool) {
        let known = self.entries.get(&uid);
        if known.is_some_and(|known| known.request != request) {
            self.forget(&uid);
        }
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry {
            key,
            request,
            ticket: None,
            is_in_flight: false,
            failures: 0,
            reply: None,
        });
        let is_due = entry.reply.as_ref().is_none_or(|old| now >= old.next_at);
        let mut is_queued = false;
        if is_due && entry.ticket.is_none() {
            self.tickets += 1;
            let place = Place {
                namespace: namespace(&entry.key).to_owned(),
                host: entry.request.host(),
            };
            let queued = Queued {
                uid,
                key: entry.key.clone(),
                ticket: self.tickets,
                request: entry.request.clone(),
            };
            is_queued = self.queue.push(place, queued);
            if is_queued {
                entry.ticket = Some(self.tickets);
            } else {
                let (object, remote) = (&entry.key, Q::REMOTE);
                tracing::debug!(%object, remote, "too many requests of its namespace wait");
            }
        }
        let reply = entry.reply.clone().map(|reply| Reply {
            // Keep the old reply until a new one arrives.
            next_at: if is_due {
                after(now, RECHECK)
            } else {
                reply.next_at
            },
            is_fresh: !is_due,
            ..reply
        });
        (reply, is_queued)
    }

    fn forget(&mut self, uid: &str) {
        if let Some(entry) = self.entries.remove(uid) {
            let is_its = |queued: &Queued<Q>| Some(queued.ticket) == entry.ticket;
            self.queue.remove(namespace(&entry.key), is_its);
        }
    }
}

impl<Q: Request> Entry<Q> {
    fn store(&mut self, response: Result<Q::Response, ReconcileError>, now: Timestamp) {
        let wait = match &response {
            Ok(_) => {
                self.failures = 0;
                Q::FRESH_FOR
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                retry_delay(self.failures)
            }
        };
        let since = self.reply.as_ref().map_or(now, |first| first.since);
        self.reply = Some(Reply {
            response,
            since,
            next_at: after(now, wait),
            is_fresh: true,
        });
    }
}

/// Sends the requests of a kind to one remote.
pub struct RequestWorker<Q: Request, R> {
    requests: Requests<Q>,
    remote: Arc<R>,
    kind: &'static str,
    clock: Clock,
    metrics: Metrics,
}

impl<Q: Request, R> fmt::Debug for RequestWorker<Q, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RequestWorker({})", Q::REMOTE)
    }
}

impl<Q: Request, R: Remote<Q>> RequestWorker<Q, R> {
    /// Sends requests until shutdown. `handle` is the one of the controller of the kind: a reply queues its object.
    ///
    /// # Errors
    /// No error is expected. The type fits the supervisor.
    pub async fn run(self, handle: Handle, shutdown: Shutdown) -> Result<(), Infallible> {
        let mut leading = self.requests.shared.leading.clone();
        let mut in_flight = HashMap::new();
        let mut tasks = JoinSet::new();
        loop {
            while let Some((place, queued)) = self.requests.start_next() {
                let (kind, object, remote) = (self.kind, &queued.key, Q::REMOTE);
                tracing::debug!(kind, %object, remote, request = ?queued.request, "sends a request");
                let (remote, request) = (Arc::clone(&self.remote), queued.request.clone());
                let task = tasks.spawn(send(remote, request, leading.clone()));
                in_flight.insert(task.id(), (place, queued));
            }
            for key in self.requests.take_interrupted() {
                handle.enqueue(&key);
            }
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = self.requests.shared.queued.notified() => {}
                changed = leading.changed() => {
                    // Without the sender, this process never leads again.
                    if changed.is_err() {
                        shutdown.wait().await;
                        return Ok(());
                    }
                }
                Some(ended) = tasks.join_next_with_id() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, outcome),
                        Err(error) => (error.id(), Some(Err(panicked::<Q>(&error)))),
                    };
                    if let Some((place, queued)) = in_flight.remove(&id) {
                        self.report(&queued.key, &outcome);
                        let now = self.clock.now();
                        if self.requests.finish(&place, &queued, outcome, now) {
                            handle.enqueue(&queued.key);
                        }
                    }
                }
            }
        }
    }

    /// Logs the outcome of a request, without the response: it may contain a user's data.
    fn report(&self, object: &Key, outcome: &Outcome<Q>) {
        let (kind, remote) = (self.kind, Q::REMOTE);
        match outcome {
            Some(Ok(_)) => tracing::info!(kind, %object, remote, "the {remote} responded"),
            Some(Err(error)) => {
                let (class, reason) = (error.class.name(), error.reason.name());
                self.metrics.error(kind, class);
                let message = &error.message;
                tracing::warn!(kind, %object, remote, class, reason, "a request to the {remote} failed: {message}");
            }
            None => {
                tracing::info!(kind, %object, remote, "dropped a request to the {remote}: the Lease was lost");
            }
        }
    }
}

/// Sends a request, and drops it when the Lease ends. So a request that still waits for a connection never begins then.
async fn send<Q: Request, R: Remote<Q>>(
    remote: Arc<R>,
    request: Q,
    leading: Leadership,
) -> Outcome<Q> {
    tokio::select! {
        biased;
        () = leading.lost() => None,
        sent = timeout(Q::TIMEOUT, remote.send(&request)) => {
            Some(sent.unwrap_or_else(|_elapsed| Err(timed_out::<Q>())))
        }
    }
}

fn timed_out<Q: Request>() -> ReconcileError {
    let (remote, seconds) = (Q::REMOTE, Q::TIMEOUT.as_secs());
    let message = format!("the {remote} did not respond within {seconds} s");
    ReconcileError::new(ErrorClass::Transient, Q::UNREACHABLE, message)
}

/// Returns the failure of a request that panicked. It does not quote the panic, which may contain a user's data.
fn panicked<Q: Request>(error: &JoinError) -> ReconcileError {
    let how = if error.is_panic() {
        "panicked; the operator's log has the place"
    } else {
        "was aborted"
    };
    ReconcileError::bug(format!("a request to the {} {how}", Q::REMOTE))
}

fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    let delay = RETRY_INITIAL.saturating_mul(2_u32.saturating_pow(doublings));
    delay.min(RETRY_MAX)
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(now)
}

/// Returns the namespace that a request counts for. Cluster-scoped objects share one.
fn namespace(key: &Key) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
