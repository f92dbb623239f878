//! The wall clock. Only this module reads it, so that every decision takes `now` as an argument.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

/// One moment on both clocks.
///
/// The clocks drift apart when someone sets the wall clock, and while the machine is suspended: the timers do not
/// count that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time of the timers.
    pub instant: Instant,
    /// The time of day.
    pub time: Timestamp,
}

/// A source of the time of day.
///
/// Deadlines that are stored in objects are times of day. Durations inside this process (the
/// expiry of a Lease, the progress of a queue) use [`tokio::time::Instant`] instead, which
/// nobody can set back.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Fake {
        start: Timestamp,
        since: Instant,
        /// Seconds by which the clock was set forward.
        stepped: Arc<AtomicU64>,
    },
}

impl Clock {
    /// Returns the clock of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Returns a clock for tests. It starts at `start` and follows tokio's clock. So
    /// `tokio::time::pause` and `advance` move the time of day together with every timer.
    #[must_use]
    pub fn fake(start: Timestamp) -> Self {
        Self(Source::Fake {
            start,
            since: Instant::now(),
            stepped: Arc::default(),
        })
    }

    /// Returns the present moment.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment {
            instant: Instant::now(),
            time: self.now(),
        }
    }

    /// Returns the time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System =>
            {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the one place that reads the wall clock"
                )]
                Timestamp::now()
            }
            Source::Fake {
                start,
                since,
                stepped,
            } => {
                let stepped = Duration::from_secs(stepped.load(Ordering::SeqCst));
                let elapsed = since.elapsed() + stepped;
                start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
impl Clock {
    /// Sets a clock for tests forward. The timers do not move.
    pub(crate) fn step(&self, seconds: u64) {
        if let Source::Fake { stepped, .. } = &self.0 {
            stepped.fetch_add(seconds, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fake_clock_moves_with_tokios() {
        let start = "2030-01-02T03:04:05Z".parse().unwrap();
        let clock = Clock::fake(start);
        let copy = clock.clone();
        assert_eq!(clock.now(), start);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2030-01-02T03:05:35Z");
        assert_eq!(copy.now(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fake_clock_stops_at_the_end_of_time() {
        let clock = Clock::fake(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[test]
    fn the_system_clock_is_not_a_fake() {
        assert!(Clock::system().now() > "2025-01-01T00:00:00Z".parse().unwrap());
    }
}
