//! DocsRuns, as their cases play them.

use std::{sync::Arc, time::Duration};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::tasks::{DocsRun, DocsRunStatus};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{LogParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    git::{Credentials, Network, Repository, Server},
    suite::Env,
};

use super::super::fixture::{Fixture, RunKind};
pub(super) use super::super::{
    children,
    fixture::{BUSYBOX, Expect},
    reading::{brief, phase_of, reason_of, says_all},
};

pub(super) type Bench = Fixture<Docs>;

pub(super) const LIMIT: Duration = Docs::LIMIT;

/// The Secret of most runs.
pub(super) const SECRET: &str = "git";

/// An agent that writes one page from what it sees.
pub(super) const WRITER: &str = r#"set -e
mkdir -p "$ORCHESTRATOR_OUTPUT_DIR"
ls -R "$ORCHESTRATOR_SOURCE_DIR" > "$ORCHESTRATOR_OUTPUT_DIR/index.md"
echo "by $ORCHESTRATOR_RUN" >> "$ORCHESTRATOR_OUTPUT_DIR/index.md""#;

/// DocsRuns.
pub(super) struct Docs;

impl RunKind for Docs {
    type Run = DocsRun;
    type Status = DocsRunStatus;
    type Git = Server;

    const TARGET: TargetKind = TargetKind::DocsRun;
    // Three containers.
    const LIMIT: Duration = Duration::from_secs(90);
    const WITHIN: Duration = Self::LIMIT;
    const COLLECTED: Duration = Duration::from_secs(60);
    const MEMORY: &'static str = "128Mi";
    // The operator may reach the case's Git server.
    const LINES: &'static str = "    allowedNetworks: [198.18.0.0/24]\n";
    const IS_EXACT: bool = false;

    fn git(env: &Env) -> Result<(Server, Option<Arc<Network>>)> {
        let cluster = env.testbed("a Git server in the cluster's network")?;
        let network = Network::of(cluster)?;
        Ok((Server::in_cluster(cluster)?, Some(Arc::new(network))))
    }

    /// With these lines of `tasks.docs`. Lines without indentation belong to the whole configuration.
    fn config(lines: &str) -> String {
        let image = super::TOOLBOX;
        format!("tasks:\n  docs:\n    toolboxImage: {image}\n{lines}")
    }

    /// On the repository of the same name, over https with [`SECRET`].
    fn spec(git: &Server, name: &str) -> Value {
        json!({
            "repositoryUrl": git.https_url(name), "sourceBranch": "main",
            "agentName": name, "credentialsSecretRef": { "name": SECRET },
        })
    }

    fn secrets(git: &Server) -> Vec<String> {
        let password = git.credentials_https().remove("password");
        let identity = git.credentials_ssh().remove("identity");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let key = identity.map(text).unwrap_or_default();
        // A line of the key's body: the frame around it is the same for all keys.
        let line = key.lines().nth(2).unwrap_or_default().to_owned();
        password.map(text).into_iter().chain([line]).collect()
    }
}

impl Bench {
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

    /// Waits for the end of a run that must have pushed exactly one commit, which is on the remote.
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
