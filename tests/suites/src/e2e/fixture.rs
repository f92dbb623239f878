//! What the cases of all kinds of runs have in common: a namespace, an operator that watches it, and how a
//! run is made, waited for and judged.

mod expect;
mod kind;

pub(super) use expect::Expect;
pub(super) use kind::RunKind;

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use api::{Status, names, status::condition, tasks::Agent};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
    events::v1::Event,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams},
    core::object::HasStatus,
};
use serde_json::{Value, json};
use testkit::{
    operator::{self, Operator, Plan},
    suite::Env,
    wait::{met, until},
};

use super::{
    children, events, merge,
    reading::{brief, freed, is_current, phase_of, reason_of, sane, says_all},
    status_history::StatusHistory,
    why,
};
use expect::{are_told, has_ended};

/// The image of most agents.
pub(super) const BUSYBOX: &str = "testbed.local/busybox:1";

/// A case's place: its namespace, and an operator that watches it.
pub(super) struct Fixture<K: RunKind> {
    place: WithoutOperator<K>,
    pub(super) operator: Operator,
}

/// The same with no operator at work.
pub(super) struct WithoutOperator<K: RunKind> {
    pub(super) env: Env,
    pub(super) git: K::Git,
    pub(super) plan: Plan,
    history: StatusHistory,
}

impl<K: RunKind> Deref for Fixture<K> {
    type Target = WithoutOperator<K>;

    fn deref(&self) -> &Self::Target {
        &self.place
    }
}

impl<K: RunKind> DerefMut for Fixture<K> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.place
    }
}

impl<K: RunKind> WithoutOperator<K> {
    /// Starts an operator, perhaps with another plan than before.
    pub(super) async fn up(self) -> Result<Fixture<K>> {
        let operator = self.another().await?;
        Ok(Fixture {
            place: self,
            operator,
        })
    }

    /// The same with these lines in its configuration.
    pub(super) async fn up_with(mut self, lines: &str) -> Result<Fixture<K>> {
        self.plan.config = K::config(lines);
        self.up().await
    }

    /// Another operator of the same installation.
    pub(super) async fn another(&self) -> Result<Operator> {
        Operator::start(&self.env.client, &self.env.config, &self.plan).await
    }

    pub(super) fn runs(&self) -> Api<K::Run> {
        self.env.api()
    }
}

impl<K: RunKind> Fixture<K> {
    /// With an operator that watches the case's namespace.
    pub(super) async fn new(env: Env) -> Result<Self> {
        Self::configured(env, K::LINES).await
    }

    /// With these lines in the operator's configuration.
    pub(super) async fn configured(env: Env, lines: &str) -> Result<Self> {
        let (home, watched) = (env.namespace.clone(), vec![env.namespace.clone()]);
        Self::planned(env, home, watched, lines).await
    }

    /// With an operator that is at home in one namespace and watches others.
    pub(super) async fn planned(
        env: Env,
        home: String,
        watched: Vec<String>,
        lines: &str,
    ) -> Result<Self> {
        operator::install(&env.client, K::OPERATOR.crds()).await?;
        let (git, network) = K::git(&env)?;
        let history = StatusHistory::new(&env.client, &watched, &K::resources()).await?;
        let plan = Plan {
            watched,
            config: K::config(lines),
            network,
            ..Plan::new(operator::built()?, K::OPERATOR, &home)
        };
        let down = WithoutOperator {
            env,
            git,
            plan,
            history,
        };
        down.up().await
    }

    /// Asks the operator to stop.
    pub(super) async fn stopped(self) -> Result<WithoutOperator<K>> {
        self.operator.stop().await?;
        Ok(self.place)
    }

    /// Kills the operator. The next one waits until its Lease is over.
    pub(super) async fn killed(self) -> Result<WithoutOperator<K>> {
        self.operator.kill().await?;
        Ok(self.place)
    }

    /// Waits until the operator leads.
    pub(super) async fn leads(&self, within: Duration) -> Result<()> {
        until("the operator to lead", within, async || {
            let is_leading = self.operator.is_leading().await?;
            Ok(met(is_leading, || "not yet".to_owned()))
        })
        .await
    }

    /// An agent that runs a script; `more` is merged into its spec.
    pub(super) async fn agent(&self, name: &str, script: &str, more: Value) -> Result<Agent> {
        let mut spec = json!({
            "image": BUSYBOX,
            "command": ["/bin/sh", "-c", script],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": K::MEMORY } },
        });
        merge(&mut spec, more);
        let agent = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
            "metadata": { "name": name }, "spec": spec,
        });
        self.env.create(agent).await
    }

    /// A run of this name, of the agent of the same name; `more` is merged into its spec.
    pub(super) async fn submit(&self, name: &str, more: Value) -> Result<K::Run> {
        submit::<K>(&self.env, &self.git, name, more).await
    }

    /// An agent that runs a script, and a run of it.
    pub(super) async fn start(&self, name: &str, script: &str) -> Result<K::Run> {
        self.agent(name, script, json!({})).await?;
        self.submit(name, json!({})).await
    }

    /// Merges `patch` into a run.
    pub(super) async fn patch(&self, name: &str, patch: Value) -> Result<K::Run> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        Ok(self.runs().patch(name, &params, &patch).await?)
    }

    /// The same, which the API server must refuse with these words.
    pub(super) async fn refuses(&self, name: &str, patch: Value, says: &str) -> Result<()> {
        let refused = self.patch(name, patch).await;
        let error = refused.err().context("it was not refused")?.to_string();
        ensure!(error.contains(says), "'{says}' is not in '{error}'");
        Ok(())
    }

    pub(super) async fn suspend(&self, name: &str) -> Result<K::Run> {
        self.patch(name, json!({ "spec": { "suspend": true } }))
            .await
    }

    pub(super) async fn resume(&self, name: &str) -> Result<K::Run> {
        self.patch(name, json!({ "spec": { "suspend": false } }))
            .await
    }

    pub(super) async fn cancel(&self, name: &str) -> Result<K::Run> {
        self.patch(name, json!({ "spec": { "cancel": true } }))
            .await
    }

    /// A run that was called off: it cannot be taken back.
    pub(super) async fn stays_cancelled(&self, name: &str) -> Result<()> {
        let back = json!({ "spec": { "cancel": false } });
        self.refuses(name, back, "cannot be taken back").await
    }

    /// Asks for the deletion of a run, without waiting for it.
    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        self.runs().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(super) async fn jobs_of(&self, run: &K::Run) -> Result<Vec<Job>> {
        let ours = children(&run.uid().unwrap_or_default());
        Ok(self.env.api::<Job>().list(&ours).await?.items)
    }

    pub(super) async fn pods_of(&self, run: &K::Run) -> Result<Vec<Pod>> {
        let ours = children(&run.uid().unwrap_or_default());
        Ok(self.env.api::<Pod>().list(&ours).await?.items)
    }

    /// The only Pod of a run was ended by the kubelet, and stays. Its name.
    pub(super) async fn has_stopped(&self, run: &K::Run) -> Result<String> {
        let pods = self.pods_of(run).await?;
        let [pod] = pods.as_slice() else {
            anyhow::bail!("{} Pods, wanted 1", pods.len());
        };
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        ensure!(
            phase == Some("Failed") && pod.metadata.deletion_timestamp.is_none(),
            "Pod '{}' is {phase:?}",
            pod.name_any()
        );
        Ok(pod.name_any())
    }

    /// The only Pod of a run was stopped, and its log has these words.
    pub(super) async fn keeps_log(&self, run: &K::Run, words: &str) -> Result<()> {
        let pod = self.has_stopped(run).await?;
        let log = self
            .env
            .api::<Pod>()
            .logs(&pod, &LogParams::default())
            .await?;
        ensure!(log.contains(words), "the log of '{pod}' is '{log}'");
        Ok(())
    }

    /// The Pod that the status of a run names.
    pub(super) fn pod_of(&self, run: &K::Run) -> Result<String> {
        let pod = status_of::<K>(run).pod.clone();
        Ok(pod.context("no Pod in the status")?.name)
    }

    pub(super) async fn maps_of(&self, run: &K::Run) -> Result<Vec<ConfigMap>> {
        let ours = children(&run.uid().unwrap_or_default());
        Ok(self.env.api::<ConfigMap>().list(&ours).await?.items)
    }

    /// The children of a run are of these numbers, and stay so for a while.
    pub(super) async fn stays_at(
        &self,
        run: &K::Run,
        wanted: (usize, usize),
        time: Duration,
    ) -> Result<()> {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            let jobs = self.jobs_of(run).await?.len();
            let seen = (jobs, self.pods_of(run).await?.len());
            ensure!(
                seen == wanted,
                "{}: {seen:?} Jobs and Pods, wanted {wanted:?}",
                run.name_any()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// The only Job of a run is suspended, and its Pod goes.
    pub(super) async fn is_held(&self, run: &K::Run) -> Result<()> {
        let jobs = self.jobs_of(run).await?;
        let is_held = |job: &Job| job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        ensure!(jobs.len() == 1 && jobs.iter().all(is_held), "{jobs:?}");
        until("its Pod to be gone", K::LIMIT, async || {
            let count = self.pods_of(run).await?.len();
            Ok(met(count == 0, || format!("{count} Pods")))
        })
        .await
    }

    /// Waits until a run looks as wanted.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&K::Status) -> bool,
    ) -> Result<K::Run> {
        let (env, home) = (&self.env, &self.plan.home);
        // On the heap: a case waits often, and all its states are on one stack.
        Box::pin(run_until::<K>(env, home, name, (what, within), wanted)).await
    }

    /// Waits until the agent of a run runs.
    pub(super) async fn running(&self, name: &str) -> Result<K::Run> {
        self.until(name, K::LIMIT, "running", K::is_running).await
    }

    /// Waits until a run has ended, however.
    pub(super) async fn finished(&self, name: &str, within: Duration) -> Result<K::Run> {
        self.until(name, within, "finished", |status| {
            status.progress().is_true(condition::FINISHED)
        })
        .await
    }

    /// Waits until a run says this reason.
    pub(super) async fn says(&self, name: &str, reason: &str) -> Result<K::Run> {
        self.says_within(name, reason, K::LIMIT).await
    }

    pub(super) async fn says_within(
        &self,
        name: &str,
        reason: &str,
        within: Duration,
    ) -> Result<K::Run> {
        self.until(name, within, reason, |status| reason_of(status) == reason)
            .await
    }

    /// Waits until a run is suspended and says so in these words; then it is at rest.
    pub(super) async fn rests(&self, name: &str, words: &str) -> Result<K::Run> {
        let seen = self
            .until(name, K::LIMIT, "suspended and stopped", |status| {
                reason_of(status) == "Suspended" && says_all(status, &[words]).is_ok()
            })
            .await?;
        self.is_at_rest(&seen)?;
        Ok(seen)
    }

    /// Suspended: no time counts, and nothing runs.
    pub(super) fn is_at_rest(&self, run: &K::Run) -> Result<()> {
        let status = status_of::<K>(run);
        let phase = phase_of(&status);
        ensure!(K::WAITING.contains(&phase.as_str()), "{}", brief(&status));
        ensure!(
            status.progress().deadline_at.is_none() && status.started_at.is_none(),
            "a time counts: {:?} {:?}",
            status.progress().deadline_at,
            status.started_at
        );
        let count = status.disruptions;
        ensure!(count == 0, "{count} disruptions");
        Ok(())
    }

    /// While a run waits, it says why within 10 s.
    pub(super) async fn waits_for(
        &self,
        name: &str,
        reason: &str,
        says: &[&str],
    ) -> Result<K::Run> {
        let within = Duration::from_secs(10);
        let seen = self.says_within(name, reason, within).await?;
        let status = status_of::<K>(&seen);
        let phase = phase_of(&status);
        ensure!(K::WAITING.contains(&phase.as_str()), "{}", brief(&status));
        says_all(&status, says)?;
        Ok(seen)
    }

    /// Waits for the end of a run and looks at everything that it leaves: status, conditions,
    /// Events, metric, children; then deletes it and looks at what is left.
    pub(super) async fn ends(&self, name: &str, expect: Expect<'_>) -> Result<String> {
        let seen = self.ended(name, &expect).await?;
        self.deletes(&seen).await?;
        Ok(brief(&status_of::<K>(&seen)))
    }

    /// The same without the deletion.
    pub(super) async fn ended(&self, name: &str, expect: &Expect<'_>) -> Result<K::Run> {
        let within = expect.within.unwrap_or(K::WITHIN);
        let seen = self.finished(name, within).await?;
        let uid = seen.uid().unwrap_or_default();
        has_ended::<K>(&status_of::<K>(&seen), expect)?;
        let Expect {
            phase,
            reason,
            jobs,
            ..
        } = expect;
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
        let told = events::reasons(&self.env, &uid).await?;
        are_told::<K>(told.into_iter().collect(), expect)?;
        let series = format!(
            r#"orchestrator_runs_total{{kind="{}",outcome="{phase}",reason="{reason}"}}"#,
            K::Run::kind(&())
        );
        ensure!(
            self.operator.metric(&series).await? >= 1.0,
            "{series} did not move"
        );
        let made = self.jobs_of(&seen).await?;
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
    pub(super) async fn deletes(&self, run: &K::Run) -> Result<()> {
        self.delete(&run.name_any()).await?;
        self.is_gone(run, K::COLLECTED).await
    }

    /// The run and everything with its UID is gone.
    pub(super) async fn is_gone(&self, run: &K::Run, within: Duration) -> Result<()> {
        let (name, runs) = (run.name_any(), self.runs());
        let what = format!("{name} and its children to be gone");
        until(&what, within, async || {
            let seen = runs.get_opt(&name).await?;
            let is_there = seen.is_some_and(|seen| seen.uid() == run.uid());
            let left = children::left(&self.env, run).await?;
            Ok(met(!is_there && left == (0, 0, 0), || {
                format!("there: {is_there}; {left:?} Jobs, Pods, ConfigMaps")
            }))
        })
        .await
    }

    /// Nothing of what is known of a run went with its children.
    pub(super) async fn same_status(&self, before: &K::Run) -> Result<()> {
        let after = self.runs().get(&before.name_any()).await?;
        let (after, before) = (after.status(), before.status());
        ensure!(after == before, "{after:?} was {before:?}");
        Ok(())
    }

    /// What the Events of one reason say about an object.
    pub(super) async fn notes(&self, run: &K::Run, reason: &str) -> Result<String> {
        let events = events::ours(&self.env, &run.uid().unwrap_or_default()).await?;
        let notes = events.into_iter().filter_map(|event| {
            let is_it = event.reason.as_deref() == Some(reason);
            event.note.filter(|_| is_it)
        });
        Ok(notes.collect::<Vec<String>>().join("; "))
    }

    /// A refusal of the API server is in a metric and, with these words, in a line of the log.
    pub(super) async fn logs_error(&self, class: &str, reason: &str, words: &[&str]) -> Result<()> {
        let series = format!(
            r#"orchestrator_reconcile_errors_total{{kind="{}",class="{class}"}}"#,
            K::Run::kind(&())
        );
        let count = self.operator.metric(&series).await?;
        ensure!(count >= 1.0, "S0.2: {series}");
        let (class, reason) = (
            format!(r#""class":"{class}""#),
            format!(r#""reason":"{reason}""#),
        );
        let mut words = words.to_vec();
        words.extend([class.as_str(), &reason]);
        let log = self.operator.log_text()?;
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        ensure!(
            log.lines().any(is_it),
            "S0.2: no line of the log has {words:?}: {log}"
        );
        Ok(())
    }

    /// Ends the operator well: it must not have panicked or met a bug, nor have told a password.
    /// What others made of the runs on the way must have been right at every instant.
    pub(super) async fn done(self) -> Result<()> {
        let log = self.operator.log_text()?;
        ensure!(!log.contains("panicked"), "the operator panicked: {log}");
        let bugs = format!(
            r#"orchestrator_reconcile_errors_total{{kind="{}",class="Bug"}}"#,
            K::Run::kind(&())
        );
        ensure!(self.operator.metric(&bugs).await? < 0.5, "a bug: {log}");
        self.tells_no_secret(&log).await?;
        let WithoutOperator { env, history, .. } = self.stopped().await?;
        if env.testbed("kstatus").is_ok() {
            history.judge().await?;
        }
        Ok(())
    }

    /// T12: neither the log nor the metrics nor any run or Event has a credential in it.
    async fn tells_no_secret(&self, log: &str) -> Result<()> {
        let secrets = K::secrets(&self.git);
        if secrets.is_empty() {
            return Ok(());
        }
        let all = ListParams::default();
        let runs = serde_json::to_string(&self.runs().list(&all).await?.items)?;
        let told = self.env.api::<Event>().list(&all).await?.items;
        let told = serde_json::to_string(&told)?;
        let metrics = self.operator.metrics().await?;
        for secret in secrets {
            for (place, text) in [
                ("log", log),
                ("runs", &runs),
                ("Events", &told),
                ("metrics", &metrics),
            ] {
                ensure!(!text.contains(&secret), "a credential is in the {place}");
            }
        }
        Ok(())
    }
}

/// A run of this kind; `more` is merged into its spec.
pub(super) async fn submit<K: RunKind>(
    env: &Env,
    git: &K::Git,
    name: &str,
    more: Value,
) -> Result<K::Run> {
    let mut spec = K::spec(git, name);
    merge(&mut spec, more);
    let run = json!({
        "apiVersion": K::Run::api_version(&()), "kind": K::Run::kind(&()),
        "metadata": { "name": name }, "spec": spec,
    });
    env.create(run).await
}

/// Waits until a run looks as wanted; what is seen on the way must be sane, and `orc why` must
/// name what is wrong in the end.
pub(super) async fn run_until<K: RunKind>(
    env: &Env,
    home: &str,
    name: &str,
    (what, within): (&str, Duration),
    wanted: impl Fn(&K::Status) -> bool,
) -> Result<K::Run> {
    let runs: Api<K::Run> = env.api();
    let seen = until(&format!("{name}: {what}"), within, async || {
        let seen = runs.get(name).await?;
        let generation = seen.meta().generation;
        sane(seen.status(), generation)?;
        let status = status_of::<K>(&seen);
        let is_current = is_current(&status, generation);
        Ok(if is_current && wanted(&status) {
            Ok(seen)
        } else {
            Err(brief(&status))
        })
    })
    .await?;
    let status = status_of::<K>(&seen);
    let (place, reason) = ((env.namespace.as_str(), name), reason_of(&status));
    why::ask(&env.client, K::TARGET, place, home, reason).await?;
    Ok(seen)
}

fn status_of<K: RunKind>(run: &K::Run) -> K::Status {
    run.status().cloned().unwrap_or_default()
}
