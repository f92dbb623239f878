//! Who may what: the roles for users and the policies are rendered as they were generated.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Rendered, folder, of_kind, text, watched_namespaces};

/// What was generated for the tasks family.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Generated {
    policies: Vec<Value>,
    user_roles: Vec<Value>,
}

/// Whether a ClusterRole is for the cluster's own roles to take in, not the operator's.
pub(super) fn is_for_users(role: &Value) -> bool {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
    labels.is_some_and(|labels| {
        labels
            .keys()
            .any(|key| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
    })
}

/// By the end of the name, which the chart puts behind its own.
fn by_name<'a>(
    objects: impl Iterator<Item = &'a Value>,
    part: &str,
) -> BTreeMap<&'a str, &'a Value> {
    objects
        .map(|object| {
            let name = text(object, "/metadata/name");
            let own = name.split_once("-tasks-").map_or(name, |(_, own)| own);
            (own, object.pointer(part).unwrap_or(&Value::Null))
        })
        .collect()
}

pub(super) fn check(rendered: &[Rendered]) -> Result<String> {
    let path = folder().join("policies-tasks.yaml");
    let file = fs::read_to_string(&path)
        .with_context(|| format!("no '{}': run 'cargo xtask generate'", path.display()))?;
    let Generated {
        policies,
        user_roles,
    } = serde_saphyr::from_str(&file).with_context(|| format!("'{}'", path.display()))?;
    ensure!(
        !policies.is_empty() && !user_roles.is_empty(),
        "'{}' is empty",
        path.display()
    );
    for Rendered { values, objects } in rendered {
        let roles = || of_kind(objects, "ClusterRole").filter(|role| is_for_users(role));
        ensure!(
            by_name(roles(), "/rules") == by_name(user_roles.iter(), "/rules"),
            "with '{values}': the roles for users are not the generated ones"
        );
        for role in &user_roles {
            let name = text(role, "/metadata/name");
            let wanted = role["metadata"]["labels"].as_object();
            let rendered = by_name(roles(), "/metadata/labels");
            ensure!(
                wanted
                    .into_iter()
                    .flat_map(|labels| labels.iter())
                    .all(
                        |(key, value)| rendered.get(name).and_then(|has| has.get(key))
                            == Some(value)
                    ),
                "with '{values}': no role of the cluster takes '{name}' in"
            );
        }
        let is_off = values.contains("admissionPolicies.enabled=false");
        let wanted = if is_off { &[] } else { policies.as_slice() };
        ensure!(
            by_name(of_kind(objects, "ValidatingAdmissionPolicy"), "/spec")
                == by_name(wanted.iter(), "/spec"),
            "with '{values}': the policies are not the generated ones"
        );
        bindings(values, objects, wanted.len())?;
    }
    Ok(format!(
        "{} policies, each bound where the operator works, and {} roles for users, as generated",
        policies.len(),
        user_roles.len()
    ))
}

/// Each policy is bound, refuses, and holds where the operator works.
fn bindings(values: &str, objects: &[Value], count: usize) -> Result<()> {
    let namespaces = watched_namespaces(objects)?;
    let scope = if namespaces.is_empty() {
        Value::Null
    } else {
        json!({ "namespaceSelector": { "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
        ] } })
    };
    let mut bound = 0;
    for policy in of_kind(objects, "ValidatingAdmissionPolicy") {
        let name = text(policy, "/metadata/name");
        let binding = of_kind(objects, "ValidatingAdmissionPolicyBinding")
            .find(|binding| text(binding, "/spec/policyName") == name)
            .with_context(|| format!("with '{values}': nothing binds '{name}'"))?;
        ensure!(
            binding["spec"]["validationActions"] == json!(["Deny"]),
            "with '{values}': '{name}' does not refuse"
        );
        ensure!(
            binding["spec"]["matchResources"] == scope,
            "with '{values}': '{name}' holds in {}, not in {scope}",
            binding["spec"]["matchResources"]
        );
        bound += 1;
    }
    let all = of_kind(objects, "ValidatingAdmissionPolicyBinding").count();
    ensure!(
        bound == count && all == count,
        "with '{values}': {count} policies, {bound} bound, {all} bindings"
    );
    Ok(())
}
