//! Verification of the report of `publish`: the operator itself reads the branch from the Git server.

use api::{
    Reason, Verdict,
    decide::Decision,
    external::Reply,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::{ChangedFiles, DocsRunStatus, RunPhase},
};
use attempts::{Run, RunDecision, RunStatus, finish_run, some_of, with_conditions};
use git::{Files, Report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    DocsDecision, LsRemoteResponse, VERIFY_LAG, VERIFY_WAIT,
    deadline::Wait,
    push_outcome::{self, PushOutcome},
    resolve::soon,
    status,
    world::describe_load,
};
use crate::{run::run_spec::Docs, time};

/// Stores the report of `publish` after a successful Job, to compare it with the server's response.
pub(super) fn begin(run: &Run<'_>, docs: &Docs<'_>, ended: RunDecision) -> DocsDecision {
    let (outcome, commit, changed, skipped) = match report(run, ended.status.job_name.as_deref()) {
        Some(Report::Pushed {
            commit,
            changed,
            skipped,
        }) => ("was pushed", commit, changed, skipped),
        Some(Report::Found {
            commit,
            changed,
            skipped,
        }) => ("was pushed before", commit, changed, skipped),
        Some(Report::NoChanges { skipped }) => return unchanged(run, docs, ended, &skipped),
        Some(Report::Cloned { .. } | Report::Failed { .. }) | None => {
            let message = format!(
                "the container 'publish' exited with code 0 without a report that can be read{}",
                push_outcome::unknown_message(docs)
            );
            let kept = push_outcome::noted(run, docs);
            return fail(run, &kept, ended.status, Reason::PublishFailed, &message);
        }
    };
    let commit = commit.to_string();
    // A commit that existed before would confirm itself.
    let is_old =
        [&docs.status.branch_head, &docs.status.base_commit].contains(&&Some(commit.clone()));
    if is_old {
        let message = format!(
            "the container 'publish' reports commit {commit} as pushed, which was there before{}",
            push_outcome::unknown_message(docs)
        );
        let kept = push_outcome::noted(run, docs);
        return fail(run, &kept, ended.status, Reason::PublishFailed, &message);
    }
    let message = format!(
        "commit {commit} {outcome} to '{}'; checking that the server has it",
        docs.run.output_branch(),
    );
    let kept = DocsRunStatus {
        left_out: some(skipped),
        ..with_commit(run, docs, commit, changed)
    };
    let mut next = ended.status;
    next.finished_at = None;
    next.progress.deadline_at = Some(Time(run.after(VERIFY_WAIT)));
    let verdict = Verdict::working(Reason::Verifying, message);
    let decision = Decision::status_only(next, RunPhase::Running, verdict).requeue_at(run.now);
    status::of_docs(with_conditions(run, decision), &kept)
}

/// Adds the possible effect on the server to the message of a failed attempt.
pub(super) fn after_failure(
    run: &Run<'_>,
    docs: &Docs<'_>,
    mut ended: RunDecision,
) -> DocsDecision {
    let (kept, more) = match push_outcome::left(run, docs, &ended) {
        PushOutcome::Nothing => (push_outcome::noted(run, docs), String::new()),
        PushOutcome::Unknown => (
            push_outcome::noted(run, docs),
            push_outcome::unknown_message(docs),
        ),
        PushOutcome::Commit(commit, changed) => {
            let branch = docs.run.output_branch();
            let more = format!(
                "; commit {commit} was pushed to '{branch}' all the same, as 'publish' reports"
            );
            (with_commit(run, docs, commit.to_string(), changed), more)
        }
    };
    let room = MAX_MESSAGE_CHARS.saturating_sub(more.chars().count());
    ended.verdict.message =
        bounded(&ended.verdict.message, room) + &bounded(&more, MAX_MESSAGE_CHARS);
    status::of_docs(ended, &kept)
}

fn with_commit(run: &Run<'_>, docs: &Docs<'_>, commit: String, changed: Files) -> DocsRunStatus {
    DocsRunStatus {
        commit: Some(commit),
        changed_files: Some(counted(changed)),
        ..push_outcome::noted(run, docs)
    }
}

fn counted(files: Files) -> ChangedFiles {
    ChangedFiles {
        count: files.count,
        first: files.first,
    }
}

fn some(files: Files) -> Option<ChangedFiles> {
    Some(counted(files)).filter(|files| files.count > 0)
}

/// Compares the reported commit with the server's response.
pub(super) fn decide(
    run: &Run<'_>,
    docs: &Docs<'_>,
    commit: &str,
    answer: Option<&LsRemoteResponse>,
) -> DocsDecision {
    let branch = docs.run.output_branch();
    if run.spec.cancel {
        let message = format!(
            "cancelled by 'spec.cancel' before the server confirmed commit {commit} on '{branch}'; it was reported as pushed"
        );
        return fail(run, docs.status, run.next(), Reason::Cancelled, &message);
    }
    let stored = run.deadline();
    let stored = stored.map(|until| (until, docs.status.deadline_extensions));
    let Wait {
        until: deadline,
        extensions,
        is_over,
    } = Wait::new(run, stored, VERIFY_WAIT, answer);
    let head = answer.map(|answer| {
        let heads = answer.response.as_ref();
        heads.map(|heads| heads.get(&branch).cloned().flatten())
    });
    let since = answer.map_or(run.now, |answer| answer.since);
    let until = match head {
        // Some servers respond from copies that lag behind.
        Some(Ok(_)) => time::after(since, VERIFY_LAG).min(deadline),
        Some(Err(_)) | None => deadline,
    };
    let what = match head {
        Some(Ok(Some(head))) if head == commit => {
            let message = format!(
                "commit {commit} is on branch '{branch}' of {}: {}{}",
                docs.run.spec.repository_url,
                changes(docs.status.changed_files.as_ref()),
                left_out(docs.status.left_out.as_ref())
            );
            let verdict = Verdict::succeeded(message);
            let ended = finish_run(run, run.next(), RunPhase::Succeeded, verdict);
            return status::of_docs(with_conditions(run, ended), docs.status);
        }
        Some(Ok(head)) => {
            let found = head.map_or_else(|| "not there".to_owned(), |head| format!("at {head}"));
            format!("commit {commit} was reported as pushed, but branch '{branch}' is {found}")
        }
        Some(Err(error)) => format!(
            "commit {commit} was reported as pushed to '{branch}', but the server does not confirm it ({}): {}",
            error.reason,
            bounded(&error.message, MAX_MESSAGE_CHARS - 400)
        ),
        None if is_over && docs.load.is_own_in_flight => format!(
            "commit {commit} was reported as pushed, but the server has not responded in time; the query for '{branch}' is in flight"
        ),
        None if is_over => format!(
            "commit {commit} was reported as pushed, but the server was not asked for '{branch}' in time: {}",
            describe_load(docs.load, run.namespace)
        ),
        None => format!("commit {commit} was reported as pushed; asking the server for '{branch}'"),
    };
    let is_fresh = answer.is_some_and(|answer| answer.is_fresh);
    if is_over || run.now >= until && is_fresh {
        return fail(run, docs.status, run.next(), Reason::NotVerified, &what);
    }
    let requeue_at = Reply::requeue_at(answer, run.now);
    let verdict = match run.stored_message() {
        // Nothing is new: the recorded message stays.
        Some((Reason::Verifying, message)) if answer.is_none() => {
            Verdict::working(Reason::Verifying, message)
        }
        Some(_) | None => Verdict::working(Reason::Verifying, what),
    };
    let mut next = run.next();
    next.progress.deadline_at = Some(Time(deadline));
    let decision = Decision::status_only(next, RunPhase::Running, verdict)
        .requeue_at(soon(run, requeue_at, until));
    let kept = DocsRunStatus {
        deadline_extensions: extensions,
        ..docs.status.clone()
    };
    status::of_docs(with_conditions(run, decision), &kept)
}

/// Returns the report of a successful `publish`.
fn report(run: &Run<'_>, job: Option<&str>) -> Option<Report> {
    let pod = run.newest_pod(run.job(job?)?)?;
    Report::read(&push_outcome::ended(pod)?.message)
}

fn unchanged(run: &Run<'_>, docs: &Docs<'_>, ended: RunDecision, skipped: &Files) -> DocsDecision {
    let kept = DocsRunStatus {
        left_out: some(skipped.clone()),
        ..push_outcome::noted(run, docs)
    };
    let message = format!(
        "the agent exited with code 0, but nothing changed below '{}'{}",
        docs.run.spec.output.path,
        left_out(kept.left_out.as_ref())
    );
    if docs.run.spec.output.require_changes {
        return fail(run, &kept, ended.status, Reason::NoChanges, &message);
    }
    let verdict = Verdict::succeeded(format!("{message}; nothing was pushed"));
    let decision = finish_run(run, ended.status, RunPhase::Succeeded, verdict);
    status::of_docs(with_conditions(run, decision), &kept)
}

/// Fails the run. The attempt's evidence stays, with the reason why it is no success.
fn fail(
    run: &Run<'_>,
    kept: &DocsRunStatus,
    mut next: RunStatus,
    reason: Reason,
    message: &str,
) -> DocsDecision {
    let message = bounded(message, MAX_MESSAGE_CHARS);
    if let Some(result) = &mut next.result {
        result.reason = Some(reason.name().to_owned());
        result.message = Some(message.clone());
    }
    let verdict = Verdict::failed(reason, message);
    let decision = finish_run(run, next, RunPhase::Failed, verdict);
    status::of_docs(with_conditions(run, decision), kept)
}

fn changes(changed: Option<&ChangedFiles>) -> String {
    let Some(changed) = changed else {
        return "changed files unknown".to_owned();
    };
    let files = if changed.count == 1 { "file" } else { "files" };
    format!(
        "{} {files} changed ({})",
        changed.count,
        bounded(&some_of(&changed.first), 200)
    )
}

/// Describes the files that were left out. Returns an empty string if there are none.
fn left_out(skipped: Option<&ChangedFiles>) -> String {
    skipped.map_or_else(String::new, |skipped| {
        format!(
            "; {} left out ({}): only regular files are taken, none whose name begins with '.git'",
            skipped.count,
            bounded(&some_of(&skipped.first), 200)
        )
    })
}
