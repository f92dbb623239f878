//! The observed state that decisions about a DocsRun depend on, besides its attempts.

use std::collections::BTreeMap;

use api::{
    Phase,
    external::{Load, Reply},
    tasks::{DocsRun, DocsRunStatus},
};

use crate::run::RunWorld;

pub use attempts::step::StepSettings as Settings;

/// Observed state of a DocsRun.
#[derive(Debug, Clone)]
pub struct DocsWorld {
    /// Observed state that every run has.
    pub run: RunWorld,
    /// Response of the Git server to the run's current query, or `None` before the first response.
    pub answer: Option<LsRemoteResponse>,
    /// Other queries, which a query without a response waits for, and whether the run's own is in flight.
    pub load: Load,
    /// The operator's configuration.
    pub settings: Settings,
}

/// Describes the queries that a query of this namespace waits for.
pub(super) fn describe_load(load: Load, namespace: &str) -> String {
    format!(
        "the operator has {} queries to Git servers in flight, {} of them for namespace '{namespace}', where {} wait",
        load.in_flight, load.in_flight_here, load.waiting_here
    )
}

/// Response of a Git server.
pub type LsRemoteResponse = Reply<Heads>;

/// Branches and their commits. `None` means that the branch does not exist.
pub type Heads = BTreeMap<String, Option<String>>;

/// Query to a Git server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LsRemoteRequest {
    /// Branches to read the heads of.
    pub branches: Vec<String>,
    /// Purpose of the query. A response for one purpose is not valid for the other: it may be older than the push.
    pub purpose: Purpose,
}

/// Purpose of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Find the commit to work on.
    Resolve,
    /// Check whether this commit arrived.
    Verify(String),
}

/// Returns the query that this run needs now, if any.
#[must_use]
pub fn question(run: &DocsRun) -> Option<LsRemoteRequest> {
    let ended = |status: &DocsRunStatus| status.phase.is_some_and(Phase::is_terminal);
    let status = run.status.as_ref();
    if run.metadata.deletion_timestamp.is_some() || status.is_some_and(ended) {
        return None;
    }
    let output = run.output_branch();
    if let Some(commit) = status.and_then(|status| status.commit.clone()) {
        return Some(LsRemoteRequest {
            branches: vec![output],
            purpose: Purpose::Verify(commit),
        });
    }
    let is_resolved = status.is_some_and(|status| status.base_commit.is_some());
    let waits = !run.spec.suspend && !run.spec.cancel && !is_resolved;
    waits.then(|| {
        let mut branches = vec![run.spec.source_branch.clone(), output];
        branches.dedup();
        LsRemoteRequest {
            branches,
            purpose: Purpose::Resolve,
        }
    })
}
