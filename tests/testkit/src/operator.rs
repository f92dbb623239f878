//! The operator's real binary as a process beside a cluster, with the rights of its chart and
//! nothing more.

mod access;
mod addresses;
mod pages;

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use api::{kinds::OperatorRow, rbac::Permission};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    faults::proxy::Endpoint, git::Network, load::Ticks, process::this_program, wait::until,
};

pub use access::{ACCOUNT, cluster_name};
pub use pages::Pages;

/// Names another binary of the operator, to see whether a suite notices the difference.
pub const BINARY_VARIABLE: &str = "ORCHESTRATOR_TEST_BINARY";

/// How an operator is started.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The binary.
    pub binary: PathBuf,
    /// Its name, as `orchestrator --operator` has it.
    pub operator: &'static str,
    /// Where its Lease and its ServiceAccount are.
    pub home: String,
    /// The namespaces that it watches.
    pub watched: Vec<String>,
    /// More lines of its configuration.
    pub config: String,
    /// What it may do.
    pub permissions: &'static [Permission],
    /// The cluster's own network, if it must reach more there than the API server.
    pub network: Option<Arc<Network>>,
    /// Another way to the API server than the direct one.
    pub endpoint: Option<Endpoint>,
    /// More of its environment.
    pub environment: Vec<(String, String)>,
}

impl Plan {
    /// An operator with its permissions and nothing configured, which watches all namespaces.
    pub fn new(binary: PathBuf, operator: &OperatorRow, home: &str) -> Self {
        Self {
            binary,
            operator: operator.name,
            home: home.to_owned(),
            watched: Vec::new(),
            config: String::new(),
            permissions: operator.permissions,
            network: None,
            endpoint: None,
            environment: Vec::new(),
        }
    }
}

/// All that an operator needs to be started, as often as one likes.
pub struct Launch {
    plan: Plan,
    /// Its user, as the audit log names it.
    pub user: String,
    folder: Arc<tempfile::TempDir>,
    starts: AtomicU32,
}

/// A running operator. Dropping it kills it.
pub struct Operator {
    child: Child,
    /// Address of `/livez` and `/readyz`.
    pub probe_address: SocketAddr,
    /// Address of `/metrics`.
    pub metrics_address: SocketAddr,
    /// What it writes.
    pub log: PathBuf,
    /// Its user, as the audit log names it.
    pub user: String,
    /// Holds what it reads and writes until it is gone.
    _folder: Arc<tempfile::TempDir>,
    network: Option<Arc<Network>>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended; what cannot be killed is not there.
        match self.child.kill().and_then(|()| self.child.wait()) {
            Ok(_) | Err(_) => {}
        }
    }
}

impl Launch {
    /// Grants what the plan permits, and writes configuration and kubeconfig.
    ///
    /// # Errors
    /// When the API server refuses something, or a file cannot be written.
    pub async fn new(client: &Client, config: &Config, plan: &Plan) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let user = access::grant(client, plan).await?;
        let kubeconfig = access::kubeconfig(client, config, plan).await?;
        fs::write(folder.path().join("kubeconfig"), kubeconfig)?;
        let watched = json!(plan.watched);
        let settings = format!("watchNamespaces: {watched}\n{}", plan.config);
        fs::write(folder.path().join("config.yaml"), settings)?;
        Ok(Self {
            plan: plan.clone(),
            user,
            folder: Arc::new(folder),
            starts: AtomicU32::new(0),
        })
    }

    /// Starts a process; it need not be ready yet. Its log is a file of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self) -> Result<Operator> {
        let Self {
            plan, user, folder, ..
        } = self;
        let nth = self.starts.fetch_add(1, Ordering::Relaxed);
        let log = folder.path().join(format!("log-{nth}"));
        let (probe_address, metrics_address) = addresses::own();
        let mut command = Command::new(&plan.binary);
        command
            .arg("--config")
            .arg(folder.path().join("config.yaml"))
            .arg("--kubeconfig")
            .arg(folder.path().join("kubeconfig"))
            .args(["--operator", plan.operator, "--namespace", &plan.home])
            .args(["--log-format", "json"])
            .args(["--probe-address", &probe_address.to_string()])
            .args(["--metrics-address", &metrics_address.to_string()])
            .envs(plan.environment.iter().map(|(name, value)| (name, value)));
        let child = match &plan.network {
            Some(network) => network.spawn(command, &log)?,
            None => command
                .stdin(Stdio::null())
                .stdout(fs::File::create(&log)?)
                .stderr(fs::File::options().append(true).open(&log)?)
                .spawn()
                .with_context(|| format!("cannot start '{}'", plan.binary.display()))?,
        };
        Ok(Operator {
            child,
            probe_address,
            metrics_address,
            log,
            user: user.clone(),
            _folder: Arc::clone(folder),
            network: plan.network.clone(),
        })
    }
}

impl Operator {
    /// Starts it and waits until it is ready (it need not lead).
    ///
    /// # Errors
    /// When it cannot be started, or is not ready within 30 s; with the end of its log.
    pub async fn start(client: &Client, config: &Config, plan: &Plan) -> Result<Self> {
        Self::start_within(Duration::from_secs(30), client, config, plan).await
    }

    /// Starts it and waits until it is ready. For a cluster with so many objects that the first lists
    /// take longer than [`Self::start`] waits.
    ///
    /// # Errors
    /// When it cannot be started, or is not ready within this time; with the end of its log.
    pub async fn start_within(
        limit: Duration,
        client: &Client,
        config: &Config,
        plan: &Plan,
    ) -> Result<Self> {
        let mut operator = Launch::new(client, config, plan).await?.spawn()?;
        let ready = until("the operator", limit, async || {
            Ok(match operator.page("/readyz").await {
                Ok((200, _)) => Ok(()),
                Ok((code, text)) => Err(format!("{code} {text}")),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await;
        if let Err(error) = ready {
            let ended = operator.child.try_wait()?;
            bail!(
                "{error:#}; ended: {ended:?}; its log: {}",
                operator.log_text()?
            );
        }
        Ok(operator)
    }

    /// Its process.
    ///
    /// # Errors
    /// Never on Linux, where a process number fits.
    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Memory of the process in MiB, by the kernel's name: `VmRSS` is what it has, `VmHWM` the most that it had.
    ///
    /// # Errors
    /// When it has ended, or the kernel does not know the name.
    pub fn memory_mib(&self, field: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let line = line.with_context(|| format!("no {field} of the process"))?;
        let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes / 1024.0)
    }

    /// The id of its token, as the audit log names it; each [`Launch`] has a token of its own.
    ///
    /// # Errors
    /// When its kubeconfig cannot be read, or its token is of another kind than the API server's.
    pub fn credential(&self) -> Result<String> {
        let text = fs::read_to_string(self.log.with_file_name("kubeconfig"))?;
        let kubeconfig: Value = serde_json::from_str(&text)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str();
        let payload = token.and_then(|token| token.split('.').nth(1));
        let mut payload = payload
            .context("no token")?
            .replace('-', "+")
            .replace('_', "/");
        while !payload.len().is_multiple_of(4) {
            payload.push('=');
        }
        let k8s_openapi::ByteString(claims) = serde_json::from_value(json!(payload))?;
        let claims: Value = serde_json::from_slice(&claims)?;
        let id = claims["jti"].as_str().context("a token without an id")?;
        Ok(format!("JTI={id}"))
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the process cannot be asked.
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Its pages, for who cannot hold on to it.
    #[must_use]
    pub fn pages(&self) -> Pages {
        Pages {
            probe_address: self.probe_address,
            metrics_address: self.metrics_address,
            network: self.network.clone(),
        }
    }

    /// As [`Pages::page`].
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn page(&self, path: &str) -> Result<(u16, String)> {
        self.pages().page(path).await
    }

    /// As [`Pages::metrics`].
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        self.pages().metrics().await
    }

    /// As [`Pages::metric`].
    ///
    /// # Errors
    /// When it does not answer, or says no number.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        self.pages().metric(series).await
    }

    /// As [`Pages::is_leading`].
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn is_leading(&self) -> Result<bool> {
        self.pages().is_leading().await
    }

    /// All that it wrote.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn log_text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()?), signal).context("the operator has ended")?;
        Ok(())
    }

    /// Asks it to stop; it must do so well, within 5 s.
    ///
    /// # Errors
    /// When it does not stop, or not with code 0; with its log. On a machine without processor time to spare, two
    /// delays are no error: the release of the Lease, and a task that still runs after the grace period of 1 s.
    pub async fn stop(mut self) -> Result<()> {
        let ticks = Ticks::now()?;
        self.signal(Signal::SIGTERM)?;
        let ended = self.ended(Duration::from_secs(5)).await?;
        let (log, load) = (self.log_text()?, Ticks::now()?.load_since(ticks));
        let is_late = load.is_full()
            && (log.contains("could not be released") || log.contains("did not stop within 1s"));
        ensure!(
            ended.success() || is_late,
            "the operator ended with {ended}, processors busy {load}: {log}"
        );
        Ok(())
    }

    async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < end, "the operator does not stop");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When it has ended already.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.ended(Duration::from_secs(5)).await?;
        Ok(())
    }
}

/// Installs CRDs and waits until they are served. Tests that share a cluster may do it at once.
///
/// # Errors
/// When the API server refuses one.
pub async fn install(client: &Client, crds: Vec<CustomResourceDefinition>) -> Result<()> {
    let known: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("testkit").force();
    for crd in &crds {
        known
            .patch(&crd.name_any(), &params, &Patch::Apply(crd))
            .await?;
    }
    for crd in &crds {
        let version = crd
            .spec
            .versions
            .first()
            .context("a CRD without a version")?;
        let resource = ApiResource {
            group: crd.spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", crd.spec.group, version.name),
            kind: crd.spec.names.kind.clone(),
            plural: crd.spec.names.plural.clone(),
        };
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let one = ListParams::default().limit(1);
        until("a CRD to be served", Duration::from_secs(30), async || {
            let status = known.get(&crd.name_any()).await?.status;
            let conditions = status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let is_there = conditions
                .iter()
                .any(|one| one.type_ == "Established" && one.status == "True");
            if !is_there {
                return Ok(Err(format!("{conditions:?}")));
            }
            // Its path is served a moment later.
            Ok(objects
                .list(&one)
                .await
                .map(drop)
                .map_err(|error| error.to_string()))
        })
        .await?;
    }
    Ok(())
}

/// The binary that `cargo build` made for the tests that run now, beside this program, or the one
/// that [`BINARY_VARIABLE`] names.
///
/// # Errors
/// When it is not there.
pub fn built() -> Result<PathBuf> {
    let binary = match std::env::var_os(BINARY_VARIABLE) {
        Some(binary) => PathBuf::from(binary),
        None => this_program()?.with_file_name("orchestrator"),
    };
    ensure!(
        binary.is_file(),
        "'{}' is not there; run 'cargo build -p operator'",
        binary.display()
    );
    Ok(binary)
}
