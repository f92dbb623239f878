//! Each row is as its type, and no two rows share a name.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::*;
use crate::{rbac::Scope, status::condition};

/// The attributes of a type must be literals, so a row repeats them.
#[test]
fn a_row_has_the_names_of_its_type() {
    for kind in all() {
        let crd = (kind.derived_crd)();
        let names = &crd.spec.names;
        assert_eq!(crd.spec.group, kind.resource.group, "{kind:?}");
        assert_eq!(crd.spec.versions[0].name, kind.resource.version);
        assert_eq!(
            (&*names.kind, &*names.plural),
            (kind.name(), kind.resource.plural)
        );
        assert_eq!(names.singular.as_deref(), Some(kind.singular));
        assert_eq!(names.short_names, Some(vec![kind.short_name.to_owned()]));
        assert_eq!(crd.metadata.name.as_deref(), Some(kind.crd_name));
        assert_eq!(crd.spec.scope == "Namespaced", kind.is_namespaced);
        assert_eq!(kind.singular, kind.name().to_ascii_lowercase());
    }
}

#[test]
fn a_name_on_the_command_line_means_one_kind() {
    for kind in all() {
        let resource = kind.resource;
        let words = [
            kind.singular,
            resource.kind,
            resource.plural,
            kind.short_name,
            kind.listed,
        ];
        for word in words.iter().chain(kind.aliases) {
            let found: Vec<_> = all().filter(|other| other.has_name(word)).collect();
            assert_eq!(found, [kind], "{word}");
        }
        assert!(kind.has_name(kind.crd_name) && !kind.has_name("pods"));
    }
}

/// The engine reads objects, and patches their status.
#[test]
fn an_operator_may_read_its_kinds_and_write_their_status() {
    for operator in OPERATORS {
        assert_eq!(operator.lease, format!("orchestrator-{}", operator.name));
        for kind in operator.kinds {
            let status = [kind.resource.plural, "/status"].concat();
            let may = |resource: &str, verbs: &[&str]| {
                operator.permissions.iter().any(|permission| {
                    permission.group == GROUP
                        && permission.resource == resource
                        && (permission.scope == Scope::Cluster) != kind.is_namespaced
                        && verbs.iter().all(|verb| permission.verbs.contains(verb))
                })
            };
            assert!(
                may(kind.resource.plural, &["get", "list", "watch"]),
                "{kind:?}"
            );
            assert!(may(&status, &["patch"]), "{kind:?}");
        }
    }
}

#[test]
fn a_column_shows_a_field_or_a_condition_of_its_kind() {
    for kind in all() {
        let crd = (kind.derived_crd)();
        let schema = crd.spec.versions[0].schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        for column in kind.columns {
            match column.content {
                Content::Text(path) | Content::Number(path) => {
                    let below = |schema: &JSONSchemaProps, name: &str| {
                        schema.properties.as_ref()?.get(name).cloned()
                    };
                    let found = path
                        .split('.')
                        .try_fold(root.clone(), |at, name| below(&at, name));
                    assert!(found.is_some(), "{kind:?}: {path}");
                }
                Content::Condition(name) | Content::Reason(name) => {
                    let main = match kind.lifecycle {
                        Lifecycle::RunToCompletion => condition::SUCCEEDED,
                        Lifecycle::LongLived => condition::READY,
                    };
                    let mut own = kind.conditions.iter();
                    assert!(
                        name == main || own.any(|(own, _)| *own == name),
                        "{kind:?}: {name}"
                    );
                }
                Content::Age => {}
            }
        }
        assert!(kind.columns.contains(&Column::AGE) && kind.columns.contains(&Column::MESSAGE));
    }
}
