//! A workload of a ManagedApp that is not ready, down to the problem of its Pods.

use std::cmp::Reverse;

use super::*;

/// Explains the first workload that is not ready.
pub(super) fn find(app: App<'_>) -> Option<Finding> {
    match app.world.workloads.first() {
        Some(workload) => unready(app, workload),
        None => missing(app),
    }
}

/// Explains a workload of the inventory that does not exist.
fn missing(app: App<'_>) -> Option<Finding> {
    let workloads = app.view.status.workloads.iter();
    let mut objects = workloads
        .filter(|workload| workload.in_inventory)
        .map(|one| ObjectRef::namespaced(&one.kind, &one.namespace, &one.name));
    let object = objects.find(|object| app.has(object) == Some(false))?;
    let kustomization = app.kustomization();
    Some(finding! {
        Blocked "Flux creates it again at its next reconciliation, unless it is suspended or drift is ignored. Find out what deletes it.";
        Error object, "NotFound", "is in the inventory of Flux, but does not exist"; seen app.not_found();
        then kustomization.describe("its conditions and its Events"), app.look_again();
    })
}

fn unready(app: App<'_>, workload: &WorkloadView) -> Option<Finding> {
    let Rollout {
        observed,
        wanted,
        replicas,
        updated,
        ready,
    } = workload.rollout;
    let object = workload.meta.object(&workload.kind);
    let counts = format!(
        "{replicas} Pods, {updated} of the newest template, {ready} ready; {wanted} wanted"
    );
    let counts = app.seen("status", counts);
    if wanted == 0 {
        let name = &object.name;
        let within = object.namespace.as_deref().unwrap_or_default();
        let kind = workload.kind.to_lowercase();
        return Some(finding! {
            Blocked "Scale it up, if nobody scaled it down on purpose. Flux restores no replicas that its manifest does not set.";
            Error object.clone(), Reason::Unhealthy, "has 0 desired replicas, so nothing of it runs"; seen counts;
            then object.who("'metadata.managedFields' names the manager that scaled it");
            shell "kubectl scale {kind} {name} -n {within} --replicas=1" => "start it again";
        });
    }
    let is_complete = [replicas, updated, ready]
        .iter()
        .all(|count| *count == wanted);
    if is_complete && observed >= workload.meta.generation {
        return None;
    }
    // Without it, a ready Pod of the old template would hide the problem.
    let surplus = match replicas > wanted {
        true => format!(", but {replicas} Pods exist"),
        false => String::new(),
    };
    let own = |health: Health| {
        link! { (health) object.clone(), Reason::Unhealthy, "{ready} of {wanted} ready{surplus}"; seen counts.clone(); }
    };
    let finding = rejected(app, workload)
        .or_else(|| of_pods(app))
        .unwrap_or_else(|| match pod::newest(app) {
            Some(pod) => pod::starting(app, pod),
            None => finding! { Waiting "Wait: its controller is at it, and nothing shows a problem. If it stays so, read its Events.";
                then object.describe("its conditions and Events"), app.look_again();
            },
        });
    Some(finding.below([own(Health::Waiting)]))
}

/// Explains that the controller of the workload cannot create a Pod.
fn rejected(app: App<'_>, workload: &WorkloadView) -> Option<Finding> {
    let event = app.world.warning(&workload.meta.uid, &["FailedCreate"]);
    let event = event.filter(|_| workload.rollout.replicas < workload.rollout.wanted);
    let said = match (&workload.failure, event) {
        (Some(failure), _) => Report {
            source: failure.evidence().source,
            message: &failure.message,
            at: failure.since.as_ref(),
            since: failure.since.as_ref(),
        },
        (None, Some(event)) => Report::in_event(event),
        (None, None) => return None,
    };
    let reason = Rejection::of(said.message).reason();
    let object = workload.meta.object(&workload.kind);
    let text = format!("a Pod of it cannot be created: {}", said.message);
    let pods = ObjectRef {
        kind: "Pod".to_owned(),
        name: format!("{} (new)", object.name),
        namespace: object.namespace.clone(),
    };
    let within = object.namespace.clone().unwrap_or_default();
    Some(finding! {
        Blocked "Correct what the message names: a quota, a policy, or the manifest in Git. The controller tries again by itself.";
        link said.link(pods, reason, text);
        then object.describe("its conditions and Events"), commands::list("ResourceQuota", &within, "the quotas of the namespace");
    })
}

/// Explains the problem of the newest Pod that has one.
fn of_pods(app: App<'_>) -> Option<Finding> {
    let mut pods: Vec<&PodView> = pod::unready(app).collect();
    pods.sort_by_key(|pod| Reverse(pod.meta.created.clone()));
    pods.iter().find_map(|pod| pod::find(app, pod))
}
