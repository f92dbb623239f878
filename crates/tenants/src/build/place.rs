//! The namespace, and who may use it.

use std::collections::BTreeMap;

use api::{
    decide::Manifest,
    names,
    tenants::{Owner, OwnerKind},
};
use serde_json::{Value, json};

use super::{For, types};

/// The labels that a Tenant's namespace must have: whose it is, and that nothing privileged runs there.
#[must_use]
pub fn namespace_labels(of: For<'_>) -> BTreeMap<String, String> {
    let mut labels = names::child_labels("Tenant", of.name, of.uid);
    labels.insert(
        "pod-security.kubernetes.io/enforce".to_owned(),
        "restricted".to_owned(),
    );
    labels
}

/// Annotations of a namespace for people.
pub const NOTES: &[&str] = &[
    "orchestrator.io/display-name",
    "orchestrator.io/description",
];

/// What people are told in a Tenant's namespace: the customer's name, and what the place is for.
#[must_use]
pub fn notes(of: For<'_>) -> BTreeMap<String, String> {
    let said = [&of.spec.display_name, &of.spec.description];
    let pairs = NOTES.iter().zip(said);
    pairs
        .filter_map(|(name, text)| Some(((*name).to_owned(), text.clone()?)))
        .collect()
}

/// The namespace.
#[must_use]
pub fn namespace(of: For<'_>) -> Manifest {
    let name = of.namespace();
    let labels = namespace_labels(of);
    let body = json!({});
    let mut manifest = Manifest::new(types::NAMESPACE, None, &name, of.uid, labels, body);
    // Whose it is, also when someone takes the labels away.
    manifest.body["metadata"]["annotations"][names::UID] = json!(of.uid);
    for (name, text) in notes(of) {
        manifest.body["metadata"]["annotations"][name] = json!(text);
    }
    manifest
}

/// The owners' right to use the namespace; nothing without owners.
pub(super) fn role_binding(of: For<'_>) -> Option<Manifest> {
    if of.spec.owners.is_empty() {
        return None;
    }
    let subjects: Vec<Value> = of.spec.owners.iter().map(subject).collect();
    let body = json!({
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": of.settings.owner_role,
        },
        "subjects": subjects,
    });
    Some(of.manifest(types::ROLE_BINDING, "tenant-owner", "", body))
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
