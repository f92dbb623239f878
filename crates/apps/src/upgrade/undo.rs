//! Returns everything to the state of the plan, in the reverse order, and reads it back.
//!
//! First the replica counts, so that the application runs again. Then Flux, each object before the one that applies it.
//! Last, the evidence: every object is read from the API server itself. A cache may lack the last write of the phase
//! that failed, and such a write may even arrive later, so a request does not end before [`SETTLE_TIME`].
//!
//! After the commit, the snapshots are kept: they are the only way back to the data from before.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    apps::{PlannedFluxObject, UndoneStep, UpgradePhase, UpgradePlan, upgrade_condition},
    claim::{Claim, Lock},
    decide::{ConditionUpdate, Decision, Effect},
    pod::NamedRef,
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    MAX_AGE, Request, UpgradeDecision,
    flux_target::{FluxTarget, REQUESTED_AT, resume_token},
    git_commit, snapshot,
    storage::{SnapshotView, Snapshots},
    without_stop,
};
use crate::rollback::automatic::rollback_name;

/// Time from the start of the undo until the request may end. A write of the phase before may still arrive: the API
/// server waits up to 34 s for the webhooks of a write, also if the operator that sent it was killed.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(40);

/// How often effects are repeated that fail after the deadline.
const RETRY: Duration = Duration::from_secs(30);

/// Decides about a request in `Undo`, in deletion or not.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    if let Some(fault) = request.fault.filter(|_| !request.refused) {
        return wait(request, fault.to_string()).requeue_at(time::after(request.now, RETRY));
    }
    let Some(plan) = request.plan() else {
        return end(request, Vec::new());
    };
    let restored = restores(request, plan);
    let deleted = deletions(request);
    if !restored.is_empty() || !deleted.is_empty() {
        let message = if restored.is_empty() {
            "deletes the snapshots and the Jobs of the request"
        } else {
            "restores the replica counts"
        };
        let effects = restored.into_iter().chain(deleted);
        return effects.fold(wait(request, message), Decision::with);
    }
    let (claims, resumed) = resumes(request, plan);
    let is_resuming = !claims.is_empty() || !resumed.is_empty();
    let settled = settled_at(request);
    // Flux may only be resumed, and the request may only end, if the replica counts are restored for sure.
    if !request.confirmed && (is_resuming || settled <= request.now) {
        let mut reads = request.reads_of_plan();
        if may_have_snapshots(request) {
            reads.extend(snapshot::reads_of_snapshots(request, plan));
        }
        return request.confirm(reads);
    }
    if is_resuming {
        let mut decision = resumed
            .into_iter()
            .fold(wait(request, "resumes Flux"), Decision::with);
        if let Some(downtime) = &mut decision.status.downtime {
            downtime.to.get_or_insert(Time(time::whole(request.now)));
        }
        return claims.into_iter().fold(decision, Decision::claim);
    }
    if let Some(message) = remaining_snapshot(request) {
        return wait(request, message);
    }
    if request.now < settled {
        let message = "all objects are restored; waits for late writes of the phase that failed";
        return wait(request, message).requeue_at(settled);
    }
    end(request, evidence(request, plan))
}

/// Ends a request in a phase that needs a plan and has none. The engine stores a plan before the first change, so nothing
/// was changed.
pub(super) fn without_plan(request: &Request<'_>) -> UpgradeDecision {
    request.fail(&crate::discover::Problem::new(
        Reason::InternalError,
        "the status has no plan, so the request cannot continue. Submit another UpgradeRequest",
    ))
}

/// Returns the last error of an effect, for a message.
pub(super) fn last_error(request: &Request<'_>) -> String {
    let progress = &request.stored.progress;
    let message = progress
        .message
        .as_ref()
        .filter(|_| progress.retry.is_some());
    message.map_or_else(String::new, |message| {
        format!("; the last error was: {message}")
    })
}

/// Returns the objects that are not as in the plan, for a request that is released without an undo.
pub(super) fn left(request: &Request<'_>) -> Vec<String> {
    let Some(plan) = request.plan() else {
        return Vec::new();
    };
    let locked = plan.flux_objects.iter().filter_map(|planned| {
        let live = request.world.flux(planned)?;
        let state = if live.is_suspended() {
            "suspended"
        } else {
            "locked"
        };
        is_suspended_by_us(request, live).then(|| format!("{} is {state}", live.id()))
    });
    let stopped = plan.workloads.iter().filter_map(|planned| {
        let live = request.world.workload(planned)?;
        live.needs_restore(planned)
            .then(|| format!("{} is stopped", live.id()))
    });
    locked.chain(stopped).collect()
}

/// Reports the undo in progress. After its deadline, the message names the blocker, and the operator continues.
fn wait(request: &Request<'_>, message: impl Into<String>) -> UpgradeDecision {
    let message = message.into();
    let cause = request.stored.failure.as_ref();
    let cause = cause.map_or_else(String::new, |failure| {
        format!(" ({}: {})", failure.reason, failure.message)
    });
    let verdict = if request.overdue {
        let reason = if request.is_deleting() {
            Reason::DeletionBlocked
        } else {
            Reason::UndoBlocked
        };
        Verdict::stalled(reason, format!("the undo takes too long: {message}{cause}"))
    } else {
        Verdict::working(Reason::Undoing, format!("{message}{cause}"))
    };
    let decision = Decision::status_only(request.stored.clone(), UpgradePhase::Undo, verdict)
        .requeue_at(time::after(request.now, MAX_AGE));
    // After the deadline, the error of an effect is reported as the blocker.
    match &request.stored.progress.deadline_at {
        Some(deadline) => decision.effects_until(deadline.0),
        None => decision,
    }
}

/// Returns whether the request may have scaled down workloads.
fn may_have_scaled(request: &Request<'_>) -> bool {
    let failure = request.stored.failure.as_ref();
    failure.is_none_or(|failure| match failure.phase {
        // Flux and the operator have restored all replica counts. Later changes are those of others.
        UpgradePhase::Reconcile | UpgradePhase::HealthCheck => {
            request.stored.replicas_restored_at.is_none()
        }
        UpgradePhase::ScaleDown
        | UpgradePhase::Snapshot
        | UpgradePhase::GitCommit
        | UpgradePhase::Undo => true,
        UpgradePhase::Pending
        | UpgradePhase::Plan
        | UpgradePhase::Approval
        | UpgradePhase::Suspend
        | UpgradePhase::Succeeded
        | UpgradePhase::Failed => false,
    })
}

/// Returns whether the commit is on the branch, or may be there.
fn may_be_committed(request: &Request<'_>) -> bool {
    let failure = request.stored.failure.as_ref();
    let is_unknown = failure.is_some_and(|one| one.reason == Reason::PushOutcomeUnknown.name());
    request.stored.commit.is_some() || is_unknown
}

fn may_have_snapshots(request: &Request<'_>) -> bool {
    request.stored.workloads_stopped_at.is_some()
        && !may_be_committed(request)
        && request.world.snapshots != Snapshots::NotInstalled
}

/// Returns the effects that restore the scale of workloads that are at zero. A workload that someone else scaled
/// meanwhile is not at zero, and is left as it is.
fn restores(request: &Request<'_>, plan: &UpgradePlan) -> Vec<Effect> {
    if !may_have_scaled(request) {
        return Vec::new();
    }
    let workloads = plan.workloads.iter();
    workloads
        .filter_map(|planned| {
            let live = request.world.workload(planned)?;
            live.needs_restore(planned).then(|| live.restore(planned))
        })
        .collect()
}

/// Returns the deletions of the snapshots of the request. A snapshot that is not ready would block the deletion of its
/// claim.
fn deletions(request: &Request<'_>) -> Vec<Effect> {
    let all = snapshots_to_delete(request).iter();
    let snapshots = all
        .filter(|one| !one.is_deleting)
        .map(|one| Effect::Delete(one.target()));
    git_commit::job_deletions(request)
        .chain(snapshots)
        .collect()
}

fn snapshots_to_delete<'a>(request: &Request<'a>) -> &'a [SnapshotView] {
    if may_be_committed(request) {
        return &[];
    }
    request.world.snapshots.all()
}

fn remaining_snapshot(request: &Request<'_>) -> Option<String> {
    let first = snapshots_to_delete(request).first()?;
    let by = match first.finalizers.as_slice() {
        [] => String::new(),
        finalizers => format!("; it has the finalizers '{}'", finalizers.join("', '")),
    };
    Some(format!("waits until {} is deleted{by}", first.id()))
}

/// Returns whether the object is suspended because of this request. Someone may have removed the lock only.
fn is_suspended_by_us(request: &Request<'_>, live: &FluxTarget) -> bool {
    let uid = request.uid();
    match &live.lock {
        Lock::Held(holder) => holder.uid == uid,
        Lock::Free | Lock::Unreadable => live.is_suspended() && live.was_requested_by(uid),
    }
}

/// A change that resumes an object of Flux.
pub(super) enum Resume {
    /// Releases the lock in the same write.
    Claim(Claim),
    /// Someone removed the lock only.
    Patch(Effect),
}

/// Returns the change that resumes an object, or `None` if it is not suspended because of this request.
pub(super) fn resume_one(request: &Request<'_>, planned: &PlannedFluxObject) -> Option<Resume> {
    let live = request.world.flux(planned)?;
    if !is_suspended_by_us(request, live) {
        return None;
    }
    let patch = resume(request.uid(), planned);
    Some(if live.lock.is_held_by(request.uid()) {
        Resume::Claim(Claim::release(live.target(), &live.version).with_patch(patch))
    } else {
        Resume::Patch(Effect::Patch {
            target: live.target(),
            subresource: None,
            patch,
        })
    })
}

/// Returns the changes that resume Flux: an object before the one that applies it.
fn resumes(request: &Request<'_>, plan: &UpgradePlan) -> (Vec<Claim>, Vec<Effect>) {
    let (mut claims, mut effects) = (Vec::new(), Vec::new());
    for planned in plan.flux_objects.iter().rev() {
        match resume_one(request, planned) {
            Some(Resume::Claim(claim)) => claims.push(claim),
            Some(Resume::Patch(effect)) => effects.push(effect),
            None => {}
        }
    }
    (claims, effects)
}

/// Returns the patch that restores exactly the suspension of the plan. A field that was absent is removed.
fn resume(uid: &str, planned: &PlannedFluxObject) -> Value {
    json!({
        "metadata": { "annotations": { REQUESTED_AT: resume_token(uid) } },
        "spec": { "suspend": planned.suspend },
    })
}

/// Returns the time at which no write of the phase before can arrive any more.
fn settled_at(request: &Request<'_>) -> Timestamp {
    let started = request.stored.progress.phase_started_at.as_ref();
    let started = started.map_or(request.now, |started| started.0);
    time::after(started, SETTLE_TIME)
}

/// Returns the state of each object of the plan, as it was read back.
fn evidence(request: &Request<'_>, plan: &UpgradePlan) -> Vec<UndoneStep> {
    let at = Time(time::whole(request.now));
    let missing = || "does not exist any more".to_owned();
    let workloads = plan.workloads.iter().map(|planned| {
        let live = request.world.workload(planned);
        (
            planned.id(),
            live.map_or_else(missing, |live| live.describe()),
        )
    });
    let flux = plan.flux_objects.iter().rev().map(|planned| {
        let live = request.world.flux(planned);
        let state = live.map_or_else(missing, |live| {
            let state = if live.is_suspended() {
                "suspended by someone else"
            } else {
                "not suspended"
            };
            state.to_owned()
        });
        (planned.id(), state)
    });
    let all = workloads.chain(flux);
    all.map(|(object, state)| UndoneStep {
        object,
        state,
        at: at.clone(),
    })
    .collect()
}

/// Formats the state after the undo, for the message of the request.
fn after_undo(request: &Request<'_>) -> String {
    if !may_be_committed(request) {
        return "Everything is as before".to_owned();
    }
    let commit = request.stored.commit.as_ref();
    let commit = commit.map_or_else(
        || "The commit may be on the branch".to_owned(),
        |commit| format!("Commit {} stays on the branch", commit.id),
    );
    let taken = request.stored.snapshots.iter();
    let taken = taken.filter_map(|one| Some(one.taken_at.as_ref()?.0)).min();
    let taken = taken.map_or_else(String::new, |taken| {
        format!(". A restore of the snapshots would lose the data written after {taken}")
    });
    format!("{commit}, Flux is resumed and all replica counts are restored{taken}")
}

/// Returns whether the operator creates a RollbackRequest after the end of the request.
fn is_rolled_back(request: &Request<'_>) -> bool {
    let plan = request.plan();
    let is_automatic = plan.is_some_and(|plan| plan.auto_rollback);
    is_automatic && request.stored.commit.is_some() && !request.is_deleting()
}

/// Ends the request with its first failure.
fn end(request: &Request<'_>, undone: Vec<UndoneStep>) -> UpgradeDecision {
    let mut status = request.stored.clone();
    status.undone = undone;
    if let Some(downtime) = &mut status.downtime {
        downtime.to.get_or_insert(Time(time::whole(request.now)));
    }
    let failure = request.stored.failure.as_ref();
    let reason = failure.and_then(|failure| Reason::from_name(&failure.reason));
    let reason = reason.unwrap_or(Reason::InternalError);
    let text = failure.map_or("the request failed", |failure| failure.message.as_str());
    let is_rolled_back = is_rolled_back(request);
    let follows = if is_rolled_back {
        let name = rollback_name(request.name());
        format!(". RollbackRequest '{name}' returns to the version before")
    } else {
        String::new()
    };
    let message = format!("{}. {}{follows}", without_stop(text), after_undo(request));
    let verdict = Verdict::failed(reason, message);
    status.rollback = is_rolled_back.then(|| NamedRef {
        name: rollback_name(request.name()),
    });
    let decision = Decision::status_only(status, UpgradePhase::Failed, verdict);
    let mut decision = if is_rolled_back {
        // The terminal status comes first, because a rollback waits for its upgrade (R34). The next reconciliation creates
        // the RollbackRequest and removes the finalizer.
        decision.requeue_at(request.now)
    } else {
        decision.remove_finalizer()
    };
    for (kind, reason, message) in [
        (
            upgrade_condition::SUSPENDED,
            Reason::FluxResumed,
            "Flux is resumed, and holds no lock of the request",
        ),
        (
            upgrade_condition::WORKLOAD_STOPPED,
            Reason::WorkloadsRestored,
            "no workload is at zero because of the request",
        ),
    ] {
        // A condition that was never reached does not appear.
        if request.stored.progress.condition(kind).is_some() {
            decision.conditions.push(ConditionUpdate {
                kind,
                value: Some(false),
                reason,
                message: message.to_owned(),
            });
        }
    }
    decision
}
