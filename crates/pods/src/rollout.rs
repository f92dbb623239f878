//! Rollout state of Deployments, StatefulSets and DaemonSets.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentCondition, StatefulSet};
use serde::{Deserialize, Serialize};

/// Rollout state of a Deployment, a StatefulSet or a DaemonSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// The generation that its controller has observed, or -1 before the first observation.
    pub observed: i64,
    /// Number of desired replicas.
    pub wanted: i32,
    /// Number of existing replicas.
    pub replicas: i32,
    /// Number of replicas with the current Pod template.
    pub updated: i32,
    /// Number of ready replicas. Those of a Deployment or a DaemonSet are also available.
    pub ready: i32,
}

impl From<&Deployment> for Rollout {
    fn from(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let spec = deployment.spec.as_ref();
        let available = status.available_replicas.unwrap_or(0);
        Self {
            observed: status.observed_generation.unwrap_or(-1),
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            replicas: status.replicas.unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0).min(available),
        }
    }
}

impl From<&StatefulSet> for Rollout {
    fn from(set: &StatefulSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        let spec = set.spec.as_ref();
        // Until the first rollout is complete, `updatedReplicas` is 0 although the revision has not
        // changed.
        let is_current = status.current_revision == status.update_revision;
        let updated = status.updated_replicas.unwrap_or(0);
        Self {
            observed: status.observed_generation.unwrap_or(-1),
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            replicas: status.replicas,
            updated: if is_current { status.replicas } else { updated },
            ready: status.ready_replicas.unwrap_or(0),
        }
    }
}

impl From<&DaemonSet> for Rollout {
    fn from(set: &DaemonSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        let available = status.number_available.unwrap_or(0);
        Self {
            observed: status.observed_generation.unwrap_or(-1),
            wanted: status.desired_number_scheduled,
            replicas: status.current_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or(0),
            ready: status.number_ready.min(available),
        }
    }
}

/// Returns the condition that reports why the controller cannot create a Pod.
#[must_use]
pub fn replica_failure(deployment: &Deployment) -> Option<&DeploymentCondition> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|known| known.type_ == "ReplicaFailure" && known.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Without this, a server would be called ready before its Service leads to it.
    #[test]
    fn a_replica_that_is_not_available_is_not_ready() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2,
                "readyReplicas": 2, "availableReplicas": 1 },
        }))
        .unwrap();
        let expected = Rollout {
            observed: 3,
            wanted: 2,
            replicas: 2,
            updated: 2,
            ready: 1,
        };
        assert_eq!(Rollout::from(&deployment), expected);
        assert_eq!(replica_failure(&deployment), None);
    }

    #[test]
    fn a_daemon_set_has_a_replica_on_each_node() {
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "selector": {}, "template": {} },
            "status": { "observedGeneration": 2, "desiredNumberScheduled": 3,
                "currentNumberScheduled": 3, "updatedNumberScheduled": 1, "numberReady": 3,
                "numberAvailable": 2, "numberMisscheduled": 1 },
        }))
        .unwrap();
        let expected = Rollout {
            observed: 2,
            wanted: 3,
            replicas: 3,
            updated: 1,
            ready: 2,
        };
        assert_eq!(Rollout::from(&set), expected);
    }

    #[test]
    fn a_set_is_updated_while_its_revision_is_the_current_one() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "serviceName": "redis", "selector": {}, "template": {} },
            "status": { "replicas": 1, "currentRevision": "a", "updateRevision": "a" },
        }))
        .unwrap();
        let found = Rollout::from(&set);
        assert_eq!((found.observed, found.wanted, found.updated), (-1, 1, 1));
    }
}
