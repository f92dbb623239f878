//! State of the server and the Redis.

use api::{
    Reason,
    decide::{ConditionUpdate, ResourceType},
    tenants::{Component, ComponentPhase, TenantStatus, condition},
};
use pods::Cause;

use super::{TenantState, cause, children::Desired};
use crate::{
    build::{REDIS, SERVER, types},
    view::WorkloadView,
};

pub(super) fn redis(state: TenantState<'_>, wanted: &[Desired<'_>]) -> Option<Component> {
    state.context.spec.redis.as_ref()?;
    let workload = applied(wanted, types::STATEFUL_SET, state.world.redis.as_ref());
    Some(evaluate(state, REDIS, &workload, 1))
}

pub(super) fn server(state: TenantState<'_>, wanted: &[Desired<'_>]) -> Option<Component> {
    let replicas = i32::try_from(state.context.spec.server.as_ref()?.replicas).unwrap_or(i32::MAX);
    let workload = applied(wanted, types::DEPLOYMENT, state.world.server.as_ref());
    Some(evaluate(state, SERVER, &workload, replicas))
}

/// A workload, and whether it matches its manifest.
struct Workload<'a> {
    is_applied: bool,
    view: Option<&'a WorkloadView>,
}

fn applied<'a>(
    wanted: &[Desired<'_>],
    resource: ResourceType,
    view: Option<&'a WorkloadView>,
) -> Workload<'a> {
    let mut all = wanted.iter();
    let is_applied = all.any(|one| one.manifest.resource == resource && one.is_intact);
    Workload { is_applied, view }
}

/// Determines the state of a component.
///
/// The phase is `Running` only with evidence. The workload's controller has observed the spec. All desired
/// replicas exist with the current template and are ready. No other replica remains, and the Service has a
/// ready endpoint.
fn evaluate(
    state: TenantState<'_>,
    name: &str,
    workload: &Workload<'_>,
    replicas: i32,
) -> Component {
    let is_suspended = state.context.spec.suspend;
    let wanted = if is_suspended { 0 } else { replicas };
    let Workload {
        is_applied,
        view: found,
    } = *workload;
    let Some(workload) = found else {
        let message = "is being made".to_owned();
        return component(ComponentPhase::Provisioning, message, 0, wanted);
    };
    let WorkloadView {
        generation,
        observed,
        wanted: asked,
        replicas,
        updated,
        ready,
        failure: _,
    } = *workload;
    // Ready replicas of an earlier spec do not count.
    let is_seen = is_applied && observed >= generation && asked == wanted;
    let pods = state.world.pods.iter();
    // An evicted Pod stays as a record, and does not keep the component from being stopped.
    let left = pods
        .filter(|pod| pod.component == name && !pod.phase.is_over())
        .count();
    if is_suspended {
        let is_stopped = is_seen && replicas == 0 && left == 0;
        return if is_stopped {
            let message = "is stopped".to_owned();
            component(ComponentPhase::Suspended, message, 0, 0)
        } else {
            let pods = if left == 1 { "Pod is" } else { "Pods are" };
            let message = format!("is being stopped; {left} {pods} left");
            component(ComponentPhase::Provisioning, message, ready, 0)
        };
    }
    let is_there = wanted >= 1
        && [replicas, updated, ready]
            .iter()
            .all(|count| *count == wanted);
    let leads = state
        .world
        .endpoints
        .iter()
        .any(|known| known.service == name && known.ready > 0);
    if is_seen && is_there && leads && cause::mismatch(state, name).is_none() {
        let message = format!("{ready} of {wanted} ready");
        return component(ComponentPhase::Running, message, ready, wanted);
    }
    if let Some(Cause { reason: _, message }) = blocker(state, name) {
        return component(ComponentPhase::Degraded, message, ready, wanted);
    }
    let message = if !is_seen {
        "its controller has not seen the change yet".to_owned()
    } else if is_there {
        format!("{ready} of {wanted} ready, but its Service leads to none of them yet")
    } else {
        format!("{ready} of {wanted} ready, {updated} updated, {replicas} in total")
    };
    component(ComponentPhase::Provisioning, message, ready, wanted)
}

/// Returns the cause that keeps a component from being ready.
pub(super) fn blocker(state: TenantState<'_>, name: &str) -> Option<Cause> {
    cause::find(state, name)
}

fn component(phase: ComponentPhase, message: String, ready: i32, wanted: i32) -> Component {
    Component {
        phase,
        message,
        ready_replicas: ready,
        total_replicas: wanted,
    }
}

/// Returns the conditions of the components that the spec requests. The others have no condition.
pub(super) fn conditions(state: TenantState<'_>, status: &TenantStatus) -> Vec<ConditionUpdate> {
    let parts = [
        (condition::REDIS_READY, REDIS, &status.redis_status),
        (condition::SERVER_READY, SERVER, &status.server_status),
    ];
    let update = |(kind, name, part): (&'static str, &str, &Option<Component>)| {
        let part = part.as_ref()?;
        // Each phase has its own value or reason, so that a change of phase is recorded immediately.
        let (value, reason) = match part.phase {
            ComponentPhase::Running => (true, Reason::Ready),
            ComponentPhase::Provisioning => (false, Reason::Progressing),
            ComponentPhase::Suspended => (false, Reason::Suspended),
            ComponentPhase::Degraded => {
                let cause = blocker(state, name);
                (false, cause.map_or(Reason::NotReady, |cause| cause.reason))
            }
        };
        Some(ConditionUpdate {
            kind,
            value: Some(value),
            reason,
            message: part.message.clone(),
        })
    };
    parts.into_iter().filter_map(update).collect()
}
