//! Reduced views of a Tenant's objects, with the fields that a decision reads.

use std::sync::Arc;

use api::{
    Timestamp, names,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{Namespace, PersistentVolumeClaim, Pod, ResourceQuota},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
pub use pods::EndpointsView;
use pods::{ContainerView, PodPhase, Rollout, replica_failure};
use serde_json::Value;

use crate::{
    build::{COMPONENT, NOTES, REDIS, SERVER, probe::PLAN},
    drift,
};

/// Any namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The UID of the Tenant that owns it: from its label, or from its annotation.
    pub owner_uid: Option<String>,
    /// The name of that Tenant, from its label.
    pub owner_name: Option<String>,
    /// The labels that we manage.
    pub labels: Vec<(String, String)>,
    /// The annotations for people that we manage.
    pub notes: Vec<(String, String)>,
    /// The name of the Tenant that retained it.
    pub retained_from: Option<String>,
    /// The name of the Tenant that may adopt it.
    pub adopt: Option<String>,
    /// The time at which its deletion started.
    pub deleting: Option<Timestamp>,
    /// Messages of the namespace controller about resources that block its deletion.
    pub remaining: Vec<String>,
}

impl From<&Namespace> for NamespaceView {
    fn from(namespace: &Namespace) -> Self {
        let meta = &namespace.metadata;
        let is_ours = |name: &str| {
            name.starts_with("orchestrator.io/")
                || name == "app.kubernetes.io/managed-by"
                || name == "pod-security.kubernetes.io/enforce"
        };
        let labels = meta.labels.iter().flat_map(|all| all.iter());
        let conditions = namespace
            .status
            .iter()
            .flat_map(|status| status.conditions.iter())
            .flat_map(|all| all.iter());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            owner_uid: owner_uid(meta),
            owner_name: label(meta, names::NAME),
            labels: labels
                .filter(|(name, _)| is_ours(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            notes: NOTES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), annotation(meta, name)?)))
                .collect(),
            retained_from: annotation(meta, names::RETAINED_FROM),
            adopt: annotation(meta, names::ADOPT),
            deleting: meta.deletion_timestamp.as_ref().map(|time| time.0),
            remaining: conditions
                .filter(|condition| condition.status == "True")
                .filter_map(|condition| condition.message.as_deref())
                .map(|message| bounded(message, MAX_MESSAGE_CHARS / 2))
                .collect(),
        }
    }
}

/// An object that a Tenant created.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildView {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// The name of the Tenant that retained it.
    pub retained_from: Option<String>,
    /// The hash of the manifest that we applied last.
    pub intent: Option<String>,
    /// The fields that are compared with the manifest.
    pub live: Live,
}

/// A JSON object as text. A tree takes ten times the memory, and there are many objects that are rarely
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live(Arc<str>);

impl Live {
    /// Serializes an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self(object.to_string().into())
    }

    /// Returns the object.
    #[must_use]
    pub fn value(&self) -> Value {
        // `of` wrote the text, so parsing succeeds. If it failed, null would differ from every manifest.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl ChildView {
    /// Creates the view of an object, given as JSON.
    #[must_use]
    pub fn of(meta: &ObjectMeta, object: &Value) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            is_deleting: meta.deletion_timestamp.is_some(),
            generation: meta.generation.unwrap_or(0),
            retained_from: annotation(meta, names::RETAINED_FROM),
            intent: annotation(meta, names::SPEC_HASH),
            live: Live::of(&drift::kept(object)),
        }
    }
}

/// The Secret of a Redis, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretView {
    /// Its UID.
    pub uid: String,
    /// The UID of the Tenant that owns it: from its label, or from its annotation.
    pub owner_uid: Option<String>,
    /// The name of that Tenant, from its label.
    pub owner_name: Option<String>,
    /// Whether it has the label with the UID.
    pub has_label: bool,
    /// The name of the Tenant that retained it.
    pub retained_from: Option<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

impl From<&ObjectMeta> for SecretView {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            owner_uid: owner_uid(meta),
            owner_name: label(meta, names::NAME),
            has_label: label(meta, names::UID).is_some(),
            retained_from: annotation(meta, names::RETAINED_FROM),
            is_deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// Rollout state of a Deployment or a StatefulSet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadView {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// The generation that its controller has observed.
    pub observed: i64,
    /// Number of desired replicas.
    pub wanted: i32,
    /// Number of existing replicas.
    pub replicas: i32,
    /// Number of replicas with the current Pod template.
    pub updated: i32,
    /// Number of ready replicas.
    pub ready: i32,
    /// The reason why its controller cannot create a Pod.
    pub failure: Option<String>,
}

impl WorkloadView {
    fn of(meta: &ObjectMeta, rollout: Rollout, failure: Option<String>) -> Self {
        let Rollout {
            observed,
            wanted,
            replicas,
            updated,
            ready,
        } = rollout;
        Self {
            generation: meta.generation.unwrap_or(0),
            observed,
            wanted,
            replicas,
            updated,
            ready,
            failure,
        }
    }
}

impl From<&Deployment> for WorkloadView {
    fn from(deployment: &Deployment) -> Self {
        let failure = replica_failure(deployment).and_then(|known| known.message.clone());
        Self::of(&deployment.metadata, Rollout::from(deployment), failure)
    }
}

impl From<&StatefulSet> for WorkloadView {
    fn from(set: &StatefulSet) -> Self {
        Self::of(&set.metadata, Rollout::from(set), None)
    }
}

/// A Pod of a server or a Redis, or a probe Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Fields of any Pod.
    pub pod: pods::PodView,
    /// The component of the Tenant that it belongs to. Empty if an owner created the Pod.
    pub component: String,
    /// The container with the name of the component. Other containers were injected.
    pub container: ContainerView,
    /// The plan of a probe Pod.
    pub plan: Option<String>,
}

api::embed!(PodView, pod: pods::PodView);

impl PodView {
    /// Returns whether its container has ended, for a Pod that restarts none. An injected container may keep the Pod
    /// running.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let has_exit = self.container.state.exit().is_some();
        self.phase.is_over() || has_exit && self.container.restarts == 0
    }

    /// Returns whether its container has ended with exit code 0, for a Pod that restarts none.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        let is_zero = self
            .container
            .last_exit()
            .is_some_and(|exit| exit.code == 0);
        let is_done = self.phase == PodPhase::Running && self.has_ended() && is_zero;
        self.phase == PodPhase::Succeeded || is_done
    }
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let component = component(&pod.metadata);
        Self {
            pod: pods::PodView::from(pod),
            container: ContainerView::find(pod, &component).unwrap_or_default(),
            component,
            plan: annotation(&pod.metadata, PLAN),
        }
    }
}

/// The PersistentVolumeClaim of a Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether a volume is bound to it.
    pub is_bound: bool,
    /// The requested size.
    pub size: Option<String>,
}

impl From<&PersistentVolumeClaim> for ClaimView {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.clone());
        Self {
            name: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            is_bound: phase.as_deref() == Some("Bound"),
            size: claim
                .spec
                .as_ref()
                .and_then(|spec| spec.resources.as_ref())
                .and_then(|resources| resources.requests.as_ref())
                .and_then(|requests| requests.get("storage"))
                .map(|amount| amount.0.clone()),
        }
    }
}

/// Limits and usage of a ResourceQuota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaView {
    /// Its name.
    pub name: String,
    /// The limits that the cluster enforces, by resource name.
    pub hard: Vec<(String, String)>,
    /// The amounts in use, by resource name.
    pub used: Vec<(String, String)>,
}

impl From<&ResourceQuota> for QuotaView {
    fn from(quota: &ResourceQuota) -> Self {
        let status = quota.status.clone().unwrap_or_default();
        let plain = |all: Option<
            std::collections::BTreeMap<
                String,
                k8s_openapi::apimachinery::pkg::api::resource::Quantity,
            >,
        >| {
            let all = all.unwrap_or_default().into_iter();
            all.map(|(name, amount)| (name, amount.0)).collect()
        };
        Self {
            name: quota.metadata.name.clone().unwrap_or_default(),
            hard: plain(status.hard),
            used: plain(status.used),
        }
    }
}

fn label(meta: &ObjectMeta, name: &str) -> Option<String> {
    meta.labels.as_ref()?.get(name).cloned()
}

fn annotation(meta: &ObjectMeta, name: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(name).cloned()
}

/// Returns the component of a Pod, or an empty string.
///
/// Owners may copy workloads with all their labels. The label counts only if one of our workloads created
/// the Pod.
fn component(meta: &ObjectMeta) -> String {
    let named = label(meta, COMPONENT).unwrap_or_default();
    let owners = meta.owner_references.iter().flat_map(|all| all.iter());
    let controller = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    let hash = label(meta, "pod-template-hash").unwrap_or_default();
    let is_ours = match named.as_str() {
        REDIS => controller == Some(("StatefulSet", REDIS)),
        SERVER => controller == Some(("ReplicaSet", &[SERVER, "-", &hash].concat())),
        _ => controller.is_none(),
    };
    if is_ours { named } else { String::new() }
}

/// Returns the owner's UID. Users may remove the label, so the annotation repeats it.
fn owner_uid(meta: &ObjectMeta) -> Option<String> {
    label(meta, names::UID).or_else(|| annotation(meta, names::UID))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::probe::PROBE;

    /// Returns a Pod with an injected container before its own, which has this state.
    fn pod(component: &str, phase: &str, state: &Value) -> PodView {
        let owner = |kind: &str, name: &str| {
            json!([{
                "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true,
            }])
        };
        let owners = match component {
            REDIS => owner("StatefulSet", REDIS),
            SERVER => owner("ReplicaSet", "server-5f"),
            _ => json!([]),
        };
        let container = |name: &str, restarts: i32, state: &Value| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": restarts,
                "state": state,
            })
        };
        let injected = json!({ "running": { "startedAt": "2030-01-01T00:00:00Z" } });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "one", "ownerReferences": owners,
                "labels": { COMPONENT: component, "pod-template-hash": "5f" },
            },
            "status": { "phase": phase, "containerStatuses": [
                container("a-proxy", 3, &injected), container(component, 0, state),
            ] },
        }))
        .unwrap();
        PodView::from(&pod)
    }

    #[test]
    fn the_container_of_the_component_counts_and_not_an_injected_one() {
        for component in [REDIS, SERVER, PROBE] {
            let state = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
            let view = pod(component, "Pending", &state);
            assert_eq!(view.component, component);
            let waiting = view.container.state.waiting().unwrap();
            assert_eq!(
                (waiting.reason.as_str(), waiting.message.as_str()),
                ("ErrImagePull", "not found"),
                "{component}"
            );
            assert_eq!(
                (
                    view.container.state.running_since(),
                    view.container.restarts,
                    view.has_ended()
                ),
                (None, 0, false),
                "{component}"
            );
        }
    }

    #[test]
    fn a_probe_has_ended_although_an_injected_container_runs() {
        for (code, is_success) in [(0, true), (1, false)] {
            let ended = json!({ "exitCode": code, "reason": "x", "message": "1 words" });
            let view = pod(PROBE, "Running", &json!({ "terminated": ended }));
            let exit = view.container.last_exit().unwrap();
            assert_eq!(exit.message, "1 words");
            assert_eq!(
                (view.has_ended(), view.has_succeeded()),
                (true, is_success),
                "{code}"
            );
        }
        let running = json!({ "running": { "startedAt": "2030-01-01T00:00:00Z" } });
        let view = pod(PROBE, "Running", &running);
        assert_eq!((view.has_ended(), view.has_succeeded()), (false, false));
    }
}
