//! Webhooks that can reject objects of an installation.

use std::collections::BTreeSet;

use api::kinds::OperatorRow;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A webhook with `failurePolicy: Fail` that is called for objects of an installation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Concerning {
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) resources: Vec<String>,
    pub(super) client: WebhookClientConfig,
}

/// Returns the resources of these operators: their kinds, the types that they write, and Pods.
pub(super) fn resources(operators: &[&OperatorRow]) -> BTreeSet<(&'static str, &'static str)> {
    let writes = ["create", "patch", "delete"];
    let permissions = operators.iter().flat_map(|operator| operator.permissions);
    let kinds = operators.iter().flat_map(|operator| operator.kinds);
    permissions
        .filter(|one| one.verbs.iter().any(|verb| writes.contains(verb)))
        // Events are best effort, and a Lease has its own check.
        .filter(|one| !matches!(one.resource, "events" | "leases"))
        .map(|one| (one.group, one.resource))
        .filter(|(_, resource)| !resource.contains('/'))
        .chain(kinds.map(|kind| (kind.resource.group, kind.resource.plural)))
        // Other controllers create the Pods of Jobs and of Deployments.
        .chain([("", "pods")])
        .collect()
}

pub(super) fn of_validating(
    all: &[ValidatingWebhookConfiguration],
    ours: &BTreeSet<(&'static str, &'static str)>,
) -> Vec<Concerning> {
    let each = all.iter().flat_map(|configuration| {
        let hooks = configuration.webhooks.iter().flat_map(|all| all.iter());
        hooks.map(move |hook| {
            let fails = hook.failure_policy.as_deref();
            let kind = "ValidatingWebhookConfiguration";
            let from = named(kind, &configuration.metadata);
            (from, &hook.name, fails, &hook.rules, &hook.client_config)
        })
    });
    concerning(each, ours)
}

pub(super) fn of_mutating(
    all: &[MutatingWebhookConfiguration],
    ours: &BTreeSet<(&'static str, &'static str)>,
) -> Vec<Concerning> {
    let each = all.iter().flat_map(|configuration| {
        let hooks = configuration.webhooks.iter().flat_map(|all| all.iter());
        hooks.map(move |hook| {
            let fails = hook.failure_policy.as_deref();
            let kind = "MutatingWebhookConfiguration";
            let from = named(kind, &configuration.metadata);
            (from, &hook.name, fails, &hook.rules, &hook.client_config)
        })
    });
    concerning(each, ours)
}

fn named(kind: &str, meta: &ObjectMeta) -> String {
    format!("{kind} '{}'", meta.name.as_deref().unwrap_or_default())
}

/// A webhook of either type: configuration, name, failure policy, rules and server.
type Hook<'a> = (
    String,
    &'a String,
    Option<&'a str>,
    &'a Option<Vec<RuleWithOperations>>,
    &'a WebhookClientConfig,
);

fn concerning<'a>(
    hooks: impl Iterator<Item = Hook<'a>>,
    ours: &BTreeSet<(&'static str, &'static str)>,
) -> Vec<Concerning> {
    hooks
        // The default is Fail.
        .filter(|(_, _, fails, _, _)| *fails != Some("Ignore"))
        .map(|(configuration, name, _, rules, client)| Concerning {
            configuration,
            name: name.clone(),
            resources: matched(rules.as_deref().unwrap_or_default(), ours),
            client: client.clone(),
        })
        .filter(|one| !one.resources.is_empty())
        .collect()
}

fn matched(
    rules: &[RuleWithOperations],
    ours: &BTreeSet<(&'static str, &'static str)>,
) -> Vec<String> {
    let has = |list: &Option<Vec<String>>, word: &str| {
        let mut all = list.iter().flat_map(|all| all.iter());
        all.any(|one| one == word || one == "*" || one == "*/*")
    };
    let is_matched = |group: &str, resource: &str| {
        rules
            .iter()
            .any(|rule| has(&rule.api_groups, group) && has(&rule.resources, resource))
    };
    let matched = ours
        .iter()
        .filter(|(group, resource)| is_matched(group, resource));
    matched
        .map(|(_, resource)| (*resource).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn configuration(
        policy: Option<&str>,
        groups: &[&str],
        resources: &[&str],
    ) -> ValidatingWebhookConfiguration {
        from_value(json!({ "metadata": { "name": "guard" }, "webhooks": [{
            "name": "guard.example.com", "failurePolicy": policy, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "namespace": "guard", "name": "guard" } },
            "rules": [{ "apiGroups": groups, "apiVersions": ["*"], "resources": resources,
                "operations": ["CREATE"] }] }] }))
        .unwrap()
    }

    #[test]
    fn only_webhooks_that_can_reject_our_objects_concern_us() {
        let ours = resources(&[&api::tasks::OPERATOR]);
        for wanted in [
            ("batch", "jobs"),
            ("", "pods"),
            ("orchestrator.io", "agents"),
        ] {
            assert!(ours.contains(&wanted), "{ours:?}");
        }
        type Names<'a> = &'a [&'a str];
        let cases: [(Option<&str>, Names<'_>, Names<'_>, Names<'_>); 6] = [
            (Some("Fail"), &["batch"], &["jobs"], &["jobs"]),
            (None, &["batch"], &["jobs"], &["jobs"]),
            (Some("Ignore"), &["batch"], &["jobs"], &[]),
            (Some("Fail"), &["apps"], &["jobs"], &[]),
            (Some("Fail"), &["batch"], &["jobs/status"], &[]),
            (Some("Fail"), &["batch"], &["*"], &["jobs"]),
        ];
        for (policy, groups, names, wanted) in cases {
            let all = [configuration(policy, groups, names)];
            let found = of_validating(&all, &ours);
            let found: Vec<&String> = found.iter().flat_map(|one| &one.resources).collect();
            assert_eq!(found, wanted, "{policy:?} {groups:?} {names:?}");
        }
    }
}
