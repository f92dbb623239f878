//! Bounds of a cache for objects that anyone may create.

use std::collections::HashMap;

use super::State;
use crate::key::Key;

/// Maximum numbers of objects in a cache. The newest are kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of objects with the same index key.
    pub per_word: usize,
    /// Maximum number of objects in total. Beyond it, objects of the namespaces with the most objects are dropped.
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
            gone = beyond_fair_share(entries, (self.total / 10).max(1));
        }
        gone
    }
}

/// Returns the keys of the `count` oldest objects that are beyond the share of their namespace. With the oldest objects of
/// all namespaces, a user with permission to create objects in one namespace could push out all others.
fn beyond_fair_share(entries: Vec<(u64, &Key)>, count: usize) -> Vec<Key> {
    let room = entries.len().saturating_sub(count);
    let mut namespaces: HashMap<Option<&str>, Vec<(u64, &Key)>> = HashMap::new();
    for (version, key) in entries {
        let of_namespace = namespaces.entry(key.namespace.as_deref()).or_default();
        of_namespace.push((version, key));
    }
    let share = fair_share(namespaces.values().map(Vec::len).collect(), room);
    let mut beyond = Vec::new();
    for mut of_namespace in namespaces.into_values() {
        of_namespace.sort_unstable();
        of_namespace.truncate(of_namespace.len().saturating_sub(share));
        beyond.extend(of_namespace);
    }
    oldest(beyond, count)
}

/// Returns how many objects a namespace may have, if all namespaces together may have `room`. Namespaces with few objects
/// leave their room to the others.
fn fair_share(mut counts: Vec<usize>, mut room: usize) -> usize {
    counts.sort_unstable();
    let mut left = counts.len();
    for count in counts {
        let share = room / left;
        if count > share {
            return share;
        }
        room -= count;
        left -= 1;
    }
    usize::MAX
}

fn oldest(mut entries: Vec<(u64, &Key)>, count: usize) -> Vec<Key> {
    if count == 0 {
        return Vec::new();
    }
    entries.sort_unstable();
    let keys = entries.into_iter().take(count);
    keys.map(|(_, key)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_room_that_smaller_namespaces_leave() {
        for (counts, room, share) in [
            (vec![], 10, usize::MAX),
            (vec![3, 4], 10, usize::MAX),
            (vec![20], 10, 10),
            (vec![20, 20], 10, 5),
            (vec![20, 2], 10, 8),
            (vec![20, 1, 5, 20], 16, 5),
            // More namespaces than room: the oldest objects of all are dropped.
            (vec![1, 1, 1], 2, 0),
        ] {
            let case = format!("{counts:?} in {room}");
            assert_eq!(fair_share(counts, room), share, "{case}");
        }
    }
}
