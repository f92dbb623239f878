//! What the builders of parts and of images do alike in the cache, and removing a folder for good.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::lock::Lock;

/// Results of one part or image that are kept: branches with other versions share a cache.
const KEPT: usize = 3;
/// All parts take half an hour on two idle cores; a machine four times slower still ends.
const LOCK_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// For processes that were killed a moment ago to stop writing to a work folder.
pub(crate) const REMOVE_LIMIT: Duration = Duration::from_secs(5);
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

/// Waits until nobody else builds into `cache`.
///
/// # Errors
/// When the lock cannot be taken, or somebody holds it for longer than two hours.
pub(crate) fn lock(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Lock> {
    Lock::take(&cache.join("lock"), LOCK_LIMIT, &mut |holder| {
        progress(&format!(
            "waiting: {holder} is building into '{}'",
            cache.display()
        ));
    })
}

/// What to remove of the results in `folder` whose names `belongs` accepts, so that of them stay
/// `current` and the newest others, three in all.
pub(crate) fn outdated(
    folder: &Path,
    current: &Path,
    belongs: impl Fn(&str) -> bool,
) -> Result<Vec<PathBuf>> {
    let mut others = Vec::new();
    for path in entries(folder, belongs)? {
        if path != current {
            let modified = fs::metadata(&path).and_then(|data| data.modified());
            let modified = modified.with_context(|| format!("cannot read '{}'", path.display()))?;
            others.push((modified, path));
        }
    }
    others.sort();
    others.truncate(others.len().saturating_sub(KEPT - 1));
    Ok(others.into_iter().map(|(_, path)| path).collect())
}

/// Paths of the entries of `folder` whose names `belongs` accepts; names that are not UTF-8 are
/// not ours.
pub(crate) fn entries(folder: &Path, belongs: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let reading = || format!("cannot read '{}'", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.file_name().to_str().is_some_and(&belongs) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

/// Removes a folder with all in it, also while dying processes still write to it, or the kernel still
/// takes down mounts in it; that there is none is fine.
///
/// # Errors
/// When it is not gone after `limit`.
pub(crate) fn remove_folder(path: &Path, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            // Also when a file in it went away by itself: then the folder may still be there.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_dir() => return Ok(()),
            Err(_) if Instant::now() < deadline => sleep(REMOVE_PAUSE),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot remove '{}'", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::SystemTime};

    use super::*;

    #[test]
    fn current_and_the_newest_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        // Named against the order of their times.
        for (seconds, name) in [(1, "a9"), (2, "a8"), (3, "a7"), (4, "a6"), (0, "b0")] {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        }
        for (current, wanted) in [
            ("a6", vec!["a9"]),
            ("a9", vec!["a8"]),
            ("none", vec!["a9", "a8"]),
        ] {
            let current = folder.path().join(current);
            let paths = outdated(folder.path(), &current, |name| name.starts_with('a')).unwrap();
            let wanted: Vec<_> = wanted.iter().map(|name| folder.path().join(name)).collect();
            assert_eq!(paths, wanted, "{}", current.display());
        }
    }

    #[test]
    fn a_folder_that_is_still_written_to_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Not forever: a killed process has an end.
                for number in 0..200_u32 {
                    if fs::write(work.join(number.to_string()), "").is_err() {
                        return;
                    }
                    sleep(Duration::from_millis(2));
                }
            });
            remove_folder(&work, REMOVE_LIMIT).unwrap();
            writer.join().unwrap();
        });
        assert!(!work.exists());
        remove_folder(&work, REMOVE_LIMIT).unwrap();
    }

    #[test]
    fn what_cannot_be_removed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = remove_folder(&file, Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }
}
