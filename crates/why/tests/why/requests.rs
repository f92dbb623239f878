//! UpgradeRequests and RollbackRequests: each reason, down to the blocking object.

use api::Reason;
use serde_json::{Value, json};
use why::{Explanation, ObjectRef, World, explanation::State, world::RequestView};

use crate::{
    app_build::{Site, status},
    build::at,
};

/// Reasons that only secondary conditions have. They are evidence of a step, and block nothing.
const OF_CONDITIONS: [&str; 10] = [
    "FluxSuspended",
    "FluxResumed",
    "WorkloadsStopped",
    "WorkloadsRestored",
    "SnapshotsTaken",
    "CommitPushed",
    "VersionApplied",
    "HealthVerified",
    "VolumesRestored",
    "VolumesSwapped",
];

/// Reasons of Git and of deletions, which other operators have, too.
const SHARED: [&str; 16] = [
    "PushRejected",
    "BranchMoved",
    "RepositoryUnreachable",
    "RepositoryNotFound",
    "AuthenticationFailed",
    "CredentialsInvalid",
    "CertificateNotTrusted",
    "HostKeyUnknown",
    "AddressNotAllowed",
    "BranchNotFound",
    "RepositoryTooLarge",
    "PathNotFound",
    "CloneFailed",
    "PublishFailed",
    "Deleting",
    "DeletionBlocked",
];

/// A status like the operator's, written at 10:02:11.
fn stored(phase: &str, reason: &str, message: &str) -> Value {
    let condition = |kind: &str, value: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": at("10:01:00") })
    };
    let conditions = match phase {
        "Succeeded" => vec![
            condition("Succeeded", "True"),
            condition("Finished", "True"),
        ],
        "Failed" => vec![
            condition("Succeeded", "False"),
            condition("Finished", "True"),
        ],
        "Stalled" => vec![
            condition("Succeeded", "Unknown"),
            condition("Stalled", "True"),
        ],
        _ => vec![
            condition("Succeeded", "Unknown"),
            condition("Reconciling", "True"),
        ],
    };
    let phase = if phase == "Stalled" { "Undo" } else { phase };
    json!({
        "observedGeneration": 1, "phase": phase, "reason": reason, "message": message,
        "lastUpdated": at("10:02:11"), "conditions": conditions,
    })
}

fn with_request(mut world: World, kind: &str, spec: &Value, status: &Value) -> World {
    let object = json!({
        "metadata": { "name": "up", "namespace": "team", "uid": "up-uid", "generation": 1,
            "creationTimestamp": at("10:00:00") },
        "spec": spec, "status": status,
    });
    let view = RequestView::read(kind, &object);
    assert_eq!(view.undecodable, None, "{object}");
    world.target = ObjectRef::namespaced(kind, "team", "up");
    world.request = Some(view);
    world
}

/// An UpgradeRequest of a healthy application.
fn upgrade(phase: &str, reason: &str, message: &str) -> World {
    let site = Site::new(status("Ready", "Ready", false, "2 workloads are ready"));
    let spec =
        json!({ "managedAppRef": { "name": "shop" }, "targetVersion": { "chart": "2.0.0" } });
    with_request(
        site.0,
        "UpgradeRequest",
        &spec,
        &stored(phase, reason, message),
    )
}

fn rollback(phase: &str, reason: &str, message: &str) -> World {
    let site = Site::new(status("Ready", "Ready", false, "2 workloads are ready"));
    let spec = json!({ "upgradeRequestRef": { "name": "before" } });
    with_request(
        site.0,
        "RollbackRequest",
        &spec,
        &stored(phase, reason, message),
    )
}

fn deepest(found: &Explanation) -> String {
    let last = found.chain.last().unwrap();
    let namespace = last.object.namespace.as_deref().unwrap_or_default();
    format!("{} {namespace}/{}", last.object.kind, last.object.name)
}

/// Each reason of the apps operator that a request can have has a chain with another object below the request, and a next
/// command. A new reason without a rule fails here.
#[test]
fn each_reason_of_a_request_has_a_chain() {
    let own = api::apps::OPERATOR.reasons.iter().map(|one| one.name());
    let of_requests = own.filter(|name| !OF_CONDITIONS.contains(name));
    for name in of_requests.chain(SHARED) {
        let reason = Reason::from_name(name).unwrap();
        for world in [
            upgrade("Failed", name, "a message without an object"),
            upgrade("Stalled", name, "a message without an object"),
            rollback("Failed", name, "a message without an object"),
            rollback("Plan", name, "a message without an object"),
        ] {
            let found = why::explain(&world);
            let last = found.chain.last().unwrap();
            assert!(
                last.object != world.target && found.chain.len() > 1,
                "{reason} has no chain: {found:#?}"
            );
            assert!(!found.next_steps.is_empty(), "{reason}");
            assert!(!found.advice.is_empty(), "{reason}");
            assert_eq!(found.reason, name);
        }
    }
}

/// The object that the message names blocks the request.
#[test]
fn the_object_of_the_message_is_the_blocker() {
    // Columns: phase, reason, message, the deepest object.
    let table = [
        (
            "Pending",
            "OperationActive",
            "waits until UpgradeRequest 'team/first' has ended",
            "UpgradeRequest team/first",
        ),
        (
            "Pending",
            "OperationActive",
            "HelmRelease 'shop/shop' is locked by RollbackRequest 'team/back'; waits until it has ended",
            "RollbackRequest team/back",
        ),
        (
            "Pending",
            "LockRecovered",
            "restores the scale of StatefulSet 'shop/db', which an earlier request stopped",
            "StatefulSet shop/db",
        ),
        (
            "Plan",
            "Planning",
            "waits for the Pod of Job 'up-plan'",
            "Job team/up-plan",
        ),
        (
            "Approval",
            "AwaitingApproval",
            "waits for the decision of a user",
            "ManagedApp team/shop",
        ),
        (
            "Suspend",
            "Suspending",
            "the controller of HelmRelease 'shop/shop' has not confirmed the suspension yet",
            "HelmRelease shop/shop",
        ),
        (
            "ScaleDown",
            "ScalingDown",
            "Pod 'shop/db-0' on node 'node-1' is being deleted and mounts PersistentVolumeClaim 'data'",
            "Pod shop/db-0",
        ),
        (
            "ScaleDown",
            "ScalingDown",
            "PersistentVolume 'pv-1' is attached to node 'node-1'",
            "PersistentVolume /pv-1",
        ),
        (
            "Snapshot",
            "Snapshotting",
            "VolumeSnapshot 'shop/shop-data' is not bound yet",
            "VolumeSnapshot shop/shop-data",
        ),
        (
            "GitCommit",
            "Committing",
            "Job 'up-commit' does not start: the image cannot be pulled",
            "Job team/up-commit",
        ),
        (
            "Reconcile",
            "Applying",
            "waits until GitRepository 'flux-system/shop' fetches branch 'main'",
            "GitRepository flux-system/shop",
        ),
        (
            "Undo",
            "Undoing",
            "waits until VolumeSnapshot 'shop/shop-data' is deleted (PushRejected: no)",
            "VolumeSnapshot shop/shop-data",
        ),
        (
            "Stalled",
            "UndoBlocked",
            "the undo takes too long: Kustomization 'flux-system/shop' is locked",
            "Kustomization flux-system/shop",
        ),
        (
            "Failed",
            "NotInInventory",
            "HelmRelease 'shop/other' is not in the inventory of Kustomization 'flux-system/shop'",
            "HelmRelease shop/other",
        ),
        (
            "Failed",
            "AppOverlaps",
            "ManagedApp 'team/older' has it, too",
            "ManagedApp team/older",
        ),
        (
            "Failed",
            "SuspendOwnedByParent",
            "'kustomize-controller' applies 'spec.suspend' of HelmRelease 'shop/shop'",
            "HelmRelease shop/shop",
        ),
        (
            "Failed",
            "SourcePinned",
            "GitRepository 'flux-system/shop' does not follow a branch, but 'tag: v1'",
            "GitRepository flux-system/shop",
        ),
        (
            "Failed",
            "VolumeNotBound",
            "PersistentVolumeClaim 'shop/data' is not bound",
            "PersistentVolumeClaim shop/data",
        ),
        (
            "Failed",
            "WorkloadNotScalable",
            "DaemonSet 'shop/agent' mounts a volume of the application, and cannot be stopped",
            "DaemonSet shop/agent",
        ),
        (
            "Failed",
            "PVCsDeletedOnScaleDown",
            "StatefulSet 'shop/db' deletes its claims when it is scaled down",
            "StatefulSet shop/db",
        ),
        (
            "Failed",
            "SuspendReverted",
            "Kustomization 'flux-system/shop' was resumed during the request by 'flux'",
            "Kustomization flux-system/shop",
        ),
        (
            "Failed",
            "LockedByOther",
            "Kustomization 'flux-system/shop' is locked by UpgradeRequest 'team/first'",
            "UpgradeRequest team/first",
        ),
        (
            "Failed",
            "PodsNotTerminated",
            "Pod 'shop/db-0' on node 'node-1' is running and mounts PersistentVolumeClaim 'data'",
            "Pod shop/db-0",
        ),
        (
            "Failed",
            "WorkloadScaledUp",
            "'keda' scaled up StatefulSet 'shop/db' during the request",
            "StatefulSet shop/db",
        ),
        (
            "Failed",
            "SnapshotNoProgress",
            "VolumeSnapshot 'shop/shop-data' is not ready",
            "VolumeSnapshot shop/shop-data",
        ),
        (
            "Failed",
            "CommitHadNoEffect",
            "Kustomization 'flux-system/shop' applied commit 01, but the HelmRelease still requests version '1.0.0'",
            "Kustomization flux-system/shop",
        ),
        (
            "Failed",
            "HelmUpgradeFailed",
            "HelmRelease 'shop/shop': UpgradeFailed: pre-upgrade hooks failed",
            "HelmRelease shop/shop",
        ),
        (
            "Failed",
            "HelmRemediated",
            "HelmRelease 'shop/shop': RollbackSucceeded: rolled back",
            "HelmRelease shop/shop",
        ),
        (
            "Failed",
            "PushRejected",
            "a hook of the server rejected the push",
            "Kustomization flux-system/shop",
        ),
        (
            "Failed",
            "Unhealthy",
            "StatefulSet 'shop/db' has 0 of 1 replicas ready",
            "StatefulSet shop/db",
        ),
    ];
    for (phase, reason, message, expected) in table {
        let found = why::explain(&upgrade(phase, reason, message));
        assert_eq!(deepest(&found), expected, "{reason}: {message}");
        let state = match (phase, reason) {
            ("Failed", _) => State::Failed,
            ("Stalled", _) | (_, "AwaitingApproval") => State::Blocked,
            (_, _) => State::Waiting,
        };
        assert_eq!(found.state, state, "{reason}");
    }
    let back = [
        (
            "Failed",
            "UpgradeNotFound",
            "UpgradeRequest 'before' does not exist",
            "UpgradeRequest team/before",
        ),
        (
            "Failed",
            "RollbackNotAvailable",
            "VolumeSnapshot 'shop/shop-data' does not exist",
            "VolumeSnapshot shop/shop-data",
        ),
        (
            "VolumeRestore",
            "Restoring",
            "Pod 'shop/data-bind' is starting",
            "Pod shop/data-bind",
        ),
        (
            "VolumeSwap",
            "Swapping",
            "waits until PersistentVolumeClaim 'shop/data' is deleted",
            "PersistentVolumeClaim shop/data",
        ),
        (
            "Failed",
            "RestoredVolumeEmpty",
            "PersistentVolumeClaim 'shop/data-01' is empty",
            "PersistentVolumeClaim shop/data-01",
        ),
    ];
    for (phase, reason, message, expected) in back {
        let found = why::explain(&rollback(phase, reason, message));
        assert_eq!(deepest(&found), expected, "{reason}: {message}");
    }
}

/// A problem of the live application is explained down to its Pod.
#[test]
fn a_request_waits_for_the_pod_of_its_application() {
    let message = "Deployment 'shop/web' has 1 of 2 replicas ready";
    let unhealthy = status("Degraded", "Unhealthy", false, message);
    let ended = json!({ "exitCode": 1, "reason": "Error", "finishedAt": at("10:04:00") });
    let site = Site::new(unhealthy).web(2, 1, json!({})).container(
        json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
        json!({ "restartCount": 5, "lastState": { "terminated": ended } }),
    );
    let spec =
        json!({ "managedAppRef": { "name": "shop" }, "targetVersion": { "chart": "2.0.0" } });
    for (phase, reason, state) in [
        ("HealthCheck", "CheckingHealth", State::Waiting),
        ("Failed", "Unhealthy", State::Failed),
    ] {
        let world = site.0.clone();
        let world = with_request(
            world,
            "UpgradeRequest",
            &spec,
            &stored(phase, reason, message),
        );
        let found = why::explain(&world);
        let kinds: Vec<&str> = found.chain.iter().map(|link| &*link.object.kind).collect();
        assert_eq!(
            kinds,
            ["UpgradeRequest", "ManagedApp", "Deployment", "Pod"],
            "{found:#?}"
        );
        assert_eq!(found.state, state);
        let last = found.chain.last().unwrap();
        assert_eq!(last.reason, "CrashLoop");
    }
}

/// The next command is the one that a user needs in this state.
#[test]
fn the_first_command_fits_the_reason() {
    for (world, expected) in [
        (
            upgrade("Approval", "AwaitingApproval", ""),
            "orc approve up -n team",
        ),
        (
            upgrade("Failed", "Unhealthy", ""),
            "orc rollback up -n team",
        ),
        (
            upgrade("Failed", "PodsNotTerminated", ""),
            "orc upgrade shop --chart 2.0.0 -n team",
        ),
        (
            rollback("Failed", "PushRejected", ""),
            "orc rollback before -n team",
        ),
    ] {
        let found = why::explain(&world);
        assert_eq!(found.next_steps[0].command, expected, "{found:#?}");
    }
}

/// A ManagedApp names the request that changes it, and the object whose lock is recovered.
#[test]
fn a_managed_app_names_its_request() {
    let mut operating = status(
        "Operating",
        "OperationActive",
        false,
        "UpgradeRequest 'up' is in phase ScaleDown: waits",
    );
    operating["activeOperation"] =
        json!({ "kind": "UpgradeRequest", "name": "up", "uid": "up-uid", "phase": "ScaleDown" });
    let found = why::explain(&Site::new(operating).0);
    assert_eq!(deepest(&found), "UpgradeRequest team/up");
    assert_eq!(
        found.next_steps[0].command,
        "orc why upgraderequest/up -n team"
    );
    let recovered = status(
        "Degraded",
        "LockRecovered",
        false,
        "resumes HelmRelease 'shop/shop' of an earlier request",
    );
    let found = why::explain(&Site::new(recovered).0);
    assert_eq!(deepest(&found), "HelmRelease shop/shop");
}

/// The page for users has a section for each reason of a request.
#[test]
fn each_reason_of_a_request_is_on_the_page_for_users() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page.join("../../docs/troubleshoot/upgrades.md");
    let page = std::fs::read_to_string(page).unwrap();
    for reason in api::apps::OPERATOR.reasons {
        let name = reason.name();
        let is_known = match OF_CONDITIONS.contains(&name) {
            true => page.contains(&format!("`{name}`")),
            false => page.contains(&format!("### {name}\n")),
        };
        assert!(is_known, "{name}");
    }
}
