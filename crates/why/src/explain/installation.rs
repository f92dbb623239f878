//! The installation of Orchestrator: an operator that does not run, and CRDs that do not fit.

use api::{crd::first_parts, kinds};

use crate::world::{CrdView, OperatorView};

use super::*;

/// Explains why no Pod of the operator leads: its Deployment has no replicas, or its Pods do not run.
/// Returns `None` if its Deployments could not be read, or show no cause.
pub(super) fn stopped(world: &World) -> Option<Finding> {
    let found = world.operator.as_ref()?;
    let deployment = found.deployments.first()?;
    let object = deployment.meta.object("Deployment");
    let (name, home) = (&deployment.meta.name, &deployment.meta.namespace);
    let rollout = &deployment.rollout;
    let (ready, wanted) = (rollout.ready, rollout.wanted);
    let counts = || world.seen("status", format!("{ready} of {wanted} ready"));
    if wanted == 0 {
        return Some(finding! {
            Blocked "Scale the operator up, unless someone stopped it on purpose. It continues where it stopped.";
            Error object.clone(), "OperatorDown", "has 0 replicas: it was scaled to 0, so no operator runs";
            seen world.seen("spec.replicas", "0");
            then object.who("'metadata.managedFields' names the manager that scaled it");
            shell "kubectl scale deployment {name} -n {home} --replicas=2" => "start the operator (the chart's default is 2)";
        });
    }
    if let Some(failure) = &deployment.failure {
        let message = &failure.message;
        return Some(finding! {
            Blocked "Correct what the message names: the operator's Pods cannot be created.";
            Error object.clone(), "OperatorDown", "has no Pods, because they cannot be created: {message}";
            since failure.since.as_ref(); seen failure.evidence();
            then object.describe("its conditions and Events");
        });
    }
    let above =
        link! { Waiting object, "OperatorDown", "{ready} of {wanted} ready"; seen counts(); };
    Some(failing(world, found)?.below([above]))
}

/// Returns evidence that no Pod of the operator is ready, if that is known. Its leader may still run.
pub(super) fn not_ready(world: &World, home: &str) -> Option<Evidence> {
    let mut deployments = world.operator.iter().flat_map(|found| &found.deployments);
    let deployment = deployments.find(|one| one.meta.namespace == home)?;
    let (ready, wanted) = (deployment.rollout.ready, deployment.rollout.wanted);
    let source = format!("Deployment '{}'", deployment.meta.name);
    (ready == 0).then(|| world.seen(&source, format!("{ready} of {wanted} ready")))
}

/// Explains the newest Pod of the operator that does not run.
fn failing(world: &World, found: &OperatorView) -> Option<Finding> {
    let mut pods: Vec<&PodView> = found.pods.iter().flat_map(|pods| pods.iter()).collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.meta.created.clone()));
    pods.iter().find_map(|pod| not_running(world, pod))
}

fn not_running(world: &World, pod: &PodView) -> Option<Finding> {
    let (name, home) = (&pod.meta.name, &pod.meta.namespace);
    let describe = || pod.object().describe("the Pod's conditions and Events");
    if let Some(known) = pod.unscheduled() {
        return Some(finding! {
            Blocked "Make room for the operator's Pod, or change its placement in the chart.";
            Error pod.object(), "OperatorDown", "has no node: {}", known.message;
            since known.since.as_ref(); seen known.evidence();
            then describe();
        });
    }
    let container = pod.current()?;
    let part = &container.name;
    if let Some(exit) = container.last_exit() {
        let (code, reason) = (exit.code, &exit.reason);
        let at = exit.finished.map(Time);
        let ago = world.ago(at.as_ref());
        let count = restarted(container.restarts);
        return Some(finding! {
            Blocked "The operator's program ends by itself: read the log of its last end, which has the cause.";
            Error pod.object(), "OperatorDown", "its program crashes: it exited with code {code} ({reason}){ago}{count}";
            since at.as_ref(); seen "container '{part}' ended" => "exit code {code}", at.as_ref();
            shell "kubectl logs {name} -n {home} --previous --tail=50" => "the operator's log before its last end";
            then describe();
        });
    }
    let waiting = container.state.waiting()?;
    let Reported { reason, message } = waiting;
    Some(finding! {
        Blocked "Correct what the message names: the operator's container does not start.";
        Error pod.object(), "OperatorDown", "its container does not start ({reason}): {message}";
        since pod.meta.created.as_ref();
        seen "container '{part}' waiting: {reason}" => (message), pod.meta.created.as_ref();
        then describe();
    })
}

/// Formats a number of restarts as `, and was restarted once`.
fn restarted(restarts: i32) -> String {
    match restarts {
        0 => String::new(),
        1 => ", and was restarted once".to_owned(),
        count => format!(", and was restarted {count} times"),
    }
}

/// A CRD of the operator's kinds that does not fit: as it was read, or as the operator reports it.
struct Misfit {
    object: ObjectRef,
    reason: &'static str,
    message: String,
    since: Option<Time>,
    evidence: Evidence,
    /// Whether the status of the object names it as the cause.
    is_named: bool,
    /// Whether the object cannot be reconciled without it: the CRD of its own kind, or of the Agents of a run.
    is_needed: bool,
    /// Whether it could not be read, so that only the operator's message is known.
    is_hidden: bool,
}

/// Adds a CRD that does not fit to a finding.
/// - It is the blocker if the object waits for it: see [`Misfit::blocks`].
/// - It is the headline while the object is unfinished: without one of its CRDs, the operator reconciles nothing. With an
///   outdated one, the API server drops fields of the status.
/// - Otherwise it is a note.
pub(super) fn checked(subject: Subject<'_>, finding: Finding) -> Finding {
    let deepest = finding.links.last().map(|link| link.reason.as_str());
    let is_unwatched = deepest == Some("NotWatched");
    let Some(misfit) = misfit(subject) else {
        let is_hidden = subject.world.crds.iter().any(|crd| crd.forbidden);
        return match is_unwatched && is_hidden {
            true => finding.note("you may not read CRDs: the operator also leaves the objects of a CRD alone that is missing or older than the operator (orc check)".to_owned()),
            false => finding,
        };
    };
    // The operator reports what its own version needs. Another version may need less than this program knows.
    let is_certain = misfit.is_named || !operator::has_other_version(subject.world);
    if misfit.blocks(finding.state, is_unwatched, is_certain) {
        return blocker(misfit, finding);
    }
    let is_unfinished = !matches!(
        finding.state,
        State::Succeeded | State::Failed | State::Unmanaged | State::Deleting
    );
    let is_concerned = match misfit.reason {
        OUTDATED => misfit.is_named || misfit.is_needed,
        reason => reason == NOT_FOUND,
    };
    // An operator that does not run is the first thing to repair.
    let is_led = !operator::is_down(subject.world);
    if is_concerned && is_certain && is_unfinished && is_led {
        return headline(misfit, finding);
    }
    let (name, message) = (&misfit.object.name, &misfit.message);
    finding.note(text! { "CRD '{name}' {message}; apply the CRDs of the operator's version: {}", api::crd::APPLY })
}

/// Returns the CRD that does not fit. The CRD that the status names comes first, then one that the object needs.
fn misfit(subject: Subject<'_>) -> Option<Misfit> {
    let (world, message) = (subject.world, subject.message());
    let reported = messages::missing_crd(message).map(|name| (name, ""));
    let reported = reported.or_else(|| messages::outdated_crd(message));
    let named = reported.map(|(name, _)| name);
    let unfit = world.crds.iter().filter(|crd| !crd.fits());
    let rank = |crd: &&CrdView| {
        let is_named = named == Some(crd.name.as_str());
        (!is_named, !subject.needs(&crd.name), crd.exists)
    };
    if let Some(crd) = unfit.min_by_key(rank) {
        let evidence = match crd.exists {
            true => subject.seen("read it", crd.lacks.join(", ")),
            false => subject.not_found(),
        };
        return Some(Misfit {
            object: ObjectRef::cluster("CustomResourceDefinition", &crd.name),
            reason: crd.reason(),
            message: crd.words(world),
            since: crd.deleting.clone(),
            evidence,
            is_named: named == Some(crd.name.as_str()),
            is_needed: subject.needs(&crd.name),
            is_hidden: false,
        });
    }
    let (name, lacks) = reported?;
    // A CRD that was read fits by now.
    let mut read = world.crds.iter().filter(|crd| !crd.forbidden);
    if read.any(|crd| crd.name == name) {
        return None;
    }
    let (reason, message) = match lacks {
        "" => (NOT_FOUND, MISSING.to_owned()),
        lacks => (OUTDATED, outdated("the operator", lacks)),
    };
    Some(Misfit {
        object: ObjectRef::cluster("CustomResourceDefinition", name),
        reason,
        message,
        since: None,
        evidence: subject.said(),
        is_named: true,
        is_needed: subject.needs(name),
        is_hidden: true,
    })
}

impl Subject<'_> {
    /// Returns whether the object cannot be reconciled without this CRD.
    fn needs(self, crd: &str) -> bool {
        let is_of = |kind: &str| kinds::named(kind).is_some_and(|row| row.crd_name == crd);
        is_of(self.kind) || (self.noun == "run" && is_of("Agent"))
    }
}

/// Replaces the deepest cause by the CRD.
fn blocker(misfit: Misfit, finding: Finding) -> Finding {
    let object = misfit.object.clone();
    let is_kept = |link: &Link| link.reason != "NotWatched" && link.object != object;
    let above: Vec<Link> = finding.links.into_iter().filter(is_kept).collect();
    let advice = match misfit.reason {
        TERMINATING => {
            "Let the deletion of the CRD finish: it deletes all objects of this kind. Then apply the CRDs of the operator's version."
        }
        _ => "Apply the CRDs of the operator's version. The operator continues within a minute.",
    };
    let is_hidden = misfit.is_hidden;
    let mut blocked = finding! { Blocked (advice);
        link misfit.link();
        then object.describe("its conditions and versions"), commands::apply_crds();
    };
    blocked.notes = finding.notes;
    hidden(blocked.newer(), is_hidden).below(above)
}

/// Makes a CRD the headline: the status does not show the problem, and may be wrong.
fn headline(misfit: Misfit, mut finding: Finding) -> Finding {
    let now = match misfit.reason {
        NOT_FOUND => {
            "Apply the CRDs of the operator's version: until then, the operator starts, judges and stops nothing."
        }
        _ => {
            "Apply the CRDs of the operator's version: the API server drops what the CRD lacks, so the status may be incomplete."
        }
    };
    finding.advice = match (finding.state, finding.advice.as_str()) {
        (State::Running | State::Ready, _) | (_, "") => now.to_owned(),
        (_, after) => format!("{now} After that: {after}"),
    };
    finding.next.insert(0, commands::apply_crds());
    let is_hidden = misfit.is_hidden;
    finding.headline = Some(misfit.link());
    hidden(finding, is_hidden)
}

/// Adds a note if the CRD could not be read.
fn hidden(finding: Finding, is_hidden: bool) -> Finding {
    match is_hidden {
        true => finding.note(
            "the CRD could not be read: only the operator's message about it is known, and the problem may be solved by now"
                .to_owned(),
        ),
        false => finding,
    }
}

impl Misfit {
    /// Returns whether the object waits for the CRD. `is_unwatched`: the operator runs, and has not written a status for
    /// the latest spec. `is_certain`: the operator has the schema of this program.
    fn blocks(&self, state: State, is_unwatched: bool, is_certain: bool) -> bool {
        let is_missing = self.reason == NOT_FOUND;
        match state {
            // Without the CRD of one of its kinds, the operator reconciles nothing.
            State::Waiting | State::Blocked if is_missing && (self.is_named || self.is_needed) => {
                true
            }
            State::Waiting if self.is_named => true,
            State::Waiting | State::Blocked if is_unwatched => {
                self.is_needed || (is_missing && is_certain)
            }
            State::Succeeded
            | State::Failed
            | State::Running
            | State::Waiting
            | State::Blocked
            | State::Suspended
            | State::Deleting
            | State::Ready
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => false,
        }
    }

    fn link(self) -> Link {
        let Self {
            object,
            reason,
            message,
            since,
            evidence,
            ..
        } = self;
        link! { Error object, reason, (message); since since.as_ref(); seen evidence; }
    }
}

/// The reasons of the link of a CRD.
const NOT_FOUND: &str = "CRDNotFound";
const TERMINATING: &str = "CRDTerminating";
const OUTDATED: &str = "CRDOutdated";

/// The problem of a CRD that is not installed.
const MISSING: &str =
    "is not installed: none of its objects can exist, and the operator waits for it";

/// Describes a CRD that lacks parts of the schema of this release or of the operator.
fn outdated(release: &str, lacks: &str) -> String {
    format!("is older than {release}: it lacks {lacks}")
}

impl CrdView {
    /// Returns whether the CRD exists, stays, and has all that this release writes, as far as it may be read.
    fn fits(&self) -> bool {
        self.forbidden || (self.exists && self.deleting.is_none() && self.lacks.is_empty())
    }

    fn reason(&self) -> &'static str {
        match (self.exists, &self.deleting) {
            (false, _) => NOT_FOUND,
            (true, Some(_)) => TERMINATING,
            (true, None) => OUTDATED,
        }
    }

    /// Describes why the CRD does not fit.
    fn words(&self, world: &World) -> String {
        match (self.exists, &self.deleting) {
            (false, _) => MISSING.to_owned(),
            (true, Some(at)) => {
                let at = world.when(at);
                format!("is being deleted since {at}, with all objects of its kind")
            }
            (true, None) => outdated("this release", &first_parts(&self.lacks)),
        }
    }
}
