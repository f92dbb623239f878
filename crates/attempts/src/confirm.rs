//! Conclusions that need a live read, because a cache alone is not enough.
//!
//! A watch may be silent for minutes without an error. Its cache then lacks objects, or has old states of them. A
//! decision would then see a lost Job, a Pod without a reported end, or a Pod that did not start in time. So each end
//! other than a success is decided from a live read. The same applies to the release of a run that is being deleted.

use std::time::Duration;

use api::{
    Reason, Status, Verdict,
    decide::{Decision, Effect, FinalizerAction, LiveRead, ResourceType},
    names,
    tasks::RunPhase,
};

use crate::{Run, RunDecision, Stage, start};

/// Delay before files are read again that were dropped immediately.
const FILES_WAIT: Duration = Duration::from_secs(1);

/// Returns the decision, with the live reads that must precede it.
///
/// A reconciliation reads only once. So a decision that needs the files also requests all other reads: the decision
/// that follows may be final.
pub(crate) fn first(run: &Run<'_>, decision: RunDecision) -> RunDecision {
    let lacks_files = run.spec.lacks_files && stores_files(&decision);
    let confirm = match (run.confirmed, lacks_files) {
        (true, true) => return waits_for_files(run),
        (true, false) => return decision,
        (false, true) => {
            let mut all = reads(run);
            all.push(own(run));
            all
        }
        (false, false) if is_final(run, &decision) => reads(run),
        (false, false) => return decision,
    };
    Decision {
        confirm,
        ..decision
    }
}

/// Returns whether the decision stores or compares the files.
fn stores_files(decision: &RunDecision) -> bool {
    let mut effects = decision.effects.iter();
    effects.any(|effect| {
        matches!(effect, Effect::Ensure(manifest) if manifest.resource == ResourceType::CONFIG_MAP)
    })
}

/// Waits for the files. They were dropped immediately, because the files of many other runs were read at the same time.
fn waits_for_files(run: &Run<'_>) -> RunDecision {
    let again = run.after(FILES_WAIT);
    let message = "its files are being read";
    match run.stage() {
        Stage::NotStarted | Stage::RetryBackoff(_) => {
            start::wait(run, Reason::Progressing, message, None).requeue_at(again)
        }
        // The deadline of the attempt stays.
        Stage::InProgress(_) | Stage::Stopping(_) => {
            let verdict = Verdict::working(Reason::Progressing, message);
            Decision::status_only(run.next(), run.phase(), verdict).requeue_at(again)
        }
    }
}

fn own(run: &Run<'_>) -> LiveRead {
    LiveRead::Object {
        resource: run.spec.resource,
        namespace: Some(run.namespace.to_owned()),
        name: run.spec.metadata.name.clone().unwrap_or_default(),
    }
}

/// Returns whether a decision ends an attempt, a version or the run without a success, or releases a run that did not
/// end.
fn is_final(run: &Run<'_>, decision: &RunDecision) -> bool {
    let is_deleting = run.spec.metadata.deletion_timestamp.is_some();
    if is_deleting {
        let is_forced = run.annotation(names::FORCE_DELETE) == Some("true");
        return matches!(decision.finalizer, FinalizerAction::Remove { .. })
            && !run.has_ended()
            && !is_forced;
    }
    // All Jobs of an earlier version must be known before a later one starts anything.
    let is_another_version =
        run.status.version.is_some() && decision.status.epoch() > run.status.epoch();
    let is_result = decision.status.result != run.status.result;
    let is_end = decision.is_end() && !run.has_ended();
    is_another_version || (is_result || is_end) && decision.phase != RunPhase::Succeeded
}

/// Returns the live reads of everything that a watch may have missed for this run.
fn reads(run: &Run<'_>) -> Vec<LiveRead> {
    let children = |resource: ResourceType| LiveRead::Children {
        resource,
        namespace: run.namespace.to_owned(),
        owner_kind: run.spec.resource.kind,
        owner_uid: run.uid.to_owned(),
    };
    let mut reads = vec![children(ResourceType::JOB), children(ResourceType::POD)];
    reads.extend(run.work.reads());
    reads
}
