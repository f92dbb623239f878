//! The permissions of each operator, with their reasons: one table per operator.
//!
//! The RBAC rules of the chart are generated from these tables. Each operator has its own
//! ServiceAccount, so no operator gets a permission that only another operator needs.

use crate::GROUP;

mod tenants;

/// Scope of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The watched namespaces: all namespaces, or those that the installation lists.
    Watched,
    /// Cluster-scoped objects.
    Cluster,
    /// The namespace of the operator itself.
    Own,
}

/// The allowed verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural name, with the subresource after a slash.
    pub resource: &'static str,
    /// Names of the objects. If empty, the permission is for all objects.
    pub names: &'static [&'static str],
    /// Allowed verbs.
    pub verbs: &'static [&'static str],
    /// Scope of the permission.
    pub scope: Scope,
    /// Reason for the permission, for the administrator that has to approve it.
    pub why: &'static str,
}

/// Returns the permissions of the tasks operator.
#[must_use]
pub fn tasks() -> &'static [Permission] {
    TASKS
}

/// Returns the permissions of the tenants operator.
#[must_use]
pub fn tenants() -> &'static [Permission] {
    tenants::ALL
}

/// Creation of the Lease. RBAC cannot restrict it to a name, because a name is not known before
/// the creation.
const LEASE_CREATION: Permission = Permission {
    group: "coordination.k8s.io",
    resource: "leases",
    names: &[],
    verbs: &["create"],
    scope: Scope::Own,
    why: "one of the replicas leads; a policy admits only the operator's own Lease",
};

/// Returns the permission for the Lease with this name.
const fn lease(names: &'static [&'static str]) -> Permission {
    Permission {
        group: "coordination.k8s.io",
        resource: "leases",
        names,
        verbs: &["get", "list", "update", "watch"],
        scope: Scope::Own,
        why: "one of the replicas leads",
    }
}

const TASKS: &[Permission] = &[
    Permission {
        group: GROUP,
        resource: "taskruns",
        names: &[],
        verbs: &["delete", "get", "list", "patch", "watch"],
        scope: Scope::Watched,
        why: "reads the runs; patches their finalizer and annotations, never their spec; deletes finished ones where `deleteFinishedRunsAfter` is set",
    },
    Permission {
        group: GROUP,
        resource: "taskruns/status",
        names: &[],
        verbs: &["patch"],
        scope: Scope::Watched,
        why: "says how a run stands",
    },
    Permission {
        group: GROUP,
        resource: "docsruns",
        names: &[],
        verbs: &["delete", "get", "list", "patch", "watch"],
        scope: Scope::Watched,
        why: "as for TaskRuns",
    },
    Permission {
        group: GROUP,
        resource: "docsruns/status",
        names: &[],
        verbs: &["patch"],
        scope: Scope::Watched,
        why: "says how a run stands",
    },
    Permission {
        group: "",
        resource: "secrets",
        names: &[],
        verbs: &["get"],
        scope: Scope::Watched,
        why: "the Git credentials that a DocsRun names, to read the heads of its branches; never listed or watched",
    },
    Permission {
        group: GROUP,
        resource: "agents",
        names: &[],
        verbs: &["get", "list", "watch"],
        scope: Scope::Watched,
        why: "reads what runs are to run on",
    },
    Permission {
        group: GROUP,
        resource: "agents/status",
        names: &[],
        verbs: &["patch"],
        scope: Scope::Watched,
        why: "says whether an Agent can be used",
    },
    Permission {
        group: "batch",
        resource: "jobs",
        names: &[],
        verbs: &["create", "delete", "get", "list", "patch", "watch"],
        scope: Scope::Watched,
        why: "a run's attempts; the patch suspends and resumes one",
    },
    Permission {
        group: "",
        resource: "configmaps",
        names: &[],
        verbs: &["create", "delete", "get", "list", "watch"],
        scope: Scope::Watched,
        why: "a run's files; deleted some time after its end",
    },
    Permission {
        group: "",
        resource: "pods",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Watched,
        why: "the evidence of how an attempt ended, or why it does not start",
    },
    Permission {
        group: "",
        resource: "events",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Watched,
        why: "quota, admission and volumes tell only there why a Pod does not start",
    },
    Permission {
        group: "events.k8s.io",
        resource: "events",
        names: &[],
        verbs: &["create"],
        scope: Scope::Watched,
        why: "tells users of each transition",
    },
    Permission {
        group: "",
        resource: "serviceaccounts",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Watched,
        why: "whether the one that an Agent names exists",
    },
    Permission {
        group: "node.k8s.io",
        resource: "runtimeclasses",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Cluster,
        why: "whether the one that an Agent names exists",
    },
    Permission {
        group: "scheduling.k8s.io",
        resource: "priorityclasses",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Cluster,
        why: "whether the one that an Agent names exists",
    },
    Permission {
        group: "storage.k8s.io",
        resource: "storageclasses",
        names: &[],
        verbs: &["list", "watch"],
        scope: Scope::Cluster,
        why: "whether the one that an Agent's workspace names exists",
    },
    LEASE_CREATION,
    lease(&["orchestrator-tasks"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Permission> {
        tasks().iter().chain(tenants())
    }

    #[test]
    fn no_permission_is_a_wildcard_or_lets_us_take_more() {
        for permission in all() {
            let Permission {
                group,
                resource,
                names,
                verbs,
                scope: _,
                why,
            } = permission;
            for word in [group, resource].into_iter().chain(*verbs) {
                assert!(!word.contains('*'), "{permission:?}");
            }
            for verb in ["escalate", "impersonate", "deletecollection"] {
                assert!(!verbs.contains(&verb), "{permission:?}");
            }
            assert!(
                !verbs.contains(&"bind") || !names.is_empty(),
                "{permission:?}"
            );
            assert!(!resource.is_empty() && !verbs.is_empty() && !why.is_empty());
            assert!(verbs.is_sorted(), "{permission:?}");
        }
    }

    #[test]
    fn each_resource_has_one_row() {
        let key = |one: &Permission| (one.group, one.resource, one.names);
        for table in [tasks(), tenants()] {
            for (index, one) in table.iter().enumerate() {
                let mut others = table.iter().skip(index + 1);
                assert!(others.all(|other| key(one) != key(other)), "{one:?}");
            }
        }
    }

    /// Logs may contain anything that a container prints. The engine can read them, but no operator does yet.
    #[test]
    fn no_operator_reads_the_logs_of_pods() {
        for permission in all() {
            assert_ne!(permission.resource, "pods/log", "{permission:?}");
        }
    }

    #[test]
    fn secrets_are_read_one_by_one_or_by_name_only() {
        let verbs: Vec<_> = tasks()
            .iter()
            .filter(|row| row.resource == "secrets")
            .map(|row| row.verbs)
            .collect();
        assert_eq!(verbs, [&["get"]]);
        for row in tenants().iter().filter(|row| row.resource == "secrets") {
            assert!(row.verbs == ["create"] || !row.names.is_empty(), "{row:?}");
        }
    }
}
