//! What the operators may do: roles have the generated rules, and are given to who needs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::{NAMESPACE, Rendered, component, folder, list, of_kind, text, watched_namespaces};

/// The rules of the operator's own table, as `cargo xtask generate` wrote them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::e2e) struct Rules {
    /// In the watched namespaces.
    #[serde(rename = "namespacedRules")]
    pub(in crate::e2e) watched: Vec<Rule>,
    /// On what belongs to no namespace.
    #[serde(rename = "clusterRules")]
    pub(in crate::e2e) cluster: Vec<Rule>,
    /// In the operator's namespace.
    #[serde(rename = "ownNamespaceRules")]
    pub(in crate::e2e) own: Vec<Rule>,
}

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::e2e) struct Rule {
    pub(in crate::e2e) api_groups: Vec<String>,
    pub(in crate::e2e) resources: Vec<String>,
    pub(in crate::e2e) verbs: Vec<String>,
    /// Only these; without any, all.
    #[serde(default)]
    pub(in crate::e2e) resource_names: Vec<String>,
}

/// What was generated for an operator.
pub(in crate::e2e) fn generated(operator: &str) -> Result<Rules> {
    let path = folder().join(format!("rbac-{operator}.yaml"));
    let text = fs::read_to_string(&path)
        .with_context(|| format!("no '{}': run 'cargo xtask generate'", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("'{}'", path.display()))
}

/// Rules by the operator that has them, the kind of role, and its namespace.
type Given = BTreeMap<(String, String, String), BTreeSet<Rule>>;

fn give(given: &mut Given, operator: &str, kind: &str, namespace: &str, rules: &[Rule]) {
    given
        .entry((operator.to_owned(), kind.to_owned(), namespace.to_owned()))
        .or_default()
        .extend(rules.iter().cloned());
}

/// Whether a role is given to someone: those for users and owners are not, by the chart.
pub(super) fn is_bound(objects: &[Value], role: &Value) -> bool {
    let kind = text(role, "/kind");
    let bindings = format!("{kind}Binding");
    of_kind(objects, &bindings).any(|binding| {
        text(binding, "/roleRef/kind") == kind
            && text(binding, "/roleRef/name") == text(role, "/metadata/name")
            && text(binding, "/metadata/namespace") == text(role, "/metadata/namespace")
    })
}

/// Roles have exactly the generated rules, where they belong, and no wildcard.
pub(super) fn check(rendered: &[Rendered]) -> Result<String> {
    let mut counts = BTreeMap::new();
    for one in rendered {
        let Rendered { values, objects } = one;
        let mut wanted = Given::new();
        let namespaces = watched_namespaces(objects)?;
        for operator in one.operators()?.into_keys() {
            let Rules {
                watched,
                cluster,
                own,
            } = generated(operator)?;
            let watched = needed(operator, values, watched);
            without_wildcards(watched.iter().chain(&cluster).chain(&own))?;
            counts.insert(
                operator.to_owned(),
                watched.len() + cluster.len() + own.len(),
            );
            give(&mut wanted, operator, "ClusterRole", "", &cluster);
            give(&mut wanted, operator, "Role", NAMESPACE, &own);
            if namespaces.is_empty() {
                give(&mut wanted, operator, "ClusterRole", "", &watched);
            }
            for namespace in &namespaces {
                give(&mut wanted, operator, "Role", namespace, &watched);
            }
        }
        let given = given(objects).with_context(|| format!("with '{values}'"))?;
        for place in wanted.keys().chain(given.keys()) {
            let none = BTreeSet::new();
            let (wanted, given) = (
                wanted.get(place).unwrap_or(&none),
                given.get(place).unwrap_or(&none),
            );
            ensure!(
                given == wanted,
                "with '{values}', {place:?}: missing {:?}, beyond what was generated {:?}",
                wanted.difference(given).collect::<Vec<_>>(),
                given.difference(wanted).collect::<Vec<_>>()
            );
        }
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(operator, count)| format!("{count} of {operator}"))
        .collect();
    Ok(format!(
        "exactly the generated rules ({}), each where it belongs, without a wildcard",
        counts.join(", ")
    ))
}

/// The rules without those that these values make unnecessary: release Secrets of Helm that nobody reads.
fn needed(operator: &str, values: &str, rules: Vec<Rule>) -> Vec<Rule> {
    let reads_no_secrets =
        operator == "apps" && values.contains("config.apps.helm.readReleaseSecrets=false");
    let is_of_secrets = |rule: &Rule| rule.resources.iter().any(|one| one == "secrets");
    let rules = rules.into_iter();
    rules
        .filter(|rule| !(reads_no_secrets && is_of_secrets(rule)))
        .collect()
}

fn without_wildcards<'a>(rules: impl Iterator<Item = &'a Rule>) -> Result<()> {
    for rule in rules {
        let Rule {
            api_groups,
            resources,
            verbs,
            resource_names,
        } = rule;
        let words = api_groups.iter().chain(resources).chain(verbs);
        ensure!(
            words.chain(resource_names).all(|word| !word.contains('*')),
            "a wildcard: {rule:?}"
        );
    }
    Ok(())
}

/// What the operators are given: each role by one binding, to the ServiceAccount of its operator.
fn given(objects: &[Value]) -> Result<Given> {
    let mut given = Given::new();
    for kind in ["ClusterRole", "Role"] {
        let roles = || of_kind(objects, kind).filter(|role| is_bound(objects, role));
        for role in roles() {
            let rules: Vec<Rule> =
                serde_json::from_value(role.get("rules").cloned().unwrap_or_default())
                    .with_context(|| format!("rules of a {kind}"))?;
            let namespace = text(role, "/metadata/namespace");
            give(&mut given, component(role), kind, namespace, &rules);
        }
        let roles = roles().count();
        let binding = format!("{kind}Binding");
        let bindings = of_kind(objects, &binding).count();
        ensure!(
            roles == bindings,
            "{roles} {kind}s are bound, by {bindings} bindings"
        );
        for binding in of_kind(objects, &binding) {
            let subjects = list(binding, "/subjects");
            let is_own = |subject: &Value| {
                of_kind(objects, "ServiceAccount").any(|account| {
                    text(account, "/metadata/name") == text(subject, "/name")
                        && component(account) == component(binding)
                })
            };
            ensure!(
                subjects.len() == 1 && subjects.iter().all(is_own),
                "{kind} '{}' is given to {subjects:?}",
                text(binding, "/roleRef/name")
            );
        }
    }
    Ok(given)
}
