//! Creates the message of our commits, and recognizes our own commit.

use git::{Commit, refs::RUN_TRAILER};

use crate::{
    command::{Git, SHORT},
    failure::Failure,
    plan::Plan,
    stream,
};

/// The trailer with the run's name, for people.
const NAME: &str = "Orchestrator-Name";

/// Returns the complete commit message. Without a message of the user, there is a default.
pub(crate) fn message(words: &str, run: &str, uid: &str) -> String {
    let words = match words.trim() {
        "" => format!("Documentation by {run}"),
        words => words.to_owned(),
    };
    format!("{words}\n\n{NAME}: {run}\n{RUN_TRAILER}: {uid}\n")
}

/// A commit to create.
#[derive(Debug)]
pub(crate) struct Draft {
    /// `Name <address>`.
    pub(crate) author: String,
    pub(crate) parent: Commit,
    /// Seconds since 1970.
    pub(crate) seconds: u64,
    pub(crate) message: String,
    pub(crate) plan: Plan,
}

/// Creates a commit in our own repository.
///
/// # Errors
/// When git fails.
pub(crate) fn create(git: &Git, draft: Draft) -> Result<Commit, Failure> {
    // A commit of an earlier attempt, on another parent, may still have the name.
    git.local(
        &["fast-import", "--quiet", "--force", "--done"],
        Some(Box::new(move |out| {
            stream::write(
                out,
                &draft.author,
                draft.parent.as_str(),
                draft.seconds,
                &draft.message,
                &draft.plan,
            )
        })),
        SHORT,
    )?;
    let id = git.local(&["rev-parse", "--verify", stream::REF], None, SHORT)?;
    Commit::parse(String::from_utf8_lossy(&id).trim())
        .map_err(|error| git.step.failed(format!("'git fast-import' made {error}")))
}

/// The fields of a commit object that we read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) parents: Vec<String>,
    message: String,
}

impl Object {
    /// Parses the output of `git cat-file commit`.
    pub(crate) fn parse(object: &[u8]) -> Object {
        let text = String::from_utf8_lossy(object);
        let (header, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        Object {
            parents: header
                .lines()
                .filter_map(|line| line.strip_prefix("parent "))
                .map(str::to_owned)
                .collect(),
            message: message.to_owned(),
        }
    }

    /// Parses an entry of `git log` with the format `%H%n%P%n%B`. Returns `None` if it is none.
    pub(crate) fn parse_log(entry: &[u8]) -> Option<(Commit, Object)> {
        let text = String::from_utf8_lossy(entry);
        let mut lines = text.splitn(3, '\n');
        let commit = match Commit::parse(lines.next()?) {
            Ok(commit) => commit,
            Err(_not_a_commit) => return None,
        };
        let parents = lines.next()?.split(' ').filter(|id| !id.is_empty());
        let object = Object {
            parents: parents.map(str::to_owned).collect(),
            message: lines.next().unwrap_or_default().to_owned(),
        };
        Some((commit, object))
    }

    /// Returns whether the run with this UID created this commit on `parent`.
    pub(crate) fn is_of(&self, uid: &str, parent: &str) -> bool {
        self.has_trailer(uid) && self.parents == [parent]
    }

    /// Returns whether the last line of the message names the run with this UID.
    pub(crate) fn has_trailer(&self, uid: &str) -> bool {
        let last = self.message.trim_end().lines().last().unwrap_or_default();
        last.strip_prefix(RUN_TRAILER)
            .and_then(|rest| rest.strip_prefix(": "))
            == Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        for (words, wanted) in [
            (
                "",
                "Documentation by a/b\n\nOrchestrator-Name: a/b\nOrchestrator-Run: u\n",
            ),
            (
                " \n",
                "Documentation by a/b\n\nOrchestrator-Name: a/b\nOrchestrator-Run: u\n",
            ),
            (
                "One\n\nTwo\nSigned-off-by: x\n\n",
                "One\n\nTwo\nSigned-off-by: x\n\nOrchestrator-Name: a/b\nOrchestrator-Run: u\n",
            ),
        ] {
            assert_eq!(message(words, "a/b", "u"), wanted);
        }
    }

    #[test]
    fn entries_of_a_log_are_parsed() {
        let id = "ab".repeat(20);
        let parent = "cd".repeat(20);
        let entry = format!("{id}\n{parent}\nTitle\n\n{RUN_TRAILER}: u\n");
        let (commit, object) = Object::parse_log(entry.as_bytes()).unwrap();
        assert_eq!(commit.as_str(), id);
        assert!(object.is_of("u", &parent));
        let (_, root) = Object::parse_log(format!("{id}\n\n").as_bytes()).unwrap();
        assert_eq!(root.parents, Vec::<String>::new());
        assert_eq!(Object::parse_log(b"x\n\n"), None);
        assert_eq!(Object::parse_log(id.as_bytes()), None);
    }

    #[test]
    fn own_commit_is_known_by_its_last_line_and_only_parent() {
        let object = |parents: &[&str], message: &str| {
            let parents: String = parents.iter().map(|p| format!("parent {p}\n")).collect();
            let text = format!("tree t\n{parents}author a <b> 1 +0000\ngpgsig x\n y\n\n{message}");
            Object::parse(text.as_bytes())
        };
        let ours = message("Words", "a/b", "uid-1");
        assert!(object(&["p"], &ours).is_of("uid-1", "p"));
        let cases = [
            ("another run", object(&["p"], &ours), "uid-2", "p"),
            ("a beginning", object(&["p"], &ours), "uid-", "p"),
            ("another parent", object(&["q"], &ours), "uid-1", "p"),
            ("a merge", object(&["p", "q"], &ours), "uid-1", "p"),
            ("no parent", object(&[], &ours), "uid-1", "p"),
            (
                "not last",
                object(&["p"], &format!("{ours}\nmore")),
                "uid-1",
                "p",
            ),
            ("no message", object(&["p"], ""), "uid-1", "p"),
            (
                "in the header",
                Object::parse(b"tree t\nparent p\nOrchestrator-Run: uid-1"),
                "uid-1",
                "p",
            ),
        ];
        for (name, commit, uid, parent) in cases {
            assert!(!commit.is_of(uid, parent), "{name}");
        }
    }
}
