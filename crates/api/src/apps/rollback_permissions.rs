//! The permissions that the apps operator needs for RollbackRequests, in addition to those for UpgradeRequests. No role
//! grants them before the kind is installed.

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

/// The permissions for RollbackRequests, beside those of UpgradeRequests.
pub const ROLLBACK_PERMISSIONS: &[Permission] = &[
    permission(
        Scope::Watched,
        GROUP,
        "rollbackrequests",
        &["create", "get", "list", "patch", "watch"],
        "carries out RollbackRequests, and creates one for a failed upgrade; never writes the spec of an existing one",
    ),
    permission(
        Scope::Watched,
        GROUP,
        "rollbackrequests/status",
        &["patch"],
        "stores the plan, the progress and the result of a rollback",
    ),
    permission(
        Scope::Watched,
        "",
        "persistentvolumeclaims",
        &["create", "delete", "patch"],
        "restores snapshots to temporary claims, and replaces the claims of an application; a policy admits the deletion of announced claims only",
    ),
    permission(
        Scope::Watched,
        "",
        "pods",
        &["create", "delete", "get"],
        "binds restored volumes, and checks that they are not empty; a policy admits no other Pod",
    ),
    permission(
        Scope::Cluster,
        "",
        "persistentvolumes",
        &["patch"],
        "retains the replaced volumes, and binds the restored ones; a policy admits only these fields",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume is never deleted by the operator: its reclaim policy decides.
    #[test]
    fn no_volume_and_no_snapshot_is_deleted() {
        for one in ROLLBACK_PERMISSIONS {
            assert!(!one.why.is_empty(), "{}", one.resource);
            let is_kept = ["persistentvolumes", "rollbackrequests"].contains(&one.resource);
            assert!(
                !is_kept || !one.verbs.contains(&"delete"),
                "{}",
                one.resource
            );
            assert_ne!(one.resource, "volumesnapshots");
        }
    }
}
