//! Waits for the decision of a user about a plan.
//!
//! # Guarantees
//! - Nothing is changed before the decision, so the request has no finalizer.
//! - A plan that was approved late is made again. If it would make another change in Git, the request is rejected: the
//!   user has approved another plan.

use std::time::Duration;

use api::{
    Reason,
    apps::{Approval, ApprovalDecision, ApprovedPlan, UpgradePhase, UpgradePlan},
    decide::Decision,
    names, time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Request, UpgradeDecision, plan};
use crate::discover::Problem;

/// Time for which a plan counts before it is made again.
const PLAN_AGE: Duration = Duration::from_secs(10 * 60);

/// Returns the decision about a request in `Plan` whose plan is stored.
pub(super) fn after_plan(request: &Request<'_>, plan: &UpgradePlan) -> UpgradeDecision {
    if !plan.needs_approval {
        return suspend(request);
    }
    match &request.stored.approved {
        None => request
            .advance(
                request.stored.clone(),
                UpgradePhase::Approval,
                Reason::AwaitingApproval,
                waiting(request, plan),
            )
            .remove_finalizer(),
        Some(approved) if approved.hash == hash(plan) => suspend(request),
        Some(approved) => request.reject(Problem::new(
            Reason::PlanOutdated,
            format!(
                "the branch has changed since '{}' approved the plan. Submit another UpgradeRequest",
                approved.by
            ),
        )),
    }
}

/// Decides about a request in `Approval`.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let Some(plan) = request.plan() else {
        // The plan is made again.
        return plan_again(request, None);
    };
    match &request.object.spec.approval {
        None => request
            .wait(Reason::AwaitingApproval, waiting(request, plan))
            .remove_finalizer(),
        Some(Approval {
            decision: ApprovalDecision::Denied,
            by,
        }) => {
            let message = format!("'{by}' denied the upgrade");
            request.reject(Problem::new(Reason::ApprovalDenied, message))
        }
        Some(Approval {
            decision: ApprovalDecision::Approved,
            by,
        }) => {
            let approved = ApprovedPlan {
                by: by.clone(),
                at: Time(time::whole(request.now)),
                hash: hash(plan),
            };
            if is_old(request) {
                return plan_again(request, Some(approved));
            }
            let mut status = request.stored.clone();
            status.approved = Some(approved);
            let message = format!("'{by}' approved the plan; suspends Flux");
            request.advance(status, UpgradePhase::Suspend, Reason::Suspending, message)
        }
    }
}

fn suspend(request: &Request<'_>) -> UpgradeDecision {
    request.advance(
        request.stored.clone(),
        UpgradePhase::Suspend,
        Reason::Suspending,
        "suspends Flux",
    )
}

/// Makes the plan again. The approval counts if the change in Git is the same.
fn plan_again(request: &Request<'_>, approved: Option<ApprovedPlan>) -> UpgradeDecision {
    let mut status = request.stored.clone();
    status.plan = None;
    status.planned_at = None;
    status.approved = approved;
    let message = "makes the plan again, because it is old";
    let decision = request.advance(status, UpgradePhase::Plan, Reason::Planning, message);
    // An earlier deletion may have been rejected, and the report of this Job is as old as the plan.
    plan::job_deletion(request)
        .into_iter()
        .fold(decision, Decision::with)
        .remove_finalizer()
}

/// Returns whether the plan is too old. The state of the application may have changed since.
fn is_old(request: &Request<'_>) -> bool {
    let planned = request.stored.planned_at.as_ref();
    planned.is_none_or(|planned| time::after(planned.0, PLAN_AGE) <= request.now)
}

/// Returns a hash of the facts that a user approves: the changed lines, and the commits of others that Flux applies
/// together with the upgrade.
fn hash(plan: &UpgradePlan) -> String {
    let commit = &plan.commit;
    names::hash(&format!("{:?} {}", commit.unapplied_commits, commit.diff))
}

fn waiting(request: &Request<'_>, plan: &UpgradePlan) -> String {
    format!(
        "waits until a user decides about {}: set 'spec.approval' of UpgradeRequest '{}'",
        plan.summary(),
        request.name()
    )
}
