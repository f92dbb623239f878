//! Completes CRDs: the output of the derive macro, with additions that the macro cannot express.

mod lacking;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    SelectableField,
};
use serde_json::json;

pub use lacking::{first_parts, lacking};

/// Command that applies the CRDs, in the sources of the operator's version.
pub const APPLY: &str =
    "kubectl apply --server-side --recursive -f charts/orchestrator/generated/crds";

/// Advice for a CRD that is missing or outdated.
pub const INSTALL: &str = "install the CRDs of this release (helm upgrade)";

/// Fields of the status that a field selector can select by, besides name and namespace.
pub const SELECTABLE: &[&str] = &["status.phase", "status.reason"];

/// Adds the parts that the derive macro cannot express: the default status of an object that we
/// have not reconciled yet, the merge keys of the lists in a status, and the selectable fields.
#[must_use]
pub fn complete(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            tidy(schema);
        }
        let status = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
            .and_then(|schema| schema.properties.as_mut())
            .and_then(|properties| properties.get_mut("status"));
        let Some(status) = status else { continue };
        let mut unseen = json!({
            "observedGeneration": -1,
            "message": "waiting for the operator to look at it",
        });
        if let Some(first) = first_phase(status) {
            unseen["phase"] = first;
        }
        status.default = Some(JSON(unseen));
        if let Some(conditions) = status
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut("conditions"))
        {
            conditions.x_kubernetes_list_type = Some("map".to_owned());
            conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
        }
        let selectable = SELECTABLE.iter().map(|path| SelectableField {
            json_path: format!(".{path}"),
        });
        version.selectable_fields = Some(selectable.collect());
    }
    crd
}

/// Returns the first phase of a kind, the phase of a new object.
fn first_phase(status: &JSONSchemaProps) -> Option<serde_json::Value> {
    let phase = status.properties.as_ref()?.get("phase")?;
    phase.enum_.as_ref()?.first().map(|name| name.0.clone())
}

/// Joins the lines of each paragraph of a description. Comments are wrapped to the width of the
/// code, but a reader of the CRD wraps the text to their own width.
fn unwrapped(comment: &str) -> String {
    let paragraphs: Vec<String> = comment
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .collect();
    paragraphs.join("\n\n")
}

/// Removes `uint` formats and `nullable` from a schema, and unwraps its descriptions.
///
/// The API server warns about every format that it does not know, such as `uint32`, once per apply.
///
/// If the schema allows `null`, the API server stores it. A field with a default would then be
/// `null` instead, and we could not decode the object. If the schema does not allow `null`, the API
/// server drops the `null` before it sets the default.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = unwrapped(description);
    }
    if schema
        .format
        .as_deref()
        .is_some_and(|format| format.starts_with("uint"))
    {
        schema.format = None;
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    /// Calls `visit` with each part of each schema, and with its path.
    fn parts(visit: &mut dyn FnMut(&str, &JSONSchemaProps)) {
        fn walk(
            path: &str,
            schema: &JSONSchemaProps,
            visit: &mut dyn FnMut(&str, &JSONSchemaProps),
        ) {
            visit(path, schema);
            for (name, property) in schema.properties.iter().flat_map(|all| all.iter()) {
                walk(&format!("{path}.{name}"), property, visit);
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                walk(&format!("{path}[]"), items, visit);
            }
            if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
                walk(&format!("{path}.*"), values, visit);
            }
        }
        for crd in kinds::all().map(kinds::KindRow::crd) {
            for version in crd.spec.versions {
                let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
                walk(&crd.spec.names.kind, &schema, visit);
            }
        }
    }

    /// The API server rejects a validation rule as too costly if its input has no bound.
    #[test]
    fn whatever_a_user_writes_has_a_bound() {
        let mut seen = 0;
        parts(&mut |path, schema| {
            if !path.contains(".spec") {
                return;
            }
            seen += 1;
            let is_bounded = match schema.type_.as_deref() {
                Some("string") => schema.max_length.is_some() || schema.enum_.is_some(),
                Some("array") => schema.max_items.is_some(),
                Some("integer") => schema.minimum.is_some(),
                Some("object") => schema.properties.is_some() || schema.max_properties.is_some(),
                None => schema.max_length.is_some(),
                Some(_) => true,
            };
            assert!(is_bounded, "{path}");
        });
        assert!(seen > 50, "only {seen} parts");
    }

    #[test]
    fn each_rule_answers_in_words_and_each_field_is_described() {
        parts(&mut |path, schema| {
            for rule in schema
                .x_kubernetes_validations
                .iter()
                .flat_map(|all| all.iter())
            {
                assert!(
                    rule.message.is_some() || rule.message_expression.is_some(),
                    "{path}: {}",
                    rule.rule
                );
            }
            for (name, property) in schema.properties.iter().flat_map(|all| all.iter()) {
                let is_described = property
                    .description
                    .as_deref()
                    .is_some_and(|text| !text.is_empty());
                assert!(is_described, "{path}.{name}");
            }
        });
    }

    #[test]
    fn a_null_is_never_stored() {
        parts(&mut |path, schema| assert_eq!(schema.nullable, None, "{path}"));
    }
}
