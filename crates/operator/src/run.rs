//! Starts all tasks, and stops them in order.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use api::kinds::OperatorRow;
use engine::{
    Context, client,
    clock::Clock,
    controller::RECONCILE_TIMEOUT,
    health::Health,
    leader::{ElectionConfig, Leader},
    metrics::Metrics,
    schemas::SchemaCheck,
    supervise::{Shutdown, Supervisor, TaskEnded, Trigger},
};
use futures::future;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    arguments::Arguments,
    component::Component,
    config::Config,
    http, listener,
    operators::{self, Setup},
    rest_api,
};

/// Time for controllers to stop. The next leader completes unfinished work.
const CONTROLLERS: Duration = Duration::from_secs(1);

/// Time for the other tasks to stop. The release of the Lease takes at most one second.
const SERVICES: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT. A second signal ends the process immediately.
///
/// # Errors
/// When it cannot start, when a task ends unexpectedly, when a task does not stop properly, and at a second
/// signal.
pub async fn run(arguments: Arguments, config: Config) -> Result<()> {
    match arguments.operator {
        Component::Operator(operator) => run_operator(operator, arguments, config).await,
        Component::Gateway => rest_api::run(arguments, config).await,
    }
}

async fn run_operator(
    operator: &'static OperatorRow,
    arguments: Arguments,
    config: Config,
) -> Result<()> {
    let signals = ShutdownSignals::new()?;
    let (metrics, health, clock) = (Metrics::default(), Health::default(), Clock::system());
    let server = client::config(arguments.kubeconfig.as_deref()).await?;
    let namespace = arguments
        .namespace
        .unwrap_or_else(|| server.default_namespace.clone());
    let client = client::build(server, &metrics, &health)?;
    let identity = identity();
    let election = ElectionConfig {
        namespace: namespace.clone(),
        name: operator.lease.to_owned(),
        identity: identity.clone(),
        durations: config.leader_election.durations,
    };
    let leader = Leader::new(
        client.clone(),
        election,
        clock.clone(),
        metrics.clone(),
        health.clone(),
    );
    let schemas = SchemaCheck::new(client.clone(), operator.crds(), health.clone());
    let probes = listen(arguments.probe_address)?;
    let scrapes = listen(arguments.metrics_address)?;

    let mut workers = Supervisor::new(health.clone(), CONTROLLERS);
    let context = Context {
        client,
        metrics: metrics.clone(),
        health: health.clone(),
        clock,
        leading: leader.status(),
        identity: identity.clone(),
        concurrency: config.concurrency,
        limit: RECONCILE_TIMEOUT,
        seed: random(),
    };
    let setup = Setup {
        context,
        own_namespace: &namespace,
        config: &config,
        workers: &mut workers,
    };
    operators::start(operator, setup)?;

    let mut services = Supervisor::new(health.clone(), SERVICES);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        ?operator,
        identity,
        probes = %probes.local_addr()?,
        metrics = %scrapes.local_addr()?,
        "started"
    );
    services.spawn(
        "probes",
        http::serve_probes(probes, health.clone(), services.shutdown()),
    );
    services.spawn(
        "metrics",
        http::serve_metrics(scrapes, metrics, services.shutdown()),
    );
    services.spawn("CRDs", schemas.run(services.shutdown()));
    services.spawn("ticker", health.tick(services.shutdown()));
    services.spawn("leader", leader.run(services.shutdown()));

    let (trigger, shutdown) = Shutdown::pair();
    tokio::select! {
        ended = until_stopped(workers, services, &shutdown) => Ok(ended?),
        () = signals.twice(trigger) => bail!("told to stop a second time: ended at once"),
    }
}

pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    listener::bind(address).with_context(|| format!("cannot listen on '{address}'"))
}

/// Stops in order: first the controllers, which write, then the services, which release the Lease. So the
/// next leader never meets an active writer. If either group ends by itself, the other is stopped, too.
async fn until_stopped(
    workers: Supervisor,
    services: Supervisor,
    shutdown: &Shutdown,
) -> Result<(), TaskEnded> {
    let (workers_ended, at_rest) = Shutdown::pair();
    let (services_ended, alone) = Shutdown::pair();
    let workers = async {
        let order = future::select(Box::pin(shutdown.wait()), Box::pin(alone.wait()));
        let ended = workers.run_until(async { drop(order.await) }).await;
        workers_ended.pull();
        ended
    };
    let services = async {
        let ended = services.run_until(at_rest.wait()).await;
        services_ended.pull();
        ended
    };
    let (workers, services) = future::join(workers, services).await;
    workers.and(services)
}

/// Signals that ask this process to stop.
pub(crate) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Pulls the trigger at the first signal, returns at the second.
    pub(crate) async fn twice(mut self, trigger: Trigger) {
        for is_last in [false, true] {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, is_last, "told to stop");
            trigger.pull();
        }
    }
}

/// Returns an identity that is unique among all processes, including restarts of one Pod.
fn identity() -> String {
    let host = match fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => host.trim().to_owned(),
        Err(error) => {
            tracing::warn!("this machine's name is not known: {error}");
            "unknown".to_owned()
        }
    };
    format!("{host}_{:016x}", random())
}

/// Returns a number that differs in every process: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
