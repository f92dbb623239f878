use std::collections::BTreeSet;

use api::tenants::TenantSpec;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::build::{BuildContext, Settings, children, namespace, secret};

/// Returns a spec with all fields.
fn whole() -> Value {
    json!({
        "displayName": "Shop", "description": "Sells things", "namespace": "shop",
        "owners": [{ "kind": "ServiceAccount", "name": "ann", "namespace": "people" }],
        "resources": {
            "cpu": { "request": "1", "limit": "2" },
            "memory": { "request": "1Gi", "limit": "2Gi" },
            "storage": { "total": "2Gi", "perVolume": "1Gi" },
            "pods": { "limit": 10 },
        },
        "server": {
            "image": "server:1", "replicas": 2, "port": 3030,
            "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
            "env": [
                { "name": "A", "value": "1" },
                { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } },
                { "name": "C", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k", "optional": true } } },
            ],
            "probes": {
                "readiness": { "path": "/r", "periodSeconds": 5, "failureThreshold": 2 },
                "liveness": { "path": "/l", "periodSeconds": 5, "failureThreshold": 2 },
            },
        },
        "redis": {
            "image": "redis:7",
            "storage": { "size": "1Gi", "storageClassName": "fast" },
            "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
            "config": { "maxmemory": "1gb" },
        },
        "networkPolicy": {
            "enabled": true, "allowedNamespaces": ["ingress"],
            // 'internet' is rejected here. It is included for the schema only.
            "ingressRules": [{
                "from": [{ "namespace": "a" }, { "network": "10.0.0.0/8" }, { "internet": true }],
                "ports": [{ "protocol": "TCP", "port": 1 }],
            }],
            "egressRules": [{
                "to": [{ "namespace": "a" }, { "network": "10.0.0.0/8" }, { "internet": true }],
                "ports": [{ "protocol": "TCP", "port": 1 }],
            }],
        },
        "isolation": { "probe": true },
        "deletion": { "policy": "Delete", "deadline": "5m" },
        "suspend": false,
    })
}

/// Fields that a decision reads instead of a builder, with the test of each.
const DECIDED: &[(&str, &str)] = &[
    (
        "deletion.deadline",
        "r56_the_deadline_of_the_spec_ends_the_wait",
    ),
    ("deletion.policy", "what_is_retained_can_be_taken_back"),
    ("isolation.probe", "nobody_tries_what_nobody_asks_for"),
];

/// Source files of the tests in [`DECIDED`].
const SOURCES: &[&str] = &[include_str!("deleting.rs"), include_str!("fields.rs")];

/// Returns all manifests of a spec.
fn made(spec: &Value) -> Value {
    let spec: TenantSpec = serde_json::from_value(spec.clone()).unwrap();
    let settings = Settings::default();
    let of = BuildContext {
        name: "shop",
        uid: "uid",
        spec: &spec,
        settings: &settings,
    };
    let all = children(of, Some("secret")).into_iter();
    let all: Vec<Value> = all.map(|one| one.body).collect();
    json!([all, namespace(of).body, secret(of, "p").map(|one| one.body)])
}

/// Collects the paths of all leaf fields. `[]` stands for the items of a list, `*` for any key.
fn leaves(schema: &JSONSchemaProps, path: &str, found: &mut BTreeSet<String>) {
    let deeper = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let mut is_leaf = true;
    for (name, inner) in schema.properties.iter().flat_map(|all| all.iter()) {
        is_leaf = false;
        leaves(inner, &deeper(name), found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
        is_leaf = false;
        leaves(inner, &deeper("[]"), found);
    }
    if schema.additional_properties.is_some() {
        is_leaf = false;
        found.insert(deeper("*"));
    }
    if is_leaf {
        found.insert(path.to_owned());
    }
}

/// Returns the JSON pointer of each value at a path.
fn values(value: &Value, path: &[&str], at: String) -> Vec<String> {
    let Some((first, rest)) = path.split_first() else {
        return vec![at];
    };
    match (*first, value) {
        ("[]", Value::Array(items)) => {
            let each = items.iter().enumerate();
            each.flat_map(|(index, item)| values(item, rest, format!("{at}/{index}")))
                .collect()
        }
        ("*", Value::Object(fields)) => fields
            .iter()
            .flat_map(|(name, field)| values(field, rest, format!("{at}/{name}")))
            .collect(),
        (name, Value::Object(fields)) => fields
            .get(name)
            .into_iter()
            .flat_map(|field| values(field, rest, format!("{at}/{name}")))
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns another valid value of the field.
fn other(path: &str, value: &Value) -> Value {
    let last = path.rsplit('.').next().unwrap_or_default();
    match (last, value) {
        (_, Value::Bool(is_set)) => json!(!is_set),
        (_, Value::Number(number)) => json!(number.as_u64().unwrap() + 1),
        ("kind", _) => json!("User"),
        ("protocol", _) => json!("UDP"),
        ("policy", _) => json!("Retain"),
        ("network", _) => json!("192.0.2.0/24"),
        ("deadline", _) => json!("7m"),
        (_, Value::String(text)) if text.ends_with("Gi") => json!("3Gi"),
        (_, Value::String(text)) if text.chars().all(|one| one.is_ascii_digit()) => json!("7"),
        (_, Value::String(text)) => json!(format!("{text}x")),
        _ => panic!("{path}: {value}"),
    }
}

#[test]
fn r57_every_field_counts() {
    let crd = api::tenants::OPERATOR.crds().pop().unwrap();
    let version = crd.spec.versions.first().unwrap();
    let schema = version.schema.clone().unwrap().open_api_v3_schema.unwrap();
    let spec = schema.properties.unwrap().remove("spec").unwrap();
    let mut fields = BTreeSet::new();
    leaves(&spec, "", &mut fields);
    assert!(fields.len() > 40, "{fields:?}");
    for (field, test) in DECIDED {
        assert!(fields.contains(*field), "there is no field '{field}'");
        let test = format!("#[test]\nfn {test}()");
        let has_it = |source: &&str| source.contains(&test);
        assert!(SOURCES.iter().any(has_it), "'{field}' has no test: {test}");
    }
    let (whole, before) = (whole(), made(&whole()));
    for field in fields {
        if DECIDED.iter().any(|(known, _)| *known == field) {
            continue;
        }
        let words: Vec<&str> = field.split('.').collect();
        let places = values(&whole, &words, String::new());
        assert!(!places.is_empty(), "'{field}' is not in the whole spec");
        for place in places {
            let mut changed = whole.clone();
            let value = changed.pointer_mut(&place).unwrap();
            *value = other(&field, value);
            assert_ne!(made(&changed), before, "'{field}' does nothing");
        }
    }
}

#[test]
fn nobody_tries_what_nobody_asks_for() {
    let mut spec = Cluster::full_spec();
    spec["isolation"] = json!({ "probe": false });
    let mut cluster = Cluster::new(spec);
    cluster.settle();
    let known = cluster.status().progress.clone();
    let known = known.condition("NetworkIsolated").unwrap();
    assert_eq!(
        (&*known.status, &*known.reason),
        ("Unknown", "ProbesDisabled")
    );
}

#[test]
fn a_redis_is_asked_often_until_it_answers_and_not_killed_while_it_reads() {
    let made = made(&whole());
    let sets = made[0].as_array().unwrap().iter();
    let container = sets
        .map(|body| &body["spec"]["template"]["spec"]["containers"][0])
        .find(|container| container["name"] == "redis")
        .unwrap();
    let (start, ready) = (&container["startupProbe"], &container["readinessProbe"]);
    assert_eq!(start["exec"], ready["exec"]);
    let seconds = |probe: &Value| probe["periodSeconds"].as_u64().unwrap();
    assert_eq!((seconds(start), seconds(ready)), (1, 10));
    assert!(seconds(start) * start["failureThreshold"].as_u64().unwrap() >= 24 * 60 * 60);
    assert!(container["livenessProbe"].is_null());
}
