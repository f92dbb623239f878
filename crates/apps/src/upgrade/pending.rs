//! Waits for other requests, and recovers locks of requests that were deleted by force.

use api::{
    Reason, Verdict,
    apps::{UpgradePhase, UpgradeRequestStatus},
    claim::{Holder, Lock, LockStep},
    decide::{Decision, LiveRead},
};

use super::{Request, UpgradeDecision, flux_target::FluxTarget, recovery};

/// Decides about a request that has not begun.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let begin = || {
        let plan_timeout = plan_timeout(request);
        if plan_timeout != request.stored.plan_timeout {
            // The deadline of the next phase is that of the stored status.
            let status = UpgradeRequestStatus {
                plan_timeout,
                ..request.stored.clone()
            };
            return request.advance(
                status,
                UpgradePhase::Pending,
                Reason::Planning,
                "stores the time for the plan",
            );
        }
        request.advance(
            request.stored.clone(),
            UpgradePhase::Plan,
            Reason::Planning,
            "checks the request",
        )
    };
    // A dry run changes nothing, so it waits for nobody, and recovers no lock.
    if request.is_dry_run() {
        return begin();
    }
    if let Some(older) = older(request) {
        return request.wait(
            Reason::OperationActive,
            format!("waits until {older} has ended"),
        );
    }
    let mut lost = Vec::new();
    for target in &request.world.flux {
        match target.lock.step(
            request.uid(),
            |holder| request.world.is_active(holder),
            request.confirmed,
        ) {
            LockStep::Take => {}
            LockStep::Wait(holder) => {
                return request.wait(
                    Reason::OperationActive,
                    format!(
                        "{} is locked by {holder}; waits until it has ended",
                        target.id()
                    ),
                );
            }
            LockStep::Confirm(_) => return request.confirm(reads(request)),
            // The lock is of this request if its status was lost, for example by a restore from a backup.
            LockStep::Proceed if !request.confirmed => return request.confirm(reads(request)),
            LockStep::Proceed | LockStep::TakeOver(_) => lost.push(target),
            LockStep::Unreadable => {
                return request.wait(
                    Reason::OperationActive,
                    format!(
                        "the annotation '{}' of {} names no holder. Find out who wrote it, and remove it",
                        api::names::LOCK,
                        target.id()
                    ),
                );
            }
        }
    }
    if lost.is_empty() {
        begin()
    } else {
        recover(request, &lost)
    }
}

/// Returns the time for the plan that the ManagedApp sets, if it is known.
fn plan_timeout(request: &Request<'_>) -> Option<api::Duration> {
    let state = request.world.app.as_ref()?;
    state.app.spec.phase_timeouts.plan
}

/// Returns the oldest active request of the same application that is older than this one.
fn older<'a>(request: &Request<'a>) -> Option<&'a Holder> {
    let created = request.object.metadata.creation_timestamp.as_ref();
    let created = created.map_or(0, |time| time.0.as_second());
    let own = (created, request.uid().to_owned());
    let others = request.world.others.iter();
    others
        .filter(|other| other.is_active && other.app == request.app_name() && other.age < own)
        .min_by_key(|other| other.age.clone())
        .map(|other| &other.holder)
}

/// Returns the reads that a recovery depends on.
fn reads(request: &Request<'_>) -> Vec<LiveRead> {
    let is_lost = |target: &&FluxTarget| match &target.lock {
        Lock::Held(holder) => !request.world.is_active(holder),
        Lock::Free | Lock::Unreadable => false,
    };
    let lost = request.world.flux.iter().filter(is_lost);
    recovery::reads(lost, request.namespace())
}

/// Restores the replica counts in lost locks, then resumes Flux.
fn recover(request: &Request<'_>, lost: &[&FluxTarget]) -> UpgradeDecision {
    let (effects, message) = recovery::next(lost, &request.world.workloads, request.uid());
    let verdict = Verdict::working(Reason::LockRecovered, message);
    let decision = Decision::status_only(request.stored.clone(), UpgradePhase::Pending, verdict);
    effects
        .into_iter()
        .fold(decision, Decision::with)
        .requeue_at(request.now)
}
