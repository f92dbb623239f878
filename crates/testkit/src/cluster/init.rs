//! The first process of a cluster: PID 1 of its process namespace, alone with its own network and
//! mounts. It starts what the owner asks for, reaps, and lets the owner reach the API server.
//!
//! When it ends, the kernel ends every process of the cluster, its mounts and its links: nothing
//! that runs inside needs to be found and stopped one by one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};

use super::{
    Folders,
    control::{self, OUTPUT_LIMIT, Output, Process, ProcessState, Request, Response},
    network,
};

/// Owner, tests and operators under test each hold a few connections.
const FORWARD_LIMIT: usize = 2048;
const CONTROL_LIMIT: usize = 64;

/// Runs until it is killed. `standard input` must be the listener on the machine's loopback that
/// leads to the API server; a line on `standard output` says that the cluster's namespaces stand.
///
/// # Errors
/// When the namespaces cannot be set up. Later errors are answers to requests.
pub fn run(folders: &Folders) -> Result<()> {
    // If the keeper died before this line, the write of the ready line below fails.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    ensure!(
        nix::unistd::getpid() == Pid::from_raw(1),
        "not the first process of a process namespace: it is started by the keeper only"
    );
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .context("cannot make own namespaces (root needed)")?;
    mounts(folders)?;
    network::set_up()?;

    let socket = UnixListener::bind(folders.control()).context("control socket")?;
    let table = Arc::new(Table::default());
    thread::spawn({
        let (table, logs) = (Arc::clone(&table), folders.logs.clone());
        move || serve_control(&socket, &table, &logs)
    });
    thread::spawn(move || forward(&listener));
    std::io::stdout()
        .write_all(b"ready\n")
        .context("the keeper is gone")?;
    table.reap_forever()
}

/// The node looks like any node inside (`/var/lib/kubelet`, `/run/containerd`), while all it writes
/// lands in the cluster's own folders or in memory.
fn mounts(folders: &Folders) -> Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("make / private")?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none).context("mount /proc")?;
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("mode=755"),
    )
    .context("mount /run")?;
    for (from, to) in [
        (folders.run.join("var-lib"), "/var/lib"),
        (folders.logs.join("node"), "/var/log"),
    ] {
        fs::create_dir_all(&from)?;
        mount(Some(&from), to, none, MsFlags::MS_BIND, none)
            .with_context(|| format!("bind {to}"))?;
    }
    let kubelet = "/var/lib/kubelet";
    fs::create_dir_all(kubelet)?;
    mount(Some(kubelet), kubelet, none, MsFlags::MS_BIND, none)
        .context("bind the kubelet's folder")?;
    // Volumes that a CSI driver mounts must appear in the kubelet's and the containers' view.
    mount(
        none,
        kubelet,
        none,
        MsFlags::MS_REC | MsFlags::MS_SHARED,
        none,
    )
    .context("share the kubelet's folder")?;
    Ok(())
}

/// Carries connections from the machine's loopback to the API server. The listening socket belongs
/// to the machine's network, the outgoing one to the cluster's.
fn forward(listener: &TcpListener) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(50)); // out of descriptors: let others close theirs
            continue;
        };
        if open.fetch_add(1, Ordering::SeqCst) >= FORWARD_LIMIT {
            open.fetch_sub(1, Ordering::SeqCst);
            continue; // closes it; the client sees a reset
        }
        let open = Arc::clone(&open);
        thread::spawn(move || {
            // An error here is the client's to see: its connection closes.
            if let Err(error) = carry(&client) {
                log(&format!("forwarding: {error:#}"));
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn carry(client: &TcpStream) -> Result<()> {
    let server = TcpStream::connect(network::API_SERVER)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let back = {
        let (from, to) = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || one_way(&from, &to))
    };
    let there = one_way(client, &server);
    back.join()
        .map_err(|_panic| anyhow::anyhow!("forwarding thread panicked"))??;
    there
}

fn one_way(mut from: &TcpStream, mut to: &TcpStream) -> Result<()> {
    let copied = std::io::copy(&mut from, &mut to);
    // Either side may have closed already; then there is nothing to shut down.
    for result in [
        to.shutdown(std::net::Shutdown::Write),
        from.shutdown(std::net::Shutdown::Read),
    ] {
        if let Err(error) = result
            && error.kind() != std::io::ErrorKind::NotConnected
        {
            return Err(error.into());
        }
    }
    match copied {
        Ok(_) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn serve_control(socket: &UnixListener, table: &Arc<Table>, logs: &Path) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in socket.incoming() {
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                log(&format!("control: {error}"));
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if open.fetch_add(1, Ordering::SeqCst) >= CONTROL_LIMIT {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (table, logs, open) = (Arc::clone(table), logs.to_owned(), Arc::clone(&open));
        thread::spawn(move || {
            if let Err(error) = answer(&mut stream, &table, &logs) {
                log(&format!("control: {error:#}"));
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn answer(stream: &mut UnixStream, table: &Table, logs: &Path) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let response = match control::receive(stream).and_then(|request| table.handle(request, logs)) {
        Ok(response) => response,
        Err(error) => Response::Failed(format!("{error:#}")),
    };
    control::send(stream, &response)
}

/// Standard error of this process is its log file.
#[expect(
    clippy::print_stderr,
    reason = "the keeper gives this process a log file as standard error"
)]
fn log(line: &str) {
    eprintln!("{line}");
}

struct Entry {
    process: Process,
    pid: Pid,
    ended: Option<WaitStatus>,
}

/// Supervised processes by name. The lock is held while one is spawned, so that the reaper cannot
/// take away the status of a child that is not in the table yet.
#[derive(Default)]
struct Table {
    entries: Mutex<BTreeMap<String, Entry>>,
    changed: Condvar,
    ran: AtomicUsize,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, request: Request, logs: &Path) -> Result<Response> {
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

    fn list(&self) -> Vec<ProcessState> {
        self.lock()
            .iter()
            .map(|(name, entry)| ProcessState {
                name: name.clone(),
                pid: entry.pid.as_raw(),
                ended: entry.ended.map(|status| format!("{status:?}")),
            })
            .collect()
    }

    fn run(&self, process: &Process, limit: Duration) -> Result<Output> {
        // Names of one-shot runs cannot be those of a supervised process: '#' is in none.
        let name = format!(
            "{}#{}",
            process.name,
            self.ran.fetch_add(1, Ordering::SeqCst)
        );
        let (stdout, stderr) = {
            let mut entries = self.lock();
            let mut child = command(process)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start '{}'", process.program.display()))?;
            let pid = Pid::from_raw(i32::try_from(child.id())?);
            let outputs = (child.stdout.take(), child.stderr.take());
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
        if status.is_none() {
            self.signal(&name, Signal::SIGKILL)?;
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
    fn reap_forever(&self) -> ! {
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
