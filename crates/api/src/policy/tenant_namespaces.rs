//! Admission policies for the namespaces of Tenants. Their owners are customers and may be hostile.
//!
//! # Guarantees
//! No Service in these namespaces takes over addresses of others, and no Pod there preempts Pods of
//! others.
//!
//! # Caveats
//! - A namespace belongs to a Tenant if it has the label `orchestrator.io/uid`. Owners cannot write
//!   their Namespace.
//! - Objects that are older than a policy stay. An update of them passes if it adds nothing.

use k8s_openapi::{
    api::admissionregistration::v1::ValidatingAdmissionPolicy,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use super::{conditional_policy, denial, requests};
use crate::{names, tenants::PROBE_CLASS};

/// Operations that can add something to an object.
const ADDS: &[&str] = &["CREATE", "UPDATE"];

/// Returns the policies for all requests in namespaces of Tenants. The installation must prefix
/// their names with its own.
///
/// The variable `priorityClasses` is a JSON list, because the chart appends its value
/// `admissionPolicies.tenantPriorityClasses` to it.
#[must_use]
pub fn tenant_namespaces() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        in_tenants(external_addresses()),
        in_tenants(priority_classes()),
    ]
}

/// Restricts a policy to namespaces of Tenants.
///
/// It uses a selector instead of an expression. An expression would be evaluated for all Pods of
/// the cluster, and an error in it would prevent the creation of all of them.
fn in_tenants(mut policy: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy {
    let spec = policy.spec.get_or_insert_default();
    let matched = spec.match_constraints.get_or_insert_default();
    matched.namespace_selector = Some(LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: names::UID.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        match_labels: None,
    });
    policy
}

/// Rejects new external IPs. Every node sends the traffic for an external IP to the Service that
/// claims the address, even if the address belongs to someone else (CVE-2020-8554).
fn external_addresses() -> ValidatingAdmissionPolicy {
    let message = "spec.externalIPs: a Service in the namespace of a Tenant must not have external IPs, because they take over traffic of others; remove them";
    conditional_policy(
        "external-addresses",
        vec![requests("", &["v1"], &["services"], ADDS)],
        None,
        &[],
        vec![denial(
            "object.spec.?externalIPs.orValue([]).all(one, oldObject != null && one in oldObject.spec.?externalIPs.orValue([]))"
                .to_owned(),
            message,
            &format!("\"{message}\""),
        )],
    )
}

/// Allows only listed priority classes. A Pod with a higher priority preempts Pods of others, and
/// `system-node-critical` preempts all.
fn priority_classes() -> ValidatingAdmissionPolicy {
    // The Pod spec, or the one in the template. `dyn`, because its path differs by type.
    let class_in = |object: &str| {
        format!(
            "(request.resource.resource == 'pods' ? dyn({object}).spec \
             : (request.resource.resource == 'cronjobs' ? dyn({object}).spec.jobTemplate.spec.template.spec \
             : dyn({object}).spec.template.spec)).?priorityClassName.orValue('')"
        )
    };
    let variables = [
        ("class", class_in("object")),
        (super::PRIORITY_CLASSES, format!("[\"{PROBE_CLASS}\"]")),
        // The finalizer of an older object must be removable. Otherwise its namespace cannot be
        // deleted.
        (
            "isUnchanged",
            format!(
                "oldObject != null && variables.class == {}",
                class_in("oldObject")
            ),
        ),
    ];
    let todo = "remove 'priorityClassName', or have an administrator add the class to 'admissionPolicies.tenantPriorityClasses' of the chart";
    conditional_policy(
        "priority-classes",
        vec![
            // The class of a Pod cannot be changed.
            requests("", &["v1"], &["pods"], &["CREATE"]),
            requests("apps", &["v1"], &["deployments", "statefulsets"], ADDS),
            requests("batch", &["v1"], &["jobs", "cronjobs"], ADDS),
        ],
        None,
        &variables,
        vec![denial(
            "variables.class == '' || variables.class in variables.priorityClasses || variables.isUnchanged"
                .to_owned(),
            &format!("priorityClassName: Pods of a Tenant may not have this priority class; {todo}"),
            &format!(
                "\"priorityClassName: Pods of a Tenant may not have the priority class '\" + variables.class + \"'; {todo}\""
            ),
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_holds_in_namespaces_of_tenants_only() {
        for policy in tenant_namespaces() {
            let spec = policy.spec.unwrap();
            assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
            let matched = spec.match_constraints.unwrap();
            let selector = matched.namespace_selector.unwrap();
            let [label] = &selector.match_expressions.unwrap()[..] else {
                panic!("{:?}", policy.metadata.name);
            };
            assert_eq!((&*label.key, &*label.operator), (names::UID, "Exists"));
        }
    }

    /// The chart reads the list, and appends to it.
    #[test]
    fn the_allowed_classes_are_a_list_in_json() {
        let spec = priority_classes().spec.unwrap();
        let variables = spec.variables.unwrap();
        let classes = variables.iter().find(|one| one.name == "priorityClasses");
        let classes: Vec<String> = serde_json::from_str(&classes.unwrap().expression).unwrap();
        assert_eq!(classes, [PROBE_CLASS]);
    }

    /// Owners create Pods directly, or with these workloads.
    #[test]
    fn each_template_that_an_owner_writes_is_judged() {
        let spec = priority_classes().spec.unwrap();
        let rules = spec.match_constraints.unwrap().resource_rules.unwrap();
        let matched: Vec<String> = rules
            .into_iter()
            .flat_map(|rule| rule.resources.unwrap())
            .collect();
        for rule in super::super::tenant_owner_role().rules.unwrap() {
            let creates = rule.verbs.iter().any(|verb| verb == "create");
            let group = rule.api_groups.unwrap().remove(0);
            for resource in rule.resources.unwrap() {
                let has_template = ["apps", "batch"].contains(&group.as_str());
                if creates && (has_template || resource == "pods") {
                    assert!(matched.contains(&resource), "{resource}");
                }
            }
        }
    }
}
