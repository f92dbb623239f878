//! What the cases of TaskRuns have in common.

use std::{collections::BTreeSet, time::Duration};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::{
    names,
    status::condition,
    tasks::{Agent, TaskRun, TaskRunStatus},
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    operator::{self, Operator, Plan},
    suite::Env,
    wait::until,
};

pub(super) use super::super::{
    children,
    reading::{brief, phase_of, reason_of, says_all},
};
use super::super::{
    events, merge,
    reading::{freed, is_current, sane},
    status_history::StatusHistory,
    why,
};

/// The image of most agents.
pub(super) const BUSYBOX: &str = "testbed.local/busybox:1";

/// Long enough for a container to start and to end on a machine with much to do.
pub(super) const LIMIT: Duration = Duration::from_secs(45);
/// For the garbage collector, also when it has just heard of our kinds.
pub(super) const COLLECTED: Duration = Duration::from_secs(120);

/// The Lease of an operator that was killed expires soon.
pub(super) const SHORT_LEASE: &str =
    "leaderElection: { leaseDurationSeconds: 4, renewSeconds: 1 }\n";

/// A program that runs for this long, and ends at once when it is told to.
pub(super) fn busy(seconds: u32) -> String {
    format!("trap 'exit 143' TERM; sleep {seconds} & wait")
}

/// A program that runs until the time that [`lasts`] gives its run; started later, it is done at once.
pub(super) const UNTIL: &str = r#"trap 'exit 143' TERM
end=$(cat "$ORCHESTRATOR_CONTEXT_DIR/end")
while [ $(date +%s) -lt $end ]; do sleep 0.2; done
sleep 3"#;

/// The files of a run of [`UNTIL`]: so long from its Agent's creation.
pub(super) fn lasts(agent: &Agent, seconds: i64) -> Value {
    let created = agent.metadata.creation_timestamp.as_ref();
    let end = created.map_or(0, |time| time.0.as_second()) + seconds;
    json!({ "markdownFiles": [{ "filename": "end", "content": end.to_string() }] })
}

/// A case's place: its namespace, and an operator that watches it.
pub(super) struct Bench {
    pub(super) env: Env,
    pub(super) operator: Operator,
    pub(super) plan: Plan,
    history: StatusHistory,
}

/// The same with no operator at work.
pub(super) struct Down {
    pub(super) env: Env,
    pub(super) plan: Plan,
    history: StatusHistory,
}

impl Down {
    /// Starts an operator, perhaps with another plan than before.
    pub(super) async fn up(self) -> Result<Bench> {
        let Self { env, plan, history } = self;
        let operator = Operator::start(&env.client, &env.config, &plan).await?;
        Ok(Bench {
            env,
            operator,
            plan,
            history,
        })
    }

    pub(super) fn runs(&self) -> Api<TaskRun> {
        self.env.api()
    }
}

/// How a run must end.
pub(super) struct Expect<'a> {
    pub(super) phase: &'a str,
    pub(super) reason: &'a str,
    /// What its message must say.
    pub(super) says: &'a [&'a str],
    /// The reasons of its Events, no more and no fewer; each may have come in several phases.
    pub(super) events: &'a [&'a str],
    /// Those that may be there, too.
    pub(super) maybe: &'a [&'a str],
    pub(super) attempts: u32,
    pub(super) disruptions: u32,
    /// How many Jobs are there at the end.
    pub(super) jobs: usize,
    /// The reason in its evidence where it is not the run's; empty where there is none.
    pub(super) evidence: Option<&'a str>,
    pub(super) within: Duration,
}

impl Default for Expect<'_> {
    fn default() -> Self {
        Self {
            phase: "Succeeded",
            reason: "Succeeded",
            says: &[],
            // A container that ends before the kubelet looked at it is never seen to run: agents that must be
            // seen take three seconds.
            events: &["Running", "Succeeded"],
            // A start that takes long is told; a quick one is not.
            maybe: &["Pending"],
            attempts: 1,
            disruptions: 0,
            jobs: 1,
            evidence: None,
            within: Duration::from_secs(60),
        }
    }
}

impl Bench {
    /// With an operator that watches the case's namespace.
    pub(super) async fn new(env: Env) -> Result<Self> {
        Self::configured(env, "").await
    }

    /// With more lines in the operator's configuration.
    pub(super) async fn configured(env: Env, config: &str) -> Result<Self> {
        let watched = vec![env.namespace.clone()];
        Self::start(env, watched, config).await
    }

    /// With an operator that watches other namespaces.
    pub(super) async fn watching(env: Env, watched: Vec<String>) -> Result<Self> {
        Self::start(env, watched, "").await
    }

    async fn start(env: Env, watched: Vec<String>, config: &str) -> Result<Self> {
        operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let history = StatusHistory::new(&env.client, &watched).await?;
        let binary = testkit::process::this_program()?;
        let folder = binary.parent().context("this program is in no folder")?;
        let plan = Plan {
            binary: operator::built(folder)?,
            operator: "tasks",
            home: env.namespace.clone(),
            watched,
            config: config.to_owned(),
            permissions: api::tasks::OPERATOR.permissions,
            network: None,
            endpoint: None,
            environment: Vec::new(),
        };
        Down { env, plan, history }.up().await
    }

    /// Asks the operator to stop.
    pub(super) async fn stopped(self) -> Result<Down> {
        let (operator, down) = self.without_operator();
        operator.stop().await?;
        Ok(down)
    }

    /// Kills the operator. The next one waits until its Lease is over.
    pub(super) async fn killed(self) -> Result<Down> {
        let (operator, down) = self.without_operator();
        operator.kill().await?;
        Ok(down)
    }

    fn without_operator(self) -> (Operator, Down) {
        let Self {
            env,
            operator,
            plan,
            history,
        } = self;
        (operator, Down { env, plan, history })
    }

    /// Another operator of the same installation.
    pub(super) async fn another(&self) -> Result<Operator> {
        Operator::start(&self.env.client, &self.env.config, &self.plan).await
    }

    pub(super) fn runs(&self) -> Api<TaskRun> {
        self.env.api()
    }

    /// An agent that runs a script; `more` is merged into its spec.
    pub(super) async fn agent(&self, name: &str, script: &str, more: Value) -> Result<Agent> {
        self.agent_in(&self.env.namespace, name, script, more).await
    }

    pub(super) async fn agent_in(
        &self,
        namespace: &str,
        name: &str,
        script: &str,
        more: Value,
    ) -> Result<Agent> {
        let mut spec = json!({
            "image": BUSYBOX,
            "command": ["/bin/sh", "-c", script],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } },
        });
        merge(&mut spec, more);
        let agent: Agent = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
            "metadata": { "name": name }, "spec": spec,
        }))?;
        let agents: Api<Agent> = Api::namespaced(self.env.client.clone(), namespace);
        Ok(agents.create(&PostParams::default(), &agent).await?)
    }

    /// A run of agent `agent`, of the same name; `more` is merged into its spec.
    pub(super) async fn submit(&self, agent: &str, more: Value) -> Result<TaskRun> {
        self.submit_in(&self.env.namespace, agent, more).await
    }

    /// A run of another name than its agent's.
    pub(super) async fn submit_as(&self, name: &str, agent: &str, more: Value) -> Result<TaskRun> {
        let mut spec = json!({ "serviceName": name, "agentName": agent });
        merge(&mut spec, more);
        self.submit(name, spec).await
    }

    /// Merges `patch` into a run.
    pub(super) async fn patch(&self, name: &str, patch: Value) -> Result<TaskRun> {
        let params = PatchParams::default();
        Ok(self
            .runs()
            .patch(name, &params, &Patch::Merge(patch))
            .await?)
    }

    /// The same, which the API server must refuse with these words.
    pub(super) async fn refuses(&self, name: &str, patch: Value, says: &str) -> Result<()> {
        let refused = self.patch(name, patch).await;
        let error = refused.err().context("it was not refused")?.to_string();
        ensure!(error.contains(says), "'{says}' is not in '{error}'");
        Ok(())
    }

    /// Waits until the agent of a run runs.
    pub(super) async fn running(&self, name: &str) -> Result<TaskRun> {
        self.until(name, LIMIT, "running", |status| {
            phase_of(status) == "Running"
        })
        .await
    }

    pub(super) async fn jobs_of(&self, run: &TaskRun) -> Result<Vec<Job>> {
        let uid = run.uid().unwrap_or_default();
        Ok(self.env.api::<Job>().list(&children(&uid)).await?.items)
    }

    pub(super) async fn pods_of(&self, run: &TaskRun) -> Result<Vec<Pod>> {
        let uid = run.uid().unwrap_or_default();
        Ok(self.env.api::<Pod>().list(&children(&uid)).await?.items)
    }

    pub(super) async fn maps_of(&self, run: &TaskRun) -> Result<Vec<ConfigMap>> {
        let uid = run.uid().unwrap_or_default();
        let maps: Api<ConfigMap> = self.env.api();
        Ok(maps.list(&children(&uid)).await?.items)
    }

    /// The children of a run are of these numbers, and stay so for a while.
    pub(super) async fn stays_at(
        &self,
        run: &TaskRun,
        (jobs, pods): (usize, usize),
        time: Duration,
    ) -> Result<()> {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            let seen = (
                self.jobs_of(run).await?.len(),
                self.pods_of(run).await?.len(),
            );
            ensure!(
                seen == (jobs, pods),
                "{}: {seen:?} Jobs and Pods, wanted {jobs} and {pods}",
                run.name_any()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    pub(super) async fn submit_in(
        &self,
        namespace: &str,
        agent: &str,
        more: Value,
    ) -> Result<TaskRun> {
        let mut spec = json!({
            "taskId": 7, "serviceName": agent, "agentName": agent,
            "markdownFiles": [{ "filename": "task.md", "content": "the task\n" }],
        });
        merge(&mut spec, more);
        let run: TaskRun = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": agent }, "spec": spec,
        }))?;
        let runs: Api<TaskRun> = Api::namespaced(self.env.client.clone(), namespace);
        Ok(runs.create(&PostParams::default(), &run).await?)
    }

    /// Waits until a run looks as wanted; what is seen on the way must be sane, and `orc why` must
    /// name what is wrong in the end.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&TaskRunStatus) -> bool,
    ) -> Result<TaskRun> {
        let runs = self.runs();
        let seen = until(&format!("{name}: {what}"), within, async || {
            let seen = runs.get(name).await?;
            sane(seen.status.as_ref(), seen.metadata.generation)?;
            let status = seen.status.clone().unwrap_or_default();
            let is_current = is_current(&status, seen.metadata.generation);
            Ok(if is_current && wanted(&status) {
                Ok(seen)
            } else {
                Err(brief(&status))
            })
        })
        .await?;
        let status = seen.status.clone().unwrap_or_default();
        why::ask(
            &self.env.client,
            TargetKind::TaskRun,
            (&self.env.namespace, name),
            &self.plan.home,
            reason_of(&status),
        )
        .await?;
        Ok(seen)
    }

    /// While a run waits, it says why within 10 s.
    pub(super) async fn waits_for(&self, name: &str, reason: &str, says: &[&str]) -> Result<()> {
        let within = Duration::from_secs(10);
        let seen = self
            .until(name, within, reason, |status| reason_of(status) == reason)
            .await?;
        let status = seen.status.clone().unwrap_or_default();
        ensure!(phase_of(&status) == "Pending", "{}", brief(&status));
        says_all(&status, says)
    }

    /// Waits for the end of a run and looks at everything that it leaves: status, conditions,
    /// Events, metric, children; then deletes it and looks at what is left.
    pub(super) async fn ends(&self, name: &str, expect: Expect<'_>) -> Result<String> {
        let seen = self.ended(name, &expect).await?;
        self.deletes(&seen).await?;
        let status = seen.status.unwrap_or_default();
        Ok(brief(&status))
    }

    /// The same without the deletion.
    pub(super) async fn ended(&self, name: &str, expect: &Expect<'_>) -> Result<TaskRun> {
        let seen = self
            .until(name, expect.within, "finished", |status| {
                status.progress.is_true(condition::FINISHED)
            })
            .await?;
        let uid = seen.uid().unwrap_or_default();
        let status = seen.status.clone().unwrap_or_default();
        let Expect {
            phase,
            reason,
            says,
            events,
            maybe,
            attempts,
            disruptions,
            jobs,
            evidence,
            within: _,
        } = expect;
        ensure!(
            phase_of(&status) == *phase && reason_of(&status) == *reason,
            "{}",
            brief(&status)
        );
        says_all(&status, says)?;
        ensure!(status.attempts == *attempts, "{} attempts", status.attempts);
        ensure!(
            status.disruptions == *disruptions,
            "{} disruptions",
            status.disruptions
        );
        ensure!(
            status.finished_at.is_some() && status.progress.deadline_at.is_none(),
            "times of an end"
        );
        let value = status
            .progress
            .condition(condition::SUCCEEDED)
            .map(|one| one.status.as_str());
        ensure!(
            value
                == Some(if *phase == "Succeeded" {
                    "True"
                } else {
                    "False"
                }),
            "{value:?}"
        );
        let known = status
            .result
            .as_ref()
            .map_or("", |result| result.reason.as_deref().unwrap_or("no reason"));
        ensure!(known == evidence.unwrap_or(reason), "{:?}", status.result);

        let freed = freed(&self.runs(), name).await?;
        let outcome = freed
            .annotations()
            .get(names::OUTCOME)
            .context("no outcome annotation")?;
        let outcome: Value = serde_json::from_str(outcome)?;
        ensure!(
            outcome["outcome"] == *phase && outcome["uid"] == uid,
            "{outcome}"
        );

        let mut told: BTreeSet<String> = self.events(&uid).await?.into_iter().collect();
        told.retain(|reason| {
            events.contains(&reason.as_str()) || !maybe.contains(&reason.as_str())
        });
        let wanted: BTreeSet<String> = events.iter().map(|reason| (*reason).to_owned()).collect();
        ensure!(told == wanted, "Events {told:?}, wanted {wanted:?}");
        let series = format!(
            r#"orchestrator_runs_total{{kind="TaskRun",outcome="{phase}",reason="{reason}"}}"#
        );
        ensure!(
            self.operator.metric(&series).await? >= 1.0,
            "{series} did not move"
        );

        let made: Api<Job> = self.env.api();
        let made = made.list(&children(&uid)).await?.items;
        ensure!(made.len() == *jobs, "{} Jobs, wanted {jobs}", made.len());
        for job in &made {
            let owner = job
                .owner_references()
                .first()
                .context("a Job without an owner")?;
            ensure!(
                owner.uid == uid && owner.controller == Some(true),
                "R10: {owner:?}"
            );
        }
        Ok(freed)
    }

    /// Deletes a run; it and its children go. The garbage collector hears of a kind that is new
    /// after half a minute, and tries again what it met before in growing pauses.
    pub(super) async fn deletes(&self, run: &TaskRun) -> Result<()> {
        self.runs()
            .delete(&run.name_any(), &DeleteParams::default())
            .await?;
        self.is_gone(run, COLLECTED).await
    }

    /// The run and everything with its UID is gone.
    pub(super) async fn is_gone(&self, run: &TaskRun, within: Duration) -> Result<()> {
        let (name, uid) = (run.name_any(), run.uid().unwrap_or_default());
        let namespace = run.namespace().unwrap_or_default();
        let client = &self.env.client;
        let runs: Api<TaskRun> = Api::namespaced(client.clone(), &namespace);
        let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        until(
            &format!("{name} and its children to be gone"),
            within,
            async || {
                let children = children(&uid);
                let left = [
                    (
                        "runs",
                        usize::from(
                            runs.get_opt(&name)
                                .await?
                                .is_some_and(|seen| seen.uid() == run.uid()),
                        ),
                    ),
                    ("Jobs", jobs.list(&children).await?.items.len()),
                    ("Pods", pods.list(&children).await?.items.len()),
                    ("ConfigMaps", maps.list(&children).await?.items.len()),
                ];
                let is_clean = left.iter().all(|(_, count)| *count == 0);
                Ok(if is_clean {
                    Ok(())
                } else {
                    Err(format!("{left:?}"))
                })
            },
        )
        .await
    }

    /// What the Events of one reason say about an object.
    pub(super) async fn notes(&self, run: &TaskRun, reason: &str) -> Result<String> {
        let events = events::ours(&self.env, &run.uid().unwrap_or_default()).await?;
        let notes = events.into_iter().filter_map(|event| {
            let is_it = event.reason.as_deref() == Some(reason);
            event.note.filter(|_| is_it)
        });
        Ok(notes.collect::<Vec<String>>().join("; "))
    }

    /// The reasons of the Events about an object; each transition once.
    pub(super) async fn events(&self, uid: &str) -> Result<Vec<String>> {
        events::reasons(&self.env, uid).await
    }

    /// Ends the operator well: it must not have panicked or met a bug. What others made of the runs
    /// on the way must have been right at every instant.
    pub(super) async fn done(self) -> Result<()> {
        let log = self.operator.log_text()?;
        ensure!(!log.contains("panicked"), "the operator panicked: {log}");
        let bugs = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Bug"}"#;
        ensure!(self.operator.metric(bugs).await? < 0.5, "a bug: {log}");
        self.operator.stop().await?;
        if self.env.testbed("kstatus").is_ok() {
            self.history.judge().await?;
        }
        Ok(())
    }
}
