//! Stops the workloads, and waits until no Pod mounts a volume and no volume is attached.

use api::{
    Reason, Verdict,
    apps::{
        Downtime, PlannedVolume, PlannedWorkload, UpgradePhase, UpgradePlan, UpgradeRequestStatus,
        upgrade_condition, upgrade_intent,
    },
    decide::{ConditionUpdate, Decision, Effect},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{MAX_AGE, Request, UpgradeDecision, guard, scale_target::ScaleTarget, undo};
use crate::discover::Problem;

/// Decides about a request in `ScaleDown`.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let Some(plan) = request.plan() else {
        return undo::without_plan(request);
    };
    if let Some(fault) = request.fault {
        return request.fail(&Problem::new(fault.reason, fault.message.clone()));
    }
    let problem = guard::broken(request).or_else(|| scaled_up(request, plan));
    if let Some(problem) = problem {
        // The cache may be older than the change that it seems to lack.
        return if request.confirmed {
            request.fail(&problem)
        } else {
            request.confirm(request.reads_of_plan())
        };
    }
    let mut status = request.stored.clone();
    let effects = stops(request, plan, &mut status);
    let Some(blocker) = blocker(request, plan) else {
        return stopped(request, status);
    };
    if request.overdue {
        let message = format!("{blocker}{}", undo::last_error(request));
        return request.fail(&Problem::new(Reason::PodsNotTerminated, message));
    }
    // Also if the status of the decision with the effects was lost.
    let is_down = |planned: &PlannedWorkload| {
        let live = request.world.workload(planned);
        live.is_some_and(|live| live.needs_restore(planned))
    };
    if !effects.is_empty() || plan.workloads.iter().any(is_down) {
        let downtime = status.downtime.get_or_insert_with(Downtime::default);
        downtime.from.get_or_insert(Time(time::whole(request.now)));
    }
    let verdict = Verdict::working(Reason::ScalingDown, blocker);
    let decision = Decision::status_only(status, UpgradePhase::ScaleDown, verdict)
        .requeue_at(time::after(request.now, MAX_AGE));
    effects.into_iter().fold(decision, Decision::with)
}

/// Returns why a workload of the plan is not the stopped one any more: it was replaced, or someone scaled it up.
pub(super) fn scaled_up(request: &Request<'_>, plan: &UpgradePlan) -> Option<Problem> {
    plan.workloads.iter().find_map(|planned| {
        let id = planned.id();
        let Some(live) = request.world.workload(planned) else {
            return Some(Problem::new(
                Reason::PlanOutdated,
                format!("{id} was deleted or recreated since the plan"),
            ));
        };
        let was_at_zero = request.stored.at_zero.contains(&id);
        (was_at_zero && !live.is_at_zero()).then(|| {
            let by = match live.scale_managers.as_slice() {
                [] => "someone".to_owned(),
                managers => format!("'{}'", managers.join("', '")),
            };
            Problem::new(
                Reason::WorkloadScaledUp,
                format!(
                    "{by} scaled up {id} during the request; it is now: {}",
                    live.describe()
                ),
            )
        })
    })
}

/// Returns the effects that stop workloads, and records the ones that are at zero.
fn stops(
    request: &Request<'_>,
    plan: &UpgradePlan,
    status: &mut UpgradeRequestStatus,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    for planned in &plan.workloads {
        let Some(live) = request.world.workload(planned) else {
            continue;
        };
        let id = planned.id();
        if !live.is_at_zero() {
            effects.push(stop(live));
        } else if !status.at_zero.contains(&id) {
            status.at_zero.push(id);
        }
    }
    effects
}

/// Returns the effect that stops a workload. If it is rejected, the request is undone at once: other workloads may be
/// stopped already.
fn stop(live: &ScaleTarget) -> Effect {
    match live.stop() {
        Effect::Patch {
            target,
            subresource,
            patch,
        } => Effect::Patch {
            target: target
                .requires_intent(upgrade_intent::CHANGE.to_owned())
                .optional(),
            subresource,
            patch,
        },
        other @ (Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_)) => other.optional(),
    }
}

/// Returns the most specific blocker: a Pod, then an attachment, then a workload. `None` is the evidence that nothing
/// writes to the volumes any more.
fn blocker(request: &Request<'_>, plan: &UpgradePlan) -> Option<String> {
    mounting(request, plan)
        .or_else(|| attached(request, plan))
        .or_else(|| {
            let not_stopped = |planned: &&PlannedWorkload| {
                let live = request.world.workload(planned);
                !live.is_some_and(ScaleTarget::is_stopped)
            };
            let first = plan.workloads.iter().find(not_stopped)?;
            Some(format!("waits until {} is stopped", first.id()))
        })
}

/// Returns a message about a Pod that mounts a volume of the plan. A Pod in deletion may still be running.
fn mounting(request: &Request<'_>, plan: &UpgradePlan) -> Option<String> {
    let mut pods = request.world.pods.iter().filter(|pod| !pod.is_terminated);
    let (pod, claim) = pods.find_map(|pod| {
        let mounts = |volume: &&PlannedVolume| {
            volume.namespace == pod.namespace && pod.claims.contains(&volume.pvc)
        };
        plan.volumes
            .iter()
            .find(mounts)
            .map(|volume| (pod, &volume.pvc))
    })?;
    let owner = pod.owner.as_ref().filter(|owner| owner.is("batch", "Job"));
    let job = owner.map_or_else(String::new, |job| {
        format!("; Job '{}' must finish by itself", job.name)
    });
    Some(format!(
        "{} and mounts PersistentVolumeClaim '{claim}'{job}",
        pod.describe()
    ))
}

/// Returns a message about a volume of the plan that is attached to a node. For a driver that does not attach volumes,
/// nothing shows whether a node still writes.
fn attached(request: &Request<'_>, plan: &UpgradePlan) -> Option<String> {
    let volumes = plan.volumes.iter().filter(|volume| volume.is_attachable);
    let attachments = &request.world.attachments;
    volumes
        .flat_map(|volume| {
            attachments
                .iter()
                .filter(move |one| one.volume == volume.pv)
        })
        .next()
        .map(|one| {
            format!(
                "PersistentVolume '{}' is attached to node '{}'",
                one.volume, one.node
            )
        })
}

fn stopped(request: &Request<'_>, mut status: UpgradeRequestStatus) -> UpgradeDecision {
    status.workloads_stopped_at = Some(Time(time::whole(request.now)));
    let message = "all workloads are stopped, and all volumes are free";
    let mut decision = request.advance(
        status,
        UpgradePhase::Snapshot,
        Reason::Snapshotting,
        "takes snapshots of the volumes",
    );
    decision.conditions.push(ConditionUpdate {
        kind: upgrade_condition::WORKLOAD_STOPPED,
        value: Some(true),
        reason: Reason::WorkloadsStopped,
        message: message.to_owned(),
    });
    decision
}
