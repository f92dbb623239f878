//! R07: the writes of a run, and the quiet after the last change.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::tasks::{TaskRun, TaskRunStatus};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::audit::{Entry, Request};

use super::{
    super::{
        children::until_left,
        events,
        fixture::{run_until, submit},
        tasks::Tasks,
        writes,
    },
    blocked::{Step, blocked, writer},
    fixture::{Bench, Expect, LIMIT, phase_of, reason_of},
};

/// Without a change for this long, nothing may be written.
const QUIET: Duration = Duration::from_secs(60);

/// What the operator wrote for one run from its creation to its end, in order.
fn writes(entries: &[Entry], user: &str) -> Vec<String> {
    let is_of_run = |request: &Request| {
        let of_others = ["leases", "events", "agents"];
        request.user == user
            && request.is_write()
            && !of_others
                .iter()
                .any(|other| request.resource.starts_with(other))
    };
    entries
        .iter()
        .filter(|entry| is_of_run(&entry.request))
        .map(|entry| {
            let resource = entry.request.resource.replace(".orchestrator.io", "");
            format!("{} {resource}", entry.request.verb)
        })
        .collect()
}

/// What can be pushed is recorded first, then the run is held, then its children are made; each
/// step is recorded once, and the finalizer goes with the outcome.
fn is_ordinary(writes: &[String]) -> bool {
    let head = [
        "patch docsruns/status",
        "patch docsruns",
        "create configmaps",
        "create jobs.batch",
    ];
    let Some((last, records)) = writes.get(head.len()..).and_then(<[_]>::split_last) else {
        return false;
    };
    writes[..head.len()] == head
        && last == "patch docsruns"
        // Job, clone, agent, publish, verify, end; a quick clone or push is not seen.
        && (4..=6).contains(&records.len())
        && records.iter().all(|record| record == "patch docsruns/status")
}

/// The writes of one ordinary DocsRun; then TaskRuns and DocsRuns in every state that lasts, and no
/// write about any of them for a minute.
pub(super) async fn quiet(bench: &Bench) -> Result<String> {
    let ordinary = ordinary(bench).await?;
    let docs = docs_runs(bench).await?;
    let tasks = task_runs(bench).await?;
    // Messages are written a few seconds later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let renewals = writes::quiet(&bench.env, &bench.operator, QUIET, 5).await?;
    let bugs = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Bug"}"#;
    ensure!(bench.operator.metric(bugs).await? < 0.5, "{bugs}");
    Ok(format!(
        "{ordinary}; then {docs} DocsRuns and {tasks} TaskRuns, 0 writes in {} s beside {renewals} renewals of the Lease",
        QUIET.as_secs()
    ))
}

/// The writes of one ordinary run.
async fn ordinary(bench: &Bench) -> Result<String> {
    let audit = bench.env.testbed("the audit log")?.audit();
    let user = bench.operator.user.clone();
    let repository = bench.repository("done").await?;
    bench.agent("done", &writer(1), json!({})).await?;
    let mark = audit.mark(&bench.env.client).await?;
    bench.submit("done", json!({})).await?;
    let done = bench
        .pushed("done", &repository, &Expect::default())
        .await?;
    let entries = audit.entries(&bench.env.client, mark).await?;
    let ordinary = writes(&entries, &user);
    let mut told = events::ours(&bench.env, &done.uid().unwrap_or_default()).await?;
    told.sort_by_key(|event| event.event_time.clone());
    let told: Vec<String> = told
        .into_iter()
        .map(|event| {
            format!(
                "{} {}",
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default()
            )
        })
        .collect();
    let again = entries
        .iter()
        .filter(|entry| entry.request.user == user && entry.code == 409)
        .count();
    ensure!(
        again == 0 && is_ordinary(&ordinary),
        "{again} refused; {ordinary:#?}, {told:#?}"
    );
    Ok(format!(
        "one run: {} writes ({}), {} Events",
        ordinary.len(),
        ordinary.join(", "),
        told.len()
    ))
}

/// DocsRuns that wait, run, are suspended, or have ended; how many there are.
async fn docs_runs(bench: &Bench) -> Result<usize> {
    let never = json!({ "repositoryUrl": "https://198.18.0.1:1/none.git" });
    blocked(bench, "agentless", Step::Agentless).await?;
    blocked(bench, "unanswered", Step::Asking).await?;
    blocked(bench, "unread", Step::Verifying).await?;
    blocked(bench, "written", Step::Writing(600)).await?;
    blocked(bench, "paused", Step::Writing(600)).await?;
    bench.suspend("paused").await?;
    bench.agent("unreachable", "true", json!({})).await?;
    bench.agent("bad", "exit 3", json!({})).await?;
    bench.submit("unreachable", never).await?;
    let url = bench.git.https_url("done");
    bench.submit("bad", json!({ "repositoryUrl": url })).await?;
    bench.ended("bad", &Expect::failure("NonZeroExit")).await?;
    for name in ["unanswered", "unreachable"] {
        bench.says(name, "RepositoryUnreachable").await?;
    }
    bench.rests("paused", "runs nothing").await?;
    Ok(bench.runs().list(&Default::default()).await?.items.len())
}

/// TaskRuns that wait, run, or have ended and are cleaned up; how many there are.
async fn task_runs(bench: &Bench) -> Result<usize> {
    bench.agent("task-done", "sleep 3", json!({})).await?;
    bench
        .agent("task-runs", "exec sleep 600", json!({}))
        .await?;
    let nowhere = json!({ "nodeSelector": { "disk": "golden" } });
    bench.agent("task-waits", "true", nowhere).await?;
    let keep = json!({ "childTTL": { "succeeded": "1s" } });
    submit::<Tasks>(&bench.env, &(), "task-done", keep).await?;
    for name in ["task-runs", "task-waits", "task-agentless"] {
        submit::<Tasks>(&bench.env, &(), name, json!({})).await?;
    }
    let done = task_until(bench, "task-done", |status| phase_of(status) == "Succeeded").await?;
    until_left(&bench.env, &done, (0, 0, 0), LIMIT).await?;
    task_until(bench, "task-runs", |status| phase_of(status) == "Running").await?;
    for (name, reason) in [
        ("task-waits", "Unschedulable"),
        ("task-agentless", "AgentNotFound"),
    ] {
        task_until(bench, name, |status| {
            phase_of(status) == "Pending" && reason_of(status) == reason
        })
        .await?;
    }
    let series = r#"orchestrator_runs_active{kind="TaskRun",phase="Running"}"#;
    ensure!(bench.operator.metric(series).await? >= 1.0, "{series}");
    let runs: Api<TaskRun> = bench.env.api();
    Ok(runs.list(&Default::default()).await?.items.len())
}

async fn task_until(
    bench: &Bench,
    name: &str,
    is_wanted: impl Fn(&TaskRunStatus) -> bool,
) -> Result<TaskRun> {
    let (env, home) = (&bench.env, &bench.plan.home);
    Box::pin(run_until::<Tasks>(
        env,
        home,
        name,
        ("a TaskRun", LIMIT),
        is_wanted,
    ))
    .await
}
