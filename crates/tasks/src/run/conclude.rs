//! The end of an attempt: the stop before it, what is kept of it, and what follows.
//!
//! Three stored states follow each other, told apart by `status.result` alone: none (the attempt
//! goes on), one without `finishedAt` (it was given up and is being stopped), one with it (it is
//! over, and the next one waits). So a pass that is repeated, or a process that is killed between
//! two of them, changes nothing.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::Decision,
    status::{MESSAGE, bounded},
    tasks::{Backoff, Evidence, RunPhase, TaskRunStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mutant::Mutant;

use super::{
    RunDecision, STOP_WAIT, disruption, going,
    judge::{Judgement, evidence},
    outcome, start,
    world::{Run, pod_words, some_of},
};
use crate::{time, view::JobView};

/// A Job that is not there is believed to be gone only when it still is not after this long: a
/// process that just took over may have a cache of Jobs that is older than that of runs.
const LOST_WAIT: Duration = Duration::from_secs(5);
/// What others said, within a message of ours.
const INNER: usize = MESSAGE - 200;

/// An attempt ended: it is the run's end, or the next one gets its time.
pub(super) fn conclude(run: &Run<'_>, judgement: Judgement) -> RunDecision {
    let reason = judgement.reason;
    if disruption::is_one(reason) && !mutant::on(Mutant::EvictionCounted) {
        return disrupted(run, judgement);
    }
    let is_done = run.order.is_done(&judgement.evidence);
    let status = with_result(run, judgement.evidence);
    if reason == Reason::Succeeded {
        let verdict = Verdict::succeeded(judgement.message);
        return end(run, status, RunPhase::Succeeded, verdict);
    }
    if let Some(retry) = run.retry()
        && may_repeat(reason)
        && !is_done
        && !run.order.cancel
        && status.attempts < retry.max_attempts
    {
        let due = run.after(backoff(&retry.backoff, status.attempts));
        return wait_for_next(run, status, due);
    }
    let verdict = Verdict::failed(reason, after_attempts(&status, &judgement.message));
    end(run, status, RunPhase::Failed, verdict)
}

/// What ended was stopped from outside: the same attempt is started again, but not for ever.
fn disrupted(run: &Run<'_>, judgement: Judgement) -> RunDecision {
    let is_counted = disruption::is_counted(run, &judgement);
    let mut run = run.clone();
    if !is_counted {
        run.status.disruptions = run.status.disruptions.saturating_add(1);
    }
    let mut status = with_result(&run, judgement.evidence);
    if status.disruptions >= disruption::LIMIT {
        let message = disruption::too_many(&run, &judgement.message);
        let verdict = Verdict::failed(Reason::TooManyDisruptions, message);
        return end(&run, status, RunPhase::Failed, verdict);
    }
    status.deadline_at = Some(run.stamp());
    let message = format!(
        "{}; it is started again without using an attempt (disruption {} of at most {})",
        bounded(&judgement.message, INNER),
        status.disruptions,
        disruption::LIMIT - 1
    );
    let verdict = Verdict::working(judgement.reason, message);
    Decision::say(status, RunPhase::Pending, verdict).wake_at(run.now)
}

/// The run is cancelled before an attempt, or between two.
pub(super) fn cancelled(run: &Run<'_>) -> RunDecision {
    let message = match run.status.attempts {
        0 => "cancelled by 'spec.cancel' before it was started".to_owned(),
        begun => format!("cancelled by 'spec.cancel' after attempt {begun}"),
    };
    let status = run.next();
    let verdict = Verdict::failed(Reason::Cancelled, message);
    end(run, status, RunPhase::Failed, verdict)
}

/// Evidence that is complete: with it, the attempt is over.
fn with_result(run: &Run<'_>, mut evidence: Evidence) -> TaskRunStatus {
    let mut status = run.next();
    status.started_at = evidence.started_at.clone().or(status.started_at);
    evidence.finished_at.get_or_insert_with(|| run.stamp());
    status.result = Some(evidence);
    status
}

/// Whether a failure for this reason is worth another attempt: not if nobody knows what the last
/// one did, or somebody does not want it.
fn may_repeat(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::EvidenceLost
            | Reason::TooManyDisruptions
            | Reason::Cancelled
            | Reason::NoChanges
            | Reason::OutputTooLarge
            | Reason::PathNotFound
            | Reason::RepositoryTooLarge
            | Reason::AddressRefused
            | Reason::PushRefused
            | Reason::BranchMoved
    )
}

fn after_attempts(status: &TaskRunStatus, message: &str) -> String {
    match status.attempts {
        0 | 1 => message.to_owned(),
        several => format!("{} (after {several} attempts)", bounded(message, INNER)),
    }
}

/// The run's end.
pub(super) fn end(
    run: &Run<'_>,
    mut status: TaskRunStatus,
    phase: RunPhase,
    verdict: Verdict,
) -> RunDecision {
    status.finished_at = Some(run.stamp());
    status.deadline_at = None;
    let hold = outcome::release(run, &status, phase, verdict.reason);
    let mut decision = Decision::say(status, phase, verdict);
    decision.hold = hold;
    decision
}

/// The run fails before an attempt, or between two: the last one's evidence stays.
pub(super) fn fail(run: &Run<'_>, reason: Reason, message: &str) -> RunDecision {
    let status = run.next();
    let verdict = Verdict::failed(reason, after_attempts(&status, message));
    end(run, status, RunPhase::Failed, verdict)
}

/// An attempt failed; the next one waits for its time, or starts.
pub(super) fn between(run: &Run<'_>, result: &Evidence) -> RunDecision {
    let status = run.next();
    // The run's author, or the Agent's, may have thought better of it.
    let was_disrupted = disruption::was_disrupted(result);
    if !was_disrupted
        && run
            .retry()
            .is_some_and(|retry| status.attempts >= retry.max_attempts)
    {
        let message = after_attempts(&status, message_of(result));
        let verdict = Verdict::failed(reason_of(result), message);
        return end(run, status, RunPhase::Failed, verdict);
    }
    match run.deadline() {
        Some(_) if mutant::on(Mutant::RetryWaitForgotten) => start::start(run),
        Some(due) if run.now < due && !is_held(run) => wait_for_next(run, status, due),
        Some(_) | None => start::start(run),
    }
}

fn is_held(run: &Run<'_>) -> bool {
    run.order.cancel || run.order.suspend
}

/// The stored result says why, the stored deadline when: the words are the same at each pass.
fn wait_for_next(run: &Run<'_>, mut status: TaskRunStatus, due: Timestamp) -> RunDecision {
    status.deadline_at = Some(Time(due));
    let result = status.result.clone().unwrap_or_default();
    let of = run
        .retry()
        .map_or_else(String::new, |retry| format!(" of {}", retry.max_attempts));
    let message = format!(
        "attempt {}{of} failed: {}; the next one starts at {due}",
        status.attempts,
        bounded(message_of(&result), INNER)
    );
    let verdict = Verdict::working(reason_of(&result), message);
    Decision::say(status, RunPhase::Pending, verdict).wake_at(due)
}

/// How long to wait after this many attempts: `initial`, doubled each time, up to `max`.
pub(super) fn backoff(backoff: &Backoff, attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    Duration::from(backoff.initial)
        .saturating_mul(doubled)
        .min(backoff.max.into())
}

pub(super) fn reason_of(result: &Evidence) -> Reason {
    result
        .reason
        .as_deref()
        .and_then(Reason::from_name)
        .filter(|reason| *reason != Reason::Succeeded)
        .unwrap_or(Reason::InternalError)
}

pub(super) fn message_of(result: &Evidence) -> &str {
    result.message.as_deref().unwrap_or_default()
}

/// An attempt is given up. First only its evidence is stored: the stop destroys what carries it.
pub(super) fn give_up(run: &Run<'_>, job: &JobView, reason: Reason, message: &str) -> RunDecision {
    let judgement = Judgement::new(reason, message, evidence(run.newest_pod(job)));
    let result = Evidence {
        finished_at: None,
        ..judgement.evidence
    };
    let mut status = run.next();
    status.deadline_at = Some(Time(run.after(STOP_WAIT)));
    let verdict = stopping_words(&result, &job.name);
    status.result = Some(result);
    let decision = Decision::say(status, run.phase(), verdict).wake_at(run.now);
    if mutant::on(Mutant::EvidenceAfterStop) {
        return decision.with(run.delete(job));
    }
    decision
}

fn stopping_words(result: &Evidence, job: &str) -> Verdict {
    let message = bounded(message_of(result), INNER);
    Verdict::working(
        reason_of(result),
        format!("{message}; stopping Job '{job}'"),
    )
}

/// The Job of an attempt that goes on is not there.
pub(super) fn lost(run: &Run<'_>, job_name: &str) -> RunDecision {
    let message = format!("Job '{job_name}' was deleted from outside before its end was read");
    let judgement = Judgement::new(Reason::JobLost, message, Evidence::default());
    if mutant::on(Mutant::LostAtOnce) {
        return conclude(run, judgement);
    }
    if mutant::on(Mutant::JobLossIsSuccess) {
        let reason = Reason::Succeeded;
        return conclude(
            run,
            Judgement {
                reason,
                ..judgement
            },
        );
    }
    let deadline = run.after(LOST_WAIT);
    let mut status = run.next();
    status.deadline_at = Some(Time(deadline));
    status.result = Some(judgement.evidence);
    Decision::say(status, run.phase(), missed_words(job_name)).wake_at(deadline)
}

fn missed_words(job: &str) -> Verdict {
    let message = format!("Job '{job}' is not there; looking again before it is given up as lost");
    Verdict::working(Reason::JobLost, message)
}

/// An attempt that was given up: its Job is deleted, and waited for.
pub(super) fn stop(run: &Run<'_>, result: &Evidence) -> RunDecision {
    let stored_name = run.status.job_name.as_deref();
    let job = stored_name.and_then(|name| run.job(name));
    let name = stored_name.unwrap_or_default();
    if reason_of(result) == Reason::JobLost {
        return missed(run, result, name, job);
    }
    // It ended by itself meanwhile: nothing to stop, and its logs stay.
    let is_over = job.is_none_or(|job| job.end.is_some());
    if is_over && run.stray_pods().next().is_none() {
        return conclude(run, stored(result));
    }
    let say = || Decision::say(run.next(), run.phase(), stopping_words(result, name));
    let asked = match job.filter(|job| job.end.is_none()) {
        // However late it is: what was not asked to stop was not given its time.
        Some(job) if job.deleting.is_none() => {
            let wake = run.after(STOP_WAIT);
            return say().with(run.delete(job)).wake_at(wake);
        }
        Some(job) => job.deleting,
        None => run.stray_pods().filter_map(|pod| pod.stop_asked).max(),
    };
    let deadline = asked
        .map(|asked| time::after(asked, STOP_WAIT))
        .or(run.deadline())
        .unwrap_or(run.now);
    if run.now >= deadline {
        return unstopped(run, result, &still_there(run, job));
    }
    say().wake_at(deadline)
}

/// The Job was missed: it is back, or it is gone for good.
fn missed(run: &Run<'_>, result: &Evidence, name: &str, job: Option<&JobView>) -> RunDecision {
    if job.is_some() {
        let mut again = run.clone();
        again.status.result = None;
        again.status.deadline_at = None;
        return going::decide(&again, name);
    }
    let deadline = run.deadline().unwrap_or(run.now);
    if run.now >= deadline {
        return conclude(run, stored(result));
    }
    Decision::say(run.next(), run.phase(), missed_words(name)).wake_at(deadline)
}

/// The stop did not end in time: a Pod may still run, so no other may be started.
pub(super) fn unstopped(run: &Run<'_>, result: &Evidence, what: &str) -> RunDecision {
    let message = format!(
        "{}; it could not be stopped within {}: {what}",
        bounded(message_of(result), INNER),
        time::words(STOP_WAIT)
    );
    let Judgement {
        reason,
        message,
        evidence,
    } = Judgement::new(reason_of(result), message, result.clone());
    let status = with_result(run, evidence);
    let verdict = Verdict::failed(reason, message);
    end(run, status, RunPhase::Failed, verdict)
}

fn still_there(run: &Run<'_>, job: Option<&JobView>) -> String {
    let of_job = job.iter().flat_map(|job| run.pods_of(job));
    let things: Vec<String> = job
        .iter()
        .map(|job| format!("Job '{}'", job.name))
        .chain(of_job.chain(run.stray_pods()).map(pod_words))
        .collect();
    format!("{} is still there", some_of(&things))
}

fn stored(result: &Evidence) -> Judgement {
    Judgement {
        reason: reason_of(result),
        message: message_of(result).to_owned(),
        evidence: result.clone(),
    }
}
