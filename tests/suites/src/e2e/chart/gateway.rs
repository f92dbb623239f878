//! The gateway of the chart: off by default, and without permissions and credentials.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Shell, component, list, of_kind, template, text};

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
    let account = "orchestrator-gateway";
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        for binding in of_kind(objects, kind) {
            let mut subjects = list(binding, "/subjects").iter();
            ensure!(
                subjects.all(|subject| subject["name"] != account),
                "{kind} '{}' gives it permissions",
                text(binding, "/metadata/name")
            );
        }
    }
    let mut deployments = of_gateway(objects).filter(|one| one["kind"] == "Deployment");
    let deployment = deployments.next().context("no Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == account);
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
