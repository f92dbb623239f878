//! The CRDs, what each family's process may do, and who else may what, for the chart.
//!
//! The chart takes these files by `.Files.Get`, so nothing in them is a template.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use api::rbac::{Permission, Scope};
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingAdmissionPolicy,
        rbac::v1::{ClusterRole, PolicyRule},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::Serialize;
use serde_json::Value;

use super::{NOTE, Output};

const FOLDER: &str = "charts/orchestrator/generated";

/// Deleting a CRD deletes every object of its kind: uninstalling must not.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The keys of a family's rules, by where they hold.
const SCOPES: [(&str, Scope); 3] = [
    ("clusterRules", Scope::Cluster),
    ("namespacedRules", Scope::Watched),
    ("ownNamespaceRules", Scope::Own),
];

pub(super) fn outputs() -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for crd in api::crd::tasks() {
        outputs.push(crd_file(crd)?);
    }
    outputs.push(Output {
        path: format!("{FOLDER}/rbac-tasks.yaml"),
        text: rules(api::rbac::tasks())?,
    });
    outputs.push(Output {
        path: format!("{FOLDER}/policies-tasks.yaml"),
        text: policies(&Policies {
            policies: api::policy::tasks(),
            user_roles: api::policy::task_roles(),
        })?,
    });
    Ok(outputs)
}

/// Who may what. The chart puts its own name before theirs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Policies {
    policies: Vec<ValidatingAdmissionPolicy>,
    user_roles: Vec<ClusterRole>,
}

fn policies(all: &Policies) -> Result<String> {
    Ok(format!("# {NOTE}\n{}", yaml(all)?))
}

fn crd_file(mut crd: CustomResourceDefinition) -> Result<Output> {
    let (key, value) = KEEP;
    crd.metadata
        .annotations
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
    Ok(Output {
        path: format!("{FOLDER}/crds/{}.yaml", crd.spec.names.plural),
        text: format!("# {NOTE}\n{}", yaml(&crd)?),
    })
}

/// Each rule with its reason above it, for who has to approve them.
fn rules(permissions: &[Permission]) -> Result<String> {
    let mut text = format!("# {NOTE}\n");
    let mut wanted = BTreeMap::new();
    for (key, scope) in SCOPES {
        let chosen = permissions.iter().filter(|one| one.scope == scope);
        let mut rules = Vec::new();
        text.push_str(&format!("{key}:\n"));
        for permission in chosen {
            let rule = rule(permission);
            text.push_str(&format!("# {}\n{}", permission.why, yaml(&[&rule])?));
            rules.push(rule);
        }
        ensure!(!rules.is_empty(), "no permission is one of the {key}");
        wanted.insert(key, rules);
    }
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
        verbs,
        scope: _,
        why: _,
    } = permission;
    PolicyRule {
        api_groups: Some(vec![(*group).to_owned()]),
        resources: Some(vec![(*resource).to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        non_resource_urls: None,
        resource_names: None,
    }
}

/// As YAML that reads as what was written.
fn yaml<T: Serialize>(value: &T) -> Result<String> {
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
        let text = rules(api::rbac::tasks()).unwrap();
        let found: BTreeMap<String, Vec<PolicyRule>> = serde_saphyr::from_str(&text).unwrap();
        for permission in api::rbac::tasks() {
            let (key, _) = SCOPES
                .into_iter()
                .find(|(_, scope)| *scope == permission.scope)
                .unwrap();
            assert!(found[key].contains(&rule(permission)), "{permission:?}");
        }
        let count: usize = found.values().map(Vec::len).sum();
        assert_eq!(count, api::rbac::tasks().len());
    }
}
