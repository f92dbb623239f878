//! The position of one stream in the state of a watch. Pure.
//!
//! A stream first reads a snapshot in chunks, while runs go on changing. For each chunk it remembers
//! which changes the chunk already has. So no change is missed, and no state is delivered twice.

use std::sync::Arc;

use serde_json::json;

use super::state::{Change, State};
use crate::table::Row;

/// Number of runs in one event of a snapshot.
const ROWS: usize = 16;

/// Number of changes in one step.
const STEP: u64 = 32;

/// The id of an event: the position from which a client resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    /// The client keeps its last position.
    Keep,
    /// The client knows everything up to this `resourceVersion`.
    At(u64),
}

/// An event for the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) id: Id,
    pub(crate) data: String,
}

/// The result of a step.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// These events, in order. There may be more, also after none.
    Events(Vec<Event>),
    /// The snapshot is complete, and this is its position.
    Live(u64),
    /// There is nothing new.
    Idle,
    /// Changes after the position are not kept any more.
    Lost,
}

/// The position of one stream.
#[derive(Debug)]
pub(crate) struct Cursor {
    stage: Stage,
    epoch: u32,
    /// The client knows all changes up to this `resourceVersion`.
    after: u64,
}

#[derive(Debug)]
enum Stage {
    /// Reads the runs. Each chunk has its last key, and the number of the first change that it lacks.
    Snapshot {
        chunks: Vec<(Arc<str>, u64)>,
        from: u64,
    },
    /// Reads the changes since the snapshot began.
    CatchUp {
        chunks: Vec<(Arc<str>, u64)>,
        /// The first change that the last chunk lacks.
        last: u64,
        next: u64,
    },
    /// Reads new changes.
    Live { next: u64 },
}

impl Cursor {
    /// Returns the position before everything.
    pub(crate) fn snapshot(state: &State) -> Self {
        Self {
            stage: Stage::Snapshot {
                chunks: Vec::new(),
                from: state.next(),
            },
            epoch: state.epoch,
            after: state.complete(),
        }
    }

    /// Returns the position of a client that knows everything up to a `resourceVersion`, or `None` if
    /// later changes are missing.
    pub(crate) fn resume(state: &State, after: u64) -> Option<Self> {
        state.can_resume(after).then(|| Self {
            stage: Stage::Live {
                next: state.first(),
            },
            epoch: state.epoch,
            after,
        })
    }

    /// Returns this position after the watch began later, if no change between is missing.
    pub(crate) fn after_restart(&self, state: &State) -> Option<Self> {
        match &self.stage {
            Stage::Live { .. } if self.epoch != state.epoch => Self::resume(state, self.after),
            Stage::Live { .. } | Stage::Snapshot { .. } | Stage::CatchUp { .. } => None,
        }
    }

    /// Returns whether changes are missing because the watch began later, and not because the client is
    /// too slow.
    pub(crate) fn is_from_before(&self, state: &State) -> bool {
        self.epoch != state.epoch
    }

    /// Returns the position up to which the client knows everything, if it needs no snapshot.
    pub(crate) fn position(&self, state: &State) -> Option<u64> {
        match &self.stage {
            Stage::Live { next } if *next == state.next() => Some(self.after.max(state.revision())),
            Stage::Live { .. } => Some(self.after),
            Stage::Snapshot { .. } | Stage::CatchUp { .. } => None,
        }
    }

    /// Returns the next events.
    pub(crate) fn step(&mut self, state: &State, is_wanted: impl Fn(&Row) -> bool) -> Step {
        if self.epoch != state.epoch {
            return Step::Lost;
        }
        match &mut self.stage {
            Stage::Snapshot { chunks, from } => {
                let start = chunks.last().map(|(key, _)| Arc::clone(key));
                let rows = state.rows_after(start.as_deref(), ROWS);
                if let Some(last) = rows.last() {
                    chunks.push((Arc::clone(&last.key), state.next()));
                }
                if rows.len() < ROWS {
                    self.stage = Stage::CatchUp {
                        chunks: std::mem::take(chunks),
                        last: state.next(),
                        next: *from,
                    };
                }
                let wanted = rows.into_iter().filter(|row| is_wanted(row));
                let wanted: Vec<&Row> = wanted.map(|row| &**row).collect();
                match wanted.is_empty() {
                    true => Step::Events(Vec::new()),
                    false => Step::Events(vec![Event {
                        name: "snapshot",
                        id: Id::Keep,
                        data: json!(wanted).to_string(),
                    }]),
                }
            }
            Stage::CatchUp { chunks, last, next } => {
                if *next == state.next() {
                    let (next, position) = (*next, self.after.max(state.revision()));
                    self.stage = Stage::Live { next };
                    self.after = position;
                    return Step::Live(position);
                }
                let mut events = Vec::new();
                for number in *next..state.next().min(next.saturating_add(STEP)) {
                    let Some(change) = state.change(number) else {
                        return missing(state, self.after, next);
                    };
                    let mut known = chunks.iter();
                    let chunk = known.find(|(key, _)| change.row.key <= *key);
                    let first_missing = chunk.map_or(*last, |(_, first)| *first);
                    if number >= first_missing && change.revision > self.after {
                        events.extend(event(change, Id::Keep, &is_wanted));
                    }
                    *next = number.saturating_add(1);
                }
                Step::Events(events)
            }
            Stage::Live { next } => {
                if *next == state.next() {
                    return Step::Idle;
                }
                let mut events = Vec::new();
                for number in *next..state.next().min(next.saturating_add(STEP)) {
                    let Some(change) = state.change(number) else {
                        return missing(state, self.after, next);
                    };
                    *next = number.saturating_add(1);
                    if change.revision <= self.after {
                        continue;
                    }
                    // Of several changes with one version, the last one completes it.
                    let later = state.change(*next);
                    let id = match later.is_some_and(|later| later.revision == change.revision) {
                        true => Id::Keep,
                        false => Id::At(change.revision),
                    };
                    events.extend(event(change, id, &is_wanted));
                    if id != Id::Keep {
                        self.after = change.revision;
                    }
                }
                Step::Events(events)
            }
        }
    }
}

/// Handles a position that is not kept any more. Changes that the client knows are not needed.
fn missing(state: &State, after: u64, next: &mut u64) -> Step {
    match state.can_resume(after) {
        true => {
            *next = state.first();
            Step::Events(Vec::new())
        }
        false => Step::Lost,
    }
}

/// Returns the event of a change, or `None` if the client does not want the run.
fn event(change: &Change, id: Id, is_wanted: impl Fn(&Row) -> bool) -> Option<Event> {
    let row = &*change.row;
    let is_now = !change.is_deleted && is_wanted(row);
    if is_now {
        return Some(Event {
            name: "put",
            id,
            data: json!(row).to_string(),
        });
    }
    let was = match &change.before {
        Some(before) => is_wanted(before),
        // The client may have the run.
        None => change.is_replay || change.is_deleted && is_wanted(row),
    };
    was.then(|| Event {
        name: "delete",
        id,
        data: json!({
            "kind": row.kind, "namespace": row.namespace, "name": row.name, "uid": row.uid,
        })
        .to_string(),
    })
}

#[cfg(test)]
mod tests;
