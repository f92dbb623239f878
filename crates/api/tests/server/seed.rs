//! The field names that users wrote first, compared with the CRDs that the chart installs.
//!
//! The lists are literal. If a type loses a field or its camelCase names, its CRD and every fixture
//! change with it. Only a literal list detects that.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;
use api::kinds::{self, KindRow, OPERATORS};
use serde_json::{Value, json};

/// All fields of a TaskRun in the seed, with their types.
const TASK_RUN: &[(&str, &str)] = &[
    ("spec.taskId", "integer"),
    ("spec.serviceName", "string"),
    ("spec.agentName", "string"),
    ("spec.contextVersion", "integer"),
    ("spec.markdownFiles", "array"),
    ("spec.markdownFiles[].filename", "string"),
    ("spec.markdownFiles[].content", "string"),
    ("status.phase", "string"),
    ("status.jobName", "string"),
    ("status.configMapName", "string"),
    ("status.attempts", "integer"),
    ("status.lastUpdated", "string"),
    ("status.message", "string"),
    ("status.conditions", "array"),
    ("status.conditions[].type", "string"),
    ("status.conditions[].status", "string"),
    ("status.conditions[].lastTransitionTime", "string"),
    ("status.conditions[].reason", "string"),
    ("status.conditions[].message", "string"),
];

/// Fields of a TaskRun that the seed does not have. Fields below them are not listed.
const TASK_RUN_ADDED: &[&str] = &[
    "spec.cancel",
    "spec.childTTL",
    "spec.retry",
    "spec.suspend",
    "spec.timeout",
    "status.conditions[].observedGeneration",
    "status.configMapUid",
    "status.contextVersion",
    "status.deadlineAt",
    "status.disruptions",
    "status.finishedAt",
    "status.history",
    "status.jobUid",
    "status.nextAttemptAt",
    "status.observedGeneration",
    "status.phaseHistory",
    "status.phaseProgress",
    "status.phaseStartedAt",
    "status.pod",
    "status.reason",
    "status.result",
    "status.retry",
    "status.startedAt",
];

/// Fields of a DocsRun's status that a TaskRun has, too.
const DOCS_RUN: &[(&str, &str)] = &[
    ("status.phase", "string"),
    ("status.jobName", "string"),
    ("status.configMapName", "string"),
    ("status.attempts", "integer"),
    ("status.lastUpdated", "string"),
    ("status.message", "string"),
    ("status.conditions[].lastTransitionTime", "string"),
];

/// Fields of a Tenant's status in the seed.
const TENANT: &[(&str, &str)] = &[
    ("status.phase", "string"),
    ("status.message", "string"),
    ("status.namespace", "string"),
    ("status.redisStatus.readyReplicas", "integer"),
    ("status.redisStatus.totalReplicas", "integer"),
    ("status.serverStatus.readyReplicas", "integer"),
    ("status.serverStatus.totalReplicas", "integer"),
    ("status.conditions[].lastTransitionTime", "string"),
];

/// Returns the CRDs from the chart and from the types, by their plural names.
fn crds() -> Result<Vec<BTreeMap<String, Value>>> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/orchestrator/generated");
    let mut installed = BTreeMap::new();
    for operator in OPERATORS {
        for KindRow { resource, .. } in operator.kinds {
            let file = format!("crds/{}/{}.yaml", operator.name, resource.plural);
            let crd: Value = serde_saphyr::from_str(&fs::read_to_string(chart.join(file))?)?;
            installed.insert(resource.plural.to_owned(), crd);
        }
    }
    let made = kinds::all().map(|kind| (kind.resource.plural.to_owned(), json!(kind.crd())));
    Ok(vec![installed, made.collect()])
}

/// Collects the fields of a schema by their paths, without names that users choose.
fn fields<'a>(path: &str, schema: &'a Value, out: &mut BTreeMap<String, &'a Value>) {
    let properties = schema["properties"].as_object();
    for (name, field) in properties.into_iter().flat_map(|all| all.iter()) {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}.{name}"),
        };
        fields(&path, field, out);
        out.insert(path, field);
    }
    if schema["items"].is_object() {
        fields(&format!("{path}[]"), &schema["items"], out);
    }
    if schema["additionalProperties"].is_object() {
        fields(&format!("{path}{{}}"), &schema["additionalProperties"], out);
    }
}

fn version(crd: &Value) -> &Value {
    let versions = crd["spec"]["versions"].as_array();
    assert_eq!(versions.map(Vec::len), Some(1));
    &crd["spec"]["versions"][0]
}

fn fields_of(crd: &Value) -> BTreeMap<String, &Value> {
    let mut all = BTreeMap::new();
    fields("", &version(crd)["schema"]["openAPIV3Schema"], &mut all);
    assert!(all.len() > 20, "a schema of {} fields", all.len());
    all
}

#[test]
fn r06_the_crds_have_the_seeds_fields_by_name_and_type() {
    for crds in crds().unwrap() {
        for (plural, wanted) in [
            ("taskruns", TASK_RUN),
            ("docsruns", DOCS_RUN),
            ("tenants", TENANT),
        ] {
            let all = fields_of(&crds[plural]);
            for (path, kind) in wanted {
                let field = all.get(*path);
                let field = field.unwrap_or_else(|| panic!("{plural} has no '{path}'"));
                assert_eq!(field["type"], *kind, "{plural}: {path}");
            }
        }
    }
}

#[test]
fn r06_every_field_of_every_crd_is_in_camel_case() {
    let is_camel = |name: &str| {
        name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric())
    };
    for crds in crds().unwrap() {
        assert_eq!(crds.len(), kinds::all().count());
        for (plural, crd) in &crds {
            for path in fields_of(crd).keys() {
                let name = path.rsplit('.').next().unwrap();
                let name = name.trim_end_matches("[]").trim_end_matches("{}");
                assert!(is_camel(name), "{plural}: {path}");
            }
        }
    }
}

#[test]
fn a_task_run_is_the_seeds_and_what_is_listed_beside_it() {
    for crds in crds().unwrap() {
        let crd = &crds["taskruns"];
        assert_eq!(crd["metadata"]["name"], "taskruns.orchestrator.io");
        assert_eq!(crd["spec"]["group"], "orchestrator.io");
        assert_eq!(crd["spec"]["scope"], "Namespaced");
        let version = version(crd);
        assert_eq!(
            (&version["name"], &version["served"], &version["storage"]),
            (&json!("v1"), &json!(true), &json!(true))
        );
        assert_eq!(version["subresources"]["status"], json!({}));
        let all = fields_of(crd);
        let phases = json!(["Pending", "Running", "Succeeded", "Failed"]);
        assert_eq!(all["status.phase"]["enum"], phases);
        assert_eq!(all["status.attempts"]["default"], 0);
        for path in all.keys() {
            let is_seeds = TASK_RUN.iter().any(|(known, _)| known == path);
            let is_added = TASK_RUN_ADDED.iter().any(|added| {
                let below = path.strip_prefix(added);
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
            });
            let is_root = ["spec", "status"].contains(&path.as_str());
            assert!(is_seeds || is_added || is_root, "'{path}' is in no list");
        }
        for added in TASK_RUN_ADDED {
            assert!(all.contains_key(*added), "'{added}' is not in the CRD");
        }
    }
}
