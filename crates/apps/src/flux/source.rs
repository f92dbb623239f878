//! The GitRepository from which Flux applies an application.

use api::{
    apps::NamespacedName,
    decide::Target,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::REQUESTED_AT;

/// Branch that Flux takes if a GitRepository names none.
const DEFAULT_BRANCH: &str = "master";

/// Reference of a Kustomization to its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceRef {
    /// Kind of the source.
    pub kind: String,
    /// Namespace of the source.
    pub namespace: String,
    /// Name of the source.
    pub name: String,
}

/// A GitRepository, reduced to the fields that an upgrade reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceView {
    /// Namespace and name.
    pub name: NamespacedName,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// URL of the repository.
    pub url: String,
    /// Branch that Flux follows.
    pub branch: String,
    /// Another reference than a branch, such as `tag: v1`.
    pub pinned: Option<String>,
    /// Whether Flux verifies the signature of each commit.
    pub is_verified: bool,
    /// Whether `spec.suspend` is true.
    pub is_suspended: bool,
    /// Revision of the artifact.
    pub revision: Option<String>,
    /// Token of the requested reconciliation.
    pub requested: Option<String>,
    /// Token of the last reconciliation that its controller handled. The artifact is at least as new as that.
    pub handled: Option<String>,
    /// Message of the condition `Ready`, for messages only.
    pub activity: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSpec {
    url: String,
    #[serde(rename = "ref")]
    reference: Option<RawReference>,
    verify: Option<Value>,
    suspend: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawReference {
    branch: Option<String>,
    tag: Option<String>,
    semver: Option<String>,
    commit: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawStatus {
    artifact: Option<RawArtifact>,
    conditions: Vec<RawCondition>,
    #[serde(rename = "lastHandledReconcileAt")]
    handled: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawArtifact {
    revision: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

impl SourceView {
    /// Reads a GitRepository.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let spec: RawSpec = super::part(object, "spec")?;
        let status: RawStatus = super::part(object, "status")?;
        let reference = spec.reference.unwrap_or_default();
        let others = [
            ("name", reference.name),
            ("semver", reference.semver),
            ("tag", reference.tag),
            ("commit", reference.commit),
        ];
        let mut others = others.into_iter().filter_map(|(name, value)| {
            let value = value.filter(|value| !value.is_empty())?;
            Some(bounded(&format!("{name}: {value}"), MAX_MESSAGE_CHARS))
        });
        let branch = reference.branch.filter(|branch| !branch.is_empty());
        let mut conditions = status.conditions.into_iter();
        let ready = conditions.find(|one| one.kind == "Ready");
        let annotations = meta.annotations.as_ref();
        Ok(Self {
            name: NamespacedName::new(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            url: spec.url,
            branch: branch.unwrap_or_else(|| DEFAULT_BRANCH.to_owned()),
            pinned: others.next(),
            is_verified: spec.verify.is_some_and(|verify| !verify.is_null()),
            is_suspended: spec.suspend,
            revision: status.artifact.and_then(|artifact| artifact.revision),
            requested: annotations.and_then(|all| all.get(REQUESTED_AT).cloned()),
            handled: status.handled,
            activity: ready.map(|one| bounded(&one.message, 100)),
        })
    }

    /// Returns the object as the target of a change.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            resource: api::apps::GIT_REPOSITORY,
            namespace: Some(self.name.namespace.clone()),
            name: self.name.name.clone(),
            uid: self.uid.clone(),
            version: Some(self.version.clone()),
            requires_intent: None,
            optional: false,
        }
    }
}

/// Returns the id of the commit in a revision of Flux, such as `main@sha1:0123`.
#[must_use]
pub fn commit_of(revision: &str) -> Option<&str> {
    let (_, digest) = revision.rsplit_once('@')?;
    let (_, commit) = digest.split_once(':')?;
    Some(commit).filter(|commit| !commit.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: &Value) -> SourceView {
        SourceView::read(&ObjectMeta::default(), object).unwrap()
    }

    #[test]
    fn a_repository_follows_a_branch_or_is_pinned() {
        for (reference, branch, pinned) in [
            (json!(null), "master", None),
            (json!({}), "master", None),
            (json!({ "branch": "main" }), "main", None),
            (json!({ "branch": "main", "tag": "" }), "main", None),
            (json!({ "tag": "v1" }), "master", Some("tag: v1")),
            (json!({ "semver": "1.x" }), "master", Some("semver: 1.x")),
            (
                json!({ "branch": "main", "commit": "01" }),
                "main",
                Some("commit: 01"),
            ),
            (
                json!({ "name": "refs/pull/1/head" }),
                "master",
                Some("name: refs/pull/1/head"),
            ),
        ] {
            let found = read(&json!({ "spec": { "url": "https://git/a", "ref": reference } }));
            assert_eq!(found.branch, branch, "{reference}");
            assert_eq!(found.pinned.as_deref(), pinned, "{reference}");
        }
    }

    #[test]
    fn the_artifact_and_the_verification_are_read() {
        let found = read(&json!({
            "spec": { "url": "https://git/a", "verify": { "mode": "HEAD" }, "suspend": true },
            "status": {
                "artifact": { "revision": "main@sha1:0123" },
                "conditions": [{ "type": "Ready", "message": "stored artifact" }],
                "lastHandledReconcileAt": "token",
            },
        }));
        assert_eq!(found.handled.as_deref(), Some("token"));
        assert!(found.is_verified && found.is_suspended);
        assert_eq!(found.revision.as_deref(), Some("main@sha1:0123"));
        assert_eq!(found.activity.as_deref(), Some("stored artifact"));
        let other = json!({ "spec": { "url": 5 } });
        SourceView::read(&ObjectMeta::default(), &other).unwrap_err();
    }

    #[test]
    fn a_revision_names_a_commit() {
        for (revision, expected) in [
            ("main@sha1:0123", Some("0123")),
            ("feature/a@b@sha256:45", Some("45")),
            ("sha1:0123", None),
            ("main@sha1:", None),
            ("main@", None),
            ("", None),
        ] {
            assert_eq!(commit_of(revision), expected, "{revision}");
        }
    }
}
