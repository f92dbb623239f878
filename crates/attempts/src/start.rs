//! The start of an attempt, and its prerequisites.

use std::time::Duration;

use api::{
    Reason, State, Timestamp, Verdict,
    decide::{Decision, Effect, Manifest},
    names,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::RunPhase,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    Run, RunDecision, RunStatus, STOP_WAIT, Stage, attempt, finish, in_progress,
    run::{describe_pod, may_run, some_of},
    stop::{self, Stop},
    suspend, time,
    view::{JobView, PodView},
};

/// In the first seconds of a run, a missing prerequisite is no warning. A run and its Agent are often created together,
/// and the cache of Agents may be a moment behind.
const GRACE: Duration = Duration::from_secs(3);

/// Starts the next attempt, or waits for its prerequisites.
pub(crate) fn start(run: &Run<'_>) -> RunDecision {
    let (attempt, name) = run.next_attempt();
    before_start(run, &name).unwrap_or_else(|| create_attempt(run, attempt, name))
}

/// Returns the decision that comes before a Job of this name may be created, if something blocks the Job.
pub fn before_start(run: &Run<'_>, name: &str) -> Option<RunDecision> {
    if let Some(wait) = wait_for_previous(run, name) {
        return Some(wait);
    }
    if let Some((begun, job)) = find_unrecorded_job(run) {
        return Some(adopt(run, &begun, job));
    }
    if run.spec.cancel {
        return Some(finish::cancelled(run));
    }
    if run.spec.suspend {
        return Some(suspend::before(run));
    }
    match run.work.blocker(run.files().is_some()) {
        Some(verdict) if verdict.state == State::Stalled => {
            Some(finish::fail_run(run, verdict.reason, &verdict.message))
        }
        Some(verdict) => Some(wait_for(run, &verdict)),
        None => still_deleting(run, name),
    }
}

/// Waits for a prerequisite.
fn wait_for(run: &Run<'_>, blocker: &Verdict) -> RunDecision {
    let decision = wait(run, blocker.reason, &blocker.message, None);
    let created = run.spec.metadata.creation_timestamp.as_ref();
    let settled = created.and_then(|created| attempt::recent(run.now, created.0, GRACE));
    match settled {
        Some(settled) if !decision.is_end() => {
            let verdict = Verdict::working(Reason::Progressing, decision.verdict.message.clone());
            Decision {
                verdict,
                defer_status_until: is_unrecorded(run).then_some(settled),
                ..decision
            }
            .requeue_at(settled)
        }
        Some(_) | None => decision,
    }
}

/// Returns the next attempt's Job if it already exists, and the run with that attempt started. A reconciliation created
/// the Job, and its status write is delayed or was lost. The Agent may have changed since.
pub(crate) fn find_unrecorded_job<'a>(run: &Run<'a>) -> Option<(Run<'a>, &'a JobView)> {
    let (attempt, name) = run.next_attempt();
    // Any user with permission to create Jobs can set our run as the owner. Our own Jobs have fields that only we set.
    let is_ours = |job: &&JobView| {
        job.deleting.is_none() && job.version == Some(run.spec.version) && job.terms.is_some()
    };
    if !run.spec.is_announced {
        return None;
    }
    let job = run.job(&name).filter(is_ours)?;
    let deadline = time::after(made(run, job), run.start_timeout(job));
    let mut begun = run.clone();
    begun.status = begun_status(run, attempt, name, deadline);
    begun.status.job_uid = Some(job.uid.clone());
    begun.status.config_map_uid = run.files().map(|files| files.uid.clone());
    Some((begun, job))
}

fn made(run: &Run<'_>, job: &JobView) -> Timestamp {
    time::whole(job.created.unwrap_or(run.now))
}

/// Adopts the existing Job as it is.
fn adopt(run: &Run<'_>, begun: &Run<'_>, job: &JobView) -> RunDecision {
    let mut decision = in_progress::decide(begun, &job.name);
    let is_calm = decision.effects.is_empty()
        && decision.phase == RunPhase::Pending
        && decision.verdict.reason == Reason::Progressing;
    if is_calm {
        decision.defer_status_until = first_record(run, made(run, job));
    }
    decision
}

/// How long the first status write may wait. A container that starts within this time is first recorded as running. A
/// problem is recorded at once.
pub const FIRST_RECORD_DELAY: Duration = Duration::from_secs(10);

fn first_record(run: &Run<'_>, made: Timestamp) -> Option<Timestamp> {
    attempt::recent(run.now, made, FIRST_RECORD_DELAY).filter(|_| is_unrecorded(run))
}

/// Returns whether nothing is recorded about the run.
pub fn is_unrecorded(run: &Run<'_>) -> bool {
    let status = &run.status;
    let is_empty = status.version.is_none() && status.progress.conditions.is_empty();
    is_empty && matches!(run.stage(), Stage::NotStarted)
}

fn begun_status(run: &Run<'_>, attempt: u32, job: String, deadline: Timestamp) -> RunStatus {
    let mut status = run.next();
    status.attempts = attempt;
    status.job_name = Some(job);
    status.job_uid = None;
    status.config_map_name = run.work.config_map_name();
    status.progress.deadline_at = Some(Time(deadline));
    status.next_attempt_at = None;
    status.started_at = None;
    status.pod = None;
    status.result = None;
    status
}

/// Creates the missing children, and records the attempt.
///
/// A version keeps the files that it was started with. If a ConfigMap of ours exists, an earlier attempt created it,
/// perhaps from an Agent that changed since.
fn create_attempt(run: &Run<'_>, attempt: u32, name: String) -> RunDecision {
    let effects = match missing(run, attempt, &name) {
        Ok(effects) => effects,
        Err(verdict) => return finish::fail_run(run, verdict.reason, &verdict.message),
    };
    let deadline = run.after(run.start_limit());
    let verdict = in_progress::created(&name);
    let status = begun_status(run, attempt, name, deadline);
    let mut decision =
        Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(deadline);
    decision = decision.effects_until(run.start_deadline());
    decision.effects = effects;
    decision.defer_status_until = first_record(run, run.now);
    decision
}

/// Returns the effects that create missing children. The files come first, because the Job's Pod waits for them.
pub(crate) fn missing(run: &Run<'_>, attempt: u32, job: &str) -> Result<Vec<Effect>, Verdict> {
    let mut effects = Vec::new();
    if run.files().is_none() {
        let files = run.work.config_map()?;
        effects.extend(files.map(|files| Effect::Ensure(Box::new(files))));
    }
    effects.push(Effect::Ensure(Box::new(run.work.job(attempt, job)?)));
    Ok(effects)
}

/// Returns the files of an attempt again, if they were deleted before its container started.
pub(crate) fn recreate_config_map(run: &Run<'_>) -> Result<Option<Manifest>, Verdict> {
    let is_stalled = |verdict: Verdict| verdict.state == State::Stalled;
    if run.files().is_some() || run.work.blocker(false).is_some_and(is_stalled) {
        return Ok(None);
    }
    run.work.config_map()
}

/// Waits for Jobs and Pods that must end before another may start: those of other versions, and any that may still
/// run. Their Jobs, Pods and logs stay for their retention.
fn wait_for_previous(run: &Run<'_>, next: &str) -> Option<RunDecision> {
    let old: Vec<Previous<'_>> = run
        .jobs()
        .filter_map(|job| previous(run, job, next))
        .collect();
    let jobs: Vec<String> = old
        .iter()
        .map(|Previous { job, .. }| match job.version {
            Some(version) if run.spec.is_announced => {
                format!("Job '{}' of version {version}", job.name)
            }
            Some(_) | None => format!("Job '{}'", job.name),
        })
        .collect();
    let next_uid = run.job(next).map(|job| &job.uid);
    let in_the_way = |pod: &&PodView| {
        let of_old = old
            .iter()
            .any(|old| Some(&old.job.uid) == pod.job_uid.as_ref());
        let of_next = next_uid.is_some() && pod.job_uid.as_ref() == next_uid;
        of_old || (may_run(pod) && !of_next)
    };
    let pods: Vec<&PodView> = run.pods().filter(in_the_way).collect();
    if jobs.is_empty() && pods.is_empty() {
        return None;
    }
    let is_kept = !run.spec.is_announced && run.is_preserved() && !jobs.is_empty();
    let message = if is_kept {
        format!(
            "the annotation '{}' keeps {}, which this run did not record; delete the Job or remove the annotation",
            names::PRESERVE,
            some_of(&jobs)
        )
    } else {
        let pods = pods.iter().map(|pod| describe_pod(pod));
        let blockers: Vec<String> = jobs.into_iter().chain(pods).collect();
        format!("waiting for {} to stop", some_of(&blockers))
    };
    let stops = |old: &Previous<'_>| stop::effects(run, old.job, &old.stop);
    let effects: Vec<Effect> = old.iter().flat_map(stops).collect();
    // A Job that is kept does not end the wait. So a cancel or a suspension needs no wait after the stop.
    let is_stopped = is_kept
        && old.iter().all(|old| old.stop == Stop::Over)
        && !pods.iter().any(|pod| may_run(pod));
    // Even after the deadline: a Job that was not asked to stop has not had its time to do so.
    let now = (!effects.is_empty()).then_some(run.now);
    let jobs_asked = old.iter().filter_map(|old| old.job.deleting);
    let pods_asked = pods.iter().filter_map(|pod| pod.stop_asked);
    let asked = jobs_asked.chain(pods_asked).chain(now).max();
    // The kubelet does not report when a Pod's limit was set, so the wait for it has only the stored deadline.
    let at_least = asked.map_or(Timestamp::MIN, |asked| time::after(asked, STOP_WAIT));
    // If the stop fails, the wait ends at the stored deadline, which must not move with the tries.
    let effects_until = run.start_deadline();
    let run = &if effects.is_empty() {
        run.clone()
    } else {
        with_time_to_stop(run)
    };
    let mut decision = wait(run, Reason::Progressing, &message, Some(at_least));
    let is_over = decision.is_end() || is_stopped;
    if is_over && run.spec.cancel {
        decision = finish::cancelled(run);
    } else if is_over && run.spec.suspend {
        decision = suspend::before(run);
    }
    if decision.is_end() {
        decision
            .effects
            .extend(old.iter().filter_map(|old| stop::last_step(run, old.job)));
        decision = decision.effects_until(effects_until);
    } else {
        decision.effects = effects;
        decision = decision.effects_until(effects_until);
        if run.refused {
            decision = decision.requeue_at(run.after(stop::RETRY));
        }
    }
    Some(decision)
}

/// Returns the run with a stored deadline that leaves Jobs time to stop, also if no operator ran since it was stored.
/// Nothing shows later when they were asked.
fn with_time_to_stop<'a>(run: &Run<'a>) -> Run<'a> {
    let mut run = run.clone();
    let has_deadline = match run.stage() {
        // Until the attempt is due, the stored deadline is that time.
        Stage::RetryBackoff(_) => run.due() < run.deadline(),
        Stage::NotStarted | Stage::InProgress(_) | Stage::Stopping(_) => true,
    };
    if has_deadline {
        run.status.progress.deadline_at = Some(Time(finish::renewed(&run)));
    }
    run
}

/// A Job that must end before the next one may start.
#[derive(Debug)]
struct Previous<'a> {
    job: &'a JobView,
    /// How it is stopped.
    stop: Stop<'a>,
}

fn previous<'a>(run: &Run<'a>, job: &'a JobView, next: &str) -> Option<Previous<'a>> {
    if !run.spec.is_announced {
        let stop = stop::of_unannounced(run, job);
        return Some(Previous { job, stop });
    }
    let other_version = job
        .version
        .is_some_and(|version| version != run.spec.version);
    if !other_version && job.name == next {
        return None;
    }
    let stop = stop::of(run, job);
    (stop != Stop::Over).then_some(Previous { job, stop })
}

/// Waits while a child with the required name is being deleted. Another of that name cannot be created.
fn still_deleting(run: &Run<'_>, job: &str) -> Option<RunDecision> {
    let what = if run.job(job).is_some_and(|job| job.deleting.is_some()) {
        format!("Job '{job}'")
    } else if let Some(files) = run.files().filter(|files| files.deleting) {
        format!("ConfigMap '{}'", files.name)
    } else {
        return None;
    };
    Some(wait(
        run,
        Reason::Progressing,
        &format!("{what} of the same name is still being deleted"),
        None,
    ))
}

/// Waits for the prerequisites of a start, up to a stored time and at least up to `at_least`.
pub(crate) fn wait(
    run: &Run<'_>,
    reason: Reason,
    message: &str,
    at_least: Option<Timestamp>,
) -> RunDecision {
    let mut status = run.next();
    let until = run.start_deadline();
    status.progress.deadline_at = Some(Time(until));
    // The deadline is not this time any more.
    if matches!(run.stage(), Stage::RetryBackoff(_)) {
        status.next_attempt_at = Some(Time(run.due().unwrap_or(time::whole(run.now))));
    }
    let until = at_least.map_or(until, |time| until.max(time));
    if run.now >= until {
        return finish::not_started(run, reason, message);
    }
    // The message contains only stored times. A time that is read from a stopping Job may differ by a second from the
    // expected one, and would cause a write.
    let message = match at_least {
        None => bounded(message, MAX_MESSAGE_CHARS - 100) + &format!("; waiting until {until}"),
        Some(_) => message.to_owned(),
    };
    let verdict = Verdict::working(reason, message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(until)
}
