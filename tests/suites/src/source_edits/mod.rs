//! Edits of source files, which are applied to a copy of the repository.

mod tree;

use anyhow::{Result, ensure};

pub(crate) use self::tree::Tree;

/// A replacement of text in one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edit<'a> {
    /// The path from the root of the repository.
    pub(crate) file: &'a str,
    /// The text to replace. It must be in the file exactly once.
    pub(crate) old: &'a str,
    /// The new text.
    pub(crate) new: &'a str,
}

impl Edit<'_> {
    /// The text with the edit.
    ///
    /// # Errors
    /// When the old text is not in it exactly once.
    pub(crate) fn applied(&self, text: &str) -> Result<String> {
        let count = text.matches(self.old).count();
        ensure!(
            count == 1,
            "the old text is {count} times in '{}' instead of once: {:?}",
            self.file,
            self.old
        );
        Ok(text.replacen(self.old, self.new, 1))
    }
}
