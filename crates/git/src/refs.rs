//! Checks the arguments of git: branches, tags, paths in a repository, commit messages.

use crate::Commit;

/// The trailer by which a run recognizes its own commit after a lost response.
pub const RUN_TRAILER: &str = "Orchestrator-Run";

/// Maximum length of a branch name and of a path, in bytes.
pub const LIMIT: usize = 200;

/// Checks whether this can be the name of a branch. It must follow git's own rules, and must not be
/// mistaken for an option, a full reference or `HEAD`.
///
/// # Errors
/// Describes the first violation.
pub fn check_branch(name: &str) -> Result<(), String> {
    check_name("branch", "refs/heads/", name)
}

/// Checks whether this can be the name of a tag. The rules are those of [`check_branch`].
///
/// # Errors
/// Describes the first violation.
pub fn check_tag(name: &str) -> Result<(), String> {
    check_name("tag", "refs/tags/", name)
}

/// A reference to one commit, as a user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A commit.
    Commit(Commit),
    /// `refs/heads/` and this name.
    Branch(String),
    /// `refs/tags/` and this name.
    Tag(String),
    /// The name of a branch or of a tag. If both exist, nobody knows which one is meant.
    Name(String),
}

impl Reference {
    /// Parses a full commit ID, `refs/heads/x`, `refs/tags/x` or a plain name.
    ///
    /// # Errors
    /// Describes the first violation.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(commit) = Commit::parse(text) {
            return Ok(Self::Commit(commit));
        }
        if let Some(branch) = text.strip_prefix("refs/heads/") {
            return check_branch(branch).map(|()| Self::Branch(branch.to_owned()));
        }
        if let Some(tag) = text.strip_prefix("refs/tags/") {
            return check_tag(tag).map(|()| Self::Tag(tag.to_owned()));
        }
        check_name("reference", "refs/heads/' or 'refs/tags/", text)
            .map(|()| Self::Name(text.to_owned()))
    }
}

fn check_name(kind: &str, prefix: &str, name: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("'{}' cannot be a {kind}: {why}", shown(name)));
    if name.is_empty() {
        return Err(format!("a {kind} needs a name"));
    }
    if name.len() > LIMIT {
        return wrong(&format!("it is longer than {LIMIT} bytes"));
    }
    if name.starts_with('-') {
        return wrong("it begins with '-'");
    }
    if name == "HEAD" || name == "@" {
        return wrong("git means the current commit by it");
    }
    if name.starts_with("refs/") {
        return wrong(&format!("write the name without '{prefix}'"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong("it holds a space, a control character or one outside ASCII");
    }
    if let Some(character) = name
        .chars()
        .find(|character| "~^:?*[\\".contains(*character))
    {
        return wrong(&format!("it holds '{character}'"));
    }
    if name.contains("..") || name.contains("@{") {
        return wrong("it holds '..' or '@{'");
    }
    if name.ends_with('.') {
        return wrong("it ends with '.'");
    }
    for part in name.split('/') {
        if part.is_empty() {
            return wrong("it begins or ends with '/', or holds '//'");
        }
        if part.starts_with('.') || part.ends_with(".lock") {
            return wrong("a part of it begins with '.' or ends with '.lock'");
        }
    }
    Ok(())
}

/// Checks whether this can be a path in a repository: relative, below the root, not one of git's own files.
/// A trailing `/` is allowed. `""` and `.` are not allowed: callers handle the root themselves.
///
/// # Errors
/// Describes the first violation.
pub fn check_path(path: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        Err(format!(
            "'{}' cannot be a path in the repository: {why}",
            shown(path)
        ))
    };
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if path.len() > LIMIT {
        return wrong(&format!("it is longer than {LIMIT} bytes"));
    }
    if path.starts_with('/') {
        return wrong("it begins with '/'; write it relative to the root of the repository");
    }
    if path
        .chars()
        .any(|character| character.is_control() || character == '\\')
    {
        return wrong("it holds a control character or '\\'");
    }
    for part in path.strip_suffix('/').unwrap_or(path).split('/') {
        if matches!(part, "" | "." | "..") {
            return wrong("it holds '//', or a part that is '.' or '..'");
        }
        if part.starts_with('-') {
            return wrong("a part of it begins with '-'");
        }
        if part
            .get(..4)
            .is_some_and(|start| start.eq_ignore_ascii_case(".git"))
        {
            return wrong("a part of it begins with '.git', which is git's own");
        }
    }
    Ok(())
}

/// Maximum length of a commit message, in characters.
pub const MESSAGE_LIMIT: usize = 2000;

/// Checks whether this can be a user's commit message. It must have visible text and no control characters
/// except line breaks. It must not contain the trailer by which a run recognizes its own commit.
///
/// Caveat: the API server checks the same with the rule of `output.commitMessage` in the DocsRun's schema.
/// A message that passes there must pass here, or a run fails after its agent has worked.
///
/// # Errors
/// Describes the first violation.
pub fn check_message(message: &str) -> Result<(), String> {
    if message.chars().count() > MESSAGE_LIMIT {
        return Err(format!("it is longer than {MESSAGE_LIMIT} characters"));
    }
    if message.chars().all(char::is_whitespace) {
        return Err("it has no words".to_owned());
    }
    if message
        .chars()
        .any(|character| character.is_control() && character != '\n')
    {
        return Err("it holds a control character that is no line break".to_owned());
    }
    let reserved = RUN_TRAILER.to_ascii_lowercase();
    let blank = |character: char| character.is_whitespace() && character != '\n';
    let is_reserved = message
        .to_ascii_lowercase()
        .split(&reserved)
        .skip(1)
        .any(|rest| rest.trim_start_matches(blank).starts_with(':'));
    if is_reserved {
        return Err(format!(
            "it holds '{RUN_TRAILER}:', which only the operator writes"
        ));
    }
    Ok(())
}

/// Returns the beginning of a value for a message, without control characters.
fn shown(value: &str) -> String {
    value
        .chars()
        .take(LIMIT)
        .map(|character| {
            if character.is_control() {
                '?'
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn branches() {
        let longest = "b".repeat(LIMIT);
        for name in [
            "main",
            "docs/run-1",
            "feature/a.b",
            "a-b",
            "v1.2",
            "@x",
            "x@",
            "a{b}",
            "HEAD/x",
            "head",
            "user@host",
            "x.lockx",
            "a+b=c;d|e&f$g'h\"i",
            "heads/refs/x",
            &longest,
        ] {
            assert_eq!(check_branch(name), Ok(()), "{name}");
            let answer = Command::new("git")
                .args(["check-ref-format", "--branch", name])
                .output();
            assert!(answer.unwrap().status.success(), "git refuses {name}");
        }
        let too_long = "b".repeat(LIMIT + 1);
        for (name, words) in [
            ("", "needs a name"),
            (too_long.as_str(), "longer than"),
            ("-x", "begins with '-'"),
            ("--upload-pack=x", "begins with '-'"),
            ("HEAD", "current commit"),
            ("@", "current commit"),
            ("refs/heads/main", "without 'refs/heads/'"),
            ("a b", "a space"),
            ("a\nb", "control"),
            ("a\u{7f}", "control"),
            ("ä", "ASCII"),
            ("a~1", "'~'"),
            ("a^", "'^'"),
            ("a:b", "':'"),
            ("a?", "'?'"),
            ("a*", "'*'"),
            ("a[b", "'['"),
            ("a\\b", "'\\'"),
            ("a..b", "'..'"),
            ("a@{1", "'@{'"),
            ("a.", "ends with '.'"),
            ("/a", "'/'"),
            ("a/", "'/'"),
            ("a//b", "'//'"),
            (".a", "begins with '.'"),
            ("a/.b", "begins with '.'"),
            ("a.lock", "'.lock'"),
            ("a.lock/b", "'.lock'"),
        ] {
            let error = check_branch(name).unwrap_err();
            assert!(error.contains(words), "{name}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }

    /// A tag is never taken for a branch, and a plain name is neither.
    #[test]
    fn references() {
        let id = "ab".repeat(20);
        for (text, reference) in [
            (id.as_str(), Reference::Commit(Commit::parse(&id).unwrap())),
            ("refs/heads/main", Reference::Branch("main".to_owned())),
            ("refs/tags/v1", Reference::Tag("v1".to_owned())),
            ("v1", Reference::Name("v1".to_owned())),
            ("heads/v1", Reference::Name("heads/v1".to_owned())),
            ("abc123", Reference::Name("abc123".to_owned())),
        ] {
            assert_eq!(Reference::parse(text), Ok(reference), "{text}");
        }
        for (text, words) in [
            ("", "needs a name"),
            ("refs/tags/", "a tag needs a name"),
            ("refs/heads/-x", "cannot be a branch"),
            ("refs/pull/1/head", "without 'refs/heads/' or 'refs/tags/'"),
            ("HEAD", "current commit"),
            ("--upload-pack=x", "begins with '-'"),
            ("v1^{}", "'^'"),
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(check_tag("v1"), Ok(()));
        assert!(check_tag("refs/tags/v1").is_err());
    }

    #[test]
    fn what_passes_passes_git() {
        // Every punctuation mark next to a letter, a slash, a dot and '@'.
        let marks = (0x20..0x7f_u8).filter(|byte| !byte.is_ascii_alphanumeric());
        for character in marks.map(char::from) {
            for name in [
                format!("{character}"),
                format!("{character}a"),
                format!("a{character}"),
                format!("a{character}b"),
                format!("a/{character}"),
                format!("{character}/a"),
                format!("a.{character}"),
                format!("@{character}"),
            ] {
                if check_branch(&name).is_ok() {
                    let answer = Command::new("git")
                        .args(["check-ref-format", "--branch", &name])
                        .output();
                    assert!(answer.unwrap().status.success(), "git refuses {name}");
                }
            }
        }
    }

    #[test]
    fn paths() {
        let longest = "p".repeat(LIMIT);
        for path in [
            "docs", "docs/", "a/b/c", "a b", "ä/ö", ".hidden", ".g", "x.git", "a-", "...", &longest,
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        let too_long = "p".repeat(LIMIT + 1);
        for (path, words) in [
            ("", "empty"),
            (too_long.as_str(), "longer than"),
            ("/", "begins with '/'"),
            ("/etc", "begins with '/'"),
            (".", "'.'"),
            ("./", "'.'"),
            ("..", "'..'"),
            ("a/../b", "'..'"),
            ("a/./b", "'.'"),
            ("a//b", "'//'"),
            ("a//", "'//'"),
            ("-a", "begins with '-'"),
            ("a/-b", "begins with '-'"),
            (".git", "'.git'"),
            (".GIT/hooks", "'.git'"),
            ("a/.gitmodules", "'.git'"),
            ("a\\b", "'\\'"),
            ("a\0b", "control"),
            ("a\u{85}b", "control"),
        ] {
            let error = check_path(path).unwrap_err();
            assert!(error.contains(words), "{path}: {error}");
        }
    }

    #[test]
    fn messages() {
        let longest = "\u{1f600}".repeat(MESSAGE_LIMIT);
        for message in [
            "Describe the API",
            "a\n\nb: \"c\"\n",
            "\u{a0}a",
            "a\u{200b}\u{2028}b",
            "\u{200b}",
            "Orchestrator-Run",
            "Orchestrator-Run\n: x",
            "Orchestrator-Running: x",
            "Orchestrator- Run: x",
            "Orche\u{17f}trator-Run: x",
            "a: Orchestrator-Run",
            &longest,
        ] {
            assert_eq!(check_message(message), Ok(()), "{message:?}");
        }
        let too_long = "a".repeat(MESSAGE_LIMIT + 1);
        for (message, words) in [
            ("", "no words"),
            (" \n", "no words"),
            ("\u{a0}\u{2003}\u{2028}\u{2029}\u{3000}", "no words"),
            (&too_long, "longer than 2000"),
            ("a\tb", "control"),
            ("a\r\nb", "control"),
            ("a\0", "control"),
            ("a\u{1b}[0m", "control"),
            ("a\u{7f}", "control"),
            ("a\u{80}", "control"),
            ("a\u{85}b", "control"),
            ("a\u{9f}", "control"),
            ("Orchestrator-Run: x", "only the operator"),
            ("a\n  orchestrator-run : x", "only the operator"),
            ("a\nORCHESTRATOR-RUN\u{a0}: x", "only the operator"),
            ("a\nOrchestrator-Run\u{2003} :x", "only the operator"),
            ("a Orchestrator-Run: x", "only the operator"),
            ("Orchestrator-Run Orchestrator-Run: x", "only the operator"),
        ] {
            let error = check_message(message).unwrap_err();
            assert!(error.contains(words), "{message:?}: {error}");
        }
    }
}
