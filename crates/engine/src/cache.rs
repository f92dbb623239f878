//! Caches of the last seen objects of one type: reduced values, found by key or by an index.
//!
//! We do not use kube's `Store`: it holds whole objects, has no index, cannot take the response of our own write, and
//! a relist doubles it (ADR 4).

mod bounds;
mod index;
mod packing;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use kube::core::ObjectMeta;

pub use self::{bounds::Bounds, packing::Packing};
use self::{index::Index, packing::Kept};
use crate::key::Key;

/// A change of a cached object.
#[derive(Debug)]
pub struct Change<'a, T> {
    /// Key of the object.
    pub key: &'a Key,
    /// The object before the change, or `None` if it is new.
    pub old: Option<&'a Arc<T>>,
    /// The object after the change, or `None` if it was deleted.
    pub new: Option<&'a Arc<T>>,
}

type Listener<T> = Box<dyn Fn(&Change<'_, T>) + Send + Sync>;

/// An object that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidObject {
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub version: String,
    /// Its generation.
    pub generation: i64,
    /// The decoding error.
    pub error: String,
}

/// Identity of one version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) version: u64,
}

impl Identity {
    /// Returns the identity of an object. Versions are numbers that grow within a resource (KEP-5504; true of every
    /// released API server). A version that is not a number counts as 0: it is always stored and never newer.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            key: Key::of(meta),
            uid: meta.uid.clone().unwrap_or_default(),
            version: version_of(meta),
        }
    }
}

/// Returns the version of an object as a number.
pub(crate) fn version_of(meta: &ObjectMeta) -> u64 {
    parse_version(meta.resource_version.as_deref())
}

/// Returns a resourceVersion as a number, or zero if it is none.
pub(crate) fn parse_version(version: Option<&str>) -> u64 {
    match version.map(str::parse) {
        Some(Ok(version)) => version,
        Some(Err(_)) | None => 0,
    }
}

/// Source of a cached object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provenance {
    /// The list of this round, or the watch after it, delivered the object. If only an older round delivered it, the
    /// object was deleted.
    Seen(u64),
    /// We wrote the object, and no list or watch has delivered it yet. The number is the last list that had begun when
    /// the response arrived.
    Written(u64),
}

struct Entry<T> {
    uid: String,
    version: u64,
    known: Provenance,
    object: Kept<T>,
}

struct State<T> {
    entries: HashMap<Key, Entry<T>>,
    index: Index,
    invalid: BTreeMap<Key, InvalidObject>,
    /// UIDs of objects that we deleted, with their namespaces, until their deletion events arrive. Without them, an
    /// older event would bring the objects back.
    removed: HashMap<String, Option<String>>,
    /// The highest version in an event, by the namespace of the watch, or `None` for a watch of all namespaces.
    /// Watches do not wait for each other. A number for each namespace of an object would stay after its namespace.
    latest: HashMap<Option<String>, u64>,
    /// The last list that began.
    begun: u64,
}

impl<T> State<T> {
    fn note_version(&mut self, identity: &Identity) {
        let namespace = &identity.key.namespace;
        let watch = namespace
            .clone()
            .filter(|_| self.latest.contains_key(namespace));
        let latest = self.latest.entry(watch).or_default();
        *latest = (*latest).max(identity.version);
    }

    /// Returns the entries with this index key, in the order of their keys.
    fn entries_of(&self, index_key: &str) -> impl Iterator<Item = (&Key, &Entry<T>)> {
        let keys = self.index.keys(index_key);
        keys.filter_map(|key| Some((key, self.entries.get(key)?)))
    }

    /// Returns the highest version that the watch of this key has delivered.
    fn latest_of(&self, key: &Key) -> u64 {
        let own = self.latest.get(&key.namespace);
        let latest = own.or_else(|| self.latest.get(&None::<String>));
        latest.copied().unwrap_or(0)
    }
}

/// A cache of the last seen objects of one type. Clones share it.
///
/// # Guarantees
/// - A version never goes back: an event that is older than the cached object is dropped, also if it is about an
///   earlier object of the same name.
/// - The response of a write is visible at once (read your writes).
///
/// # Caveats
/// Listeners run inside the watch. They must be quick, and must not call the methods that write to this cache.
pub struct Cache<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: &'static str,
    index: fn(&T) -> Vec<String>,
    packing: OnceLock<Packing<T>>,
    bounds: OnceLock<Bounds>,
    state: Mutex<State<T>>,
    listeners: Mutex<Vec<Listener<T>>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Cache({})", self.shared.name)
    }
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// Returns an empty cache of resource `name`. `index` returns the index keys of an object, for [`Cache::by_index`].
    #[must_use]
    pub fn new(name: &'static str, index: fn(&T) -> Vec<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                index,
                packing: OnceLock::new(),
                bounds: OnceLock::new(),
                state: Mutex::new(State {
                    entries: HashMap::new(),
                    index: Index::default(),
                    invalid: BTreeMap::new(),
                    removed: HashMap::new(),
                    latest: HashMap::new(),
                    begun: 0,
                }),
                listeners: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Returns the plural name of the cached resource.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    /// Calls `listener` at every change from now on.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        lock(&self.shared.listeners).push(Box::new(listener));
    }

    /// Compresses objects that do not change any more. Only the first call on a cache has an effect.
    pub fn pack(&self, packing: Packing<T>) {
        self.shared.packing.get_or_init(|| packing);
    }

    /// Bounds the number of objects. The newest are kept. Only the first call on a cache has an effect.
    pub fn bound(&self, bounds: Bounds) {
        self.shared.bounds.get_or_init(|| bounds);
    }

    /// Returns the object with this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        let state = lock(&self.shared.state);
        state.entries.get(key).and_then(|entry| self.whole(entry))
    }

    /// Returns whether the object with this key is packed. It costs less than [`Cache::get`], which unpacks the object.
    pub(crate) fn is_packed(&self, key: &Key) -> bool {
        let state = lock(&self.shared.state);
        let entry = state.entries.get(key);
        entry.is_some_and(|entry| entry.object.is_packed())
    }

    fn whole(&self, entry: &Entry<T>) -> Option<Arc<T>> {
        entry.object.whole(self.shared.packing.get())
    }

    /// Returns the keys and UIDs of the objects with this index key.
    pub(crate) fn uids(&self, index_key: &str) -> Vec<(Key, String)> {
        let state = lock(&self.shared.state);
        let entries = state.entries_of(index_key);
        entries
            .map(|(key, entry)| (key.clone(), entry.uid.clone()))
            .collect()
    }

    /// Returns the key and UID of the object with this key.
    pub(crate) fn uid(&self, key: &Key) -> Option<(Key, String)> {
        let state = lock(&self.shared.state);
        let entry = state.entries.get(key)?;
        Some((key.clone(), entry.uid.clone()))
    }

    /// Returns the objects with this index key, in the order of their keys.
    #[must_use]
    pub fn by_index(&self, index_key: &str) -> Vec<Arc<T>> {
        let state = lock(&self.shared.state);
        let entries = state.entries_of(index_key);
        entries.filter_map(|(_, entry)| self.whole(entry)).collect()
    }

    /// Returns the keys of the objects with this index key, in order.
    #[must_use]
    pub fn keys_of(&self, index_key: &str) -> Vec<Key> {
        let state = lock(&self.shared.state);
        state.index.keys(index_key).cloned().collect()
    }

    /// Returns the same as [`Cache::keys_of`], without the keys of packed objects.
    #[must_use]
    pub fn active_keys_of(&self, index_key: &str) -> Vec<Key> {
        let state = lock(&self.shared.state);
        let active = state
            .entries_of(index_key)
            .filter(|(_, entry)| !entry.object.is_packed());
        active.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the objects with this index key that are not packed, and the keys and UIDs of the packed ones. It unpacks
    /// nothing, so it is cheap also with thousands of finished objects.
    #[must_use]
    pub fn split_by_rest(&self, index_key: &str) -> (Vec<Arc<T>>, Vec<(Key, String)>) {
        let state = lock(&self.shared.state);
        let (mut active, mut packed) = (Vec::new(), Vec::new());
        for (key, entry) in state.entries_of(index_key) {
            match &entry.object {
                Kept::Whole(object) => active.push(Arc::clone(object)),
                Kept::Packed(_) => packed.push((key.clone(), entry.uid.clone())),
            }
        }
        (active, packed)
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.shared.state).entries.len()
    }

    /// Returns whether the cache has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all keys, including those of undecodable objects.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let state = lock(&self.shared.state);
        state
            .entries
            .keys()
            .chain(state.invalid.keys())
            .cloned()
            .collect()
    }

    /// Folds over all objects that are not packed, without copying them.
    pub fn fold_active<A>(&self, start: A, fold: impl FnMut(A, &T) -> A) -> A {
        let state = lock(&self.shared.state);
        let entries = state.entries.values();
        entries
            .filter_map(|entry| entry.object.active())
            .fold(start, fold)
    }

    /// Returns the undecodable object with this key, if there is one.
    #[must_use]
    pub fn invalid(&self, key: &Key) -> Option<InvalidObject> {
        lock(&self.shared.state).invalid.get(key).cloned()
    }

    /// Returns the number of undecodable objects.
    #[must_use]
    pub fn invalid_count(&self) -> usize {
        lock(&self.shared.state).invalid.len()
    }

    /// Handles an event of the watch: the object exists.
    pub(crate) fn on_applied(&self, identity: Identity, object: T, round: u64) {
        let mut state = lock(&self.shared.state);
        state.note_version(&identity);
        state.invalid.remove(&identity.key);
        if state.removed.contains_key(&identity.uid) {
            return;
        }
        if let Some(entry) = state.entries.get_mut(&identity.key)
            && entry.version >= identity.version
            && identity.version > 0
        {
            // Without the drop, a late event of an earlier object of this name would replace the one that we created
            // since. The deletion of the earlier object would then leave nothing.
            if entry.uid == identity.uid {
                // The object is listed now. A later list without it means that it was deleted.
                entry.known = match entry.known {
                    Provenance::Seen(before) => Provenance::Seen(before.max(round)),
                    Provenance::Written(_) => Provenance::Seen(round),
                };
            }
            return;
        }
        self.put(state, identity, object, Provenance::Seen(round));
    }

    /// Handles the response of our own write.
    ///
    /// An unknown object is stored only if no event is newer. Otherwise it was created and deleted again, and would
    /// stay in the cache indefinitely.
    pub(crate) fn on_own_write(&self, identity: Identity, object: T) {
        let as_of = identity.version;
        self.take_over(identity, object, as_of);
    }

    /// Handles an object of a live list, which shows the state at the version `as_of`. An unknown object is stored
    /// only if no event is newer than the list.
    pub(crate) fn listed_live(&self, identity: Identity, object: T, as_of: u64) {
        // Accept the version of the newest event, too: the watch may be in the middle of a relist.
        self.take_over(identity, object, as_of.saturating_add(1));
    }

    fn take_over(&self, identity: Identity, object: T, as_of: u64) {
        let state = lock(&self.shared.state);
        let known = match state.entries.get(&identity.key) {
            // This also holds if the cached object is another one of the same name. Our last write released the old
            // object, someone recreated it, and its watch event came before our response.
            Some(entry) if entry.version >= identity.version => return,
            Some(entry) if entry.uid == identity.uid => entry.known,
            None if as_of <= state.latest_of(&identity.key) => return,
            // No list has shown it yet, so it must survive a list that began before the write.
            Some(_) | None => Provenance::Written(state.begun),
        };
        self.put(state, identity, object, known);
    }

    fn put(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        identity: Identity,
        object: T,
        known: Provenance,
    ) {
        let Identity { key, uid, version } = identity;
        let packing = self.shared.packing.get();
        let object = Arc::new(object);
        let entry = Entry {
            uid,
            version,
            known,
            object: Kept::new(&object, packing),
        };
        let old = state.entries.insert(key.clone(), entry);
        let old = old.and_then(|entry| entry.object.whole(packing));
        if let Some(old) = &old {
            state.index.remove(&(self.shared.index)(old), &key);
        }
        let index_keys = (self.shared.index)(&object);
        state.index.add(&index_keys, &key);
        if let Some(bounds) = self.shared.bounds.get() {
            for oldest in bounds.exceeding(&state, &index_keys) {
                self.forget(&mut state, &oldest);
            }
        }
        drop(state);
        self.notify(&Change {
            key: &key,
            old: old.as_ref(),
            new: Some(&object),
        });
    }

    /// Handles a DELETED event of the watch: the object was deleted or no longer has the label of the watch. The event
    /// is ignored if our own later write restored the label.
    pub(crate) fn on_deleted(&self, identity: &Identity) {
        let mut state = lock(&self.shared.state);
        state.note_version(identity);
        state.removed.remove(&identity.uid);
        let is_newer =
            |entry: &Entry<T>| entry.uid == identity.uid && entry.version > identity.version;
        if identity.version > 0 && state.entries.get(&identity.key).is_some_and(is_newer) {
            return;
        }
        let key = &identity.key;
        let is_it = |invalid: &InvalidObject| invalid.uid == identity.uid;
        if state.invalid.get(key).is_some_and(is_it) {
            state.invalid.remove(key);
            if !state.entries.contains_key(key) {
                drop(state);
                return self.notify_without_value(key);
            }
        }
        self.take(state, key, Some(&identity.uid));
    }

    /// Handles the response of our own delete: the object is removed at once.
    pub(crate) fn removed(&self, key: &Key, uid: &str) {
        let mut state = lock(&self.shared.state);
        if state.entries.get(key).is_some_and(|entry| entry.uid == uid) {
            state.removed.insert(uid.to_owned(), key.namespace.clone());
            self.take(state, key, Some(uid));
        }
    }

    /// Handles an object that could not be decoded. Its cached value is no longer valid.
    pub(crate) fn on_invalid(&self, key: &Key, invalid: InvalidObject) {
        let mut state = lock(&self.shared.state);
        let is_new = state.invalid.insert(key.clone(), invalid.clone()).as_ref() != Some(&invalid);
        if state.entries.contains_key(key) {
            self.take(state, key, None);
        } else if is_new {
            drop(state);
            self.notify_without_value(key);
        }
    }

    /// Records that the watch of `namespace`, or of all namespaces, is about to request a list. The list has the newest
    /// state of the server. So it contains every object that was written and acknowledged by now, unless the object was
    /// deleted.
    pub(crate) fn begin_relist(&self, namespace: Option<&str>, round: u64) {
        let mut state = lock(&self.shared.state);
        state.begun = state.begun.max(round);
        state
            .latest
            .entry(namespace.map(str::to_owned))
            .or_default();
    }

    /// Handles the end of a list. Removes the objects in its scope (`namespace`, or everything) that this round did
    /// not deliver: they were deleted.
    pub(crate) fn finish_relist(
        &self,
        namespace: Option<&str>,
        round: u64,
        invalid: &HashSet<Key>,
    ) {
        let is_in_reach = |key: &Key| namespace.is_none() || key.namespace.as_deref() == namespace;
        let mut state = lock(&self.shared.state);
        state
            .removed
            .retain(|_, home| namespace.is_some() && home.as_deref() != namespace);
        let mut no_longer_invalid = Vec::new();
        state.invalid.retain(|key, _| {
            let is_kept = !is_in_reach(key) || invalid.contains(key);
            if !is_kept {
                no_longer_invalid.push(key.clone());
            }
            is_kept
        });
        // An object that we wrote may be too new for this list, but not if the list began later or a newer event came.
        let is_gone = |key: &Key, entry: &Entry<T>| match entry.known {
            Provenance::Seen(last) => last < round,
            Provenance::Written(begun) => begun < round || entry.version <= state.latest_of(key),
        };
        let gone: Vec<Key> = state
            .entries
            .iter()
            .filter(|(key, entry)| is_in_reach(key) && is_gone(key, entry))
            .map(|(key, _)| key.clone())
            .collect();
        for (key, entry) in &mut state.entries {
            if matches!(entry.known, Provenance::Written(_)) && is_in_reach(key) {
                entry.known = Provenance::Seen(round);
            }
        }
        drop(state);
        for key in gone {
            self.take(lock(&self.shared.state), &key, None);
        }
        for key in no_longer_invalid {
            self.notify_without_value(&key);
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State<T>>, key: &Key, uid: Option<&str>) {
        if uid.is_some_and(|uid| state.entries.get(key).is_none_or(|entry| entry.uid != uid)) {
            return;
        }
        let Some(old) = self.forget(&mut state, key) else {
            return;
        };
        drop(state);
        self.notify(&Change {
            key,
            old: old.as_ref(),
            new: None,
        });
    }

    /// Removes the entry of a key. Returns `None` if there is no entry.
    fn forget(&self, state: &mut State<T>, key: &Key) -> Option<Option<Arc<T>>> {
        let entry = state.entries.remove(key)?;
        let old = self.whole(&entry);
        if let Some(old) = &old {
            state.index.remove(&(self.shared.index)(old), key);
        }
        Some(old)
    }

    /// Notifies the listeners of an object without a cached value: it became undecodable, or an undecodable object was
    /// deleted.
    fn notify_without_value(&self, key: &Key) {
        self.notify(&Change {
            key,
            old: None,
            new: None,
        });
    }

    fn notify(&self, change: &Change<'_, T>) {
        for listener in lock(&self.shared.listeners).iter() {
            listener(change);
        }
    }
}

/// Locks a mutex. A panic of a listener must not break the cache.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
