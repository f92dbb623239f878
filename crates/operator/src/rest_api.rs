//! Starts the gateway, and stops it in order.

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use engine::{
    client,
    clock::Clock,
    health::Health,
    metrics::Metrics,
    supervise::{Shutdown, Supervisor},
};
use gateway::{Observer, Sessions, Settings, Tls};

use crate::{
    arguments::Arguments,
    config::Config,
    http,
    run::{ShutdownSignals, listen},
};

/// Time for requests in flight to end. The gateway itself gives each connection 20 s.
const GRACE: Duration = Duration::from_secs(22);

/// Name in a generated certificate. Clients cannot verify such a certificate, whatever its name is.
const GENERATED_NAME: &str = "orchestrator-gateway";

/// Counts what the gateway does in the metrics of this process.
struct Observed(Metrics);

impl Observer for Observed {
    fn responded(&self, route: &'static str, code: u16, took: Duration) {
        self.0.gateway_responded(route, code, took);
    }

    fn streams(&self, count: u32) {
        self.0.gateway_streams(count);
    }

    fn rejected(&self, reason: &'static str) {
        self.0.gateway_rejected(reason);
    }
}

/// Serves the REST API until SIGTERM or SIGINT. A second signal ends the process immediately.
///
/// # Errors
/// When it cannot start, when a task ends unexpectedly, when a task does not stop properly, and at a second
/// signal.
pub(crate) async fn run(arguments: Arguments, config: Config) -> Result<()> {
    let signals = ShutdownSignals::new()?;
    let (metrics, health, clock) = (Metrics::default(), Health::default(), Clock::system());
    let mut server = client::config(arguments.kubeconfig.as_deref()).await?;
    // Each request is sent with the token of its caller. With credentials of our own, a caller without a
    // token would act as this process.
    server.auth_info = Default::default();
    let client = client::build(server, &metrics, &health)?;
    let tls = match &arguments.tls_directory {
        Some(directory) => Tls::from_directory(directory),
        None => {
            tracing::warn!(
                "no '--tls-directory': the certificate is generated, and clients cannot verify it"
            );
            Tls::generate(vec![GENERATED_NAME.to_owned()])
        }
    };
    let tls = tls.context("cannot serve TLS")?;
    let listener = listen(arguments.gateway_address)?;
    let probes = listen(arguments.probe_address)?;
    let scrapes = listen(arguments.metrics_address)?;
    let sessions = match &arguments.session_directory {
        Some(directory) => {
            Some(Sessions::from_directory(directory).context("cannot serve sessions")?)
        }
        None => None,
    };
    let gateway = config.gateway;
    let settings = Settings {
        pm_namespace: gateway.pm.namespace,
        streams_per_caller: gateway.streams_per_caller,
        hosts: gateway.hosts,
        proxy_header: gateway.proxy_header.map(|header| header.0),
        sessions,
        observer: Arc::new(Observed(metrics.clone())),
        now: Arc::new(move || clock.now()),
    };

    let mut services = Supervisor::new(health.clone(), GRACE);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        gateway = %listener.local_addr()?,
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
    services.spawn("ticker", health.clone().tick(services.shutdown()));
    let stop = services.shutdown();
    services.spawn("gateway", async move {
        gateway::serve(listener, tls, settings, client, stop.wait()).await;
        Ok::<_, Infallible>(())
    });
    health.set_synced("gateway", true);

    let (trigger, shutdown) = Shutdown::pair();
    tokio::select! {
        ended = services.run_until(shutdown.wait()) => Ok(ended?),
        () = signals.twice(trigger) => bail!("told to stop a second time: ended at once"),
    }
}
