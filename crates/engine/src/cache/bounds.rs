//! Bounds of a cache for objects that anyone may create.

use super::State;
use crate::key::Key;

/// Maximum numbers of objects in a cache. The newest are kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of objects with the same index key.
    pub per_word: usize,
    /// Maximum number of objects in total.
    pub total: usize,
}

impl Bounds {
    /// Returns the keys to remove after an object with these index keys was stored.
    pub(super) fn exceeding<T>(&self, state: &State<T>, words: &[String]) -> Vec<Key> {
        let mut gone = Vec::new();
        for word in words {
            let slots: Vec<(u64, &Key)> = state
                .slots_of(word)
                .map(|(key, slot)| (slot.version, key))
                .collect();
            let excess = slots.len().saturating_sub(self.per_word);
            gone.extend(oldest(slots, excess));
        }
        if gone.is_empty() && state.slots.len() > self.total {
            let slots = state.slots.iter();
            let slots = slots.map(|(key, slot)| (slot.version, key)).collect();
            // Remove several at once, because each removal visits all objects.
            gone = oldest(slots, (self.total / 10).max(1));
        }
        gone
    }
}

fn oldest(mut slots: Vec<(u64, &Key)>, count: usize) -> Vec<Key> {
    if count == 0 {
        return Vec::new();
    }
    slots.sort_unstable();
    let keys = slots.into_iter().take(count);
    keys.map(|(_, key)| key.clone()).collect()
}
