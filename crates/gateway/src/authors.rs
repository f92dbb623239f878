//! Names of callers, by hashes of their tokens. A token has the same name as long as it is valid.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::token::Digest;

/// Maximum number of names. A client with thousands of tokens must not use the memory of the server.
const ENTRIES: usize = 1024;

/// A cache of names.
#[derive(Debug, Default)]
pub(crate) struct Authors(Mutex<HashMap<Digest, String>>);

impl Authors {
    /// Returns the name for this token, if it is known.
    pub(crate) fn get(&self, token: Digest) -> Option<String> {
        self.lock().get(&token).cloned()
    }

    /// Stores the name for this token.
    pub(crate) fn insert(&self, token: Digest, name: String) {
        let mut names = self.lock();
        if names.len() >= ENTRIES {
            names.clear();
        }
        names.insert(token, name);
    }

    /// Forgets the name for this token, which the API server does not accept any more.
    pub(crate) fn remove(&self, token: Digest) {
        self.lock().remove(&token);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_its_token_and_their_number_is_bounded() {
        let authors = Authors::default();
        let token = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        };
        authors.insert(token(1), "ann".to_owned());
        assert_eq!(authors.get(token(1)).as_deref(), Some("ann"));
        assert_eq!(authors.get(token(2)), None);
        authors.remove(token(1));
        assert_eq!(authors.get(token(1)), None);
        for number in 0..2 * ENTRIES {
            authors.insert(token(number), "bob".to_owned());
        }
        assert!(authors.lock().len() <= ENTRIES);
    }
}
