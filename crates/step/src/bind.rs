//! Compares the root directories of a restored volume and of the volume of an application.
//!
//! A Pod has to mount the restored volume, so that it is bound. This program is what the Pod runs.

use std::{
    fs::{self, DirEntry},
    io,
    path::Path,
};

/// Exit code: the volume of the application has entries, and the restored one has none.
pub(crate) const EMPTY: u8 = 3;

/// Directory that file systems create by themselves.
const LOST_AND_FOUND: &str = "lost+found";

/// Returns whether the restored volume lost its content, and a line for the log. A directory that cannot be read decides
/// nothing: the files belong to the user of the application.
pub(crate) fn compare(old: &Path, new: &Path) -> (bool, String) {
    let (old, new) = (has_entries(old), has_entries(new));
    let is_empty = matches!((&old, &new), (Ok(true), Ok(false)));
    let text = format!(
        "old volume: {}; new volume: {}",
        describe(&old),
        describe(&new)
    );
    (is_empty, text)
}

fn has_entries(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        if is_content(&entry?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_content(entry: &DirEntry) -> bool {
    entry.file_name() != LOST_AND_FOUND
}

fn describe(found: &io::Result<bool>) -> String {
    match found {
        Ok(true) => "has entries".to_owned(),
        Ok(false) => "has no entry".to_owned(),
        Err(error) => format!("cannot be read ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restored_volume_without_entries_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let (full, empty, fresh) = (
            root.path().join("full"),
            root.path().join("empty"),
            root.path().join("fresh"),
        );
        for path in [&full, &empty, &fresh] {
            fs::create_dir(path).unwrap();
        }
        fs::write(full.join("PG_VERSION"), "15").unwrap();
        fs::create_dir(fresh.join(LOST_AND_FOUND)).unwrap();
        let missing = root.path().join("missing");
        for (old, new, expected) in [
            (&full, &full, false),
            (&full, &empty, true),
            (&full, &fresh, true),
            (&empty, &empty, false),
            (&fresh, &empty, false),
            // A directory that cannot be read decides nothing.
            (&missing, &empty, false),
            (&full, &missing, false),
        ] {
            let (found, text) = compare(old, new);
            assert_eq!(found, expected, "{text}");
        }
    }
}
