//! What was last seen of a type of objects: thin values, found by key or by an index.
//!
//! Why not kube's `Store`: it holds whole objects, has no index, cannot take the answer of our own
//! write, and a relist doubles it (ADR 4).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::core::ObjectMeta;

use crate::key::Key;

/// A change of a cached object.
#[derive(Debug)]
pub struct Change<'a, T> {
    /// Which.
    pub key: &'a Key,
    /// What it was; `None` if it is new.
    pub old: Option<&'a Arc<T>>,
    /// What it is; `None` if it is gone.
    pub new: Option<&'a Arc<T>>,
}

type Listener<T> = Box<dyn Fn(&Change<'_, T>) + Send + Sync>;

/// An object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub version: String,
    /// Its generation.
    pub generation: i64,
    /// What does not fit.
    pub error: String,
}

/// What identifies a version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) version: u64,
}

impl Identity {
    /// Versions are numbers that grow within a resource (KEP-5504; true of every released API
    /// server). One that is no number counts as 0: it is always taken and never newer.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            key: Key::of(meta),
            uid: meta.uid.clone().unwrap_or_default(),
            version: version_of(meta),
        }
    }
}

/// The version of an object as a number.
pub(crate) fn version_of(meta: &ObjectMeta) -> u64 {
    match meta.resource_version.as_deref().map(str::parse) {
        Some(Ok(version)) => version,
        Some(Err(_)) | None => 0,
    }
}

/// By what an object is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// This listing, or the watch behind it, has shown it; what an older one showed only is gone.
    Seen(u64),
    /// We wrote it, and nobody has shown it yet. The last listing that had begun when the answer came.
    Written(u64),
}

struct Slot<T> {
    uid: String,
    version: u64,
    known: Known,
    object: Arc<T>,
}

struct State<T> {
    slots: HashMap<Key, Slot<T>>,
    index: HashMap<String, BTreeSet<Key>>,
    poison: BTreeMap<Key, Poison>,
    /// UIDs that we deleted, with their namespaces, and whose deletion event has not come yet: an older event must not
    /// bring them back.
    removed: HashMap<String, Option<String>>,
    /// The highest version that an event carried, by namespace: each may have a watch of its own,
    /// and these do not wait for each other.
    latest: HashMap<Option<String>, u64>,
    /// The last listing that began.
    begun: u64,
}

impl<T> State<T> {
    fn came(&mut self, identity: &Identity) {
        let latest = self
            .latest
            .entry(identity.key.namespace.clone())
            .or_default();
        *latest = (*latest).max(identity.version);
    }

    fn latest_of(&self, key: &Key) -> u64 {
        self.latest.get(&key.namespace).copied().unwrap_or(0)
    }
}

/// What was last seen of a type of objects. Clones share it.
///
/// # Guarantees
/// - A version never goes back: an event that is older than what is known is dropped.
/// - The answer of a write is visible at once (read your writes).
///
/// # Caveats
/// Listeners run inside the watch: they must be quick and must not call this cache's writers.
pub struct Cache<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: &'static str,
    index: fn(&T) -> Vec<String>,
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
    /// An empty cache of resource `name`; `index` gives the words by which [`Cache::find`] finds
    /// an object.
    #[must_use]
    pub fn new(name: &'static str, index: fn(&T) -> Vec<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                index,
                state: Mutex::new(State {
                    slots: HashMap::new(),
                    index: HashMap::new(),
                    poison: BTreeMap::new(),
                    removed: HashMap::new(),
                    latest: HashMap::new(),
                    begun: 0,
                }),
                listeners: Mutex::new(Vec::new()),
            }),
        }
    }

    /// The plural name of what it holds.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    /// Calls `listener` at every change from now on.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        lock(&self.shared.listeners).push(Box::new(listener));
    }

    /// The object of this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        lock(&self.shared.state)
            .slots
            .get(key)
            .map(|slot| Arc::clone(&slot.object))
    }

    /// The objects with this word in the index, in the order of their keys.
    #[must_use]
    pub fn find(&self, word: &str) -> Vec<Arc<T>> {
        self.find_keyed(word)
            .into_iter()
            .map(|(_, object)| object)
            .collect()
    }

    /// The same, with their keys.
    #[must_use]
    pub fn find_keyed(&self, word: &str) -> Vec<(Key, Arc<T>)> {
        let state = lock(&self.shared.state);
        let keys = state
            .index
            .get(word)
            .into_iter()
            .flat_map(|keys| keys.iter());
        keys.filter_map(|key| Some((key.clone(), Arc::clone(&state.slots.get(key)?.object))))
            .collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.shared.state).slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All keys, also those of objects that cannot be read.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let state = lock(&self.shared.state);
        state
            .slots
            .keys()
            .chain(state.poison.keys())
            .cloned()
            .collect()
    }

    /// Folds over all objects without copying them.
    pub fn fold<A>(&self, start: A, mut fold: impl FnMut(A, &T) -> A) -> A {
        let state = lock(&self.shared.state);
        state
            .slots
            .values()
            .fold(start, |sum, slot| fold(sum, &slot.object))
    }

    /// What could not be read under this key.
    #[must_use]
    pub fn poison(&self, key: &Key) -> Option<Poison> {
        lock(&self.shared.state).poison.get(key).cloned()
    }

    /// How many objects could not be read.
    #[must_use]
    pub fn poisoned(&self) -> usize {
        lock(&self.shared.state).poison.len()
    }

    /// An event of the watch: the object is there.
    pub(crate) fn seen(&self, identity: Identity, object: T, round: u64) {
        let mut state = lock(&self.shared.state);
        state.came(&identity);
        state.poison.remove(&identity.key);
        if state.removed.contains_key(&identity.uid) {
            return;
        }
        if let Some(slot) = state.slots.get_mut(&identity.key)
            && slot.uid == identity.uid
            && slot.version >= identity.version
            && identity.version > 0
        {
            // Listed now, so the next listing may miss it.
            slot.known = match slot.known {
                Known::Seen(before) => Known::Seen(before.max(round)),
                Known::Written(_) => Known::Seen(round),
            };
            return;
        }
        self.put(state, identity, object, Known::Seen(round));
    }

    /// The answer of a write of ours.
    ///
    /// An object that is not known is taken only if no event is newer: otherwise it was created
    /// and deleted again, and would stay for ever.
    pub(crate) fn written(&self, identity: Identity, object: T) {
        let state = lock(&self.shared.state);
        let known = match state.slots.get(&identity.key) {
            // Also if what is known now is another of the same name: our last write let the old one go,
            // someone made it again, and the watch was faster than our answer.
            Some(slot) if slot.version >= identity.version => return,
            Some(slot) if slot.uid == identity.uid => slot.known,
            None if identity.version <= state.latest_of(&identity.key) => return,
            // Not yet listed by anyone: it must survive a listing that began before the write.
            Some(_) | None => Known::Written(state.begun),
        };
        self.put(state, identity, object, known);
    }

    fn put(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        identity: Identity,
        object: T,
        known: Known,
    ) {
        let Identity { key, uid, version } = identity;
        let object = Arc::new(object);
        let words = (self.shared.index)(&object);
        let slot = Slot {
            uid,
            version,
            known,
            object: Arc::clone(&object),
        };
        let old = state.slots.insert(key.clone(), slot);
        if let Some(old) = &old {
            unindex(&mut state.index, &(self.shared.index)(&old.object), &key);
        }
        for word in words {
            state.index.entry(word).or_default().insert(key.clone());
        }
        drop(state);
        self.tell(&Change {
            key: &key,
            old: old.as_ref().map(|slot| &slot.object),
            new: Some(&object),
        });
    }

    /// An event of the watch: the object is gone, or carries no longer the label that the watch is for.
    /// One that was given its label back by a write of ours is newer than that.
    pub(crate) fn gone(&self, identity: &Identity) {
        let mut state = lock(&self.shared.state);
        state.came(identity);
        state.removed.remove(&identity.uid);
        let is_newer = |slot: &Slot<T>| slot.uid == identity.uid && slot.version > identity.version;
        if identity.version > 0 && state.slots.get(&identity.key).is_some_and(is_newer) {
            return;
        }
        if state
            .poison
            .get(&identity.key)
            .is_some_and(|poison| poison.uid == identity.uid)
        {
            state.poison.remove(&identity.key);
        }
        self.take(state, &identity.key, Some(&identity.uid));
    }

    /// The answer of a delete of ours: the object is gone at once.
    pub(crate) fn removed(&self, key: &Key, uid: &str) {
        let mut state = lock(&self.shared.state);
        if state.slots.get(key).is_some_and(|slot| slot.uid == uid) {
            state.removed.insert(uid.to_owned(), key.namespace.clone());
            self.take(state, key, Some(uid));
        }
    }

    /// An object that could not be read. What was known of it is not true any more.
    pub(crate) fn poisoned_by(&self, key: &Key, poison: Poison) {
        let mut state = lock(&self.shared.state);
        let news = state.poison.insert(key.clone(), poison.clone()).as_ref() != Some(&poison);
        if state.slots.contains_key(key) {
            self.take(state, key, None);
        } else if news {
            drop(state);
            self.tell(&Change {
                key,
                old: None,
                new: None,
            });
        }
    }

    /// A listing is about to be asked for. It is the newest that the server has, so it shows whatever was
    /// written and answered by now, or that is gone.
    pub(crate) fn listing(&self, round: u64) {
        let mut state = lock(&self.shared.state);
        state.begun = state.begun.max(round);
    }

    /// A listing is complete: what is in its reach (`namespace`, or everything) and was not seen
    /// in this round is gone.
    pub(crate) fn listed(&self, namespace: Option<&str>, round: u64, poison: &HashSet<Key>) {
        let is_in_reach = |key: &Key| namespace.is_none() || key.namespace.as_deref() == namespace;
        let mut state = lock(&self.shared.state);
        state
            .removed
            .retain(|_, home| namespace.is_some() && home.as_deref() != namespace);
        state
            .poison
            .retain(|key, _| !is_in_reach(key) || poison.contains(key));
        // What we wrote may be too new for this listing; not if it began later, or a later event has come since.
        let is_gone = |key: &Key, slot: &Slot<T>| match slot.known {
            Known::Seen(last) => last < round,
            Known::Written(begun) => begun < round || slot.version <= state.latest_of(key),
        };
        let gone: Vec<Key> = state
            .slots
            .iter()
            .filter(|(key, slot)| is_in_reach(key) && is_gone(key, slot))
            .map(|(key, _)| key.clone())
            .collect();
        for (key, slot) in &mut state.slots {
            if matches!(slot.known, Known::Written(_)) && is_in_reach(key) {
                slot.known = Known::Seen(round);
            }
        }
        drop(state);
        for key in gone {
            self.take(lock(&self.shared.state), &key, None);
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State<T>>, key: &Key, uid: Option<&str>) {
        if uid.is_some_and(|uid| state.slots.get(key).is_none_or(|slot| slot.uid != uid)) {
            return;
        }
        let Some(old) = state.slots.remove(key) else {
            return;
        };
        unindex(&mut state.index, &(self.shared.index)(&old.object), key);
        drop(state);
        self.tell(&Change {
            key,
            old: Some(&old.object),
            new: None,
        });
    }

    fn tell(&self, change: &Change<'_, T>) {
        for listener in lock(&self.shared.listeners).iter() {
            listener(change);
        }
    }
}

fn unindex(index: &mut HashMap<String, BTreeSet<Key>>, words: &[String], key: &Key) {
    for word in words {
        if let Some(keys) = index.get_mut(word) {
            keys.remove(key);
            if keys.is_empty() {
                index.remove(word);
            }
        }
    }
}

/// A panic of a listener must not take the cache with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Cache<String> {
        Cache::new("things", |text| vec![text.clone()])
    }

    fn identity(name: &str, uid: &str, version: u64) -> Identity {
        Identity {
            key: Key::new("n", name),
            uid: uid.to_owned(),
            version,
        }
    }

    fn get(cache: &Cache<String>, name: &str) -> Option<String> {
        cache.get(&Key::new("n", name)).map(|text| (*text).clone())
    }

    #[test]
    fn an_older_event_does_not_undo_an_own_write() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "five".into(), 1);
        cache.written(identity("a", "1", 8), "eight".into());
        cache.seen(identity("a", "1", 7), "seven".into(), 1);
        assert_eq!(get(&cache, "a").as_deref(), Some("eight"));
        assert!(cache.find("five").is_empty());
        assert_eq!(cache.find("eight").len(), 1);
    }

    /// `retained/watch-statefulsets=stale-2500`: what a Tenant left and its successor took back was not
    /// there for a moment, when the watch told late that it had lost its label.
    #[test]
    fn a_label_that_was_lost_before_our_write_gave_it_back_takes_nothing() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "ours".into(), 1);
        cache.written(identity("a", "1", 6), "left".into());
        cache.written(identity("a", "1", 8), "taken back".into());
        cache.gone(&identity("a", "1", 6));
        assert_eq!(get(&cache, "a").as_deref(), Some("taken back"));
        cache.seen(identity("a", "1", 8), "taken back".into(), 1);
        cache.gone(&identity("a", "1", 9));
        assert_eq!(get(&cache, "a"), None, "this one is later");
    }

    #[test]
    fn a_label_that_our_last_write_took_away_takes_the_object() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "ours".into(), 1);
        cache.written(identity("a", "1", 6), "left".into());
        cache.gone(&identity("a", "1", 6));
        assert_eq!(get(&cache, "a"), None);
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "five".into(), 1);
        cache.gone(&identity("a", "1", 9));
        cache.written(identity("a", "1", 6), "six".into());
        assert_eq!(get(&cache, "a"), None);
    }

    #[test]
    fn an_answer_that_comes_after_another_of_the_name_brings_nothing_back() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "one".into(), 1);
        cache.gone(&identity("a", "1", 9));
        cache.seen(identity("a", "2", 12), "two".into(), 1);
        cache.written(identity("a", "1", 9), "one, let go".into());
        assert_eq!(get(&cache, "a").as_deref(), Some("two"));
        cache.written(identity("a", "3", 20), "three".into());
        assert_eq!(get(&cache, "a").as_deref(), Some("three"), "newer is newer");
    }

    #[test]
    fn a_newer_event_of_another_namespace_does_not_hide_our_write() {
        let cache = cache();
        let elsewhere = Identity {
            key: Key::new("m", "x"),
            uid: "9".into(),
            version: 50,
        };
        cache.seen(elsewhere, "x".into(), 1);
        cache.written(identity("a", "1", 40), "forty".into());
        assert_eq!(get(&cache, "a").as_deref(), Some("forty"));
        cache.removed(&Key::new("n", "a"), "1");
        cache.listed(Some("m"), 2, &HashSet::new());
        cache.seen(identity("a", "1", 41), "late".into(), 1);
        assert_eq!(
            get(&cache, "a"),
            None,
            "its deletion is not forgotten by another's listing"
        );
    }

    #[test]
    fn a_name_that_is_used_again_is_another_object() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "one".into(), 1);
        cache.seen(identity("a", "2", 9), "two".into(), 1);
        cache.gone(&identity("a", "1", 8));
        assert_eq!(
            get(&cache, "a").as_deref(),
            Some("two"),
            "the deletion was the old one's"
        );
    }

    #[test]
    fn what_we_deleted_does_not_come_back_by_an_older_event() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "five".into(), 1);
        cache.removed(&Key::new("n", "a"), "1");
        cache.seen(identity("a", "1", 6), "six".into(), 1);
        assert_eq!(get(&cache, "a"), None);
        cache.gone(&identity("a", "1", 7));
        cache.seen(identity("a", "2", 8), "new".into(), 1);
        assert_eq!(get(&cache, "a").as_deref(), Some("new"));
    }

    #[test]
    fn a_listing_removes_what_it_did_not_see_but_not_what_was_written_meanwhile() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "a".into(), 1);
        cache.seen(identity("b", "2", 6), "b".into(), 1);
        cache.listing(2);
        cache.written(identity("c", "3", 20), "c".into());
        cache.seen(identity("a", "1", 5), "a".into(), 2);
        cache.listed(Some("n"), 2, &HashSet::new());
        assert_eq!(get(&cache, "a").as_deref(), Some("a"));
        assert_eq!(get(&cache, "b"), None);
        assert_eq!(get(&cache, "c").as_deref(), Some("c"));
        cache.listed(Some("other"), 3, &HashSet::new());
        assert_eq!(
            cache.len(),
            2,
            "another namespace's listing says nothing about this one"
        );
        cache.listed(None, 4, &HashSet::new());
        assert!(cache.is_empty());
    }

    #[test]
    fn what_we_wrote_is_no_ghost_after_it_was_listed_or_overtaken() {
        let cache = cache();
        cache.written(identity("c", "3", 20), "c".into());
        cache.seen(identity("c", "3", 20), "c".into(), 1);
        cache.seen(identity("d", "4", 30), "d".into(), 2);
        cache.listed(None, 2, &HashSet::new());
        assert_eq!(get(&cache, "c"), None, "listed once, then missing");

        cache.listing(3);
        cache.written(identity("e", "5", 40), "e".into());
        cache.seen(identity("d", "4", 50), "d".into(), 3);
        cache.listed(None, 3, &HashSet::new());
        assert_eq!(
            get(&cache, "e"),
            None,
            "a later event came, and it was not listed"
        );
    }

    /// `change/watch-networkpolicies=gone-1`: a policy that we made and deleted while there was no watch was
    /// for ever about to go: its deletion was the last write of its kind, so nothing in the listing was later.
    #[test]
    fn what_we_wrote_before_a_listing_and_it_does_not_show_is_gone() {
        let cache = cache();
        cache.listing(1);
        cache.seen(identity("a", "1", 5), "a".into(), 1);
        cache.written(identity("c", "3", 20), "c".into());
        cache.written(identity("c", "3", 30), "c, in deletion".into());
        cache.listing(2);
        cache.seen(identity("a", "1", 5), "a".into(), 2);
        cache.listed(None, 2, &HashSet::new());
        assert_eq!(get(&cache, "c"), None);
    }

    #[test]
    fn what_we_made_again_during_a_listing_is_not_taken_for_the_old_one() {
        for is_seen in [true, false] {
            let cache = cache();
            cache.listing(1);
            cache.written(identity("c", "3", 20), "c".into());
            if is_seen {
                cache.seen(identity("c", "3", 20), "c".into(), 1);
            }
            cache.listing(2);
            cache.written(identity("c", "4", 40), "again".into());
            cache.listed(None, 2, &HashSet::new());
            assert_eq!(get(&cache, "c").as_deref(), Some("again"), "{is_seen}");
        }
    }

    #[test]
    fn listeners_hear_each_change_once() {
        let cache = cache();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        cache.on_change(move |change| {
            lock(&sink).push((
                change.old.map(|text| (**text).clone()),
                change.new.map(|text| (**text).clone()),
            ));
        });
        cache.seen(identity("a", "1", 5), "five".into(), 1);
        cache.seen(identity("a", "1", 5), "five".into(), 2);
        cache.seen(identity("a", "1", 6), "six".into(), 2);
        cache.gone(&identity("a", "1", 7));
        cache.gone(&identity("a", "1", 7));
        let five = || Some("five".to_owned());
        let six = || Some("six".to_owned());
        assert_eq!(
            *lock(&heard),
            [(None, five()), (five(), six()), (six(), None)]
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_replaces_what_was_known() {
        let cache = cache();
        cache.seen(identity("a", "1", 5), "five".into(), 1);
        let poison = Poison {
            uid: "1".into(),
            version: "6".into(),
            generation: 2,
            error: "no".into(),
        };
        cache.poisoned_by(&Key::new("n", "a"), poison.clone());
        assert_eq!(get(&cache, "a"), None);
        assert_eq!(cache.poison(&Key::new("n", "a")), Some(poison));
        cache.seen(identity("a", "1", 7), "seven".into(), 1);
        assert_eq!(cache.poison(&Key::new("n", "a")), None);
    }
}
