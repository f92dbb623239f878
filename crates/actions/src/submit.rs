//! Submits a run by creating it.

use std::fmt::Debug;

use api::{
    kinds::KindRow,
    names,
    tasks::{DOCS_RUN, DocsRun, TASK_RUN, TaskRun},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, MANAGER, ObjectName, Request};

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

/// Returns the usual name of a task's run: `{service}-{task}`.
#[must_use]
pub fn run_name(service: &str, task_id: i64) -> String {
    names::child(service, &format!("-{task_id}"))
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
    use super::*;

    #[test]
    fn the_rows_are_those_of_the_types() {
        assert_eq!(TaskRun::KIND.name(), TaskRun::kind(&()));
        assert_eq!(DocsRun::KIND.name(), DocsRun::kind(&()));
    }

    #[test]
    fn a_run_is_named_after_its_service_and_task() {
        assert_eq!(run_name("shop", 7), "shop-7");
        assert_eq!(
            run_name("Shop / Web", 7),
            format!("shop---web-{}-7", names::hash("Shop / Web"))
        );
    }
}
