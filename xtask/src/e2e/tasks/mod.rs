//! `cargo xtask e2e tasks`: TaskRuns on the real node, each case with an operator process of its
//! own, which has the chart's rights and nothing more.

mod delete;
mod end;
mod fleet;
mod kit;
mod start;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use futures::FutureExt;
use testkit::{cluster::Tier, suite::Case};

/// Cases wait more than they work.
const PARALLEL: usize = 8;

macro_rules! case {
    ($name:literal, $shows:literal, $run:path) => {
        Case {
            name: $name,
            shows: $shows,
            tier: Tier::Node,
            alone: false,
            limit: Duration::from_secs(180),
            run: |env| $run(env).boxed(),
        }
    };
}

/// Runs all cases, or those whose names are given.
pub(super) async fn run(only: &[String]) -> Result<ExitCode> {
    crate::cases::run("e2e-tasks", cases(), only, PARALLEL).await
}

/// The slow ones first: the others fill the gaps.
fn cases() -> Vec<Case> {
    vec![
        case!(
            "quiet",
            "R07: 60 s after the last change nothing is written",
            fleet::quiet
        ),
        case!(
            "name-taken",
            "R20: a child's name taken by a foreign object",
            start::name_taken
        ),
        case!("success", "a run succeeds, with its evidence", end::success),
        case!(
            "contract",
            "the agent finds what the contract promises",
            end::contract
        ),
        case!("exit-3", "a program that ends with 3", end::exit_3),
        case!(
            "oom",
            "a container over its memory limit",
            end::out_of_memory
        ),
        case!("deadline", "a program that does not end", end::deadline),
        case!("needs-root", "an image that needs root", end::needs_root),
        case!(
            "result",
            "a required result that is missing",
            end::result_missing
        ),
        case!("retry", "two failures, then success", end::retry),
        case!(
            "unknown-image",
            "start timeout by an unknown image",
            start::unknown_image
        ),
        case!(
            "no-node",
            "start timeout because no node fits",
            start::no_node
        ),
        case!("quota", "start timeout by a quota", start::quota),
        case!(
            "missing-secret",
            "R22: start timeout by a missing Secret",
            start::missing_secret
        ),
        case!(
            "pod-security",
            "start timeout by Pod Security",
            start::pod_security
        ),
        case!(
            "job-refused",
            "R01: a Job that cannot be created",
            start::job_refused
        ),
        case!(
            "agent-missing",
            "the agent is missing, then created",
            start::agent_missing
        ),
        case!(
            "agent-not-ready",
            "the agent names what is missing, then it is made",
            start::agent_not_ready
        ),
        case!("too-large", "files beyond 900 KiB", start::too_large),
        case!(
            "new-version",
            "a higher version replaces a running one",
            end::new_version
        ),
        case!(
            "job-deleted",
            "R10: a Job that is deleted by hand",
            delete::job_by_hand
        ),
        case!("delete-pending", "deleted while pending", delete::pending),
        case!("delete-running", "deleted while running", delete::running),
        case!(
            "delete-finished",
            "deleted when finished, without an operator",
            delete::finished
        ),
        case!(
            "delete-down",
            "deleted while the operator is down",
            delete::operator_down
        ),
        case!(
            "delete-ns",
            "deleted with its namespace",
            delete::with_namespace
        ),
        case!(
            "hand-over",
            "SIGTERM hands over within 1 s, SIGKILL changes nothing",
            fleet::hand_over
        ),
        case!(
            "canary",
            "a secret of the Agent's environment is in nothing of ours",
            fleet::canary
        ),
    ]
}
