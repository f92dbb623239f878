//! Finds the parts of our schemas that an installed CRD lacks.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Returns the parts of `ours` that an installed CRD lacks: versions, fields and values of enums. The
/// API server drops a field that its schema lacks without an error, so an operator would lose it.
///
/// Additions, descriptions, defaults and limits are ignored.
#[must_use]
pub fn lacking(
    installed: &CustomResourceDefinition,
    ours: &CustomResourceDefinition,
) -> Vec<String> {
    let mut lacks = Vec::new();
    for version in &ours.spec.versions {
        let mut known = installed.spec.versions.iter();
        let Some(found) = known.find(|one| one.name == version.name && one.served) else {
            lacks.push(format!("version '{}'", version.name));
            continue;
        };
        match (schema(found), schema(version)) {
            (Some(found), Some(ours)) => compare("", found, ours, &mut lacks),
            (None, Some(_)) => lacks.push(format!("the schema of version '{}'", version.name)),
            (_, None) => {}
        }
    }
    lacks
}

/// Maximum number of missing parts in a message.
const NAMED: usize = 3;

/// Joins the first parts of the result of [`lacking`] for a message: `'a', 'b', 'c' and 2 more`.
#[must_use]
pub fn first_parts(lacks: &[String]) -> String {
    let first: Vec<&str> = lacks.iter().take(NAMED).map(String::as_str).collect();
    let first = first.join(", ");
    match lacks.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn compare(path: &str, found: &JSONSchemaProps, ours: &JSONSchemaProps, lacks: &mut Vec<String>) {
    let accepts_all = found.x_kubernetes_preserve_unknown_fields == Some(true);
    if accepts_all && found.properties.is_none() {
        return;
    }
    if let (Some(found), Some(ours)) = (&found.type_, &ours.type_)
        && found != ours
    {
        lacks.push(format!("'{path}' as {ours}"));
        return;
    }
    if let (Some(found), Some(ours)) = (&found.enum_, &ours.enum_) {
        let missing = ours.iter().filter(|value| !found.contains(value));
        lacks.extend(missing.map(|value| format!("the value {} of '{path}'", value.0)));
    }
    for (name, ours) in ours.properties.iter().flat_map(|all| all.iter()) {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}.{name}"),
        };
        let properties = found.properties.as_ref();
        match properties.and_then(|properties| properties.get(name)) {
            Some(found) => compare(&path, found, ours, lacks),
            None if accepts_all => {}
            None => lacks.push(format!("'{path}'")),
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(ours)) = &ours.items {
        match &found.items {
            Some(JSONSchemaPropsOrArray::Schema(found)) => {
                compare(&format!("{path}[]"), found, ours, lacks);
            }
            Some(JSONSchemaPropsOrArray::Schemas(_)) | None => lacks.push(format!("'{path}[]'")),
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(ours)) = &ours.additional_properties {
        match &found.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(found)) => {
                compare(&format!("{path}.*"), found, ours, lacks);
            }
            Some(JSONSchemaPropsOrBool::Bool(true)) => {}
            Some(JSONSchemaPropsOrBool::Bool(false)) | None => {
                lacks.push(format!("'{path}.*'"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{kinds, tasks::TASK_RUN};

    /// Returns what our own CRD of TaskRuns lacks after this change of its schema.
    fn after(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let ours = TASK_RUN.crd();
        let mut changed = json!(ours);
        change(&mut changed["spec"]["versions"][0]);
        lacking(&serde_json::from_value(changed).unwrap(), &ours)
    }

    fn remove(value: &mut Value, parent: &str, name: &str) {
        let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        assert!(parent.remove(name).is_some(), "{name}");
    }

    const STATUS: &str = "/schema/openAPIV3Schema/properties/status/properties";
    const SPEC: &str = "/schema/openAPIV3Schema/properties/spec/properties";

    #[test]
    fn our_own_crds_lack_nothing() {
        for kind in kinds::all() {
            assert_eq!(lacking(&kind.crd(), &kind.crd()), [""; 0], "{kind:?}");
        }
    }

    #[test]
    fn an_older_crd_lacks_fields_and_values() {
        let in_list = format!("{SPEC}/markdownFiles/items/properties");
        let values = format!("{STATUS}/phase/enum");
        let results = format!("{STATUS}/result/properties/results");
        for (case, found, wanted) in [
            (
                "a field",
                after(|version| remove(version, STATUS, "reason")),
                vec!["'status.reason'"],
            ),
            (
                "a field of the objects in a list",
                after(|version| remove(version, &in_list, "content")),
                vec!["'spec.markdownFiles[].content'"],
            ),
            (
                "a value",
                after(|version| {
                    let values = version.pointer_mut(&values).unwrap();
                    values.as_array_mut().unwrap().retain(|one| one != "Failed");
                }),
                vec!["the value \"Failed\" of 'status.phase'"],
            ),
            (
                "the values of a map",
                after(|version| remove(version, &results, "additionalProperties")),
                vec!["'status.result.results.*'"],
            ),
            (
                "another type",
                after(|version| {
                    *version.pointer_mut(&format!("{SPEC}/taskId/type")).unwrap() = json!("string");
                }),
                vec!["'spec.taskId' as integer"],
            ),
            (
                "the version is not served",
                after(|version| version["served"] = json!(false)),
                vec!["version 'v1'"],
            ),
            (
                "the version has another name",
                after(|version| version["name"] = json!("v1beta1")),
                vec!["version 'v1'"],
            ),
        ] {
            assert_eq!(found, wanted, "{case}");
        }
    }

    #[test]
    fn a_message_has_the_first_parts() {
        for (count, expected) in [
            (0, ""),
            (1, "1"),
            (3, "1, 2, 3"),
            (4, "1, 2, 3 and 1 more"),
            (9, "1, 2, 3 and 6 more"),
        ] {
            let parts: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            assert_eq!(first_parts(&parts), expected);
        }
    }

    #[test]
    fn additions_texts_and_limits_are_ignored() {
        let found = after(|version| {
            let spec = version.pointer_mut(SPEC).unwrap();
            spec["more"] = json!({ "type": "string" });
            spec["serviceName"]["description"] = json!("Another text.");
            spec["serviceName"]["maxLength"] = json!(300);
            let phase = version.pointer_mut(&format!("{STATUS}/phase/enum"));
            phase.unwrap().as_array_mut().unwrap().push(json!("New"));
        });
        assert_eq!(found, [""; 0]);
        let open = after(|version| {
            let status = version.pointer_mut("/schema/openAPIV3Schema/properties/status");
            *status.unwrap() =
                json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        });
        assert_eq!(open, [""; 0], "a status without a schema keeps all fields");
    }
}
