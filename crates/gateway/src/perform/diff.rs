//! Files of earlier versions, and the differences between two versions.

use actions::Object;
use api::tasks::{DOCS_RUN, File, TaskRunSpec, names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;

use super::{files_of, get, request};
use crate::{
    diff,
    problem::{Problem, Reason},
    request::Target,
    results::Done,
};

/// Compares the files of two versions. The files of an earlier version are in its ConfigMap, as long as
/// that exists.
pub(super) async fn diff(
    client: &Client,
    target: &Target,
    from: i64,
    to: i64,
) -> Result<Done, Problem> {
    let run = get(client, target).await?;
    let old = files_at(client, &run, &target.namespace, from).await?;
    let new = files_at(client, &run, &target.namespace, to).await?;
    Ok(Done::Document(json!({
        "from": from,
        "to": to,
        "files": diff::diff(&old, &new),
    })))
}

/// Returns the files of a version.
///
/// # Errors
/// The version does not exist, or its files are not in the cluster any more.
pub(super) async fn files_at(
    client: &Client,
    run: &Object,
    namespace: &str,
    version: i64,
) -> Result<Vec<File>, Problem> {
    let current = run.version().unwrap_or(1);
    let files = files_of(run);
    if version == current {
        return Ok(files);
    }
    let missing = |why: &str| {
        let detail = format!("{} has no files of version {version}: {why}", run.name);
        Problem::new(Reason::NotInstalled, detail)
    };
    let is_earlier = (1..current).contains(&version);
    let spec: Option<TaskRunSpec> = run.part("spec").filter(|_| is_earlier);
    let Some(mut spec) = spec.filter(|_| *run.name.kind != DOCS_RUN) else {
        let why = format!("it is at version {current}");
        return Err(Problem::new(Reason::NotFound, missing(&why).detail));
    };
    spec.context_version = version;
    let name = names::config_map(&spec);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let request = request("get", "ConfigMap", "configmaps", Some(&name), namespace);
    let found = api.get_opt(&name).await;
    let found = found.map_err(|error| Problem::of_action(&request.failed(error), namespace))?;
    let is_own = |map: &ConfigMap| {
        let owners = map.metadata.owner_references.iter();
        let mut owners = owners.flat_map(|all| all.iter());
        owners.any(|owner| Some(&owner.uid) == run.metadata.uid.as_ref())
    };
    let Some(map) = found.filter(is_own) else {
        let why = "its ConfigMap was deleted, and the archive is not installed";
        return Err(missing(why));
    };
    // The ConfigMap also has the instructions of the Agent. No file of a run disappears.
    let data = map.data.unwrap_or_default().into_iter();
    let files = data.filter(|(name, _)| files.iter().any(|file| file.filename == *name));
    let files = files.map(|(filename, content)| File { filename, content });
    Ok(files.collect())
}
