//! Containers that run a step of the toolbox image, with a Git server and its credentials.
//!
//! The Job of a DocsRun has two of them around its agent, and the Job of an upgrade has one alone.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use crate::restricted::own_security_context;

/// Program of the steps in the toolbox image.
const PROGRAM: &str = "/usr/local/bin/step";
/// User of the steps, which exists in the toolbox image.
pub const USER: i64 = 65532;
/// File that the report is written to.
const REPORT_FILE: &str = "/dev/termination-log";

/// Volume that only the steps mount.
const SCRATCH_VOLUME: &str = "scratch";
/// Directory of that volume.
const SCRATCH: &str = "/scratch";
/// Volume with the credentials.
const CREDENTIALS_VOLUME: &str = "credentials";
/// Directory of that volume.
const CREDENTIALS: &str = "/credentials";

/// The operator's configuration of steps with a Git server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSettings {
    /// Image with `git`, `ssh` and the steps.
    pub toolbox_image: String,
    /// Networks with addresses that are not blocked, as CIDRs.
    pub allowed_networks: Vec<String>,
    /// Whether plain HTTP is allowed.
    pub plain_http: bool,
    /// Maximum space that a repository may need, in MiB.
    pub repository_limit_mib: u32,
}

impl Default for StepSettings {
    fn default() -> Self {
        Self {
            toolbox_image: concat!("localhost/orchestrator-toolbox:", env!("CARGO_PKG_VERSION"))
                .to_owned(),
            allowed_networks: Vec::new(),
            plain_http: false,
            repository_limit_mib: 1024,
        }
    }
}

/// A container that runs a step.
#[derive(Debug, Clone)]
pub struct StepContainer<'a> {
    /// Name of the step and of its container.
    pub name: &'a str,
    /// Toolbox image.
    pub image: &'a str,
    /// Mounts before those of the step.
    pub mounts: Vec<core::VolumeMount>,
    /// Whether the step gets credentials.
    pub has_credentials: bool,
    /// Variables of the step.
    pub environment: Vec<(&'static str, String)>,
}

/// Returns the mount of a volume.
#[must_use]
pub fn mount(volume: &str, path: &str, read_only: bool) -> core::VolumeMount {
    core::VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..core::VolumeMount::default()
    }
}

/// Builds the container of a step. It fits the Pod Security level `restricted`.
#[must_use]
pub fn container(step: StepContainer<'_>) -> core::Container {
    let StepContainer {
        name,
        image,
        mut mounts,
        has_credentials,
        environment,
    } = step;
    mounts.push(mount(SCRATCH_VOLUME, SCRATCH, false));
    if has_credentials {
        mounts.push(mount(CREDENTIALS_VOLUME, CREDENTIALS, true));
    }
    let variables = environment.into_iter().map(|(name, value)| core::EnvVar {
        name: name.to_owned(),
        // Kubernetes expands `$(NAME)` in a Pod's variable. Without escaping, a commit message
        // could change.
        value: Some(value.replace('$', "$$")),
        value_from: None,
    });
    core::Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec![PROGRAM.to_owned(), name.to_owned()]),
        env: Some(variables.collect()),
        resources: Some(resources()),
        termination_message_path: Some(REPORT_FILE.to_owned()),
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        security_context: Some(own_security_context(USER)),
        ..core::Container::default()
    }
}

/// Builds the volumes of the steps of a Pod. `secret` has the credentials.
#[must_use]
pub fn volumes(settings: &StepSettings, secret: Option<&str>) -> Vec<core::Volume> {
    let limit = settings.repository_limit_mib;
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
    let credentials = secret.map(|name| core::Volume {
        name: CREDENTIALS_VOLUME.to_owned(),
        secret: Some(core::SecretVolumeSource {
            secret_name: Some(name.to_owned()),
            default_mode: Some(0o440),
            optional: Some(false),
            items: None,
        }),
        ..core::Volume::default()
    });
    [scratch].into_iter().chain(credentials).collect()
}

/// Returns the variables that each step gets: the identity of its run, and the configuration.
#[must_use]
pub fn environment(
    run: &ObjectMeta,
    settings: &StepSettings,
    has_credentials: bool,
    timeout: Duration,
) -> Vec<(&'static str, String)> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let created = run.creation_timestamp.as_ref();
    let credentials = if has_credentials { CREDENTIALS } else { "" };
    vec![
        ("STEP_RUN_UID", text(&run.uid)),
        (
            "STEP_RUN_NAME",
            [text(&run.namespace), text(&run.name)].join("/"),
        ),
        // The same content must give the same commit, whenever it is created.
        (
            "STEP_COMMIT_TIME",
            created.map_or(0, |at| at.0.as_second()).to_string(),
        ),
        ("STEP_CREDENTIALS", credentials.to_owned()),
        ("STEP_ALLOWED_NETWORKS", settings.allowed_networks.join(",")),
        ("STEP_PLAIN_HTTP", settings.plain_http.to_string()),
        ("STEP_LIMIT_MIB", settings.repository_limit_mib.to_string()),
        ("STEP_TIMEOUT_SECONDS", timeout.as_secs().to_string()),
    ]
}

/// Returns the variables with the paths that each step writes to.
#[must_use]
pub fn paths() -> [(&'static str, String); 2] {
    [
        ("STEP_SCRATCH", SCRATCH.to_owned()),
        ("STEP_REPORT", REPORT_FILE.to_owned()),
    ]
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
