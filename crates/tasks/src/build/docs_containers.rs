//! The containers of a DocsRun's Pod, one after the other: `clone`, then the agent, then `publish`.
//!
//! The agent is hostile: it may change everything that it mounts. So `publish` works in a volume
//! that the agent never mounts, and only our own two containers mount the credentials. All
//! processes of a container end before the next container starts.

use attempts::step::{self, StepContainer};
use k8s_openapi::api::core::v1 as core;

use super::contract;
use crate::run::{docs::STEP_TIME, run_spec::Docs};

/// Name of the container that clones the repository.
pub(crate) const CLONE: &str = "clone";
/// Name of the container that commits and pushes.
pub(crate) const PUBLISH: &str = "publish";

/// Directory of the checkout.
const SOURCE: &str = "/workspace/source";

/// Returns the path of a directory of the checkout, in the agent's container.
pub(super) fn source_dir(folder: &str) -> String {
    match folder.trim_end_matches('/') {
        "." => SOURCE.to_owned(),
        folder => [SOURCE, folder].join("/"),
    }
}

/// Returns the containers that run before `publish`.
pub(super) fn before(docs: &Docs<'_>, agent: Vec<core::Container>) -> Vec<core::Container> {
    let mut containers = vec![container(docs, CLONE, false)];
    containers.extend(agent);
    containers
}

/// Returns the container that runs last.
pub(super) fn publish(docs: &Docs<'_>) -> core::Container {
    container(docs, PUBLISH, true)
}

/// Returns the volumes besides the agent's.
pub(super) fn volumes(docs: &Docs<'_>) -> Vec<core::Volume> {
    let secret = docs.run.spec.credentials_secret_ref.as_ref();
    step::volumes(docs.settings, secret.map(|named| named.name.as_str()))
}

fn container(docs: &Docs<'_>, name: &str, read_only: bool) -> core::Container {
    let workspace = step::mount(contract::WORKSPACE_VOLUME, contract::WORKSPACE, read_only);
    step::container(StepContainer {
        name,
        image: &docs.settings.toolbox_image,
        mounts: vec![workspace],
        has_credentials: docs.run.spec.credentials_secret_ref.is_some(),
        environment: environment(docs),
    })
}

fn environment(docs: &Docs<'_>) -> Vec<(&'static str, String)> {
    let Docs {
        run,
        status,
        settings,
        load: _,
    } = docs;
    let spec = &run.spec;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let has_credentials = spec.credentials_secret_ref.is_some();
    let mut all = vec![
        ("STEP_URL", spec.repository_url.clone()),
        ("STEP_SOURCE_BRANCH", spec.source_branch.clone()),
        ("STEP_BASE_COMMIT", text(&status.base_commit)),
        ("STEP_OUTPUT_BRANCH", run.output_branch()),
        ("STEP_OUTPUT_HEAD", text(&status.branch_head)),
        ("STEP_WORKING_DIRECTORY", spec.working_directory.clone()),
        ("STEP_INCLUDE_CODEBASE", spec.include_codebase.to_string()),
        ("STEP_OUTPUT_PATH", spec.output.path.clone()),
        ("STEP_COMMIT_MESSAGE", text(&spec.output.commit_message)),
    ];
    all.extend(step::environment(
        &run.metadata,
        settings,
        has_credentials,
        STEP_TIME,
    ));
    all.push(("STEP_SOURCE", SOURCE.to_owned()));
    all.extend(step::paths());
    all
}
