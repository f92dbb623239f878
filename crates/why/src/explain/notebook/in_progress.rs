//! A job that waits or runs.

use super::*;

/// Reasons of a wait that needs nobody.
const CALM: &[Reason] = &[
    Reason::Progressing,
    Reason::Fetching,
    Reason::ReadingResult,
    Reason::Disrupted,
    Reason::RepositoryUnreachable,
];

/// Explains a job that has not ended.
pub(super) fn find(job: Notebook<'_>) -> Finding {
    let reason = job.reason().unwrap_or(Reason::Progressing);
    if job.view.cancel {
        return cancelling(job);
    }
    if reason != Reason::Progressing {
        let is_calm = CALM.contains(&reason);
        let state = if is_calm {
            State::Waiting
        } else {
            State::Blocked
        };
        let mut finding = explained(job, state, cause(job, reason), reason, None);
        if is_calm && let Some(link) = finding.links.last_mut() {
            link.health = Health::Waiting;
        }
        return finding.then(job.look_again());
    }
    let status = &job.view.status;
    if status.commit.is_none() {
        return asking(job);
    }
    if let Some(denied) = refused(job) {
        return denied;
    }
    match job.pod() {
        Some(pod) if status.started_at.is_some() => running(job, pod),
        Some(pod) => starting(job, pod),
        None => {
            finding! { Waiting "Wait: the Job and its Pod are created within seconds. If it stays so, look into the operator's log.";
                Waiting job.job_object(), Reason::Progressing, "has no Pod yet";
                seen job.said(); then job.look_again(), operator::log(job.world);
            }
        }
    }
}

fn cancelling(job: Notebook<'_>) -> Finding {
    let mut finding = match job.pod().filter(|pod| pod.may_run()) {
        Some(pod) => stopping(*job, pod, Stop::Ours(Reason::Cancelled)),
        None => Finding::new(State::Waiting, ""),
    };
    if finding.state != State::Blocked {
        finding.advice = "Wait: someone cancelled the job; it ends as soon as its Pod has stopped. To run it after all, submit another NotebookValidationJob.".to_owned();
    }
    finding.then(job.look_again())
}

/// Explains the time before the commits are known.
fn asking(job: Notebook<'_>) -> Finding {
    let source = &job.view.source;
    finding! {
        Waiting "Wait: this takes seconds. If it stays so, the first lines have the response of the server.";
        Waiting source.repository(), Reason::Progressing, "is asked for the commit of '{}'", source.reference;
        since job.meta.created.as_ref(); seen "status.commit" => "none yet", job.written();
        then job.look_again(), source.ls_remote(), operator::log(job.world);
    }
}

/// Explains a Job whose Pod the API server rejects.
fn refused(job: Notebook<'_>) -> Option<Finding> {
    if job.pod().is_some() {
        return None;
    }
    let (known, event) = job.jobs().find_map(|known| {
        let event = job.world.warning(&known.meta.uid, &["FailedCreate"])?;
        Some((known, event))
    })?;
    Some(finding! {
        Blocked "The message names the quota, the policy or the limit. Correct it, or ask its owner; the Job controller tries again by itself.";
        Error known.object(), Reason::AdmissionDenied, "cannot create its Pod: {}", event.message;
        since event.first.as_ref(); seen event.evidence();
        then known.object().describe("its Events"), job.look_again();
    })
}

fn running(job: Notebook<'_>, pod: &PodView) -> Finding {
    let status = &job.view.status;
    let since = status
        .cells
        .as_ref()
        .and_then(|cells| cells.current_since.as_ref());
    let deadline = job.progress.deadline_at.as_ref();
    let until = deadline.map_or_else(String::new, |at| format!(" It has until {}.", job.when(at)));
    let follow = job.logs("kernel", "what the kernel's container wrote");
    let above = link! { Ok pod.object(), "Running", "runs the notebook{}", pod.on_node();
        since status.started_at.as_ref(); seen "status.startedAt" => (job.message()), status.started_at.as_ref();
    };
    let Some(cell) = job.current_cell() else {
        return finding! { Running "Nothing is wrong: wait for its end.{until}";
            link above;
            then follow, job.orc("wait", "wait for the end");
        };
    };
    finding! { Running "Nothing is wrong: wait for its end.{until} If the cell should not take so long, set 'notebook.cellTimeout' in another job.";
        link above;
        Ok job.cell_object(Some(cell)), "Running", "is running{}", job.since(since);
        since since; seen job.more();
        then follow, job.orc("wait", "wait for the end");
    }
}

/// Explains a Pod that has not started. Problems without a reason in the status yet come from Events.
fn starting(job: Notebook<'_>, pod: &PodView) -> Finding {
    let warnings = job.world.warnings(&pod.meta.uid);
    if let Some(event) = warnings.first() {
        return finding! {
            Blocked "The words are the scheduler's, the kubelet's or the volume driver's. Correct what they name; it is tried again by itself.";
            Error pod.object(), event.reason.as_str(), "does not start: {}", event.message;
            since event.first.as_ref(); seen event.evidence();
            then pod.object().describe("its Events"), job.look_again();
        };
    }
    let created = pod.meta.created.as_ref();
    finding! { Waiting "Wait: nothing is wrong so far.";
        Waiting pod.object(), Reason::Progressing, "is starting{}", pod.on_node();
        since created; seen "status.phase" => (pod.phase.as_str()), created;
        then pod.object().describe("its Events"), job.look_again();
    }
}
