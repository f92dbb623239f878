//! Deadlines of the waits for a Git server.

use std::time::Duration;

use api::Timestamp;
use attempts::Run;

use super::LsRemoteResponse;
use crate::time;

/// Maximum number of extensions of a deadline.
const MAX_EXTENSIONS: u32 = 1;

/// Longest time of a query, once it is in flight: it reads a Secret, and then the Git server.
pub(crate) const QUERY_TIME: Duration = Duration::from_secs(30);

/// How long after the deadline the response to a repeated query is awaited: the time of a query, and
/// as much for its wait in the queue.
const REPEAT_TIME: Duration = Duration::from_secs(60);

/// A wait for the response of a Git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// Its deadline.
    pub(super) until: Timestamp,
    /// How often the deadline was extended.
    pub(super) extensions: u32,
    /// Whether the run waits no longer.
    pub(super) is_over: bool,
}

impl Wait {
    /// Returns the wait with the stored deadline and number of extensions. If none is stored, a
    /// wait of this length begins.
    ///
    /// A deadline that passed without a current response proves nothing about the server: no
    /// operator may have run. So it is extended, but only once. Otherwise a query that never gets
    /// its turn would keep the run waiting indefinitely. An extension has time for at least one query.
    pub(super) fn new(
        run: &Run<'_>,
        stored: Option<(Timestamp, u32)>,
        length: Duration,
        answer: Option<&LsRemoteResponse>,
    ) -> Self {
        let going = |until: Timestamp, extensions: u32| Self {
            until,
            extensions,
            is_over: false,
        };
        let Some((until, extensions)) = stored else {
            return going(run.after(length), 0);
        };
        if run.now < until {
            return going(until, extensions);
        }
        let is_over = match answer {
            Some(answer) if answer.is_fresh => true,
            // The query is being repeated.
            Some(_) if run.now < time::after(until, REPEAT_TIME) => false,
            Some(_) | None if extensions < MAX_EXTENSIONS => {
                let extension = length.max(QUERY_TIME);
                return going(run.after(extension), extensions.saturating_add(1));
            }
            Some(_) | None => true,
        };
        Self {
            until,
            extensions,
            is_over,
        }
    }
}
