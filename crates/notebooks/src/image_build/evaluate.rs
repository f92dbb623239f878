//! The result of an attempt of a build with buildah or s2i, from the exits of its containers and their reports.

use api::{Reason, notebooks::notebook_reason, status::bounded};
use attempts::{
    Container, Containers, describe_pod,
    view::{Exit, PodView, Step},
};
use git::fetch::FetchReport;
use pods::after_colon;

use super::{BuildOutcome, BuildReport, BuildResult, Digest, Identity, ImageReference};
use crate::evaluate::was_stopped;

/// Maximum number of characters that we quote from a message of a container.
const QUOTE: usize = 800;

const FETCH: &str = "fetch";
const BUILD: &str = "build";
const PUSH: &str = "push";

/// Containers of the Pod of a build. Each has only the credentials that it needs, so they run one after the other.
pub static CONTAINERS: Containers = Containers {
    before: Some(Container {
        name: FETCH,
        reason: Reason::Fetching,
        activity: "fetches the repository",
    }),
    main: BUILD,
    after: Some(Container {
        name: PUSH,
        reason: Reason::Building,
        activity: "pushes the image",
    }),
};

/// Everything that the result of an attempt depends on.
#[derive(Debug, Clone, Copy)]
pub struct BuildAttempt<'a> {
    /// Pod of the attempt.
    pub pod: &'a PodView,
    /// End of the container that ended the Pod.
    pub exit: &'a Exit,
    /// Message of the Job if it failed, or `None` if it is complete.
    pub failure: Option<&'a str>,
    /// The build that the reports must be about.
    pub identity: Identity<'a>,
}

/// Evaluates an attempt that ended. Only this function completes a build of a Job.
#[must_use]
pub fn evaluate(attempt: &BuildAttempt<'_>) -> BuildOutcome {
    let name = describe_pod(attempt.pod);
    // F8: a program that was asked to stop may exit with 0 before its work is done.
    if was_stopped(attempt.pod, attempt.exit) {
        let message = format!("{name} was terminated by another actor; its result is ignored");
        return BuildOutcome::failed(Reason::Disrupted, message);
    }
    match attempt.pod.step {
        Step::Before => fetch_failed(attempt, &name),
        Step::Main => failed(attempt, &name, BUILD, Reason::BuildFailed),
        Step::After if attempt.exit.code != 0 => failed(attempt, &name, PUSH, Reason::PushFailed),
        Step::After => pushed(attempt, &name),
    }
}

fn fetch_failed(attempt: &BuildAttempt<'_>, name: &str) -> BuildOutcome {
    if let Some(FetchReport::Failed { reason, message }) = FetchReport::read(&attempt.exit.message)
    {
        let reason = notebook_reason(reason.as_str()).unwrap_or(Reason::CloneFailed);
        return BuildOutcome::failed(reason, message);
    }
    BuildOutcome::failed(Reason::CloneFailed, without_report(attempt, name, FETCH))
}

/// Evaluates a container that failed. Its own report names the cause.
fn failed(attempt: &BuildAttempt<'_>, name: &str, container: &str, other: Reason) -> BuildOutcome {
    if attempt.exit.is_out_of_memory() {
        let message = format!(
            "{name}: the container '{container}' used more memory than its limit and was killed"
        );
        return BuildOutcome::failed(Reason::OOMKilled, message);
    }
    let report = BuildReport::read(
        &attempt.exit.message,
        attempt.pod.containers,
        container,
        &attempt.identity,
    );
    match report {
        Ok(BuildResult::Failed {
            reason,
            step,
            message,
        }) => BuildOutcome::Failed {
            reason: known(&reason).unwrap_or(other),
            step: step.map(|step| bounded(&step, QUOTE)),
            message: bounded(&message, QUOTE),
        },
        Ok(BuildResult::Built | BuildResult::Pushed { .. }) => BuildOutcome::failed(
            Reason::ResultInvalid,
            format!(
                "{name}: the container '{container}' reports a success, but exited with code {}",
                attempt.exit.code
            ),
        ),
        Err(_) => BuildOutcome::failed(other, without_report(attempt, name, container)),
    }
}

/// Returns the reason of a failure that a container of a build may report.
fn known(text: &str) -> Option<Reason> {
    let all = [
        Reason::BuildFailed,
        Reason::RequirementsNotFound,
        Reason::BaseImageFailed,
        Reason::PushFailed,
        Reason::AuthenticationFailed,
        Reason::CertificateNotTrusted,
    ];
    all.into_iter().find(|reason| reason.name() == text)
}

/// Evaluates a push that exited with code 0. F4: without a report, nothing shows that it pushed.
fn pushed(attempt: &BuildAttempt<'_>, name: &str) -> BuildOutcome {
    if let Some(failure) = attempt.failure {
        let message = format!(
            "{name}: the container 'push' exited with code 0, but its Job failed{}",
            after_colon(failure)
        );
        return BuildOutcome::failed(Reason::JobFailed, message);
    }
    let doubt = attempt.pod.doubt.as_ref().map(|(_, exit)| exit);
    for exit in doubt.into_iter().chain([attempt.exit]) {
        if let Some(found) = exit.contradiction() {
            let message = format!("{name}: a container exited with code 0, but {found}");
            return BuildOutcome::failed(Reason::ExitContradicted, message);
        }
    }
    let Identity { repository, .. } = attempt.identity;
    let report = BuildReport::read(
        &attempt.exit.message,
        attempt.pod.containers,
        PUSH,
        &attempt.identity,
    );
    let missing = |found: &str| {
        let message = format!("{name}: the container 'push' exited with code 0, but {found}");
        BuildOutcome::failed(Reason::ImageReferenceMissing, message)
    };
    match report {
        Ok(BuildResult::Pushed { digest, .. }) => Digest::parse(&digest)
            .and_then(|digest| ImageReference::new(repository, digest))
            .map_or_else(
                || missing("its report has no valid reference"),
                BuildOutcome::Complete,
            ),
        Ok(BuildResult::Built | BuildResult::Failed { .. }) => missing("its report has no digest"),
        Err((reason, message)) => BuildOutcome::failed(reason, format!("{name}: {message}")),
    }
}

fn without_report(attempt: &BuildAttempt<'_>, name: &str, container: &str) -> String {
    let (code, quote) = (
        attempt.exit.code,
        bounded(attempt.exit.message.trim(), QUOTE),
    );
    format!(
        "{name}: the container '{container}' exited with code {code} without a report{}",
        after_colon(&quote)
    )
}
