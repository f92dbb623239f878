//! Admission rules of the cluster that reject a Pod or Job: Pod Security, webhooks, policies.

use api::Reason;

use super::{
    Finding, commands,
    create::{Refusal, blocked, seen},
    run_context::RunContext,
};
use crate::{
    explanation::{Command, Health, Link},
    world::{ObjectRef, World},
};

/// Returns the link for `violates PodSecurity "restricted:latest": …`.
pub(super) fn pod_security_link(world: &World, namespace: &str, refusal: &Refusal<'_>) -> Link {
    let quoted = refusal.message.split('"').collect::<Vec<_>>();
    let at = quoted
        .iter()
        .position(|part| part.ends_with("violates PodSecurity "));
    let level = at
        .and_then(|index| quoted.get(index + 1))
        .copied()
        .unwrap_or("?");
    let link = Link::new(
        ObjectRef::cluster("Namespace", namespace),
        Health::Error,
        Reason::AdmissionDenied,
        format!("enforces Pod Security '{level}', and the Pod violates it"),
    );
    let link = seen(link, refusal);
    match world
        .namespace
        .as_ref()
        .and_then(|known| known.pod_security.as_ref())
    {
        Some(enforced) => link.seen(
            "label pod-security.kubernetes.io/enforce",
            enforced,
            Some(&world.now),
        ),
        None => link,
    }
}

/// Explains a Pod that violates Pod Security. Our Pods satisfy the strictest level, so something
/// else changes them.
pub(super) fn pod_security(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    altered(context.world, context.namespace(), refusal)
}

/// Explains a Pod of Orchestrator that no longer satisfies 'restricted'.
pub(super) fn altered(world: &World, namespace: &str, refusal: &Refusal<'_>) -> Finding {
    let object = ObjectRef::cluster("Namespace", namespace);
    let link = pod_security_link(world, namespace, refusal);
    blocked(format!("Pods of Orchestrator satisfy 'restricted' as they are made: something changes them on their way (a mesh's sidecar, a mutating webhook). Find it, and exempt namespace '{namespace}' from that change, not from Pod Security. The Pod is created by itself then."))
        .link(link)
        .then(Command::new(
            "kubectl get mutatingwebhookconfigurations",
            "what may change Pods",
        ))
        .then(Command::new(
            "kubectl get mutatingadmissionpolicies",
            "the same, in clusters that have this kind",
        ))
        .then(commands::yaml(&object, "the namespace's labels"))
}

pub(super) fn webhook(context: RunContext<'_>, refusal: &Refusal<'_>, answers: bool) -> Finding {
    let finding = hook(refusal, answers, "the Agent", refusal.after_edit());
    if answers {
        finding.then(commands::edit_agent(context, "change what it refuses"))
    } else {
        finding
    }
}

/// Explains a webhook that rejects the request or does not respond. `whose` is the object to be
/// changed, and `after` is the sentence about the time after that change.
pub(super) fn hook(refusal: &Refusal<'_>, answers: bool, whose: &str, after: &str) -> Finding {
    let name = refusal
        .message
        .split_once("webhook \"")
        .and_then(|(_, rest)| rest.split_once('"'));
    let (name, rest) = name.unwrap_or(("?", refusal.message));
    let said = rest
        .trim_start_matches(" denied the request")
        .trim_start_matches(": ");
    let service = rest.split_once("https://").and_then(|(_, address)| {
        let (host, _) = address.split_once(".svc")?;
        host.split_once('.')
    });
    let (reason, sentence, advice) = if answers {
        (
            Reason::AdmissionDenied.name(),
            format!("refuses the {}: {said}", refusal.what),
            format!(
                "The words are the webhook's. Change {whose} to satisfy it, or ask whoever set up '{name}'. {after}"
            ),
        )
    } else {
        (
            "WebhookDown",
            format!(
                "does not answer, and nothing is let in without it: {}",
                rest.rsplit_once("\": ").map_or(rest, |(_, why)| why)
            ),
            format!(
                "Fix the service of webhook '{name}'{}, or ask whoever set it up. The next try succeeds by itself then.",
                service.map_or_else(String::new, |(service, namespace)| format!(
                    " ('{service}' in namespace '{namespace}')"
                ))
            ),
        )
    };
    let object = ObjectRef::cluster("AdmissionWebhook", name);
    let link = Link::new(object, Health::Error, reason, sentence);
    let mut finding = blocked(advice).link(seen(link, refusal));
    if let Some((_, namespace)) = service {
        finding = finding.then(Command::new(
            format!("kubectl get pods,svc,endpointslices -n {namespace}"),
            "does what serves the webhook run?",
        ));
    }
    for kind in ["validating", "mutating"] {
        finding = finding.then(Command::new(
            format!("kubectl get {kind}webhookconfigurations -o custom-columns='CONFIG:.metadata.name,HOOK:.webhooks[*].name,NS:.webhooks[*].clientConfig.service.namespace,SVC:.webhooks[*].clientConfig.service.name'"),
            format!("which configuration has '{name}' ({kind} ones), and its service"),
        ));
    }
    finding
}

pub(super) fn policy(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    ruled(refusal, "the Agent", refusal.after_edit())
        .then(commands::edit_agent(context, "change what it refuses"))
        .then(commands::retry_after_edit(context))
}

/// Explains `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: …`.
pub(super) fn ruled(refusal: &Refusal<'_>, whose: &str, after: &str) -> Finding {
    let rest = refusal
        .message
        .split_once("ValidatingAdmissionPolicy '")
        .map_or("", |(_, rest)| rest);
    let name = rest.split('\'').next().unwrap_or_default();
    let said = rest
        .split_once("denied request: ")
        .map_or(rest, |(_, said)| said);
    let object = ObjectRef::cluster("ValidatingAdmissionPolicy", name);
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::AdmissionDenied,
        format!("refuses the {}: {said}", refusal.what),
    );
    blocked(format!(
        "The words are the policy's. Change {whose} to satisfy it, or ask whoever set policy '{name}'. {after}"
    ))
        .link(seen(link, refusal))
        .then(commands::yaml(&object, "the policy's rules"))
}

pub(super) fn denied(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    forbidden(
        context.namespace(),
        refusal,
        "the Agent",
        refusal.after_edit(),
    )
    .then(commands::edit_agent(context, "change what is refused"))
}

/// Explains an admission rule that has no name.
pub(super) fn forbidden(
    namespace: &str,
    refusal: &Refusal<'_>,
    whose: &str,
    after: &str,
) -> Finding {
    let object = ObjectRef::cluster("Namespace", namespace);
    let said = refusal
        .message
        .split_once("forbidden: ")
        .map_or(refusal.message, |(_, said)| said);
    let link = Link::new(
        object,
        Health::Error,
        Reason::AdmissionDenied,
        format!(
            "an admission rule refuses the {} here: {said}",
            refusal.what
        ),
    );
    blocked(format!(
        "The words are the rule's. Change {whose}, or ask whoever runs the cluster for the rule. {after}"
    ))
        .link(seen(link, refusal))
        .then(Command::new(
            "kubectl get validatingwebhookconfigurations",
            "rules of the cluster",
        ))
}
