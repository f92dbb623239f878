//! A container that the kubelet does not start: image, user, Secrets, the program itself.

use pods::is_permission;

use super::root_cause::create_secret;
use super::*;

/// The effect of an edit of the Agent on a run that already has its Job.
pub(super) const AFTER_EDIT: &str = "If you change the Agent, run it again (orc retry) afterwards: this run's Job keeps the old values. Otherwise it goes on by itself.";
/// The advice for a problem that only a new Job can fix.
pub(super) const THEN_AGAIN: &str =
    "Then run it again (orc retry): this run's Job keeps the old values.";
/// Time in seconds after which the operator should have recreated a run's own files. It normally
/// does so within seconds.
const OWN_FILES: i64 = 60;

/// Returns the cause in the kubelet's report about a waiting container, or `None` if the report is
/// normal for a start.
pub(super) fn start_failure(world: &World, pod: &PodView, said: &Reported) -> Option<StartFailure> {
    let failed = world.warning(&pod.meta.uid, &["Failed"]);
    let tries = failed.map_or(0, |event| event.count);
    StartFailure::of(&said.reason, &said.message, tries)
}

/// Explains the reason of a waiting container, or returns `None` if the reason is normal for a
/// start.
pub(super) fn waiting(run: Run<'_>, pod: &PodView, said: &Reported) -> Option<Finding> {
    let container = pod.current()?;
    let words = Words::of(run.world, pod, container);
    let image = &container.image;
    Some(match start_failure(run.world, pod, said)? {
        StartFailure::Image => of_image(run, pod, image, &said.reason, &words),
        StartFailure::Root | StartFailure::NotExecutable => root(run, pod, image, &words),
        StartFailure::Missing => secret(run, pod.object(), &words),
        StartFailure::NotStartable => not_startable(run, pod, &words),
    })
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

impl<'a> Words<'a> {
    /// Returns the kubelet's report about a container. It has no time of its own, so the time is
    /// that of the newest warning about the Pod, otherwise the Pod's creation time.
    pub(super) fn of(world: &'a World, pod: &'a PodView, container: &'a ContainerView) -> Self {
        let reasons = ["Failed", "BackOff", "InspectFailed", "ErrImageNeverPull"];
        let warning = world.warning(&pod.meta.uid, &reasons);
        let created = pod.meta.created.as_ref();
        let name = &container.name;
        let (source, message) = match container.state.waiting() {
            Some(Reported { reason, message }) => (
                format!("container '{name}' waiting: {reason}"),
                message.as_str(),
            ),
            None => (format!("container '{name}'"), ""),
        };
        Self {
            source,
            message,
            at: warning.and_then(|event| event.last.as_ref()).or(created),
            since: created,
            is_over: false,
        }
    }

    /// Adds the message to a link.
    pub(super) fn seen(&self, link: Link) -> Link {
        link.seen(&self.source, self.message, self.at)
    }

    /// Returns the link of an object with a problem.
    pub(super) fn link(&self, object: ObjectRef, reason: Reason, text: String) -> Link {
        self.seen(link! { Error object, reason, (text); })
            .since(self.since)
    }
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

/// The words of registries, in the order in which they are searched.
const REGISTRY: &[(Pull, &[&str])] = &[
    (
        Pull::Unreachable,
        &[
            "no such host",
            "i/o timeout",
            "connection refused",
            "x509",
            "no route to host",
            "deadline exceeded",
            "tls",
        ],
    ),
    (Pull::Limited, &["toomanyrequests", "rate limit"]),
    (
        Pull::Refused,
        &[
            "unauthorized",
            "denied",
            "forbidden",
            "authentication",
            "401",
            "403",
        ],
    ),
    (
        Pull::NotFound,
        &["not found", "manifest unknown", "notfound"],
    ),
];

/// Advice for an unreachable registry, for an image of any component.
pub(super) const UNREACHABLE: &str = "Check the registry and the node's way to it. The kubelet tries again by itself, every 5 minutes or more often.";

impl Pull {
    /// Classifies the kubelet's reason first, then the registry's message.
    pub(super) fn of(reason: &str, message: &str) -> Self {
        let lower = message.to_lowercase();
        let has = |(_, words): &&(Self, &[&str])| words.iter().any(|word| lower.contains(word));
        match reason {
            "ErrImageNeverPull" => Self::Never,
            "InvalidImageName" => Self::InvalidName,
            _ => REGISTRY
                .iter()
                .find(has)
                .map_or(Self::Other, |(pull, _)| *pull),
        }
    }

    /// Returns the sentence about a Pod with this image.
    pub(super) fn sentence(self, pod: &PodView, image: &str) -> String {
        let why = match self {
            Self::Never => "it is not on the node, and 'imagePullPolicy: Never' forbids a pull",
            Self::InvalidName => "this is not a valid name of an image",
            Self::Unreachable => "the registry cannot be reached",
            Self::Limited => "the registry limits how often it is asked",
            Self::Refused => {
                "the registry refuses: it does not exist, or credentials are missing or wrong"
            }
            Self::NotFound => "the registry has no such image or tag",
            Self::Other => "its words are below",
        };
        format!("image '{image}' cannot be pulled{}: {why}", pod.on_node())
    }
}

fn of_image(run: Run<'_>, pod: &PodView, image: &str, said: &str, words: &Words<'_>) -> Finding {
    let (world, within) = (run.world, run.namespace);
    let pull = Pull::of(said, words.message);
    let sentence = pull.sentence(pod, image);
    if docs::step_of(run, pod).is_some() {
        return docs::toolbox(run, pod, Reason::ImagePullFailed, &sentence, words);
    }
    let advice = match pull {
        Pull::Never => "Put the image on the node, or change the Agent's 'imagePullPolicy'.",
        Pull::InvalidName => "Correct the Agent's 'image'.",
        Pull::Unreachable => UNREACHABLE,
        Pull::Limited => "Wait, or give the Agent 'imagePullSecrets' with an account of its own.",
        Pull::NotFound => "Correct the Agent's 'image', or push the image.",
        Pull::Refused | Pull::Other => "Check the Agent's 'image' and 'imagePullSecrets'.",
    };
    let mut finding = finding! { Blocked "{advice} {AFTER_EDIT}";
        link words.link(pod.object(), Reason::ImagePullFailed, sentence);
    };
    let secrets = pod
        .needs
        .iter()
        .filter(|need| need.role == "imagePullSecrets");
    for need in secrets.filter(|need| run.exists("Secret", &need.name) == Some(false)) {
        let name = &need.name;
        finding.advice = text! { "Create Secret '{name}' (type kubernetes.io/dockerconfigjson); the kubelet tries again by itself, every 5 minutes or more often. {AFTER_EDIT}" };
        finding = rows! { finding;
            Error run.here("Secret", name), Reason::SecretNotFound, "does not exist, and 'imagePullSecrets' names it: the pull goes without credentials";
            since words.since; seen world.not_found();
            shell "kubectl create secret docker-registry {name} -n {within} --from-file=.dockerconfigjson=<FILE>" => "create Secret '{name}' from a docker config file";
        };
    }
    finding
        .then(run.edit_agent("correct 'image' or 'imagePullSecrets'"))
        .then(run.retry_after_edit())
        .then(pod.object().describe("the kubelet's Events"))
}

fn root(run: Run<'_>, pod: &PodView, image: &str, words: &Words<'_>) -> Finding {
    let sentence = format!("image '{image}' cannot run as it must");
    if docs::step_of(run, pod).is_some() {
        return docs::toolbox(run, pod, Reason::ImageNeedsRoot, &sentence, words);
    }
    let agent = run.world.agent.as_ref();
    let user = agent.map_or_else(String::new, |agent| format!(" {}", agent.user));
    let sentence = format!("{sentence}: {}", why_root(words.message, &user));
    finding! { Blocked "Agents never run as root. Build the image with a numeric USER and a program that everyone may execute, or set the Agent's 'runAsUser' to a number that works. {THEN_AGAIN}";
        link words.link(pod.object(), Reason::ImageNeedsRoot, sentence);
        then run.edit_agent("set 'runAsUser' or another 'image'"), run.retry();
    }
}

/// Formats why an image cannot run as this user. The message may be `… image has non-numeric user (app), …`.
pub(super) fn why_root(message: &str, user: &str) -> String {
    let named = message.split_once("non-numeric user (");
    one_of! { named.and_then(|(_, rest)| rest.split(')').next());
        _ if is_permission(message) => "its program cannot be executed by user{user}";
        Some(user) => "its user '{user}' is a name; Kubernetes needs a number to prove that it is not root";
        None => "it runs as root";
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
        let name = name.split(char::is_whitespace).next().unwrap_or_default();
        let mut kinds = kinds.iter();
        let (kind, _) = kinds.find(|(_, word)| kind.eq_ignore_ascii_case(word))?;
        return Some((kind, name.to_owned(), Some(key.to_owned())));
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

/// The reason for a missing object, if it lacks no key.
pub(super) fn absent(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "ConfigMapNotFound",
        _ => Reason::SecretNotFound.name(),
    }
}

/// Returns the link of a missing object, and whether it exists by now. `needs` is the clause about
/// the object that needs it; `unknown` is the same for an object that may not be read.
pub(super) fn missing_link(
    subject: Subject<'_>,
    (kind, name, key): (&str, &str, Option<&str>),
    (needs, unknown, ago): (&str, &str, &str),
    since: Option<&Time>,
) -> (Link, bool) {
    let exists = subject.exists(kind, name);
    let (sentence, reason) = match (key, exists) {
        (Some(key), _) => (format!("has no key '{key}'{needs}"), "KeyNotFound"),
        (None, Some(true)) => (
            format!("exists by now; it was missing when the kubelet looked{ago}"),
            "ExistsNow",
        ),
        (None, Some(false)) => (format!("does not exist{needs}"), absent(kind)),
        (None, None) => (
            text! { "was missing when the kubelet looked{ago}{unknown}; whether it exists by now is not known" },
            absent(kind),
        ),
    };
    let looked = match exists {
        Some(true) => "it exists",
        Some(false) => "not found",
        None => "you may not",
    };
    let is_there = key.is_none() && exists == Some(true);
    let health = if is_there {
        Health::Waiting
    } else {
        Health::Error
    };
    let link = link! { (health) subject.here(kind, name), reason, (sentence); since since;
        seen subject.seen("looked for it", looked);
    };
    (link, is_there)
}

/// Explains a Secret or ConfigMap that is missing or lacks a key. `object` waits for it.
pub(super) fn secret(run: Run<'_>, object: ObjectRef, words: &Words<'_>) -> Finding {
    let (world, within) = (run.world, run.namespace);
    let verb = if words.is_over { "waited" } else { "waits" };
    let Some((kind, name, key)) = missing_thing(words.message) else {
        return finding! { Blocked "Create what the words above name; the Pod starts by itself a minute or two later.";
            link words.seen(link! { Waiting object.clone(), absent(""), "{verb} for something that does not exist"; });
            since words.since; then object.describe("the kubelet's Events");
        };
    };
    let key = key.as_deref();
    let agents = || world.agent.iter().flat_map(|agent| &agent.needs);
    let is_it = |need: &&Need| need.kind == kind && need.name == name;
    let is_of_docs = kind == "Secret" && docs::secret(run) == Some(name.as_str());
    let role = match (is_of_docs, agents().find(is_it)) {
        (true, _) => " (the DocsRun's 'credentialsSecretRef')".to_owned(),
        (false, Some(need)) => format!(" (the Agent's '{}')", need.role),
        (false, None) => String::new(),
    };
    let needs = format!(", and the container needs it{role}");
    let ago = run.ago(words.at);
    let (missing, is_there) = missing_link(
        *run,
        (kind, &name, key),
        (&needs, &needs, &ago),
        words.since,
    );
    let above = words.seen(link! { Waiting object, absent(kind), "{verb} for {kind} '{name}'"; });
    let finding = |advice: String| finding! { Blocked (advice); link above; link missing; };
    if is_there {
        let mut finding = finding(
            text! { "Wait: {kind} '{name}' exists by now, and the kubelet tries again within two minutes." },
        );
        finding.state = State::Waiting;
        return finding.newer().then(run.look_again());
    }
    if run.status().config_map_name.as_ref() == Some(&name) {
        let age = run.age(words.since);
        let finding = finding(one_of! { age > OWN_FILES;
            true => "ConfigMap '{name}' has the run's own files. The operator makes it again by itself, and has not for {}: look into its log, and find out what deletes ConfigMaps here.", times::span(age);
            false => "Wait: ConfigMap '{name}' has the run's own files, and the operator makes it again by itself within seconds. Find out what deletes ConfigMaps here.";
        });
        return finding.then(operator::log(world)).then(run.look_again());
    }
    if is_of_docs {
        let advice = text! { "Create Secret '{name}' in namespace '{within}'; the Pod starts by itself a minute or two later." };
        return finding(advice)
            .then(create_secret(within, &name))
            .then(run.look_again());
    }
    let finding = match key {
        Some(key) => finding(text! { "Add the key '{key}' to {kind} '{name}'. {AFTER_EDIT}" })
            .then(add_key(&run.here(kind, &name), key)),
        None => {
            let first = one_of! { run.exists(kind, &name);
                Some(_) => "Create {kind} '{name}'";
                None => "Ask someone who may read it whether {kind} '{name}' exists by now; if not, create it";
            };
            let key = agents().filter(is_it).find_map(|need| need.key.as_deref());
            finding(format!("{first} in namespace '{within}'. {AFTER_EDIT}"))
                .then(commands::create(kind, &name, key, within))
        }
    };
    finding
        .then(run.edit_agent("or name another"))
        .then(run.retry_after_edit())
}

/// Returns the command that adds a key to a Secret or ConfigMap.
pub(super) fn add_key(object: &ObjectRef, key: &str) -> Command {
    object.edit(text! { "add '{key}' (values of a Secret in base64, or under 'stringData')" })
}

fn not_startable(run: Run<'_>, pod: &PodView, words: &Words<'_>) -> Finding {
    let (container, last) = (docs::container_words(run, pod), last_words(words.message));
    let sentence = format!("{container} cannot be started{}{last}", pod.on_node());
    let reason = Reason::ContainerNotStartable;
    if docs::step_of(run, pod).is_some() {
        return docs::toolbox(run, pod, reason, &sentence, words);
    }
    finding! { Blocked "Check the Agent's 'command', and whether its image has that program. {THEN_AGAIN}";
        link words.link(pod.object(), reason, sentence);
        then run.edit_agent("correct 'command' or 'image'"), run.retry(), pod.object().describe("the kubelet's Events");
    }
}

/// Returns the last part of a chain of errors, which is the actual cause: `: exec: "/agent": …`.
pub(super) fn last_words(message: &str) -> String {
    let words = message
        .find("exec: ")
        .and_then(|start| message.get(start..));
    words.map_or_else(String::new, |words| format!(": {words}"))
}

#[cfg(test)]
mod tests;
