//! A Tenant's Redis and server: from the Deployment or StatefulSet down to the problems of its
//! Pods.

use api::tenants::{Component, ComponentPhase};
use std::cmp::Reverse;

use super::context::is_ready;
use super::*;

/// A component that a Tenant can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Redis,
    Server,
}

/// A component with the fields of the Tenant that are about it.
struct Row<'a> {
    /// The name of the component's objects, which is also its field in the spec.
    name: &'static str,
    kind: &'static str,
    plural: &'static str,
    condition: &'static str,
    /// The number of requested replicas, or `None` if the spec does not request the component.
    wanted: Option<i32>,
    said: Option<&'a Component>,
}

impl Part {
    fn row(self, tenant: Tenant<'_>) -> Row<'_> {
        let view = tenant.view;
        match self {
            Self::Redis => Row {
                name: "redis",
                kind: "StatefulSet",
                plural: "statefulsets",
                condition: condition::REDIS_READY,
                wanted: view.redis.as_ref().map(|_| 1),
                said: view.status.redis_status.as_ref(),
            },
            Self::Server => Row {
                name: "server",
                kind: "Deployment",
                plural: "deployments",
                condition: condition::SERVER_READY,
                wanted: view.server.as_ref().map(|server| server.replicas),
                said: view.status.server_status.as_ref(),
            },
        }
    }
}

/// Explains the component that keeps the Tenant from being ready. A blocked component comes before
/// one that is just starting. Redis comes first, because the server may wait for it.
pub(super) fn find(tenant: Tenant<'_>) -> Option<Finding> {
    let redis = look(tenant, Part::Redis).map(|finding| ("redis", finding));
    let server = look(tenant, Part::Server).map(|finding| ("server", finding));
    let mut found: Vec<(&str, Finding)> = redis.into_iter().chain(server).collect();
    found.sort_by_key(|(_, finding)| finding.state != State::Blocked);
    let mut found = found.into_iter();
    let (_, mut first) = found.next()?;
    for (name, other) in found.filter(|(_, other)| other.state == State::Blocked) {
        if let Some(link) = other.links.last() {
            let (reason, message) = (&link.reason, &link.message);
            first = first.note(text! { "its {name} is not ready, either: {} '{}' [{reason}] {message}", link.object.kind, link.object.name });
        }
    }
    Some(first)
}

/// Explains why a component is not ready. Returns `None` if it is ready or not requested.
fn look(tenant: Tenant<'_>, part: Part) -> Option<Finding> {
    let row = part.row(tenant);
    let wanted = row.wanted?;
    let Some(workload) = tenant.workload(row.name) else {
        return unseen(tenant, &row);
    };
    let object = tenant.here(row.kind, row.name);
    let own = |reason: &str| own(tenant, &object, workload, reason);
    if let Some(finding) = pod::too_small(tenant).filter(|_| part == Part::Redis) {
        return Some(finding.below([own(Reason::VolumeNotReady.name())]));
    }
    let rollout = &workload.rollout;
    let is_seen = rollout.observed >= workload.meta.generation && rollout.wanted == wanted;
    let counts = [rollout.replicas, rollout.updated, rollout.ready];
    let is_there = counts.iter().all(|count| *count == wanted);
    let endpoints = tenant.endpoints(row.name);
    if is_seen && is_there && endpoints.is_none_or(|(ready, _)| ready > 0) {
        return None;
    }
    let finding = of_pods(tenant, part, &row)
        .map(|finding| match &workload.failure {
            Some(failure) => {
                let message = &failure.message;
                finding.note(format!("more Pods of it are refused, too: {message}"))
            }
            None => finding,
        })
        .or_else(|| not_made(tenant, &row, workload))
        .or_else(|| reported(tenant, &row).filter(|_| !tenant.was_read("pods")))
        .or_else(|| on_the_way(tenant, &row))
        .unwrap_or_else(|| match is_seen && is_there {
            true => not_led(tenant, &row),
            false => rest(
                tenant,
                &row,
                workload,
                own(Reason::Progressing.name()),
                is_seen,
            ),
        });
    if finding.starts_with(&object) {
        return Some(finding);
    }
    let reason = finding.links.first().map(|link| link.reason.clone());
    let reason = reason.unwrap_or_else(|| Reason::Progressing.name().to_owned());
    Some(finding.below([own(&reason)]))
}

/// Returns the link of the Deployment or StatefulSet.
fn own(tenant: Tenant<'_>, object: &ObjectRef, workload: &WorkloadView, reason: &str) -> Link {
    let Rollout {
        replicas,
        updated,
        ready,
        wanted,
        ..
    } = workload.rollout;
    let counts = text! { "{replicas} Pods, {updated} of the newest template, {ready} ready; {wanted} wanted" };
    link! { Waiting object.clone(), reason, "{ready} of {wanted} ready"; seen tenant.seen("status", counts); }
}

/// Explains a component that does not exist, or that may not be read. In that case only the status
/// is known.
fn unseen(tenant: Tenant<'_>, row: &Row<'_>) -> Option<Finding> {
    let object = tenant.here(row.kind, row.name);
    if tenant.exists(row.kind, row.name) == Some(false) {
        return Some(finding! {
            Waiting "Wait: this takes seconds. If it stays so, the first lines will say what keeps the operator from it.";
            Waiting object, Reason::Progressing, "does not exist yet: the operator makes it";
            seen tenant.not_found();
            then tenant.look_again(), operator::log(tenant.world);
        });
    }
    reported(tenant, row)
}

/// Explains a component by the operator's report, if its objects may not be read.
fn reported(tenant: Tenant<'_>, row: &Row<'_>) -> Option<Finding> {
    let object = tenant.here(row.kind, row.name);
    let said = row.said?;
    let (state, health) = match said.phase {
        ComponentPhase::Running | ComponentPhase::Suspended => return None,
        ComponentPhase::Provisioning => (State::Waiting, Health::Waiting),
        ComponentPhase::Degraded => (State::Blocked, Health::Error),
    };
    let known = tenant.condition(row.condition);
    let reason = known.map_or("NotReady", |known| known.reason.as_str());
    Some(finding! {
        (state) "The first lines say what the operator saw. You may not look into namespace '{}' yourself: ask whoever may, with this output.", tenant.namespace;
        (health) object, reason, (&said.message); since known.map(|known| &known.last_transition_time);
        seen (format!("status.{}Status", row.name)) => (&said.message), tenant.written();
        then tenant.object().yaml("all that the Tenant says");
    })
}

/// Explains the problem of the newest Pod that is not ready.
fn of_pods(tenant: Tenant<'_>, part: Part, row: &Row<'_>) -> Option<Finding> {
    let mut pods: Vec<&PodView> = unready(tenant, row.name).collect();
    pods.sort_by_key(|pod| Reverse(pod.meta.created.clone()));
    pods.iter().find_map(|pod| pod::find(tenant, part, pod))
}

fn unready<'a>(tenant: Tenant<'a>, component: &'a str) -> impl Iterator<Item = &'a PodView> {
    tenant.pods(component).filter(|pod| {
        let is_over = ["Succeeded", "Failed"].contains(&pod.phase.as_str());
        pod.meta.deleting.is_none() && !is_ready(pod) && !is_over
    })
}

/// Explains a missing Pod: the API server may have rejected the controller's request.
fn not_made(tenant: Tenant<'_>, row: &Row<'_>, workload: &WorkloadView) -> Option<Finding> {
    let event = tenant.world.warning(&workload.meta.uid, &["FailedCreate"]);
    let said = match (&workload.failure, event) {
        (Some(failure), _) => Report {
            source: failure.evidence().source,
            message: &failure.message,
            at: failure.since.as_ref(),
            since: failure.since.as_ref(),
        },
        (None, Some(event)) if workload.rollout.replicas < workload.rollout.wanted => {
            Report::in_event(event)
        }
        (None, _) => return None,
    };
    // A StatefulSet creates the claim of a Pod before the Pod.
    let what = match said.message.contains("persistentvolumeclaims") {
        true => "PersistentVolumeClaim",
        false => "Pod",
    };
    let (count, wanted) = (workload.rollout.replicas, workload.rollout.wanted);
    let at = tenant.ago(said.at);
    let above = link! {
        Waiting tenant.here(row.kind, row.name), "FailedCreate", "{count} of {wanted} Pods are there: each try to create another is refused, the last{at}";
    };
    let origin = Origin::Tenant(tenant, Some(row.name));
    Some(Refusal::new(origin, what, said).explain(above))
}

/// Explains a Pod that is starting, or a Pod that has to stop before the next one can start.
fn on_the_way(tenant: Tenant<'_>, row: &Row<'_>) -> Option<Finding> {
    let newest = unready(tenant, row.name).max_by_key(|pod| pod.meta.created.clone());
    if let Some(pod) = newest {
        return Some(pod::starting(tenant, pod));
    }
    let mut pods = tenant.pods(row.name);
    let going = pods.find(|pod| pod.meta.deleting.is_some())?;
    Some(finding! {
        Waiting "Wait: an earlier Pod '{}' has to stop first; it has its grace period to end.", going.meta.name;
        link stop::stopped(*tenant, going, Stop::Ours(Reason::Progressing));
        then tenant.look_again(), going.object().describe("the Pod's Events");
    })
}

/// Explains a Service that does not lead to the ready Pods.
fn not_led(tenant: Tenant<'_>, row: &Row<'_>) -> Finding {
    let (ready, other) = tenant.endpoints(row.name).unwrap_or_default();
    let counts = format!("{ready} ready, {other} not ready");
    finding! { Waiting "Wait: this takes seconds. If it stays so, check the endpoint-slice controller (kube-controller-manager).";
        Waiting tenant.here("Service", row.name), Reason::Progressing, "leads to none of the ready Pods yet";
        seen tenant.seen("EndpointSlices of it", counts);
        then commands::list("EndpointSlice", tenant.namespace, "what its Services lead to"), tenant.look_again();
    }
}

/// Explains a component that is not ready although no problem is known.
fn rest(
    tenant: Tenant<'_>,
    row: &Row<'_>,
    workload: &WorkloadView,
    mut own: Link,
    is_seen: bool,
) -> Finding {
    let Rollout {
        ready,
        wanted: set,
        observed,
        ..
    } = workload.rollout;
    let asked = row.wanted.unwrap_or(1);
    let may_look = tenant.may_read("pods") && tenant.may_read(row.plural);
    own.message = one_of! { (set == asked, may_look);
        (true, true) => "{ready} of {asked} ready; its controller is at it, and nothing says that something is wrong";
        (true, false) => "{ready} of {asked} ready; you may not read its Pods, which would show the cause";
        (false, _) => "is set to {set} Pods, the Tenant asks for {asked}: the operator changes it";
    };
    let generation = workload.meta.generation;
    let generations = format!("{observed}, the spec's generation is {generation}");
    let generations = tenant.seen("status.observedGeneration", generations);
    let ask = match may_look {
        true => "",
        false => " You may not look at its Pods: ask whoever may.",
    };
    let look = own.object.describe("its conditions and Events");
    finding! { Waiting "Wait: this takes seconds. If it stays so, look at its Events.{ask}";
        link own; seen Some(generations).filter(|_| !is_seen);
        then look, tenant.look_again();
    }
}
