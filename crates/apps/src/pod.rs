//! Views of Pods, their owners, and the causes that keep them from being ready.

use std::{collections::BTreeSet, sync::Arc};

use api::{Reason, Timestamp, warning::Warning};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use pods::{Cause, ContainerState, ContainerView, PodPhase, PodView, StartFailure, warning_reason};

use crate::{upgrade::scale_target::MountingPod, volumes::Mounts, workload::images};

/// A Pod, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The controller of the Pod.
    pub owner: Option<Controller>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Whether the Pod is ready.
    pub is_ready: bool,
    /// Whether the Pod is being deleted, or no container of it runs again.
    pub is_over: bool,
    /// Images of its containers.
    pub images: BTreeSet<String>,
    /// Names of the claims that it mounts.
    pub claims: BTreeSet<String>,
    /// The cause that the kubelet or the scheduler reports, if the Pod is not ready.
    pub cause: Option<Cause>,
    /// The Pod as an upgrade reads it, if the Pod mounts a claim.
    pub mounting: Option<Arc<MountingPod>>,
}

/// The controller in the owner references of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controller {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl Controller {
    /// Returns the controller of an object, if it has one.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let mut owners = meta.owner_references.iter().flat_map(|all| all.iter());
        let controller = owners.find(|owner| owner.controller == Some(true))?;
        Some(Self {
            api_version: controller.api_version.clone(),
            kind: controller.kind.clone(),
            name: controller.name.clone(),
            uid: controller.uid.clone(),
        })
    }

    /// Returns whether the controller has this API group and kind.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        let own = self
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        self.kind == kind && own == group
    }
}

impl From<&Pod> for AppPod {
    fn from(pod: &Pod) -> Self {
        let view = PodView::from(pod);
        let is_over = view.is_deleting() || view.phase.is_over();
        let spec = pod.spec.as_ref();
        let cause = (!view.is_ready && !is_over).then(|| cause(pod, &view));
        let claims = spec.map(Mounts::from).unwrap_or_default().claims;
        Self {
            mounting: (!claims.is_empty()).then(|| Arc::new(MountingPod::from(pod))),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            owner: Controller::of(&pod.metadata),
            created: view.created,
            is_ready: view.is_ready && !is_over,
            is_over,
            images: spec.map(images).unwrap_or_default(),
            claims,
            cause: cause.flatten(),
            name: view.name,
            uid: view.uid,
        }
    }
}

/// Returns the cause that is visible in the Pod itself. Its text has no part that changes with each retry.
fn cause(pod: &Pod, view: &PodView) -> Option<Cause> {
    if let Some(message) = &view.unschedulable {
        let reason = pods::unscheduled_reason(message);
        let text = format!("Pod '{}' has no node: {message}", view.name);
        return Some(Cause::new(reason, text));
    }
    if view.phase == PodPhase::Unknown {
        return None;
    }
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter();
    let all = init.chain(&status.container_statuses);
    all.flat_map(|all| all.iter())
        .find_map(|one| of_container(&view.name, one))
}

fn of_container(pod: &str, status: &ContainerStatus) -> Option<Cause> {
    let view = ContainerView::from(status);
    let name = &view.name;
    if let ContainerState::Waiting(said) = &view.state
        && let Some(failure) = StartFailure::of(&said.reason, &said.message, 0)
    {
        let subject = format!("Pod '{pod}', container '{name}'");
        return Some(failure.cause(&subject, &said.message, None));
    }
    // A restarted container that runs again also counts until it is ready. Otherwise the message would alternate.
    let is_crashing = match &view.state {
        ContainerState::Waiting(said) => said.reason == "CrashLoopBackOff",
        ContainerState::Ended(exit) => exit.code != 0,
        ContainerState::Running { .. } | ContainerState::Unknown => {
            view.restarts > 0 && !status.ready
        }
    };
    is_crashing.then(|| {
        let exit = view.last_exit();
        let how = exit.map_or_else(String::new, |exit| {
            format!(": it exited with code {} ({})", exit.code, exit.reason)
        });
        let text = format!("Pod '{pod}': container '{name}' ends again and again{how}");
        Cause::new(Reason::CrashLoop, text)
    })
}

/// Returns the cause that keeps a Pod from being ready: from the Pod itself, or from the newest Warning Event about it.
#[must_use]
pub fn cause_of(pod: &AppPod, warnings: &[Warning], now: Timestamp) -> Option<Cause> {
    if pod.is_ready || pod.is_over {
        return None;
    }
    let about = |one: &&Warning| one.object_uid == pod.uid && one.namespace == pod.namespace;
    let of_event = || {
        let newest = warnings
            .iter()
            .filter(about)
            .max_by_key(|one| one.seen(now))?;
        let known = warning_reason(&newest.reason, &newest.message, newest.times);
        let is_probe = newest.reason == "Unhealthy";
        let reason = known.or_else(|| is_probe.then_some(Reason::ProbeFailed))?;
        Some(Cause::new(
            reason,
            format!("Pod '{}': {}", pod.name, newest.message),
        ))
    };
    pod.cause.clone().or_else(of_event)
}

#[cfg(test)]
mod tests;
