//! A copy of the repository that edits are applied to, with a target directory of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use testkit::lock::Lock;

use super::Edit;

/// Another run in the same checkout takes this long at most.
const LOCK_LIMIT: Duration = Duration::from_hours(1);

/// The copy. Files that did not change keep their times, so that Cargo compiles only changed crates.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    target: PathBuf,
    logs: PathBuf,
    _lock: Lock,
}

/// A file as it was before an edit.
#[derive(Debug)]
pub(crate) struct Original {
    path: PathBuf,
    text: String,
}

impl Tree {
    /// Copies the files of `repository` that Git does not ignore into `folder`.
    pub(crate) fn new(repository: &Path, folder: &Path) -> Result<Self> {
        Self::with_texts(repository, folder, &BTreeMap::new())
    }

    /// Copies the files of `repository`, except that these files have these texts. They need not exist in
    /// `repository`.
    pub(crate) fn with_texts(
        repository: &Path,
        folder: &Path,
        texts: &BTreeMap<PathBuf, String>,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let lock = Lock::take(&folder.join("lock"), LOCK_LIMIT, &mut |holder| {
            println!("waiting: {holder} uses this copy")
        })?;
        let tree = Self {
            root: folder.join("tree"),
            target: folder.join("target"),
            logs: folder.join("logs"),
            _lock: lock,
        };
        fs::create_dir_all(&tree.root)?;
        match fs::remove_dir_all(&tree.logs) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => fs::create_dir_all(&tree.logs)?,
        }
        let mut files = listed(repository)?;
        for file in files.iter().filter(|file| !texts.contains_key(*file)) {
            copy(&repository.join(file), &tree.root.join(file))?;
        }
        for (file, text) in texts {
            write(&tree.root.join(file), text)?;
        }
        files.extend(texts.keys().cloned());
        remove_others(&tree.root, &tree.root, &files)?;
        Ok(tree)
    }

    /// The root of the copy.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Applies edits; returns the files as they were.
    ///
    /// # Errors
    /// When an old text is not in its file exactly once. Then no file is changed.
    pub(crate) fn apply(&self, edits: &[Edit<'_>]) -> Result<Vec<Original>> {
        let mut changes: Vec<(Original, String)> = Vec::new();
        for edit in edits {
            let path = self.root.join(edit.file);
            let earlier = changes.iter_mut().find(|(known, _)| known.path == path);
            match earlier {
                Some((_, text)) => *text = edit.applied(text)?,
                None => {
                    let text = fs::read_to_string(&path)
                        .with_context(|| format!("cannot read '{}'", edit.file))?;
                    let edited = edit.applied(&text)?;
                    changes.push((Original { path, text }, edited));
                }
            }
        }
        for (original, edited) in &changes {
            fs::write(&original.path, edited)?;
        }
        Ok(changes.into_iter().map(|(original, _)| original).collect())
    }

    /// Undoes edits.
    pub(crate) fn restore(&self, originals: &[Original]) -> Result<()> {
        for Original { path, text } in originals {
            // The file must be newer than the compiled edit, so its old time is not restored.
            fs::write(path, text)
                .with_context(|| format!("cannot restore '{}'", path.display()))?;
        }
        Ok(())
    }

    /// Runs a command of Cargo in the copy; its output is appended to the log of this name.
    pub(crate) fn run(&self, command: &mut Command, log: &str, limit: Duration) -> Result<()> {
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        testkit::process::run(command, &self.log(log), limit, &mut |_| {})
    }

    /// Empties a log: results of an earlier run must not count for this one.
    pub(crate) fn clear_log(&self, name: &str) -> Result<()> {
        fs::write(self.log(name), "")?;
        Ok(())
    }

    /// The path of a log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

/// The files of a repository that Git does not ignore.
fn listed(repository: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(repository)
        .output()
        .context("cannot run git")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let names = text.split('\0').filter(|name| !name.is_empty());
    // A deleted file is listed until its deletion is committed.
    let files = names
        .map(PathBuf::from)
        .filter(|name| repository.join(name).is_file());
    Ok(files.collect())
}

/// Copies a file unless the copy is equal.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("cannot read '{}'", from.display()))?;
    if !has_content(to, &content)? {
        fs::copy(from, to).with_context(|| format!("cannot write '{}'", to.display()))?;
    }
    Ok(())
}

/// Writes a file unless it has this text.
fn write(to: &Path, text: &str) -> Result<()> {
    if !has_content(to, text.as_bytes())? {
        fs::write(to, text).with_context(|| format!("cannot write '{}'", to.display()))?;
    }
    Ok(())
}

/// Returns whether a file has this content. If the file does not exist, creates its directory.
fn has_content(file: &Path, content: &[u8]) -> Result<bool> {
    match fs::read(file) {
        Ok(known) => Ok(known == content),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the files below `folder` that are not listed, and directories that are empty then. Cargo takes each
/// directory in `crates/` for a member of the workspace.
fn remove_others(root: &Path, folder: &Path, listed: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, listed)?;
            if fs::read_dir(&path)?.next().is_none() {
                fs::remove_dir(&path)?;
            }
        } else if !listed.contains(path.strip_prefix(root)?) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let status = Command::new("git")
            .args(arguments)
            .current_dir(folder)
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn the_copy_follows_the_repository_and_edits_are_undone() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        git(&from, &["init", "--quiet"]);
        fs::write(from.join(".gitignore"), "/ignored\n").unwrap();
        fs::write(from.join("ignored"), "").unwrap();
        fs::write(from.join("src/a.rs"), "one two").unwrap();
        fs::write(from.join("src/b.rs"), "b").unwrap();
        let tree = Tree::new(&from, &to).unwrap();
        let read = |name: &str| fs::read_to_string(to.join("tree").join(name)).unwrap();
        assert!(!to.join("tree/ignored").exists());
        let time = || {
            fs::metadata(to.join("tree/src/a.rs"))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = time();

        let edit = |old, new| Edit {
            file: "src/a.rs",
            old,
            new,
        };
        let originals = tree.apply(&[edit("one", "1"), edit("two", "2")]).unwrap();
        assert_eq!(read("src/a.rs"), "1 2");
        assert_eq!(
            fs::read_to_string(from.join("src/a.rs")).unwrap(),
            "one two"
        );
        tree.restore(&originals).unwrap();
        assert_eq!(read("src/a.rs"), "one two");
        assert!(time() > before, "Cargo must compile the restored file");

        // An edit that does not fit changes nothing, also beside one that does.
        let error = tree
            .apply(&[edit("one", "1"), edit("three", "")])
            .unwrap_err();
        assert!(error.to_string().contains("src/a.rs"), "{error}");
        assert_eq!(read("src/a.rs"), "one two");
        drop(tree);

        // An edit that a killed run left, a file that is gone, and one that did not change.
        fs::write(to.join("tree/src/b.rs"), "left").unwrap();
        fs::write(to.join("tree/src/c.rs"), "gone").unwrap();
        let before = time();
        let tree = Tree::new(&from, &to).unwrap();
        assert_eq!(read("src/b.rs"), "b");
        assert!(!to.join("tree/src/c.rs").exists());
        assert_eq!(time(), before);
        drop(tree);
    }

    #[test]
    fn a_file_with_another_text_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        git(&from, &["init", "--quiet"]);
        fs::write(from.join("a.rs"), "a").unwrap();
        let text = |text: &str| text.to_owned();
        let texts = BTreeMap::from([
            (PathBuf::from("a.rs"), text("edited")),
            (PathBuf::from("new/b.rs"), text("added")),
        ]);
        let read = |name: &str| fs::read_to_string(to.join("tree").join(name)).unwrap();
        let time = |name: &str| {
            let metadata = fs::metadata(to.join("tree").join(name)).unwrap();
            metadata.modified().unwrap()
        };

        drop(Tree::with_texts(&from, &to, &texts).unwrap());
        assert_eq!(read("a.rs"), "edited");
        assert_eq!(read("new/b.rs"), "added");
        let before = (time("a.rs"), time("new/b.rs"));
        drop(Tree::with_texts(&from, &to, &texts).unwrap());
        assert_eq!((time("a.rs"), time("new/b.rs")), before);

        // Without the texts, the copy is the repository again.
        let tree = Tree::new(&from, &to).unwrap();
        assert_eq!(tree.root(), to.join("tree"));
        assert_eq!(read("a.rs"), "a");
        assert!(!to.join("tree/new").exists());
    }
}
