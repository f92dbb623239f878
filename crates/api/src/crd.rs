//! The CRDs, complete: what the derive makes, and what it cannot express.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::tasks::{Agent, TaskRun};

/// The CRDs of the tasks family.
#[must_use]
pub fn tasks() -> Vec<CustomResourceDefinition> {
    vec![complete(Agent::crd()), complete(TaskRun::crd())]
}

/// Adds what the derive cannot express: the status that an object has before we saw it, and the
/// keys by which lists in a status are merged.
#[must_use]
pub fn complete(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            drop_unknown_formats(schema);
        }
        let status = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
            .and_then(|schema| schema.properties.as_mut())
            .and_then(|properties| properties.get_mut("status"));
        let Some(status) = status else { continue };
        status.nullable = None;
        status.default = Some(JSON(json!({ "observedGeneration": -1 })));
        if let Some(conditions) = status
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut("conditions"))
        {
            conditions.x_kubernetes_list_type = Some("map".to_owned());
            conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
        }
    }
    crd
}

/// The API server warns about formats that it does not know, once per apply; `uint32` is one.
fn drop_unknown_formats(schema: &mut JSONSchemaProps) {
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
        drop_unknown_formats(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_unknown_formats(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_unknown_formats(values);
    }
}
