//! The commit that a DocsRun works on, and the head of the branch that it will push. The operator reads both from the
//! Git server, and records them before anything can be pushed.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::Decision,
    external::Reply,
    messages,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::{DocsRunStatus, RunPhase},
};
use attempts::{
    FIRST_RECORD_DELAY, Run, fail_run, is_unrecorded, not_started, recent, with_conditions,
};
use git::{Networks, Url};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    DocsDecision, Heads, LsRemoteResponse, Settings, deadline::Wait, status, world::describe_load,
};
use crate::{run::run_spec::Docs, time};

/// How long the server is queried for a repository that it does not know. Less than the pause of 5 s between two
/// queries, so that the second response counts.
const NOT_FOUND: Duration = Duration::from_secs(4);

/// Waits for the response to the query, or records it.
pub(super) fn decide(
    run: &Run<'_>,
    docs: &Docs<'_>,
    limit: Duration,
    answer: Option<&LsRemoteResponse>,
) -> DocsDecision {
    let fail = |reason, message: &str| {
        let decision = with_conditions(run, fail_run(run, reason, message));
        status::of_docs(decision, docs.status)
    };
    if let Err((reason, message)) = address(&docs.run.spec.repository_url, docs.settings) {
        return fail(reason, &message);
    }
    let fresh = answer.filter(|answer| answer.is_fresh);
    match fresh.map(|answer| (answer, &answer.response)) {
        Some((_, Ok(heads))) => match resolved(docs, heads) {
            Ok(status) => record(run, docs, status),
            Err(message) => fail(Reason::BranchNotFound, &message),
        },
        Some((answer, Err(error))) if is_final(run, answer, error.reason) => {
            fail(error.reason, &error.message)
        }
        Some((_, Err(_))) | None => wait(run, docs, limit, answer),
    }
}

/// Checks whether the repository may be queried at all.
fn address(url: &str, settings: &Settings) -> Result<(), (Reason, String)> {
    let url = Url::parse(url, settings.plain_http)
        .map_err(|error| (Reason::AddressNotAllowed, error.to_string()))?;
    let networks = Networks::parse(&settings.allowed_networks)
        .map_err(|error| (Reason::InternalError, error.to_string()))?;
    networks
        .permits_name(url.host())
        .map_err(|refused| (Reason::AddressNotAllowed, refused.to_string()))
}

/// Returns whether waiting cannot change this failure. A starting server may not know its repositories for a moment, so
/// a missing repository counts only at the second response.
fn is_final(run: &Run<'_>, answer: &LsRemoteResponse, reason: Reason) -> bool {
    let is_believed = run.now >= time::after(answer.since, NOT_FOUND);
    matches!(reason, Reason::AddressNotAllowed | Reason::BranchNotFound)
        || (reason == Reason::RepositoryNotFound && is_believed)
}

fn resolved(docs: &Docs<'_>, heads: &Heads) -> Result<DocsRunStatus, String> {
    let spec = &docs.run.spec;
    let head = |branch: &str| heads.get(branch).cloned().flatten();
    let Some(base) = head(&spec.source_branch) else {
        let (url, branch) = (&spec.repository_url, &spec.source_branch);
        return Err(format!("{url} has no branch '{branch}'"));
    };
    let branch = docs.run.output_branch();
    Ok(DocsRunStatus {
        base_commit: Some(base),
        branch_head: head(&branch),
        branch: Some(branch),
        deadline_extensions: 0,
        ..docs.status.clone()
    })
}

/// Only records the result: the target of the push is stored before the Job that could push is created.
fn record(run: &Run<'_>, docs: &Docs<'_>, resolved: DocsRunStatus) -> DocsDecision {
    let base = resolved.base_commit.as_deref().unwrap_or_default();
    let branch = &docs.run.spec.source_branch;
    let message = format!("branch '{branch}' is at {base}; starting the Job");
    let verdict = Verdict::working(Reason::Progressing, message);
    let mut next = run.next();
    // The wait for the repository is over. The next wait begins with the Job.
    next.progress.deadline_at = None;
    let decision = Decision::status_only(next, RunPhase::Pending, verdict).requeue_at(run.now);
    status::of_docs(with_conditions(run, decision), &resolved)
}

/// Returns when to reconcile again: at `requeue_at`, or at the deadline `until` if that is earlier. A deadline that has
/// passed does not count, because only a response is missing.
pub(super) fn soon(run: &Run<'_>, requeue_at: Timestamp, until: Timestamp) -> Timestamp {
    if run.now < until {
        requeue_at.min(until)
    } else {
        requeue_at
    }
}

/// Waits for the response up to a stored time.
fn wait(
    run: &Run<'_>,
    docs: &Docs<'_>,
    limit: Duration,
    answer: Option<&LsRemoteResponse>,
) -> DocsDecision {
    let url = &docs.run.spec.repository_url;
    // An earlier wait for the Agent had a deadline of its own.
    let was_for_agent = matches!(
        run.stored_message(),
        Some((Reason::AgentNotFound | Reason::AgentNotReady, _))
    );
    let stored = run.deadline().filter(|_| !was_for_agent);
    let stored = stored.map(|until| (until, docs.status.deadline_extensions));
    let Wait {
        until,
        extensions,
        is_over,
    } = Wait::new(run, stored, limit, answer);
    // An expired successful response is being queried again.
    let refused = answer.and_then(Reply::failure);
    let (reason, what) = match refused {
        Some(error) => (
            error.reason,
            bounded(&error.message, MAX_MESSAGE_CHARS - 100),
        ),
        None => (
            Reason::Progressing,
            format!("asking {url} for its branches"),
        ),
    };
    if is_over {
        let (reason, what) = match refused {
            Some(_) => (reason, what),
            None if docs.load.is_own_in_flight => (
                Reason::RepositoryUnreachable,
                format!("{url} has not responded in time; the query is in flight"),
            ),
            None => {
                let load = describe_load(docs.load, run.namespace);
                (Reason::StartTimeout, messages::not_asked(url, &load))
            }
        };
        let failed = not_started(run, reason, &what);
        return status::of_docs(with_conditions(run, failed), docs.status);
    }
    // Not `run.next()`: the commit to work on is not known yet.
    let mut next = run.status.clone();
    next.progress.deadline_at = Some(Time(until));
    let message = format!("{what}; waiting until {until}");
    let requeue_at = Reply::requeue_at(answer, run.now);
    let mut decision =
        Decision::status_only(next, RunPhase::Pending, Verdict::working(reason, message))
            .requeue_at(soon(run, requeue_at, until));
    let created = run.spec.metadata.creation_timestamp.as_ref();
    if refused.is_none() && is_unrecorded(run) {
        // A response is expected at once, and will be a better record.
        decision.defer_status_until =
            created.and_then(|at| recent(run.now, at.0, FIRST_RECORD_DELAY));
        decision.requeue_at = decision.defer_status_until.or(decision.requeue_at);
    }
    let kept = DocsRunStatus {
        deadline_extensions: extensions,
        ..docs.status.clone()
    };
    status::of_docs(with_conditions(run, decision), &kept)
}
