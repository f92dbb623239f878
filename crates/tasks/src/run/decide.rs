//! The decision about a TaskRun.

use api::{
    decide::Input,
    tasks::{TaskRun, TaskRunStatus},
};
use attempts::{Run, RunStatus, advance, checked, conclude};

use super::{RunDecision, RunWorld, run_spec::RunSpec, version};

/// Decides the effects for a run, and its status.
///
/// # Guarantees
/// Those of the crate [`attempts`], and:
/// - A run becomes `Succeeded` only if the world contains the evidence. For an object that was
///   restored without its status, its own annotation is the evidence.
#[must_use]
pub fn decide(input: &Input<'_, TaskRun, RunWorld>) -> RunDecision {
    let TaskRunStatus {
        phase,
        context_version: version,
        attempt,
        mut history,
        progress,
    } = input.object.status.clone().unwrap_or_default();
    let status = RunStatus {
        phase,
        version,
        attempt,
        progress,
    };
    let run_spec = RunSpec::of_task(input.object, input.world);
    let run = Run {
        fault: input.fault,
        refused: input.refused,
        confirmed: input.confirmed,
        ..run_spec.run(status, input.now)
    };
    let decision = match conclude(&run) {
        Some(decision) => decision,
        None if version::is_superseded(&run) => {
            version::add_past(&run, &mut history);
            checked(&run, version::supersede(&run))
        }
        None => advance(&run),
    };
    let phase = decision.phase;
    decision.map_status(phase, |status| TaskRunStatus {
        phase: status.phase,
        context_version: status.version,
        attempt: status.attempt,
        history,
        progress: status.progress,
    })
}
