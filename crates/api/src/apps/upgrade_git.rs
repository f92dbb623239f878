//! The change in Git that an upgrade makes: where it is, its plan, its push and its result.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::DeployedRelease;
use crate::pod::NamedRef;

/// Maximum number of edits in one commit.
pub const MAX_PLANNED_EDITS: usize = 16;

/// Maximum number of images in the evidence of a success.
pub const MAX_EVIDENCE_IMAGES: usize = 32;

/// Git repository of an application, for changes of its version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppGit {
    /// URL of the repository. Default: that of the GitRepository of the Kustomization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// Branch of the repository. Default: that of the GitRepository of the Kustomization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub branch: Option<String>,
    /// Secret with the credentials for a push, in the namespace of the ManagedApp. It has the key names of Flux.
    pub credentials_secret_ref: NamedRef,
    /// Author of the commits of the operator. Default: `Orchestrator`, with an address of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<CommitAuthor>,
    /// Field with the version of the Helm chart. Default: `spec.chart.spec.version` of the HelmRelease, in the only file
    /// below the path of the Kustomization that contains the HelmRelease.
    #[serde(default)]
    pub chart: ChartField,
    /// Fields with the tags of images, one for each image that an upgrade can change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["image".into()]))]
    pub images: Vec<ImageField>,
}

/// Author of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitAuthor {
    /// Name of the author.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// Email address of the author.
    #[schemars(length(min = 3, max = 254))]
    pub email: String,
}

/// Field in Git with the version of a Helm chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartField {
    /// Path of the file in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub file: Option<String>,
    /// Path of the field in the document of the HelmRelease. Default: `spec.chart.spec.version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub field_path: Option<String>,
}

/// Field in Git with the tag of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageField {
    /// Image without a tag, as the Pod templates have it, such as `registry.example.com/shop/server`.
    #[schemars(length(min = 1, max = 255))]
    pub image: String,
    /// Path of the file in the repository. Default: the only file below the path of the Kustomization that contains the
    /// document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub file: Option<String>,
    /// Document in the file.
    pub document: DocumentName,
    /// Path of the field in the document, such as `images[name=server].newTag`. The field has the tag, or the image with
    /// its tag.
    #[schemars(length(min = 1, max = 200))]
    pub field_path: String,
}

/// Kind and name of a document in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentName {
    /// Kind of the document.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the document. A `kustomization.yaml` often has none. Default: any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
}

/// Change in Git that an upgrade makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCommit {
    /// GitRepository of Flux from which the Kustomization applies the application.
    pub source: PlannedSource,
    /// URL of the repository.
    pub url: String,
    /// Branch to which the commit is pushed.
    pub branch: String,
    /// Name of the Secret with the credentials, in the namespace of the request.
    pub credentials_secret: String,
    /// Author of the commit.
    pub author: CommitAuthor,
    /// First line of the commit message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// Commit of the branch at the time of the plan.
    pub base: String,
    /// Edits of the commit.
    #[schemars(length(max = 16))]
    pub edits: Vec<PlannedEdit>,
    /// Changed lines, at most 4 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// Number of commits by which the branch is ahead of the applied revision. Flux applies them together with the
    /// upgrade. Absent if the number is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unapplied_commits: Option<u32>,
}

/// GitRepository of Flux before an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedSource {
    /// Namespace of the GitRepository.
    pub namespace: String,
    /// Name of the GitRepository.
    pub name: String,
    /// UID of the GitRepository.
    pub uid: String,
    /// Revision of its artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Edit of one field in Git.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedEdit {
    /// Path of the file in the repository.
    pub file: String,
    /// Document in the file.
    pub document: PlannedDocument,
    /// Path of the field in the document.
    pub field_path: String,
    /// Value before the upgrade.
    pub from: String,
    /// Value after the upgrade.
    pub to: String,
}

/// Identity of a document in a file. An absent field matches any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedDocument {
    /// API version of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Versions that Flux had applied when it was suspended. Another one may have been applied since the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionsBefore {
    /// Revision of the artifact of the GitRepository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Revision that the Kustomization had applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
    /// Version of the release of Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_version: Option<i64>,
}

/// Attempt to push the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushAttempt {
    /// Number of the attempt, from 1. Each attempt is one Job.
    pub number: u32,
    /// Time at which the attempt began.
    pub started_at: Time,
    /// UID of the Job, once it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// Whether the container of the Job has started, so that it may have pushed.
    #[serde(default)]
    pub has_started: bool,
    /// Whether the operator deletes the Job, because its container did not start in time.
    #[serde(default)]
    pub is_abandoned: bool,
    /// Whether an attempt ended without evidence that it pushed nothing. The commit may be on the branch.
    #[serde(default)]
    pub is_uncertain: bool,
    /// Last failure of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PushFailure>,
}

/// Failure of an attempt to push the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushFailure {
    /// Reason of the failure.
    pub reason: String,
    /// Message of the step.
    pub message: String,
}

/// Commit of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushedCommit {
    /// Id of the commit.
    pub id: String,
    /// Whether this attempt or an earlier one pushed the commit.
    pub outcome: PushOutcome,
    /// Time at which the report was read.
    pub at: Time,
}

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PushOutcome {
    /// The server accepted the push.
    Pushed,
    /// The commit was already on the branch: an earlier attempt had pushed it.
    Found,
}

/// Versions that Flux applied after the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReconciledVersion {
    /// Revision that the Kustomization applied.
    pub revision: String,
    /// Version of the release of Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_version: Option<i64>,
    /// Time at which the versions were observed.
    pub at: Time,
}

/// Evidence of a successful upgrade, as it was read at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeEvidence {
    /// Release of Helm that is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<DeployedRelease>,
    /// Revision that the Kustomization applied.
    pub revision: String,
    /// Id of the commit.
    pub commit: String,
    /// Images of the workloads. At most 32 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub images: Vec<String>,
    /// Time since which the application is healthy without interruption.
    pub healthy_since: Time,
}
