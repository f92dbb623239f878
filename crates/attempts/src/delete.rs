//! Deletion of a run: its Jobs and Pods are stopped first.

use api::{Reason, Timestamp, Verdict, decide::Decision, names};

use crate::{
    Run, RunDecision, STOP_WAIT, outcome,
    run::{describe_pod, some_of},
    time,
    view::JobView,
};

/// Stops the Jobs, and releases the run when nothing is left. Releases it at once if it has ended,
/// or if an annotation asks for it.
pub(crate) fn decide(run: &Run<'_>, since: Timestamp) -> RunDecision {
    if run.has_ended() {
        return outcome::as_it_is(run);
    }
    let left = left(run);
    let status_only = |verdict| Decision::status_only(run.status.clone(), run.phase(), verdict);
    if run.annotation(names::FORCE_DELETE) == Some("true") {
        let message = "released without waiting, as the annotation requests";
        return status_only(Verdict::working(Reason::Deleting, message)).remove_finalizer();
    }
    if left.is_empty() {
        let message = "nothing is left of the run";
        return status_only(Verdict::working(Reason::Deleting, message)).remove_finalizer();
    }
    let deadline = time::after(since, STOP_WAIT);
    let mut decision = if run.now < deadline {
        let message = format!("waiting for {} to stop", some_of(&left));
        status_only(Verdict::working(Reason::Deleting, message)).requeue_at(deadline)
    } else {
        status_only(blocked(&left))
    };
    // The reconciliation that receives a permanent failure of a delete does not repeat the delete.
    if run.fault.is_none() {
        let stops = run.jobs().filter(|job| job.deleting.is_none());
        decision.effects = stops.map(|job: &JobView| run.delete(job)).collect();
    }
    decision
}

fn blocked(left: &[String]) -> Verdict {
    let (left, wait) = (some_of(left), time::format_duration(STOP_WAIT));
    let message = format!(
        "{left} did not stop within {wait}; still waiting. To release the run without waiting, set the annotation {}: \"true\"",
        names::FORCE_DELETE
    );
    Verdict::stalled(Reason::DeletionBlocked, message)
}

/// Returns the Jobs and Pods of the run that still exist. A Pod without its Job counts as long as
/// it may run. The garbage collector deletes the others.
fn left(run: &Run<'_>) -> Vec<String> {
    let jobs = run.jobs().map(|job| format!("Job '{}'", job.name));
    let of_jobs = run
        .world
        .pods
        .iter()
        .filter(|pod| run.jobs().any(|job| pod.job_uid.as_ref() == Some(&job.uid)));
    jobs.chain(of_jobs.chain(run.orphaned_pods()).map(describe_pod))
        .collect()
}
