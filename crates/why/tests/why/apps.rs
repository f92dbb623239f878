//! ManagedApps: each reason of the apps operator, down to the blocking object.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use why::{explanation::State, world::NodeView};

use crate::{
    Case,
    app_build::{Site, status},
    build::at,
};

type Blocker = Option<(&'static str, &'static str, &'static str)>;

fn case(name: &'static str, site: Site, state: State, blocker: Blocker) -> Case {
    Case {
        name,
        world: site.0,
        state,
        blocker,
    }
}

fn unhealthy() -> Value {
    let message = "Deployment 'shop/web' has 1 of 2 replicas ready";
    status("Degraded", "Unhealthy", false, message)
}

fn failed(reason: &str, message: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": reason,
        "message": message, "lastTransitionTime": at("10:01:30") }] } })
}

fn changing(message: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown",
        "reason": "Progressing", "message": message, "lastTransitionTime": at("10:01:30") }] } })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = references();
    all.extend(releases());
    all.extend(of_flux());
    all.extend(of_workloads());
    all
}

fn references() -> Vec<Case> {
    let stalled = |reason: &str, message: &str| status("Degraded", reason, true, message);
    let working = |reason: &str, message: &str| status("Degraded", reason, false, message);
    let not_installed = working(
        "FluxNotInstalled",
        "the API server does not serve the type of Kustomization 'flux-system/shop'. Install Flux with its Kustomization controller; the operator finds it within 30 seconds",
    );
    let absent = working(
        "FluxObjectNotFound",
        "Kustomization 'flux-system/shop' does not exist. Create it, or correct the reference",
    );
    let no_helm = working(
        "FluxObjectNotFound",
        "HelmRelease 'shop/shop' does not exist. Create it, or correct the reference",
    );
    let overlaps = api::messages::overlap("PersistentVolumeClaim 'shop/data'", "team/older");
    vec![
        case(
            "app-flux-not-installed",
            Site::bare(not_installed.clone()),
            State::Blocked,
            Some((
                "CustomResourceDefinition",
                "kustomizations.kustomize.toolkit.fluxcd.io",
                "FluxNotInstalled",
            )),
        ),
        case(
            "app-flux-installed-since",
            Site::new(not_installed),
            State::Waiting,
            None,
        ),
        case(
            "app-kustomization-not-found",
            Site::bare(absent.clone()).known("Kustomization", "flux-system", "shop", false),
            State::Blocked,
            Some(("Kustomization", "shop", "FluxObjectNotFound")),
        ),
        case(
            "app-kustomization-created-since",
            Site::new(absent),
            State::Waiting,
            None,
        ),
        case(
            "app-helm-release-not-found",
            Site::bare(no_helm).kustomization(json!({})).known(
                "HelmRelease",
                "shop",
                "shop",
                false,
            ),
            State::Blocked,
            Some(("HelmRelease", "shop", "FluxObjectNotFound")),
        ),
        case(
            "app-flux-unreadable",
            Site::bare(working(
                "FluxObjectUnreadable",
                "Kustomization 'flux-system/shop' cannot be read: status: invalid type",
            )),
            State::Blocked,
            Some(("Kustomization", "shop", "FluxObjectUnreadable")),
        ),
        case(
            "app-namespace-not-watched",
            Site::new(stalled(
                "NamespaceNotWatched",
                "an object of the application is in namespace 'data', which the operator does not watch. Add it to 'watchNamespaces' of the chart",
            )),
            State::Blocked,
            Some(("Namespace", "data", "NamespaceNotWatched")),
        ),
        case(
            "app-overlaps",
            Site::new(stalled("AppOverlaps", &overlaps)),
            State::Blocked,
            Some(("ManagedApp", "older", "AppOverlaps")),
        ),
        case(
            "app-not-in-inventory",
            Site::new(stalled(
                "NotInInventory",
                "HelmRelease 'shop/other' is not in the inventory of Kustomization 'flux-system/shop', which has the HelmRelease 'shop/shop'. Correct 'spec.helmReleaseRef'",
            )),
            State::Blocked,
            Some(("Kustomization", "shop", "NotInInventory")),
        ),
        case(
            "app-helm-release-ambiguous",
            Site::new(stalled(
                "HelmReleaseAmbiguous",
                "Kustomization 'flux-system/shop' has 2 HelmReleases: 'shop/a', 'shop/b'. Set 'spec.helmReleaseRef' to the one of this application",
            )),
            State::Blocked,
            Some(("Kustomization", "shop", "HelmReleaseAmbiguous")),
        ),
        case(
            "app-remote-cluster",
            Site::new(stalled(
                "RemoteCluster",
                "HelmRelease 'shop/shop' applies to another cluster ('spec.kubeConfig'). Create the ManagedApp in that cluster",
            )),
            State::Blocked,
            Some(("HelmRelease", "shop", "RemoteCluster")),
        ),
        case(
            "app-no-workloads",
            Site::new(working(
                "NoWorkloadsFound",
                "Flux applied no Deployment, StatefulSet or DaemonSet. Check that 'spec.kustomizationRef' names the Kustomization of the application, and not its parent",
            )),
            State::Blocked,
            Some(("Kustomization", "shop", "NoWorkloadsFound")),
        ),
    ]
}

fn releases() -> Vec<Case> {
    let stalled = |reason: &str, message: &str| status("Degraded", reason, true, message);
    vec![
        case(
            "app-release-unreadable",
            Site::new(stalled(
                "ReleaseUnreadable",
                "release 'shop' version 3 of HelmRelease 'shop/shop' cannot be read: Secret 'shop/sh.helm.release.v1.shop.v3' does not exist",
            )),
            State::Blocked,
            Some(("HelmRelease", "shop", "ReleaseUnreadable")),
        ),
        case(
            "app-release-changed-by-hand",
            Site::new(stalled(
                "ReleaseChangedOutsideFlux",
                "Helm stored version 4 of release 'shop', but HelmRelease 'shop/shop' knows version 3 only: someone changed the release by hand. Let Flux reconcile it",
            )),
            State::Blocked,
            Some(("HelmRelease", "shop", "ReleaseChangedOutsideFlux")),
        ),
        case(
            "app-discovery-mismatch",
            Site::new(stalled(
                "DiscoveryMismatch",
                "StatefulSet 'shop/db' is in the release of HelmRelease 'shop/shop', but not in the inventory. Let Flux reconcile the HelmRelease",
            )),
            State::Blocked,
            Some(("HelmRelease", "shop", "DiscoveryMismatch")),
        ),
    ]
}

fn of_flux() -> Vec<Case> {
    let ready = status(
        "Ready",
        "Ready",
        false,
        "1 workload is ready at revision 'main@sha1:0123', chart version 2.0.0",
    );
    let suspended = status(
        "Degraded",
        "AlreadySuspended",
        false,
        "Kustomization 'flux-system/shop' is suspended, so Flux does not apply the application. Set its 'spec.suspend' to false",
    );
    let suspend = json!({ "spec": { "suspend": true } });
    let comparing = status(
        "Pending",
        "Comparing",
        false,
        "Flux applies a change: HelmRelease 'shop/shop': Progressing: Running 'upgrade' action",
    );
    let broken = status(
        "Degraded",
        "Unhealthy",
        false,
        "Kustomization 'flux-system/shop': BuildFailed: kustomization.yaml not found",
    );
    let no_artifact = status(
        "Degraded",
        "Unhealthy",
        false,
        "Kustomization 'flux-system/shop': ArtifactFailed: Source artifact not found, retrying in 30s",
    );
    let mut waits_for_source = failed(
        "ArtifactFailed",
        "Source artifact not found, retrying in 30s",
    );
    waits_for_source["spec"] = json!({ "sourceRef": { "kind": "GitRepository", "name": "shop" } });
    let unauthorized = json!({ "type": "Ready", "status": "False", "reason": "GitOperationFailed",
        "message": "failed to checkout and determine revision: authentication required",
        "observedGeneration": 2, "lastTransitionTime": at("10:00:50") });
    let deleted = status(
        "Degraded",
        "Unhealthy",
        false,
        "Kustomization 'flux-system/shop' is being deleted, so Flux does not apply the application any more. Create it again, or delete the ManagedApp",
    );
    let down = {
        let mut site = Site::new(ready.clone());
        site.0.leases = Some(Vec::new());
        site
    };
    vec![
        case("app-ready", Site::new(ready.clone()), State::Ready, None),
        case("app-ready-without-operator", down, State::Ready, None),
        case(
            "app-ready-during-an-interval",
            Site::new(ready.clone()).kustomization(changing("Reconciliation in progress")),
            State::Ready,
            None,
        ),
        case(
            "app-suspended",
            Site::new(suspended).kustomization(suspend.clone()),
            State::Blocked,
            Some(("Kustomization", "shop", "AlreadySuspended")),
        ),
        case(
            "app-suspended-but-status-says-ready",
            Site::new(ready).helm(suspend),
            State::Blocked,
            Some(("HelmRelease", "shop", "AlreadySuspended")),
        ),
        case(
            "app-comparing",
            Site::new(comparing.clone())
                .helm(changing("Running 'upgrade' action with timeout of 5m0s")),
            State::Waiting,
            None,
        ),
        case(
            "app-comparing-a-new-spec",
            Site::new(comparing).helm(json!({ "metadata": { "generation": 5 } })),
            State::Waiting,
            None,
        ),
        case(
            "app-flux-fails",
            Site::new(broken).kustomization(failed(
                "BuildFailed",
                "kustomization.yaml not found in './shop'",
            )),
            State::Blocked,
            Some(("Kustomization", "shop", "BuildFailed")),
        ),
        case(
            "app-source-fails",
            Site::new(no_artifact.clone())
                .kustomization(waits_for_source.clone())
                .git(&unauthorized),
            State::Blocked,
            Some(("GitRepository", "shop", "GitOperationFailed")),
        ),
        case(
            "app-source-missing",
            Site::new(no_artifact)
                .kustomization(waits_for_source)
                .known("GitRepository", "flux-system", "shop", false),
            State::Blocked,
            Some(("GitRepository", "shop", "NotFound")),
        ),
        case(
            "app-flux-deleted",
            Site::new(deleted).kustomization(json!({ "metadata": {
                "deletionTimestamp": at("10:01:20"), "finalizers": ["finalizers.fluxcd.io"] } })),
            State::Blocked,
            Some(("Kustomization", "shop", "Unhealthy")),
        ),
        case(
            "app-helm-fails",
            Site::new(status(
                "Degraded",
                "Unhealthy",
                false,
                "HelmRelease 'shop/shop': UpgradeFailed: timed out",
            ))
            .helm(failed(
                "UpgradeFailed",
                "Helm upgrade failed: timed out waiting for the condition",
            )),
            State::Blocked,
            Some(("HelmRelease", "shop", "UpgradeFailed")),
        ),
    ]
}

fn of_workloads() -> Vec<Case> {
    let waiting = |reason: &str, message: &str| json!({ "waiting": { "reason": reason, "message": message } });
    let running = json!({ "running": { "startedAt": at("10:01:05") } });
    let last = json!({ "restartCount": 5, "lastState": { "terminated": { "exitCode": 1,
        "reason": "Error", "finishedAt": at("10:04:00") } } });
    let rolling = status(
        "Pending",
        "Progressing",
        false,
        "Deployment 'shop/web' rolls out: 1 of 2 replicas updated, 2 ready",
    );
    let ready = status(
        "Ready",
        "Ready",
        false,
        "1 workload is ready at revision 'main@sha1:0123'",
    );
    let beside = {
        let message = "Deployment 'shop/web' rolls out: 1 of 1 replicas updated, 1 ready: Pod 'web-x2k9p', container 'web': the image cannot be pulled: not found";
        let mut beside = status("Degraded", "Unhealthy", false, message);
        beside["workloads"][0]["desired"] = json!(1);
        beside
    };
    let node = json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [
        { "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": at("10:02:00") }] } });
    let node: Node = serde_json::from_value(node).unwrap();
    let mut lost = Site::new(unhealthy())
        .web(2, 1, json!({}))
        .container(running.clone(), json!({}));
    lost.0.nodes.push(NodeView::read(&node, &[]));
    let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory.",
        "lastTransitionTime": at("10:01:01") }] });
    let failure = json!({ "status": { "replicas": 1, "updatedReplicas": 1, "conditions": [{ "type": "ReplicaFailure", "status": "True",
        "reason": "FailedCreate", "message": "pods \"web-1\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=5, limited: pods=5",
        "lastTransitionTime": at("10:01:01") }] } });
    vec![
        case(
            "app-crash-loop",
            Site::new(unhealthy()).web(2, 1, json!({})).container(waiting("CrashLoopBackOff", "back-off 1m20s"), last.clone()),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "CrashLoop")),
        ),
        // Flux fails because it waits for the workload, so the chain ends at the Pod.
        case(
            "app-crash-loop-while-flux-fails",
            Site::new(unhealthy()).kustomization(failed("HealthCheckFailed", "timeout waiting for Deployment/shop/web"))
                .web(2, 1, json!({})).container(running.clone(), last),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "CrashLoop")),
        ),
        case(
            "app-image",
            Site::new(unhealthy()).web(2, 1, json!({})).container(waiting("ImagePullBackOff", "Back-off pulling image \"registry.example/web:2\": ErrImagePull: not found"), json!({})),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "ImagePullFailed")),
        ),
        // The Pod of the old template is ready, so the number of ready replicas is as desired.
        case(
            "app-image-beside-the-old-pod",
            Site::new(beside).web(1, 1, json!({ "status": { "replicas": 2 } }))
                .container(waiting("ImagePullBackOff", "Back-off pulling image \"registry.example/web:2\": ErrImagePull: not found"), json!({})),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "ImagePullFailed")),
        ),
        case(
            "app-secret-missing",
            Site::new(unhealthy()).web(2, 1, json!({})).container(waiting("CreateContainerConfigError", "secret \"db\" not found"), json!({})),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "SecretNotFound")),
        ),
        case(
            "app-unschedulable",
            Site::new(unhealthy()).web(2, 1, json!({})).pod(unscheduled),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "Unschedulable")),
        ),
        case(
            "app-probe-failed",
            Site::new(unhealthy()).web(2, 1, json!({})).container(running.clone(), json!({}))
                .event("pod-uid", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "ProbeFailed")),
        ),
        case(
            "app-volume",
            Site::new(unhealthy()).web(2, 1, json!({})).container(waiting("ContainerCreating", ""), json!({}))
                .event("pod-uid", "FailedAttachVolume", "Multi-Attach error for volume \"pvc-1\""),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "VolumeNotReady")),
        ),
        case("app-node-lost", lost, State::Blocked, Some(("Node", "node-1", "NodeLost"))),
        case(
            "app-quota",
            Site::new(unhealthy()).web(2, 1, failure),
            State::Blocked,
            Some(("Pod", "web (new)", "QuotaExceeded")),
        ),
        case(
            "app-starting",
            Site::new(unhealthy()).web(2, 1, json!({})).container(waiting("ContainerCreating", ""), json!({})),
            State::Waiting,
            None,
        ),
        case(
            "app-rolling-out",
            Site::new(rolling).web(2, 2, json!({ "status": { "updatedReplicas": 1 } })),
            State::Waiting,
            None,
        ),
        case(
            "app-scaled-to-zero",
            Site::new(status("Degraded", "Unhealthy", false, "Deployment 'shop/web' has 0 desired replicas. Scale it up, if nobody scaled it down on purpose")).web(0, 0, json!({})),
            State::Blocked,
            Some(("Deployment", "web", "Unhealthy")),
        ),
        case(
            "app-workload-missing",
            Site::new(unhealthy()).known("Deployment", "shop", "web", false),
            State::Blocked,
            Some(("Deployment", "web", "NotFound")),
        ),
        case("app-recovered-since", Site::new(unhealthy()).web(2, 2, json!({})), State::Waiting, None),
        case(
            "app-broken-but-status-says-ready",
            Site::new(ready).web(2, 1, json!({})).container(running, json!({ "restartCount": 1 })),
            State::Blocked,
            Some(("Pod", "web-x2k9p", "CrashLoop")),
        ),
    ]
}

/// The table of HelmReleases: the change of its status, the status of the ManagedApp, and the sentence about it.
#[test]
fn a_helm_release_is_explained_by_its_attempts() {
    let history = |status: &str| {
        json!([{ "name": "shop", "version": 2, "chartVersion": "1.0.0", "status": "superseded" },
            { "name": "shop", "version": 3, "chartVersion": "2.0.0", "status": status }])
    };
    let ready = || status("Ready", "Ready", false, "1 workload is ready");
    let unhealthy = || status("Degraded", "Unhealthy", false, "HelmRelease 'shop/shop': x");
    let old_failure = json!({ "metadata": { "generation": 5 },
        "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "UpgradeFailed",
            "message": "an old failure", "observedGeneration": 4 }] } });
    let new_failure = json!({ "metadata": { "generation": 5 },
        "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "UpgradeFailed",
            "message": "a new failure", "observedGeneration": 5 }] } });
    let stalled = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "",
            "observedGeneration": 4 },
        { "type": "Stalled", "status": "True", "reason": "RetriesExceeded",
            "message": "Failed to upgrade", "observedGeneration": 4 }] } });
    for (change, status, expected) in [
        (
            json!({ "status": { "lastAttemptedRevision": "2.1.0", "history": history("deployed") } }),
            ready(),
            "applies version '2.1.0', and '2.0.0' is the applied one",
        ),
        (
            json!({ "status": { "lastAttemptedRevision": "2.0.0", "history": history("failed") } }),
            ready(),
            "has a newest release that is 'failed'",
        ),
        (
            json!({ "metadata": { "generation": 5 } }),
            ready(),
            "has a spec that its controller has not reconciled yet",
        ),
        (
            old_failure,
            unhealthy(),
            "has a spec that its controller has not reconciled yet",
        ),
        (new_failure, unhealthy(), "is not ready: a new failure"),
        (
            stalled,
            unhealthy(),
            "is stalled until its spec changes: Failed to upgrade",
        ),
    ] {
        let found = why::explain(&Site::new(status).helm(change.clone()).0);
        let last = found.chain.last().unwrap();
        assert_eq!(last.object.kind, "HelmRelease", "{change}");
        assert_eq!(last.message, expected, "{change}");
    }
}

/// Each reason of the apps operator has a case whose chain goes below the ManagedApp, so none is explained by itself
/// alone.
#[test]
fn each_reason_of_an_app_has_a_chain() {
    let mut explained: BTreeSet<String> = BTreeSet::new();
    for case in cases() {
        let app = case.world.app.as_ref().unwrap();
        let reason = app.status.progress.reason.clone().unwrap();
        let found = why::explain(&case.world);
        if found
            .chain
            .iter()
            .any(|link| link.object.kind != "ManagedApp" || link.object.name != "shop")
        {
            explained.insert(reason);
        }
    }
    // The reasons after it are those of requests: see `requests`.
    for reason in api::apps::OPERATOR.reasons {
        if reason.name() == "OperationActive" {
            break;
        }
        assert!(explained.contains(reason.name()), "{reason}");
    }
    for shared in ["Ready", "Progressing"] {
        assert!(explained.contains(shared), "{shared}");
    }
}

/// A problem that the status does not report yet is shown with both.
#[test]
fn a_ready_app_with_a_problem_is_outdated() {
    for case in cases() {
        let found = why::explain(&case.world);
        let is_expected = ["-but-status-says-ready", "-since", "-without-operator"]
            .iter()
            .any(|end| case.name.ends_with(end));
        assert_eq!(found.outdated.is_some(), is_expected, "{}", case.name);
    }
}
