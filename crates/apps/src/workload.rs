//! Views of workloads and claims.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet, StatefulSetSpec},
        batch::v1::CronJob,
        core::v1::{PersistentVolumeClaim, PodSpec},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use pods::{Rollout, replica_failure};

use crate::{
    object::{ObjectId, ObjectKind},
    origin::appliers,
    volumes::{Mounts, claims_of_templates},
};

/// A workload, reduced to the fields that decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadView {
    /// Kind, namespace and name.
    pub id: ObjectId,
    /// UID.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Objects of Flux that its labels name.
    pub appliers: BTreeSet<ObjectId>,
    /// Rollout state, or `None` for a CronJob. `ready` counts only replicas that are also available.
    pub rollout: Option<Rollout>,
    /// Whether the workload is being deleted.
    pub is_deleting: bool,
    /// Whether its controller replaces Pods by those of another template.
    pub is_rolling: bool,
    /// The field that keeps its controller from replacing all Pods. The text is for a message.
    pub hold: Option<String>,
    /// Message of the controller if it cannot create a Pod.
    pub failure: Option<String>,
    /// Images in the Pod template, sorted.
    pub images: BTreeSet<String>,
    /// Volumes in the Pod template, and claims from the templates of a StatefulSet.
    pub mounts: Mounts,
}

/// Returns the images of a Pod spec.
#[must_use]
pub fn images(spec: &PodSpec) -> BTreeSet<String> {
    let init = spec.init_containers.iter().flat_map(|all| all.iter());
    let all = init.chain(&spec.containers);
    all.filter_map(|one| one.image.clone()).collect()
}

impl WorkloadView {
    fn new(kind: ObjectKind, meta: &ObjectMeta, template: Option<&PodSpec>) -> Self {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        Self {
            id: ObjectId::new(kind, namespace, meta.name.as_deref().unwrap_or_default()),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            appliers: appliers(meta.labels.as_ref()),
            rollout: None,
            is_deleting: meta.deletion_timestamp.is_some(),
            is_rolling: false,
            hold: None,
            failure: None,
            images: template.map(images).unwrap_or_default(),
            mounts: template.map(Mounts::from).unwrap_or_default(),
        }
    }
}

impl From<&Deployment> for WorkloadView {
    fn from(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let template = spec.and_then(|spec| spec.template.spec.as_ref());
        let conditions = deployment.status.as_ref();
        let conditions = conditions.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flat_map(|all| all.iter());
        let progress = conditions.find(|known| known.type_ == "Progressing");
        let rollout = Rollout::from(deployment);
        let is_complete = rollout.updated == rollout.wanted && rollout.replicas == rollout.wanted;
        Self {
            // The condition stays True after a rollout, with this reason.
            is_rolling: progress.is_some_and(|known| {
                let is_done = known.reason.as_deref() == Some("NewReplicaSetAvailable");
                known.status == "True" && !(is_done && is_complete)
            }),
            hold: spec
                .is_some_and(|spec| spec.paused == Some(true))
                .then(|| "'spec.paused' is true".to_owned()),
            failure: replica_failure(deployment).and_then(|known| known.message.clone()),
            rollout: Some(rollout),
            ..Self::new(ObjectKind::Deployment, &deployment.metadata, template)
        }
    }
}

impl From<&StatefulSet> for WorkloadView {
    fn from(set: &StatefulSet) -> Self {
        let spec = set.spec.as_ref();
        let template = spec.and_then(|spec| spec.template.spec.as_ref());
        let status = set.status.as_ref();
        let mut rollout = Rollout::from(set);
        let available = status.and_then(|status| status.available_replicas);
        rollout.ready = rollout.ready.min(available.unwrap_or(0));
        // After a template was reverted, the update revision is the current one although Pods of another revision are
        // left. Both counters are of Pods of this revision.
        let counts = status.map(|status| [status.updated_replicas, status.current_replicas]);
        let updated = counts.into_iter().flat_map(|all| all.into_iter());
        let updated = updated.map(|count| count.unwrap_or(0)).max().unwrap_or(0);
        rollout.updated = rollout.updated.min(updated);
        let mut view = Self::new(ObjectKind::StatefulSet, &set.metadata, template);
        let templates = spec.and_then(|spec| spec.volume_claim_templates.as_ref());
        let templates = templates.into_iter().flat_map(|all| all.iter());
        let templates: Vec<String> = templates
            .filter_map(|one| one.metadata.name.clone())
            .collect();
        let first = spec.and_then(|spec| spec.ordinals.as_ref()?.start);
        let name = view.id.name.clone();
        let own = claims_of_templates(&templates, &name, first.unwrap_or(0), rollout.wanted);
        view.mounts.claims.extend(own);
        Self {
            hold: spec.and_then(hold),
            is_rolling: rollout.updated < rollout.replicas
                || status.is_some_and(|status| {
                    status.update_revision.is_some()
                        && status.current_revision != status.update_revision
                }),
            rollout: Some(rollout),
            ..view
        }
    }
}

/// Returns the field that keeps the controller of a StatefulSet from replacing all Pods.
fn hold(spec: &StatefulSetSpec) -> Option<String> {
    let strategy = spec.update_strategy.as_ref()?;
    let rolling = strategy.rolling_update.as_ref();
    let partition = rolling.and_then(|rolling| rolling.partition);
    let partition = partition.filter(|partition| *partition > 0);
    let named =
        |partition: i32| format!("'spec.updateStrategy.rollingUpdate.partition' is {partition}");
    let on_delete = strategy.type_.as_deref().and_then(hold_of_strategy);
    on_delete.or_else(|| partition.map(named))
}

fn hold_of_strategy(strategy: &str) -> Option<String> {
    (strategy == "OnDelete").then(|| "'spec.updateStrategy.type' is OnDelete".to_owned())
}

impl From<&DaemonSet> for WorkloadView {
    fn from(set: &DaemonSet) -> Self {
        let spec = set.spec.as_ref();
        let template = spec.and_then(|spec| spec.template.spec.as_ref());
        let rollout = Rollout::from(set);
        let strategy = spec.and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
        Self {
            is_rolling: rollout.updated < rollout.wanted,
            hold: strategy.and_then(hold_of_strategy),
            rollout: Some(rollout),
            ..Self::new(ObjectKind::DaemonSet, &set.metadata, template)
        }
    }
}

impl From<&CronJob> for WorkloadView {
    fn from(job: &CronJob) -> Self {
        let spec = job.spec.as_ref();
        let jobs = spec.and_then(|spec| spec.job_template.spec.as_ref());
        let template = jobs.and_then(|spec| spec.template.spec.as_ref());
        Self::new(ObjectKind::CronJob, &job.metadata, template)
    }
}

/// A PersistentVolumeClaim, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// Objects of Flux that its labels name.
    pub appliers: BTreeSet<ObjectId>,
    /// Phase of the claim.
    pub phase: String,
    /// Size of the bound volume, or the requested size.
    pub size: Option<String>,
    /// StorageClass.
    pub class: Option<String>,
}

impl From<&PersistentVolumeClaim> for ClaimView {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let status = claim.status.as_ref();
        let bound = status.and_then(|status| status.capacity.as_ref());
        let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let size =
            |amounts: Option<&BTreeMap<String, Quantity>>| Some(amounts?.get("storage")?.0.clone());
        let phase = status.and_then(|status| status.phase.clone());
        Self {
            appliers: appliers(claim.metadata.labels.as_ref()),
            phase: phase.unwrap_or_else(|| "Pending".to_owned()),
            size: size(bound).or_else(|| size(requests)),
            class: spec.and_then(|spec| spec.storage_class_name.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
