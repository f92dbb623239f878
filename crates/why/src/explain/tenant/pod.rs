//! A Pod of a Tenant that is not ready: image, program, probe, node, volume.

use pods::Exit;

use super::super::volume::Pending;
use super::context::{is_ready, main, part};
use super::parts::Part;
use super::*;

/// Time in seconds after which a Pod is no longer just starting. It applies to a program that fails
/// its probe, and to a Pod without a node or volume.
const STARTING: i64 = 5;
/// Time in seconds after which the cluster's DNS should know a ready Redis.
const REACHED: i64 = 30;
/// The claim of the only Pod of a Redis.
const CLAIM: &str = "data-redis-0";

/// Explains why a Pod is not ready, or returns `None` if it may just be starting.
pub(super) fn find(tenant: Tenant<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    lost(tenant, of, pod)
        .or_else(|| container(tenant, pod))
        .or_else(|| unplaced(tenant, of, pod))
        .or_else(|| unanswered(tenant, of, pod))
        .or_else(|| unmounted(tenant, pod))
}

/// Explains a Pod on an unready node. The state of such a Pod is unknown.
fn lost(tenant: Tenant<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let node = tenant.lost_node(pod)?;
    let meanwhile = match of {
        // Two Redis Pods must not write to one volume.
        Part::Redis => {
            "; before that no other Redis starts, because the first may still be at work"
        }
        Part::Server => {
            "; without that, another Pod starts on another node by itself after some minutes"
        }
    };
    let link = stop::on_lost_node(pod, node, Reason::NotReady, "it");
    Some(stop::node_lost(tenant.world, node, meanwhile).below([link]))
}

fn container(tenant: Tenant<'_>, pod: &PodView) -> Option<Finding> {
    let container = main(pod)?;
    let is_crashing = match &container.state {
        ContainerState::Waiting(said) => {
            let origin = Origin::Tenant(tenant, Some(part(pod)));
            let finding = container::waiting(origin, pod, container, said);
            if finding.is_some() {
                return finding;
            }
            said.reason == "CrashLoopBackOff" || container.restarts > 0
        }
        ContainerState::Ended(_) => true,
        ContainerState::Running { .. } | ContainerState::Unknown => container.restarts > 0,
    };
    is_crashing.then(|| crashing(tenant, pod, container))
}

fn events(pod: &PodView) -> Command {
    pod.object().describe("the kubelet's Events")
}

/// Explains a program that ended and is restarted.
fn crashing(tenant: Tenant<'_>, pod: &PodView, container: &ContainerView) -> Finding {
    let (name, field) = (tenant.name(), part(pod));
    let restarts = match container.restarts {
        0 => String::new(),
        1 => "; it was started again once".to_owned(),
        count => format!("; it was started again {count} times"),
    };
    let exit = container.last_exit();
    let at = exit.and_then(|exit| exit.finished).map(Time);
    let how = exit.map_or_else(String::new, |exit| {
        let (code, reason, ago) = (exit.code, &exit.reason, tenant.ago(at.as_ref()));
        format!(": it exited with code {code} ({reason}){ago}")
    });
    let last = match exit.map(|exit| exit.message.as_str()) {
        None | Some("") => format!("exit code {}", exit.map_or(0, |exit| exit.code)),
        Some(message) => format!("its last words: {message}"),
    };
    let said = Report::of(tenant.world, pod, container);
    let waits = Evidence::new(&said.source, said.message, said.at);
    let waits = Some(waits).filter(|waits| !waits.text.is_empty());
    let killed = tenant.world.warning(&pod.meta.uid, &["Unhealthy"]);
    let killed = killed.filter(|event| event.message.starts_with("Liveness"));
    let out_of_memory = exit.is_some_and(Exit::is_out_of_memory);
    let advice = match (out_of_memory, killed, field) {
        (true, _, _) => format!("It used more memory than its limit and was killed: raise 'limits.memory' in '{field}.resources' of Tenant '{name}', or let it use less."),
        (false, Some(_), _) => format!("The kubelet kills it, because it does not answer its liveness probe: check 'server.probes.liveness' of Tenant '{name}', and its log."),
        (false, None, "redis") => "Read its log: it says what it does not like, often a line of 'redis.config' or the files on its volume.".to_owned(),
        (false, None, _) => "Read its log: the program itself says why it ends.".to_owned(),
    };
    finding! { Blocked "{advice} {AFTER_EDIT}";
        Error pod.object(), Reason::CrashLoop, "its program ends again and again{how}{restarts}";
        since pod.meta.created.as_ref(); seen waits;
        seen (format!("container '{}' ended before", container.name)) => (last), at.as_ref();
        seen killed.filter(|_| !out_of_memory).map(|event| event.evidence());
        then tenant.logs(pod, true), events(pod), tenant.edit(format!("change '{field}'"));
    }
}

/// Explains a program that runs but fails its probe.
fn unanswered(tenant: Tenant<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let ContainerState::Running { since } = &main(pod)?.state else {
        return None;
    };
    let started = since.map(Time);
    let since = started.as_ref().or(pod.meta.created.as_ref());
    if since.is_some() && tenant.age(since) < STARTING {
        return None;
    }
    let event = tenant.world.warning(&pod.meta.uid, &["Unhealthy"])?;
    if of == Part::Server && waits_for_redis(tenant) {
        return None;
    }
    let name = tenant.name();
    let server = tenant.view.server.as_ref();
    let port = server.map_or(0, |server| server.port);
    let path = server.and_then(|server| server.readiness.as_deref());
    let advice = match (of, path) {
        (Part::Redis, _) => "It is asked by 'redis-cli ping' in its own container: read its log; it may still load its data, or have no memory left.".to_owned(),
        (Part::Server, Some(path)) => format!("The kubelet asks for '{path}' on port {port}: check 'server.probes.readiness' and 'server.port' of Tenant '{name}', or mend the program."),
        (Part::Server, None) => format!("The kubelet tries to connect to port {port}: check 'server.port' of Tenant '{name}' (the program has it in PORT), or mend the program."),
    };
    let (on, said) = (pod.on_node(), &event.message);
    let at = since.map_or_else(String::new, |at| tenant.past(at));
    Some(finding! { Blocked "{advice} {AFTER_EDIT}";
        Error pod.object(), Reason::ProbeFailed, "runs{on} since {at}, but does not answer as its probe asks: {said}";
        since event.first.as_ref().or(since); seen event.evidence();
        then tenant.logs(pod, false), events(pod), tenant.edit(format!("correct '{}'", part(pod)));
    })
}

/// Returns whether the server waits for its Redis, or the Redis has only just become ready. Then
/// the server itself is not the problem.
fn waits_for_redis(tenant: Tenant<'_>) -> bool {
    if tenant.view.redis.is_none() {
        return false;
    }
    let seen = tenant.condition(condition::REDIS_READY);
    let is_just_seen = seen.is_some_and(|ready| {
        ready.status == "True" && tenant.age(Some(&ready.last_transition_time)) <= REACHED
    });
    let is_new = tenant
        .pods("redis")
        .filter(|pod| is_ready(pod))
        .filter_map(|pod| pod.condition("Ready")?.since.as_ref())
        .any(|at| tenant.age(Some(at)) <= REACHED);
    let redis = tenant.workload("redis");
    is_just_seen || is_new || redis.is_none_or(|redis| redis.rollout.ready < 1)
}

/// Explains the messages of the kubelet and the attacher about the volumes of a scheduled Pod.
fn unmounted(tenant: Tenant<'_>, pod: &PodView) -> Option<Finding> {
    if matches!(main(pod)?.state, ContainerState::Running { .. }) {
        return None;
    }
    let (_, link) = volume::unmounted(tenant.world, pod)?;
    let node = pod.node.as_deref().unwrap_or("?");
    Some(finding! {
        Blocked "The words are the kubelet's or the storage driver's: check the driver's Pod on node '{node}', and which node has the volume. The kubelet tries again by itself.";
        link link;
        then events(pod);
        shell "kubectl get volumeattachments" => "which node has which volume";
    })
}

/// Explains a Pod without a node, because its volume or the capacity is missing.
fn unplaced(tenant: Tenant<'_>, of: Part, pod: &PodView) -> Option<Finding> {
    let said = pod.unscheduled()?;
    let claim = claim(tenant).filter(|claim| of == Part::Redis && claim.phase != "Bound");
    if let Some(claim) = claim {
        let created = claim.meta.created.as_ref();
        let is_new = created.is_some() && tenant.age(created) < STARTING;
        if is_new && tenant.world.warnings(&claim.meta.uid).is_empty() {
            return None;
        }
        let finding = Pending::new(*tenant, claim).explain(Origin::Tenant(tenant, None));
        return Some(finding.below([volume::waits(pod, &claim.meta.name)]));
    }
    let since = said.since.as_ref().or(pod.meta.created.as_ref());
    if since.is_some() && tenant.age(since) < STARTING {
        return None;
    }
    let origin = Origin::Tenant(tenant, Some(part(pod)));
    Some(scheduling::no_node(origin, pod, said))
}

fn claim(tenant: Tenant<'_>) -> Option<&ClaimView> {
    let mut claims = tenant.world.claims.iter();
    claims.find(|claim| claim.meta.name == CLAIM)
}

/// Explains a claim that already existed and is smaller than requested.
pub(super) fn too_small(tenant: Tenant<'_>) -> Option<Finding> {
    let wanted = &tenant.view.redis.as_ref()?.size;
    let ClaimView { meta, size, .. } = claim(tenant)?;
    if parse(size)? >= parse(wanted)? {
        return None;
    }
    let object = tenant.here("PersistentVolumeClaim", CLAIM);
    let since = meta.created.as_ref();
    Some(finding! {
        Blocked "Enlarge the claim, if its StorageClass allows that, or create the Tenant with the size that is there. Delete the claim only if nobody needs its data.";
        Error object.clone(), Reason::VolumeNotReady, "was there before and has {size}, but 'redis.storage.size' asks for {wanted}";
        since since; seen "spec.resources.requests.storage" => (size), since;
        then object.describe("its size, its class and who uses it");
        then object.edit(format!("enlarge 'spec.resources.requests.storage' to {wanted}"));
    })
}

/// Explains a Pod that is starting without a problem so far.
pub(super) fn starting(tenant: Tenant<'_>, pod: &PodView) -> Finding {
    let state = main(pod).map_or(&ContainerState::Unknown, |one| &one.state);
    let (on, created) = (pod.on_node(), pod.meta.created.as_ref());
    let started = state.running_since().map(Time);
    let waits = part(pod) == "server" && waits_for_redis(tenant);
    let (sentence, source, text, since) = match state {
        ContainerState::Running { .. } => (
            match waits {
                true => format!("runs{on}, and waits for the Redis, which is not ready yet"),
                false => format!("runs{on}, and is not ready yet"),
            },
            "container running".to_owned(),
            "",
            started.as_ref().or(created),
        ),
        ContainerState::Waiting(Reported { reason, message }) => (
            format!("is being started{on}"),
            format!("container waiting: {reason}"),
            message.as_str(),
            created,
        ),
        ContainerState::Unknown | ContainerState::Ended(_) => (
            match &pod.node {
                Some(_) => format!("is being started{on}"),
                None => "is being placed on a node".to_owned(),
            },
            "status.phase".to_owned(),
            pod.phase.as_str(),
            created,
        ),
    };
    let warnings = tenant.world.warnings(&pod.meta.uid);
    finding! { Waiting "Wait: it is on its way. If it stays so, the Pod's Events say more.";
        Waiting pod.object(), Reason::Progressing, (sentence); since since; seen (source) => (text), since;
        seen warnings.first().map(|event| event.evidence());
        then tenant.look_again(), events(pod);
    }
}
