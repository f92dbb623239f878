//! Failures of a step.

use git::Reason;

/// The step that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Clone,
    Publish,
    Commit,
    Fetch,
}

impl Step {
    /// Parses the name of a step on the command line.
    pub(crate) fn parse(text: &str) -> Option<Step> {
        match text {
            "clone" => Some(Step::Clone),
            "publish" => Some(Step::Publish),
            "commit" => Some(Step::Commit),
            "fetch" => Some(Step::Fetch),
            _ => None,
        }
    }

    /// Creates a failure without a specific reason.
    pub(crate) fn failed(self, message: impl Into<String>) -> Failure {
        let reason = match self {
            Step::Clone | Step::Fetch => Reason::CloneFailed,
            // The report of a commit has its own reasons, see `crate::edits`.
            Step::Publish | Step::Commit => Reason::PublishFailed,
        };
        Failure::new(reason, message)
    }
}

/// The reason and message of a failure in the report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Failure {
            reason,
            message: message.into(),
        }
    }
}
