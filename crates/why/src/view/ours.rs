//! The views of our own kinds, read from JSON. An object that does not match its type still has a
//! name, a deletion timestamp and a status.

use std::collections::BTreeMap;

use api::{
    MANAGER, names,
    tasks::{AgentSpec, DocsRun, DocsRunSpec, DocsRunStatus, File, TaskRunSpec, TaskRunStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{annotation, text};
use crate::world::{AgentView, DocsView, LIST, Meta, Need, ObjectView, RunView};

impl RunView {
    /// Reads a `TaskRun`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let (meta, status, spec, undecodable) = parts::<_, TaskRunSpec>(object);
        let mut view = Self {
            undecodable,
            status,
            ..Self::of_meta(&meta)
        };
        if let Some(spec) = spec {
            view.agent_name = spec.agent_name;
            view.version = spec.context_version;
            view.suspend = spec.suspend;
            view.cancel = spec.cancel;
            view.timeout_seconds = spec.timeout.map(seconds);
            view.max_attempts = spec.retry.map(|retry| retry.max_attempts);
            view.files = sizes(&spec.markdown_files);
        }
        view
    }

    /// Reads a `DocsRun`.
    #[must_use]
    pub fn read_docs(object: &Value) -> Self {
        let (meta, own, spec, undecodable) = parts::<DocsRunStatus, DocsRunSpec>(object);
        let mut docs = DocsView {
            base_commit: own.base_commit.as_deref().map(text),
            branch_head: own.branch_head.as_deref().map(text),
            commit: own.commit.as_deref().map(text),
            changed_files: own.changed_files.as_ref().map(|files| files.count),
            ..DocsView::default()
        };
        let mut view = Self {
            undecodable,
            status: TaskRunStatus {
                phase: own.phase,
                context_version: Some(ONLY_VERSION),
                attempt: own.attempt,
                history: Vec::new(),
                progress: own.progress,
            },
            version: ONLY_VERSION,
            ..Self::of_meta(&meta)
        };
        if let Some(spec) = spec {
            view.agent_name.clone_from(&spec.agent_name);
            view.suspend = spec.suspend;
            view.cancel = spec.cancel;
            view.timeout_seconds = spec.timeout.map(seconds);
            view.files = sizes(&spec.instructions);
            docs.repository = text(&spec.repository_url);
            docs.source_branch = text(&spec.source_branch);
            docs.working_directory = text(&spec.working_directory);
            docs.output_path = text(&spec.output.path);
            let secret = spec.credentials_secret_ref.as_ref();
            docs.secret = secret.map(|secret| text(&secret.name));
            docs.output_branch = text(&DocsRun::new(&view.meta.name, spec).output_branch());
        }
        view.docs = Some(docs);
        view
    }

    fn of_meta(meta: &ObjectMeta) -> Self {
        Self {
            meta: Meta::from(meta),
            changed: changed(meta),
            force_delete: annotation(meta, names::FORCE_DELETE) == Some("true"),
            ..Self::default()
        }
    }
}

/// The version of every run of a kind without versions.
const ONLY_VERSION: i64 = 1;

fn sizes(files: &[File]) -> BTreeMap<String, usize> {
    let files = files.iter().take(LIST);
    files
        .map(|file| (text(&file.filename), file.content.len()))
        .collect()
}

impl AgentView {
    /// Reads an `Agent`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let (meta, status, spec, undecodable) = parts::<_, AgentSpec>(object);
        let view = Self {
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            status,
            ..Self::default()
        };
        let Some(spec) = spec else { return view };
        let files = spec.instructions.iter();
        let instruction_bytes = files.map(|file| file.content.len()).sum();
        let required = spec.results.iter().filter(|result| result.required);
        let required_results = required.map(|result| result.name.clone()).collect();
        let resources = spec.resources.clone().unwrap_or_default();
        let limits = resources.limits.into_iter();
        Self {
            needs: needs(&spec),
            image: text(&spec.image),
            user: spec.run_as_user,
            limits: limits.map(|(name, amount)| (name, amount.0)).collect(),
            max_attempts: spec.retry.max_attempts,
            timeout_seconds: seconds(spec.timeout),
            instruction_bytes,
            required_results,
            ..view
        }
    }
}

impl ObjectView {
    /// Reads an object of a kind without rules of its own.
    #[must_use]
    pub fn read(kind: &str, object: &Value) -> Self {
        let (meta, status, _, undecodable) = parts::<_, Value>(object);
        let phase = object.pointer("/status/phase").and_then(Value::as_str);
        Self {
            kind: kind.to_owned(),
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            phase: phase.map(text),
            status,
        }
    }
}

/// Returns the objects that an Agent references and needs.
fn needs(spec: &AgentSpec) -> Vec<Need> {
    let need = |kind: &str, name: &str, key: Option<&str>, role: &str| Need {
        kind: kind.to_owned(),
        name: name.to_owned(),
        key: key.map(str::to_owned),
        role: role.to_owned(),
    };
    let account = &spec.service_account_name;
    let mut all = vec![need("ServiceAccount", account, None, "serviceAccountName")];
    let storage = &spec.workspace.storage_class_name;
    for (kind, name, role) in [
        ("RuntimeClass", &spec.runtime_class_name, "runtimeClassName"),
        (
            "PriorityClass",
            &spec.priority_class_name,
            "priorityClassName",
        ),
        ("StorageClass", storage, "workspace.storageClassName"),
    ] {
        all.extend(name.iter().map(|name| need(kind, name, None, role)));
    }
    for secret in &spec.image_pull_secrets {
        all.push(need("Secret", &secret.name, None, "imagePullSecrets"));
    }
    for source in spec.env.iter().filter_map(|env| env.value_from.as_ref()) {
        for (kind, reference) in [
            ("Secret", &source.secret_key_ref),
            ("ConfigMap", &source.config_map_key_ref),
        ] {
            let required = reference.iter().filter(|one| !one.optional);
            all.extend(required.map(|one| need(kind, &one.name, Some(&one.key), "env")));
        }
    }
    for source in &spec.env_from {
        for (kind, reference) in [
            ("Secret", &source.secret_ref),
            ("ConfigMap", &source.config_map_ref),
        ] {
            let named = reference.iter();
            all.extend(named.map(|one| need(kind, &one.name, None, "envFrom")));
        }
    }
    for volume in &spec.volumes {
        for (kind, reference) in [
            ("Secret", &volume.secret_ref),
            ("ConfigMap", &volume.config_map_ref),
            ("PersistentVolumeClaim", &volume.persistent_volume_claim_ref),
        ] {
            let named = reference.iter();
            all.extend(named.map(|one| need(kind, &one.name, None, "volumes")));
        }
    }
    all.truncate(LIST);
    all
}

pub(super) fn part<T: DeserializeOwned>(object: &Value, key: &str) -> Result<T, String> {
    let value = object.get(key).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|error| text(&error.to_string()))
}

/// Returns metadata, status and spec, and the error if the spec or the status cannot be decoded. The
/// undecodable part is then empty. A missing status is an empty one.
pub(super) fn parts<T: DeserializeOwned + Default, S: DeserializeOwned>(
    object: &Value,
) -> (ObjectMeta, T, Option<S>, Option<String>) {
    let meta = part(object, "metadata").unwrap_or_default();
    let (spec, of_spec) = split(part(object, "spec"));
    let status = object.get("status").map(|_| part(object, "status"));
    let (status, of_status) = status.map_or((None, None), split);
    (
        meta,
        status.unwrap_or_default(),
        spec,
        of_spec.or(of_status),
    )
}

pub(super) fn split<T>(read: Result<T, String>) -> (Option<T>, Option<String>) {
    match read {
        Ok(found) => (Some(found), None),
        Err(error) => (None, Some(error)),
    }
}

pub(super) fn seconds(duration: api::Duration) -> u64 {
    std::time::Duration::from(duration).as_secs()
}

/// Returns the time of the last write by a manager other than the operator, from the managed
/// fields.
pub(super) fn changed(meta: &ObjectMeta) -> Option<Time> {
    let entries = meta.managed_fields.iter().flat_map(|all| all.iter());
    entries
        .filter(|entry| entry.manager.as_deref() != Some(MANAGER))
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .filter_map(|entry| entry.time.clone())
        .max()
}

#[cfg(test)]
mod tests;
