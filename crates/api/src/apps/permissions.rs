//! The permissions of the apps operator. It reads, and writes nothing but the status of its own kind, Events
//! and its Lease.

use super::{HELM_RELEASE, KUSTOMIZATION, LEASE, MANAGED_APP};
use crate::{
    GROUP,
    rbac::{Permission, permissions},
};

pub(super) const PERMISSIONS: &[Permission] = permissions! {
    lease LEASE;

    Watched GROUP, "managedapps": get list watch,
        "reads the ManagedApps; never writes their spec or their metadata";
    Watched GROUP, "managedapps/status": patch,
        "reports versions, workloads, volumes and health of an application";
    Watched KUSTOMIZATION.group, "kustomizations": list watch,
        "the inventory, the revision and the state of the Kustomization that a ManagedApp references";
    Watched HELM_RELEASE.group, "helmreleases": list watch,
        "the history, the inventory and the state of the HelmRelease of an application";
    Watched "", "secrets": get,
        "the release Secret of Helm that a HelmRelease names, for the list of its objects; never listed or watched, and not granted with `config.apps.helm.readReleaseSecrets: false`";
    Watched "apps", "daemonsets": list watch,
        "whether the workloads of an application are ready, and which volumes they mount";
    Watched "apps", "deployments": list watch,
        "whether the workloads of an application are ready, and which volumes they mount";
    Watched "apps", "statefulsets": list watch,
        "whether the workloads of an application are ready, and which volumes they mount";
    Watched "apps", "replicasets": list watch,
        "the Deployment that a Pod belongs to; only metadata is read";
    Watched "batch", "cronjobs": list watch,
        "the volumes that a CronJob of an application mounts";
    Watched "batch", "jobs": list watch,
        "the CronJob that a Pod belongs to; only metadata is read";
    Watched "", "pods": list watch,
        "why a workload is not ready, and which workloads mount a volume of an application";
    Watched "", "persistentvolumeclaims": list watch,
        "the volumes of an application";
    Watched "", "events": list watch,
        "volumes and rejected Pods have their cause only there";
    Watched "events.k8s.io", "events": create,
        "reports each transition to users";
    Cluster "apiextensions.k8s.io", "customresourcedefinitions" [MANAGED_APP.crd_name]: get,
        "whether the CRD exists and has all fields of this operator, for `/readyz`";
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator watches everything that an application consists of. A stolen token must not be able to
    /// change any of it.
    #[test]
    fn the_operator_writes_nothing_but_its_status_events_and_its_lease() {
        let reads = ["get", "list", "watch"];
        let writes: Vec<(&str, Vec<&str>)> = PERMISSIONS
            .iter()
            .map(|one| {
                let verbs = one.verbs.iter().copied();
                let written = verbs.filter(|verb| !reads.contains(verb)).collect();
                (one.resource, written)
            })
            .filter(|(_, verbs): &(&str, Vec<&str>)| !verbs.is_empty())
            .collect();
        assert_eq!(
            writes,
            [
                ("managedapps/status", vec!["patch"]),
                ("events", vec!["create"]),
                ("leases", vec!["create"]),
                ("leases", vec!["update"]),
            ]
        );
    }

    /// A list of Secrets would contain the values of all releases, and the passwords of others.
    #[test]
    fn release_secrets_are_read_one_by_one() {
        let of_secrets: Vec<&Permission> = PERMISSIONS
            .iter()
            .filter(|one| one.resource == "secrets")
            .collect();
        assert_eq!(of_secrets.len(), 1);
        assert_eq!(of_secrets[0].verbs, ["get"]);
    }
}
