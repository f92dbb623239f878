//! The stream of a list of runs.

use std::sync::Arc;

use api::Timestamp;
use futures::{StreamExt, future::select_all, stream::unfold};
use hyper::body::Bytes;
use serde_json::json;
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};

use super::{
    Ends, HEARTBEAT, Texts,
    cursor::{Cursor, Event, Id, Step},
    end,
    hub::{Phase, Subscription},
    sse,
};
use crate::table::{Filter, Row};

/// Returns the time of day.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A stream of runs.
pub(crate) struct RunStream {
    sources: Vec<Source>,
    filter: Filter,
    now: Now,
    ends: Ends,
    heartbeat: Instant,
    /// Whether the event `live` was sent.
    is_live: bool,
    is_over: bool,
}

/// The part of a stream in one watch.
struct Source {
    subscription: Subscription,
    changes: Receiver<()>,
    cursor: Cursor,
    /// The position that the client was told, after its snapshot.
    id: Option<u64>,
}

/// What a source has for the client.
enum Found {
    Events(Vec<Event>),
    /// There may be more.
    Nothing,
    Idle,
    /// The snapshot of this source is complete.
    Live,
    /// The client must load everything again.
    Resync,
    /// The client is too slow.
    Slow,
    /// The API server rejects the watch: reason and detail.
    Ended(&'static str, String),
}

impl Source {
    /// Returns the source for a client at this position, and whether the client must load everything
    /// again.
    fn new(subscription: Subscription, resume: Option<u64>) -> (Self, bool) {
        let changes = subscription.changes();
        let (cursor, is_lost) = subscription.shared.read(|phase| match phase {
            Phase::Running(state) => {
                let known = resume.and_then(|known| Cursor::resume(state, known));
                let is_lost = resume.is_some() && known.is_none();
                let cursor = known.unwrap_or_else(|| Cursor::snapshot(state));
                (cursor, is_lost)
            }
            // The first step reports the end.
            Phase::Starting | Phase::Ended(_) => {
                (Cursor::snapshot(&super::state::State::default()), false)
            }
        });
        let source = Self {
            subscription,
            changes,
            cursor,
            id: resume.filter(|_| !is_lost),
        };
        (source, is_lost)
    }

    fn step(&mut self, is_wanted: impl Fn(&Row) -> bool) -> Found {
        let Self {
            subscription,
            cursor,
            id,
            ..
        } = self;
        subscription.shared.read(|phase| {
            let state = match phase {
                Phase::Running(state) => state,
                Phase::Starting => return Found::Idle,
                Phase::Ended(problem) => {
                    return Found::Ended(problem.reason.name(), problem.detail.clone());
                }
            };
            match cursor.step(state, is_wanted) {
                Step::Events(events) if events.is_empty() => Found::Nothing,
                Step::Events(events) => Found::Events(events),
                Step::Live(position) => {
                    *id = Some(position);
                    Found::Live
                }
                Step::Idle => {
                    if let (Some(id), Some(position)) = (id.as_mut(), cursor.position(state)) {
                        *id = position;
                    }
                    Found::Idle
                }
                Step::Lost if !cursor.is_from_before(state) => Found::Slow,
                Step::Lost => match cursor.after_restart(state) {
                    Some(known) => {
                        *cursor = known;
                        Found::Nothing
                    }
                    None => {
                        *cursor = Cursor::snapshot(state);
                        *id = None;
                        Found::Resync
                    }
                },
            }
        })
    }
}

impl RunStream {
    /// Returns the texts of a stream. `resume` has the position of a client that comes back, one
    /// for each subscription; an error stands for a position that cannot be read.
    pub(crate) fn texts(
        subscriptions: Vec<Subscription>,
        resume: Option<Result<Vec<u64>, ()>>,
        filter: Filter,
        now: Now,
        ends: Ends,
        guard: impl Send + 'static,
    ) -> Texts {
        let mut is_lost = matches!(resume, Some(Err(())));
        let known = match resume {
            Some(Ok(known)) => known,
            Some(Err(())) | None => Vec::new(),
        };
        let mut sources = Vec::new();
        for (index, subscription) in subscriptions.into_iter().enumerate() {
            let (source, lost) = Source::new(subscription, known.get(index).copied());
            is_lost |= lost;
            sources.push(source);
        }
        let is_live = !is_lost && !known.is_empty();
        if is_lost {
            // All of them begin again: the client drops everything at `resync`.
            sources = sources.into_iter().map(Source::again).collect();
        }
        let stream = Self {
            sources,
            filter,
            now,
            ends,
            heartbeat: Instant::now() + HEARTBEAT,
            is_live,
            is_over: false,
        };
        let first = is_lost.then(|| Bytes::from(resync()));
        let state = (stream, guard, first);
        let texts = unfold(state, |(mut stream, guard, first)| async move {
            if let Some(first) = first {
                return Some((first, (stream, guard, None)));
            }
            let text = stream.next().await?;
            Some((Bytes::from(text), (stream, guard, None)))
        });
        texts.boxed()
    }

    /// Returns the next text, or `None` after the end.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            if let Some(reason) = self.ends.reached() {
                return Some(self.end(reason));
            }
            match self.step() {
                Next::Text(text) => return Some(text),
                Next::More => {
                    // Other streams must go on meanwhile.
                    tokio::task::yield_now().await;
                    continue;
                }
                Next::Wait => {}
            }
            let changes = self.sources.iter_mut();
            let changes = changes.map(|source| Box::pin(source.changes.changed()));
            let woken = tokio::select! {
                reason = self.ends.wait() => Woken::Ends(reason),
                () = sleep_until(self.heartbeat) => Woken::Heartbeat,
                // The sender lives as long as the subscription.
                _changed = select_all(changes) => Woken::Changed,
            };
            match woken {
                Woken::Ends(reason) => return Some(self.end(reason)),
                Woken::Heartbeat => {
                    self.heartbeat = Instant::now() + HEARTBEAT;
                    return Some(sse::comment(self.id().as_deref()));
                }
                Woken::Changed => {}
            }
        }
    }

    fn end(&mut self, reason: &str) -> String {
        self.is_over = true;
        end(reason, "connect again to go on")
    }

    fn step(&mut self) -> Next {
        let now = (self.now)();
        let mut is_idle = true;
        for index in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(index) else {
                break;
            };
            let filter = &self.filter;
            match source.step(|row| filter.matches(row, now)) {
                Found::Idle => {}
                Found::Nothing => is_idle = false,
                Found::Events(events) => {
                    return Next::Text(self.write(index, events));
                }
                Found::Live => {
                    is_idle = false;
                    if let Some(id) = self.id()
                        && !self.is_live
                    {
                        self.is_live = true;
                        return Next::Text(sse::event("live", Some(&id), "{}"));
                    }
                }
                Found::Resync => {
                    let sources = std::mem::take(&mut self.sources);
                    self.sources = sources.into_iter().map(Source::again).collect();
                    self.is_live = false;
                    return Next::Text(resync());
                }
                Found::Slow => {
                    self.is_over = true;
                    let detail = "the client reads too slowly";
                    return Next::Text(resync() + &end("SlowReader", detail));
                }
                Found::Ended(reason, detail) => {
                    self.is_over = true;
                    return Next::Text(end(reason, &detail));
                }
            }
        }
        match is_idle {
            true => Next::Wait,
            false => Next::More,
        }
    }

    fn write(&mut self, index: usize, events: Vec<Event>) -> String {
        let mut text = String::new();
        for event in events {
            if let Id::At(revision) = event.id
                && let Some(source) = self.sources.get_mut(index)
                && source.id.is_some()
            {
                source.id = Some(revision);
            }
            let id = self.id().filter(|_| event.id != Id::Keep && self.is_live);
            text += &sse::event(event.name, id.as_deref(), &event.data);
        }
        text
    }

    /// Returns the position of the client, if all snapshots are complete.
    fn id(&self) -> Option<String> {
        let parts: Option<Vec<u64>> = self.sources.iter().map(|source| source.id).collect();
        parts.map(|parts| sse::write_id(&parts))
    }
}

/// The event that ended a wait of a stream.
enum Woken {
    Ends(&'static str),
    Heartbeat,
    Changed,
}

/// The next step of a stream.
enum Next {
    Text(String),
    /// Nothing yet, but there may be more at once.
    More,
    /// Nothing until a change.
    Wait,
}

impl Source {
    /// Returns the source at its beginning.
    fn again(self) -> Self {
        Self::new(self.subscription, None).0
    }
}

/// Returns the event after which the client drops everything. Its id is empty, so the client does not
/// resume from an earlier one.
fn resync() -> String {
    let data = json!({ "reason": "HistoryLost" });
    sse::event("resync", Some(""), &data.to_string())
}
