//! Finds the document and the field.

use std::{collections::BTreeSet, ops::Range};

use granit_parser::{ScalarStyle, StructureStyle};

use crate::{
    Document, FieldPath, Rejection,
    path::Step,
    scalar,
    tree::{Content, Tree},
};

/// Key by which a mapping takes over the content of another one.
const MERGE_KEY: &str = "<<";
/// The path of the whole document in messages.
const ROOT: &str = ".";

/// The scalar of a field.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) index: usize,
    pub(crate) value: &'a str,
    pub(crate) style: ScalarStyle,
    /// Position in the text, with quotes.
    pub(crate) bytes: Range<usize>,
    pub(crate) line: usize,
    pub(crate) is_in_flow: bool,
}

/// Returns the root of the only document with an identity.
pub(crate) fn document(tree: &Tree<'_>, wanted: &Document) -> Result<usize, Rejection> {
    let mut found = Vec::new();
    for root in &tree.documents {
        if has_identity(tree, *root, wanted)? {
            found.push(*root);
        }
    }
    match found.as_slice() {
        [] => Err(Rejection::DocumentNotFound),
        [root] => Ok(*root),
        several => Err(Rejection::SeveralDocuments {
            count: several.len(),
        }),
    }
}

/// Returns whether a document has an identity. A document that differs in one part is another one, even if
/// its other parts cannot be read.
fn has_identity(tree: &Tree<'_>, root: usize, wanted: &Document) -> Result<bool, Rejection> {
    // An empty document.
    if !matches!(tree.nodes[root].content, Content::Mapping(_)) {
        return Ok(false);
    }
    let mut unknown = None;
    for (wanted, found) in [
        (&wanted.api_version, text_of(tree, root, "apiVersion")),
        (&wanted.kind, text_of(tree, root, "kind")),
        (&wanted.name, text_of_metadata(tree, root, "name")),
        (&wanted.namespace, text_of_metadata(tree, root, "namespace")),
    ] {
        let Some(wanted) = wanted else { continue };
        match found {
            Ok(Some(found)) if found == wanted => {}
            Ok(_) => return Ok(false),
            Err(error) => unknown = Some(error),
        }
    }
    match unknown {
        None => Ok(true),
        Some(error) => Err(error),
    }
}

/// Returns the text of a key of `metadata`.
fn text_of_metadata<'t>(
    tree: &'t Tree<'_>,
    root: usize,
    key: &str,
) -> Result<Option<&'t str>, Rejection> {
    match lookup(tree, root, "metadata")? {
        Some(node) if matches!(tree.nodes[node].content, Content::Mapping(_)) => {
            text_of(tree, node, key)
        }
        Some(node) if matches!(tree.nodes[node].content, Content::Alias(_)) => {
            Err(Rejection::Alias {
                at: "metadata".to_owned(),
            })
        }
        Some(_) | None => Ok(None),
    }
}

/// Returns the text of a key of a mapping.
fn text_of<'t>(
    tree: &'t Tree<'_>,
    mapping: usize,
    key: &str,
) -> Result<Option<&'t str>, Rejection> {
    let Some(node) = lookup(tree, mapping, key)? else {
        return Ok(None);
    };
    match &tree.nodes[node].content {
        Content::Scalar { value, .. } => Ok(Some(value)),
        Content::Alias(_) => Err(Rejection::Alias { at: key.to_owned() }),
        Content::Sequence(_) | Content::Mapping(_) => Ok(None),
    }
}

/// Returns the value of a key of a mapping, of which only this key matters.
fn lookup(tree: &Tree<'_>, mapping: usize, key: &str) -> Result<Option<usize>, Rejection> {
    let mut found = None;
    let mut has_merge_key = false;
    for (name, value) in entries(tree, mapping) {
        let Content::Scalar { value: name, .. } = &tree.nodes[name].content else {
            continue;
        };
        has_merge_key |= name == MERGE_KEY;
        if name == key && found.replace(value).is_some() {
            return Err(Rejection::DuplicateKey {
                at: ROOT.to_owned(),
                key: key.to_owned(),
            });
        }
    }
    match found {
        None if has_merge_key => Err(Rejection::MergeKey {
            at: ROOT.to_owned(),
        }),
        found => Ok(found),
    }
}

/// Returns the keys and values of a mapping.
fn entries(tree: &Tree<'_>, mapping: usize) -> impl Iterator<Item = (usize, usize)> {
    let keys = tree.children(mapping).step_by(2);
    keys.map(move |key| (key, tree.nodes[key].end))
}

/// Returns the scalar of a field.
pub(crate) fn scalar<'t>(
    text: &str,
    tree: &'t Tree<'_>,
    wanted: &Document,
    path: &FieldPath,
) -> Result<Found<'t>, Rejection> {
    let mut index = document(tree, wanted)?;
    let mut is_in_flow = false;
    for (depth, part) in path.parts().iter().enumerate() {
        let at = if depth == 0 { ROOT } else { path.first(depth) };
        check_properties(tree, index, at)?;
        is_in_flow |= matches!(
            tree.nodes[index].content,
            Content::Sequence(StructureStyle::Flow) | Content::Mapping(StructureStyle::Flow)
        );
        let walk = Walk {
            tree,
            at,
            next: path.first(depth + 1),
        };
        index = match &part.step {
            Step::Key(key) => walk.key(index, key)?,
            Step::Index(number) => walk.index(index, *number)?,
            Step::Item { key, value } => walk.item(index, key, value)?,
        };
    }
    let at = path.to_string();
    check_properties(tree, index, &at)?;
    let node = &tree.nodes[index];
    let Content::Scalar { value, style } = &node.content else {
        return Err(Rejection::NotAScalar { at });
    };
    let Some(written) = text.get(node.bytes.clone()) else {
        return Err(Rejection::Unproven("the parser returned a wrong position"));
    };
    if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) || written.contains(['\n', '\r'])
    {
        return Err(Rejection::MultiLine { at });
    }
    if scalar::is_null(written) {
        return Err(Rejection::Empty { at });
    }
    if written.contains("{{") {
        return Err(Rejection::Template { line: node.line });
    }
    if !scalar::is_written_as(value, *style, written) {
        return Err(Rejection::Unproven("the parser returned a wrong position"));
    }
    Ok(Found {
        index,
        value,
        style: *style,
        bytes: node.bytes.clone(),
        line: node.line,
        is_in_flow,
    })
}

/// Rejects a node on the path that appears in another place, too, or that has a tag.
fn check_properties(tree: &Tree<'_>, index: usize, at: &str) -> Result<(), Rejection> {
    let node = &tree.nodes[index];
    let at = at.to_owned();
    if matches!(node.content, Content::Alias(_)) {
        return Err(Rejection::Alias { at });
    }
    if node.is_anchored {
        return Err(Rejection::Anchor { at });
    }
    if node.tag.is_some() {
        return Err(Rejection::Tag { at });
    }
    Ok(())
}

/// One part of the path.
struct Walk<'a> {
    tree: &'a Tree<'a>,
    /// The path up to the collection.
    at: &'a str,
    /// The path with this part.
    next: &'a str,
}

impl Walk<'_> {
    fn not_found(&self) -> Rejection {
        Rejection::FieldNotFound {
            at: self.next.to_owned(),
        }
    }

    /// Returns the value of a key. Checks all keys of the mapping.
    fn key(&self, mapping: usize, wanted: &str) -> Result<usize, Rejection> {
        let nodes = &self.tree.nodes;
        let at = || self.at.to_owned();
        if !matches!(nodes[mapping].content, Content::Mapping(_)) {
            return Err(self.not_found());
        }
        let mut keys: BTreeSet<&str> = BTreeSet::new();
        let mut found = None;
        for (key, value) in entries(self.tree, mapping) {
            let Content::Scalar { value: name, .. } = &nodes[key].content else {
                return Err(Rejection::ComplexKey { at: at() });
            };
            if name == MERGE_KEY {
                return Err(Rejection::MergeKey { at: at() });
            }
            if nodes[key].tag.is_some() {
                return Err(Rejection::Tag { at: at() });
            }
            if !keys.insert(name.as_ref()) {
                return Err(Rejection::DuplicateKey {
                    at: at(),
                    key: name.to_string(),
                });
            }
            if name == wanted {
                found = Some(value);
            }
        }
        found.ok_or_else(|| self.not_found())
    }

    fn index(&self, list: usize, number: usize) -> Result<usize, Rejection> {
        self.check_list(list)?;
        let item = self.tree.children(list).nth(number);
        item.ok_or_else(|| self.not_found())
    }

    /// Returns the only item with a value of a key.
    fn item(&self, list: usize, key: &str, value: &str) -> Result<usize, Rejection> {
        self.check_list(list)?;
        let mut found = None;
        for item in self.tree.children(list) {
            let has_value = match self.tree.nodes[item].content {
                Content::Mapping(_) => text_of(self.tree, item, key)? == Some(value),
                Content::Alias(_) => {
                    return Err(Rejection::Alias {
                        at: self.next.to_owned(),
                    });
                }
                Content::Sequence(_) | Content::Scalar { .. } => false,
            };
            if has_value && found.replace(item).is_some() {
                return Err(Rejection::SeveralItems {
                    at: self.next.to_owned(),
                });
            }
        }
        found.ok_or_else(|| self.not_found())
    }

    fn check_list(&self, list: usize) -> Result<(), Rejection> {
        match self.tree.nodes[list].content {
            Content::Sequence(_) => Ok(()),
            Content::Mapping(_) | Content::Scalar { .. } | Content::Alias(_) => {
                Err(self.not_found())
            }
        }
    }
}
