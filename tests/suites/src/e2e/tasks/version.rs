//! Newer versions of a run's files.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{TaskRun, Version};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::suite::Env;
use tokio::time::Instant;

use super::{
    super::children::until_left,
    fixture::{Bench, COLLECTED, Expect, LIMIT, SHORT_LEASE, brief, phase_of},
};

/// The spec of version 2: one file more.
fn second() -> Value {
    json!({ "spec": {
        "contextVersion": 2,
        "markdownFiles": [
            { "filename": "task.md", "content": "the task\n" },
            { "filename": "more.md", "content": "and this\n" },
        ],
    }})
}

/// Waits for the success of a version; its history.
async fn succeeds(bench: &Bench, name: &str, version: i64) -> Result<(TaskRun, Vec<Version>)> {
    let what = format!("version {version} to succeed");
    let seen = bench
        .until(name, Duration::from_secs(90), &what, |status| {
            status.context_version == Some(version) && phase_of(status) == "Succeeded"
        })
        .await?;
    let jobs = bench.jobs_of(&seen).await?;
    let names: Vec<String> = jobs.iter().map(ResourceExt::name_any).collect();
    let status = seen.status.clone().unwrap_or_default();
    // Each version that was started keeps its Job until its retention ends. One that was superseded at once may
    // never have had a Pod.
    let of = |version: i64| format!("{name}-7-v{version}");
    let past = status.history.iter();
    let known: Vec<String> = past.clone().map(|past| of(past.context_version)).collect();
    let ran = past.filter(|past| past.result.is_some());
    let mut ran: Vec<String> = ran.map(|past| of(past.context_version)).collect();
    ran.push(of(version));
    let is_known = |job: &String| known.contains(job) || ran.contains(job);
    ensure!(
        names.iter().all(is_known) && ran.iter().all(|job| names.contains(job)),
        "S3.3: Jobs {names:?}, wanted {ran:?}"
    );
    let pods = bench.pods_of(&seen).await?.len();
    ensure!(
        (ran.len()..=names.len()).contains(&pods),
        "{pods} Pods: it ran more than once, or its Pod was deleted"
    );
    ensure!(
        status.attempts == 1 && status.disruptions == 0,
        "{}",
        brief(&status)
    );
    Ok((seen, status.history))
}

pub(super) async fn running(bench: &Bench) -> Result<String> {
    let script = "[ \"$ORCHESTRATOR_CONTEXT_VERSION\" = 2 ] && exit 0; trap 'echo told to stop; exit 143' TERM; sleep 600 & wait";
    bench.start("again", script).await?;
    bench.running("again").await?;
    bench.patch("again", second()).await?;
    let (seen, history) = succeeds(bench, "again", 2).await?;
    ensure!(
        history.len() == 1 && history[0].context_version == 1,
        "{history:?}"
    );
    ensure!(history[0].reason == "Superseded", "{history:?}");
    bench.log_of("again-7-v1", "told to stop").await?;
    bench.deletes(&seen).await?;
    Ok("version 1 was stopped and is in the history, version 2 succeeded".to_owned())
}

pub(super) async fn finished(bench: &Bench) -> Result<String> {
    let script = "echo \"version $ORCHESTRATOR_CONTEXT_VERSION\"; echo \"{\\\"version\\\": $ORCHESTRATOR_CONTEXT_VERSION}\" > /dev/termination-log; sleep 3; [ -e \"$ORCHESTRATOR_CONTEXT_DIR/more.md\" ] || [ \"$ORCHESTRATOR_CONTEXT_VERSION\" = 1 ]";
    bench.start("sequel", script).await?;
    let run = bench.ended("sequel", &Expect::default()).await?;
    let first = run.status.clone().unwrap_or_default();
    bench.patch("sequel", second()).await?;
    let held = bench.running("sequel").await?;
    ensure!(
        held.finalizers() == ["taskruns.orchestrator.io/finalizer"],
        "held again while it works"
    );
    let (seen, history) = succeeds(bench, "sequel", 2).await?;
    let [past] = history.as_slice() else {
        anyhow::bail!("{history:?}");
    };
    ensure!(
        past.context_version == 1 && past.phase == "Succeeded" && past.reason == "Succeeded",
        "{past:?}"
    );
    ensure!(
        past.result == first.result && Some(&past.finished_at) == first.finished_at.as_ref(),
        "its evidence and its time are kept: {past:?}"
    );
    let result = seen.status.clone().and_then(|status| status.attempt.result);
    ensure!(
        result.is_some_and(|result| result.results["version"] == "2"),
        "the result of version 2"
    );
    // Each version has a retention of its own.
    bench.log_of("sequel-7-v1", "version 1").await?;
    bench.log_of("sequel-7-v2", "version 2").await?;
    let keep = json!({ "spec": { "childTTL": { "succeeded": "1s" } } });
    bench.patch("sequel", keep).await?;
    until_left(&bench.env, &run, (0, 0, 0), COLLECTED).await?;
    bench.deletes(&seen).await?;
    Ok("version 1 is in the history with its evidence, version 2 succeeded".to_owned())
}

/// Adds one file as the docs say: server-side, one field manager per version, by force. Whoever
/// comes second to a version is refused, and takes the next one. How often it was refused.
async fn add(runs: Api<TaskRun>, name: &str, file: &str) -> Result<usize> {
    let mut refusals = 0;
    loop {
        let version = runs.get(name).await?.spec.context_version + 1;
        let patch = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": name },
            "spec": {
                "contextVersion": version,
                "markdownFiles": [{ "filename": file, "content": format!("of {file}\n") }],
            },
        });
        let params = PatchParams::apply(&format!("context-v{version}")).force();
        match runs.patch(name, &params, &Patch::Apply(patch)).await {
            Ok(_) => return Ok(refusals),
            Err(kube::Error::Api(status)) if status.code == 422 => refusals += 1,
            Err(error) => return Err(error.into()),
        }
        ensure!(refusals < 10, "refused {refusals} times");
    }
}

pub(super) async fn two_writers(bench: &Bench) -> Result<String> {
    let script = "cat \"$ORCHESTRATOR_CONTEXT_DIR\"/one.md \"$ORCHESTRATOR_CONTEXT_DIR\"/two.md || { trap 'exit 143' TERM; sleep 600 & wait; }";
    bench.start("shared", script).await?;
    bench.running("shared").await?;
    let (one, two) = tokio::join!(
        add(bench.runs(), "shared", "one.md"),
        add(bench.runs(), "shared", "two.md")
    );
    let refusals = one? + two?;
    let seen = bench.runs().get("shared").await?;
    let files: Vec<&str> = seen
        .spec
        .markdown_files
        .iter()
        .map(|file| file.filename.as_str())
        .collect();
    ensure!(
        ["task.md", "one.md", "two.md"]
            .iter()
            .all(|name| files.contains(name)),
        "{files:?}"
    );
    ensure!(
        seen.spec.context_version == 3,
        "{}",
        seen.spec.context_version
    );
    let (seen, history) = succeeds(bench, "shared", 3).await?;
    let versions: Vec<i64> = history.iter().map(|past| past.context_version).collect();
    ensure!(
        versions == [1, 2] || versions == [1],
        "a version that nobody saw is in no history: {versions:?}"
    );
    bench.deletes(&seen).await?;

    // The same version twice, for sure: the second is refused.
    bench.submit_as("taken", "shared", json!({})).await?;
    let apply = async |file: &str| {
        let patch = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": "taken" },
            "spec": { "contextVersion": 2, "markdownFiles": [{ "filename": file, "content": "" }] },
        });
        let params = PatchParams::apply("context-v2").force();
        bench
            .runs()
            .patch("taken", &params, &Patch::Apply(patch))
            .await
    };
    apply("one.md").await?;
    let error = apply("two.md").await.err().context("it was not refused")?;
    let error = error.to_string();
    ensure!(
        error.contains("higher 'contextVersion'") || error.contains("'one.md' is missing"),
        "{error}"
    );
    let run = bench.runs().get("taken").await?;
    bench.deletes(&run).await?;
    Ok(format!(
        "both files are there, {refusals} refusals; then {error}"
    ))
}

/// What is visible of a supersede, step by step.
const STEPS: [Step; 6] = [
    ("asked for", |_| true),
    ("in the history", |seen| seen.is_past),
    ("old Pod asked", |seen| seen.is_asked || seen.has_ended),
    ("old Job over", |seen| seen.has_ended),
    ("new Job there", |seen| seen.has_new),
    ("running", |seen| seen.is_running),
];

/// Its name, and whether it is reached.
type Step = (&'static str, fn(&Steps) -> bool);

struct Steps {
    is_past: bool,
    /// Whether the limit of the old Pod is set.
    is_asked: bool,
    /// Whether the old Job has ended.
    has_ended: bool,
    has_new: bool,
    is_running: bool,
}

async fn steps(bench: &Bench, name: &str) -> Result<Steps> {
    let jobs: Api<Job> = bench.env.api();
    let status = bench.runs().get(name).await?.status.unwrap_or_default();
    let is_past = status.context_version == Some(2);
    let old = jobs.get(&format!("{name}-7-v1")).await?;
    let conditions = old.status.and_then(|status| status.conditions);
    let pods: Api<Pod> = bench.env.api();
    let of_old = format!("batch.kubernetes.io/job-name={name}-7-v1");
    let pods = pods.list(&ListParams::default().labels(&of_old)).await?;
    let limit = |pod: &Pod| pod.spec.as_ref()?.active_deadline_seconds;
    Ok(Steps {
        is_past,
        is_asked: pods.items.iter().any(|pod| limit(pod) == Some(1)),
        has_ended: conditions.is_some_and(|all| {
            let mut all = all.iter();
            all.any(|one| one.type_ == "Failed" && one.status == "True")
        }),
        has_new: jobs.get_opt(&format!("{name}-7-v2")).await?.is_some(),
        is_running: is_past && phase_of(&status) == "Running",
    })
}

/// The operator is killed at each step of a supersede, and the next one finishes it.
pub(super) async fn killed(env: Env) -> Result<String> {
    let mut bench = Bench::configured(env, SHORT_LEASE).await?;
    let script = "[ \"$ORCHESTRATOR_CONTEXT_VERSION\" = 2 ] && exec sleep 2; trap 'sleep 1; exit 143' TERM; sleep 600 & wait";
    bench.agent("phoenix", script, json!({})).await?;
    let names: Vec<String> = (0..STEPS.len()).map(|step| format!("k{step}")).collect();
    for name in &names {
        bench.submit_as(name, "phoenix", json!({})).await?;
    }
    for name in &names {
        bench.running(name).await?;
    }
    for (name, (step, is_reached)) in names.iter().zip(STEPS) {
        bench.patch(name, second()).await?;
        let begin = Instant::now();
        while !is_reached(&steps(&bench, name).await?) {
            ensure!(begin.elapsed() < LIMIT, "{name} was never {step}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench = bench.killed().await?.up().await?;
    }
    for name in &names {
        let (seen, history) = succeeds(&bench, name, 2).await?;
        let [past] = history.as_slice() else {
            anyhow::bail!("{name}: {history:?}");
        };
        let pod = past
            .result
            .as_ref()
            .and_then(|result| result.pod_name.as_ref());
        ensure!(
            past.context_version == 1 && past.reason == "Superseded" && pod.is_some(),
            "{name}: {past:?}"
        );
        bench.deletes(&seen).await?;
    }
    bench.done().await?;
    Ok(format!(
        "killed at {} steps, each finished once",
        STEPS.len()
    ))
}
