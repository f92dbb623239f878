//! Reads JSON bodies strictly: bounded depth, no unknown field at any depth, no duplicate field.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;

/// Maximum nesting of a body. The deepest valid body has six levels.
const DEPTH: usize = 32;

/// Returns the schema of a type, without references.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Parses a body that has this schema.
///
/// # Errors
/// The body is no JSON, or does not have the schema. A field that the schema does not know would
/// have no effect, and its author would not notice.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8], schema: &Value) -> Result<T, Problem> {
    if is_deeper(body, DEPTH) {
        return Err(Problem::invalid(format!(
            "the body is nested deeper than {DEPTH} levels"
        )));
    }
    let malformed = |error: serde_json::Error| Problem::invalid(format!("the body: {error}"));
    let value: Value = serde_json::from_slice(body).map_err(malformed)?;
    if let Some(violation) = violation(schema, &value, "") {
        return Err(Problem::invalid(format!("the body: {violation}")));
    }
    // From the bytes: a value has no duplicate fields any more.
    serde_json::from_slice(body).map_err(malformed)
}

/// Returns whether brackets are nested deeper than `limit`. Brackets in strings do not count.
fn is_deeper(body: &[u8], limit: usize) -> bool {
    let (mut depth, mut is_in_string, mut is_escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            _ if is_in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The schema of an object without any rule.
static ANYTHING: Value = Value::Bool(true);

/// Returns the first field that the schema does not know, or the first array in place of an object.
/// The deserializer would take the elements of such an array for fields.
fn violation(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let shapes = shapes(schema);
    let has_fields = shapes.iter().any(|shape| shape.get("properties").is_some());
    if let Some(fields) = value.as_object() {
        return fields.iter().find_map(|(name, field)| {
            let path = match path {
                "" => name.clone(),
                _ => format!("{path}.{name}"),
            };
            let known = if has_fields {
                let mut shapes = shapes.iter();
                shapes.find_map(|shape| shape.get("properties")?.get(name))
            } else {
                let mut shapes = shapes.iter();
                let of_all = shapes.find_map(|shape| shape.get("additionalProperties"));
                Some(of_all.unwrap_or(&ANYTHING))
            };
            match known {
                None | Some(Value::Bool(false)) => Some(format!("unknown field '{path}'")),
                Some(known) => violation(known, field, &path),
            }
        });
    }
    let items = value.as_array()?;
    if has_fields {
        return Some(match path {
            "" => "it must be an object".to_owned(),
            _ => format!("'{path}' must be an object"),
        });
    }
    let shape = shapes.iter().find_map(|shape| shape.get("items"))?;
    let mut items = items.iter().enumerate();
    items.find_map(|(index, item)| violation(shape, item, &format!("{path}[{index}]")))
}

/// Returns a schema and its alternatives: an optional object is one of an object and null.
fn shapes(schema: &Value) -> Vec<&Value> {
    let mut all = vec![schema];
    for key in ["allOf", "anyOf", "oneOf"] {
        let parts = schema.get(key).and_then(Value::as_array);
        all.extend(
            parts
                .into_iter()
                .flat_map(|parts| parts.iter())
                .flat_map(shapes),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Outer {
        first_name: String,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        map: BTreeMap<String, Inner>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Inner {
        a: i64,
    }

    fn read(body: &str) -> Result<Outer, String> {
        parse(body.as_bytes(), &schema_of::<Outer>()).map_err(|problem| problem.detail)
    }

    #[test]
    fn a_field_that_is_not_known_is_named_at_each_depth() {
        let cases = [
            (r#"{"firstName":"x","first_name":"y"}"#, "'first_name'"),
            (r#"{"firstName":"x","inner":{"a":1,"b":2}}"#, "'inner.b'"),
            (
                r#"{"firstName":"x","list":[{"a":1},{"a":1,"c":2}]}"#,
                "'list[1].c'",
            ),
            (
                r#"{"firstName":"x","map":{"k":{"a":1,"d":2}}}"#,
                "'map.k.d'",
            ),
        ];
        for (body, wanted) in cases {
            let said = read(body).unwrap_err();
            assert_eq!(said, format!("the body: unknown field {wanted}"), "{body}");
        }
    }

    #[test]
    fn what_is_no_such_object_is_refused() {
        for (body, wanted) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "it must be an object"),
            (r#"["x"]"#, "it must be an object"),
            (
                r#"{"firstName":"x","list":[[1]]}"#,
                "'list[0]' must be an object",
            ),
            ("null", "invalid type"),
            (r#"{"firstName":1}"#, "invalid type"),
            ("{}", "missing field `firstName`"),
            (r#"{"firstName":"x","firstName":"y"}"#, "duplicate field"),
            (r#"{"firstName":"x"} {}"#, "trailing characters"),
            (r#"{"firstName":"x","inner":{"a":1e99}}"#, "invalid type"),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.contains(wanted), "{body}: {said}");
        }
        let found = read(r#"{"firstName":"[{\"","inner":null,"map":{"k":{"a":1}}}"#).unwrap();
        assert_eq!((found.first_name.as_str(), found.inner), ("[{\"", None));
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        let nested = |depth: usize| "[".repeat(depth);
        assert!(!is_deeper(nested(32).as_bytes(), 32));
        assert!(is_deeper(nested(33).as_bytes(), 32));
        assert!(!is_deeper(format!("\"{}\"", nested(99)).as_bytes(), 32));
        assert!(is_deeper(format!(r#""\"" {}"#, nested(33)).as_bytes(), 32));
        assert!(!is_deeper("[]".repeat(99).as_bytes(), 32));
        let said = read(&nested(1_000_000)).unwrap_err();
        assert!(said.contains("deeper than 32"), "{said}");
    }
}
