//! The views of the built-in Kubernetes kinds.

use std::collections::BTreeMap;

use api::names;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{
            Container, ContainerStatus, Event, LimitRange, Namespace, Node, PersistentVolumeClaim,
            Pod, PodSpec, ResourceQuota, ResourceRequirements, Taint, Volume,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};

use super::{annotation, optional, text};
use crate::world::{
    ClaimView, ContainerState, ContainerView, EventView, JobView, LIST, LeaseView, LimitRangeView,
    Meta, NamespaceView, Need, NodeView, PodView, QuotaView,
};

type Quantities = BTreeMap<String, Quantity>;

fn quantities(all: Option<&Quantities>) -> BTreeMap<String, String> {
    let all = all.iter().flat_map(|all| all.iter());
    all.take(LIST)
        .map(|(name, amount)| (name.clone(), text(&amount.0)))
        .collect()
}

/// Reads the conditions of a status that may be missing.
macro_rules! conditions {
    ($status:expr) => {{
        let all = $status.iter().flat_map(|status| &status.conditions);
        let all = all.flat_map(|all| all.iter());
        all.take(LIST).map(|one| condition!(one)).collect()
    }};
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let labels = job.metadata.labels.as_ref();
        let version = labels.and_then(|labels| labels.get(names::CONTEXT_VERSION));
        Self {
            meta: Meta::from(&job.metadata),
            version: version.cloned(),
            suspended: job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true),
            conditions: conditions!(job.status),
        }
    }
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let status = pod.status.clone().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let volumes = spec.volumes.iter().flat_map(|all| all.iter().take(LIST));
        let of_init = status.init_container_statuses.iter();
        let states: BTreeMap<&str, &ContainerStatus> = of_init
            .chain(&status.container_statuses)
            .flat_map(|all| all.iter())
            .map(|one| (one.name.as_str(), one))
            .collect();
        let containers = sequence(spec)
            .take(LIST)
            .map(|one| container(one, states.get(one.name.as_str()).copied()))
            .collect();
        Self {
            meta: Meta::from(&pod.metadata),
            phase: optional(status.phase.as_ref()),
            reason: optional(status.reason.as_ref()),
            message: optional(status.message.as_ref()),
            node: spec.node_name.clone(),
            conditions: conditions!(pod.status),
            containers: in_order(containers),
            claims: volumes.filter_map(|volume| claim(name, volume)).collect(),
            needs: needs(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
        }
    }
}

/// The name of the agent's container.
const AGENT: &str = "agent";

/// Returns the containers that an explanation needs. Init containers are included if the agent is
/// one of them, because then they run one after the other. Sidecars, which are always restarted,
/// are left out.
fn sequence(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = || spec.init_containers.iter().flat_map(|all| all.iter());
    let is_in_steps = init().any(|one| one.name == AGENT);
    init()
        .filter(move |one| is_in_steps && one.restart_policy.as_deref() != Some("Always"))
        .chain(&spec.containers)
}

fn in_order(mut containers: Vec<ContainerView>) -> Vec<ContainerView> {
    let ended_well = |one: &ContainerView| one.state.exit().is_some_and(|exit| exit.code == 0);
    let agent = containers.iter().position(|one| one.name == AGENT);
    let publish = containers.iter().position(|one| one.name == "publish");
    let first = match (agent, publish) {
        (Some(agent), Some(publish)) if agent < publish => containers
            .iter()
            .take(publish)
            .position(|one| !ended_well(one))
            .unwrap_or(publish),
        (Some(_), _) | (None, _) => agent.unwrap_or_default(),
    };
    if let Some(part) = containers.get_mut(..=first) {
        part.rotate_right(1);
    }
    containers
}

/// Returns the name of a volume's claim. The name of an ephemeral claim is derived from the Pod's
/// name.
fn claim(pod: &str, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    volume
        .ephemeral
        .as_ref()
        .map(|_| format!("{pod}-{}", volume.name))
}

fn needs(spec: &PodSpec) -> Vec<Need> {
    let secrets = spec.image_pull_secrets.iter().flat_map(|all| all.iter());
    secrets
        .take(LIST)
        .map(|secret| Need {
            kind: "Secret".to_owned(),
            name: secret.name.clone(),
            key: None,
            role: "imagePullSecrets".to_owned(),
        })
        .collect()
}

fn container(container: &Container, status: Option<&ContainerStatus>) -> ContainerView {
    let empty = ResourceRequirements::default();
    let resources = container.resources.as_ref().unwrap_or(&empty);
    let mut view = status.map(ContainerView::from).unwrap_or_default();
    for state in [&mut view.state, &mut view.before] {
        if let ContainerState::Ended(exit) = state {
            exit.message = text(&exit.message);
        }
    }
    ContainerView {
        name: container.name.clone(),
        image: optional(container.image.as_ref()),
        image_id: text(&view.image_id),
        requests: quantities(resources.requests.as_ref()),
        limits: quantities(resources.limits.as_ref()),
        ..view
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        let series = event.series.as_ref();
        let exact = event.event_time.as_ref().map(|time| Time(time.0));
        let observed = series.and_then(|series| series.last_observed_time.as_ref());
        let count = series.and_then(|series| series.count).or(event.count);
        Self {
            uid: optional(event.involved_object.uid.as_ref()),
            warning: event.type_.as_deref() == Some("Warning"),
            reason: optional(event.reason.as_ref()),
            message: optional(event.message.as_ref()),
            count: count.unwrap_or(1),
            first: event.first_timestamp.clone().or(exact.clone()),
            last: observed
                .map(|time| Time(time.0))
                .or(event.last_timestamp.clone())
                .or(exact)
                .or(event.metadata.creation_timestamp.clone()),
        }
    }
}

impl From<&PersistentVolumeClaim> for ClaimView {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let resources = spec.and_then(|spec| spec.resources.as_ref());
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        let size = requests.and_then(|requests| requests.get("storage"));
        let status = claim.status.as_ref();
        Self {
            meta: Meta::from(&claim.metadata),
            phase: optional(status.and_then(|status| status.phase.as_ref())),
            class: spec.and_then(|spec| spec.storage_class_name.clone()),
            size: size.map(|size| text(&size.0)).unwrap_or_default(),
        }
    }
}

impl From<&ResourceQuota> for QuotaView {
    fn from(quota: &ResourceQuota) -> Self {
        let status = quota.status.as_ref();
        let wanted = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
        Self {
            name: optional(quota.metadata.name.as_ref()),
            hard: quantities(status.and_then(|status| status.hard.as_ref()).or(wanted)),
            used: quantities(status.and_then(|status| status.used.as_ref())),
        }
    }
}

impl From<&LimitRange> for LimitRangeView {
    fn from(range: &LimitRange) -> Self {
        let mut limits = Vec::new();
        for item in range.spec.iter().flat_map(|spec| &spec.limits) {
            for (word, amounts) in [("at least", &item.min), ("at most", &item.max)] {
                for (resource, amount) in quantities(amounts.as_ref()) {
                    limits.push(format!("{} {resource}: {word} {amount}", item.type_));
                }
            }
        }
        limits.truncate(LIST);
        Self {
            name: optional(range.metadata.name.as_ref()),
            limits,
        }
    }
}

impl NodeView {
    /// Reads a Node, including its labels with these keys.
    #[must_use]
    pub fn read(node: &Node, keys: &[String]) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|one| one.type_ == "Ready");
        let labels = node.metadata.labels.iter().flat_map(|all| all.iter());
        Self {
            name: optional(node.metadata.name.as_ref()),
            ready: ready.map(|one| condition!(one)),
            cordoned: spec.unschedulable == Some(true),
            taints: spec
                .taints
                .iter()
                .flat_map(|all| all.iter().take(LIST).map(taint))
                .collect(),
            labels: labels
                .filter(|(key, _)| keys.contains(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            allocatable: quantities(status.allocatable.as_ref())
                .into_iter()
                .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory" | "pods"))
                .collect(),
        }
    }
}

fn taint(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => text(&format!("{}={value}:{}", taint.key, taint.effect)),
        None => text(&format!("{}:{}", taint.key, taint.effect)),
    }
}

impl From<&Namespace> for NamespaceView {
    fn from(namespace: &Namespace) -> Self {
        let labels = namespace.metadata.labels.as_ref();
        let level = labels.and_then(|labels| labels.get("pod-security.kubernetes.io/enforce"));
        let noted = namespace.metadata.managed_fields.iter();
        let maker = noted
            .flat_map(|all| all.iter())
            .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
            .min_by_key(|entry| entry.time.clone());
        Self {
            meta: Meta::from(&namespace.metadata),
            adopt: annotation(&namespace.metadata, names::ADOPT).map(text),
            made_by: maker.and_then(|entry| entry.manager.as_deref().map(text)),
            name: optional(namespace.metadata.name.as_ref()),
            deleting: namespace.metadata.deletion_timestamp.clone(),
            pod_security: level.cloned(),
            conditions: conditions!(namespace.status),
        }
    }
}

impl From<&Lease> for LeaseView {
    fn from(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let annotations = lease.metadata.annotations.as_ref();
        Self {
            name: optional(lease.metadata.name.as_ref()),
            namespace: optional(lease.metadata.namespace.as_ref()),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            renewed: spec.renew_time.map(|time| Time(time.0)),
            duration_seconds: spec.lease_duration_seconds.unwrap_or(15).into(),
            version: annotations.and_then(|all| all.get(names::VERSION)).cloned(),
        }
    }
}
