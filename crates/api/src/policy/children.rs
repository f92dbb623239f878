//! Admission policies for children: only operators may create them, because labels and owner
//! references alone prove nothing.
//!
//! An operator finds its children by the labels [`names::KIND`] and [`names::UID`], and trusts
//! owner references to its kinds. Any author may write both. These policies admit them from the
//! operators, and from the controllers that create Pods for the objects of the operators.
//!
//! # Guarantees
//! - Requests that do not change these labels and add no such owner reference are not evaluated. So
//!   the kubelet, the scheduler and the garbage collector, which removes owner references, are
//!   never rejected.
//! - Each operator checks its own kinds, so two installations with one operator each do not reject each
//!   other.
//!
//! # Caveats
//! A tool that restores Jobs, Pods or ConfigMaps with their labels must be one of the
//! [`LABEL_WRITERS`].

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, NamedRuleWithOperations, ValidatingAdmissionPolicy,
};

use super::{LABEL_WRITERS, conditional_policy, denial, owned_list, requests};
use crate::{
    GROUP, apps,
    kinds::{OPERATORS, OperatorRow},
    names, notebooks, tasks, tenants,
};

/// User of all controllers, in a cluster without a ServiceAccount for each controller.
const ALL_CONTROLLERS: &str = "system:kube-controller-manager";

const CREATE_UPDATE: &[&str] = &["CREATE", "UPDATE"];

/// A controller of the cluster that creates objects from a template of an operator.
struct Controller {
    /// Name of its ServiceAccount in `kube-system`.
    account: &'static str,
    /// Objects that it creates.
    creates: &'static str,
    /// Kind and API group of the controller reference that it sets.
    kind: &'static str,
    group: &'static str,
}

const JOBS: &[Controller] = &[Controller {
    account: "job-controller",
    creates: "pods",
    kind: "Job",
    group: "batch",
}];

const WORKLOADS: &[Controller] = &[
    Controller {
        account: "replicaset-controller",
        creates: "pods",
        kind: "ReplicaSet",
        group: "apps",
    },
    Controller {
        account: "statefulset-controller",
        creates: "pods",
        kind: "StatefulSet",
        group: "apps",
    },
    Controller {
        account: "deployment-controller",
        creates: "replicasets",
        kind: "Deployment",
        group: "apps",
    },
];

/// Returns the policies for labels and owner references of TaskRuns and DocsRuns.
pub(super) fn of_tasks() -> Vec<ValidatingAdmissionPolicy> {
    let templates = vec![requests("batch", &["v1"], &["jobs"], CREATE_UPDATE)];
    vec![
        labels(&tasks::OPERATOR, JOBS),
        template_labels(&tasks::OPERATOR, templates, JOBS),
    ]
}

/// Returns the policies for labels and owner references of Tenants.
///
/// The Pods of a Tenant come from Deployments and StatefulSets, so the policies check the templates
/// of these.
pub(super) fn of_tenants() -> Vec<ValidatingAdmissionPolicy> {
    let workloads = ["deployments", "replicasets", "statefulsets"];
    let templates = vec![requests("apps", &["v1"], &workloads, CREATE_UPDATE)];
    vec![
        labels(&tenants::OPERATOR, WORKLOADS),
        template_labels(&tenants::OPERATOR, templates, WORKLOADS),
    ]
}

/// Returns the policies for labels and owner references of UpgradeRequests and RollbackRequests, which have Jobs.
pub(super) fn of_apps() -> Vec<ValidatingAdmissionPolicy> {
    let templates = vec![requests("batch", &["v1"], &["jobs"], CREATE_UPDATE)];
    vec![
        labels(&apps::OPERATOR, JOBS),
        template_labels(&apps::OPERATOR, templates, JOBS),
    ]
}

/// Returns the policies for labels and owner references of NotebookValidationJobs.
pub(super) fn of_notebooks() -> Vec<ValidatingAdmissionPolicy> {
    let templates = vec![requests("batch", &["v1"], &["jobs"], CREATE_UPDATE)];
    vec![
        labels(&notebooks::OPERATOR, JOBS),
        template_labels(&notebooks::OPERATOR, templates, JOBS),
    ]
}

fn labels(operator: &OperatorRow, controllers: &[Controller]) -> ValidatingAdmissionPolicy {
    let at = |object: &str| format!("{object}.metadata");
    let rules = vec![
        requests("", &["v1"], &["configmaps", "pods"], CREATE_UPDATE),
        requests("batch", &["v1"], &["jobs"], CREATE_UPDATE),
    ];
    let when = format!("{} || {}", relabels(operator, at), adds_owner(operator));
    guard(
        "labels",
        rules,
        when,
        "metadata.labels, metadata.ownerReferences",
        controllers,
    )
}

/// Checks the labels of templates. A controller copies them to the Pods, regardless of the
/// template's author.
fn template_labels(
    operator: &OperatorRow,
    rules: Vec<NamedRuleWithOperations>,
    controllers: &[Controller],
) -> ValidatingAdmissionPolicy {
    let at = |object: &str| format!("{object}.spec.template.?metadata");
    let when = relabels(operator, at);
    let field = "spec.template.metadata.labels";
    guard("template-labels", rules, when, field, controllers)
}

fn guard(
    name: &str,
    rules: Vec<NamedRuleWithOperations>,
    when: String,
    field: &str,
    controllers: &[Controller],
) -> ValidatingAdmissionPolicy {
    let condition = MatchCondition {
        name: "claims-an-owner".to_owned(),
        expression: when,
    };
    let may: Vec<String> = controllers.iter().map(created_by).collect();
    let variables = [
        // The chart sets this list to the operator and the users in its value
        // 'labelWriters'.
        (LABEL_WRITERS, owned_list(&[])),
        ("byController", may.join(" || ")),
    ];
    let marks = format!(
        "only operators set the labels '{}' and '{}' and owner references to kinds of '{GROUP}'",
        names::KIND,
        names::UID
    );
    let advice = "Leave them out. For a controller that copies labels, add its user to the chart's value 'admissionPolicies.labelWriters'";
    conditional_policy(
        name,
        rules,
        Some(vec![condition]),
        &variables,
        vec![denial(
            format!(
                "request.userInfo.username in variables.{LABEL_WRITERS} || variables.byController"
            ),
            &format!("{field}: {marks}. {advice}"),
            &format!(
                "\"{field}: {marks}, and '\" + request.userInfo.username + \"' is none. {advice}\""
            ),
        )],
    )
}

/// Returns an expression that checks whether this controller creates the object for an owner of its
/// own kind.
///
/// Users cannot choose the controller reference of such an object. In some clusters all controllers
/// share one user. Without this check, any controller there could create Pods with our labels.
fn created_by(controller: &Controller) -> String {
    let Controller {
        account,
        creates,
        kind,
        group,
    } = controller;
    format!(
        "(request.operation == 'CREATE' && request.resource.resource == '{creates}' \
         && request.userInfo.username in ['system:serviceaccount:kube-system:{account}', '{ALL_CONTROLLERS}'] \
         && object.metadata.?ownerReferences.orValue([]).exists(one, one.?controller.orValue(false) && one.kind == '{kind}' && one.apiVersion.startsWith('{group}/')))"
    )
}

/// Returns an expression that checks whether the request changes our labels. `at` is the path to
/// the metadata of an object.
fn relabels(operator: &OperatorRow, at: impl Fn(&str) -> String) -> String {
    let new = |key: &str| format!("{}.?labels[?'{key}'].orValue('')", at("object"));
    let old = |key: &str| {
        format!(
            "(oldObject == null ? '' : {}.?labels[?'{key}'].orValue(''))",
            at("oldObject")
        )
    };
    let (kind, uid) = (names::KIND, names::UID);
    format!(
        "(({} != {} || {} != {}) && ({} || {}))",
        old(kind),
        new(kind),
        old(uid),
        new(uid),
        labelled(operator, &new(kind), &new(uid)),
        labelled(operator, &old(kind), &old(uid)),
    )
}

/// Returns an expression that checks whether labels with these values claim an owner of the operator's
/// kinds. The tasks operator also checks labels without a kind.
fn labelled(operator: &OperatorRow, kind: &str, uid: &str) -> String {
    let is_of_operator = is_of(operator, kind);
    if *operator == tasks::OPERATOR {
        format!("({is_of_operator} && {kind} + {uid} != '')")
    } else {
        is_of_operator
    }
}

/// Returns an expression that checks whether a kind is one of the operator's. A kind that no operator has
/// counts as one of the tasks operator's, so that exactly one operator checks each kind.
fn is_of(operator: &OperatorRow, kind: &str) -> String {
    let is_default = *operator == tasks::OPERATOR;
    let (sign, join) = if is_default {
        ("!=", " && ")
    } else {
        ("==", " || ")
    };
    let operators = OPERATORS
        .iter()
        .filter(|other| (**other == operator) != is_default);
    let checks: Vec<String> = operators
        .flat_map(|other| other.kinds)
        .map(|row| format!("{kind} {sign} '{}'", row.name()))
        .collect();
    match &checks[..] {
        [one] => one.clone(),
        all => format!("({})", all.join(join)),
    }
}

/// Returns an expression that checks whether the request adds an owner reference to the operator's kinds,
/// or makes one of them the controller reference.
///
/// The garbage collector changes `blockOwnerDeletion`, so that field is not compared.
fn adds_owner(operator: &OperatorRow) -> String {
    let kind = is_of(operator, "one.kind");
    format!(
        "object.metadata.?ownerReferences.orValue([]).exists(one, one.apiVersion.startsWith('{GROUP}/') && {kind} \
         && (oldObject == null || !oldObject.metadata.?ownerReferences.orValue([]).exists(old, old.uid == one.uid \
         && old.apiVersion == one.apiVersion && old.kind == one.kind && old.name == one.name \
         && old.?controller.orValue(false) == one.?controller.orValue(false))))"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_all() -> impl Iterator<Item = ValidatingAdmissionPolicy> {
        let all = [of_tasks(), of_tenants(), of_apps(), of_notebooks()];
        all.into_iter().flat_map(Vec::into_iter)
    }

    /// Without a condition, the policies would be evaluated for every Pod of the cluster.
    #[test]
    fn only_requests_that_claim_an_owner_are_judged() {
        for policy in of_all() {
            let spec = policy.spec.unwrap();
            let conditions = spec.match_conditions.unwrap();
            assert_eq!(conditions.len(), 1);
            assert!(conditions[0].expression.contains(names::UID));
            assert!(conditions[0].expression.contains(names::KIND));
        }
    }

    /// A policy that the chart did not fill in admits no user by name.
    #[test]
    fn without_an_installation_nobody_writes_labels() {
        for policy in of_all() {
            let variables = policy.spec.unwrap().variables.unwrap();
            let writers = variables.iter().find(|one| one.name == LABEL_WRITERS);
            assert_eq!(writers.unwrap().expression, "[]");
        }
    }

    #[test]
    fn each_kind_is_checked_by_its_operator_alone() {
        assert_eq!(is_of(&tenants::OPERATOR, "kind"), "kind == 'Tenant'");
        for operator in OPERATORS {
            for other in OPERATORS {
                let expression = is_of(other, "kind");
                for row in operator.kinds {
                    let is_named = expression.contains(&format!("'{}'", row.name()));
                    let is_checked = is_named != (**other == tasks::OPERATOR);
                    assert_eq!(is_checked, operator == other, "{row:?}: {expression}");
                }
            }
        }
    }

    /// The tasks operator does not check the kinds of other operators. Without a check by their own operator,
    /// any author could forge their children.
    #[test]
    fn each_operator_checks_its_kinds() {
        for operator in OPERATORS {
            let check = adds_owner(operator);
            let mut found = (operator.policies)().policies.into_iter();
            let is_checked = found.any(|policy| {
                let conditions = policy.spec.unwrap().match_conditions.unwrap_or_default();
                conditions.iter().any(|one| one.expression.contains(&check))
            });
            assert!(is_checked, "{operator:?}");
        }
    }

    #[test]
    fn a_controller_is_admitted_for_its_own_kind_only() {
        let job = created_by(&JOBS[0]);
        assert!(job.contains("'system:serviceaccount:kube-system:job-controller'"));
        assert!(job.contains("one.kind == 'Job' && one.apiVersion.startsWith('batch/')"));
        assert!(job.contains("request.resource.resource == 'pods'"));
    }
}
