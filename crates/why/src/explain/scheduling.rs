//! A Pod that fits on no node: parses the scheduler's message and compares it with the nodes.

use api::Reason;
use pods::unscheduled_reason;

use super::{Finding, commands, container::AFTER_EDIT, quantity, run_context::RunContext, volume};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{ConditionView, NodeView, ObjectRef, PodView, World},
};

/// Explains the scheduler's message about a Pod without a node, or returns `None` without a
/// message.
pub(super) fn unscheduled(context: RunContext<'_>, pod: &PodView) -> Option<Finding> {
    let said = pod
        .condition("PodScheduled")
        .filter(|known| known.status == "False")?;
    if unscheduled_reason(&said.message) == Reason::VolumeNotReady
        && let Some(finding) = volume::claims(context, pod)
    {
        return Some(finding);
    }
    if said.reason == "SchedulingGated" {
        return Some(gated(context, pod, said));
    }
    let parts = parts(&said.message);
    let link = unscheduled_link(context.world, pod, said, "the Agent");
    let mut finding = Finding::new(State::Blocked, advice(context, pod, &parts))
        .link(link.since(said.since.as_ref()));
    if !context.may_read("nodes") {
        finding = finding.then(commands::describe(&pod.object(), "the scheduler's Events"));
        return Some(if finding.advice.contains(AFTER_EDIT) {
            finding
                .then(commands::edit_agent(context, "change what it asks for"))
                .then(commands::retry_after_edit(context))
        } else {
            finding
        });
    }
    if let Some(node) = only_node(context.world, &parts) {
        finding = finding
            .link(out_of_service(context.world, node))
            .then(commands::node(&node.name));
        if node.cordoned {
            finding = finding.then(Command::new(
                format!("kubectl uncordon {}", node.name),
                "let Pods onto it again, if its maintenance is over",
            ));
        }
        return Some(finding.then(Command::new("kubectl get nodes", "the other nodes")));
    }
    let is = |wanted: fn(&What) -> bool| parts.iter().any(|part| wanted(&part.what));
    if is(|what| matches!(what, What::Insufficient(_) | What::TooManyPods)) {
        finding = finding.then(Command::new(
            "kubectl describe nodes | grep -A8 'Allocated resources'",
            "how much of each node is taken",
        ));
    }
    if is(|what| matches!(what, What::Selector)) {
        finding = finding.then(Command::new(
            "kubectl get nodes --show-labels",
            "those that exist, and their labels",
        ));
        if let Some((key, value)) = pod.node_selector.iter().next() {
            finding = finding.then(Command::new(
                format!("kubectl label node <NODE> {key}={value}"),
                "label one that fits",
            ));
        }
    }
    if finding.next.is_empty() {
        finding = finding.then(Command::new(
            "kubectl get nodes -o wide --show-labels",
            "those that exist, and their labels",
        ));
    }
    Some(
        finding
            .then(commands::edit_agent(
                context,
                "change 'resources', 'nodeSelector' or 'tolerations', then 'orc retry'",
            ))
            .then(commands::describe(&pod.object(), "the scheduler's Events")),
    )
}

/// Returns the link of a Pod that fits on no node. `whose` is the object that would have to tolerate a taint.
pub(super) fn unscheduled_link(
    world: &World,
    pod: &PodView,
    said: &ConditionView,
    whose: &str,
) -> Link {
    let parts = parts(&said.message);
    let why: Vec<String> = parts
        .iter()
        .map(|part| part.words(world, pod, whose))
        .collect();
    let sentence = if said
        .message
        .to_lowercase()
        .starts_with("no nodes available")
    {
        "no node can take it: the cluster has no nodes at all".to_owned()
    } else if why.is_empty() {
        "no node can take it".to_owned()
    } else {
        format!("no node can take it: {}", why.join("; "))
    };
    let reason = unscheduled_reason(&said.message);
    Link::new(pod.object(), Health::Error, reason, sentence).seen(
        format!("condition PodScheduled=False ({})", said.reason),
        &said.message,
        said.since.as_ref(),
    )
}

fn gated(context: RunContext<'_>, pod: &PodView, said: &ConditionView) -> Finding {
    let link = Link::new(
        pod.object(),
        Health::Error,
        "SchedulingGated",
        "a scheduling gate that someone put on it holds it",
    )
    .since(said.since.as_ref())
    .seen(
        "condition PodScheduled=False (SchedulingGated)",
        &said.message,
        said.since.as_ref(),
    );
    Finding::new(
        State::Blocked,
        "Orchestrator sets no gates: find what does (a queue such as Kueue, a webhook).",
    )
    .link(link)
    .then(commands::yaml(
        &pod.object(),
        "'spec.schedulingGates' names it",
    ))
    .then(commands::describe(&context.object(), "the run"))
}

/// One of the scheduler's reasons, with the number of nodes that it applies to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) count: usize,
    pub(super) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Insufficient(String),
    Taint(String),
    Selector,
    Cordoned,
    TooManyPods,
    Other(String),
}

/// Parses `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.
/// preemption: …`.
pub(super) fn parts(message: &str) -> Vec<Part> {
    let Some((_, rest)) = message.split_once("nodes are available: ") else {
        return Vec::new();
    };
    let end = [
        ". preemption:",
        ". no new claims",
        ". still not schedulable",
    ]
    .iter()
    .filter_map(|word| rest.find(word))
    .min()
    .unwrap_or(rest.len());
    let list = rest.get(..end).unwrap_or(rest).trim_end_matches('.');
    let mut pieces: Vec<String> = Vec::new();
    for piece in list.split(", ") {
        let is_new = piece.starts_with(|letter: char| letter.is_ascii_digit());
        match pieces.last_mut() {
            // This comma is inside the text of one reason.
            Some(last) if !is_new => {
                last.push_str(", ");
                last.push_str(piece);
            }
            Some(_) | None => pieces.push(piece.to_owned()),
        }
    }
    pieces.iter().take(8).map(|piece| part(piece)).collect()
}

fn part(piece: &str) -> Part {
    let (count, words) = match piece.split_once(' ') {
        Some((count, words)) => match count.parse() {
            Ok(count) => (count, words),
            Err(_) => (0, piece),
        },
        None => (0, piece),
    };
    let what = if let Some(resource) = words.strip_prefix("Insufficient ") {
        What::Insufficient(resource.to_owned())
    } else if let Some((_, taint)) = words.split_once("untolerated taint") {
        let taint = taint.trim_start_matches("(s)").trim();
        What::Taint(taint.trim_matches(['{', '}', ' ']).to_owned())
    } else if words.contains("affinity/selector") {
        What::Selector
    } else if words.contains("were unschedulable") {
        What::Cordoned
    } else if words.contains("Too many pods") {
        What::TooManyPods
    } else {
        What::Other(words.to_owned())
    };
    Part { count, what }
}

impl Part {
    /// Formats the reason as text. `whose` is the object that would have to tolerate a taint.
    fn words(&self, world: &World, pod: &PodView, whose: &str) -> String {
        let nodes = match self.count {
            0 => "some nodes".to_owned(),
            1 => "1 node".to_owned(),
            count => format!("{count} nodes"),
        };
        match &self.what {
            What::Insufficient(resource) => {
                let asked: Vec<&str> = pod
                    .containers
                    .iter()
                    .filter_map(|one| one.requests.get(resource).map(String::as_str))
                    .collect();
                format!(
                    "too little {resource} free on {nodes} (asked for: {}{})",
                    if asked.is_empty() {
                        "?".to_owned()
                    } else {
                        asked.join(" + ")
                    },
                    largest(world, resource)
                )
            }
            What::Taint(taint) => {
                let taint = taint.trim_end_matches(": ").trim_end_matches(':');
                if taint.starts_with("node.kubernetes.io/") {
                    return format!(
                        "{nodes} out of use{}: taint '{taint}'",
                        tainted(world, taint)
                    );
                }
                format!(
                    "{nodes} with the taint '{taint}', which {whose} does not tolerate{}",
                    tainted(world, taint)
                )
            }
            What::Selector => format!(
                "{nodes} without the labels that are asked for{}",
                selector(world, pod)
            ),
            What::Cordoned => format!("{nodes} cordoned{}", named(world, |node| node.cordoned)),
            What::TooManyPods => format!("{nodes} full of Pods"),
            What::Other(words) => format!("{nodes}: {words}"),
        }
    }
}

/// Formats the largest amount: `; the largest node has 4 in all`.
fn largest(world: &World, resource: &str) -> String {
    let amounts = world.nodes.iter().filter_map(|node| {
        let amount = node.allocatable.get(resource)?;
        Some((quantity::value(amount)?, amount))
    });
    let largest = amounts.max_by(|(one, _), (other, _)| one.total_cmp(other));
    largest.map_or_else(String::new, |(_, amount)| {
        format!("; the largest node has {amount} in all")
    })
}

fn tainted(world: &World, taint: &str) -> String {
    let key = taint.split(':').next().unwrap_or_default();
    named(world, |node| {
        node.taints
            .iter()
            .any(|known| known.split(['=', ':']).next() == Some(key))
    })
}

/// Formats the names of the nodes that match: ` (node-1, node-2)`.
pub(super) fn named(world: &World, is: impl Fn(&NodeView) -> bool) -> String {
    let all: Vec<&str> = world
        .nodes
        .iter()
        .filter(|node| is(node))
        .map(|node| node.name.as_str())
        .collect();
    let more = all.len().saturating_sub(3);
    let shown: Vec<&str> = all.into_iter().take(3).collect();
    match (shown.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({})", shown.join(", ")),
        (false, more) => format!(" ({} and {more} more)", shown.join(", ")),
    }
}

/// Formats the requested labels and the number of nodes that have them.
fn selector(world: &World, pod: &PodView) -> String {
    if pod.node_selector.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = pod
        .node_selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let having = world.nodes.iter().filter(|node| {
        pod.node_selector
            .iter()
            .all(|(key, value)| node.labels.get(key) == Some(value))
    });
    let who = match (world.nodes.is_empty(), having.count()) {
        (true, _) => String::new(),
        (false, 0) => "; no node has them".to_owned(),
        (false, count) => format!("; {count} of {} nodes have them", world.nodes.len()),
    };
    format!(" ({}{who})", labels.join(", "))
}

fn advice(context: RunContext<'_>, pod: &PodView, parts: &[Part]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut say = |sentence: &str| {
        if !words.iter().any(|known| known == sentence) {
            words.push(sentence.to_owned());
        }
    };
    let mut agent_helps = false;
    if parts.is_empty() {
        say("Have a node added that can take the Pod.");
    }
    for part in parts {
        match &part.what {
            What::Insufficient(resource) if exceeds_all(context.world, pod, resource) => {
                agent_helps = true;
                say(&format!(
                    "No node is that large, so freeing others does not help: lower the Agent's 'resources' ({resource}), or add a larger node."
                ));
            }
            What::Insufficient(_) | What::TooManyPods => {
                agent_helps = true;
                say("Add a node or free some, or lower the Agent's 'resources'.");
            }
            What::Taint(taint) if taint.starts_with("node.kubernetes.io/") => {
                say(&format!(
                    "Fix the node that is not ready{}: the Pod is placed by itself then.",
                    named(context.world, |node| !node.is_ready())
                ));
            }
            What::Taint(_) => {
                agent_helps = true;
                say("Add a toleration to the Agent, if its runs may use such nodes.");
            }
            What::Selector => {
                agent_helps = true;
                say("Label a node, or correct the Agent's 'nodeSelector'.");
            }
            What::Cordoned => {
                say(&format!(
                    "Uncordon the node{} when its maintenance is over: the Pod is placed by itself then.",
                    named(context.world, |node| node.cordoned)
                ));
            }
            What::Other(_) => {
                agent_helps = true;
                say("The words are the scheduler's.");
            }
        }
    }
    if agent_helps {
        say(AFTER_EDIT);
    }
    words.join(" ")
}

/// Returns whether the request is larger than the total of the largest node.
pub(super) fn exceeds_all(world: &World, pod: &PodView, resource: &str) -> bool {
    let amount = |amounts: &std::collections::BTreeMap<String, String>| {
        amounts
            .get(resource)
            .and_then(|amount| quantity::value(amount))
    };
    let asked: f64 = pod
        .containers
        .iter()
        .filter_map(|one| amount(&one.requests))
        .sum();
    let largest = world
        .nodes
        .iter()
        .filter_map(|node| amount(&node.allocatable))
        .max_by(f64::total_cmp);
    largest.is_some_and(|largest| asked > largest)
}

/// Returns the node that is the cause, if all reasons are about cordoned or unready nodes.
pub(super) fn only_node<'a>(world: &'a World, parts: &[Part]) -> Option<&'a NodeView> {
    let of_node = |part: &Part| match &part.what {
        What::Cordoned => true,
        What::Taint(taint) => taint.starts_with("node.kubernetes.io/"),
        What::Insufficient(_) | What::Selector | What::TooManyPods | What::Other(_) => false,
    };
    let is_cause = !parts.is_empty() && parts.iter().all(of_node);
    world
        .nodes
        .iter()
        .find(|node| is_cause && (node.cordoned || !node.is_ready()))
}

/// Returns the link of a node that is cordoned or not ready.
pub(super) fn out_of_service(world: &World, node: &NodeView) -> Link {
    if let Some(ready) = node.ready.as_ref().filter(|ready| ready.status != "True") {
        return Link::new(
            ObjectRef::cluster("Node", &node.name),
            Health::Error,
            "NodeNotReady",
            format!("is not ready{}", world.since(ready.since.as_ref())),
        )
        .since(ready.since.as_ref())
        .seen(
            format!("condition Ready={} ({})", ready.status, ready.reason),
            &ready.message,
            ready.since.as_ref(),
        );
    }
    Link::new(
        node.object(),
        Health::Error,
        "Cordoned",
        "takes no new Pods: someone cordoned it",
    )
    .seen("spec.unschedulable", "true", Some(&world.now))
}

#[cfg(test)]
mod tests;
