//! Workloads as the API server returns them.

use serde_json::{Value, json};

use super::*;

fn meta(name: &str) -> Value {
    json!({ "name": name, "namespace": "shop", "uid": "u", "generation": 4 })
}

fn template() -> Value {
    json!({ "metadata": {}, "spec": {
        "initContainers": [{ "name": "init", "image": "init:1" }],
        "containers": [{ "name": "web", "image": "web:2" }, { "name": "proxy", "image": "proxy:3" }],
        "volumes": [{ "name": "files", "persistentVolumeClaim": { "claimName": "files" } }],
    } })
}

fn deployment(status: Value) -> WorkloadView {
    let deployment = json!({ "metadata": meta("web"),
        "spec": { "replicas": 2, "selector": {}, "template": template() }, "status": status });
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    WorkloadView::from(&deployment)
}

#[test]
fn a_deployment_is_read() {
    let found = deployment(
        json!({ "observedGeneration": 4, "replicas": 2, "updatedReplicas": 2,
        "readyReplicas": 2, "availableReplicas": 1 }),
    );
    assert_eq!(
        found.id,
        ObjectId::new(ObjectKind::Deployment, "shop", "web")
    );
    let images = ["init:1", "proxy:3", "web:2"].map(str::to_owned);
    assert_eq!(found.images, images.into());
    assert_eq!(found.mounts.claims, ["files".to_owned()].into());
    let rollout = found.rollout.unwrap();
    // A replica that is ready for a moment is not available.
    assert_eq!((rollout.wanted, rollout.ready), (2, 1));
    assert_eq!((found.is_rolling, found.failure), (false, None));
}

#[test]
fn a_deployment_rolls_until_its_controller_reports_the_end() {
    let progress = |status: &str, reason: &str, updated: i32| {
        deployment(
            json!({ "replicas": 2, "updatedReplicas": updated, "conditions": [
            { "type": "Progressing", "status": status, "reason": reason }] }),
        )
        .is_rolling
    };
    assert!(progress("True", "ReplicaSetUpdated", 1));
    assert!(!progress("True", "NewReplicaSetAvailable", 2));
    // The condition is of the template before the current one.
    assert!(progress("True", "NewReplicaSetAvailable", 0));
    assert!(!progress("False", "ProgressDeadlineExceeded", 1));
    let failed = deployment(
        json!({ "conditions": [{ "type": "ReplicaFailure", "status": "True",
        "reason": "FailedCreate", "message": "exceeded quota" }] }),
    );
    assert_eq!(failed.failure.as_deref(), Some("exceeded quota"));
}

#[test]
fn a_stateful_set_has_the_claims_of_its_templates() {
    let set = json!({ "metadata": meta("db"),
        "spec": { "replicas": 2, "ordinals": { "start": 1 }, "serviceName": "db", "selector": {},
            "template": template(),
            "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] },
        "status": { "observedGeneration": 4, "replicas": 2, "readyReplicas": 2, "availableReplicas": 1,
            "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b" } });
    let set: StatefulSet = serde_json::from_value(set).unwrap();
    let found = WorkloadView::from(&set);
    let claims = ["data-db-1", "data-db-2", "files"].map(str::to_owned);
    assert_eq!(found.mounts.claims, claims.into());
    let rollout = found.rollout.unwrap();
    assert_eq!((rollout.updated, rollout.ready), (1, 1));
    assert!(found.is_rolling);
}

/// The table of revisions: the current and the update revision, the counters of both, and the updated replicas.
#[test]
fn pods_of_a_reverted_template_are_not_updated() {
    for (update, current_count, updated_count, expected, is_rolling) in [
        ("a", 2, 2, 2, false),
        ("b", 1, 1, 1, true),
        ("b", 0, 2, 2, true),
        // The template was reverted, and a Pod of the other revision is left.
        ("a", 1, 1, 1, true),
    ] {
        let set = json!({ "metadata": meta("db"),
            "spec": { "replicas": 2, "serviceName": "db", "selector": {}, "template": template() },
            "status": { "observedGeneration": 4, "replicas": 2, "readyReplicas": 2,
                "availableReplicas": 2, "currentRevision": "a", "updateRevision": update,
                "currentReplicas": current_count, "updatedReplicas": updated_count } });
        let set: StatefulSet = serde_json::from_value(set).unwrap();
        let found = WorkloadView::from(&set);
        let updated = found.rollout.unwrap().updated;
        assert_eq!(
            (updated, found.is_rolling),
            (expected, is_rolling),
            "{set:?}"
        );
    }
}

/// The table of fields that keep a controller from replacing all Pods.
#[test]
fn a_field_that_holds_a_rollout_is_named() {
    let deployment = |spec: Value| -> WorkloadView {
        let deployment: Deployment = serde_json::from_value(json!({ "spec": spec })).unwrap();
        WorkloadView::from(&deployment)
    };
    let plain = json!({ "selector": {}, "template": {} });
    let paused = json!({ "selector": {}, "template": {}, "paused": true });
    assert_eq!(deployment(plain).hold, None);
    assert_eq!(
        deployment(paused).hold.as_deref(),
        Some("'spec.paused' is true")
    );
    for (strategy, expected) in [
        (json!({ "type": "RollingUpdate" }), None),
        (
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
            None,
        ),
        (
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } }),
            Some("'spec.updateStrategy.rollingUpdate.partition' is 2"),
        ),
        (
            json!({ "type": "OnDelete" }),
            Some("'spec.updateStrategy.type' is OnDelete"),
        ),
    ] {
        let spec = json!({ "serviceName": "db", "selector": {}, "template": {},
            "updateStrategy": strategy });
        let set: StatefulSet = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(WorkloadView::from(&set).hold.as_deref(), expected);
    }
    let spec = json!({ "selector": {}, "template": {}, "updateStrategy": { "type": "OnDelete" } });
    let set: DaemonSet = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let expected = Some("'spec.updateStrategy.type' is OnDelete");
    assert_eq!(WorkloadView::from(&set).hold.as_deref(), expected);
}

#[test]
fn a_workload_that_is_being_deleted_is_marked() {
    let mut metadata = meta("web");
    metadata["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    let spec = json!({ "selector": {}, "template": {} });
    let deployment = json!({ "metadata": metadata, "spec": spec });
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    assert!(WorkloadView::from(&deployment).is_deleting);
}

#[test]
fn a_daemon_set_counts_its_nodes() {
    let set = json!({ "metadata": meta("agent"), "spec": { "selector": {}, "template": template() },
        "status": { "observedGeneration": 3, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 2, "numberReady": 3, "numberAvailable": 2,
            "numberMisscheduled": 0 } });
    let set: DaemonSet = serde_json::from_value(set).unwrap();
    let found = WorkloadView::from(&set);
    let rollout = found.rollout.unwrap();
    assert_eq!(
        (rollout.observed, rollout.wanted, rollout.replicas),
        (3, 3, 3)
    );
    assert_eq!((rollout.updated, rollout.ready), (2, 2));
    assert!(found.is_rolling);
}

#[test]
fn a_cron_job_has_volumes_and_no_replicas() {
    let job = json!({ "metadata": meta("backup"), "spec": { "schedule": "0 0 * * *",
        "jobTemplate": { "spec": { "template": template() } } } });
    let job: CronJob = serde_json::from_value(job).unwrap();
    let found = WorkloadView::from(&job);
    assert_eq!(found.rollout, None);
    assert_eq!(found.mounts.claims, ["files".to_owned()].into());
}

#[test]
fn a_claim_has_the_size_of_its_volume() {
    let read = |claim: Value| -> ClaimView {
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        ClaimView::from(&claim)
    };
    let spec =
        json!({ "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } } });
    let bound = read(json!({ "spec": spec,
        "status": { "phase": "Bound", "capacity": { "storage": "2Gi" } } }));
    assert_eq!(bound.size.as_deref(), Some("2Gi"));
    assert_eq!(
        (bound.phase.as_str(), bound.class.as_deref()),
        ("Bound", Some("fast"))
    );
    let new = read(json!({ "spec": spec }));
    assert_eq!(
        (new.phase.as_str(), new.size.as_deref()),
        ("Pending", Some("1Gi"))
    );
    assert_eq!(read(json!({})).size, None);
}
