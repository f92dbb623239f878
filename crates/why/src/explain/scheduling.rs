//! A Pod that fits on no node: parses the scheduler's message and compares it with the nodes.

use pods::unscheduled_reason;

use super::container::AFTER_EDIT;
use super::*;

/// The taints that Kubernetes sets on a node that is out of use.
const OUT_OF_USE: &str = "node.kubernetes.io/";

/// Explains the scheduler's message about a Pod without a node, or returns `None` without a
/// message.
pub(super) fn unscheduled(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    let said = pod.unscheduled()?;
    if unscheduled_reason(&said.message) == Reason::VolumeNotReady
        && let Some(finding) = volume::claims(run, pod)
    {
        return Some(finding);
    }
    if said.reason == "SchedulingGated" {
        return Some(finding! {
            Blocked "Orchestrator sets no gates: find what does (a queue such as Kueue, a webhook).";
            Error pod.object(), "SchedulingGated", "a scheduling gate that someone put on it holds it";
            since said.since.as_ref(); seen said.evidence();
            then pod.object().yaml("'spec.schedulingGates' names it"), run.object().describe("the run");
        });
    }
    let parts = parts(&said.message);
    let events = pod.object().describe("the scheduler's Events");
    let (advice, agent_helps) = advice(run.world, pod, &parts);
    let finding = finding! { Blocked (advice);
        link unscheduled_link(run.world, pod, said, "the Agent"); since said.since.as_ref();
    };
    if !run.may_read("nodes") {
        let finding = finding.then(events);
        return Some(match agent_helps {
            true => finding
                .then(run.edit_agent("change what it asks for"))
                .then(run.retry_after_edit()),
            false => finding,
        });
    }
    if let Some(node) = only_node(run.world, &parts) {
        let finding = with_node(run.world, finding, node);
        return Some(finding.then(shell!("kubectl get nodes" => "the other nodes")));
    }
    let full = parts.iter().any(|part| part.what.is_capacity());
    let selects = parts.iter().any(|part| part.what == What::Selector);
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
    Some(finding.then(run.edit_agent(edit)).then(events))
}

/// Adds the node that is the cause, and the commands for it.
pub(super) fn with_node(world: &World, finding: Finding, node: &NodeView) -> Finding {
    let uncordon = node.cordoned.then(|| commands::uncordon(&node.name));
    let finding = finding.link(out_of_service(world, node));
    finding.then(commands::node(&node.name)).then(uncordon)
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
    let is_empty = said
        .message
        .to_lowercase()
        .starts_with("no nodes available");
    let why = match (is_empty, why.is_empty()) {
        (true, _) => ": the cluster has no nodes at all".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!(": {}", why.join("; ")),
    };
    link! { Error pod.object(), unscheduled_reason(&said.message), "no node can take it{why}";
        seen said.evidence();
    }
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

impl What {
    /// Returns whether nodes lack capacity.
    pub(super) fn is_capacity(&self) -> bool {
        matches!(self, Self::Insufficient(_) | Self::TooManyPods)
    }

    /// Returns whether a taint shows that a node is out of use.
    pub(super) fn is_out_of_use(&self) -> bool {
        matches!(self, Self::Taint(taint) if taint.starts_with(OUT_OF_USE))
    }
}

/// Parses `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.
/// preemption: …`.
pub(super) fn parts(message: &str) -> Vec<Part> {
    let Some((_, rest)) = message.split_once("nodes are available: ") else {
        return Vec::new();
    };
    let ends = [
        ". preemption:",
        ". no new claims",
        ". still not schedulable",
    ];
    let end = ends.iter().filter_map(|word| rest.find(word)).min();
    let list = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
    let mut pieces: Vec<String> = Vec::new();
    for piece in list.trim_end_matches('.').split(", ") {
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
            What::Taint(taint) => {
                let taint = taint.trim_end_matches(": ").trim_end_matches(':');
                let key = taint.split(':').next();
                let is_it = |known: &String| known.split(['=', ':']).next() == key;
                let named = named(world, |node| node.taints.iter().any(is_it));
                one_of! { self.what.is_out_of_use();
                    true => "{nodes} out of use{named}: taint '{taint}'";
                    false => "{nodes} with the taint '{taint}', which {whose} does not tolerate{named}";
                }
            }
            What::Selector => {
                let labels = selector(world, pod);
                format!("{nodes} without the labels that are asked for{labels}")
            }
            What::Cordoned => format!("{nodes} cordoned{}", cordoned(world)),
            What::TooManyPods => format!("{nodes} full of Pods"),
            What::Other(words) => format!("{nodes}: {words}"),
        }
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

fn cordoned(world: &World) -> String {
    named(world, |node| node.cordoned)
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

/// Returns the advice, and whether a change of the Agent helps.
fn advice(world: &World, pod: &PodView, parts: &[Part]) -> (String, bool) {
    let mut words: Vec<String> = Vec::new();
    let mut agent_helps = false;
    if parts.is_empty() {
        words.push("Have a node added that can take the Pod.".to_owned());
    }
    for Part { what, .. } in parts {
        let (sentence, is_of_agent) = match what {
            What::Insufficient(resource) if exceeds_all(world, pod, resource) => (
                text! { "No node is that large, so freeing others does not help: lower the Agent's 'resources' ({resource}), or add a larger node." },
                true,
            ),
            What::Insufficient(_) | What::TooManyPods => (
                "Add a node or free some, or lower the Agent's 'resources'.".to_owned(),
                true,
            ),
            What::Taint(_) if what.is_out_of_use() => (
                format!("{}: the Pod is placed by itself then.", fix_node(world)),
                false,
            ),
            What::Taint(_) => (
                "Add a toleration to the Agent, if its runs may use such nodes.".to_owned(),
                true,
            ),
            What::Selector => (
                "Label a node, or correct the Agent's 'nodeSelector'.".to_owned(),
                true,
            ),
            What::Cordoned => (
                format!("{}: the Pod is placed by itself then.", uncordon(world)),
                false,
            ),
            What::Other(_) => ("The words are the scheduler's.".to_owned(), true),
        };
        agent_helps |= is_of_agent;
        if !words.contains(&sentence) {
            words.push(sentence);
        }
    }
    if agent_helps {
        words.push(AFTER_EDIT.to_owned());
    }
    (words.join(" "), agent_helps)
}

/// Returns the advice for a Pod of a Tenant. `field` is the component in the Tenant's spec.
pub(super) fn tenant_advice(world: &World, pod: &PodView, parts: &[Part], field: &str) -> String {
    let is = |wanted: fn(&What) -> bool| parts.iter().any(|part| wanted(&part.what));
    let mut words: Vec<String> = Vec::new();
    let too_large = parts.iter().find_map(|part| match &part.what {
        What::Insufficient(resource) if exceeds_all(world, pod, resource) => Some(resource),
        What::Insufficient(_)
        | What::Taint(_)
        | What::Selector
        | What::Cordoned
        | What::TooManyPods
        | What::Other(_) => None,
    });
    if let Some(resource) = too_large {
        words.push(format!("No node is that large, so freeing others does not help: lower '{field}.resources' ({resource}), or add a larger node."));
    } else if is(What::is_capacity) {
        words.push(text! { "Add a node or free some, or lower '{field}.resources'." });
    }
    if is(|what| *what == What::Cordoned) {
        words.push(format!("{}.", uncordon(world)));
    }
    if is(What::is_out_of_use) {
        words.push(format!("{}.", fix_node(world)));
    } else if is(|what| matches!(what, What::Taint(_))) {
        words
            .push("A Tenant's Pods tolerate no taints: have a node without that taint.".to_owned());
    }
    if words.is_empty() {
        words.push(
            "Have a node added that can take the Pod: the words are the scheduler's.".to_owned(),
        );
    }
    words.push("It is placed by itself then.".to_owned());
    words.join(" ")
}

fn fix_node(world: &World) -> String {
    let names = named(world, |node| !node.is_ready());
    format!("Fix the node that is not ready{names}")
}

fn uncordon(world: &World) -> String {
    let names = cordoned(world);
    format!("Uncordon the node{names} when its maintenance is over")
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

/// Returns the node that is the cause, if all reasons are about cordoned or unready nodes.
pub(super) fn only_node<'a>(world: &'a World, parts: &[Part]) -> Option<&'a NodeView> {
    let of_node = |part: &Part| part.what == What::Cordoned || part.what.is_out_of_use();
    let is_cause = !parts.is_empty() && parts.iter().all(of_node);
    let mut nodes = world.nodes.iter();
    nodes.find(|node| is_cause && (node.cordoned || !node.is_ready()))
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

#[cfg(test)]
mod tests;
