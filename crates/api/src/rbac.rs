//! The permissions of operators, with their reasons. Each operator has one table, in its own directory.
//!
//! The RBAC rules of the chart are generated from these tables. Each operator has its own
//! ServiceAccount, so no operator gets a permission that only another operator needs.

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

/// Declares the permissions of an operator: for its Lease, and for each row of the table. A row has the scope,
/// the group, the resource, the names of objects if the permission is only for them, the verbs, and the reason.
macro_rules! permissions {
    (
        lease $lease:ident;
        $($scope:ident $group:expr, $resource:literal $([$($name:expr),+])? : $($verb:ident)+, $why:literal;)+
    ) => {
        &[
            $($crate::rbac::Permission {
                group: $group,
                resource: $resource,
                names: &[$($($name),+)?],
                verbs: &[$(stringify!($verb)),+],
                scope: $crate::rbac::Scope::$scope,
                why: $why,
            },)+
            // RBAC cannot restrict a creation to a name, because the name is not known before.
            $crate::rbac::Permission {
                group: "coordination.k8s.io",
                resource: "leases",
                names: &[],
                verbs: &["create"],
                scope: $crate::rbac::Scope::Own,
                why: "one of the replicas leads; a policy admits only the operator's own Lease",
            },
            $crate::rbac::Permission {
                group: "coordination.k8s.io",
                resource: "leases",
                names: &[$lease],
                verbs: &["get", "list", "update", "watch"],
                scope: $crate::rbac::Scope::Own,
                why: "one of the replicas leads",
            },
        ]
    };
}
pub(crate) use permissions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{apps, kinds, notebooks, tasks, tenants};

    fn all() -> impl Iterator<Item = &'static Permission> {
        kinds::OPERATORS
            .iter()
            .flat_map(|operator| operator.permissions)
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
        for operator in kinds::OPERATORS {
            for (index, one) in operator.permissions.iter().enumerate() {
                let mut others = operator.permissions.iter().skip(index + 1);
                assert!(others.all(|other| key(one) != key(other)), "{one:?}");
            }
        }
    }

    /// Logs may contain anything that a container prints. Two operators read those of their own containers, because the plan
    /// of an upgrade and the result of a notebook are too large for a termination message.
    #[test]
    fn only_two_operators_read_the_logs_of_pods() {
        for operator in kinds::OPERATORS {
            let mut all = operator.permissions.iter();
            let reads_logs = all.any(|one| one.resource == "pods/log");
            let may = [apps::OPERATOR.name, notebooks::OPERATOR.name].contains(&operator.name);
            assert_eq!(reads_logs, may, "{operator:?}");
        }
    }

    /// A role that is bound in the whole cluster includes all namespaces. RBAC cannot limit a creation to
    /// names, so only an admission policy would stand between the operator and all Secrets.
    #[test]
    fn no_operator_grants_permissions_outside_of_namespaces() {
        let granting = |one: &&Permission| one.group == "rbac.authorization.k8s.io";
        let granted: Vec<_> = all()
            .filter(granting)
            .filter(|one| one.resource != "rolebindings")
            .map(|one| (one.resource, one.names, one.verbs))
            .collect();
        let bind: (&str, &[&str], &[&str]) = ("clusterroles", &[tenants::OWNER_ROLE], &["bind"]);
        assert_eq!(granted, [bind]);
    }

    #[test]
    fn secrets_are_read_one_by_one_or_by_name_only() {
        let of_secrets = |operator: &kinds::OperatorRow| -> Vec<&'static Permission> {
            let all = operator.permissions.iter();
            all.filter(|row| row.resource == "secrets").collect()
        };
        for operator in [&tasks::OPERATOR, &apps::OPERATOR, &notebooks::OPERATOR] {
            let [row] = of_secrets(operator)[..] else {
                panic!("not one row");
            };
            assert_eq!(row.verbs, ["get"]);
        }
        for row in of_secrets(&tenants::OPERATOR) {
            assert!(row.verbs == ["create"] || !row.names.is_empty(), "{row:?}");
        }
    }
}
