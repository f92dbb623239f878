//! The references of the configuration file, the metrics and the chart's values.

use std::{fs, mem};

use anyhow::{Context, Result, ensure};
use engine::metrics::Metrics;
use operator::config::Config;
use serde_json::Value;
use testkit::layout;

use super::{
    Output,
    fields::{Section, range},
    manifests::yaml,
    markdown::{cell, code, page, table},
};

pub(super) fn outputs() -> Result<Vec<Output>> {
    let read = |name: &str| {
        let path = layout::repository().join("charts/orchestrator").join(name);
        fs::read_to_string(path).with_context(|| format!("cannot read '{name}' of the chart"))
    };
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let values = values(&read("values.yaml")?, &schema)?;
    Ok(vec![
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
        let is_leaf = node["properties"].is_null();
        let default = is_leaf.then(|| code(&default.to_string()));
        rows.push([
            code(&name),
            kind(schema, node).with_context(|| format!("the value '{name}'"))?,
            default.unwrap_or_default(),
            cell(&description),
        ]);
    }
    for name in properties(schema, schema) {
        // Helm sets `global` where this chart is a dependency of another one.
        let is_listed = name == "global" || rows.iter().any(|[first, ..]| *first == code(&name));
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
    use serde_json::json;

    use super::*;

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
