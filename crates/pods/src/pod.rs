//! Reduced view of a Pod, without its containers.

use std::time::Duration;

use api::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::container::{Reported, short};

/// Reduced view of a Pod.
///
/// Thousands of views are cached, so a view has no containers: each kind keeps only the containers that count for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodView {
    /// Name of the Pod.
    pub name: String,
    /// UID of the Pod.
    pub uid: String,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Node that the Pod is bound to.
    pub node: Option<String>,
    /// IP address of the Pod.
    pub address: Option<String>,
    /// Time at which a deletion asked the Pod to stop.
    pub stop_asked: Option<Timestamp>,
    /// End of the grace period of that deletion.
    pub stop_by: Option<Timestamp>,
    /// Reason and message of the condition `DisruptionTarget`, if the cluster stops the Pod.
    pub disruption: Option<Reported>,
    /// Message of the scheduler, if the Pod has no node.
    pub unschedulable: Option<String>,
    /// Whether the Pod is ready.
    pub is_ready: bool,
    /// Phase of the Pod.
    pub phase: PodPhase,
    /// Reason and message of the Pod's own failure, if the kubelet rejected the Pod.
    pub failure: Option<Reported>,
    /// The Pod's own limit (`activeDeadlineSeconds`), in seconds. The kubelet ends all containers when it is reached.
    pub limit_seconds: Option<i64>,
    /// Whether the kubelet reports that the Pod has no sandbox, and none of its containers has ever started. A kubelet
    /// that waits for a volume of such a Pod obeys the Pod's limit only after up to two minutes, but a deletion at once.
    pub lacks_sandbox: bool,
    /// Number of all containers in the Pod's spec. See [`message_limit`](crate::message_limit).
    pub containers: usize,
}

/// Phase of a Pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers exited with code 0.
    Succeeded,
    /// A container ended with another exit code, or the Pod was rejected.
    Failed,
    /// The node does not respond, or no phase was reported yet.
    #[default]
    Unknown,
}

impl PodPhase {
    /// Returns whether no container of the Pod runs again.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    fn read(phase: Option<&str>) -> Self {
        match phase {
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) | None => Self::Unknown,
        }
    }
}

impl PodView {
    /// Returns whether the Pod is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.stop_asked.is_some()
    }
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let (meta, status) = (&pod.metadata, pod.status.as_ref());
        let condition = |kind: &str| {
            let conditions = status.and_then(|status| status.conditions.as_ref())?;
            conditions.iter().find(|known| known.type_ == kind)
        };
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            address: status.and_then(|status| status.pod_ip.clone()),
            stop_asked: stop_asked(meta),
            stop_by: meta.deletion_timestamp.as_ref().map(|time| time.0),
            disruption: condition("DisruptionTarget")
                .filter(|known| known.status == "True")
                .map(|known| Reported::read(known.reason.as_ref(), known.message.as_ref())),
            // A scheduling gate has another reason than `Unschedulable`, and blocks the Pod in the same way.
            unschedulable: condition("PodScheduled")
                .filter(|known| known.status == "False")
                .map(|known| short(known.message.as_ref()))
                .filter(|message| !message.is_empty()),
            is_ready: condition("Ready").is_some_and(|known| known.status == "True"),
            phase: PodPhase::read(status.and_then(|status| status.phase.as_deref())),
            failure: status
                .filter(|status| status.reason.is_some())
                .map(|status| Reported::read(status.reason.as_ref(), status.message.as_ref())),
            limit_seconds: pod
                .spec
                .as_ref()
                .and_then(|spec| spec.active_deadline_seconds),
            lacks_sandbox: condition("PodReadyToStartContainers")
                .is_some_and(|known| known.status == "False")
                && !has_started(pod),
            containers: containers(pod),
        }
    }
}

/// Returns whether the kubelet reports that a container of the Pod has started, whoever injected it.
fn has_started(pod: &Pod) -> bool {
    let has_run = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    let started = |container: &ContainerStatus| {
        container.restart_count > 0
            || container.state.as_ref().is_some_and(has_run)
            || container.last_state.as_ref().is_some_and(has_run)
    };
    let any = |list: &Option<Vec<ContainerStatus>>| {
        list.as_ref().is_some_and(|list| list.iter().any(started))
    };
    let status = pod.status.as_ref();
    status.is_some_and(|status| {
        any(&status.init_container_statuses) || any(&status.container_statuses)
    })
}

fn containers(pod: &Pod) -> usize {
    pod.spec.as_ref().map_or(0, |spec| {
        let init = spec.init_containers.as_ref().map_or(0, Vec::len);
        let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
        spec.containers.len() + init + ephemeral
    })
}

/// Returns when a deletion asked the object to stop. `deletionTimestamp` is the *end* of the grace period. A program
/// that obeys the signal ends before it, and would seem to have ended by itself.
#[must_use]
pub fn stop_asked(metadata: &ObjectMeta) -> Option<Timestamp> {
    let end = metadata.deletion_timestamp.as_ref()?.0;
    let grace = u64::try_from(metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
    Some(match end.checked_sub(Duration::from_secs(grace)) {
        Ok(asked) => asked,
        Err(_) => Timestamp::MIN,
    })
}

/// Returns the UID of the controller, if it has this API version and kind. The creator of an object can write any owner
/// reference. A UID with another kind is a forgery that the garbage collector does not follow.
#[must_use]
pub fn controller_uid(metadata: &ObjectMeta, api_version: &str, kind: &str) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flat_map(|all| all.iter());
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    let is_it = controller.api_version == api_version && controller.kind == kind;
    is_it.then(|| controller.uid.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_without_a_node_has_the_message_of_the_scheduler() {
        for (condition, expected) in [
            (
                json!({ "status": "False", "reason": "Unschedulable", "message": "none" }),
                Some("none"),
            ),
            (
                json!({ "status": "False", "reason": "SchedulingGated", "message": "a gate" }),
                Some("a gate"),
            ),
            (
                json!({ "status": "False", "reason": "Unschedulable" }),
                None,
            ),
            (json!({ "status": "True", "message": "m" }), None),
        ] {
            let mut condition = condition;
            condition["type"] = json!("PodScheduled");
            let pod = json!({ "status": { "conditions": [condition] } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(PodView::from(&pod).unschedulable.as_deref(), expected);
        }
    }

    #[test]
    fn a_pod_lacks_a_sandbox_only_if_the_kubelet_says_so_and_nothing_has_started() {
        let without = json!([{ "type": "PodReadyToStartContainers", "status": "False" }]);
        let with = json!([{ "type": "PodReadyToStartContainers", "status": "True" }]);
        let waits = json!({ "state": { "waiting": { "reason": "ContainerCreating" } } });
        let runs = json!({ "state": { "running": {} } });
        let ended = json!({ "state": { "terminated": { "exitCode": 0 } } });
        let restarts =
            json!({ "state": { "waiting": {} }, "lastState": { "terminated": { "exitCode": 1 } } });
        let no = json!([]);
        for (conditions, init, containers, expected) in [
            (&without, &no, &json!([waits]), true),
            (&without, &json!([waits]), &json!([waits]), true),
            (&without, &no, &no, true),
            (&with, &no, &json!([waits]), false),
            // An old kubelet does not report the condition.
            (&no, &no, &json!([waits]), false),
            (&without, &no, &json!([waits, runs]), false),
            (&without, &json!([ended]), &json!([waits]), false),
            (&without, &no, &json!([restarts]), false),
        ] {
            let named = |all: &serde_json::Value| {
                let mut all = all.clone();
                for one in all.as_array_mut().unwrap() {
                    one["name"] = json!("agent");
                    one["image"] = json!("image");
                    one["imageID"] = json!("");
                    one["ready"] = json!(false);
                    one["restartCount"] = json!(0);
                }
                all
            };
            let pod = json!({ "status": {
                "conditions": conditions,
                "initContainerStatuses": named(init),
                "containerStatuses": named(containers),
            } });
            let case = pod.to_string();
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(PodView::from(&pod).lacks_sandbox, expected, "{case}");
        }
    }

    #[test]
    fn all_containers_are_counted() {
        let one = |name: &str| json!({ "name": name });
        let pod = json!({ "spec": {
            "initContainers": [one("clone"), one("agent"), one("istio-init")],
            "containers": [one("publish"), one("istio-proxy")],
            "ephemeralContainers": [one("debugger")],
        } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(PodView::from(&pod).containers, 6);
        assert_eq!(PodView::from(&Pod::default()).containers, 0);
    }
}
