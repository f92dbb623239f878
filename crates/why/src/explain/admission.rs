//! Admission rules of the cluster that reject an object: Pod Security, webhooks, policies.

use super::*;

/// Explains a Pod that violates Pod Security: `violates PodSecurity "restricted:latest": …`. Our
/// Pods satisfy the strictest level, so something else changes them.
pub(super) fn altered(world: &World, namespace: &str, refusal: &Refusal<'_>) -> Finding {
    let object = ObjectRef::cluster("Namespace", namespace);
    let violated = refusal.message.split_once("violates PodSecurity \"");
    let level = violated
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or("?");
    let enforced = world
        .namespace
        .as_ref()
        .and_then(|known| known.pod_security.as_ref());
    let sentence = format!("enforces Pod Security '{level}', and the Pod violates it");
    finding! { Blocked "Pods of Orchestrator satisfy 'restricted' as they are made: something changes them on their way (a mesh's sidecar, a mutating webhook). Find it, and exempt namespace '{namespace}' from that change, not from Pod Security. The Pod is created by itself then.";
        link refusal.link(object.clone(), Reason::AdmissionDenied, sentence);
        seen enforced.map(|level| world.seen("label pod-security.kubernetes.io/enforce", level));
        shell "kubectl get mutatingwebhookconfigurations" => "what may change Pods";
        shell "kubectl get mutatingadmissionpolicies" => "the same, in clusters that have this kind";
        then object.yaml("the namespace's labels");
    }
}

/// Explains a webhook that rejects the request or does not respond. `whose` is the object to be
/// changed, and `after` is the sentence about the time after that change.
pub(super) fn hook(refusal: &Refusal<'_>, answers: bool, whose: &str, after: &str) -> Finding {
    let name = refusal.message.split_once("webhook \"");
    let name = name.and_then(|(_, rest)| rest.split_once('"'));
    let (name, rest) = name.unwrap_or(("?", refusal.message));
    let service = rest.split_once("https://").and_then(|(_, address)| {
        let (host, _) = address.split_once(".svc")?;
        host.split_once('.')
    });
    let (reason, sentence, advice) = if answers {
        let said = rest
            .trim_start_matches(" denied the request")
            .trim_start_matches(": ");
        (
            Reason::AdmissionDenied.name(),
            format!("refuses the {}: {said}", refusal.what),
            text! { "The words are the webhook's. Change {whose} to satisfy it, or ask whoever set up '{name}'. {after}" },
        )
    } else {
        let why = rest.rsplit_once("\": ").map_or(rest, |(_, why)| why);
        let place = service.map_or_else(String::new, |(service, namespace)| {
            format!(" ('{service}' in namespace '{namespace}')")
        });
        (
            "WebhookDown",
            format!("does not answer, and nothing is let in without it: {why}"),
            text! { "Fix the service of webhook '{name}'{place}, or ask whoever set it up. The next try succeeds by itself then." },
        )
    };
    let serves = service.map(|(_, namespace)| {
        shell!("kubectl get pods,svc,endpointslices -n {namespace}" => "does what serves the webhook run?")
    });
    let configurations = |kind: &str| {
        shell! {
            "kubectl get {kind}webhookconfigurations -o custom-columns='CONFIG:.metadata.name,HOOK:.webhooks[*].name,NS:.webhooks[*].clientConfig.service.namespace,SVC:.webhooks[*].clientConfig.service.name'"
                => "which configuration has '{name}' ({kind} ones), and its service"
        }
    };
    finding! { Blocked (advice);
        link refusal.link(ObjectRef::cluster("AdmissionWebhook", name), reason, sentence);
        then serves, configurations("validating"), configurations("mutating");
    }
}

/// Explains `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: …`.
pub(super) fn policy(refusal: &Refusal<'_>, whose: &str, after: &str) -> Finding {
    let rest = refusal.message.split_once("ValidatingAdmissionPolicy '");
    let rest = rest.map_or("", |(_, rest)| rest);
    let name = rest.split('\'').next().unwrap_or_default();
    let said = rest
        .split_once("denied request: ")
        .map_or(rest, |(_, said)| said);
    let object = ObjectRef::cluster("ValidatingAdmissionPolicy", name);
    let sentence = format!("refuses the {}: {said}", refusal.what);
    finding! { Blocked "The words are the policy's. Change {whose} to satisfy it, or ask whoever set policy '{name}'. {after}";
        link refusal.link(object.clone(), Reason::AdmissionDenied, sentence);
        then object.yaml("the policy's rules");
    }
}

/// Explains an admission rule that has no name.
pub(super) fn forbidden(
    namespace: &str,
    refusal: &Refusal<'_>,
    whose: &str,
    after: &str,
) -> Finding {
    let said = refusal.message.split_once("forbidden: ");
    let said = said.map_or(refusal.message, |(_, said)| said);
    let sentence = text! { "an admission rule refuses the {} here: {said}", refusal.what };
    finding! { Blocked "The words are the rule's. Change {whose}, or ask whoever runs the cluster for the rule. {after}";
        link refusal.link(ObjectRef::cluster("Namespace", namespace), Reason::AdmissionDenied, sentence);
        shell "kubectl get validatingwebhookconfigurations" => "rules of the cluster";
    }
}
