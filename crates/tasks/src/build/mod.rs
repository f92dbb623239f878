//! Builds the children of a run from its spec and its Agent alone, so that the same input gives the same bytes.
//!
//! - `config_map`: the ConfigMap with the files of the run.
//! - `job`: the Job of an attempt.
//! - `pod_template`: the Job's Pod template, with the agent's container. `docs_containers` has the other containers
//!   of a DocsRun.
//! - [`contract`]: the tables of variables and mounts that every agent's container gets.

mod config_map;
pub mod contract;
mod docs_containers;
mod job;
mod pod_template;

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    names,
    tasks::{Agent, Resources},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use crate::run::run_spec::{RunSpec, Workload};

pub(crate) use config_map::{config_map, sizes};
pub(crate) use docs_containers::{CLONE, PUBLISH};
pub(crate) use job::job;

/// Inputs for building the children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildContext<'a> {
    pub(crate) run_spec: RunSpec<'a>,
    pub(crate) agent: &'a Agent,
    pub(crate) resources: &'a Resources,
    pub(crate) attempt: u32,
    /// Name of the Job.
    pub(crate) job: &'a str,
}

fn manifest(resource: ResourceType, run_spec: &RunSpec<'_>, name: &str, body: Value) -> Manifest {
    Manifest::new(
        resource,
        run_spec.spec.metadata.namespace.as_deref(),
        name,
        run_spec.spec.metadata.uid.as_deref().unwrap_or_default(),
        labels(run_spec),
        body,
    )
}

fn owner(run_spec: &RunSpec<'_>) -> OwnerReference {
    let resource = run_spec.spec.resource;
    OwnerReference {
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        name: run_spec.name().to_owned(),
        uid: run_spec.spec.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn labels(run_spec: &RunSpec<'_>) -> BTreeMap<String, String> {
    let mut labels = names::child_labels(
        run_spec.spec.resource.kind,
        run_spec.name(),
        run_spec.spec.metadata.uid.as_deref().unwrap_or_default(),
    );
    let Workload::Task(run) = run_spec.work else {
        return labels;
    };
    for (key, value) in [
        (names::TASK_ID, run.spec.task_id.to_string()),
        (names::SERVICE_NAME, run.spec.service_name.clone()),
        (names::CONTEXT_VERSION, run.spec.context_version.to_string()),
    ] {
        labels.insert(key.to_owned(), names::label_value(&value));
    }
    labels
}
