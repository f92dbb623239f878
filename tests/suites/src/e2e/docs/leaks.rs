//! Where a credential must not be.

use anyhow::{Context, Result, ensure};
use api::tasks::DocsRun;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use testkit::git::Repository;

use super::{
    super::fixture::RunKind,
    fixture::{Bench, Docs},
};

/// What the containers of a run's Pod wrote; nothing if one was not started.
pub(super) struct Said {
    pub(super) clone: String,
    pub(super) agent: String,
    pub(super) publish: String,
}

impl Bench {
    /// No credential is in anything that the remote has, nor in what the run's containers wrote,
    /// nor in the run itself.
    pub(super) async fn leaks_nothing(
        &self,
        run: &DocsRun,
        repository: &Repository,
    ) -> Result<Said> {
        let said = Said {
            clone: self.said(run, "clone").await?,
            agent: self.said(run, "agent").await?,
            publish: self.said(run, "publish").await?,
        };
        let mut places = vec![
            ("log of clone".to_owned(), said.clone.clone().into_bytes()),
            (
                "log of the agent".to_owned(),
                said.agent.clone().into_bytes(),
            ),
            (
                "log of publish".to_owned(),
                said.publish.clone().into_bytes(),
            ),
            ("run".to_owned(), serde_json::to_vec(run)?),
            (
                "Pods".to_owned(),
                serde_json::to_vec(&self.pods_of(run).await?)?,
            ),
        ];
        for branch in repository.branches()?.into_keys() {
            for path in repository.files(&branch)?.into_keys() {
                let text = repository.read(&branch, &path)?.unwrap_or_default();
                places.push((format!("file '{path}' of branch '{branch}'"), text));
                places.push((format!("name of a file of branch '{branch}'"), path.into()));
            }
            let log = format!("{:?}", repository.log(&branch)?);
            places.push((format!("messages of branch '{branch}'"), log.into()));
        }
        for secret in Docs::secrets(&self.git) {
            ensure!(!secret.is_empty(), "no secret to look for");
            for (place, text) in &places {
                let text = String::from_utf8_lossy(text);
                ensure!(!text.contains(&secret), "a credential is in the {place}");
            }
        }
        Ok(said)
    }

    async fn said(&self, run: &DocsRun, container: &str) -> Result<String> {
        let pods = self.pods_of(run).await?;
        let pod = pods.first().context("no Pod")?;
        if !has_begun(pod, container) {
            return Ok(String::new());
        }
        self.logs(run, container).await
    }
}

/// What the kubelet says of all containers of a Pod.
pub(super) fn containers(pod: &Pod) -> Vec<ContainerStatus> {
    let status = pod.status.clone().unwrap_or_default();
    let mut all = status.init_container_statuses.unwrap_or_default();
    all.extend(status.container_statuses.unwrap_or_default());
    all
}

/// Whether a container of the Pod was ever started.
pub(super) fn has_begun(pod: &Pod, container: &str) -> bool {
    let begun = |state: Option<ContainerState>| {
        state.is_some_and(|state| {
            let ended = state.terminated.and_then(|ended| ended.started_at);
            state.running.is_some() || ended.is_some()
        })
    };
    containers(pod)
        .into_iter()
        .filter(|one| one.name == container)
        .any(|one| begun(one.state) || begun(one.last_state))
}
