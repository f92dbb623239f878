//! Reads the admission policies of the operators and their bindings.

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingAdmissionPolicyBindingSpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Api, api::ListParams};

use super::{COMPONENT, OURS, label, list};
use crate::{
    commands::check::view::{BindingView, Known, PolicyView, Reach},
    session::Server,
};

/// The label of each namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

pub(super) async fn policies(server: &Server) -> Known<Vec<PolicyView>> {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(server.client.clone());
    let which = ListParams::default().labels(OURS);
    let resource = "validatingadmissionpolicies.admissionregistration.k8s.io";
    let all = list(api, which, "ValidatingAdmissionPolicy", resource).await?;
    let views = all.into_iter().map(|one| PolicyView {
        name: one.metadata.name.clone().unwrap_or_default(),
        operator: label(&one.metadata, COMPONENT),
        spec: Box::new(one.spec.unwrap_or_default()),
    });
    Ok(views.collect())
}

pub(super) async fn bindings(server: &Server) -> Known<Vec<BindingView>> {
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(server.client.clone());
    // Without the label: an administrator may have written a binding for one of our policies.
    let resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
    let kind = "ValidatingAdmissionPolicyBinding";
    let all = list(api, ListParams::default(), kind, resource).await?;
    let views = all.into_iter().map(|one| {
        let spec = one.spec.unwrap_or_default();
        let reach = reach(&spec);
        let actions = spec.validation_actions.unwrap_or_default();
        BindingView {
            policy: spec.policy_name.unwrap_or_default(),
            denies: actions.iter().any(|action| action == "Deny"),
            reach,
        }
    });
    Ok(views.collect())
}

/// Returns the requests to which a binding applies its policy.
fn reach(binding: &ValidatingAdmissionPolicyBindingSpec) -> Reach {
    if binding.param_ref.is_some() {
        return Reach::Part;
    }
    let Some(matched) = &binding.match_resources else {
        return Reach::All;
    };
    let MatchResources {
        exclude_resource_rules: excluded,
        // Both values match each request that the policy itself matches.
        match_policy: _,
        namespace_selector: namespaces,
        object_selector: objects,
        resource_rules: rules,
    } = matched;
    let is_empty = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
    let is_any = |selector: &Option<LabelSelector>| {
        let selector = selector.as_ref();
        selector.is_none_or(|selector| *selector == LabelSelector::default())
    };
    if !is_empty(excluded) || !is_empty(rules) || !is_any(objects) {
        return Reach::Part;
    }
    let Some(selector) = namespaces.as_ref().filter(|_| !is_any(namespaces)) else {
        return Reach::All;
    };
    let terms = selector.match_expressions.as_deref().unwrap_or_default();
    let has_labels = selector
        .match_labels
        .as_ref()
        .is_some_and(|all| !all.is_empty());
    match terms {
        [term] if !has_labels && term.key == NAMESPACE_NAME && term.operator == "In" => {
            Reach::Namespaces(term.values.clone().unwrap_or_default())
        }
        _ => Reach::Part,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binding_may_leave_out_requests() {
        let in_namespaces = |operator: &str| {
            json!({ "namespaceSelector": { "matchExpressions": [
                { "key": NAMESPACE_NAME, "operator": operator, "values": ["a"] }] } })
        };
        let rule = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"] }]);
        let labels = json!({ "matchLabels": { "checked": "yes" } });
        // The API server writes empty selectors beside others.
        let defaults =
            json!({ "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {} });
        let cases = [
            (json!({}), Reach::All),
            (json!({ "matchResources": defaults }), Reach::All),
            (
                json!({ "matchResources": in_namespaces("In") }),
                Reach::Namespaces(vec!["a".to_owned()]),
            ),
            (
                json!({ "matchResources": in_namespaces("NotIn") }),
                Reach::Part,
            ),
            (
                json!({ "matchResources": { "namespaceSelector": labels } }),
                Reach::Part,
            ),
            (
                json!({ "matchResources": { "objectSelector": labels } }),
                Reach::Part,
            ),
            (
                json!({ "matchResources": { "resourceRules": rule } }),
                Reach::Part,
            ),
            (
                json!({ "matchResources": { "excludeResourceRules": rule } }),
                Reach::Part,
            ),
            (json!({ "paramRef": { "name": "p" } }), Reach::Part),
        ];
        for (spec, expected) in cases {
            let binding = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(reach(&binding), expected, "{spec}");
        }
    }
}
