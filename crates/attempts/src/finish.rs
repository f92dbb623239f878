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
    messages,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::{Backoff, Evidence, Retry, RunPhase},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    AttemptResult, Run, RunDecision, RunStatus, STOP_TIME, STOP_WAIT,
    attempt_result::evidence,
    disruption, lost_log, outcome,
    run::{describe_pod, some_of},
    start,
    stop::{self, Stop},
    time,
    view::JobView,
};

/// Maximum length of a quoted message within one of our own messages, in characters.
pub(crate) const INNER: usize = MAX_MESSAGE_CHARS - 200;

/// Concludes an attempt that ended: ends the run, or schedules the next attempt.
pub(crate) fn finish_attempt(run: &Run<'_>, attempt_result: AttemptResult) -> RunDecision {
    let attempt_result = with_note(run, attempt_result);
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

/// Returns the result of an attempt that ended, with a note if its log is lost. The message of a success stays.
fn with_note(run: &Run<'_>, attempt_result: AttemptResult) -> AttemptResult {
    let AttemptResult {
        reason,
        message,
        evidence,
    } = attempt_result;
    let message = if reason == Reason::Succeeded {
        message
    } else {
        lost_log::noted(run, &message, &evidence)
    };
    AttemptResult::new(reason, message, evidence)
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
    status.next_attempt_at = Some(run.stamp());
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
    status.next_attempt_at = None;
    outcome::release(run, status, phase, verdict)
}

/// Ends the run with the stored result of an attempt that ended. Returns `None` without such a result.
///
/// # Caveats
/// The caller must know that this result ends the run. After any other failed attempt, a retry may be due.
pub fn finish_stored(run: &Run<'_>) -> Option<RunDecision> {
    let result = run.status.result.as_ref();
    let result = result.filter(|result| result.finished_at.is_some())?;
    let (status, message) = (run.next(), message_of(result));
    let (phase, verdict) = if result.reason.as_deref() == Some(Reason::Succeeded.name()) {
        (RunPhase::Succeeded, Verdict::succeeded(message))
    } else {
        let message = after_attempts(&status, message);
        let verdict = Verdict::failed(reason_of(result), message);
        (RunPhase::Failed, verdict)
    };
    Some(finish_run(run, status, phase, verdict))
}

/// Fails the run before an attempt, or between two. The evidence of the last attempt stays.
pub fn fail_run(run: &Run<'_>, reason: Reason, message: &str) -> RunDecision {
    let status = run.next();
    let verdict = Verdict::failed(reason, after_attempts(&status, message));
    finish_run(run, status, RunPhase::Failed, verdict)
}

/// Fails a run that did not start in time, for the reason of its wait. The message has the next step.
pub fn not_started(run: &Run<'_>, reason: Reason, message: &str) -> RunDecision {
    let reason = if reason == Reason::Progressing {
        Reason::StartTimeout
    } else {
        reason
    };
    let message = bounded(message, INNER);
    fail_run(
        run,
        reason,
        &messages::never_started(&message, run.spec.run_again),
    )
}

/// Handles a failed attempt: waits for the start time of the next one, or starts it.
pub(crate) fn retry_or_wait(run: &Run<'_>, result: &Evidence) -> RunDecision {
    // The author of the run or of the Agent may have lowered the number of attempts since.
    let is_spent = |retry: &Retry| run.status.attempts >= retry.max_attempts;
    if !disruption::was_disrupted(result) && run.spec.retry.is_some_and(is_spent) {
        return fail_run(run, reason_of(result), message_of(result));
    }
    let is_asked = run.spec.cancel || run.spec.suspend;
    match run.due() {
        Some(due) if run.now < due && !is_asked => wait_for_next(run, run.next(), due),
        Some(_) | None => start::start(run),
    }
}

/// Waits for the next attempt. The stored result has the reason, and the stored deadline the time, so every
/// reconciliation has the same message.
fn wait_for_next(run: &Run<'_>, mut status: RunStatus, due: Timestamp) -> RunDecision {
    status.progress.deadline_at = Some(Time(due));
    status.next_attempt_at = Some(Time(due));
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

/// Gives up an attempt. This only stores the evidence: the stop changes the objects that carry it.
pub(crate) fn abort_attempt(
    run: &Run<'_>,
    job: &JobView,
    reason: Reason,
    message: &str,
) -> RunDecision {
    let evidence = evidence(run.newest_pod(job));
    let message = lost_log::noted(run, message, &evidence);
    let attempt_result = AttemptResult::new(reason, message, evidence);
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

/// Stops the Job of an attempt that was given up, and waits until nothing of it runs.
pub(crate) fn stop_job(run: &Run<'_>, result: &Evidence) -> RunDecision {
    let stored_name = run.status.job_name.as_deref();
    let job = stored_name.and_then(|name| run.job(name));
    let name = stored_name.unwrap_or_default();
    let step = job.map_or(Stop::Over, |job| stop::of(run, job));
    if step == Stop::Over && run.orphaned_pods().next().is_none() {
        return finish_attempt(run, stored(result));
    }
    let mut decision =
        Decision::status_only(run.next(), run.phase(), stopping_message(result, name));
    decision.effects = job.map_or_else(Vec::new, |job| stop::effects(run, job, &step));
    if !decision.effects.is_empty() {
        // Even after the deadline: a Job that was not asked to stop has not had its time to do so.
        let deadline = run.deadline().unwrap_or(run.after(STOP_WAIT));
        let renewed = renewed(run);
        decision.status.progress.deadline_at = Some(Time(renewed));
        if renewed != deadline && is_undisturbed(run, &decision.verdict) {
            // Without this record, a crash after the effect would leave the old deadline, and a Pod does not show when
            // its limit was set.
            decision.effects.clear();
            return decision.requeue_at(run.now);
        }
        decision = decision.effects_until(deadline);
        return decision.requeue_at(run.after(STOP_WAIT));
    }
    let asked = |asked: Option<Timestamp>| asked.map(|asked| time::after(asked, STOP_WAIT));
    let stored = run.deadline();
    let deadline = match job {
        None => asked(run.orphaned_pods().filter_map(|pod| pod.stop_asked).max()).or(stored),
        Some(job) if job.deleting.is_some() => asked(job.deleting).or(stored),
        Some(job) => {
            // The Job controller deletes a Pod that the kubelet did not end.
            stored.max(asked(
                run.pods_of(job).filter_map(|pod| pod.stop_asked).max(),
            ))
        }
    };
    let deadline = deadline.unwrap_or(run.now);
    if run.now >= deadline {
        let mut decision = stop_timed_out(run, result, &still_there(run, job));
        let last = job.and_then(|job| stop::last_step(run, job));
        decision.effects.extend(last);
        return decision.effects_until(deadline);
    }
    if run.refused {
        decision = decision.requeue_at(run.after(stop::RETRY));
    }
    decision.requeue_at(deadline)
}

/// Returns whether the stored status has this verdict, so no effect failed since.
fn is_undisturbed(run: &Run<'_>, verdict: &Verdict) -> bool {
    run.stored_message()
        .is_some_and(|(reason, message)| reason == verdict.reason && message == verdict.message)
}

/// Returns the deadline of a stop that begins now. The stored one counts from a moment ago, unless no operator ran in
/// between. So it stays as it is in the ordinary case, which saves a write.
pub(crate) fn renewed(run: &Run<'_>) -> Timestamp {
    let fresh = run.after(STOP_WAIT);
    let stored = run.deadline();
    let is_recent = |stored: &Timestamp| *stored >= run.after(STOP_TIME);
    stored.filter(is_recent).unwrap_or(fresh)
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
    let of_job = of_job.filter(|pod| stop::is_active(pod));
    let things: Vec<String> = job
        .iter()
        .map(|job| format!("Job '{}'", job.name))
        .chain(of_job.chain(run.orphaned_pods()).map(describe_pod))
        .collect();
    format!("{} still exists", some_of(&things))
}

/// Returns the stored result of an attempt that was stopped.
fn stored(result: &Evidence) -> AttemptResult {
    AttemptResult::new(reason_of(result), message_of(result), result.clone())
}
