//! Tenants: ready or not, isolated or not.

use serde_json::json;
use why::explanation::State::*;

use crate::{
    Case,
    build::at,
    tenant_build::{PROBE, SERVER, Site, case, degraded, running, status, tried, with_isolation},
    tenant_parts, tenant_places,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = isolated();
    all.extend(unproven());
    all.extend(tenant_places::cases());
    all.extend(tenant_parts::cases());
    all.extend(faults());
    all.extend(others());
    all
}

fn isolated() -> Vec<Case> {
    let open = "a connection passed that the policies refuse: from a Pod outside to its redis: connected to 10.0.0.7:6379; does the cluster's network enforce NetworkPolicies, and as they are now?";
    let shut = "names are not resolved: from a Pod of the Tenant to the cluster's DNS: no answer within 5 s";
    let stale = "a connection was refused that the policies allow: from a Pod of the Tenant to its redis: no answer from 10.0.0.7:6379 within 3 s; does the cluster's network enforce NetworkPolicies, and as they are now?";
    let by_hand = "NetworkPolicy 'by-hand' in namespace 'tenant-acme' is not this Tenant's, and may open it; delete it, or say what it is for in 'networkPolicy'";
    let none = "there are no policies: 'networkPolicy.enabled' is false";
    let disabled = json!({ "spec": { "networkPolicy": { "enabled": false } } });
    let passed = "connected to 10.0.0.7:6379";
    let not_enforced = with_isolation(
        running(("False", "PolicyNotEnforced", open)),
        json!({ "result": "PolicyNotEnforced", "connections": tried(&[
            (4, Some(true), passed), (5, Some(true), "connected to 10.0.0.8:3030")]) }),
    );
    let blocked = with_isolation(
        running(("False", "DNSUnreachable", shut)),
        json!({ "result": "DNSUnreachable", "connections": tried(&[(0, Some(false), "no answer within 5 s")]) }),
    );
    let not_taken_over = with_isolation(
        running(("False", "PolicyNotEnforced", stale)),
        json!({ "result": "PolicyNotEnforced", "connections": tried(&[(1, Some(false), "no answer from 10.0.0.7:6379 within 3 s")]) }),
    );
    let foreign = running(("False", "UnmanagedPolicy", by_hand));
    vec![
        case("tenant-ready", Site::proven(), Ready, None),
        case(
            "tenant-ready-without-operator",
            Site::proven().lease(Some("orchestrator-tenants-5c7b-fghij"), "10:02:30"),
            Ready,
            None,
        ),
        case(
            "tenant-policies-disabled",
            Site::ready(json!({}))
                .with(running(("False", "PoliciesDisabled", none)), disabled)
                .policies(&[]),
            NotIsolated,
            Some(("Tenant", "acme", "PoliciesDisabled")),
        ),
        case(
            "tenant-foreign-policy",
            Site::ready(foreign.clone()).by_hand("by-hand", "10:02:00"),
            NotIsolated,
            Some(("NetworkPolicy", "by-hand", "UnmanagedPolicy")),
        ),
        case(
            "tenant-foreign-policies-not-said-yet",
            Site::proven()
                .by_hand("by-hand", "10:05:10")
                .by_hand("wide-open", "10:05:10"),
            NotIsolated,
            Some(("NetworkPolicy", "by-hand", "UnmanagedPolicy")),
        ),
        case(
            "tenant-foreign-policy-gone",
            Site::ready(foreign),
            NotProven,
            None,
        ),
        case(
            "tenant-policy-missing",
            Site::proven().policies(&["allow-dns", "allow-inside"]),
            NotIsolated,
            Some(("NetworkPolicy", "default-deny", "PolicyMissing")),
        ),
        case(
            "tenant-policy-not-enforced",
            Site::ready(not_enforced),
            NotIsolated,
            Some((
                "Connection",
                "from a Pod outside to its redis",
                "PolicyNotEnforced",
            )),
        ),
        case(
            "tenant-policy-enforced-as-it-was",
            Site::ready(not_taken_over),
            NotIsolated,
            Some((
                "Connection",
                "from a Pod of the Tenant to its redis",
                "PolicyNotEnforced",
            )),
        ),
        case(
            "tenant-path-blocked",
            Site::ready(blocked),
            NotIsolated,
            Some((
                "Connection",
                "from a Pod of the Tenant to the cluster's DNS",
                "DNSUnreachable",
            )),
        ),
    ]
}

fn unproven() -> Vec<Case> {
    let failed = |message: &str| running(("Unknown", "IsolationCheckFailed", message));
    let told = format!(
        "Pod '{PROBE}': ImagePullBackOff Back-off pulling image \"registry.example/orchestrator-toolbox:0.3\": not found"
    );
    let untold = with_isolation(
        failed(&format!(
            "it could not be tried: from a Pod of the Tenant to the cluster's DNS: {told}; it is tried again in a minute"
        )),
        json!({ "result": "IsolationCheckFailed", "connections": tried(&[(0, None, &told), (1, None, &told), (2, None, &told)]) }),
    );
    let unmade = |message: &str| {
        with_isolation(
            failed(&format!(
                "it could not be tried: {message}; it is tried again in a minute"
            )),
            json!({ "result": "IsolationCheckFailed", "message": message, "retryAt": at("10:06:00") }),
        )
    };
    let bounds = "NetworkPolicy 'strict' in namespace 'orchestrator' bounds the Pods that try from there: that they are refused would prove nothing";
    let quota = format!(
        "the Pods that try the connections cannot be made: 'create pods' of '{PROBE}' is refused: pods \"{PROBE}\" is forbidden: exceeded quota: tenant-probes, requested: pods=1, used: pods=2, limited: pods=2"
    );
    let class = format!(
        "the Pods that try the connections cannot be made: 'create pods' of '{PROBE}' is refused: pods \"{PROBE}\" is forbidden: no PriorityClass with name orchestrator-tenant-probe was found"
    );
    let denied = "the Pods that try the connections cannot be made: 'create pods' of 'probe-acme-outside-1' is refused: admission webhook \"images.example.com\" denied the request: not signed";
    let pending = running(crate::tenant_build::UNKNOWN);
    let nothing = (
        "Unknown",
        "NothingToProbe",
        "there is nothing that could be tried: neither this Tenant nor another has a server or a Redis that must not be reached",
    );
    let off = (
        "Unknown",
        "ProbesDisabled",
        "nobody tries: 'isolation.probe' is false",
    );
    let pulls = json!({ "waiting": { "reason": "ImagePullBackOff", "message":
        "Back-off pulling image \"registry.example/orchestrator-toolbox:0.3\": ErrImagePull: not found" } });
    let runs = json!({ "running": { "startedAt": at("10:05:02") } });
    let without = json!({ "spec": { "server": null, "redis": null } });
    let bare = status(
        "Running",
        "Ready",
        "namespace 'tenant-acme' with its quota, roles and policies is there",
        nothing,
    );
    vec![
        case(
            "tenant-proof-failed",
            Site::ready(untold.clone()),
            NotProven,
            Some(("Pod", PROBE, "IsolationCheckFailed")),
        ),
        case(
            "tenant-proof-failed-by-its-image",
            Site::ready(untold).container("probe", PROBE, "Pending", pulls, json!({})),
            NotProven,
            Some(("Configuration", "tenants.probeImage", "ImagePullFailed")),
        ),
        case(
            "tenant-proof-bounded",
            Site::ready(unmade(bounds)),
            NotProven,
            Some(("NetworkPolicy", "strict", "IsolationCheckFailed")),
        ),
        case(
            "tenant-proof-quota",
            Site::ready(unmade(&quota)).quota(
                "tenant-probes",
                json!({ "pods": "2" }),
                json!({ "pods": "2" }),
            ),
            NotProven,
            Some(("ResourceQuota", "tenant-probes", "QuotaExceeded")),
        ),
        case(
            "tenant-proof-without-its-class",
            Site::ready(unmade(&class)),
            NotProven,
            Some((
                "PriorityClass",
                "orchestrator-tenant-probe",
                "DependencyNotReady",
            )),
        ),
        case(
            "tenant-proof-denied",
            Site::ready(unmade(denied)),
            NotProven,
            Some(("Pod", "probe-acme-outside-1", "IsolationCheckFailed")),
        ),
        case(
            "tenant-proof-pending",
            Site::ready(pending.clone()).container("probe", PROBE, "Running", runs, json!({})),
            NotProven,
            None,
        ),
        case(
            "tenant-proof-waits-for-its-turn",
            Site::ready(pending),
            NotProven,
            None,
        ),
        case(
            "tenant-nothing-to-probe",
            Site::bare(json!({})).with(bare, without),
            NotProven,
            None,
        ),
        case(
            "tenant-probes-off",
            Site::ready(json!({})).with(
                running(off),
                json!({ "spec": { "isolation": { "probe": false } } }),
            ),
            NotProven,
            None,
        ),
    ]
}

fn faults() -> Vec<Case> {
    let retry = json!({ "attempt": 6, "class": "Denied", "nextAt": at("10:05:53") });
    let with_retry = |mut status: serde_json::Value| {
        status["retry"] = retry.clone();
        status
    };
    let denied = "the operator lacks the permission for 'create rolebindings' of 'tenant-owner': rolebindings.rbac.authorization.k8s.io is forbidden: User \"system:serviceaccount:orchestrator:orchestrator-tenants\" cannot create resource \"rolebindings\" in API group \"rbac.authorization.k8s.io\" in the namespace \"tenant-acme\"";
    let taken = "Secret 'tenant-redis' exists already and belongs to someone else; it was not touched. Delete it, if nobody needs it";
    let policy = "'patch deployments' of 'server' is refused: deployments.apps \"server\" is forbidden: ValidatingAdmissionPolicy 'team-label' with binding 'all' denied request: the label 'team' is missing";
    let invalid = "the API server does not accept 'patch services' of 'server': Service \"server\" is invalid: spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive";
    let bug = "a panic in the look at this object: index out of bounds";
    vec![
        case(
            "tenant-operator-denied",
            Site::bare(with_retry(degraded("Denied", denied))),
            Blocked,
            Some(("ServiceAccount", "orchestrator-tenants", "Denied")),
        ),
        case(
            "tenant-name-taken",
            Site::bare(degraded("ChildNameTaken", taken)).other("Secret", "tenant-redis"),
            Blocked,
            Some(("Secret", "tenant-redis", "ChildNameTaken")),
        ),
        case(
            "tenant-name-free-again",
            Site::bare(degraded("ChildNameTaken", taken)).known("Secret", "tenant-redis", false),
            Waiting,
            None,
        ),
        case(
            "tenant-child-denied",
            Site::bare(with_retry(degraded("AdmissionDenied", policy))),
            Blocked,
            Some(("ValidatingAdmissionPolicy", "team-label", "AdmissionDenied")),
        ),
        case(
            "tenant-child-invalid",
            Site::bare(status("Failed", "InvalidChild", invalid, ("", "", ""))),
            Blocked,
            Some(("Tenant", "acme", "InvalidChild")),
        ),
        case(
            "tenant-api-unavailable",
            Site::ready(with_retry(degraded(
                "ApiUnavailable",
                "the API server answered 503 to 'patch deployments' of 'server': etcdserver: leader changed",
            ))),
            Waiting,
            Some(("APIServer", "kubernetes", "ApiUnavailable")),
        ),
        case(
            "tenant-internal-error",
            Site::ready(with_retry(degraded("InternalError", bug))),
            Blocked,
            Some(("Operator", "orchestrator", "InternalError")),
        ),
    ]
}

fn others() -> Vec<Case> {
    let suspended = "server and Redis are stopped by 'spec.suspend'; their data stays";
    let suspend = json!({ "spec": { "suspend": true }, "metadata": { "generation": 1 } });
    let runs = json!({ "running": { "startedAt": at("10:00:09") } });
    let none = ("", "", "");
    let new =
        json!({ "observedGeneration": -1, "message": "waiting for the operator to look at it" });
    let mut fresh = Site::bare(json!({})).with(
        new.clone(),
        json!({ "metadata": { "creationTimestamp": at("10:05:09") } }),
    );
    fresh.0.namespace = None;
    fresh.0.policies = Some(Vec::new());
    let mut unseen = Site::bare(new);
    unseen.0.namespace = None;
    let mut down = Site::proven();
    if let Some(tenant) = &mut down.0.tenant {
        tenant.meta.generation = 2;
        tenant.changed = Some(down.0.now.clone());
    }
    let mut of_pod = Site::ready(degraded("CrashLoop", "server: Pod crashes")).server_crashes();
    of_pod.0.target = why::ObjectRef::namespaced("Pod", crate::tenant_build::PLACE, SERVER);
    let broken = json!({ "spec": { "deletion": { "policy": "Forget" } } });
    vec![
        case(
            "tenant-suspended",
            Site::bare(json!({})).with(
                status("Suspended", "Suspended", suspended, none),
                suspend.clone(),
            ),
            Suspended,
            Some(("Tenant", "acme", "Suspended")),
        ),
        case(
            "tenant-suspending",
            Site::bare(json!({}))
                .with(
                    status(
                        "Provisioning",
                        "Progressing",
                        "server: is being stopped; 1 Pod is left",
                        none,
                    ),
                    suspend,
                )
                .container("server", SERVER, "Running", runs, json!({})),
            Suspended,
            Some(("Tenant", "acme", "Suspended")),
        ),
        case("tenant-just-created", fresh, Waiting, None),
        case(
            "tenant-not-looked-at",
            unseen,
            Blocked,
            Some(("Operator", "orchestrator", "NotWatched")),
        ),
        case(
            "tenant-change-without-operator",
            down.lease(None, "10:02:30"),
            Blocked,
            Some(("Lease", "orchestrator-tenants", "OperatorDown")),
        ),
        case(
            "tenant-undecodable",
            Site::bare(json!({})).with(running(("", "", "")), broken),
            Blocked,
            Some(("Tenant", "acme", "Undecodable")),
        ),
        case(
            "tenant-of-a-pod",
            of_pod,
            Blocked,
            Some(("Pod", SERVER, "CrashLoop")),
        ),
        case(
            "tenant-few-rights",
            Site::bare(tenant_parts::of_server(
                degraded(
                    "CrashLoop",
                    "server: Pod 'server-7d9f-x2k9p': its program ends again and again: it exited with code 1 (Error)",
                ),
                "CrashLoop",
            ))
            .few_rights(),
            Blocked,
            Some(("Deployment", "server", "CrashLoop")),
        ),
        case(
            "tenant-ready-few-rights",
            Site::bare(with_isolation(
                running(("True", "Isolated", "4 connections were refused that must be, 3 passed that must")),
                json!({ "connections": tried(&[]) }),
            ))
            .few_rights(),
            Ready,
            None,
        ),
        case(
            "tenant-taken-few-rights",
            Site::bare(tenant_places::taken()).few_rights(),
            Blocked,
            Some(("Namespace", "tenant-acme", "NamespaceTaken")),
        ),
    ]
}
