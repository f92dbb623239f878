//! Checks JSON against a schema. Pure.
//!
//! It knows the keywords that the project's schemas have, and fails at any other one: a keyword that it skipped would be
//! a check that never fails.

use serde_json::Value;

/// Keywords that describe and do not restrict.
const ANNOTATIONS: &[&str] = &[
    "$defs",
    "$schema",
    "default",
    "description",
    "examples",
    "title",
];

/// The reason why a value does not have a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The schema has a keyword that is not known here.
    Unsupported(String),
    /// The value is another one than the schema allows.
    Violation(String),
}

impl Mismatch {
    /// Returns the reason as text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unsupported(what) => format!("the schema cannot be checked: {what}"),
            Self::Violation(what) => what.clone(),
        }
    }
}

/// Checks a value. References of the schema begin at `root`.
///
/// An object with listed fields has no other ones, also where the schema does not forbid them: clients are generated
/// from the schema, and would not know them.
pub(super) fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), Mismatch> {
    Checker { root }.check(schema, value, "$")
}

struct Checker<'a> {
    root: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
        let rules = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(rules) => rules,
            Value::Null
            | Value::Bool(false)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => return violation(at, "no value is allowed"),
        };
        for (keyword, rule) in rules {
            match keyword.as_str() {
                "$ref" => self.check(self.target(rule)?, value, at)?,
                "type" => check_type(rule, value, at)?,
                "const" if rule != value => return violation(at, &format!("it is not {rule}")),
                "enum" if !list(rule).contains(value) => {
                    return violation(at, &format!("{value} is not one of {rule}"));
                }
                "const" | "enum" => {}
                "required" => check_required(rule, value, at)?,
                "properties" => self.check_fields(schema, value, at)?,
                "additionalProperties" => self.check_others(schema, rule, value, at)?,
                "items" => {
                    for (index, item) in list(value).iter().enumerate() {
                        self.check(rule, item, &format!("{at}[{index}]"))?;
                    }
                }
                "allOf" => {
                    for part in list(rule) {
                        self.check(part, value, at)?;
                    }
                }
                "anyOf" => self.check_some(rule, value, at, |count| count > 0)?,
                "oneOf" => self.check_some(rule, value, at, |count| count == 1)?,
                "minimum" | "maximum" => check_bound(keyword, rule, value, at)?,
                "format" => check_format(rule, value, at)?,
                known if ANNOTATIONS.contains(&known) || known.starts_with("x-") => {}
                unknown => return Err(Mismatch::Unsupported(format!("'{unknown}' at {at}"))),
            }
        }
        Ok(())
    }

    fn target(&self, reference: &Value) -> Result<&Value, Mismatch> {
        let text = reference.as_str().unwrap_or_default();
        let pointer = text.strip_prefix('#');
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| Mismatch::Unsupported(format!("nothing is at '{text}'")))
    }

    fn check_fields(&self, schema: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
        let Some(fields) = value.as_object() else {
            return Ok(());
        };
        let is_closed = ["additionalProperties", "allOf", "anyOf", "oneOf", "$ref"]
            .iter()
            .all(|keyword| schema.get(keyword).is_none());
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(known) => self.check(known, field, &format!("{at}.{name}"))?,
                None if is_closed => {
                    return violation(at, &format!("the field '{name}' is not documented"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_others(
        &self,
        schema: &Value,
        rule: &Value,
        value: &Value,
        at: &str,
    ) -> Result<(), Mismatch> {
        let known = schema.get("properties").and_then(Value::as_object);
        let fields = value.as_object().into_iter().flat_map(|all| all.iter());
        for (name, field) in fields {
            if known.is_none_or(|known| !known.contains_key(name)) {
                self.check(rule, field, &format!("{at}.{name}"))?;
            }
        }
        Ok(())
    }

    fn check_some(
        &self,
        rule: &Value,
        value: &Value,
        at: &str,
        is_enough: impl Fn(usize) -> bool,
    ) -> Result<(), Mismatch> {
        let (mut count, mut reasons) = (0, Vec::new());
        for part in list(rule) {
            match self.check(part, value, at) {
                Ok(()) => count += 1,
                Err(Mismatch::Violation(why)) => reasons.push(why),
                Err(unsupported @ Mismatch::Unsupported(_)) => return Err(unsupported),
            }
        }
        match is_enough(count) {
            true => Ok(()),
            false => violation(
                at,
                &format!("{count} alternatives fit: {}", reasons.join("; ")),
            ),
        }
    }
}

fn violation(at: &str, what: &str) -> Result<(), Mismatch> {
    Err(Mismatch::Violation(format!("{at}: {what}")))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn check_type(rule: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
    let single = [rule.clone()];
    let wanted = match rule {
        Value::Array(all) => all.as_slice(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            single.as_slice()
        }
    };
    let is = |name: &Value| match (name.as_str().unwrap_or_default(), value) {
        ("integer", Value::Number(number)) => number.is_i64() || number.is_u64(),
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        _ => false,
    };
    match wanted.iter().any(is) {
        true => Ok(()),
        false => violation(at, &format!("{value} is no {rule}")),
    }
}

fn check_required(rule: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
    let Some(fields) = value.as_object() else {
        return Ok(());
    };
    for name in list(rule) {
        let name = name.as_str().unwrap_or_default();
        if !fields.contains_key(name) {
            return violation(at, &format!("the field '{name}' is missing"));
        }
    }
    Ok(())
}

fn check_bound(keyword: &str, rule: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
    let (Some(bound), Some(number)) = (rule.as_f64(), value.as_f64()) else {
        return Ok(());
    };
    let is_within = match keyword {
        "minimum" => number >= bound,
        _ => number <= bound,
    };
    match is_within {
        true => Ok(()),
        false => violation(at, &format!("{number} is beyond the {keyword} {bound}")),
    }
}

fn check_format(rule: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
    match (rule.as_str().unwrap_or_default(), value.as_str()) {
        ("date-time", Some(text)) if text.parse::<api::Timestamp>().is_err() => {
            violation(at, &format!("'{text}' is no time"))
        }
        // The types have checked the sizes of numbers already.
        (
            "date-time" | "int32" | "int64" | "uint" | "uint8" | "uint16" | "uint32" | "uint64",
            _,
        ) => Ok(()),
        (other, _) => Err(Mismatch::Unsupported(format!("format '{other}' at {at}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_its_schema_or_a_reason() {
        let root = json!({ "$defs": { "Name": { "type": "string" } } });
        let object = json!({ "type": "object", "required": ["name"],
            "properties": { "name": { "$ref": "#/$defs/Name" }, "count": { "type": "integer", "minimum": 1 } } });
        let optional = json!({ "anyOf": [{ "$ref": "#/$defs/Name" }, { "type": "null" }] });
        let one = json!({ "oneOf": [{ "const": "a" }, { "enum": ["b", "c"] }] });
        let list = json!({ "type": "array", "items": { "type": ["string", "null"] } });
        let map = json!({ "type": "object", "additionalProperties": { "type": "boolean" } });
        let time = json!({ "type": "string", "format": "date-time" });
        for (schema, value, wanted) in [
            (&object, json!({ "name": "x", "count": 1 }), ""),
            (&object, json!({}), "'name' is missing"),
            (&object, json!({ "name": 1 }), "$.name: 1 is no"),
            (&object, json!({ "name": "x", "count": 0 }), "minimum"),
            (&object, json!({ "name": "x", "count": 1.5 }), "is no"),
            (&object, json!({ "name": "x", "more": 1 }), "not documented"),
            (&object, json!([]), "is no"),
            (&optional, Value::Null, ""),
            (&optional, json!(1), "0 alternatives"),
            (&one, json!("c"), ""),
            (&one, json!("d"), "0 alternatives"),
            (&list, json!(["a", null]), ""),
            (&list, json!(["a", 1]), "$[1]"),
            (&map, json!({ "a": true }), ""),
            (&map, json!({ "a": 1 }), "$.a"),
            (&time, json!("2026-01-01T00:00:00Z"), ""),
            (&time, json!("soon"), "is no time"),
            (&json!(true), json!(1), ""),
            (&json!(false), json!(1), "no value"),
        ] {
            let found = check(&root, schema, &value);
            match found {
                Ok(()) => assert_eq!(wanted, "", "{value}"),
                Err(mismatch) => {
                    let text = mismatch.text();
                    assert!(!wanted.is_empty() && text.contains(wanted), "{text}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_rule_is_never_skipped() {
        let root = json!({});
        for schema in [
            json!({ "pattern": "x" }),
            json!({ "anyOf": [{ "minContains": 1 }, true] }),
            json!({ "$ref": "#/missing" }),
            json!({ "format": "email" }),
        ] {
            let found = check(&root, &schema, &json!("x"));
            assert!(
                matches!(found, Err(Mismatch::Unsupported(_))),
                "{schema}: {found:?}"
            );
        }
    }
}
