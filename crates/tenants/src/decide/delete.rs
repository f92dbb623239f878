//! How a Tenant goes, by the policy that its author chose.

use api::{
    Reason, Timestamp, Verdict,
    decide::{Decision, Effect, NoExternal, ResourceType, Target},
    names,
    tenants::{DeletionPolicy, TenantPhase, TenantStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mutant::Mutant;
use serde_json::json;

use super::{
    TenantDecision, View,
    children::{closes, target},
    isolation, place,
};
use crate::{
    build::{self, types},
    view::NamespaceView,
};

/// What restricts goes with the Tenant; what works and stores stays.
const POLICY: &[ResourceType] = &[
    types::QUOTA,
    types::LIMITS,
    types::ROLE_BINDING,
    types::NETWORK_POLICY,
];

pub(super) fn decide(view: View<'_>) -> TenantDecision {
    let mut status = view.status();
    let message = "nothing is said of what is being taken away";
    let conditions = super::unknown(&mut status, Reason::Deleting, message);
    let mut decision = gone(view, status);
    decision.conditions = conditions;
    decision
}

fn gone(view: View<'_>, mut status: TenantStatus) -> TenantDecision {
    let is_forced = super::is_forced(view.tenant);
    let own = view
        .world
        .namespace
        .as_ref()
        .filter(|namespace| place::is_own(view, namespace));
    let deadline = status
        .deadline_at
        .clone()
        .filter(|_| status.phase == Some(TenantPhase::Terminating))
        .unwrap_or_else(|| begun(view));
    status.deadline_at = Some(deadline.clone());
    // The Pods that try connections from outside are in another namespace. Those inside are not waited
    // for: an owner could make others for ever.
    let (outside, inside) = isolation::leftovers(view);
    if !outside.is_empty() && !is_forced {
        let message = "the Pods that tried its connections are taken away";
        let verdict = Verdict::working(Reason::Deleting, message);
        let mut decision = Decision::say(status, TenantPhase::Terminating, verdict);
        decision.effects = outside;
        return decision.wake_at(view.now);
    }
    // Someone else's namespace, or none: there is nothing of ours to take away.
    let Some(namespace) = own.filter(|_| !is_forced) else {
        let verdict = Verdict::working(Reason::Deleting, "nothing is left to be taken away");
        return Decision::say(status, TenantPhase::Terminating, verdict).release();
    };
    match view.of.spec.deletion.policy {
        // All Tenants of the cluster go at once, and nobody asked for the end of any of them: what they
        // have stays as it is, until there are Tenants again.
        _ if view.world.is_definition_going && namespace.deleting.is_none() => {
            retain(view, status, namespace, &[], inside)
        }
        DeletionPolicy::Retain if mutant::on(Mutant::RetainedIsDeleted) => {
            remove(view, status, namespace, &deadline)
        }
        DeletionPolicy::Delete => remove(view, status, namespace, &deadline),
        DeletionPolicy::Retain => retain(view, status, namespace, POLICY, inside),
    }
}

/// The deadline counts from the deletion, not from when somebody looked.
fn begun(view: View<'_>) -> Time {
    let since = view.tenant.metadata.deletion_timestamp.as_ref();
    let since = since.map_or(view.now, |time| time.0);
    let length = std::time::Duration::from(view.of.spec.deletion.deadline);
    Time(since.saturating_add(length).unwrap_or(Timestamp::MAX))
}

/// First it is announced, then the namespace is told to go, then it is waited for.
fn remove(
    view: View<'_>,
    mut status: TenantStatus,
    namespace: &NamespaceView,
    deadline: &Time,
) -> TenantDecision {
    let name = &namespace.name;
    let intent = ["delete ", &namespace.uid].concat();
    let is_announced = status.intent.as_ref() == Some(&intent);
    status.intent = Some(intent.clone());
    if !is_announced && !mutant::on(Mutant::NamespaceUnannounced) {
        let message = format!("namespace '{name}' will be deleted with everything in it");
        let verdict = Verdict::working(Reason::Deleting, message);
        return Decision::say(status, TenantPhase::Terminating, verdict).wake_at(view.now);
    }
    if namespace.deleting.is_none() {
        let message = format!("namespace '{name}' is told to go");
        let verdict = Verdict::working(Reason::Deleting, message);
        return Decision::say(status, TenantPhase::Terminating, verdict).with(Effect::Delete(
            place::target(namespace).irreversible(intent),
        ));
    }
    if mutant::on(Mutant::TenantReleasedEarly) {
        let verdict = Verdict::working(Reason::Deleting, "the namespace was told to go");
        return Decision::say(status, TenantPhase::Terminating, verdict).release();
    }
    let what = place::remaining(namespace);
    if view.now >= deadline.0 {
        let blocker = if what.is_empty() {
            "the cluster does not say what remains in it. It goes on by itself when the namespace is gone"
        } else {
            "it goes on by itself when that is removed"
        };
        let message = format!(
            "namespace '{name}' is not gone after {}{what}; {blocker}. To let the Tenant go without waiting, and leave the namespace as it is: kubectl annotate tenant {} {}=true",
            duration(view),
            view.of.name,
            names::FORCE_DELETE
        );
        let verdict = Verdict::stalled(Reason::DeletionBlocked, message);
        return Decision::say(status, TenantPhase::Terminating, verdict);
    }
    let message = format!("namespace '{name}' is being deleted{what}");
    let verdict = Verdict::working(Reason::Deleting, message);
    Decision::say(status, TenantPhase::Terminating, verdict).wake_at(deadline.0)
}

fn duration(view: View<'_>) -> String {
    view.of.spec.deletion.deadline.to_string()
}

/// What is of these types is taken away, what works is left to itself, the namespace last: until then
/// the next look finds what is not done yet.
fn retain(
    view: View<'_>,
    mut status: TenantStatus,
    namespace: &NamespaceView,
    taken: &[ResourceType],
    probes: Vec<Effect<NoExternal>>,
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
            "namespace '{name}' is left with everything that runs and is stored in it; its quota, roles and policies are taken away"
        )
    };
    let verdict = Verdict::working(Reason::Deleting, message);
    let mut decision = Decision::say(status, TenantPhase::Terminating, verdict);
    if !is_announced {
        return decision.wake_at(view.now);
    }
    decision.effects = probes;
    let mut children: Vec<_> = view.world.children.iter().collect();
    children.sort_by_key(|(resource, child)| !closes(*resource, child));
    for (resource, child) in children {
        decision.effects.push(if taken.contains(resource) {
            Effect::Delete(target(*resource, child))
        } else {
            left(view, target(*resource, child))
        });
    }
    if let Some(uid) = view.secret_uid() {
        let secret = Target {
            resource: types::SECRET,
            namespace: Some(name.clone()),
            name: build::SECRET.to_owned(),
            uid: uid.to_owned(),
            version: None,
            irreversible: None,
        };
        decision.effects.push(left(view, secret));
    }
    decision.effects.push(place::leave(view, namespace));
    decision
}

fn left(view: View<'_>, target: Target) -> Effect<NoExternal> {
    Effect::Patch {
        target,
        subresource: None,
        patch: json!({
            "metadata": {
                "labels": { names::KIND: null, names::NAME: null, names::UID: null },
                "annotations": { names::RETAINED_FROM: view.of.name, names::UID: null },
            },
        }),
    }
}
