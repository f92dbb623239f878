//! The permissions of the apps operator. Of a ManagedApp it writes the status, the finalizer and labels. It changes
//! applications for UpgradeRequests and RollbackRequests only, within the bounds of its admission policies.

use super::{
    GIT_REPOSITORY, HELM_RELEASE, KUSTOMIZATION, LEASE, MANAGED_APP, ROLLBACK_REQUEST,
    UPGRADE_REQUEST,
};
use crate::{
    GROUP,
    rbac::{Permission, permissions},
};

pub(super) const PERMISSIONS: &[Permission] = permissions! {
    lease LEASE;

    Watched GROUP, "managedapps": get list patch watch,
        "reads the ManagedApps; writes their finalizer and labels while a request is active or snapshots must be deleted, never their spec";
    Watched GROUP, "managedapps/status": patch,
        "reports versions, workloads, volumes and health of an application";
    Watched GROUP, "upgraderequests": get list patch watch,
        "carries out UpgradeRequests; writes their finalizer and labels, never their spec";
    Watched GROUP, "upgraderequests/status": patch,
        "stores the plan, the progress and the result of an upgrade";
    Watched GROUP, "rollbackrequests": create get list patch watch,
        "carries out RollbackRequests, and creates one for a failed upgrade; never writes the spec of an existing one";
    Watched GROUP, "rollbackrequests/status": patch,
        "stores the plan, the progress and the result of a rollback";
    Watched KUSTOMIZATION.group, "kustomizations": get list patch watch,
        "the state and the inventory of an application; suspends, locks and resumes it for a request; a policy admits only these fields";
    Watched HELM_RELEASE.group, "helmreleases": get list patch watch,
        "the state and the history of an application; suspends, locks and resumes it for a request; a policy admits only these fields";
    Watched GIT_REPOSITORY.group, "gitrepositories": list patch watch,
        "the branch of an application, and a request to fetch the commit; a policy admits only its annotation";
    Watched "", "secrets": get,
        "the release Secret of Helm that a HelmRelease names, for the list of its objects; never listed or watched, and not granted with `config.apps.helm.readReleaseSecrets: false`";
    Watched "apps", "daemonsets": list watch,
        "whether the workloads of an application are ready, and which volumes they mount";
    Watched "apps", "deployments": get list watch,
        "whether the workloads of an application are ready, which volumes they mount, and who scaled up one that an upgrade had stopped";
    Watched "apps", "deployments/scale": patch,
        "stops the workloads of an application, and restores their replica counts";
    Watched "apps", "statefulsets": get list watch,
        "whether the workloads of an application are ready, which volumes they mount, and who scaled up one that an upgrade had stopped";
    Watched "apps", "statefulsets/scale": patch,
        "stops the workloads of an application, and restores their replica counts";
    Watched "apps", "replicasets": list watch,
        "the Deployment that a Pod belongs to; only metadata is read";
    Watched "batch", "cronjobs": get list patch watch,
        "the volumes that a CronJob mounts; suspends the CronJobs of an application, and resumes them; a policy admits only this field";
    Watched "batch", "jobs": create delete get list watch,
        "the CronJob that a Pod belongs to; runs the step that changes the version in Git; a policy admits no other Job";
    Watched "", "pods": create delete get list watch,
        "why a workload is not ready, and which workloads mount a volume; binds restored volumes, and checks that they are not empty; a policy admits no other Pod";
    Watched "", "pods/log": get,
        "reads the plan of the step that changes the version in Git, which is too large for a termination message";
    Watched "", "persistentvolumeclaims": create delete get list patch watch,
        "the volumes of an application; restores snapshots to temporary claims, and replaces the claims of an application; a policy admits the deletion of announced claims only";
    Watched "snapshot.storage.k8s.io", "volumesnapshots": create delete get list watch,
        "takes snapshots of the volumes of an application, and deletes its own";
    Watched "", "events": list watch,
        "volumes and rejected Pods have their cause only there";
    Watched "events.k8s.io", "events": create,
        "reports each transition to users";
    Cluster "snapshot.storage.k8s.io", "volumesnapshotcontents": list watch,
        "whether a snapshot and its content reference each other";
    Cluster "snapshot.storage.k8s.io", "volumesnapshotclasses": list watch,
        "the class of a snapshot for the CSI driver of a volume";
    Cluster "", "persistentvolumes": get list patch watch,
        "the CSI driver of a volume, and whether a claim still has the volume of the plan; retains replaced volumes, and binds restored ones; a policy admits only these fields";
    Cluster "storage.k8s.io", "volumeattachments": get list watch,
        "whether a volume is detached from all nodes";
    Cluster "storage.k8s.io", "csidrivers": list watch,
        "whether a CSI driver attaches volumes to nodes";
    Cluster "apiextensions.k8s.io", "customresourcedefinitions" [MANAGED_APP.crd_name, ROLLBACK_REQUEST.crd_name, UPGRADE_REQUEST.crd_name]: get,
        "whether the CRDs exist and have all fields of this operator, for `/readyz`";
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator watches everything that an application consists of. A stolen token must not be able to change the Pod
    /// template of a workload, or the source of a volume.
    #[test]
    fn the_operator_writes_only_what_a_request_changes() {
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
                ("managedapps", vec!["patch"]),
                ("managedapps/status", vec!["patch"]),
                ("upgraderequests", vec!["patch"]),
                ("upgraderequests/status", vec!["patch"]),
                ("rollbackrequests", vec!["create", "patch"]),
                ("rollbackrequests/status", vec!["patch"]),
                ("kustomizations", vec!["patch"]),
                ("helmreleases", vec!["patch"]),
                ("gitrepositories", vec!["patch"]),
                ("deployments/scale", vec!["patch"]),
                ("statefulsets/scale", vec!["patch"]),
                ("cronjobs", vec!["patch"]),
                ("jobs", vec!["create", "delete"]),
                ("pods", vec!["create", "delete"]),
                ("persistentvolumeclaims", vec!["create", "delete", "patch"]),
                ("volumesnapshots", vec!["create", "delete"]),
                ("events", vec!["create"]),
                // Never deleted: the reclaim policy of a volume decides.
                ("persistentvolumes", vec!["patch"]),
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
