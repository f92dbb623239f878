//! Scenarios of DocsRuns, with a real Git server.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use api::tasks::DocsRun;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use testkit::{
    faults::scenario_run::{Proof, Scenario, Stage},
    git::{Hook, Repository, Server},
    suite,
    wait::{met, until},
};

use super::{super::actions::proof, LIMIT, agent, gone, stands, tells};

const RUNS: &str = "docsruns";

/// How long the server looks at a push that is to be seen on its way.
const HOOK: Duration = Duration::from_secs(6);

/// How long the server waits with its answer to a push whose branch goes meanwhile.
const ANSWER: Duration = Duration::from_secs(6);

/// The branch that is pushed to.
const BRANCH: &str = "docs/work";

/// Where a DocsRun may reach its server, and what takes its steps.
const CONFIG: &str = concat!(
    "tasks: {docs: {toolboxImage: 'localhost/orchestrator-toolbox:",
    env!("CARGO_PKG_VERSION"),
    "', allowedNetworks: [198.18.0.0/24]}}\n"
);

/// One of DocsRuns, each with a repository of its own on one server.
struct OfDocs {
    git: Arc<Server>,
    course: Course,
}

/// What becomes of a DocsRun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Pushed,
    /// The run is deleted while it pushes.
    Deleted,
    /// The branch is deleted on the server, between the push and its answer.
    Lost,
}

impl Scenario for OfDocs {
    fn name(&self) -> &'static str {
        match self.course {
            Course::Pushed => "docs",
            Course::Deleted => "docs-delete",
            Course::Lost => "docs-lost",
        }
    }

    fn config(&self) -> String {
        CONFIG.to_owned()
    }

    fn run<'a>(&'a self, stage: &'a Stage) -> BoxFuture<'a, Result<Proof>> {
        async move {
            let repository = self.prepare(stage).await?;
            // A claim is judged also if it comes where none should.
            stage.bears_out(pushed(repository.clone()));
            match self.course {
                Course::Pushed => {
                    stands(stage, RUNS, "Succeeded", "Succeeded").await?;
                    Ok(pushed(repository))
                }
                Course::Deleted => {
                    self.deleted(stage, &repository).await?;
                    Ok(proof())
                }
                Course::Lost => {
                    unpushed(stage, &repository).await?;
                    stands(stage, RUNS, "Failed", "NotVerified").await?;
                    Ok(pushed(repository))
                }
            }
        }
        .boxed()
    }
}

pub(super) fn scenarios(git: &Arc<Server>) -> Vec<Arc<dyn Scenario>> {
    vec![of(git, Course::Pushed), of(git, Course::Deleted)]
}

/// A push that the server took, and whose branch is not there when the operator asks for it.
pub(super) fn lost(git: &Arc<Server>) -> Arc<dyn Scenario> {
    of(git, Course::Lost)
}

fn of(git: &Arc<Server>, course: Course) -> Arc<dyn Scenario> {
    let git = Arc::clone(git);
    Arc::new(OfDocs { git, course })
}

/// Deletes the branch as soon as it is there.
async fn unpushed(stage: &Stage, repository: &Repository) -> Result<()> {
    until("the branch", stage.limit(LIMIT), async || {
        let is_there = repository.head(BRANCH)?.is_some();
        Ok(met(is_there, || "not pushed".to_owned()))
    })
    .await?;
    repository.delete_branch(BRANCH)
}

impl OfDocs {
    /// Repository, Secrets, Agent, and the run.
    async fn prepare(&self, stage: &Stage) -> Result<Repository> {
        let name = stage.namespace.as_str();
        let files = [("README.md", "hello\n"), ("src/main.c", "int main;\n")];
        let repository = self.git.create(name, "main", &files)?;
        match self.course {
            Course::Pushed => {}
            Course::Deleted => repository.set_hook(&Hook::SlowBefore(HOOK))?,
            Course::Lost => repository.set_hook(&Hook::SlowAfter(ANSWER))?,
        }
        let credentials = self.git.credentials_https();
        let password = credentials.get("password").context("no password")?;
        stage.canary(&String::from_utf8(password.clone())?);
        let mut access = Secret::default();
        access.metadata.name = Some("git".to_owned());
        let data = credentials.into_iter();
        access.data = Some(data.map(|(key, value)| (key, ByteString(value))).collect());
        let secrets: Api<Secret> = stage.api();
        secrets.create(&PostParams::default(), &access).await?;
        let script = format!(
            "mkdir -p $ORCHESTRATOR_OUTPUT_DIR\n\
             echo hello > $ORCHESTRATOR_OUTPUT_DIR/index.md\n{}",
            tells(stage, "done")
        );
        agent(stage, &script, json!({})).await?;
        let run = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
            "metadata": { "name": "work" },
            "spec": {
                "repositoryUrl": self.git.https_url(name), "sourceBranch": "main",
                "agentName": "work", "credentialsSecretRef": { "name": "git" },
                "output": { "branch": BRANCH },
            },
        });
        suite::create::<DocsRun>(&stage.api(), run).await?;
        Ok(repository)
    }

    /// Deletes the run while the server looks at its push.
    async fn deleted(&self, stage: &Stage, repository: &Repository) -> Result<()> {
        until("a push", stage.limit(LIMIT), async || {
            let seen = repository.activity()?;
            Ok(met(seen.pushes > 0, || format!("{seen:?}")))
        })
        .await?;
        let runs: Api<DocsRun> = stage.api();
        runs.delete("work", &DeleteParams::default()).await?;
        gone(stage, RUNS).await
    }
}

/// A DocsRun that says that it succeeded names the one commit that was pushed, and the branch is
/// there.
fn pushed(repository: Repository) -> Proof {
    Box::new(move |seen| {
        if seen.resource != RUNS {
            return Ok(());
        }
        let named = seen.object["status"]["commit"].as_str();
        let head = repository.head(BRANCH).map_err(|error| error.to_string())?;
        if named.is_none() || named != head.as_deref() {
            return Err(format!("it names {named:?}, and the branch is at {head:?}"));
        }
        let commits = repository.log(BRANCH).map_err(|error| error.to_string())?;
        if commits.len() != 2 {
            return Err(format!("{} commits, wanted 2", commits.len()));
        }
        Ok(())
    })
}
