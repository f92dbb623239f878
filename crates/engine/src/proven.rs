//! Objects that are verified as ours: this process created them, or found them equal to the object that
//! it would create.
//!
//! Nothing in an object proves its creator. So a process remembers the UIDs of the objects that it
//! created, until a status records them.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// Maximum number of remembered UIDs. If a UID is dropped before a status records it, the object is
/// compared once more.
const MOST: usize = 10_000;

/// The UIDs of objects that are verified as ours.
#[derive(Debug, Clone, Default)]
pub struct Proven(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    uids: HashSet<Arc<str>>,
    /// The UIDs by age, the oldest first.
    order: VecDeque<Arc<str>>,
}

impl Proven {
    /// Returns whether the object with this UID is verified as ours.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.uids.contains(uid)
    }

    pub(crate) fn insert(&self, uid: &str) {
        if uid.is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid: Arc<str> = uid.into();
        if !known.uids.insert(Arc::clone(&uid)) {
            return;
        }
        known.order.push_back(uid);
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.uids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let proven = Proven::default();
        proven.insert("");
        assert!(!proven.has(""), "an object without a UID is nobody's");
        for number in 0..=MOST {
            proven.insert(&format!("uid-{number}"));
            proven.insert(&format!("uid-{number}"));
        }
        assert!(!proven.has("uid-0"));
        assert!(proven.has("uid-1") && proven.has(&format!("uid-{MOST}")));
        let clone = proven.clone();
        proven.insert("late");
        assert!(clone.has("late"), "all controllers of a process share it");
    }
}
