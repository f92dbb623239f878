//! An object that the API server rejects: quota, LimitRange, and missing objects that it
//! references. Admission rules of the cluster are in [`super::admission`].

use super::admission::{altered, forbidden, hook, policy};
use super::container::{AFTER_EDIT, THEN_AGAIN};
use super::*;

/// A rejected request, with the message of the rejection.
pub(super) struct Refusal<'a> {
    /// The kind of the rejected object.
    pub(super) what: &'a str,
    pub(super) message: &'a str,
    /// The source of the message.
    pub(super) source: String,
    pub(super) at: Option<&'a Time>,
    /// The time of the first rejection.
    pub(super) since: Option<&'a Time>,
}

impl<'a> Refusal<'a> {
    /// Returns the rejection that the status reports.
    pub(super) fn in_status(subject: Subject<'a>, what: &'a str) -> Self {
        Self {
            what,
            message: subject.message(),
            source: "status.message".to_owned(),
            at: subject.written(),
            since: None,
        }
    }

    /// Returns the rejection that an Event reports.
    pub(super) fn in_event(event: &'a EventView, what: &'a str) -> Self {
        Self {
            what,
            message: &event.message,
            source: event.source(),
            at: event.last.as_ref(),
            since: event.first.as_ref(),
        }
    }

    /// Returns a sentence on whether an edit of the Agent takes effect without a retry.
    fn after_edit(&self) -> &'static str {
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

    /// Adds the message to a link.
    pub(super) fn seen(&self, link: Link) -> Link {
        link.since(self.since)
            .seen(&self.source, self.message, self.at)
    }

    /// Returns the link of the object that rejects, or that must be changed.
    pub(super) fn link(&self, object: ObjectRef, reason: impl ToString, text: String) -> Link {
        self.seen(link! { Error object, reason, (text); })
    }
}

/// Explains a Job without a Pod: by the response to the Job controller, or by stating that nothing
/// is known yet.
pub(super) fn no_pod(run: Run<'_>, job: &JobView) -> Finding {
    let made = job.meta.created.as_ref();
    let since = run.ago(made);
    if let Some(event) = run.world.warning(&job.meta.uid, &["FailedCreate"]) {
        let above = link! {
            Waiting job.object(), "FailedCreate", "has no Pod: each try to create one is refused, the last{}", run.ago(event.last.as_ref());
        };
        return of_run(run, &Refusal::in_event(event, "Pod"), above);
    }
    if run.age(made) <= 30 {
        return finding! { Waiting "Wait: this takes a second or two.";
            Waiting job.object(), Reason::Progressing, "was created{since}; its Pod is about to be"; since made;
            seen run.seen("looked for Pods of it", "none"); then run.look_again();
        };
    }
    finding! { Blocked "Check whether the Job controller (kube-controller-manager) works: do other Jobs of the cluster get Pods?";
        Error job.object(), "NoPod", "was created{since} and has no Pod; no Event says why (Events expire after an hour)";
        since made; seen run.seen("looked for Pods and Events of it", "none");
        then job.object().describe("the Job's conditions and Events"), commands::controllers();
    }
}

/// Explains a rejection of an object of a run. `above` is the link of the object that sent the
/// request.
pub(super) fn of_run(run: Run<'_>, refusal: &Refusal<'_>, above: Link) -> Finding {
    let (world, within, agent) = (run.world, run.namespace, &run.view.agent_name);
    let (what, message) = (refusal.what, refusal.message);
    let (after, again) = (refusal.after_edit(), refusal.then_again());
    let finding = match Rejection::of(message) {
        Rejection::NamesMissing => {
            let (kind, name) = missing_name(message);
            let sentence = "does not exist, and the Agent names it".to_owned();
            finding! { Blocked "Create {kind} '{name}'. It existed when the run started: find out who deleted it. {after}";
                link refusal.link(missing_object(within, message), Reason::DependencyNotReady, sentence);
                then commands::create(kind, name, None, within), run.edit_agent("or name another"), run.retry_after_edit();
            }
        }
        Rejection::PodSecurity => altered(world, within, refusal),
        Rejection::Quota => quota_of_run(run, refusal),
        Rejection::LimitMissing => {
            let (name, fields) = unset(message);
            let paths = fields
                .split(',')
                .map(|field| format!("'resources.{}'", field.trim()));
            let paths = paths.collect::<Vec<String>>().join(", ");
            let sentence =
                format!("counts {fields}, so each container must set it, and the Agent does not");
            finding! { Blocked "Set {paths} in Agent '{agent}'. {again}";
                link refusal.link(run.here("ResourceQuota", name), "LimitMissing", sentence);
                then run.edit_agent(format!("set {paths}")), run.retry();
            }
        }
        Rejection::LimitRange => {
            let (resource, object, link) = beyond(world, within, "Agent", refusal);
            finding! { Blocked "Change '{resource}' in the Agent's 'resources' to fit, then run it again (orc retry): the Job exists already and keeps the old value. Or have {} '{}' changed; then it goes on by itself.", object.kind, object.name;
                link link;
                then object.describe("the limits"), run.edit_agent(format!("change 'resources' ({resource})")), run.retry_after_edit();
            }
        }
        Rejection::WebhookDown => hook(refusal, false, "the Agent", after),
        Rejection::Webhook => {
            hook(refusal, true, "the Agent", after).then(run.edit_agent("change what it refuses"))
        }
        Rejection::Policy => policy(refusal, "the Agent", after)
            .then(run.edit_agent("change what it refuses"))
            .then(run.retry_after_edit()),
        Rejection::Invalid => finding! {
            Blocked "The words above name the field. Change it in Agent '{agent}'. {again}";
            link refusal.link(run.agent(), Reason::InvalidChild, format!("asks for a {what} that the API server does not accept"));
            then run.edit_agent("change the field"), run.retry();
        },
        Rejection::Denied => forbidden(within, refusal, "the Agent", after)
            .then(run.edit_agent("change what is refused")),
        // The request failed without a rejection: the API server had a temporary problem.
        Rejection::Unanswered => {
            return finding! { Waiting "Wait: the Job controller tries again by itself. If it stays so for minutes, check the control plane.";
                link refusal.seen(above);
                then run.look_again(), commands::readyz();
            };
        }
    };
    finding.below([above])
}

/// Explains a rejection of an object of a Tenant. `above` is the link of the object that was to be
/// created. `part` is the component that the object belongs to.
pub(super) fn of_tenant(
    tenant: Tenant<'_>,
    part: Option<&str>,
    refusal: &Refusal<'_>,
    above: Link,
) -> Finding {
    let (world, within, owner) = (tenant.world, tenant.namespace, tenant.name());
    let (what, message, after) = (refusal.what, refusal.message, tenant::AFTER_EDIT);
    let component = part.unwrap_or("server");
    let edit = || tenant.edit("change what it refuses");
    let finding = match Rejection::of(message) {
        Rejection::Quota => quota_of_tenant(tenant, part, refusal),
        Rejection::LimitMissing => {
            let (name, fields) = unset(message);
            let sentence = text! { "counts {fields}, so each container must set it, and '{component}.resources' does not" };
            finding! { Blocked "Set {fields} in '{component}.resources' of Tenant '{owner}'. {after}";
                link refusal.link(tenant.here("ResourceQuota", name), "LimitMissing", sentence);
                then tenant.edit(format!("set {fields} in '{component}.resources'")), tenant.look_again();
            }
        }
        Rejection::LimitRange => {
            let (resource, object, link) = beyond(world, within, "Tenant", refusal);
            let (advice, change) = if resource == "storage" {
                (
                    "Raise 'resources.storage.limit' of the Tenant, which is the largest single volume; 'redis.storage' itself cannot be changed.".to_owned(),
                    "raise 'resources.storage.limit'",
                )
            } else {
                (
                    text! { "Change '{resource}' in '{component}.resources' of the Tenant to fit, or have {} '{}' changed.", object.kind, object.name },
                    "change it",
                )
            };
            finding! { Blocked "{advice} {after}";
                link link;
                then object.describe("the limits"), tenant.edit(change);
            }
        }
        Rejection::PodSecurity => altered(world, within, refusal),
        Rejection::NamesMissing => {
            let (kind, name) = missing_name(message);
            let advice = one_of! { kind;
                "PriorityClass" => "The chart installs PriorityClass '{name}': upgrade or reinstall it.";
                _ => "Create {kind} '{name}': the cluster makes it by itself in every namespace, so find out who deletes it.";
            };
            finding! { Blocked "{advice} It goes on by itself then.";
                link refusal.link(missing_object(within, message), Reason::DependencyNotReady, format!("does not exist, and the {what} needs it"));
                then commands::create(kind, name, None, within), tenant.look_again();
            }
        }
        Rejection::WebhookDown => hook(refusal, false, "the Tenant", after),
        Rejection::Webhook => hook(refusal, true, "the Tenant", after).then(edit()),
        Rejection::Policy => policy(refusal, "the Tenant", after).then(edit()),
        Rejection::Denied => forbidden(within, refusal, "the Tenant", after).then(edit()),
        Rejection::Invalid => finding! {
            Blocked "The words above name the field. Change it in Tenant '{owner}'. {after}";
            link refusal.link(tenant.object(), Reason::InvalidChild, format!("asks for a {what} that the API server does not accept"));
            then tenant.edit("change the field"), tenant.look_again();
        },
        Rejection::Unanswered => {
            return finding! { Waiting "Wait: it is tried again by itself. If it stays so for minutes, check the control plane.";
                link refusal.seen(above);
                then tenant.look_again(), commands::readyz();
            };
        }
    };
    finding.below([above])
}

/// A rejection by a quota, with the current usage of the quota.
pub(super) struct Exceeded<'a> {
    pub(super) name: &'a str,
    /// Resource and amount.
    asked: Vec<(&'a str, &'a str)>,
    /// The used, allowed and requested amounts as text.
    words: String,
    /// The current quota, if it could be read.
    live: Option<&'a QuotaView>,
    has_room: bool,
    /// Whether the quota allows zero of a resource.
    is_zero: bool,
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
    // The amount of now, otherwise the amount in the message.
    let amount = |now: Option<&Amounts>, then: &[(&str, &str)], resource: &str| -> String {
        let now = now.and_then(|now| now.get(resource)).map(String::as_str);
        let then = then.iter().find(|(known, _)| *known == resource);
        now.or(then.map(|(_, amount)| *amount))
            .unwrap_or("?")
            .to_owned()
    };
    let hard = |resource: &str| amount(live.map(|quota| &quota.hard), &then_hard, resource);
    let used = |resource: &str| amount(live.map(|quota| &quota.used), &then_used, resource);
    let words = asked.iter().map(|(resource, more)| {
        let (used, hard) = (used(resource), hard(resource));
        format!("{resource} {used} of {hard} used, {more} more asked for")
    });
    let words = words.collect::<Vec<String>>().join("; ");
    let mut resources = asked.iter().map(|(resource, _)| parse(&hard(resource)));
    let is_zero = resources.any(|hard| hard == Some(0));
    Exceeded {
        name,
        words,
        live,
        has_room: live.is_some_and(|quota| fits(quota, &asked)),
        is_zero,
        asked,
    }
}

impl Exceeded<'_> {
    /// Returns the link of the quota.
    pub(super) fn link(&self, world: &World, object: ObjectRef, refusal: &Refusal<'_>) -> Link {
        let (what, words) = (refusal.what, &self.words);
        let link = match self.has_room {
            true => {
                link! { Waiting object, "HasRoom", "had no room for another {what}; has room now: {words}"; }
            }
            false => {
                link! { Error object, Reason::QuotaExceeded, "does not allow another {what}: {words}"; }
            }
        };
        let link = refusal.seen(link);
        let Some(quota) = self.live else { return link };
        let now = self.asked.iter().filter_map(|(resource, _)| {
            let (used, hard) = (quota.used.get(*resource)?, quota.hard.get(*resource)?);
            Some(format!("{resource} {used}/{hard}"))
        });
        let now = now.collect::<Vec<String>>().join(", ");
        link.evidence(world.seen("status.used/status.hard", now))
    }

    /// Returns whether a resource with one of these words was requested.
    fn is_of(&self, words: &[&str]) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|(resource, _)| words.iter().any(|word| resource.contains(word)))
    }

    /// Explains that the quota has room by now.
    fn with_room(&self, subject: Subject<'_>, refusal: &Refusal<'_>) -> Finding {
        let (name, what) = (self.name, refusal.what);
        let object = subject.here("ResourceQuota", name);
        finding! { Waiting "Wait: ResourceQuota '{name}' has room now, and the next try to create the {what} succeeds by itself (within some minutes).";
            link self.link(subject.world, object.clone(), refusal); newer;
            then subject.look_again(), object.describe("what is used of it now");
        }
    }
}

/// Returns whether the requested amounts fit into the quota now.
fn fits(quota: &QuotaView, asked: &[(&str, &str)]) -> bool {
    let number = |all: &Amounts, name: &str| all.get(name).and_then(|amount| parse(amount));
    let fits = |(name, more): &(&str, &str)| match (
        number(&quota.used, name),
        number(&quota.hard, name),
        parse(more),
    ) {
        (Some(used), Some(hard), Some(more)) => used + more <= hard,
        _ => false,
    };
    !asked.is_empty() && asked.iter().all(fits)
}

fn quota_of_run(run: Run<'_>, refusal: &Refusal<'_>) -> Finding {
    let known = exceeded(run.world, refusal.message);
    if known.has_room {
        return known.with_room(*run, refusal);
    }
    let (name, what) = (known.name, refusal.what);
    let object = run.here("ResourceQuota", name);
    let of_agent = known.is_of(&["cpu", "memory"]);
    let after = refusal.after_edit();
    let advice = one_of! { (known.is_zero, of_agent);
        (true, _) => "ResourceQuota '{name}' allows none (0): have it raised. The {what} is created by itself then.";
        (false, true) => "Free some of ResourceQuota '{name}' (end or delete what uses it), have it raised, or lower the Agent's 'resources'. {after}";
        (false, false) => "Free some of ResourceQuota '{name}' (end or delete what uses it) or have it raised. The {what} is created by itself then.";
    };
    let finding = finding! { Blocked (advice);
        link known.link(run.world, object.clone(), refusal);
        then object.describe("what is used, and how much there is");
    };
    if known.is_zero {
        return finding.then(object.edit("if you may: raise it"));
    }
    let change = of_agent.then(|| run.edit_agent("or lower 'resources', then 'orc retry'"));
    finding
        .then(commands::list(what, run.namespace, "what may use it up"))
        .then(change)
}

/// The quotas that the operator creates for a Tenant.
const OURS: &[&str] = &["tenant", "tenant-objects"];

/// Returns the field of a Tenant from which a resource of its quota is derived.
fn tenant_field(resource: &str) -> Option<&'static str> {
    match resource {
        "requests.cpu" => Some("'resources.cpu.request'"),
        "limits.cpu" => Some("'resources.cpu.limit'"),
        "requests.memory" => Some("'resources.memory.request'"),
        "limits.memory" => Some("'resources.memory.limit'"),
        "requests.storage" => Some("'resources.storage.request'"),
        "pods" => Some("'resources.pods.limit'"),
        _ => None,
    }
}

/// Explains a rejection by a quota. The quota follows from the Tenant's own fields such as
/// `'resources.pods.limit'`, is the quota for probe Pods, which nobody can change, or is unmanaged.
fn quota_of_tenant(tenant: Tenant<'_>, part: Option<&str>, refusal: &Refusal<'_>) -> Finding {
    let known = exceeded(tenant.world, refusal.message);
    if known.has_room {
        return known.with_room(*tenant, refusal);
    }
    let (name, what) = (known.name, refusal.what);
    let (owner, within) = (tenant.name(), tenant.namespace);
    let object = tenant.here("ResourceQuota", name);
    let own = known
        .asked
        .iter()
        .filter_map(|(resource, _)| tenant_field(resource));
    let own = own.collect::<Vec<&str>>().join(", ");
    let less = match (part, known.is_of(&["cpu", "memory"])) {
        (Some("server"), true) => ", or lower 'server.replicas' or 'server.resources'",
        (Some("server"), false) => ", or lower 'server.replicas'",
        (Some("redis"), true) => ", or lower 'redis.resources'",
        (Some(_), _) | (None, _) => "",
    };
    let is_ours = OURS.contains(&name) && !own.is_empty();
    let advice = if is_ours {
        text! { "This quota is the Tenant's own: raise {own} of Tenant '{owner}'{less}. {} Or free some: delete what nobody needs in namespace '{within}'.", tenant::AFTER_EDIT }
    } else if name == "tenant-probes" {
        text! { "This quota is for the Pods that try connections: delete the others that say they are such ('priorityClassName') in namespace '{within}'." }
    } else {
        text! { "ResourceQuota '{name}' is not the Tenant's: ask whoever made it to raise it, or free some{less}. The {what} is created by itself then." }
    };
    let users = match known.is_of(&["storage"]) {
        true => "PersistentVolumeClaim",
        false => "Pod",
    };
    finding! { Blocked (advice);
        link known.link(tenant.world, object.clone(), refusal);
        then object.describe("what is used, and how much there is"), commands::list(users, within, "what uses it up");
        then is_ours.then(|| tenant.edit(format!("raise {own}")));
    }
}

/// Returns the quota and the fields that it requires, from `failed quota: NAME: must specify
/// limits.cpu for: agent`.
fn unset(message: &str) -> (&str, &str) {
    let rest = message
        .split_once("failed quota: ")
        .map_or("", |(_, rest)| rest);
    let (name, what) = rest.split_once(": must specify ").unwrap_or((rest, ""));
    (name, what.split(" for:").next().unwrap_or_default())
}

/// Parses `maximum cpu usage per Container is 1, but limit is 2`. `who` is the object that requests
/// the amount. Returns the resource, the LimitRange or else the namespace, and its link.
fn beyond(
    world: &World,
    namespace: &str,
    who: &str,
    refusal: &Refusal<'_>,
) -> (String, ObjectRef, Link) {
    let message = refusal.message;
    let lower = message.to_lowercase();
    let resource = ["maximum ", "minimum "]
        .iter()
        .find_map(|word| lower.split_once(word)?.1.split_whitespace().next());
    let resource = resource.unwrap_or_default().to_owned();
    let part = format!(" {resource}:");
    let range = world.limit_ranges.iter().find(|range| {
        let mut limits = range.limits.iter();
        limits.any(|limit| limit.to_lowercase().contains(&part))
    });
    let object = range.map_or_else(
        || ObjectRef::cluster("Namespace", namespace),
        |range| ObjectRef::namespaced("LimitRange", namespace, &range.name),
    );
    let what = message
        .rsplit_once("forbidden: ")
        .map_or(message, |(_, what)| what);
    let sentence = format!("does not allow what the {who} asks for: {what}");
    let link = refusal.link(object.clone(), "LimitRangeExceeded", sentence);
    let limits = range.map(|range| world.seen("spec.limits", range.limits.join("; ")));
    (resource, object, link.evidence(limits))
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
    let kind = match lower.contains("runtimeclass") {
        true => "RuntimeClass",
        false => "ServiceAccount",
    };
    (kind, message.rsplit('"').nth(1).unwrap_or_default())
}

fn missing_object(namespace: &str, message: &str) -> ObjectRef {
    match missing_name(message) {
        (kind @ "ServiceAccount", name) => ObjectRef::namespaced(kind, namespace, name),
        (kind, name) => ObjectRef::cluster(kind, name),
    }
}

/// Parses `pods=1,limits.cpu=2` into pairs.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let pairs = text.split(',');
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .collect()
}

#[cfg(test)]
mod tests;
