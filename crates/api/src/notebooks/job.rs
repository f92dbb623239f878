//! `NotebookValidationJob`: one notebook, executed and compared with a golden notebook.

use kube::{CustomResource, CustomResourceExt, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    checks::{Comparison, Validation},
    phase::NotebookPhase,
    pod_config::PodConfig,
    rules,
    status::{NotebookValidationJobStatus, condition},
};
use crate::{
    GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    pod::NamedRef,
    rules as shared,
    tasks::{ChildTtl, Retry},
};

/// Execution of a notebook of a Git repository. Its outputs are compared with those of a golden notebook.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "NotebookValidationJob",
    plural = "notebookvalidationjobs",
    singular = "notebookvalidationjob",
    shortname = "onb",
    category = "orchestrator",
    namespaced,
    status = "NotebookValidationJobStatus",
    derive = "PartialEq",
    doc = "Execution of a notebook of a Git repository. Its outputs are compared with those of a golden notebook."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = shared::unchanging_option("goldenNotebook", "NotebookValidationJob"),
    validation = rules::cell_timeout_within_timeout(),
    validation = rules::golden_if_required()
)]
pub struct NotebookValidationJobSpec {
    /// Notebook to execute. Immutable.
    #[x_kube(validation = shared::unchanging("NotebookValidationJob"))]
    pub notebook: Notebook,

    /// Golden notebook, which holds the expected outputs. Immutable. Default: none; then nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden_notebook: Option<GoldenNotebook>,

    /// Maximum duration of one attempt, from the start of the kernel's container, from `1s` to `168h`. Default: `30m`.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = shared::duration("1s", "168h"))]
    pub timeout: Duration,

    /// Maximum time until the kernel's container of an attempt starts, from `10s` to `24h`. It also limits the wait for
    /// the Git servers. Immutable. Default: `10m`.
    #[serde(default = "default_start_timeout")]
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = shared::unchanging("NotebookValidationJob"),
        validation = shared::duration("10s", "24h")
    )]
    pub start_timeout: Duration,

    /// Retries of an attempt that failed because of its environment. The verdict about a notebook is never repeated.
    #[serde(default)]
    pub retry: Retry,

    /// Suspends the job: nothing is started, and running containers are stopped. When set back to false, the attempt
    /// restarts from the beginning. Suspended time does not count toward any timeout. Default: false.
    #[serde(default)]
    pub suspend: bool,

    /// Ends an unfinished job as `Failed` with the reason `Cancelled`, and stops running containers. This field cannot
    /// be set back to false. Default: false.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self || !oldSelf").message("cannot be taken back; submit another NotebookValidationJob"))]
    pub cancel: bool,

    /// How long the Jobs are kept after the job has ended. Overrides the operator's configuration, even if that
    /// disables the cleanup.
    #[serde(rename = "childTTL", default, skip_serializing_if = "Option::is_none")]
    pub child_ttl: Option<ChildTtl>,

    /// Content and lifetime of the stored result.
    #[serde(default)]
    pub results: Results,

    /// Container of the kernel. Immutable.
    #[x_kube(validation = shared::unchanging("NotebookValidationJob"))]
    pub pod_config: PodConfig,

    /// Comparison of the outputs with those of the golden notebook. Immutable.
    #[serde(default)]
    #[x_kube(validation = shared::unchanging("NotebookValidationJob"))]
    pub comparison: Comparison,

    /// Checks of the run, besides the comparison. Immutable.
    #[serde(default)]
    #[x_kube(validation = shared::unchanging("NotebookValidationJob"))]
    pub validation: Validation,
}

fn default_timeout() -> Duration {
    std::time::Duration::from_secs(30 * 60).into()
}
fn default_start_timeout() -> Duration {
    std::time::Duration::from_secs(10 * 60).into()
}

/// Commit of a Git repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// URL of the repository: `https://host/path` or `ssh://user@host/path`.
    ///
    /// It contains no user or password for https; those are in the Secret. The operator rejects addresses that Pods and
    /// Services of a cluster may have, and plain `http://`, unless its configuration allows them.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = shared::repository_url())]
    pub url: String,

    /// Full commit ID, `refs/heads/NAME`, `refs/tags/NAME` or a plain name. The job works on the commit that the branch
    /// or tag has when the job starts. A plain name that is both a branch and a tag is rejected.
    #[serde(rename = "ref")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = rules::git_ref())]
    pub reference: String,

    /// Secret with the credentials of the Git server: `username` and `password` for https, `identity` and `known_hosts`
    /// for ssh, `ca.crt` for a private certificate authority. The kernel never sees the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<NamedRef>,
}

/// Notebook to execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notebook {
    /// Repository of the notebook.
    pub git: GitSource,
    /// Path of the notebook in the repository. It must be a regular file.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = shared::repository_path(), validation = rules::notebook_file())]
    pub path: String,
    /// Name of the Jupyter kernel. Default: the one that the notebook names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    )]
    pub kernel: Option<String>,
    /// Maximum duration of one cell, from `1s` to `24h`, rounded up to whole seconds. Default: only `timeout` limits a
    /// cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = shared::duration("1s", "24h"))]
    pub cell_timeout: Option<Duration>,
}

/// Golden notebook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoldenNotebook {
    /// Repository of the golden notebook. Default: the commit of the notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Path of the golden notebook in the repository. It must be a regular file.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = shared::repository_path(), validation = rules::notebook_file())]
    pub path: String,
}

/// Content of the stored result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Store {
    /// Cells and differences.
    #[default]
    Diff,
    /// Also the executed notebook.
    Full,
    /// Nothing.
    None,
}

/// Content and lifetime of the stored result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    /// Content of the stored result: `Diff`, `Full` or `None`. Immutable. Default: `Diff`.
    #[serde(default)]
    #[x_kube(validation = shared::unchanging("NotebookValidationJob"))]
    pub store: Store,
    /// How long the result is kept after the job has ended, from `0s` to `8760h`. Default: `168h`.
    #[serde(default = "default_ttl")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = shared::duration("0s", "8760h"))]
    pub ttl: Duration,
}

fn default_ttl() -> Duration {
    std::time::Duration::from_secs(168 * 3600).into()
}

impl Default for Results {
    fn default() -> Self {
        Self {
            store: Store::default(),
            ttl: default_ttl(),
        }
    }
}

/// The row of NotebookValidationJobs in the table of kinds.
pub const NOTEBOOK_VALIDATION_JOB: KindRow = KindRow {
    resource: ResourceType::new(
        GROUP,
        "v1alpha1",
        "NotebookValidationJob",
        "notebookvalidationjobs",
    ),
    crd_name: "notebookvalidationjobs.orchestrator.io",
    singular: "notebookvalidationjob",
    short_name: "onb",
    listed: "notebooks",
    aliases: &["notebook", "nb"],
    is_namespaced: true,
    lifecycle: NotebookValidationJobStatus::LIFECYCLE,
    columns: &[
        Column::new("Phase", Content::Text("status.phase")),
        Column::new("Reason", Content::Reason("Succeeded")),
        Column::new("Cells", Content::Number("status.cells.done")),
        Column::new(
            "Matched",
            Content::Number("status.comparisonResult.matchedCells"),
        ),
        Column::new("Attempt", Content::Number("status.attempts")),
        Column::AGE,
        Column::new("Image", Content::Text("status.image")).wide(),
        Column::MESSAGE,
    ],
    conditions: condition::MEANINGS,
    epoch: NotebookValidationJobStatus::EPOCH,
    phases: describe_phases::<NotebookPhase>,
    derived_crd: NotebookValidationJob::crd,
};

/// Names of the children of a job. Only this module builds them.
pub mod names {
    use crate::names::child;

    /// Returns `{name}-nb`, with `-a2` … for later attempts. If the Job of the attempt had to be replaced, `-d1` … is the
    /// number of disruptions before that.
    #[must_use]
    pub fn job(name: &str, attempt: u32, replaced_after: Option<u32>) -> String {
        let later = if attempt > 1 {
            format!("-a{attempt}")
        } else {
            String::new()
        };
        let again = replaced_after.map_or_else(String::new, |count| format!("-d{count}"));
        child(name, &format!("-nb{later}{again}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn schema() -> Value {
        let crd = NOTEBOOK_VALIDATION_JOB.crd();
        serde_json::to_value(&crd.spec.versions[0]).unwrap()
    }

    /// The attributes of the type must be literals, so the row repeats them.
    #[test]
    fn the_row_has_the_names_of_its_type() {
        let crd = NotebookValidationJob::crd();
        let (names, row) = (&crd.spec.names, NOTEBOOK_VALIDATION_JOB);
        assert_eq!(crd.metadata.name.as_deref(), Some(row.crd_name));
        assert_eq!(
            (&*names.kind, &*names.plural),
            (row.name(), row.resource.plural)
        );
        assert_eq!(names.singular.as_deref(), Some(row.singular));
        assert_eq!(names.short_names, Some(vec![row.short_name.to_owned()]));
    }

    /// S4.2: the API server accepts the legacy phases, and a new object begins with Initializing.
    #[test]
    fn a_new_job_is_initializing_and_legacy_phases_are_valid() {
        let version = schema();
        let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
        assert_eq!(status["default"]["phase"], "Initializing");
        let phases = status["properties"]["phase"]["enum"].as_array().unwrap();
        for legacy in ["Pending", "Running"] {
            assert!(phases.iter().any(|phase| phase == legacy), "{phases:?}");
        }
    }

    /// The API server rejects a validation rule as too costly if its input has no bound.
    #[test]
    fn each_text_of_the_spec_has_a_bound_and_each_field_a_description() {
        fn walk(path: &str, schema: &Value) {
            let is_bounded = schema["maxLength"].is_u64() || schema["enum"].is_array();
            assert!(schema["type"] != "string" || is_bounded, "{path}");
            assert!(
                schema["type"] != "array" || schema["maxItems"].is_u64(),
                "{path}"
            );
            if let Some(properties) = schema["properties"].as_object() {
                for (name, property) in properties {
                    let text = property["description"].as_str().unwrap_or_default();
                    let path = format!("{path}.{name}");
                    assert!(!text.is_empty(), "{path}");
                    walk(&path, property);
                }
            }
            if schema["items"].is_object() {
                walk(&format!("{path}[]"), &schema["items"]);
            }
        }
        let version = schema();
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        walk(".spec", spec);
    }
}
