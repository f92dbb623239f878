//! Creates the message of our commits, and recognizes our own commit.

use git::refs::RUN_TRAILER;

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

    /// Returns whether the run with this UID created this commit on `parent`.
    pub(crate) fn is_of(&self, uid: &str, parent: &str) -> bool {
        let last = self.message.trim_end().lines().last().unwrap_or_default();
        let ours = last
            .strip_prefix(RUN_TRAILER)
            .and_then(|rest| rest.strip_prefix(": "))
            == Some(uid);
        ours && self.parents == [parent]
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
