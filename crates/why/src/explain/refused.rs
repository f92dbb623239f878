//! An object that the API server rejects: quota, LimitRange, and missing objects that it
//! references. Admission rules of the cluster are in [`super::admission`].

use super::*;

/// A rejected request for a child.
pub(super) struct Refusal<'a> {
    pub(super) origin: Origin<'a>,
    /// The kind of the child.
    pub(super) what: &'a str,
    pub(super) said: Report<'a>,
}

impl<'a> Refusal<'a> {
    pub(super) fn new(origin: Origin<'a>, what: &'a str, said: Report<'a>) -> Self {
        Self { origin, what, said }
    }

    /// Explains the rejection. `above` is the link of the object that sent the request, or of the
    /// child itself.
    pub(super) fn explain(&self, above: Link) -> Finding {
        let &Self { origin, what, .. } = self;
        let (subject, object) = (origin.subject(), origin.object());
        let (kind, name, again) = (&object.kind, &object.name, origin.after(what, true));
        let finding = match Rejection::of(self.said.message) {
            Rejection::NamesMissing => self.names_missing(),
            Rejection::PodSecurity => self.altered(),
            Rejection::Quota => self.quota(),
            Rejection::LimitMissing => self.limit_missing(),
            Rejection::LimitRange => self.beyond(),
            Rejection::WebhookDown => self.hook(false),
            Rejection::Webhook => self.by_rule(self.hook(true), &above.object),
            Rejection::Policy => {
                let finding = self.by_rule(self.policy(), &above.object);
                finding.then(self.retry_after_edit())
            }
            Rejection::Denied => self.by_rule(self.forbidden(), &above.object),
            Rejection::Invalid => finding! {
                Blocked "The words above name the field. Change it in {kind} '{name}'. {again}";
                link self.said.link(object.clone(), Reason::InvalidChild, format!("asks for a {what} that the API server does not accept"));
                then origin.edit("change the field"), origin.again();
            },
            // The request failed without a rejection: the API server had a temporary problem.
            Rejection::Unanswered => {
                let tried = match origin {
                    Origin::Agent(_) => "the Job controller tries",
                    Origin::Tenant(..) => "it is tried",
                };
                return finding! { Waiting "Wait: {tried} again by itself. If it stays so for minutes, check the control plane.";
                    link self.said.seen(above);
                    then subject.look_again(), commands::readyz();
                };
            }
        };
        finding.below([above])
    }

    /// Returns the retry command. A child of the run itself is created with the changed Agent anyway, and `orc retry`
    /// rejects a run without a Job.
    fn retry_after_edit(&self) -> Option<Command> {
        self.origin
            .retry_after_edit()
            .filter(|_| self.what == "Pod")
    }

    /// Explains a quota that counts a resource without a limit.
    fn limit_missing(&self) -> Finding {
        let (origin, object) = (self.origin, self.origin.object());
        let (kind, name, again) = (&object.kind, &object.name, origin.after(self.what, true));
        let (quota, fields) = unset(self.said.message);
        let (set, of, lacks) = match origin {
            Origin::Agent(_) => {
                let paths = fields.split(',');
                let paths = paths.map(|field| format!("'resources.{}'", field.trim()));
                let paths: Vec<String> = paths.collect();
                (paths.join(", "), "in", "the Agent".to_owned())
            }
            Origin::Tenant(_, part) => {
                let place = format!("'{}.resources'", part.unwrap_or("server"));
                (format!("{fields} in {place}"), "of", place)
            }
        };
        let quota = origin.subject().here("ResourceQuota", quota);
        finding! { Blocked "Set {set} {of} {kind} '{name}'. {again}";
            link self.said.link(quota, "LimitMissing", format!("counts {fields}, so each container must set it, and {lacks} does not"));
            then origin.edit(format!("set {set}")), origin.again();
        }
    }

    /// Explains that the child references an object that does not exist.
    fn names_missing(&self) -> Finding {
        let &Self { origin, what, .. } = self;
        let within = origin.subject().namespace;
        let object = missing(within, self.said.message);
        let ObjectRef { kind, name, .. } = &object;
        let (advice, needs, last) = match origin {
            Origin::Agent(_) => (
                text! { "Create {kind} '{name}'. It existed when the run started: find out who deleted it. {}", origin.after(what, false) },
                "the Agent names it".to_owned(),
                origin.edit("or name another"),
            ),
            Origin::Tenant(tenant, _) => (
                one_of! { kind.as_str();
                    "PriorityClass" => "The chart installs PriorityClass '{name}': upgrade or reinstall it. It goes on by itself then.";
                    _ => "Create {kind} '{name}': the cluster makes it by itself in every namespace, so find out who deletes it. It goes on by itself then.";
                },
                format!("the {what} needs it"),
                tenant.look_again(),
            ),
        };
        finding! { Blocked (advice);
            link self.said.link(object.clone(), Reason::DependencyNotReady, format!("does not exist, and {needs}"));
            then commands::create(kind, name, None, within), last, self.retry_after_edit();
        }
    }

    /// Explains a rejection by a quota. A Tenant's quota follows from its own fields such as
    /// `'resources.pods.limit'`, is the quota for probe Pods, which nobody can change, or is unmanaged.
    fn quota(&self) -> Finding {
        let &Self { origin, what, .. } = self;
        let subject = origin.subject();
        let known = exceeded(subject.world, self.said.message);
        let (name, within) = (known.name, subject.namespace);
        let object = subject.here("ResourceQuota", name);
        let link = known.link(subject.world, object.clone(), self);
        if known.has_room {
            return finding! { Waiting "Wait: ResourceQuota '{name}' has room now, and the next try to create the {what} succeeds by itself (within some minutes).";
                link link; newer;
                then subject.look_again(), object.describe("what is used of it now");
            };
        }
        let of_spec = known.is_of(&["cpu", "memory"]);
        let (advice, users, change) = match origin {
            Origin::Agent(run) => {
                let after = origin.after(what, false);
                let advice = one_of! { (known.is_zero, of_spec);
                    (true, _) => "ResourceQuota '{name}' allows none (0): have it raised. The {what} is created by itself then.";
                    (false, true) => "Free some of ResourceQuota '{name}' (end or delete what uses it), have it raised, or lower the Agent's 'resources'. {after}";
                    (false, false) => "Free some of ResourceQuota '{name}' (end or delete what uses it) or have it raised. The {what} is created by itself then.";
                };
                let lower = || match what {
                    "Pod" => run.edit_agent("or lower 'resources', then 'orc retry'"),
                    _ => run.edit_agent("or lower 'resources'"),
                };
                match known.is_zero {
                    true => (advice, None, Some(object.edit("if you may: raise it"))),
                    false => (
                        advice,
                        Some((what, "what may use it up")),
                        of_spec.then(lower),
                    ),
                }
            }
            Origin::Tenant(tenant, part) => {
                let own = known.asked.iter();
                let own = own.filter_map(|(resource, _)| tenant_field(resource));
                let own = own.collect::<Vec<&str>>().join(", ");
                let less = match (part, of_spec) {
                    (Some("server"), true) => ", or lower 'server.replicas' or 'server.resources'",
                    (Some("server"), false) => ", or lower 'server.replicas'",
                    (Some("redis"), true) => ", or lower 'redis.resources'",
                    (Some(_), _) | (None, _) => "",
                };
                let is_ours = OURS.contains(&name) && !own.is_empty();
                let advice = one_of! { (is_ours, name);
                    (true, _) => "This quota is the Tenant's own: raise {own} of Tenant '{}'{less}. {} Or free some: delete what nobody needs in namespace '{within}'.", tenant.name(), tenant::AFTER_EDIT;
                    (false, "tenant-probes") => "This quota is for the Pods that try connections: delete the others that say they are such ('priorityClassName') in namespace '{within}'.";
                    (false, _) => "ResourceQuota '{name}' is not the Tenant's: ask whoever made it to raise it, or free some{less}. The {what} is created by itself then.";
                };
                let users = match known.is_of(&["storage"]) {
                    true => "PersistentVolumeClaim",
                    false => "Pod",
                };
                let raise = is_ours.then(|| tenant.edit(format!("raise {own}")));
                (advice, Some((users, "what uses it up")), raise)
            }
        };
        finding! { Blocked (advice);
            link link;
            then object.describe("what is used, and how much there is");
            then users.map(|(kind, purpose)| commands::list(kind, within, purpose)), change;
        }
    }

    /// Explains a LimitRange: `maximum cpu usage per Container is 1, but limit is 2`.
    fn beyond(&self) -> Finding {
        let (origin, message) = (self.origin, self.said.message);
        let subject = origin.subject();
        let lower = message.to_lowercase();
        let resource = ["maximum ", "minimum "]
            .iter()
            .find_map(|word| lower.split_once(word)?.1.split_whitespace().next());
        let resource = resource.unwrap_or_default();
        let part = format!(" {resource}:");
        let range = subject.world.limit_ranges.iter().find(|range| {
            let mut limits = range.limits.iter();
            limits.any(|limit| limit.to_lowercase().contains(&part))
        });
        let object = range.map_or_else(
            || ObjectRef::cluster("Namespace", subject.namespace),
            |range| subject.here("LimitRange", &range.name),
        );
        let what = message.rsplit_once("forbidden: ");
        let what = what.map_or(message, |(_, what)| what);
        let sentence = format!("does not allow what {} asks for: {what}", origin.whose());
        let limits = range.map(|range| subject.seen("spec.limits", range.limits.join("; ")));
        let ObjectRef { kind, name, .. } = &object;
        let after = origin.after(self.what, false);
        let (advice, change) = match origin {
            Origin::Agent(_) => (
                text! { "Change '{resource}' in the Agent's 'resources' to fit, then run it again (orc retry): the Job exists already and keeps the old value. Or have {kind} '{name}' changed; then it goes on by itself." },
                format!("change 'resources' ({resource})"),
            ),
            Origin::Tenant(..) if resource == "storage" => (
                text! { "Raise 'resources.storage.perVolume' of the Tenant, which is the largest size of one volume; 'redis.storage' itself cannot be changed. {after}" },
                "raise 'resources.storage.perVolume'".to_owned(),
            ),
            Origin::Tenant(_, part) => (
                text! { "Change '{resource}' in '{}.resources' of the Tenant to fit, or have {kind} '{name}' changed. {after}", part.unwrap_or("server") },
                "change it".to_owned(),
            ),
        };
        finding! { Blocked (advice);
            link self.said.link(object.clone(), "LimitRangeExceeded", sentence); seen limits;
            then object.describe("the limits"), origin.edit(change), self.retry_after_edit();
        }
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
        let (origin, said) = (Origin::Agent(run), Report::in_event(event));
        return Refusal::new(origin, "Pod", said).explain(above);
    }
    if !run.was_read("events") {
        return permissions::hidden(run, job.object(), "events");
    }
    let last = last_pod(run, job);
    if let Some((pod, end)) = last.filter(|&(_, end)| run.age(Some(end)) <= replacement(run)) {
        return finding! { Waiting "Wait: the Job controller replaces a stopped Pod after {REPLACEMENT_DELAY} s, and after longer if Pods of the Job were stopped before.";
            Waiting job.object(), Reason::Disrupted, "has no Pod: Pod '{pod}' was stopped, and the next one is about to be created"; since Some(end);
            seen run.seen("looked for Pods of it", "none"); then run.look_again();
        };
    }
    if run.age(made) <= POD_CREATION {
        return finding! { Waiting "Wait: this takes a second or two.";
            Waiting job.object(), Reason::Progressing, "was created{since}; its Pod is about to be"; since made;
            seen run.seen("looked for Pods of it", "none"); then run.look_again();
        };
    }
    let from = last.map(|(_, end)| end).max(made);
    let stopped = last.map_or_else(String::new, |(pod, end)| {
        format!(" since Pod '{pod}' was stopped{}", run.ago(Some(end)))
    });
    finding! { Blocked "Check whether the Job controller (kube-controller-manager) works: do other Jobs of the cluster get Pods?";
        Error job.object(), "NoPod", "was created{since} and has no Pod{stopped}; no Event says why (Events expire after an hour)";
        since from; seen run.seen("looked for Pods and Events of it", "none");
        then job.object().describe("the Job's conditions and Events"), commands::controllers();
    }
}

/// Time in which a Job without a Pod gets one, in seconds.
const POD_CREATION: i64 = 30;

/// First delay of the Job controller before it replaces a Pod, in seconds. It doubles with each Pod of the Job that
/// was stopped.
const REPLACEMENT_DELAY: i64 = 10;

/// Maximum number of times that [`REPLACEMENT_DELAY`] doubles. The sixth disruption ends a run.
const DOUBLINGS: u32 = 5;

/// Returns the time in which a stopped Pod is replaced, in seconds.
fn replacement(run: Run<'_>) -> i64 {
    let before = run.status().disruptions.saturating_sub(1);
    POD_CREATION + (REPLACEMENT_DELAY << before.min(DOUBLINGS))
}

/// Returns the name of the last Pod of a Job that has no Pod any more, with the time of its end as far as it is known:
/// the request to stop it, its last Event, or the status that the operator wrote after its end.
fn last_pod<'a>(run: Run<'a>, job: &JobView) -> Option<(&'a str, &'a Time)> {
    let status = run.status();
    let is_of_job = status.job_name.as_ref() == Some(&job.meta.name);
    let pod = status.pod.as_ref().filter(|_| is_of_job)?;
    let events = run.world.events.iter();
    let events = events.filter(|event| event.uid == pod.uid);
    let end = events
        .filter_map(|event| event.last.as_ref())
        .chain(pod.disrupted_at.as_ref())
        .chain(run.written())
        .max()?;
    Some((&pod.name, end))
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
    let after = |word: &str, end: &str| inside(message, word, end).unwrap_or_default().trim();
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
        let link = refusal.said.seen(link);
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

/// The quotas that the operator creates for a Tenant.
const OURS: &[&str] = &["tenant", "tenant-objects"];

/// Returns the field of a Tenant from which a resource of its quota is derived.
fn tenant_field(resource: &str) -> Option<&'static str> {
    match resource {
        "requests.cpu" => Some("'resources.cpu.request'"),
        "limits.cpu" => Some("'resources.cpu.limit'"),
        "requests.memory" => Some("'resources.memory.request'"),
        "limits.memory" => Some("'resources.memory.limit'"),
        "requests.storage" => Some("'resources.storage.total'"),
        "pods" => Some("'resources.pods.limit'"),
        _ => None,
    }
}

/// Returns the quota and the fields that it requires, from `failed quota: NAME: must specify
/// limits.cpu for: agent`.
fn unset(message: &str) -> (&str, &str) {
    let rest = inside(message, "failed quota: ", " for:").unwrap_or_default();
    rest.split_once(": must specify ").unwrap_or((rest, ""))
}

/// Returns the missing object that a Pod references.
pub(super) fn missing(namespace: &str, message: &str) -> ObjectRef {
    let lower = message.to_lowercase();
    let quoted = message.rsplit('"').nth(1).unwrap_or_default();
    if lower.contains("priorityclass") {
        let name = inside(message, "with name ", " ").unwrap_or_default();
        ObjectRef::cluster("PriorityClass", name)
    } else if lower.contains("runtimeclass") {
        ObjectRef::cluster("RuntimeClass", quoted)
    } else {
        ObjectRef::namespaced("ServiceAccount", namespace, quoted)
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
