//! A Pod that has to stop because it was evicted, cancelled or deleted, and a node that prevents
//! it.

use super::*;

/// Time in seconds after which a deleted Pod without a known deadline is overdue. Usually a Pod is
/// killed earlier.
const GRACE: i64 = 60;
/// Time in seconds that the kubelet gets after the grace period, to kill the Pod and to report it.
const SLACK: i64 = 30;
/// The taint for a machine that is switched off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The originator of the stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Another actor.
    Outside,
    /// The operator, for this reason.
    Ours(Reason),
}

/// Explains a Pod that is being stopped.
pub(super) fn stopping(subject: Subject<'_>, pod: &PodView, by: Stop) -> Finding {
    let (world, name) = (subject.world, &pod.meta.name);
    let link = said(subject, pod, by);
    if let Some(node) = world.lost_node(pod) {
        let finding = match subject.kind {
            "Tenant" => node_lost(world, node, ""),
            _ => lost(world, node),
        };
        return finding.below([link]);
    }
    if let Some(finding) = held(world, pod, &link) {
        return finding;
    }
    let link = stopped(subject, pod, by);
    let is_gone = |node: &&String| world.exists("Node", node) == Some(false);
    let gone = pod.node.as_ref().filter(is_gone);
    let gone = gone.map(|node| world.seen(&format!("Node '{node}'"), "not found"));
    let node = pod.node.as_ref().filter(|_| link.health == Health::Error);
    let advice = one_of! { (node, by);
        (Some(node), _) => "Pod '{name}' should have been killed by now: check node '{node}'.";
        (None, Stop::Outside) => "Wait: the agent is started again by itself when Pod '{name}' has ended, and no attempt is used. {}", count(world);
        (None, Stop::Ours(_)) => "Wait until Pod '{name}' has stopped: it has its grace period to end.";
    };
    finding! { Waiting (advice);
        link link; seen gone;
        then node.filter(|_| world.may_read("nodes")).map(|node| commands::node(node));
        then pod.object().yaml("its conditions and finalizers");
    }
}

/// Returns the link of a Pod that has to stop.
pub(super) fn stopped(subject: Subject<'_>, pod: &PodView, by: Stop) -> Link {
    Link {
        health: Health::error_if(is_overdue(subject.world, pod)),
        ..said(subject, pod, by)
    }
}

/// Returns whether the kubelet should already have killed the Pod.
fn is_overdue(world: &World, pod: &PodView) -> bool {
    match &pod.meta.stop_by {
        Some(end) => world.age(Some(end)) > SLACK,
        None => world.age(pod.meta.deleting.as_ref()) > GRACE,
    }
}

/// Formats the number of disruptions and the limit.
fn count(world: &World) -> String {
    match world.run.as_ref().map_or(0, |run| run.status.disruptions) {
        0 => "The 6th disruption ends the run.".to_owned(),
        count => format!("This is disruption {count}; the 6th ends the run."),
    }
}

/// Explains a Pod that was disrupted and has ended. Another Pod replaces it.
pub(super) fn replaced(run: Run<'_>, pod: &PodView) -> Finding {
    finding! { Waiting "Wait: another Pod takes its place by itself, and no attempt is used. {}", count(run.world);
        link said(*run, pod, Stop::Outside);
        then Some(run.logs(pod)).filter(|_| pod.has_log()), run.look_again();
    }
}

/// Returns the Pod's own link.
fn said(subject: Subject<'_>, pod: &PodView, by: Stop) -> Link {
    let world = subject.world;
    let node = pod.node.as_ref();
    let place = node.map_or_else(String::new, |node| format!("on node '{node}' "));
    let told = pod.meta.deleting.as_ref();
    let disruption = pod.disruption();
    let since = told.or_else(|| disruption.and_then(|known| known.since.as_ref()));
    let until = killed(world, pod);
    let (reason, sentence) = match (by, told) {
        (Stop::Outside, _) => {
            let who =
                disruption.map_or("someone asked for its deletion", |known| who(&known.reason));
            let sentence = one_of! { pod.may_run();
                true => "is being terminated by another actor{}: {who}", world.since(since);
                false => "was terminated by another actor{}: {who}", world.ago(since);
            };
            (Reason::Disrupted, sentence)
        }
        (Stop::Ours(reason), Some(at)) => {
            let at = world.when(at);
            (reason, format!("{place}was asked to stop at {at}{until}"))
        }
        (Stop::Ours(reason), None) => (
            reason,
            format!("{place}still runs; it is about to be told to stop"),
        ),
    };
    let link = link! { Waiting pod.object(), reason, (sentence); since since;
        seen disruption.map(|known| known.evidence());
    };
    match told.filter(|_| by == Stop::Outside) {
        Some(_) => link.seen(
            "deletion asked for",
            until.trim_start_matches([',', ' ']),
            told,
        ),
        None => link.evidence(world.seen("status.phase", &pod.phase)),
    }
}

/// Formats the deadline: `, is killed at 10:05:35Z (in 24s) at the latest`.
fn killed(world: &World, pod: &PodView) -> String {
    one_of! { &pod.meta.stop_by;
        None => " and has not ended yet";
        Some(end) if world.age(Some(end)) > 0 => ", should have been killed at {}", world.when(end);
        Some(end) => ", is killed at {} at the latest", world.when(end);
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
fn held(world: &World, pod: &PodView, link: &Link) -> Option<Finding> {
    let mut finalizers = pod.meta.finalizers.iter();
    let holder = finalizers.find(|name| *name != "batch.kubernetes.io/job-tracking")?;
    let at = world.when(pod.meta.deleting.as_ref()?);
    let name = &pod.meta.name;
    let link = Link {
        reason: "Finalizer".to_owned(),
        health: Health::Error,
        message: text! { "is held by the finalizer '{holder}' since its deletion was asked for at {at}" },
        ..link.clone()
    };
    Some(finding! {
        Blocked "Pod '{name}' stays until '{holder}' is taken from its finalizers: find out who set it.";
        link link;
        then pod.object().who("'metadata.managedFields' names the manager that set it");
    })
}

/// Returns the link of a Pod on an unready node without a request to stop it. `what` may still run.
pub(super) fn on_lost_node(pod: &PodView, node: &NodeView, reason: Reason, what: &str) -> Link {
    let node = &node.name;
    link! { Waiting pod.object(), reason, "is on node '{node}', which does not answer: nobody knows whether {what} still runs";
        seen "spec.nodeName" => (node), pod.meta.created.as_ref();
    }
}

/// Explains an unready node of a run, and the ways to release its Pods.
pub(super) fn lost(world: &World, node: &NodeView) -> Finding {
    node_lost(
        world,
        node,
        "; before that no other Pod may start here, because the first may still be at work",
    )
}

/// The same for any Pod of Orchestrator. `meanwhile` is an additional clause for the advice.
pub(super) fn node_lost(world: &World, node: &NodeView, meanwhile: &str) -> Finding {
    let name = &node.name;
    let link = Link {
        reason: "NodeLost".to_owned(),
        ..scheduling::out_of_service(world, node)
    };
    finding! { Blocked "Check whether node '{name}' is really down, and bring it back. Only if its machine is off: taint it out-of-service (or delete the Node). That lets go of all Pods of that node, those of other teams, too{meanwhile}. When the machine is back, take the taint off: kubectl taint node {name} {OUT_OF_SERVICE}-";
        link link;
        then commands::heartbeat(name), commands::node(name);
        shell "kubectl taint node {name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute" => "only if the machine is off: let go of all its Pods and volumes";
    }
}
