//! Parses the response of `git-upload-pack`: its greeting, and the list of references.

use crate::Commit;

use super::pkt::{Pkt, Pkts, line};
use super::{Heads, Question, References};

/// Maximum number of bytes of one response.
const BYTES_LIMIT: usize = 4 * 1024 * 1024;

/// Maximum number of references in one response.
const REFS_LIMIT: usize = 100_000;

/// The reason why a response cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It does not come from git. The text gives the finding.
    NotGit(&'static str),
    /// It exceeds the limits.
    TooMuch,
    /// The server rejected the request, with this text.
    Refused(String),
}

impl From<super::pkt::NotPkt> for Wrong {
    fn from(_: super::pkt::NotPkt) -> Self {
        Self::NotGit("the server's answer is not git's")
    }
}

/// Progress of reading a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// More data must arrive.
    More,
    /// The server supports version 2 and waits for a command, in this object format.
    Greeted(Option<String>),
    /// The list is complete.
    Listed,
}

/// Parses a response as it arrives.
#[derive(Debug)]
pub(super) struct Answer {
    pkts: Pkts,
    bytes: usize,
    refs: usize,
    stage: Stage,
    found: References,
}

#[derive(Debug)]
enum Stage {
    /// Nothing was read yet.
    Start,
    /// `# service=git-upload-pack`, over http only, and a flush after it.
    Service,
    /// Capabilities of version 2.
    Capabilities {
        can_list: bool,
        format: Option<String>,
    },
    /// References, in any version.
    Refs,
}

impl Answer {
    pub(super) fn new(question: &Question) -> Self {
        Self::to_names(&question.branches, &question.tags)
    }

    fn to_names(branches: &[String], tags: &[String]) -> Self {
        let unknown =
            |names: &[String]| -> Heads { names.iter().map(|name| (name.clone(), None)).collect() };
        Self {
            pkts: Pkts::default(),
            bytes: 0,
            refs: 0,
            stage: Stage::Start,
            found: References {
                branches: unknown(branches),
                tags: unknown(tags),
            },
        }
    }

    /// Creates a parser for the response to [`request`].
    pub(super) fn to_request(question: &Question) -> Self {
        Self {
            stage: Stage::Refs,
            ..Self::new(question)
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<Progress, Wrong> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > BYTES_LIMIT {
            return Err(Wrong::TooMuch);
        }
        self.pkts.put(bytes);
        while let Some(pkt) = self.pkts.take()? {
            let progress = match pkt {
                Pkt::Flush => self.flush()?,
                Pkt::Line(line) => self.line(&line)?,
                Pkt::Mark => {
                    return Err(Wrong::NotGit(
                        "the server's answer has parts that git's has not",
                    ));
                }
            };
            if progress != Progress::More {
                return Ok(progress);
            }
        }
        Ok(Progress::More)
    }

    /// Returns the listed references.
    pub(super) fn into_references(self) -> References {
        self.found
    }

    fn flush(&mut self) -> Result<Progress, Wrong> {
        match &mut self.stage {
            Stage::Start => Err(Wrong::NotGit("the server's answer is empty")),
            Stage::Service => {
                self.stage = Stage::Start;
                Ok(Progress::More)
            }
            Stage::Capabilities {
                can_list: true,
                format,
            } => Ok(Progress::Greeted(format.take())),
            Stage::Capabilities {
                can_list: false, ..
            } => Err(Wrong::NotGit("the server cannot list references")),
            Stage::Refs => Ok(Progress::Listed),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<Progress, Wrong> {
        if let Some(words) = line.strip_prefix(b"ERR ") {
            return Err(Wrong::Refused(String::from_utf8_lossy(words).into_owned()));
        }
        match &mut self.stage {
            Stage::Start if line == b"# service=git-upload-pack" => self.stage = Stage::Service,
            Stage::Start if line == b"version 2" => {
                self.stage = Stage::Capabilities {
                    can_list: false,
                    format: None,
                };
            }
            Stage::Start if line == b"version 1" => self.stage = Stage::Refs,
            Stage::Start => {
                self.stage = Stage::Refs;
                self.reference(line)?;
            }
            Stage::Service => return Err(Wrong::NotGit("the server's answer is not git's")),
            Stage::Capabilities { can_list, format } => {
                if line == b"ls-refs" || line.starts_with(b"ls-refs=") {
                    *can_list = true;
                }
                // Only a known value is sent back to the server.
                if line == b"object-format=sha256" {
                    *format = Some("sha256".to_owned());
                }
            }
            Stage::Refs => self.reference(line)?,
        }
        Ok(Progress::More)
    }

    /// Parses `ID NAME`. After a NUL (version 0) or a space (version 2) attributes follow. Only `peeled:ID` is
    /// read: the commit of an annotated tag. Versions 0 and 1 list that commit as `NAME^{}` after the tag.
    fn reference(&mut self, line: &[u8]) -> Result<(), Wrong> {
        self.refs += 1;
        if self.refs > REFS_LIMIT {
            return Err(Wrong::TooMuch);
        }
        let mut fields = line.splitn(2, |byte| *byte == b' ');
        let (Some(id), Some(rest)) = (fields.next(), fields.next()) else {
            return Err(NOT_A_LIST);
        };
        let mut parts = rest.split(|byte| matches!(byte, 0 | b' '));
        let name = parts.next().unwrap_or_default();
        let is_id = matches!(id.len(), 40 | 64) && id.iter().all(u8::is_ascii_hexdigit);
        if !is_id && id != b"unborn" && id != b"shallow" {
            return Err(NOT_A_LIST);
        }
        if let Some(branch) = name.strip_prefix(b"refs/heads/") {
            if let Some(head) = asked(&mut self.found.branches, branch) {
                *head = Some(commit(id)?);
            }
            return Ok(());
        }
        let Some(tag) = name.strip_prefix(b"refs/tags/") else {
            return Ok(());
        };
        // The names of references have no '^', so this is never a tag of its own.
        if let Some(tag) = tag.strip_suffix(b"^{}") {
            if let Some(found) = asked(&mut self.found.tags, tag) {
                *found = Some(commit(id)?);
            }
            return Ok(());
        }
        if let Some(found) = asked(&mut self.found.tags, tag) {
            let peeled = parts.find_map(|part| part.strip_prefix(b"peeled:"));
            *found = Some(commit(peeled.unwrap_or(id))?);
        }
        Ok(())
    }
}

const NOT_A_LIST: Wrong = Wrong::NotGit("the server's list of references is not git's");

/// Returns the place for the commit of a reference, if it was asked for.
fn asked<'a>(names: &'a mut Heads, name: &[u8]) -> Option<&'a mut Option<Commit>> {
    match std::str::from_utf8(name) {
        Ok(name) => names.get_mut(name),
        Err(_not_asked_for) => None,
    }
}

fn commit(id: &[u8]) -> Result<Commit, Wrong> {
    match std::str::from_utf8(id).map(Commit::parse) {
        Ok(Ok(commit)) => Ok(commit),
        Ok(Err(_)) | Err(_) => Err(NOT_A_LIST),
    }
}

/// Returns the command that lists these references, in version 2.
pub(super) fn request(question: &Question, format: Option<&str>) -> String {
    list_command(&question.branches, &question.tags, format)
}

fn list_command(branches: &[String], tags: &[String], format: Option<&str>) -> String {
    let mut text = line("command=ls-refs");
    if let Some(format) = format {
        text.push_str(&line(&format!("object-format={format}")));
    }
    text.push_str("0001");
    if !tags.is_empty() {
        text.push_str(&line("peel"));
    }
    for branch in branches {
        text.push_str(&line(&format!("ref-prefix refs/heads/{branch}")));
    }
    for tag in tags {
        text.push_str(&line(&format!("ref-prefix refs/tags/{tag}")));
    }
    text.push_str("0000");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1111111111111111111111111111111111111111";
    const ID_256: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    fn read(mut answer: Answer, text: &[u8]) -> (Result<Progress, Wrong>, Heads) {
        let progress = answer.put(text);
        (progress, answer.into_references().branches)
    }

    fn after_request(branches: &[String], tags: &[String]) -> Answer {
        Answer {
            stage: Stage::Refs,
            ..Answer::to_names(branches, tags)
        }
    }

    fn branches() -> Vec<String> {
        vec!["main".to_owned(), "docs/x".to_owned()]
    }

    fn heads(main: Option<&str>, docs: Option<&str>) -> Heads {
        let commit = |id: Option<&str>| id.map(|id| Commit::parse(id).unwrap());
        Heads::from([
            ("main".to_owned(), commit(main)),
            ("docs/x".to_owned(), commit(docs)),
        ])
    }

    #[test]
    fn answers_of_all_versions() {
        let service = format!("{}0000", line("# service=git-upload-pack"));
        let old = format!(
            "{}{}{}0000",
            line(&format!("{ID} HEAD\0multi_ack symref=HEAD:refs/heads/main")),
            line(&format!("{ID} refs/heads/main")),
            line(&format!("{ID_256} refs/heads/main-2")),
        );
        let empty = format!(
            "{}0000",
            line(&format!("{} capabilities^{{}}\0x", "0".repeat(40)))
        );
        let new = format!(
            "{}{}{}{}0000",
            line("version 2"),
            line("agent=git/2"),
            line("ls-refs=unborn"),
            line("object-format=sha1")
        );
        let new_256 = format!(
            "{}{}{}0000",
            line("version 2"),
            line("ls-refs"),
            line("object-format=sha256")
        );
        for (text, progress, found) in [
            (
                format!("{service}{old}"),
                Progress::Listed,
                heads(Some(ID), None),
            ),
            (old.clone(), Progress::Listed, heads(Some(ID), None)),
            (
                format!("{}{old}", line("version 1")),
                Progress::Listed,
                heads(Some(ID), None),
            ),
            (
                format!("{service}{empty}"),
                Progress::Listed,
                heads(None, None),
            ),
            (
                format!("{service}{new}"),
                Progress::Greeted(None),
                heads(None, None),
            ),
            (new, Progress::Greeted(None), heads(None, None)),
            (
                new_256,
                Progress::Greeted(Some("sha256".to_owned())),
                heads(None, None),
            ),
            (
                old.trim_end_matches("0000").to_owned(),
                Progress::More,
                heads(Some(ID), None),
            ),
        ] {
            assert_eq!(
                read(Answer::to_names(&branches(), &[]), text.as_bytes()),
                (Ok(progress), found),
                "{text}"
            );
        }
    }

    #[test]
    fn answers_to_the_request() {
        let text = format!(
            "{}{}{}0000",
            line(&format!(
                "{ID} refs/heads/docs/x symref-target:refs/heads/y"
            )),
            line(&format!("{ID} refs/heads/main/beside")),
            line("unborn HEAD symref-target:refs/heads/main"),
        );
        let (progress, found) = read(after_request(&branches(), &[]), text.as_bytes());
        assert_eq!(
            (progress, found),
            (Ok(Progress::Listed), heads(None, Some(ID)))
        );
        let none = read(after_request(&branches(), &[]), b"0000");
        assert_eq!(none, (Ok(Progress::Listed), heads(None, None)));
    }

    #[test]
    fn other_answers_are_refused() {
        let zero = "0".repeat(40);
        for text in [
            "<!DOCTYPE html>".to_owned(),
            "0000".to_owned(),
            "0001".to_owned(),
            line("hello"),
            line("hello world"),
            line(ID),
            line(&format!("{} refs/heads/main", "g".repeat(40))),
            line(&format!("{zero} refs/heads/main")),
            line(&format!("{} refs/heads/main", "A".repeat(40))),
            line("unborn refs/heads/main"),
            format!("{}{}", line("# service=git-upload-pack"), line("version 2")),
            format!("{}{}0000", line("version 2"), line("fetch=shallow")),
        ] {
            let (progress, _) = read(Answer::to_names(&branches(), &[]), text.as_bytes());
            assert!(
                matches!(progress, Err(Wrong::NotGit(_))),
                "{text}: {progress:?}"
            );
        }
        let (progress, _) = read(
            Answer::to_names(&branches(), &[]),
            line("ERR no\u{1b} such thing").as_bytes(),
        );
        assert_eq!(
            progress,
            Err(Wrong::Refused("no\u{1b} such thing".to_owned()))
        );
    }

    #[test]
    fn endless_answers_are_cut() {
        let short = line(&format!("{ID} refs/t"));
        let long = line(&format!("{ID} refs/tags/{}", "t".repeat(1000)));
        let garbage = "f".repeat(4096);
        for (line, most) in [
            (short, REFS_LIMIT),
            (long, BYTES_LIMIT / 1000),
            (garbage, 1),
        ] {
            let mut answer = Answer::to_names(&branches(), &[]);
            let mut count = 0;
            while answer.put(line.as_bytes()).is_ok() {
                count += 1;
                assert!(count <= most, "{count} times {line:.40}");
            }
            assert!(answer.put(b"0000").is_err());
        }
    }

    /// An annotated tag is an object of its own: its ID is no commit.
    #[test]
    fn tags_are_peeled_to_their_commits() {
        let tags = ["v1", "v2", "v3"].map(str::to_owned);
        let object = "3".repeat(40);
        let commit = |id: &str| Some(Commit::parse(id).unwrap());
        let wanted = References {
            branches: Heads::from([("main".to_owned(), None)]),
            tags: Heads::from([
                ("v1".to_owned(), commit(ID)),
                ("v2".to_owned(), commit(&object)),
                ("v3".to_owned(), None),
            ]),
        };
        let old = format!(
            "{}{}{}{}{}0000",
            line(&format!("{object} HEAD\0peeled:x")),
            line(&format!("{object} refs/tags/v1")),
            line(&format!("{ID} refs/tags/v1^{{}}")),
            line(&format!("{object} refs/tags/v2")),
            line(&format!("{ID} refs/tags/v2-rc^{{}}")),
        );
        let new = format!(
            "{}{}{}0000",
            line(&format!("{object} refs/tags/v1 peeled:{ID}")),
            line(&format!("{object} refs/tags/v2")),
            line(&format!("{object} refs/tags/v3/x peeled:{ID}")),
        );
        let main = ["main".to_owned()];
        for (mut answer, text) in [
            (Answer::to_names(&main, &tags), old),
            (after_request(&main, &tags), new),
        ] {
            assert_eq!(answer.put(text.as_bytes()), Ok(Progress::Listed), "{text}");
            assert_eq!(answer.into_references(), wanted, "{text}");
        }
        for wrong in [
            format!("{object} refs/tags/v1 peeled:"),
            format!("{object} refs/tags/v1 peeled:--upload-pack=x"),
            "unborn refs/tags/v1".to_owned(),
        ] {
            let mut answer = after_request(&main, &tags);
            assert_eq!(answer.put(line(&wrong).as_bytes()), Err(NOT_A_LIST));
        }
    }

    /// A branch and a tag of one name are two references.
    #[test]
    fn a_branch_and_a_tag_may_have_one_name() {
        let name = ["v1".to_owned()];
        let mut answer = after_request(&name, &name);
        let text = line(&format!("{ID} refs/heads/v1"));
        assert_eq!(answer.put(text.as_bytes()), Ok(Progress::More));
        let found = answer.into_references();
        assert!(found.branches["v1"].is_some());
        assert_eq!(found.tags["v1"], None);
    }

    #[test]
    fn the_request_is_git_s() {
        assert_eq!(
            list_command(&["main".to_owned()], &[], None),
            "0014command=ls-refs\n0001001fref-prefix refs/heads/main\n0000"
        );
        assert!(
            list_command(&branches(), &[], Some("sha256")).contains("0019object-format=sha256\n")
        );
        assert_eq!(
            list_command(&[], &["v1".to_owned()], None),
            "0014command=ls-refs\n00010009peel\n001cref-prefix refs/tags/v1\n0000"
        );
    }
}
