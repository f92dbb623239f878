//! The index: keys by which objects are found.

use std::collections::{BTreeSet, HashMap};

use crate::key::Key;

/// The object keys under each index key.
#[derive(Debug, Default)]
pub(super) struct Index(HashMap<Box<str>, Keys>);

/// The object keys under one index key. Most index keys have one: that of the object with this UID.
/// A set would be ten times as large.
#[derive(Debug)]
enum Keys {
    One(Key),
    Several(BTreeSet<Key>),
}

impl Index {
    /// Returns the object keys under an index key, in order.
    pub(super) fn keys(&self, index_key: &str) -> impl Iterator<Item = &Key> {
        let (one, several) = match self.0.get(index_key) {
            Some(Keys::One(key)) => (Some(key), None),
            Some(Keys::Several(keys)) => (None, Some(keys)),
            None => (None, None),
        };
        let several = several.into_iter().flat_map(|keys| keys.iter());
        one.into_iter().chain(several)
    }

    pub(super) fn add(&mut self, index_keys: &[String], key: &Key) {
        for index_key in index_keys {
            match self.0.get_mut(index_key.as_str()) {
                None => {
                    self.0
                        .insert(index_key.as_str().into(), Keys::One(key.clone()));
                }
                Some(Keys::Several(keys)) => {
                    keys.insert(key.clone());
                }
                Some(Keys::One(known)) if known == key => {}
                Some(one @ Keys::One(_)) => one.grow(key),
            }
        }
    }

    pub(super) fn remove(&mut self, index_keys: &[String], key: &Key) {
        for index_key in index_keys {
            let is_empty = match self.0.get_mut(index_key.as_str()) {
                Some(Keys::One(known)) => known == key,
                Some(Keys::Several(keys)) => {
                    keys.remove(key);
                    keys.is_empty()
                }
                None => false,
            };
            if is_empty {
                self.0.remove(index_key.as_str());
            }
        }
    }
}

impl Keys {
    fn grow(&mut self, key: &Key) {
        if let Self::One(known) = self {
            *self = Self::Several(BTreeSet::from([known.clone(), key.clone()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_keys_that_were_added_and_not_removed() {
        let mut index = Index::default();
        let index_keys = || vec!["agent".to_owned()];
        let keys = ["b", "a", "c"].map(|name| Key::new("n", name));
        for key in &keys {
            index.add(&index_keys(), key);
            index.add(&index_keys(), key);
        }
        let names = |index: &Index| -> Vec<String> {
            index.keys("agent").map(|key| key.name.clone()).collect()
        };
        assert_eq!(names(&index), ["a", "b", "c"]);
        index.remove(&index_keys(), &keys[1]);
        index.remove(&["other".to_owned()], &keys[0]);
        assert_eq!(names(&index), ["b", "c"]);
        index.remove(&index_keys(), &keys[0]);
        index.remove(&index_keys(), &keys[2]);
        assert!(names(&index).is_empty());
        assert!(index.0.is_empty());
        index.add(&index_keys(), &keys[0]);
        index.remove(&index_keys(), &keys[1]);
        assert_eq!(names(&index), ["b"], "another's removal takes nothing");
    }
}
