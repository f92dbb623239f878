//! Objects that are missing, belong to others, or do not fit.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;
use serde_json::json;
use testkit::wait::{met, until};

use super::{
    super::{reading::phase_of, why::now},
    fixture::{Bench, Cause, LIMIT, Seen, Why, named, submitted},
};

/// A program that runs until it is stopped.
const BUSY: &str = "trap 'exit 143' TERM; sleep 600 & wait";

pub(super) async fn agent_missing(bench: &Bench) -> Result<Seen> {
    let cause = Cause::at_once("AgentNotFound", &["'nobody'", "does not exist"]);
    let namespace = &bench.env.namespace;
    let create = format!("kubectl apply -n {namespace} -f <AGENT.yaml>");
    let why = Why::command(&["Agent nobody", "does not exist"], &create);
    submitted(bench, "nobody", json!({}), cause, why).await
}

pub(super) async fn account_missing(bench: &Bench) -> Result<Seen> {
    let more = json!({ "serviceAccountName": "robot" });
    bench.agent("account", "true", more).await?;
    let cause = Cause::at_once("AgentNotReady", &["ServiceAccount 'robot'"]);
    let why = Why::command(
        &["ServiceAccount robot", "does not exist"],
        "kubectl create serviceaccount robot",
    );
    submitted(bench, "account", json!({}), cause, why).await
}

pub(super) async fn class_missing(bench: &Bench) -> Result<Seen> {
    let more = json!({ "workspace": { "storageClassName": "fast", "size": "1Gi" } });
    bench.agent("volume", "true", more).await?;
    let cause = Cause::at_once("AgentNotReady", &["StorageClass 'fast'"]);
    let why = Why::command(
        &["StorageClass fast", "does not exist"],
        "kubectl get storageclass",
    );
    submitted(bench, "volume", json!({}), cause, why).await
}

pub(super) async fn foreign_job(bench: &Bench) -> Result<Seen> {
    let foreign = json!({
        "metadata": { "name": "taken-7-v1" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "x" }],
        }}},
    });
    bench.env.create::<Job>(foreign).await?;
    taken(bench, "Job", "taken-7-v1").await
}

pub(super) async fn foreign_config_map(bench: &Bench) -> Result<Seen> {
    let foreign = json!({ "metadata": { "name": "taken-7-v1-files" } });
    bench.env.create::<ConfigMap>(foreign).await?;
    taken(bench, "ConfigMap", "taken-7-v1-files").await
}

/// A child's name is taken by an object of somebody else. The wait has an end.
async fn taken(bench: &Bench, kind: &str, name: &str) -> Result<Seen> {
    bench.agent("taken", "true", json!({})).await?;
    let (words, object) = (format!("{kind} '{name}'"), format!("{kind} {name}"));
    let says = [words.as_str(), "belongs to someone else"];
    let cause = Cause::at_once("ChildNameTaken", &says);
    let lower = kind.to_lowercase();
    let delete = format!("kubectl delete {lower} {name}");
    let says = [object.as_str(), "belongs to nobody"];
    let why = Why::command(&says, &delete);
    let seen = submitted(bench, "taken", json!({}), cause, why).await?;
    ends_some_time(bench, "taken").await?;
    Ok(seen)
}

/// The wait of a run has a stored end, and its next try is not in the past.
async fn ends_some_time(bench: &Bench, name: &str) -> Result<()> {
    let status = bench.runs().get(name).await?.status.unwrap_or_default();
    let deadline = status.progress.deadline_at.context("no deadline")?;
    ensure!(deadline.0 > now(), "the deadline is over: {deadline:?}");
    // The try itself takes a moment, and the time is stored in whole seconds.
    until("a next try that is not over", LIMIT, async || {
        let status = bench.runs().get(name).await?.status.unwrap_or_default();
        let next = status.progress.retry.and_then(|retry| retry.next_at);
        let is_past = |next: &Time| now().as_second() - next.0.as_second() > 5;
        let is_met = !next.as_ref().is_some_and(is_past);
        Ok(met(is_met, || format!("the next try is over: {next:?}")))
    })
    .await
}

/// What can never succeed fails at once.
pub(super) async fn too_large(bench: &Bench) -> Result<Seen> {
    bench.agent("large", "true", json!({})).await?;
    // As few characters as allowed, but more bytes: sizes of the schema are code points.
    let content = "ü".repeat(500 * 1024);
    let files = json!({ "markdownFiles": [{ "filename": "a.md", "content": content }] });
    let cause = Cause::at_once("ContextTooLarge", &["1024000", "921600"]);
    let why = Why::command(
        &["1024000", "Shorten 'a.md'"],
        "kubectl replace -f large.yaml",
    );
    let seen = submitted(bench, "large", files, cause, why).await?;
    let status = bench.runs().get("large").await?.status.unwrap_or_default();
    let phase = phase_of(&status);
    ensure!(phase == "Failed", "it is {phase}");
    Ok(seen)
}

/// Two runs have one service and one task. The second must name the first, and nothing of the first may be
/// offered for deletion.
pub(super) async fn same_identity(bench: &Bench) -> Result<Seen> {
    bench.agent("twin", BUSY, json!({})).await?;
    let identity = json!({ "serviceName": "shared", "agentName": "twin" });
    let first = bench.submit("first", identity.clone()).await?;
    bench.running("first").await?;
    let since = Instant::now();
    bench.submit("second", identity).await?;
    let cause = Cause::at_once("TaskTaken", &["TaskRun 'first'"]);
    let why = Why::command(
        &["TaskRun first", "TaskTaken", "another 'taskId'"],
        "kubectl describe otr first",
    )
    .never(&[
        "kubectl delete configmap",
        "kubectl delete job",
        "kubectl delete otr first",
    ]);
    let seen = named(bench, "second", since, &cause, &why).await?;
    untouched(bench, &first).await?;
    Ok(seen)
}

/// A run goes on with its own children.
async fn untouched(bench: &Bench, run: &TaskRun) -> Result<()> {
    let status = bench.runs().get(&run.name_any()).await?.status;
    let phase = phase_of(&status.unwrap_or_default());
    ensure!(phase == "Running", "the first one is {phase}");
    let jobs = bench.jobs_of(run).await?.len();
    ensure!(jobs == 1, "the first one has {jobs} Jobs");
    Ok(())
}
