//! Suspends and locks the Flux objects, and waits until their controllers have confirmed it.

use api::{
    Reason, Verdict,
    apps::{PlannedFluxObject, UpgradePhase, UpgradePlan, upgrade_condition},
    claim::{Claim, LockStep},
    decide::{ConditionUpdate, Decision, Effect},
    time,
};
use serde_json::json;

use super::{
    MAX_AGE, Request, UpgradeDecision,
    flux_target::{FluxTarget, LockNote, REQUESTED_AT, token},
    git_commit, planned, undo,
};
use crate::discover::Problem;

/// The next step for one object.
enum Step {
    /// Its controller has confirmed the suspension.
    Confirmed,
    /// It has to be locked and suspended.
    Lock(Claim),
    /// The token has to be set again, because someone replaced it.
    Request(Effect),
    /// Its controller has not confirmed the suspension yet.
    Wait(Problem),
    /// Another request has the lock. Later objects are not locked meanwhile.
    Blocked(Problem),
    /// The request cannot continue.
    Failed(Problem),
}

/// Decides about a request in `Suspend`.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let Some(plan) = request.plan() else {
        return undo::without_plan(request);
    };
    if let Some(fault) = request.fault {
        return request.fail(&Problem::new(fault.reason, fault.message.clone()));
    }
    let (mut claims, mut effects) = (Vec::new(), Vec::new());
    let mut waiting: Option<Problem> = None;
    let mut is_confirmed = true;
    for planned in &plan.flux_objects {
        let step = step(request, plan, planned, is_confirmed);
        is_confirmed &= matches!(step, Step::Confirmed);
        match step {
            Step::Confirmed => {}
            Step::Lock(claim) => claims.push(claim),
            Step::Request(effect) => effects.push(effect),
            Step::Wait(problem) => {
                waiting.get_or_insert(problem);
            }
            Step::Blocked(problem) => {
                waiting.get_or_insert(problem);
                break;
            }
            // The cache may be older than the change that it seems to lack.
            Step::Failed(_) if !request.confirmed => {
                return request.confirm(request.reads_of_plan());
            }
            Step::Failed(problem) => return request.fail(&problem),
        }
    }
    if is_confirmed && plan.is_without_snapshots {
        return git_commit::begin(request, request.stored.clone());
    }
    if is_confirmed {
        return confirmed(request);
    }
    if request.overdue {
        let problem = waiting.unwrap_or_else(|| {
            Problem::new(
                Reason::SuspendNotObserved,
                format!(
                    "the Flux objects could not be suspended in time{}",
                    undo::last_error(request)
                ),
            )
        });
        return request.fail(&problem);
    }
    let message = waiting.map_or_else(
        || "suspends and locks the Flux objects of the application".to_owned(),
        |problem| problem.message,
    );
    let verdict = Verdict::working(Reason::Suspending, message);
    let decision = Decision::status_only(request.stored.clone(), UpgradePhase::Suspend, verdict)
        .requeue_at(time::after(request.now, MAX_AGE));
    let decision = effects.into_iter().fold(decision, Decision::with);
    claims.into_iter().fold(decision, Decision::claim)
}

fn confirmed(request: &Request<'_>) -> UpgradeDecision {
    let message = "Flux has confirmed the suspension of all objects";
    let mut decision = request.advance(
        request.stored.clone(),
        UpgradePhase::ScaleDown,
        Reason::ScalingDown,
        "stops the workloads",
    );
    decision.conditions.push(ConditionUpdate {
        kind: upgrade_condition::SUSPENDED,
        value: Some(true),
        reason: Reason::FluxSuspended,
        message: message.to_owned(),
    });
    decision
}

/// Returns the next step for an object. `are_earlier_confirmed` is whether all objects that apply it are suspended.
fn step(
    request: &Request<'_>,
    plan: &UpgradePlan,
    planned: &PlannedFluxObject,
    are_earlier_confirmed: bool,
) -> Step {
    let id = planned.id();
    let failed = |reason, message: String| Step::Failed(Problem::new(reason, message));
    let Some(live) = request.world.flux(planned).filter(|live| !live.is_deleting) else {
        return failed(
            Reason::PlanOutdated,
            format!("{id} was deleted or recreated since the plan"),
        );
    };
    let uid = request.uid();
    let locked = |holder: String| {
        let message = format!("{id} is locked by {holder}");
        Step::Blocked(Problem::new(Reason::LockedByOther, message))
    };
    // A lock of a request that was deleted by force is recovered by the next request, in `Pending`.
    match live
        .lock
        .step(uid, |holder| request.world.is_active(holder), false)
    {
        // Without snapshots, Flux continues. The lock keeps other requests away.
        LockStep::Proceed if plan.is_without_snapshots => Step::Confirmed,
        LockStep::Proceed => locked_by_us(request, live),
        LockStep::Wait(holder) | LockStep::Confirm(holder) | LockStep::TakeOver(holder) => {
            locked(holder.to_string())
        }
        LockStep::Unreadable => locked("an annotation that names no holder".to_owned()),
        LockStep::Take if live.was_requested_by(uid) => failed(
            Reason::SuspendReverted,
            format!("{id} lost the lock of the request"),
        ),
        LockStep::Take if live.is_suspended() => failed(
            Reason::AlreadySuspended,
            format!("{id} was suspended by someone else since the plan"),
        ),
        LockStep::Take if live.generation != planned.generation => failed(
            Reason::PlanOutdated,
            format!("the spec of {id} was changed since the plan"),
        ),
        // An applier that still runs would set back the field.
        LockStep::Take if !live.suspend_appliers.is_empty() && !are_earlier_confirmed => {
            Step::Wait(Problem::new(
                Reason::SuspendNotObserved,
                format!("{id} is suspended after the objects that apply it"),
            ))
        }
        LockStep::Take => Step::Lock(lock(uid, plan, planned, live)),
    }
}

/// Returns the claim that locks and suspends an object in one write. The token is that of the generation after it.
fn lock(
    uid: &str,
    plan: &UpgradePlan,
    planned_object: &PlannedFluxObject,
    live: &FluxTarget,
) -> Claim {
    let note = LockNote {
        suspend: planned_object.suspend,
        workloads: plan.workloads.clone(),
    };
    let claim = Claim::take(planned(live.target()), &live.version).with_details(note.details());
    if plan.is_without_snapshots {
        return claim;
    }
    claim.with_patch(json!({
        "metadata": { "annotations": { REQUESTED_AT: token(uid, live.generation + 1) } },
        "spec": { "suspend": true },
    }))
}

fn locked_by_us(request: &Request<'_>, live: &FluxTarget) -> Step {
    let (id, uid) = (live.id(), request.uid());
    if !live.is_suspended() {
        let by = match live.suspend_managers.as_slice() {
            [] => String::new(),
            managers => format!(" by '{}'", managers.join("', '")),
        };
        return Step::Failed(Problem::new(
            Reason::SuspendReverted,
            format!("{id} was resumed during the request{by}"),
        ));
    }
    if live.has_confirmed(uid) {
        return Step::Confirmed;
    }
    let wanted = token(uid, live.generation);
    if live.requested.as_ref() == Some(&wanted) {
        let activity = live.activity.iter().map(|text| format!(" ({text})"));
        let activity: String = activity.collect();
        return Step::Wait(Problem::new(
            Reason::SuspendNotObserved,
            format!("the controller of {id} has not confirmed the suspension yet{activity}"),
        ));
    }
    Step::Request(Effect::Patch {
        target: planned(live.target()),
        subresource: None,
        patch: json!({ "metadata": { "annotations": { REQUESTED_AT: wanted } } }),
    })
}
