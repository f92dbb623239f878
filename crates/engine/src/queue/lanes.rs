//! The due keys, in one lane for each namespace. The lanes take turns.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::key::Key;

/// The due keys.
///
/// # Guarantees
/// - Namespaces take turns, so thousands of due keys of one namespace delay a key of another by one key.
/// - Within a namespace, the key that has been due longest is first.
/// - All cluster-scoped keys share one lane. Each of them may belong to another customer, and the queue holds a key
///   only once, so the order of their times is already fair.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// A lane for each namespace in `turns` and `blocked_turns`. A lane may be empty until its turn.
    lanes: HashMap<Option<String>, BTreeSet<(Instant, Key)>>,
    turns: VecDeque<Option<String>>,
    /// Scopes whose lanes have no turn. The scope `None` is everything.
    blocked: BTreeSet<Option<String>>,
    /// Namespaces that had a turn while they were blocked.
    blocked_turns: VecDeque<Option<String>>,
}

impl Lanes {
    /// Blocks the lanes of these scopes, and of no others.
    pub(super) fn block(&mut self, scopes: BTreeSet<Option<String>>) {
        self.blocked = scopes;
        self.turns.append(&mut self.blocked_turns);
    }

    pub(super) fn insert(&mut self, due: Instant, key: Key) {
        if let Some(lane) = self.lanes.get_mut(&key.namespace) {
            lane.insert((due, key));
            return;
        }
        let namespace = key.namespace.clone();
        self.turns.push_back(namespace.clone());
        self.lanes.insert(namespace, BTreeSet::from([(due, key)]));
    }

    pub(super) fn remove(&mut self, place: &(Instant, Key)) {
        if let Some(lane) = self.lanes.get_mut(&place.1.namespace) {
            lane.remove(place);
        }
    }

    /// Returns the next key, from the namespace that has waited longest for its turn.
    pub(super) fn pop(&mut self) -> Option<Key> {
        while let Some(namespace) = self.turns.pop_front() {
            if self.is_blocked(&namespace) {
                self.blocked_turns.push_back(namespace);
                continue;
            }
            let (key, has_more) = self.take_first(&namespace);
            if has_more {
                self.turns.push_back(namespace);
            }
            if key.is_some() {
                return key;
            }
        }
        None
    }

    /// Returns the next key of a blocked namespace for which `is_wanted` returns true.
    pub(super) fn pop_blocked(&mut self, is_wanted: impl Fn(Option<&str>) -> bool) -> Option<Key> {
        for _ in 0..self.blocked_turns.len() {
            let namespace = self.blocked_turns.pop_front()?;
            if !is_wanted(namespace.as_deref()) {
                self.blocked_turns.push_back(namespace);
                continue;
            }
            let (key, has_more) = self.take_first(&namespace);
            if has_more {
                self.blocked_turns.push_back(namespace);
            }
            if key.is_some() {
                return key;
            }
        }
        None
    }

    /// Takes the first key of a lane, and drops the lane if that was the last one. Returns whether the lane has more.
    fn take_first(&mut self, namespace: &Option<String>) -> (Option<Key>, bool) {
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return (None, false);
        };
        let first = lane.pop_first();
        let has_more = !lane.is_empty();
        if !has_more {
            self.lanes.remove(namespace);
        }
        (first.map(|(_, key)| key), has_more)
    }

    /// Returns the number of keys, the number of keys that are not blocked, and the time from which the oldest key has
    /// been due.
    pub(super) fn depth(&self) -> (usize, usize, Option<Instant>) {
        let due = self.lanes.values().map(BTreeSet::len).sum();
        let open = self.lanes.iter();
        let open = open.filter(|(namespace, _)| !self.is_blocked(namespace));
        let open = open.map(|(_, lane)| lane.len()).sum();
        let first = self.lanes.values().filter_map(BTreeSet::first);
        (due, open, first.map(|(due, _)| *due).min())
    }

    fn is_blocked(&self, namespace: &Option<String>) -> bool {
        self.blocked.contains(&None::<String>) || self.blocked.contains(namespace)
    }
}

#[cfg(test)]
impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.turns.is_empty() && self.blocked_turns.is_empty()
    }
}
