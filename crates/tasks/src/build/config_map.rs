//! The ConfigMap with the Agent's instructions and the files of a run.

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    tasks::{Agent, AgentSpec, File},
};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{manifest, owner};
use crate::run::run_spec::RunSpec;

/// Returns the size of the run's files, and of the Agent's instructions that they do not replace,
/// in bytes.
pub(crate) fn sizes(files: &[File], agent: Option<&AgentSpec>) -> (usize, usize) {
    let own = files
        .iter()
        .fold(0_usize, |sum, file| sum.saturating_add(file.content.len()));
    let instructions = agent
        .iter()
        .flat_map(|agent| agent.instructions.iter())
        .filter(|file| !files.iter().any(|own| own.filename == file.filename))
        .fold(0_usize, |sum, file| sum.saturating_add(file.content.len()));
    (own, instructions)
}

/// Builds the ConfigMap with the Agent's instructions and the run's files.
pub(crate) fn config_map(
    run_spec: &RunSpec<'_>,
    agent: &Agent,
) -> Result<Manifest, serde_json::Error> {
    let data: BTreeMap<String, String> = agent
        .spec
        .instructions
        .iter()
        .chain(run_spec.files.unwrap_or_default())
        .map(|file| (file.filename.clone(), file.content.clone()))
        .collect();
    let map = core::ConfigMap {
        metadata: ObjectMeta {
            owner_references: Some(vec![owner(run_spec)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(data),
        ..core::ConfigMap::default()
    };
    Ok(manifest(
        ResourceType::CONFIG_MAP,
        run_spec,
        &run_spec.files_name(),
        serde_json::to_value(&map)?,
    ))
}
