//! What a decision about a DocsRun depends on beside its attempts.

use std::collections::BTreeMap;

use api::{
    Phase, Reason, Timestamp,
    tasks::{DocsRun, DocsRunStatus},
};

use crate::run::RunWorld;

/// Everything that was observed for a DocsRun.
#[derive(Debug, Clone)]
pub struct DocsWorld {
    /// What every run has.
    pub run: RunWorld,
    /// What the Git server answered to the question that the run has now; `None` before it did.
    pub answer: Option<Answer>,
    /// The operator's configuration.
    pub settings: Settings,
}

/// The operator's configuration of DocsRuns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The image with `git`, `ssh` and our own steps.
    pub toolbox_image: String,
    /// Networks whose addresses are not refused, as CIDRs.
    pub allowed_networks: Vec<String>,
    /// Whether plain http may be spoken.
    pub plain_http: bool,
    /// The most space that a repository may need, in MiB.
    pub repository_limit_mib: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            toolbox_image: concat!("localhost/orchestrator-toolbox:", env!("CARGO_PKG_VERSION"))
                .to_owned(),
            allowed_networks: Vec::new(),
            plain_http: false,
            repository_limit_mib: 1024,
        }
    }
}

/// What a Git server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The heads that were asked for, or why there are none: a reason, and a sentence without any
    /// secret in it.
    pub heads: Result<Heads, (Reason, String)>,
    /// When this question was answered for the first time.
    pub since: Timestamp,
    /// When it is asked again.
    pub next_at: Timestamp,
    /// Whether it is as new as it can be. An old one is repeated until there is another, but
    /// nothing is concluded from it.
    pub is_fresh: bool,
}

/// Branches and their commits; `None`: there is no such branch.
pub type Heads = BTreeMap<String, Option<String>>;

/// A question to a Git server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The branches whose heads are asked for.
    pub branches: Vec<String>,
    /// What for. An answer to one is none to the other: it may be older than the push.
    pub purpose: Purpose,
}

/// What a question is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// What to work on.
    Resolve,
    /// Whether this commit arrived.
    Verify(String),
}

/// What has to be asked for this run now.
#[must_use]
pub fn question(run: &DocsRun) -> Option<Question> {
    let ended = |status: &DocsRunStatus| status.phase.is_some_and(Phase::is_terminal);
    let status = run.status.as_ref();
    if run.metadata.deletion_timestamp.is_some() || status.is_some_and(ended) {
        return None;
    }
    let output = run.output_branch();
    if let Some(commit) = status.and_then(|status| status.commit.clone()) {
        return Some(Question {
            branches: vec![output],
            purpose: Purpose::Verify(commit),
        });
    }
    let is_resolved = status.is_some_and(|status| status.base_commit.is_some());
    let waits = !run.spec.suspend && !run.spec.cancel && !is_resolved;
    waits.then(|| {
        let mut branches = vec![run.spec.source_branch.clone(), output];
        branches.dedup();
        Question {
            branches,
            purpose: Purpose::Resolve,
        }
    })
}
