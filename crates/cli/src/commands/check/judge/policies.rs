//! Compares the installed admission policies with those that this release generates.

use api::{
    kinds::OperatorRow,
    policy::{self, Policies},
};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MatchResources, ValidatingAdmissionPolicySpec, Variable,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{Finding, Verdict, finding, of, of_difference, unread};
use crate::commands::check::view::{BindingView, Reach, State};

/// The variables that the chart sets from its values.
const OF_VALUES: &[&str] = &[
    policy::LABEL_WRITERS,
    policy::OWN_USERS,
    policy::PROTECTED_NAMESPACES,
    policy::POWERFUL_SERVICE_ACCOUNTS,
    policy::PRIORITY_CLASSES,
];

/// A policy of this release, as the chart installs it.
struct Wanted {
    name: String,
    spec: ValidatingAdmissionPolicySpec,
    /// Whether the policy judges the writes of the operator, in all namespaces.
    is_of_operator: bool,
    /// `None`: they are not known, because the operator's ServiceAccount is not.
    conditions: Option<Vec<MatchCondition>>,
}

pub(super) fn check(state: &State, operator: &OperatorRow) -> Vec<Finding> {
    let check = format!("admission policies of operator {}", operator.name);
    let (policies, bindings) = match (&state.policies, &state.bindings) {
        (Ok(policies), Ok(bindings)) => (policies, bindings),
        (Err(why), _) | (_, Err(why)) => return vec![unread(check, why)],
    };
    let wanted = wanted(state, operator);
    let mut found = policies.iter().filter(|one| one.operator == operator.name);
    let (mut missing, mut changed) = (Vec::new(), Vec::new());
    let (mut open, mut narrow) = (Vec::new(), Vec::new());
    for one in &wanted {
        // The chart puts its own name and the operator's before.
        let suffix = format!("{}-{}", operator.name, one.name);
        let Some(policy) = found.clone().find(|known| known.name.ends_with(&suffix)) else {
            missing.push(format!("'{}'", one.name));
            continue;
        };
        let name = format!("'{}'", policy.name);
        let parts = differences(one, &policy.spec);
        if !parts.is_empty() {
            changed.push(format!("{name} ({})", parts.join(", ")));
        }
        let denying = bindings.iter();
        let denying = denying.filter(|known| known.policy == policy.name && known.denies);
        let denying: Vec<&BindingView> = denying.collect();
        if denying.is_empty() {
            open.push(name);
        } else if !denying.iter().any(|known| is_complete(&known.reach, one)) {
            narrow.push(name);
        }
    }
    if found.next().is_none() {
        let detail = "none exist: the authors of Agents and runs can use all Secrets of their namespace; set 'admissionPolicies.enabled=true'";
        return vec![finding(check, Verdict::Failed, detail)];
    }
    let mut all = Vec::new();
    let (verdict, rest) = of_difference(state, operator);
    if !missing.is_empty() {
        let detail = format!("{} missing; {rest}", missing.join(", "));
        all.push(finding(check.clone(), verdict, detail));
    }
    if !changed.is_empty() {
        let detail = format!("not as in this release: {}; {rest}", changed.join(", "));
        all.push(finding(check.clone(), verdict, detail));
    }
    for (names, problem) in [
        (open, "has no binding that denies, so it has no effect"),
        (narrow, "has only bindings that leave out requests"),
    ] {
        if !names.is_empty() {
            let detail = format!("{} {problem}: run 'helm upgrade'", names.join(", "));
            all.push(finding(check.clone(), Verdict::Failed, detail));
        }
    }
    if all.is_empty() {
        let detail = format!("{}, each with a binding", count(wanted.len()));
        all.push(finding(check, Verdict::Ok, detail));
    }
    all
}

fn count(number: usize) -> String {
    match number {
        1 => "1 policy".to_owned(),
        number => format!("{number} policies"),
    }
}

/// Returns the policies of an operator, as the chart installs them.
fn wanted(state: &State, operator: &OperatorRow) -> Vec<Wanted> {
    let Policies {
        policies: of_authors,
        operator_policies: of_operator,
        user_roles: _,
        shared: _,
    } = (operator.policies)();
    let by_the_operator = of(state, operator).map(|deployment| {
        let (namespace, account) = (&deployment.namespace, &deployment.account);
        let user = format!("system:serviceaccount:{namespace}:{account}");
        vec![MatchCondition {
            name: "by-the-operator".to_owned(),
            expression: format!("request.userInfo.username == '{user}'"),
        }]
    });
    let of_authors = of_authors.into_iter().map(|policy| {
        let spec = policy.spec.unwrap_or_default();
        Wanted {
            name: policy.metadata.name.unwrap_or_default(),
            is_of_operator: false,
            conditions: Some(spec.match_conditions.clone().unwrap_or_default()),
            spec,
        }
    });
    let of_operator = of_operator.into_iter().map(|policy| Wanted {
        name: policy.metadata.name.unwrap_or_default(),
        spec: policy.spec.unwrap_or_default(),
        is_of_operator: true,
        conditions: by_the_operator.clone(),
    });
    of_authors.chain(of_operator).collect()
}

/// Returns whether a binding applies the policy to all requests that the chart would apply it to.
fn is_complete(reach: &Reach, policy: &Wanted) -> bool {
    match reach {
        Reach::All => true,
        Reach::Namespaces(_) => !policy.is_of_operator,
        Reach::Part => false,
    }
}

/// Returns the parts in which an installed policy may admit other requests than that of this release.
/// Messages do not count, and further validations only admit less.
fn differences(wanted: &Wanted, found: &ValidatingAdmissionPolicySpec) -> Vec<&'static str> {
    let ValidatingAdmissionPolicySpec {
        audit_annotations: _,
        failure_policy,
        match_conditions,
        match_constraints,
        param_kind,
        validations,
        variables,
    } = found;
    let spec = &wanted.spec;
    let fails = |policy: &Option<String>| policy.as_deref().unwrap_or("Fail") == "Fail";
    let conditions = match_conditions.as_deref().unwrap_or_default();
    let is_same_conditions = wanted
        .conditions
        .as_deref()
        .is_none_or(|all| all == conditions);
    let validates = |expression: &String| {
        let mut all = validations.iter().flat_map(|all| all.iter());
        all.any(|one| one.expression == *expression)
    };
    let mut needed = spec.validations.iter().flat_map(|all| all.iter());
    let has_variable = |needed: &Variable| {
        let mut all = variables.iter().flat_map(|all| all.iter());
        let is_of_values = OF_VALUES.contains(&needed.name.as_str());
        all.any(|one| {
            one.name == needed.name && (is_of_values || one.expression == needed.expression)
        })
    };
    let mut known = spec.variables.iter().flat_map(|all| all.iter());
    let parts = [
        (
            "failurePolicy",
            fails(failure_policy) == fails(&spec.failure_policy),
        ),
        ("matchConditions", is_same_conditions),
        (
            "matchConstraints",
            normalized(match_constraints.as_ref()) == normalized(spec.match_constraints.as_ref()),
        ),
        ("paramKind", *param_kind == spec.param_kind),
        ("validations", needed.all(|one| validates(&one.expression))),
        ("variables", known.all(has_variable)),
    ];
    let differing = parts.into_iter().filter(|(_, is_same)| !is_same);
    differing.map(|(part, _)| part).collect()
}

/// Fills in the defaults of the API server.
fn normalized(constraints: Option<&MatchResources>) -> MatchResources {
    let MatchResources {
        exclude_resource_rules,
        match_policy,
        namespace_selector,
        object_selector,
        mut resource_rules,
    } = constraints.cloned().unwrap_or_default();
    for rule in resource_rules.iter_mut().flat_map(|all| all.iter_mut()) {
        rule.scope = Some(rule.scope.take().unwrap_or_else(|| "*".to_owned()));
        rule.resource_names = rule.resource_names.take().filter(|all| !all.is_empty());
    }
    let is_limiting = |selector: &LabelSelector| *selector != LabelSelector::default();
    MatchResources {
        exclude_resource_rules: exclude_resource_rules.filter(|all| !all.is_empty()),
        match_policy: Some(match_policy.unwrap_or_else(|| "Equivalent".to_owned())),
        namespace_selector: namespace_selector.filter(is_limiting),
        object_selector: object_selector.filter(is_limiting),
        resource_rules,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn of_tasks(name: &str) -> Wanted {
        let mut all = (api::tasks::OPERATOR.policies)().policies.into_iter();
        let found = all.find(|policy| policy.metadata.name.as_deref() == Some(name));
        let spec = found.and_then(|policy| policy.spec).unwrap();
        Wanted {
            name: name.to_owned(),
            is_of_operator: false,
            conditions: Some(spec.match_conditions.clone().unwrap_or_default()),
            spec,
        }
    }

    /// Builds the policy as the API server stores it, with one change.
    fn stored(wanted: &Wanted, change: fn(&mut Value)) -> ValidatingAdmissionPolicySpec {
        let mut spec = to_value(&wanted.spec).unwrap();
        let constraints = &mut spec["matchConstraints"];
        constraints["matchPolicy"] = json!("Equivalent");
        constraints["namespaceSelector"] = json!({});
        constraints["objectSelector"] = json!({});
        for rule in constraints["resourceRules"].as_array_mut().unwrap() {
            rule["scope"] = json!("*");
        }
        change(&mut spec);
        from_value(spec).unwrap()
    }

    #[test]
    fn a_loosened_policy_differs_and_a_stored_one_does_not() {
        let wanted = of_tasks("agent-references");
        type Change = fn(&mut Value);
        let cases: [(&str, Change, &[&str]); 13] = [
            ("as it is stored", |_| {}, &[]),
            (
                "another message",
                |spec| spec["validations"][0]["message"] = json!("no"),
                &[],
            ),
            (
                "a further validation",
                |spec| {
                    let all = spec["validations"].as_array_mut().unwrap();
                    all.push(json!({ "expression": "false" }));
                },
                &[],
            ),
            (
                "a validation removed",
                |spec| {
                    spec["validations"].as_array_mut().unwrap().remove(0);
                },
                &["validations"],
            ),
            (
                "a validation that is always true",
                |spec| spec["validations"][1]["expression"] = json!("true"),
                &["validations"],
            ),
            (
                "errors are ignored",
                |spec| spec["failurePolicy"] = json!("Ignore"),
                &["failurePolicy"],
            ),
            (
                "a further condition",
                |spec| {
                    let all = spec["matchConditions"].as_array_mut().unwrap();
                    all.push(json!({ "name": "never", "expression": "false" }));
                },
                &["matchConditions"],
            ),
            (
                "no updates",
                |spec| {
                    let rule = &mut spec["matchConstraints"]["resourceRules"][0];
                    rule["operations"] = json!(["CREATE"]);
                },
                &["matchConstraints"],
            ),
            (
                "exact versions",
                |spec| spec["matchConstraints"]["matchPolicy"] = json!("Exact"),
                &["matchConstraints"],
            ),
            (
                "some namespaces",
                |spec| {
                    let labels = json!({ "matchLabels": { "a": "b" } });
                    spec["matchConstraints"]["namespaceSelector"] = labels;
                },
                &["matchConstraints"],
            ),
            (
                "an exception",
                |spec| {
                    let rules = spec["matchConstraints"]["resourceRules"].clone();
                    spec["matchConstraints"]["excludeResourceRules"] = rules;
                },
                &["matchConstraints"],
            ),
            (
                "parameters",
                |spec| spec["paramKind"] = json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
                &["paramKind"],
            ),
            (
                "a variable that is empty",
                |spec| spec["variables"][0]["expression"] = json!("[]"),
                &["variables"],
            ),
        ];
        for (name, change, expected) in cases {
            let found = differences(&wanted, &stored(&wanted, change));
            assert_eq!(found, expected, "{name}");
        }
    }

    /// The chart sets these variables, and a list of an installation is no difference.
    #[test]
    fn variables_of_the_values_may_differ() {
        let mut known = Vec::new();
        for operator in api::kinds::OPERATORS {
            let Policies {
                policies,
                operator_policies,
                ..
            } = (operator.policies)();
            for policy in policies.into_iter().chain(operator_policies) {
                let variables = policy.spec.and_then(|spec| spec.variables);
                known.extend(variables.unwrap_or_default());
            }
        }
        for name in OF_VALUES {
            assert!(known.iter().any(|one| one.name == *name), "{name}");
        }
    }
}
