//! Compares the permissions of an operator with those that this release declares for it.

use std::collections::BTreeSet;

use api::{
    crd::first_parts,
    kinds::OperatorRow,
    rbac::{Permission, Scope},
};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{Finding, Verdict, finding, of, of_difference, unread};
use crate::{
    commands::check::view::{DeploymentView, Roles, State},
    text,
};

/// Permissions that a value of the chart removes: the operator, the resource and the value.
const OPTIONAL: &[(&str, &str, &str)] = &[(
    "apps",
    "secrets",
    "config.apps.helm.readReleaseSecrets=false",
)];

/// Compares the roles of an operator with its table of permissions. Returns `None` if it has no
/// Deployment, because another check reports that.
pub(super) fn check(state: &State, operator: &OperatorRow) -> Option<Finding> {
    let check = format!("permissions of operator {}", operator.name);
    // Without the Deployments, the ServiceAccounts are not known.
    let roles = match (&state.roles, &state.deployments) {
        (Ok(roles), Ok(_)) => roles,
        (Err(why), _) | (_, Err(why)) => return Some(unread(check, why)),
    };
    let deployment = of(state, operator)?;
    let account = Account::new(roles, deployment);
    let (verdict, rest) = of_difference(state, operator);
    if !account.is_bound() {
        let detail = format!(
            "no binding of the chart gives ServiceAccount '{}' a role; {rest}",
            account.name
        );
        return Some(finding(check, verdict, detail));
    }
    let value_of = |permission: &Permission| {
        let mut all = OPTIONAL.iter();
        let found =
            all.find(|(of, resource, _)| *of == operator.name && *resource == permission.resource);
        found.map(|(_, _, value)| *value)
    };
    let (mut missing, mut removed) = (Vec::new(), BTreeSet::new());
    for permission in operator.permissions {
        let lacking = account.lacking(permission);
        match value_of(permission) {
            Some(value) if !lacking.is_empty() => {
                removed.insert(value);
            }
            Some(_) | None => missing.extend(lacking),
        }
    }
    if !missing.is_empty() {
        let detail = format!(
            "the roles of ServiceAccount '{}' lack {}; {rest}",
            account.name,
            first_parts(&missing)
        );
        return Some(finding(check, verdict, detail));
    }
    let places = match account.watched.len() {
        0 => String::new(),
        number => format!(", in {}", text::count(number, "namespace")),
    };
    let removed: Vec<String> = removed
        .into_iter()
        .map(|value| format!("; without the optional ones ('{value}')"))
        .collect();
    let detail = format!("all that it needs{places}{}", removed.concat());
    Some(finding(check, Verdict::Ok, detail))
}

/// The ServiceAccount of an operator, and its roles.
struct Account<'a> {
    /// Namespace and name.
    name: String,
    /// The namespace of the operator.
    home: &'a str,
    roles: &'a Roles,
    /// The namespaces of `watchNamespaces`. Empty: all namespaces.
    watched: BTreeSet<&'a str>,
}

impl<'a> Account<'a> {
    fn new(roles: &'a Roles, deployment: &'a DeploymentView) -> Self {
        // The chart gives the Role in a watched namespace the name of the account. One of the two
        // objects may be missing.
        let own = deployment.account.as_str();
        let of_roles = roles.roles.iter().filter(|role| role.name == own);
        let of_roles = of_roles.filter_map(|role| role.namespace.as_deref());
        let bindings = roles.bindings.iter();
        let bindings = bindings.filter(|one| one.role == own && !one.is_cluster_role);
        let of_bindings = bindings.filter_map(|one| one.namespace.as_deref());
        Self {
            name: format!("{}/{own}", deployment.namespace),
            home: &deployment.namespace,
            roles,
            watched: of_roles.chain(of_bindings).collect(),
        }
    }

    fn is_bound(&self) -> bool {
        let mut all = self.roles.bindings.iter();
        all.any(|one| one.accounts.contains(&self.name))
    }

    /// Returns the rules that apply in a namespace, or in the whole cluster.
    fn rules(&self, namespace: Option<&str>) -> impl Iterator<Item = &'a PolicyRule> {
        let bindings = self.roles.bindings.iter();
        let bindings = bindings.filter(move |one| {
            let place = one.namespace.as_deref();
            one.accounts.contains(&self.name) && (place.is_none() || place == namespace)
        });
        bindings.flat_map(move |binding| {
            let place = match binding.is_cluster_role {
                true => None,
                false => binding.namespace.as_ref(),
            };
            let roles = self.roles.roles.iter();
            let roles = roles
                .filter(move |role| role.name == binding.role && role.namespace.as_ref() == place);
            roles.flat_map(|role| role.rules.iter())
        })
    }

    /// Returns the parts of a permission that the account does not have, one for each verb.
    fn lacking(&self, permission: &Permission) -> Vec<String> {
        let places: Vec<Option<&str>> = match permission.scope {
            Scope::Cluster => vec![None],
            Scope::Own => vec![Some(self.home)],
            Scope::Watched if self.watched.is_empty() => vec![None],
            Scope::Watched => self.watched.iter().map(|place| Some(*place)).collect(),
        };
        let mut lacking = Vec::new();
        for place in places {
            for verb in permission.verbs {
                if !self.rules(place).any(|rule| allows(rule, permission, verb)) {
                    lacking.push(described(permission, verb, place));
                }
            }
        }
        lacking
    }
}

fn allows(rule: &PolicyRule, permission: &Permission, verb: &str) -> bool {
    let has = |list: Option<&Vec<String>>, word: &str| {
        list.is_some_and(|all| all.iter().any(|one| one == word || one == "*"))
    };
    let names = rule.resource_names.as_deref().unwrap_or_default();
    let is_named = |name: &&str| names.iter().any(|known| known == name);
    let has_names =
        names.is_empty() || (!permission.names.is_empty() && permission.names.iter().all(is_named));
    has(rule.api_groups.as_ref(), permission.group)
        && has(rule.resources.as_ref(), permission.resource)
        && has(Some(&rule.verbs), verb)
        && has_names
}

/// Formats `create jobs.batch`, with the namespace if it is one of several.
fn described(permission: &Permission, verb: &str, place: Option<&str>) -> String {
    let (resource, part) = permission
        .resource
        .split_once('/')
        .map_or((permission.resource, String::new()), |(resource, part)| {
            (resource, format!("/{part}"))
        });
    let group = match permission.group {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let place = place.map_or_else(String::new, |place| format!(" in namespace '{place}'"));
    format!("{verb} {resource}{group}{part}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: Permission = Permission {
        group: "batch",
        resource: "jobs",
        names: &[],
        verbs: &["create", "get"],
        scope: Scope::Watched,
        why: "",
    };

    fn rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> PolicyRule {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(owned(&[group])),
            resources: Some(owned(&[resource])),
            verbs: owned(verbs),
            resource_names: (!names.is_empty()).then(|| owned(names)),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let lease = Permission {
            group: "coordination.k8s.io",
            resource: "leases",
            names: &["orchestrator-tasks"],
            ..JOBS
        };
        let cases = [
            (&JOBS, rule("batch", "jobs", &["create"], &[]), true),
            (&JOBS, rule("batch", "jobs", &["get"], &[]), false),
            (&JOBS, rule("batch", "jobs/status", &["create"], &[]), false),
            (&JOBS, rule("", "jobs", &["create"], &[]), false),
            (&JOBS, rule("*", "*", &["*"], &[]), true),
            (&JOBS, rule("batch", "jobs", &["create"], &["one"]), false),
            (
                &lease,
                rule(
                    "coordination.k8s.io",
                    "leases",
                    &["create"],
                    &["orchestrator-tasks"],
                ),
                true,
            ),
            (
                &lease,
                rule("coordination.k8s.io", "leases", &["create"], &["other"]),
                false,
            ),
        ];
        for (permission, rule, expected) in cases {
            let found = allows(&rule, permission, "create");
            assert_eq!(found, expected, "{permission:?} {rule:?}");
        }
    }

    #[test]
    fn a_permission_is_named_as_in_a_role() {
        let status = Permission {
            group: "orchestrator.io",
            resource: "taskruns/status",
            ..JOBS
        };
        assert_eq!(described(&JOBS, "create", None), "create jobs.batch");
        assert_eq!(
            described(&status, "patch", Some("a")),
            "patch taskruns.orchestrator.io/status in namespace 'a'"
        );
    }
}
