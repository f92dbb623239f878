//! The directory that the supervisor shares with the runner.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
};
use serde_json::Value;

const SUPERVISOR_LOCK: &str = "supervisor.lock";
const RUNNER_LOCK: &str = "runner.lock";
const CONNECTION: &str = "connection.json";
const EXIT: &str = "exit.json";
const STOP: &str = "stop";

/// Maximum size of a connection file. It has ten short fields.
const CONNECTION_BYTES: u64 = 64 << 10;
/// Mode of our files. The runner belongs to the group of the volume.
const MODE: u32 = 0o640;

/// The directory that the supervisor shares with the runner.
#[derive(Debug)]
pub(super) struct Link {
    directory: PathBuf,
}

impl Link {
    pub(super) fn new(directory: PathBuf) -> Link {
        Link { directory }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the lock that shows that this process lives. It is free when the returned file is closed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn hold(&self) -> io::Result<File> {
        let file = self.create(SUPERVISOR_LOCK)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // A lock that appears before it is held would show the runner a supervisor that ended.
        self.publish(SUPERVISOR_LOCK)?;
        Ok(file)
    }

    /// Returns whether the runner started, and ended.
    ///
    /// # Errors
    /// When the lock cannot be read.
    pub(super) fn has_lost_runner(&self) -> io::Result<bool> {
        let Some(file) = self.open(RUNNER_LOCK)? else {
            return Ok(false);
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns whether the runner asked to stop.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn has_stop(&self) -> io::Result<bool> {
        match fs::symlink_metadata(self.directory.join(STOP)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the connection that the runner wants, once it is written.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn connection(&self) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(CONNECTION)? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        file.take(CONNECTION_BYTES).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    /// Writes the record of the end of the kernel.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write_exit(&self, record: &Value) -> io::Result<()> {
        let mut file = self.create(EXIT)?;
        file.write_all(record.to_string().as_bytes())?;
        self.publish(EXIT)
    }

    /// Opens a file of the runner without following a link, or returns `None` if there is none.
    fn open(&self, name: &str) -> io::Result<Option<File>> {
        // A pipe of the kernel must not block us.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match open(self.directory.join(name), flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file under another name. The runner never reads a part of a file.
    fn create(&self, name: &str) -> io::Result<File> {
        File::options()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(self.unpublished(name))
    }

    fn publish(&self, name: &str) -> io::Result<()> {
        fs::rename(self.unpublished(name), self.directory.join(name))
    }

    fn unpublished(&self, name: &str) -> PathBuf {
        self.directory.join([".", name, ".new"].concat())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn link(folder: &tempfile::TempDir) -> Link {
        Link::new(folder.path().to_owned())
    }

    fn is_free(folder: &tempfile::TempDir, name: &str) -> bool {
        let file = File::open(folder.path().join(name)).unwrap();
        flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
    }

    #[test]
    fn the_lock_is_held_until_the_file_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let held = link(&folder).hold().unwrap();
        assert!(!is_free(&folder, SUPERVISOR_LOCK));
        drop(held);
        assert!(is_free(&folder, SUPERVISOR_LOCK));
    }

    #[test]
    fn a_runner_is_lost_only_after_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let link = link(&folder);
        assert!(!link.has_lost_runner().unwrap());
        let lock = File::create(folder.path().join(RUNNER_LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!link.has_lost_runner().unwrap());
        drop(lock);
        assert!(link.has_lost_runner().unwrap());
    }

    #[test]
    fn files_of_the_runner_are_read_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let link = link(&folder);
        assert!(!link.has_stop().unwrap());
        assert_eq!(link.connection().unwrap(), None);
        fs::write(folder.path().join("target"), "{}").unwrap();
        let path = folder.path().join(CONNECTION);
        std::os::unix::fs::symlink(folder.path().join("target"), &path).unwrap();
        assert!(link.connection().is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "{}").unwrap();
        fs::write(folder.path().join(STOP), "{}").unwrap();
        assert_eq!(link.connection().unwrap(), Some(b"{}".to_vec()));
        assert!(link.has_stop().unwrap());
    }

    #[test]
    fn the_record_appears_complete() {
        let folder = tempfile::tempdir().unwrap();
        link(&folder).write_exit(&json!({ "code": 3 })).unwrap();
        let text = fs::read_to_string(folder.path().join(EXIT)).unwrap();
        assert_eq!(text, r#"{"code":3}"#);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
