//! The gateway of the chart: off by default, and without permissions and credentials.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Shell, component, list, of_kind, template, text};

/// The ServiceAccount of the gateway.
const ACCOUNT: &str = "orchestrator-gateway";

/// Ways to enable the gateway, and whether it has a certificate.
const VARIANTS: &[(&str, bool)] = &[
    ("--set gateway.enabled=true", false),
    (
        "--set gateway.enabled=true --set gateway.tlsSecret=gateway-tls --set gateway.replicas=3 \
         --set gateway.service.type=LoadBalancer --set metrics.service=true",
        true,
    ),
    (
        "--set gateway.enabled=true --set 'watchNamespaces={team-a}' --set networkPolicy.enabled=false",
        false,
    ),
];

pub(super) async fn check(shell: &Shell) -> Result<String> {
    let objects = render(shell, "").await?;
    ensure!(
        of_gateway(&objects).next().is_none(),
        "the gateway is installed by default"
    );
    for (values, has_certificate) in VARIANTS {
        let objects = render(shell, values).await?;
        of_variant(&objects, *has_certificate).with_context(|| format!("with '{values}'"))?;
    }
    Ok(format!(
        "off by default; {} variants without a Role and without a token",
        VARIANTS.len()
    ))
}

/// Returns the permissions that the chart gives the gateway: verb and resource, one by one.
pub(in crate::e2e) async fn permissions() -> Result<BTreeSet<(String, String)>> {
    let shell = Shell::without_cluster()?;
    let objects = render(&shell, "--set gateway.enabled=true").await?;
    let accounts = of_kind(&objects, "ServiceAccount");
    let mut names = accounts.map(|account| text(account, "/metadata/name"));
    ensure!(
        names.any(|name| name == ACCOUNT),
        "the gateway has no ServiceAccount"
    );
    permissions_of(&objects)
}

fn permissions_of(objects: &[Value]) -> Result<BTreeSet<(String, String)>> {
    let mut all = BTreeSet::new();
    let bindings = ["RoleBinding", "ClusterRoleBinding"];
    for binding in bindings.iter().flat_map(|kind| of_kind(objects, kind)) {
        let mut subjects = list(binding, "/subjects").iter();
        if !subjects.any(|subject| subject["name"] == ACCOUNT) {
            continue;
        }
        let (kind, name) = (
            text(binding, "/roleRef/kind"),
            text(binding, "/roleRef/name"),
        );
        let mut roles = of_kind(objects, kind);
        let role = roles.find(|role| text(role, "/metadata/name") == name);
        let role = role.with_context(|| format!("{kind} '{name}' is not in the chart"))?;
        for rule in list(role, "/rules") {
            let texts = |at: &'static str| list(rule, at).iter().filter_map(Value::as_str);
            for verb in texts("/verbs") {
                let resources = texts("/resources");
                all.extend(resources.map(|resource| (verb.to_owned(), resource.to_owned())));
            }
        }
    }
    Ok(all)
}

async fn render(shell: &Shell, values: &str) -> Result<Vec<Value>> {
    let text = shell.check(&template("orchestrator", values)).await?;
    let objects: Vec<Option<Value>> = serde_saphyr::from_multiple(&text)?;
    Ok(objects.into_iter().flat_map(Option::into_iter).collect())
}

fn of_gateway(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects
        .iter()
        .filter(|object| component(object) == "gateway")
}

fn of_variant(objects: &[Value], has_certificate: bool) -> Result<()> {
    for object in of_gateway(objects) {
        let kind = text(object, "/kind");
        let known = [
            "ServiceAccount",
            "Deployment",
            "Service",
            "PodDisruptionBudget",
            "NetworkPolicy",
        ];
        ensure!(known.contains(&kind), "it has a {kind}");
    }
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        for binding in of_kind(objects, kind) {
            let mut subjects = list(binding, "/subjects").iter();
            ensure!(
                subjects.all(|subject| subject["name"] != ACCOUNT),
                "{kind} '{}' gives it permissions",
                text(binding, "/metadata/name")
            );
        }
    }
    let mut deployments = of_gateway(objects).filter(|one| one["kind"] == "Deployment");
    let deployment = deployments.next().context("no Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == ACCOUNT);
    ensure!(
        pod["automountServiceAccountToken"] == false,
        "its Pods have a token"
    );
    ensure!(
        !pod.to_string().contains("serviceAccountToken"),
        "a volume has a token"
    );
    let container = list(pod, "/containers").first().context("no container")?;
    let arguments = list(container, "/args");
    ensure!(arguments.contains(&"--operator=gateway".into()));
    let has_directory = arguments.contains(&"--tls-directory=/tls".into());
    ensure!(has_directory == has_certificate, "{arguments:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permissions_of_the_account_are_found_in_bound_roles() {
        let role = json!({ "kind": "ClusterRole", "metadata": { "name": "namespaces" },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] }] });
        let binding = |role: &str, account: &str| {
            json!({ "kind": "ClusterRoleBinding", "metadata": { "name": "b" },
                "roleRef": { "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "ServiceAccount", "name": account }] })
        };
        let found = |binding: Value| {
            let found = permissions_of(&[role.clone(), binding]);
            found
                .map(|all| all.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(found(binding("namespaces", ACCOUNT)), Ok(2));
        assert_eq!(found(binding("namespaces", "orchestrator-tasks")), Ok(0));
        let missing = found(binding("view", ACCOUNT)).unwrap_err();
        assert!(missing.contains("'view' is not in the chart"), "{missing}");
    }
}
