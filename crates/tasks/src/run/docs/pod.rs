//! The containers of a DocsRun's Pod, one after the other: `clone`, then the agent, then `publish`.
//!
//! The agent is hostile. What it mounts, it may have changed; so `publish` works in a volume that
//! the agent never mounts, and the credentials are mounted in our own two containers only. A
//! container of a Pod ends with all its processes before the next one starts.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::api::resource::Quantity};

use super::STEP_TIME;
use crate::run::{contract, order::Docs};

/// The container that brings the repository.
pub const CLONE: &str = "clone";
/// The container that commits and pushes.
pub const PUBLISH: &str = "publish";
/// The program of both.
const PROGRAM: &str = "/usr/local/bin/step";
/// The user of both: one that the toolbox image knows.
const USER: i64 = 65532;

/// The volume that only our own containers mount.
const SCRATCH_VOLUME: &str = "scratch";
const SCRATCH: &str = "/scratch";
/// The volume with the credentials.
const CREDENTIALS_VOLUME: &str = "credentials";
const CREDENTIALS: &str = "/credentials";
/// Where the checkout is.
const SOURCE: &str = "/workspace/source";

/// A folder of the checkout, in the agent's container.
#[must_use]
pub fn source_dir(folder: &str) -> String {
    match folder.trim_end_matches('/') {
        "." => SOURCE.to_owned(),
        folder => [SOURCE, folder].join("/"),
    }
}

/// What runs before `publish`.
pub(in crate::run) fn before(docs: &Docs<'_>, agent: Vec<core::Container>) -> Vec<core::Container> {
    let mut containers = vec![step(docs, CLONE, false)];
    containers.extend(agent);
    containers
}

/// What runs last.
pub(in crate::run) fn publish(docs: &Docs<'_>) -> core::Container {
    step(docs, PUBLISH, true)
}

/// The volumes beside the agent's.
pub(in crate::run) fn volumes(docs: &Docs<'_>) -> Vec<core::Volume> {
    let limit = docs.settings.repository_limit_mib;
    let scratch = core::Volume {
        name: SCRATCH_VOLUME.to_owned(),
        empty_dir: Some(core::EmptyDirVolumeSource {
            // The steps count themselves, and say so; this is for when they cannot.
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

/// Git's own needs: a repository near the limit is unpacked within these.
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
        // The same content makes the same commit, whenever it is made.
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
        // `$(NAME)` in a Pod's variable is replaced; a message must arrive as it is.
        value: Some(value.replace('$', "$$")),
        value_from: None,
    })
    .into()
}
