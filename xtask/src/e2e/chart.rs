//! The chart as helm renders it, without a cluster.

mod policies;

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

use super::{Report, shell::Shell};

const CHART: &str = "charts/orchestrator";
pub(crate) const NAMESPACE: &str = "orchestrator-system";
/// `helm template` knows no server; this is the oldest that the chart allows.
const KUBERNETES: &str = "1.34";

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
        "--set families.tasks.replicas=1 --set crds.install=false",
    ),
    (
        "ours",
        "--set admissionPolicies.enabled=false --set 'watchNamespaces={team-a}'",
    ),
    // As long as helm allows.
    (
        "a-release-whose-name-is-as-long-as-helm-allows-it-to",
        "--set metrics.service=true",
    ),
];

/// Values that must be refused, and what the refusal must name.
const REFUSED: &[(&str, &str)] = &[
    ("--set replicas=3", "replicas"),
    ("--set families.task.enabled=true", "task"),
    ("--set families.tasks.replicas=0", "replicas"),
    (
        "--set families.tasks.enabled=false",
        "families.tasks.enabled",
    ),
    ("--set config=text", "config"),
    ("--set 'config.watchNamespaces={a}'", "beside 'config'"),
    ("--set 'watchNamespaces={a,a}'", "watchNamespaces"),
    ("--set 'watchNamespaces={A}'", "watchNamespaces"),
    ("--set image.digest=latest", "digest"),
    (
        "--set-string admissionPolicies.enabled=yes",
        "admissionPolicies",
    ),
    ("--set admissionPolicies.enable=false", "admissionPolicies"),
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
    let rendered = render_all(&shell).await;
    let Ok(rendered) = &rendered else {
        report.case("render", start, rendered.map(|_| String::new()));
        for name in ["r17", "rules", "definitions", "policies"] {
            report.skipped(name, "nothing is rendered");
        }
        return Ok(());
    };
    report.case("r17", start, r17(rendered));
    report.case("rules", Instant::now(), rules(rendered));
    report.case("definitions", Instant::now(), definitions(rendered));
    report.case("policies", Instant::now(), policies::check(rendered));
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

fn template(release: &str, values: &str) -> String {
    format!(
        "helm template {release} {CHART} --namespace {NAMESPACE} --kube-version {KUBERNETES} {values}"
    )
}

/// What one variant renders to.
struct Rendered {
    values: &'static str,
    objects: Vec<Value>,
}

async fn render_all(shell: &Shell) -> Result<Vec<Rendered>> {
    let mut all = Vec::new();
    for (release, values) in VARIANTS {
        let text = shell.check(&template(release, values)).await?;
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
    /// Instead of a name: the labels that a Deployment's Pods must have.
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
                !labels.is_empty()
                    && candidates.any(|object| {
                        labels.iter().all(|(key, value)| {
                            object
                                .pointer("/spec/template/metadata/labels")
                                .and_then(|has| has.get(key))
                                == Some(value)
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
            "Service" | "PodDisruptionBudget" => {
                let at = if kind == "Service" {
                    "/spec/selector"
                } else {
                    "/spec/selector/matchLabels"
                };
                found.push(Reference {
                    from: from.clone(),
                    kind: "Deployment".to_owned(),
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

/// The rules of the operator's own table, as `cargo xtask generate` wrote them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    /// In the watched namespaces.
    #[serde(rename = "namespacedRules")]
    pub(super) watched: Vec<Rule>,
    /// On what belongs to no namespace.
    #[serde(rename = "clusterRules")]
    pub(super) cluster: Vec<Rule>,
    /// In the operator's namespace.
    #[serde(rename = "ownNamespaceRules")]
    pub(super) own: Vec<Rule>,
}

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) api_groups: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) verbs: Vec<String>,
}

/// What was generated for the tasks family.
pub(super) fn generated() -> Result<Rules> {
    let path = folder().join("rbac-tasks.yaml");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("no '{}': run 'cargo xtask generate'", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("'{}'", path.display()))
}

fn folder() -> PathBuf {
    layout::repository().join(CHART).join("generated")
}

/// Rules by the kind of role that has them, and its namespace.
type Given = BTreeMap<(String, String), BTreeSet<Rule>>;

fn give(given: &mut Given, kind: &str, namespace: &str, rules: &[Rule]) {
    given
        .entry((kind.to_owned(), namespace.to_owned()))
        .or_default()
        .extend(rules.iter().cloned());
}

/// Roles have exactly the generated rules, where they belong, and no wildcard.
fn rules(rendered: &[Rendered]) -> Result<String> {
    let Rules {
        watched,
        cluster,
        own,
    } = generated()?;
    for rule in watched.iter().chain(&cluster).chain(&own) {
        let Rule {
            api_groups,
            resources,
            verbs,
        } = rule;
        let words = api_groups.iter().chain(resources).chain(verbs);
        ensure!(
            words.into_iter().all(|word| !word.contains('*')),
            "a wildcard: {rule:?}"
        );
    }
    for Rendered { values, objects } in rendered {
        let mut wanted = Given::new();
        give(&mut wanted, "ClusterRole", "", &cluster);
        give(&mut wanted, "Role", NAMESPACE, &own);
        let namespaces = watched_namespaces(objects)?;
        if namespaces.is_empty() {
            give(&mut wanted, "ClusterRole", "", &watched);
        }
        for namespace in &namespaces {
            give(&mut wanted, "Role", namespace, &watched);
        }
        let mut given = Given::new();
        for kind in ["ClusterRole", "Role"] {
            let roles = || of_kind(objects, kind).filter(|role| !policies::is_for_users(role));
            for role in roles() {
                let rules: Vec<Rule> =
                    serde_json::from_value(role.get("rules").cloned().unwrap_or_default())
                        .with_context(|| format!("with '{values}': rules of a {kind}"))?;
                give(&mut given, kind, text(role, "/metadata/namespace"), &rules);
            }
            let roles = roles().count();
            let bindings = of_kind(objects, &format!("{kind}Binding")).count();
            ensure!(
                roles == bindings,
                "with '{values}': {roles} {kind}s, but {bindings} bindings"
            );
        }
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
    let count = watched.len() + cluster.len() + own.len();
    Ok(format!(
        "exactly the {count} generated rules, each where it belongs, without a wildcard"
    ))
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

/// The generated definitions of kinds: names and specs.
pub(super) fn kinds() -> Result<BTreeMap<String, Value>> {
    let folder = folder().join("crds");
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

/// The kinds are defined as generated, and stay when the release goes.
fn definitions(rendered: &[Rendered]) -> Result<String> {
    let wanted = kinds()?;
    for Rendered { values, objects } in rendered {
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
                "with '{values}': definitions differ from the generated ones"
            );
        }
    }
    Ok(format!("{} kinds, kept on uninstall", wanted.len()))
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
