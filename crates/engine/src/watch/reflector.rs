//! The task of one watch: it lists and watches objects, and fills a cache.

use std::{
    collections::HashSet,
    fmt::Debug,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::{
    Decode, Source, decoded,
    list_queue::ListQueue,
    optional::{Installation, MissingApi, interruption, missing_api},
};
use crate::{
    cache::{Cache, Identity},
    guard::Guard,
    health::Health,
    key::Key,
    metrics::Metrics,
    supervise::Shutdown,
};

/// Interval between two lists of a type that is not installed. A CRD that is installed is found after this time.
const INSTALLATION_POLL: Duration = Duration::from_secs(30);

/// Shortest time between two lists that live reads request.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a watch.
pub(super) struct Reflector<K, T> {
    pub(super) number: usize,
    pub(super) resource: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) decode: Decode<K, T>,
    pub(super) cache: Cache<T>,
    pub(super) rounds: Arc<AtomicU64>,
    /// The order of all lists of the process.
    pub(super) lists: Arc<ListQueue>,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    /// Set for a type that may not be installed.
    pub(super) installation: Option<Arc<Installation>>,
}

/// Reason for the end of a stream of events.
enum Ended {
    Shutdown,
    /// The API server does not serve the type.
    NotInstalled,
    /// The type may have been removed or installed since the last list.
    Outdated,
}

impl<K, T> Reflector<K, T>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + Sync + 'static,
{
    pub(super) async fn run(
        self,
        api: Api<Guard<K>>,
        config: watcher::Config,
        shutdown: Shutdown,
    ) -> Result<(), String> {
        let reopen = Reopen {
            failures: Arc::default(),
            salt: self.number,
        };
        loop {
            let ended = self.follow(api.clone(), config.clone(), &reopen, &shutdown);
            let pause = match ended.await? {
                Ended::Shutdown => return Ok(()),
                Ended::NotInstalled => INSTALLATION_POLL,
                Ended::Outdated => reopen.delay(),
            };
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
                () = self.relist_soon() => {}
            }
        }
    }

    /// Lists and watches. Only the stream of an optional type ends before the shutdown.
    async fn follow(
        &self,
        api: Api<Guard<K>>,
        config: watcher::Config,
        reopen: &Reopen,
        shutdown: &Shutdown,
    ) -> Result<Ended, String> {
        let mut events = pin!(watcher(api, config).backoff(reopen.clone()));
        let mut round = 0;
        let mut invalid = HashSet::new();
        let mut turn = None;
        let mut is_listed = false;
        loop {
            let event = tokio::select! {
                () = shutdown.wait() => return Ok(Ended::Shutdown),
                () = self.relist_requested(), if is_listed => return Ok(Ended::Outdated),
                event = events.next() => event,
            };
            let event = match event {
                None => return Err("its stream ended".to_owned()),
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    drop(turn.take());
                    match missing_api(&error).filter(|_| self.installation.is_some()) {
                        Some(MissingApi::Listed) => {
                            reopen.forget_failures();
                            self.not_installed(round);
                            return Ok(Ended::NotInstalled);
                        }
                        // kube repeats the watch with an old version. Only a list shows whether the type was removed.
                        Some(MissingApi::Watched) => {
                            self.interrupted(&error);
                            return Ok(Ended::Outdated);
                        }
                        None => self.interrupted(&error),
                    }
                    continue;
                }
            };
            // The watcher emits `Init` before it sends a request, so `Init` is no sign of a response.
            if !matches!(event, Event::Init) {
                reopen.forget_failures();
                self.health.api_answered();
            }
            match event {
                Event::Init => {
                    tracing::debug!(
                        resource = self.resource,
                        namespace = self.namespace_for_logs(),
                        "listing"
                    );
                    is_listed = false;
                    turn = tokio::select! {
                        () = shutdown.wait() => return Ok(Ended::Shutdown),
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
                    self.listed();
                    is_listed = true;
                }
            }
        }
    }

    /// Handles the end of a list.
    fn listed(&self) {
        let (resource, objects) = (self.resource, self.cache.len());
        let namespace = self.namespace_for_logs();
        let was_installed = self.health.watch_health().synced(self.number);
        tracing::debug!(resource, namespace, objects, "cache synced");
        if let Some(installation) = &self.installation {
            // This list is the response to all requests for one so far.
            installation.relist_requested(self.number).now_or_never();
            if !was_installed {
                tracing::info!(resource, namespace, "the type is installed");
                installation.changed();
            }
        }
    }

    /// Handles a list that the API server rejected because it does not serve the type: there are no objects.
    fn not_installed(&self, round: u64) {
        self.health.api_answered();
        // Before the objects are removed: their listeners must not find the type installed.
        let was_installed = self.health.watch_health().not_installed(self.number);
        self.cache
            .finish_relist(self.namespace.as_deref(), round, &HashSet::new());
        let (resource, namespace) = (self.resource, self.namespace_for_logs());
        if was_installed {
            tracing::info!(resource, namespace, "the type is not installed");
            if let Some(installation) = &self.installation {
                installation.changed();
            }
        }
    }

    /// Waits until a live read requests a list.
    async fn relist_requested(&self) {
        match &self.installation {
            Some(installation) => installation.relist_requested(self.number).await,
            None => std::future::pending().await,
        }
    }

    async fn relist_soon(&self) {
        self.relist_requested().await;
        tokio::time::sleep(RELIST_INTERVAL).await;
    }

    /// Returns the watched namespace, for logs.
    fn namespace_for_logs(&self) -> &str {
        self.namespace.as_deref().unwrap_or("all namespaces")
    }

    fn interrupted(&self, error: &watcher::Error) {
        let (resource, why) = (self.resource, interruption(self.resource, error));
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
        match decoded(&self.decode, object, Source::Watch) {
            Ok((identity, kept)) => self.cache.on_applied(identity, kept, round),
            Err(unreadable) => {
                let (key, object) = *unreadable;
                invalid.insert(key.clone());
                self.cache.on_invalid(&key, object);
            }
        }
    }
}

/// Delays before a watch is reopened: half a second, doubling to ten. After the control plane returns, the delay must
/// not be long. An overloaded control plane must not get requests from all watches at once.
///
/// The stream resets its backoff at every event, and there is one (`Init`) before each list. So it would repeat a
/// failing list twice a second indefinitely. Therefore only the reflector resets the backoff.
#[derive(Clone)]
struct Reopen {
    failures: Arc<AtomicU32>,
    salt: usize,
}

impl Reopen {
    /// Returns the delay after one more failure.
    fn delay(&self) -> Duration {
        let failures = self.failures.fetch_add(1, Ordering::SeqCst);
        let delay = Duration::from_millis(500).saturating_mul(1 << failures.min(10));
        // Watches that failed together do not return together.
        let spread =
            Duration::from_millis(37).saturating_mul(u32::try_from(self.salt % 16).unwrap_or(0));
        delay.min(Duration::from_secs(10)) + spread
    }

    /// Forgets the failures, after a response of the API server.
    fn forget_failures(&self) {
        self.failures.store(0, Ordering::SeqCst);
    }
}

impl Iterator for Reopen {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

impl Backoff for Reopen {
    fn reset(&mut self) {}
}
