//! A cluster as a library: started in its own namespaces, gone without a trace.
//!
//! Three processes carry it: the *owner* (a test run, `cargo xtask`), the *keeper* beside it and
//! the *first process* inside (see [`keeper`], [`init`]). The owner decides what runs.

mod additions;
mod cgroup;
mod components;
pub mod control;
pub mod init;
pub mod keeper;
mod manifests;
mod network;
mod pki;
mod start;
mod supervisor;
mod sweep;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use sha2::{Digest, Sha256};

pub use crate::{addition::Addition, images::REGISTRY};
pub use additions::FLUX_NAMESPACE;
pub use cgroup::Cgroup;
pub use components::{CSI_DRIVER, CSI_SOCKET, NODE};
pub use control::{Control, Process};
pub use manifests::apply;
pub use network::API_SERVER;
pub use start::Times;
pub use sweep::{all, down};

use crate::{
    audit::AuditLog,
    layout,
    lock::{self, Lock},
    process,
};

/// For the keeper to make the namespaces; a fraction of a second on an idle machine.
const NAMESPACES_LIMIT: Duration = Duration::from_secs(20);
/// For a cluster to be gone: half a second on an idle machine, and the removal's own limits.
const STOP_LIMIT: Duration = Duration::from_secs(90);

/// Path of the program `suites`, for tests that start clusters: the keeper is one of its commands.
pub const SUITES_VARIABLE: &str = "ORCHESTRATOR_SUITES";

/// Name of the program whose command the keeper is.
pub(crate) const SUITES: &str = "suites";

/// Names a kubeconfig: the cases run on that cluster instead of one of ours.
pub const KUBECONFIG_VARIABLE: &str = "ORCHESTRATOR_TEST_KUBECONFIG";

/// How much of a cluster a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// etcd, API server with RBAC, TLS and audit log, controller manager, scheduler.
    Api,
    /// `Api`, and a real node: containerd, kubelet, CNI, Services, DNS, network policies, volumes.
    Node,
    /// `Api`, and fake nodes that complete Pods.
    Kwok,
}

impl Tier {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Api, Self::Node, Self::Kwok];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Node => "node",
            Self::Kwok => "kwok",
        }
    }
}

impl FromStr for Tier {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.name() == text)
            .with_context(|| {
                format!(
                    "no tier '{text}': one of {}",
                    Self::ALL.map(Self::name).join(", ")
                )
            })
    }
}

/// Where a cluster keeps its things.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Its name: letters, digits, hyphens.
    pub name: String,
    /// Gone with the cluster.
    pub run: PathBuf,
    /// Kept for a while after it.
    pub logs: PathBuf,
    /// Held by the keeper as long as anything of the cluster is there. Outside of `run`: a file that
    /// is removed and made again would be a second lock.
    lock: PathBuf,
    /// Where `run` is moved to be removed, so that its name is free or whole, never half gone.
    trash: PathBuf,
}

impl Folders {
    /// # Errors
    /// When the name would not do as a folder's and a control group's name.
    pub fn new(name: &str) -> Result<Self> {
        ensure!(
            is_name(name),
            "cluster name '{name}': 1 to 40 letters, digits and hyphens are allowed"
        );
        let state = layout::state()?;
        Ok(Self {
            name: name.to_owned(),
            run: state.join("run").join(name),
            logs: state.join("logs").join(name),
            lock: state.join("locks").join(name),
            trash: state.join("trash").join(name),
        })
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.run.join("control.sock")
    }

    fn port(&self) -> PathBuf {
        self.run.join("port")
    }

    fn detached(&self) -> PathBuf {
        self.run.join("detached")
    }

    fn tier(&self) -> PathBuf {
        self.run.join("tier")
    }

    /// The administrator's kubeconfig, for use on this machine.
    pub fn kubeconfig(&self) -> PathBuf {
        self.run.join("pki/outside.kubeconfig")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.logs.join("audit.log")
    }

    /// Two checkouts with own state folders may use one name.
    pub fn cgroup(&self) -> Cgroup {
        let hash = Sha256::digest(self.run.as_os_str().as_encoded_bytes());
        Cgroup::new(format!(
            "testbed-{}-{:02x}{:02x}{:02x}",
            self.name, hash[0], hash[1], hash[2]
        ))
    }

    /// Whether a keeper holds it.
    ///
    /// # Errors
    /// When its lock cannot be read.
    pub fn is_alive(&self) -> Result<bool> {
        Ok(self.run.exists() && Lock::is_held(&self.lock)?)
    }

    /// The process beside the cluster, as the machine numbers it; nothing when it is not there.
    ///
    /// # Errors
    /// When the machine's processes cannot be read.
    pub fn keeper(&self) -> Result<Option<i32>> {
        let Some(number) = lock::holder(&self.lock)?
            .strip_prefix("process ")
            .map(str::to_owned)
        else {
            return Ok(None);
        };
        // The number may be another's by now: only a keeper of this cluster has these arguments.
        let arguments = match fs::read(format!("/proc/{number}/cmdline")) {
            Ok(arguments) => arguments,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("cannot read a process's arguments"),
        };
        let wanted = format!("\0keeper\0{}\0", self.name);
        let is_keeper = String::from_utf8_lossy(&arguments).ends_with(&wanted);
        Ok(if is_keeper {
            Some(number.parse()?)
        } else {
            None
        })
    }

    /// Whether it came up whole.
    pub fn is_ready(&self) -> bool {
        self.tier().exists()
    }
}

fn is_name(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// A running cluster. Dropping the owner's handle ends it, unless it was detached.
#[derive(Debug)]
pub struct Cluster {
    /// Its places.
    pub folders: Folders,
    /// What it has.
    pub tier: Tier,
    /// How long its start took; nothing for a cluster that another process started.
    pub times: Option<Times>,
    /// What a dead cluster left that could not be removed.
    pub warnings: Vec<String>,
    /// What runs inside.
    pub control: Control,
    keeper: Option<Child>,
}

impl Cluster {
    /// Starts a cluster and waits until all of its tier works.
    ///
    /// # Errors
    /// When a part does not come up; the error names the part and the end of its log.
    pub async fn start(name: &str, tier: Tier) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "a cluster needs root");
        ensure!(
            tier != Tier::Node || cgroup::is_version_one(),
            "the node tier was made for control groups of version 1, and this machine has version 2: \
             use the api and kwok tiers, or a cluster of your own by ORCHESTRATOR_TEST_KUBECONFIG"
        );
        let begin = Instant::now();
        let folders = Folders::new(name)?;
        let (keeper, warnings) = tokio::task::spawn_blocking({
            let folders = folders.clone();
            move || start_keeper(&folders)
        })
        .await??;
        let control = Control::new(folders.control());
        let mut cluster = Self {
            folders,
            tier,
            times: None,
            warnings,
            control,
            keeper: Some(keeper),
        };
        match start::start(&cluster, begin).await {
            Ok(times) => cluster.times = Some(times),
            Err(error) => {
                let logs = cluster.folders.logs.display().to_string();
                let mut context = format!("cluster '{name}' did not start; logs are in '{logs}'");
                if let Err(error) = cluster.stop().await {
                    context = format!("{context}; and then: {error:#}");
                }
                return Err(error.context(context));
            }
        }
        write(&cluster.folders.tier(), tier.name().as_bytes())?;
        Ok(cluster)
    }

    /// A cluster that another process owns.
    ///
    /// # Errors
    /// When it does not run or is not ready.
    pub fn attach(name: &str) -> Result<Self> {
        let folders = Folders::new(name)?;
        ensure!(
            folders.is_alive()?,
            "no cluster '{name}' runs; 'cargo xtask testbed status' lists them"
        );
        let tier = fs::read_to_string(folders.tier())
            .with_context(|| format!("cluster '{name}' is not ready"))?
            .parse()?;
        let control = Control::new(folders.control());
        Ok(Self {
            folders,
            tier,
            times: None,
            warnings: Vec::new(),
            control,
            keeper: None,
        })
    }

    /// A client with the administrator's rights. It does not repeat failed requests by itself:
    /// a test wants to see them.
    ///
    /// # Errors
    /// When the kubeconfig is unreadable.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// As [`Cluster::client`], to be changed before use (another user, a proxy).
    ///
    /// # Errors
    /// When the kubeconfig is unreadable.
    pub async fn config(&self) -> Result<Config> {
        client_config(&self.folders.kubeconfig()).await
    }

    /// What the API server was asked, by whom.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.folders.audit_log())
    }

    /// Makes the API server accept the ID tokens of these issuers, and of no other ones. Each is a
    /// `JWTAuthenticator` of the API server's configuration. The issuer must be reachable from the cluster's network.
    ///
    /// # Caveats
    /// The API server reads the file within a minute. It ignores a file that is not valid.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn trust_issuers(&self, issuers: &[serde_json::Value]) -> Result<()> {
        let config = components::authentication_config(issuers);
        write(
            &components::authentication_file(&self.folders),
            &serde_json::to_vec(&config)?,
        )
    }

    /// Lets the cluster outlive this process; `cargo xtask testbed down` ends it.
    ///
    /// # Errors
    /// When the mark cannot be written; the cluster then ends with this process.
    pub fn detach(mut self) -> Result<()> {
        fs::write(self.folders.detached(), "")?;
        self.keeper.take();
        Ok(())
    }

    /// Ends the cluster and waits until nothing of it is left.
    ///
    /// # Errors
    /// When something does not go away: the error says what.
    pub async fn stop(mut self) -> Result<()> {
        let Some(mut keeper) = self.keeper.take() else {
            let folders = self.folders.clone();
            return tokio::task::spawn_blocking(move || down(&folders)).await?;
        };
        drop(keeper.stdin.take());
        let name = self.folders.name.clone();
        let status = tokio::task::spawn_blocking(move || wait_for(&mut keeper, STOP_LIMIT))
            .await??
            .with_context(|| {
                format!(
                    "cluster '{name}' did not end within {} s",
                    STOP_LIMIT.as_secs()
                )
            })?;
        ensure!(
            status.success(),
            "cluster '{}' was not cleaned up: its keeper {}; see '{}'",
            self.folders.name,
            process::ended(status),
            self.folders.logs.join("keeper.log").display()
        );
        Ok(())
    }
}

/// A client configuration from a kubeconfig, without hidden retries.
///
/// # Errors
/// When the file is unreadable.
pub async fn client_config(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_secs(300));
    config.proxy_url = None; // from the environment; no cluster of a test is behind one
    Ok(config)
}

fn start_keeper(folders: &Folders) -> Result<(Child, Vec<String>)> {
    let _global = sweep::global_lock()?;
    sweep::wait_for_end(folders)?;
    let warnings = sweep::sweep(folders)?;
    if folders.logs.exists() {
        fs::remove_dir_all(&folders.logs)
            .with_context(|| format!("cannot remove '{}'", folders.logs.display()))?;
    }
    fs::create_dir_all(&folders.run)?;
    fs::create_dir_all(&folders.logs)?;
    let log = fs::File::create(folders.logs.join("keeper.log"))?;
    let mut keeper = detached_command(&suites()?)
        .args(["testbed", "keeper", &folders.name])
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start the keeper")?;
    let deadline = Instant::now() + NAMESPACES_LIMIT + Duration::from_secs(5);
    while !folders.port().exists() {
        let ended = keeper.try_wait()?;
        if ended.is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        drop(keeper.stdin.take()); // it cleans up, then ends
        if wait_for(&mut keeper, STOP_LIMIT)?.is_none() {
            keeper.kill()?;
            keeper.wait()?;
        }
        bail!(
            "the cluster's namespaces could not be made: {}{}",
            process::tail(&folders.logs.join("keeper.log")),
            process::tail(&folders.logs.join("init.log"))
        );
    }
    Ok((keeper, warnings))
}

/// Waits for a child's end; nothing when it has not ended at `limit`.
fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// In its own process group: Ctrl-C ends the owner, and the keeper then cleans up in peace.
fn detached_command(program: &Path) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// Path of the program that has the command of the keeper.
fn suites() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(SUITES_VARIABLE) {
        return Ok(path.into());
    }
    let path = crate::process::this_program()?;
    ensure!(
        path.file_stem().is_some_and(|name| name == SUITES),
        "tests that start clusters are run by 'cargo xtask test' only"
    );
    Ok(path)
}

/// Writes a small file that another process reads: it sees all of it or none.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let aside = path.with_extension("new");
    fs::write(&aside, content)
        .and_then(|()| fs::rename(&aside, path))
        .with_context(|| format!("cannot write '{}'", path.display()))
}
