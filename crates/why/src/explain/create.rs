//! A Pod or Job that the API server rejects: quota, LimitRange, and missing objects that it
//! references. Admission rules of the cluster are in [`admission`].

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::Rejection;

use super::{
    Finding, admission, commands,
    container::{AFTER_EDIT, THEN_AGAIN},
    quantity::{pairs, value},
    run_context::RunContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{JobView, ObjectRef, QuotaView, World},
};

/// A rejected request, with the message of the rejection.
pub(super) struct Refusal<'a> {
    /// `Pod` or `Job`.
    pub(super) what: &'a str,
    pub(super) message: &'a str,
    /// The source of the message.
    pub(super) source: &'a str,
    pub(super) at: Option<&'a Time>,
    /// The time of the first rejection.
    pub(super) since: Option<&'a Time>,
}

impl Refusal<'_> {
    /// Returns a sentence on whether an edit of the Agent takes effect without a retry.
    pub(super) fn after_edit(&self) -> &'static str {
        match self.what {
            "Pod" => AFTER_EDIT,
            _ => "A changed Agent counts at the next try; otherwise it goes on by itself.",
        }
    }

    /// Returns the same sentence for a problem that only a change of the Agent can fix.
    fn then_again(&self) -> &'static str {
        match self.what {
            "Pod" => THEN_AGAIN,
            _ => "The next try counts by itself.",
        }
    }
}

/// Explains a Job without a Pod: by the response to the Job controller, or by stating that nothing
/// is known yet.
pub(super) fn no_pod(context: RunContext<'_>, job: &JobView) -> Finding {
    let about = job.object();
    let Some(event) = context.warning(&job.meta.uid, &["FailedCreate"]) else {
        return nothing_said(context, job);
    };
    let source = format!("Event FailedCreate{}", times(event.count));
    let link = Link::new(
        about,
        Health::Waiting,
        "FailedCreate",
        format!(
            "has no Pod: each try to create one is refused, the last{}",
            context.ago(event.last.as_ref())
        ),
    );
    let refusal = Refusal {
        what: "Pod",
        message: &event.message,
        source: &source,
        at: event.last.as_ref(),
        since: event.first.as_ref(),
    };
    explain(context, &refusal, link)
}

fn nothing_said(context: RunContext<'_>, job: &JobView) -> Finding {
    let age = job.meta.created.as_ref().map_or(0, |at| context.age(at));
    let since = context.ago(job.meta.created.as_ref());
    if age <= 30 {
        let link = Link::new(
            job.object(),
            Health::Waiting,
            Reason::Progressing,
            format!("was created{since}; its Pod is about to be"),
        )
        .since(job.meta.created.as_ref())
        .seen("looked for Pods of it", "none", Some(&context.world.now));
        return Finding::new(State::Waiting, "Wait: this takes a second or two.")
            .link(link)
            .then(commands::look_again(context));
    }
    let link = Link::new(
        job.object(),
        Health::Error,
        "NoPod",
        format!(
            "was created{since} and has no Pod; no Event says why (Events expire after an hour)"
        ),
    )
    .since(job.meta.created.as_ref())
    .seen(
        "looked for Pods and Events of it",
        "none",
        Some(&context.world.now),
    );
    Finding::new(
        State::Blocked,
        "Check whether the Job controller (kube-controller-manager) works: do other Jobs of the cluster get Pods?",
    )
    .link(link)
    .then(commands::describe(&job.object(), "the Job's conditions and Events"))
    .then(Command::new(
        "kubectl get lease kube-controller-manager -n kube-system -o yaml",
        "is 'renewTime' seconds old?",
    ))
}

/// Formats a count as ` ×7`, or as an empty string for a single time.
pub(super) fn times(count: i32) -> String {
    if count > 1 {
        format!(" ×{count}")
    } else {
        String::new()
    }
}

/// Explains a rejection. `above` is the link of the object that sent the request.
pub(super) fn explain(context: RunContext<'_>, refusal: &Refusal<'_>, above: Link) -> Finding {
    let finding = match Rejection::of(refusal.message) {
        Rejection::NamesMissing => names_missing(context, refusal),
        Rejection::PodSecurity => admission::pod_security(context, refusal),
        Rejection::Quota => quota(context, refusal),
        Rejection::LimitMissing => unlimited(context, refusal),
        Rejection::LimitRange => limit_range(context, refusal),
        Rejection::WebhookDown => admission::webhook(context, refusal, false),
        Rejection::Webhook => admission::webhook(context, refusal, true),
        Rejection::Policy => admission::policy(context, refusal),
        Rejection::Invalid => invalid(context, refusal),
        Rejection::Denied => admission::denied(context, refusal),
        Rejection::Unanswered => return unanswered(context, refusal, above),
    };
    finding.below(vec![above])
}

pub(super) fn blocked(advice: impl Into<String>) -> Finding {
    Finding::new(State::Blocked, advice)
}

pub(super) fn seen(link: Link, refusal: &Refusal<'_>) -> Link {
    link.since(refusal.since)
        .seen(refusal.source, refusal.message, refusal.at)
}

/// A rejection by a quota, with the current usage of the quota.
pub(super) struct Exceeded<'a> {
    pub(super) name: &'a str,
    /// Resource and amount.
    pub(super) asked: Vec<(&'a str, &'a str)>,
    /// The used, allowed and requested amounts as text.
    words: String,
    /// The current quota, if it could be read.
    live: Option<&'a QuotaView>,
    pub(super) has_room: bool,
    /// Whether the quota allows zero of a resource.
    pub(super) is_zero: bool,
}

/// Parses `exceeded quota: NAME, requested: …, used: …, limited: …`.
pub(super) fn exceeded<'a>(world: &'a World, message: &'a str) -> Exceeded<'a> {
    let after = |word: &str, end: &str| -> &'a str {
        let rest = message.split_once(word).map_or("", |(_, rest)| rest);
        rest.split(end).next().unwrap_or_default().trim()
    };
    let name = after("exceeded quota: ", ",");
    let asked = pairs(after("requested: ", ", used:"));
    let then_used = pairs(after("used: ", ", limited:"));
    let then_hard = pairs(after("limited: ", "\n"));
    let live = world.quotas.iter().find(|quota| quota.name == name);
    let at = |pairs: &[(&str, &str)], resource: &str| -> String {
        let found = pairs.iter().find(|(known, _)| *known == resource);
        found.map_or("?", |(_, amount)| *amount).to_owned()
    };
    let hard = |resource: &str| {
        let hard = live.and_then(|quota| quota.hard.get(resource).cloned());
        hard.unwrap_or_else(|| at(&then_hard, resource))
    };
    let words: Vec<String> = asked
        .iter()
        .map(|(resource, amount)| {
            let used = live.and_then(|quota| quota.used.get(*resource).cloned());
            format!(
                "{resource} {} of {} used, {amount} more asked for",
                used.unwrap_or_else(|| at(&then_used, resource)),
                hard(resource),
            )
        })
        .collect();
    let is_zero = asked
        .iter()
        .any(|(resource, _)| value(&hard(resource)) == Some(0.0));
    Exceeded {
        name,
        words: words.join("; "),
        live,
        has_room: live.is_some_and(|quota| fits(quota, &asked)),
        is_zero,
        asked,
    }
}

/// Returns the link for a quota that rejected a request.
pub(super) fn quota_link(
    world: &World,
    object: ObjectRef,
    refusal: &Refusal<'_>,
    exceeded: &Exceeded<'_>,
) -> Link {
    let Exceeded {
        asked,
        words,
        live,
        has_room,
        ..
    } = exceeded;
    let what = refusal.what;
    let link = if *has_room {
        Link::new(
            object,
            Health::Waiting,
            "HasRoom",
            format!("had no room for another {what}; has room now: {words}"),
        )
    } else {
        Link::new(
            object,
            Health::Error,
            Reason::QuotaExceeded,
            format!("does not allow another {what}: {words}"),
        )
    };
    let link = seen(link, refusal);
    let Some(quota) = live else { return link };
    let now: Vec<String> = asked
        .iter()
        .filter_map(|(resource, _)| {
            let used = quota.used.get(*resource)?;
            Some(format!("{resource} {used}/{}", quota.hard.get(*resource)?))
        })
        .collect();
    link.seen("status.used/status.hard", now.join(", "), Some(&world.now))
}

fn quota(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let exceeded = exceeded(context.world, refusal.message);
    let Exceeded {
        name,
        asked,
        has_room,
        is_zero,
        ..
    } = &exceeded;
    let object = context.here("ResourceQuota", name);
    let of_agent = asked
        .iter()
        .any(|(resource, _)| resource.contains("cpu") || resource.contains("memory"));
    let what = refusal.what;
    let mut finding = blocked(match (is_zero, of_agent) {
        (true, _) => format!(
            "ResourceQuota '{name}' allows none (0): have it raised. The {what} is created by itself then."
        ),
        (false, true) => format!(
            "Free some of ResourceQuota '{name}' (end or delete what uses it), have it raised, or lower the Agent's 'resources'. {}",
            refusal.after_edit()
        ),
        (false, false) => format!(
            "Free some of ResourceQuota '{name}' (end or delete what uses it) or have it raised. The {what} is created by itself then."
        ),
    });
    let link = quota_link(context.world, object.clone(), refusal, &exceeded);
    finding = finding.link(link);
    if *has_room {
        finding.state = State::Waiting;
        finding.advice = format!(
            "Wait: ResourceQuota '{name}' has room now, and the next try to create the {what} succeeds by itself (within some minutes)."
        );
        return finding
            .newer()
            .then(commands::look_again(context))
            .then(commands::describe(&object, "what is used of it now"));
    }
    finding = finding.then(commands::describe(
        &object,
        "what is used, and how much there is",
    ));
    if *is_zero {
        return finding.then(commands::edit(&object, "if you may: raise it"));
    }
    finding = finding.then(commands::list(
        what,
        context.namespace(),
        "what may use it up",
    ));
    if of_agent {
        finding.then(commands::edit_agent(
            context,
            "or lower 'resources', then 'orc retry'",
        ))
    } else {
        finding
    }
}

/// Returns whether the requested amounts fit into the quota now.
fn fits(quota: &QuotaView, asked: &[(&str, &str)]) -> bool {
    !asked.is_empty()
        && asked.iter().all(|(resource, amount)| {
            let number = |amounts: &std::collections::BTreeMap<String, String>| {
                amounts.get(*resource).and_then(|amount| value(amount))
            };
            match (number(&quota.used), number(&quota.hard), value(amount)) {
                (Some(used), Some(hard), Some(asked)) => used + asked <= hard,
                _ => false,
            }
        })
}

/// Returns the quota and the fields that it requires, from `failed quota: NAME: must specify
/// limits.cpu for: agent`.
pub(super) fn unset(message: &str) -> (&str, &str) {
    let rest = message
        .split_once("failed quota: ")
        .map_or("", |(_, rest)| rest);
    let (name, what) = rest.split_once(": must specify ").unwrap_or((rest, ""));
    (name, what.split(" for:").next().unwrap_or_default())
}

fn unlimited(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let (name, fields) = unset(refusal.message);
    let object = context.here("ResourceQuota", name);
    let paths: Vec<String> = fields
        .split(',')
        .map(|field| format!("'resources.{}'", field.trim()))
        .collect();
    let paths = paths.join(", ");
    let link = Link::new(
        object.clone(),
        Health::Error,
        "LimitMissing",
        format!("counts {fields}, so each container must set it, and the Agent does not"),
    );
    blocked(format!(
        "Set {paths} in Agent '{}'. {}",
        context.run.agent_name,
        refusal.then_again()
    ))
    .link(seen(link, refusal))
    .then(commands::edit_agent(context, &format!("set {paths}")))
    .then(commands::retry(context))
}

/// A rejection by a LimitRange.
pub(super) struct Beyond {
    /// The limited resource.
    pub(super) resource: String,
    /// The LimitRange, or the namespace if the LimitRange is unknown.
    pub(super) object: ObjectRef,
    pub(super) link: Link,
}

/// Parses `maximum cpu usage per Container is 1, but limit is 2`. `who` is the object in that
/// namespace that requests the amount.
pub(super) fn beyond(world: &World, namespace: &str, who: &str, refusal: &Refusal<'_>) -> Beyond {
    let lower = refusal.message.to_lowercase();
    let resource = ["maximum ", "minimum "]
        .iter()
        .find_map(|word| lower.split_once(word)?.1.split_whitespace().next())
        .unwrap_or_default()
        .to_owned();
    let range = world.limit_ranges.iter().find(|range| {
        let names = |limit: &String| limit.to_lowercase().contains(&format!(" {resource}:"));
        range.limits.iter().any(names)
    });
    let object = range.map_or_else(
        || ObjectRef::cluster("Namespace", namespace),
        |range| ObjectRef::namespaced("LimitRange", namespace, &range.name),
    );
    let what = refusal
        .message
        .rsplit_once("forbidden: ")
        .map_or(refusal.message, |(_, what)| what);
    let link = Link::new(
        object.clone(),
        Health::Error,
        "LimitRangeExceeded",
        format!("does not allow what the {who} asks for: {what}"),
    );
    let mut link = seen(link, refusal);
    if let Some(range) = range {
        link = link.seen("spec.limits", range.limits.join("; "), Some(&world.now));
    }
    Beyond {
        resource,
        object,
        link,
    }
}

fn limit_range(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let Beyond {
        resource,
        object,
        link,
    } = beyond(context.world, context.namespace(), "Agent", refusal);
    blocked(format!("Change '{resource}' in the Agent's 'resources' to fit, then run it again (orc retry): the Job exists already and keeps the old value. Or have {} '{}' changed; then it goes on by itself.", object.kind, object.name))
        .link(link)
        .then(commands::describe(&object, "the limits"))
        .then(commands::edit_agent(context, &format!("change 'resources' ({resource})")))
        .then(commands::retry_after_edit(context))
}

/// Returns the kind and name of the missing object that a Pod references.
pub(super) fn missing_name(message: &str) -> (&'static str, &str) {
    let lower = message.to_lowercase();
    if lower.contains("priorityclass") {
        let rest = message
            .split_once("with name ")
            .map_or("", |(_, rest)| rest);
        return ("PriorityClass", rest.split(' ').next().unwrap_or_default());
    }
    let kind = if lower.contains("runtimeclass") {
        "RuntimeClass"
    } else {
        "ServiceAccount"
    };
    (kind, message.rsplit('"').nth(1).unwrap_or_default())
}

fn names_missing(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let (kind, name) = missing_name(refusal.message);
    let object = match kind {
        "ServiceAccount" => context.here(kind, name),
        _ => ObjectRef::cluster(kind, name),
    };
    let link = Link::new(
        object,
        Health::Error,
        Reason::DependencyNotReady,
        "does not exist, and the Agent names it",
    );
    blocked(format!(
        "Create {kind} '{name}'. It existed when the run started: find out who deleted it. {}",
        refusal.after_edit()
    ))
    .link(seen(link, refusal))
    .then(commands::create(kind, name, None, context.namespace()))
    .then(commands::edit_agent(context, "or name another"))
    .then(commands::retry_after_edit(context))
}

fn invalid(context: RunContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let agent = context.here("Agent", &context.run.agent_name);
    let link = Link::new(
        agent,
        Health::Error,
        Reason::InvalidChild,
        format!(
            "asks for a {} that the API server does not accept",
            refusal.what
        ),
    );
    blocked(format!(
        "The words above name the field. Change it in Agent '{}'. {}",
        context.run.agent_name,
        refusal.then_again()
    ))
    .link(seen(link, refusal))
    .then(commands::edit_agent(context, "change the field"))
    .then(commands::retry(context))
}

/// Explains a failed request that was not rejected: the API server had a temporary problem.
fn unanswered(context: RunContext<'_>, refusal: &Refusal<'_>, above: Link) -> Finding {
    Finding::new(
        State::Waiting,
        "Wait: the Job controller tries again by itself. If it stays so for minutes, check the control plane.",
    )
    .link(seen(above, refusal))
    .then(commands::look_again(context))
    .then(Command::new(
        "kubectl get --raw '/readyz?verbose'",
        "the API server's state",
    ))
}
