//! Decides about UpgradeRequests: suspends Flux, stops the workloads, takes snapshots, pushes the new version to Git,
//! lets Flux apply it, and checks the health. A failure before the commit undoes everything.
//!
//! # Guarantees
//! - Nothing is changed before the plan is stored. The plan has everything that the undo needs, also after the
//!   ManagedApp was deleted.
//! - The intent to push is stored before the first Job that pushes, and one request has one commit: each attempt finds the
//!   commit of an earlier one by the UID in its trailer.
//! - After the commit, nothing is undone and no snapshot is deleted: Flux is resumed, and the replica counts are restored.
//! - A request that failed or is deleted ends only after each object was read back from the API server: no Flux object
//!   has its lock, and no workload is at zero because of it.
//! - A request is never stuck: each phase that waits for the cluster leads to `Undo` at its deadline.

mod approval;
mod commit_job;
pub mod commit_step;
mod conditions;
mod deletion;
pub mod flux_target;
mod git_commit;
mod git_plan;
mod guard;
mod health_check;
pub(crate) mod images;
mod pending;
mod plan;
mod reconcile;
pub mod recovery;
pub mod retention;
pub(crate) mod return_plan;
mod scale_down;
pub mod scale_target;
mod selection;
mod snapshot;
pub mod storage;
mod suspend;
#[cfg(test)]
pub(crate) mod tests;
mod undo;
pub mod world;

use api::{
    Reason, Timestamp, Verdict,
    apps::{UpgradeFailure, UpgradePhase, UpgradePlan, UpgradeRequest, UpgradeRequestStatus},
    decide::{Decision, Input, LiveRead, ReconcileError, Target},
    names, time,
};

pub use self::snapshot::{APP, SOURCE_PVC, progress};
use self::world::UpgradeWorld;
use crate::{discover::Problem, rollback::automatic::rollback_of};

/// Maximum age of a status. Events trigger earlier reconciliations; this limit holds if one is lost.
const MAX_AGE: std::time::Duration = std::time::Duration::from_secs(30);

/// Finalizer of UpgradeRequests.
pub const FINALIZER: &str = "upgraderequests.orchestrator.io/finalizer";

/// A decision about an UpgradeRequest.
pub type UpgradeDecision = Decision<UpgradeRequestStatus>;

/// Decides the effects for a request, and its status.
#[must_use]
pub fn decide(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> UpgradeDecision {
    let request = Request::new(input);
    if request.is_deleting() {
        return deletion::decide(&request);
    }
    match request.phase {
        UpgradePhase::Pending => pending::decide(&request),
        UpgradePhase::Plan => plan::decide(&request),
        UpgradePhase::Approval => approval::decide(&request),
        UpgradePhase::Suspend => suspend::decide(&request),
        UpgradePhase::ScaleDown => scale_down::decide(&request),
        UpgradePhase::Snapshot => snapshot::decide(&request),
        UpgradePhase::GitCommit => git_commit::decide(&request),
        UpgradePhase::Reconcile => reconcile::decide(&request),
        UpgradePhase::HealthCheck => health_check::decide(&request),
        UpgradePhase::Undo => undo::decide(&request),
        UpgradePhase::Succeeded | UpgradePhase::Failed => request.ended(),
    }
}

/// Returns why an application is not stopped any more: Flux may apply it again, or someone scaled up a workload. Phases
/// of a rollback check it, too.
#[must_use]
pub fn restarted(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> Option<Problem> {
    let request = Request::new(input);
    let plan = request.plan()?;
    guard::broken(&request).or_else(|| scale_down::scaled_up(&request, plan))
}

/// Stores the intent to push the commit of the plan, and begins the phase that pushes it.
#[must_use]
pub fn begin_commit(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> UpgradeDecision {
    let request = Request::new(input);
    git_commit::begin(&request, request.stored.clone())
}

/// Returns the reads of all objects that a plan suspends and stops.
#[must_use]
pub fn reads(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> Vec<LiveRead> {
    Request::new(input).reads_of_plan()
}

/// The inputs of a decision.
struct Request<'a> {
    object: &'a UpgradeRequest,
    world: &'a UpgradeWorld,
    stored: UpgradeRequestStatus,
    phase: UpgradePhase,
    now: Timestamp,
    overdue: bool,
    confirmed: bool,
    fault: Option<&'a ReconcileError>,
    /// Whether the fault is that of an optional effect.
    refused: bool,
}

impl<'a> Request<'a> {
    fn new(input: &Input<'a, UpgradeRequest, UpgradeWorld>) -> Self {
        let stored = input.object.status.clone().unwrap_or_default();
        Self {
            object: input.object,
            world: input.world,
            phase: stored.phase.unwrap_or(UpgradePhase::Pending),
            stored,
            now: input.now,
            overdue: input.overdue,
            confirmed: input.confirmed,
            fault: input.fault,
            refused: input.refused,
        }
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.object
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
    }

    fn app_name(&self) -> &str {
        &self.object.spec.managed_app_ref.name
    }

    fn is_dry_run(&self) -> bool {
        self.object.spec.dry_run
    }

    fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    fn is_forced(&self) -> bool {
        let annotations = self.object.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(names::FORCE_DELETE));
        value.is_some_and(|value| value == "true")
    }

    /// Returns the stored plan. Phases after `Plan` always have one; without it, nothing was changed.
    fn plan(&self) -> Option<&UpgradePlan> {
        self.stored.plan.as_ref()
    }

    /// Stays in the phase and names the blocker.
    fn wait(&self, reason: Reason, message: impl Into<String>) -> UpgradeDecision {
        let verdict = Verdict::working(reason, message);
        Decision::status_only(self.stored.clone(), self.phase, verdict)
            .requeue_at(time::after(self.now, MAX_AGE))
    }

    /// Goes to the next phase, with this status. The phase is decided about at once.
    fn advance(
        &self,
        status: UpgradeRequestStatus,
        next: UpgradePhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> UpgradeDecision {
        Decision::status_only(status, next, Verdict::working(reason, message)).requeue_at(self.now)
    }

    /// Rejects the request before any change.
    fn reject(&self, problem: Problem) -> UpgradeDecision {
        let message = format!("{}. Nothing was changed", without_stop(&problem.message));
        let verdict = Verdict::failed(problem.reason, message);
        Decision::status_only(self.stored.clone(), UpgradePhase::Failed, verdict).remove_finalizer()
    }

    /// Ends the phase with a failure, and begins the undo. The first failure is the reason of the request.
    fn fail(&self, problem: &Problem) -> UpgradeDecision {
        let mut status = self.stored.clone();
        let phase = self.phase;
        status.failure.get_or_insert_with(|| UpgradeFailure {
            phase,
            reason: problem.reason.name().to_owned(),
            message: problem.message.clone(),
        });
        let message = format!("undoes the request: {}", problem.message);
        self.advance(status, UpgradePhase::Undo, Reason::Undoing, message)
    }

    /// Reads these objects from the API server before anything is decided from them.
    fn confirm(&self, reads: Vec<LiveRead>) -> UpgradeDecision {
        let mut decision = self.wait(self.waiting_reason(), "reads the state of the application");
        decision.confirm = reads;
        decision
    }

    /// Returns the reason for a phase in progress.
    fn waiting_reason(&self) -> Reason {
        match self.phase {
            UpgradePhase::Pending => Reason::OperationActive,
            UpgradePhase::Plan => Reason::Planning,
            UpgradePhase::Approval => Reason::AwaitingApproval,
            UpgradePhase::Suspend => Reason::Suspending,
            UpgradePhase::ScaleDown => Reason::ScalingDown,
            UpgradePhase::Snapshot => Reason::Snapshotting,
            UpgradePhase::GitCommit => Reason::Committing,
            UpgradePhase::Reconcile => Reason::Applying,
            UpgradePhase::HealthCheck => Reason::CheckingHealth,
            UpgradePhase::Undo | UpgradePhase::Succeeded | UpgradePhase::Failed => Reason::Undoing,
        }
    }

    /// Returns the same status for a request that has ended, creates its rollback, and releases the object.
    fn ended(&self) -> UpgradeDecision {
        let progress = &self.stored.progress;
        let message = progress.message.clone().unwrap_or_default();
        let verdict = if self.phase == UpgradePhase::Succeeded {
            Verdict::succeeded(message)
        } else {
            Verdict::failed(self.stored_reason(), message)
        };
        let decision = Decision::status_only(self.stored.clone(), self.phase, verdict);
        let rollback = self
            .stored
            .rollback
            .as_ref()
            .filter(|_| self.has_finalizer());
        let rollback = rollback.and_then(|_| rollback_of(self.object, &self.world.rollbacks));
        rollback
            .into_iter()
            .fold(decision, Decision::with)
            .remove_finalizer()
    }

    fn has_finalizer(&self) -> bool {
        let mut all = self
            .object
            .metadata
            .finalizers
            .iter()
            .flat_map(|all| all.iter());
        all.any(|one| one == FINALIZER)
    }

    fn stored_reason(&self) -> Reason {
        let name = self.stored.progress.reason.as_deref().unwrap_or_default();
        Reason::from_name(name).unwrap_or(Reason::InternalError)
    }

    /// Returns the reads of all objects of the plan.
    fn reads_of_plan(&self) -> Vec<LiveRead> {
        let plan = self.plan();
        let flux = plan.into_iter().flat_map(|plan| plan.flux_objects.iter());
        let flux = flux.map(|one| read(one.kind.resource(), &one.namespace, &one.name));
        let workloads = plan.into_iter().flat_map(|plan| plan.workloads.iter());
        let workloads = workloads.map(|one| read(one.kind.resource(), &one.namespace, &one.name));
        flux.chain(workloads).collect()
    }
}

/// Returns the read of one object.
fn read(resource: api::decide::ResourceType, namespace: &str, name: &str) -> LiveRead {
    LiveRead::Object {
        resource,
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    }
}

/// Returns a target that requires the stored plan.
fn planned(target: Target) -> Target {
    target.requires_intent(api::apps::upgrade_intent::CHANGE.to_owned())
}

/// Returns a sentence without its stop, so that another sentence can follow.
fn without_stop(text: &str) -> &str {
    text.strip_suffix('.').unwrap_or(text)
}
