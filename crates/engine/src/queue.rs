//! Which key is looked at next: one at a time per key, each at its time.
//!
//! The structure is pure: time comes in as an argument, so its rules are tested without waiting.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::key::Key;

/// What a finished pass asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: an event will come.
    Idle,
    /// Look again at this time, or earlier if something happens.
    At(Instant),
    /// After an error: not before this time, whatever happens, except a new generation.
    Backoff(Instant),
}

/// The keys that wait, and those that are worked on.
///
/// # Guarantees
/// - A key is never handed out twice at once; what happens meanwhile leads to one more look.
/// - A key in backoff is not looked at earlier because of ordinary events, and these do not
///   lengthen its wait either. [`Queue::urgent`] (a new generation, a deletion) ends it.
/// - Its size is bounded by the number of objects.
#[derive(Debug, Default)]
pub struct Queue {
    keys: HashMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    /// When it is to be looked at.
    due: Option<Instant>,
    /// Since when it has been due for an ordinary reason; for the age of the queue.
    running: bool,
    /// It is due because of a backoff, so ordinary events change nothing.
    backoff: bool,
    /// Something happened while it was worked on.
    again: bool,
    /// Something urgent happened while it was worked on.
    urgent: bool,
}

impl Queue {
    /// Something happened to this key.
    pub fn touch(&mut self, key: &Key, now: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.again = true;
        } else if !entry.backoff {
            self.schedule(key, now, false);
        }
    }

    /// Something happened that ends a backoff: a new generation, a deletion, a person's wish.
    pub fn urgent(&mut self, key: &Key, now: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.urgent = true;
        } else {
            entry.backoff = false;
            self.schedule(key, now, false);
        }
    }

    /// Looks at this key at this time, unless it is due earlier.
    pub fn schedule_at(&mut self, key: &Key, at: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if !entry.running && !entry.backoff {
            self.schedule(key, at, false);
        }
    }

    /// Hands out the key that is due longest.
    pub fn start(&mut self, now: Instant) -> Option<Key> {
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

    /// Takes a key back.
    pub fn finish(&mut self, key: &Key, next: Next, now: Instant) {
        let Some(entry) = self.keys.get_mut(key) else {
            return;
        };
        let Entry { again, urgent, .. } = std::mem::take(entry);
        if urgent {
            return self.schedule(key, now, false);
        }
        match next {
            Next::Backoff(until) => self.schedule(key, until, true),
            Next::Idle | Next::At(_) if again => self.schedule(key, now, false),
            Next::At(at) => self.schedule(key, at, false),
            Next::Idle => {
                self.keys.remove(key);
            }
        }
    }

    /// Drops the keys that wait and are not to be kept.
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

    /// When the next key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// How many keys are due, and for how long the oldest one has been.
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

    fn schedule(&mut self, key: &Key, at: Instant, backoff: bool) {
        let entry = self.keys.entry(key.clone()).or_default();
        entry.backoff = backoff;
        if let Some(before) = entry.due {
            if !backoff && before <= at {
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
        queue.touch(&key("a"), now);
        queue.touch(&key("a"), now);
        assert_eq!(queue.start(now), Some(key("a")));
        assert_eq!(queue.start(now), None);
        queue.touch(&key("a"), now);
        queue.touch(&key("a"), now);
        assert_eq!(queue.start(now), None, "never twice at once");
        queue.finish(&key("a"), Next::Idle, now);
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(&key("a"), Next::Idle, now);
        assert_eq!(queue.start(now), None);
        assert!(queue.keys.is_empty(), "nothing is kept of an idle key");
    }

    #[test]
    fn a_burst_of_events_neither_shortens_nor_lengthens_a_backoff() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.touch(&key("a"), now);
        queue.start(now);
        queue.touch(&key("a"), now);
        queue.finish(&key("a"), Next::Backoff(now + 10 * SECOND), now);
        for step in 0..100 {
            queue.touch(&key("a"), now + SECOND / 10 * step);
            queue.schedule_at(&key("a"), now + SECOND);
            assert_eq!(queue.next_due(), Some(now + 10 * SECOND));
        }
        assert_eq!(queue.start(now + 9 * SECOND), None);
        assert_eq!(queue.start(now + 10 * SECOND), Some(key("a")));
    }

    #[test]
    fn a_new_generation_ends_a_backoff_also_when_it_comes_during_the_pass() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.touch(&key("a"), now);
        queue.start(now);
        queue.finish(&key("a"), Next::Backoff(now + 10 * SECOND), now);
        queue.urgent(&key("a"), now + SECOND);
        assert_eq!(queue.start(now + SECOND), Some(key("a")));
        queue.urgent(&key("a"), now + SECOND);
        queue.finish(&key("a"), Next::Backoff(now + 20 * SECOND), now + SECOND);
        assert_eq!(queue.start(now + SECOND), Some(key("a")));
    }

    #[test]
    fn an_event_comes_before_a_wake_up() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.touch(&key("a"), now);
        queue.start(now);
        queue.finish(&key("a"), Next::At(now + 60 * SECOND), now);
        assert_eq!(queue.start(now), None);
        queue.touch(&key("a"), now + SECOND);
        assert_eq!(queue.start(now + SECOND), Some(key("a")));
    }

    #[test]
    fn keys_that_nobody_needs_can_be_dropped_but_not_one_that_is_worked_on() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.touch(&key(name), now);
        }
        assert_eq!(queue.start(now), Some(key("a")));
        queue.retain(|key| key.name == "b");
        assert_eq!(queue.start(now), Some(key("b")));
        assert_eq!(queue.start(now), None);
        queue.finish(&key("a"), Next::Idle, now);
        queue.finish(&key("b"), Next::Idle, now);
        assert!(queue.keys.is_empty() && queue.due.is_empty());
    }

    #[test]
    fn the_oldest_key_goes_first_and_the_age_is_its_own() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.touch(&key("b"), now);
        queue.touch(&key("a"), now + SECOND);
        queue.touch(&key("b"), now + SECOND);
        assert_eq!(queue.depth(now + 3 * SECOND), (2, 3 * SECOND));
        assert_eq!(queue.start(now + 3 * SECOND), Some(key("b")));
        assert_eq!(queue.start(now + 3 * SECOND), Some(key("a")));
    }
}
