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
        let meta: ObjectMeta = part(object, "metadata").unwrap_or_default();
        let (status, undecodable) = status(object);
        let mut view = Self {
            undecodable,
            status,
            ..Self::of_meta(&meta)
        };
        match part::<TaskRunSpec>(object, "spec") {
            Ok(spec) => {
                view.agent_name = spec.agent_name;
                view.version = spec.context_version;
                view.suspend = spec.suspend;
                view.cancel = spec.cancel;
                view.timeout_seconds = spec
                    .timeout
                    .map(|timeout| std::time::Duration::from(timeout).as_secs());
                view.max_attempts = spec.retry.map(|retry| retry.max_attempts);
                view.files = sizes(&spec.markdown_files);
            }
            Err(error) => view.undecodable = Some(error),
        }
        view
    }

    /// Reads a `DocsRun`.
    #[must_use]
    pub fn read_docs(object: &Value) -> Self {
        let meta: ObjectMeta = part(object, "metadata").unwrap_or_default();
        let (own, undecodable) = status::<DocsRunStatus>(object);
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
        match part::<DocsRunSpec>(object, "spec") {
            Ok(spec) => {
                view.agent_name.clone_from(&spec.agent_name);
                view.suspend = spec.suspend;
                view.cancel = spec.cancel;
                view.timeout_seconds = spec
                    .timeout
                    .map(|timeout| std::time::Duration::from(timeout).as_secs());
                view.files = sizes(&spec.instructions);
                docs.repository = text(&spec.repository_url);
                docs.source_branch = text(&spec.source_branch);
                docs.working_directory = text(&spec.working_directory);
                docs.output_path = text(&spec.output.path);
                docs.secret = spec
                    .credentials_secret_ref
                    .as_ref()
                    .map(|secret| text(&secret.name));
                docs.output_branch = text(&DocsRun::new(&view.meta.name, spec).output_branch());
            }
            Err(error) => view.undecodable = Some(error),
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
        let meta: ObjectMeta = part(object, "metadata").unwrap_or_default();
        let (status, undecodable) = status(object);
        let mut view = Self {
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            status,
            ..Self::default()
        };
        match part::<AgentSpec>(object, "spec") {
            Ok(spec) => view.fill(spec),
            Err(error) => view.undecodable = Some(error),
        }
        view
    }

    fn fill(&mut self, spec: AgentSpec) {
        self.needs = needs(&spec);
        self.image = text(&spec.image);
        self.user = spec.run_as_user;
        let resources = spec.resources.unwrap_or_default();
        let limits = resources.limits.into_iter();
        self.limits = limits.map(|(name, amount)| (name, amount.0)).collect();
        self.max_attempts = spec.retry.max_attempts;
        self.timeout_seconds = std::time::Duration::from(spec.timeout).as_secs();
        let files = spec.instructions.iter();
        self.instruction_bytes = files.map(|file| file.content.len()).sum();
        let required = spec.results.into_iter().filter(|result| result.required);
        self.required_results = required.map(|result| result.name).collect();
    }
}

impl ObjectView {
    /// Reads an object of a kind without rules of its own.
    #[must_use]
    pub fn read(kind: &str, object: &Value) -> Self {
        let meta: ObjectMeta = part(object, "metadata").unwrap_or_default();
        let (status, undecodable) = status(object);
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
    all.truncate(LIST);
    all
}

pub(super) fn part<T: DeserializeOwned>(object: &Value, key: &str) -> Result<T, String> {
    let value = object.get(key).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|error| text(&error.to_string()))
}

/// Returns the status, or an empty one if it is missing. If the status cannot be decoded, the error
/// is returned, too.
pub(super) fn status<T: DeserializeOwned + Default>(object: &Value) -> (T, Option<String>) {
    if object.get("status").is_none() {
        return (T::default(), None);
    }
    match part(object, "status") {
        Ok(status) => (status, None),
        Err(error) => (T::default(), Some(error)),
    }
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
