//! Who stops agents from outside: it uses no attempt, and the run goes on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{TaskRun, TaskRunStatus};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams},
};
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::fixture::{
    Bench, Expect, LIMIT, UNTIL, brief, busy, lasts, phase_of, reason_of, says_all,
};
use crate::e2e::shell::Shell;

const NODE: &str = "node-0";
/// The kubelet of a cluster of the testbed, as its first process calls it.
const KUBELET: &str = "kubelet";
const HEARTBEAT: Duration = Duration::from_secs(3);

fn job_name(run: &TaskRun) -> &str {
    let status = run.status.as_ref();
    status
        .and_then(|status| status.job_name.as_deref())
        .unwrap_or_default()
}

fn is_disrupted(status: &TaskRunStatus) -> bool {
    status.disruptions == 1
}

/// Goes on in the same Job: the Job controller replaces what was evicted.
pub(super) async fn evicted(bench: &Bench) -> Result<String> {
    bench.start("moved", &busy(12)).await?;
    let run = bench.running("moved").await?;
    let pods: Api<Pod> = bench.env.api();
    let pod = bench.pod_of(&run)?;
    pods.evict(&pod, &EvictParams::default()).await?;
    let seen = bench
        .until("moved", LIMIT, "the eviction", is_disrupted)
        .await?;
    let status = seen.status.unwrap_or_default();
    ensure!(reason_of(&status) == "Disrupted", "{}", brief(&status));
    says_all(&status, &[&pod, NODE, "EvictionByEvictionAPI"])?;
    let said = brief(&status);
    let expect = Expect {
        events: &["Running", "Disrupted"],
        disruptions: 1,
        ..Expect::default()
    };
    let seen = bench.ended("moved", &expect).await?;
    ensure!(job_name(&seen) == "moved-7-v1", "{}", job_name(&seen));
    let result = seen.status.clone().and_then(|status| status.attempt.result);
    let second = result.and_then(|result| result.pod_name);
    ensure!(second.is_some_and(|second| second != pod), "another Pod");
    bench.deletes(&seen).await?;
    Ok(said)
}

/// What a program returns after it was told to stop is no result, whatever it is.
pub(super) async fn pod_by_hand(bench: &Bench) -> Result<String> {
    // Several: how the end and the kubelet's last word fall into seconds differs.
    const NAMES: [&str; 4] = ["dies", "smiles-1", "smiles-2", "smiles-3"];
    // None ends by itself before the last is deleted.
    let smile = "trap 'exit 0' TERM; sleep 15 & wait";
    for name in NAMES {
        let script = if name == "dies" {
            busy(15)
        } else {
            smile.to_owned()
        };
        bench.start(name, &script).await?;
    }
    let pods: Api<Pod> = bench.env.api();
    for name in NAMES {
        let pod = bench.pod_of(&bench.running(name).await?)?;
        pods.delete(&pod, &DeleteParams::default()).await?;
        tokio::time::sleep(Duration::from_millis(350)).await;
    }
    let mut said = String::new();
    for name in NAMES {
        let expect = Expect {
            events: &["Running", "Disrupted"],
            disruptions: 1,
            // The one that was stopped ended, as its Job says, and stays for a look at it.
            jobs: 2,
            ..Expect::default()
        };
        let seen = bench
            .ended(name, &expect)
            .await
            .with_context(|| name.to_owned())?;
        ensure!(
            job_name(&seen) == format!("{name}-7-v1-d1"),
            "{}",
            job_name(&seen)
        );
        said = bench.notes(&seen, "Disrupted").await?;
        for word in [name, NODE, "terminated by another actor"] {
            ensure!(said.contains(word), "'{word}' is not in '{said}'");
        }
        bench.deletes(&seen).await?;
    }
    Ok(said)
}

pub(super) async fn job_by_hand(bench: &Bench) -> Result<String> {
    let ways = [
        ("robbed", DeleteParams::foreground()),
        ("burgled", DeleteParams::background()),
    ];
    for (name, _) in &ways {
        bench.start(name, &busy(12)).await?;
    }
    let jobs: Api<Job> = bench.env.api();
    for (name, way) in &ways {
        bench.running(name).await?;
        jobs.delete(&format!("{name}-7-v1"), way).await?;
    }
    let mut said = Vec::new();
    for (name, _) in &ways {
        let expect = Expect {
            events: &["Running", "JobLost"],
            // The Pod's end may be seen before the Job's: they come by different watches.
            maybe: &["Pending", "Disrupted"],
            disruptions: 1,
            ..Expect::default()
        };
        let seen = bench.ended(name, &expect).await?;
        ensure!(
            job_name(&seen) == format!("{name}-7-v1-d1"),
            "{}",
            job_name(&seen)
        );
        let told = bench.notes(&seen, "JobLost").await?;
        let job = format!("Job '{name}-7-v1'");
        ensure!(
            told.contains(&job) && told.contains("by another actor"),
            "{told}"
        );
        said.push(told);
        bench.deletes(&seen).await?;
    }
    Ok(said.join("; "))
}

pub(super) async fn too_many(bench: &Bench) -> Result<String> {
    bench.start("hunted", &busy(600)).await?;
    let pods: Api<Pod> = bench.env.api();
    for round in 0..6 {
        let what = format!("running after {round} disruptions");
        let seen = bench
            .until("hunted", LIMIT, &what, |status| {
                let is_calm = |pod: &api::tasks::RunPod| pod.disrupted_at.is_none();
                status.disruptions == round
                    && phase_of(status) == "Running"
                    && status.pod.as_ref().is_some_and(is_calm)
            })
            .await?;
        let status = seen.status.clone().unwrap_or_default();
        ensure!(status.attempts == 1, "{} attempts", status.attempts);
        pods.delete(&bench.pod_of(&seen)?, &DeleteParams::default())
            .await?;
    }
    let expect = Expect {
        says: &["6 times", "hunted-7-v1"],
        events: &["Running", "Disrupted"],
        disruptions: 6,
        jobs: 6,
        ..Expect::failure("TooManyDisruptions")
    };
    bench.ends("hunted", expect).await
}

/// By the command that an administrator types. No other case runs meanwhile: it is the only node.
pub(super) async fn drained(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let cluster = bench.env.testbed("kubectl drain")?;
    let cache = std::env::temp_dir().join(format!("drain-{}", bench.env.namespace));
    let shell = Shell::new(&cluster.folders.kubeconfig(), &cache)?;
    bench.start("drained", &busy(12)).await?;
    bench.running("drained").await?;
    // The testbed's own Pods have no controller or local data.
    let line = format!(
        "kubectl drain {NODE} --force --ignore-daemonsets --delete-emptydir-data --timeout=60s"
    );
    let output = shell.run(&line).await;
    let seen = bench
        .until("drained", LIMIT, "no place", |status| {
            is_disrupted(status) && reason_of(status) == "Unschedulable"
        })
        .await;
    // Whatever was seen: other cases need the node.
    shell.check(&format!("kubectl uncordon {NODE}")).await?;
    let output = output?;
    ensure!(
        output.status.success(),
        "{line}: {}{}",
        output.stdout,
        output.stderr
    );
    let seen = seen?;
    let status = seen.status.unwrap_or_default();
    ensure!(phase_of(&status) == "Pending", "{}", brief(&status));
    says_all(&status, &["unschedulable"])?;
    if cache.exists() {
        std::fs::remove_dir_all(&cache)?;
    }
    let expect = Expect {
        events: &["Running", "Disrupted", "Unschedulable"],
        disruptions: 1,
        ..Expect::default()
    };
    bench.ends("drained", expect).await?;
    bench.done().await?;
    Ok(brief(&status))
}

/// The node does not answer, then it is given up. Meanwhile its container runs on, so nothing else
/// may. No other case runs meanwhile, or after it.
pub(super) async fn node_lost(env: Env) -> Result<String> {
    env.testbed("a lost node")?;
    let client = env.client.clone();
    tokio::select! {
        said = lose_node(env) => said,
        broken = another_node(&client) => broken,
    }
}

/// A second Node that nothing is placed on, and its heart: when all nodes of a cluster are silent,
/// it is taken for a broken network, and nothing is told to stop. Ends only by an error.
async fn another_node(client: &Client) -> Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "node-1" },
        "spec": { "taints": [{ "key": "fake", "effect": "NoSchedule" }] },
    }))?;
    let node = nodes.create(&PostParams::default(), &node).await?;
    let created = node.metadata.creation_timestamp;
    let mut beat = created.context("a Node without a time")?.0;
    loop {
        // Only that it moves is looked at.
        beat = beat.checked_add(HEARTBEAT)?;
        let ready = json!({ "status": { "conditions": [{
            "type": "Ready", "status": "True", "reason": "Fake", "message": "it is none",
            "lastHeartbeatTime": Time(beat), "lastTransitionTime": Time(beat),
        }]}});
        let params = PatchParams::default();
        nodes
            .patch_status("node-1", &params, &Patch::Strategic(ready))
            .await?;
        tokio::time::sleep(HEARTBEAT).await;
    }
}

async fn lose_node(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let control = bench.env.testbed("a lost node")?.control.clone();
    let run = islander(&bench).await?;
    let pod = bench.pod_of(&run)?;
    control.signal(KUBELET, Signal::SIGSTOP).await?;
    let seen = bench
        .until("islander", LIMIT, "the loss", is_disrupted)
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(reason_of(&status) == "Disrupted", "{}", brief(&status));
    says_all(&status, &[&pod, NODE, "DeletionByTaintManager"])?;
    bench
        .stays_at(&run, (1, 1), Duration::from_secs(15))
        .await?;
    let nodes: Api<Node> = Api::all(bench.env.client.clone());
    nodes.delete(NODE, &DeleteParams::default()).await?;
    given_up(&bench, &run, &pod).await?;
    control.stop(KUBELET).await?;
    control.restart(KUBELET).await?;
    let expect = Expect {
        events: &["Running", "Disrupted"],
        maybe: &["Pending", "Unschedulable"],
        disruptions: 1,
        within: Some(Duration::from_secs(90)),
        ..Expect::default()
    };
    let seen = bench.ended("islander", &expect).await?;
    ensure!(job_name(&seen) == "islander-7-v1", "{}", job_name(&seen));
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok(brief(&status))
}

/// A run that leaves a lost node after seconds. Its first Pod runs until a time at which the second
/// one is not there yet, which then is done at once.
async fn islander(bench: &Bench) -> Result<TaskRun> {
    let toleration = |key: &str| {
        json!({
            "key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 2,
        })
    };
    let more = json!({ "tolerations": [toleration("unreachable"), toleration("not-ready")] });
    let agent = bench.agent("islander", UNTIL, more).await?;
    bench.submit("islander", lasts(&agent, 60)).await?;
    bench.running("islander").await
}

/// Waits until the Pod of a Node that was deleted is known to be over; until then it is the only one.
async fn given_up(bench: &Bench, run: &TaskRun, pod: &str) -> Result<()> {
    let pods: Api<Pod> = bench.env.api();
    until(
        "the Pod to be given up",
        Duration::from_secs(90),
        async || {
            let count = bench.pods_of(run).await?.len();
            let is_over = pods.get_opt(pod).await?.is_none_or(|pod| {
                let phase = pod.status.and_then(|status| status.phase);
                phase.as_deref() == Some("Failed")
            });
            ensure!(is_over || count == 1, "{count} Pods at once");
            Ok(met(is_over, || format!("{count} Pods")))
        },
    )
    .await
}
