//! Reads files and directories of this machine as files of a run. A path that cannot become a file
//! of a run is rejected with its name; nothing is skipped silently.

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use actions::FILES;
use api::tasks::{CONTEXT_LIMIT, File};

use crate::failure::Failure;

/// Maximum depth of nested directories. A deeper tree is a mistake or a loop.
const DEPTH: usize = 16;

/// Reads paths. A directory contributes all files below it, sorted by name.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<File>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        // With a slash at its end, a link would be followed: 'link/' is the folder that it leads to.
        let path: PathBuf = path.components().collect();
        let kind = fs::symlink_metadata(&path).map_err(|error| cannot_read(&path, &error))?;
        if kind.is_symlink() {
            return Err(linked(&path));
        } else if kind.is_dir() {
            walk(&path, "", 0, &mut found)?;
        } else {
            push(&path, &segment(&path)?, &mut found)?;
        }
    }
    Ok(found.into_iter().map(|(_, file)| file).collect())
}

/// Files with the paths that they were read from.
type Found = Vec<(PathBuf, File)>;

/// Reads paths, of which one may be `-`: the standard input, as a file without a name.
pub(crate) fn read_with_input(
    paths: &[PathBuf],
    input: fn() -> Box<dyn Read>,
) -> Result<Vec<File>, Failure> {
    let is_input = |path: &&PathBuf| path.as_path() == Path::new("-");
    let (inputs, others): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(is_input);
    if inputs.len() > 1 {
        return Err(Failure::client("'-' can be read once only"));
    }
    let others: Vec<PathBuf> = others.into_iter().cloned().collect();
    let mut files = read(&others)?;
    if !inputs.is_empty() {
        files.push(read_input(&mut input())?);
    }
    Ok(files)
}

/// Reads the standard input, which has no file name.
fn read_input(input: &mut dyn Read) -> Result<File, Failure> {
    let path = Path::new("-");
    Ok(File {
        filename: String::new(),
        content: text(path, bytes(path, input)?)?,
    })
}

fn walk(folder: &Path, prefix: &str, depth: usize, found: &mut Found) -> Result<(), Failure> {
    if depth > DEPTH {
        return Err(refused(
            folder,
            &format!("is more than {DEPTH} folders deep"),
        ));
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))? {
        paths.push(entry.map_err(|error| cannot_read(folder, &error))?.path());
    }
    paths.sort();
    for path in paths {
        let name = segment(&path)?;
        let kind = fs::symlink_metadata(&path).map_err(|error| cannot_read(&path, &error))?;
        if kind.is_symlink() {
            return Err(linked(&path));
        } else if kind.is_dir() {
            walk(&path, &format!("{prefix}{name}-"), depth + 1, found)?;
        } else {
            push(&path, &format!("{prefix}{name}"), found)?;
        }
    }
    Ok(())
}

fn push(path: &Path, name: &str, found: &mut Found) -> Result<(), Failure> {
    if let Some((other, _)) = found.iter().find(|(_, known)| known.filename == name) {
        return Err(refused(
            path,
            &format!(
                "would be file '{name}', as would '{}'; rename one of them",
                other.display()
            ),
        ));
    }
    if found.len() >= FILES {
        return Err(refused(
            path,
            &format!("is one too many: a run may have {FILES} files"),
        ));
    }
    let kind = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    if !kind.is_file() {
        return Err(refused(path, "is no regular file"));
    }
    let mut file = fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
    let file = File {
        filename: name.to_owned(),
        content: text(path, bytes(path, &mut file)?)?,
    };
    found.push((path.to_owned(), file));
    Ok(())
}

/// Reads at most the size that a run may have, so that a huge file is not read to its end.
fn bytes(path: &Path, source: &mut dyn Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(CONTEXT_LIMIT).unwrap_or(u64::MAX);
    source
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, &error))?;
    if bytes.len() > CONTEXT_LIMIT {
        return Err(refused(
            path,
            "is too large: the files of a run may have 900 KiB together",
        ));
    }
    Ok(bytes)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.contains(&0) {
        return Err(refused(path, "is binary; a run takes text"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        refused(path, &format!("is not UTF-8 text: see byte {at}"))
    })
}

/// Returns the last part of a path if it is valid as a file name or a part of one.
fn segment(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(OsStr::to_str);
    match name {
        Some(name) if name.starts_with('.') => Err(refused(
            path,
            "is hidden; a run takes no hidden files, give the files one by one",
        )),
        Some(name) => Ok(name.to_owned()),
        None => Err(refused(path, "has no name that a file of a run could have")),
    }
}

fn linked(path: &Path) -> Failure {
    refused(
        path,
        "is a symbolic link; links are not followed, give the path that it leads to",
    )
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::client(format!("'{}' {why}", path.display()))
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::client(format!("cannot read '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn names(paths: &[PathBuf]) -> Result<Vec<String>, String> {
        read(paths)
            .map(|files| files.into_iter().map(|file| file.filename).collect())
            .map_err(|failure| failure.message())
    }

    #[test]
    fn folders_are_walked_in_order_with_flat_names() {
        let folder = tree(&[
            ("in/b.md", b"b"),
            ("in/a.md", b"a"),
            ("in/sub/c.md", b"c"),
            ("in/sub/deep/d.md", b"d"),
            ("task.md", b"t"),
        ]);
        let at = |path: &str| folder.path().join(path);
        assert_eq!(
            names(&[at("task.md"), at("in")]).unwrap(),
            ["task.md", "a.md", "b.md", "sub-c.md", "sub-deep-d.md"]
        );
        assert_eq!(read(&[at("in/sub/c.md")]).unwrap()[0].content, "c");
    }

    #[test]
    fn what_cannot_be_a_file_is_refused_by_its_path() {
        let large = vec![b'x'; CONTEXT_LIMIT + 1];
        type Files<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Files<'_>, &str, &str); 7] = [
            (&[("in/.git/config", b"x")], "in/.git'", "is hidden"),
            (&[("in/.env", b"x")], "in/.env'", "is hidden"),
            (&[("in/a.png", b"\x89PNG\0")], "in/a.png'", "is binary"),
            (
                &[("in/a.md", b"ok\xff")],
                "in/a.md'",
                "is not UTF-8 text: see byte 2",
            ),
            (&[("in/a.md", &large)], "in/a.md'", "is too large"),
            (
                &[("in/a-b.md", b"x"), ("in/a/b.md", b"y")],
                "in/a-b.md'",
                "would be file 'a-b.md'",
            ),
            (&[("other.md", b"x")], "/in'", "cannot read"),
        ];
        for (files, path, wanted) in cases {
            let folder = tree(files);
            let said = names(&[folder.path().join("in")]).unwrap_err();
            assert!(said.contains(path) && said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn links_lead_nowhere() {
        let folder = tree(&[("secret", b"x"), ("in/a.md", b"x"), ("out/c.md", b"x")]);
        let at = |path: &str| folder.path().join(path);
        symlink(at("secret"), at("in/b.md")).unwrap();
        symlink(at("out"), at("link")).unwrap();
        symlink(at("nothing"), at("broken")).unwrap();
        let cases = [
            ("in", "in/b.md'"),
            ("in/b.md", "in/b.md'"),
            ("link", "link'"),
            // The system follows a link with a slash at its end.
            ("link/", "link'"),
            ("link/.", "link'"),
            ("broken", "broken'"),
        ];
        for (path, wanted) in cases {
            let said = names(&[at(path)]).unwrap_err();
            let wanted = format!("{wanted} is a symbolic link");
            assert!(said.contains(&wanted), "{path}: {said}");
        }
        assert_eq!(names(&[at("out/")]).unwrap(), ["c.md"]);
        assert_eq!(names(&[at("in/../out/./c.md")]).unwrap(), ["c.md"]);
    }

    #[test]
    fn too_many_files_are_noticed_before_they_are_read() {
        let names_of: Vec<String> = (0..129).map(|number| format!("in/{number}")).collect();
        let files: Vec<(&str, &[u8])> = names_of
            .iter()
            .map(|name| (name.as_str(), b"x".as_slice()))
            .collect();
        let said = names(&[tree(&files).path().join("in")]).unwrap_err();
        assert!(said.contains("one too many"), "{said}");
    }
}
