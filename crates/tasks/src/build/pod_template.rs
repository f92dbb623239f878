//! The Pod template of an attempt's Job: the agent's container, its environment and its volumes.

use std::collections::BTreeMap;

use api::{
    names,
    tasks::{AgentSpec, Amount, EnvFrom, EnvVar, KeyRef, NamedRef, Resources, Volume},
};
use attempts::restricted::{pod_security_context, security_context};
use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{
    BuildContext,
    contract::{self, Facts},
    docs_containers as docs, labels,
};
use crate::run::run_spec::{RunSpec, Workload, settings};

/// Builds the Pod template. An annotation stores the settings by which the attempt is evaluated.
pub(super) fn pod_template(
    context: &BuildContext<'_>,
) -> Result<core::PodTemplateSpec, serde_json::Error> {
    let BuildContext {
        run_spec,
        agent,
        resources,
        ..
    } = *context;
    let attempt_spec = serde_json::to_string(&settings(&agent.spec, resources))?;
    // The schema rejects our own keys. Ours win in any case, because the Pod is found by them.
    let mut pod_labels = agent.spec.pod_labels.clone();
    pod_labels.extend(labels(&run_spec));
    let mut annotations = agent.spec.pod_annotations.clone();
    annotations.insert(names::ATTEMPT_SPEC.to_owned(), attempt_spec);
    Ok(core::PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(context)),
    })
}

fn pod_spec(context: &BuildContext<'_>) -> core::PodSpec {
    let agent = &context.agent.spec;
    let (mut before, mut containers) = (Vec::new(), vec![container(context)]);
    let mut volumes = volumes(&context.run_spec, agent);
    if let Workload::Docs(run) = &context.run_spec.work {
        before = docs::before(run, containers);
        containers = vec![docs::publish(run)];
        volumes.extend(docs::volumes(run));
    }
    core::PodSpec {
        init_containers: some(before),
        containers,
        volumes: Some(volumes),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(contract::GRACE_SECONDS),
        service_account_name: Some(agent.service_account_name.clone()),
        automount_service_account_token: Some(agent.automount_token),
        // Without this, the agent gets variables for every Service of the namespace, which leaks
        // its neighbors.
        enable_service_links: Some(false),
        security_context: Some(pod_security_context(agent.run_as_user)),
        runtime_class_name: agent.runtime_class_name.clone(),
        node_selector: Some(agent.node_selector.clone()).filter(|selector| !selector.is_empty()),
        tolerations: some(agent.tolerations.clone()),
        affinity: agent.affinity.clone(),
        priority_class_name: agent.priority_class_name.clone(),
        image_pull_secrets: some(agent.image_pull_secrets.iter().map(reference).collect()),
        ..core::PodSpec::default()
    }
}

fn container(context: &BuildContext<'_>) -> core::Container {
    let agent = &context.agent.spec;
    core::Container {
        name: contract::CONTAINER.to_owned(),
        image: Some(agent.image.clone()),
        image_pull_policy: agent.image_pull_policy.clone(),
        command: some(agent.command.clone()),
        args: some(agent.args.clone()),
        env: Some(environment(context)),
        env_from: some(agent.env_from.iter().map(env_from).collect()),
        resources: Some(requirements(context.resources)),
        working_dir: Some(contract::WORKSPACE.to_owned()),
        termination_message_path: Some(contract::RESULT_FILE.to_owned()),
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts(agent)),
        security_context: Some(security_context()),
        ..core::Container::default()
    }
}

fn environment(context: &BuildContext<'_>) -> Vec<core::EnvVar> {
    let facts = Facts {
        metadata: context.run_spec.spec.metadata,
        work: context.run_spec.work,
        agent: &context.agent.spec,
        attempt: context.attempt,
    };
    let ours = contract::environment(&facts)
        .into_iter()
        .map(|(name, value)| core::EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        });
    ours.chain(context.agent.spec.env.iter().map(variable))
        .collect()
}

fn variable(variable: &EnvVar) -> core::EnvVar {
    let EnvVar {
        name,
        value,
        value_from,
    } = variable;
    core::EnvVar {
        name: name.clone(),
        value: value.clone(),
        value_from: value_from.as_ref().map(|source| core::EnvVarSource {
            secret_key_ref: source.secret_key_ref.as_ref().map(|key| {
                let KeyRef {
                    name,
                    key,
                    optional,
                } = key.clone();
                core::SecretKeySelector {
                    name,
                    key,
                    optional: Some(optional),
                }
            }),
            config_map_key_ref: source.config_map_key_ref.as_ref().map(|key| {
                let KeyRef {
                    name,
                    key,
                    optional,
                } = key.clone();
                core::ConfigMapKeySelector {
                    name,
                    key,
                    optional: Some(optional),
                }
            }),
            ..core::EnvVarSource::default()
        }),
    }
}

fn env_from(source: &EnvFrom) -> core::EnvFromSource {
    let EnvFrom {
        prefix,
        secret_ref,
        config_map_ref,
    } = source;
    core::EnvFromSource {
        prefix: prefix.clone(),
        secret_ref: secret_ref.as_ref().map(|named| core::SecretEnvSource {
            name: named.name.clone(),
            optional: None,
        }),
        config_map_ref: config_map_ref
            .as_ref()
            .map(|named| core::ConfigMapEnvSource {
                name: named.name.clone(),
                optional: None,
            }),
    }
}

fn reference(named: &NamedRef) -> core::LocalObjectReference {
    core::LocalObjectReference {
        name: named.name.clone(),
    }
}

fn requirements(resources: &Resources) -> core::ResourceRequirements {
    let amounts = |amounts: &BTreeMap<String, Amount>| {
        Some(
            amounts
                .iter()
                .map(|(name, amount)| (name.clone(), quantity(amount)))
                .collect::<BTreeMap<_, _>>(),
        )
        .filter(|amounts| !amounts.is_empty())
    };
    let Resources { requests, limits } = resources;
    core::ResourceRequirements {
        requests: amounts(requests),
        limits: amounts(limits),
        claims: None,
    }
}

fn quantity(amount: &Amount) -> Quantity {
    Quantity(amount.0.clone())
}

fn mounts(agent: &AgentSpec) -> Vec<core::VolumeMount> {
    contract::MOUNTS
        .iter()
        .map(|mount| core::VolumeMount {
            name: mount.volume.to_owned(),
            mount_path: (mount.path)(agent).to_owned(),
            read_only: mount.read_only.then_some(true),
            ..core::VolumeMount::default()
        })
        .chain(agent.volumes.iter().map(own_mount))
        .collect()
}

fn own_mount(volume: &Volume) -> core::VolumeMount {
    core::VolumeMount {
        name: own_volume_name(volume),
        mount_path: volume.mount_path.clone(),
        read_only: volume.read_only.then_some(true),
        ..core::VolumeMount::default()
    }
}

/// Returns a name that no volume of ours has.
fn own_volume_name(volume: &Volume) -> String {
    [contract::VOLUME_PREFIX, &volume.name].concat()
}

fn own_volume(volume: &Volume) -> core::Volume {
    let Volume {
        name: _,
        mount_path: _,
        secret_ref,
        config_map_ref,
        persistent_volume_claim_ref,
        read_only,
    } = volume;
    core::Volume {
        name: own_volume_name(volume),
        secret: secret_ref.as_ref().map(|named| core::SecretVolumeSource {
            secret_name: Some(named.name.clone()),
            ..core::SecretVolumeSource::default()
        }),
        config_map: config_map_ref
            .as_ref()
            .map(|named| core::ConfigMapVolumeSource {
                name: named.name.clone(),
                ..core::ConfigMapVolumeSource::default()
            }),
        persistent_volume_claim: persistent_volume_claim_ref.as_ref().map(|named| {
            core::PersistentVolumeClaimVolumeSource {
                claim_name: named.name.clone(),
                // Without it, the kubelet changes the group of all files in the volume.
                read_only: read_only.then_some(true),
            }
        }),
        ..core::Volume::default()
    }
}

fn volumes(run_spec: &RunSpec<'_>, agent: &AgentSpec) -> Vec<core::Volume> {
    let empty = |name: &str, size: Option<&Amount>| core::Volume {
        name: name.to_owned(),
        empty_dir: Some(core::EmptyDirVolumeSource {
            size_limit: size.map(quantity),
            medium: None,
        }),
        ..core::Volume::default()
    };
    let workspace = match &agent.workspace.storage_class_name {
        None => empty(contract::WORKSPACE_VOLUME, Some(&agent.workspace.size)),
        Some(class) => core::Volume {
            name: contract::WORKSPACE_VOLUME.to_owned(),
            ephemeral: Some(core::EphemeralVolumeSource {
                volume_claim_template: Some(claim(class, &agent.workspace.size)),
            }),
            ..core::Volume::default()
        },
    };
    let mut volumes = vec![
        core::Volume {
            name: contract::CONTEXT_VOLUME.to_owned(),
            config_map: Some(core::ConfigMapVolumeSource {
                name: run_spec.files_name(),
                ..core::ConfigMapVolumeSource::default()
            }),
            ..core::Volume::default()
        },
        workspace,
        empty(contract::HOME_VOLUME, None),
        empty(contract::TMP_VOLUME, None),
    ];
    volumes.extend(agent.volumes.iter().map(own_volume));
    volumes
}

fn claim(class: &str, size: &Amount) -> core::PersistentVolumeClaimTemplate {
    core::PersistentVolumeClaimTemplate {
        metadata: None,
        spec: core::PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class.to_owned()),
            resources: Some(core::VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), quantity(size))].into()),
                limits: None,
            }),
            ..core::PersistentVolumeClaimSpec::default()
        },
    }
}

/// Returns `None` for an empty list, so that the field is omitted.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}
