//! Waits for other requests, and recovers locks of requests that were deleted by force.

use api::{
    Reason, Verdict,
    apps::{ROLLBACK_REQUEST, UPGRADE_REQUEST, UpgradePhase, UpgradeRequestStatus},
    claim::{Holder, Lock, LockStep},
    decide::{Decision, Effect, LiveRead},
};
use serde_json::json;

use super::{
    Request, UpgradeDecision,
    flux_target::{FluxTarget, REQUESTED_AT, resume_token},
    read,
};

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

/// Returns the reads that a recovery depends on: the holders, the objects with the locks, and the workloads in the locks.
fn reads(request: &Request<'_>) -> Vec<LiveRead> {
    let mut reads: Vec<LiveRead> = Vec::new();
    let mut add = |one: LiveRead| {
        if !reads.contains(&one) {
            reads.push(one);
        }
    };
    for target in &request.world.flux {
        match &target.lock {
            Lock::Held(holder) if !request.world.is_active(holder) => {
                let namespace = holder.namespace.as_deref();
                let namespace = namespace.unwrap_or(request.namespace());
                let row = if holder.kind == ROLLBACK_REQUEST.name() {
                    &ROLLBACK_REQUEST
                } else {
                    &UPGRADE_REQUEST
                };
                add(read(row.resource, namespace, &holder.name));
            }
            Lock::Held(_) | Lock::Free | Lock::Unreadable => continue,
        }
        add(read(
            target.kind.resource(),
            &target.namespace,
            &target.name,
        ));
        let workloads = target.note.iter().flat_map(|note| note.workloads.iter());
        for one in workloads {
            add(read(one.kind.resource(), &one.namespace, &one.name));
        }
    }
    reads
}

/// Restores the replica counts in lost locks, then resumes Flux. Each effect follows from the locks alone, so a crash
/// between two of them needs no handling of its own.
fn recover(request: &Request<'_>, lost: &[&FluxTarget]) -> UpgradeDecision {
    let mut restores = Vec::new();
    let mut names = Vec::new();
    for note in lost.iter().filter_map(|target| target.note.as_ref()) {
        for planned in &note.workloads {
            let live = request.world.workload(planned);
            let live = live.filter(|live| live.needs_restore(planned));
            if let Some(live) = live.filter(|live| !names.contains(&live.id())) {
                names.push(live.id());
                restores.push(live.restore(planned));
            }
        }
    }
    let (effects, message) = if restores.is_empty() {
        let resumed: Vec<String> = lost.iter().map(|one| one.id().to_string()).collect();
        let resumes = lost.iter().rev();
        let resumes = resumes
            .map(|target| resume(request.uid(), target))
            .collect();
        (
            resumes,
            format!("resumes {} of an earlier request", resumed.join(", ")),
        )
    } else {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        (
            restores,
            format!(
                "restores the scale of {}, which an earlier request stopped",
                names.join(", ")
            ),
        )
    };
    let verdict = Verdict::working(Reason::LockRecovered, message);
    let decision = Decision::status_only(request.stored.clone(), UpgradePhase::Pending, verdict);
    effects
        .into_iter()
        .fold(decision, Decision::with)
        .requeue_at(request.now)
}

/// Returns the effect that removes a lost lock, and restores the suspension that the lock has. The resource version
/// makes it a compare-and-swap.
fn resume(uid: &str, target: &FluxTarget) -> Effect {
    let annotations = json!({ api::names::LOCK: null, REQUESTED_AT: resume_token(uid) });
    let mut patch = json!({ "metadata": { "annotations": annotations } });
    if let Some(note) = &target.note {
        patch["spec"] = json!({ "suspend": note.suspend });
    }
    Effect::Patch {
        target: target.target(),
        subresource: None,
        patch,
    }
}
