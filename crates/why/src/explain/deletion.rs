//! Objects and namespaces that are being deleted, and the finalizers and children that block the
//! deletion.

use api::Reason;

use super::{
    Finding, commands, operator,
    run_context::RunContext,
    stop::{Stop, stopping},
};
use crate::{
    explanation::{Command, Health, Link, State},
    times,
    world::{ObjectRef, PodView},
};

/// Returns the finalizer that keeps a run until its Job has stopped.
fn finalizer(context: RunContext<'_>) -> &'static str {
    match &context.run.docs {
        Some(_) => "docsruns.orchestrator.io/finalizer",
        None => "taskruns.orchestrator.io/finalizer",
    }
}

/// Time in seconds after which the operator reports a deletion as blocked.
const STOP_WAIT: i64 = 600;

/// Explains a run that is being deleted.
pub(super) fn of_run(context: RunContext<'_>) -> Option<Finding> {
    let since = context.run.meta.deleting.as_ref()?;
    let held = &context.run.meta.finalizers;
    let foreign: Vec<&str> = held
        .iter()
        .map(String::as_str)
        .filter(|name| *name != finalizer(context))
        .collect();
    let is_ours = held.iter().any(|name| name == finalizer(context));
    let mut finding = if is_ours && operator::is_down(context.world) {
        operator::down(context.world)
    } else if is_ours {
        ours(context)
    } else if foreign.is_empty() {
        Finding::new(
            State::Deleting,
            "Nothing holds it: it is deleted in a moment.",
        )
    } else {
        others(context, &foreign)
    };
    finding.state = State::Deleting;
    if is_ours && context.age(since) > STOP_WAIT && !context.run.force_delete {
        finding.next.truncate(2);
        finding = finding.then(Command::new(
            format!(
                "kubectl annotate {} {} -n {} orchestrator.io/force-delete=true",
                commands::resource(context.kind()),
                context.run.meta.name,
                context.namespace()
            ),
            "the last way out: let the run go without waiting; its Pod may still be at work then",
        ));
    }
    if finding.next.is_empty() {
        finding = finding.then(commands::yaml(&context.object(), "its finalizers"));
    }
    Some(finding)
}

fn others(context: RunContext<'_>, foreign: &[&str]) -> Finding {
    let names = foreign.join("', '");
    let is_left = context.jobs().next().is_some() || !context.world.pods.is_empty();
    let gone = if is_left {
        ""
    } else {
        "its Job and Pod are deleted; "
    };
    let link = Link::new(
        context.object(),
        Health::Error,
        "Finalizer",
        format!("{gone}the finalizer '{names}', which is not Orchestrator's, holds it"),
    )
    .since(context.run.meta.deleting.as_ref())
    .seen(
        "metadata.finalizers",
        context.run.meta.finalizers.join(", "),
        context.run.meta.deleting.as_ref(),
    );
    Finding::new(
        State::Deleting,
        format!("Find out what set '{names}' on {} '{}' and let it finish. Take it off by hand (delete its line under 'metadata.finalizers') only if that no longer exists.", context.kind(), context.run.meta.name),
    )
    .link(link)
    .newer()
    .then(commands::who(&context.object(), "'metadata.managedFields' names who set it"))
    .then(commands::edit(&context.object(), "only if that no longer exists: delete its line under 'metadata.finalizers'"))
}

/// Explains that our finalizer waits for Jobs and Pods to stop.
fn ours(context: RunContext<'_>) -> Finding {
    let jobs: Vec<_> = context.jobs().collect();
    let is_left = |pod: &&PodView| {
        let of_job = jobs.iter().any(|job| {
            pod.meta
                .owner
                .as_ref()
                .is_some_and(|owner| owner.uid == job.meta.uid)
        });
        of_job || pod.may_run()
    };
    let pod = context
        .world
        .pods
        .iter()
        .filter(is_left)
        .max_by_key(|pod| (pod.may_run(), pod.meta.created.clone()));
    let mut above = Vec::new();
    if let Some(job) = jobs.first() {
        let link = Link::new(
            job.object(),
            Health::Waiting,
            Reason::Deleting,
            "has to stop before the run can go",
        );
        above.push(match &job.meta.deleting {
            Some(at) => link.seen("deletion asked for", "", Some(at)),
            None => link.seen("deletion asked for", "not yet", Some(&context.world.now)),
        });
    }
    let Some(pod) = pod else {
        return match above.is_empty() {
            true => Finding::new(State::Deleting, released(context))
            .maybe(operator::log(context.world)),
            false => Finding::new(
                State::Deleting,
                "Wait: the run's Job is being removed. If it stays for minutes, check the Job's finalizers.",
            )
            .below(above)
            .then(commands::list(
                "Job",
                context.namespace(),
                "those that are left",
            )),
        };
    };
    stopping(context, pod, Stop::Ours(Reason::Deleting)).below(above)
}

fn released(context: RunContext<'_>) -> String {
    let age = context
        .run
        .meta
        .deleting
        .as_ref()
        .map_or(0, |at| context.age(at));
    if age > 60 {
        format!(
            "Nothing is left of the run, and the operator has not let it go for {}: look into its log.",
            times::span(age)
        )
    } else {
        "Nothing is left of the run: the operator lets it go within seconds.".to_owned()
    }
}

/// Explains a namespace that is being deleted. Nothing can be created in it anymore.
pub(super) fn of_namespace(context: RunContext<'_>) -> Option<Finding> {
    let namespace = context.world.namespace.as_ref()?;
    let since = namespace.deleting.as_ref()?;
    let object = ObjectRef::cluster("Namespace", &namespace.name);
    let mut link = Link::new(
        object.clone(),
        Health::Error,
        Reason::NamespaceTerminating,
        format!(
            "is being deleted{}: nothing can be created in it, and the run goes with it",
            context.since(Some(since))
        ),
    )
    .since(Some(since))
    .seen("deletion asked for", "", Some(since));
    let holds = namespace.conditions.iter().filter(|known| {
        known.status == "True"
            && matches!(
                known.kind.as_str(),
                "NamespaceContentRemaining"
                    | "NamespaceFinalizersRemaining"
                    | "NamespaceDeletionContentFailure"
                    | "NamespaceDeletionDiscoveryFailure"
            )
    });
    for known in holds.take(3) {
        link = link.seen(
            format!("condition {}=True", known.kind),
            &known.message,
            known.since.as_ref(),
        );
    }
    Some(
        Finding::new(
            State::Deleting,
            format!(
                "Nothing: the run will be deleted with namespace '{}'. Submit it in another one.",
                namespace.name
            ),
        )
        .link(link)
        .then(commands::yaml(&object, "what its deletion waits for")),
    )
}
