//! A Pod of a Tenant that is not ready: image, program, probe, node, volume.

use api::{Reason, tenants::condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::{Exit, Reported, StartFailure};

use super::{
    super::{
        Finding, commands,
        container::{Pull, UNREACHABLE, last_words, missing_thing, on, seen_last, tries, why_root},
        create::times,
        stop, volume,
    },
    capacity,
    context::{TenantContext, is_ready, main, part},
    parts::Part,
    refused::AFTER_EDIT,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{ContainerState, ContainerView, PodView},
};

/// Time in seconds after which a Pod is no longer just starting. It applies to a program that fails
/// its probe, and to a Pod without a node or volume.
pub(super) const STARTING: i64 = 5;
/// Time in seconds after which the cluster's DNS should know a ready Redis.
const REACHED: i64 = 30;

/// Explains why a Pod is not ready, or returns `None` if it may just be starting.
pub(super) fn find(context: TenantContext<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    lost(context, of, pod)
        .or_else(|| container(context, pod))
        .or_else(|| capacity::unplaced(context, of, pod))
        .or_else(|| unanswered(context, of, pod))
        .or_else(|| unmounted(context, pod))
}

/// Explains a Pod on an unready node. The state of such a Pod is unknown.
fn lost(context: TenantContext<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let node = context.world.node(pod.node.as_deref()?)?;
    if node.is_ready() {
        return None;
    }
    let link = Link::new(
        pod.object(),
        Health::Waiting,
        Reason::NotReady,
        format!(
            "is on node '{}', which does not answer: nobody knows whether it still runs",
            node.name
        ),
    )
    .seen("spec.nodeName", &node.name, pod.meta.created.as_ref());
    let meanwhile = match of {
        // Two Redis Pods must not write to one volume.
        Part::Redis => {
            "; before that no other Redis starts, because the first may still be at work"
        }
        Part::Server => {
            "; without that, another Pod starts on another node by itself after some minutes"
        }
    };
    Some(stop::node_lost(context.world, node, meanwhile).below(vec![link]))
}

fn container(context: TenantContext<'_>, pod: &PodView) -> Option<Finding> {
    let container = main(pod)?;
    let reported = match &container.state {
        ContainerState::Waiting(reported) => reported,
        ContainerState::Ended(_) => return Some(crashing(context, pod, container)),
        ContainerState::Running { .. } | ContainerState::Unknown => {
            return (container.restarts > 0).then(|| crashing(context, pod, container));
        }
    };
    let Reported { reason, message } = reported;
    match StartFailure::of(reason, message, tries(context.world, pod)) {
        Some(StartFailure::Image) => Some(image(context, pod, container, reported)),
        Some(StartFailure::Root | StartFailure::NotExecutable) => {
            Some(root(context, pod, container))
        }
        Some(StartFailure::Missing) => Some(missing(context, pod, container)),
        Some(StartFailure::NotStartable) => Some(not_startable(context, pod, container)),
        None if reason == "CrashLoopBackOff" || container.restarts > 0 => {
            Some(crashing(context, pod, container))
        }
        None => None,
    }
}

/// Returns the kubelet's reason and message about a waiting container.
fn words(container: &ContainerView) -> (String, &str) {
    let name = &container.name;
    match container.state.waiting() {
        Some(Reported { reason, message }) => {
            (format!("container '{name}' waiting: {reason}"), message)
        }
        None => (format!("container '{name}'"), ""),
    }
}

/// Returns the Pod's link with the kubelet's message about its container.
fn wrong(
    context: TenantContext<'_>,
    pod: &PodView,
    container: &ContainerView,
    reason: Reason,
    sentence: String,
) -> Link {
    let (source, message) = words(container);
    Link::new(pod.object(), Health::Error, reason, sentence)
        .since(pod.meta.created.as_ref())
        .seen(source, message, seen_last(context.world, pod))
}

fn events(pod: &PodView) -> Command {
    commands::describe(&pod.object(), "the kubelet's Events")
}

fn image(
    context: TenantContext<'_>,
    pod: &PodView,
    container: &ContainerView,
    reported: &Reported,
) -> Finding {
    let pull = Pull::of(&reported.reason, &reported.message);
    let link = wrong(
        context,
        pod,
        container,
        Reason::ImagePullFailed,
        format!(
            "image '{}' cannot be pulled{}: {}",
            container.image,
            on(pod),
            pull.why()
        ),
    );
    let field = part(pod);
    if field == "probe" {
        return of_probe(context, pod, link);
    }
    let advice = match pull {
        Pull::Unreachable => UNREACHABLE.to_owned(),
        Pull::Never => "Put the image on the node.".to_owned(),
        Pull::InvalidName => format!("Correct '{field}.image' of Tenant '{}'.", context.name()),
        Pull::Limited => "Wait: the kubelet tries again by itself. A mirror, or an account on the nodes, helps for good.".to_owned(),
        Pull::NotFound => format!(
            "Correct '{field}.image' of Tenant '{}', or push the image.",
            context.name()
        ),
        Pull::Refused | Pull::Other => format!(
            "Check '{field}.image' of Tenant '{}', and whether the nodes may pull it: a Tenant has no credentials of its own for a registry.",
            context.name()
        ),
    };
    Finding::new(State::Blocked, format!("{advice} {AFTER_EDIT}"))
        .link(link)
        .then(events(pod))
        .then(context.edit(&format!("correct '{field}.image'")))
        .then(context.look_again())
}

/// Explains an image problem of a probe Pod. Its image comes from the operator's configuration.
fn of_probe(context: TenantContext<'_>, pod: &PodView, mut link: Link) -> Finding {
    link.health = Health::Waiting;
    let image = main(pod).map_or("?", |one| one.image.as_str());
    let setting = Link::new(
        crate::world::ObjectRef::cluster("Configuration", "tenants.probeImage"),
        Health::Error,
        link.reason.clone(),
        format!("its image '{image}' cannot be used: it is the operator's, not the Tenant's"),
    )
    .since(link.since.as_ref())
    .seen("the container's image", image, pod.meta.created.as_ref());
    Finding::new(
        State::Blocked,
        "Ask whoever runs the operator to correct 'tenants.probeImage', or to make that image available to the nodes.",
    )
    .link(link)
    .link(setting)
    .then(events(pod))
    .maybe(super::super::operator::config(
        context.world,
        "the operator's configuration: 'probeImage' below 'tenants'",
    ))
}

fn root(context: TenantContext<'_>, pod: &PodView, container: &ContainerView) -> Finding {
    let (_, message) = words(container);
    let why = why_root(message, " 65532");
    let link = wrong(
        context,
        pod,
        container,
        Reason::ImageNeedsRoot,
        format!("image '{}' cannot run as it must: {why}", container.image),
    );
    Finding::new(
        State::Blocked,
        format!("Nothing of a Tenant runs as root: its containers have the user 65532. Build an image whose program that user may execute, and name it in '{}.image'. {AFTER_EDIT}", part(pod)),
    )
    .link(link)
    .then(events(pod))
    .then(context.edit(&format!("name another '{}.image'", part(pod))))
}

/// Explains a missing Secret or ConfigMap of an environment variable.
fn missing(context: TenantContext<'_>, pod: &PodView, container: &ContainerView) -> Finding {
    let (source, message) = words(container);
    let Some((kind, name, key)) = missing_thing(message) else {
        return not_startable(context, pod, container);
    };
    let label = match (kind, &key) {
        (_, Some(_)) => "KeyNotFound",
        ("ConfigMap", None) => "ConfigMapNotFound",
        _ => Reason::SecretNotFound.name(),
    };
    let above = Link::new(
        pod.object(),
        Health::Waiting,
        Reason::SecretNotFound,
        format!("waits for {kind} '{name}'"),
    )
    .seen(source, message, seen_last(context.world, pod));
    let exists = context.exists(kind, &name);
    let is_there = key.is_none() && exists == Some(true);
    let sentence = match (&key, exists) {
        (Some(key), _) => format!("has no key '{key}', and '{}.env' names it", part(pod)),
        (None, Some(true)) => "exists by now; it was missing when the kubelet looked".to_owned(),
        (None, Some(false)) => format!("does not exist, and '{}.env' names it", part(pod)),
        (None, None) => {
            "was missing when the kubelet looked; whether it exists by now is not known".to_owned()
        }
    };
    let link = Link::new(
        context.here(kind, &name),
        if is_there {
            Health::Waiting
        } else {
            Health::Error
        },
        if is_there { "ExistsNow" } else { label },
        sentence,
    )
    .since(pod.meta.created.as_ref())
    .seen(
        "looked for it",
        match exists {
            Some(true) => "it exists",
            Some(false) => "not found",
            None => "you may not",
        },
        Some(&context.world.now),
    );
    if is_there {
        return Finding::new(
            State::Waiting,
            format!("Wait: {kind} '{name}' exists by now, and the kubelet tries again within two minutes."),
        )
        .link(above)
        .link(link)
        .newer()
        .then(context.look_again());
    }
    // The operator creates this Secret itself, with a password that nobody else knows.
    if name == "tenant-redis" {
        return Finding::new(
            State::Waiting,
            "Wait: the operator makes this Secret again by itself within seconds, with another password. Find out what deletes it.",
        )
        .link(above)
        .link(link)
        .then(context.look_again())
        .maybe(super::super::operator::log(context.world));
    }
    let finding = Finding::new(
        State::Blocked,
        match &key {
            Some(key) => format!("Add the key '{key}' to {kind} '{name}' in namespace '{}'. The Pod starts by itself a minute or two later.", context.namespace()),
            None => format!("Create {kind} '{name}' in namespace '{}', or change '{}.env'. The Pod starts by itself a minute or two later.", context.namespace(), part(pod)),
        },
    )
    .link(above)
    .link(link);
    let finding = match &key {
        Some(key) => finding.then(commands::edit(
            &context.here(kind, &name),
            &format!("add '{key}' (values of a Secret in base64, or under 'stringData')"),
        )),
        None => finding.then(commands::create(kind, &name, None, context.namespace())),
    };
    finding.then(context.edit("or name another"))
}

fn not_startable(context: TenantContext<'_>, pod: &PodView, container: &ContainerView) -> Finding {
    let (_, message) = words(container);
    let link = wrong(
        context,
        pod,
        container,
        Reason::ContainerNotStartable,
        format!(
            "the container cannot be started{}{}",
            on(pod),
            last_words(message)
        ),
    );
    let what = match part(pod) {
        "redis" => "whether 'redis.image' has 'redis-server'",
        _ => "whether 'server.image' is an image that starts a program by itself",
    };
    Finding::new(State::Blocked, format!("Check {what}. {AFTER_EDIT}"))
        .link(link)
        .then(events(pod))
        .then(context.edit(&format!("correct '{}.image'", part(pod))))
}

/// Explains a program that ended and is restarted.
fn crashing(context: TenantContext<'_>, pod: &PodView, container: &ContainerView) -> Finding {
    let restarts = match container.restarts {
        0 => String::new(),
        1 => "; it was started again once".to_owned(),
        count => format!("; it was started again {count} times"),
    };
    let exit = container.last_exit();
    let at = exit.and_then(|exit| exit.finished).map(Time);
    let how = exit.map_or_else(String::new, |exit| {
        let (code, reason) = (exit.code, &exit.reason);
        let ago = context.world.ago(at.as_ref());
        format!(": it exited with code {code} ({reason}){ago}")
    });
    let (source, message) = words(container);
    let mut link = Link::new(
        pod.object(),
        Health::Error,
        Reason::CrashLoop,
        format!("its program ends again and again{how}{restarts}"),
    )
    .since(pod.meta.created.as_ref());
    if !message.is_empty() {
        link = link.seen(source, message, seen_last(context.world, pod));
    }
    link = link.seen(
        format!("container '{}' ended before", container.name),
        match exit.map(|exit| exit.message.as_str()) {
            None | Some("") => format!("exit code {}", exit.map_or(0, |exit| exit.code)),
            Some(message) => format!("its last words: {message}"),
        },
        at.as_ref(),
    );
    let killed = context
        .world
        .warning(&pod.meta.uid, &["Unhealthy"])
        .filter(|event| event.message.starts_with("Liveness"));
    let field = part(pod);
    let advice = if exit.is_some_and(Exit::is_out_of_memory) {
        format!(
            "It used more memory than its limit and was killed: raise 'limits.memory' in '{field}.resources' of Tenant '{}', or let it use less.",
            context.name()
        )
    } else if let Some(event) = killed {
        link = link.seen(
            format!("Event Unhealthy{}", times(event.count)),
            &event.message,
            event.last.as_ref(),
        );
        format!(
            "The kubelet kills it, because it does not answer its liveness probe: check 'server.probes.liveness' of Tenant '{}', and its log.",
            context.name()
        )
    } else {
        match field {
            "redis" => "Read its log: it says what it does not like, often a line of 'redis.config' or the files on its volume.".to_owned(),
            _ => "Read its log: the program itself says why it ends.".to_owned(),
        }
    };
    Finding::new(State::Blocked, format!("{advice} {AFTER_EDIT}"))
        .link(link)
        .then(context.logs(pod, true))
        .then(events(pod))
        .then(context.edit(&format!("change '{field}'")))
}

/// Explains a program that runs but fails its probe.
fn unanswered(context: TenantContext<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let container = main(pod)?;
    let ContainerState::Running { since } = &container.state else {
        return None;
    };
    let started = since.map(Time);
    let since = started.as_ref().or(pod.meta.created.as_ref());
    if since.is_some_and(|at| context.world.age(at) < STARTING) {
        return None;
    }
    let event = context.world.warning(&pod.meta.uid, &["Unhealthy"])?;
    if of == Part::Server && waits_for_redis(context) {
        return None;
    }
    let link = Link::new(
        pod.object(),
        Health::Error,
        Reason::ProbeFailed,
        format!(
            "runs{} since {}, but does not answer as its probe asks: {}",
            on(pod),
            since.map_or_else(String::new, |at| context.world.when(at)),
            event.message
        ),
    )
    .since(event.first.as_ref().or(since))
    .seen(
        format!("Event Unhealthy{}", times(event.count)),
        &event.message,
        event.last.as_ref(),
    );
    let advice = match of {
        Part::Redis => "It is asked by 'redis-cli ping' in its own container: read its log; it may still load its data, or have no memory left.".to_owned(),
        Part::Server => {
            let asked = context.tenant.server.as_ref();
            let port = asked.map_or(0, |server| server.port);
            match asked.and_then(|server| server.readiness.as_deref()) {
                Some(path) => format!("The kubelet asks for '{path}' on port {port}: check 'server.probes.readiness' and 'server.port' of Tenant '{}', or mend the program.", context.name()),
                None => format!("The kubelet tries to connect to port {port}: check 'server.port' of Tenant '{}' (the program has it in PORT), or mend the program.", context.name()),
            }
        }
    };
    Some(
        Finding::new(State::Blocked, format!("{advice} {AFTER_EDIT}"))
            .link(link)
            .then(context.logs(pod, false))
            .then(events(pod))
            .then(context.edit(&format!("correct '{}'", part(pod)))),
    )
}

/// Returns whether the server waits for its Redis, or the Redis has only just become ready. Then
/// the server itself is not the problem.
fn waits_for_redis(context: TenantContext<'_>) -> bool {
    if context.tenant.redis.is_none() {
        return false;
    }
    let seen = context.condition(condition::REDIS_READY);
    let is_just_seen = seen.is_some_and(|ready| {
        ready.status == "True" && context.world.age(&ready.last_transition_time) <= REACHED
    });
    let is_new = context
        .pods("redis")
        .filter(|pod| is_ready(pod))
        .filter_map(|pod| pod.condition("Ready")?.since.as_ref())
        .any(|at| context.world.age(at) <= REACHED);
    let redis = context.workload("redis");
    is_just_seen || is_new || redis.is_none_or(|redis| redis.ready < 1)
}

/// Explains the messages of the kubelet and the attacher about the volumes of a scheduled Pod.
fn unmounted(context: TenantContext<'_>, pod: &PodView) -> Option<Finding> {
    if matches!(main(pod)?.state, ContainerState::Running { .. }) {
        return None;
    }
    let (_, link) = volume::unmounted(context.world, pod)?;
    let node = pod.node.as_deref().unwrap_or("?");
    Some(
        Finding::new(
            State::Blocked,
            format!("The words are the kubelet's or the storage driver's: check the driver's Pod on node '{node}', and which node has the volume. The kubelet tries again by itself."),
        )
        .link(link)
        .then(events(pod))
        .then(Command::new(
            "kubectl get volumeattachments",
            "which node has which volume",
        )),
    )
}

/// Explains a Pod that is starting without a problem so far.
pub(super) fn starting(context: TenantContext<'_>, pod: &PodView) -> Finding {
    let container = main(pod);
    let state = container.map_or(&ContainerState::Unknown, |one| &one.state);
    let created = pod.meta.created.as_ref();
    let started = state.running_since().map(Time);
    let waits_for_redis = part(pod) == "server" && waits_for_redis(context);
    let (sentence, source, words, since) = match state {
        ContainerState::Running { .. } if waits_for_redis => (
            format!(
                "runs{}, and waits for the Redis, which is not ready yet",
                on(pod)
            ),
            "container running".to_owned(),
            String::new(),
            started.as_ref().or(created),
        ),
        ContainerState::Running { .. } => (
            format!("runs{}, and is not ready yet", on(pod)),
            "container running".to_owned(),
            String::new(),
            started.as_ref().or(created),
        ),
        ContainerState::Waiting(Reported { reason, message }) => (
            format!("is being started{}", on(pod)),
            format!("container waiting: {reason}"),
            message.clone(),
            created,
        ),
        ContainerState::Unknown | ContainerState::Ended(_) => (
            match &pod.node {
                Some(node) => format!("is being started on node '{node}'"),
                None => "is being placed on a node".to_owned(),
            },
            "status.phase".to_owned(),
            pod.phase.clone(),
            created,
        ),
    };
    let mut link = Link::new(pod.object(), Health::Waiting, Reason::Progressing, sentence)
        .since(since)
        .seen(source, words, since);
    if let Some(event) = context.world.warnings(&pod.meta.uid).first() {
        link = link.seen(
            format!("Event {}{}", event.reason, times(event.count)),
            &event.message,
            event.last.as_ref(),
        );
    }
    Finding::new(
        State::Waiting,
        "Wait: it is on its way. If it stays so, the Pod's Events say more.",
    )
    .link(link)
    .then(context.look_again())
    .then(events(pod))
}
