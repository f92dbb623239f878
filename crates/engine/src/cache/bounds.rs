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
    pub(super) fn exceeding<T>(&self, state: &State<T>, index_keys: &[String]) -> Vec<Key> {
        let mut gone = Vec::new();
        for index_key in index_keys {
            let entries: Vec<(u64, &Key)> = state
                .entries_of(index_key)
                .map(|(key, entry)| (entry.version, key))
                .collect();
            let excess = entries.len().saturating_sub(self.per_word);
            gone.extend(oldest(entries, excess));
        }
        if gone.is_empty() && state.entries.len() > self.total {
            let entries = state.entries.iter();
            let entries = entries.map(|(key, entry)| (entry.version, key)).collect();
            // Remove several at once, because each removal visits all objects.
            gone = oldest(entries, (self.total / 10).max(1));
        }
        gone
    }
}

fn oldest(mut entries: Vec<(u64, &Key)>, count: usize) -> Vec<Key> {
    if count == 0 {
        return Vec::new();
    }
    entries.sort_unstable();
    let keys = entries.into_iter().take(count);
    keys.map(|(_, key)| key.clone()).collect()
}
