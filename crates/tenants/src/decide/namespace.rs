//! Ownership of the Tenant's namespace: creation, adoption and release.

use std::collections::BTreeMap;

use api::{
    Reason,
    decide::{ConditionUpdate, Effect, Target},
    names,
    tenants::condition,
};
use serde_json::{Map, Value, json};

use super::TenantState;
use crate::{
    build::{self, types},
    view::NamespaceView,
};

/// Ownership of the namespace, from the Tenant's view.
pub(super) enum NamespaceOwnership {
    /// It belongs to another owner, and is not changed.
    NotOwned(String),
    /// It is being deleted.
    Terminating(String),
    /// It belongs to the Tenant, or will after these effects.
    Owned(Vec<Effect>),
}

pub(super) fn ownership(state: TenantState<'_>) -> NamespaceOwnership {
    let name = state.context.namespace();
    if is_of_the_operator(state) {
        return NamespaceOwnership::NotOwned(format!(
            "namespace '{name}' is the operator's own, which no Tenant can adopt; left unchanged. Delete this Tenant, and create it with another 'namespace'"
        ));
    }
    let Some(namespace) = &state.world.namespace else {
        return NamespaceOwnership::Owned(vec![Effect::Ensure(Box::new(build::namespace(
            state.context,
        )))]);
    };
    let is_own = is_own(state, namespace);
    if namespace.deleting.is_some() {
        let whose = if is_own {
            ""
        } else {
            ", which this Tenant does not own,"
        };
        return NamespaceOwnership::Terminating(format!(
            "namespace '{name}'{whose} is being deleted; a new one is created afterwards{}",
            remaining(namespace)
        ));
    }
    if is_own {
        return NamespaceOwnership::Owned(labels(state, namespace).into_iter().collect());
    }
    let offered = [&namespace.retained_from, &namespace.adopt];
    // A former Tenant of the same name may own it: after a restore from a backup, a Tenant has another UID.
    let is_free = namespace.owner_uid.is_none()
        || namespace.owner_name.as_deref() == Some(&*names::label_value(state.context.name));
    let is_offered = is_free
        && offered
            .iter()
            .any(|tenant| tenant.as_deref() == Some(state.context.name));
    if is_offered {
        return NamespaceOwnership::Owned(vec![adopt(state, namespace)]);
    }
    NamespaceOwnership::NotOwned(taken(state, namespace))
}

/// Returns whether the Tenant requests the namespace in which the operator runs. The Tenant's policies
/// and its quota would stop the operator, and its deletion would delete the operator.
fn is_of_the_operator(state: TenantState<'_>) -> bool {
    state.context.namespace() == state.context.settings.probe_namespace
}

/// Returns whether the namespace belongs to this Tenant. The operator's own namespace never does, also
/// with the Tenant's label.
pub(super) fn is_own(state: TenantState<'_>, namespace: &NamespaceView) -> bool {
    if is_of_the_operator(state) {
        return false;
    }
    match namespace.owner_uid.as_deref() {
        Some(owner) => owner == names::label_value(state.context.uid),
        // Someone removed the label, or the namespace was released.
        None => {
            let status = state.tenant.status.as_ref();
            let known = status.and_then(|status| status.namespace_uid.as_ref());
            namespace.retained_from.is_none() && known == Some(&namespace.uid)
        }
    }
}

/// Formats the messages about resources that block the deletion of a namespace, after a colon.
pub(super) fn remaining(namespace: &NamespaceView) -> String {
    if namespace.remaining.is_empty() {
        return String::new();
    }
    format!(": {}", namespace.remaining.join(" "))
}

fn taken(state: TenantState<'_>, namespace: &NamespaceView) -> String {
    let (name, tenant) = (&namespace.name, state.context.name);
    match &namespace.owner_name {
        Some(other) if namespace.owner_uid.is_some() && other != state.context.name => format!(
            "namespace '{name}' belongs to Tenant '{other}'; left unchanged. Delete that Tenant, or recreate this one with another 'namespace'"
        ),
        Some(_) | None => format!(
            "namespace '{name}' already exists and is not owned by this Tenant; left unchanged. Delete it, recreate this Tenant with another 'namespace', or let it adopt this one: kubectl annotate namespace {name} {}={tenant}",
            names::ADOPT
        ),
    }
}

/// Returns the namespace as a target, without a lock on its version.
pub(super) fn target(namespace: &NamespaceView) -> Target {
    Target {
        resource: types::NAMESPACE,
        namespace: None,
        name: namespace.name.clone(),
        uid: namespace.uid.clone(),
        version: None,
        requires_intent: None,
        optional: false,
    }
}

/// Adopts the namespace. The API server rejects the patch if the namespace changed since the offer was
/// observed.
fn adopt(state: TenantState<'_>, namespace: &NamespaceView) -> Effect {
    Effect::Patch {
        target: Target {
            version: Some(namespace.version.clone()),
            ..target(namespace)
        },
        subresource: None,
        patch: json!({
            "metadata": {
                "labels": build::namespace_labels(state.context),
                "annotations": {
                    names::RETAINED_FROM: null, names::ADOPT: null, names::UID: state.context.uid,
                },
            },
        }),
    }
}

/// Repairs our labels and annotations on the namespace.
fn labels(state: TenantState<'_>, namespace: &NamespaceView) -> Option<Effect> {
    let wanted = build::namespace_labels(state.context);
    let wrong: Map<String, Value> = wanted
        .into_iter()
        .filter(|wanted| {
            let (name, value) = (&wanted.0, &wanted.1);
            !namespace
                .labels
                .iter()
                .any(|(known, found)| known == name && found == value)
        })
        .map(|(name, value)| (name, Value::String(value)))
        .collect();
    let annotations = description_annotations(state, namespace);
    if wrong.is_empty() && annotations.is_empty() {
        return None;
    }
    Some(Effect::Patch {
        target: target(namespace),
        subresource: None,
        patch: json!({ "metadata": { "labels": wrong, "annotations": annotations } }),
    })
}

/// Returns the annotations for people that changed or are obsolete.
fn description_annotations(
    state: TenantState<'_>,
    namespace: &NamespaceView,
) -> Map<String, Value> {
    let wanted = build::description_annotations(state.context);
    let found: BTreeMap<&String, &String> = namespace
        .notes
        .iter()
        .map(|(name, text)| (name, text))
        .collect();
    let set = wanted
        .iter()
        .filter(|(name, text)| found.get(name) != Some(text))
        .map(|(name, text)| (name.clone(), json!(text)));
    let removed = found
        .keys()
        .filter(|name| !wanted.contains_key(**name))
        .map(|name| ((*name).clone(), Value::Null));
    set.chain(removed).collect()
}

/// Releases the namespace: removes our labels, and records the former owner in an annotation.
pub(super) fn release(state: TenantState<'_>, namespace: &NamespaceView) -> Effect {
    let labels: Map<String, Value> = build::namespace_labels(state.context)
        .into_keys()
        .filter(|name| name != "pod-security.kubernetes.io/enforce")
        .map(|name| (name, Value::Null))
        .collect();
    Effect::Patch {
        target: target(namespace),
        subresource: None,
        patch: json!({
            "metadata": {
                "labels": labels,
                "annotations": { names::RETAINED_FROM: state.context.name, names::UID: null },
            },
        }),
    }
}

pub(super) fn ready_condition(state: TenantState<'_>) -> ConditionUpdate {
    let name = state.context.namespace();
    let is_ready =
        state.world.namespace.as_ref().is_some_and(|namespace| {
            is_own(state, namespace) && labels(state, namespace).is_none()
        });
    let (reason, message) = if is_ready {
        let message = format!("namespace '{name}' exists and is owned by this Tenant");
        (Reason::Created, message)
    } else {
        let message = format!("namespace '{name}' is being made");
        (Reason::Progressing, message)
    };
    ConditionUpdate {
        kind: condition::NAMESPACE_READY,
        value: Some(is_ready),
        reason,
        message,
    }
}
