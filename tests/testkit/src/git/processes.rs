//! Ending a server with all that it started.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Child,
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Stops a server without its noticing.
pub(super) fn freeze(child: &Child) -> Result<()> {
    send(pid_of(child)?, Signal::SIGSTOP)
}

/// Undoes [`freeze`].
pub(super) fn thaw(child: &Child) -> Result<()> {
    send(pid_of(child)?, Signal::SIGCONT)
}

/// Kills it and its descendants: sessions of sshd and programs behind lighttpd outlive them.
pub(super) fn end(child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let pid = pid_of(child)?;
    // Frozen, it starts no more of them while they are counted.
    send(pid, Signal::SIGSTOP)?;
    let descendants = descendants(pid.as_raw(), &parents()?);
    child.kill()?;
    for one in descendants {
        send(Pid::from_raw(one), Signal::SIGKILL)?;
    }
    child.wait()?;
    Ok(())
}

/// Kills what was left without a parent: a program that sshd ran does not end with its client.
pub(super) fn end_orphans(here: &Path) -> Result<()> {
    let home = format!("HOME={}", here.display());
    for pid in processes()? {
        // Gone meanwhile, or another user's.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|variable| variable == home.as_bytes()) {
            send(Pid::from_raw(pid), Signal::SIGKILL)?;
        }
    }
    Ok(())
}

fn pid_of(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

fn send(pid: Pid, signal: Signal) -> Result<()> {
    match kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot send {signal} to {pid}")),
    }
}

fn processes() -> Result<Vec<i32>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            processes.push(name.parse()?);
        }
    }
    Ok(processes)
}

/// The parent of each process of the machine.
fn parents() -> Result<BTreeMap<i32, i32>> {
    let mut parents = BTreeMap::new();
    for pid in processes()? {
        // Gone meanwhile: no parent.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some(parent) = parent_in(&stat) {
            parents.insert(pid, parent.parse()?);
        }
    }
    Ok(parents)
}

/// `1234 (a) name) S 1 …`: the name may hold anything.
fn parent_in(stat: &str) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)
}

fn descendants(of: i32, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        for (child, parent) in parents {
            if found.contains(parent) {
                found.insert(*child);
            }
        }
        if found.len() == before {
            found.remove(&of);
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_in_any_order_of_numbers() {
        let parents = BTreeMap::from([(2, 1), (9, 2), (3, 9), (4, 1), (5, 4)]);
        assert_eq!(descendants(2, &parents), BTreeSet::from([3, 9]));
        assert_eq!(descendants(5, &parents), BTreeSet::new());
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12"), Some("7"));
        assert_eq!(parent_in("nothing"), None);
    }
}
