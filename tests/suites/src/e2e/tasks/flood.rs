//! Silent connections to the operator's ports, more than it keeps open.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use testkit::suite::Env;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    super::attacks::{self, Size, tried},
    fixture::{Bench, LIMIT},
};

/// Connections to each port, and for how long. On the code before the bound, 350 were enough; 20 seconds have four
/// liveness probes, of which three failures restart a container.
const SHARE: (u32, Duration) = (500, Duration::from_secs(20));
const WHOLE: (u32, Duration) = (2000, Duration::from_secs(180));
/// `timeoutSeconds` of the chart's probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// `failureThreshold` of the chart's probes. On a busy machine, a client may need more than the 20 ms that a full listener
/// gives it for its request, so a single reset proves nothing.
const FAILURES: u32 = 3;
/// At most one request of so many may fail.
const RARE: usize = 20;
/// Pause before a closed connection is opened again.
const PAUSE: Duration = Duration::from_millis(200);

/// Someone holds silent connections to the ports of probes and metrics, and opens each again when it is
/// closed.
pub(super) async fn silent(env: Env) -> Result<String> {
    let (connections, duration) = match attacks::size() {
        Size::Share => SHARE,
        Size::Whole => WHOLE,
    };
    let mut bench = Bench::new(env).await?;
    bench.leads(LIMIT).await?;
    let before = lease(&bench).await?;
    let ports = [bench.operator.probe_address, bench.operator.metrics_address];
    let flood = Flood::start(ports, connections);
    let begin = Instant::now();
    let (mut slowest, mut asked, mut failed) = (Duration::ZERO, 0, Vec::new());
    while begin.elapsed() < duration {
        for path in ["/livez", "/readyz", "/metrics"] {
            for failures in 1..=FAILURES {
                let start = Instant::now();
                let result = answered(&bench, path).await;
                slowest = slowest.max(start.elapsed());
                asked += 1;
                let Err(error) = result else { break };
                let after = begin.elapsed().as_secs_f64();
                let error = error.context(format!("{path}, {after:.1} s into the flood"));
                if failures == FAILURES {
                    tried(Err::<(), _>(error))?;
                } else {
                    failed.push(format!("{error:#}"));
                }
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
    if failed.len() * RARE > asked {
        tried(Err::<(), _>(anyhow!(
            "{} of {asked} requests failed: {failed:?}",
            failed.len()
        )))?;
    }
    let opened = flood.stop()?;
    let wanted = 2 * u64::from(connections);
    ensure!(opened > wanted, "only {opened} connections: no flood");
    let ended = bench.operator.has_ended()?;
    ensure!(ended.is_none(), "the operator ended: {ended:?}");
    ensure!(
        bench.operator.is_leading().await?,
        "it does not lead any more"
    );
    let after = lease(&bench).await?;
    ensure!(
        (&after.holder_identity, after.lease_transitions)
            == (&before.holder_identity, before.lease_transitions),
        "the leader changed: {before:?}, {after:?}"
    );
    // One attack on each port.
    for _ in ports {
        tried(Ok(()))?;
    }
    bench.done().await?;
    Ok(format!(
        "{opened} silent connections in {} s; {} of {asked} requests answered, the slowest after {:.2} s",
        duration.as_secs(),
        asked - failed.len(),
        slowest.as_secs_f64()
    ))
}

async fn answered(bench: &Bench, path: &str) -> Result<()> {
    match timeout(PROBE_TIMEOUT, bench.operator.page(path)).await {
        Ok(Ok((200, _))) => Ok(()),
        Ok(Ok((code, _))) => Err(anyhow!("returned {code}")),
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => Err(anyhow!("no answer within {PROBE_TIMEOUT:?}")),
    }
}

async fn lease(bench: &Bench) -> Result<LeaseSpec> {
    let leases: Api<Lease> = bench.env.api();
    let lease = leases.get("orchestrator-tasks").await?;
    lease.spec.context("a Lease without a spec")
}

/// Connections from a thread of its own: the requests of the case must not wait for them.
struct Flood {
    opened: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<std::io::Result<()>>>,
}

impl Flood {
    fn start(ports: [SocketAddr; 2], connections: u32) -> Self {
        let (opened, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, stop) = (Arc::clone(&opened), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build()?;
            runtime.block_on(async move {
                let mut all = JoinSet::new();
                for address in ports {
                    for _ in 0..connections {
                        all.spawn(hold(address, Arc::clone(&count)));
                    }
                }
                while !stop.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(50)).await;
                }
                all.shutdown().await;
            });
            Ok(())
        });
        Self {
            opened,
            is_over,
            thread: Some(thread),
        }
    }

    /// How many connections were opened.
    fn stop(mut self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            ended.map_err(|_panic| anyhow!("the flood panicked"))??;
        }
        Ok(self.opened.load(Ordering::Relaxed))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        // A case that failed must not leave its flood to the others.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

async fn hold(address: SocketAddr, opened: Arc<AtomicU64>) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            opened.fetch_add(1, Ordering::Relaxed);
            // It sends nothing, and waits until it is closed.
            match stream.read(&mut [0; 64]).await {
                Ok(_) | Err(_) => {}
            }
        }
        sleep(PAUSE).await;
    }
}
