//! Decides the next effects and the status of a Tenant.

mod cause;
mod children;
mod component;
mod delete;
mod isolation;
mod namespace;
#[cfg(test)]
mod tests;

use api::{
    Reason, Timestamp, Verdict,
    decide::{ConditionUpdate, Decision, Effect, Input, ReconcileError, ResourceType},
    names,
    tenants::{Component, ComponentPhase, Tenant, TenantPhase, TenantStatus, condition},
};

use crate::{
    build::{BuildContext, REDIS, SERVER},
    world::TenantWorld,
};
pub use isolation::MAX_CONCURRENT_CHECKS;
use namespace::NamespaceOwnership;

/// A decision about a Tenant.
pub type TenantDecision = Decision<TenantStatus>;

/// A Tenant with the inputs of a decision.
#[derive(Debug, Clone, Copy)]
struct TenantState<'a> {
    context: BuildContext<'a>,
    tenant: &'a Tenant,
    world: &'a TenantWorld,
    now: Timestamp,
    /// Whether the objects in `confirm` were read from the API server in this reconciliation.
    confirmed: bool,
    /// Whether the stored phase is past its deadline.
    overdue: bool,
}

impl TenantState<'_> {
    fn status(&self) -> TenantStatus {
        self.tenant.status.clone().unwrap_or_default()
    }

    /// Returns the UID of the Redis Secret if this Tenant owns it.
    fn secret_uid(&self) -> Option<&str> {
        let owner = names::label_value(self.context.uid);
        let secret = self.world.secret.as_ref()?;
        (secret.owner_uid.as_ref() == Some(&owner)).then_some(secret.uid.as_str())
    }
}

/// Returns whether a user requested to release the Tenant without waiting.
#[must_use]
pub fn is_forced(tenant: &Tenant) -> bool {
    let annotations = tenant.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|all| all.get(names::FORCE_DELETE));
    annotation.is_some_and(|value| value == "true")
}

/// Returns whether the isolation of a Tenant must be checked again.
#[must_use]
pub fn is_proof_due(tenant: &Tenant, world: &TenantWorld, now: Timestamp) -> bool {
    let context = BuildContext::new(tenant, &world.settings);
    isolation::is_due(TenantState {
        context,
        tenant,
        world,
        now,
        confirmed: false,
        overdue: false,
    })
}

/// Returns whether the decision would create probe Pods now if a slot were free.
#[must_use]
pub fn is_waiting_for_a_turn(tenant: &Tenant, world: &TenantWorld, now: Timestamp) -> bool {
    let decision = decide(&Input {
        object: tenant,
        world,
        now,
        fault: None,
        refused: false,
        confirmed: true,
        overdue: false,
    });
    let is_probe = |effect: &Effect| matches!(effect, Effect::Ensure(one) if one.resource == ResourceType::POD);
    decision.effects.iter().any(is_probe)
}

/// Decides the next effects and the status.
#[must_use]
pub fn decide(input: &Input<'_, Tenant, TenantWorld>) -> TenantDecision {
    let state = TenantState {
        context: BuildContext::new(input.object, &input.world.settings),
        tenant: input.object,
        world: input.world,
        now: input.now,
        confirmed: input.confirmed,
        overdue: input.overdue,
    };
    if state.tenant.metadata.deletion_timestamp.is_some() {
        return delete::decide(state);
    }
    match namespace::ownership(state) {
        NamespaceOwnership::NotOwned(why) => {
            wait_for_namespace(state, Verdict::stalled(Reason::NamespaceTaken, why))
        }
        NamespaceOwnership::Terminating(why) => {
            wait_for_namespace(state, Verdict::working(Reason::NamespaceTerminating, why))
        }
        NamespaceOwnership::Owned(effects) => reconcile_owned(state, effects, input.fault),
    }
}

/// Reports a Tenant without a usable namespace.
fn wait_for_namespace(state: TenantState<'_>, verdict: Verdict) -> TenantDecision {
    let mut status = state.status();
    status.namespace = None;
    status.namespace_uid = None;
    let update = ConditionUpdate {
        kind: condition::NAMESPACE_READY,
        value: Some(false),
        reason: verdict.reason,
        message: verdict.message.clone(),
    };
    let mut conditions = vec![update];
    let message = "nothing is known of it without the namespace";
    conditions.extend(clear_observations(&mut status, verdict.reason, message));
    let mut decision = Decision::status_only(status, TenantPhase::Pending, verdict);
    decision.conditions = conditions;
    decision
}

/// Clears the observations of objects in the namespace, and sets their conditions to `Unknown`.
fn clear_observations(
    status: &mut TenantStatus,
    reason: Reason,
    message: &str,
) -> Vec<ConditionUpdate> {
    (status.server_status, status.redis_status, status.usage) = (None, None, None);
    let parts = [
        condition::QUOTA_READY,
        condition::REDIS_READY,
        condition::SERVER_READY,
        condition::NETWORK_POLICIES_READY,
        condition::NETWORK_ISOLATED,
    ];
    let known = parts
        .into_iter()
        .filter(|kind| status.progress.condition(kind).is_some());
    known
        .map(|kind| ConditionUpdate {
            kind,
            value: None,
            reason,
            message: message.to_owned(),
        })
        .collect()
}

/// Creates, repairs and evaluates all other objects. The namespace belongs to the Tenant, or will after
/// `effects`.
///
/// `fault` is the reason why the API server rejected the probe Pods.
fn reconcile_owned(
    state: TenantState<'_>,
    mut effects: Vec<Effect>,
    fault: Option<&ReconcileError>,
) -> TenantDecision {
    let wanted = children::desired(state);
    effects.extend(children::effects(state, &wanted));
    let mut status = state.status();
    // Conditions of components that the spec no longer requests are removed.
    let is_gone = |kind: &str| match kind {
        condition::REDIS_READY => state.context.spec.redis.is_none(),
        condition::SERVER_READY => state.context.spec.server.is_none(),
        _ => false,
    };
    status
        .progress
        .conditions
        .retain(|known| !is_gone(&known.type_));
    status.namespace = Some(state.context.namespace());
    let namespace = state.world.namespace.as_ref();
    status.namespace_uid = namespace.map(|namespace| namespace.uid.clone());
    status.usage = children::usage(state);
    status.redis_status = component::redis(state, &wanted);
    status.server_status = component::server(state, &wanted);
    let base_conditions = [
        namespace::ready_condition(state),
        children::quota_condition(state, &wanted),
    ];
    let unset = if effects.is_empty() {
        let untrue = base_conditions
            .iter()
            .find(|update| update.value != Some(true));
        let untrue = untrue.map(|update| update.message.clone());
        children::missing(state, &wanted).or(untrue)
    } else {
        Some("it is being set up".to_owned())
    };
    let mut conditions = base_conditions.to_vec();
    conditions.extend(component::conditions(state, &status));
    conditions.push(isolation::policies_condition(state, &wanted));
    let (phase, verdict) = aggregate_phase(state, &status, unset);
    let is_ready = phase == TenantPhase::Running;
    let check = isolation::check_isolation(state, &wanted, &status, is_ready, fault);
    status.isolation = check.isolation;
    conditions.push(check.condition);
    effects.extend(check.effects);
    let mut decision = Decision::status_only(status, phase, verdict);
    decision.effects = effects;
    decision.conditions = conditions;
    for at in check.requeue_at.into_iter().chain(cause::requeue_at(state)) {
        decision = decision.requeue_at(at);
    }
    decision
}

/// Aggregates the phase of the Tenant from its components.
///
/// `unset` is the message about another object that is not as desired.
fn aggregate_phase(
    state: TenantState<'_>,
    status: &TenantStatus,
    unset: Option<String>,
) -> (TenantPhase, Verdict) {
    let is_set = unset.is_none();
    let parts: Vec<(&str, Component)> = [
        (REDIS, status.redis_status.clone()),
        (SERVER, status.server_status.clone()),
    ]
    .into_iter()
    .filter_map(|(name, part)| Some((name, part?)))
    .collect();
    let is_all = |phase: ComponentPhase| parts.iter().all(|(_, part)| part.phase == phase);
    if is_set && state.tenant.spec.suspend && is_all(ComponentPhase::Suspended) {
        let message = if parts.is_empty() {
            "'spec.suspend' is set, and there is neither a server nor a Redis to be stopped"
        } else {
            "server and Redis are stopped by 'spec.suspend'; their data stays"
        };
        return (
            TenantPhase::Suspended,
            Verdict::working(Reason::Suspended, message),
        );
    }
    if is_set && !state.tenant.spec.suspend && is_all(ComponentPhase::Running) {
        return (TenantPhase::Running, Verdict::ready(running(state, &parts)));
    }
    let blocked = parts
        .iter()
        .find(|(_, part)| part.phase == ComponentPhase::Degraded);
    if let Some((name, part)) = blocked {
        let reason = component::blocker(state, name).map_or(Reason::NotReady, |cause| cause.reason);
        let message = format!("{name}: {}", part.message);
        return (TenantPhase::Degraded, Verdict::working(reason, message));
    }
    let waits: Vec<String> = parts
        .iter()
        .filter(|(_, part)| part.phase != ComponentPhase::Running)
        .map(|(name, part)| format!("{name}: {}", part.message))
        .collect();
    let message = if waits.is_empty() {
        let unset = unset.unwrap_or_default();
        format!("namespace '{}': {unset}", state.context.namespace())
    } else {
        waits.join("; ")
    };
    if state.overdue || was_late(status) {
        return (
            TenantPhase::Degraded,
            Verdict::working(Reason::NotReady, message),
        );
    }
    (
        TenantPhase::Provisioning,
        Verdict::working(Reason::Progressing, message),
    )
}

/// Returns whether the Tenant is `Degraded` because it took too long. It stays so until it is ready or a cause is
/// known. Otherwise its next decision would begin the time to get ready again.
fn was_late(status: &TenantStatus) -> bool {
    let ready = status.progress.condition(api::status::condition::READY);
    let is_late = ready.is_some_and(|known| known.reason == Reason::NotReady.name());
    status.phase == Some(TenantPhase::Degraded) && is_late
}

fn running(state: TenantState<'_>, parts: &[(&str, Component)]) -> String {
    let namespace = state.context.namespace();
    if parts.is_empty() {
        return format!("namespace '{namespace}' with its quota, roles and policies exists");
    }
    let ready: Vec<String> = parts
        .iter()
        .map(|(name, part)| format!("{name} {}/{}", part.ready_replicas, part.total_replicas))
        .collect();
    format!("namespace '{namespace}': {} ready", ready.join(", "))
}
