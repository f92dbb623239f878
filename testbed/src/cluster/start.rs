//! Bringing the parts up, in order, each waited for by what it does and not by time.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, ServiceAccount},
    storage::v1::CSINode,
};
use kube::{Api, Client};

use super::{Cluster, Process, Tier, components, manifests, pki::Pki, suites, write};
use crate::{addition::Addition, image_cache, layout, parts, process, wait::until};

const LIMIT: Duration = Duration::from_secs(90);

/// When each part was ready, counted from the request for the cluster.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// What, and when.
    pub marks: Vec<(&'static str, Duration)>,
    /// Durations of additions, which all started when the cluster was ready.
    pub additions: Vec<(Addition, Duration)>,
}

impl Times {
    fn mark(&mut self, what: &'static str, begin: Instant) {
        self.marks.push((what, begin.elapsed()));
    }

    /// Returns how much later the cluster was complete because of its additions.
    pub fn added(&self) -> Duration {
        let times = self.additions.iter().map(|(_, time)| *time);
        times.max().unwrap_or_default()
    }

    /// From the request to the last mark.
    pub fn total(&self) -> Duration {
        self.marks.last().map_or(Duration::ZERO, |(_, time)| *time)
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (what, time)) in self.marks.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(out, "{separator}{what} {:.1} s", time.as_secs_f64())?;
        }
        for (index, (addition, time)) in self.additions.iter().enumerate() {
            let separator = if index == 0 { "; additions: " } else { ", " };
            write!(out, "{separator}{addition} {:.1} s", time.as_secs_f64())?;
        }
        Ok(())
    }
}

pub(super) async fn start(cluster: &Cluster, begin: Instant) -> Result<Times> {
    let mut times = Times::default();
    let folders = &cluster.folders;
    let port = fs::read_to_string(folders.port())?.trim().parse()?;
    let pki = Pki::create(&folders.run.join("pki"), port)?;
    write(
        &folders.run.join("audit-policy.json"),
        &serde_json::to_vec(&components::audit_policy())?,
    )?;
    cluster.trust_issuers(&[])?;
    cluster
        .control
        .start(components::etcd(folders, &pki)?)
        .await?;
    cluster
        .control
        .start(components::apiserver(folders, &pki)?)
        .await?;
    // Independent of the API server, and done before it answers.
    if cluster.tier == Tier::Node {
        try_join(runtime(cluster), volumes(cluster)).await?;
        times.mark("images", begin);
    }
    let client = cluster.client().await?;
    wait_for(cluster, "the API server to be ready", async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(match client.request_text(request).await {
            Ok(_) => Seen::Yes,
            Err(error) => Seen::not_yet(error),
        })
    })
    .await?;
    times.mark("API server", begin);
    cluster
        .control
        .start(components::controller_manager(&pki)?)
        .await?;
    cluster.control.start(components::scheduler(&pki)?).await?;
    match cluster.tier {
        Tier::Api => {}
        Tier::Node => node(cluster, &pki, &client, begin, &mut times).await?,
        Tier::Kwok => fake_nodes(cluster, &pki, &client).await?,
    }
    // Made by the controller manager: Pods are refused in a namespace that lacks it.
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    wait_for(cluster, "the controller manager to work", async || {
        Ok(match accounts.get_opt("default").await? {
            Some(_) => Seen::Yes,
            None => Seen::not_yet("no ServiceAccount default/default"),
        })
    })
    .await?;
    times.mark("ready", begin);
    Ok(times)
}

/// containerd with the images of the testbed.
async fn runtime(cluster: &Cluster) -> Result<()> {
    let folders = &cluster.folders;
    fs::create_dir_all(folders.run.join("cni"))?;
    fs::create_dir_all(folders.run.join("registries"))?;
    write(
        &folders.run.join("cni/10-testbed.conflist"),
        &serde_json::to_vec(&components::cni_config())?,
    )?;
    write(
        &folders.run.join("containerd.toml"),
        components::containerd_config(folders)?.as_bytes(),
    )?;
    cluster
        .control
        .start(components::containerd(folders)?)
        .await?;
    let limit = Duration::from_secs(10);
    wait_for(cluster, "containerd to answer", async || {
        let ask = Process::new(
            "ctr",
            parts::binary("containerd", "ctr")?,
            ["--address", components::CONTAINERD_SOCKET, "version"],
        );
        let output = cluster.control.run(ask, limit).await?;
        Ok(if output.code == 0 {
            Seen::Yes
        } else {
            Seen::not_yet(output.stderr)
        })
    })
    .await?;
    let archives = image_cache::archives_of(None)?;
    try_join_all(archives.iter().map(|archive| cluster.load_image(archive))).await?;
    Ok(())
}

impl Cluster {
    /// Loads an image archive into the node's container runtime.
    ///
    /// # Errors
    /// When the cluster has no node, or the archive is refused.
    pub async fn load_image(&self, archive: &std::path::Path) -> Result<()> {
        let import = components::import_image(archive)?;
        self.control
            .check(import, Duration::from_secs(120))
            .await
            .with_context(|| format!("cannot load '{}'", archive.display()))?;
        Ok(())
    }

    /// Gives an image of the node another name: what an example names is found without a registry.
    /// Both are whole, such as `docker.io/library/busybox:1.35`, where people write less.
    ///
    /// # Errors
    /// When the cluster has no node, or the node no such image.
    pub async fn tag_image(&self, from: &str, to: &str) -> Result<()> {
        let tag = components::tag_image(from, to)?;
        self.control
            .check(tag, Duration::from_secs(30))
            .await
            .with_context(|| format!("cannot name image '{from}' '{to}' too"))?;
        Ok(())
    }
}

/// The filesystem of the volumes. A loop device that a mount made is freed by the kernel with it.
async fn volumes(cluster: &Cluster) -> Result<()> {
    let image = cluster.folders.run.join("volumes.btrfs");
    fs::File::create(&image)?.set_len(8 << 30)?;
    let image = image.display().to_string();
    let limit = Duration::from_secs(30);
    let control = &cluster.control;
    control
        .check(
            Process::new("mkfs", "/usr/sbin/mkfs.btrfs", ["--quiet", &image]),
            limit,
        )
        .await?;
    control
        .check(
            Process::new("mkdir", "/bin/mkdir", ["-p", components::VOLUMES]),
            limit,
        )
        .await?;
    control
        .check(
            Process::new(
                "mount",
                "/bin/mount",
                ["-o", "loop", &image, components::VOLUMES],
            ),
            limit,
        )
        .await?;
    Ok(())
}

async fn node(
    cluster: &Cluster,
    pki: &Pki,
    client: &Client,
    begin: Instant,
    times: &mut Times,
) -> Result<()> {
    let (folders, control) = (&cluster.folders, &cluster.control);
    write(&folders.run.join("resolv.conf"), b"")?;
    write(
        &folders.run.join("kubelet.json"),
        &serde_json::to_vec(&components::kubelet_config(folders, pki))?,
    )?;
    write(
        &folders.run.join("kube-proxy.json"),
        &serde_json::to_vec(&components::proxy_config(pki))?,
    )?;
    control.start(components::kubelet(folders, pki)?).await?;
    for manifest in ["dns.yaml", "policies.yaml", "volumes.yaml"] {
        manifests::apply(
            client,
            "default",
            &fs::read_to_string(layout::testbed().join("manifests").join(manifest))?,
        )
        .await?;
    }
    let provisioner = parts::folder_of("csi-provisioner")?.join("keep/deploy/kubernetes/rbac.yaml");
    manifests::apply(client, "default", &fs::read_to_string(provisioner)?).await?;
    control.start(components::proxy(folders)?).await?;
    control
        .start(components::csi_driver(&csi_driver(cluster)?))
        .await?;

    let nodes: Api<Node> = Api::all(client.clone());
    wait_for(cluster, "the node to be Ready", async || {
        Ok(match nodes.get_opt(components::NODE).await? {
            Some(node) if is_ready(&node) => Seen::Yes,
            Some(_) => Seen::not_yet("Ready is not True"),
            None => Seen::not_yet("not registered"),
        })
    })
    .await?;
    times.mark("node Ready", begin);
    // kube-proxy and kube-router create chains of the same tables when they start. When both did so at once, a chain was
    // missing for kube-proxy, and Services had no rules for minutes.
    wait_for(cluster, "kube-proxy to write its rules", async || {
        let rules = ["-w", "-t", "nat", "-S", "KUBE-SERVICES"];
        let rules = Process::new("rules", "/usr/sbin/iptables", rules);
        Ok(match control.check(rules, LIMIT).await {
            Ok(rules) if rules.contains("default/kubernetes:https") => Seen::Yes,
            Ok(_) => Seen::not_yet("no rule for Service default/kubernetes"),
            Err(error) => Seen::not_yet(error),
        })
    })
    .await?;
    // Needs the node's range of Pod addresses, which the controller manager has given by now.
    control.start(components::router(pki)?).await?;

    let drivers: Api<CSINode> = Api::all(client.clone());
    wait_for(cluster, "the volume driver to be registered", async || {
        let node = drivers.get_opt(components::NODE).await?;
        let known = node.is_some_and(|node| {
            node.spec
                .drivers
                .iter()
                .any(|driver| driver.name == components::CSI_DRIVER)
        });
        Ok(if known {
            Seen::Yes
        } else {
            Seen::not_yet("not in the CSINode")
        })
    })
    .await?;
    control.start(components::csi_provisioner(pki)?).await?;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    wait_for(cluster, "DNS to answer", async || {
        let available = deployments
            .get("coredns")
            .await?
            .status
            .and_then(|status| status.available_replicas);
        Ok(if available == Some(1) {
            Seen::Yes
        } else {
            Seen::not_yet("Deployment kube-system/coredns has no available Pod")
        })
    })
    .await?;
    times.mark("DNS", begin);
    wait_for(cluster, "network policies to be enforced", async || {
        let rules = control
            .check(
                Process::new(
                    "rules",
                    "/usr/sbin/iptables",
                    ["-w", "-S", "KUBE-ROUTER-FORWARD"],
                ),
                LIMIT,
            )
            .await;
        Ok(match rules {
            Ok(_) => Seen::Yes,
            Err(error) => Seen::not_yet(error),
        })
    })
    .await?;
    times.mark("policies", begin);
    Ok(())
}

/// Whether a node's condition says so.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|list| {
        list.iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// A copy, so that a new build does not change a cluster that runs.
fn csi_driver(cluster: &Cluster) -> Result<PathBuf> {
    let built = suites()?.with_file_name("csi-btrfs");
    let copy = cluster.folders.run.join("csi-btrfs");
    ensure!(
        built.exists(),
        "no volume driver at '{}': run 'cargo build -p csi-btrfs'",
        built.display()
    );
    // Copied by another process. If this one wrote the file, a program that another thread starts at this moment would
    // inherit the open file, and the kernel starts no program that is open for writing.
    let copied = Command::new("cp").arg("--").args([&built, &copy]).status();
    let copied = copied.context("cannot start 'cp'")?;
    ensure!(copied.success(), "cannot copy '{}'", built.display());
    Ok(copy)
}

async fn fake_nodes(cluster: &Cluster, pki: &Pki, client: &Client) -> Result<()> {
    let stages = parts::folder_of("kwok")?.join("keep/kustomize/stage");
    let mut config = Vec::new();
    for stage in [
        "node/fast/node-initialize.yaml",
        "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "pod/fast/pod-ready.yaml",
        "pod/fast/pod-complete.yaml",
        "pod/fast/pod-delete.yaml",
    ] {
        let mut text = fs::read_to_string(stages.join(stage))
            .with_context(|| format!("kwok's stage '{stage}'"))?;
        if stage.ends_with("pod-complete.yaml") {
            // A program runs for a moment; without one nobody sees it running.
            text = format!(
                "{}\n  delay:\n    durationMilliseconds: 1500\n",
                text.trim_end()
            );
        }
        config.push(text);
    }
    write(
        &cluster.folders.run.join("kwok.yaml"),
        config.join("\n---\n").as_bytes(),
    )?;
    cluster
        .control
        .start(components::kwok(&cluster.folders, pki)?)
        .await?;
    manifests::apply(
        client,
        "default",
        &fs::read_to_string(layout::testbed().join("manifests/fake-nodes.yaml"))?,
    )
    .await?;
    let nodes: Api<Node> = Api::all(client.clone());
    wait_for(cluster, "the fake nodes to be Ready", async || {
        let list = nodes.list(&kube::api::ListParams::default()).await?;
        Ok(
            if list.items.len() == 2 && list.items.iter().all(is_ready) {
                Seen::Yes
            } else {
                Seen::not_yet("not all Ready")
            },
        )
    })
    .await
}

pub(super) enum Seen {
    Yes,
    NotYet(String),
}

impl Seen {
    pub(super) fn not_yet(why: impl std::fmt::Display) -> Self {
        Self::NotYet(why.to_string())
    }
}

/// Waits for a sight, and gives up at once when a part of the cluster has ended.
pub(super) async fn wait_for<F>(cluster: &Cluster, what: &str, look: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<Seen>>,
{
    until(what, LIMIT, async || {
        for state in cluster.control.processes().await? {
            if let Some(ended) = state.ended {
                let log = cluster.folders.logs.join(format!("{}.log", state.name));
                bail!(
                    "'{}' ended ({ended}) while waiting for {what}; end of '{}':\n{}",
                    state.name,
                    log.display(),
                    process::tail(&log)
                );
            }
        }
        Ok(match look().await {
            Ok(Seen::Yes) => Ok(()),
            Ok(Seen::NotYet(why)) => Err(why),
            // An API server that has just come up still refuses some requests.
            Err(error) if error.is::<kube::Error>() => Err(format!("{error:#}")),
            Err(error) => return Err(error),
        })
    })
    .await
}
