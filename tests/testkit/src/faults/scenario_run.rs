//! One run of a scenario ("a play"): a namespace, a set of operators, a script, and the outcome.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::Pod,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;

use super::{
    canonical::{self, Canonical},
    object_history::{ObjectHistory, Seen},
    operator_set::OperatorSet,
    oracles::{self, Evidence, Oracle, Outcome, Violation},
    plan::Learned,
    point::Injection,
    proxy::{PLAY as PLAY_LABEL, Part, Traced},
    side_effect_log::SideEffectLog,
    silent,
};
use crate::{audit::AuditLog, git::Network, operator, suite, wait::until};

/// The Lease of the operators: short, or each crash would cost its length.
const ELECTION: &str = "leaderElection: {leaseDurationSeconds: 3, renewSeconds: 1}\n";

/// The longest way of a scenario to its end, with faults, unless it says otherwise.
pub const SCENARIO_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time from a scenario's end to the state of the fault-free play.
const CONVERGE: Duration = Duration::from_secs(45);

/// Without a write for this long, a play is over.
const STILL: Duration = Duration::from_millis(1500);

/// The same where nothing says what the end is, because it is being learned.
const STILL_WHEN_LEARNING: Duration = Duration::from_millis(4000);

/// After that, nothing may be written for this long, unless a play is to be watched for longer.
pub const QUIET: Duration = Duration::from_millis(2000);

/// Begins the words about a play whose own waits were in vain: no oracle saw that.
pub const NO_END: &str = "it did not come to its end";

/// Says whether what an object claims is so; of what only the scenario can know.
pub type Proof = Box<dyn Fn(&Seen) -> Result<(), String> + Send + Sync>;

/// What the suite of an operator adds.
pub trait Scenario: Send + Sync {
    /// Short, letters and hyphens; part of a namespace's name.
    fn name(&self) -> &'static str;

    /// How many operators there are.
    fn replicas(&self) -> usize {
        1
    }

    /// How long its way to the end may take, with faults.
    fn limit(&self) -> Duration {
        SCENARIO_TIMEOUT
    }

    /// The scenario that it begins as: what is written there, and is again here, is hit there.
    fn begins_as(&self) -> Option<&'static str> {
        None
    }

    /// More lines of the operators' configuration.
    fn config(&self) -> String {
        String::new()
    }

    /// What only the operator's suite knows, and can tell from everything that was seen.
    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Violation> {
        let Evidence { .. } = evidence;
        Vec::new()
    }

    /// Plurals of what it changes that the object history does not see: nothing of the play's namespace.
    fn stirs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Does what users do, and waits until all is over. What it waits for must stay: a state that
    /// passes may pass unseen.
    fn run<'a>(&'a self, stage: &'a Stage) -> BoxFuture<'a, Result<Proof>>;
}

/// Where plays take place: one cluster, and who looks at it.
pub struct Theatre {
    /// The cluster's administrator.
    pub client: Client,
    /// The same.
    pub config: Config,
    /// The cluster's own network.
    pub network: Arc<Network>,
    /// What the operator watches: a part of what the object history does.
    pub watched: Vec<ApiResource>,
    /// Sees every version of every object, of other operators, too.
    pub history: Arc<ObjectHistory>,
    /// What agents tell.
    pub side_effects: Arc<SideEffectLog>,
    /// What the API server was asked.
    pub audit: AuditLog,
    /// Where the logs of plays that went wrong are kept.
    pub logs: PathBuf,
    /// Plurals of the operator's kinds that belong to no namespace. With any, operators watch all
    /// namespaces, and see of these kinds what carries their play's label.
    pub selected: &'static [&'static str],
    /// How operators are started; home and watched namespaces are set for each play.
    pub operator: operator::Plan,
}

/// The place of one play.
pub struct Stage {
    /// The cluster's administrator, not through a proxy.
    pub client: Client,
    /// The play's own.
    pub namespace: String,
    /// The cluster's own network.
    pub network: Arc<Network>,
    /// What agents tell, and where they wait.
    pub side_effects: Arc<SideEffectLog>,
    /// The operators.
    pub operator_set: OperatorSet,
    history: Arc<ObjectHistory>,
    /// What the play's operator watches; the object history may watch more.
    watched: Vec<ApiResource>,
    /// How long a watch is silent at most: each wait is longer by this time.
    silence: Duration,
    hidden: Mutex<Hidden>,
}

/// What a scenario told of itself, for the oracles.
#[derive(Default)]
struct Hidden {
    canaries: Vec<String>,
    private: Vec<String>,
    proof: Option<Proof>,
}

impl Stage {
    /// A namespaced API of the play.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The label of what the play makes of kinds that belong to no namespace: name and value.
    #[must_use]
    pub fn label(&self) -> (&'static str, &str) {
        (PLAY_LABEL, &self.namespace)
    }

    fn hidden(&self) -> MutexGuard<'_, Hidden> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text that may be in Secrets and nowhere else.
    pub fn canary(&self, text: &str) {
        self.hidden().canaries.push(text.to_owned());
    }

    /// A text that objects may have in their specs, and that nothing may repeat: no log, metric, Event or
    /// status.
    pub fn private(&self, text: &str) {
        self.hidden().private.push(text.to_owned());
    }

    /// Says early whether claims are borne out: this judges also a play that does not come to its end.
    pub fn bears_out(&self, proof: Proof) {
        self.hidden().proof = Some(proof);
    }

    /// Returns the limit of a wait: it is longer while a watch may be silent.
    #[must_use]
    pub fn limit(&self, usual: Duration) -> Duration {
        usual + self.silence
    }

    /// Waits for what the object history sees: the last version of everything that is there.
    ///
    /// # Errors
    /// When it is not so within the limit; with what `look` said last.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl Fn(&[Seen]) -> Result<T, String>,
    ) -> Result<T> {
        until(what, self.limit(limit), async || {
            let now = self.history.now(&self.namespace, &self.watched);
            Ok(look(&now))
        })
        .await
    }
}

/// What is played.
#[derive(Clone, Copy)]
pub struct ScenarioRun<'a> {
    /// The course.
    pub scenario: &'a dyn Scenario,
    /// The faults; none, to learn it.
    pub script: &'a [Injection],
    /// How it ended without faults, if that is known.
    pub baseline: Option<&'a Outcome>,
    /// More of the operators' environment.
    pub environment: &'a [(String, String)],
    /// How long nothing may be written at its end.
    pub quiet: Duration,
}

/// What came of a play.
pub struct ScenarioResult {
    /// The requests of the operators.
    pub learned: Learned,
    /// What can be compared with another play.
    pub outcome: Outcome,
    /// What the oracles say.
    pub violations: Vec<Violation>,
    /// Which injections have hit.
    pub hits: Vec<bool>,
    /// How long it took.
    pub took: Duration,
    /// What there is to read about one that went wrong.
    pub kept: Option<PathBuf>,
}

impl Theatre {
    /// Plays a scenario with a script, and judges it by a fault-free play if there was one.
    ///
    /// # Errors
    /// When the play could not be judged; a play that went wrong is a violation.
    pub async fn run(&self, run: ScenarioRun<'_>) -> Result<ScenarioResult> {
        let begin = Instant::now();
        let prefix = format!("f-{}-", run.scenario.name());
        let namespace = suite::namespace(&self.client, &prefix).await?;
        let result = self.run_in(run, &namespace).await;
        self.clean(&namespace).await?;
        let mut played = result.with_context(|| format!("in namespace '{namespace}'"))?;
        played.took = begin.elapsed();
        Ok(played)
    }

    async fn run_in(&self, run: ScenarioRun<'_>, namespace: &str) -> Result<ScenarioResult> {
        let ScenarioRun {
            scenario,
            script,
            baseline,
            environment,
            quiet,
        } = run;
        let start = self.audit.mark(&self.client).await?;
        let plan = operator::Plan {
            home: namespace.to_owned(),
            watched: match self.selected {
                [] => vec![namespace.to_owned()],
                [..] => Vec::new(),
            },
            config: format!("{ELECTION}{}", scenario.config()),
            network: Some(Arc::clone(&self.network)),
            environment: environment.to_vec(),
            ..self.operator.clone()
        };
        let operator_set = OperatorSet::start(
            &self.client,
            &self.config,
            &plan,
            scenario.replicas(),
            script,
            &Part {
                home: namespace.to_owned(),
                selected: self.selected,
            },
        )
        .await?;
        let stage = Stage {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            network: Arc::clone(&self.network),
            side_effects: Arc::clone(&self.side_effects),
            operator_set,
            history: Arc::clone(&self.history),
            watched: self.watched.clone(),
            silence: silent::longest(script),
            hidden: Mutex::default(),
        };
        let begin = Instant::now();
        let mut violations = Vec::new();
        let went = |error: &anyhow::Error| Violation {
            oracle: Oracle::SameEnd,
            words: format!("{NO_END}: {error:#}"),
        };
        let limit = stage.limit(scenario.limit());
        let proof = match tokio::time::timeout(limit, scenario.run(&stage)).await {
            Ok(Ok(proof)) => Some(proof),
            Ok(Err(error)) => {
                violations.push(went(&error));
                None
            }
            Err(_elapsed) => {
                violations.push(went(&anyhow::anyhow!("it took longer than {limit:?}")));
                None
            }
        };
        if proof.is_some() {
            self.converged(&stage, baseline).await;
        }
        stage.operator_set.calm();
        if proof.is_some() && !stage.silence.is_zero() {
            // Events of the silence come now, and the operator may record what they report.
            self.converged(&stage, baseline).await;
        }
        let end = self.audit.mark(&self.client).await?;
        tokio::time::sleep(quiet).await;
        let metrics = stage.operator_set.metrics().await;
        self.history.caught_up(&self.client).await?;
        self.history.check()?;
        self.side_effects.check()?;
        let user = stage.operator_set.user()?;
        let mine = |entries: Vec<crate::audit::Entry>| -> Vec<crate::audit::Entry> {
            let of_user = entries.into_iter();
            of_user.filter(|entry| entry.request.user == user).collect()
        };
        let audit = mine(self.audit.entries(&self.client, start).await?);
        let late = mine(self.audit.entries(&self.client, end).await?);
        let (trace, hits) = (stage.operator_set.trace(), stage.operator_set.hits());
        let Stage {
            operator_set,
            hidden,
            silence,
            ..
        } = stage;
        let (logs, ends) = match operator_set.dismiss().await {
            Ok(left) => left,
            Err(error) => {
                violations.push(went(&error));
                (Vec::new(), Vec::new())
            }
        };
        violations.extend(ends.into_iter().map(|words| Violation {
            oracle: Oracle::NoLeak,
            words,
        }));
        let seen = self.history.of(namespace, &self.watched);
        // The operator watches the Events of others; the object history sees its own.
        let news = seen
            .iter()
            .filter(|one| one.at > begin && one.resource != "events")
            // No operator watches what each namespace has.
            .filter(|one| canonical::is_state(one) || one.resource != "configmaps");
        let stirred = scenario.stirs().iter().map(|one| (*one).to_owned());
        let changed = news.map(|one| one.resource.clone()).chain(stirred);
        let changed = changed.collect();
        let learned = Learned::of(&trace, &changed);
        let effects = self.side_effects.effects(namespace);
        let Hidden {
            canaries,
            private,
            proof: early,
        } = hidden.into_inner().unwrap_or_else(PoisonError::into_inner);
        let trusting = |_: &Seen| Ok(());
        let evidence = Evidence {
            home: namespace,
            seen: &seen,
            audit: &audit,
            quiet: proof.is_some().then_some(late.as_slice()),
            effects: &effects,
            logs: &logs,
            metrics: &metrics,
            canaries: &canaries,
            private: &private,
            bears_out: match proof.as_ref().or(early.as_ref()) {
                Some(proof) => proof.as_ref(),
                None => &trusting,
            },
            silence,
        };
        let outcome = Outcome::of(&evidence);
        violations.extend(oracles::judge(&evidence, baseline.unwrap_or(&outcome)));
        violations.extend(scenario.judge(&evidence));
        let kept = match violations.is_empty() {
            true => None,
            false => Some(self.keep(namespace, &violations, &trace, &logs)?),
        };
        Ok(ScenarioResult {
            learned,
            outcome,
            violations,
            hits,
            took: Duration::ZERO,
            kept,
        })
    }

    /// Writes what went wrong, what the operators asked for and what they said into a file.
    fn keep(
        &self,
        namespace: &str,
        violations: &[Violation],
        trace: &[Traced],
        logs: &[String],
    ) -> Result<PathBuf> {
        fs::create_dir_all(&self.logs)?;
        let path = self.logs.join(format!("{namespace}.log"));
        let mut text: String = violations.iter().map(|one| format!("{one}\n")).collect();
        let begin = trace.first().map(|first| first.at);
        for one in trace {
            let at = begin.map_or(Duration::ZERO, |begin| {
                one.at.saturating_duration_since(begin)
            });
            let answer = one
                .code
                .map_or_else(|| "-".to_owned(), |code| code.to_string());
            let fault = one
                .fault
                .map_or_else(String::new, |fault| fault.to_string());
            let seconds = at.as_secs_f64();
            text.push_str(&format!(
                "{seconds:>8.3} {answer:>4} {} {fault}\n",
                one.point
            ));
        }
        for log in logs {
            text.push_str("\n== a process\n");
            text.push_str(log);
        }
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Waits until the state is that of the fault-free play, somebody leads, and nothing is written for a
    /// while; no longer than the limit, because the oracles judge what there is then.
    async fn converged(&self, stage: &Stage, baseline: Option<&Outcome>) {
        let begin = Instant::now();
        let still = match baseline {
            Some(_) => STILL,
            None => STILL_WHEN_LEARNING,
        };
        // A process that was killed at the very end has a successor, who must be watched, too; and what
        // was repaired may turn away from its end once more (drift/create-events:#4=kill-after).
        let mut since = None;
        while begin.elapsed() < stage.limit(CONVERGE) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if since.is_none() && self.is_there(stage, baseline).await {
                since = Some(Instant::now());
            }
            let last = stage.operator_set.last_write().unwrap_or(begin).max(begin);
            if since.is_some_and(|since| since.elapsed() >= still) && last.elapsed() >= still {
                if self.is_there(stage, baseline).await {
                    break;
                }
                since = None;
            }
        }
    }

    /// Whether the state is that of the fault-free play, and somebody leads.
    async fn is_there(&self, stage: &Stage, baseline: Option<&Outcome>) -> bool {
        let home = &stage.namespace;
        let is_there = match baseline {
            Some(baseline) => {
                let now = Canonical::of(&self.history.of(home, &self.watched), home);
                canonical::difference(&baseline.canonical, &now).is_empty()
            }
            // What is being deleted takes the kubelet's time, not the operator's.
            None => {
                let now = self.history.now(home, &self.watched);
                let metadata = |one: &Seen| one.object["metadata"].clone();
                now.iter()
                    .all(|one| metadata(one)["deletionTimestamp"].is_null())
            }
        };
        is_there && stage.operator_set.leader().await.is_some()
    }

    /// Nothing of a play stays that works: what runs on the node, and what the API server has to
    /// read at each request. The empty namespace goes with the cluster; to delete it costs as much as
    /// the play.
    async fn clean(&self, namespace: &str) -> Result<()> {
        self.release(namespace).await?;
        let params = DeleteParams::background();
        Api::<Job>::namespaced(self.client.clone(), namespace)
            .delete_collection(&params, &ListParams::default())
            .await?;
        self.sweep(namespace).await?;
        let name = operator::cluster_name(namespace);
        Api::<ClusterRoleBinding>::all(self.client.clone())
            .delete(&name, &params)
            .await?;
        Api::<ClusterRole>::all(self.client.clone())
            .delete(&name, &params)
            .await?;
        self.history.forget(namespace);
        Ok(())
    }

    /// Takes away what belongs to no namespace, and namespaces with all that is in them. It is not waited
    /// for.
    async fn sweep(&self, home: &str) -> Result<()> {
        if self.selected.is_empty() {
            return Ok(());
        }
        let params = DeleteParams::default().grace_period(0);
        Api::<Pod>::namespaced(self.client.clone(), home)
            .delete_collection(&params, &ListParams::default())
            .await?;
        for seen in self.history.now(home, &self.watched) {
            let metadata = &seen.object["metadata"];
            if !metadata["namespace"].is_null() || seen.name == home {
                continue;
            }
            let Some(resource) = self.watched.iter().find(|one| one.plural == seen.resource) else {
                continue;
            };
            let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
            gone(objects.delete(&seen.name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Takes all finalizers off: nobody is there any more to do it.
    async fn release(&self, namespace: &str) -> Result<()> {
        for seen in self.history.now(namespace, &self.watched) {
            let metadata = &seen.object["metadata"];
            let finalizers = metadata["finalizers"].as_array();
            // The cluster takes its own ones off.
            let is_of_cluster = |name: &serde_json::Value| {
                let name = name.as_str().unwrap_or_default();
                name.starts_with("kubernetes.io/")
            };
            if finalizers.is_none_or(|all| all.iter().all(is_of_cluster)) {
                continue;
            }
            let Some(resource) = self.watched.iter().find(|one| one.plural == seen.resource) else {
                continue;
            };
            let objects: Api<DynamicObject> = match metadata["namespace"].as_str() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
                None => Api::all_with(self.client.clone(), resource),
            };
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let params = PatchParams::default();
            gone(objects.patch(&seen.name, &params, &patch).await)?;
        }
        Ok(())
    }
}

/// That it is not there any more is what is wanted; two who write at once meet again.
fn gone<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
