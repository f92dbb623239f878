//! The first process of a cluster: PID 1 of its process namespace, alone with its own network and
//! mounts. It starts what the owner asks for, reaps, and lets the owner reach the API server.
//!
//! When it ends, the kernel ends every process of the cluster, its mounts and its links: nothing
//! that runs inside needs to be found and stopped one by one.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::Signal,
    },
    unistd::Pid,
};

use super::{
    Folders,
    control::{self, Response},
    network,
    supervisor::Table,
};
use crate::machine;

/// Owner, tests and operators under test each hold a few connections.
const FORWARD_LIMIT: usize = 2048;
/// Requests answered at a time.
const CONTROL_LIMIT: usize = 64;

/// Runs until it is killed. `standard input` must be the listener on the machine's loopback that
/// leads to the API server; a line on `standard output` says that the cluster's namespaces stand.
///
/// # Errors
/// When the namespaces cannot be set up. Later errors are answers to requests.
pub fn run(folders: &Folders) -> Result<()> {
    // If the keeper died before this line, the write of the ready line below fails.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A connection through the forwarder takes four descriptors; the usual soft limit is 1024.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
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
    shield_settings()?;
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

/// The kubelet gets copies of the machine's settings, and may change those.
fn shield_settings() -> Result<()> {
    let none: Option<&str> = None;
    for setting in machine::SETTINGS {
        let real = Path::new("/proc/sys").join(setting);
        if !real.exists() {
            continue;
        }
        let copy = Path::new("/run/machine-settings").join(setting);
        fs::create_dir_all(copy.parent().unwrap_or(Path::new("/run")))?;
        fs::write(&copy, fs::read(&real)?)?;
        mount(Some(&copy), &real, none, MsFlags::MS_BIND, none)
            .with_context(|| format!("shield {setting}"))?;
    }
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
            log(&format!(
                "forwarding: more than {FORWARD_LIMIT} connections; one was refused"
            ));
            continue;
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
    loop {
        // Those beyond the limit wait in the socket's queue, and the kernel lets more wait for that.
        if open.load(Ordering::SeqCst) >= CONTROL_LIMIT {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let mut stream = match socket.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                log(&format!("control: {error}"));
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        open.fetch_add(1, Ordering::SeqCst);
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
pub(super) fn log(line: &str) {
    eprintln!("{line}");
}
