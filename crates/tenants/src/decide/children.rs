//! Finds the missing, changed and obsolete objects of a Tenant.

use api::{
    Reason,
    decide::{ConditionUpdate, Effect, Manifest, ResourceType, Target},
    names,
    tenants::{Counted, Usage, Used, condition},
};
use serde_json::json;

use super::TenantState;
use crate::{
    build::{self, types},
    drift,
    view::{ChildView, QuotaView, SecretView},
};

/// Types that restrict access. Their objects may contain nothing beyond the manifest.
const EXACT: &[ResourceType] = &[types::NETWORK_POLICY, types::ROLE_BINDING];

/// Types of workload objects. The Tenant's own objects have known names. An owner may have copied one of
/// them with all its labels.
const WORK: &[ResourceType] = &[
    ResourceType::CONFIG_MAP,
    types::SERVICE,
    types::DEPLOYMENT,
    types::STATEFUL_SET,
];

/// A manifest of the spec, with the existing object.
pub(super) struct Desired<'a> {
    pub(super) manifest: Manifest,
    child: Option<&'a ChildView>,
    /// Whether the object matches the manifest, and the last applied manifest is the current one.
    pub(super) is_intact: bool,
}

/// Returns all manifests of the spec. Called once per decision, because it builds and compares many
/// objects.
pub(super) fn desired(state: TenantState<'_>) -> Vec<Desired<'_>> {
    let all = build::children(state.context, state.secret_uid()).into_iter();
    all.map(|manifest| {
        let child = state.world.child(&manifest);
        Desired {
            is_intact: child.is_some_and(|child| is_intact(child, &manifest)),
            child,
            manifest,
        }
    })
    .collect()
}

/// Returns the effects that create, repair and delete children. Restrictions come first.
pub(super) fn effects(state: TenantState<'_>, wanted: &[Desired<'_>]) -> Vec<Effect> {
    let (work, bounds): (Vec<&Desired<'_>>, Vec<&Desired<'_>>) = wanted
        .iter()
        .partition(|one| WORK.contains(&one.manifest.resource));
    // Owners get their permissions after all restrictions exist.
    let (rights, bounds): (Vec<&Desired<'_>>, Vec<&Desired<'_>>) = bounds
        .into_iter()
        .partition(|one| one.manifest.resource == types::ROLE_BINDING);
    // Restrictions are independent of other objects, which the API server may reject for a long time.
    let bounds = bounds.iter().filter_map(|one| wanting(state, one));
    let mut effects: Vec<_> = bounds.map(|one| apply(one.independent())).collect();
    // Delete obsolete objects that allow access before anything else is created. A rejected creation ends
    // the reconciliation, and owners would keep revoked permissions.
    let (mut opening, other): (Vec<_>, Vec<_>) =
        to_prune(state, wanted).partition(|(resource, _)| EXACT.contains(resource));
    opening.sort_by_key(|(resource, child)| !closes(*resource, child));
    effects.extend(prune_effects(&opening));
    for child in retained_policies(state, wanted) {
        effects.push(Effect::Delete(target(types::NETWORK_POLICY, child)));
    }
    for one in rights {
        effects.extend(wanting(state, one).map(|manifest| {
            // Revoking permissions does not wait either.
            let is_less = one.child.is_some_and(|child| takes_away(child, &manifest));
            apply(if is_less {
                manifest.independent()
            } else {
                manifest
            })
        }));
    }
    effects.extend(secret(state));
    // Create the workloads that use the password after the Secret exists. Otherwise they would be rolled
    // out twice.
    let is_keyed = state.context.spec.redis.is_none() || state.secret_uid().is_some();
    let needs_key = [types::DEPLOYMENT, types::STATEFUL_SET];
    let is_time = |one: &&&Desired<'_>| is_keyed || !needs_key.contains(&one.manifest.resource);
    let work = work.iter().filter(is_time);
    effects.extend(work.filter_map(|one| apply_effect(state, one)));
    effects.extend(prune_effects(&other));
    effects
}

/// Returns whether this is the default-deny policy. It is deleted before the policies that allow traffic.
/// Otherwise workloads would be cut off in between.
fn closes(resource: ResourceType, child: &ChildView) -> bool {
    resource == types::NETWORK_POLICY && child.name == build::DENY
}

fn prune_effects(all: &[(ResourceType, &ChildView)]) -> impl Iterator<Item = Effect> {
    let going = all.iter().filter(|(_, child)| !child.is_deleting);
    going.map(|(resource, child)| Effect::Delete(target(*resource, child)))
}

/// Returns whether all desired subjects of a RoleBinding exist already, so that an apply only revokes
/// permissions.
fn takes_away(child: &ChildView, wanted: &Manifest) -> bool {
    let live = child.live.value();
    let subjects = |value: &serde_json::Value| -> Vec<serde_json::Value> {
        let all = value.get("subjects").and_then(serde_json::Value::as_array);
        all.cloned().unwrap_or_default()
    };
    let known = subjects(&live);
    let is_known = |one: &serde_json::Value| known.iter().any(|live| drift::covers(live, one));
    subjects(&wanted.body).iter().all(is_known)
}

/// Returns the effect that applies the manifest, if the object is missing or changed.
fn apply_effect(state: TenantState<'_>, wanted: &Desired<'_>) -> Option<Effect> {
    wanting(state, wanted).map(apply)
}

fn apply(manifest: Manifest) -> Effect {
    Effect::Apply(Box::new(manifest))
}

/// Returns the manifest if the object is missing or changed.
fn wanting(state: TenantState<'_>, wanted: &Desired<'_>) -> Option<Manifest> {
    let manifest = match wanted.child {
        Some(child) if child.is_deleting || wanted.is_intact => return None,
        Some(child) => wanted.manifest.clone().expected_uid(&child.uid),
        None => wanted
            .manifest
            .clone()
            .adopt_from(names::RETAINED_FROM, state.context.name),
    };
    Some(manifest)
}

fn is_wanted(wanted: &[Desired<'_>], resource: ResourceType, child: &ChildView) -> bool {
    let mut all = wanted.iter().map(|one| &one.manifest);
    all.any(|one| one.resource == resource && one.name == child.name)
}

/// Returns the obsolete policies that were retained from an earlier Tenant of this name.
pub(super) fn retained_policies<'a>(
    state: TenantState<'a>,
    wanted: &'a [Desired<'_>],
) -> impl Iterator<Item = &'a ChildView> {
    let left = state.world.retained_policies.iter();
    left.filter(|child| !is_wanted(wanted, types::NETWORK_POLICY, child))
}

/// Returns the obsolete children of the Tenant.
pub(super) fn to_prune<'a>(
    state: TenantState<'a>,
    wanted: &'a [Desired<'_>],
) -> impl Iterator<Item = (ResourceType, &'a ChildView)> {
    let is_ours = |resource: ResourceType, child: &ChildView| {
        let is_known = [build::REDIS, build::SERVER].contains(&child.name.as_str());
        is_known || !WORK.contains(&resource)
    };
    let all = state.world.children.iter();
    all.filter(move |(resource, child)| {
        is_ours(*resource, child) && !is_wanted(wanted, *resource, child)
    })
    .map(|(resource, child)| (*resource, child))
}

/// Creates the Redis Secret once and never changes it. To get another password, a user deletes the Secret.
fn secret(state: TenantState<'_>) -> Option<Effect> {
    let world = state.world;
    let target = |uid: &str| Target {
        resource: types::SECRET,
        namespace: Some(state.context.namespace()),
        name: build::SECRET.to_owned(),
        uid: uid.to_owned(),
        version: None,
        requires_intent: None,
        optional: false,
    };
    if state.context.spec.redis.is_none() {
        return state.secret_uid().map(|uid| Effect::Delete(target(uid)));
    }
    match &world.secret {
        Some(secret) if is_left(state, secret) => {
            let labels = names::child_labels("Tenant", state.context.name, state.context.uid);
            let patch = json!({
                "metadata": {
                    "labels": labels,
                    "annotations": { names::RETAINED_FROM: null, names::UID: state.context.uid },
                },
            });
            Some(Effect::Patch {
                target: target(&secret.uid),
                subresource: None,
                patch,
            })
        }
        Some(secret) if state.secret_uid().is_some() => {
            let is_labelled = secret.has_label;
            let labels = names::child_labels("Tenant", state.context.name, state.context.uid);
            (!is_labelled).then(|| Effect::Patch {
                target: target(&secret.uid),
                subresource: None,
                patch: json!({ "metadata": { "labels": labels } }),
            })
        }
        // The API server rejects the creation if an unmanaged Secret has the name, and the error is
        // reported.
        Some(_) | None => {
            let secret = build::secret(state.context, &world.fresh_password)?;
            Some(Effect::Ensure(Box::new(secret)))
        }
    }
}

/// Returns whether an earlier Tenant of the same name retained or created the Secret.
fn is_left(state: TenantState<'_>, secret: &SecretView) -> bool {
    let name = names::label_value(state.context.name);
    secret.retained_from.as_deref() == Some(state.context.name)
        || state.secret_uid().is_none() && secret.owner_name.as_ref() == Some(&name)
}

/// Returns a message about a missing or blocking object. Such an object may need no effect: one that is
/// being deleted blocks, but can only be waited for.
pub(super) fn missing(state: TenantState<'_>, wanted: &[Desired<'_>]) -> Option<String> {
    let going = "is being deleted, and a new one is created afterwards; does it have a finalizer?";
    for one in wanted {
        let Manifest { resource, name, .. } = &one.manifest;
        let kind = resource.kind;
        match one.child {
            Some(child) if child.is_deleting => return Some(format!("{kind} '{name}' {going}")),
            Some(_) if one.is_intact => {}
            Some(_) | None => return Some(format!("{kind} '{name}' is being set")),
        }
    }
    let secret = state.world.secret.as_ref();
    match (&state.context.spec.redis, state.secret_uid()) {
        (Some(_), Some(_)) if secret.is_some_and(|secret| secret.is_deleting) => {
            return Some(format!("Secret '{}' {going}", build::SECRET));
        }
        (Some(_), None) => return Some(format!("Secret '{}' is being made", build::SECRET)),
        (None, Some(_)) => return Some(format!("Secret '{}' is being deleted", build::SECRET)),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let (resource, child) = to_prune(state, wanted).next()?;
    let Target { resource, name, .. } = target(resource, child);
    Some(format!(
        "{} '{name}' is no longer needed but still exists; does it have a finalizer?",
        resource.kind
    ))
}

fn is_intact(child: &ChildView, manifest: &Manifest) -> bool {
    let (live, wanted) = (child.live.value(), drift::kept(&manifest.body));
    let is_same = if EXACT.contains(&manifest.resource) {
        let part =
            |value: &serde_json::Value, field: &str| value.get(field).cloned().unwrap_or_default();
        ["spec", "subjects", "roleRef"]
            .iter()
            .all(|field| drift::equals(&part(&live, field), &part(&wanted, field)))
    } else {
        true
    };
    child.intent.as_deref() == manifest.intent() && is_same && drift::covers(&live, &wanted)
}

pub(super) fn target(resource: ResourceType, child: &ChildView) -> Target {
    Target {
        resource,
        namespace: Some(child.namespace.clone()),
        name: child.name.clone(),
        uid: child.uid.clone(),
        version: None,
        requires_intent: None,
        optional: false,
    }
}

/// Returns the usage of the quotas.
pub(super) fn usage(state: TenantState<'_>) -> Option<Usage> {
    let quotas = &state.world.quotas;
    let used = |name: &str| {
        quotas
            .iter()
            .filter(|quota| quota.name != "tenant-probes")
            .flat_map(|quota| quota.used.iter())
            .find(|(known, _)| known == name)
            .map(|(_, amount)| amount.clone())
    };
    let both = |request: &str, limit: &str| {
        let used = Used {
            request: used(request),
            limit: used(limit),
        };
        (used != Used::default()).then_some(used)
    };
    let usage = Usage {
        cpu: both("requests.cpu", "limits.cpu"),
        memory: both("requests.memory", "limits.memory"),
        storage: both("requests.storage", ""),
        pods: used("pods").map(|used| Counted { used }),
    };
    (usage != Usage::default()).then_some(usage)
}

/// Returns the condition of the quotas: whether they exist as requested, and the cluster enforces them.
pub(super) fn quota_condition(state: TenantState<'_>, wanted: &[Desired<'_>]) -> ConditionUpdate {
    let is_bound =
        |one: &&Desired<'_>| [types::QUOTA, types::LIMITS].contains(&one.manifest.resource);
    let mut bounds = wanted.iter().filter(is_bound);
    let missing = bounds.clone().find(|one| !one.is_intact);
    // A quota limits nothing until the cluster has counted its usage.
    let uncounted = bounds.find(|Desired { manifest, .. }| {
        let counted = state
            .world
            .quotas
            .iter()
            .find(|quota| quota.name == manifest.name);
        let hard = &manifest.body["spec"]["hard"];
        let is_counted = |quota: &QuotaView| {
            let mut hard = hard.as_object().into_iter().flat_map(|all| all.iter());
            hard.all(|(name, wanted)| {
                let found = quota.hard.iter().find(|(known, _)| known == name);
                found.is_some_and(|(_, found)| drift::is_same_amount(&json!(found), wanted))
            })
        };
        manifest.resource == types::QUOTA && !counted.is_some_and(is_counted)
    });
    let (value, reason, message) = match (missing, uncounted) {
        (None, None) => (
            true,
            Reason::Created,
            "what may be used is bounded as the spec says".to_owned(),
        ),
        (Some(Desired { manifest, .. }), _) => (
            false,
            Reason::Progressing,
            format!(
                "{} '{}' is being set",
                manifest.resource.kind, manifest.name
            ),
        ),
        (None, Some(Desired { manifest, .. })) => (
            false,
            Reason::Progressing,
            format!(
                "ResourceQuota '{}' is not counted by the cluster yet",
                manifest.name
            ),
        ),
    };
    ConditionUpdate {
        kind: condition::QUOTA_READY,
        value: Some(value),
        reason,
        message,
    }
}
