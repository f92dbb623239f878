//! `cargo xtask testbed isolation`: clusters do not see each other and leave nothing behind.

use std::{
    fmt::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::future::{join_all, try_join_all};
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
    cluster::{Cluster, Folders, Process, REGISTRY, Tier},
    machine::Snapshot,
    wait::until,
};

const CYCLES: usize = 20;
/// What the machine was seen to do idle is about half of these; above twice them something is wrong.
const GOALS: [(Tier, u64); 2] = [(Tier::Api, 8), (Tier::Node, 20)];

/// Runs all checks, one after another.
pub(crate) async fn run() -> Result<ExitCode> {
    let (mut passed, mut failed) = (0, 0);
    let mut judge = |name: &str, start: Instant, result: Result<String>| {
        let took = start.elapsed().as_secs_f64();
        match result {
            Ok(seen) => {
                passed += 1;
                println!("ok      {name:<14} {took:>6.1} s  {seen}");
            }
            Err(error) => {
                failed += 1;
                println!("FAILED  {name:<14} {took:>6.1} s  {error:#}");
            }
        }
    };
    let start = Instant::now();
    judge("start-times", start, start_times().await);
    let start = Instant::now();
    judge("apart", start, apart().await);
    let start = Instant::now();
    judge("cycles", start, cycles().await);
    let start = Instant::now();
    judge("owner-killed", start, owner_killed().await);
    let start = Instant::now();
    judge("keeper-killed", start, keeper_killed().await);
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn start_times() -> Result<String> {
    let mut seen = String::new();
    for (tier, goal) in GOALS {
        let before = Snapshot::take()?;
        let cluster = Cluster::start(&format!("time-{}", tier.name()), tier).await?;
        let times = cluster.times.clone().context("no times")?;
        let start = Instant::now();
        cluster.stop().await?;
        let stop = start.elapsed().as_secs_f64();
        nothing_left(&before, Duration::ZERO).await?;
        ensure!(
            times.total() < Duration::from_secs(2 * goal),
            "'{}' took more than twice its goal of {goal} s: {times}",
            tier.name()
        );
        write!(
            seen,
            "{} in {:.1} s (goal {goal} s: {times}), gone in {stop:.1} s; ",
            tier.name(),
            times.total().as_secs_f64()
        )?;
    }
    Ok(seen)
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
        .map(async |(index, tier)| Cluster::start(&format!("apart-{index}"), *tier).await);
    let (clusters, errors): (Vec<_>, Vec<_>) =
        join_all(starts).await.into_iter().partition(Result::is_ok);
    let clusters: Vec<Cluster> = clusters.into_iter().collect::<Result<_>>()?;
    let checked = match errors.into_iter().find_map(Result::err) {
        Some(error) => Err(error.context("not all started")),
        None => check_apart(&clusters).await,
    };
    try_join_all(clusters.into_iter().map(Cluster::stop)).await?;
    checked?;
    nothing_left(&before, Duration::ZERO).await?;
    Ok("2 node and 4 api clusters at once: own objects, own Pods on one and the same address, no way out".to_owned())
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
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
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
        let routes = cluster
            .control
            .check(
                Process::new("routes", "/usr/sbin/ip", ["route"]),
                Duration::from_secs(10),
            )
            .await?;
        ensure!(
            !routes.contains("default"),
            "cluster '{name}' has a way out: {routes}"
        );
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
        let cluster = Cluster::start("cycle", Tier::Api)
            .await
            .with_context(|| format!("cycle {index}"))?;
        up.push(cluster.times.clone().context("no times")?.total());
        let start = Instant::now();
        cluster.stop().await?;
        down.push(start.elapsed());
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

/// The owner is killed while the cluster is starting, and again when it is ready.
async fn owner_killed() -> Result<String> {
    let before = Snapshot::take()?;
    let mut seen = Vec::new();
    for (when, wait) in [
        ("while starting", Some(Duration::from_millis(2500))),
        ("in use", None),
    ] {
        let folders = Folders::new("owner-killed")?;
        let mut owner = std::process::Command::new(std::env::current_exe()?)
            .args(["testbed", "own", &folders.name])
            .spawn()
            .context("cannot start an owner")?;
        match wait {
            Some(time) => tokio::time::sleep(time).await,
            None => ready(&folders).await?,
        }
        ensure!(
            folders.is_alive()?,
            "the cluster was not there when its owner was to be killed"
        );
        let processes = folders.cgroup().processes()?.len();
        kill(Pid::from_raw(i32::try_from(owner.id())?), Signal::SIGKILL)?;
        owner.wait()?;
        let start = Instant::now();
        nothing_left(&before, Duration::from_secs(20))
            .await
            .with_context(|| format!("owner killed {when}"))?;
        seen.push(format!(
            "{when}: {processes} processes gone after {:.1} s",
            start.elapsed().as_secs_f64()
        ));
    }
    Ok(seen.join("; "))
}

/// Owner and keeper are killed together: nobody is left to clean up until the next start.
async fn keeper_killed() -> Result<String> {
    let before = Snapshot::take()?;
    let folders = Folders::new("keeper-killed")?;
    let mut owner = std::process::Command::new(std::env::current_exe()?)
        .args(["testbed", "own", &folders.name])
        .spawn()
        .context("cannot start an owner")?;
    ready(&folders).await?;
    for pid in [i32::try_from(owner.id())?, folders.keeper()?] {
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    }
    owner.wait()?;
    until(
        "the kernel to end the processes",
        Duration::from_secs(20),
        async || {
            let left = folders.cgroup().processes()?;
            Ok(if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            })
        },
    )
    .await?;
    ensure!(
        folders.run.exists() && folders.cgroup().exists()?,
        "somebody cleaned up: this case no longer shows what it should"
    );
    Cluster::start("after", Tier::Api).await?.stop().await?;
    nothing_left(&before, Duration::ZERO).await?;
    Ok(
        "processes ended by the kernel, folder and control groups removed by the next start"
            .to_owned(),
    )
}

async fn ready(folders: &Folders) -> Result<()> {
    until(
        "the cluster to be ready",
        Duration::from_secs(120),
        async || {
            Ok(if folders.is_ready() {
                Ok(())
            } else {
                Err("it is not".to_owned())
            })
        },
    )
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
            Err(format!("left behind: {}", left.join("; ")))
        })
    })
    .await
}
