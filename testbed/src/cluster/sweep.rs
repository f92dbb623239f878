//! Removing what a cluster leaves outside its namespaces: its control groups and its folder.
//! Everything else (processes, mounts, links, firewall rules, ports) ends with the namespaces.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Folders, is_name};
use crate::{
    cache::remove_folder,
    layout,
    lock::{self, Lock},
};

/// Logs of ended clusters are kept, this many.
const KEPT_LOGS: usize = 20;
/// A dying Pod with memory to give back takes a moment.
const LIMIT: Duration = Duration::from_secs(30);
/// Nobody holds the global lock for longer than it takes to make or remove one cluster.
const GLOBAL_LIMIT: Duration = Duration::from_secs(180);
/// For a cluster whose owner has just died to be gone.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

/// Held while a cluster is made or removed.
pub(super) fn global_lock() -> Result<Lock> {
    let state = layout::state()?;
    for folder in ["run", "logs", "locks", "trash"] {
        let folder = state.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create '{}'", folder.display()))?;
    }
    Lock::take(&state.join("lock"), GLOBAL_LIMIT, &mut |_| ())
        .context("another process is making or removing a cluster")
}

/// All clusters that have a folder, running or not.
///
/// # Errors
/// When the state folder cannot be read.
pub fn all() -> Result<Vec<Folders>> {
    let names = names(&layout::state()?.join("run"))?;
    names.iter().map(|name| Folders::new(name)).collect()
}

/// Names of folders that could be a cluster's; what else lies there is not ours.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_name(&name) && folder.join(&name).is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A cluster whose owner has just died is on its way out: wait for it. One that lives on is in the way.
pub(super) fn wait_for_end(folders: &Folders) -> Result<()> {
    let deadline = Instant::now() + ENDING_LIMIT;
    while Lock::is_held(&folders.lock)? {
        if folders.detached().exists() || Instant::now() > deadline {
            let name = &folders.name;
            bail!("cluster '{name}' runs already; 'cargo xtask testbed down {name}' ends it");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Removes what dead clusters left, and old logs. The caller holds the global lock.
///
/// What cannot be removed is returned as warnings: one stuck cluster must not stop all others. For
/// `wanted` it is an error.
pub(super) fn sweep(wanted: &Folders) -> Result<Vec<String>> {
    let state = layout::state()?;
    let mut warnings = Vec::new();
    let mut found = names(&state.join("run"))?;
    found.extend(names(&state.join("trash"))?);
    for name in found {
        let folders = Folders::new(&name)?;
        let Some(_lock) = Lock::try_take(&folders.lock)? else {
            continue;
        };
        match remove(&folders) {
            Ok(()) => {}
            Err(error) if wanted.name == name => return Err(error),
            Err(error) => warnings.push(format!("what is left of cluster '{name}': {error:#}")),
        }
    }
    remove_locks(&state)?;
    remove_logs(&state)?;
    Ok(warnings)
}

/// Safe under the global lock: whoever takes a cluster's lock to keep it holds the global one too.
fn remove_locks(state: &Path) -> Result<()> {
    for entry in fs::read_dir(state.join("locks"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let gone =
            !state.join("run").join(name).exists() && !state.join("trash").join(name).exists();
        if gone && let Some(_lock) = Lock::try_take(&path)? {
            fs::remove_file(&path)
                .with_context(|| format!("cannot remove '{}'", path.display()))?;
        }
    }
    Ok(())
}

fn remove_logs(state: &Path) -> Result<()> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(state.join("logs"))? {
        let entry = entry?;
        // The logs of a cluster that runs are its node's `/var/log`.
        if !state.join("run").join(entry.file_name()).exists() {
            logs.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    logs.sort();
    for (_, path) in logs.iter().rev().skip(KEPT_LOGS) {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove '{}'", path.display()))?;
    }
    Ok(())
}

/// Removes one dead cluster's control groups and folder. The caller holds the cluster's lock.
pub(super) fn remove(folders: &Folders) -> Result<()> {
    folders.cgroup().remove(LIMIT)?;
    remove_folder(&folders.trash, LIMIT)?;
    match fs::rename(&folders.run, &folders.trash) {
        Ok(()) => remove_folder(&folders.trash, LIMIT),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot move '{}'", folders.run.display()))
        }
    }
}

/// Ends a cluster whoever owns it, and removes it.
///
/// # Errors
/// When there is none of this name, or something of it does not go away.
pub fn down(folders: &Folders) -> Result<()> {
    let _global = global_lock()?;
    let name = &folders.name;
    if !folders.run.exists() && !folders.trash.exists() {
        bail!("no cluster '{name}'; 'cargo xtask testbed status' lists them");
    }
    let deadline = Instant::now() + LIMIT;
    // The kernel ends the cluster with its keeper, and frees the lock.
    let _lock = loop {
        if let Some(lock) = Lock::try_take(&folders.lock)? {
            break lock;
        }
        if let Some(keeper) = folders.keeper()? {
            match kill(Pid::from_raw(keeper), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => {
                    return Err(error).context(format!("cannot end the keeper of '{name}'"));
                }
            }
        }
        if Instant::now() > deadline {
            bail!(
                "'{}' stays locked by {}",
                folders.lock.display(),
                lock::holder(&folders.lock)?
            );
        }
        thread::sleep(Duration::from_millis(20));
    };
    remove(folders)
}
