//! The reasons for which a file is not edited.

use crate::tree::{MAX_DEPTH, MAX_DOCUMENTS, MAX_EXPANDED_NODES, MAX_FILE_BYTES, MAX_NODES};

/// The reason for which a file or a field is not edited. No variant repeats text of the file, except names
/// of fields and the value of the selected field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("the file has {bytes} bytes; at most {MAX_FILE_BYTES} are allowed")]
    TooLarge {
        /// Size of the file.
        bytes: usize,
    },
    /// The file is not UTF-8.
    #[error("the file is not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// Number of valid bytes before the first invalid one.
        offset: usize,
    },
    /// A character that YAML forbids, or that some parsers take for a line break.
    #[error("line {line} contains the character U+{code:04X}")]
    Character {
        /// Number of the line, from 1.
        line: usize,
        /// Its code point.
        code: u32,
    },
    /// The file is not valid YAML.
    #[error("line {line} is not valid YAML: {message}")]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// The error of the parser.
        message: String,
    },
    /// The file or the field is a template.
    #[error("line {line} contains a template ('{{{{')")]
    Template {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The file has more than [`MAX_DOCUMENTS`] documents.
    #[error("the file has more than {MAX_DOCUMENTS} documents")]
    TooManyDocuments,
    /// The file has more than [`MAX_NODES`] values.
    #[error("the file has more than {MAX_NODES} values")]
    TooManyNodes,
    /// Collections are nested deeper than [`MAX_DEPTH`].
    #[error("collections are nested deeper than {MAX_DEPTH}, at line {line}")]
    TooDeep {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Aliases expand to more than [`MAX_EXPANDED_NODES`] values, or an alias contains itself.
    #[error(
        "aliases expand to more than {MAX_EXPANDED_NODES} values or contain themselves, at line {line}"
    )]
    Expansion {
        /// Number of the line, from 1.
        line: usize,
    },
    /// No document has the identity.
    #[error("the file does not contain the document")]
    DocumentNotFound,
    /// Several documents have the identity.
    #[error("the file contains the document {count} times")]
    SeveralDocuments {
        /// Number of these documents.
        count: usize,
    },
    /// The field does not exist.
    #[error("the field '{at}' does not exist")]
    FieldNotFound {
        /// The path up to the missing part.
        at: String,
    },
    /// Several items of a list have the name.
    #[error("several items of the list match '{at}'")]
    SeveralItems {
        /// The path up to the part with the name.
        at: String,
    },
    /// The field is a list or a mapping.
    #[error("the field '{at}' is no scalar")]
    NotAScalar {
        /// The path.
        at: String,
    },
    /// The field has no value.
    #[error("the field '{at}' is empty")]
    Empty {
        /// The path.
        at: String,
    },
    /// A value on the path has an anchor, so an edit could change another place.
    #[error("'{at}' has an anchor ('&')")]
    Anchor {
        /// The path up to the value.
        at: String,
    },
    /// A value on the path is an alias of another place.
    #[error("'{at}' is an alias ('*')")]
    Alias {
        /// The path up to the value.
        at: String,
    },
    /// A mapping on the path contains a merge key.
    #[error("'{at}' contains a merge key ('<<')")]
    MergeKey {
        /// The path up to the mapping.
        at: String,
    },
    /// A value or key on the path has a tag.
    #[error("'{at}' has a tag ('!')")]
    Tag {
        /// The path up to the value.
        at: String,
    },
    /// A mapping on the path contains a key twice.
    #[error("'{at}' contains the key '{key}' twice")]
    DuplicateKey {
        /// The path up to the mapping.
        at: String,
        /// The key.
        key: String,
    },
    /// A mapping on the path has a key that is no scalar.
    #[error("'{at}' contains a key that is no scalar")]
    ComplexKey {
        /// The path up to the mapping.
        at: String,
    },
    /// The scalar has several lines.
    #[error("the field '{at}' has several lines, or is a block scalar ('|' or '>')")]
    MultiLine {
        /// The path.
        at: String,
    },
    /// The field has another value than expected.
    #[error("the field has the value '{found}'")]
    ValueChanged {
        /// The value.
        found: String,
    },
    /// The new value is the old one.
    #[error("the field already has the new value")]
    SameValue,
    /// The new value cannot be written.
    #[error("the new value {0}")]
    NewValue(&'static str),
    /// The result is not proven to be right.
    #[error("{0}")]
    Unproven(&'static str),
}
