//! The wall clock. Only this module reads it, so that every decision takes `now` as an argument.

use jiff::Timestamp;
use tokio::time::Instant;

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
    Fake { start: Timestamp, since: Instant },
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
        })
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
            Source::Fake { start, since } => {
                start.checked_add(since.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
