//! The phases of a rollback that no upgrade has: the restore of the volumes, their swap, and the undo of a restore.

use api::{
    Reason, Verdict,
    apps::{
        RestoredVolume, RollbackFailure, RollbackPhase, RollbackPlan, RollbackRequest,
        RollbackRequestStatus, rollback_condition,
    },
    decide::{ConditionUpdate, Decision, Effect, Input, LiveRead},
    names, time,
};

use super::{
    Owner, RollbackDecision,
    restore::{self, RestoreStep},
    shared,
    swap::{self, Swap, SwapStep},
    volume::VolumeObjects,
    world::RollbackWorld,
};
use crate::discover::Problem;

/// Maximum age of a status. Events trigger earlier reconciliations; this limit holds if one is lost.
const MAX_AGE: std::time::Duration = std::time::Duration::from_secs(30);

/// A request in a phase with a stored plan.
pub(super) struct Volumes<'a> {
    pub(super) input: &'a Input<'a, RollbackRequest, RollbackWorld>,
    pub(super) stored: RollbackRequestStatus,
    pub(super) plan: RollbackPlan,
}

impl Volumes<'_> {
    fn owner(&self) -> Owner<'_> {
        let meta = &self.input.object.metadata;
        Owner {
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the objects of a volume of the plan.
    fn seen(&self, index: usize) -> VolumeObjects {
        let volumes = &self.input.world.volumes;
        volumes.get(index).cloned().unwrap_or_default()
    }

    fn report(&self, phase: RollbackPhase, verdict: Verdict) -> RollbackDecision {
        Decision::status_only(self.stored.clone(), phase, verdict)
            .requeue_at(time::after(self.input.now, MAX_AGE))
    }

    fn confirm(&self, phase: RollbackPhase, reads: Vec<LiveRead>) -> RollbackDecision {
        let verdict = Verdict::working(reason_of(phase), "reads the state of the volumes");
        let mut decision = self.report(phase, verdict);
        decision.confirm = reads;
        decision
    }

    fn fail(&self, phase: RollbackPhase, problem: &Problem) -> RollbackDecision {
        let mut status = self.stored.clone();
        status.failure.get_or_insert_with(|| RollbackFailure {
            phase,
            reason: problem.reason.name().to_owned(),
            message: problem.message.clone(),
        });
        let message = format!("undoes the request: {}", problem.message);
        let verdict = Verdict::working(Reason::Undoing, message);
        Decision::status_only(status, RollbackPhase::Undo, verdict).requeue_at(self.input.now)
    }

    /// Decides about a request in `VolumeRestore`.
    pub(super) fn restore(&self) -> RollbackDecision {
        let (phase, input) = (RollbackPhase::VolumeRestore, self.input);
        // A quota that does not allow both volumes, for example. Nothing is lost.
        if let Some(fault) = input.fault {
            return self.fail(phase, &Problem::new(fault.reason, fault.message.clone()));
        }
        if let Some(problem) = shared::restarted(input) {
            return if input.confirmed {
                self.fail(phase, &problem)
            } else {
                self.confirm(phase, shared::reads(input))
            };
        }
        let (mut effects, mut waiting, mut restored) = (Vec::new(), None, Vec::new());
        for (index, planned) in self.plan.restores.iter().enumerate() {
            let settings = &input.world.settings;
            match restore::next(&self.owner(), settings, planned, &self.seen(index)) {
                RestoreStep::Act(effect, message) => {
                    effects.push(*effect);
                    waiting.get_or_insert(message);
                }
                RestoreStep::Wait(message) => {
                    waiting.get_or_insert(message);
                }
                RestoreStep::Failed(problem) => return self.fail(phase, &problem),
                RestoreStep::Done(volume) => restored.push(volume),
            }
        }
        let Some(waiting) = waiting else {
            return self.restored(restored);
        };
        if input.overdue {
            return self.fail(phase, &self.too_late(&waiting));
        }
        let decision = self.report(phase, Verdict::working(Reason::Restoring, waiting));
        effects.into_iter().fold(decision, Decision::with)
    }

    /// Returns why the phase is over: nothing progressed, or the time of all volumes together is over.
    fn too_late(&self, waiting: &str) -> Problem {
        let started = self.stored.progress.phase_started_at.as_ref();
        let cap: std::time::Duration = self.plan.change.timeouts.volume_cap.into();
        let is_capped = started.is_some_and(|at| time::after(at.0, cap) <= self.input.now);
        let reason = if is_capped {
            Reason::RestoreCapExceeded
        } else {
            Reason::RestoreNoProgress
        };
        Problem::new(reason, waiting)
    }

    /// Stores the restored volumes, then the intent to push. Both are in one status: the swap needs the volumes.
    fn restored(&self, restored: Vec<RestoredVolume>) -> RollbackDecision {
        let count = restored.len();
        let mut decision = shared::begin_commit(self.input);
        decision.status.restored = restored;
        decision.conditions.push(ConditionUpdate {
            kind: rollback_condition::VOLUMES_RESTORED,
            value: Some(true),
            reason: Reason::VolumesRestored,
            message: format!("{count} volumes are restored"),
        });
        decision
    }

    /// Decides about a request in `VolumeSwap`, in deletion or not. It has no undo.
    pub(super) fn swap(&self) -> RollbackDecision {
        let (phase, input) = (RollbackPhase::VolumeSwap, self.input);
        if is_forced(input.object) {
            return self.forced();
        }
        let (mut effects, mut reads) = (Vec::<Effect>::new(), Vec::new());
        let (mut waiting, mut blocked) = (None, None);
        for (index, planned) in self.plan.restores.iter().enumerate() {
            let mut restored = self.stored.restored.iter();
            let is_it = |one: &&RestoredVolume| {
                one.namespace == planned.namespace && one.pvc == planned.pvc
            };
            let Some(restored) = restored.find(is_it) else {
                let message = format!("the restored volume of {} is not stored", planned.id());
                blocked.get_or_insert(Problem::new(Reason::VolumeSwapBlocked, message));
                continue;
            };
            let step = swap::next(&Swap {
                owner: self.owner(),
                planned,
                restored,
                seen: &self.seen(index),
                confirmed: input.confirmed,
            });
            match step {
                SwapStep::Act(changes, message) => {
                    effects.extend(changes);
                    waiting.get_or_insert(message);
                }
                SwapStep::Confirm(wanted) => reads.extend(wanted),
                SwapStep::Wait(message) => {
                    waiting.get_or_insert(message);
                }
                SwapStep::Blocked(problem) => {
                    blocked.get_or_insert(problem);
                }
                SwapStep::Done => {}
            }
        }
        if !reads.is_empty() {
            return self.confirm(phase, reads);
        }
        let verdict = match (blocked, waiting) {
            (None, None) => return self.swapped(),
            (Some(problem), _) if problem.reason == Reason::PVCNameTaken || input.overdue => {
                Verdict::stalled(problem.reason, problem.message)
            }
            (Some(problem), _) => Verdict::working(Reason::Swapping, problem.message),
            (None, Some(message)) if input.overdue => {
                Verdict::stalled(Reason::VolumeSwapBlocked, message)
            }
            (None, Some(message)) => Verdict::working(Reason::Swapping, message),
        };
        let decision = self.report(phase, verdict);
        effects.into_iter().fold(decision, Decision::with)
    }

    fn swapped(&self) -> RollbackDecision {
        let verdict = Verdict::working(Reason::Applying, "resumes Flux");
        let mut decision =
            Decision::status_only(self.stored.clone(), RollbackPhase::Reconcile, verdict)
                .requeue_at(self.input.now);
        decision.conditions.push(ConditionUpdate {
            kind: rollback_condition::VOLUMES_SWAPPED,
            value: Some(true),
            reason: Reason::VolumesSwapped,
            message: format!(
                "{} claims have their restored volumes",
                self.stored.restored.len()
            ),
        });
        decision
    }

    /// Removes the finalizer before the swap is complete. A status that says so comes first.
    fn forced(&self) -> RollbackDecision {
        let phase = RollbackPhase::VolumeSwap;
        let reason = Reason::ForceDeleted;
        let failure = self.stored.failure.as_ref();
        let verdict = |message: &str| Verdict::stalled(reason, message);
        if let Some(failure) = failure.filter(|failure| failure.reason == reason.name()) {
            return self
                .report(phase, verdict(&failure.message))
                .remove_finalizer();
        }
        let message = format!(
            "annotation '{}': the volumes are not swapped, Flux is suspended and the workloads are stopped",
            names::FORCE_DELETE
        );
        let mut decision = self.report(phase, verdict(&message));
        decision.status.failure = Some(RollbackFailure {
            phase,
            reason: reason.name().to_owned(),
            message,
        });
        decision.requeue_at(self.input.now)
    }

    /// Decides about a request in `Undo`, in deletion or not: first the restored volumes, then everything else. Flux and the
    /// workloads do not wait for a claim with a finalizer.
    pub(super) fn undo(&self) -> RollbackDecision {
        let mut decision = shared::decide(self.input);
        // After the commit, the volumes may be swapped. Temporary claims exist before it only.
        let is_read = !decision.confirm.is_empty();
        if is_read || is_forced(self.input.object) {
            return decision;
        }
        let mut left = None;
        for index in 0..self.plan.restores.len() {
            match restore::undo(&self.seen(index)) {
                Some(SwapStep::Act(effects, message)) => {
                    decision.effects.extend(effects);
                    left.get_or_insert(message);
                }
                Some(SwapStep::Wait(message)) => {
                    left.get_or_insert(message);
                }
                Some(SwapStep::Confirm(_) | SwapStep::Blocked(_) | SwapStep::Done) | None => {}
            }
        }
        let Some(left) = left else {
            return decision;
        };
        if decision.phase == RollbackPhase::Undo {
            return decision;
        }
        // Everything else is restored. The request ends when the volumes are deleted.
        let verdict = if self.input.overdue {
            Verdict::stalled(Reason::UndoBlocked, left)
        } else {
            Verdict::working(Reason::Undoing, left)
        };
        let waiting = self.report(RollbackPhase::Undo, verdict);
        decision.effects.into_iter().fold(waiting, Decision::with)
    }
}

fn is_forced(request: &RollbackRequest) -> bool {
    let is_deleting = request.metadata.deletion_timestamp.is_some();
    let annotations = request.metadata.annotations.as_ref();
    let value = annotations.and_then(|all| all.get(names::FORCE_DELETE));
    is_deleting && value.is_some_and(|value| value == "true")
}

/// Returns the reason of a phase in progress.
fn reason_of(phase: RollbackPhase) -> Reason {
    if phase == RollbackPhase::VolumeSwap {
        Reason::Swapping
    } else {
        Reason::Restoring
    }
}
