//! The additional steps of a DocsRun. Before its attempts it reads from the Git server which commit to work on and
//! where to push (`resolve`). After its attempts it reads from that server whether the push arrived (`verify`). The
//! attempts themselves are those of every run; [`build`](crate::build) has their containers.
//!
//! A success needs three facts:
//!
//! - The Job is complete.
//! - The container `publish`, which the agent cannot touch, reports a commit.
//! - The server itself, queried by the operator after that, has the branch at this commit.
//!
//! The agent's own report, an exit code alone, or a response of the server from before the push proves nothing.

pub(crate) mod deadline;
mod decide;
mod push_outcome;
mod resolve;
mod status;
mod verify;
mod world;

use std::time::Duration;

use api::{
    decide::{Decision, ResourceType},
    tasks::DocsRunStatus,
};

pub use decide::decide;
pub use world::{DocsWorld, Heads, LsRemoteRequest, LsRemoteResponse, Purpose, Settings, question};

/// API resource type of a DocsRun.
pub const RESOURCE: ResourceType = api::tasks::DOCS_RUN.resource;

/// Decision about a DocsRun.
pub type DocsDecision = Decision<DocsRunStatus>;

/// Time limit that `clone` and `publish` set themselves.
pub(crate) const STEP_TIME: Duration = Duration::from_secs(600);
/// How long a Pod may take from the agent's end to its own: the time limit of `publish`, and the time for its start and
/// end.
pub(super) const PUBLISH_TIME: Duration = Duration::from_secs(900);
/// How long the server may take to show a reported push, if it does not respond.
const VERIFY_WAIT: Duration = Duration::from_secs(600);
/// The same, if it responds with another commit: some servers respond from copies that lag behind.
const VERIFY_LAG: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
