//! The schema of the configuration file. `cargo xtask generate` writes the reference of its fields from here.

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};
use tenants::build::{MOST_OBJECTS, OBJECT_LIMITS};

use super::Config;

impl Config {
    /// Returns the JSON schema of the file. It contains no references.
    #[must_use]
    pub fn schema() -> Value {
        let settings = SchemaSettings::openapi3().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        settings
            .into_generator()
            .into_root_schema_for::<Self>()
            .to_value()
    }

    /// Returns a file with every default of [`Config::schema`]. Fields without a default are absent.
    #[must_use]
    pub fn defaults() -> Value {
        defaults(&Self::schema()).unwrap_or_default()
    }
}

fn defaults(schema: &Value) -> Option<Value> {
    match (&schema["default"], schema["properties"].as_object()) {
        (Value::Null, None) => None,
        (Value::Null, Some(fields)) => {
            let with_default = |(name, field): (&String, &Value)| {
                defaults(field).map(|default| (name.clone(), default))
            };
            Some(fields.iter().filter_map(with_default).collect())
        }
        (default, _) => Some(default.clone()),
    }
}

/// Describes `tenants.objectLimits`: the accepted names, with their ranges and defaults.
pub(super) fn object_limits(_: &mut SchemaGenerator) -> Schema {
    let limits: Map<String, Value> = OBJECT_LIMITS
        .iter()
        .map(|(name, limit)| {
            let field = json!({
                "description": format!("Limit of `{name}` in the ResourceQuota of each Tenant."),
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_OBJECTS,
                "default": limit,
            });
            ((*name).to_owned(), field)
        })
        .collect();
    json_schema!({ "type": "object", "properties": limits, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields of an object, with their names. Other schemas have none.
    fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = schema["properties"].as_object().into_iter();
        fields.flat_map(|fields| fields.iter())
    }

    /// Collects the paths of all integers, each with its minimum and its maximum.
    fn integers(path: &[&str], schema: &Value, found: &mut Vec<(Vec<String>, i64, i64)>) {
        if schema["type"] == "integer" {
            let names = path.iter().map(|name| (*name).to_owned()).collect();
            let bound = |key: &str| schema[key].as_i64().expect(key);
            found.push((names, bound("minimum"), bound("maximum")));
        }
        for (name, field) in fields(schema) {
            integers(&[path, &[name.as_str()]].concat(), field, found);
        }
    }

    /// Parses a file with this value in this field.
    fn parse(path: &[String], value: i64) -> Result<Config, String> {
        let nested = |inner: Value, name: &String| json!({ name.as_str(): inner });
        let mut file = path.iter().rev().fold(json!(value), nested);
        // Each of these two restricts the other.
        match path.last().map(String::as_str) {
            Some("leaseDurationSeconds") => file["leaderElection"]["renewSeconds"] = json!(1),
            Some("renewSeconds") => file["leaderElection"]["leaseDurationSeconds"] = json!(3600),
            _ => {}
        }
        Config::parse(&file.to_string())
    }

    #[test]
    fn a_range_of_the_schema_is_the_accepted_one() {
        let mut found = Vec::new();
        integers(&[], &Config::schema(), &mut found);
        assert_eq!(found.len(), 12 + OBJECT_LIMITS.len());
        for (path, minimum, maximum) in found {
            for value in [minimum, maximum] {
                assert!(parse(&path, value).is_ok(), "{path:?}: {value}");
            }
            for value in [minimum - 1, maximum + 1] {
                assert!(parse(&path, value).is_err(), "{path:?}: {value}");
            }
        }
    }

    #[test]
    fn every_field_has_a_description_and_no_reference() {
        let schema = Config::schema();
        assert!(!schema.to_string().contains("$ref"), "{schema}");
        let mut open = vec![("config".to_owned(), &schema)];
        while let Some((path, schema)) = open.pop() {
            let description = schema["description"].as_str().unwrap_or_default();
            assert!(description.ends_with('.'), "{path}: '{description}'");
            open.extend(fields(schema).map(|(name, field)| (format!("{path}.{name}"), field)));
        }
    }
}
