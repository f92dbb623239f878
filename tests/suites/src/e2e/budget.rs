//! `cargo xtask e2e budget`: what a run costs the API server, by its own audit log.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use api::{
    status::condition,
    tasks::{Agent, TaskRun},
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::Entry,
    cluster::Tier,
    operator::{self, Operator, Plan},
    suite::{self, Case, Env, When},
    wait::{met, until},
};
use tokio::time::sleep;

use super::writes;

pub(super) const RUNS: usize = 500;
/// Slower than the Job controller and the fake kubelet can follow on two cores: a Pod that starts
/// late is a state of its own, and costs the write that says so.
const PACE: Duration = Duration::from_millis(80);
const QUIET: Duration = Duration::from_secs(60);

/// What a run may cost.
const WRITES: usize = 6;
const EVENTS: usize = 3;
const DELETES: usize = 2;

pub(super) async fn run() -> Result<ExitCode> {
    let case = Case {
        name: "budget",
        shows: "500 runs: writes, Events, deletes, reads and conflicts per run; then quiet",
        tier: Tier::Kwok,
        additions: &[],
        suite: "",
        when: When::Alone,
        limit: Duration::from_secs(420),
        run: |env| budget(env).boxed(),
    };
    crate::cases::run("e2e-budget", vec![case], &[], 1).await
}

/// Installs the CRDs; returns how an operator is started that cleans up at once.
pub(crate) async fn prepare(env: &Env, binary: PathBuf) -> Result<Plan> {
    operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
    Ok(Plan {
        watched: vec![env.namespace.clone()],
        config: "tasks: {cleanup: {completedJobDelayMinutes: 0}}".to_owned(),
        ..Plan::new(binary, &api::tasks::OPERATOR, &env.namespace)
    })
}

async fn budget(env: Env) -> Result<String> {
    let plan = prepare(&env, operator::built()?).await?;
    let operator = Operator::start(&env.client, &env.config, &plan).await?;
    ready_agent(&env.api()).await?;

    let cluster = env.testbed("the audit log")?;
    let audit = cluster.audit();
    let mark = audit.mark(&env.client).await?;
    let start = Instant::now();
    submit(&env).await?;
    finished(&env).await?;
    let took = start.elapsed();
    cleaned(&env).await?;
    let entries = audit.entries(&env.client, mark).await?;
    let cost = Cost::of(
        entries
            .iter()
            .filter(|entry| entry.request.user == operator.user),
    );
    cost.check()?;

    writes::quiet(&env, &operator, QUIET, 5).await?;
    operator.stop().await?;
    Ok(format!(
        "{cost}; {RUNS} runs in {:.0} s; then {} s without a write",
        took.as_secs_f64(),
        QUIET.as_secs()
    ))
}

pub(crate) async fn ready_agent(agents: &Api<Agent>) -> Result<()> {
    let agent = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
        "metadata": { "name": "budget" }, "spec": { "image": "none:1" },
    });
    until_ready(agents, agent).await
}

/// Creates an Agent, and waits until it is ready.
pub(crate) async fn until_ready(agents: &Api<Agent>, agent: Value) -> Result<()> {
    let name = suite::create(agents, agent).await?.name_any();
    let limit = Duration::from_secs(20);
    until("the Agent to be Ready", limit, async || {
        let status = agents.get(&name).await?.status.unwrap_or_default();
        Ok(met(status.progress.is_true(condition::READY), || {
            format!("{:?}", status.progress.message)
        }))
    })
    .await
}

pub(super) async fn submit(env: &Env) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    let text = "0123456789abcdef".repeat(256);
    stream::iter(1..=RUNS)
        .then(async |index| {
            sleep(PACE).await;
            let run: TaskRun = serde_json::from_value(json!({
                "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
                "metadata": { "name": format!("budget-{index}") },
                "spec": {
                    "taskId": index, "serviceName": "budget", "agentName": "budget",
                    "markdownFiles": [
                        { "filename": "task.md", "content": text },
                        { "filename": "more.md", "content": text },
                    ],
                },
            }))?;
            runs.create(&PostParams::default(), &run).await?;
            anyhow::Ok(())
        })
        .try_collect::<()>()
        .await
}

pub(super) async fn finished(env: &Env) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    until(
        "all runs to succeed",
        Duration::from_secs(180),
        async || {
            sleep(Duration::from_secs(1)).await; // a list of 500 is not free
            let list = runs.list(&ListParams::default()).await?.items;
            let succeeded = |run: &&TaskRun| {
                let status = run.status.as_ref();
                status.is_some_and(|status| status.progress.is_true(condition::SUCCEEDED))
                    && run.metadata.finalizers.is_none()
            };
            let done = list.iter().filter(succeeded).count();
            Ok(met(done == RUNS, || format!("{done}")))
        },
    )
    .await
}

/// Jobs and ConfigMaps are gone: the deletes count, too.
pub(super) async fn cleaned(env: &Env) -> Result<()> {
    let (jobs, maps): (Api<Job>, Api<ConfigMap>) = (env.api(), env.api());
    let ours = ListParams::default().labels(&[api::names::KIND, "=TaskRun"].concat());
    until(
        "the children to be gone",
        Duration::from_secs(120),
        async || {
            sleep(Duration::from_secs(1)).await;
            let left = jobs.list(&ours).await?.items.len() + maps.list(&ours).await?.items.len();
            Ok(met(left == 0, || format!("{left} are left")))
        },
    )
    .await
}

/// Deletes all runs and waits until they are gone.
pub(super) async fn remove(env: &Env) -> Result<()> {
    let runs: Api<TaskRun> = env.api();
    let every = ListParams::default();
    runs.delete_collection(&DeleteParams::default(), &every)
        .await?;
    until("the runs to be gone", Duration::from_secs(60), async || {
        let left = runs.list(&every).await?.items.len();
        Ok(met(left == 0, || format!("{left} are left")))
    })
    .await
}

/// What the operator asked of the API server for all runs, Lease renewals left out.
#[derive(Debug, Default)]
struct Cost {
    /// Writes about each run itself; each run has one Job and one ConfigMap more.
    of_run: BTreeMap<String, usize>,
    created: BTreeMap<String, usize>,
    writes: usize,
    events: usize,
    deletes: usize,
    reads: usize,
    conflicts: usize,
}

impl Cost {
    fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let mut cost = Self::default();
        for entry in entries {
            let resource = entry.request.resource.as_str();
            // Neither the Lease nor the CRDs, which the process checks twice a minute, are about a run.
            let is_of_process =
                resource.starts_with("leases") || resource.starts_with("customresourcedefinitions");
            if is_of_process || entry.request.verb == "watch" {
                continue;
            }
            cost.conflicts += usize::from(entry.code == 409);
            match entry.request.verb.as_str() {
                "get" | "list" => cost.reads += 1,
                "delete" => cost.deletes += 1,
                "create" if resource.starts_with("events") => cost.events += 1,
                verb => {
                    cost.writes += 1;
                    if resource.starts_with("taskruns") {
                        *cost.of_run.entry(entry.name.clone()).or_default() += 1;
                    } else if verb == "create" {
                        *cost.created.entry(resource.to_owned()).or_default() += 1;
                    }
                }
            }
        }
        cost
    }

    /// The most writes that one run cost.
    fn most(&self) -> usize {
        self.of_run.values().max().map_or(0, |most| most + 2)
    }

    fn check(&self) -> Result<()> {
        let each = BTreeMap::from([
            ("configmaps".to_owned(), RUNS),
            ("jobs.batch".to_owned(), RUNS),
        ]);
        ensure!(
            self.created == each,
            "one of each per run: {:?}",
            self.created
        );
        ensure!(
            self.of_run.len() == RUNS,
            "writes to {} runs",
            self.of_run.len()
        );
        ensure!(
            self.writes > 4 * RUNS && self.events > RUNS && self.deletes > RUNS,
            "the log does not show what was done: {self}"
        );
        ensure!(
            self.most() <= WRITES
                && self.events <= EVENTS * RUNS
                && self.deletes <= DELETES * RUNS
                && self.reads == 0
                && self.conflicts == 0,
            "over the budget: {self}"
        );
        Ok(())
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_run = |count: usize| count as f64 / RUNS as f64;
        write!(
            out,
            "per run {:.2} writes (at most {}), {:.2} Events, {:.2} deletes; {} GET and LIST, {} conflicts",
            per_run(self.writes),
            self.most(),
            per_run(self.events),
            per_run(self.deletes),
            self.reads,
            self.conflicts
        )
    }
}
