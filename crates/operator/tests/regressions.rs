//! Regressions that only a real API server can show, with the real binary.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{Agent, TaskRun};
use k8s_openapi::api::{batch::v1::Job, core::v1::ResourceQuota, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    operator::{self, Operator, Plan},
    suite::{self, Env},
    wait::until,
};

async fn start(env: &Env) -> Result<Operator> {
    operator::install(&env.client, api::crd::tasks()).await?;
    let plan = Plan {
        binary: env!("CARGO_BIN_EXE_orchestrator").into(),
        family: "tasks",
        home: env.namespace.clone(),
        watched: vec![env.namespace.clone()],
        config: String::new(),
        permissions: api::rbac::tasks(),
        network: None,
        endpoint: None,
        environment: Vec::new(),
    };
    Operator::start(&env.client, &env.config, &plan).await
}

async fn submit(env: &Env) -> Result<TaskRun> {
    let agent: Agent = serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
        "metadata": { "name": "a" }, "spec": { "image": "nothing:1" },
    }))?;
    env.api().create(&PostParams::default(), &agent).await?;
    let run: TaskRun = serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": "a" },
        "spec": {
            "taskId": 7, "serviceName": "shop", "agentName": "a",
            "markdownFiles": [{ "filename": "a.md", "content": "a" }],
        },
    }))?;
    Ok(env.api().create(&PostParams::default(), &run).await?)
}

/// Waits for a reason; the message.
async fn says(env: &Env, reason: &str, within: u64) -> Result<String> {
    let runs: Api<TaskRun> = env.api();
    until(reason, Duration::from_secs(within), async || {
        let status = runs.get("a").await?.status.context("no status")?;
        let progress = &status.progress;
        let seen = progress
            .condition("Succeeded")
            .map(|known| known.reason.clone());
        let message = progress.message.clone().unwrap_or_default();
        Ok(if seen.as_deref() == Some(reason) {
            Ok(message)
        } else {
            Err(format!("{seen:?}: {message}"))
        })
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r01_a_job_that_cannot_be_created_is_shown_by_condition_event_metric_and_log() -> Result<()>
{
    suite::test(Tier::Api, "r01", async |env| {
        let quotas: Api<ResourceQuota> = env.api();
        let quota = serde_json::from_value(json!({
            "metadata": { "name": "no-jobs" }, "spec": { "hard": { "count/jobs.batch": "0" } },
        }))?;
        quotas.create(&PostParams::default(), &quota).await?;
        until("the quota to count", Duration::from_secs(20), async || {
            let status = quotas.get("no-jobs").await?.status;
            Ok(status
                .and_then(|status| status.hard)
                .map(drop)
                .ok_or_else(|| "not yet".to_owned()))
        })
        .await?;
        let operator = start(&env).await?;
        let run = submit(&env).await?;
        let message = says(&env, "QuotaExceeded", 10).await?;
        ensure!(
            message.contains("create jobs") && message.contains("no-jobs"),
            "{message}"
        );
        let events: Api<Event> = env.api();
        let told = events
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .any(|event| {
                event.reason.as_deref() == Some("QuotaExceeded")
                    && event.regarding.and_then(|object| object.uid) == run.uid()
            });
        ensure!(told, "the Event");
        let series = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Denied"}"#;
        ensure!(operator.metric(series).await? >= 1.0, "the metric");
        ensure!(operator.log_text()?.contains("no-jobs"), "the log");
        operator.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r10_a_child_that_is_deleted_by_hand_is_noticed_in_seconds() -> Result<()> {
    suite::test(Tier::Api, "r10", async |env| {
        let operator = start(&env).await?;
        let run = submit(&env).await?;
        let jobs: Api<Job> = env.api();
        let job = until("the Job", Duration::from_secs(10), async || {
            Ok(jobs
                .get_opt("shop-7-v1")
                .await?
                .ok_or_else(|| "not there".to_owned()))
        })
        .await?;
        let owner = job.owner_references().first().context("no owner")?;
        ensure!(Some(&owner.uid) == run.uid().as_ref() && owner.controller == Some(true));
        // There is no node, and the scheduler says so: this stays, unlike what is said before it.
        says(&env, "Unschedulable", 10).await?;
        jobs.delete("shop-7-v1", &DeleteParams::background())
            .await?;
        let message = says(&env, "JobLost", 5).await?;
        ensure!(message.contains("shop-7-v1"), "{message}");
        let another = "shop-7-v1-d1";
        until(another, Duration::from_secs(15), async || {
            let found = jobs.get_opt(another).await?;
            Ok(found.map(drop).ok_or_else(|| "not there".to_owned()))
        })
        .await?;
        says(&env, "Unschedulable", 10).await?;
        let status = env.api::<TaskRun>().get("a").await?.status;
        let status = status.context("no status")?;
        ensure!(
            (status.attempts, status.disruptions) == (1, 1),
            "{status:?}"
        );
        operator.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r07_nothing_is_written_once_there_is_nothing_to_say() -> Result<()> {
    suite::test(Tier::Api, "r07", async |env| {
        let operator = start(&env).await?;
        submit(&env).await?;
        says(&env, "Unschedulable", 10).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = operator.metrics().await?;
        let spec = env.api::<TaskRun>().get("a").await?.spec;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = operator.metrics().await?;
        let writes = |text: &str| -> Vec<String> {
            let is_write = |line: &&str| {
                line.starts_with("orchestrator_api_requests_total")
                    && ["create", "update", "patch", "delete"]
                        .iter()
                        .any(|verb| line.contains(verb))
                    && !line.contains("leases")
            };
            text.lines().filter(is_write).map(str::to_owned).collect()
        };
        ensure!(writes(&before) == writes(&after), "{:?}", writes(&after));
        ensure!(!writes(&after).is_empty(), "the writes before are counted");
        ensure!(
            env.api::<TaskRun>().get("a").await?.spec == spec,
            "the spec is its author's"
        );
        operator.stop().await
    })
    .await
}
