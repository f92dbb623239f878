//! Tenants and their namespaces: owned by others, adoptable, terminating. Also Tenants that are
//! being deleted.

use serde_json::{Value, json};
use why::explanation::State::*;

use crate::{
    Case,
    build::at,
    tenant_build::{PLACE, SERVER, Site, case, running, status},
};

const NONE: (&str, &str, &str) = ("", "", "");

pub(crate) fn cases() -> Vec<Case> {
    let mut all = places();
    all.extend(deletions());
    all
}

/// A status without a namespace.
fn pending(reason: &str, message: &str) -> Value {
    let mut all = status("Pending", reason, message, NONE);
    if let Some(fields) = all.as_object_mut() {
        fields.remove("namespace");
        fields.remove("namespaceUid");
    }
    all
}

pub(crate) fn taken() -> Value {
    pending(
        "NamespaceTaken",
        "namespace 'tenant-acme' exists and is not this Tenant's; it was not touched. Delete it, make this Tenant anew with another 'namespace', or let it take this one: kubectl annotate namespace tenant-acme orchestrator.io/adopt=acme",
    )
}

fn dying() -> Value {
    pending(
        "NamespaceTerminating",
        "namespace 'tenant-acme' is being deleted; another one is made when it is gone: Some resources are remaining: configmaps. has 1 resource instances Some content in the namespace has finalizers remaining: example.com/backup in 1 resource instances",
    )
}

const PODS: &str = "Some resources are remaining: pods. has 1 resource instances";
const LEFT: &[(&str, &str)] = &[
    (
        "NamespaceContentRemaining",
        "Some resources are remaining: configmaps. has 1 resource instances",
    ),
    (
        "NamespaceFinalizersRemaining",
        "Some content in the namespace has finalizers remaining: example.com/backup in 1 resource instances",
    ),
];

fn places() -> Vec<Case> {
    let other = json!({ "orchestrator.io/kind": "Tenant", "orchestrator.io/name": "beta",
        "orchestrator.io/uid": "beta-uid" });
    let is_of_beta = pending(
        "NamespaceTaken",
        "namespace 'tenant-acme' belongs to Tenant 'beta'; it was not touched. Delete that Tenant, or make this one anew with another 'namespace'",
    );
    vec![
        case(
            "tenant-namespace-taken",
            Site::bare(taken()).foreign(json!({ "team": "blue" }), json!({})),
            Blocked,
            Some(("Namespace", PLACE, "NamespaceTaken")),
        ),
        case(
            "tenant-namespace-of-another",
            Site::bare(is_of_beta).foreign(other, json!({})),
            Blocked,
            Some(("Namespace", PLACE, "NamespaceTaken")),
        ),
        case(
            "tenant-namespace-left-by-another",
            Site::bare(taken()).foreign(
                json!({}),
                json!({ "orchestrator.io/retained-from": "beta" }),
            ),
            Blocked,
            Some(("Namespace", PLACE, "NamespaceTaken")),
        ),
        case(
            "tenant-namespace-offered",
            Site::bare(taken()).foreign(json!({}), json!({ "orchestrator.io/adopt": "acme" })),
            Waiting,
            None,
        ),
        case(
            "tenant-namespace-terminating",
            Site::bare(dying()).dying("10:01:00", LEFT).left(
                "ConfigMap",
                "precious",
                "10:01:01",
                &["example.com/backup"],
            ),
            Blocked,
            Some(("ConfigMap", "precious", "Finalizer")),
        ),
        case(
            "tenant-namespace-gone",
            Site::ready(running(("True", "Isolated", "4 refused, 3 passed"))).no_place(),
            Waiting,
            None,
        ),
    ]
}

/// Creates a Tenant with a deletion request at this time.
fn deleting(status: Value, since: &str, more: Value) -> Site {
    let mut all = json!({ "metadata": { "deletionTimestamp": at(since),
        "deletionGracePeriodSeconds": 0 } });
    crate::build::merge(&mut all, more);
    Site::bare(json!({})).with(status, all)
}

fn going(message: &str) -> Value {
    let status = status("Terminating", "Deleting", message, NONE);
    crate::build::written(status, "10:05:07")
}

fn deletions() -> Vec<Case> {
    let blocked = status(
        "Terminating",
        "DeletionBlocked",
        "namespace 'tenant-acme' is not gone after 15m: Some resources are remaining: configmaps. has 1 resource instances Some content in the namespace has finalizers remaining: example.com/backup in 1 resource instances; it goes on by itself when that is removed. To let the Tenant go without waiting, and leave the namespace as it is: kubectl annotate tenant acme orchestrator.io/force-delete=true",
        NONE,
    );
    let stopped = |what: &str| {
        status(
            "Terminating",
            "DeletionBlocked",
            &format!(
                "namespace 'tenant-acme' is not gone after 15m: {what}; it goes on by itself when that is removed. To let the Tenant go without waiting, and leave the namespace as it is: kubectl annotate tenant acme orchestrator.io/force-delete=true"
            ),
            NONE,
        )
    };
    let told = going("namespace 'tenant-acme' is told to go");
    let removed = going("namespace 'tenant-acme' is being deleted");
    let kept = going(
        "namespace 'tenant-acme' stays, with everything that runs and is stored in it, and with its quota and network policies; its owners lose their permissions",
    );
    let discovery = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1";
    let retain = json!({ "spec": { "deletion": { "policy": "Retain" } } });
    let held = json!({ "metadata": { "finalizers": ["billing.example.com/invoice"] } });
    let stuck = |site: Site| {
        site.container(
            "server",
            SERVER,
            "Running",
            json!({ "running": { "startedAt": at("09:00:09") } }),
            json!({}),
        )
        .doomed("09:45:01", "09:45:31")
        .lost_node("09:44:10")
    };
    let early = |site: Site| site.early();
    vec![
        case(
            "tenant-deleting",
            deleting(told, "10:05:05", json!({})),
            Deleting,
            None,
        ),
        case(
            "tenant-deleting-its-pods",
            deleting(removed.clone(), "10:05:00", json!({}))
                .dying("10:05:01", &[("NamespaceContentRemaining", PODS)])
                .container(
                    "server",
                    SERVER,
                    "Running",
                    json!({ "running": { "startedAt": at("10:00:09") } }),
                    json!({}),
                )
                .doomed("10:05:02", "10:05:32"),
            Deleting,
            None,
        ),
        case(
            "tenant-deletion-blocked",
            early(
                deleting(blocked.clone(), "09:45:00", json!({}))
                    .dying("09:45:01", LEFT)
                    .left("ConfigMap", "precious", "09:45:02", &["example.com/backup"])
                    .left("Secret", "spare", "09:45:02", &["example.com/backup"]),
            ),
            Deleting,
            Some(("ConfigMap", "precious", "Finalizer")),
        ),
        case(
            "tenant-deletion-blocked-by-what-may-not-be-read",
            early(deleting(blocked, "09:45:00", json!({})).dying("09:45:01", LEFT)),
            Deleting,
            Some(("Namespace", PLACE, "Deleting")),
        ),
        case(
            "tenant-deletion-blocked-by-node",
            early(stuck(
                deleting(stopped(PODS), "09:45:00", json!({}))
                    .dying("09:45:01", &[("NamespaceContentRemaining", PODS)]),
            )),
            Deleting,
            Some(("Node", "node-1", "NodeLost")),
        ),
        case(
            "tenant-deletion-blocked-by-api",
            early(deleting(stopped(discovery), "09:45:00", json!({})).dying(
                "09:45:01",
                &[("NamespaceDeletionDiscoveryFailure", discovery)],
            )),
            Deleting,
            Some(("APIService", "v1beta1.metrics.k8s.io", "DiscoveryFailed")),
        ),
        case(
            "tenant-deletion-held-by-others",
            deleting(going("nothing is left to be taken away"), "10:03:00", held).no_place(),
            Deleting,
            Some(("Tenant", "acme", "Finalizer")),
        ),
        case(
            "tenant-deletion-without-operator",
            deleting(
                running(("True", "Isolated", "4 refused, 3 passed")),
                "10:03:00",
                json!({}),
            )
            .lease(Some("orchestrator-tenants-5c7b-fghij"), "10:02:20"),
            Deleting,
            Some(("Lease", "orchestrator-tenants", "OperatorDown")),
        ),
        case(
            "tenant-retaining",
            deleting(kept, "10:05:05", retain),
            Deleting,
            None,
        ),
        case(
            "tenant-released",
            deleting(
                going("nothing is left to be taken away"),
                "10:05:00",
                json!({}),
            )
            .no_place(),
            Deleting,
            None,
        ),
    ]
}

impl Site {
    /// Asks the last Pod to stop at `asked`, with a grace period until `end`.
    fn doomed(mut self, asked: &str, end: &str) -> Self {
        if let Some(pod) = self.0.pods.last_mut() {
            let time = |clock: &str| {
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(clock).parse().unwrap())
            };
            pod.meta.deleting = Some(time(asked));
            pod.meta.stop_by = Some(time(end));
        }
        self
    }

    /// Sets an early creation time, and a status from 10:00.
    fn early(mut self) -> Self {
        let time = |clock: &str| {
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(clock).parse().unwrap())
        };
        if let Some(tenant) = &mut self.0.tenant {
            tenant.meta.created = Some(time("08:00:00"));
            tenant.changed = Some(time("08:00:00"));
            tenant.status.progress.last_updated = Some(time("10:00:00"));
        }
        for pod in &mut self.0.pods {
            pod.meta.created = Some(time("09:00:00"));
        }
        self
    }
}

/// An annotation offers nothing to a Tenant that requests the operator's own namespace.
#[test]
fn the_namespace_of_the_operator_is_not_offered() {
    let adopt = json!({ "orchestrator.io/adopt": "acme" });
    let mut site = Site::bare(taken()).foreign(json!({}), adopt);
    for lease in site.0.leases.iter_mut().flat_map(|all| all.iter_mut()) {
        PLACE.clone_into(&mut lease.namespace);
    }
    let found = why::explain(&site.0);
    let blocker = found.blocker.as_ref().unwrap();
    assert_eq!(found.state, Blocked, "{found:#?}");
    assert!(
        blocker.message.contains("in which the operator runs"),
        "{found:#?}"
    );
    let mut commands = found.next_steps.iter();
    assert!(!commands.any(|one| one.command.contains("annotate")));
}
