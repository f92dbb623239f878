//! `cargo xtask testbed isolation`: clusters do not see each other and leave nothing behind.

use std::{
    fs, io,
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use testkit::{
    cluster::{self, Cluster, Folders, Process, REGISTRY, Tier, Times},
    layout,
    machine::Snapshot,
    wait::{met, until},
};

use crate::cases::Report;

const CYCLES: usize = 20;
/// Seconds. What the machine was seen to do idle is about half of these.
const GOALS: [(Tier, u64); 2] = [(Tier::Api, 8), (Tier::Node, 20)];
/// The fastest of these counts: other guests of the machine can make one start slow, a slow testbed makes all slow.
const STARTS: usize = 3;

/// For a cluster that nobody owns any more to be gone.
const ORPHAN_LIMIT: Duration = Duration::from_secs(20);
/// For a start that has to wait for the end of another cluster of its name.
const AGAIN_LIMIT: Duration = Duration::from_secs(60);
/// More than the number of ended clusters whose logs are kept.
const NEWER_LOGS: usize = 25;

/// A cluster's name that no other run on this machine uses.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A check: its name, and the function.
type Check = (&'static str, fn() -> BoxFuture<'static, Result<String>>);

const CHECKS: &[Check] = &[
    ("start-times", || start_times().boxed()),
    ("apart", || apart().boxed()),
    ("cycles", || cycles().boxed()),
    ("owner-killed", || owner_killed().boxed()),
    ("keeper-killed", || keeper_killed().boxed()),
    ("killed-and-again", || killed_and_again().boxed()),
    ("logs-kept", || logs_kept().boxed()),
];

/// Runs all checks, or those whose names are given, one after another.
pub(crate) async fn run(only: &[String]) -> Result<ExitCode> {
    let is_known = |name: &String| CHECKS.iter().any(|(known, _)| known == name);
    if let Some(unknown) = only.iter().find(|name| !is_known(name)) {
        bail!("no check '{unknown}'");
    }
    let mut report = Report::start("testbed-isolation")?;
    for (name, check) in CHECKS {
        if only.is_empty() || only.iter().any(|one| one == name) {
            let start = Instant::now();
            report.case(name, start, check().await);
        }
    }
    report.end()
}

async fn start_times() -> Result<String> {
    let mut seen = Vec::new();
    for (tier, goal) in GOALS {
        let mut slow = Vec::new();
        loop {
            let (times, stop) = start_and_stop(tier).await?;
            let start = format!("{:.1} s ({times})", times.total().as_secs_f64());
            if times.total() <= Duration::from_secs(goal) {
                seen.push(format!(
                    "{} in {start}, goal {goal} s, gone in {stop:.1} s",
                    tier.name()
                ));
                break;
            }
            slow.push(start);
            ensure!(
                slow.len() < STARTS,
                "'{}' took longer than its goal of {goal} s {STARTS} times: {}",
                tier.name(),
                slow.join(", ")
            );
        }
        if !slow.is_empty() {
            seen.push(format!("before that too slow: {}", slow.join(", ")));
        }
    }
    Ok(seen.join("; "))
}

/// The times of one start, and the seconds until the cluster was gone.
async fn start_and_stop(tier: Tier) -> Result<(Times, f64)> {
    let before = Snapshot::take()?;
    let cluster = Cluster::start(&own(&format!("time-{}", tier.name())), tier).await?;
    let times = cluster.times.clone();
    let start = Instant::now();
    cluster.stop().await?;
    let stop = start.elapsed().as_secs_f64();
    nothing_left(&before, Duration::ZERO).await?;
    Ok((times.context("no times")?, stop))
}

/// Two `Node` and four `Api` clusters at once, all with the same addresses.
async fn apart() -> Result<String> {
    let before = Snapshot::take()?;
    let tiers = [
        Tier::Node,
        Tier::Node,
        Tier::Api,
        Tier::Api,
        Tier::Api,
        Tier::Api,
    ];
    let starts = tiers
        .iter()
        .enumerate()
        .map(async |(index, tier)| Cluster::start(&own(&format!("apart-{index}")), *tier).await);
    let (mut clusters, mut checked) = (Vec::new(), Ok(()));
    for started in join_all(starts).await {
        match started {
            Ok(cluster) => clusters.push(cluster),
            Err(error) => checked = Err(error.context("not all started")),
        }
    }
    if checked.is_ok() {
        checked = check_apart(&clusters).await;
    }
    // All of them, also when the end of one fails.
    for stopped in join_all(clusters.into_iter().map(Cluster::stop)).await {
        checked = both(checked, stopped);
    }
    checked?;
    nothing_left(&before, Duration::ZERO).await?;
    Ok("2 node and 4 api clusters at once: own objects, own servers on one and the same address, no route out, the machine's loopback out of reach".to_owned())
}

/// The first failure, and what came after it.
fn both<T>(checked: Result<T>, stopped: Result<()>) -> Result<T> {
    match (checked, stopped) {
        (Err(error), Err(after)) => Err(error.context(format!("and the end failed: {after:#}"))),
        (checked, Ok(())) => checked,
        (Ok(_), Err(error)) => Err(error),
    }
}

async fn check_apart(clusters: &[Cluster]) -> Result<()> {
    // First something of each, then a look at all: the other order could miss what comes later.
    for cluster in clusters {
        let name = &cluster.folders.name;
        let client = cluster.client().await?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::<ConfigMap>::namespaced(client.clone(), "default")
            .create(&PostParams::default(), &map)
            .await?;
        if cluster.tier == Tier::Node {
            let script = "mkdir /tmp/w && echo $OWNER > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w";
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                // On the node's address: the same in every cluster, whatever else got one before.
                "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 0, "containers": [{
                    "name": "main", "image": format!("{REGISTRY}/busybox:1"), "command": ["sh", "-c", script],
                    "env": [{"name": "OWNER", "value": name}],
                }]},
            }))?;
            Api::<Pod>::namespaced(client, "default")
                .create(&PostParams::default(), &pod)
                .await?;
        }
    }
    let mut identities = Vec::new();
    let mut addresses = Vec::new();
    for cluster in clusters {
        let name = &cluster.folders.name;
        let client = cluster.client().await?;
        identities.push(
            Api::<Namespace>::all(client.clone())
                .get("kube-system")
                .await?
                .uid(),
        );
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default")
            .list(&ListParams::default())
            .await?;
        let mut names: Vec<String> = maps.items.iter().map(ResourceExt::name_any).collect();
        names.retain(|name| name != "kube-root-ca.crt");
        ensure!(names == [name.clone()], "cluster '{name}' sees {names:?}");
        no_way_out(cluster)
            .await
            .with_context(|| format!("cluster '{name}'"))?;
        if cluster.tier == Tier::Node {
            addresses.push(own_pod_answers(cluster).await?);
        }
    }
    identities.sort();
    identities.dedup();
    ensure!(
        identities.len() == clusters.len(),
        "two clusters share one store"
    );
    addresses.dedup();
    ensure!(
        addresses.len() == 1,
        "the Pods were meant to have one and the same address, they have {addresses:?}"
    );
    // Two kubelets with one control group root clean up each other's containers within seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for cluster in clusters.iter().filter(|cluster| cluster.tier == Tier::Node) {
        let pod = Api::<Pod>::namespaced(cluster.client().await?, "default")
            .get("web")
            .await?;
        let restarts = pod
            .status
            .and_then(|status| status.container_statuses)
            .and_then(|list| list.first().map(|first| first.restart_count));
        ensure!(
            restarts == Some(0),
            "the Pod of '{}' was disturbed: {restarts:?} restarts",
            cluster.folders.name
        );
    }
    Ok(())
}

/// Nothing is sent anywhere: the kernel is asked for a route, and the loopback for a connection.
async fn no_way_out(cluster: &Cluster) -> Result<()> {
    let limit = Duration::from_secs(10);
    let route = async |arguments: &[&str]| {
        let process = Process::new("route", "/usr/sbin/ip", arguments.iter().copied());
        cluster.control.run(process, limit).await
    };
    let known = route(&["route", "get", "127.0.0.1"]).await?;
    ensure!(
        known.code == 0,
        "asking for a route does not work: {}",
        known.stderr
    );
    for arguments in [
        &["route", "get", "192.0.2.1"][..],
        &["-6", "route", "get", "2001:db8::1"],
    ] {
        let output = route(arguments).await?;
        ensure!(output.code != 0, "has a way out: {}", output.stdout);
    }
    let port = fs::read_to_string(cluster.folders.run.join("port")).context("no port")?;
    let port = port.trim();
    TcpStream::connect(("127.0.0.1", port.parse()?))
        .context("the machine itself does not reach the cluster's port")?;
    let connect = Process::new(
        "connect",
        "/bin/busybox",
        ["nc", "-w", "2", "127.0.0.1", port],
    );
    let output = cluster.control.run(connect, limit).await?;
    // The text too: a program that is not there fails as well.
    ensure!(
        output.code != 0 && output.stderr.contains("can't connect"),
        "reaches the machine's loopback on port {port}: exit code {}, {}{}",
        output.code,
        output.stdout,
        output.stderr
    );
    Ok(())
}

async fn own_pod_answers(cluster: &Cluster) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
    let name = &cluster.folders.name;
    until(
        &format!("the Pod of '{name}' to answer"),
        Duration::from_secs(90),
        async || {
            let Some(address) = pods
                .get("web")
                .await?
                .status
                .and_then(|status| status.pod_ip)
            else {
                return Ok(Err("no address".to_owned()));
            };
            let url = format!("http://{address}:8080/");
            let fetch = Process::new(
                "fetch",
                "/bin/busybox",
                ["timeout", "3", "wget", "-q", "-O", "-", &url],
            );
            let output = cluster.control.run(fetch, Duration::from_secs(10)).await?;
            if output.code != 0 {
                return Ok(Err(output.stderr));
            }
            if output.stdout.trim() != name {
                bail!("'{name}' was answered by '{}'", output.stdout.trim());
            }
            Ok(Ok(address))
        },
    )
    .await
}

async fn cycles() -> Result<String> {
    let before = Snapshot::take()?;
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for index in 0..CYCLES {
        let cluster = Cluster::start(&own("cycle"), Tier::Api)
            .await
            .with_context(|| format!("cycle {index}"))?;
        let times = cluster.times.clone();
        let start = Instant::now();
        cluster.stop().await?;
        down.push(start.elapsed());
        up.push(times.context("no times")?.total());
        nothing_left(&before, Duration::ZERO)
            .await
            .with_context(|| format!("cycle {index}"))?;
    }
    up.sort();
    down.sort();
    let seconds = |times: &[Duration]| {
        format!(
            "{:.1} s (at most {:.1} s)",
            times[times.len() / 2].as_secs_f64(),
            times[times.len() - 1].as_secs_f64()
        )
    };
    Ok(format!(
        "{CYCLES} times up in {}, down in {}, nothing left after each",
        seconds(&up),
        seconds(&down)
    ))
}

/// A process that owns a `Node` cluster.
///
/// Guarantees: both are gone when it is dropped, whatever a check did to them.
struct Owner {
    process: Child,
    folders: Folders,
}

impl Owner {
    fn start(name: &str) -> Result<Self> {
        let folders = Folders::new(&own(name))?;
        let process = Command::new(testkit::process::this_program()?)
            .args(["testbed", "own", &folders.name])
            .spawn()
            .context("cannot start an owner")?;
        Ok(Self { process, folders })
    }

    /// Waits until its cluster is on its way up, or ready.
    async fn reaches(&self, when: When) -> Result<()> {
        match when {
            When::Starting => {
                let port = self.folders.run.join("port");
                wait_until("its namespaces", ORPHAN_LIMIT, || port.exists()).await?;
                tokio::time::sleep(Duration::from_millis(1500)).await;
                ensure!(
                    !self.folders.is_ready(),
                    "ready already: this case no longer shows what it should"
                );
            }
            When::Ready => {
                let limit = Duration::from_secs(120);
                wait_until("the cluster", limit, || self.folders.is_ready()).await?;
            }
        }
        ensure!(
            self.folders.is_alive()?,
            "the cluster was not there when its owner was to be killed"
        );
        Ok(())
    }

    /// SIGKILL.
    fn kill(&mut self) -> Result<()> {
        self.process.kill().context("cannot kill the owner")?;
        self.process.wait()?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.kill()?;
        let deadline = Instant::now() + ORPHAN_LIMIT;
        while self.folders.run.exists() {
            if Instant::now() > deadline {
                return cluster::down(&self.folders);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            println!("cluster '{}' was not ended: {error:#}", self.folders.name);
        }
    }
}

#[derive(Clone, Copy)]
enum When {
    Starting,
    Ready,
}

impl When {
    fn name(self) -> &'static str {
        match self {
            Self::Starting => "while starting",
            Self::Ready => "in use",
        }
    }
}

/// The owner is killed while the cluster is starting, and again when it is ready.
async fn owner_killed() -> Result<String> {
    let before = Snapshot::take()?;
    let mut seen = Vec::new();
    for when in [When::Starting, When::Ready] {
        let mut owner = Owner::start("owner-killed")?;
        owner.reaches(when).await?;
        let processes = owner.folders.cgroup().processes()?.len();
        owner.kill()?;
        let start = Instant::now();
        nothing_left(&before, ORPHAN_LIMIT)
            .await
            .with_context(|| format!("owner killed {}", when.name()))?;
        seen.push(format!(
            "{}: {processes} processes gone after {:.1} s",
            when.name(),
            start.elapsed().as_secs_f64()
        ));
    }
    Ok(seen.join("; "))
}

/// Owner and keeper are killed together: nobody is left to clean up until the next start.
async fn keeper_killed() -> Result<String> {
    let before = Snapshot::take()?;
    let mut owner = Owner::start("keeper-killed")?;
    owner.reaches(When::Ready).await?;
    let keeper = owner.folders.keeper()?.context("no keeper")?;
    kill(Pid::from_raw(keeper), Signal::SIGKILL)?;
    owner.kill()?;
    let folders = &owner.folders;
    until(
        "the kernel to end the processes",
        ORPHAN_LIMIT,
        async || {
            let left = folders.cgroup().processes()?;
            Ok(met(left.is_empty(), || format!("{left:?}")))
        },
    )
    .await?;
    ensure!(
        folders.run.exists() && folders.cgroup().exists()?,
        "somebody cleaned up: this case no longer shows what it should"
    );
    Cluster::start(&own("after"), Tier::Api)
        .await?
        .stop()
        .await?;
    nothing_left(&before, Duration::ZERO).await?;
    Ok(
        "processes ended by the kernel, folder and control groups removed by the next start"
            .to_owned(),
    )
}

/// A test run is killed and started again at once: the new cluster meets the dying one of its name.
async fn killed_and_again() -> Result<String> {
    let before = Snapshot::take()?;
    let mut seen = Vec::new();
    for (when, pause) in [
        (When::Ready, 0),
        (When::Starting, 20),
        (When::Starting, 50),
        (When::Ready, 80),
    ] {
        let what = format!("{} and {pause} ms", when.name());
        let mut owner = Owner::start("again")?;
        owner.reaches(when).await.context(what.clone())?;
        owner.kill()?;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let start = Instant::now();
        let again = Cluster::start(&owner.folders.name, Tier::Api);
        let again = tokio::time::timeout(AGAIN_LIMIT, again)
            .await
            .with_context(|| format!("{what}: no start in {} s", AGAIN_LIMIT.as_secs()))?
            .with_context(|| what.clone())?;
        let took = start.elapsed().as_secs_f64();
        again.stop().await?;
        nothing_left(&before, Duration::ZERO)
            .await
            .with_context(|| what.clone())?;
        seen.push(format!("{what}: up again in {took:.1} s"));
    }
    Ok(format!(
        "owner killed {}, nothing left after each",
        seen.join("; ")
    ))
}

/// Removes folders that a check made.
struct Removed(Vec<PathBuf>);

impl Drop for Removed {
    fn drop(&mut self) {
        for folder in &self.0 {
            match fs::remove_dir_all(folder) {
                Ok(()) => {}
                // The sweep of a start removes old logs.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => println!("'{}' was not removed: {error}", folder.display()),
            }
        }
    }
}

/// Old logs are removed by each start, but not those of a cluster that runs.
async fn logs_kept() -> Result<String> {
    let before = Snapshot::take()?;
    let cluster = Cluster::start(&own("logs-kept"), Tier::Api).await?;
    let checked = check_logs(&cluster).await;
    both(checked, cluster.stop().await)?;
    nothing_left(&before, Duration::ZERO).await?;
    Ok(format!(
        "logs of a running cluster are there after {NEWER_LOGS} newer ones and another start"
    ))
}

async fn check_logs(cluster: &Cluster) -> Result<()> {
    let logs = &cluster.folders.logs;
    let mut newer = Removed(Vec::new());
    for index in 0..NEWER_LOGS {
        let folder = layout::state()?
            .join("logs")
            .join(own(&format!("newer-{index}")));
        fs::create_dir(&folder)?;
        newer.0.push(folder);
    }
    for folder in &newer.0 {
        ensure!(
            fs::metadata(folder)?.modified()? > fs::metadata(logs)?.modified()?,
            "'{}' is not newer: this case does not show what it should",
            folder.display()
        );
    }
    Cluster::start(&own("logs-other"), Tier::Api)
        .await?
        .stop()
        .await?;
    ensure!(
        logs.join("keeper.log").exists() && logs.join("audit.log").exists(),
        "the logs of the running cluster are gone from '{}'",
        logs.display()
    );
    let left = newer.0.iter().filter(|folder| folder.exists()).count();
    ensure!(
        left < NEWER_LOGS,
        "no logs were removed: this case does not show what it should"
    );
    Ok(())
}

async fn wait_until(what: &str, limit: Duration, is_so: impl Fn() -> bool) -> Result<()> {
    until(&format!("{what} to be ready"), limit, async || {
        Ok(met(is_so(), || "it is not".to_owned()))
    })
    .await
}

async fn nothing_left(before: &Snapshot, limit: Duration) -> Result<()> {
    // The kernel takes a dead namespace's mounts and loop devices down in the background.
    let limit = limit.max(Duration::from_secs(3));
    until("everything to be gone", limit, async || {
        let now = Snapshot::take()?;
        let left: Vec<String> = now.since(before).iter().map(ToString::to_string).collect();
        Ok(if left.is_empty() {
            Ok(())
        } else {
            // One line, also when a whole cluster is there.
            let shown = &left[..left.len().min(8)];
            Err(format!("left behind, {}: {}", left.len(), shown.join("; ")))
        })
    })
    .await
}
