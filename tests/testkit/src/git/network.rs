//! A network to run servers and their clients in: the machine's, or a cluster's own.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};

use crate::cluster::Cluster;

/// The node of each cluster: all clusters have the same addresses.
const NODE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network. What it opens or starts belongs to that network.
///
/// Guarantees: what [`Network::spawn`] started is killed by the kernel when this value is dropped,
/// or when this process dies, by whatever signal.
#[derive(Debug)]
pub struct Network {
    address: IpAddr,
    jobs: mpsc::Sender<Job>,
}

impl Network {
    /// The machine's, of which only loopback is used.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn machine() -> Result<Self> {
        Self::enter(IpAddr::V4(Ipv4Addr::LOCALHOST), None)
    }

    /// That of a cluster, also of one that another process owns.
    ///
    /// # Errors
    /// When the cluster is gone, or this process is not root.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let name = &cluster.folders.name;
        let keeper = cluster
            .folders
            .keeper()?
            .with_context(|| format!("cluster '{name}' is gone"))?;
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let first = fs::read_to_string(&children)
            .with_context(|| format!("cannot read '{children}'"))?
            .split_whitespace()
            .next()
            .with_context(|| format!("cluster '{name}' is about to end"))?
            .to_owned();
        let path = format!("/proc/{first}/ns/net");
        let namespace = File::open(&path).with_context(|| format!("cannot open '{path}'"))?;
        Self::enter(IpAddr::V4(NODE), Some(namespace))
    }

    fn enter(address: IpAddr, namespace: Option<File>) -> Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let network = Self { address, jobs };
        // A thread that lives as long as the value: the signal of a parent's death is that of the
        // death of the thread that started the child.
        let (entered, result) = mpsc::channel();
        thread::Builder::new()
            .name("network".to_owned())
            .spawn(move || {
                let in_it = match namespace {
                    Some(namespace) => setns(namespace, CloneFlags::CLONE_NEWNET),
                    None => Ok(()),
                };
                let is_in = in_it.is_ok();
                if entered.send(in_it).is_ok() && is_in {
                    waiting.into_iter().for_each(|job| job());
                }
            })
            .context("cannot start a thread")?;
        result
            .recv()?
            .context("cannot enter the cluster's network (root needed)")?;
        Ok(network)
    }

    /// An address of this host in it, which all others in it reach.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Runs `work` in it. Sockets made there stay in this network wherever they are used.
    ///
    /// # Errors
    /// When the network's thread is gone: earlier work panicked.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            match done.send(work()) {
                // The other end waits below, always.
                Ok(()) | Err(_) => {}
            }
        });
        ensure!(
            self.jobs.send(job).is_ok(),
            "the network's thread is gone: earlier work panicked"
        );
        result.recv().context("work in a network panicked")
    }

    /// Starts a program in it, with the machine's files; both outputs are appended to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, command: Command, log: &Path) -> Result<Child> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write '{}'", log.display()))?;
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", "KILL", "--"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => tied.env(name, value),
                None => tied.env_remove(name),
            };
        }
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(move || tied.spawn())?
            .with_context(|| format!("cannot start setpriv (of util-linux) for '{program}'"))
    }
}
