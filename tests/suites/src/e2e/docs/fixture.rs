//! What the cases of DocsRuns have in common.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::{
    names,
    status::condition,
    tasks::{Agent, DocsRun, DocsRunStatus},
};
use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Pod, Secret},
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    git::{Credentials, Network, Repository, Server},
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

/// Long enough for three containers on a machine with much to do.
pub(super) const LIMIT: Duration = Duration::from_secs(90);

/// The Secret of most runs.
pub(super) const SECRET: &str = "git";

/// An agent that writes one page from what it sees.
pub(super) const WRITER: &str = r#"set -e
mkdir -p "$ORCHESTRATOR_OUTPUT_DIR"
ls -R "$ORCHESTRATOR_SOURCE_DIR" > "$ORCHESTRATOR_OUTPUT_DIR/index.md"
echo "by $ORCHESTRATOR_RUN" >> "$ORCHESTRATOR_OUTPUT_DIR/index.md""#;

/// A case's place: its namespace, its Git server, and an operator that watches it.
pub(super) struct Bench {
    pub(super) env: Env,
    pub(super) git: Server,
    pub(super) operator: Operator,
    pub(super) plan: Plan,
    history: StatusHistory,
}

/// The same with no operator at work.
pub(super) struct Down {
    pub(super) env: Env,
    pub(super) git: Server,
    pub(super) plan: Plan,
    history: StatusHistory,
}

impl Down {
    /// Starts an operator, perhaps with another plan than before.
    pub(super) async fn up(self) -> Result<Bench> {
        let Self {
            env,
            git,
            plan,
            history,
        } = self;
        let operator = Operator::start(&env.client, &env.config, &plan).await?;
        Ok(Bench {
            env,
            git,
            operator,
            plan,
            history,
        })
    }

    pub(super) fn runs(&self) -> Api<DocsRun> {
        self.env.api()
    }
}

/// How a run must end.
pub(super) struct Expect<'a> {
    pub(super) phase: &'a str,
    pub(super) reason: &'a str,
    /// What its message must say.
    pub(super) says: &'a [&'a str],
    /// The reasons of its Events that must be there.
    pub(super) events: &'a [&'a str],
    pub(super) attempts: u32,
    pub(super) disruptions: u32,
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
            // An agent may have started and ended between two looks: its start is not always told.
            events: &["Succeeded"],
            attempts: 1,
            disruptions: 0,
            jobs: 1,
            within: LIMIT,
        }
    }
}

impl Expect<'_> {
    /// A failure for this reason.
    pub(super) fn failure(reason: &'static str) -> Expect<'static> {
        Expect {
            phase: "Failed",
            reason,
            events: match reason {
                "AddressNotAllowed" => &["AddressNotAllowed"],
                _ => &[],
            },
            ..Expect::default()
        }
    }
}

impl Bench {
    /// With an operator that may reach the case's Git server.
    pub(super) async fn new(env: Env) -> Result<Self> {
        Self::configured(env, "    allowedNetworks: [198.18.0.0/24]\n").await
    }

    /// With these lines of `tasks.docs`.
    pub(super) async fn configured(env: Env, docs: &str) -> Result<Self> {
        let home = env.namespace.clone();
        Self::planned(env, home, docs).await
    }

    /// The same, with an operator that is at home in another namespace. Lines without indentation
    /// belong to the whole configuration.
    pub(super) async fn planned(env: Env, home: String, docs: &str) -> Result<Self> {
        let config = format!(
            "tasks:\n  docs:\n    toolboxImage: {}\n{docs}",
            super::TOOLBOX
        );
        operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let cluster = env.testbed("a Git server in the cluster's network")?;
        let git = Server::in_cluster(cluster)?;
        let network = Arc::new(Network::of(cluster)?);
        let watched = vec![env.namespace.clone()];
        let history = StatusHistory::new(&env.client, &watched).await?;
        let binary = testkit::process::this_program()?;
        let folder = binary.parent().context("this program is in no folder")?;
        let plan = Plan {
            binary: operator::built(folder)?,
            operator: "tasks",
            home,
            watched,
            config,
            permissions: api::tasks::OPERATOR.permissions,
            network: Some(network),
            endpoint: None,
            environment: Vec::new(),
        };
        let down = Down {
            env,
            git,
            plan,
            history,
        };
        down.up().await
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
            git,
            operator,
            plan,
            history,
        } = self;
        let down = Down {
            env,
            git,
            plan,
            history,
        };
        (operator, down)
    }

    pub(super) fn runs(&self) -> Api<DocsRun> {
        self.env.api()
    }

    /// A repository with sources, and the Secret [`SECRET`] for it over https.
    pub(super) async fn repository(&self, name: &str) -> Result<Repository> {
        let repository = self.git.create(
            name,
            "main",
            &[
                ("README.md", "hello\n"),
                ("src/main.c", "int main(void) { return 0; }\n"),
                ("service/api/api.txt", "GET /\n"),
                ("docs/old.md", "old\n"),
            ],
        )?;
        self.secret(SECRET, &self.git.credentials_https()).await?;
        Ok(repository)
    }

    /// A Secret with this data, made or replaced.
    pub(super) async fn secret(&self, name: &str, data: &Credentials) -> Result<()> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(
                data.iter()
                    .map(|(key, value)| (key.clone(), ByteString(value.clone())))
                    .collect(),
            ),
            ..Secret::default()
        };
        let params = PatchParams::apply("e2e").force();
        let secrets: Api<Secret> = self.env.api();
        secrets.patch(name, &params, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// An agent that runs a script; `more` is merged into its spec.
    pub(super) async fn agent(&self, name: &str, script: &str, more: Value) -> Result<Agent> {
        let mut spec = json!({
            "image": BUSYBOX,
            "command": ["/bin/sh", "-c", script],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "128Mi" } },
        });
        merge(&mut spec, more);
        let agent: Agent = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
            "metadata": { "name": name }, "spec": spec,
        }))?;
        let agents: Api<Agent> = self.env.api();
        Ok(agents.create(&PostParams::default(), &agent).await?)
    }

    /// A run of this name, of the agent and on the repository of the same name, over https with
    /// [`SECRET`]; `more` is merged into its spec.
    pub(super) async fn submit(&self, name: &str, more: Value) -> Result<DocsRun> {
        let mut spec = json!({
            "repositoryUrl": self.git.https_url(name), "sourceBranch": "main",
            "agentName": name, "credentialsSecretRef": { "name": SECRET },
        });
        merge(&mut spec, more);
        let run: DocsRun = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
            "metadata": { "name": name }, "spec": spec,
        }))?;
        Ok(self.runs().create(&PostParams::default(), &run).await?)
    }

    /// Merges `patch` into a run.
    pub(super) async fn patch(&self, name: &str, patch: Value) -> Result<DocsRun> {
        let params = PatchParams::default();
        Ok(self
            .runs()
            .patch(name, &params, &Patch::Merge(patch))
            .await?)
    }

    /// Waits until a run looks as wanted; what is seen on the way must be sane, and `orc why` must
    /// name what is wrong in the end.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&DocsRunStatus) -> bool,
    ) -> Result<DocsRun> {
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
        // On the heap: a case waits often, and all its states are on one stack.
        Box::pin(why::ask(
            &self.env.client,
            TargetKind::DocsRun,
            (&self.env.namespace, name),
            &self.plan.home,
            reason_of(&status),
        ))
        .await?;
        Ok(seen)
    }

    /// Waits until a run says this reason.
    pub(super) async fn says(&self, name: &str, reason: &str) -> Result<DocsRun> {
        self.until(name, LIMIT, reason, |status| reason_of(status) == reason)
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
    /// Events, metric, children.
    pub(super) async fn ended(&self, name: &str, expect: &Expect<'_>) -> Result<DocsRun> {
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
            disruptions,
            jobs,
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
        let told: BTreeSet<String> = events::reasons(&self.env, &uid)
            .await?
            .into_iter()
            .collect();
        let missing: Vec<_> = events.iter().filter(|one| !told.contains(**one)).collect();
        ensure!(missing.is_empty(), "Events {told:?} lack {missing:?}");
        ensure!(told.contains(*reason), "Events {told:?} lack the end");
        let series = format!(
            r#"orchestrator_runs_total{{kind="DocsRun",outcome="{phase}",reason="{reason}"}}"#
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

    /// The same, for a run that must have pushed exactly one commit, which is on the remote.
    pub(super) async fn pushed(
        &self,
        name: &str,
        repository: &Repository,
        expect: &Expect<'_>,
    ) -> Result<DocsRun> {
        let run = self.ended(name, expect).await?;
        one_commit(&run, repository)?;
        Ok(run)
    }

    /// Deletes a run; it and its children go.
    pub(super) async fn deletes(&self, run: &DocsRun) -> Result<()> {
        self.runs()
            .delete(&run.name_any(), &DeleteParams::default())
            .await?;
        self.is_gone(run, Duration::from_secs(60)).await
    }

    /// The run and everything with its UID is gone.
    pub(super) async fn is_gone(&self, run: &DocsRun, within: Duration) -> Result<()> {
        let (name, uid) = (run.name_any(), run.uid().unwrap_or_default());
        let runs = self.runs();
        let (jobs, pods, maps) = (
            self.env.api::<Job>(),
            self.env.api::<Pod>(),
            self.env.api::<ConfigMap>(),
        );
        until(
            &format!("{name} and its children to be gone"),
            within,
            async || {
                let ours = children(&uid);
                let run = runs.get_opt(&name).await?;
                let left = [
                    usize::from(run.is_some_and(|seen| seen.uid().as_deref() == Some(&uid))),
                    jobs.list(&ours).await?.items.len(),
                    pods.list(&ours).await?.items.len(),
                    maps.list(&ours).await?.items.len(),
                ];
                Ok(if left == [0; 4] {
                    Ok(())
                } else {
                    Err(format!("runs, Jobs, Pods, ConfigMaps: {left:?}"))
                })
            },
        )
        .await
    }

    /// Another operator of the same installation.
    pub(super) async fn another(&self) -> Result<Operator> {
        Operator::start(&self.env.client, &self.env.config, &self.plan).await
    }

    pub(super) async fn jobs_of(&self, run: &DocsRun) -> Result<Vec<Job>> {
        let uid = run.uid().unwrap_or_default();
        Ok(self.env.api::<Job>().list(&children(&uid)).await?.items)
    }

    pub(super) async fn maps_of(&self, run: &DocsRun) -> Result<Vec<ConfigMap>> {
        let uid = run.uid().unwrap_or_default();
        let maps: Api<ConfigMap> = self.env.api();
        Ok(maps.list(&children(&uid)).await?.items)
    }

    pub(super) async fn pods_of(&self, run: &DocsRun) -> Result<Vec<Pod>> {
        let uid = run.uid().unwrap_or_default();
        Ok(self.env.api::<Pod>().list(&children(&uid)).await?.items)
    }

    /// What a container of the run's only Pod wrote.
    pub(super) async fn logs(&self, run: &DocsRun, container: &str) -> Result<String> {
        let pods = self.pods_of(run).await?;
        let pod = pods.first().context("no Pod")?.name_any();
        let params = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        Ok(self.env.api::<Pod>().logs(&pod, &params).await?)
    }

    /// Ends the operator well: it must not have panicked or met a bug, nor have told the password.
    /// What others made of the runs on the way must have been right at every instant.
    pub(super) async fn done(self) -> Result<()> {
        let log = self.operator.log_text()?;
        ensure!(!log.contains("panicked"), "the operator panicked: {log}");
        let bugs = r#"orchestrator_reconcile_errors_total{kind="DocsRun",class="Bug"}"#;
        ensure!(self.operator.metric(bugs).await? < 0.5, "a bug: {log}");
        self.tells_no_secret(&log).await?;
        self.operator.stop().await?;
        self.history.judge().await?;
        Ok(())
    }

    /// T12: neither the log nor the metrics nor any run or Event has a credential in it.
    async fn tells_no_secret(&self, log: &str) -> Result<()> {
        let runs = serde_json::to_string(&self.runs().list(&Default::default()).await?.items)?;
        let told: Api<k8s_openapi::api::events::v1::Event> = self.env.api();
        let told = serde_json::to_string(&told.list(&Default::default()).await?.items)?;
        let metrics = self.operator.metrics().await?;
        for secret in secrets(&self.git) {
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

/// What nobody but Git's own programs may see.
pub(super) fn secrets(git: &Server) -> Vec<String> {
    let password = git.credentials_https().remove("password");
    let identity = git.credentials_ssh().remove("identity");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let key = identity.map(text).unwrap_or_default();
    // A line of the key's body: the frame around it is the same for all keys.
    let line = key.lines().nth(2).unwrap_or_default().to_owned();
    password.map(text).into_iter().chain([line]).collect()
}

/// The remote has the branch at the run's commit, which is one more than before and names the run.
pub(super) fn one_commit(run: &DocsRun, repository: &Repository) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let branch = status.branch.context("no branch in the status")?;
    let commit = status.commit.context("no commit in the status")?;
    let head = repository.head(&branch)?;
    ensure!(
        head.as_ref() == Some(&commit),
        "{branch} is at {head:?}, not at {commit}"
    );
    let uid = run.uid().unwrap_or_default();
    let trailer = ("Orchestrator-Run".to_owned(), uid);
    let log = repository.log(&branch)?;
    let ours: Vec<_> = log
        .iter()
        .filter(|one| one.trailers.contains(&trailer))
        .collect();
    ensure!(
        ours.len() == 1,
        "{} commits of this run: {log:?}",
        ours.len()
    );
    let parent = status.branch_head.or(status.base_commit);
    ensure!(
        log.get(1).map(|one| Some(&one.id)) == Some(parent.as_ref()),
        "not on {parent:?}: {log:?}"
    );
    Ok(())
}
