//! An installation without trouble.

use std::collections::BTreeMap;

use api::{
    Timestamp,
    kinds::{self, OPERATORS, OperatorRow},
    rbac::Scope,
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MatchCondition, ValidatingAdmissionPolicySpec},
        rbac::v1::PolicyRule,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, from_value, to_value};
use why::{
    leader::{Candidate, Program},
    world::LeaseView,
};

use super::permission;
use crate::commands::check::view::{
    BindingView, DeploymentView, PolicyView, Reach, RoleBindingView, RoleView, Roles, State,
};

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the CRD as the API server stores it.
fn established(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd: Value = to_value(crd).unwrap();
    crd["status"] = serde_json::json!({ "conditions": [{ "type": "Established", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "", "message": "" }] });
    from_value(crd).unwrap()
}

/// Returns the name of a Pod of this operator.
fn pod(operator: &str) -> String {
    format!("orchestrator-{operator}-6d5f-abcde")
}

/// Returns the policies of an operator, as the chart installs them.
fn policies_of(operator: &'static OperatorRow) -> Vec<(String, ValidatingAdmissionPolicySpec)> {
    let name = |name: Option<String>| format!("orchestrator-{}-{}", operator.name, name.unwrap());
    let all = (operator.policies)();
    let of_authors = all.policies.into_iter();
    let of_authors = of_authors.map(|one| (name(one.metadata.name), one.spec.unwrap()));
    let of_operator = all.operator_policies.into_iter().map(|one| {
        let mut spec = one.spec.unwrap();
        let user = format!(
            "system:serviceaccount:system:orchestrator-{}",
            operator.name
        );
        spec.match_conditions = Some(vec![MatchCondition {
            name: "by-the-operator".to_owned(),
            expression: format!("request.userInfo.username == '{user}'"),
        }]);
        (name(one.metadata.name), spec)
    });
    of_authors.chain(of_operator).collect()
}

/// Returns the roles of the operators, as the chart installs them in the whole cluster.
fn roles() -> Roles {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let (mut roles, mut bindings) = (Vec::new(), Vec::new());
    for operator in OPERATORS {
        let account = format!("orchestrator-{}", operator.name);
        let rules = |is_own: bool| -> Vec<PolicyRule> {
            let all = operator.permissions.iter();
            let all = all.filter(|one| (one.scope == Scope::Own) == is_own);
            all.map(|one| PolicyRule {
                api_groups: Some(owned(&[one.group])),
                resources: Some(owned(&[one.resource])),
                resource_names: (!one.names.is_empty()).then(|| owned(one.names)),
                verbs: owned(one.verbs),
                non_resource_urls: None,
            })
            .collect()
        };
        let own = (format!("{account}-own"), Some("system".to_owned()), true);
        for (name, namespace, is_own) in [(account.clone(), None, false), own] {
            bindings.push(RoleBindingView {
                namespace: namespace.clone(),
                role: name.clone(),
                is_cluster_role: namespace.is_none(),
                accounts: vec![format!("system/{account}")],
            });
            roles.push(RoleView {
                name,
                namespace,
                rules: rules(is_own),
            });
        }
    }
    Roles { roles, bindings }
}

/// An installation of all operators without any trouble.
pub(super) fn well() -> State {
    let operators = OPERATORS.iter().copied();
    State {
        now: at("2026-01-01T01:00:00Z"),
        version: "0.1.0".to_owned(),
        kubernetes: "v1.36.3".to_owned(),
        namespace: "team".to_owned(),
        crds: kinds::all()
            .map(|row| (row, Ok(Some(Box::new(established(&row.crd()))))))
            .collect(),
        deployments: Ok(operators
            .clone()
            .map(|operator| DeploymentView {
                name: format!("orchestrator-{}", operator.name),
                namespace: "system".to_owned(),
                operator: operator.name.to_owned(),
                account: format!("orchestrator-{}", operator.name),
                version: "0.1.0".to_owned(),
                wanted: 2,
                ready: 2,
                is_rolled_out: true,
                unready: Ok(Vec::new()),
                pods: Some(vec![Candidate {
                    name: pod(operator.name),
                    program: Program::Runs(Some(at("2026-01-01T00:30:00Z"))),
                }]),
            })
            .collect()),
        leases: operators
            .clone()
            .map(|operator| {
                let lease = LeaseView {
                    name: operator.lease.to_owned(),
                    namespace: "system".to_owned(),
                    holder: Some(format!("{}_1", pod(operator.name))),
                    renewed: Some(Time(at("2026-01-01T00:59:56Z"))),
                    duration_seconds: 15,
                    version: None,
                };
                (operator.name, Ok(vec![lease]))
            })
            .collect::<BTreeMap<_, _>>(),
        roles: Ok(roles()),
        policies: Ok(operators
            .clone()
            .flat_map(|operator| {
                let all = policies_of(operator).into_iter();
                all.map(move |(name, spec)| PolicyView {
                    name,
                    operator: operator.name.to_owned(),
                    spec: Box::new(spec),
                })
            })
            .collect()),
        bindings: Ok(operators
            .flat_map(policies_of)
            .map(|(policy, _)| BindingView {
                policy,
                denies: true,
                reach: Reach::All,
            })
            .collect()),
        webhooks: Ok(Vec::new()),
        permissions: vec![(
            "view".to_owned(),
            Ok(vec![permission("get", true), permission("list", true)]),
        )],
    }
}
