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
    io::Read,
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};

use super::{Folders, NAMESPACES_LIMIT, sweep, wait_for, write};
use crate::{lock::Lock, process};

/// Runs as long as the cluster. `init` is the command line of [`super::init::run`].
///
/// # Errors
/// When the cluster cannot be set up or cleaned up.
pub fn run(folders: &Folders, init: &mut Command) -> Result<()> {
    // Somebody may be asking at this instant whether it is held.
    let lock = Lock::take(&folders.lock, Duration::from_secs(5), &mut |_| ())?;
    let result = keep(folders, init);
    folders.cgroup().leave()?;
    // The lock is released only after all is gone: nobody may take a half-removed cluster.
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
    // Never read: the first process writes to it and so notices when the keeper is gone.
    let _ready = child.stdout.take();
    let deadline = Instant::now() + NAMESPACES_LIMIT;
    let mut ready = false;
    while !owner.is_finished() {
        if let Some(status) = child.try_wait()? {
            ensure!(
                ready,
                "the first process {}: {}",
                process::ended(status),
                process::tail(&folders.logs.join("init.log"))
            );
            return Ok(());
        }
        if !ready && folders.control().exists() {
            ready = true;
            write(&folders.port(), port.to_string().as_bytes())?;
        }
        if !ready && Instant::now() > deadline {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child
        .kill()
        .context("cannot end the cluster's first process")?;
    // Its end waits for all others' ends, and a frozen one does not even die.
    folders.cgroup().thaw()?;
    wait_for(&mut child, NAMESPACES_LIMIT)?.context("the cluster's first process does not end")?;
    ensure!(
        ready || owner.is_finished(),
        "the namespaces were not made within {} s",
        NAMESPACES_LIMIT.as_secs()
    );
    Ok(())
}

/// Returns when the owner is gone, and never for a cluster that was detached from it.
fn wait_for_owner(folders: &Folders) {
    let read = std::io::stdin().lock().read_to_end(&mut Vec::new());
    while read.is_ok() && folders.detached().exists() {
        thread::park();
    }
}
