//! Watches: from the API server into caches, and the caches that a write must reach.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
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
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use mutant::Mutant;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cache::{Cache, Identity, Poison},
    fault::words,
    feeds::{Blocker, Feeds},
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
        let number = self
            .health
            .feeds()
            .add(&name, api.resource_url(), namespace.as_deref());
        let feed = Feeder {
            number,
            resource,
            namespace,
            thin: watch.thin,
            cache: cache.clone(),
            rounds: Arc::clone(&self.rounds),
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
            feeds: self.health.feeds().clone(),
        }
    }
}

#[cfg(test)]
impl Hub {
    /// For tests that fill the caches themselves.
    pub(crate) fn without_watches(self) -> Started {
        for number in 0..self.feeds.len() {
            self.health.feeds().synced(number);
        }
        Started {
            writers: Arc::new(self.writers),
            feeds: self.health.feeds().clone(),
        }
    }
}

/// A hub whose watches run.
#[derive(Clone)]
pub struct Started {
    writers: Arc<Writers>,
    feeds: Feeds,
}

impl Debug for Started {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Started({} types)", self.writers.len())
    }
}

impl Started {
    /// Whether each watch has either seen its first listing or said why not.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.feeds.is_settled()
    }

    /// What keeps the objects of a namespace from being looked at.
    #[must_use]
    pub fn blocker(&self, namespace: Option<&str>) -> Option<Blocker> {
        self.feeds.blocker(namespace)
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
    number: usize,
    resource: &'static str,
    namespace: Option<String>,
    thin: fn(K) -> T,
    cache: Cache<T>,
    rounds: Arc<AtomicU64>,
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
        let failures = Arc::new(AtomicU32::new(0));
        let backoff = Reopen {
            failures: Arc::clone(&failures),
            salt: self.number,
        };
        let mut events = pin!(watcher(api, config).backoff(backoff));
        let mut round = 0;
        let mut poison = HashSet::new();
        loop {
            let event = tokio::select! {
                () = shutdown.wait() => return Ok(()),
                event = events.next() => event,
            };
            let event = match event {
                None => return Err("its stream ended".to_owned()),
                Some(Ok(event)) => event,
                Some(Err(_)) if mutant::on(Mutant::WatchErrorSilent) => {
                    shutdown.wait().await;
                    return Ok(());
                }
                Some(Err(error)) => {
                    self.interrupted(&error);
                    continue;
                }
            };
            // The watcher says `Init` before it asks: no answer is behind it.
            if !matches!(event, Event::Init) {
                failures.store(0, Ordering::SeqCst);
                self.health.api_answered();
            }
            match event {
                Event::Init => {
                    round = self.rounds.fetch_add(1, Ordering::SeqCst) + 1;
                    self.cache.listing(round);
                    poison.clear();
                }
                Event::InitApply(object) => self.take(object, round, &mut poison),
                Event::Apply(object) => {
                    self.take(object, round, &mut poison);
                    self.health.feeds().came(self.number);
                }
                Event::Delete(object) => {
                    self.cache.gone(&Identity::of(object.meta()));
                    self.health.feeds().came(self.number);
                }
                Event::InitDone => {
                    if !mutant::on(Mutant::RelistAddsOnly) {
                        self.cache.listed(self.namespace.as_deref(), round, &poison);
                    }
                    self.health.feeds().synced(self.number);
                }
            }
        }
    }

    fn interrupted(&self, error: &watcher::Error) {
        let (resource, why) = (self.resource, words(error));
        self.metrics.watch_error(resource);
        if self.health.feeds().interrupted(self.number, &why) {
            let namespace = self.namespace.as_deref().unwrap_or("all namespaces");
            tracing::warn!(
                resource,
                namespace,
                "watch interrupted, will be opened again: {why}"
            );
        } else {
            tracing::debug!(resource, "watch still interrupted: {why}");
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

/// Half a second, doubling to ten: a control plane that returns must not be waited for long, and
/// one that is overloaded must not be asked by all watches at once.
///
/// The stream resets its backoff at every event, and has one (`Init`) before each listing: a
/// listing that fails would be repeated twice a second for ever. So only the feeder resets it.
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
