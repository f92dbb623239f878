//! A Pod that has to stop because it was evicted, cancelled or deleted, and a node that prevents
//! it.

use api::Reason;

use super::{Finding, commands, run_context::RunContext, scheduling};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{NodeView, PodView, World},
};

/// Time in seconds after which a deleted Pod without a known deadline is overdue. Usually a Pod is
/// killed earlier.
const GRACE: i64 = 60;
/// Time in seconds that the kubelet gets after the grace period, to kill the Pod and to report it.
const SLACK: i64 = 30;

/// The originator of the stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Another actor.
    Outside,
    /// The operator, for this reason.
    Ours(Reason),
}

/// Explains a Pod that is being stopped.
pub(super) fn stopping(context: RunContext<'_>, pod: &PodView, by: Stop) -> Finding {
    let mut link = said(context, pod, by);
    if let Some(node) = lost_node(context, pod) {
        link.health = Health::Waiting;
        return lost(context, node).below(vec![link]);
    }
    if let Some(finding) = held(context, pod, &link) {
        return finding;
    }
    let gone = pod
        .node
        .as_deref()
        .filter(|node| context.exists("Node", node) == Some(false));
    if let Some(node) = gone {
        link = link.seen(
            format!("Node '{node}'"),
            "not found",
            Some(&context.world.now),
        );
    }
    let advice = match by {
        Stop::Outside => format!(
            "Nothing: the agent is started again by itself when Pod '{}' has ended, and no attempt is used. {}",
            pod.meta.name,
            count(context)
        ),
        Stop::Ours(_) => format!(
            "Wait until Pod '{}' has stopped: it has its grace period to end.",
            pod.meta.name
        ),
    };
    let overdue = is_overdue(context, pod);
    if overdue {
        link.health = Health::Error;
    }
    let mut finding = Finding::new(State::Waiting, advice)
        .link(link)
        .then(commands::yaml(
            &pod.object(),
            "its conditions and finalizers",
        ));
    if let Some(node) = pod.node.as_ref().filter(|_| overdue) {
        finding.advice = format!(
            "Pod '{}' should have been killed by now: check node '{node}'.",
            pod.meta.name
        );
        if context.may_read("nodes") {
            finding.next.insert(0, commands::node(node));
        }
    }
    finding
}

/// Returns whether the kubelet should already have killed the Pod.
fn is_overdue(context: RunContext<'_>, pod: &PodView) -> bool {
    match (&pod.meta.stop_by, &pod.meta.deleting) {
        (Some(end), _) => context.age(end) > SLACK,
        (None, Some(asked)) => context.age(asked) > GRACE,
        (None, None) => false,
    }
}

/// Formats the number of disruptions and the limit.
fn count(context: RunContext<'_>) -> String {
    match context.status().disruptions {
        0 => "The 6th disruption ends the run.".to_owned(),
        count => format!("This is disruption {count}; the 6th ends the run."),
    }
}

/// Explains a Pod that was disrupted and has ended. Another Pod replaces it.
pub(super) fn replaced(context: RunContext<'_>, pod: &PodView) -> Finding {
    let link = said(context, pod, Stop::Outside);
    Finding::new(
        State::Waiting,
        format!(
            "Nothing: another Pod takes its place by itself, and no attempt is used. {}",
            count(context)
        ),
    )
    .link(link)
    .then(commands::logs(context, pod))
    .then(commands::look_again(context))
}

/// Returns the Pod's own link.
fn said(context: RunContext<'_>, pod: &PodView, by: Stop) -> Link {
    let node = pod.node.as_deref().unwrap_or("(none)");
    let told = pod.meta.deleting.as_ref();
    let since = told.or_else(|| pod.disruption().and_then(|known| known.since.as_ref()));
    let (reason, sentence) = match by {
        Stop::Outside => {
            let who = pod
                .disruption()
                .map_or("someone asked for its deletion", |known| who(&known.reason));
            (
                Reason::Disrupted,
                if pod.may_run() {
                    format!(
                        "is being terminated by another actor{}: {who}",
                        context.since(since)
                    )
                } else {
                    format!(
                        "was terminated by another actor{}: {who}",
                        context.ago(since)
                    )
                },
            )
        }
        Stop::Ours(reason) => (
            reason,
            match told {
                Some(at) => format!(
                    "on node '{node}' was asked to stop at {}{}",
                    context.when(at),
                    killed(context, pod)
                ),
                None => format!("on node '{node}' still runs; it is about to be told to stop"),
            },
        ),
    };
    let mut link = Link::new(pod.object(), Health::Waiting, reason, sentence).since(since);
    if let Some(known) = pod.disruption() {
        link = link.seen(
            format!("condition DisruptionTarget=True ({})", known.reason),
            &known.message,
            known.since.as_ref(),
        );
    }
    match told {
        Some(at) if by == Stop::Outside => {
            let until = killed(context, pod)
                .trim_start_matches([',', ' '])
                .to_owned();
            link.seen("deletion asked for", until, Some(at))
        }
        Some(_) => link.seen("status.phase", &pod.phase, Some(&context.world.now)),
        None => link.seen("status.phase", &pod.phase, Some(&context.world.now)),
    }
}

/// Formats the deadline: `, is killed at 10:05:35Z (in 24s) at the latest`.
fn killed(context: RunContext<'_>, pod: &PodView) -> String {
    match &pod.meta.stop_by {
        None => " and has not ended yet".to_owned(),
        Some(end) if context.age(end) > 0 => {
            format!(", should have been killed at {}", context.when(end))
        }
        Some(end) => format!(", is killed at {} at the latest", context.when(end)),
    }
}

/// Explains a reason of the condition `DisruptionTarget`.
fn who(reason: &str) -> &'static str {
    match reason {
        "EvictionByEvictionAPI" => "it was evicted (a drain, an autoscaler)",
        "PreemptionByScheduler" => "a Pod of higher priority takes its place",
        "DeletionByTaintManager" => {
            "its node got a taint that it does not tolerate (node lost or in trouble)"
        }
        "TerminationByKubelet" => "its node has too little memory or disk, or shuts down",
        "DeletionByPodGC" => "its node was deleted",
        _ => "its condition says why",
    }
}

/// Explains an unmanaged finalizer that keeps the Pod. The Job controller's own finalizer is
/// removed with its Job.
fn held(context: RunContext<'_>, pod: &PodView, link: &Link) -> Option<Finding> {
    let holder = pod
        .meta
        .finalizers
        .iter()
        .find(|name| *name != "batch.kubernetes.io/job-tracking")?;
    let at = pod.meta.deleting.as_ref()?;
    let mut link = link.clone();
    "Finalizer".clone_into(&mut link.reason);
    link.health = Health::Error;
    link.message = format!(
        "is held by the finalizer '{holder}' since its deletion was asked for at {}",
        context.when(at)
    );
    Some(
        Finding::new(
            State::Blocked,
            format!("Pod '{}' stays until '{holder}' is taken from its finalizers: find out who set it.", pod.meta.name),
        )
        .link(link)
        .then(commands::who(&pod.object(), "'metadata.managedFields' names who set it")),
    )
}

/// Returns the Pod's node, if the node is not ready.
pub(super) fn lost_node<'a>(context: RunContext<'a>, pod: &PodView) -> Option<&'a NodeView> {
    let node = context.node(pod.node.as_deref()?)?;
    (!node.is_ready()).then_some(node)
}

/// Explains a Pod on an unready node without a request to stop it.
pub(super) fn on_lost_node(context: RunContext<'_>, pod: &PodView, node: &NodeView) -> Finding {
    let link = Link::new(
        pod.object(),
        Health::Waiting,
        Reason::Disrupted,
        format!(
            "is on node '{}', which does not answer: nobody knows whether the agent still runs",
            node.name
        ),
    )
    .seen("spec.nodeName", &node.name, pod.meta.created.as_ref());
    lost(context, node).below(vec![link])
}

/// Explains an unready node, and the ways to release its Pods.
fn lost(context: RunContext<'_>, node: &NodeView) -> Finding {
    node_lost(
        context.world,
        node,
        "; before that no other Pod may start here, because the first may still be at work",
    )
}

/// The same for any Pod of Orchestrator. `meanwhile` is an additional clause for the advice.
pub(super) fn node_lost(world: &World, node: &NodeView, meanwhile: &str) -> Finding {
    let name = &node.name;
    let mut link = scheduling::out_of_service(world, node);
    "NodeLost".clone_into(&mut link.reason);
    Finding::new(
        State::Blocked,
        format!("Check whether node '{name}' is really down, and bring it back. Only if its machine is off: taint it out-of-service (or delete the Node). That lets go of all Pods of that node, those of other teams, too{meanwhile}. When the machine is back, take the taint off: kubectl taint node {name} {OUT_OF_SERVICE}-"),
    )
    .link(link)
    .then(commands::heartbeat(name))
    .then(commands::node(name))
    .then(Command::new(
        format!("kubectl taint node {name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"),
        "only if the machine is off: let go of all its Pods and volumes",
    ))
}

/// The taint for a machine that is switched off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
