//! Watches that fill caches from the API server, and the caches that receive our writes.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::{self, Debug},
    sync::{Arc, atomic::AtomicU64},
};

use futures::future::BoxFuture;
use kube::{Api, Client, Resource, core::NamespaceResourceScope, runtime::watcher};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cache::{Cache, Identity, InvalidObject},
    client::READ_TIMEOUT,
    guard::{self, Guard},
    health::Health,
    key::Key,
    metrics::Metrics,
    proven::Proven,
    supervise::{Shutdown, Supervisor},
    watch_health::{BlockedScopes, WatchHealth},
};

mod client;
mod list_queue;
mod optional;
mod reflector;
#[cfg(test)]
mod tests;

pub(crate) use optional::Installation;
pub use optional::{OptionalCache, OptionalType, Presence};

use list_queue::ListQueue;
use reflector::Reflector;

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

/// A function that converts an object to its cached value, or returns why decisions cannot use the object.
type Decode<K, T> = Arc<dyn Fn(K, Source) -> Result<T, String> + Send + Sync>;

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
    /// Returns whether the type is installed, if it may not be.
    fn installation(&self) -> Option<&Installation>;
}

struct Writer<K, T> {
    cache: Cache<T>,
    decode: Decode<K, T>,
    /// Set for a type that may not be installed.
    installation: Option<Arc<Installation>>,
}

impl<K, T> Written for Writer<K, T>
where
    K: Resource + DeserializeOwned + 'static,
    T: Send + Sync + 'static,
{
    fn written(&self, object: Value) {
        match decoded(&self.decode, Guard(guard::read(object)), Source::Watch) {
            Ok((identity, kept)) => self.cache.on_own_write(identity, kept),
            // The watch will deliver the object, decodable or not.
            Err(unreadable) => tracing::warn!(
                resource = self.cache.name(),
                "the response of a write cannot be decoded: {}",
                unreadable.1.error
            ),
        }
    }

    fn removed(&self, key: &Key, uid: &str) {
        self.cache.removed(key, uid);
    }

    fn listed_live(&self, object: Value, as_of: u64) -> Result<(), String> {
        match decoded(&self.decode, Guard(guard::read(object)), Source::LiveRead) {
            Ok((identity, kept)) => self.cache.listed_live(identity, kept, as_of),
            Err(unreadable) => {
                let (key, object) = *unreadable;
                // Decisions handle an unreadable object of an optional type.
                if self.installation.is_none() {
                    return Err(object.error);
                }
                self.cache.on_invalid(&key, object);
            }
        }
        Ok(())
    }

    fn uid(&self, key: &Key) -> Option<(Key, String)> {
        self.cache.uid(key)
    }

    fn uids(&self, index_key: &str) -> Vec<(Key, String)> {
        self.cache.uids(index_key)
    }

    fn installation(&self) -> Option<&Installation> {
        self.installation.as_deref()
    }
}

/// Converts an object to its identity and its cached value.
///
/// # Errors
/// If the object cannot be decoded.
fn decoded<K: Resource, T>(
    decode: &Decode<K, T>,
    object: Guard<K>,
    source: Source,
) -> Result<(Identity, T), Box<(Key, InvalidObject)>> {
    let meta = object.meta();
    let (version, generation) = (meta.resource_version.clone(), meta.generation);
    let identity = Identity::of(meta);
    let kept = match object.0 {
        Ok(object) => decode(object, source),
        Err(unreadable) => Err(unreadable.error),
    };
    match kept {
        Ok(kept) => Ok((identity, kept)),
        Err(error) => {
            let invalid = InvalidObject {
                uid: identity.uid,
                version: version.unwrap_or_default(),
                generation: generation.unwrap_or_default(),
                error,
            };
            Err(Box::new((identity.key, invalid)))
        }
    }
}

/// Returns the name of a watch, for messages and tasks.
fn watch_name(resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("watch of {resource} in '{namespace}'"),
        None => format!("watch of {resource}"),
    }
}

fn watch_config(labels: Option<&str>, fields: Option<&str>) -> watcher::Config {
    let config = watcher::Config {
        label_selector: labels.map(str::to_owned),
        field_selector: fields.map(str::to_owned),
        ..watcher::Config::default()
    };
    config.timeout(WATCH_SECONDS).page_size(PAGE)
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
        self.keep_writer(resource, writer(&watch, &cache));
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
        self.keep_writer(resource, writer(&watch, &cache));
        cache
    }

    fn keep_writer(
        &mut self,
        resource: (&'static str, &'static str),
        writer: impl Written + 'static,
    ) {
        // Of two watches of one type (Events of Jobs, Events of Pods), the first stays: we write no such type.
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
        let health = self.health.watch_health();
        let number = health.add(&watch_name(resource, namespace), namespace);
        let api = api(client::reporting(&self.client, health, number));
        let (namespace, decode) = (namespace.map(str::to_owned), infallible(&watch.transform));
        let reflector = self.reflector(number, resource, namespace, &decode, cache);
        let config = watch_config(watch.labels.as_deref(), watch.fields.as_deref());
        self.add_task(api, config, reflector);
    }

    fn reflector<K, T>(
        &self,
        number: usize,
        resource: &'static str,
        namespace: Option<String>,
        decode: &Decode<K, T>,
        cache: &Cache<T>,
    ) -> Reflector<K, T> {
        Reflector {
            number,
            resource,
            namespace,
            decode: Arc::clone(decode),
            cache: cache.clone(),
            rounds: Arc::clone(&self.rounds),
            lists: Arc::clone(&self.lists),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            installation: None,
        }
    }

    fn add_task<K, T>(
        &mut self,
        api: Api<Guard<K>>,
        config: watcher::Config,
        reflector: Reflector<K, T>,
    ) where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        let name = watch_name(reflector.resource, reflector.namespace.as_deref());
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

/// Returns the writer of a cache that this watch fills.
fn writer<K, T>(watch: &Watch<K, T>, cache: &Cache<T>) -> Writer<K, T>
where
    K: 'static,
    T: 'static,
{
    Writer {
        cache: cache.clone(),
        decode: infallible(&watch.transform),
        installation: None,
    }
}

fn infallible<K: 'static, T: 'static>(transform: &Transform<K, T>) -> Decode<K, T> {
    let transform = Arc::clone(transform);
    Arc::new(move |object, source| Ok(transform(object, source)))
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
    /// Returns whether each watch has either completed its first list or reported an error. Watches of optional types
    /// do not count.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.health.is_settled()
    }

    /// Returns the scopes in which no object of a kind may be reconciled now. `optional` has the numbers of the watches
    /// of optional types that the kind depends on.
    pub(crate) fn blocked(&self, optional: &BTreeSet<usize>) -> BlockedScopes {
        self.health.blocked(optional)
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
