//! A container that the kubelet does not start: image, user, Secrets, the program itself.

use pods::{PullFailure, is_permission, missing_object, unresolved_host};

use super::root_cause::{create_secret, setting};
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
fn start_failure(world: &World, pod: &PodView, said: &Reported) -> Option<StartFailure> {
    let failed = world.warning(&pod.meta.uid, &["Failed"]);
    let tries = failed.map_or(0, |event| event.count);
    StartFailure::of(&said.reason, &said.message, tries)
}

impl<'a> Report<'a> {
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
        }
    }
}

/// A container that waits, and the kubelet's report about it.
struct Waiting<'a> {
    origin: Origin<'a>,
    pod: &'a PodView,
    container: &'a ContainerView,
    said: Report<'a>,
}

/// Explains the reason of a waiting container, or returns `None` if the reason is normal for a
/// start.
pub(super) fn waiting(
    origin: Origin<'_>,
    pod: &PodView,
    container: &ContainerView,
    reported: &Reported,
) -> Option<Finding> {
    let world = origin.subject().world;
    let case = Waiting {
        origin,
        pod,
        container,
        said: Report::of(world, pod, container),
    };
    Some(match start_failure(world, pod, reported)? {
        StartFailure::Image => case.image(&reported.reason),
        StartFailure::Root => case.root(),
        StartFailure::Missing => missing(origin, pod.object(), &case.said, false),
        StartFailure::NotExecutable | StartFailure::NotStartable => case.not_startable(),
    })
}

/// Returns the sentence about a Pod with an image that cannot be pulled.
fn not_pulled(failure: PullFailure, pod: &PodView, image: &str, message: &str) -> String {
    let host = unresolved_host(message).unwrap_or_default();
    let why = match failure {
        PullFailure::Never => "it is not on the node, and 'imagePullPolicy: Never' forbids a pull",
        PullFailure::InvalidName => "this is not a valid name of an image",
        PullFailure::Unresolved => {
            return format!(
                "image '{image}' cannot be pulled{}: the name '{host}' does not resolve",
                pod.on_node()
            );
        }
        PullFailure::Unreachable => "the registry cannot be reached",
        PullFailure::Limited => "the registry limits how often it is asked",
        PullFailure::Refused => {
            "the registry refuses: it does not exist, or credentials are missing or wrong"
        }
        PullFailure::NotFound => "the registry has no such image or tag",
        // The last part of a chain of errors is the cause.
        PullFailure::Other => message.rsplit(": ").next().unwrap_or(message).trim(),
    };
    format!("image '{image}' cannot be pulled{}: {why}", pod.on_node())
}

impl Waiting<'_> {
    /// Returns the field of the Tenant's spec that requests the container.
    fn field(&self) -> &str {
        match self.origin {
            Origin::Agent(_) => "",
            Origin::Tenant(_, part) => part.unwrap_or("server"),
        }
    }

    fn events(&self) -> Command {
        self.pod.object().describe("the kubelet's Events")
    }

    fn image(&self, reason: &str) -> Finding {
        let &Self { origin, pod, .. } = self;
        let (subject, part) = (origin.subject(), self.field());
        let pull = PullFailure::of(reason, self.said.message);
        let sentence = not_pulled(pull, pod, &self.container.image, self.said.message);
        if let Some(finding) = self.of_operator(Reason::ImagePullFailed, &sentence) {
            return finding;
        }
        let field = one_of! { origin;
            Origin::Agent(_) => "the Agent's 'image'";
            Origin::Tenant(tenant, _) => "'{part}.image' of Tenant '{}'", tenant.name();
        };
        let advice = one_of! { (pull, origin);
            (PullFailure::Never, Origin::Agent(_)) => "Put the image on the node, or change the Agent's 'imagePullPolicy'.";
            (PullFailure::Never, Origin::Tenant(..)) => "Put the image on the node.";
            (PullFailure::InvalidName, _) => "Correct {field}.";
            (PullFailure::Unresolved, _) => "Correct the host in {field}, or check the DNS of the node. The kubelet tries again by itself, every 5 minutes or more often.";
            (PullFailure::Unreachable, _) => "Check the registry and the node's way to it. The kubelet tries again by itself, every 5 minutes or more often.";
            (PullFailure::Limited, Origin::Agent(_)) => "Wait, or give the Agent 'imagePullSecrets' with an account of its own.";
            (PullFailure::Limited, Origin::Tenant(..)) => "Wait: the kubelet tries again by itself. A mirror, or an account on the nodes, helps for good.";
            (PullFailure::NotFound, _) => "Correct {field}, or push the image.";
            (PullFailure::Refused | PullFailure::Other, Origin::Agent(_)) => "Check {field} and 'imagePullSecrets'.";
            (PullFailure::Refused | PullFailure::Other, Origin::Tenant(..)) => "Check {field}, and whether the nodes may pull it: a Tenant has no credentials of its own for a registry.";
        };
        let mut finding = finding! { Blocked "{advice} {}", origin.after("Pod", false);
            link self.said.link(pod.object(), Reason::ImagePullFailed, sentence);
        };
        let Origin::Agent(_) = origin else {
            return rows! { finding;
                then self.events(), origin.edit(format!("correct '{part}.image'")), subject.look_again();
            };
        };
        let secrets = pod.needs.iter();
        let secrets = secrets.filter(|need| need.role == "imagePullSecrets");
        for need in secrets.filter(|need| subject.exists("Secret", &need.name) == Some(false)) {
            let (name, within) = (&need.name, subject.namespace);
            finding.advice = text! { "Create Secret '{name}' (type kubernetes.io/dockerconfigjson); the kubelet tries again by itself, every 5 minutes or more often. {AFTER_EDIT}" };
            finding = rows! { finding;
                Error subject.here("Secret", name), Reason::SecretNotFound, "does not exist, and 'imagePullSecrets' names it: the pull goes without credentials";
                since self.said.since; seen subject.not_found();
                shell "kubectl create secret docker-registry {name} -n {within} --from-file=.dockerconfigjson=<FILE>" => "create Secret '{name}' from a docker config file";
            };
        }
        rows! { finding;
            then origin.edit("correct 'image' or 'imagePullSecrets'"), origin.retry_after_edit(), self.events();
        }
    }

    /// Explains a container of the operator itself. Its image comes from the operator's configuration,
    /// not from the Agent or the Tenant.
    fn of_operator(&self, reason: Reason, sentence: &str) -> Option<Finding> {
        let &Self { origin, pod, .. } = self;
        let (setting_name, of, more) = match origin {
            Origin::Agent(run) => {
                docs::step_of(run, pod)?;
                (
                    "tasks.docs.toolboxImage",
                    format!(" for {}", docs::container_words(run, pod)),
                    " If the image comes, the kubelet goes on by itself; a run that is started after a correction has the new one.",
                )
            }
            Origin::Tenant(_, part) => {
                part.filter(|part| *part == "probe")?;
                ("tenants.probeImage", String::new(), "")
            }
        };
        let (below, field) = setting_name.rsplit_once('.')?;
        let purpose = format!("the operator's configuration: '{field}' below '{below}'");
        let (image, whose) = (&self.container.image, origin.whose());
        Some(finding! {
            Blocked "Ask an administrator of the operator to correct '{setting_name}', or to make that image available to the nodes.{more}";
            link self.said.seen(link! { Waiting pod.object(), reason, (sentence); });
            Error setting(setting_name), reason, "its image '{image}' cannot be used{of}: it is the operator's, not {whose}'s";
            since self.said.since; seen "the container's image" => (image), pod.meta.created.as_ref();
            then operator::config(origin.subject().world, &purpose), self.events();
        })
    }

    fn root(&self) -> Finding {
        let (origin, part, image) = (self.origin, self.field(), &self.container.image);
        let sentence = format!("image '{image}' cannot run as it must");
        if let Some(finding) = self.of_operator(Reason::ImageNeedsRoot, &sentence) {
            return finding;
        }
        let sentence = format!("{sentence}: {}", why_root(self.said.message));
        let again = origin.after("Pod", true);
        let link = self
            .said
            .link(self.pod.object(), Reason::ImageNeedsRoot, sentence);
        match origin {
            Origin::Agent(run) => finding! {
                Blocked "Agents never run as root. {} {again}", user_advice(run.world.agent.as_ref());
                link link;
                then origin.edit("name another 'image', or change 'runAsUser'"), origin.again();
            },
            Origin::Tenant(..) => finding! {
                Blocked "No container of a Tenant runs as root: they have the user 65532. Build an image that works with that user, and name it in '{part}.image'. {again}";
                link link;
                then self.events(), origin.edit(format!("name another '{part}.image'"));
            },
        }
    }

    fn not_startable(&self) -> Finding {
        let &Self { origin, pod, .. } = self;
        let (part, reason) = (self.field(), Reason::ContainerNotStartable);
        let name = match origin {
            Origin::Agent(run) => docs::container_words(run, pod),
            Origin::Tenant(..) => "the container".to_owned(),
        };
        let (on, last) = (pod.on_node(), last_words(self.said.message));
        let sentence = format!("{name} cannot be started{on}{last}");
        if let Some(finding) = self.of_operator(reason, &sentence) {
            return finding;
        }
        let check = one_of! { (origin, part);
            _ if is_permission(self.said.message) => (executable(origin));
            (Origin::Agent(_), _) => "Check the Agent's 'command', and whether its image has that program.";
            (Origin::Tenant(..), "redis") => "Check whether 'redis.image' has 'redis-server'.";
            (Origin::Tenant(..), _) => "Check whether 'server.image' is an image that starts a program by itself.";
        };
        let finding = finding! { Blocked "{check} {}", origin.after("Pod", true);
            link self.said.link(pod.object(), reason, sentence);
        };
        match origin {
            Origin::Agent(run) => rows! { finding;
                then origin.edit("correct 'command' or 'image'"), run.retry(), self.events();
            },
            Origin::Tenant(..) => rows! { finding;
                then self.events(), origin.edit(format!("correct '{part}.image'"));
            },
        }
    }
}

/// Formats why the kubelet does not start an image: `… image has non-numeric user (app), …`.
fn why_root(message: &str) -> String {
    let named = message.split_once("non-numeric user (");
    one_of! { named.and_then(|(_, rest)| rest.split(')').next());
        Some(user) => "its user '{user}' is a name; Kubernetes needs a number to prove that it is not root";
        None => "it runs as root";
    }
}

/// Returns the advice for an image that needs root. An Agent that has a user already needs no other one.
pub(super) fn user_advice(agent: Option<&AgentView>) -> String {
    one_of! { agent.map(|agent| agent.user).filter(|user| *user > 0);
        Some(user) => "Build the image so that its program works with the user {user}, which is the Agent's 'runAsUser'.";
        None => "Set the Agent's 'runAsUser' to a number other than 0, and build the image so that its program works with that user.";
    }
}

/// Returns the advice for a program that the container's user may not execute.
pub(super) fn executable(origin: Origin<'_>) -> String {
    let (user, name) = match origin {
        Origin::Agent(run) => {
            let agent = run.world.agent.as_ref();
            let user = agent.map_or_else(String::new, |agent| format!(" {}", agent.user));
            (
                user,
                "name another program in the Agent's 'command'".to_owned(),
            )
        }
        Origin::Tenant(_, part) => {
            let part = part.unwrap_or("server");
            (" 65532".to_owned(), format!("name another '{part}.image'"))
        }
    };
    text! { "Make that file executable for user{user} (chmod +x, when the image is built), or {name}." }
}

/// The reason for a missing object, if it lacks no key.
fn absent(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "ConfigMapNotFound",
        _ => Reason::SecretNotFound.name(),
    }
}

/// Explains a Secret or ConfigMap that is missing or lacks a key. `object` waits for it, or has waited
/// for it if `is_over`.
pub(super) fn missing(
    origin: Origin<'_>,
    object: ObjectRef,
    said: &Report<'_>,
    is_over: bool,
) -> Finding {
    let subject = origin.subject();
    let (world, within) = (subject.world, subject.namespace);
    let verb = if is_over { "waited" } else { "waits" };
    let Some((kind, name, key)) = missing_object(said.message) else {
        return finding! { Blocked "Create what the words above name; the Pod starts by itself a minute or two later.";
            link said.seen(link! { Waiting object.clone(), absent(""), "{verb} for something that does not exist"; });
            then object.describe("the kubelet's Events");
        };
    };
    let (name, key) = (name.as_str(), key.as_deref());
    let agents = || world.agent.iter().flat_map(|agent| &agent.needs);
    let is_it = |need: &&Need| need.kind == kind && need.name == name;
    let mut is_of_docs = false;
    let (needs, unknown, ago) = match origin {
        Origin::Agent(run) => {
            is_of_docs = kind == "Secret" && docs::secret(run) == Some(name);
            let role = one_of! { (is_of_docs, agents().find(is_it));
                (true, _) => " (the DocsRun's 'credentialsSecretRef')";
                (false, Some(need)) => " (the Agent's '{}')", need.role;
                (false, None) => "";
            };
            let needs = format!(", and the container needs it{role}");
            (needs.clone(), needs, run.ago(said.at))
        }
        Origin::Tenant(_, part) => {
            let needs = format!(", and '{}.env' names it", part.unwrap_or("server"));
            (needs, String::new(), String::new())
        }
    };
    let exists = subject.exists(kind, name);
    let (reason, sentence) = match (key, exists) {
        (Some(key), _) => ("KeyNotFound", format!("has no key '{key}'{needs}")),
        (None, Some(true)) => (
            "ExistsNow",
            format!("exists by now; it was missing when the kubelet looked{ago}"),
        ),
        (None, Some(false)) => (absent(kind), format!("does not exist{needs}")),
        (None, None) => (
            absent(kind),
            text! { "was missing when the kubelet looked{ago}{unknown}; whether it exists by now is not known" },
        ),
    };
    let looked = match exists {
        Some(true) => "it exists",
        Some(false) => "not found",
        None => "you may not",
    };
    let is_there = key.is_none() && exists == Some(true);
    let chain = finding! { Blocked "";
        link said.seen(link! { Waiting object, absent(kind), "{verb} for {kind} '{name}'"; });
        (Health::error_if(!is_there)) subject.here(kind, name), reason, (sentence); since said.since;
        seen subject.seen("looked for it", looked);
    };
    let with = |advice: String| Finding { advice, ..chain };
    let again = subject.look_again();
    if is_there {
        let advice = text! { "Wait: {kind} '{name}' exists by now, and the kubelet tries again within two minutes." };
        let state = State::Waiting;
        return Finding {
            state,
            ..with(advice)
        }
        .newer()
        .then(again);
    }
    let run = match origin {
        Origin::Agent(run) => run,
        // The operator creates this Secret itself, with a password that nobody else knows.
        Origin::Tenant(..) if name == "tenant-redis" => {
            let advice = text! { "Wait: the operator makes this Secret again by itself within seconds, with another password. Find out what deletes it." };
            let state = State::Waiting;
            let finding = Finding {
                state,
                ..with(advice)
            };
            return finding.then(again).then(operator::log(world));
        }
        Origin::Tenant(_, part) => {
            let (advice, change) = match key {
                Some(key) => (
                    format!("Add the key '{key}' to {kind} '{name}' in namespace '{within}'."),
                    add_key(&subject.here(kind, name), key),
                ),
                None => (
                    text! { "Create {kind} '{name}' in namespace '{within}', or change '{}.env'.", part.unwrap_or("server") },
                    commands::create(kind, name, None, within),
                ),
            };
            let advice = format!("{advice} The Pod starts by itself a minute or two later.");
            return with(advice)
                .then(change)
                .then(subject.edit("or name another"));
        }
    };
    if run.status().config_map_name.as_deref() == Some(name) {
        let age = run.age(said.since);
        let finding = with(one_of! { age > OWN_FILES;
            true => "ConfigMap '{name}' has the run's own files. The operator makes it again by itself, and has not for {}: look into its log, and find out what deletes ConfigMaps here.", times::span(age);
            false => "Wait: ConfigMap '{name}' has the run's own files, and the operator makes it again by itself within seconds. Find out what deletes ConfigMaps here.";
        });
        return finding.then(operator::log(world)).then(again);
    }
    if is_of_docs {
        let advice = text! { "Create Secret '{name}' in namespace '{within}'; the Pod starts by itself a minute or two later." };
        return with(advice).then(create_secret(within, name)).then(again);
    }
    let finding = match key {
        Some(key) => with(text! { "Add the key '{key}' to {kind} '{name}'. {AFTER_EDIT}" })
            .then(add_key(&run.here(kind, name), key)),
        None => {
            let first = one_of! { exists;
                Some(_) => "Create {kind} '{name}'";
                None => "Ask someone who may read it whether {kind} '{name}' exists by now; if not, create it";
            };
            let key = agents().filter(is_it).find_map(|need| need.key.as_deref());
            with(format!("{first} in namespace '{within}'. {AFTER_EDIT}"))
                .then(commands::create(kind, name, key, within))
        }
    };
    finding
        .then(run.edit_agent("or name another"))
        .then(run.retry_after_edit())
}

/// Returns the command that adds a key to a Secret or ConfigMap.
fn add_key(object: &ObjectRef, key: &str) -> Command {
    object.edit(text! { "add '{key}' (values of a Secret in base64, or under 'stringData')" })
}

/// Returns the last part of a chain of errors, which is the actual cause: `: exec: "/agent": …`.
pub(super) fn last_words(message: &str) -> String {
    let words = message
        .find("exec: ")
        .and_then(|start| message.get(start..));
    words.map_or_else(String::new, |words| format!(": {words}"))
}
