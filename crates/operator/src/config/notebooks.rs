//! Settings of the operator of NotebookValidationJobs.

use std::time::Duration;

use notebooks::world::NotebookSettings;
use schemars::JsonSchema;
use serde::Deserialize;
use tasks::run::docs::Settings;

use super::read;

/// Settings of the operator of NotebookValidationJobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Notebooks {
    /// Image of the container that fetches the notebooks. The default is the toolbox image, as in
    /// `tasks.docs.toolboxImage`.
    #[serde(deserialize_with = "read::toolbox_image")]
    #[schemars(length(min = 1, max = 512))]
    pub toolbox_image: String,
    /// Image of the container that drives the kernel, compares the outputs and reports.
    #[serde(deserialize_with = "read::runner_image")]
    #[schemars(length(min = 1, max = 512))]
    pub runner_image: String,
    /// Networks of Git servers in addition to public addresses, as CIDRs. Pods, Services and nodes usually
    /// have private addresses. Without this setting, no job reaches them.
    #[serde(deserialize_with = "read::networks")]
    pub allowed_networks: Vec<String>,
    /// Whether `http://` repositories are allowed. Their credentials are transferred in plain text.
    pub plain_http: bool,
    /// Maximum disk space of a repository on a node, in MiB.
    #[serde(rename = "repositoryLimitMiB", deserialize_with = "read::mebibytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub repository_limit_mib: u32,
    /// Whether a Pod may differ from the template of its Job. Webhooks that change Pods need it. It is safe
    /// where an admission policy lets nobody but the Job controller create such Pods.
    pub accept_changed_pods: bool,
    /// Full results of jobs.
    pub results: NotebookResults,
    /// Cleanup of a job's Jobs after it has finished, unless the job overrides it.
    pub cleanup: NotebookCleanup,
}

impl Default for Notebooks {
    fn default() -> Self {
        let NotebookSettings {
            step,
            runner_image,
            max_result_bytes,
            accept_changed_pods,
            cleanup: _,
        } = NotebookSettings::default();
        let Settings {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        } = step;
        Self {
            toolbox_image,
            runner_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
            accept_changed_pods,
            results: NotebookResults {
                max_bytes: max_result_bytes,
            },
            cleanup: NotebookCleanup::default(),
        }
    }
}

/// Full results of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NotebookResults {
    /// Maximum size of a compressed result, in bytes. Above it, the runner drops the executed notebook first, then
    /// equal cells, then texts. etcd stores each result until `results.ttl` of its job, so it is not an archive.
    #[serde(deserialize_with = "read::result_bytes")]
    #[schemars(range(min = 4096, max = 524_288))]
    pub max_bytes: u32,
}

impl Default for NotebookResults {
    fn default() -> Self {
        Notebooks::default().results
    }
}

/// Cleanup of a job's Jobs after it has finished, unless the job overrides it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NotebookCleanup {
    /// Whether Jobs of finished jobs are deleted.
    pub enabled: bool,
    /// Minutes that Jobs are kept after a success.
    #[serde(deserialize_with = "read::minutes")]
    #[schemars(range(min = 0, max = 527_040))]
    pub completed_job_delay_minutes: u32,
    /// Minutes that Jobs are kept after any other end.
    #[serde(deserialize_with = "read::minutes")]
    #[schemars(range(min = 0, max = 527_040))]
    pub failed_job_delay_minutes: u32,
}

impl Default for NotebookCleanup {
    fn default() -> Self {
        Self {
            enabled: true,
            completed_job_delay_minutes: 5,
            failed_job_delay_minutes: 60,
        }
    }
}

impl Notebooks {
    /// Returns the settings for the operator.
    #[must_use]
    pub fn settings(&self) -> NotebookSettings {
        let Self {
            toolbox_image,
            runner_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
            accept_changed_pods,
            results,
            cleanup,
        } = self.clone();
        let minutes = |count: u32| Duration::from_secs(u64::from(count).saturating_mul(60));
        NotebookSettings {
            step: Settings {
                toolbox_image,
                allowed_networks,
                plain_http,
                repository_limit_mib,
            },
            runner_image,
            max_result_bytes: results.max_bytes,
            accept_changed_pods,
            cleanup: tasks::run::Cleanup {
                enabled: cleanup.enabled,
                after_success: minutes(cleanup.completed_job_delay_minutes),
                after_failure: minutes(cleanup.failed_job_delay_minutes),
                // A job has no ConfigMap but its result, which has its own time.
                delete_config_map: true,
            },
        }
    }
}
