//! NotebookValidationJobs, as their cases play them.

use std::{collections::BTreeMap, io::Read, sync::Arc, time::Duration};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::{
    Status,
    kinds::OperatorRow,
    notebooks::{CellResult, Difference, NotebookValidationJob, NotebookValidationJobStatus},
};
use flate2::read::GzDecoder;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{LogParams, ObjectMeta, Patch, PatchParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use testkit::{
    git::{Credentials, Network, Repository, Server},
    suite::Env,
};

use super::super::fixture::{Fixture, RunKind};
pub(super) use super::super::{
    fixture::Expect,
    reading::{brief, phase_of, reason_of},
};

pub(super) type Bench = Fixture<Notebooks>;

/// Image of the kernel.
pub(super) const KERNEL: &str = "testbed.local/notebook-base:1";
/// Secret of most jobs.
pub(super) const SECRET: &str = "git";
/// Path of the notebook.
pub(super) const NOTEBOOK: &str = "reports/sales.ipynb";
/// Path of the golden notebook.
pub(super) const GOLDEN: &str = "golden/sales.ipynb";

pub(super) const LIMIT: Duration = Notebooks::LIMIT;

/// NotebookValidationJobs.
pub(super) struct Notebooks;

impl RunKind for Notebooks {
    type Run = NotebookValidationJob;
    type Status = NotebookValidationJobStatus;
    type Git = Server;

    const OPERATOR: &'static OperatorRow = &api::notebooks::OPERATOR;
    const WAITING: &'static [&'static str] = &["Initializing", "ValidationRunning"];
    const TARGET: TargetKind = TargetKind::Notebook;
    // Three containers, and a kernel that imports its packages.
    const LIMIT: Duration = Duration::from_secs(90);
    const WITHIN: Duration = Duration::from_secs(150);
    const COLLECTED: Duration = Duration::from_secs(60);
    const MEMORY: &'static str = "512Mi";
    const LINES: &'static str = "  allowedNetworks: [198.18.0.0/24]\n";
    const IS_EXACT: bool = false;

    fn is_running(status: &Self::Status) -> bool {
        phase_of(status) == "ValidationRunning"
            && status.started_at.is_some()
            && status.progress().reason.as_deref() == Some("Progressing")
    }

    fn resources() -> Vec<ApiResource> {
        vec![ApiResource::erase::<NotebookValidationJob>(&())]
    }

    fn git(env: &Env) -> Result<(Server, Option<Arc<Network>>)> {
        let cluster = env.testbed("a Git server in the cluster's network")?;
        let network = Network::of(cluster)?;
        Ok((Server::in_cluster(cluster)?, Some(Arc::new(network))))
    }

    /// With these lines of `notebooks`.
    fn config(lines: &str) -> String {
        let (toolbox, runner) = (super::super::docs::TOOLBOX, super::RUNNER);
        format!("notebooks:\n  toolboxImage: {toolbox}\n  runnerImage: {runner}\n{lines}")
    }

    /// On the repository of the same name, over https with [`SECRET`].
    fn spec(git: &Server, name: &str) -> Value {
        json!({
            "notebook": { "git": source(git, name, "main"), "path": NOTEBOOK },
            "podConfig": pod(json!({})), "timeout": "5m", "startTimeout": "3m",
        })
    }

    fn secrets(git: &Server) -> Vec<String> {
        let password = git.credentials_https().remove("password");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        password.map(text).into_iter().collect()
    }
}

/// Returns a reference of a repository, over https with [`SECRET`].
pub(super) fn source(git: &Server, repository: &str, reference: &str) -> Value {
    json!({
        "url": git.https_url(repository), "ref": reference,
        "credentialsSecretRef": { "name": SECRET },
    })
}

/// Returns the container of the kernel. `more` is merged into it.
pub(super) fn pod(more: Value) -> Value {
    let mut all = json!({
        "containerImage": KERNEL, "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": { "cpu": "10m", "memory": "64Mi" }, "limits": { "memory": Notebooks::MEMORY },
        },
    });
    super::super::merge(&mut all, more);
    all
}

/// Returns a code cell with these outputs.
pub(super) fn cell(source: &str, outputs: &[Value]) -> Value {
    json!({
        "cell_type": "code", "execution_count": null, "metadata": {}, "source": source,
        "outputs": outputs,
    })
}

/// Returns the same cell with a tag.
pub(super) fn tagged(mut cell: Value, tag: &str) -> Value {
    cell["metadata"] = json!({ "tags": [tag] });
    cell
}

/// Returns an output on stdout.
pub(super) fn stdout(text: &str) -> Value {
    json!({ "output_type": "stream", "name": "stdout", "text": text })
}

/// Returns the result of a cell as text.
pub(super) fn result(text: &str) -> Value {
    json!({
        "output_type": "execute_result", "execution_count": 1, "metadata": {},
        "data": { "text/plain": text },
    })
}

/// Returns a notebook with these cells.
pub(super) fn notebook(cells: &[Value]) -> String {
    let cells: Vec<Value> = cells
        .iter()
        .enumerate()
        .map(|(index, cell)| {
            let mut cell = cell.clone();
            cell["id"] = json!(format!("cell-{index}"));
            cell
        })
        .collect();
    let kernel = json!({ "name": "python3", "display_name": "Python 3", "language": "python" });
    json!({
        "nbformat": 4, "nbformat_minor": 5, "metadata": { "kernelspec": kernel }, "cells": cells,
    })
    .to_string()
}

/// Returns a notebook of cells with these sources, without outputs.
pub(super) fn sources(all: &[&str]) -> String {
    let cells: Vec<Value> = all.iter().map(|source| cell(source, &[])).collect();
    notebook(&cells)
}

/// Returns the reference to the golden notebook of the same commit.
pub(super) fn with_golden() -> Value {
    json!({ "goldenNotebook": { "path": GOLDEN } })
}

impl Bench {
    /// Creates a repository with these files, and the Secret [`SECRET`] for it.
    pub(super) async fn repository(
        &self,
        name: &str,
        files: &[(&str, &str)],
    ) -> Result<Repository> {
        let repository = self.git.create(name, "main", files)?;
        self.secret(SECRET, &self.git.credentials_https()).await?;
        Ok(repository)
    }

    /// Creates a repository with a notebook of these sources, and a job of the same name.
    pub(super) async fn run(&self, name: &str, cells: &[&str], more: Value) -> Result<()> {
        self.repository(name, &[(NOTEBOOK, &sources(cells))])
            .await?;
        self.submit(name, more).await?;
        Ok(())
    }

    /// Creates a repository with a notebook and a golden notebook, and a job of the same name that compares them.
    pub(super) async fn compare(
        &self,
        name: &str,
        run: &[Value],
        golden: &[Value],
        more: Value,
    ) -> Result<()> {
        let files = [(NOTEBOOK, notebook(run)), (GOLDEN, notebook(golden))];
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        self.repository(name, &files).await?;
        let mut spec = with_golden();
        super::super::merge(&mut spec, more);
        self.submit(name, spec).await?;
        Ok(())
    }

    /// Creates or replaces a Secret with this data.
    pub(super) async fn secret(&self, name: &str, data: &Credentials) -> Result<()> {
        let data: BTreeMap<String, ByteString> = data
            .iter()
            .map(|(key, value)| (key.clone(), ByteString(value.clone())))
            .collect();
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..Secret::default()
        };
        let params = PatchParams::apply("e2e").force();
        let secrets: Api<Secret> = self.env.api();
        secrets.patch(name, &params, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Waits for the failure of a job for this reason. Returns its status.
    pub(super) async fn fails(
        &self,
        name: &str,
        reason: &str,
        says: &[&str],
    ) -> Result<NotebookValidationJobStatus> {
        let expect = Expect {
            says,
            ..Expect::failure(reason)
        };
        let job = self.ended(name, &expect).await?;
        Ok(job.status.unwrap_or_default())
    }

    /// Waits for the success of a job. Returns its status.
    pub(super) async fn succeeds(
        &self,
        name: &str,
        says: &[&str],
    ) -> Result<NotebookValidationJobStatus> {
        let expect = Expect {
            says,
            ..Expect::default()
        };
        let job = self.ended(name, &expect).await?;
        Ok(job.status.unwrap_or_default())
    }

    /// Returns the full result of a job, as its ConfigMap has it.
    pub(super) async fn full_result(&self, status: &NotebookValidationJobStatus) -> Result<Value> {
        let report = status.report.as_ref().context("no report")?;
        let name = report
            .config_map_name
            .as_ref()
            .context("the result is not stored")?;
        let map = self.env.api::<ConfigMap>().get(name).await?;
        ensure!(map.immutable == Some(true), "it can be changed");
        let data = map.binary_data.unwrap_or_default();
        let packed = data.get("result.json.gz").context("no result in it")?;
        ensure!(
            u32::try_from(packed.0.len())? == report.bytes,
            "{} bytes, the report has {}",
            packed.0.len(),
            report.bytes
        );
        let mut plain = Vec::new();
        GzDecoder::new(packed.0.as_slice()).read_to_end(&mut plain)?;
        Ok(serde_json::from_slice(&plain)?)
    }

    /// Returns the log of a container of the job's only Pod.
    pub(super) async fn log_of(
        &self,
        job: &NotebookValidationJob,
        container: &str,
    ) -> Result<String> {
        let pods = self.pods_of(job).await?;
        let pod = pods.first().context("no Pod")?.name_any();
        let params = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        Ok(self.env.api::<Pod>().logs(&pod, &params).await?)
    }
}

/// Returns the result of a cell in the status.
pub(super) fn of_cell(status: &NotebookValidationJobStatus, index: u32) -> Result<&CellResult> {
    let mut all = status.results.iter();
    all.find(|one| one.cell == index)
        .with_context(|| format!("no cell {index} in {:?}", status.results))
}

/// Returns the differences in the status.
pub(super) fn differences(status: &NotebookValidationJobStatus) -> &[Difference] {
    let compared = status.comparison_result.as_ref();
    compared.map_or(&[], |compared| compared.diffs.as_slice())
}
