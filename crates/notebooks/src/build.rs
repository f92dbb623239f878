//! The Job of an attempt.
//!
//! # Guarantees
//! - The Pod fits the Pod Security level `restricted`.
//! - Only `fetch` mounts the Git credentials, only the kernel mounts the user's volumes and the token, and the kernel
//!   never mounts `/inputs`.
//! - The same input gives the same bytes.

use std::{collections::BTreeSet, time::Duration};

use api::{
    decide::{Manifest, ResourceType},
    names,
    notebooks::{
        GitSource, NOTEBOOK_VALIDATION_JOB, NotebookValidationJob, NotebookValidationJobStatus,
        PodConfig, validation_intent,
    },
};
use attempts::{
    AttemptSpec, job_spec,
    restricted::{own_security_context, pod_security_context, security_context},
    step::{self, StepContainer, mount},
    time,
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{self as core, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Error, Value, json};

use crate::world::{FETCH, KERNEL, NotebookSettings, RUNNER};

/// User of the runner. It differs from the kernel's user, so the kernel cannot signal the runner.
const RUNNER_USER: i64 = 65533;
/// Time limit that `fetch` sets itself.
const FETCH_TIME: Duration = Duration::from_secs(600);
/// Time between SIGTERM and SIGKILL, in seconds.
const GRACE_SECONDS: i64 = 30;

const HOME: &str = "/home/agent";
const SOURCE: &str = "/workspace/source";
const INPUTS: &str = "/inputs";
const LINK: &str = "/link";
const PROGRAM: &str = "/orchestrator/step";
/// Directory of the credentials of the golden notebook's own repository.
const GOLDEN_CREDENTIALS: &str = "/golden-credentials";
/// Directory of the service account's token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the names of users' volumes, so that they differ from ours.
const OWN: &str = "own-";

/// Inputs of the Job of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct BuildInput<'a> {
    /// The job.
    pub job: &'a NotebookValidationJob,
    /// Stored status, with the commits and the image.
    pub status: &'a NotebookValidationJobStatus,
    /// The operator's configuration.
    pub settings: &'a NotebookSettings,
}

/// Returns the settings by which an attempt is evaluated.
#[must_use]
pub fn attempt_spec(job: &NotebookValidationJob) -> AttemptSpec {
    let spec = &job.spec;
    let limits = &spec.pod_config.resources.limits;
    AttemptSpec {
        start_timeout_ms: time::millis(spec.start_timeout.into()),
        timeout_ms: time::millis(spec.timeout.into()),
        required: Vec::new(),
        memory: limits.get("memory").map(|amount| amount.0.clone()),
        user: spec.pod_config.run_as_user,
    }
}

/// Builds the Job of an attempt. It requires that the stored status announces the commits and the image (R60).
///
/// # Errors
/// If a part cannot be written as JSON.
pub fn job(input: &BuildInput<'_>, attempt: u32, name: &str) -> Result<Manifest, Error> {
    let BuildInput { job, status, .. } = *input;
    let meta = &job.metadata;
    let uid = meta.uid.as_deref().unwrap_or_default();
    let kind = NOTEBOOK_VALIDATION_JOB.name();
    let labels = names::child_labels(kind, meta.name.as_deref().unwrap_or_default(), uid);
    let annotation = serde_json::to_string(&attempt_spec(job))?;
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels.clone()),
            annotations: Some([(names::ATTEMPT_SPEC.to_owned(), annotation)].into()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(input, attempt)?),
    };
    let limit = Duration::from(job.spec.start_timeout)
        .saturating_add(Duration::from(job.spec.timeout))
        .saturating_add(FETCH_TIME);
    let body = Job {
        metadata: ObjectMeta {
            owner_references: Some(vec![OwnerReference {
                api_version: NOTEBOOK_VALIDATION_JOB.resource.api_version(),
                kind: kind.to_owned(),
                name: meta.name.clone().unwrap_or_default(),
                uid: uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(job_spec(template, limit)),
        status: None,
    };
    let manifest = Manifest::new(
        ResourceType::JOB,
        meta.namespace.as_deref(),
        name,
        uid,
        labels,
        serde_json::to_value(&body)?,
    );
    // Without a record, no intent can match, so the engine rejects the Job.
    Ok(manifest.requires_intent(validation_intent(status).unwrap_or_default()))
}

fn pod_spec(input: &BuildInput<'_>, attempt: u32) -> Result<PodSpec, Error> {
    let config = &input.job.spec.pod_config;
    let selector = Some(config.node_selector.clone());
    Ok(PodSpec {
        init_containers: Some(vec![fetch(input)]),
        containers: vec![
            kernel(config, &input.job.spec.notebook.path)?,
            runner(input, attempt)?,
        ],
        volumes: Some(volumes(input)?),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        service_account_name: Some(config.service_account_name.clone()),
        // The runner must have no token, so the kernel mounts its own volume with one.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(pod_security_context(config.run_as_user)),
        runtime_class_name: config.runtime_class_name.clone(),
        node_selector: selector.filter(|selector| !selector.is_empty()),
        tolerations: some(config.tolerations.clone()),
        priority_class_name: config.priority_class_name.clone(),
        image_pull_secrets: some(converted(&config.image_pull_secrets)?),
        ..PodSpec::default()
    })
}

/// Builds the container that checks out the commit by its ID (F1) and copies the notebooks.
fn fetch(input: &BuildInput<'_>) -> core::Container {
    let BuildInput {
        job,
        status,
        settings,
    } = *input;
    let spec = &job.spec;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let has_credentials = spec.notebook.git.credentials_secret_ref.is_some();
    let mut mounts = vec![
        mount("workspace", "/workspace", false),
        mount("inputs", INPUTS, false),
        mount("orchestrator", "/orchestrator", false),
    ];
    // Without a golden notebook, its variables are empty.
    let golden = spec.golden_notebook.as_ref();
    let golden_url = golden.and_then(|golden| golden.git.as_ref());
    let golden_credentials = if golden_secret(input).is_some() {
        mounts.push(mount("golden-credentials", GOLDEN_CREDENTIALS, true));
        GOLDEN_CREDENTIALS
    } else {
        ""
    };
    let mut environment = vec![
        ("STEP_URL", spec.notebook.git.url.clone()),
        ("STEP_COMMIT", text(&status.commit)),
        ("STEP_NOTEBOOK", spec.notebook.path.clone()),
        ("STEP_GOLDEN_COMMIT", text(&status.golden_commit)),
        (
            "STEP_GOLDEN_NOTEBOOK",
            golden.map_or_else(String::new, |golden| golden.path.clone()),
        ),
        (
            "STEP_GOLDEN_URL",
            golden_url.map_or_else(String::new, |git| git.url.clone()),
        ),
        ("STEP_GOLDEN_CREDENTIALS", golden_credentials.to_owned()),
    ];
    environment.extend(step::environment(
        &job.metadata,
        &settings.step,
        has_credentials,
        FETCH_TIME,
    ));
    environment.push(("STEP_SOURCE", SOURCE.to_owned()));
    environment.push(("STEP_INPUTS", INPUTS.to_owned()));
    environment.push(("STEP_PROGRAM", PROGRAM.to_owned()));
    environment.extend(step::paths());
    step::container(StepContainer {
        name: FETCH,
        image: &settings.step.toolbox_image,
        mounts,
        has_credentials,
        environment,
    })
}

/// Builds the container with the user's image. Our variables come last, so a user's variable cannot replace them (R66).
fn kernel(config: &PodConfig, notebook: &str) -> Result<core::Container, Error> {
    let directory = notebook.rsplit_once('/').map(|(directory, _)| directory);
    let directory = directory.map_or_else(
        || SOURCE.to_owned(),
        |directory| [SOURCE, directory].join("/"),
    );
    let mut env: Vec<core::EnvVar> = converted(&config.env)?;
    env.extend([
        variable("HOME", HOME.to_owned()),
        variable("IPYTHONDIR", [HOME, ".ipython"].join("/")),
        variable("ORCHESTRATOR_LINK", LINK.to_owned()),
        variable("ORCHESTRATOR_DIRECTORY", directory),
    ]);
    let mut mounts = vec![
        mount("workspace", "/workspace", false),
        mount("orchestrator", "/orchestrator", true),
        mount("link", LINK, false),
        mount("home", HOME, false),
        mount("tmp", "/tmp", false),
    ];
    if config.shm_size.is_some() {
        mounts.push(mount("shm", "/dev/shm", false));
    }
    if config.automount_token {
        mounts.push(mount("token", TOKEN, true));
    }
    for own in &config.volume_mounts {
        mounts.push(mount(
            &[OWN, &own.name].concat(),
            &own.mount_path,
            own.read_only,
        ));
    }
    Ok(core::Container {
        name: KERNEL.to_owned(),
        image: Some(config.container_image.clone()),
        image_pull_policy: config.image_pull_policy.clone(),
        command: Some(vec![PROGRAM.to_owned(), KERNEL.to_owned()]),
        env: Some(env),
        env_from: some(converted(&config.env_from)?),
        resources: Some(converted(&config.resources)?),
        working_dir: Some("/workspace".to_owned()),
        volume_mounts: Some(mounts),
        security_context: Some(security_context()),
        ..core::Container::default()
    })
}

/// Builds the container that drives the kernel. It mounts the kernel's Secrets only to mask their values.
fn runner(input: &BuildInput<'_>, attempt: u32) -> Result<core::Container, Error> {
    let settings = serde_json::to_string(&runner_settings(input, attempt)?)?;
    let mut mounts = vec![
        mount("inputs", INPUTS, true),
        mount("link", LINK, false),
        mount("runner-tmp", "/tmp", false),
    ];
    for number in 0..masked(&input.job.spec.pod_config).len() {
        mounts.push(mount(
            &format!("masked-{number}"),
            &format!("/secrets/{number}"),
            true,
        ));
    }
    let amounts = |cpu: &str, memory: &str| {
        [("cpu", cpu), ("memory", memory)]
            .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
            .into()
    };
    Ok(core::Container {
        name: RUNNER.to_owned(),
        image: Some(input.settings.runner_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        // Kubernetes expands `$(NAME)` in a variable. Without escaping, a pattern could change.
        env: Some(vec![variable(
            "RUNNER_SETTINGS",
            settings.replace('$', "$$"),
        )]),
        resources: Some(core::ResourceRequirements {
            requests: Some(amounts("50m", "128Mi")),
            limits: Some(amounts("1", "1Gi")),
            claims: None,
        }),
        termination_message_path: Some("/dev/termination-log".to_owned()),
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        security_context: Some(own_security_context(RUNNER_USER)),
        ..core::Container::default()
    })
}

/// Returns the settings of the runner, as its schema requires them.
fn runner_settings(input: &BuildInput<'_>, attempt: u32) -> Result<Value, Error> {
    let BuildInput {
        job,
        status,
        settings,
    } = *input;
    let spec = &job.spec;
    let mut all = json!({
        "uid": job.metadata.uid,
        "attempt": attempt,
        "commit": status.commit,
        "image": status.image,
        "store": spec.results.store,
        "maxBytes": settings.max_result_bytes,
        "checks": spec.validation.checks(),
        "comparison": spec.comparison,
        "expectedOutputs": spec.validation.expected_outputs,
    });
    let optional = [
        ("goldenCommit", serde_json::to_value(&status.golden_commit)?),
        ("kernel", serde_json::to_value(&spec.notebook.kernel)?),
        (
            "cellTimeout",
            serde_json::to_value(spec.notebook.cell_timeout.map(whole_seconds))?,
        ),
    ];
    if let Value::Object(all) = &mut all {
        for (key, value) in optional {
            if !value.is_null() {
                all.insert(key.to_owned(), value);
            }
        }
    }
    Ok(all)
}

fn whole_seconds(limit: api::Duration) -> u64 {
    let limit = Duration::from(limit);
    limit
        .as_secs()
        .saturating_add(u64::from(limit.subsec_nanos() > 0))
}

fn volumes(input: &BuildInput<'_>) -> Result<Vec<core::Volume>, Error> {
    let spec = &input.job.spec;
    let config = &spec.pod_config;
    let own_secret = secret_name(&spec.notebook.git);
    let mut all = step::volumes(&input.settings.step, own_secret);
    for name in [
        "workspace",
        "inputs",
        "orchestrator",
        "link",
        "home",
        "tmp",
        "runner-tmp",
    ] {
        all.push(empty(name, None, None));
    }
    if let Some(size) = &config.shm_size {
        let size = Quantity(size.0.clone());
        all.push(empty("shm", Some("Memory".to_owned()), Some(size)));
    }
    if let Some(name) = golden_secret(input) {
        all.push(secret("golden-credentials", name, false));
    }
    for (number, name) in masked(config).iter().enumerate() {
        all.push(secret(&format!("masked-{number}"), name, true));
    }
    if config.automount_token {
        all.push(token()?);
    }
    for own in &config.volumes {
        let mut volume: core::Volume = converted(own)?;
        volume.name = [OWN, &own.name].concat();
        all.push(volume);
    }
    Ok(all)
}

/// Returns the names of the Secrets that the kernel can read, sorted.
fn masked(config: &PodConfig) -> BTreeSet<&str> {
    let of_env = config.env.iter().filter_map(|variable| {
        let key = variable.value_from.as_ref()?.secret_key_ref.as_ref()?;
        Some(key.name.as_str())
    });
    let of_all = config
        .env_from
        .iter()
        .filter_map(|source| Some(source.secret_ref.as_ref()?.name.as_str()));
    let of_volumes = config
        .volumes
        .iter()
        .filter_map(|volume| Some(volume.secret.as_ref()?.secret_name.as_str()));
    of_env.chain(of_all).chain(of_volumes).collect()
}

fn secret_name(source: &GitSource) -> Option<&str> {
    let secret = source.credentials_secret_ref.as_ref()?;
    Some(&secret.name)
}

/// Returns the Secret of the golden notebook's own repository.
fn golden_secret<'a>(input: &BuildInput<'a>) -> Option<&'a str> {
    let golden = input.job.spec.golden_notebook.as_ref()?;
    secret_name(golden.git.as_ref()?)
}

fn secret(volume: &str, name: &str, is_optional: bool) -> core::Volume {
    core::Volume {
        name: volume.to_owned(),
        secret: Some(core::SecretVolumeSource {
            secret_name: Some(name.to_owned()),
            default_mode: Some(0o440),
            optional: Some(is_optional),
            items: None,
        }),
        ..core::Volume::default()
    }
}

fn empty(name: &str, medium: Option<String>, size_limit: Option<Quantity>) -> core::Volume {
    core::Volume {
        name: name.to_owned(),
        empty_dir: Some(core::EmptyDirVolumeSource { medium, size_limit }),
        ..core::Volume::default()
    }
}

/// Builds the volume that the API server would add for an automounted token.
fn token() -> Result<core::Volume, Error> {
    serde_json::from_value(json!({
        "name": "token",
        "projected": { "defaultMode": 0o440, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
        ] },
    }))
}

fn variable(name: &str, value: String) -> core::EnvVar {
    core::EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    }
}

/// Converts a part of the spec to the part of a Pod with the same JSON.
fn converted<T: DeserializeOwned>(part: &impl Serialize) -> Result<T, Error> {
    serde_json::from_value(serde_json::to_value(part)?)
}

/// Returns `None` for an empty list, so that the field is omitted.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}
