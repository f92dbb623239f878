//! Decisions about the build of a kernel's image, as pure functions.
//!
//! ```text
//! Building ──▶ BuildOutcome::Complete(repository@digest) ──▶ stored ──▶ BuildComplete ──▶ ValidationRunning
//!     └──────▶ BuildOutcome::Failed, or the deadline ──▶ Failed
//! ```
//!
//! # Guarantees
//! - The only valid result of a build is a digest that the pushing container reported, for this attempt (F4, F5, F6).
//! - A validation starts only from a *stored* reference with a digest (R60, F9, F10).
//! - The deadline covers the whole phase, with all attempts and waits (R63).
//!
//! # Caveats
//! No field of the CRD starts a build yet, and no child object is created. The rules of [`BuildSpec::check`] become rules
//! of the CRD when it has the field.

mod evaluate;
mod recipe;
mod reference;
mod report;
mod spec;
mod tekton;

use api::{Reason, Timestamp};

pub use evaluate::{BuildAttempt, CONTAINERS, evaluate};
pub use recipe::{dockerfile, requirements_files};
pub use reference::{Digest, ImageReference, check_repository, tag};
pub use report::{BuildReport, BuildResult, Identity};
pub use spec::{BuildSpec, S2i, Strategy, Tekton};
pub use tekton::pipeline_run_state;

/// State of the child object of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildState {
    /// It does not exist.
    Absent,
    /// It waits, for this reason.
    Waiting(Reason, String),
    /// It runs.
    Running,
    /// It ended, and its final status has not arrived.
    AwaitingFinalStatus,
    /// It ended.
    Finished(BuildOutcome),
}

/// End of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildOutcome {
    /// The image was pushed.
    Complete(ImageReference),
    /// The build failed.
    Failed {
        /// The reason.
        reason: Reason,
        /// The step that failed, such as `STEP 2/3: RUN pip install`.
        step: Option<String>,
        /// The message.
        message: String,
    },
}

impl BuildOutcome {
    fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self::Failed {
            reason,
            step: None,
            message: message.into(),
        }
    }
}

/// Decision of a phase of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildDecision {
    /// The child must be created.
    Create,
    /// The phase continues.
    Wait(Reason, String),
    /// The reference must be stored. The phase BuildComplete follows.
    Store(ImageReference),
    /// The validation may start, with this image.
    Validate(ImageReference),
    /// The job fails.
    Fail(Reason, String),
}

/// Decides about the phase Building. A build that finished counts, also if the operator was down at the deadline.
#[must_use]
pub fn building(state: &BuildState, deadline: Timestamp, now: Timestamp) -> BuildDecision {
    if let BuildState::Finished(outcome) = state {
        return match outcome {
            BuildOutcome::Complete(reference) => BuildDecision::Store(reference.clone()),
            BuildOutcome::Failed {
                reason,
                step,
                message,
            } => BuildDecision::Fail(*reason, with_step(step.as_deref(), message)),
        };
    }
    if now >= deadline {
        let message = format!("the build did not end by {deadline}; {}", describe(state));
        return BuildDecision::Fail(Reason::BuildTimeout, message);
    }
    match state {
        BuildState::Absent => BuildDecision::Create,
        BuildState::Waiting(reason, message) => BuildDecision::Wait(*reason, message.clone()),
        BuildState::Running | BuildState::AwaitingFinalStatus | BuildState::Finished(_) => {
            BuildDecision::Wait(Reason::Building, describe(state))
        }
    }
}

/// Decides about the phase BuildComplete, from the stored reference alone.
#[must_use]
pub fn build_complete(stored: Option<&str>, repository: &str) -> BuildDecision {
    let fail = |message: String| BuildDecision::Fail(Reason::ImageReferenceMissing, message);
    let Some(text) = stored.filter(|text| !text.is_empty()) else {
        return fail("the status has no image of the build".to_owned());
    };
    match ImageReference::parse(text) {
        None => fail(format!("the image '{text}' of the build has no digest")),
        Some(reference) if reference.repository() != repository => BuildDecision::Fail(
            Reason::ImageMismatch,
            format!("the status has the image '{text}', but the build is for '{repository}'"),
        ),
        Some(reference) => BuildDecision::Validate(reference),
    }
}

fn with_step(step: Option<&str>, message: &str) -> String {
    match step {
        Some(step) if !message.contains(step) => format!("{step}: {message}"),
        Some(_) | None => message.to_owned(),
    }
}

fn describe(state: &BuildState) -> String {
    match state {
        BuildState::Absent => "the build was not created".to_owned(),
        BuildState::Waiting(_, message) => format!("it waits: {message}"),
        BuildState::Running => "the build runs".to_owned(),
        BuildState::AwaitingFinalStatus => "the build ended without a final status".to_owned(),
        BuildState::Finished(_) => "the build ended".to_owned(),
    }
}

#[cfg(test)]
mod tests;
