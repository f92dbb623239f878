//! The CRDs, what each operator's process may do, and who else may what, for the chart: a file or a
//! folder for each operator, so that the chart installs what is enabled and nothing else.
//!
//! The chart takes these files by `.Files.Get`, so nothing in them is a template.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use api::{
    kinds::OPERATORS,
    rbac::{Permission, Scope},
};
use k8s_openapi::{
    api::rbac::v1::PolicyRule,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::Serialize;
use serde_json::Value;

use super::{NOTE, Output};

const FOLDER: &str = "charts/orchestrator/generated";

/// Deleting a CRD deletes every object of its kind: uninstalling must not.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The keys of an operator's rules, by where they hold.
const SCOPES: [(&str, Scope); 3] = [
    ("clusterRules", Scope::Cluster),
    ("namespacedRules", Scope::Watched),
    ("ownNamespaceRules", Scope::Own),
];

pub(super) fn outputs() -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for operator in OPERATORS {
        let name = operator.name;
        for crd in operator.crds() {
            outputs.push(crd_file(name, crd)?);
        }
        outputs.push(Output {
            path: format!("{FOLDER}/rbac-{name}.yaml"),
            text: rules(operator.permissions)?,
        });
        outputs.push(Output {
            path: format!("{FOLDER}/policies-{name}.yaml"),
            text: format!("# {NOTE}\n{}", yaml(&(operator.policies)())?),
        });
    }
    Ok(outputs)
}

fn crd_file(operator: &str, mut crd: CustomResourceDefinition) -> Result<Output> {
    let (key, value) = KEEP;
    crd.metadata
        .annotations
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
    Ok(Output {
        path: format!("{FOLDER}/crds/{operator}/{}.yaml", crd.spec.names.plural),
        text: format!("# {NOTE}\n{}", yaml(&crd)?),
    })
}

/// Each rule with its reason above it, for who has to approve them.
fn rules(permissions: &[Permission]) -> Result<String> {
    let mut text = format!("# {NOTE}\n");
    let mut wanted = BTreeMap::new();
    for (key, scope) in SCOPES {
        let chosen = permissions.iter().filter(|one| one.scope == scope);
        let rules: Vec<(&str, PolicyRule)> = chosen
            .map(|permission| (permission.why, rule(permission)))
            .collect();
        // An empty list is one, too: a key without a value is none.
        let empty = if rules.is_empty() { " []" } else { "" };
        text.push_str(&format!("{key}:{empty}\n"));
        for (why, rule) in &rules {
            text.push_str(&format!("# {why}\n{}", yaml(&[rule])?));
        }
        let rules: Vec<PolicyRule> = rules.into_iter().map(|(_, rule)| rule).collect();
        wanted.insert(key, rules);
    }
    ensure!(!permissions.is_empty(), "no permission at all");
    let found: Value = serde_saphyr::from_str(&text)?;
    ensure!(
        found == serde_json::to_value(&wanted)?,
        "the rules do not read as they were written"
    );
    Ok(text)
}

fn rule(permission: &Permission) -> PolicyRule {
    let Permission {
        group,
        resource,
        names,
        verbs,
        scope: _,
        why: _,
    } = permission;
    PolicyRule {
        api_groups: Some(vec![(*group).to_owned()]),
        resources: Some(vec![(*resource).to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        non_resource_urls: None,
        resource_names: (!names.is_empty())
            .then(|| names.iter().map(|name| (*name).to_owned()).collect()),
    }
}

/// As YAML that reads as what was written.
pub(super) fn yaml<T: Serialize>(value: &T) -> Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options)?;
    let found: Value = serde_saphyr::from_str(&text).context("unreadable YAML was written")?;
    ensure!(
        found == serde_json::to_value(value)?,
        "YAML does not read as it was written"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crd_survives_the_uninstallation() {
        for output in outputs().unwrap() {
            if output.path.contains("/crds/") {
                let crd: CustomResourceDefinition = serde_saphyr::from_str(&output.text).unwrap();
                assert_eq!(crd.metadata.annotations.unwrap()[KEEP.0], KEEP.1);
            }
        }
    }

    #[test]
    fn each_permission_is_a_rule_of_its_scope() {
        for operator in OPERATORS {
            let permissions = operator.permissions;
            let text = rules(permissions).unwrap();
            let found: BTreeMap<String, Vec<PolicyRule>> = serde_saphyr::from_str(&text).unwrap();
            for permission in permissions {
                let (key, _) = SCOPES
                    .into_iter()
                    .find(|(_, scope)| *scope == permission.scope)
                    .unwrap();
                let wanted = rule(permission);
                assert!(found[key].contains(&wanted), "{permission:?}");
                let names = permission.names.to_vec();
                assert_eq!(wanted.resource_names.unwrap_or_default(), names);
            }
            let count: usize = found.values().map(Vec::len).sum();
            assert_eq!(count, permissions.len());
        }
    }

    #[test]
    fn a_scope_without_permissions_is_an_empty_list() {
        let one = &api::tasks::OPERATOR.permissions[..1];
        let found: BTreeMap<String, Vec<PolicyRule>> =
            serde_saphyr::from_str(&rules(one).unwrap()).unwrap();
        assert_eq!(found.len(), SCOPES.len());
        assert_eq!(found.values().map(Vec::len).sum::<usize>(), 1);
        assert!(rules(&[]).is_err());
    }

    #[test]
    fn each_kind_is_in_the_folder_of_its_operator() {
        let outputs = outputs().unwrap();
        for operator in OPERATORS {
            for plural in operator.plurals() {
                let path = format!("{FOLDER}/crds/{}/{plural}.yaml", operator.name);
                assert!(outputs.iter().any(|output| output.path == path), "{path}");
            }
        }
    }
}
