//! Whether an operator is running: its Lease, and whether it has reconciled an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Finding, commands};
use crate::{
    explanation::{Command, Health, Link, NoteKind, State},
    times,
    world::{LeaseView, Meta, ObjectRef, World},
};

/// Time in seconds after which an unreconciled object is no longer just queued.
const PATIENCE: i64 = 30;
/// The flag that selects the operator's Pods by label, as set by the chart.
const PODS: &str = "-l app.kubernetes.io/name=orchestrator";

/// The state of the leader election.
#[derive(Debug, Clone, Copy)]
pub(super) enum Leader<'a> {
    /// A leader exists and renewed the Lease in time.
    Leads(&'a LeaseView),
    /// No leader: the Lease was not renewed in time, or it was released.
    Stale(&'a LeaseView),
    /// The Lease does not exist.
    Absent,
    /// The Lease could not be read.
    Unknown,
}

/// Returns the state of the leader election, from the Lease with the newest renewal.
pub(super) fn leader(world: &World) -> Leader<'_> {
    let Some(leases) = &world.leases else {
        return Leader::Unknown;
    };
    let Some(lease) = leases.iter().max_by_key(|lease| lease.renewed.clone()) else {
        return Leader::Absent;
    };
    let age = lease.renewed.as_ref().map_or(i64::MAX, |renewed| {
        world
            .now
            .0
            .as_second()
            .saturating_sub(renewed.0.as_second())
    });
    // Clocks of machines differ. An age above twice the duration is too long for that.
    if lease.holder.is_some() && age <= lease.duration_seconds.saturating_mul(2).max(PATIENCE) {
        Leader::Leads(lease)
    } else {
        Leader::Stale(lease)
    }
}

/// Returns whether it is certain that there is no leader.
pub(super) fn is_down(world: &World) -> bool {
    matches!(leader(world), Leader::Stale(_) | Leader::Absent)
}

/// The fields of an object that show whether it was reconciled.
pub(super) struct Looked<'a> {
    pub(super) kind: &'a str,
    pub(super) meta: &'a Meta,
    pub(super) observed: i64,
    pub(super) changed: Option<&'a Time>,
}

/// Explains that the latest spec has not been reconciled. Within `PATIENCE` of a change, the object
/// just waits.
pub(super) fn not_seen(world: &World, looked: &Looked<'_>) -> Option<Finding> {
    let Looked {
        kind,
        meta,
        observed,
        changed,
    } = *looked;
    if observed >= meta.generation.max(0) {
        return None;
    }
    let (since, what) = if observed < 0 {
        (meta.created.as_ref(), "was created")
    } else {
        (changed.or(meta.created.as_ref()), "was changed")
    };
    let age = since.map_or(0, |since| {
        world.now.0.as_second().saturating_sub(since.0.as_second())
    });
    let when = since.map_or_else(String::new, |since| {
        format!(" at {}", times::at(world.now.0, since.0))
    });
    let object = match meta.namespace.as_str() {
        "" => ObjectRef::cluster(kind, &meta.name),
        namespace => ObjectRef::namespaced(kind, namespace, &meta.name),
    };
    let again = commands::again(kind, &meta.name, &meta.namespace);
    if age <= PATIENCE && !is_down(world) {
        return Some(
            Finding::new(State::Waiting, "Wait a few seconds.")
                .link(
                    Link::new(
                        object,
                        Health::Waiting,
                        "NotSeenYet",
                        format!("{what}{when}; the operator looks at it within seconds"),
                    )
                    .since(since)
                    .seen(
                        "status.observedGeneration",
                        format!("{observed}, the spec's generation is {}", meta.generation),
                        since,
                    ),
                )
                .then(again),
        );
    }
    let own = Link::new(
        object,
        Health::Waiting,
        "NotSeen",
        format!("{what}{when}, and no operator has looked at it since"),
    )
    .since(since)
    .seen(
        "status.observedGeneration",
        format!("{observed}, the spec's generation is {}", meta.generation),
        since,
    );
    let finding = match leader(world) {
        Leader::Leads(lease) => unwatched(world, lease, looked, since),
        Leader::Stale(_) | Leader::Absent => down(world),
        Leader::Unknown => {
            let mut finding = down(world);
            finding.next.push(again);
            finding
        }
    };
    let finding = finding.below(vec![own]);
    // Before the first reconciliation, the empty status already shows this. Later the status
    // belongs to an older spec.
    Some(if observed < 0 {
        finding
    } else {
        finding.newer()
    })
}

/// Explains that a leader exists but has not reconciled the object.
fn unwatched(
    world: &World,
    lease: &LeaseView,
    looked: &Looked<'_>,
    since: Option<&Time>,
) -> Finding {
    let Looked { kind, meta, .. } = *looked;
    let namespace = &meta.namespace;
    let (advice, place) = match namespace.as_str() {
        "" => (
            "Read the operator's log: it should look at everything of this kind within seconds."
                .to_owned(),
            String::new(),
        ),
        namespace => (
            format!(
                "Check whether the operator watches namespace '{namespace}' ('watchNamespaces' of its chart), then read its log."
            ),
            format!(" in namespace '{namespace}'"),
        ),
    };
    let finding = Finding::new(State::Blocked, advice).link(
        Link::new(
            ObjectRef::namespaced("Operator", &lease.namespace, "orchestrator"),
            Health::Error,
            "NotWatched",
            format!("runs, but does not look at this {kind}{place}"),
        )
        .since(since)
        .seen(
            format!("Lease '{}' renewed by", world.operator().lease),
            lease.holder.as_deref().unwrap_or_default(),
            lease.renewed.as_ref(),
        ),
    );
    let finding = match namespace.as_str() {
        "" => finding,
        _ => finding.then(Command::new(
            format!(
                "kubectl get configmap -n {} {PODS} -o yaml | grep -A5 watchNamespaces",
                lease.namespace
            ),
            "which namespaces it watches (none named: all)",
        )),
    };
    finding.then(logs(world, &lease.namespace))
}

fn lease_object(lease: &LeaseView) -> ObjectRef {
    ObjectRef::namespaced("Lease", &lease.namespace, &lease.name)
}

/// Explains that no operator leads, or that the leader is unknown.
pub(super) fn down(world: &World) -> Finding {
    match leader(world) {
        Leader::Stale(lease) | Leader::Leads(lease) => {
            let renewed = lease.renewed.as_ref();
            let last = renewed.map_or_else(
                || "no time".to_owned(),
                |renewed| times::at(world.now.0, renewed.0),
            );
            let sentence = match &lease.holder {
                Some(_) => format!("no operator leads: it was renewed last at {last}, and should be every few seconds"),
                None => format!("no operator leads: it was released at {last}, and nobody took it"),
            };
            let link = Link::new(lease_object(lease), Health::Error, "OperatorDown", sentence)
                .since(renewed)
                .seen(
                    "spec.holderIdentity",
                    lease.holder.as_deref().unwrap_or("(nobody)"),
                    renewed,
                );
            let finding = Finding::new(
                State::Blocked,
                "Start the operator again, or find out why its Pods do not run. It goes on where it stopped.",
            );
            with_commands(finding.link(link), &lease.namespace)
        }
        Leader::Absent => Finding::new(
            State::Blocked,
            "Install the operator (its chart is 'orchestrator'), or find out why it never led.",
        )
        .link(
            Link::new(
                ObjectRef {
                    kind: "Lease".to_owned(),
                    namespace: None,
                    name: world.operator().lease.to_owned(),
                },
                Health::Error,
                "OperatorDown",
                "does not exist in any namespace: no operator ever led in this cluster",
            )
            .seen("looked for it", "not found", Some(&world.now)),
        )
        .then(Command::new(
            format!("kubectl get pods -A {PODS} -o wide"),
            "do the operator's Pods run?",
        ))
        .then(Command::new("helm list -A", "is the chart installed?")),
        Leader::Unknown => Finding::new(
            State::Blocked,
            match world.operator().needs_all_namespaces {
                None => "The operator seems to be down, or does not watch this namespace. You may not read its Lease: ask whoever runs the operator, with this output.",
                Some(_) => "The operator seems to be down. You may not read its Lease: ask whoever runs the operator, with this output.",
            },
        )
        .note(NoteKind::Hint, "whether an operator leads is not known: its Lease could not be read"),
    }
}

/// Adds the commands that show why an operator does not run.
fn with_commands(finding: Finding, namespace: &str) -> Finding {
    finding
        .then(Command::new(
            format!("kubectl get deployments,pods -n {namespace} {PODS}"),
            "does the operator run?",
        ))
        .then(Command::new(
            format!("kubectl describe pods -n {namespace} {PODS}"),
            "why its Pods do not run",
        ))
        .then(Command::new(
            format!("kubectl logs -n {namespace} {PODS} --prefix --previous --tail=50"),
            "what the operator said before it ended (without '--previous': what it says now)",
        ))
}

fn logs(world: &World, namespace: &str) -> Command {
    Command::new(
        format!(
            "kubectl logs -n {namespace} {PODS},app.kubernetes.io/component={} --prefix --tail=50",
            world.operator().name
        ),
        "what the operator says",
    )
}

/// Returns the operator's namespace, if it is known.
pub(super) fn namespace(world: &World) -> Option<&str> {
    match leader(world) {
        Leader::Leads(lease) | Leader::Stale(lease) => Some(&lease.namespace),
        Leader::Absent | Leader::Unknown => None,
    }
}

/// Returns the command that prints the operator's log, if its namespace is known.
pub(super) fn log(world: &World) -> Option<Command> {
    match leader(world) {
        Leader::Leads(lease) | Leader::Stale(lease) => Some(logs(world, &lease.namespace)),
        Leader::Absent => Some(Command::new(
            format!("kubectl get pods -A {PODS} -o wide"),
            "where the operator runs",
        )),
        // A user who may not read the Lease may not read the Pods either.
        Leader::Unknown => None,
    }
}

/// Returns the command that prints the operator's configuration, if its namespace is known.
pub(super) fn config(world: &World, purpose: &str) -> Option<Command> {
    let place = match leader(world) {
        Leader::Leads(lease) | Leader::Stale(lease) => format!("-n {}", lease.namespace),
        Leader::Absent => "-A".to_owned(),
        Leader::Unknown => return None,
    };
    Some(Command::new(
        format!("kubectl get configmap {place} {PODS} -o yaml"),
        purpose,
    ))
}

/// Adds a missing leader to a finding. Waiting objects need a leader to continue, so for them the
/// missing leader is the blocker.
pub(super) fn needed(world: &World, mut finding: Finding) -> Finding {
    if !is_down(world) {
        return finding;
    }
    match finding.state {
        State::Waiting => {
            let down = down(world);
            finding.state = State::Blocked;
            finding.links.extend(down.links);
            finding.advice = down.advice;
            finding.next = down.next;
            finding.newer()
        }
        State::Running => {
            let down = down(world);
            finding.advice = format!(
                "The agent runs on, but no operator leads: its end will not be recorded, and its 'timeout' not enforced. {}",
                down.advice
            );
            finding.next = down.next;
            noted(world, finding)
        }
        State::Blocked | State::Deleting | State::Suspended => noted(world, finding),
        State::Ready | State::NotIsolated | State::NotProven if world.tenant.is_some() => {
            let down = down(world);
            finding.advice = format!(
                "It works on, but no operator leads: what breaks is not repaired, and nothing is proven. {}",
                down.advice
            );
            finding.next = down.next;
            noted(world, finding)
        }
        State::Succeeded
        | State::Failed
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => finding,
    }
}

fn noted(world: &World, finding: Finding) -> Finding {
    let already = finding
        .links
        .iter()
        .any(|link| link.reason == "OperatorDown");
    let words = down(world).links.pop().map(|link| link.message);
    match words.filter(|_| !already) {
        Some(words) => finding.note(
            NoteKind::Hint,
            format!(
                "Lease '{}': {words}; until one leads, nothing is started, judged or stopped",
                world.operator().lease
            ),
        ),
        None => finding,
    }
}
