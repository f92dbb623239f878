//! Jobs that are suspended, cancelled, deleted, disrupted, or left alone by their operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::notebooks::NotebookValidationJob;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, EvictParams},
};
use serde_json::{Value, json};
use testkit::{git::Behaviour, suite::Env};

use super::fixture::{Bench, Expect, LIMIT, NOTEBOOK, brief, reason_of, sources};

const FINALIZER: &str = "notebookvalidationjobs.orchestrator.io/finalizer";

/// Cells that run for this time.
fn sleeping(seconds: u32) -> Vec<String> {
    vec![
        "1".to_owned(),
        format!("import time\ntime.sleep({seconds})"),
    ]
}

/// A state in which a job is interrupted.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The Git server does not respond.
    Asking,
    /// The image of the kernel does not exist.
    Starting,
    /// A cell runs.
    Running,
}

/// Each state, with the name of its job.
const STEPS: [(&str, Step); 3] = [
    ("asked", Step::Asking),
    ("starts", Step::Starting),
    ("runs", Step::Running),
];

/// Submits a job, and waits until it is in this state.
async fn held(
    bench: &Bench,
    name: &str,
    step: Step,
    seconds: u32,
) -> Result<NotebookValidationJob> {
    let cells = sleeping(seconds);
    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
    let repository = bench
        .repository(name, &[(NOTEBOOK, &sources(&cells))])
        .await?;
    match step {
        Step::Asking => {
            repository.set_behaviour(&Behaviour::Silent)?;
            bench.submit(name, json!({})).await?;
            bench
                .until(name, LIMIT, "asking", |status| {
                    status.commit.is_none() && status.progress.deadline_at.is_some()
                })
                .await
        }
        Step::Starting => {
            let config = super::fixture::pod(json!({ "containerImage": "localhost/absent:1" }));
            bench.submit(name, json!({ "podConfig": config })).await?;
            bench.says(name, "ImagePullFailed").await
        }
        Step::Running => {
            bench.submit(name, json!({})).await?;
            bench.running(name).await
        }
    }
}

fn cancelled(step: Step) -> Expect<'static> {
    let has_begun = !matches!(step, Step::Asking);
    Expect {
        attempts: u32::from(has_begun),
        jobs: usize::from(has_begun),
        ..Expect::failure("Cancelled")
    }
}

pub(super) async fn cancel(bench: &Bench) -> Result<String> {
    for (name, step) in STEPS {
        held(bench, name, step, 600).await?;
        bench.cancel(name).await?;
        bench.ended(name, &cancelled(step)).await.context(name)?;
        bench.stays_cancelled(name).await?;
    }
    Ok("while asking, starting and running".to_owned())
}

pub(super) async fn cancel_operator_down(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    held(&bench, "runs", Step::Running, 600).await?;
    let down = bench.stopped().await?;
    let cancel = kube::api::Patch::Merge(json!({ "spec": { "cancel": true } }));
    let params = kube::api::PatchParams::default();
    down.runs().patch("runs", &params, &cancel).await?;
    let bench = down.up().await?;
    bench.ended("runs", &cancelled(Step::Running)).await?;
    bench.done().await?;
    Ok("cancelled when the operator was back".to_owned())
}

/// Suspended time counts toward no deadline, and the attempt begins again.
pub(super) async fn suspend(bench: &Bench) -> Result<String> {
    for (name, step) in STEPS {
        let job = held(bench, name, step, 20).await?;
        bench.suspend(name).await?;
        let seen = bench
            .until(name, LIMIT, "suspended", |status| {
                reason_of(status) == "Suspended" && status.started_at.is_none()
            })
            .await
            .context(name)?;
        bench.is_at_rest(&seen)?;
        if !matches!(step, Step::Asking) {
            bench.is_held(&job).await?;
        }
    }
    bench
        .git
        .repository("asked")?
        .set_behaviour(&Behaviour::Normal)?;
    let expect = Expect::after(&["Suspended"]);
    for name in ["asked", "runs"] {
        bench.resume(name).await?;
        let job = bench.ended(name, &expect).await.context(name)?;
        let status = job.status.unwrap_or_default();
        ensure!(status.attempts == 1, "{name}: {} attempts", status.attempts);
    }
    Ok("while asking, starting and running".to_owned())
}

/// A job that is submitted suspended starts nothing.
pub(super) async fn suspended_before(bench: &Bench) -> Result<String> {
    let repository = bench
        .repository("early", &[(NOTEBOOK, &sources(&["1"]))])
        .await?;
    let job = bench.submit("early", json!({ "suspend": true })).await?;
    bench.says("early", "Suspended").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let visits = repository.activity()?.read_visits;
    ensure!(visits == 0, "{visits} requests to the Git server");
    ensure!(bench.jobs_of(&job).await?.is_empty(), "a Job");
    bench.resume("early").await?;
    let job = bench.ended("early", &Expect::after(&["Suspended"])).await?;
    Ok(brief(&job.status.unwrap_or_default()))
}

pub(super) async fn delete(bench: &Bench) -> Result<String> {
    for (name, step) in STEPS {
        let job = held(bench, name, step, 600).await?;
        if !matches!(step, Step::Asking) {
            ensure!(
                job.finalizers() == [FINALIZER],
                "{name}: {:?}",
                job.finalizers()
            );
        }
        bench.deletes(&job).await.context(name)?;
    }
    Ok("while asking, starting and running".to_owned())
}

pub(super) async fn delete_operator_down(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let job = held(&bench, "runs", Step::Running, 600).await?;
    let down = bench.stopped().await?;
    down.runs().delete("runs", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seen = down.runs().get("runs").await?;
    ensure!(seen.finalizers() == [FINALIZER], "it was not held");
    let bench = down.up().await?;
    bench.is_gone(&job, LIMIT).await?;
    bench.done().await?;
    Ok("held while the operator was down, deleted when it was back".to_owned())
}

/// A finished job and its result are deleted without an operator.
pub(super) async fn delete_finished(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.run("over", &["1"], json!({})).await?;
    let job = bench.ended("over", &Expect::default()).await?;
    ensure!(bench.maps_of(&job).await?.len() == 1, "no result");
    let down = bench.stopped().await?;
    down.runs().delete("over", &DeleteParams::default()).await?;
    let bench = down.up().await?;
    bench.is_gone(&job, LIMIT).await?;
    bench.done().await?;
    Ok("the garbage collector deleted the result".to_owned())
}

/// An evicted Pod uses no attempt, and the run repeats.
pub(super) async fn evicted(bench: &Bench) -> Result<String> {
    let job = held(bench, "evicted", Step::Running, 15).await?;
    let pod = bench.pod_of(&job)?;
    bench
        .env
        .api::<Pod>()
        .evict(&pod, &EvictParams::default())
        .await?;
    let expect = Expect {
        disruptions: 1,
        ..Expect::after(&["Disrupted"])
    };
    let job = bench.ended("evicted", &expect).await?;
    let status = job.status.unwrap_or_default();
    let second = status
        .result
        .as_ref()
        .and_then(|result| result.pod_name.clone());
    ensure!(
        second.as_ref().is_some_and(|second| *second != pod),
        "{second:?}"
    );
    Ok(brief(&status))
}

/// A Pod that someone deletes is a disruption, not a verdict.
pub(super) async fn pod_deleted(bench: &Bench) -> Result<String> {
    let job = held(bench, "deleted", Step::Running, 15).await?;
    let pod = bench.pod_of(&job)?;
    bench
        .env
        .api::<Pod>()
        .delete(&pod, &DeleteParams::default())
        .await?;
    let job = bench.finished("deleted", Duration::from_secs(200)).await?;
    let status = job.status.unwrap_or_default();
    ensure!(
        reason_of(&status) == "Succeeded" && status.disruptions == 1,
        "{}",
        brief(&status)
    );
    Ok(brief(&status))
}

/// The operator is killed while a cell runs, and another one leads when the notebook has ended.
pub(super) async fn killed(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    held(&bench, "killed", Step::Running, 20).await?;
    let down = bench.killed().await?;
    tokio::time::sleep(Duration::from_secs(25)).await;
    let bench = down.up().await?;
    let status = bench.succeeds("killed", &["2 cells ran"]).await?;
    let full = bench.full_result(&status).await?;
    ensure!(full["outcome"] == "Succeeded", "{full}");
    bench.done().await?;
    Ok(brief(&status))
}

/// The API server rejects the ConfigMap: the verdict stands, and the condition has the cause.
pub(super) async fn result_rejected(bench: &Bench) -> Result<String> {
    let hard = json!({ "hard": { "count/configmaps": "0" } });
    let quota = json!({ "metadata": { "name": "no-maps" }, "spec": hard });
    bench
        .env
        .create::<k8s_openapi::api::core::v1::ResourceQuota>(quota)
        .await?;
    bench.run("full", &["1"], json!({})).await?;
    let job = bench.finished("full", Duration::from_secs(250)).await?;
    let status = job.status.unwrap_or_default();
    ensure!(reason_of(&status) == "Succeeded", "{}", brief(&status));
    let stored = status
        .progress
        .condition("ResultsStored")
        .context("no condition")?;
    ensure!(
        stored.status == "False" && stored.message.contains("no-maps"),
        "{stored:?}"
    );
    ensure!(
        status
            .report
            .is_some_and(|report| report.config_map_name.is_none())
    );
    Ok(stored.message.clone())
}

/// A status of an earlier operator is no evidence: the job starts from the beginning (S4.2).
pub(super) async fn legacy(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench
        .repository("legacy", &[(NOTEBOOK, &sources(&["1"]))])
        .await?;
    let down = bench.stopped().await?;
    let mut said = Vec::new();
    for phase in ["Pending", "Running"] {
        let name = format!("legacy-{}", phase.to_lowercase());
        let git = super::fixture::source(&down.git, "legacy", "main");
        let spec = json!({
            "notebook": { "git": git, "path": NOTEBOOK }, "podConfig": super::fixture::pod(json!({})),
        });
        let job: Value = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
            "metadata": { "name": name }, "spec": spec,
        });
        down.env.create::<NotebookValidationJob>(job).await?;
        let condition = json!({
            "type": "Reconciling", "status": "True", "reason": "Progressing", "message": "an earlier operator",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let old = json!({ "status": {
            "phase": phase, "message": "an earlier operator", "commit": "0000", "image": "old", "jobName": "old",
            "attempts": 3, "observedGeneration": 1, "conditions": [condition],
        } });
        let params = kube::api::PatchParams::default();
        down.runs()
            .patch_status(&name, &params, &kube::api::Patch::Merge(old))
            .await?;
        said.push(name);
    }
    let bench = down.up().await?;
    for name in &said {
        let status = bench.succeeds(name, &["1 cells ran"]).await?;
        ensure!(
            status.commit == repository.head("main")?,
            "{:?}",
            status.commit
        );
        ensure!(status.attempts == 1, "{} attempts", status.attempts);
    }
    bench.done().await?;
    Ok("Pending and Running are reset".to_owned())
}
