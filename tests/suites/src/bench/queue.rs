//! Delay of a run while thousands of runs of another namespace are queued.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{Api, api::PostParams};
use serde_json::json;
use testkit::{
    cluster::Tier,
    operator::Operator,
    suite::{Case, Env, When},
    wait::until,
};
use tokio::time::sleep;

use super::{AT_ONCE, start, task_run};
use crate::e2e::budget;

pub(super) struct Size {
    pub(super) runs: usize,
    pub(super) binary: PathBuf,
}

static SIZE: OnceLock<Size> = OnceLock::new();

/// Limit of the delay, in seconds.
const DELAY: f64 = 2.0;
/// Runs of the other namespace whose start is measured, before and while the others are queued.
const PROBES: usize = 10;
/// Time between two requests for the state of a probe.
const POLL: Duration = Duration::from_millis(50);

pub(super) async fn run(size: Size) -> Result<ExitCode> {
    SIZE.get_or_init(|| size);
    let case = Case {
        name: "queue",
        shows: "delay of a run while runs of another namespace are queued",
        tier: Tier::Kwok,
        additions: &[],
        suite: "",
        when: When::Alone,
        limit: Duration::from_secs(1800),
        run: |env| delay(env).boxed(),
    };
    crate::cases::run("bench-queue", vec![case], &[], 1).await
}

async fn delay(env: Env) -> Result<String> {
    let size = SIZE.get().context("no size")?;
    let other = format!("{}-other", env.namespace);
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": other } }))?;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let mut plan = budget::prepare(&env, size.binary.clone()).await?;
    plan.watched.push(other.clone());
    let operator = start(&env, &plan).await?;
    budget::ready_agent(&env.api()).await?;
    budget::ready_agent(&Api::namespaced(env.client.clone(), &other)).await?;
    let probes = Probes {
        runs: Api::namespaced(env.client.clone(), &other),
        jobs: Api::namespaced(env.client.clone(), &other),
    };
    let mut calm = Vec::new();
    for number in 0..PROBES {
        calm.push(probes.time(number).await?);
    }
    calm.sort_by(f64::total_cmp);
    let median = *calm.get(PROBES / 2).context("no probe")?;
    operator.stop().await?;

    submit(&env, size.runs).await?;
    let operator = start(&env, &plan).await?;
    until(
        "the runs to be queued",
        Duration::from_secs(60),
        async || {
            let depth = depth(&operator).await?;
            Ok(if depth * 2.0 > size.runs as f64 {
                Ok(())
            } else {
                Err(format!("{depth} are queued"))
            })
        },
    )
    .await?;
    let first = depth(&operator).await?;
    let mut slowest: f64 = 0.0;
    for number in PROBES..2 * PROBES {
        slowest = slowest.max(probes.time(number).await?);
    }
    // If few were still queued, the probes had no competition and prove nothing.
    let last = depth(&operator).await?;
    operator.stop().await?;

    let delay = slowest - median;
    let result = format!(
        "calm, {PROBES} runs had a Job after {median:.2} s (median); with {first:.0} to {last:.0} queued runs of another namespace, the slowest of {PROBES} after {slowest:.2} s: {delay:.2} s later"
    );
    ensure!(
        last >= 1000.0 || size.runs < 2000,
        "too few were queued: {result}"
    );
    ensure!(delay < DELAY, "more than {DELAY} s: {result}");
    Ok(result)
}

async fn depth(operator: &Operator) -> Result<f64> {
    operator
        .metric("orchestrator_queue_depth{kind=\"TaskRun\"}")
        .await
}

/// Creates the runs of the full namespace.
async fn submit(env: &Env, count: usize) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    let one = async |number: usize| -> Result<()> {
        let files = json!([{ "filename": "task.md", "content": "Wait." }]);
        let run = task_run(&format!("queued-{number}"), number + 1, &files, false);
        let run: TaskRun = serde_json::from_value(run)?;
        runs.create(&PostParams::default(), &run).await?;
        Ok(())
    };
    stream::iter(0..count)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Runs of the other namespace.
struct Probes {
    runs: Api<TaskRun>,
    jobs: Api<Job>,
}

impl Probes {
    /// Returns the time from the creation of a run until its Job exists, in seconds.
    ///
    /// The status cannot show this: the operator records the Job when its Pod runs, or after 10 seconds, and the Job
    /// controller is busy with the Jobs of the queued runs.
    async fn time(&self, number: usize) -> Result<f64> {
        let id = number + 1;
        let files = json!([{ "filename": "task.md", "content": "Run." }]);
        let run = task_run(&format!("probe-{number}"), id, &files, false);
        let run: TaskRun = serde_json::from_value(run)?;
        let begin = Instant::now();
        self.runs.create(&PostParams::default(), &run).await?;
        until(
            "a run to have a Job",
            Duration::from_secs(300),
            async || {
                sleep(POLL).await;
                let job = self.jobs.get_opt(&format!("bench-{id}-v1")).await?;
                Ok(job.map(|_| ()).ok_or("no Job".to_owned()))
            },
        )
        .await?;
        Ok(begin.elapsed().as_secs_f64())
    }
}
