//! Violates every bound of the schemas, one at a time. The test walks each schema along an object
//! that has every field, so it tests a new field without a change here.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Value, json};
use testkit::{cluster::Tier, suite};

use crate::{
    fixtures::{agent_spec, app_spec, docs_spec, notebook_spec, run_spec, tenant_spec},
    support::{Kind, causes, install, taken, would_create},
};

/// A field of a spec, and a value that must be rejected there.
struct Wrong {
    /// JSON pointer below the spec to the value that is replaced.
    pointer: String,
    /// Name of the field in the response of the API server.
    field: String,
    bound: String,
    value: Value,
}

/// Collects invalid replacements of `value`, and of all values in it.
fn walk(pointer: &str, field: &str, schema: &JSONSchemaProps, value: &Value, out: &mut Vec<Wrong>) {
    let mut wrong = |bound: String, value: Value| {
        out.push(Wrong {
            pointer: pointer.to_owned(),
            field: field.to_owned(),
            bound,
            value,
        });
    };
    match schema.type_.as_deref() {
        Some("string") => wrong("type".to_owned(), json!(7)),
        Some(_) => wrong("type".to_owned(), json!("text")),
        None => wrong("type".to_owned(), json!(true)),
    }
    if let Some(most) = schema.max_length {
        let longer = "1".repeat(usize::try_from(most).unwrap_or_default() + 1);
        wrong(format!("maxLength {most}"), json!(longer));
    }
    if schema.min_length.is_some_and(|least| least > 0) {
        wrong("minLength".to_owned(), json!(""));
    }
    if let Some(pattern) = &schema.pattern {
        wrong(format!("pattern {pattern}"), json!("!"));
    }
    if let Some(least) = schema.minimum {
        wrong(format!("minimum {least}"), json!(least as i64 - 1));
    }
    if let Some(most) = schema.maximum {
        wrong(format!("maximum {most}"), json!(most as i64 + 1));
    }
    if schema.enum_.is_some() {
        wrong("enum".to_owned(), json!("Nonsense"));
    }
    if schema.min_items.is_some_and(|least| least > 0) {
        wrong("minItems".to_owned(), json!([]));
    }
    if let (Some(most), Some(first)) = (schema.max_items, value.get(0)) {
        let keys = schema.x_kubernetes_list_map_keys.as_deref();
        let item = |index: i64| {
            let mut item = first.clone();
            for key in keys.unwrap_or_default() {
                item[key] = json!(format!("x{index}"));
            }
            item
        };
        wrong(
            format!("maxItems {most}"),
            (0..=most).map(item).collect::<Value>(),
        );
    }
    if let (Some(most), Some(first)) = (
        schema.max_properties,
        value.as_object().and_then(|map| map.values().next()),
    ) {
        let entry = |index: i64| (format!("k{index}"), first.clone());
        let more: serde_json::Map<_, _> = (0..=most).map(entry).collect();
        wrong(format!("maxProperties {most}"), Value::Object(more));
    }
    for name in schema.required.iter().flat_map(|names| names.iter()) {
        let mut without = value.clone();
        if let Some(map) = without.as_object_mut() {
            map.remove(name);
        }
        out.push(Wrong {
            pointer: pointer.to_owned(),
            field: format!("{field}.{name}"),
            bound: "required".to_owned(),
            value: without,
        });
    }

    for (name, property) in schema.properties.iter().flat_map(|all| all.iter()) {
        if let Some(inner) = value.get(name) {
            let pointer = format!("{pointer}/{name}");
            walk(&pointer, &format!("{field}.{name}"), property, inner, out);
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(items)), Some(list)) =
        (&schema.items, value.as_array())
    {
        for (index, inner) in list.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            walk(&pointer, &format!("{field}[{index}]"), items, inner, out);
        }
    }
    if let (Some(JSONSchemaPropsOrBool::Schema(values)), Some(map)) =
        (&schema.additional_properties, value.as_object())
    {
        for (name, inner) in map {
            let pointer = format!("{pointer}/{}", name.replace('/', "~1"));
            walk(&pointer, &format!("{field}.{name}"), values, inner, out);
        }
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn every_bound_of_a_spec_is_enforced() -> Result<()> {
    suite::test(Tier::Api, "bounds", async |env| {
        install(&env.client).await?;
        let (mut tried, mut failures) = (0, Vec::new());
        for (kind, spec) in [
            (Kind::Agent, json!(agent_spec())),
            (Kind::TaskRun, json!(run_spec())),
            (Kind::DocsRun, json!(docs_spec())),
            (Kind::Tenant, json!(tenant_spec())),
            (Kind::ManagedApp, json!(app_spec())),
            (Kind::Notebook, json!(notebook_spec())),
        ] {
            taken(would_create(&env, kind, &spec).await?)?;
            let schema = kind.schema()?;
            let mut all = Vec::new();
            if let Some(schema) = schema.properties.iter().find_map(|all| all.get("spec")) {
                walk("", "spec", schema, &spec, &mut all);
            }
            for wrong in all {
                tried += 1;
                let mut changed = spec.clone();
                if let Some(place) = changed.pointer_mut(&wrong.pointer) {
                    *place = wrong.value;
                }
                let said = match would_create(&env, kind, &changed).await? {
                    Ok(_) => "accepted".to_owned(),
                    Err(refusal)
                        if refusal.code == 422
                            && causes(&refusal)
                                .iter()
                                .any(|(field, _)| *field == wrong.field) =>
                    {
                        continue;
                    }
                    Err(refusal) => format!("{}: {}", refusal.code, refusal.message),
                };
                let said: String = said.chars().take(300).collect();
                failures.push(format!(
                    "{kind:?} {} with {} broken: {said}",
                    wrong.field, wrong.bound
                ));
            }
        }
        println!("{tried} bounds broken");
        ensure!(tried > 400, "only {tried} bounds were found");
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        Ok(())
    })
    .await
}
