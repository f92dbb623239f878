//! The start of an attempt, and its prerequisites.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::{Decision, Effect, Manifest},
    status::{MAX_MESSAGE_CHARS, bounded, condition},
    tasks::{Agent, CONTEXT_LIMIT, RunPhase, TaskRunStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    RunDecision, START_WAIT, STOP_WAIT, attempt, finish, in_progress, suspend,
    world::{Run, Stage, describe_pod, may_run, some_of},
};
use crate::{
    build::{self, BuildContext},
    time,
    view::{JobView, PodView},
};

/// In the first seconds of a run, a missing Agent is no warning. A run and its Agent are often
/// created together, and the cache of Agents may be a moment behind.
const AGENT_GRACE: Duration = Duration::from_secs(3);

/// Starts the next attempt, or waits for its prerequisites.
pub(super) fn start(run: &Run<'_>) -> RunDecision {
    let (attempt, name) = run.next_attempt();
    match ready(run, &name) {
        Ok(agent) => create_attempt(run, agent, attempt, name),
        Err(wait) => *wait,
    }
}

/// Returns the Agent, if nothing blocks a Job of this name. Otherwise returns the decision that
/// comes first.
pub(super) fn ready<'a>(run: &Run<'a>, name: &str) -> Result<&'a Agent, Box<RunDecision>> {
    if let Some(wait) = wait_for_previous(run, name) {
        return Err(Box::new(wait));
    }
    if let Some((begun, job)) = find_unrecorded_job(run) {
        return Err(Box::new(adopt(run, &begun, job)));
    }
    if run.run_spec.cancel {
        return Err(Box::new(finish::cancelled(run)));
    }
    if run.run_spec.suspend {
        return Err(Box::new(suspend::before(run)));
    }
    if let Some(stalled) = too_large(run) {
        return Err(Box::new(stalled));
    }
    let agent =
        usable(run).map_err(|(reason, message)| Box::new(without_agent(run, reason, &message)))?;
    match still_deleting(run, name) {
        Some(wait) => Err(Box::new(wait)),
        None => Ok(agent),
    }
}

fn without_agent(run: &Run<'_>, reason: Reason, message: &str) -> RunDecision {
    let decision = wait(run, reason, message, None);
    let created = run.run_spec.metadata.creation_timestamp.as_ref();
    let settled = created.and_then(|created| attempt::recent(run.now, created.0, AGENT_GRACE));
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

/// Returns the next attempt's Job if it already exists, and the run with that attempt started. A
/// reconciliation created the Job, and its status write is delayed or was lost. The Agent may have
/// changed since.
pub(super) fn find_unrecorded_job<'a>(run: &Run<'a>) -> Option<(Run<'a>, &'a JobView)> {
    let (attempt, name) = run.next_attempt();
    // Any user with permission to create Jobs can set our run as the owner. Our own Jobs have
    // fields that only we set.
    let is_ours = |job: &&JobView| {
        job.deleting.is_none() && job.version == Some(run.version()) && job.terms.is_some()
    };
    if !run.run_spec.is_announced() {
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

/// How long the first status write may wait. A container that starts within this time is first
/// recorded as running. A problem is recorded at once.
pub(super) const FIRST_RECORD_DELAY: Duration = Duration::from_secs(10);

fn first_record(run: &Run<'_>, made: Timestamp) -> Option<Timestamp> {
    attempt::recent(run.now, made, FIRST_RECORD_DELAY).filter(|_| is_unrecorded(run))
}

pub(super) fn is_unrecorded(run: &Run<'_>) -> bool {
    let status = &run.status;
    let is_empty = status.context_version.is_none() && status.progress.conditions.is_empty();
    is_empty && matches!(run.stage(), Stage::NotStarted)
}

fn begun_status(run: &Run<'_>, attempt: u32, job: String, deadline: Timestamp) -> TaskRunStatus {
    let mut status = run.next();
    status.attempts = attempt;
    status.job_name = Some(job);
    status.job_uid = None;
    status.config_map_name = Some(run.run_spec.config_map_name());
    status.progress.deadline_at = Some(Time(deadline));
    status.started_at = None;
    status.pod = None;
    status.result = None;
    status
}

/// Creates the missing children, and records the attempt.
///
/// A version keeps the files that it was started with. If a ConfigMap of ours exists, an earlier
/// attempt created it, perhaps from an Agent that changed since.
fn create_attempt(run: &Run<'_>, agent: &Agent, attempt: u32, name: String) -> RunDecision {
    let context = BuildContext {
        run_spec: run.run_spec,
        agent,
        resources: run.resources(agent),
        attempt,
        job: &name,
    };
    let effects = match missing(run, &context) {
        Ok(effects) => effects,
        Err(error) => {
            return Decision::status_only(run.next(), RunPhase::Pending, unwritable(&error));
        }
    };
    let deadline = run.after(agent.spec.start_timeout.into());
    let verdict = in_progress::created(&name);
    let status = begun_status(run, attempt, name, deadline);
    let mut decision =
        Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(deadline);
    decision.effects = effects;
    decision.defer_status_until = first_record(run, run.now);
    decision
}

/// Returns the effects that create missing children. The files come first, because the Job's Pod
/// waits for them.
pub(super) fn missing(
    run: &Run<'_>,
    context: &BuildContext<'_>,
) -> Result<Vec<Effect>, serde_json::Error> {
    let mut effects = Vec::new();
    if run.files().is_none() {
        effects.push(Effect::Ensure(Box::new(build::config_map(context)?)));
    }
    effects.push(Effect::Ensure(Box::new(build::job(context)?)));
    Ok(effects)
}

/// Returns the verdict for a child that cannot be built.
pub(super) fn unwritable(error: &serde_json::Error) -> Verdict {
    let message = format!("a child of the run cannot be written as JSON: {error}");
    Verdict::stalled(Reason::InternalError, message)
}

/// Returns the files of an attempt again, if they were deleted before its container started.
pub(super) fn recreate_config_map(run: &Run<'_>) -> Result<Option<Manifest>, serde_json::Error> {
    let Some(agent) = &run.world.agent else {
        return Ok(None);
    };
    if run.files().is_some() || too_large(run).is_some() {
        return Ok(None);
    }
    let context = BuildContext {
        run_spec: run.run_spec,
        agent,
        resources: run.resources(agent),
        attempt: run.status.attempts,
        job: run.status.job_name.as_deref().unwrap_or_default(),
    };
    build::config_map(&context).map(Some)
}

/// Waits for Jobs and Pods that must be deleted before another may start: those of other versions,
/// and any that may still run.
fn wait_for_previous(run: &Run<'_>, next: &str) -> Option<RunDecision> {
    let old = |job: &&JobView| {
        let other_version = job.version.is_some_and(|version| version != run.version());
        // If no record announces a Job, its effect is unknown.
        let is_unknown = other_version || !run.run_spec.is_announced();
        is_unknown || (job.end.is_none() && job.name != next)
    };
    let jobs: Vec<&JobView> = run.jobs().filter(old).collect();
    let mut blockers: Vec<String> = jobs
        .iter()
        .map(|job| match job.version {
            Some(version) if run.run_spec.is_announced() => {
                format!("Job '{}' of version {version}", job.name)
            }
            Some(_) | None => format!("Job '{}'", job.name),
        })
        .collect();
    let next_uid = run.job(next).map(|job| &job.uid);
    let in_the_way = |pod: &&PodView| {
        let of_old = jobs
            .iter()
            .any(|job| Some(&job.uid) == pod.job_uid.as_ref());
        let of_next = next_uid.is_some() && pod.job_uid.as_ref() == next_uid;
        of_old || (may_run(pod) && !of_next)
    };
    let pods: Vec<&PodView> = run.pods().filter(in_the_way).collect();
    blockers.extend(pods.iter().map(|pod| describe_pod(pod)));
    if blockers.is_empty() {
        return None;
    }
    let message = format!("waiting for {} to stop", some_of(&blockers));
    // Even after the deadline: a Job that was not asked to stop has not had its time to do so.
    let jobs_asked = jobs.iter().map(|job| job.deleting.unwrap_or(run.now));
    let pods_asked = pods.iter().filter_map(|pod| pod.stop_asked);
    let asked = jobs_asked.chain(pods_asked).max();
    let at_least = asked.map(|asked| time::after(asked, STOP_WAIT));
    let mut decision = wait(run, Reason::Progressing, &message, at_least);
    if decision.is_end() && run.run_spec.cancel {
        return Some(finish::cancelled(run));
    }
    if decision.is_end() && run.run_spec.suspend {
        decision = suspend::before(run);
    }
    if !decision.is_end() {
        let stops = jobs.iter().filter(|job| job.deleting.is_none());
        decision.effects = stops.map(|job| run.delete(job)).collect();
    }
    Some(decision)
}

/// Stalls a run with more files than a ConfigMap holds. Files that are already stored fit.
fn too_large(run: &Run<'_>) -> Option<RunDecision> {
    let agent = run.world.agent.as_ref().map(|agent| &agent.spec);
    let (own, instructions) = build::sizes(run.run_spec.files.unwrap_or_default(), agent);
    if run.files().is_some() || own.saturating_add(instructions) <= CONTEXT_LIMIT {
        return None;
    }
    let message = format!(
        "the run's files have {own} bytes and the Agent's instructions {instructions}, together more than the {CONTEXT_LIMIT} that fit; {}, or shorten the instructions",
        run.run_spec.fewer_files()
    );
    let mut status = run.next();
    if matches!(run.stage(), Stage::NotStarted) {
        status.progress.deadline_at = None;
    }
    let verdict = Verdict::stalled(Reason::ContextTooLarge, message);
    Some(Decision::status_only(status, RunPhase::Pending, verdict))
}

/// Returns the Agent, if it can be used.
fn usable<'a>(run: &Run<'a>) -> Result<&'a Agent, (Reason, String)> {
    let name = run.run_spec.agent_name;
    let Some(agent) = run.world.agent.as_deref() else {
        return Err((
            Reason::AgentNotFound,
            format!(
                "Agent '{name}' does not exist in namespace '{}'",
                run.namespace
            ),
        ));
    };
    let status = agent.status.as_ref().map(|status| &status.progress);
    let generation = agent.metadata.generation.unwrap_or(0);
    let Some(progress) = status.filter(|known| known.observed_generation >= generation) else {
        // A condition about an older spec is not valid for this one. The Agent is reconciled in a
        // moment, so this is no warning.
        return Err((
            Reason::Progressing,
            format!("Agent '{name}' was not looked at yet"),
        ));
    };
    if progress.is_true(condition::READY) {
        return Ok(agent);
    }
    let message = progress
        .condition(condition::READY)
        .map_or("", |ready| ready.message.as_str());
    Err((
        Reason::AgentNotReady,
        format!("Agent '{name}' is not ready: {message}"),
    ))
}

/// Waits while a child with the required name is being deleted. Another of that name cannot be
/// created.
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
fn wait(run: &Run<'_>, reason: Reason, message: &str, at_least: Option<Timestamp>) -> RunDecision {
    let mut status = run.next();
    let until = match run.stage() {
        // The stored deadline is the time at which this attempt was due.
        Stage::RetryBackoff { .. } => {
            let due = run.deadline().unwrap_or_else(|| run.after(Duration::ZERO));
            status.progress.deadline_at = Some(Time(due));
            time::after(due, START_WAIT)
        }
        Stage::NotStarted | Stage::InProgress { .. } | Stage::Stopping { .. } => {
            let until = run.deadline().unwrap_or_else(|| run.after(START_WAIT));
            status.progress.deadline_at = Some(Time(until));
            until
        }
    };
    let until = at_least.map_or(until, |time| until.max(time));
    if run.now >= until {
        return finish::fail_run(
            run,
            final_reason(reason),
            &format!("not started: {message}"),
        );
    }
    // The message contains only stored times. A time that is read from a stopping Job may differ by
    // a second from the expected one, and would cause a write.
    let message = match at_least {
        None => format!(
            "{}; waiting until {until}",
            bounded(message, MAX_MESSAGE_CHARS - 100)
        ),
        Some(_) => message.to_owned(),
    };
    let verdict = Verdict::working(reason, message);
    Decision::status_only(status, RunPhase::Pending, verdict).requeue_at(until)
}

fn final_reason(reason: Reason) -> Reason {
    if reason == Reason::Progressing {
        Reason::StartTimeout
    } else {
        reason
    }
}
