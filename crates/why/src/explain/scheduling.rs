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
    let parts = parts(&said.message);
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
    let is_of_node = |part: &Part| part.what == What::Cordoned || part.what.is_out_of_use();
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
    finding.then(origin.edit(edit)).then(events)
}

/// Returns the link of a Pod that fits on no node.
fn unscheduled_link(
    origin: Origin<'_>,
    pod: &PodView,
    said: &ConditionView,
    parts: &[Part],
) -> Link {
    let why = parts.iter().map(|part| part.words(origin, pod));
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

/// One of the scheduler's reasons, with the number of nodes that it applies to.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    count: usize,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Insufficient(String),
    Taint(String),
    Selector,
    Cordoned,
    TooManyPods,
    Other(String),
}

impl What {
    /// Returns whether nodes lack capacity.
    fn is_capacity(&self) -> bool {
        matches!(self, Self::Insufficient(_) | Self::TooManyPods)
    }

    /// Returns whether a taint shows that a node is out of use.
    fn is_out_of_use(&self) -> bool {
        matches!(self, Self::Taint(taint) if taint.starts_with(OUT_OF_USE))
    }
}

/// Parses `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.
/// preemption: …`.
fn parts(message: &str) -> Vec<Part> {
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
    /// Formats the reason as text.
    fn words(&self, origin: Origin<'_>, pod: &PodView) -> String {
        let world = origin.subject().world;
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
                one_of! { (self.what.is_out_of_use(), origin);
                    (true, _) => "{nodes} out of use{named}: taint '{taint}'";
                    (false, Origin::Agent(_)) => "{nodes} with the taint '{taint}', which the Agent does not tolerate{named}";
                    (false, Origin::Tenant(..)) => "{nodes} with the taint '{taint}', which the Pod does not tolerate{named}";
                }
            }
            What::Selector => {
                let labels = selector(world, pod);
                format!("{nodes} without the labels that are asked for{labels}")
            }
            What::Cordoned => format!("{nodes} cordoned{}", named(world, |node| node.cordoned)),
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
fn advice(origin: Origin<'_>, pod: &PodView, parts: &[Part]) -> (String, bool) {
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
    for Part { what, .. } in parts {
        let (sentence, is_of_spec) = match (what, origin) {
            (What::Insufficient(resource), _) if exceeds_all(world, pod, resource) => (
                text! { "No node is that large, so freeing others does not help: lower {resources} ({resource}), or add a larger node." },
                true,
            ),
            (What::Insufficient(_) | What::TooManyPods, _) => (
                text! { "Add a node or free some, or lower {resources}." },
                true,
            ),
            (What::Taint(_), _) if what.is_out_of_use() => {
                let names = named(world, |node| !node.is_ready());
                let sentence = format!("Fix the node that is not ready{names}{placed}.");
                (sentence, false)
            }
            (What::Cordoned, _) => {
                let names = named(world, |node| node.cordoned);
                let sentence =
                    text! { "Uncordon the node{names} when its maintenance is over{placed}." };
                (sentence, false)
            }
            (What::Taint(_), Origin::Agent(_)) => (
                "Add a toleration to the Agent, if its runs may use such nodes.".to_owned(),
                true,
            ),
            (What::Taint(_), Origin::Tenant(..)) => (
                "A Tenant's Pods tolerate no taints: have a node without that taint.".to_owned(),
                false,
            ),
            (What::Selector, Origin::Agent(_)) => (
                "Label a node, or correct the Agent's 'nodeSelector'.".to_owned(),
                true,
            ),
            (What::Other(_), Origin::Agent(_)) => {
                ("The words are the scheduler's.".to_owned(), true)
            }
            (What::Selector | What::Other(_), Origin::Tenant(..)) => continue,
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

#[cfg(test)]
mod tests;
