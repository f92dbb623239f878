//! The end of an attempt: the stop before it, its stored evidence, and the retry backoff before the next one.
//!
//! Three stored states follow each other. Only `status.result` distinguishes them:
//!
//! - No result: the attempt is in progress.
//! - A result without `finishedAt`: the attempt was given up and is being stopped.
//! - A result with `finishedAt`: the attempt is over, and the next one waits.
//!
//! So a repeated reconciliation, or a process that is killed between two of them, changes nothing.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::Decision,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::{Backoff, Evidence, Retry, RunPhase},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    AttemptResult, Run, RunDecision, RunStatus, STOP_WAIT,
    attempt_result::evidence,
    disruption, outcome,
    run::{describe_pod, some_of},
    start, time,
    view::JobView,
};

/// Maximum length of a quoted message within one of our own messages, in characters.
const INNER: usize = MAX_MESSAGE_CHARS - 200;

/// Concludes an attempt that ended: ends the run, or schedules the next attempt.
pub(crate) fn finish_attempt(run: &Run<'_>, attempt_result: AttemptResult) -> RunDecision {
    let reason = attempt_result.reason;
    if disruption::is_disruption(reason) {
        return disrupted(run, attempt_result);
    }
    let may_repeat = !is_last(reason) && run.work.may_repeat(&attempt_result);
    let status = with_result(run, attempt_result.evidence);
    if reason == Reason::Succeeded {
        let verdict = Verdict::succeeded(attempt_result.message);
        return finish_run(run, status, RunPhase::Succeeded, verdict);
    }
    if let Some(retry) = run.spec.retry
        && may_repeat
        && !run.spec.cancel
        && status.attempts < retry.max_attempts
    {
        let due = run.after(backoff(&retry.backoff, status.attempts));
        return wait_for_next(run, status, due);
    }
    let verdict = Verdict::failed(reason, after_attempts(&status, &attempt_result.message));
    finish_run(run, status, RunPhase::Failed, verdict)
}

/// Starts the same attempt again after it was stopped from outside, up to a limit.
fn disrupted(run: &Run<'_>, attempt_result: AttemptResult) -> RunDecision {
    let is_counted = disruption::is_counted(run, &attempt_result);
    let mut run = run.clone();
    if !is_counted {
        run.status.disruptions = run.status.disruptions.saturating_add(1);
    }
    let mut status = with_result(&run, attempt_result.evidence);
    if status.disruptions >= disruption::MAX_DISRUPTIONS {
        let message = disruption::too_many(&run, &attempt_result.message);
        let verdict = Verdict::failed(Reason::TooManyDisruptions, message);
        return finish_run(&run, status, RunPhase::Failed, verdict);
    }
    status.progress.deadline_at = Some(run.stamp());
    let message = format!(
        "{}; it is started again without using an attempt (disruption {} of at most {})",
        bounded(&attempt_result.message, INNER),
        status.disruptions,
        disruption::MAX_DISRUPTIONS - 1
    );
    let verdict = Verdict::working(attempt_result.reason, message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(run.now)
}

/// Ends a run that was canceled before an attempt, or between two.
pub(crate) fn cancelled(run: &Run<'_>) -> RunDecision {
    let message = match run.status.attempts {
        0 => "cancelled by 'spec.cancel' before it was started".to_owned(),
        begun => format!("cancelled by 'spec.cancel' after attempt {begun}"),
    };
    let status = run.next();
    let verdict = Verdict::failed(Reason::Cancelled, message);
    finish_run(run, status, RunPhase::Failed, verdict)
}

/// Returns the status with complete evidence, which means that the attempt is over.
fn with_result(run: &Run<'_>, mut evidence: Evidence) -> RunStatus {
    let mut status = run.next();
    status.started_at = evidence.started_at.clone().or(status.started_at.take());
    evidence.finished_at.get_or_insert_with(|| run.stamp());
    status.result = Some(evidence);
    status
}

/// Returns whether another attempt is impossible after a failure for this reason: the effect of the last attempt is
/// unknown, or somebody does not want another one.
fn is_last(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::EvidenceLost | Reason::TooManyDisruptions | Reason::Cancelled
    )
}

fn after_attempts(status: &RunStatus, message: &str) -> String {
    match status.attempts {
        0 | 1 => message.to_owned(),
        several => format!("{} (after {several} attempts)", bounded(message, INNER)),
    }
}

/// Ends the run.
pub fn finish_run(
    run: &Run<'_>,
    mut status: RunStatus,
    phase: RunPhase,
    verdict: Verdict,
) -> RunDecision {
    status.finished_at = Some(run.stamp());
    status.progress.deadline_at = None;
    outcome::release(run, status, phase, verdict)
}

/// Fails the run before an attempt, or between two. The evidence of the last attempt stays.
pub fn fail_run(run: &Run<'_>, reason: Reason, message: &str) -> RunDecision {
    let status = run.next();
    let verdict = Verdict::failed(reason, after_attempts(&status, message));
    finish_run(run, status, RunPhase::Failed, verdict)
}

/// Handles a failed attempt: waits for the start time of the next one, or starts it.
pub(crate) fn retry_or_wait(run: &Run<'_>, result: &Evidence) -> RunDecision {
    // The author of the run or of the Agent may have lowered the number of attempts since.
    let is_spent = |retry: &Retry| run.status.attempts >= retry.max_attempts;
    if !disruption::was_disrupted(result) && run.spec.retry.is_some_and(is_spent) {
        return fail_run(run, reason_of(result), message_of(result));
    }
    let is_asked = run.spec.cancel || run.spec.suspend;
    match run.deadline() {
        Some(due) if run.now < due && !is_asked => wait_for_next(run, run.next(), due),
        Some(_) | None => start::start(run),
    }
}

/// Waits for the next attempt. The stored result has the reason, and the stored deadline the time, so every
/// reconciliation has the same message.
fn wait_for_next(run: &Run<'_>, mut status: RunStatus, due: Timestamp) -> RunDecision {
    status.progress.deadline_at = Some(Time(due));
    let result = status.result.clone().unwrap_or_default();
    let of = run
        .spec
        .retry
        .map_or_else(String::new, |retry| format!(" of {}", retry.max_attempts));
    let message = format!(
        "attempt {}{of} failed: {}; the next one starts at {due}",
        status.attempts,
        bounded(message_of(&result), INNER)
    );
    let verdict = Verdict::working(reason_of(&result), message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(due)
}

/// Returns the wait after this many attempts: `initial`, doubled each time, up to `max`.
pub fn backoff(backoff: &Backoff, attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    Duration::from(backoff.initial)
        .saturating_mul(doubled)
        .min(backoff.max.into())
}

pub(crate) fn reason_of(result: &Evidence) -> Reason {
    result
        .reason
        .as_deref()
        .and_then(Reason::from_name)
        .filter(|reason| *reason != Reason::Succeeded)
        .unwrap_or(Reason::InternalError)
}

pub(crate) fn message_of(result: &Evidence) -> &str {
    result.message.as_deref().unwrap_or_default()
}

/// Gives up an attempt. This only stores the evidence: the stop destroys the objects that carry it.
pub(crate) fn abort_attempt(
    run: &Run<'_>,
    job: &JobView,
    reason: Reason,
    message: &str,
) -> RunDecision {
    let attempt_result = AttemptResult::new(reason, message, evidence(run.newest_pod(job)));
    let result = Evidence {
        finished_at: None,
        ..attempt_result.evidence
    };
    let mut status = run.next();
    status.progress.deadline_at = Some(Time(run.after(STOP_WAIT)));
    let verdict = stopping_message(&result, &job.name);
    status.result = Some(result);
    Decision::status_only(status, run.phase(), verdict).requeue_at(run.now)
}

fn stopping_message(result: &Evidence, job: &str) -> Verdict {
    let message = bounded(message_of(result), INNER);
    let message = format!("{message}; stopping Job '{job}'");
    Verdict::working(reason_of(result), message)
}

/// Handles an attempt in progress with a Job that does not exist.
pub(crate) fn job_missing(run: &Run<'_>, job_name: &str) -> RunDecision {
    let message =
        format!("Job '{job_name}' was deleted by another actor before its result was read");
    let attempt_result = AttemptResult::new(Reason::JobLost, message, Evidence::default());
    finish_attempt(run, attempt_result)
}

/// Deletes the Job of an attempt that was given up, and waits for the deletion.
pub(crate) fn stop_job(run: &Run<'_>, result: &Evidence) -> RunDecision {
    let stored_name = run.status.job_name.as_deref();
    let job = stored_name.and_then(|name| run.job(name));
    let name = stored_name.unwrap_or_default();
    // The Job ended by itself in the meantime. There is nothing to stop, and its logs stay.
    let is_over = job.is_none_or(|job| job.end.is_some());
    if is_over && run.orphaned_pods().next().is_none() {
        return finish_attempt(run, stored(result));
    }
    let status_only =
        || Decision::status_only(run.next(), run.phase(), stopping_message(result, name));
    let asked = match job.filter(|job| job.end.is_none()) {
        // Even after the deadline: a Job that was not asked to stop has not had its time to do so.
        Some(job) if job.deleting.is_none() => {
            let requeue_at = run.after(STOP_WAIT);
            return status_only().with(run.delete(job)).requeue_at(requeue_at);
        }
        Some(job) => job.deleting,
        None => run.orphaned_pods().filter_map(|pod| pod.stop_asked).max(),
    };
    let deadline = asked
        .map(|asked| time::after(asked, STOP_WAIT))
        .or(run.deadline())
        .unwrap_or(run.now);
    if run.now >= deadline {
        return stop_timed_out(run, result, &still_there(run, job));
    }
    status_only().requeue_at(deadline)
}

/// Fails the run because the stop did not finish in time. A Pod may still run, so no other may start.
pub(crate) fn stop_timed_out(run: &Run<'_>, result: &Evidence, what: &str) -> RunDecision {
    let message = bounded(message_of(result), INNER);
    let wait = time::format_duration(STOP_WAIT);
    let message = format!("{message}; it could not be stopped within {wait}: {what}");
    let failed = AttemptResult::new(reason_of(result), message, result.clone());
    let status = with_result(run, failed.evidence);
    let verdict = Verdict::failed(failed.reason, failed.message);
    finish_run(run, status, RunPhase::Failed, verdict)
}

fn still_there(run: &Run<'_>, job: Option<&JobView>) -> String {
    let of_job = job.iter().flat_map(|job| run.pods_of(job));
    let things: Vec<String> = job
        .iter()
        .map(|job| format!("Job '{}'", job.name))
        .chain(of_job.chain(run.orphaned_pods()).map(describe_pod))
        .collect();
    format!("{} still exists", some_of(&things))
}

fn stored(result: &Evidence) -> AttemptResult {
    AttemptResult {
        reason: reason_of(result),
        message: message_of(result).to_owned(),
        evidence: result.clone(),
    }
}
