//! A container that the kubelet does not start: image, user, Secrets, the program itself.

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::{StartFailure, is_permission};

use super::{Finding, commands, docs, run_context::RunContext};
use crate::{
    explanation::{Health, Link, State},
    world::{PodView, World},
};

/// The effect of an edit of the Agent on a run that already has its Job.
pub(super) const AFTER_EDIT: &str = "If you change the Agent, run it again (orc retry) afterwards: this run's Job keeps the old values. Otherwise it goes on by itself.";
/// The advice for a problem that only a new Job can fix.
pub(super) const THEN_AGAIN: &str =
    "Then run it again (orc retry): this run's Job keeps the old values.";
/// Time in seconds after which the operator should have recreated a run's own files. It normally
/// does so within seconds.
const OWN_FILES: i64 = 60;

/// Explains the reason of a waiting container, or returns `None` if the reason is normal for a
/// start.
pub(super) fn waiting(
    context: RunContext<'_>,
    pod: &PodView,
    reason: &str,
    message: &str,
) -> Option<Finding> {
    let words = Words {
        source: format!("container '{}' waiting: {reason}", container(pod)),
        message,
        at: seen_last(context.world, pod),
        since: pod.meta.created.as_ref(),
        is_over: false,
    };
    Some(
        match StartFailure::of(reason, message, tries(context.world, pod))? {
            StartFailure::Image => image(context, pod, reason, &words),
            StartFailure::Root | StartFailure::NotExecutable => root(context, pod, &words),
            StartFailure::Missing => secret(context, pod.object(), &words),
            StartFailure::NotStartable => not_startable(context, pod, &words),
        },
    )
}

/// Returns how often the kubelet failed to start a container of the Pod.
pub(super) fn tries(world: &World, pod: &PodView) -> i32 {
    let failed = world.warning(&pod.meta.uid, &["Failed"]);
    failed.map_or(0, |event| event.count)
}

/// A message with its source and time.
pub(super) struct Words<'a> {
    pub(super) source: String,
    pub(super) message: &'a str,
    pub(super) at: Option<&'a Time>,
    /// The time since when the problem exists.
    pub(super) since: Option<&'a Time>,
    /// Whether the run has finished.
    pub(super) is_over: bool,
}

fn container(pod: &PodView) -> &str {
    pod.current().map_or("agent", |agent| agent.name.as_str())
}

/// Returns the time of the newest warning about the Pod, otherwise the Pod's creation time. A
/// container's state itself has no time.
pub(super) fn seen_last<'a>(world: &'a World, pod: &'a PodView) -> Option<&'a Time> {
    let reasons = ["Failed", "BackOff", "InspectFailed", "ErrImageNeverPull"];
    world
        .warning(&pod.meta.uid, &reasons)
        .and_then(|event| event.last.as_ref())
        .or(pod.meta.created.as_ref())
}

/// The reason why an image cannot be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    Never,
    InvalidName,
    Unreachable,
    Limited,
    Refused,
    NotFound,
    Other,
}

/// Advice for an unreachable registry, for an image of any component.
pub(super) const UNREACHABLE: &str = "Check the registry and the node's way to it. The kubelet tries again by itself, every 5 minutes or more often.";

impl Pull {
    /// Classifies the kubelet's reason first, then the registry's message.
    pub(super) fn of(reason: &str, message: &str) -> Self {
        let lower = message.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let unreachable = [
            "no such host",
            "i/o timeout",
            "connection refused",
            "x509",
            "no route to host",
            "deadline exceeded",
            "tls",
        ];
        let refused = [
            "unauthorized",
            "denied",
            "forbidden",
            "authentication",
            "401",
            "403",
        ];
        if reason == "ErrImageNeverPull" {
            Self::Never
        } else if reason == "InvalidImageName" {
            Self::InvalidName
        } else if has(&unreachable) {
            Self::Unreachable
        } else if has(&["toomanyrequests", "rate limit"]) {
            Self::Limited
        } else if has(&refused) {
            Self::Refused
        } else if has(&["not found", "manifest unknown", "notfound"]) {
            Self::NotFound
        } else {
            Self::Other
        }
    }

    /// Returns the reason as text.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Never => "it is not on the node, and 'imagePullPolicy: Never' forbids a pull",
            Self::InvalidName => "this is not a valid name of an image",
            Self::Unreachable => "the registry cannot be reached",
            Self::Limited => "the registry limits how often it is asked",
            Self::Refused => {
                "the registry refuses: it does not exist, or credentials are missing or wrong"
            }
            Self::NotFound => "the registry has no such image or tag",
            Self::Other => "its words are below",
        }
    }
}

pub(super) fn image(
    context: RunContext<'_>,
    pod: &PodView,
    reason: &str,
    words: &Words<'_>,
) -> Finding {
    let name = pod.current().map_or("?", |agent| agent.image.as_str());
    let pull = Pull::of(reason, words.message);
    let why = pull.why();
    let advice = match pull {
        Pull::Never => "Put the image on the node, or change the Agent's 'imagePullPolicy'.",
        Pull::InvalidName => "Correct the Agent's 'image'.",
        Pull::Unreachable => UNREACHABLE,
        Pull::Limited => "Wait, or give the Agent 'imagePullSecrets' with an account of its own.",
        Pull::NotFound => "Correct the Agent's 'image', or push the image.",
        Pull::Refused | Pull::Other => "Check the Agent's 'image' and 'imagePullSecrets'.",
    };
    if docs::step_of(context, pod).is_some() {
        let sentence = format!("image '{name}' cannot be pulled{}: {why}", on(pod));
        return docs::toolbox(context, pod, Reason::ImagePullFailed, &sentence, words);
    }
    let link = Link::new(
        pod.object(),
        Health::Error,
        Reason::ImagePullFailed,
        format!("image '{name}' cannot be pulled{}: {why}", on(pod)),
    )
    .since(words.since)
    .seen(words.source.clone(), words.message, words.at);
    let mut finding = Finding::new(State::Blocked, format!("{advice} {AFTER_EDIT}")).link(link);
    let secrets = pod
        .needs
        .iter()
        .filter(|need| need.role == "imagePullSecrets");
    for need in secrets.filter(|need| context.exists("Secret", &need.name) == Some(false)) {
        finding = finding.link(
            Link::new(
                context.here("Secret", &need.name),
                Health::Error,
                Reason::SecretNotFound,
                "does not exist, and 'imagePullSecrets' names it: the pull goes without credentials",
            )
            .since(words.since)
            .seen("looked for it", "not found", Some(&context.world.now)),
        );
        finding.advice = format!(
            "Create Secret '{}' (type kubernetes.io/dockerconfigjson); the kubelet tries again by itself, every 5 minutes or more often. {AFTER_EDIT}",
            need.name
        );
        finding.next.push(crate::explanation::Command::new(
            format!("kubectl create secret docker-registry {} -n {} --from-file=.dockerconfigjson=<FILE>", need.name, context.namespace()),
            format!("create Secret '{}' from a docker config file", need.name),
        ));
    }
    finding
        .then(commands::edit_agent(
            context,
            "correct 'image' or 'imagePullSecrets'",
        ))
        .then(commands::retry_after_edit(context))
        .then(commands::describe(&pod.object(), "the kubelet's Events"))
}

pub(super) fn on(pod: &PodView) -> String {
    pod.node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on node '{node}'"))
}

pub(super) fn root(context: RunContext<'_>, pod: &PodView, words: &Words<'_>) -> Finding {
    let name = pod.current().map_or("?", |agent| agent.image.as_str());
    let user = context.world.agent.as_ref().map(|agent| agent.user);
    let user = user.map_or_else(String::new, |user| format!(" {user}"));
    let why = why_root(words.message, &user);
    if docs::step_of(context, pod).is_some() {
        let sentence = format!("image '{name}' cannot run as it must");
        return docs::toolbox(context, pod, Reason::ImageNeedsRoot, &sentence, words);
    }
    let link = Link::new(
        pod.object(),
        Health::Error,
        Reason::ImageNeedsRoot,
        format!("image '{name}' cannot run as it must: {why}"),
    )
    .since(words.since)
    .seen(words.source.clone(), words.message, words.at);
    Finding::new(
        State::Blocked,
        format!("Agents never run as root. Build the image with a numeric USER and a program that everyone may execute, or set the Agent's 'runAsUser' to a number that works. {THEN_AGAIN}"),
    )
    .link(link)
    .then(commands::edit_agent(context, "set 'runAsUser' or another 'image'"))
    .then(commands::retry(context))
}

/// Formats why an image cannot run as this user. The message may be `… image has non-numeric user (app), …`.
pub(super) fn why_root(message: &str, user: &str) -> String {
    let named = message.split_once("non-numeric user (");
    match named.and_then(|(_, rest)| rest.split(')').next()) {
        _ if is_permission(message) => format!("its program cannot be executed by user{user}"),
        Some(user) => format!(
            "its user '{user}' is a name; Kubernetes needs a number to prove that it is not root"
        ),
        None => "it runs as root".to_owned(),
    }
}

/// Parses the missing object from a message: kind, name, key.
pub(crate) fn missing_thing(message: &str) -> Option<(&'static str, String, Option<String>)> {
    let kinds = [("Secret", "secret"), ("ConfigMap", "configmap")];
    // `couldn't find key K in Secret team/token`
    if let Some((_, rest)) = message.split_once("couldn't find key ") {
        let (key, place) = rest.split_once(" in ")?;
        let (kind, name) = place.split_once(' ')?;
        let name = name.rsplit('/').next().unwrap_or(name);
        let name: String = name
            .chars()
            .take_while(|letter| !letter.is_whitespace())
            .collect();
        let (kind, _) = kinds
            .iter()
            .find(|(_, word)| kind.eq_ignore_ascii_case(word))?;
        return Some((kind, name, Some(key.to_owned())));
    }
    // `secret "token" not found`, `secrets "token" not found`, `references non-existent secret key: k`
    kinds.iter().find_map(|(kind, word)| {
        let lower = message.to_lowercase();
        let start = [format!("{word} \""), format!("{word}s \"")]
            .iter()
            .find_map(|start| Some(lower.find(start.as_str())? + start.len()))?;
        let name = message.get(start..)?.split('"').next()?;
        Some((*kind, name.to_owned(), None))
    })
}

/// Explains a Secret or ConfigMap that is missing or lacks a key. `object` waits for it.
pub(super) fn secret(
    context: RunContext<'_>,
    object: crate::world::ObjectRef,
    words: &Words<'_>,
) -> Finding {
    let thing = missing_thing(words.message);
    let is_map = thing
        .as_ref()
        .is_some_and(|(kind, _, _)| *kind == "ConfigMap");
    let absent = if is_map {
        "ConfigMapNotFound"
    } else {
        Reason::SecretNotFound.name()
    };
    let waits = |what: &str| {
        let verb = if words.is_over { "waited" } else { "waits" };
        Link::new(
            object.clone(),
            Health::Waiting,
            absent,
            format!("{verb} for {what}"),
        )
        .seen(words.source.clone(), words.message, words.at)
    };
    let Some((kind, name, key)) = thing else {
        return Finding::new(
            State::Blocked,
            "Create what the words above name; the Pod starts by itself a minute or two later.",
        )
        .link(waits("something that does not exist").since(words.since))
        .then(commands::describe(&object, "the kubelet's Events"));
    };
    let needs = context.world.agent.iter().flat_map(|agent| &agent.needs);
    let role = needs
        .filter(|need| need.kind == kind && need.name == name)
        .map(|need| format!(" (the Agent's '{}')", need.role))
        .next();
    let is_of_docs = kind == "Secret" && docs::secret(context) == Some(name.as_str());
    let role = if is_of_docs {
        " (the DocsRun's 'credentialsSecretRef')".to_owned()
    } else {
        role.unwrap_or_default()
    };
    let exists = context.exists(kind, &name);
    let (sentence, reason) = match (&key, exists) {
        (Some(key), _) => (
            format!("has no key '{key}', and the container needs it{role}"),
            "KeyNotFound",
        ),
        (None, Some(true)) => (
            format!(
                "exists by now; it was missing when the kubelet looked{}",
                context.ago(words.at)
            ),
            "ExistsNow",
        ),
        (None, Some(false)) => (
            format!("does not exist, and the container needs it{role}"),
            absent,
        ),
        (None, None) => (
            format!(
                "was missing when the kubelet looked{}, and the container needs it{role}; whether it exists by now is not known",
                context.ago(words.at)
            ),
            absent,
        ),
    };
    let looked = match exists {
        Some(true) => "it exists",
        Some(false) => "not found",
        None => "you may not",
    };
    let is_there_now = key.is_none() && exists == Some(true);
    let missing = Link::new(
        context.here(kind, &name),
        if is_there_now {
            Health::Waiting
        } else {
            Health::Error
        },
        reason,
        sentence,
    )
    .since(words.since)
    .seen("looked for it", looked, Some(&context.world.now));
    let first = if exists.is_none() {
        format!(
            "Ask someone who may read it whether {kind} '{name}' exists by now; if not, create it"
        )
    } else {
        format!("Create {kind} '{name}'")
    };
    let mut finding = Finding::new(
        State::Blocked,
        format!(
            "{first} in namespace '{}'. {AFTER_EDIT}",
            context.namespace()
        ),
    )
    .link(waits(&format!("{kind} '{name}'")))
    .link(missing);
    if is_there_now {
        finding.state = State::Waiting;
        finding.advice = format!(
            "Wait: {kind} '{name}' exists by now, and the kubelet tries again within two minutes."
        );
        return finding.newer().then(commands::look_again(context));
    }
    if context.status().config_map_name.as_deref() == Some(name.as_str()) {
        let age = words.since.map_or(0, |at| context.age(at));
        finding.advice = if age > OWN_FILES {
            format!(
                "ConfigMap '{name}' has the run's own files. The operator makes it again by itself, and has not for {}: look into its log, and find out what deletes ConfigMaps here.",
                crate::times::span(age)
            )
        } else {
            format!(
                "Wait: ConfigMap '{name}' has the run's own files, and the operator makes it again by itself within seconds. Find out what deletes ConfigMaps here."
            )
        };
        return finding
            .maybe(super::operator::log(context.world))
            .then(commands::look_again(context));
    }
    if is_of_docs {
        return docs::with_secret_commands(context, &name, finding);
    }
    let agent_key = context
        .world
        .agent
        .iter()
        .flat_map(|agent| &agent.needs)
        .find_map(|need| {
            let same = need.kind == kind && need.name == name;
            need.key.as_deref().filter(|_| same)
        });
    finding = match key.as_deref() {
        Some(key) => {
            finding.advice = format!("Add the key '{key}' to {kind} '{name}'. {AFTER_EDIT}");
            finding.then(commands::edit(
                &context.here(kind, &name),
                &format!("add '{key}' (values of a Secret in base64, or under 'stringData')"),
            ))
        }
        None => finding.then(commands::create(
            kind,
            &name,
            agent_key,
            context.namespace(),
        )),
    };
    finding
        .then(commands::edit_agent(context, "or name another"))
        .then(commands::retry_after_edit(context))
}

fn not_startable(context: RunContext<'_>, pod: &PodView, words: &Words<'_>) -> Finding {
    let sentence = format!(
        "{} cannot be started{}{}",
        docs::container_words(context, pod),
        on(pod),
        last_words(words.message)
    );
    if docs::step_of(context, pod).is_some() {
        return docs::toolbox(
            context,
            pod,
            Reason::ContainerNotStartable,
            &sentence,
            words,
        );
    }
    let link = Link::new(
        pod.object(),
        Health::Error,
        Reason::ContainerNotStartable,
        sentence,
    )
    .since(words.since)
    .seen(words.source.clone(), words.message, words.at);
    Finding::new(
        State::Blocked,
        format!(
            "Check the Agent's 'command', and whether its image has that program. {THEN_AGAIN}"
        ),
    )
    .link(link)
    .then(commands::edit_agent(
        context,
        "correct 'command' or 'image'",
    ))
    .then(commands::retry(context))
    .then(commands::describe(&pod.object(), "the kubelet's Events"))
}

/// Returns the last part of a chain of errors, which is the actual cause: `: exec: "/agent": …`.
pub(super) fn last_words(message: &str) -> String {
    message
        .find("exec: ")
        .and_then(|start| message.get(start..))
        .map_or_else(String::new, |words| format!(": {words}"))
}

#[cfg(test)]
mod tests;
