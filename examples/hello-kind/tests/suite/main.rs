//! Tests of the example kind: its decisions, and its controller on a real API server.

mod decide;
mod real_server;
#[expect(clippy::unwrap_used, reason = "a poisoned lock ends a test")]
mod support;
