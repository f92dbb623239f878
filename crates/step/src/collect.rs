//! Reads the agent's files without trusting any of them.
//!
//! Every name is opened relative to the descriptor of its directory, and never through a symbolic link. The
//! type of an opened file comes from its descriptor, not from its name.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, RawMode, fstat, openat},
    io::Errno,
};

use crate::names;

/// Limits of the collected files. They keep one run from filling the repository or the memory of this
/// process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of names, of any type.
    pub(crate) entries: usize,
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Maximum depth of directories below the output path.
    pub(crate) depth: usize,
}

/// The limits in use.
pub(crate) const LIMITS: Limits = Limits {
    entries: 10_000,
    files: 2_000,
    file_bytes: 5 << 20,
    total_bytes: 50 << 20,
    depth: 32,
};

/// A file of the agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The path from the repository's root.
    pub(crate) path: String,
    pub(crate) executable: bool,
    pub(crate) content: Vec<u8>,
}

/// The files below the output path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    pub(crate) files: Vec<Taken>,
    pub(crate) skipped: BTreeSet<Vec<u8>>,
}

/// The reason why the files were not collected.
#[derive(Debug)]
pub(crate) enum CollectError {
    /// A limit was exceeded. The text describes it.
    TooLarge(String),
    Unreadable {
        path: String,
        error: io::Error,
    },
}

/// Reads the regular files below `source`/`output`. `output` is a checked path or empty.
///
/// A missing directory counts as empty. A component that is no directory is skipped.
pub(crate) fn collect(
    source: &Path,
    output: &str,
    limits: &Limits,
) -> Result<Collected, CollectError> {
    let mut walk = Walk {
        limits,
        looked_at: 0,
        bytes: 0,
        found: Collected::default(),
    };
    let mut folder = openat(CWD, source, FOLDER, Mode::empty())
        .map_err(|errno| unreadable(source.as_os_str().as_encoded_bytes(), errno))?;
    let mut path = Vec::new();
    for name in output.split('/').filter(|name| !name.is_empty()) {
        join(&mut path, name.as_bytes());
        match openat(&folder, name, FOLDER, Mode::empty()) {
            Ok(below) => folder = below,
            Err(Errno::NOENT) => return Ok(walk.found),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                walk.found.skipped.insert(path);
                return Ok(walk.found);
            }
            Err(errno) => return Err(unreadable(&path, errno)),
        }
    }
    walk.folder(folder, &path, 0)?;
    Ok(walk.found)
}

/// `O_NOFOLLOW` with `O_DIRECTORY` rejects a symbolic link to a directory.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// `O_NONBLOCK`: without it, opening a FIFO without a writer would block indefinitely.
const ANY: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

struct Walk<'a> {
    limits: &'a Limits,
    looked_at: usize,
    bytes: u64,
    found: Collected,
}

impl Walk<'_> {
    fn folder(&mut self, folder: OwnedFd, path: &[u8], depth: usize) -> Result<(), CollectError> {
        if depth > self.limits.depth {
            return Err(CollectError::TooLarge(format!(
                "'{}' is more than {} folders deep",
                shortened(path),
                self.limits.depth
            )));
        }
        for name in self.names(folder.as_fd(), path)? {
            let mut below = path.to_vec();
            join(&mut below, &name);
            if names::refused(&name) {
                self.found.skipped.insert(below);
            } else {
                self.entry(folder.as_fd(), &name, below, depth)?;
            }
        }
        Ok(())
    }

    /// Returns the sorted names in a directory. Without sorting, the same files would not give the same
    /// report.
    fn names(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &[u8],
    ) -> Result<BTreeSet<Vec<u8>>, CollectError> {
        let mut names = BTreeSet::new();
        for entry in Dir::read_from(folder).map_err(|errno| unreadable(path, errno))? {
            let entry = entry.map_err(|errno| unreadable(path, errno))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.looked_at += 1;
            if self.looked_at > self.limits.entries {
                return Err(CollectError::TooLarge(format!(
                    "there are more than {} names below the output path",
                    self.limits.entries
                )));
            }
            names.insert(name.to_vec());
        }
        Ok(names)
    }

    fn entry(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: Vec<u8>,
        depth: usize,
    ) -> Result<(), CollectError> {
        let opened = match openat(folder, name, ANY, Mode::empty()) {
            Ok(opened) => opened,
            // A symbolic link, a socket, or a device without a driver.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                self.found.skipped.insert(path);
                return Ok(());
            }
            Err(errno) => return Err(unreadable(&path, errno)),
        };
        let stat = fstat(&opened).map_err(|errno| unreadable(&path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder(opened, &path, depth + 1),
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                self.file(opened, path, size, stat.st_mode)
            }
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                self.found.skipped.insert(path);
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        opened: OwnedFd,
        path: Vec<u8>,
        size: u64,
        mode: RawMode,
    ) -> Result<(), CollectError> {
        let limits = self.limits;
        if self.found.files.len() >= limits.files {
            return Err(CollectError::TooLarge(format!(
                "there are more than {} files below the output path",
                limits.files
            )));
        }
        if size > limits.file_bytes {
            return Err(CollectError::TooLarge(format!(
                "'{}' has {size} bytes; a file may have {}",
                shortened(&path),
                limits.file_bytes
            )));
        }
        self.bytes += size;
        if self.bytes > limits.total_bytes {
            return Err(CollectError::TooLarge(format!(
                "the files below the output path have more than {} bytes together",
                limits.total_bytes
            )));
        }
        // Allocate the exact size. A growing buffer would use almost twice as much memory.
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        File::from(opened)
            .take(size)
            .read_to_end(&mut content)
            .map_err(|error| CollectError::Unreadable {
                path: shortened(&path),
                error,
            })?;
        self.found.files.push(Taken {
            // All names that are not UTF-8 are rejected before.
            path: String::from_utf8_lossy(&path).into_owned(),
            executable: Mode::from_raw_mode(mode).contains(Mode::XUSR),
            content,
        });
        Ok(())
    }
}

fn join(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn unreadable(path: &[u8], errno: Errno) -> CollectError {
    CollectError::Unreadable {
        path: shortened(path),
        error: errno.into(),
    }
}

/// Returns the beginning of a path. Nested names can have any length.
fn shortened(path: &[u8]) -> String {
    const CHARACTERS: usize = 120;
    let text = names::shown(path);
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;

    const SMALL: Limits = Limits {
        entries: 6,
        files: 3,
        file_bytes: 4,
        total_bytes: 8,
        depth: 2,
    };

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn paths(found: &Collected) -> Vec<&str> {
        found.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn files_below_the_output_path_are_taken() {
        let folder = folder(&[("a", "0"), ("d/b", "1"), ("d/e/c", "2"), ("dd/x", "3")]);
        for (output, wanted) in [
            ("d", vec!["d/b", "d/e/c"]),
            ("d/e", vec!["d/e/c"]),
            ("missing/below", vec![]),
        ] {
            let found = collect(folder.path(), output, &SMALL).unwrap();
            assert_eq!(paths(&found), wanted, "{output}");
            assert!(found.skipped.is_empty());
        }
        let all = collect(folder.path(), "", &LIMITS).unwrap();
        assert_eq!(paths(&all), ["a", "d/b", "d/e/c", "dd/x"]);
        assert_eq!(all.files[2].content, b"2");
    }

    #[test]
    fn limits_are_reached_before_they_are_crossed() {
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            Option<&'static str>,
        );
        let cases: [Case; 9] = [
            ("files", &[("1", ""), ("2", ""), ("3", "")], None),
            (
                "files",
                &[("1", ""), ("2", ""), ("3", ""), ("4", "")],
                Some("3 files"),
            ),
            ("file", &[("1", "1234")], None),
            (
                "file",
                &[("1", "12345")],
                Some("'1' has 5 bytes; a file may have 4"),
            ),
            ("total", &[("1", "1234"), ("2", "1234")], None),
            (
                "total",
                &[("1", "1234"), ("2", "1234"), ("3", "1")],
                Some("8 bytes together"),
            ),
            ("depth", &[("a/b/c", "")], None),
            (
                "depth",
                &[("a/b/c/d", "")],
                Some("'a/b/c' is more than 2 folders deep"),
            ),
            (
                "entries",
                &[
                    (".git1", ""),
                    (".git2", ""),
                    (".git3", ""),
                    (".git4", ""),
                    (".git5", ""),
                    (".git6", ""),
                    (".git7", ""),
                ],
                Some("6 names"),
            ),
        ];
        for (name, files, words) in cases {
            let folder = folder(files);
            match (collect(folder.path(), "", &SMALL), words) {
                (Ok(_), None) => {}
                (Err(CollectError::TooLarge(what)), Some(words)) => {
                    assert!(what.contains(words), "{name}: {what}");
                }
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_link_is_nowhere_followed() {
        let secret = folder(&[("below/secret", "s")]);
        let folder = folder(&[("real/a", "1")]);
        symlink(secret.path(), folder.path().join("link")).unwrap();
        symlink(
            secret.path().join("below/secret"),
            folder.path().join("real/leak"),
        )
        .unwrap();
        for (output, skipped) in [
            ("link/below", "link"),
            ("link", "link"),
            ("real", "real/leak"),
        ] {
            let found = collect(folder.path(), output, &SMALL).unwrap();
            assert_eq!(found.skipped, BTreeSet::from([skipped.as_bytes().to_vec()]));
            assert!(!paths(&found).iter().any(|path| path.contains("secret")));
        }
        let error = collect(&folder.path().join("link"), "", &SMALL).unwrap_err();
        assert!(
            matches!(error, CollectError::Unreadable { .. }),
            "{error:?}"
        );
    }
}
