//! The decision about a NotebookValidationJob.

mod storing;

use std::iter;

use api::{
    Reason, Verdict,
    decide::{ConditionUpdate, Decision, Input},
    external::Reply,
    notebooks::{
        Cells, ComparisonResult, Expectations, NotebookPhase, NotebookValidationJob,
        NotebookValidationJobStatus, condition,
    },
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::RunPhase,
};
use attempts::{
    Run, RunDecision, RunStatus, Stage, advance, before_start, checked, conclude, fail_run,
    finish_stored, not_started, time,
};
use git::{Networks, Url};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    evaluate,
    report::Report,
    runner_log::{LogContent, PROGRESS_EVERY},
    sources::{Refs, Resolved, Sources, resolve_all},
    work::{ONLY_VERSION, Validation},
    world::{NotebookSettings, NotebookWorld},
};

/// Decision about a NotebookValidationJob.
pub type NotebookDecision = Decision<NotebookValidationJobStatus>;

/// Decides the effects for a job, and its status.
///
/// # Guarantees
/// Those of the crate [`attempts`], and:
/// - No Job exists before the stored status has the commits to work on and the image (R60).
/// - A job becomes `Succeeded` only by [`evaluate::evaluate`], or by its own annotation after it was restored without
///   its status.
/// - A phase of an earlier operator is reset in one status write, whatever else the status contains.
/// - The full result never changes the verdict. If its storage takes time, the verdict is stored first.
#[must_use]
pub fn decide(input: &Input<'_, NotebookValidationJob, NotebookWorld>) -> NotebookDecision {
    let stored = input.object.status.clone().unwrap_or_default();
    if let Some(phase) = stored.phase.filter(|phase| phase.is_legacy()) {
        return reset(phase).requeue_at(input.now);
    }
    let work = Validation {
        job: input.object,
        status: &stored,
        world: input.world,
    };
    let run = Run {
        fault: input.fault,
        refused: input.refused,
        confirmed: input.confirmed,
        ..work.run(run_status(&stored), input.now)
    };
    if let Some(decision) = conclude(&run) {
        return storing::expire(&run, &work, of_notebook(decision, &stored));
    }
    if stored.report.is_some()
        && let Some(end) = finish_stored(&run)
    {
        return storing::finish(&run, &work, end, &stored);
    }
    let is_new = matches!(run.stage(), Stage::NotStarted) && stored.commit.is_none();
    if is_new && run.fault.is_none() {
        let (_, name) = run.next_attempt();
        return match before_start(&run, &name) {
            None => initialize(&run, &work),
            Some(wait) => of_notebook(checked(&run, wait), &stored),
        };
    }
    let decision = advance(&run);
    if decision.is_end() && decision.confirm.is_empty() {
        return ended(&run, &work, decision);
    }
    in_progress(&run, &work, decision)
}

/// Adds the progress of a kernel that runs.
fn in_progress(run: &Run<'_>, work: &Validation<'_>, decision: RunDecision) -> NotebookDecision {
    let started = decision.status.started_at.as_ref();
    let Some(started) = started.filter(|_| decision.phase == RunPhase::Running) else {
        return of_notebook(decision, work.status);
    };
    let log = work.world.log.as_ref();
    let first = time::after(started.0, PROGRESS_EVERY);
    let again = if run.now < first {
        first
    } else {
        Reply::requeue_at(log, run.now)
    };
    let mut status = work.status.clone();
    let progress = log.and_then(Reply::success);
    if let Some(progress) = progress.and_then(LogContent::progress) {
        status.cells = Some(progress.cells());
    }
    of_notebook(decision.requeue_at(again), &status)
}

/// Resets a job of an earlier operator. Nothing in its status is evidence, so nothing of it is kept.
fn reset(phase: NotebookPhase) -> NotebookDecision {
    let message = format!(
        "an earlier operator stored the phase '{}'; the job starts again from the beginning",
        api::Phase::name(phase)
    );
    Decision::status_only(
        NotebookValidationJobStatus::default(),
        NotebookPhase::Initializing,
        Verdict::working(Reason::Progressing, message),
    )
}

/// Returns the part of the status that all runs have.
pub(crate) fn run_status(status: &NotebookValidationJobStatus) -> RunStatus {
    let phase = status.phase.map(|phase| match phase {
        NotebookPhase::ValidationRunning if status.started_at.is_some() => RunPhase::Running,
        NotebookPhase::Initializing
        | NotebookPhase::ValidationRunning
        | NotebookPhase::Pending
        | NotebookPhase::Running => RunPhase::Pending,
        NotebookPhase::Succeeded => RunPhase::Succeeded,
        NotebookPhase::Failed => RunPhase::Failed,
    });
    RunStatus {
        phase,
        // A job has no versions. It has its only one once the commits to work on are known.
        version: status.commit.as_ref().map(|_| ONLY_VERSION),
        attempt: status.attempt.clone(),
        progress: status.progress.clone(),
    }
}

/// Converts a decision to one about a job. `kept` has the fields that only its status has.
fn of_notebook(decision: RunDecision, kept: &NotebookValidationJobStatus) -> NotebookDecision {
    let phase = match decision.phase {
        RunPhase::Pending | RunPhase::Running if kept.commit.is_none() => {
            NotebookPhase::Initializing
        }
        RunPhase::Pending | RunPhase::Running => NotebookPhase::ValidationRunning,
        RunPhase::Succeeded => NotebookPhase::Succeeded,
        RunPhase::Failed => NotebookPhase::Failed,
    };
    let conditions = conditions(kept, &decision.verdict);
    // An attempt that has not started has no progress, whatever the one before it achieved.
    let has_progress = decision.phase != RunPhase::Pending;
    let decision = decision.map_status(phase, |status| NotebookValidationJobStatus {
        phase: kept.phase,
        cells: kept.cells.clone().filter(|_| has_progress),
        attempt: status.attempt,
        progress: status.progress,
        ..kept.clone()
    });
    NotebookDecision {
        conditions,
        ..decision
    }
}

fn conditions(status: &NotebookValidationJobStatus, verdict: &Verdict) -> Vec<ConditionUpdate> {
    let resolved = match &status.commit {
        Some(commit) => ConditionUpdate {
            kind: condition::SOURCE_RESOLVED,
            value: Some(true),
            reason: Reason::SourcesFound,
            message: format!("the notebook is that of commit {commit}"),
        },
        None => ConditionUpdate {
            kind: condition::SOURCE_RESOLVED,
            value: Some(false),
            reason: verdict.reason,
            message: "the commit of the notebook is not known".to_owned(),
        },
    };
    // Only the report of the runner has these numbers. The progress has others.
    let compared = status.expectations.as_ref().map(|_| {
        let (value, reason, message) = match &status.comparison_result {
            None => (false, Reason::NoGolden, "there is no golden notebook"),
            Some(result) if result.mismatched_cells == 0 && result.matched_cells > 0 => {
                (true, Reason::Matched, "the outputs match")
            }
            Some(_) => (false, verdict.reason, "the outputs do not match"),
        };
        ConditionUpdate {
            kind: condition::COMPARED,
            value: Some(value),
            reason,
            message: message.to_owned(),
        }
    });
    [resolved].into_iter().chain(compared).collect()
}

/// Records the commits, or waits for the response of the Git servers.
fn initialize(run: &Run<'_>, work: &Validation<'_>) -> NotebookDecision {
    let spec = &work.job.spec;
    let fail = |reason, message: &str| of_notebook(fail_run(run, reason, message), work.status);
    let golden = spec.golden_notebook.as_ref();
    let golden = golden.and_then(|golden| golden.git.as_ref());
    for source in iter::once(&spec.notebook.git).chain(golden) {
        if let Err((reason, message)) = address(&source.url, &work.world.settings) {
            return fail(reason, &message);
        }
    }
    match resolve_all(spec, &work.world.responses) {
        Ok(sources) => record(run, work, sources),
        Err(Resolved::Failed(reason, message)) => fail(reason, &message),
        Err(Resolved::Unknown | Resolved::Commit(_)) => wait(run, work),
    }
}

/// Checks whether the repository may be queried at all.
fn address(url: &str, settings: &NotebookSettings) -> Result<(), (Reason, String)> {
    let url = Url::parse(url, settings.step.plain_http)
        .map_err(|error| (Reason::AddressNotAllowed, error.to_string()))?;
    let networks = Networks::parse(&settings.step.allowed_networks)
        .map_err(|error| (Reason::InternalError, error.to_string()))?;
    networks
        .permits_name(url.host())
        .map_err(|refused| (Reason::AddressNotAllowed, refused.to_string()))
}

/// Only records the commits and the image: they are stored before the Job that runs them is created.
fn record(run: &Run<'_>, work: &Validation<'_>, sources: Sources) -> NotebookDecision {
    let Sources {
        commit,
        golden_commit,
    } = sources;
    let message = format!("the notebook is that of commit {commit}; starting the Job");
    let verdict = Verdict::working(Reason::Progressing, message);
    let resolved = NotebookValidationJobStatus {
        commit: Some(commit),
        golden_commit,
        image: Some(work.job.spec.pod_config.container_image.clone()),
        ..work.status.clone()
    };
    let mut next = run.next();
    // The wait for the Git servers is over. The next wait begins with the Job.
    next.progress.deadline_at = None;
    let decision = Decision::status_only(next, RunPhase::Pending, verdict).requeue_at(run.now);
    of_notebook(decision, &resolved)
}

/// Waits for the responses up to a stored time.
fn wait(run: &Run<'_>, work: &Validation<'_>) -> NotebookDecision {
    let responses = &work.world.responses;
    let mut replies = responses.notebook.iter().chain(&responses.golden);
    let failure = replies.find_map(Reply::failure);
    let (reason, message) = match failure {
        Some(error) => (
            error.reason,
            bounded(&error.message, MAX_MESSAGE_CHARS - 100),
        ),
        None => (
            Reason::Progressing,
            "asking the Git servers for the commits".to_owned(),
        ),
    };
    if reason == Reason::AddressNotAllowed {
        return of_notebook(fail_run(run, reason, &message), work.status);
    }
    let until = run
        .deadline()
        .unwrap_or_else(|| run.after(run.start_limit()));
    if run.now >= until {
        return of_notebook(not_started(run, reason, &message), work.status);
    }
    // Not `run.next()`: the commits to work on are not known yet.
    let mut next = run.status.clone();
    next.progress.deadline_at = Some(Time(until));
    let again = |reply: Option<&Reply<Refs>>| Reply::requeue_at(reply, run.now);
    let (notebook, golden) = (responses.notebook.as_ref(), responses.golden.as_ref());
    let message = format!("{message}; waiting until {until}");
    let verdict = Verdict::working(reason, message);
    let decision = Decision::status_only(next, RunPhase::Pending, verdict)
        .requeue_at(again(notebook).min(until))
        .requeue_at(again(golden).min(until));
    of_notebook(decision, work.status)
}

/// Adds the runner's report to the decision that ends the job.
fn ended(run: &Run<'_>, work: &Validation<'_>, decision: RunDecision) -> NotebookDecision {
    let job = decision.status.job_name.as_deref();
    let pod = job
        .and_then(|name| run.job(name))
        .and_then(|job| run.newest_pod(job));
    let report = pod.and_then(|pod| evaluate::report(pod, &work.identity(pod)));
    match report {
        Some(report) => storing::finish(run, work, decision, &with_report(work, &report)),
        None => of_notebook(decision, work.status),
    }
}

fn with_report(work: &Validation<'_>, report: &Report) -> NotebookValidationJobStatus {
    let spec = &work.job.spec;
    let mut status = work.status.clone();
    status.report = report.result();
    let Some(counts) = report.counts else {
        return status;
    };
    status.cells = Some(Cells {
        total: counts.total,
        done: counts.succeeded,
        failed: counts.failed,
        skipped: counts.skipped,
        current: report.cell,
        current_since: None,
    });
    status.expectations = Some(Expectations {
        total: counts.expectations,
        failed: counts.expectations_failed,
    });
    if spec.golden_notebook.is_some() {
        let is_matched = counts.mismatched == 0 && counts.compared > 0;
        let result = if is_matched { "matched" } else { "mismatched" };
        status.comparison_result = Some(ComparisonResult {
            strategy: spec.comparison.strategy,
            result: result.to_owned(),
            total_cells: counts.total,
            matched_cells: counts.matched,
            mismatched_cells: counts.mismatched,
            ignored_cells: counts.ignored,
            classes: report.classes.clone(),
            diffs: Vec::new(),
        });
    }
    status
}

#[cfg(test)]
mod tests;
