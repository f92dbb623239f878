//! The keeper: the one process of a cluster outside its namespaces. It holds the cluster's lock,
//! watches the owner, and removes what the kernel does not remove by itself.
//!
//! Who may die, and what happens then:
//! - the owner: the keeper's standard input ends, it ends the cluster and cleans up;
//! - the keeper: the kernel kills the first process, and with it all others; control groups and
//!   folder stay until the next `up` sweeps them;
//! - the first process: the kernel kills all others, the keeper cleans up.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};

use super::{Folders, sweep, write};
use crate::lock::Lock;

/// Runs as long as the cluster. `init` is the command line of [`super::init::run`].
///
/// # Errors
/// When the cluster cannot be set up or cleaned up.
pub fn run(folders: &Folders, init: &mut Command) -> Result<()> {
    let lock = Lock::try_take(&folders.lock())?.context("another keeper holds this cluster")?;
    let result = keep(folders, init);
    folders.cgroup().leave()?;
    // The lock is released only after the folder is gone: nobody may take a half-removed cluster.
    let swept = sweep::remove(folders);
    drop(lock);
    result.and(swept)
}

fn keep(folders: &Folders, init: &mut Command) -> Result<()> {
    folders.cgroup().enter()?;
    // Made here, in the machine's network; the first process takes it along into its own.
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let port = listener.local_addr()?.port();
    // Before the next step: a process whose children get a new namespace can start no threads.
    let owner = thread::spawn({
        let folders = folders.clone();
        move || wait_for_owner(&folders)
    });
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a process namespace (root needed)")?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(folders.logs.join("init.log"))?;
    let mut child = init
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start the cluster's first process")?;
    let mut ready = String::new();
    BufReader::new(
        child
            .stdout
            .take()
            .context("no output of the first process")?,
    )
    .read_line(&mut ready)?;
    ensure!(
        ready == "ready\n",
        "the cluster's first process failed; see '{}'",
        folders.logs.join("init.log").display()
    );
    write(&folders.port(), port.to_string().as_bytes())?;

    while !owner.is_finished() {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    child
        .kill()
        .context("cannot end the cluster's first process")?;
    child.wait()?;
    Ok(())
}

/// Returns when the owner is gone, and never for a cluster that was detached from it.
fn wait_for_owner(folders: &Folders) {
    let read = std::io::stdin().lock().read_to_end(&mut Vec::new());
    while read.is_ok() && folders.detached().exists() {
        thread::park();
    }
}
