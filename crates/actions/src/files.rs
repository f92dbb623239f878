//! The files of a run, validated before they are sent.

use api::tasks::{CONTEXT_LIMIT, File};

/// Maximum number of files in a run.
pub const FILES: usize = 128;

/// Maximum length of a file name, in characters.
const NAME_LIMIT: usize = 253;

/// The reason why files are not valid as the files of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// There are no files.
    #[error("no files: a run needs at least one")]
    None,
    /// There are too many files.
    #[error("{count} files are too many: a run may have {FILES}")]
    TooMany {
        /// The number of files.
        count: usize,
    },
    /// The kind does not allow this name.
    #[error(
        "'{name}' cannot be the name of a file: letters, digits, '.', '_' and '-', the first one a letter or digit, at most {NAME_LIMIT}"
    )]
    Name {
        /// The invalid name.
        name: String,
    },
    /// Two files have the same name.
    #[error("two files have the name '{name}'")]
    Twice {
        /// The duplicate name.
        name: String,
    },
    /// The files are too large together.
    #[error(
        "the files have {size} bytes together, {CONTEXT_LIMIT} (900 KiB) are allowed; the largest is '{largest}'"
    )]
    TooLarge {
        /// The size of all files, in bytes.
        size: usize,
        /// The name of the largest file.
        largest: String,
    },
}

/// Checks that these are valid as all files of a run: 1 to [`FILES`] files, valid and unique names,
/// at most [`CONTEXT_LIMIT`] bytes together.
///
/// # Errors
/// The first violation, with the name of the file.
pub fn check(files: &[File]) -> Result<(), FilesError> {
    if files.is_empty() {
        return Err(FilesError::None);
    }
    if files.len() > FILES {
        return Err(FilesError::TooMany { count: files.len() });
    }
    for (index, file) in files.iter().enumerate() {
        let name = &file.filename;
        if !is_name(name) {
            return Err(FilesError::Name { name: name.clone() });
        }
        if files
            .iter()
            .take(index)
            .any(|other| other.filename == *name)
        {
            return Err(FilesError::Twice { name: name.clone() });
        }
    }
    let size = files
        .iter()
        .fold(0_usize, |sum, file| sum.saturating_add(file.content.len()));
    let largest = files.iter().max_by_key(|file| file.content.len());
    match largest {
        Some(largest) if size > CONTEXT_LIMIT => Err(FilesError::TooLarge {
            size,
            largest: largest.filename.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Returns whether the name matches the pattern in the CRD, `^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: usize) -> File {
        File {
            filename: name.to_owned(),
            content: "x".repeat(size),
        }
    }

    #[test]
    fn what_a_run_cannot_have_is_refused_by_name() {
        let long = "a".repeat(254);
        let name = |name: &str| FilesError::Name {
            name: name.to_owned(),
        };
        let cases = [
            (vec![], Some(FilesError::None)),
            (vec![file("task.md", 0)], None),
            (vec![file(&long[1..], 1)], None),
            (vec![file(&long, 1)], Some(name(&long))),
            (vec![file(".hidden", 1)], Some(name(".hidden"))),
            (vec![file("a/b.md", 1)], Some(name("a/b.md"))),
            (vec![file("ä.md", 1)], Some(name("ä.md"))),
            (
                vec![file("a.md", 1), file("b.md", 1), file("a.md", 2)],
                Some(FilesError::Twice {
                    name: "a.md".to_owned(),
                }),
            ),
            (
                vec![file("a.md", 1), file("b.md", CONTEXT_LIMIT)],
                Some(FilesError::TooLarge {
                    size: CONTEXT_LIMIT + 1,
                    largest: "b.md".to_owned(),
                }),
            ),
            (vec![file("b.md", CONTEXT_LIMIT)], None),
            (
                (0..129)
                    .map(|number| file(&number.to_string(), 1))
                    .collect(),
                Some(FilesError::TooMany { count: 129 }),
            ),
            (
                (0..128)
                    .map(|number| file(&number.to_string(), 1))
                    .collect(),
                None,
            ),
        ];
        for (files, wanted) in cases {
            assert_eq!(check(&files).err(), wanted);
        }
    }
}
