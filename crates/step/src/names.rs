//! Checks the names of the agent's files before they are committed.

/// Returns whether a name is rejected. Rejected are names that Git, or a file system that Git runs on,
/// could treat as its own. Names that cannot be displayed are rejected, too.
///
/// Guarantees: no accepted name is `.git`, or begins with it, on a file system that ignores case, ignores
/// invisible characters (HFS+) or has short names (NTFS).
pub(crate) fn refused(name: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(name) else {
        return true;
    };
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == '\\') {
        return true;
    }
    let plain: String = text
        .chars()
        .filter(|c| !invisible(*c))
        .flat_map(char::to_lowercase)
        .collect();
    plain.starts_with(".git") || short_name(&plain)
}

/// Returns whether any name in a path is rejected.
pub(crate) fn path_refused(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(refused)
}

/// Formats a path for people. Characters that cannot be displayed are escaped.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}

/// Returns whether HFS+ ignores a code point when it compares names. The list is Git's own.
fn invisible(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Returns whether NTFS may use this name as a short name: `git~1` for `.git`, `gi7eba~1` for
/// `.gitmodules`.
fn short_name(name: &str) -> bool {
    name.starts_with("gi")
        && name
            .split_once('~')
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_git_are_refused() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git ",
            ".git.",
            ".gitattributes",
            ".gitmodules",
            ".GITignore",
            "git~1",
            "GIT~1",
            "git~10",
            "GIT~1.txt",
            "gi7eba~1",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git::$INDEX_ALLOCATION",
            "",
            "a\nb",
            "a\tb",
            "a\u{7f}",
            "a\u{85}b",
            "a\\b",
        ] {
            assert!(refused(name.as_bytes()), "{name:?}");
        }
        assert!(refused(b"caf\xe9"));
    }

    #[test]
    fn other_names_pass() {
        for name in [
            "a.md",
            ".hidden",
            "git",
            "git.md",
            "gitlab~",
            "gi~x",
            "github.md",
            "ő",
            "a b",
            "-x",
            "\"",
            "...",
            ".editorconfig",
            "a~1",
        ] {
            assert!(!refused(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn one_refused_name_refuses_the_path() {
        assert!(path_refused(b"docs/.git/config"));
        assert!(path_refused(b"docs//a"));
        assert!(!path_refused(b"docs/a.md"));
    }

    #[test]
    fn shown_paths_have_no_control_characters() {
        assert_eq!(shown(b"a\nb\x1b[0m\xff"), "a\\nb\\u{1b}[0m\u{fffd}");
    }
}
