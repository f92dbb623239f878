//! Whether a ready Tenant is isolated. The isolation is verified with real connections.

use api::tenants::{CheckedConnection, ExpectedResult, ObservedResult, PROBE_CLASS};

use super::super::refused::{exceeded, missing as missing_object};
use super::context::main;
use super::parts::Part;
use super::*;

/// Time in seconds within which probe Pods should finish, including the wait for their turn.
const PROOF: i64 = 300;
/// The policy on which the isolation depends.
const DENY: &str = "default-deny";
const OPENS: &str = "is not the Tenant's, and policies add up: it may open what the others close";

/// Explains the isolation of a Tenant in which everything else is ready.
pub(super) fn find(tenant: Tenant<'_>) -> Finding {
    if !tenant.view.has_policies {
        return disabled(tenant);
    }
    if let Some(finding) = foreign(tenant).or_else(|| missing(tenant)) {
        return finding;
    }
    let row = reason(tenant).and_then(|reason| {
        of_reason! { reason;
            Isolated => proven(tenant),
            PolicyNotEnforced => connection(tenant, reason),
            DNSUnreachable => connection(tenant, reason),
            IsolationCheckFailed => failed(tenant),
            UnmanagedPolicy => foreign_said(tenant),
            NothingToProbe => untried(tenant, reason, "has nothing that could be tried: neither it nor another Tenant has a server or a Redis that must not be reached",
                "Wait: it is tried within ten minutes after there is something to try. Until then its policies are there, but nobody has seen them refuse anything."),
            ProbesDisabled => untried(tenant, reason, "has 'isolation.probe: false': its policies are there, and nobody tries whether they are enforced",
                "Set 'isolation.probe' to true to have the isolation proven, unless that is what you want."),
        }
    });
    row.unwrap_or_else(|| pending(tenant))
}

/// Returns the condition about the isolation.
fn isolated(tenant: Tenant<'_>) -> Option<&Condition> {
    tenant.condition(condition::NETWORK_ISOLATED)
}

fn reason(tenant: Tenant<'_>) -> Option<Reason> {
    Reason::from_name(&isolated(tenant)?.reason)
}

fn message(tenant: Tenant<'_>) -> &str {
    isolated(tenant).map_or("", |known| known.message.as_str())
}

fn since(tenant: Tenant<'_>) -> Option<&Time> {
    isolated(tenant).map(|known| &known.last_transition_time)
}

/// Returns the NetworkPolicies of the namespace that could be read.
fn policies(tenant: Tenant<'_>) -> impl Iterator<Item = &Meta> {
    tenant.world.policies.iter().flat_map(|all| all.iter())
}

fn list_policies(tenant: Tenant<'_>) -> Command {
    commands::list(
        "NetworkPolicy",
        tenant.namespace,
        "the policies that are there",
    )
}

fn tried(tenant: Tenant<'_>) -> Command {
    let purpose = "'status.isolation.connections' has every connection that was tried";
    tenant.object().yaml(purpose)
}

/// Returns the connections of the last check, and the time when it ended.
fn checked(tenant: Tenant<'_>) -> (&[CheckedConnection], Option<&Time>) {
    match &tenant.view.status.isolation {
        Some(isolation) => (&isolation.connections, isolation.last_proved_at.as_ref()),
        None => (&[], None),
    }
}

fn proven(tenant: Tenant<'_>) -> Finding {
    let (_, at) = checked(tenant);
    let tried = at.map_or_else(String::new, |at| format!(", tried at {}", tenant.past(at)));
    let sentence = text! { "is ready, and isolated: what must be refused was refused, and what must pass passed{tried}" };
    let advice = match tenant.world.unreadable.is_empty() {
        true => "",
        false => "The Tenant says itself that it is well; not all of that can be seen from here.",
    };
    finding! { Ready (advice);
        link own(tenant, Health::Ok, "Ready", &sentence); seen "status.isolation.lastProvedAt" => "", at;
        then tenant.object().describe("all that it says");
        shell "kubectl get all,networkpolicy,resourcequota -n {}", tenant.namespace => "what it is made of";
    }
}

/// Explains a Tenant that disables its policies in the spec.
fn disabled(tenant: Tenant<'_>) -> Finding {
    finding! { NotIsolated "Set 'networkPolicy.enabled' of Tenant '{}' to true, unless that is what you want. Say first in 'allowedNamespaces', 'ingressRules' and 'egressRules' who uses it.", tenant.name();
        Error tenant.object(), Reason::PoliciesDisabled, "is ready, but has no policies: everybody in the cluster may reach it, and it may reach everything";
        since tenant.changed; seen "spec.networkPolicy.enabled" => "false", tenant.changed;
        then tenant.object().who("who set it"), tenant.edit("set 'networkPolicy.enabled' to true");
    }
}

/// Explains NetworkPolicies in the namespace that the Tenant does not manage.
fn foreign(tenant: Tenant<'_>) -> Option<Finding> {
    let strangers = policies(tenant).filter(|policy| {
        !tenant.is_ours(policy) && policy.retained_from.as_deref() != Some(tenant.name())
    });
    let strangers: Vec<&Meta> = strangers.collect();
    let (first, rest) = strangers.split_first()?;
    let more: Vec<String> = rest.iter().map(|one| format!("'{}'", one.name)).collect();
    let more = match more.is_empty() {
        true => String::new(),
        false => format!("; the same holds for {}", more.join(", ")),
    };
    let object = tenant.here("NetworkPolicy", &first.name);
    let (name, created, owner) = (&first.name, first.created.as_ref(), tenant.name());
    Some(finding! {
        NotIsolated "Find out who needs NetworkPolicy '{name}'. If it is needed, write its rules into 'networkPolicy' of Tenant '{owner}'. Then delete it; isolation is tried again by itself.";
        Error object.clone(), Reason::UnmanagedPolicy, "{OPENS}{more}"; since created;
        seen "label orchestrator.io/uid" => (first.run_uid.as_deref().unwrap_or("none")), created;
        newer if reason(tenant) != Some(Reason::UnmanagedPolicy);
        then object.who("what it opens, and who made it");
        then tenant.edit("say in 'networkPolicy' what it is for, if it is needed");
        then object.delete("if it is not needed, or was said there");
    })
}

/// Explains a policy in the status that was not found. It was deleted, or it may not be read.
fn foreign_said(tenant: Tenant<'_>) -> Finding {
    let name = messages::network_policy(message(tenant)).map_or("?", |(name, _)| name);
    let object = tenant.here("NetworkPolicy", name);
    if tenant.world.policies.is_some() {
        return finding! { NotProven "Wait: it is tried again by itself now.";
            Ok object, "GoneNow", "was not the Tenant's, and no longer exists"; seen tenant.not_found(); newer;
            then tenant.look_again(), list_policies(tenant);
        };
    }
    finding! { NotIsolated "Ask whoever may see the namespace what that policy is for; delete it, or say the same in 'networkPolicy' of the Tenant.";
        Error object.clone(), Reason::UnmanagedPolicy, (OPENS);
        seen "condition NetworkIsolated=False (UnmanagedPolicy)" => (message(tenant)), since(tenant);
        then object.who("what it opens, and who made it"), tenant.look_again();
    }
}

/// Explains that the default-deny policy, on which the isolation depends, is missing.
fn missing(tenant: Tenant<'_>) -> Option<Finding> {
    tenant.world.policies.as_ref()?;
    let is_deny =
        |policy: &Meta| policy.name == DENY && tenant.is_ours(policy) && policy.deleting.is_none();
    if policies(tenant).any(is_deny) {
        return None;
    }
    Some(finding! {
        NotIsolated "Wait: the operator makes it again within seconds. If it stays so, read the operator's log, and find out what deletes policies here.";
        Error tenant.here("NetworkPolicy", DENY), "PolicyMissing", "does not exist: nothing is refused until the operator makes it again";
        seen tenant.not_found(); newer;
        then tenant.look_again(), list_policies(tenant), operator::log(tenant.world);
    })
}

/// Explains a connection with an unexpected result.
fn connection(tenant: Tenant<'_>, reason: Reason) -> Finding {
    let (all, at) = checked(tenant);
    // An open connection that must be blocked is more severe than a blocked one that must be
    // allowed.
    let wrong = all.iter().filter(|one| one.is_unexpected());
    let (open, shut): (Vec<&CheckedConnection>, Vec<&CheckedConnection>) =
        wrong.partition(|one| one.expected == ExpectedResult::Blocked);
    let is_dns = reason == Reason::DNSUnreachable;
    let is_open = !is_dns && (!open.is_empty() || shut.is_empty());
    let (wrong, outcome) = match is_open {
        true => (open, "passed, and must be refused"),
        false => (shut, "was refused, and must pass"),
    };
    let (name, words) = match wrong.first() {
        Some(one) => (
            format!("from {} to {}", one.from, one.to),
            one.detail.as_str(),
        ),
        None => ("(see the first lines)".to_owned(), message(tenant)),
    };
    let counted = one_of! { wrong.len();
        0 | 1 => "";
        count => " ({count} of the {} connections that were tried)", all.len();
    };
    let mut link = link! {
        Error ObjectRef::cluster("Connection", &name), reason, "{outcome}{counted}"; since since(tenant);
        seen "status.isolation.connections" => (words), at;
    };
    for one in wrong.iter().skip(1).take(3) {
        let text = format!("from {} to {}: {}", one.from, one.to, one.detail);
        link = link.seen("status.isolation.connections", text, at);
    }
    let advice = if is_open {
        "The policies are there and are not enforced: check whether the cluster's network plugin enforces NetworkPolicies at all, and whether its Pods run on every node. Until then treat the Tenant as open."
    } else if is_dns {
        "Names are not resolved, though the policies allow it: check the cluster's DNS, and that it is in the namespace that 'tenants.dnsNamespace' of the operator's configuration names."
    } else {
        "The policies allow this connection, and it does not come about: the network plugin has not taken over the policies as they are now, or other policies (of the cluster, of its plugin) refuse it."
    };
    let deny = policies(tenant).find(|policy| policy.name == DENY);
    let deny = deny.filter(|_| is_open).map(|deny| {
        link! { Waiting tenant.here("NetworkPolicy", DENY), Reason::Created, "is there, and should refuse it";
            seen "metadata.creationTimestamp" => "", deny.created.as_ref();
        }
    });
    let purpose = match is_dns {
        true => "does the cluster's DNS run?",
        false => "does the network plugin run on every node?",
    };
    finding! { NotIsolated "{advice} It is tried again by itself every 10 minutes, and after each change of 'networkPolicy'.";
        link deny;
        link link;
        shell "kubectl get pods -n kube-system -o wide" => (purpose);
        then list_policies(tenant), tried(tenant);
    }
}

const AGAIN: &str = "It is tried again by itself every minute.";

/// Returns a reference to a probe Pod, in the operator's namespace or in the Tenant's.
fn probe(tenant: Tenant<'_>, name: &str, is_outside: bool) -> ObjectRef {
    let place = match is_outside {
        true => operator::namespace(tenant.world),
        false => Some(tenant.namespace),
    };
    ObjectRef {
        kind: "Pod".to_owned(),
        namespace: place.map(str::to_owned),
        name: name.to_owned(),
    }
}

/// Explains a probe Pod that did not finish.
fn failed(tenant: Tenant<'_>) -> Finding {
    let isolation = tenant.view.status.isolation.as_ref();
    if let Some(message) = isolation.and_then(|isolation| isolation.message.as_deref()) {
        return unmade(tenant, message, tenant.written());
    }
    let mut probes = tenant.probes();
    let stuck = probes.find(|pod| pod.phase != "Succeeded");
    if let Some(finding) = stuck.and_then(|pod| of_pod(tenant, pod)) {
        return Finding {
            state: State::NotProven,
            advice: format!("{} {AGAIN}", finding.advice),
            ..finding
        };
    }
    let (tried, at) = checked(tenant);
    let mut tried = tried.iter();
    let unknown = tried.find(|one| one.observed == ObservedResult::Unknown);
    let detail = unknown.map_or(message(tenant), |one| one.detail.as_str());
    let (name, words) = messages::pod(detail).unwrap_or(("(gone)", detail));
    let is_outside = unknown.is_some_and(|one| one.from == "a Pod outside");
    let purpose = "the operator's configuration: 'probeImage' below 'tenants'";
    finding! { NotProven "The words are the kubelet's or the scheduler's, about a Pod of the operator that no longer exists: check the image 'tenants.probeImage' of its configuration, and whether a node has room. {AGAIN}";
        Error probe(tenant, name, is_outside), Reason::IsolationCheckFailed, "was to try the connections, and told nothing: {words}";
        since since(tenant); seen "status.isolation.connections" => (detail), at.or(tenant.written());
        shell "kubectl get pods -A -w -l orchestrator.io/component=probe" => "watch the next try";
        then operator::config(tenant.world, purpose);
    }
}

/// Explains a probe Pod that is stuck.
fn of_pod(tenant: Tenant<'_>, pod: &PodView) -> Option<Finding> {
    let waits = main(pod).is_some_and(|one| one.state.waiting().is_some());
    let is_stuck = waits || pod.unscheduled().is_some();
    pod::find(tenant, Part::Server, pod).filter(|_| is_stuck)
}

/// Explains probe Pods that could not be created, or that would produce meaningless results.
fn unmade(tenant: Tenant<'_>, message: &str, at: Option<&Time>) -> Finding {
    let source = "status.isolation.message".to_owned();
    if let Some((name, within)) = messages::network_policy(message) {
        let object = ObjectRef::namespaced("NetworkPolicy", within, name);
        return finding! { NotProven "Let NetworkPolicy '{name}' in namespace '{within}' leave out the Pods with the label 'orchestrator.io/component: probe'. {AGAIN}";
            Error object.clone(), Reason::IsolationCheckFailed, "bounds the Pods that try from outside: that they are refused would prove nothing";
            seen (source) => (message), at;
            then object.yaml("which Pods it selects"), object.edit("leave those Pods out");
        };
    }
    let name = Request::find(message).map_or("(not made)", |request| request.name);
    let is_outside = name.contains("-outside-");
    let pod = link! {
        Error probe(tenant, name, is_outside), Reason::IsolationCheckFailed, "was to try the connections, and cannot be made";
        seen (source.clone()) => (message), at;
    };
    let said = Report {
        source,
        ..Report::in_status(message, at)
    };
    let refusal = Refusal::new(Origin::Tenant(tenant, None), "Pod", said);
    // The deeper link already contains this evidence.
    let above = Link {
        health: Health::Waiting,
        evidence: Vec::new(),
        ..pod.clone()
    };
    let rule = Rejection::of(message);
    if rule == Rejection::Quota && !is_outside {
        let known = exceeded(tenant.world, message);
        let (name, object) = (known.name, tenant.here("ResourceQuota", known.name));
        return finding! { NotProven "ResourceQuota '{name}' has no room for a Pod that tries connections: look for Pods that say they are such ('priorityClassName: {PROBE_CLASS}'). {AGAIN}";
            link above;
            link known.link(tenant.world, object.clone(), &refusal);
            then object.describe("what is used, and how much there is"), commands::list("Pod", tenant.namespace, "what uses it up");
        };
    }
    if rule == Rejection::NamesMissing {
        let ObjectRef { kind, name, .. } = missing_object(tenant.namespace, message);
        let sentence = "does not exist, and the Pods that try connections need it";
        return finding! { NotProven "The chart installs {kind} '{name}': upgrade or reinstall it. {AGAIN}";
            link above;
            link refusal.said.link(ObjectRef::cluster(&kind, &name), Reason::DependencyNotReady, sentence);
            shell "kubectl get {}", kind.to_lowercase() => "those that exist";
            then operator::log(tenant.world);
        };
    }
    finding! { NotProven "The words are those of a rule of the cluster: let it pass the operator's Pods with the label 'orchestrator.io/component: probe', or ask whoever set it. {AGAIN}";
        link pod;
        then operator::log(tenant.world), tried(tenant);
    }
}

/// Explains a check that is running or about to start.
fn pending(tenant: Tenant<'_>) -> Finding {
    if let Some(finding) = tenant.probes().find_map(|pod| of_pod(tenant, pod)) {
        return Finding {
            state: State::NotProven,
            ..finding
        };
    }
    let since = since(tenant);
    let status = isolated(tenant).map_or("(none)", |known| known.status.as_str());
    let mut probes = tenant.probes();
    let link = match probes.find(|pod| pod.meta.deleting.is_none()) {
        Some(pod) => link! {
            Waiting pod.object(), Reason::IsolationCheckPending, "tries the connections; it has a minute and a half for it";
            since pod.meta.created.as_ref(); seen tenant.seen("status.phase", &pod.phase);
        },
        None => link! {
            Waiting tenant.object(), Reason::IsolationCheckPending, "is ready; the connections are tried when it is its turn (5 Tenants at a time)";
            since since; seen "condition NetworkIsolated={status}" => (message(tenant)), since;
        },
    };
    let is_late = tenant.age(since) > PROOF;
    let advice = match is_late {
        true => "It takes longer than it should: read the operator's log.",
        false => "Wait: this takes a minute or two.",
    };
    finding! { NotProven (advice);
        link link;
        then tenant.look_again(), operator::log(tenant.world).filter(|_| is_late);
    }
}

/// Explains a Tenant that is not checked, which is not a problem.
fn untried(tenant: Tenant<'_>, reason: Reason, sentence: &str, advice: &str) -> Finding {
    finding! { NotProven (advice);
        Ok tenant.object(), reason, "is ready, and {sentence}"; since since(tenant);
        seen isolated(tenant).map(Evidence::of);
        then list_policies(tenant), tenant.look_again();
    }
}
