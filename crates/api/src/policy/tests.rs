//! Rules that all policies obey.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

use super::*;
use crate::kinds::OPERATORS;

fn specs() -> Vec<ValidatingAdmissionPolicySpec> {
    let mut all = Vec::new();
    for operator in OPERATORS {
        let found = (operator.policies)();
        all.extend(found.policies);
        all.extend(found.operator_policies);
    }
    // Requests in namespaces of Tenants are judged for all users alike.
    let of_namespaces = tenant_namespaces();
    all.retain(|one| !of_namespaces.contains(one));
    all.into_iter().map(|one| one.spec.unwrap()).collect()
}

/// Returns all expressions of these policies.
fn expressions(specs: Vec<ValidatingAdmissionPolicySpec>) -> Vec<String> {
    let mut all = Vec::new();
    for spec in specs {
        all.extend(
            spec.match_conditions
                .into_iter()
                .flat_map(|list| list.into_iter().map(|one| one.expression)),
        );
        all.extend(
            spec.variables
                .into_iter()
                .flat_map(|list| list.into_iter().map(|one| one.expression)),
        );
        all.extend(
            spec.validations
                .unwrap()
                .into_iter()
                .map(|one| one.expression),
        );
    }
    all
}

/// Collects the names of all fields of a spec.
fn fields(schema: &JSONSchemaProps, out: &mut Vec<String>) {
    for (name, property) in schema.properties.iter().flat_map(|all| all.iter()) {
        out.push(name.clone());
        fields(property, out);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields(items, out);
    }
}

/// Returns the names of all fields in the specs of these CRDs.
pub(super) fn fields_of(crds: Vec<CustomResourceDefinition>) -> Vec<String> {
    let mut out = Vec::new();
    for crd in crds {
        for version in crd.spec.versions {
            let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
            fields(&schema.properties.unwrap()["spec"], &mut out);
        }
    }
    out
}

#[test]
fn what_cannot_be_judged_is_refused_and_each_refusal_has_words() {
    for spec in specs() {
        assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
        for one in spec.validations.unwrap() {
            assert_eq!(one.reason.as_deref(), Some("Forbidden"));
            // The API server accepts only messages of one line.
            let message = one.message.unwrap();
            assert!(!message.is_empty() && !message.contains('\n'), "{message}");
            assert!(
                one.message_expression
                    .unwrap()
                    .contains("request.userInfo.username")
            );
        }
    }
}

#[test]
fn no_expression_asks_the_authorizer_more_than_twice() {
    for expression in expressions(specs()) {
        let direct = expression.matches(".check(").count();
        let by_variable = expression.matches("variables.createsPods").count()
            + expression.matches("variables.givesTheRole").count();
        assert!(direct + by_variable <= 2, "{expression}");
        assert!(
            direct == 0 || !expression.contains(".map("),
            "a loop: {expression}"
        );
    }
}

/// A new field that references an object needs a rule here, or a reason for its absence.
#[test]
fn each_field_that_names_an_object_is_judged() {
    // Classes belong to the cluster. Quotas restrict their use, also for ordinary Pods.
    let free = [
        "storageClassName",
        "runtimeClassName",
        "priorityClassName",
        "volumeSnapshotClassName",
        // The author needs the verb for all ManagedApps of the namespace: a policy cannot read the UpgradeRequest.
        "upgradeRequestRef",
        // For people.
        "serviceName",
        "displayName",
    ];
    for (crds, policies, least) in [
        (crate::tasks::OPERATOR.crds(), tasks(), 8),
        (crate::tenants::OPERATOR.crds(), tenants(), 3),
        (crate::apps::OPERATOR.crds(), apps(), 5),
        (crate::notebooks::OPERATOR.crds(), notebook_authors(), 10),
    ] {
        let specs = policies.into_iter().map(|one| one.spec.unwrap()).collect();
        let all = expressions(specs).join("\n");
        let mut seen = 0;
        for field in fields_of(crds) {
            let names_something = ["Ref", "Secrets", "Name", "From"]
                .iter()
                .any(|end| field.ends_with(end));
            if names_something && !free.contains(&field.as_str()) {
                seen += 1;
                assert!(all.contains(&format!(".{field}")), "{field}");
            }
        }
        assert!(seen >= least, "only {seen} fields that name something");
    }
}

#[test]
fn no_field_of_a_run_reaches_into_another_namespace() {
    let crds = [crate::tasks::OPERATOR, crate::notebooks::OPERATOR];
    for field in fields_of(crds.iter().flat_map(|one| one.crds()).collect()) {
        assert!(!field.to_lowercase().contains("namespace"), "{field}");
    }
}

#[test]
fn users_get_no_status_and_no_wildcard() {
    let policies = OPERATORS.iter().map(|operator| (operator.policies)());
    for role in policies.flat_map(|policies| policies.user_roles) {
        for rule in role.rules.unwrap() {
            for word in rule
                .resources
                .iter()
                .chain(&rule.api_groups)
                .flat_map(|list| list.iter())
                .chain(&rule.verbs)
            {
                assert!(!word.contains('*') && !word.contains('/'), "{word}");
            }
        }
    }
}
