//! The cluster's own branch of the control groups. Every process of a cluster is in it, so that
//! "is anything left?" has one answer, and two kubelets do not clean up each other's Pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const ROOT: &str = "/sys/fs/cgroup";
/// Programs that run beside the Pods: API server, kubelet, containerd and so on.
const HOST: &str = "host";

/// One cluster's branch.
#[derive(Debug, Clone)]
pub struct Cgroup {
    name: String,
}

impl Cgroup {
    pub(super) fn new(name: String) -> Self {
        Self { name }
    }

    /// For the kubelet's `cgroupRoot`.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Makes the branch in every hierarchy and moves this process into it; children follow.
    pub(super) fn enter(&self) -> Result<()> {
        for root in roots()? {
            let branch = root.join(&self.name);
            for folder in [branch.clone(), branch.join(HOST)] {
                fs::create_dir_all(&folder).with_context(|| {
                    format!("cannot create '{}' (root needed)", folder.display())
                })?;
                // A new cpuset has no CPUs and refuses every process until it gets some.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let parent = folder.parent().unwrap_or(&root).join(file);
                    if parent.exists() {
                        fs::write(folder.join(file), fs::read(&parent)?)
                            .with_context(|| format!("cannot set {file}"))?;
                    }
                }
            }
            move_to(&branch.join(HOST))?;
        }
        Ok(())
    }

    /// Moves this process back to the top, so that the branch can be removed.
    pub(super) fn leave(&self) -> Result<()> {
        roots()?.iter().try_for_each(|root| move_to(root))
    }

    /// Processes of the cluster, as the machine numbers them.
    pub fn processes(&self) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        for root in roots()? {
            collect(&root.join(&self.name), &mut found)?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether any hierarchy still has the branch.
    pub fn exists(&self) -> Result<bool> {
        Ok(roots()?.iter().any(|root| root.join(&self.name).exists()))
    }

    /// Kills what is left in the branch, waits for its end, and removes the branch.
    pub(super) fn remove(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = self.processes()?;
            if left.is_empty() && self.try_remove()? {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "control group '{}' cannot be removed; processes in it: {left:?}",
                    self.name
                );
            }
            // A frozen process, as a paused container is, does not even die.
            self.thaw()?;
            for pid in left {
                match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(error) => return Err(error).with_context(|| format!("cannot kill {pid}")),
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn thaw(&self) -> Result<()> {
        for root in roots()? {
            thaw(&root.join(&self.name))?;
        }
        Ok(())
    }

    fn try_remove(&self) -> Result<bool> {
        for root in roots()? {
            match remove_tree(&root.join(&self.name)) {
                Ok(()) => {}
                // A process that is just ending still counts.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(false),
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot remove control group '{}'", self.name));
                }
            }
        }
        Ok(true)
    }
}

/// Whether the kubelet's parts of this machine's control groups are of the first version, the only
/// one that the `Node` tier was seen working on.
pub(super) fn is_version_one() -> bool {
    !Path::new(ROOT).join("cgroup.controllers").exists()
}

/// The hierarchies: one for each controller in version 1 (links to a joint one counted once), one in version 2.
fn roots() -> Result<Vec<PathBuf>> {
    if !is_version_one() {
        return Ok(vec![PathBuf::from(ROOT)]);
    }
    let mut roots = Vec::new();
    for entry in fs::read_dir(ROOT).with_context(|| format!("no control groups at {ROOT}"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").exists() {
            roots.push(entry.path());
        }
    }
    roots.sort();
    Ok(roots)
}

fn move_to(folder: &Path) -> Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
        .with_context(|| format!("cannot move into '{}'", folder.display()))
}

fn collect(folder: &Path, found: &mut Vec<i32>) -> Result<()> {
    let list = match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(list) => list,
        // Branches vanish while we look.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(Errno::ENODEV as i32) =>
        {
            return Ok(());
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read '{}'", folder.display()));
        }
    };
    for line in list.lines() {
        found.push(
            line.parse()
                .with_context(|| format!("not a process number: '{line}'"))?,
        );
    }
    for child in children(folder)? {
        collect(&child, found)?;
    }
    Ok(())
}

fn thaw(folder: &Path) -> Result<()> {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        let file = folder.join(file);
        match fs::write(&file, value) {
            Ok(()) => {}
            Err(_) if !file.exists() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write '{}'", file.display()));
            }
        }
    }
    children(folder)?.iter().try_for_each(|child| thaw(child))
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    for child in children(folder)? {
        remove_tree(&child)?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}
