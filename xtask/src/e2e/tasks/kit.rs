//! What the cases of TaskRuns have in common.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use api::{
    names,
    status::condition,
    tasks::{Agent, TaskRun, TaskRunStatus},
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    operator::{self, Operator, Plan},
    suite::Env,
    wait::until,
};

/// The image of most agents.
pub(super) const BUSYBOX: &str = "testbed.local/busybox:1";

/// A case's place: its namespace, and an operator that watches it.
pub(super) struct Bench {
    pub(super) env: Env,
    pub(super) operator: Operator,
    pub(super) plan: Plan,
}

/// How a run must end.
pub(super) struct Expect<'a> {
    pub(super) phase: &'a str,
    pub(super) reason: &'a str,
    /// What its message must say.
    pub(super) says: &'a [&'a str],
    /// The reasons of its Events, no more and no fewer; each may have come in several phases.
    pub(super) events: &'a [&'a str],
    pub(super) attempts: u32,
    /// How many Jobs are there at the end.
    pub(super) jobs: usize,
    pub(super) within: Duration,
}

impl Default for Expect<'_> {
    fn default() -> Self {
        Self {
            phase: "Succeeded",
            reason: "Succeeded",
            says: &[],
            events: &["Pending", "Running", "Succeeded"],
            attempts: 1,
            jobs: 1,
            within: Duration::from_secs(60),
        }
    }
}

impl Bench {
    /// With an operator that watches the case's namespace.
    pub(super) async fn new(env: Env) -> Result<Self> {
        let watched = vec![env.namespace.clone()];
        Self::watching(env, watched).await
    }

    /// With an operator that watches other namespaces.
    pub(super) async fn watching(env: Env, watched: Vec<String>) -> Result<Self> {
        operator::install(&env.client, api::crd::tasks()).await?;
        let binary = testkit::process::this_program()?;
        let folder = binary.parent().context("this program is in no folder")?;
        let plan = Plan {
            binary: operator::built(folder)?,
            home: env.namespace.clone(),
            watched,
            config: String::new(),
            permissions: api::rbac::tasks(),
        };
        let operator = Operator::start(&env.client, &env.config, &plan).await?;
        Ok(Self {
            env,
            operator,
            plan,
        })
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

    /// Waits until a run looks as wanted; what is seen on the way must be sane.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&TaskRunStatus) -> bool,
    ) -> Result<TaskRun> {
        let runs = self.runs();
        until(&format!("{name}: {what}"), within, async || {
            let seen = runs.get(name).await?;
            sane(&seen)?;
            let status = seen.status.clone().unwrap_or_default();
            Ok(if wanted(&status) {
                Ok(seen)
            } else {
                Err(brief(&status))
            })
        })
        .await
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
            attempts,
            jobs,
            ..
        } = expect;
        ensure!(
            phase_of(&status) == *phase && reason_of(&status) == *reason,
            "{}",
            brief(&status)
        );
        says_all(&status, says)?;
        ensure!(status.attempts == *attempts, "{} attempts", status.attempts);
        ensure!(
            status.finished_at.is_some() && status.deadline_at.is_none(),
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
        let evidence = status.result.clone().context("an end without a result")?;
        ensure!(evidence.reason.as_deref() == Some(*reason), "{evidence:?}");

        let runs = self.runs();
        let freed = until("the finalizer to go", Duration::from_secs(5), async || {
            let seen = runs.get(name).await?;
            let is_free = seen.finalizers().is_empty();
            Ok(if is_free {
                Ok(seen)
            } else {
                Err(format!("{:?}", seen.finalizers()))
            })
        })
        .await?;
        let outcome = freed
            .annotations()
            .get(names::OUTCOME)
            .context("no outcome annotation")?;
        let outcome: Value = serde_json::from_str(outcome)?;
        ensure!(
            outcome["outcome"] == *phase && outcome["uid"] == uid,
            "{outcome}"
        );

        let told: BTreeSet<String> = self.events(&uid).await?.into_iter().collect();
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

    /// Deletes a run; it and its children go.
    pub(super) async fn deletes(&self, run: &TaskRun) -> Result<()> {
        self.runs()
            .delete(&run.name_any(), &DeleteParams::default())
            .await?;
        self.is_gone(run, Duration::from_secs(45)).await
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

    /// The reasons of the Events about an object; each transition once.
    pub(super) async fn events(&self, uid: &str) -> Result<Vec<String>> {
        let events: Api<Event> = self.env.api();
        let all = events.list(&ListParams::default()).await?.items;
        let ours = all.iter().filter(|event| {
            event
                .regarding
                .as_ref()
                .and_then(|object| object.uid.as_deref())
                == Some(uid)
                && event.reporting_controller.as_deref() == Some("orchestrator.io/controller")
        });
        let mut reasons = Vec::new();
        for event in ours {
            ensure!(
                event.note.as_ref().is_some_and(|note| !note.is_empty()),
                "an Event without words"
            );
            ensure!(event.action.is_some(), "an Event without an action");
            let reason = event.reason.clone().unwrap_or_default();
            let is_calm =
                ["Pending", "Running", "Succeeded", "Deleting"].contains(&reason.as_str());
            let wanted = if is_calm { "Normal" } else { "Warning" };
            ensure!(
                event.type_.as_deref() == Some(wanted),
                "{reason}: {:?}",
                event.type_
            );
            reasons.extend(event.reason.clone());
        }
        Ok(reasons)
    }

    /// Ends the operator well: it must not have restarted, panicked or met a bug.
    pub(super) async fn done(self) -> Result<()> {
        let log = self.operator.log_text()?;
        ensure!(!log.contains("panicked"), "the operator panicked: {log}");
        let bugs = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Bug"}"#;
        ensure!(self.operator.metric(bugs).await? < 0.5, "a bug: {log}");
        self.operator.stop().await
    }
}

/// What holds at every instant.
fn sane(run: &TaskRun) -> Result<()> {
    let Some(status) = &run.status else {
        return Ok(());
    };
    let progress = &status.progress;
    let is = |kind: &str| progress.is_true(kind);
    ensure!(
        !(is(condition::RECONCILING) && is(condition::STALLED)),
        "Reconciling and Stalled: {}",
        brief(status)
    );
    let generation = run.metadata.generation.unwrap_or(0);
    ensure!(
        progress.observed_generation <= generation,
        "observedGeneration from the future"
    );
    let phase = phase_of(status);
    let is_over = phase == "Succeeded" || phase == "Failed";
    ensure!(
        is(condition::FINISHED) == is_over,
        "Finished and phase {phase} disagree"
    );
    ensure!(
        is(condition::SUCCEEDED) == (phase == "Succeeded"),
        "Succeeded and phase {phase} disagree"
    );
    if phase == "Failed" {
        ensure!(is(condition::STALLED), "failed, but not Stalled");
    }
    if !phase.is_empty() && !is_over {
        ensure!(
            is(condition::RECONCILING) || is(condition::STALLED),
            "neither at work nor given up"
        );
    }
    ensure!(
        phase.is_empty()
            || progress
                .message
                .as_ref()
                .is_some_and(|text| !text.is_empty()),
        "no message"
    );
    Ok(())
}

pub(super) fn phase_of(status: &TaskRunStatus) -> String {
    status
        .phase
        .map_or(String::new(), |phase| format!("{phase:?}"))
}

pub(super) fn reason_of(status: &TaskRunStatus) -> &str {
    status
        .progress
        .condition(condition::SUCCEEDED)
        .map_or("", |one| one.reason.as_str())
}

/// A status in one line.
pub(super) fn brief(status: &TaskRunStatus) -> String {
    let message = status.progress.message.as_deref().unwrap_or("no message");
    format!("{} {}: {message}", phase_of(status), reason_of(status))
}

pub(super) fn says_all(status: &TaskRunStatus, words: &[&str]) -> Result<()> {
    let message = status.progress.message.as_deref().unwrap_or_default();
    for word in words {
        ensure!(message.contains(word), "'{word}' is not in '{message}'");
    }
    Ok(())
}

pub(super) fn children(uid: &str) -> ListParams {
    ListParams::default().labels(&[names::UID, "=", uid].concat())
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}
