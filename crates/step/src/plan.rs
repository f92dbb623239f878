//! Decides the changes of the commit from three inputs: the parent's tree, the files that the agent
//! received, and the files that it left.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    collect::{Collected, Taken},
    names,
};

/// Type of a path in a commit. Directories are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Link,
    Submodule,
}

/// Paths of a commit, from its root.
pub(crate) type Tree = BTreeMap<Vec<u8>, Kind>;

/// The changes of one commit.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Taken>,
    pub(crate) deletes: Vec<String>,
    pub(crate) skipped: BTreeSet<Vec<u8>>,
}

/// Decides the changes. `seen` contains the paths of the base commit that the agent received.
///
/// Guarantees: a path that the agent never saw is never deleted, not even by a file that replaces its
/// directory. A symbolic link or submodule of the parent is neither replaced nor traversed.
pub(crate) fn plan(parent: &Tree, seen: &Tree, collected: Collected) -> Plan {
    let Collected { files, mut skipped } = collected;
    let deletes = deletions(parent, seen, &files, &skipped);
    let gone: BTreeSet<&[u8]> = deletes.iter().map(String::as_bytes).collect();
    let stays: Tree = parent
        .iter()
        .filter(|(path, _)| !gone.contains(path.as_slice()))
        .map(|(path, kind)| (path.clone(), *kind))
        .collect();
    let mut writes = Vec::new();
    for file in files {
        if fits(&stays, file.path.as_bytes()) {
            writes.push(file);
        } else {
            skipped.insert(file.path.into_bytes());
        }
    }
    Plan {
        writes,
        deletes,
        skipped,
    }
}

fn deletions(
    parent: &Tree,
    seen: &Tree,
    files: &[Taken],
    skipped: &BTreeSet<Vec<u8>>,
) -> Vec<String> {
    let left: BTreeSet<&[u8]> = files.iter().map(|file| file.path.as_bytes()).collect();
    seen.iter()
        .filter(|(_, kind)| **kind == Kind::File)
        .map(|(path, _)| path)
        .filter(|path| parent.get(*path) == Some(&Kind::File))
        .filter(|path| !left.contains(path.as_slice()) && !names::path_refused(path))
        .filter(|path| !at_and_above(path).any(|above| skipped.contains(above)))
        // An accepted path is UTF-8, so this conversion loses nothing.
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect()
}

/// Returns whether a file can be written to `path` without removing another path.
fn fits(stays: &Tree, path: &[u8]) -> bool {
    let own = stays.get(path).is_none_or(|kind| *kind == Kind::File);
    let way = at_and_above(path)
        .skip(1)
        .all(|above| !stays.contains_key(above));
    let folder: Vec<u8> = [path, b"/"].concat();
    let taken = stays
        .range(folder.clone()..)
        .next()
        .is_some_and(|(next, _)| next.starts_with(&folder));
    own && way && !taken
}

/// Returns the path itself, then each directory above it.
fn at_and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| {
        let end = path.iter().rposition(|byte| *byte == b'/')?;
        Some(&path[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, Kind)]) -> Tree {
        entries
            .iter()
            .map(|(path, kind)| (path.as_bytes().to_vec(), *kind))
            .collect()
    }

    fn left(files: &[&str], skipped: &[&str]) -> Collected {
        Collected {
            files: files
                .iter()
                .map(|path| Taken {
                    path: (*path).to_owned(),
                    executable: false,
                    content: Vec::new(),
                })
                .collect(),
            skipped: skipped
                .iter()
                .map(|path| path.as_bytes().to_vec())
                .collect(),
        }
    }

    struct Case {
        name: &'static str,
        parent: &'static [(&'static str, Kind)],
        seen: &'static [(&'static str, Kind)],
        files: &'static [&'static str],
        skipped: &'static [&'static str],
        writes: &'static [&'static str],
        deletes: &'static [&'static str],
        skips: &'static [&'static str],
    }

    const NOTHING: Case = Case {
        name: "",
        parent: &[],
        seen: &[],
        files: &[],
        skipped: &[],
        writes: &[],
        deletes: &[],
        skips: &[],
    };

    #[test]
    fn table() {
        use Kind::{File, Link, Submodule};
        let cases = [
            Case {
                name: "new and changed files are written",
                parent: &[("d/old", File)],
                seen: &[("d/old", File)],
                files: &["d/new", "d/old"],
                writes: &["d/new", "d/old"],
                ..NOTHING
            },
            Case {
                name: "what the agent saw and is gone is deleted, what it never saw stays",
                parent: &[("d/seen", File), ("d/unseen", File)],
                seen: &[("d/seen", File)],
                deletes: &["d/seen"],
                ..NOTHING
            },
            Case {
                name: "what the parent does not have needs no deletion",
                seen: &[("d/seen", File)],
                ..NOTHING
            },
            Case {
                name: "links and submodules are not deleted",
                parent: &[("d/l", Link), ("d/s", Submodule), ("d/f", Link)],
                seen: &[("d/l", Link), ("d/s", Submodule), ("d/f", File)],
                ..NOTHING
            },
            Case {
                name: "a file that became something else is not deleted, nor what was below it",
                parent: &[("d/a", File), ("d/b/c", File), ("d/bc", File)],
                seen: &[("d/a", File), ("d/b/c", File), ("d/bc", File)],
                skipped: &["d/a", "d/b"],
                deletes: &["d/bc"],
                skips: &["d/a", "d/b"],
                ..NOTHING
            },
            Case {
                name: "files of Git's own are not deleted",
                parent: &[("d/.gitkeep", File)],
                seen: &[("d/.gitkeep", File)],
                ..NOTHING
            },
            Case {
                name: "links and submodules are not replaced",
                parent: &[("d/l", Link), ("d/s", Submodule)],
                files: &["d/l", "d/s"],
                skips: &["d/l", "d/s"],
                ..NOTHING
            },
            Case {
                name: "nothing goes through a link, a submodule or an unseen file",
                parent: &[("d/l", Link), ("d/s", Submodule), ("d/f", File)],
                files: &["d/f/a", "d/l/a", "d/la", "d/s/a/b"],
                writes: &["d/la"],
                skips: &["d/f/a", "d/l/a", "d/s/a/b"],
                ..NOTHING
            },
            Case {
                name: "a file does not take the place of a folder with unseen files",
                parent: &[("d/a/unseen", File), ("d/a-b", File)],
                files: &["d/a"],
                skips: &["d/a"],
                ..NOTHING
            },
            Case {
                name: "a file may become a folder and a folder a file if all was seen",
                parent: &[("d/a", File), ("d/b/c", File)],
                seen: &[("d/a", File), ("d/b/c", File)],
                files: &["d/a/x", "d/b"],
                writes: &["d/a/x", "d/b"],
                deletes: &["d/a", "d/b/c"],
                ..NOTHING
            },
            Case {
                name: "a link above the output folder",
                parent: &[("d", Link)],
                files: &["d/e/a"],
                skips: &["d/e/a"],
                ..NOTHING
            },
        ];
        for case in cases {
            let plan = plan(
                &tree(case.parent),
                &tree(case.seen),
                left(case.files, case.skipped),
            );
            let writes: Vec<&str> = plan.writes.iter().map(|file| file.path.as_str()).collect();
            let skips: Vec<String> = plan.skipped.iter().map(|path| names::shown(path)).collect();
            assert_eq!(writes, case.writes, "{}: writes", case.name);
            assert_eq!(plan.deletes, case.deletes, "{}: deletes", case.name);
            assert_eq!(skips, case.skips, "{}: skips", case.name);
        }
    }
}
