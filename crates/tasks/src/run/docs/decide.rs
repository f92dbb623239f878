//! The decision about a DocsRun.

use api::{
    decide::Input,
    tasks::{DocsRun, RunPhase},
};
use attempts::{Run, Stage, advance, before_start, checked, conclude};

use super::{DocsDecision, DocsWorld, push_outcome, resolve, status, verify};
use crate::run::run_spec::{Docs, RunSpec};

/// Decides the effects for a DocsRun, and its status.
///
/// # Guarantees
/// Those of [`crate::run::decide()`], and:
/// - No Job exists before the stored status has the commit to work on, the branch to push, and the previous head of
///   that branch.
/// - A run becomes `Succeeded` only if the Git server itself has the branch at the reported commit. The server is
///   queried after the push was reported. Without changes, a run succeeds only if its spec allows that.
#[must_use]
pub fn decide(input: &Input<'_, DocsRun, DocsWorld>) -> DocsDecision {
    let stored = input.object.status.clone().unwrap_or_default();
    let docs = Docs {
        run: input.object,
        status: &stored,
        settings: &input.world.settings,
        load: input.world.load,
    };
    let run_spec = RunSpec::of_docs(docs, &input.world.run);
    let run = Run {
        fault: input.fault,
        refused: input.refused,
        confirmed: input.confirmed,
        ..run_spec.run(status::run_status(&stored), input.now)
    };
    if let Some(decision) = conclude(&run) {
        return status::of_docs(decision, &stored);
    }
    let answer = input.world.answer.as_ref();
    if let Some(commit) = &stored.commit {
        return verify::decide(&run, &docs, commit, answer);
    }
    let is_new = matches!(run.stage(), Stage::NotStarted) && stored.base_commit.is_none();
    if is_new && run.fault.is_none() {
        let (_, name) = run.next_attempt();
        return match before_start(&run, &name) {
            None => resolve::decide(&run, &docs, run.start_limit(), answer),
            Some(wait) => status::of_docs(checked(&run, wait), &stored),
        };
    }
    let decision = advance(&run);
    if !decision.confirm.is_empty() {
        return status::of_docs(decision, &stored);
    }
    match decision.phase {
        RunPhase::Succeeded => verify::begin(&run, &docs, decision),
        RunPhase::Failed => verify::after_failure(&run, &docs, decision),
        RunPhase::Pending | RunPhase::Running => {
            status::of_docs(decision, &push_outcome::noted(&run, &docs))
        }
    }
}
