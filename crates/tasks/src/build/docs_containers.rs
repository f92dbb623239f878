//! The containers of a DocsRun's Pod, one after the other: `clone`, then the agent, then `publish`.
//!
//! The agent is hostile: it may change everything that it mounts. So `publish` works in a volume
//! that the agent never mounts, and only our own two containers mount the credentials. All
//! processes of a container end before the next container starts.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::api::resource::Quantity};

use super::contract;
use crate::run::{docs::STEP_TIME, run_spec::Docs};

/// Name of the container that clones the repository.
pub(crate) const CLONE: &str = "clone";
/// Name of the container that commits and pushes.
pub(crate) const PUBLISH: &str = "publish";
/// Program of both containers.
const PROGRAM: &str = "/usr/local/bin/step";
/// User of both containers, which exists in the toolbox image.
const USER: i64 = 65532;

/// Volume that only our own containers mount.
const SCRATCH_VOLUME: &str = "scratch";
const SCRATCH: &str = "/scratch";
/// Volume with the credentials.
const CREDENTIALS_VOLUME: &str = "credentials";
const CREDENTIALS: &str = "/credentials";
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
    let mut containers = vec![step(docs, CLONE, false)];
    containers.extend(agent);
    containers
}

/// Returns the container that runs last.
pub(super) fn publish(docs: &Docs<'_>) -> core::Container {
    step(docs, PUBLISH, true)
}

/// Returns the volumes besides the agent's.
pub(super) fn volumes(docs: &Docs<'_>) -> Vec<core::Volume> {
    let limit = docs.settings.repository_limit_mib;
    let scratch = core::Volume {
        name: SCRATCH_VOLUME.to_owned(),
        empty_dir: Some(core::EmptyDirVolumeSource {
            // The steps check and report the size themselves. This limit is for cases in which they
            // cannot.
            size_limit: Some(Quantity(format!(
                "{}Mi",
                u64::from(limit).saturating_mul(3)
            ))),
            medium: None,
        }),
        ..core::Volume::default()
    };
    let credentials = docs
        .run
        .spec
        .credentials_secret_ref
        .as_ref()
        .map(|named| core::Volume {
            name: CREDENTIALS_VOLUME.to_owned(),
            secret: Some(core::SecretVolumeSource {
                secret_name: Some(named.name.clone()),
                default_mode: Some(0o440),
                optional: Some(false),
                items: None,
            }),
            ..core::Volume::default()
        });
    [scratch].into_iter().chain(credentials).collect()
}

fn step(docs: &Docs<'_>, name: &str, read_only: bool) -> core::Container {
    let mount = |volume: &str, path: &str, read_only: bool| core::VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..core::VolumeMount::default()
    };
    let mut mounts = vec![
        mount(contract::WORKSPACE_VOLUME, contract::WORKSPACE, read_only),
        mount(SCRATCH_VOLUME, SCRATCH, false),
    ];
    if docs.run.spec.credentials_secret_ref.is_some() {
        mounts.push(mount(CREDENTIALS_VOLUME, CREDENTIALS, true));
    }
    core::Container {
        name: name.to_owned(),
        image: Some(docs.settings.toolbox_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec![PROGRAM.to_owned(), name.to_owned()]),
        env: Some(environment(docs)),
        resources: Some(resources()),
        termination_message_path: Some(contract::RESULT_FILE.to_owned()),
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        security_context: Some(core::SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(core::Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            ..core::SecurityContext::default()
        }),
        ..core::Container::default()
    }
}

/// Returns the resources that Git needs. They are enough to unpack a repository near the size
/// limit.
fn resources() -> core::ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        Some(
            [("cpu", cpu), ("memory", memory)]
                .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
                .into(),
        )
    };
    core::ResourceRequirements {
        requests: amounts("50m", "64Mi"),
        limits: amounts("1", "512Mi"),
        claims: None,
    }
}

fn environment(docs: &Docs<'_>) -> Vec<core::EnvVar> {
    let Docs {
        run,
        status,
        settings,
        load: _,
    } = docs;
    let (spec, metadata) = (&run.spec, &run.metadata);
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let is = |value: bool| value.to_string();
    let created = metadata.creation_timestamp.as_ref();
    let credentials = spec.credentials_secret_ref.as_ref().map(|_| CREDENTIALS);
    [
        ("STEP_URL", spec.repository_url.clone()),
        ("STEP_SOURCE_BRANCH", spec.source_branch.clone()),
        ("STEP_BASE_COMMIT", text(&status.base_commit)),
        ("STEP_OUTPUT_BRANCH", run.output_branch()),
        ("STEP_OUTPUT_HEAD", text(&status.branch_head)),
        ("STEP_WORKING_DIRECTORY", spec.working_directory.clone()),
        ("STEP_INCLUDE_CODEBASE", is(spec.include_codebase)),
        ("STEP_OUTPUT_PATH", spec.output.path.clone()),
        ("STEP_COMMIT_MESSAGE", text(&spec.output.commit_message)),
        ("STEP_RUN_UID", text(&metadata.uid)),
        (
            "STEP_RUN_NAME",
            [text(&metadata.namespace), text(&metadata.name)].join("/"),
        ),
        // The same content must give the same commit, whenever it is created.
        (
            "STEP_COMMIT_TIME",
            created.map_or(0, |at| at.0.as_second()).to_string(),
        ),
        (
            "STEP_CREDENTIALS",
            credentials.unwrap_or_default().to_owned(),
        ),
        ("STEP_ALLOWED_NETWORKS", settings.allowed_networks.join(",")),
        ("STEP_PLAIN_HTTP", is(settings.plain_http)),
        ("STEP_LIMIT_MIB", settings.repository_limit_mib.to_string()),
        ("STEP_TIMEOUT_SECONDS", STEP_TIME.as_secs().to_string()),
        ("STEP_SOURCE", SOURCE.to_owned()),
        ("STEP_SCRATCH", SCRATCH.to_owned()),
        ("STEP_REPORT", contract::RESULT_FILE.to_owned()),
    ]
    .map(|(name, value)| core::EnvVar {
        name: name.to_owned(),
        // Kubernetes expands `$(NAME)` in a Pod's variable. Without escaping, a commit message
        // could change.
        value: Some(value.replace('$', "$$")),
        value_from: None,
    })
    .into()
}
