//! The events that the gateway reports to the metrics of its process.

use std::time::Duration;

/// Receives the events of the gateway. All names are from the code, so each label has few values.
pub trait Observer: Send + Sync {
    /// A request was answered. `route` is the path with its placeholders, or `other`.
    fn responded(&self, route: &'static str, code: u16, took: Duration);

    /// This many streams are open now.
    fn streams(&self, count: u32);

    /// A request was rejected before the API server saw it, or for its token.
    fn rejected(&self, reason: &'static str);
}

/// Ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn responded(&self, _route: &'static str, _code: u16, _took: Duration) {}

    fn streams(&self, _count: u32) {}

    fn rejected(&self, _reason: &'static str) {}
}
