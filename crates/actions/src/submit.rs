//! Submits a task by creating its run.

use std::fmt::Debug;

use api::{
    kinds::KindRow,
    names,
    tasks::{DOCS_RUN, DocsRun, TASK_RUN, TaskRun, TaskRunSpec},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Files, MANAGER, ObjectName, Request};

/// A task, from which a `TaskRun` is created.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// The run's name. Default: `{service}-{task}`.
    pub name: Option<String>,
    /// The task's number.
    pub task_id: i64,
    /// The service that the task is about.
    pub service_name: String,
    /// The Agent that runs it.
    pub agent_name: String,
    /// The files that the agent reads.
    pub files: Files,
}

/// Whether a write is stored or only validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// The write is stored.
    Off,
    /// The server validates the write fully but stores nothing.
    On,
}

impl DryRun {
    pub(crate) fn is_on(self) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
        }
    }
}

impl Submission {
    /// Returns the run's name.
    #[must_use]
    pub fn run_name(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| names::child(&self.service_name, &format!("-{}", self.task_id)))
    }

    /// Returns the `TaskRun` to be sent to the API server.
    #[must_use]
    pub fn run(&self) -> TaskRun {
        let spec = TaskRunSpec {
            task_id: self.task_id,
            service_name: self.service_name.clone(),
            agent_name: self.agent_name.clone(),
            context_version: 1,
            markdown_files: self.files.as_slice().to_vec(),
            timeout: None,
            retry: None,
            suspend: false,
            cancel: false,
            child_ttl: None,
        };
        TaskRun::new(&self.run_name(), spec)
    }
}

/// A kind of run that users create.
pub trait Run:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// The row of the kind.
    const KIND: &'static KindRow;
}

impl Run for TaskRun {
    const KIND: &'static KindRow = &TASK_RUN;
}

impl Run for DocsRun {
    const KIND: &'static KindRow = &DOCS_RUN;
}

/// Creates a run.
///
/// # Guarantees
/// If several callers submit the same name at once, exactly one succeeds. The server decides, and
/// we do not check beforehand whether the name exists.
///
/// # Errors
/// [`Error::Exists`] if the name already exists; otherwise an error of the server.
pub async fn submit<R: Run>(
    client: &Client,
    namespace: &str,
    run: &R,
    dry_run: DryRun,
) -> Result<R, Error> {
    let runs: Api<R> = Api::namespaced(client.clone(), namespace);
    let how = PostParams {
        dry_run: dry_run.is_on(),
        field_manager: Some(MANAGER.to_owned()),
    };
    let name = run.meta().name.as_deref().unwrap_or_default();
    let object = ObjectName::new(R::KIND, name);
    runs.create(&how, run)
        .await
        .map_err(|error| Request::about("create", &object, namespace).failed(error))
}

#[cfg(test)]
mod tests {
    use api::tasks::File;

    use super::*;

    #[test]
    fn a_run_is_named_after_its_service_and_task() {
        let named = |name: Option<&str>, service: &str| {
            Submission {
                name: name.map(str::to_owned),
                task_id: 7,
                service_name: service.to_owned(),
                agent_name: "writer".to_owned(),
                files: Files::new(vec![File {
                    filename: "task.md".to_owned(),
                    content: String::new(),
                }])
                .unwrap(),
            }
            .run_name()
        };
        assert_eq!(named(None, "shop"), "shop-7");
        assert_eq!(named(Some("mine"), "shop"), "mine");
        assert_eq!(
            named(None, "Shop / Web"),
            format!("shop---web-{}-7", names::hash("Shop / Web"))
        );
    }
}
