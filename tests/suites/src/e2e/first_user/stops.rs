//! What ends an agent from outside: a deadline, a cancellation, a deletion, an eviction.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, EvictParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    super::{
        children::{Doomed, until_gone},
        reading::reason_of,
        shell::Shell,
        why::now,
    },
    fixture::{Bench, Cause, LIMIT, Seen, Why, explained, named, printed},
};

/// A program that writes a line, runs on, and stops when it is told to.
const TALKS: &str = "echo the first line; trap 'exit 0' TERM; while true; do sleep 0.5; done";

/// A program that does not hear that it is to stop: its Pod stays until the end of the grace period.
const DEAF: &str = "exec sleep 600";

/// For the end of a Pod that does not hear, and for the garbage collector.
const GONE: Duration = Duration::from_secs(120);

/// What the output says of a Pod that was deleted.
const WITHOUT_LOG: &[&str] = &[
    "the Pod and its log are deleted",
    "the Pod no longer exists",
];

/// A deadline and a cancellation stop the agent, and keep its log.
pub(super) async fn deadline(bench: &Bench) -> Result<Seen> {
    bench.agent("slow", TALKS, json!({})).await?;
    let limit = json!({ "timeout": "6s" });
    bench.submit("slow", limit).await?;
    let other = json!({ "serviceName": "other", "agentName": "slow" });
    bench.submit("unwanted", other).await?;
    let status = bench.running("slow").await?.status.unwrap_or_default();
    let deadline = status.progress.deadline_at.context("no deadline")?.0;
    let left = deadline.as_millisecond() - now().as_millisecond();
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
    let cause = Cause::at_once("DeadlineExceeded", &["6s"]);
    let why = Why::command(
        &["did not end within this run's own 'timeout' of 6s"],
        "orc logs slow",
    )
    .never(WITHOUT_LOG);
    let seen = named(bench, "slow", Instant::now(), &cause, &why).await?;
    keeps_log(bench, "slow").await?;
    bench.running("unwanted").await?;
    bench.cancel("unwanted").await?;
    let ended = bench.finished("unwanted", Duration::from_secs(45)).await?;
    let status = ended.status.unwrap_or_default();
    let reason = reason_of(&status);
    ensure!(
        reason == "Cancelled",
        "the cancelled one ended with {reason}"
    );
    keeps_log(bench, "unwanted").await?;
    Ok(seen)
}

/// `orc logs` prints what the agent of a run wrote, also after its end.
async fn keeps_log(bench: &Bench, name: &str) -> Result<()> {
    bench.finished(name, Duration::from_secs(45)).await?;
    let line = format!("orc logs {name} --namespace {}", bench.env.namespace);
    let log = Shell::of_case(&bench.env)?.check(&line).await?;
    ensure!(log.contains("the first line"), "'{line}' printed '{log}'");
    Ok(())
}

pub(super) async fn job_deleted(bench: &Bench) -> Result<Seen> {
    bench.start("robbed", DEAF).await?;
    bench.running("robbed").await?;
    let since = Instant::now();
    let jobs: Api<Job> = bench.env.api();
    jobs.delete("robbed-7-v1", &DeleteParams::background())
        .await?;
    let cause = Cause::at_once("JobLost", &["Job 'robbed-7-v1'"]);
    let why = Why::command(
        &["JobLost", "robbed-7-v1", "deleted", "by itself"],
        "orc why taskrun/robbed",
    );
    named(bench, "robbed", since, &cause, &why).await
}

pub(super) async fn evicted(bench: &Bench) -> Result<Seen> {
    bench.start("moved", DEAF).await?;
    let pod = bench.pod_of(&bench.running("moved").await?)?;
    let since = Instant::now();
    let pods: Api<Pod> = bench.env.api();
    pods.evict(&pod, &EvictParams::default()).await?;
    let says = [pod.as_str(), "EvictionByEvictionAPI", "its log is lost"];
    let cause = Cause::at_once("Disrupted", &says);
    let object = format!("Pod {pod}");
    let says = [object.as_str(), "it was evicted", "started again by itself"];
    let look = format!("kubectl get pod {pod}");
    let why = Why::command(&says, &look);
    named(bench, "moved", since, &cause, &why).await
}

/// The run goes with its namespace. Kubernetes deletes the Pods first, and nothing in them says why. The operator may not
/// read namespaces, so its line can only name this cause as a possible one. `orc why` reads the namespace.
pub(super) async fn namespace_terminating(mut env: Env) -> Result<Seen> {
    let doomed = Doomed::new(&env).await?;
    let home = std::mem::replace(&mut env.namespace, doomed.name.clone());
    let watched = vec![doomed.name.clone()];
    let bench = Bench::planned(env, home, watched, "").await?;
    bench.start("doomed", DEAF).await?;
    bench.running("doomed").await?;
    let since = Instant::now();
    let namespaces: Api<Namespace> = Api::all(bench.env.client.clone());
    namespaces
        .delete(&doomed.name, &DeleteParams::default())
        .await?;
    let reason = until("the line to name the namespace", LIMIT, async || {
        let line = printed(&bench.env, "doomed").await?;
        let is_named = match line.reason.as_str() {
            "NamespaceTerminating" | "Deleting" => true,
            "Disrupted" => line.message.contains("with its namespace"),
            _ => false,
        };
        Ok(met(is_named, || format!("{line:?}")).map(|()| line.reason))
    })
    .await?;
    let seconds = since.elapsed().as_secs_f64();
    let object = format!("Namespace {}", doomed.name);
    let says = ["NamespaceTerminating", object.as_str(), "is being deleted"];
    let look = format!("kubectl get namespace {}", doomed.name);
    let why = explained(&bench.env, "doomed", &Why::command(&says, &look)).await?;
    until_gone(&namespaces, &doomed.name, GONE).await?;
    bench.done().await?;
    Ok(Seen {
        reason,
        seconds: Some(seconds),
        why,
    })
}
