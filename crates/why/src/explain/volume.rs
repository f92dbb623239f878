//! Volumes: claims that stay pending, volumes that cannot be attached or mounted.

use api::Reason;
use pods::{MOUNT_WARNINGS, warning_reason};

use super::{
    Finding, commands,
    container::{self, AFTER_EDIT, Words},
    create::times,
    run_context::RunContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{ClaimView, EventView, ObjectRef, PodView, World},
};

/// Explains the first claim of the Pod that is not bound, or returns `None` if all are bound.
pub(super) fn claims(context: RunContext<'_>, pod: &PodView) -> Option<Finding> {
    let name = pod.claims.iter().find(|name| {
        let claim = claim(context, name);
        claim.is_none_or(|claim| claim.phase != "Bound")
    })?;
    let above = Link::new(
        pod.object(),
        Health::Waiting,
        Reason::VolumeNotReady,
        format!("waits for its volume, claim '{name}'"),
    );
    let above = match pod
        .condition("PodScheduled")
        .filter(|known| known.status == "False")
    {
        Some(known) => above.seen(
            format!("condition PodScheduled=False ({})", known.reason),
            &known.message,
            known.since.as_ref(),
        ),
        None => above,
    };
    let finding = match claim(context, name) {
        Some(claim) => pending(context, claim),
        None => absent(context, name)?,
    };
    Some(finding.below(vec![above]))
}

fn claim<'a>(context: RunContext<'a>, name: &str) -> Option<&'a ClaimView> {
    context
        .world
        .claims
        .iter()
        .find(|claim| claim.meta.name == name)
}

/// Explains a missing claim, but only if we read that it does not exist. A list that could not be
/// read proves nothing.
fn absent(context: RunContext<'_>, name: &str) -> Option<Finding> {
    if context.exists("PersistentVolumeClaim", name) != Some(false) {
        return None;
    }
    let object = context.here("PersistentVolumeClaim", name);
    let link = Link::new(
        object,
        Health::Error,
        Reason::VolumeNotReady,
        "does not exist",
    );
    Some(
        Finding::new(State::Blocked, format!("Claim '{name}' is created with the Pod: check the namespace's quota for claims, and find out who deletes them."))
            .link(link.seen("looked for it", "not found", Some(&context.world.now)))
            .then(commands::list("PersistentVolumeClaim", context.namespace(), "those that exist"))
            .then(commands::list("ResourceQuota", context.namespace(), "does a quota count claims?")),
    )
}

fn pending(context: RunContext<'_>, claim: &ClaimView) -> Finding {
    let object = context.here("PersistentVolumeClaim", &claim.meta.name);
    let class = claim.class.as_deref().unwrap_or_default();
    let said = context
        .world
        .events
        .iter()
        .filter(|event| event.uid == claim.meta.uid);
    let said = said.max_by_key(|event| (event.warning, event.last.clone()));
    let why = said
        .filter(|event| event.warning)
        .map(|event| format!("; {}", event.message));
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::VolumeNotReady,
        format!(
            "is {}{}: {} of class '{class}' are not there yet",
            claim.phase,
            context.since(claim.meta.created.as_ref()),
            claim.size
        ),
    )
    .since(claim.meta.created.as_ref());
    let link = match said {
        Some(event) => link.seen(
            format!("Event {}{}", event.reason, times(event.count)),
            &event.message,
            event.last.as_ref(),
        ),
        None => link.seen("status.phase", &claim.phase, Some(&context.world.now)),
    };
    let look = commands::describe(&object, "the claim's Events");
    let waits = |link: Link| Link {
        health: Health::Waiting,
        ..link
    };
    if context.exists("StorageClass", class) == Some(false) {
        let missing = Link::new(
            ObjectRef::cluster("StorageClass", class),
            Health::Error,
            Reason::DependencyNotReady,
            "does not exist, and the Agent's workspace names it",
        )
        .since(claim.meta.created.as_ref());
        return Finding::new(State::Blocked, format!("Have StorageClass '{class}' created, or name another in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}"))
            .link(waits(link))
            .link(missing.seen("looked for it", "not found", Some(&context.world.now)))
            .then(Command::new("kubectl get storageclass", "those that exist"))
            .then(commands::edit_agent(context, "name another class"))
            .then(commands::retry_after_edit(context));
    }
    let provisioner = context
        .world
        .known
        .iter()
        .find(|known| known.object.kind == "StorageClass" && known.object.name == class)
        .and_then(|known| known.provisioner.as_deref());
    if let Some(driver) =
        provisioner.filter(|driver| context.exists("CSIDriver", driver) == Some(false))
    {
        let missing = Link::new(
            ObjectRef::cluster("CSIDriver", driver),
            Health::Error,
            "NoProvisioner",
            format!("no CSIDriver object: the driver is probably not installed, so nobody makes volumes of class '{class}'"),
        )
        .since(claim.meta.created.as_ref());
        return Finding::new(State::Blocked, format!("Check with whoever runs the cluster whether the storage driver '{driver}' is installed and runs, or name another class in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}"))
            .link(waits(link))
            .link(missing.seen("looked for it", "not found", Some(&context.world.now)))
            .then(Command::new("kubectl get csidrivers,storageclass", "what is installed"))
            .then(look);
    }
    if said.is_some_and(|event| event.reason == "WaitForFirstConsumer")
        && said.is_some_and(|event| !event.warning)
    {
        return Finding::new(
            State::Waiting,
            "The volume is made when the Pod has a node: what blocks is above.",
        )
        .link(waits(link))
        .then(look);
    }
    let driver = provisioner.unwrap_or("(unknown)");
    let link = match why {
        Some(why) => Link {
            message: format!("{}{why}", link.message),
            ..link
        },
        None => link,
    };
    let finding = Finding::new(
        State::Blocked,
        format!("The words are those of the provisioner '{driver}', or about it: read its log, and check the space that it has. It tries again by itself."),
    )
    .link(link)
    .then(look);
    // A user who may not list objects of all namespaces cannot run this command.
    if !context.may_read("leases") {
        return finding;
    }
    finding
        .then(Command::new(
            "kubectl get pods -A -o wide | grep -i -E 'csi|provisioner'",
            format!("find the Pods of '{driver}'"),
        ))
        .then(Command::new(
            "kubectl logs -n <NAMESPACE> <POD> --all-containers --prefix --tail=50",
            "then read their log",
        ))
}

/// Explains the messages of the kubelet and the attacher about the volumes of a scheduled Pod.
pub(super) fn mounts(context: RunContext<'_>, pod: &PodView) -> Option<Finding> {
    let (event, link) = unmounted(context.world, pod)?;
    if link.reason == Reason::SecretNotFound.name() {
        let words = Words {
            source: format!("Event {}{}", event.reason, times(event.count)),
            message: &event.message,
            at: event.last.as_ref(),
            since: event.first.as_ref(),
            is_over: false,
        };
        return Some(container::secret(context, pod.object(), &words));
    }
    let look = commands::describe(&pod.object(), "all Events of the Pod");
    if event.message.to_lowercase().contains("multi-attach") {
        return Some(attached_elsewhere(context, pod, link).then(look));
    }
    let node = pod.node.as_deref().unwrap_or("?");
    let mut finding = Finding::new(State::Blocked, format!("The words are the kubelet's or the storage driver's: check the driver's Pod on node '{node}'. The kubelet tries again by itself."))
        .link(link)
        .then(look);
    if let Some(node) = pod.node.as_ref().filter(|_| context.may_read("nodes")) {
        finding = finding.then(Command::new(
            format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
            "does the storage driver's Pod run on that node?",
        ));
    }
    Some(finding)
}

/// Returns the newest Event about a volume that the Pod waits for, and the Pod's link.
pub(super) fn unmounted<'a>(world: &'a World, pod: &PodView) -> Option<(&'a EventView, Link)> {
    let event = world.warning(&pod.meta.uid, MOUNT_WARNINGS)?;
    let reason = warning_reason(&event.reason, &event.message, event.count)?;
    let verb = if event.reason == "FailedAttachVolume" {
        "attached"
    } else {
        "mounted"
    };
    let sentence = format!("a volume cannot be {verb}{}", container::on(pod));
    let link = Link::new(pod.object(), Health::Error, reason, sentence)
        .since(event.first.as_ref())
        .seen(
            format!("Event {}{}", event.reason, times(event.count)),
            &event.message,
            event.last.as_ref(),
        );
    Some((event, link))
}

/// Explains a volume that is attached to another node, which may still write to it.
fn attached_elsewhere(context: RunContext<'_>, pod: &PodView, link: Link) -> Finding {
    let here = pod.node.as_deref();
    let others = context.world.pods.iter().filter(|other| {
        other.node.as_deref() != here && other.claims.iter().any(|name| pod.claims.contains(name))
    });
    let other = others.filter_map(|other| other.node.as_deref()).next();
    let (node, object) = match other {
        Some(node) => (format!("node '{node}'"), node.to_owned()),
        None => (
            "another node (the first command shows which)".to_owned(),
            "<NODE>".to_owned(),
        ),
    };
    Finding::new(
        State::Blocked,
        format!("The volume is still attached to {node}. It is released when the Pod there is deleted. Only if that node's machine is off: have the Node tainted out-of-service, which lets go of all its Pods, those of other teams, too."),
    )
    .link(link)
    .then(Command::new(
        "kubectl get volumeattachments",
        "which node has the volume",
    ))
    .then(commands::heartbeat(&object))
}
