//! Replaces one scalar in a YAML file. All other bytes stay: comments, quotes, line endings, spaces.
//!
//! ```text
//! bytes ──▶ text ──▶ nodes with positions ──▶ document ──▶ field ──▶ new bytes ──▶ nodes: compared
//! ```
//!
//! [`FieldPath`] and [`Document`] select the scalar, [`read`] returns its value, [`replace`] replaces it.
//! A file that is not plain YAML, or in which the selected scalar has an effect on another place, is
//! rejected with a [`Rejection`].
//!
//! # Guarantees
//! - [`replace`] parses its own result. The parsed files differ in the selected scalar only.
//! - The new value is a string for parsers of YAML 1.1 and 1.2: `1.20`, `on` and `2024-01-01` get quotes.
//! - Aliases are never expanded, and size, documents, nodes and nesting are bounded.
//!
//! # Caveats
//! Objects in a `List` and documents in a block scalar (a ConfigMap's files) are not found.

mod error;
mod find;
mod path;
mod scalar;
#[cfg(test)]
mod tests;
mod tree;

pub use error::Rejection;
pub use path::{FieldPath, MAX_PATH_BYTES, PathError};
pub use scalar::MAX_VALUE_BYTES;
pub use tree::{MAX_DEPTH, MAX_DOCUMENTS, MAX_EXPANDED_NODES, MAX_FILE_BYTES, MAX_NODES};

use granit_parser::ScalarStyle;

use crate::{
    find::Found,
    tree::{Content, Node, Tree},
};

/// Identity of a document in a file. A field that is `None` matches any value, also a missing one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// `apiVersion`.
    pub api_version: Option<String>,
    /// `kind`.
    pub kind: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
}

/// A scalar that [`replace`] accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    /// The value, without quotes.
    pub value: String,
    /// Number of its line, from 1.
    pub line: usize,
    /// Its line, without the line break.
    pub text: String,
    /// Whether it is in a collection in brackets, so that its line may contain other fields.
    pub is_in_flow: bool,
}

/// The result of [`replace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The new content of the file.
    pub bytes: Vec<u8>,
    /// The scalar before the edit.
    pub before: Scalar,
    /// The scalar after the edit.
    pub after: Scalar,
}

/// Returns whether the file contains the document.
///
/// # Errors
/// When the file is rejected, or contains the document more than once.
pub fn contains(source: &[u8], document: &Document) -> Result<bool, Rejection> {
    let tree = tree::parse(tree::decode(source)?)?;
    match find::document(&tree, document) {
        Ok(_) => Ok(true),
        Err(Rejection::DocumentNotFound) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Returns the scalar of a field.
///
/// # Errors
/// When [`replace`] would reject the file or the field.
pub fn read(source: &[u8], document: &Document, path: &FieldPath) -> Result<Scalar, Rejection> {
    let text = tree::decode(source)?;
    let tree = tree::parse(text)?;
    let found = find::scalar(text, &tree, document, path)?;
    Ok(scalar_of(text, &found))
}

/// Replaces the value `from` of a field by `to`.
///
/// # Errors
/// When the file or the field is rejected, the field has another value than `from`, or `to` cannot be
/// written on one line.
pub fn replace(
    source: &[u8],
    document: &Document,
    path: &FieldPath,
    from: &str,
    to: &str,
) -> Result<Edited, Rejection> {
    scalar::check(to)?;
    let text = tree::decode(source)?;
    let old = tree::parse(text)?;
    let found = find::scalar(text, &old, document, path)?;
    if found.value != from {
        return Err(Rejection::ValueChanged {
            found: found.value.to_owned(),
        });
    }
    if from == to {
        return Err(Rejection::SameValue);
    }
    let written = scalar::written(to, found.style);
    let new = [
        &text[..found.bytes.start],
        &written,
        &text[found.bytes.end..],
    ]
    .concat();
    // An edit can make a file too large.
    tree::decode(new.as_bytes())?;
    prove(&old, &tree::parse(&new)?, found.index, to)?;
    let after = Scalar {
        value: to.to_owned(),
        line: found.line,
        text: line_at(&new, found.bytes.start).to_owned(),
        is_in_flow: found.is_in_flow,
    };
    Ok(Edited {
        before: scalar_of(text, &found),
        after,
        bytes: new.into_bytes(),
    })
}

fn scalar_of(text: &str, found: &Found<'_>) -> Scalar {
    Scalar {
        value: found.value.to_owned(),
        line: found.line,
        text: line_at(text, found.bytes.start).to_owned(),
        is_in_flow: found.is_in_flow,
    }
}

/// Returns the line that contains a position.
fn line_at(text: &str, at: usize) -> &str {
    let is_break = |c: char| matches!(c, '\n' | '\r');
    let start = text[..at].rfind(is_break).map_or(0, |before| before + 1);
    let end = text[at..].find(is_break).map_or(text.len(), |end| at + end);
    &text[start..end]
}

/// Checks that two files differ in the scalar with this index only, and that it has the value `to`.
fn prove(old: &Tree<'_>, new: &Tree<'_>, index: usize, to: &str) -> Result<(), Rejection> {
    if old.documents != new.documents || old.nodes.len() != new.nodes.len() {
        return Err(Rejection::Unproven("the edited file has other nodes"));
    }
    for (number, (before, after)) in old.nodes.iter().zip(&new.nodes).enumerate() {
        let is_expected = if number == index {
            is_replacement(before, after, to)
        } else {
            before.is_same(after)
        };
        if !is_expected {
            return Err(Rejection::Unproven(
                "the edit would change another part of the file",
            ));
        }
    }
    Ok(())
}

fn is_replacement(before: &Node<'_>, after: &Node<'_>, to: &str) -> bool {
    let (Content::Scalar { style: old, .. }, Content::Scalar { value, style: new }) =
        (&before.content, &after.content)
    else {
        return false;
    };
    let has_style = old == new || (*old, *new) == (ScalarStyle::Plain, ScalarStyle::DoubleQuoted);
    has_style && value == to && before.has_same_properties(after)
}
