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
    /// A lane for each namespace in `turns`. A lane may be empty until its turn.
    lanes: HashMap<Option<String>, BTreeSet<(Instant, Key)>>,
    turns: VecDeque<Option<String>>,
}

impl Lanes {
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
            let Some(lane) = self.lanes.get_mut(&namespace) else {
                continue;
            };
            let first = lane.pop_first();
            if lane.is_empty() {
                self.lanes.remove(&namespace);
            } else {
                self.turns.push_back(namespace);
            }
            if let Some((_, key)) = first {
                return Some(key);
            }
        }
        None
    }

    /// Returns the number of keys, and the time from which the oldest has been due.
    pub(super) fn depth(&self) -> (usize, Option<Instant>) {
        let depth = self.lanes.values().map(BTreeSet::len).sum();
        let first = self.lanes.values().filter_map(BTreeSet::first);
        (depth, first.map(|(due, _)| *due).min())
    }
}

#[cfg(test)]
impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.turns.is_empty()
    }
}
