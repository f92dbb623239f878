//! The state of a push, if a run does not end with a verified push.
//!
//! A `publish` that was stopped, or lost its Pod, may have pushed nevertheless. So the next status write stores the
//! first Pod that reached `publish`. If no report explains the end, the message states that the outcome is unknown,
//! with the command that shows the branch.

use api::{Reason, tasks::DocsRunStatus};
use attempts::{Run, RunDecision};
use git::{Commit, Files, Report};

use crate::{
    run::run_spec::Docs,
    view::{Exit, PodView, Step},
};

/// Possible effect of a failed run on the server.
#[derive(Debug)]
pub(super) enum PushOutcome {
    /// Nothing was pushed.
    Nothing,
    /// This commit was pushed, as `publish` itself reports.
    Commit(Commit, Files),
    /// Nobody knows whether something was pushed.
    Unknown,
}

/// Returns the status with the first Pod that may have pushed, if there is one by now.
pub(super) fn noted(run: &Run<'_>, docs: &Docs<'_>) -> DocsRunStatus {
    let mut status = docs.status.clone();
    if status.publisher.is_none() {
        status.publisher = run
            .jobs()
            .flat_map(|job| run.pods_of(job))
            .filter(|pod| came_so_far(pod))
            .min_by(|one, other| (one.created, &one.uid).cmp(&(other.created, &other.uid)))
            .map(|pod| pod.uid.clone());
    }
    status
}

/// Returns whether a Pod may have started `publish`. A container that the kubelet cannot start pushes nothing.
fn came_so_far(pod: &PodView) -> bool {
    pod.step == Step::After && pod.stuck.is_none()
}

/// Returns the possible effect of a run that ends with this decision.
pub(super) fn left(run: &Run<'_>, docs: &Docs<'_>, ended: &RunDecision) -> PushOutcome {
    let name = ended.status.job_name.as_deref();
    let job = name.and_then(|name| run.job(name));
    let pod = job.and_then(|job| run.newest_pod(job));
    let is_another = |uid: &String| pod.is_none_or(|pod| pod.uid != *uid);
    // We do not always see how far a disrupted Pod came.
    let came_before =
        noted(run, docs).publisher.as_ref().is_some_and(is_another) || ended.status.disruptions > 0;
    // A Job that ended by itself had a Pod, which was deleted before we read it. One that we stopped may have had none.
    let is_lost = job.is_some_and(|job| job.end.is_some() && !job.was_stopped())
        || matches!(
            ended.verdict.reason,
            Reason::EvidenceLost | Reason::JobLost | Reason::TooManyDisruptions
        );
    // A Pod that another actor created may report anything.
    match pod.filter(|pod| !pod.foreign).and_then(published) {
        Some((
            0,
            Report::Pushed {
                commit, changed, ..
            }
            | Report::Found {
                commit, changed, ..
            },
        )) => PushOutcome::Commit(commit, changed),
        // `publish` read the branch, and found it unchanged.
        Some((0, Report::NoChanges { .. })) => PushOutcome::Nothing,
        Some((1.., Report::Failed { reason, .. })) if is_certain(reason) && !came_before => {
            PushOutcome::Nothing
        }
        Some(_) => PushOutcome::Unknown,
        None => match pod {
            Some(pod) if came_so_far(pod) => PushOutcome::Unknown,
            None if is_lost => PushOutcome::Unknown,
            Some(_) | None if came_before => PushOutcome::Unknown,
            Some(_) | None => PushOutcome::Nothing,
        },
    }
}

/// Returns the message for an unknown effect, with the command that shows the branch.
pub(super) fn unknown_message(docs: &Docs<'_>) -> String {
    format!(
        "; whether it pushed is not known: 'git ls-remote {} refs/heads/{}' shows the branch, which was at {} before",
        docs.run.spec.repository_url,
        docs.run.output_branch(),
        docs.status.branch_head.as_deref().unwrap_or("no commit"),
    )
}

/// Returns exit code and report of the container `publish`, if it ended.
fn published(pod: &PodView) -> Option<(i32, Report)> {
    let exit = ended(pod)?;
    Some((exit.code, Report::read(&exit.message)?))
}

/// Returns the exit of a Pod's container `publish`, if it ended.
pub(super) fn ended(pod: &PodView) -> Option<&Exit> {
    pod.container.exit().filter(|_| pod.step == Step::After)
}

/// Returns whether a `publish` that failed for this reason certainly changed nothing on the server.
fn is_certain(reason: git::Reason) -> bool {
    match reason {
        git::Reason::RepositoryUnreachable | git::Reason::PublishFailed => false,
        git::Reason::RepositoryNotFound
        | git::Reason::AuthenticationFailed
        | git::Reason::CredentialsInvalid
        | git::Reason::CertificateNotTrusted
        | git::Reason::HostKeyUnknown
        | git::Reason::AddressNotAllowed
        | git::Reason::BranchNotFound
        | git::Reason::RepositoryTooLarge
        | git::Reason::PathNotFound
        | git::Reason::CloneFailed
        | git::Reason::OutputTooLarge
        | git::Reason::PushRejected
        | git::Reason::BranchMoved => true,
    }
}
