//! Tests of the built binary on a real API server: it becomes the leader, reports it, and hands over when
//! it is stopped.

use std::{fs, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::{
    cluster::{Cluster, Tier},
    suite::{self, Env},
    wait::until,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    time::{Instant, timeout},
};

const LEASE: &str = "orchestrator-tasks";

struct Operator {
    child: Child,
    logs: Lines<BufReader<ChildStderr>>,
    probes: String,
    metrics: String,
    _folder: TempDir,
}

impl Operator {
    async fn start(cluster: &Cluster, namespace: &str, more: &str) -> Result<Self> {
        let kubeconfig = cluster.folders.kubeconfig();
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("config.yaml");
        fs::write(&config, format!("watchNamespaces: [{namespace}]\n{more}"))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_orchestrator"))
            .args(["--config".as_ref(), config.as_path()])
            .args(["--kubeconfig".as_ref(), kubeconfig.as_path()])
            .args(["--namespace", namespace])
            .args(["--probe-address", "127.0.0.1:0"])
            .args(["--metrics-address", "127.0.0.1:0"])
            .args(["--log-format", "json"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut operator = Self {
            child,
            logs: BufReader::new(stderr).lines(),
            probes: String::new(),
            metrics: String::new(),
            _folder: folder,
        };
        let started = operator.says("started").await?;
        let address = |of: &str| {
            let address = started[of].as_str().map(str::to_owned);
            address.with_context(|| format!("no address of '{of}'"))
        };
        (operator.probes, operator.metrics) = (address("probes")?, address("metrics")?);
        Ok(operator)
    }

    /// Waits for a line of the log.
    async fn says(&mut self, message: &str) -> Result<serde_json::Value> {
        let find = async {
            let mut before = Vec::new();
            while let Some(line) = self.logs.next_line().await? {
                let line: serde_json::Value =
                    serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
                if line["message"] == message {
                    return Ok(line);
                }
                before.push(line);
            }
            anyhow::bail!("it ended without saying '{message}': {before:?}")
        };
        timeout(Duration::from_secs(40), find)
            .await
            .with_context(|| format!("never said '{message}'"))?
    }

    async fn page(&self, path: &str) -> Result<String> {
        let address = match path {
            "/metrics" => &self.metrics,
            _ => &self.probes,
        };
        let mut stream = TcpStream::connect(address).await?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().context("it has ended")?;
        Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
    }

    /// Waits for the end, for less time than a write to a server that hangs may take. Returns the exit
    /// code.
    async fn ends(&mut self) -> Result<Option<i32>> {
        let status = timeout(Duration::from_secs(10), self.child.wait()).await;
        Ok(status.context("it does not end")??.code())
    }
}

async fn holder(env: &Env) -> Result<String> {
    let leases: Api<Lease> = env.api();
    let spec = leases.get(LEASE).await?.spec.context("no spec")?;
    Ok(spec.holder_identity.unwrap_or_default())
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn it_leads_and_hands_over_when_told_to_stop() -> Result<()> {
    suite::test(Tier::Api, "operator", async |env| {
        let cluster = env.testbed("starting the operator")?;
        let mut first = Operator::start(cluster, &env.namespace, "").await?;
        first.says("leading").await?;
        let live = first.page("/livez").await?;
        ensure!(live.starts_with("HTTP/1.1 200 "), "{live}");
        let text = first.page("/metrics").await?;
        for wanted in [
            "\norchestrator_leader 1\n",
            r#"orchestrator_api_requests_total{verb="create",resource="leases",code="201"} 1"#,
        ] {
            ensure!(text.contains(wanted), "no {wanted} in {text}");
        }
        let name = holder(&env).await?;

        let mut second = Operator::start(cluster, &env.namespace, "").await?;
        until(
            "the second to look at the Lease",
            Duration::from_secs(10),
            async || {
                let text = second.page("/metrics").await?;
                let watches = r#"{verb="watch",resource="leases",code="200"}"#;
                Ok(if text.contains(watches) {
                    Ok(())
                } else {
                    Err(text)
                })
            },
        )
        .await?;
        ensure!(
            holder(&env).await? == name,
            "the second took it from the first"
        );

        first.signal(Signal::SIGTERM)?;
        let begin = Instant::now();
        second.says("leading").await?;
        let handed_over = begin.elapsed();
        let code = first.ends().await?;
        let stopped = begin.elapsed();
        ensure!(code == Some(0), "SIGTERM: {code:?}");
        ensure!(
            handed_over < Duration::from_millis(1500),
            "handed over after {handed_over:?}"
        );
        ensure!(
            stopped < Duration::from_secs(2),
            "stopped after {stopped:?}"
        );
        ensure!(holder(&env).await? != name);

        second.signal(Signal::SIGINT)?;
        let code = second.ends().await?;
        ensure!(code == Some(0), "SIGINT: {code:?}");
        ensure!(holder(&env).await?.is_empty(), "released by the last");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn one_that_was_frozen_finds_itself_replaced() -> Result<()> {
    suite::test(Tier::Api, "operator-frozen", async |env| {
        let cluster = env.testbed("starting the operator")?;
        let times = "leaderElection: {leaseDurationSeconds: 3, renewSeconds: 1}\n";
        let mut first = Operator::start(cluster, &env.namespace, times).await?;
        first.says("leading").await?;
        let mut second = Operator::start(cluster, &env.namespace, times).await?;
        first.signal(Signal::SIGSTOP)?;
        second.says("leading").await?;
        let leader = holder(&env).await?;
        first.signal(Signal::SIGCONT)?;
        let begin = Instant::now();
        first.says("not leading any more").await?;
        ensure!(
            begin.elapsed() < Duration::from_secs(1),
            "{:?}",
            begin.elapsed()
        );
        let text = first.page("/metrics").await?;
        ensure!(text.contains("\norchestrator_leader 0\n"), "{text}");
        ensure!(
            first.page("/livez").await?.starts_with("HTTP/1.1 200 "),
            "it stays up"
        );

        first.signal(Signal::SIGTERM)?;
        ensure!(first.ends().await? == Some(0));
        ensure!(
            holder(&env).await? == leader,
            "it released what was not its own"
        );
        second.signal(Signal::SIGTERM)?;
        ensure!(second.ends().await? == Some(0));
        Ok(())
    })
    .await
}

/// Uses a separate cluster, because the test freezes its API server.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_stop_does_not_wait_for_an_api_server_that_hangs() -> Result<()> {
    let cluster = Cluster::start(&format!("operator-{}", std::process::id()), Tier::Api).await?;
    let seen = stops(&cluster).await;
    cluster.stop().await?;
    seen
}

async fn stops(cluster: &Cluster) -> Result<()> {
    let server = "kube-apiserver";
    for (signals, wanted) in [
        (&[Signal::SIGTERM][..], "could not be released"),
        // Without a pause: the first alone ends the process within the second that a release may take.
        // Two kinds, because two pending signals of one kind count as one.
        (
            &[Signal::SIGTERM, Signal::SIGINT],
            "told to stop a second time",
        ),
    ] {
        let mut operator = Operator::start(cluster, "default", "").await?;
        operator.says("leading").await?;
        cluster.control.signal(server, Signal::SIGSTOP).await?;
        for signal in signals {
            operator.signal(*signal)?;
        }
        let ended = operator.ends().await;
        cluster.control.signal(server, Signal::SIGCONT).await?;
        let code = ended.with_context(|| format!("{signals:?}"))?;
        let mut said = String::new();
        operator.logs.into_inner().read_to_string(&mut said).await?;
        ensure!(code == Some(1) && said.contains(wanted), "{code:?}: {said}");
    }
    Ok(())
}
