//! Removing what a cluster leaves outside its namespaces: its control groups and its folder.
//! Everything else (processes, mounts, links, firewall rules, ports) ends with the namespaces.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::Folders;
use crate::{layout, lock::Lock};

/// Logs of ended clusters are kept, this many.
const KEPT_LOGS: usize = 20;
/// A dying Pod with memory to give back takes a moment.
const LIMIT: Duration = Duration::from_secs(30);

/// Held while a cluster is made or removed.
pub(super) fn global_lock() -> Result<Lock> {
    let state = layout::state();
    fs::create_dir_all(state.join("run"))
        .with_context(|| format!("cannot create '{}'", state.display()))?;
    fs::create_dir_all(state.join("logs"))?;
    Lock::take(&state.join("lock"), &mut |_| ())
}

/// All clusters that have a folder, running or not.
///
/// # Errors
/// When the state folder cannot be read.
pub fn all() -> Result<Vec<Folders>> {
    let entries = match fs::read_dir(layout::state().join("run")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        found.push(Folders::new(&name.to_string_lossy())?);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Removes what dead clusters left, and old logs. The caller holds the global lock.
pub(super) fn sweep() -> Result<()> {
    for folders in all()? {
        if Lock::try_take(&folders.lock())?.is_some() {
            remove(&folders)?;
        }
    }
    let mut logs = Vec::new();
    for entry in fs::read_dir(layout::state().join("logs"))? {
        let entry = entry?;
        logs.push((entry.metadata()?.modified()?, entry.path()));
    }
    logs.sort();
    for (_, path) in logs.iter().rev().skip(KEPT_LOGS) {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove '{}'", path.display()))?;
    }
    Ok(())
}

/// Removes one dead cluster's control groups and folder.
pub(super) fn remove(folders: &Folders) -> Result<()> {
    folders.cgroup().remove(LIMIT)?;
    let deadline = Instant::now() + LIMIT;
    loop {
        match fs::remove_dir_all(&folders.run) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // The last mounts of a dead namespace are taken down in the background.
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot remove '{}'", folders.run.display()));
            }
        }
    }
}

/// Ends a cluster whoever owns it, and removes it.
///
/// # Errors
/// When there is none of this name, or something of it does not go away.
pub fn down(folders: &Folders) -> Result<()> {
    let _global = global_lock()?;
    if !folders.run.exists() {
        bail!(
            "no cluster '{}'; 'cargo xtask testbed status' lists them",
            folders.name
        );
    }
    let deadline = Instant::now() + LIMIT;
    // The kernel ends the cluster with its keeper, and frees the lock.
    while Lock::try_take(&folders.lock())?.is_none() {
        let keeper = folders.keeper()?;
        match kill(Pid::from_raw(keeper), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot end the keeper of '{}'", folders.name));
            }
        }
        if Instant::now() > deadline {
            bail!(
                "the keeper of '{}' (process {keeper}) does not end",
                folders.name
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    remove(folders)
}
