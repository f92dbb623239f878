//! The id of a commit.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a commit: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Commit(String);

/// The text is not the id of a commit. The error does not repeat the text, because it may come from a
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a commit id: 40 or 64 lower-case hexadecimal digits are")]
pub struct NotACommit;

impl Commit {
    /// Parses the text.
    ///
    /// # Errors
    /// When the text is not an id. An id of all zeros is rejected, too: git uses it for "none".
    pub fn parse(text: &str) -> Result<Self, NotACommit> {
        let has_length = matches!(text.len(), 40 | 64);
        let is_hex = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_none = text.bytes().all(|byte| byte == b'0');
        if has_length && is_hex && !is_none {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotACommit)
        }
    }

    /// Returns the hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for Commit {
    type Error = NotACommit;

    fn try_from(text: String) -> Result<Self, NotACommit> {
        Self::parse(&text)
    }
}

impl From<Commit> for String {
    fn from(commit: Commit) -> Self {
        commit.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_are_ids() {
        for (text, is_id) in [
            ("a".repeat(40), true),
            ("0123456789abcdef".repeat(4), true),
            ("a".repeat(39), false),
            ("a".repeat(41), false),
            ("A".repeat(40), false),
            ("g".repeat(40), false),
            ("0".repeat(40), false),
            ("0".repeat(64), false),
            (String::new(), false),
            ("é".repeat(20), false),
        ] {
            assert_eq!(Commit::parse(&text).is_ok(), is_id, "{text}");
        }
    }
}
