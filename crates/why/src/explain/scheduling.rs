//! A Pod that fits on no node: parses the scheduler's message and compares it with the nodes.

use pods::{Unfit, UnfitNodes, unfit_nodes, unscheduled_reason};

use super::container::AFTER_EDIT;
use super::*;

/// Explains the scheduler's message about a Pod without a node, or returns `None` without a
/// message.
pub(super) fn unscheduled(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    let said = pod.unscheduled()?;
    if unscheduled_reason(&said.message) == Reason::VolumeNotReady
        && let Some(finding) = volume::claims(run, pod)
    {
        return Some(finding);
    }
    Some(no_node(Origin::Agent(run), pod, said))
}

/// Explains the scheduler's message by the nodes.
pub(super) fn no_node(origin: Origin<'_>, pod: &PodView, said: &ConditionView) -> Finding {
    let subject = origin.subject();
    let world = subject.world;
    let since = said.since.as_ref().or(pod.meta.created.as_ref());
    if said.reason == "SchedulingGated" {
        return finding! {
            Blocked "Orchestrator sets no gates: find what does (a queue such as Kueue, a webhook).";
            Error pod.object(), "SchedulingGated", "a scheduling gate that someone put on it holds it";
            since since; seen said.evidence();
            then pod.object().yaml("'spec.schedulingGates' names it"), subject.object().describe(format!("the {}", subject.noun));
        };
    }
    let parts = unfit_nodes(&said.message);
    let events = pod.object().describe("the scheduler's Events");
    let (advice, edit_helps) = advice(origin, pod, &parts);
    let finding = finding! { Blocked (advice);
        link unscheduled_link(origin, pod, said, &parts); since since;
    };
    if !subject.may_read("nodes") {
        let edit = edit_helps.then(|| origin.edit("change what it asks for"));
        let retry = origin.retry_after_edit().filter(|_| edit_helps);
        return finding.then(events).then(edit).then(retry);
    }
    let is_of_node =
        |part: &UnfitNodes| part.cause == Unfit::Cordoned || part.cause.is_out_of_use();
    let is_cause = !parts.is_empty() && parts.iter().all(is_of_node);
    let mut nodes = world.nodes.iter();
    if let Some(node) = nodes.find(|node| is_cause && (node.cordoned || !node.is_ready())) {
        let others = shell!("kubectl get nodes" => "the other nodes");
        return rows! { finding;
            link out_of_service(world, node);
            then commands::node(&node.name), node.cordoned.then(|| commands::uncordon(&node.name));
            then Some(others).filter(|_| matches!(origin, Origin::Agent(_)));
        };
    }
    if let Origin::Tenant(_, part) = origin {
        let edit = format!("lower '{}.resources'", part.unwrap_or("server"));
        return rows! { finding;
            then commands::allocated(), events, origin.edit(edit);
        };
    }
    let full = parts.iter().any(|part| part.cause.is_capacity());
    let selects = parts.iter().any(|part| part.cause == Unfit::Selector);
    let mut finding = finding.then(full.then(commands::allocated));
    if selects {
        let labels = pod.node_selector.iter().next();
        finding = rows! { finding;
            shell "kubectl get nodes --show-labels" => "those that exist, and their labels";
            then labels.map(|(key, value)| shell!("kubectl label node <NODE> {key}={value}" => "label one that fits"));
        };
    }
    if finding.next.is_empty() {
        finding = rows! { finding;
            shell "kubectl get nodes -o wide --show-labels" => "those that exist, and their labels";
        };
    }
    let edit = "change 'resources', 'nodeSelector' or 'tolerations', then 'orc retry'";
    finding.then(origin.edit(edit)).then(events)
}

/// Returns the link of a Pod that fits on no node.
fn unscheduled_link(
    origin: Origin<'_>,
    pod: &PodView,
    said: &ConditionView,
    parts: &[UnfitNodes],
) -> Link {
    let why = parts.iter().map(|part| words(part, origin, pod));
    let why: Vec<String> = why.collect();
    let lower = said.message.to_lowercase();
    let why = match (lower.starts_with("no nodes available"), why.is_empty()) {
        (true, _) => ": the cluster has no nodes at all".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!(": {}", why.join("; ")),
    };
    link! { Error pod.object(), unscheduled_reason(&said.message), "no node can take it{why}";
        seen said.evidence();
    }
}

/// Formats why nodes cannot take the Pod.
fn words(unfit: &UnfitNodes, origin: Origin<'_>, pod: &PodView) -> String {
    let world = origin.subject().world;
    let nodes = match unfit.count {
        0 => "some nodes".to_owned(),
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    };
    match &unfit.cause {
        Unfit::Insufficient(resource) => {
            let asked = pod
                .containers
                .iter()
                .filter_map(|one| one.requests.get(resource));
            let asked: Vec<&str> = asked.map(String::as_str).collect();
            let asked = match asked.is_empty() {
                true => "?".to_owned(),
                false => asked.join(" + "),
            };
            let largest = largest(world, resource).map_or_else(String::new, |(_, amount)| {
                format!("; the largest node has {amount} in all")
            });
            format!("too little {resource} free on {nodes} (asked for: {asked}{largest})")
        }
        Unfit::Taint(taint) => {
            let taint = taint.trim_end_matches(": ").trim_end_matches(':');
            let key = taint.split(':').next();
            let is_it = |known: &String| known.split(['=', ':']).next() == key;
            let named = named(world, |node| node.taints.iter().any(is_it));
            one_of! { (unfit.cause.is_out_of_use(), origin);
                (true, _) => "{nodes} out of use{named}: taint '{taint}'";
                (false, Origin::Agent(_)) => "{nodes} with the taint '{taint}', which the Agent does not tolerate{named}";
                (false, Origin::Tenant(..)) => "{nodes} with the taint '{taint}', which the Pod does not tolerate{named}";
            }
        }
        Unfit::Selector => {
            let labels = selector(world, pod);
            format!("{nodes} without the labels that are asked for{labels}")
        }
        Unfit::Cordoned => format!("{nodes} cordoned{}", named(world, |node| node.cordoned)),
        Unfit::TooManyPods => format!("{nodes} full of Pods"),
        Unfit::Other(words) => format!("{nodes}: {words}"),
    }
}

/// Returns the largest amount of a resource that a node has in total.
fn largest<'a>(world: &'a World, resource: &str) -> Option<(i128, &'a String)> {
    let amounts = world.nodes.iter().filter_map(|node| {
        let amount = node.allocatable.get(resource)?;
        Some((parse(amount)?, amount))
    });
    amounts.max_by_key(|(value, _)| *value)
}

/// Formats the names of the nodes that match: ` (node-1, node-2)`.
fn named(world: &World, is: impl Fn(&NodeView) -> bool) -> String {
    let all = world.nodes.iter().filter(|node| is(node));
    let all: Vec<&str> = all.map(|node| node.name.as_str()).collect();
    one_of! { all.as_slice();
        [] => "";
        [one, two, three, more @ ..] if !more.is_empty() => " ({one}, {two}, {three} and {} more)", more.len();
        few => " ({})", few.join(", ");
    }
}

/// Formats the requested labels and the number of nodes that have them.
fn selector(world: &World, pod: &PodView) -> String {
    let wanted = &pod.node_selector;
    if wanted.is_empty() {
        return String::new();
    }
    let has = |node: &&NodeView| {
        let mut wanted = wanted.iter();
        wanted.all(|(key, value)| node.labels.get(key) == Some(value))
    };
    let who = match (world.nodes.len(), world.nodes.iter().filter(has).count()) {
        (0, _) => String::new(),
        (_, 0) => "; no node has them".to_owned(),
        (all, count) => format!("; {count} of {all} nodes have them"),
    };
    let labels: Vec<String> = wanted
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!(" ({}{who})", labels.join(", "))
}

/// Returns the advice, and whether a change of the Agent or of the Tenant helps.
fn advice(origin: Origin<'_>, pod: &PodView, parts: &[UnfitNodes]) -> (String, bool) {
    let world = origin.subject().world;
    let (resources, placed) = match origin {
        Origin::Agent(_) => (
            "the Agent's 'resources'".to_owned(),
            ": the Pod is placed by itself then",
        ),
        Origin::Tenant(_, part) => (format!("'{}.resources'", part.unwrap_or("server")), ""),
    };
    let mut words: Vec<String> = Vec::new();
    let mut edit_helps = matches!(origin, Origin::Tenant(..));
    for UnfitNodes { cause: what, .. } in parts {
        let (sentence, is_of_spec) = match (what, origin) {
            (Unfit::Insufficient(resource), _) if exceeds_all(world, pod, resource) => (
                text! { "No node is that large, so freeing others does not help: lower {resources} ({resource}), or add a larger node." },
                true,
            ),
            (Unfit::Insufficient(_) | Unfit::TooManyPods, _) => (
                text! { "Add a node or free some, or lower {resources}." },
                true,
            ),
            (Unfit::Taint(_), _) if what.is_out_of_use() => {
                let names = named(world, |node| !node.is_ready());
                let sentence = format!("Fix the node that is not ready{names}{placed}.");
                (sentence, false)
            }
            (Unfit::Cordoned, _) => {
                let names = named(world, |node| node.cordoned);
                let sentence =
                    text! { "Uncordon the node{names} when its maintenance is over{placed}." };
                (sentence, false)
            }
            (Unfit::Taint(_), Origin::Agent(_)) => (
                "Add a toleration to the Agent, if its runs may use such nodes.".to_owned(),
                true,
            ),
            (Unfit::Taint(_), Origin::Tenant(..)) => (
                "A Tenant's Pods tolerate no taints: have a node without that taint.".to_owned(),
                false,
            ),
            (Unfit::Selector, Origin::Agent(_)) => (
                "Label a node, or correct the Agent's 'nodeSelector'.".to_owned(),
                true,
            ),
            (Unfit::Other(_), Origin::Agent(_)) => {
                ("The words are the scheduler's.".to_owned(), true)
            }
            (Unfit::Selector | Unfit::Other(_), Origin::Tenant(..)) => continue,
        };
        edit_helps |= is_of_spec;
        if !words.contains(&sentence) {
            words.push(sentence);
        }
    }
    let (unknown, end) = match origin {
        Origin::Agent(_) if edit_helps => ("", AFTER_EDIT),
        Origin::Agent(_) => ("Have a node added that can take the Pod.", ""),
        Origin::Tenant(..) => (
            "Have a node added that can take the Pod: the words are the scheduler's.",
            "It is placed by itself then.",
        ),
    };
    if words.is_empty() {
        words.push(unknown.to_owned());
    }
    words.push(end.to_owned());
    (words.join(" ").trim_end().to_owned(), edit_helps)
}

/// Returns whether the request is larger than the total of the largest node.
fn exceeds_all(world: &World, pod: &PodView, resource: &str) -> bool {
    let amount = |amounts: &Amounts| parse(amounts.get(resource)?);
    let asked: i128 = pod
        .containers
        .iter()
        .filter_map(|one| amount(&one.requests))
        .sum();
    largest(world, resource).is_some_and(|(largest, _)| asked > largest)
}

/// Returns the link of a node that is cordoned or not ready.
pub(super) fn out_of_service(world: &World, node: &NodeView) -> Link {
    if let Some(ready) = node.ready.as_ref().filter(|ready| ready.status != "True") {
        let since = ready.since.as_ref();
        return link! { Error node.object(), "NodeNotReady", "is not ready{}", world.since(since); since since;
            seen ready.evidence();
        };
    }
    link! { Error node.object(), "Cordoned", "takes no new Pods: someone cordoned it";
        seen world.seen("spec.unschedulable", "true");
    }
}
