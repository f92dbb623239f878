//! Targets that belong to no run.

use super::*;

/// Explains a Job or Pod without a run: either unmanaged or left over.
pub(super) fn explain(world: &World) -> Explanation {
    let target = &world.target;
    let (kind, name) = (&target.kind, &target.name);
    let job = world.jobs.iter().map(|job| ("Job", &job.meta));
    let pod = world.pods.iter().map(|pod| ("Pod", &pod.meta));
    let mut all = job.chain(pod);
    let meta = all.find(|(known, meta)| known == kind && meta.name == *name);
    let meta = meta.map(|(_, meta)| meta);
    let created = meta.and_then(|meta| meta.created.as_ref());
    let run = meta.and_then(|meta| meta.run_name.as_deref());
    let of = meta
        .and_then(|meta| meta.run_kind.as_deref())
        .unwrap_or("TaskRun");
    let owner = meta.and_then(|meta| meta.owner.as_ref());
    let within = target.namespace.as_deref().unwrap_or_default();
    let (sentence, advice) = match (run, owner) {
        (Some(run), _) => (
            format!("carries the labels of {of} '{run}', which does not exist any more"),
            "The garbage collector removes it soon if the run was its owner; otherwise its labels were copied.".to_owned(),
        ),
        (None, owner) => (
            "does not belong to Orchestrator: no run owns it".to_owned(),
            owner.map_or_else(
                || "Nothing owns it: its own Events say more.".to_owned(),
                |owner| format!("Look at {} '{}', which made it.", owner.kind, owner.name),
            ),
        ),
    };
    let owned = owner.map_or_else(
        || "none".to_owned(),
        |owner| format!("{} '{}'", owner.kind, owner.name),
    );
    let made_by = owner.filter(|_| run.is_none()).map(|owner| {
        let object = ObjectRef::namespaced(&owner.kind, within, &owner.name);
        object.describe("what made it")
    });
    let uid = meta.map(|meta| meta.uid.as_str()).unwrap_or_default();
    let warnings = world.warnings(uid);
    let warning = warnings.first().map(|event| {
        let source = format!("last warning: {}", event.reason);
        Evidence::new(source, &event.message, event.last.as_ref())
    });
    // Only the owner knows whether the object is healthy. A warning is a sign that it is not.
    let health = match warning {
        Some(_) => Health::Waiting,
        None => Health::Ok,
    };
    let finding = finding! { Unmanaged (advice);
        (health) target.clone(), "Unmanaged", (&sentence); seen "metadata.ownerReferences" => (owned), created;
        seen warning;
        then target.describe("its own Events"), made_by, commands::list("TaskRun", within, "the runs of this namespace");
    };
    let summary = Summary {
        text: format!("{kind} '{name}' {sentence}"),
        reason: "Unmanaged".to_owned(),
        since: created.cloned(),
        written: None,
    };
    conclude(world, target, summary, finding)
}
