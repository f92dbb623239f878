//! Operations of the steps on a repository and its server.

use std::{collections::BTreeSet, fs, path::Path};

use git::{Commit, Reason};

use crate::{
    child::Input,
    command::{Git, SHORT},
    failure::Failure,
    plan::{Kind, Tree},
};

/// Maximum size of a listing of a commit, in bytes. A larger commit is made to exhaust the memory.
const LISTING: usize = 32 << 20;
/// Maximum size of a listing with two bytes per file: half a million files.
const FILES: usize = 1 << 20;

/// Attributes that leave the content of every path unchanged. They override the attribute files of the
/// commit. Line endings and encodings stay, and filters (including LFS) do not run.
const ATTRIBUTES: &str = "* -text !eol !crlf !ident !filter !working-tree-encoding\n";

/// The location of the repository: with the files, or separate from them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Bare,
    /// The directory that contains the files and `.git`.
    With(&'a Path),
}

impl Git {
    /// Creates an empty repository. Its `HEAD` points to `branch`.
    pub(crate) fn init(
        &self,
        place: Place<'_>,
        branch: &str,
        like: &Commit,
    ) -> Result<(), Failure> {
        let format = if like.as_str().len() == 64 {
            "sha256"
        } else {
            "sha1"
        };
        // --git-dir gives the directory. If its name is '.git', git uses the files beside it.
        let mut arguments = vec![
            "init".to_owned(),
            "--quiet".to_owned(),
            "--template=".to_owned(),
            format!("--object-format={format}"),
            format!("--initial-branch={branch}"),
        ];
        match place {
            Place::Bare => arguments.push("--bare".to_owned()),
            Place::With(_) => {}
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match place {
            Place::Bare => self.local(&arguments, None, SHORT).map(|_| ())?,
            Place::With(folder) => self.checkout(folder, &arguments)?,
        }
        let info = self.repository.join("info");
        let written =
            fs::create_dir_all(&info).and_then(|()| fs::write(info.join("attributes"), ATTRIBUTES));
        written.map_err(|error| {
            let path = info.display();
            self.step
                .failed(format!("cannot write below '{path}': {error}"))
        })
    }

    /// Fetches commits by their ids, and checks that they exist afterwards.
    pub(crate) fn fetch(&self, commits: &BTreeSet<&str>, depth: u32) -> Result<(), Failure> {
        let url = self.url.to_string();
        let depth = format!("--depth={depth}");
        let mut arguments = vec![
            "fetch",
            "--quiet",
            &depth,
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--",
            &url,
        ];
        arguments.extend(commits);
        let ended = self.remote(&arguments)?;
        if !ended.status.success() {
            let failure = self.refused(&ended, "fetch from");
            let gone = [
                "not our ref",
                "unadvertised object",
                "couldn't find remote ref",
            ];
            if gone.iter().any(|words| ended.stderr.contains(words)) {
                return Err(self.step.failed(format!(
                    "{}; the commit is no longer on the server, was the branch rewritten?",
                    failure.message
                )));
            }
            return Err(failure);
        }
        for commit in commits {
            let peeled = format!("{commit}^{{commit}}");
            let found = self.local(
                &["rev-parse", "--verify", "--end-of-options", &peeled],
                None,
                SHORT,
            )?;
            if String::from_utf8_lossy(&found).trim() != *commit {
                return Err(self
                    .step
                    .failed(format!("{commit} is not the id of a commit")));
            }
        }
        Ok(())
    }

    /// Returns the commit of a branch on the server.
    pub(crate) fn head(&self, branch: &str) -> Result<Option<Commit>, Failure> {
        let url = self.url.to_string();
        let name = format!("refs/heads/{branch}");
        let ended = self.remote(&["ls-remote", "--quiet", "--refs", "--", &url, &name])?;
        if !ended.status.success() {
            return Err(self.refused(&ended, "read the branches of"));
        }
        head_in(&String::from_utf8_lossy(&ended.stdout), &name)
            .map_err(|what| self.step.failed(format!("{} answered {what}", self.url)))
    }

    /// Returns a branch that cannot exist together with this one: `docs` and `docs/shop` exclude each
    /// other.
    pub(crate) fn excluding(&self, branch: &str) -> Result<Option<String>, Failure> {
        let url = self.url.to_string();
        let above = branch.match_indices('/').map(|(end, _)| &branch[..end]);
        let mut names: Vec<String> = above.map(|name| format!("refs/heads/{name}")).collect();
        names.push(format!("refs/heads/{branch}/*"));
        let mut arguments = vec!["ls-remote", "--quiet", "--refs", "--", &url];
        arguments.extend(names.iter().map(String::as_str));
        let ended = self.remote(&arguments)?;
        if !ended.status.success() {
            return Err(self.refused(&ended, "read the branches of"));
        }
        Ok(excluding_in(
            &String::from_utf8_lossy(&ended.stdout),
            branch,
        ))
    }

    /// Returns the files, links and submodules of a commit below a path.
    pub(crate) fn tree(&self, commit: &Commit, path: &str) -> Result<Tree, Failure> {
        if let Some((blocking, kind)) = self.blocking(commit, path)? {
            return Ok(Tree::from([(blocking, kind)]));
        }
        let listing = self.list(commit, path, "-z", LISTING)?;
        parse(&listing)
            .ok_or_else(|| self.step.failed("'git ls-tree' said what cannot be read"))
            .map(|entries| {
                let leaf = |(path, entry)| match entry {
                    Entry::Folder => None,
                    Entry::Leaf(kind) => Some((path, kind)),
                };
                entries.into_iter().filter_map(leaf).collect()
            })
    }

    /// Returns whether a path is a directory in a commit. The root always is.
    pub(crate) fn is_folder(&self, commit: &Commit, path: &str) -> Result<bool, Failure> {
        let is_folder = path.is_empty() || self.entry(commit, path)? == Some(Entry::Folder);
        Ok(is_folder)
    }

    /// Returns the first part of a path that is no directory in a commit.
    pub(crate) fn blocking(
        &self,
        commit: &Commit,
        path: &str,
    ) -> Result<Option<(Vec<u8>, Kind)>, Failure> {
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([path.len()]).filter(|end| *end > 0) {
            match self.entry(commit, &path[..end])? {
                None => return Ok(None),
                Some(Entry::Folder) => {}
                Some(Entry::Leaf(kind)) => {
                    return Ok(Some((path.as_bytes()[..end].to_vec(), kind)));
                }
            }
        }
        Ok(None)
    }

    fn entry(&self, commit: &Commit, path: &str) -> Result<Option<Entry>, Failure> {
        let arguments = ["ls-tree", "-z", "--full-tree", commit.as_str(), "--", path];
        let listing = self.local(&arguments, None, SHORT)?;
        let entries = parse(&listing)
            .ok_or_else(|| self.step.failed("'git ls-tree' said what cannot be read"))?;
        let found = entries
            .into_iter()
            .find(|(found, _)| found == path.as_bytes());
        Ok(found.map(|(_, entry)| entry))
    }

    /// Fails if the files of a commit below a path exceed the disk limit.
    ///
    /// A small pack can contain files of any size, and a few trees can contain any number of files. Both
    /// are checked before the first file is written. The count comes first, because reading the sizes takes
    /// longer.
    pub(crate) fn check_size(&self, commit: &Commit, path: &str) -> Result<(), Failure> {
        self.list(commit, path, "--format=x", FILES)?;
        let sizes = self.list(commit, path, "--format=%(objectsize)", LISTING)?;
        // A submodule has '-'.
        let bytes = String::from_utf8_lossy(&sizes)
            .lines()
            .map(|size| size.trim().parse::<u64>().unwrap_or_default())
            .fold(0, u64::saturating_add);
        if bytes > self.bounds.disk_bytes {
            return Err(Failure::new(
                Reason::RepositoryTooLarge,
                format!(
                    "the files of commit {commit} have {bytes} bytes; {} MiB are allowed by the operator's configuration",
                    self.disk_mib
                ),
            ));
        }
        Ok(())
    }

    /// Lists all paths below a path.
    fn list(
        &self,
        commit: &Commit,
        path: &str,
        format: &str,
        limit: usize,
    ) -> Result<Vec<u8>, Failure> {
        let below = format!("{path}/");
        let mut arguments = vec!["ls-tree", "-r", "--full-tree", format, commit.as_str()];
        if !path.is_empty() {
            arguments.extend(["--", &below]);
        }
        self.local(&arguments, None, limit)
    }

    /// Returns the file or link at a path of a commit, without following links.
    pub(crate) fn blob(&self, commit: &Commit, path: &str) -> Result<Option<Blob>, Failure> {
        let arguments = [
            "ls-tree",
            "-z",
            "-l",
            "--full-tree",
            commit.as_str(),
            "--",
            path,
        ];
        let blobs = self.parse_blobs(&self.local(&arguments, None, SHORT)?)?;
        Ok(blobs.into_iter().find(|blob| blob.path == path.as_bytes()))
    }

    /// Returns the files and links of a commit below a path.
    pub(crate) fn blobs(&self, commit: &Commit, path: &str) -> Result<Vec<Blob>, Failure> {
        let below = format!("{path}/");
        let mut arguments = vec!["ls-tree", "-r", "-z", "-l", "--full-tree", commit.as_str()];
        if !path.is_empty() {
            arguments.extend(["--", &below]);
        }
        self.parse_blobs(&self.local(&arguments, None, LISTING)?)
    }

    fn parse_blobs(&self, listing: &[u8]) -> Result<Vec<Blob>, Failure> {
        parse_blobs(listing)
            .ok_or_else(|| self.step.failed("'git ls-tree' said what cannot be read"))
    }

    /// Returns the content of a file.
    pub(crate) fn content(&self, blob: &Blob, limit: usize) -> Result<Vec<u8>, Failure> {
        self.local(&["cat-file", "blob", blob.id.as_str()], None, limit)
    }

    /// Returns the contents of files, in the same order. The caller limits their total size.
    pub(crate) fn contents(&self, blobs: &[Blob]) -> Result<Vec<Vec<u8>>, Failure> {
        // Each content has a line before it, and a line break after it.
        const LINE: u64 = 100;
        let bytes = blobs.iter().map(|blob| blob.size + LINE).sum::<u64>();
        let ids: String = blobs.iter().map(|blob| format!("{}\n", blob.id)).collect();
        let input: Input = Box::new(move |out| out.write_all(ids.as_bytes()));
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
        let output = self.local(&["cat-file", "--batch"], Some(input), limit)?;
        parse_contents(&output, blobs).ok_or_else(|| {
            self.step
                .failed("the output of 'git cat-file' cannot be read")
        })
    }

    /// Returns the paths that differ between two commits.
    pub(crate) fn changed(&self, from: &Commit, to: &Commit) -> Result<Vec<Vec<u8>>, Failure> {
        let arguments = [
            "diff-tree",
            "-r",
            "-z",
            "--no-renames",
            "--name-only",
            from.as_str(),
            to.as_str(),
        ];
        let listing = self.local(&arguments, None, LISTING)?;
        let paths = listing
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty());
        Ok(paths.map(<[u8]>::to_vec).collect())
    }
}

/// A file or link of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) path: Vec<u8>,
    /// The id of its content. Ids of contents and of commits have the same form.
    pub(crate) id: Commit,
    pub(crate) size: u64,
    pub(crate) is_executable: bool,
    pub(crate) is_link: bool,
}

/// Parses the output of `git ls-tree -z -l`: `MODE TYPE ID SIZE<tab>PATH<nul>`. Directories and submodules
/// are left out.
fn parse_blobs(listing: &[u8]) -> Option<Vec<Blob>> {
    let mut blobs = Vec::new();
    for line in listing.split(|byte| *byte == 0) {
        if line.is_empty() {
            continue;
        }
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let head = String::from_utf8_lossy(&line[..tab]);
        let mut words = head.split_ascii_whitespace();
        let (mode, kind, id, size) = (words.next()?, words.next()?, words.next()?, words.next()?);
        if kind != "blob" {
            continue;
        }
        let (Ok(id), Ok(size)) = (Commit::parse(id), size.parse()) else {
            return None;
        };
        blobs.push(Blob {
            path: line[tab + 1..].to_vec(),
            id,
            size,
            is_executable: mode == "100755",
            is_link: mode == "120000",
        });
    }
    Some(blobs)
}

/// Parses the output of `git cat-file --batch`: `ID TYPE SIZE<newline>CONTENT<newline>` for each file.
fn parse_contents(output: &[u8], blobs: &[Blob]) -> Option<Vec<Vec<u8>>> {
    let mut rest = output;
    let mut contents = Vec::new();
    for blob in blobs {
        let size = usize::try_from(blob.size).unwrap_or(usize::MAX);
        let head = format!("{} blob {size}\n", blob.id);
        let content = rest.strip_prefix(head.as_bytes())?;
        contents.push(content.get(..size)?.to_vec());
        rest = content.get(size..)?.strip_prefix(b"\n")?;
    }
    rest.is_empty().then_some(contents)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Folder,
    Leaf(Kind),
}

/// Parses the output of `git ls-tree -z`: `MODE TYPE ID<tab>PATH<nul>`.
fn parse(listing: &[u8]) -> Option<Vec<(Vec<u8>, Entry)>> {
    listing
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            let entry = match line.get(..6)? {
                b"040000" => Entry::Folder,
                b"120000" => Entry::Leaf(Kind::Link),
                b"160000" => Entry::Leaf(Kind::Submodule),
                _ => Entry::Leaf(Kind::File),
            };
            Some((line[tab + 1..].to_vec(), entry))
        })
        .collect()
}

/// Parses the output of `git ls-remote`. Other refs may end with the same name.
fn head_in(answer: &str, name: &str) -> Result<Option<Commit>, String> {
    let line = answer
        .lines()
        .find_map(|line| line.split_once('\t').filter(|(_, found)| *found == name));
    match line {
        None => Ok(None),
        Some((id, _)) => match Commit::parse(id) {
            Ok(commit) => Ok(Some(commit)),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Parses the same output. The patterns also match the ends of other refs.
fn excluding_in(answer: &str, branch: &str) -> Option<String> {
    let is_below = |name: &str, other: &str| {
        name.strip_prefix(other)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    answer
        .lines()
        .filter_map(|line| line.split_once("\trefs/heads/"))
        .map(|(_, name)| name)
        .find(|name| is_below(branch, name) || is_below(name, branch))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read() {
        let listing = b"100644 blob 0a\ta\n b\x00100755 blob 0a\tx\x00120000 blob 0a\tl\x00160000 commit 0a\ts\x00040000 tree 0a\td\x00";
        let found = parse(listing).unwrap();
        let wanted = [
            (b"a\n b".to_vec(), Entry::Leaf(Kind::File)),
            (b"x".to_vec(), Entry::Leaf(Kind::File)),
            (b"l".to_vec(), Entry::Leaf(Kind::Link)),
            (b"s".to_vec(), Entry::Leaf(Kind::Submodule)),
            (b"d".to_vec(), Entry::Folder),
        ];
        assert_eq!(found, wanted);
        assert_eq!(parse(b"").unwrap(), []);
        assert_eq!(parse(b"nonsense\0"), None);
    }

    #[test]
    fn files_are_listed_with_their_sizes() {
        let id = "ab".repeat(20);
        let listing = format!(
            "100644 blob {id}      12\ta b.yaml\0100755 blob {id}       0\tx\0120000 blob {id}       3\tl\0160000 commit {id}       -\ts\0040000 tree {id}       -\td\0"
        );
        let found = parse_blobs(listing.as_bytes()).unwrap();
        let found: Vec<(&[u8], u64, bool, bool)> = found
            .iter()
            .map(|blob| {
                (
                    blob.path.as_slice(),
                    blob.size,
                    blob.is_executable,
                    blob.is_link,
                )
            })
            .collect();
        let expected: [(&[u8], u64, bool, bool); 3] = [
            (b"a b.yaml", 12, false, false),
            (b"x", 0, true, false),
            (b"l", 3, false, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(parse_blobs(b""), Some(Vec::new()));
        for wrong in ["nonsense", "100644 blob x 1\ta", "100644 blob\ta"] {
            assert_eq!(parse_blobs(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn contents_are_split_by_their_sizes() {
        let blob = |id: &str, size| Blob {
            path: Vec::new(),
            id: Commit::parse(&id.repeat(20)).unwrap(),
            size,
            is_executable: false,
            is_link: false,
        };
        let blobs = [blob("ab", 4), blob("cd", 0)];
        let (one, two) = ("ab".repeat(20), "cd".repeat(20));
        let output = format!("{one} blob 4\na\nb\n\n{two} blob 0\n\n");
        let expected = vec![b"a\nb\n".to_vec(), Vec::new()];
        assert_eq!(parse_contents(output.as_bytes(), &blobs), Some(expected));
        for wrong in [
            String::new(),
            format!("{output}x"),
            output.replace("blob 4", "blob 5"),
            format!("{one} missing\n"),
            format!("{one} blob 4\na"),
        ] {
            assert_eq!(parse_contents(wrong.as_bytes(), &blobs), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_branch_itself_counts() {
        let id = "0123456789012345678901234567890123456789";
        let other = "1123456789012345678901234567890123456789";
        let answer = format!("{other}\trefs/x/refs/heads/a\n{id}\trefs/heads/a\n");
        assert_eq!(
            head_in(&answer, "refs/heads/a").unwrap().unwrap().as_str(),
            id
        );
        assert_eq!(head_in(&answer, "refs/heads/b"), Ok(None));
        assert!(head_in("x\trefs/heads/a", "refs/heads/a").is_err());
    }

    #[test]
    fn branches_exclude_those_above_and_below() {
        for (other, wanted) in [
            ("refs/heads/a", Some("a")),
            ("refs/heads/a/b", Some("a/b")),
            ("refs/heads/a/b/c/d/e", Some("a/b/c/d/e")),
            ("refs/heads/a/b/c", None),
            ("refs/heads/a/b/c2", None),
            ("refs/heads/a2", None),
            ("refs/heads/x/a/b", None),
            ("refs/x/refs/heads/a/b", None),
            ("refs/tags/a", None),
        ] {
            let answer = format!("0123\trefs/heads/z\n0123\t{other}\n");
            assert_eq!(excluding_in(&answer, "a/b/c").as_deref(), wanted, "{other}");
        }
    }
}
