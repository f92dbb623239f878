//! The work queue: each key at its requeue time, and one reconciliation per key at a time.
//!
//! The queue is a pure data structure. Time is an argument, so tests check its rules without waiting.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

use tokio::time::Instant;

use crate::key::Key;

/// Request of a finished reconciliation for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Wait for an event.
    AwaitChange,
    /// Reconcile again at this time, or earlier after an event.
    At(Instant),
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
            Self::Backoff(backoff) => {
                write!(formatter, "in {:?}, after an error", wait(&backoff.until))
            }
        }
    }
}

/// The waiting keys, and the keys in progress.
///
/// # Guarantees
/// - A key is never reconciled concurrently. Events that arrive meanwhile lead to exactly one more reconciliation.
/// - Ordinary events bring a key in backoff forward only as far as its [`Backoff`] allows, and never lengthen its
///   wait. [`Queue::enqueue_now`] (a new generation, a deletion) ends the wait.
/// - The size of the queue is bounded by the number of objects.
#[derive(Debug, Default)]
pub struct Queue {
    keys: HashMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    /// Time at which the key is due.
    due: Option<Instant>,
    /// Whether a worker reconciles the key now.
    running: bool,
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

    /// Returns the key that has been due longest, and marks it as in progress.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        let (due, _) = self.due.first()?;
        if *due > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        let entry = self.keys.entry(key.clone()).or_default();
        *entry = Entry {
            running: true,
            ..Entry::default()
        };
        Some(key)
    }

    /// Ends the reconciliation of a key, and schedules the next one.
    pub fn done(&mut self, key: &Key, next: Requeue, now: Instant) {
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
            return self.schedule(key, now, None);
        }
        match next {
            Requeue::Backoff(Backoff { until, deaf_until }) => {
                self.schedule(key, until, Some(deaf_until));
                if again {
                    self.bring_forward(key, now.max(deaf_until));
                }
            }
            Requeue::AwaitChange | Requeue::At(_) if again || again_own => {
                self.schedule(key, now, None)
            }
            Requeue::At(at) => self.schedule(key, at, None),
            Requeue::AwaitChange => {
                self.keys.remove(key);
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
        let due = &mut self.due;
        self.keys.retain(|key, entry| {
            let is_kept = entry.running || is_kept(key);
            if let (false, Some(at)) = (is_kept, entry.due) {
                due.remove(&(at, key.clone()));
            }
            is_kept
        });
    }

    /// Returns when the next key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns the number of due keys, and how long the oldest has been due.
    #[must_use]
    pub fn depth(&self, now: Instant) -> (usize, std::time::Duration) {
        let depth = self.due.iter().take_while(|(due, _)| *due <= now).count();
        let oldest = self
            .due
            .first()
            .map(|(due, _)| now.saturating_duration_since(*due))
            .unwrap_or_default();
        (depth, oldest)
    }

    /// Moves a key in backoff to this time, unless it is due earlier.
    fn bring_forward(&mut self, key: &Key, at: Instant) {
        let Some(entry) = self.keys.get_mut(key) else {
            return;
        };
        if let Some(before) = entry.due.filter(|before| at < *before) {
            self.due.remove(&(before, key.clone()));
            entry.due = Some(at);
            self.due.insert((at, key.clone()));
        }
    }

    fn schedule(&mut self, key: &Key, at: Instant, backoff: Option<Instant>) {
        let entry = self.keys.entry(key.clone()).or_default();
        entry.backoff = backoff;
        if let Some(before) = entry.due {
            if backoff.is_none() && before <= at {
                return;
            }
            self.due.remove(&(before, key.clone()));
        }
        entry.due = Some(at);
        self.due.insert((at, key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_key_is_handed_out_once_and_once_more_if_something_happened() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.enqueue(&key("a"), now);
        assert_eq!(queue.pop(now), Some(key("a")));
        assert_eq!(queue.pop(now), None);
        queue.enqueue(&key("a"), now);
        queue.enqueue(&key("a"), now);
        assert_eq!(queue.pop(now), None, "never twice at once");
        queue.done(&key("a"), Requeue::AwaitChange, now);
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.done(&key("a"), Requeue::AwaitChange, now);
        assert_eq!(queue.pop(now), None);
        assert!(queue.keys.is_empty(), "nothing is kept of an idle key");
    }

    #[test]
    fn a_burst_of_events_neither_shortens_nor_lengthens_a_backoff() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(now);
        queue.enqueue(&key("a"), now);
        queue.done(
            &key("a"),
            Requeue::Backoff(Backoff::deaf(now + 10 * SECOND)),
            now,
        );
        for step in 0..100 {
            queue.enqueue(&key("a"), now + SECOND / 10 * step);
            queue.schedule_at(&key("a"), now + SECOND);
            assert_eq!(queue.next_due(), Some(now + 10 * SECOND));
        }
        assert_eq!(queue.pop(now + 9 * SECOND), None);
        assert_eq!(queue.pop(now + 10 * SECOND), Some(key("a")));
    }

    #[test]
    fn an_event_brings_a_backoff_forward_that_listens() {
        let now = Instant::now();
        let listening = Backoff {
            until: now + 300 * SECOND,
            deaf_until: now + 5 * SECOND,
        };
        let in_backoff = || {
            let mut queue = Queue::default();
            queue.enqueue(&key("a"), now);
            queue.pop(now);
            queue.done(&key("a"), Requeue::Backoff(listening), now);
            queue
        };
        let due_after = |happens: fn(&mut Queue, &Key, Instant), at: Duration| {
            let mut queue = in_backoff();
            happens(&mut queue, &key("a"), now + at);
            queue.next_due().map(|due| due - now)
        };
        assert_eq!(due_after(Queue::enqueue, SECOND), Some(5 * SECOND));
        assert_eq!(due_after(Queue::enqueue, 7 * SECOND), Some(7 * SECOND));
        assert_eq!(due_after(Queue::enqueue, 400 * SECOND), Some(300 * SECOND));
        assert_eq!(
            due_after(Queue::enqueue_own, 7 * SECOND),
            Some(300 * SECOND)
        );
        assert_eq!(due_after(Queue::enqueue_now, SECOND), Some(SECOND));

        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(now);
        queue.enqueue_own(&key("a"), now);
        queue.done(&key("a"), Requeue::Backoff(listening), now);
        assert_eq!(
            queue.next_due(),
            Some(now + 300 * SECOND),
            "a write of ours"
        );
        queue.enqueue_now(&key("a"), now);
        queue.pop(now);
        queue.enqueue(&key("a"), now);
        queue.done(&key("a"), Requeue::Backoff(listening), now);
        assert_eq!(queue.next_due(), Some(now + 5 * SECOND), "during the look");
    }

    #[test]
    fn a_new_generation_ends_a_backoff_also_when_it_comes_during_the_pass() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(now);
        queue.done(
            &key("a"),
            Requeue::Backoff(Backoff::deaf(now + 10 * SECOND)),
            now,
        );
        queue.enqueue_now(&key("a"), now + SECOND);
        assert_eq!(queue.pop(now + SECOND), Some(key("a")));
        queue.enqueue_now(&key("a"), now + SECOND);
        queue.done(
            &key("a"),
            Requeue::Backoff(Backoff::deaf(now + 20 * SECOND)),
            now + SECOND,
        );
        assert_eq!(queue.pop(now + SECOND), Some(key("a")));
    }

    #[test]
    fn all_backoffs_can_be_ended_and_no_other_wait() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for (name, next) in [
            ("a", Requeue::Backoff(Backoff::deaf(now + 300 * SECOND))),
            ("b", Requeue::At(now + 60 * SECOND)),
        ] {
            queue.enqueue(&key(name), now);
            queue.pop(now);
            queue.done(&key(name), next, now);
        }
        queue.end_backoffs(now + SECOND);
        assert_eq!(queue.pop(now + SECOND), Some(key("a")));
        assert_eq!(queue.pop(now + SECOND), None);
        assert_eq!(queue.next_due(), Some(now + 60 * SECOND));
    }

    #[test]
    fn an_event_comes_before_a_wake_up() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(now);
        queue.done(&key("a"), Requeue::At(now + 60 * SECOND), now);
        assert_eq!(queue.pop(now), None);
        queue.enqueue(&key("a"), now + SECOND);
        assert_eq!(queue.pop(now + SECOND), Some(key("a")));
    }

    #[test]
    fn keys_that_nobody_needs_can_be_dropped_but_not_one_that_is_worked_on() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.enqueue(&key(name), now);
        }
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.retain(|key| key.name == "b");
        assert_eq!(queue.pop(now), Some(key("b")));
        assert_eq!(queue.pop(now), None);
        queue.done(&key("a"), Requeue::AwaitChange, now);
        queue.done(&key("b"), Requeue::AwaitChange, now);
        assert!(queue.keys.is_empty() && queue.due.is_empty());
    }

    #[test]
    fn the_oldest_key_goes_first_and_the_age_is_its_own() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.enqueue(&key("b"), now);
        queue.enqueue(&key("a"), now + SECOND);
        queue.enqueue(&key("b"), now + SECOND);
        assert_eq!(queue.depth(now + 3 * SECOND), (2, 3 * SECOND));
        assert_eq!(queue.pop(now + 3 * SECOND), Some(key("b")));
        assert_eq!(queue.pop(now + 3 * SECOND), Some(key("a")));
    }
}
