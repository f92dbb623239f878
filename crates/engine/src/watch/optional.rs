//! Types that may not be installed. Their watches wait for the CRD, and only some kinds depend on them.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    decide::ResourceType,
    error::chain,
    kinds, messages,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use kube::{
    Api, Error,
    core::{ApiResource, DynamicObject},
    runtime::watcher,
};
use tokio::sync::Notify;

use super::{Decode, WatchManager, Writer, client, watch_config, watch_name};
use crate::{
    cache::Cache,
    guard::Guard,
    key::Key,
    watch_health::{Availability, WatchHealth},
};

/// A type that may not be installed, and the cached value of each object.
#[derive(Debug)]
pub struct OptionalType<T> {
    /// The type.
    pub resource: ResourceType,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// Reduces an object to its cached value. The error is the reason why a decision cannot use the object: others
    /// define the type, and may change it.
    pub decode: fn(&DynamicObject) -> Result<T, String>,
    /// Returns the index keys of an object.
    pub index: fn(&T) -> Vec<String>,
}

/// An object of a type that may not be installed, as decisions see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence<T> {
    /// The API server does not serve the type.
    NotInstalled,
    /// The object exists and cannot be used, or its watch does not work.
    Unreadable {
        /// The error, for the status of the object that needs this one.
        why: String,
    },
    /// The type is installed. The cache does not have the object.
    Absent,
    /// The object exists.
    Present(Arc<T>),
}

/// A cache of objects of a type that may not be installed. Clones share it.
///
/// # Guarantees
/// - A type that is not installed blocks nobody. A CRD that is installed later is found within 30 s.
/// - A watch of an installed type that does not work blocks only the kinds that depend on the type
///   ([`crate::Controller::depends_on`]).
/// - An object that cannot be decoded differs from an absent one.
///
/// # Caveats
/// As for every cache, absence is no evidence for a step that cannot be undone:
/// [`api::decide::Decision::confirm`] reads from the API server.
pub struct OptionalCache<T> {
    objects: Cache<T>,
    installation: Arc<Installation>,
}

impl<T> Clone for OptionalCache<T> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            installation: Arc::clone(&self.installation),
        }
    }
}

impl<T> fmt::Debug for OptionalCache<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Optional{:?}", self.objects)
    }
}

impl<T: Send + Sync + 'static> OptionalCache<T> {
    /// Returns the object with this key, or the reason why there is none.
    #[must_use]
    pub fn get(&self, key: &Key) -> Presence<T> {
        match self.availability(key.namespace.as_deref()) {
            Availability::NotInstalled => return Presence::NotInstalled,
            Availability::Unreadable { why } => return Presence::Unreadable { why },
            Availability::Installed => {}
        }
        if let Some(invalid) = self.objects.invalid(key) {
            return Presence::Unreadable { why: invalid.error };
        }
        match self.objects.get(key) {
            Some(object) => Presence::Present(object),
            None => Presence::Absent,
        }
    }

    /// Returns whether the objects of a namespace can be read. Without a namespace, it returns this for the type.
    #[must_use]
    pub fn availability(&self, namespace: Option<&str>) -> Availability {
        self.installation.availability(namespace)
    }

    /// Returns the cache of the readable objects, for listeners and indexes.
    ///
    /// # Caveats
    /// The cache is empty while the type is not installed. Call [`OptionalCache::availability`] first.
    #[must_use]
    pub fn objects(&self) -> &Cache<T> {
        &self.objects
    }

    /// Returns the numbers of the watches.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.installation.watches.iter().map(|watch| watch.number)
    }

    /// Calls `listener` each time the type was installed or removed.
    pub(crate) fn on_installation_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        let listeners = &self.installation.listeners;
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }
}

#[cfg(test)]
impl<T> OptionalCache<T> {
    /// Reports an installation or a removal, for tests without watches.
    pub(crate) fn report_installation_change(&self) {
        self.installation.changed();
    }
}

/// Whether the API server serves a type, as its watches have found.
pub(crate) struct Installation {
    health: WatchHealth,
    watches: Vec<NumberedWatch>,
    listeners: Mutex<Vec<Listener>>,
}

/// A function that is called when a type was installed or removed.
type Listener = Box<dyn Fn() + Send + Sync>;

/// A watch of an optional type.
struct NumberedWatch {
    /// The watched namespace, or `None` for all.
    namespace: Option<String>,
    number: usize,
    relist: Notify,
}

impl Installation {
    fn availability(&self, namespace: Option<&str>) -> Availability {
        let is_of = |watch: &&NumberedWatch| {
            let is_everywhere = watch.namespace.is_none() || namespace.is_none();
            is_everywhere || watch.namespace.as_deref() == namespace
        };
        match self.watches.iter().find(is_of) {
            Some(watch) => self.health.availability(watch.number),
            None => Availability::Unreadable {
                why: format!("namespace '{}' is not watched", namespace.unwrap_or("")),
            },
        }
    }

    /// Compares a live list with the state of the watch. `is_served` is whether the API server served the list.
    /// Returns whether the type is installed.
    ///
    /// # Errors
    /// If the two differ. The watch then lists again, and only its list changes the state. Otherwise one API server
    /// that does not know a new CRD yet could change the state, and no event would correct it.
    pub(crate) fn compare(&self, namespace: Option<&str>, is_served: bool) -> Result<bool, String> {
        match (self.availability(namespace), is_served) {
            (Availability::Installed, true) => Ok(true),
            (Availability::NotInstalled, false) => Ok(false),
            (Availability::Unreadable { why }, _) => Err(why),
            (Availability::Installed, false) => {
                self.request_relist();
                Err("the API server does not serve the type any more".to_owned())
            }
            (Availability::NotInstalled, true) => {
                self.request_relist();
                Err("the type was installed a moment ago".to_owned())
            }
        }
    }

    fn request_relist(&self) {
        for watch in &self.watches {
            watch.relist.notify_one();
        }
    }

    /// Waits until a list of this watch is requested.
    pub(super) async fn relist_requested(&self, number: usize) {
        match self.watches.iter().find(|watch| watch.number == number) {
            Some(watch) => watch.relist.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Notifies the listeners that the type was installed or removed.
    pub(super) fn changed(&self) {
        let listeners = self.listeners.lock();
        for listener in listeners.unwrap_or_else(PoisonError::into_inner).iter() {
            listener();
        }
    }
}

/// A request that the API server rejected with 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingApi {
    /// A list. A collection of an installed type exists in each namespace, so the type is not installed. An API server
    /// that is starting responds with 503.
    Listed,
    /// A watch.
    Watched,
}

/// Returns the request that an error of a watch is about, if the API server does not serve it.
pub(super) fn missing_api(error: &watcher::Error) -> Option<MissingApi> {
    let is_missing = |error: &Error| matches!(error, Error::Api(status) if status.code == 404);
    match error {
        watcher::Error::InitialListFailed(error) if is_missing(error) => Some(MissingApi::Listed),
        watcher::Error::WatchStartFailed(error) if is_missing(error) => Some(MissingApi::Watched),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchError(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// Returns the message for an interrupted watch. It names the CRD of ours that is not installed.
pub(super) fn interruption(plural: &str, error: &watcher::Error) -> String {
    if missing_api(error).is_none() {
        return chain(error);
    }
    kinds::with_plural(plural).map_or_else(
        || format!("the API server does not serve {plural}"),
        |row| messages::crd_missing(row.crd_name),
    )
}

impl WatchManager {
    /// Watches a type that may not be installed, a namespaced one in the manager's scope.
    ///
    /// # Caveats
    /// The operator needs permission to list and watch the type. The API server checks permissions first: without
    /// them, a type that is not installed is unreadable.
    pub fn optional<T: Send + Sync + 'static>(
        &mut self,
        optional: OptionalType<T>,
    ) -> OptionalCache<T> {
        let OptionalType {
            resource,
            is_namespaced,
            decode,
            index,
        } = optional;
        let namespaces = if is_namespaced {
            self.namespaces()
        } else {
            vec![None]
        };
        let health = self.health.watch_health().clone();
        let add = |namespace: Option<String>| {
            let name = watch_name(resource.plural, namespace.as_deref());
            let number = health.add_optional(&name, namespace.as_deref());
            NumberedWatch {
                namespace,
                number,
                relist: Notify::new(),
            }
        };
        let installation = Arc::new(Installation {
            watches: namespaces.into_iter().map(add).collect(),
            health: health.clone(),
            listeners: Mutex::default(),
        });
        let (cache, decode) = (Cache::new(resource.plural, index), guarded(decode));
        let api_resource = ApiResource {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            api_version: resource.api_version(),
            kind: resource.kind.to_owned(),
            plural: resource.plural.to_owned(),
        };
        for NumberedWatch {
            namespace, number, ..
        } in &installation.watches
        {
            let client = client::reporting(&self.client, &health, *number);
            let api: Api<Guard<DynamicObject>> = match namespace {
                Some(name) => Api::namespaced_with(client, name, &api_resource),
                None => Api::all_with(client, &api_resource),
            };
            let namespace = namespace.clone();
            let mut reflector =
                self.reflector(*number, resource.plural, namespace, &decode, &cache);
            reflector.installation = Some(Arc::clone(&installation));
            self.add_task(api, watch_config(None, None), reflector);
        }
        let writer = Writer {
            cache: cache.clone(),
            decode,
            installation: Some(Arc::clone(&installation)),
        };
        self.keep_writer((resource.group, resource.plural), writer);
        OptionalCache {
            objects: cache,
            installation,
        }
    }
}

/// Returns a decoder that cannot end the process, with bounded errors.
fn guarded<T: 'static>(
    decode: fn(&DynamicObject) -> Result<T, String>,
) -> Decode<DynamicObject, T> {
    Arc::new(move |object, _source| {
        // Anyone may write such an object. A panic would end the process, and again after each restart.
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&object)));
        let decoded = decoded.unwrap_or_else(|_panic| Err("its decoder panicked".to_owned()));
        decoded.map_err(|error| bounded(&error, MAX_MESSAGE_CHARS))
    })
}

#[cfg(test)]
mod tests;
