//! The path of a field.

use std::fmt;

/// Maximum length of a path, in bytes.
pub const MAX_PATH_BYTES: usize = 200;

/// Path of a field, as in `spec.containers[0].image`, `metadata.annotations['a.b/c']` and
/// `images[name=x].newTag`. The last form selects the item of a list by one of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) step: Step,
    /// End of the part in the text of the path.
    end: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
    Item { key: String, value: String },
}

/// The reason for which a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path is empty or too long.
    #[error("a field path has 1 to {MAX_PATH_BYTES} bytes")]
    Length,
    /// A part is missing or not closed, or contains a character that it must not contain.
    #[error(
        "the field path is wrong at byte {0}; write it as in a.b[0].c['d.e'].images[name=x].newTag"
    )]
    At(usize),
}

impl FieldPath {
    /// Parses a path.
    ///
    /// # Errors
    /// Names the position of the first error.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() || text.len() > MAX_PATH_BYTES {
            return Err(PathError::Length);
        }
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let (step, length) = match rest.strip_prefix('[') {
                Some(inner) => bracket(inner).map(|(step, length)| (step, length + 1)),
                None => {
                    // Only the first part has no dot.
                    let dot = usize::from(at > 0);
                    let name = match (dot, rest.strip_prefix('.')) {
                        (0, _) => Some(rest),
                        (_, name) => name,
                    };
                    name.and_then(plain_key)
                        .map(|(step, length)| (step, length + dot))
                }
            }
            .ok_or(PathError::At(at))?;
            at += length;
            parts.push(Part { step, end: at });
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Returns the last key, if the path ends with a key.
    #[must_use]
    pub fn last_key(&self) -> Option<&str> {
        match self.parts.last().map(|part| &part.step) {
            Some(Step::Key(key)) => Some(key),
            Some(Step::Index(_) | Step::Item { .. }) | None => None,
        }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the text of the first `count` parts.
    pub(crate) fn first(&self, count: usize) -> &str {
        let last = count.checked_sub(1).and_then(|last| self.parts.get(last));
        &self.text[..last.map_or(0, |part| part.end)]
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn plain_key(text: &str) -> Option<(Step, usize)> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let key = &text[..end];
    is_name(key).then(|| (Step::Key(key.to_owned()), end))
}

/// Parses the text after `[`. The length includes the closing bracket.
fn bracket(text: &str) -> Option<(Step, usize)> {
    if let Some(inner) = text.strip_prefix('\'') {
        let (key, rest) = inner.split_once('\'')?;
        let is_key = !key.is_empty() && !key.chars().any(char::is_control);
        let is_closed = is_key && rest.starts_with(']');
        return is_closed.then(|| (Step::Key(key.to_owned()), key.len() + 3));
    }
    let (inner, _) = text.split_once(']')?;
    let step = match inner.split_once('=') {
        Some((key, value)) => (is_name(key) && is_name(value)).then(|| Step::Item {
            key: key.to_owned(),
            value: value.to_owned(),
        })?,
        None => Step::Index(index(inner)?),
    };
    Some((step, inner.len() + 1))
}

fn index(text: &str) -> Option<usize> {
    let is_number = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Some(number),
        Ok(_) | Err(_) => None,
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| {
        !c.is_control() && !c.is_whitespace() && !matches!(c, '[' | ']' | '\'' | '"' | '=')
    };
    !text.is_empty() && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Step {
        Step::Key(text.to_owned())
    }

    #[test]
    fn paths_are_parsed() {
        let item = Step::Item {
            key: "name".to_owned(),
            value: "ghcr.io/a/b:5".to_owned(),
        };
        for (text, expected) in [
            ("a", vec![key("a")]),
            (
                "spec.chart.version",
                vec![key("spec"), key("chart"), key("version")],
            ),
            ("a[0]", vec![key("a"), Step::Index(0)]),
            (
                "a[0][12].b",
                vec![key("a"), Step::Index(0), Step::Index(12), key("b")],
            ),
            ("a['b.c/d'].e", vec![key("a"), key("b.c/d"), key("e")]),
            ("['a b']", vec![key("a b")]),
            (
                "images[name=ghcr.io/a/b:5].newTag",
                vec![key("images"), item, key("newTag")],
            ),
        ] {
            let path = FieldPath::parse(text).unwrap();
            let steps: Vec<Step> = path.parts.iter().map(|part| part.step.clone()).collect();
            assert_eq!(steps, expected, "{text}");
            assert_eq!(path.to_string(), text);
            assert_eq!(path.first(path.parts.len()), text);
        }
    }

    #[test]
    fn beginnings_of_paths() {
        let path = FieldPath::parse("a['b.c'][name=x].d").unwrap();
        for (count, expected) in [
            (0, ""),
            (1, "a"),
            (2, "a['b.c']"),
            (3, "a['b.c'][name=x]"),
            (4, "a['b.c'][name=x].d"),
        ] {
            assert_eq!(path.first(count), expected);
        }
        assert_eq!(path.last_key(), Some("d"));
        assert_eq!(FieldPath::parse("a[0]").unwrap().last_key(), None);
    }

    #[test]
    fn wrong_paths_are_rejected() {
        for (text, at) in [
            (".a", 0),
            ("a.", 1),
            ("a..b", 1),
            ("a b", 0),
            ("a[", 1),
            ("a[]", 1),
            ("a[-1]", 1),
            ("a[1", 1),
            ("a[1234567]", 1),
            ("a[x]", 1),
            ("a[=x]", 1),
            ("a[name=]", 1),
            ("a['b'", 1),
            ("a['']", 1),
            ("a['b]", 1),
            ("a[0]b", 4),
            ("a]", 0),
            ("a\"b", 0),
        ] {
            assert_eq!(FieldPath::parse(text), Err(PathError::At(at)), "{text}");
        }
        assert_eq!(FieldPath::parse(""), Err(PathError::Length));
        let long = "a".repeat(MAX_PATH_BYTES + 1);
        assert_eq!(FieldPath::parse(&long), Err(PathError::Length));
    }
}
