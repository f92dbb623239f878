//! Why a step failed.

use git::Reason;

/// Which step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Clone,
    Publish,
}

impl Step {
    /// As written on the command line.
    pub(crate) fn parse(text: &str) -> Option<Step> {
        match text {
            "clone" => Some(Step::Clone),
            "publish" => Some(Step::Publish),
            _ => None,
        }
    }

    /// A failure for which there is no reason of its own.
    pub(crate) fn failed(self, message: impl Into<String>) -> Failure {
        let reason = match self {
            Step::Clone => Reason::CloneFailed,
            Step::Publish => Reason::PublishFailed,
        };
        Failure::new(reason, message)
    }
}

/// What the report says of a failure.
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
