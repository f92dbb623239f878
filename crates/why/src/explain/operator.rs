//! Whether an operator is running: its Lease, and whether it has reconciled an object.

use crate::leader::{Absence, Installation, Leader, judge};

use super::*;

/// Time in seconds after which an unreconciled object is no longer just queued.
const PATIENCE: i64 = 30;
/// The flag that selects the operator's Pods by label, as set by the chart.
const PODS: &str = "-l app.kubernetes.io/name=orchestrator";

/// Returns the Lease with the newest renewal.
fn lease(world: &World) -> Option<&LeaseView> {
    let leases = world.leases.iter().flat_map(|all| all.iter());
    leases.max_by_key(|lease| lease.renewed.clone())
}

/// Returns whether the operator reports another version than that of this program.
pub(super) fn has_other_version(world: &World) -> bool {
    let version = lease(world).and_then(|lease| lease.version.as_deref());
    version.is_some_and(|version| version != env!("CARGO_PKG_VERSION"))
}

/// Judges the holder of a Lease by the operator's Deployment, if that was read.
fn leader(world: &World, lease: &LeaseView) -> Leader {
    let operator = world.operator_row().name;
    let found = world.operator.as_ref();
    let found = found.map(|found| Installation::of(operator, &lease.namespace, found));
    judge(lease, world.now.0, found.as_ref())
}

/// Returns whether a leader exists and renewed the Lease in time.
fn leads(world: &World, lease: &LeaseView) -> bool {
    leader(world, lease) == Leader::Leads
}

/// Returns whether it is certain that there is no leader: the Leases could be read, and none was
/// renewed in time by a process that can lead.
pub(crate) fn is_down(world: &World) -> bool {
    world.leases.is_some() && !lease(world).is_some_and(|lease| leads(world, lease))
}

/// Explains that the latest spec has not been reconciled. Within `PATIENCE` of a change, the object
/// just waits.
pub(super) fn not_seen(subject: Subject<'_>) -> Option<Finding> {
    let (world, meta) = (subject.world, subject.meta);
    let observed = subject.progress.observed_generation;
    if observed >= meta.generation.max(0) {
        return None;
    }
    let (since, what) = if observed < 0 {
        (meta.created.as_ref(), "was created")
    } else {
        (subject.changed.or(meta.created.as_ref()), "was changed")
    };
    let when = world.ago(since);
    let is_soon = world.age(since) <= PATIENCE && !is_down(world);
    let (reason, rest) = if is_soon {
        ("NotSeenYet", "; the operator looks at it within seconds")
    } else {
        ("NotSeen", ", and no operator has looked at it since")
    };
    let own = link! { Waiting subject.object(), reason, "{what}{when}{rest}"; since since;
        seen "status.observedGeneration" => (format!("{observed}, the spec's generation is {}", meta.generation)), since;
    };
    if is_soon {
        return Some(finding! { Waiting "Wait a few seconds.";
            link own;
            then subject.look_again();
        });
    }
    let finding = match lease(world).filter(|lease| leads(world, lease)) {
        Some(lease) => unwatched(subject, lease).since(since),
        None if world.leases.is_some() => down(world),
        None => down(world).then(subject.look_again()),
    };
    // Before the first reconciliation, the empty status shows that nothing was reconciled, but not
    // that no operator leads. Later the status belongs to an older spec.
    Some(
        finding
            .below([own])
            .newer_if(observed >= 0 || is_down(world)),
    )
}

/// Explains that a leader exists but has not reconciled the object.
fn unwatched(subject: Subject<'_>, lease: &LeaseView) -> Finding {
    let (namespace, home) = (&subject.meta.namespace, &lease.namespace);
    let (advice, place) = match namespace.as_str() {
        "" => (
            "Read the operator's log: it should look at everything of this kind within seconds."
                .to_owned(),
            String::new(),
        ),
        _ => (
            text! { "Check whether the operator watches namespace '{namespace}' ('watchNamespaces' of its chart), then read its log." },
            format!(" in namespace '{namespace}'"),
        ),
    };
    let config = shell! {
        "kubectl get configmap -n {home} {PODS} -o yaml | grep -A5 watchNamespaces" => "which namespaces it watches (none named: all)"
    };
    let renewed = text! { "Lease '{}' renewed by", subject.world.operator_row().lease };
    finding! { Blocked (advice);
        Error ObjectRef::namespaced("Operator", home, "orchestrator"), "NotWatched", "runs, but does not look at this {}{place}", subject.kind;
        seen (renewed) => (lease.holder.as_deref().unwrap_or_default()), lease.renewed.as_ref();
        seen installation::not_ready(subject.world, home);
        then Some(config).filter(|_| !namespace.is_empty()), logs(subject.world, home);
    }
}

/// Returns whether another Pod takes the Lease when it expires, because its holder ended. Then an end
/// of a Pod is no cause that lasts.
fn is_replaced(world: &World, lease: &LeaseView) -> bool {
    let is_over = match leader(world, lease) {
        Leader::Absent(absence) => matches!(
            absence,
            Absence::PodDeleted | Absence::PodStopped | Absence::PodRestarted
        ),
        Leader::Leads | Leader::Released | Leader::Expired => false,
    };
    let mut deployments = world.operator.iter().flat_map(|found| &found.deployments);
    is_over && deployments.any(|one| one.rollout.ready > 0)
}

/// Explains that no operator leads, or that the leader is unknown.
pub(super) fn down(world: &World) -> Finding {
    match (lease(world), installation::stopped(world)) {
        (Some(lease), stopped) => {
            let stopped = stopped.filter(|_| !is_replaced(world, lease));
            not_renewed(world, lease, stopped)
        }
        (None, stopped) if world.leases.is_some() => never_led(world, stopped),
        (None, _) => {
            let or_blind = match world.operator_row().needs_all_namespaces {
                None => ", or does not watch this namespace",
                Some(_) => "",
            };
            finding! { Blocked "The operator seems to be down{or_blind}. You may not read its Lease: ask an administrator of the operator, with this output.";
                note "whether an operator leads is not known: its Lease could not be read";
            }
        }
    }
}

/// Explains a Lease that no operator renews. `stopped` is the cause in the operator's Deployment.
fn not_renewed(world: &World, lease: &LeaseView, stopped: Option<Finding>) -> Finding {
    let (home, renewed) = (&lease.namespace, lease.renewed.as_ref());
    let last = renewed.map_or_else(|| "no time".to_owned(), |at| world.past(at));
    let leader = leader(world, lease);
    let how = match (&leader, &lease.holder) {
        (Leader::Absent(absence), Some(holder)) => {
            let why = absence.describe();
            format!("'{holder}' renewed it last at {last}, but {why}")
        }
        (_, Some(_)) => format!("it was renewed last at {last}, and should be every few seconds"),
        (_, None) => format!("it was released at {last}, and nobody took it"),
    };
    let holder = lease.holder.as_deref().unwrap_or("(nobody)");
    let own = link! {
        Error ObjectRef::namespaced("Lease", home, &lease.name), "OperatorDown", "no operator leads: {how}";
        since renewed; seen "spec.holderIdentity" => (holder), renewed;
    };
    if let Some(stopped) = stopped {
        return stopped.below([waiting(own)]);
    }
    let missing = world.operator.as_ref();
    let missing = missing.filter(|found| found.deployments.is_empty());
    let seconds = lease.duration_seconds;
    let advice = one_of! { (missing, &leader);
        (Some(_), _) => "Install the operator again: namespace '{home}' has no Deployment of it. It continues where it stopped.";
        (None, Leader::Absent(Absence::PodDeleted | Absence::PodStopped | Absence::PodRestarted)) => "Wait {seconds} s: then the Lease expires, and another Pod of the operator takes it. If none does, find out why its Pods do not run.";
        (None, Leader::Absent(Absence::OtherProcess)) => "Find out which process holds the Lease, and stop it: the operator's Pods lead only when it expires. Nobody but the chart's operator should hold it.";
        (None, Leader::Leads | Leader::Released | Leader::Expired | Leader::Absent(_)) => "Start the operator again, or find out why its Pods do not run. It continues where it stopped.";
    };
    finding! { Blocked (advice);
        link own;
        shell "kubectl get deployments,pods -n {home} {PODS}" => "does the operator run?";
        shell "kubectl describe pods -n {home} {PODS}" => "why its Pods do not run";
        shell "kubectl logs -n {home} {PODS} --prefix --previous --tail=50" => "what the operator said before it ended (without '--previous': what it says now)";
    }
}

/// Explains a cluster in which no operator ever led.
fn never_led(world: &World, stopped: Option<Finding>) -> Finding {
    let own = link! {
        Error ObjectRef::cluster("Lease", world.operator_row().lease), "OperatorDown", "does not exist in any namespace: no operator ever led in this cluster";
        seen world.not_found();
    };
    match stopped {
        Some(stopped) => stopped.below([waiting(own)]),
        None => {
            finding! { Blocked "Install the operator (its chart is 'orchestrator'), or find out why it never led.";
                link own;
                shell "kubectl get pods -A {PODS} -o wide" => "do the operator's Pods run?";
                shell "helm list -A" => "is the chart installed?";
            }
        }
    }
}

/// Returns the link of a Lease with a deeper cause.
fn waiting(lease: Link) -> Link {
    Link {
        health: Health::Waiting,
        ..lease
    }
}

fn logs(world: &World, namespace: &str) -> Command {
    let component = world.operator_row().name;
    shell! {
        "kubectl logs -n {namespace} {PODS},app.kubernetes.io/component={component} --prefix --tail=50" => "what the operator says"
    }
}

/// Returns the operator's namespace, if it is known.
pub(super) fn namespace(world: &World) -> Option<&str> {
    lease(world).map(|lease| lease.namespace.as_str())
}

/// Returns the command that prints the operator's log, if its namespace is known. A user who may
/// not read the Lease may not read the Pods either.
pub(super) fn log(world: &World) -> Option<Command> {
    world.leases.as_ref()?;
    Some(match namespace(world) {
        Some(home) => logs(world, home),
        None => shell!("kubectl get pods -A {PODS} -o wide" => "where the operator runs"),
    })
}

/// Returns the command that prints the operator's configuration, if its namespace is known.
pub(super) fn config(world: &World, purpose: &str) -> Option<Command> {
    world.leases.as_ref()?;
    let home = namespace(world);
    let place = home.map_or_else(|| "-A".to_owned(), |home| format!("-n {home}"));
    Some(shell!("kubectl get configmap {place} {PODS} -o yaml" => (purpose)))
}

/// Adds a missing leader to a finding, and makes it the headline: the object's own state is older.
/// Waiting objects need a leader to continue, so for them the missing leader is the blocker.
pub(super) fn needed(world: &World, mut finding: Finding) -> Finding {
    if !is_down(world) {
        return finding;
    }
    let down = down(world);
    let effect = match finding.state {
        State::Waiting => {
            finding.state = State::Blocked;
            finding.links.extend(down.links);
            finding.advice = down.advice;
            finding.next = down.next;
            return finding.newer();
        }
        State::Running => {
            "The agent runs on, but no operator leads: its end will not be recorded, and its 'timeout' not enforced."
        }
        State::Ready if world.app.is_some() => {
            "It was healthy, but no operator leads: a problem of the application is not reported."
        }
        State::Ready | State::NotIsolated | State::NotProven if world.tenant.is_some() => {
            "It works on, but no operator leads: what breaks is not repaired, and nothing is proven."
        }
        State::Ready => "Nothing that needs it starts until an operator leads.",
        State::Blocked | State::Suspended | State::Deleting => "",
        State::Succeeded
        | State::Failed
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => return finding,
    };
    let mut links = finding.links.iter();
    if links.any(|link| link.reason == "OperatorDown") {
        return finding;
    }
    let Some(link) = down.links.last() else {
        return finding;
    };
    // The finalizer of another component can go without an operator.
    if finding.state != State::Deleting {
        finding.headline = Some(link.clone());
    }
    finding.advice = match (effect, finding.advice.as_str()) {
        ("", "") => down.advice,
        ("", after) => format!("{} After that: {after}", down.advice),
        (effect, _) => format!("{effect} {}", down.advice),
    };
    if effect.is_empty() {
        let first = down.next.into_iter().take(1);
        finding.next = first.chain(finding.next).collect();
    } else {
        finding.next = down.next;
    }
    finding.note("until an operator leads, nothing is started, judged or stopped".to_owned())
}
