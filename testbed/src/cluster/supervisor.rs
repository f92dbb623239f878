//! What runs inside a cluster, as its first process supervises it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};

use super::{
    control::{OUTPUT_LIMIT, Output, Process, ProcessState, Request, Response},
    init::log,
};
use crate::machine::SYSTEM_PATH;

/// In the names of one-shot runs, and in no name of a supervised process.
const ONE_SHOT: char = '#';

struct Entry {
    process: Process,
    pid: Pid,
    ended: Option<WaitStatus>,
}

/// Supervised processes by name. The lock is held while one is spawned, so that the reaper cannot
/// take away the status of a child that is not in the table yet.
#[derive(Default)]
pub(super) struct Table {
    entries: Mutex<BTreeMap<String, Entry>>,
    changed: Condvar,
    ran: AtomicUsize,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handle(&self, request: Request, logs: &Path) -> Result<Response> {
        match request {
            Request::Start(process) => self.start(process, logs).map(|()| Response::Done),
            Request::Restart(name) => {
                let process = self.lock().get(&name).map(|entry| entry.process.clone());
                self.start(
                    process.with_context(|| format!("'{name}' was never started"))?,
                    logs,
                )
                .map(|()| Response::Done)
            }
            Request::Stop { name, grace } => self.stop(&name, grace).map(|()| Response::Done),
            Request::Signal { name, signal } => self
                .signal(&name, Signal::try_from(signal)?)
                .map(|()| Response::Done),
            Request::List => Ok(Response::Processes(self.list())),
            Request::Run { process, limit } => self.run(&process, limit).map(Response::Ran),
        }
    }

    fn start(&self, process: Process, logs: &Path) -> Result<()> {
        // The name becomes a log's: it must not lead elsewhere, nor to a log of our own.
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        ensure!(
            process.name.bytes().all(plain)
                && !matches!(process.name.as_str(), "" | "audit" | "init" | "keeper"),
            "process name '{}': lower-case letters, digits and hyphens, not 'audit', 'init' or 'keeper'",
            process.name
        );
        let mut entries = self.lock();
        if let Some(Entry {
            pid, ended: None, ..
        }) = entries.get(&process.name)
        {
            bail!("'{}' runs already (pid {pid})", process.name);
        }
        let output = File::options()
            .create(true)
            .append(true)
            .open(logs.join(format!("{}.log", process.name)))?;
        let child = command(&process)
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start '{}'", process.program.display()))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        entries.insert(
            process.name.clone(),
            Entry {
                process,
                pid,
                ended: None,
            },
        );
        Ok(())
    }

    fn stop(&self, name: &str, grace: Duration) -> Result<()> {
        self.signal(name, Signal::SIGTERM)?;
        if self.wait(name, grace).is_none() {
            self.signal(name, Signal::SIGKILL)?;
            ensure!(
                self.wait(name, Duration::from_secs(5)).is_some(),
                "'{name}' does not end, not even on SIGKILL"
            );
        }
        Ok(())
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let entries = self.lock();
        let entry = entries
            .get(name)
            .with_context(|| format!("no process '{name}'"))?;
        if entry.ended.is_none() {
            kill(entry.pid, signal).with_context(|| format!("cannot send {signal} to '{name}'"))?;
        }
        Ok(())
    }

    fn wait(&self, name: &str, limit: Duration) -> Option<WaitStatus> {
        let deadline = Instant::now() + limit;
        let mut entries = self.lock();
        loop {
            let status = entries.get(name).and_then(|entry| entry.ended);
            let left = deadline.saturating_duration_since(Instant::now());
            if status.is_some() || left.is_zero() {
                return status;
            }
            entries = self
                .changed
                .wait_timeout(entries, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Without one-shot runs: their end is the answer to who asked for them, and nobody else's matter.
    fn list(&self) -> Vec<ProcessState> {
        self.lock()
            .iter()
            .filter(|(name, _)| !name.contains(ONE_SHOT))
            .map(|(name, entry)| ProcessState {
                name: name.clone(),
                pid: entry.pid.as_raw(),
                ended: entry.ended.map(|status| format!("{status:?}")),
            })
            .collect()
    }

    fn run(&self, process: &Process, limit: Duration) -> Result<Output> {
        let number = self.ran.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}{ONE_SHOT}{number}", process.name);
        let (pid, stdout, stderr) = {
            let mut entries = self.lock();
            let mut child = command(process)
                .process_group(0)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start '{}'", process.program.display()))?;
            let pid = Pid::from_raw(i32::try_from(child.id())?);
            let outputs = (pid, child.stdout.take(), child.stderr.take());
            entries.insert(
                name.clone(),
                Entry {
                    process: process.clone(),
                    pid,
                    ended: None,
                },
            );
            outputs
        };
        let stdout = thread::spawn(move || drain::<ChildStdout>(stdout));
        let stderr = thread::spawn(move || drain::<ChildStderr>(stderr));
        let status = self.wait(&name, limit);
        // What it left in the background would hold its outputs open, and outlive the answer.
        match killpg(pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("cannot end its process group"),
        }
        if status.is_none() {
            self.wait(&name, Duration::from_secs(5));
        }
        self.lock().remove(&name);
        let code = match status {
            Some(WaitStatus::Exited(_, code)) => code,
            Some(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
            Some(other) => bail!("ended with {other:?}"),
            None => bail!("took longer than {} s", limit.as_secs()),
        };
        let text = |thread: thread::JoinHandle<Result<String>>| {
            thread
                .join()
                .map_err(|_panic| anyhow::anyhow!("reader panicked"))?
        };
        Ok(Output {
            code,
            stdout: text(stdout)?,
            stderr: text(stderr)?,
        })
    }

    /// Reaps every child, also those that were orphaned into this namespace.
    pub(super) fn reap_forever(&self) -> ! {
        loop {
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(status) => {
                    if let Some(pid) = status.pid() {
                        self.reap(pid);
                    }
                }
                // No child at the moment, or a signal: look again soon.
                Err(Errno::ECHILD | Errno::EINTR) => thread::sleep(Duration::from_millis(20)),
                Err(error) => {
                    log(&format!("reaping: {error}"));
                    thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    fn reap(&self, pid: Pid) {
        let mut entries = self.lock();
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) => {
                if let Some(entry) = entries
                    .values_mut()
                    .find(|entry| entry.pid == pid && entry.ended.is_none())
                {
                    entry.ended = Some(status);
                    self.changed.notify_all();
                }
            }
            Err(Errno::ECHILD) => {} // a failed spawn, reaped by the spawner
            Err(error) => log(&format!("reaping {pid}: {error}")),
        }
    }
}

fn command(process: &Process) -> Command {
    let mut command = Command::new(&process.program);
    command
        .args(&process.arguments)
        // The caller's environment (a proxy, a Go debug switch) must not change the cluster.
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("HOME", "/root")
        // Collecting garbage is a fifth of what an API server computes; there is memory to spare.
        .env("GOGC", "400")
        // Beyond this, memory is not to spare: 50,000 runs made an API server take 20 GiB.
        .env("GOMEMLIMIT", "8GiB")
        .envs(&process.environment)
        .stdin(Stdio::null())
        .current_dir("/");
    command
}

fn drain<T: Read>(stream: Option<T>) -> Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut bytes)?;
        std::io::copy(&mut stream, &mut std::io::sink())?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
