//! Admission rules of the cluster that reject an object: Pod Security, webhooks, policies.

use super::*;

impl Refusal<'_> {
    /// Adds the command that edits the Agent or the Tenant to the finding about a rule. If no such edit
    /// can satisfy the rule, the advice reports that instead. `denied` is the object that was denied, or
    /// the Job of a denied Pod.
    pub(super) fn by_rule(&self, mut finding: Finding, denied: &ObjectRef) -> Finding {
        let is_of_agent = matches!(self.origin, Origin::Agent(_));
        if !is_of_agent || is_from_agent(self.what, self.said.message) {
            return finding.then(self.origin.edit("change what it refuses"));
        }
        let ObjectRef { kind, name, .. } = denied;
        let rule = finding.links.last().map(|link| &link.object);
        let rule = rule.filter(|rule| rule.kind != "Namespace");
        let rule = rule.map_or_else(
            || "An admission rule".to_owned(),
            |rule| format!("{} '{}'", rule.kind, rule.name),
        );
        finding.advice = text! {
            "{rule} denies {kind} '{name}' itself, and no field of the Agent changes the labels or annotations of this {kind}. Ask the owner of the rule to allow the objects that Orchestrator creates. The operator tries again by itself."
        };
        finding
    }

    /// Explains a Pod that violates Pod Security: `violates PodSecurity "restricted:latest": …`. Our
    /// Pods satisfy the strictest level, so something else changes them.
    pub(super) fn altered(&self) -> Finding {
        let subject = self.origin.subject();
        let (world, namespace) = (subject.world, subject.namespace);
        let object = ObjectRef::cluster("Namespace", namespace);
        let level = inside(self.said.message, "violates PodSecurity \"", "\"").unwrap_or("?");
        let known = world.namespace.as_ref();
        let enforced = known.and_then(|known| known.pod_security.as_ref());
        finding! { Blocked "Pods of Orchestrator satisfy 'restricted' as they are made: something changes them on their way (a mesh's sidecar, a mutating webhook). Find it, and exempt namespace '{namespace}' from that change, not from Pod Security. The Pod is created by itself then.";
            link self.said.link(object.clone(), Reason::AdmissionDenied, format!("enforces Pod Security '{level}', and the Pod violates it"));
            seen enforced.map(|level| world.seen("label pod-security.kubernetes.io/enforce", level));
            shell "kubectl get mutatingwebhookconfigurations" => "what may change Pods";
            shell "kubectl get mutatingadmissionpolicies" => "the same, in clusters that have this kind";
            then object.yaml("the namespace's labels");
        }
    }

    /// Explains a webhook that rejects the request or does not respond.
    pub(super) fn hook(&self, answers: bool) -> Finding {
        let &Self { origin, what, .. } = self;
        let (whose, after) = (origin.whose(), origin.after(what, false));
        let name = self.said.message.split_once("webhook \"");
        let name = name.and_then(|(_, rest)| rest.split_once('"'));
        let (name, rest) = name.unwrap_or(("?", self.said.message));
        let address = rest
            .split_once("https://")
            .map_or("", |(_, address)| address);
        let service = address.split_once(".svc");
        let service = service.and_then(|(host, _)| host.split_once('.'));
        let (reason, sentence, advice) = if answers {
            let said = rest.trim_start_matches(" denied the request");
            let said = said.trim_start_matches(": ");
            (
                Reason::AdmissionDenied.name(),
                format!("refuses the {what}: {said}"),
                text! { "The words are the webhook's. Change {whose} to satisfy it, or ask whoever set up '{name}'. {after}" },
            )
        } else {
            let why = rest.rsplit_once("\": ").map_or(rest, |(_, why)| why);
            let place = one_of! { service;
                Some((service, namespace)) => " ('{service}' in namespace '{namespace}')";
                None => "";
            };
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
            link self.said.link(ObjectRef::cluster("AdmissionWebhook", name), reason, sentence);
            then serves, configurations("validating"), configurations("mutating");
        }
    }

    /// Explains `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: …`.
    pub(super) fn policy(&self) -> Finding {
        let (whose, after) = (self.origin.whose(), self.origin.after(self.what, false));
        let rest = self.said.message.split_once("ValidatingAdmissionPolicy '");
        let rest = rest.map_or("", |(_, rest)| rest);
        let name = rest.split('\'').next().unwrap_or_default();
        let said = rest.split_once("denied request: ");
        let said = said.map_or(rest, |(_, said)| said);
        let object = ObjectRef::cluster("ValidatingAdmissionPolicy", name);
        finding! { Blocked "The words are the policy's. Change {whose} to satisfy it, or ask whoever set policy '{name}'. {after}";
            link self.said.link(object.clone(), Reason::AdmissionDenied, format!("refuses the {}: {said}", self.what));
            then object.yaml("the policy's rules");
        }
    }

    /// Explains an admission rule that has no name.
    pub(super) fn forbidden(&self) -> Finding {
        let (whose, after) = (self.origin.whose(), self.origin.after(self.what, false));
        let said = self.said.message.split_once("forbidden: ");
        let said = said.map_or(self.said.message, |(_, said)| said);
        let object = ObjectRef::cluster("Namespace", self.origin.subject().namespace);
        finding! { Blocked "The words are the rule's. Change {whose}, or ask an administrator of the cluster for the rule. {after}";
            link self.said.link(object, Reason::AdmissionDenied, format!("an admission rule refuses the {} here: {said}", self.what));
            shell "kubectl get validatingwebhookconfigurations" => "rules of the cluster";
        }
    }
}

/// Returns whether a field of the Agent can satisfy a rule that denies an object of this kind. The labels
/// and annotations of a Job come from the run alone, and a ConfigMap has nothing of the Agent but its
/// instructions.
fn is_from_agent(kind: &str, message: &str) -> bool {
    let message = message.to_lowercase();
    let is_metadata = ["label", "annotation"]
        .iter()
        .any(|word| message.contains(word));
    match kind {
        "Pod" => true,
        "Job" => !is_metadata,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_from_agent;

    #[test]
    fn labels_of_a_job_are_not_from_the_agent() {
        let labels = "policy 'p' with binding 'b' denied request: each Job needs a Label 'owner'";
        let annotations = "policy 'p' denied request: metadata.annotations is empty";
        let image = "policy 'p' denied request: the image is not signed";
        let cases = [
            ("Pod", labels, true),
            ("Pod", image, true),
            ("Job", labels, false),
            ("Job", annotations, false),
            ("Job", image, true),
            ("ConfigMap", image, false),
        ];
        for (kind, message, expected) in cases {
            assert_eq!(is_from_agent(kind, message), expected, "{kind}: {message}");
        }
    }
}
