//! Regressions that only a real API server can show, with the real binary.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, ensure};
use api::tasks::{Agent, DocsRun, TaskRun};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, ResourceQuota},
        events::v1::Event,
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    audit::Request,
    cluster::Tier,
    operator::{self, Operator, Plan},
    suite::{self, Env},
    wait::until,
};

fn plan(env: &Env) -> Plan {
    let binary = env!("CARGO_BIN_EXE_orchestrator").into();
    Plan {
        watched: vec![env.namespace.clone()],
        ..Plan::new(binary, &api::tasks::OPERATOR, &env.namespace)
    }
}

async fn start(env: &Env) -> Result<Operator> {
    start_as(env, &plan(env)).await
}

async fn start_as(env: &Env, plan: &Plan) -> Result<Operator> {
    operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
    Operator::start(&env.client, &env.config, plan).await
}

/// Returns the log of an operator, line by line.
fn lines(operator: &Operator) -> Result<Vec<Value>> {
    let text = operator.log_text()?;
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
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

/// Waits for a reason, and returns the message.
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

/// Creates a quota that allows none of these resources, and waits until it counts.
async fn forbid(env: &Env, name: &str, resource: &str) -> Result<()> {
    let quotas: Api<ResourceQuota> = env.api();
    let quota = serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "hard": { resource: "0" } },
    }))?;
    quotas.create(&PostParams::default(), &quota).await?;
    until("the quota to count", Duration::from_secs(20), async || {
        let status = quotas.get(name).await?.status;
        Ok(status
            .and_then(|status| status.hard)
            .map(drop)
            .ok_or_else(|| "not yet".to_owned()))
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r01_a_job_that_cannot_be_created_is_shown_by_condition_event_metric_and_log() -> Result<()>
{
    suite::test(Tier::Api, "r01", async |env| {
        forbid(&env, "no-jobs", "count/jobs.batch").await?;
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
        // Without a Pod, only the watch of Jobs can report the deletion.
        forbid(&env, "no-pods", "pods").await?;
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
        says(&env, "QuotaExceeded", 10).await?;
        jobs.delete("shop-7-v1", &DeleteParams::background())
            .await?;
        // The run has this reason only for a moment, because the next Job is created immediately.
        until("an Event 'JobLost'", Duration::from_secs(5), async || {
            let events = env.api::<Event>().list(&ListParams::default()).await?;
            let lost = events.items.into_iter().find(|event| {
                event.reason.as_deref() == Some("JobLost")
                    && event
                        .regarding
                        .as_ref()
                        .and_then(|object| object.uid.clone())
                        == run.uid()
            });
            let note = lost.and_then(|event| event.note);
            let note = note.filter(|note| note.contains("shop-7-v1"));
            Ok(note.ok_or_else(|| "no such Event".to_owned()))
        })
        .await?;
        let another = "shop-7-v1-d1";
        until(another, Duration::from_secs(15), async || {
            let found = jobs.get_opt(another).await?;
            Ok(found.map(drop).ok_or_else(|| "not there".to_owned()))
        })
        .await?;
        says(&env, "QuotaExceeded", 10).await?;
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
        let audit = env.testbed("reading the audit log")?.audit();
        let begin = audit.mark(&env.client).await?;
        let operator = start(&env).await?;
        submit(&env).await?;
        says(&env, "Unschedulable", 10).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let is_write = |request: &Request| {
            request.user == operator.user
                && request.is_write()
                && !request.resource.starts_with("leases")
        };
        let before = audit.counts(&env.client, begin).await?;
        ensure!(before.of(is_write) >= 3, "children and status: {before}");
        let mark = audit.mark(&env.client).await?;
        let spec = env.api::<TaskRun>().get("a").await?.spec;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = audit.counts(&env.client, mark).await?;
        ensure!(after.of(is_write) == 0, "{after}");
        let renewals = after.of(|request| request.user == operator.user && request.is_write());
        ensure!(renewals > 0, "its Lease is not in the log: {after}");
        ensure!(
            env.api::<TaskRun>().get("a").await?.spec == spec,
            "the spec is its author's"
        );
        operator.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn each_child_is_logged_at_info_and_each_cache_at_debug() -> Result<()> {
    suite::test(Tier::Api, "logs", async |env| {
        let synced = |lines: &[Value]| -> Vec<String> {
            let synced = lines
                .iter()
                .filter(|line| line["message"] == "cache synced");
            synced.map(|line| line["resource"].to_string()).collect()
        };
        let operator = start(&env).await?;
        submit(&env).await?;
        says(&env, "Unschedulable", 10).await?;
        let said = lines(&operator)?;
        let owner = format!("{}/a", env.namespace);
        for (kind, name) in [("ConfigMap", "shop-7-v1-files"), ("Job", "shop-7-v1")] {
            let count = said.iter().filter(|line| {
                line["level"] == "INFO"
                    && line["message"] == format!("created {kind} '{name}'")
                    && line["target_kind"] == kind
                    && line["target_object"] == format!("{}/{name}", env.namespace)
                    && line["kind"] == "TaskRun"
                    && line["object"] == owner
            });
            ensure!(count.count() == 1, "{kind}: {said:?}");
        }
        ensure!(said.iter().all(|line| line["level"] != "DEBUG"), "{said:?}");
        ensure!(synced(&said).is_empty());
        operator.stop().await?;

        let verbose = Plan {
            config: "log: {filter: \"info,engine=debug\"}\n".to_owned(),
            ..plan(&env)
        };
        let operator = start_as(&env, &verbose).await?;
        until("a reconciliation", Duration::from_secs(20), async || {
            let said = lines(&operator)?;
            let is_it = |line: &Value| line["message"] == "reconciled" && line["object"] == owner;
            let found = said.iter().find(|line| is_it(line));
            Ok(found.map(drop).ok_or_else(|| format!("{said:?}")))
        })
        .await?;
        let said = lines(&operator)?;
        for resource in ["taskruns", "jobs", "pods", "configmaps"] {
            let all = synced(&said);
            ensure!(all.contains(&json!(resource).to_string()), "{all:?}");
        }
        ensure!(said.iter().any(|line| line["level"] == "DEBUG"));
        operator.stop().await
    })
    .await
}

/// Creates a finished run and its ConfigMap by hand. Returns the run's UID.
async fn finished<K>(env: &Env, run: &Value) -> Result<String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let runs: Api<K> = env.api();
    let run: K = serde_json::from_value(run.clone())?;
    let created = runs.create(&PostParams::default(), &run).await?;
    let (name, uid) = (created.name_any(), created.uid().context("no UID")?);
    let status = json!({ "status": { "phase": "Failed", "finishedAt": "2020-01-01T00:00:00Z" } });
    runs.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    let kind = K::kind(&());
    let files = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{name}-files"),
            "labels": api::names::child_labels(&kind, &name, &uid),
            "ownerReferences": [{
                "apiVersion": K::api_version(&()), "kind": kind, "name": name, "uid": uid,
                "controller": true,
            }],
        },
    }))?;
    let maps: Api<ConfigMap> = env.api();
    maps.create(&PostParams::default(), &files).await?;
    Ok(uid)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_clean_up_that_is_denied_is_shown_for_each_kind_of_run() -> Result<()> {
    suite::test(Tier::Api, "cleanup-denied", async |env| {
        operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let task = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": "task" },
            "spec": {
                "taskId": 7, "serviceName": "shop", "agentName": "a",
                "markdownFiles": [{ "filename": "a.md", "content": "a" }],
            },
        });
        let docs = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun", "metadata": { "name": "docs" },
            "spec": {
                "repositoryUrl": "https://git.example.com/team/shop", "sourceBranch": "main",
                "agentName": "a",
            },
        });
        let runs = [
            ("TaskRun", "task", finished::<TaskRun>(&env, &task).await?),
            ("DocsRun", "docs", finished::<DocsRun>(&env, &docs).await?),
        ];
        let permissions = api::tasks::OPERATOR.permissions.iter().copied().map(|mut known| {
            if known.resource == "configmaps" {
                let verbs = known.verbs.iter().copied().filter(|verb| *verb != "delete");
                known.verbs = Vec::leak(verbs.collect());
            }
            known
        });
        let plan = Plan {
            permissions: Vec::leak(permissions.collect()),
            ..plan(&env)
        };
        let operator = start_as(&env, &plan).await?;
        for (kind, name, uid) in runs {
            let words = format!("'delete configmaps' of '{name}-files'");
            let events: Api<Event> = env.api();
            until(kind, Duration::from_secs(10), async || {
                let events = events.list(&ListParams::default()).await?.items;
                let event = events.iter().find(|event| {
                    let regarding = event.regarding.as_ref().and_then(|one| one.uid.as_ref());
                    let note = event.note.as_deref().unwrap_or_default();
                    regarding == Some(&uid)
                        && event.reason.as_deref() == Some("Denied")
                        && event.type_.as_deref() == Some("Warning")
                        && note.contains(&words)
                });
                Ok(event.map(drop).ok_or_else(|| format!("{events:?}")))
            })
            .await?;
            let object = format!("{}/{name}", env.namespace);
            let is_it = |line: &Value| {
                let message = line["message"].as_str().unwrap_or_default();
                line["level"] == "WARN" && line["object"] == object && message.contains(&words)
            };
            let said = lines(&operator)?;
            ensure!(said.iter().any(is_it), "{kind}: {said:?}");
            let series =
                format!("orchestrator_reconcile_errors_total{{kind=\"{kind}\",class=\"Denied\"}}");
            ensure!(operator.metric(&series).await? >= 1.0, "{kind}: the metric");
        }
        operator.stop().await
    })
    .await
}
