//! The chart as helm renders it, without a cluster.

mod gateway;
mod network;
mod pod_settings;
mod policies;
mod rollout;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use testkit::layout;

use super::shell::Shell;
use crate::cases::Report;
pub(super) use gateway::permissions as gateway_permissions;
pub(super) use rules::{Rule, Rules, generated};

const CHART: &str = "charts/orchestrator";
pub(crate) const NAMESPACE: &str = "orchestrator-system";
/// `helm template` knows no server; this is the oldest that the chart allows.
const KUBERNETES: &str = "1.34";

/// API of a cluster with the Prometheus Operator. `helm template` knows no API of a CRD.
const APIS: &str = " --api-versions monitoring.coreos.com/v1/ServiceMonitor";

/// Ways to install that must all come out whole: the release's name, and values.
const VARIANTS: &[(&str, &str)] = &[
    ("orchestrator", ""),
    ("orchestrator", "--set 'watchNamespaces={team-a,team-b}'"),
    // Where the rights of a watched namespace and those of the own one meet.
    (
        "orchestrator",
        "--set 'watchNamespaces={orchestrator-system}'",
    ),
    (
        "ours",
        "--set metrics.service=true --set config.log.filter=debug --set config.concurrency=4 \
         --set 'image.pullSecrets={registry}' --set image.repository=registry.example:5000/o/orchestrator",
    ),
    (
        "ours",
        "--set operators.tasks.replicas=1 --set crds.install=false",
    ),
    (
        "ours",
        "--set admissionPolicies.enabled=false --set 'watchNamespaces={team-a}'",
    ),
    // As long as helm allows.
    (
        "a-release-whose-name-is-as-long-as-helm-allows-it-to",
        "--set metrics.service=true --set operators.tenants.enabled=true",
    ),
    ("orchestrator", "--set operators.tenants.enabled=true"),
    (
        "orchestrator",
        "--set operators.tenants.enabled=true --set metrics.service=true \
         --set metrics.from[0].namespaceSelector.matchLabels.team=monitoring",
    ),
    ("ours", "--set networkPolicy.enabled=false"),
    (
        "ours",
        "--set operators.tenants.enabled=true --set metrics.service=true --set metrics.serviceMonitor.enabled=true \
         --set metrics.serviceMonitor.interval=15s --set metrics.serviceMonitor.labels.release=prometheus",
    ),
    ("orchestrator", pod_settings::VALUES),
    (
        "ours",
        "--set operators.tasks.enabled=false --set operators.tenants.enabled=true \
         --set config.tenants.probeImage=registry.example/toolbox:1",
    ),
    (
        "ours",
        "--set operators.tenants.enabled=true --set 'admissionPolicies.tenantPriorityClasses={gold,silver}'",
    ),
    ("orchestrator", "--set operators.apps.enabled=true"),
    (
        "orchestrator",
        "--set operators.tasks.enabled=false --set operators.notebooks.enabled=true --set 'watchNamespaces={team}' \
         --set config.notebooks.results.maxBytes=8192",
    ),
    (
        "ours",
        "--set operators.tasks.enabled=false --set operators.apps.enabled=true --set 'watchNamespaces={shop,flux-system}' \
         --set config.apps.helm.readReleaseSecrets=false",
    ),
    (
        "ours",
        "--set operators.tenants.enabled=true --set operators.tenants.replicas=1 --set crds.install=false \
         --set 'admissionPolicies.labelWriters={system:serviceaccount:tekton-pipelines:controller,backup@example.com}' \
         --set 'admissionPolicies.protectedNamespaces={kube-system,argocd}' \
         --set 'admissionPolicies.powerfulServiceAccounts={ops/admin}'",
    ),
];

/// Values that must be refused, and what the refusal must name.
const REFUSED: &[(&str, &str)] = &[
    ("--set replicas=3", "replicas"),
    ("--set operators.task.enabled=true", "task"),
    ("--set operators.tasks.replicas=0", "replicas"),
    (
        "--set operators.tasks.enabled=false",
        "operators.tasks.enabled",
    ),
    ("--set operators.tenants.replicas=0", "replicas"),
    ("--set gateway.replicas=0", "replicas"),
    ("--set gateway.tlsSecret=Tls", "tlsSecret"),
    ("--set gateway.service.type=ExternalName", "type"),
    ("--set config.gateway.pm.namespace=Pm", "namespace"),
    ("--set operators.tenants.enabled=yes", "enabled"),
    (
        "--set operators.tenants.enabled=true --set 'watchNamespaces={a}'",
        "'watchNamespaces' must be empty",
    ),
    ("--set config=text", "config"),
    ("--set config.concurency=4", "concurency"),
    ("--set config.concurrency=0", "concurrency"),
    ("--set config.tasks.cleanup.enable=true", "enable"),
    (
        "--set config.tasks.defaultResources.limit.memory=1Gi",
        "limit",
    ),
    ("--set config.tenants.objectLimits.pod=1", "pod"),
    ("--set operators.tasks.nodeSelecter.a=b", "nodeSelecter"),
    (
        "--set operators.tasks.affinity.nodeAfinity.a=b",
        "nodeAfinity",
    ),
    ("--set operators.tasks.tolerations[0].keys=a", "keys"),
    ("--set operators.tasks.extraEnv[0].value=a", "name"),
    (
        r"--set operators.tasks.podLabels.app\\.kubernetes\\.io/name=a",
        "app.kubernetes.io/name",
    ),
    (
        r"--set operators.tenants.podLabels.orchestrator\\.io/uid=a",
        "orchestrator.io/uid",
    ),
    (
        "--set operators.tasks.podAnnotations.checksum/config=a",
        "checksum/config",
    ),
    (
        "--set metrics.serviceMonitor.enabled=true",
        "needs 'metrics.service=true'",
    ),
    (
        "--set metrics.serviceMonitor.enabled=true --set metrics.service=true",
        "servicemonitors.monitoring.coreos.com",
    ),
    ("--set 'config.watchNamespaces={a}'", "beside 'config'"),
    ("--set 'watchNamespaces={a,a}'", "watchNamespaces"),
    ("--set 'watchNamespaces={A}'", "watchNamespaces"),
    ("--set image.digest=latest", "digest"),
    (
        "--set-string admissionPolicies.enabled=yes",
        "admissionPolicies",
    ),
    ("--set admissionPolicies.enable=false", "admissionPolicies"),
    ("--set networkPolicy.enable=false", "networkPolicy"),
    ("--set metrics.from=monitoring", "from"),
    ("--set metrics.from[0].namespace=monitoring", "from"),
    // It would be a peer that means nothing.
    ("--set-json 'metrics.from=[{}]'", "from"),
    (
        "--set 'admissionPolicies.tenantPriorityClasses={Gold}'",
        "tenantPriorityClasses",
    ),
    (
        "--set operators.tenants.enabled=true --set admissionPolicies.enabled=false",
        "'operators.tenants.enabled' needs 'admissionPolicies.enabled=true'",
    ),
    (
        "--set operators.apps.enabled=true --set admissionPolicies.enabled=false",
        "'operators.apps.enabled' needs 'admissionPolicies.enabled=true'",
    ),
    (
        "--set config.apps.helm.readReleaseSecret=false",
        "readReleaseSecret",
    ),
    (
        r#"--set "admissionPolicies.labelWriters={it's}""#,
        "labelWriters",
    ),
    (
        "--set 'admissionPolicies.protectedNamespaces={A}'",
        "protectedNamespaces",
    ),
    (
        "--set 'admissionPolicies.powerfulServiceAccounts={admin}'",
        "powerfulServiceAccounts",
    ),
    (
        "--set 'watchNamespaces={kube-system}'",
        "'admissionPolicies.protectedNamespaces'",
    ),
];

/// Reports each promise of the chart.
pub(super) async fn run(report: &mut Report) -> Result<()> {
    let shell = Shell::without_cluster()?;
    let start = Instant::now();
    let linted = lint(&shell).await;
    report.case("lint", start, linted);
    let start = Instant::now();
    let refused = refuses(&shell).await;
    report.case("refused", start, refused);

    let start = Instant::now();
    let gateway = gateway::check(&shell).await;
    report.case("gateway", start, gateway);

    let start = Instant::now();
    let rendered = render_all(&shell).await;
    let Ok(rendered) = &rendered else {
        report.case("render", start, rendered.map(|_| String::new()));
        for name in [
            "r17",
            "rules",
            "definitions",
            "policies",
            "network",
            "pod-settings",
        ] {
            report.skipped(name, "nothing is rendered");
        }
        return Ok(());
    };
    report.case("r17", start, r17(rendered));
    report.case("rules", Instant::now(), rules::check(rendered));
    report.case("definitions", Instant::now(), definitions(rendered));
    report.case("policies", Instant::now(), policies::check(rendered));
    report.case("network", Instant::now(), network::check(rendered));
    let settings = pod_settings::check(rendered);
    report.case("pod-settings", Instant::now(), settings);
    Ok(())
}

async fn lint(shell: &Shell) -> Result<String> {
    for (_, values) in VARIANTS {
        let line =
            format!("helm lint --strict --quiet {CHART} --kube-version {KUBERNETES} {values}");
        shell.check(&line).await?;
    }
    Ok(format!(
        "'helm lint --strict' with {} sets of values",
        VARIANTS.len()
    ))
}

async fn refuses(shell: &Shell) -> Result<String> {
    for (values, named) in REFUSED {
        let line = template("orchestrator", values);
        let output = shell.run(&line).await?;
        ensure!(!output.status.success(), "'{values}' was not refused");
        ensure!(
            output.stderr.contains(named),
            "the refusal of '{values}' does not name '{named}': {}",
            output.stderr
        );
    }
    Ok(format!(
        "{} wrong values are refused by name",
        REFUSED.len()
    ))
}

pub(super) fn template(release: &str, values: &str) -> String {
    format!(
        "helm template {release} {CHART} --namespace {NAMESPACE} --kube-version {KUBERNETES} {values}"
    )
}

/// What one variant renders to.
struct Rendered {
    values: &'static str,
    objects: Vec<Value>,
}

impl Rendered {
    /// The enabled operators, by what their Deployments say; each with the name that all that belongs to
    /// it begins with.
    fn operators(&self) -> Result<BTreeMap<&str, &str>> {
        let operators: BTreeMap<&str, &str> = of_kind(&self.objects, "Deployment")
            .map(|object| (component(object), text(object, "/metadata/name")))
            .collect();
        ensure!(!operators.is_empty(), "with '{}': no operator", self.values);
        Ok(operators)
    }
}

/// The operator that an object belongs to.
fn component(object: &Value) -> &str {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get("app.kubernetes.io/component"))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

async fn render_all(shell: &Shell) -> Result<Vec<Rendered>> {
    let mut all = Vec::new();
    for (release, values) in VARIANTS {
        let text = shell.check(&(template(release, values) + APIS)).await?;
        let objects: Vec<Option<Value>> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("with '{values}'"))?;
        all.push(Rendered {
            values,
            objects: objects.into_iter().flat_map(Option::into_iter).collect(),
        });
    }
    Ok(all)
}

/// Every reference has a name, and what it names is rendered.
fn r17(rendered: &[Rendered]) -> Result<String> {
    let mut count = 0;
    for Rendered { values, objects } in rendered {
        let found = references(objects);
        let maps = found.iter().filter(|found| found.kind == "ConfigMap");
        ensure!(
            maps.count() == of_kind(objects, "Deployment").count(),
            "with '{values}': not every Deployment has its configuration"
        );
        let dangling: Vec<String> = found
            .iter()
            .filter(|reference| !reference.resolves(objects))
            .map(|reference| format!("{reference:?}"))
            .collect();
        ensure!(
            dangling.is_empty(),
            "with '{values}': {}",
            dangling.join("; ")
        );
        count += found.len();
    }
    ensure!(
        count > 0,
        "no references were found: this case shows nothing"
    );
    rollout::check(rendered)?;
    Ok(format!(
        "{count} references to ConfigMaps, ServiceAccounts, roles and Pods resolve, in {} renderings",
        rendered.len()
    ))
}

/// A reference from one object to another.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    from: String,
    kind: String,
    namespace: String,
    name: String,
    /// Instead of a name: the labels that a Service, or the Pods of a Deployment, must have.
    labels: Option<Value>,
}

impl Reference {
    fn resolves(&self, objects: &[Value]) -> bool {
        let there = |object: &&Value| {
            text(object, "/kind") == self.kind
                && text(object, "/metadata/namespace") == self.namespace
        };
        let mut candidates = objects.iter().filter(there);
        match self.labels.as_ref().map(Value::as_object) {
            None => {
                !self.name.is_empty()
                    && candidates.any(|object| text(object, "/metadata/name") == self.name)
            }
            Some(None) => false,
            Some(Some(labels)) => {
                let at = match self.kind.as_str() {
                    "Deployment" => "/spec/template/metadata/labels",
                    _ => "/metadata/labels",
                };
                !labels.is_empty()
                    && candidates.any(|object| {
                        labels.iter().all(|(key, value)| {
                            object.pointer(at).and_then(|has| has.get(key)) == Some(value)
                        })
                    })
            }
        }
    }
}

fn references(objects: &[Value]) -> Vec<Reference> {
    let mut found = Vec::new();
    for object in objects {
        let (kind, namespace) = (text(object, "/kind"), text(object, "/metadata/namespace"));
        let from = format!("{kind} {}", text(object, "/metadata/name"));
        let mut named = |kind: &str, namespace: &str, name: &str| {
            found.push(Reference {
                from: from.clone(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                labels: None,
            });
        };
        match kind {
            "Deployment" => {
                let pod = object
                    .pointer("/spec/template/spec")
                    .unwrap_or(&Value::Null);
                named(
                    "ServiceAccount",
                    namespace,
                    text(pod, "/serviceAccountName"),
                );
                in_pod(pod, &mut |kind, name| named(kind, namespace, name));
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                let role = text(object, "/roleRef/kind");
                let place = if role == "Role" { namespace } else { "" };
                named(role, place, text(object, "/roleRef/name"));
                for subject in list(object, "/subjects") {
                    let place = text(subject, "/namespace");
                    named(text(subject, "/kind"), place, text(subject, "/name"));
                }
            }
            "Service" | "PodDisruptionBudget" | "NetworkPolicy" | "ServiceMonitor" => {
                let (to, at) = match kind {
                    "Service" => ("Deployment", "/spec/selector"),
                    "NetworkPolicy" => ("Deployment", "/spec/podSelector/matchLabels"),
                    "ServiceMonitor" => ("Service", "/spec/selector/matchLabels"),
                    _ => ("Deployment", "/spec/selector/matchLabels"),
                };
                found.push(Reference {
                    from: from.clone(),
                    kind: to.to_owned(),
                    namespace: namespace.to_owned(),
                    name: String::new(),
                    labels: Some(object.pointer(at).cloned().unwrap_or_default()),
                });
            }
            _ => {}
        }
    }
    found
}

/// References to ConfigMaps and Secrets, wherever in a Pod they are.
fn in_pod(value: &Value, found: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "configMap" | "configMapRef" | "configMapKeyRef" => {
                        found("ConfigMap", text(value, "/name"));
                    }
                    "secret" => found("Secret", text(value, "/secretName")),
                    "secretRef" | "secretKeyRef" => found("Secret", text(value, "/name")),
                    _ => in_pod(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| in_pod(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn folder() -> PathBuf {
    layout::repository().join(CHART).join("generated")
}

/// The list in the configuration file that the operator reads.
fn watched_namespaces(objects: &[Value]) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        watch_namespaces: Vec<String>,
    }
    let map = of_kind(objects, "ConfigMap")
        .next()
        .context("no ConfigMap")?;
    let file = map
        .pointer("/data/config.yaml")
        .and_then(Value::as_str)
        .context("no 'config.yaml' in the ConfigMap")?;
    let Config { watch_namespaces } = serde_saphyr::from_str(file).context("config.yaml")?;
    Ok(watch_namespaces)
}

/// The generated definitions of an operator's kinds: names and specs.
pub(super) fn kinds(operator: &str) -> Result<BTreeMap<String, Value>> {
    let folder = folder().join("crds").join(operator);
    let mut kinds = BTreeMap::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot read '{}'", folder.display()))?
    {
        let path = entry?.path();
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(&path)?)
            .with_context(|| format!("'{}'", path.display()))?;
        kinds.insert(text(&crd, "/metadata/name").to_owned(), crd["spec"].clone());
    }
    ensure!(!kinds.is_empty(), "'{}' is empty", folder.display());
    Ok(kinds)
}

/// The kinds of enabled operators are defined as generated, and stay when the release goes; no others.
fn definitions(rendered: &[Rendered]) -> Result<String> {
    let mut seen = BTreeSet::new();
    for one in rendered {
        let Rendered { values, objects } = one;
        let mut wanted = BTreeMap::new();
        for operator in one.operators()?.into_keys() {
            wanted.extend(kinds(operator)?);
        }
        seen.extend(wanted.keys().cloned());
        let mut given = BTreeMap::new();
        for crd in of_kind(objects, "CustomResourceDefinition") {
            let name = text(crd, "/metadata/name").to_owned();
            ensure!(
                crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep",
                "'{name}' would be deleted by 'helm uninstall', with all its objects"
            );
            given.insert(name, crd["spec"].clone());
        }
        if values.contains("crds.install=false") {
            ensure!(given.is_empty(), "with '{values}': definitions");
        } else {
            ensure!(
                given == wanted,
                "with '{values}': definitions differ from the generated ones of what is enabled: {:?}",
                given.keys().collect::<Vec<_>>()
            );
        }
    }
    Ok(format!(
        "{} kinds, those of enabled operators only, kept on uninstall",
        seen.len()
    ))
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects
        .iter()
        .filter(move |object| text(object, "/kind") == kind)
}

/// The text at a place; empty when there is none.
fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value
        .pointer(at)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value
        .pointer(at)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(pod: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "d", "namespace": "n"},
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}})
    }

    fn dangling(objects: &[Value]) -> Vec<String> {
        references(objects)
            .iter()
            .filter(|reference| !reference.resolves(objects))
            .map(|reference| format!("{} {}", reference.kind, reference.name))
            .collect()
    }

    /// With the testbed's helm, without a cluster.
    #[tokio::test]
    #[ignore = "cluster: run by 'cargo xtask test'"]
    async fn what_helm_renders_is_what_was_generated() {
        let mut report = Report::start("chart").unwrap();
        run(&mut report).await.unwrap();
        let summary = report.summary;
        assert!(summary.is_success() && summary.skipped == 0, "{summary}");
    }

    #[test]
    fn r17_an_empty_or_wrong_name_is_found() {
        let account =
            json!({"kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "n"}});
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
        let mounts = |name: Value| json!({"serviceAccountName": "s", "volumes": [{"name": "v", "configMap": {"name": name}}]});
        let wrong: [(Value, &[&str]); 6] = [
            (mounts(json!("c")), &[]),
            (mounts(json!("")), &["ConfigMap "]),
            (mounts(Value::Null), &["ConfigMap "]),
            (mounts(json!("other")), &["ConfigMap other"]),
            (json!({}), &["ServiceAccount "]),
            (
                json!({"serviceAccountName": "s", "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "x"}}}]}]}),
                &["Secret x"],
            ),
        ];
        for (pod, wanted) in wrong {
            let objects = [account.clone(), map.clone(), deployment(pod)];
            assert_eq!(dangling(&objects), wanted, "{objects:?}");
        }
        // The same names in another namespace do not count.
        let mut elsewhere = [account, map, deployment(mounts(json!("c")))];
        elsewhere[1]["metadata"]["namespace"] = json!("other");
        assert_eq!(dangling(&elsewhere), ["ConfigMap c"]);
    }

    #[test]
    fn r17_bindings_and_selectors_are_looked_at() {
        let binding = json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "n"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]});
        assert_eq!(dangling(&[binding]), ["Role r", "ServiceAccount s"]);
        let service = |selector: Value| json!({"kind": "Service", "metadata": {"name": "m", "namespace": "n"}, "spec": {"selector": selector}});
        let account =
            json!({"kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "n"}});
        for (selector, wanted) in [
            (json!({"a": "b"}), 0),
            (json!({"a": "c"}), 1),
            (json!({}), 1),
            (Value::Null, 1),
        ] {
            let pods = deployment(json!({"serviceAccountName": "s"}));
            let objects = [account.clone(), pods, service(selector)];
            assert_eq!(dangling(&objects).len(), wanted, "{objects:?}");
        }
    }
}
