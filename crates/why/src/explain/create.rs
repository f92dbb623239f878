//! A Pod or Job that the API server does not let in: quota, LimitRange, things that it names and
//! that are missing. Rules of the cluster are in [`admission`].

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Finding, admission, commands,
    container::{AFTER_EDIT, THEN_AGAIN},
    quantity::{pairs, value},
    scene::Scene,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{JobView, ObjectRef, QuotaView},
};

/// What was refused, in whose words.
pub(super) struct Refusal<'a> {
    /// `Pod` or `Job`.
    pub(super) what: &'a str,
    pub(super) message: &'a str,
    /// Where the words are from.
    pub(super) source: &'a str,
    pub(super) at: Option<&'a Time>,
    /// Since when it is refused.
    pub(super) since: Option<&'a Time>,
}

impl Refusal<'_> {
    /// Whether an edit of the Agent counts by itself.
    pub(super) fn after_edit(&self) -> &'static str {
        match self.what {
            "Pod" => AFTER_EDIT,
            _ => "A changed Agent counts at the next try; otherwise it goes on by itself.",
        }
    }

    /// The same where nothing but a changed Agent helps.
    fn then_again(&self) -> &'static str {
        match self.what {
            "Pod" => THEN_AGAIN,
            _ => "The next try counts by itself.",
        }
    }
}

/// A Job without a Pod: what the Job controller was answered, or that nothing is known yet.
pub(super) fn no_pod(scene: Scene<'_>, job: &JobView) -> Finding {
    let about = job.object();
    let Some(event) = scene.warning(&job.meta.uid, &["FailedCreate"]) else {
        return nothing_said(scene, job);
    };
    let source = format!("Event FailedCreate{}", times(event.count));
    let link = Link::new(
        about,
        Health::Waiting,
        "FailedCreate",
        format!(
            "has no Pod: each try to create one is refused, the last{}",
            scene.ago(event.last.as_ref())
        ),
    );
    let refusal = Refusal {
        what: "Pod",
        message: &event.message,
        source: &source,
        at: event.last.as_ref(),
        since: event.first.as_ref(),
    };
    explain(scene, &refusal, link)
}

fn nothing_said(scene: Scene<'_>, job: &JobView) -> Finding {
    let age = job.meta.created.as_ref().map_or(0, |at| scene.age(at));
    let since = scene.ago(job.meta.created.as_ref());
    if age <= 30 {
        let link = Link::new(
            job.object(),
            Health::Waiting,
            Reason::Progressing,
            format!("was created{since}; its Pod is about to be"),
        )
        .since(job.meta.created.as_ref())
        .seen("looked for Pods of it", "none", Some(&scene.world.now));
        return Finding::new(State::Waiting, "Wait: this takes a second or two.")
            .link(link)
            .then(commands::look_again(scene));
    }
    let link = Link::new(
        job.object(),
        Health::Wrong,
        "NoPod",
        format!(
            "was created{since} and has no Pod; no Event says why (Events expire after an hour)"
        ),
    )
    .since(job.meta.created.as_ref())
    .seen(
        "looked for Pods and Events of it",
        "none",
        Some(&scene.world.now),
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

/// ` ×7`, or nothing.
pub(super) fn times(count: i32) -> String {
    if count > 1 {
        format!(" ×{count}")
    } else {
        String::new()
    }
}

/// What a refusal means; `above` is the link of the object that was to create it.
pub(super) fn explain(scene: Scene<'_>, refusal: &Refusal<'_>, above: Link) -> Finding {
    let message = refusal.message;
    let lower = message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let missing = has(&["not found", "was found"]);
    let finding = if missing
        && has(&[
            "serviceaccount",
            "service account",
            "priorityclass",
            "runtimeclass",
        ]) {
        names_missing(scene, refusal, &lower)
    } else if has(&["violates podsecurity"]) {
        admission::pod_security(scene, refusal)
    } else if has(&["exceeded quota"]) {
        quota(scene, refusal)
    } else if has(&["must specify"]) {
        unlimited(scene, refusal)
    } else if has(&["maximum", "minimum", "limit to request ratio"]) {
        limit_range(scene, refusal)
    } else if has(&["failed calling webhook"]) {
        admission::webhook(scene, refusal, false)
    } else if has(&["admission webhook"]) {
        admission::webhook(scene, refusal, true)
    } else if has(&["validatingadmissionpolicy"]) {
        admission::policy(scene, refusal)
    } else if has(&["is invalid"]) {
        invalid(scene, refusal)
    } else if has(&["forbidden", "denied"]) {
        admission::denied(scene, refusal)
    } else {
        return unanswered(scene, refusal, above);
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

/// `exceeded quota: NAME, requested: …, used: …, limited: …`.
fn quota(scene: Scene<'_>, refusal: &Refusal<'_>) -> Finding {
    let after = |word: &str, end: &str| -> &str {
        let rest = refusal
            .message
            .split_once(word)
            .map_or("", |(_, rest)| rest);
        rest.split(end).next().unwrap_or_default().trim()
    };
    let name = after("exceeded quota: ", ",");
    let asked = pairs(after("requested: ", ", used:"));
    let then_used = pairs(after("used: ", ", limited:"));
    let then_hard = pairs(after("limited: ", "\n"));
    let live = scene.world.quotas.iter().find(|quota| quota.name == name);
    let at = |pairs: &[(&str, &str)], resource: &str| -> String {
        let found = pairs.iter().find(|(known, _)| *known == resource);
        found.map_or("?", |(_, amount)| *amount).to_owned()
    };
    let words: Vec<String> = asked
        .iter()
        .map(|(resource, amount)| {
            let used = live.and_then(|quota| quota.used.get(*resource).cloned());
            let hard = live.and_then(|quota| quota.hard.get(*resource).cloned());
            format!(
                "{resource} {} of {} used, {amount} more asked for",
                used.unwrap_or_else(|| at(&then_used, resource)),
                hard.unwrap_or_else(|| at(&then_hard, resource)),
            )
        })
        .collect();
    let object = scene.here("ResourceQuota", name);
    let has_room = live.is_some_and(|quota| fits(quota, &asked));
    let of_agent = asked
        .iter()
        .any(|(resource, _)| resource.contains("cpu") || resource.contains("memory"));
    let is_zero = asked.iter().any(|(resource, _)| {
        let hard = live.and_then(|quota| quota.hard.get(*resource).cloned());
        value(&hard.unwrap_or_else(|| at(&then_hard, resource))) == Some(0.0)
    });
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
    let link = Link::new(
        object.clone(),
        if has_room {
            Health::Waiting
        } else {
            Health::Wrong
        },
        if has_room {
            "HasRoom"
        } else {
            Reason::QuotaExceeded.name()
        },
        if has_room {
            format!(
                "had no room for another {what}; has room now: {}",
                words.join("; ")
            )
        } else {
            format!("does not allow another {what}: {}", words.join("; "))
        },
    );
    let mut link = seen(link, refusal);
    if let Some(quota) = live {
        let now: Vec<String> = asked
            .iter()
            .filter_map(|(resource, _)| {
                let used = quota.used.get(*resource)?;
                Some(format!("{resource} {used}/{}", quota.hard.get(*resource)?))
            })
            .collect();
        link = link.seen(
            "status.used/status.hard",
            now.join(", "),
            Some(&scene.world.now),
        );
    }
    finding = finding.link(link);
    if has_room {
        finding.state = State::Waiting;
        finding.advice = format!(
            "Wait: ResourceQuota '{name}' has room now, and the next try to create the {what} succeeds by itself (within some minutes)."
        );
        return finding
            .newer()
            .then(commands::look_again(scene))
            .then(commands::describe(&object, "what is used of it now"));
    }
    finding = finding.then(commands::describe(
        &object,
        "what is used, and how much there is",
    ));
    if is_zero {
        return finding.then(commands::edit(&object, "if you may: raise it"));
    }
    finding = finding.then(commands::list(
        what,
        scene.namespace(),
        "what may use it up",
    ));
    if of_agent {
        finding.then(commands::edit_agent(
            scene,
            "or lower 'resources', then 'orc retry'",
        ))
    } else {
        finding
    }
}

/// Whether what was asked for fits in by now.
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

/// `failed quota: NAME: must specify limits.cpu for: agent`.
fn unlimited(scene: Scene<'_>, refusal: &Refusal<'_>) -> Finding {
    let rest = refusal
        .message
        .split_once("failed quota: ")
        .map_or("", |(_, rest)| rest);
    let (name, what) = rest.split_once(": must specify ").unwrap_or((rest, ""));
    let fields = what.split(" for:").next().unwrap_or_default();
    let object = scene.here("ResourceQuota", name);
    let paths: Vec<String> = fields
        .split(',')
        .map(|field| format!("'resources.{}'", field.trim()))
        .collect();
    let paths = paths.join(", ");
    let link = Link::new(
        object.clone(),
        Health::Wrong,
        "LimitMissing",
        format!("counts {fields}, so each container must set it, and the Agent does not"),
    );
    blocked(format!(
        "Set {paths} in Agent '{}'. {}",
        scene.run.agent_name,
        refusal.then_again()
    ))
    .link(seen(link, refusal))
    .then(commands::edit_agent(scene, &format!("set {paths}")))
    .then(commands::retry(scene))
}

/// `maximum cpu usage per Container is 1, but limit is 2`.
fn limit_range(scene: Scene<'_>, refusal: &Refusal<'_>) -> Finding {
    let lower = refusal.message.to_lowercase();
    let resource = ["maximum ", "minimum "]
        .iter()
        .find_map(|word| lower.split_once(word)?.1.split_whitespace().next())
        .unwrap_or_default()
        .to_owned();
    let range = scene.world.limit_ranges.iter().find(|range| {
        let names = |limit: &String| limit.to_lowercase().contains(&format!(" {resource}:"));
        range.limits.iter().any(names)
    });
    let object = range.map_or_else(
        || ObjectRef::cluster("Namespace", scene.namespace()),
        |range| scene.here("LimitRange", &range.name),
    );
    let what = refusal
        .message
        .rsplit_once("forbidden: ")
        .map_or(refusal.message, |(_, what)| what);
    let link = Link::new(
        object.clone(),
        Health::Wrong,
        "LimitRangeExceeded",
        format!("does not allow what the Agent asks for: {what}"),
    );
    let mut link = seen(link, refusal);
    if let Some(range) = range {
        link = link.seen(
            "spec.limits",
            range.limits.join("; "),
            Some(&scene.world.now),
        );
    }
    blocked(format!("Change '{resource}' in the Agent's 'resources' to fit, then run it again (orc retry): the Job exists already and keeps the old value. Or have {} '{}' changed; then it goes on by itself.", object.kind, object.name))
        .link(link)
        .then(commands::describe(&object, "the limits"))
        .then(commands::edit_agent(scene, &format!("change 'resources' ({resource})")))
        .then(commands::retry_after_edit(scene))
}

fn names_missing(scene: Scene<'_>, refusal: &Refusal<'_>, lower: &str) -> Finding {
    let (kind, name) = if lower.contains("priorityclass") {
        let rest = refusal
            .message
            .split_once("with name ")
            .map_or("", |(_, rest)| rest);
        ("PriorityClass", rest.split(' ').next().unwrap_or_default())
    } else {
        let kind = if lower.contains("runtimeclass") {
            "RuntimeClass"
        } else {
            "ServiceAccount"
        };
        let mut quoted = refusal.message.rsplit('"');
        (kind, quoted.nth(1).unwrap_or_default())
    };
    let object = match kind {
        "ServiceAccount" => scene.here(kind, name),
        _ => ObjectRef::cluster(kind, name),
    };
    let link = Link::new(
        object,
        Health::Wrong,
        Reason::DependencyNotReady,
        "does not exist, and the Agent names it",
    );
    blocked(format!(
        "Create {kind} '{name}'. It existed when the run started: find out who deleted it. {}",
        refusal.after_edit()
    ))
    .link(seen(link, refusal))
    .then(commands::create(kind, name, None, scene.namespace()))
    .then(commands::edit_agent(scene, "or name another"))
    .then(commands::retry_after_edit(scene))
}

fn invalid(scene: Scene<'_>, refusal: &Refusal<'_>) -> Finding {
    let agent = scene.here("Agent", &scene.run.agent_name);
    let link = Link::new(
        agent,
        Health::Wrong,
        Reason::InvalidChild,
        format!(
            "asks for a {} that the API server does not accept",
            refusal.what
        ),
    );
    blocked(format!(
        "The words above name the field. Change it in Agent '{}'. {}",
        scene.run.agent_name,
        refusal.then_again()
    ))
    .link(seen(link, refusal))
    .then(commands::edit_agent(scene, "change the field"))
    .then(commands::retry(scene))
}

/// Not a refusal: the API server had a bad moment.
fn unanswered(scene: Scene<'_>, refusal: &Refusal<'_>, above: Link) -> Finding {
    Finding::new(
        State::Waiting,
        "Wait: the Job controller tries again by itself. If it stays so for minutes, check the control plane.",
    )
    .link(seen(above, refusal))
    .then(commands::look_again(scene))
    .then(Command::new(
        "kubectl get --raw '/readyz?verbose'",
        "the API server's state",
    ))
}
