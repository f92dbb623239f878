//! Replies from outside the cluster, as plain values. So `decide` reads them without a client and without an async
//! runtime.
//!
//! The engine sends the requests beside the reconciliations (`engine::external`).

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::ReconcileError;

/// Delay after which an object without a current reply is reconciled again. Its request may not have fitted into the
/// queue. Otherwise, the reply triggers the reconciliation.
pub const RECHECK: Duration = Duration::from_secs(30);

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// The response, or the failure. A failure does not show whether the server processed the request.
    pub response: Result<T, ReconcileError>,
    /// Time of the first reply to this request.
    pub since: Timestamp,
    /// Time at which the reply expires and the request is repeated.
    pub next_at: Timestamp,
    /// Whether the reply is current. An expired one may be reported until a new one arrives, but a decision must not
    /// conclude anything from it.
    pub is_fresh: bool,
}

impl<T> Reply<T> {
    /// Returns the response, if it is current and not a failure.
    #[must_use]
    pub fn success(&self) -> Option<&T> {
        match &self.response {
            Ok(response) if self.is_fresh => Some(response),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the failure, also an expired one.
    #[must_use]
    pub fn failure(&self) -> Option<&ReconcileError> {
        self.response.as_ref().err()
    }

    /// Returns when an object that waits for a reply must be reconciled again. Without that reconciliation, nothing
    /// repeats a request whose reply expired.
    #[must_use]
    pub fn requeue_at(reply: Option<&Self>, now: Timestamp) -> Timestamp {
        let recheck = || now.checked_add(RECHECK).unwrap_or(now);
        reply.map_or_else(recheck, |reply| reply.next_at)
    }
}

/// Numbers of requests, for a message about an object that waits for a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight, of all namespaces.
    pub in_flight: usize,
    /// Requests in flight, of the object's namespace.
    pub in_flight_here: usize,
    /// Requests of the object's namespace that wait.
    pub waiting_here: usize,
    /// Whether the object's own request is in flight. Otherwise it waits, has a reply, or did not fit.
    pub is_own_in_flight: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, decide::ErrorClass};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + seconds).unwrap()
    }

    fn reply(response: Result<u8, ReconcileError>, is_fresh: bool) -> Reply<u8> {
        Reply {
            response,
            since: at(0),
            next_at: at(5),
            is_fresh,
        }
    }

    #[test]
    fn only_a_current_response_is_a_success() {
        let error = ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, "away");
        assert_eq!(reply(Ok(7), true).success(), Some(&7));
        assert_eq!(reply(Ok(7), false).success(), None, "it has expired");
        assert_eq!(reply(Ok(7), true).failure(), None);
        for is_fresh in [true, false] {
            let failed = reply(Err(error.clone()), is_fresh);
            assert_eq!(failed.success(), None);
            assert_eq!(failed.failure(), Some(&error));
        }
    }

    #[test]
    fn a_wait_for_a_reply_has_a_next_reconciliation() {
        assert_eq!(Reply::requeue_at(Some(&reply(Ok(7), true)), at(2)), at(5));
        assert_eq!(Reply::<u8>::requeue_at(None, at(2)), at(32));
        let end = Timestamp::MAX;
        assert_eq!(Reply::<u8>::requeue_at(None, end), end);
    }
}
