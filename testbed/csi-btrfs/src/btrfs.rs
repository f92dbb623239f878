//! The btrfs below the driver: its subvolumes, their quotas, its space.
//!
//! Guarantees: a volume's size is a btrfs qgroup limit on what its subvolume refers to, data shared with snapshots
//! and metadata included; a write past it fails with EDQUOT.
//! Caveats: a subvolume that a workload makes inside of its volume has a quota of its own, without limit, and is not
//! part of snapshots and clones.

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use nix::sys::{statfs, statvfs};
use tokio::process::Command;

use crate::{
    mounts::Mounts,
    store::{Id, Kind},
};

/// Creating, snapshotting and deleting take milliseconds; a commit on a busy disk, seconds. Past this the disk hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a new driver waits for the last command of one that was killed. Another driver that runs does not go away.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The inode number of every subvolume's root directory, and of nothing else (BTRFS_FIRST_FREE_OBJECTID).
const SUBVOLUME_INODE: u64 = 256;

/// BTRFS_MAX_LEVEL: no tree is higher, so with this threshold no deletion is.
const HIGHEST_TREE: &str = "8";

#[derive(Debug, thiserror::Error)]
pub(crate) enum BtrfsError {
    #[error("cannot run `{command}`: {error}; is btrfs-progs installed?")]
    Start { command: String, error: io::Error },
    #[error("`{command}` did not end within {} s and was killed", TIMEOUT.as_secs())]
    Timeout { command: String },
    #[error("`{command}` failed, {status}: {output}")]
    Failed {
        command: String,
        status: std::process::ExitStatus,
        output: String,
    },
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BtrfsError {
    move |error| BtrfsError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

fn failed_errno(action: &'static str, path: &Path) -> impl FnOnce(nix::Error) -> BtrfsError {
    move |errno| failed(action, path)(errno.into())
}

/// Of the whole filesystem, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

/// The part of a btrfs that belongs to this driver.
#[derive(Debug)]
pub(crate) struct Pool {
    root: PathBuf,
    /// Held for as long as the driver or one of its `btrfs` commands runs; the kernel releases it when they end,
    /// however they end.
    lock: File,
}

impl Pool {
    /// Takes `root` for this process, and has quotas on and correct before the first volume is served.
    pub(crate) async fn open(root: &Path) -> anyhow::Result<Self> {
        let root = fs::canonicalize(root).with_context(|| format!("--root {}", root.display()))?;
        check_filesystem(&root)?;
        let lock = lock(&root, LOCK_PATIENCE).await?;
        let pool = Self { root, lock };
        for kind in [Kind::Volume, Kind::Snapshot] {
            let dir = pool.dir(kind);
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        pool.enable_quotas().await?;
        Ok(pool)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the records of a kind are. They are files of their own, next to the subvolumes and on the same disk.
    pub(crate) fn records(&self, kind: Kind) -> PathBuf {
        self.root.join("records").join(Self::folder(kind))
    }

    pub(crate) fn dir(&self, kind: Kind) -> PathBuf {
        self.root.join(Self::folder(kind))
    }

    pub(crate) fn path(&self, kind: Kind, id: &Id) -> PathBuf {
        self.dir(kind).join(id.as_str())
    }

    const fn folder(kind: Kind) -> &'static str {
        match kind {
            Kind::Volume => "volumes",
            Kind::Snapshot => "snapshots",
        }
    }

    pub(crate) fn check(&self) -> Result<(), anyhow::Error> {
        check_filesystem(&self.root)
    }

    pub(crate) fn space(&self) -> Result<Space, BtrfsError> {
        let stat =
            statvfs::statvfs(&self.root).map_err(failed_errno("read the space of", &self.root))?;
        let block = stat.fragment_size();
        Ok(Space {
            total: block.saturating_mul(stat.blocks()),
            available: block.saturating_mul(stat.blocks_available()),
        })
    }

    pub(crate) async fn create(&self, path: &Path) -> Result<(), BtrfsError> {
        self.run(&["subvolume".as_ref(), "create".as_ref(), path.as_os_str()])
            .await
    }

    pub(crate) async fn snapshot(
        &self,
        from: &Path,
        to: &Path,
        read_only: bool,
    ) -> Result<(), BtrfsError> {
        let mut args: Vec<&OsStr> = vec!["subvolume".as_ref(), "snapshot".as_ref()];
        if read_only {
            args.push("-r".as_ref());
        }
        args.extend([from.as_os_str(), to.as_os_str()]);
        self.run(&args).await
    }

    pub(crate) async fn limit(&self, path: &Path, bytes: u64) -> Result<(), BtrfsError> {
        let bytes = bytes.to_string();
        self.run(&[
            "qgroup".as_ref(),
            "limit".as_ref(),
            bytes.as_ref(),
            path.as_os_str(),
        ])
        .await
    }

    /// Deletes a subvolume with all that is in it, durably; one that is not there is already deleted.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), BtrfsError> {
        match fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("look at", path)(error)),
        }
        let Err(error) = self.delete_one(path).await else {
            return Ok(());
        };
        // The usual reason is a subvolume inside of the volume. To look for one reads all directories, so it is
        // not done before.
        let nested = nested_subvolumes(path)?;
        if nested.is_empty() {
            return Err(error);
        }
        for subvolume in std::iter::once(path).chain(nested.iter().map(PathBuf::as_path)) {
            self.make_writable(subvolume).await?;
        }
        for subvolume in nested.iter().rev() {
            self.delete_one(subvolume).await?;
        }
        self.delete_one(path).await
    }

    /// Commits all that was done before. The fsync of a record does not imply it: btrfs would log that file alone,
    /// and a power cut could bring back the record without its subvolume.
    pub(crate) fn sync(&self) -> Result<(), BtrfsError> {
        let dir = File::open(&self.root).map_err(failed("open", &self.root))?;
        nix::unistd::syncfs(dir).map_err(failed_errno("sync", &self.root))
    }

    async fn enable_quotas(&self) -> anyhow::Result<()> {
        let root = self.root.as_os_str();
        self.run(&["quota".as_ref(), "enable".as_ref(), root])
            .await?;
        self.run(&["quota".as_ref(), "rescan".as_ref(), "-W".as_ref(), root])
            .await?;
        let qgroups = self.kernel_settings().await?.join("qgroups");
        // Without this the kernel may stop all accounting when a large subvolume is deleted. A kernel without the
        // setting always accounts.
        let threshold = qgroups.join("drop_subtree_threshold");
        match fs::write(&threshold, HIGHEST_TREE) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("write", &threshold)(error).into()),
        }
        let inconsistent = qgroups.join("inconsistent");
        let found = fs::read_to_string(&inconsistent).map_err(failed("read", &inconsistent))?;
        if found.trim() != "0" {
            self.run(&["quota".as_ref(), "rescan".as_ref(), "-w".as_ref(), root])
                .await?;
        }
        Ok(())
    }

    /// The filesystem's directory in sysfs.
    async fn kernel_settings(&self) -> anyhow::Result<PathBuf> {
        let mounts = Mounts::read()?;
        let point = mounts
            .point_of(&self.root)
            .context("the mount of --root is not in /proc/self/mountinfo")?;
        let shown = self
            .output(&["filesystem".as_ref(), "show".as_ref(), point.as_os_str()])
            .await?;
        let uuid = uuid_in(&shown).with_context(|| {
            format!(
                "wanted a line with `uuid: …` from `btrfs filesystem show {}`, found {shown:?}",
                point.display()
            )
        })?;
        Ok(Path::new("/sys/fs/btrfs").join(uuid))
    }

    async fn delete_one(&self, path: &Path) -> Result<(), BtrfsError> {
        self.run(&[
            "subvolume".as_ref(),
            "delete".as_ref(),
            "--commit-after".as_ref(),
            path.as_os_str(),
        ])
        .await
    }

    async fn make_writable(&self, path: &Path) -> Result<(), BtrfsError> {
        let words = ["property", "set", "-f", "-t", "subvol"].map(OsStr::new);
        let args: Vec<&OsStr> = words
            .into_iter()
            .chain([path.as_os_str(), "ro".as_ref(), "false".as_ref()])
            .collect();
        self.run(&args).await
    }

    async fn run(&self, args: &[&OsStr]) -> Result<(), BtrfsError> {
        self.output(args).await.map(drop)
    }

    /// The command holds the lock, as its stdin: should the driver be killed now, the next one waits for the
    /// command's end, and no late deletion hits what a retry has made in the meantime.
    async fn output(&self, args: &[&OsStr]) -> Result<String, BtrfsError> {
        let words: Vec<_> = std::iter::once("btrfs".into())
            .chain(args.iter().map(|arg| arg.to_string_lossy()))
            .collect();
        let command = words.join(" ");
        let lock = self
            .lock
            .try_clone()
            .map_err(failed("share the lock in", &self.root))?;
        let running = Command::new("btrfs")
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::from(lock))
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(TIMEOUT, running).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(BtrfsError::Start { command, error }),
            Err(_elapsed) => return Err(BtrfsError::Timeout { command }),
        };
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(BtrfsError::Failed {
                command,
                status: output.status,
                output: stderr,
            })
        }
    }
}

fn check_filesystem(root: &Path) -> anyhow::Result<()> {
    let found = statfs::statfs(root)
        .map_err(failed_errno("look at the filesystem of", root))?
        .filesystem_type();
    anyhow::ensure!(
        found == statfs::BTRFS_SUPER_MAGIC,
        "{} must be on a mounted btrfs, found a filesystem of type {:#x}",
        root.display(),
        found.0
    );
    Ok(())
}

/// Two drivers on one root would take each other's half-made subvolumes for remains.
async fn lock(root: &Path, patience: Duration) -> anyhow::Result<File> {
    let path = root.join("lock");
    let file = File::create(&path).map_err(failed("create", &path))?;
    let mut left = patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if !left.is_zero() => {
                let pause = left.min(LOCK_PAUSE);
                tokio::time::sleep(pause).await;
                left -= pause;
            }
            Err(TryLockError::WouldBlock) => {
                anyhow::bail!(
                    "another driver runs on {}: it holds the lock on {}",
                    root.display(),
                    path.display()
                )
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error).into()),
        }
    }
}

/// All subvolumes below `top`, each after the one that it is in.
///
/// Read from the directories, not from `btrfs subvolume list`: that prints names as they are, and a workload could
/// name a subvolume such that a line of the list shows somebody else's.
fn nested_subvolumes(top: &Path) -> Result<Vec<PathBuf>, BtrfsError> {
    let mut found = Vec::new();
    let mut unread = vec![top.to_owned()];
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(&dir).map_err(failed("list", &dir))? {
            let entry = entry.map_err(failed("list", &dir))?;
            let path = entry.path();
            // Of the entry itself: symbolic links are not followed.
            let metadata = entry.metadata().map_err(failed("look at", &path))?;
            if !metadata.is_dir() {
                continue;
            }
            if metadata.ino() == SUBVOLUME_INODE {
                found.push(path.clone());
            }
            unread.push(path);
        }
    }
    Ok(found)
}

fn uuid_in(shown: &str) -> Option<&str> {
    let (_, rest) = shown.split_once("uuid: ")?;
    let uuid = rest.split_whitespace().next()?;
    uuid.chars()
        .all(|c| c.is_ascii_hexdigit() || c == '-')
        .then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_is_found_and_nothing_else_taken() {
        let shown = "Label: none  uuid: 477b2ab0-5b7f-48c3-a62f-b25e9f63a5c3\n\tTotal devices 1 FS bytes used 176.00KiB\n";
        assert_eq!(uuid_in(shown), Some("477b2ab0-5b7f-48c3-a62f-b25e9f63a5c3"));
        assert_eq!(uuid_in("Label: none"), None);
        assert_eq!(uuid_in("uuid: ../../etc"), None);
    }

    #[tokio::test]
    async fn another_filesystem_is_refused() {
        let error = Pool::open(Path::new("/proc")).await.unwrap_err();
        assert!(
            error.to_string().contains("must be on a mounted btrfs"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn one_driver_per_root() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path(), Duration::ZERO).await.unwrap();
        let command_s = first.try_clone().unwrap();
        drop(first);
        let error = lock(dir.path(), LOCK_PAUSE).await.unwrap_err();
        assert!(error.to_string().contains("another driver"), "{error}");
        drop(command_s);
        lock(dir.path(), Duration::ZERO).await.unwrap();
    }

    #[test]
    fn plain_directories_and_links_are_no_subvolumes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/link")).unwrap();
        assert!(nested_subvolumes(dir.path()).unwrap().is_empty());
    }
}
