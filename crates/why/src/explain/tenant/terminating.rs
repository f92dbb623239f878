//! The objects that remain in a namespace that is being deleted, and the finalizers that keep them.

use api::Reason;

use super::{
    super::{Finding, commands, stop},
    context::TenantContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    namespace_conditions,
    world::{ConditionView, NamespaceView, ObjectRef, OtherView, PodView},
};

/// Time in seconds after which a deletion is considered blocked.
const PATIENCE: i64 = 60;

/// The conditions in which the namespace controller reports the remaining objects.
const HOLDS: &[&str] = &[
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NamespaceDeletionContentFailure",
    "NamespaceDeletionDiscoveryFailure",
];

/// Explains a namespace that is being deleted, down to the object that blocks the deletion. `whose`
/// is the end of the sentence about the namespace.
pub(super) fn find(
    context: TenantContext<'_>,
    namespace: &NamespaceView,
    reason: Reason,
    whose: &str,
) -> Finding {
    let above = of_namespace(context, namespace, reason, whose);
    let finding = undiscovered(context, namespace)
        .or_else(|| held(context))
        .or_else(|| of_pod(context))
        .or_else(|| left(context));
    let Some(finding) = finding else {
        return alone(context, namespace, above);
    };
    finding.below(vec![above])
}

fn holds(namespace: &NamespaceView) -> impl Iterator<Item = &ConditionView> {
    let all = namespace.conditions.iter();
    all.filter(|known| known.status == "True" && HOLDS.contains(&known.kind.as_str()))
}

fn of_namespace(
    context: TenantContext<'_>,
    namespace: &NamespaceView,
    reason: Reason,
    whose: &str,
) -> Link {
    let since = namespace.deleting.as_ref();
    let mut link = Link::new(
        context.place(),
        Health::Waiting,
        reason,
        format!("is being deleted{}, {whose}", context.world.since(since)),
    )
    .since(since)
    .seen("deletion asked for", "", since);
    for known in holds(namespace).take(4) {
        link = link.seen(
            format!("condition {}=True", known.kind),
            &known.message,
            known.since.as_ref(),
        );
    }
    link
}

/// Explains the deletion by the namespace's own conditions, because nothing deeper is known.
fn alone(context: TenantContext<'_>, namespace: &NamespaceView, mut link: Link) -> Finding {
    let age = namespace
        .deleting
        .as_ref()
        .map_or(0, |at| context.world.age(at));
    let finalizers: Vec<String> = holds(namespace)
        .flat_map(|known| namespace_conditions::finalizers(&known.message))
        .collect();
    let look = commands::yaml(&context.place(), "what its deletion waits for");
    if age > PATIENCE {
        link.health = Health::Error;
    }
    let advice = match finalizers.first() {
        Some(name) => format!(
            "The finalizer '{name}' holds something in it that you may not see: ask whoever runs what sets it."
        ),
        None if age > PATIENCE => {
            "Its conditions say what it waits for; if they say nothing, check the kube-controller-manager.".to_owned()
        }
        None => "Wait: what is in it is being removed.".to_owned(),
    };
    Finding::new(State::Waiting, advice)
        .link(link)
        .then(look)
        .then(Command::new(
            format!("kubectl api-resources --verbs=list --namespaced -o name | xargs -n1 kubectl get --show-kind --ignore-not-found -n {}", context.namespace()),
            "everything that is left in it",
        ))
}

/// Explains an API group that does not respond. It blocks the deletion of every namespace.
fn undiscovered(context: TenantContext<'_>, namespace: &NamespaceView) -> Option<Finding> {
    let known = holds(namespace).find(|known| known.kind == "NamespaceDeletionDiscoveryFailure")?;
    let name = namespace_conditions::stale_group(&known.message);
    let object = match &name {
        Some(name) => ObjectRef::cluster("APIService", name),
        None => ObjectRef::cluster("APIServer", "kubernetes"),
    };
    let link = Link::new(
        object.clone(),
        Health::Error,
        "DiscoveryFailed",
        "does not answer, so nobody knows what else is in the namespace: no namespace of the cluster can go",
    )
    .since(known.since.as_ref())
    .seen(
        "condition NamespaceDeletionDiscoveryFailure=True",
        &known.message,
        known.since.as_ref(),
    );
    let advice = "Bring what serves that part of the API back, or delete its APIService if it no longer exists.";
    let finding = Finding::new(State::Blocked, advice)
        .link(link)
        .then(Command::new(
            "kubectl get apiservices | grep -v True",
            "which parts of the API do not answer",
        ));
    Some(match name {
        Some(_) => finding.then(commands::describe(
            &object,
            "what serves it, and why it does not",
        )),
        None => finding.then(commands::yaml(&context.place(), "all of its conditions")),
    })
}

/// Explains an object that is kept by a finalizer.
fn held(context: TenantContext<'_>) -> Option<Finding> {
    let mut all: Vec<&OtherView> = context
        .world
        .left
        .iter()
        .filter(|one| !one.meta.finalizers.is_empty())
        .collect();
    // The finalizer of a claim is removed with its Pod, so the cause is behind the Pod.
    let is_plain = |one: &&OtherView| {
        let own = |name: &String| name == "kubernetes.io/pvc-protection";
        one.meta.finalizers.iter().all(own)
    };
    all.sort_by_key(|one| {
        (
            is_plain(one),
            one.meta.deleting.clone(),
            one.meta.name.clone(),
        )
    });
    let (first, rest) = all.split_first()?;
    if is_plain(first) && context.world.pods.iter().any(|pod| is_here(context, pod)) {
        return None;
    }
    let holders = first.meta.finalizers.join("', '");
    let more: Vec<String> = rest
        .iter()
        .take(3)
        .map(|one| {
            format!(
                "{} '{}' by '{}'",
                one.kind,
                one.meta.name,
                one.meta.finalizers.join("', '")
            )
        })
        .collect();
    let more = match (more.is_empty(), rest.len().saturating_sub(more.len())) {
        (true, _) => String::new(),
        (false, 0) => format!("; also {}", more.join(", ")),
        (false, count) => format!("; also {} and {count} more", more.join(", ")),
    };
    let since = first.meta.deleting.as_ref();
    let age = since.map_or(0, |at| context.world.age(at));
    let is_late = age > PATIENCE || context.reason() == Some(Reason::DeletionBlocked);
    let object = context.here(&first.kind, &first.meta.name);
    let link = Link::new(
        object,
        if is_late {
            Health::Error
        } else {
            Health::Waiting
        },
        "Finalizer",
        format!("is held by the finalizer '{holders}'{more}"),
    )
    .since(since)
    .seen(
        "metadata.finalizers",
        first.meta.finalizers.join(", "),
        since,
    );
    let resource = match first.resource.as_str() {
        "" => commands::resource(&first.kind),
        resource => resource.to_owned(),
    };
    let get = format!(
        "kubectl get {resource} {} -n {} -o yaml --show-managed-fields",
        first.meta.name,
        context.namespace()
    );
    let edit = format!(
        "kubectl edit {resource} {} -n {}",
        first.meta.name,
        context.namespace()
    );
    Some(
        Finding::new(
            if is_late { State::Blocked } else { State::Waiting },
            format!("Find out what set '{holders}' on {} '{}' and let it finish. Take it off by hand only if that no longer exists.", first.kind, first.meta.name),
        )
        .link(link)
        .then(Command::new(get, "'metadata.managedFields' names who set it"))
        .then(Command::new(
            edit,
            "only if that no longer exists: delete its line under 'metadata.finalizers'",
        )),
    )
}

fn is_here(context: TenantContext<'_>, pod: &PodView) -> bool {
    pod.meta.namespace == context.namespace()
}

/// Explains a Pod that has not stopped, and a node that prevents it.
fn of_pod(context: TenantContext<'_>) -> Option<Finding> {
    let pods = context
        .world
        .pods
        .iter()
        .filter(|pod| is_here(context, pod));
    let pod = pods.max_by_key(|pod| (pod.may_run(), pod.meta.created.clone()))?;
    let link = stopping(context, pod, Reason::Deleting);
    let node = pod
        .node
        .as_deref()
        .and_then(|node| context.world.node(node));
    if let Some(node) = node.filter(|node| !node.is_ready()) {
        let link = Link {
            health: Health::Waiting,
            ..link
        };
        return Some(stop::node_lost(context.world, node, "").below(vec![link]));
    }
    let advice = match link.health {
        Health::Error => format!(
            "Pod '{}' should have been killed by now: check its node, and its finalizers.",
            pod.meta.name
        ),
        Health::Ok | Health::Waiting => format!(
            "Wait until Pod '{}' has stopped: it has its grace period to end.",
            pod.meta.name
        ),
    };
    Some(
        Finding::new(State::Waiting, advice)
            .link(link)
            .then(commands::yaml(
                &pod.object(),
                "its conditions and finalizers",
            )),
    )
}

/// Returns the link of a Pod that has to stop.
pub(super) fn stopping(context: TenantContext<'_>, pod: &PodView, reason: Reason) -> Link {
    let node = pod
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on node '{node}'"));
    let end = pod.meta.stop_by.as_ref();
    let asked = pod.meta.deleting.as_ref();
    let sentence = match (asked, end) {
        (None, _) => format!("still runs{node}; it is about to be told to stop"),
        (Some(at), Some(end)) if context.world.age(end) > 0 => format!(
            "{} was asked to stop at {}, and should have been killed at {}",
            node.trim_start(),
            context.world.when(at),
            context.world.when(end)
        ),
        (Some(at), _) => format!(
            "{} was asked to stop at {} and has not ended yet",
            node.trim_start(),
            context.world.when(at)
        ),
    };
    let is_late = match (end, asked) {
        (Some(end), _) => context.world.age(end) > PATIENCE / 2,
        (None, Some(asked)) => context.world.age(asked) > PATIENCE,
        (None, None) => false,
    };
    let health = if is_late {
        Health::Error
    } else {
        Health::Waiting
    };
    Link::new(pod.object(), health, reason, sentence.trim_start())
        .since(asked)
        .seen("status.phase", &pod.phase, Some(&context.world.now))
}

/// Explains objects without a finalizer, which the namespace controller is still deleting.
fn left(context: TenantContext<'_>) -> Option<Finding> {
    let all = &context.world.left;
    let first = all.iter().min_by_key(|one| one.meta.deleting.clone())?;
    let since = first.meta.deleting.as_ref();
    let age = since.map_or(0, |at| context.world.age(at));
    let others = match all.len() {
        1 => String::new(),
        count => format!(" ({count} things are left in all)"),
    };
    let link = Link::new(
        context.here(&first.kind, &first.meta.name),
        if age > PATIENCE {
            Health::Error
        } else {
            Health::Waiting
        },
        Reason::Deleting,
        format!("is still there, and no finalizer holds it{others}"),
    )
    .since(since)
    .seen(
        "deletion asked for",
        if since.is_some() { "" } else { "not yet" },
        since.or(Some(&context.world.now)),
    );
    Some(
        Finding::new(
            State::Waiting,
            "Wait: the namespace controller removes it. If it stays for minutes, check the kube-controller-manager.",
        )
        .link(link)
        .then(commands::yaml(&context.place(), "what its deletion waits for")),
    )
}
