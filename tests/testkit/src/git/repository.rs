//! A repository as its owner sees it: on the server's disk, past its doors.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::{Activity, scripts, write_private, write_program};
use crate::machine::SYSTEM_PATH;

/// For one command of git on a small repository: milliseconds.
const GIT_SECONDS: &str = "60";
/// Of a log: a test makes a handful of commits.
const LOG_LIMIT: &str = "-n1000";
/// Between fields and between commits; no text of a test has them.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';

/// What a commit does to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A file with this content.
    File(&'a [u8]),
    /// The same, and executable.
    Program(&'a [u8]),
    /// A symbolic link to this target.
    Link(&'a str),
    /// A submodule at this commit.
    Submodule(&'a str),
    /// Nothing is there any more.
    Removed,
}

/// How the server answers a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// At once, with yes.
    Accept,
    /// With no, and this line for the user.
    Refuse(String),
    /// With yes, but branches change only after this time.
    SlowBefore(Duration),
    /// With yes; branches change at once, the answer comes after this time.
    SlowAfter(Duration),
}

/// How a repository answers at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// As any.
    Normal,
    /// Accepts a connection, a password or key, and then says nothing for ten minutes.
    Silent,
    /// Sends so many bytes a second.
    Slow(u32),
    /// Over http and https only: this code and nothing else.
    Status(u16),
    /// Over http and https only: sends the client on to this repository.
    Redirect(String),
}

/// A commit as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its hash.
    pub id: String,
    /// Hashes of its parents.
    pub parents: Vec<String>,
    /// `Name <address>`.
    pub author: String,
    /// All of it, without the last line's end.
    pub message: String,
    /// `Name: value` lines at the message's end.
    pub trailers: Vec<(String, String)>,
}

/// A repository on a [`super::Server`].
#[derive(Debug, Clone)]
pub struct Repository {
    /// In URLs, without `.git`.
    pub name: String,
    /// Its bare folder.
    pub folder: PathBuf,
    here: PathBuf,
}

impl Repository {
    pub(super) fn create(
        here: &Path,
        name: &str,
        branch: &str,
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let plain = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'/')
        };
        ensure!(
            name.bytes().all(plain) && name.split('/').all(|part| !part.is_empty()),
            "repository '{name}': lower-case letters, digits, '-' and '/'"
        );
        let repository = Self::at(here, name)?;
        ensure!(
            !repository.folder.exists(),
            "there is a repository '{name}' already"
        );
        fs::create_dir_all(&repository.folder)?;
        repository.git(&["init", "--quiet", "--bare", "--initial-branch", branch, "."])?;
        for key in ["receive.denyNonFastForwards", "receive.denyDeletes"] {
            repository.set_config(key, "true")?;
        }
        repository.set_hook(&Hook::Accept)?;
        let entries: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, Entry::File(text.as_bytes())))
            .collect();
        repository.commit(branch, "First commit", &entries)?;
        Ok(repository)
    }

    pub(super) fn open(here: &Path, name: &str) -> Result<Self> {
        let repository = Self::at(here, name)?;
        ensure!(repository.folder.is_dir(), "no repository '{name}'");
        Ok(repository)
    }

    fn at(here: &Path, name: &str) -> Result<Self> {
        let here = here.canonicalize()?;
        Ok(Self {
            name: name.to_owned(),
            folder: here.join("repositories").join(format!("{name}.git")),
            here,
        })
    }

    /// Writes a commit on top of a branch, or the first one of a new branch; its hash. No hook
    /// runs, and it counts as no push: somebody else did it.
    ///
    /// # Errors
    /// When git refuses a path.
    pub fn commit(
        &self,
        branch: &str,
        message: &str,
        entries: &[(&str, Entry<'_>)],
    ) -> Result<String> {
        let parent = self.head(branch)?;
        let stream = stream(branch, parent.as_deref(), message, entries);
        let arguments = ["fast-import", "--quiet", "--date-format=now"];
        self.checked(&arguments, &stream)?;
        self.head(branch)?
            .with_context(|| format!("no branch '{branch}' after a commit on it"))
    }

    /// The commit that a branch is at; nothing if there is no such branch.
    ///
    /// # Errors
    /// When git cannot read the repository.
    pub fn head(&self, branch: &str) -> Result<Option<String>> {
        Ok(self.branches()?.remove(branch))
    }

    /// All branches and their commits.
    ///
    /// # Errors
    /// When git cannot read the repository.
    pub fn branches(&self) -> Result<BTreeMap<String, String>> {
        let text = self.git(&[
            "for-each-ref",
            "--format=%(objectname) %(refname:lstrip=2)",
            "refs/heads/",
        ])?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs
            .map(|(commit, branch)| (branch.to_owned(), commit.to_owned()))
            .collect())
    }

    /// Puts a branch at a commit, wherever it was before.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn set_branch(&self, branch: &str, commit: &str) -> Result<()> {
        self.git(&["update-ref", &format!("refs/heads/{branch}"), commit])?;
        Ok(())
    }

    /// Puts an annotated tag at a commit.
    ///
    /// # Errors
    /// When there is no such commit, or the tag exists.
    pub fn set_tag(&self, tag: &str, commit: &str) -> Result<()> {
        let author = ["-c", "user.name=Tests", "-c", "user.email=tests@example.org"];
        let create = ["tag", "--annotate", "--message", "A tag", tag, commit];
        self.git(&[&author[..], &create[..]].concat())?;
        Ok(())
    }

    /// Removes a branch.
    ///
    /// # Errors
    /// When git cannot.
    pub fn delete_branch(&self, branch: &str) -> Result<()> {
        self.git(&["update-ref", "-d", &format!("refs/heads/{branch}")])?;
        Ok(())
    }

    /// A file's content at a commit or branch; nothing if it is not in it.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn read(&self, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        if !self.files(commit)?.contains_key(path) {
            return Ok(None);
        }
        let output = self.checked(&["cat-file", "blob", &format!("{commit}:{path}")], b"")?;
        Ok(Some(output.stdout))
    }

    /// Paths of all files at a commit or branch, with git's modes (`100644`, `120000`, …).
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn files(&self, commit: &str) -> Result<BTreeMap<String, String>> {
        let text = self.git(&["ls-tree", "-r", "-z", "--full-tree", commit])?;
        let mut files = BTreeMap::new();
        for line in text.split_terminator('\0') {
            let (what, path) = line.split_once('\t').context("git's list has no path")?;
            let mode = what.split(' ').next().unwrap_or_default();
            files.insert(path.to_owned(), mode.to_owned());
        }
        Ok(files)
    }

    /// Commits of a branch, newest first, at most 1000.
    ///
    /// # Errors
    /// When there is no such branch.
    pub fn log(&self, branch: &str) -> Result<Vec<Commit>> {
        let format =
            "--format=%H%x1f%P%x1f%an <%ae>%x1f%B%x1f%(trailers:only,unfold)%x1e".to_owned();
        let reference = format!("refs/heads/{branch}");
        let text = self.git(&["log", LOG_LIMIT, &format, &reference])?;
        text.split(RECORD)
            .map(|record| record.trim_start_matches('\n'))
            .filter(|record| !record.is_empty())
            .map(parse_commit)
            .collect()
    }

    /// A setting of this repository, such as `http.receivepack=false`: pushes over https get 403.
    ///
    /// # Errors
    /// When git refuses it.
    pub fn set_config(&self, key: &str, value: &str) -> Result<()> {
        self.git(&["config", key, value])?;
        Ok(())
    }

    /// How it answers pushes from now on.
    ///
    /// # Errors
    /// When the hooks cannot be written.
    pub fn set_hook(&self, hook: &Hook) -> Result<()> {
        for (name, text) in scripts::hooks(&self.here, &self.name, hook) {
            write_program(&self.folder.join("hooks").join(name), &text)?;
        }
        Ok(())
    }

    /// How it answers from now on; what it answers already goes on.
    ///
    /// # Errors
    /// When the setting cannot be written.
    pub fn set_behaviour(&self, behaviour: &Behaviour) -> Result<()> {
        let line = match behaviour {
            Behaviour::Normal => "normal -".to_owned(),
            Behaviour::Silent => "silent -".to_owned(),
            Behaviour::Slow(bytes) => format!("slow {bytes}"),
            Behaviour::Status(code) => format!("status {code}"),
            Behaviour::Redirect(url) => format!("redirect {url}"),
        };
        write_private(&self.folder.join("behaviour"), &format!("{line}\n"))
    }

    /// How often it was asked, fetched from and pushed to.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn activity(&self) -> Result<Activity> {
        let log = fs::read_to_string(self.here.join("activity"))?;
        Ok(Activity::of(&self.name, &log))
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        Ok(String::from_utf8(self.checked(arguments, b"")?.stdout)?)
    }

    fn checked(&self, arguments: &[&str], input: &[u8]) -> Result<Output> {
        let mut child = Command::new("timeout")
            .args([GIT_SECONDS, "git"])
            .args(arguments)
            .current_dir(&self.folder)
            // The user's own settings must not change what a test sees.
            .env_clear()
            .env("PATH", SYSTEM_PATH)
            .env("HOME", &self.here)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", self.here.join("gitconfig"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run git")?;
        let mut stdin = child.stdin.take().context("no input")?;
        // Git reads all of it before it writes more than a pipe holds.
        let written = stdin.write_all(input);
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("'git {}': {}", arguments.join(" "), said.trim());
        }
        written.context("git did not read its input")?;
        Ok(output)
    }
}

/// One commit, as `git fast-import` reads it.
fn stream(
    branch: &str,
    parent: Option<&str>,
    message: &str,
    entries: &[(&str, Entry<'_>)],
) -> Vec<u8> {
    let mut out = format!(
        "commit refs/heads/{branch}\nauthor Somebody <somebody@example.com> now\n\
         committer Somebody <somebody@example.com> now\n"
    )
    .into_bytes();
    data(&mut out, message.as_bytes());
    if let Some(parent) = parent {
        out.extend(format!("from {parent}\n").bytes());
    }
    for (path, entry) in entries {
        let path = quoted(path);
        let (mode, content) = match entry {
            Entry::File(content) => ("100644", *content),
            Entry::Program(content) => ("100755", *content),
            Entry::Link(target) => ("120000", target.as_bytes()),
            Entry::Submodule(commit) => {
                out.extend(format!("M 160000 {commit} {path}\n").bytes());
                continue;
            }
            Entry::Removed => {
                out.extend(format!("D {path}\n").bytes());
                continue;
            }
        };
        out.extend(format!("M {mode} inline {path}\n").bytes());
        data(&mut out, content);
    }
    out
}

fn data(out: &mut Vec<u8>, content: &[u8]) {
    out.extend(format!("data {}\n", content.len()).bytes());
    out.extend(content);
    out.push(b'\n');
}

fn quoted(path: &str) -> String {
    let escaped = path
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn parse_commit(record: &str) -> Result<Commit> {
    let fields: Vec<&str> = record.split(FIELD).collect();
    let [id, parents, author, message, trailers] = fields[..] else {
        bail!("git's log has {} fields: {record:?}", fields.len());
    };
    Ok(Commit {
        id: id.to_owned(),
        parents: parents.split_whitespace().map(str::to_owned).collect(),
        author: author.to_owned(),
        message: message.trim_end().to_owned(),
        trailers: trailers
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    })
}
