//! Watches: from the API server into caches, and the caches that a write must reach.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use kube::{
    Api, Client, Resource,
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cache::{Cache, Identity, Poison},
    fault::words,
    health::Health,
    key::Key,
    metrics::Metrics,
    supervise::{Shutdown, Supervisor},
};

/// Which namespaces are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of them, by cluster-wide watches.
    All,
    /// These only, by a watch each: Roles are enough.
    Namespaces(Vec<String>),
}

/// What is watched, and what is kept of it.
#[derive(Debug, Clone)]
pub struct Watch<K, T> {
    /// Only objects with these labels.
    pub labels: Option<String>,
    /// Only objects with these fields.
    pub fields: Option<String>,
    /// What is kept of an object: as little as decisions need, since thousands are.
    pub thin: fn(K) -> T,
    /// The words by which an object is found.
    pub index: fn(&T) -> Vec<String>,
}

/// Puts answers of writes into a cache, whatever its type.
pub(crate) trait Written: Send + Sync {
    fn written(&self, object: Value);
    fn removed(&self, key: &Key, uid: &str);
}

struct Writer<K, T> {
    cache: Cache<T>,
    thin: fn(K) -> T,
}

impl<K, T> Written for Writer<K, T>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    T: Send + Sync + 'static,
{
    fn written(&self, object: Value) {
        match serde_json::from_value::<K>(object) {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                let identity = Identity::of(object.meta());
                self.cache.written(identity, (self.thin)(object));
            }
            // The watch will bring it, readable or not.
            Err(error) => tracing::warn!(
                resource = self.cache.name(),
                "the answer of a write cannot be read: {error}"
            ),
        }
    }

    fn removed(&self, key: &Key, uid: &str) {
        self.cache.removed(key, uid);
    }
}

/// The caches by group and plural.
type Writers = HashMap<(&'static str, &'static str), Arc<dyn Written>>;

type Feed = Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, Result<(), String>> + Send>;

/// All watches of a process, and their caches.
///
/// # Guarantees
/// - One undecodable object does not break a watch: it is kept as [`Poison`], and the rest goes on.
/// - An error of a watch is counted and logged; the watch is opened again, after 10 s at most.
pub struct Hub {
    client: Client,
    metrics: Metrics,
    health: Health,
    scope: Scope,
    rounds: Arc<AtomicU64>,
    unsynced: Arc<AtomicUsize>,
    feeds: Vec<(String, Feed)>,
    writers: Writers,
}

impl Debug for Hub {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Hub({} watches)", self.feeds.len())
    }
}

impl Hub {
    /// Without watches.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics, health: Health, scope: Scope) -> Self {
        Self {
            client,
            metrics,
            health,
            scope,
            rounds: Arc::default(),
            unsynced: Arc::default(),
            feeds: Vec::new(),
            writers: HashMap::new(),
        }
    }

    /// Watches a namespaced type, in the hub's scope. `resource` is (group, plural).
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
        let apis = match &self.scope {
            Scope::All => vec![(None, Api::all(self.client.clone()))],
            Scope::Namespaces(namespaces) => namespaces
                .iter()
                .map(|name| {
                    (
                        Some(name.clone()),
                        Api::namespaced(self.client.clone(), name),
                    )
                })
                .collect(),
        };
        for (namespace, api) in apis {
            self.feed(resource.1, namespace, api, &watch, &cache);
        }
        self.keep_writer(resource, &watch, &cache);
        cache
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
        self.feed(
            resource.1,
            None,
            Api::all(self.client.clone()),
            &watch,
            &cache,
        );
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
        // Two watches of one type (Events of Jobs, Events of Pods): we write none of these.
        let writer = Writer {
            cache: cache.clone(),
            thin: watch.thin,
        };
        self.writers
            .entry(resource)
            .or_insert_with(|| Arc::new(writer));
    }

    fn feed<K, T>(
        &mut self,
        resource: &'static str,
        namespace: Option<String>,
        api: Api<DeserializeGuard<K>>,
        watch: &Watch<K, T>,
        cache: &Cache<T>,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&watch.labels);
        config.field_selector.clone_from(&watch.fields);
        if resource == "events" {
            // Events have no watch cache, so no bookmarks: an idle watch would look dead to the
            // client's read timeout.
            config = config.timeout(90);
        }
        let name = match &namespace {
            Some(namespace) => format!("watch of {resource} in '{namespace}'"),
            None => format!("watch of {resource}"),
        };
        self.unsynced.fetch_add(1, Ordering::SeqCst);
        let feed = Feeder {
            resource,
            namespace,
            thin: watch.thin,
            cache: cache.clone(),
            rounds: Arc::clone(&self.rounds),
            unsynced: Arc::clone(&self.unsynced),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
        };
        self.feeds.push((
            name,
            Box::new(move |shutdown| Box::pin(feed.run(api, config, shutdown))),
        ));
    }

    /// Starts all watches; returns what controllers need of the hub.
    pub fn start(self, supervisor: &mut Supervisor) -> Started {
        for (name, feed) in self.feeds {
            let task = feed(supervisor.shutdown());
            supervisor.spawn(name, task);
        }
        Started {
            writers: Arc::new(self.writers),
            unsynced: self.unsynced,
        }
    }
}

#[cfg(test)]
impl Hub {
    /// For tests that fill the caches themselves.
    pub(crate) fn without_watches(self) -> Started {
        Started {
            writers: Arc::new(self.writers),
            unsynced: Arc::default(),
        }
    }
}

/// A hub whose watches run.
#[derive(Clone)]
pub struct Started {
    writers: Arc<Writers>,
    unsynced: Arc<AtomicUsize>,
}

impl Debug for Started {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Started({} types)", self.writers.len())
    }
}

impl Started {
    /// Whether every cache has seen its first listing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unsynced.load(Ordering::SeqCst) == 0
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

    fn writer(&self, group: &'static str, plural: &'static str) -> Option<&Arc<dyn Written>> {
        self.writers.get(&(group, plural))
    }
}

struct Feeder<K, T> {
    resource: &'static str,
    namespace: Option<String>,
    thin: fn(K) -> T,
    cache: Cache<T>,
    rounds: Arc<AtomicU64>,
    unsynced: Arc<AtomicUsize>,
    metrics: Metrics,
    health: Health,
}

impl<K, T> Feeder<K, T>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + Sync + 'static,
{
    async fn run(
        self,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        shutdown: Shutdown,
    ) -> Result<(), String> {
        let mut events = pin!(watcher(api, config).backoff(Reopen(0)));
        let mut round = 0;
        let mut poison = HashSet::new();
        let mut is_synced = false;
        loop {
            let event = tokio::select! {
                () = shutdown.wait() => return Ok(()),
                event = events.next() => event,
            };
            match event {
                None => return Err("its stream ended".to_owned()),
                Some(Err(error)) => {
                    self.metrics.watch_error(self.resource);
                    tracing::warn!(
                        resource = self.resource,
                        "watch interrupted, will be opened again: {}",
                        words(&error)
                    );
                }
                Some(Ok(event)) => {
                    self.health.api_answered();
                    match event {
                        Event::Init => {
                            round = self.rounds.fetch_add(1, Ordering::SeqCst) + 1;
                            poison.clear();
                        }
                        Event::InitApply(object) | Event::Apply(object) => {
                            self.take(object, round, &mut poison);
                        }
                        Event::Delete(object) => {
                            self.cache.gone(&Identity::of(object.meta()));
                        }
                        Event::InitDone => {
                            self.cache.listed(self.namespace.as_deref(), round, &poison);
                            if !is_synced {
                                is_synced = true;
                                self.unsynced.fetch_sub(1, Ordering::SeqCst);
                                tracing::debug!(resource = self.resource, "first listing complete");
                            }
                        }
                    }
                }
            }
        }
    }

    fn take(&self, object: DeserializeGuard<K>, round: u64, poison: &mut HashSet<Key>) {
        match object.0 {
            Ok(mut object) => {
                // Half of an object's size, and nothing that a decision reads.
                object.meta_mut().managed_fields = None;
                let identity = Identity::of(object.meta());
                self.cache.seen(identity, (self.thin)(object), round);
            }
            Err(invalid) => {
                let key = Key::of(&invalid.metadata);
                poison.insert(key.clone());
                self.cache.poisoned_by(
                    &key,
                    Poison {
                        uid: invalid.metadata.uid.clone().unwrap_or_default(),
                        version: invalid
                            .metadata
                            .resource_version
                            .clone()
                            .unwrap_or_default(),
                        generation: invalid.metadata.generation.unwrap_or_default(),
                        error: invalid.error.clone(),
                    },
                );
            }
        }
    }
}

/// Half a second, doubling to ten: a control plane that returns must not be waited for long.
struct Reopen(u32);

impl Iterator for Reopen {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = Duration::from_millis(500).saturating_mul(1 << self.0.min(10));
        self.0 = self.0.saturating_add(1);
        Some(delay.min(Duration::from_secs(10)))
    }
}

impl Backoff for Reopen {
    fn reset(&mut self) {
        self.0 = 0;
    }
}
