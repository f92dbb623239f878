//! Checks whether an object still matches the manifest that we applied.
//!
//! Only fields of the manifest are compared. Fields that others add stay unchanged. The API server writes
//! some values differently than we send them (quantities, empty lists), so values are compared by meaning.

use api::quantity;
use serde_json::{Map, Value};

/// Returns whether the live object has every field of the manifest with the desired value.
#[must_use]
pub fn covers(live: &Value, wanted: &Value) -> bool {
    compare(live, wanted, "")
}

/// Returns whether the live object matches the manifest and has no other fields.
///
/// Objects that restrict access need this: one added rule can allow everything. An empty selector matches
/// everything, so it differs from a missing selector.
#[must_use]
pub fn equals(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let missing = &Value::Null;
            let same = |(name, value): (&String, &Value), other: &Map<String, Value>| {
                equals(value, other.get(name).unwrap_or(missing))
            };
            live.iter().all(|field| same(field, wanted))
                && wanted.iter().all(|field| same(field, live))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let mut pairs = live.iter().zip(wanted);
            live.len() == wanted.len() && pairs.all(|(one, other)| equals(one, other))
        }
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        (live, wanted) => live == wanted,
    }
}

fn compare(live: &Value, wanted: &Value, field: &str) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| {
                let found = live.get(name).unwrap_or(&Value::Null);
                let inner = if is_amounts(field) { field } else { name };
                compare(found, value, inner)
            }) && (field != "selector" || live.len() == wanted.len())
        }
        (Value::Array(live), Value::Array(wanted)) => match key_of(field) {
            Some(keys) => wanted.iter().all(|item| {
                let is_it = |one: &&Value| keys.iter().all(|key| one.get(key) == item.get(key));
                let found = live.iter().find(is_it);
                found.is_some_and(|found| compare(found, item, ""))
            }),
            None => {
                live.len() == wanted.len()
                    && live
                        .iter()
                        .zip(wanted)
                        .all(|(one, other)| compare(one, other, ""))
            }
        },
        // The API server omits empty fields.
        (Value::Null, wanted) => is_empty(wanted),
        (live, Value::Null) => is_empty(live),
        (live, wanted) if is_amounts(field) => is_same_amount(live, wanted),
        (live, wanted) => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns whether a field maps names to quantities.
fn is_amounts(field: &str) -> bool {
    matches!(
        field,
        "requests" | "limits" | "hard" | "max" | "default" | "defaultRequest" | "sizeLimit"
    )
}

/// Returns whether two quantities are equal by value.
#[must_use]
pub fn is_same_amount(live: &Value, wanted: &Value) -> bool {
    let meaning = |value: &Value| match value {
        Value::String(text) => quantity::parse(text),
        Value::Number(number) => quantity::parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    live == wanted || (meaning(live).is_some() && meaning(live) == meaning(wanted))
}

/// Returns the keys of the items in a list that several authors may extend. All other lists are compared as
/// one value.
fn key_of(field: &str) -> Option<&'static [&'static str]> {
    match field {
        "containers" | "initContainers" | "env" | "volumes" => Some(&["name"]),
        "volumeMounts" => Some(&["mountPath"]),
        // A Service port has the first field, a container port the second.
        "ports" => Some(&["port", "containerPort", "protocol"]),
        _ => None,
    }
}

/// Reduces an object to the fields that our manifests can set.
#[must_use]
pub fn kept(object: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["spec", "data", "roleRef", "subjects", "immutable"] {
        if let Some(value) = object.get(field) {
            kept.insert(field.to_owned(), value.clone());
        }
    }
    let labels = object.pointer("/metadata/labels").cloned();
    kept.insert(
        "metadata".to_owned(),
        serde_json::json!({ "labels": labels }),
    );
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wanted_is_compared_by_what_it_means() {
        let cases = [
            ("the same", json!({"a": 1}), json!({"a": 1}), true),
            (
                "more of others",
                json!({"a": 1, "b": 2}),
                json!({"a": 1}),
                true,
            ),
            ("another value", json!({"a": 2}), json!({"a": 1}), false),
            ("gone", json!({}), json!({"a": 1}), false),
            (
                "empty is left out",
                json!({}),
                json!({"a": [], "b": {}, "c": ""}),
                true,
            ),
            (
                "false is not left out",
                json!({}),
                json!({"a": false}),
                false,
            ),
            (
                "quantities",
                json!({"hard": {"limits.cpu": "1", "pods": "5"}}),
                json!({"hard": {"limits.cpu": "1000m", "pods": 5}}),
                true,
            ),
            (
                "other quantities",
                json!({"resources": {"limits": {"cpu": "2"}}}),
                json!({"resources": {"limits": {"cpu": "1000m"}}}),
                false,
            ),
            (
                "a text that looks like a quantity is a text",
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "1000m"}}),
                false,
            ),
            (
                "a variable of others stays",
                json!({"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}),
                json!({"env": [{"name": "A", "value": "1"}]}),
                true,
            ),
            (
                "a variable of ours was changed",
                json!({"env": [{"name": "A", "value": "2"}]}),
                json!({"env": [{"name": "A", "value": "1"}]}),
                false,
            ),
            (
                "a port of others stays",
                json!({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]}),
                json!({"ports": [{"port": 2, "protocol": "TCP"}]}),
                true,
            ),
            (
                "a selector is one value",
                json!({"selector": {"a": "b", "c": "d"}}),
                json!({"selector": {"a": "b"}}),
                false,
            ),
            (
                "other lists are one value",
                json!({"args": ["a", "b"]}),
                json!({"args": ["a"]}),
                false,
            ),
            (
                "a list that was opened",
                json!({"ingress": [{}]}),
                json!({"ingress": []}),
                false,
            ),
        ];
        for (name, live, wanted, is_covered) in cases {
            assert_eq!(covers(&live, &wanted), is_covered, "{name}");
        }
    }

    #[test]
    fn what_restricts_others_may_have_nothing_more() {
        let wanted = json!({"policyTypes": ["Ingress"], "podSelector": {}});
        let opened = json!({"policyTypes": ["Ingress"], "podSelector": {}, "ingress": [{}]});
        assert!(covers(&opened, &wanted));
        assert!(!equals(&opened, &wanted));
        assert!(equals(&wanted, &wanted));
        let inside = json!({"ingress": [{"from": [{"podSelector": {}}]}], "egress": []});
        for opened in [
            json!({"ingress": [{"from": [{"namespaceSelector": {}}]}]}),
            json!({"ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]}),
            json!({"ingress": [{}]}),
            json!({"ingress": [{"from": [{"podSelector": {}}]}], "egress": [{}]}),
        ] {
            assert!(!equals(&opened, &inside), "{opened}");
        }
        let written = json!({"ingress": [{"from": [{"podSelector": {}}]}]});
        assert!(
            equals(&written, &inside),
            "the server leaves out empty lists"
        );
    }
}
