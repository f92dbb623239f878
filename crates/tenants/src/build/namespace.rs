//! The namespace and its owners' permissions.

use std::collections::BTreeMap;

use api::{
    decide::Manifest,
    names,
    tenants::{Owner, OwnerKind},
};
use serde_json::{Value, json};

use super::{BuildContext, types};

/// Returns the labels of a Tenant's namespace: its owner, and the `restricted` Pod Security level.
#[must_use]
pub fn namespace_labels(context: BuildContext<'_>) -> BTreeMap<String, String> {
    let mut labels = names::child_labels("Tenant", context.name, context.uid);
    labels.insert(
        "pod-security.kubernetes.io/enforce".to_owned(),
        "restricted".to_owned(),
    );
    labels
}

/// Names of the namespace's annotations for people.
pub const NOTES: &[&str] = &[
    "orchestrator.io/display-name",
    "orchestrator.io/description",
];

/// Returns the annotations for people: the customer's name, and the purpose of the namespace.
#[must_use]
pub fn description_annotations(context: BuildContext<'_>) -> BTreeMap<String, String> {
    let texts = [&context.spec.display_name, &context.spec.description];
    let pairs = NOTES.iter().zip(texts);
    pairs
        .filter_map(|(name, text)| Some(((*name).to_owned(), text.clone()?)))
        .collect()
}

/// Returns the manifest of the namespace.
#[must_use]
pub fn namespace(context: BuildContext<'_>) -> Manifest {
    let name = context.namespace();
    let labels = namespace_labels(context);
    let body = json!({});
    let mut manifest =
        Manifest::new(types::NAMESPACE, None, &name, context.uid, labels, body).observed_by_name();
    // Identifies the owner even if someone removes the labels.
    manifest.body["metadata"]["annotations"][names::UID] = json!(context.uid);
    for (name, text) in description_annotations(context) {
        manifest.body["metadata"]["annotations"][name] = json!(text);
    }
    manifest
}

/// Returns the RoleBinding of the owners, or `None` without owners.
pub(super) fn role_binding(context: BuildContext<'_>) -> Option<Manifest> {
    if context.spec.owners.is_empty() {
        return None;
    }
    let subjects: Vec<Value> = context.spec.owners.iter().map(subject).collect();
    let body = json!({
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": context.settings.owner_role,
        },
        "subjects": subjects,
    });
    Some(context.manifest(types::ROLE_BINDING, "tenant-owner", "", body))
}

fn subject(owner: &Owner) -> Value {
    let Owner {
        kind,
        name,
        namespace,
    } = owner;
    let group = "rbac.authorization.k8s.io";
    match kind {
        OwnerKind::User => json!({ "apiGroup": group, "kind": "User", "name": name }),
        OwnerKind::Group => json!({ "apiGroup": group, "kind": "Group", "name": name }),
        OwnerKind::ServiceAccount => {
            json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
    }
}
