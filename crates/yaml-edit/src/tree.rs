//! Parses a file into a flat list of nodes with their positions.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag};

use crate::Rejection;

/// Maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Maximum number of documents in a file.
pub const MAX_DOCUMENTS: usize = 1000;
/// Maximum number of values in a file.
pub const MAX_NODES: usize = 200_000;
/// Maximum nesting of collections.
pub const MAX_DEPTH: usize = 100;
/// Maximum number of values of a document after all aliases are expanded.
pub const MAX_EXPANDED_NODES: u64 = 1_000_000;

/// The nodes of all documents. The children of a node come directly after it.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    /// Indexes of the roots.
    pub(crate) documents: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) is_anchored: bool,
    pub(crate) tag: Option<Cow<'a, Tag>>,
    /// Position in the text. Of a collection, only the start is meaningful.
    pub(crate) bytes: Range<usize>,
    /// Number of its line, from 1.
    pub(crate) line: usize,
    /// Index of the first node that is not a descendant.
    pub(crate) end: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Scalar {
        value: Cow<'a, str>,
        style: ScalarStyle,
    },
    Sequence(StructureStyle),
    Mapping(StructureStyle),
    /// With the number of the anchor.
    Alias(usize),
}

impl Node<'_> {
    /// Returns whether two nodes differ in their position at most.
    pub(crate) fn is_same(&self, other: &Node<'_>) -> bool {
        self.content == other.content && self.has_same_properties(other)
    }

    /// Returns whether anchor, tag and descendants are in the same places.
    pub(crate) fn has_same_properties(&self, other: &Node<'_>) -> bool {
        (self.is_anchored, &self.tag, self.end) == (other.is_anchored, &other.tag, other.end)
    }
}

impl Tree<'_> {
    /// Returns the indexes of the items of a sequence, or of the keys and values of a mapping.
    pub(crate) fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        let end = self.nodes[parent].end;
        let first = Some(parent + 1).filter(|child| *child < end);
        std::iter::successors(first, move |child| {
            Some(self.nodes[*child].end).filter(|next| *next < end)
        })
    }
}

/// Returns the text of a file.
///
/// # Errors
/// When it is too large, is not UTF-8, or contains a character that parsers understand differently.
pub(crate) fn decode(source: &[u8]) -> Result<&str, Rejection> {
    if source.len() > MAX_FILE_BYTES {
        return Err(Rejection::TooLarge {
            bytes: source.len(),
        });
    }
    let text = str::from_utf8(source).map_err(|error| Rejection::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    // Parsers of YAML 1.1 take U+0085, U+2028 and U+2029 for line breaks. Our parser takes U+0000 for the
    // end of the file.
    let wrong = text.char_indices().find(|(at, c)| match c {
        '\t' | '\n' | '\r' => false,
        '\u{feff}' => *at > 0,
        '\u{2028}' | '\u{2029}' => true,
        c => c.is_control(),
    });
    match wrong {
        None => Ok(text),
        Some((at, c)) => Err(Rejection::Character {
            line: text[..at].matches('\n').count() + 1,
            code: c.into(),
        }),
    }
}

/// Parses a text.
///
/// # Errors
/// When it is not YAML, is a template, or exceeds a limit.
pub(crate) fn parse(text: &str) -> Result<Tree<'_>, Rejection> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder {
        text,
        tree: Tree::default(),
        open: Vec::new(),
        expanded: BTreeMap::new(),
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| rejection(text, &error))?;
        builder.add(event, &span)?;
    }
    Ok(builder.tree)
}

fn rejection(text: &str, error: &ScanError) -> Rejection {
    let line = error.marker().line();
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return Rejection::TooDeep { line };
    }
    // A template often fails far behind its first directive.
    let is_directive = |(_, text): &(usize, &str)| text.trim_start().starts_with("{{");
    match (1..).zip(text.lines()).find(is_directive) {
        Some((first, _)) if first <= line => Rejection::Template { line: first },
        Some(_) | None => Rejection::Syntax {
            line,
            message: error.info(),
        },
    }
}

/// A collection that is not closed yet.
#[derive(Debug)]
struct Open {
    index: usize,
    anchor: usize,
    /// Number of its values so far, with expanded aliases.
    size: u64,
}

#[derive(Debug)]
struct Builder<'a> {
    text: &'a str,
    tree: Tree<'a>,
    open: Vec<Open>,
    /// Number of values behind each anchor of the document.
    expanded: BTreeMap<usize, u64>,
}

impl<'a> Builder<'a> {
    fn add(&mut self, event: Event<'a>, span: &Span) -> Result<(), Rejection> {
        let line = span.start.line();
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Comment(..) => {
                Ok(())
            }
            Event::DocumentStart(..) => {
                if self.tree.documents.len() == MAX_DOCUMENTS {
                    return Err(Rejection::TooManyDocuments);
                }
                self.tree.documents.push(self.tree.nodes.len());
                self.expanded.clear();
                Ok(())
            }
            Event::Scalar(value, style, anchor, tag) => {
                self.push(Content::Scalar { value, style }, anchor, tag, span)?;
                self.count(anchor, 1, line)
            }
            Event::Alias(anchor) => {
                self.push(Content::Alias(anchor), 0, None, span)?;
                match self.expanded.get(&anchor).copied() {
                    Some(size) => self.count(0, size, line),
                    // Its collection is not closed yet, so the alias contains itself.
                    None => Err(Rejection::Expansion { line }),
                }
            }
            Event::SequenceStart(style, anchor, tag) => {
                let index = self.push(Content::Sequence(style), anchor, tag, span)?;
                self.enter(index, anchor);
                Ok(())
            }
            Event::MappingStart(style, anchor, tag) => {
                let index = self.push(Content::Mapping(style), anchor, tag, span)?;
                let start = self.tree.nodes[index].bytes.start;
                let is_template = style == StructureStyle::Flow
                    && self
                        .text
                        .get(start..)
                        .is_some_and(|rest| rest.starts_with("{{"));
                if is_template {
                    return Err(Rejection::Template { line });
                }
                self.enter(index, anchor);
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open {
                    index,
                    anchor,
                    size,
                }) = self.open.pop()
                else {
                    return Err(Rejection::Unproven("the parser closed a list twice"));
                };
                self.tree.nodes[index].end = self.tree.nodes.len();
                self.count(anchor, size, line)
            }
            Event::Anchor(..) | Event::UnresolvedAlias(..) => Err(Rejection::Unproven(
                "the parser returned an event that was not requested",
            )),
            _ => Err(Rejection::Unproven("the parser returned an unknown event")),
        }
    }

    fn push(
        &mut self,
        content: Content<'a>,
        anchor: usize,
        tag: Option<Cow<'a, Tag>>,
        span: &Span,
    ) -> Result<usize, Rejection> {
        let index = self.tree.nodes.len();
        if index == MAX_NODES {
            return Err(Rejection::TooManyNodes);
        }
        let Some(bytes) = span.byte_range() else {
            return Err(Rejection::Unproven("the parser returned no position"));
        };
        self.tree.nodes.push(Node {
            content,
            is_anchored: anchor != 0,
            tag,
            bytes,
            line: span.start.line(),
            end: index + 1,
        });
        Ok(index)
    }

    fn enter(&mut self, index: usize, anchor: usize) {
        self.open.push(Open {
            index,
            anchor,
            size: 1,
        });
    }

    /// Counts a complete node, with its descendants, for its anchor and its parent.
    fn count(&mut self, anchor: usize, size: u64, line: usize) -> Result<(), Rejection> {
        if anchor != 0 {
            self.expanded.insert(anchor, size);
        }
        let total = match self.open.last_mut() {
            Some(parent) => {
                parent.size = parent.size.saturating_add(size);
                parent.size
            }
            None => size,
        };
        if total > MAX_EXPANDED_NODES {
            return Err(Rejection::Expansion { line });
        }
        Ok(())
    }
}
