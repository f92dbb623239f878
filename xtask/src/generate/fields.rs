//! The reference of fields: a table for each object in a CRD's schema.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use api::kinds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

use super::{
    Output,
    markdown::{cell, code, page, table},
};

pub(super) fn outputs() -> Result<Vec<Output>> {
    kinds::all().map(|kind| output(&kind.crd())).collect()
}

fn output(crd: &CustomResourceDefinition) -> Result<Output> {
    let names = &crd.spec.names;
    let name = format!("fields/{}", names.kind.to_ascii_lowercase());
    let mut text = page(&names.kind);
    for version in &crd.spec.versions {
        text.push_str(
            &kind(crd, version)
                .with_context(|| format!("cannot describe {} {}", names.kind, version.name))?,
        );
    }
    Ok(Output::reference(&name, text))
}

fn kind(
    crd: &CustomResourceDefinition,
    version: &CustomResourceDefinitionVersion,
) -> Result<String> {
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref())
        .context("it has no schema")?;
    let root = Node::read("", schema)?;
    let Lifecycle::Object(fields) = root.shape else {
        bail!("its schema is not that of an object");
    };
    let mut sections = Vec::new();
    for (name, field) in fields {
        sections.extend(Section::all(name, field)?);
    }
    let anchors: BTreeSet<String> = sections.iter().map(|one| anchor(&one.path)).collect();
    ensure!(
        anchors.len() == sections.len(),
        "two objects have the same anchor"
    );

    let short: Vec<String> = crd
        .spec
        .names
        .short_names
        .iter()
        .flat_map(|names| names.iter().map(|name| code(name)))
        .collect();
    let place = match crd.spec.scope.as_str() {
        "Namespaced" => "in a namespace",
        "Cluster" => "cluster-scoped: in no namespace",
        other => bail!("its scope is '{other}'"),
    };
    let mut text = format!(
        "\n{}\n\n`apiVersion: {}/{}`, `kind: {}`, {place}; short name {}.\n",
        cell(root.description),
        crd.spec.group,
        version.name,
        crd.spec.names.kind,
        short.join(", "),
    );
    for rule in &root.rules {
        text.push_str(&format!("\n- {rule}\n"));
    }
    for section in &sections {
        text.push_str(&section.text());
    }
    Ok(text)
}

/// What a part of a schema says.
struct Node<'a> {
    shape: Lifecycle<'a>,
    description: &'a str,
    default: Option<&'a JSON>,
    required: &'a [String],
    /// In words.
    rules: Vec<String>,
}

/// What kind of value it describes.
enum Lifecycle<'a> {
    Object(&'a BTreeMap<String, JSONSchemaProps>),
    List(&'a JSONSchemaProps),
    Map(&'a JSONSchemaProps),
    Scalar(&'static str),
}

impl<'a> Node<'a> {
    /// Refuses what it cannot put into words: the reference leaves nothing out.
    fn read(path: &str, schema: &'a JSONSchemaProps) -> Result<Self> {
        // Without `..`: what a later schema may hold must be described, too.
        let JSONSchemaProps {
            ref_path,
            schema: dialect,
            additional_items,
            additional_properties,
            all_of,
            any_of,
            default,
            definitions,
            dependencies,
            description,
            enum_,
            example,
            exclusive_maximum,
            exclusive_minimum,
            external_docs,
            format,
            id,
            items,
            max_items,
            max_length,
            max_properties,
            maximum,
            min_items,
            min_length,
            min_properties,
            minimum,
            multiple_of,
            not,
            nullable,
            one_of,
            pattern,
            pattern_properties,
            properties,
            required,
            // The root's repeats the kind.
            title: _,
            type_,
            unique_items,
            x_kubernetes_embedded_resource,
            x_kubernetes_int_or_string,
            x_kubernetes_list_map_keys,
            x_kubernetes_list_type,
            x_kubernetes_map_type,
            x_kubernetes_preserve_unknown_fields,
            x_kubernetes_validations,
        } = schema;
        let unknown = [
            ("$ref", ref_path.is_some()),
            ("$schema", dialect.is_some()),
            ("additionalItems", additional_items.is_some()),
            ("allOf", all_of.is_some()),
            ("anyOf", any_of.is_some()),
            ("definitions", definitions.is_some()),
            ("dependencies", dependencies.is_some()),
            ("example", example.is_some()),
            ("exclusiveMaximum", exclusive_maximum.is_some()),
            ("exclusiveMinimum", exclusive_minimum.is_some()),
            ("externalDocs", external_docs.is_some()),
            ("id", id.is_some()),
            ("multipleOf", multiple_of.is_some()),
            ("not", not.is_some()),
            ("nullable", nullable.is_some()),
            ("oneOf", one_of.is_some()),
            ("patternProperties", pattern_properties.is_some()),
            ("uniqueItems", unique_items.is_some()),
            (
                "x-kubernetes-embedded-resource",
                x_kubernetes_embedded_resource.is_some(),
            ),
            ("x-kubernetes-map-type", x_kubernetes_map_type.is_some()),
            (
                "x-kubernetes-preserve-unknown-fields",
                x_kubernetes_preserve_unknown_fields.is_some(),
            ),
        ];
        if let Some((keyword, _)) = unknown.iter().find(|(_, is_there)| *is_there) {
            bail!("'{path}' has '{keyword}', which this generator cannot describe yet");
        }

        let mut rules = Vec::new();
        if let Some(allowed) = enum_ {
            let words: Vec<String> = allowed.iter().map(json).collect();
            rules.push(format!("one of {}", words.join(", ")));
        }
        rules.extend(range(*minimum, *maximum, ""));
        rules.extend(range(*min_length, *max_length, " characters"));
        rules.extend(range(*min_items, *max_items, " items"));
        rules.extend(range(*min_properties, *max_properties, " keys"));
        rules.extend(
            pattern
                .iter()
                .map(|pattern| format!("matches {}", code(pattern))),
        );
        match (
            x_kubernetes_list_type.as_deref(),
            x_kubernetes_list_map_keys,
        ) {
            (None | Some("atomic"), None) => {}
            (Some("map"), Some(keys)) => {
                let keys: Vec<String> = keys.iter().map(|key| code(key)).collect();
                rules.push(format!("each {} once", keys.join(" and ")));
            }
            (Some("set"), None) => rules.push("each item once".to_owned()),
            (kind, keys) => bail!("'{path}' has the list type {kind:?} with the keys {keys:?}"),
        }
        for rule in x_kubernetes_validations
            .iter()
            .flat_map(|rules| rules.iter())
        {
            rules.push(words(path, rule)?);
        }

        let shape = match (
            type_.as_deref(),
            properties,
            additional_properties,
            items,
            x_kubernetes_int_or_string,
        ) {
            (
                Some("object"),
                Some(properties),
                None | Some(JSONSchemaPropsOrBool::Bool(false)),
                None,
                None,
            ) => Lifecycle::Object(properties),
            (
                Some("object"),
                None,
                Some(JSONSchemaPropsOrBool::Schema(values)),
                None,
                None,
            ) => Lifecycle::Map(values),
            (Some("array"), None, None, Some(JSONSchemaPropsOrArray::Schema(items)), None) => {
                Lifecycle::List(items)
            }
            (None, None, None, None, Some(true)) => Lifecycle::Scalar("integer or string"),
            (Some(name), None, None, None, None) => Lifecycle::Scalar(scalar(name, format.as_deref())
                .with_context(|| format!("'{path}' has the type '{name}' with the format {format:?}, which this generator cannot describe yet"))?),
            (name, ..) => bail!("'{path}' has the type {name:?} in a form that this generator cannot describe yet"),
        };
        Ok(Self {
            shape,
            description: description.as_deref().unwrap_or_default(),
            default: default.as_ref(),
            required: required.as_deref().unwrap_or_default(),
            rules,
        })
    }

    /// The type in a table, and the object that it leads to.
    fn kind(&self, path: &str) -> Result<(String, Option<(String, &'a JSONSchemaProps)>)> {
        Ok(match &self.shape {
            Lifecycle::Object(_) => (link("object", path), None),
            Lifecycle::Scalar(name) => ((*name).to_owned(), None),
            Lifecycle::List(items) => contained("list of", &format!("{path}[]"), items)?,
            Lifecycle::Map(values) => contained("map of", &format!("{path}.*"), values)?,
        })
    }
}

/// The type of a list or map, and its content if that has fields of its own.
fn contained<'a>(
    word: &str,
    path: &str,
    schema: &'a JSONSchemaProps,
) -> Result<(String, Option<(String, &'a JSONSchemaProps)>)> {
    let node = Node::read(path, schema)?;
    ensure!(
        node.default.is_none(),
        "'{path}' has a default, which this generator cannot describe yet"
    );
    Ok(match node.shape {
        Lifecycle::Object(_) => (
            format!("{word} {}", link("object", path)),
            Some((path.to_owned(), schema)),
        ),
        Lifecycle::Scalar(name) => (format!("{word} {name}"), None),
        Lifecycle::List(_) | Lifecycle::Map(_) => {
            bail!("'{path}' nests lists or maps, which this generator cannot describe yet")
        }
    })
}

fn scalar(name: &str, format: Option<&str>) -> Option<&'static str> {
    match (name, format) {
        ("string", None) => Some("string"),
        ("string", Some("date-time")) => Some("time"),
        ("boolean", None) => Some("boolean"),
        ("integer", None | Some("int32" | "int64" | "uint" | "uint32")) => Some("integer"),
        _ => None,
    }
}

/// A CEL rule by what it answers.
fn words(path: &str, rule: &ValidationRule) -> Result<String> {
    // Without `..`, as above. What a rule computes is said by its message.
    let ValidationRule {
        field_path: _,
        message,
        message_expression,
        optional_old_self: _,
        reason: _,
        rule: computed,
    } = rule;
    match (message, message_expression) {
        (Some(message), _) => Ok(cell(message)),
        (None, Some(expression)) => Ok(code(expression)),
        (None, None) => bail!("'{path}' has a rule without a message: {computed}"),
    }
}

pub(super) fn range<T: ToString>(from: Option<T>, to: Option<T>, unit: &str) -> Option<String> {
    Some(match (from, to) {
        (None, None) => return None,
        (Some(from), None) => format!("at least {}{unit}", from.to_string()),
        (None, Some(to)) => format!("at most {}{unit}", to.to_string()),
        (Some(from), Some(to)) => format!("{} to {}{unit}", from.to_string(), to.to_string()),
    })
}

fn json(value: &JSON) -> String {
    code(&value.0.to_string())
}

/// A heading's anchor, as mdBook and GitHub make it.
fn anchor(path: &str) -> String {
    path.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

fn link(word: &str, path: &str) -> String {
    format!("[{word}](#{})", anchor(path))
}

/// An object: a heading, its rules, a table of its fields.
pub(super) struct Section {
    path: String,
    description: String,
    rules: Vec<String>,
    rows: Vec<[String; 5]>,
}

impl Section {
    /// An object and all objects in it.
    pub(super) fn all(path: &str, schema: &JSONSchemaProps) -> Result<Vec<Self>> {
        let node = Node::read(path, schema)?;
        let Lifecycle::Object(fields) = node.shape else {
            bail!("'{path}' is not an object");
        };
        let (mut rows, mut below) = (Vec::new(), Vec::new());
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            let inner = Node::read(&path, field)?;
            let (kind, content) = inner.kind(&path)?;
            let is_required = node.required.contains(name);
            rows.push([
                code(name),
                kind,
                match inner.default {
                    _ if is_required => "required".to_owned(),
                    Some(default) => json(default),
                    None => String::new(),
                },
                field_rules(&path, &inner)?.join("<br>"),
                cell(inner.description),
            ]);
            match (&inner.shape, content) {
                (Lifecycle::Object(_), _) => below.extend(Self::all(&path, field)?),
                (_, Some((path, content))) => below.extend(Self::all(&path, content)?),
                (Lifecycle::List(_) | Lifecycle::Map(_) | Lifecycle::Scalar(_), None) => {}
            }
        }
        let mut all = vec![Self {
            path: path.to_owned(),
            description: cell(node.description),
            rules: node.rules,
            rows,
        }];
        all.extend(below);
        Ok(all)
    }

    pub(super) fn text(&self) -> String {
        let Self {
            path,
            description,
            rules,
            rows,
        } = self;
        let mut text = format!("\n## {path}\n{description}\n\n");
        for rule in rules {
            text.push_str(&format!("- {rule}\n"));
        }
        if !rules.is_empty() {
            text.push('\n');
        }
        text.push_str(&table(
            ["field", "type", "default", "rules", "description"],
            rows,
        ));
        text
    }
}

/// The rules of a field, and of what it holds where that has no section of its own.
fn field_rules(path: &str, node: &Node<'_>) -> Result<Vec<String>> {
    let content = match &node.shape {
        Lifecycle::Object(_) => return Ok(Vec::new()),
        Lifecycle::Scalar(_) => return Ok(node.rules.clone()),
        Lifecycle::List(content) | Lifecycle::Map(content) => content,
    };
    let mut rules = node.rules.clone();
    let inner = Node::read(path, content)?;
    if let Lifecycle::Scalar(_) = inner.shape {
        rules.extend(inner.rules.iter().map(|rule| format!("each: {rule}")));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use api::kinds::KindRow;
    use serde_json::Value;

    use super::*;

    /// The leaves of a schema that are of this key. What stands in a default is an object's, not ours.
    fn all_of<'a>(value: &'a Value, key: &str, out: &mut Vec<&'a Value>) {
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    if name == key && !inner.is_object() {
                        out.push(inner);
                    }
                    if name != "default" {
                        all_of(inner, key, out);
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|inner| all_of(inner, key, out)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn what_the_schema_says_is_in_the_page() {
        for crd in kinds::all().map(KindRow::crd) {
            let page = output(&crd).unwrap().text;
            let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
            for key in ["description", "message", "pattern"] {
                let mut found = Vec::new();
                all_of(&schema, key, &mut found);
                assert!(!found.is_empty(), "no {key}");
                for text in found.iter().filter_map(|value| value.as_str()) {
                    let wanted = if key == "pattern" {
                        code(text)
                    } else {
                        cell(text)
                    };
                    assert!(page.contains(&wanted), "{key} {text}");
                }
            }
        }
    }

    #[test]
    fn a_page_says_whether_the_kind_is_in_a_namespace() {
        for kind in kinds::all() {
            let wanted = match kind.is_namespaced {
                true => ", in a namespace;",
                false => ", cluster-scoped: in no namespace;",
            };
            assert!(output(&kind.crd()).unwrap().text.contains(wanted));
        }
    }

    #[test]
    fn what_cannot_be_described_is_refused() {
        let refused = |schema: JSONSchemaProps| {
            Node::read("spec.x", &schema)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let string = || JSONSchemaProps {
            type_: Some("string".to_owned()),
            ..JSONSchemaProps::default()
        };
        assert_eq!(refused(string()), "");
        let exclusive = JSONSchemaProps {
            exclusive_minimum: Some(true),
            ..string()
        };
        assert!(refused(exclusive).contains("'spec.x' has 'exclusiveMinimum'"));
        let silent = JSONSchemaProps {
            x_kubernetes_validations: Some(vec![ValidationRule {
                rule: "self != ''".to_owned(),
                ..ValidationRule::default()
            }]),
            ..string()
        };
        assert!(refused(silent).contains("without a message: self != ''"));
        let odd = JSONSchemaProps {
            format: Some("byte".to_owned()),
            ..string()
        };
        assert!(refused(odd).contains("byte"));
    }

    #[test]
    fn anchors_are_those_of_the_book() {
        assert_eq!(anchor("spec.env[].valueFrom"), "specenvvaluefrom");
    }
}
