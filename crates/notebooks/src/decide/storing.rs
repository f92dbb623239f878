//! The end of a job: its full result is stored before the status that ends it.
//!
//! The log of the runner was usually read before the Job ends. Otherwise the verdict is stored first, with the report and
//! a deadline, and the job waits for the log:
//!
//! - No report: the attempt is in progress.
//! - A report before the end: the verdict is known, and the result is being stored.

use std::{sync::Arc, time::Duration};

use api::{
    Reason, Verdict,
    decide::{ConditionUpdate, Decision, Effect, ErrorClass, ReconcileError, ResourceType},
    external::Reply,
    notebooks::{MAX_CELLS, NotebookValidationJobStatus, ReportStatus, Store, condition},
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::RunPhase,
};
use attempts::{Run, RunDecision, time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{NotebookDecision, of_notebook};
use crate::{
    full_result::FullResult,
    results::{config_map, config_map_name},
    runner_log::LogContent,
    work::Validation,
};

/// How long to wait for the log. The verdict stands without it.
const READ_TIME: Duration = Duration::from_secs(120);
/// Delay after which a rejected ConfigMap is created again.
const RETRY: Duration = Duration::from_secs(5);

/// Everything that the next step depends on.
#[derive(Debug, Clone, Copy)]
struct Inputs<'a> {
    store: Store,
    /// Maximum size of the compressed result, in bytes.
    limit: u32,
    report: &'a ReportStatus,
    log: Option<&'a Reply<LogContent>>,
    /// Failure of the creation of the ConfigMap.
    refusal: Option<&'a ReconcileError>,
    /// Whether the deadline has passed, or the end must not wait.
    is_late: bool,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Nothing is to be stored.
    Skip,
    /// The result is to be stored.
    Store(Arc<FullResult>),
    /// The result cannot be stored, for this cause.
    Missing(String),
    /// The result is not known yet, or not stored yet, for this cause.
    Wait(String),
}

/// Returns the next step.
fn step(inputs: &Inputs<'_>) -> Step {
    let Inputs {
        store,
        limit,
        report,
        log,
        refusal,
        is_late,
    } = *inputs;
    if store == Store::None {
        return Step::Skip;
    }
    if report.bytes > limit {
        let bytes = report.bytes;
        return Step::Missing(format!(
            "the compressed result has {bytes} bytes, which is more than the limit of {limit} ('notebooks.results.maxBytes')"
        ));
    }
    let cause = match (refusal, log.map(|reply| &reply.response)) {
        // An object of another owner, or a rejection of the content, lasts.
        (Some(refusal), _) if refusal.class == ErrorClass::Invalid => {
            return Step::Missing(refusal.message.clone());
        }
        (Some(refusal), _) => refusal.message.clone(),
        // The checksum of the report proves the content, so the age of the response does not matter.
        (None, Some(Ok(LogContent::Result(Ok(full))))) => return Step::Store(Arc::clone(full)),
        (None, Some(Ok(LogContent::Result(Err(problem))))) => {
            return Step::Missing(problem.clone());
        }
        (None, Some(Err(failure))) => failure.message.clone(),
        // A response about the progress belongs to an earlier request.
        (None, Some(Ok(LogContent::Progress(_))) | None) => {
            "the log of the runner was not read yet".to_owned()
        }
    };
    if is_late {
        Step::Missing(cause)
    } else {
        Step::Wait(cause)
    }
}

/// Ends the job with this decision, or waits until its full result is stored. `kept` has the report.
pub(super) fn finish(
    run: &Run<'_>,
    work: &Validation<'_>,
    end: RunDecision,
    kept: &NotebookValidationJobStatus,
) -> NotebookDecision {
    let Some(report) = &kept.report else {
        return of_notebook(end, kept);
    };
    let stored = work.status.report.as_ref().and_then(|_| run.deadline());
    let deadline = stored.unwrap_or_else(|| run.after(READ_TIME));
    let inputs = Inputs {
        store: work.job.spec.results.store,
        limit: work.world.settings.max_result_bytes,
        report,
        log: work.world.log.as_ref(),
        refusal: run.fault,
        is_late: run.now >= deadline || !can_wait(&end),
    };
    match step(&inputs) {
        Step::Skip => of_notebook(end, kept),
        Step::Store(full) => store(work, end, kept, &full),
        Step::Missing(cause) => not_stored(end, kept, &cause),
        Step::Wait(cause) => wait(run, end, kept, &cause, &inputs, deadline),
    }
}

/// Returns whether the stored evidence repeats this end. Another end, such as a cancellation, has its verdict only in this
/// decision.
fn can_wait(end: &RunDecision) -> bool {
    let result = end.status.result.as_ref();
    let reason = end.verdict.reason.name();
    result.is_some_and(|result| {
        result.finished_at.is_some() && result.reason.as_deref() == Some(reason)
    })
}

fn store(
    work: &Validation<'_>,
    end: RunDecision,
    kept: &NotebookValidationJobStatus,
    full: &FullResult,
) -> NotebookDecision {
    let manifest = match config_map(work.job, full.content.clone()) {
        Ok(manifest) => manifest,
        Err(error) => {
            let cause = format!("the ConfigMap cannot be written as JSON: {error}");
            return not_stored(end, kept, &cause);
        }
    };
    let name = config_map_name(work.job.metadata.name.as_deref().unwrap_or_default());
    let message = format!("ConfigMap '{name}' has the full result");
    let mut status = with_lists(kept, full);
    if let Some(report) = &mut status.report {
        report.config_map_name = Some(name);
        report.truncated.clone_from(&full.truncated);
    }
    let effect = Effect::Ensure(Box::new(manifest)).optional();
    with_condition(
        of_notebook(end, &status).with(effect),
        true,
        Reason::ResultStored,
        message,
    )
}

/// Returns the status with the cells and the differences of the result.
fn with_lists(
    kept: &NotebookValidationJobStatus,
    full: &FullResult,
) -> NotebookValidationJobStatus {
    let mut status = kept.clone();
    let listed = u32::try_from(full.cells.len().min(MAX_CELLS)).unwrap_or(u32::MAX);
    let total = status.cells.as_ref().map_or(0, |cells| cells.total);
    let omitted = total.saturating_sub(listed);
    status.results.clone_from(&full.cells);
    status.results_omitted = (omitted > 0).then_some(omitted);
    if let Some(comparison) = &mut status.comparison_result {
        comparison.diffs.clone_from(&full.diffs);
    }
    status
}

fn not_stored(
    end: RunDecision,
    kept: &NotebookValidationJobStatus,
    cause: &str,
) -> NotebookDecision {
    let message = format!(
        "the full result was not stored: {}",
        bounded(cause, MAX_MESSAGE_CHARS - 100)
    );
    with_condition(
        of_notebook(end, kept),
        false,
        Reason::ResultNotStored,
        message,
    )
}

fn with_condition(
    mut decision: NotebookDecision,
    is_stored: bool,
    reason: Reason,
    message: String,
) -> NotebookDecision {
    decision.conditions.push(ConditionUpdate {
        kind: condition::RESULTS_STORED,
        value: Some(is_stored),
        reason,
        message,
    });
    decision
}

/// Stores the verdict, and waits for the result.
fn wait(
    run: &Run<'_>,
    end: RunDecision,
    kept: &NotebookValidationJobStatus,
    cause: &str,
    inputs: &Inputs<'_>,
    deadline: api::Timestamp,
) -> NotebookDecision {
    let mut next = end.status;
    next.finished_at = None;
    next.progress.deadline_at = Some(Time(deadline));
    let cause = bounded(cause, MAX_MESSAGE_CHARS - 150);
    let message =
        format!("the run ended, and its full result is being stored until {deadline}: {cause}");
    let verdict = Verdict::working(Reason::ReadingResult, message);
    let again = match inputs.refusal {
        Some(_) => run.after(RETRY),
        None => Reply::requeue_at(inputs.log, run.now),
    };
    let decision = Decision::status_only(next, RunPhase::Running, verdict)
        .requeue_at(deadline)
        .requeue_at(again);
    of_notebook(decision, kept)
}

/// Adds the deletion of the stored result to the decision about a job that ended, if it is due.
pub(super) fn expire(
    run: &Run<'_>,
    work: &Validation<'_>,
    mut decision: NotebookDecision,
) -> NotebookDecision {
    let metadata = &work.job.metadata;
    let finished = work.status.finished_at.as_ref();
    let end = finished.or(metadata.creation_timestamp.as_ref());
    let is_kept = run.is_preserved() || metadata.deletion_timestamp.is_some() || !run.has_ended();
    let Some(end) = end.filter(|_| !is_kept) else {
        return decision;
    };
    let stored = work.world.stored_results.iter();
    let due: Vec<Effect> = stored
        .filter(|map| !map.deleting)
        .map(|map| Effect::Delete(run.target(ResourceType::CONFIG_MAP, &map.name, &map.uid)))
        .collect();
    if due.is_empty() {
        return decision;
    }
    let at = time::after(end.0, work.job.spec.results.ttl.into());
    if run.now < at {
        return decision.requeue_at(at);
    }
    decision.effects.extend(due);
    decision
}

#[cfg(test)]
mod tests;
