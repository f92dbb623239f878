//! A Pod of a Tenant that has no node, because its volume or the capacity is missing.

use api::Reason;

use super::{
    super::{
        Finding, commands,
        scheduling::{self, What},
    },
    context::{TenantContext, part},
    parts::Part,
    pod::STARTING,
    volume,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::PodView,
};

/// Explains a Pod without a node, because its volume or the capacity is missing.
pub(super) fn unplaced(context: TenantContext<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let said = pod
        .condition("PodScheduled")
        .filter(|known| known.status == "False")?;
    let claim = volume::claim(context).filter(|claim| of == Part::Redis && claim.phase != "Bound");
    if let Some(claim) = claim {
        let is_new = claim
            .meta
            .created
            .as_ref()
            .is_some_and(|at| context.world.age(at) < STARTING);
        let is_quiet = context.world.warnings(&claim.meta.uid).is_empty();
        if is_new && is_quiet {
            return None;
        }
        let above = Link::new(
            pod.object(),
            Health::Waiting,
            Reason::VolumeNotReady,
            format!("waits for its volume, claim '{}'", claim.meta.name),
        )
        .seen(
            format!("condition PodScheduled=False ({})", said.reason),
            &said.message,
            said.since.as_ref(),
        );
        return Some(volume::pending(context, claim).below(vec![above]));
    }
    let since = said.since.as_ref().or(pod.meta.created.as_ref());
    if since.is_some_and(|at| context.world.age(at) < STARTING) {
        return None;
    }
    let parts = scheduling::parts(&said.message);
    let link = scheduling::unscheduled_link(context.world, pod, said, "the Pod").since(since);
    let mut finding =
        Finding::new(State::Blocked, capacity_advice(context, pod, &parts)).link(link);
    let look = commands::describe(&pod.object(), "the scheduler's Events");
    if !context.may_read("nodes") {
        return Some(
            finding
                .then(look)
                .then(context.edit("change what it asks for")),
        );
    }
    if let Some(node) = scheduling::only_node(context.world, &parts) {
        finding = finding
            .link(scheduling::out_of_service(context.world, node))
            .then(commands::node(&node.name));
        if node.cordoned {
            finding = finding.then(Command::new(
                format!("kubectl uncordon {}", node.name),
                "let Pods onto it again, if its maintenance is over",
            ));
        }
        return Some(finding);
    }
    Some(
        finding
            .then(Command::new(
                "kubectl describe nodes | grep -A8 'Allocated resources'",
                "how much of each node is taken",
            ))
            .then(look)
            .then(context.edit(&format!("lower '{}.resources'", part(pod)))),
    )
}

/// Returns advice on how to free capacity.
fn capacity_advice(
    context: TenantContext<'_>,
    pod: &PodView,
    parts: &[scheduling::Part],
) -> String {
    let field = part(pod);
    let is = |wanted: fn(&What) -> bool| parts.iter().any(|part| wanted(&part.what));
    let mut words: Vec<String> = Vec::new();
    let too_large = parts.iter().find_map(|part| match &part.what {
        What::Insufficient(resource) if scheduling::exceeds_all(context.world, pod, resource) => {
            Some(resource)
        }
        What::Insufficient(_)
        | What::Taint(_)
        | What::Selector
        | What::Cordoned
        | What::TooManyPods
        | What::Other(_) => None,
    });
    if let Some(resource) = too_large {
        words.push(format!("No node is that large, so freeing others does not help: lower '{field}.resources' ({resource}), or add a larger node."));
    } else if is(|what| matches!(what, What::Insufficient(_) | What::TooManyPods)) {
        words.push(format!(
            "Add a node or free some, or lower '{field}.resources'."
        ));
    }
    if is(|what| matches!(what, What::Cordoned)) {
        words.push(format!(
            "Uncordon the node{} when its maintenance is over.",
            scheduling::named(context.world, |node| node.cordoned)
        ));
    }
    let is_out = |what: &What| matches!(what, What::Taint(taint) if taint.starts_with("node.kubernetes.io/"));
    if parts.iter().any(|part| is_out(&part.what)) {
        words.push(format!(
            "Fix the node that is not ready{}.",
            scheduling::named(context.world, |node| !node.is_ready())
        ));
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
