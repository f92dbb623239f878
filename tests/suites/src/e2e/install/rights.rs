//! The permissions of the installed operator, as `kubectl auth can-i --list` prints them.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::{ACCOUNT, NAMESPACE, Shell};
use crate::e2e::chart::{self, Rule, Rules};

/// What the operator may do, as the API server sees it, is what was generated: not less, not more.
pub(super) async fn generated(shell: &Shell) -> Result<String> {
    let Rules {
        watched,
        cluster,
        own,
    } = chart::generated("tasks")?;
    may(shell, "default", &[&watched, &cluster]).await?;
    may(shell, NAMESPACE, &[&watched, &cluster, &own]).await?;
    Ok("'kubectl auth can-i --list' is what was generated, here and elsewhere".to_owned())
}

/// In `namespace` the operator may do what `rules` say, and nothing else.
pub(super) async fn may(shell: &Shell, namespace: &str, rules: &[&[Rule]]) -> Result<()> {
    // Another account has what all have; the difference is the operator's own.
    let all = allowed(shell, namespace, "nobody").await?;
    let mut given = allowed(shell, namespace, ACCOUNT).await?;
    given.retain(|right| !all.contains(right));
    let wanted: BTreeSet<(String, String)> = rules.concat().iter().flat_map(each).collect();
    let missing: Vec<_> = wanted.difference(&given).collect();
    let beyond: Vec<_> = given.difference(&wanted).collect();
    ensure!(
        missing.is_empty() && beyond.is_empty(),
        "in '{namespace}': missing {missing:?}, beyond what was generated {beyond:?}"
    );
    Ok(())
}

/// Resource, with the name that it is limited to, and verb, one by one: `kubectl` prints a line for each name.
fn each(rule: &Rule) -> Vec<(String, String)> {
    let mut rights = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let resource = match (group.as_str(), resource.split_once('/')) {
                ("", _) => resource.clone(),
                (group, None) => format!("{resource}.{group}"),
                (group, Some((resource, sub))) => format!("{resource}.{group}/{sub}"),
            };
            let names = match rule.resource_names.as_slice() {
                [] => vec![resource],
                names => names.iter().map(|name| limited(&resource, name)).collect(),
            };
            let verbs = |name: &String| {
                rule.verbs
                    .iter()
                    .map(|verb| (name.clone(), verb.clone()))
                    .collect::<Vec<_>>()
            };
            rights.extend(names.iter().flat_map(verbs));
        }
    }
    rights
}

/// A resource of which only the object of this name is meant, if there is a name.
fn limited(resource: &str, name: &str) -> String {
    if name.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource} '{name}'")
    }
}

async fn allowed(
    shell: &Shell,
    namespace: &str,
    account: &str,
) -> Result<BTreeSet<(String, String)>> {
    let line = format!(
        "kubectl auth can-i --list --no-headers --namespace {namespace} --as system:serviceaccount:{NAMESPACE}:{account}"
    );
    parse_rights(&shell.check(&line).await?)
}

/// Lines such as `jobs.batch  []  []  [create delete]`: resource, URLs, names, verbs.
fn parse_rights(table: &str) -> Result<BTreeSet<(String, String)>> {
    let mut rights = BTreeSet::new();
    for line in table.lines() {
        // The resource of a line about URLs is empty.
        let Some((resource, lists)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        if resource.is_empty() {
            continue;
        }
        let lists: Vec<&str> = lists
            .split('[')
            .map(|list| list.trim().trim_end_matches(']'))
            .collect();
        let [_, _urls, names, verbs] = lists.as_slice() else {
            bail!("'{line}' is not what 'kubectl auth can-i --list' prints");
        };
        let resource = limited(resource, names);
        rights.extend(
            verbs
                .split_whitespace()
                .map(|verb| (resource.clone(), verb.to_owned())),
        );
    }
    ensure!(
        !rights.is_empty(),
        "nobody may do nothing at all: '{table}'"
    );
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_the_table_and_from_rules_alike() {
        let table = "\
jobs.batch                        []                   []       [create delete]
taskruns.orchestrator.io/status   []                   []       [patch]
pods                              []                   []       [list]
leases.coordination.k8s.io        []                   [one]    [get]
leases.coordination.k8s.io        []                   [two]    [get]
                                  [/api/*]             []       [get]
";
        let rule = |group: &str, resource: &str, verbs: &[&str]| Rule {
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            resource_names: Vec::new(),
        };
        let rules = [
            rule("batch", "jobs", &["create", "delete"]),
            rule("orchestrator.io", "taskruns/status", &["patch"]),
            rule("", "pods", &["list"]),
            Rule {
                resource_names: vec!["one".to_owned(), "two".to_owned()],
                ..rule("coordination.k8s.io", "leases", &["get"])
            },
        ];
        let wanted: BTreeSet<_> = rules.iter().flat_map(each).collect();
        assert_eq!(parse_rights(table).unwrap(), wanted);
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        for (table, reason) in [
            ("", "nothing at all"),
            ("error: you must be logged in", "not what"),
        ] {
            let error = parse_rights(table).unwrap_err().to_string();
            assert!(error.contains(reason), "{table:?}: {error}");
        }
    }
}
