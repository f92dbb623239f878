//! The references of the configuration file, the metrics and the chart's values.

use std::{fs, mem};

use anyhow::{Context, Result, ensure};
use engine::metrics::Metrics;
use operator::config::Config;
use serde_json::{Value, json};
use testkit::layout;

use super::{
    NOTE, Output,
    fields::{Section, range},
    manifests::yaml,
    markdown::{cell, code, page, table},
};

const CHART: &str = "charts/orchestrator";

/// The last definition in the schema of the chart's values. It is generated; people write the lines above.
const CONFIG_DEFINITION: &str = "\n    \"config\": {";

pub(super) fn outputs() -> Result<Vec<Output>> {
    let read = |name: &str| {
        let path = layout::repository().join(CHART).join(name);
        fs::read_to_string(path).with_context(|| format!("cannot read '{name}' of the chart"))
    };
    let values_schema = values_schema(&read("values.schema.json")?, Config::schema())?;
    let schema: Value = serde_json::from_str(&values_schema)?;
    let values = values(&read("values.yaml")?, &schema)?;
    Ok(vec![
        Output {
            path: format!("{CHART}/values.schema.json"),
            text: values_schema,
        },
        Output::reference("configuration", configuration()?),
        Output::reference("metrics", metrics(&Metrics::samples())?),
        Output::reference("helm-values", values),
    ])
}

fn configuration() -> Result<String> {
    let schema = serde_json::from_value(Config::schema()).context("the schema is not a CRD's")?;
    let mut text = page("Configuration fields");
    text.push_str(
        "\nThis page lists every field of the configuration file. The prefix `config` is the value of \
         the chart. A file for `--config` has the fields without it. \
         [Configuration](../operate/configuration.md) has examples and rules.\n",
    );
    for section in Section::all("config", &schema)? {
        text.push_str(&section.text());
    }
    let defaults = yaml(&Config::defaults())?;
    let title = "\n## All defaults in one file\nFields without a default are absent.\n";
    Ok(format!("{text}{title}\n```yaml\n{defaults}```\n"))
}

/// Replaces the definition of `config` in the schema of the chart's values, so that helm rejects an unknown
/// key of the configuration by its name.
fn values_schema(written: &str, config: Value) -> Result<String> {
    let (_, definitions) = written
        .split_once("\n  \"definitions\": {")
        .context("the schema of the values has no 'definitions'")?;
    let (_, old) = definitions
        .split_once(CONFIG_DEFINITION)
        .context("the schema of the values has no definition of 'config'")?;
    let by_hand = written.strip_suffix(old).unwrap_or(written);
    let mut config = for_values(config);
    config["$comment"] = NOTE.into();
    let config = serde_json::to_string_pretty(&config)?.replace('\n', "\n    ");
    let body = config.strip_prefix('{').context("it is not an object")?;
    let text = format!("{by_hand}{body}\n  }}\n}}\n");
    let _valid: Value =
        serde_json::from_str(&text).context("'config' must be the last definition")?;
    Ok(text)
}

/// Converts the keywords of Kubernetes for an amount, such as `2` or `500m`, which JSON schema does not know.
fn for_values(schema: Value) -> Value {
    match schema {
        Value::Object(node) if node.contains_key("x-kubernetes-int-or-string") => {
            json!({ "type": ["string", "number"], "maxLength": 32 })
        }
        Value::Object(node) => {
            let fields = node.into_iter();
            fields
                .map(|(name, inner)| (name, for_values(inner)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(for_values).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// `samples` has one sample of each metric, in the OpenMetrics text format.
fn metrics(samples: &str) -> Result<String> {
    let row = |family: &str| {
        let (name, rest) = family.split_once(' ')?;
        let (help, rest) = rest.split_once("\n# TYPE ")?;
        let (kind, rest) = rest.strip_prefix(name)?.trim_start().split_once('\n')?;
        let suffix = if kind == "counter" { "_total" } else { "" };
        let sample = rest.lines().find(|line| !line.starts_with('#'))?;
        let labels = sample.split(['{', ',']).skip(1);
        let labels = labels.filter_map(|label| label.split_once('='));
        let labels: Vec<String> = labels.map(|(label, _)| code(label)).collect();
        let name = code(&format!("{name}{suffix}"));
        Some([name, kind.to_owned(), labels.join(", "), cell(help)])
    };
    let families = samples.split("# HELP ").skip(1);
    let rows: Option<Vec<_>> = families.map(row).collect();
    let rows = rows.with_context(|| format!("a metric cannot be read:\n{samples}"))?;
    let intro = "A histogram has the series `_bucket`, `_sum` and `_count`. \
         [Metrics](../operate/metrics.md) describes the labels, the scrape and alerts.";
    let table = table(["metric", "type", "labels", "meaning"], &rows);
    Ok(format!("{}\n{intro}\n\n{table}", page("List of metrics")))
}

/// Reads the comments of `values.yaml` as descriptions, and the types of its schema.
fn values(values: &str, schema: &Value) -> Result<String> {
    let defaults: Value = serde_saphyr::from_str(values)?;
    let (mut path, mut comment, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for line in values.lines() {
        if let Some(text) = line.trim_start().strip_prefix('#') {
            comment.push(text.trim());
            continue;
        }
        let above = mem::take(&mut comment);
        let Some((key, _)) = line.split_once(':') else {
            continue;
        };
        path.truncate((key.len() - key.trim_start().len()) / 2);
        path.push(key.trim_start());
        let nodes = (schema, &defaults);
        let found = path.iter().try_fold(nodes, |(node, default), name| {
            let node = node["properties"].get(name)?;
            Some((resolve(schema, node), &default[name]))
        });
        // Users choose the keys below a value without `properties`.
        let Some((node, default)) = found else {
            continue;
        };
        let example = above.iter().position(|line| line.starts_with("Example"));
        let description = above[..example.unwrap_or(above.len())].join(" ");
        let name = path.join(".");
        ensure!(description.ends_with('.'), "'{name}' needs a sentence");
        let is_leaf = node["properties"].is_null() || *default == json!({});
        let default = is_leaf.then(|| code(&default.to_string()));
        rows.push([
            code(&name),
            kind(schema, node).with_context(|| format!("the value '{name}'"))?,
            default.unwrap_or_default(),
            cell(&description),
        ]);
    }
    for name in properties(schema, schema) {
        // Helm sets `global` where this chart is a dependency of another one. The fields of `config` have
        // a reference of their own.
        let is_listed = name == "global"
            || name.starts_with("config.")
            || rows.iter().any(|[first, ..]| *first == code(&name));
        ensure!(is_listed, "'{name}' of the schema is not in values.yaml");
    }
    let intro = "The chart `charts/orchestrator` rejects unknown values. \
         [Configuration fields](configuration.md) lists the fields of `config`.";
    let table = table(["value", "type", "default", "meaning"], &rows);
    Ok(format!("{}\n{intro}\n\n{table}", page("Helm values")))
}

/// Returns the paths of all properties below a node.
fn properties(schema: &Value, node: &Value) -> Vec<String> {
    let fields = resolve(schema, node)["properties"].as_object();
    let mut paths = Vec::new();
    for (name, field) in fields.into_iter().flat_map(|fields| fields.iter()) {
        let below = properties(schema, field).into_iter();
        paths.extend(below.map(|path| format!("{name}.{path}")));
        paths.push(name.clone());
    }
    paths
}

fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    let target = node["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
    target.and_then(|to| schema.pointer(to)).unwrap_or(node)
}

fn kind(schema: &Value, node: &Value) -> Result<String> {
    let node = resolve(schema, node);
    if let Some(allowed) = node["enum"].as_array() {
        let allowed: Vec<String> = allowed.iter().map(|one| code(&one.to_string())).collect();
        return Ok(format!("one of {}", allowed.join(", ")));
    }
    let name = node["type"].as_str().context("it has no type")?;
    let range = range(node["minimum"].as_i64(), node["maximum"].as_i64(), "");
    Ok(match (name, range) {
        ("array", _) => format!("list of {}", kind(schema, &node["items"])?),
        (name, Some(range)) => format!("{name}, {range}"),
        (name, None) => name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_configuration_replaces_the_old_one() {
        let amount = json!({ "x-kubernetes-int-or-string": true, "x-kubernetes-validations": [] });
        let config = json!({ "properties": { "cpu": amount }, "additionalProperties": false });
        let head = "{\n  \"properties\": {\n    \"config\": {}\n  },\n  \"definitions\": {\n    \"a\": {},";
        let old = format!("{head}{CONFIG_DEFINITION}}}\n  }}\n}}\n");
        let written = values_schema(&old, config.clone()).unwrap();
        assert!(written.starts_with(&format!("{head}{CONFIG_DEFINITION}\n")));
        let found: Value = serde_json::from_str(&written).unwrap();
        let cpu = json!({ "type": ["string", "number"], "maxLength": 32 });
        let wanted = json!({ "$comment": NOTE, "properties": { "cpu": cpu }, "additionalProperties": false });
        assert_eq!(found["definitions"]["config"], wanted);
        assert_eq!(values_schema(&written, config.clone()).unwrap(), written);
        for wrong in ["{}\n", "{\n  \"definitions\": {\n    \"a\": {}\n  }\n}\n"] {
            assert!(values_schema(wrong, config.clone()).is_err(), "{wrong}");
        }
    }

    /// Collects the paths of objects that accept unknown fields. Users choose the keys of a map.
    fn open_objects(path: &str, node: &Value, found: &mut Vec<String>) {
        let is_map = node["additionalProperties"].is_object();
        if node["type"] == "object" && !is_map && node["additionalProperties"] != false {
            found.push(path.to_owned());
        }
        let fields = node["properties"].as_object().into_iter();
        for (name, field) in fields.flat_map(|fields| fields.iter()) {
            open_objects(&format!("{path}.{name}"), field, found);
        }
    }

    #[test]
    fn the_chart_rejects_unknown_fields_of_the_configuration() {
        let outputs = outputs().unwrap();
        let mut files = outputs.iter();
        let file = files.find(|one| one.path.ends_with("values.schema.json"));
        let schema: Value = serde_json::from_str(&file.unwrap().text).unwrap();
        let config = resolve(&schema, &schema["properties"]["config"]);
        assert!(config["properties"]["tasks"]["properties"]["cleanup"].is_object());
        let mut open = Vec::new();
        open_objects("config", config, &mut open);
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn each_value_has_a_type_a_default_and_a_comment() {
        let count = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
        let group = json!({ "type": "object", "properties": { "b": { "$ref": "#/count" } } });
        let schema = json!({ "count": count, "properties": { "a": group } });
        let yaml = "# Group.\na:\n  # Two\n  # lines.\n  # Example:\n  b: 3\n";
        let page = values(yaml, &schema).unwrap();
        let rows = "| `a` | object |  | Group. |\n| `a.b` | integer, 1 to 9 | `3` | Two lines. |\n";
        assert!(page.ends_with(rows), "{page}");
        let error = values("# Group.\na:\n  b: 3\n", &schema).unwrap_err();
        assert!(error.to_string().contains("'a.b'"), "{error}");
        let error = values("# Group.\na:\n", &schema).unwrap_err();
        assert!(error.to_string().contains("'a.b' of the schema"), "{error}");
    }
}
