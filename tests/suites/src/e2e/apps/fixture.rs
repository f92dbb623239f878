//! The place of a case: its namespace, a Git server, and an operator with the permissions and the policies of the chart.

use std::time::{Duration, Instant};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::{
    apps::{AppPhase, ManagedApp, ManagedAppStatus, OPERATOR},
    policy,
    rbac::Permission,
    status::condition,
};
use kube::{Api, ResourceExt, core::ApiResource};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    git::{Entry, Server},
    operator::{self, Operator, Plan},
    suite::Env,
    wait::until,
};

use super::super::{policies::Bound, status_history::StatusHistory, why};
use crate::flux::{Source, create_any, kustomization};

/// Long enough for Flux to apply a commit, and for a few Pods to start on a machine with much to do.
pub(super) const LIMIT: Duration = Duration::from_secs(90);
/// Time in which helm-controller installs or upgrades the chart `shop` with its database.
pub(super) const RELEASED: Duration = Duration::from_secs(180);
/// S1.8: maximum age of a status.
pub(super) const FRESH: Duration = Duration::from_secs(30);

/// Interval of Flux in most cases: nothing happens at it during a case.
pub(super) const RARELY: &str = "10m";

/// The place of a case.
pub(super) struct Bench {
    pub(super) env: Env,
    pub(super) operator: Operator,
    pub(super) git: Server,
    plan: Plan,
    policies: Vec<Bound>,
    history: StatusHistory,
}

impl Bench {
    /// Starts an operator that watches the namespace of the case.
    pub(super) async fn new(env: Env) -> Result<Self> {
        let git = Server::in_cluster(env.testbed("a Git server in the cluster's network")?)?;
        Self::with(env, git, "").await
    }

    /// Does the same with a Git server in the network of the cluster of `env`, and with more lines in the configuration.
    pub(super) async fn with(env: Env, git: Server, config: &str) -> Result<Self> {
        operator::install(&env.client, OPERATOR.crds()).await?;
        let policies = policies(&env).await?;
        let history = watch(&env).await?;
        let plan = Plan {
            watched: vec![env.namespace.clone()],
            config: config.to_owned(),
            ..Plan::new(operator::built()?, &OPERATOR, &env.namespace)
        };
        let operator = Operator::start(&env.client, &env.config, &plan).await?;
        Ok(Self {
            env,
            operator,
            git,
            plan,
            policies,
            history,
        })
    }

    /// Stops the operator, and starts one with another configuration and other permissions.
    pub(super) async fn restarted(
        self,
        config: &str,
        permissions: &'static [Permission],
    ) -> Result<Self> {
        ended_well(self.operator).await?;
        let plan = Plan {
            config: config.to_owned(),
            permissions,
            ..self.plan
        };
        let operator = Operator::start(&self.env.client, &self.env.config, &plan).await?;
        Ok(Self {
            operator,
            plan,
            env: self.env,
            git: self.git,
            policies: self.policies,
            history: self.history,
        })
    }

    /// Kills the operator, and starts another one with the same plan. It leads when the Lease of the first one is over.
    pub(super) async fn replace_operator(&mut self) -> Result<()> {
        has_no_panic(&self.operator)?;
        self.operator.signal(Signal::SIGKILL)?;
        let Env { client, config, .. } = &self.env;
        self.operator = Operator::start(client, config, &self.plan).await?;
        Ok(())
    }

    pub(super) fn apps(&self) -> Api<ManagedApp> {
        self.env.api()
    }

    /// Creates a repository with these objects, and the objects of Flux of the same name that apply it.
    pub(super) async fn apply(
        &self,
        (name, interval): (&str, &str),
        objects: &[Value],
    ) -> Result<Source> {
        let files: Vec<(String, String)> = objects.iter().map(file).collect();
        self.apply_files((name, interval), &files).await
    }

    /// Does the same with files of any content.
    pub(super) async fn apply_files(
        &self,
        (name, interval): (&str, &str),
        files: &[(String, String)],
    ) -> Result<Source> {
        let files = files.iter();
        let files: Vec<(&str, &str)> = files
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let source = Source::new(&self.env, &self.git, (name, interval), &files).await?;
        let mut object = kustomization(&self.env, name, name, "./app");
        object["spec"]["interval"] = json!(interval);
        create_any(&self.env, object).await?;
        Ok(source)
    }

    /// Applies these objects, and creates a ManagedApp of the same name, which must become Ready.
    pub(super) async fn launch(&self, name: &str, objects: &[Value]) -> Result<Source> {
        let source = self.apply((name, RARELY), objects).await?;
        self.manage(name, name).await?;
        self.ready(name, &source.revision()?, LIMIT).await?;
        Ok(source)
    }

    /// Creates a ManagedApp for a Kustomization of the case's namespace.
    pub(super) async fn manage(&self, name: &str, kustomization: &str) -> Result<ManagedApp> {
        self.env.create(managed_app(name, kustomization)).await
    }

    /// Reads the status of a ManagedApp. It must be sane.
    pub(super) async fn status(&self, name: &str) -> Result<ManagedAppStatus> {
        let seen = self.apps().get(name).await?;
        sane(&seen)?;
        Ok(seen.status.unwrap_or_default())
    }

    /// Waits until the status of a ManagedApp is as wanted.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&ManagedAppStatus) -> bool,
    ) -> Result<ManagedAppStatus> {
        let what = format!("ManagedApp '{name}': {what}");
        until(&what, within, async || {
            let status = self.status(name).await?;
            let is_current = status.progress.observed_generation != -1;
            Ok(if is_current && wanted(&status) {
                Ok(status)
            } else {
                Err(brief(&status))
            })
        })
        .await
    }

    /// Waits until a ManagedApp is Ready at a revision.
    pub(super) async fn ready(
        &self,
        name: &str,
        revision: &str,
        within: Duration,
    ) -> Result<ManagedAppStatus> {
        let what = format!("Ready at '{revision}'");
        self.until(name, within, &what, |status| {
            let applied = status.git.as_ref().map(|git| git.revision.as_str());
            status.progress.is_true(condition::READY) && applied == Some(revision)
        })
        .await
    }

    /// Waits until a ManagedApp is not Ready for this reason, with these parts of the message. `orc why` must name the
    /// blocker. Returns the message and the time until then.
    pub(super) async fn reports(
        &self,
        name: &str,
        reason: &str,
        parts: &[&str],
    ) -> Result<(String, Duration)> {
        let begin = Instant::now();
        let what = format!("{reason} with {parts:?}");
        let status = self
            .until(name, FRESH, &what, |status| {
                let text = message(status);
                ready_reason(status) == reason && parts.iter().all(|part| text.contains(*part))
            })
            .await?;
        let took = begin.elapsed();
        ensure!(
            status.phase == Some(AppPhase::Degraded),
            "{}",
            brief(&status)
        );
        let place = (self.env.namespace.as_str(), name);
        let (client, home) = (&self.env.client, place.0);
        why::ask(client, TargetKind::ManagedApp, place, home, reason).await?;
        Ok((message(&status).to_owned(), took))
    }

    /// Returns namespace and name of an object of the case, as messages have them.
    pub(super) fn quoted(&self, kind: &str, name: &str) -> String {
        format!("{kind} '{}/{name}'", self.env.namespace)
    }

    /// Ends the operator well. Each version of each ManagedApp must have been right for other tools.
    pub(super) async fn done(self) -> Result<()> {
        ended_well(self.operator).await?;
        self.history.judge().await?;
        for bound in self.policies {
            bound.release().await?;
        }
        Ok(())
    }
}

/// Stops an operator. It must not have panicked or met a bug.
async fn ended_well(operator: Operator) -> Result<()> {
    has_no_panic(&operator)?;
    for row in OPERATOR.kinds {
        let kind = row.name();
        let bugs = format!(r#"orchestrator_reconcile_errors_total{{kind="{kind}",class="Bug"}}"#);
        ensure!(
            operator.metric(&bugs).await? < 0.5,
            "a bug: {}",
            operator.log_text()?
        );
    }
    operator.stop().await
}

fn has_no_panic(operator: &Operator) -> Result<()> {
    let log = operator.log_text()?;
    ensure!(!log.contains("panicked"), "the operator panicked: {log}");
    Ok(())
}

/// Creates the policies of the chart: those about authors in the case's namespace, that about the operator everywhere.
async fn policies(env: &Env) -> Result<Vec<Bound>> {
    let namespace = env.namespace.as_str();
    let user = format!("system:serviceaccount:{namespace}:{}", operator::ACCOUNT);
    let mut of_authors = policy::apps();
    policy::fill(&mut of_authors, policy::LABEL_WRITERS, &[user.as_str()]);
    let mut of_operator = policy::app_operator();
    for policy in &mut of_operator {
        let spec = policy.spec.get_or_insert_default();
        spec.match_conditions = Some(vec![policy::by_user(&user)]);
    }
    Ok(vec![
        Bound::new(env, of_authors, Some(namespace)).await?,
        Bound::new(env, of_operator, None).await?,
    ])
}

/// Watches all objects of the operator's kinds in the case's namespace from now on.
pub(super) async fn watch(env: &Env) -> Result<StatusHistory> {
    let objects = OPERATOR.kinds.iter().map(|row| {
        let resource = row.resource;
        let resource = ApiResource {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            api_version: resource.api_version(),
            kind: resource.kind.to_owned(),
            plural: resource.plural.to_owned(),
        };
        Api::namespaced_with(env.client.clone(), &env.namespace, &resource)
    });
    StatusHistory::of(objects.collect()).await
}

/// A ManagedApp for a Kustomization of its own namespace.
pub(super) fn managed_app(name: &str, kustomization: &str) -> Value {
    json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "ManagedApp",
        "metadata": { "name": name },
        "spec": { "kustomizationRef": { "name": kustomization } },
    })
}

/// Returns path and content of the file of an object.
pub(super) fn file(object: &Value) -> (String, String) {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    (format!("app/{kind}-{name}.yaml"), object.to_string())
}

/// Commits objects to the directory that Flux applies. Returns the revision.
pub(super) async fn put(source: &Source, message: &str, objects: &[Value]) -> Result<String> {
    let files: Vec<(String, String)> = objects.iter().map(file).collect();
    let changes: Vec<(&str, Entry<'_>)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), Entry::File(text.as_bytes())))
        .collect();
    source.push(message, &changes).await
}

/// Removes an object from the directory that Flux applies. Returns the revision.
pub(super) async fn remove(source: &Source, message: &str, object: &Value) -> Result<String> {
    let (path, _) = file(object);
    source
        .push(message, &[(path.as_str(), Entry::Removed)])
        .await
}

/// The status in a line.
pub(super) fn brief(status: &ManagedAppStatus) -> String {
    let revision = status.git.as_ref().map(|git| git.revision.as_str());
    format!(
        "{:?} {} at {revision:?}: {}",
        status.phase,
        ready_reason(status),
        message(status)
    )
}

fn message(status: &ManagedAppStatus) -> &str {
    status.progress.message.as_deref().unwrap_or_default()
}

/// The reason of the condition `Ready`.
fn ready_reason(status: &ManagedAppStatus) -> &str {
    let ready = status.progress.condition(condition::READY);
    ready.map_or("", |known| known.reason.as_str())
}

/// A ManagedApp has it only while its deletion would have to wait.
const FINALIZER: &str = "managedapps.orchestrator.io/finalizer";

/// Checks the rules that hold at every instant.
fn sane(app: &ManagedApp) -> Result<()> {
    let status = app.status.as_ref();
    let status = status.context("S0.3: no status, although the CRD has a default")?;
    let is = |kind: &str| status.progress.is_true(kind);
    ensure!(
        status.phase.is_some() && !message(status).is_empty(),
        "S0.3: phase {:?}, message '{}'",
        status.phase,
        message(status)
    );
    // A healthy application may be the subject of a request.
    let may_be_ready = match status.phase {
        Some(AppPhase::Ready) => is(condition::READY),
        Some(AppPhase::Operating) => true,
        Some(AppPhase::Pending | AppPhase::Degraded | AppPhase::Terminating) | None => {
            !is(condition::READY)
        }
    };
    ensure!(
        may_be_ready,
        "Ready and the phase disagree: {}",
        brief(status)
    );
    ensure!(
        !(is(condition::RECONCILING) && is(condition::STALLED)),
        "Reconciling and Stalled: {}",
        brief(status)
    );
    let is_own = |one: &String| one == FINALIZER;
    ensure!(
        app.finalizers().iter().all(is_own) && app.owner_references().is_empty(),
        "finalizers {:?}, owners {:?}",
        app.finalizers(),
        app.owner_references()
    );
    Ok(())
}
