//! A Tenant's Redis and server: from the Deployment or StatefulSet down to the problems of its
//! Pods.

use std::cmp::Reverse;

use api::{
    Reason,
    tenants::{Component, ComponentPhase},
};

use super::{
    super::{
        Finding, commands,
        create::{Refusal, times},
        operator,
    },
    context::{TenantContext, is_ready},
    pod, refused, volume,
};
use crate::{
    explanation::{Health, Link, NoteKind, State},
    world::{ObjectRef, PodView, WorkloadView},
};

/// A component that a Tenant can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Redis,
    Server,
}

impl Part {
    /// Redis comes first, because the server may wait for it.
    const ALL: [Self; 2] = [Self::Redis, Self::Server];

    /// Returns the name of the component's objects, which is also its field in the spec.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Server => "server",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Redis => "StatefulSet",
            Self::Server => "Deployment",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Redis => "statefulsets",
            Self::Server => "deployments",
        }
    }

    /// Returns the number of requested replicas, or `None` if the spec does not request the
    /// component.
    fn wanted(self, context: TenantContext<'_>) -> Option<i32> {
        match self {
            Self::Redis => context.tenant.redis.as_ref().map(|_| 1),
            Self::Server => context.tenant.server.as_ref().map(|server| server.replicas),
        }
    }

    fn said(self, context: TenantContext<'_>) -> Option<&Component> {
        let status = &context.tenant.status;
        match self {
            Self::Redis => status.redis_status.as_ref(),
            Self::Server => status.server_status.as_ref(),
        }
    }
}

/// Explains the component that keeps the Tenant from being ready. A blocked component comes before
/// one that is just starting.
pub(super) fn find(context: TenantContext<'_>) -> Option<Finding> {
    let mut found: Vec<(Part, Finding)> = Part::ALL
        .into_iter()
        .filter_map(|part| Some((part, look(context, part)?)))
        .collect();
    found.sort_by_key(|(_, finding)| finding.state != State::Blocked);
    let mut found = found.into_iter();
    let (_, mut first) = found.next()?;
    for (part, other) in found.filter(|(_, other)| other.state == State::Blocked) {
        if let Some(deepest) = other.links.last() {
            first = first.note(
                NoteKind::Hint,
                format!(
                    "its {} is not ready, either: {} '{}' [{}] {}",
                    part.name(),
                    deepest.object.kind,
                    deepest.object.name,
                    deepest.reason,
                    deepest.message
                ),
            );
        }
    }
    Some(first)
}

/// Explains why a component is not ready. Returns `None` if it is ready or not requested.
fn look(context: TenantContext<'_>, part: Part) -> Option<Finding> {
    let wanted = part.wanted(context)?;
    let Some(workload) = context.workload(part.name()) else {
        return unseen(context, part);
    };
    if let Some(finding) = volume::mismatch(context).filter(|_| part == Part::Redis) {
        let above = own(context, part, workload, Reason::VolumeNotReady);
        return Some(finding.below(vec![above]));
    }
    let is_seen = workload.observed >= workload.meta.generation && workload.wanted == wanted;
    let is_there = [workload.replicas, workload.updated, workload.ready]
        .iter()
        .all(|count| *count == wanted);
    let leads = context
        .endpoints(part.name())
        .is_none_or(|(ready, _)| ready > 0);
    if is_seen && is_there && leads {
        return None;
    }
    let finding = of_pods(context, part)
        .map(|finding| match &workload.failure {
            Some(failure) => finding.note(
                NoteKind::Hint,
                format!("more Pods of it are refused, too: {}", failure.message),
            ),
            None => finding,
        })
        .or_else(|| not_made(context, part, workload))
        .or_else(|| on_the_way(context, part))
        .unwrap_or_else(|| rest(context, part, workload, is_seen, is_there));
    let reason = finding.links.first().map_or_else(
        || Reason::Progressing.name().to_owned(),
        |link| link.reason.clone(),
    );
    if finding
        .links
        .first()
        .is_some_and(|link| link.object.name == part.name() && link.object.kind == part.kind())
    {
        return Some(finding);
    }
    Some(finding.below(vec![own(context, part, workload, reason)]))
}

fn object(context: TenantContext<'_>, part: Part) -> ObjectRef {
    context.here(part.kind(), part.name())
}

/// Returns the link of the Deployment or StatefulSet.
fn own(
    context: TenantContext<'_>,
    part: Part,
    workload: &WorkloadView,
    reason: impl ToString,
) -> Link {
    Link::new(
        object(context, part),
        Health::Waiting,
        reason,
        format!("{} of {} ready", workload.ready, workload.wanted),
    )
    .seen(
        "status",
        format!(
            "{} Pods, {} of the newest template, {} ready; {} wanted",
            workload.replicas, workload.updated, workload.ready, workload.wanted
        ),
        Some(&context.world.now),
    )
}

/// Explains a component that does not exist, or that may not be read. In that case only the status
/// is known.
fn unseen(context: TenantContext<'_>, part: Part) -> Option<Finding> {
    let object = object(context, part);
    if context.exists(part.kind(), part.name()) == Some(false) {
        let link = Link::new(
            object,
            Health::Waiting,
            Reason::Progressing,
            "does not exist yet: the operator makes it",
        )
        .seen("looked for it", "not found", Some(&context.world.now));
        return Some(
            Finding::new(
                State::Waiting,
                "Wait: this takes seconds. If it stays so, the first lines will say what keeps the operator from it.",
            )
            .link(link)
            .then(context.look_again())
            .maybe(operator::log(context.world)),
        );
    }
    let said = part.said(context)?;
    let (state, health) = match said.phase {
        ComponentPhase::Running | ComponentPhase::Suspended => return None,
        ComponentPhase::Provisioning => (State::Waiting, Health::Waiting),
        ComponentPhase::Degraded => (State::Blocked, Health::Error),
    };
    let kind = match part {
        Part::Redis => api::tenants::condition::REDIS_READY,
        Part::Server => api::tenants::condition::SERVER_READY,
    };
    let known = context.condition(kind);
    let reason = known.map_or("NotReady", |known| known.reason.as_str());
    let link = Link::new(object, health, reason, said.message.clone())
        .since(known.map(|known| &known.last_transition_time))
        .seen(
            format!("status.{}Status", part.name()),
            &said.message,
            context.written(),
        );
    let advice = format!(
        "The first lines say what the operator saw. You may not look into namespace '{}' yourself: ask whoever may, with this output.",
        context.namespace()
    );
    Some(Finding::new(state, advice).link(link).then(commands::yaml(
        &context.object(),
        "all that the Tenant says",
    )))
}

/// Explains the problem of the newest Pod that is not ready.
fn of_pods(context: TenantContext<'_>, part: Part) -> Option<Finding> {
    let mut pods: Vec<&PodView> = unready(context, part).collect();
    pods.sort_by_key(|pod| Reverse(pod.meta.created.clone()));
    pods.iter().find_map(|pod| pod::find(context, part, pod))
}

fn unready(context: TenantContext<'_>, part: Part) -> impl Iterator<Item = &PodView> {
    context.pods(part.name()).filter(|pod| {
        let is_over = ["Succeeded", "Failed"].contains(&pod.phase.as_str());
        pod.meta.deleting.is_none() && !is_ready(pod) && !is_over
    })
}

/// Explains a missing Pod: the API server may have rejected the controller's request.
fn not_made(context: TenantContext<'_>, part: Part, workload: &WorkloadView) -> Option<Finding> {
    let event = context
        .world
        .warning(&workload.meta.uid, &["FailedCreate"])
        .filter(|_| workload.replicas < workload.wanted);
    let (message, source, at, since) = match (&workload.failure, event) {
        (Some(failure), _) => (
            failure.message.as_str(),
            format!("condition ReplicaFailure=True ({})", failure.reason),
            failure.since.as_ref(),
            failure.since.as_ref(),
        ),
        (None, Some(event)) => (
            event.message.as_str(),
            format!("Event FailedCreate{}", times(event.count)),
            event.last.as_ref(),
            event.first.as_ref(),
        ),
        (None, None) => return None,
    };
    let link = Link::new(
        object(context, part),
        Health::Waiting,
        "FailedCreate",
        format!(
            "{} of {} Pods are there: each try to create another is refused, the last{}",
            workload.replicas,
            workload.wanted,
            context.world.ago(at)
        ),
    );
    // A StatefulSet creates the claim of a Pod before the Pod.
    let what = if message.contains("persistentvolumeclaims") {
        "PersistentVolumeClaim"
    } else {
        "Pod"
    };
    let refusal = Refusal {
        what,
        message,
        source: &source,
        at,
        since,
    };
    Some(refused::explain(context, Some(part.name()), &refusal, link))
}

/// Explains a Pod that is starting, or a Pod that has to stop before the next one can start.
fn on_the_way(context: TenantContext<'_>, part: Part) -> Option<Finding> {
    let newest = unready(context, part).max_by_key(|pod| pod.meta.created.clone());
    if let Some(pod) = newest {
        return Some(pod::starting(context, pod));
    }
    let going = context
        .pods(part.name())
        .find(|pod| pod.meta.deleting.is_some())?;
    let link = super::terminating::stopping(context, going, Reason::Progressing);
    Some(
        Finding::new(
            State::Waiting,
            format!(
                "Wait: an earlier Pod '{}' has to stop first; it has its grace period to end.",
                going.meta.name
            ),
        )
        .link(link)
        .then(context.look_again())
        .then(commands::describe(&going.object(), "the Pod's Events")),
    )
}

/// Explains a component that is not ready although no problem is known.
fn rest(
    context: TenantContext<'_>,
    part: Part,
    workload: &WorkloadView,
    is_seen: bool,
    is_there: bool,
) -> Finding {
    let wanted = part.wanted(context).unwrap_or(1);
    if is_seen && is_there {
        let (ready, other) = context.endpoints(part.name()).unwrap_or_default();
        let link = Link::new(
            context.here("Service", part.name()),
            Health::Waiting,
            Reason::Progressing,
            "leads to none of the ready Pods yet",
        )
        .seen(
            "EndpointSlices of it",
            format!("{ready} ready, {other} not ready"),
            Some(&context.world.now),
        );
        return Finding::new(
            State::Waiting,
            "Wait: this takes seconds. If it stays so, check the endpoint-slice controller (kube-controller-manager).",
        )
        .link(link)
        .then(commands::list("EndpointSlice", context.namespace(), "what its Services lead to"))
        .then(context.look_again());
    }
    let mut link = own(context, part, workload, Reason::Progressing);
    link.message = if workload.wanted == wanted {
        format!(
            "{} of {wanted} ready; its controller is at it, and nothing says that something is wrong",
            workload.ready
        )
    } else {
        format!(
            "is set to {} Pods, the Tenant asks for {wanted}: the operator changes it",
            workload.wanted
        )
    };
    if !is_seen {
        link = link.seen(
            "status.observedGeneration",
            format!(
                "{}, the spec's generation is {}",
                workload.observed, workload.meta.generation
            ),
            Some(&context.world.now),
        );
    }
    let mut finding = Finding::new(
        State::Waiting,
        "Wait: this takes seconds. If it stays so, look at its Events.",
    )
    .link(link)
    .then(commands::describe(
        &object(context, part),
        "its conditions and Events",
    ))
    .then(context.look_again());
    if !context.may_read("pods") || !context.may_read(part.plural()) {
        finding.advice = format!(
            "{} You may not look at its Pods: ask whoever may.",
            finding.advice
        );
    }
    finding
}
