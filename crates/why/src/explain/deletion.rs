//! Objects and namespaces that are being deleted, and the finalizers and children that block the
//! deletion.

use super::*;

/// Time in seconds after which the operator reports the deletion of a run as blocked.
const STOP_WAIT: i64 = 600;

/// The text and the limits of a kind's deletion.
pub(super) struct Deletion<'a> {
    /// The finalizer that keeps the object until its children have stopped.
    pub(super) finalizer: &'a str,
    /// Time in seconds after which the deletion is blocked.
    pub(super) limit: i64,
    pub(super) is_forced: bool,
    /// The consequence of a forced deletion.
    pub(super) risk: &'a str,
    /// The state of the children, if only another finalizer is left.
    pub(super) done: &'a str,
}

impl Deletion<'_> {
    /// Explains an object that is being deleted. `ours` explains the wait of our own finalizer.
    pub(super) fn explain(
        &self,
        subject: Subject<'_>,
        ours: impl FnOnce() -> Finding,
    ) -> Option<Finding> {
        let since = subject.meta.deleting.as_ref();
        since?;
        let (kind, name, object) = (subject.kind, subject.name(), subject.object());
        let held = &subject.meta.finalizers;
        let other = held.iter().filter(|name| *name != self.finalizer);
        let names = other
            .map(String::as_str)
            .collect::<Vec<&str>>()
            .join("', '");
        let is_ours = held.iter().any(|name| name == self.finalizer);
        let mut finding = if is_ours && operator::is_down(subject.world) {
            operator::down(subject.world)
        } else if is_ours {
            ours()
        } else if names.is_empty() {
            finding! { Deleting "Wait: nothing holds it, and it is deleted in a moment."; }
        } else {
            finding! { Deleting "Find out what set '{names}' on {kind} '{name}' and let it finish. Take it off by hand (delete its line under 'metadata.finalizers') only if that no longer exists.";
                Error object.clone(), "Finalizer", "{}the finalizer '{names}', which is not Orchestrator's, holds it", self.done;
                since since; seen "metadata.finalizers" => (held.join(", ")), since; newer;
                then object.who("'metadata.managedFields' names the manager that set it");
                then object.edit("only if that no longer exists: delete its line under 'metadata.finalizers'");
            }
        };
        finding.state = State::Deleting;
        if is_ours && subject.age(since) > self.limit && !self.is_forced {
            finding.next.truncate(2);
            let (noun, risk) = (subject.noun, self.risk);
            let purpose = format!("the last way out: let the {noun} go without waiting; {risk}");
            finding = finding.then(object.force_delete(purpose));
        }
        Some(match finding.next.is_empty() {
            true => finding.then(object.yaml("its finalizers")),
            false => finding,
        })
    }
}

/// Explains a run that is being deleted.
pub(super) fn of_run(run: Run<'_>) -> Option<Finding> {
    let is_left = run.jobs().next().is_some()
        || !run.world.pods.is_empty()
        || !run.was_read("jobs")
        || !run.was_read("pods");
    let deletion = Deletion {
        finalizer: match &run.view.docs {
            Some(_) => "docsruns.orchestrator.io/finalizer",
            None => "taskruns.orchestrator.io/finalizer",
        },
        limit: STOP_WAIT,
        is_forced: run.view.force_delete,
        risk: "its Pod may still be at work then",
        done: if is_left {
            ""
        } else {
            "its Job and Pod are deleted; "
        },
    };
    deletion.explain(*run, || ours(run))
}

/// Explains that our finalizer waits for Jobs and Pods to stop.
fn ours(run: Run<'_>) -> Finding {
    let is_left = |pod: &&PodView| {
        let mut jobs = run.jobs();
        pod.may_run() || jobs.any(|job| pod.meta.is_owned_by(&job.meta.uid))
    };
    let pods = run.world.pods.iter().filter(is_left);
    let pod = pods.max_by_key(|pod| (pod.may_run(), pod.meta.created.clone()));
    let above = run.jobs().next().map(|job| {
        link! { Waiting job.object(), Reason::Deleting, "has to stop before the run can go";
            seen job.meta.deletion(run.world);
        }
    });
    if let Some(pod) = pod {
        return stopping(*run, pod, Stop::Ours(Reason::Deleting)).below(above);
    }
    if above.is_some() {
        return finding! { Deleting "Wait: the run's Job is being removed. If it stays for minutes, check the Job's finalizers.";
            link above;
            then commands::list("Job", run.namespace, "those that are left");
        };
    }
    let age = run.age(run.meta.deleting.as_ref());
    let log = operator::log(run.world);
    if !run.was_read("jobs") || !run.was_read("pods") {
        return finding! {
            Deleting "Wait, or ask someone who may read its Jobs and Pods what is left of them: the operator keeps the run until they have stopped.";
            then run.look_again(), log;
        };
    }
    match age > 60 {
        true => finding! {
            Deleting "Look into the operator's log: nothing is left of the run, and the operator has not removed its finalizer for {}.", times::span(age);
            then log;
        },
        false => finding! {
            Deleting "Wait: nothing is left of the run, and the operator removes its finalizer within seconds.";
            then log;
        },
    }
}

/// The conditions in which the namespace controller reports the remaining objects.
const HOLDS: &[&str] = &[
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NamespaceDeletionContentFailure",
    "NamespaceDeletionDiscoveryFailure",
];

impl NamespaceView {
    /// Returns the conditions that report remaining objects.
    pub(super) fn holds(&self) -> impl Iterator<Item = &ConditionView> {
        let all = self.conditions.iter();
        all.filter(|known| known.status == "True" && HOLDS.contains(&known.kind.as_str()))
    }

    /// Returns the request to delete it and the conditions about remaining objects, as evidence.
    pub(super) fn deletion(&self, conditions: usize) -> Vec<Evidence> {
        let asked = Evidence::new("deletion asked for", "", self.deleting.as_ref());
        let held = self.holds().take(conditions).map(|known| {
            let source = format!("condition {}=True", known.kind);
            Evidence::new(source, &known.message, known.since.as_ref())
        });
        [asked].into_iter().chain(held).collect()
    }
}

/// Explains a namespace that is being deleted. Nothing can be created in it anymore.
pub(super) fn of_namespace(run: Run<'_>) -> Option<Finding> {
    let namespace = run.world.namespace.as_ref()?;
    let since = namespace.deleting.as_ref();
    since?;
    let name = &namespace.name;
    let object = ObjectRef::cluster("Namespace", name);
    let mut link = link! {
        Error object.clone(), Reason::NamespaceTerminating, "is being deleted{}: nothing can be created in it, and the run goes with it", run.since(since);
        since since;
    };
    link.evidence = namespace.deletion(3);
    Some(finding! {
        Deleting "Submit the run in another namespace: it will be deleted with namespace '{name}'.";
        link link;
        then object.yaml("what its deletion waits for");
    })
}
