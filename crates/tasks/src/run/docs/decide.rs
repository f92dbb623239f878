//! The decision about a DocsRun.

use api::{
    decide::Input,
    tasks::{DocsRun, RunPhase},
};
use mutant::Mutant;

use super::{DocsDecision, DocsWorld, doubt, resolve, status, verify};
use crate::run::{
    decide::{course, with_facts},
    delete,
    order::{Docs, Order},
    outcome, start,
    world::{Run, Stage},
};

/// What to do about a DocsRun, and what to say of it.
///
/// # Guarantees
/// Those of [`crate::run::decide()`], and:
/// - No Job exists before the stored status names the commit that it works on, the branch that it
///   pushes and where that branch was.
/// - `Succeeded` only if the Git server itself, asked after the push was reported, has the branch at
///   the reported commit; or if nothing changed and the run says that this is enough.
#[must_use]
pub fn decide(input: &Input<'_, DocsRun, DocsWorld>) -> DocsDecision {
    let stored = input.object.status.clone().unwrap_or_default();
    let docs = Docs {
        run: input.object,
        status: &stored,
        settings: &input.world.settings,
    };
    let run = Run::new(
        Order::of_docs(docs),
        status::course(&stored),
        &input.world.run,
        input.now,
        input.fault,
    );
    if let Some(since) = &input.object.metadata.deletion_timestamp {
        return status::of_docs(delete::decide(&run, since.0), &stored);
    }
    if let Some(ended) = outcome::ended(&run).or_else(|| outcome::restored(&run)) {
        return status::of_docs(ended, &stored);
    }
    let answer = input.world.answer.as_ref();
    if let Some(commit) = &stored.commit {
        return verify::decide(&run, &docs, commit, answer);
    }
    let is_new = matches!(run.stage(), Stage::Before) && stored.base_commit.is_none();
    if is_new && run.fault.is_none() {
        let (_, name) = run.next_attempt();
        return match start::ready(&run, &name) {
            Ok(agent) => {
                let resolved = resolve::decide(&run, &docs, agent, answer);
                if mutant::on(Mutant::IntentUnstored) && resolved.status.base_commit.is_some() {
                    let mut object = input.object.clone();
                    object.status = Some(resolved.status);
                    let object = &object;
                    return decide(&Input { object, ..*input });
                }
                resolved
            }
            Err(wait) => status::of_docs(with_facts(*wait), &stored),
        };
    }
    let decision = course(&run);
    match decision.phase {
        RunPhase::Succeeded => verify::begin(&run, &docs, decision),
        RunPhase::Failed => verify::after_failure(&run, &docs, decision),
        RunPhase::Pending | RunPhase::Running => {
            status::of_docs(decision, &doubt::noted(&run, &docs))
        }
    }
}
