//! Deletes a Tenant, by the policy in its spec.

use api::{
    Reason, Verdict,
    decide::{Decision, Effect, LiveRead, ResourceType, Target},
    names,
    tenants::{DeletionPolicy, TenantPhase, TenantStatus},
};
use serde_json::json;

use super::{TenantDecision, TenantState, children::target, isolation, namespace};
use crate::{
    build::{self, types},
    view::NamespaceView,
};

/// Types of objects that `Retain` deletes: owners have no permissions in a namespace without a Tenant.
///
/// Quotas, limits and network policies stay. Without them every Pod of the cluster could reach the
/// workloads that keep running there.
const NOT_RETAINED: &[ResourceType] = &[types::ROLE_BINDING];

/// All types of children in the namespace, except the Secret. The Secret is found by its fixed name.
const CHILDREN: &[ResourceType] = &[
    types::QUOTA,
    types::LIMITS,
    types::ROLE_BINDING,
    types::NETWORK_POLICY,
    ResourceType::CONFIG_MAP,
    types::SERVICE,
    types::DEPLOYMENT,
    types::STATEFUL_SET,
];

pub(super) fn decide(state: TenantState<'_>) -> TenantDecision {
    let mut status = state.status();
    let message = "not observed while the Tenant is being deleted";
    let conditions = super::clear_observations(&mut status, Reason::Deleting, message);
    let mut decision = gone(state, status);
    decision.conditions = conditions;
    // The deadline counts from the deletion and not from the first reconciliation after it.
    let since = state.tenant.metadata.deletion_timestamp.as_ref();
    decision.phase_since = since.map(|time| time.0);
    decision
}

fn gone(state: TenantState<'_>, status: TenantStatus) -> TenantDecision {
    let is_forced = super::is_forced(state.tenant);
    let own = state
        .world
        .namespace
        .as_ref()
        .filter(|namespace| namespace::is_own(state, namespace));
    // The probe Pods outside are in the operator's namespace. We do not wait for those in the Tenant's
    // namespace, because an owner could create new ones indefinitely.
    let (outside, inside) = isolation::leftovers(state);
    if !outside.is_empty() && !is_forced {
        let message = "the Pods that checked its connections are deleted";
        let verdict = Verdict::working(Reason::Deleting, message);
        let mut decision = Decision::status_only(status, TenantPhase::Terminating, verdict);
        decision.effects = outside;
        return decision.requeue_at(state.now);
    }
    // The namespace does not exist or belongs to another owner, so there is nothing to delete.
    let Some(namespace) = own.filter(|_| !is_forced) else {
        let verdict = Verdict::working(Reason::Deleting, "nothing is left to delete");
        let mut decision =
            Decision::status_only(status, TenantPhase::Terminating, verdict).remove_finalizer();
        if !state.confirmed && !is_forced {
            decision.confirm = absent(state);
        }
        return decision;
    };
    match state.context.spec.deletion.policy {
        // The CRD's deletion deletes all Tenants at once, although nobody requested to delete any of them.
        // Their objects stay as they are, until Tenants of the same names exist again.
        _ if state.world.is_definition_going && namespace.deleting.is_none() => {
            retain(state, status, namespace, &[], inside)
        }
        DeletionPolicy::Delete => remove(state, status, namespace),
        DeletionPolicy::Retain => retain(state, status, namespace, NOT_RETAINED, inside),
    }
}

/// Returns the reads that verify the absence of the Tenant's objects, which the caches do not have. Without
/// these reads, the Tenant could be released too early, and nobody would delete the objects afterwards.
fn absent(state: TenantState<'_>) -> Vec<LiveRead> {
    let namespace = LiveRead::Object {
        resource: types::NAMESPACE,
        namespace: None,
        name: state.context.namespace(),
    };
    let outside = &state.world.settings.probe_namespace;
    let mut reads = vec![namespace, children_in(state, ResourceType::POD, outside)];
    // If the namespace exists after all, the same reconciliation needs its children.
    reads.extend(all_children(state));
    reads
}

fn all_children(state: TenantState<'_>) -> impl Iterator<Item = LiveRead> {
    let namespace = state.context.namespace();
    CHILDREN
        .iter()
        .map(move |one| children_in(state, *one, &namespace))
}

fn children_in(state: TenantState<'_>, resource: ResourceType, namespace: &str) -> LiveRead {
    LiveRead::Children {
        resource,
        namespace: namespace.to_owned(),
        owner_kind: "Tenant",
        owner_uid: state.context.uid.to_owned(),
    }
}

/// Announces the deletion of the namespace, then deletes the namespace, then waits for it.
fn remove(
    state: TenantState<'_>,
    mut status: TenantStatus,
    namespace: &NamespaceView,
) -> TenantDecision {
    let name = &namespace.name;
    let intent = ["delete ", &namespace.uid].concat();
    let is_announced = status.intent.as_ref() == Some(&intent);
    status.intent = Some(intent.clone());
    if !is_announced {
        let message = format!("namespace '{name}' will be deleted with everything in it");
        let verdict = Verdict::working(Reason::Deleting, message);
        return Decision::status_only(status, TenantPhase::Terminating, verdict)
            .requeue_at(state.now);
    }
    if namespace.deleting.is_none() {
        let message = format!("requesting the deletion of namespace '{name}'");
        let verdict = Verdict::working(Reason::Deleting, message);
        return Decision::status_only(status, TenantPhase::Terminating, verdict).with(
            Effect::Delete(namespace::target(namespace).requires_intent(intent)),
        );
    }
    let what = namespace::remaining(namespace);
    let is_late = state.overdue && status.phase == Some(TenantPhase::Terminating);
    if is_late {
        let blocker = if what.is_empty() {
            "the cluster does not report what remains in it. The deletion continues automatically when the namespace is deleted"
        } else {
            "the deletion continues automatically when that is removed"
        };
        let message = format!(
            "namespace '{name}' is not deleted after {}{what}; {blocker}. To release the Tenant without waiting, and leave the namespace as it is: kubectl annotate tenant {} {}=true",
            duration(state),
            state.context.name,
            names::FORCE_DELETE
        );
        let verdict = Verdict::stalled(Reason::DeletionBlocked, message);
        return Decision::status_only(status, TenantPhase::Terminating, verdict);
    }
    let message = format!("namespace '{name}' is being deleted{what}");
    let verdict = Verdict::working(Reason::Deleting, message);
    Decision::status_only(status, TenantPhase::Terminating, verdict)
}

fn duration(state: TenantState<'_>) -> String {
    state.context.spec.deletion.deadline.to_string()
}

/// Deletes the children of these types and releases the others. Releases the namespace last: until then,
/// the next reconciliation finds the unfinished work.
fn retain(
    state: TenantState<'_>,
    mut status: TenantStatus,
    namespace: &NamespaceView,
    taken: &[ResourceType],
    probes: Vec<Effect>,
) -> TenantDecision {
    let name = &namespace.name;
    let intent = ["retain ", &namespace.uid].concat();
    let is_announced = status.intent.as_ref() == Some(&intent);
    status.intent = Some(intent);
    let message = if taken.is_empty() {
        format!(
            "the definition of Tenants is being deleted: namespace '{name}' is left as it is, whatever 'deletion.policy' says"
        )
    } else {
        format!(
            "namespace '{name}' stays, with everything that runs and is stored in it, and with its quota and network policies; its owners lose their permissions"
        )
    };
    let verdict = Verdict::working(Reason::Deleting, message);
    let mut decision = Decision::status_only(status, TenantPhase::Terminating, verdict);
    if !is_announced {
        return decision.requeue_at(state.now);
    }
    if !state.confirmed {
        // An object that is not found now would keep the labels of a Tenant that does not exist.
        decision.confirm = all_children(state).collect();
        return decision;
    }
    decision.effects = probes;
    for (resource, child) in &state.world.children {
        decision.effects.push(if taken.contains(resource) {
            Effect::Delete(target(*resource, child))
        } else {
            release_child(state, target(*resource, child))
        });
    }
    if let Some(uid) = state.secret_uid() {
        let secret = Target {
            resource: types::SECRET,
            namespace: Some(name.clone()),
            name: build::SECRET.to_owned(),
            uid: uid.to_owned(),
            version: None,
            requires_intent: None,
            optional: false,
        };
        decision.effects.push(release_child(state, secret));
    }
    decision.effects.push(namespace::release(state, namespace));
    decision
}

fn release_child(state: TenantState<'_>, target: Target) -> Effect {
    Effect::Patch {
        target,
        subresource: None,
        patch: json!({
            "metadata": {
                "labels": { names::KIND: null, names::NAME: null, names::UID: null },
                "annotations": { names::RETAINED_FROM: state.context.name, names::UID: null },
            },
        }),
    }
}
