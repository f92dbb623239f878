//! Whether a ready Tenant is isolated. The isolation is verified with real connections.

use api::{
    Reason,
    messages::{self, Request},
    tenants::{CheckedConnection, ExpectedResult, ObservedResult, condition},
};
use pods::Rejection;

use super::{
    super::{
        Finding, commands,
        create::{Refusal, exceeded, missing_name, quota_link, seen},
        operator,
    },
    context::{TenantContext, main},
    own,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{Meta, ObjectRef, PodView},
};

/// Time in seconds within which probe Pods should finish, including the wait for their turn.
const PROOF: i64 = 300;

/// Explains the isolation of a Tenant in which everything else is ready.
pub(super) fn find(context: TenantContext<'_>) -> Finding {
    if !context.tenant.has_policies {
        return disabled(context);
    }
    if let Some(finding) = foreign(context).or_else(|| missing(context)) {
        return finding;
    }
    let known = context.condition(condition::NETWORK_ISOLATED);
    let reason = known.and_then(|known| Reason::from_name(&known.reason));
    match reason {
        Some(Reason::Isolated) => proven(context),
        Some(reason @ (Reason::PolicyNotEnforced | Reason::DNSUnreachable)) => {
            connection(context, reason)
        }
        Some(Reason::IsolationCheckFailed) => failed(context),
        Some(Reason::UnmanagedPolicy) => foreign_said(context),
        Some(Reason::NothingToProbe) => untried(
            context,
            Reason::NothingToProbe,
            "has nothing that could be tried: neither it nor another Tenant has a server or a Redis that must not be reached",
            "Nothing: it is tried within ten minutes after there is something to try. Until then its policies are there, but nobody has seen them refuse anything.",
        ),
        Some(Reason::ProbesDisabled) => untried(
            context,
            Reason::ProbesDisabled,
            "has 'isolation.probe: false': its policies are there, and nobody tries whether they are enforced",
            "Set 'isolation.probe' to true to have the isolation proven, unless that is what you want.",
        ),
        Some(_) | None => pending(context),
    }
}

fn not_isolated(advice: impl Into<String>) -> Finding {
    Finding::new(State::NotIsolated, advice)
}

fn policies(context: TenantContext<'_>) -> Command {
    commands::list(
        "NetworkPolicy",
        context.namespace(),
        "the policies that are there",
    )
}

fn tried(context: TenantContext<'_>) -> Command {
    commands::yaml(
        &context.object(),
        "'status.isolation.connections' has every connection that was tried",
    )
}

/// Returns the time when the last check ended.
fn proved(
    context: TenantContext<'_>,
) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    let isolation = context.tenant.status.isolation.as_ref()?;
    isolation.last_proved_at.as_ref()
}

fn proven(context: TenantContext<'_>) -> Finding {
    let at = proved(context);
    let sentence = format!(
        "is ready, and isolated: what must be refused was refused, and what must pass passed{}",
        at.map_or_else(String::new, |at| format!(
            ", tried at {}",
            context.world.when(at)
        ))
    );
    let link =
        own(context, Health::Ok, "Ready", &sentence).seen("status.isolation.lastProvedAt", "", at);
    let advice = match context.world.unreadable.is_empty() {
        true => "Nothing is wrong.",
        false => "The Tenant says itself that it is well; not all of that can be seen from here.",
    };
    Finding::new(State::Ready, advice)
        .link(link)
        .then(commands::describe(&context.object(), "all that it says"))
        .then(Command::new(
            format!(
                "kubectl get all,networkpolicy,resourcequota -n {}",
                context.namespace()
            ),
            "what it is made of",
        ))
}

/// Explains a Tenant that disables its policies in the spec.
fn disabled(context: TenantContext<'_>) -> Finding {
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::PoliciesDisabled,
        "is ready, but has no policies: everybody in the cluster may reach it, and it may reach everything",
    )
    .since(context.tenant.changed.as_ref())
    .seen(
        "spec.networkPolicy.enabled",
        "false",
        context.tenant.changed.as_ref(),
    );
    not_isolated(format!(
        "Set 'networkPolicy.enabled' of Tenant '{}' to true, unless that is what you want. Say first in 'allowedNamespaces', 'ingressRules' and 'egressRules' who uses it.",
        context.name()
    ))
    .link(link)
    .then(commands::who(&context.object(), "who set it"))
    .then(context.edit("set 'networkPolicy.enabled' to true"))
}

/// Returns the NetworkPolicies in the namespace that the Tenant does not manage.
fn strangers(context: TenantContext<'_>) -> Vec<&Meta> {
    let all = context.world.policies.iter().flat_map(|all| all.iter());
    all.filter(|policy| {
        !context.is_ours(policy) && policy.retained_from.as_deref() != Some(context.name())
    })
    .collect()
}

fn foreign(context: TenantContext<'_>) -> Option<Finding> {
    let strangers = strangers(context);
    let (first, rest) = strangers.split_first()?;
    let more: Vec<String> = rest.iter().map(|one| format!("'{}'", one.name)).collect();
    let more = match more.is_empty() {
        true => String::new(),
        false => format!("; the same holds for {}", more.join(", ")),
    };
    let object = context.here("NetworkPolicy", &first.name);
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::UnmanagedPolicy,
        format!(
            "is not the Tenant's, and policies add up: it may open what the others close{more}"
        ),
    )
    .since(first.created.as_ref())
    .seen(
        "label orchestrator.io/uid",
        first.run_uid.as_deref().unwrap_or("none"),
        first.created.as_ref(),
    );
    let says_so = said(context) == Some(Reason::UnmanagedPolicy);
    let mut finding = not_isolated(format!(
        "Look what NetworkPolicy '{}' is for. Delete it, or say the same in 'networkPolicy' of Tenant '{}' and delete it then; it is tried again by itself.",
        first.name,
        context.name()
    ))
    .link(link)
    .then(commands::who(&object, "what it opens, and who made it"))
    .then(context.edit("say in 'networkPolicy' what it is for, if it is needed"))
    .then(commands::delete(&object, "if it is not needed, or was said there"));
    finding.is_newer = !says_so;
    Some(finding)
}

fn said(context: TenantContext<'_>) -> Option<Reason> {
    let known = context.condition(condition::NETWORK_ISOLATED)?;
    Reason::from_name(&known.reason)
}

/// Explains a policy in the status that was not found. It was deleted, or it may not be read.
fn foreign_said(context: TenantContext<'_>) -> Finding {
    let known = context.condition(condition::NETWORK_ISOLATED);
    let message = known.map_or("", |known| known.message.as_str());
    let name = messages::network_policy(message).map_or("?", |(name, _)| name);
    let object = context.here("NetworkPolicy", name);
    if context.world.policies.is_some() {
        let link = Link::new(
            object,
            Health::Ok,
            "GoneNow",
            "was not the Tenant's, and no longer exists",
        )
        .seen("looked for it", "not found", Some(&context.world.now));
        return Finding::new(State::NotProven, "Wait: it is tried again by itself now.")
            .link(link)
            .newer()
            .then(context.look_again())
            .then(policies(context));
    }
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::UnmanagedPolicy,
        "is not the Tenant's, and policies add up: it may open what the others close",
    )
    .seen(
        "condition NetworkIsolated=False (UnmanagedPolicy)",
        message,
        known.map(|known| &known.last_transition_time),
    );
    not_isolated("Ask whoever may see the namespace what that policy is for; delete it, or say the same in 'networkPolicy' of the Tenant.")
        .link(link)
        .then(commands::who(&object, "what it opens, and who made it"))
        .then(context.look_again())
}

/// Explains that the default-deny policy, on which the isolation depends, is missing.
fn missing(context: TenantContext<'_>) -> Option<Finding> {
    let mut all = context.world.policies.iter().flat_map(|all| all.iter());
    context.world.policies.as_ref()?;
    let is_deny = |policy: &Meta| {
        policy.name == "default-deny" && context.is_ours(policy) && policy.deleting.is_none()
    };
    if all.any(is_deny) {
        return None;
    }
    let link = Link::new(
        context.here("NetworkPolicy", "default-deny"),
        Health::Error,
        "PolicyMissing",
        "does not exist: nothing is refused until the operator makes it again",
    )
    .seen("looked for it", "not found", Some(&context.world.now));
    Some(
        not_isolated("Wait: the operator makes it again within seconds. If it stays so, read the operator's log, and find out what deletes policies here.")
            .link(link)
            .newer()
            .then(context.look_again())
            .then(policies(context))
            .maybe(operator::log(context.world)),
    )
}

/// Explains a connection with an unexpected result.
fn connection(context: TenantContext<'_>, reason: Reason) -> Finding {
    let isolation = context.tenant.status.isolation.as_ref();
    let all = isolation.map_or(&[] as &[CheckedConnection], |known| {
        known.connections.as_slice()
    });
    let is_wrong = |one: &&CheckedConnection| one.is_unexpected();
    // An open connection that must be blocked is more severe than a blocked one that must be
    // allowed.
    let (open, shut): (Vec<&CheckedConnection>, Vec<&CheckedConnection>) = all
        .iter()
        .filter(is_wrong)
        .partition(|one| one.expected == ExpectedResult::Blocked);
    let is_open = reason == Reason::PolicyNotEnforced && (!open.is_empty() || shut.is_empty());
    let wrong: Vec<&CheckedConnection> = if is_open { open } else { shut };
    let at = proved(context);
    let outcome = if is_open {
        "passed, and must be refused"
    } else {
        "was refused, and must pass"
    };
    let known = context.condition(condition::NETWORK_ISOLATED);
    let (name, words) = match wrong.first() {
        Some(one) => (
            format!("from {} to {}", one.from, one.to),
            one.detail.clone(),
        ),
        None => (
            "(see the first lines)".to_owned(),
            known.map(|known| known.message.clone()).unwrap_or_default(),
        ),
    };
    let counted = match wrong.len() {
        0 | 1 => String::new(),
        count => format!(
            " ({count} of the {} connections that were tried)",
            all.len()
        ),
    };
    let mut link = Link::new(
        ObjectRef::cluster("Connection", &name),
        Health::Error,
        reason,
        format!("{outcome}{counted}"),
    )
    .since(known.map(|known| &known.last_transition_time))
    .seen("status.isolation.connections", words, at);
    for one in wrong.iter().skip(1).take(3) {
        link = link.seen(
            "status.isolation.connections",
            format!("from {} to {}: {}", one.from, one.to, one.detail),
            at,
        );
    }
    let again =
        "It is tried again by itself every 10 minutes, and after each change of 'networkPolicy'.";
    let advice = if is_open {
        "The policies are there and are not enforced: check whether the cluster's network plugin enforces NetworkPolicies at all, and whether its Pods run on every node. Until then treat the Tenant as open."
    } else if reason == Reason::DNSUnreachable {
        "Names are not resolved, though the policies allow it: check the cluster's DNS, and that it is in the namespace that 'tenants.dnsNamespace' of the operator's configuration names."
    } else {
        "The policies allow this connection, and it does not come about: the network plugin has not taken over the policies as they are now, or other policies (of the cluster, of its plugin) refuse it."
    };
    let mut finding = not_isolated(format!("{advice} {again}"));
    let mut policies_there = context.world.policies.iter().flat_map(|all| all.iter());
    let deny = policies_there.find(|policy| policy.name == "default-deny");
    if let Some(deny) = deny.filter(|_| is_open) {
        finding = finding.link(
            Link::new(
                context.here("NetworkPolicy", "default-deny"),
                Health::Waiting,
                Reason::Created,
                "is there, and should refuse it",
            )
            .seen("metadata.creationTimestamp", "", deny.created.as_ref()),
        );
    }
    let purpose = if reason == Reason::DNSUnreachable {
        "does the cluster's DNS run?"
    } else {
        "does the network plugin run on every node?"
    };
    finding
        .link(link)
        .then(Command::new(
            "kubectl get pods -n kube-system -o wide",
            purpose,
        ))
        .then(policies(context))
        .then(tried(context))
}

/// Explains a probe Pod that did not finish.
fn failed(context: TenantContext<'_>) -> Finding {
    let known = context.condition(condition::NETWORK_ISOLATED);
    let isolation = context.tenant.status.isolation.as_ref();
    let told = isolation.and_then(|isolation| isolation.message.as_deref());
    let at = isolation.and_then(|isolation| {
        isolation
            .last_proved_at
            .as_ref()
            .filter(|_| isolation.message.is_none())
    });
    let at = at.or_else(|| context.written());
    let again = "It is tried again by itself every minute.";
    if let Some(message) = told {
        return unmade(context, message, at, again);
    }
    let stuck = context
        .probes()
        .find(|pod| !matches!(pod.phase.as_str(), "Succeeded"));
    if let Some(finding) = stuck.and_then(|pod| of_pod(context, pod)) {
        return Finding {
            state: State::NotProven,
            advice: format!("{} {again}", finding.advice),
            ..finding
        };
    }
    let tried = isolation.map_or(&[] as &[CheckedConnection], |known| {
        known.connections.as_slice()
    });
    let unknown = tried
        .iter()
        .find(|one| one.observed == ObservedResult::Unknown);
    let detail = unknown.map_or_else(
        || known.map(|known| known.message.clone()).unwrap_or_default(),
        |one| one.detail.clone(),
    );
    let (name, words) = messages::pod(&detail).unwrap_or(("(gone)", detail.as_str()));
    let place = match unknown.map(|one| one.from.as_str()) {
        Some("a Pod outside") => operator::namespace(context.world),
        Some(_) | None => Some(context.namespace()),
    };
    let object = ObjectRef {
        kind: "Pod".to_owned(),
        namespace: place.map(str::to_owned),
        name: name.to_owned(),
    };
    let link = Link::new(
        object,
        Health::Error,
        Reason::IsolationCheckFailed,
        format!("was to try the connections, and told nothing: {words}"),
    )
    .since(known.map(|known| &known.last_transition_time))
    .seen("status.isolation.connections", &detail, at);
    Finding::new(
        State::NotProven,
        format!("The words are the kubelet's or the scheduler's, about a Pod of the operator that no longer exists: check the image 'tenants.probeImage' of its configuration, and whether a node has room. {again}"),
    )
    .link(link)
    .then(Command::new(
        "kubectl get pods -A -w -l orchestrator.io/component=probe",
        "watch the next try",
    ))
    .maybe(operator::config(
        context.world,
        "the operator's configuration: 'probeImage' below 'tenants'",
    ))
}

/// Explains a probe Pod that is stuck.
fn of_pod(context: TenantContext<'_>, pod: &PodView) -> Option<Finding> {
    let stands = main(pod).map(|one| &one.state);
    let is_stuck = stands.is_some_and(|state| state.waiting().is_some())
        || pod
            .condition("PodScheduled")
            .is_some_and(|known| known.status == "False");
    is_stuck
        .then(|| super::pod::find(context, super::parts::Part::Server, pod))
        .flatten()
}

/// Explains probe Pods that could not be created, or that would produce meaningless results.
fn unmade(
    context: TenantContext<'_>,
    message: &str,
    at: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    again: &str,
) -> Finding {
    if let Some((name, namespace)) = messages::network_policy(message) {
        let object = ObjectRef::namespaced("NetworkPolicy", namespace, name);
        let link = Link::new(
            object.clone(),
            Health::Error,
            Reason::IsolationCheckFailed,
            "bounds the Pods that try from outside: that they are refused would prove nothing",
        )
        .seen("status.isolation.message", message, at);
        return Finding::new(
            State::NotProven,
            format!("Let NetworkPolicy '{name}' in namespace '{namespace}' leave out the Pods with the label 'orchestrator.io/component: probe'. {again}"),
        )
        .link(link)
        .then(commands::yaml(&object, "which Pods it selects"))
        .then(commands::edit(&object, "leave those Pods out"));
    }
    let request = Request::find(message);
    let name = request
        .as_ref()
        .map_or("(not made)", |request| request.name);
    let is_outside = name.contains("-outside-");
    let place = match is_outside {
        true => operator::namespace(context.world),
        false => Some(context.namespace()),
    };
    let pod = Link::new(
        ObjectRef {
            kind: "Pod".to_owned(),
            namespace: place.map(str::to_owned),
            name: name.to_owned(),
        },
        Health::Error,
        Reason::IsolationCheckFailed,
        "was to try the connections, and cannot be made",
    )
    .seen("status.isolation.message", message, at);
    let refusal = Refusal {
        what: "Pod",
        message,
        source: "status.isolation.message",
        at,
        since: None,
    };
    // The deeper link already contains this evidence.
    let above = |pod: Link| Link {
        health: Health::Waiting,
        evidence: Vec::new(),
        ..pod
    };
    let finding = |advice: String| Finding::new(State::NotProven, format!("{advice} {again}"));
    match Rejection::of(message) {
        Rejection::Quota if !is_outside => {
            let known = exceeded(context.world, message);
            let object = context.here("ResourceQuota", known.name);
            let mut link = quota_link(context.world, object.clone(), &refusal, &known);
            if link.health == Health::Error {
                Reason::QuotaExceeded.name().clone_into(&mut link.reason);
            }
            finding(format!("ResourceQuota '{}' has no room for a Pod that tries connections: look for Pods that say they are such ('priorityClassName: {}').", known.name, api::tenants::PROBE_CLASS))
                .link(above(pod))
                .link(link)
                .then(commands::describe(&object, "what is used, and how much there is"))
                .then(commands::list("Pod", context.namespace(), "what uses it up"))
        }
        Rejection::NamesMissing => {
            let (kind, name) = missing_name(message);
            let link = Link::new(
                ObjectRef::cluster(kind, name),
                Health::Error,
                Reason::DependencyNotReady,
                "does not exist, and the Pods that try connections need it",
            );
            finding(format!("The chart installs {kind} '{name}': upgrade or reinstall it."))
                .link(above(pod))
                .link(seen(link, &refusal))
                .then(Command::new(
                    format!("kubectl get {}", kind.to_lowercase()),
                    "those that exist",
                ))
                .maybe(operator::log(context.world))
        }
        Rejection::Quota
        | Rejection::PodSecurity
        | Rejection::LimitMissing
        | Rejection::LimitRange
        | Rejection::WebhookDown
        | Rejection::Webhook
        | Rejection::Policy
        | Rejection::Invalid
        | Rejection::Denied
        | Rejection::Unanswered => finding(
            "The words are those of a rule of the cluster: let it pass the operator's Pods with the label 'orchestrator.io/component: probe', or ask whoever set it."
                .to_owned(),
        )
        .link(pod)
        .maybe(operator::log(context.world))
        .then(tried(context)),
    }
}

/// Explains a check that is running or about to start.
fn pending(context: TenantContext<'_>) -> Finding {
    let known = context.condition(condition::NETWORK_ISOLATED);
    let since = known.map(|known| &known.last_transition_time);
    let waits = since.map_or(0, |at| context.world.age(at));
    if let Some(finding) = context.probes().find_map(|pod| of_pod(context, pod)) {
        return Finding {
            state: State::NotProven,
            ..finding
        };
    }
    let running = context.probes().find(|pod| pod.meta.deleting.is_none());
    let link = match running {
        Some(pod) => Link::new(
            pod.object(),
            Health::Waiting,
            Reason::IsolationCheckPending,
            "tries the connections; it has a minute and a half for it",
        )
        .since(pod.meta.created.as_ref())
        .seen("status.phase", &pod.phase, Some(&context.world.now)),
        None => Link::new(
            context.object(),
            Health::Waiting,
            Reason::IsolationCheckPending,
            "is ready; the connections are tried when it is its turn (5 Tenants at a time)",
        )
        .since(since)
        .seen(
            format!(
                "condition NetworkIsolated={}",
                known.map_or("(none)", |known| known.status.as_str())
            ),
            known.map_or("", |known| known.message.as_str()),
            since,
        ),
    };
    let advice = if waits > PROOF {
        "It takes longer than it should: read the operator's log."
    } else {
        "Wait: this takes a minute or two."
    };
    let finding = Finding::new(State::NotProven, advice)
        .link(link)
        .then(context.look_again());
    if waits > PROOF {
        finding.maybe(operator::log(context.world))
    } else {
        finding
    }
}

/// Explains a Tenant that is not checked, which is not a problem.
fn untried(context: TenantContext<'_>, reason: Reason, sentence: &str, advice: &str) -> Finding {
    let known = context.condition(condition::NETWORK_ISOLATED);
    let since = known.map(|known| &known.last_transition_time);
    let link = Link::new(
        context.object(),
        Health::Ok,
        reason,
        format!("is ready, and {sentence}"),
    )
    .since(since)
    .seen(
        format!(
            "condition NetworkIsolated={} ({})",
            known.map_or("Unknown", |known| known.status.as_str()),
            reason
        ),
        known.map_or("", |known| known.message.as_str()),
        since,
    );
    Finding::new(State::NotProven, advice)
        .link(link)
        .then(policies(context))
        .then(context.look_again())
}
