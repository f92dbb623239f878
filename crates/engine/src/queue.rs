//! The work queue: each key at its requeue time, one reconciliation per key at a time, and turns between namespaces.
//!
//! The queue is a pure data structure. Time is an argument, so tests check its rules without waiting.

mod lanes;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use self::lanes::Lanes;
use crate::{clock::Moment, key::Key};

/// Shortest delay of a reconciliation at a time of day. Without it, a decision that always requests one more would
/// spin.
const MIN_REQUEUE_DELAY: Duration = Duration::from_millis(50);

/// Longest timer for a time of day. Then the clock is read again: someone may have set it, and timers do not count
/// while the machine is suspended. So a deadline is late by at most this much.
const MAX_TIMER: Duration = Duration::from_mins(5);

/// Request of a finished reconciliation for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Wait for an event.
    AwaitChange,
    /// Reconcile again at this time, or earlier after an event.
    At(Instant),
    /// Reconcile again at this time of day, or earlier after an event.
    AtTimeOfDay(Timestamp),
    /// Wait after an error, as [`Backoff`] defines. A new generation ends the wait.
    Backoff(Backoff),
}

/// A wait after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Time of the next reconciliation if no event arrives.
    pub until: Instant,
    /// Time from which an ordinary event brings the reconciliation forward. For a long-lived object it is soon:
    /// others may change the object, and only a part of it may have been rejected. A run waits.
    pub deaf_until: Instant,
}

impl Backoff {
    /// Returns a backoff that ordinary events do not shorten.
    #[must_use]
    pub fn deaf(until: Instant) -> Self {
        Self {
            until,
            deaf_until: until,
        }
    }
}

impl fmt::Display for Requeue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = |at: &Instant| at.saturating_duration_since(Instant::now());
        match self {
            Self::AwaitChange => formatter.write_str("on the next event"),
            Self::At(at) => write!(formatter, "in {:?}", wait(at)),
            Self::AtTimeOfDay(at) => write!(formatter, "at {at}"),
            Self::Backoff(backoff) => {
                write!(formatter, "in {:?}, after an error", wait(&backoff.until))
            }
        }
    }
}

/// The keys that are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Number of due keys.
    pub due: usize,
    /// Number of due keys outside of blocked scopes.
    pub open: usize,
    /// Time for which the oldest of them has been due. A report of a blocked key does not restart it.
    pub age: Duration,
}

/// The waiting keys, and the keys in progress.
///
/// # Guarantees
/// - A key is never reconciled concurrently. Events that arrive meanwhile lead to exactly one more reconciliation.
/// - Ordinary events bring a key in backoff forward only as far as its [`Backoff`] allows, and never lengthen its
///   wait. [`Queue::enqueue_now`] (a new generation, a deletion) ends the wait.
/// - Due keys are handed out in turns by namespace, and within a namespace by the time at which they were due.
/// - A key that waits for a time of day costs a comparison every five minutes, and no reconciliation before.
/// - The size of the queue is bounded by the number of objects.
#[derive(Debug, Default)]
pub struct Queue {
    keys: HashMap<Key, Entry>,
    /// Keys whose time has not come, or has come since the last [`Queue::pop`].
    waiting: BTreeSet<(Instant, Key)>,
    /// Keys whose time has come.
    due: Lanes,
    /// Keys that [`Queue::pop_blocked`] returned, with the times since which they have been due. They have not been
    /// reconciled since.
    blocked_since: HashMap<Key, Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    /// Time at which the key is due.
    due: Option<Instant>,
    /// Whether a worker reconciles the key now.
    running: bool,
    /// Time of day before which the key is not due, unless an event arrives. `due` is then the time of the next
    /// comparison with the clock.
    time_of_day: Option<Timestamp>,
    /// Time before which ordinary events change nothing, if the key is in backoff.
    backoff: Option<Instant>,
    /// Whether an event arrived during the reconciliation.
    again: bool,
    /// Whether our own write changed the object during the reconciliation.
    again_own: bool,
    /// Whether an urgent event arrived during the reconciliation.
    urgent: bool,
}

impl Queue {
    /// Queues a key after an ordinary event.
    pub fn enqueue(&mut self, key: &Key, now: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.again = true;
            return;
        }
        match entry.backoff {
            None => self.schedule(key, now, None),
            Some(deaf_until) => self.bring_forward(key, now.max(deaf_until)),
        }
    }

    /// Queues a key after our own write changed its object. Such a write does not end a backoff.
    pub fn enqueue_own(&mut self, key: &Key, now: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.again_own = true;
        } else if entry.backoff.is_none() {
            self.schedule(key, now, None);
        }
    }

    /// Queues a key now and ends its backoff, after a new generation, a deletion or a request of a user.
    pub fn enqueue_now(&mut self, key: &Key, now: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.urgent = true;
        } else {
            entry.backoff = None;
            self.schedule(key, now, None);
        }
    }

    /// Queues a key for this time, unless it is due earlier.
    pub fn schedule_at(&mut self, key: &Key, at: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if !entry.running && entry.backoff.is_none() {
            self.schedule(key, at, None);
        }
    }

    /// Returns the next due key, and marks it as in progress.
    pub fn pop(&mut self, now: Moment) -> Option<Key> {
        self.collect_due(now);
        let key = self.due.pop()?;
        self.blocked_since.remove(&key);
        Some(self.begin(key))
    }

    /// Blocks these scopes: [`Queue::pop`] returns none of their keys. A scope is a namespace, or `None` for everything.
    pub fn block(&mut self, scopes: BTreeSet<Option<String>>) {
        self.due.block(scopes);
    }

    /// Returns the next due key of a blocked namespace for which `is_wanted` returns true, and marks it as in progress.
    /// The key is not reconciled, so its age continues to count.
    pub fn pop_blocked(&mut self, is_wanted: impl Fn(Option<&str>) -> bool) -> Option<Key> {
        let key = self.due.pop_blocked(is_wanted)?;
        if let Some(due) = self.keys.get(&key).and_then(|entry| entry.due) {
            self.blocked_since.entry(key.clone()).or_insert(due);
        }
        Some(self.begin(key))
    }

    fn begin(&mut self, key: Key) -> Key {
        let entry = self.keys.entry(key.clone()).or_default();
        *entry = Entry {
            running: true,
            ..Entry::default()
        };
        key
    }

    /// Ends the reconciliation of a key, and schedules the next one.
    pub fn done(&mut self, key: &Key, next: Requeue, now: Moment) {
        let Some(entry) = self.keys.get_mut(key) else {
            return;
        };
        let Entry {
            again,
            again_own,
            urgent,
            ..
        } = std::mem::take(entry);
        if urgent {
            return self.schedule(key, now.instant, None);
        }
        match next {
            Requeue::Backoff(Backoff { until, deaf_until }) => {
                self.blocked_since.remove(key);
                self.schedule(key, until, Some(deaf_until));
                if again {
                    self.bring_forward(key, now.instant.max(deaf_until));
                }
            }
            Requeue::AwaitChange | Requeue::At(_) | Requeue::AtTimeOfDay(_)
                if again || again_own =>
            {
                self.schedule(key, now.instant, None);
            }
            Requeue::At(at) => self.schedule(key, at, None),
            Requeue::AtTimeOfDay(time) => {
                self.schedule(key, next_check(time, now), None);
                if let Some(entry) = self.keys.get_mut(key) {
                    entry.time_of_day = Some(time);
                }
            }
            Requeue::AwaitChange => {
                self.keys.remove(key);
                self.blocked_since.remove(key);
            }
        }
    }

    /// Ends all backoffs: their keys are due now.
    pub fn end_backoffs(&mut self, now: Instant) {
        let in_backoff = self
            .keys
            .iter()
            .filter(|(_, entry)| entry.backoff.is_some());
        let keys: Vec<Key> = in_backoff.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.schedule(&key, now, None);
        }
    }

    /// Drops waiting keys for which `is_kept` returns false.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Key) -> bool) {
        let Self {
            keys,
            waiting,
            due,
            blocked_since,
        } = self;
        keys.retain(|key, entry| {
            let is_kept = entry.running || is_kept(key);
            if let (false, Some(at)) = (is_kept, entry.due) {
                remove(waiting, due, &(at, key.clone()));
                blocked_since.remove(key);
            }
            is_kept
        });
    }

    /// Returns when the next waiting key is due. Keys that are already due wait for [`Queue::pop`] only.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.first().map(|(due, _)| *due)
    }

    /// Returns the number and the age of the due keys.
    #[must_use]
    pub fn depth(&mut self, now: Moment) -> Depth {
        self.collect_due(now);
        let (due, open, oldest) = self.due.depth();
        let blocked = self.blocked_since.values().copied();
        let oldest = oldest.into_iter().chain(blocked).min();
        let age = oldest.map(|at| now.instant.saturating_duration_since(at));
        Depth {
            due,
            open,
            age: age.unwrap_or_default(),
        }
    }

    /// Moves the keys whose time has come to their lanes.
    fn collect_due(&mut self, now: Moment) {
        let is_due = |(at, _): &(Instant, Key)| *at <= now.instant;
        while self.waiting.first().is_some_and(is_due)
            && let Some((at, key)) = self.waiting.pop_first()
        {
            let entry = self.keys.entry(key.clone()).or_default();
            match entry.time_of_day.filter(|time| now.time < *time) {
                Some(time) => {
                    let check = next_check(time, now);
                    entry.due = Some(check);
                    self.waiting.insert((check, key));
                }
                None => self.due.insert(at, key),
            }
        }
    }

    /// Moves a key in backoff to this time, unless it is due earlier.
    fn bring_forward(&mut self, key: &Key, at: Instant) {
        let Some(entry) = self.keys.get_mut(key) else {
            return;
        };
        if let Some(before) = entry.due.filter(|before| at < *before) {
            remove(&mut self.waiting, &mut self.due, &(before, key.clone()));
            entry.due = Some(at);
            self.waiting.insert((at, key.clone()));
        }
    }

    fn schedule(&mut self, key: &Key, at: Instant, backoff: Option<Instant>) {
        let entry = self.keys.entry(key.clone()).or_default();
        entry.backoff = backoff;
        // An event makes the key due, also if its next comparison with the clock is due at the same time.
        entry.time_of_day = None;
        if let Some(before) = entry.due {
            if backoff.is_none() && before <= at {
                return;
            }
            remove(&mut self.waiting, &mut self.due, &(before, key.clone()));
        }
        entry.due = Some(at);
        self.waiting.insert((at, key.clone()));
    }
}

/// Removes a key from the place of its time.
fn remove(waiting: &mut BTreeSet<(Instant, Key)>, due: &mut Lanes, place: &(Instant, Key)) {
    if !waiting.remove(place) {
        due.remove(place);
    }
}

/// Returns when to compare the clock with a time of day again.
fn next_check(time: Timestamp, now: Moment) -> Instant {
    let wait = Duration::try_from(time.duration_since(now.time)).unwrap_or_default();
    now.instant + wait.clamp(MIN_REQUEUE_DELAY, MAX_TIMER)
}

#[cfg(test)]
mod tests;
