//! Objects of kinds without rules of their own. Their conditions, their message and the state of their
//! operator explain them.

use api::{
    Reason,
    status::condition::{FINISHED, READY, STALLED, SUCCEEDED},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    Finding, Summary, commands, conclude,
    operator::{self, Looked},
};
use crate::{
    explanation::{Explanation, Health, Link, State},
    world::{ObjectView, World},
};

/// Explains an object by its own status.
pub(super) fn explain(world: &World, found: &ObjectView) -> Explanation {
    let progress = &found.status;
    let main = [SUCCEEDED, READY]
        .iter()
        .find_map(|kind| progress.condition(kind));
    let message = progress.message.clone();
    let summary = Summary {
        text: message.unwrap_or_else(|| format!("the {} has no status yet", found.kind)),
        reason: main.map_or_else(|| "NotSeen".to_owned(), |main| main.reason.clone()),
        since: main.map(|main| main.last_transition_time.clone()),
        written: progress.last_updated.clone(),
    };
    let looked = Looked {
        kind: &found.kind,
        meta: &found.meta,
        observed: progress.observed_generation,
        changed: found.changed.as_ref(),
    };
    let finding = undecodable(world, found)
        .or_else(|| operator::not_seen(world, &looked))
        .unwrap_or_else(|| reported(world, found, main));
    let finding = operator::needed(world, finding);
    conclude(world, &world.target, summary, finding)
}

fn undecodable(world: &World, found: &ObjectView) -> Option<Finding> {
    let error = found.undecodable.as_ref()?;
    let sentence = format!("has a status that this release does not know: {error}");
    let link = Link::new(
        world.target.clone(),
        Health::Error,
        Reason::Undecodable,
        sentence,
    );
    let finding = Finding::new(State::Blocked, advice(Reason::Undecodable));
    let edit = commands::edit(&world.target, "correct the value");
    Some(finding.link(link).then(edit))
}

/// Returns the object's own link, with its main condition as evidence.
fn reported(world: &World, found: &ObjectView, main: Option<&Condition>) -> Finding {
    let (state, health) = state(found, main);
    let reason = main.map_or("NotSeen", |main| main.reason.as_str());
    let sentence = found.status.message.as_deref();
    let link = Link::new(
        world.target.clone(),
        health,
        reason,
        sentence.unwrap_or("has no message yet"),
    );
    let link = match main {
        Some(main) => link.since(Some(&main.last_transition_time)).seen(
            format!("condition {}={} ({reason})", main.type_, main.status),
            &main.message,
            Some(&main.last_transition_time),
        ),
        None => link,
    };
    let unknown = || "Read the message above, then the operator's log.".to_owned();
    let advice = Reason::from_name(reason).map_or_else(unknown, advice);
    let describe = commands::describe(&world.target, "its status and its Events");
    let log = operator::log(world);
    Finding::new(state, advice)
        .link(link)
        .then(describe)
        .maybe(log)
}

fn state(found: &ObjectView, main: Option<&Condition>) -> (State, Health) {
    let is = |kind: &str| found.status.is_true(kind);
    let is_suspended = main.is_some_and(|main| main.reason == Reason::Suspended.name());
    if found.meta.deleting.is_some() {
        (State::Deleting, Health::Waiting)
    } else if is(SUCCEEDED) {
        (State::Succeeded, Health::Ok)
    } else if is(READY) {
        (State::Ready, Health::Ok)
    } else if is(FINISHED) {
        (State::Failed, Health::Error)
    } else if is_suspended {
        (State::Suspended, Health::Waiting)
    } else if is(STALLED) {
        (State::Blocked, Health::Error)
    } else {
        (State::Waiting, Health::Waiting)
    }
}

/// Returns the advice of a reason as plain text, without the Markdown of the docs.
fn advice(reason: Reason) -> String {
    reason.advice().replace('`', "'")
}

#[cfg(test)]
mod tests;
