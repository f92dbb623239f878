//! What a DocsRun does beside its attempts: before them it learns from the Git server what it works
//! on and where it will push (`resolve`), after them it reads from that server whether the push is
//! there (`verify`). The attempts themselves are those of every run; `pod` has their containers.
//!
//! What proves a success: the Job is complete, the container `publish`, which the agent cannot
//! touch, names a commit, and the server itself, asked by the operator after that, has the branch
//! at this commit. What a lie would look like: an agent's own word, an exit code alone, or an answer
//! of the server from before the push.

mod decide;
mod doubt;
pub mod pod;
mod resolve;
mod status;
mod verify;
mod world;

use std::time::Duration;

use api::{
    decide::{Decision, NoExternal, ResourceType},
    tasks::DocsRunStatus,
};

pub use decide::decide;
pub use world::{Answer, DocsWorld, Heads, Purpose, Question, Settings, question};

/// What a DocsRun is to the API server.
pub const RESOURCE: ResourceType = ResourceType::new(api::GROUP, "v1alpha1", "DocsRun", "docsruns");

/// What is decided about a DocsRun.
pub type DocsDecision = Decision<DocsRunStatus, NoExternal>;

/// How long `clone` and `publish` give themselves.
const STEP_TIME: Duration = Duration::from_secs(600);
/// How long a Pod may take from the agent's end to its own: what `publish` gives itself, and what
/// its start and its end take.
pub(super) const PUBLISH_TIME: Duration = Duration::from_secs(900);
/// How long the server may take to show a push that was reported, if it does not answer.
const VERIFY_WAIT: Duration = Duration::from_secs(600);
/// The same, if it answers with something else: some servers answer from copies that lag behind.
const VERIFY_LAG: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
