//! The permissions that the apps operator needs for UpgradeRequests, in addition to those for ManagedApps. No role
//! grants them before the kind is installed.

use super::{GIT_REPOSITORY, HELM_RELEASE, KUSTOMIZATION};
use crate::{
    GROUP,
    rbac::{Permission, Scope},
};

const fn permission(
    scope: Scope,
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Permission {
    Permission {
        group,
        resource,
        names: &[],
        verbs,
        scope,
        why,
    }
}

/// The permissions for UpgradeRequests, beside those of a ManagedApp.
pub const UPGRADE_PERMISSIONS: &[Permission] = &[
    permission(
        Scope::Watched,
        GROUP,
        "upgraderequests",
        &["get", "list", "patch", "watch"],
        "carries out UpgradeRequests; writes their finalizer and labels, never their spec",
    ),
    permission(
        Scope::Watched,
        GROUP,
        "upgraderequests/status",
        &["patch"],
        "stores the plan, the progress and the result of an upgrade",
    ),
    permission(
        Scope::Watched,
        KUSTOMIZATION.group,
        "kustomizations",
        &["get", "patch"],
        "suspends, locks and resumes the Kustomization of an application; a policy admits only these fields",
    ),
    permission(
        Scope::Watched,
        HELM_RELEASE.group,
        "helmreleases",
        &["get", "patch"],
        "suspends, locks and resumes the HelmRelease of an application; a policy admits only these fields",
    ),
    permission(
        Scope::Watched,
        GIT_REPOSITORY.group,
        "gitrepositories",
        &["list", "patch", "watch"],
        "the branch of an application, and a request to fetch the commit; a policy admits only its annotation",
    ),
    permission(
        Scope::Watched,
        "batch",
        "jobs",
        &["create", "delete", "get", "list", "watch"],
        "runs the step that changes the version in Git; a policy admits no other Job",
    ),
    permission(
        Scope::Watched,
        "",
        "pods/log",
        &["get"],
        "reads the plan of the step, which is too large for a termination message",
    ),
    permission(
        Scope::Watched,
        "",
        "persistentvolumeclaims",
        &["get"],
        "whether a claim was replaced during an upgrade",
    ),
    permission(
        Scope::Watched,
        "apps",
        "deployments/scale",
        &["patch"],
        "stops the workloads of an application, and restores their replica counts",
    ),
    permission(
        Scope::Watched,
        "apps",
        "statefulsets/scale",
        &["patch"],
        "stops the workloads of an application, and restores their replica counts",
    ),
    permission(
        Scope::Watched,
        "apps",
        "deployments",
        &["get"],
        "reads who scaled up a workload that an upgrade had stopped",
    ),
    permission(
        Scope::Watched,
        "apps",
        "statefulsets",
        &["get"],
        "reads who scaled up a workload that an upgrade had stopped",
    ),
    permission(
        Scope::Watched,
        "batch",
        "cronjobs",
        &["get", "patch"],
        "suspends the CronJobs of an application, and resumes them; a policy admits only this field",
    ),
    permission(
        Scope::Watched,
        "snapshot.storage.k8s.io",
        "volumesnapshots",
        &["create", "delete", "get", "list", "watch"],
        "takes snapshots of the volumes of an application, and deletes its own",
    ),
    permission(
        Scope::Cluster,
        "snapshot.storage.k8s.io",
        "volumesnapshotcontents",
        &["list", "watch"],
        "whether a snapshot and its content reference each other",
    ),
    permission(
        Scope::Cluster,
        "snapshot.storage.k8s.io",
        "volumesnapshotclasses",
        &["list", "watch"],
        "the class of a snapshot for the CSI driver of a volume",
    ),
    permission(
        Scope::Cluster,
        "",
        "persistentvolumes",
        &["get", "list", "watch"],
        "the CSI driver of a volume, and whether a claim still has the volume of the plan",
    ),
    permission(
        Scope::Cluster,
        "storage.k8s.io",
        "volumeattachments",
        &["get", "list", "watch"],
        "whether a volume is detached from all nodes",
    ),
    permission(
        Scope::Cluster,
        "storage.k8s.io",
        "csidrivers",
        &["list", "watch"],
        "whether a CSI driver attaches volumes to nodes",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A stolen token must not be able to change the Pod template of a workload, or to delete the data of an application.
    #[test]
    fn workloads_are_only_scaled_and_volumes_are_only_read() {
        let reads = ["get", "list", "watch"];
        let written: Vec<&str> = UPGRADE_PERMISSIONS
            .iter()
            .filter(|one| one.verbs.iter().any(|verb| !reads.contains(verb)))
            .map(|one| one.resource)
            .collect();
        assert_eq!(
            written,
            [
                "upgraderequests",
                "upgraderequests/status",
                "kustomizations",
                "helmreleases",
                "gitrepositories",
                "jobs",
                "deployments/scale",
                "statefulsets/scale",
                "cronjobs",
                "volumesnapshots",
            ]
        );
    }

    #[test]
    fn each_permission_has_a_reason() {
        for one in UPGRADE_PERMISSIONS {
            assert!(!one.why.is_empty(), "{}", one.resource);
        }
    }
}
