//! Targets that belong to no run.

use super::{Finding, Summary, commands, conclude};
use crate::{
    explanation::{Explanation, Health, Link, State},
    world::{Meta, ObjectRef, World},
};

/// Explains a Job or Pod without a run: either unmanaged or left over.
pub(super) fn explain(world: &World) -> Explanation {
    let target = &world.target;
    let job = world.jobs.iter().map(|job| ("Job", &job.meta));
    let pod = world.pods.iter().map(|pod| ("Pod", &pod.meta));
    let meta = job
        .chain(pod)
        .find(|(kind, meta)| *kind == target.kind && meta.name == target.name)
        .map(|(_, meta)| meta);
    let run = meta.and_then(|meta| meta.run_name.as_deref());
    let kind = meta.and_then(|meta| meta.run_kind.as_deref());
    let kind = kind.unwrap_or("TaskRun");
    let within = target.namespace.as_deref().unwrap_or_default();
    let (sentence, advice) = match run {
        Some(run) => (
            format!("carries the labels of {kind} '{run}', which does not exist any more"),
            "The garbage collector removes it soon if the run was its owner; otherwise its labels were copied.",
        ),
        None => (
            "does not belong to Orchestrator: no run owns it".to_owned(),
            "Nothing owns it: its own Events say more.",
        ),
    };
    let owned = meta.and_then(|meta: &Meta| meta.owner.as_ref());
    let advice = match (run, owned) {
        (None, Some(owner)) => format!("Look at {} '{}', which made it.", owner.kind, owner.name),
        (Some(_), _) | (None, None) => advice.to_owned(),
    };
    let owner = owned.map_or_else(
        || "none".to_owned(),
        |owner| format!("{} '{}'", owner.kind, owner.name),
    );
    let uid = meta.map(|meta| meta.uid.as_str()).unwrap_or_default();
    let warning = world
        .events
        .iter()
        .filter(|event| event.warning && event.uid == uid && !uid.is_empty())
        .max_by_key(|event| event.last.clone());
    // Only the owner knows whether the object is healthy. A warning is a sign that it is not.
    let health = match warning {
        Some(_) => Health::Waiting,
        None => Health::Ok,
    };
    let mut link = Link::new(target.clone(), health, "Unmanaged", sentence.clone()).seen(
        "metadata.ownerReferences",
        owner,
        meta.and_then(|meta| meta.created.as_ref()),
    );
    if let Some(event) = warning {
        link = link.seen(
            format!("last warning: {}", event.reason),
            &event.message,
            event.last.as_ref(),
        );
    }
    let mut finding = Finding::new(State::Unmanaged, advice)
        .link(link)
        .then(commands::describe(target, "its own Events"));
    if let Some(owner) = owned.filter(|_| run.is_none()) {
        let object = ObjectRef::namespaced(&owner.kind, within, &owner.name);
        finding = finding.then(commands::describe(&object, "what made it"));
    }
    finding = finding.then(commands::list(
        "TaskRun",
        within,
        "the runs of this namespace",
    ));
    let summary = Summary {
        text: format!("{} '{}' {sentence}", target.kind, target.name),
        reason: "Unmanaged".to_owned(),
        since: meta.and_then(|meta| meta.created.clone()),
        written: None,
    };
    conclude(world, target, summary, finding)
}
