//! Watches that fill caches from the API server, and the caches that receive our writes.

use std::{
    collections::{HashMap, HashSet},
    fmt::{self, Debug},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cache::{Cache, Identity, InvalidObject},
    client::READ_TIMEOUT,
    fault::error_chain,
    guard::{self, Guard, Unreadable},
    health::Health,
    key::Key,
    metrics::Metrics,
    proven::Proven,
    supervise::{Shutdown, Supervisor},
    watch_health::{BlockedScopes, WatchHealth},
};

mod client;
mod list_queue;
#[cfg(test)]
mod tests;

use list_queue::ListQueue;

/// Seconds after which the server ends a watch. The watch is then reopened where it ended.
///
/// The server promises no bookmarks: it sends none for Events, and none for a type without a change since the server
/// started. With kube's 290 s, the client's read timeout took such a healthy watch for dead.
const WATCH_SECONDS: u32 = 90;

// kube gives up a watch that is silent for 5 s longer. The read timeout is for connections that kube does not monitor.
const _: () = assert!(WATCH_SECONDS as u64 + 10 <= READ_TIMEOUT.as_secs());

/// Number of objects in one response to a list request. An object has up to 1.5 MB, so a response has at most 24 MB.
/// With kube's default of 500 objects it could have 750 MB.
const PAGE: u32 = 16;

/// The namespaces that are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces, with cluster-wide watches.
    All,
    /// Only these namespaces, with one watch each. Roles are enough.
    Namespaces(Vec<String>),
}

/// A watch of one type of objects: the selection, and the cached value of each object.
#[derive(Clone)]
pub struct Watch<K, T> {
    /// Label selector of the objects.
    pub labels: Option<String>,
    /// Field selector of the objects.
    pub fields: Option<String>,
    /// Reduces an object to its cached value: as little as decisions need, because thousands are kept.
    pub transform: Transform<K, T>,
    /// Returns the index keys of an object.
    pub index: fn(&T) -> Vec<String>,
}

impl<K, T> fmt::Debug for Watch<K, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// A function that converts an object to its cached value.
pub type Transform<K, T> = Arc<dyn Fn(K, Source) -> T + Send + Sync>;

/// Source of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The watch, or the response of a write.
    Watch,
    /// A live read that a decision requested.
    LiveRead,
}

/// A writer that puts responses of writes into a cache of any type.
pub(crate) trait Written: Send + Sync {
    fn written(&self, object: Value);
    fn removed(&self, key: &Key, uid: &str);
    /// Stores an object of a live list of this version. Returns the error if it cannot be decoded.
    fn listed_live(&self, object: Value, as_of: u64) -> Result<(), String>;
    fn uid(&self, key: &Key) -> Option<(Key, String)>;
    fn uids(&self, index_key: &str) -> Vec<(Key, String)>;
}

struct Writer<K, T> {
    cache: Cache<T>,
    transform: Transform<K, T>,
}

impl<K, T> Written for Writer<K, T>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    T: Send + Sync + 'static,
{
    fn written(&self, object: Value) {
        match guard::read::<K>(object) {
            Ok(object) => {
                let identity = Identity::of(object.meta());
                self.cache
                    .on_own_write(identity, (self.transform)(object, Source::Watch));
            }
            // The watch will deliver the object, decodable or not.
            Err(unreadable) => tracing::warn!(
                resource = self.cache.name(),
                "the response of a write cannot be decoded: {}",
                unreadable.error
            ),
        }
    }

    fn removed(&self, key: &Key, uid: &str) {
        self.cache.removed(key, uid);
    }

    fn listed_live(&self, object: Value, as_of: u64) -> Result<(), String> {
        let object: K = guard::read(object).map_err(|unreadable| unreadable.error)?;
        let identity = Identity::of(object.meta());
        let kept = (self.transform)(object, Source::LiveRead);
        self.cache.listed_live(identity, kept, as_of);
        Ok(())
    }

    fn uid(&self, key: &Key) -> Option<(Key, String)> {
        self.cache.uid(key)
    }

    fn uids(&self, index_key: &str) -> Vec<(Key, String)> {
        self.cache.uids(index_key)
    }
}

/// The writers of the caches, by group and plural.
type Writers = HashMap<(&'static str, &'static str), Arc<dyn Written>>;

type WatchTask = Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, Result<(), String>> + Send>;

/// All watches of a process, and their caches.
///
/// # Guarantees
/// - One undecodable object does not break a watch: it is kept as [`InvalidObject`], and the watch continues.
/// - An error of a watch is counted and logged. The watch is reopened, after 10 s at most.
pub struct WatchManager {
    client: Client,
    metrics: Metrics,
    health: Health,
    scope: Scope,
    rounds: Arc<AtomicU64>,
    lists: Arc<ListQueue>,
    tasks: Vec<(String, WatchTask)>,
    writers: Writers,
    proven: Proven,
}

impl Debug for WatchManager {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "WatchManager({} watches)", self.tasks.len())
    }
}

impl WatchManager {
    /// Returns a manager without watches.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics, health: Health, scope: Scope) -> Self {
        Self {
            client,
            metrics,
            health,
            scope,
            rounds: Arc::default(),
            lists: Arc::default(),
            tasks: Vec::new(),
            writers: HashMap::new(),
            proven: Proven::default(),
        }
    }

    /// Returns the record of the objects that the controllers of this process create.
    #[must_use]
    pub fn proven(&self) -> Proven {
        self.proven.clone()
    }

    /// Watches a namespaced type, in the manager's scope. `resource` is (group, plural). With `PartialObjectMeta<K>`, the
    /// API server sends only metadata.
    pub fn namespaced<K, T>(
        &mut self,
        resource: (&'static str, &'static str),
        watch: Watch<K, T>,
    ) -> Cache<T>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
        T: Send + Sync + 'static,
    {
        let cache = Cache::new(resource.1, watch.index);
        for namespace in self.namespaces() {
            let api = |client: Client| -> Api<Guard<K>> {
                match &namespace {
                    Some(name) => Api::namespaced(client, name),
                    None => Api::all(client),
                }
            };
            self.add_watch(resource.1, namespace.as_deref(), api, &watch, &cache);
        }
        self.keep_writer(resource, &watch, &cache);
        cache
    }

    /// Returns the namespaces of the manager's scope, or one `None` for all namespaces.
    fn namespaces(&self) -> Vec<Option<String>> {
        match &self.scope {
            Scope::All => vec![None],
            Scope::Namespaces(namespaces) => namespaces.iter().cloned().map(Some).collect(),
        }
    }

    /// Watches a cluster-scoped type. `resource` is (group, plural).
    pub fn cluster<K, T>(
        &mut self,
        resource: (&'static str, &'static str),
        watch: Watch<K, T>,
    ) -> Cache<T>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        let cache = Cache::new(resource.1, watch.index);
        self.add_watch(resource.1, None, Api::all, &watch, &cache);
        self.keep_writer(resource, &watch, &cache);
        cache
    }

    fn keep_writer<K, T>(
        &mut self,
        resource: (&'static str, &'static str),
        watch: &Watch<K, T>,
        cache: &Cache<T>,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        T: Send + Sync + 'static,
    {
        // Of two watches of one type (Events of Jobs, Events of Pods), the first stays: we write no such type.
        let writer = Writer {
            cache: cache.clone(),
            transform: Arc::clone(&watch.transform),
        };
        self.writers
            .entry(resource)
            .or_insert_with(|| Arc::new(writer));
    }

    fn add_watch<K, T>(
        &mut self,
        resource: &'static str,
        namespace: Option<&str>,
        api: impl FnOnce(Client) -> Api<Guard<K>>,
        watch: &Watch<K, T>,
        cache: &Cache<T>,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&watch.labels);
        config.field_selector.clone_from(&watch.fields);
        config = config.timeout(WATCH_SECONDS).page_size(PAGE);
        let name = match namespace {
            Some(namespace) => format!("watch of {resource} in '{namespace}'"),
            None => format!("watch of {resource}"),
        };
        let health = self.health.watch_health();
        let number = health.add(&name, namespace);
        let api = api(client::reporting(&self.client, health, number));
        let reflector = Reflector {
            number,
            resource,
            namespace: namespace.map(str::to_owned),
            transform: Arc::clone(&watch.transform),
            cache: cache.clone(),
            rounds: Arc::clone(&self.rounds),
            lists: Arc::clone(&self.lists),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
        };
        self.tasks.push((
            name,
            Box::new(move |shutdown| Box::pin(reflector.run(api, config, shutdown))),
        ));
    }

    /// Starts all watches. Returns the parts that controllers need.
    pub fn start(self, supervisor: &mut Supervisor) -> RunningWatches {
        for (name, start) in self.tasks {
            let task = start(supervisor.shutdown());
            supervisor.spawn(name, task);
        }
        RunningWatches {
            writers: Arc::new(self.writers),
            health: self.health.watch_health().clone(),
            proven: self.proven,
        }
    }
}

#[cfg(test)]
impl WatchManager {
    /// Returns the started watches for tests that fill the caches themselves.
    pub(crate) fn without_watches(self) -> RunningWatches {
        for number in 0..self.tasks.len() {
            self.health.watch_health().synced(number);
        }
        RunningWatches {
            writers: Arc::new(self.writers),
            health: self.health.watch_health().clone(),
            proven: self.proven,
        }
    }
}

/// The running watches, with their caches.
#[derive(Clone)]
pub struct RunningWatches {
    writers: Arc<Writers>,
    health: WatchHealth,
    proven: Proven,
}

impl Debug for RunningWatches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "RunningWatches({} types)", self.writers.len())
    }
}

impl RunningWatches {
    /// Returns whether each watch has either completed its first list or reported an error.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.health.is_settled()
    }

    /// Returns the scopes in which no object may be reconciled now.
    #[must_use]
    pub fn blocked(&self) -> BlockedScopes {
        self.health.blocked()
    }

    /// Returns a receiver that changes when a watch has recovered.
    pub(crate) fn recoveries(&self) -> tokio::sync::watch::Receiver<()> {
        self.health.recoveries()
    }

    /// Remembers the UID of an object that this process created or compared.
    pub(crate) fn remember(&self, uid: &str) {
        self.proven.insert(uid);
    }

    pub(crate) fn written(&self, group: &'static str, plural: &'static str, object: Value) {
        if let Some(writer) = self.writer(group, plural) {
            writer.written(object);
        }
    }

    pub(crate) fn removed(&self, group: &'static str, plural: &'static str, key: &Key, uid: &str) {
        if let Some(writer) = self.writer(group, plural) {
            writer.removed(key, uid);
        }
    }

    /// Returns the writer for the cache of a type, if there is one.
    pub(crate) fn writer(
        &self,
        group: &'static str,
        plural: &'static str,
    ) -> Option<&Arc<dyn Written>> {
        self.writers.get(&(group, plural))
    }
}

struct Reflector<K, T> {
    number: usize,
    resource: &'static str,
    namespace: Option<String>,
    transform: Transform<K, T>,
    cache: Cache<T>,
    rounds: Arc<AtomicU64>,
    /// The order of all lists of the process.
    lists: Arc<ListQueue>,
    metrics: Metrics,
    health: Health,
}

impl<K, T> Reflector<K, T>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + Sync + 'static,
{
    async fn run(
        self,
        api: Api<Guard<K>>,
        config: watcher::Config,
        shutdown: Shutdown,
    ) -> Result<(), String> {
        let failures = Arc::new(AtomicU32::new(0));
        let backoff = Reopen {
            failures: Arc::clone(&failures),
            salt: self.number,
        };
        let mut events = pin!(watcher(api, config).backoff(backoff));
        let mut round = 0;
        let mut invalid = HashSet::new();
        let mut turn = None;
        loop {
            let event = tokio::select! {
                () = shutdown.wait() => return Ok(()),
                event = events.next() => event,
            };
            let event = match event {
                None => return Err("its stream ended".to_owned()),
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    drop(turn.take());
                    self.interrupted(&error);
                    continue;
                }
            };
            // The watcher emits `Init` before it sends a request, so `Init` is no sign of a response.
            if !matches!(event, Event::Init) {
                failures.store(0, Ordering::SeqCst);
                self.health.api_answered();
            }
            match event {
                Event::Init => {
                    tracing::debug!(
                        resource = self.resource,
                        namespace = self.namespace_for_logs(),
                        "listing"
                    );
                    turn = tokio::select! {
                        () = shutdown.wait() => return Ok(()),
                        turn = self.lists.wait() => turn,
                    };
                    if turn.is_none() {
                        let resource = self.resource;
                        tracing::warn!(resource, "lists now, although another list hangs");
                    }
                    // The request is sent when the stream is polled next. The list must contain all that was
                    // written before this round, so the round begins after the wait.
                    round = self.rounds.fetch_add(1, Ordering::SeqCst) + 1;
                    self.cache.begin_relist(self.namespace.as_deref(), round);
                    invalid.clear();
                }
                Event::InitApply(object) => {
                    self.lists.on_progress();
                    self.take(object, round, &mut invalid);
                }
                Event::Apply(object) => {
                    self.take(object, round, &mut invalid);
                    self.health.watch_health().on_event(self.number);
                }
                Event::Delete(object) => {
                    self.cache.on_deleted(&Identity::of(object.meta()));
                    self.health.watch_health().on_event(self.number);
                }
                Event::InitDone => {
                    drop(turn.take());
                    self.cache
                        .finish_relist(self.namespace.as_deref(), round, &invalid);
                    self.health.watch_health().synced(self.number);
                    let (resource, objects) = (self.resource, self.cache.len());
                    tracing::debug!(
                        resource,
                        namespace = self.namespace_for_logs(),
                        objects,
                        "cache synced"
                    );
                }
            }
        }
    }

    /// Returns the watched namespace, for logs.
    fn namespace_for_logs(&self) -> &str {
        self.namespace.as_deref().unwrap_or("all namespaces")
    }

    fn interrupted(&self, error: &watcher::Error) {
        let (resource, why) = (self.resource, error_chain(error));
        self.metrics.watch_error(resource);
        if self.health.watch_health().interrupted(self.number, &why) {
            tracing::warn!(
                resource,
                namespace = self.namespace_for_logs(),
                "watch interrupted, will be opened again: {why}"
            );
        } else {
            tracing::debug!(resource, "watch still interrupted: {why}");
        }
    }

    fn take(&self, object: Guard<K>, round: u64, invalid: &mut HashSet<Key>) {
        match object.0 {
            Ok(object) => {
                let identity = Identity::of(object.meta());
                let kept = (self.transform)(object, Source::Watch);
                self.cache.on_applied(identity, kept, round);
            }
            Err(unreadable) => {
                let Unreadable { error, metadata } = *unreadable;
                let key = Key::of(&metadata);
                invalid.insert(key.clone());
                self.cache.on_invalid(
                    &key,
                    InvalidObject {
                        uid: metadata.uid.unwrap_or_default(),
                        version: metadata.resource_version.unwrap_or_default(),
                        generation: metadata.generation.unwrap_or_default(),
                        error,
                    },
                );
            }
        }
    }
}

/// Delays before a watch is reopened: half a second, doubling to ten. After the control plane returns, the delay must
/// not be long. An overloaded control plane must not get requests from all watches at once.
///
/// The stream resets its backoff at every event, and there is one (`Init`) before each list. So it would repeat a
/// failing list twice a second indefinitely. Therefore only the reflector resets the backoff.
struct Reopen {
    failures: Arc<AtomicU32>,
    salt: usize,
}

impl Iterator for Reopen {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let failures = self.failures.fetch_add(1, Ordering::SeqCst);
        let delay = Duration::from_millis(500).saturating_mul(1 << failures.min(10));
        // Watches that failed together do not return together.
        let spread =
            Duration::from_millis(37).saturating_mul(u32::try_from(self.salt % 16).unwrap_or(0));
        Some(delay.min(Duration::from_secs(10)) + spread)
    }
}

impl Backoff for Reopen {
    fn reset(&mut self) {}
}
