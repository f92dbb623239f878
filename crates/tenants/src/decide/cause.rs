//! Finds the cause if a server or a Redis is not ready, from kubelet, scheduler, controllers and Events.
//!
//! A message contains nothing that changes with each retry, so repeated decisions give the same message.

use std::{cmp::Reverse, time::Duration};

use api::{
    Reason, Timestamp, pod::Amount, quantity, tenants::condition, warning::Warning,
    webhook::FailedWebhook,
};
use pods::{Cause, ContainerState, Rejection, StartFailure, unscheduled_reason, warning_reason};

use super::TenantState;
use crate::{
    build::{REDIS, SERVER, USER, types},
    view::{PodView, WorkloadView},
};

/// Time after which a running program that fails its probe no longer counts as starting.
pub(super) const STARTING: Duration = Duration::from_secs(5);

/// Time after which the cluster's DNS resolves the name of a ready Redis. The usual configuration of CoreDNS
/// caches the answer that there is no such name for up to 30 s.
const REACHED: Duration = Duration::from_secs(30);

/// Returns the cause if an existing volume is smaller than the requested size.
pub(super) fn mismatch(state: TenantState<'_>, component: &str) -> Option<Cause> {
    let wanted = state
        .context
        .spec
        .redis
        .as_ref()
        .filter(|_| component == REDIS)?;
    let Amount(wanted) = &wanted.storage.size;
    let claim = state
        .world
        .claims
        .iter()
        .find(|claim| claim.name == "data-redis-0")?;
    let found = claim.size.as_ref()?;
    (quantity::parse(found)? < quantity::parse(wanted)?).then(|| {
        Cause::new(
            Reason::VolumeNotReady,
            format!(
                "PersistentVolumeClaim '{}' existed before and has {found}, but 'redis.storage.size' requests {wanted}: request the existing size, or enlarge or delete the claim",
                claim.name
            ),
        )
    })
}

/// Returns the cause that is visible now. The newest Pods are checked first.
pub(super) fn find(state: TenantState<'_>, component: &str) -> Option<Cause> {
    let mut pods: Vec<&PodView> = state
        .world
        .pods
        .iter()
        .filter(|pod| pod.component == component && !pod.is_deleting() && !pod.is_ready)
        .collect();
    pods.sort_by_key(|pod| Reverse(pod.created));
    if let Some(cause) = mismatch(state, component) {
        return Some(cause);
    }
    pods.iter()
        .find_map(|pod| of_pod(state, component, pod))
        .or_else(|| of_workload(state, component))
}

fn of_pod(state: TenantState<'_>, component: &str, pod: &PodView) -> Option<Cause> {
    container(pod)
        .or_else(|| unschedulable(state, component, pod))
        .or_else(|| unanswered(state, component, pod))
        .or_else(|| {
            let warning = state.world.newest_warning(&[&pod.uid], state.now)?;
            let reason = warning_reason(&warning.reason, &warning.message, warning.times)?;
            Some(Cause::new(
                reason,
                format!("Pod '{}': {}", pod.name, warning.message),
            ))
        })
}

fn container(pod: &PodView) -> Option<Cause> {
    let reported = match &pod.container.state {
        ContainerState::Waiting(reported) if reported.reason != "CrashLoopBackOff" => reported,
        ContainerState::Waiting(_) => return Some(crashing(pod)),
        // A restarted container that runs again also counts. Otherwise the message would alternate between starting and
        // crashing.
        ContainerState::Unknown | ContainerState::Running { .. } | ContainerState::Ended(_) => {
            return (pod.container.restarts > 0).then(|| crashing(pod));
        }
    };
    let failure = StartFailure::of(&reported.reason, &reported.message, 0)?;
    let name = format!("Pod '{}'", pod.name);
    Some(failure.cause(&name, &reported.message, Some(USER)))
}

fn crashing(pod: &PodView) -> Cause {
    let exit = pod.container.last_exit();
    let ended = exit.map_or_else(String::new, |exit| {
        format!(": it exited with code {} ({})", exit.code, exit.reason)
    });
    Cause::new(
        Reason::CrashLoop,
        format!(
            "Pod '{}': its program ends again and again{ended}",
            pod.name
        ),
    )
}

/// Reports a Pod without a node. If its volume is missing, the volume is the cause.
fn unschedulable(state: TenantState<'_>, component: &str, pod: &PodView) -> Option<Cause> {
    let message = pod.unschedulable.as_ref()?;
    // Creating a volume and scheduling a Pod take a moment.
    let is_new = state.now < later(pod.created, STARTING);
    let unbound = state.world.claims.iter().find(|claim| !claim.is_bound);
    if let Some(claim) = unbound.filter(|_| component == REDIS) {
        let warning = state.world.newest_warning(&[&claim.uid], state.now);
        if warning.is_none() && is_new {
            return None;
        }
        let detail = warning.map_or_else(String::new, |warning| format!(": {}", warning.message));
        return Some(Cause::new(
            Reason::VolumeNotReady,
            format!(
                "PersistentVolumeClaim '{}' has no volume yet{detail}; check 'redis.storage'",
                claim.name
            ),
        ));
    }
    if is_new {
        return None;
    }
    Some(Cause::new(
        unscheduled_reason(message),
        format!("Pod '{}' has no node: {message}", pod.name),
    ))
}

/// Returns when the next Pod stops counting as starting. No watch event arrives at that time.
pub(super) fn requeue_at(state: TenantState<'_>) -> Option<Timestamp> {
    let pods = state
        .world
        .pods
        .iter()
        .filter(|pod| !pod.is_ready && !pod.is_deleting());
    pods.map(|pod| patience(state, pod))
        .filter(|at| *at > state.now)
        .min()
}

/// Returns when a Pod that fails its probe stops counting as starting. A server that needs the Redis starts
/// when the Redis is reachable.
fn patience(state: TenantState<'_>, pod: &PodView) -> Timestamp {
    let own = later(
        pod.container.state.running_since().or(pod.created),
        STARTING,
    );
    let has_redis = pod.component == SERVER && state.context.spec.redis.is_some();
    if !has_redis || waits_for_redis(state, SERVER) {
        return own;
    }
    own.max(later(Some(redis_ready_since(state)), REACHED))
}

/// Returns when this operator saw that the Redis is ready.
///
/// The `Ready` condition of the Pod has the time of the probe. On a busy node, the kubelet reports it seconds
/// later, and only then the Service leads to the Pod.
fn redis_ready_since(state: TenantState<'_>) -> Timestamp {
    let status = state.tenant.status.as_ref();
    let ready = status.and_then(|status| status.progress.condition(condition::REDIS_READY));
    ready
        .filter(|ready| ready.status == "True")
        .map_or(state.now, |ready| ready.last_transition_time.0)
}

fn later(since: Option<Timestamp>, time: Duration) -> Timestamp {
    since.map_or(Timestamp::MIN, |since| {
        since.saturating_add(time).unwrap_or(Timestamp::MAX)
    })
}

/// Returns whether a server waits for its Redis. Then the server is not the cause.
fn waits_for_redis(state: TenantState<'_>, component: &str) -> bool {
    let is_ready = |redis: &WorkloadView| redis.ready >= 1;
    component == SERVER
        && state.context.spec.redis.is_some()
        && !state.world.redis.as_ref().is_some_and(is_ready)
}

fn unanswered(state: TenantState<'_>, component: &str, pod: &PodView) -> Option<Cause> {
    pod.container.state.running_since()?;
    if state.now < patience(state, pod) || waits_for_redis(state, component) {
        return None;
    }
    let warning = state.world.newest_warning(&[&pod.uid], state.now)?;
    (warning.reason == "Unhealthy").then(|| {
        Cause::new(
            Reason::ProbeFailed,
            format!(
                "Pod '{}' runs, but is not ready: {}",
                pod.name, warning.message
            ),
        )
    })
}

/// Returns a cause from the workload if no Pod has one: its controller may have failed to create a Pod.
fn of_workload(state: TenantState<'_>, component: &str) -> Option<Cause> {
    let (workload, resource) = if component == REDIS {
        (state.world.redis.as_ref()?, types::STATEFUL_SET)
    } else {
        (state.world.server.as_ref()?, types::DEPLOYMENT)
    };
    let child = state
        .world
        .children
        .iter()
        .find(|(known, child)| *known == resource && child.name == component);
    let warning = child
        .and_then(|(_, child)| state.world.newest_warning(&[&child.uid], state.now))
        .filter(|warning| warning.reason == "FailedCreate" && workload.replicas < workload.wanted)
        .map(|Warning { message, .. }| message);
    let message = workload.failure.as_ref().or(warning)?;
    refused(message)
}

/// Returns the reason why the API server rejected a Pod, without the Pod's name, which differs with each
/// retry. A temporary problem of the API server is no cause.
fn refused(message: &str) -> Option<Cause> {
    let why = [" is forbidden: ", " is invalid: "]
        .iter()
        .find_map(|word| message.split_once(word))
        .map_or(message, |(_, why)| why);
    let rule = Rejection::of(message);
    let text = match FailedWebhook::find(message) {
        Some(webhook) => format!("{webhook}, so no Pod can be created: {why}"),
        None => format!("no Pod can be made: {why}"),
    };
    (rule != Rejection::Unanswered).then(|| Cause::new(rule.reason(), text))
}
