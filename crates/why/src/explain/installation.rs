//! The installation of Orchestrator: an operator that does not run, and CRDs that do not fit.

use crate::world::{CrdView, OperatorView};

use super::*;

/// Number of missing fields of a CRD that a message names.
const NAMED: usize = 3;

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

/// Adds a CRD that does not fit to a finding. It is the blocker if it is missing, or if the operator
/// runs but could not write the status of the object.
pub(super) fn checked(subject: Subject<'_>, finding: Finding) -> Finding {
    let Some(crd) = subject.world.crds.iter().find(|crd| !crd.fits()) else {
        return finding;
    };
    let is_open = matches!(finding.state, State::Waiting | State::Blocked);
    let deepest = finding.links.last().map(|link| link.reason.as_str());
    if is_open && (!crd.exists || deepest == Some("NotWatched")) {
        let mut blocked = blocker(subject, crd);
        let above = finding.links.into_iter();
        blocked.notes = finding.notes;
        return blocked.below(above.filter(|link| link.reason != "NotWatched"));
    }
    let object = ObjectRef::cluster("CustomResourceDefinition", &crd.name);
    let (name, words) = (&object.name, crd.words(subject.world));
    finding.note(text! { "CRD '{name}' {words}; apply the CRDs of the operator's version: {}", commands::apply_crds() })
}

fn blocker(subject: Subject<'_>, crd: &CrdView) -> Finding {
    let object = ObjectRef::cluster("CustomResourceDefinition", &crd.name);
    let reason = match (crd.exists, &crd.deleting) {
        (false, _) => "CRDNotFound",
        (true, Some(_)) => "CRDTerminating",
        (true, None) => "CRDOutdated",
    };
    let advice = match reason {
        "CRDTerminating" => {
            "Let the deletion of the CRD finish: it deletes all objects of this kind. Then apply the CRDs of the operator's version."
        }
        _ => "Apply the CRDs of the operator's version. The operator continues within a minute.",
    };
    finding! { Blocked (advice);
        Error object.clone(), reason, (crd.words(subject.world));
        since crd.deleting.as_ref(); seen subject.seen("read it", crd.lacks.join(", "));
        then object.describe("its conditions and versions");
        then Command::new(commands::apply_crds(), "apply the CRDs, in the sources of the operator's version");
    }
}

impl CrdView {
    /// Returns whether the CRD exists, stays, and has all that this release writes.
    fn fits(&self) -> bool {
        self.exists && self.deleting.is_none() && self.lacks.is_empty()
    }

    /// Describes why the CRD does not fit.
    fn words(&self, world: &World) -> String {
        if !self.exists {
            return "does not exist in this cluster".to_owned();
        }
        if let Some(at) = &self.deleting {
            let at = world.when(at);
            return format!("is being deleted since {at}, with all objects of its kind");
        }
        let named: Vec<&str> = self.lacks.iter().take(NAMED).map(String::as_str).collect();
        let named = named.join(", ");
        let rest = match self.lacks.len().saturating_sub(NAMED) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!("is older than this release: it lacks {named}{rest}")
    }
}
