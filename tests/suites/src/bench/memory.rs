//! What the tasks operator holds in memory.
//!
//! Thousands of finished runs are given the status of one that really ended: to let each of them run would take
//! hours. The operator reads them as it reads all others.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use api::{names, status::condition, tasks::TaskRun};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    operator::{Operator, Plan},
    suite::{Case, Env, When},
    wait::until,
};
use tokio::time::sleep;

use super::{AT_ONCE, start, task_run};
use crate::e2e::budget;

pub(super) struct Size {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) large: usize,
    pub(super) binary: PathBuf,
}

static SIZE: OnceLock<Size> = OnceLock::new();

const KIB: f64 = 1024.0;
/// A finished run may cost so much.
const PER_RUN_KIB: f64 = 3.0;
/// A restart may need so many times what the process needs later.
const RESTART: f64 = 1.5;
/// The whole process, with large files and large objects of others.
const PROCESS_MIB: f64 = 256.0;
/// A run beside them may take so many times as long.
const NEIGHBOR: f64 = 1.5;

/// The largest files that a run may have, and the largest ConfigMap.
const FILES: usize = 900 * 1024 - 64;
const CONFIG_MAP: usize = 1024 * 1024 - 1024;

/// Runs whose time is measured; the median counts.
const NEIGHBORS: usize = 5;
pub(super) async fn run(size: Size) -> Result<ExitCode> {
    ensure!(size.from < size.to, "'--from' must be less than '--to'");
    let has_large = size.large > 0;
    SIZE.get_or_init(|| size);
    let mut cases = vec![Case {
        name: "finished",
        shows: "memory per finished run, and at a restart",
        tier: Tier::Kwok,
        additions: &[],
        suite: "",
        when: When::Alone,
        limit: Duration::from_secs(3600),
        run: |env| finished(env).boxed(),
    }];
    if has_large {
        cases.push(Case {
            name: "large",
            shows: "suspended runs with large files, then large ConfigMaps with our labels",
            tier: Tier::Kwok,
            additions: &[],
            suite: "",
            when: When::Alone,
            limit: Duration::from_secs(3600),
            run: |env| large(env).boxed(),
        });
    }
    crate::cases::run("bench-memory", cases, &[], 1).await
}

async fn prepare(env: &Env) -> Result<(&'static Size, Plan)> {
    let size = SIZE.get().context("no size")?;
    let plan = budget::prepare(env, size.binary.clone()).await?;
    Ok((size, plan))
}

async fn finished(env: Env) -> Result<String> {
    let (size, plan) = prepare(&env).await?;
    let operator = start(&env, &plan).await?;
    budget::ready_agent(&env.api()).await?;
    time_of_run(&env, 0).await?;
    let runs: Api<TaskRun> = env.api();
    let like = runs.get("neighbor-0").await?;
    operator.stop().await?;

    finish(&env, &like, 0..size.from).await?;
    let operator = start(&env, &plan).await?;
    let few = settled(&operator).await?;
    operator.stop().await?;
    finish(&env, &like, size.from..size.to).await?;
    let operator = start(&env, &plan).await?;
    let many = settled(&operator).await?;
    let peak = operator.memory_mib("VmHWM")?;
    operator.stop().await?;

    let per_run = (many - few) * KIB / (size.to - size.from) as f64;
    let result = format!(
        "{} finished runs: {:.1} MiB; {}: {:.1} MiB, hence {per_run:.2} KiB per run; peak of the restart {:.1} MiB, {:.2} times as much",
        size.from,
        few,
        size.to,
        many,
        peak,
        peak / many
    );
    ensure!(
        per_run <= PER_RUN_KIB && peak <= RESTART * many,
        "over the budget of {PER_RUN_KIB} KiB and {RESTART} times: {result}"
    );
    Ok(result)
}

async fn large(env: Env) -> Result<String> {
    let (size, plan) = prepare(&env).await?;
    let mut operator = start(&env, &plan).await?;
    budget::ready_agent(&env.api()).await?;
    let mut watch = Neighbors::default();
    let normal = watch.time(&env).await?;
    let empty = settled(&operator).await?;

    suspended(&env, size.large).await?;
    let with_runs = settled(&operator).await?;
    let beside_runs = watch.time(&env).await?;
    config_maps(&env, size.large).await?;
    let with_maps = settled(&operator).await?;
    let beside_maps = watch.time(&env).await?;
    let peak = operator.memory_mib("VmHWM")?;
    let ended = operator.has_ended()?;
    ensure!(ended.is_none(), "the operator ended: {ended:?}");
    operator.stop().await?;

    let operator = start(&env, &plan).await?;
    settled(&operator).await?;
    let restarted = watch.time(&env).await?;
    let restart_peak = operator.memory_mib("VmHWM")?;
    operator.stop().await?;

    let result = format!(
        "{:.0} MiB without; {} suspended runs of 900 KiB: {:.0} MiB; as many ConfigMaps of 1 MiB: {:.0} MiB; peak {:.0} MiB, after a restart {:.0} MiB; a neighbor's run took {normal:.2} s, then {beside_runs:.2} s, {beside_maps:.2} s and {restarted:.2} s",
        empty, size.large, with_runs, with_maps, peak, restart_peak,
    );
    let slowest = beside_runs.max(beside_maps).max(restarted);
    ensure!(
        peak.max(restart_peak) <= PROCESS_MIB && slowest <= NEIGHBOR * normal,
        "over the budget of {PROCESS_MIB} MiB and {NEIGHBOR} times: {result}"
    );
    Ok(result)
}

/// Waits until nothing is queued for some seconds; returns the memory in MiB.
async fn settled(operator: &Operator) -> Result<f64> {
    until("an empty queue", Duration::from_secs(600), async || {
        for _ in 0..5 {
            let depth = operator
                .metric("orchestrator_queue_depth{kind=\"TaskRun\"}")
                .await?;
            if depth > 0.0 {
                return Ok(Err(format!("{depth} are queued")));
            }
            sleep(Duration::from_secs(1)).await;
        }
        Ok(Ok(()))
    })
    .await?;
    operator.memory_mib("VmRSS")
}

/// Text that is not the same in all runs.
fn text(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut state = seed as u64 + 1;
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(bytes);
    text
}

/// Creates runs as `kubectl apply` does, and gives them the end of `like`.
async fn finish(env: &Env, like: &TaskRun, numbers: std::ops::Range<usize>) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    let status = serde_json::to_string(&like.status)?;
    let old = like.name_any();
    let one = async |number: usize| -> Result<()> {
        let name = format!("finished-{number}");
        let files = json!([
            { "filename": "task.md", "content": text(2 * number, 4096) },
            { "filename": "more.md", "content": text(2 * number + 1, 4096) },
        ]);
        let mut run = task_run(&name, number + 1, &files, true);
        run["metadata"]["annotations"] =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": run.to_string() });
        let run: TaskRun = serde_json::from_value(run)?;
        let made = runs.create(&PostParams::default(), &run).await?;
        let status: Value = serde_json::from_str(&status.replace(&old, &name))?;
        let patch = PatchParams::default();
        let body = json!({ "status": status });
        runs.patch_status(&name, &patch, &Patch::Merge(body))
            .await?;
        let outcome = like
            .annotations()
            .get(names::OUTCOME)
            .context("the run that ended has no outcome")?
            .replace(
                &like.uid().unwrap_or_default(),
                &made.uid().unwrap_or_default(),
            );
        let body = json!({ "metadata": { "annotations": { names::OUTCOME: outcome } } });
        runs.patch(&name, &patch, &Patch::Merge(body)).await?;
        Ok(())
    };
    stream::iter(numbers)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Creates suspended runs with as many files as the API admits; the operator has seen all of them at the end.
async fn suspended(env: &Env, count: usize) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    let one = async |number: usize| -> Result<()> {
        let files = json!([{ "filename": "task.md", "content": text(number, FILES) }]);
        let run = task_run(&format!("large-{number}"), number + 1, &files, true);
        let run: TaskRun = serde_json::from_value(run)?;
        runs.create(&PostParams::default(), &run).await?;
        Ok(())
    };
    stream::iter(0..count)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let last = format!("large-{}", count.saturating_sub(1));
    until(
        "the last to be seen",
        Duration::from_secs(600),
        async || {
            let last = runs.get_status(&last).await?;
            let phase = last.status.and_then(|status| status.phase);
            Ok(match phase {
                Some(phase) => Ok(phase),
                None => Err("it has no phase".to_owned()),
            })
        },
    )
    .await?;
    Ok(())
}

/// What a user can do who may create ConfigMaps.
async fn config_maps(env: &Env, count: usize) -> Result<()> {
    let maps: Api<ConfigMap> = env.api();
    let one = async |number: usize| -> Result<()> {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {
                "name": format!("large-{number}"),
                "labels": { names::KIND: "TaskRun", names::UID: format!("none-{number}") },
            },
            "data": { "task.md": text(number, CONFIG_MAP) },
        }))?;
        maps.create(&PostParams::default(), &map).await?;
        Ok(())
    };
    stream::iter(0..count)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

#[derive(Default)]
struct Neighbors(usize);

impl Neighbors {
    /// The median time of some runs, one after the other, in seconds.
    async fn time(&mut self, env: &Env) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..NEIGHBORS {
            times.push(time_of_run(env, self.0).await?);
            self.0 += 1;
        }
        times.sort_by(f64::total_cmp);
        times.get(NEIGHBORS / 2).copied().context("no run")
    }
}

/// How long a run takes from its creation until it has succeeded, in seconds.
async fn time_of_run(env: &Env, number: usize) -> Result<f64> {
    let runs: Api<TaskRun> = env.api();
    let name = format!("neighbor-{number}");
    let files = json!([{ "filename": "task.md", "content": text(number, 4096) }]);
    let run: TaskRun = serde_json::from_value(task_run(&name, 100_000 + number, &files, false))?;
    let begin = Instant::now();
    runs.create(&PostParams::default(), &run).await?;
    until("a run to succeed", Duration::from_secs(120), async || {
        let run = runs.get(&name).await?;
        let has_outcome = run.annotations().contains_key(names::OUTCOME);
        let status = run.status.unwrap_or_default();
        Ok(
            if status.progress.is_true(condition::SUCCEEDED) && has_outcome {
                Ok(())
            } else {
                Err(format!("{:?}", status.progress.message))
            },
        )
    })
    .await?;
    Ok(begin.elapsed().as_secs_f64())
}
